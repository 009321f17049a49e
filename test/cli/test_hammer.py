"""Many processes, one key, and a tester that kills and pauses them (L1, L2, L4, L6, S1.7).

Sixteen processes at a time go through `belay run` on one key. Under the lock each
reads a counter, dawdles, and writes it plus one. Meanwhile holders and waiters are
killed with -9, and stopped past their lease and continued.

The counter is a file of lines `begin TOKEN VALUE RUN` and `write TOKEN VALUE RUN`,
appended under a flock of its own, as a fenced resource does: a write with a token
lower than the highest one seen is refused. So a holder that lost its lock while it was
stopped writes nothing. No update is lost if the values written are
1, 2, 3, ... without a gap or a repetition, and the tokens only grow.

BELAY_HAMMER_SECONDS is the duration (20; `make test` takes 60 where CI is set), unless too little was done by then:
a machine that is busy with something else has up to MORE_TIME times as long.
"""
import contextlib
import os
import random
import re
import shutil
import signal
import sqlite3
import subprocess
import tempfile
import threading
import time
import unittest

BELAY = os.environ.get("BELAY_BIN", "build/belay")
SECONDS = float(os.environ.get("BELAY_HAMMER_SECONDS", "20"))
MORE_TIME = 4
WORKERS = 16
TTL_MS = 1000
PAST_LEASE_S = 1.6

# Exit 3: the fence refused the token. Without a token (locking switched off) there is no fence.
WRITER = r"""
exec 9<>"$1/fence"
flock 9
last=$(tail -n 1 "$1/counter"); set -- "$1" $last
if [ -n "$BELAY_TOKEN" ] && [ "$BELAY_TOKEN" -le "${3:-0}" ]; then echo "$HAMMER_RUN" >>"$1/refused"; exit 3; fi
value=${4:-0}
echo "begin ${BELAY_TOKEN:-0} $value $HAMMER_RUN" >>"$1/counter"
flock -u 9
sleep 0.0$(($$ % 5))
flock 9
last=$(tail -n 1 "$1/counter"); set -- "$1" $last
if [ -n "$BELAY_TOKEN" ] && [ "$BELAY_TOKEN" != "$3" ]; then echo "$HAMMER_RUN" >>"$1/refused"; exit 3; fi
echo "write ${BELAY_TOKEN:-0} $((value + 1)) $HAMMER_RUN" >>"$1/counter"
"""
# 137 and 143: COMMAND itself was killed, or ended by a guardian whose belay then reported its signal.
EXPECTED = {0, 3, 75, 76, 128 + signal.SIGKILL, 128 + signal.SIGTERM, -signal.SIGKILL}


def tree_of(pid):
    """A process and its descendants: belay, its guardian, COMMAND and its children."""
    found = [pid]
    for parent in found:
        try:
            with open(f"/proc/{parent}/task/{parent}/children", encoding="ascii") as file:
                found += [int(child) for child in file.read().split()]
        except OSError:
            pass
    return found


def send(pids, number):
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass


class Hammer:
    def __init__(self, directory, seconds, seed, **extra_env):
        self.directory = directory
        self.ends = time.monotonic() + seconds
        self.gives_up = time.monotonic() + MORE_TIME * seconds
        self.is_enough = lambda: True
        self.random = random.Random(seed)
        self.env = dict(os.environ, BELAY_STORE=f"sqlite:{directory}/locks.db", **extra_env)
        self.env.pop("BELAY_TOKEN", None)
        self.lock = threading.Lock()
        self.running = {}  # run -> Popen
        self.codes = {}
        self.odd = []  # (code, standard error) of unexpected results
        self.deeds = {}
        for name in ("fence", "counter", "refused"):
            open(os.path.join(directory, name), "w", encoding="ascii").close()

    def over(self):
        now = time.monotonic()
        return now >= self.ends and (now >= self.gives_up or self.is_enough())

    def command(self):
        return [BELAY, "run", "--ttl", f"{TTL_MS}ms", "--heartbeat", "250ms", "--wait", "60s", "hammer", "--",
                "sh", "-c", WRITER, "writer", self.directory]

    def work(self, worker):
        turn = 0
        while not self.over():
            turn += 1
            run = f"w{worker}-{turn}."
            # A file, not a pipe: an orphan would keep the pipe open. A session each: a belay whose COMMAND is
            # stopped stops its whole job, which must not include this test.
            with open(os.path.join(self.directory, f"stderr-{worker}"), "w+", encoding="utf-8") as errors:
                process = subprocess.Popen(self.command(), env=dict(self.env, HAMMER_RUN=run),
                                           stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors,
                                           start_new_session=True)
                with self.lock:
                    self.running[run] = process
                code = process.wait()
                errors.seek(0)
                messages = errors.read()
            with self.lock:
                del self.running[run]
                self.codes[code] = self.codes.get(code, 0) + 1
                if code not in EXPECTED:
                    self.odd.append((code, messages))

    def victim(self):
        """Half of the time the holder, in the middle of its work; else any process, mostly a waiter."""
        if self.random.random() < 0.6:
            for _ in range(200):
                lines = self.lines()
                with self.lock:
                    process = self.running.get(lines[-1][3]) if lines else None
                if process is not None and lines[-1][0] == "begin":
                    return process
                time.sleep(0.001)
        with self.lock:
            return self.random.choice(list(self.running.values())) if self.running else None

    def harm(self):
        deeds = ["kill belay", "kill command", "stop belay", "stop all of it"]
        to_do = []
        while not self.over():
            time.sleep(self.random.uniform(0.1, 0.6))
            process = self.victim()
            if process is None:
                continue
            # Each of them once before any of them again: a short run on a slow machine does them all too.
            if not to_do:
                to_do = self.random.sample(deeds, len(deeds))
            deed = to_do.pop()
            self.deeds[deed] = self.deeds.get(deed, 0) + 1
            if deed == "kill belay":
                send([process.pid], signal.SIGKILL)
            elif deed == "kill command":
                send([pid for pid in tree_of(process.pid) if is_writer(pid)], signal.SIGKILL)
            else:
                pids = tree_of(process.pid)[:1 if deed == "stop belay" else None]
                send(pids, signal.SIGSTOP)
                # COMMAND continues before belay and the guardian, which would end it: only the fence protects
                # the counter. Do not wait: several may be stopped at a time.
                past = self.random.uniform(1, 1.5) * PAST_LEASE_S
                threading.Timer(past, send, (pids[2:], signal.SIGCONT)).start()
                threading.Timer(past + 0.1, send, (pids, signal.SIGCONT)).start()

    def run(self, harmful=True):
        threads = [threading.Thread(target=self.work, args=(i,)) for i in range(WORKERS)]
        if harmful:
            threads.append(threading.Thread(target=self.harm))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        time.sleep(PAST_LEASE_S * 1.6)  # the last stopped processes continue, and try to write

    def lines(self):
        with open(os.path.join(self.directory, "counter"), encoding="ascii") as file:
            rows = [line.split() for line in file if line.endswith("\n")]
        return [(row[0], int(row[1]), int(row[2]), row[3]) for row in rows if len(row) == 4]

    def workers_that_wrote(self):
        return {re.match(r"w(\d+)-", run).group(1) for what, _, _, run in self.lines() if what == "write"}

    def writes(self):
        return [(token, value) for what, token, value, _ in self.lines() if what == "write"]


def is_writer(pid):
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read().startswith(b"sh\0-c\0")
    except OSError:
        return False


def lost_updates(values):
    """How many written values are not one more than the previous value."""
    return sum(1 for before, after in zip([0] + values, values) if after != before + 1)


class HammerTest(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.mkdtemp(prefix="belay-hammer-")
        self.addCleanup(shutil.rmtree, self.directory, True)
        self.seed = int(os.environ.get("BELAY_HAMMER_SEED", str(random.SystemRandom().randrange(1 << 30))))

    def belay(self, hammer, *words):
        return subprocess.run([BELAY, *words], env=hammer.env, stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, timeout=60, check=False)

    def test_no_update_is_lost_and_tokens_only_grow(self):
        hammer = Hammer(self.directory, SECONDS, self.seed)
        hammer.is_enough = lambda: (len(hammer.writes()) > 2 * SECONDS and len(hammer.deeds) == 4
                                    and len(hammer.workers_that_wrote()) == WORKERS)
        hammer.run()
        writes = hammer.writes()
        tokens = [token for token, _ in writes]
        with open(os.path.join(self.directory, "refused"), encoding="ascii") as file:
            refused = len(file.readlines())
        told = (f"seed {self.seed}, {len(writes)} writes, {refused} refused by the fence, codes {hammer.codes}, "
                f"deeds {hammer.deeds}")
        print(told, flush=True)

        self.assertEqual(hammer.odd[:5], [], told)
        self.assertEqual(lost_updates([value for _, value in writes]), 0, told)
        self.assertTrue(all(a < b for a, b in zip(tokens, tokens[1:])), told)  # L2
        begun = [token for what, token, _, _ in hammer.lines() if what == "begin"]
        self.assertTrue(all(a < b for a, b in zip(begun, begun[1:])), told)
        # It was a hammering, and every kind of harm was done.
        self.assertGreater(len(writes), 2 * SECONDS, told)
        self.assertEqual(len(hammer.deeds), 4, told)
        self.assertEqual(len(hammer.workers_that_wrote()), WORKERS, told)

        # L4: after all that, the lock is free and the file is intact.
        after = self.belay(hammer, "run", "--wait", "30s", "hammer", "--", "true")
        self.assertEqual(after.returncode, 0, after.stderr)
        with contextlib.closing(sqlite3.connect(f"{self.directory}/locks.db")) as db:
            self.assertEqual(db.execute("PRAGMA integrity_check").fetchone()[0], "ok")

    def test_the_same_load_without_locks_is_detected(self):
        """Proof that this test can fail: with the kill switch on (S0.9) updates are lost and detected."""
        hammer = Hammer(self.directory, 2, self.seed, BELAY_DISABLED="1")
        hammer.is_enough = lambda: len(hammer.writes()) > 50 and lost_updates([value for _, value in hammer.writes()]) > 0
        hammer.run(harmful=False)
        values = [value for _, value in hammer.writes()]
        self.assertGreater(len(values), 50)
        self.assertGreater(lost_updates(values), 0)


if __name__ == "__main__":
    unittest.main()
