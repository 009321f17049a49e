"""
While a server runs on a file it owns it: commands that name the same file go through its socket
beside the file, in the same line, and on without it when it has stopped or was killed.
"""

import json
import os
import signal
import stat
import time
import urllib.parse
import urllib.request
from pathlib import Path

from remote_support import RemoteCase, wait_until
from support import PATIENCE, main


class OwnerCase(RemoteCase):
    """BELAY_STORE names the file; the server is started when a test wants it."""

    tokens = [("ci", "locker", "secret-of-ci")]  # the socket beside the file needs none

    def serve(self, *more):
        if self.server is not None or more or self.wants_server:
            super().serve(*more)

    wants_server = False

    def setUp(self):
        super().setUp()
        self.env["BELAY_STORE"] = self.file

    def begin(self, *more):
        self.wants_server = True
        self.serve(*more)

    def stop(self):
        self.server.send_signal(signal.SIGTERM)
        self.assertEqual(self.server.wait(PATIENCE), 0)

    def waits(self, n):
        wait_until(lambda: self.events("k").count("wait.began") >= n, f"{n} in line")

    def line_up(self, n, first=0):
        """Waiters that write their names when they get the lock, queued one after another."""
        processes = []
        for i in range(first, first + n):
            processes.append(self.start("run", "--ttl", "30s", "--wait", "90s", "--owner", f"w{i}", "k", "--", "sh",
                                        "-c", f"echo w{i} >>order"))
            self.waits(i + 1)
        return processes

    def all_succeed(self, processes, names):
        for process in processes:
            self.assertEqual(process.wait(PATIENCE), 0, process.stderr.read())
        self.assertEqual(self.read("order").split(), names)

    def holder(self):
        """Holds k with a heartbeat until the file 'go' is there."""
        return self.start_command("--ttl", "10s", "--heartbeat", "300ms", "--owner", "holder",
                                  script="while [ ! -e go ]; do sleep 0.05; done; echo holder >>order")[0]

    def go(self):
        with open(self.path("go"), "w", encoding="utf-8"):
            pass


class Forced(OwnerCase):
    """L6: a holder learns at once that its lock was forced, whether a server runs or not."""

    def run_and_force(self, force, between=lambda: None):
        process, pid = self.start_command("--ttl", "1h", "--heartbeat", "40m", script="exec sleep 60")
        time.sleep(0.3)
        between()
        time.sleep(0.3)
        began = time.monotonic()
        force()
        _, err = process.communicate(timeout=PATIENCE)
        self.assertLess(time.monotonic() - began, 5)
        self.assertEqual(process.returncode, 76, err)
        self.assert_gone(pid)

    def unlock(self):
        self.ok("unlock", "k", "--force", "--yes")

    def test_through_the_socket_of_a_server(self):
        self.begin()
        self.run_and_force(self.unlock)

    def test_a_command_is_stopped_when_its_lock_is_forced_through_a_later_server(self):
        self.run_and_force(self.unlock, self.begin)

    def test_a_command_is_stopped_when_its_lock_is_forced_after_the_server_has_gone(self):
        self.begin()
        self.run_and_force(self.unlock, self.stop)
        self.begin()
        self.run_and_force(self.unlock, self.kill_server)


class TestOwner(OwnerCase):
    def test_a_local_command_goes_through_the_server_and_needs_no_token(self):
        self.begin()
        lock = self.acquire("k", "--owner", "local")
        self.assertEqual(self.status("k")["lock_id"], lock["lock_id"])  # as an admin sees it
        self.assertIn("POST", self.read("server.log"))
        self.assertIn("/v1/acquire", self.read("server.log"))
        self.fails(75, "acquire", "k")
        self.assertEqual(self.events("k")[0], "lock.acquired")
        self.ok("unlock", "k", "--force", "--yes")
        self.assertEqual([one["key"] for one in self.ok("list", "--json", "--all").json()["locks"]], ["k"])
        self.stop()
        self.assertEqual(self.status("k")["outcome"], "forced")

    def test_the_socket_has_the_permissions_of_the_file(self):
        self.ok("list")
        os.chmod(self.path("belay.db"), 0o660)
        self.begin()
        mode = os.stat(self.path("belay.db-serve.sock")).st_mode
        self.assertTrue(stat.S_ISSOCK(mode))
        self.assertEqual(stat.S_IMODE(mode), 0o660)

    def test_a_second_server_is_refused_with_the_pid_of_the_first(self):
        self.begin()
        result = self.fails(69, "serve", "--listen", "127.0.0.1:0")
        self.assertIn(f"process {self.server.pid} serves", result.err)
        self.assertEqual(result.err.count("\n"), 1)
        self.acquire("k")  # and the first one is none the worse

    def test_the_path_may_be_longer_than_a_socket_address(self):
        folder = self.dir / ("d" * 100) / ("e" * 100)
        folder.mkdir(parents=True)
        self.file = self.env["BELAY_STORE"] = f"sqlite:{folder}/{'f' * 120}.db"
        self.begin()
        self.acquire("k")
        self.assertIn("/v1/acquire", self.read("server.log"))
        self.kill_server()
        self.acquire("k2")
        self.begin()
        self.acquire("k3")

    def test_doctor_and_verbose_say_who_serves_the_file(self):
        self.begin()
        self.acquire("k")
        self.assertRegex(self.ok("doctor").out, rf"served by.*process {self.server.pid}|process {self.server.pid}.*serve")
        self.assertIn(f"process id {self.server.pid}", self.ok("status", "--verbose", "k").err)
        self.assertEqual(self.ok("status", "k").err, "")
        self.stop()
        self.assertNotIn("process", self.ok("status", "--verbose", "k").err)
        self.assertNotIn(f"process {self.server.pid}", self.ok("doctor").out)


class TestComingAndGoing(OwnerCase):
    def test_a_server_started_under_a_holder_and_eight_waiters_keeps_them_in_order(self):
        """L4, L6: no client loses its lock or its place."""
        holder = self.holder()
        waiters = self.line_up(8)
        self.begin()
        time.sleep(1)  # some heartbeats through the server
        waiters += self.line_up(2, first=8)
        self.go()
        self.all_succeed([holder, *waiters], ["holder", *[f"w{i}" for i in range(10)]])
        self.assertNotIn("lock.lost", self.events("k"))
        self.assertEqual(self.status("k")["status"], "released")

    def test_a_server_stopped_under_a_holder_and_waiters_leaves_them_in_order(self):
        self.begin()
        holder = self.holder()
        waiters = self.line_up(5)
        self.stop()
        waiters += self.line_up(1, first=5)
        self.go()
        self.all_succeed([holder, *waiters], ["holder", *[f"w{i}" for i in range(6)]])
        self.assertNotIn("lock.lost", self.events("k"))

    def test_a_server_killed_under_a_holder_and_waiters_leaves_them_in_order(self):
        self.begin()
        token = self.acquire("other")["token"]
        holder = self.holder()
        waiters = self.line_up(5)
        self.kill_server()
        waiters += self.line_up(1, first=5)
        self.go()
        self.all_succeed([holder, *waiters], ["holder", *[f"w{i}" for i in range(6)]])
        self.assertNotIn("lock.lost", self.events("k"))
        self.assertEqual(self.status("other")["token"], token)
        self.assertGreater(self.acquire("other2")["token"], token)

    def test_when_the_server_is_killed_at_a_release_the_first_waiter_is_next(self):
        """Issue 12, item 37: waiters that returned early dropped the places of the others as dead."""
        self.begin()
        holder = self.holder()
        waiters = self.line_up(8)
        self.kill_server()
        self.go()
        self.all_succeed([holder, *waiters], ["holder", *[f"w{i}" for i in range(8)]])

    def test_a_server_killed_and_restarted_under_load_loses_nothing(self):
        """No token twice, and every command succeeds."""
        self.begin()
        workers = [self.start("run", "--wait", "90s", f"k{i % 3}", "--", "sh", "-c", "echo $BELAY_TOKEN >>tokens")
                   for i in range(12)]
        for _ in range(3):
            time.sleep(0.2)
            self.kill_server()
            self.begin()
        for worker in workers:
            self.assertEqual(worker.wait(PATIENCE), 0, worker.stderr.read())
        tokens = self.read("tokens").split()
        self.assertEqual((len(tokens), len(set(tokens))), (12, 12))

    def test_a_stopped_server_is_waited_for_and_then_reported(self):
        """SIGSTOP: what only looks ends with 69, what may have happened with 74 and how to find out."""
        self.begin()
        self.ok("acquire", "held", "--id", "i1")
        self.server.send_signal(signal.SIGSTOP)
        asked = [self.start("status", "held"), self.start("list"), self.start("acquire", "k", "--id", "i2")]
        ends = [(process.communicate(timeout=90)[1], process.returncode) for process in asked]
        self.server.send_signal(signal.SIGCONT)
        for err, code in ends[:2]:
            self.assertEqual(code, 69, err)
            self.assertRegex(err, r"^belay: no answer from .*-serve\.sock")
            self.assertEqual(len(err.splitlines()), 1)
        self.assertEqual(ends[2][1], 74, ends[2][0])
        self.assertIn("belay acquire k --id i2", ends[2][0])
        self.assertEqual(self.ok("acquire", "k", "--id", "i2", "--json").json()["lock_id"], "i2")
        self.assertIn("held", self.ok("list").out)

    def test_watch_continues_through_a_server_and_without_it(self):
        self.acquire("k0")
        watch = self.start("watch", "--json", "--prefix", "k")
        time.sleep(0.5)
        seen = []

        def next_key():
            seen.append(json.loads(watch.stdout.readline())["lock_key"])
            return seen[-1]

        self.acquire("k1")
        self.assertEqual(next_key(), "k1")
        self.begin()
        self.acquire("k2")
        self.assertEqual(next_key(), "k2")
        self.stop()
        self.acquire("k3")
        self.assertEqual(next_key(), "k3")
        self.begin()
        self.acquire("k4")
        self.assertEqual(next_key(), "k4")
        self.kill_server()
        self.acquire("k5")
        self.assertEqual(next_key(), "k5")


class TestDecisions(OwnerCase):
    """S3.8, S3.9: what is decided about a database is in the history, whichever way it went, and there once."""

    KEY = "LOCK#DB#db.example:5432"
    tokens = []

    def setUp(self):
        super().setUp()
        config = {"databases": {"postgres": {
            verb: {"command": ["sh", "-c", f"[ ! -e {self.path(verb)} ] || . {self.path(verb)}"], "timeout": "30s"}
            for verb in ("stop", "start")}}}
        Path(self.path("belay.yaml")).write_text(json.dumps(config), encoding="utf-8")
        self.env["BELAY_CONFIG"] = self.path("belay.yaml")
        self.ok("app", "register", "shop", "--url", "http://127.0.0.1:9/", "--database", "postgres=db.example:5432")

    def during(self, verb, script):
        Path(self.path(verb)).write_text(script, encoding="utf-8")

    def decisions(self):
        return [event for event in self.events(self.KEY) if event.startswith("db.")]

    def over_http(self):
        with urllib.request.urlopen(f"{self.url}/v1/locks/{urllib.parse.quote(self.KEY, safe='')}/history", timeout=10) as answer:
            return [event["event"] for event in json.load(answer)["events"] if event["event"].startswith("db.")]

    def test_decisions_are_recorded_on_the_file_through_its_owner_and_over_http(self):
        expected = ["db.stop.decided", "db.stop.stopped"]
        self.ok("db", "stop", "--app", "shop")
        self.assertEqual(self.decisions(), expected)
        self.begin()
        self.ok("db", "start", "--app", "shop")
        expected += ["db.start.decided", "db.start.started"]
        self.assertEqual(self.decisions(), expected)
        self.assertEqual(self.over_http(), expected)
        self.ok("db", "stop", "--app", "shop", env={"BELAY_STORE": self.url})
        expected += ["db.stop.decided", "db.stop.stopped"]
        self.assertEqual(self.over_http(), expected)
        self.stop()
        self.assertEqual(self.decisions(), expected)

    def test_decisions_of_other_clients_are_recorded_too(self):
        """A database that another application uses, and a held lock."""
        self.ok("app", "register", "blog", "--url", "http://127.0.0.1:9/", "--database", "postgres=db.example:5432")
        self.begin()
        self.fails(75, "db", "stop", "--app", "shop")
        self.acquire(self.KEY)
        self.fails(75, "db", "stop", "--app", "shop")
        self.assertEqual(self.decisions(), ["db.stop.skipped_shared_active", "db.stop.skipped_lock"])
        self.assertEqual(self.over_http(), self.decisions())

    def test_decisions_are_recorded_if_the_server_dies_meanwhile(self):
        self.begin()
        self.during("stop", f"kill -9 {self.server.pid}")
        self.ok("db", "stop", "--app", "shop")
        self.server.wait(PATIENCE)
        self.assertEqual(self.decisions(), ["db.stop.decided", "db.stop.stopped"])

    def test_decisions_are_recorded_if_a_server_starts_meanwhile(self):
        self.during("stop", f"while [ ! -e {self.path('go')} ]; do touch {self.path('begun')}; sleep 0.05; done")
        stop = self.start("db", "stop", "--app", "shop")
        wait_until(lambda: self.has("begun"), "the stop under way")
        self.begin()
        Path(self.path("go")).touch()
        self.assertEqual(stop.wait(PATIENCE), 0, stop.stderr.read())
        self.assertEqual(self.decisions(), ["db.stop.decided", "db.stop.stopped"])
        self.assertEqual(self.over_http(), self.decisions())

    def test_a_decision_reported_twice_is_recorded_once(self):
        """As after an answer that was lost."""
        self.begin()
        self.ok("db", "stop", "--app", "shop")
        with urllib.request.urlopen(f"{self.url}/v1/databases/db.example:5432", timeout=10) as answer:
            last = json.load(answer)["last"]
        for _ in range(2):
            request = urllib.request.Request(f"{self.url}/v1/databases/db.example:5432/last", json.dumps({**last, "verb": "stop"}).encode(),
                                             {"Content-Type": "application/json"}, method="PUT")
            urllib.request.urlopen(request, timeout=10).close()
        self.assertEqual(self.decisions(), ["db.stop.decided", "db.stop.stopped"])


if __name__ == "__main__":
    main()
