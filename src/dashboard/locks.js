// The table of locks. Only the rows in view exist; each keeps its element while it is in view, so that focus
// and selection survive every update.

import { h, icon, clear, command, openRow, plain, say, searchBox } from "./dom.js";
import { age, span, count, holder, matcher, moment, plural, sharing } from "./format.js";
import { serverUrl, writeSettings } from "./address.js";
import { Attention, FailedStops, drawAttention, isSoon } from "./attention.js";

const OVERSCAN = 6;
const PRINT_MAX = 2000;

const FILTERS = [
  ["held", "Held", (lock, status) => status === "active"],
  ["waited", "With waiters", (lock, status) => lock.waiting > 0],
  ["stale", "Stale", (lock, status) => status === "active" && lock.is_stale],
  ["expired", "Expired", (lock, status) => status === "expired"],
  ["released", "Released", (lock, status) => status === "released"],
];

const COLUMNS = [
  ["key", "Key", (lock) => lock.key],
  ["holder", "Holder", (lock) => holder(lock).name.toLowerCase()],
  ["age", "Held for", (lock) => -lock.since],
  ["left", "Expires in", (lock, model) => (model.status(lock) === "active" ? model.left(lock) : Infinity)],
  ["state", "Status", (lock, model) => `${model.status(lock)}${lock.is_stale ? 0 : 1}`],
  ["queue", "Queue", (lock) => -lock.waiting],
];

const SORT = "belay.sort"; // in localStorage

/** "left" or "-left"; anything else is by key. */
function parseSort(text) {
  const by = text?.replace(/^-/, "");
  return COLUMNS.some(([name]) => name === by) ? { by, down: text.startsWith("-") } : { by: "key", down: false };
}

/** What the page shows at first: as the address says, else as it was left. */
export function locksState() {
  return { text: "", filter: null, sort: parseSort(localStorage.getItem(SORT)), selected: null, scrollTop: 0 };
}

/** The address of the page, when it has settings, comes before what was shown last. */
export function readLocksSettings(state, settings) {
  if (settings.size > 0) {
    state.text = settings.get("q") ?? "";
    state.filter = FILTERS.some(([name]) => name === settings.get("filter")) ? settings.get("filter") : null;
    state.sort = settings.has("sort") ? parseSort(settings.get("sort")) : state.sort;
    state.scrollTop = 0;
  }
}

export function href(key) {
  return `#/locks/${encodeURIComponent(key)}`;
}

export function badges(lock, status) {
  const found = [];
  if (status === "active" && lock.is_stale) {
    found.push(h("span", { class: "badge warn", title: "its holder has missed its heartbeats" }, "stale"));
  }
  if (status === "active" && !lock.is_stale) {
    found.push(h("span", { class: "badge ok" }, "held"));
  } else if (status === "expired") {
    found.push(h("span", { class: "badge off", title: "its lease expired without a release; another client may take it" }, "expired"));
  } else if (status === "released") {
    found.push(h("span", { class: lock.outcome === "completed" ? "badge off" : "badge bad" }, lock.outcome ?? "released"));
  }
  return found;
}

/** The holder; of several their number, and the one whose lease ends last. */
function shown(lock) {
  const several = lock.status === "active" ? sharing(lock, lock.holders) : "";
  return several ? { name: several, owner: holder(lock).name } : holder(lock);
}

function queueBadge(n) {
  return n > 0 ? [h("span", { class: "badge queue", title: `${count(n)} waiting in the queue` }, icon("queue"), count(n), h("span", { class: "unseen" }, " waiting"))] : [];
}

export class LocksPage {
  #model;
  #state;
  #rows = new Map(); // key to element, those in view
  #shown = []; // keys in their order
  #frame = 0;
  #isDirty = true;
  #off = new AbortController();

  constructor(model, state) {
    this.#model = model;
    this.#state = state; // kept while another page is shown
    this.element = this.#build();
    const on = (name, fn) => model.addEventListener(name, fn, { signal: this.#off.signal });
    on("locks", () => this.#changed());
    on("link", () => this.#changed());
    this.stops = new FailedStops(model, () => this.#changed(), this.#off.signal);
    this.ticker = setInterval(() => this.#tick(), 1000);
    this.#writeAddress();
    if (state.filter === "released") {
      model.withReleased();
    }
    requestAnimationFrame(() => {
      this.#render();
      this.scroller.scrollTop = state.scrollTop;
    });
    addEventListener("resize", () => this.#schedule(), { signal: this.#off.signal });
    addEventListener("beforeprint", () => this.#print(true), { signal: this.#off.signal });
    addEventListener("afterprint", () => this.#print(false), { signal: this.#off.signal });
  }

  close() {
    this.#state.scrollTop = this.scroller.scrollTop;
    this.#off.abort();
    clearInterval(this.ticker);
    cancelAnimationFrame(this.#frame);
  }

  // ---- elements

  #build() {
    const [search, box] = searchBox("Search keys and holders", this.#state.text, { oninput: () => this.#searched(), onkeydown: (event) => this.#searchKey(event) });
    this.search = search;
    this.chips = FILTERS.map(([name, label]) =>
      h("button", { type: "button", class: "chip", "aria-pressed": "false", "data-filter": name, onclick: () => this.#filter(name) },
        h("span", {}, label), h("span", { class: "n" }, "0")));
    this.heads = COLUMNS.map(([name, label]) =>
      h("div", { role: "columnheader", class: `c-${name}`, "aria-sort": "none" },
        h("button", { type: "button", "data-sort": name, onclick: () => this.#sort(name) }, label)));
    this.body = h("div", { class: "rows", role: "rowgroup" });
    this.table = h("div", { class: "table", role: "table", "aria-label": "Locks" },
      h("div", { class: "thead", role: "rowgroup" }, h("div", { class: "tr head", role: "row", "aria-rowindex": "1" }, this.heads)),
      this.body);
    this.empty = h("div", { class: "empty" });
    this.empty.hidden = true;
    this.scroller = h("div", { class: "scroller", tabindex: "-1", onscroll: () => this.#schedule() }, this.table, this.empty);
    this.total = h("span", { class: "total" });
    this.attention = h("ul", { class: "attention", "aria-label": "Needs attention" });
    return h("section", { class: "page locks" },
      h("header", { class: "bar" },
        h("h1", {}, "Locks"), this.total, box),
      this.attention,
      h("div", { class: "chips", role: "group", "aria-label": "Show only" }, this.chips),
      this.scroller);
  }

  #writeAddress() {
    const { text, filter, sort } = this.#state, isUsual = sort.by === "key" && !sort.down;
    writeSettings({ q: text, filter, sort: isUsual ? null : `${sort.down ? "-" : ""}${sort.by}` });
  }

  // ---- actions

  #searched() {
    this.#state.text = this.search.value;
    this.#writeAddress();
    this.scroller.scrollTop = 0;
    this.#changed();
    this.isNews = true;
  }

  #searchKey(event) {
    if (event.key === "Escape") {
      if (this.search.value) {
        this.search.value = "";
        this.#searched();
      } else {
        this.search.blur();
      }
      event.preventDefault();
    } else if (event.key === "ArrowDown" || (event.key === "Enter" && this.#shown.length > 0)) {
      this.select(event.key === "Enter" && this.#shown.length === 1 ? 0 : this.#index() < 0 ? 0 : this.#index());
      event.preventDefault();
    }
  }

  #filter(name) {
    this.#state.filter = this.#state.filter === name ? null : name;
    this.#writeAddress();
    if (this.#state.filter === "released") {
      this.#model.withReleased();
    }
    this.scroller.scrollTop = 0;
    this.isNews = true;
    this.#changed();
  }

  #sort(name) {
    const sort = this.#state.sort;
    this.#state.sort = { by: name, down: sort.by === name && !sort.down };
    localStorage.setItem(SORT, `${this.#state.sort.down ? "-" : ""}${name}`);
    this.#writeAddress();
    this.#changed();
  }

  #index() {
    return this.#shown.indexOf(this.#state.selected);
  }

  /** Select by number, bring it into view, and put the focus there. */
  select(index) {
    if (this.#shown.length === 0) {
      return;
    }
    index = Math.max(0, Math.min(index, this.#shown.length - 1));
    this.#state.selected = this.#shown[index];
    const height = this.#rowHeight(), top = index * height, head = this.heads[0].parentElement.offsetHeight;
    const { scrollTop, clientHeight } = this.scroller;
    if (top < scrollTop) {
      this.scroller.scrollTop = top;
    } else if (top + height + head > scrollTop + clientHeight) {
      this.scroller.scrollTop = top + height + head - clientHeight;
    }
    this.#render();
    this.#rows.get(this.#state.selected)?.link.focus({ preventScroll: true });
  }

  key(event) {
    const at = this.#index();
    const page = Math.max(1, Math.floor(this.scroller.clientHeight / this.#rowHeight()) - 2);
    const steps = { j: 1, ArrowDown: 1, k: -1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -1e9, End: 1e9 };
    if (event.key === "/") {
      this.search.focus();
      this.search.select();
    } else if (steps[event.key] !== undefined) {
      this.select(at < 0 ? 0 : at + steps[event.key]);
    } else {
      return false;
    }
    return true;
  }

  // ---- drawing

  #changed() {
    this.#isDirty = true;
    this.#schedule();
  }

  #schedule() {
    if (!this.#frame) {
      this.#frame = requestAnimationFrame(() => {
        this.#frame = 0;
        this.#render();
      });
    }
  }

  #rowHeight() {
    return matchMedia("(max-width: 720px)").matches ? 66 : document.documentElement.classList.contains("tv") ? 60 : 44;
  }

  #choose() {
    const model = this.#model, { text, filter, sort } = this.#state;
    const matches = matcher(text);
    const fits = FILTERS.find(([name]) => name === filter)?.[2];
    const counts = Object.fromEntries(FILTERS.map(([name]) => [name, 0]));
    const attention = new Attention();
    const found = [];
    let total = 0;
    for (const lock of model.locks.values()) {
      const status = model.status(lock);
      attention.add(lock, status, model.left(lock));
      if (!matches(lock.key, lock.locked_by, lock.locked_by_name)) {
        continue;
      }
      for (const [name, , test] of FILTERS) {
        counts[name] += test(lock, status) ? 1 : 0;
      }
      total += status === "released" ? 0 : 1;
      if (fits ? fits(lock, status) : status !== "released") {
        found.push(lock);
      }
    }
    const value = COLUMNS.find(([name]) => name === sort.by)[2];
    const keyed = found.map((lock) => [value(lock, model), lock.key]);
    const sign = sort.down ? -1 : 1;
    keyed.sort((a, b) => (a[0] < b[0] ? -sign : a[0] > b[0] ? sign : a[1] < b[1] ? -1 : 1));
    this.#shown = keyed.map(([, key]) => key);
    return { counts, total, attention };
  }

  #renderHead({ counts, total, attention }) {
    const { filter, sort } = this.#state;
    drawAttention(this.attention, [...this.stops.entries(), ...attention.entries(href)]);
    this.chips.forEach((chip) => {
      const name = chip.dataset.filter, n = counts[name];
      chip.setAttribute("aria-pressed", String(filter === name));
      chip.classList.toggle("none", n === 0);
      const hasNumber = name !== "released" || this.#model.hasReleased;
      chip.lastChild.textContent = hasNumber ? count(n) : "";
    });
    this.heads.forEach((head) => {
      const name = head.firstChild.dataset.sort;
      head.setAttribute("aria-sort", sort.by !== name ? "none" : sort.down ? "descending" : "ascending");
    });
    const shown = this.#shown.length;
    this.total.textContent = !this.#model.isLoaded ? "" : filter ? `${count(shown)} of ${plural(total + (filter === "released" ? shown : 0), "lock")}` : plural(total, "lock");
    this.table.setAttribute("aria-rowcount", String(this.#shown.length + 1));
    if (this.isNews) {
      this.isNews = false;
      say(`${count(this.#shown.length)} locks shown`);
    }
  }

  /** Keep the row at the upper edge in place when rows above it come and go. */
  #anchor() {
    const height = this.#rowHeight(), at = Math.floor(this.scroller.scrollTop / height);
    return this.scroller.scrollTop > 0 && this.#shown[at] ? { key: this.#shown[at], off: this.scroller.scrollTop - at * height } : null;
  }

  #render() {
    const height = this.#rowHeight();
    if (this.#isDirty) {
      const anchor = this.#anchor();
      this.#isDirty = false;
      this.#renderHead(this.#choose());
      this.body.style.height = `${this.#shown.length * height}px`;
      const at = anchor ? this.#shown.indexOf(anchor.key) : -1;
      if (at >= 0 && Math.abs(at * height + anchor.off - this.scroller.scrollTop) >= 1) {
        this.scroller.scrollTop = at * height + anchor.off;
      }
      this.#renderEmpty();
    }
    const [first, last] = this.#inView(height);
    const wanted = new Set(this.#shown.slice(first, last));
    const spare = []; // reuse rows that left the view
    for (const [key, row] of this.#rows) {
      if (!wanted.has(key)) {
        spare.push(row);
        this.#rows.delete(key);
      }
    }
    let before = null; // in the order of the table, for screen readers
    for (let i = first; i < last; i++) {
      const row = this.#place(this.#shown[i], i, height, spare);
      const next = before ? before.nextSibling : this.body.firstChild;
      if (next !== row.element) {
        this.#move(row.element, next);
      }
      before = row.element;
    }
    spare.forEach((row) => row.element.remove());
  }

  /** The first row to draw, and the one after the last. */
  #inView(height) {
    const { scrollTop, clientHeight } = this.scroller, all = this.#shown.length;
    return this.isPrinting ? [0, Math.min(all, PRINT_MAX)]
      : [Math.max(0, Math.floor(scrollTop / height) - OVERSCAN), Math.min(all, Math.ceil((scrollTop + clientHeight) / height) + OVERSCAN)];
  }

  /** Paper has no scroll bar. */
  #print(isPrinting) {
    this.isPrinting = isPrinting;
    this.#render();
  }

  /** Moving a row would lose its focus. */
  #move(element, next) {
    const focused = element.contains(document.activeElement) ? document.activeElement : null;
    this.body.insertBefore(element, next);
    focused?.focus({ preventScroll: true });
  }

  #place(key, index, height, spare) {
    let row = this.#rows.get(key);
    if (!row) {
      row = spare.pop() ?? this.#makeRow();
      this.#rows.set(key, row);
      row.key = key;
      row.link.href = href(key);
      row.link.textContent = plain(key);
      row.link.title = plain(key); // a long one is cut
      row.element.dataset.key = key;
      if (row.element.contains(document.activeElement)) {
        document.activeElement.blur(); // it was on a lock that is gone
      }
    }
    row.element.style.transform = `translateY(${index * height}px)`;
    row.element.setAttribute("aria-rowindex", String(index + 2));
    row.element.classList.toggle("selected", key === this.#state.selected);
    this.#fillRow(row, this.#model.locks.get(key));
    return row;
  }

  #makeRow() {
    const link = h("a", { class: "key", onfocus: () => this.#mark(row.key) });
    const cell = (name, ...inside) => h("div", { role: "cell", class: `c-${name}` }, ...inside);
    const row = { link, name: h("span", { class: "name" }), owner: h("span", { class: "owner" }), age: h("span", {}), left: h("span", { class: "t" }),
      meter: h("i", {}), state: cell("state"), queue: cell("queue") };
    row.element = h("div", { class: "tr", role: "row", onclick: (event) => openRow(event, href(row.key)) },
      cell("key", link), cell("holder", row.name, row.owner), cell("age", row.age),
      cell("left", row.left, h("span", { class: "meter", "aria-hidden": "true" }, row.meter)), row.state, row.queue);
    return row;
  }

  #mark(key) {
    this.#state.selected = key;
    for (const [other, row] of this.#rows) {
      row.element.classList.toggle("selected", other === key);
    }
  }

  #fillRow(row, lock) {
    if (!lock) {
      return;
    }
    if (row.lock !== lock) {
      const { name, owner } = shown(lock);
      row.lock = lock;
      row.name.textContent = plain(name);
      row.name.title = plain(`${name}${owner ? ` (${owner})` : ""}`);
      row.owner.textContent = plain(owner);
      if (row.waiting !== lock.waiting) {
        row.waiting = lock.waiting;
        clear(row.queue).append(...queueBadge(lock.waiting));
      }
      row.age.title = lock.since ? `since ${moment(lock.since, this.#model.now())}` : "";
    }
    this.#fillTimes(row, lock);
  }

  #fillTimes(row, lock) {
    const model = this.#model, status = model.status(lock), left = model.left(lock);
    const text = (element, value) => element.textContent !== value && (element.textContent = value);
    text(row.age, status === "released" || !lock.since ? "–" : span(Math.max(0, model.heldUntil(lock) - lock.since)));
    text(row.left, status === "active" ? span(left) : status === "released" && lock.released_at ? `ended ${age(Math.max(0, model.now() - Date.parse(lock.released_at)))}` : "–");
    const share = status === "active" && lock.ttl_ms > 0 ? Math.min(1, left / lock.ttl_ms) : 0;
    row.meter.style.width = `${(share * 100).toFixed(1)}%`;
    row.element.classList.toggle("soon", status === "active" && isSoon(lock, left));
    row.status = status;
    const look = `${status} ${lock.is_stale} ${lock.outcome}`;
    if (row.look !== look) {
      row.look = look;
      row.element.dataset.status = status;
      clear(row.state).append(...badges(lock, status));
    }
  }

  #tick() {
    if (document.hidden) {
      return;
    }
    for (const [key, row] of this.#rows) {
      const lock = this.#model.locks.get(key), before = row.status;
      if (lock) {
        this.#fillTimes(row, lock);
        this.#isDirty ||= before !== row.status;
      }
    }
    this.#isDirty ||= this.attention.querySelector(".need") !== null; // it counts seconds
    if (this.#isDirty) {
      this.#schedule();
    }
  }

  #renderEmpty() {
    const { text, filter } = this.#state, model = this.#model;
    const kind = this.#shown.length > 0 ? "" : !model.isLoaded ? (model.link === "lost" ? "lost" : "loading") : text || filter ? `none:${text}:${filter}` : "first";
    this.table.hidden = kind !== "" && kind !== "loading";
    this.empty.hidden = kind === "";
    if (this.emptyKind === kind) {
      return;
    }
    this.emptyKind = kind;
    clear(this.empty);
    if (kind === "loading") {
      this.empty.append(h("p", { class: "muted" }, "Loading the locks…"));
    } else if (kind === "lost") {
      this.empty.append(h("h2", {}, "The server does not answer"), h("p", {}, "Locks are shown as soon as it does. On its machine, ",
        h("code", {}, "belay doctor"), " finds common faults."));
    } else if (kind === "first") {
      this.empty.append(...teach());
    } else if (kind) {
      this.empty.append(h("h2", {}, "No matching lock"),
        h("p", {}, text ? ["No held lock has ", h("q", {}, text), " in its key or its holder's name. "] : "No lock is in this state now. ",
          "Released locks are under ", h("b", {}, "Released"), "."),
        h("button", { type: "button", onclick: () => this.#showAll() }, "Show all locks"));
    }
  }

  #showAll() {
    this.#state.filter = null; // #searched() writes the address
    this.search.value = "";
    this.#searched();
  }
}

function teach() {
  const address = serverUrl();
  return [
    h("h2", {}, "No locks are held"),
    h("p", {}, "Locks appear here as they are taken. To see one, run a command under a lock from any shell:"),
    command(`export BELAY_STORE=${address}\nbelay run deploy-api-prod -- sleep 60`),
    h("p", {}, "or take one with curl:"),
    command(`curl -d '{"locked_by":"me","ttl_ms":60000}' \\\n     ${address}/v1/locks/deploy-api-prod/acquire`),
    h("p", { class: "muted" }, "Where tokens are configured, add ", h("code", {}, "-H \"Authorization: Bearer TOKEN\""), "."),
  ];
}
