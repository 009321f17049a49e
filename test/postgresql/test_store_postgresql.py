"""What is PostgreSQL's own: its schema and rights, restarts, poolers, lost connections (docs/stores/postgresql.md)."""
import json
import os
import select
import signal
import socket
import subprocess
import threading
import time
import unittest

from pg_proxy import Proxy
from pg_support import BELAY, OwnServerCase, PostgresCase, postgresql, wait_until


class Url(PostgresCase):
    def test_a_parameter_that_nobody_knows_is_named(self):
        """L8"""
        err = self.fails(64, "status", "k", "--store", self.url("colour=red")).err
        self.assertIn('"colour"', err)
        self.assertIn("retain_records", err)

    def test_bad_values_are_refused(self):
        """L8"""
        for param, text in (("schema=pg_x", "schema='pg_x'"), ("schema=Big", "schema='Big'"),
                            ("max_clock_step=2h", "at most 1h"), ("retain_events=soon", "retain_events='soon'")):
            with self.subTest(param):
                self.assertIn(text, self.fails(64, "status", "k", "--store", self.url(param)).err)

    def test_libpqs_environment_counts(self):
        env = {"PGHOST": "127.0.0.1", "PGPORT": str(self.server.port), "PGUSER": "postgres", "PGDATABASE": "postgres"}
        self.ok("acquire", "k", "--store", f"postgresql://?schema={self.schema}", env=env)
        self.assertEqual(self.ok("status", "--json", "k").json()["status"], "active")

    def test_several_hosts_are_tried(self):
        with socket.socket() as closed:
            closed.bind(("127.0.0.1", 0))
            url = (f"postgres://postgres@127.0.0.1:{closed.getsockname()[1]},127.0.0.1:{self.server.port}/postgres"
                   f"?schema={self.schema}")
            self.ok("acquire", "k", "--store", url)

    def test_the_server_that_is_not_there_is_unreachable(self):
        with socket.socket() as closed:
            closed.bind(("127.0.0.1", 0))
            result = self.fails(69, "acquire", "k", "--store", self.url(port=closed.getsockname()[1]))
        self.assertIn("cannot connect to PostgreSQL", result.err)

    def test_a_database_that_is_not_there_is_named(self):
        result = self.fails(78, "acquire", "k", "--store", f"postgresql://postgres@127.0.0.1:{self.server.port}/none")
        self.assertIn('database "none" does not exist', result.err)


class Schema(PostgresCase):
    def test_without_it_the_message_says_how_to_make_it(self):
        err = self.fails(78, "acquire", "k", "--store", self.store.replace(self.schema, "absent")).err
        self.assertIn("belay table create", err)

    def test_it_is_described_and_can_be_made_again(self):
        self.assertEqual(self.fails(66, "table", "describe", "--json", "--store",
                                    self.store.replace(self.schema, "absent")).json()["version"], 0)
        self.acquire("k")
        self.ok("table", "create")
        found = self.ok("table", "describe", "--json").json()
        self.assertEqual((found["schema"], found["fits"]), (self.schema, True))
        self.assertEqual(self.ok("status", "--json", "k").json()["status"], "active")

    def test_many_may_make_it_at_once(self):
        url = self.store.replace(self.schema, "raced")
        processes = [self.start("table", "create", "--store", url) for _ in range(4)]
        for process in processes:
            _, err = process.communicate(timeout=60)
            self.assertEqual(process.returncode, 0, err)

    def test_one_of_a_newer_belay_is_left_alone(self):
        self.sql("UPDATE @schema@.meta SET version = 99")
        self.assertIn("of a newer belay", self.fails(78, "table", "create").err)
        self.assertIn("version 99", self.fails(78, "acquire", "k").err)

    def test_options_of_the_other_store_are_refused(self):
        """L8"""
        self.assertIn("--dry-run is for DynamoDB", self.fails(64, "table", "create", "--dry-run").err)
        self.assertIn("--grant is for PostgreSQL", self.fails(64, "table", "create", "--grant", "x", "--store", "dynamodb:t-a").err)


class Rights(PostgresCase):
    """Users execute functions, and nobody updates rows."""

    def setUp(self):
        super().setUp()
        self.role = f"{self.schema}_user"
        self.sql(f"CREATE ROLE {self.role} LOGIN")
        self.addCleanup(self.sql, f"DROP OWNED BY {self.role}; DROP ROLE {self.role}")
        self.as_user = self.store.replace("postgres@", f"{self.role}@")

    def test_a_user_needs_to_be_granted_the_schema(self):
        self.assertIn("permission denied", self.fails(77, "acquire", "k", "--store", self.as_user).err)
        self.ok("table", "create", "--grant", self.role)
        lock = self.ok("acquire", "--json", "k", "--store", self.as_user).json()
        self.ok("release", "k", "--id", lock["lock_id"], "--store", self.as_user)

    def test_a_user_cannot_write_past_the_rules(self):
        self.ok("table", "create", "--grant", self.role)
        self.acquire("k")
        for table in ("locks", "waiting", "events", "items", "meta", "clocks"):
            for verb in ("select", "insert", "update", "delete"):
                self.assertEqual(self.sql(f"SELECT has_table_privilege('{self.role}', '@schema@.{table}', '{verb}')"), "f")
        url = self.as_user.split("?", maxsplit=1)[0]
        for call in ("new_server()", "save(NULL)"):
            done = subprocess.run([postgresql.program("psql"), "-X", url, "-c", f"SELECT {self.schema}.{call}"],
                                  capture_output=True, text=True, check=False)
            self.assertIn("permission denied", done.stderr)


class Doctor(PostgresCase):
    def findings(self, *args, code=0):
        result = self.belay("doctor", "--json", *args)
        self.assertEqual(result.code, code, result)
        return {one["name"]: (one["level"], one["text"]) for one in json.loads(result.out)["findings"]}

    def test_it_finds_fsync_off_and_says_the_rest(self):
        found = self.findings(code=78)
        self.assertEqual(found["connection"][0], "ok")
        self.assertEqual(found["schema"][0], "ok")
        self.assertEqual(found["permissions"][0], "ok")
        self.assertEqual(found["wake-ups"], ("ok", "by LISTEN"))
        self.assertEqual(found["clock"][0], "ok")
        self.assertRegex(self.belay("doctor").out, "fsync is off")

    def test_a_password_is_shown_nowhere(self):
        for url in (self.store.replace("postgres@", "postgres:secret@"), self.store + "&password=secret"):
            for command in (["doctor"], ["list"], ["run", "k", "--", "sh", "-c", 'echo "$BELAY_STORE"']):
                result = self.belay(*command, "--store", url)
                self.assertNotIn("secret", result.out + result.err)
                self.assertIn(self.store, result.out + result.err)
            for option in ("--store", "--state-store"):
                shown = self.ok("config", "show", "--json", option, url).out
                self.assertNotIn("secret", shown)
                self.assertIn(self.store, shown)


class Restart(OwnServerCase):
    def test_every_lease_has_its_whole_ttl_again_and_tokens_grow(self):
        """L1, L2, L7: the clock of a server that was started again may be any other."""
        held = self.acquire("a", "--ttl", "30s")
        shared = self.acquire("s", "--ttl", "30s", "--shared")
        self.sql("UPDATE @schema@.locks SET expires_ms = expires_ms - 29000")
        self.server.kill()
        self.server.start()
        self.fails(75, "acquire", "a")
        for key, lock in (("a", held), ("s", shared)):
            now = self.ok("status", "--json", key).json()
            self.assertEqual(now["lock_id"], lock["lock_id"])
            self.assertGreater(now["expires_in_ms"], 25000)
        self.assertGreater(self.acquire("b")["token"], shared["token"])

    def test_no_acknowledged_grant_is_lost_by_kill_9(self):
        """L1, L2"""
        self.server.stop()
        self.server.start(quick=False)
        granted, stop = [], threading.Event()

        def load(worker):
            n = 0
            while not stop.is_set():
                n += 1
                done = self.belay("acquire", "--json", f"k-{worker}-{n}", "--ttl", "1h")
                if done.code == 0:
                    lock = done.json()
                    granted.append((lock["token"], lock["key"], lock["lock_id"]))

        threads = [threading.Thread(target=load, args=(n,)) for n in range(3)]
        for thread in threads:
            thread.start()
        wait_until(lambda: len(granted) >= 60, "some grants")
        self.server.kill()
        before = list(granted)
        stop.set()
        for thread in threads:
            thread.join()
        self.server.start(quick=False)
        locks = {lock["key"]: lock["lock_id"] for lock in self.ok("list", "--json").json()["locks"]}
        for _, key, lock_id in before:
            self.assertEqual(locks.get(key), lock_id)
        self.assertGreater(self.acquire("later")["token"], max(token for token, _, _ in before))


class WakeUps(PostgresCase):
    def waiter(self, key="k", **more):
        process = self.start("acquire", key, "--wait", "60s", "--json", **more)
        wait_until(lambda: self.ok("status", "--json", key).json()["waiting"], "the waiter's ticket")
        return process

    def test_a_terminated_listener_loses_nobody(self):
        lock = self.acquire("k")
        process = self.waiter()
        wait_until(lambda: self.sql("SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%pg_listening_channels%' "
                                    "AND pid <> pg_backend_pid()") != "0", "the listener")
        self.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE '%pg_listening_channels%' "
                 "AND pid <> pg_backend_pid()")
        self.ok("release", "k", "--id", lock["lock_id"])
        self.assertEqual(process.wait(15), 0)


class Refusal(PostgresCase):
    def test_a_refused_commit_takes_no_transaction_id(self):
        """One round trip, and no flush, unless its event is kept: test_fronts.Calls."""
        self.acquire("k")
        batch = json.dumps({"d": 9223372036854775807, "e": [],
                            "w": [{"k": "k", "c": 2, "s": 1, "v": {"q": 0, "c": 0}}]})
        found = self.sql("BEGIN; SELECT code FROM @schema@.commit('" + batch + "'); "
                         "SELECT pg_current_xact_id_if_assigned() IS NULL; COMMIT").splitlines()
        self.assertEqual(found[-2:], ["1", "t"])
        one = "SELECT left(@schema@.acquire('k', 9223372036854775807, 'x', '', '', '', NULL, false, 0, 0, 1000, true, true, " \
              "NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, false), 1)"
        found = self.sql(f"BEGIN; {(one + ' FROM generate_series(1, 100);')} "
                         "SELECT pg_current_xact_id_if_assigned() IS NULL; COMMIT").splitlines()
        self.assertEqual(found, ["R"] * 100 + ["t"])

    def test_a_batch_after_its_deadline_changes_nothing(self):
        batch = json.dumps({"d": 1, "e": [], "w": [{"k": "k", "c": 2, "s": 1, "v": {"q": 0, "c": 0}}]})
        self.assertEqual(self.sql("SELECT code FROM @schema@.commit('" + batch + "')"), "4")
        self.fails(66, "status", "k")


class Tail(PostgresCase):
    def test_nothing_is_missed_with_eight_writers(self):
        """L9: a later id is never seen before an earlier one."""
        watch = self.start_watch()
        script = "for i in 1 2 3 4 5 6 7 8; do \"$BELAY\" run --quiet w-$0-$i -- true; done"
        writers = [subprocess.Popen(["sh", "-c", script, str(n)], env={**self.environment(None), "BELAY": BELAY}, cwd=self.dir)
                   for n in range(8)]
        for writer in writers:
            self.assertEqual(writer.wait(120), 0)
        self.acquire("last")
        seen = []
        while not seen or seen[-1]["lock_key"] != "last":
            seen.append(json.loads(watch.stdout.readline()))
        wanted = int(self.sql("SELECT count(*) FROM @schema@.events WHERE key NOT LIKE 'first-%'"))
        self.assertEqual(len(seen), wanted)
        self.assertEqual(wanted, 8 * 8 * 2 + 1)
        self.assertEqual([event["id"] for event in seen], sorted(event["id"] for event in seen))


class Cut(PostgresCase):
    """L5: an answer that is lost, or a request that never arrived, is found out and not made twice."""

    WAYS = ("before", "middle", "after", "answer")

    def setUp(self):
        super().setUp()
        self.proxy = Proxy(self.server.port, b".acquire(", b".change(", b".commit(")
        self.addCleanup(self.proxy.close)
        self.through = self.url(port=self.proxy.port)

    def test_an_acquisition_happens_once(self):
        for how in self.WAYS:
            with self.subTest(how):
                self.proxy.cut = how
                lock = self.ok("acquire", "--json", how, "--store", self.through).json()
                self.assertEqual(self.ok("status", "--json", how).json()["lock_id"], lock["lock_id"])
                self.assertEqual(self.events(how), ["lock.acquired"])
        self.assertEqual(self.proxy.cuts, len(self.WAYS))

    def test_an_answer_that_stays_lost_is_unknown(self):
        """Never "failed": the lock may be there, and here it is."""
        self.proxy.cut, self.proxy.is_last = "after", True
        self.fails(74, "acquire", "k", "--id", "mine", "--store", self.through)
        self.assertEqual(self.ok("acquire", "--json", "k", "--id", "mine").json()["lock_id"], "mine")
        self.assertEqual(self.events("k"), ["lock.acquired"])

    def test_a_release_is_made(self):
        for how in self.WAYS:
            with self.subTest(how):
                lock = self.acquire(how)
                self.proxy.cut = how
                self.ok("release", how, "--id", lock["lock_id"], "--store", self.through)
                self.assertEqual(self.ok("status", "--json", how).json()["status"], "released")
        self.assertEqual(self.proxy.cuts, len(self.WAYS))


class Hierarchy(PostgresCase):
    def test_batches_with_ancestors_do_not_block_each_other(self):
        """Rows are locked in one order: no deadlock is ever reported."""
        script = ("for i in 1 2 3 4 5; do for k in '--service a' '--service b' '--component c' ''; do "
                  "\"$BELAY\" run --quiet --wait 60s --stack s --environment e $k -- true || exit 1; done; done")
        env = {**self.environment(None), "BELAY": BELAY}
        before = self.server.sql("SELECT deadlocks FROM pg_stat_database WHERE datname = 'postgres'")
        workers = [subprocess.Popen(["sh", "-c", script], env=env, cwd=self.dir, stderr=subprocess.PIPE, text=True)
                   for _ in range(4)]
        for worker in workers:
            _, err = worker.communicate(timeout=240)
            self.assertEqual(worker.returncode, 0, err)
        self.assertEqual(self.server.sql("SELECT deadlocks FROM pg_stat_database WHERE datname = 'postgres'"), before)
        left = self.sql("SELECT count(*) FROM @schema@.locks WHERE held OR tickets IS NOT NULL OR intents IS NOT NULL")
        self.assertEqual(left, "0")


class LockOrder(PostgresCase):
    def test_rows_are_locked_from_the_last_key_to_the_first(self):
        """A batch that waits for a key has locked none before it in this order, so two cannot wait for each other."""
        where = ("--stack", "s", "--environment", "e", "--service", "a")
        self.ok("run", *where, "--", "true")
        psql = subprocess.Popen([postgresql.program("psql"), "-XAtq", self.store.split("?", maxsplit=1)[0]],
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.addCleanup(self.end, psql)
        child = "stack:s:env:e:service:a"
        psql.stdin.write(f"BEGIN; SELECT key FROM {self.schema}.locks WHERE key = '{child}' FOR UPDATE;\n")
        psql.stdin.flush()
        self.assertEqual(psql.stdout.readline(), f"{child}\n")
        waiting = self.start("run", *where, "--", "true")
        wait_until(lambda: self.sql("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE "
                                    f"'%{self.schema}%'") == "1", "the batch to wait for the row")
        above = "SELECT key FROM @schema@.locks WHERE key = 'stack:s:env:e' FOR UPDATE NOWAIT"
        self.assertEqual(self.sql(above), "stack:s:env:e")
        psql.communicate("COMMIT;\n", timeout=30)
        self.assertEqual(waiting.wait(30), 0)


class ForeignTransaction(PostgresCase):
    def test_it_delays_the_tail_and_no_lock(self):
        """L9: an event that is older than an open transaction's may still come."""
        watch = self.start_watch()
        psql = subprocess.Popen([postgresql.program("psql"), "-XAtq", self.store.split("?", maxsplit=1)[0]],
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.addCleanup(self.end, psql)
        psql.stdin.write("BEGIN; SELECT pg_current_xact_id();\n")
        psql.stdin.flush()
        psql.stdout.readline()
        lock = self.acquire("k")
        self.ok("release", "k", "--id", lock["lock_id"])
        self.assertEqual(self.events("k"), ["lock.acquired", "lock.released"])
        self.assertEqual(select.select([watch.stdout], [], [], 1.5)[0], [])
        psql.stdin.write("COMMIT;\n\\q\n")
        psql.stdin.flush()
        self.assertEqual(psql.wait(30), 0)
        self.assertIn("lock.acquired", watch.stdout.readline())


class Pooler(OwnServerCase):
    """PgBouncer in transaction mode: no LISTEN, and prepared statements of others."""

    def make_server(self):
        server = super().make_server()
        self.bouncer_port = postgresql.free_port()
        users = os.path.join(server.directory, "users")
        conf = os.path.join(server.directory, "pgbouncer.ini")
        with open(users, "w", encoding="utf-8") as file:
            file.write('"postgres" ""\n')
        with open(conf, "w", encoding="utf-8") as file:
            file.write(f"[databases]\n* = host=127.0.0.1 port={server.port}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n"
                       f"listen_port = {self.bouncer_port}\nunix_socket_dir =\nauth_type = trust\nauth_file = {users}\n"
                       "pool_mode = transaction\ndefault_pool_size = 2\nserver_tls_sslmode = disable\n"
                       "ignore_startup_parameters = extra_float_digits\n")
        with open(os.path.join(server.directory, "bouncer.log"), "wb") as log:
            bouncer = subprocess.Popen(["/usr/sbin/pgbouncer", conf], stdout=log, stderr=log, **postgresql.unprivileged())
        self.addCleanup(bouncer.wait)
        self.addCleanup(bouncer.send_signal, signal.SIGINT)

        def listens():
            with socket.socket() as probe:
                return probe.connect_ex(("127.0.0.1", self.bouncer_port)) == 0

        wait_until(listens, "PgBouncer")
        return server

    def test_locks_and_waiters_work_through_it(self):
        url = self.url(port=self.bouncer_port)
        lock = self.ok("acquire", "--json", "k", "--store", url).json()
        waiter = self.start("acquire", "k", "--wait", "60s", "--store", url)
        wait_until(lambda: self.ok("status", "--json", "k").json()["waiting"], "the waiter's ticket")
        for n in range(3):
            self.ok("run", f"other-{n}", "--store", url, "--", "true")
        self.ok("release", "k", "--id", lock["lock_id"], "--store", url)
        self.assertEqual(waiter.wait(15), 0)

    def test_many_calls_of_one_process_work_through_it(self):
        """Statements that one connection prepared are not on the next one."""
        server = self.start("serve", "--json", "--listen", "127.0.0.1:0", "--store", self.url(port=self.bouncer_port))
        address = json.loads(server.stdout.readline())["listening"][0]
        script = "for i in 1 2 3 4 5 6 7 8; do \"$BELAY\" run --quiet --store \"$1\" w-$0-$i -- true || exit 1; done"
        workers = [subprocess.Popen(["sh", "-c", script, str(n), address], env={**self.environment(None), "BELAY": BELAY},
                                    cwd=self.dir) for n in range(4)]
        for worker in workers:
            self.assertEqual(worker.wait(120), 0)

    def test_state_is_kept_through_it(self):
        where = ("--stack", "shop", "--environment", "prod", "--store", self.url(port=self.bouncer_port))
        filler = json.dumps({"resources": {f"r{n}": "x" * 1000 for n in range(3500)}})  # several pieces: several calls
        for _ in range(2):
            self.ok("deploy", *where, "--", "sh", "-c", 'cat >"$BELAY_STATE_OUT"', text=filler)
        self.assertEqual(self.ok("state", "load", *where).json()["resources"], json.loads(filler)["resources"])

    def test_doctor_finds_it_and_listen_goes_around_it(self):
        out = self.belay("doctor", "--store", self.url(port=self.bouncer_port)).out
        self.assertRegex(out, "a pooler is between")
        direct = f"postgresql%3A%2F%2Fpostgres@127.0.0.1%3A{self.server.port}%2Fpostgres"
        url = self.url(f"listen={direct}", port=self.bouncer_port)
        self.assertIn(f"by LISTEN on 127.0.0.1:{self.server.port}", self.belay("doctor", "--store", url).out)
        lock = self.ok("acquire", "--json", "k", "--store", url).json()
        waiter = self.start("acquire", "k", "--wait", "60s", "--store", url)
        wait_until(lambda: self.server.sql("SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%pg_listening_channels%' "
                                           "AND pid <> pg_backend_pid()") != "0", "the listener")
        self.ok("release", "k", "--id", lock["lock_id"], "--store", url)
        self.assertEqual(waiter.wait(15), 0)


if __name__ == "__main__":
    unittest.main()
