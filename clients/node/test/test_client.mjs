// What clients/scenarios cannot say, because it is Node's own: signals, disposal, and processes that end.

import assert from "node:assert/strict";
import http from "node:http";
import test from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { BelayError, FrozenError, InvalidError, LockHeldError, LockLostError, UnavailableError, UnknownOutcomeError, connect } from "../index.js";
import { PACKAGE, run, serve } from "./support.mjs";

test("after a pause of the whole process the signal is aborted before any timer ran (L6)", async (t) => {
  const client = connect(await serve(t));
  const lock = await client.acquire("k", { ttl: "2s", heartbeat: false });
  let told = null;
  lock.signal.addEventListener("abort", () => { told = lock.signal.reason; });
  assert.equal(lock.signal.aborted, false);
  lock.signal.throwIfAborted();
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 2000); // no timer and no answer is handled meanwhile
  assert.equal(told, null);
  assert.throws(() => lock.signal.throwIfAborted(), LockLostError);
  assert.ok(told instanceof LockLostError);
  assert.equal(lock.signal.aborted, true);
  assert.equal(lock.isHeld, false);
  assert.equal(lock.validFor, 0);
  assert.throws(() => lock.throwIfLost(), { code: "lost", lockId: lock.lockId });
  await assert.rejects(lock.renew(), LockLostError);
  await assert.rejects(lock.release(), LockLostError);
});

test("a heartbeat renews for longer than the ttl, whether or not the answer is awaited", async (t) => {
  const client = connect(await serve(t));
  const lock = await client.acquire("k", { ttl: "2s" });
  const until = Date.now() + 3500;
  while (Date.now() < until) {
    await sleep(100);
    lock.throwIfLost();
  }
  await lock.check();
  await lock.release();
  assert.equal(lock.isHeld, false);
  assert.equal(lock.signal.aborted, false, "a release is no loss");
});

test("tasks of one process take turns", async (t) => {
  const client = connect(await serve(t));
  let inside = 0;
  const order = [];
  await Promise.all([...Array(6).keys()].map((n) => client.withLock("k", { ttl: "20s", wait: "60s" }, async (lock) => {
    assert.equal(++inside, 1);
    await sleep(20);
    order.push(lock.token);
    inside--;
    return n;
  })));
  assert.equal(order.length, 6);
  assert.deepEqual(order, [...order].sort((a, b) => a - b), "tokens grow");
});

test("withLock rejects with what the work threw, and with the loss if the lock was lost", async (t) => {
  const client = connect(await serve(t));
  await assert.rejects(client.withLock("k", () => { throw new RangeError("mine"); }), RangeError);
  assert.equal((await client.status("k")).outcome, "failed");
  assert.equal(await client.withLock("k", () => 7), 7);
  assert.equal((await client.status("k")).outcome, "completed");

  const lost = client.withLock("k", async (lock, signal) => {
    await connect(client.url).forceUnlock("k", { reason: "test" });
    await sleep(60000, undefined, { signal });
  });
  await assert.rejects(lost, (error) => error instanceof LockLostError && error.cause.name === "AbortError");

  const ignored = client.withLock("k", async (lock, signal) => {
    await client.forceUnlock("k", { reason: "test" });
    while (!signal.aborted) {
      await sleep(10);
    }
    return "finished all the same";
  });
  await assert.rejects(ignored, LockLostError);
});

test("await using releases the lock", async (t) => {
  const client = connect(await serve(t));
  const lock = await client.acquire("k");
  await lock[Symbol.asyncDispose]();
  await lock.release(); // twice is no error
  assert.equal((await client.status("k")).status, "released");
});

test("a lock that is handed over is not reported as lost", async (t) => {
  const client = connect(await serve(t));
  const lock = await client.acquire("k");
  const mine = await client.adopt("k", lock.detach(), { owner: "job" });
  await sleep(300);
  assert.equal(lock.signal.aborted, false);
  await mine.release({ outcome: "failed" });
  const events = (await client.history("k")).map(({ event }) => event);
  assert.deepEqual(events, ["lock.acquired", "lock.adopted", "lock.released"]);
});

test("a loss is recorded in the history", async (t) => {
  const client = connect(await serve(t));
  const lock = await client.acquire("k", { ttl: "1s", heartbeat: false });
  await new Promise((resolve) => { lock.signal.addEventListener("abort", resolve); });
  for (let events = []; !events.includes("lock.lost");) {
    events = (await client.history("k")).map(({ event }) => event);
  }
});

test("neither heartbeat nor watch keeps a process alive", async (t) => {
  const url = await serve(t);
  const code = `import { connect } from "belay-client";
    const lock = await connect("${url}").acquire("k", { ttl: "60s" });
    setTimeout(() => {}, 500);`;
  const result = await run(process.execPath, ["--input-type=module", "-e", code], { cwd: PACKAGE, timeout: 30000 });
  assert.deepEqual([result.code, result.err], [0, ""]);
  assert.equal((await connect(url).status("k")).status, "active");
});

test("a signal of the caller ends the wait with its reason", async (t) => {
  const client = connect(await serve(t));
  await client.acquire("k");
  const giveUp = new AbortController();
  const waiting = client.acquire("k", { wait: Infinity, signal: giveUp.signal });
  while ((await client.queue("k")).length === 0) {
    await sleep(10);
  }
  giveUp.abort(new Error("enough"));
  await assert.rejects(waiting, /enough/);
  assert.deepEqual(await client.queue("k"), []);
  await assert.rejects(client.acquire("k", { signal: giveUp.signal }), /enough/);
});

test("a mistake in the input is named before anything is sent", async () => {
  const client = connect("http://127.0.0.1:1");
  for (const [call, says] of [
    [() => client.acquire("k", { slot: 3 }), /no option 'slot'.*slots/], [() => client.acquire("k", { ttl: "soon" }), /ttl: 'soon'/],
    [() => client.acquire("k", { wait: -1 }), /wait: '-1'/], [() => client.acquire(""), /key: ""/], [() => client.acquire([]), /key: \[\]/],
    [() => client.acquire({ stak: "shop" }), /no option 'stak'.*stack/], [() => client.withLock("k", {}, 7), /not a function/],
  ]) {
    await assert.rejects(call, (error) => error instanceof InvalidError && says.test(error.message), String(says));
  }
  for (const [url, options, says] of [
    ["sqlite:x", {}, /'sqlite:x' is not a server's URL/], ["http://u:p@h", {}, /with a password/], ["", {}, /no server/],
    ["http://h", { tokens: "x" }, /no option 'tokens'.*token/], ["http://h", { token: "a b" }, /the token/],
    ["http://h", { caFile: "/nothing" }, /caFile: .*\/nothing/],
  ]) {
    assert.throws(() => connect(url, options), (error) => error instanceof InvalidError && says.test(error.message), String(says));
  }
});

test("errors have a class and a code", async (t) => {
  const url = await serve(t);
  const client = connect(url, { owner: "me" });
  await client.acquire("k");
  await assert.rejects(client.acquire("k"), (error) => error instanceof LockHeldError && error instanceof BelayError &&
    error.code === "held" && error.serverCode === "lock_held" && error.status === 409 && error.lock.locked_by === "me" && error.name === "LockHeldError");
  await client.freeze("f*", { reason: "test", for: "1h" });
  await assert.rejects(client.acquire("f1"), (error) => error instanceof FrozenError && error.code === "frozen" && /test/.test(error.message));
  await client.acquire("f1", { ignoreFreeze: "hotfix" });
  await assert.rejects(connect("http://127.0.0.1:1").acquire("k"), (error) => error instanceof UnavailableError && error.cause.code === "ECONNREFUSED");
});

test("an answer that no belay server gives is an unknown outcome, and never a lock", async (t) => {
  let text;
  const proxy = http.createServer((request, response) => request.resume().on("end", () => response.end(text)));
  await new Promise((resolve) => { proxy.listen(0, "127.0.0.1", resolve); });
  t.after(() => proxy.close());
  const client = connect(`http://127.0.0.1:${proxy.address().port}`);
  t.after(() => client.close());
  for (text of ["{}", "[]", "7", "<html>", "null", '{"locks":[]}', '{"locks":[null]}', '{"locks":5}']) {
    await assert.rejects(client.acquire("k", { lockId: "mine" }), (error) => error instanceof UnknownOutcomeError && error.lockId === "mine", text);
  }
  text = '{"key":"k","lock_id":"mine","valid_for_ms":"x"}';
  await assert.rejects(client.acquire("k", { lockId: "mine" }), LockLostError);
});

test("heartbeat: null is the default, as of every option, and leaves no lock behind", async (t) => {
  const client = connect(await serve(t));
  await client.withLock("k", { heartbeat: null }, async (lock) => lock.check());
  assert.equal((await client.status("k")).status, "released");
});
