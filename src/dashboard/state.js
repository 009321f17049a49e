// One state: its versions, the changes of each, verification and restore.

import { h, icon, clear, command, keyed, walk, say, STEPS } from "./dom.js";
import { ask, askDocument } from "./api.js";
import { bytes, count, moment, plural, span } from "./format.js";
import { parse } from "./json.js";
import { compare, sections, showContents, showDiff, tally } from "./diff.js";
import { href as lockHref } from "./locks.js";
import { ago, commit, heldBy, lockOf, outcome, stateHref, statePath, terraformHref, tickAges, whyNot } from "./states.js";
import { restoreVersion } from "./dialogs.js";

const AGAIN_MS = 30000, SOON_MS = 1000;
const LARGE = 8e6; // bytes; larger documents are fetched on request only
const KEPT = 6; // documents
const DEPLOYMENTS = 200;

/** The routes of a deployment state, and how it differs from a Terraform state. */
export function deploymentState(stack, environment) {
  const path = statePath(stack, environment);
  return {
    name: `${stack}/${environment}`, title: [stack, h("span", { class: "muted" }, " / "), environment], lock: lockOf(stack, environment), isTerraform: false,
    present: path, history: `${path}/history?limit=${DEPLOYMENTS}`, versions: `${path}/history?limit=0`, version: (name) => `${path}/history/${encodeURIComponent(name)}`,
    verify: `${path}/verify`, restore: `${path}/restore`, href: (version) => stateHref(stack, environment, version),
  };
}

export function terraformState(name) {
  const path = `v1/terraform/${encodeURIComponent(name)}`;
  return {
    name, title: [name], lock: `terraform/${name}`, isTerraform: true,
    present: path, history: `${path}/versions`, version: (version) => `${path}/versions/${encodeURIComponent(version)}`,
    verify: null, restore: `${path}/restore`, href: (version) => terraformHref(name, version),
  };
}

/** Which deployment made which version: a save writes both in the same second, or soon after. */
function pair(versions, deployments) {
  const left = new Map();
  for (const one of deployments) {
    const second = Math.floor(Date.parse(one.timestamp) / 1000);
    left.set(second, [...(left.get(second) ?? []), one]);
  }
  return versions.map((version) => {
    const second = Math.floor(Date.parse(version.timestamp) / 1000);
    const deployment = left.get(second)?.shift() ?? left.get(second - 1)?.shift() ?? null;
    return { ...version, deployment };
  });
}

export class StatePage {
  #model;
  #source;
  #off = new AbortController();
  #documents = new Map(); // by the name of a version
  #versions = [];
  #chosen; // the version that is shown; null: the newest
  #with = null; // the version to compare with; null: the one before it, "": none
  #deployments = [];

  constructor(model, source, version) {
    this.#model = model;
    this.#source = source;
    this.#chosen = version ?? null;
    this.mayRead = !source.isTerraform || model.me.role !== "reader";
    this.element = this.#build();
    const on = (name, fn) => model.addEventListener(name, fn, { signal: this.#off.signal });
    on("locks", ({ detail: { keys } }) => (!keys || keys.has(source.lock)) && this.#later());
    on("link", () => model.link === "live" && this.#ask());
    this.ticker = setInterval(() => tickAges(this.element, model), 1000);
    this.again = setInterval(() => document.hidden || this.#ask(), AGAIN_MS);
    this.#ask();
  }

  close() {
    this.#off.abort();
    clearInterval(this.ticker);
    clearInterval(this.again);
    clearTimeout(this.soon);
  }

  key(event) {
    if (event.key === "Escape" || event.key === "h") {
      location.hash = "#/state";
    } else if (event.key === "v" && this.verifyButton) {
      this.verifyButton.click();
    } else if (event.key === "r" && this.restoreButton) {
      this.restoreButton.click();
    } else if (STEPS[event.key] !== undefined) {
      return walk([...this.list.querySelectorAll("button")], STEPS[event.key]);
    } else {
      return false;
    }
    return true;
  }

  // ---- fetching

  #later() {
    this.#renderHead();
    clearTimeout(this.soon);
    this.soon = setTimeout(() => this.#ask(), SOON_MS);
  }

  async #ask() {
    if (this.isAsking) {
      return;
    }
    this.isAsking = true;
    try {
      const history = await ask(this.#source.history, { signal: this.#off.signal });
      this.#deployments = history.deployments ?? [];
      this.#versions = pair(history.versions, this.#deployments);
      this.error = null;
    } catch (error) {
      if (error.name === "AbortError") {
        return;
      }
      this.error = error;
      await this.#askVersions();
    } finally {
      this.isAsking = false;
    }
    this.#render();
  }

  /** The versions of a damaged state are still listed. */
  async #askVersions() {
    if (this.error.code !== "bad_content") {
      return;
    }
    try {
      this.#versions = pair((await ask(this.#source.versions, { signal: this.#off.signal })).versions, []);
      this.#deployments = [];
    } catch {
      // the page already shows that the state is damaged
    }
  }

  /** A version's document. It never changes, so it is fetched once. */
  async #load(name) {
    if (!this.#documents.has(name)) {
      const loading = askDocument(this.#source.version(name), { signal: this.#off.signal }).then(({ text }) => parse(text));
      this.#documents.set(name, loading);
      loading.catch(() => this.#documents.delete(name));
      if (this.#documents.size > KEPT) {
        this.#documents.delete(this.#documents.keys().next().value);
      }
    }
    return this.#documents.get(name);
  }

  // ---- layout

  #build() {
    const { title, isTerraform, verify } = this.#source;
    this.head = h("div", { class: "top" });
    this.list = h("ol", { class: "versions", "aria-label": "Versions, newest first" });
    this.listCount = h("span", { class: "n" });
    this.from = h("select", { id: "from", onchange: () => this.#choose(this.to.value, this.from.value) });
    this.to = h("select", { id: "to", onchange: () => this.#choose(this.to.value, null) });
    this.sum = h("div", { class: "sum" });
    this.changes = h("div", { class: "diff" });
    this.contents = h("div", { class: "diff" });
    this.action = h("div", { class: "action" });
    this.deployments = h("ol", { class: "timeline" });
    this.deploymentsCard = h("section", { class: "card" }, h("h2", {}, "Deployments"), this.deployments);
    this.facts = h("dl", { class: "facts" });
    this.findings = h("div", { role: "status" }, h("p", { class: "muted" }, "Compares every part with its checksum."));
    this.verifyButton = verify ? h("button", { type: "button", onclick: () => this.#verify() }, "Verify") : null;
    this.contentsCard = h("details", { class: "card contents", "data-part": "contents" }, h("summary", {}, "All of this version"), this.contents);
    this.contentsCard.addEventListener("toggle", () => this.#showContents());
    this.cards = h("div", { class: "cards two" },
      h("div", { class: "col" },
        h("section", { class: "card main" }, h("h2", {}, "Changes", this.sum),
          h("div", { class: "picks" }, h("label", { for: "to" }, "Version"), this.to, h("label", { for: "from" }, "compared with"), this.from, this.action),
          this.changes),
        this.contentsCard, isTerraform ? null : this.deploymentsCard),
      h("div", { class: "col" },
        h("section", { class: "card pick" }, h("h2", {}, "Versions", this.listCount), this.list),
        verify ? h("section", { class: "card" }, h("h2", {}, "Soundness", this.verifyButton), this.findings) : null,
        h("section", { class: "card" }, h("h2", {}, "Details"), this.facts)));
    this.place = h("div", { class: "place" }, h("p", { class: "muted loading" }, "Loading…"));
    this.scroller = h("div", { class: "scroller", tabindex: "-1" }, this.head, this.place);
    return h("section", { class: "page lock state" },
      h("header", { class: "bar" }, h("a", { class: "back", href: "#/state" }, icon("back"), "State"), h("h1", { class: "mono" }, title),
        isTerraform ? h("span", { class: "badge off" }, "Terraform") : null),
      this.scroller);
  }

  #render() {
    if (this.#versions.length === 0) {
      clear(this.head);
      clear(this.place).append(h("div", { class: "empty" }, this.error && this.error.status !== 404 ? whyNot(this.error) : this.#unknown()));
      return;
    }
    const isNew = this.place.firstChild !== this.cards;
    if (isNew) {
      clear(this.place);
    }
    this.#renderHead();
    this.#renderVersions();
    this.#renderDeployments();
    const shown = this.#show();
    if (isNew) {
      shown.then(() => this.#versions.length > 0 && clear(this.place).append(this.cards)); // with the changes, so that nothing moves
    }
  }

  #unknown() {
    const { isTerraform, name } = this.#source;
    const [stack, environment] = name.split("/");
    return [h("h2", {}, "This state does not exist"), h("p", {}, isTerraform ? "Terraform creates it with the first apply; docs/terraform.md shows the configuration." : "The first deployment creates it:"),
      isTerraform ? null : command(`belay deploy --stack ${stack} --environment ${environment} -- ./deploy.sh`)];
  }

  #renderHead() {
    const newest = this.#versions[0];
    if (!newest) {
      return;
    }
    const last = this.#deployments[0];
    const damage = this.error?.code === "bad_content" ? this.error.message : null;
    const held = heldBy(this.#model, this.#source.lock);
    const fact = (name, value) => h("div", {}, h("dt", {}, name), h("dd", {}, h("strong", {}, value)));
    keyed(this.head, [{ key: "head", data: { newest: newest.name, last, held, damage, n: this.#versions.length } }], () => h("div", { class: "headline" },
      h("div", { class: "who" },
        h("span", { class: "states" }, last ? outcome(last.status) : null, damage ? h("span", { class: "badge bad" }, "damaged") : null,
          held ? h("a", { class: "badge queue", href: lockHref(this.#source.lock), "data-part": "lock" }, icon("lock"), `in use by ${held}`) : null),
        damage ? h("p", { class: "problem" }, `${damage}. Restore a version to repair it.`) : h("p", { class: "holder" }, h("strong", {}, last?.user ?? last?.triggered_by ?? (held ? "" : "not in use")), commit(last),
          last?.version ? h("span", { class: "owner" }, `release ${last.version}`) : null)),
      damage ? null : h("dl", { class: "times" },
        h("div", {}, h("dt", {}, this.#source.isTerraform ? "Written" : "Deployed"), h("dd", {}, h("strong", {}, ago(Date.parse(last?.timestamp ?? newest.timestamp), this.#model)))),
        last?.duration_seconds != null ? fact("Duration", span(last.duration_seconds * 1000)) : null,
        fact("Versions", count(this.#versions.length)))));
  }

  // ---- versions

  #at(name) {
    return name === null ? 0 : this.#versions.findIndex((version) => version.name === name);
  }

  /** The version that is shown, and the one to compare with; -1: none. */
  #pick() {
    const to = Math.max(0, this.#at(this.#chosen));
    const before = to + 1 < this.#versions.length ? to + 1 : -1;
    const base = this.#with === null ? before : this.#at(this.#with); // "": none
    return [base < 0 && this.#with !== "" ? before : base, to];
  }

  #choose(name, base) {
    this.#chosen = name;
    this.#with = base;
    history.replaceState(null, "", this.#source.href(name));
    this.#renderVersions();
    this.#show();
  }

  /** Further versions of the same second have a number in their name. */
  #when({ name, timestamp }) {
    const number = name.match(/^(?:\d+-){6}(\d+)\.json$/)?.[1];
    return `${moment(Date.parse(timestamp), this.#model.now())}${number ? ` (${number})` : ""}`;
  }

  #label(version) {
    const id = version.deployment?.git_commit;
    return `${version.index === 1 ? "present" : this.#when(version)}${id ? `, ${id.slice(0, 7)}` : ""}`;
  }

  #renderVersions() {
    const [from, to] = this.#pick();
    this.listCount.textContent = count(this.#versions.length);
    keyed(this.list, this.#versions.map((version, i) => ({ key: version.name, data: { ...version, isTo: i === to, isFrom: i === from } })), (version) => this.#version(version));
    const option = (version) => h("option", { value: version.name }, this.#label(version));
    const names = this.#versions.map((version) => this.#label(version)).join("\n");
    if (this.names !== names) {
      this.names = names;
      clear(this.to).append(...this.#versions.map(option));
      clear(this.from).append(...this.#versions.map(option), h("option", { value: "" }, "nothing"));
    }
    this.to.value = this.#versions[to].name;
    this.from.value = from < 0 ? "" : this.#versions[from].name;
  }

  #version(version) {
    const { index, name, size, deployment, isTo, isFrom } = version;
    return h("li", { class: `${isTo ? "to" : ""}${isFrom ? " from" : ""}` },
      h("button", { type: "button", "data-part": "version", "aria-current": isTo ? "true" : undefined, onclick: () => this.#choose(name, null), title: name },
        h("span", { class: "when" }, this.#when(version), index === 1 ? h("span", { class: "badge off" }, "present") : null, isFrom ? h("span", { class: "unseen" }, " compared with") : null),
        h("span", { class: "what" }, deployment ? [outcome(deployment.status), h("span", { class: "by" }, deployment.user ?? deployment.triggered_by ?? ""), commit(deployment)] : null,
          h("span", { class: "muted size" }, bytes(size)))));
  }

  // ---- changes

  async #show() {
    const [from, to] = this.#pick();
    const versions = [from, to].map((i) => this.#versions[i]);
    const job = JSON.stringify(versions.map((version) => version?.name));
    if (job === this.shown && this.shownError === Boolean(this.error)) {
      return;
    }
    this.shown = job;
    this.shownError = Boolean(this.error);
    clear(this.sum);
    clear(this.action);
    this.restoreButton = null;
    if (!this.mayRead) {
      clear(this.changes).append(h("p", { class: "muted same" }, "Terraform states may contain secrets: viewing them needs the role 'locker'."));
      this.contentsCard.hidden = true;
      return;
    }
    const size = versions.reduce((sum, version) => sum + (version?.size ?? 0), 0);
    if (size > LARGE && this.isLarge !== job) {
      clear(this.changes).append(h("p", { class: "same" }, `These versions are ${bytes(size)} together. `, h("button", { type: "button", onclick: () => {
        this.isLarge = job;
        this.shown = null;
        this.#show();
      } }, "Compare them")));
      return;
    }
    await this.#compare(versions, job);
  }

  async #compare([from, to], job) {
    clear(this.changes).append(h("p", { class: "muted same" }, "Comparing…"));
    try {
      const [old, fresh] = await Promise.all([from ? this.#load(from.name) : null, this.#load(to.name)]);
      if (this.shown !== job) {
        return;
      }
      const found = compare(old, fresh, this.#source.isTerraform);
      showDiff(this.changes, found);
      clear(this.sum).append(tally(found));
      this.#renderFacts(to, fresh);
      this.#renderAction(to);
      this.#showContents();
      say(`Version of ${moment(Date.parse(to.timestamp), this.#model.now())}: ${this.sum.textContent || "no changes"}`);
    } catch (error) {
      if (error.name !== "AbortError" && this.shown === job) {
        this.shown = null;
        clear(this.changes).append(h("p", { class: "problem" }, `${error.message}.`));
      }
    }
  }

  async #showContents() {
    const name = this.#versions[this.#pick()[1]]?.name;
    if (this.contentsCard.open && this.inside !== name) {
      const document = await this.#load(name).catch(() => null);
      if (document) {
        this.inside = name;
        showContents(this.contents, document, this.#source.isTerraform);
      }
    }
  }

  #renderFacts(version, document) {
    const row = (name, value, isMono) => (value ? [h("dt", {}, name), h("dd", { class: isMono ? "mono" : "" }, value)] : null);
    const [[, resources], [, outputs]] = sections(document, this.#source.isTerraform);
    const text = (value) => (typeof value === "string" ? value : value === undefined || value === null ? null : String(value.text ?? value));
    const metadata = document.metadata ?? {};
    clear(this.facts).append(...[
      row("Version", version.name, true), row("Written", moment(Date.parse(version.timestamp), this.#model.now())), row("By", text(metadata.last_updated_by)),
      row("Serial", text(metadata.serial ?? document.serial), true), row("Token", text(document.lock?.token), true),
      row("Deployment", text(metadata.deployment_id), true), row("Commit", text(metadata.git_commit), true), row("Branch", text(metadata.git_branch)),
      row("Terraform", text(document.terraform_version)), row("Has", `${plural(resources.size, "resource")}, ${plural(outputs.size, "output")}`), row("Size", bytes(version.size)),
    ].flat().filter(Boolean));
  }

  #renderAction(version) {
    clear(this.action);
    this.restoreButton = null;
    if (version.index === 1 && !this.error) {
      return;
    }
    if (this.#model.me.role !== "admin") {
      this.action.append(h("p", { class: "muted" }, "Restoring needs the role 'admin'."));
      return;
    }
    this.restoreButton = h("button", { type: "button", onclick: () => this.#restore(version) }, "Restore this version…");
    this.action.append(this.restoreButton);
  }

  // ---- actions

  async #restore(version) {
    if (await restoreVersion({ source: this.#source, version, load: () => this.#load(version.name), model: this.#model })) {
      say(`${this.#source.name} was restored`);
      this.#chosen = null;
      this.#with = null;
      history.replaceState(null, "", this.#source.href());
      this.#ask();
    }
  }

  async #verify() {
    this.verifyButton.disabled = true;
    clear(this.findings).append(h("p", { class: "muted" }, "Verifying…"));
    try {
      const { is_sound: isSound, findings } = await ask(this.#source.verify, { signal: this.#off.signal });
      const tones = { ok: "ok", warning: "warn", warn: "warn" };
      const item = ({ part, level, text }) => h("li", {}, h("span", { class: `badge ${tones[level] ?? "bad"}` }, level), h("span", { class: "mono" }, part), h("span", { class: "muted" }, text));
      const wrong = findings.filter(({ level }) => level !== "ok");
      clear(this.findings).append(h("div", {}, h("p", { class: isSound ? "sound" : "problem" }, isSound ? `Sound: ${plural(findings.length, "part")} match their checksums.` : "It has changed since it was saved."),
        wrong.length > 0 ? h("ul", { class: "findings" }, wrong.map(item)) : null,
        wrong.length < findings.length ? h("details", {}, h("summary", {}, wrong.length > 0 ? "The sound parts" : "Every part"), h("ul", { class: "findings" }, findings.filter(({ level }) => level === "ok").map(item))) : null));
    } catch (error) {
      if (error.name !== "AbortError") {
        clear(this.findings).append(h("p", { class: "problem" }, `${error.message}.`));
      }
    }
    this.verifyButton.disabled = false;
  }

  // ---- deployments

  #renderDeployments() {
    this.deploymentsCard.hidden = this.#deployments.length === 0;
    const tones = { success: "ok", failed: "bad", lost: "warn", restored: "wait" };
    const words = { success: "Deployed", failed: "Failed", lost: "Lost its lock", restored: "Restored" };
    keyed(this.deployments, this.#deployments.slice(0, 50).map((one, i) => ({ key: `${one.deployment_id} ${i}`, data: one })), (one) => {
      const n = one.resources_changed ?? {};
      const changed = [["created", "+"], ["updated", "~"], ["deleted", "−"]].filter(([name]) => n[name] > 0).map(([name, sign]) => `${sign}${n[name]}`).join(" ");
      return h("li", { class: tones[one.status] ?? "dim" },
        h("time", { datetime: one.timestamp, title: one.timestamp }, moment(Date.parse(one.timestamp), this.#model.now())),
        h("div", {}, h("b", {}, words[one.status] ?? one.status ?? "Saved"), " ", h("span", { class: "by" }, `by ${one.user ?? one.triggered_by ?? "an unknown user"}`),
          one.duration_seconds > 0 ? h("span", { class: "t" }, ` in ${span(one.duration_seconds * 1000)}`) : null,
          changed ? h("span", { class: "t", title: "resources created, updated and deleted" }, `, resources ${changed}`) : null,
          h("p", { class: "reason" }, commit(one), one.version ? ` release ${one.version}` : "", one.triggered_by && one.triggered_by !== one.user ? ` ${one.triggered_by}` : "")));
    });
  }
}
