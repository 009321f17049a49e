// Acquire the lock. The lock id is chosen and saved before the request is sent: if the job is cancelled while this step
// waits, or the answer is lost, the post step still knows what to release.
const { spawn } = require("node:child_process");
const { randomUUID } = require("node:crypto");
const { append, environment, fail, input, mask } = require("./runner.js");

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
  const ttl = input("ttl") || "1h";
  // The progress of the wait goes to the log as it comes.
  const belay = spawn(input("belay") || "belay", ["acquire", "--wait", wait, "--ttl", ttl, "--id", id, key],
    { env: environment(store, token), stdio: ["ignore", "ignore", "inherit"] });
  for (const signal of ["SIGINT", "SIGTERM"]) process.on(signal, () => belay.kill(signal));
  belay.on("error", (error) => fail(`cannot start belay: ${error.message}`));
  belay.on("close", (code) => {
    if (code !== 0) {
      fail(`the lock '${key}' was not acquired (belay's exit code ${code})`);
      return;
    }
    append("GITHUB_OUTPUT", "lock-id", id);
    describe();
  });
}

// The fencing token, for the steps that follow.
function describe() {
  let text = "";
  const status = spawn(input("belay") || "belay", ["status", "--json", key],
    { env: environment(store, token), stdio: ["ignore", "pipe", "inherit"] });
  status.stdout.on("data", (data) => { text += data; });
  status.on("close", (code) => {
    if (code !== 0) return;
    const lock = JSON.parse(text);
    if (lock.token !== null) append("GITHUB_OUTPUT", "token", String(lock.token));
    for (const [name, value] of [["BELAY_KEY", key], ["BELAY_LOCK_ID", id], ["BELAY_STORE", store],
      ["BELAY_TOKEN", lock.token === null ? "" : String(lock.token)]]) append("GITHUB_ENV", name, value);
  });
}
