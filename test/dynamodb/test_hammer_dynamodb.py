"""The hammering of test/cli/test_hammer.py on DynamoDB, plain and with a proxy that does harm of its own (L1, L2, L5).

Sixteen processes, one key, a counter behind a fence, and a thread that kills and stops them. Through the proxy one
request in twenty loses its answer after it was applied, one is throttled, and one gets a 500, applied or not.

BELAY_HAMMER_SECONDS says for how long (20 each).
"""
import os
import random
import shutil
import subprocess
import tempfile
import time
import unittest

from dynamo_support import CREDENTIALS, Database, REGION, server_port
from proxy import Plan, Proxy

import test_hammer
from test_hammer import Hammer, lost_updates

SECONDS = float(os.environ.get("BELAY_HAMMER_SECONDS", "20"))
TTL_MS = 1000
# Exit 69 and 74: what went wrong four times in a row. Nothing ran then, or the lock is left to expire.
EXPECTED_BY_HARM = test_hammer.EXPECTED | {69, 74}


class DynamoHammer(Hammer):
    def __init__(self, directory, seconds, seed, store):
        super().__init__(directory, seconds, seed, **CREDENTIALS)
        self.env["BELAY_STORE"] = store

    def command(self):
        return [test_hammer.BELAY, "run", "--ttl", f"{TTL_MS}ms", "--heartbeat", "250ms", "--wait", "60s", "hammer",
                "--", "sh", "-c", test_hammer.WRITER, "writer", self.directory]


class HammerTest(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.mkdtemp(prefix="belay-hammer-")
        self.addCleanup(shutil.rmtree, self.directory, True)
        self.seed = int(os.environ.get("BELAY_HAMMER_SEED", str(random.SystemRandom().randrange(1 << 30))))
        self.port = server_port()
        self.db = Database(self.port)
        self.addCleanup(self.db.close)
        self.table = f"hammer-{os.getpid()}-{self.seed}"
        self.db.create(self.table)
        self.addCleanup(self.db.ask, "DeleteTable", {"TableName": self.table})

    def store(self, port):
        # One machine, one clock: a margin of 100 ms lets the leases be as short as on SQLite.
        return f"dynamodb:{self.table}?region={REGION}&endpoint=http://127.0.0.1:{port}&max_clock_skew=100ms"

    def hammer(self, port, told):
        """No update is lost, and tokens only grow."""
        hammer = DynamoHammer(self.directory, SECONDS, self.seed, self.store(port))
        hammer.is_enough = lambda: len(hammer.writes()) > SECONDS / 4 and len(hammer.deeds) == 4
        hammer.run()
        writes = hammer.writes()
        tokens = [token for token, _ in writes]
        with open(os.path.join(self.directory, "refused"), encoding="ascii") as file:
            refused = len(file.readlines())
        told = (f"seed {self.seed}, {len(writes)} writes, {refused} refused by the fence, codes {hammer.codes}, "
                f"deeds {hammer.deeds}, {told()}")
        print(told, flush=True)
        self.assertEqual(lost_updates([value for _, value in writes]), 0, told)
        self.assertTrue(all(a < b for a, b in zip(tokens, tokens[1:])), told)  # L2
        begun = [token for what, token, _, _ in hammer.lines() if what == "begin"]
        self.assertTrue(all(a < b for a, b in zip(begun, begun[1:])), told)
        # There was enough load: waiters poll every 2 s or sooner, and wait for killed holders.
        self.assertGreater(len(writes), SECONDS / 4, told)
        self.assertEqual(len(hammer.deeds), 4, told)
        return hammer, told

    def after(self):
        """L4: afterwards the lock is free."""
        env = dict(os.environ, **CREDENTIALS, BELAY_STORE=self.store(self.port))
        done = subprocess.run([test_hammer.BELAY, "run", "--wait", "30s", "hammer", "--", "true"], env=env,
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_no_update_is_lost_and_tokens_only_grow(self):
        hammer, told = self.hammer(self.port, lambda: "no proxy")
        self.assertEqual(hammer.odd[:5], [], told)
        self.after()

    def test_no_update_is_lost_with_lost_answers_throttling_and_500s(self):
        plan = Plan(seed=self.seed, cut_after=0.05, throttle=0.05, error_before=0.025, error_after=0.025)
        with Proxy(self.port, plan) as proxy:
            hammer, told = self.hammer(proxy.port, lambda: f"{proxy.counts()}, harm {proxy.harmed}")
            self.assertEqual([odd for odd in hammer.odd if odd[0] not in EXPECTED_BY_HARM][:5], [], told)
            self.assertEqual(set(proxy.harmed), {"cut_after", "throttle", "error_before", "error_after"}, told)
            self.assertGreater(sum(proxy.harmed.values()), 0.1 * sum(proxy.counts().values()), told)
        time.sleep(0.1)
        self.after()


if __name__ == "__main__":
    unittest.main()
