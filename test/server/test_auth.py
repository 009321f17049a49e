"""Permissions: tokens, roles and key patterns, and what is refused without them."""

import base64
import json
import re
import signal
import socket
import time

from server_support import BELAY, ServerCase, main, reload_under_load, sha256, wait_until

TOKENS = {
    "secret-reader": ("watcher", "reader", None),
    "secret-locker": ("ci", "locker", None),
    "secret-others": ("other-ci", "locker", ["other-*", "exact"]),
    "secret-admin": ("boss", "admin", None),
}
CALLERS = {"none": None, "wrong": "no-such-token", "reader": "secret-reader", "locker": "secret-locker",
           "others": "secret-others", "admin": "secret-admin"}

# The status for each of CALLERS. The lock 'k' is held under the id 'held' before each call.
PUBLIC = (200, 200, 200, 200, 200, 200)
READ = (401, 401, 200, 200, 200, 200)
READ_K = (401, 401, 200, 200, 403, 200)  # of a key that does not fit the patterns of `others`, or of all keys
MATRIX = [
    ("POST", "/v1/locks/new/acquire", {"locked_by": "x"}, (401, 401, 403, 200, 403, 200)),
    ("POST", "/v1/locks/k/adopt", {"lock_id": "held"}, (401, 401, 403, 200, 403, 200)),
    ("POST", "/v1/locks/k/renew", {"lock_id": "held"}, (401, 401, 403, 200, 403, 200)),
    ("POST", "/v1/locks/k/release", {"lock_id": "held"}, (401, 401, 403, 200, 403, 200)),
    ("POST", "/v1/acquire", {"key": "new", "locked_by": "x"}, (401, 401, 403, 200, 403, 200)),
    ("POST", "/v1/adopt", {"key": "k", "lock_id": "held"}, (401, 401, 403, 200, 403, 200)),
    ("POST", "/v1/renew", {"key": "k", "lock_id": "held"}, (401, 401, 403, 200, 403, 200)),
    ("POST", "/v1/release", {"key": "k", "lock_id": "held"}, (401, 401, 403, 200, 403, 200)),
    ("POST", "/v1/locks/k/held", {"lock_id": "held"}, (401, 401, 403, 200, 403, 200)),
    ("POST", "/v1/held", {"key": "k", "lock_id": "held"}, (401, 401, 403, 200, 403, 200)),
    ("GET", "/v1/locks/k/check?lock_id=nobodys", None, (401, 401, 409, 409, 403, 409)),
    ("POST", "/v1/locks/k/check", {"lock_id": "held"}, READ_K),
    ("POST", "/v1/check", {"key": "k", "lock_id": "held"}, READ_K),
    ("POST", "/v1/locks/k/lost", {"lock_id": "held"}, (401, 401, 403, 200, 403, 200)),
    ("POST", "/v1/lost", {"key": "k", "lock_id": "held"}, (401, 401, 403, 200, 403, 200)),
    ("DELETE", "/v1/locks/k", None, (401, 401, 403, 403, 403, 200)),
    ("GET", "/v1/locks", None, READ),
    ("GET", "/v1/locks/k", None, READ_K),
    ("GET", "/v1/locks/k/history", None, READ_K),
    ("GET", "/v1/locks/k/queue", None, READ_K),
    ("DELETE", "/v1/locks/k/queue?lock_id=nobody", None, (401, 401, 403, 404, 403, 404)),
    ("GET", "/v1/locks/new/free", None, READ_K),
    ("GET", "/v1/events", None, READ),
    ("GET", "/v1/locks/k/tree", None, READ_K),
    ("GET", "/v1/live", None, READ),
    ("GET", "/v1/stats", None, READ),
    ("GET", "/v1/stats?key=k", None, READ_K),
    ("GET", "/v1/activity", None, READ_K),
    ("GET", "/v1/timeline", None, READ),
    ("GET", "/v1/me", None, READ),
    ("POST", "/v1/session", None, READ),
    ("DELETE", "/v1/session", None, READ),
    ("GET", "/v1/backup", None, (401, 401, 403, 403, 403, 200)),
    ("GET", "/v1/store", None, READ),
    ("GET", "/metrics", None, READ_K),
    ("GET", "/v1/freezes", None, READ),
    ("POST", "/v1/freezes", {"pattern": "none-*", "reason": "x"}, (401, 401, 403, 403, 403, 200)),
    ("DELETE", "/v1/freezes/none", None, (401, 401, 403, 403, 403, 404)),
    # Unknown applications and databases: a permitted client gets 404.
    ("GET", "/v1/apps", None, READ),
    ("POST", "/v1/apps", {"name": "none"}, (401, 401, 403, 400, 403, 400)),
    ("GET", "/v1/apps/none", None, (401, 401, 404, 404, 403, 404)),
    ("PUT", "/v1/apps/none", {}, (401, 401, 403, 400, 403, 400)),
    ("DELETE", "/v1/apps/none", None, (401, 401, 403, 403, 403, 404)),
    ("POST", "/v1/apps/none/mark", {"state": "stopped"}, (401, 401, 403, 404, 403, 404)),
    ("GET", "/status/quick?app=none", None, READ_K),
    ("GET", "/v1/databases", None, READ),
    ("GET", "/v1/databases/none", None, (401, 401, 404, 404, 403, 404)),
    ("POST", "/v1/databases/none/stop", {}, (401, 401, 403, 400, 403, 400)),
    ("POST", "/v1/databases/none/start", {}, (401, 401, 403, 400, 403, 400)),
    ("PUT", "/v1/databases/none/last", {}, (401, 401, 403, 400, 403, 400)),
    # Missing states: a permitted client gets 404, or an error about the request.
    ("GET", "/v1/state", None, READ),
    ("GET", "/v1/state/none/prod", None, (401, 401, 404, 404, 403, 404)),
    ("PUT", "/v1/state/none/prod", {}, (401, 401, 403, 409, 403, 409)),
    ("POST", "/v1/state/none/prod/stamp", None, (401, 401, 403, 409, 403, 409)),
    ("GET", "/v1/state/none/prod/history", None, (401, 401, 404, 404, 403, 404)),
    ("GET", "/v1/state/none/prod/history/1", None, (401, 401, 404, 404, 403, 404)),
    ("GET", "/v1/state/none/prod/verify", None, (401, 401, 404, 404, 403, 404)),
    ("POST", "/v1/state/none/prod/restore", {}, (401, 401, 403, 403, 403, 400)),
    ("POST", "/v1/state/none/prod/backup", None, (401, 401, 403, 404, 403, 404)),
    ("POST", "/v1/state/none/prod/adopt", {}, (401, 401, 403, 403, 403, 404)),
    ("GET", "/v1/terraform", None, READ),
    ("GET", "/v1/terraform/none", None, (401, 401, 403, 404, 403, 404)),
    ("POST", "/v1/terraform/none", {}, (401, 401, 403, 409, 403, 409)),
    ("PUT", "/v1/terraform/none", {}, (401, 401, 403, 409, 403, 409)),
    ("DELETE", "/v1/terraform/none", None, (401, 401, 403, 403, 403, 200)),
    ("LOCK", "/v1/terraform/none", {}, (401, 401, 403, 400, 403, 400)),
    ("UNLOCK", "/v1/terraform/none", None, (401, 401, 403, 403, 403, 200)),
    ("POST", "/v1/terraform/none/lock", {}, (401, 401, 403, 400, 403, 400)),
    ("PUT", "/v1/terraform/none/lock", {}, (401, 401, 403, 400, 403, 400)),
    ("DELETE", "/v1/terraform/none/lock", None, (401, 401, 403, 403, 403, 200)),
    ("GET", "/v1/terraform/none/versions", None, (401, 401, 200, 200, 403, 200)),
    ("GET", "/v1/terraform/none/versions/1", None, (401, 401, 403, 404, 403, 404)),
    ("POST", "/v1/terraform/none/restore", {}, (401, 401, 403, 403, 403, 400)),
    ("GET", "/healthz", None, PUBLIC),
    ("GET", "/readyz", None, PUBLIC),
    ("GET", "/openapi.json", None, PUBLIC),
    ("GET", "/", None, PUBLIC),
    ("GET", "/ui/app.js", None, PUBLIC),
]


class Roles(ServerCase):
    BACKUP = 200  # of the store

    def setUp(self):
        super().setUp()
        self.config = self.config_with(TOKENS)
        self.server = self.serve(config=self.config)

    def test_each_route_grants_each_role_exactly_its_permissions(self):
        documented = set()
        document = self.server.get("/openapi.json").json()
        for path, operations in document["paths"].items():
            documented |= {(method.removeprefix("x-").upper(), path) for method in operations}
        seen = {(method, self.template(path)) for method, path, _, _ in MATRIX}
        self.assertEqual(seen, documented, "a route without a line in the matrix")
        for method, path, body, expected in MATRIX:
            for (caller, secret), status in zip(CALLERS.items(), expected):
                with self.subTest(method=method, path=path, caller=caller):
                    self.prepare()
                    answer = self.status_of(method, path, body, secret)
                    if path == "/v1/backup" and status == 200:
                        status = self.BACKUP
                    self.assertEqual(answer, status)
                    held = self.server.get("/v1/locks/k", token="secret-admin").json()
                    if status in (401, 403):
                        self.assertEqual((held["status"], held["lock_id"]), ("active", self.held))

    @staticmethod
    def template(path):
        for what, name in (("locks/(k|new)", "locks/{key}"), ("ui/.*", "ui/{file}"), ("apps/none", "apps/{name}"),
                           ("databases/none", "databases/{id}"), ("freezes/none", "freezes/{id}"), ("state/none/prod", "state/{stack}/{environment}"),
                           ("terraform/none", "terraform/{name}"), ("(history|versions)/1", r"\1/{version}")):
            path = re.sub(f"/{what}", f"/{name}", path.split("?")[0])
        return path

    def prepare(self):
        """'k' is held by ci under a new id, 'new' is free."""
        for key in ("k", "new"):
            self.server.call("DELETE", f"/v1/locks/{key}", token="secret-admin")
        self.n = getattr(self, "n", 0) + 1
        self.held = f"held-{self.n}"
        answer = self.server.acquire("k", "job", token="secret-locker", lock_id=self.held)
        self.assertEqual(answer.status, 200)

    def status_of(self, method, path, body, secret):
        body = {**body, "lock_id": self.held} if body and "lock_id" in body else body
        if path not in ("/v1/events", "/v1/live"):
            return self.server.call(method, path, body, token=secret).status
        connection = self.server.connect()
        connection.request("GET", path, headers={"Authorization": f"Bearer {secret}"} if secret else {})
        status = connection.getresponse().status
        connection.close()
        return status

    def test_a_role_that_is_too_low_is_named_with_the_one_that_is_needed(self):
        answer = self.server.call("DELETE", "/v1/locks/k", token="secret-locker")
        self.assertEqual(answer.error["message"], "'ci' has the role locker; this needs the role admin")

    def test_patterns_say_which_keys_may_be_touched(self):
        for key, status in (("other-1", 200), ("exact", 200), ("exactly", 403), ("another-1", 403), ("other-", 200)):
            with self.subTest(key):
                self.assertEqual(self.server.acquire(key, "x", token="secret-others").status, status)
        answer = self.server.acquire("mine", "x", token="secret-others")
        self.assertEqual(answer.error["code"], "not_permitted")
        self.assertIn("'other-ci' may not touch the key 'mine'", answer.error["message"])

    def test_the_lock_id_is_shown_to_its_acquirer_and_to_admins(self):
        lock = self.server.acquire("k", "job", token="secret-locker", locked_by_name="Alice").json()
        shown = {"secret-locker": lock["lock_id"], "secret-admin": lock["lock_id"], "secret-reader": None,
                 "secret-others": None}
        self.assertIsNotNone(lock["lock_id"])
        for secret, lock_id in shown.items():
            with self.subTest(secret):
                if secret == "secret-others":
                    self.assertEqual(self.server.get("/v1/locks/k", token=secret).status, 403)
                    continue
                self.assertEqual(self.server.get("/v1/locks/k", token=secret).json()["lock_id"], lock_id)
                self.assertEqual(self.server.get("/v1/locks", token=secret).json()["locks"][0]["lock_id"], lock_id)
                queue = self.server.get("/v1/locks/k/queue", token=secret).json()
                self.assertEqual(queue["lock"]["lock_id"], lock_id)
                event = self.server.get("/v1/locks/k/history", token=secret).json()["events"][0]
                self.assertEqual(event["lock_id"], lock_id if secret == "secret-admin" else None)
        refused = self.server.acquire("k", "x", token="secret-admin")
        self.assertEqual(refused.error["lock"]["lock_id"], lock["lock_id"])
        self.server.acquire("other-1", "job", token="secret-locker")
        for fields in ({}, {"wait_ms": 50}):
            refused = self.server.acquire("other-1", "x", token="secret-others", **fields)
            self.assertEqual((refused.status, refused.error["lock"]["lock_id"]), (409, None))

    def test_the_authenticated_name_is_recorded_and_cannot_be_forged(self):
        for given, recorded in ((None, "ci"), ("Alice", "Alice (ci)"), ("x (boss)", "x (boss) (ci)"), ("boss", "boss (ci)")):
            with self.subTest(given):
                fields = {} if given is None else {"locked_by_name": given}
                lock = self.server.acquire("k", "job", token="secret-locker", **fields).json()
                self.assertEqual(lock["locked_by_name"], recorded)
                event = self.server.get("/v1/locks/k/history?limit=1", token="secret-admin").json()["events"][0]
                self.assertEqual(event["locked_by_name"], recorded)
                self.server.release("k", lock["lock_id"], token="secret-locker")
        self.server.acquire("k", "job", token="secret-locker")
        self.server.call("DELETE", "/v1/locks/k", {"reason": "r"}, token="secret-admin")
        event = self.server.get("/v1/locks/k/history?limit=1", token="secret-admin").json()["events"][0]
        self.assertEqual((event["by"], event["reason"]), ("boss", "r"))
        self.assertEqual(self.server.acquire("k", "j", token="secret-locker", locked_by_name="x" * 253).status, 400)
        names = {line["who"] for line in self.server.log_lines() if line["event"] == "request"}
        self.assertLessEqual({"ci", "boss"}, names)

    def test_the_token_may_come_as_the_password_of_basic_auth(self):
        for text, status in (("anybody:secret-reader", 200), (":secret-reader", 200), ("secret-reader:", 401),
                             ("a:b:c", 401), ("nocolon", 401)):
            header = {"Authorization": "Basic " + base64.b64encode(text.encode()).decode()}
            self.assertEqual(self.server.get("/v1/locks", headers=header).status, status, text)
        for value in ("Basic", "Basic !!!!", "Basic " + "A" * 5000, "Bearer", "Bearer  ", "secret-reader", "Digest x",
                      "Bearer " + "x" * 5000, ""):
            self.assertEqual(self.server.get("/v1/locks", headers={"Authorization": value}).status, 401, value[:20])
        header = {"Authorization": "bearer   secret-reader"}
        self.assertEqual(self.server.get("/v1/locks", headers=header).status, 200)

    def test_a_wrong_token_is_answered_slowly_and_delays_no_other_client(self):
        began = time.monotonic()
        wrong = []
        for i in range(20):
            connection = self.server.connect()
            connection.request("GET", "/v1/locks", headers={"Authorization": f"Bearer guess-{i}"})
            wrong.append(connection)
        self.assertEqual(self.server.get("/v1/locks", token="secret-reader", check=False).status, 200)
        self.assertLess(time.monotonic() - began, 5)  # one after the other, they would take ten
        for connection in wrong:
            answer = connection.getresponse()
            self.assertEqual(answer.status, 401)
            self.assertEqual(answer.headers["WWW-Authenticate"], 'Bearer realm="belay"')
            connection.close()
        self.assertGreaterEqual(time.monotonic() - began, 0.49)

    def test_a_client_that_hangs_up_before_a_slow_answer_does_no_harm(self):
        for _ in range(20):
            connection = self.server.connect()
            connection.request("GET", "/v1/locks", headers={"Authorization": "Bearer guess"})
            connection.close()
        self.assertEqual(self.server.get("/v1/locks", token="secret-reader").status, 200)
        self.assertEqual(self.server.stop(), 0)

    def test_sighup_reads_the_tokens_again(self):
        self.config_with({"secret-new": ("new", "reader", None)})
        self.server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: self.server.get("/v1/locks", token="secret-new").status == 200, "the new token to be known")
        self.assertEqual(self.server.get("/v1/locks", token="secret-reader").status, 401)

    def test_a_wrong_configuration_changes_nothing_on_sighup(self):
        for text in ("server: {tokens: [{name: x, role: king, sha256: 'ab'}]}", "serverr: {}", ":"):
            self.write_config(text + "\n")
            before = self.server.log().count("nothing was changed")
            self.server.process.send_signal(signal.SIGHUP)
            wait_until(lambda n=before: self.server.log().count("nothing was changed") > n, "the log line")
            self.assertEqual(self.server.get("/v1/locks", token="secret-reader").status, 200)

    def test_reloads_under_load_do_no_harm(self):
        reload_under_load(self, self.server, "secret-admin", "secret-reader")

    def test_no_secret_is_ever_logged(self):
        self.server.acquire("k", "job", token="secret-locker", lock_id="my-own-lock-id")
        self.server.get("/v1/locks", token="guessed-secret")
        self.server.renew("k", "my-own-lock-id", token="secret-locker")
        self.server.call("DELETE", "/v1/locks/k?lock_id=my-own-lock-id", token="secret-admin")
        self.server.stop()
        log = self.server.log()
        self.assertGreater(len(log), 500)
        for secret in ("secret", "my-own-lock-id"):
            self.assertNotIn(secret, log)


class Configuration(ServerCase):
    def test_auth_new_makes_a_token_that_works(self):
        made = self.ok("auth", "new", "--name", "bot", "--role", "locker", "--keys", "a-*", "--keys", "b", "--json").json()
        self.assertEqual((made["name"], made["role"], made["keys"]), ("bot", "locker", ["a-*", "b"]))
        self.assertEqual(made["sha256"], sha256(made["token"]))
        self.assertRegex(made["token"], r"^belay_[A-Za-z0-9_-]{44}$")
        other = self.ok("auth", "new", "--json").json()
        self.assertNotEqual(other["token"], made["token"])
        self.assertEqual((other["role"], "keys" in other), ("locker", False))
        result = self.ok("auth", "new", "--name", "bot", "--keys", "a-*")
        entry = result.err.splitlines()[-1].strip().removeprefix("- ")
        token = result.out.strip()
        server = self.serve(config=self.write_config(f"server:\n  tokens:\n    - {entry}\n"))
        self.assertEqual(server.acquire("a-1", "x", token=token).json()["locked_by_name"], "bot")
        self.assertEqual(server.acquire("c", "x", token=token).status, 403)
        self.assertEqual(server.hello["tokens"], 1)

    def test_auth_new_refuses_what_no_server_would_take(self):
        self.fails(64, "auth", "new", "--name", "a b")
        self.fails(64, "auth", "new", "--role", "king")
        self.fails(64, "auth", "new", "--keys", "")

    def test_other_machines_are_not_served_without_tokens(self):
        for listen in ("0.0.0.0:0", "[::]:0"):
            result = self.fails(78, "serve", "--listen", listen)
            self.assertIn("no tokens are configured", result.err)
        config = self.config_with(TOKENS)
        self.assertEqual(self.serve("--insecure", listen="0.0.0.0:0").stop(), 0)
        self.assertEqual(self.serve(listen="0.0.0.0:0", config=config).process.poll(), None)

    def test_the_last_token_cannot_be_taken_away_from_a_public_server(self):
        server = self.serve(listen="0.0.0.0:0", config=self.config_with(TOKENS))
        self.write_config("store: " + self.store + "\n")
        server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: "nothing was changed" in server.log(), "the log line")
        self.assertEqual(server.get("/v1/locks").status, 401)

    def test_wrong_tokens_in_the_configuration_are_named(self):
        good = {"name": "a", "role": "reader", "sha256": sha256("x")}
        for change, says in (({"role": "king"}, "role"), ({"sha256": "abc"}, "sha256"), ({"sha256": "X" * 64}, "sha256"),
                             ({"name": "a b"}, "name"), ({"name": "x" * 65}, "name")):
            config = self.write_config("server: {tokens: [%s]}\n" % json.dumps({**good, **change}))
            result = self.fails(78, "serve", "--listen", "127.0.0.1:0", "--config", str(config))
            self.assertIn(f"server.tokens.0.{says}", result.err)

    def test_tokens_behind_an_empty_entry_are_not_ignored(self):
        """The list would end at such an entry, and a server without tokens serves everyone."""
        good = json.dumps({"name": "a", "role": "reader", "sha256": sha256("x")})
        for entry, says in (("{}", "empty"), ("", "empty"), ("{webhook_secret_file: /none}", "server.tokens.0.name")):
            config = self.write_config(f"server:\n  tokens:\n    - {entry}\n    - {good}\n")
            result = self.fails(78, "serve", "--listen", "127.0.0.1:0", "--config", str(config))
            self.assertIn(says, result.err)

    def test_a_page_in_a_browser_cannot_use_a_server_without_tokens(self):
        server = self.serve()
        local = f"127.0.0.1:{server.port}"
        for headers, status in (({"Host": "evil.example"}, 403), ({"Host": local, "Origin": "http://evil.example"}, 403),
                                ({"Host": local, "Origin": "null"}, 403), ({"Host": local, "Origin": "http://" + local}, 200),
                                ({"Host": f"localhost:{server.port}"}, 200), ({"Host": "[::1]:1"}, 200)):
            answer = server.get("/v1/locks", headers=headers)
            self.assertEqual(answer.status, status, headers)

    def test_a_name_that_resembles_localhost_is_not_trusted(self):
        """Issue 12, item 13: a name that was made to point here (DNS rebinding) may begin as it likes."""
        server = self.serve(listen="localhost:0")
        for host in ("127.evil.example", "127.0.0.1.evil.example", "[::1].evil", "[::1]evil:80", "[::1", "[127.0.0.1]",
                     "127.0.0.1:80.evil", "127.0.0.1:evil", "localhost.evil", "localhost:x", "127.1", "0x7f.1", "2130706433", "0.0.0.0",
                     "[::]", "[::2]", "10.0.0.1", "localhost..", "127.0.0.1.", "x" * 300, ":80"):
            for headers in ({"Host": host}, {"Host": host, "Origin": "http://" + host}):
                for path in ("/v1/locks", "/v1/events", "/v1/live", "/metrics"):
                    self.assertEqual(server.get(path, headers=headers, check=False).status, 403, headers)
            answer = server.post("/v1/acquire", {"key": "k", "locked_by": "page"}, headers={"Host": host}, check=False)
            self.assertEqual(answer.error["code"], "wrong_host")
        for host in ("127.0.0.1", "127.255.0.9:1", "LocalHost", "localhost.", "localhost.:7420", "[::1]", "[::1]:7420",
                     "[0:0::1]", "[::ffff:127.0.0.1]"):
            self.assertEqual(server.get("/v1/locks", headers={"Host": host}).status, 200, host)
            self.assertEqual(server.get("/v1/locks", headers={"Host": host, "Origin": f"http://{host}"}).status, 200, host)
        self.assertEqual(server.get("/healthz", headers={"Host": "evil.example"}).status, 200)

    def test_requests_for_a_name_that_the_server_listens_on_are_accepted(self):
        name = socket.gethostname()
        try:
            is_local = socket.gethostbyname(name).startswith("127.")
        except OSError:
            is_local = False
        if not is_local:
            self.skipTest(f"{name} is not an address of this machine alone")
        server = self.serve(listen=f"{name}:0")
        self.assertEqual(server.get("/v1/locks", headers={"Host": name}).status, 200)
        self.assertEqual(server.get("/v1/locks", headers={"Host": name + ".evil"}).status, 403)

    def test_with_tokens_any_host_name_is_accepted(self):
        server = self.serve(config=self.config_with(TOKENS))
        answer = server.get("/v1/locks", token="secret-reader", headers={"Host": "locks.example"})
        self.assertEqual(answer.status, 200)


if __name__ == "__main__":
    assert BELAY
    main()
