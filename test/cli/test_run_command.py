"""`belay run`: the command, its environment, its exit code (S2.6, S0.2)."""

import json
import os
import signal
import stat
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from run_support import RunCase, is_running
from support import BELAY, main, wait_until


class ExitCode(RunCase):
    def test_is_the_commands_own(self):
        for code in (0, 1, 7, 64, 75, 76, 255):
            self.fails(code, "run", "k", "--", "sh", "-c", f"exit {code}")

    def test_is_128_and_the_signal_for_a_command_that_was_killed(self):
        for number in (signal.SIGTERM, signal.SIGKILL, signal.SIGSEGV, signal.SIGHUP):
            self.fails(128 + number, "run", "k", "--", "sh", "-c", f"kill -{int(number)} $$")

    def test_is_127_for_a_command_that_does_not_exist_and_the_lock_ends_as_failed(self):
        result = self.fails(127, "run", "k", "--", "no-such-command")
        self.assertEqual(result.err, "belay: cannot run 'no-such-command': not found\n")
        self.assertEqual(self.status("k")["outcome"], "failed")
        self.fails(127, "run", "k", "--", "/no/such/file")
        self.fails(127, "run", "k", "--", "")

    def test_is_126_for_a_command_that_is_not_executable_and_the_lock_ends_as_failed(self):
        (self.dir / "plain").write_text("echo no\n", encoding="utf-8")
        result = self.fails(126, "run", "k", "--", "./plain")
        self.assertEqual(result.err, "belay: cannot run './plain': it is not executable: run chmod +x on it, or name its "
                                     "interpreter first\n")
        self.assertEqual(self.status("k")["outcome"], "failed")
        self.fails(126, "run", "k", "--", str(self.dir))

    def test_is_75_if_another_client_holds_the_lock_and_nothing_runs(self):
        self.acquire("k", "--owner", "rival")
        result = self.fails(75, "run", "k", "--", "touch", "ran")
        self.assertTrue(result.err.startswith("belay: lock 'k' held by rival until "), result.err)
        self.assertFalse(self.has("ran"))

    def test_for_a_conflict_can_be_chosen(self):
        self.acquire("k")
        self.fails(3, "run", "--conflict-exit-code", "3", "k", "--", "true")
        self.fails(0, "run", "--conflict-exit-code", "0", "k", "--", "false")
        self.fails(64, "run", "--conflict-exit-code", "256", "k", "--", "true")

    def test_is_64_without_a_command(self):
        self.fails(64, "run", "k")
        self.fails(64, "run", "k", "--")
        self.fails(64, "run", "--", "true")

    def test_is_64_if_there_is_more_than_a_quarter_of_the_ttl_between_term_and_kill(self):
        result = self.fails(64, "run", "--ttl", "40s", "--kill-after", "11s", "k", "--", "touch", "ran")
        self.assertIn("at most 10s", result.err)
        self.assertFalse(self.has("ran"))
        self.ok("run", "--ttl", "40s", "--kill-after", "10s", "k", "--", "true")

    def test_is_the_commands_even_if_the_lock_cannot_be_released(self):
        broken = "for f in belay.db*; do echo garbage >$f; done; exit 7"
        result = self.fails(7, "run", "k", "--", "sh", "-c", broken)
        self.assertIn("warning: the command ended, but the lock was not released", result.err)


class Command(RunCase):
    def test_finds_the_lock_in_its_environment(self):
        out = self.ok("run", "k", "--", "sh", "-c", 'belay=$1; "$belay" status k --json; env', "sh", BELAY).out
        lock = json.loads(out.splitlines()[0])
        env = dict(line.split("=", 1) for line in out.splitlines()[1:] if "=" in line)
        self.assertEqual(lock["status"], "active")
        self.assertEqual(env["BELAY_KEY"], "k")
        self.assertEqual(env["BELAY_LOCK_ID"], lock["lock_id"])
        self.assertEqual(env["BELAY_TOKEN"], str(lock["token"]))
        self.assertEqual(env["BELAY_STORE"], self.store)
        self.assertEqual(lock["ttl_ms"], 120000)

    def test_finds_the_store_of_the_command_line_in_its_environment(self):
        other = f"sqlite:{self.dir}/other.db"
        out = self.ok("run", "--store", other, "k", "--", "printenv", "BELAY_STORE").out
        self.assertEqual(out, other + "\n")

    def test_inside_another_finds_its_own_lock(self):
        out = self.ok("run", "outer", "--", BELAY, "run", "inner", "--", "printenv", "BELAY_KEY").out
        self.assertEqual(out, "inner\n")

    def test_reads_standard_input_untouched(self):
        self.assertEqual(self.ok("run", "k", "--", "cat", text="one\ntwo").out, "one\ntwo")
        result = self.ok("run", "k", "--", "sh", "-c", "read line; echo got $line; cat", text="a\nb\n")
        self.assertEqual(result.out, "got a\nb\n")

    def test_finds_the_closed_streams_of_belay_closed(self):
        script = f'"{BELAY}" run k -- sh -c "ls -l /proc/self/fd | grep -c socket >fds; cat <&0" <&- 2>err; echo $? >code'
        subprocess.run(["sh", "-c", script], env=self.env, cwd=self.dir, check=False, timeout=30)
        self.assertEqual(self.read("fds").strip(), "0")
        self.assertNotEqual(self.read("code").strip(), "0")

    def test_inherits_none_of_our_descriptors(self):
        out = self.ok("run", "k", "--", "ls", "/proc/self/fd").out
        self.assertEqual(out.split(), ["0", "1", "2", "3"])  # 3 is what ls reads

    def test_inherits_the_signal_settings_of_belay(self):
        show = "grep -E '^Sig(Blk|Ign)' /proc/self/status"
        plain = subprocess.run(["sh", "-c", show], capture_output=True, text=True, check=True).stdout
        self.assertEqual(self.ok("run", "k", "--", "sh", "-c", show).out, plain)
        script = "trap '' HUP INT PIPE; exec \"$@\""
        direct = subprocess.run(["sh", "-c", script, "sh", "sh", "-c", show], capture_output=True, text=True,
                                check=True).stdout
        under = subprocess.run(["sh", "-c", script, "sh", BELAY, "run", "k", "--", "sh", "-c", show],
                               env=self.env, cwd=self.dir, capture_output=True, text=True, check=True).stdout
        self.assertEqual(under, direct)

    def test_may_be_a_script_without_an_interpreter(self):
        (self.dir / "script").write_text("echo from the script\n", encoding="utf-8")
        (self.dir / "script").chmod(stat.S_IRWXU)
        self.assertEqual(self.ok("run", "k", "--", "./script").out, "from the script\n")

    def test_gets_the_signals_of_belay_with_its_whole_group(self):
        # Short sleeps: Python runs a handler between two steps, and one that is due just before a long
        # sleep begins waits for its end.
        source = ("import os, signal, sys, time\n"
                  "number, name = int(sys.argv[1]), 'parent' if os.fork() else 'child'\n"
                  "signal.signal(number, lambda *_: (open(f'{name}-got-{number}', 'w').close(), os._exit(9)))\n"
                  "open(f'{name}-up-{number}', 'w').close()\n"
                  "while True: time.sleep(0.02)\n")
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1,
                       signal.SIGUSR2, signal.SIGWINCH):
            n = int(number)
            process = self.start("run", "k", "--", sys.executable, "-c", source, str(n))
            wait_until(lambda: self.has(f"parent-up-{n}") and self.has(f"child-up-{n}"))
            process.send_signal(number)
            self.assertEqual(process.wait(60), 9)
            wait_until(lambda: self.has(f"parent-got-{n}") and self.has(f"child-got-{n}"))

    def test_that_ignores_term_is_left_to_end_by_itself(self):
        process, _ = self.start_command(script="trap '' TERM; echo up >up; sleep 1; exit 5")
        wait_until(lambda: self.has("up"))
        process.terminate()
        self.assertEqual(process.wait(60), 5)

    def test_ends_its_lock_as_completed_or_failed(self):
        self.ok("run", "k", "--", "true")
        self.assertEqual((self.status("k")["status"], self.status("k")["outcome"]), ("released", "completed"))
        self.fails(1, "run", "k", "--", "false")
        self.assertEqual((self.status("k")["status"], self.status("k")["outcome"]), ("released", "failed"))

    def test_leaves_background_processes_running(self):
        self.ok("run", "k", "--", "sh", "-c", "(sleep 20 >/dev/null 2>&1 & echo $! >child)")
        child = self.pid_in("child")
        self.assertTrue(self.is_free("k"))
        self.assertTrue(is_running(child))

    def test_leaves_no_zombie_behind(self):
        # A process that adopts orphans, such as init in a container, gets none of ours.
        source = ("import ctypes, os, subprocess, sys\n"
                  "ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER\n"
                  "subprocess.run([sys.argv[1], 'run', 'k', '--', 'true'], check=True)\n"
                  "print(open(f'/proc/self/task/{os.getpid()}/children').read().split())\n")
        out = subprocess.run([sys.executable, "-c", source, BELAY], env=self.env, cwd=self.dir,
                             capture_output=True, text=True, check=True).stdout
        self.assertEqual(out, "[]\n")


class Options(RunCase):
    def test_adopt_runs_a_job_that_is_delivered_twice_once(self):  # S0: the asynchronous job carries the lock
        lock = self.acquire("build-router-plt", "--owner", "chat")
        script = ["run", "--adopt", lock["lock_id"], "build-router-plt", "--", "sh", "-c",
                  "echo $BELAY_LOCK_ID $BELAY_TOKEN >>ran"]
        self.ok(*script)
        self.fails(77, *script)
        lock_id, token = self.read("ran").split()
        self.assertNotEqual(lock_id, lock["lock_id"])
        self.assertGreater(int(token), lock["token"])
        self.assertEqual(self.status("build-router-plt")["outcome"], "completed")

    def adopted(self, key, *acquire, run=()):
        """The lock while an adopting job runs, as the store has it."""
        lock = self.acquire(key, *acquire)
        result = self.ok("run", *run, "--adopt", lock["lock_id"], key, "--", str(BELAY), "status", key, "--json")
        return json.loads(result.out)

    def test_an_adopted_lock_keeps_its_ttl_and_is_renewed_often_enough(self):  # S0.6
        for key, acquire, ttl in (("build-router-plt", (), 600000), ("build-router-plt", ("--ttl", "1h"), 3600000),
                                  ("stack:s:env:e", (), 3600000), ("k", (), 600000), ("k", ("--ttl", "2h"), 7200000),
                                  ("terraform-prod", ("--profile", "execution", "--owner", "e"), 1800000)):
            with self.subTest((key, acquire)):
                lock = self.adopted(key, *acquire)
                self.assertEqual(lock["ttl_ms"], ttl)
                self.assertIsNotNone(lock["last_heartbeat"])
        self.assertEqual(self.adopted("build-router-plt", run=("--ttl", "5m"))["ttl_ms"], 300000)
        self.assertEqual(self.adopted("k", "--ttl", "1h", run=("--profile", "execution"))["ttl_ms"], 3600000)
        lock = self.acquire("short", "--ttl", "8s")
        self.ok("run", "--adopt", lock["lock_id"], "short", "--", "sleep", "10")  # renewed in time

    def test_an_empty_key_runs_unlocked_only_if_that_is_allowed(self):  # S2.6
        result = self.fails(64, "run", "", "--", "touch", "ran")
        self.assertIn("--allow-empty-key", result.err)
        self.assertFalse(self.has("ran"))
        outer = {"BELAY_KEY": "outer", "BELAY_LOCK_ID": "stale", "BELAY_TOKEN": "7", "BELAY_STORE": "sqlite:/proc/no/such.db"}
        script = ["--result", "r", "", "--", "sh", "-c", "echo ${BELAY_KEY-none} ${BELAY_LOCK_ID-none} ${BELAY_TOKEN-none}; exit 3"]
        result = self.belay("run", "--allow-empty-key", *script, env=outer)
        self.assertEqual((result.code, result.out), (3, "none none none\n"))
        self.assertEqual(result.err, "belay: warning: the key is empty: the command runs without a lock\n")
        value = json.loads(self.read("r"))
        self.assertEqual((value["key"], value["locked"], value["result"], value["exit_code"]), (None, False, "failed", 3))
        self.assertEqual(self.belay("run", "--allow-empty-key", "--quiet", *script, env=outer).err, "")
        for more in (("--adopt", "x"), ("--stack", "s")):
            self.assertIn(more[0], self.fails(64, "run", "--allow-empty-key", *more, "", "--", "true").err)
        self.ok("run", "--allow-empty-key", "--result", "r", "k", "--", "true")
        self.assertIs(json.loads(self.read("r"))["locked"], True)
        self.fails(64, "run", "--allow-empty-key", "--", "true")

    def test_best_effort_runs_unlocked_and_loudly_if_the_store_cannot_be_reached(self):  # S1.10
        unreachable = {"BELAY_STORE": "sqlite:/proc/no/such.db", "BELAY_LOCK_ID": "stale", "BELAY_TOKEN": "7"}
        self.fails(69, "run", "k", "--", "touch", "ran", env=unreachable)
        self.assertFalse(self.has("ran"))
        result = self.ok("run", "--best-effort", "--quiet", "k", "--", "sh", "-c",
                         "echo $BELAY_KEY ${BELAY_LOCK_ID-none} ${BELAY_TOKEN-none}", env=unreachable)
        self.assertEqual(result.out, "k none none\n")
        self.assertIn("the command runs without a lock", result.err)

    def test_best_effort_does_not_run_if_another_client_holds_the_lock(self):
        self.acquire("k")
        self.fails(75, "run", "--best-effort", "k", "--", "touch", "ran")
        self.assertFalse(self.has("ran"))

    def test_the_kill_switch_runs_without_a_lock_and_warns(self):  # S0.9
        self.acquire("k")
        result = self.ok("run", "--quiet", "k", "--", "sh", "-c", "echo ${BELAY_LOCK_ID-none}",
                         env={"BELAY_DISABLED": "1"})
        self.assertEqual(result.out, "none\n")
        self.assertIn("locking is switched off", result.err)

    def test_the_kill_switch_works_without_a_store(self):
        result = self.ok("run", "k", "--", "echo", "ran",
                         env={"BELAY_DISABLED": "1", "BELAY_STORE": "sqlite:/proc/no/such.db"})
        self.assertEqual(result.out, "ran\n")

    def test_a_profile_without_a_heartbeat_is_renewed_all_the_same(self):
        (self.dir / "belay.yaml").write_text("profiles:\n  short: {ttl: 8s}\n", encoding="utf-8")
        os.chmod(self.path("belay.yaml"), 0o600)
        self.ok("run", "--profile", "short", "k", "--", "sleep", "10")
        self.assertEqual(self.status("k")["outcome"], "completed")

    def test_reentrant_inside_leaves_the_lock_to_the_outermost(self):
        inner = f'"{BELAY}" run --owner me --reentrant k -- sh -c "echo \\$BELAY_LOCK_ID >inner"'
        out = self.ok("run", "--owner", "me", "--reentrant", "k", "--", "sh", "-c",
                      f'{inner}; echo $BELAY_LOCK_ID >outer; "{BELAY}" status k --json').out
        self.assertEqual(json.loads(out)["status"], "active")
        self.assertEqual(self.read("inner"), self.read("outer"))


class ResultFile(RunCase):
    FIELDS = ["key", "locked", "lock_id", "token", "result", "exit_code", "signal", "reason", "lock", "locks"]

    def result(self, code, *args):
        self.fails(code, "run", "--result", "out.json", *args)
        text = self.read("out.json")
        value = json.loads(text)
        self.assertEqual(list(value), self.FIELDS)
        self.assertEqual(value["exit_code"], code)
        self.assertEqual([name for name in os.listdir(self.dir) if name.endswith(".tmp")], [])
        return value

    def test_reports_completed(self):
        value = self.result(0, "k", "--", "true")
        self.assertEqual((value["key"], value["result"], value["signal"], value["reason"]),
                         ("k", "completed", None, None))
        self.assertEqual(value["lock"]["lock_id"], value["lock_id"])
        self.assertEqual(value["lock"]["token"], value["token"])

    def test_reports_failed_and_the_signal(self):
        self.assertEqual(self.result(4, "k", "--", "sh", "-c", "exit 4")["result"], "failed")
        value = self.result(143, "k", "--", "sh", "-c", "kill $$")
        self.assertEqual((value["result"], value["signal"]), ("failed", 15))

    def test_reports_why_the_command_was_not_started(self):
        value = self.result(127, "k", "--", "no-such-command")
        self.assertEqual((value["result"], value["reason"]), ("failed", "cannot run 'no-such-command': not found"))
        self.acquire("k", "--owner", "rival")
        value = self.result(75, "k", "--", "true")
        self.assertEqual((value["result"], value["lock"]), ("not_acquired", None))
        self.assertIn("rival", value["reason"])

    def test_that_cannot_be_written_is_refused_before_anything_runs(self):  # L8
        self.fails(64, "run", "--result", "no/such/folder/out.json", "k", "--", "touch", "ran")
        self.fails(64, "run", "--result", ".", "k", "--", "touch", "ran")
        self.assertFalse(self.has("ran"))


if __name__ == "__main__":
    main()
