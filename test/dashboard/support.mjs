// A server with tokens, and Chromium on its page. BELAY_BIN is the program to test.

import { spawn, execFileSync } from "node:child_process";
import { createHash, randomUUID } from "node:crypto";
import { createRequire } from "node:module";
import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import net from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";

export const ROOT = path.resolve(path.dirname(fileURLToPath(import.meta.url)), "../..");
const BELAY = process.env.BELAY_BIN ?? path.join(ROOT, "build/belay");
const tools = execFileSync(path.join(ROOT, "tools/npm-tools"), ["browser"], { encoding: "utf8" }).trim();
const require = createRequire(path.join(tools, "package.json"));
const { chromium } = require("playwright-core");
export const axePath = require.resolve("axe-core/axe.min.js");

export const TIMEOUT_MS = 60000; // for a loaded machine
export const NAMES = { admin: "ops", locker: "ci", reader: "watcher" };
export const TOKENS = { admin: "secret-admin", locker: "secret-locker", reader: "secret-reader" };

/** In memory if possible: the tests create thousands of locks, each of them with an fsync. */
export function folder() {
  const made = mkdtempSync(path.join(existsSync("/dev/shm") ? "/dev/shm" : tmpdir(), "belay-dash-"));
  return { path: made, remove: () => rmSync(made, { recursive: true, force: true }) };
}

/** Below the kernel's own range, and that of test/support/ports.py: a server that is restarted finds its port free again. */
export async function freePort() {
  for (;;) {
    const port = 12000 + Math.floor(Math.random() * 8000), probe = net.createServer();
    const isFree = await new Promise((resolve) => probe.once("error", () => resolve(false)).listen(port, "127.0.0.1", () => resolve(true)));
    if (isFree) {
      await new Promise((resolve) => probe.close(resolve));
      return port;
    }
  }
}

/** A running `belay serve` on a store in `dir`. */
export class Server {
  constructor(dir, { tokens = true, port = 0, more = "" } = {}) {
    this.dir = dir;
    this.tokens = tokens;
    this.port = port;
    this.more = more;
    this.configure(Object.keys(TOKENS));
  }

  /** The tokens of these roles are valid. */
  configure(roles) {
    const config = ["server:", "  tokens:", ...roles.map((role) =>
      `    - {"name": "${NAMES[role]}", "role": "${role}", "sha256": "${createHash("sha256").update(TOKENS[role]).digest("hex")}"}`)];
    writeFileSync(path.join(this.dir, "belay.yaml"), `${this.tokens ? config.join("\n") : "locking_enabled: true"}\n${this.more}`, { mode: 0o600 });
  }

  async start() {
    this.port ||= await freePort();
    this.process = spawn(BELAY, ["serve", "--json", "--log", "json", "--listen", `127.0.0.1:${this.port}`, "--store", `sqlite:${this.dir}/belay.db`,
      "--config", path.join(this.dir, "belay.yaml")], { stdio: ["ignore", "pipe", "ignore"], env: { ...process.env, HOME: this.dir } });
    const line = await new Promise((resolve, reject) => {
      let text = "";
      this.process.stdout.on("data", (piece) => {
        text += piece;
        if (text.includes("\n")) {
          resolve(text);
        }
      });
      this.process.once("exit", (code) => reject(new Error(`belay serve ended with ${code}`)));
    });
    this.url = JSON.parse(line).listening[0];
    return this;
  }

  async stop() {
    const { process: server } = this;
    if (server && server.exitCode === null && server.signalCode === null) {
      const ended = new Promise((resolve) => server.once("exit", resolve));
      server.kill("SIGTERM");
      await ended;
    }
  }

  async call(method, route, body, role = "admin", headers = {}) {
    const answer = await fetch(`${this.url}${route}`, {
      method, body: typeof body === "string" ? body : body ? JSON.stringify(body) : undefined,
      headers: { ...headers, ...(this.tokens ? { Authorization: `Bearer ${TOKENS[role]}` } : {}) },
    });
    const text = await answer.text();
    return { status: answer.status, headers: answer.headers, text, json: answer.headers.get("content-type")?.includes("json") ? JSON.parse(text) : null };
  }

  async acquire(key, fields = {}, role = "admin") {
    const { json, status } = await this.call("POST", "/v1/acquire", { key, locked_by: "job-1", ttl_ms: 600000, ...fields }, role);
    return { ...json, http: status };
  }

  async release(lock, outcome = "completed") {
    return this.call("POST", "/v1/release", { key: lock.key, lock_id: lock.lock_id, outcome });
  }

  /** A deployment: the stack's lock, and a new version. */
  async deploy(stack, environment, document, { role = "locker", keep = false, ...recorded } = {}) {
    const lock = await this.acquire(`stack:${stack}:env:${environment}`, { locked_by: recorded.deployment_id ?? "deploy" }, role);
    const there = await this.call("GET", `/v1/state/${encodeURIComponent(stack)}/${encodeURIComponent(environment)}`);
    const condition = there.status === 200 ? { "If-Match": there.headers.get("etag") } : { "If-None-Match": "*" };
    const query = new URLSearchParams({ lock_id: lock.lock_id, ...recorded });
    const answer = await this.call("PUT", `/v1/state/${encodeURIComponent(stack)}/${encodeURIComponent(environment)}?${query}`, document, role, condition);
    if (!keep) {
      await this.release(lock);
    }
    return answer;
  }

  /** The requests of `terraform apply`. */
  async terraform(name, document) {
    const path = `/v1/terraform/${encodeURIComponent(name)}`, id = randomUUID();
    await this.call("POST", `${path}/lock`, { ID: id, Operation: "OperationTypeApply", Who: "alice@laptop" }, "locker");
    const answer = await this.call("POST", `${path}?ID=${id}`, document, "locker");
    await this.call("DELETE", `${path}/lock`, { ID: id }, "locker");
    return answer;
  }

  /** As an admin: the URLs of other roles are checked on public addresses only. */
  async app(name, urls, databases, more = {}) {
    return this.call("PUT", `/v1/apps/${encodeURIComponent(name)}`, { urls, databases, ...more }, "admin");
  }

  /** A waiter; the promise resolves with its answer. */
  waiter(key, name) {
    return this.acquire(key, { locked_by: name, wait_ms: 120000 }).catch(() => null);
  }
}

/** Each browser has a new profile; the sandbox does not work for root in a container. */
export async function browser() {
  return chromium.launch({
    executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
    headless: true,
    args: ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
      "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--font-render-hinting=none"],
  });
}

/** A tab that is logged in as `role`, or with `token`, and shows `hash`; `init` runs before the page's scripts. */
export async function open(chrome, server, { role = "admin", token = TOKENS[role], hash = "#/locks", url = server.url, init, ...context } = {}) {
  const tab = await chrome.newContext({ viewport: { width: 1280, height: 800 }, ...context });
  const page = await tab.newPage();
  page.setDefaultTimeout(TIMEOUT_MS);
  page.problems = [];
  page.on("pageerror", (error) => page.problems.push(String(error)));
  page.on("console", (message) => message.type() === "error" && !/Failed to load resource|net::ERR/.test(message.text()) && page.problems.push(message.text()));
  page.on("dialog", (dialog) => {
    page.problems.push(`a dialog: ${dialog.message()}`);
    dialog.dismiss();
  });
  if (init) {
    await page.addInitScript(init);
  }
  await page.goto(`${url}/${hash}`);
  if (server.tokens && role) {
    await page.fill("#token", token);
    await page.press("#token", "Enter");
  }
  if (role || !server.tokens) {
    await page.waitForSelector('.link[data-link="live"]');
  }
  return page;
}
