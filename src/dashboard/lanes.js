// Bars from events: the holders of each key and its waiters, each with a beginning, an end, and how it ended.

import { holder, matcher } from "./format.js";

export const LANES_MAX = 40;
const ROWS_MAX = 4; // of holders, and of waiters, in one lane; further ones overlap in the last
const RECENT_MS = 5000; // an event may arrive before the lock that it changed

const ENDS = { "lock.released": "released", "lock.forced": "forced", "lock.taken_over": "taken over", "lock.lost": "lost" };

/** The ends of a hold that were not a release; they are marked. */
export const MARKED = ["forced", "lost", "taken over", "expired"];

class Lane {
  holds = [];
  waits = [];
  #open = new Map(); // holds without an end, by token
  #known = new Set(); // the tokens that were seen
  #waiting = new Map(); // waits without an end, by owner
  last = 0;

  constructor(key) {
    this.key = key;
  }

  #bar(kind, event, from, list) {
    const bar = { name: `${kind}-${event.id ?? `token-${event.token}`}`, key: this.key, kind, id: event.id, from, to: null, who: holder(event).name, end: null, by: null, reason: null };
    list.push(bar);
    return bar;
  }

  #begin(event, at) {
    this.#known.add(event.token);
    this.#open.set(event.token, this.#bar("hold", event, at, this.holds));
  }

  /** The hold that this event ends, which may have begun before the first event. */
  #held(event, at) {
    if (this.#open.has(event.token)) {
      return [event.token, this.#open.get(event.token)];
    }
    if (event.token === null) {
      return this.#open.size === 1 ? [...this.#open][0] : [null, null]; // a loss that the holder reported without its token
    }
    if (this.#known.has(event.token)) {
      return [null, null]; // it has ended already: a holder notices later that it was forced out
    }
    this.#known.add(event.token);
    return [event.token, this.#bar("hold", event, event.duration_seconds === null ? 0 : at - event.duration_seconds * 1000, this.holds)];
  }

  #end(bar, at, end, event) {
    Object.assign(bar, { to: at, end, by: event.by, reason: event.reason, id: MARKED.includes(end) ? event.id : bar.id });
  }

  #wait(event, at) {
    const mine = this.#waiting.get(event.locked_by) ?? [];
    this.#waiting.set(event.locked_by, mine);
    if (event.event === "wait.began") {
      mine.push(this.#bar("wait", event, at, this.waits));
    } else if (mine.length > 0 || event.duration_seconds !== null) {
      const bar = mine.shift() ?? this.#bar("wait", event, at - event.duration_seconds * 1000, this.waits);
      this.#end(bar, at, event.reason ?? "ended", event);
    }
  }

  add(event) {
    const at = Date.parse(event.timestamp);
    this.last = at;
    if (event.event.startsWith("wait.")) {
      this.#wait(event, at);
    } else if (event.event in ENDS) {
      const [token, bar] = this.#held(event, at);
      if (bar) {
        this.#open.delete(token);
        this.#end(bar, at, ENDS[event.event], event);
      }
    } else {
      if (event.event === "lock.adopted" && this.#open.size === 1) {
        const [[token, bar]] = this.#open;
        this.#open.delete(token);
        this.#end(bar, at, "adopted", event);
      }
      this.#begin(event, at);
    }
  }

  /** End the bars that no event has ended, by the present state of the lock. */
  settle(lock, status, now) {
    if (lock && status !== "released" && lock.token !== null && !this.#known.has(lock.token)) {
      this.#begin({ id: null, token: lock.token, locked_by: lock.locked_by, locked_by_name: lock.locked_by_name }, lock.since);
      this.last = Math.max(this.last, lock.since);
    }
    const n = status === "active" ? Math.max(1, lock.holders ?? 1) : 0;
    [...this.#open.values()].reverse().forEach((bar, i) => {
      if (i < n || (status !== "expired" && now - bar.from < RECENT_MS)) {
        return; // it is still held
      }
      bar.to = status === "expired" ? Math.max(bar.from, Date.parse(lock.expires_at) || bar.from) : bar.from;
      bar.end = status === "expired" ? "expired" : "not recorded";
    });
    // Without a lock (a key that was never held) the waiters are in the queue of the lock above that blocks it.
    const open = [...this.#waiting.values()].flat().sort((a, b) => b.from - a.from);
    const gone = new Set(open.slice(lock ? lock.waiting : open.length).filter((bar) => now - bar.from >= RECENT_MS));
    this.waits = this.waits.filter((bar) => !gone.has(bar));
  }

  /** Only what is in the range; the bars in rows that do not overlap. */
  cut(from, now) {
    const inside = (bars) => bars.filter((bar) => (bar.to ?? now) >= from).sort((a, b) => a.from - b.from);
    this.holds = inside(this.holds);
    this.waits = inside(this.waits);
    this.waited = this.waits.reduce((sum, bar) => sum + (bar.to ?? now) - Math.max(from, bar.from), 0);
    const held = pack(this.holds, now, 0);
    this.rows = held + pack(this.waits, now, held);
    return this;
  }

  get bars() {
    return [...this.holds, ...this.waits];
  }
}

/** Gives each bar the first row that is free; returns the number of rows. */
function pack(bars, now, first) {
  const ends = [];
  for (const bar of bars) {
    let row = ends.findIndex((end) => end <= bar.from);
    if (row < 0) {
      row = Math.min(ends.length, ROWS_MAX - 1);
    }
    ends[row] = Math.max(ends[row] ?? 0, bar.to ?? now);
    bar.row = first + row;
  }
  return ends.length;
}

/**
 * The lanes of these events, oldest first, and of the locks that are held. At most LANES_MAX: those with the longest
 * waits, then those that changed last; in the order of their keys. And how many there were.
 */
export function lanesOf(events, model, { from, now, text = "" }) {
  const fits = matcher(text);
  const lanes = new Map();
  const laneOf = (key) => lanes.get(key) ?? lanes.set(key, new Lane(key)).get(key);
  for (const event of events) {
    if (fits(event.lock_key)) {
      laneOf(event.lock_key).add(event);
    }
  }
  for (const lock of model.locks.values()) {
    const status = model.status(lock);
    if (fits(lock.key) && (status === "active" || (status === "expired" && Date.parse(lock.expires_at) >= from))) {
      laneOf(lock.key);
    }
  }
  const all = [];
  for (const lane of lanes.values()) {
    const lock = model.locks.get(lane.key);
    lane.settle(lock, lock ? model.status(lock) : "released", now);
    if (lane.cut(from, now).bars.length > 0) {
      all.push(lane);
    }
  }
  all.sort((a, b) => b.waited - a.waited || b.last - a.last);
  const shown = all.slice(0, LANES_MAX).sort((a, b) => (a.key < b.key ? -1 : 1));
  return { lanes: shown, total: all.length };
}

/** Bars of one row that are shorter than `least` ms, and as near to each other, become one bar. */
export function merged(bars, now, least) {
  const out = [];
  const last = new Map(); // by row
  for (const bar of bars) {
    const to = bar.to ?? now, before = last.get(bar.row);
    const isSmall = bar.to !== null && to - bar.from < least;
    if (isSmall && before?.isSmall && bar.from - before.to < least) {
      before.n++;
      before.to = Math.max(before.to, to);
      before.end = MARKED.includes(before.end) ? before.end : bar.end;
      before.id = MARKED.includes(before.end) ? before.id : bar.id;
    } else {
      const one = { ...bar, n: 1, isSmall };
      last.set(bar.row, one);
      out.push(one);
    }
  }
  return out;
}
