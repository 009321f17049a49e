"""Failover, the server's clock, migration and many clients at once on PostgreSQL (docs/stores/postgresql.md)."""
import contextlib
import http.client
import json
import os
import re
import subprocess
import threading
import time
import unittest
import urllib.error
import urllib.request

from pg_support import BELAY, ROOT, OwnServerCase, PostgresCase, postgresql, wait_until

from pg_proxy import Proxy

import test_hammer

SECONDS = float(os.environ.get("BELAY_PG_HAMMER_SECONDS", "8"))


def fail_over(server):
    """The server is its own standby: to PostgreSQL's timeline it is the same."""
    server.stop()
    with open(os.path.join(server.home, "standby.signal"), "wb"):
        pass
    server.start()
    server.run("pg_ctl", "promote", "-D", server.home, "-w")


class Standby(OwnServerCase):
    WAITS = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'"

    def standby(self, *options):
        """A copy that follows the server."""
        copy = self.server.standby(options)
        self.addCleanup(copy.close)
        return copy.start()

    def wait_for_standbys(self, names):
        self.server.wait_for_standbys(names)

    def test_tokens_grow_over_an_asynchronous_failover(self):
        """L2: grants that the standby never saw had greater numbers."""
        copy = self.standby()
        last = self.acquire("k", "--ttl", "1h")
        wait_until(lambda: copy.sql(f"SELECT count(*) FROM {self.schema}.locks") == "1", "replication")
        copy.stop()
        lost = [self.acquire(f"lost-{n}")["token"] for n in range(40)]
        self.server.kill()
        copy.start()
        url = self.url(port=copy.port)
        self.assertRegex(self.fails(69, "acquire", "other", "--store", url).err, "read-only: this is a standby")
        both = url.replace(f"127.0.0.1:{copy.port}", f"127.0.0.1:{self.server.port},127.0.0.1:{copy.port}")
        self.assertRegex(self.fails(69, "acquire", "other", "--store", both).err,
                         f"port {self.server.port} failed: Connection refused; .*port {copy.port} failed: session is read-only: "
                         "a standby accepts no writes until it is promoted$")
        copy.run("pg_ctl", "promote", "-D", copy.home, "-w")
        self.fails(75, "acquire", "k", "--store", both)
        new = self.ok("acquire", "other", "--json", "--store", both).json()
        self.assertGreater(new["token"], max(lost))
        self.assertEqual(self.ok("status", "--json", "k", "--store", both).json()["lock_id"], last["lock_id"])

    def test_no_grant_is_lost_over_a_synchronous_failover(self):
        """L1: what was acknowledged is on the standby that takes over, and nobody else gets it."""
        copy = self.standby()
        self.wait_for_standbys("*")
        wait_until(lambda: self.sql("SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'") == "1", "the standby")
        granted, stop = [], threading.Event()

        def load(worker):
            n = 0
            while not stop.is_set():
                n += 1
                done = self.belay("acquire", "--json", f"k-{worker}-{n}", "--ttl", "1h", "--attempts", "1")
                if done.code == 0:
                    granted.append(done.json())

        threads = [threading.Thread(target=load, args=(n,)) for n in range(3)]
        for thread in threads:
            thread.start()
        wait_until(lambda: len(granted) >= 40, "some grants")
        self.server.kill()
        stop.set()
        for thread in threads:
            thread.join()
        copy.run("pg_ctl", "promote", "-D", copy.home, "-w")
        url = self.url(port=copy.port)
        locks = {lock["key"]: lock["lock_id"] for lock in self.ok("list", "--json", "--store", url).json()["locks"]}
        for lock in granted:
            self.assertEqual(locks.get(lock["key"]), lock["lock_id"])
        self.fails(75, "acquire", granted[-1]["key"], "--store", url)
        new = self.ok("acquire", "later", "--json", "--store", url).json()
        self.assertGreater(new["token"], max(lock["token"] for lock in granted))

    @contextlib.contextmanager
    def cutting(self, sql):
        """Meanwhile, run this again and again."""
        ended = threading.Event()

        def cut():
            while not ended.wait(0.05):
                self.server.sql(sql)

        thread = threading.Thread(target=cut)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def cut_the_wait(self, function):
        """Acquire k while no standby answers, and end each wait for it: the code and the message of belay."""
        self.wait_for_standbys("nobody")
        process = self.start("acquire", "k", "--id", "my-id", "--ttl", "1h")
        wait_until(lambda: self.server.sql(self.WAITS), "the wait for the standby")
        with self.cutting(f"SELECT {function}(pid) FROM ({self.WAITS}) w"):
            _, err = process.communicate(timeout=120)
        return process.returncode, err

    def check_unknown(self, function):
        """The lock is there, and belay does not say that it has it until the standby has it, too."""
        code, err = self.cut_the_wait(function)
        self.assertEqual(code, 74, err)
        self.assertEqual(self.ok("status", "--json", "k").json()["lock_id"], "my-id")
        retry = self.start("acquire", "k", "--id", "my-id", "--ttl", "1h", "--json")
        wait_until(lambda: self.server.sql(self.WAITS), "the retry's wait for the standby")
        self.assertIsNone(retry.poll())
        self.wait_for_standbys("")
        out, err = retry.communicate(timeout=60)
        self.assertEqual(retry.returncode, 0, err)
        self.assertEqual(json.loads(out)["lock_id"], "my-id")
        self.assertEqual(self.events("k"), ["lock.acquired"])

    def test_a_cancelled_wait_for_a_synchronous_standby_is_unknown(self):
        """L5"""
        self.check_unknown("pg_cancel_backend")

    def test_a_terminated_wait_for_a_synchronous_standby_is_unknown(self):
        """L5"""
        self.check_unknown("pg_terminate_backend")

    def test_of_many_cancelled_waits_none_is_taken_for_a_grant(self):
        """L5: the first look at one of them waits for the standby, and the others must not rely on that."""
        server = self.start("serve", "--json", "--listen", "127.0.0.1:0")
        address = json.loads(server.stdout.readline())["listening"][0]
        self.ok("run", "first", "--store", address, "--", "true")
        self.wait_for_standbys("nobody")
        clients = [self.start("acquire", f"k-{n}", "--ttl", "1h", "--store", address) for n in range(6)]
        wait_until(lambda: self.server.sql(f"SELECT count(*) FROM ({self.WAITS}) w") != "0", "the wait for the standby")
        until = time.monotonic() + 3
        while time.monotonic() < until and any(client.poll() is None for client in clients):
            self.server.sql(f"{self.WAITS.replace('pid', 'pg_cancel_backend(pid)')} "
                            "AND (query LIKE '%acquire%' OR query LIKE '%change_many%')")
        self.assertNotIn(0, [client.poll() for client in clients])

    def test_the_cancelled_removal_of_a_state_is_unknown(self):
        """L5: the repeated one finds nothing to remove, nor a lock to check, and must still wait for the standby."""
        server = self.start("serve", "--json", "--listen", "127.0.0.1:0", "--store", f"sqlite:{self.dir}/locks.db", "--state-store",
                            self.store)
        url = json.loads(server.stdout.readline())["listening"][0] + "/v1/terraform/shop"
        for method, body in (("LOCK", b'{"ID": "1", "Operation": "test", "Who": "me"}'),
                             ("POST", b'{"version": 4, "serial": 1, "lineage": "x"}')):
            with urllib.request.urlopen(urllib.request.Request(f"{url}?ID=1", body, method=method)):
                pass
        self.wait_for_standbys("nobody")
        self.start("acquire", "k", "--ttl", "1h")  # once it waits, the sessions that there are know of the standby, too
        wait_until(lambda: self.server.sql(self.WAITS), "the wait for the standby")
        with self.cutting(f"{self.WAITS.replace('pid', 'pg_cancel_backend(pid)')} AND query LIKE '%blob_put%'"), \
                self.assertRaises(urllib.error.HTTPError) as raised:
            urllib.request.urlopen(urllib.request.Request(f"{url}?ID=1", method="DELETE"), timeout=60)
        self.assertEqual(raised.exception.code, 504)
        raised.exception.close()
        self.wait_for_standbys("")
        with urllib.request.urlopen(urllib.request.Request(f"{url}?ID=1", method="DELETE"), timeout=60):
            pass

    def test_a_refusal_and_its_event_wait_for_no_standby(self):
        """They protect nothing."""
        self.acquire("k", "--ttl", "1h")
        self.wait_for_standbys("nobody")
        self.fails(75, "acquire", "k")
        self.assertEqual(self.events("k"), ["lock.acquired", "lock.refused"])


class ClockCase(OwnServerCase):
    """With LD_PRELOAD the server's wall clock can be set while it runs."""

    def make_server(self):
        offset = os.path.join(str(self.dir), "offset")
        with open(offset, "w", encoding="utf-8") as file:
            file.write("+0")
        os.chmod(self.dir, 0o755)
        os.chmod(offset, 0o644)
        self.offset = offset
        found = subprocess.run(["sh", "-c", "ls /usr/lib/*/faketime/libfaketimeMT.so.1"], capture_output=True, text=True,
                               check=True).stdout.split()[0]
        server = postgresql.Server(options=self.OPTIONS, env={
            "LD_PRELOAD": found, "FAKETIME_TIMESTAMP_FILE": offset, "FAKETIME_NO_CACHE": "1", "FAKETIME_DONT_FAKE_MONOTONIC": "1"})
        self.addCleanup(server.close)
        return server.init().start()

    def step(self, text):
        with open(self.offset, "w", encoding="utf-8") as file:
            file.write(text)


class Clock(ClockCase):
    """L1, L7"""

    OPTIONS = ("-c", "max_prepared_transactions=2")

    def front(self):
        server = self.start("serve", "--json", "--listen", "127.0.0.1:0")
        return json.loads(server.stdout.readline())["listening"][0]

    def test_a_holder_that_looks_first_after_a_step_still_has_its_lock(self):
        """L7: the leases have begun again before the answer is read."""
        lock = self.acquire("k", "--ttl", "40s")
        self.step("+100")
        self.ok("check", "k", "--id", lock["lock_id"])
        self.assertEqual(self.ok("list", "--json").json()["locks"][0]["status"], "active")

    def test_a_step_back_ends_no_lease(self):
        lock = self.acquire("k", "--ttl", "30s")
        self.step("-60")
        self.assertIn("lock 'k' held by", self.fails(75, "acquire", "k").err)
        self.ok("renew", "k", "--id", lock["lock_id"])

    def test_a_step_back_ends_no_command_and_lets_no_waiter_in(self):
        """L1, L4: the clock may stand still for a lease as long as the step; then it is set right again."""
        holder = self.start("run", "--ttl", "8s", "--heartbeat", "1s", "k", "--", "sh", "-c", "until [ -e go ]; do sleep 0.05; done")
        wait_until(lambda: self.belay("status", "k").code == 0, "the holder")
        waiter = self.start("acquire", "k", "--wait", "60s")
        wait_until(lambda: self.ok("status", "--json", "k").json()["waiting"], "the waiter's ticket")
        token = self.ok("status", "--json", "k").json()["token"]
        renewals = "SELECT revision FROM @schema@.locks WHERE key = 'k'"
        for offset in ("-60", "+0"):
            self.step(offset)
            for _ in range(2):
                before = self.sql(renewals)
                wait_until(lambda before=before: self.sql(renewals) != before, "a renewal")
            self.assertEqual((holder.poll(), waiter.poll()), (None, None))
            self.assertEqual(self.ok("status", "--json", "k").json()["token"], token)
        (self.dir / "go").touch()
        _, err = holder.communicate(timeout=60)
        self.assertEqual(holder.returncode, 0, err)
        self.assertEqual(waiter.wait(60), 0)

    def test_doctor_tells_of_a_clock_that_is_far_off(self):
        for offset, text in (("+3600", "ahead of"), ("-3600", "behind"), ("+0", "within 5 s of")):
            self.step(offset)
            found = {one["name"]: one for one in self.belay("doctor", "--json").json()["findings"]}["clock"]
            self.assertIn(text, found["text"])
            self.assertEqual(found["level"], "ok" if offset == "+0" else "warning")

    def test_a_step_within_the_margin_lets_nobody_in(self):
        """A lease that seems to have ended is taken over max_clock_step later."""
        url = self.url().replace("max_clock_step=10ms", "max_clock_step=4s")
        self.ok("acquire", "k", "--ttl", "9s", "--store", url)
        ends = time.monotonic() + 9
        self.step("+3.9")
        wait_until(lambda: self.ok("status", "--json", "k", "--store", url).json()["status"] == "expired", "the lease's end")
        code = self.belay("acquire", "k", "--store", url).code
        self.assertTrue(code == 75 or time.monotonic() > ends, code)  # on a machine that is slow enough it has ended

    def test_a_step_forward_lets_nobody_in_who_knew_the_clock_before(self):
        """A server compares the database's clock with its own, and begins all leases again."""
        front = self.front()
        locks = {key: self.ok("acquire", "--json", key, "--ttl", "30s", "--store", front, *more).json()
                 for key, more in (("k", ()), ("shared", ("--shared",)))}
        self.step("+60")
        for key, lock in locks.items():
            self.fails(75, "acquire", key, "--store", front)
            self.assertGreater(self.ok("status", "--json", key).json()["expires_in_ms"], 20000)
            self.ok("renew", key, "--id", lock["lock_id"])
        self.fails(75, "acquire", "k")  # one that knew nothing of it

    def test_a_request_that_arrives_after_its_deadline_grants_nothing(self):
        """L5: what was said to be unknown does not happen later."""
        proxy = Proxy(self.server.port, b".acquire(", b".commit(")
        self.addCleanup(proxy.close)
        for seconds, code in (("+0", 0), ("+60", 66)):
            with self.subTest(seconds):
                proxy.held.clear()
                proxy.go.clear()
                proxy.cut = "hold"
                client = self.start("acquire", f"k{code}", "--store", self.url(port=proxy.port))
                self.assertTrue(proxy.held.wait(60), "the request is on its way")
                client.kill()
                client.wait()
                self.step(seconds)
                proxy.go.set()
                wait_until(lambda: self.sql("SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'") == "1",
                           "the request to be over")
                self.assertEqual(self.belay("status", f"k{code}").code, code)

    def test_doctor_tells_of_a_transaction_that_delays_watch(self):
        """L9"""
        psql = subprocess.Popen([postgresql.program("psql"), "-XAtq", self.store.split("?", maxsplit=1)[0]],
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.addCleanup(self.end, psql)
        psql.stdin.write("BEGIN; SELECT pg_current_xact_id();\n")
        psql.stdin.flush()
        psql.stdout.readline()
        old = "a transaction is open for"
        self.assertNotIn(old, self.belay("doctor").out)
        self.step("+3600")
        self.assertIn(old, self.belay("doctor").out)

    def test_doctor_tells_of_a_prepared_transaction_as_of_any_other(self):
        """L9"""
        self.server.sql("BEGIN; CREATE TABLE public.x (i integer); PREPARE TRANSACTION 'forgotten'")
        old = "a transaction is open for 36"
        self.assertNotIn(old, self.belay("doctor").out)
        self.step("+3600")
        self.assertIn(old, self.belay("doctor").out)
        self.server.sql("ROLLBACK PREPARED 'forgotten'")
        self.assertNotIn(old, self.belay("doctor").out)

    def known(self):
        return self.sql("SELECT machine, server_ms - boot_ms, boot_ms FROM @schema@.clocks")

    def test_a_step_forward_lets_no_command_in_that_begins_after_it(self):
        """An earlier command on this machine left what it knew of the clock."""
        lock = self.acquire("k", "--ttl", "30s")
        other = self.acquire("other", "--ttl", "30s")
        self.step("+60")
        self.assertIn("jumped forward by", self.fails(75, "acquire", "k").err)
        self.assertGreater(self.ok("status", "--json", "k").json()["expires_in_ms"], 20000)
        for key, one in (("k", lock), ("other", other)):
            self.assertNotIn("jumped", self.ok("renew", key, "--id", one["lock_id"]).err)

    def test_a_command_may_renew_after_a_step_forward(self):
        lock = self.acquire("k", "--ttl", "30s")
        self.step("+60")
        self.assertIn("jumped forward by", self.ok("renew", "k", "--id", lock["lock_id"]).err)

    def test_a_reader_that_notices_a_step_leaves_it_to_nobody_else(self):
        """What is known of the clock is replaced only after all leases have begun again."""
        self.acquire("k", "--ttl", "30s")
        self.step("+60")
        self.ok("list")
        self.fails(75, "acquire", "k")

    def test_what_is_known_of_the_clock_is_kept_once_a_minute_for_each_machine(self):
        """A command costs no further round trip and no write for it."""
        self.acquire("a")
        first = self.known()
        self.assertEqual(len(first.splitlines()), 1)
        self.acquire("b")
        self.assertEqual(self.known(), first)
        self.sql("UPDATE @schema@.clocks SET server_ms = server_ms - 70000, boot_ms = boot_ms - 70000")
        self.sql("INSERT INTO @schema@.clocks SELECT 'old', server_start, server_ms - 8 * 86400000, 0 FROM @schema@.clocks")
        self.assertNotIn("jumped", self.ok("acquire", "c").err)
        machine, offset, boot_ms = self.known().split("|")
        self.assertEqual(machine, first.split("|")[0])
        self.assertLess(abs(int(offset) - int(first.split("|")[1])), 5000)
        self.assertGreater(int(boot_ms), int(first.split("|")[2]))

    def test_what_was_known_of_another_start_of_the_server_is_nothing(self):
        """A new server has a new clock, and all leases begin again anyway."""
        self.acquire("k", "--ttl", "30s")
        self.sql("UPDATE @schema@.clocks SET server_start = server_start - interval '1 s', server_ms = server_ms - 60000")
        self.assertNotIn("jumped", self.fails(75, "acquire", "k").err)

    def test_a_holder_renews_over_a_step_forward(self):
        """Its first call after the step is its own heartbeat."""
        holder = self.start("run", "--ttl", "8s", "--heartbeat", "1s", "k", "--", "sleep", "5")
        wait_until(lambda: self.belay("status", "k").code == 0, "the holder")
        self.step("+60")
        _, err = holder.communicate(timeout=60)
        self.assertEqual(holder.returncode, 0, err)
        self.assertIn("jumped forward by", err)


class EndedLeases(ClockCase):
    """L1, L7: a lease that had certainly ended when the old server was last used does not begin again on a new one."""

    def let_time_pass(self):
        """One lease is valid, one ended a moment ago, the others long ago; and an event says so. No process saw the clock jump."""
        locks = {key: self.ok("acquire", "--json", key, *more).json() for key, *more in (
            ("valid", "--ttl", "1h"), ("just-ended", "--ttl", "110s"), ("dead", "--ttl", "10s"),
            ("shared", "--ttl", "10s", "--shared"), ("parent/child", "--ttl", "10s"), ("released", "--ttl", "10s"))}
        self.step("+120")
        self.sql("DELETE FROM @schema@.clocks")
        self.ok("release", "released", "--id", locks["released"]["lock_id"])
        return locks

    def check(self, locks, *store):
        for key, ttl_ms in (("valid", 3600000), ("just-ended", 110000)):
            self.fails(75, "acquire", key, *store)
            left_ms = self.ok("status", "--json", key, *store).json()["expires_in_ms"]
            self.assertGreater(left_ms, ttl_ms - 60000, key)
            self.ok("renew", key, "--id", locks[key]["lock_id"], *store)
        for key in ("dead", "shared", "parent/child"):
            self.assertEqual(self.ok("status", "--json", key, *store).json()["status"], "expired", key)
            self.fails(77, "renew", key, "--id", locks[key]["lock_id"], *store)
            new = self.ok("acquire", "--json", "--ttl", "1h", key, *store).json()
            self.assertGreater(new["token"], locks[key]["token"])
            types = [event["event"] for event in self.ok("history", "--json", key, *store).json()["events"]]
            self.assertEqual(sorted(types), ["lock.acquired", "lock.acquired", "lock.taken_over"], key)

    def test_they_stay_ended_after_a_crash(self):
        locks = self.let_time_pass()
        self.server.kill()
        self.step("-86400")  # the clock of a machine that was started again may be any other
        self.server.start()
        self.ok("acquire", "first")
        self.check(locks)

    def test_they_stay_ended_on_a_standby_that_takes_over(self):
        copy = self.server.standby()  # its clock is that of this machine, two minutes behind
        self.addCleanup(copy.close)
        copy.start()
        locks = self.let_time_pass()
        last = self.sql("SELECT max(id) FROM @schema@.events")
        wait_until(lambda: copy.sql(f"SELECT max(id) FROM {self.schema}.events") == last, "replication")
        self.server.kill()
        copy.run("pg_ctl", "promote", "-D", copy.home, "-w")
        url = self.url(port=copy.port)
        self.ok("acquire", "first", "--store", url)
        self.check(locks, "--store", url)


class NewServer(PostgresCase):
    """What a server that was upgraded or restored would be without it."""

    def start_anew(self, more="version = version"):
        self.sql(f"UPDATE @schema@.meta SET server_start = server_start - interval '1 s', {more}")

    def test_tokens_grow_although_timelines_begin_again(self):
        """L2: after pg_upgrade the timeline is 1."""
        self.start_anew("timeline = 5, epoch = 2")
        self.sql("SELECT setval('@schema@.numbers', 1000)")
        self.assertGreater(self.acquire("k")["token"], (2 + 5 - 1) << 40)
        self.assertGreater(self.acquire("other")["token"], (2 + 5 - 1) << 40)

    def test_events_continue_above_those_of_a_restored_copy(self):
        """L9: there the ids of transactions are other ones."""
        self.sql("INSERT INTO @schema@.events VALUES (1::bigint << 45, 0, 1, 'lock.lost', 'k', NULL, 0, NULL, NULL, NULL, NULL, -1)")
        self.start_anew()
        lock = self.acquire("k", "--ttl", "1h")
        self.ok("release", "k", "--id", lock["lock_id"])
        self.assertEqual(self.events("k"), ["lock.lost", "lock.acquired", "lock.released"])
        tail = self.sql("SELECT string_agg(type, ' ') FROM @schema@.list_events(NULL, '', 1::bigint << 45, 10)")
        self.assertEqual(tail, "lock.acquired lock.released")

    def test_a_restored_copy_shows_its_events_before_its_first_commit(self):
        """A watch that begins there is not shown all of them again."""
        self.acquire("k")
        self.sql("UPDATE @schema@.events SET id = id + (1::bigint << 45)")
        self.start_anew()
        self.assertEqual(self.sql("SELECT count(*) FROM @schema@.list_events(NULL, '', 0, 10)"), "1")
        self.assertEqual(self.sql("SELECT count(*) FROM @schema@.events WHERE id > @schema@.before_last(NULL, '', 0, 1)"), "1")

    def test_events_continue_above_those_that_a_failover_lost(self):
        """L9: a reader that has seen them skips nothing."""
        self.acquire("k")
        last = int(self.sql("SELECT max(id) FROM @schema@.events"))
        self.start_anew("timeline = timeline - 1")
        self.acquire("other")
        self.assertGreater(int(self.sql("SELECT max(id) FROM @schema@.events")), last + (1 << 20))


class RestoredCopy(OwnServerCase):
    """L2: with the commands of the page, a copy continues above every token that was handed out."""

    def setUp(self):
        super().setUp()
        with open(os.path.join(ROOT, "docs", "stores", "postgresql.md"), encoding="utf-8") as file:
            page = " ".join(file.read().split())
        self.raise_epoch = re.search(r"`(UPDATE belay\.meta SET epoch = epoch \+ \d+)`", page)[1]
        self.show_sum = re.search(r"`(SELECT epoch \+ timeline FROM belay\.meta)`", page)[1]

    def typed(self, server, command):
        return server.sql(command.replace("belay.meta", f"{self.schema}.meta"))

    def dump(self, server):
        return server.run("pg_dump", "-h", "127.0.0.1", "-p", str(server.port), "-U", "postgres", "-n", self.schema, "postgres").stdout

    def restore(self, dump):
        copy = postgresql.Server()
        self.addCleanup(copy.close)
        copy.init().start().run("psql", "-Xq", "-v", "ON_ERROR_STOP=1", "-h", "127.0.0.1", "-p", str(copy.port), "-U", "postgres",
                                input=dump)
        return copy

    def tokens(self, server):
        """Of both ways to acquire: one key, and several."""
        url = self.url(port=server.port)
        one = self.ok("acquire", "--json", "one", "--store", url).json()
        several = self.ok("acquire", "--json", "a", "b", "--store", url).json()["locks"]
        self.ok("release", "one", "--id", one["lock_id"], "--store", url)
        self.ok("release", "a", "b", "--id", several[0]["lock_id"], "--store", url)
        return [lock["token"] for lock in (one, *several)]

    def test_a_copy_continues_above_an_original_that_failed_over_twice_since(self):
        dump = self.dump(self.server)
        original = self.tokens(self.server)
        for _ in range(2):
            fail_over(self.server)
            original += self.tokens(self.server)
        self.assertEqual(max(original) >> 40, 2)
        last = int(self.typed(self.server, self.show_sum))
        self.server.stop()
        copy = self.restore(dump)
        self.typed(copy, self.raise_epoch)
        self.assertGreater(int(self.typed(copy, self.show_sum)), last)
        self.assertGreater(min(self.tokens(copy)), max(original))

    def test_a_copy_of_a_restored_copy_that_had_failed_over_continues_above_both(self):
        original = self.tokens(self.server)
        first = self.restore(self.dump(self.server))
        self.typed(first, self.raise_epoch)
        fail_over(first)
        dump = self.dump(first)  # before the first change after the failover
        before = original + self.tokens(first)
        second = self.restore(dump)
        self.typed(second, self.raise_epoch)
        self.assertGreater(min(self.tokens(second)), max(before))

    def test_the_sum_tells_whether_a_second_restore_of_the_same_copy_is_safe(self):
        dump = self.dump(self.server)
        first = self.restore(dump)
        self.typed(first, self.raise_epoch)
        before = self.tokens(first)
        last = int(self.typed(first, self.show_sum))
        second = self.restore(dump)
        self.typed(second, self.raise_epoch)
        self.assertEqual(int(self.typed(second, self.show_sum)), last)  # not larger: not safe yet
        self.typed(second, self.raise_epoch)
        self.assertGreater(int(self.typed(second, self.show_sum)), last)
        self.assertGreater(min(self.tokens(second)), max(before))
        self.assertLess(max(self.tokens(second)), int(self.typed(second, self.show_sum)) << 40)


class Migration(PostgresCase):
    def make_version_4(self):
        self.sql("UPDATE @schema@.meta SET version = 4; "
                 "ALTER TABLE @schema@.meta DROP COLUMN event_base, DROP COLUMN clock_event; DROP FUNCTION @schema@.functions_version; "
                 "DROP FUNCTION @schema@.settled; CREATE FUNCTION @schema@.settled() RETURNS bigint LANGUAGE sql AS 'SELECT 1'")

    def make_version_2(self):
        """Other functions for what is called most, which answered with a type of their own, and another index."""
        self.make_version_4()
        self.sql("DROP TABLE @schema@.clocks; DROP FUNCTION @schema@.known_clock; DROP FUNCTION @schema@.keep_clock; "
                 "DROP TABLE @schema@.waiting CASCADE; ALTER TABLE @schema@.locks DROP COLUMN behind")
        self.sql("UPDATE @schema@.meta SET version = 2; DROP FUNCTION @schema@.acquire; DROP FUNCTION @schema@.change; "
                 "DROP TYPE @schema@.one_change CASCADE; DROP TRIGGER note_freezes ON @schema@.items; "
                 "ALTER TABLE @schema@.events DROP COLUMN used_id; ALTER TABLE @schema@.meta DROP COLUMN has_freezes; "
                 "CREATE INDEX events_of_id ON @schema@.events (key, lock_id) "
                 "WHERE type IN ('lock.acquired', 'lock.adopted'); "
                 "CREATE TYPE @schema@.brief AS (code integer); "
                 "CREATE FUNCTION @schema@.acquire() RETURNS @schema@.brief LANGUAGE sql AS 'SELECT 1'")

    def make_old(self):
        """As version 1 was: another index, another function, and none of those that are called most."""
        self.make_version_2()
        self.sql("UPDATE @schema@.meta SET version = 1; DROP INDEX @schema@.events_of_id; DROP TYPE @schema@.brief CASCADE; "
                 "CREATE FUNCTION @schema@.one() RETURNS integer LANGUAGE sql AS 'SELECT 1'")

    def test_ids_and_freezes_of_version_2_are_still_known(self):
        """L5, and a freeze that was made before."""
        self.ok("acquire", "k", "--id", "first")
        self.ok("release", "k", "--id", "first")
        self.ok("run", "k", "--", "true")
        self.ok("freeze", "prod-*", "--reason", "holidays")
        self.make_version_2()
        self.ok("table", "create")
        self.assertEqual(self.sql("SELECT to_regtype('@schema@.brief') IS NULL"), "t")
        self.assertIn("the id first had this lock", self.belay("acquire", "k", "--id", "first").err)
        self.assertNotEqual(self.belay("acquire", "prod-1").code, 0)
        self.ok("run", "k", "--", "true")

    def test_of_version_3_no_function_is_left_beside_a_new_one(self):
        self.make_version_4()
        self.sql("DROP FUNCTION @schema@.acquire; DROP FUNCTION @schema@.change; ALTER TABLE @schema@.locks RESET (toast_tuple_target); "
                 "DROP TYPE @schema@.one_change CASCADE; UPDATE @schema@.meta SET version = 3")
        for name in ("acquire", "change", "change_many", "refuse_used"):
            self.sql(f"CREATE FUNCTION @schema@.{name}(of_key text) RETURNS text LANGUAGE sql AS 'SELECT 1'")
        self.assertIn("has version 3, and this belay needs 5: run `belay table create`", self.fails(78, "acquire", "k").err)
        self.ok("table", "create")
        for name in ("acquire", "change", "change_many", "refuse_used", "settled"):
            self.assertEqual(self.sql(f"SELECT count(*) FROM pg_proc WHERE proname = '{name}' "
                                      "AND pronamespace = '@schema@'::regnamespace"), "1")
        self.assertIn("toast_tuple_target=4000", self.sql("SELECT reloptions FROM pg_class WHERE oid = '@schema@.locks'::regclass"))
        self.ok("run", "k", "--", "true")

    def test_earlier_functions_work_and_are_replaced(self):
        """A schema of the same version, whose functions begin every lease again after a restart."""
        role = f"{self.schema}_user"
        self.sql(f"CREATE ROLE {role} LOGIN")
        self.addCleanup(self.sql, f"DROP OWNED BY {role}; DROP ROLE {role}")
        self.ok("table", "create", "--grant", role)
        self.sql("DROP FUNCTION @schema@.functions_version; ALTER TABLE @schema@.meta DROP COLUMN clock_event; "
                 "DROP FUNCTION @schema@.begin_leases_again; "
                 "CREATE FUNCTION @schema@.begin_leases_again(number bigint) RETURNS void LANGUAGE sql AS 'SELECT'; "
                 "CREATE OR REPLACE FUNCTION @schema@.new_server() RETURNS void LANGUAGE sql AS $$ "
                 "SELECT @schema@.begin_leases_again(1); UPDATE @schema@.meta SET server_start = pg_postmaster_start_time() $$; "
                 "UPDATE @schema@.meta SET server_start = server_start - interval '1 s'")
        lock = self.acquire("k", "--ttl", "1h")
        self.ok("renew", "k", "--id", lock["lock_id"])
        self.assertIn("run 'belay table create'", self.fails(78, "table", "describe").err)
        found = {one["name"]: one for one in self.belay("doctor", "--json").json()["findings"]}["schema"]
        self.assertEqual(found["level"], "warning")
        self.assertTrue(self.ok("table", "create", "--json").json()["fits"])
        self.assertEqual(self.sql("SELECT clock_event = (SELECT max(id) FROM @schema@.events) FROM @schema@.meta"), "t")
        self.assertEqual(self.sql("SELECT count(*) FROM pg_proc WHERE proname = 'begin_leases_again' "
                                  "AND pronamespace = '@schema@'::regnamespace"), "1")
        self.sql("UPDATE @schema@.meta SET server_start = server_start - interval '1 s'")
        user = self.store.replace("postgres@", f"{role}@")
        self.ok("run", "other", "--store", user, "--", "true")
        self.assertTrue(self.ok("table", "describe", "--json", "--store", user).json()["fits"])
        self.ok("renew", "k", "--id", lock["lock_id"])

    def test_an_older_schema_is_migrated_under_load(self):
        role = f"{self.schema}_user"
        self.sql(f"CREATE ROLE {role} LOGIN")
        self.addCleanup(self.sql, f"DROP OWNED BY {role}; DROP ROLE {role}")
        self.ok("table", "create", "--grant", role)
        held = self.acquire("held", "--ttl", "1h")
        self.make_old()
        self.assertIn("run `belay table create`", self.fails(78, "acquire", "k").err)
        stop, codes = threading.Event(), []

        def load(worker):
            while not stop.is_set():
                codes.append(self.belay("run", f"w-{worker}", "--", "true").code)

        threads = [threading.Thread(target=load, args=(n,)) for n in range(3)]
        for thread in threads:
            thread.start()
        wait_until(lambda: len(codes) >= 5, "some load")
        makers = [self.start("table", "create") for _ in range(2)]
        for maker in makers:
            _, err = maker.communicate(timeout=60)
            self.assertEqual(maker.returncode, 0, err)
        before = len(codes)
        wait_until(lambda: len(codes) >= before + 9, "more load")
        stop.set()
        for thread in threads:
            thread.join()
        self.assertEqual(set(codes), {0, 78})
        self.assertEqual(set(codes[before + 6:]), {0})
        self.assertEqual(self.ok("status", "--json", "held").json()["lock_id"], held["lock_id"])
        self.assertTrue(self.ok("table", "describe", "--json").json()["fits"])
        self.assertEqual(self.sql("SELECT to_regproc('@schema@.one') IS NULL"), "t")
        self.ok("run", "k", "--store", self.store.replace("postgres@", f"{role}@"), "--", "true")
        self.assertEqual(self.sql("SELECT count(*) FROM pg_proc p, aclexplode(proacl) x WHERE x.grantee = 0 "
                                  "AND pronamespace = '@schema@'::regnamespace"), "0")


class Strangers(OwnServerCase):
    """Functions and operators that another role has made in `public`, where PostgreSQL finds them by their types."""

    FITTING = {"pg_advisory_xact_lock(integer)": "void", "format(text, regprocedure, regrole)": "text",
               "array_to_string(text[], text)": "text", "has_function_privilege(regprocedure, text)": "boolean",
               "equal(oid, regproc)": "boolean", "unlike(name, name)": "boolean", "times(numeric, integer)": "numeric",
               "times(double precision, integer)": "numeric"}

    def plant(self):
        for function, answer in self.FITTING.items():
            self.server.sql(f"CREATE FUNCTION public.{function} RETURNS {answer} LANGUAGE plpgsql AS $$ BEGIN "
                            f"RAISE EXCEPTION 'a stranger''s {function.split('(')[0]} ran as %', current_user; END $$")
        for name, function, left, right in (("=", "equal", "oid", "regproc"), ("!~", "unlike", "name", "name"),
                                            ("*", "times", "numeric", "integer"), ("*", "times", "float8", "integer")):
            self.server.sql(f"CREATE OPERATOR public.{name} (FUNCTION = public.{function}, LEFTARG = {left}, RIGHTARG = {right})")

    def test_no_function_of_theirs_is_called(self):
        """It would run with the rights of the user of belay, who may be a superuser."""
        self.plant()
        self.server.sql("CREATE ROLE deployers")
        other = self.url().replace(f"schema={self.schema}", "schema=other")
        self.ok("table", "create", "--grant", "deployers", "--store", other)
        self.ok("table", "describe", "--store", other)
        self.server.sql("DROP FUNCTION other.functions_version")
        self.ok("table", "create", "--store", other)
        self.sql("UPDATE @schema@.meta SET server_start = server_start - interval '1 s'")
        self.ok("run", "a,b", "--", "true")
        lock = self.acquire("k", "--shared")
        self.ok("status", "k")
        self.ok("list")
        self.ok("history", "k")
        self.ok("release", "k", "--id", lock["lock_id"])
        self.ok("run", "--wait", "1s", "k", "--", "true")
        found = self.belay("doctor", "--json")
        self.assertNotIn("stranger", found.out + found.err)
        with open(os.path.join(self.server.directory, "log"), encoding="utf-8") as log:
            self.assertNotIn("stranger's", log.read())


class FrontCase(PostgresCase):
    """Threads of one process share transactions (src/store/postgresql/postgresql_group.c)."""

    def setUp(self):
        super().setUp()
        server = self.start("serve", "--json", "--listen", "127.0.0.1:0")
        self.address = json.loads(server.stdout.readline())["listening"][0].split("//")[1]

    def ask(self, connection, key, verb, **body):
        if verb == "acquire":
            body = {"locked_by": "tester", "ttl_ms": 60000, **body}
        connection.request("POST", f"/v1/locks/{key}/{verb}", json.dumps(body))
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())

    def together(self, n, work):
        failed = []

        def run(number):
            try:
                connection = http.client.HTTPConnection(self.address, timeout=60)
                work(connection, number)
                connection.close()
            except Exception as error:  # pylint: disable=broad-exception-caught # shown below
                failed.append(repr(error))

        threads = [threading.Thread(target=run, args=(number,)) for number in range(n)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failed, [])

    def assert_grouped(self):
        most = self.sql("SELECT max(n) FROM (SELECT count(*) n FROM @schema@.events GROUP BY id >> 14) x")
        self.assertGreater(int(most), 1, "no two changes were in one transaction")


class Front(FrontCase):
    def test_each_of_a_group_gets_its_own_answer(self):
        """L1, L2, L9: granted and refused in one transaction, with an event each."""
        self.acquire("taken", "--ttl", "1h")
        tokens = []

        def work(connection, number):
            for turn in range(6):
                key = f"g-{number}"
                status, lock = self.ask(connection, key, "acquire", lock_id=f"id-{number}-{turn}")
                self.assertEqual((status, lock["lock_id"]), (200, f"id-{number}-{turn}"))
                tokens.append(lock["token"])
                self.assertEqual(self.ask(connection, "taken", "acquire")[0], 409)
                status, lock = self.ask(connection, key, "release", lock_id=f"id-{number}-{turn}")
                self.assertEqual((status, lock["lock_id"]), (200, f"id-{number}-{turn}"))

        self.together(24, work)
        self.assertEqual(len(set(tokens)), 24 * 6)
        counts = "SELECT type, count(*) FROM @schema@.events WHERE key LIKE 'g-%' GROUP BY type ORDER BY type"
        self.assertEqual(self.sql(counts), "lock.acquired|144\nlock.released|144")
        self.assert_grouped()

    def test_an_id_that_was_used_is_refused_among_others_that_are_not(self):
        """L5: in a group, the others get their locks."""
        for n in range(4):
            for lock_id in (f"used-{n}", "between"):
                self.ok("acquire", f"u-{n}", "--id", lock_id)
                self.ok("release", f"u-{n}", "--id", lock_id)
        got = {}

        def work(connection, number):
            for turn in range(4):
                lock_id = f"used-{number}" if number < 4 else f"new-{number}-{turn}"
                status, answer = self.ask(connection, f"u-{number}", "acquire", lock_id=lock_id)
                got.setdefault(number, []).append(status)
                if status == 200:
                    self.assertEqual(self.ask(connection, f"u-{number}", "release", lock_id=lock_id)[0], 200)
                else:
                    self.assertIn("had this lock", answer["error"]["message"])

        self.together(16, work)
        self.assertEqual({n: set(statuses) for n, statuses in got.items()},
                         {n: {409} if n < 4 else {200} for n in range(16)})
        self.assertEqual(self.sql("SELECT count(*) FROM @schema@.events WHERE used_id LIKE 'used-%'"), "4")

    def test_a_row_that_is_locked_for_long_holds_up_nobody_else(self):
        for n in range(3):
            self.ok("run", f"stuck-{n}", "--", "true")
        psql = subprocess.Popen([postgresql.program("psql"), "-XAtq", self.store.split("?", maxsplit=1)[0]],
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.addCleanup(self.end, psql)
        psql.stdin.write(f"BEGIN; SELECT count(*) FROM (SELECT FROM {self.schema}.locks FOR UPDATE) x;\n")
        psql.stdin.flush()
        self.assertEqual(psql.stdout.readline(), "3\n")
        done = []

        def work(connection, number):
            if number < 3:
                self.assertEqual(self.ask(connection, f"stuck-{number}", "acquire")[0], 200)
                self.assertEqual(len(done), 12)  # they came before
            else:
                for _ in range(3):
                    status, lock = self.ask(connection, f"free-{number}", "acquire")
                    self.assertEqual(status, 200)
                    self.assertEqual(self.ask(connection, f"free-{number}", "release", lock_id=lock["lock_id"])[0], 200)
                done.append(number)
                if len(done) == 12:
                    psql.stdin.write("COMMIT;\n\\q\n")
                    psql.stdin.flush()

        self.together(15, work)
        psql.wait(60)

    def test_hierarchies_through_it_and_beside_it_end_in_no_deadlock(self):
        script = ("for i in 1 2 3; do for k in '--service a' '--service b' '--component c' ''; do "
                  "\"$BELAY\" run --quiet --wait 60s --store \"$0\" --stack s --environment e $k -- true || exit 1; done; done")
        env = {**self.environment(None), "BELAY": BELAY}
        deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = 'postgres'"
        before = self.server.sql(deadlocks)
        workers = [subprocess.Popen(["sh", "-c", script, store], env=env, cwd=self.dir, stderr=subprocess.PIPE, text=True)
                   for store in (self.store, f"http://{self.address}") * 3]
        for worker in workers:
            _, err = worker.communicate(timeout=600)
            self.assertEqual(worker.returncode, 0, err)
        self.assertEqual(self.server.sql(deadlocks), before)
        left = self.sql("SELECT count(*) FROM @schema@.locks WHERE held OR tickets IS NOT NULL OR intents IS NOT NULL")
        self.assertEqual(left, "0")


class FailedOver(OwnServerCase, FrontCase):
    """On the second timeline, which is a part of each token and revision: 1 << 40."""

    def make_server(self):
        server = super().make_server()
        fail_over(server)
        return server

    def wait_in_line(self, key):
        waiter = self.start("acquire", key, "--wait", "60s", "--json")
        wait_until(lambda: self.ok("status", "--json", key).json()["waiting"], "the waiter's ticket")
        return waiter

    def test_every_way_to_change_a_lock_goes_on_above_those_of_the_first(self):
        """L2: alone, in a group, by a waiter; and a renewal, a place in the queue, and several keys at once."""
        tokens = [self.acquire(key, "--ttl", "1h")["token"] for key in ("alone", "next", "queue")]
        tokens += [lock["token"] for lock in self.ok("acquire", "--json", "a", "b").json()["locks"]]

        def work(connection, number):
            for turn in range(6):
                status, lock = self.ask(connection, f"g-{number}", "acquire", lock_id=f"id-{number}-{turn}")
                self.assertEqual(status, 200)
                tokens.append(lock["token"])
                self.assertEqual(self.ask(connection, f"g-{number}", "release", lock_id=f"id-{number}-{turn}")[0], 200)
        self.together(24, work)
        self.assert_grouped()
        renewed = self.ok("status", "--json", "alone").json()
        self.ok("renew", "alone", "--id", renewed["lock_id"])
        waiter = self.wait_in_line("next")
        self.ok("release", "next", "--id", self.ok("status", "--json", "next").json()["lock_id"])
        out, err = waiter.communicate(timeout=60)
        self.assertEqual(waiter.returncode, 0, err)
        tokens.append(json.loads(out)["token"])
        self.wait_in_line("queue")
        self.assertEqual({token >> 40 for token in tokens}, {1})
        self.assertEqual(self.sql("SELECT string_agg(key, ' ') FROM @schema@.locks WHERE revision >> 40 <> 1 OR token >> 40 <> 1"), "")


class Notifications(PostgresCase):
    def test_a_holder_that_releases_its_own_lock_notifies_nobody(self):
        """That would be a round trip for each release. A release by its id tells the holder."""
        psql = subprocess.Popen([postgresql.program("psql"), "-XAtq", self.store.split("?", maxsplit=1)[0]],
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.addCleanup(self.end, psql)
        psql.stdin.write(f"LISTEN {self.schema}_wake; SELECT 'listening';\n")
        psql.stdin.flush()
        self.assertEqual(psql.stdout.readline(), "listening\n")
        self.ok("run", "k", "--", "true")
        lock = self.acquire("other")
        self.ok("release", "other", "--id", lock["lock_id"])
        out, _ = psql.communicate("SELECT 'end';\n\\q\n", timeout=60)
        told = [line for line in out.splitlines() if "notification" in line]
        self.assertEqual(len(told), 1, out)
        self.assertIn(lock["lock_id"], told[0])


class Hammered(PostgresCase):
    """test/cli/test_hammer.py in a short form: BELAY_PG_HAMMER_SECONDS."""

    def test_no_update_is_lost_and_tokens_only_grow(self):
        """L1, L2, L4"""
        hammer = test_hammer.Hammer(str(self.dir), SECONDS, 1)
        hammer.env["BELAY_STORE"] = self.store
        hammer.is_enough = lambda: len(hammer.writes()) > SECONDS and len(hammer.deeds) == 4
        hammer.run()
        writes = hammer.writes()
        tokens = [token for token, _ in writes]
        told = f"{len(writes)} writes, codes {hammer.codes}, deeds {hammer.deeds}"
        self.assertEqual(hammer.odd[:5], [], told)
        self.assertEqual(test_hammer.lost_updates([value for _, value in writes]), 0, told)
        self.assertTrue(all(a < b for a, b in zip(tokens, tokens[1:])), told)
        self.assertGreater(len(writes), SECONDS, told)
        self.assertEqual(len(hammer.deeds), 4, told)
        self.ok("run", "--wait", "30s", "hammer", "--", "true")


if __name__ == "__main__":
    unittest.main()
