"""What a command that ends a lock answers with: the lock it ended, whoever has it since (issue 12), on every layout."""
from dynamo_support import DynamoCase
from support import main

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

    def test_it_is_the_same_if_nobody_came(self):
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

    def test_what_is_the_next_ones_is_not_released(self):
        """L3"""
        self.direct("release", KEY, "--id", "one")
        self.direct(*self.next_one())
        self.assertIn("second", self.fails(77, "release", KEY, "--id", "one").err)
        self.assertEqual(self.ok("status", "--json", KEY).json()["lock_id"], "two")

    def test_a_renewal_that_was_overtaken_by_force_is_no_renewal_of_the_next_ones_lock(self):
        """L3, L6"""
        self.meanwhile(("unlock", KEY, "--force", "--yes"), self.next_one())
        result = self.belay("renew", KEY, "--id", "one", "--ttl", "10m", "--json")
        self.assertEqual((result.code, "second" in result.err), (77, True), result)

    def test_an_adoption_that_was_overtaken_by_force_is_none(self):
        self.meanwhile(("unlock", KEY, "--force", "--yes"), self.next_one())
        result = self.belay("run", "--adopt", "one", "--ttl", "10m", KEY, "--", "touch", str(self.dir / "ran"))
        self.assertEqual(result.code, 77, result)
        self.assertFalse((self.dir / "ran").exists())


for layout in LAYOUTS:
    globals()[layout.title()] = type(layout.title(), (Ended, DynamoCase), {"LAYOUT": layout})


if __name__ == "__main__":
    main()
