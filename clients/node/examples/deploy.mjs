// Runs a command while it holds a lock, and ends it if the lock is lost:
//
//     BELAY_STORE=http://127.0.0.1:7420 node deploy.mjs deploy-api-prod ./deploy.sh

import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { LockHeldError, connect } from "../index.js";

const [key, command, ...words] = process.argv.slice(2);
try {
  await connect().withLock(key, { ttl: "2m", wait: "10m" }, async (lock, signal) => {
    const { stdout } = await promisify(execFile)(command, words, { signal, env: { ...process.env, BELAY_TOKEN: String(lock.token) } });
    process.stdout.write(stdout);
  });
} catch (error) {
  console.error(error.message);
  process.exitCode = error instanceof LockHeldError ? 75 : 1;
}
