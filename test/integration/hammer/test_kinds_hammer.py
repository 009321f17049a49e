"""Locks of every kind, many processes, and a tester that kills and stops them: on each store (L1, L2, L4).

kinds_hammer does the work and finds the faults; its head says how. Here are the stores, and the servers that are
killed with -9 and started again meanwhile.

BELAY_HAMMER_SECONDS is the duration of each case (10); BELAY_HAMMER_SEED repeats a choice of harm.
"""
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "test" / "dynamodb"), str(ROOT / "test" / "support")]
import postgresql  # noqa: E402
from dynamo_support import CREDENTIALS, REGION, Database, server_port  # noqa: E402

SECONDS = float(os.environ.get("BELAY_HAMMER_SECONDS", "10"))
PROGRAM = os.environ.get("BELAY_KINDS_HAMMER", str(ROOT / "build/plain/kinds_hammer"))
BELAY = os.environ.get("BELAY_BIN", str(ROOT / "build/plain/belay"))
MORE_TIME = 6  # of kinds_hammer: so many times SECONDS on a slow machine
PATIENCE = 240  # more than a process may wait for a lock


class Server:
    """A `belay serve`, which can be killed and comes back at the same address."""

    def __init__(self, store, env):
        self.store, self.env = store, env
        self.port = 0
        self.process = None
        self.kills = 0
        self.start()

    def start(self):
        until = time.monotonic() + 90
        while True:
            self.process = subprocess.Popen([BELAY, "serve", "--json", "--store", self.store, "--listen",
                                             f"127.0.0.1:{self.port}"], env=self.env, stdin=subprocess.DEVNULL,
                                            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            line = self.process.stdout.readline()
            if line:
                self.port = int(json.loads(line)["listening"][0].rsplit(":", 1)[1])
                return
            self.end()
            if time.monotonic() > until:
                raise AssertionError("the server does not start again")
            time.sleep(0.05)

    def kill(self):
        self.kills += 1
        self.process.kill()
        self.end()

    def end(self):
        self.process.terminate()
        self.process.wait(90)
        self.process.stdout.close()


class KindsHammer(unittest.TestCase):
    def setUp(self):
        self.dir = Path(tempfile.mkdtemp(prefix="belay-kinds-"))
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)
        self.file = f"sqlite:{self.dir}/locks.db"
        self.env = {"PATH": os.environ["PATH"], "HOME": str(self.dir), "XDG_STATE_HOME": str(self.dir), "LC_ALL": "C"}
        self.seed = int(os.environ.get("BELAY_HAMMER_SEED") or random.SystemRandom().randrange(1 << 30))
        self.random = random.Random(self.seed)

    def hammer(self, store, server=None, ttl_ms=600, processes=12):
        """Run the program; kill the server, if there is one, every one or two seconds but the last three."""
        process = subprocess.Popen([PROGRAM, store, str(SECONDS), str(self.seed), str(ttl_ms), str(processes)],
                                   env=self.env, cwd=self.dir, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.kill)
        until = time.monotonic() + SECONDS - 3
        while server is not None and time.monotonic() < until:
            time.sleep(self.random.uniform(1, 2))
            server.kill()
            time.sleep(self.random.uniform(0, 0.3))
            server.start()
        out = process.communicate(timeout=MORE_TIME * SECONDS + PATIENCE)[0]
        told = f"seed {self.seed}, {server.kills if server else 0} servers killed: {out}"
        print(told, flush=True)
        self.assertEqual(process.returncode, 0, told)
        self.assertTrue(out.endswith("\n0 faults\n"), told)

    def serve(self, store=None):
        server = Server(store or self.file, self.env)
        self.addCleanup(server.end)
        return server

    def test_on_a_file(self):
        self.hammer(self.file)

    def test_through_a_server_that_is_killed(self):
        server = self.serve()
        self.hammer(f"http://127.0.0.1:{server.port}", server)
        self.assertGreater(server.kills, 0)

    def test_on_a_file_whose_server_is_killed(self):
        """Its processes are redirected to the server's socket, and recover the file when there is none."""
        server = self.serve()
        self.hammer(self.file, server)
        self.assertGreater(server.kills, 0)

    def test_on_dynamodb(self):
        port = server_port()
        table = f"kinds-{os.getpid()}"
        database = Database(port)
        self.addCleanup(database.close)
        database.create(table)
        self.addCleanup(database.ask, "DeleteTable", {"TableName": table})
        self.env.update(CREDENTIALS)
        # One machine, one clock: a margin of 100 ms lets the leases be short. Waiters poll every 2 s, so a long
        # queue would make few locks in all.
        store = f"dynamodb:{table}?region={REGION}&endpoint=http://127.0.0.1:{port}&max_clock_skew=100ms"
        self.hammer(store, ttl_ms=1200, processes=6)

    def postgresql(self):
        """The URL of a new database. One machine has one clock."""
        server = postgresql.Server()
        self.addCleanup(server.close)
        server.init().start()
        store = f"{server.url}?max_clock_step=10ms"
        subprocess.run([BELAY, "table", "create", "--quiet", "--store", store], env=self.env, check=True)
        return store

    def test_on_postgresql(self):
        self.hammer(self.postgresql())

    def test_through_two_servers_on_postgresql_of_which_one_is_killed(self):
        store = self.postgresql()
        front, other = self.serve(store), self.serve(store)
        self.hammer(f"http://127.0.0.1:{front.port},http://127.0.0.1:{other.port}", front)
        self.assertGreater(front.kills, 0)


if __name__ == "__main__":
    unittest.main()
