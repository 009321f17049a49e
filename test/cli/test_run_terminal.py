"""`belay run` on a terminal, under a shell with job control."""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from run_support import RunCase, state_of
from support import BELAY, main, wait_until

CTRL_C, CTRL_Z = "\x03", "\x1a"


class OnATerminal(RunCase):
    def test_the_command_reads_from_the_terminal(self):
        shell = self.shell()
        shell.send('"$belay" run k -- sh -c \'read line; echo "got <$line>"\'\n')
        wait_until(lambda: not self.is_free("k"), "the lock")
        shell.send("hello\n")
        shell.expect("got <hello>")
        shell.send("exit\n")
        shell.finish()

    def test_the_command_has_the_terminal_even_if_its_input_comes_from_elsewhere(self):
        shell = self.shell()
        shell.send("echo piped | \"$belay\" run k -- sh -c 'cat; read line </dev/tty; echo \"got <$line>\"'\n")
        shell.expect("piped\n")
        shell.send("typed\n")
        shell.expect("got <typed>")

    def test_ctrl_c_goes_to_the_command_and_the_shell_has_the_terminal_back(self):
        shell = self.shell()
        shell.send('"$belay" run k -- sh -c \'echo $$ >pid; exec sleep 60\'; echo "code=$?"\n')
        command = self.pid_in("pid")
        wait_until(lambda: self.comm(command) == "sleep")
        shell.send(CTRL_C)
        self.assert_gone(command)
        shell.send('echo "code is $?"; tty >mine\n')
        wait_until(lambda: self.has("mine"))
        self.assertTrue(self.is_free("k"))

    @staticmethod
    def comm(pid):
        with open(f"/proc/{pid}/comm", encoding="utf-8") as file:
            return file.read().strip()

    def test_ctrl_c_is_the_commands_to_handle(self):
        shell = self.shell()
        shell.send('"$belay" run k -- sh -c \'trap "exit 5" INT; echo up >up; while :; do sleep 0.1; done\'; echo "code=$?"\n')
        wait_until(lambda: self.has("up"))
        shell.send(CTRL_C)
        shell.expect("code=5\n")

    def test_ctrl_c_ends_a_script_that_runs_belay(self):
        for name in ("sh", "bash"):
            (self.dir / "script").write_text(
                f'"{BELAY}" run k -- sh -c \'echo $$ >pid-{name}; exec sleep 60\'\necho next >next-{name}\n', encoding="utf-8")
            shell = self.shell()
            shell.send(f'{name} ./script; echo after >after-{name}\n')
            command = self.pid_in(f"pid-{name}")
            wait_until(lambda: self.comm(command) == "sleep")
            shell.send(CTRL_C)
            self.assert_gone(command)
            shell.send("echo done >done-" + name + "\n")
            wait_until(lambda: self.has("done-" + name))
            self.assertFalse(self.has("next-" + name), name)

    def test_ctrl_z_stops_both_and_fg_goes_on(self):
        shell = self.shell()
        shell.send('"$belay" run --ttl 20s k -- sh -c \'echo $$ >pid; read line; echo "got <$line>"; exit 6\'\n')
        command = self.pid_in("pid")
        wait_until(lambda: self.foreground(shell) == command, "the terminal with the command")
        shell.send(CTRL_Z)
        shell.expect("Stopped")
        wait_until(lambda: state_of(command) == "T")
        shell.send("echo still the $((1))st shell\n")  # typed ahead or not: the echo of it does not match
        shell.expect("still the 1st shell\n")
        renewals = self.events("k").count("lock.renewed")
        shell.send("fg\n")
        wait_until(lambda: state_of(command) == "S" and self.foreground(shell) == command, "the command")
        self.assertGreater(self.events("k").count("lock.renewed"), renewals)  # the lease was proved first
        shell.send("hello\n")
        shell.expect("got <hello>")
        shell.send('echo "code=$?"\n')
        shell.expect("code=6\n")

    def test_a_command_stopped_past_its_lease_is_ended_and_never_continued(self):
        shell = self.shell()
        shell.send('"$belay" run --ttl 5s k -- sh -c \'echo $$ >pid; trap "" TERM; read line; echo "went on"\'; echo "code=$?"\n')
        command = self.pid_in("pid")
        wait_until(lambda: self.foreground(shell) == command)
        shell.send(CTRL_Z)
        shell.expect("Stopped")
        self.assert_gone(command)
        self.ok("run", "--wait", "60s", "k", "--", "true")  # another client had it
        shell.send("fg\n")
        shell.send('echo "now $?"\n')
        shell.expect("now 76\n")
        self.assertNotIn("went on\n", shell.text)

    def test_a_suspended_command_that_lost_its_lock_is_ended_and_not_continued(self):
        shell = self.shell()
        shell.send('"$belay" run --ttl 1m k -- sh -c \'echo $$ >pid; read line; touch on\'\n')
        command = self.pid_in("pid")
        wait_until(lambda: self.foreground(shell) == command)
        shell.send(CTRL_Z)
        shell.expect("Stopped")
        self.ok("unlock", "k", "--force", "--yes")
        shell.send("fg\n")
        self.assert_gone(command)
        shell.send('echo "now $?"\n')
        shell.expect("now 76\n")
        self.assertFalse(self.has("on"))

    def test_in_the_background_it_leaves_the_terminal_alone(self):
        shell = self.shell()
        shell.send('"$belay" run k -- sh -c \'echo $$ >pid; read line; echo "got <$line>"\' &\n')
        command = self.pid_in("pid")
        shell.send("echo shell $((1)) here\n")
        shell.expect("shell 1 here\n")
        wait_until(lambda: state_of(command) == "T", "the command stopped for reading")
        wait_until(lambda: self.says_stopped(shell), "the shell's word that its job stopped")
        shell.send("fg\n")
        wait_until(lambda: self.foreground(shell) == command)
        shell.send("hello\n")
        shell.expect("got <hello>")

    @staticmethod
    def says_stopped(shell):
        """A shell reports its jobs before its next prompt; belay stops a moment after its command."""
        shell.send("echo\n")
        while shell.read_some(0.2):
            pass
        return "Stopped" in shell.text

    @staticmethod
    def foreground(shell):
        try:
            return os.tcgetpgrp(shell.master)
        except OSError:
            return None

    def test_works_as_the_leader_of_its_session(self):
        terminal = self.terminal("run", "k", "--", "sh", "-c", 'read line; echo "got <$line>"')
        wait_until(lambda: not self.is_free("k"), "the lock")
        terminal.send("hello\n")
        terminal.expect("got <hello>")
        self.assertEqual(terminal.finish(), 0)

    def test_an_orphaned_belay_does_not_stay_stopped(self):
        terminal = self.terminal("run", "k", "--", "sh", "-c", 'echo $$ >pid; read line; echo "got <$line>"')
        command = self.pid_in("pid")
        wait_until(lambda: self.foreground(terminal) == command)
        terminal.send(CTRL_Z)
        terminal.send("hello\n")
        terminal.expect("got <hello>")
        self.assertEqual(terminal.finish(), 0)

    def test_the_terminal_is_sane_after_a_command_that_was_killed(self):
        shell = self.shell()
        shell.send('"$belay" run k -- sh -c \'stty -echo raw; kill -9 $$\'; stty -a >modes\n')
        wait_until(lambda: self.has("modes") and self.read("modes"))
        words = self.read("modes").replace(";", " ").split()
        self.assertIn("icanon", words)
        self.assertIn("echo", words)

    def test_an_exit_by_signal_is_an_exit_code_for_the_parent(self):
        terminal = self.terminal("run", "k", "--", "sh", "-c", "echo $$ >pid; exec sleep 60")
        command = self.pid_in("pid")
        wait_until(lambda: self.foreground(terminal) == command)
        terminal.send(CTRL_C)
        self.assertEqual(terminal.finish(), 130)


class WaitingOnATerminal(RunCase):
    def test_shows_the_holder_and_the_time_left_on_one_line(self):
        self.acquire("k", "--owner", "rival", "--ttl", "5m")
        terminal = self.terminal("run", "--wait", "1m", "k", "--", "true")
        terminal.expect("rival")
        terminal.expect("left")
        terminal.send(CTRL_C)
        self.assertEqual(terminal.finish(), 130)

    def test_is_ended_by_ctrl_c_and_leaves_no_ticket(self):
        self.acquire("k", "--ttl", "5m")
        shell = self.shell()
        shell.send('"$belay" run --wait 1m k -- touch ran; echo "code=$?"\n')
        wait_until(lambda: "wait.began" in self.events("k"), "the wait")
        shell.send(CTRL_C)
        shell.send('echo "now $?"\n')
        wait_until(lambda: "wait.ended" in self.events("k"), "the end of the wait")
        self.assertFalse(self.has("ran"))


if __name__ == "__main__":
    main()
