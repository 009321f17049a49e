"""belay stats: numbers from a history of which every number is known (S4.14)."""

from stats_support import BUILD, DAY, DAYS, DEPLOY, MONDAY, TOTAL, group, plant
from support import BelayCase, main


class Stats(BelayCase):
    def setUp(self):
        super().setUp()
        # A month is not enough for a history of another year.
        self.store += "?retain_events=36500d"
        self.env["BELAY_STORE"] = self.store
        self.store = self.store.partition("?")[0]

    def stats(self, *args):
        return self.ok("stats", "--json", *args).json()

    def test_the_whole_history_is_counted(self):
        plant(self)
        stats = self.stats()
        until = stats.pop("until")
        self.assertEqual(stats, {"key": None, "prefix": None, "by": None, "from": "2026-07-06T00:00:01.000Z",
                                 "oldest_event": "2026-07-06T00:00:01.000Z", "events": 15, "total": TOTAL, "groups": []})
        self.assertRegex(until, r"^20\d\d-\S+Z$")

    def test_by_day_by_key_and_by_profile(self):
        plant(self)
        for by, groups in (("day", DAYS), ("key", [BUILD, DEPLOY]),
                           ("profile", [{**BUILD, "name": ""}, {**DEPLOY, "name": "deploy"}])):
            stats = self.stats("--by", by)
            self.assertEqual((stats["by"], stats["total"], stats["groups"]), (by, TOTAL, groups))

    def test_one_lock_or_a_prefix(self):
        plant(self)
        for args, total in ((["build-1"], BUILD), (["--prefix", "deploy-"], DEPLOY),
                            (["--profile", "deploy", "--component", "api", "--environment", "prod"], DEPLOY)):
            self.assertEqual(self.stats(*args)["total"], {**total, "name": None}, args)
        self.assertEqual(self.stats("build-1")["key"], "build-1")

    def test_since_a_time(self):
        plant(self)
        stats = self.stats("--since", "2026-07-07T00:00:00Z")
        self.assertEqual((stats["from"], stats["total"]), ("2026-07-07T00:00:00.000Z", {**DAYS[1], "name": None}))
        self.assertEqual(stats["oldest_event"], "2026-07-06T00:00:01.000Z")

    def test_since_a_duration(self):
        plant(self)
        lock = self.acquire("now")
        self.ok("release", "now", "--id", lock["lock_id"])
        stats = self.stats("--since", "1h", "--by", "key")
        self.assertEqual([one["name"] for one in stats["groups"]], ["now"])
        self.assertEqual((stats["total"]["acquired"], stats["total"]["held"]["count"]), (1, 1))

    def test_as_text(self):
        plant(self)
        out = self.ok("stats").out
        self.assertRegex(out, r"^locks         all\nperiod        2026-07-06T00:00:01Z to 20\S+Z \(.*\), all that the "
                              r"history has\n")
        self.assertTrue(out.endswith("acquired      5\nreleased      3\nrefused       1\ntaken over    1\nforced        1\n"
                                     "lost          1\n"
                                     "held          median 20s, 90% within 40s, longest 40s (4 holds)\n"
                                     "waited        median 500ms, 90% within 19s, longest 19s (2 waits)\n"), out)
        self.assertIn("(1 hold)\nwaited        median 500ms, 90% within 500ms, longest 500ms (1 wait)\n",
                      self.ok("stats", "deploy-api-prod").out)

    def test_as_a_table(self):
        plant(self)
        self.assertEqual(self.ok("stats", "--by", "day").out.split("\n\n")[1].splitlines(), [
            "DAY         ACQUIRED  REFUSED  TAKEN OVER  FORCED  LOST  HELD P50  HELD P90  HELD MAX  WAITS  WAIT P50  "
            "WAIT P90  WAIT MAX",
            "2026-07-06  4         1        0           1       1     20s       30s       30s       1      19s       "
            "19s       19s",
            "2026-07-07  1         0        1           0       0     40s       40s       40s       1      500ms     "
            "500ms     500ms",
            "total       5         1        1           1       1     20s       40s       40s       2      500ms     "
            "19s       19s"])
        table = self.ok("stats", "--by", "profile").out
        self.assertRegex(table, r"\n\(none\) +3 .*\ndeploy +2 .*\ntotal +5 ")

    def test_columns_without_numbers_are_left_out(self):
        plant(self, [(1, "lock.acquired", "k", None), (2, "lock.released", "k", 1)])
        self.assertIn("KEY    ACQUIRED  REFUSED  HELD P50  HELD P90  HELD MAX\nk      1         0        1s ",
                      self.ok("stats", "--by", "key").out)

    def test_it_says_where_the_history_begins(self):
        plant(self)
        result = self.ok("stats", "--since", "2020-01-01T00:00:00Z")
        self.assertIn("belay: the history begins only at 2026-07-06T00:00:01Z: older events are not kept\n", result.err)
        self.assertIn("period        2026-07-06T00:00:01Z to ", result.out)
        self.assertEqual(self.ok("stats", "--since", "2026-07-07T00:00:00Z").err, "")

    def test_without_events_there_is_no_data_yet(self):
        result = self.ok("stats")
        self.assertRegex(result.err, "^belay: no data yet: sqlite:.* has no events\n$")
        self.assertEqual(result.out, "")
        stats = self.stats()
        self.assertEqual((stats["from"], stats["oldest_event"], stats["total"]),
                         (None, None, group(None, 0, 0, 0, 0, 0, 0, [], [])))
        plant(self)
        result = self.ok("stats", "nix")
        self.assertIn("no events of these locks", result.err)
        self.assertIn("held          no data yet\n", result.out)

    def test_ends_without_a_beginning_and_clocks_that_were_set(self):
        plant(self, [(100, "lock.released", "k", 5), (50, "lock.released", "k", -3), (-10 * DAY, "wait.ended", "k", 2),
                     (60, "lock.acquired", "k", None), (40000 * DAY, "lock.acquired", "k", None)])
        stats = self.stats("--by", "day")
        self.assertEqual(stats["total"], group(None, 2, 2, 0, 0, 0, 0, [5000], [2000]))
        self.assertEqual([one["name"] for one in stats["groups"]], ["2026-06-26", "2026-07-06", "2136-01-11"])

    def test_a_long_history_of_many_keys(self):
        """At most a thousand rows, and one for all others."""
        plant(self, [(i, "lock.released", f"key-{i % 1500:04}", i % 7) for i in range(30000)])
        stats = self.stats("--by", "key")
        self.assertEqual((stats["events"], stats["total"]["released"], len(stats["groups"])), (30000, 30000, 1001))
        self.assertEqual((stats["groups"][-1]["name"], stats["groups"][-1]["released"]), (None, 10000))
        self.assertIn("\n(others) ", self.ok("stats", "--by", "key").out)

    def test_wrong_input_is_named(self):
        for args, why in ((["--since", "soon"], "--since 'soon' is neither a duration nor a time: write it as 7d"),
                          (["--since", "-1d"], "--since"), (["--by", "week"], "--by 'week' is not one of day|profile|key"),
                          (["k", "--prefix", "p"], "'k' and --prefix exclude each other"),
                          (["a\nb"], "control"), (["a", "b"], "b")):
            result = self.fails(64, "stats", *args)
            self.assertIn(why, result.err)
            self.assertEqual(result.out, "")


if __name__ == "__main__":
    main()
