"""The chat bot's flow (S0) over HTTP: parts of a key, adoption, and locks by owner where the profile is re-entrant."""

from server_support import BelayCase, Server, main, sha256

CONFIG = """
profiles:
  build: {components: [router, echo, all], environments: [plt, prod]}
  job: {ttl: 5m, heartbeat: 4m, reentrant: true, key: "job-{component}-{environment}"}
server:
  tokens:
    - {name: bot, role: locker, sha256: "%s"}
    - {name: builder, role: locker, keys: ["build-*"], sha256: "%s"}
    - {name: jobs, role: locker, keys: ["job-*"], sha256: "%s"}
    - {name: root, role: admin, sha256: "%s"}
""" % tuple(sha256(f"secret-{name}") for name in ("bot", "builder", "jobs", "root"))


class ChatbotCase(BelayCase):
    def setUp(self):
        super().setUp()
        config = self.dir / "server.yaml"
        config.write_text(CONFIG)
        config.chmod(0o600)
        self.server = Server(self, config=config)

    def post(self, path, token="secret-bot", **body):
        return self.server.post(path, body, token=token)

    def refused(self, answer, *says):
        self.assertEqual((answer.status, answer.error["code"]), (400, "invalid"), answer)
        for text in says:
            self.assertIn(text, answer.error["message"])

    def stored(self, key):
        return self.server.get(f"/v1/locks/{key}", token="secret-root").json()


class Parts(ChatbotCase):
    def test_a_body_may_name_the_parts_of_a_key_and_is_answered_with_the_key(self):
        """S0.4, S4.5"""
        for parts, key, ttl in (
                ({"profile": "build", "component": "router", "environment": "plt"}, "build-router-plt", 600000),
                ({"stack": "shop", "environment": "prod"}, "stack:shop:env:prod", 3600000),
                ({"stack": "shop", "environment": "dev", "service": "api"}, "stack:shop:env:dev:service:api", 3600000),
                ({"stack": "shop", "environment": "qa", "component": "a/b"}, "stack:shop:env:qa:component:a/b", 3600000)):
            with self.subTest(key):
                lock = self.post("/v1/acquire", **parts, locked_by="U1").json()
                self.assertEqual((lock["key"], lock["ttl_ms"]), (key, ttl))
                lock_id = lock["lock_id"]
                self.assertEqual(self.post("/v1/renew", **parts, lock_id=lock_id).json()["key"], key)
                self.assertEqual(self.post("/v1/held", **parts, lock_id=lock_id).json()["key"], key)
                lock_id = self.post("/v1/adopt", **parts, lock_id=lock_id).json()["lock_id"]
                self.assertEqual(self.post("/v1/lost", **parts, lock_id="x").json()["key"], key)
                released = self.post("/v1/release", **parts, lock_id=lock_id).json()
                self.assertEqual((released["key"], released["status"]), (key, "released"))

    def test_key_and_parts_together_are_refused(self):
        """L8"""
        self.refused(self.post("/v1/acquire", key="k", component="router", locked_by="U1"), "key 'k'", "component")
        self.refused(self.post("/v1/release", key="k", stack="s", lock_id="x"), "key 'k'", "stack")
        self.refused(self.post("/v1/locks/k/acquire", component="router", locked_by="U1"), "'component'", "path")
        self.refused(self.post("/v1/locks/k/renew", stack="s", lock_id="x"), "'stack'", "path")
        self.assertEqual(self.server.get("/v1/locks?status=all", token="secret-root").json()["locks"], [])

    def test_a_wrong_part_gets_the_error_of_the_command_line(self):
        """S0.5"""
        build = {"profile": "build", "locked_by": "U1"}
        for body, *says in (
                ({**build, "component": "api", "environment": "plt"}, "Invalid component: api. Valid options: router, echo, all"),
                ({**build, "component": "echo", "environment": "qa"}, "Invalid environment: qa. Valid options: plt, prod"),
                ({**build, "component": "echo"}, "environment"), ({**build, "component": "", "environment": "plt"}, "component"),
                ({**build, "component": "a:b", "environment": "plt"}, "component"),
                ({"locked_by": "U1", "stack": "a:b", "environment": "plt"}, "stack: 'a:b' has a ':'"),
                ({**build, "stack": "s", "environment": "plt"}, "stack and profile 'build' exclude each other"),
                ({"locked_by": "U1", "component": "echo"}, "component alone does not name a lock: add stack, or profile"),
                ({"locked_by": "U1", "service": "x"}, "service needs stack"),
                ({**build, "profile": "secret", "component": "echo"}, "there is no profile 'secret'"),
                (build, "key is missing")):
            with self.subTest(body):
                answer = self.post("/v1/acquire", **body)
                self.refused(answer, *says)
                self.assertNotIn("--", answer.error["message"])
        self.assertNotIn("execution", self.post("/v1/renew", key="k", lock_id="x", profile="secret").error["message"])

    def test_the_keys_of_a_token_are_checked_against_the_key_that_results(self):
        parts = {"component": "router", "environment": "plt", "locked_by": "U1"}
        self.assertEqual(self.post("/v1/acquire", token="secret-builder", profile="build", **parts).status, 200)
        answer = self.post("/v1/acquire", token="secret-builder", profile="deploy", **parts)
        self.assertEqual(answer.status, 403)
        self.assertIn("deploy-router-plt", answer.error["message"])

    def test_the_parts_that_a_profile_allows_are_shown_to_those_who_may_use_it(self):
        parts = {"profile": "build", "component": "x", "environment": "plt"}
        self.assertIn("router", self.post("/v1/acquire", "secret-builder", **parts, locked_by="U1").error["message"])
        for path, more in (("/v1/acquire", {"locked_by": "U1"}), ("/v1/release", {"lock_id": "x"}), ("/v1/check", {"lock_id": "x"})):
            answer = self.post(path, "secret-jobs", **parts, **more)
            self.assertEqual((answer.status, answer.error["message"]), (403, "'jobs' may not touch the keys of profile 'build'"))

    def test_a_webhook_request_may_name_parts(self):
        """S0.10: the record in the file names the key alone."""
        parts = {"profile": "build", "component": "router", "environment": "plt"}
        lock = self.post("/v1/acquire", **parts, locked_by="U1").json()
        queued = self.post("/v1/acquire", **parts, locked_by="U2", lock_id="two", wait_ms=60000,
                           webhook={"url": "https://ci.example.com/start"})
        self.assertEqual((queued.status, queued.json()["key"]), (202, "build-router-plt"))
        again = self.post("/v1/acquire", **parts, locked_by="U2", lock_id="two", wait_ms=60000,
                          webhook={"url": "https://ci.example.com/start"})
        self.assertEqual((again.status, again.json()["status"]), (202, "queued"))
        self.assertEqual(self.post("/v1/release", **parts, lock_id="two").status, 409, "it only waits")
        self.post("/v1/release", **parts, lock_id=lock["lock_id"])


class Flow(ChatbotCase):
    """S0: /build in the chat, a job in a queue, and the answer in the chat."""

    PARTS = {"profile": "build", "component": "router", "environment": "plt"}

    def ask(self, user, name, correlation_id):
        return self.post("/v1/acquire", **self.PARTS, locked_by=user, locked_by_name=name, correlation_id=correlation_id)

    def work(self, job):
        """A worker that was handed a message: it runs the build only if the lock is still that of the message."""
        adopted = self.post("/v1/adopt", "secret-builder", key=job["key"], lock_id=job["lock_id"], locked_by="job-1")
        if adopted.status != 200:
            return adopted
        lock_id = adopted.json()["lock_id"]
        self.built.append(adopted.json())
        self.assertEqual(self.post("/v1/renew", "secret-builder", key=job["key"], lock_id=lock_id).status, 200)
        return self.post("/v1/release", "secret-builder", key=job["key"], lock_id=lock_id, outcome=job["ends"])

    def test_from_the_chat_to_the_job_and_back(self):
        """S0.1 to S0.4, S0.6, S0.10"""
        self.built = []
        lock = self.ask("U1", "Alice", "slack-7").json()
        self.assertEqual((lock["key"], lock["ttl_ms"], lock["metadata"]),
                         ("build-router-plt", 600000, {"correlation_id": "slack-7"}))
        held = self.ask("U2", "Bob", "slack-8")
        self.assertEqual(held.status, 409)
        self.assertIn("held by U1", held.error["message"])
        self.assertEqual((held.error["lock"]["locked_by_name"], held.error["lock"]["locked_at"]), ("Alice (bot)", lock["locked_at"]))
        everything = {**self.PARTS, "component": "all"}
        self.assertEqual(self.post("/v1/acquire", **everything, locked_by="U2").status, 409, "all excludes router")

        message = {"key": lock["key"], "lock_id": lock["lock_id"], "ends": "failed"}  # in the bot's queue
        released = self.work(message).json()
        self.assertEqual((released["status"], released["outcome"], released["locked_by"]), ("released", "failed", "job-1"))
        twice = self.work(message)
        self.assertEqual(twice.status, 409, "delivered twice, it runs once")
        self.assertEqual(len(self.built), 1)
        self.assertEqual((self.built[0]["ttl_ms"], self.built[0]["metadata"]), (600000, {"correlation_id": "slack-7"}))
        self.assertGreater(self.built[0]["token"], lock["token"])

        self.assertEqual(self.ask("U2", "Bob", "slack-9").status, 200, "a failed build frees the lock")
        events = self.server.get("/v1/locks/build-router-plt/history", token="secret-bot").json()["events"]
        told = [(e["event"], e["locked_by"], e["metadata"].get("correlation_id")) for e in events]
        for event in (("lock.acquired", "U1", "slack-7"), ("lock.adopted", "job-1", "slack-7"),
                      ("lock.released", "job-1", "slack-7"), ("lock.acquired", "U2", "slack-9")):
            self.assertIn(event, told)
        self.assertEqual([e["reason"] for e in events if e["event"] == "lock.released"], ["failed"])

    def test_a_job_that_names_its_profile_promises_its_heartbeat(self):
        """S4.7: the ttl stays that of the lock."""
        for more, beats in (({}, False), ({"profile": "job"}, True), ({"heartbeat_ms": 1000}, True)):
            lock = self.post("/v1/acquire", key="job-a-b", locked_by="bot", ttl_ms=3600000).json()
            adopted = self.post("/v1/adopt", key="job-a-b", lock_id=lock["lock_id"], **more).json()
            self.assertEqual((adopted["ttl_ms"], adopted["last_heartbeat"] is not None), (3600000, beats))
            self.post("/v1/release", key="job-a-b", lock_id=adopted["lock_id"])


class Person(BelayCase):
    def test_a_layout_that_keeps_a_persons_address_is_told_it_over_http(self):
        """S2.2: as on the command line, before the table is asked; here there is none."""
        store = "dynamodb:locks?layout=runvoy&region=eu-west-1&endpoint=http://127.0.0.1:1"
        env = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", "AWS_EC2_METADATA_DISABLED": "true"}
        server = Server(self, "--store", store, env=env)
        for body, status in (({}, 400), ({"metadata": {"a": "b"}}, 400), ({"metadata": {"user_email": "a@example.com"}}, 503),
                             ({"locked_by_name": "a@example.com"}, 503)):
            answer = server.post("/v1/acquire", {"key": "k", "locked_by": "execution-1", **body})
            self.assertEqual(answer.status, status, answer)
            if status == 400:
                self.assertIn("user_email", answer.error["message"])
                self.assertNotIn("--", answer.error["message"])


class ByOwner(ChatbotCase):
    def take(self, key="terraform-prod", owner="execution-1", token="secret-bot"):
        return self.post("/v1/acquire", token, key=key, locked_by=owner, profile="execution").json()

    def test_a_re_entrant_lock_is_renewed_and_released_by_its_owner(self):
        """S2.1, S2.4"""
        lock = self.take()
        who = {"locked_by": "execution-1", "profile": "execution"}
        renewed = self.post("/v1/renew", key="terraform-prod", **who, ttl_ms=60000).json()
        self.assertEqual((renewed["lock_id"], renewed["ttl_ms"]), (lock["lock_id"], 60000))
        for path in ("/v1/release", "/v1/locks/terraform-prod/release"):  # twice is no error
            body = {"key": "terraform-prod"} if path == "/v1/release" else {}
            released = self.post(path, **body, **who, outcome="failed").json()
            self.assertEqual((released["lock_id"], released["outcome"]), (lock["lock_id"], "failed"))
        self.assertEqual(self.post("/v1/renew", key="terraform-prod", **who).status, 409)
        self.assertEqual(self.post("/v1/release", key="none", **who).status, 404)

    def test_the_profile_that_a_key_belongs_to_need_not_be_named(self):
        job = {"key": "job-a-b", "locked_by": "run-1"}
        self.post("/v1/acquire", **job)
        self.assertEqual(self.post("/v1/renew", **job).status, 200)
        self.assertEqual(self.post("/v1/release", **job).json()["status"], "released")

    def test_another_owner_and_another_credential_change_nothing_and_learn_no_id(self):
        """L3: not even an admin, who may force it."""
        lock = self.take()
        for token, owner in (("secret-bot", "execution-2"), ("secret-root", "execution-1")):
            for path in ("/v1/renew", "/v1/release"):
                with self.subTest((token, owner, path)):
                    answer = self.post(path, token, key="terraform-prod", locked_by=owner, profile="execution")
                    self.assertEqual((answer.status, answer.error["code"]), (409, "not_holder"), answer)
                    self.assertNotIn(lock["lock_id"], answer.body.decode())
        self.assertEqual(self.stored("terraform-prod")["expires_at"], lock["expires_at"])

    def test_without_a_re_entrant_profile_the_lock_id_is_needed(self):
        self.post("/v1/acquire", key="k", locked_by="me", reentrant=True)
        for path in ("/v1/renew", "/v1/release"):
            self.refused(self.post(path, key="k", locked_by="me"), "lock_id is missing", "re-entrant")
            self.refused(self.post(path, key="k", locked_by="me", profile="database"), "'database' is not re-entrant")
            self.refused(self.post(path, key="build-echo-plt", locked_by="me"), "'build' is not re-entrant")
            self.refused(self.post(path, key="k"), "lock_id is missing")
            self.refused(self.post(path, key="k", locked_by="me", lock_id="x"), "lock_id and locked_by")
            self.refused(self.post(path, key="k", locked_by="a\nb", profile="execution"), "locked_by must be")
        self.assertEqual(self.stored("k")["status"], "active")

    def test_a_command_through_the_server_obeys_the_same_rule(self):
        env = {"BELAY_STORE": self.server.url, "BELAY_AUTH_FILE": str(self.dir / "bot")}
        other = {**env, "BELAY_AUTH_FILE": str(self.dir / "root")}
        for name in ("bot", "root"):
            (self.dir / name).write_text(f"secret-{name}")
            (self.dir / name).chmod(0o600)
        lock = self.take()
        who = ("terraform-prod", "--owner", "execution-1", "--profile", "execution")
        result = self.belay("release", *who, env=other)
        self.assertEqual(result.code, 77, result)
        self.assertNotIn(lock["lock_id"], result.out + result.err)
        self.assertEqual(self.belay("renew", *who, env=env).code, 0)
        self.assertEqual(self.belay("release", *who, env=env).code, 0)
        self.assertEqual(self.stored("terraform-prod")["status"], "released")


if __name__ == "__main__":
    main()
