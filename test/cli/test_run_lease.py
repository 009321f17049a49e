"""`belay run` when the lease, belay or the guardian is lost (L6; issue 2: a belay that is itself stopped or
killed with -9 does not leave COMMAND running unprotected)."""

import ctypes
import os
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from run_support import RunCase, children_of, is_running, state_of
from support import BELAY, PATIENCE, main, wait_until

# Notes its own pid, that of a child in its group, and of one that left group and session; none heeds TERM.
STUBBORN = ("trap '' TERM HUP; "
            "sh -c 'trap \"\" TERM; echo $$ >child; while :; do sleep 0.1; done' & "
            "setsid sh -c 'trap \"\" TERM; echo $$ >away; while :; do sleep 0.1; done' & "
            "(setsid sh -c 'trap \"\" TERM; echo $$ >orphan; while :; do sleep 0.1; done' &) ; "
            "while :; do sleep 0.1; done")
POLITE = "trap 'echo told >told; exit 0' TERM; while :; do sleep 0.05; done"


class LostLease(RunCase):
    def force(self, key="k"):
        self.ok("unlock", key, "--force", "--yes", "--reason", "test")

    def test_ends_the_command_with_term_and_exits_76(self):
        process, command = self.start_command("--ttl", "10s", "--result", "out.json", script=POLITE)
        self.force()
        _, err = process.communicate(timeout=PATIENCE)
        self.assertEqual(process.returncode, 76, err)
        self.assertTrue(self.has("told"))
        self.assertIn("lost the lock 'k'", err)
        self.assertIn('"result":"lost"', self.read("out.json").replace(": ", ":"))
        self.assert_gone(command)

    def test_ends_with_kill_a_command_that_ignores_term_and_all_that_it_started(self):
        process, command = self.start_command("--ttl", "10s", "--kill-after", "100ms", script=STUBBORN)
        others = [self.pid_in(name) for name in ("child", "away", "orphan")]
        self.force()
        self.assertEqual(process.wait(PATIENCE), 76)
        for pid in [command, *others]:  # belay reports it only when no process is left
            self.assertFalse(is_running(pid))

    def test_by_force_is_noticed_at_once_whatever_the_heartbeat(self):
        """L6: that of the profile execution is 24 minutes."""
        process, command = self.start_command("--profile", "execution", "--owner", "job", script=POLITE)
        time.sleep(0.5)
        began = time.monotonic()
        self.force()
        _, err = process.communicate(timeout=PATIENCE)
        self.assertLess(time.monotonic() - began, 7)  # not by a look every 8 s
        self.assertEqual(process.returncode, 76, err)
        self.assertIn("lost the lock 'k': lock 'k' was released by force; ending the command", err)
        self.assert_gone(command)

    def test_by_release_or_adoption_elsewhere_is_noticed_at_once(self):
        for command in (["release", "k", "--id"], ["run", "k", "--adopt"]):
            (self.dir / "pid").unlink(missing_ok=True)
            process, _ = self.start_command("--ttl", "1h", "--id", command[0], script=POLITE)
            self.ok(*command, command[0], *(["--", "true"] if command[0] == "run" else []))
            _, err = process.communicate(timeout=PATIENCE)
            self.assertEqual(process.returncode, 76, err)

    def test_is_noticed_at_the_release_of_a_short_command(self):
        process, _ = self.start_command(script="while [ ! -e go ]; do sleep 0.05; done; exit 0")
        self.force()
        (self.dir / "go").touch()
        self.assertEqual(process.wait(PATIENCE), 76)

    def test_does_not_happen_while_belay_renews(self):
        self.assertEqual(self.belay("run", "--ttl", "10s", "k", "--", "sleep", "12").code, 0)
        self.assertEqual(self.status("k")["outcome"], "completed")


class BelayKilled(RunCase):
    def test_ends_the_command_and_releases_the_lock_once_it_is_gone(self):
        process, command = self.start_command("--ttl", "10s", "--kill-after", "300ms", script=STUBBORN)
        others = [self.pid_in(name) for name in ("child", "away", "orphan")]
        killed = time.monotonic()
        process.kill()
        while not self.is_free("k"):
            self.assertLess(time.monotonic() - killed, PATIENCE)
        # L1: free means that nothing of it runs any more.
        for pid in [command, *others]:
            self.assertFalse(is_running(pid))
        self.assertEqual(self.status("k")["outcome"], "failed")

    def test_does_not_leave_a_long_lease_behind(self):
        process, command = self.start_command("--ttl", "10m", script=POLITE)
        process.kill()
        self.assert_gone(command)
        wait_until(lambda: self.is_free("k"), "the release")
        self.assertTrue(self.has("told"))

    def test_with_its_whole_group_does_not_reach_the_guardian(self):
        process, command = self.start_command("--ttl", "10m", script=POLITE, start_new_session=True)
        os.killpg(process.pid, signal.SIGKILL)
        self.assert_gone(command)
        wait_until(lambda: self.is_free("k"), "the release")

    def test_by_its_command_line_does_not_reach_the_guardian(self):
        process, _ = self.start_command("--ttl", "10m", script=POLITE)
        guardian = self.guardian_of(process.pid)

        def title():
            with open(f"/proc/{guardian}/cmdline", "rb") as file:
                return file.read()
        wait_until(lambda: b"run" not in title(), "a title of the guardian's own")

    def test_while_it_waits_runs_nothing_and_leaves_the_queue(self):
        self.acquire("k", "--ttl", "5m")
        process = self.start("run", "--wait", "1m", "k", "--", "touch", "ran")
        guardian = self.guardian_of(process.pid)
        wait_until(lambda: "wait.began" in self.events("k"), "the wait")
        process.kill()
        self.assert_gone(guardian)
        self.assertFalse(self.has("ran"))

    def test_together_with_the_guardian_takes_the_command_along(self):
        process, command = self.start_command("--ttl", "10m", script="exec sleep 60")
        guardian = self.guardian_of(process.pid)
        process.send_signal(signal.SIGSTOP)
        os.kill(guardian, signal.SIGKILL)
        process.kill()
        self.assert_gone(command)


class BelayStopped(RunCase):
    def test_past_its_lease_has_its_command_ended_by_the_deadline(self):
        process, command = self.start_command("--ttl", "2s", "--kill-after", "400ms", script=STUBBORN)
        others = [self.pid_in(name) for name in ("child", "away", "orphan")]
        process.send_signal(signal.SIGSTOP)
        # Another client gets the lock when it expires (L4), and no process of the old holder is running.
        self.ok("run", "--wait", "20s", "k", "--", "sh", "-c",
                "for p in $(cat pid child away orphan); do grep -s '^State:' /proc/$p/status; done >seen; exit 0")
        alive = [line for line in self.read("seen").splitlines() if line.split()[1] not in "ZX"]
        self.assertEqual(alive, [])
        self.assert_gone(command, *others)
        process.send_signal(signal.SIGCONT)
        self.assertEqual(process.wait(PATIENCE), 76)

    def test_within_its_lease_changes_nothing(self):
        process, command = self.start_command("--ttl", "10s", script="while [ ! -e go ]; do sleep 0.05; done; exit 3")
        process.send_signal(signal.SIGSTOP)
        wait_until(lambda: state_of(process.pid) == "T")
        process.send_signal(signal.SIGCONT)
        (self.dir / "go").touch()
        self.assertEqual(process.wait(PATIENCE), 3)

    def test_sends_term_to_its_command_before_the_deadline(self):
        process, command = self.start_command("--ttl", "2s", script=POLITE)
        process.send_signal(signal.SIGSTOP)
        self.assert_gone(command)
        self.assertTrue(self.has("told"))
        process.send_signal(signal.SIGCONT)
        self.assertEqual(process.wait(PATIENCE), 76)


class CommandStopped(RunCase):
    TTL = "10s"

    def test_by_a_signal_keeps_its_lease_and_does_not_stop_the_shell(self):
        # The shell and its sleep are in belay's group, as in a script.
        (self.dir / "script").write_text(
            f'"{BELAY}" run --ttl {self.TTL} k -- sh -c \'echo $$ >pid; while [ ! -e go ]; do sleep 0.05; done; exit 4\' & '
            "echo $! >belay; wait $!; echo $? >code\n", encoding="utf-8")
        script = subprocess.Popen(["sh", self.path("script")], env=self.env, cwd=self.dir, start_new_session=True)
        self.addCleanup(self.end, script)
        command, belay = self.pid_in("pid"), self.pid_in("belay")
        os.kill(command, signal.SIGSTOP)
        wait_until(lambda: state_of(command) == "T")
        before = self.events("k").count("lock.renewed")
        wait_until(lambda: self.events("k").count("lock.renewed") >= before + 5, "more renewals than a lease lasts")
        self.assertNotEqual(state_of(belay), "T")
        self.assertNotEqual(state_of(script.pid), "T")
        (self.dir / "go").touch()
        os.kill(command, signal.SIGCONT)
        self.assertEqual(script.wait(PATIENCE), 0)
        self.assertEqual(self.read("code"), "4\n")


class GuardianKilled(RunCase):
    def test_makes_belay_end_the_command_itself(self):
        process, command = self.start_command("--ttl", "10s", "--kill-after", "200ms", script=STUBBORN)
        others = [self.pid_in(name) for name in ("child", "away", "orphan")]
        os.kill(self.guardian_of(process.pid), signal.SIGKILL)
        _, err = process.communicate(timeout=PATIENCE)
        self.assertEqual(process.returncode, 137, err)
        self.assertIn("the guardian process was killed", err)
        for pid in [command, *others]:
            self.assertFalse(is_running(pid))
        self.assertEqual(self.status("k")["outcome"], "failed")

    def test_at_the_moment_it_starts_the_command_leaves_no_process(self):  # L6
        # Each try meets another instant of the start; some meet the one before COMMAND is tied to the guardian.
        for _ in range(60):
            process = self.start("run", "--ttl", "10m", "k", "--", "sleep", "20")
            guardian, commands = None, []
            while not commands and process.poll() is None:
                guardian = guardian or next(iter(children_of(process.pid)), None)
                commands = children_of(guardian) if guardian else []
            os.kill(guardian, signal.SIGKILL)
            self.pids += commands
            process.communicate(timeout=PATIENCE)
            self.assertGreater(process.returncode, 128)
            for pid in commands:
                self.assertFalse(is_running(pid))
            self.assertTrue(self.is_free("k"))

    def test_while_belay_waits_runs_nothing(self):
        lock = self.acquire("k", "--ttl", "5m")
        process = self.start("run", "--wait", "1m", "k", "--", "touch", "ran")
        os.kill(self.guardian_of(process.pid), signal.SIGKILL)
        wait_until(lambda: "wait.began" in self.events("k"), "the wait")
        self.ok("release", "k", "--id", lock["lock_id"])
        self.assertNotEqual(process.wait(PATIENCE), 0)
        self.assertFalse(self.has("ran"))
        self.assertTrue(self.is_free("k"))

    def test_stopped_does_not_keep_belay_from_ending_the_command(self):
        process, command = self.start_command("--ttl", "10s", "--kill-after", "100ms", script="exec sleep 60")
        guardian = self.guardian_of(process.pid)
        os.kill(guardian, signal.SIGSTOP)
        self.ok("unlock", "k", "--force", "--yes")
        self.assert_gone(command)
        os.kill(guardian, signal.SIGCONT)
        self.assertEqual(process.wait(PATIENCE), 76)

    def test_stopped_for_good_is_a_loss_all_the_same(self):
        # As in a container, an orphan gets a parent of its own session, so that the kernel does not continue it.
        prctl, set_child_subreaper = ctypes.CDLL(None).prctl, 36
        self.assertEqual(prctl(set_child_subreaper, 1), 0)
        self.addCleanup(prctl, set_child_subreaper, 0)
        process, command = self.start_command("--ttl", "10s", "--kill-after", "100ms", script="exec sleep 60")
        guardian = self.guardian_of(process.pid)
        os.kill(guardian, signal.SIGSTOP)
        self.ok("unlock", "k", "--force", "--yes")
        _, err = process.communicate(timeout=PATIENCE)
        self.assertEqual(process.returncode, 76, err)
        self.assert_gone(command, guardian)


class Waiting(RunCase):
    def test_for_the_lock_shows_the_holder_and_the_next_attempt(self):  # S4.9
        for how, is_counted in (("--wait=1m", False), ("--attempts=9", True)):
            with self.subTest(how):
                self.check_what_a_wait_shows(how, is_counted)

    def check_what_a_wait_shows(self, how, is_counted):
        """A place in the queue is no retry."""
        lock = self.acquire("k", "--owner", "rival", "--ttl", "5m")
        shown = self.dir / "shown"
        with open(shown, "w", encoding="utf-8") as stderr:
            process = self.start("run", how, "k", "--", "echo", "mine", stderr=stderr)
        wait_until(lambda: "1st in the queue for 'k', held by" in shown.read_text(encoding="utf-8"), "the place")
        self.assertTrue(self.ok("status", "k", "--json").json()["waiting"])
        self.ok("release", "k", "--id", lock["lock_id"])
        out, _ = process.communicate(timeout=PATIENCE)
        err = shown.read_text(encoding="utf-8")
        self.assertEqual((process.returncode, out), (0, "mine\n"), err)
        self.assertIn("rival", err)
        self.assertEqual("Lock held, retrying in " in err, is_counted, err)

    def test_is_cancelled_by_a_signal_and_leaves_no_ticket(self):  # S1.5
        self.acquire("k", "--ttl", "5m")
        for number in (signal.SIGINT, signal.SIGTERM):
            process = self.start("run", "--wait", "1m", "k", "--", "touch", "ran")
            wait_until(lambda: self.events("k").count("wait.began") > self.events("k").count("wait.ended"))
            process.send_signal(number)
            self.assertEqual(process.wait(PATIENCE), 128 + number)
            self.assertFalse(self.has("ran"))
        self.assertEqual(self.events("k").count("wait.began"), self.events("k").count("wait.ended"))


if __name__ == "__main__":
    main()
