"""The credential that acquired a lock is a field of the record, and decides which clients see the lock id.

Names for people (locked_by, locked_by_name) are what the client says they are, and decide nothing.
"""

import http.server
import json
import queue
import signal
import threading

from webhook_support import Receiver
from server_support import ServerCase, Stream, main, quoted, sha256, wait_until

TOKENS = {
    "secret-ci": ("ci", "locker", None),
    "secret-bot": ("bot", "locker", None),
    "secret-reader": ("watcher", "reader", None),
    "secret-admin": ("boss", "admin", None),
}


class IdentityCase(ServerCase):
    def setUp(self):
        super().setUp()
        self.server = self.serve(config=self.config_with(TOKENS))

    def shown(self, key, token="secret-admin"):
        return self.server.get(f"/v1/locks/{key}", token=token).json()

    def events(self, key, token="secret-admin"):
        return self.server.get(f"/v1/locks/{key}/history", token=token).json()["events"]


class Reentry(IdentityCase):
    def test_reentry_is_for_the_credential_that_acquired(self):
        first = self.server.acquire("k", "job-42", token="secret-ci", reentrant=True).json()
        self.assertEqual(first["acquired_by"], "ci")
        for token in ("secret-bot", "secret-admin"):
            with self.subTest(token):
                refused = self.server.acquire("k", "job-42", token=token, reentrant=True)
                self.assertEqual((refused.status, refused.error["code"]), (409, "lock_held"))
                if token == "secret-bot":
                    self.assertNotIn(first["lock_id"], refused.body.decode())
        again = self.server.acquire("k", "job-42", token="secret-ci", reentrant=True).json()
        self.assertEqual((again["lock_id"], again["token"]), (first["lock_id"], first["token"]))

    def test_a_lock_taken_without_a_token_is_not_reentered_with_one(self):
        self.server.stop()
        plain = self.serve()
        self.assertIsNone(plain.acquire("k", "job-42", reentrant=True).json()["acquired_by"])
        self.assertEqual(plain.acquire("k", "job-42", reentrant=True).status, 200)
        plain.stop()
        self.server = self.serve(config=self.config_with(TOKENS))
        self.assertEqual(self.server.acquire("k", "job-42", token="secret-ci", reentrant=True).status, 409)

    def test_the_credential_outlives_the_server(self):
        first = self.server.acquire("k", "job-42", token="secret-ci").json()
        for how in ("kill", "stop"):
            with self.subTest(how):
                self.server.process.kill() if how == "kill" else None
                self.server.stop() if how == "stop" else self.server.process.wait()
                self.server = self.serve(config=self.config_with(TOKENS))
                self.assertEqual(self.shown("k")["acquired_by"], "ci")
                self.assertEqual(self.server.acquire("k", "job-42", token="secret-bot", reentrant=True).status, 409)
                again = self.server.acquire("k", "job-42", token="secret-ci", reentrant=True)
                self.assertEqual(again.json()["lock_id"], first["lock_id"])

    def test_a_local_command_does_not_reenter_a_tokens_lock(self):
        self.server.acquire("k", "job-42", token="secret-ci")
        self.fails(75, "acquire", "k", "--owner", "job-42", "--reentrant")
        self.server.stop()
        self.fails(75, "acquire", "k", "--owner", "job-42", "--reentrant")


class Ids(IdentityCase):
    def test_a_display_name_does_not_reveal_a_lock_id(self):
        lock = self.server.acquire("k", "job", token="secret-ci", locked_by_name="x (bot)").json()
        self.assertIsNone(self.shown("k", "secret-bot")["lock_id"])
        self.assertEqual(self.shown("k", "secret-ci")["lock_id"], lock["lock_id"])
        self.ok("acquire", "local", "--owner", "job", "--owner-name", "Alice (bot)", "--json")
        self.assertIsNone(self.shown("local", "secret-bot")["lock_id"])
        self.assertIsNone(self.shown("local")["acquired_by"])

    def test_only_the_credential_of_an_acquire_can_repeat_it(self):
        lock = self.server.acquire("k", "job", token="secret-ci", lock_id="run-17").json()
        refused = self.server.acquire("k", "job", token="secret-bot", lock_id="run-17")
        self.assertEqual((refused.status, refused.error["code"], refused.error["lock"]["lock_id"]), (409, "lock_held", None))
        self.assertEqual(self.server.acquire("k", "job", token="secret-ci", lock_id="run-17").json()["token"], lock["token"])

    def test_adopting_changes_the_lock_id_and_the_owner(self):
        self.server.acquire("k", "job", token="secret-ci", lock_id="given")
        adopted = self.server.post("/v1/locks/k/adopt", {"lock_id": "given"}, token="secret-bot").json()
        self.assertEqual((adopted["acquired_by"], adopted["locked_by"]), ("bot", "job"))
        self.assertIsNone(self.shown("k", "secret-ci")["lock_id"])
        self.assertEqual(self.shown("k", "secret-bot")["lock_id"], adopted["lock_id"])

    def test_no_route_shows_the_id_to_others(self):
        key = "stack:s:env:e"
        quoted = "stack%3As%3Aenv%3Ae"
        lock_id = self.server.acquire(key, "job", token="secret-ci").json()["lock_id"]
        for token, sees in (("secret-bot", False), ("secret-reader", False), ("secret-ci", True), ("secret-admin", True)):
            bodies = {path: self.server.get(path, token=token).body.decode() for path in (
                f"/v1/locks/{quoted}", "/v1/locks", f"/v1/locks/{quoted}/queue",
                f"/v1/locks/{quoted}%3Aservice%3Av/tree", f"/v1/locks/{quoted}/free")}
            bodies["history"] = json.dumps(self.events(quoted, token))
            if token != "secret-reader":
                bodies["409"] = self.server.acquire(key, "x", token=token).body.decode()
                bodies["409 below"] = self.server.acquire(key + ":service:v", "x", token=token).body.decode()
                bodies["409 release"] = self.server.release(key, "nobody", token=token).body.decode()
                bodies["409 waiting"] = self.server.acquire(key, "x", token=token, wait_ms=20).body.decode()
            for path, body in bodies.items():
                with self.subTest(token=token, path=path):
                    self.assertIn(key, body)
                    if path == "history":  # the ids of events are for admins
                        self.assertEqual(lock_id in body, token == "secret-admin")
                    else:
                        self.assertEqual(lock_id in body, sees, body)


class Places(IdentityCase):
    def wait_for(self, token, lock_id, answers, key="k"):
        def ask():
            answers.append(self.server.acquire(key, "w", token=token, lock_id=lock_id, wait_ms=30000, ttl_ms=120000))
        thread = threading.Thread(target=ask)
        thread.start()
        wait_until(lambda: self.server.get(f"/v1/locks/{key}/queue", token="secret-admin").json()["waiting"], "the place")
        return thread

    def test_a_place_in_the_queue_belongs_to_its_credential(self):
        held = self.server.acquire("k", "job", token="secret-ci").json()
        answers = []
        thread = self.wait_for("secret-ci", "place-1", answers)
        taken = self.server.acquire("k", "w", token="secret-bot", lock_id="place-1", wait_ms=1000)
        self.assertEqual((taken.status, taken.error["code"]), (409, "id_used"))
        self.server.release("k", "place-1", token="secret-bot")
        self.assertEqual(len(self.server.get("/v1/locks/k/queue", token="secret-admin").json()["waiting"]), 1)
        self.server.release("k", held["lock_id"], token="secret-ci")
        thread.join(30)
        self.assertEqual((answers[0].status, answers[0].json()["lock_id"]), (200, "place-1"))

    def test_a_place_does_not_pass_to_another_credential_after_a_restart(self):
        self.server.acquire("k", "job", token="secret-ci")
        answers = []
        thread = self.wait_for("secret-ci", "place-1", answers)
        self.server.stop()  # forgets the request; its ticket stays in the store
        thread.join(30)
        self.assertEqual(answers[0].status, 503)
        self.server = self.serve(config=self.config_with(TOKENS))
        for wait_ms in (0, 1000):
            taken = self.server.acquire("k", "w", token="secret-bot", lock_id="place-1", wait_ms=wait_ms)
            self.assertEqual((taken.status, taken.error["code"]), (409, "id_used"))
        mine = self.server.acquire("k", "w", token="secret-ci", lock_id="place-1", wait_ms=20)
        self.assertEqual((mine.status, mine.error["code"], mine.error["position"]), (409, "lock_held", 0))

    def test_a_queued_webhook_belongs_to_its_credential(self):
        config = self.config_with(TOKENS)
        config.write_text(config.read_text() + "  webhooks:\n    allow: [127.0.0.1]\n")
        self.server.stop()
        self.server = self.serve(config=config)
        receiver = Receiver(self)
        held = self.server.acquire("k", "job", token="secret-ci").json()
        body = {"lock_id": "hook-1", "wait_ms": 60000, "webhook": {"url": receiver.url}}
        self.assertEqual(self.server.acquire("k", "w", token="secret-ci", **body).status, 202)
        taken = self.server.acquire("k", "w", token="secret-bot", **body)
        self.assertEqual((taken.status, taken.error["code"]), (409, "id_used"))
        leave = "/v1/locks/k/queue?lock_id=hook-1"
        self.assertEqual(self.server.call("DELETE", leave, token="secret-bot").status, 404)
        self.server.stop()
        self.server = self.serve(config=config)
        self.assertEqual(self.server.call("DELETE", leave, token="secret-bot").status, 404)
        self.server.release("k", held["lock_id"], token="secret-ci")
        wait_until(lambda: self.shown("k")["lock_id"] == "hook-1", "the webhook's lock")
        self.assertEqual(self.shown("k")["acquired_by"], "ci")
        self.assertEqual(self.server.acquire("k", "job", token="secret-bot", **body).status, 409)
        self.assertEqual(self.server.release("k", "hook-1", token="secret-bot").status, 200, "whoever was given the id")

    def configure(self, tokens):
        config = self.config_with(tokens)
        config.write_text(config.read_text() + "  webhooks:\n    allow: [127.0.0.1]\n")
        return config

    def reload(self, tokens):
        self.configure(tokens)
        n = self.server.log().count('"reloaded"')
        self.server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: self.server.log().count('"reloaded"') > n, "the reload")

    def queue_up(self, receiver, token):
        """A request that waits for k, and one with a webhook for h; k and h are held."""
        held = {key: self.server.acquire(key, "job", token="secret-admin").json()["lock_id"] for key in "kh"}
        waits = self.server.acquire_later("k", "w", token=token, lock_id=f"{token}-k", wait_ms=60000)
        hook = {"lock_id": f"{token}-h", "wait_ms": 60000, "webhook": {"url": receiver.url}}
        self.assertEqual(self.server.acquire("h", "w", token=token, **hook).status, 202)
        wait_until(lambda: len(self.waiting("k")) == 1, "the request to wait")
        return held, waits

    def waiting(self, key):
        return self.server.get(f"/v1/locks/{key}/queue", token="secret-admin").json()["waiting"]

    def test_a_removed_token_leaves_the_queues(self):
        """Taken away, made a reader, or limited to other keys: a lock it waits for is not granted to it later."""
        receiver = Receiver(self)
        for change in (None, ("ci", "reader", None), ("ci", "locker", ["other-*"])):
            with self.subTest(change):
                self.server.stop()
                self.server = self.serve(config=self.configure(TOKENS))
                held, waits = self.queue_up(receiver, "secret-ci")
                self.reload(TOKENS)
                self.assertEqual([len(self.waiting(key)) for key in "kh"], [1, 1], "whose token is still there waits on")
                left = {secret: token for secret, token in TOKENS.items() if secret != "secret-ci"}
                self.reload({**left, "secret-ci": change} if change else left)
                self.assertEqual(waits.get().status, 401)
                wait_until(lambda: self.waiting("k") == self.waiting("h") == [], "both to have left")
                for key, lock_id in held.items():
                    self.server.release(key, lock_id, token="secret-admin")
                    self.assertEqual(self.shown(key)["status"], "released")
        self.assertEqual(receiver.n, 0)

    def test_a_webhook_of_a_removed_token_does_not_return_with_the_next_server(self):
        receiver = Receiver(self)
        self.server.stop()
        self.server = self.serve(config=self.configure(TOKENS))
        held, _ = self.queue_up(receiver, "secret-ci")
        self.server.process.kill()
        self.server.process.wait()
        self.server = self.serve(config=self.configure({"secret-admin": TOKENS["secret-admin"]}))
        self.assertEqual(self.server.release("h", held["h"], token="secret-admin").status, 200)
        self.assertIn("leaves the queue", self.server.log())
        self.assertEqual((self.shown("h")["status"], receiver.n), ("released", 0))


class Names(IdentityCase):
    def test_a_loss_is_recorded_under_the_holders_own_name(self):
        lock = self.server.acquire("k", "job", token="secret-ci", locked_by_name="Alice").json()
        for given, recorded in (("Alice (boss)", "Alice (boss) (bot)"), ("boss", "boss (bot)"), (None, "bot")):
            fields = {} if given is None else {"locked_by_name": given}
            answer = self.server.post("/v1/lost", {"key": "k", "lock_id": lock["lock_id"], "locked_by": "job", **fields},
                                      token="secret-bot")
            self.assertEqual(answer.status, 200)
            event = self.events("k")[-1]
            self.assertEqual((event["event"], event["locked_by_name"], event["by"]), ("lock.lost", recorded, "bot"))
        body = {"key": "k", "lock_id": lock["lock_id"], "locked_by_name": "Alice (ci)"}
        self.server.post("/v1/lost", body, token="secret-ci")
        self.assertEqual(self.events("k")[-1]["locked_by_name"], "Alice (ci)", "marked once")

    def test_a_stop_is_recorded_under_the_callers_own_name(self):
        config = self.config_with(TOKENS)
        config.write_text(config.read_text() + "databases: {postgres: {stop: {command: [sleep, '0.1']}}}\n")
        self.server.stop()
        self.server = self.serve(config=config)
        app = {"name": "shop", "urls": ["http://127.0.0.1:9/"], "databases": [{"kind": "postgres", "id": "db.example:5432"}]}
        self.assertEqual(self.server.post("/v1/apps", app, token="secret-admin").status, 200)
        body = {"app": "shop", "by": "Alice (boss)"}
        answer = self.server.post("/v1/databases/db.example:5432/stop", body, token="secret-bot")
        self.assertEqual(answer.json()["results"][0]["action"], "stopped", answer)
        lock = self.shown("LOCK%23DB%23db.example%3A5432")
        self.assertEqual((lock["locked_by_name"], lock["acquired_by"]), ("Alice (boss) (bot)", "bot"))
        marked = self.server.post("/v1/apps/shop/mark", {"state": "stopped", "by": "boss"}, token="secret-bot").json()
        self.assertEqual(marked["by"], "boss (bot)")


class Tenants(ServerCase):
    """`keys` bind what a token reads, whatever its role."""

    TOKENS = {
        "acme": ("acme", "reader", ["tenant:acme:*", "terraform/acme*"]),
        "acme-locker": ("acme-ci", "locker", ["tenant:acme:*"]),
        "acme-admin": ("acme-ops", "admin", ["tenant:acme:*", "both"]),
        "root": ("root", "admin", None),
    }
    LIMITED = ("acme", "acme-locker", "acme-admin")

    def setUp(self):
        super().setUp()
        self.server = self.serve(config=self.config_with(self.TOKENS))

    def take(self, key, **more):
        answer = self.server.acquire(key, "job", token="root", **more)
        self.assertEqual(answer.status, 200, answer)
        return answer.json()

    def test_one_lock_of_another_tenant_is_refused(self):
        self.take("tenant:acme:1")
        self.take("tenant:evil:1", metadata={"secret": "s"})
        for token in self.LIMITED:
            for what in ("", "/history", "/queue", "/free", "/tree"):
                with self.subTest(token=token, what=what):
                    refused = self.server.get(f"/v1/locks/{quoted('tenant:evil:1')}{what}", token=token)
                    self.assertEqual((refused.status, refused.error["code"]), (403, "not_permitted"))
                    seen = self.server.get(f"/v1/locks/{quoted('tenant:acme:1')}{what}", token=token)
                    self.assertEqual(seen.status, 409 if what == "/free" else 200)
            for path in ("/v1/activity", "/metrics"):
                self.assertEqual(self.server.get(path, token=token).status, 403, path)
        self.assertEqual(self.server.get("/v1/activity", token="root").status, 200)

    def pages(self, token, limit, prefix=""):
        keys, cursor, n = [], "", 0
        while cursor is not None:
            page = self.server.get(f"/v1/locks?limit={limit}&prefix={quoted(prefix)}&cursor={quoted(cursor)}", token=token).json()
            self.assertLessEqual(len(page["locks"]), limit)
            self.assertIn(page["next_cursor"], [None, *(lock["key"] for lock in page["locks"])], "a key it may not see")
            keys += [lock["key"] for lock in page["locks"]]
            cursor = page["next_cursor"]
            n += 1
        return keys, n

    def test_lists_have_what_fits_and_their_pages_miss_nothing(self):
        mine = [f"tenant:acme:{i:02}" for i in range(7)]
        for key in mine + ["a", "both", "tenant:a", "tenant:acme", "tenant:evil:1", "z"]:
            self.take(key)
        for limit in (1, 2, 3, 6, 7, 100):
            for prefix in ("", "t", "tenant:acme:"):
                with self.subTest(limit=limit, prefix=prefix):
                    for token in ("acme", "acme-locker"):
                        self.assertEqual(self.pages(token, limit, prefix)[0], mine)
            self.assertEqual(self.pages("acme-admin", limit)[0], ["both", *mine])
        self.assertEqual(self.pages("acme", 10, "tenant:acme:03")[0], ["tenant:acme:03"])
        self.assertEqual(self.pages("acme", 10, "tenant:evil")[0], [])
        self.assertEqual(len(self.pages("root", 3)[0]), 13)
        self.assertEqual(self.server.get("/v1/locks", token="acme").json()["waiting"], {})

    def test_streams_have_what_fits(self):
        streams = {(path, token): Stream(self.server, path, token=token)
                   for path in ("/v1/events", "/v1/live") for token in ("acme", "root")}
        readers = {}
        for at, stream in streams.items():
            self.addCleanup(stream.close)
            self.assertEqual(stream.status, 200)
            readers[at] = stream.events()
            if at[0] == "/v1/live":
                next(readers[at])
        self.take("tenant:evil:1")
        self.take("tenant:acme:1")
        for (path, token), events in readers.items():
            seen = []
            while "tenant:acme:1" not in seen:
                event = next(events)
                seen += [event["data"]["lock_key"]] if path == "/v1/events" else [row["key"] for row in event["data"]["locks"]]
            with self.subTest(path=path, token=token):
                self.assertEqual("tenant:evil:1" in seen, token == "root")

    def test_a_blocker_outside_the_tokens_keys_shows_only_its_holder(self):
        only = ["stack:s:env:e:service:v"]
        config = self.config_with({**self.TOKENS, "svc": ("svc", "locker", only), "svc-admin": ("svc-ops", "admin", only)})
        self.server.stop()
        self.server = self.serve(config=config)
        self.take("stack:s:env:e", metadata={"secret": "s"})
        for token in ("svc", "svc-admin"):
            refused = self.server.acquire("stack:s:env:e:service:v", "x", token=token)
            self.assertEqual((refused.status, refused.error["lock"]["key"]), (409, "stack:s:env:e"))
            self.assertEqual((refused.error["lock"]["metadata"], refused.error["lock"]["lock_id"]), ({}, None), token)
            tree = self.server.get(f"/v1/locks/{quoted('stack:s:env:e:service:v')}/tree", token=token).json()
            self.assertEqual(tree["above"], [])

    def test_lists_of_states_have_what_fits(self):
        for name in ("acme-net", "evil-net"):
            info = {"ID": f"id-{name}"}
            self.server.call("LOCK", f"/v1/terraform/{name}", info, token="root")
            self.server.post(f"/v1/terraform/{name}?ID=id-{name}", {"version": 4, "serial": 1}, token="root")
        names = {token: [s["name"] for s in self.server.get("/v1/terraform", token=token).json()["states"]]
                 for token in ("acme", "acme-locker", "root")}
        self.assertEqual(names, {"acme": ["acme-net"], "acme-locker": [], "root": ["acme-net", "evil-net"]})
        self.assertEqual(self.server.get("/v1/terraform/evil-net/versions", token="acme").status, 403)


class Target:
    """A listener on loopback that counts connections."""

    def __init__(self, case, redirect=None):
        self.n = 0
        target = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_HEAD(self):
                target.n += 1
                self.send_response(302 if redirect else 200)
                if redirect:
                    self.send_header("Location", redirect)
                self.send_header("Content-Length", "0")
                self.end_headers()

            do_GET = do_HEAD

            def log_message(self, *args):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        case.addCleanup(self.server.server_close)
        case.addCleanup(self.server.shutdown)


class Applications(ServerCase):
    TOKENS = {
        "build": ("build", "locker", ["build-*"]),
        "shop-ops": ("shop-ops", "locker", ["app:shop*", "LOCK#DB#db.example:5432"]),
        "locker": ("ci", "locker", None),
        "root": ("root", "admin", None),
    }
    DATABASES = [{"kind": "postgres", "id": "db.example:5432"}]

    def setUp(self):
        super().setUp()
        self.config = self.config_with(self.TOKENS)
        self.config.write_text(self.config.read_text() + "databases: {postgres: {stop: {command: ['true']}, start: {command: ['true']}}}\n")
        self.text = self.config.read_text()
        self.server = self.serve(config=self.config)

    def register(self, token, url, name="shop", **more):
        body = {"urls": [url], "databases": self.DATABASES, **more}
        return self.server.call("PUT", f"/v1/apps/{name}", body, token=token)

    def quick(self, name="shop", token="root"):
        return self.server.get(f"/status/quick?app={name}", token=token).json()

    def test_keys_bind_applications_and_databases(self):
        target = Target(self)
        self.assertEqual(self.register("root", target.url).status, 200)
        self.assertEqual(self.register("root", target.url, "other").status, 200)
        app, database = "/v1/apps/shop", "/v1/databases/db.example:5432"
        tries = [("GET", app, None), ("PUT", app, {"urls": [target.url]}), ("POST", "/v1/apps", {"name": "shop", "urls": [target.url]}),
                 ("POST", f"{app}/mark", {"state": "stopped"}), ("GET", "/status/quick?app=shop", None), ("GET", database, None),
                 ("POST", f"{database}/stop", {"app": "shop"}), ("POST", f"{database}/start", {}), ("PUT", f"{database}/last", {})]
        for method, path, body in tries:
            with self.subTest(method=method, path=path):
                refused = self.server.call(method, path, body, token="build")
                self.assertEqual((refused.status, refused.error["code"]), (403, "not_permitted"))
        for path, name in (("/v1/apps", "apps"), ("/v1/databases", "databases")):
            seen = {token: len(self.server.get(path, token=token).json()[name]) for token in ("build", "shop-ops", "locker")}
            self.assertEqual(seen, {"build": 0, "shop-ops": 1, "locker": 2 if name == "apps" else 1})
        self.assertEqual(target.n, 0)
        self.assertEqual(self.server.get(app, token="root").json()["state"], "running")
        # A stop of its database must not record another tenant's application as stopped either.
        stop = self.server.post(f"{database}/stop", {"app": "other"}, token="shop-ops")
        self.assertEqual((stop.status, stop.error["code"]), (403, "not_permitted"))
        self.assertEqual(self.server.post(f"{app}/mark", {"state": "stopped"}, token="shop-ops").status, 200)
        self.assertEqual(self.register("build", target.url, "build-x").status, 403, "an application's key is app:NAME")

    def remote(self, token, *args):
        auth = self.dir / f"{token}.token"
        auth.write_text(token + "\n")
        auth.chmod(0o600)
        local = self.dir / "local.yaml"
        local.write_text(f"databases: {{postgres: {{stop: {{command: [touch, {self.dir}/ended]}}, start: {{command: ['true']}}}}}}\n")
        local.chmod(0o600)
        return self.belay(*args, "--store", self.server.url, "--config", str(local), env={"BELAY_AUTH_FILE": str(auth)})

    def test_a_client_that_sees_a_part_of_the_registry_stops_nothing(self):
        """The applications that its keys hide may be the ones that are up."""
        target = Target(self)
        for name in ("shop", "other"):
            self.register("root", target.url, name)
        for token, is_partial in (("shop-ops", True), ("locker", False)):
            self.assertEqual(self.server.get("/v1/apps", token=token).json()["is_partial"], is_partial)
        for verb, *which in (("stop", "--app", "shop"), ("stop", "--database", "db.example:5432"), ("start", "--app", "shop"), ("list",)):
            result = self.remote("shop-ops", "db", verb, *which)
            self.assertEqual(result.code, 77, result)
            self.assertIn("the users of a database are unknown", result.err)
        self.assertEqual([app["name"] for app in self.remote("shop-ops", "app", "list", "--json").json()["apps"]], ["shop"])
        self.assertFalse((self.dir / "ended").exists())
        self.assertEqual(self.server.get("/v1/apps/shop", token="root").json()["state"], "running")
        # The server sees all of them and can do it.
        stop = self.server.post("/v1/databases/db.example:5432/stop", {"app": "shop"}, token="shop-ops").json()
        self.assertEqual((stop["results"][0]["action"], stop["results"][0]["active_apps"]), ("skipped_shared_active", ["other"]))

    def test_another_name_of_a_database_needs_its_key_as_well(self):
        instance, host = "i-0123456789abcdef0", "db.example:5432"
        linked = [{"kind": "postgres", "id": instance, "host": host}]
        for rows in (linked, [{"kind": "postgres", "id": instance}], [{"kind": "postgres", "id": "other.example:5432"}]):
            refused = self.server.call("PUT", "/v1/apps/shop", {"urls": ["http://127.0.0.1:9/"], "databases": rows}, token="shop-ops")
            self.assertEqual((refused.status, refused.error["code"]), (403, "not_permitted"), rows)
        self.register("root", "http://127.0.0.1:9/", databases=linked)
        self.assertEqual(self.server.get(f"/v1/databases/{host}", token="shop-ops").status, 404)
        for verb in ("stop", "start"):
            refused = self.server.post(f"/v1/databases/{host}/{verb}", {"app": "shop"}, token="shop-ops")
            self.assertEqual(refused.status, 403, refused)
            self.assertIn(f"LOCK#DB#{instance}", refused.error["message"])
        self.assertIsNone(self.server.get(f"/v1/databases/{instance}", token="root").json()["last"])
        # Its own record may be written: the row is there already.
        shop = self.server.get("/v1/apps/shop", token="shop-ops").json()
        self.assertEqual(self.server.call("PUT", "/v1/apps/shop", {**shop, "state": "stopped"}, token="shop-ops").status, 200)
        self.assertEqual(self.server.post(f"/v1/databases/{host}/stop", {"app": "shop"}, token="locker").json()["results"][0]["action"], "stopped")

    def test_a_stop_that_waits_ends_with_its_token(self):
        """While it repeats the check, and while it waits for the lock."""
        target = Target(self)
        self.register("root", target.url, "shop")
        self.register("root", target.url, "other")
        path = "/v1/databases/db.example:5432"
        for how in ("asks", "waits"):
            with self.subTest(how):
                answers = queue.Queue()
                held = self.server.acquire("LOCK#DB#db.example:5432", token="root").json()["lock_id"] if how == "waits" else None
                threading.Thread(target=lambda a=answers: a.put(self.server.post(f"{path}/stop", {"app": "shop", "wait_ms": 60000}, token="locker")),
                                 daemon=True).start()
                wait_until(lambda: self.server.get("/v1/apps/shop", token="root").json()["state"] == "stop_requested", "the stop to begin")
                n = self.server.log().count('"reloaded"')
                self.config.write_text(self.text.replace(sha256("locker"), sha256("new")).replace('"ci"', '"new"'))
                self.server.process.send_signal(signal.SIGHUP)
                wait_until(lambda n=n: self.server.log().count('"reloaded"') > n, "the reload")
                if held:
                    self.server.release("LOCK#DB#db.example:5432", held, token="root")
                self.assertEqual(answers.get(timeout=20).status, 403)
                self.assertIsNone(self.server.get(path, token="root").json()["last"])
                self.config.write_text(self.text)
                self.server.process.send_signal(signal.SIGHUP)
                wait_until(lambda n=n: self.server.log().count('"reloaded"') > n + 1, "the token to be back")
                self.server.post("/v1/apps/shop/mark", {"state": "running"}, token="root")

    def test_urls_that_a_locker_registers_are_checked_on_public_addresses_only(self):
        target = Target(self)
        made = self.register("locker", target.url, public_only=False)
        self.assertEqual((made.status, made.json()["public_only"]), (200, True))
        for url in (target.url, target.url.replace("127.0.0.1", "localhost"), target.url.replace("127.0.0.1", "[::ffff:127.0.0.1]"),
                    target.url.replace("127.0.0.1", "0x7f000001")):
            with self.subTest(url):
                self.assertEqual(self.register("locker", url).status, 200)
                status = self.quick()
                self.assertEqual((status["status"], status["http_code"]), ("UNKNOWN", None))
                self.assertIn("is not a public address", status["reason"])
        self.assertEqual(target.n, 0)

    def test_an_unchecked_application_is_not_taken_for_stopped(self):
        target = Target(self)
        self.register("locker", target.url)
        self.register("root", target.url, "asks")
        self.server.post("/v1/apps/shop/mark", {"state": "stopped"}, token="locker")
        self.assertEqual(self.quick()["status"], "UNKNOWN")
        stop = self.server.post("/v1/databases/db.example:5432/stop", {"app": "asks"}, token="locker").json()
        self.assertEqual(stop["results"][0]["action"], "skipped_shared_active")
        self.assertEqual(target.n, 0)

    def test_an_admin_and_a_local_command_register_what_is_theirs(self):
        target = Target(self)
        self.assertFalse(self.register("root", target.url).json()["public_only"])
        self.assertEqual(self.quick()["status"], "UP")
        self.server.post("/v1/apps/shop/mark", {"state": "running"}, token="locker")
        self.assertEqual(self.quick()["status"], "UP", "to mark it is not to register it")
        self.assertTrue(self.register("locker", target.url).json()["public_only"], "an update by a locker drops it")
        self.assertEqual(self.quick()["status"], "UNKNOWN")
        self.ok("app", "register", "shop", "--url", target.url, "--database", "postgres=db.example:5432", "--replace")
        self.assertEqual(self.quick()["status"], "UP")
        self.assertEqual(target.n, 3)

    def test_a_record_by_a_locker_leaves_the_urls_as_an_admin_registered_them(self):
        """As `belay db stop --app shop --store http://…` writes it."""
        target = Target(self)
        made = self.register("root", target.url).json()
        put = self.server.call("PUT", "/v1/apps/shop", {**made, "state": "stop_requested"}, token="locker")
        self.assertEqual((put.status, put.json()["public_only"], put.json()["state"]), (200, False, "stop_requested"))
        put = self.server.call("PUT", "/v1/apps/shop", {**put.json(), "urls": [target.url + "x"]}, token="locker")
        self.assertEqual((put.status, put.json()["public_only"]), (200, True))

    def test_the_configuration_can_allow_more(self):
        target = Target(self)
        self.server.stop()
        allowed = ["127.0.0.1", *(f"127.0.1.{n}" for n in range(63))]  # as many as there may be
        self.config.write_text(self.config.read_text() + f"controller: {{quick_status_allow: {json.dumps(allowed)}}}\n")
        self.server = self.serve(config=self.config)
        self.register("locker", target.url)
        self.assertEqual(self.quick()["status"], "UP")

    def test_a_redirect_is_followed_with_the_same_check(self):
        inner = Target(self)
        outer = Target(self, redirect=inner.url.replace("127.0.0.1", "127.0.0.2"))
        self.server.stop()
        self.config.write_text(self.config.read_text() + "controller: {quick_status_allow: [127.0.0.1]}\n")
        self.server = self.serve(config=self.config)
        self.register("locker", outer.url)
        status = self.quick()
        self.assertEqual((status["status"], outer.n), ("UNKNOWN", 1))
        self.assertIn("127.0.0.2 is not a public address", status["reason"])
        self.register("root", outer.url)
        self.assertNotIn("public address", self.quick()["reason"] or "")

    def test_a_record_is_written_under_the_callers_own_name(self):
        target = Target(self)
        made = self.register("locker", target.url, state="stopped", since="2026-01-01T00:00:00.000Z", by="Alice (root)").json()
        self.assertEqual(made["by"], "Alice (root) (ci)")
        again = self.register("locker", target.url, state="stopped", since=made["since"], by=made["by"]).json()
        self.assertEqual(again["by"], "Alice (root) (ci)")
        decision = {"database": "db.example:5432", "kind": "postgres", "action": "skipped", "reason": "r", "shared": False,
                    "sharing_apps": [], "active_apps": [], "by": "root"}
        answer = self.server.call("PUT", "/v1/databases/db.example:5432/last", decision, token="locker")
        self.assertEqual(answer.status, 200, answer)
        shown = self.server.get("/v1/databases/db.example:5432", token="root").json()
        self.assertEqual(shown["last"]["by"], "root (ci)", shown)


if __name__ == "__main__":
    main()
