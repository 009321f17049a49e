"""`belay top` on a terminal of 80 by 24."""

import fcntl
import json
import os
import pty
import re
import signal
import struct
import sys
import termios
import time

from support import BELAY, PATIENCE, BelayCase, Terminal, main, wait_until

# Debian's python3-pyte, also for a Python that is not Debian's: it is plain Python.
sys.path.append("/usr/lib/python3/dist-packages")
import pyte  # noqa: E402


class Screen(Terminal):
    """A terminal and its screen."""

    def __init__(self, argv, env, columns, rows):
        self.screen = pyte.Screen(columns, rows)
        self.stream = pyte.ByteStream(self.screen)
        super().__init__(argv, env, columns, rows)

    def read_some(self, timeout):
        n = len(self.bytes)
        done = super().read_some(timeout)
        self.stream.feed(self.bytes[n:])
        return done

    def resize(self, columns, rows):
        self.screen.resize(rows, columns)
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def lines(self):
        return [line.rstrip() for line in self.screen.display]

    def until(self, *texts, absent=()):
        """Wait until the screen shows all of these and none of those."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            shown = "\n".join(self.lines())
            if all(text in shown for text in texts) and not any(text in shown for text in absent):
                return self.lines()
            self.read_some(0.2)
        raise AssertionError(f"no {texts} without {absent} in:\n" + "\n".join(self.lines()))


class Top(BelayCase):
    def top(self, *args, rows=24, columns=80, **env):
        top = Screen([BELAY, "top", *args], {**self.env, **env}, columns, rows)
        self.addCleanup(self.end, top.process)
        return top

    @staticmethod
    def fresh_terminal():
        """The default settings of a new terminal."""
        master, slave = pty.openpty()
        modes = termios.tcgetattr(slave)
        os.close(master)
        os.close(slave)
        return modes

    def hold(self, key, *args):
        return self.ok("acquire", key, *args)

    def test_locks_appear_and_disappear_while_top_runs(self):
        self.hold("deploy-api-prod", "--owner-name", "Grace", "--ttl", "10m")
        top = self.top()
        lines = top.until("deploy-api-prod", "Grace", "9m", "active", "1 held", "q quit")
        self.assertTrue(all(len(line) <= 80 for line in lines))
        self.assertIn("QUEUE", lines[1])
        self.hold("build-web-dev")
        lines = top.until("build-web-dev", "2 held")
        self.assertLess(lines.index(next(line for line in lines if "build-web-dev" in line)),
                        lines.index(next(line for line in lines if "deploy-api-prod" in line)))

    def test_keys_sort_filter_and_inspect(self):
        self.hold("a-long", "--ttl", "50m", "--meta", "commit=9f3c2ab")
        self.hold("b-short", "--ttl", "5m")
        top = self.top()
        top.until("a-long", "b-short")
        top.send("ssss")
        lines = top.until("by expiry")
        self.assertTrue(lines[2].startswith("b-short"), lines)
        top.send("r")
        top.until("reversed")
        top.send("/a-l\r")
        top.until("a-long", "filter 'a-l'", absent=["b-short"])
        top.send("\r")
        top.until("commit=9f3c2ab", "History:", "lock.acquired", "Token:")
        top.send("\x1b")
        top.until("KEY", "1 held")
        top.send("?")
        top.until("scroll by pages")

    def test_several_holders_are_counted_and_shown_and_unlock_does_not_guess(self):
        for owner in ("Grace", "Ada"):
            self.hold("deploys", "--slots", "3", "--owner", owner, "--owner-name", owner)
        top = self.top()
        top.until("deploys", "Grace +1")
        top.send("u")
        top.until("it has 2 holders: 'belay unlock KEY --force' lets you choose")
        top.send("\r")
        top.until("Mode:", "2/3 slots", "1. Grace, for", "2. Ada, for")
        self.assertEqual(len(self.ok("status", "deploys", "--json").json()["holders"]), 2)

    def test_unlock_asks_for_a_reason_and_a_confirmation(self):
        self.hold("k", "--owner-name", "Grace")
        top = self.top()
        top.until("Grace")
        top.send("u")
        top.until("Reason to end the lock")
        top.send("runner was deleted\r")
        top.until("End the lock of Grace", "Are you sure? (yes/no)")
        top.send("no\r")
        top.until("not confirmed: nothing was changed", "1 held")
        self.assertEqual(self.ok("status", "k", "--json").json()["status"], "active")
        top.send("u")
        top.until("Reason to end the lock")
        top.send("runner was deleted\r")
        top.until("Are you sure?")
        top.send("yes\r")
        top.until("lock 'k' was ended", "0 held")
        event = self.ok("history", "k", "--json").json()["events"][-1]
        self.assertEqual((event["event"], event["reason"]), ("lock.forced", "runner was deleted"))

    def test_q_and_signals_leave_the_terminal_as_it_was(self):
        for how in ("q", "\x03", signal.SIGTERM, signal.SIGHUP):
            with self.subTest(how):
                top = self.top()
                before = self.fresh_terminal()
                top.until("no locks; to acquire one")
                self.assertNotEqual(termios.tcgetattr(top.master), before)
                if isinstance(how, str):
                    top.send(how)
                else:
                    top.process.send_signal(how)
                end = time.monotonic() + PATIENCE
                while top.process.poll() is None and time.monotonic() < end:
                    top.read_some(0.05)
                after = termios.tcgetattr(top.master)
                status = top.finish()
                self.assertEqual(status, 0 if isinstance(how, str) else 128 + how)
                self.assertTrue(top.bytes.endswith(b"\x1b[?7h\x1b[?25h\x1b[?1049l"), top.bytes[-60:])
                self.assertEqual(after, before)

    def test_a_store_that_hangs_is_reported_and_q_still_quits(self):
        server = self.start("serve", "--json", "--listen", "127.0.0.1:0")
        url = json.loads(server.stdout.readline())["listening"][0]
        self.hold("k")
        top = self.top(BELAY_STORE=url)
        top.until("1 held", "Enter details")
        server.send_signal(signal.SIGSTOP)
        self.addCleanup(server.send_signal, signal.SIGCONT)
        time.sleep(4)  # longer than the interval of lists: a request is pending without an answer
        began = time.monotonic()
        top.send("s")
        top.until("by key")
        top.send("q")
        self.assertEqual(top.finish(), 0)
        self.assertLess(time.monotonic() - began, 8)  # an answer is waited for longer
        server.send_signal(signal.SIGCONT)
        top = self.top(BELAY_STORE=url)
        top.until("1 held", "Enter details")
        server.kill()
        server.wait()
        top.until("1 held", "out of date: ")
        top.send("\x03")
        self.assertEqual(top.finish(), 0)

    def test_enter_and_u_do_not_wait_for_a_store_that_hangs(self):
        server = self.start("serve", "--json", "--listen", "127.0.0.1:0")
        url = json.loads(server.stdout.readline())["listening"][0]
        self.hold("k", "--owner-name", "Grace")
        self.hold("l")
        top = self.top(BELAY_STORE=url)
        top.until("2 held", "Enter details")
        server.send_signal(signal.SIGSTOP)
        self.addCleanup(server.send_signal, signal.SIGCONT)
        top.send("\r")
        top.until("reading the lock and its history")
        top.send("\x1b")
        top.until("2 held")
        top.send("u")
        top.until("looking for the holder of 'k'")
        top.send("\x1b")
        top.until("Enter details", absent=["looking"])
        top.send("j")  # the store still does not answer, and the keys work
        top.send("u")
        top.until("looking for the holder of 'l'")
        server.send_signal(signal.SIGCONT)
        top.until("Reason to end the lock")
        top.send("\r")
        top.until("Are you sure?")
        server.send_signal(signal.SIGSTOP)
        top.send("yes\r")
        top.until("ending lock 'l'")
        top.send("\x1b")
        top.until("the lock 'l' may still be ended: the store did not answer")
        server.send_signal(signal.SIGCONT)
        top.until("1 held")  # and so it was
        top.send("q")
        self.assertEqual(top.finish(), 0)

    def test_locks_that_need_attention_come_first(self):
        self.hold("a-quiet")
        self.hold("b-queue")
        waiter = self.start("acquire", "b-queue", "--wait", "1m")
        self.hold("c-expired", "--ttl", "1s")
        self.hold("d-stale", "--ttl", "10m", "--heartbeat", "1s")
        top = self.top()
        top.until("1 stale", "1 waiting", "sorted by attention", "3 held")

        def is_sorted():
            top.read_some(0.2)
            return [line.split()[0] for line in top.lines()[2:6]] == ["d-stale", "c-expired", "b-queue", "a-quiet"]
        wait_until(is_sorted, "the order")
        self.end(waiter)

    def test_the_help_fits_60_columns(self):
        top = self.top(columns=200)
        top.until("no locks")
        top.send("?")
        lines = top.until("scroll by pages")
        self.assertLessEqual(max(map(len, lines)), 59)

    def test_a_small_terminal_shows_what_matters_whole(self):
        for n in (1, 2):
            self.hold(f"deploy-a-component-with-a-long-name-größe-{n}")
        for columns, rows, there, missing in ((60, 15, ("KEY", "HOLDER", "EXPIRES", "STATUS", "QUEUE", "s sort", "q quit"), ("AGE",)),
                                              (40, 8, ("KEY", "EXPIRES", "STATUS", "QUEUE", "? keys  q quit"), ("AGE", "HOLDER"))):
            with self.subTest(columns=columns):
                top = self.top(columns=columns, rows=rows)
                lines = top.until("öße-1 ", "öße-2 ", *there, absent=missing)
                self.assertTrue(lines[2].startswith("deploy"), lines)
                self.assertFalse(any(line.endswith("…") for line in lines[1:]), lines)
                top.send("q")

    def test_a_lease_that_ends_moves_its_lock_up(self):
        self.hold("a")
        top = self.top()
        self.ok("acquire", "b", "--ttl", "2s")
        self.assertRegex("\n".join(top.until("b ", "expired")[2:4]), r"^b .* expired .*\na ")

    def test_another_size_of_the_terminal_is_followed(self):
        for n in range(30):
            self.hold(f"lock-{n:02}")
        top = self.top()
        lines = top.until("lock-20", absent=["lock-21"])
        self.assertEqual(len(lines), 24)
        with open(f"/proc/{top.process.pid}/status", encoding="utf-8") as status:
            caught = int(re.search(r"SigCgt:\s*(\w+)", status.read()).group(1), 16)
        self.assertTrue(caught >> signal.SIGWINCH - 1 & 1, "not told at once, but by the next tick")
        top.resize(60, 12)
        top.until("lock-08", "Enter details", absent=["lock-09"])
        top.send("\x1b[F")
        lines = top.until("lock-29", absent=["lock-00"])
        self.assertTrue(all(len(line) < 60 for line in lines))

    def test_no_color_means_no_color(self):
        self.hold("k")
        top = self.top(NO_COLOR="1")
        top.until("active")
        self.assertNotRegex(top.bytes, rb"\x1b\[(1|2|3\d)m")

    def test_hostile_names_move_no_cursor(self):
        self.ok("acquire", "k", "--owner", "x", "--owner-name", "\u202eevil\u200b")
        top = self.top()
        top.until("evil")
        self.assertNotIn("\u202e".encode(), top.bytes)
        top.send("\r")
        top.until("Holder:", "evil")
        self.assertNotIn("\u202e".encode(), top.bytes)

    def test_without_a_terminal_it_prints_one_table_and_ends(self):
        self.hold("k")
        out = self.ok("top").out
        self.assertEqual(out, self.ok("list").out)
        self.assertIn("KEY", out)
        self.assertNotIn("\x1b", out)
        self.assertEqual([lock["key"] for lock in self.ok("top", "--json").json()["locks"]], ["k"])


if __name__ == "__main__":
    main()
