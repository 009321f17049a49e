// Requests to the server. Addresses are relative, so that a proxy may add a path prefix.
//
// The page shows the token once and gets a cookie that no script can read; other tabs have it, too. Requests that change
// something carry a header that pages of other sites cannot send. The tab in which the token was typed keeps it in
// memory, to log in again after a restart of the server.

const COOKIE = { credentials: "same-origin", cache: "no-store", redirect: "error" };
const HEADERS = { "Belay-Session": "1" };

export class ApiError extends Error {
  constructor(status, code, message, lock) {
    super(message);
    this.status = status;
    this.code = code;
    this.lock = lock;
  }
}

async function failure(answer) {
  let error = {};
  try {
    error = (await answer.json()).error ?? {};
  } catch {
    // perhaps a proxy's error page
  }
  return new ApiError(answer.status, error.code ?? "http", error.message ?? `the server answered ${answer.status}`, error.lock);
}

async function reach(path, options) {
  try {
    return await fetch(path, { ...COOKIE, ...options, headers: { ...HEADERS, ...options.headers } });
  } catch (error) {
    if (error.name === "AbortError") {
      throw error;
    }
    throw new ApiError(0, "unreachable", "the server does not answer");
  }
}

/** The session may have ended with the server: once more, after a new log-in. */
async function fetchAgain(path, options) {
  let answer = await reach(path, options);
  if (answer.status === 401 && (await session.renew())) {
    answer = await reach(path, options);
  }
  if (!answer.ok) {
    throw await failure(answer);
  }
  return answer;
}

async function send(path, { method = "GET", body, signal, match } = {}) {
  return fetchAgain(path, {
    method,
    signal,
    headers: { ...(body ? { "Content-Type": "application/json" } : {}), ...(match ? { "If-Match": match } : {}) },
    body: body ? JSON.stringify(body) : undefined,
  });
}

class Session extends EventTarget {
  #token = null; // as it was typed in this tab
  #renewing = null;
  #tabs = new BroadcastChannel("belay.session");

  constructor() {
    super();
    this.#tabs.addEventListener("message", ({ data }) => {
      if (data === "out") {
        this.#token = null;
      }
      this.dispatchEvent(new Event(data)); // "in" or "out"
    });
  }

  /** Exchange the token for a cookie. */
  async logIn(token) {
    const answer = await reach("v1/session", { method: "POST", headers: { Authorization: `Bearer ${token}` } });
    if (!answer.ok) {
      throw await failure(answer);
    }
    this.#token = token;
    this.#tabs.postMessage("in");
  }

  /** In all tabs. If the server does not answer, the session ends there by its time. */
  async logOut() {
    this.#token = null;
    this.#tabs.postMessage("out");
    await reach("v1/session", { method: "DELETE" }).catch(() => {});
  }

  /** Whether there is a new session; one attempt for all requests that fail at the same time. */
  async renew() {
    this.#renewing ??= this.#logInAgain().finally(() => {
      this.#renewing = null;
    });
    return this.#renewing;
  }

  async #logInAgain() {
    try {
      const token = this.#token;
      if (token) {
        await this.logIn(token);
      }
      return Boolean(token);
    } catch (error) {
      this.#token = error.status === 401 ? null : this.#token;
      return false;
    }
  }
}

export const session = new Session();

export async function ask(path, options) {
  return (await send(path, options)).json();
}

/** A document as it is stored, with its ETag. */
export async function askDocument(path, options) {
  const answer = await send(path, options);
  return { text: await answer.text(), etag: answer.headers.get("ETag") };
}

export function keyPath(key, rest = "") {
  return `v1/locks/${encodeURIComponent(key)}${rest}`;
}

/** Every page of the list, as it arrives. */
export async function listAll(query, onPage, signal) {
  let cursor = null;
  do {
    const more = new URLSearchParams({ ...query, limit: "1000", ...(cursor ? { cursor } : {}) });
    const page = await ask(`v1/locks?${more}`, { signal });
    onPage(page);
    cursor = page.next_cursor;
  } while (cursor);
}

/** Reads server-sent events; EventSource cannot tell an ended session from a lost connection. */
export async function* stream(path, lastId, signal) {
  const answer = await fetchAgain(path, { headers: { Accept: "text/event-stream", ...(lastId ? { "Last-Event-ID": lastId } : {}) }, signal });
  const reader = answer.body.getReader();
  const decoder = new TextDecoder();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) {
      return;
    }
    text += decoder.decode(value, { stream: true });
    let end;
    while ((end = text.indexOf("\n\n")) >= 0) {
      yield parse(text.slice(0, end));
      text = text.slice(end + 2);
    }
  }
}

function parse(block) {
  const event = { id: null, name: "message", data: "" };
  for (const line of block.split("\n")) {
    const colon = line.indexOf(":");
    const field = line.slice(0, colon), value = line.slice(colon + 1).replace(/^ /, "");
    if (field === "id") {
      event.id = value;
    } else if (field === "event") {
      event.name = value;
    } else if (field === "data") {
      event.data += value;
    }
  }
  return event;
}
