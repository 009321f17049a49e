"""Every finding of `belay doctor` on PostgreSQL: its schema and rights, durability, replication, wake-ups."""
import json
import socket
import time
import unittest

from pg_proxy import Proxy
from pg_support import OwnServerCase, PostgresCase, postgresql, wait_until


class DoctorCase(PostgresCase):
    def findings(self, *args, env=None):
        result = self.belay("doctor", "--json", *args, env=env)
        self.code = result.code
        return {one["name"]: one for one in json.loads(result.out)["findings"]}

    def expect(self, name, level, text, advice, *args, code=78, **more):
        """The finding, its advice, and the exit code; a quick server has fsync off, which is 78."""
        found = self.findings(*args, **more)
        self.assertIn(name, found)
        self.assertEqual(found[name]["level"], level, found[name])
        self.assertRegex(found[name]["text"], text)
        self.assertRegex(found[name]["advice"] or "none", advice or "^none$")
        self.assertEqual(self.code, code, found)
        return found

    def make_role(self, *grants):
        role = f"{self.schema}_user"
        self.sql(f"CREATE ROLE {role} LOGIN")
        self.addCleanup(self.sql, f"DROP OWNED BY {role}; DROP ROLE {role}")
        for grant in grants:
            self.sql(f"GRANT {grant} TO {role}")
        return role, self.store.replace("postgres@", f"{role}@")


class Schema(DoctorCase):
    def test_one_that_is_missing(self):
        url = self.store.replace(self.schema, "absent")
        self.expect("schema", "failed", "^the database 'postgres' has no schema 'absent'$", "^run `belay table create`, or correct the URL$", "--store", url)

    def test_one_of_another_version(self):
        self.sql("UPDATE @schema@.meta SET version = version - 1")
        version = int(self.sql("SELECT version FROM @schema@.meta"))
        self.expect("schema", "failed", f"^the schema '{self.schema}' in 'postgres' has version {version}, and this belay needs {version + 1}$",
                    "^run `belay table create`$")
        self.sql("UPDATE @schema@.meta SET version = version + 2")
        self.expect("schema", "failed", f"has version {version + 2}, and this belay needs {version + 1}$", "^install the newer belay here$")


class Permissions(DoctorCase):
    def test_a_user_without_any(self):
        _, url = self.make_role()
        found = self.expect("schema", "failed", "permission denied.*belay table create --grant ROLE", "", "--store", url)
        self.assertEqual(found["schema"]["code"], "not_permitted")
        self.assertNotIn("permissions", found)

    def test_a_user_who_may_only_look_at_the_version(self):
        _, url = self.make_role("USAGE ON SCHEMA @schema@", "EXECUTE ON FUNCTION @schema@.hello")
        found = self.expect("permissions", "failed", "may not execute the functions of the schema", "table create --grant ROLE",
                            "--store", url)
        self.assertEqual(found["permissions"]["code"], "not_permitted")
        self.assertEqual(found["state"]["level"], "warning")
        self.assertIn("may not execute the functions for deployment state", found["state"]["text"])

    def test_a_user_who_was_granted_the_schema(self):
        role, url = self.make_role()
        self.ok("table", "create", "--grant", role)
        found = self.expect("permissions", "ok", "may execute the functions of the schema", "", "--store", url)
        self.assertEqual(found["state"]["level"], "ok")

    def test_a_user_who_may_write_past_the_rules(self):
        role, url = self.make_role("UPDATE ON @schema@.locks")
        self.ok("table", "create", "--grant", role)
        self.expect("permissions", "warning", "may change the table of locks past the rules", "revoke it", "--store", url)


class Connection(DoctorCase):
    def test_a_server_that_is_not_there(self):
        with socket.socket() as closed:
            closed.bind(("127.0.0.1", 0))
            url = self.url(port=closed.getsockname()[1])
            found = self.expect("connection", "failed", "Connection refused", "check the URL, the PG. variables and ~/.pgpass",
                                "--store", url, code=69)
            self.assertNotIn("schema", found)
            listen = f"listen=postgresql%3A%2F%2F127.0.0.1%3A{closed.getsockname()[1]}%2Fpostgres"
            self.expect("wake-ups", "failed", "Connection refused", "correct listen= in the store's URL", "--store", self.url(listen), code=78)

    def test_a_user_whose_sessions_are_read_only_is_not_told_of_a_standby(self):
        role, url = self.make_role()
        self.ok("table", "create", "--grant", role)
        self.sql(f"ALTER ROLE {role} SET default_transaction_read_only = on")
        err = self.fails(69, "list", "--store", url).err
        self.assertIn("session is read-only: it is no standby, but default_transaction_read_only is on there", err)
        several = url.replace(f":{self.server.port}/", f":{self.server.port},127.0.0.1:{self.server.port}/")
        self.assertEqual(self.fails(69, "list", "--store", several).err.count("it is no standby"), 2)
        found = self.expect("connection", "failed", f"^PostgreSQL at 127.0.0.1:{self.server.port} accepts no writes: default_transaction_read_only is on$",
                            "^set it to off for this user", "--store", f"{url}&target_session_attrs=any")
        self.assertNotIn("wake-ups", found)

    def test_the_server_and_the_user_are_named(self):
        self.expect("connection", "ok", f"^PostgreSQL [0-9]+ at 127.0.0.1:{self.server.port}, user postgres$", "")


class WakeUps(DoctorCase):
    def listen(self, database):
        return self.url(f"listen=postgresql%3A%2F%2Fpostgres@127.0.0.1%3A{self.server.port}%2F{database}")

    def test_a_notification_is_sent_and_arrives(self):
        self.expect("wake-ups", "ok", "^by LISTEN$", "")
        self.expect("wake-ups", "ok", f"^by LISTEN on 127.0.0.1:{self.server.port}$", "", "--store", self.listen("postgres"))

    def test_listen_that_leads_to_another_database(self):
        found = self.expect("wake-ups", "failed", f"^listen= leads to another database, 'template1' at 127.0.0.1:{self.server.port}: "
                            "no notification of the store arrives there, so waiters poll$",
                            "^let listen= lead directly to the database of the store$", "--store", self.listen("template1"))
        self.assertEqual(found["wake-ups"]["code"], "bad_config")

    def test_a_waiter_says_that_listen_does_not_work_and_still_gets_the_lock(self):
        lock = self.acquire("k")
        waiter = self.start("acquire", "k", "--wait", "60s", "--store", self.listen("template1"))
        text = "no notification of the store arrives through listen=, at '127.0.0.1', database 'template1'"
        self.assertTrue(any(text in line for line in waiter.stderr))
        self.ok("release", "k", "--id", lock["lock_id"])
        self.assertEqual(waiter.wait(30), 0)

    def test_a_waiter_says_that_listen_cannot_be_reached_and_still_gets_the_lock(self):
        lock = self.acquire("k")
        with socket.socket() as closed:
            closed.bind(("127.0.0.1", 0))
            port = closed.getsockname()[1]
            waiter = self.start("acquire", "k", "--wait", "60s", "--store", self.listen("postgres").replace(f"%3A{self.server.port}", f"%3A{port}"))
            text = f'warning: listen= cannot be used, so waiters poll: cannot connect to PostgreSQL: connection to server at "127.0.0.1", port {port} failed'
            self.assertTrue(any(text in line for line in waiter.stderr))
            self.ok("release", "k", "--id", lock["lock_id"])
            self.assertEqual(waiter.wait(30), 0)


class StateStore(DoctorCase):
    def test_it_is_checked_as_well(self):
        local = ("--store", f"sqlite:{self.dir}/locks.db", "--state-store")
        self.expect("state store", "ok", "^can be listed and read$", "", *local, self.store, code=0)
        _, url = self.make_role()
        found = self.expect("state store", "failed", "permission denied", "", *local, url, code=77)
        self.assertNotIn("schema", found)
        self.expect("state store", "failed", "no schema 'absent'", "", *local, self.store.replace(self.schema, "absent"))


class Durability(DoctorCase):
    def test_commits_that_do_not_wait_for_the_disk(self):
        role, url = self.make_role()
        self.ok("table", "create", "--grant", role)
        for value, level, loses in (("off", "failed", "a crash of PostgreSQL loses locks that were granted"),
                                    ("local", "warning", "a failover loses locks that were granted, even to a synchronous standby")):
            self.sql(f"ALTER ROLE {role} SET synchronous_commit = {value}")
            self.expect("durability", level, f"^synchronous_commit is {value}: {loses}$", "set synchronous_commit = on", "--store", url)

    def test_fsync_off(self):
        result = self.fails(78, "doctor", "--json")
        found = [one for one in result.json()["findings"] if one["name"] == "durability"]
        self.assertEqual([one["level"] for one in found], ["failed", "ok"])
        self.assertIn("fsync is off", found[0]["text"])
        self.assertEqual(found[0]["advice"], "set fsync = on")


class Replication(OwnServerCase, DoctorCase):
    def test_of_every_kind(self):
        self.expect("replication", "ok", "^no standby is connected$", "")
        copy = self.server.standby()
        self.addCleanup(copy.close)
        copy.start()
        wait_until(lambda: self.sql("SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'") == "1", "the standby")
        self.expect("replication", "warning", "^asynchronous: after a failover two clients may hold a lock; tokens still grow$",
                    "set synchronous_standby_names")
        self.server.wait_for_standbys("*")
        wait_until(lambda: self.sql("SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'") == "1", "it to be synchronous")
        self.expect("replication", "ok", r"^synchronous: \*$", "")
        role, url = self.make_role()
        self.ok("table", "create", "--grant", role)
        self.expect("replication", "warning", "may not see whether a standby is synchronous", "GRANT pg_monitor", "--store", url)
        url = url.replace(f":{self.server.port}/", f":{copy.port}/")
        self.expect("connection", "failed", "read-only: this is a standby", "check the URL", "--store", url, code=69)
        found = self.expect("connection", "failed", f"^PostgreSQL at 127.0.0.1:{copy.port} is a standby, which accepts no writes$",
                            "without target_session_attrs", "--store", f"{url}&target_session_attrs=any")
        self.assertNotIn("wake-ups", found)


class Healthy(OwnServerCase, DoctorCase):
    def make_server(self):
        server = postgresql.Server()
        self.addCleanup(server.close)
        return server.init().start(quick=False)

    def test_a_server_as_it_comes_has_no_fault(self):
        found = self.findings()
        self.assertEqual(self.code, 0, found)
        wanted = {"connection", "schema", "permissions", "state", "durability", "replication", "clock", "wake-ups", "wake-up queue",
                  "transactions"}
        self.assertEqual({name for name in wanted if found[name]["level"] == "ok"}, wanted)


class Hanging(DoctorCase):
    def test_a_server_that_stops_answering_is_not_waited_for_as_long_as_for_a_migration(self):
        proxy = Proxy(self.server.port, b"SHOW fsync")
        self.addCleanup(proxy.close)
        proxy.cut = "hold"
        began = time.monotonic()
        found = self.findings("--store", self.url("sslmode=disable", port=proxy.port))
        self.assertLess(time.monotonic() - began, 30)  # PG_TIMEOUT_MS, and a busy machine
        self.assertEqual((self.code, found["durability"]["text"]), (69, "PostgreSQL did not answer in time"))


if __name__ == "__main__":
    unittest.main()
