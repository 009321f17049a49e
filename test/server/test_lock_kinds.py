"""Shared locks, slots and several keys over HTTP."""

import json
import queue
import signal
import threading
import time

from server_support import PATIENCE, Later, ServerCase, Stream, main, quoted, sha256, wait_until
from webhook_support import Receiver

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
        released = self.server.release("k", "a").json()
        self.assertEqual((released["status"], released["mode"], released["lock_id"]), ("released", "shared", "a"))
        self.assertEqual(self.code(self.server.renew("k", "a")), (409, "not_holder"))
        self.assertEqual(self.server.renew("k", "b").status, 200)
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

    def test_several_holders_have_a_limited_amount_of_metadata(self):
        """Whoever reads or writes the lock handles all of it: without a limit, 256 MiB with a thousand holders."""
        large = {f"m{i:02}": "v" * 4000 for i in range(62)}
        for mode in ({"slots": 9}, {"shared": True}):
            key = f"k-{list(mode)[0]}"
            for owner in "ab":
                self.assertEqual(self.server.acquire(key, owner, lock_id=f"{key}-{owner}", metadata=large, **mode).status, 200)
            refused = self.server.acquire(key, "c", metadata=large, **mode)
            self.assertEqual(self.code(refused), (409, "lock_held"))
            self.assertIn("512 KiB of metadata", refused.error["message"])
            self.assertEqual(self.server.acquire(key, "c", lock_id=f"{key}-c", **mode).status, 200)
            adopt = {"lock_id": f"{key}-c", "new_lock_id": f"{key}-d"}
            refused = self.server.post(f"/v1/locks/{key}/adopt", {**adopt, "metadata": large})
            self.assertEqual(self.code(refused), (409, "lock_held"))
            self.assertEqual(owners(self.lock(key)), ["a", "b", "c"])
            self.assertEqual(self.server.post(f"/v1/locks/{key}/adopt", {**adopt, "metadata": {"m": "v"}}).status, 200)
            again = {"lock_id": f"{key}-a", "new_lock_id": f"{key}-e", "metadata": large}
            self.assertEqual(self.server.post(f"/v1/locks/{key}/adopt", again).status, 200, "it replaces its own")
            self.server.release(key, f"{key}-e")
            self.assertEqual(self.server.acquire(key, "f", metadata=large, **mode).status, 200)
        both = {"keys": ["j", "k-slots"], "lock_id": "joint", "slots": 9}
        self.assertEqual(self.acquire_keys(**both, locked_by="g").status, 200)
        adopt = {"keys": both["keys"], "lock_id": "joint", "new_lock_id": "joint-2"}
        self.assertEqual(self.code(self.server.post("/v1/adopt", {**adopt, "metadata": large})), (409, "lock_held"))
        self.assertEqual(self.server.post("/v1/adopt", {**adopt, "metadata": {"m": "v"}}).status, 200)

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
        self.server.post("/v1/release", {"keys": ["a", "b"], "lock_id": "x"})
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

    def test_a_grant_that_no_client_claims_ends_on_every_key(self):
        self.server.acquire("b", "other", lock_id="other")
        self.acquire_keys(["a", "b"], "both", lock_id="x", wait_ms=100, ttl_ms=self.UNCLAIMED_TTL_MS)
        self.server.release("b", "other")
        wait_until(lambda: self.lock("b")["locked_by"] == "both", "the grant")
        for key in "ab":
            wait_until(lambda: self.lock(key)["status"] == ("released" if self.UNCLAIMED_IS_RELEASED else "expired"), f"the end of {key}")

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


class Loss(KindsCase):
    def later(self, body):
        """Wait for a loss in a thread; .get() has the answer."""
        box = queue.Queue()
        threading.Thread(target=lambda: box.put(self.server.post("/v1/held", body)), daemon=True).start()
        return Later(box)

    def test_a_holder_learns_of_the_end_of_its_own_grant_and_of_no_other(self):
        """L6"""
        for name in "abc":
            self.server.acquire("k", name, slots=3, lock_id=name, ttl_ms=60000)
        waits = self.later({"key": "k", "lock_id": "b", "wait_ms": 30000})
        self.server.release("k", "a")
        self.server.call("DELETE", "/v1/locks/k", {"lock_id": "c", "reason": "gone"})
        time.sleep(0.3)  # an answer that must not come
        self.assertFalse(waits.is_there())
        still = self.server.post("/v1/held", {"key": "k", "lock_id": "b"})
        self.assertEqual((still.status, still.json()["lock_id"], still.json()["locked_by"]), (200, "b", "b"))
        self.server.call("DELETE", "/v1/locks/k", {"lock_id": "b"})
        self.assertEqual(waits.get().status, 409)

    def test_a_holder_of_several_keys_learns_that_it_lost_any_one_of_them(self):
        for lost in "ab":
            keys = [f"a-{lost}", f"b-{lost}"]
            self.acquire_keys(keys, lock_id="x" + lost, ttl_ms=60000)
            waits = self.later({"keys": keys, "lock_id": "x" + lost, "wait_ms": 30000})
            self.server.call("DELETE", f"/v1/locks/{lost}-{lost}")
            self.assertEqual(self.code(waits.get()), (409, "lease_lost"))

    def test_a_forced_release_of_one_of_several_holders_needs_its_lock_id(self):
        for name in "ab":
            self.server.acquire("k", name, shared=True, lock_id=name, ttl_ms=60000)
        refused = self.server.call("DELETE", "/v1/locks/k")
        self.assertEqual(self.code(refused), (409, "lock_held"))
        self.assertIn("2 holders", refused.error["message"])
        self.assertEqual([h["lock_id"] for h in refused.error["lock"]["holders"]], ["a", "b"])
        self.assertEqual(owners(self.lock("k")), ["a", "b"])
        self.assertEqual(self.server.call("DELETE", "/v1/locks/k?lock_id=a&reason=gone").status, 200)
        self.assertEqual(owners(self.lock("k")), ["b"])
        self.assertEqual(self.server.call("DELETE", "/v1/locks/k").status, 200)  # one is left: it is meant
        self.assertEqual(self.lock("k")["status"], "released")

    def test_an_owner_releases_and_renews_its_one_holding(self):
        body = {"key": "k", "profile": "execution", "shared": True}
        for name in "abc":
            self.assertEqual(self.server.post("/v1/acquire", {**body, "locked_by": name}).status, 200)
        del body["shared"]
        renewed = self.server.post("/v1/renew", {**body, "locked_by": "a"}).json()
        self.assertEqual((renewed["locked_by"], owners(renewed)), ("a", ["a", "b", "c"]))
        self.assertEqual(self.server.post("/v1/release", {**body, "locked_by": "b"}).status, 200)
        self.assertEqual(owners(self.lock("k")), ["a", "c"])
        self.assertEqual(self.code(self.server.post("/v1/release", {**body, "locked_by": "nobody"})), (409, "not_holder"))
        self.server.acquire("k", "a", shared=True, lock_id="second")
        twice = self.server.post("/v1/release", {**body, "locked_by": "a"})
        self.assertEqual(self.code(twice), (400, "invalid"))
        self.assertIn("2 times", twice.error["message"])

    def test_a_loss_of_several_keys_is_recorded_for_each(self):
        self.acquire_keys(["a", "b"], lock_id="x")
        self.assertEqual(self.server.post("/v1/lost", {"keys": ["a", "b"], "lock_id": "x", "reason": "late"}).status, 200)
        for key in "ab":
            events = self.server.get(f"/v1/locks/{key}/history").json()["events"]
            self.assertEqual((events[-1]["event"], events[-1]["reason"]), ("lock.lost", "late"))


class Input(KindsCase):
    REFUSALS_HAVE_THE_QUEUE = True

    def test_bad_input_is_400_and_changes_nothing(self):
        """L8"""
        many = [f"k{i}" for i in range(17)]
        cases = [({"keys": many}, "17 keys"), ({"keys": []}, "1 to 16"), ({"keys": "a"}, "array"), ({"keys": [1]}, "keys[0]"),
                 ({"keys": ["a", ""]}, "keys[1]"), ({"keys": ["a", "x" * 513]}, "keys[1]"), ({"keys": ["a", "a"]}, "'a'"),
                 ({"keys": ["a"], "key": "b"}, "keys and key"), ({"keys": ["a"], "stack": "s", "environment": "e"}, "keys and stack"),
                 ({"keys": ["stack:s:env:e", "stack:s:env:e:service:v"]}, "stack:s:env:e"), ({"keys": ["a", "b\n"]}, "control"),
                 ({"key": "a", "slots": 0}, "1 to 1000"), ({"key": "a", "slots": 1001}, "1 to 1000"), ({"key": "a", "slots": "2"}, "slots"),
                 ({"key": "a", "slots": 2, "shared": True}, "shared"), ({"key": "a", "shared": "yes"}, "shared"),
                 ({"keys": ["a", "b"], "reentrant": True}, "re-entered")]
        for body, word in cases:
            with self.subTest(body):
                answer = self.server.post("/v1/acquire", {"locked_by": "me", **body})
                self.assertEqual(self.code(answer), (400, "invalid"))
                self.assertIn(word, answer.error["message"])
        in_path = self.server.post("/v1/locks/a/acquire", {"locked_by": "me", "keys": ["a", "b"]})
        self.assertEqual(self.code(in_path), (400, "invalid"))
        self.assertIn("'keys'", in_path.error["message"])
        self.assertEqual(self.server.get("/v1/locks").json()["locks"], [])
        self.acquire_keys(["a", "b"], lock_id="x")
        for path in ("/v1/check", "/v1/lost"):
            answer = self.server.post(path, {"keys": ["a", "b"], "lock_id": "x", "token": 1})
            self.assertEqual(self.code(answer), (400, "invalid"))
            self.assertIn("token is of one key", answer.error["message"])
        self.assertEqual(self.acquire_keys([f"n{i}" for i in range(16)]).status, 200)

    def test_an_answer_to_a_change_or_an_error_names_at_most_100_holders(self):
        for i in range(102):
            self.server.acquire("k", f"o{i:03}", slots=102, lock_id=f"id-{i}", ttl_ms=600000)
        last = self.server.renew("k", "id-101").json()
        self.assertEqual((len(last["holders"]), owners(last)[:2], owners(last)[-1]), (100, ["o000", "o001"], "o101"))
        self.assertEqual((last["locked_by"], last["holders"][-1]["lock_id"], last["holders"][0]["lock_id"]), ("o101", "id-101", None))
        self.assertEqual(len(self.server.acquire("k", "x", slots=102).error["lock"]["holders"]), 100)
        self.assertEqual((len(self.lock("k")["holders"]), len(self.server.get("/v1/locks").json()["locks"][0]["holders"])), (102, 102))

    def test_the_examples_of_the_document_are_requests_that_succeed(self):
        document = self.server.get("/openapi.json").json()
        body = document["paths"]["/v1/acquire"]["post"]["requestBody"]["content"]["application/json"]
        modes = {}
        for name, example in body["examples"].items():
            answer = self.server.post("/v1/acquire", example["value"])
            self.assertEqual(answer.status, 200, answer)
            modes[name] = answer.json().get("mode", len(answer.json().get("locks", [])))
        self.assertEqual(modes, {"exclusive": "exclusive", "shared": "shared", "slots": "slots", "keys": 2})

    def test_a_list_has_the_first_ten_waiters_and_their_number_and_the_queue_has_all(self):
        self.server.acquire("k", "holder", lock_id="h")
        names = [f"w{i:02}" for i in range(12)]
        for i, name in enumerate(names):
            self.server.acquire_later("k", name, wait_ms=20000, ttl_ms=60000)
            self.server.wait_for_queue("k", names[:i + 1])
        page = self.server.get("/v1/locks").json()
        self.assertEqual(page["waiting"], {"k": 12})
        refused = self.server.acquire("k", "x", wait_ms=20, ttl_ms=60000).error["lock"]
        self.assertEqual(refused["waiting"] is not None, self.REFUSALS_HAVE_THE_QUEUE)
        for lock in [page["locks"][0], self.lock("k")] + ([refused] if self.REFUSALS_HAVE_THE_QUEUE else []):
            self.assertEqual([w["locked_by"] for w in lock["waiting"]], names[:10])
            self.assertEqual([w["position"] for w in lock["waiting"]], list(range(10)))
        self.server.wait_for_queue("k", names)  # 'x' has left it
        env = {"BELAY_STORE": self.server.url}
        self.assertEqual([w["locked_by"] for w in self.ok("status", "k", "--json", env=env).json()["waiting"]], names)
        listed = self.ok("list", "--json", env=env).json()["locks"][0]["waiting"]
        self.assertEqual((len(listed), listed[0]["locked_by"]), (12, "w00"))


class Killed(KindsCase):
    def test_holders_and_places_survive_a_kill_and_a_restart(self):
        """L2, L4: kill -9, then a new server on the same file."""
        shared = [self.server.acquire("s", name, shared=True, lock_id=f"s{name}", ttl_ms=600000).json() for name in "ab"]
        slots = [self.server.acquire("n", name, slots=2, lock_id=f"n{name}", ttl_ms=600000).json() for name in "ab"]
        joint = self.acquire_keys(["j", "k"], lock_id="joint", ttl_ms=600000).json()
        waits = self.acquire_keys(["k", "n"], "both", lock_id="w", wait_ms=100, ttl_ms=600000)
        self.assertEqual(self.code(waits), (409, "lock_held"))
        self.assertEqual(self.code(self.server.acquire("s", "x", wait_ms=100, ttl_ms=600000, lock_id="sx")), (409, "lock_held"))
        self.server.stop(signal.SIGKILL)
        self.server = self.serve()
        for key, before in (("s", shared), ("n", slots)):
            self.assertEqual([(h["lock_id"], h["token"]) for h in self.lock(key)["holders"]],
                             [(lock["lock_id"], lock["token"]) for lock in before])
        again = self.server.post("/v1/renew", {"keys": ["j", "k"], "lock_id": "joint"}).json()
        self.assertEqual([lock["token"] for lock in again["locks"]], [lock["token"] for lock in joint["locks"]])
        self.assertEqual((self.server.queue("k"), self.server.queue("n"), self.server.queue("s")), (["both"], ["both"], ["x"]))
        self.assertEqual(self.code(self.server.acquire("n", "late", slots=2)), (409, "lock_held"))
        self.server.release("n", "na")
        self.server.post("/v1/release", {"keys": ["j", "k"], "lock_id": "joint"})
        self.server.release("n", "nb")
        granted = self.acquire_keys(["k", "n"], "both", lock_id="w", wait_ms=20000, ttl_ms=600000).json()
        self.assertGreater(granted["locks"][1]["token"], slots[1]["token"])


class Visibility(ServerCase):
    """What a credential may see: never the lock id of another one."""

    def setUp(self):
        super().setUp()
        self.receiver = Receiver(self)
        settings = {"server": {"webhooks": {"allow": ["127.0.0.1"]},
                               "tokens": [{"name": name, "role": role, "sha256": sha256(secret), **({"keys": keys} if keys else {})}
                                          for secret, (name, role, keys) in TOKENS.items()]},
                    "notify": [{"url": self.receiver.url, "format": "json", "events": ["lock.released", "lock.forced"]}]}
        self.server = self.serve(config=self.write_config(json.dumps(settings)))

    def test_a_token_never_sees_the_lock_id_of_another_holder(self):
        server, secret = self.server, "secret-of-bob"
        live = Stream(server, "/v1/live", token=ALICE)
        events = Stream(server, token=ALICE)
        frames, seen = live.events(), events.events()
        server.acquire("k", "bob-job", token=BOB, shared=True, lock_id=secret, ttl_ms=60000)
        own = server.acquire("k", "alice-job", token=ALICE, shared=True, lock_id="of-alice", ttl_ms=60000)
        hook = {"url": self.receiver.url}
        answers = {
            "acquire": own, "again": server.acquire("k", "alice-job", token=ALICE, shared=True, lock_id="of-alice"),
            "renew": server.renew("k", "of-alice", token=ALICE), "status": server.get("/v1/locks/k", token=ALICE),
            "list": server.get("/v1/locks", token=ALICE), "queue": server.get("/v1/locks/k/queue", token=ALICE),
            "history": server.get("/v1/locks/k/history", token=ALICE), "free": server.get("/v1/locks/k/free", token=ALICE),
            "tree": server.get("/v1/locks/k/tree", token=ALICE), "refused": server.acquire("k", "x", token=ALICE),
            "waited": server.acquire("k", "x", token=ALICE, wait_ms=50),
            "check": server.get(f"/v1/locks/k/check?token={own.json()['token']}", token=ALICE),
            "check of bob's": server.get(f"/v1/locks/k/check?token={own.json()['token'] - 1}", token=ALICE),
            "held": server.post("/v1/held", {"key": "k", "lock_id": "of-alice"}, token=ALICE),
            "not held": server.post("/v1/held", {"key": "k", "lock_id": "wrong"}, token=ALICE),
            "wrong id": server.renew("k", "wrong", token=ALICE), "wrong release": server.release("k", "wrong", token=ALICE),
            "several": server.post("/v1/acquire", {"keys": ["k", "m"], "locked_by": "alice-2", "shared": True}, token=ALICE),
            "by owner": server.post("/v1/release", {"key": "k", "profile": "execution", "locked_by": "bob-job"}, token=ALICE),
            "webhook": server.acquire("k", "hooked", token=ALICE, shared=True, wait_ms=1000, webhook=hook, lock_id="hooked"),
            "adopt": server.post("/v1/adopt", {"key": "k", "lock_id": "of-alice", "new_lock_id": "a2"}, token=ALICE),
            "release": server.release("k", "a2", token=ALICE), "reader": server.get("/v1/locks/k", token=READER)}
        for name, answer in answers.items():
            with self.subTest(name):
                self.assertNotIn(secret, answer.body.decode())
                self.assertLess(answer.status, 500)
        self.assertEqual([answers[n].status for n in ("acquire", "several", "webhook", "adopt", "release")], [200, 200, 202, 200, 200])
        holders = {h["locked_by"]: h["lock_id"] for h in answers["status"].json()["holders"]}
        self.assertEqual(holders, {"bob-job": None, "alice-job": "of-alice"})
        self.assertEqual(own.json()["lock_id"], "of-alice")
        admin = {h["locked_by"]: h["lock_id"] for h in server.get("/v1/locks/k", token=ADMIN).json()["holders"]}
        self.assertEqual(admin["bob-job"], secret)
        for _ in range(2):  # the webhook and the notification of the release
            self.assertNotIn(secret, self.receiver.next()[2].decode())
        while next(seen)["data"]["event"] != "lock.released":
            pass
        server.release("k", secret, token=BOB)
        text = ""
        while "bob-job" not in text or "lock.released" not in text:
            event = next(seen)
            text += json.dumps(event)
        text += "".join(json.dumps(next(frames)) for _ in range(2))
        self.assertNotIn(secret, text)
        self.assertNotIn(secret, self.receiver.next()[2].decode())
        events.close()
        live.close()

    def test_every_key_of_a_request_must_be_the_tokens(self):
        server = self.server
        server.acquire("other", "bob", token=BOB, lock_id="b")
        fields = {"/v1/acquire": {"locked_by": "x"}, "/v1/adopt": {"lock_id": "i"}, "/v1/renew": {"lock_id": "i"},
                  "/v1/release": {"lock_id": "i"}, "/v1/held": {"lock_id": "i"}, "/v1/check": {"lock_id": "i"},
                  "/v1/lost": {"lock_id": "i"}}
        for path, body in fields.items():
            for keys in (["build-1", "other"], ["other", "build-1"]):
                with self.subTest((path, keys)):
                    answer = server.post(path, {"keys": keys, **body}, token=NARROW)
                    self.assertEqual((answer.status, answer.error["code"], answer.error["lock"]), (403, "not_permitted", None))
                    self.assertNotIn("bob", answer.body.decode())
        self.assertEqual(server.post("/v1/acquire", {"keys": ["build-1", "build-2"], "locked_by": "x"}, token=NARROW).status, 200)

    def test_a_waiting_request_that_loses_the_right_to_one_of_its_keys_leaves_every_queue(self):
        server = self.server
        server.acquire("k2", "bob", token=BOB, lock_id="b", ttl_ms=60000)
        box = queue.Queue()
        body = {"keys": ["k1", "k2"], "locked_by": "waits", "lock_id": "w", "wait_ms": 20000, "ttl_ms": 60000}
        threading.Thread(target=lambda: box.put(server.post("/v1/acquire", body, token=ALICE)), daemon=True).start()
        places = lambda: server.get("/v1/locks/k2/queue", token=ADMIN).json()["waiting"]  # noqa: E731
        wait_until(lambda: len(places()) == 1, "the place")
        tokens = {**TOKENS, ALICE: ("alice", "locker", ["k1"])}
        self.config_with(tokens)
        server.process.send_signal(signal.SIGHUP)
        self.assertEqual(box.get(timeout=PATIENCE).status, 401)
        wait_until(lambda: places() == [], "the end of the place")


class Webhooks(ServerCase):
    CONFIG = 'server: {webhooks: {allow: ["127.0.0.1"]}}\n'

    def setUp(self):
        super().setUp()
        self.server = self.serve(config=self.write_config(self.CONFIG))

    def test_a_webhook_is_called_with_the_lock_of_its_kind_and_survives_a_kill(self):
        receiver = Receiver(self)
        self.server.acquire("k", "holder", lock_id="h", ttl_ms=600000)
        self.server.acquire("b", "holder", lock_id="h2", ttl_ms=600000)
        fields = {"wait_ms": 60000, "ttl_ms": 60000, "webhook": {"url": receiver.url}}
        shared = self.server.acquire("k", "shared-job", shared=True, lock_id="s", **fields)
        slots = self.server.acquire("n", "slots-job", slots=3, lock_id="n", **fields)
        self.assertEqual((shared.status, shared.json()["keys"], slots.status), (202, None, 202))
        self.assertEqual((receiver.lock()["mode"], self.server.get("/v1/locks/n").json()["slots"]), ("slots", 3))
        joint = self.server.post("/v1/acquire", {"keys": ["a", "b"], "locked_by": "both", "lock_id": "j", **fields})
        self.assertEqual((joint.status, joint.json()["keys"]), (202, ["a", "b"]))
        other = self.server.post("/v1/acquire", {"keys": ["a", "c"], "locked_by": "both", "lock_id": "j", **fields})
        self.assertEqual((other.status, other.error["code"]), (400, "invalid"))
        self.server.stop(signal.SIGKILL)
        self.server = self.serve(config=self.write_config(self.CONFIG))
        self.assertEqual((self.server.queue("b"), self.server.queue("k")), (["both"], ["shared-job"]))
        self.server.release("b", "h2")
        # The webhook of 'n' is called again if the server was killed before it noted the answer.
        grant = next(lock for lock in iter(receiver.lock, None) if lock.get("lock_id") != "n")
        self.assertEqual((grant["lock_id"], [lock["key"] for lock in grant["locks"]]), ("j", ["a", "b"]))
        for lock in grant["locks"]:
            self.assertEqual((lock["valid_for_ms"], lock["holders"][0]["valid_for_ms"]), (None, None))
            self.assertLessEqual(lock["expires_in_ms"], 60000)
        self.assertEqual(self.server.post("/v1/release", {"keys": ["a", "b"], "lock_id": "j"}).status, 200)
        self.server.release("k", "h")
        self.assertEqual(receiver.lock()["mode"], "shared")

    def test_a_webhook_that_is_not_answered_gives_every_key_back(self):
        receiver = Receiver(self, statuses=(400,))
        answer = self.server.post("/v1/acquire", {"keys": ["a", "b"], "locked_by": "both", "wait_ms": 60000, "ttl_ms": 60000,
                                                  "webhook": {"url": receiver.url}})
        self.assertEqual(answer.status, 202)
        for key in "ab":
            wait_until(lambda: self.server.get(f"/v1/locks/{key}").json()["status"] == "released", f"the release of {key}")

    def test_a_queued_request_for_several_keys_is_cancelled_by_any_of_them(self):
        receiver = Receiver(self)
        self.server.acquire("b", "holder", lock_id="h", ttl_ms=600000)
        self.server.post("/v1/acquire", {"keys": ["a", "b"], "locked_by": "both", "lock_id": "j", "wait_ms": 60000,
                                         "webhook": {"url": receiver.url}})
        self.assertEqual(self.server.call("DELETE", "/v1/locks/b/queue?lock_id=j").json()["status"], "cancelled")
        wait_until(lambda: self.server.queue("b") == [], "the end of the place")


class Gauges(KindsCase):
    def metric(self, name):
        """Where the store is not local, the first request only begins to count."""
        def find():
            lines = self.server.get("/metrics").body.decode().splitlines()
            return next((line.split()[-1] for line in lines if line.startswith(name + " ")), None)

        wait_until(lambda: find() is not None, name)
        return float(find())

    def test_a_lock_with_several_holders_is_one_lock_as_old_as_its_oldest_holder(self):
        self.server.acquire("k", "old", shared=True, lock_id="old", ttl_ms=60000, heartbeat_ms=100, stale_after_ms=200)
        time.sleep(1.2)
        self.server.acquire("k", "new", shared=True, lock_id="new", ttl_ms=600000, heartbeat_ms=60000)
        self.server.acquire("e", "only", ttl_ms=600000)
        self.assertEqual((self.metric('belay_locks{status="active"}'), self.metric("belay_lock_holders")), (2, 3))
        self.assertEqual(self.metric("belay_locks_stale"), 1)
        self.assertGreaterEqual(self.metric("belay_lock_oldest_held_seconds"), 1)
        stale = [e for e in self.server.get("/v1/locks/k/history").json()["events"] if e["event"] == "lock.stale"]
        self.assertEqual([e["locked_by"] for e in stale], ["old"])
        self.assertEqual([lock["key"] for lock in self.server.get("/v1/locks?stale=true").json()["locks"]], ["k"])


if __name__ == "__main__":
    main()
