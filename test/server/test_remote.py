"""--store http://HOST:PORT: every command works through a server as it does on a file."""

import itertools
import json
import re
import signal
import socket
import subprocess
import threading
import time
import urllib.request

from remote_support import RemoteCase, free_port, wait_until
from support import LOCK_FIELDS, PATIENCE, BelayCase, main


class TestCommands(RemoteCase):
    def test_a_lock_is_acquired_in_the_servers_store_and_released_by_its_id(self):
        lock = self.acquire("deploy/api prod", "--ttl", "60s", "--meta", "build=7", "--owner", "ci-1")
        self.assertEqual(list(lock), LOCK_FIELDS)
        self.assertEqual((lock["locked_by"], lock["metadata"], lock["ttl_ms"]), ("ci-1", {"build": "7"}, 60000))
        stored = self.local("status", "--json", "deploy/api prod").json()
        self.assertEqual((stored["lock_id"], stored["token"]), (lock["lock_id"], lock["token"]))
        self.fails(77, "release", "deploy/api prod", "--id", "another")
        self.ok("release", "deploy/api prod", "--id", lock["lock_id"], "--outcome", "failed")
        self.assertEqual(self.status("deploy/api prod")["outcome"], "failed")

    def test_a_held_lock_is_refused_with_its_holder(self):
        lock = self.acquire("k", "--owner", "alice")
        error = self.fails(75, "acquire", "--json", "k").error()
        self.assertEqual((error["code"], error["lock"]["locked_by"], error["lock"]["lock_id"]),
                         ("lock_held", "alice", lock["lock_id"]))
        self.assertRegex(error["message"], r"^lock 'k' held by alice until \S+ \(\d+m \d+s left\)$")

    def test_acquiring_again_with_the_same_id_gives_the_same_lock_and_a_used_id_is_refused(self):
        """L5"""
        first = self.acquire("k", "--id", "mine")
        self.assertEqual(self.acquire("k", "--id", "mine")["token"], first["token"])
        self.ok("release", "k", "--id", "mine")
        self.assertEqual(self.belay("acquire", "--json", "k", "--id", "mine").error()["code"], "id_used")

    def test_a_reentrant_owner_reacquires_its_lock(self):
        first = self.acquire("k", "--owner", "job", "--reentrant")
        second = self.acquire("k", "--owner", "job", "--reentrant")
        self.assertEqual((first["lock_id"], first["token"]), (second["lock_id"], second["token"]))

    def test_renew_starts_the_lease_again_with_a_new_ttl(self):
        lock = self.acquire("k", "--ttl", "60s")
        renewed = self.ok("renew", "--json", "k", "--id", lock["lock_id"], "--ttl", "2h").json()
        self.assertEqual((renewed["ttl_ms"], renewed["token"]), (7200000, lock["token"]))

    def test_list_is_paged_without_a_gap(self):
        for i in range(7):
            self.acquire(f"k{i}")
        self.acquire("other")
        keys = [one["key"] for one in self.ok("list", "--json", "--prefix", "k").json()["locks"]]
        self.assertEqual(keys, [f"k{i}" for i in range(7)])
        page = self.ok("list", "--json", "--prefix", "k", "--limit", "3").json()
        self.assertEqual([one["key"] for one in page["locks"]], ["k0", "k1", "k2"])

    def test_unlock_records_its_user_and_reason_in_the_history(self):
        self.acquire("k")
        self.ok("unlock", "k", "--force", "--yes", "--reason", "runner is gone")
        last = self.ok("history", "--json", "k").json()["events"][-1]
        self.assertEqual((last["event"], last["reason"]), ("lock.forced", "runner is gone"))
        self.assertIn("@", last["by"])
        self.fails(66, "unlock", "k", "--force", "--yes")

    def test_an_unknown_lock_is_not_found(self):
        self.fails(66, "status", "nothing")
        self.fails(66, "release", "nothing", "--id", "x")

    def test_wait_returns_when_the_lock_is_free(self):
        lock = self.acquire("k")
        self.fails(75, "wait", "k", "--wait", "300ms")
        waiting = self.start("wait", "k", "--wait", "20s")
        time.sleep(0.5)
        self.assertIsNone(waiting.poll())
        self.ok("release", "k", "--id", lock["lock_id"])
        self.assertEqual(waiting.wait(PATIENCE), 0)

    def test_wait_sees_held_descendants(self):
        """L7, across the wire: the stack is not free while one of its services is held."""
        self.ok("acquire", "--stack", "shop", "--environment", "prod", "--service", "api")
        self.fails(75, "wait", "--stack", "shop", "--environment", "prod", "--wait", "100ms")
        self.fails(75, "acquire", "--stack", "shop", "--environment", "prod")

    def test_watch_shows_events_as_they_happen_and_goes_on_after_a_restart(self):
        watch = self.start("watch", "--json", "--prefix", "k")
        wait_until(lambda: '"/v1/events"' in self.read("server.log") or self.has_listener(), "the listener")
        self.acquire("k1")
        self.assertEqual(json.loads(watch.stdout.readline())["lock_key"], "k1")
        self.kill_server()
        self.serve()
        self.acquire("other")
        self.acquire("k2")
        self.assertEqual(json.loads(watch.stdout.readline())["lock_key"], "k2")
        watch.send_signal(signal.SIGINT)
        watch.wait(PATIENCE)

    def has_listener(self):
        time.sleep(0.5)  # the log of a stream is written when it ends
        return True


class TestRun(RemoteCase):
    def test_run_holds_the_lock_while_the_command_runs_and_passes_its_status_on(self):
        result = self.belay("run", "k", "--", "sh", "-c", "echo $BELAY_TOKEN $BELAY_STORE; exit 7")
        self.assertEqual(result.code, 7, result)
        token, store = result.out.split()
        self.assertGreater(int(token), 0)
        self.assertEqual(store, self.url)
        self.assertEqual(self.status("k")["outcome"], "failed")

    def test_run_adopts_a_lock_that_was_acquired_for_it(self):
        lock = self.acquire("k", "--ttl", "60s")
        result = self.ok("run", "--adopt", lock["lock_id"], "k", "--", "sh", "-c", "echo $BELAY_LOCK_ID $BELAY_TOKEN")
        new_id, token = result.out.split()
        self.assertNotEqual(new_id, lock["lock_id"])
        self.assertGreater(int(token), lock["token"])
        self.assertNotEqual(self.belay("run", "--adopt", lock["lock_id"], "k", "--", "true").code, 0)
        self.assertEqual(self.status("k")["status"], "released")

    def test_heartbeats_keep_a_lease_that_is_shorter_than_the_command(self):
        process, _ = self.start_command("--ttl", "6s", "--heartbeat", "300ms", script="sleep 9")
        end = time.monotonic() + 8
        while time.monotonic() < end:
            self.assertEqual(self.status("k")["status"], "active")
            time.sleep(0.1)
        self.assertEqual(process.wait(PATIENCE), 0)

    def test_six_that_wait_run_in_the_order_of_their_arrival(self):
        """L4"""
        lock = self.acquire("k")
        runs = []
        for i in range(6):
            runs.append(self.start("run", "--wait", "60s", "--owner", f"w{i}", "k", "--", "sh", "-c",
                                   f"echo {i} >>order"))
            wait_until(lambda: len(self.queue("k")) == i + 1, f"{i + 1} in line")
        self.assertEqual(self.queue("k"), [f"w{i}" for i in range(6)])
        self.ok("release", "k", "--id", lock["lock_id"])
        for run in runs:
            self.assertEqual(run.wait(PATIENCE), 0, run.stderr.read())
        self.assertEqual(self.read("order").split(), list("012345"))

    def test_a_wait_longer_than_one_poll_keeps_its_place(self):
        """L4, L6: with a ttl of 3 s a poll takes 1 s."""
        lock = self.acquire("k", "--ttl", "60s")
        first = self.start("run", "--ttl", "3s", "--wait", "30s", "--owner", "a", "k", "--", "sh", "-c", "echo a >>order")
        wait_until(lambda: self.queue("k") == ["a"], "the first in line")
        second = self.start("run", "--wait", "30s", "--owner", "b", "k", "--", "sh", "-c", "echo b >>order")
        wait_until(lambda: self.queue("k") == ["a", "b"], "the second in line")
        for _ in range(30):
            self.assertEqual(self.queue("k"), ["a", "b"])
            time.sleep(0.1)
        self.ok("release", "k", "--id", lock["lock_id"])
        self.assertEqual((first.wait(PATIENCE), second.wait(PATIENCE)), (0, 0))
        self.assertEqual(self.read("order").split(), ["a", "b"])

    def test_a_waiter_that_gives_up_leaves_the_queue(self):
        self.acquire("k")
        waiting = self.start("run", "--wait", "60s", "k", "--", "true")
        wait_until(lambda: len(self.queue("k")) == 1, "one in line")
        waiting.send_signal(signal.SIGINT)
        waiting.wait(PATIENCE)
        wait_until(lambda: self.queue("k") == [], "an empty line")
        self.fails(75, "run", "--wait", "400ms", "k", "--", "true")
        wait_until(lambda: self.queue("k") == [], "an empty line")

    def test_a_command_whose_lock_was_ended_by_force_is_stopped(self):
        """L6: 76 says that the lock was lost."""
        process, pid = self.start_command("--ttl", "10s", "--heartbeat", "300ms", script="exec sleep 60")
        self.ok("unlock", "k", "--force", "--yes")
        self.assertEqual(process.wait(PATIENCE), 76)
        self.assert_gone(pid)


class TestKinds(RemoteCase):
    def hold(self, name, *options, key="k"):
        """A command that holds the lock until it reads a line; returns it once it runs."""
        process = self.start("run", "--owner", name, *options, key, "--", "sh", "-c", f"echo $BELAY_TOKEN >{name}; read line",
                             stdin=subprocess.PIPE)
        wait_until(lambda: self.has(name) and self.read(name), f"{name} to run")
        return process

    def finish(self, process):
        process.stdin.write("go\n")
        process.stdin.flush()
        self.assertEqual(process.wait(PATIENCE), 0)

    def owners(self, key="k"):
        return [holder["locked_by"] for holder in self.status(key)["holders"]]

    def test_commands_run_beside_each_other_in_slots_and_the_next_waits(self):
        """L1"""
        a, b = self.hold("a", "--slots", "2"), self.hold("b", "--slots", "2")
        self.assertNotEqual(self.read("a"), self.read("b"))
        self.fails(75, "run", "--slots", "2", "k", "--", "touch", "ran")
        self.fails(64, "run", "--slots", "3", "k", "--", "touch", "ran")
        waiting = self.start("run", "--owner", "c", "--wait", "60s", "--slots", "2", "k", "--", "touch", "c-ran")
        wait_until(lambda: self.queue("k") == ["c"], "one in line")
        self.assertFalse(self.has("ran") or self.has("c-ran"))
        self.finish(a)
        self.assertEqual(waiting.wait(PATIENCE), 0)
        self.assertTrue(self.has("c-ran"))
        self.assertEqual(self.owners(), ["b"])
        self.finish(b)
        self.assertTrue(self.is_free("k"))

    def test_shared_commands_exclude_an_exclusive_one(self):
        """L1, L4"""
        a, b = self.hold("a", "--shared"), self.hold("b", "--shared")
        self.assertEqual((self.owners(), self.status("k")["mode"]), (["a", "b"], "shared"))
        writer = self.start("run", "--owner", "w", "--wait", "60s", "k", "--", "touch", "w-ran")
        wait_until(lambda: self.queue("k") == ["w"], "one in line")
        self.fails(75, "run", "--shared", "k", "--", "true")
        self.finish(a)
        self.assertFalse(self.has("w-ran"))
        self.finish(b)
        self.assertEqual(writer.wait(PATIENCE), 0)

    def test_one_of_several_holders_learns_at_once_of_its_forced_end_and_the_others_go_on(self):
        """L6: whatever the heartbeat is."""
        lost, other = self.hold("lost", "--shared", "--ttl", "10m"), self.hold("other", "--shared", "--ttl", "10m")
        ids = {holder["locked_by"]: holder["lock_id"] for holder in self.status("k")["holders"]}
        request = urllib.request.Request(f"{self.url}/v1/locks/k?lock_id={ids['lost']}", method="DELETE")
        urllib.request.urlopen(request, timeout=10).close()
        self.assertEqual(lost.wait(PATIENCE), 76)
        self.assertEqual(self.owners(), ["other"])
        self.finish(other)

    def test_a_holder_of_a_slot_survives_a_restart_of_the_server(self):
        held = self.hold("a", "--slots", "2", "--ttl", "6s", "--heartbeat", "500ms")
        self.kill_server()
        time.sleep(1)
        self.serve()
        time.sleep(6)  # longer than the lease that the killed server knew of
        self.assertEqual(self.owners(), ["a"])
        self.finish(held)


class TestServerGone(RemoteCase):
    def test_a_holder_survives_a_restart_within_its_lease(self):
        process, _ = self.start_command("--ttl", "10s", "--heartbeat", "500ms", script="sleep 4; echo done >end")
        before = self.status("k")
        self.kill_server()
        time.sleep(1)
        self.serve()
        self.assertEqual(process.wait(PATIENCE), 0, process.stderr.read())
        self.assertTrue(self.has("end"))
        after = self.status("k")
        self.assertEqual((after["lock_id"], after["token"], after["status"]),
                         (before["lock_id"], before["token"], "released"))

    def test_a_command_that_ends_while_the_server_is_down_still_releases_its_lock(self):
        process, pid = self.start_command("--ttl", "30s", script="read line; exit 0", stdin=subprocess.PIPE)
        self.kill_server()
        process.stdin.write("go\n")
        process.stdin.flush()
        self.assert_gone(pid)
        time.sleep(0.7)
        self.serve()
        self.assertEqual(process.wait(PATIENCE), 0, process.stderr.read())
        self.assertEqual(self.status("k")["status"], "released")

    def test_a_command_whose_server_stays_down_is_stopped_before_its_lease_expires(self):
        """L6"""
        process, pid = self.start_command("--ttl", "2s", "--heartbeat", "300ms", script="exec sleep 60")
        self.kill_server()
        self.assertEqual(process.wait(PATIENCE), 76)
        self.assert_gone(pid)

    def test_a_waiter_survives_a_restart_and_gets_the_lock(self):
        lock = self.acquire("k", "--ttl", "60s")
        waiting = self.start("run", "--wait", "60s", "--owner", "w", "k", "--", "true")
        wait_until(lambda: self.queue("k") == ["w"], "one in line")
        self.kill_server()
        time.sleep(0.5)
        self.assertIsNone(waiting.poll())
        self.serve()
        wait_until(lambda: self.queue("k") == ["w"], "the waiter in line again")
        self.ok("release", "k", "--id", lock["lock_id"])
        self.assertEqual(waiting.wait(PATIENCE), 0, waiting.stderr.read())

    def test_waiters_keep_their_places_when_the_server_is_killed(self):
        """L4: a queue of six, and a server that is killed twice meanwhile."""
        lock = self.acquire("k", "--ttl", "120s")
        waiting = []
        for i in range(6):
            waiting.append(self.start("run", "--wait", "90s", "--owner", f"w{i}", "k", "--", "sh", "-c",
                                      f"echo w{i} >>order"))
            wait_until(lambda: len(self.queue("k")) == i + 1, "one more in line")
        for _ in range(2):
            self.kill_server()
            self.serve()
            self.assertEqual(self.queue("k"), [f"w{i}" for i in range(6)])
        time.sleep(2)  # all waiters have returned: a missing one would delay the queue by a second
        self.ok("release", "k", "--id", lock["lock_id"])
        for process in waiting:
            self.assertEqual(process.wait(PATIENCE), 0, process.stderr.read())
        self.assertEqual(self.read("order").split(), [f"w{i}" for i in range(6)])

    def test_a_signal_ends_a_wait_at_once_and_gives_the_place_up(self):
        """Not at the end of the current request, which takes seconds, nor at the next one."""
        self.acquire("k", "--ttl", "120s")
        took = []
        for _ in range(5):
            waiting = self.start("acquire", "--wait", "60s", "--owner", "w", "k")
            wait_until(lambda: self.queue("k") == ["w"], "one in line")
            time.sleep(0.1)
            began = time.monotonic()
            waiting.send_signal(signal.SIGINT)
            self.assertEqual(waiting.wait(PATIENCE), 130, waiting.stderr.read())
            took.append(time.monotonic() - began)
            wait_until(lambda: self.queue("k") == [], "nobody in line")
        self.assertLess(min(took), 0.4)

    def test_a_loss_is_recorded_where_the_lock_is(self):
        """L9: lock.lost names the holder, although the lock was forced behind its back."""
        process, pid = self.start_command("--ttl", "30s", "--heartbeat", "200ms", "--owner", "loser",
                                          "--meta", "job=7", script="exec sleep 60")
        lock = self.status("k")
        self.ok("unlock", "k", "--force", "--yes")
        self.assertEqual(process.wait(PATIENCE), 76)
        self.assert_gone(pid)
        events = [e for e in self.ok("history", "--json", "k").json()["events"] if e["event"] == "lock.lost"]
        self.assertEqual([(e["lock_id"], e["token"], e["locked_by"], e["level"], e["metadata"]) for e in events],
                         [(lock["lock_id"], lock["token"], "loser", "WARN", {"job": "7"})])

    def test_a_holder_learns_of_a_forced_unlock_at_once_whatever_its_heartbeat(self):
        """L6, also after the server has been away."""
        for restart in (False, True):
            process, pid = self.start_command("--ttl", "1h", "--heartbeat", "40m", script="exec sleep 60")
            time.sleep(0.3)
            if restart:
                self.kill_server()
                time.sleep(0.3)
                self.serve()
                time.sleep(1.5)  # to find that it is back
            began = time.monotonic()
            self.ok("unlock", "k", "--force", "--yes")
            _, err = process.communicate(timeout=PATIENCE)
            self.assertLess(time.monotonic() - began, 5)
            self.assertEqual(process.returncode, 76, err)
            self.assertIn("lost the lock 'k': lock 'k' was released by force", err)
            self.assert_gone(pid)

    def test_a_missing_server_is_reported_in_one_line_and_exits_69(self):
        url = f"http://127.0.0.1:{free_port()}"
        for command in (["status", "k"], ["acquire", "k"], ["list"], ["run", "k", "--", "true"],
                        ["acquire", "k", "--wait", "30s"], ["watch"]):
            began = time.monotonic()
            result = self.fails(69, *command, "--store", url) if command[0] != "run" else \
                self.fails(69, "--store", url, *command)
            self.assertEqual(result.err.count("\n"), 1, result)
            self.assertIn("cannot reach", result.err)
            self.assertLess(time.monotonic() - began, 5)

    def test_a_port_that_the_url_does_not_have_is_named(self):
        """L8: the user forgot it. Nothing listens at this address of this machine."""
        self.assertIn("cannot reach 127.42.0.80:80: ", self.fails(69, "status", "k", "--store", "http://127.42.0.80").err)

    def test_a_server_that_is_not_belay_is_reported_as_such(self):
        result = self.belay("status", "k", "--store", self.url + "/elsewhere")
        self.assertEqual(result.code, 78, result)
        self.assertIn("does not answer as a belay server", result.err)

    def test_a_password_in_the_url_is_refused_and_not_shown(self):
        result = self.belay("status", "k", "--store", "http://me:secret@127.0.0.1:1")
        self.assertEqual(result.code, 64, result)
        self.assertNotIn("secret", result.err)
        self.assertIn("BELAY_AUTH_FILE", result.err)

    def test_doctor_asks_the_server(self):
        self.assertRegex(self.ok("doctor").out, r"(?m)^ok +server +answers within \d+ ms; its store is \S+$")
        missing = self.fails(69, "doctor", "--store", f"http://127.0.0.1:{free_port()}")
        self.assertRegex(missing.out, r"(?m)^FAILED +server +cannot reach ")
        secret = self.fails(78, "doctor", "--store", "http://me:secret@127.0.0.1:1")
        self.assertNotIn("secret", secret.out + secret.err)

    def test_doctor_soon_leaves_a_server_that_never_answers(self):
        """L8: two attempts of 5 s, and one if another server answers; each attempt had 10 s, and there were three."""
        with socket.create_server(("127.0.0.1", free_port())) as hung:
            url = f"http://127.0.0.1:{hung.getsockname()[1]}"
            began = time.monotonic()
            self.fails(69, "doctor", "--store", url)
            self.assertLess(time.monotonic() - began, 20)
            began = time.monotonic()
            out = self.ok("doctor", "--store", f"{url},{self.url}").out
            self.assertLess(time.monotonic() - began, 20)
            self.assertRegex(out, rf"(?m)^warning +server +{url} cannot be used: no answer from ")
            (took_ms,) = re.findall(rf"(?m)^ok +server +{self.url} answers within (\d+) ms; its store is ", out)
            self.assertLess(int(took_ms), 5000)  # not the time that the other one took
        self.belay("doctor", "--store", "http://me:secret@127.0.0.1:1", env={"BELAY_DISABLED": "1"})

    def test_doctor_asks_every_server_of_a_list(self):
        missing = f"http://127.0.0.1:{free_port()}"
        self.assertRegex(self.fails(69, "doctor", "--store", f"{missing},{missing}/x").out,
                         r"(?m)^FAILED +server +none of the 2 servers can be used$")
        self.assertRegex(self.ok("doctor", "--store", f"{self.url},{missing}").out,
                         rf"(?m)^warning +server +{missing} cannot be used: cannot reach .* -> correct this, or remove the server from the list$")
        self.file, self.port = f"sqlite:{self.dir}/other.db", free_port()
        self.serve()
        both = f"{self.url},http://127.0.0.1:{self.port}"
        self.assertRegex(self.fails(78, "doctor", "--store", both).out,
                         rf"(?m)^FAILED +server +http://127.0.0.1:{self.port} has another store, ")


class TestTokens(RemoteCase):
    tokens = [("root", "admin", "admin-secret"), ("ci", "locker", "locker-secret"), ("eye", "reader", "reader-secret")]

    def setUp(self):
        super().setUp()
        self.use("admin-secret")

    def use(self, secret, mode=0o600):
        path = self.dir / "token"
        path.write_text(secret + "\n", encoding="utf-8")
        path.chmod(mode)
        self.env["BELAY_AUTH_FILE"] = str(path)

    def test_doctor_fails_if_a_server_of_a_list_does_not_know_the_token(self):
        self.tokens = [("other", "admin", "other-secret")]
        self.write_tokens()
        self.file, self.port = f"sqlite:{self.dir}/other.db", free_port()
        self.serve()
        other = f"http://127.0.0.1:{self.port}"
        result = self.fails(77, "doctor", "--store", f"{self.url},{other}")
        self.assertRegex(result.out, rf"(?m)^ok +server +{self.url} answers .*\n(.*\n)*FAILED +server +{other} cannot be used: "
                                     r"the server does not know the token")
        self.assertNotIn("secret", result.out + result.err)

    def test_the_token_in_the_file_is_the_acquirer(self):
        self.use("locker-secret")
        lock = self.acquire("k", "--owner", "job", "--owner-name", "Nightly")
        self.assertEqual(lock["locked_by_name"], "Nightly (ci)")
        self.ok("run", "other", "--", "true")

    def test_the_file_may_be_named_in_the_configuration(self):
        path = self.env.pop("BELAY_AUTH_FILE")
        config = self.dir / "c.yaml"
        config.write_text(f"auth_file: {path}\n", encoding="utf-8")
        self.ok("acquire", "k", "--config", str(config))

    def test_the_token_may_be_in_the_environment_and_is_never_shown(self):
        self.env["BELAY_AUTH_FILE"] = self.path("nowhere")  # the variable comes first
        self.env["BELAY_AUTH_TOKEN"] = "locker-secret"
        self.assertEqual(self.acquire("k", "--owner-name", "Nightly")["locked_by_name"], "Nightly (ci)")
        for command in (["config", "show"], ["status", "k", "--verbose"], ["run", "k2", "--verbose", "--", "true"]):
            result = self.ok(*command)
            self.assertNotIn("locker-secret", result.out + result.err)
        for secret, code in (("wrong-secret", 77), ("two words", 78), ("x" * 5000, 78), ("line\nbreak", 78)):
            self.env["BELAY_AUTH_TOKEN"] = secret
            result = self.fails(code, "status", "k")
            self.assertIn("BELAY_AUTH_TOKEN", result.err)
            self.assertNotIn(secret, result.err)
        self.env["BELAY_AUTH_TOKEN"] = ""  # unset
        self.fails(78, "status", "k")

    def test_a_file_in_the_working_directory_cannot_redirect_the_token(self):
        del self.env["BELAY_STORE"]
        (self.dir / "belay.yaml").write_text(f"store: {self.url}\n", encoding="utf-8")
        result = self.fails(78, "acquire", "k")
        self.assertIn("'store' is not permitted", result.err)
        self.ok("acquire", "k", "--config", "belay.yaml")  # somebody named it
        self.ok("acquire", "k2", env={"BELAY_CONFIG": "./belay.yaml"})

    def test_no_token_or_a_wrong_one_is_77_and_says_what_to_set(self):
        for secret in (None, "wrong"):
            if secret is None:
                self.env.pop("BELAY_AUTH_FILE")
            else:
                self.use(secret)
            for command in (["status", "k"], ["acquire", "k"], ["list"], ["watch"]):
                result = self.fails(77, *command)
                self.assertEqual(result.err.count("\n"), 1, result)
                self.assertIn("BELAY_AUTH_FILE", result.err)
                self.assertNotIn("wrong", result.err)

    def test_a_reader_may_read_and_nothing_else(self):
        self.acquire("k")
        self.use("reader-secret")
        shown = self.status("k")
        self.assertIsNone(shown["lock_id"])
        self.fails(77, "acquire", "k2")
        self.fails(77, "unlock", "k", "--force", "--yes")
        self.fails(75, "wait", "k", "--wait", "100ms")

    def test_a_file_that_others_may_read_is_refused(self):
        for mode in (0o644, 0o604, 0o620):
            self.use("admin-secret", mode)
            result = self.fails(78, "status", "k")
            self.assertIn("chmod 600", result.err)
            self.assertNotIn("admin-secret", result.err)

    def test_a_file_that_is_not_one_token_is_refused(self):
        for text in ("", "two words", "a\nb"):
            self.use(text)
            self.fails(78, "status", "k")
        self.env["BELAY_AUTH_FILE"] = self.path("nowhere")
        self.fails(78, "status", "k")


class TestTls(RemoteCase):
    def setUp(self):
        super().setUp()
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                        "-days", "2", "-subj", "/CN=belay", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout",
                        self.path("key.pem"), "-out", self.path("cert.pem")], check=True, capture_output=True)
        self.kill_server()
        self.serve("--tls-cert", self.path("cert.pem"), "--tls-key", self.path("key.pem"))
        self.env["BELAY_STORE"] = f"https://127.0.0.1:{self.port}"

    def test_a_trusted_server_is_used(self):
        self.env["BELAY_CA_FILE"] = self.path("cert.pem")
        self.ok("run", "k", "--", "true")
        self.assertEqual(self.status("k")["outcome"], "completed")

    def test_a_signal_ends_a_wait_at_once(self):
        self.env["BELAY_CA_FILE"] = self.path("cert.pem")
        self.acquire("k", "--ttl", "120s")
        took = []
        for i in range(4):
            waiting = self.start("acquire", "--wait", "60s", "--owner", f"w{i}", "k")
            wait_until(lambda: self.events("k").count("wait.began") > i, "one in line")
            time.sleep(0.1)
            began = time.monotonic()
            waiting.send_signal(signal.SIGINT)
            self.assertEqual(waiting.wait(PATIENCE), 130, waiting.stderr.read())
            took.append(time.monotonic() - began)
        self.assertLess(min(took), 0.4)

    def test_an_untrusted_server_receives_nothing(self):
        result = self.fails(69, "acquire", "k")
        self.assertIn("certificate", result.err)
        self.assertEqual(self.local("status", "k").code, 66)

    def test_a_url_without_tls_is_told_what_to_write(self):
        """L8"""
        result = self.belay("status", "k", "--store", f"http://127.0.0.1:{self.port}")
        self.assertIn("this port speaks TLS only: use https://", result.err)


class LostAnswers(BelayCase):
    """A server that takes the first request and says nothing, and then does not know the token, as after a reload."""

    def serve(self):
        refusal = json.dumps({"error": {"code": "unauthorized", "message": "no such token", "lock": None}}).encode()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(self.listener.close)

        def answer():
            for n in itertools.count():
                try:
                    client, _ = self.listener.accept()
                except OSError:
                    return
                with client:
                    if client.recv(65536) and n > 0:
                        client.sendall(b"HTTP/1.1 401 Unauthorized\r\nConnection: close\r\nContent-Type: application/json\r\n"
                                       b"Content-Length: %d\r\n\r\n" % len(refusal) + refusal)
        threading.Thread(target=answer, daemon=True).start()
        return f"http://127.0.0.1:{self.listener.getsockname()[1]}"

    def test_a_refused_token_does_not_undo_a_request_whose_answer_was_lost(self):
        """L5: it may have happened, and the same id shows it."""
        for command in (["acquire", "k", "--id", "i"], ["acquire", "k", "--id", "i", "--wait", "1m"], ["renew", "k", "--id", "i"],
                        ["release", "k", "--id", "i"]):
            with self.subTest(command=command):
                err = self.fails(74, *command, "--store", self.serve()).err
                self.assertRegex(err, "answer was lost, and it may have happened.*: the server wants a token")


if __name__ == "__main__":
    main()
