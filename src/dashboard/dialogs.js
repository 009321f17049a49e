// What asks before it does something, and the list of keys.

import { h } from "./dom.js";
import { ask, keyPath } from "./api.js";
import { holder, span, moment } from "./format.js";

function open(dialog) {
  document.body.append(dialog);
  dialog.showModal();
  return new Promise((resolve) => dialog.addEventListener("close", () => {
    dialog.remove();
    resolve(dialog.returnValue);
  }));
}

/** True once the lock was ended. The holder is shown, a reason asked, and the key typed. */
export async function forceUnlock(lock, model) {
  const { name, owner } = holder(lock);
  const reason = h("input", { type: "text", id: "reason", maxlength: "300", autocomplete: "off", required: true });
  const typed = h("input", { type: "text", id: "typed", class: "mono", autocomplete: "off", spellcheck: "false", required: true });
  const problem = h("p", { class: "problem", role: "alert" });
  const go = h("button", { type: "submit", class: "danger solid", disabled: true }, "End this lock");
  const check = () => {
    go.disabled = typed.value !== lock.key || reason.value.trim() === "";
  };
  const form = h("form", { class: "ask", oninput: check, onsubmit: (event) => submit(event) },
    h("h2", { id: "ask-title" }, "End somebody else's lock?"),
    h("p", {}, "The holder is not asked. Under ", h("code", {}, "belay run"), " its command is ended; anything else may still be at work."),
    h("dl", { class: "facts" },
      h("dt", {}, "Key"), h("dd", { class: "mono" }, lock.key),
      h("dt", {}, "Holder"), h("dd", {}, h("strong", {}, name), owner ? h("span", { class: "owner" }, ` ${owner}`) : null),
      h("dt", {}, "Since"), h("dd", {}, `${moment(Date.parse(lock.locked_at), model.now())}, ${span(model.now() - Date.parse(lock.locked_at))} ago`)),
    h("label", { for: "reason" }, "Why? It goes into the audit trail."), reason,
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
      problem.textContent = error.code === "not_holder" ? "Another has taken the lock in the meantime. Nothing was changed." : `${error.message}. Nothing was changed.`;
      if (error.status === 504 || error.status === 0) {
        problem.textContent = `${error.message}. It may have happened: look again.`;
      }
      check();
    }
  }

  const closed = open(dialog);
  reason.focus();
  return (await closed) === "done";
}

const KEYS = [
  ["/", "search"], ["j  k  ↓  ↑", "next and previous lock"], ["Enter", "open the lock"], ["Esc", "back; clear the search"],
  ["u", "force unlock, on a lock's page"], ["g l", "locks"], ["g a", "activity"], ["t", "light, dark or as the system"], ["?", "this list"],
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
