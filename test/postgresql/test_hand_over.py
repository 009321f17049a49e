"""A release that has a waiter is handed on before it is on disk (docs/stores/postgresql.md, "Handing over")."""
import contextlib
import json
import os
import select
import signal
import threading
import unittest

from pg_support import OwnServerCase, PostgresCase, postgresql, wait_until

LATE = 9223372036854775807


class HandedOn(PostgresCase):
    """The server writes its log when a commit waits for that, and at no other time; what it has written survives kill -9."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.own_server = postgresql.Server(options=("-c", "bgwriter_lru_maxpages=0")).init().start()
        cls.addClassCleanup(cls.own_server.close)

    def make_server(self):
        return self.own_server

    def setUp(self):
        super().setUp()
        self.stop_log_writer()

    def stop_log_writer(self):
        self.log_writer = int(self.server.sql("SELECT pid FROM pg_stat_activity WHERE backend_type = 'walwriter'"))
        os.kill(self.log_writer, signal.SIGSTOP)
        self.addCleanup(self.end_log_writer, signal.SIGCONT)

    def end_log_writer(self, number=signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.log_writer, number)

    def is_log_writer_gone(self):
        with contextlib.suppress(FileNotFoundError), open(f"/proc/{self.log_writer}/stat", encoding="ascii") as file:
            return file.read().split(")")[1].split()[0] == "Z"
        return True

    def kill_server(self):
        """The log writer is stopped, and would not notice that the server is gone."""
        self.server.kill()
        self.end_log_writer()
        wait_until(self.is_log_writer_gone, "the end of the log writer")

    def restart(self):
        self.kill_server()
        self.server.start()

    def wait_in_line(self, key="k", **more):
        """A `belay acquire` that waits."""
        process = self.start("acquire", key, "--wait", "60s", "--ttl", "1h", "--id", "waiter", "--json", **more)
        wait_until(lambda: self.ok("status", "--json", key).json()["waiting"], "the waiter's ticket")
        return process

    def release_by_sql(self, lock_id, key="k"):
        """What a release sends first: its answer, before anything waits for the disk."""
        return self.sql(f"SELECT @schema@.change('{key}', {LATE}, '{lock_id}', 5, 1, 0::smallint, 'lock.released', "
                        f"NULL, NULL, -2, '{self.schema}_wake', 'nobody')")

    def is_held_by(self, lock_id, key="k"):
        return self.sql(f"SELECT held AND lock_id = '{lock_id}' FROM @schema@.locks WHERE key = '{key}'") == "t"

    def n_awaiting_standby(self):
        return int(self.server.sql("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"))

    @staticmethod
    def can_read(process):
        return bool(select.select([process.stdout], [], [], 0)[0])

    def test_a_crash_before_the_flush_undoes_a_release_that_was_not_answered(self):
        """L3, L5: the holder has the lock again, and releases it with the same id."""
        held = self.acquire("k", "--ttl", "1h")
        waiter = self.wait_in_line()
        waiter.send_signal(signal.SIGSTOP)
        self.assertEqual(self.release_by_sql(held["lock_id"])[0], "W")
        self.assertFalse(self.is_held_by(held["lock_id"]))
        self.restart()
        self.assertTrue(self.is_held_by(held["lock_id"]))
        settle = f"SELECT @schema@.settle_release('k', '{held['lock_id']}')"  # what the release sends next
        self.assertEqual(self.sql(settle), "f")
        waiter.send_signal(signal.SIGCONT)
        self.ok("release", "k", "--id", held["lock_id"])
        self.assertEqual(self.sql(settle), "t")
        out, err = waiter.communicate(timeout=60)
        self.assertEqual(waiter.returncode, 0, err)
        self.assertEqual(json.loads(out)["lock_id"], "waiter")

    def test_a_release_that_was_answered_is_on_disk(self):
        """Whether or not the waiter has taken the lock meanwhile."""
        held = self.acquire("k", "--ttl", "1h")
        waiter = self.wait_in_line()
        waiter.send_signal(signal.SIGSTOP)
        self.ok("release", "k", "--id", held["lock_id"])
        self.restart()
        self.assertFalse(self.is_held_by(held["lock_id"]))
        waiter.send_signal(signal.SIGCONT)
        self.assertEqual(waiter.wait(60), 0)

    def test_a_renewal_and_a_release_that_were_answered_are_on_disk(self):
        """That of a lock without a waiter."""
        held = self.acquire("k", "--ttl", "1h")
        self.ok("renew", "k", "--id", held["lock_id"], "--ttl", "2h")
        self.restart()
        self.stop_log_writer()
        self.assertEqual(self.sql("SELECT ttl_ms FROM @schema@.locks"), "7200000")
        self.ok("release", "k", "--id", held["lock_id"])
        self.restart()
        self.assertFalse(self.is_held_by(held["lock_id"]))

    def test_a_release_that_is_found_done_is_on_disk(self):
        """L5: the answer of the first attempt was lost, and the second one finds what it did."""
        held = self.acquire("k", "--ttl", "1h")
        self.wait_in_line().send_signal(signal.SIGSTOP)
        self.release_by_sql(held["lock_id"])
        self.ok("release", "k", "--id", held["lock_id"])
        self.restart()
        self.assertFalse(self.is_held_by(held["lock_id"]))

    def test_the_flush_of_the_next_holder_has_the_release_on_disk(self):
        """L1: no holder is on disk without the release before it."""
        held = self.acquire("k", "--ttl", "1h")
        waiter = self.wait_in_line()
        self.release_by_sql(held["lock_id"])
        self.assertEqual(waiter.wait(60), 0)
        self.restart()
        self.assertTrue(self.is_held_by("waiter"))
        self.assertEqual(self.events("k"), ["lock.acquired", "wait.began", "lock.released", "wait.ended", "lock.acquired"])

    def test_an_event_that_was_shown_is_on_disk(self):
        """L9: after a crash its number would be another's, which the same watcher would skip."""
        watch = self.start_watch()
        self.acquire("k", "--ttl", "1h")
        self.wait_in_line()
        shown = []
        while shown[-1:] != ["wait.began"]:
            shown.append(json.loads(watch.stdout.readline())["event"])
        self.restart()
        self.assertEqual(self.events("k"), ["lock.acquired", "wait.began"])

    def test_nothing_is_answered_before_the_standby_has_it(self):
        """Neither the release nor the acquisition that follows it."""
        held = self.acquire("k", "--ttl", "1h")
        waiter = self.wait_in_line()
        self.addCleanup(self.server.wait_for_standbys, "")
        self.server.wait_for_standbys("nobody")
        release = self.start("release", "k", "--id", held["lock_id"])
        wait_until(lambda: self.n_awaiting_standby() == 2, "both to wait for the standby")
        self.assertFalse(self.is_held_by(held["lock_id"]))
        self.assertEqual((release.poll(), waiter.poll()), (None, None))
        self.server.wait_for_standbys("")
        self.assertEqual((release.wait(60), waiter.wait(60)), (0, 0))

    def test_an_event_is_shown_once_the_standby_has_it(self):
        """L9: after a failover its number would be another's. That it is on this server's disk is not enough."""
        held = self.acquire("k", "--ttl", "1h")
        self.wait_in_line().send_signal(signal.SIGSTOP)
        watch = self.start_watch()
        watch.send_signal(signal.SIGSTOP)
        self.addCleanup(self.server.wait_for_standbys, "")
        self.server.wait_for_standbys("nobody")
        self.release_by_sql(held["lock_id"])
        self.sql("SET synchronous_commit = local; CREATE TABLE @schema@.flushes ()")
        watch.send_signal(signal.SIGCONT)
        wait_until(lambda: self.n_awaiting_standby() == 1 or self.can_read(watch), "the watcher to ask")
        self.assertFalse(self.can_read(watch))
        self.server.wait_for_standbys("")
        while json.loads(watch.stdout.readline())["event"] != "lock.released":
            pass

    def test_a_watch_shows_nothing_while_the_standby_is_away_and_goes_on(self):
        """L9: the acquisition is visible on this server, because its wait for the standby was cancelled."""
        watch = self.start_watch()
        self.addCleanup(self.server.wait_for_standbys, "")
        self.server.wait_for_standbys("nobody")
        acquire = self.start("acquire", "k", "--id", "mine", "--ttl", "1h", "--attempts", "1")
        while acquire.poll() is None:
            self.server.sql("SELECT pg_cancel_backend(pid) FROM pg_stat_activity "
                            "WHERE wait_event = 'SyncRep' AND query NOT LIKE '%list_events%'")
        self.assertEqual(acquire.returncode, 74)
        self.assertTrue(self.is_held_by("mine"))
        self.assertIn("PostgreSQL did not answer in time", watch.stderr.readline())
        self.assertFalse(self.can_read(watch))
        self.server.wait_for_standbys("")
        while json.loads(watch.stdout.readline())["lock_key"] != "k":
            pass

    def test_no_release_that_was_answered_is_lost_under_load(self):
        """L1, L2: three clients hand a lock round while the server is killed."""
        tokens, done, stop = [], [], threading.Event()

        def turn():
            while not stop.is_set():
                got = self.belay("acquire", "k", "--wait", "3s", "--ttl", "1h", "--json")
                if got.code == 0:
                    tokens.append(got.json()["token"])  # in order: the next one follows the release, not its answer
                    if self.belay("release", "k", "--id", got.json()["lock_id"]).code == 0:
                        done.append(got.json()["lock_id"])

        threads = [threading.Thread(target=turn) for _ in range(3)]
        for thread in threads:
            thread.start()
        try:
            wait_until(lambda: len(done) >= 20, "some hand-overs", patience=120)
            self.kill_server()
            before = list(done)
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        self.server.start()
        self.assertEqual(tokens, sorted(set(tokens)))
        released = set(self.sql("SELECT lock_id FROM @schema@.events WHERE type = 'lock.released'").splitlines())
        self.assertEqual([lock_id for lock_id in before if lock_id not in released], [])


class FullQueue(OwnServerCase):
    """A queue of notifications that is full to 8 GB fails the commit of each NOTIFY; here pg_notify() itself fails."""

    OPTIONS = ("-c", "allow_system_table_mods=on")

    def fill(self, part):
        """A builtin function cannot be replaced, but another one can have its name."""
        for name, arguments, body in (
                ("pg_notification_queue_usage", "", f"RETURNS double precision LANGUAGE sql AS 'SELECT {part}::double precision'"),
                ("pg_notify", "text, text", "RETURNS void LANGUAGE plpgsql AS $$ BEGIN RAISE 'too many notifications in the "
                                            "NOTIFY queue' USING ERRCODE = 'program_limit_exceeded'; END $$")):
            self.sql(f"ALTER FUNCTION pg_catalog.{name}({arguments}) RENAME TO {name}_before")
            self.sql(f"CREATE FUNCTION pg_catalog.{name}({arguments}) {body}")

    def doctor(self):
        found = self.belay("doctor", "--json").json()["findings"]
        return next((one["level"], one["text"]) for one in found if one["name"] == "wake-up queue")

    def test_fails_no_release_and_the_waiter_polls(self):
        held = self.acquire("k", "--ttl", "1h")
        waiter = self.start("acquire", "k", "--wait", "60s", "--ttl", "1h")
        wait_until(lambda: self.ok("status", "--json", "k").json()["waiting"], "the waiter's ticket")
        self.fill(0.9)
        self.ok("release", "k", "--id", held["lock_id"])
        self.assertEqual(waiter.wait(60), 0)
        self.assertEqual(self.events("k"), ["lock.acquired", "wait.began", "lock.released", "wait.ended", "lock.acquired"])

    def test_is_reported_by_doctor_from_half_on(self):
        self.assertEqual(self.doctor(), ("ok", "0 % full"))
        self.fill(0.5)
        level, text = self.doctor()
        self.assertEqual(level, "warning")
        self.assertIn("queue of notifications is 50 % full", text)


if __name__ == "__main__":
    unittest.main()
