"""Terraform's http backend: with the real terraform where there is one, and request by request.

Issue 6, Deliver 5: locks idempotent by ID, 423 with the holder's own words, writes checked against ?ID=, leases that
free a dead job's state, and a late write of a former holder refused.
"""

import base64
import hashlib
import itertools
import json
import os
import shutil
import signal
import subprocess
import threading
import time
import unittest

from server_support import PATIENCE, ServerCase, main, wait_until

TERRAFORM = shutil.which("terraform")
STATE = {"version": 4, "terraform_version": "1.11.4", "serial": 1, "lineage": "l", "outputs": {}, "resources": []}
TOKENS = {
    "secret-locker": ("ci", "locker", None),
    "secret-admin": ("boss", "admin", None),
    "secret-reader": ("watcher", "reader", None),
    "secret-net": ("net", "locker", ["terraform/net*"]),
}


def lock_info(lock_id, who="alice@laptop"):
    return {"ID": lock_id, "Operation": "OperationTypeApply", "Info": "", "Who": who, "Version": "1.11.4",
            "Created": "2026-11-16T02:00:00.123456789Z", "Path": ""}


class Protocol(ServerCase):
    def setUp(self):
        super().setUp()
        self.server = self.serve()

    def lock(self, lock_id, name="net", query="", **more):
        return self.server.call("LOCK", f"/v1/terraform/{name}{query}", lock_info(lock_id, **more))

    def unlock(self, lock_id, name="net"):
        return self.server.call("UNLOCK", f"/v1/terraform/{name}", lock_info(lock_id))

    def write(self, lock_id, serial=1, name="net", **more):
        query = "" if lock_id is None else f"?ID={lock_id}"
        return self.server.post(f"/v1/terraform/{name}{query}", {**STATE, "serial": serial}, **more)

    def serial(self, name="net"):
        return self.server.get(f"/v1/terraform/{name}").json()["serial"]

    def status(self):
        return self.server.get("/v1/locks/terraform%2Fnet").json()["status"]

    def wait_until_expired(self):
        wait_until(lambda: self.status() == "expired", "the lease to end")

    def test_a_state_is_read_as_it_was_written(self):
        self.assertEqual(self.server.get("/v1/terraform/net").status, 404)
        self.assertEqual(self.lock("id-1").status, 200)
        text = '{ "version": 4,\n "serial": 7, "resources": [0.10, "\\u00e9"] }\n'
        self.assertEqual(self.server.post("/v1/terraform/net?ID=id-1", text).status, 200)
        answer = self.server.get("/v1/terraform/net")
        self.assertEqual((answer.status, answer.body), (200, text.encode()))
        self.assertTrue(answer.headers["ETag"].startswith('"'))

    def test_a_server_on_another_lock_store_gets_neither_lock_nor_write(self):
        """Issue 12, item 4: both had the lock of one state, and both wrote it."""
        shared = ("--state-store", f"file:{self.dir}/shared")
        servers = [self.serve("--store", f"sqlite:{self.dir}/{name}.db", *shared) for name in ("one", "two")]
        path = "/v1/terraform/net"
        self.assertEqual(servers[0].call("LOCK", path, lock_info("id-1")).status, 200)
        refused = servers[1].call("LOCK", path, lock_info("id-2"))
        self.assertEqual((refused.status, refused.error["code"]), (409, "refused"))
        for said in ("one.db", "two.db", "belay state rebind"):
            self.assertIn(said, refused.error["message"])
        self.assertEqual(servers[1].get("/v1/locks/terraform%2Fnet").status, 404, "the lock was not taken")
        self.assertEqual(servers[0].post(f"{path}?ID=id-1", STATE).status, 200)
        for method, rest, body in (("POST", "?ID=id-2", STATE), ("DELETE", "", None), ("POST", "/restore", {"version": "1"})):
            self.assertEqual(servers[1].call(method, path + rest, body).status, 409, (method, rest))
        self.assertEqual(servers[0].get(path).json(), STATE)
        self.ok("state", "rebind", "--yes", "--store", f"sqlite:{self.dir}/two.db", *shared)
        self.assertEqual(servers[1].call("LOCK", path, lock_info("id-2")).status, 200)
        self.assertEqual(servers[0].post(f"{path}?ID=id-1", {**STATE, "serial": 2}).status, 409, "it is no longer its own")

    def test_two_databases_in_one_directory_have_states_of_their_own(self):
        if "BELAY_STATE_STORE" in self.env:
            self.skipTest("it is about the default")
        servers = [self.serve("--store", f"sqlite:{self.dir}/{name}.db") for name in ("one", "two")]
        for n, server in enumerate(servers):
            self.assertEqual(server.call("LOCK", "/v1/terraform/net", lock_info("id-1")).status, 200)
            self.assertEqual(server.post("/v1/terraform/net?ID=id-1", {**STATE, "lineage": str(n)}).status, 200)
        self.assertEqual([s.get("/v1/terraform/net").json()["lineage"] for s in servers], ["0", "1"])

    def test_lock_and_unlock_are_idempotent_by_id(self):
        for _ in range(2):
            self.assertEqual(self.lock("id-1").status, 200)
        for _ in range(2):
            self.assertEqual(self.unlock("id-1").status, 200)
        self.assertEqual(self.lock("id-2").status, 200)
        self.assertEqual(self.unlock("id-1").status, 200, "its answer was lost, and it comes again")
        self.assertEqual(self.unlock("id-3").status, 409, "it never had the lock")
        self.assertEqual(self.status(), "active")

    def test_a_refusal_carries_the_holders_lock_info(self):
        self.lock("id-1")
        answer = self.lock("id-2", who="bob@ci")
        self.assertEqual((answer.status, answer.json()), (423, lock_info("id-1")))

    def test_a_lock_taken_with_belay_is_described_too(self):
        taken = self.server.acquire("terraform/net", "night-shift").json()
        answer = self.lock("id-1")
        self.assertEqual((answer.status, answer.json()["ID"], answer.json()["Who"]), (423, taken["lock_id"], "night-shift"))

    def test_a_late_duplicate_does_not_overwrite_the_newer_state(self):
        """Issue 12, item 34: under the same lock; a proxy delivers the first write once more after the second."""
        self.lock("id-1")
        for serial in (1, 2, 2):
            self.assertEqual(self.write("id-1", serial).status, 200, "the same again changes nothing, and is no error")
        newest = self.server.get("/v1/terraform/net").body
        other = {**STATE, "serial": 2, "outputs": {"x": 1}}
        for body in ({**STATE, "serial": 1}, other, {**STATE, "serial": 0}, {"version": 4}, {**STATE, "serial": "3"},
                     {"serial": 1}, {**STATE, "serial": -3}, {"nested": {"serial": 9}, "serial": 2}):
            for method in ("POST", "PUT"):
                answer = self.server.call(method, "/v1/terraform/net?ID=id-1", body)
                self.assertEqual((answer.status, answer.error["code"]), (409, "refused"), body)
                self.assertIn("has serial 2 already", answer.error["message"])
        self.assertEqual(self.server.get("/v1/terraform/net").body, newest)
        self.assertEqual(len(self.server.get("/v1/terraform/net/versions").json()["versions"]), 2)
        self.assertEqual(self.write("id-1", 3).status, 200)

    def test_another_lineage_begins_again(self):
        self.lock("id-1")
        self.write("id-1", 7)
        self.assertEqual(self.server.post("/v1/terraform/net?ID=id-1", {**STATE, "lineage": "l2", "serial": 1}).status, 200)
        self.assertEqual(self.serial(), 1)
        self.assertEqual(self.server.post("/v1/terraform/net?ID=id-1", {**STATE, "lineage": "l2", "serial": 0}).status, 409)

    def test_a_serial_that_goes_back_is_forced_by_an_admin(self):
        server = self.serve("--store", f"sqlite:{self.dir}/forced.db", config=self.config_with(TOKENS))
        path = "/v1/terraform/net"
        ids = itertools.count()

        def write(token, serial, query=""):
            lock = lock_info(f"id-{next(ids)}")
            self.assertEqual(server.call("LOCK", path, lock, token=token).status, 200)
            status = server.post(f"{path}?ID={lock['ID']}{query}", {**STATE, "serial": serial}, token=token).status
            self.assertEqual(server.call("UNLOCK", path, lock, token=token).status, 200)
            return status

        self.assertEqual(write("secret-locker", 5), 200)
        for token, serial, query, status in (("secret-locker", 4, "&force=true", 403), ("secret-admin", 4, "&force=false", 409),
                                             ("secret-locker", 6, "&force=true", 200), ("secret-admin", 4, "&force=true", 200)):
            self.assertEqual(write(token, serial, query), status, (token, serial, query))
        self.assertEqual(server.get("/v1/terraform/net", token="secret-admin").json()["serial"], 4)

    def test_a_terraform_lock_is_an_ordinary_one(self):
        self.lock("id-1")
        shown = json.loads(self.ok("list", "--json", "--store", self.server.url).out.splitlines()[0])
        self.assertIn("terraform/net", json.dumps(shown))
        self.ok("unlock", "terraform/net", "--force", "--reason", "gone", "--yes", "--store", self.server.url)
        answer = self.write("id-1")
        self.assertEqual(answer.status, 409)
        self.assertIn("unlocked by force", answer.error["message"])

    def test_without_a_lock_nothing_is_written_unless_allowed(self):
        answer = self.write(None)
        self.assertEqual(answer.status, 409)
        self.assertIn("lock_address", answer.error["message"])
        self.assertEqual(self.server.get("/v1/terraform/net").status, 404)
        self.server.stop()
        self.server = self.serve(config=self.write_config("server:\n  terraform:\n    unlocked_writes: true\n"))
        self.assertEqual(self.write(None).status, 200)
        self.lock("id-1")
        self.assertEqual(self.write(None, 2).status, 423, "not while somebody has the lock")
        self.assertEqual(self.serial(), 1)

    def test_a_write_with_an_unknown_lock_id_is_refused(self):
        self.assertEqual(self.write("id-1").status, 409)
        self.lock("id-1")
        self.assertEqual(self.write("id-2").status, 409)
        self.assertEqual(self.write("a%20b").status, 400)
        self.unlock("id-1")
        answer = self.write("id-1")
        self.assertEqual((answer.status, answer.error["code"]), (409, "not_holder"))

    def test_the_late_write_of_one_that_lost_the_lock_is_refused(self):
        self.lock("old", query="?lease=200ms")
        self.wait_until_expired()
        self.assertEqual(self.lock("new").status, 200)
        self.assertEqual(self.write("new", 2).status, 200)
        for state in ("held by the new one", "released by the new one"):
            with self.subTest(state):
                answer = self.write("old", 9)
                self.assertEqual((answer.status, answer.error["code"]), (409, "not_holder"))
                self.assertEqual(self.serial(), 2)
                self.unlock("new")

    def test_a_write_starts_the_lease_again(self):
        self.lock("id-1", query="?lease=60s")
        before = self.server.get("/v1/locks/terraform%2Fnet").json()["expires_at"]
        self.write("id-1")
        self.assertGreater(self.server.get("/v1/locks/terraform%2Fnet").json()["expires_at"], before)

    def test_an_expired_lock_that_was_not_taken_over_may_still_write(self):
        self.lock("id-1", query="?lease=200ms")
        self.wait_until_expired()
        self.assertEqual(self.write("id-1", 3).status, 200)
        self.assertEqual(self.serial(), 3)
        self.wait_until_expired()
        self.assertEqual(self.write("id-1", 4).status, 200, "and once more")
        self.assertEqual(self.unlock("id-1").status, 200)
        self.assertEqual(self.write("id-1", 5).status, 409, "it has unlocked")

    def test_a_client_whose_lease_expired_cannot_write(self):
        self.lock("id-1", query="?lease=200ms")
        self.wait_until_expired()
        for _ in range(2):
            self.assertEqual(self.unlock("id-1").status, 200)
        self.assertEqual(self.write("id-1", 5).status, 409)
        self.assertEqual(self.status(), "released")

    def test_the_lease_is_six_hours_unless_said_otherwise(self):
        for query, ttl_ms in (("", 6 * 3600 * 1000), ("?lease=30m", 1800 * 1000), ("?lease=none", 366 * 24 * 3600 * 1000)):
            with self.subTest(query):
                self.lock(f"id-{ttl_ms}", query=query)
                self.assertEqual(self.server.get("/v1/locks/terraform%2Fnet").json()["ttl_ms"], ttl_ms)
                self.unlock(f"id-{ttl_ms}")
        answer = self.lock("id-x", query="?lease=soon")
        self.assertEqual(answer.status, 400)
        self.assertIn("lease", answer.error["message"])

    def test_a_body_that_was_damaged_in_transit_is_refused(self):
        self.lock("id-1")
        body = json.dumps(STATE)
        right = base64.b64encode(hashlib.md5(body.encode()).digest()).decode()
        wrong = base64.b64encode(hashlib.md5(b"x").digest()).decode()
        answer = self.server.post("/v1/terraform/net?ID=id-1", body, headers={"Content-MD5": wrong})
        self.assertEqual(answer.status, 400)
        self.assertIn("Content-MD5", answer.error["message"])
        self.assertEqual(self.server.get("/v1/terraform/net").status, 404)
        self.assertEqual(self.server.post("/v1/terraform/net?ID=id-1", body, headers={"Content-MD5": right}).status, 200)
        self.assertEqual(self.server.post("/v1/terraform/net?ID=id-1", "[1]").status, 400)
        self.assertEqual(self.server.post("/v1/terraform/net?ID=id-1", "{").status, 400)
        self.assertEqual(self.serial(), 1)

    def test_names_that_lead_elsewhere_are_refused(self):
        for name in ("..", ".", "a%2Fb", "a%2F..%2Fb", "x%00", "n" * 129, "a%3Ab"):
            with self.subTest(name):
                answer = self.server.call("LOCK", f"/v1/terraform/{name}", lock_info("id-1"), check=False)
                self.assertEqual(answer.status, 400, answer)

    def test_other_methods_do_for_proxies_that_know_only_the_usual_ones(self):
        for method, lock_id in (("POST", "id-1"), ("PUT", "id-2")):
            self.assertEqual(self.server.call(method, "/v1/terraform/net/lock", lock_info(lock_id)).status, 200)
            self.assertEqual(self.server.call("PUT", f"/v1/terraform/net?ID={lock_id}", STATE).status, 200)
            self.assertEqual(self.server.call("DELETE", "/v1/terraform/net/lock", lock_info(lock_id)).status, 200)
        self.assertEqual(self.status(), "released")

    def test_versions_are_kept_and_can_be_restored(self):
        self.lock("id-1")
        for serial in (1, 2, 3):
            self.write("id-1", serial)
        versions = self.server.get("/v1/terraform/net/versions").json()["versions"]
        self.assertEqual([v["index"] for v in versions], [1, 2, 3])
        oldest = self.server.get(f"/v1/terraform/net/versions/{versions[-1]['name']}").json()
        self.assertEqual(oldest["serial"], 1)
        refused = self.server.post("/v1/terraform/net/restore", {"version": "3"})
        self.assertEqual((refused.status, refused.json()["ID"]), (423, "id-1"))
        self.unlock("id-1")
        self.assertEqual(self.server.post("/v1/terraform/net/restore", {"version": versions[-1]["name"]}).status, 200)
        self.assertEqual(self.server.get("/v1/terraform/net").json(), {**STATE, "serial": 4}, "above the one it replaces")
        self.assertEqual(len(self.server.get("/v1/terraform/net/versions").json()["versions"]), 4)
        self.assertEqual(self.server.post("/v1/terraform/net/restore", {}).status, 400)
        self.assertEqual(self.server.post("/v1/terraform/net/restore", {"version": "99"}).status, 404)

    def test_a_restore_can_be_conditional_on_the_version_that_was_shown(self):
        self.lock("id-1")
        self.write("id-1", 1)
        seen = self.server.get("/v1/terraform/net").headers["ETag"]
        self.write("id-1", 2)
        self.unlock("id-1")
        path, version = "/v1/terraform/net/restore", {"version": "2"}
        self.assertEqual(self.server.post(path, version, headers={"If-Match": seen}).status, 412)
        self.assertEqual((self.serial(), self.status()), (2, "released"))
        seen = self.server.get("/v1/terraform/net").headers["ETag"]
        self.assertEqual(self.server.post(path, version, headers={"If-Match": seen}).status, 200)
        self.assertEqual(self.serial(), 3)

    def test_the_states_there_are_can_be_listed(self):
        self.assertEqual(self.server.get("/v1/terraform").json(), {"states": []})
        for name in ("net", "dns", "gone"):
            self.lock("id-1", name)
            self.write("id-1", name=name)
            self.unlock("id-1", name)
        self.server.call("DELETE", "/v1/terraform/gone")
        states = self.server.get("/v1/terraform").json()["states"]
        self.assertEqual([state["name"] for state in states], ["dns", "net"])
        self.assertEqual(states[1]["size"], len(self.server.get("/v1/terraform/net").body))
        self.assertTrue(states[1]["modified"].startswith("20"))

    def test_a_state_that_was_deleted_can_be_restored(self):
        self.lock("id-1")
        self.write("id-1", 5)
        self.assertEqual(self.server.call("DELETE", "/v1/terraform/net").status, 423)
        self.unlock("id-1")
        self.assertEqual(self.server.call("DELETE", "/v1/terraform/net").status, 200)
        self.assertEqual(self.server.get("/v1/terraform/net").status, 404)
        self.assertEqual(self.server.post("/v1/terraform/net/restore", {"version": "latest"}).status, 200)
        self.assertEqual(self.serial(), 5)

    def test_a_large_state_is_accepted(self):
        self.lock("id-1")
        text = json.dumps({**STATE, "resources": ["x" * 1000] * 8000})
        self.assertEqual(self.server.post("/v1/terraform/net?ID=id-1", text).status, 200)
        self.assertEqual(self.server.get("/v1/terraform/net").body, text.encode())

    def test_acknowledged_writes_survive_kill_9_of_the_server(self):
        self.lock("id-1")
        self.write("id-1", 8)
        self.server.stop(signal.SIGKILL)
        self.server = self.serve()
        self.assertEqual(self.serial(), 8)
        self.assertEqual(self.lock("id-2").json()["ID"], "id-1")
        self.assertEqual(self.write("id-1", 9).status, 200)

    def test_of_many_concurrent_locks_one_succeeds(self):
        answers = []
        threads = [threading.Thread(target=lambda i=i: answers.append(self.lock(f"id-{i}").status)) for i in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
        self.assertEqual(sorted(answers), [200] + [423] * 11)


class Policy(ServerCase):
    def start_with(self, policy=""):
        path = self.config_with(TOKENS)
        path.write_text(path.read_text() + policy)
        return self.serve(config=path)

    def force(self, server, token):
        server.call("LOCK", "/v1/terraform/net", lock_info("id-1"), token="secret-locker")
        return server.call("UNLOCK", "/v1/terraform/net", token=token).status

    def test_unlocking_without_a_body_follows_the_policy(self):
        for policy, locker, admin in (("", 403, 200), ("  terraform:\n    force_unlock: locker\n", 200, 200),
                                      ("  terraform:\n    force_unlock: never\n", 403, 403)):
            with self.subTest(policy):
                server = self.start_with(policy)
                self.assertEqual(self.force(server, "secret-locker"), locker)
                self.assertEqual(self.force(server, "secret-admin"), admin)
                server.stop()
        path = self.config_with(TOKENS)
        path.write_text(path.read_text() + "  terraform:\n    force_unlock: perhaps\n")
        self.assertIn("force_unlock", self.fails(78, "serve", "--listen", "127.0.0.1:0", "--config", str(path)).err)

    def test_the_id_in_a_refusal_does_not_unlock(self):
        server = self.start_with()
        taken = server.call("LOCK", "/v1/terraform/net", lock_info("id-1"), token="secret-locker")
        self.assertEqual((taken.status, taken.json()["ID"]), (200, "id-1"))
        refused = server.call("LOCK", "/v1/terraform/net", lock_info("id-2"), token="secret-net")
        self.assertEqual((refused.status, refused.json()["ID"]), (423, "id-1"), "what terraform force-unlock is given")
        lock_id = server.get("/v1/locks/terraform%2Fnet", token="secret-admin").json()["lock_id"]
        for token in ("secret-net", "secret-reader"):
            for path in ("/v1/locks/terraform%2Fnet", "/v1/locks", "/v1/locks/terraform%2Fnet/history"):
                self.assertNotIn(lock_id, server.get(path, token=token).body.decode())
        self.assertNotIn(lock_id, refused.body.decode())
        tries = [server.release("terraform/net", "id-1", token="secret-net"),
                 server.post("/v1/locks/terraform%2Fnet/adopt", {"lock_id": "id-1"}, token="secret-net"),
                 server.acquire("terraform/net", "alice@laptop", token="secret-net", lock_id="id-1", reentrant=True),
                 server.call("UNLOCK", "/v1/terraform/net", lock_info("id-1"), token="secret-net"),
                 server.post("/v1/terraform/net?ID=id-1", STATE, token="secret-net")]
        self.assertEqual([answer.status for answer in tries], [409, 409, 409, 403, 409])
        self.assertIn("only an admin", tries[3].error["message"])
        shown = server.get("/v1/locks/terraform%2Fnet", token="secret-admin").json()
        self.assertEqual((shown["status"], shown["lock_id"], shown["acquired_by"]), ("active", lock_id, "ci"))
        server.stop()
        server = self.start_with()  # the token finds its lock again
        self.assertEqual(server.call("LOCK", "/v1/terraform/net", lock_info("id-1"), token="secret-locker").status, 200)
        self.assertEqual(server.post("/v1/terraform/net?ID=id-1", STATE, token="secret-locker").status, 200)
        for _ in range(2):
            self.assertEqual(server.call("UNLOCK", "/v1/terraform/net", lock_info("id-1"), token="secret-locker").status, 200)

    def test_unlocking_another_tokens_lock_follows_the_policy(self):
        for policy, other, admin in (("", 403, 200), ("  terraform:\n    force_unlock: locker\n", 200, 200),
                                     ("  terraform:\n    force_unlock: never\n", 403, 403)):
            with self.subTest(policy):
                server = self.start_with(policy)
                for token, status in (("secret-net", other), ("secret-admin", admin)):
                    info = lock_info(f"id-{len(policy)}-{token}")
                    server.call("LOCK", "/v1/terraform/net", info, token="secret-locker")
                    answer = server.call("UNLOCK", "/v1/terraform/net", info, token=token)
                    self.assertEqual(answer.status, status)
                    server.call("DELETE", "/v1/locks/terraform%2Fnet", token="secret-admin")
                server.stop()

    def test_a_token_that_was_replaced_under_its_name_keeps_its_locks(self):
        server = self.start_with()
        server.call("LOCK", "/v1/terraform/net", lock_info("id-1"), token="secret-locker")
        server.stop()
        server = self.serve(config=self.config_with({**TOKENS, "secret-newer": ("ci", "locker", None)}))
        self.assertEqual(server.post("/v1/terraform/net?ID=id-1", STATE, token="secret-newer").status, 200)
        self.assertEqual(server.call("UNLOCK", "/v1/terraform/net", lock_info("id-1"), token="secret-newer").status, 200)

    def test_a_lock_acquired_with_belay_shows_its_id_to_permitted_tokens(self):
        server = self.start_with()
        taken = server.acquire("terraform/net", "night-shift", token="secret-locker").json()
        for token, shown in (("secret-net", "night-shift"), ("secret-locker", taken["lock_id"]), ("secret-admin", taken["lock_id"])):
            answer = server.call("LOCK", "/v1/terraform/net", lock_info("id-1"), token=token)
            self.assertEqual((answer.status, answer.json()["ID"]), (423, shown))

    def test_basic_auth_and_patterns_count_and_secrets_are_not_for_readers(self):
        server = self.start_with()
        basic = "Basic " + base64.b64encode(b"anybody:secret-net").decode()
        answer = server.call("LOCK", "/v1/terraform/network", lock_info("id-1"), headers={"Authorization": basic})
        self.assertEqual(answer.status, 200)
        lock = server.get("/v1/locks/terraform%2Fnetwork", token="secret-admin").json()
        self.assertEqual(lock["locked_by_name"], "alice@laptop (net)")
        self.assertEqual(server.call("LOCK", "/v1/terraform/shop", lock_info("id-2"), token="secret-net").status, 403)
        self.assertEqual(server.get("/v1/terraform/shop", token="secret-net").status, 403)
        self.assertEqual(server.get("/v1/terraform/network", token="secret-reader").status, 403)

    def test_only_writers_may_send_large_bodies(self):
        server = self.start_with()
        text = json.dumps({**STATE, "resources": ["x" * 1000] * 1500})
        server.call("LOCK", "/v1/terraform/net", lock_info("id-1"), token="secret-locker")
        self.assertEqual(server.post("/v1/terraform/net?ID=id-1", text, token="secret-locker").status, 200)
        try:
            status = server.post("/v1/terraform/net?ID=id-1", text, token="secret-reader", check=False).status
        except OSError:  # the answer came before the whole body was sent
            status = 403
        self.assertEqual(status, 403)


@unittest.skipUnless(TERRAFORM, "there is no terraform on the PATH")
class TerraformCase(ServerCase):
    """With the real program; terraform_data needs no provider."""

    def setUp(self):
        super().setUp()
        self.server = self.serve()
        (self.dir / "terraformrc").write_text("disable_checkpoint = true\n")
        self.terraform_env = {"TF_CLI_CONFIG_FILE": str(self.dir / "terraformrc"), "TF_IN_AUTOMATION": "1"}

    def start_terraform(self, path, *args):
        return subprocess.Popen([TERRAFORM, *args, "-no-color"], cwd=path, env={**os.environ, **self.terraform_env}, stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)

    def terraform(self, path, *args, code=0):
        process = self.start_terraform(path, *args)
        out, err = process.communicate(timeout=PATIENCE * 4)
        self.assertEqual(process.returncode, code, f"{args}: {out}{err}")
        return out + err

    def terraform_out(self, path, *args):
        process = subprocess.run([TERRAFORM, *args], cwd=path, capture_output=True, text=True, check=True,
                                 timeout=PATIENCE, env={**os.environ, **self.terraform_env})
        return process.stdout


class RealTerraform(TerraformCase):
    def test_a_push_of_an_older_state_is_refused_and_forced_by_the_address(self):
        path = self.folder("push")
        self.terraform(path, "apply", "-auto-approve")
        old = json.loads(self.terraform_out(path, "state", "pull"))
        for value in ("two", "three"):
            text = (path / "main.tf").read_text().replace('"one"', f'"{value}"').replace('"two"', f'"{value}"')
            (path / "main.tf").write_text(text)
            self.terraform(path, "apply", "-auto-approve")
        newest = self.server.get("/v1/terraform/shop").json()
        (path / "old.tfstate").write_text(json.dumps(old))
        out = self.terraform(path, "state", "push", "-force", "old.tfstate", code=1)
        self.assertIn("409", out)
        self.assertEqual(self.server.get("/v1/terraform/shop").json(), newest)
        address = f"{self.server.url}/v1/terraform/shop"
        self.terraform(path, "init", "-reconfigure", f"-backend-config=address={address}?force=true")
        self.terraform(path, "state", "push", "-force", "old.tfstate")
        self.assertEqual(self.server.get("/v1/terraform/shop").json()["outputs"], old["outputs"])

    def folder(self, name, value="one", sleep=None, lease=None, state="shop"):
        path = self.dir / name
        path.mkdir()
        address = f"{self.server.url}/v1/terraform/{state}"
        query = f"?lease={lease}" if lease else ""
        provisioner = f'provisioner "local-exec" {{\n command = "touch started; sleep {sleep}"\n }}' if sleep else ""
        (path / "main.tf").write_text(f"""
terraform {{
  backend "http" {{
    address        = "{address}"
    lock_address   = "{address}{query}"
    unlock_address = "{address}"
  }}
}}
resource "terraform_data" "it" {{
  input = "{value}"
  {provisioner}
}}
output "it" {{
  value = terraform_data.it.output
}}
""")
        self.terraform(path, "init")
        return path

    def apply_in_background(self, path):
        process = self.start_terraform(path, "apply", "-auto-approve")
        wait_until(lambda: (path / "started").exists() or process.poll() is not None, "the apply to have begun")
        self.assertIsNone(process.poll())
        return process

    def kill(self, process):
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()

    def test_init_apply_plan_pull_and_push(self):
        path = self.folder("a")
        self.terraform(path, "apply", "-auto-approve")
        self.assertIn("No changes", self.terraform(path, "plan"))
        self.assertEqual(self.terraform(path, "output", "-raw", "it"), "one")
        pulled = json.loads(self.terraform_out(path, "state", "pull"))
        self.assertEqual(pulled["outputs"]["it"]["value"], "one")
        pulled["serial"] += 1
        (path / "new.tfstate").write_text(json.dumps(pulled))
        self.terraform(path, "state", "push", "new.tfstate")
        self.assertGreaterEqual(self.server.get("/v1/terraform/shop").json()["serial"], pulled["serial"])
        self.assertEqual(self.server.get("/v1/locks/terraform%2Fshop").json()["status"], "released")
        self.terraform(path, "destroy", "-auto-approve")

    def test_of_two_applies_one_is_refused_or_waits_as_configured(self):
        first, second = self.folder("a", "first", sleep=600), self.folder("b", "second")
        process = self.apply_in_background(first)
        held = self.server.get("/v1/locks/terraform%2Fshop").json()
        refused = self.terraform(second, "apply", "-auto-approve", code=1)
        self.assertIn("Error acquiring the state lock", refused)
        self.assertIn(held["lock_id"], refused, "the holder's id")
        waiting = self.start_terraform(second, "apply", "-auto-approve", "-lock-timeout=300s")
        tries = len([line for line in self.server.log_lines() if line.get("status") == 423])
        wait_until(lambda: len([line for line in self.server.log_lines() if line.get("status") == 423]) > tries,
                   "the second to be told to wait")
        self.assertIsNone(waiting.poll())
        os.killpg(process.pid, signal.SIGINT)
        process.communicate(timeout=PATIENCE)
        out, err = waiting.communicate(timeout=PATIENCE * 4)
        self.assertEqual(waiting.returncode, 0, out + err)
        self.assertEqual(self.terraform(second, "output", "-raw", "it"), "second")

    def test_force_unlock_ends_a_dead_apply(self):
        path = self.folder("a", sleep=600)
        self.kill(self.apply_in_background(path))
        lock_id = self.server.get("/v1/locks/terraform%2Fshop").json()["lock_id"]
        self.assertIn("Error acquiring the state lock", self.terraform(path, "plan", code=1))
        self.terraform(path, "force-unlock", "-force", lock_id)
        self.terraform(path, "plan")
        events = self.server.get("/v1/locks/terraform%2Fshop/history").json()["events"]
        self.assertIn("terraform force-unlock", [event["reason"] for event in events])

    def test_after_kill_9_the_next_apply_succeeds_when_the_lease_is_over_and_the_twin_is_refused(self):
        dead, path = self.folder("a", "dead", sleep=600, lease="5s"), self.folder("b", "next")
        process = self.apply_in_background(dead)
        lock_id = self.server.get("/v1/locks/terraform%2Fshop").json()["lock_id"]
        saved = {**STATE, "serial": 99}
        self.kill(process)
        self.terraform(path, "apply", "-auto-approve", "-lock-timeout=120s")
        before = self.server.get("/v1/terraform/shop").body
        answer = self.server.post(f"/v1/terraform/shop?ID={lock_id}", saved)
        self.assertEqual((answer.status, answer.error["code"]), (409, "not_holder"))
        self.assertEqual(self.server.get("/v1/terraform/shop").body, before)
        self.assertEqual(self.terraform(path, "output", "-raw", "it"), "next")

    def test_a_local_terraform_state_migrates_to_belay(self):
        path = self.dir / "local"
        path.mkdir()
        resource = 'resource "terraform_data" "it" {\n  input = "here"\n}\noutput "it" {\n  value = terraform_data.it.output\n}\n'
        (path / "main.tf").write_text(resource)
        self.terraform(path, "init")
        self.terraform(path, "apply", "-auto-approve")
        address = f"{self.server.url}/v1/terraform/moved"
        (path / "backend.tf").write_text('terraform {\n  backend "http" {}\n}\n')
        self.terraform(path, "init", "-migrate-state", "-force-copy", f"-backend-config=address={address}",
                       f"-backend-config=lock_address={address}", f"-backend-config=unlock_address={address}")
        self.assertEqual(self.server.get("/v1/terraform/moved").json()["outputs"]["it"]["value"], "here")
        self.assertIn("No changes", self.terraform(path, "plan"))


if __name__ == "__main__":
    main()
