// Events of the past, and many locks, in a store that no server has open: no command of belay makes them.

import { execFileSync } from "node:child_process";

const INSERT = `
import json, sqlite3, sys
db = sqlite3.connect(sys.argv[1])
first = db.execute("SELECT coalesce(max(id), 0) FROM events").fetchone()[0] + 1
for n, one in enumerate(json.load(sys.stdin)):
    level = 1 if one["type"] in ("lock.forced", "lock.taken_over") else 0
    db.execute("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, NULL)",
               (first + n, one["at"], level, one["type"], one["key"], one.get("id", "old"), one.get("token", 0), one["who"], one["who"], one.get("by"),
                one.get("reason"), one.get("ms", -1)))
db.commit()
`;

/** `events`: {at, type, key, who, token, by, reason, ms}, in any order. */
export function addPast(server, events) {
  execFileSync("python3", ["-c", INSERT, `${server.dir}/belay.db`], { input: JSON.stringify([...events].sort((a, b) => a.at - b.at)) });
}

let token = 1;

/** A hold, and the wait before it, as the store records them. */
export function past(key, who, from, to, { waited = 0, end = "lock.released", by, reason = end === "lock.released" ? "completed" : undefined } = {}) {
  token++;
  const events = [{ at: from, type: "lock.acquired", key, who, token }, { at: to, type: end, key, who, token, by, reason, ms: end === "lock.taken_over" ? -1 : to - from }];
  return waited > 0 ? [{ at: from - waited, type: "wait.began", key, who }, { at: from, type: "wait.ended", key, who, ms: waited, reason: "acquired" }, ...events] : events;
}

const COPY = `
import sqlite3, sys
db = sqlite3.connect(sys.argv[1])
names = [column[1] for column in db.execute("PRAGMA table_info(locks)")]
row = dict(zip(names, db.execute("SELECT * FROM locks WHERE held").fetchone()))
for i in range(1, int(sys.argv[2])):
    copy = {**row, "key": f"job/service-{i:05}", "lock_id": f"copy-{i}"}
    db.execute(f"INSERT INTO locks VALUES ({', '.join('?' * len(names))})", list(copy.values()))
db.commit()
`;

/** So many locks like the one that is held: acquiring five thousand one by one takes a busy machine a minute. */
export function copyLocks(server, many) {
  execFileSync("python3", ["-c", COPY, `${server.dir}/belay.db`, String(many)]);
}
