// Plays the scenarios of clients/scenarios: lines of JSON in, calls of the client, lines of JSON out.

import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { BelayError, connect } from "./index.js";
import { duration } from "./lib/clock.js";

const locks = new Map();
const streams = new Map();
let client;

const write = (line) => process.stdout.write(`${JSON.stringify(line)}\n`);

function describe(lock) {
  const one = { key: lock.key, token: lock.token };
  const several = { keys: lock.keys, tokens: lock.tokens };
  return { ...(lock.keys.length === 1 ? one : several), lock_id: lock.lockId, valid_for_ms: lock.validFor };
}

function keep(name, lock) {
  locks.set(name, lock);
  lock.signal.addEventListener("abort", () => write({ event: "lost", lock: name, reason: lock.signal.reason.message }));
  return describe(lock);
}

function options({ ttl, wait, lock_id: lockId, shared, slots, metadata, reentrant, ignore_freeze: ignoreFreeze, heartbeat, cancel_after: after }) {
  const signal = after === undefined ? undefined : AbortSignal.timeout(duration(after, "cancel_after"));
  const given = { ttl, wait, lockId, shared, slots, metadata, reentrant, ignoreFreeze, heartbeat: heartbeat === "off" ? false : undefined, signal };
  return Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined));
}

class BodyError extends Error {
  code = "body";
}

const commands = {
  connect({ urls, token, token_file: tokenFile, ca_file: caFile, timeout, owner, owner_name: ownerName }) {
    client = connect(urls, { token, tokenFile, caFile, timeout, owner, ownerName });
    return {};
  },
  acquire: async (line) => keep(line.lock, await client.acquire(line.key ?? line.keys, options(line))),
  with: (line) => client.withLock(line.key ?? line.keys, options(line), async (lock, signal) => {
    keep(line.lock, lock);
    await sleep(duration(line.hold ?? 0, "hold"), undefined, { signal });
    if (line.fail !== undefined) {
      throw new BodyError(line.fail);
    }
    return { token: lock.token };
  }),
  adopt: async ({ lock, key, keys, lock_id: lockId, ...line }) => keep(lock, await client.adopt(key ?? keys, lockId, options(line))),
  renew: async ({ lock, ttl }) => ({ valid_for_ms: await locks.get(lock).renew({ ttl }) }),
  release: async ({ lock, outcome }) => ({ ...await locks.get(lock).release({ outcome }) }),
  async check({ lock, key, token, lock_id: lockId, for: least }) {
    return { valid_for_ms: key === undefined ? await locks.get(lock).check({ for: least }) : (await client.check(key, { token, lockId, for: least })).valid_for_ms };
  },
  is_held: ({ lock }) => ({ held: !locks.get(lock).signal.aborted && locks.get(lock).isHeld }),
  force: ({ key, reason, lock_id: lockId }) => client.forceUnlock(key, { reason, lockId }),
  status: ({ key }) => client.status(key),
  async list({ prefix, status, page: pageSize }) {
    const found = [];
    for await (const lock of client.list({ prefix, status, pageSize })) {
      found.push(lock);
    }
    return found;
  },
  history: ({ key, limit }) => client.history(key, { limit }),
  async events({ stream: name, prefix, after }) {
    const stream = client.events({ prefix, after });
    await stream.open();
    streams.set(name, { stream, iterator: stream[Symbol.asyncIterator](), pending: null });
    return {};
  },
  async next({ stream: name, within = "20s" }) {
    const entry = streams.get(name);
    entry.pending ??= entry.iterator.next();
    const found = await Promise.race([entry.pending, sleep(duration(within, "within"), null, { ref: false })]);
    if (found === null) {
      throw Object.assign(new Error(`no event within ${within}`), { code: "timeout" });
    }
    entry.pending = null;
    return found.value;
  },
  close({ stream: name }) {
    streams.get(name).stream.close();
    return {};
  },
  freeze: ({ pattern, reason, for: lasts, until }) => client.freeze(pattern, { reason, for: lasts, until }),
  unfreeze: ({ what }) => client.unfreeze(what),
  freezes: () => client.freezes(),
};

function errorLine(error) {
  const isCancelled = !(error instanceof BelayError) && (error.name === "AbortError" || error.name === "TimeoutError");
  if (!isCancelled && error.code === undefined) {
    process.stderr.write(`${error.stack}\n`);
  }
  return { code: isCancelled ? "cancelled" : error.code ?? "bug", message: error.message, holder: error.lock?.locked_by, lock_id: error.lockId };
}

const { name, version } = JSON.parse(readFileSync(new URL("package.json", import.meta.url), "utf8"));
write({ ready: `${name} ${version}` });
let last = Promise.resolve();
createInterface({ input: process.stdin }).on("line", (text) => {
  last = last.then(async () => {
    const line = JSON.parse(text);
    try {
      write({ ok: await commands[line.do](line) });
    } catch (error) {
      write({ error: errorLine(error) });
    }
  });
}).on("close", () => process.exit(0));
