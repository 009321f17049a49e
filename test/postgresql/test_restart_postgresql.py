"""Commands that use the database directly while it is restarted: they go on, and say so once."""
import json
import subprocess
import time
import unittest

from pg_support import OwnServerCase, wait_until

PATIENCE = 60


class Restart(OwnServerCase):
    def begin(self, *args, **more):
        """The command, and a function that returns what it has written to standard error so far."""
        path = self.dir / "stderr"
        with open(path, "wb") as err:
            return self.start(*args, stderr=err, **more), lambda: path.read_text(encoding="utf-8")

    def stop_until(self, text, written):
        self.server.stop()
        wait_until(lambda: text in written(), f"'{text}'", PATIENCE)

    def test_watch_goes_on_where_it_was(self):
        """L9: no event is missed, and none is shown twice."""
        watch = self.start_watch()
        self.acquire("before", "--ttl", "60s")
        self.assertEqual(json.loads(watch.stdout.readline())["lock_key"], "before")
        self.server.stop()
        self.assertRegex(json.loads(watch.stderr.readline())["warning"], "the store does not answer, trying again: ")
        self.server.start()
        self.acquire("after", "--ttl", "60s")
        self.assertEqual(json.loads(watch.stdout.readline())["lock_key"], "after")
        self.sql("DROP SCHEMA @schema@ CASCADE")  # this does not mend itself
        out, err = watch.communicate(timeout=PATIENCE)
        self.assertEqual((watch.returncode, out), (78, ""), err)
        warnings = [line for line in err.splitlines() if '"warning"' in line and "does not answer" not in line]
        self.assertEqual(len(warnings), 1, err)
        self.assertIn("the store answers again, after ", warnings[0])

    def test_watch_ends_if_it_cannot_begin(self):
        self.server.stop()
        self.fails(69, "watch")

    def test_wait_goes_on(self):
        lock = self.acquire("k", "--ttl", "10m")
        wait, written = self.begin("wait", "k", "--wait", "5m")
        wait_until(lambda: "k" in written(), "the wait to begin")
        self.stop_until("the store does not answer, trying again", written)
        self.server.start()
        wait_until(lambda: "the store answers again, after" in written(), "the wait to go on", PATIENCE)
        self.ok("release", "k", "--id", lock["lock_id"])
        self.assertEqual(wait.wait(PATIENCE), 0, written())

    def test_a_wait_that_is_over_says_that_the_store_does_not_answer(self):
        self.acquire("k", "--ttl", "10m")
        wait, written = self.begin("wait", "k", "--wait", "10s")
        wait_until(lambda: "k" in written(), "the wait to begin")
        self.server.stop()
        self.assertEqual(wait.wait(PATIENCE), 69, written())

    def test_a_holder_warns_once_and_says_when_it_is_over(self):
        began = time.monotonic()
        run, written = self.begin("run", "k", "--ttl", "5m", "--heartbeat", "400ms", "--", "sh", "-c", "echo begun; read line",
                                  stdin=subprocess.PIPE)
        self.assertEqual(run.stdout.readline(), "begun\n")
        self.stop_until("lock 'k' was not renewed, trying again: ", written)
        time.sleep(2)  # for many attempts, of which nothing is to be seen
        self.server.start()
        wait_until(lambda: "lock 'k' was renewed again, after " in written(), "the end of it", PATIENCE)
        run.communicate("go\n", timeout=PATIENCE)
        self.assertEqual(run.returncode, 0, written())
        self.assertLessEqual(written().count("was not renewed"), 1 + (time.monotonic() - began) // 10, written())
        self.assertEqual(written().count("renewed again"), 1)


if __name__ == "__main__":
    unittest.main()
