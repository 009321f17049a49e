"""The API of the dashboard: /v1/live, /v1/activity, /v1/timeline, /v1/me, the tree, and the page's files."""

import contextlib
import sqlite3

from server_support import ServerCase, Stream, main, quoted, wait_until


class Live(ServerCase):
    def setUp(self):
        super().setUp()
        self.server = self.serve()

    def stream(self, last_id=None):
        stream = Stream(self.server, "/v1/live", last_id=last_id)
        self.addCleanup(stream.close)
        self.assertEqual(stream.status, 200)
        events = stream.events()
        hello = next(events)
        self.assertEqual((hello["event"], hello["data"]), ("hello", {"keeps_events": True}))
        return hello, events

    def until(self, events, key, **wanted):
        """The next row of the key that has these values."""
        for event in events:
            for row in event["data"].get("locks", []):
                if row["key"] == key and all(row.get(name) == value for name, value in wanted.items()):
                    return event, row

    def test_changes_are_sent_with_the_queue_length_and_without_the_lock_id(self):
        _, events = self.stream()
        lock = self.server.acquire("k", "me", ttl_ms=60000, metadata={"a": "b"}).json()
        _, row = self.until(events, "k", status="active")
        self.assertEqual((row["locked_by"], row["waiting"], row["ttl_ms"]), ("me", 0, 60000))
        self.assertFalse({"lock_id", "metadata"} & set(row))
        later = self.server.acquire_later("k", "next", wait_ms=60000)
        self.until(events, "k", waiting=1)
        self.server.release("k", lock["lock_id"])
        self.until(events, "k", locked_by="next", waiting=0)
        self.server.release("k", later.get().json()["lock_id"])
        self.until(events, "k", status="released")

    def test_changes_by_another_process_are_sent_too(self):
        _, events = self.stream()
        self.server.acquire("own-1", "me")
        self.ok("acquire", "foreign")
        self.server.acquire("own-2", "me")
        seen = set()
        for event in events:
            seen |= {row["key"] for row in event["data"].get("locks", [])}
            if {"own-1", "foreign", "own-2"} <= seen:
                break

    def test_a_reconnecting_dashboard_receives_the_changes_since(self):
        hello, _ = self.stream()
        self.server.acquire("meanwhile", "me")
        _, events = self.stream(last_id=hello["id"])
        self.until(events, "meanwhile", status="active")

    def test_a_reconnect_with_an_unknown_event_id_starts_over(self):
        _, events = self.stream(last_id=10**12)
        self.assertEqual(next(events)["event"], "reset")
        self.assertEqual(self.server.get("/v1/live", headers={"Last-Event-ID": "x"}).status, 400)

    def test_the_lock_id_survives_a_restart_of_the_server(self):
        hello, _ = self.stream()
        self.server.stop()
        self.server = self.serve()
        self.server.acquire("after", "me")
        _, events = self.stream(last_id=hello["id"])
        self.until(events, "after", status="active")

    def test_numbers_count_each_event_once_whoever_caused_it(self):
        for n in range(3):
            lock = self.server.acquire("k", f"run-{n}").json()
            self.server.acquire("k", "late")
            self.server.release("k", lock["lock_id"])
        self.run_belay("run", "foreign", "--", "true")
        self.assertEqual(self.total(acquired=4, released=4, refused=3)["forced"], 0)
        self.server.stop()
        self.server = self.serve()
        self.server.call("DELETE", "/v1/locks/k")
        self.server.acquire("k", "again")
        self.server.call("DELETE", "/v1/locks/k")
        total = self.total(acquired=5, released=5, refused=3, forced=1)
        self.assertGreaterEqual(total["held_max_ms"], total["held_p50_ms"])

    def total(self, **wanted):
        def fits():
            self.stats = self.server.get("/v1/activity?hours=1").json()
            return self.stats["is_complete"] and {name: self.stats["total"][name] for name in wanted} == wanted
        try:
            wait_until(fits, "the numbers")
        except AssertionError:
            self.fail(f"{self.stats['total']}, not {wanted}")
        self.assertEqual((len(self.stats["steps"]), self.stats["step_ms"]), (60, 60000))
        return self.stats["total"]

    def run_belay(self, *args):
        return self.ok(*args)

    def test_hours_are_1_to_24(self):
        for hours, steps in ((1, 60), (6, 72), (24, 96)):
            self.assertEqual(len(self.server.get(f"/v1/activity?hours={hours}").json()["steps"]), steps)
        for hours in ("0", "25", "x", "", "-1", "1.5"):
            answer = self.server.get(f"/v1/activity?hours={hours}")
            self.assertEqual((answer.status, answer.error["code"]), (400, "invalid"), hours)

    def test_a_timeline_has_what_begins_and_ends_holds_and_waits_and_goes_on_after_its_last_event(self):
        lock = self.server.acquire("k", "first").json()
        later = self.server.acquire_later("k", "second", wait_ms=60000)
        wait_until(lambda: self.server.get("/v1/locks/k/queue").json()["waiting"], "the waiter")
        self.server.acquire("k", "refused")
        self.server.call("POST", "/v1/renew", {"key": "k", "lock_id": lock["lock_id"]})
        self.server.release("k", lock["lock_id"])
        later.get()
        first = self.server.get("/v1/timeline?hours=1").json()
        self.assertEqual([(one["event"], one["locked_by"]) for one in first["events"]],
                         [("lock.acquired", "first"), ("wait.began", "second"), ("lock.released", "first"), ("wait.ended", "second"),
                          ("lock.acquired", "second")])
        self.assertTrue(first["is_complete"])
        self.assertFalse({"lock_id", "metadata"} & set(first["events"][0]))
        again = self.server.get(f"/v1/timeline?after={first['last_id']}").json()
        self.assertEqual((again["events"], again["last_id"]), ([], first["last_id"]))
        self.server.call("DELETE", "/v1/locks/k?reason=stuck")
        self.ok("acquire", "foreign")
        again = self.server.get(f"/v1/timeline?after={first['last_id']}").json()
        self.assertEqual([(one["event"], one["lock_key"], one["reason"]) for one in again["events"]],
                         [("lock.forced", "k", "stuck"), ("lock.acquired", "foreign", None)])
        for query in ("hours=0", "hours=25", "hours=x", "after=0", "after=-1", "after=99999999999999999999"):
            answer = self.server.get(f"/v1/timeline?{query}")
            self.assertEqual((answer.status, answer.error["code"]), (400, "invalid"), query)
            self.assertIn(f"{query.split('=')[0]} must be a whole number from 1 to", answer.error["message"])

    def test_a_timeline_says_when_it_is_cut(self):
        self.server.release("k", self.server.acquire("k", "me").json()["lock_id"])
        self.server.stop()
        with contextlib.closing(sqlite3.connect(self.dir / "belay.db")) as db:
            columns = [column[1] for column in db.execute("PRAGMA table_info(events)")]
            last = db.execute("SELECT * FROM events ORDER BY id DESC LIMIT 1").fetchone()
            at = next(i for i, name in enumerate(columns) if name.startswith("at"))
            for n in range(1, 6001):
                row = list(last)
                row[columns.index("id")] += n
                row[at] += n
                db.execute(f"INSERT INTO events VALUES ({', '.join('?' * len(columns))})", row)
            db.commit()
        self.server = self.serve()
        answer = self.server.get("/v1/timeline?hours=24", check=False).json()
        self.assertEqual((len(answer["events"]), answer["is_complete"]), (5000, False))
        self.assertEqual(answer["from"], answer["events"][0]["timestamp"])
        self.assertEqual(answer["events"][-1]["id"], answer["last_id"])

    def test_a_timeline_has_only_the_keys_of_the_token(self):
        self.server.stop()
        server = self.serve(config=self.config_with({"s": ("ci", "locker", ["build-*"]), "root": ("boss", "admin", None)}))
        server.acquire("build-a", "x", token="s")
        server.acquire("deploy-a", "x", token="root")
        self.assertEqual([one["lock_key"] for one in server.get("/v1/timeline", token="s").json()["events"]], ["build-a"])

    def test_a_tree_shows_exactly_the_locks_that_exclude_it(self):
        top, service = "stack:shop:env:prod", "stack:shop:env:prod:service:cart"
        component = "stack:shop:env:prod:component:cart/worker"
        self.server.acquire(component, "me")
        self.server.acquire("stack:shop:env:production", "other")
        tree = self.server.get(f"/v1/locks/{quoted(component)}/tree").json()
        self.assertEqual([(one["key"], one["lock"] is not None and one["lock"]["status"]) for one in tree["above"]][0][0], service)
        self.assertEqual([one["key"] for one in tree["above"]], [service, top])
        for key in (top, service):
            tree = self.server.get(f"/v1/locks/{quoted(key)}/tree").json()
            self.assertEqual([lock["key"] for lock in tree["below"]], [component], key)
        self.server.acquire("build-router-dev", "me")
        tree = self.server.get("/v1/locks/build-all-dev/tree").json()
        self.assertEqual([lock["key"] for lock in tree["below"]], ["build-router-dev"])
        self.assertEqual(self.server.get("/v1/locks/plain/tree").json(), {"key": "plain", "above": [], "below": [], "has_more": False})

    def test_me_without_tokens_is_an_admin(self):
        me = self.server.get("/v1/me").json()
        self.assertEqual((me["name"], me["role"], me["needs_token"], me["store"]), (None, "admin", False, "sqlite"))

    def test_me_with_a_token_is_its_name_role_and_keys(self):
        self.server.stop()
        server = self.serve(config=self.config_with({"s": ("ci", "locker", ["build-*"])}))
        me = server.get("/v1/me", token="s").json()
        self.assertEqual((me["name"], me["role"], me["keys"], me["needs_token"]), ("ci", "locker", ["build-*"], True))

    def test_the_files_come_compressed_and_are_not_sent_twice(self):
        plain = self.server.get("/ui/app.js")
        packed = self.server.get("/ui/app.js", headers={"Accept-Encoding": "br, gzip"})
        self.assertEqual((packed.headers["Content-Encoding"], plain.headers["Content-Encoding"]), ("gzip", None))
        self.assertLess(len(packed.body), len(plain.body))
        again = self.server.get("/ui/app.js", headers={"If-None-Match": plain.headers["ETag"]}, check=False)
        self.assertEqual((again.status, again.body), (304, b""))
        self.assertEqual(self.server.get("/ui/../belay.db", check=False).status, 404)
        self.assertEqual(self.server.get("/ui/nothing.js").status, 404)


if __name__ == "__main__":
    main()
