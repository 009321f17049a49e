"""Shared locks, slots and several keys over HTTP."""

import json
import signal
import time

from server_support import PATIENCE, ServerCase, Stream, main, quoted, wait_until

ADMIN, ALICE, BOB, READER, NARROW = "a" * 32, "b" * 32, "c" * 32, "r" * 32, "n" * 32
TOKENS = {ADMIN: ("root", "admin", []), ALICE: ("alice", "locker", []), BOB: ("bob", "locker", []),
          READER: ("watcher", "reader", []), NARROW: ("narrow", "locker", ["build-*"])}


def owners(lock):
    return [holder["locked_by"] for holder in lock["holders"]]


class KindsCase(ServerCase):
    def setUp(self):
        super().setUp()
        self.server = self.serve()

    def lock(self, key):
        return self.server.get(f"/v1/locks/{quoted(key)}").json()

    def acquire_keys(self, keys, locked_by="me", **fields):
        return self.server.post("/v1/acquire", {"keys": keys, "locked_by": locked_by, **fields})

    def code(self, answer):
        return answer.status, answer.error["code"]


class Shared(KindsCase):
    def test_shared_holders_are_beside_each_other_and_exclude_an_exclusive_one(self):
        """L1"""
        a = self.server.acquire("k", "a", shared=True, lock_id="a").json()
        b = self.server.acquire("k", "b", shared=True, lock_id="b").json()
        self.assertEqual((a["mode"], a["slots"], owners(b), b["locked_by"]), ("shared", None, ["a", "b"], "b"))
        self.assertLess(a["token"], b["token"])
        refused = self.server.acquire("k", "c")
        self.assertEqual(self.code(refused), (409, "lock_held"))
        self.assertEqual(owners(refused.error["lock"]), ["a", "b"])
        self.server.release("k", "a")
        self.assertEqual(self.code(self.server.acquire("k", "c")), (409, "lock_held"))
        self.server.release("k", "b")
        self.assertEqual(self.server.acquire("k", "c").json()["mode"], "exclusive")
        self.assertEqual(self.code(self.server.acquire("k", "a", shared=True)), (409, "lock_held"))

    def test_a_shared_request_does_not_overtake_an_exclusive_one_and_adjacent_ones_are_granted_together(self):
        """L4"""
        self.server.acquire("k", "reader", shared=True, lock_id="reader")
        writer = self.server.acquire_later("k", "writer", wait_ms=20000, ttl_ms=60000, lock_id="writer")
        self.server.wait_for_queue("k", ["writer"])
        self.assertEqual(self.code(self.server.acquire("k", "late", shared=True)), (409, "lock_held"))
        late = []
        for i in range(2):
            late.append(self.server.acquire_later("k", f"late-{i}", wait_ms=20000, ttl_ms=60000, shared=True))
            self.server.wait_for_queue("k", ["writer", "late-0", "late-1"][:2 + i])
        lock = self.lock("k")
        self.assertEqual([(w["position"], w["locked_by"], w["mode"]) for w in lock["waiting"]],
                         [(0, "writer", "exclusive"), (1, "late-0", "shared"), (2, "late-1", "shared")])
        self.server.release("k", "reader")
        self.assertEqual(writer.get().json()["mode"], "exclusive")
        self.assertFalse(any(one.is_there() for one in late))
        self.server.release("k", "writer")
        self.assertEqual({one.get().json()["mode"] for one in late}, {"shared"})
        self.assertEqual(sorted(owners(self.lock("k"))), ["late-0", "late-1"])

    def test_each_holder_renews_and_releases_its_own_grant(self):
        """L3"""
        self.server.acquire("k", "a", shared=True, lock_id="a", ttl_ms=60000)
        self.server.acquire("k", "b", shared=True, lock_id="b", ttl_ms=60000)
        renewed = self.server.renew("k", "a", ttl_ms=120000).json()
        self.assertEqual((renewed["locked_by"], renewed["lock_id"], renewed["ttl_ms"]), ("a", "a", 120000))
        self.assertTrue(renewed["valid_for_ms"] > 100000)
        self.assertEqual({h["locked_by"]: h["ttl_ms"] for h in renewed["holders"]}, {"a": 120000, "b": 60000})
        self.server.release("k", "a")
        self.assertEqual(self.code(self.server.renew("k", "a")), (409, "not_holder"))
        self.assertEqual(self.server.renew("k", "b").status, 200)
        self.assertEqual(self.server.release("k", "a").status, 200)  # twice is no error
        adopted = self.server.post("/v1/adopt", {"key": "k", "lock_id": "b", "new_lock_id": "n", "locked_by": "job"}).json()
        self.assertEqual((adopted["lock_id"], adopted["locked_by"], adopted["mode"]), ("n", "job", "shared"))
        self.assertEqual(self.code(self.server.renew("k", "b")), (409, "not_holder"))

    def test_a_retry_after_a_lost_answer_finds_its_own_grant(self):
        """L5"""
        a = self.server.acquire("k", "a", shared=True, lock_id="a").json()
        self.server.acquire("k", "b", shared=True, lock_id="b")
        again = self.server.acquire("k", "a", shared=True, lock_id="a").json()
        self.assertEqual((again["token"], again["locked_by"], len(again["holders"])), (a["token"], "a", 2))
        self.server.release("k", "a")
        self.assertEqual(self.code(self.server.acquire("k", "a", shared=True, lock_id="a")), (409, "id_used"))

    def test_a_lock_below_in_the_hierarchy_may_be_shared_beside_a_shared_one_above(self):
        above, key = "stack:s:env:e", "stack:s:env:e:service:v"
        self.assertEqual(self.server.acquire(above, "plan", shared=True).status, 200)
        self.assertEqual(self.server.acquire(key, "plan-2", shared=True).status, 200)
        self.assertEqual(self.code(self.server.acquire("stack:s:env:e:service:w", "apply")), (409, "lock_held"))


class Slots(KindsCase):
    def test_at_most_n_hold_it_and_the_next_gets_the_first_free_slot(self):
        """L1"""
        for name in ("a", "b"):
            lock = self.server.acquire("k", name, slots=2, lock_id=name).json()
        self.assertEqual((lock["mode"], lock["slots"], owners(lock)), ("slots", 2, ["a", "b"]))
        self.assertEqual(self.code(self.server.acquire("k", "c", slots=2)), (409, "lock_held"))
        later = self.server.acquire_later("k", "c", slots=2, wait_ms=20000, ttl_ms=60000)
        self.server.wait_for_queue("k", ["c"])
        self.server.release("k", "b")
        self.assertEqual(owners(later.get().json()), ["a", "c"])

    def test_another_number_of_slots_is_refused_with_the_one_in_force(self):
        self.server.acquire("k", "a", slots=2, lock_id="a")
        answer = self.server.acquire("k", "b", slots=3)
        self.assertEqual(self.code(answer), (400, "invalid"))
        self.assertIn("2", answer.error["message"])
        self.assertIn("k", answer.error["message"])
        self.server.release("k", "a")
        self.assertEqual(self.server.acquire("k", "b", slots=3).json()["slots"], 3)

    def test_a_profile_has_slots_for_its_keys(self):
        server = self.serve("--store", f"sqlite:{self.dir}/p.db",
                            config=self.write_config("profiles:\n  deploys: {ttl: 5m, slots: 2}\n"))
        lock = server.post("/v1/acquire", {"key": "k", "profile": "deploys", "locked_by": "a"}).json()
        self.assertEqual((lock["mode"], lock["slots"], lock["ttl_ms"]), ("slots", 2, 300000))
        shared = server.post("/v1/acquire", {"key": "s", "profile": "deploys", "locked_by": "a", "shared": True}).json()
        self.assertEqual(shared["mode"], "shared")

    def test_a_check_by_token_finds_the_grant_among_the_holders(self):
        tokens = [self.server.acquire("k", name, slots=3, lock_id=name, ttl_ms=60000).json()["token"] for name in "abc"]
        for name, token in zip("abc", tokens):
            answer = self.server.get(f"/v1/locks/k/check?token={token}&for_ms=30000").json()
            self.assertEqual((answer["locked_by"], answer["token"]), (name, token))
        self.server.release("k", "b")
        self.assertEqual(self.code(self.server.get(f"/v1/locks/k/check?token={tokens[1]}")), (409, "not_holder"))
        self.assertEqual(self.server.get(f"/v1/locks/k/check?token={tokens[0]}").status, 200)
        self.assertEqual(self.server.post("/v1/check", {"key": "k", "lock_id": "c"}).status, 200)


class SeveralKeys(KindsCase):
    def test_all_keys_are_acquired_with_one_id_and_a_token_for_each(self):
        grant = self.acquire_keys(["a", "b"], lock_id="me", ttl_ms=60000).json()
        self.assertEqual((grant["lock_id"], [lock["key"] for lock in grant["locks"]]), ("me", ["a", "b"]))
        self.assertEqual({lock["lock_id"] for lock in grant["locks"]}, {"me"})
        for lock in grant["locks"]:
            self.assertGreater(lock["token"], 0)
            self.assertEqual(self.lock(lock["key"])["token"], lock["token"])
        again = self.acquire_keys(["a", "b"], lock_id="me", ttl_ms=60000).json()  # L5
        self.assertEqual([lock["token"] for lock in again["locks"]], [lock["token"] for lock in grant["locks"]])

    def test_none_is_acquired_if_one_is_held(self):
        self.server.acquire("b", "other", lock_id="other")
        refused = self.acquire_keys(["a", "b"])
        self.assertEqual((self.code(refused), refused.error["lock"]["key"]), ((409, "lock_held"), "b"))
        self.assertEqual(self.server.get("/v1/locks/a").status, 404)
        self.assertEqual(self.server.acquire("a", "third").status, 200)

    def test_renew_release_adopt_check_and_held_take_all_keys(self):
        keys = ["a", "b", "c"]
        self.acquire_keys(keys, lock_id="x", ttl_ms=60000)
        renewed = self.server.post("/v1/renew", {"keys": keys, "lock_id": "x", "ttl_ms": 120000}).json()
        self.assertEqual([(lock["key"], lock["ttl_ms"]) for lock in renewed["locks"]], [(key, 120000) for key in keys])
        checked = self.server.post("/v1/check", {"keys": keys, "lock_id": "x", "for_ms": 60000}).json()
        self.assertEqual([lock["key"] for lock in checked["locks"]], keys)
        held = self.server.post("/v1/held", {"keys": keys, "lock_id": "x"}).json()
        self.assertEqual((held["lock_id"], len(held["locks"])), ("x", 3))
        adopted = self.server.post("/v1/adopt", {"keys": keys, "lock_id": "x", "new_lock_id": "y"}).json()
        self.assertEqual((adopted["lock_id"], {lock["lock_id"] for lock in adopted["locks"]}), ("y", {"y"}))
        self.assertEqual(self.code(self.server.post("/v1/renew", {"keys": keys, "lock_id": "x"})), (409, "not_holder"))
        released = self.server.post("/v1/release", {"keys": keys, "lock_id": "y", "outcome": "failed"}).json()
        self.assertEqual({(lock["status"], lock["outcome"]) for lock in released["locks"]}, {("released", "failed")})
        self.assertEqual(self.server.post("/v1/release", {"keys": keys, "lock_id": "y"}).status, 200)

    def test_a_renewal_changes_all_or_none_and_a_release_ends_those_that_are_left(self):
        self.acquire_keys(["a", "b"], lock_id="x", ttl_ms=60000)
        self.server.call("DELETE", "/v1/locks/b")
        before = self.lock("a")["expires_at"]
        answer = self.server.post("/v1/renew", {"keys": ["a", "b"], "lock_id": "x"})
        self.assertEqual((answer.status, self.lock("a")["expires_at"]), (409, before))
        self.assertEqual(self.server.post("/v1/release", {"keys": ["a", "b"], "lock_id": "x"}).status, 409)
        self.assertEqual((self.lock("a")["status"], self.lock("b")["outcome"]), ("released", "forced"))

    def test_waiting_in_slices_keeps_the_place_in_every_queue(self):
        """L4: the place is kept between two requests, and no later request overtakes it on any of the keys."""
        self.server.acquire("b", "other", lock_id="other")
        first = self.acquire_keys(["a", "b"], "both", lock_id="x", wait_ms=100, ttl_ms=60000)
        self.assertEqual((self.code(first), first.error["position"], first.error["lock"]["locked_by"]),
                         ((409, "lock_held"), 0, "other"))
        self.assertGreater(first.error["place_kept_ms"], 0)
        self.assertIn("'b' held by other", first.error["message"])
        self.assertEqual(self.server.queue("b"), ["both"])
        self.assertEqual(self.code(self.server.acquire("a", "late")), (409, "lock_held"))
        self.server.acquire_later("b", "late", wait_ms=20000, ttl_ms=60000)
        self.server.wait_for_queue("b", ["both", "late"])
        second = self.acquire_keys(["a", "b"], "both", lock_id="x", wait_ms=100, ttl_ms=60000)
        self.assertEqual((self.code(second), self.server.queue("b")), ((409, "lock_held"), ["both", "late"]))
        self.server.release("b", "other")
        granted = self.acquire_keys(["a", "b"], "both", lock_id="x", wait_ms=20000, ttl_ms=60000).json()
        self.assertEqual([lock["key"] for lock in granted["locks"]], ["a", "b"])

    def test_a_retry_with_other_keys_is_refused(self):
        self.server.acquire("b", "other", lock_id="other")
        self.acquire_keys(["a", "b"], lock_id="x", wait_ms=100, ttl_ms=60000)
        for body in ({"keys": ["a", "c"]}, {"keys": ["a", "b", "c"]}, {"key": "a"}, {"keys": ["b", "a"]}):
            answer = self.server.post("/v1/acquire", {"locked_by": "me", "lock_id": "x", "wait_ms": 100, **body})
            self.assertEqual(self.code(answer), (400, "invalid"), body)
            self.assertIn("waits for other keys", answer.error["message"])

    def test_a_grant_that_no_client_claims_is_released_on_every_key(self):
        self.server.acquire("b", "other", lock_id="other")
        self.acquire_keys(["a", "b"], "both", lock_id="x", wait_ms=100, ttl_ms=60000)
        self.server.release("b", "other")
        wait_until(lambda: self.lock("b")["locked_by"] == "both", "the grant")
        for key in "ab":
            wait_until(lambda: self.lock(key)["status"] == "released", f"the release of {key}")

    def test_two_that_want_the_same_keys_in_another_order_both_get_them(self):
        first = self.acquire_keys(["a", "b"], lock_id="x", ttl_ms=60000)
        self.assertEqual(first.status, 200)
        later = self.server.acquire_later("unused", "unused")
        later.get()
        waits = self.acquire_keys(["b", "a"], "second", lock_id="y", wait_ms=100, ttl_ms=60000)
        self.assertEqual(waits.status, 409)
        self.server.post("/v1/release", {"keys": ["a", "b"], "lock_id": "x"})
        self.assertEqual(self.acquire_keys(["b", "a"], "second", lock_id="y", wait_ms=5000, ttl_ms=60000).status, 200)

    def test_one_key_as_keys_answers_like_several(self):
        self.assertEqual([lock["key"] for lock in self.acquire_keys(["a"], lock_id="x").json()["locks"]], ["a"])
        self.assertEqual(len(self.server.post("/v1/renew", {"keys": ["a"], "lock_id": "x"}).json()["locks"]), 1)
        self.assertEqual(self.server.post("/v1/renew", {"key": "a", "lock_id": "x"}).json()["key"], "a")


if __name__ == "__main__":
    main()
