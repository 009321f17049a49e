"""Freezes on DynamoDB, where the store's URL says freezes=on: a read before each acquisition, and nothing without it."""
import os
import subprocess
import sys
import threading
import time
import unittest

from dynamo_support import FAKETIME, DynamoCase, ROOT
from support import BELAY, main, wait_until

sys.path.insert(0, os.path.join(ROOT, "test", "server"))
from server_support import Server  # noqa: E402


class Frozen(DynamoCase):
    PROXY = True
    EXTRA = "freezes=on"

    def test_new_acquisitions_are_refused_and_holders_keep_theirs(self):
        lock = self.acquire("k-1")
        self.ok("freeze", "k-*", "--reason", "Black Friday", "--until", "2099-11-28T00:00:00Z")
        error = self.fails(75, "acquire", "k-2", "--json").error()
        self.assertEqual(error["code"], "frozen")
        self.assertIn("frozen until 2099-11-28T00:00:00Z by", error["message"])
        self.ok("renew", "k-1", "--id", lock["lock_id"])
        self.assertEqual(self.acquire("k-1", "--id", lock["lock_id"])["token"], lock["token"])
        self.ok("release", "k-1", "--id", lock["lock_id"])
        self.fails(75, "acquire", "k-1")
        self.acquire("k-3", "--ignore-freeze", "--reason", "hotfix")
        self.acquire("other")
        self.assertEqual([f["pattern"] for f in self.ok("freezes", "--json").json()["freezes"]], ["k-*"])
        self.assertEqual(self.ok("list", "--quiet").out.split(), ["k-3", "other"])  # the item is no lock
        self.ok("unfreeze", "k-*")
        self.acquire("k-1")

    def test_it_costs_one_read_for_each_acquisition_and_none_for_the_rest(self):
        self.proxy.reset()
        lock = self.acquire("k")
        self.assertEqual(self.proxy.counts(), {"GetItem": 1, "UpdateItem": 1})
        self.ok("release", "k", "--id", lock["lock_id"])
        self.assertEqual(self.proxy.counts(), {"GetItem": 1, "UpdateItem": 2})
        self.proxy.reset()
        self.acquire("q", "--ignore-freeze", "--reason", "x")
        self.assertEqual(self.proxy.counts(), {"UpdateItem": 1})

    def test_a_waiter_keeps_its_place_and_gets_the_lock(self):
        self.ok("freeze", "k", "--reason", "x")
        processes = []
        for i in range(2):
            processes.append(self.start("run", "k", "--wait", "90s", "--owner", f"w{i}", "--", "sh", "-c", f"echo w{i} >>order"))
            wait_until(lambda n=i: len((self.item("k") or {}).get("waiting", {}).get("SS", [])) > n, "a ticket")
        time.sleep(8)
        self.ok("unfreeze", "k")
        for process in processes:
            self.assertEqual(process.wait(60), 0, process.stderr.read())
        self.assertEqual((self.dir / "order").read_text().split(), ["w0", "w1"])

    def test_an_acquisition_that_begins_after_freeze_returned_is_refused(self):
        round_ = [0]
        stop, wrong = threading.Event(), []

        def hammer(name):
            while not stop.is_set():
                before = round_[0]
                code = subprocess.run([BELAY, "run", f"k-{name}", "--", "true"], env=self.env, capture_output=True).returncode
                if before % 2 == 1 and before == round_[0] and code != 75:
                    wrong.append(code)

        threads = [threading.Thread(target=hammer, args=(name,)) for name in "ab"]
        for thread in threads:
            thread.start()
        for _ in range(6):
            self.ok("freeze", "k-*", "--reason", "x")
            round_[0] += 1
            self.fails(75, "acquire", "k-c")
            round_[0] += 1
            self.ok("unfreeze", "k-*")
        stop.set()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])

    def test_a_server_over_the_table_refuses_too(self):
        server = Server(self)
        self.ok("freeze", "k", "--reason", "Black Friday")
        answer = server.acquire("k")
        self.assertEqual((answer.status, answer.error["code"]), (409, "frozen"), answer)
        waits = server.acquire_later("k", "w", wait_ms=25000, ttl_ms=90000)
        time.sleep(1)
        self.assertEqual(server.call("DELETE", "/v1/freezes/k").status, 200)
        self.assertEqual(waits.get().status, 200)

    @unittest.skipUnless(FAKETIME, "needs libfaketime")
    def test_a_freeze_that_is_in_force_by_either_clock_is_in_force(self):
        """The client's clock is ahead, or behind: the freeze begins by the first and ends by the last."""
        now = time.time()
        stamp = lambda s: time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now + s))  # noqa: E731
        store = {"BELAY_STORE": self.url("max_clock_skew=1h")}
        fake = lambda shift: {**store, "LD_PRELOAD": FAKETIME, "FAKETIME": shift, "FAKETIME_DONT_FAKE_MONOTONIC": "1",  # noqa: E731
                              "ASAN_OPTIONS": "verify_asan_link_order=0"}
        self.ok("freeze", "early", "--reason", "x", "--from", stamp(300), env=store)
        self.ok("acquire", "early", "--ttl", "3h", "--id", "a", env=store)
        self.ok("release", "early", "--id", "a", env=store)
        self.fails(75, "acquire", "early", "--ttl", "3h", env=fake("+10m"))
        self.ok("freeze", "late", "--reason", "x", "--for", "1s", env=store)
        time.sleep(2.5)
        self.fails(75, "acquire", "late", "--ttl", "3h", env=fake("-10m"))
        self.ok("acquire", "late", "--ttl", "3h", env=store)


class Without(DynamoCase):
    PROXY = True

    def test_freeze_is_refused_with_the_advice_to_switch_it_on_for_all(self):
        for args in (("freeze", "k", "--reason", "x"), ("unfreeze", "k"), ("freezes",)):
            self.assertIn("add freezes=on to the store's URL, for all clients", self.fails(64, *args).err)
        self.assertIn("must be on or off", self.fails(64, "freezes", env={"BELAY_STORE": self.url("freezes=1")}).err)

    def test_a_lock_costs_two_requests(self):
        self.proxy.reset()
        self.ok("run", "k", "--", "true")
        self.assertEqual(self.proxy.counts(), {"UpdateItem": 2})


class Foreign(DynamoCase):
    LAYOUT = "resource"

    def test_the_tables_of_other_programs_have_no_freezes(self):
        self.assertIn("would not obey a freeze", self.fails(64, "freeze", "k", "--reason", "x").err)
        self.assertIn("would not obey a freeze",
                      self.fails(64, "acquire", "k", env={"BELAY_STORE": self.url("freezes=on")}).err)


if __name__ == "__main__":
    main()
