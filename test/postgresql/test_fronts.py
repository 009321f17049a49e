"""Several `belay serve` on one database: one queue, one list of events, and no front that would be missed (issue 15)."""
import contextlib
import itertools
import json
import os
import select
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time
import unittest

from pg_proxy import Proxy
from pg_support import ROOT, PostgresStore, postgresql

sys.path[:0] = [os.path.join(ROOT, "test", "server")]

from server_support import BELAY, PATIENCE, ServerCase, Stream, unless_stalled, wait_until  # noqa: E402

POLL_MS = 500  # of the first waiter, unwoken (PG_POLL_MS)
TICKET_S = 5  # and more: a third of the life of a ticket, which is put again before its end (TICKET_TTL_MS)


class FrontsCase(PostgresStore, ServerCase):
    def two(self):
        return self.serve(), self.serve()

    def hand_over_ms(self, waiting, release, key, owner="w"):
        """How long after `release(lock)` a waiter behind the front `waiting` has the lock, which it then releases."""
        held = waiting.acquire(key, "holder", ttl_ms=60000).json()
        later = waiting.acquire_later(key, owner, wait_ms=int(PATIENCE * 1000), ttl_ms=60000, lock_id=f"{key}-{owner}")
        waiting.wait_for_queue(key, [owner])
        began = time.monotonic()
        release(held)
        got = later.get()
        took = (time.monotonic() - began) * 1000
        self.assertEqual(got.status, 200, got)
        self.assertGreater(got.json()["token"], held["token"])
        waiting.release(key, got.json()["lock_id"])
        return took

    def assert_woken(self, front, hand_over_ms):
        """Not by a poll, of which half would take longer than half of its interval. How long a hand-over takes is
        compared with a release and an acquisition of a free lock, since the machine may be busy."""
        times, usual = [], []
        for i in range(27):  # nine are enough, unless it is
            times.append(hand_over_ms(f"k{i}"))
            held = front.acquire(f"free{i}", "me", ttl_ms=60000).json()
            began = time.monotonic()
            front.release(f"free{i}", held["lock_id"])
            self.assertEqual(front.acquire(f"free{i}", "me", ttl_ms=60000).status, 200)
            usual.append((time.monotonic() - began) * 1000)
            if i in (8, 26) and statistics.median(times) < statistics.median(usual) + POLL_MS / 4:
                return
        self.fail(f"a waiter is not woken, or late: {times}, and without one {usual}")


class HandOver(FrontsCase):
    def listening(self, what="count(*)"):
        return int(self.sql(f"SELECT {what} FROM pg_stat_activity WHERE query LIKE '%pg_listening_channels%' "
                            "AND pid <> pg_backend_pid()"))

    def test_a_waiter_behind_one_front_is_woken_by_a_release_through_another(self):
        """L4"""
        a, b = self.two()
        self.assert_woken(a, lambda key: self.hand_over_ms(a, lambda lock: b.release(key, lock["lock_id"]), key))

    def test_a_waiter_behind_the_same_front_is_woken(self):
        """L4"""
        a = self.serve()
        self.assert_woken(a, lambda key: self.hand_over_ms(a, lambda lock: a.release(key, lock["lock_id"]), key))

    def test_a_hand_over_between_fronts_is_as_fast_as_within_one(self):
        """L4"""
        a, b = self.two()
        within, across = [], []
        for i in range(60):  # in turn, as the machine may become busy; 15 are enough, unless it is
            for front, times, key in ((a, within, f"in{i}"), (b, across, f"out{i}")):
                times.append(self.hand_over_ms(a, lambda lock, front=front, key=key: front.release(key, lock["lock_id"]), key))
            if i in (14, 59) and statistics.median(across) < 2 * statistics.median(within) + 5:
                return
        self.fail(f"within a front {within}, between two {across}")

    def test_a_waiter_that_goes_over_is_woken_at_the_other_front(self):
        """L4: its ticket says where it waits, whether it is among the first of the queue or in the table of the others."""
        a, b = self.two()
        a.acquire("k", "holder", ttl_ms=60000)
        self.line_up([a], 10)

        def fronts_of(i):
            return self.sql(f"SELECT t->>'p' FROM @schema@.locks, jsonb_array_elements(tickets) t WHERE t->>'i' = 'id-{i}' "
                            f"UNION ALL SELECT ticket->>'p' FROM @schema@.waiting WHERE id = 'id-{i}'")

        before = fronts_of(0)
        self.assertEqual(fronts_of(9), before)
        for i in (0, 9):
            b.acquire_later("k", f"w{i}", wait_ms=int(PATIENCE * 1000), ttl_ms=60000, lock_id=f"id-{i}")
            wait_until(lambda i=i: fronts_of(i) != before, f"the ticket of w{i} to name the other front")
        self.assertEqual(fronts_of(9), fronts_of(0))

    def test_a_release_past_every_front_wakes_it_too(self):
        """L4"""
        a = self.serve()

        def after_the_command_ms(key):
            took = []

            def release(lock):
                began = time.monotonic()
                self.ok("release", key, "--id", lock["lock_id"])
                took.append((time.monotonic() - began) * 1000)
            return self.hand_over_ms(a, release, key) - took[0]
        self.assert_woken(a, after_the_command_ms)

    def test_waiters_behind_two_fronts_are_one_queue(self):
        """L3"""
        a, b = self.two()
        held = a.acquire("k", "holder", ttl_ms=60000).json()
        order, later = [], []
        for i in range(6):
            front = (a, b)[i % 2]
            later.append((front, front.acquire_later("k", f"w{i}", wait_ms=int(PATIENCE * 1000), ttl_ms=60000,
                                                     lock_id=f"id-{i}")))
            a.wait_for_queue("k", [f"w{n}" for n in range(i + 1)])
        a.release("k", held["lock_id"])
        for front, one in later:
            lock = one.get().json()
            order.append(lock["locked_by"])
            front.release("k", lock["lock_id"])
        self.assertEqual(order, [f"w{i}" for i in range(6)])

    def line_up(self, fronts, n):
        """n waiters in their order, behind these fronts in turn."""
        later = []
        for i in range(n):
            front = fronts[i % len(fronts)]
            later.append((front, front.acquire_later("k", f"w{i}", wait_ms=int(PATIENCE * 1000), ttl_ms=60000,
                                                     lock_id=f"id-{i}")))
            wait_until(lambda i=i: fronts[0].queue("k")[-1:] == [f"w{i}"], f"w{i} to be in the queue")
        return later

    def test_a_long_queue_behind_two_fronts_is_served_in_order(self):
        """L4: a part of it is in a table of its own. One leaves its end, and one that waits otherwise joins."""
        fronts = self.two()
        held = fronts[0].acquire("k", "holder", ttl_ms=60000).json()
        later = self.line_up(fronts, 14)
        self.assertEqual(self.sql("SELECT behind, jsonb_array_length(tickets) FROM @schema@.locks"), "6|8")
        self.assertEqual(fronts[1].acquire("k", "gone", wait_ms=50).status, 409)  # without an id it keeps no place
        fronts[1].wait_for_queue("k", [f"w{i}" for i in range(14)])
        shared = fronts[0].acquire_later("k", "shared", wait_ms=int(PATIENCE * 1000), ttl_ms=60000, lock_id="shared", shared=True)
        wait_until(lambda: fronts[0].queue("k")[-1:] == ["shared"], "the reader to be in the queue")
        fronts[0].release("k", held["lock_id"])
        order = []
        for front, one in [*later, (fronts[0], shared)]:
            lock = one.get().json()
            order.append(lock["locked_by"])
            front.release("k", lock["lock_id"])
        self.assertEqual(order, [f"w{i}" for i in range(14)] + ["shared"])
        self.assertEqual(self.sql("SELECT count(*) FROM @schema@.waiting"), "0")

    def test_only_a_waiter_behind_another_front_is_notified(self):
        """One behind the same front is woken there. No front but the waiter's listens on the channel."""
        a, b = self.two()
        held = a.acquire("name", "holder", ttl_ms=60000).json()
        later = a.acquire_later("name", "w", wait_ms=int(PATIENCE * 1000), ttl_ms=60000, lock_id="name-w")
        a.wait_for_queue("name", ["w"])
        own = "belay_wake_" + self.sql("SELECT tickets->0->>'p' FROM @schema@.locks WHERE key = 'name'")
        a.release("name", held["lock_id"])
        self.assertEqual(later.get().status, 200)
        psql = subprocess.Popen([postgresql.program("psql"), "-XAtq", self.store.split("?", maxsplit=1)[0]],
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.addCleanup(self.end, psql)
        psql.stdin.write(f"LISTEN {self.schema}_wake; LISTEN {own}; SELECT 'listening';\n")
        psql.stdin.flush()
        self.assertEqual(psql.stdout.readline(), "listening\n")
        self.hand_over_ms(a, lambda lock: a.release("near", lock["lock_id"]), "near")
        self.hand_over_ms(a, lambda lock: b.release("far", lock["lock_id"]), "far")
        out, _ = psql.communicate("SELECT 'end';\n\\q\n", timeout=PATIENCE)
        self.assertEqual(out.count('"far-w"'), 1, out)  # with the release, and not once more
        self.assertIn(f'"{own}" with payload "far-w"', out)
        self.assertNotIn('"near-w"', out)

    def test_a_lost_connection_for_wake_ups_loses_nobody(self):
        """L4"""
        a, b = self.two()
        held = a.acquire("k", "holder", ttl_ms=60000).json()
        later = a.acquire_later("k", "w", wait_ms=int(PATIENCE * 1000), ttl_ms=60000, lock_id="id-w")
        a.wait_for_queue("k", ["w"])
        wait_until(lambda: self.listening() >= 2, "both fronts to listen")
        self.assertGreaterEqual(self.listening("count(pg_terminate_backend(pid))"), 2)
        b.release("k", held["lock_id"])
        self.assertEqual(later.get().status, 200)
        a.release("k", "id-w")
        wait_until(lambda: self.listening() >= 2, "both fronts to listen again")
        self.assert_woken(a, lambda key: self.hand_over_ms(a, lambda lock: b.release(key, lock["lock_id"]), key))

    def test_a_holder_behind_one_front_learns_of_a_force_through_another(self):
        """L6"""
        a, b = self.two()
        held = a.acquire("k", "holder", ttl_ms=60000).json()
        asking = a.connect()
        asking.request("POST", "/v1/held", json.dumps({"key": "k", "lock_id": held["lock_id"], "wait_ms": 60000}))
        a.get("/health")  # the loop has read what came before
        began = time.monotonic()
        self.assertEqual(b.call("DELETE", "/v1/locks/k", {"reason": "test"}).status, 200)
        answer = asking.getresponse()
        self.assertLess(time.monotonic() - began, 7)  # unwoken the front would look after 8 s
        self.assertEqual((answer.status, json.load(answer)["error"]["code"]), (409, "lease_lost"))
        asking.close()


class Leaving(FrontsCase):
    """A wait without a lock id, which keeps no place. To leave the queue waits here until the lock's row is free."""

    def setUp(self):
        super().setUp()
        self.front = self.serve()
        self.front.acquire("k", "holder", ttl_ms=60000)
        self.psql = subprocess.Popen([postgresql.program("psql"), "-XAtq", self.store.split("?", maxsplit=1)[0]],
                                     stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.addCleanup(self.end, self.psql)
        self.tell("BEGIN; SELECT 'connected';")
        self.assertEqual(self.psql.stdout.readline(), "connected\n")
        self.later = self.front.acquire_later("k", "w", wait_ms=5000, ttl_ms=60000)  # until then the row is locked
        self.front.wait_for_queue("k", ["w"])
        self.tell(f"SELECT 'locked' FROM {self.schema}.locks FOR UPDATE;")
        self.assertEqual(self.psql.stdout.readline(), "locked\n")
        wait_until(lambda: self.sql("SELECT count(*) FROM pg_locks WHERE NOT granted") == "1", "the front to leave the queue")

    def tell(self, text):
        self.psql.stdin.write(text + "\n")
        self.psql.stdin.flush()

    def test_it_is_answered_when_it_has_left_the_queue(self):
        """Else the next attempt of the same client could be refused because of its own place."""
        self.assertFalse(self.later.is_there())
        self.tell("COMMIT;")
        answer = self.later.get()
        self.assertEqual(self.front.queue("k"), [])
        self.assertEqual(answer.status, 409, answer)
        self.assertIn("lock 'k' held by holder until", answer.error["message"])
        self.assertEqual(answer.error["lock"]["locked_by"], "holder")
        self.assertEqual(answer.error["place_kept_ms"], 0)

    def test_it_is_answered_all_the_same_if_that_takes_long(self):
        answer = self.later.get(9)  # PENDING_LEAVE_MAX_MS, and less than the store's own limit of 10 s
        self.assertEqual(answer.status, 409, answer)
        self.assertEqual(self.front.queue("k"), ["w"])
        self.tell("COMMIT;")
        self.front.wait_for_queue("k", [])


class ComingBack(FrontsCase):
    """A request with the lock id of a call that the store has not answered yet. The lock's row is taken until then."""

    def setUp(self):
        super().setUp()
        self.front = self.serve()
        self.held = self.front.acquire("k", "holder", ttl_ms=60000).json()
        self.psql = subprocess.Popen([postgresql.program("psql"), "-XAtq", self.store.split("?", maxsplit=1)[0]],
                                     stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.addCleanup(self.end, self.psql)
        self.tell("SELECT 'connected';", "connected")

    def tell(self, text, answer):
        self.psql.stdin.write(text + "\n")
        self.psql.stdin.flush()
        self.assertEqual(self.psql.stdout.readline(), answer + "\n")

    def take_row(self):
        self.tell(f"BEGIN; SELECT 'taken' FROM {self.schema}.locks FOR UPDATE;", "taken")

    def wait_for_call(self, what):
        wait_until(lambda: self.sql("SELECT count(*) FROM pg_locks WHERE NOT granted") == "1", what)

    def send(self, wait_ms, lock_id="id-w"):
        """Without reading the answer: closing the connection is a hang-up."""
        connection = self.front.connect()
        body = {"locked_by": "w", "ttl_ms": 60000, "wait_ms": wait_ms, "lock_id": lock_id}
        connection.request("POST", "/v1/locks/k/acquire", json.dumps(body))
        self.addCleanup(connection.close)
        return connection

    def leave(self):
        """A waiter hangs up, and the store is slow to take it out of the queue."""
        first = self.send(int(PATIENCE * 1000))
        self.front.wait_for_queue("k", ["w"])
        self.take_row()
        first.close()
        self.wait_for_call("the front to leave the queue")

    def come_back(self, wait_ms):
        connection = self.send(wait_ms)
        self.front.get("/healthz")  # the loop has read what came before
        self.assertEqual(select.select([connection.sock], [], [], 0)[0], [])
        return connection

    def assert_waits_and_gets(self, connection):
        self.front.wait_for_queue("k", ["w"])
        self.assertEqual(select.select([connection.sock], [], [], 0)[0], [])
        self.front.release("k", self.held["lock_id"])
        answer = connection.getresponse()
        got = json.load(answer)
        self.assertEqual(answer.status, 200, got)
        self.assertEqual((got["lock_id"], got["locked_by"]), ("id-w", "w"))
        self.assertEqual(self.front.release("k", "id-w").status, 200)
        self.assertEqual(self.front.queue("k"), [])

    def test_a_waiter_that_is_back_before_it_has_left_waits_again(self):
        """L5"""
        self.leave()
        again = self.come_back(int(PATIENCE * 1000))
        self.tell("COMMIT; SELECT 'free';", "free")
        self.assert_waits_and_gets(again)

    def try_and_come_back(self):
        """A try that is refused does not wait for the row: a proxy holds its call. Returns that, and the wait after it."""
        proxy = Proxy(self.server.port, b"id-w")
        self.addCleanup(proxy.close)
        self.front = self.serve("--store", self.url(port=proxy.port))
        proxy.cut = "hold"
        self.send(0).close()
        self.assertTrue(proxy.held.wait(PATIENCE))
        return proxy, self.come_back(int(PATIENCE * 1000))

    def test_a_wait_that_follows_a_try_waits(self):
        """L5"""
        proxy, again = self.try_and_come_back()
        proxy.go.set()
        self.assert_waits_and_gets(again)

    def test_it_does_not_wait_again_at_a_front_that_stops(self):
        proxy, again = self.try_and_come_back()
        self.front.process.send_signal(signal.SIGTERM)
        wait_until(lambda: '"stopping"' in self.front.log(), "the front to stop")
        proxy.go.set()
        answer = again.getresponse()
        self.assertEqual((answer.status, json.load(answer)["error"]["code"]), (503, "shutting_down"))
        self.assertEqual(self.front.process.wait(PATIENCE), 0)

    def test_it_does_not_wait_again_if_it_has_closed_its_sending_side(self):
        self.leave()
        again = self.come_back(int(PATIENCE * 1000))
        again.sock.shutdown(socket.SHUT_WR)
        self.front.get("/healthz")  # the loop has read what came before
        self.tell("COMMIT; SELECT 'free';", "free")
        answer = again.getresponse()
        self.assertEqual((answer.status, json.load(answer)["error"]["place_kept_ms"]), (409, 0))
        self.front.wait_for_queue("k", [])

    def test_a_try_that_follows_a_wait_asks_the_store(self):
        """It is refused by the holder, and not because of the place that it has left."""
        self.leave()
        again = self.come_back(0)
        self.tell("COMMIT; SELECT 'free';", "free")
        answer = again.getresponse()
        error = json.load(answer)["error"]
        self.assertEqual((answer.status, error["code"], error["lock"]["locked_by"]), (409, "lock_held", "holder"), error)
        self.assertNotIn("place_kept_ms", error)
        self.assertEqual(self.front.queue("k"), [])

    def test_one_that_gives_up_meanwhile_does_not_wait_again(self):
        self.leave()
        again = self.come_back(int(PATIENCE * 1000))
        released = threading.Thread(target=self.front.release, args=("k", "id-w"), daemon=True)
        released.start()  # gives up the place, and then asks the store as well
        self.addCleanup(released.join)
        wait_until(lambda: self.sql("SELECT count(*) FROM pg_locks WHERE NOT granted") == "2" or not released.is_alive(),
                   "the release to be read")
        self.tell("COMMIT; SELECT 'free';", "free")
        answer = again.getresponse()
        error = json.load(answer)["error"]
        self.assertEqual((answer.status, error["place_kept_ms"]), (409, 0), error)
        self.assertIn("the same lock_id to join the queue again", error["hint"])
        self.front.wait_for_queue("k", [])

    def test_it_is_answered_all_the_same_if_the_store_takes_long(self):
        self.leave()
        answer = self.come_back(100).getresponse()  # PENDING_LEAVE_MAX_MS, and less than the store's own limit of 10 s
        self.assertEqual((answer.status, json.load(answer)["error"]["place_kept_ms"]), (409, 0))
        self.tell("COMMIT; SELECT 'free';", "free")
        self.front.wait_for_queue("k", [])


class Calls(FrontsCase):
    """What a hand-over and a refusal ask of the database, counted there."""

    def make_server(self):
        server = postgresql.Server(options=("-c", "track_functions=all"))
        self.addCleanup(server.close)
        return server.init().start()

    def calls(self):
        rows = self.sql("SELECT funcname, calls FROM pg_stat_user_functions WHERE schemaname = '@schema@' "
                        "AND funcname IN ('acquire', 'change', 'change_many', 'queue', 'claim', 'commit', 'get')")
        return {name: int(n) for name, n in (row.split("|") for row in rows.splitlines())}

    def test_a_hand_over_is_one_call_to_release_and_one_to_take(self):
        front, n, waited = self.serve(), 30, 0
        lock = front.acquire("k", "w0", ttl_ms=600000).json()
        for i in range(1, n + 1):
            began = time.monotonic()
            later = front.acquire_later("k", f"w{i}", wait_ms=int(PATIENCE * 1000), ttl_ms=600000, lock_id=f"id-{i}")
            wait_until(lambda: self.sql("SELECT tickets IS NOT NULL FROM @schema@.locks") == "t", "the waiter to wait")
            front.release("k", lock["lock_id"])
            lock = later.get().json()
            waited += time.monotonic() - began
        polls = 2 * waited * 1000 / POLL_MS  # at most: a poll is early by a random part
        calls = self.calls_of_ended(front)
        self.assertEqual((calls["acquire"], calls["change"]), (n + 1, n), calls)
        self.assertTrue(n <= calls["queue"] <= n + waited / TICKET_S, calls)
        self.assertTrue(n <= calls["claim"] + calls.get("get", 0) <= n + 10 + polls, (calls, polls))
        self.assertEqual(calls.get("commit", 0), 0, calls)

    def test_acquisition_renewal_refusal_and_release_are_one_round_trip_each(self):
        """Of a server that has been asked before: then the connection is there, and the statements are prepared."""
        proxy = Proxy(self.server.port)
        self.addCleanup(proxy.close)
        front, n = self.serve("--store", self.url(port=proxy.port)), 40

        def use(key):
            lock_id = front.acquire(key, "me", ttl_ms=60000).json()["lock_id"]
            self.assertEqual(front.renew(key, lock_id).status, 200)
            self.assertEqual(front.acquire(key, "other", ttl_ms=60000).status, 409)
            self.assertEqual(front.release(key, lock_id).status, 200)

        for _ in range(3):
            use("k")
        before, began = proxy.round_trips, time.monotonic()
        for _ in range(n):
            use("k")
        others = n // 4 + time.monotonic() - began  # what a front does in the background now and then
        self.assertGreaterEqual(proxy.round_trips - before, 4 * n)
        self.assertLess(proxy.round_trips - before, 4 * n + others)
        calls = self.calls_of_ended(front)
        self.assertEqual({name: calls.get(name, 0) for name in ("acquire", "change", "change_many", "get")},
                         {"acquire": 2 * (n + 3), "change": 2 * (n + 3), "change_many": 0, "get": 0})
        self.assertLess(calls.get("commit", 0), n // 4, calls)  # it decides if a renewal took 100 ms in the server

    def calls_of_ended(self, front):
        """Of a front that is stopped: a session that ends leaves its statistics."""
        front.stop()
        wait_until(lambda: self.sql("SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'") == "1",
                   "the sessions to end")
        return self.calls()

    def refusals(self):
        return [(e["locked_by"], e["reason"]) for e in self.ok("history", "k", "--json").json()["events"]
                if e["event"] == "lock.refused"]

    def test_a_refusal_and_its_event_are_one_call(self):
        front, n = self.serve(), 10
        front.acquire("k", "holder", ttl_ms=60000)
        told = [(f"w{i}", front.acquire("k", f"w{i}", ttl_ms=60000).json()["error"]["message"]) for i in range(n)]
        refused = self.fails(75, "acquire", "k", "--owner", "bob", "--json").error()
        self.assertEqual(self.refusals(), [*told, ("bob", refused["message"])])
        counted = [line.split()[-1] for line in front.get("/metrics").body.decode().splitlines()
                   if line.startswith("belay_lock_acquisitions_total") and 'result="failure"' in line]
        self.assertEqual(counted, [str(n)])
        wait_until(lambda: self.calls().get("acquire", 0) >= n + 2, "the statistics")
        calls = self.calls()
        self.assertEqual({name: calls.get(name, 0) for name in ("acquire", "change_many", "commit", "get")},
                         {"acquire": n + 2, "change_many": 0, "commit": 0, "get": 0}, calls)

    def test_refusals_that_come_together_have_an_event_each(self):
        front, n, threads = self.serve(), 20, 12
        front.acquire("k", "holder", ttl_ms=60000)
        told = []

        def ask(name):
            for i in range(n):
                told.append((f"{name}-{i}", front.acquire("k", f"{name}-{i}", ttl_ms=60000).json()["error"]["message"]))

        asking = [threading.Thread(target=ask, args=(f"w{i}",)) for i in range(threads)]
        for thread in asking:
            thread.start()
        for thread in asking:
            thread.join()
        self.assertEqual(len(told), n * threads)
        self.assertEqual(sorted(self.refusals()), sorted(told))
        calls = self.calls_of_ended(front)
        self.assertGreater(calls.get("change_many", 0), 0, calls)
        self.assertEqual(calls.get("commit", 0), 0, calls)


class Events(FrontsCase):
    def test_the_events_of_one_front_are_in_the_stream_of_the_other_in_order(self):
        """L9"""
        a, b = self.two()
        streams = [Stream(a), Stream(b)]
        expected = []
        for i in range(40):
            front = (a, b)[i % 2]
            lock = front.acquire(f"k{i}", "me", ttl_ms=60000).json()
            front.release(f"k{i}", lock["lock_id"])
            expected += [("lock.acquired", f"k{i}"), ("lock.released", f"k{i}")]
        for stream in streams:
            seen = list(itertools.islice(stream.events(), len(expected)))
            stream.close()
            self.assertEqual([(one["event"], one["data"]["lock_key"]) for one in seen], expected)
            ids = [int(one["id"]) for one in seen]
            self.assertEqual(ids, sorted(set(ids)))

    def test_no_event_is_missing_while_both_fronts_write(self):
        """L9: ids are given out before their transactions end."""
        a, b = self.two()
        stream = Stream(a)

        def write(front, name):
            connection = front.connect()
            for i in range(60):
                key = f"{name}-{i}"
                lock = front.acquire(key, "me", ttl_ms=60000, connection=connection).json()
                front.post(f"/v1/locks/{key}/release", {"lock_id": lock["lock_id"]}, connection=connection)
            connection.close()
        writers = [threading.Thread(target=write, args=((a, b)[n % 2], f"w{n}")) for n in range(4)]
        for writer in writers:
            writer.start()
        seen = [(one["event"], one["data"]["lock_key"]) for one in itertools.islice(stream.events(), 4 * 60 * 2)]
        stream.close()
        for writer in writers:
            writer.join()
        self.assertEqual(len(set(seen)), 4 * 60 * 2)

    def test_a_stream_is_taken_up_again_at_the_other_front(self):
        """L9"""
        a, b = self.two()
        first = Stream(a)
        a.acquire("k1", "me", ttl_ms=60000)
        last = next(first.events())["id"]
        first.close()
        a.acquire("k2", "me", ttl_ms=60000)
        b.acquire("k3", "me", ttl_ms=60000)
        second = Stream(b, last_id=last)
        self.assertEqual([one["data"]["lock_key"] for one in itertools.islice(second.events(), 2)], ["k2", "k3"])
        second.close()

    def test_the_dashboard_of_one_front_shows_the_locks_of_the_other(self):
        a, b = self.two()
        viewer = Stream(a, "/v1/live")
        events = viewer.events()
        self.assertEqual(next(events)["event"], "hello")
        b.acquire("k", "me", ttl_ms=60000)
        rows = []
        while not any(row["key"] == "k" and row["status"] == "active" for row in rows):
            one = next(events)
            rows = one["data"]["locks"] if one["event"] == "locks" else rows
        viewer.close()

    def test_the_numbers_of_a_front_count_the_events_of_all(self):
        before = self.acquire("before", "--ttl", "60s")
        self.ok("release", "before", "--id", before["lock_id"])
        a, b = self.two()
        for i in range(5):
            lock = a.acquire(f"k{i}", "me", ttl_ms=60000).json()
            a.release(f"k{i}", lock["lock_id"])

        def numbers(front):
            found = front.get("/v1/activity").json()
            return found["is_complete"], found["total"]["acquired"]
        for front in (a, b):
            wait_until(lambda front=front: numbers(front) == (True, 6), f"all to be counted, not {numbers(front)}")

    def test_a_slow_read_of_events_keeps_no_request_waiting(self):
        """S0.2: the loop never waits for the network."""
        a = self.serve()
        a.acquire("k", "me", ttl_ms=60000)
        stream, dashboard = Stream(a), Stream(a, "/v1/live")
        self.assertEqual(next(dashboard.events())["event"], "hello")
        with self.locked_table("events"):
            slow = a.acquire_later("other", "me", ttl_ms=60000)  # its event waits for the table, and so do both streams
            asking = [a.connect() for _ in range(2)]
            for connection, path in zip(asking, ("/v1/locks/k/history", "/v1/activity")):
                connection.request("GET", path)
            began = time.monotonic()
            for _ in range(20):
                a.get("/health")
                a.get("/v1/locks/k")
                self.assertLess(time.monotonic() - began, 9)  # what is slow fails after 10 s
            self.assertFalse(slow.is_there())
        self.assertEqual(slow.get().status, 200)
        for connection in asking:
            self.assertEqual(connection.getresponse().status, 200)
            connection.close()
        stream.close()
        dashboard.close()

    @contextlib.contextmanager
    def locked_table(self, name):
        """No one else reads it meanwhile."""
        psql = subprocess.Popen([postgresql.program("psql"), "-XAtq", "-h", "127.0.0.1", "-p", str(self.server.port), "-U",
                                 "postgres", "-d", "postgres"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        psql.stdin.write(f"BEGIN; LOCK TABLE {self.schema}.{name} IN ACCESS EXCLUSIVE MODE; SELECT 'locked';\n")
        psql.stdin.flush()
        self.assertEqual(psql.stdout.readline().strip(), "locked")
        try:
            yield
        finally:
            psql.communicate("COMMIT;\n")


class GoingOver(FrontsCase):
    """A client that was given the URLs of several fronts."""

    def setUp(self):
        super().setUp()
        self.fronts = self.two()
        self.urls = ",".join(front.url for front in self.fronts)
        self.over = {"BELAY_STORE": self.urls}

    def kill(self, i):
        self.fronts[i].process.kill()
        self.fronts[i].process.wait()

    def test_one_shot_commands_do_not_miss_a_front(self):
        lock = self.ok("acquire", "--json", "k", "--ttl", "60s", env=self.over).json()
        self.kill(0)
        self.ok("renew", "k", "--id", lock["lock_id"], env=self.over)
        self.assertEqual(self.ok("status", "--json", "k", env=self.over).json()["status"], "active")
        self.assertIn("lock.acquired", [one["event"] for one in
                                        self.ok("history", "--json", "k", env=self.over).json()["events"]])
        self.ok("release", "k", "--id", lock["lock_id"], env=self.over)
        self.ok("run", "k", "--", "true", env=self.over)

    def test_a_holder_keeps_its_lock_when_its_front_is_killed(self):
        """L1, L6: the heartbeat goes to the other front."""
        run = self.start("run", "k", "--ttl", "10s", "--", "sh", "-c", "read line; echo still", stdin=subprocess.PIPE, env=self.over)
        wait_until(lambda: self.fronts[1].get("/v1/locks/k").status == 200, "the lock to be taken")
        token = self.fronts[1].get("/v1/locks/k").json()["token"]
        self.kill(0)
        before = self.events("k").count("lock.renewed")
        wait_until(lambda: self.events("k").count("lock.renewed") >= before + 5, "more renewals than a lease lasts")
        out, err = run.communicate("go\n", timeout=PATIENCE)
        self.assertEqual((run.returncode, out), (0, "still\n"), err)
        events = self.events("k")
        self.assertNotIn("lock.lost", events)
        self.assertEqual((events.count("lock.acquired"), events.count("lock.released")), (1, 1), events)
        self.assertEqual(self.ok("status", "--json", "k").json()["token"], token)

    def test_waiters_keep_their_places_when_their_front_is_killed(self):
        """L3, L5"""
        held = self.acquire("k", "--ttl", "60s")
        waiting = []
        for i in range(4):
            over = {"BELAY_STORE": self.urls if i % 2 == 0 else ",".join(reversed(self.urls.split(",")))}
            waiting.append(self.start("run", "k", "--wait", "60s", "--owner", f"w{i}", "--", "sh", "-c", f"echo {i} >> order", env=over))
            self.fronts[1].wait_for_queue("k", [f"w{n}" for n in range(i + 1)])
        self.kill(0)
        self.assertEqual(self.fronts[1].queue("k"), [f"w{n}" for n in range(4)])
        self.ok("release", "k", "--id", held["lock_id"])
        for one in waiting:
            _, err = one.communicate(timeout=PATIENCE)
            self.assertEqual(one.returncode, 0, err)
        self.assertEqual((self.dir / "order").read_text().split(), ["0", "1", "2", "3"])

    def ended(self, key):
        """The reported duration of each wait for the lock, in seconds, by owner."""
        events = self.ok("history", "--json", key).json()["events"]
        return {one["locked_by"]: one["duration_seconds"] for one in events if one["event"] == "wait.ended"}

    def since(self, key):
        return {one["locked_by"]: one["since"] for one in self.fronts[1].get(f"/v1/locks/{key}/queue").json()["waiting"]}

    def processes(self):
        """Of the waiters: each says behind which process it waits."""
        return set(self.sql("SELECT t->>'p' FROM @schema@.locks, jsonb_array_elements(tickets) t "
                            "UNION SELECT ticket->>'p' FROM @schema@.waiting").split())

    def go_over(self, n):
        """n waiters wait for a second behind a front that is then killed. Returns how long they have waited at least."""
        held = self.acquire("k", "--ttl", "10m")
        waiting = [self.start("run", "k", "--wait", "10m", "--owner", f"w{i}", "--", "true", env=self.over) for i in range(n)]
        wait_until(lambda: len(self.fronts[1].queue("k")) == n, "the waiters")
        began, since, before = time.monotonic(), self.since("k"), self.processes()
        wait_until(lambda: time.monotonic() - began >= 1, "a wait that can be told from a new one")
        self.kill(0)
        wait_until(lambda: not self.processes() & before, "all to wait behind the other front")
        self.assertEqual(self.since("k"), since)
        waited = time.monotonic() - began
        self.ok("release", "k", "--id", held["lock_id"])
        for one in waiting:
            _, err = one.communicate(timeout=PATIENCE)
            self.assertEqual(one.returncode, 0, err)
        return waited

    def test_a_wait_counts_from_its_beginning_when_its_front_is_killed(self):
        """Not from the request to the other front: in the event, and so in `belay stats`."""
        waited = self.go_over(1)
        ended = self.ended("k")
        self.assertEqual(list(ended), ["w0"])
        self.assertGreater(ended["w0"], waited - 0.1)
        self.assertLess(ended["w0"], waited + PATIENCE)
        longest = self.ok("stats", "--json", "k").json()["total"]["waited"]["longest_ms"]
        self.assertEqual(longest, round(ended["w0"] * 1000))

    def test_so_do_the_waits_of_a_long_queue(self):
        """The answer to the first request at the other front has only the first of them."""
        waited = self.go_over(12)
        ended = self.ended("k")
        self.assertEqual(sorted(ended), sorted(f"w{i}" for i in range(12)))
        self.assertEqual([self.events("k").count(name) for name in ("wait.began", "wait.ended")], [12, 12])
        self.assertGreater(min(ended.values()), waited - 0.1)

    def test_watch_misses_nothing(self):
        """L9: not even if there was no event before its front was killed."""
        watch = self.start("watch", "--json", env=self.over, bufsize=0, encoding=None)
        wait_until(lambda: b"belay_event_listeners 1" in self.fronts[0].get("/metrics").body, "the stream to begin")
        self.kill(0)
        for key in ("a", "b"):
            self.acquire(key, "--ttl", "60s")
        seen = []
        while len(seen) < 2 and select.select([watch.stdout], [], [], PATIENCE)[0]:
            seen.append(json.loads(watch.stdout.readline())["lock_key"])
        self.assertEqual(seen, ["a", "b"])

    def test_a_front_does_not_release_what_its_client_holds_through_another(self):
        """L1: the client went over between two slices, and its place was granted the lock."""
        a, b = self.fronts

        def go_over(n):  # a place is kept for 3 s
            key = f"k{n}"
            held = b.acquire(key, "holder", ttl_ms=60000).json()
            slice_ = a.acquire(key, "w", wait_ms=300, ttl_ms=60000, lock_id=f"id-{n}")
            self.assertEqual(slice_.status, 409)
            b.release(key, held["lock_id"])
            wait_until(lambda: b.get(f"/v1/locks/{key}").json()["locked_by"] == "w", "the front to take the lock for its client",
                       patience=10)
            self.assertEqual(b.acquire(key, "w", wait_ms=1000, ttl_ms=60000, lock_id=f"id-{n}").status, 200)
            return key, f"id-{n}"
        key, mine = unless_stalled(go_over)
        wait_until(lambda: '"unclaimed"' in a.log(), "the front to give the client up")
        a.stop()
        self.assertEqual(b.renew(key, mine).status, 200)
        self.assertEqual(self.events(key).count("lock.released"), 1)  # that of the first holder

    def test_a_wait_that_went_over_ends_once(self):
        """L9: not once more when the first front gives it up, whether its client has the lock by then or has had it."""
        a, b = self.fronts
        for i in range(10):
            key, mine = f"k{i}", f"id-{i}"
            held = b.acquire(key, "holder", ttl_ms=60000).json()
            self.assertEqual(a.acquire(key, "w", wait_ms=50, ttl_ms=60000, lock_id=mine).error["place_kept_ms"], 3000)
            later = b.acquire_later(key, "w", wait_ms=int(PATIENCE * 1000), ttl_ms=60000, lock_id=mine)
            wait_until(lambda: b"belay_waiting 1\n" in b.get("/metrics").body, "the client to wait again")
            b.release(key, held["lock_id"])
            self.assertEqual(later.get().status, 200)
            if i % 5 != 0:
                b.release(key, mine)
        wait_until(lambda: b"belay_waiting 0\n" in a.get("/metrics").body, "the first front to give all up")
        for i in range(10):
            events = self.events(f"k{i}")
            self.assertEqual([events.count(name) for name in ("wait.began", "wait.ended", "lock.acquired")], [1, 1, 2], events)

    def test_a_waiter_of_any_kind_that_went_over_keeps_its_place(self):
        """L4, L9: when the first front gives it up, the client waits through another one."""
        a, b = self.fronts
        kinds = {"exclusive": {}, "shared": {"shared": True}, "slots": {"slots": 2}, "keys": {"keys": ["keys", "other"]}}
        later, following = {}, {}
        for key, fields in kinds.items():
            b.acquire(key, "holder", ttl_ms=60000, lock_id=f"held-{key}")
            request = {**({} if "keys" in fields else {"key": key}), **fields, "locked_by": "w", "ttl_ms": 60000, "lock_id": f"id-{key}"}
            self.assertEqual(a.post("/v1/acquire", {**request, "wait_ms": 50}).error["place_kept_ms"], 3000)
            later[key] = b.post_later("/v1/acquire", {**request, "wait_ms": int(PATIENCE * 1000)})
            wait_until(lambda: f"belay_waiting {len(later)}\n".encode() in b.get("/metrics").body, "the client to wait again")
        for key in kinds:
            following[key] = b.acquire_later(key, "next", wait_ms=int(PATIENCE * 1000), ttl_ms=60000)
            b.wait_for_queue(key, ["w", "next"])
        wait_until(lambda: b"belay_waiting 0\n" in a.get("/metrics").body, "the first front to give all up")
        for key in kinds:
            with self.subTest(key):
                self.assertEqual(b.queue(key), ["w", "next"])
                self.assertNotIn("wait.ended", self.events(key))
                b.release(key, f"held-{key}")
                self.assertEqual(later[key].get().status, 200)
                self.assertFalse(following[key].is_there())

    def test_a_place_that_is_taken_by_a_whole_commit_is_kept_when_the_first_front_gives_it_up(self):
        """L4: as behind readers, and after a restart of the database, where queue() leaves the ticket to commit()."""
        a, b = self.fronts
        b.acquire("k", "reader", ttl_ms=60000, shared=True)
        self.assertEqual(a.acquire("k", "w0", wait_ms=50, ttl_ms=60000, lock_id="id-0").error["place_kept_ms"], 3000)
        b.acquire_later("k", "w1", wait_ms=int(PATIENCE * 1000), ttl_ms=60000, lock_id="id-1")
        b.wait_for_queue("k", ["w0", "w1"])
        b.acquire_later("k", "w0", wait_ms=int(PATIENCE * 1000), ttl_ms=60000, lock_id="id-0")
        wait_until(lambda: b"belay_waiting 2\n" in b.get("/metrics").body, "the client to wait at the other front")
        wait_until(lambda: b"belay_waiting 0\n" in a.get("/metrics").body, "the first front to give it up")
        self.assertEqual(b.queue("k"), ["w0", "w1"])
        self.assertNotIn("wait.ended", self.events("k"))

    def test_what_no_client_claims_goes_to_the_next_when_its_lease_ends(self):
        """L4: not sooner, as the client may hold it through another front."""
        front = self.fronts[0]
        for name, fields in (("one", {"key": "k"}), ("two", {"keys": ["k", "j"]})):
            with self.subTest(name):
                held = front.acquire("k", "holder", ttl_ms=60000).json()
                gone = {"locked_by": "gone", "wait_ms": 100, "ttl_ms": 2000, "lock_id": f"gone-{name}"}
                self.assertEqual(front.post("/v1/acquire", {**fields, **gone}).status, 409)
                later = front.acquire_later("k", "next", wait_ms=int(PATIENCE * 1000), ttl_ms=60000)
                front.wait_for_queue("k", ["gone", "next"])
                began = time.monotonic()
                front.release("k", held["lock_id"])
                got = later.get()
                self.assertEqual((got.status, got.json()["locked_by"]), (200, "next"), got)
                self.assertGreater(time.monotonic() - began, 1.5)
                front.release("k", got.json()["lock_id"])
        self.assertEqual(front.log().count("it is left to its lease"), 2)

    def test_a_front_that_its_database_refuses_is_not_missed(self):
        """The database denies access to the front, not to the client: the client asks the next one."""
        role = f"{self.schema}_refused"
        self.sql(f"CREATE ROLE {role} LOGIN")
        self.addCleanup(self.sql, f"DROP ROLE {role}")
        refused = self.serve("--store", self.store.replace("postgres@", f"{role}@"))
        answer = refused.acquire("k", "o")
        self.assertEqual((answer.status, answer.json()["error"]["code"]), (503, "unreachable"), answer)
        self.assertIn(f"permission denied: the user '{role}' may not use the schema '{self.schema}' in 'postgres'",
                      answer.json()["error"]["message"])
        wait_until(lambda: '"status":503' in refused.log(), "the line of the request")
        (line,) = [json.loads(text) for text in refused.log().splitlines() if '"status":503' in text]
        self.assertEqual(line["reason"], answer.json()["error"]["message"])
        self.ok("run", "k", "--", "true", env={"BELAY_STORE": f"{refused.url},{self.fronts[0].url}"})

    def test_no_front_at_all_is_unreachable(self):
        self.kill(0)
        self.kill(1)
        self.fails(69, "acquire", "k", env=self.over)

    def test_a_server_of_another_store_is_refused(self):
        """L1: there the lock is free."""
        other = self.serve("--store", f"sqlite:{self.dir}/other.db")
        self.acquire("k", "--ttl", "60s")
        run = self.start("run", "k", "--wait", "60s", "--owner", "w", "--", "true",
                         env={"BELAY_STORE": f"{self.fronts[0].url},{other.url}"})
        self.assertIn("held by", run.stderr.readline())  # it has an answer of the first one
        self.kill(0)
        _, err = run.communicate(timeout=PATIENCE)
        self.assertEqual(run.returncode, 64, err)
        self.assertIn("must name servers of one store", err)

    def test_a_bad_list_is_refused_by_name(self):
        """L8"""
        a, b = self.urls.split(",")
        for urls, text in ((f"{a},", "empty URL"), (f"{a},ftp://x", "'ftp://x' is not a server's URL"),
                           (f"{a},postgresql://me:sesame@h/db", "'postgresql://me@h/db' is not a server's URL"),
                           (f"{a},http://sesame@h", "'(with a password)' is not a server's URL"),
                           (f"{a},{b},{a}/", f"names '{a}/' twice"), (f"{a},{b},127.0.0.1:1", "'127.0.0.1:1' is not"),
                           (",".join(f"http://h{n}" for n in range(9)), "'http://h8' is one more")):
            with self.subTest(urls):
                self.assertIn(text, self.fails(64, "status", "k", "--store", urls).err)


class Documentation(FrontsCase):
    """docs/stores/postgresql.md, "A highly available pair of fronts": every line, in order."""

    def make_store(self):
        self.server = postgresql.Server()
        self.addCleanup(self.server.close)
        self.server.init().start(quick=False)  # 'belay doctor' objects to fsync=off
        self.server.sql("CREATE ROLE admin LOGIN CREATEDB CREATEROLE PASSWORD 'its password'")  # as 'createuser' of the page
        with open(os.path.join(self.server.home, "pg_hba.conf"), "w", encoding="utf-8") as file:
            file.write("host all postgres all trust\nhost all all all scram-sha-256\n")
        self.server.sql("SELECT pg_reload_conf()")
        wait_until(lambda: self.server.sql("SELECT count(*) FROM pg_hba_file_rules") == "2", "the rules")

    def lines(self):
        with open(os.path.join(ROOT, "docs", "stores", "postgresql.md"), encoding="utf-8") as file:
            part = file.read().split("## A highly available pair of fronts\n")[1].split("\n## ")[0]
        ports = self.ports = [postgresql.free_port() for _ in range(2)]
        for old, new in (("db.example:5432", f"127.0.0.1:{self.server.port}"), ("db.example", f"127.0.0.1:{self.server.port}"),
                         ("a.example:7420", f"127.0.0.1:{ports[0]}"), ("b.example:7420", f"127.0.0.1:{ports[1]}")):
            self.assertIn(old, part)
            part = part.replace(old, new)
        return [line.strip() for line in part.splitlines() if line.startswith("       ")]

    def test_every_line_works_and_a_front_can_be_killed(self):
        (self.dir / "deploy.sh").write_text("#!/bin/sh\necho deployed\n")
        (self.dir / "deploy.sh").chmod(0o700)
        psql = os.path.dirname(postgresql.program("psql"))
        env = self.environment({"BELAY_STORE": None})
        env["PATH"] = f"{os.path.dirname(BELAY)}:{psql}:{env['PATH']}"
        env["HOME"] = str(self.dir)
        serving, exports, output = [], "", ""
        for line in self.lines():
            if line.startswith("export "):
                exports += line + "\n"
            elif line.startswith("belay serve "):
                self.assertIn(" --listen 0.0.0.0:7420 ", line)
                for port in self.ports:  # of one machine
                    one = line.replace("0.0.0.0:7420", f"127.0.0.1:{port}")
                    serving.append(subprocess.Popen(f"exec {one} --json", shell=True, cwd=self.dir, env=env, text=True,
                                                    stdout=subprocess.PIPE, stderr=subprocess.DEVNULL))
                    self.addCleanup(self.end, serving[-1])
                    self.assertIn("listening", serving[-1].stdout.readline(), one)
            else:
                output = subprocess.run(exports + line, shell=True, cwd=self.dir, env=env, text=True, capture_output=True,
                                        check=False, timeout=PATIENCE)
                self.assertEqual(output.returncode, 0, (line, output))
        self.assertEqual((output.stdout, len(serving)), ("deployed\n", 2))
        serving[0].kill()
        serving[0].wait()
        again = subprocess.run(exports + line, shell=True, cwd=self.dir, env=env, text=True, capture_output=True, check=False,
                               timeout=PATIENCE)
        self.assertEqual((again.returncode, again.stdout), (0, "deployed\n"), again)


if __name__ == "__main__":
    unittest.main()
