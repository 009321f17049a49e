// The strip above every page that shows what is frozen, and the dialogs that begin and end a freeze.

import { h, icon, keyed } from "./dom.js";
import { ask } from "./api.js";
import { address } from "./address.js";
import { moment } from "./format.js";
import { beginFreeze, endFreeze } from "./dialogs.js";

const POLL_MS = 15000; // also for freezes that begin or end by their time

export class FreezeStrip {
  element = h("div", { class: "freezes", role: "status", "aria-label": "Freezes" });
  #model;
  #timer = 0;
  #isClosed = false;

  constructor(model) {
    this.#model = model;
    this.element.hidden = true;
    // A freeze is an event of its pattern.
    model.addEventListener("locks", (event) => [...(event.detail?.keys ?? [])].some((key) => key.includes("*")) && this.load());
    model.addEventListener("link", () => model.link === "live" && this.load());
    this.ready = this.load(); // done when it is shown
  }

  close() {
    this.#isClosed = true;
    clearTimeout(this.#timer);
  }

  async load() {
    clearTimeout(this.#timer);
    try {
      this.#show((await ask("v1/freezes")).freezes);
    } catch (error) {
      if (error.status === 400) {
        return; // the store has no freezes
      }
    }
    if (!this.#isClosed) {
      clearTimeout(this.#timer);
      this.#timer = setTimeout(() => this.load(), POLL_MS);
    }
  }

  async begin() {
    if (await beginFreeze()) {
      await this.load();
    }
  }

  async #end(freeze) {
    if (await endFreeze(freeze)) {
      await this.load();
    }
  }

  #show(freezes) {
    this.element.hidden = freezes.length === 0;
    keyed(this.element, freezes.map((one) => ({ key: one.id, data: one })), (freeze) => this.#row(freeze));
  }

  #row(freeze) {
    const at = (text) => moment(Date.parse(text), this.#model.now());
    const when = freeze.in_force ? "Frozen" : `Frozen from ${at(freeze.from)}`;
    const until = freeze.until ? ` until ${at(freeze.until)}` : "";
    const end = this.#model.me.role === "admin"
      ? h("button", { type: "button", "data-part": "end", onclick: () => this.#end(freeze) }, "End…") : null;
    return h("div", { class: "freeze" }, icon("warn"),
      h("span", {}, `${when}${until}: `, h("a", { href: address("#/locks", { q: freeze.pattern.split("*")[0] }), title: "Show its locks", "data-part": "locks" }, h("code", {}, freeze.pattern)), ` by ${freeze.by}: ${freeze.reason}`), end);
  }
}
