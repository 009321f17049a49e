// A lock that is held: its lease, its heartbeat, and how the holder learns that it is over.
//
//     #beatTimer   renews when a third of the validity has passed, and after a fault until the deadline
//     #endTimer    the deadline; waits for no request, so that no slow server keeps the holder from learning of a loss
//     #watch()     a request that the server answers as soon as another client ends the lock
//
// A process that was paused may run other code before its timers: isHeld, signal.aborted and every method compare the clock
// with the deadline first. index.d.ts describes the public members.

import { duration, now, sleep } from "./clock.js";
import { LockLostError, NotFoundError, UnknownOutcomeError } from "./errors.js";

const TIMER_MAX_MS = 24 * 3600 * 1000; // setTimeout() takes no more than 2^31
const RENEW_MS = 10000;
const RENEW_MIN_MS = 300;
const SHORTENED = 0.9; // of a ttl that the server may or may not have taken
const WATCH_AFTER_MS = 100; // most of what a lock protects is over by then
const WATCH_MS = 60000;
const WATCH_SEVERAL_MS = 4000; // with several servers: one that hangs must not hide a loss for long
const WATCH_AGAIN_MS = 1000;
const RELEASE_TRIES = 6; // some three seconds, the time of a restart

export const asyncDispose = Symbol.asyncDispose ?? Symbol.for("nodejs.asyncDispose");

/** A lock of which there is no record is not ours either. */
export function asLost(error) {
  return error instanceof NotFoundError ? new LockLostError(error.message, { ...error, cause: error }) : error;
}

/** The locks of an answer, and how long they may be relied on from before the request was sent. */
export function readGrant(answer) {
  const locks = answer.locks?.length > 0 ? answer.locks : [answer];
  // A server that does not say it grants no ttl of less than twice its store's margin.
  const valid = locks.map((lock) => lock?.valid_for_ms ?? Math.max(0, (lock?.expires_in_ms ?? 0) - (lock?.ttl_ms ?? 0) / 2));
  return { locks, lockId: answer.lock_id, validFor: Math.min(...valid) || 0 }; // not NaN
}

export class Lock {
  #transport;
  #target; // names the lock in a request
  #heartbeat;
  #sent = -Infinity;
  #deadline = -Infinity;
  #beatAt = Infinity;
  #faults = 0;
  #beatTimer;
  #endTimer;
  #isEnding = false;
  #releasing = null;
  #lost = null;
  #loss = new AbortController();
  #background = new AbortController();

  /** Use Client.acquire() or adopt(). `heartbeat` is in milliseconds, Infinity for the client's choice, or 0 for none. */
  constructor(transport, answer, sent, heartbeat) {
    const { locks, lockId } = readGrant(answer);
    this.keys = locks.map((lock) => lock.key);
    this.key = this.keys[0];
    this.lockId = lockId;
    this.token = locks[0].token;
    this.tokens = Object.fromEntries(locks.map((lock) => [lock.key, lock.token]));
    this.#transport = transport;
    this.#heartbeat = heartbeat;
    this.#target = { ...(answer.locks ? { keys: this.keys } : { key: this.key }), lock_id: lockId };
    this.#makeSignal();
    this.#extend(answer, sent);
    this.#watch();
  }

  get validFor() {
    return this.isHeld ? Math.max(0, Math.floor(this.#deadline - now())) : 0;
  }

  get isHeld() {
    if (this.#lost === null && !this.#isEnding && now() >= this.#deadline) {
      this.#lose("the lease could not be renewed in time");
    }
    return this.#lost === null && !this.#isEnding;
  }

  get signal() {
    return this.#loss.signal;
  }

  throwIfLost() {
    if (!this.isHeld) {
      throw this.#lost ?? new LockLostError(`lock '${this.key}' was released or handed over`, { lockId: this.lockId });
    }
  }

  async check({ for: least } = {}) {
    this.throwIfLost();
    const body = { ...this.#target, ...(least === undefined ? {} : { for_ms: duration(least, "for") }) };
    try {
      await this.#transport.call("POST", "/v1/check", { body, isRead: true });
    } catch (error) {
      throw least === undefined ? this.#heed(error) : asLost(error);
    }
    this.throwIfLost();
    return this.validFor;
  }

  async renew({ ttl } = {}) {
    this.throwIfLost();
    const body = { ...this.#target, ...(ttl === undefined ? {} : { ttl_ms: duration(ttl, "ttl") }) };
    let sent = now();
    if (ttl !== undefined && sent + SHORTENED * body.ttl_ms < this.#deadline) { // the answer may be lost, and the lease shorter all the same
      this.#count(sent, SHORTENED * body.ttl_ms);
    }
    try {
      this.#extend(await this.#transport.call("POST", "/v1/renew", { body, onSend: () => { sent = now(); } }), sent);
    } catch (error) {
      throw this.#heed(error);
    }
    this.throwIfLost();
    return this.validFor;
  }

  release({ outcome = "completed" } = {}) {
    this.#releasing ??= this.#release(outcome).catch((error) => {
      this.#releasing = null; // it may be tried again
      throw error;
    });
    return this.#releasing;
  }

  detach() {
    this.throwIfLost();
    this.#end();
    return this.lockId;
  }

  [asyncDispose]() {
    return this.release();
  }

  async #release(outcome) {
    if (!this.isHeld && this.#lost !== null) {
      throw this.#lost;
    }
    this.#end();
    try {
      await this.#transport.call("POST", "/v1/release", { body: { ...this.#target, outcome }, tries: RELEASE_TRIES });
    } catch (error) {
      if (!error.wasUnknown || !(error instanceof LockLostError || error instanceof NotFoundError)) {
        throw asLost(error);
      }
      if (error.serverCode === "not_holder") { // perhaps released, and the next client has it already
        throw new UnknownOutcomeError(`lock '${this.key}': whether it was released is not known`, { lockId: this.lockId, cause: error });
      }
    }
  }

  #end() {
    this.#isEnding = true;
    this.#background.abort();
    clearTimeout(this.#beatTimer);
    clearTimeout(this.#endTimer);
  }

  #lose(why, cause) {
    if (this.#lost !== null || this.#isEnding) {
      return;
    }
    this.#end();
    this.#lost = new LockLostError(`lock '${this.key}' was lost: ${why}`, { lockId: this.lockId, lock: cause?.lock, serverCode: cause?.serverCode, cause });
    this.#loss.abort(this.#lost);
    const body = { ...this.#target, reason: why };
    this.#transport.call("POST", "/v1/lost", { body, unref: true }).catch(() => {}); // for the history only
  }

  /** What an error means for the lock; returns the error to throw. */
  #heed(error) {
    const meant = asLost(error);
    if (meant instanceof LockLostError) {
      this.#lose(meant.message, meant);
    }
    return this.#lost ?? meant;
  }

  /** The signal reads the clock too: after a pause it must not wait for the timer. */
  #makeSignal() {
    const { signal } = this.#loss;
    Object.defineProperties(signal, {
      aborted: { get: () => !this.isHeld && this.#lost !== null },
      throwIfAborted: { value: () => { if (signal.aborted) { throw this.#lost; } } },
    });
  }

  /** Answers count in the order in which their requests were sent. */
  #extend(answer, sent) {
    if (!this.#isEnding && sent >= this.#sent) {
      const { locks, validFor } = readGrant(answer);
      this.info = locks[0];
      this.#count(sent, validFor);
    }
  }

  #count(sent, validFor) {
    this.#sent = sent;
    this.#deadline = sent + validFor;
    this.#beatAt = this.#heartbeat === 0 ? Infinity : sent + Math.min(this.#heartbeat, validFor / 3);
    this.#arm();
  }

  #arm() {
    const wait = (until) => Math.min(Math.max(Math.ceil(until - now()), 0), TIMER_MAX_MS);
    clearTimeout(this.#beatTimer);
    clearTimeout(this.#endTimer);
    this.#endTimer = setTimeout(() => this.isHeld && this.#arm(), wait(this.#deadline)).unref();
    if (this.#beatAt !== Infinity) {
      this.#beatTimer = setTimeout(() => this.#beat(), wait(this.#beatAt)).unref();
    }
  }

  async #beat() {
    if (!this.isHeld) {
      return;
    }
    const sent = now();
    // A server that hangs takes only a part of what is left of the lease, so that the next one can be asked in time.
    const n = this.#transport.serverCount;
    const part = n === 1 ? (this.info.ttl_ms ?? Infinity) / 3 : (this.#deadline - sent) / 2 / n;
    const timeout = Math.min(Math.max(part, RENEW_MIN_MS), RENEW_MS, this.#transport.timeout);
    this.#beatAt = Infinity; // no other one meanwhile
    try {
      this.#extend(await this.#transport.attempt("POST", "/v1/renew", { body: this.#target, timeout, signal: this.#background.signal, unref: true }), sent);
      this.#faults = 0;
      if (this.#beatAt === Infinity && this.isHeld) { // a later renewal counts, which was under way meanwhile
        this.#count(this.#sent, this.#deadline - this.#sent);
      }
    } catch (error) {
      this.#heed(error);
      if (this.isHeld) {
        this.#faults++;
        await this.#transport.pause(this.#faults, this.#background.signal, true, (this.info.ttl_ms ?? Infinity) / 10);
        this.#beatAt = Math.min(this.#beatAt, now());
        if (this.isHeld) {
          this.#arm();
        }
      }
    }
  }

  async #watch() {
    const { signal } = this.#background;
    await sleep(WATCH_AFTER_MS, signal, true);
    while (this.isHeld) {
      const until = this.#beatAt === Infinity ? this.#deadline : this.#beatAt;
      const wait = Math.ceil(Math.min(Math.max(until - now(), 1), this.#transport.serverCount === 1 ? WATCH_MS : WATCH_SEVERAL_MS));
      const body = { ...this.#target, wait_ms: wait };
      const began = now();
      try {
        await this.#transport.attempt("POST", "/v1/held", { body, timeout: wait + this.#transport.limit(0), signal, unref: true });
      } catch (error) {
        if (signal.aborted) {
          return;
        }
        this.#heed(error);
        await sleep(WATCH_AGAIN_MS, signal, true);
      }
      if (now() - began < wait / 2) {
        await sleep(Math.min(wait, WATCH_AGAIN_MS), signal, true); // the server does not wait
      }
    }
  }
}
