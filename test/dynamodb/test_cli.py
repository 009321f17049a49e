"""The tests of the command line (test/cli), once more on DynamoDB: the same commands, the same words, the same codes.

Left out is only what speaks of SQLite's own file or of the audit trail that SQLite keeps (L9: here events go to the
configured sinks).
"""
import json
import unittest

from dynamo_support import DynamoCase, DynamoStore, TABLE_KEYS
from support import wait_until

import test_acquire
import test_estimate
import test_kinds
import test_list
import test_run_command
import test_run_lease
import test_run_terminal
import test_unlock


class Signs:
    """Replaces the audit trail here: the waiters, and how often the lease was renewed."""

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


class Quick(DynamoStore):
    """One machine has one clock: so short leases are as good here as on SQLite."""

    EXTRA = "max_clock_skew=10ms"


class Acquire(Quick, test_acquire.Acquire):
    def test_a_refused_client_sees_the_holder_and_since_when(self):
        """S0.1, S2.3; the service's clock is known to the second, so a new lease may seem whole."""
        self.acquire("terraform-prod", "--owner", "execution-abc123")
        lines = self.fails(75, "acquire", "terraform-prod").err.splitlines()
        self.assertRegex(lines[0], r"^belay: lock 'terraform-prod' held by execution-abc123 until "
                                   r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ \((9m 5\ds|10m) left\)$")
        self.assertRegex(lines[1], r"^  held since \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ \(.*\) by .*\(execution-abc123\)$")


class Holder(Quick, test_acquire.Holder):
    def test_an_expired_lock_is_taken_over_with_a_warning(self):
        """S1.4, S2.4: as far as it is not in the audit trail, it is in the events that one has shown."""
        old = self.acquire("k", "--ttl", "100ms", "--owner", "crashed")
        wait_until(lambda: self.ok("status", "--json", "k").json()["status"] == "expired")
        new = self.ok("acquire", "k", "--owner", "next", "--verbose")
        self.assertRegex(new.err, "lock.taken_over .* by next: its lease had ended")
        self.assertGreater(self.ok("status", "--json", "k").json()["token"], old["token"])
        self.fails(77, "release", "k", "--id", old["lock_id"])


class Waiting(Quick, test_acquire.Waiting):
    test_a_wake_file_that_somebody_truncates_does_not_end_the_waiter = None  # SQLite's own file


class List(Quick, test_list.List):
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


class Status(Quick, test_list.Status):
    def test_the_text_output_shows_every_field(self):
        lock = self.acquire("k", "--owner", "execution-abc123", "--owner-name", "alice", "--heartbeat", "1m", "--meta",
                            "ticket=42", "--correlation-id", "corr-1")
        out = self.ok("status", "k").out
        for text in ("k\n", "Status:     active", "Holder:     alice (execution-abc123)", "Since:      20",
                     "Heartbeat:  20", f"Lock id:    {lock['lock_id']}", f"Token:      {lock['token']}", "ticket=42",
                     "corr-1"):
            self.assertIn(text, out)
        self.assertRegex(out, "Expires in: (9m 5|10m)")


class History(DynamoCase):
    def test_history_says_that_none_is_kept_and_how_to_keep_one(self):
        """L9"""
        self.acquire("k")
        for args in (["history", "k"], ["watch"]):
            result = self.fails(66, *args)
            self.assertEqual((result.out, len(result.err.splitlines())), ("", 1), result)
            self.assertRegex(result.err, f"^belay: dynamodb:{self.table}.* keeps no history: .*audit: {{file: PATH}}")

    def test_there_are_no_statistics(self):
        """S4.14: an audit file has the events of one machine only, so it does not count."""
        result = self.fails(64, "stats", *self.kept_in(self.dir / "audit.jsonl"))
        self.assertRegex(result.err, f"^belay: dynamodb:{self.table}.* keeps no events, so there are no statistics; ")
        self.assertEqual(result.out, "")

    def kept_in(self, file):
        config = self.dir / "audit.yaml"
        config.write_text(f"audit: {{file: '{file}'}}\n")
        return ["--config", str(config)]

    def told(self, key, *args):
        events = self.ok("history", "--json", *args, key).json()["events"]
        return [(event["event"], event["lock_key"], event["id"]) for event in events]

    def test_history_is_read_from_the_configured_audit_file(self):
        """L9, S4.12"""
        config = self.kept_in(self.dir / "audit.jsonl")
        hostile = 'a"\\b\u202e \u00e9'
        for key in ("k", "kk", hostile):
            self.ok("run", *config, "--meta", "also=\"lock_key\":\"k\"", key, "--", "true")
        with open(self.dir / "audit.jsonl", "a", encoding="utf-8") as file:
            file.write('no JSON k\n[]\n{"lock_key":"k"}\n{"lock_key":{"k":1},"event":"x"}\n\n{"event":"lock.acq')
        for key in ("k", "kk", hostile):
            self.assertEqual(self.told(key, *config), [("lock.acquired", key, None), ("lock.released", key, None)])
        self.assertEqual(self.told("k", *config, "--limit", "1"), [("lock.released", "k", None)])
        self.assertRegex(self.ok("history", *config, "k").out, "lock.acquired .*\n.* lock.released")
        self.assertIn("no history of 'none'", self.fails(66, "history", *config, "none").err)

    def test_every_event_has_the_metadata_of_its_lock(self):
        """L9"""
        config = self.kept_in(self.dir / "audit.jsonl")
        lock = self.acquire(*config, "--meta", "user=alice", "k")
        self.fails(75, "acquire", *config, "--meta", "user=bob", "k")
        self.ok("renew", *config, "k", "--id", lock["lock_id"])
        self.ok("release", *config, "k", "--id", lock["lock_id"])
        events = self.ok("history", "--json", *config, "k").json()["events"]
        self.assertEqual([(event["event"], event["metadata"]) for event in events],
                         [("lock.acquired", {"user": "alice"}), ("lock.refused", {"user": "bob"}),
                          ("lock.renewed", {"user": "alice"}), ("lock.released", {"user": "alice"})])

    def test_history_through_a_server_is_the_same(self):
        """L9"""
        process = self.start("serve", "--json", "--listen", "127.0.0.1:0", *self.kept_in(self.dir / "audit.jsonl"))
        server = json.loads(process.stdout.readline())["listening"][0]
        for _ in range(3):
            self.ok("run", "--store", server, "k", "--", "true")
        events = [("lock.acquired", "k", None), ("lock.released", "k", None)]
        self.assertEqual(self.told("k", "--store", server), 3 * events)
        self.assertEqual(self.told("k", "--store", server, "--limit", "3"), [events[1], *events])

    def test_history_is_not_read_from_a_stream(self):
        for where, why in (("stderr", "keeps no history"), ("/dev/null", "'/dev/null' is not a file that can be read again")):
            self.assertIn(why, self.fails(66, "history", *self.kept_in(where), "k").err)


class Unlock(Quick, test_unlock.Unlock):
    test_user_and_reason_are_recorded = None  # in the audit trail

    def test_it_ends_as_forced(self):
        self.ok("unlock", "k", "--force", "--yes", "--reason", "the runner is gone")
        self.assertEqual(self.ok("status", "--json", "k").json()["outcome"], "forced")


class StateLocks(Quick, test_unlock.StateLocks):
    pass


class RunExitCode(Signs, Quick, test_run_command.ExitCode):
    PROXY = True

    def test_is_the_commands_even_if_the_lock_cannot_be_released(self):
        process, _ = self.start_command(script="while [ ! -e go ]; do sleep 0.05; done; exit 7",
                                        env={"AWS_MAX_ATTEMPTS": "1"})
        self.proxy.answer("*", 400, "AccessDeniedException", "no")
        (self.dir / "go").touch()
        _, err = process.communicate(timeout=30)
        self.assertEqual(process.returncode, 7, err)
        self.assertIn("warning: the command ended, but the lock was not released", err)


class RunResultFile(Signs, Quick, test_run_command.ResultFile):
    pass


class RunOptions(Signs, Quick, test_run_command.Options):
    pass


class ByOwner(Quick, test_acquire.ByOwner):
    pass


class Adopting(Quick, DynamoCase):
    """In a layout that does not store the ttl an adopted lock has that of its profile, and is never cut short."""

    def adopted_ttl(self, key, *acquire, run=()):
        lock = self.ok("acquire", "--json", key, "--owner", "chat", *acquire).json()
        self.ok("run", *run, "--result", str(self.dir / "result"), "--adopt", lock["lock_id"], key, "--", "true")
        return json.loads((self.dir / "result").read_text(encoding="utf-8"))["lock"]["ttl_ms"] // 10000 * 10000

    def test_the_profile_says_the_ttl_where_the_layout_does_not(self):
        for layout in ("belay", "chatops", "resource", "runvoy", "deployer"):
            with self.subTest(layout):
                self.LAYOUT = layout
                self.make_store()
                self.assertEqual(self.adopted_ttl("build-router-plt"), 600000)
                self.assertGreaterEqual(self.adopted_ttl("build-echo-plt", "--ttl", "1h"), 3580000)
                if layout != "chatops":  # whose keys have parts
                    self.assertIn(self.adopted_ttl("k"), (120000, 600000))
                    self.assertEqual(self.adopted_ttl("t", "--profile", "execution", run=("--profile", "execution")), 1800000)


class RunCommand(Signs, Quick, test_run_command.Command):
    pass


class RunLostLease(Signs, Quick, test_run_lease.LostLease):
    pass


class RunBelayKilled(Signs, Quick, test_run_lease.BelayKilled):
    pass


class RunBelayStopped(Signs, Quick, test_run_lease.BelayStopped):
    pass


class RunCommandStopped(Signs, Quick, test_run_lease.CommandStopped):
    pass


class RunGuardianKilled(Signs, Quick, test_run_lease.GuardianKilled):
    pass


class RunWaiting(Signs, Quick, test_run_lease.Waiting):
    pass


class RunOnATerminal(Signs, Quick, test_run_terminal.OnATerminal):
    # It types ahead by the time that SQLite takes; nothing in it depends on the store.
    test_in_the_background_it_leaves_the_terminal_alone = None


class Slots(Quick, test_kinds.Slots):
    pass


class Shared(Quick, test_kinds.Shared):
    pass


class ChooseWhichToUnlock(Quick, test_kinds.ChooseWhichToUnlock):
    pass


class SeveralKeys(Quick, test_kinds.SeveralKeys):
    pass


class RunSeveralKeys(Quick, test_kinds.RunSeveralKeys):
    pass


class Estimate(Quick, test_estimate.Estimate):
    """The table keeps no events: an estimate is from the audit file."""

    def past(self, holds):
        (self.dir / "audit.jsonl").write_text("".join(json.dumps(
            {"time": "2026-07-06T00:00:00.000Z", "event": "lock.released", "lock_key": key, "duration_seconds": seconds}) + "\n"
            for key, seconds in holds), encoding="utf-8")
        (self.dir / "audit.yaml").write_text(f"audit: {{file: {self.dir}/audit.jsonl}}\n", encoding="utf-8")
        (self.dir / "audit.yaml").chmod(0o600)
        self.env["BELAY_CONFIG"] = str(self.dir / "audit.yaml")


class ForeignLayouts(Quick, DynamoCase):
    def test_kinds_and_several_keys_are_refused_and_change_nothing(self):
        """L8"""
        for layout in ("resource", "runvoy", "deployer", "terraform", "awslabs", "dynamolock"):
            self.LAYOUT = layout
            self.make_store()
            for args in (["--shared", "k"], ["--slots", "2", "k"], ["k", "m"]):
                for command in (["acquire", *args], ["run", *args, "--", "touch", "ran"]):
                    with self.subTest(layout=layout, command=command):
                        self.assertIn("this store keeps exclusive locks on one key at a time", self.fails(64, *command).err)
            self.assertEqual(self.ok("list", "--all", "--json").json()["locks"], [])
        self.assertFalse((self.dir / "ran").exists())


if __name__ == "__main__":
    unittest.main()
