// The last hours: acquisitions and refusals, wait and hold times.

import { h, svg, clear, segments } from "./dom.js";
import { ask } from "./api.js";
import { count, short, span, tick, minutes } from "./format.js";
import { address, writeSettings } from "./address.js";

const RANGES = [1, 6, 24];
const TABS = [["charts", "Charts"], ["timeline", "Timeline"]];
const AGAIN_MS = 10000;
const WIDTH = 640, HEIGHT = 150, LEFT = 44, BOTTOM = 24, TOP = 8;
const BAR_MAX = 60; // of a history of one day

/** Returns the tab. */
export function readActivitySettings(state, settings) {
  const hours = Number(settings.get("hours"));
  state.hours = RANGES.includes(hours) ? hours : state.hours;
  state.text = settings.get("q") ?? "";
  return settings.get("tab") === "timeline" ? "timeline" : "charts";
}

/** The settings of the page in its address. */
function activitySettings({ hours, text }, tab) {
  return { tab: tab === "charts" ? null : tab, hours: hours === 6 ? null : String(hours), q: tab === "timeline" ? text : null };
}

export function writeActivity(state, tab) {
  writeSettings(activitySettings(state, tab));
}

/** The head of both tabs: the tabs, and how far back they go. */
export function activityHead(tab, state, ranged, ...more) {
  const links = TABS.map(([name, label]) => h("a", { href: address("#/activity", activitySettings({ ...state, text: "" }, name)), "aria-current": name === tab ? "page" : null }, label));
  const choose = (hours) => {
    state.hours = hours;
    writeActivity(state, tab);
    links.forEach((link, i) => link.setAttribute("href", address("#/activity", activitySettings({ ...state, text: "" }, TABS[i][0]))));
    ranged();
  };
  writeActivity(state, tab);
  return h("header", { class: "bar" }, h("h1", {}, "Activity"), h("nav", { class: "tabs", "aria-label": "Activity" }, links), more,
    segments("How far back", RANGES.map((hours) => [hours, hours === 1 ? "1 hour" : `${hours} hours`]), state.hours, choose));
}

/** 1, 2 or 5 times a power of ten; for times the units of a clock. */
function ceiling(max, isTime) {
  if (max <= 0) {
    return isTime ? 1000 : 1;
  }
  if (isTime) {
    const nice = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 3e4, 6e4, 12e4, 3e5, 6e5, 12e5, 18e5, 36e5, 72e5, 216e5, 432e5, 864e5];
    return nice.find((n) => n >= max) ?? Math.ceil(max / 864e5) * 864e5;
  }
  const power = 10 ** Math.floor(Math.log10(max));
  return [1, 2, 5, 10].map((n) => n * power).find((n) => n >= max);
}

/** Bars of numbers, or lines of times; `label` names a step. */
export function chart({ title, note, steps, series, isTime, label = (step) => minutes(Date.parse(step.at)) }) {
  const max = ceiling(Math.max(...steps.map((step) => (isTime ? Math.max(...series.map((s) => s.of(step) ?? 0)) : series.reduce((sum, s) => sum + s.of(step), 0)))), isTime);
  const x = (i) => LEFT + (i / steps.length) * (WIDTH - LEFT);
  const y = (value) => TOP + (1 - value / max) * (HEIGHT - TOP - BOTTOM);
  const wide = (WIDTH - LEFT) / steps.length;
  const format = isTime ? tick : short;
  const grid = [0, 0.5, 1].map((share) => svg("g", { class: "grid" },
    svg("line", { x1: LEFT, x2: WIDTH, y1: y(max * share), y2: y(max * share) }),
    svg("text", { x: LEFT - 6, y: y(max * share) + 3, "text-anchor": "end" }, share === 0.5 && !isTime && max < 2 ? "" : format(max * share))));
  const every = Math.ceil(steps.length / 6);
  const labels = steps.map((step, i) => (i % every === 0 ? svg("text", { class: "x", x: x(i), y: HEIGHT - 4 }, label(step)) : null));
  const marks = isTime ? series.map((s) => lines(steps, s, (i) => x(i) + wide / 2, y)) : bars(steps, series, x, y, wide);
  const hasData = steps.some((step) => series.some((s) => s.of(step)));
  const none = hasData ? null : svg("text", { class: "none", x: (LEFT + WIDTH) / 2, y: (HEIGHT - BOTTOM) / 2 + TOP, "text-anchor": "middle" }, "no data yet");
  const focus = svg("rect", { class: "focus", width: wide, y: TOP, height: HEIGHT - TOP - BOTTOM, visibility: "hidden" });
  const read = h("span", { class: "read", "aria-hidden": "true" });
  const summary = series.map((s) => `${s.name}: ${s.total}`).join(", ");
  const picture = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": `${title}. ${summary}` }, grid, labels, focus, marks, none);
  const at = (event) => {
    const box = picture.getBoundingClientRect();
    const i = Math.floor((((event.clientX - box.left) / box.width) * WIDTH - LEFT) / wide);
    const step = steps[i];
    focus.setAttribute("visibility", step ? "visible" : "hidden");
    if (step) {
      focus.setAttribute("x", x(i));
      read.textContent = `${label(step)}  ${series.map((s) => `${s.name} ${s.of(step) === null ? "–" : isTime ? span(s.of(step)) : count(s.of(step))}`).join("  ")}`;
    }
  };
  picture.addEventListener("pointermove", at);
  picture.addEventListener("pointerleave", () => {
    focus.setAttribute("visibility", "hidden");
    read.textContent = "";
  });
  return h("figure", { class: "card chart" },
    h("figcaption", {}, h("h2", {}, title), h("span", { class: "legend" }, series.map((s) => h("span", { class: s.tone }, h("i", {}), s.name, " ", h("b", {}, s.total))))),
    picture, h("p", { class: "note" }, read, h("span", { class: "muted" }, note)));
}

function bars(steps, series, x, y, wide) {
  const width = Math.min(BAR_MAX, Math.max(0.6, wide - (wide > 4 ? 1 : 0.4)));
  return steps.map((step, i) => {
    let base = 0;
    return series.map((s) => {
      const value = s.of(step);
      const rect = value > 0 ? svg("rect", { class: `bar ${s.tone}`, x: x(i) + (wide - width) / 2, width, y: y(base + value), height: Math.max(1, y(base) - y(base + value)), rx: wide > 6 ? 1.5 : 0 }) : null;
      base += value;
      return rect;
    });
  });
}

/** Points for steps with data; neighbours are joined. */
function lines(steps, series, x, y) {
  let path = "", isDown = false;
  const dots = [];
  steps.forEach((step, i) => {
    const value = series.of(step);
    if (value === null) {
      isDown = false;
      return;
    }
    path += `${isDown ? "L" : "M"}${x(i).toFixed(1)} ${y(value).toFixed(1)}`;
    isDown = true;
    dots.push(svg("circle", { class: `dot ${series.tone}`, cx: x(i), cy: y(value), r: 2 }));
  });
  return [svg("path", { class: `line ${series.tone}`, d: path || "M0 0" }), dots];
}

export class ActivityPage {
  #model;
  #state;
  #off = new AbortController();

  constructor(model, state) {
    this.#model = model;
    this.#state = state;
    this.charts = h("div", { class: "charts" }, h("p", { class: "muted" }, "Counting…"));
    this.element = h("section", { class: "page activity" }, activityHead("charts", state, () => this.#ask()),
      h("div", { class: "scroller", tabindex: "-1" }, this.charts));
    model.addEventListener("numbers", () => this.#later(), { signal: this.#off.signal });
    model.addEventListener("link", () => model.link === "live" && this.#ask(), { signal: this.#off.signal });
    this.minute = setInterval(() => this.#later(), 60000);
    this.#ask();
  }

  close() {
    this.#off.abort();
    clearInterval(this.minute);
    clearTimeout(this.timer);
  }

  key() {
    return false;
  }

  /** Fetch when the server announces new data, at a limited rate. */
  #later() {
    if (!this.timer && !document.hidden) {
      this.timer = setTimeout(() => this.#ask(), Math.max(0, AGAIN_MS - (performance.now() - (this.askedAt ?? 0))));
    }
  }

  async #ask() {
    clearTimeout(this.timer);
    this.timer = null;
    this.askedAt = performance.now();
    try {
      const stats = await ask(`v1/activity?hours=${this.#state.hours}`, { signal: this.#off.signal });
      this.#render(stats);
      if (!stats.is_complete) {
        this.timer = setTimeout(() => this.#ask(), 1000);
      }
    } catch (error) {
      if (error.name !== "AbortError" && !this.charts.querySelector("figure")) {
        clear(this.charts).append(h("div", { class: "empty" }, h("h2", {}, "No data"), h("p", {}, `${error.message}.`)));
      }
    }
  }

  #render({ steps, total, step_ms: step }) {
    const open = this.charts.querySelector("details")?.open;
    const per = `per ${tick(step)}`;
    const mean = (sum, n) => (n > 0 ? sum / n : null);
    const is = (name) => (s) => s[name];
    clear(this.charts).append(
      chart({ title: "Locks acquired", note: `locks acquired, ${per}`, steps, series: [
        { name: "acquired", tone: "ok", of: is("acquired"), total: short(total.acquired) }] }),
      chart({ title: "Refused, taken over, forced", note: `requests refused, and locks that changed hands without a release, ${per}`, steps, series: [
        { name: "refused", tone: "warn", of: is("refused"), total: short(total.refused) },
        { name: "taken over", tone: "wait", of: is("taken_over"), total: short(total.taken_over) },
        { name: "forced", tone: "bad", of: is("forced"), total: short(total.forced) }] }),
      chart({ title: "Time in the queue", note: `how long clients waited for a lock, ${per}`, steps, isTime: true, series: [
        { name: "mean", tone: "wait", of: (s) => mean(s.wait_ms, s.waits), total: tick(mean(total.wait_ms, total.waits) ?? 0) },
        { name: "longest", tone: "warn", of: (s) => (s.waits > 0 ? s.wait_max_ms : null), total: tick(total.wait_max_ms) }] }),
      chart({ title: "Hold time", note: `how long locks were held before their release, ${per}`, steps, isTime: true, series: [
        { name: "median", tone: "ok", of: is("held_p50_ms"), total: tick(total.held_p50_ms ?? 0) },
        { name: "95 % within", tone: "accent", of: is("held_p95_ms"), total: tick(total.held_p95_ms ?? 0) }] }),
      this.#table(steps, open));
  }

  #table(steps, isOpen) {
    const some = steps.filter((step) => step.acquired + step.refused + step.waits + step.released > 0).reverse();
    const head = ["From", "Acquired", "Refused", "Waits", "Mean wait", "Released", "Median hold", "95 % hold"];
    const details = h("details", { class: "card numbers" }, h("summary", {}, "The numbers as a table"),
      h("div", { class: "wide", tabindex: "0", role: "region", "aria-label": "Numbers" },
        h("table", {}, h("thead", {}, h("tr", {}, head.map((title) => h("th", { scope: "col" }, title)))),
          h("tbody", {}, some.map((s) => h("tr", {}, h("th", { scope: "row" }, minutes(Date.parse(s.at))),
            [count(s.acquired), count(s.refused), count(s.waits), s.waits ? span(s.wait_ms / s.waits) : "–", count(s.released), span(s.held_p50_ms), span(s.held_p95_ms)]
              .map((text) => h("td", {}, text))))))),
      some.length === 0 ? h("p", { class: "muted" }, "No events in this period.") : null);
    details.open = Boolean(isOpen);
    return details;
  }
}
