// Who held what when: a lane for each key, with a bar for each hold and each wait.

import { h, clear, keyed, searchBox, searchKey, STEPS } from "./dom.js";
import { ask } from "./api.js";
import { count, minutes, moment, plural, span } from "./format.js";
import { LANES_MAX, MARKED, lanesOf, merged } from "./lanes.js";
import { activityHead, writeActivity } from "./activity.js";
import { href } from "./locks.js";

const HOUR_MS = 3600000;
const EVENTS_MAX = 5000; // the server answers at most so many
const AGAIN_MS = 1000; // between two requests for new events
const MOVE_MS = 5000; // between two movements of a page without events
const BAR_PX = 3, NAME_PX = 56, ROW_PX = 18, GAP_PX = 4;
const HINT = "Point at a bar, or use the arrow keys, to read it.";
const TICKS = { 1: 10 / 60, 6: 1, 24: 4 }; // hours between two lines

function mark(end) {
  return h("i", { class: `mark ${end === "forced" ? "by-force" : "by-loss"}`, "aria-hidden": "true" }, end === "forced" ? "✕" : "!");
}

/** The bar in a sentence. One that has not ended has its beginning, not its length, so that the text does not change. */
function sentence(bar, now) {
  const what = bar.kind === "hold" ? "held by" : "waited for by", at = (ms) => (ms > 0 ? moment(ms, now) : "before");
  if (bar.n > 1) {
    return `${bar.key}: ${count(bar.n)} short ${bar.kind === "hold" ? "holds" : "waits"}, ${at(bar.from)} to ${at(bar.to)}${MARKED.includes(bar.end) ? `, one ${bar.end}` : ""}`;
  }
  if (bar.to === null) {
    return `${bar.key}: ${bar.kind === "hold" ? "held by" : "waited for by"} ${bar.who} since ${at(bar.from)}`;
  }
  const how = bar.end === "taken over" ? "not released before its lease ended" : bar.end === "forced" ? "ended by force" : bar.end;
  const why = bar.end === "forced" || bar.end === "lost" ? [bar.by ? ` by ${bar.by}` : "", bar.reason ? `: ${bar.reason}` : ""].join("") : "";
  return `${bar.key}: ${what} ${bar.who} ${bar.from > 0 ? `for ${span(bar.to - bar.from)}, ` : ""}${at(bar.from)} to ${at(bar.to)}, ${how}${why}`;
}

export class TimelinePage {
  #model;
  #state;
  #off = new AbortController();
  #events = [];
  #from = 0; // all events after this time are here
  #lastId = 0;
  #isAsking = false;
  #current = null; // the bar that Tab reaches

  constructor(model, state) {
    this.#model = model;
    this.#state = state;
    this.element = this.#build();
    const on = (name, fn) => model.addEventListener(name, fn, { signal: this.#off.signal });
    on("locks", () => this.#later());
    on("link", () => model.link === "live" && this.#load());
    this.mover = setInterval(() => this.#render(), MOVE_MS);
    this.sizes = new ResizeObserver(() => this.#render());
    this.sizes.observe(this.axis);
    this.#load();
  }

  close() {
    this.#off.abort();
    this.sizes.disconnect();
    clearInterval(this.mover);
    clearTimeout(this.timer);
  }

  // ---- fetching

  /** All of the range. */
  async #load() {
    try {
      const hours = this.#state.hours;
      const answer = await ask(`v1/timeline?hours=${hours}`, { signal: this.#off.signal });
      if (hours === this.#state.hours) {
        this.#events = answer.events;
        this.#from = Date.parse(answer.from);
        this.#lastId = answer.last_id;
        this.isLoaded = true;
        this.#render();
      }
    } catch (error) {
      if (error.name !== "AbortError" && !this.isLoaded) {
        clear(this.list).append(h("li", { class: "empty" }, h("h2", {}, "No timeline"), h("p", {}, `${error.message}.`)));
      }
    }
  }

  /** What is new, once a second at most. */
  #later() {
    if (!this.timer && this.isLoaded) {
      this.timer = setTimeout(() => this.#follow(), AGAIN_MS);
    }
  }

  async #follow() {
    this.timer = null;
    if (this.#isAsking || document.hidden) {
      this.#later();
      return;
    }
    this.#isAsking = true;
    try {
      const { events, last_id: last, is_complete: isAll } = await ask(`v1/timeline?hours=${this.#state.hours}&after=${Math.max(1, this.#lastId)}`, { signal: this.#off.signal });
      if (!isAll) {
        await this.#load();
        return;
      }
      this.#lastId = last;
      this.#events.push(...events);
      if (this.#events.length > EVENTS_MAX) {
        this.#events.splice(0, this.#events.length - EVENTS_MAX);
        this.#from = Date.parse(this.#events[0].timestamp);
      }
      this.#render();
    } catch {
      // the page shows that the connection is lost; when it is back, all is loaded again
    } finally {
      this.#isAsking = false;
    }
  }

  // ---- drawing

  #build() {
    this.list = h("ol", { class: "lanes", "aria-label": "Keys" });
    this.axis = h("div", { class: "axis", "aria-hidden": "true" });
    this.read = h("p", { class: "read muted", "aria-hidden": "true" }, HINT);
    this.cut = h("p", { class: "muted cut", role: "status" });
    const [search, box] = searchBox("Filter keys", this.#state.text, { oninput: () => this.#searched(),
      onkeydown: (event) => searchKey(event, () => this.#searched(), () => this.#bars().slice(0, 1)) });
    this.search = search;
    const legend = [["hold", "held"], ["wait", "waiting"]].map(([kind, text]) => h("span", {}, h("i", { class: `swatch ${kind}` }), text));
    const marks = [["forced", "ended by force"], ["lost", "lease lost or expired"]].map(([end, text]) => h("span", {}, mark(end), text));
    const over = (event) => this.#tell(event.target.closest?.(".hold, .wait"));
    for (const name of ["pointerover", "focusin"]) {
      this.list.addEventListener(name, over);
    }
    this.list.addEventListener("pointerleave", () => this.#tell(this.list.contains(document.activeElement) ? document.activeElement.closest(".hold, .wait") : null));
    return h("section", { class: "page activity timelines" },
      activityHead("timeline", this.#state, () => {
        this.isLoaded = false;
        this.#load();
      }, box),
      h("div", { class: "lanehead" }, h("div", { class: "legend" }, legend, marks), this.read, h("div", { class: "lane" }, h("span", {}), this.axis)),
      h("div", { class: "scroller", tabindex: "-1" }, this.list, this.cut));
  }

  #searched() {
    this.#state.text = this.search.value;
    writeActivity(this.#state, "timeline");
    this.#render();
  }

  #tell(bar) {
    this.read.textContent = bar ? bar.getAttribute("aria-label") : HINT;
    this.read.classList.toggle("muted", !bar);
  }

  #render() {
    const width = this.axis.clientWidth;
    if (!this.isLoaded || width === 0 || document.hidden) {
      return;
    }
    const now = this.#model.now(), hours = this.#state.hours, from = now - hours * HOUR_MS;
    while (this.#events.length > 0 && Date.parse(this.#events[0].timestamp) < from - HOUR_MS) {
      this.#events.shift();
    }
    const { lanes, total } = lanesOf(this.#events, this.#model, { from, now, text: this.#state.text });
    const least = (BAR_PX / width) * hours * HOUR_MS;
    this.#drawAxis(from, now, hours);
    if (lanes.length === 0) {
      clear(this.list).append(h("li", { class: "empty" }, h("h2", {}, "Nothing was held"), h("p", {}, this.#state.text ? `No key that matches was held or waited for in the last ${this.#range()}.` : `No lock was held or waited for in the last ${this.#range()}.`)));
    } else {
      keyed(this.list, lanes.map(({ key }) => ({ key, data: key })), (key) => this.#lane(key));
      lanes.forEach((lane, i) => this.#drawLane(this.list.children[i].lastChild, lane, { from, now, least, width }));
    }
    this.#rove();
    this.#tellCut(from, total, now);
  }

  #range() {
    return this.#state.hours === 1 ? "hour" : `${this.#state.hours} hours`;
  }

  #tellCut(from, total, now) {
    const texts = [];
    if (total > LANES_MAX) {
      texts.push(`${LANES_MAX} of ${plural(total, "key")}: those with the longest waits, then those that changed last. Filter to see others.`);
    }
    if (this.#from > from + 1000) {
      texts.push(`There were more events than this page reads: it begins at ${moment(this.#from, now)}.`);
    }
    const text = texts.join(" ");
    if (this.cut.textContent !== text) {
      this.cut.textContent = text;
    }
  }

  #drawAxis(from, now, hours) {
    const step = TICKS[hours] * HOUR_MS, offset = new Date(now).getTimezoneOffset() * 60000;
    const times = [];
    for (let at = Math.ceil((from - offset) / step) * step + offset; at < now; at += step) {
      times.push(at);
    }
    keyed(this.axis, times.map((at) => ({ key: String(at), data: at })), (at) => h("span", {}, minutes(at)));
    times.forEach((at, i) => {
      const share = (at - from) / (now - from);
      this.axis.children[i].style.left = `${(share * 100).toFixed(3)}%`;
      this.axis.children[i].style.visibility = share < 0.03 || share > 0.97 ? "hidden" : "visible";
    });
  }

  #lane(key) {
    return h("li", { class: "lane" }, h("a", { class: "key", href: href(key), title: key }, key), h("div", { class: "track" }));
  }

  #drawLane(track, lane, { from, now, least, width }) {
    const bars = [...merged(lane.holds, now, least), ...merged(lane.waits, now, least)];
    const wide = now - from, px = (ms) => (ms / wide) * width;
    const size = (bar) => (bar.to ?? now) - Math.max(from, bar.from);
    track.style.height = `${lane.rows * ROW_PX + GAP_PX}px`;
    keyed(track, bars.map((bar) => ({ key: bar.name, data: { bar: this.#look(bar), named: px(size(bar)) >= NAME_PX, label: sentence(bar, now) } })), (data) => this.#bar(data));
    bars.forEach((bar, i) => {
      const { style } = track.children[i];
      style.left = `${((Math.max(from, bar.from) - from) / wide * 100).toFixed(3)}%`;
      style.width = `${(size(bar) / wide * 100).toFixed(3)}%`;
      style.top = `${bar.row * ROW_PX + GAP_PX / 2}px`;
    });
  }

  /** What an element of a bar depends on. */
  #look({ key, kind, id, who, end, to, n }) {
    return { key, kind, id, who: n > 1 ? "" : who, end: MARKED.includes(end) ? end : null, isOpen: to === null };
  }

  #bar({ bar, named, label }) {
    const to = bar.id === null ? href(bar.key) : `${href(bar.key)}?event=${bar.id}`;
    return h("a", { class: `${bar.kind}${bar.isOpen ? " open" : ""}`, href: to, tabindex: "-1", "aria-label": label, "data-part": "bar" },
      named && bar.who ? h("span", {}, bar.who) : null,
      bar.end ? mark(bar.end) : null);
  }

  // ---- keys

  #bars(lane) {
    return [...(lane ?? this.list).querySelectorAll(".hold, .wait")];
  }

  /** One bar is in the order of Tab: the last that had the focus, else the newest of the first lane. */
  #rove() {
    const focused = this.list.contains(document.activeElement) ? document.activeElement.closest(".hold, .wait") : null;
    const current = focused ?? (this.#current?.isConnected ? this.#current : this.#bars(this.list.firstChild).at(-1));
    if (this.#current && this.#current !== current) {
      this.#current.tabIndex = -1;
    }
    this.#current = current ?? null;
    if (current) {
      current.tabIndex = 0;
    }
  }

  #go(bar) {
    bar?.focus({ preventScroll: true });
    bar?.closest(".lane").scrollIntoView({ block: "nearest" });
    this.#rove();
    return Boolean(bar);
  }

  /** The bar of another lane that is nearest in time. */
  #across(bar, by) {
    const lanes = [...this.list.children], middle = (one) => one.offsetLeft + one.offsetWidth / 2;
    const lane = lanes[lanes.indexOf(bar.closest(".lane")) + by];
    return lane ? this.#bars(lane).sort((a, b) => Math.abs(middle(a) - middle(bar)) - Math.abs(middle(b) - middle(bar)))[0] : bar;
  }

  key(event) {
    const bar = document.activeElement.closest?.(".hold, .wait");
    if (event.key === "/") {
      this.search.focus();
      return true;
    }
    if (event.key === "Escape" && bar) {
      bar.blur();
      this.#tell(null);
      return true;
    }
    if (!bar) {
      return event.key in STEPS ? this.#go(this.#current) : false;
    }
    const mine = this.#bars(bar.closest(".lane")).sort((a, b) => a.offsetLeft - b.offsetLeft || a.offsetTop - b.offsetTop), at = mine.indexOf(bar);
    const next = { ArrowLeft: mine[at - 1], ArrowRight: mine[at + 1], Home: mine[0], End: mine.at(-1) };
    if (event.key in next) {
      return this.#go(next[event.key] ?? bar);
    }
    return event.key in STEPS ? this.#go(this.#across(bar, STEPS[event.key])) : false;
  }
}
