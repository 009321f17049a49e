// Statistics from the history: hold and wait times, acquisitions, refusals; of all locks, and of one on its page.

import { h, clear, say, searchBox, segments } from "./dom.js";
import { ask } from "./api.js";
import { count, plural, short, span, tick, clock } from "./format.js";
import { writeSettings } from "./address.js";
import { chart } from "./activity.js";

const PERIODS = [["1d", "1 day"], ["7d", "7 days"], ["30d", "30 days"], ["all", "All"]];
const BY = [["day", "Day"], ["profile", "Profile"], ["key", "Key"]];
const AGAIN_MS = 60000;
const SHARE = 50; // a long history takes the server seconds: requests take a fiftieth of the time at most
const TYPING_MS = 400;
const DAY_MS = 86400000, YEAR_MS = 365 * DAY_MS;
const DATED = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", year: "numeric", hour: "2-digit", minute: "2-digit" });
const DAY = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", timeZone: "UTC" });

export function statsState() {
  return { period: "7d", by: "day", prefix: "" };
}

export function readStatsSettings(state, settings) {
  const known = (values, name, usual) => (values.some(([value]) => value === settings.get(name)) ? settings.get(name) : usual);
  state.period = known(PERIODS, "since", "7d");
  state.by = known(BY, "by", "day");
  state.prefix = settings.get("prefix") ?? "";
}

function query({ period, by, prefix, key }) {
  const all = { by, prefix, key, since: period === "all" ? null : period };
  return `v1/stats?${new URLSearchParams(Object.entries(all).filter(([, value]) => value))}`;
}

/** The time that the numbers cover: the history may be shorter than the period. */
function covered({ from, oldest_event: oldest }, period) {
  const isShort = period !== "all" && from === oldest;
  return `${DATED.format(Date.parse(from))} to now${isShort ? ": the history begins there" : period === "all" ? ": all that the history has" : ""}`;
}

/** All days of the period, those without events too; a year at most. */
function everyDay({ groups, from, until }) {
  const known = new Map(groups.map((day) => [day.name, day]));
  const none = { count: 0, median_ms: null, p90_ms: null, longest_ms: null };
  const day = (text) => Date.parse(text.slice(0, 10));
  const all = [];
  for (let at = Math.max(day(from), day(until) - YEAR_MS); at <= day(until); at += DAY_MS) {
    const name = new Date(at).toISOString().slice(0, 10);
    all.push(known.get(name) ?? { name, acquired: 0, refused: 0, taken_over: 0, forced: 0, lost: 0, held: none, waited: none });
  }
  return all;
}

function charts(stats) {
  const { total } = stats, steps = everyDay(stats), label = (step) => DAY.format(Date.parse(step.name));
  const times = (name) => [
    { name: "median", tone: "ok", of: (step) => step[name].median_ms, total: tick(total[name].median_ms ?? 0) },
    { name: "90 % within", tone: "accent", of: (step) => step[name].p90_ms, total: tick(total[name].p90_ms ?? 0) }];
  const sum = (name, tone, words = name) => ({ name: words, tone, of: (step) => step[name], total: short(total[name]) });
  return [
    chart({ title: "Locks acquired", note: "locks acquired, per day (UTC)", steps, label, series: [sum("acquired", "ok")] }),
    chart({ title: "Refused, taken over, forced, lost", note: "requests refused, and locks that ended without a release, per day", steps, label,
      series: [sum("refused", "warn"), sum("taken_over", "wait", "taken over"), sum("forced", "bad"), sum("lost", "accent")] }),
    chart({ title: "Hold time", note: "how long locks were held that ended on that day", steps, label, isTime: true, series: times("held") }),
    chart({ title: "Time in the queue", note: "how long clients waited that left the queue on that day", steps, label, isTime: true, series: times("waited") }),
  ];
}

function nameOf(by, name) {
  if (name === null) {
    return "all others";
  }
  return by === "key" ? h("a", { class: "quiet mono", href: `#/locks/${encodeURIComponent(name)}` }, name) : by === "day" ? name : name || "no profile";
}

function table({ by, groups, total }) {
  const head = [BY.find(([name]) => name === by)[1], "Acquired", "Refused", "Taken over", "Forced", "Lost", "Held, median", "90 %", "Longest", "Waits", "Waited, median", "90 %", "Longest"];
  const cells = (one) => [count(one.acquired), count(one.refused), count(one.taken_over), count(one.forced), count(one.lost),
    span(one.held.median_ms), span(one.held.p90_ms), span(one.held.longest_ms), count(one.waited.count),
    span(one.waited.median_ms), span(one.waited.p90_ms), span(one.waited.longest_ms)].map((text) => h("td", {}, text));
  const rows = by === "day" ? [...groups].reverse() : groups;
  return h("div", { class: "card numbers" }, h("div", { class: "wide", tabindex: "0", role: "region", "aria-label": "Numbers" },
    h("table", {}, h("caption", { class: "unseen" }, `Statistics by ${by}`),
      h("thead", {}, h("tr", {}, head.map((title) => h("th", { scope: "col" }, title)))),
      h("tbody", {}, rows.map((one) => h("tr", {}, h("th", { scope: "row" }, nameOf(by, one.name)), cells(one)))),
      h("tfoot", {}, h("tr", {}, h("th", { scope: "row" }, "Total"), cells(total))))));
}

function empty(title, text) {
  return h("div", { class: "empty" }, h("h2", {}, title), h("p", {}, text));
}

export class StatsPage {
  #model;
  #state;
  #asked = null; // the request in progress

  constructor(model, state) {
    this.#model = model;
    this.#state = state;
    const [search, box] = searchBox("Keys that begin with", state.prefix, { class: "search mono", placeholder: "Keys that begin with…", maxlength: "512", oninput: () => this.#typed() });
    this.search = search;
    this.about = h("p", { class: "muted period", role: "status" }, "Counting…");
    this.body = h("div", { class: "charts" });
    this.element = h("section", { class: "page activity stats" },
      h("header", { class: "bar" }, h("h1", {}, "Statistics"),
        box,
        segments("Divided by", BY, state.by, (by) => this.#choose({ by })),
        segments("How far back", PERIODS, state.period, (period) => this.#choose({ period }))),
      h("div", { class: "scroller", tabindex: "-1" }, this.about, this.body));
    this.#choose({});
  }

  close() {
    this.#asked?.abort();
    clearTimeout(this.timer);
    clearTimeout(this.typing);
  }

  key(event) {
    if (event.key === "/") {
      this.search.focus();
    }
    return event.key === "/";
  }

  #typed() {
    clearTimeout(this.typing);
    this.typing = setTimeout(() => this.#choose({ prefix: this.search.value }), TYPING_MS);
  }

  #choose(values) {
    Object.assign(this.#state, values);
    const { period, by, prefix } = this.#state;
    writeSettings({ since: period === "7d" ? null : period, by: by === "day" ? null : by, prefix });
    this.#ask();
  }

  async #ask() {
    clearTimeout(this.timer);
    this.#asked?.abort();
    const asked = new AbortController(), began = performance.now();
    this.#asked = asked;
    this.element.setAttribute("aria-busy", "true");
    try {
      const stats = await ask(query(this.#state), { signal: asked.signal });
      this.#render(stats);
    } catch (error) {
      if (asked.signal.aborted) {
        return;
      }
      this.about.textContent = "";
      clear(this.body).append(empty("No statistics", `${error.message}.`));
    }
    this.element.removeAttribute("aria-busy");
    this.timer = setTimeout(() => this.#again(), Math.max(AGAIN_MS, SHARE * (performance.now() - began)));
  }

  #again() {
    if (document.hidden || this.#model.link !== "live") {
      this.timer = setTimeout(() => this.#again(), AGAIN_MS);
    } else {
      this.#ask();
    }
  }

  #render(stats) {
    const at = this.body.querySelector(".wide")?.scrollTop ?? 0;
    if (stats.events === 0) {
      this.about.textContent = stats.from ? covered(stats, this.#state.period) : "";
      clear(this.body).append(empty("No data yet", stats.oldest_event ? "No lock of this choice had an event in this time." : "The history has no events."));
      return;
    }
    this.about.textContent = `${covered(stats, this.#state.period)}. Counted at ${clock(Date.parse(stats.until))}.`;
    clear(this.body).append(...(stats.by === "day" ? charts(stats) : []), table(stats));
    this.body.querySelector(".wide").scrollTop = at;
    say(`Statistics of ${plural(stats.events, "event")}`);
  }
}

/** The statistics of one lock, on its page. */
export class StatsCard {
  #key;
  #signal;
  #stats = null;
  #askedAt = -Infinity;

  constructor(key, signal) {
    this.#key = key;
    this.#signal = signal;
  }

  /** The card; `otherwise` until there are numbers, and on a store that keeps no history. */
  draw(otherwise) {
    if (performance.now() - this.#askedAt > AGAIN_MS / 4) {
      this.load();
    }
    this.card = this.#stats ? this.#make() : otherwise ?? h("div", { hidden: true });
    return this.card;
  }

  /** Done when there are numbers, or after a second: a long history takes longer. */
  load() {
    this.#askedAt = performance.now();
    return Promise.race([this.#ask(), new Promise((resolve) => setTimeout(resolve, 1000))]);
  }

  async #ask() {
    try {
      const stats = await ask(query({ key: this.#key, period: "all" }), { signal: this.#signal });
      this.#stats = stats.events > 0 ? stats : null;
    } catch {
      return; // the page shows hold times from the history instead
    }
    if (this.#stats && this.card?.isConnected) {
      const fresh = this.#make();
      this.card.replaceWith(fresh);
      this.card = fresh;
    }
  }

  #make() {
    const { total } = this.#stats;
    const fact = (name, text) => h("div", {}, h("dt", {}, name), h("dd", {}, text));
    const times = (title, set, one) => [h("h3", {}, title, h("span", { class: "n" }, plural(set.count, one))),
      h("dl", { class: "trio" }, fact("Median", span(set.median_ms)), fact("90 %", span(set.p90_ms)), fact("Longest", span(set.longest_ms)))];
    const ends = [[total.refused, "refused"], [total.taken_over, "taken over"], [total.forced, "forced"], [total.lost, "lost"]].filter(([n]) => n > 0);
    return h("section", { class: "card onekey" }, h("h2", {}, "Statistics", h("span", { class: "n" }, `acquired ${plural(total.acquired, "time")}`)),
      total.held.count > 0 ? times("Held", total.held, "hold") : null,
      total.waited.count > 0 ? times("Waited", total.waited, "wait") : null,
      ends.length > 0 ? h("p", {}, ends.map(([n, word]) => `${count(n)} ${word}`).join(", ")) : null,
      h("p", { class: "muted" }, covered(this.#stats, "all")));
  }
}
