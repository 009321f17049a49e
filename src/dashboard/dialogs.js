// Dialogs that confirm an action, and the list of keyboard shortcuts.

import { h, clear, plain } from "./dom.js";
import { ask, askDocument, keyPath } from "./api.js";
import { compare, counts, showDiff, tally } from "./diff.js";
import { parse } from "./json.js";
import { holder, span, moment } from "./format.js";

function open(dialog) {
  document.body.append(dialog);
  dialog.showModal();
  return new Promise((resolve) => dialog.addEventListener("close", () => {
    dialog.remove();
    resolve(dialog.returnValue);
  }));
}

/** What an error says about the change: it may have happened, or it surely has not. */
function consequence(error) {
  return error.status === 504 || error.status === 0 ? `${error.message}. It may have happened: reload to find out.` : `${error.message}. Nothing was changed.`;
}

/**
 * A dialog with a form for one change; `send` makes the request. `explain` may return a text for an error. `opened` is
 * called with a function that shows a problem, or removes it, and checks `isReady` again. True once the change was made.
 */
async function askToChange({ title, body, label, tone = "primary", size = "", isReady, send, explain, opened }) {
  const problem = h("p", { class: "problem", role: "alert" });
  const go = h("button", { type: "submit", class: tone, disabled: true }, label);
  const check = () => {
    go.disabled = !isReady();
  };
  const tell = (text) => {
    problem.textContent = text;
    check();
  };
  const submit = async (event) => {
    event.preventDefault();
    if (go.disabled) {
      return;
    }
    go.disabled = true;
    problem.textContent = "";
    try {
      await send();
      dialog.close("done");
    } catch (error) {
      tell((await explain?.(error)) ?? consequence(error));
    }
  };
  const form = h("form", { class: "ask", oninput: check, onsubmit: submit }, h("h2", { id: "ask-title" }, title), body, problem,
    h("div", { class: "buttons" }, h("button", { type: "button", onclick: () => dialog.close("") }, "Cancel"), go));
  const dialog = h("dialog", { class: `modal ${size}`.trim(), "aria-labelledby": "ask-title" }, form);
  const closed = open(dialog);
  check();
  form.querySelector("input")?.focus();
  opened?.(tell);
  return (await closed) === "done";
}

/** True once the lock was ended. Shows the holder, and requires a reason and the typed key. */
export function forceUnlock(lock, model) {
  const { name, owner } = holder(lock);
  const reason = h("input", { type: "text", id: "reason", maxlength: "300", autocomplete: "off", required: true });
  const typed = h("input", { type: "text", id: "typed", class: "mono", autocomplete: "off", spellcheck: "false", required: true });
  return askToChange({
    title: "End the lock by force?", label: "End this lock", tone: "danger solid",
    body: [h("p", {}, "The holder does not have to agree. Under ", h("code", {}, "belay run"), " its command is stopped; any other work may continue."),
      h("dl", { class: "facts" },
        h("dt", {}, "Key"), h("dd", { class: "mono" }, lock.key),
        h("dt", {}, "Holder"), h("dd", {}, h("strong", {}, name), owner ? h("span", { class: "owner" }, ` ${owner}`) : null),
        h("dt", {}, "Since"), h("dd", {}, `${moment(Date.parse(lock.locked_at), model.now())}, ${span(model.now() - Date.parse(lock.locked_at))} ago`)),
      h("label", { for: "reason" }, "Reason, for the audit trail"), reason,
      h("label", { for: "typed" }, "Type the key to confirm"), typed],
    isReady: () => [lock.key, plain(lock.key)].includes(typed.value) && reason.value.trim() !== "",
    send: () => ask(keyPath(lock.key), { method: "DELETE", body: { lock_id: lock.lock_id, reason: reason.value.trim() } }),
    explain: (error) => (error.code === "not_holder" ? "Another client has the lock now. Nothing was changed." : undefined),
  });
}

/** True once the keys are frozen. */
export function beginFreeze() {
  const pattern = h("input", { type: "text", id: "pattern", class: "mono", maxlength: "512", autocomplete: "off", spellcheck: "false", required: true });
  const reason = h("input", { type: "text", id: "reason", maxlength: "300", autocomplete: "off", required: true });
  const hours = h("input", { type: "number", id: "hours", min: "0.1", max: "8760", step: "any", autocomplete: "off" });
  return askToChange({
    title: "Freeze keys?", label: "Freeze",
    body: [h("p", {}, "New acquisitions of matching keys are refused or wait. Clients that hold a lock keep it."),
      h("label", { for: "pattern" }, "Pattern; * matches anything"), pattern,
      h("label", { for: "reason" }, "Reason, shown to all clients that it stops"), reason,
      h("label", { for: "hours" }, "Hours; empty: until it is ended"), hours],
    isReady: () => pattern.value.trim() !== "" && reason.value.trim() !== "" && hours.validity.valid,
    send: () => ask("v1/freezes", { method: "POST", body: { pattern: pattern.value.trim(), reason: reason.value.trim(),
      ...(hours.value ? { for_ms: Math.round(Number(hours.value) * 3600000) } : {}) } }),
  });
}

/** True once the freeze was ended. */
export function endFreeze(freeze) {
  const reason = h("input", { type: "text", id: "reason", maxlength: "300", autocomplete: "off" });
  return askToChange({
    title: "End the freeze?", label: "End the freeze",
    body: [h("p", {}, "Clients that wait for a lock that matches ", h("code", {}, freeze.pattern), " acquire it, in the order of the queue."),
      h("label", { for: "reason" }, "Reason, for the audit trail"), reason],
    isReady: () => true,
    send: () => ask(`v1/freezes/${encodeURIComponent(freeze.id)}`, { method: "DELETE", body: reason.value.trim() ? { reason: reason.value.trim() } : {} }),
  });
}

/** The current version for the comparison; null if it cannot be read, which does not prevent a restore. */
async function present(source) {
  try {
    const { text, etag } = await askDocument(source.present);
    return { document: parse(text), etag };
  } catch (error) {
    if (error.status === 404 || error.code === "bad_content") {
      return { document: null, etag: null };
    }
    throw error;
  }
}

/** True once the version was restored. Shows the changes, and requires the typed name of the state. */
export function restoreVersion({ source, version, load, model }) {
  const typed = h("input", { type: "text", id: "typed", class: "mono", autocomplete: "off", spellcheck: "false", required: true });
  const sum = h("p", { class: "sum" }, "Comparing…");
  const changes = h("div", { class: "diff boxed", tabindex: "0", role: "region", "aria-label": "What will change" });
  let seen = null;

  /** Shows the changes; returns why that is not possible. */
  async function look() {
    try {
      const [now, old] = await Promise.all([present(source), load()]);
      const found = compare(now.document, old, source.isTerraform);
      const n = counts(found);
      seen = now;
      clear(sum).append(now.document ? "What will change: " : "The current version cannot be read. This version has: ", n.added + n.changed + n.removed === 0 ? "nothing" : tally(found));
      showDiff(changes, found);
      return "";
    } catch (error) {
      clear(sum);
      return `${error.message}. The changes cannot be shown, so nothing can be restored.`;
    }
  }

  async function explain(error) {
    if (error.status === 423 || error.code === "lock_held") {
      return `${error.lock ? holder(error.lock).name : "Another client"} holds the state's lock. Nothing was changed.`;
    }
    return error.status === 412 ? (await look()) || "Another client has saved the state. Nothing was changed. The changes above are up to date." : undefined;
  }

  return askToChange({
    title: "Restore this version?", label: "Restore", tone: "danger solid", size: "wide-modal",
    body: [h("dl", { class: "facts" },
      h("dt", {}, "State"), h("dd", { class: "mono" }, source.name),
      h("dt", {}, "Version"), h("dd", {}, `${moment(Date.parse(version.timestamp), model.now())} `, h("span", { class: "owner mono" }, version.name))),
    sum, changes,
    h("p", { class: "muted" }, "It is saved as a new version, under the state's lock and with your name. All versions are kept. This changes the recorded state only, not what is deployed."),
    h("label", { for: "typed" }, "Type ", h("code", {}, source.name), " to confirm"), typed],
    isReady: () => seen !== null && typed.value === source.name,
    send: () => ask(source.restore, { method: "POST", body: { version: version.name }, match: seen.etag }),
    explain,
    opened: async (tell) => tell(await look()),
  });
}

const KEYS = [
  ["/", "search"], ["j  k  ↓  ↑", "next and previous"], ["Enter", "open"], ["Esc", "back; clear the search"],
  ["u", "force unlock, on a lock's page"], ["v  r", "verify and restore, on a state's page"], ["s", "check health, on databases"],
  ["←  →  Enter", "along a lane of the timeline, to the event"], ["g l  g a  g t", "locks, activity, timeline"], ["g s  g d  g n", "state, databases, statistics"], ["t", "light, dark or system colours"], ["?", "this list"],
];

export function showKeys() {
  if (document.querySelector("dialog[open]")) {
    return;
  }
  const dialog = h("dialog", { class: "modal", "aria-labelledby": "keys-title" },
    h("form", { method: "dialog", class: "ask" }, h("h2", { id: "keys-title" }, "Keys"),
      h("dl", { class: "facts keys" }, KEYS.map(([key, does]) => [h("dt", {}, h("kbd", {}, key)), h("dd", {}, does)])),
      h("div", { class: "buttons" }, h("button", { type: "button", onclick: () => dialog.close() }, "Close"))));
  open(dialog);
}
