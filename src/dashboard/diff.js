// The differences between two versions of a state, by resource and output, and their display.

import { h, clear } from "./dom.js";
import { bytes, plural } from "./format.js";
import { Secret, isTree, parts, pretty, same } from "./json.js";

const MOST = 200; // rows of one section; the rest on request
const OPEN_LINES = 12; // longer values are folded
const LONG = 300; // likewise, characters of a string

// Members that belay and Terraform rewrite with every save are no changes.
const OURS = new Set(["resources", "outputs", "metadata", "lock", "deployment_history", "checksums", "version", "format_version", "serial", "lineage"]);

// ---- content of a document

function address(resource, instance) {
  const name = `${resource.mode === "data" ? "data." : ""}${resource.type}.${resource.name}`;
  const key = instance.index_key === undefined ? "" : `[${pretty(instance.index_key)}]`;
  return `${resource.module ? `${resource.module}.` : ""}${name}${key}`;
}

/** Attributes that Terraform marks as sensitive are not shown. */
function attributes(instance) {
  const hidden = new Set((instance.sensitive_attributes ?? []).map((path) => path?.[0]?.value).filter((name) => typeof name === "string"));
  return Object.fromEntries(parts(instance.attributes).map(([name, value]) => [name, hidden.has(name) ? new Secret(value) : value]));
}

function terraformResources(document) {
  const found = [];
  for (const resource of Array.isArray(document.resources) ? document.resources : []) {
    for (const instance of Array.isArray(resource?.instances) ? resource.instances : []) {
      found.push([address(resource, instance ?? {}), attributes(instance ?? {})]);
    }
  }
  return found;
}

function terraformOutputs(document) {
  return parts(document.outputs).map(([name, output]) => [name, output?.sensitive ? new Secret(output.value) : output?.value ?? null]);
}

/** Resources, outputs and the rest, each by name. */
export function sections(document, isTerraform) {
  return [
    ["Resources", new Map(isTerraform ? terraformResources(document) : parts(document.resources))],
    ["Outputs", new Map(isTerraform ? terraformOutputs(document) : parts(document.outputs))],
    ["Other parts", new Map(parts(document).filter(([name]) => !OURS.has(name)))],
  ];
}

// ---- comparing

/** Down to single values and lists of values. */
function leaves(from, to, path, found) {
  const both = isTree(from) && isTree(to) && Array.isArray(from) === Array.isArray(to);
  if (!both || (Array.isArray(from) && ![...from, ...to].some(isTree))) {
    found.push({ path, from, to, hasFrom: from !== undefined, hasTo: to !== undefined });
    return found;
  }
  for (const name of new Set([...Object.keys(from), ...Object.keys(to)])) {
    const old = Object.hasOwn(from, name) ? from[name] : undefined, fresh = Object.hasOwn(to, name) ? to[name] : undefined;
    if (!same(old, fresh)) {
      leaves(old, fresh, [...path, name], found);
    }
  }
  return found;
}

function compareSection(from, to) {
  const items = [];
  for (const name of [...new Set([...from.keys(), ...to.keys()])].sort()) {
    if (!from.has(name)) {
      items.push({ name, change: "added", value: to.get(name) });
    } else if (!to.has(name)) {
      items.push({ name, change: "removed", value: from.get(name) });
    } else if (!same(from.get(name), to.get(name))) {
      items.push({ name, change: "changed", leaves: leaves(from.get(name), to.get(name), [], []) });
    }
  }
  return items;
}

/** `from` may be null: no earlier version. */
export function compare(from, to, isTerraform) {
  const old = from ? sections(from, isTerraform) : [];
  return sections(to, isTerraform).map(([name, items], i) => ({ name, items: compareSection(old[i]?.[1] ?? new Map(), items) }));
}

export function counts(found) {
  const n = { added: 0, changed: 0, removed: 0 };
  found.forEach(({ items }) => items.forEach(({ change }) => n[change]++));
  return n;
}

// ---- display

const SIGNS = { added: "+", removed: "−", changed: "~" };

/** A value on one line, or folded if it is long. */
function shown(value) {
  const text = typeof value === "string" && value.length > LONG ? value : pretty(value);
  const lines = text.split("\n").length;
  if (lines === 1 && text.length <= LONG) {
    return h("code", {}, text);
  }
  if (lines <= OPEN_LINES && text.length <= LONG) {
    return h("pre", { tabindex: "0" }, text);
  }
  return folded(text, lines);
}

function folded(text, lines) {
  const size = bytes(new Blob([text]).size);
  const fold = h("details", { class: "fold" }, h("summary", {}, h("code", {}, `${text.slice(0, 60).replaceAll(/\s+/g, " ")}…`), ` ${lines > 1 ? `${plural(lines, "line")}, ` : ""}${size}`));
  fold.addEventListener("toggle", () => fold.open && !fold.querySelector("pre") && fold.append(h("pre", { tabindex: "0" }, text)));
  return fold;
}

function path(names) {
  return names.map((name, i) => (/^\d+$/.test(name) ? `[${name}]` : `${i > 0 ? "." : ""}${name}`)).join("");
}

function leaf({ path: names, from, to, hasFrom, hasTo }) {
  return h("li", {}, names.length > 0 ? h("span", { class: "path mono" }, path(names)) : null,
    h("span", { class: "values" },
      hasFrom ? h("del", {}, h("span", { class: "unseen" }, "was "), shown(from)) : null,
      hasTo ? h("ins", {}, h("span", { class: "unseen" }, hasFrom ? " is now " : "new: "), shown(to)) : null));
}

function body(item) {
  if (item.leaves) {
    return h("ul", { class: "leaves" }, item.leaves.slice(0, MOST).map(leaf),
      item.leaves.length > MOST ? h("li", { class: "muted" }, `and ${plural(item.leaves.length - MOST, "more change")}`) : null);
  }
  return h("ul", { class: "leaves" }, leaf({ path: [], from: item.value, to: item.value, hasFrom: item.change === "removed", hasTo: item.change !== "removed" }));
}

function isSmall(item) {
  const value = item.leaves ? item.leaves.map(({ from, to }) => [from, to]) : item.value;
  return pretty(value).length < 1500 && (item.leaves?.length ?? 1) <= OPEN_LINES;
}

function change(item) {
  const sign = SIGNS[item.change];
  const element = h("details", { class: `change ${item.change ?? "there"}`, "data-part": item.name },
    h("summary", {}, sign ? h("span", { class: "sign", "aria-hidden": "true" }, sign) : null, h("span", { class: "mono name" }, item.name),
      h("span", { class: "n" }, item.change ?? "", item.leaves?.length > 1 ? `, ${plural(item.leaves.length, "value")}` : "")));
  const fill = () => element.open && !element.querySelector("ul") && element.append(body(item));
  element.addEventListener("toggle", fill);
  element.open = item.isOpen ?? isSmall(item);
  fill();
  return element;
}

function section({ name, items }) {
  const list = h("div", { class: "changes" }, items.slice(0, MOST).map(change));
  const rest = items.slice(MOST);
  const more = rest.length === 0 ? null : h("button", { type: "button", onclick: () => {
    list.append(...rest.map((item) => change({ ...item, isOpen: false })));
    more.remove();
  } }, `Show ${rest.length} more`);
  return h("section", { class: "part", "aria-label": name }, h("h3", {}, name, h("span", { class: "n" }, ` ${items.length}`)), list, more);
}

export function tally(found) {
  const n = counts(found);
  return h("span", { class: "tally" }, Object.entries(n).filter(([, many]) => many > 0).map(([word, many]) =>
    h("span", { class: word }, h("b", { "aria-hidden": "true" }, SIGNS[word]), `${many} ${word}`)));
}

/** Draws the differences into `place`. */
export function showDiff(place, found) {
  const some = found.filter(({ items }) => items.length > 0);
  clear(place).append(...(some.length === 0 ? [h("p", { class: "muted same" }, "Resources and outputs are the same.")] : some.map(section)));
}

/** The content of a version; long values are folded. */
export function showContents(place, document, isTerraform) {
  const some = sections(document, isTerraform).filter(([, items]) => items.size > 0);
  clear(place).append(...(some.length === 0 ? [h("p", { class: "muted same" }, "It has no resources and no outputs.")] : some.map(([name, items]) =>
    section({ name, items: [...items].map(([one, value]) => ({ name: one, value, isOpen: !isTree(value) && pretty(value).length <= LONG })) }))));
}
