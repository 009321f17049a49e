"""S0.9: a server with locking switched off grants everything, and reports it everywhere."""

from server_support import ServerCase, main


class KillSwitch(ServerCase):
    def begin(self):
        on = self.serve()
        self.held = on.acquire("k", "before").json()
        on.stop()
        return self.serve(env={"BELAY_DISABLED": "1"})

    def test_everything_is_granted(self):
        server = self.begin()
        for owner in ("a", "b"):
            lock = server.acquire("k", owner, wait_ms=5000).json()
            self.assertEqual((lock["locked_by"], lock["status"], lock["token"]), (owner, "active", None))
            self.assertTrue(lock["lock_id"].startswith("unprotected-"))
            self.assertGreater(lock["valid_for_ms"], 500000)
            held = server.post("/v1/held", {"key": "k", "lock_id": lock["lock_id"], "wait_ms": 0})
            self.assertEqual((held.status, held.json()["lock_id"]), (200, lock["lock_id"]))
            self.assertEqual(server.renew("k", lock["lock_id"]).status, 200)
            self.assertEqual(server.release("k", lock["lock_id"]).json()["status"], "released")
        self.assertEqual(server.acquire("k", "c", lock_id="mine").json()["lock_id"], "mine")
        self.assertEqual(server.renew("k", "mine").status, 200)
        self.assertEqual(server.release("k", "mine").status, 200)
        adopted = server.call("POST", "/v1/locks/k/adopt", {"lock_id": "x", "new_lock_id": "y"})
        self.assertEqual((adopted.status, adopted.json()["lock_id"]), (200, "y"))
        self.assertEqual(server.get("/v1/locks/k/free").status, 200)
        # Earlier locks are shown, and can be ended.
        self.assertEqual(server.get("/v1/locks/k").json()["lock_id"], self.held["lock_id"])
        self.assertEqual(server.release("k", self.held["lock_id"]).status, 200)
        self.assertEqual(server.get("/v1/locks/k").json()["status"], "released")

    def test_every_answer_reports_that_locking_is_off(self):
        server = self.begin()
        self.assertIs(server.hello["locking_enabled"], False)
        for path in ("/healthz", "/readyz", "/v1/me"):
            answer = server.get(path)
            self.assertEqual((answer.status, answer.json()["locking_enabled"]), (200, False))
            self.assertEqual(answer.headers["Belay-Locking"], "off")
        server.acquire("k", "me")
        self.assertIn("\nbelay_locking_enabled 0\n", server.get("/metrics").body.decode())
        server.stop()
        log = server.log()
        self.assertIn("every lock is granted and protects nothing", log)
        self.assertIn("'k' is not protected", log)

    def test_a_server_with_locking_enabled_reports_it(self):
        server = self.serve()
        answer = server.get("/readyz")
        self.assertIs(answer.json()["locking_enabled"], True)
        self.assertIsNone(answer.headers.get("Belay-Locking"))
        self.assertIn("\nbelay_locking_enabled 1\n", server.get("/metrics").body.decode())

    def test_remote_clients_go_on_and_are_warned(self):
        server = self.begin()
        env = {"BELAY_STORE": server.hello["listening"][0]}
        result = self.ok("run", "k", "--heartbeat", "100ms", "--ttl", "2s", "--", "sleep", "0.5", env=env)
        self.assertIn("locking is switched off at the server", result.err)
        lock_id = self.ok("acquire", "--quiet", "k", env=env).out.strip()
        self.ok("renew", "k", "--id", lock_id, env=env)
        self.ok("release", "k", "--id", lock_id, env=env)
        self.ok("wait", "k", env=env)

    def test_a_token_sees_the_id_that_it_was_granted(self):
        server = self.serve(config=self.config_with({"s": ("ci", "locker", [])}), env={"BELAY_DISABLED": "1"})
        lock = server.acquire("k", "me", token="s").json()
        self.assertEqual((bool(lock["lock_id"]), lock["acquired_by"]), (True, "ci"))
        for answer in (server.renew("k", lock["lock_id"], token="s"), server.release("k", lock["lock_id"], token="s"),
                       server.post("/v1/held", {"key": "k", "lock_id": lock["lock_id"], "wait_ms": 0}, token="s")):
            self.assertEqual(answer.status, 200)

    def test_terraform_goes_on(self):
        server = self.begin()
        lock = {"ID": "tf-1", "Who": "me", "Operation": "apply"}
        state = {"version": 4, "serial": 1, "lineage": "l", "outputs": {}, "resources": []}
        self.assertEqual(server.call("LOCK", "/v1/terraform/web", lock).status, 200)
        self.assertEqual(server.call("LOCK", "/v1/terraform/web", {**lock, "ID": "tf-2"}).status, 200)
        self.assertEqual(server.call("POST", "/v1/terraform/web?ID=tf-1", state).status, 200)
        self.assertEqual(server.get("/v1/terraform/web").json()["serial"], 1)
        for one in ("tf-1", "tf-2"):
            self.assertEqual(server.call("UNLOCK", "/v1/terraform/web", {**lock, "ID": one}).status, 200)

    def test_a_state_is_written_under_a_lock_that_was_granted(self):
        on = self.serve()
        lock = on.acquire("stack:shop:env:prod", "before", lock_id="before").json()
        self.assertEqual(on.call("PUT", "/v1/state/shop/prod?lock_id=before", {"outputs": {"n": 1}},
                                 headers={"If-None-Match": "*"}).status, 200)
        on.stop()
        server = self.serve(env={"BELAY_DISABLED": "1"})
        self.assertEqual(server.acquire("stack:shop:env:prod", "job", lock_id="mine").status, 200)
        tag = server.get("/v1/state/shop/prod").headers["ETag"]
        answer = server.call("PUT", "/v1/state/shop/prod?lock_id=mine", {"outputs": {"n": 2}},
                             headers={"If-Match": tag})
        self.assertEqual(answer.status, 200, (answer, lock))

    def test_it_starts_without_its_store(self):
        server = self.serve("--store", "sqlite:/proc/no/such.db", "--state-store", f"file:{self.dir}/state",
                            config=self.write_config(f"server: {{webhooks: {{file: {self.dir}/webhooks}}}}\n"),
                            env={"BELAY_DISABLED": "1"})
        self.assertEqual(server.get("/readyz").status, 200)
        self.assertEqual(server.acquire("k", "me").status, 200)


if __name__ == "__main__":
    main()
