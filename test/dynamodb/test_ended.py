"""A command that ends a lock returns the lock it ended, whatever holder follows (issue 12), on every layout."""
import os
import sys

from dynamo_support import DynamoCase, ROOT
from support import BELAY, main

sys.path.insert(0, os.path.join(ROOT, "test", "server"))
from server_support import Server  # noqa: E402

ABOVE = ("--stack", "s", "--environment", "e")
KEY = "stack:s:env:e:service:v"
LAYOUTS = ("belay", "chatops", "resource", "runvoy", "appregistry", "deployer")


class Ended:
    """A key with others above it is written by a transaction, which brings no item back."""

    PROXY = True

    def setUp(self):
        super().setUp()
        self.lock = self.ok("acquire", "--json", *ABOVE, "--service", "v", "--owner", "first", "--id", "one").json()

    def direct(self, *args, code=0):
        """Straight to the server, past the proxy."""
        result = self.belay(*args, env={"BELAY_STORE": self.url(port=self.port)})
        self.assertEqual(result.code, code, result)

    def meanwhile(self, *orders):
        """These commands, between the write of the next command and its answer."""
        self.proxy.reset()
        self.proxy.plan.operations, self.proxy.plan.delay, self.proxy.plan.delay_s = ("TransactWriteItems",), 1.0, 0.0
        self.proxy.meanwhile(lambda: [self.direct(*order) for order in orders])

    def next_one(self):
        return "acquire", KEY, "--owner", "second", "--id", "two"

    def check(self, lock, outcome):
        self.assertEqual((lock["key"], lock["lock_id"], lock["locked_by"], lock["status"], lock["outcome"]),
                         (KEY, "one", "first", "released", outcome))
        self.assertEqual((lock["token"], lock["locked_at"], lock["expires_in_ms"]),
                         (self.lock["token"], self.lock["locked_at"], 0))
        self.assertEqual(self.ok("status", "--json", KEY).json()["lock_id"], "two")

    def test_a_release_answers_with_what_it_released(self):
        self.meanwhile(self.next_one())
        self.check(self.ok("release", KEY, "--id", "one", "--json").json(), "completed")

    def test_an_unlock_answers_with_what_it_ended(self):
        self.meanwhile(self.next_one())
        self.check(self.ok("unlock", KEY, "--force", "--yes", "--json").json(), "forced")

    def test_the_result_is_the_same_if_no_client_took_the_lock(self):
        for command, outcome in ((("release", "--id", "one"), "completed"), (("unlock", "--force", "--yes"), "forced")):
            with self.subTest(command):
                lock = self.ok(command[0], KEY, *command[1:], "--json").json()
                self.assertEqual((lock["lock_id"], lock["locked_by"], lock["status"], lock["outcome"], lock["token"]),
                                 ("one", "first", "released", outcome, self.lock["token"]))
                self.setUp()

    def test_it_costs_two_requests(self):
        self.proxy.reset()
        self.ok("release", KEY, "--id", "one")
        self.assertEqual(self.proxy.counts(), {"BatchGetItem": 1, "TransactWriteItems": 1})

    def test_the_next_clients_lock_is_not_released(self):
        """L3"""
        self.direct("release", KEY, "--id", "one")
        self.direct(*self.next_one())
        self.assertIn("second", self.fails(77, "release", KEY, "--id", "one").err)
        self.assertEqual(self.ok("status", "--json", KEY).json()["lock_id"], "two")

    def test_a_renewal_after_a_forced_unlock_does_not_renew_the_next_lock(self):
        """L3, L6"""
        self.meanwhile(("unlock", KEY, "--force", "--yes"), self.next_one())
        result = self.belay("renew", KEY, "--id", "one", "--ttl", "10m", "--json")
        self.assertEqual((result.code, "second" in result.err), (77, True), result)

    def test_an_adoption_that_was_overtaken_by_force_is_none(self):
        self.meanwhile(("unlock", KEY, "--force", "--yes"), self.next_one())
        result = self.belay("run", "--adopt", "one", "--ttl", "10m", KEY, "--", "touch", str(self.dir / "ran"))
        self.assertEqual(result.code, 77, result)
        self.assertFalse((self.dir / "ran").exists())


class Twice:
    """L3, S1.3: releasing twice is not an error until another client takes the lock, on every store."""

    KEYS = ("build-router-plt", KEY)

    def test_it_is_a_success_with_what_is_known(self):
        for key in self.KEYS:
            with self.subTest(key):
                lock = self.ok("acquire", "--json", key).json()
                self.ok("release", key, "--id", lock["lock_id"])
                again = self.ok("release", key, "--id", lock["lock_id"], "--json").json()
                self.assertEqual((again["key"], again["lock_id"], again["status"], again["expires_in_ms"]),
                                 (key, lock["lock_id"], "released", 0))
                self.assertIn(again["locked_by"], (lock["locked_by"], None))  # and never ""
                if self.FORGETS:
                    self.assertEqual([again[name] for name in ("token", "locked_by", "locked_by_name", "outcome", "locked_at",
                                                               "expires_at", "ttl_ms")], [None] * 7)
                self.assertEqual(self.ok("release", key, "--id", lock["lock_id"]).out, f"Released '{key}'\n")

    def test_the_next_clients_lock_is_kept(self):
        for key in self.KEYS:
            with self.subTest(key):
                lock = self.ok("acquire", "--json", key).json()
                self.ok("release", key, "--id", lock["lock_id"])
                self.ok("acquire", key, "--owner", "second", "--id", "two")
                self.assertIn("second", self.fails(77, "release", key, "--id", lock["lock_id"]).err)
                self.assertEqual(self.ok("status", key, "--json").json()["lock_id"], "two")

    def test_an_unknown_lock_counts_as_released_where_no_record_is_kept(self):
        for key in self.KEYS:
            self.assertEqual(self.belay("release", key, "--id", "x").code, 0 if self.FORGETS else 66)
            self.fails(66, "status", key)
            self.fails(66, "unlock", key, "--force", "--yes")
            self.assertEqual(self.belay("renew", key, "--id", "x", "--ttl", "10m").code, 66)

    def test_a_command_that_released_its_lock_itself_keeps_its_exit_code(self):
        script = f"{BELAY} release \"$BELAY_KEY\" --id \"$BELAY_LOCK_ID\"; exit 3"
        self.fails(3, "run", self.KEYS[0], "--", "sh", "-c", script)

    def test_no_event_is_sent_twice(self):
        """L9: a release that ended nothing is no event."""
        config = self.dir / "audit.yaml"
        config.write_text(f"audit: {{file: '{self.dir}/audit.jsonl'}}\n")
        self.env["BELAY_CONFIG"] = str(config)
        lock = self.acquire(self.KEYS[0])
        for _ in range(2):
            self.ok("release", self.KEYS[0], "--id", lock["lock_id"])
        self.assertEqual(self.events(self.KEYS[0]), ["lock.acquired", "lock.released"])

    def test_it_is_the_same_through_a_server(self):
        server = Server(self)
        for key in self.KEYS:
            with self.subTest(key):
                body = {"key": key, "locked_by": "me", "locked_by_name": "me@example.com", "ttl_ms": 60000, "lock_id": "one"}
                self.assertEqual(server.call("POST", "/v1/acquire", body, check=False).status, 200)
                for _ in range(2):
                    answer = server.call("POST", "/v1/release", {"key": key, "lock_id": "one"}, check=False)
                    self.assertEqual((answer.status, answer.json()["status"], answer.json()["lock_id"]), (200, "released", "one"))
                self.ok("release", key, "--id", "one", env={"BELAY_STORE": server.url})


for layout in LAYOUTS:
    globals()[layout.title()] = type(layout.title(), (Ended, DynamoCase), {"LAYOUT": layout})
    globals()["Twice" + layout.title()] = type("Twice" + layout.title(), (Twice, DynamoCase), {
        "LAYOUT": layout, "FORGETS": layout in ("resource", "appregistry", "deployer")})


if __name__ == "__main__":
    main()
