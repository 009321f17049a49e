// The locks that this page knows, updated by the server's event stream.

import { ask, listAll, stream, ApiError } from "./api.js";

const WATCHDOG_MS = 45000; // the server sends something every 15 s
const RETRY_MS = [500, 1000, 2000, 4000, 8000, 15000];
const NO_LOG_MS = 30000; // poll interval for a store without events

export class Model extends EventTarget {
  locks = new Map();
  me = null;
  link = "connecting"; // connecting, live, lost
  isLoaded = false;
  error = null;
  retryAt = 0;
  seenAt = null; // when the server last sent anything, by this machine's clock
  hasReleased = false; // released locks were fetched too
  #offset = 0; // the server's clock, minus ours
  #lastId = null;
  #abort = null;
  #wake = null;
  #tries = 0;
  #stopped = false;

  now() {
    return Date.now() + this.#offset;
  }

  /** The rest of a lease, counted from when it was received. */
  left(lock) {
    return lock.status === "active" ? Math.max(0, lock.until - performance.now()) : 0;
  }

  /** The current status: the server sends no event when a lease expires. */
  status(lock) {
    return lock.status === "active" && lock.until <= performance.now() ? "expired" : lock.status;
  }

  /** Now, or when its lease ended. */
  heldUntil(lock) {
    return this.now() + (lock.status === "active" ? Math.min(0, lock.until - performance.now()) : Math.min(0, (Date.parse(lock.expires_at ?? "") || Infinity) - this.now()));
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
    this.#offset = Date.parse(this.me.now) - Date.now();
    this.#run();
  }

  stop() {
    this.#stopped = true;
    this.#abort?.abort();
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
    this.error = null;
    this.#tell("locks", { keys: null });
  }

  async withReleased() {
    if (!this.hasReleased) {
      this.hasReleased = true;
      await this.#list().catch(() => {});
    }
  }

  #apply(batch) {
    this.#offset = Date.parse(batch.now) - Date.now();
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

  #connected() {
    const wasLost = this.link === "lost";
    this.#tries = 0;
    this.link = "live";
    this.#tell("link", { wasLost });
  }

  async #follow() {
    const abort = (this.#abort = new AbortController());
    let watchdog;
    let refresh;
    const alive = () => {
      clearTimeout(watchdog);
      this.seenAt = Date.now();
      watchdog = setTimeout(() => abort.abort(), WATCHDOG_MS);
    };
    alive();
    try {
      for await (const event of stream("v1/live", this.#lastId, abort.signal)) {
        alive();
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
      clearInterval(refresh);
    }
  }

  async #run() {
    while (!this.#stopped) {
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
        this.error = error;
      }
      if (this.#stopped) {
        return;
      }
      const pause = RETRY_MS[Math.min(this.#tries++, RETRY_MS.length - 1)];
      this.retryAt = Date.now() + pause;
      this.link = "lost";
      this.#tell("link", { wasLost: true });
      await new Promise((resolve) => {
        this.#wake = resolve;
        setTimeout(resolve, pause);
      });
      this.#tell("trying");
    }
  }
}
