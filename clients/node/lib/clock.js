// The clock that leases are counted on, and durations.

import { uptime } from "node:os";
import { setTimeout } from "node:timers/promises";
import { InvalidError } from "./errors.js";

// On Linux, performance.now() stops while the machine is suspended, and os.uptime() does not, but has a resolution of
// only 10 ms. Elsewhere performance.now() runs on.
const STEP_MS = 50;
const began = process.platform === "linux" ? uptime() * 1000 - performance.now() : 0;
let suspended = 0;

/** Milliseconds on a clock that is never set and runs on during suspend. */
export function now() {
  if (process.platform === "linux") {
    // In this order: a pause between the two readings must not count as a suspend.
    const boot = uptime() * 1000 - began;
    const gap = boot - performance.now();
    if (gap > suspended + STEP_MS) {
      suspended = gap;
    }
  }
  return performance.now() + suspended;
}

const UNITS = { ms: 1, s: 1000, m: 60000, h: 3600000 };

/** Milliseconds of `value`: a number of them, or text such as "90s" or "1h30m". */
export function duration(value, name) {
  if (typeof value === "number" && value >= 0) {
    return Number.isFinite(value) ? Math.ceil(value) : value;
  }
  if (typeof value === "string" && /^(\d+(ms|s|m|h))+$/.test(value)) {
    return [...value.matchAll(/(\d+)(ms|s|m|h)/g)].reduce((sum, [, n, unit]) => sum + n * UNITS[unit], 0);
  }
  throw new InvalidError(`${name}: '${value}' is not a duration: write milliseconds, or text such as '90s' or '1h30m'`);
}

/** Resolves after `ms`, or at once when `signal` aborts. Does not keep the process alive if `unref` is set. */
export function sleep(ms, signal, unref = false) {
  return setTimeout(ms, undefined, { signal, ref: !unref }).catch(() => {});
}
