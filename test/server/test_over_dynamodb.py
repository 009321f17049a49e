"""
`belay serve` as a stateless front on DynamoDB (DynamoDB Local). The store is on the network: nobody may wait for
another's question to it. A third of the suite of the command line (BELAY_DYNAMODB_TESTS=all: all of it) runs here once
more, each case through a server over a table of its own.
"""

import json
import os
import re
import signal
import sys
import threading
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "dynamodb"))

from dynamo_support import DynamoStore  # noqa: E402
from inherited import inherited_cases  # noqa: E402
from webhook_support import Receiver  # noqa: E402
from proxy import Plan  # noqa: E402
from server_support import PATIENCE, ServerCase, Stream, reload_under_load, wait_until  # noqa: E402

class OverDynamo(DynamoStore):
    EXTRA = "max_clock_skew=10ms"


class OthersLayout(DynamoStore, ServerCase):
    """A layout of another program has no place for the credential: decided on the safe side."""

    LAYOUT = "chatops"
    EXTRA = "max_clock_skew=10ms"

    def test_ids_are_for_admins_and_no_token_reenters(self):
        server = self.serve(config=self.config_with(Front.IDENTITIES))
        lock = server.acquire("k", "job-42", token="secret-ci", ttl_ms=60000, lock_id="id-1").json()
        self.assertEqual((lock["lock_id"], lock["acquired_by"]), ("id-1", None))
        for token in ("secret-bot", "secret-ci"):
            refused = server.acquire("k", "job-42", token=token, reentrant=True, ttl_ms=60000)
            self.assertEqual((refused.status, refused.error["lock"]["lock_id"]), (409, None))
        self.assertEqual(server.get("/v1/locks/k", token="secret-admin").json()["lock_id"], "id-1")
        self.assertEqual(server.acquire("k", "job-42", token="secret-ci", ttl_ms=60000, lock_id="id-1").status, 200)
        self.assertEqual(server.release("k", "id-1", token="secret-ci").status, 200)
        server.stop()
        plain = self.serve()
        first = plain.acquire("k", "job-42", reentrant=True, ttl_ms=60000).json()
        self.assertEqual(plain.acquire("k", "job-42", reentrant=True, ttl_ms=60000).json()["lock_id"], first["lock_id"])

    def test_terraform_finds_its_lock_again(self):
        server = self.serve("--state-store", f"file:{self.dir}/states", config=self.config_with(Front.IDENTITIES))
        info = {"ID": "id-1", "Who": "alice"}
        for _ in range(2):
            self.assertEqual(server.call("LOCK", "/v1/terraform/net?lease=60s", info, token="secret-ci").status, 200)
        held = server.call("LOCK", "/v1/terraform/net?lease=60s", {"ID": "id-2", "Who": "bob"}, token="secret-bot")
        self.assertEqual((held.status, held.json()["ID"]), (423, "alice"))
        self.assertNotEqual(server.call("UNLOCK", "/v1/terraform/net", info, token="secret-bot").status, 200)
        self.assertEqual(server.call("UNLOCK", "/v1/terraform/net", info, token="secret-ci").status, 200)


class Front(OverDynamo, ServerCase):
    def test_locks_are_taken_renewed_listed_and_ended(self):
        server = self.serve()
        self.assertTrue(server.hello["store"].startswith("dynamodb:"))
        self.assertEqual(server.get("/readyz").status, 200)
        lock = server.acquire("k", "job", ttl_ms=60000, metadata={"a": "b"}).json()
        self.assertEqual(server.acquire("k", "rival").status, 409)
        self.assertEqual(server.renew("k", lock["lock_id"]).json()["token"], lock["token"])
        self.assertEqual(server.get("/v1/locks/k").json()["metadata"], {"a": "b"})
        self.assertEqual([one["key"] for one in server.get("/v1/locks?prefix=k&limit=10").json()["locks"]], ["k"])
        self.assertEqual(server.get("/v1/locks/k/free").status, 409)
        self.assertEqual(server.release("k", lock["lock_id"]).json()["outcome"], "completed")
        self.assertEqual(server.release("k", lock["lock_id"]).status, 200)
        self.assertEqual(server.acquire("k", "next").json()["token"], lock["token"] + 1)
        self.assertEqual(server.call("DELETE", "/v1/locks/k?reason=r").json()["outcome"], "forced")
        self.assertEqual(server.call("DELETE", "/v1/locks/k").status, 404)
        self.assertEqual(server.get("/v1/locks/nothing").status, 404)
        self.assertEqual(server.get("/v1/locks/k/history").status, 404)
        self.assertEqual(server.get("/v1/events").status, 404)
        self.assertEqual(server.stop(), 0)

    def test_a_queue_is_served_in_order(self):
        server = self.serve()
        server.acquire("k", "holder", lock_id="h", ttl_ms=60000)
        later = []
        for i in range(4):
            later.append(server.acquire_later("k", f"w{i}", wait_ms=20000, ttl_ms=60000, lock_id=f"w{i}"))
            server.wait_for_queue("k", [f"w{n}" for n in range(i + 1)])
        server.release("k", "h")
        for i, answer in enumerate(later):
            self.assertEqual(answer.get().json()["locked_by"], f"w{i}")
            server.release("k", f"w{i}")

    def test_a_poll_that_ends_reports_the_place_in_the_queue_and_keeps_it(self):
        server = self.serve()
        server.acquire("k", "holder", lock_id="h", ttl_ms=60000)
        for _ in range(2):
            answer = server.acquire("k", "w", wait_ms=500, ttl_ms=60000, lock_id="w")
            self.assertEqual((answer.status, answer.error["code"], answer.error["position"], answer.error["lock"]["locked_by"]),
                             (409, "lock_held", 0, "holder"))
            self.assertEqual(answer.error["place_kept_ms"], 3000)
        server.release("k", "h")
        self.assertEqual(server.acquire("k", "w", wait_ms=20000, ttl_ms=90000, lock_id="w").status, 200)

    def test_two_servers_on_one_table_share_one_queue(self):
        """Nothing is kept in a server that the other would need."""
        one, two = self.serve(), self.serve()
        lock = one.acquire("k", "holder", ttl_ms=60000).json()
        self.assertEqual(two.acquire("k", "rival").error["lock"]["locked_by"], "holder")
        first = two.acquire_later("k", "first", wait_ms=20000, ttl_ms=60000, lock_id="first")
        one.wait_for_queue("k", ["first"])
        second = one.acquire_later("k", "second", wait_ms=20000, ttl_ms=60000, lock_id="second")
        two.wait_for_queue("k", ["first", "second"])
        self.assertEqual(two.renew("k", lock["lock_id"]).status, 200)
        two.release("k", lock["lock_id"])
        token = first.get().json()["token"]
        self.assertGreater(token, lock["token"])
        one.release("k", "first")
        self.assertGreater(second.get().json()["token"], token)

    def test_the_one_server_goes_and_the_other_serves_on(self):
        one, two = self.serve(), self.serve()
        lock = one.acquire("k", "holder", ttl_ms=60000).json()
        one.process.kill()
        self.assertEqual(two.renew("k", lock["lock_id"]).json()["token"], lock["token"])
        self.assertEqual(two.release("k", lock["lock_id"]).status, 200)

    def test_webhooks_work_here_too(self):
        server = self.serve(config=self.write_config('server: {webhooks: {allow: ["127.0.0.1"]}}\n'))
        receiver = Receiver(self)
        lock = server.acquire("k", "holder", ttl_ms=60000).json()
        answer = server.acquire("k", "bot", ttl_ms=60000, wait_ms=60000, webhook={"url": receiver.url})
        self.assertEqual((answer.status, answer.json()["position"]), (202, 0))
        server.release("k", lock["lock_id"])
        self.assertEqual(receiver.lock()["locked_by"], "bot")

    def test_a_lock_whose_webhook_was_not_told_is_released_at_shutdown(self):
        """There is no file here in which the next server would find the call."""
        config = self.write_config('server: {webhooks: {allow: ["127.0.0.1"]}}\n')
        one, two = self.serve(config=config), self.serve()
        receiver = Receiver(self, statuses=(500,))
        one.acquire("k", "bot", ttl_ms=60000, wait_ms=60000, webhook={"url": receiver.url})
        receiver.next()  # refused: the next attempt is a second away
        self.assertEqual(one.stop(), 0)
        self.assertEqual(two.acquire("k", "next").status, 200)

    IDENTITIES = {"secret-ci": ("ci", "locker", None), "secret-bot": ("bot", "locker", None), "secret-admin": ("boss", "admin", None)}

    def test_the_credential_that_acquired_is_kept_in_the_table(self):
        one, two = self.serve(config=self.config_with(self.IDENTITIES)), self.serve(config=self.config_with(self.IDENTITIES))
        lock = one.acquire("k", "job-42", token="secret-ci", ttl_ms=60000).json()
        self.assertEqual(lock["acquired_by"], "ci")
        refused = two.acquire("k", "job-42", token="secret-bot", reentrant=True, ttl_ms=60000)
        self.assertEqual((refused.status, refused.error["lock"]["lock_id"]), (409, None))
        again = two.acquire("k", "job-42", token="secret-ci", reentrant=True, ttl_ms=60000).json()
        self.assertEqual((again["lock_id"], again["token"]), (lock["lock_id"], lock["token"]))
        place = one.acquire_later("k", "w", token="secret-ci", wait_ms=20000, ttl_ms=60000, lock_id="place")
        wait_until(lambda: two.get("/v1/locks/k/queue", token="secret-admin").json()["waiting"], "the place")
        taken = two.acquire("k", "w", token="secret-bot", wait_ms=1000, ttl_ms=60000, lock_id="place")
        self.assertEqual((taken.status, taken.error["code"]), (409, "id_used"))
        two.release("k", lock["lock_id"], token="secret-ci")
        self.assertEqual(place.get().json()["lock_id"], "place")
        adopted = two.post("/v1/locks/k/adopt", {"lock_id": "place"}, token="secret-bot").json()
        self.assertEqual(one.get("/v1/locks/k", token="secret-bot").json()["lock_id"], adopted["lock_id"])

    def test_commands_work_through_it(self):
        server = self.serve()
        self.env["BELAY_STORE"] = server.url
        self.assertEqual(self.ok("run", "k", "--", "true").code, 0)
        self.fails(3, "run", "k", "--", "sh", "-c", "exit 3")
        lock = self.ok("acquire", "k", "--json").json()
        self.fails(75, "acquire", "k")
        self.ok("release", "k", "--id", lock["lock_id"])
        self.assertEqual(self.ok("list", "--filter", "status=released", "--json").json()["locks"][0]["key"], "k")


class Reliance(DynamoStore, ServerCase):
    """L6: through a server a lock is relied upon for as long as without one, and no longer."""

    FOREIGN = ("chatops", "resource", "runvoy", "appregistry", "deployer")

    def valid_for(self, layout, *args, server=None):
        """The validity of a lock of 12 s: with max_clock_skew 2s, it is reduced by twice that on another program's layout."""
        key = "build-router-plt"
        env = {"BELAY_STORE": server.url} if server else None
        lock = self.ok("acquire", key, "--ttl", "12s", "--json", *args, env=env).json()
        renewed = self.ok("renew", key, "--id", lock["lock_id"], "--ttl", "12s", "--json", env=env).json()
        self.ok("release", key, "--id", lock["lock_id"], env=env)
        return lock["valid_for_ms"], renewed["valid_for_ms"]

    def test_a_lock_is_valid_for_as_long_through_a_server(self):
        for layout in ("belay",) + self.FOREIGN:
            with self.subTest(layout):
                self.LAYOUT = layout
                self.make_store()
                most = 12000 - 600 - (2000 if layout == "belay" else 4000)
                server = self.serve()
                for valid in self.valid_for(layout) + self.valid_for(layout, server=server):
                    self.assertTrue(most - 2000 < valid <= most, valid)

    def test_a_command_is_ended_before_a_rival_with_another_clock_may_have_the_lock(self):
        """Document 001's program knows only its own clock, which may be early by max_clock_skew."""
        self.LAYOUT = "resource"
        self.make_store()
        server = self.serve()
        began = time.monotonic()
        process = self.start("run", "k", "--ttl", "12s", "--heartbeat", "5s", "--", "sh", "-c", "touch started; exec sleep 30",
                             env={"BELAY_STORE": server.url})
        wait_until((self.dir / "started").exists, "the command")
        server.process.kill()  # no more renewals
        self.assertEqual(process.wait(60), 76)
        self.assertLess(time.monotonic() - began, 12 - 4)


class Audit(OverDynamo, ServerCase):
    """The table keeps no events: the server's audit file does, and is what is read through it (L9)."""

    def setUp(self):
        super().setUp()
        self.server = self.serve(config=self.write_config(f"audit: {{file: {self.dir}/audit.jsonl}}\n"))
        self.env["BELAY_STORE"] = self.server.url
        self.server.acquire("warm")  # a table that was just made takes longer than a short lease lasts

    def test_an_expired_lock_is_taken_over_with_a_warning(self):
        """S1.4, S2.4"""
        old = self.acquire("k", "--ttl", "1s", "--owner", "crashed")
        wait_until(lambda: self.ok("status", "--json", "k").json()["status"] == "expired")
        self.assertGreater(self.acquire("k", "--owner", "next")["token"], old["token"])
        self.fails(77, "release", "k", "--id", old["lock_id"])
        events = self.ok("history", "k", "--json").json()["events"]
        taken = [event for event in events if event["event"] == "lock.taken_over"]
        self.assertEqual([(e["level"], e["locked_by"], e["by"]) for e in taken], [("WARN", "crashed", "next")])

    def test_history_is_read_through_the_server_key_by_key(self):
        """L9, S4.12"""
        hostile = 'a"\\b\u202e \u00e9'
        for key in ("k", "kk", hostile):
            self.ok("run", "--meta", 'also="lock_key":"k"', key, "--", "true")
        for key in ("k", "kk", hostile):
            events = self.ok("history", "--json", key).json()["events"]
            self.assertEqual([(e["event"], e["lock_key"]) for e in events], [("lock.acquired", key), ("lock.released", key)])
        self.assertEqual(len(self.ok("history", "--json", "--limit", "1", "k").json()["events"]), 1)
        self.assertIn("no history of 'none'", self.fails(66, "history", "none").err)


class Slow(OverDynamo, ServerCase):
    """A store that takes its time, or does not answer."""

    PROXY = True
    DELAY_S = 2.0

    def setUp(self):
        super().setUp()
        self.server = self.serve()
        self.server.acquire("warm")

    def test_the_server_answers_other_clients_meanwhile(self):
        self.proxy.plan = Plan(delay=1.0, delay_s=self.DELAY_S)
        later = [self.server.acquire_later(f"k{i}", "x") for i in range(8)]
        listed = []
        threading.Thread(target=lambda: listed.append(self.server.get("/v1/locks")), daemon=True).start()
        began = time.monotonic()
        asked = 0
        while not all(one.is_there() for one in later):
            self.assertEqual(self.server.get("/healthz").status, 200)
            self.assertEqual(self.server.post("/v1/acquire", {}).status, 400)
            asked += 1
            self.assertLess(time.monotonic() - began, 60)
        took = time.monotonic() - began
        self.assertGreater(asked, 20, "it was held up")
        self.assertLess(took, 8 * self.DELAY_S, "one after the other")
        self.assertEqual([one.get().status for one in later], [200] * 8)
        wait_until(lambda: listed and listed[0].status == 200, "the list")

    def test_a_client_that_hangs_up_meanwhile_does_no_harm(self):
        self.proxy.plan = Plan(delay=1.0, delay_s=0.5)
        for path in ("/v1/locks", "/v1/locks/warm", "/readyz", "/v1/locks/warm/queue"):
            connection = self.server.connect()
            connection.request("GET", path)
            connection.close()
        for method, path in (("DELETE", "/v1/locks/warm"), ("POST", "/v1/locks/other/acquire")):
            connection = self.server.connect()
            connection.request(method, path, '{"locked_by":"x"}' if method == "POST" else None)
            connection.close()
        self.assertEqual(self.server.get("/v1/locks/warm").status, 200)
        self.assertEqual(self.server.stop(), 0)

    def test_dashboards_and_scrapes_do_not_delay_other_clients(self):
        streams = [Stream(self.server, "/v1/live") for _ in range(3)]
        for stream in streams:
            self.addCleanup(stream.close)
        events = [stream.events() for stream in streams]
        for one in events:
            self.assertEqual(next(one)["data"], {"keeps_events": False})
        self.proxy.plan = Plan(delay=1.0, delay_s=self.DELAY_S)
        later = [self.server.acquire_later(f"k{i}", "x", ttl_ms=60000) for i in range(4)]
        seen = []
        for one in events:
            rows = set()
            seen.append(rows)
            threading.Thread(target=self.gather, args=(one, rows), daemon=True).start()
        began = time.monotonic()
        slowest = 0
        while not all(rows >= {f"k{i}" for i in range(4)} for rows in seen):
            asked = time.monotonic()
            self.assertEqual(self.server.get("/metrics").status, 200)
            self.assertEqual(self.server.get("/healthz").status, 200)
            slowest = max(slowest, time.monotonic() - asked)
            self.assertLess(time.monotonic() - began, 60, seen)
        self.assertLess(slowest, self.DELAY_S, "it was held up")
        self.assertEqual([one.get().status for one in later], [200] * 4)
        wait_until(lambda: 'belay_locks{status="active"}' in self.server.get("/metrics").body.decode(), "the count of locks")

    @staticmethod
    def gather(events, rows):
        for event in events:
            rows.update(row["key"] for row in event["data"].get("locks", []) if row["status"] == "active")

    def test_the_server_stops_while_it_updates_a_dashboard(self):
        stream = Stream(self.server, "/v1/live")
        self.addCleanup(stream.close)
        next(stream.events())
        self.proxy.plan = Plan(delay=1.0, delay_s=self.DELAY_S)
        self.server.get("/metrics")  # which counts the locks in a worker too
        self.server.acquire_later("k", "x")
        wait_until(lambda: len(self.proxy.counts()) > 0, "the questions to be asked")
        self.assertEqual(self.server.stop(), 0)

    def test_unanswered_requests_are_counted_and_every_change_is_one_write(self):
        def value(name):
            text = self.server.get("/metrics").body.decode()
            return float(re.search(rf"^{name} (\S+)$", text, re.M).group(1))
        wait_until(lambda: value("belay_store_commit_batch_size_count") == 1, "the first change")
        self.server.acquire("more")
        self.assertEqual(value("belay_store_commit_batch_size_sum"), value("belay_store_commit_batch_size_count"))
        self.assertEqual(value('belay_store_commit_batch_size_bucket{le="1"}'), value("belay_store_commit_batch_size_count"))
        before = value("belay_store_errors_total")
        self.proxy.answer("*", 500, "InternalServerError", "no")
        self.assertIn(self.server.get("/v1/locks/warm").status, (503, 504))
        self.assertGreater(value("belay_store_errors_total"), before)

    def test_a_store_that_does_not_answer_is_reported(self):
        self.proxy.answer("*", 400, "AccessDeniedException", "no")
        for call in (lambda: self.server.acquire("k"), lambda: self.server.get("/readyz"), lambda: self.server.get("/v1/locks")):
            self.assertIn(call().status, (403, 500, 503))
        self.assertEqual(self.server.get("/healthz").status, 200)

    def test_the_server_stops_during_health_checks(self):
        self.proxy.plan = Plan(delay=1.0, delay_s=1.0)
        later = [self.server.acquire_later(f"k{i}", "x") for i in range(4)]
        wait_until(lambda: self.proxy.counts(), "the questions to be asked")
        self.assertEqual(self.server.stop(), 0)
        for one in later:
            answer = one.get()
            self.assertTrue(isinstance(answer, OSError) or answer.status in (200, 503), answer)


class Reloads(OverDynamo, ServerCase):
    """SIGHUP replaces the table of tokens during a request that the old table authenticated."""

    PROXY = True

    def setUp(self):
        super().setUp()
        self.tokens = {"secret-admin": ("ops", "admin", ["k*", "other-*"]), "secret-reader": ("r", "reader", None)}
        self.server = self.serve(config=self.config_with(self.tokens))
        self.server.acquire("k-warm", token="secret-admin")

    def reload(self):
        before = self.server.log().count('"reloaded"')
        self.server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: self.server.log().count('"reloaded"') > before, "the reload")

    def test_a_request_under_way_goes_on_with_the_token_that_let_it_in(self):
        self.server.acquire("k", token="secret-admin", ttl_ms=60000)
        self.proxy.plan = Plan(delay=1.0, delay_s=1.0, operations=("GetItem",))
        asked = self.proxy.counts().get("GetItem", 0)
        box = []
        ending = threading.Thread(target=lambda: box.append(
            self.server.call("DELETE", "/v1/locks/k?reason=r", token="secret-admin", check=False)), daemon=True)
        ending.start()
        wait_until(lambda: self.proxy.counts().get("GetItem", 0) > asked, "the question to be asked")
        for _ in range(3):
            self.reload()
        ending.join(PATIENCE)
        self.assertEqual((box[0].status, box[0].json()["outcome"]), (200, "forced"))
        self.assertEqual(self.server.stop(), 0)

    def test_reloads_under_load_do_no_harm(self):
        self.proxy.plan = Plan(delay=1.0, delay_s=0.05)
        reload_under_load(self, self.server, "secret-admin", "secret-reader")


def through_a_server(case):
    """Have the case's set-up put a server before its table."""
    own = case.setUp

    def set_up():
        own()
        process = case.start("serve", "--json", "--listen", "127.0.0.1:0", env={"BELAY_STORE": case.store})
        url = json.loads(process.stdout.readline())["listening"][0]
        case.store = case.env["BELAY_STORE"] = url

    case.setUp = set_up


# They are about the events that the client itself causes, and where its own configuration puts them; here the server has
# them, and Audit shows the same of it.
LEFT_OUT = {"test_an_expired_lock_is_taken_over_with_a_warning", "test_history_is_read_from_the_configured_audit_file",
            "test_history_is_not_read_from_a_stream", "test_history_through_a_server_is_the_same",
            "test_every_event_has_the_metadata_of_its_lock",
            "test_on_a_terminal_a_wait_is_estimated_from_earlier_holds",
            "test_a_wait_is_not_estimated_from_few_holds_and_says_if_it_takes_longer",
            "test_a_free_slot_is_expected_from_the_holder_that_began_first"}
MODULES = ["test_cli"]


def load_tests(loader, standard, _pattern):
    suite = unittest.TestSuite([standard])
    every = 1 if os.environ.get("BELAY_DYNAMODB_TESTS") == "all" else 3
    cases = inherited_cases(loader, MODULES, LEFT_OUT)
    assert len(cases) > 100 or loader.testNamePatterns is not None
    for case in cases[::every]:
        through_a_server(case)
        suite.addTest(case)
    return suite


if __name__ == "__main__":
    unittest.main()
