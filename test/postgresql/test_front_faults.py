"""Clients that were given the URLs of several fronts, one of which hangs, refuses, is nowhere, or has another store."""
import concurrent.futures
import http.server
import json
import re
import select
import signal
import socket
import subprocess
import threading
import time
import unittest

from test_fronts import PATIENCE, FrontsCase, Stream, postgresql, unless_stalled, wait_until

HANG = 4  # REMOTE_ANSWER_SEVERAL_MS
SLACK = 4  # of a busy machine; the usual limit, without a second front, is 10 s


class Refusing(http.server.BaseHTTPRequestHandler):
    """As a load balancer that has nothing behind it."""

    def answer(self):
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = b"<html>no healthy upstream</html>"
        self.send_response(503)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = do_PUT = do_DELETE = answer

    def log_message(self, *_):
        pass


class FaultsCase(FrontsCase):
    def stopped(self, front):
        """Its connections are accepted by the kernel, and nobody answers."""
        front.process.send_signal(signal.SIGSTOP)
        self.addCleanup(front.process.send_signal, signal.SIGCONT)
        return front

    def timed(self, urls, *arguments):
        began = time.monotonic()
        done = self.ok(*arguments, env={"BELAY_STORE": urls})
        return done, time.monotonic() - began

    def first_event(self, urls):
        """What `belay watch` shows first, and after which time."""
        is_over = threading.Event()

        def change():
            n = 0
            while not is_over.wait(0.2):
                self.acquire(f"first-{n}", "--ttl", "60s")
                n += 1
        changing = threading.Thread(target=change)
        began = time.monotonic()
        watch = self.start("watch", "--json", env={"BELAY_STORE": urls}, bufsize=0, encoding=None)
        changing.start()
        try:
            readable = select.select([watch.stdout], [], [], PATIENCE)[0]
            took = time.monotonic() - began
        finally:
            is_over.set()
            changing.join()
        self.assertTrue(readable, "belay watch shows nothing")
        self.assertIn("first-", json.loads(watch.stdout.readline())["lock_key"])
        return took

    def every_kind(self, urls, key):
        """Every kind of request, each of a new process that begins with the first URL: how long they take."""
        times, other = {}, f"other-{key}"

        def ask(*arguments):
            done, times[arguments[0]] = self.timed(urls, *arguments)
            return done
        lock = ask("acquire", "--json", key, "--ttl", "10m").json()
        with concurrent.futures.ThreadPoolExecutor() as pool:
            for one in [pool.submit(ask, *arguments) for arguments in (
                    ("status", key), ("renew", key, "--id", lock["lock_id"]), ("wait", "free", "--wait", "5s"),
                    ("run", other, "--", "true"))]:
                one.result()
            self.assertIn(key, pool.submit(ask, "top").result().out)  # without a terminal it is a list
        ask("release", key, "--id", lock["lock_id"])
        self.assertEqual(self.events(key), ["lock.acquired", "lock.renewed", "lock.released"])
        self.assertEqual(self.events(other), ["lock.acquired", "lock.released"])
        return times

    def commands(self, urls, limit):
        """None waits longer than that, beside what it takes with the last front alone: the machine may be busy."""
        usual, times = self.every_kind(urls.split(",")[-1], "usual"), self.every_kind(urls, "k")
        for name, took in times.items():
            self.assertLess(took - usual[name], limit, (name, times, usual))


class FromTheStart(FaultsCase):
    def test_a_front_that_hangs_is_left_after_four_seconds(self):
        a, b = self.two()
        self.stopped(a)
        self.commands(f"{a.url},{b.url}", HANG + SLACK)

    def test_watch_leaves_it_as_soon(self):
        a, b = self.two()
        self.stopped(a)
        self.assertLess(self.first_event(f"{a.url},{b.url}"), HANG + SLACK)

    def test_a_front_that_answers_503_is_left_at_once(self):
        refusing = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Refusing)
        self.addCleanup(refusing.server_close)
        self.addCleanup(refusing.shutdown)
        threading.Thread(target=refusing.serve_forever, daemon=True).start()
        urls = f"http://127.0.0.1:{refusing.server_address[1]},{self.serve().url}"
        self.commands(urls, HANG)
        self.first_event(urls)

    def test_a_name_that_does_not_exist_is_passed_over(self):
        urls = f"http://no-such-host.invalid:7420,{self.serve().url}"
        self.commands(urls, HANG + SLACK)
        self.first_event(urls)

    def test_a_list_over_tls_goes_over_too(self):
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                        "-keyout", self.dir / "key.pem", "-out", self.dir / "cert.pem", "-days", "2", "-subj", "/CN=127.0.0.1",
                        "-addext", "subjectAltName=IP:127.0.0.1"], check=True, capture_output=True)
        fronts = [self.serve("--tls-cert", str(self.dir / "cert.pem"), "--tls-key", str(self.dir / "key.pem")) for _ in range(2)]
        urls = ",".join(front.url for front in fronts)
        self.assertEqual(urls.count("https://"), 2)
        self.env["BELAY_CA_FILE"] = str(self.dir / "cert.pem")
        self.commands(urls, HANG)
        self.stopped(fronts[0])
        self.assertLess(self.timed(urls, "status", "k")[1], HANG + SLACK)
        self.assertLess(self.first_event(urls), HANG + SLACK)
        fronts[0].process.kill()
        self.assertLess(self.timed(urls, "status", "k")[1], HANG)


class BeforeTheDatabase(FrontsCase):
    """A front may be started before its database, and must say what it cannot do."""

    def make_server(self):
        server = postgresql.Server()
        self.addCleanup(server.close)
        return server.init().start()

    def notes(self, front, n=1):
        """What its log says of the store, once there is so much."""
        def found():
            return [json.loads(line)["message"] for line in front.log().splitlines(True)
                    if line.endswith("\n") and '"event":"store"' in line]
        wait_until(lambda: len(found()) >= n, "the front to tell of its store")
        return found()

    def test_it_says_so_and_knows_its_store_later(self):
        """L1: only a front that knows its store refuses the clients of another."""
        self.server.stop()
        front = self.serve()
        self.assertRegex(self.notes(front)[0], "requests fail until the store can be used: cannot connect to PostgreSQL")
        self.assertEqual([front.get(path).status for path in ("/healthz", "/readyz")], [200, 503])
        self.server.start()
        self.assertEqual(self.notes(front, 2)[1:], ["the store answers now"])
        self.assertEqual(front.call("GET", "/v1/locks", headers={"Belay-Store": "another"}).status, 400)
        self.assertEqual(front.acquire("k", "me", ttl_ms=60000).status, 200)

    def test_it_asks_a_database_that_hangs_once(self):
        """Ten seconds are enough to find that it does not answer, before clients are told so."""
        with socket.create_server(("127.0.0.1", 0)) as silent:
            began = time.monotonic()
            front = self.serve("--store", f"postgresql://postgres@127.0.0.1:{silent.getsockname()[1]}/postgres")
            self.assertLess(time.monotonic() - began, 10 + 2 + SLACK)  # PG_TIMEOUT_MS, and READY_MS for wake-ups
            self.assertRegex(self.notes(front)[0], "requests fail until the store can be used: .*did not answer in time")
            front.process.kill()

    def test_its_dashboard_shows_what_happens_at_the_other_front(self):
        """As if it had been started later: it knows then where the list of events ends."""
        self.acquire("before", "--ttl", "60s")
        self.server.stop()
        front = self.serve()
        self.notes(front)
        live = Stream(front, "/v1/live")
        self.addCleanup(live.close)
        blocks, end = live.blocks(), time.monotonic() + 2 * PATIENCE

        def await_event(name):
            for block in blocks:  # a comment comes every 15 s
                self.assertLess(time.monotonic(), end, f"no {name}")
                data = [json.loads(line.removeprefix("data: ")) for line in block if line.startswith("data: ")]
                if f"event: {name}" in block and data[0].get("locks", True):
                    return data[0]
            raise AssertionError("the stream has ended")

        await_event("hello")
        self.server.start()
        await_event("reset")
        self.acquire("other", "--ttl", "60s")
        self.assertEqual([row["key"] for row in await_event("locks")["locks"]], ["other"])
        activity = front.get("/v1/activity").json()
        self.assertTrue(activity["is_complete"])
        self.assertEqual(activity["total"]["acquired"], 2)

    def test_doctor_notices_a_front_whose_database_has_stopped(self):
        front = self.serve()
        self.assertRegex(self.ok("doctor", "--store", front.url).out, "(?m)^ok +server ")
        self.server.stop()
        self.assertRegex(self.fails(69, "doctor", "--store", front.url).out, "(?m)^FAILED +server +.*PostgreSQL")
        self.server.start()

    def test_it_says_that_the_schema_is_missing(self):
        self.sql("DROP SCHEMA @schema@ CASCADE")
        self.assertRegex(self.notes(self.serve())[0], "create it with `belay table create`")


class DatabaseRestart(FaultsCase):
    """Both fronts refuse while the database is restarted, so a client asks them in turn."""

    def make_server(self):
        server = postgresql.Server()
        self.addCleanup(server.close)
        return server.init().start()

    def slice(self, front, status):
        """Until it has this status: a piece of the wait of one client, which comes back with its id."""
        wait_until(lambda: front.acquire("k", "w", wait_ms=50, ttl_ms=60000, lock_id="id-w").status == status,
                   f"the front to answer {status}")

    def test_a_front_that_its_client_has_left_does_not_end_the_wait(self):
        """L4"""
        a, b = self.two()
        a.acquire("k", "holder", ttl_ms=60000)
        self.slice(a, 409)
        self.server.stop()
        self.slice(a, 503)
        self.server.start()
        self.slice(b, 409)
        a.acquire_later("k", "w", wait_ms=int(PATIENCE * 1000), ttl_ms=60000, lock_id="id-w")
        wait_until(lambda: b"belay_waiting 1\n" in a.get("/metrics").body, "the client to wait at the first front")
        wait_until(lambda: b"belay_waiting 0\n" in b.get("/metrics").body, "the other front to give it up")
        self.assertEqual(a.queue("k"), ["w"])
        self.assertNotIn("wait.ended", self.events("k"))


class ShortLeases(FaultsCase):
    EXTRA = None  # as users have it: a quarter of a ttl of 10 s is for a step of the database's clock

    def test_a_command_goes_on_with_a_ttl_of_ten_seconds(self):
        """L6: a front that hangs takes only a part of the time that is left of a lease."""
        hung, front = self.two()

        def hold(n):
            key = f"k{n}"
            hung.process.send_signal(signal.SIGCONT)
            run = self.start("run", key, "--ttl", "10s", "--", "sh", "-c", "read line; echo still", stdin=subprocess.PIPE,
                             env={"BELAY_STORE": f"{hung.url},{front.url}"})
            wait_until(lambda: front.get(f"/v1/locks/{key}").status == 200, "the lock to be taken")
            self.stopped(hung)
            wait_until(lambda: self.events(key).count("lock.renewed") >= 3 or run.poll() is not None, "three renewals")
            out, err = run.communicate("go\n", timeout=PATIENCE)
            self.assertEqual((run.returncode, out, err), (0, "still\n", ""))
        unless_stalled(hold)

    def test_a_check_leaves_it_after_a_second(self):
        """The lock can be relied on from when the other front was asked, not from when this one was."""
        hung, front = self.two()
        began = time.monotonic()
        lock = self.acquire("k", "--ttl", "60s")
        self.stopped(hung)
        done, took = self.timed(f"{hung.url},{front.url}", "check", "--json", "k", "--id", lock["lock_id"])
        self.assertLess(took, HANG)
        self.assertGreater(done.json()["valid_for_ms"] / 1000, 54 - (time.monotonic() - began))  # 60 s less 2 x 3 s


class UnderWay(FaultsCase):
    """The front hangs while a client uses it."""

    def setUp(self):
        super().setUp()
        self.fronts = self.two()
        self.over = {"BELAY_STORE": ",".join(front.url for front in self.fronts)}

    def test_a_holder_keeps_its_lock(self):
        """L6: a renewal that is not answered leaves time for another front."""
        run = self.start("run", "k", "--ttl", "12s", "--", "sh", "-c", "read line; echo still", stdin=subprocess.PIPE, env=self.over)
        wait_until(lambda: self.fronts[1].get("/v1/locks/k").status == 200, "the lock to be taken")
        self.stopped(self.fronts[0])
        before = self.events("k").count("lock.renewed")
        wait_until(lambda: self.events("k").count("lock.renewed") >= before + 5, "more renewals than a lease lasts")
        out, err = run.communicate("go\n", timeout=PATIENCE)
        self.assertEqual((run.returncode, out), (0, "still\n"), err)
        self.assertNotIn("lock.lost", self.events("k"))

    def test_a_late_renewal_by_the_front_that_hung_does_no_harm(self):
        """L1, L6: when it goes on, the lock is held by another client, and stays as it is."""
        run = self.start("run", "k", "--ttl", "18s", "--", "sh", "-c", "read line; echo still", stdin=subprocess.PIPE, env=self.over)
        wait_until(lambda: self.fronts[1].get("/v1/locks/k").status == 200, "the lock to be taken")
        self.stopped(self.fronts[0])
        wait_until(lambda: "lock.renewed" in self.events("k"), "a renewal through the other front")
        out, err = run.communicate("go\n", timeout=PATIENCE)
        self.assertEqual((run.returncode, out), (0, "still\n"), err)
        before = self.acquire("k", "--ttl", "60s")
        self.fronts[0].process.send_signal(signal.SIGCONT)
        wait_until(lambda: self.fronts[0].get("/healthz").status == 200, "the front to answer again")
        wait_until(lambda: re.search(rb'belay_http_requests_total\{method="POST",route="/v1/renew",status="5xx"\} [1-9]',
                                     self.fronts[0].get("/metrics").body), "it to refuse the renewal that it was left with")
        after = self.fronts[0].get("/v1/locks/k").json()
        self.assertEqual({name: after[name] for name in ("token", "locked_by", "expires_at")},
                         {name: before[name] for name in ("token", "locked_by", "expires_at")})

    def test_a_waiter_gets_the_lock(self):
        """L4: from the front that answers."""
        held = self.acquire("k", "--ttl", "60s")
        waiter = self.start("run", "k", "--wait", "60s", "--ttl", "6s", "--", "true", env=self.over)
        wait_until(lambda: self.fronts[1].queue("k"), "the waiter")
        self.stopped(self.fronts[0])
        self.ok("release", "k", "--id", held["lock_id"])
        _, err = waiter.communicate(timeout=PATIENCE)
        self.assertEqual(waiter.returncode, 0, err)

    def test_a_holder_learns_of_a_force(self):
        """L6: long before its next renewal, although the front that would tell it says nothing."""
        run = self.start("run", "k", "--ttl", "30m", "--", "sleep", "60", env=self.over)
        wait_until(lambda: self.fronts[1].get("/v1/locks/k").status == 200, "the lock to be taken")
        self.stopped(self.fronts[0])
        self.ok("unlock", "k", "--force", "--yes", "--reason", "test")
        began = time.monotonic()
        self.assertEqual(run.wait(PATIENCE), 76, run.stderr.read())
        self.assertLess(time.monotonic() - began, 4 + HANG + 1 + SLACK)  # HELD_SEVERAL_MS, and a pause

    def test_watch_goes_over_to_no_server_of_another_store(self):
        """L1: what it would show is about other locks."""
        other = self.serve("--store", f"sqlite:{self.dir}/other.db")
        watch = self.start("watch", "--json", env={"BELAY_STORE": f"{self.fronts[0].url},{other.url}"})
        wait_until(lambda: b"belay_event_listeners 1" in self.fronts[0].get("/metrics").body, "the stream to begin")
        self.fronts[0].process.kill()
        _, err = watch.communicate(timeout=PATIENCE)
        self.assertEqual(watch.returncode, 64, err)
        self.assertIn("must name servers of one store", err)


class HangingCase(FaultsCase):
    def setUp(self):
        super().setUp()
        self.fronts = self.two()
        self.urls = [front.url for front in self.fronts]
        self.over, self.back = {"BELAY_STORE": ",".join(self.urls)}, {"BELAY_STORE": ",".join(reversed(self.urls))}

    def go_on(self, front):
        front.process.send_signal(signal.SIGCONT)
        wait_until(lambda: front.get("/healthz").status == 200, "the front to answer again")

    def process_of(self, owner):
        """Behind which a waiter waits."""
        return self.sql(f"SELECT t->>'p' FROM @schema@.locks, jsonb_array_elements(tickets) t WHERE t->>'o' = '{owner}'")

    def waiting_at(self, front):
        return int(re.search(rb"(?m)^belay_waiting (\d+)", front.get("/metrics").body).group(1))

    def refused(self, front, route):
        """The requests that it has refused because their clients had gone."""
        def found():
            return re.search(rb'belay_http_requests_total\{method="POST",route="%s",status="5xx"\} [1-9]' % route.encode(),
                             front.get("/metrics").body)
        wait_until(found, "the front to refuse what it was left with")

    def await_request(self, front):
        """A client has sent something to the front, which does not read it."""
        def unread():
            with open("/proc/net/tcp", encoding="utf-8") as file:
                lines = [line.split() for line in file]
            return any(local.endswith(f":{front.port:04X}") and state == "01" and not queues.endswith(":00000000")
                       for _, local, _, state, queues, *_ in lines[1:])
        wait_until(unread, "a request")


class Resumed(HangingCase):
    """The front hangs for a while, and then goes on with what it was left with."""

    def test_waiters_that_went_over_keep_their_places(self):
        """L4: they go over before their tickets end, and the front that they have left takes no place away."""
        held = self.acquire("k", "--ttl", "60s")
        waiting = []
        for i, env in enumerate((self.over, self.back, self.over)):
            waiting.append(self.start("run", "k", "--wait", "60s", "--owner", f"w{i}", "--", "sh", "-c", f"echo {i} >> order", env=env))
            self.fronts[1].wait_for_queue("k", [f"w{n}" for n in range(i + 1)])
        self.assertNotEqual(self.process_of("w0"), self.process_of("w1"))
        self.stopped(self.fronts[0])
        began = time.monotonic()
        for owner in ("w0", "w2"):
            wait_until(lambda owner=owner: self.process_of(owner) == self.process_of("w1"), f"{owner} to go over")
        self.assertLess(time.monotonic() - began, 2.5 + HANG + SLACK)  # SLICE_SEVERAL_MS; a ticket is valid for 7.5 s or more
        self.go_on(self.fronts[0])
        wait_until(lambda: self.waiting_at(self.fronts[0]) == 0, "the front to give its waiters up")
        self.assertEqual(self.fronts[1].queue("k"), ["w0", "w1", "w2"])
        self.ok("release", "k", "--id", held["lock_id"])
        for one in waiting:
            _, err = one.communicate(timeout=PATIENCE)
            self.assertEqual(one.returncode, 0, err)
        self.assertEqual((self.dir / "order").read_text().split(), ["0", "1", "2"])
        self.assertEqual([self.events("k").count(name) for name in ("wait.began", "wait.ended")], [3, 3])

    def test_it_takes_no_lock_for_a_client_that_was_refused_elsewhere(self):
        """Nobody would hold it, until its lease ends."""
        held = self.acquire("k", "--ttl", "60s")
        self.stopped(self.fronts[0])
        self.fails(75, "run", "k", "--", "true", env=self.over)
        self.ok("release", "k", "--id", held["lock_id"])
        self.go_on(self.fronts[0])
        self.refused(self.fronts[0], "/v1/acquire")
        self.assertEqual(self.fronts[1].get("/v1/locks/k").json()["status"], "released")
        self.assertEqual(self.events("k").count("lock.acquired"), 1)

    def test_it_takes_no_lock_for_a_client_that_was_interrupted(self):
        self.stopped(self.fronts[0])
        acquire = self.start("acquire", "k", "--ttl", "60s", env=self.over)
        self.await_request(self.fronts[0])
        acquire.send_signal(signal.SIGINT)
        self.assertEqual(acquire.wait(PATIENCE), 130)
        self.go_on(self.fronts[0])
        self.refused(self.fronts[0], "/v1/acquire")
        self.assertEqual(self.fronts[1].get("/v1/locks/k").status, 404)


class Interrupted(HangingCase):
    """Ctrl-C while no front answers."""

    def setUp(self):
        super().setUp()
        self.held = self.acquire("k", "--ttl", "60s")
        for front in self.fronts:
            self.stopped(front)

    def interrupt(self, *arguments, again=False):
        """The exit status, and after which time."""
        process = self.start(*arguments, env=self.over)
        self.await_request(self.fronts[0])
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        if again:
            self.assertIn("interrupt again to leave at once", process.stderr.readline())
            process.send_signal(signal.SIGINT)
        return process.wait(PATIENCE), time.monotonic() - began

    def test_what_only_reads_ends_at_once(self):
        for arguments in (("wait", "k"), ("watch",)):
            with self.subTest(arguments):
                code, took = self.interrupt(*arguments)
                self.assertEqual(code, 130)
                self.assertLess(took, HANG)

    def test_run_ends_at_the_second(self):
        """Also before it has adopted a lock."""
        for arguments in (("run", "k", "--wait", "60s", "--", "true"),
                          ("run", "--adopt", self.held["lock_id"], "k", "--", "true")):
            with self.subTest(arguments):
                code, took = self.interrupt(*arguments, again=True)
                self.assertEqual(code, -signal.SIGINT)
                self.assertLess(took, HANG)


if __name__ == "__main__":
    unittest.main()
