"""Helpers for the tests of `belay run`: its processes, and shells to run it from."""

import contextlib
import os
import signal

from support import BELAY, BelayCase, Terminal, wait_until


def is_running(pid):
    """Neither gone nor a zombie."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def state_of(pid):
    with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
        return file.read().rpartition(")")[2].split()[0]


def children_of(pid):
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="utf-8") as file:
            return [int(word) for word in file.read().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []


class RunCase(BelayCase):
    def setUp(self):
        super().setUp()
        self.pids = []
        self.addCleanup(self.kill_leftovers)

    def kill_leftovers(self):
        """End processes that a failed test left behind; only those that it noted itself."""
        for pid in self.pids:
            # The end of one ends others: a guardian's command may be gone between the look and the signal.
            with contextlib.suppress(ProcessLookupError):
                if is_running(pid):
                    os.kill(pid, signal.SIGKILL)

    def path(self, name):
        return str(self.dir / name)

    def has(self, name):
        return (self.dir / name).exists()

    def read(self, name):
        return (self.dir / name).read_text(encoding="utf-8")

    def pid_in(self, name):
        """The process id that a command wrote to a file."""
        wait_until(lambda: self.has(name) and self.read(name).endswith("\n"), f"a process id in {name}")
        pid = int(self.read(name))
        self.pids.append(pid)
        return pid

    def guardian_of(self, belay_pid):
        children = wait_until(lambda: children_of(belay_pid), "the guardian")
        self.assertEqual(len(children), 1)
        self.pids.append(children[0])
        return children[0]

    def status(self, key):
        return self.ok("status", "--json", key).json()

    def is_free(self, key):
        result = self.belay("status", "--json", key)
        return result.code == 66 or result.json()["status"] != "active"

    def start_command(self, *args, script, key="k", **more):
        """belay run ARGS KEY -- sh -c SCRIPT, once the script has written its pid to the file 'pid'."""
        process = self.start("run", *args, key, "--", "sh", "-c", f"echo $$ >pid; {script}", **more)
        self.pids.append(process.pid)
        return process, self.pid_in("pid")

    def assert_gone(self, *pids):
        for pid in pids:
            wait_until(lambda: not is_running(pid), f"the end of process {pid}")

    @staticmethod
    def close_terminal(terminal):
        terminal.process.kill()
        terminal.process.wait()

    def shell(self, **extra):
        """An interactive shell with job control on a terminal of its own."""
        env = self.environment({"PS1": "ready> ", "belay": BELAY, "HISTFILE": "/dev/null", **extra})
        terminal = Terminal(["bash", "--norc", "--noprofile", "--noediting", "-i"], env, cwd=self.dir)
        self.addCleanup(self.close_terminal, terminal)
        terminal.expect("ready> ")
        return terminal
