// The strip "Needs attention" above the table of locks, whose entries are links. And the number of stale and expired
// locks in the tab's title and icon, for a page that stays open in the background.

import { h, icon, keyed, plain } from "./dom.js";
import { ask } from "./api.js";
import { count, plural, span } from "./format.js";

const SOON_MS = 10000, SOON_SHARE = 0.1;
const ALARMS_MS = 1000;
const STOPS_MS = 60000; // the event stream has no decisions about databases: they are fetched

/** The rest of the lease is short: its holder renews it now, or loses it. */
export function isSoon(lock, left) {
  return left < SOON_MS || (lock.ttl_ms > 0 && left / lock.ttl_ms < SOON_SHARE);
}

/** The databases whose last stop or start failed. */
export class FailedStops {
  found = [];
  #timer = 0;
  #isClosed = false;

  constructor(model, changed, signal) {
    const isTheirs = (key) => key.startsWith("LOCK#DB#");
    model.addEventListener("locks", (event) => [...(event.detail?.keys ?? [])].some(isTheirs) && this.#ask(changed), { signal });
    signal.addEventListener("abort", () => {
      this.#isClosed = true;
      clearTimeout(this.#timer);
    });
    this.#ask(changed);
  }

  async #ask(changed) {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#ask(changed), STOPS_MS);
    try {
      const { databases } = await ask("v1/databases");
      this.found = databases.filter((one) => one.last?.action === "error").map((one) => one.database);
    } catch {
      return; // without an answer the strip stays as it is
    }
    if (!this.#isClosed) {
      changed();
    }
  }

  /** The entry of the strip. */
  entries() {
    const n = this.found.length;
    const text = n === 1 ? `stop or start of ${this.found[0]} failed` : `${count(n)} stops or starts of databases failed`;
    return n === 0 ? [] : [{ key: "stops", data: { tone: "bad", picture: "warn", text, href: n === 1 ? `#/databases/${encodeURIComponent(this.found[0])}` : "#/databases" } }];
  }
}

/** Counts over all locks, whatever the page shows of them. */
export class Attention {
  #stale = 0;
  #expired = 0;
  #soon = null;
  #queue = null;

  add(lock, status, left) {
    this.#stale += status === "active" && lock.is_stale ? 1 : 0;
    this.#expired += status === "expired" ? 1 : 0;
    if (lock.waiting > (this.#queue?.waiting ?? 0)) {
      this.#queue = lock;
    }
    if (status === "active" && isSoon(lock, left) && !(this.#soon?.left <= left)) {
      this.#soon = { lock, left };
    }
  }

  /** The entries of the strip, the worst first. */
  entries(hrefOf) {
    const found = [];
    const add = (key, tone, picture, text, href) => found.push({ key, data: { tone, picture, text, href } });
    if (this.#stale > 0) {
      add("stale", "bad", "warn", plural(this.#stale, "stale lock"), "#/locks?filter=stale");
    }
    if (this.#expired > 0) {
      add("expired", "warn", "gone", plural(this.#expired, "expired lock"), "#/locks?filter=expired");
    }
    if (this.#queue) {
      add("queue", "wait", "queue", `${count(this.#queue.waiting)} waiting for ${this.#queue.key}`, hrefOf(this.#queue.key));
    }
    if (this.#soon) {
      add("soon", "soft", "clock", `${this.#soon.lock.key} expires in ${span(this.#soon.left)}`, hrefOf(this.#soon.lock.key));
    }
    return found;
  }
}

/** Without entries the strip stays, so that the table does not move. */
export function drawAttention(strip, entries) {
  const shown = entries.length > 0 ? entries : [{ key: "none", data: {} }];
  const need = ({ tone, picture, text, href }) => h("a", { class: `need ${tone}`, href, title: text, "data-part": "need" }, icon(picture), h("span", {}, text));
  keyed(strip, shown, (data) => (data.tone ? h("li", {}, need(data)) : h("li", { class: "muted" }, "Nothing needs attention")));
}

/**
 * "(3) Locks – belay", and a red mark in the icon: the number of locks that are stale or expired. It uses a timer,
 * because a tab in the background draws nothing.
 */
export class Alarms {
  #model;
  #title = "";
  #timer;

  constructor(model) {
    this.#model = model;
    this.#timer = setInterval(() => this.#show(), ALARMS_MS);
  }

  close() {
    clearInterval(this.#timer);
  }

  /** The title of the page that is shown now. */
  name(title) {
    this.#title = plain(title);
    this.#show();
  }

  #show() {
    let n = 0;
    for (const lock of this.#model.locks.values()) {
      const status = this.#model.status(lock);
      n += status === "expired" || (status === "active" && lock.is_stale) ? 1 : 0;
    }
    const text = `${n > 0 ? `(${n > 99 ? "99+" : n}) ` : ""}${this.#title} – belay`;
    if (document.title !== text) {
      document.title = text;
      document.querySelector('link[rel="icon"]').setAttribute("href", n > 0 ? "ui/icon-alarm.svg" : "ui/icon.svg");
    }
  }
}
