"""Deployment state in PostgreSQL, beside the locks (docs/state.md): fencing in the transaction, faults, Terraform.

BELAY_KILL_ROUNDS: how often clients are killed (8), and the server (3). BELAY_POSTGRESQL_TESTS=all: also a state of 100 MB,
and all that Terraform does.
"""
import os
import random
import subprocess
import sys
import threading
import time
import unittest

from pg_proxy import Proxy
from pg_support import BELAY, ROOT, OwnServerCase, PostgresStore, wait_until

sys.path.append(os.path.join(ROOT, "test", "server"))

import test_state_http  # noqa: E402  (after the path is known)
import test_terraform  # noqa: E402
from server_support import ServerCase  # noqa: E402
from state_support import WHERE, StateCase, example  # noqa: E402

EVERY = os.environ.get("BELAY_POSTGRESQL_TESTS") == "all"
SEED = int(os.environ.get("BELAY_KILL_SEED") or random.randrange(10**6))
KEY = "stack:shop:env:prod"


class PostgresStateCase(PostgresStore, StateCase):
    """No state store is named: it is the database that has the locks."""

    def versions(self):
        return [snapshot["name"] for snapshot in self.history()["snapshots"]]


class State(PostgresStateCase):
    def test_the_example_of_the_document_comes_back_with_nothing_lost(self):
        text, wanted = example()
        where = ("--stack", "user-platform", "--environment", "production")
        self.ok("state", "save", *where, self.write("example.json", text))
        got = self.ok("state", "load", *where).json()
        self.assertEqual([got[k] for k in ("resources", "outputs")], [wanted[k] for k in ("resources", "outputs")])
        self.ok("state", "verify", *where)
        self.assertEqual(self.ok("state", "list", "--json").json()["states"][0]["stack"], "user-platform")

    def test_saves_snapshots_and_restore(self):
        for n in range(5):
            self.save({"outputs": {"n": n}})
        self.assertEqual(len(self.versions()), 5)
        self.ok("state", "restore", *WHERE, "4", "--yes")
        self.assertEqual(self.load()["outputs"], {"n": 1})
        self.verify()

    def test_snapshots_over_the_limit_are_removed(self):
        config = self.write("few.yaml", "state: {keep_snapshots: 2, keep_for: 1s}\n")
        os.chmod(config, 0o600)
        self.env["BELAY_CONFIG"] = config
        first = self.save({"outputs": {"n": 0}})["snapshot"]
        time.sleep(2.1)  # the ages of snapshots are whole seconds of the wall clock
        for n in range(3):
            self.save({"outputs": {"n": n}})
        self.assertNotIn(first, self.versions())
        self.assertEqual(self.sql("SELECT count(*) FROM @schema@.blobs b FULL JOIN @schema@.blob_pieces p USING (tag) "
                                  "WHERE b.tag IS NULL OR p.tag IS NULL"), "0")

    def test_it_is_in_the_database_and_nowhere_else(self):
        self.ok("deploy", *WHERE, "--", "sh", "-c", 'echo "{}" >"$BELAY_STATE_OUT"')
        self.assertEqual(self.sql("SELECT string_agg(name, ' ' ORDER BY name) FROM @schema@.blobs WHERE name NOT LIKE '%/history/%'"),
                         "belay-lock-store.json stacks/shop/prod/state.json")
        self.assertEqual([path.name for path in self.dir.iterdir()], ["home"])

    def test_a_paused_holder_changes_nothing_and_keeps_its_work(self):
        self.paused_holder()

    def test_the_password_is_shown_nowhere(self):
        url = self.store.replace("postgres@", "postgres:sesame@")
        self.save({}, "--state-store", url)
        self.assertNotIn("sesame", self.sql("SELECT convert_from(data, 'UTF8') FROM @schema@.blob_pieces JOIN @schema@.blobs USING (tag) "
                                            "WHERE name = 'belay-lock-store.json'"))
        result = self.fails(78, "state", "save", *WHERE, self.write("x.json", {}), "--state-store", url, "--store", f"sqlite:{self.dir}/x.db")
        self.assertNotIn("sesame", result.err)

    def test_a_large_state_comes_back_whole(self):
        megabytes = 100 if EVERY else 6
        rows = {f"r{n}": {"text": f"{n:09}" * 100} for n in range(megabytes * 1100)}
        path = self.write("large.json", {"resources": rows})
        process = subprocess.Popen([BELAY, "state", "save", *WHERE, path], env=self.environment(None), cwd=self.dir,
                                   stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        self.assertEqual(process.returncode, 0)
        self.assertLess(usage.ru_maxrss, 5 * megabytes * 1024 + 30000, "KB of memory")
        self.assertEqual(self.load()["resources"], rows)


class SchemaCase(PostgresStateCase):
    def doctor(self):
        return [found["level"] for found in self.belay("doctor", "--json").json()["findings"] if found["name"] == "state"]


class Schema(SchemaCase):
    """A schema that was made before belay kept states in it."""

    def setUp(self):
        super().setUp()
        self.sql("DROP TABLE @schema@.blobs, @schema@.blob_pieces, @schema@.blob_uploads CASCADE; DROP TYPE @schema@.blob_answer CASCADE")
        functions = self.sql("SELECT string_agg(oid::regprocedure::text, ', ') FROM pg_proc WHERE pronamespace = '@schema@'::regnamespace "
                             "AND (proname LIKE 'blob%' OR proname = 'state_version')")
        self.sql(f"DROP FUNCTION {functions}")

    def test_it_serves_locks_and_says_what_state_needs(self):
        lock = self.acquire("k")
        self.assertIn("belay table create", self.fails(78, "state", "save", *WHERE, self.write("x.json", {})).err)
        self.assertIn("belay table create", self.fails(78, "table", "describe").err)
        self.assertEqual(self.fails(78, "table", "describe", "--json").json()["state_version"], 0)
        self.assertEqual(self.doctor(), ["warning"])
        self.ok("release", "k", "--id", lock["lock_id"])

    def test_the_tables_are_added_once(self):
        lock = self.acquire("k")
        for n in range(2):
            self.assertTrue(self.ok("table", "create", "--json").json()["fits"])
            self.save({"outputs": {"n": n}})
        self.assertEqual(len(self.versions()), 2)
        self.ok("renew", "k", "--id", lock["lock_id"])
        self.assertEqual(self.doctor(), ["ok"])


class FirstVersion(SchemaCase):
    """A schema whose blob_put() does not remove: it refuses what has another tag, or none."""

    def setUp(self):
        super().setUp()
        self.role = f"{self.schema}_user"
        self.sql(f"CREATE ROLE {self.role} LOGIN")
        self.addCleanup(self.sql, f"DROP OWNED BY {self.role}; DROP ROLE {self.role}")
        refuses = "AS $$ SELECT (1, @schema@.clock_ms(), NULL, NULL, 0, NULL)::@schema@.blob_answer $$ LANGUAGE sql SECURITY DEFINER"
        self.sql(f"CREATE FUNCTION @schema@.blob_remove(text, text, text, text, bigint) RETURNS @schema@.blob_answer {refuses};"
                 "CREATE OR REPLACE FUNCTION @schema@.blob_put(of_name text, new_tag text, expected text, of_size bigint, bytes bytea, "
                 "deadline bigint, lock_store text, lock_key text, lock_id text, lock_token bigint) "
                 f"RETURNS @schema@.blob_answer {refuses};"
                 "CREATE OR REPLACE FUNCTION @schema@.state_version() RETURNS integer LANGUAGE sql IMMUTABLE AS $$ SELECT 1 $$;"
                 f"GRANT USAGE ON SCHEMA @schema@ TO {self.role}; GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA @schema@ TO {self.role}")

    def test_it_is_replaced_and_roles_keep_their_rights(self):
        self.assertEqual(self.fails(78, "table", "describe", "--json").json()["state_version"], 1)
        self.assertEqual(self.doctor(), ["warning"])
        self.assertTrue(self.ok("table", "create", "--json").json()["fits"])
        self.assertEqual(self.doctor(), ["ok"])
        self.assertEqual(self.sql("SELECT count(*) FROM pg_proc WHERE pronamespace = '@schema@'::regnamespace "
                                  "AND proname = 'blob_remove'"), "0")
        self.env["BELAY_STORE"] = self.store.replace("postgres@", f"{self.role}@")
        self.save({"outputs": {"n": 1}})
        self.assertEqual(self.load()["outputs"], {"n": 1})


class Rights(PostgresStateCase):
    def test_a_user_executes_functions_and_touches_no_table(self):
        role = f"{self.schema}_user"
        self.sql(f"CREATE ROLE {role} LOGIN")
        self.addCleanup(self.sql, f"DROP OWNED BY {role}; DROP ROLE {role}")
        self.env["BELAY_STORE"] = self.store.replace("postgres@", f"{role}@")
        self.assertIn("permission denied", self.fails(77, "state", "load", *WHERE).err)
        self.ok("table", "create", "--grant", role, "--store", self.store)
        self.save({"outputs": {"n": 1}})
        for table in ("blobs", "blob_pieces", "blob_uploads"):
            for verb in ("select", "insert", "update", "delete"):
                self.assertEqual(self.sql(f"SELECT has_table_privilege('{role}', '@schema@.{table}', '{verb}')"), "f")
        unsafe = self.sql("SELECT string_agg(proname, ' ') FROM pg_proc WHERE pronamespace = '@schema@'::regnamespace AND prosecdef "
                          "AND NOT coalesce(proconfig @> '{\"search_path=pg_catalog, pg_temp\"}', false)")
        self.assertEqual(unsafe, "")


class OtherStores(PostgresStateCase):
    """Issue 12, item 4: a state store belongs to one lock store, which need not be the same database."""

    def test_the_locks_of_a_stranger_are_refused(self):
        in_sqlite = ("--store", f"sqlite:{self.dir}/a.db", "--state-store", self.store)
        self.ok("state", "save", *WHERE, self.write("one.json", {"outputs": {"n": 1}}), *in_sqlite)
        for store in (f"sqlite:{self.dir}/b.db", self.store):
            result = self.fails(78, "state", "save", *WHERE, self.write("two.json", {"metadata": {"serial": 1}}), "--store", store,
                                "--state-store", self.store)
            self.assertIn("is fenced by the lock store", result.err)
        self.ok("state", "rebind", "--yes")
        self.save({"outputs": {"n": 2}})

    def test_a_paused_holder_of_a_lock_elsewhere_changes_nothing(self):
        self.env["BELAY_STATE_STORE"] = self.store
        self.env["BELAY_STORE"] = f"sqlite:{self.dir}/a.db"
        self.paused_holder()

    def test_locks_in_postgresql_fence_files(self):
        self.env["BELAY_STATE_STORE"] = f"file:{self.dir}/files"
        self.save({"outputs": {"n": 1}})
        self.assertTrue((self.dir / "files" / "stacks").is_dir())
        self.assertEqual(self.sql("SELECT count(*) FROM @schema@.blobs"), "0")


class ProxyStateCase(PostgresStateCase):
    def setUp(self):
        super().setUp()
        self.save({"outputs": {"by": "start"}})
        self.proxy = Proxy(self.server.port, b".blob_put(")
        self.addCleanup(self.proxy.close)
        self.through = self.url(port=self.proxy.port)


class Fence(ProxyStateCase):
    """The holder passed all its checks; its write is on its way when it loses the lock. On files it would be accepted."""

    def late_save(self):
        base = self.based({"outputs": {"by": "late"}})
        self.proxy.cut = "hold"
        late = self.start("state", "save", *WHERE, "--ttl", "1h", self.write("late.json", base), "--state-store", self.through)
        self.assertTrue(self.proxy.held.wait(60), "the save is on its way")
        return late

    def test_a_save_on_its_way_is_refused_when_the_lock_was_taken(self):
        late = self.late_save()
        self.ok("unlock", *WHERE, "--force", "--yes")
        self.acquire(KEY, "--owner-name", "rival")
        self.proxy.go.set()
        _, err = late.communicate(timeout=60)
        self.assertEqual(late.returncode, 77, err)
        self.assertIn("is held by rival", err)
        self.assertEqual(self.load()["outputs"], {"by": "start"})

    def test_a_save_on_its_way_is_refused_when_the_lock_was_ended(self):
        late = self.late_save()
        self.ok("unlock", *WHERE, "--force", "--yes")
        self.proxy.go.set()
        _, err = late.communicate(timeout=60)
        self.assertEqual(late.returncode, 77, err)
        self.assertEqual(self.load()["outputs"], {"by": "start"})
        self.verify()

    def test_a_save_on_its_way_is_made_while_the_lock_is_held(self):
        late = self.late_save()
        self.proxy.go.set()
        _, err = late.communicate(timeout=60)
        self.assertEqual(late.returncode, 0, err)
        self.assertEqual(self.load()["outputs"], {"by": "late"})


class Cut(ProxyStateCase):
    def test_a_save_whose_answer_is_lost_is_made_once(self):
        """L5"""
        for n, how in enumerate(("before", "after"), 2):
            with self.subTest(how):
                base = self.based({"outputs": {"by": how}})
                self.proxy.cut = how
                self.ok("state", "save", *WHERE, self.write("in.json", base), "--state-store", self.through)
                state = self.load()
                self.assertEqual((state["outputs"], state["metadata"]["serial"]), ({"by": how}, n))
        self.assertEqual(self.proxy.cuts, 2)
        self.assertEqual(len(self.versions()), 3)


class Kill(PostgresStateCase):
    def test_no_acknowledged_save_is_lost_and_the_state_is_always_sound(self):
        self.kill_rounds(int(os.environ.get("BELAY_KILL_ROUNDS") or 8), SEED)

    def test_of_concurrent_writers_one_wins_and_the_others_fail(self):
        self.save({})
        files = [self.write(f"{n}.json", self.based({"outputs": {"n": n}})) for n in range(4)]
        running = [self.start("state", "save", *WHERE, "--wait", "60s", file) for file in files]
        self.assertEqual(sorted(p.wait(60) for p in running), [0, 77, 77, 77])
        self.assertEqual(self.load()["metadata"]["serial"], 2)


class KilledServer(OwnServerCase, PostgresStateCase):
    OPTIONS = ("-c", "fsync=on")

    def test_a_save_under_kill_9_of_postgresql_is_whole_or_not_made(self):
        chance = random.Random(SEED)
        filler = {f"r{n}": "x" * 1000 for n in range(3000)}  # three pieces
        self.save({"outputs": {"n": 0}, "resources": filler})
        began = time.monotonic()
        self.save({"outputs": {"n": 0}, "resources": filler})
        usual = time.monotonic() - began
        saved, codes = 0, []
        for n in range(1, int(os.environ.get("BELAY_KILL_ROUNDS") or 3) + 1):
            new = self.write("n.json", self.based({"outputs": {"n": n}, "resources": filler}))
            process = self.start("state", "save", *WHERE, "--ttl", "10s", new)
            time.sleep(chance.random() * usual)  # the moment is the point of the test
            self.server.kill()
            self.server.start()
            _, err = process.communicate(timeout=60)
            codes.append(process.returncode)
            self.assertIn(process.returncode, (0, 69, 74, 76, 77), f"seed {SEED}, round {n}: {err}")
            self.belay("unlock", *WHERE, "--force", "--yes")
            self.verify()
            got = self.load()["outputs"]["n"]
            self.assertIn(got, {0: (n,), 74: (saved, n)}.get(process.returncode, (saved,)), f"seed {SEED}, round {n}: {err}")
            saved = got
        self.save({"outputs": {"n": -1}})
        for name in self.versions():
            self.verify("--snapshot", name)
        print(f"seed {SEED}, exit codes {codes}")


class TwoFronts(PostgresStore, ServerCase):
    """docs/terraform.md: a front that was paused between its check of the lock and its write."""

    def late(self, function, method, body):
        """A change through one front that loses its lock on the way; then the lock is another client's."""
        proxy = Proxy(self.server.port, function)
        self.addCleanup(proxy.close)
        paused = self.serve("--state-store", self.url(port=proxy.port))
        other = self.serve()
        path = "/v1/terraform/net"
        self.assertEqual(other.call("LOCK", path, test_terraform.lock_info("id-1")).status, 200)
        self.assertEqual(other.post(f"{path}?ID=id-1", test_terraform.STATE).status, 200)
        proxy.cut = "hold"
        answers = []
        late = threading.Thread(target=lambda: answers.append(paused.call(method, f"{path}?ID=id-1", body)))
        late.start()
        self.assertTrue(proxy.held.wait(60), "the write is on its way")
        self.ok("unlock", "terraform/net", "--force", "--yes")
        self.assertEqual(other.call("LOCK", path, test_terraform.lock_info("id-2")).status, 200)
        proxy.go.set()
        late.join(60)
        self.assertEqual((answers[0].status, answers[0].error["code"]), (409, "not_holder"))
        self.assertEqual(other.get(path).json(), test_terraform.STATE)
        self.assertEqual(other.post(f"{path}?ID=id-2", {**test_terraform.STATE, "serial": 3}).status, 200)

    def test_the_late_write_of_a_paused_front_is_refused(self):
        self.late(b".blob_put(", "POST", {**test_terraform.STATE, "serial": 2})

    def test_the_late_removal_of_a_paused_front_is_refused(self):
        self.late(b".blob_put(", "DELETE", None)

    def test_what_one_front_writes_the_other_reads(self):
        one, two = self.serve(), self.serve()
        path = "/v1/terraform/net"
        self.assertEqual(one.call("LOCK", path, test_terraform.lock_info("id-1")).status, 200)
        for serial, (writer, reader) in enumerate(((one, two), (two, one), (one, two)), 1):
            self.assertEqual(writer.post(f"{path}?ID=id-1", {**test_terraform.STATE, "serial": serial}).status, 200)
            self.assertEqual(reader.get(path).json()["serial"], serial)
        self.assertEqual(len(two.get(f"{path}/versions").json()["versions"]), 3)

    def test_a_write_after_the_lease_takes_the_lock_again(self):
        server = self.serve()
        path = "/v1/terraform/net"
        self.assertEqual(server.call("LOCK", f"{path}?lease=200ms", test_terraform.lock_info("id-1")).status, 200)
        wait_until(lambda: server.get("/v1/locks/terraform%2Fnet").json()["status"] == "expired", "the lease to end")
        self.assertEqual(server.post(f"{path}?ID=id-1", test_terraform.STATE).status, 200)
        self.assertEqual(server.get(path).json(), test_terraform.STATE)


class Terraform(PostgresStore, test_terraform.RealTerraform):
    """The real terraform: init, plan, apply, push, force-unlock."""

    if not EVERY:  # these wait long, or have nothing to do with where the state is
        test_of_two_applies_one_is_refused_or_waits_as_configured = None
        test_after_kill_9_the_next_apply_succeeds_when_the_lease_is_over_and_the_twin_is_refused = None
        test_a_local_terraform_state_migrates_to_belay = None
        test_a_push_of_an_older_state_is_refused_and_forced_by_the_address = None


class StateOverHttp(PostgresStore, test_state_http.StateOverHttp):
    EXTRA = "max_clock_step=0s"  # locks are taken at the moment a lease ends

    # These spoil a file, or are about the name of an SQLite file.
    test_a_damaged_state_is_named = None
    test_a_state_of_another_program_is_adopted = None
    test_the_history_can_be_limited_to_the_last_deployments = None
    test_a_server_on_another_lock_store_cannot_write = None
    test_the_lock_store_has_one_id_through_every_door = None


if EVERY:
    class TerraformProtocol(PostgresStore, test_terraform.Protocol):
        EXTRA = "max_clock_step=0s"


if __name__ == "__main__":
    unittest.main()
