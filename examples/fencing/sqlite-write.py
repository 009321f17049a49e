#!/usr/bin/env python3
"""sqlite-write.py FILE VALUE: one transaction, fenced."""
import os
import sqlite3
import sys

db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("CREATE TABLE IF NOT EXISTS fence (resource TEXT PRIMARY KEY, token INTEGER NOT NULL)")
db.execute("BEGIN IMMEDIATE")
passed = db.execute("INSERT INTO fence VALUES (?, ?) ON CONFLICT (resource) DO UPDATE SET token = excluded.token "
                    "WHERE token <= excluded.token", (os.environ["BELAY_KEY"], int(os.environ["BELAY_TOKEN"]))).rowcount
if not passed:
    sys.exit("token " + os.environ["BELAY_TOKEN"] + " is too old")
db.execute("UPDATE settings SET value = ? WHERE name = 'release'", (sys.argv[2],))
db.execute("COMMIT")
