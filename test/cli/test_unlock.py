"""unlock, locks release and state locks (S2.7, S4.7, S4.10)."""

import getpass
import re
import socket

from support import BelayCase, main, wait_until

DAY = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC"


class Unlock(BelayCase):
    def setUp(self):
        super().setUp()
        self.lock = self.acquire("k", "--owner", "github-actions-run-12345")

    def status(self):
        return self.ok("status", "--json", "k").json()["status"]

    def test_the_dialogue_is_that_of_the_document(self):
        terminal = self.terminal("unlock", "k", "--force", "--reason", "it hangs", "--no-color")
        terminal.expect("Are you sure? (yes/no): ")
        self.assertEqual(self.status(), "active")
        terminal.send("yes\n")
        self.assertEqual(terminal.finish(), 0)
        self.assertRegex(terminal.text, r"^⚠ Warning: This will forcefully release the lock\.\n"
                                        r"  Current holder: .*github-actions-run-12345\)?\n"
                                        r"  Locked since: " + DAY + r"\n"
                                        r"\nAre you sure\? \(yes/no\): yes\n"
                                        r"\n✓ Lock released successfully\n$")
        self.assertEqual(self.status(), "released")

    def test_it_tells_when_a_running_holder_learns_of_it(self):
        self.assertNotIn("heartbeat", self.ok("unlock", "k", "--force", "--yes").err)
        self.acquire("k", "--heartbeat", "1m")
        self.assertIn("learn of it with their next heartbeat", self.ok("unlock", "k", "--force", "--yes").err)

    def test_user_and_reason_are_recorded(self):
        self.ok("unlock", "k", "--force", "--yes", "--reason", "the runner is gone")
        event = self.ok("history", "k", "--json").json()["events"][-1]
        self.assertEqual(event["event"], "lock.forced")
        self.assertEqual(event["by"], f"{getpass.getuser()}@{socket.gethostname()}")
        self.assertEqual(event["reason"], "the runner is gone")
        self.assertEqual(event["locked_by"], "github-actions-run-12345")
        self.assertEqual(self.ok("status", "--json", "k").json()["outcome"], "forced")

    def test_anything_but_yes_changes_nothing(self):
        for answer in ("no\n", "y\n", "\n", "yess\n", "\x04"):
            terminal = self.terminal("unlock", "k", "--force")
            terminal.expect("(yes/no): ")
            terminal.send(answer)
            self.assertEqual(terminal.finish(), 77)
            self.assertIn("belay: not confirmed: nothing was changed", terminal.text)
        self.assertEqual(self.status(), "active")

    def test_without_force_it_only_shows_the_holder(self):
        result = self.fails(64, "unlock", "k", "--yes")
        self.assertIn("add --force", result.err)
        self.assertIn("github-actions-run-12345", result.err)
        error = self.fails(64, "unlock", "k", "--json").error()
        self.assertEqual(error["lock"]["locked_by"], "github-actions-run-12345")
        self.assertEqual(self.status(), "active")

    def test_without_a_terminal_it_needs_yes(self):
        self.assertIn("add --yes", self.fails(64, "unlock", "k", "--force", text="yes\n").err)
        self.assertEqual(self.status(), "active")
        self.assertEqual(self.ok("unlock", "k", "--force", "--yes").out, "✓ Lock released successfully\n")
        self.assertEqual(self.status(), "released")

    def test_a_later_holder_keeps_its_lock(self):
        """L3"""
        terminal = self.terminal("unlock", "k", "--force")
        terminal.expect("(yes/no): ")
        self.ok("release", "k", "--id", self.lock["lock_id"])
        later = self.acquire("k", "--owner", "somebody-else")
        terminal.send("yes\n")
        self.assertEqual(terminal.finish(), 77)
        self.assertIn("somebody-else", terminal.text)
        self.assertEqual(self.ok("status", "--json", "k").json()["lock_id"], later["lock_id"])

    def test_a_lock_that_is_not_held_cannot_be_ended(self):
        self.fails(66, "unlock", "ghost", "--force", "--yes")
        self.ok("release", "k", "--id", self.lock["lock_id"])
        self.assertIn("lock 'k' is not held: it was released", self.fails(66, "unlock", "k", "--force", "--yes").err)

    def test_json_prints_the_ended_lock(self):
        lock = self.ok("unlock", "k", "--force", "--yes", "--json").json()
        self.assertEqual((lock["status"], lock["outcome"]), ("released", "forced"))

    def test_locks_release_does_both(self):
        """S2.7"""
        self.assertIn("add --force", self.fails(64, "locks", "release", "k").err)
        self.fails(64, "locks", "release", "k", "--force", "--id", "x")
        self.fails(77, "locks", "release", "k", "--id", "wrong")
        self.ok("locks", "release", "k", "--id", self.lock["lock_id"])
        self.assertEqual(self.ok("locks", "status", "k", "--json").json()["outcome"], "completed")
        self.acquire("k")
        self.ok("locks", "release", "k", "--force", "--yes")
        self.assertEqual(self.ok("locks", "status", "k", "--json").json()["outcome"], "forced")


class StateLocks(BelayCase):
    ARGS = ("--stack", "user-platform", "--environment", "production")

    def locks(self, *more):
        return self.ok("state", "locks", *self.ARGS, *more)

    def test_a_free_stack_is_shown_as_not_locked(self):
        self.assertEqual(self.locks().out, "Lock Status:\n  Stack: user-platform\n  Environment: production\n"
                                           "  Locked: No\n")
        self.assertEqual(self.locks("--json").json(), {"locks": [], "next_cursor": None})

    def test_a_stale_lock_looks_as_in_the_document(self):
        """S4.10, S4.7"""
        (self.dir / "belay.yaml").write_text("profiles:\n  stack: {ttl: 1h, heartbeat: 100ms, stale_after: 1s}\n")
        (self.dir / "belay.yaml").chmod(0o600)
        self.ok("acquire", *self.ARGS, "--owner", "github-actions-run-12345")
        out = wait_until(lambda: "STALE" in self.locks().out and self.locks().out)
        self.assertRegex(out, "^Lock Status:\n"
                              "  Stack: user-platform\n"
                              "  Environment: production\n"
                              "  Locked: Yes\n"
                              "  Locked by: github-actions-run-12345\n"
                              f"  Locked at: {DAY} \\(\\d seconds? ago\\)\n"
                              f"  Last heartbeat: {DAY} \\(\\d seconds? ago\\)\n"
                              "  Expires in: 59 minutes \\d+ seconds?\n"
                              "  Status: ⚠ STALE \\(no heartbeat for >\\d seconds?\\)\n$")
        self.assertIn("⚠ STALE", self.ok("status", *self.ARGS).out)
        self.assertRegex(self.ok("list", "--stale").out, r"stack:user-platform:env:production .* stale ")
        self.assertIs(self.ok("list", "--stale", "--json").json()["locks"][0]["is_stale"], True)
        terminal = self.terminal("unlock", *self.ARGS, "--force", "--no-color")
        terminal.expect("(yes/no): ")
        terminal.send("yes\n")
        self.assertEqual(terminal.finish(), 0)
        self.assertIn("Locked: No", self.locks().out)

    def test_locks_below_the_stack_are_shown_but_not_those_beside_it(self):
        self.ok("acquire", *self.ARGS, "--service", "web")
        self.acquire("stack:user-platform:env:production2")
        out = self.locks().out
        self.assertIn("Locked: No, but a part of it is", out)
        self.assertIn("\nstack:user-platform:env:production:service:web:\n  Locked: Yes\n", out)
        self.assertNotIn("production2", out)
        keys = [lock["key"] for lock in self.locks("--json").json()["locks"]]
        self.assertEqual(keys, ["stack:user-platform:env:production:service:web"])
        self.assertEqual(len(re.findall("Locked: Yes", self.locks("--service", "web").out)), 1)

    def test_state_locks_needs_a_stack_and_an_environment(self):
        self.fails(64, "state", "locks")
        self.fails(64, "state", "locks", "--stack", "s")


if __name__ == "__main__":
    main()
