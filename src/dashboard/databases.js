// Databases, the applications that use them, their health, and the last decisions.

import { h, icon, clear, command, keyed, searchBox, walk, searchKey, say, STEPS } from "./dom.js";
import { ask } from "./api.js";
import { serverUrl, writeSettings } from "./address.js";
import { count, holder, matcher, moment, plural, span } from "./format.js";
import { href as lockHref } from "./locks.js";
import { ago, tickAges } from "./states.js";

const AGAIN_MS = 30000, SOON_MS = 1000;
const AT_ONCE = 6; // concurrent health checks; each takes 3 s at most
const MOST_CARDS = 200, MOST_USERS = 8;

export const dbHref = (id) => `#/databases/${encodeURIComponent(id)}`;
const lockKey = (id) => `LOCK#DB#${id}`;

const ACTIONS = {
  stopped: ["ok", "stopped"], started: ["ok", "started"], skipped_shared_active: ["warn", "not stopped: in use"], skipped_lock: ["warn", "not done: locked"],
  skipped: ["off", "nothing to do"], error: ["bad", "failed"],
};

export function decision(action) {
  const [tone, word] = ACTIONS[action] ?? ["off", action];
  return h("span", { class: `badge ${tone}` }, word);
}

/** The last health check of each application, shared by all pages until the tab is closed. */
export class Answers extends EventTarget {
  #known = new Map();

  get(app) {
    return this.#known.get(app) ?? null;
  }

  #set(app, answer) {
    this.#known.set(app, answer);
    this.dispatchEvent(new CustomEvent("answer", { detail: app }));
  }

  async #one(app, now) {
    this.#set(app, { ...this.get(app), isAsking: true });
    try {
      const { status, http_code: code, reason, timestamp } = await ask(`status/quick?app=${encodeURIComponent(app)}`);
      this.#set(app, { status, code, reason, at: Date.parse(timestamp) });
    } catch (error) {
      this.#set(app, { status: "UNKNOWN", code: null, reason: error.message, at: now() });
    }
  }

  /** A few at a time. */
  async ask(apps, now) {
    const left = [...new Set(apps)].filter((app) => !this.get(app)?.isAsking);
    const work = async () => {
      while (left.length > 0) {
        await this.#one(left.shift(), now);
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, work));
  }
}

/** Registry, databases and decisions, and when to fetch them again. */
class Registry {
  #model;
  #off = new AbortController();
  #tell;
  databases = null;
  apps = new Map();
  isPartial = false; // the keys of the token hide databases or applications
  error = null;

  constructor(model, tell) {
    this.#model = model;
    this.#tell = tell;
    const on = (name, fn) => model.addEventListener(name, fn, { signal: this.#off.signal });
    on("locks", ({ detail: { keys } }) => this.#locks(keys));
    on("link", () => model.link === "live" && this.ask());
    this.again = setInterval(() => document.hidden || this.ask(), AGAIN_MS);
    this.ask();
  }

  get signal() {
    return this.#off.signal;
  }

  close() {
    this.#off.abort();
    clearInterval(this.again);
    clearTimeout(this.soon);
  }

  #locks(keys) {
    if (!keys || [...keys].some((key) => key.startsWith(lockKey("")))) {
      this.#tell();
      clearTimeout(this.soon);
      this.soon = setTimeout(() => this.ask(), SOON_MS);
    }
  }

  async ask() {
    if (this.isAsking) {
      return;
    }
    this.isAsking = true;
    try {
      const [{ databases, is_partial: hidesDatabases }, { apps, is_partial: hidesApps }] =
        await Promise.all([ask("v1/databases", { signal: this.signal }), ask("v1/apps", { signal: this.signal })]);
      this.databases = databases;
      this.isPartial = Boolean(hidesDatabases || hidesApps);
      this.apps = new Map(apps.map((app) => [app.name, app]));
      this.error = null;
    } catch (error) {
      if (error.name === "AbortError") {
        return;
      }
      this.error = error;
    } finally {
      this.isAsking = false;
    }
    this.#tell();
  }
}

/** The message if the token hides entries: it must not look as if there were none. */
function hidden(title) {
  return [h("h2", {}, title), h("p", {}, "The token is limited to some keys, and other databases or applications exist.")];
}

/** The lock under which it is stopped and started, while it is held. */
function lockBadge(model, id) {
  const lock = model.locks.get(lockKey(id));
  return lock && model.status(lock) === "active" ? { key: lock.key, name: holder(lock).name } : null;
}

function drawLock(lock) {
  return lock ? h("a", { class: "badge queue", href: lockHref(lock.key), title: "being stopped or started, or its holder died during that", "data-part": "lock" }, icon("lock"), `locked by ${lock.name}`) : null;
}

const TONES = { UP: "ok", DOWN: "off", UNKNOWN: "warn" };

function drawAnswer(answer, model) {
  if (!answer) {
    return h("span", { class: "muted" }, "not checked");
  }
  if (answer.isAsking) {
    return h("span", { class: "muted asking" }, "checking…");
  }
  return h("span", { class: "answer", title: answer.reason ?? "" }, h("span", { class: `badge ${TONES[answer.status] ?? "off"}` }, answer.status),
    h("span", { class: "muted" }, answer.code ? `${answer.code}, ` : "", ago(answer.at, model)));
}

function drawRecorded({ state, since, by }, model) {
  return h("span", { class: "recorded" }, state === "stopped" ? "recorded as stopped" : state === "stop_requested" ? "stop requested" : "recorded as running",
    since ? [" ", ago(Date.parse(since), model)] : null, by ? h("span", { class: "muted" }, ` by ${by}`) : null);
}

function drawDecision(last, model) {
  if (!last) {
    return h("p", { class: "decision muted" }, "No decision yet.");
  }
  return h("div", { class: "decision" }, h("p", {}, decision(last.action), h("span", { class: "muted" }, last.at ? [" ", ago(Date.parse(last.at), model)] : null, last.by ? ` by ${last.by}` : "")),
    last.reason ? h("p", { class: "why" }, last.reason) : null);
}

function whyNot(error) {
  return [h("h2", {}, error.status === 0 ? "The server does not answer" : "The registry cannot be read"), h("p", {}, `${error.message}.`),
    h("p", { class: "muted" }, "Without the registry nothing is stopped. ", h("code", {}, "belay doctor"), " checks the store.")];
}

function teach() {
  const address = serverUrl();
  return [
    h("h2", {}, "No applications registered"),
    h("p", {}, "Register an application with its database and the URL of its health check:"),
    command(`export BELAY_STORE=${address}\nbelay app register shop --url ${address}/healthz --database postgres=10.0.1.5:5432`),
    h("p", {}, "A database is then stopped only when no other application uses it:"),
    command("belay db stop --app shop"),
  ];
}

export class DatabasesPage {
  #model;
  #state;

  constructor(model, state) {
    this.#model = model;
    this.#state = state; // kept while another page is shown
    this.element = this.#build();
    this.registry = new Registry(model, () => this.#render());
    state.answers.addEventListener("answer", () => this.#soon(), { signal: this.registry.signal });
    this.ticker = setInterval(() => tickAges(this.element, model), 1000);
  }

  close() {
    this.#state.scrollTop = this.scroller.scrollTop;
    this.registry.close();
    clearInterval(this.ticker);
    cancelAnimationFrame(this.frame);
  }

  key(event) {
    if (event.key === "/") {
      this.search.focus();
      this.search.select();
      return true;
    }
    if (event.key === "s" && !this.askButton.hidden) {
      this.askButton.click();
      return true;
    }
    return STEPS[event.key] !== undefined && walk(this.#links(), STEPS[event.key]);
  }

  #build() {
    const [search, box] = searchBox("Search databases and applications", this.#state.text, {
      oninput: () => this.#searched(), onkeydown: (event) => searchKey(event, () => this.#searched(), () => this.#links()) });
    this.search = search;
    writeSettings({ q: this.#state.text });
    this.total = h("span", { class: "total" });
    this.askButton = h("button", { type: "button", onclick: () => this.#askAll() }, "Check health");
    this.askButton.hidden = true;
    this.list = h("div", { class: "dbs" });
    this.more = h("p", { class: "muted loading" });
    this.place = h("div", { class: "place" }, h("p", { class: "muted loading" }, "Loading the databases…"));
    this.scroller = h("div", { class: "scroller", tabindex: "-1" }, this.place);
    return h("section", { class: "page databases" },
      h("header", { class: "bar" }, h("h1", {}, "Databases"), this.total, this.askButton, box),
      this.scroller);
  }

  #links() {
    return [...this.element.querySelectorAll(".db .key")];
  }

  #searched() {
    this.#state.text = this.search.value;
    writeSettings({ q: this.#state.text });
    this.#render();
    say(`${plural(this.list.children.length, "entry", "entries")} shown`);
  }

  #soon() {
    this.frame ||= requestAnimationFrame(() => {
      this.frame = 0;
      this.#render();
    });
  }

  async #askAll() {
    const apps = this.shown.flatMap(({ apps: users }) => users.map(({ app }) => app));
    this.askButton.disabled = true;
    await this.#state.answers.ask(apps, () => this.#model.now());
    this.askButton.disabled = false;
    const up = new Set(apps.filter((app) => this.#state.answers.get(app)?.status === "UP"));
    say(`${up.size} of ${plural(new Set(apps).size, "application")} up`);
  }

  /** Databases, then one entry for applications without a database. */
  #entries() {
    const fits = matcher(this.#state.text);
    const found = this.registry.databases.filter((one) => fits(one.database, one.kind, one.host, ...one.apps.map(({ app }) => app)));
    const used = new Set(this.registry.databases.flatMap(({ apps }) => apps.map(({ app }) => app)));
    const alone = [...this.registry.apps.values()].filter(({ name }) => !used.has(name) && fits(name)).map(({ name, state, since }) => ({ app: name, state, since }));
    return alone.length > 0 ? [...found, { database: null, apps: alone }] : found;
  }

  #render() {
    const { registry } = this;
    if (!registry.databases) {
      if (registry.error) {
        this.#replace(`error ${registry.error.message}`, h("div", { class: "empty" }, whyNot(registry.error)));
      }
      return;
    }
    this.shown = this.#entries();
    this.askButton.hidden = this.shown.length === 0;
    this.total.textContent = registry.databases.length === 0 ? "" : `${plural(registry.databases.length, "database")}, ${plural(registry.apps.size, "application")}${registry.isPartial ? " that your token may see" : ""}`;
    if (this.shown.length === 0) {
      const isFirst = registry.apps.size === 0;
      const what = !isFirst ? "none" : registry.isPartial ? "hidden" : "first";
      this.#replace(what, h("div", { class: "empty" }, what === "hidden" ? hidden("Your token has no permission for any database") : isFirst ? teach() : [h("h2", {}, "No matching database"), h("p", {}, "No database or application name contains that text.")]));
      return;
    }
    this.#replace("some", this.list, this.more);
    this.more.textContent = this.shown.length > MOST_CARDS ? `and ${count(this.shown.length - MOST_CARDS)} more: search for one` : "";
    keyed(this.list, this.shown.slice(0, MOST_CARDS).map((one) => ({ key: one.database ?? "", data: this.#dataOf(one) })), (data) => this.#card(data));
    if (!this.isPlaced) {
      this.isPlaced = true;
      this.scroller.scrollTop = this.#state.scrollTop;
    }
  }

  #replace(kind, ...inside) {
    if (this.kind !== kind) {
      this.kind = kind;
      clear(this.place).append(...inside);
    }
  }

  #dataOf(one) {
    const users = one.apps.slice(0, MOST_USERS).map((user) => ({ ...user, by: this.registry.apps.get(user.app)?.by, answer: this.#state.answers.get(user.app) }));
    return { ...one, apps: users, n: one.apps.length, lock: one.database === null ? null : lockBadge(this.#model, one.database) };
  }

  #card({ database, kind, host, shared, apps, n, lock, last }) {
    const to = database === null ? null : dbHref(database);
    const title = database === null ? h("span", {}, "Applications without a database")
      : [h("a", { class: "key mono", href: to, "data-part": "key" }, database), h("span", { class: "badge off" }, kind), host && host !== database ? h("span", { class: "owner mono" }, host) : null];
    return h("article", { class: "card db" },
      h("h2", {}, h("span", { class: "title" }, title), drawLock(lock)),
      h("p", { class: "muted uses" }, database === null ? "" : shared ? `shared by ${plural(n, "application")}` : "used by one application"),
      h("ul", { class: "users" }, apps.map((user) => userLine(user, this.#model, this.#state.answers))),
      n > apps.length ? h("p", {}, h("a", { class: "quiet", href: to ?? "#/databases" }, `and ${plural(n - apps.length, "more application")}`)) : null,
      database === null ? null : h("div", { class: "last" }, h("h3", {}, "Last decision"), drawDecision(last, this.#model)));
  }
}

function userLine(user, model, answers) {
  const { app, answer } = user;
  return h("li", {}, h("span", { class: "name" }, app), h("span", { class: "record" }, drawRecorded(user, model)), drawAnswer(answer, model),
    h("button", { type: "button", class: "small", "aria-label": `Check whether ${app} is up`, "data-part": `ask ${app}`, "aria-disabled": answer?.isAsking ? "true" : undefined, onclick: () => answers.ask([app], () => model.now()) }, "Check"));
}

// ---- one database

const HISTORY = 500;
const DECISIONS = {
  "stop.decided": "About to be stopped", "stop.stopped": "Stopped", "stop.skipped_shared_active": "Not stopped: in use", "stop.skipped_lock": "Not stopped: locked", "stop.skipped": "Stop: nothing to do", "stop.error": "Stop failed",
  "start.decided": "About to be started", "start.started": "Started", "start.skipped_lock": "Not started: locked", "start.skipped": "Start: nothing to do", "start.error": "Start failed",
};

export class DatabasePage {
  #model;
  #id;
  #answers;

  constructor(model, id, { answers }) {
    this.#model = model;
    this.#id = id;
    this.#answers = answers;
    this.element = this.#build();
    this.registry = new Registry(model, () => this.#changed());
    answers.addEventListener("answer", () => this.#render(), { signal: this.registry.signal });
    this.ticker = setInterval(() => tickAges(this.element, model), 1000);
  }

  close() {
    this.registry.close();
    clearInterval(this.ticker);
  }

  key(event) {
    if (event.key === "Escape" || event.key === "h") {
      location.hash = "#/databases";
    } else if (event.key === "s") {
      this.askButton.click();
    } else {
      return STEPS[event.key] !== undefined && walk([...this.users.querySelectorAll("button")], STEPS[event.key]);
    }
    return true;
  }

  #build() {
    this.head = h("div", { class: "top" });
    this.users = h("ul", { class: "users wide-users" });
    this.n = h("span", { class: "n" });
    this.askButton = h("button", { type: "button", onclick: () => this.#askAll() }, "Check health");
    this.decisions = h("ol", { class: "timeline" });
    this.none = h("p", { class: "muted" });
    this.cards = h("div", { class: "cards two even" },
      h("div", { class: "col" }, h("section", { class: "card" }, h("h2", {}, h("span", {}, "Used by ", this.n), this.askButton), this.users)),
      h("div", { class: "col" }, h("section", { class: "card" }, h("h2", {}, "Decisions"), this.decisions, this.none)));
    this.place = h("div", { class: "place" }, h("p", { class: "muted loading" }, "Loading…"));
    return h("section", { class: "page lock database" },
      h("header", { class: "bar" }, h("a", { class: "back", href: "#/databases" }, icon("back"), "Databases"), h("h1", { class: "mono" }, this.#id)),
      h("div", { class: "scroller", tabindex: "-1" }, this.head, this.place));
  }

  async #askAll() {
    this.askButton.disabled = true;
    await this.#answers.ask(this.one.apps.map(({ app }) => app), () => this.#model.now());
    this.askButton.disabled = false;
    say(`${this.one.apps.filter(({ app }) => this.#answers.get(app)?.status === "UP").length} of ${plural(this.one.apps.length, "application")} up`);
  }

  #changed() {
    this.#render();
    this.#askHistory();
  }

  async #askHistory() {
    if (this.isAsking || !this.registry.databases) {
      return;
    }
    this.isAsking = true;
    try {
      const { events } = await ask(`v1/locks/${encodeURIComponent(lockKey(this.#id))}/history?limit=${HISTORY}`, { signal: this.registry.signal });
      this.events = events.filter(({ event }) => event.startsWith("db.")).reverse().slice(0, 100);
    } catch (error) {
      if (error.name === "AbortError") {
        return;
      }
      this.events = [];
      this.whyNone = error.status === 404 ? "" : error.message;
    } finally {
      this.isAsking = false;
    }
    this.#renderDecisions();
  }

  #render() {
    const { registry } = this;
    this.one = registry.databases?.find(({ database, host }) => database === this.#id || host === this.#id);
    if (!this.one) {
      if (registry.databases || registry.error) {
        clear(this.head);
        clear(this.place).append(h("div", { class: "empty" }, registry.databases ? this.#unknown() : whyNot(registry.error)));
      }
      return;
    }
    if (this.place.firstChild !== this.cards) {
      clear(this.place).append(this.cards);
    }
    this.n.textContent = plural(this.one.apps.length, "application");
    this.#renderHead();
    keyed(this.users, this.one.apps.map((user) => ({ key: user.app, data: { ...user, app: user.app, ...this.#more(user.app), answer: this.#answers.get(user.app) } })), (user) => this.#user(user));
  }

  #more(app) {
    const { by, urls = [], labels = {} } = this.registry.apps.get(app) ?? {};
    return { by, urls, labels };
  }

  #unknown() {
    return this.registry.isPartial ? hidden("Your token has no permission for the users of this database") : [h("h2", {}, "No application uses this database"), h("p", {}, "A database is listed once an application uses it. To register one:"),
      command(`belay app register NAME --url URL --database postgres=${this.#id}`)];
  }

  #renderHead() {
    const { kind, host, shared, last } = this.one;
    const lock = lockBadge(this.#model, this.one.database);
    keyed(this.head, [{ key: "head", data: { kind, host, shared, last, lock } }], () => h("div", { class: "headline" },
      h("div", { class: "who" }, h("span", { class: "states" }, h("span", { class: "badge off" }, kind), h("span", { class: "badge off" }, shared ? "shared" : "dedicated"), drawLock(lock)),
        host && host !== this.one.database ? h("p", { class: "owner mono" }, host) : null),
      h("div", { class: "last" }, h("h2", {}, "Last decision"), drawDecision(last, this.#model))));
  }

  #user(user) {
    const { urls, labels, answer } = user;
    const line = userLine(user, this.#model, this.#answers);
    line.append(h("div", { class: "more" },
      answer?.reason && !answer.isAsking ? h("p", { class: "why" }, answer.reason) : null,
      urls.map((url) => h("p", { class: "mono url" }, url)),
      Object.entries(labels).map(([name, value]) => h("span", { class: "badge off" }, `${name}: ${value}`))));
    return line;
  }

  #renderDecisions() {
    const { events, whyNone } = this;
    this.none.textContent = events.length > 0 ? "" : whyNone ? `${whyNone}.` : "No decisions recorded. Every stop and start, done or skipped, appears here:";
    this.none.hidden = events.length > 0;
    keyed(this.decisions, events.map((event) => ({ key: String(event.id ?? event.timestamp), data: event })), (event) => this.#decision(event));
  }

  #decision({ event, timestamp, by, reason, metadata }) {
    const [, verb, action] = event.split(".");
    const tone = { ok: "ok", warn: "warn", bad: "bad" }[ACTIONS[action]?.[0]] ?? "dim";
    const words = DECISIONS[`${verb}.${action}`] ?? `${verb} ${action}`;
    return h("li", { class: tone }, h("time", { datetime: timestamp, title: timestamp }, moment(Date.parse(timestamp), this.#model.now())),
      h("div", {}, h("b", {}, words), by ? h("span", { class: "by" }, ` by ${by}`) : null,
        reason ? h("p", { class: "reason" }, reason) : null,
        metadata?.sharing_apps ? h("p", { class: "reason" }, `shared with ${metadata.sharing_apps.split(",").join(", ")}`) : null,
        Number(metadata?.lock_acquire_ms) > 1000 ? h("p", { class: "reason" }, `Acquiring the lock took ${span(Number(metadata.lock_acquire_ms))}.`) : null));
  }
}
