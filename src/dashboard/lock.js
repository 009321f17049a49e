// One lock: its holder, queue, history and place in the hierarchy.

import { h, svg, icon, clear, command, copyButton, say } from "./dom.js";
import { ask, keyPath } from "./api.js";
import { span, count, holder, moment, percentile, quote, sharing } from "./format.js";
import { badges, href } from "./locks.js";
import { StatsCard } from "./stats.js";
import { Blocks } from "./blocks.js";
import { forceUnlock } from "./dialogs.js";

const HISTORY = 500;
const AGAIN_MS = 1000; // a busy lock is fetched once a second
const ESTIMATE_MS = 30000; // an estimate is fetched again after so long

const WORDS = {
  "lock.acquired": ["Acquired", "ok"], "lock.reentered": ["Re-entered", "ok"], "lock.adopted": ["Adopted", "ok"],
  "lock.renewed": ["Renewed", "dim"], "lock.released": ["Released", "off"], "lock.refused": ["Refused", "dim"],
  "lock.taken_over": ["Taken over", "warn"], "lock.lost": ["Lost", "warn"], "lock.stale": ["Heartbeats missed", "warn"], "lock.forced": ["Ended by force", "bad"],
  "db.stop.decided": ["Decided to stop the database", "wait"], "db.stop.stopped": ["Database stopped", "ok"], "db.stop.skipped_shared_active": ["Not stopped: in use", "warn"],
  "db.stop.skipped_lock": ["Not stopped: locked", "warn"], "db.stop.skipped": ["Stop: nothing to do", "dim"], "db.stop.error": ["Stop failed", "bad"],
  "db.start.decided": ["Decided to start the database", "wait"], "db.start.started": ["Database started", "ok"], "db.start.skipped_lock": ["Not started: locked", "warn"],
  "db.start.skipped": ["Start: nothing to do", "dim"], "db.start.error": ["Start failed", "bad"],
  "wait.began": ["Began to wait", "wait"], "wait.ended": ["Stopped waiting", "wait"],
};

/** The address of a CI run or a pull request is a link; anything else is text. */
function linked(value) {
  return /^https?:\/\/[^\s]+$/.test(value) ? h("a", { class: "quiet", href: value, target: "_blank", rel: "noopener noreferrer" }, value) : value || " ";
}

export class LockPage {
  #model;
  #key;
  #off = new AbortController();
  #data = null;
  #blocks;
  #event;
  #isShown = false;
  #isAsking = false;
  #isStale = false;

  /** `event` is the number of an event of its history to show, if any. */
  constructor(model, key, event) {
    this.#model = model;
    this.#key = key;
    this.stats = new StatsCard(key, this.#off.signal);
    this.#blocks = new Blocks(key);
    this.#event = event > 0 ? event : null;
    this.element = this.#build();
    const on = (name, fn) => model.addEventListener(name, fn, { signal: this.#off.signal });
    on("locks", (event) => {
      if (!event.detail.keys || event.detail.keys.has(key)) {
        this.#refresh();
      }
    });
    on("link", () => model.link === "live" && this.#refresh());
    this.ticker = setInterval(() => this.#tick(), 1000);
    this.#refresh();
  }

  close() {
    this.#off.abort();
    clearInterval(this.ticker);
    clearTimeout(this.again);
  }

  key(event) {
    if (event.key === "Escape" || event.key === "h") {
      location.hash = "#/locks";
    } else if (event.key === "u" && this.force) {
      this.force.click();
    } else {
      return false;
    }
    return true;
  }

  // ---- fetching

  async #refresh() {
    if (this.#isAsking) {
      this.#isStale = true;
      return;
    }
    this.#isAsking = true;
    this.#isStale = false;
    try {
      const signal = this.#off.signal;
      const [queue, history, tree] = await Promise.all([
        ask(keyPath(this.#key, "/queue?estimate=true"), { signal }).catch((error) => this.#missing(error)),
        ask(keyPath(this.#key, `/history?limit=${HISTORY}`), { signal }).catch((error) => ({ events: [], why: error.message })),
        ask(keyPath(this.#key, "/tree"), { signal }).catch(() => ({ above: [], below: [] })),
        this.#data ? null : this.stats.load(), // the first time, so that nothing moves when they arrive
      ]);
      this.#data = { queue, history, tree, at: performance.now() };
      this.#render();
    } catch (error) {
      if (error.name === "AbortError") {
        return;
      }
      if (!this.#data) {
        this.#fail(error);
      }
    } finally {
      this.again = setTimeout(() => {
        this.#isAsking = false;
        if (this.#isStale) {
          this.#refresh();
        }
      }, AGAIN_MS);
    }
  }

  #missing(error) {
    if (error.status === 404) {
      return null;
    }
    throw error;
  }

  // ---- drawing

  #build() {
    this.head = h("div", { class: "top" });
    this.cards = h("div", { class: "cards" });
    this.place = h("div", { class: "place" }, h("p", { class: "muted loading" }, "Loading…"));
    return h("section", { class: "page lock" },
      h("header", { class: "bar" },
        h("a", { class: "back", href: "#/locks" }, icon("back"), "Locks"),
        h("h1", { class: "mono" }, this.#key), copyButton(this.#key, "Key")),
      h("div", { class: "scroller", tabindex: "-1" }, this.head, this.place));
  }

  #fail(error) {
    clear(this.place).append(h("div", { class: "empty" }, h("h2", {}, "This lock cannot be shown"), h("p", {}, `${error.message}.`)));
  }

  #render() {
    const { queue, history, tree } = this.#data;
    const open = this.cards.querySelector("details")?.open;
    if (this.place.firstChild !== this.cards) {
      clear(this.place).append(this.cards);
    }
    if (!queue && history.events.length === 0) {
      clear(this.head);
      clear(this.cards).append(this.#unknown(this.#blocks.draw(this.#data)), this.#hierarchy(tree) ?? "");
      this.#tick();
      return;
    }
    this.#renderHead(queue?.lock);
    clear(this.cards).append(
      h("div", { class: "col" }, this.#holders(queue?.lock), this.#blocks.draw(this.#data), this.#timeline(history)),
      h("div", { class: "col" }, this.#facts(queue?.lock), this.stats.draw(this.#holds(history.events)), this.#hierarchy(tree)));
    if (open) {
      this.cards.querySelector("details").open = true;
    }
    this.#tick();
    this.#showEvent();
  }

  #unknown(blocks) {
    return blocks ? h("div", { class: "col" }, blocks, this.#card("History", "", h("p", { class: "muted" }, "Nothing has been recorded.")))
      : h("div", { class: "empty" }, h("h2", {}, "This lock is unknown"), h("p", {}, "It is free and has no recent history. To acquire it:"),
        command(`belay acquire ${quote(this.#key)}`));
  }

  /** Marks the event that the address names, and scrolls to it once. */
  #showEvent() {
    const item = this.#event ? this.cards.querySelector(`li[data-event="${this.#event}"]`) : null;
    item?.classList.add("here");
    if (item && !this.#isShown) {
      item.closest("details")?.setAttribute("open", "");
      item.focus({ preventScroll: true });
      item.scrollIntoView({ block: "center" });
    }
    this.#isShown = true;
  }

  #renderHead(lock) {
    clear(this.head);
    this.lock = lock;
    this.force = null;
    if (!lock) {
      return;
    }
    this.until = this.#data.at + lock.expires_in_ms;
    this.left = h("strong", {});
    this.age = h("strong", {});
    this.status = null;
    this.meter = h("i", {});
    this.state = h("span", { class: "states" });
    const isActive = lock.status === "active";
    const held = this.#held(lock);
    const { name, owner } = held.length > 0 && lock.mode !== "exclusive" ? { name: sharing(lock, held.length), owner: "" } : holder(lock);
    this.head.append(
      h("div", { class: "who" },
        this.state,
        h("p", { class: "holder" }, h("strong", {}, name), owner ? h("span", { class: "owner" }, owner) : null)),
      h("dl", { class: "times" },
        h("div", {}, h("dt", {}, isActive ? "Held for" : "Acquired"), h("dd", {}, this.age)),
        h("div", {}, h("dt", {}, "Expires in"), h("dd", {}, this.left, h("span", { class: "meter", "aria-hidden": "true" }, this.meter)))),
      isActive ? this.#forceButton(held) : null);
  }

  /** The present holders, each with the key. */
  #held(lock) {
    return lock.holders.filter((one) => one.status === "active").map((one) => ({ ...one, key: lock.key }));
  }

  /** Of several holders each has a button of its own. */
  #forceButton(held) {
    if (this.#model.me.role !== "admin") {
      return h("p", { class: "muted force-hint" }, "Ending it needs the role 'admin'.");
    }
    if (held.length !== 1) {
      return null;
    }
    this.force = h("button", { type: "button", class: "danger", onclick: () => this.#askForce(held[0]) }, "Force unlock…");
    return this.force;
  }

  #holders(lock) {
    const held = lock ? this.#held(lock) : [];
    if (held.length === 0 || lock.mode === "exclusive") {
      return null;
    }
    const item = (one) => {
      const { name, owner } = holder(one);
      return h("li", {}, h("span", { class: "name" }, name, owner ? h("span", { class: "owner" }, owner) : null,
        one.token === null ? null : h("span", { class: "owner" }, `token ${one.token}`), one.is_stale ? h("span", { class: "badge warn" }, "stale") : null),
      h("span", { class: "t" }, "held for ", h("span", { "data-since": Date.parse(one.locked_at) }, "")),
      this.#model.me.role === "admin" && held.length > 1
        ? h("button", { type: "button", class: "danger", "aria-label": `Force unlock ${name}`, onclick: () => this.#askForce(one) }, "Force unlock…") : null);
    };
    return this.#card("Holders", sharing(lock, held.length), h("ol", { class: "line holders" }, held.slice(0, 200).map(item)),
      held.length > 200 ? h("p", { class: "muted" }, `and ${count(held.length - 200)} more`) : null);
  }

  async #askForce(lock) {
    if (await forceUnlock(lock, this.#model)) {
      say(`Lock ${lock.key} was ended`);
      this.#refresh();
    }
  }

  #tick() {
    const now = this.#model.now();
    for (const since of this.cards.querySelectorAll("[data-since]")) {
      since.textContent = span(Math.max(0, now - Number(since.dataset.since)));
    }
    if (this.#data) {
      this.#blocks.tick(this.cards);
      if (this.#blocks.hasEstimate && performance.now() - this.#data.at > ESTIMATE_MS) {
        this.#refresh();
      }
    }
    if (this.lock) {
      this.#tickHead(this.lock, now);
    }
  }

  #tickHead(lock, now) {
    const left = lock.status === "active" ? Math.max(0, this.until - performance.now()) : 0;
    const status = lock.status === "active" && left === 0 ? "expired" : lock.status;
    const since = Date.parse(lock.locked_at);
    const end = status === "expired" ? Math.min(now, Date.parse(lock.expires_at)) : now;
    this.age.textContent = span(Math.max(0, end - since)) + (lock.status === "active" ? "" : " ago");
    this.left.textContent = status === "active" ? span(left) : "–";
    this.meter.style.width = `${lock.ttl_ms > 0 ? Math.min(100, (left / lock.ttl_ms) * 100).toFixed(1) : 0}%`;
    if (status !== this.status) {
      this.status = status;
      clear(this.state).append(...badges(lock, status));
    }
  }

  #card(title, extra, ...inside) {
    return h("section", { class: "card" }, h("h2", {}, title, extra ? h("span", { class: "n" }, extra) : null), ...inside);
  }

  #facts(lock) {
    if (!lock) {
      return null;
    }
    const now = this.#model.now();
    const when = (text) => (text ? moment(Date.parse(text), now) : null);
    const row = (name, value, isMono) => (value ? [h("dt", {}, name), h("dd", { class: isMono ? "mono" : "" }, value, name === "Lock id" || name === "Owner" ? copyButton(value, name) : null)] : null);
    const metadata = Object.entries(lock.metadata);
    return this.#card("Details", "", h("dl", { class: "facts" },
      row("Taken", when(lock.locked_at)), row("Expires", when(lock.expires_at)), row("Heartbeat", when(lock.last_heartbeat)), row("Released", when(lock.released_at)),
      row("Lease", lock.ttl_ms === null ? "unknown on this store" : span(lock.ttl_ms)), row("Token", lock.token === null ? "none on this store" : String(lock.token), true),
      row("Lock id", lock.lock_id, true), row("Owner", lock.locked_by, true)),
    metadata.length === 0 ? null : h("h3", {}, "Metadata"),
    metadata.length === 0 ? null : h("dl", { class: "facts meta" }, metadata.map(([name, value]) => row(name, linked(value), true))));
  }

  #holds(events) {
    const held = events.filter((event) => ["lock.released", "lock.forced"].includes(event.event) && event.duration_seconds !== null)
      .map((event) => event.duration_seconds * 1000).sort((a, b) => a - b);
    if (held.length === 0) {
      return null;
    }
    const fact = (name, ms) => h("div", {}, h("dt", {}, name), h("dd", {}, span(ms)));
    return this.#card("Hold time", `${count(held.length)} ${held.length === 1 ? "time" : "times"}`,
      h("dl", { class: "trio" }, fact("Median", percentile(held, 50)), fact("95 %", percentile(held, 95)), fact("Longest", held.at(-1))));
  }

  // ---- hierarchy

  #hierarchy(tree) {
    if (tree.above.length === 0 && tree.below.length === 0) {
      return null;
    }
    const line = (key, lock, depth, isSelf) => {
      const isHeld = lock?.status === "active";
      return h("li", { class: `d${depth}${isSelf ? " self" : ""}` },
        isSelf ? h("span", { class: "mono" }, key) : h("a", { class: "mono", href: href(key) }, key),
        h("span", { class: "muted" }, isHeld ? `held by ${holder(lock).name}` : isSelf ? "this lock" : "free"));
    };
    const above = [...tree.above].reverse();
    return this.#card("Hierarchy", "", h("p", { class: "muted" }, "A lock excludes the locks above and below it."),
      h("ul", { class: "tree" }, above.map(({ key, lock }, i) => line(key, lock, i)),
        line(this.#key, this.lock, above.length, true),
        tree.below.map((lock) => line(lock.key, lock, above.length + 1))),
      tree.has_more ? h("p", { class: "muted" }, "and more") : null);
  }

  // ---- history

  #timeline({ events, why }) {
    if (events.length === 0) {
      return this.#card("History", "", h("p", { class: "muted" }, why ? `${why}.` : "Nothing has been recorded."));
    }
    const now = this.#model.now();
    const groups = this.#grouped(events).reverse();
    const item = ({ event, n }) => {
      const [word, tone] = WORDS[event.event] ?? [event.event, "dim"];
      const { name } = holder(event);
      const time = Date.parse(event.timestamp);
      return h("li", { class: tone, "data-event": event.id, tabindex: event.id === this.#event ? "-1" : null },
        h("time", { datetime: event.timestamp, title: event.timestamp }, moment(time, now)),
        h("div", {}, h("b", {}, n > 1 ? `${word} ${count(n)} times` : word), name ? [" ", h("span", { class: "by" }, `${event.by ? "from" : "by"} ${name}`)] : null,
          event.by ? h("span", { class: "by" }, ` by ${event.by}`) : null,
          event.duration_seconds !== null ? h("span", { class: "t" }, ` after ${span(event.duration_seconds * 1000)}`) : null,
          this.#reason(event)));
    };
    const first = groups.slice(0, 40), rest = groups.slice(40);
    return this.#card("History", events.length >= HISTORY ? `the last ${count(HISTORY)} events` : `${count(events.length)} ${events.length === 1 ? "event" : "events"}`,
      this.#event && !events.some(({ id }) => id === this.#event) ? h("p", { class: "muted" }, `The event ${count(this.#event)} is not among them.`) : null,
      this.#strip(events), h("ol", { class: "timeline" }, first.map(item)),
      rest.length > 0 ? h("details", {}, h("summary", {}, `${count(rest.length)} earlier`), h("ol", { class: "timeline" }, rest.map(item))) : null);
  }

  /** The blocker is in the line above; the outcome is one word. */
  #reason({ event, reason }) {
    if (!reason || event === "wait.began" || event === "lock.refused") {
      return null;
    }
    return event === "lock.released" ? h("span", { class: "t" }, `, ${reason}`) : h("p", { class: "reason" }, reason);
  }

  /** Consecutive renewals and refusals are one line. */
  #grouped(events) {
    const groups = [];
    for (const event of events) {
      const last = groups.at(-1);
      if (last && ["lock.renewed", "lock.refused"].includes(event.event) && last.event.event === event.event && last.event.locked_by === event.locked_by) {
        last.event = event;
        last.n++;
      } else {
        groups.push({ event, n: 1 });
      }
    }
    return groups;
  }

  /** The holders over time, as bars. */
  #strip(events) {
    const now = this.#model.now(), bars = [], open = new Map(); // by token; one of them unless the lock has several holders
    for (const event of events) {
      const at = Date.parse(event.timestamp);
      if (event.event === "lock.acquired") {
        const bar = { from: at, to: now, who: holder(event).name, tone: "ok" };
        open.set(event.token, bar);
        bars.push(bar);
      } else if (["lock.released", "lock.forced", "lock.taken_over", "lock.lost"].includes(event.event) && open.size > 0) {
        const token = open.has(event.token) ? event.token : open.keys().next().value;
        const bar = open.get(token);
        bar.to = at;
        bar.tone = event.event === "lock.released" ? "off" : "bad";
        open.delete(token);
      }
    }
    for (const bar of this.lock?.status === "active" ? [] : open.values()) {
      bar.to = Math.min(now, Date.parse(this.lock?.expires_at ?? "") || now);
      bar.tone = "bad";
    }
    const recent = bars.slice(-40);
    if (recent.length < 2) {
      return null;
    }
    const from = recent[0].from, width = Math.max(1, now - from);
    return h("figure", { class: "strip" },
      svg("svg", { viewBox: "0 0 1000 26", preserveAspectRatio: "none", role: "img", "aria-label": `The last ${recent.length} holders over ${span(width)}` },
        recent.map((bar) => svg("rect", { class: bar.tone, x: ((bar.from - from) / width) * 1000, width: Math.max(2, ((bar.to - bar.from) / width) * 1000), y: 3, height: 20, rx: 2 },
          svg("title", {}, `${bar.who}, ${span(bar.to - bar.from)}`)))),
      h("figcaption", {}, h("span", {}, moment(from, now)), h("span", {}, "now")));
  }
}
