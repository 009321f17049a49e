"""belay and the programs of the five documents on one table (S0.3, S1.1, S2.2, S3.1, S4.4).

The documents' code reads what belay writes, and the other way round; neither takes the other's live lock; an expired
lock of either is taken over by both; and they compete for the same key without ever being inside together.
"""
import os
import subprocess
import time
import unittest

from dynamo_support import Documents, DynamoCase, TABLE_KEYS
from support import BELAY, main, wait_until

LATE = 60  # seconds ago, for what has expired


def types(item):
    return {name: next(iter(value)) for name, value in item.items()}


class Interop:
    """The tests; each layout below is a case."""

    DOCUMENT = ""
    KEY = "k"
    # belay's item: the document's attributes and types, and what belay adds.
    ATTRIBUTES = {}
    ADDED = {}
    EXTRA = "max_clock_skew=200ms"  # one machine, one clock: so that an expiry need not be waited for long
    ACQUIRE = ("--owner", "execution-abc123", "--owner-name", "alice@example.com")
    RELEASED = "absent"  # what the table has after a release
    KEEPS_TTL = False  # the item has the length of the lease

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        from dynamo_support import server_port
        cls.documents = Documents(server_port(cls.SERVER))
        cls.addClassCleanup(cls.documents.close)

    def document(self, do, **order):
        return self.documents(self.DOCUMENT, do, table=self.table, key=self.KEY, **order)

    def lock_item(self):
        """The item that the document's code would read."""
        prefix = {"resource": "LOCK#", "appregistry": "LOCK#DB#"}.get(self.LAYOUT, "")
        return self.item(prefix + self.KEY)

    def take(self, *args):
        return self.acquire(self.KEY, *self.ACQUIRE, *args)

    def test_belay_writes_the_documents_attributes_in_their_types(self):
        self.take()
        self.assertEqual(types(self.lock_item()), {**self.ATTRIBUTES, **self.ADDED})

    def test_the_document_reads_what_belay_wrote(self):
        lock = self.take("--ttl", "10m")
        seen = self.document("read")
        now = time.time() * 1000
        self.assertEqual((seen["key"], seen["owner"], seen["live"]), (self.KEY, "execution-abc123", True))
        self.assertTrue(now - 5000 < seen["since"] <= now + 1000, seen)
        self.assertTrue(now + 590000 < seen["expires"] <= now + 602000, seen)
        if "id" in seen:
            self.assertEqual(seen["id"], lock["lock_id"])
        if "name" in seen:
            self.assertEqual(seen["name"], "alice@example.com")
        self.ok("renew", self.KEY, "--id", lock["lock_id"], "--ttl", "1h")
        self.assertGreater(self.document("read")["expires"], now + 3590000)

    def test_a_renewal_without_a_ttl_does_not_guess(self):
        """The time from acquisition to expiry grows with each renewal: so the ttl is required where the item lacks it."""
        lock = self.take("--ttl", "10m")
        before = self.lock_item()
        if self.KEEPS_TTL or self.KEY.startswith("build-"):  # that of the profile, or what is left
            renewed = self.ok("renew", self.KEY, "--id", lock["lock_id"], "--json").json()
            self.assertTrue(590000 < renewed["expires_in_ms"] <= 602000, renewed)
            return
        result = self.fails(64, "renew", self.KEY, "--id", lock["lock_id"])
        self.assertIn("--ttl", result.err)
        self.assertEqual(self.lock_item(), before)

    def test_reentry_neither_shortens_nor_extends_the_lease(self):
        """S2.4, L6"""
        first = self.take("--ttl", "10m")
        for ttl, least in (("1m", 590), ("20m", 590 if self.KEEPS_TTL else 1190)):
            lock = self.take("--ttl", ttl, "--reentrant")
            self.assertEqual(lock["lock_id"], first["lock_id"])
            left = self.document("read")["expires"] / 1000 - time.time()
            self.assertTrue(least < left <= least + 12, (ttl, left))

    def test_belay_reads_what_the_document_wrote(self):
        held = self.document("acquire", owner="theirs", seconds=600)
        lock = self.ok("status", self.KEY, "--json").json()
        self.assertEqual((lock["locked_by"], lock["status"], lock["token"]), ("theirs", "active", None))
        self.assertTrue(590000 < lock["expires_in_ms"] <= 602000, lock)
        if "id" in held:
            self.assertEqual(lock["lock_id"], held["id"])
        locks = self.ok("list", "--json").json()["locks"]
        self.assertEqual([lock["key"] for lock in locks], [self.KEY])

    def test_the_document_does_not_take_belays_live_lock(self):
        self.take("--ttl", "10m")
        before = self.lock_item()
        self.assertIs(self.document("acquire", owner="theirs", seconds=600), False)
        self.assertEqual(self.lock_item(), before)

    def test_belay_does_not_take_the_documents_live_lock(self):
        self.document("acquire", owner="theirs", seconds=600)
        before = self.lock_item()
        error = self.fails(75, "acquire", self.KEY, *self.ACQUIRE, "--json").error()
        self.assertEqual((error["code"], error["lock"]["locked_by"]), ("lock_held", "theirs"))
        self.fails(75, "acquire", self.KEY, "--wait", "1s")
        self.fails(77, "release", self.KEY, "--id", "not-theirs")
        self.fails(77, "renew", self.KEY, "--id", "not-theirs")
        self.assertEqual(self.lock_item(), before)

    def test_belay_takes_a_lock_that_the_document_released_at_once(self):
        held = self.document("acquire", owner="theirs", seconds=600)
        self.document("release", owner="theirs", **held)
        self.take()
        self.assertEqual(self.document("read")["owner"], "execution-abc123")

    def test_the_document_takes_a_lock_that_belay_released(self):
        lock = self.take()
        self.ok("release", self.KEY, "--id", lock["lock_id"])
        item = self.lock_item()
        if self.RELEASED == "absent":
            self.assertIsNone(item)
        else:
            self.assertEqual(item["status"], {"S": self.RELEASED})
            self.assertFalse(self.document("read")["live"])
        # Where the document compares whole seconds, it may refuse within the second of the release.
        wait_until(lambda: self.document("acquire", owner="theirs", seconds=600))
        self.fails(75, "acquire", self.KEY)

    def test_an_expired_lock_of_the_document_is_taken_over_by_belay(self):
        self.document("acquire", owner="theirs", seconds=-LATE)
        lock = self.take()
        self.assertEqual(lock["locked_by"], "execution-abc123")
        self.assertEqual(types(self.lock_item()), {**self.ATTRIBUTES, **self.ADDED})
        self.assertIs(self.document("acquire", owner="theirs", seconds=600), False)

    def test_an_expired_lock_of_belay_is_taken_over_by_the_document_and_by_belay(self):
        for who in ("document", "belay"):
            lock = self.take("--ttl", "1s")
            if who == "document":
                held = wait_until(lambda: self.document("acquire", owner="theirs", seconds=600))
                self.fails(77, "release", self.KEY, "--id", lock["lock_id"])
                self.assertEqual(self.document("read")["owner"], "theirs")
                self.document("release", owner="theirs", **held)
            else:
                wait_until(lambda: self.belay("acquire", self.KEY).code == 0)

    def test_belay_ends_the_documents_lock_by_force_and_by_nothing_else(self):
        self.document("acquire", owner="theirs", seconds=600)
        self.ok("unlock", self.KEY, "--force", "--yes")
        seen = self.document("read")
        self.assertTrue(seen is None or not seen["live"], seen)
        self.take()

    def test_there_is_no_token(self):
        """L2: no tokens are kept here."""
        self.assertIsNone(self.take()["token"])
        other = self.ok("run", "other", "--", "sh", "-c", "echo ${BELAY_TOKEN-unset}")
        self.assertEqual(other.out, "unset\n")

    def test_a_fence_table_gives_tokens(self):
        """L2"""
        fence = f"{self.table}-fence"
        self.db.create(fence, keys=["lock_key"])
        self.addCleanup(self.db.ask, "DeleteTable", {"TableName": fence})
        env = {"BELAY_STORE": self.url(f"fence_table={fence}")}
        tokens = []
        for _ in range(3):
            lock = self.ok("acquire", self.KEY, "--json", env=env).json()
            tokens.append(lock["token"])
            self.assertEqual(types(self.lock_item()).keys() - {**self.ATTRIBUTES, **self.ADDED}.keys(), set())
            self.ok("release", self.KEY, "--id", lock["lock_id"], env=env)
            held = wait_until(lambda: self.document("acquire", owner="theirs", seconds=600))
            self.document("release", owner="theirs", **held)
        self.assertEqual(tokens, sorted(set(tokens)))
        self.assertNotIn(None, tokens)

    def test_a_belay_waiter_gets_the_lock_that_the_document_releases(self):
        held = self.document("acquire", owner="theirs", seconds=600)
        waiter = self.start("acquire", self.KEY, "--wait", "1m", "--json")
        wait_until(lambda: "Waiting:" in self.ok("status", self.KEY).out)
        self.assertEqual(self.document("read")["owner"], "theirs")  # the waiters stand elsewhere
        self.document("release", owner="theirs", **held)
        out, err = waiter.communicate(timeout=60)
        self.assertEqual(waiter.returncode, 0, err)
        self.assertIn('"status":"active"', out)

    def test_competing_programs_never_hold_the_lock_together(self):
        """L1"""
        door, collisions = str(self.dir / "door"), str(self.dir / "collisions")
        open(collisions, "w", encoding="ascii").close()
        script = (f"set -C; (: >{door}) 2>/dev/null || echo belay-$$ >>{collisions}; sleep 0.02; rm -f {door}; "
                  f"echo x >>{self.dir}/taken")
        seconds = 4
        self.documents.send(self.DOCUMENT, "compete", table=self.table, key=self.KEY, owner="theirs", seconds=30,
                            for_seconds=seconds, door=door, collisions=collisions)
        end = time.monotonic() + seconds
        workers = []
        for n in range(2):
            loop = (f'while [ $(date +%s) -lt {int(time.time()) + seconds} ]; do '
                    f'"{BELAY}" run --ttl 30s --owner-name me@example.com --owner mine-{n}-$RANDOM {self.KEY} -- sh -c \'{script}\' 2>/dev/null; '
                    "sleep 0.02; done")
            workers.append(subprocess.Popen(["bash", "-c", loop], env=self.env, cwd=self.dir))
        theirs = self.documents.receive()
        for worker in workers:
            self.assertEqual(worker.wait(60), 0)
        self.assertGreaterEqual(time.monotonic(), end - 1)
        with open(collisions, encoding="ascii") as file:
            self.assertEqual(file.read(), "")
        self.assertGreater(theirs["taken"], 1, theirs)
        self.assertGreater(len((self.dir / "taken").read_text().splitlines()), 1, theirs)
        self.assertFalse(os.path.exists(door))


class ChatOps(Interop, DynamoCase):
    LAYOUT, DOCUMENT, KEY = "chatops", "000", "build-router-plt"
    ATTRIBUTES = {"lockKey": "S", "lockedBy": "S", "lockedByName": "S", "lockedAt": "S", "status": "S", "ttl": "N",
                  "component": "S", "environment": "S"}
    ADDED = {"lockId": "S"}
    RELEASED = "COMPLETED"

    def test_the_fields_of_the_document_come_from_the_options(self):
        """S0.3"""
        self.take("--correlation-id", "corr-1")
        seen = self.document("read")
        self.assertEqual((seen["component"], seen["environment"], seen["correlationId"], seen["status"]),
                         ("router", "plt", "corr-1", "IN_PROGRESS"))
        self.assertRegex(self.lock_item()["lockedAt"]["S"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")

    def test_success_and_failure_are_told_apart(self):
        """S0.2"""
        for outcome, word in (("completed", "COMPLETED"), ("failed", "FAILED")):
            lock = self.take()
            self.ok("release", self.KEY, "--id", lock["lock_id"], "--outcome", outcome)
            self.assertEqual(self.document("read")["status"], word)
            self.assertIn("completedAt", self.lock_item())
            self.assertEqual(self.ok("status", self.KEY, "--json").json()["outcome"], outcome)
        self.take()
        self.assertNotIn("completedAt", self.lock_item())

    def test_all_components_exclude_each_one(self):
        """S0.4, and no intent is stored under a key that the document reads"""
        lock = self.acquire("build-all-plt")
        self.assertIsNone(self.document("read"))
        self.fails(75, "acquire", "build-router-plt")
        self.ok("release", "build-all-plt", "--id", lock["lock_id"])
        self.take()
        self.fails(75, "acquire", "build-all-plt")
        self.assertFalse(self.documents(self.DOCUMENT, "read", table=self.table, key="build-all-plt")["live"])


class Resource(Interop, DynamoCase):
    LAYOUT, DOCUMENT, KEY = "resource", "001", "default_graph_creation_42"
    ATTRIBUTES = {"PK": "S", "SK": "S", "LockID": "S", "Owner": "S", "AcquiredAt": "S", "ExpiresAt": "S", "TTL": "N"}

    def test_times_are_utc_as_the_document_compares_them(self):
        self.take()
        item = self.lock_item()
        self.assertEqual((item["PK"]["S"], item["SK"]["S"]), (f"LOCK#{self.KEY}", "LOCK"))
        for name in ("AcquiredAt", "ExpiresAt"):
            self.assertRegex(item[name]["S"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")

    def test_a_time_in_another_zone_is_understood(self):
        self.document("acquire", owner="theirs", seconds=600)
        there = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(time.time() + 600 - 5 * 3600)) + ".123456789-05:00"
        self.db.put(self.table, **{**self.lock_item(), "ExpiresAt": {"S": there}})
        self.fails(75, "acquire", self.KEY)
        lock = self.ok("status", self.KEY, "--json").json()
        self.assertTrue(590000 < lock["expires_in_ms"] < 602000, lock)


class Runvoy(Interop, DynamoCase):
    LAYOUT, DOCUMENT, KEY = "runvoy", "002", "terraform-prod"
    ATTRIBUTES = {"lock_name": "S", "lock_id": "S", "execution_id": "S", "user_email": "S", "acquired_at": "S",
                  "expires_at": "N", "status": "S"}
    RELEASED = "released"
    ACQUIRE = (*Interop.ACQUIRE, "--meta", "client_ip=10.0.0.1")
    ADDED = {"metadata": "M"}

    def test_the_table_of_the_environment_is_understood(self):
        """S2.10"""
        self.document("acquire", owner="theirs", seconds=600)
        env = {"BELAY_STORE": None, "RUNVOY_LOCKS_TABLE": self.table,
               "AWS_ENDPOINT_URL_DYNAMODB": f"http://127.0.0.1:{self.port}"}
        self.assertIn("held by theirs until", self.fails(75, "acquire", self.KEY, env=env).err)

    def test_metadata_goes_both_ways(self):
        """S2.2"""
        self.take("--meta", "user_id=7")
        self.assertEqual(self.document("read")["metadata"], {"client_ip": "10.0.0.1", "user_id": "7"})
        held = self.documents(self.DOCUMENT, "acquire", table=self.table, key="other", owner="theirs", seconds=600,
                              metadata={"client_ip": "10.0.0.2"})
        self.assertTrue(held)
        self.assertEqual(self.ok("status", "other", "--json").json()["metadata"], {"client_ip": "10.0.0.2"})

    def test_the_documents_renewal_holds_against_belay(self):
        self.document("acquire", owner="theirs", seconds=5)
        self.assertTrue(self.document("renew", owner="theirs", seconds=600))
        self.assertFalse(self.document("renew", owner="another", seconds=600))
        time.sleep(6)
        self.fails(75, "acquire", self.KEY)

    def test_an_expiry_that_was_written_as_text_is_understood(self):
        """The real program writes it so by mistake."""
        self.document("acquire", owner="theirs", seconds=600)
        for value, code in ((str(int(time.time()) + 600), 75), (str(int(time.time()) - LATE), 0)):
            self.db.put(self.table, **{**self.lock_item(), "expires_at": {"S": value}})
            self.fails(code, "acquire", self.KEY)

    def test_a_lock_without_a_user_is_refused(self):
        """S2.1"""
        self.PERSON = None
        for args in (["acquire", self.KEY], ["run", self.KEY, "--", "true"], ["acquire", self.KEY, "--meta", "user_email="]):
            self.assertIn("give --meta user_email=ADDRESS", self.fails(64, *args).err)
        self.assertIsNone(self.lock_item())
        self.ok("acquire", self.KEY, "--meta", "user_email=bob@example.com")
        self.assertEqual(self.lock_item()["user_email"], {"S": "bob@example.com"})

    def test_the_outcome_is_unknown(self):
        """Its one word, released, is also that of a run that failed."""
        for command, code in (("true", 0), ("false", 1)):
            self.fails(code, "run", self.KEY, "--", command)
            lock = self.ok("status", self.KEY, "--json").json()
            self.assertEqual((lock["status"], lock["outcome"]), ("released", None))

    def test_the_same_execution_reenters(self):
        """S2.4"""
        held = self.document("acquire", owner="theirs", seconds=600)
        lock = self.acquire(self.KEY, "--owner", "theirs", "--reentrant")
        self.assertEqual(lock["lock_id"], held["id"])


class AppRegistry(Interop, DynamoCase):
    LAYOUT, DOCUMENT, KEY = "appregistry", "003", "i-0abc123"
    ATTRIBUTES = {"app_name": "S", "owner_id": "S", "ttl": "N", "created_at": "N", "lock_type": "S",
                  "db_identifier": "S"}
    ADDED = {"lock_id": "S"}

    def make_store(self):
        super().make_store()
        self.app = {"app_name": {"S": "shop"}, "url": {"S": "https://shop.example"}, "ttl": {"N": "1"}}
        self.db.put(self.table, **self.app)

    def test_the_time_of_a_lock_is_read_as_a_number_and_as_the_text_of_an_earlier_belay(self):
        self.document("acquire", owner="theirs", seconds=600)
        for value in ({"N": "1733816000"}, {"S": "2024-12-10T07:33:20Z"}):
            self.db.put(self.table, **{**self.lock_item(), "created_at": value})
            self.assertEqual(self.ok("status", self.KEY, "--json").json()["locked_at"][:19], "2024-12-10T07:33:20")

    def test_an_application_is_neither_shown_nor_touched(self):
        """S3.1: locks never share a key space with applications."""
        lock = self.acquire("shop", *self.ACQUIRE)
        self.assertEqual([one["key"] for one in self.ok("list", "--all", "--json").json()["locks"]], ["shop"])
        self.ok("unlock", "shop", "--force", "--yes")
        self.fails(66, "status", "shop")
        self.assertEqual(self.ok("list", "--all", "--json").json()["locks"], [])
        self.assertEqual(self.item("shop"), self.app)
        self.assertIsNotNone(lock)

    def test_a_lock_row_without_owner_or_expiry_is_free_with_a_warning(self):
        for missing in ("owner_id", "ttl"):
            self.document("acquire", owner="theirs", seconds=600)
            item = self.lock_item()
            del item[missing]
            self.db.put(self.table, **item)
            for command in (["status", self.KEY], ["list", "--all"]):
                self.assertRegex(self.belay(*command).err, r"warning: .*" + self.KEY)
            taken = self.ok("acquire", self.KEY, *self.ACQUIRE)
            self.assertRegex(taken.err, r"^belay: warning: lock '" + self.KEY + "' .*counts as free")
            self.assertEqual(taken.err.count("warning"), 1, taken)
            self.assertEqual(types(self.lock_item()), {**self.ATTRIBUTES, **self.ADDED})
            self.db("DeleteItem", TableName=self.table, Key={"app_name": {"S": f"LOCK#DB#{self.KEY}"}})


class Deployer(Interop, DynamoCase):
    LAYOUT, DOCUMENT, KEY = "deployer", "004", "stack:user-platform:env:production"
    ATTRIBUTES = {"lockKey": "S", "lockId": "S", "lockedBy": "S", "lockedAt": "N", "expiresAt": "N",
                  "lastHeartbeat": "N", "metadata": "M"}
    KEEPS_TTL = True

    def test_the_documents_heartbeat_holds_against_belay(self):
        held = self.document("acquire", owner="theirs", seconds=5)
        self.assertTrue(self.document("heartbeat", seconds=600, **held))
        time.sleep(6)
        self.fails(75, "acquire", self.KEY)

    def test_belays_lock_is_not_moved_by_the_documents_heartbeat(self):
        lock = self.take()
        self.assertFalse(self.document("heartbeat", seconds=600, id="another"))
        self.assertEqual(self.document("read")["id"], lock["lock_id"])

    def test_a_lock_without_a_heartbeat_for_two_minutes_is_stale(self):
        """S4.7"""
        self.document("acquire", owner="theirs", seconds=3600)
        self.db.put(self.table, **{**self.lock_item(), "lastHeartbeat": {"N": str(int(time.time()) - 180)}})
        self.assertTrue(self.document("read")["stale"])
        self.assertIs(self.ok("status", self.KEY, "--json").json()["is_stale"], True)

    def test_metadata_goes_both_ways(self):
        """S4.4"""
        self.take("--meta", "gitCommit=a1b2c3")
        self.assertEqual(self.document("read")["metadata"].get("gitCommit"), "a1b2c3")
        self.documents(self.DOCUMENT, "acquire", table=self.table, key="other", owner="theirs", seconds=600,
                       metadata={"deploymentId": "dep-1"})
        self.assertEqual(self.ok("status", "other", "--json").json()["metadata"].get("deploymentId"), "dep-1")

    def test_the_documents_forced_unlock_ends_belays_lock(self):
        lock = self.take()
        self.document("forceUnlock")
        self.fails(66, "renew", self.KEY, "--id", lock["lock_id"])
        self.take()

    def test_no_intent_stands_under_a_key_that_the_document_asks_for(self):
        """S4.5"""
        service = ("--stack", "user-platform", "--environment", "production", "--service", "web")
        self.ok("acquire", *service)
        self.assertIsNone(self.document("read"))
        self.fails(75, "acquire", self.KEY)
        listed = [lock["key"] for lock in self.ok("list", "--json").json()["locks"]]
        self.assertEqual(listed, [f"{self.KEY}:service:web"])


class ToLookAt(DynamoCase):
    """Terraform's and the lock clients' tables: shown and forced, never written to otherwise."""

    def item_and_store(self, layout, **item):
        self.LAYOUT = layout
        self.db.create(f"{self.table}-{layout}", layout)
        self.addCleanup(self.db.ask, "DeleteTable", {"TableName": f"{self.table}-{layout}"})
        self.db.put(f"{self.table}-{layout}", **item)
        return {"BELAY_STORE": self.url(table=f"{self.table}-{layout}")}

    def test_a_terraform_lock_is_shown_and_forced(self):
        info = ('{"ID":"4f5","Operation":"OperationTypeApply","Info":"","Who":"alice@host","Version":"1.9.0",'
                '"Created":"2024-11-05T14:32:15.123456789Z","Path":"bucket/key"}')
        env = self.item_and_store("terraform", LockID={"S": "bucket/key"}, Info={"S": info})
        self.db.put(f"{self.table}-terraform", LockID={"S": "bucket/key-md5"}, Digest={"S": "0" * 32})
        lock = self.ok("status", "bucket/key", "--json", env=env).json()
        self.assertEqual((lock["locked_by"], lock["status"], lock["lock_id"]), ("alice@host", "active", "4f5"))
        listed = [one["key"] for one in self.ok("list", "--json", env=env).json()["locks"]]
        self.assertEqual(listed, ["bucket/key"])
        self.assertIn("layout", self.fails(77, "acquire", "bucket/other", env=env).err)
        self.ok("unlock", "bucket/key", "--force", "--yes", env=env)
        self.assertEqual([one["LockID"]["S"] for one in self.db.items(f"{self.table}-terraform")], ["bucket/key-md5"])

    def test_a_lock_of_the_lock_client_is_shown_and_forced(self):
        for layout in ("awslabs", "dynamolock"):
            env = self.item_and_store(layout, key={"S": "job"}, ownerName={"S": "host-1"},
                                      leaseDuration={"S": "20000" if layout == "awslabs" else "20s"},
                                      recordVersionNumber={"S": "11111111-1111-1111-1111-111111111111"})
            lock = self.ok("status", "job", "--json", env=env).json()
            self.assertEqual((lock["locked_by"], lock["status"]), ("host-1", "active"))
            self.assertIn("layout", self.fails(77, "acquire", "other", env=env).err)
            self.ok("unlock", "job", "--force", "--yes", env=env)
            self.assertIn(self.belay("status", "job", env=env).code, (0, 66))
            if self.belay("status", "job", env=env).code == 0:
                self.assertEqual(self.ok("status", "job", "--json", env=env).json()["status"], "released")


class TablesKnown(unittest.TestCase):
    def test_every_document_has_its_case(self):
        cases = {case.LAYOUT: case.DOCUMENT for case in (ChatOps, Resource, Runvoy, AppRegistry, Deployer)}
        self.assertEqual(sorted(cases.values()), ["000", "001", "002", "003", "004"])
        self.assertLessEqual(cases.keys(), TABLE_KEYS.keys())


if __name__ == "__main__":
    main()
