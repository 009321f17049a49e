"""Every route and every status of the HTTP API."""

import json

from server_support import LOCK_FIELDS, ServerCase, main, quoted


class Locks(ServerCase):
    def setUp(self):
        super().setUp()
        self.server = self.serve()

    def test_a_lock_is_acquired_renewed_and_released(self):
        lock = self.server.acquire("k", "job-1", ttl_ms=60000, metadata={"a": "b"}, correlation_id="c").json()
        self.assertEqual(list(lock), LOCK_FIELDS)
        self.assertEqual((lock["status"], lock["locked_by"], lock["ttl_ms"]), ("active", "job-1", 60000))
        self.assertEqual(lock["metadata"], {"a": "b", "correlation_id": "c"})
        renewed = self.server.renew("k", lock["lock_id"], ttl_ms=90000).json()
        self.assertEqual((renewed["ttl_ms"], renewed["token"]), (90000, lock["token"]))
        released = self.server.release("k", lock["lock_id"], outcome="failed").json()
        self.assertEqual((released["status"], released["outcome"]), ("released", "failed"))
        self.assertEqual(self.server.get("/v1/locks/k").json()["status"], "released")

    def test_the_same_three_take_the_key_in_the_body(self):
        key = "a/b c%2F"
        lock = self.server.post("/v1/acquire", {"key": key, "locked_by": "me"}).json()
        self.assertEqual(lock["key"], key)
        for path in ("/v1/renew", "/v1/release"):
            answer = self.server.post(path, {"key": key, "lock_id": lock["lock_id"]})
            self.assertEqual((answer.status, answer.json()["key"]), (200, key))

    def test_a_text_that_is_no_lock_id_is_refused_by_every_route_that_takes_one(self):
        for path in ("acquire", "adopt", "renew", "release", "lost", "check"):
            for name in ("lock_id", "new_lock_id") if path == "adopt" else ("lock_id",):
                body = {"lock_id": "a", **({"locked_by": "me"} if path == "acquire" else {}), name: "no id!"}
                with self.subTest(path, name=name):
                    answer = self.server.post(f"/v1/locks/k/{path}", body)
                    self.assertEqual((answer.status, answer.error["code"]), (400, "invalid"), answer)

    def test_a_lock_id_cannot_be_exchanged_for_itself(self):
        """Of two clients that were given the id, one may succeed."""
        token = self.server.acquire("k", lock_id="a").json()["token"]
        answer = self.server.post("/v1/locks/k/adopt", {"lock_id": "a", "new_lock_id": "a"})
        self.assertEqual((answer.status, answer.error["code"]), (400, "invalid"), answer)
        self.assertEqual(self.server.get("/v1/locks/k").json()["token"], token)

    def test_adopting_replaces_the_lock_id_and_invalidates_the_old_one(self):
        lock = self.server.acquire("k", "dispatcher", ttl_ms=60000, metadata={"a": "b"}).json()
        body = {"lock_id": lock["lock_id"], "new_lock_id": "mine"}
        adopted = self.server.post("/v1/locks/k/adopt", body).json()
        self.assertEqual((adopted["lock_id"], adopted["locked_by"], adopted["ttl_ms"], adopted["metadata"]),
                         ("mine", "dispatcher", 60000, {"a": "b"}))
        self.assertGreater(adopted["token"], lock["token"])
        self.assertEqual(self.server.post("/v1/locks/k/adopt", body).json()["token"], adopted["token"])  # L5
        answer = self.server.post("/v1/adopt", {"key": "k", "lock_id": lock["lock_id"], "locked_by": "other"})
        self.assertEqual((answer.status, answer.error["code"]), (409, "not_holder"))
        body = {"key": "k", "lock_id": "mine", "locked_by": "job", "locked_by_name": "Job", "ttl_ms": 90000}
        adopted = self.server.post("/v1/adopt", body).json()
        self.assertEqual((adopted["locked_by"], adopted["locked_by_name"], adopted["ttl_ms"]), ("job", "Job", 90000))

    def test_free_says_whether_it_could_be_taken(self):
        self.assertEqual(self.server.get("/v1/locks/k/free").json(), {"key": "k", "is_free": True})
        self.server.acquire("k", "me")
        answer = self.server.get("/v1/locks/k/free")
        self.assertEqual((answer.status, answer.error["code"], answer.error["lock"]["locked_by"]),
                         (409, "lock_held", "me"))

    def test_a_forced_unlock_may_name_its_user(self):
        self.server.acquire("k", "me")
        self.server.call("DELETE", "/v1/locks/k", {"by": "alice@laptop", "reason": "gone"})
        event = self.server.get("/v1/locks/k/history").json()["events"][-1]
        self.assertEqual((event["event"], event["by"], event["reason"]), ("lock.forced", "alice@laptop", "gone"))

    def test_a_key_in_a_path_is_percent_encoded(self):
        for key in ("a/b", "ä ö", "100%", "stack:s:env:e", "a+b", "?x=1", "..", "a/acquire"):
            with self.subTest(key):
                lock = self.server.acquire(key, "me").json()
                self.assertEqual(lock["key"], key)
                self.assertEqual(self.server.get("/v1/locks/" + quoted(key)).json()["lock_id"], lock["lock_id"])
        for path in ("/v1/locks/%zz", "/v1/locks/%00", "/v1/locks/%ff", "/v1/locks/" + "a" * 513, "/v1/locks/"):
            with self.subTest(path):
                self.assertEqual(self.server.get(path).error["code"], "invalid")

    def test_a_held_lock_is_refused_with_its_holder(self):
        """L1, S2.3"""
        held = self.server.acquire("k", "execution-abc123").json()
        answer = self.server.acquire("k", "other")
        self.assertEqual((answer.status, answer.error["code"]), (409, "lock_held"))
        self.assertIn("lock 'k' held by execution-abc123 until ", answer.error["message"])
        self.assertEqual(answer.error["lock"]["token"], held["token"])

    def test_only_the_holder_renews_and_releases(self):
        """L3"""
        lock = self.server.acquire("k").json()
        for action in (self.server.renew, self.server.release):
            answer = action("k", "somebody-else")
            self.assertEqual((answer.status, answer.error["code"]), (409, "not_holder"))
            self.assertEqual(action("nothing", "x").status, 404)
        self.assertEqual(self.server.get("/v1/locks/k").json()["status"], "active")
        self.assertEqual(self.server.release("k", lock["lock_id"]).status, 200)
        self.assertEqual(self.server.release("k", lock["lock_id"]).status, 200)

    def test_an_expired_lease_is_lost(self):
        """L3"""
        lock = self.server.acquire("k", ttl_ms=100).json()
        while self.server.get("/v1/locks/k").json()["status"] == "active":
            pass
        answer = self.server.renew("k", lock["lock_id"])
        self.assertEqual((answer.status, answer.error["code"]), (409, "lease_lost"))

    def test_an_acquire_is_repeated_by_its_lock_id(self):
        """L5"""
        first = self.server.acquire("k", lock_id="mine").json()
        again = self.server.acquire("k", lock_id="mine").json()
        self.assertEqual((first["token"], first["locked_at"]), (again["token"], again["locked_at"]))
        self.server.release("k", "mine")
        answer = self.server.acquire("k", lock_id="mine")
        self.assertEqual((answer.status, answer.error["code"]), (409, "id_used"))

    def test_tokens_grow(self):
        """L2"""
        tokens = []
        for _ in range(5):
            lock = self.server.acquire("k").json()
            tokens.append(lock["token"])
            self.server.release("k", lock["lock_id"])
        self.assertEqual(tokens, sorted(set(tokens)))

    def test_the_same_owner_reenters_if_it_requested_it(self):
        """S2.4"""
        first = self.server.acquire("k", "execution-1", reentrant=True).json()
        again = self.server.acquire("k", "execution-1", reentrant=True).json()
        self.assertEqual((first["lock_id"], first["token"]), (again["lock_id"], again["token"]))

    def test_the_servers_profile_fills_missing_options(self):
        self.assertEqual(self.server.acquire("deploy-api-prod", profile="deploy").json()["ttl_ms"], 1800000)
        self.assertEqual(self.server.acquire("k", profile="deplox").error["code"], "invalid")

    def test_a_key_that_fits_a_template_is_a_lock_of_that_profile(self):
        """S0.6"""
        self.assertEqual(self.server.acquire("deploy-api-prod").json()["ttl_ms"], 1800000)
        self.assertEqual(self.server.acquire("deploy-web-prod", ttl_ms=5000).json()["ttl_ms"], 5000)
        self.assertEqual(self.server.acquire("stack:s:env:e").json()["ttl_ms"], 3600000)
        answer = self.server.acquire("deploy-db-prod", profile="build")
        self.assertEqual((answer.status, answer.error["code"]), (400, "invalid"))

    def test_a_lock_above_excludes_one_below(self):
        """S4.5"""
        self.server.acquire("stack:shop:env:prod", "above")
        answer = self.server.acquire("stack:shop:env:prod:service:web", "below")
        self.assertEqual((answer.status, answer.error["lock"]["locked_by"]), (409, "above"))

    def test_a_forced_unlock_records_its_user_and_reason(self):
        lock = self.server.acquire("k", "me").json()
        forced = self.server.call("DELETE", "/v1/locks/k?reason=gone+away").json()
        self.assertEqual((forced["status"], forced["outcome"]), ("released", "forced"))
        event = self.server.get("/v1/locks/k/history?limit=1").json()["events"][0]
        self.assertEqual((event["reason"], event["lock_id"]), ("gone away", lock["lock_id"]))
        self.assertEqual(event["by"], "anonymous@127.0.0.1")
        self.assertEqual(self.server.call("DELETE", "/v1/locks/k").status, 404)
        self.assertEqual(self.server.call("DELETE", "/v1/locks/never").status, 404)
        self.assertEqual(self.server.renew("k", lock["lock_id"]).status, 409)

    def test_only_the_named_lock_is_forced(self):
        self.server.acquire("k", lock_id="later")
        for body, query in (({"lock_id": "earlier", "reason": "r"}, ""), (None, "?lock_id=earlier")):
            answer = self.server.call("DELETE", "/v1/locks/k" + query, body)
            self.assertEqual((answer.status, answer.error["code"]), (409, "not_holder"))
        self.assertEqual(self.server.call("DELETE", "/v1/locks/k", {"lock_id": "later"}).status, 200)

    def test_the_history_is_oldest_first(self):
        """L9"""
        lock = self.server.acquire("k").json()
        self.server.acquire("k", "other")
        self.server.release("k", lock["lock_id"])
        events = self.server.get("/v1/locks/k/history").json()["events"]
        self.assertEqual([e["event"] for e in events], ["lock.acquired", "lock.refused", "lock.released"])
        self.assertEqual(self.server.get("/v1/locks/k/history?limit=1").json()["events"], events[-1:])
        self.assertEqual(self.server.get("/v1/locks/other/history").json(), {"events": []})

    def test_lists_are_paged_and_filtered(self):
        for i in range(25):
            self.server.acquire(f"a-{i:02}", ttl_ms=600000, heartbeat_ms=1000)
        lock = self.server.acquire("b").json()
        self.server.release("b", lock["lock_id"])
        keys, cursor = [], ""
        for _ in range(3):
            page = self.server.get(f"/v1/locks?prefix=a-&limit=10&cursor={quoted(cursor)}").json()
            keys += [lock["key"] for lock in page["locks"]]
            cursor = page["next_cursor"]
        self.assertEqual((keys, cursor), ([f"a-{i:02}" for i in range(25)], None))

        def found(query):
            return [lock["key"] for lock in self.server.get("/v1/locks?" + query).json()["locks"]]
        self.assertEqual(found("status=released"), ["b"])
        self.assertEqual(found("status=all&prefix=b"), ["b"])
        self.assertEqual(len(found("status=active")), 25)
        self.assertEqual(found("status=expired"), [])
        self.assertEqual(found("stale=true"), [])
        self.assertEqual(len(found("stale=false")), 25)

    def test_a_page_of_large_locks_is_shorter_than_its_limit(self):
        metadata = {f"m{i}": "x" * 4096 for i in range(64)}
        for i in range(40):
            self.assertEqual(self.server.acquire(f"k{i:02}", metadata=metadata).status, 200)
        keys, cursor = [], ""
        while cursor is not None:
            page = self.server.get(f"/v1/locks?cursor={cursor}").json()
            self.assertLess(len(page["locks"]), 40)
            keys += [lock["key"] for lock in page["locks"]]
            cursor = page["next_cursor"]
        self.assertEqual(keys, [f"k{i:02}" for i in range(40)])
        for _ in range(40):
            self.server.call("DELETE", "/v1/locks/k00")
            self.server.acquire("k00", metadata=metadata)
        answer = self.server.get("/v1/locks/k00/history")
        self.assertEqual((answer.status, answer.error["code"]), (400, "invalid"))
        self.assertEqual(self.server.get("/v1/locks/k00/history?limit=10").status, 200)

    def test_a_stale_lock_is_listed_as_such(self):
        """S4.7"""
        self.server.acquire("k", heartbeat_ms=10, stale_after_ms=20)
        self.server.acquire("fresh")
        while [lock["key"] for lock in self.server.get("/v1/locks?stale=1").json()["locks"]] != ["k"]:
            pass

    def test_wrong_parameters_are_named(self):
        """L8"""
        for path, name in (("/v1/locks?limit=0", "limit"), ("/v1/locks?limit=1001", "limit"), ("/v1/locks?limit=x", "limit"),
                           ("/v1/locks?status=held", "status"), ("/v1/locks?stale=maybe", "stale"),
                           ("/v1/locks?prefx=a", "did you mean 'prefix'"), ("/v1/locks?prefix=%zz", "prefix"),
                           ("/v1/locks/k?x=1", "'x'"), ("/v1/locks/k/history?limit=-1", "limit"),
                           ("/v1/events?last_event_id=x", "Last-Event-ID")):
            with self.subTest(path):
                answer = self.server.get(path)
                self.assertEqual((answer.status, answer.error["code"]), (400, "invalid"))
                self.assertIn(name, answer.error["message"])

    def test_wrong_bodies_are_named_and_change_nothing(self):
        """L8"""
        good = {"locked_by": "me"}
        for body, says in (("{", "not JSON"), ("[]", "must be a JSON object"), ('"x"', "not JSON"), ("", "locked_by is missing"),
                           ({}, "locked_by is missing"), ({**good, "ttl": 5}, "did you mean 'ttl_ms'"),
                           ({**good, "banana": 1}, "there is no field 'banana'; there are profile, locked_by"),
                           ({**good, "key": "k"}, "no field 'key'"),
                           ({**good, "ttl_ms": "60"}, "ttl_ms must be a whole number"),
                           ({**good, "ttl_ms": 1.5}, "ttl_ms must be a whole number"),
                           ({**good, "ttl_ms": True}, "ttl_ms must be a whole number"),
                           ({**good, "ttl_ms": 99}, "from 100 to"), ({**good, "ttl_ms": 2**62}, "from 100 to"),
                           ({**good, "wait_ms": -1}, "from 0 to"), ({"locked_by": 5}, "locked_by must be a string"),
                           ({"locked_by": None}, "locked_by is missing"), ({"locked_by": ""}, "locked_by must be"),
                           ({"locked_by": "x" * 257}, "locked_by must be"), ({"locked_by": "a\nb"}, "locked_by must be"),
                           ({**good, "locked_by_name": "x" * 300}, "locked_by_name"),
                           ({**good, "lock_id": "a b"}, "id"), ({**good, "lock_id": "x" * 65}, "id"),
                           ({**good, "reentrant": 1}, "true or false"), ({**good, "metadata": []}, "object of strings"),
                           ({**good, "metadata": {"a": 1}}, "metadata 'a' must be a string"),
                           ({**good, "metadata": {str(i): "" for i in range(65)}}, "the maximum is 64"),
                           ({**good, "heartbeat_ms": 600000}, "heartbeat"),
                           ('{"locked_by":"a","locked_by":"b"}', "duplicate"), (b"\xff\xfe", "not JSON"),
                           ('{"locked_by":"a\\u0000"}', "not JSON"), ("[" * 100000, "not JSON")):
            with self.subTest(str(body)[:60]):
                answer = self.server.post("/v1/locks/k/acquire", body)
                self.assertEqual((answer.status, answer.error["code"]), (400, "invalid"), answer)
                self.assertIn(says, answer.error["message"])
        self.assertEqual(self.server.get("/v1/locks?status=all").json()["locks"], [])
        answer = self.server.post("/v1/locks/k/release", {"lock_id": "x", "outcome": "maybe"})
        self.assertIn("one of completed|failed", answer.error["message"])
        self.assertIn("key is missing", self.server.post("/v1/acquire", good).error["message"])

    def test_a_body_may_be_large_but_not_too_large(self):
        metadata = {f"m{i}": "x" * 4096 for i in range(64)}
        self.assertEqual(self.server.acquire("k", metadata=metadata).status, 200)
        answer = self.server.post("/v1/locks/k/acquire", "x" * (2 << 20))
        self.assertEqual(answer.status, 413)

    def test_unknown_paths_and_methods_are_told_apart(self):
        for path in ("/nothing", "/v1", "/v1/locks/a/b", "/v1/locks/a/acquire/x", "/v1/acquire/"):
            answer = self.server.get(path)
            self.assertEqual((answer.status, answer.error["code"]), (404, "no_such_route"), path)
        for method, path, allow in (("PUT", "/v1/locks/k", "GET, HEAD, DELETE"), ("GET", "/v1/acquire", "POST"),
                                    ("POST", "/v1/locks", "GET, HEAD"), ("DELETE", "/", "GET, HEAD"),
                                    ("OPTIONS", "/v1/events", "GET, HEAD")):
            answer = self.server.call(method, path)
            self.assertEqual((answer.status, answer.headers["Allow"]), (405, allow), path)

    def test_every_answer_has_a_request_id_and_is_not_cached(self):
        answer = self.server.get("/healthz")
        self.assertRegex(answer.headers["X-Request-Id"], r"^[0-9a-f]{8}-\d+$")
        self.assertEqual(answer.headers["Cache-Control"], "no-store")
        answer = self.server.get("/healthz", headers={"X-Request-Id": "from-a-proxy"})
        self.assertEqual(answer.headers["X-Request-Id"], "from-a-proxy")
        answer = self.server.get("/healthz", headers={"X-Request-Id": "not good!"})
        self.assertNotIn("!", answer.headers["X-Request-Id"])

    def test_it_says_what_it_is(self):
        self.assertEqual(self.server.get("/healthz").json()["status"], "ok")
        self.assertEqual(self.server.get("/healthz?probe=1", headers={"Host": "a.proxy"}).status, 200)
        self.assertEqual(self.server.get("/readyz").json()["status"], "ready")
        page = self.server.get("/")
        self.assertIn(b"<title>belay</title>", page.body)
        self.assertIn(b"ui/app.js", page.body)

    def test_head_is_get_without_the_body(self):
        answer = self.server.call("HEAD", "/v1/locks")
        self.assertEqual((answer.status, answer.body), (200, b""))
        self.assertEqual(int(answer.headers["Content-Length"]), len(self.server.get("/v1/locks").body))

    def test_one_connection_serves_many_requests(self):
        connection = self.server.connect()
        for i in range(50):
            answer = self.server.acquire(f"k{i}", connection=connection)
            self.assertEqual(answer.status, 200)

    def test_pipelined_requests_are_answered_in_order(self):
        body = '{"locked_by":"me"}'
        head = f"acquire HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
        with self.server.raw() as connection:
            connection.sendall("".join(f"POST /v1/locks/k{i}/{head}{body}" for i in range(10)).encode())
            file = connection.makefile("rb")
            for i in range(10):
                self.assertIn(b" 200 ", file.readline())
                length = 0
                while (line := file.readline()) != b"\r\n":
                    length = int(line.split()[1]) if line.startswith(b"Content-Length") else length
                self.assertEqual(json.loads(file.read(length))["key"], f"k{i}")
            file.close()

    def test_a_command_on_the_same_file_sees_the_same_locks(self):
        lock = self.server.acquire("k", "over-http").json()
        self.assertEqual(self.ok("status", "k", "--json").json()["token"], lock["token"])
        self.fails(75, "acquire", "k")
        self.acquire("local")
        self.assertEqual(self.server.acquire("local").status, 409)


if __name__ == "__main__":
    main()
