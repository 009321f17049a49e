"""list, status, history, watch and config show (S2.7, S4.12, L9)."""

import json
import re
import select
import signal
import sqlite3
import unicodedata

from support import LOCK_FIELDS, BelayCase, main, wait_until

EVENT_FIELDS = {"timestamp", "level", "event", "lock_key", "lock_id", "locked_by", "metadata", "duration_seconds", "id",
                "token", "locked_by_name", "by", "reason"}


def width(text):
    return sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in text)


class List(BelayCase):
    def fill(self):
        self.acquire("active-1", "--owner-name", "alice")
        done = self.acquire("done")
        self.ok("release", "done", "--id", done["lock_id"], "--outcome", "failed")
        self.acquire("expired", "--ttl", "100ms")
        wait_until(lambda: self.ok("status", "--json", "expired").json()["status"] == "expired")

    def keys(self, *args):
        return [lock["key"] for lock in self.ok("list", "--json", *args).json()["locks"]]

    def test_it_shows_active_and_expired_locks_by_default(self):
        self.fill()
        self.assertEqual(self.keys(), ["active-1", "expired"])
        self.assertEqual(self.keys("--all"), ["active-1", "done", "expired"])
        for status, key in (("active", "active-1"), ("expired", "expired"), ("released", "done")):
            self.assertEqual(self.keys("--filter", f"status={status}"), [key])
        self.assertEqual(self.keys("--prefix", "act"), ["active-1"])
        self.assertEqual(self.keys("--stale"), [])
        self.fails(64, "list", "--filter", "status=gone")
        self.fails(64, "list", "--filter", "status=active", "--all")

    def test_locks_list_is_the_same(self):
        """S2.7"""
        self.fill()
        self.assertEqual(self.ok("locks", "list", "--filter", "status=active", "--json").json()["locks"][0]["key"],
                         "active-1")

    def test_json_is_one_document_and_pages(self):
        for n in range(5):
            self.acquire(f"k{n}")
        page = self.ok("list", "--json", "--limit", "2").json()
        self.assertEqual(list(page), ["locks", "next_cursor"])
        self.assertEqual(list(page["locks"][0]), LOCK_FIELDS)
        self.assertEqual(page["next_cursor"], "k1")
        page = self.ok("list", "--json", "--limit", "3", "--cursor", "k1").json()
        self.assertEqual(([lock["key"] for lock in page["locks"]], page["next_cursor"]), (["k2", "k3", "k4"], None))
        self.assertIn("--cursor k1", self.ok("list", "--limit", "2").err)

    def test_a_list_of_a_file_that_did_not_exist_says_so(self):
        store = f"sqlite:{self.dir}/mistyped.db"
        self.assertIn(f"belay: no locks in {store}, which did not exist and is created now", self.ok("list", "--store", store).err)
        self.assertNotIn("did not exist", self.ok("list", "--store", store).err)

    def test_an_empty_list_prints_a_hint(self):
        result = self.ok("list")
        self.assertEqual(result.out, "")
        self.assertIn(f"belay: no locks in {self.store}", result.err)
        self.assertIn("belay acquire KEY", result.err)
        self.assertEqual(self.ok("list", "--json").json(), {"locks": [], "next_cursor": None})
        self.assertEqual(self.ok("list", "--quiet").err, "")

    def test_quiet_prints_keys(self):
        self.acquire("b")
        self.acquire("a")
        self.assertEqual(self.ok("list", "--quiet").out, "a\nb\n")

    def test_it_fits_eighty_columns_on_a_terminal(self):
        self.acquire("stack:user-platform-with-a-long-name:env:production:service:payments", "--owner-name",
                     "github-actions-run-12345@runner-abcdefghij.example.com")
        self.acquire("日本語の鍵" * 8)
        self.acquire("k")
        for columns in (80, 100, 60):
            terminal = self.terminal("list", "--no-color", columns=columns)
            self.assertEqual(terminal.finish(), 0)
            lines = terminal.text.splitlines()
            self.assertEqual(len(lines), 4)
            self.assertEqual(lines[0].split(), ["KEY", "HOLDER", "AGE", "EXPIRES", "IN", "STATUS", "WAITING"])
            for line in lines:
                self.assertLessEqual(width(line), columns, line)
            self.assertEqual(len({width(line[:line.index(" active")]) for line in lines[1:]}), 1)
            self.assertIn("…", lines[2])

    def test_nothing_is_cut_when_it_is_piped(self):
        key = "long-" * 40
        self.acquire(key)
        self.assertIn(key, self.ok("list").out)

    def test_more_rows_than_a_batch_are_all_printed(self):
        self.acquire("key")
        database = sqlite3.connect(self.dir / "belay.db")
        columns = [row[1] for row in database.execute("PRAGMA table_info(locks)") if row[1] != "key"]
        names = ", ".join(columns)
        for n in range(700):
            database.execute(f"INSERT INTO locks (key, {names}) SELECT ?, {names} FROM locks WHERE key = 'key'",
                             (f"copy-{n:03}",))
        database.commit()
        database.close()
        lines = self.ok("list").out.splitlines()
        self.assertEqual(len(lines), 1 + 700 + 1)
        self.assertEqual(len(self.ok("list", "--json").json()["locks"]), 701)


class Hostile(BelayCase):
    """Content of the store must not control the terminal."""

    BAD = "x\x1b]0;owned\x07\x1b[2J\u202egnp\u0085\nbelay: fake"

    def setUp(self):
        super().setUp()
        self.acquire("k", "--owner-name", "MARKER", "--meta", "note=MARKER")
        database = sqlite3.connect(self.dir / "belay.db")
        database.execute("UPDATE locks SET owner_name = ?, owner = CAST(x'ff1b5b' AS TEXT)", (self.BAD,))
        database.execute("UPDATE locks SET metadata = replace(metadata, 'MARKER', ?)",
                         (json.dumps(self.BAD)[1:-1],))
        database.execute("UPDATE events SET locked_by_name = ?", (self.BAD,))
        database.commit()
        database.close()

    def test_control_characters_are_escaped_wherever_they_are_printed(self):
        for args in (["list"], ["status", "k"], ["history", "k"], ["state", "locks", "--stack", "a", "--environment", "b"]):
            result = self.ok(*args)
            self.assertNotRegex(result.out, "[\x00-\x09\x0b-\x1f\x7f\x80-\x9f\u202e]", args)
            self.assertNotIn("\nbelay: fake", result.out)
        result = self.fails(75, "acquire", "k")
        self.assertNotRegex(result.err, "[\x00-\x09\x0b-\x1f\x7f\x80-\x9f\u202e]")

    def test_json_stays_json(self):
        for args in (["list"], ["status", "k"], ["history", "k"]):
            result = self.ok(*args, "--json")
            self.assertIn("fake", json.dumps(result.json()))
            self.assertNotRegex(result.out, "[\x00-\x09\x0b-\x1f\x7f\x80-\x9f\u202e]")
        self.assertEqual(self.fails(75, "acquire", "k", "--json").error()["lock"]["locked_by_name"], self.BAD)


class Status(BelayCase):
    def test_the_text_output_shows_every_field(self):
        lock = self.acquire("k", "--owner", "execution-abc123", "--owner-name", "alice", "--heartbeat", "1m", "--meta",
                            "ticket=42", "--correlation-id", "corr-1")
        out = self.ok("status", "k").out
        for text in ("k\n", "Status:     active", "Holder:     alice (execution-abc123)", "Since:      20",
                     "Expires in: 9m 5", "Heartbeat:  20", f"Lock id:    {lock['lock_id']}", f"Token:      {lock['token']}",
                     "ticket=42", "corr-1"):
            self.assertIn(text, out)

    def test_an_unknown_lock_is_66(self):
        self.assertIn("nix", self.fails(66, "status", "nix").err)

    def test_the_outcome_stays_visible(self):
        lock = self.acquire("k")
        self.ok("release", "k", "--id", lock["lock_id"], "--outcome", "failed")
        self.assertIn("Status:     released: failed", self.ok("status", "k").out)
        self.assertRegex(self.ok("status", "k").out, r"\n  Released:   20\d\d-\S+Z \(")
        released = self.ok("status", "k", "--json").json()
        self.assertRegex(released["released_at"], r"^20\d\d-\d\d-\d\dT\S+Z$")
        self.assertGreaterEqual(released["released_at"], released["locked_at"])
        self.assertRegex(self.ok("list", "--all").out, r" released: failed, \d+s ago\b")
        self.assertEqual(self.ok("status", "--quiet", "k").out, "released\n")


class History(BelayCase):
    def test_history_names_the_owner_that_was_given(self):
        self.acquire("k", "--owner", "bob")
        self.assertRegex(self.ok("history", "k").out, r"lock\.acquired +\S+ \(bob\) ")

    def test_the_trail_has_the_fields_of_the_document(self):
        """S4.12, S1.9"""
        lock = self.acquire("k", "--owner", "me", "--meta", "user=alice")
        self.fails(75, "acquire", "k", "--owner", "you")
        self.ok("renew", "k", "--id", lock["lock_id"])
        self.ok("release", "k", "--id", lock["lock_id"])
        events = self.ok("history", "k", "--json").json()["events"]
        self.assertEqual([event["event"] for event in events],
                         ["lock.acquired", "lock.refused", "lock.renewed", "lock.released"])
        for event in events:
            self.assertEqual(set(event), EVENT_FIELDS)
            self.assertRegex(event["timestamp"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")
            self.assertEqual((event["level"], event["lock_key"]), ("INFO", "k"))
        self.assertEqual((events[0]["locked_by"], events[0]["metadata"]), ("me", {"user": "alice"}))
        self.assertEqual((events[0]["token"], events[0]["lock_id"]), (lock["token"], lock["lock_id"]))
        self.assertEqual([e["id"] for e in events], sorted(e["id"] for e in events))
        self.assertEqual(events[3]["locked_by"], "me")
        self.assertGreater(events[3]["duration_seconds"], 0)

    def test_every_event_carries_the_metadata_of_its_lock(self):
        """L9: refused, renewed, adopted, released, forced and taken over alike; a correlation id is part of it."""
        alice = {"user": "alice", "correlation_id": "c-1"}
        options = ("--meta", "user=alice", "--correlation-id", "c-1", "--owner", "alice")
        lock = self.acquire("k", *options)
        self.fails(75, "acquire", "k", "--owner", "bob", "--meta", "user=bob")
        self.ok("renew", "k", "--id", lock["lock_id"])
        self.ok("run", "--adopt", lock["lock_id"], "k", "--", "true")
        lock = self.acquire("k", *options)
        self.ok("unlock", "k", "--force", "--yes")
        self.acquire("k", *options, "--ttl", "100ms")
        self.ok("wait", "k", "--wait", "10s")
        lock = self.acquire("k", "--owner", "carol")
        self.ok("release", "k", "--id", lock["lock_id"])
        told = [(e["event"], e["metadata"]) for e in self.ok("history", "k", "--json").json()["events"]
                if e["locked_by"] in ("alice", "bob", "carol")]
        self.assertEqual(told, [("lock.acquired", alice), ("lock.refused", {"user": "bob"}), ("lock.renewed", alice),
                                ("lock.adopted", alice), ("lock.released", alice), ("lock.acquired", alice),
                                ("lock.forced", alice), ("lock.acquired", alice), ("lock.taken_over", alice),
                                ("lock.acquired", {}), ("lock.released", {})])

    def test_a_key_that_the_lists_no_longer_allow_keeps_its_history(self):
        config = self.dir / "c.yaml"
        self.acquire("build-router-plt")
        config.write_text("profiles:\n  build: {components: [all]}\n", encoding="utf-8")
        self.ok("history", "build-router-plt", "--config", str(config))

    def test_limit_returns_the_last_events_oldest_first(self):
        for _ in range(3):
            lock = self.acquire("k")
            self.ok("release", "k", "--id", lock["lock_id"])
        events = self.ok("history", "k", "--limit", "2", "--json").json()["events"]
        self.assertEqual([event["event"] for event in events], ["lock.acquired", "lock.released"])
        self.assertEqual(len(self.ok("history", "k", "--limit", "2").out.splitlines()), 3)

    def test_no_history_is_66_and_prints_nothing(self):
        result = self.fails(66, "history", "nix")
        self.assertEqual(result.out, "")
        self.assertEqual(self.fails(66, "history", "nix", "--json").out, "")

    def test_it_fits_a_terminal(self):
        lock = self.acquire("k", "--owner-name", "n" * 100)
        self.ok("unlock", "k", "--force", "--yes", "--reason", "r" * 200)
        terminal = self.terminal("history", "k", "--no-color")
        self.assertEqual(terminal.finish(), 0)
        self.assertTrue(all(width(line) <= 80 for line in terminal.text.splitlines()), terminal.text)
        self.assertIsNotNone(lock)


class Watch(BelayCase):
    def watch(self, *args):
        watcher = self.start("watch", *args)
        # It cannot signal that it listens: acquire locks until it reports one.
        for n in range(100):
            self.acquire(f"probe-{n}")
            if select.select([watcher.stdout], [], [], 0.3)[0]:
                return watcher
        self.fail("watch tells nothing")

    def test_each_event_is_one_line_as_it_happens(self):
        """L9"""
        watcher = self.watch("--json")
        self.acquire("k", "--owner", "me")
        while True:
            event = json.loads(watcher.stdout.readline())
            self.assertEqual(set(event), EVENT_FIELDS)
            if event["lock_key"] == "k":
                break
        self.assertEqual((event["event"], event["locked_by"]), ("lock.acquired", "me"))

    def test_ctrl_c_ends_it_without_a_word(self):
        watcher = self.watch()
        self.assertRegex(watcher.stdout.readline(), r"^\d{4}-\S+Z lock\.acquired  probe-\d+ ")
        watcher.send_signal(signal.SIGINT)
        self.assertEqual(watcher.wait(timeout=60), 130)
        self.assertEqual(watcher.stderr.read(), "")

    def test_it_ends_when_the_reader_closes_the_pipe(self):
        watcher = self.watch("--prefix", "probe-")
        watcher.stdout.close()
        self.assertEqual(watcher.wait(timeout=60), 74)
        self.assertEqual(watcher.stderr.read(), "")
        watcher.stdout = None


class ConfigShow(BelayCase):
    def settings(self, *args, **more):
        return {s["name"]: s for s in self.ok("config", "show", "--json", *args, **more).json()["settings"]}

    def test_every_value_has_its_origin(self):
        file = self.dir / "c.yaml"
        file.write_text("profiles:\n  build:\n    ttl: 7m\n")
        file.chmod(0o600)
        settings = self.settings("--config", str(file))
        self.assertEqual(settings["store"], {"name": "store", "value": self.store, "origin": "environment BELAY_STORE"})
        self.assertEqual(settings["profiles.build.ttl"]["value"], "7m")
        self.assertEqual(settings["profiles.build.ttl"]["origin"], f"{file}:3")
        self.assertEqual(settings["locking_enabled"]["origin"], "default")

    def test_options_beat_everything(self):
        settings = self.settings("--store", "sqlite:/x.db", "--state-store", "file:/y")
        self.assertEqual((settings["store"]["value"], settings["store"]["origin"]), ("sqlite:/x.db", "option --store"))
        self.assertEqual(settings["state_store"]["origin"], "option --state-store")

    def test_columns_are_aligned(self):
        lines = self.ok("config", "show").out.splitlines()
        self.assertEqual(lines[0].split(), ["NAME", "VALUE", "ORIGIN"])
        at = lines[0].index("ORIGIN")
        self.assertTrue(all(re.match(r"\S", line[at:]) and line[at - 1] == " " for line in lines), lines)

    def test_it_opens_no_store(self):
        self.ok("config", "show", env={"BELAY_STORE": "sqlite:/proc/nowhere/x.db"})


if __name__ == "__main__":
    main()
