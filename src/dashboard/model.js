// The locks that this page knows, updated by the server's event stream.

import { ask, listAll, stream, ApiError } from "./api.js";

const WATCHDOG_MS = 45000; // the server sends something every 15 s
const RETRY_MS = [500, 1000, 2000, 4000, 8000, 15000];
const NO_LOG_MS = 30000; // poll interval for a store without events
const SILENT_MS = 5000; // a stream without its first message for so long is held back by a proxy
const SILENT_POLL_MS = 10000;
const WAKE_MS = 2500; // timeout after a sleep of the machine: the connection may be dead
const PULSE_MS = 5000, SLEPT_MS = 10000; // if the wall clock has gained so much on the page's clock, the machine has slept

export class Model extends EventTarget {
  locks = new Map();
  me = null;
  link = "connecting"; // connecting, live, lost
  isLoaded = false;
  isPolling = false; // the stream does not get through: the list is fetched again and again
  seenAt = null; // when the server last sent anything, by this machine's clock
  hasReleased = false; // released locks were fetched too
  #offset = 0; // the server's clock minus the page's (performance.now()), which changes of the wall clock do not move
  #drift = 0; // the wall clock minus the page's
  #hasSlept = false;
  #pulse = 0;
  #lastId = null;
  #abort = null;
  #wake = null;
  #tries = 0;
  #stopped = false;
  #ended = new AbortController();

  now() {
    return performance.now() + this.#offset;
  }

  /** The rest of a lease, counted from when it was received. */
  left(lock) {
    return lock.status === "active" ? Math.max(0, lock.until - performance.now()) : 0;
  }

  /** The current status: the server sends no event when a lease expires. */
  status(lock) {
    return lock.status === "active" && lock.until <= performance.now() ? "expired" : lock.status;
  }

  /** Now or, if its lease has expired, the time when it did: the server's, which is exact. */
  heldUntil(lock) {
    return (this.status(lock) === "expired" && Date.parse(lock.expires_at ?? "")) || this.now();
  }

  #tell(name, detail) {
    this.dispatchEvent(new CustomEvent(name, { detail }));
  }

  #take(lock, waiting) {
    const { lock_id: _id, metadata: _metadata, ...row } = lock;
    this.locks.set(lock.key, {
      ...row,
      waiting,
      holders: Array.isArray(lock.holders) ? lock.holders.filter((one) => one.status === "active").length : lock.holders,
      until: performance.now() + (lock.expires_in_ms ?? 0),
      since: Date.parse(lock.locked_at ?? "") || 0,
    });
  }

  async start() {
    this.me = await ask("v1/me");
    this.#setClock(this.me.now);
    this.#drift = Date.now() - performance.now();
    this.#pulse = setInterval(() => this.#checkSleep(), PULSE_MS);
    addEventListener("online", () => this.retry(), { signal: this.#ended.signal });
    this.#run();
  }

  stop() {
    this.#stopped = true;
    clearInterval(this.#pulse);
    this.#ended.abort();
    this.#abort?.abort();
  }

  #setClock(now) {
    this.#offset = Date.parse(now) - performance.now();
  }

  /** The page's clock stands still while the machine sleeps: the connection may be dead, and every lease is shown too long. */
  #checkSleep() {
    const drift = Date.now() - performance.now();
    if (Math.abs(drift - this.#drift) > SLEPT_MS) {
      this.#drift = drift;
      this.#hasSlept = true;
      this.#abort?.abort();
      this.retry();
    }
  }

  retry() {
    this.#wake?.();
  }

  async #list() {
    const fresh = new Set();
    const query = this.hasReleased ? { status: "all" } : {};
    await listAll(query, (page) => {
      for (const lock of page.locks) {
        fresh.add(lock.key);
        this.#take(lock, page.waiting[lock.key] ?? 0);
      }
      this.#tell("locks", { keys: null });
    }, this.#abort.signal);
    for (const key of this.locks.keys()) {
      if (!fresh.has(key)) {
        this.locks.delete(key);
      }
    }
    this.isLoaded = true;
    this.#tell("locks", { keys: null });
  }

  async withReleased() {
    if (!this.hasReleased) {
      this.hasReleased = true;
      await this.#list().catch(() => {});
    }
  }

  #apply(batch) {
    this.#setClock(batch.now);
    for (const lock of batch.locks) {
      if (lock.status === null) {
        this.locks.delete(lock.key);
      } else {
        this.#take(lock, lock.waiting);
      }
    }
    if (batch.locks.length > 0) {
      this.#tell("locks", { keys: new Set(batch.locks.map((lock) => lock.key)) });
    }
    if (batch.has_numbers) {
      this.#tell("numbers");
    }
  }

  #connected(isPolling = false) {
    const wasLost = this.link === "lost";
    if (isPolling && this.isPolling && !wasLost) {
      return;
    }
    this.#tries = 0;
    this.link = "live";
    this.isPolling = isPolling;
    this.#tell("link", { wasLost });
  }

  /** While a proxy holds back the stream: fetch the list, until the stream has a message or is opened again. */
  async #poll(signal) {
    while (!signal.aborted) {
      try {
        await this.#list();
        this.seenAt = Date.now();
        this.#connected(true);
      } catch (error) {
        if (error.name !== "AbortError") {
          this.isPolling = false;
          this.#abort.abort();
        }
      }
      await pause(SILENT_POLL_MS, signal);
    }
  }

  /** After a sleep of the machine: the clocks are set again, and the list is fetched again. */
  async #wakeUp() {
    this.#lastId = null;
    this.me = await ask("v1/me", { signal: AbortSignal.timeout(WAKE_MS) });
    this.#setClock(this.me.now);
    this.#hasSlept = false;
  }

  async #follow() {
    const abort = (this.#abort = new AbortController());
    const silence = new AbortController();
    let watchdog;
    let refresh;
    const alive = () => {
      clearTimeout(watchdog);
      this.seenAt = Date.now();
      watchdog = setTimeout(() => abort.abort(), WATCHDOG_MS);
    };
    alive();
    const patience = setTimeout(() => this.#poll(silence.signal), SILENT_MS);
    try {
      if (this.#hasSlept) {
        await this.#wakeUp();
      }
      for await (const event of stream("v1/live", this.#lastId, abort.signal)) {
        alive();
        clearTimeout(patience);
        silence.abort();
        if (event.name === "hello") {
          const keeps = JSON.parse(event.data).keeps_events;
          const resumed = this.#lastId !== null && keeps;
          // First the stream, then the list, so that no change in between is missed.
          if (!resumed) {
            await this.#list();
          }
          this.#connected();
          if (!keeps) {
            refresh = setInterval(() => this.#list().catch(() => {}), NO_LOG_MS);
          }
        } else if (event.name === "reset") {
          await this.#list();
        } else if (event.name === "locks") {
          this.#apply(JSON.parse(event.data));
        }
        this.#lastId = event.id ?? this.#lastId;
      }
    } finally {
      clearTimeout(watchdog);
      clearTimeout(patience);
      silence.abort();
      clearInterval(refresh);
    }
  }

  async #run() {
    while (!this.#stopped) {
      let isSilent = false;
      try {
        await this.#follow();
      } catch (error) {
        if (this.#stopped) {
          return;
        }
        if (error instanceof ApiError && (error.status === 401 || error.status === 403)) {
          this.#tell("refused", error);
          return;
        }
        isSilent = error.name === "AbortError" && this.isPolling;
      }
      if (this.#stopped) {
        return;
      }
      if (!isSilent) {
        await this.#pauseLost();
      }
    }
  }

  async #pauseLost() {
    this.link = "lost";
    this.isPolling = false;
    this.#tell("link", { wasLost: true });
    const wake = new AbortController();
    this.#wake = () => wake.abort();
    const tries = this.#hasSlept ? 0 : this.#tries++; // each attempt after a sleep ends one dead connection
    await pause(RETRY_MS[Math.min(tries, RETRY_MS.length - 1)], wake.signal);
  }
}

function pause(ms, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      resolve();
    });
  });
}
