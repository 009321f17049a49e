// Prints the events of locks as they happen, through restarts of the server:
//
//     BELAY_STORE=http://127.0.0.1:7420 node watch.mjs deploy-

import { connect } from "../index.js";

const stream = connect().events({ prefix: process.argv[2] });
process.once("SIGINT", () => stream.close());
for await (const { timestamp, event, lock_key: key, locked_by: owner } of stream) {
  console.log(`${timestamp} ${event} ${key} ${owner ?? ""}`);
}
