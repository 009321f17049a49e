// Compiled, never run: what index.d.ts promises, used as a program would, and compared with what the code has.

import { Client, connect, BelayError, LockHeldError, LockLostError, UnknownOutcomeError } from "../index.js";
import type { AcquireOptions, Freeze, Lock, LockEvent, LockInfo } from "../index.js";
import { Client as ActualClient } from "../lib/client.js";
import { EventStream as ActualStream } from "../lib/events.js";
import { Lock as ActualLock } from "../lib/lock.js";
import * as errors from "../lib/errors.js";

type Names<A> = Exclude<keyof A, symbol>;
type Same<A, B> = [Names<A>] extends [Names<B>] ? ([Names<B>] extends [Names<A>] ? true : never) : never;
export const sameMembers: [
  Same<Client, ActualClient>, Same<Lock, ActualLock>, Same<ReturnType<Client["events"]>, ActualStream>,
  Same<BelayError, errors.BelayError>,
] = [true, true, true, true];

export async function use(signal: AbortSignal): Promise<number> {
  const client = connect(["http://127.0.0.1:7420", "unix:/run/belay.sock"], { tokenFile: "token", timeout: "5s" });
  const options: AcquireOptions = { ttl: "10m", wait: 5000, slots: 3, metadata: { a: "b" }, signal };
  const built: string = await client.withLock("k", options, async (lock, lost) => `${lock.token} ${lost.aborted}`);
  const done: number = await client.withLock({ profile: "build", component: "router", environment: "plt" }, () => 7);
  await using lock = await client.acquire(["a", "b"], options);
  const left: number = await lock.check({ for: "30s" });
  const tokens: Record<string, number | null> = lock.tokens;
  for await (const one of client.list({ status: "active" })) {
    const info: LockInfo = one;
    console.log(info.holders.map((holder) => holder.locked_by), built, tokens);
  }
  for await (const event of client.events({ after: 7 })) {
    const seen: LockEvent = event;
    console.log(seen.lock_key);
  }
  const freeze: Freeze = await client.freeze("web-*", { reason: "r", until: new Date() });
  await client.unfreeze(freeze.id);
  try {
    await lock.release({ outcome: "failed" });
  } catch (error) {
    if (error instanceof UnknownOutcomeError || error instanceof LockLostError) {
      const id: string | undefined = error.lockId;
      console.log(id, error.code === "unknown");
    } else if (error instanceof LockHeldError) {
      console.log(error.lock?.locked_by);
    }
  }
  // @ts-expect-error: there is no such outcome
  await lock.release({ outcome: "done" });
  // @ts-expect-error: there is no such option
  await client.acquire("k", { slot: 3 });
  // @ts-expect-error: a key is needed
  await client.acquire();
  return done + left;
}
