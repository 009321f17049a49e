// The deployment states by stack, each with its last deployment, and the Terraform states.

import { h, icon, clear, command, keyed, openRow, searchBox, walk, searchKey, say, STEPS } from "./dom.js";
import { ask } from "./api.js";
import { serverUrl, writeSettings } from "./address.js";
import { age, bytes, count, holder, matcher, moment, plural } from "./format.js";
import { href as lockHref } from "./locks.js";

const AGAIN_MS = 30000; // poll interval for changes without an event
const SOON_MS = 1500; // after something happened to a lock
const AT_ONCE = 4; // concurrent requests for histories

export const stateHref = (stack, environment, version) => `#/state/${[stack, environment, version].filter(Boolean).map(encodeURIComponent).join("/")}`;
export const terraformHref = (name, version) => `#/terraform/${[name, version].filter(Boolean).map(encodeURIComponent).join("/")}`;
export const statePath = (stack, environment) => `v1/state/${encodeURIComponent(stack)}/${encodeURIComponent(environment)}`;
export const lockOf = (stack, environment) => `stack:${stack}:env:${environment}`;

const OUTCOMES = {
  success: ["ok", "success"], failed: ["bad", "failed"], lost: ["warn", "lost", "the lock was lost while it ran"], restored: ["queue", "restored", "an older version was restored"],
};

export function outcome(status) {
  const [tone, word, title] = OUTCOMES[status] ?? ["off", status || "no status"];
  return h("span", { class: `badge ${tone}`, title }, word);
}

export function commit(deployment) {
  const { git_commit: id, git_branch: branch } = deployment ?? {};
  if (!id && !branch) {
    return null;
  }
  return h("span", { class: "commit" }, id ? h("code", { title: id }, /^[0-9a-f]{12,}$/i.test(id) ? id.slice(0, 7) : id) : null, branch ? h("span", { class: "muted" }, branch) : null);
}

/** The age of a time, updated by the page's ticker (tickAges). */
export function ago(ms, model) {
  return Number.isNaN(ms) ? h("span", {}, "–") : h("time", { datetime: new Date(ms).toISOString(), title: moment(ms, model.now()), "data-ago": ms }, age(model.now() - ms));
}

export function tickAges(element, model) {
  if (document.hidden) {
    return;
  }
  for (const one of element.querySelectorAll("[data-ago]")) {
    const text = age(model.now() - Number(one.dataset.ago));
    if (one.textContent !== text) {
      one.textContent = text;
    }
  }
}

/** The holder of the lock, if it is held. */
export function heldBy(model, key) {
  const lock = model.locks.get(key);
  return lock && model.status(lock) === "active" ? holder(lock).name : null;
}

/** The message when the states cannot be read. */
export function whyNot(error) {
  if (error.code === "bad_config") {
    return [
      h("h2", {}, "This server has no state store"),
      h("p", {}, "Its locks are not in a file, so there is no default place for states. Start the server with a directory or an S3 bucket:"),
      command("belay serve --state-store file:/var/lib/belay/state"),
      h("p", {}, "or in its configuration:"),
      command("state_store: s3://my-bucket/belay?region=eu-central-1"),
      h("p", { class: "muted" }, `The server says: ${error.message}.`),
    ];
  }
  return [h("h2", {}, error.status === 403 ? "Your token has no permission for this" : error.status === 0 ? "The server does not answer" : "The states cannot be read"), h("p", {}, `${error.message}.`)];
}

function teach() {
  const address = serverUrl();
  return [
    h("h2", {}, "No deployments yet"),
    h("p", {}, "A state appears here with its first deployment. On this server's machine, or anywhere with the same ", h("code", {}, "--state-store"), ":"),
    command("belay deploy --stack shop --environment prod -- ./deploy.sh"),
    h("p", {}, "The command reads the state from the file ", h("code", {}, "$BELAY_STATE_FILE"), " and writes the new one to ", h("code", {}, "$BELAY_STATE_OUT"), ". For Terraform and OpenTofu this server is an http backend:"),
    command(`terraform {\n  backend "http" {\n    address        = "${address}/v1/terraform/network"\n    lock_address   = "${address}/v1/terraform/network"\n    unlock_address = "${address}/v1/terraform/network"\n  }\n}`),
  ];
}

export class StatesPage {
  #model;
  #state;
  #off = new AbortController();
  #states = null;
  #terraform = [];
  #queue = [];
  #asking = 0;

  constructor(model, state) {
    this.#model = model;
    this.#state = state; // kept while another page is shown
    this.element = this.#build();
    const on = (name, fn) => model.addEventListener(name, fn, { signal: this.#off.signal });
    on("locks", ({ detail: { keys } }) => this.#locksChanged(keys));
    on("link", () => model.link === "live" && this.#ask());
    this.ticker = setInterval(() => tickAges(this.element, model), 1000);
    this.again = setInterval(() => document.hidden || this.#ask(), AGAIN_MS);
    this.seen = new IntersectionObserver((entries) => entries.forEach((entry) => entry.isIntersecting && this.#want(entry.target.dataset.key)), { root: this.scroller, rootMargin: "200px" });
    this.#ask();
  }

  close() {
    this.#state.scrollTop = this.scroller.scrollTop;
    this.#off.abort();
    this.seen.disconnect();
    clearInterval(this.ticker);
    clearInterval(this.again);
    clearTimeout(this.soon);
  }

  key(event) {
    if (event.key === "/") {
      this.search.focus();
      this.search.select();
      return true;
    }
    return STEPS[event.key] !== undefined && walk(this.#links(), STEPS[event.key]);
  }

  // ---- fetching

  async #ask() {
    if (this.isAsking) {
      return;
    }
    this.isAsking = true;
    const signal = this.#off.signal;
    try {
      const [states, terraform] = await Promise.all([ask("v1/state", { signal }), ask("v1/terraform", { signal })]);
      this.#states = states.states;
      this.#terraform = terraform.states;
      this.error = null;
    } catch (error) {
      if (error.name === "AbortError") {
        return;
      }
      this.error = error;
    } finally {
      this.isAsking = false;
    }
    this.#render();
  }

  /** A deployment starts and ends with its lock. */
  #locksChanged(keys) {
    if (keys && ![...keys].some((key) => key.startsWith("stack:") || key.startsWith("terraform/"))) {
      return;
    }
    this.#render();
    clearTimeout(this.soon);
    this.soon = setTimeout(() => this.#ask(), SOON_MS);
  }

  /** The history of a row that came into view, unless it was fetched already. */
  #want(key) {
    const one = this.#states?.find((state) => this.#keyOf(state) === key);
    if (one && this.#state.known.get(key)?.of !== this.#mark(one) && !this.#queue.includes(key)) {
      this.#queue.push(key);
      this.#next();
    }
  }

  #keyOf({ stack, environment }) {
    return `${stack}/${environment}`;
  }

  #mark({ size, modified }) {
    return `${size} ${modified}`;
  }

  async #next() {
    if (this.#asking >= AT_ONCE || this.#queue.length === 0) {
      return;
    }
    const key = this.#queue.shift();
    const one = this.#states.find((state) => this.#keyOf(state) === key);
    if (!one) {
      this.#next(); // the state is gone
      return;
    }
    this.#asking++;
    const known = { of: this.#mark(one) };
    this.#state.known.set(key, known);
    try {
      const history = await ask(`${statePath(one.stack, one.environment)}/history?limit=1`, { signal: this.#off.signal });
      known.last = history.deployments[0] ?? null;
      known.versions = history.versions.length;
    } catch (error) {
      if (error.name === "AbortError") {
        this.#state.known.delete(key);
        return;
      }
      known.why = error.code === "bad_content" ? "damaged" : error.status === 403 ? "no permission" : "not read";
      known.error = error.message;
    }
    this.#asking--;
    this.#render();
    this.#next();
  }

  // ---- drawing

  #build() {
    const [search, box] = searchBox("Search stacks and environments", this.#state.text, {
      oninput: () => this.#searched(), onkeydown: (event) => searchKey(event, () => this.#searched(), () => this.#links()) });
    this.search = search;
    writeSettings({ q: this.#state.text });
    this.total = h("span", { class: "total" });
    this.place = h("div", {}, h("p", { class: "muted loading" }, "Loading the states…"));
    this.scroller = h("div", { class: "scroller", tabindex: "-1" }, this.place);
    const head = (names) => h("div", { class: "thead", role: "rowgroup" }, h("div", { class: "tr head", role: "row" }, names.map(([name, label]) => h("div", { role: "columnheader", class: `c-${name}` }, label))));
    this.rows = h("div", { role: "rowgroup" });
    this.table = h("div", { class: "table stacks", role: "table", "aria-label": "Deployment states" },
      head([["key", "State"], ["outcome", "Last deployment"], ["by", "By"], ["commit", "Commit"], ["when", "When"], ["versions", "Versions"]]), this.rows);
    this.tfRows = h("div", { role: "rowgroup" });
    this.tfTable = h("div", { class: "table terraforms", role: "table", "aria-label": "Terraform states" },
      head([["key", "Terraform"], ["outcome", "Lock"], ["size", "Size"], ["when", "Written"]]), this.tfRows);
    return h("section", { class: "page states" },
      h("header", { class: "bar" }, h("h1", {}, "State"), this.total, box),
      this.scroller);
  }

  #links() {
    return [...this.element.querySelectorAll(".tr .key")];
  }

  #searched() {
    this.#state.text = this.search.value;
    writeSettings({ q: this.#state.text });
    this.#render();
    say(`${plural(this.rows.children.length + this.tfRows.children.length, "state")} shown`);
  }

  #render() {
    if (!this.#states) {
      if (this.error) {
        clear(this.place).append(h("div", { class: "empty" }, whyNot(this.error)));
      }
      return;
    }
    const fits = matcher(this.#state.text);
    const states = this.#states.filter((one) => fits(`${one.stack}/${one.environment}`));
    const terraform = this.#terraform.filter((one) => fits(`${one.name} terraform`));
    const all = this.#states.length + this.#terraform.length;
    this.total.textContent = all === 0 ? "" : plural(all, "state");
    this.#fill(all, states, terraform);
    keyed(this.rows, states.map((one, i) => ({ key: this.#keyOf(one), data: this.#dataOf(one, states[i - 1]) })), (data) => this.#row(data));
    keyed(this.tfRows, terraform.map((one) => ({ key: one.name, data: { ...one, held: heldBy(this.#model, `terraform/${one.name}`) } })), (data) => this.#tfRow(data));
    [...this.rows.children].forEach((row) => this.#watch(row));
    if (!this.isPlaced) {
      this.isPlaced = true;
      this.scroller.scrollTop = this.#state.scrollTop;
    }
  }

  /** The observer reports a new row at once. */
  #watch(row) {
    if (!row.isWatched) {
      row.isWatched = true;
      this.seen.observe(row);
    }
  }

  #fill(all, states, terraform) {
    const kind = all === 0 ? "first" : states.length + terraform.length === 0 ? "none" : "some";
    this.table.hidden = states.length === 0;
    this.tfTable.hidden = terraform.length === 0;
    if (kind === this.kind) {
      return;
    }
    this.kind = kind;
    clear(this.place).append(...(kind === "some" ? [this.table, this.tfTable] : [h("div", { class: "empty" },
      kind === "first" ? teach() : [h("h2", {}, "No matching state"), h("p", {}, "No stack or environment name contains that text.")])]));
  }

  #dataOf(one, before) {
    const known = this.#state.known.get(this.#keyOf(one)) ?? {};
    return { ...one, isFirst: before?.stack !== one.stack, last: known.last, versions: known.versions, why: known.why, error: known.error, held: heldBy(this.#model, lockOf(one.stack, one.environment)) };
  }

  #cell(name, ...inside) {
    return h("div", { role: "cell", class: `c-${name}` }, ...inside);
  }

  #row({ stack, environment, modified, isFirst, last, versions, why, error, held }) {
    const to = stateHref(stack, environment);
    const wait = versions === undefined && !why ? h("span", { class: "muted" }, "…") : null;
    return h("div", { class: `tr${isFirst ? " first" : ""}`, role: "row", onclick: (event) => openRow(event, to) },
      this.#cell("key", h("a", { class: "key", href: to, "data-part": "key" }, h("span", { class: "stack" }, stack), h("span", { class: "muted" }, " / "), h("span", {}, environment))),
      this.#cell("outcome", held ? this.#deploying(held, lockOf(stack, environment)) : null, why ? h("span", { class: "badge bad", title: error }, why) : last ? outcome(last.status) : wait),
      this.#cell("by", last?.user ?? last?.triggered_by ?? (last === null ? h("span", { class: "muted" }, "another program") : "")),
      this.#cell("commit", commit(last)),
      this.#cell("when", ago(Date.parse(last?.timestamp ?? modified), this.#model)),
      this.#cell("versions", versions === undefined ? "" : count(versions), h("span", { class: "unit" }, versions === undefined ? "" : versions === 1 ? " version" : " versions")));
  }

  #deploying(name, key) {
    return h("a", { class: "badge queue", href: lockHref(key), title: `${name} holds the lock`, "data-part": "lock" }, icon("lock"), "in use");
  }

  #tfRow({ name, size, modified, held }) {
    const to = terraformHref(name);
    return h("div", { class: "tr", role: "row", onclick: (event) => openRow(event, to) },
      this.#cell("key", h("a", { class: "key", href: to, "data-part": "key" }, name)),
      this.#cell("outcome", held ? this.#deploying(held, `terraform/${name}`) : h("span", { class: "badge off" }, "free")),
      this.#cell("size", bytes(size)), this.#cell("when", ago(Date.parse(modified), this.#model)));
  }
}
