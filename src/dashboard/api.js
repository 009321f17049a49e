// Requests to the server. Addresses are relative, so that a proxy may add a path prefix.
//
// The token is kept in sessionStorage: it ends with this tab, no other tab or site can send it, and a
// request that changes anything carries it in a header that only this script sets. The browser would send a
// cookie on its own, which permits cross-site request forgery.

const NAME = "belay.token";

export class ApiError extends Error {
  constructor(status, code, message, lock) {
    super(message);
    this.status = status;
    this.code = code;
    this.lock = lock;
  }
}

export const session = {
  get token() {
    return sessionStorage.getItem(NAME);
  },
  set token(value) {
    if (value) {
      sessionStorage.setItem(NAME, value);
    } else {
      sessionStorage.removeItem(NAME);
    }
  },
};

export function headers(more) {
  return session.token ? { ...more, Authorization: `Bearer ${session.token}` } : { ...more };
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

async function send(path, { method = "GET", body, signal, match } = {}) {
  let answer;
  try {
    answer = await fetch(path, {
      method,
      signal,
      headers: headers({ ...(body ? { "Content-Type": "application/json" } : {}), ...(match ? { "If-Match": match } : {}) }),
      body: body ? JSON.stringify(body) : undefined,
      credentials: "omit",
      cache: "no-store",
      redirect: "error",
    });
  } catch (error) {
    if (error.name === "AbortError") {
      throw error;
    }
    throw new ApiError(0, "unreachable", "the server does not answer");
  }
  if (!answer.ok) {
    throw await failure(answer);
  }
  return answer;
}

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

/** Reads server-sent events; EventSource cannot send the token in a header. */
export async function* stream(path, lastId, signal) {
  const answer = await fetch(path, {
    headers: headers({ Accept: "text/event-stream", ...(lastId ? { "Last-Event-ID": lastId } : {}) }),
    signal,
    credentials: "omit",
    cache: "no-store",
    redirect: "error",
  });
  if (!answer.ok) {
    throw await failure(answer);
  }
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
