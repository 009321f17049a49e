"""Freezes through a server: its own clients, those of its file, kill -9, tokens and waiters."""

import subprocess
import threading
import time
import signal

from server_support import BELAY, ServerCase, Stream, main, quoted, wait_until


class FreezeCase(ServerCase):
    def freeze(self, server, pattern, token=None, **fields):
        answer = server.post("/v1/freezes", {"pattern": pattern, "reason": "Black Friday", **fields}, token=token)
        self.assertEqual(answer.status, 200, answer)
        return answer.json()["freezes"][0]

    def unfreeze(self, server, what, token=None, **fields):
        answer = server.call("DELETE", f"/v1/freezes/{quoted(what)}", fields or None, token=token)
        self.assertEqual(answer.status, 200, answer)
        return answer.json()["freezes"]

    def freezes(self, server, token=None):
        return [one["pattern"] for one in server.get("/v1/freezes", token=token).json()["freezes"]]

    def is_frozen(self, answer):
        self.assertEqual((answer.status, answer.error["code"]), (409, "frozen"), answer)
        return answer.error["message"]


class Freezes(FreezeCase):
    def setUp(self):
        super().setUp()
        self.server = self.serve()

    def test_new_acquisitions_are_refused_and_holders_keep_theirs(self):
        lock = self.server.acquire("k-1").json()
        made = self.freeze(self.server, "k-*", until="2099-11-28T00:00:00Z", by="alice")
        self.assertEqual((made["by"], made["in_force"], made["until"]), ("alice", True, "2099-11-28T00:00:00.000Z"))
        self.assertEqual(self.is_frozen(self.server.acquire("k-2")),
                         "lock 'k-2': frozen until 2099-11-28T00:00:00Z by alice: Black Friday")
        self.assertEqual(self.server.acquire("other").status, 200)
        self.assertEqual(self.server.renew("k-1", lock["lock_id"]).status, 200)
        self.assertEqual(self.server.acquire("k-1", reentrant=True).json()["lock_id"], lock["lock_id"])
        adopted = self.server.post("/v1/locks/k-1/adopt", {"lock_id": lock["lock_id"]}).json()
        self.assertEqual(self.server.release("k-1", adopted["lock_id"]).status, 200)
        self.is_frozen(self.server.acquire("k-1"))
        self.assertEqual([one["id"] for one in self.unfreeze(self.server, made["id"])], [made["id"]])
        self.assertEqual(self.server.acquire("k-1").status, 200)

    def test_a_waiter_is_told_why_and_gets_the_lock_when_the_freeze_is_ended(self):
        self.server.release("k", self.server.acquire("k").json()["lock_id"])
        self.freeze(self.server, "k")
        answer = self.server.acquire("k", "me", wait_ms=50, ttl_ms=60000, lock_id="mine")
        self.assertIn("frozen by", self.is_frozen(answer))
        self.assertEqual((answer.error["position"], answer.error["place_kept_ms"] > 0), (0, True))
        waits = [self.server.acquire_later("k", f"w{i}", wait_ms=20000, ttl_ms=60000, lock_id=f"w{i}") for i in range(1)]
        self.server.wait_for_queue("k", ["me", "w0"])
        mine = self.server.acquire_later("k", "me", wait_ms=20000, ttl_ms=60000, lock_id="mine")
        time.sleep(2.5)  # longer than the claim of the first on a lock that only looks free
        began = time.monotonic()
        self.unfreeze(self.server, "k")
        self.assertEqual(mine.get().status, 200)
        self.assertLess(time.monotonic() - began, 2)
        self.server.release("k", "mine")
        self.assertEqual(waits[0].get().status, 200)

    def test_a_waiter_gets_the_lock_when_the_freeze_ends(self):
        self.freeze(self.server, "k", for_ms=1500)
        began = time.monotonic()
        self.assertEqual(self.server.acquire("k", wait_ms=20000, ttl_ms=60000).status, 200)
        self.assertTrue(1.0 < time.monotonic() - began < 2.5, time.monotonic() - began)

    def test_an_admin_passes_with_a_reason(self):
        self.freeze(self.server, "k")
        self.assertEqual(self.server.acquire("k", ignore_freeze=True).error["code"], "invalid")
        self.assertEqual(self.server.acquire("k", ignore_freeze=True, reason="hotfix").status, 200)
        events = self.server.get("/v1/locks/k/history").json()["events"]
        self.assertEqual((events[-1]["event"], events[-1]["reason"]), ("lock.acquired", "freeze ignored: hotfix"))

    def test_bad_input_names_what_is_wrong(self):
        for fields, says in [({"pattern": "", "reason": "x"}, "pattern"),
                             ({"pattern": "k"}, "reason"),
                             ({"pattern": "k", "reason": "x", "until": "2099-11-28 00:00"}, "2026-11-28T00:00:00Z"),
                             ({"pattern": "k", "reason": "x", "until": "2020-11-28T00:00:00Z"}, "in the past"),
                             ({"pattern": "k", "reason": "x", "until": "1970-01-01T00:00:00Z"}, "in the past"),
                             ({"pattern": "k", "reason": "x", "until": "2099-02-29T00:00:00Z"}, "2026-11-28T00:00:00Z"),
                             ({"pattern": "k", "reason": "x", "until": "2099-11-28T00:00:00Z", "for_ms": 5}, "both say when"),
                             ({"pattern": "k", "reason": "x", "from": "2099-11-28T00:00:00Z", "for_ms": 0}, "for_ms"),
                             ({"pattern": "k", "reason": "x", "id": "no id"}, "not a lock id"),
                             ({"pattern": "k", "reason": "x", "untill": "x"}, "until")]:
            answer = self.server.post("/v1/freezes", fields)
            self.assertEqual((answer.status, answer.error["code"]), (400, "invalid"), answer)
            self.assertIn(says, answer.error["message"])
        self.assertEqual(self.server.call("DELETE", "/v1/freezes/nope").status, 404)
        self.assertEqual(self.freezes(self.server), [])

    def test_a_repeated_request_with_the_same_id_makes_one_freeze(self):
        for _ in range(2):
            self.assertEqual(self.freeze(self.server, "k", id="mine")["id"], "mine")
        self.assertEqual(self.freezes(self.server), ["k"])

    def refused_id(self, **fields):
        answer = self.server.post("/v1/freezes", {"pattern": "k", "reason": "x", "id": "mine", **fields})
        self.assertEqual((answer.status, answer.error["code"]), (409, "id_used"), answer)
        return answer.error["message"]

    def test_the_id_of_another_freeze_or_of_one_that_is_over_is_refused(self):
        """An answer that looks like success would leave the keys as they are, not frozen."""
        self.freeze(self.server, "k", id="mine")
        self.assertNotIn("'k'", self.refused_id(pattern="q"))
        self.unfreeze(self.server, "mine")
        self.assertIn("over", self.refused_id())
        self.assertEqual(self.server.acquire("k").status, 200)
        self.freeze(self.server, "k-2", id="short", for_ms=1)
        self.assertIn("over", self.refused_id(pattern="k-2", id="short", for_ms=60000))
        self.freeze(self.server, "k", id="other")
        self.is_frozen(self.server.acquire("k", "you"))

    def test_a_webhook_waits_for_the_end_of_the_freeze(self):
        self.freeze(self.server, "k")
        answer = self.server.acquire("k", wait_ms=1000, ignore_freeze=True, reason="x", webhook={"url": "http://a.example/"})
        self.assertEqual(answer.status, 400, answer)

    def test_terraform_is_shown_the_reason_where_it_shows_a_holder(self):
        self.freeze(self.server, "*")
        answer = self.server.call("LOCK", "/v1/terraform/prod", {"ID": "abc", "Operation": "apply"}, check=False)
        self.assertEqual(answer.status, 423, answer)
        self.assertIn("Black Friday", answer.json()["Info"])


class Clients(FreezeCase):
    """The program through the server's URL, and through the file that the server owns."""

    def each(self):
        server = self.serve()
        for store in (server.url, self.store):
            yield server, {"BELAY_STORE": store}

    def test_the_program_freezes_and_is_refused_through_both(self):
        for server, env in self.each():
            self.ok("freeze", "k-*", "--reason", "Black Friday", env=env)
            self.assertEqual(self.freezes(server), ["k-*"])
            for other in ({"BELAY_STORE": server.url}, {"BELAY_STORE": self.store}):
                error = self.fails(75, "acquire", "k-1", "--json", env=other).error()
                self.assertEqual(error["code"], "frozen")
                self.assertIn("Black Friday", error["message"])
                result = self.fails(75, "run", "k-1", "--wait", "300ms", "--", "true", env=other)
                self.assertIn("frozen by", result.err)
            lock = self.ok("acquire", "k-2", "--ignore-freeze", "--reason", "hotfix", "--json", env=env).json()
            self.ok("release", "k-2", "--id", lock["lock_id"], env=env)
            self.ok("run", "k-3", "--ignore-freeze", "--reason", "x", "--", "true", env=env)
            waiter = self.start("run", "k-3", "--wait", "30s", "--", "true", env=env)
            server.wait_for_queue("k-3", [self.owner(server)])
            self.ok("unfreeze", "k-*", env=env)
            self.assertEqual(waiter.wait(60), 0)
            self.assertEqual(self.ok("freezes", "--json", env=env).json(), {"freezes": []})
            self.assertIn("freeze ignored: hotfix", server.get("/v1/locks/k-2/history").body.decode())
        begun = [e["event"] for e in server.get("/v1/locks/k-*/history").json()["events"]]
        self.assertEqual(begun, ["freeze.begun", "freeze.ended"] * 2)

    def test_a_freeze_may_be_as_long_through_a_server_as_on_the_file(self):
        years = [self.ok("freeze", "k", "--reason", "x", "--for", "100000h", "--json", env={"BELAY_STORE": self.store}).json()]
        server = self.serve()
        years.append(self.ok("freeze", "k", "--reason", "x", "--for", "100000h", "--json", env={"BELAY_STORE": server.url}).json())
        self.assertEqual(years[0]["until"][:7], years[1]["until"][:7])
        self.fails(64, "freeze", "k", "--reason", "x", "--for", "99999999h", env={"BELAY_STORE": server.url})

    def owner(self, server):
        return wait_until(lambda: server.queue("k-3"), "a waiter")[0]

    def test_a_freeze_from_before_the_server_holds_in_it_and_after_it(self):
        self.ok("freeze", "k", "--reason", "x")
        server = self.serve()
        self.is_frozen(server.acquire("k"))
        self.freeze(server, "q")
        server.stop()
        self.fails(75, "acquire", "k")
        self.fails(75, "acquire", "q")


class Killed(FreezeCase):
    def test_a_freeze_that_was_answered_survives_kill_minus_nine(self):
        for i in range(8):
            server = self.serve()
            held = server.acquire(f"held-{i}", ttl_ms=600000).json()["lock_id"]
            self.freeze(server, f"k-{i}")
            server.stop(signal.SIGKILL)
            if i % 2 == 0:
                self.fails(75, "acquire", f"k-{i}")
            else:
                server = self.serve()
                self.is_frozen(server.acquire(f"k-{i}"))
                self.assertEqual(server.renew(f"held-{i}", held).status, 200)
                server.stop(signal.SIGKILL)


class Race(FreezeCase):
    """A request that begins after the answer to the freeze is refused, over every connection and the file."""

    ROUNDS = 60

    def test_an_acquisition_after_the_answer_is_refused(self):
        server = self.serve()
        round_ = [0]  # odd: the freeze was answered, and its end was not asked for yet
        stop, wrong, asked = threading.Event(), [], [0]

        def note(before, is_refused, text):
            asked[0] += 1
            if before % 2 == 1 and before == round_[0] and not is_refused:
                wrong.append(text)

        def over_http(name):
            connection = server.connect()
            while not stop.is_set():
                before = round_[0]
                answer = server.acquire(f"k-{name}", connection=connection, lock_id=f"id-{name}-{asked[0]}")
                note(before, answer.status == 409, repr(answer))
                if answer.status == 200:
                    server.release(f"k-{name}", answer.json()["lock_id"])
            connection.close()

        def over_the_file():
            while not stop.is_set():
                before = round_[0]
                code = subprocess.run([BELAY, "run", "k-file", "--", "true"], env=self.env, cwd=self.dir,
                                      capture_output=True).returncode
                note(before, code == 75, f"exit {code}")

        threads = [threading.Thread(target=over_http, args=(name,)) for name in ("a", "b")]
        threads.append(threading.Thread(target=over_the_file))
        for thread in threads:
            thread.start()
        try:
            for _ in range(self.ROUNDS):
                self.freeze(server, "k-*")
                round_[0] += 1
                self.is_frozen(server.acquire("k-new"))
                time.sleep(0.01)
                round_[0] += 1
                self.unfreeze(server, "k-*")
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        self.assertEqual(wrong, [])
        self.assertGreater(asked[0], 100)


class Tokens(FreezeCase):
    def test_freezing_is_for_admins_and_within_the_keys_of_the_token(self):
        config = self.config_with({
            "boss": ("boss", "admin", None), "team": ("team", "admin", ["team-*"]), "ci": ("ci", "locker", ["team-api-*"]),
            "far": ("far", "reader", ["far-*"])})
        server = self.serve(config=config)
        body = {"pattern": "team-*", "reason": "x"}
        self.assertEqual(server.post("/v1/freezes", body, token="ci").status, 403)
        self.assertEqual(server.post("/v1/freezes", {**body, "pattern": "*"}, token="team").status, 403)
        made = self.freeze(server, "team-*", token="team", by="alice")
        self.assertEqual(made["by"], "alice (team)")
        self.assertIn("frozen by alice (team)", self.is_frozen(server.acquire("team-api-1", token="ci")))
        answer = server.acquire("team-api-1", token="ci", ignore_freeze=True, reason="me first")
        self.assertEqual(answer.status, 403, answer)
        everything = self.freeze(server, "*", token="boss")
        self.assertEqual(server.call("DELETE", f"/v1/freezes/{everything['id']}", token="team").status, 403)
        self.assertEqual(server.call("DELETE", f"/v1/freezes/{made['id']}", token="ci").status, 403)
        self.assertEqual(self.freezes(server, "boss"), ["team-*", "*"])
        self.assertEqual(self.freezes(server, "ci"), ["team-*", "*"])
        self.assertEqual(self.freezes(server, "far"), ["*"])
        self.assertEqual(len(self.unfreeze(server, made["id"], token="team")), 1)

    def serve_tenants(self):
        return self.serve(config=self.config_with({
            "boss": ("boss", "admin", None), "a": ("a", "admin", ["team-a-*"]), "b": ("b", "admin", ["team-b-*"]),
            "b-reader": ("b-reader", "reader", ["team-b-*"])}))

    def test_a_token_learns_nothing_of_the_freezes_of_other_keys(self):
        server = self.serve_tenants()
        self.freeze(server, "team-a-merger-*", token="a", id="mine")
        made = server.post("/v1/freezes", {"pattern": "team-b-*", "reason": "x", "id": "mine"}, token="b")
        self.assertEqual((made.status, made.error["code"]), (409, "id_used"), made)
        self.assertNotIn("merger", made.error["message"])
        for name in ("mine", "team-a-merger-*"):
            ended = server.call("DELETE", f"/v1/freezes/{quoted(name)}", token="b")
            self.assertEqual(ended.status, 404, ended)
            nothing = server.call("DELETE", "/v1/freezes/nothing", token="b").error["message"]
            self.assertEqual(ended.error["message"], nothing.replace("nothing", name))
        self.assertEqual(self.freezes(server, "b"), [])
        self.assertEqual(self.freezes(server, "a"), ["team-a-merger-*"])

    def test_a_token_sees_every_freeze_that_can_stop_it(self):
        server = self.serve_tenants()
        stream = Stream(server, token="b-reader", last_id=0)
        for pattern in ("*-prod", "team-*-x", "team-b-1", "team-a-*", "team-a-x-*-prod", "*b*", "*"):
            self.freeze(server, pattern, token="boss")
        seen = ["*-prod", "team-*-x", "team-b-1", "*b*", "*"]
        self.assertEqual(self.freezes(server, "b-reader"), seen)
        self.is_frozen(server.acquire("team-b-2-prod", token="b"))
        events = stream.events()
        self.assertEqual([next(events)["data"]["lock_key"] for _ in seen], seen)
        stream.close()


if __name__ == "__main__":
    main()
