// Release the lock, whatever became of the job. The runner runs this step also after a failure and a cancellation.
const { spawnSync } = require("node:child_process");
const fs = require("node:fs");
const { isAlive } = require("./processes.js");
const { environment, fail, input, mask, renewalLog } = require("./runner.js");

const token = input("token");
const key = process.env.STATE_key;
const id = process.env.STATE_lock_id;
const acquirer = process.env.STATE_acquirer;
const renewer = process.env.STATE_renewer;

const GRACE_MS = 5000;

// Returns when the process is gone: what it does last must not come after the release.
function end(identity) {
  const pid = Number(identity.split(":")[0]);
  const killAt = Date.now() + GRACE_MS;
  if (isAlive(identity)) process.kill(pid);
  while (isAlive(identity)) {
    if (Date.now() > killAt) process.kill(pid, "SIGKILL");
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 20);
  }
}

// Ends the process that renews, and shows what it met: a server that was away for a while, or the loss of the lock.
function endRenewals() {
  end(renewer);
  try {
    process.stderr.write(fs.readFileSync(renewalLog(id), "utf8"));
    fs.rmSync(renewalLog(id));
  } catch (error) {
    process.stderr.write(`${error.message}\n`);
  }
}

function release() {
  const done = spawnSync(input("belay") || "belay", ["release", key, "--id", id],
    { env: environment(input("store"), token), stdio: ["ignore", "inherit", "pipe"], encoding: "utf8" });
  if (done.error) fail(`cannot start belay: ${done.error.message}`);
  else if ([66, 77].includes(done.status)) {
    // There is nothing to release. Without a renewer, the main step did not get the lock.
    if (renewer) fail(`the lock '${key}' was lost before the job ended: ${done.stderr.trim()}`);
  } else if (done.status !== 0) fail(`the lock '${key}' was not released: ${done.stderr.trim()}`);
}

mask(token);
if (acquirer) end(acquirer);
if (renewer) endRenewals();
if (key && id) release();
