// A `belay serve` on a new store, for one test. BELAY_BIN is the program to test.

import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

export const PACKAGE = path.resolve(path.dirname(fileURLToPath(import.meta.url)), "..");
export const ROOT = path.resolve(PACKAGE, "../..");
const BELAY = process.env.BELAY_BIN ?? path.join(ROOT, "build/belay");

export const npmTools = (kind) => execFileSync(path.join(ROOT, "tools/npm-tools"), [kind], { encoding: "utf8" }).trim();

/** In memory if possible. Removed after the test. */
export function folder(test) {
  const made = mkdtempSync(path.join(existsSync("/dev/shm") ? "/dev/shm" : tmpdir(), "belay-node-"));
  test.after(() => rmSync(made, { recursive: true, force: true }));
  return made;
}

/** Starts a server that ends with the test, and resolves to its URL. */
export async function serve(test, config = "locking_enabled: true") {
  const dir = folder(test);
  const file = path.join(dir, "belay.yaml");
  writeFileSync(file, `${config}\n`, { mode: 0o600 });
  const server = spawn(BELAY, ["serve", "--json", "--listen", "127.0.0.1:0", "--store", `sqlite:${dir}/belay.db`, "--config", file],
    { stdio: ["ignore", "pipe", "ignore"], env: { ...process.env, HOME: dir } });
  test.after(async () => {
    if (server.exitCode === null) {
      server.kill("SIGKILL");
      await once(server, "exit");
    }
  });
  const [line] = await once(createInterface({ input: server.stdout }), "line");
  return JSON.parse(line).listening[0];
}

/** Runs a program to its end. */
export async function run(command, args, { input = "", env = {}, ...options } = {}) {
  const child = spawn(command, args, { stdio: ["pipe", "pipe", "pipe"], env: { ...process.env, ...env }, ...options });
  let out = "";
  let err = "";
  child.stdout.on("data", (piece) => { out += piece; });
  child.stderr.on("data", (piece) => { err += piece; });
  child.stdin.end(input);
  const [code] = await once(child, "close");
  return { code, out, err };
}
