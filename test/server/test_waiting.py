"""Waiting in the queue over HTTP: order, polls, disconnects, and waiters that do not return."""

import contextlib
import http.client
import json
import resource
import signal
import socket
import struct
import threading
import time

from server_support import PATIENCE, ServerCase, main, quoted, unless_stalled, wait_until


class Waiting(ServerCase):
    THREADS_MAX = 8

    def setUp(self):
        super().setUp()
        self.server = self.serve()

    def ask(self, key, body):
        """Send an acquire and leave the connection open."""
        connection = self.server.raw()
        data = json.dumps(body).encode()
        connection.sendall(b"POST /v1/locks/%s/acquire HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s"
                           % (key.encode(), len(data), data))
        return connection

    def answer(self, connection):
        response = http.client.HTTPResponse(connection)
        response.begin()
        return response.status, json.loads(response.read())

    def test_a_waiter_that_comes_right_after_another_is_told_its_place(self):
        self.server.acquire("k", "holder")
        for n in range(5):
            answer = self.server.acquire("k", f"w{n}", lock_id=f"id-{n}", wait_ms=20)
            self.assertEqual((answer.status, answer.json()["error"]["position"]), (409, n))

    def test_waiters_get_the_lock_in_the_order_of_arrival(self):
        """L4, S2.8"""
        n = 30
        lock = self.server.acquire("k", "holder", lock_id="holder").json()
        order, threads = [], []

        def work(i):
            answer = self.server.acquire("k", f"w{i}", wait_ms=120000, ttl_ms=600000)
            order.append((i, answer.json()["token"]))
            self.server.release("k", answer.json()["lock_id"])
        for i in range(n):
            threads.append(threading.Thread(target=work, args=(i,)))
            threads[-1].start()
            self.server.wait_for_queue("k", [f"w{j}" for j in range(i + 1)])
        self.server.release("k", lock["lock_id"])
        for thread in threads:
            thread.join()
        self.assertEqual([i for i, _ in order], list(range(n)))
        tokens = [token for _, token in order]
        self.assertEqual(tokens, sorted(set(tokens)))

    def test_a_try_without_waiting_does_not_overtake_waiters(self):
        """L4"""
        self.server.acquire("k", "holder", lock_id="h")
        later = self.server.acquire_later("k", "waiter", wait_ms=20000, ttl_ms=60000)
        self.server.wait_for_queue("k", ["waiter"])
        self.server.release("k", "h")
        self.assertEqual(self.server.acquire("k", "pusher").status, 409)
        self.assertEqual(later.get().json()["locked_by"], "waiter")

    def test_the_queue_of_a_key_that_only_a_lock_above_it_blocks_is_shown(self):
        above, key = "stack:s:env:e", "stack:s:env:e:service:v"
        self.assertEqual(self.server.get(f"/v1/locks/{quoted(key)}/queue").status, 404)
        self.server.acquire(above, "holder", lock_id="h")
        queue = self.server.get(f"/v1/locks/{quoted(key)}/queue").json()
        self.assertEqual((queue["lock"]["key"], queue["waiting"]), (above, []))
        self.server.acquire_later("stack:s:env:e:service:other", "other", wait_ms=20000, ttl_ms=60000)
        self.server.wait_for_queue(above, ["other"])
        later = self.server.acquire_later(key, "waiter", wait_ms=20000, ttl_ms=60000)
        self.server.wait_for_queue(above, ["other", "waiter"])
        queue = self.server.get(f"/v1/locks/{quoted(key)}/queue").json()
        self.assertEqual((queue["key"], queue["lock"]["key"], queue["lock"]["locked_by"]), (key, above, "holder"))
        self.assertEqual([(w["position"], w["locked_by"]) for w in queue["waiting"]], [(0, "waiter")])
        self.server.release(above, "h")
        self.assertEqual(later.get().status, 200)

    def test_the_queue_of_a_key_that_only_a_lock_below_it_blocks_is_shown(self):
        """Also if the key itself was never held."""
        key, below = "stack:s:env:e", "stack:s:env:e:service:v"
        self.server.acquire(below, "holder", lock_id="h")
        queue = self.server.get(f"/v1/locks/{quoted(key)}/queue").json()
        self.assertEqual((queue["key"], queue["lock"]["key"], queue["lock"]["locked_by"], queue["waiting"]),
                         (key, below, "holder", []))
        later = self.server.acquire_later(key, "waiter", wait_ms=20000, ttl_ms=60000, lock_id="w")
        self.server.wait_for_queue(key, ["waiter"])
        self.server.acquire_later(key, "next", wait_ms=20000, ttl_ms=60000)
        self.server.wait_for_queue(key, ["waiter", "next"])
        self.assertEqual(self.server.queue(below), [])
        answer = self.server.get(f"/v1/locks/{quoted(key)}")
        self.assertEqual((answer.status, answer.error["lock"]), (404, None))
        text = f"no such lock: '{key}' (but '{below}' below it is held)"
        self.assertIn(text, self.fails(66, "status", key, "--store", self.server.url).err)
        self.server.release(below, "h")
        self.assertEqual(later.get().status, 200)
        self.assertEqual(self.server.queue(key), ["next"])

    def test_the_wait_ends_after_wait_ms(self):
        self.server.acquire("k", "holder")
        began = time.monotonic()
        answer = self.server.acquire("k", "waiter", wait_ms=300, ttl_ms=60000)
        self.assertEqual((answer.status, answer.error["code"]), (409, "lock_held"))
        self.assertEqual(answer.error["lock"]["locked_by"], "holder")
        self.assertEqual((answer.error["position"], answer.error["place_kept_ms"]), (0, 0))
        self.assertTrue(0.29 <= time.monotonic() - began < PATIENCE)
        self.server.wait_for_queue("k", [])

    def test_a_lock_granted_between_two_slices_is_valid_for_what_is_left_of_it(self):
        """L6: it is the client's since before it sent the request that fetches it."""
        def fetch(n):  # a place is kept for 3 s, and what was granted for about as long
            key, mine = f"k{n}", f"w{n}"
            self.server.acquire(key, "holder", lock_id=f"h{n}")
            self.assertEqual(self.server.acquire(key, "w", wait_ms=50, ttl_ms=20000, lock_id=mine).status, 409)
            self.server.release(key, f"h{n}")
            granted = time.monotonic()
            wait_until(lambda: self.server.get(f"/v1/locks/{key}").json()["locked_by"] == "w", patience=10)
            time.sleep(0.6)
            asked = time.monotonic()
            answer = self.server.acquire(key, "w", wait_ms=1000, ttl_ms=20000, lock_id=mine)
            self.assertEqual(answer.status, 200, answer)
            return asked - granted, answer.json()
        waited, lock = unless_stalled(fetch)
        self.assertLessEqual(lock["valid_for_ms"], lock["expires_in_ms"] - 1000)  # the lead: a twentieth of the ttl
        self.assertLess(waited + lock["valid_for_ms"] / 1000, 20.0 + 0.05)
        self.assertGreater(lock["valid_for_ms"], 10000)

    def test_every_answer_to_a_holder_says_for_how_long_it_is_valid(self):
        """L6: and no other does."""
        lock = self.server.acquire("k", "holder", lock_id="h", ttl_ms=60000, reentrant=True).json()
        again = self.server.acquire("k", "holder", lock_id="h", ttl_ms=60000).json()
        reentered = self.server.acquire("k", "holder", ttl_ms=60000, reentrant=True).json()
        renewed = self.server.renew("k", "h").json()
        adopted = self.server.post("/v1/adopt", {"key": "k", "lock_id": "h", "new_lock_id": "n"}).json()
        for one in (lock, again, reentered, renewed, adopted):
            self.assertTrue(50000 < one["valid_for_ms"] <= 59000, one)
        self.assertIsNone(self.server.get("/v1/locks/k").json()["valid_for_ms"])
        self.assertIsNone(self.server.acquire("k", "rival").error["lock"]["valid_for_ms"])
        self.assertIsNone(self.server.release("k", "n").json()["valid_for_ms"])

    def test_a_repeated_acquire_is_valid_for_the_rest_of_the_lease(self):
        """L5: an acquire and an adopt whose answer was lost."""
        self.server.acquire("k", "holder", lock_id="h", ttl_ms=60000)
        time.sleep(0.3)
        self.assertLessEqual(self.server.acquire("k", "holder", lock_id="h", ttl_ms=60000).json()["valid_for_ms"], 58700)
        adopt = {"key": "k", "lock_id": "h", "new_lock_id": "n"}
        self.server.post("/v1/adopt", adopt)
        time.sleep(0.3)
        self.assertLessEqual(self.server.post("/v1/adopt", adopt).json()["valid_for_ms"], 58700)

    def held(self, lock_id, wait_ms, key="k"):
        return self.server.post("/v1/held", {"key": key, "lock_id": lock_id, "wait_ms": wait_ms})

    def test_a_holder_may_wait_for_the_end_of_its_lock(self):
        """L6"""
        self.assertEqual(self.held("h", 20000).error["code"], "not_found")
        self.server.acquire("k", "holder", lock_id="h")
        self.assertEqual(self.held("other", 20000).error["code"], "not_holder")
        self.assertEqual(self.held("h", 0).json()["locked_by"], "holder")
        self.assertEqual(self.held("h", 50).status, 200)
        for end in (lambda: self.server.call("DELETE", "/v1/locks/k"), lambda: self.server.release("k", "h2")):
            answers = []
            threads = [threading.Thread(target=lambda: answers.append(self.held(self.now, 50000))) for _ in range(2)]
            self.now = self.server.get("/v1/locks/k").json()["lock_id"]
            for thread in threads:
                thread.start()
            time.sleep(0.3)
            self.assertEqual(answers, [])
            end()
            for thread in threads:
                thread.join(PATIENCE)
            self.assertEqual([answer.error["code"] for answer in answers], ["lease_lost"] * 2)
            self.server.acquire("k", "holder", lock_id="h2")

    def test_a_holder_hears_at_once_that_its_lock_was_adopted(self):
        """L6"""
        self.server.acquire("k", "holder", lock_id="h")
        answers = []
        thread = threading.Thread(target=lambda: answers.append(self.held("h", 50000)))
        thread.start()
        time.sleep(0.3)
        self.server.post("/v1/adopt", {"key": "k", "lock_id": "h", "new_lock_id": "n"})
        thread.join(PATIENCE)
        self.assertEqual([answer.error["code"] for answer in answers], ["not_holder"])

    def test_a_client_waiting_for_a_loss_does_not_keep_the_server_from_stopping(self):
        self.server.acquire("k", "holder", lock_id="h")
        gone = self.server.raw()
        body = b'{"key":"k","lock_id":"h","wait_ms":60000}'
        gone.sendall(b"POST /v1/held HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        answers = []
        thread = threading.Thread(target=lambda: answers.append(self.held("h", 60000)))
        thread.start()
        time.sleep(0.3)
        gone.close()
        self.assertEqual(self.server.stop(), 0)
        thread.join(PATIENCE)
        self.assertEqual(answers[0].error["code"], "shutting_down")

    def test_a_poll_lasts_at_most_a_third_of_the_ttl(self):
        """L6"""
        self.server.acquire("k", "holder")
        began = time.monotonic()
        answer = self.server.acquire("k", "waiter", wait_ms=600000, ttl_ms=900)
        self.assertEqual(answer.error["code"], "lock_held")
        self.assertTrue(0.29 <= time.monotonic() - began < PATIENCE)  # and not 600 s

    def test_a_place_in_the_queue_is_kept_between_polls(self):
        """L6"""
        self.server.acquire("k", "holder", lock_id="h")
        first = self.server.acquire("k", "first", wait_ms=200, ttl_ms=60000, lock_id="f")
        self.assertEqual((first.error["position"], first.error["place_kept_ms"]), (0, 3000))
        second = self.server.acquire("k", "second", wait_ms=100, ttl_ms=60000, lock_id="s")
        self.assertEqual(second.error["position"], 1)
        later = [self.server.acquire_later("k", "second", wait_ms=15000, ttl_ms=60000, lock_id="s"),
                 self.server.acquire_later("k", "first", wait_ms=15000, ttl_ms=60000, lock_id="f")]
        self.assertEqual(self.server.queue("k"), ["first", "second"])
        time.sleep(0.2)  # both slices have begun, whichever came first
        self.server.release("k", "h")
        self.assertEqual(later[1].get().json()["locked_by"], "first")
        self.assertFalse(later[0].is_there())
        self.server.release("k", "f")
        self.assertEqual(later[0].get().json()["locked_by"], "second")

    def test_a_place_in_the_queue_expires_when_its_client_does_not_return(self):
        self.server.acquire("k", "holder")
        self.server.acquire("k", "waiter", wait_ms=100, ttl_ms=60000, lock_id="w")
        self.assertEqual(self.server.queue("k"), ["waiter"])
        self.server.wait_for_queue("k", [])

    def test_a_waiter_with_a_new_id_for_each_poll_gets_the_lock(self):
        """Issue 12, item 38: its own abandoned places were granted first, one after the other."""
        self.server.acquire("k", "holder", lock_id="h", ttl_ms=60000)
        for i in range(6):
            answer = self.server.acquire("k", "forgetful", wait_ms=100, ttl_ms=self.UNCLAIMED_TTL_MS, lock_id=f"before-{i}")
            self.assertEqual(answer.status, 409)
            self.assertIn("same lock_id", answer.error["hint"])
        self.server.wait_for_queue("k", ["forgetful"])
        self.server.release("k", "h")
        answers = []
        for i in range(15 if self.UNCLAIMED_IS_RELEASED else 60):  # the one place that is left may be granted for a second
            answers.append(self.server.acquire("k", "forgetful", wait_ms=200, ttl_ms=self.UNCLAIMED_TTL_MS, lock_id=f"after-{i}").status)
            if answers[-1] == 200:
                break
        self.assertEqual(answers[-1], 200, answers)

    def test_a_new_request_replaces_only_the_same_clients_place(self):
        self.server.acquire("k", "holder", lock_id="h", ttl_ms=60000)
        self.server.acquire("other", "holder", lock_id="o", ttl_ms=60000)
        for owner, key in (("one", "k"), ("two", "k"), ("one", "other"), ("three", "k"), ("two", "k")):
            answer = self.server.acquire(key, owner, wait_ms=50, ttl_ms=60000, lock_id=f"{owner}-{key}-{time.monotonic_ns()}")
            self.assertEqual(answer.error["place_kept_ms"], 3000)
        self.assertEqual(self.server.queue("k"), ["one", "three", "two"])
        self.assertEqual(self.server.queue("other"), ["one"])
        self.assertEqual(self.server.acquire("k", "four", wait_ms=50, ttl_ms=60000).error["place_kept_ms"], 0)

    def test_a_release_by_a_waiter_gives_up_its_place_at_once(self):
        self.server.acquire("k", "holder")

        def give_up(i):
            self.server.acquire("k", "waiter", wait_ms=100, ttl_ms=60000, lock_id=f"w{i}")
            self.assertEqual(self.server.release("k", f"w{i}").status, 409)
            began = time.monotonic()
            self.server.wait_for_queue("k", [])
            return time.monotonic() - began
        self.assert_fast(give_up, 2)  # else it would be kept for 3 s

    def test_a_release_of_another_key_leaves_the_place_alone(self):
        """L3: a token may not be permitted the key that the id waits for."""
        self.server.acquire("k", "holder", lock_id="h")
        later = self.server.acquire_later("k", "waiter", wait_ms=15000, ttl_ms=60000, lock_id="w")
        self.server.wait_for_queue("k", ["waiter"])
        self.server.acquire("other", "holder")
        self.assertEqual(self.server.release("other", "w").status, 409)
        self.assertEqual(self.server.queue("k"), ["waiter"])
        self.server.release("k", "h")
        self.assertEqual(later.get().json()["lock_id"], "w")

    def test_a_waiter_that_returns_in_time_finds_the_lock_granted(self):
        """L5"""
        self.server.acquire("k", "holder", lock_id="h")
        self.server.acquire("k", "waiter", wait_ms=100, ttl_ms=60000, lock_id="w")
        self.server.release("k", "h")
        lock = self.server.acquire("k", "waiter", wait_ms=100, ttl_ms=60000, lock_id="w").json()
        self.assertEqual((lock["status"], lock["lock_id"]), ("active", "w"))
        time.sleep(1.3)
        self.assertEqual(self.server.renew("k", "w").status, 200, "it was claimed, so it is not taken away")

    def pass_over(self, key):
        """How long after a release the waiter behind one that never returns has the lock."""
        self.server.acquire(key, "holder", lock_id=f"h-{key}", ttl_ms=60000)
        self.server.acquire(key, "gone", wait_ms=100, ttl_ms=self.UNCLAIMED_TTL_MS, lock_id=f"g-{key}")
        later = self.server.acquire_later(key, "next", wait_ms=15000, ttl_ms=60000)
        self.server.wait_for_queue(key, ["gone", "next"])
        began = time.monotonic()
        self.server.release(key, f"h-{key}")
        self.assertEqual(later.get().json()["locked_by"], "next")
        took = time.monotonic() - began
        self.server.call("DELETE", f"/v1/locks/{key}")
        self.assertEqual(self.server.acquire(key, "gone", lock_id=f"g-{key}").error["code"], "id_used")
        return took

    def test_a_lock_granted_to_a_waiter_that_never_returns_goes_to_the_next(self):
        """L4: a dead first waiter delays the queue by at most a second, or by its ttl."""
        limit = 2 if self.UNCLAIMED_IS_RELEASED else 2 + self.UNCLAIMED_TTL_MS / 1000
        self.assert_fast(lambda i: self.pass_over(f"k{i}"), limit)

    def assert_fast(self, work, limit):
        """The fastest of some, since the machine may be busy."""
        times = []
        while len(times) < 4 and min(times, default=limit) >= limit:
            times.append(work(len(times)))
        self.assertLess(min(times), limit)

    def hang_up(self, how, lock_id):
        """How long after that the place in the queue is gone."""
        connection = self.ask("k", {"locked_by": how, "wait_ms": 20000, "ttl_ms": 60000, "lock_id": lock_id})
        self.server.wait_for_queue("k", [how])
        if how == "reset":
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        if how == "half":
            connection.shutdown(socket.SHUT_WR)
            status, body = self.answer(connection)
            self.assertEqual((status, body["error"]["code"]), (409, "lock_held"))
        connection.close()
        began = time.monotonic()
        self.server.wait_for_queue("k", [])
        return time.monotonic() - began

    def test_a_client_that_hangs_up_leaves_the_queue_at_once(self):
        self.server.acquire("k", "holder", lock_id="h")
        for how in ("close", "reset", "half"):
            with self.subTest(how):
                self.assert_fast(lambda i, how=how: self.hang_up(how, f"{how}-{i}"), 2)  # well below the grace and the slice
        self.server.release("k", "h")
        self.assertEqual(self.server.acquire("k", "anybody").status, 200)

    def test_a_try_of_a_client_that_closed_its_side_is_answered(self):
        connection = self.ask("k", {"locked_by": "me"})
        connection.shutdown(socket.SHUT_WR)
        self.assertEqual(self.answer(connection)[0], 200)
        connection.close()

    def test_a_request_with_the_same_lock_id_takes_over_the_place(self):
        self.server.acquire("k", "holder", lock_id="h")
        older = self.server.acquire_later("k", "waiter", wait_ms=20000, ttl_ms=60000, lock_id="w")
        self.server.wait_for_queue("k", ["waiter"])
        self.server.acquire_later("k", "behind", wait_ms=20000, ttl_ms=60000)
        self.server.wait_for_queue("k", ["waiter", "behind"])
        newer = self.server.acquire_later("k", "waiter", wait_ms=20000, ttl_ms=60000, lock_id="w")
        answer = older.get()
        self.assertEqual((answer.status, answer.error["code"]), (409, "superseded"))
        self.assertEqual(self.server.queue("k"), ["waiter", "behind"])
        self.server.release("k", "h")
        self.assertEqual(newer.get().json()["lock_id"], "w")

    def test_a_lock_id_waits_for_one_key(self):
        self.server.acquire("k", "holder")
        self.server.acquire_later("k", "waiter", wait_ms=20000, ttl_ms=60000, lock_id="w")
        self.server.wait_for_queue("k", ["waiter"])
        answer = self.server.acquire("other", "waiter", lock_id="w")
        self.assertEqual((answer.status, answer.error["code"]), (400, "invalid"))

    def test_the_queue_of_an_ancestor_is_kept_too(self):
        self.server.acquire("stack:s:env:e", "above", lock_id="a")
        later = self.server.acquire_later("stack:s:env:e:service:w", "below", wait_ms=20000, ttl_ms=60000)
        self.server.wait_for_queue("stack:s:env:e", ["below"])
        self.server.release("stack:s:env:e", "a")
        self.assertEqual(later.get().status, 200)

    def test_an_expired_lease_lets_the_next_waiter_in(self):
        """L4"""
        self.server.acquire("k", "holder", ttl_ms=500)
        began = time.monotonic()
        answer = self.server.acquire("k", "waiter", wait_ms=60000, ttl_ms=600000)
        self.assertEqual(answer.status, 200)
        self.assertLess(time.monotonic() - began, 50)  # not at the end of its own wait
        events = [e["event"] for e in self.server.get("/v1/locks/k/history").json()["events"]]
        self.assertIn("lock.taken_over", events)

    def test_a_command_on_the_same_file_and_a_waiter_share_one_queue(self):
        lock = self.acquire("k")
        later = self.server.acquire_later("k", "over-http", wait_ms=20000, ttl_ms=60000)
        self.server.wait_for_queue("k", ["over-http"])
        self.fails(75, "acquire", "k")
        self.ok("release", "k", "--id", lock["lock_id"])
        self.assertEqual(later.get().json()["locked_by"], "over-http")

    def test_hundreds_wait_without_a_thread_for_each(self):
        n = 150
        self.server.acquire("k", "holder", lock_id="h")
        connections = [self.ask("k", {"locked_by": f"w{i}", "wait_ms": 200000, "ttl_ms": 600000}) for i in range(n)]
        wait_until(lambda: len(self.server.queue("k")) == n, "all to wait")
        with open(f"/proc/{self.server.process.pid}/status", encoding="ascii") as status:
            threads = int([line.split()[1] for line in status if line.startswith("Threads")][0])
        self.assertLess(threads, self.THREADS_MAX)
        for connection in connections[: n // 2]:
            connection.close()
        wait_until(lambda: len(self.server.queue("k")) == n // 2, "half of them to be gone")
        first = self.server.queue("k")[0]  # threads may have put them into the queue in another order
        self.server.release("k", "h")
        self.assertEqual(self.answer(connections[int(first[1:])])[1]["locked_by"], first)
        for connection in connections[n // 2:]:
            connection.close()

    def test_a_stopping_server_answers_its_waiters(self):
        self.server.acquire("k", "holder")
        later = [self.server.acquire_later("k", f"w{i}", wait_ms=20000, ttl_ms=60000, lock_id=f"w{i}") for i in range(5)]
        wait_until(lambda: len(self.server.queue("k")) == 5, "all to wait")
        self.server.process.send_signal(signal.SIGTERM)
        for answer in later:
            answer = answer.get()
            self.assertEqual((answer.status, answer.error["code"]), (503, "shutting_down"))
            self.assertEqual(answer.headers["Retry-After"], "1")
        self.assertEqual(self.server.process.wait(PATIENCE), 0)
        self.assertEqual(self.ok("status", "k", "--json").json()["status"], "active")
        events = [e["event"] for e in self.ok("history", "k", "--json").json()["events"]]
        # They may come back with their ids: their places are kept, and they have not ended.
        self.assertEqual((events.count("wait.began"), events.count("wait.ended")), (5, 0))

    def test_a_journal_that_cannot_be_written_ends_the_server_without_an_answer(self):
        """The content of the disk is then unknown, so no client is answered; a retry with the same id is."""
        server = self.serve("--store", f"sqlite:{self.dir}/full.db")
        server.acquire("k", "holder", ttl_ms=1500)
        later = server.acquire_later("k", "w", wait_ms=20000, ttl_ms=60000, lock_id="w")
        wait_until(lambda: server.queue("k") == ["w"], "it to wait")
        # Not even what is there already may be written any more. Then the holder's lease ends.
        limits = resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (1, limits[1]))
        self.assertIsInstance(later.get(), (OSError, http.client.HTTPException))
        self.assertNotEqual(server.process.wait(PATIENCE), 0)
        again = self.serve("--store", f"sqlite:{self.dir}/full.db")
        self.assertEqual(again.acquire("k", "w", wait_ms=20000, ttl_ms=60000, lock_id="w").status, 200)

    def test_a_waiter_that_returns_after_a_restart_keeps_its_place(self):
        """However it was stopped, and in whatever order they come back."""
        for stop in (signal.SIGTERM, signal.SIGKILL):
            with self.subTest(stop):
                key = f"k{int(stop)}"
                ids = [f"{key}-{i}" for i in range(4)]
                self.server.acquire(key, "holder", lock_id=f"{key}-h", ttl_ms=120000)
                later = []
                for n, one in enumerate(ids):
                    later.append(self.server.acquire_later(key, one, wait_ms=20000, ttl_ms=60000, lock_id=one))
                    wait_until(lambda: len(self.server.queue(key)) == n + 1, "it to wait")
                self.server.process.send_signal(stop)
                self.server.process.wait(PATIENCE)
                for answer in later:
                    with contextlib.suppress(Exception):
                        answer.get()
                self.server = self.serve()
                again = {one: self.server.acquire_later(key, one, wait_ms=20000, ttl_ms=60000, lock_id=one)
                         for one in reversed(ids)}
                wait_until(lambda: self.server.queue(key) == ids, "the line as it was")
                self.server.release(key, f"{key}-h")
                for one in ids:
                    self.assertEqual(again[one].get().json()["locked_by"], one)
                    self.server.release(key, one)

    def test_a_wait_goes_on_after_a_restart_as_if_there_was_none(self):
        """Its duration counts from its beginning, and its position is its own, not that of another of the same owner."""
        ids = ["one", "two", "three"]
        self.server.acquire("k", "holder", lock_id="h", ttl_ms=120000)
        for n, one in enumerate(ids):
            self.server.acquire_later("k", "same", wait_ms=20000, ttl_ms=60000, lock_id=one)
            wait_until(lambda: len(self.server.queue("k")) == n + 1, "it to wait")
        began, before = time.monotonic(), self.server.get("/v1/locks/k/queue").json()["waiting"]
        self.server.process.kill()
        self.server.process.wait(PATIENCE)
        wait_until(lambda: time.monotonic() - began >= 1, "a wait that can be told from a new one")
        self.server = self.serve()
        for one in ids[1:]:
            self.server.acquire_later("k", "same", wait_ms=20000, ttl_ms=60000, lock_id=one)
        self.assertEqual(self.server.acquire("k", "same", wait_ms=50, ttl_ms=60000, lock_id="one").error["position"], 0)
        self.assertEqual([w["since"] for w in self.server.get("/v1/locks/k/queue").json()["waiting"]],
                         [w["since"] for w in before])
        waited = time.monotonic() - began
        self.server.release("k", "h")
        self.assertEqual(self.server.acquire("k", "same", wait_ms=20000, ttl_ms=60000, lock_id="one").status, 200)
        ended = [e for e in self.ok("history", "k", "--json").json()["events"] if e["event"] == "wait.ended"]
        self.assertEqual([e["lock_id"] for e in ended], ["one"])
        self.assertGreater(ended[0]["duration_seconds"], waited - 0.1)


class BetweenServers(ServerCase):
    """Issue 12, item 37: a local command between two servers keeps the places of the first server's waiters."""

    def wait_in_line(self, server, *names):
        for name in names:
            self.assertEqual(server.acquire("k", name, wait_ms=50, ttl_ms=60000, lock_id=name).error["place_kept_ms"], 3000)

    def end_with(self, server, number):
        server.process.send_signal(number)
        server.process.wait(PATIENCE)

    def test_places_are_kept_beside_a_local_command(self):
        for number in (signal.SIGKILL, signal.SIGTERM):
            with self.subTest(signal=number):
                server = self.serve()
                server.acquire("k", "holder", lock_id=f"h-{number}", ttl_ms=60000)
                self.wait_in_line(server, f"a-{number}", f"b-{number}")
                self.end_with(server, number)
                self.fails(75, "acquire", "k", "--owner", "local")
                self.fails(75, "acquire", "k", "--owner", "local", "--wait", "100ms")
                server = self.serve()
                late = server.acquire_later("k", "late", wait_ms=20000, ttl_ms=60000, lock_id=f"late-{number}")
                server.wait_for_queue("k", [f"a-{number}", f"b-{number}", "late"])
                again = [server.acquire_later("k", f"{who}-{number}", wait_ms=20000, ttl_ms=60000, lock_id=f"{who}-{number}")
                         for who in ("b", "a")]
                time.sleep(0.2)  # both have come back, whichever was first
                server.release("k", f"h-{number}")
                for answer, who in ((again[1], "a"), (again[0], "b"), (late, "late")):
                    self.assertEqual(answer.get().json()["lock_id"], f"{who}-{number}")
                    server.release("k", f"{who}-{number}")
                self.end_with(server, signal.SIGTERM)

    def test_a_released_lock_is_reserved_briefly_for_the_first_waiter(self):
        for number in (signal.SIGKILL, signal.SIGTERM):
            with self.subTest(signal=number):
                server = self.serve()
                server.acquire("k", "holder", lock_id=f"h-{number}", ttl_ms=60000)
                self.wait_in_line(server, f"a-{number}", f"b-{number}")
                self.end_with(server, number)
                self.ok("release", "k", "--id", f"h-{number}")
                self.assertIn("reserved for 2 waiters", self.fails(75, "acquire", "k", "--owner", "local").err)
                began = time.monotonic()
                lock = self.ok("acquire", "k", "--owner", "local", "--wait", "20s", "--json").json()
                self.assertLess(time.monotonic() - began, 10, "one claim window for each that is before it")
                self.ok("release", "k", "--id", lock["lock_id"])


if __name__ == "__main__":
    main()
