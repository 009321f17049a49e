"""A machine whose clock is wrong (L1, L7; issue 3: on any layout it cannot take a live lock, and is told why)."""
import time
import unittest

from dynamo_support import FAKETIME, DynamoCase
from support import main, wait_until

KEYS = {"chatops": "build-router-plt"}


@unittest.skipIf(FAKETIME is None, "libfaketime is not installed")
class Skew:
    """The tests; each layout below is a case."""

    def setUp(self):
        super().setUp()
        self.key = KEYS.get(self.LAYOUT, "k")

    def refused(self, offset, *args):
        result = self.fails(78, *args, env=self.moved(offset))
        ahead = offset.startswith("+")
        self.assertRegex(result.err.splitlines()[0],
                         r"^belay: .*clock is 1m (2[6-9]|30)s " + ("ahead of" if ahead else "behind") + " DynamoDB's")
        self.assertIn("max_clock_skew", result.err)

    def test_cannot_take_a_live_lock(self):
        self.acquire(self.key, "--ttl", "1m")
        before = self.db.items(self.table)
        for offset in ("+90s", "-90s"):
            result = self.belay("acquire", self.key, env=self.moved(offset))
            self.assertIn(result.code, (75, 78), result)
            self.assertIn("clock is 1m ", result.err)
        self.assertEqual(self.db.items(self.table), before)

    def test_does_not_keep_a_free_lock_either(self):
        """A success that shows it is undone."""
        for offset in ("+90s", "-90s"):
            self.refused(offset, "acquire", self.key)
            status = self.belay("status", self.key, "--json")
            self.assertTrue(status.code == 66 or status.json()["status"] == "released", status)
        self.acquire(self.key)

    def test_does_not_run_the_command(self):
        self.refused("+90s", "run", self.key, "--", "touch", str(self.dir / "ran"))
        self.assertFalse((self.dir / "ran").exists())
        self.ok("run", self.key, "--", "true")

    def test_may_be_off_by_less_than_is_allowed(self):
        env = {**self.moved("+90s"), "BELAY_STORE": self.url("max_clock_skew=2m")}
        self.ok("acquire", self.key, "--ttl", "10m", env=env)
        self.fails(75, "acquire", self.key, env={"BELAY_STORE": self.url("max_clock_skew=2m")})


class Native(Skew, DynamoCase):
    def test_a_second_is_not_worth_a_word(self):
        self.ok("acquire", self.key, env=self.moved("+1s"))
        self.assertEqual(self.fails(75, "acquire", self.key, env=self.moved("-1s")).err.count("clock"), 0)

    def test_the_holder_still_ends_its_lock_but_does_not_renew_it(self):
        """A wrong clock may not write a lease; ending one needs no clock."""
        lock = self.acquire(self.key)
        renewed = self.belay("renew", self.key, "--id", lock["lock_id"], env=self.moved("+90s"))
        self.assertIn(renewed.code, (0, 78), renewed)
        left = self.ok("status", self.key, "--json").json()["expires_in_ms"]
        self.assertLess(left, 602000)  # not a second more than the store's clock allows
        self.ok("release", self.key, "--id", lock["lock_id"], env=self.moved("-90s"))

    def test_a_step_of_the_clock_does_not_end_a_running_command(self):
        """L7: libfaketime reads its offset again, so the clock steps while the command runs."""
        rc = self.dir / "faketime"
        rc.write_text("+0s\n")
        env = {**self.moved(""), "FAKETIME_TIMESTAMP_FILE": str(rc), "FAKETIME_UPDATE_TIMESTAMP_FILE": "0"}
        del env["FAKETIME"]
        process = self.start("run", "--ttl", "6s", "--heartbeat", "1s", self.key, "--", "sleep", "8", env=env)
        wait_until(lambda: self.item(self.key))
        rc.write_text("+2h\n")
        time.sleep(3)
        left = self.ok("status", self.key, "--json").json()["expires_in_ms"]
        self.assertLess(left, 10000)
        self.fails(75, "acquire", self.key)
        _, err = process.communicate(timeout=30)
        self.assertEqual(process.returncode, 0, err)


class Observing(DynamoCase):
    """?observe=1 trusts no clock: a record that does not change for its whole lease may be taken."""

    EXTRA = "observe=1"

    @unittest.skipIf(FAKETIME is None, "libfaketime is not installed")
    def test_a_wrong_clock_is_no_matter_and_takes_nothing_that_lives(self):
        lock = self.acquire("k", "--ttl", "1m")
        for offset in ("+90s", "-90s"):
            self.fails(75, "acquire", "k", env=self.moved(offset))
        self.ok("release", "k", "--id", lock["lock_id"], env=self.moved("+90s"))
        self.ok("acquire", "k", env=self.moved("-90s"))

    def test_a_one_shot_process_finishes_what_an_earlier_one_began(self):
        self.acquire("k", "--ttl", "5s")
        began = time.monotonic()
        self.fails(75, "acquire", "k")
        wait_until(lambda: self.belay("acquire", "k").code == 0, patience=25)
        self.assertGreater(time.monotonic() - began, 5)


class ServersClock(DynamoCase):
    PROXY = True

    def test_a_server_whose_date_is_off_is_the_same(self):
        self.acquire("k", "--ttl", "1m")
        self.proxy.plan.date_shift_s = 3600
        result = self.belay("acquire", "k")
        self.assertIn(result.code, (75, 78))
        self.assertRegex(result.err, "clock is (59m 5\\ds|1h).* behind")
        self.proxy.plan.date_shift_s = 0
        self.fails(75, "acquire", "k")


for layout in ("chatops", "resource", "runvoy", "appregistry", "deployer"):
    globals()[layout.title()] = type(layout.title(), (Skew, DynamoCase), {"LAYOUT": layout})


if __name__ == "__main__":
    main()
