"""A release that has a waiter is handed on before it is on disk (docs/stores/postgresql.md, "Handing over")."""
import contextlib
import json
import os
import signal
import threading
import unittest

from pg_support import PostgresCase, postgresql, wait_until

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
        return self.sql(f"SELECT @schema@.change('{key}', {LATE}, '{lock_id}', 5, 1, 0::smallint, 'lock.released', 0, "
                        f"NULL, NULL, NULL, NULL, -2, NULL, '{self.schema}_wake', 'nobody')")

    def is_held_by(self, lock_id, key="k"):
        return self.sql(f"SELECT held AND lock_id = '{lock_id}' FROM @schema@.locks WHERE key = '{key}'") == "t"

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
        wait_until(lambda: self.server.sql("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'") == "2",
                   "both to wait for the standby")
        self.assertFalse(self.is_held_by(held["lock_id"]))
        self.assertEqual((release.poll(), waiter.poll()), (None, None))
        self.server.wait_for_standbys("")
        self.assertEqual((release.wait(60), waiter.wait(60)), (0, 0))

    def test_no_release_that_was_answered_is_lost_under_load(self):
        """L1, L2: three clients hand a lock round while the server is killed."""
        done, stop = [], threading.Event()

        def turn():
            while not stop.is_set():
                got = self.belay("acquire", "k", "--wait", "3s", "--ttl", "1h", "--json")
                lock = got.json() if got.code == 0 else None
                if lock and self.belay("release", "k", "--id", lock["lock_id"]).code == 0:
                    done.append((lock["token"], lock["lock_id"]))

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
        tokens = [token for token, _ in before]
        self.assertEqual(tokens, sorted(set(tokens)))
        released = set(self.sql("SELECT lock_id FROM @schema@.events WHERE type = 'lock.released'").splitlines())
        self.assertEqual([lock_id for _, lock_id in before if lock_id not in released], [])


if __name__ == "__main__":
    unittest.main()
