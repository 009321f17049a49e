"""Helpers for tests that run the real program."""

import json
import os
import pty
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
import unittest
from fcntl import ioctl
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "test" / "support"))
import ports  # noqa: E402
from stalls import unless_stalled  # noqa: E402,F401

free_port = ports.free_port
BELAY = os.environ.get("BELAY_BIN") or str(ROOT / "build" / "dev" / "belay")
PATIENCE = 90.0  # seconds before a test gives up; never a time to sleep

LOCK_FIELDS = [
    "key", "lock_id", "token", "locked_by", "locked_by_name", "acquired_by", "status", "outcome", "locked_at", "expires_at",
    "last_heartbeat", "ttl_ms", "expires_in_ms", "valid_for_ms", "is_stale", "metadata",
    "released_at", "mode", "slots", "holders", "waiting",
]


def wait_until(condition, what="the condition", patience=PATIENCE):
    """Return condition() as soon as it is true."""
    end = time.monotonic() + patience
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"{what} did not come true within {patience} s")
        time.sleep(0.01)


class Result:
    def __init__(self, code, out, err):
        self.code = code
        self.out = out
        self.err = err

    def json(self):
        return json.loads(self.out)

    def error(self):
        """The one JSON object on standard error."""
        assert self.err.count("\n") == 1, self.err
        return json.loads(self.err)["error"]

    def __repr__(self):
        return f"exit {self.code}\n--- stdout\n{self.out}\n--- stderr\n{self.err}"


class Terminal:
    """A program on a terminal of its own."""

    def __init__(self, argv, env, columns=80, rows=24, cwd=None):
        master, slave = pty.openpty()
        ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.process = subprocess.Popen(argv, env=env, cwd=cwd, stdin=slave, stdout=slave, stderr=slave,
                                        start_new_session=True, close_fds=True,
                                        preexec_fn=lambda: ioctl(0, termios.TIOCSCTTY, 0))
        os.close(slave)
        self.master = master
        self.bytes = b""

    @property
    def text(self):
        return self.bytes.decode("utf-8", "replace").replace("\r\n", "\n")

    def read_some(self, timeout):
        ready, _, _ = select.select([self.master], [], [], timeout)
        if not ready:
            return False
        try:
            data = os.read(self.master, 65536)
        except OSError:
            data = b""
        self.bytes += data
        return bool(data)

    def expect(self, text, patience=PATIENCE):
        self.expect_that(lambda: text in self.text, repr(text), patience)

    def expect_that(self, is_there, what, patience=PATIENCE):
        end = time.monotonic() + patience
        while not is_there():
            if time.monotonic() > end:
                raise AssertionError(f"{what} did not appear in {self.text!r}")
            if not self.read_some(0.1) and self.process.poll() is not None and not self.read_some(0.1):
                if not is_there():
                    raise AssertionError(f"it ended without {what}: {self.text!r}")

    def send(self, text):
        os.write(self.master, text.encode())

    def settle(self, quiet=0.4):
        """Read until no output comes for a while: a shell does not signal that it has completed a word."""
        while self.read_some(quiet):
            pass

    def end(self):
        """For programs that do not end by themselves."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    def finish(self, patience=PATIENCE):
        end = time.monotonic() + patience
        while self.process.poll() is None:
            self.read_some(0.05)
            if time.monotonic() > end:
                self.process.kill()
                raise AssertionError(f"it did not end: {self.text!r}")
        while self.read_some(0.05):
            pass
        os.close(self.master)
        return self.process.returncode


class BelayCase(unittest.TestCase):
    """Each test has its own store and home directory, and nothing of the caller's environment."""

    maxDiff = None

    def setUp(self):
        self.dir = Path(tempfile.mkdtemp(prefix="belay-cli-"))
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)
        self.store = f"sqlite:{self.dir}/belay.db"
        self.env = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.dir / "home"),
            "BELAY_STORE": self.store,
            "TERM": "xterm",
            "LC_ALL": "C",
            "TZ": "America/New_York",  # times are UTC wherever one is
        }
        (self.dir / "home").mkdir()
        for name in ("ASAN_OPTIONS", "UBSAN_OPTIONS", "TSAN_OPTIONS", "LLVM_PROFILE_FILE", "GCOV_PREFIX"):
            if name in os.environ:
                self.env[name] = os.environ[name]
        self.make_store()

    def make_store(self):
        """For tests on another store than SQLite."""

    def environment(self, extra):
        env = {**self.env, **(extra or {})}
        return {name: value for name, value in env.items() if value is not None}

    def belay(self, *args, env=None, stdin=subprocess.DEVNULL, text=None, cwd=None):
        """Run belay to its end."""
        done = subprocess.run([BELAY, *args], env=self.environment(env), cwd=cwd or self.dir,
                              stdin=None if text is not None else stdin, input=text, capture_output=True,
                              timeout=PATIENCE * 2, encoding="utf-8", errors="surrogateescape")
        return Result(done.returncode, done.stdout, done.stderr)

    def ok(self, *args, **more):
        result = self.belay(*args, **more)
        self.assertEqual(result.code, 0, result)
        return result

    def fails(self, code, *args, **more):
        result = self.belay(*args, **more)
        self.assertEqual(result.code, code, result)
        return result

    def start(self, *args, env=None, **more):
        """Start belay in the background; the end of the test ends it."""
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL,
                   "encoding": "utf-8", **more}
        process = subprocess.Popen([BELAY, *args], env=self.environment(env), cwd=self.dir, **options)
        self.addCleanup(self.end, process)
        return process

    @staticmethod
    def end(process):
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        process.wait()
        for stream in (process.stdout, process.stderr, process.stdin):
            if stream is not None:
                stream.close()

    def terminal(self, *args, env=None, columns=80):
        terminal = Terminal([BELAY, *args], self.environment(env), columns=columns, cwd=self.dir)
        self.addCleanup(lambda: terminal.process.poll() is None and terminal.process.kill())
        return terminal

    def acquire(self, key, *args):
        """Acquire a lock; returns its JSON."""
        return self.ok("acquire", "--json", key, *args).json()

    def events(self, key):
        return [event["event"] for event in self.ok("history", "--json", key).json()["events"]]


def main():
    unittest.main(verbosity=1)
