// /openapi.json is good enough to generate clients from: linters find nothing, generated code compiles and holds a lock,
// and a validating proxy finds no answer that the document does not describe.

import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import net from "node:net";
import path from "node:path";
import test from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { ROOT, folder, npmTools, run, serve } from "../../clients/node/test/support.mjs";

const tools = npmTools("api");
const tool = (name) => path.join(tools, "node_modules/.bin", name);
const STREAMS = ["GET /v1/events", "GET /v1/live"]; // the proxy waits for the end of an answer

/** A folder with the document of a server, in which the generators' packages are found. */
async function document(t) {
  const url = await serve(t);
  const dir = folder(t);
  const text = await (await fetch(`${url}/openapi.json`)).text();
  writeFileSync(path.join(dir, "openapi.json"), text);
  writeFileSync(path.join(dir, "package.json"), '{"type":"module"}');
  symlinkSync(path.join(tools, "node_modules"), path.join(dir, "node_modules"));
  return { url, dir, said: JSON.parse(text) };
}

async function must(dir, command, ...args) {
  const result = await run(command, args, { cwd: dir });
  assert.equal(result.code, 0, result.out + result.err);
  return result.out;
}

test("spectral and redocly find nothing", async (t) => {
  const { dir, said } = await document(t);
  const rules = path.join(dir, "spectral.json");
  writeFileSync(rules, '{"extends":["spectral:oas"]}');
  const lint = (name) => [[tool("spectral"), "lint", "--fail-severity=hint", "-r", rules, name], [tool("redocly"), "lint", "--format=summary", name]];
  for (const [command, ...args] of lint("openapi.json")) {
    const result = await run(command, args, { cwd: dir });
    assert.equal(result.code, 0, result.out + result.err);
    assert.doesNotMatch(result.out + result.err, /[1-9]\d* (warning|error)/);
  }
  delete said.paths["/v1/locks"].get.operationId;
  delete said.servers;
  writeFileSync(path.join(dir, "bad.json"), JSON.stringify(said));
  for (const [command, ...args] of lint("bad.json")) {
    assert.notEqual((await run(command, args, { cwd: dir })).code, 0, `${command} finds nothing`);
  }
});

/** Compiles generated code with a program that uses it, and runs that. */
async function holdsALock({ dir, url }, program) {
  writeFileSync(path.join(dir, "program.ts"), program);
  await must(dir, tool("tsc"), "--strict", "--target", "es2022", "--module", "nodenext", "--lib", "es2022,dom,dom.iterable", "--types", "node", "--skipLibCheck", "program.ts");
  const result = await run(process.execPath, ["program.js", url], { cwd: dir });
  assert.deepEqual([result.code, result.out, result.err], [0, "active 60000 released lock_held\n", ""]);
}

test("a client from openapi-typescript and openapi-fetch acquires, renews and releases", async (t) => {
  const made = await document(t);
  await must(made.dir, tool("openapi-typescript"), "openapi.json", "-o", "api.d.ts");
  await holdsALock(made, `
    import createClient from "openapi-fetch";
    import type { paths } from "./api.js";
    const client = createClient<paths>({ baseUrl: process.argv[2] });
    const params = { path: { key: "deploy-api-prod" } };
    const { data: lock } = await client.POST("/v1/locks/{key}/acquire", { params, body: { locked_by: "me", lock_id: "me-1", ttl_ms: 30000 } });
    if (!lock || !("holders" in lock)) throw new Error("not granted");
    const status: "active" | "expired" | "released" | null = lock.status;
    const { error } = await client.POST("/v1/acquire", { body: { key: "deploy-api-prod", locked_by: "you" } });
    const renewed = await client.POST("/v1/locks/{key}/renew", { params, body: { lock_id: "me-1", ttl_ms: 60000 } });
    const released = await client.POST("/v1/locks/{key}/release", { params, body: { lock_id: "me-1", outcome: "completed" } });
    console.log(status, renewed.data?.ttl_ms, released.data?.status, error?.error.code);
  `);
});

test("a client from oazapfts acquires, renews and releases", async (t) => {
  const made = await document(t);
  await must(made.dir, tool("oazapfts"), "openapi.json", "api.ts");
  await holdsALock(made, `
    import { acquire, acquireLock, defaults, releaseLock, renewLock } from "./api.js";
    defaults.baseUrl = process.argv[2];
    const granted = await acquireLock("deploy-api-prod", { locked_by: "me", lock_id: "me-1", ttl_ms: 30000 });
    if (granted.status !== 200) throw new Error("not granted");
    const refused = await acquire({ key: "deploy-api-prod", locked_by: "you" });
    const renewed = await renewLock("deploy-api-prod", { lock_id: "me-1", ttl_ms: 60000 });
    const released = await releaseLock("deploy-api-prod", { lock_id: "me-1" });
    if (renewed.status !== 200 || released.status !== 200 || refused.status !== 409) throw new Error("refused");
    console.log(granted.data.status, renewed.data.ttl_ms, released.data.status, refused.data.error.code);
  `);
});

async function proxy(t, { dir, url }, document_ = "openapi.json") {
  const probe = net.createServer().listen(0, "127.0.0.1");
  await once(probe, "listening");
  const { port } = probe.address();
  probe.close();
  const child = spawn(tool("prism"), ["proxy", document_, url, "--port", String(port), "--host", "127.0.0.1"], { cwd: dir, stdio: "ignore" });
  t.after(() => child.kill("SIGKILL"));
  for (;;) {
    try {
      await fetch(`http://127.0.0.1:${port}/healthz`);
      return `http://127.0.0.1:${port}`;
    } catch {
      assert.equal(child.exitCode, null, "prism ended");
      await sleep(100);
    }
  }
}

/** The status and the violations of the answer to a curl command of docs/http.md. */
function play(dir, command, url) {
  const typed = command.includes(" -d ") ? command.replace("curl ", "curl -H 'Content-Type: application/json' ") : command;
  execFileSync("sh", ["-c", `url=${url}\n${typed.replace("curl ", "curl -s -D head ")} >/dev/null`], { cwd: dir, stdio: ["ignore", "ignore", "inherit"] });
  const head = readFileSync(path.join(dir, "head"), "utf8");
  const violations = JSON.parse(/^sl-violations: (.*)$/mi.exec(head)?.[1] ?? "[]");
  return { status: /^HTTP\S+ (\d+)/.exec(head)[1], violations: violations.filter(({ location }) => location[0] === "response") };
}

test("a validating proxy finds no answer that the document does not describe", async (t) => {
  const made = await document(t);
  const through = await proxy(t, made);
  const commands = readFileSync(path.join(ROOT, "docs/http.md"), "utf8").split("\n").filter((line) => line.startsWith("    curl "));
  const operations = Object.entries(made.said.paths).flatMap(([route, item]) => Object.keys(item).map((method) => `${method.toUpperCase()} ${route}`));
  const seen = new Set([...STREAMS, ...operations.filter((name) => name.startsWith("X-"))]);
  const dir = path.join(made.dir, "play");
  mkdirSync(dir);
  for (const line of commands.filter((each) => !each.includes(" -N "))) {
    const isKnown = !/-X (LOCK|UNLOCK) /.test(line); // OpenAPI has no such methods
    const { status, violations } = play(dir, line.trim(), isKnown ? through : made.url);
    assert.deepEqual(violations, [], line);
    assert.equal(status, /# (\d+)$/.exec(line)?.[1] ?? "200", line);
    const method = /-X (\w+)/.exec(line)?.[1] ?? (line.includes(" -d ") ? "POST" : "GET");
    const target = /\$url(\/[^\s"?]*)/.exec(line)[1];
    operations.filter((name) => isKnown && new RegExp(`^${name.replace(/\{\w+\}/g, "[^/]+").replaceAll(".", "\\.")}$`).test(`${method} ${target}`))
      .forEach((name) => seen.add(name));
  }
  assert.deepEqual(operations.filter((name) => !seen.has(name)), [], "not played");

  delete made.said.components.schemas.Health.properties.version.type; // that it can find something
  made.said.components.schemas.Health.properties.version.enum = ["another"];
  writeFileSync(path.join(made.dir, "bad.json"), JSON.stringify(made.said));
  assert.equal(play(dir, "curl $url/healthz", await proxy(t, made, "bad.json")).violations.length, 1);
});
