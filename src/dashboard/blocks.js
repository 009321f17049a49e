// Who blocks whom: what is in the way of a lock, its queue, and when the turn of each waiter may come.

import { h } from "./dom.js";
import { count, holder, percentile, plural, sharing } from "./format.js";
import { href } from "./locks.js";

const HOLDS = 20; // the last so many say how long a hold takes
const QUEUE_MAX = 200;

/** How long the last holds took, in ms, newest first. */
export function lastHolds(events) {
  return events.filter(({ event, duration_seconds: seconds }) => ["lock.released", "lock.forced"].includes(event) && seconds !== null)
    .map((event) => event.duration_seconds * 1000).reverse().slice(0, HOLDS);
}

const median = (numbers) => percentile([...numbers].sort((a, b) => a - b), 50);

/**
 * In how many ms the waiter with `before` others in front may have its turn: as if each holder took the median of
 * the past holds that were longer than its own so far, and each waiter the median of all. null: nothing is known, or
 * a holder has held longer than every hold before.
 */
export function turnIn(before, { holds, elapsed, slots = 1 }) {
  if (holds.length === 0) {
    return null;
  }
  const free = elapsed.map((so) => median(holds.filter((one) => one > so).map((one) => one - so)));
  if (free.includes(null)) {
    return null;
  }
  while (free.length < slots) {
    free.push(0);
  }
  for (let i = 0; ; i++) {
    free.sort((a, b) => a - b);
    if (i === before) {
      return free[0];
    }
    free[0] += median(holds);
  }
}

const active = (lock) => (lock.holders ?? []).filter((one) => one.status === "active");

/** An estimate in one unit. */
export function about(ms) {
  const minutes = Math.round(ms / 60000);
  return minutes < 1 ? "less than 1 min" : minutes < 90 ? `about ${minutes} min` : `about ${Math.round(minutes / 60)} h`;
}

export class Blocks {
  #key;
  #holds = [];
  #lock = null;
  #isOther = false; // a lock above or below is in the way, too
  #n = 0;

  constructor(key) {
    this.#key = key;
  }

  /** The card; null if nothing is in the way and the queue is empty. */
  draw({ queue, history, tree }) {
    const waiting = queue?.waiting ?? [], lock = queue?.lock;
    const above = tree.above.map((one) => one.lock).filter((one) => one?.status === "active" && one.key !== lock?.key);
    const own = lock?.status === "active" ? [[lock, lock.key === this.#key ? "holder" : "above it"]] : [];
    const found = [...own, ...above.map((one) => [one, "above it"]), ...tree.below.map((one) => [one, "below it"])];
    this.#holds = lastHolds(history.events);
    this.#lock = lock?.key === this.#key ? lock : null;
    this.#isOther = found.some(([one]) => one.key && one.key !== this.#key);
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
    const several = n > 0 ? sharing(lock, n) : ""; // the page lists them
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

  /** The estimates grow shorter as time passes. */
  tick(card, now) {
    const inMs = this.#estimator(now), from = this.#holds.length === 1 ? "the last hold" : `the last ${plural(this.#holds.length, "hold")}`;
    for (const one of card.querySelectorAll("[data-turn]")) {
      const ms = inMs(Number(one.dataset.turn));
      one.textContent = ms === null ? "" : `turn in ${about(ms)}`;
    }
    if (this.turn) {
      const ms = inMs(this.#n);
      this.turn.textContent = ms !== null ? `If you queue now, your turn is in ${about(ms)}, an estimate from ${from}.`
        : this.#isLong(now) ? `It is held for longer than each of ${from}: there is no estimate.` : "";
      this.turn.hidden = this.turn.textContent === "";
    }
  }

  #elapsed(now) {
    return (this.#lock?.status === "active" ? active(this.#lock) : []).map((one) => Math.max(0, now - Date.parse(one.locked_at)));
  }

  #isLong(now) {
    return !this.#isOther && this.#holds.length > 0 && this.#elapsed(now).some((so) => so >= Math.max(...this.#holds));
  }

  /** Only where the past holds of this key say it: not for shared locks, nor if another key is in the way. */
  #estimator(now) {
    const isKnown = this.#lock && !this.#isOther && this.#lock.mode !== "shared";
    const past = { holds: this.#holds, elapsed: this.#elapsed(now), slots: this.#lock?.slots ?? 1 };
    return (before) => (isKnown ? turnIn(before, past) : null);
  }
}
