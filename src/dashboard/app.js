// The frame: login, navigation, the connection to the server, and keyboard shortcuts.

import { h, icon, clear, command, say } from "./dom.js";
import { session } from "./api.js";
import { clock } from "./format.js";
import { readAddress, readSearch } from "./address.js";
import { Alarms } from "./attention.js";
import { Model } from "./model.js";
import { LocksPage, locksState, readLocksSettings } from "./locks.js";
import { LockPage } from "./lock.js";
import { ActivityPage, readActivitySettings } from "./activity.js";
import { StatsPage, statsState, readStatsSettings } from "./stats.js";
import { TimelinePage } from "./timeline.js";
import { StatesPage } from "./states.js";
import { StatePage, deploymentState, terraformState } from "./state.js";
import { Answers, DatabasePage, DatabasesPage } from "./databases.js";
import { FreezeStrip } from "./freezes.js";
import { showKeys } from "./dialogs.js";

// Name, label, icon, address, and the key after g.
const NAV = [
  ["locks", "Locks", "lock", "#/locks", "l"],
  ["state", "State", "layers", "#/state", "s"],
  ["databases", "Databases", "database", "#/databases", "d"],
  ["activity", "Activity", "chart", "#/activity", "a"],
  ["stats", "Statistics", "sum", "#/stats", "n"],
];
const TIMELINE = [null, null, null, "#/activity?tab=timeline", "t"]; // not in the navigation
const THEMES = ["auto", "light", "dark"];

const app = document.getElementById("app");
const kept = {
  locks: locksState(),
  activity: { hours: 6, text: "" },
  stats: statsState(),
  state: { text: "", known: new Map(), scrollTop: 0 },
  databases: { text: "", answers: new Answers(), scrollTop: 0 },
};
let model = null, page = null, frame = null;

// ---- light and dark

function theme() {
  const value = localStorage.getItem("belay.theme");
  return THEMES.includes(value) ? value : "auto";
}

function setTheme(value) {
  localStorage.setItem("belay.theme", value);
  document.documentElement.dataset.theme = value;
  if (frame) {
    const name = value === "auto" ? "system" : value;
    frame.theme.setAttribute("aria-label", `Colours: ${name}`);
    frame.theme.title = `Colours: ${name}`;
    clear(frame.theme).append(icon({ auto: "auto", light: "sun", dark: "moon" }[value]));
    say(`Colours: ${name}`);
  }
}

function nextTheme() {
  setTheme(THEMES[(THEMES.indexOf(theme()) + 1) % THEMES.length]);
}

// ---- the frame

function makeFrame(freezes) {
  const { me } = model;
  frame = {
    link: h("div", { class: "link" }, h("i", { "aria-hidden": "true" }), h("span", {})),
    lost: h("div", { class: "lost", role: "status" }),
    freezes,
    alarms: new Alarms(model),
    main: h("main", { id: "main", tabindex: "-1" }),
    theme: h("button", { type: "button", class: "plainbutton", onclick: nextTheme }),
    nav: NAV.map(([name, label, picture, to]) => h("a", { href: to, "data-page": name }, icon(picture), h("span", {}, label))),
  };
  frame.lost.hidden = true;
  const freeze = me.role === "admin" ? h("button", { type: "button", class: "plainbutton", title: "Freeze keys", "aria-label": "Freeze keys", onclick: () => frame.freezes.begin() }, icon("freeze")) : null;
  const out = me.needs_token ? h("button", { type: "button", class: "plainbutton", title: "Log out", "aria-label": "Log out", onclick: logOut }, icon("out")) : null;
  const who = me.needs_token ? [h("span", { class: "name" }, me.name), h("span", { class: "role" }, me.role)] : [h("span", { class: "name all" }, "no authentication"), h("span", { class: "role all" }, "every client is an admin")];
  const off = me.locking_enabled === false ? h("div", { class: "lost", role: "alert" }, h("span", {}, "Locking is switched off: every lock is granted and protects nothing.")) : null;
  clear(app).append(
    h("aside", { class: "side" },
      h("a", { class: "brand", href: "#/locks", "aria-label": "belay, to the locks" }, h("img", { src: "ui/icon.svg", alt: "", width: "22", height: "22" }), h("span", {}, "belay")),
      h("nav", { "aria-label": "Pages" }, frame.nav),
      h("div", { class: "foot" }, frame.link,
        h("div", { class: "me" }, h("div", { class: "whoami" }, who), h("div", { class: "tools" },
          h("button", { type: "button", class: "plainbutton keys", title: "Keys", "aria-label": "Keys", onclick: showKeys }, icon("keyboard")), freeze, frame.theme, out)),
        h("p", { class: "version" }, `belay ${me.version}, on ${me.store}`))),
    h("div", { class: "content" }, off, frame.lost, frame.freezes.element, frame.main));
  setTheme(theme());
}

function closeFrame() {
  frame?.freezes.close();
  frame?.alarms.close();
}

function showLink() {
  const { link } = model, words = { live: "Live", connecting: "Connecting…", lost: "Not connected" };
  frame.link.dataset.link = link;
  frame.link.lastChild.textContent = model.isPolling ? "Every 10 s" : words[link];
  frame.link.title = model.isPolling ? "A proxy holds back the server's messages: the locks are fetched every 10 s" : "";
  frame.link.classList.toggle("slow", model.isPolling);
  frame.lost.hidden = link !== "lost";
  document.body.classList.toggle("is-lost", link === "lost");
  if (link === "lost" && !frame.lost.firstChild) {
    const seen = model.seenAt ? `This page is as of ${clock(model.seenAt)}. ` : "";
    frame.lost.append(icon("warn"), h("span", {}, `The connection to the server is lost. ${seen}Reconnecting.`),
      h("button", { type: "button", onclick: () => model.retry() }, "Try now"));
  } else if (link !== "lost") {
    clear(frame.lost);
  }
}

// ---- pages

function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** The page of an address, its entry in the navigation, and its title. */
function pageOf(name, rest, settings) {
  const parts = rest.map(decode), key = decode(rest.join("/"));
  if (name === "activity") {
    const Tab = readActivitySettings(kept.activity, settings) === "timeline" ? TimelinePage : ActivityPage;
    return [new Tab(model, kept.activity), "activity", "Activity"];
  }
  if (name === "stats") {
    readStatsSettings(kept.stats, settings);
    return [new StatsPage(model, kept.stats), "stats", "Statistics"];
  }
  if (name === "state" && parts.length >= 2) {
    return [new StatePage(model, deploymentState(parts[0], parts[1]), parts[2]), "state", `${parts[0]}/${parts[1]}`];
  }
  if (name === "terraform" && key) {
    return [new StatePage(model, terraformState(parts[0]), parts[1]), "state", parts[0]];
  }
  if (name === "state" || name === "terraform") {
    readSearch(kept.state, settings);
    return [new StatesPage(model, kept.state), "state", "State"];
  }
  if (name === "databases") {
    readSearch(kept.databases, settings);
    return key ? [new DatabasePage(model, key, kept.databases), "databases", key] : [new DatabasesPage(model, kept.databases), "databases", "Databases"];
  }
  if (name === "locks" && key) {
    return [new LockPage(model, key, Number(settings.get("event"))), "locks", key];
  }
  readLocksSettings(kept.locks, settings);
  return [new LocksPage(model, kept.locks), "locks", "Locks"];
}

function route() {
  if (!frame) {
    return;
  }
  const { path: [name, ...rest], settings } = readAddress();
  page?.close();
  const [made, current, title] = pageOf(name, rest, settings);
  page = made;
  frame.nav.forEach((link) => (link.dataset.page === current ? link.setAttribute("aria-current", "page") : link.removeAttribute("aria-current")));
  clear(frame.main).append(page.element);
  frame.alarms.name(title);
  frame.main.focus({ preventScroll: true });
}

// ---- logging in

/** Leave all pages, and ask for a token. */
function leave(why) {
  model?.stop();
  page?.close();
  closeFrame();
  page = frame = model = null;
  logIn(why);
}

async function logOut() {
  await session.logOut();
  leave("");
}

function logIn(why) {
  const token = h("input", { type: "password", id: "token", class: "mono", autocomplete: "current-password", spellcheck: "false", required: true });
  const problem = h("p", { class: "problem", role: "alert" }, why);
  const go = h("button", { type: "submit", class: "primary" }, "Log in");
  const submit = async (event) => {
    event.preventDefault();
    go.disabled = true;
    problem.textContent = "";
    try {
      await session.logIn(token.value.trim());
      await start();
    } catch (error) {
      problem.textContent = error.status === 401 ? "This server does not accept that token." : `${error.message}.`;
      go.disabled = false;
      token.focus();
    }
  };
  clear(app).append(h("main", { id: "main", class: "login" },
    h("form", { class: "ask", onsubmit: submit },
      h("h1", {}, h("img", { src: "ui/icon.svg", alt: "", width: "28", height: "28" }), "belay"),
      h("label", { for: "token" }, "Your token"), token, problem, go,
      h("p", { class: "muted" }, "This browser stays logged in for 12 hours, or until you log out. The administrator of the server creates a token:"),
      command("belay auth new --name me --role reader"))));
  document.title = "Log in – belay";
  document.querySelector('link[rel="icon"]').setAttribute("href", "ui/icon.svg");
  token.focus();
}

function cannotStart(error) {
  clear(app).append(h("main", { id: "main", class: "login" }, h("div", { class: "ask" }, h("h1", {}, "belay"),
    h("p", {}, error.status === 0 ? "The server does not answer. This page keeps trying." : `${error.message}.`),
    h("button", { type: "button", class: "primary", onclick: () => start() }, "Try now"))));
}

const ENDED = "Your session has ended, or this server no longer accepts your token.";
session.addEventListener("out", () => model?.me.needs_token && leave(""));
session.addEventListener("in", () => !model && start());

let retry = 0;
async function start() {
  clearTimeout(retry);
  model?.stop();
  const fresh = new Model();
  try {
    await fresh.start();
  } catch (error) {
    if (error.status === 401) {
      leave("");
    } else {
      cannotStart(error);
      retry = setTimeout(start, 3000);
    }
    return;
  }
  model = fresh;
  fresh.addEventListener("link", (event) => {
    if (frame) {
      showLink();
    }
    if (fresh.link === "live" && event.detail.wasLost) {
      say("Connected again");
    }
  });
  fresh.addEventListener("refused", () => leave(ENDED));
  await show(fresh);
}

async function show(fresh) {
  const freezes = new FreezeStrip(fresh);
  await Promise.race([freezes.ready, new Promise((resolve) => setTimeout(resolve, 1000))]); // a strip that comes later moves the page
  if (model !== fresh) {
    freezes.close();
    return;
  }
  closeFrame();
  makeFrame(freezes);
  showLink();
  route();
}

// ---- keys

let goes = -Infinity; // when `g` was pressed; not 0, which is recent on a page that was just opened
addEventListener("keydown", (event) => {
  const isTyping = event.target.closest?.("input, textarea, select") || document.querySelector("dialog[open]");
  if (isTyping || event.ctrlKey || event.metaKey || event.altKey || !page) {
    return;
  }
  const isGoing = performance.now() - goes < 1200;
  goes = -Infinity;
  const entry = isGoing ? [...NAV, TIMELINE].find((one) => one[4] === event.key) : null;
  if (entry) {
    location.hash = entry[3];
  } else if (event.key === "g") {
    goes = performance.now();
  } else if (event.key === "?") {
    showKeys();
  } else if (event.key === "t") {
    nextTheme();
  } else if (!page.key(event)) {
    return;
  }
  event.preventDefault();
});

document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  document.getElementById("main")?.focus();
});
addEventListener("hashchange", route);
document.documentElement.dataset.theme = theme();
document.documentElement.classList.toggle("tv", new URLSearchParams(location.search).has("tv")); // a display on a wall
start();
