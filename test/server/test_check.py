"""Checking a lock over HTTP: for its holder, and for receivers that know only a token."""

from server_support import BELAY, ServerCase, main

ADMIN, LOCKER, READER, NARROW = "a" * 32, "l" * 32, "r" * 32, "n" * 32


class Check(ServerCase):
    def setUp(self):
        super().setUp()
        self.server = self.serve()

    def test_the_holder_checks_by_lock_id(self):
        lock = self.server.acquire("k", "job", ttl_ms=60000).json()
        for answer in (self.server.post("/v1/locks/k/check", {"lock_id": lock["lock_id"], "for_ms": 30000}),
                       self.server.post("/v1/check", {"key": "k", "lock_id": lock["lock_id"], "token": lock["token"]}),
                       self.server.get(f"/v1/locks/k/check?lock_id={lock['lock_id']}")):
            self.assertEqual(answer.status, 200, answer)
            self.assertTrue(0 < answer.json()["valid_for_ms"] < lock["valid_for_ms"], answer)

    def test_a_receiver_checks_by_token_alone(self):
        old = self.server.acquire("k", "job-1", ttl_ms=60000).json()
        self.assertEqual(self.server.get(f"/v1/locks/k/check?token={old['token']}").status, 200)
        self.server.release("k", old["lock_id"])
        answer = self.server.get(f"/v1/locks/k/check?token={old['token']}")
        self.assertEqual((answer.status, answer.json()["error"]["code"]), (409, "lease_lost"))
        self.server.acquire("k", "job-2", ttl_ms=60000)
        error = self.server.get(f"/v1/locks/k/check?token={old['token']}").json()["error"]
        self.assertEqual((error["code"], error["lock"]["locked_by"]), ("not_holder", "job-2"))

    def test_a_lock_that_ends_too_soon_is_lost(self):
        lock = self.server.acquire("k", "job", ttl_ms=60000).json()
        answer = self.server.get(f"/v1/locks/k/check?token={lock['token']}&for_ms=60000")
        self.assertEqual((answer.status, answer.json()["error"]["code"]), (409, "lease_lost"))

    def test_bad_input_is_400_and_an_unknown_key_404(self):
        self.server.acquire("k", "job", ttl_ms=60000)
        for query in ("", "?token=0", "?token=x", "?token=99999999999999999999", "?token=1&for_ms=-1", "?for_ms=1",
                      "?lock_id=", f"?lock_id={'a' * 65}", "?lock_id=a%20b", "?tokn=1", "?token="):
            with self.subTest(query):
                self.assertEqual(self.server.get(f"/v1/locks/k/check{query}").status, 400)
        for body in ({}, {"token": 0}, {"lock_id": ""}, {"lock_id": "a" * 65}, {"lock_id": "a", "for_ms": -1}, {"id": "a"}):
            with self.subTest(body):
                self.assertEqual(self.server.post("/v1/locks/k/check", body).status, 400)
        self.assertEqual(self.server.get("/v1/locks/unknown/check?token=1").status, 404)
        self.assertEqual(self.server.post("/v1/check", {"key": "unknown", "lock_id": "a"}).status, 404)

    def test_the_command_asks_the_server_and_leaves_no_lock_id_in_its_log(self):
        env = {"BELAY_STORE": self.server.url, "belay": BELAY}
        lock = self.ok("acquire", "k", "--json", env=env).json()
        checked = self.ok("check", "k", "--id", lock["lock_id"], "--json", env=env).json()
        self.assertEqual((checked["lock_id"], checked["token"]), (lock["lock_id"], lock["token"]))
        self.assertLess(checked["valid_for_ms"], lock["valid_for_ms"])
        self.assertEqual(self.server.get(f"/v1/locks/k/check?lock_id={lock['lock_id']}").status, 200)
        self.ok("release", "k", "--id", lock["lock_id"], env=env)
        self.fails(76, "check", "k", "--id", lock["lock_id"], env=env)
        self.assertIn("Held 'k2'", self.ok("run", "k2", "--", "sh", "-c", "$belay check", env=env).out)
        self.assertEqual(self.server.stop(), 0)
        self.assertNotIn(lock["lock_id"], self.server.log())
        self.fails(69, "check", "k", "--id", lock["lock_id"], env=env)

    def test_a_local_command_asks_the_server_that_owns_the_file(self):
        lock = self.ok("acquire", "k", "--json").json()
        self.ok("check", "k", "--id", lock["lock_id"])
        self.server.call("DELETE", "/v1/locks/k")
        self.assertIn("released by force", self.fails(76, "check", "k", "--id", lock["lock_id"]).err)


class Roles(ServerCase):
    def test_a_reader_may_check_keys_of_its_own_and_learns_no_lock_id(self):
        server = self.serve("--config", self.config_with({
            ADMIN: ("root", "admin", []), LOCKER: ("ci", "locker", []), READER: ("app", "reader", []),
            NARROW: ("narrow", "reader", ["build-*"])}))
        lock = server.acquire("k", "job", token=LOCKER, ttl_ms=60000).json()
        query = f"/v1/locks/k/check?token={lock['token']}"
        answer = server.get(query, token=READER)
        self.assertEqual((answer.status, answer.json()["lock_id"]), (200, None))
        for refused in (server.get(f"/v1/locks/k/check?token={lock['token'] + 1}", token=READER),
                        server.post("/v1/check", {"key": "k", "lock_id": "guess"}, token=READER)):
            self.assertEqual((refused.status, refused.json()["error"]["lock"]["lock_id"]), (409, None))
            self.assertNotIn(lock["lock_id"], repr(refused.json()))
        self.assertEqual(server.get(query, token=LOCKER).json()["lock_id"], lock["lock_id"])
        self.assertEqual(server.get(query, token=NARROW).status, 403)
        self.assertEqual(server.post("/v1/check", {"key": "k", "token": lock["token"]}, token=NARROW).status, 403)
        self.assertEqual(server.get(query, token="x" * 32).status, 401)
        self.assertEqual(server.get(query).status, 401)


class KillSwitch(ServerCase):
    def test_a_server_whose_locking_is_off_says_that_it_protects_nothing(self):
        server = self.serve(env={"BELAY_DISABLED": "1"})
        answer = server.post("/v1/check", {"key": "k", "lock_id": "a"})
        self.assertEqual((answer.status, answer.json()["status"], answer.json()["valid_for_ms"]), (200, None, None))
        done = self.ok("check", "k", "--id", "a", "--store", server.url)
        self.assertIn("locking is switched off at the server", done.err)


if __name__ == "__main__":
    main()
