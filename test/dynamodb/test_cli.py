"""The tests of the command line (test/cli), once more on DynamoDB: the same commands, the same words, the same codes.

Left out is only what speaks of SQLite's own file or of the audit trail that SQLite keeps (L9: here events go to the
configured sinks).
"""
import unittest

from dynamo_support import DynamoCase, DynamoStore, TABLE_KEYS

import test_acquire
import test_list
import test_run_command
import test_run_lease
import test_run_terminal
import test_unlock


class Signs:
    """What a test of the audit trail sees here: who waits, and how often the lease has moved."""

    def setUp(self):
        super().setUp()
        self.leases_seen = []

    def events(self, key):
        waiting = self.ok("status", key).out
        lock = self.ok("status", "--json", key).json()
        if not self.leases_seen or self.leases_seen[-1] != lock["expires_at"]:
            self.leases_seen.append(lock["expires_at"])
        events = ["lock.renewed"] * (len(self.leases_seen) - 1)
        lines = waiting.partition("Waiting:")[2].splitlines()
        return events + ["wait.began"] * sum(1 for line in lines if line.strip()[:1].isdigit())


class Acquire(DynamoStore, test_acquire.Acquire):
    pass


class Holder(DynamoStore, test_acquire.Holder):
    pass


class Waiting(DynamoStore, test_acquire.Waiting):
    pass


class List(DynamoStore, test_list.List):
    def test_more_rows_than_a_batch_are_all_printed(self):
        """More than one page of a scan: an item of a lock and its metadata, many times."""
        self.acquire("key", "--meta", f"note={'x' * 900}")
        item, name = self.item("key"), TABLE_KEYS[self.LAYOUT][0]
        puts = [{"PutRequest": {"Item": {**item, name: {"S": f"copy-{n:04}"}}}} for n in range(1500)]
        for n in range(0, len(puts), 25):
            self.db("BatchWriteItem", RequestItems={self.table: puts[n:n + 25]})
        self.assertEqual(len(self.ok("list").out.splitlines()), 1 + 1500 + 1)
        locks = self.ok("list", "--json").json()["locks"]
        self.assertEqual([lock["key"] for lock in locks], sorted(lock["key"] for lock in locks))
        self.assertEqual(len(locks), 1501)


class Hostile(DynamoCase):
    """A table that others wrote to must not be able to paint on our terminal."""

    BAD = test_list.Hostile.BAD

    def setUp(self):
        super().setUp()
        self.acquire("k", "--owner-name", "MARKER", "--meta", "note=MARKER")
        self.change("k", locked_by_name={"S": self.BAD}, locked_by={"S": "\x1b[2J"},
                    metadata={"M": {"note": {"S": self.BAD}}})

    def test_control_characters_are_escaped_wherever_they_are_printed(self):
        for args in (["list"], ["status", "k"]):
            result = self.ok(*args)
            self.assertNotRegex(result.out, "[\x00-\x09\x0b-\x1f\x7f\x80-\x9f\u202e]", args)
            self.assertNotIn("\nbelay: fake", result.out)
        self.assertNotRegex(self.fails(75, "acquire", "k").err, "[\x00-\x09\x0b-\x1f\x7f\x80-\x9f\u202e]")

    def test_json_stays_json(self):
        self.assertEqual(self.fails(75, "acquire", "k", "--json").error()["lock"]["locked_by_name"], self.BAD)
        self.assertEqual(self.ok("list", "--json").json()["locks"][0]["metadata"], {"note": self.BAD})


class Status(DynamoStore, test_list.Status):
    pass


class History(DynamoCase):
    def test_says_that_none_is_kept_here_and_how_to_have_one(self):
        """L9"""
        self.acquire("k")
        for args in (["history", "k"], ["watch"]):
            result = self.belay(*args)
            self.assertNotIn(result.code, (0, 70), result)
            self.assertEqual(result.out, "")
            self.assertRegex(result.err.splitlines()[0], "^belay: .*(history|events)")
            self.assertIn("audit", result.err)


class Unlock(DynamoStore, test_unlock.Unlock):
    test_who_and_why_are_recorded = None  # in the audit trail

    def test_it_ends_as_forced(self):
        self.ok("unlock", "k", "--force", "--yes", "--reason", "the runner is gone")
        self.assertEqual(self.ok("status", "--json", "k").json()["outcome"], "forced")


class StateLocks(DynamoStore, test_unlock.StateLocks):
    pass


class RunExitCode(Signs, DynamoStore, test_run_command.ExitCode):
    pass


class RunResultFile(Signs, DynamoStore, test_run_command.ResultFile):
    pass


class RunOptions(Signs, DynamoStore, test_run_command.Options):
    pass


class RunCommand(Signs, DynamoStore, test_run_command.Command):
    pass


class RunLostLease(Signs, DynamoStore, test_run_lease.LostLease):
    pass


class RunBelayKilled(Signs, DynamoStore, test_run_lease.BelayKilled):
    pass


class RunBelayStopped(Signs, DynamoStore, test_run_lease.BelayStopped):
    pass


class RunCommandStopped(Signs, DynamoStore, test_run_lease.CommandStopped):
    pass


class RunGuardianKilled(Signs, DynamoStore, test_run_lease.GuardianKilled):
    pass


class RunWaiting(Signs, DynamoStore, test_run_lease.Waiting):
    pass


class RunOnATerminal(Signs, DynamoStore, test_run_terminal.OnATerminal):
    pass


if __name__ == "__main__":
    unittest.main()
