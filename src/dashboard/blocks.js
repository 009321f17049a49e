// The card "Who blocks whom": the locks that block a key, its queue, and an estimate of each waiter's turn.

import { h } from "./dom.js";
import { count, holder, plural, sharing } from "./format.js";
import { href } from "./locks.js";

const QUEUE_MAX = 200;

const active = (lock) => (lock.holders ?? []).filter((one) => one.status === "active");

/** An estimate in one unit. */
export function about(ms) {
  const minutes = Math.round(ms / 60000);
  return minutes < 1 ? "less than 1 min" : minutes < 90 ? `about ${minutes} min` : `about ${Math.round(minutes / 60)} h`;
}

export class Blocks {
  #key;
  #estimate = null; // the server's; null: there is none
  #at = 0; // when it was made, by performance.now()
  #n = 0;

  constructor(key) {
    this.#key = key;
  }

  /** The card; null if nothing blocks the key and its queue is empty. */
  draw({ queue, tree, at }) {
    const waiting = queue?.waiting ?? [], lock = queue?.lock;
    const above = tree.above.map((one) => one.lock).filter((one) => one?.status === "active" && one.key !== lock?.key);
    const own = lock?.status === "active" ? [[lock, lock.key === this.#key ? "holder" : "above it"]] : [];
    const found = [...own, ...above.map((one) => [one, "above it"]), ...tree.below.map((one) => [one, "below it"])];
    // If another key blocks this one, past holds of this key do not tell when it becomes free.
    this.#estimate = found.some(([one]) => one.key && one.key !== this.#key) ? null : queue?.estimate ?? null;
    this.#at = at;
    this.#n = waiting.length;
    if (found.length === 0 && waiting.length === 0) {
      return null;
    }
    this.turn = h("p", { class: "muted turn" });
    return h("section", { class: "card blocks" }, h("h2", {}, "Who blocks whom", waiting.length > 0 ? h("span", { class: "n" }, `${count(waiting.length)} waiting`) : null),
      found.length > 0 ? h("ul", { class: "line in-the-way" }, found.slice(0, QUEUE_MAX).map((one) => this.#blocker(...one))) : h("p", { class: "muted" }, "Nothing is in the way."),
      waiting.length > 0 ? h("h3", {}, "Queue") : null,
      waiting.length > 0 ? h("ol", { class: "line" }, waiting.slice(0, QUEUE_MAX).map((one) => this.#waiter(one))) : null,
      waiting.length > QUEUE_MAX ? h("p", { class: "muted" }, `and ${count(waiting.length - QUEUE_MAX)} more`) : null, this.turn);
  }

  #blocker(lock, word) {
    const { name, owner } = holder(lock), n = active(lock).length;
    const several = n > 0 ? sharing(lock, n) : ""; // another card lists them
    return h("li", {}, h("span", { class: "badge ok" }, word),
      h("span", { class: "name" }, h("strong", {}, several || name), owner && !several ? h("span", { class: "owner" }, owner) : null,
        lock.key !== this.#key ? h("span", { class: "owner" }, "has ", h("a", { href: href(lock.key), class: "mono" }, lock.key)) : null),
      h("span", { class: "t" }, "for ", h("span", { "data-since": Date.parse(lock.locked_at) }, "")));
  }

  #waiter(waiter) {
    const { name, owner } = holder(waiter);
    return h("li", {}, h("span", { class: "pos" }, String(waiter.position + 1)),
      h("span", { class: "name" }, name, owner ? h("span", { class: "owner" }, owner) : null,
        waiter.key !== this.#key ? h("span", { class: "owner" }, "for ", h("a", { href: href(waiter.key), class: "mono" }, waiter.key)) : null),
      h("span", { class: "t" }, "waiting ", h("span", { "data-since": Date.parse(waiter.since) }, ""), h("span", { class: "turn", "data-turn": waiter.position }, "")));
  }

  get hasEstimate() {
    return this.#estimate !== null;
  }

  /** The estimates grow shorter as time passes. */
  tick(card) {
    const n = this.#estimate?.holds_ms.length ?? 0, passed = performance.now() - this.#at;
    const inMs = (place) => {
      const ms = this.#estimate?.turns_ms[place] ?? null;
      return ms === null ? null : Math.max(0, ms - passed);
    };
    for (const one of card.querySelectorAll("[data-turn]")) {
      const ms = inMs(Number(one.dataset.turn));
      one.textContent = ms === null ? "" : `turn in ${about(ms)}`;
    }
    if (this.turn) {
      const ms = inMs(this.#n), from = `the last ${plural(n, "hold")}`;
      this.turn.textContent = ms !== null ? `If you queue now, your turn is in ${about(ms)}, an estimate from ${from}.`
        : this.#estimate?.is_overdue ? `It is held for longer than each of ${from}: there is no estimate.` : "";
      this.turn.hidden = this.turn.textContent === "";
    }
  }
}
