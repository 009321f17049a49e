// The examples, run as they are.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { chmodSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { createInterface } from "node:readline";
import test from "node:test";
import { connect } from "../index.js";
import { PACKAGE, folder, run, serve } from "./support.mjs";

const example = (name) => path.join(PACKAGE, "examples", name);
const CONFIG = "profiles:\n  build: {components: [router, echo, all], environments: [plt, prod]}";

test("the chat bot builds one at a time, and each job once (S0.1 to S0.6, S0.10)", async (t) => {
  process.env.BELAY_STORE = await serve(t, CONFIG);
  const { hear, work } = await import(example("chatbot.mjs"));
  assert.ok(readFileSync(example("chatbot.mjs"), "utf8").split("\n").length <= 80);
  const client = connect();
  const jobs = [];
  const ask = (user, name, text) => hear({ user, name, text, correlationId: `slack-${user}` }, (job) => jobs.push(job));

  assert.equal(await ask("U1", "Alice", "/build router plt"), "Alice: building router for plt");
  assert.match(await ask("U2", "Bob", "/build router plt"), /^Bob: Alice is building router since 20/);
  assert.match(await ask("U2", "Bob", "/build all plt"), /^Bob: Alice is building/, "all excludes router");
  assert.match(await ask("U2", "Bob", "/build api plt"), /Invalid component: api. Valid options: router, echo, all/);
  assert.equal(await ask("U3", "Carol", "/help"), "Carol: write /build COMPONENT ENVIRONMENT");
  assert.equal(jobs.length, 1);

  const built = [];
  const fail = (job, lock) => { built.push(lock.token); throw new Error("no disk space"); };
  assert.deepEqual(await Promise.all([work(jobs[0], fail), work(jobs[0], fail)]).then((all) => all.sort()), ["failed: no disk space", "skipped"]);
  assert.equal(built.length, 1, "delivered twice, it runs once");

  assert.equal(await ask("U2", "Bob", "/build router plt"), "Bob: building router for plt");
  assert.equal(await work(jobs[1], () => {}), "completed");
  const events = (await client.history("build-router-plt")).filter(({ event }) => event !== "lock.refused");
  assert.deepEqual(events.map(({ event, metadata }) => [event, metadata.correlation_id]), [
    ["lock.acquired", "slack-U1"], ["lock.adopted", "slack-U1"], ["lock.released", "slack-U1"],
    ["lock.acquired", "slack-U2"], ["lock.adopted", "slack-U2"], ["lock.released", "slack-U2"]]);
});

test("the chat bot as a program runs the command in BUILD", async (t) => {
  const url = await serve(t, CONFIG);
  const build = path.join(folder(t), "build.sh");
  writeFileSync(build, '#!/bin/sh\ntest "$1" = router && test "$BELAY_TOKEN" -gt 0\n');
  chmodSync(build, 0o755);
  const result = await run(process.execPath, [example("chatbot.mjs")], { input: "U1 Alice /build router plt\nU2 Bob /build echo prod\n", env: { BELAY_STORE: url, BUILD: build } });
  assert.deepEqual([result.code, result.err], [0, ""]);
  assert.deepEqual(result.out.trim().split("\n").sort(), ["Alice: building router for plt", "Alice: router: completed", "Bob: building echo for prod", "Bob: echo: failed: exit code 1"]);
});

test("deploy.mjs runs a command under a lock; watch.mjs shows what happens", async (t) => {
  const url = await serve(t);
  const watcher = spawn(process.execPath, [example("watch.mjs"), "deploy-"], { env: { ...process.env, BELAY_STORE: url }, stdio: ["ignore", "pipe", "inherit"] });
  const lines = createInterface({ input: watcher.stdout });
  const seen = [];
  lines.on("line", (line) => seen.push(line.split(" ").slice(1, 3).join(" ")));
  while (seen.length === 0) { // until it listens
    await connect(url).withLock("deploy-other", () => {});
  }
  const result = await run(process.execPath, [example("deploy.mjs"), "deploy-api", "sh", "-c", "echo token $BELAY_TOKEN"], { env: { BELAY_STORE: url } });
  assert.equal(result.code, 0, result.err);
  assert.match(result.out, /^token \d+\n$/);
  while (!seen.includes("lock.released deploy-api")) {
    await once(lines, "line");
  }
  assert.ok(seen.includes("lock.acquired deploy-api"));
  watcher.kill("SIGINT");
  assert.deepEqual(await once(watcher, "exit"), [0, null]);
});
