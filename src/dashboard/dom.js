// Elements are created only here. Strings become text nodes: neither this file nor the server's policy
// allows HTML in a string.

const SVG = "http://www.w3.org/2000/svg";

// Characters that reorder or hide the text around them, but not the joiners that emoji and some scripts need.
const UNSAFE = /[\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g;

/** As `belay list` shows a text: a key with U+202E could look like another one. */
export function plain(text) {
  return String(text).replace(UNSAFE, (one) => `\\u{${one.codePointAt(0).toString(16)}}`);
}

const SHOWN = new Set(["title", "aria-label"]);

function fill(element, props, children) {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === undefined || value === null || value === false) {
      continue;
    }
    if (name.startsWith("on")) {
      element.addEventListener(name.slice(2), value);
    } else {
      element.setAttribute(name, value === true ? "" : SHOWN.has(name) ? plain(value) : String(value));
    }
  }
  const given = children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false);
  element.append(...given.map((child) => (child instanceof Node ? child : plain(child))));
  return element;
}

export function h(tag, props, ...children) {
  return fill(document.createElement(tag), props, children);
}

export function svg(tag, props, ...children) {
  return fill(document.createElementNS(SVG, tag), props, children);
}

const ICONS = {
  lock: "M5 7.500V5.500a3 3 0 0 1 6 0v2M4 7.500h8v6H4z",
  chart: "M2.500 13.500h11M4.500 13.500V9M8 13.500V4M11.500 13.500V7",
  sum: "M12 4.500V3H4l4 5-4 5h8v-1.500",
  search: "M7 11.500a4.500 4.500 0 1 0 0-9 4.500 4.500 0 0 0 0 9zM10.300 10.300l3.200 3.200",
  back: "M9.500 3.500 5 8l4.500 4.500",
  sun: "M8 10.800a2.800 2.800 0 1 0 0-5.600 2.800 2.800 0 0 0 0 5.600zM8 1.500v1.500M8 13v1.500M1.500 8H3M13 8h1.500M3.400 3.400l1.100 1.100M11.500 11.500l1.100 1.100M3.400 12.600l1.100-1.100M11.500 4.500l1.100-1.100",
  moon: "M13 9.500A5.500 5.500 0 0 1 6.500 3a5.500 5.500 0 1 0 6.500 6.500z",
  auto: "M8 2.500a5.500 5.500 0 1 0 0 11zM8 2.500a5.500 5.500 0 0 1 0 11",
  keyboard: "M2 4.500h12v7H2zM4.500 7h.01M7 7h.01M9.500 7h.01M12 7h.01M5 9.500h6",
  out: "M6.500 3h-3v10h3M7 8h6.500M11 5.500 13.500 8 11 10.500",
  warn: "M8 2.500 14 13H2zM8 6.500v3M8 11.300v.01",
  freeze: "M8 2v12M2.800 5l10.400 6M13.200 5 2.800 11M6 3l2 1.500L10 3M6 13l2-1.500 2 1.500",
  copy: "M5.500 5.500h7v7h-7zM3.500 10.500v-7h7",
  queue: "M3 4.500h10M3 8h7M3 11.500h4",
  clock: "M8 13.500a5.500 5.500 0 1 0 0-11 5.500 5.500 0 0 0 0 11zM8 5v3l2 1.500",
  gone: "M8 13.500a5.500 5.500 0 1 0 0-11 5.500 5.500 0 0 0 0 11zM4.200 4.200l7.600 7.600",
  layers: "M8 2.500 14 5.500 8 8.500 2 5.500zM2.500 8.500 8 11.200l5.500-2.700M2.500 11 8 13.700l5.500-2.700",
  database: "M3 4.300c0-1 2.200-1.800 5-1.800s5 .8 5 1.800-2.200 1.800-5 1.800-5-.8-5-1.800zM3 4.300v7.400c0 1 2.200 1.800 5 1.800s5-.8 5-1.800V4.300M3 8c0 1 2.200 1.800 5 1.800S13 9 13 8",
};

export function icon(name) {
  return svg("svg", { class: "icon", viewBox: "0 0 16 16", "aria-hidden": "true" }, svg("path", { d: ICONS[name] }));
}

/** Copies a text; on a page that is not served over TLS the browser has only the old way. */
export function copyButton(text, name) {
  const copy = async () => {
    if (navigator.clipboard) {
      await navigator.clipboard.writeText(text);
    } else {
      const field = h("textarea", { class: "unseen", "aria-hidden": "true" });
      field.value = text;
      document.body.append(field);
      field.select();
      document.execCommand("copy");
      field.remove();
    }
    say(`${name} copied`);
  };
  return h("button", { type: "button", class: "plainbutton copy", title: `Copy: ${name}`, "aria-label": `Copy: ${name}`, onclick: copy }, icon("copy"));
}

/** A command or a piece of configuration, with a button that copies it. */
export function command(text) {
  return h("div", { class: "command" }, h("pre", { tabindex: "0" }, text), copyButton(text, "Command"));
}

export function clear(element) {
  element.replaceChildren();
  return element;
}

const drawn = new WeakMap(); // the data that an element of a keyed list was made from

function carry(from, to) {
  const open = new Set([...from.querySelectorAll("details[open]")].map((one) => one.dataset.part));
  to.querySelectorAll("details").forEach((one) => (one.open ||= open.has(one.dataset.part)));
  const focus = from.contains(document.activeElement) ? document.activeElement.dataset.part : undefined;
  from.replaceWith(to);
  if (focus !== undefined) {
    [to, ...to.querySelectorAll("[data-part]")].find((one) => one.dataset.part === focus)?.focus({ preventScroll: true });
  }
}

/**
 * Children by `key`. Those with unchanged data stay as they are, with focus and selection; one that is recreated
 * keeps its open parts, and the focus if that was on a part with the same name (data-part).
 */
export function keyed(parent, items, make) {
  const old = new Map([...parent.children].map((one) => [one.dataset.key, one]));
  let before = null;
  for (const { key, data } of items) {
    const made = JSON.stringify(data);
    let element = old.get(key);
    old.delete(key);
    if (!element || drawn.get(element) !== made) {
      const fresh = make(data);
      fresh.dataset.key = key;
      drawn.set(fresh, made);
      if (element) {
        carry(element, fresh);
      }
      element = fresh;
    }
    const next = before ? before.nextSibling : parent.firstChild;
    if (next !== element) {
      const focused = element.contains(document.activeElement) ? document.activeElement : null;
      parent.insertBefore(element, next);
      focused?.focus({ preventScroll: true });
    }
    before = element;
  }
  old.forEach((element) => element.remove());
}

/** Moves the focus among the links of a list. */
export function walk(links, by) {
  const at = links.indexOf(document.activeElement);
  const next = links[Math.max(0, Math.min(links.length - 1, at < 0 ? 0 : at + by))];
  next?.focus();
  next?.scrollIntoView({ block: "nearest" });
  return Boolean(next);
}

/** A search field, and its box with an icon and the key that moves the focus there. */
export function searchBox(label, text, props) {
  const field = h("input", { type: "search", class: "search", placeholder: label, "aria-label": label, autocomplete: "off", spellcheck: "false", ...props });
  field.value = text;
  return [field, h("div", { class: "searchbox" }, icon("search"), field, h("kbd", { "aria-hidden": "true" }, "/"))];
}

/** A group of buttons of which one is pressed; `values` are pairs of a value and its label. */
export function segments(label, values, current, choose) {
  const buttons = values.map(([value, text]) => h("button", { type: "button", "aria-pressed": String(value === current), onclick: () => {
    buttons.forEach((button, i) => button.setAttribute("aria-pressed", String(values[i][0] === value)));
    choose(value);
  } }, text));
  return h("div", { class: "segments", role: "group", "aria-label": label }, buttons);
}

/** A click on a row opens its page, unless it is on a link or selects text. */
export function openRow(event, to) {
  if (!event.target.closest("a") && !String(getSelection())) {
    location.hash = to;
  }
}

/** The keys in the search field of a list. */
export function searchKey(event, searched, links) {
  const search = event.currentTarget;
  if (event.key === "Escape" && search.value) {
    search.value = "";
    searched();
  } else if (event.key === "Escape") {
    search.blur();
  } else if (event.key === "ArrowDown" || event.key === "Enter") {
    walk(links(), 0);
  } else {
    return;
  }
  event.preventDefault();
}

export const STEPS = { j: 1, ArrowDown: 1, k: -1, ArrowUp: -1, Home: -1e9, End: 1e9 };

let spoken;
/** Announce to screen readers, after a pause in the changes. */
export function say(text) {
  clearTimeout(spoken);
  spoken = setTimeout(() => {
    document.getElementById("say").textContent = text;
  }, 400);
}
