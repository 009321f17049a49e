// A chat bot that builds: "/build router plt" by several people at a time starts one build, and the others are told who is at it.
//
//     BELAY_STORE=http://127.0.0.1:7420 BUILD=./build.sh node chatbot.mjs
//
// Each line of standard input is USER NAME /build COMPONENT ENVIRONMENT. The bot acquires the lock and puts a job with its lock id
// into a queue. A worker exchanges the id for one of its own, so a job that is delivered twice is built once.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { pathToFileURL } from "node:url";
import { createInterface } from "node:readline";
import { InvalidError, LockHeldError, LockLostError, connect } from "../index.js";

const client = connect();

/** The bot: answers a line of the chat, and calls `enqueue` with a job. */
export async function hear({ user, name, text, correlationId }, enqueue) {
  const [command, component, environment] = text.split(/\s+/);
  if (command !== "/build") {
    return `${name}: write /build COMPONENT ENVIRONMENT`;
  }
  try {
    const parts = { profile: "build", component, environment };
    const lock = await client.acquire(parts, { owner: user, ownerName: name, correlationId, heartbeat: false });
    enqueue({ key: lock.key, lockId: lock.detach(), component, environment });
    return `${name}: building ${component} for ${environment}`;
  } catch (error) {
    if (error instanceof LockHeldError) {
      return `${name}: ${error.lock.locked_by_name} is building ${component} since ${error.lock.locked_at}`;
    }
    if (error instanceof InvalidError) {
      return `${name}: ${error.message}`; // names the components and environments that there are
    }
    throw error;
  }
}

/** The worker: `run` builds, and ends when its signal aborts. Returns what became of the job. */
export async function work(job, run) {
  let lock;
  try {
    lock = await client.adopt(job.key, job.lockId, { owner: `worker-${process.pid}` });
  } catch (error) {
    if (error instanceof LockLostError) {
      return "skipped"; // delivered twice, or too late
    }
    throw error;
  }
  try {
    await run(job, lock);
  } catch (error) {
    await lock.release({ outcome: "failed" }).catch(() => {}); // if it was lost, there is nothing to release
    return `failed: ${error.message}`;
  }
  await lock.release();
  return "completed";
}

/** Runs the command in BUILD; the token lets a registry reject a build that lost its lock. */
async function build({ component, environment }, { token, signal }) {
  const [code] = await once(spawn(process.env.BUILD, [component, environment], { signal, env: { ...process.env, BELAY_TOKEN: String(token) } }), "exit");
  if (code !== 0) {
    throw new Error(`exit code ${code}`);
  }
}

if (import.meta.url === pathToFileURL(process.argv[1]).href) {
  let message = 0;
  for await (const line of createInterface({ input: process.stdin })) {
    const [, user, name, text] = /^(\S+) (\S+) (.*)$/.exec(line) ?? ["", "?", "?", line];
    const enqueue = (job) => work(job, build).then((outcome) => console.log(`${name}: ${job.component}: ${outcome}`));
    console.log(await hear({ user, name, text, correlationId: `message-${++message}` }, enqueue));
  }
}
