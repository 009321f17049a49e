// Renew the lease while the job runs: node renew.js KEY LOCK_ID TTL_MS JOB BELAY, started by main.js in the background.
// It ends when the post step ends it, when the process of the job (JOB, as processes.js identifies it) is gone, or when
// the lock is lost. Its output is a file that the post step shows.
const { spawn } = require("node:child_process");
const { isAlive } = require("./processes.js");

const [key, id, ttl, job, belay] = process.argv.slice(2);
const period = Number(ttl) / 4;
const LOST = [66, 77]; // no such lock; not the holder, or the lease has expired

function renew() {
  const child = spawn(belay, ["renew", key, "--id", id], { stdio: ["ignore", "ignore", "inherit"] });
  child.on("error", (error) => {
    console.error(`cannot start belay: ${error.message}`);
    setTimeout(renew, period / 4);
  });
  child.on("exit", (code) => {
    if (LOST.includes(code)) process.exit(1);
    // The store may be back before the lease ends.
    setTimeout(renew, code === 0 ? period : period / 4);
  });
}

setTimeout(renew, period);
// Without a process to watch, as the first one of a container, this one ends with the container.
if (Number(job.split(":")[0]) > 1) setInterval(() => { if (!isAlive(job)) process.exit(0); }, Math.min(period, 2000));
