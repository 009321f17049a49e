"""freeze, unfreeze and freezes on a file that several processes use."""

import datetime
import getpass
import socket
import subprocess
import threading
import time

from support import BELAY, PATIENCE, BelayCase, main, wait_until

ME = f"{getpass.getuser()}@{socket.gethostname()}"


def after(seconds):
    """RFC 3339, so many whole seconds from now."""
    time_ = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=seconds)
    return time_.strftime("%Y-%m-%dT%H:%M:%SZ")


class FreezeCase(BelayCase):
    def freeze(self, pattern, *args):
        return self.ok("freeze", pattern, "--reason", "Black Friday", "--json", *args).json()

    def frozen(self, key, *args):
        """What a refused acquisition is told."""
        error = self.fails(75, "acquire", key, "--json", *args).error()
        self.assertEqual(error["code"], "frozen")
        return error["message"]

    def waiter(self, key, name, log="order"):
        process = self.start("run", key, "--wait", "60s", "--owner", name, "--", "sh", "-c", f"echo {name} >>{log}")
        wait_until(lambda: any(e["event"] == "wait.began" and e["locked_by"] == name for e in
                               self.ok("history", key, "--json").json()["events"]), f"{name} in the queue")
        return process

    def order(self, log="order"):
        return (self.dir / log).read_text().split()


class Freeze(FreezeCase):
    def test_new_acquisitions_of_matching_keys_are_refused_with_until_by_and_why(self):
        until = after(3600)
        self.freeze("deploy-*", "--until", until)
        self.assertEqual(self.frozen("deploy-a"), f"lock 'deploy-a': frozen until {until} by {ME}: Black Friday")
        self.assertEqual(self.fails(75, "run", "deploy-b", "--", "touch", "ran").out, "")
        self.assertFalse((self.dir / "ran").exists())
        self.acquire("other-a")

    def test_a_freeze_without_an_end_names_none(self):
        self.freeze("k")
        self.assertEqual(self.frozen("k"), f"lock 'k': frozen by {ME}: Black Friday")
        self.acquire("kk")

    def test_text_and_table_show_the_freeze(self):
        made = self.ok("freeze", "deploy-*", "--reason", "Black Friday", "--until", "2099-11-28T00:00:00Z")
        self.assertRegex(made.out, r"^frozen: 'deploy-\*' until 2099-11-28T00:00:00Z: Black Friday \(freeze-[0-9a-f]{8}\)\n$")
        table = self.ok("freezes").out
        self.assertIn("deploy-*", table)
        self.assertIn("2099-11-28T00:00:00Z", table)
        self.assertIn(ME, table)
        self.assertEqual(self.ok("freezes", "--quiet").out.strip(), made.out.split("(")[1][:-2])

    def test_holders_renew_release_adopt_and_reenter(self):
        lock = self.acquire("k", "--owner", "me")
        self.freeze("*")
        self.ok("renew", "k", "--id", lock["lock_id"])
        again = self.acquire("k", "--owner", "me", "--reentrant")
        self.assertEqual((again["lock_id"], again["token"]), (lock["lock_id"], lock["token"]))
        self.ok("run", "k", "--adopt", lock["lock_id"], "--", "true")
        self.assertEqual(self.ok("status", "k", "--json").json()["status"], "released")
        self.frozen("k", "--owner", "me", "--reentrant")

    def test_a_repeated_acquire_finds_its_own_lock(self):
        """L5: the answer to the first was lost, and the freeze came since."""
        lock = self.acquire("k", "--id", "mine")
        self.freeze("*")
        again = self.acquire("k", "--id", "mine")
        self.assertEqual(again["token"], lock["token"])

    def test_another_client_of_a_held_lock_is_told_that_it_is_frozen(self):
        self.acquire("k")
        self.freeze("k")
        self.assertIn("frozen by", self.frozen("k"))

    def test_an_admin_passes_with_a_reason_and_the_event_says_so(self):
        self.freeze("k")
        self.assertIn("needs --reason", self.fails(64, "acquire", "k", "--ignore-freeze").err)
        self.assertIn("--ignore-freeze", self.fails(64, "acquire", "k", "--reason", "x").err)
        self.acquire("k", "--ignore-freeze", "--reason", "hotfix for 42")
        event = self.ok("history", "k", "--json").json()["events"][-1]
        self.assertEqual((event["event"], event["reason"]), ("lock.acquired", "freeze ignored: hotfix for 42"))

    def test_begin_refusal_and_end_are_events(self):
        until = after(7200)
        made = self.freeze("deploy-*", "--from", after(-60), "--until", until)
        self.frozen("deploy-a")
        self.ok("unfreeze", made["id"], "--reason", "over")
        begun, ended = self.ok("history", "deploy-*", "--json").json()["events"]
        self.assertEqual((begun["event"], begun["by"], begun["reason"]), ("freeze.begun", ME, "Black Friday"))
        self.assertEqual(begun["metadata"]["freeze_id"], made["id"])
        self.assertEqual(begun["metadata"]["until"], until.replace("Z", ".000Z"))
        self.assertIn("from", begun["metadata"])
        self.assertEqual((ended["event"], ended["by"], ended["reason"]), ("freeze.ended", ME, "over"))
        refused = self.ok("history", "deploy-a", "--json").json()["events"][-1]
        self.assertEqual(refused["event"], "lock.refused")
        self.assertIn("frozen until", refused["reason"])

    def test_a_freeze_that_ended_by_itself_is_recorded_by_the_next_change(self):
        self.freeze("a", "--for", "1ms")
        self.freeze("b")
        self.assertEqual(self.events("a"), ["freeze.begun", "freeze.ended"])
        self.assertEqual([f["pattern"] for f in self.ok("freezes", "--json").json()["freezes"]], ["b"])
        self.freeze("c")
        self.assertEqual(self.events("a"), ["freeze.begun", "freeze.ended"])

    def test_a_freeze_begins_at_its_time(self):
        made = self.freeze("k", "--from", after(3600))
        self.assertFalse(made["in_force"])
        self.acquire("k")
        self.freeze("k2", "--from", after(2))
        wait_until(lambda: self.belay("acquire", "k2", "--ttl", "100ms").code == 75, "the freeze begins", 10)

    def test_the_freeze_that_ends_last_is_shown(self):
        self.freeze("k*", "--until", "2090-01-01T00:00:00Z")
        self.freeze("*k", "--until", "2091-01-01T00:00:00Z")
        self.assertIn("2091-01-01", self.frozen("k"))
        self.freeze("k")
        self.assertNotIn("until", self.frozen("k"))

    def test_a_pattern_ends_all_freezes_that_have_it(self):
        self.freeze("a-*")
        self.freeze("a-*")
        self.freeze("*")
        self.assertEqual(len(self.ok("unfreeze", "a-*", "--json").out.splitlines()), 2)
        self.assertEqual(len(self.ok("freezes", "--json").json()["freezes"]), 1)
        self.ok("unfreeze", "*")
        self.acquire("a-1")

    def test_bad_input_names_what_is_wrong_and_what_is_right(self):
        for args, says in [
            (("", "--reason", "x"), "pattern is empty"),
            (("k\n", "--reason", "x"), "control characters"),
            (("k" * 513, "--reason", "x"), "512"),
            (("k",), "--reason TEXT"),
            (("k", "--reason", ""), "--reason is empty"),
            (("k", "--reason", "x", "--until", "2020-01-01T00:00:00Z"), "2020-01-01T00:00:00Z, is in the past"),
            (("k", "--reason", "x", "--until", "2099-11-28 00:00"), "write it as 2026-11-28T00:00:00Z"),
            (("k", "--reason", "x", "--until", "2099-11-28T00:00:00"), "write it as 2026-11-28T00:00:00Z"),
            (("k", "--reason", "x", "--until", "2099-13-28T00:00:00Z"), "write it as 2026-11-28T00:00:00Z"),
            (("k", "--reason", "x", "--until", "2099-11-31T00:00:00Z"), "write it as 2026-11-28T00:00:00Z"),
            (("k", "--reason", "x", "--until", "1970-01-01T00:00:00Z"), "1970-01-01T00:00:00Z, is in the past"),
            (("k", "--reason", "x", "--until", "1969-07-20T20:17:40Z"), "1969-07-20T20:17:40Z, is in the past"),
            (("k", "--reason", "x", "--from", "tomorrow"), "--from 'tomorrow'"),
            (("k", "--reason", "x", "--from", "2099-02-01T00:00:00Z", "--until", "2099-01-01T00:00:00Z"), "no earlier than it ends"),
            (("k", "--reason", "x", "--for", "1h", "--until", "2099-01-01T00:00:00Z"), "exclude each other"),
            (("k", "--reason", "x", "--for", "0s"), "too short"),
        ]:
            self.assertIn(says, self.fails(64, "freeze", *args).err)
        self.assertIn("'belay freezes' lists them", self.fails(66, "unfreeze", "nope").err)
        self.assertEqual(self.ok("freezes", "--json").json(), {"freezes": []})
        self.assertEqual(self.freeze("k", "--until", "2099-11-28T01:00:00+01:00")["until"], "2099-11-28T00:00:00.000Z")

    def test_an_unfreeze_can_be_repeated(self):
        """The answer of the first may be lost. It is one event."""
        made = self.ok("freeze", "k", "--reason", "x", "--json").json()
        for what in (made["id"], made["id"], "k"):
            ended = self.ok("unfreeze", what, "--json").json()
            self.assertEqual((ended["id"], ended["in_force"]), (made["id"], False))
        self.assertEqual(self.ok("history", "k", "--json").out.count("freeze.ended"), 1)
        self.ok("freeze", "k", "--reason", "y", "--for", "1h")
        self.ok("unfreeze", made["id"])
        self.fails(75, "acquire", "k")
        self.fails(66, "unfreeze", "k-*")

    def test_the_hundred_and_first_freeze_is_refused(self):
        for i in range(100):
            self.freeze(f"k{i}")
        self.assertIn("100 freezes", self.fails(64, "freeze", "more", "--reason", "x").err)


class Waiting(FreezeCase):
    def first(self, name):
        """When the first event of this name was, by the store's clock."""
        events = self.ok("history", "k", "--json").json()["events"]
        return next(e for e in events if e["event"] == name)["timestamp"]

    @staticmethod
    def seconds(begin, end):
        return (datetime.datetime.fromisoformat(end[:-1]) - datetime.datetime.fromisoformat(begin[:-1])).total_seconds()

    def between(self, begin, end):
        return self.seconds(self.first(begin), self.first(end))

    def test_a_waiter_says_why_it_waits_and_gives_up_when_its_time_is_over(self):
        self.freeze("k")
        result = self.fails(75, "acquire", "k", "--wait", "300ms")
        self.assertIn("in the queue for lock 'k': frozen by", result.err)
        self.assertEqual(self.events("k")[1:], ["wait.began", "wait.ended", "lock.refused"])

    def test_unfreeze_wakes_the_waiters_in_their_order(self):
        self.freeze("k")
        processes = [self.waiter("k", f"w{i}") for i in range(4)]
        time.sleep(3)  # longer than the claim of each on a lock that only looks free
        self.ok("unfreeze", "k")
        for process in processes:
            self.assertEqual(process.wait(PATIENCE), 0)
        self.assertEqual(self.order(), ["w0", "w1", "w2", "w3"])
        self.assertLess(self.between("freeze.ended", "lock.acquired"), 2)

    def test_the_end_of_a_freeze_lets_the_waiters_in_in_their_order(self):
        made = self.freeze("k", "--for", "6s")
        processes = [self.waiter("k", f"w{i}") for i in range(3)]
        for process in processes:
            self.assertEqual(process.wait(PATIENCE), 0)
        self.assertEqual(self.order(), ["w0", "w1", "w2"])
        late = self.seconds(made["until"], self.first("lock.acquired"))
        self.assertGreaterEqual(late, 0)
        self.assertLess(late, 2)

    def test_a_waiter_whose_turn_comes_while_frozen_keeps_its_place(self):
        lock = self.acquire("k")
        first = self.waiter("k", "w0")
        self.freeze("k")
        self.ok("release", "k", "--id", lock["lock_id"])
        second = self.waiter("k", "w1")
        time.sleep(2)
        self.assertIsNone(first.poll())
        self.assertEqual([w["locked_by"] for w in self.ok("status", "k", "--json").json().get("waiting", [])] or ["w0", "w1"],
                         ["w0", "w1"])
        self.ok("unfreeze", "k")
        self.assertEqual((first.wait(PATIENCE), second.wait(PATIENCE)), (0, 0))
        self.assertEqual(self.order(), ["w0", "w1"])


class Race(FreezeCase):
    """An acquisition that begins after `freeze` returned is refused: in every process, at any moment."""

    ROUNDS = 25

    def test_an_acquisition_after_freeze_returned_is_refused(self):
        stop = threading.Event()
        round_ = [0]  # odd: freeze has returned, and unfreeze was not called yet
        wrong = []

        def hammer(name):
            while not stop.is_set():
                before = round_[0]
                code = subprocess.run([BELAY, "run", f"k-{name}", "--", "true"], env=self.env, cwd=self.dir,
                                      capture_output=True).returncode
                if before % 2 == 1 and before == round_[0] and code != 75:
                    wrong.append(f"exit {code} although frozen before")
                if code not in (0, 75):
                    wrong.append(f"exit {code}")

        threads = [threading.Thread(target=hammer, args=(name,)) for name in ("a", "b", "c")]
        for thread in threads:
            thread.start()
        try:
            for _ in range(self.ROUNDS):
                made = self.freeze("k-*")
                round_[0] += 1
                for name in ("a", "d"):
                    self.frozen(f"k-{name}")
                round_[0] += 1
                self.ok("unfreeze", made["id"])
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        self.assertEqual(wrong, [])

    def test_two_that_freeze_at_a_time_both_succeed(self):
        processes = [self.start("freeze", f"k{i}", "--reason", "x") for i in range(12)]
        for process in processes:
            self.assertEqual(process.wait(PATIENCE), 0)
        self.assertEqual(len(self.ok("freezes", "--json").json()["freezes"]), 12)


if __name__ == "__main__":
    main()
