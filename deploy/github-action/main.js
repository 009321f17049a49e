// Acquire the lock. The lock id is chosen and saved before the request is sent: if the job is cancelled while this step
// waits, or the answer is lost, the post step still knows what to release.
const { spawn } = require("node:child_process");
const { randomUUID } = require("node:crypto");
const fs = require("node:fs");
const path = require("node:path");
const { identify } = require("./processes.js");
const { append, environment, fail, input, mask, renewalLog } = require("./runner.js");

const key = input("key");
const store = input("store");
const token = input("token");
const id = randomUUID();

mask(token);
if (!key || !store) {
  fail(`the input '${key ? "store" : "key"}' is missing`);
} else {
  append("GITHUB_STATE", "key", key);
  append("GITHUB_STATE", "lock_id", id);
  const wait = input("wait") || "30m";
  const ttl = input("ttl") || "10m";
  // The progress of the wait goes to the log as it comes.
  const belay = spawn(input("belay") || "belay", ["acquire", "--wait", wait, "--ttl", ttl, "--id", id, key],
    { env: environment(store, token), stdio: ["ignore", "ignore", "inherit"] });
  // If this process is killed, the other one would go on waiting: the post step ends it.
  if (belay.pid) append("GITHUB_STATE", "acquirer", identify(belay.pid));
  for (const signal of ["SIGINT", "SIGTERM"]) process.on(signal, () => belay.kill(signal));
  belay.on("error", (error) => fail(`cannot start belay: ${error.message}`));
  belay.on("close", (code) => {
    if (code !== 0) {
      fail(`the lock '${key}' was not acquired (belay's exit code ${code})`);
      return;
    }
    describe();
  });
}

// The ttl, and the fencing token for the steps that follow.
function describe() {
  let text = "";
  const status = spawn(input("belay") || "belay", ["status", "--json", key],
    { env: environment(store, token), stdio: ["ignore", "pipe", "inherit"] });
  status.stdout.on("data", (data) => { text += data; });
  status.on("close", (code) => {
    if (code !== 0) {
      fail(`the lock '${key}' was acquired, but cannot be read (belay's exit code ${code})`);
      return;
    }
    const lock = JSON.parse(text);
    keepRenewed(lock.ttl_ms ?? lock.expires_in_ms);
    append("GITHUB_OUTPUT", "lock-id", id);
    if (lock.token !== null) append("GITHUB_OUTPUT", "token", String(lock.token));
    for (const [name, value] of [["BELAY_KEY", key], ["BELAY_LOCK_ID", id], ["BELAY_STORE", store],
      ["BELAY_TOKEN", lock.token === null ? "" : String(lock.token)]]) append("GITHUB_ENV", name, value);
  });
}

// In a process of its own, which outlives this step. The runner started this step, and lives as long as the job.
function keepRenewed(ttl) {
  const log = fs.openSync(renewalLog(id), "w", 0o600);
  const renewer = spawn(process.execPath,
    [path.join(__dirname, "renew.js"), key, id, String(ttl), identify(process.ppid), input("belay") || "belay"],
    { env: environment(store, token), stdio: ["ignore", log, log], detached: true });
  append("GITHUB_STATE", "renewer", identify(renewer.pid));
  renewer.unref();
}
