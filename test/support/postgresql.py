#!/usr/bin/env python3
"""A PostgreSQL of the test's own, in a directory of its own, on loopback.

As a program (for C tests) it prints its port and ends when its standard input is closed. If BELAY
is named, it has the schema:

    test/support/postgresql.py [BELAY] [-c NAME=VALUE ...]
"""
import contextlib
import glob
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from ports import free_port

QUICK = ["-c", "fsync=off", "-c", "shared_buffers=32MB", "-c", "max_connections=100", "-c", "autovacuum=off",
         "-c", "max_wal_senders=4", "-c", "log_min_messages=warning"]


def program(name):
    """Of the newest PostgreSQL that is installed."""
    found = sorted(glob.glob(f"/usr/lib/postgresql/*/bin/{name}"), key=lambda path: int(path.split("/")[4]))
    if not found:
        raise FileNotFoundError(f"no {name} in /usr/lib/postgresql: run tools/setup test")
    return found[-1]


def unprivileged():
    """PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return {}
    user = pwd.getpwnam("nobody")
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}


def state_and_parent(pid):
    """("Z", 0): that process has ended."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError), open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        state, number = file.read().rsplit(")", 1)[1].split()[:2]
        return state, int(number)
    return "Z", 0


def parent(pid):
    """None: that process has ended."""
    state, number = state_and_parent(pid)
    return None if state == "Z" else number


def is_ready(home, process):
    """By what the server writes in its own directory, as pg_ctl does: at the port another one may answer."""
    with contextlib.suppress(FileNotFoundError), open(os.path.join(home, "postmaster.pid"), encoding="utf-8") as file:
        lines = file.read().split("\n")
        return len(lines) > 7 and lines[0] == str(process.pid) and lines[7].strip() in ("ready", "standby")
    return False


class Server:
    """Started by start(), also after stop() or kill()."""

    def __init__(self, directory=None, options=(), env=None):
        self.own = directory is None
        self.directory = directory or tempfile.mkdtemp(prefix="belay-pg-")
        self.home = os.path.join(self.directory, "data")
        self.options = list(options)
        self.env = dict(os.environ, **(env or {}))
        self.port = free_port()
        self.process = None

    @property
    def url(self):
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    def run(self, name, *arguments, **more):
        return subprocess.run([program(name), *arguments], check=True, capture_output=True, text=True, cwd=self.directory,
                              **unprivileged(), **more)

    def init(self):
        os.makedirs(self.home)
        if os.geteuid() == 0:
            user = pwd.getpwnam("nobody")
            os.chmod(self.directory, 0o755)
            os.chown(self.home, user.pw_uid, user.pw_gid)
        self.run("initdb", "-D", self.home, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale", "C", "--no-sync")
        os.chmod(self.home, 0o700)
        return self

    def start(self, quick=True):
        with open(os.path.join(self.directory, "log"), "ab") as log:
            self.process = subprocess.Popen(
                [program("postgres"), "-D", self.home, "-p", str(self.port), "-h", "127.0.0.1", "-k", "",
                 *(QUICK if quick else ()), *self.options], stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                cwd=self.directory, env=self.env, start_new_session=True, **unprivileged())
        deadline = time.monotonic() + 60
        while not is_ready(self.home, self.process):
            if self.process.poll() is not None or time.monotonic() > deadline:
                with open(os.path.join(self.directory, "log"), encoding="utf-8") as log:
                    raise RuntimeError(f"PostgreSQL did not start: {log.read()[-2000:]}")
            time.sleep(0.02)
        return self

    def sql(self, text, database="postgres"):
        """The rows, as psql -At prints them."""
        done = subprocess.run([program("psql"), "-XAtq", "-v", "ON_ERROR_STOP=1", "-h", "127.0.0.1", "-p", str(self.port),
                               "-U", "postgres", "-d", database, "-c", text], check=False, capture_output=True, text=True)
        if done.returncode != 0:
            with open(os.path.join(self.directory, "log"), encoding="utf-8", errors="replace") as log:
                raise RuntimeError(f"psql exits with {done.returncode}: {done.stderr}\nthe log of the server: {log.read()[-2000:]}")
        return done.stdout.strip()

    def standby(self, options=()):
        """A copy that follows this server once it is started."""
        copy = Server(options=options)
        if os.geteuid() == 0:
            os.chmod(copy.directory, 0o777)
        copy.run("pg_basebackup", "-h", "127.0.0.1", "-p", str(self.port), "-U", "postgres", "-D", copy.home, "-R", "-X", "stream",
                 "--checkpoint=fast", "--no-sync")
        return copy

    def wait_for_standbys(self, names):
        """Have each commit wait for these; '' for none. Commits count with it from when the checkpointer has read it."""
        self.sql(f"ALTER SYSTEM SET synchronous_standby_names = '{names}'")
        self.sql("SELECT pg_reload_conf()")
        deadline = time.monotonic() + 60
        while names == "nobody" and not self.does_wait():
            if time.monotonic() > deadline:
                raise RuntimeError("PostgreSQL does not wait for its standby")

    def does_wait(self):
        """Whether a commit waits for the standby, which does not exist."""
        waits = "FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND query LIKE '%does it wait%'"
        commit = subprocess.Popen([program("psql"), "-XAtq", self.url, "-c", "SELECT pg_logical_emit_message(true, 'does it wait', '')"],
                                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while commit.poll() is None and self.sql(f"SELECT count(*) {waits} AND pid <> pg_backend_pid()") == "0":
            time.sleep(0.01)
        is_waiting = commit.poll() is None
        while commit.poll() is None:
            self.sql(f"SELECT pg_cancel_backend(pid) {waits} AND pid <> pg_backend_pid()")
            time.sleep(0.01)
        return is_waiting

    def create_schema(self, belay, *arguments):
        subprocess.run([belay, "table", "create", "--quiet", "--store", self.url, *arguments], check=True,
                       stdout=subprocess.DEVNULL)

    def stop(self, how=signal.SIGINT):
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(how)
            self.process.wait(60)

    def kill(self):
        """As a crash: the postmaster and its children, each of which has a session of its own. Return when all are gone."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGSTOP)  # a child that it starts after the look at them would live on
            while state_and_parent(self.process.pid)[0] not in "TZ":
                time.sleep(0.001)
            children = [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if parent(pid) == self.process.pid]
            self.process.kill()
            for pid in children:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self.process.wait(60)
            deadline = time.monotonic() + 60
            while any(parent(pid) is not None for pid in children):  # a new server would find their shared memory in use
                if time.monotonic() > deadline:
                    raise RuntimeError("PostgreSQL's processes did not end")
                time.sleep(0.01)

    def close(self):
        self.stop(signal.SIGQUIT)
        if self.own:
            shutil.rmtree(self.directory, ignore_errors=True)


@contextlib.contextmanager
def server(options=(), env=None):
    one = Server(options=options, env=env)
    try:
        yield one.init().start()
    finally:
        one.close()


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    belay = sys.argv[1:2] if not sys.argv[1:2] or not sys.argv[1].startswith("-") else []
    with server(options=sys.argv[1 + len(belay):]) as one:
        if belay:
            one.create_schema(belay[0])
        print(one.port, flush=True)
        os.close(1)
        while sys.stdin.buffer.read(4096):
            pass


if __name__ == "__main__":
    main()
