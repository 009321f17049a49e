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

/** True once the lock was ended. Shows the holder, and requires a reason and the typed key. */
export async function forceUnlock(lock, model) {
  const { name, owner } = holder(lock);
  const reason = h("input", { type: "text", id: "reason", maxlength: "300", autocomplete: "off", required: true });
  const typed = h("input", { type: "text", id: "typed", class: "mono", autocomplete: "off", spellcheck: "false", required: true });
  const problem = h("p", { class: "problem", role: "alert" });
  const go = h("button", { type: "submit", class: "danger solid", disabled: true }, "End this lock");
  const check = () => {
    go.disabled = ![lock.key, plain(lock.key)].includes(typed.value) || reason.value.trim() === "";
  };
  const form = h("form", { class: "ask", oninput: check, onsubmit: (event) => submit(event) },
    h("h2", { id: "ask-title" }, "End the lock by force?"),
    h("p", {}, "The holder does not have to agree. Under ", h("code", {}, "belay run"), " its command is stopped; any other work may continue."),
    h("dl", { class: "facts" },
      h("dt", {}, "Key"), h("dd", { class: "mono" }, lock.key),
      h("dt", {}, "Holder"), h("dd", {}, h("strong", {}, name), owner ? h("span", { class: "owner" }, ` ${owner}`) : null),
      h("dt", {}, "Since"), h("dd", {}, `${moment(Date.parse(lock.locked_at), model.now())}, ${span(model.now() - Date.parse(lock.locked_at))} ago`)),
    h("label", { for: "reason" }, "Reason, for the audit trail"), reason,
    h("label", { for: "typed" }, "Type the key to confirm"), typed,
    problem,
    h("div", { class: "buttons" }, h("button", { type: "button", onclick: () => dialog.close("") }, "Cancel"), go));
  const dialog = h("dialog", { class: "modal", "aria-labelledby": "ask-title" }, form);

  async function submit(event) {
    event.preventDefault();
    if (go.disabled) {
      return;
    }
    go.disabled = true;
    problem.textContent = "";
    try {
      await ask(keyPath(lock.key), { method: "DELETE", body: { lock_id: lock.lock_id, reason: reason.value.trim() } });
      dialog.close("done");
    } catch (error) {
      problem.textContent = error.code === "not_holder" ? "Another client has the lock now. Nothing was changed." : `${error.message}. Nothing was changed.`;
      if (error.status === 504 || error.status === 0) {
        problem.textContent = `${error.message}. It may have happened: reload to find out.`;
      }
      check();
    }
  }

  const closed = open(dialog);
  reason.focus();
  return (await closed) === "done";
}

/** A dialog with a form; `send` makes the request. True once it was done. */
async function askToChange({ title, about, fields, label, isReady, send }) {
  const problem = h("p", { class: "problem", role: "alert" });
  const go = h("button", { type: "submit", class: "primary", disabled: true }, label);
  const check = () => {
    go.disabled = !isReady();
  };
  const submit = async (event) => {
    event.preventDefault();
    go.disabled = true;
    problem.textContent = "";
    try {
      await send();
      dialog.close("done");
    } catch (error) {
      problem.textContent = error.status === 504 || error.status === 0 ? `${error.message}. It may have happened: reload to find out.` : `${error.message}. Nothing was changed.`;
      check();
    }
  };
  const form = h("form", { class: "ask", oninput: check, onsubmit: submit }, h("h2", { id: "ask-title" }, title), h("p", {}, about), fields, problem,
    h("div", { class: "buttons" }, h("button", { type: "button", onclick: () => dialog.close("") }, "Cancel"), go));
  const dialog = h("dialog", { class: "modal", "aria-labelledby": "ask-title" }, form);
  const closed = open(dialog);
  check();
  form.querySelector("input")?.focus();
  return (await closed) === "done";
}

/** True once the keys are frozen. */
export function beginFreeze() {
  const pattern = h("input", { type: "text", id: "pattern", class: "mono", maxlength: "512", autocomplete: "off", spellcheck: "false", required: true });
  const reason = h("input", { type: "text", id: "reason", maxlength: "300", autocomplete: "off", required: true });
  const hours = h("input", { type: "number", id: "hours", min: "0.1", max: "8760", step: "any", autocomplete: "off" });
  return askToChange({
    title: "Freeze keys?", label: "Freeze",
    about: "New acquisitions of matching keys are refused or wait. Clients that hold a lock keep it.",
    fields: [h("label", { for: "pattern" }, "Pattern; * matches anything"), pattern,
      h("label", { for: "reason" }, "Reason, shown to everyone whom it stops"), reason,
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
    about: ["Clients that wait for a lock that matches ", h("code", {}, freeze.pattern), " acquire it, in the order of the queue."],
    fields: [h("label", { for: "reason" }, "Reason, for the audit trail"), reason],
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
export async function restoreVersion({ source, version, load, model }) {
  const typed = h("input", { type: "text", id: "typed", class: "mono", autocomplete: "off", spellcheck: "false", required: true });
  const problem = h("p", { class: "problem", role: "alert" });
  const go = h("button", { type: "submit", class: "danger solid", disabled: true }, "Restore");
  const sum = h("p", { class: "sum" }, "Comparing…");
  const changes = h("div", { class: "diff boxed", tabindex: "0", role: "region", "aria-label": "What will change" });
  let seen = null;
  const check = () => {
    go.disabled = !seen || typed.value !== source.name;
  };
  const form = h("form", { class: "ask", oninput: check, onsubmit: (event) => submit(event) },
    h("h2", { id: "ask-title" }, "Restore this version?"),
    h("dl", { class: "facts" },
      h("dt", {}, "State"), h("dd", { class: "mono" }, source.name),
      h("dt", {}, "Version"), h("dd", {}, `${moment(Date.parse(version.timestamp), model.now())} `, h("span", { class: "owner mono" }, version.name))),
    sum, changes,
    h("p", { class: "muted" }, "It is saved as a new version, under the state's lock and with your name. All versions are kept. This changes the recorded state only, not what is deployed."),
    h("label", { for: "typed" }, "Type ", h("code", {}, source.name), " to confirm"), typed, problem,
    h("div", { class: "buttons" }, h("button", { type: "button", onclick: () => dialog.close("") }, "Cancel"), go));
  const dialog = h("dialog", { class: "modal wide-modal", "aria-labelledby": "ask-title" }, form);

  async function look() {
    try {
      const [now, old] = await Promise.all([present(source), load()]);
      const found = compare(now.document, old, source.isTerraform);
      const n = counts(found);
      seen = now;
      clear(sum).append(now.document ? "What will change: " : "The current version cannot be read. This version has: ", n.added + n.changed + n.removed === 0 ? "nothing" : tally(found));
      showDiff(changes, found);
    } catch (error) {
      clear(sum);
      problem.textContent = `${error.message}. The changes cannot be shown, so nothing can be restored.`;
    }
    check();
  }

  async function submit(event) {
    event.preventDefault();
    if (go.disabled) {
      return;
    }
    go.disabled = true;
    problem.textContent = "";
    try {
      await ask(source.restore, { method: "POST", body: { version: version.name }, match: seen.etag });
      dialog.close("done");
      return;
    } catch (error) {
      problem.textContent = error.status === 504 || error.status === 0 ? `${error.message}. It may have happened: reload to find out.` : `${error.message}. Nothing was changed.`;
      if (error.status === 412) {
        problem.textContent = "Another client has saved the state. Nothing was changed. The changes above are up to date.";
        await look();
      }
      if (error.status === 423 || error.code === "lock_held") {
        problem.textContent = `${error.lock ? holder(error.lock).name : "Another client"} holds the state's lock. Nothing was changed.`;
      }
    }
    check();
  }

  const closed = open(dialog);
  typed.focus();
  look();
  return (await closed) === "done";
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
