"""Several `belay serve` on one database: one queue, one list of events, and no front that would be missed (issue 15)."""
import json
import os
import statistics
import sys
import time
import unittest

from pg_support import ROOT, PostgresStore

sys.path[:0] = [os.path.join(ROOT, "test", "server")]

from server_support import PATIENCE, ServerCase, wait_until  # noqa: E402

POLL_MS = 500  # of the first waiter, unwoken (PG_POLL_MS)


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

    def assert_woken(self, times):
        """Not by a poll, of which half would take longer than half of its interval."""
        self.assertLess(statistics.median(times), POLL_MS / 4, times)


class HandOver(FrontsCase):
    def listening(self, what="count(*)"):
        return int(self.sql(f"SELECT {what} FROM pg_stat_activity WHERE query LIKE '%pg_listening_channels%' "
                            "AND pid <> pg_backend_pid()"))

    def test_a_waiter_behind_one_front_is_woken_by_a_release_through_another(self):
        """L4"""
        a, b = self.two()
        self.assert_woken([self.hand_over_ms(a, lambda lock, i=i: b.release(f"k{i}", lock["lock_id"]), f"k{i}")
                           for i in range(9)])

    def test_a_release_past_every_front_wakes_it_too(self):
        """L4"""
        a = self.serve()
        times = []
        for i in range(5):
            def release(lock, key=f"k{i}"):
                times.append(time.monotonic())
                self.ok("release", key, "--id", lock["lock_id"])
                times.append((time.monotonic() - times.pop()) * 1000)
            times.append(self.hand_over_ms(a, release, f"k{i}") - times.pop())
        self.assert_woken(times)  # counted from the end of the command

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

    def test_a_lost_connection_for_wake_ups_loses_nobody(self):
        """L4"""
        a, b = self.two()
        held = a.acquire("k", "holder", ttl_ms=60000).json()
        later = a.acquire_later("k", "w", wait_ms=int(PATIENCE * 1000), ttl_ms=60000, lock_id="id-w")
        a.wait_for_queue("k", ["w"])
        self.assertGreaterEqual(self.listening("count(pg_terminate_backend(pid))"), 2)
        b.release("k", held["lock_id"])
        self.assertEqual(later.get().status, 200)
        a.release("k", "id-w")
        wait_until(lambda: self.listening() >= 2, "both fronts to listen again")
        self.assert_woken([self.hand_over_ms(a, lambda lock, i=i: b.release(f"m{i}", lock["lock_id"]), f"m{i}")
                           for i in range(9)])

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
        self.assertLess(time.monotonic() - began, 4)  # unwoken the front would look after 8 s
        self.assertEqual((answer.status, json.load(answer)["error"]["code"]), (409, "lease_lost"))
        asking.close()


if __name__ == "__main__":
    unittest.main()
