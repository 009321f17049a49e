"""No step of a wall clock ends or prolongs a lease (L7, S1.8, S2.9): +2 h and -2 h cannot take a live lock."""

import glob
import unittest

from support import BelayCase, main, wait_until

FAKETIME = next(iter(glob.glob("/usr/lib/*/faketime/libfaketime.so.1")), None)


@unittest.skipIf(FAKETIME is None, "libfaketime is not installed")
class WallClock(BelayCase):
    def moved(self, offset):
        """The environment of a process whose wall clock is off; the other clocks are untouched."""
        options = self.env.get("ASAN_OPTIONS", "")
        return {"LD_PRELOAD": FAKETIME, "FAKETIME": offset, "FAKETIME_DONT_FAKE_MONOTONIC": "1",
                "ASAN_OPTIONS": f"verify_asan_link_order=0:detect_leaks=0:{options}", "FAKETIME_NO_CACHE": "1"}

    def test_the_clock_really_is_moved(self):
        self.acquire("k")
        lock = self.ok("acquire", "other", "--json", env=self.moved("+2h")).json()
        here = self.ok("status", "k", "--json").json()
        self.assertGreater(lock["locked_at"], here["expires_at"])

    def test_a_live_lock_cannot_be_taken_from_another_time(self):
        lock = self.acquire("k", "--ttl", "30m")
        for offset in ("+2h", "-2h"):
            with self.subTest(offset):
                self.fails(75, "acquire", "k", env=self.moved(offset))
                seen = self.ok("status", "k", "--json", env=self.moved(offset)).json()
                self.assertEqual((seen["status"], seen["lock_id"]), ("active", lock["lock_id"]))
                self.assertTrue(29 * 60000 < seen["expires_in_ms"] <= 30 * 60000, seen)

    def test_a_lock_taken_in_another_time_ends_in_ours(self):
        for offset in ("+2h", "-2h"):
            key = f"k{offset}"
            self.ok("acquire", key, "--ttl", "300ms", env=self.moved(offset))
            wait_until(lambda: self.belay("acquire", key).code == 0)
            self.ok("acquire", f"live{offset}", "--ttl", "30m", env=self.moved(offset))
            self.fails(75, "acquire", f"live{offset}")

    def test_the_holder_renews_and_releases_across_times(self):
        lock = self.acquire("k")
        self.ok("renew", "k", "--id", lock["lock_id"], env=self.moved("+2h"))
        self.ok("release", "k", "--id", lock["lock_id"], env=self.moved("-2h"))


if __name__ == "__main__":
    main()
