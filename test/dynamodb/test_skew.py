"""A machine with a wrong clock (L1, L7; issue 3: on any layout it cannot take a live lock, and learns why)."""
import time
import unittest

from dynamo_support import FAKETIME, DynamoCase
from proxy import Plan, Proxy
from support import main, wait_until

KEYS = {"chatops": "build-router-plt"}
HOUR = 3600 * 1000


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

    def test_a_wrong_clock_cannot_take_a_live_lock(self):
        self.acquire(self.key, "--ttl", "1m")
        before = self.db.items(self.table)
        for offset in ("+90s", "-90s"):
            result = self.belay("acquire", self.key, env=self.moved(offset))
            self.assertIn(result.code, (75, 78), result)
            self.assertIn("clock is 1m ", result.err)
        self.assertEqual(self.db.items(self.table), before)

    def test_a_wrong_clock_does_not_keep_a_free_lock(self):
        """A success that shows it is undone."""
        for offset in ("+90s", "-90s"):
            self.refused(offset, "acquire", self.key)
            status = self.belay("status", self.key, "--json")
            self.assertTrue(status.code == 66 or status.json()["status"] == "released", status)
        self.acquire(self.key)

    def test_a_wrong_clock_does_not_run_the_command(self):
        self.refused("+90s", "run", self.key, "--", "touch", str(self.dir / "ran"))
        self.assertFalse((self.dir / "ran").exists())
        self.ok("run", self.key, "--", "true")

    def test_a_clock_may_be_off_by_less_than_the_limit(self):
        env = {**self.moved("+90s"), "BELAY_STORE": self.url("max_clock_skew=2m")}
        self.ok("acquire", self.key, "--ttl", "10m", env=env)
        self.fails(75, "acquire", self.key, env={"BELAY_STORE": self.url("max_clock_skew=2m")})


    def left_behind(self, offset, *args, extra="max_clock_skew=1h"):
        """Killed before the answer to its first write: how long what it leaves behind still lasts, in ms; None: nothing."""
        with Proxy(self.port) as proxy:
            proxy.plan = Plan(drop=1.0)
            process = self.start(*args, env={**self.moved(offset), "BELAY_STORE": self.url(extra, port=proxy.port)})
            wait_until(lambda: proxy.requests() or process.poll() is not None)
            wait_until(lambda: process.poll() is not None or proxy.requests()[-1].status)
            process.kill()
            process.communicate()
            self.writes = [one.operation for one in proxy.requests()]
        status = self.belay("status", self.key, "--json")
        return None if status.code == 66 else status.json()["expires_in_ms"]

    def test_a_process_killed_before_its_first_answer_leaves_no_lease_of_its_own_clock(self):
        """L4, L7: the first write of a process says when it ends by the service's clock, or is not sent."""
        for offset in ("+50m", "-50m"):
            with self.subTest(offset):
                left = self.left_behind(offset, "acquire", self.key, "--ttl", "9h")
                self.assertEqual(len(self.writes), 1)
                self.assertLess(abs(left - 9 * HOUR), 30000)
                self.ok("unlock", self.key, "--force", "--yes")
                left = self.left_behind(offset, "acquire", self.key, "--ttl", "10s", extra="max_clock_skew=2s")
                self.assertEqual(self.writes, [])

    def test_a_process_killed_before_the_answer_to_a_renewal_leaves_no_lease_of_its_own_clock(self):
        env = {"BELAY_STORE": self.url("max_clock_skew=1h")}
        for offset in ("+50m", "-50m"):
            with self.subTest(offset):
                lock = self.ok("acquire", "--json", self.key, "--ttl", "9h", env=env).json()
                left = self.left_behind(offset, "renew", self.key, "--id", lock["lock_id"], "--ttl", "10h")
                self.assertEqual(len(self.writes), 1)
                self.assertLess(abs(left - 10 * HOUR), 30000)
                self.ok("release", self.key, "--id", lock["lock_id"])


class Native(Skew, DynamoCase):
    def test_a_waiter_killed_before_its_answer_blocks_no_longer_than_its_ticket(self):
        """A dead waiter is in the way for the life of its ticket, and not for an hour more."""
        self.ok("acquire", self.key, "--ttl", "9h")
        with Proxy(self.port) as proxy:
            proxy.next(None, "drop")  # the try; the ticket
            env = {**self.moved("+50m"), "BELAY_STORE": self.url("max_clock_skew=1h", port=proxy.port)}
            process = self.start("acquire", "--wait", "1m", "--ttl", "9h", self.key, env=env)
            wait_until(lambda: "waiting" in self.item(self.key))
            process.kill()
            process.communicate()
        item = self.item(self.key)
        ticket = item["ticket#" + item["waiting"]["SS"][0]]["M"]
        self.assertLess(abs(int(ticket["expires_at"]["N"]) / 1000 - time.time() - 48), 10)

    def test_a_process_killed_before_the_answer_leaves_no_intent_of_its_own_clock(self):
        args = ("acquire", "--stack", "s", "--environment", "e", "--service", "v", "--ttl", "9h")
        for offset in ("+50m", "-50m"):
            with self.subTest(offset):
                self.left_behind(offset, *args)
                above = self.item("stack:s:env:e")
                intent = above["intent#" + above["intents"]["SS"][0]]["M"]
                self.assertLess(abs(int(intent["expires_at"]["N"]) - time.time() * 1000 - 9 * HOUR), 30000)
                self.ok("unlock", "stack:s:env:e:service:v", "--force", "--yes")

    def test_an_expired_lease_is_not_renewed_by_a_clock_that_is_behind(self):
        """L3: the renewal is judged by the service's time before it is sent."""
        lock = self.acquire(self.key, "--ttl", "5s")
        self.change(self.key, expires_at={"N": str(int(time.time() * 1000) - 60000)})
        before = self.item(self.key)
        env = {**self.moved("-50m"), "BELAY_STORE": self.url("max_clock_skew=1h")}
        self.fails(77, "renew", self.key, "--id", lock["lock_id"], "--ttl", "9h", env=env)
        self.assertEqual(self.item(self.key), before)

    def test_a_skew_of_one_second_is_not_reported(self):
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
        rc.write_text("+5m\n")  # libfaketime moves timers too, and one before the boot never fires: less than the uptime
        time.sleep(3)
        left = self.ok("status", self.key, "--json").json()["expires_in_ms"]
        self.assertLess(left, 10000)
        self.fails(75, "acquire", self.key)
        _, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 0, err)


class RunvoyReleases(DynamoCase):
    """A release there sets the expiry into the past, for programs that read nothing else: the service's past."""

    LAYOUT = "runvoy"

    @unittest.skipIf(FAKETIME is None, "libfaketime is not installed")
    def test_runvoy_releases_end_the_lock_at_once_whatever_the_local_clock(self):
        for offset in ("+50m", "-50m"):
            for end in (("release", "k", "--id"), ("unlock", "k", "--force", "--yes")):
                with self.subTest(offset=offset, end=end[0]):
                    lock = self.acquire("k", "--ttl", "10m")
                    args = (*end, lock["lock_id"]) if end[-1] == "--id" else end
                    self.ok(*args, env=self.moved(offset))
                    self.assertLess(abs(int(self.item("k")["expires_at"]["N"]) - time.time()), 10)


class Observing(DynamoCase):
    """?observe=1 trusts no clock: a record that does not change for its whole lease may be taken."""

    EXTRA = "observe=1"

    @unittest.skipIf(FAKETIME is None, "libfaketime is not installed")
    def test_a_wrong_clock_does_no_harm_and_takes_no_held_lock(self):
        lock = self.acquire("k", "--ttl", "1m")
        for offset in ("+90s", "-90s"):
            self.fails(75, "acquire", "k", env=self.moved(offset))
        self.ok("release", "k", "--id", lock["lock_id"], env=self.moved("+90s"))
        self.ok("acquire", "k", env=self.moved("-90s"))

    def test_a_process_continues_the_observation_of_an_earlier_one(self):
        self.acquire("k", "--ttl", "5s")
        began = time.monotonic()
        self.fails(75, "acquire", "k")
        wait_until(lambda: self.belay("acquire", "k").code == 0)
        self.assertGreater(time.monotonic() - began, 5)


class ServersClock(DynamoCase):
    PROXY = True

    def test_a_time_that_cannot_be_asked_for_means_that_nothing_happened(self):
        """Not 74: without the time nothing was written."""
        self.proxy.plan.drop, self.proxy.plan.harms_dates = 1.0, True
        self.fails(69, "acquire", "k")
        self.assertLessEqual(self.proxy.counts().keys(), {"GetItem"})  # it may look
        self.assertIsNone(self.item("k"))
        self.proxy.plan.drop, self.proxy.plan.cut_after = 0.0, 1.0
        self.fails(69, "acquire", "k")
        self.assertLessEqual(self.proxy.counts().keys(), {"GetItem"})

    def test_a_refused_request_is_enough_to_learn_the_time(self):
        for harm in ("throttle", "error_before", "error_after"):
            with self.subTest(harm):
                self.proxy.plan = Plan(operations=("date",), harms_dates=True, **{harm: 1.0})
                self.acquire(harm)

    def test_answers_without_a_date_are_reported(self):
        self.proxy.plan.without_date = True
        result = self.fails(78, "acquire", "k")
        self.assertIn("no Date", result.err)
        self.assertIsNone(self.item("k"))
        self.ok("acquire", "k", env={"BELAY_STORE": self.url("observe=1")})

    def test_a_server_with_a_wrong_date_is_handled_the_same_way(self):
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
