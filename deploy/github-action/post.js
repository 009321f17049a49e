// Release the lock, whatever became of the job. The runner runs this step also after a failure and a cancellation.
const { spawnSync } = require("node:child_process");
const { environment, fail, input, mask } = require("./runner.js");

const token = input("token");
const key = process.env.STATE_key;
const id = process.env.STATE_lock_id;

mask(token);
if (key && id) {
  const done = spawnSync(input("belay") || "belay", ["release", key, "--id", id],
    { env: environment(input("store"), token), stdio: ["ignore", "inherit", "pipe"], encoding: "utf8" });
  // 66 and 77: the main step did not get the lock, or it has expired: there is nothing to release.
  if (done.error) fail(`cannot start belay: ${done.error.message}`);
  else if (![0, 66, 77].includes(done.status)) fail(`the lock '${key}' was not released: ${done.stderr.trim()}`);
}
