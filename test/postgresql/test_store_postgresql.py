"""What is PostgreSQL's own: its schema and rights, restarts, poolers, lost connections (docs/stores/postgresql.md)."""
import concurrent.futures
import http.client
import json
import os
import select
import signal
import socket
import statistics
import subprocess
import threading
import time
import unittest
import urllib.parse

from pg_proxy import Proxy, damaged, warning
from pg_support import BELAY, OwnServerCase, PostgresCase, postgresql, wait_until
from support import free_port


# A name server that knows two names, with two addresses and with one, and writes down what it was asked for.
NAMES = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>

int getaddrinfo(const char *host, const char *service, const struct addrinfo *hints, struct addrinfo **out)
{
    int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **) = dlsym(RTLD_NEXT, "getaddrinfo");
    int problem;

    if (host != NULL && strcmp(host, "one.test") == 0) {
        fputs("one.test\\n", stderr);
        return real("127.0.0.1", service, hints, out);
    }
    if (host == NULL || strcmp(host, "db.test") != 0) {
        return real(host, service, hints, out);
    }
    problem = real("127.0.0.2", service, hints, out);
    return problem != 0 ? problem : real("127.0.0.1", service, hints, &(*out)->ai_next);
}
"""


class Url(PostgresCase):
    def test_a_parameter_that_nobody_knows_is_named(self):
        """L8"""
        err = self.fails(64, "status", "k", "--store", self.url("colour=red")).err
        self.assertIn('"colour"', err)
        self.assertIn("retain_records", err)

    def test_bad_values_are_refused(self):
        """L8"""
        for param, text in (("schema=pg_x", "schema='pg_x'"), ("schema=Big", "schema='Big'"),
                            ("max_clock_step=2h", "at most 1h"), ("retain_events=soon", "retain_events='soon'"),
                            ("retain_events=59m", "at least 1h"), ("retain_records=0s", "at least 1h"), ("listen=", "listen=''")):
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

    def test_a_host_that_does_not_answer_is_left_for_the_next(self):
        """As a machine that has lost its power: libpq alone would stay with it."""
        with socket.create_server(("127.0.0.1", 0)) as hung:
            url = (f"postgres://postgres@127.0.0.1:{hung.getsockname()[1]},127.0.0.1:{self.server.port}/postgres"
                   f"?schema={self.schema}")
            self.ok("acquire", "k", "--store", url)
            began = time.monotonic()
            self.fails(69, "status", "k", "--store", f"postgres://x@127.0.0.1:{hung.getsockname()[1]}/x?connect_timeout=1")
            self.assertLess(time.monotonic() - began, 8)
            ports = f"{hung.getsockname()[1]},{self.server.port}"
            env = {"PGHOST": "127.0.0.1,127.0.0.1", "PGPORT": ports, "PGUSER": "postgres", "PGDATABASE": "postgres",
                   "PGCONNECT_TIMEOUT": "1"}
            self.ok("status", "k", "--store", f"postgresql://?schema={self.schema}", env=env)

    def with_names(self):
        source, library = self.dir / "names.c", self.dir / "names.so"
        source.write_text(NAMES, encoding="ascii")
        subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
        return {"LD_PRELOAD": str(library), "ASAN_OPTIONS": "verify_asan_link_order=0:" + self.env.get("ASAN_OPTIONS", "")}

    def test_a_name_is_looked_up_once_for_a_connection_and_shown(self):
        env = self.with_names()
        done = self.ok("acquire", "k", "--store", self.url().replace("127.0.0.1", "one.test"), env=env)
        self.assertEqual(done.err.count("one.test\n"), 1, done.err)
        err = self.fails(69, "list", "--store", "postgresql://one.test:9/x", env=env).err
        self.assertIn('cannot connect to PostgreSQL: connection to server at "one.test" (127.0.0.1), port 9 failed: ', err)

    def test_an_address_that_does_not_answer_is_left_for_the_next_of_the_name(self):
        env = self.with_names()
        url = self.url().replace("127.0.0.1", "db.test")
        with socket.create_server(("127.0.0.2", self.server.port)):
            began = time.monotonic()
            self.ok("acquire", "k", "--store", url, env=env)
            self.assertGreater(time.monotonic() - began, 1, "the first address was tried")
            self.ok("acquire", "l", "--store", f"{url}&connect_timeout=1", env=env)
        self.ok("acquire", "m", "--store", url, env=env)  # it refuses
        err = self.fails(69, "list", "--store", "postgresql://db.test:9/x", env=env).err
        for address in ("127.0.0.1", "127.0.0.2"):
            self.assertEqual(err.count(f'"db.test" ({address}), port 9 failed: Connection refused'), 1, err)

    def test_a_port_that_is_none_is_bad_input(self):
        """L8"""
        at = "postgresql://postgres@127.0.0.1"
        for url, port in ((f"{at}:abc/postgres", "abc"), (f"{at}/postgres?port=abc", "abc"), (f"{at}:70000/postgres", "70000"),
                          (f"{at}:0/postgres", "0"), (f"{at}:{self.server.port},127.0.0.1:1x/postgres", "1x"),
                          (f"{self.store}&listen=postgresql%3A//127.0.0.1%3A5e3", "5e3")):
            with self.subTest(url):
                err = self.fails(64, "list", "--store", url).err
                self.assertIn(f"the store URL has the port '{port}': a port is a number from 1 to 65535", err)
        self.ok("list", "--store", self.url(port=f"{self.server.port},127.0.0.1:"))

    def test_a_password_that_reads_as_a_port_is_not_shown(self):
        for password in ("sesame/x", "x@y:sesame"):
            err = self.fails(64, "list", "--store", f"postgresql://me:{password}@127.0.0.1/postgres").err
            self.assertIn("%2F", err)
            self.assertNotIn("sesame", err)

    def test_a_password_that_reads_as_a_host_is_not_shown(self):
        for url in ("postgresql://me:a@sesame@127.0.0.1/postgres", "postgres://me:a?b@sesame@127.0.0.1",
                    f"{self.store}&listen=postgresql%3A//me%3Aa%40sesame%40127.0.0.1/postgres"):
            for command in ("list", "doctor", "state list", "table describe"):
                with self.subTest(url=url, command=command):
                    result = self.belay(*command.split(), "--store", url)
                    self.assertEqual(result.code, 78 if command == "doctor" else 64)
                    self.assertIn("more than one '@' before the database: in a password write '/', ':' and '@' as %2F, %3A and %40",
                                  result.out + result.err)
                    self.assertNotIn("sesame", result.out + result.err)

    def test_each_host_that_cannot_be_used_is_named(self):
        with socket.socket() as one, socket.socket() as two:
            for closed in (one, two):
                closed.bind(("127.0.0.1", 0))
            ports = [closed.getsockname()[1] for closed in (one, two)]
            url = f"postgresql://postgres@127.0.0.1:{ports[0]},127.0.0.1:{ports[1]}/postgres"
            err = self.fails(69, "list", "--store", url).err
        for port in ports:
            self.assertEqual(err.count(f"port {port} failed: Connection refused"), 1, err)
        self.assertEqual(err.count("\n"), 1, err)

    def test_the_server_that_is_not_there_is_unreachable(self):
        with socket.socket() as closed:
            closed.bind(("127.0.0.1", 0))
            result = self.fails(69, "acquire", "k", "--store", self.url(port=closed.getsockname()[1]))
        self.assertIn("cannot connect to PostgreSQL", result.err)

    def test_a_database_that_is_not_there_is_named(self):
        result = self.fails(78, "acquire", "k", "--store", f"postgresql://postgres@127.0.0.1:{self.server.port}/none")
        self.assertIn('database "none" does not exist: create it, or correct the URL', result.err)
        self.sql("CREATE ROLE lonely LOGIN")
        self.addCleanup(self.sql, "DROP ROLE lonely")
        unnamed = "the URL names none, so it is the user's name; write postgresql://HOST/DATABASE"
        for end, env, advice in (("", {}, unnamed), ("/", {}, unnamed), ("/lonely", {}, "create it, or correct the URL"),
                                 ("", {"PGDATABASE": "lonely"}, "create it, or correct the URL")):
            with self.subTest(end=end, env=env):
                url = f"postgresql://lonely@127.0.0.1:{self.server.port}{end}"
                self.assertIn(f'database "lonely" does not exist: {advice}', self.fails(78, "acquire", "k", "--store", url, env=env).err)

    def test_a_server_that_sends_no_warnings_is_refused(self):
        """L5: it would not say that the wait for a synchronous standby was cancelled."""
        env = {"PGOPTIONS": "-c client_min_messages=error"}
        self.assertIn("client_min_messages is error", self.fails(78, "acquire", "k", env=env).err)
        self.assertIn("client_min_messages is error", self.fails(78, "doctor", env=env).out)
        self.fails(66, "status", "k")

    def test_transactions_that_do_not_see_what_others_did_meanwhile_are_refused(self):
        """Of a freeze that was created while an acquisition waited for its row, and of any other change."""
        for level in ("repeatable read", "serializable"):
            env = {"PGOPTIONS": "-c default_transaction_isolation=" + level.replace(" ", "\\ ")}
            text = f"default_transaction_isolation is {level}: a lock could be acquired after a freeze was confirmed"
            self.assertIn(f"{text}: set it to 'read committed' for this user (ALTER ROLE, or PGOPTIONS)",
                          self.fails(78, "acquire", "k", env=env).err)
            self.assertIn(text, self.fails(78, "doctor", env=env).out)
        self.fails(66, "status", "k")

    def test_a_server_that_sends_no_more_warnings_is_refused_by_new_connections(self):
        role = f"{self.schema}_quiet"
        self.sql(f"CREATE ROLE {role} LOGIN")
        self.addCleanup(self.sql, f"DROP OWNED BY {role}; DROP ROLE {role}")
        self.ok("table", "create", "--grant", role)
        front = self.start("serve", "--json", "--listen", "127.0.0.1:0", "--store", self.store.replace("postgres@", f"{role}@"))
        address = json.loads(front.stdout.readline())["listening"][0]
        self.ok("run", "k", "--store", address, "--", "true")
        self.sql(f"ALTER ROLE {role} SET client_min_messages = error")
        self.ok("run", "k", "--store", address, "--", "true")
        self.sql(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{role}'")
        result = self.belay("acquire", "k", "--store", address)
        self.assertNotEqual(result.code, 0)
        self.assertIn("client_min_messages is error", result.err)


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

    def test_a_role_that_is_not_there_is_named(self):
        """L8"""
        self.assertIn("has no role 'nobody-here': create it", self.fails(64, "table", "create", "--grant", "nobody-here").err)

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
        self.assertRegex(self.fails(77, "acquire", "k", "--store", self.as_user).err, "permission denied.*table create --grant ROLE")
        self.ok("table", "create", "--grant", self.role)
        lock = self.ok("acquire", "--json", "k", "--store", self.as_user).json()
        self.ok("release", "k", "--id", lock["lock_id"], "--store", self.as_user)

    def test_a_user_who_may_not_create_a_schema_is_told_who_may(self):
        url = self.as_user.replace(f"schema={self.schema}", "schema=theirs")
        err = self.fails(77, "table", "create", "--store", url).err
        self.assertIn(f"'{self.role}' may not create a schema in the database 'postgres'", err)

    def test_no_schema_of_another_owner_is_used(self):
        """The owner could replace functions that run with the rights of whoever made them."""
        schema = f"{self.schema}_theirs"
        self.sql(f"CREATE SCHEMA {schema} AUTHORIZATION {self.role}")
        self.addCleanup(self.sql, f"DROP SCHEMA {schema} CASCADE")
        url = self.url().replace(self.schema, schema)
        self.sql(f"CREATE FUNCTION {schema}.hello() RETURNS integer LANGUAGE sql AS $$ SELECT 1 / 0 $$")
        self.assertIn(f"the schema '{schema}' belongs to the role '{self.role}'", self.fails(77, "table", "create", "--store", url).err)
        self.assertEqual(self.sql(f"SELECT count(*) FROM pg_class WHERE relnamespace = '{schema}'::regnamespace"), "0")

    def test_no_schema_is_used_in_which_others_may_create_functions(self):
        """They could create one that PostgreSQL prefers to belay's, with the rights of the owner."""
        schema = f"{self.schema}_open"
        self.sql(f"CREATE SCHEMA {schema}; GRANT CREATE, USAGE ON SCHEMA {schema} TO {self.role}")
        self.addCleanup(self.sql, f"DROP SCHEMA {schema} CASCADE")
        url = self.url().replace(self.schema, schema)
        self.assertIn(f"REVOKE CREATE ON SCHEMA {schema} FROM {self.role}", self.fails(77, "table", "create", "--store", url).err)
        self.sql(f"REVOKE CREATE ON SCHEMA {schema} FROM {self.role}; GRANT CREATE ON SCHEMA {schema} TO PUBLIC")
        self.assertIn(f"REVOKE CREATE ON SCHEMA {schema} FROM PUBLIC", self.fails(77, "table", "create", "--store", url).err)
        self.assertEqual(self.sql(f"SELECT count(*) FROM pg_class WHERE relnamespace = '{schema}'::regnamespace"), "0")
        self.sql(f"REVOKE CREATE ON SCHEMA {schema} FROM PUBLIC")
        self.ok("table", "create", "--store", url)

    def test_a_user_cannot_delete_what_is_new(self):
        """L3, L5 and L9 rest on the events and on the records of locks that have ended."""
        self.ok("table", "create", "--grant", self.role)
        self.ok("run", "k", "--", "true")
        url = self.as_user.split("?", maxsplit=1)[0]
        done = subprocess.run([postgresql.program("psql"), "-XAtq", url, "-c", f"SELECT {self.schema}.forget(9e18::bigint, 9e18::bigint, NULL)"],
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.stdout, "0\n", done.stderr)
        self.assertEqual(self.ok("status", "--json", "k").json()["outcome"], "completed")
        self.assertEqual(self.events("k"), ["lock.acquired", "lock.released"])

    def test_a_list_of_freezes_with_a_bad_time_freezes(self):
        """A failed cast would make each acquisition fail with an error that says nothing of freezes."""
        freeze = {"id": "f", "pattern": "a", "reason": "r", "by": "b", "from": "zz", "until": {}, "ended": [1]}
        self.sql(f"SELECT @schema@.item_put('freeze', 'list', '{json.dumps([freeze])}', -1)")
        self.assertIn("frozen by b: r", self.fails(75, "acquire", "a").err)
        self.acquire("b")
        self.ok("unfreeze", "a")
        self.acquire("a")

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

    def test_a_password_of_the_connection_for_wake_ups_is_shown_nowhere(self):
        for listen, shown in (("postgres:secret@127.0.0.1", "postgres@127.0.0.1"), ("postgres:a?secret@127.0.0.1", "postgres@127.0.0.1"),
                              ("127.0.0.1:PORT/postgres?user=postgres%26password=secret", "127.0.0.1:PORT/postgres?user=postgres")):
            parts = [f"{text}:PORT/postgres" if "@" in text else text for text in (listen, shown)]
            url, shown = (self.store + "&listen=postgresql://" + text.replace("PORT", str(self.server.port)) for text in parts)
            for command in (["doctor"], ["run", "k", "--", "sh", "-c", 'echo "$BELAY_STORE"'], ["config", "show"]):
                with self.subTest(listen=listen, command=command):
                    result = self.belay("--store", url, *command)
                    self.assertNotIn("secret", result.out + result.err)
                    self.assertIn(shown, result.out + result.err)

    def test_a_password_is_shown_nowhere(self):
        listen = urllib.parse.quote(f"postgresql://postgres:secret@127.0.0.1:{self.server.port}/postgres", safe="")
        for url in (self.store.replace("postgres@", "postgres:secret@"), self.store + "&password=secret",
                    self.store + "&listen=" + listen):
            for command in (["doctor"], ["list"], ["run", "k", "--", "sh", "-c", 'echo "$BELAY_STORE"'],
                            ["run", "--allow-empty-key", "", "--", "sh", "-c", 'echo "$BELAY_STORE"'],
                            ["acquire", "k", "--heartbeat", "1m"]):
                with self.subTest(url=url, command=command):
                    result = self.belay("--store", url, *command)
                    self.assertNotIn("secret", result.out + result.err)
                    self.assertIn(self.store, result.out + result.err)
            self.sql("DELETE FROM @schema@.locks")
            for option in ("--store", "--state-store"):
                shown = self.ok("config", "show", "--json", option, url).out
                self.assertNotIn("secret", shown)
                self.assertIn(self.store, shown)

    def test_a_password_is_not_shown_while_locking_is_off(self):
        """Then no store takes it out of the URL: it is not opened, or cannot be."""
        url, off = self.store.replace("postgres@", "postgres:secret@"), {"BELAY_DISABLED": "1"}
        self.assertEqual(self.ok("--store", url, "run", "k", "--", "sh", "-c", 'echo "$BELAY_STORE"', env=off).out, f"{self.store}\n")
        front = self.start("serve", "--json", "--listen", f"127.0.0.1:{free_port()}", "--store", f"{url}&sslmode=requir", env=off)
        self.assertEqual(json.loads(front.stdout.readline())["store"], f"{self.store}&sslmode=requir")


class Advice(OwnServerCase):
    def test_a_password_that_is_missing_is_asked_for(self):
        """L8"""
        self.sql("CREATE ROLE careful LOGIN PASSWORD 'secret'")
        path = os.path.join(self.server.home, "pg_hba.conf")
        with open(path, encoding="utf-8") as file:
            rules = file.read()
        with open(path, "w", encoding="utf-8") as file:
            file.write("host all careful all scram-sha-256\n" + rules)
        self.sql("SELECT pg_reload_conf()")
        url = self.store.replace("postgres@", "careful@")
        wait_until(lambda: "wants the password of the user 'careful'" in self.fails(77, "list", "--store", url).err, "the new rule")
        self.assertRegex(self.fails(77, "list", "--store", url, env={"PGPASSWORD": "wrong"}).err,
                         "password authentication failed for user \"careful\" at '127.0.0.1'$")


class DoctorOfServer(OwnServerCase):
    def found(self, name, *args):
        found = json.loads(self.belay("doctor", "--json", *args).out)["findings"]
        return next((one["level"], one["text"]) for one in found if one["name"] == name)

    def psql(self, text):
        """A session that stays as it is after these statements, which end with a line of output."""
        psql = subprocess.Popen([postgresql.program("psql"), "-XAtq", self.server.url], stdin=subprocess.PIPE,
                                stdout=subprocess.PIPE, text=True)
        self.addCleanup(self.end, psql)
        psql.stdin.write(text + "\n")
        psql.stdin.flush()
        psql.stdout.readline()
        return psql

    def test_a_user_who_cannot_see_transactions_is_told_so(self):
        self.sql("CREATE ROLE plain LOGIN")
        self.ok("table", "create", "--grant", "plain")
        as_plain = ("--store", self.url().replace("postgres@", "plain@"))
        self.assertEqual(self.found("transactions", *as_plain), ("ok", "none is old"))
        self.psql("BEGIN; SELECT pg_current_xact_id();")
        self.assertEqual(self.found("transactions"), ("ok", "none is old"))
        level, text = self.found("transactions", *as_plain)
        self.assertEqual((level, text[:32]), ("warning", "cannot tell whether one is old: "))
        self.sql("GRANT pg_monitor TO plain")
        self.assertEqual(self.found("transactions", *as_plain), ("ok", "none is old"))

    def test_a_standby_that_is_only_named_is_not_synchronous(self):
        self.assertEqual(self.found("replication"), ("ok", "no standby is connected"))
        self.sql("ALTER SYSTEM SET synchronous_standby_names = 'other'")
        self.sql("SELECT pg_reload_conf()")
        self.addCleanup(self.sql, "SELECT pg_reload_conf()")
        self.addCleanup(self.sql, "ALTER SYSTEM RESET synchronous_standby_names")
        wait_until(lambda: self.sql("SHOW synchronous_standby_names") == "other", "the setting to count")
        level, text = self.found("replication")
        self.assertEqual(level, "failed")
        self.assertIn("none of them is connected: every change waits", text)


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

    def stop_log_writer(self):
        """So that the log is written only when a commit waits for it."""
        pid = int(self.sql("SELECT pid FROM pg_stat_activity WHERE backend_type = 'walwriter'"))
        os.kill(pid, signal.SIGSTOP)

    def test_nothing_that_a_server_acknowledged_is_lost_by_kill_9(self):
        """L1, L2: requests that come together share transactions, and so the flush of the log."""
        self.server.options += ["-c", "bgwriter_lru_maxpages=0"]
        self.server.stop()
        self.server.start(quick=False)
        front = self.start("serve", "--json", "--listen", "127.0.0.1:0")
        address = json.loads(front.stdout.readline())["listening"][0].split("//")[1]
        connections = {f"k-{n}": http.client.HTTPConnection(address, timeout=60) for n in range(16)}
        for connection in connections.values():
            self.addCleanup(connection.close)
        grouped = "SELECT count(*) FROM (SELECT FROM @schema@.events GROUP BY id >> 14 HAVING count(*) > 1) x"
        tokens = []

        def ask(key, verb, body):
            connections[key].request("POST", f"/v1/locks/{key}/{verb}", json.dumps(body))
            answer = json.load(connections[key].getresponse())
            self.assertNotIn("error", answer)
            return key, answer

        with concurrent.futures.ThreadPoolExecutor(len(connections)) as pool:
            for _ in range(3):
                self.stop_log_writer()
                before = int(self.sql(grouped))
                while True:
                    locks = dict(pool.map(lambda key: ask(key, "acquire", {"locked_by": "me", "ttl_ms": 3600000}), connections))
                    if int(self.sql(grouped)) > before + 10:
                        break
                    list(pool.map(lambda key: ask(key, "release", {"lock_id": locks[key]["lock_id"]}), connections))
                self.server.kill()  # with its log writer, which is stopped
                self.server.start(quick=False)
                found = {lock["key"]: lock["lock_id"] for lock in self.ok("list", "--json").json()["locks"]}
                self.assertEqual(found, {key: lock["lock_id"] for key, lock in locks.items()})
                self.assertTrue(all(lock["token"] > max(tokens, default=0) for lock in locks.values()))
                tokens += [lock["token"] for lock in locks.values()]
                list(pool.map(lambda key: ask(key, "release", {"lock_id": locks[key]["lock_id"]}), connections))


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
        self.assertEqual(process.wait(60), 0)

    WOKEN_MS = 125  # a quarter of PG_POLL_MS
    LISTENERS = "FROM pg_stat_activity WHERE query LIKE '%pg_listening_channels%' AND pid <> pg_backend_pid()"

    def test_a_waiter_whose_listener_was_terminated_is_woken_again(self):
        """L4: by a new connection, and not by its poll twice a second only."""
        times = []
        for n in range(21):  # seven are enough, unless the machine is busy
            lock = self.acquire(f"k{n}")
            process = self.waiter(f"k{n}")
            old = wait_until(lambda: self.sql(f"SELECT pid {self.LISTENERS}"), "the listener")
            self.sql(f"SELECT pg_terminate_backend({old})")
            wait_until(lambda: self.sql(f"SELECT pid {self.LISTENERS}") not in ("", old), "the next listener")
            self.ok("release", f"k{n}", "--id", lock["lock_id"])
            self.assertEqual(process.wait(60), 0)
            times.append(int(self.sql("SELECT max(at_ms) FILTER (WHERE type = 'lock.acquired') - max(at_ms) FILTER "
                                      f"(WHERE type = 'lock.released') FROM @schema@.events WHERE key = 'k{n}'")))
            if n in (6, 20) and statistics.median(times) < self.WOKEN_MS:
                return
        self.fail(f"a waiter is not woken, or late: {times}")


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
              "false, NULL), 1)"
        found = self.sql(f"BEGIN; {(one + ' FROM generate_series(1, 100);')} "
                         "SELECT pg_current_xact_id_if_assigned() IS NULL; COMMIT").splitlines()
        self.assertEqual(found, ["R"] * 100 + ["t"])

    def test_a_batch_after_its_deadline_changes_nothing(self):
        batch = json.dumps({"d": 1, "e": [], "w": [{"k": "k", "c": 2, "s": 1, "v": {"q": 0, "c": 0}}]})
        self.assertEqual(self.sql("SELECT code FROM @schema@.commit('" + batch + "')"), "4")
        self.fails(66, "status", "k")

    def psql(self):
        return [postgresql.program("psql"), "-XAtq", "-h", "127.0.0.1", "-p", str(self.server.port), "-U", "postgres", "postgres"]

    def keep(self, statement):
        """Another session, in a transaction that has run this: what ends it is for the caller to write."""
        other = subprocess.Popen(self.psql(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.addCleanup(other.__exit__, None, None, None)
        self.addCleanup(other.kill)
        other.stdin.write(f"BEGIN;\n{statement.replace('@schema@', self.schema)};\n\\echo there\n")
        other.stdin.flush()
        for line in other.stdout:
            if line == "there\n":
                return other
        raise AssertionError("the other session has ended")

    def waits(self, *calls):
        """Processes that call these, once all of them wait for a row. `deadline` is 300 ms from then on."""
        started = [subprocess.Popen([*self.psql(), "-c", f"SELECT {self.schema}.{call}".replace(
            "deadline", f"{self.schema}.clock_ms() + 300")], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for call in calls]
        wait_until(lambda: self.server.sql("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'") == str(len(calls)),
                   "the wait")
        return started

    def test_an_acquisition_that_waits_past_its_deadline_changes_nothing(self):
        """L5: for another's row of a key that is new, which comes to nothing."""
        other = self.keep("INSERT INTO @schema@.locks SELECT a.* FROM @schema@.absent('k') a")
        acquire, = self.waits("acquire('k', deadline, 'id', '', 'o', 'n', NULL, false, 0, 0, 60000, false, false, false, NULL)")
        other.communicate("SELECT pg_sleep(0.5);\nROLLBACK;\n", timeout=60)
        self.assertIn("the deadline has passed", acquire.communicate(timeout=60)[0])
        self.fails(66, "status", "k")

    def make_keys(self):
        """Calls for a free key, one that is the turn of `w`, and one that is held."""
        for key in ("free", "next", "held"):
            self.acquire(key, "--id", f"{key}-id", "--ttl", "1h")
        self.ok("release", "free", "--id", "free-id")
        ticket = {"i": "w", "k": "next", "o": "o", "n": "n", "a": "", "s": 0, "l": 3600000, "m": 0, "c": 0, "j": False}
        self.sql(f"SELECT @schema@.queue('next', 9223372036854775807, '{json.dumps(ticket)}', false, NULL, NULL, NULL, NULL)")
        self.ok("release", "next", "--id", "next-id")
        holder = "'{0}', '', 'o', 'n', NULL, false, 0, 0, 60000, false, false"
        return {"free": f"acquire('free', deadline, {holder.format('new-id')}, false, NULL)",
                "next": f"claim('next', deadline, {holder.format('w')}, 1::smallint, 1, NULL)",
                "held": "change('held', deadline, 'held-id', 5, 1, 1::smallint, 'lock.released', NULL, NULL, -2, 'c', 'h')"}

    def test_a_call_gives_up_a_row_that_stays_locked(self):
        """Its client has given up before: backends that wait for ever would fill max_connections."""
        calls = {**self.make_keys(), "queue": "queue('held', deadline, '{\"i\": \"w2\", \"l\": 60000}', false, NULL, NULL, NULL, NULL)"}
        self.keep("SELECT key FROM @schema@.locks FOR UPDATE")
        for process in self.waits(*(call.replace("deadline", "9223372036854775807") for call in calls.values())):
            self.assertIn("lock timeout", process.communicate(timeout=60)[0])

    def test_a_lease_that_expires_while_its_renewal_waits_stays_expired(self):
        """L3: PostgreSQL looks at the expiry before the wait only, if the other session has not changed the row."""
        self.acquire("k", "--id", "id", "--ttl", "1h")
        change = "('k', 'id', false, true, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, false, false, 'lock.renewed', 1, " \
                 "NULL, NULL, -1)"
        alone = "change('k', 9223372036854775807, 'id', 6, 0, 1::smallint, 'lock.renewed', NULL, NULL, -1, 'c', 'h')"
        group = f"change_many(9223372036854775807, false, false, ARRAY[{change}::@schema@.one_change])"
        for call in (alone, group):  # the end is too close to be sure: commit() is to decide
            said = self.sql(f"UPDATE @schema@.locks SET expires_ms = @schema@.clock_ms() + 100; SELECT @schema@.{call}")
            self.assertNotRegex(said, r"\bC \d")
        self.sql("UPDATE @schema@.locks SET expires_ms = @schema@.clock_ms() + 3600000")
        self.assertRegex(self.sql(f"SELECT @schema@.{group}"), r"\bC \d")
        other = self.keep("SELECT key FROM @schema@.locks FOR SHARE")
        renewal, = self.waits(alone)
        other.communicate("SELECT pg_sleep(0.2);\nROLLBACK;\n", timeout=60)
        self.assertIn("the deadline has passed", renewal.communicate(timeout=60)[0])

    def test_a_change_that_waits_past_its_deadline_for_a_row_is_not_made(self):
        """L5: another session keeps the row locked, and changes nothing."""
        calls = self.make_keys()
        before = self.sql("SELECT key, revision, held FROM @schema@.locks ORDER BY key")
        for key, call in calls.items():
            with self.subTest(key):
                other = self.keep(f"SELECT key FROM @schema@.locks WHERE key = '{key}' FOR UPDATE")
                change, = self.waits(call)
                other.communicate("SELECT pg_sleep(0.5);\nCOMMIT;\n", timeout=60)
                self.assertIn("the deadline has passed", change.communicate(timeout=60)[0])
        self.assertEqual(self.sql("SELECT key, revision, held FROM @schema@.locks ORDER BY key"), before)

    def test_a_state_that_waits_past_its_deadline_twice_is_not_saved(self):
        """First for its upload, then for another state of this name, which is rolled back."""
        self.sql("INSERT INTO @schema@.blob_uploads VALUES ('t', 0); INSERT INTO @schema@.blob_pieces VALUES ('t', 1, 'b')")
        upload = self.keep("SELECT tag FROM @schema@.blob_uploads FOR UPDATE")
        name = self.keep("INSERT INTO @schema@.blobs VALUES ('n', 'other', 1, 0)")
        save, = self.waits("blob_put('n', 't', NULL, 2, 'a', deadline + 700, NULL, NULL, NULL, 0)")
        upload.communicate("SELECT pg_sleep(0.7);\nCOMMIT;\n", timeout=60)
        name.communicate("SELECT pg_sleep(0.6);\nROLLBACK;\n", timeout=60)
        self.assertIn("ERROR", save.communicate(timeout=60)[0])
        self.assertEqual(self.sql("SELECT count(*) FROM @schema@.blobs"), "0")


class Tail(PostgresCase):
    def test_nothing_is_missed_with_eight_writers(self):
        """L9: a later id is never seen before an earlier one."""
        self.sql("CREATE FUNCTION @schema@.linger() RETURNS trigger LANGUAGE plpgsql AS "
                 "'BEGIN PERFORM pg_sleep(random() * 0.1); RETURN NULL; END'; "
                 "CREATE CONSTRAINT TRIGGER linger AFTER INSERT ON @schema@.events DEFERRABLE INITIALLY DEFERRED "
                 "FOR EACH ROW EXECUTE FUNCTION @schema@.linger()")  # as commits do that wait for a slow disk
        watch = self.start_watch()
        script = "for i in 1 2 3 4 5 6 7 8; do \"$BELAY\" run --quiet w-$0-$i -- true; done"
        writers = [subprocess.Popen(["sh", "-c", script, str(n)], env={**self.environment(None), "BELAY": BELAY}, cwd=self.dir)
                   for n in range(8)]
        for writer in writers:
            self.assertEqual(writer.wait(300), 0)
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

    def test_an_answer_that_cannot_be_read_leaves_the_outcome_unknown(self):
        """It has happened: "unreachable" would say that nothing was changed."""
        front = self.start("serve", "--json", "--listen", "127.0.0.1:0", "--store", self.through)
        address = json.loads(front.stdout.readline())["listening"][0]
        for n in range(3):  # from the second on by the event loop, from the third on prepared
            self.ok("run", f"first-{n}", "--store", address, "--", "true")
        self.proxy.wanted += (b".get(", b"belay_")  # the names of prepared statements
        self.proxy.change = damaged
        for key, store in (("k", self.through), ("l", address)):
            with self.subTest(key):
                self.fails(74, "acquire", key, "--id", f"{key}-mine", "--store", store)
                self.assertEqual(self.ok("status", "--json", key).json()["lock_id"], f"{key}-mine")

    def test_a_renewal_is_made(self):
        for how in self.WAYS:
            with self.subTest(how):
                lock = self.acquire(how, "--ttl", "60s")
                self.proxy.cut = how
                self.ok("renew", how, "--id", lock["lock_id"], "--ttl", "1h", "--store", self.through)
                self.assertGreater(self.ok("status", "--json", how).json()["expires_in_ms"], 60000)
        self.assertEqual(self.proxy.cuts, len(self.WAYS))

    def test_a_holder_whose_renewal_is_unknown_says_so_without_its_id(self):
        """Who can read the log of a job could end its lock with the id."""
        run = self.start("run", "k", "--ttl", "30s", "--heartbeat", "500ms", "--store", self.through, "--",
                         "sh", "-c", 'echo "$BELAY_LOCK_ID"; exec sleep 100')
        lock_id = run.stdout.readline().strip()
        self.proxy.cut, self.proxy.is_last = "after", True
        warning = run.stderr.readline()
        run.send_signal(signal.SIGTERM)
        self.assertIn("lock 'k' was not renewed, trying again: lock 'k': the store's answer was lost, and it may have been renewed (", warning)
        self.assertTrue(lock_id)
        self.assertNotIn(lock_id, warning)
        run.communicate(timeout=60)

    def test_a_waiter_takes_one_place_and_the_lock_once(self):
        # A waiter that has not read the answer about its place when the lock is released takes it with commit().
        for name, calls in (("queue", (b".queue(",)), ("claim", (b".claim(", b".commit("))):
            for how in self.WAYS:
                with self.subTest(call=name, how=how):
                    key = f"{how}-{name}"
                    held = self.acquire(key)
                    self.proxy.wanted, self.proxy.cut, cuts = calls, how, self.proxy.cuts
                    waiter = self.start("acquire", key, "--wait", "60s", "--json", "--store", self.through)
                    wait_until(lambda key=key: len(self.ok("status", "--json", key).json()["waiting"]) == 1, "the waiter's ticket")
                    self.ok("release", key, "--id", held["lock_id"])
                    out, err = waiter.communicate(timeout=60)
                    self.assertEqual(waiter.returncode, 0, err)
                    self.assertEqual(self.proxy.cuts, cuts + 1)
                    self.assertEqual(self.ok("status", "--json", key).json()["lock_id"], json.loads(out)["lock_id"])
                    self.assertEqual(self.events(key).count("lock.acquired"), 2)

    def test_a_release_is_made(self):
        for how in self.WAYS:
            with self.subTest(how):
                lock = self.acquire(how)
                self.proxy.cut = how
                self.ok("release", how, "--id", lock["lock_id"], "--store", self.through)
                self.assertEqual(self.ok("status", "--json", how).json()["status"], "released")
        self.assertEqual(self.proxy.cuts, len(self.WAYS))

    def test_a_warning_that_is_not_about_the_commit_makes_no_outcome_unknown(self):
        """From half a queue of notifications on, PostgreSQL warns every five seconds."""
        for source, code in (("asyncQueueFillWarning", 0), ("GetNewTransactionId", 0), ("SyncRepWaitForLSN", 74)):
            proxy = Proxy(self.server.port, b".acquire(")
            self.addCleanup(proxy.close)

            def warn(data, proxy=proxy, source=source):
                proxy.listener.shutdown(socket.SHUT_RDWR)  # a client that closes its connection has no other
                return warning(source) + data

            proxy.change = warn
            with self.subTest(source):
                self.assertEqual(self.belay("acquire", source, "--store", self.url(port=proxy.port)).code, code)


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
            _, err = worker.communicate(timeout=600)
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
        psql.communicate("COMMIT;\n", timeout=60)
        self.assertEqual(waiting.wait(60), 0)


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
        self.assertEqual(psql.wait(60), 0)
        self.assertIn("lock.acquired", watch.stdout.readline())


class PoolerCase(OwnServerCase):
    POOL = "pool_mode = transaction\ndefault_pool_size = 2\n"

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
                       f"{self.POOL}server_tls_sslmode = disable\n"
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

    def use_it(self):
        """A holder, a waiter and commands."""
        url = self.url(port=self.bouncer_port)
        lock = self.ok("acquire", "--json", "k", "--store", url).json()
        waiter = self.start("acquire", "k", "--wait", "60s", "--store", url)
        wait_until(lambda: self.ok("status", "--json", "k").json()["waiting"], "the waiter's ticket")
        for n in range(3):
            self.ok("run", f"other-{n}", "--store", url, "--", "true")
        self.ok("release", "k", "--id", lock["lock_id"], "--store", url)
        self.assertEqual(waiter.wait(60), 0)


class SessionPooler(PoolerCase):
    POOL = "pool_mode = session\ndefault_pool_size = 20\n"

    def test_locks_and_waiters_work_through_it(self):
        self.ok("table", "create", "--store", self.url(port=self.bouncer_port).replace(self.schema, "through_it"))
        self.use_it()


class Pooler(PoolerCase):
    """In transaction mode: no LISTEN, and prepared statements of others."""

    def test_locks_and_waiters_work_through_it(self):
        self.ok("table", "create", "--store", self.url(port=self.bouncer_port).replace(self.schema, "through_it"))
        self.use_it()

    def test_many_calls_of_one_process_work_through_it(self):
        """Statements that one connection prepared are not on the next one."""
        server = self.start("serve", "--json", "--listen", "127.0.0.1:0", "--store", self.url(port=self.bouncer_port))
        address = json.loads(server.stdout.readline())["listening"][0]
        script = "for i in 1 2 3 4 5 6 7 8; do \"$BELAY\" run --quiet --store \"$1\" w-$0-$i -- true || exit 1; done"
        workers = [subprocess.Popen(["sh", "-c", script, str(n), address], env={**self.environment(None), "BELAY": BELAY},
                                    cwd=self.dir) for n in range(4)]
        for worker in workers:
            self.assertEqual(worker.wait(300), 0)

    def test_statements_of_two_schemas_are_told_apart(self):
        """L1: a server process knows a statement of the one when a call of the other gets there."""
        one = self.serve_through_it(self.schema)
        for n in range(4):
            self.ok("acquire", f"before-{n}", "--store", one)
        self.server.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'client backend' "
                        "AND pid <> pg_backend_pid()")
        other = self.serve_through_it("other")
        for n in range(4):
            self.ok("acquire", f"other-{n}", "--store", other)
        for n in range(4):
            self.ok("acquire", f"after-{n}", "--store", one)
        keys = [self.server.sql(f"SELECT string_agg(DISTINCT split_part(key, '-', 1), ' ') FROM {schema}.locks")
                for schema in (self.schema, "other")]
        self.assertEqual(keys, ["after before", "other"])

    def serve_through_it(self, schema):
        self.ok("table", "create", "--quiet", "--store", self.url().replace(self.schema, schema))
        server = self.start("serve", "--json", "--listen", "127.0.0.1:0", "--store",
                            self.url(port=self.bouncer_port).replace(self.schema, schema))
        return json.loads(server.stdout.readline())["listening"][0]

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
        for pooled in (url, self.url(f"listen={direct}")):  # the same session may be used for both, and still nothing arrives
            pooled = pooled.replace(f"%3A{self.server.port}", f"%3A{self.bouncer_port}")
            out = self.fails(78, "doctor", "--json", "--store", pooled).json()["findings"]
            found = next(one for one in out if one["name"] == "wake-ups")
            self.assertEqual(found["level"], "failed")
            self.assertIn(f"listen= leads to a pooler, 'postgres' at 127.0.0.1:{self.bouncer_port}: no notification", found["text"])
        lock = self.ok("acquire", "--json", "k", "--store", url).json()
        waiter = self.start("acquire", "k", "--wait", "60s", "--store", url)
        wait_until(lambda: self.server.sql("SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%pg_listening_channels%' "
                                           "AND pid <> pg_backend_pid()") != "0", "the listener")
        self.ok("release", "k", "--id", lock["lock_id"], "--store", url)
        self.assertEqual(waiter.wait(60), 0)


if __name__ == "__main__":
    unittest.main()
