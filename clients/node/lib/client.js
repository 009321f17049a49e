// A client of one or more `belay serve` processes that share a store. index.d.ts describes the public members.

import { randomUUID } from "node:crypto";
import { hostname, userInfo } from "node:os";
import { duration, now, sleep } from "./clock.js";
import { InvalidError, LockHeldError, LockLostError, UnknownOutcomeError, isFault } from "./errors.js";
import { EventStream } from "./events.js";
import { Lock, asLost, asyncDispose, readGrant } from "./lock.js";
import { Transport } from "./transport.js";

const SLICE_MS = 10000;
const SLICE_SEVERAL_MS = 2500; // with several servers: one that hangs must not cost the place
const SLICES_PER_TTL = 3; // a longer wait would leave little of the lease, which counts from before the request
const FULL_MS = 500; // the server keeps a place for three seconds
const LEAVE_MS = 2000;
const ANSWER_MIN_MS = 300;
const TIMEOUT_MS = 10000;

const text = (value) => value;
const beats = (value) => (typeof value === "boolean" ? undefined : duration(value, "heartbeat"));
const time = (value) => (value instanceof Date ? value.toISOString() : value);

/** The options of each call: the field of the body, and how its value is written. */
const ADOPT = {
  owner: ["locked_by", text], ownerName: ["locked_by_name", text], ttl: ["ttl_ms", duration], staleAfter: ["stale_after_ms", duration],
  heartbeat: ["heartbeat_ms", beats], profile: ["profile", text], metadata: ["metadata", text],
};
const ACQUIRE = {
  ...ADOPT, shared: ["shared", text], slots: ["slots", text], reentrant: ["reentrant", text], correlationId: ["correlation_id", text],
  ignoreFreeze: ["reason", text],
};
const FORCE = { lockId: ["lock_id", text], reason: ["reason", text], by: ["by", text] };
const CHECK = { lockId: ["lock_id", text], token: ["token", text], for: ["for_ms", duration] };
const RENEW = { lockId: ["lock_id", text], ttl: ["ttl_ms", duration] };
const RELEASE = { lockId: ["lock_id", text], outcome: ["outcome", text] };
const FREEZE = { reason: ["reason", text], from: ["from", time], until: ["until", time], for: ["for_ms", duration], by: ["by", text], id: ["id", text] };
const UNFREEZE = { reason: ["reason", text], by: ["by", text] };
const PARTS = ["profile", "component", "environment", "stack", "service"];

/** The fields of a body. An option that does not exist is an error: without it a typing mistake would lock something else. */
function fields(options, table, others = []) {
  const body = {};
  for (const [name, value] of Object.entries(options)) {
    if (!(name in table) && !others.includes(name)) {
      throw new InvalidError(`there is no option '${name}'; there are: ${[...Object.keys(table), ...others].join(", ")}`);
    }
    if (name in table && value !== undefined && value !== null) {
      const [field, write] = table[name];
      body[field] = write(value, name);
    }
  }
  return body;
}

function target(key) {
  if (typeof key === "string" && key !== "") {
    return { key };
  }
  if (Array.isArray(key) && key.length > 0) {
    return { keys: key };
  }
  if (typeof key === "object" && key !== null && !Array.isArray(key)) {
    return fields(key, Object.fromEntries(PARTS.map((part) => [part, [part, text]])));
  }
  throw new InvalidError(`key: ${JSON.stringify(key)} names no lock: write a text, a list of texts, or the parts of a key (${PARTS.join(", ")})`);
}

function pathOf(key, rest = "", query = {}) {
  if (typeof key !== "string" || key === "") {
    throw new InvalidError(`key: ${JSON.stringify(key)} is not a key: write a text that is not empty`);
  }
  return `/v1/locks/${encodeURIComponent(key)}${rest}${queryOf(query)}`;
}

function queryOf(values) {
  const given = Object.entries(values).filter(([, value]) => value !== undefined);
  return given.length === 0 ? "" : `?${new URLSearchParams(given)}`;
}

function processName() {
  let user;
  try {
    user = userInfo().username;
  } catch {
    user = process.getuid(); // of a container, without a name
  }
  return `${user}@${hostname()}:${process.pid}`;
}

export class Client {
  #transport;
  #owner;
  #ownerName;
  #count = 0;

  constructor({ owner, ownerName, timeout = TIMEOUT_MS, ...options } = {}) {
    fields(options, {}, ["url", "token", "tokenFile", "caFile"]);
    this.#transport = new Transport({ ...options, timeout: duration(timeout, "timeout") });
    this.#owner = owner;
    this.#ownerName = ownerName;
  }

  get url() {
    return this.#transport.url;
  }

  close() {
    this.#transport.close();
  }

  async acquire(key, { lockId = randomUUID(), wait = 0, heartbeat = true, signal, ...options } = {}) {
    const body = { ...target(key), ...this.#owned(options), lock_id: lockId, ...fields({ heartbeat, ...options }, ACQUIRE) };
    body.ignore_freeze = options.ignoreFreeze === undefined ? undefined : true;
    const { answer, sent } = await this.#ask(body, duration(wait, "wait"), signal);
    return this.#hold(answer, sent, heartbeat, lockId);
  }

  async withLock(key, options, work) {
    if (work === undefined) {
      return this.withLock(key, {}, options);
    }
    if (typeof work !== "function") {
      throw new InvalidError("withLock(key, options, work): work is not a function");
    }
    const lock = await this.acquire(key, options);
    let result;
    try {
      result = await work(lock, lock.signal);
    } catch (error) {
      if (lock.signal.aborted) {
        throw lock.signal.reason === error ? error : new LockLostError(lock.signal.reason.message, { ...lock.signal.reason, cause: error });
      }
      await lock.release({ outcome: "failed" }).catch(() => {}); // what the work threw says more
      throw error;
    }
    await lock.release();
    return result;
  }

  async adopt(key, lockId, { newLockId = randomUUID(), heartbeat = true, signal, ...options } = {}) {
    const owned = options.owner === undefined && this.#owner === undefined ? {} : this.#owned(options);
    const body = { ...target(key), ...owned, lock_id: lockId, new_lock_id: newLockId, ...fields({ heartbeat, ...options }, ADOPT) };
    let sent;
    const answer = await this.#change("/v1/adopt", body, { signal, onSend: () => { sent = now(); } });
    return this.#hold(answer, sent, heartbeat, newLockId);
  }

  renew(key, options) {
    return this.#change("/v1/renew", { ...target(key), ...fields(options, RENEW) });
  }

  release(key, options) {
    return this.#change("/v1/release", { ...target(key), ...fields(options, RELEASE) });
  }

  check(key, options) {
    return this.#change("/v1/check", { ...target(key), ...fields(options, CHECK) }, { isRead: true });
  }

  forceUnlock(key, options = {}) {
    return this.#change(pathOf(key), fields(options, FORCE), { method: "DELETE" });
  }

  status(key) {
    return this.#transport.call("GET", pathOf(key));
  }

  async *list({ prefix, status, stale, pageSize } = {}) {
    for (let cursor; cursor !== null;) {
      const page = await this.#transport.call("GET", `/v1/locks${queryOf({ prefix, status, stale, limit: pageSize, cursor })}`);
      yield* page.locks;
      cursor = page.next_cursor;
    }
  }

  async queue(key) {
    return (await this.#transport.call("GET", pathOf(key, "/queue"))).waiting;
  }

  async history(key, { limit } = {}) {
    return (await this.#transport.call("GET", pathOf(key, "/history", { limit }))).events;
  }

  events({ prefix, after, signal } = {}) {
    return new EventStream(this.#transport, { prefix, after, signal });
  }

  async freeze(pattern, { id = randomUUID(), ...options } = {}) {
    return (await this.#change("/v1/freezes", { pattern, id, ...fields(options, FREEZE) })).freezes[0];
  }

  async unfreeze(what, options = {}) {
    return (await this.#change(`/v1/freezes/${encodeURIComponent(what)}`, fields(options, UNFREEZE), { method: "DELETE" })).freezes;
  }

  async freezes() {
    return (await this.#transport.call("GET", "/v1/freezes")).freezes;
  }

  /** A request that names a lock, unless `method` is DELETE. */
  #change(path, body, { method = "POST", ...options } = {}) {
    return this.#transport.call(method, path, { body, ...options }).catch((error) => {
      if (error instanceof UnknownOutcomeError) {
        error.lockId = body.new_lock_id ?? body.lock_id;
      }
      throw method === "POST" ? asLost(error) : error;
    });
  }

  /** A new wait of an owner ends an earlier one that has no request open: by default, each acquisition has its own owner. */
  #owned({ owner = this.#owner, ownerName = this.#ownerName, reentrant = false }) {
    this.#count++;
    return { locked_by: owner ?? (reentrant ? processName() : `${processName()}/${this.#count}`), locked_by_name: ownerName };
  }

  async #hold(answer, sent, heartbeat, askedId) {
    const { locks, lockId, validFor } = readGrant(answer);
    if (!lockId || !locks[0]?.key) { // made by a proxy: whether the lock is held is unknown
      throw new UnknownOutcomeError(`no answer from ${this.url}: what came is not of a belay server`, { lockId: askedId });
    }
    if (now() >= sent + validFor) { // it protects nothing
      await this.#leave({ ...(answer.locks ? { keys: locks.map((lock) => lock.key) } : { key: answer.key }), lock_id: lockId });
      throw new LockLostError(`lock '${locks[0].key}' was lost: its lease was over before the answer arrived`, { lockId });
    }
    return new Lock(this.#transport, answer, sent, (heartbeat ?? true) === true ? Infinity : heartbeat === false ? 0 : duration(heartbeat, "heartbeat"));
  }

  /** Leaves the queue, and gives up a lock that was granted this very moment. */
  async #leave({ key, keys, profile, component, environment, stack, service, lock_id }) {
    const body = { key, keys, profile, component, environment, stack, service, lock_id, outcome: "failed" };
    for (let servers = this.#transport.serverCount; servers > 0; servers--) {
      try {
        await this.#transport.attempt("POST", "/v1/release", { body, timeout: LEAVE_MS });
        return;
      } catch (error) {
        if (!isFault(error)) {
          return;
        }
      }
    }
  }

  #sliceOf(body, left) {
    const most = this.#transport.serverCount === 1 ? SLICE_MS : SLICE_SEVERAL_MS;
    return Math.max(0, Math.floor(Math.min(most, (body.ttl_ms ?? Infinity) / SLICES_PER_TTL, left)));
  }

  /** Of an answer to an acquire: most of a lease that a server may have granted must be left at the next one. */
  #limitOf(body, faults) {
    const limit = this.#transport.limit(faults);
    return this.#transport.serverCount === 1 ? limit : Math.min(limit, Math.max((body.ttl_ms ?? Infinity) / SLICES_PER_TTL, ANSWER_MIN_MS));
  }

  /** Asks in slices under one lock id; the server keeps the place from one to the next. */
  async #ask(body, wait, signal) {
    const until = now() + wait;
    const state = { faults: 0, isAnswered: false, unknown: null };
    for (;;) {
      const sent = now();
      const slice = this.#sliceOf(body, until - sent);
      try {
        signal?.throwIfAborted();
        const answer = await this.#transport.attempt("POST", "/v1/acquire", {
          body: { ...body, wait_ms: slice }, timeout: slice + this.#limitOf(body, state.faults), signal,
        });
        return { answer, sent };
      } catch (error) {
        if (signal?.aborted) {
          await this.#leave(body);
          throw signal.reason;
        }
        await this.#afterRefusal(error, { body, sent, slice, wait, until, signal }, state);
      }
    }
  }

  /** Returns when to ask again, or throws what the acquisition ends with. */
  async #afterRefusal(error, { body, sent, slice, wait, until, signal }, state) {
    if (isFault(error)) {
      state.faults++;
      state.isAnswered ||= error.status !== undefined || error instanceof UnknownOutcomeError;
      state.unknown = error instanceof UnknownOutcomeError ? error : state.unknown;
      if (this.#transport.isHopeless(state.faults) && !(state.isAnswered && now() < until)) {
        const last = state.unknown ?? error; // not #leave(): a caller that repeats with the same id must find what there is
        last.lockId = body.lock_id;
        throw last;
      }
      await this.#transport.pause(state.faults, signal);
      return;
    }
    if (!(error instanceof LockHeldError) || error.serverCode === "superseded") {
      throw error;
    }
    Object.assign(state, { faults: 0, isAnswered: true, unknown: null });
    if (now() >= until) {
      if (wait > 0) {
        await this.#leave(body);
      }
      throw error;
    }
    const early = slice / 2 - (now() - sent); // the queue is full, so the server did not wait
    if (early > 0) {
      await sleep(Math.min(early, FULL_MS), signal);
    }
  }

  [asyncDispose]() {
    this.close();
    return Promise.resolve();
  }
}

/** A client of the server at `url`, or of several, by default of BELAY_STORE. Sends nothing yet. */
export function connect(url, options = {}) {
  return new Client(url === undefined ? options : { ...options, url });
}
