"""Deployment state on S3: fencing, faults, and a server that ignores conditions. BELAY_KILL_ROUNDS: kill rounds (12)."""

import json
import os
import random
import unittest

from s3_support import S3Case, rounds
from state_support import WHERE, example


class StateOnS3(S3Case):
    def test_the_example_of_the_document_comes_back_with_nothing_lost(self):
        text, wanted = example()
        where = ("--stack", "user-platform", "--environment", "production")
        self.ok("state", "save", *where, self.write("example.json", text))
        got = self.ok("state", "load", *where).json()
        self.assertEqual([got[k] for k in ("resources", "outputs")], [wanted[k] for k in ("resources", "outputs")])
        self.ok("state", "verify", *where)
        self.assertEqual(self.ok("state", "list", "--json").json()["states"][0]["stack"], "user-platform")

    def test_saves_snapshots_and_restore(self):
        for n in range(5):  # the server's pages have three entries
            self.save({"outputs": {"n": n}})
        self.assertEqual(len(self.history()["snapshots"]), 5)
        self.ok("state", "restore", *WHERE, "4", "--yes")
        self.assertEqual(self.load()["outputs"], {"n": 1})
        self.verify()

    def test_a_paused_holder_changes_nothing_and_keeps_its_work(self):
        self.paused_holder()

    def test_errors_name_the_fault(self):
        endpoint = f"http://127.0.0.1:{self.s3.port}"
        result = self.fails(78, "state", "save", *WHERE, self.write("x.json", {}),
                            env={"BELAY_STATE_STORE": f"s3://nowhere?endpoint={endpoint}"})
        self.assertIn("there is no bucket 'nowhere'", result.err)
        result = self.fails(77, "state", "load", *WHERE, env={"AWS_SECRET_ACCESS_KEY": "wrong"})
        self.assertIn("signature", result.err)
        self.fails(66, "state", "load", *WHERE)
        self.assertIn("is not known", self.fails(64, "state", "load", *WHERE, env={"BELAY_STATE_STORE": "s3://states?x=1"}).err)
        self.fails(69, "state", "load", *WHERE, env={"BELAY_STATE_STORE": "s3://states?endpoint=http://127.0.0.1:9"})


class WithAnswersDropped(S3Case):
    SERVER = ("conditions", "--drop", "0.06", "--conflict", "0.06")

    def test_no_acknowledged_save_is_lost_and_the_state_is_always_sound(self):
        seed = int(os.environ.get("BELAY_KILL_SEED") or random.randrange(10**6))
        self.kill_rounds(rounds(), seed)

    def test_every_save_counts_once(self):
        for n in range(1, 13):
            self.save({"outputs": {"n": n}})
            state = self.load()
            self.assertEqual((state["outputs"]["n"], state["metadata"]["serial"]), (n, n))


class ThatIgnoresConditions(S3Case):
    SERVER = ("s3rver",)

    def test_it_is_refused_by_name_and_nothing_is_saved(self):
        keys = {"AWS_ACCESS_KEY_ID": "S3RVER", "AWS_SECRET_ACCESS_KEY": "S3RVER"}
        result = self.fails(78, "state", "save", *WHERE, self.write("x.json", {}), env=keys)
        self.assertIn("ignores If-None-Match on PUT", result.err)
        self.assertIn(str(self.s3.port), result.err)
        self.fails(66, "state", "load", *WHERE, env=keys)
        self.assertEqual(json.loads(self.ok("state", "list", "--json", env=keys).out), {"states": []})


if __name__ == "__main__":
    unittest.main()
