"""The cost of a lock, counted between belay and DynamoDB (S0.8: two requests per lock life)."""
import os
import sys
import threading
import time

from dynamo_support import DynamoCase, ROOT
from support import main, wait_until

sys.path.insert(0, os.path.join(ROOT, "test", "server"))
from server_support import Server  # noqa: E402


class Requests(DynamoCase):
    PROXY = True

    def setUp(self):
        super().setUp()
        self.db("ListTables")
        self.proxy.reset()

    def counted(self, *args, code=0):
        """The requests of one command."""
        self.proxy.reset()
        result = self.belay(*args)
        self.assertEqual(result.code, code, result)
        return self.proxy.counts()

    def acquired(self, key, *args):
        lock = self.acquire(key, *args)
        self.proxy.reset()
        return lock

    def expire(self, key):
        """Expire the lease without waiting."""
        past = int(time.time() * 1000) - 60000
        self.change(key, expires_at={"N": str(past)})

    def test_a_free_lock_acquired_and_released_costs_two_requests(self):
        lock = self.acquire("k")
        self.assertEqual(self.proxy.counts(), {"UpdateItem": 1})
        self.ok("release", "k", "--id", lock["lock_id"])
        self.assertEqual(self.proxy.counts(), {"UpdateItem": 2})

    MODES = (["--shared"], ["--slots", "3"])

    def test_a_free_shared_lock_or_slot_costs_two_requests(self):
        for mode in self.MODES:
            with self.subTest(mode):
                self.assertEqual(self.counted("run", *mode, "k" + mode[0], "--", "true"), {"UpdateItem": 2})

    def test_a_shared_lock_or_slot_beside_others_costs_three_requests(self):
        for mode in self.MODES:
            with self.subTest(mode):
                self.acquire("k" + mode[0], *mode)
                self.assertEqual(self.counted("run", *mode, "k" + mode[0], "--", "true"), {"UpdateItem": 3})

    def test_a_process_that_does_not_know_the_mode_needs_one_request_more(self):
        for mode in self.MODES:
            with self.subTest(mode):
                lock = self.acquired("k" + mode[0], *mode)
                self.assertEqual(self.counted("release", "k" + mode[0], "--id", lock["lock_id"]), {"UpdateItem": 2})

    def test_before_its_first_deadline_a_process_asks_what_time_it_is(self):
        """L7: by a request that is refused, and so costs nothing; releasing needs no clock."""
        lock = self.acquire("k")
        self.assertEqual((self.proxy.dates, self.proxy.counts()), (1, {"UpdateItem": 1}))
        self.ok("release", "k", "--id", lock["lock_id"])
        self.assertEqual((self.proxy.dates, self.proxy.counts()), (1, {"UpdateItem": 2}))
        self.proxy.reset()
        self.ok("run", "--ttl", "8s", "--heartbeat", "1s", "k", "--", "sleep", "2.5")
        self.assertEqual(self.proxy.dates, 1)  # once for all heartbeats
        self.proxy.reset()
        self.ok("run", "--stack", "s", "--environment", "e", "--service", "v", "--", "true")
        self.assertEqual(self.proxy.dates, 1)

    def test_a_process_that_knows_the_time_does_not_ask_again(self):
        """A renewal without a ttl reads the lock first."""
        lock = self.acquired("k")
        self.assertEqual(self.counted("renew", "k", "--id", lock["lock_id"]), {"GetItem": 1, "UpdateItem": 1})
        self.assertEqual(self.proxy.dates, 0)
        self.counted("status", "k")
        self.counted("list")
        self.assertEqual(self.proxy.dates, 0)

    def test_a_second_acquire_on_an_existing_record_costs_the_same(self):
        for _ in range(2):
            self.proxy.reset()
            lock = self.acquire("k")
            self.ok("release", "k", "--id", lock["lock_id"])
            self.assertEqual(self.proxy.counts(), {"UpdateItem": 2})

    def test_a_command_under_a_lock_costs_two_requests(self):
        self.assertEqual(self.counted("run", "k", "--", "true"), {"UpdateItem": 2})
        self.assertEqual(self.proxy.connections, 1)  # kept between the two

    def test_a_refusal_costs_one_request(self):
        self.acquired("k")
        self.assertEqual(self.counted("acquire", "k", code=75), {"UpdateItem": 1})

    def test_the_refusal_brings_the_holder_along(self):
        self.acquired("k", "--owner", "execution-abc123")
        self.assertEqual(self.fails(75, "acquire", "k", "--json").error()["lock"]["locked_by"], "execution-abc123")
        self.assertEqual(self.proxy.counts(), {"UpdateItem": 1})

    def test_taking_over_an_expired_lock_costs_two_requests(self):
        first = self.acquired("k")
        self.expire("k")
        lock = self.acquire("k")
        self.assertEqual(self.proxy.counts(), {"UpdateItem": 2})
        self.assertGreater(lock["token"], first["token"])

    def test_status_costs_one_request(self):
        self.acquired("k")
        self.assertEqual(self.counted("status", "k"), {"GetItem": 1})
        self.assertEqual(self.counted("status", "nix", code=66), {"GetItem": 1})

    def test_a_renewal_of_a_running_command_costs_one_request(self):
        self.ok("run", "--ttl", "8s", "--heartbeat", "1s", "k", "--", "sleep", "3.5")
        self.assertEqual(self.proxy.counts().keys(), {"UpdateItem"})
        self.assertTrue(4 <= self.proxy.counts()["UpdateItem"] <= 6, self.proxy.counts())

    def test_a_renewal_from_the_shell_reads_the_lock_first(self):
        lock = self.acquired("k")
        self.assertEqual(self.counted("renew", "k", "--id", lock["lock_id"]), {"GetItem": 1, "UpdateItem": 1})

    def test_a_release_by_another_client_costs_one_request(self):
        self.acquired("k")
        self.assertEqual(self.counted("release", "k", "--id", "other", code=77), {"UpdateItem": 1})

    def test_a_retry_of_an_acquisition_costs_one_request(self):
        """L5"""
        self.acquired("k", "--id", "job-7")
        self.assertEqual(self.counted("acquire", "k", "--id", "job-7"), {"UpdateItem": 1})

    def test_a_list_costs_one_request_and_is_consistent(self):
        self.acquired("k")
        self.assertEqual(self.counted("list"), {"Scan": 1})
        self.assertIs(self.proxy.requests("Scan")[0].request["ConsistentRead"], True)

    def test_a_lock_below_a_stack_is_one_transaction_each_way(self):
        lock = self.ok("acquire", "--json", "--stack", "s", "--environment", "e", "--service", "v").json()
        self.assertEqual(self.proxy.counts().get("TransactWriteItems"), 1, self.proxy.counts())
        self.assertLessEqual(sum(self.proxy.counts().values()), 2)  # and one reading for the token
        self.assertIn("ClientRequestToken", self.proxy.requests("TransactWriteItems")[0].request)
        counts = self.counted("release", lock["key"], "--id", lock["lock_id"])
        self.assertEqual((counts.get("TransactWriteItems"), sum(counts.values()) <= 2), (1, True), counts)

    def test_every_name_in_an_expression_is_aliased(self):
        """Reserved words bite: owner, ttl, token."""
        lock = self.acquire("k")
        self.ok("renew", "k", "--id", lock["lock_id"])
        self.fails(75, "acquire", "k")
        self.ok("status", "k")
        self.ok("list")
        self.ok("release", "k", "--id", lock["lock_id"])
        words = {"attribute_exists", "attribute_not_exists", "if_not_exists", "begins_with", "contains", "size", "SET",
                 "REMOVE", "ADD", "DELETE", "AND", "OR", "NOT", "IN", "BETWEEN", "attribute_type"}
        seen = 0
        for one in self.proxy.requests():
            for name, text in one.request.items():
                if name.endswith("Expression"):
                    seen += 1
                    for mark in "(),=<>+-":
                        text = text.replace(mark, " ")
                    bare = [word for word in text.split() if word[0] not in "#:" and word not in words]
                    self.assertEqual(bare, [], one.request)
        self.assertGreater(seen, 5)

    def test_waiting_is_cheap(self):
        """S0.8: one look in about two seconds, not a storm."""
        self.acquired("k", "--ttl", "10m")
        self.proxy.reset()
        self.fails(75, "acquire", "k", "--wait", "8s")
        total = sum(self.proxy.counts().values())
        self.assertGreaterEqual(total, 3, self.proxy.counts())  # the try, the ticket, its end
        self.assertLessEqual(total, 12, self.proxy.counts())


class Units:
    """The units that AWS charges: the table of docs/stores/dynamodb.md."""

    PROXY = True

    def charged(self, *args):
        """The units of one command, (write, read); and what it printed."""
        self.proxy.reset()
        result = self.ok(*args)
        return self.proxy.units(), result

    def test_costs_are_those_of_the_docs(self):
        taken, lock = self.charged("acquire", "--json", "k")
        given, _ = self.charged("release", "k", "--id", lock.json()["lock_id"])
        self.assertEqual((taken, given), self.PAIR)


class UnitsBelay(Units, DynamoCase):
    PAIR = ((1, 0), (1, 0))

    def test_a_heartbeat_and_a_read_cost_the_documented_units(self):
        lock = self.acquire("k")
        self.assertEqual(self.charged("renew", "k", "--id", lock["lock_id"], "--ttl", "5m")[0], (1, 0))
        self.assertEqual(self.charged("status", "k")[0], (0, 1))
        self.proxy.reset()
        self.fails(75, "acquire", "k")
        self.assertEqual(self.proxy.units(), (1, 0))

    def test_a_key_with_an_ancestor_costs_the_documented_units(self):
        args = ("--stack", "s", "--environment", "e", "--service", "v")
        self.ok("run", *args, "--", "true")
        taken, lock = self.charged("acquire", "--json", *args)
        given, _ = self.charged("release", *args, "--id", lock.json()["lock_id"])
        self.assertEqual((taken, given), ((4, 2), (4, 2)))


class UnitsDeployer(Units, DynamoCase):
    LAYOUT = "deployer"
    PAIR = ((4, 0), (1, 0))


class UnitsChatOps(Units, DynamoCase):
    LAYOUT = "chatops"
    PAIR = ((4, 0), (1, 0))


class UnitsFenced(Units, DynamoCase):
    LAYOUT = "deployer"
    PAIR = ((6, 3), (1, 0))

    def make_store(self):
        super().make_store()
        self.db.create(f"{self.table}-fence")
        self.addCleanup(self.db.ask, "DeleteTable", {"TableName": f"{self.table}-fence"})
        self.store = self.env["BELAY_STORE"] = self.url(f"fence_table={self.table}-fence")


class SharedWaiting(DynamoCase):
    """Waiters of one process share one poller: a server on DynamoDB and its waiters."""

    PROXY = True
    SECONDS = 12

    def reads_of_waiters(self, keys):
        """Reads per second while these wait, once they are in the queue."""
        server = Server(self)

        def wait(key):
            body = {"locked_by": "waiter", "ttl_ms": 60000, "wait_ms": 1000 * (self.SECONDS + 60)}
            server.call("POST", f"/v1/locks/{key}/acquire", body, check=False)

        def in_line(key):
            return len(self.item(key).get("waiting", {"SS": []})["SS"])
        threads = [threading.Thread(target=wait, args=(key,), daemon=True) for key in keys]
        for thread in threads:
            thread.start()
        wait_until(lambda: all(in_line(key) == keys.count(key) for key in set(keys)), patience=60)
        time.sleep(2)
        self.proxy.reset()
        began = time.monotonic()
        time.sleep(self.SECONDS)
        rate = sum(self.proxy.counts().get(name, 0) for name in ("GetItem", "BatchGetItem")) / (time.monotonic() - began)
        for lock in self.held.values():
            self.ok("release", lock["key"], "--id", lock["lock_id"])
        server.process.terminate()
        server.process.wait(30)
        for thread in threads:
            thread.join(30)
        return rate

    def test_eight_waiters_read_as_often_as_one(self):
        for keys in (["k"] * 8, [f"k{n}" for n in range(8)]):
            with self.subTest(keys=keys):
                self.held = {key: self.acquire(key, "--ttl", "10m") for key in set(keys)}
                # A single waiter reads every 1.5 to 1.9 s, and sometimes when it retries.
                rate = self.reads_of_waiters(keys)
                self.assertTrue(0.2 < rate < 2.0, rate)


class Hierarchy(DynamoCase):
    """Intents on an ancestor: one is put while another is dropped, and dead clients leave none (S4.5)."""

    PROXY = True
    SERVICE = ("--stack", "s", "--environment", "e", "--service", "v")

    def expire(self, lock):
        past = {"N": str(int(time.time() * 1000) - 60000)}
        self.change(lock["key"], expires_at=past)
        name = f"intent#{lock['lock_id']}"
        intent = self.item("stack:s:env:e")[name]["M"]
        self.change("stack:s:env:e", **{name: {"M": {**intent, "expires_at": past}}})

    def test_an_expired_lock_below_a_stack_is_taken_over(self):
        """L4"""
        first = self.ok("acquire", "--json", *self.SERVICE).json()
        self.expire(first)
        self.proxy.reset()
        second = self.ok("acquire", "--json", *self.SERVICE).json()
        self.assertGreater(second["token"], first["token"])
        self.assertEqual(self.item("stack:s:env:e")["intents"], {"SS": [second["lock_id"]]})
        self.assertNotIn(f"intent#{first['lock_id']}", self.item("stack:s:env:e"))
        self.fails(75, "acquire", "stack:s:env:e")
        self.ok("release", second["key"], "--id", second["lock_id"])
        self.assertNotIn("intents", self.item("stack:s:env:e"))
        self.ok("acquire", "stack:s:env:e")

    def test_an_adopted_lock_below_a_stack_leaves_nothing_behind(self):
        first = self.ok("acquire", "--json", *self.SERVICE).json()
        self.ok("run", "--adopt", first["lock_id"], first["key"], "--", "true")
        # The old id may stay in the set until the next read.
        self.assertNotIn(f"intent#{first['lock_id']}", self.item("stack:s:env:e"))
        lock = self.ok("acquire", "--json", "stack:s:env:e").json()
        self.assertNotIn("intents", self.item("stack:s:env:e"))
        self.ok("release", "stack:s:env:e", "--id", lock["lock_id"])
        self.proxy.reset()
        lock = self.ok("acquire", "--json", *self.SERVICE).json()
        self.assertLessEqual(sum(self.proxy.counts().values()), 2, self.proxy.counts())
        self.assertEqual(self.item("stack:s:env:e")["intents"], {"SS": [lock["lock_id"]]})


class LostReleases:
    """L5: a release whose answer was lost is never reported as a loss, whatever holder follows."""

    PROXY = True
    KNOWS = 74  # what a release ends with, if the next one has the lock already

    def rival(self, *args):
        """Straight to the server, past the proxy."""
        return self.ok(*args, env={"BELAY_STORE": self.url(port=self.port)})

    def take(self):
        self.rival("acquire", "k", "--id", "the-next")

    def give_back(self):
        self.rival("release", "k", "--id", "the-next")

    def test_a_lost_release_is_done_if_no_client_took_the_lock(self):
        for harm in ("cut_after", "error_after", "cut_before", "error_before", "throttle"):
            with self.subTest(harm):
                lock = self.acquire("k")
                self.proxy.next(harm)
                self.ok("release", "k", "--id", lock["lock_id"])
                self.acquire("k", "--id", harm)
                self.ok("release", "k", "--id", harm)

    def test_a_lost_release_is_done_or_unknown_if_the_next_client_has_the_lock(self):
        for harm in ("cut_after", "error_after"):
            with self.subTest(harm):
                lock = self.acquire("k")
                self.proxy.next(harm)
                self.proxy.meanwhile(self.take)
                result = self.belay("release", "k", "--id", lock["lock_id"], "--json")
                self.assertEqual(result.code, self.KNOWS, result)
                if self.KNOWS == 0:
                    shown = result.json()
                    self.assertEqual((shown["lock_id"], shown["status"], shown["outcome"]),
                                     (lock["lock_id"], "released", "completed"))
                else:
                    self.assertIn("whether it was released is not known", result.err)
                self.assertEqual(self.ok("status", "k", "--json").json()["lock_id"], "the-next")
                self.give_back()

    def test_a_lost_release_does_not_make_a_command_fail(self):
        for harm in ("cut_after", "error_after"):
            with self.subTest(harm):
                self.proxy.next(None, harm)
                self.proxy.meanwhile(self.take)
                result = self.fails(3, "run", "k", "--", "sh", "-c", "exit 3")
                if self.KNOWS == 0:
                    self.assertEqual(result.err, "")
                else:
                    self.assertIn("whether it was released is not known", result.err)
                self.give_back()

    def test_a_release_that_did_not_happen_is_not_reported_as_success(self):
        """It was forced before, and the next client has it: a lost answer must not be taken for our release."""
        def force_and_take():
            self.rival("unlock", "k", "--force", "--yes")
            self.take()
        lock = self.acquire("k")
        self.proxy.next("cut_before")
        self.proxy.meanwhile(force_and_take)
        self.fails(74, "release", "k", "--id", lock["lock_id"])
        self.give_back()

    def test_a_lost_forced_release_is_unknown_if_the_next_client_has_the_lock(self):
        self.acquire("k")
        self.proxy.next(None, "cut_after")  # the look, the write
        self.proxy.meanwhile(self.take)
        self.fails(74, "unlock", "k", "--force", "--yes")
        self.assertEqual(self.ok("status", "k", "--json").json()["lock_id"], "the-next")


class LostReleasesBelay(LostReleases, DynamoCase):
    KNOWS = 0

    def test_releasing_an_unknown_lock_finds_nothing(self):
        """A release keeps its record here: without a record there was nothing to release."""
        for harm in ("cut_after", "error_after"):
            with self.subTest(harm):
                self.proxy.next(harm)
                self.assertIn(self.belay("release", "ghost", "--id", "x").code, (66, 77))
                self.fails(66, "status", "ghost")


class LostReleasesChatOps(LostReleases, DynamoCase):
    LAYOUT = "chatops"


class LostReleasesResource(LostReleases, DynamoCase):
    LAYOUT = "resource"


class LostReleasesRunvoy(LostReleases, DynamoCase):
    LAYOUT = "runvoy"


class LostReleasesAppRegistry(LostReleases, DynamoCase):
    LAYOUT = "appregistry"


class LostReleasesDeployer(LostReleases, DynamoCase):
    LAYOUT = "deployer"


class Losses(DynamoCase):
    """L5: what went wrong in between is found out, and never done twice."""

    PROXY = True

    def test_an_acquisition_whose_answer_was_lost_is_found_and_not_repeated(self):
        for harm in ("cut_after", "error_after"):
            with self.subTest(harm):
                self.proxy.reset()
                self.proxy.next(harm)
                lock = self.acquire(harm)
                self.assertEqual(self.item(harm)["lock_id"], {"S": lock["lock_id"]})
                self.assertEqual(int(self.item(harm)["token"]["N"]), lock["token"])
                self.assertEqual(self.proxy.counts(), {"UpdateItem": 1, "GetItem": 1})  # it looks, and writes no more

    def test_a_request_that_surely_failed_is_sent_again(self):
        for harm in ("cut_before", "error_before", "throttle"):
            with self.subTest(harm):
                self.proxy.reset()
                self.proxy.next(harm)
                lock = self.acquire(harm)
                self.assertEqual(self.item(harm)["lock_id"], {"S": lock["lock_id"]})
                self.assertEqual(self.proxy.counts()["UpdateItem"], 2)  # it may look in between

    def test_a_release_whose_answer_was_lost_is_done(self):
        for harm in ("cut_after", "error_after", "cut_before", "error_before", "throttle"):
            with self.subTest(harm):
                lock = self.acquire("k")
                self.proxy.next(harm)
                self.ok("release", "k", "--id", lock["lock_id"])
                self.assertEqual(self.ok("status", "k", "--json").json()["status"], "released")

    def test_a_command_whose_release_was_lost_keeps_its_exit_code_and_event(self):
        """L9: the events of a lost answer are reported when its outcome is found."""
        config = self.dir / "audit.yaml"
        config.write_text(f"audit: {{file: '{self.dir}/audit.jsonl'}}\n")
        self.env["BELAY_CONFIG"] = str(config)
        for harm in ("cut_after", "error_after"):
            with self.subTest(harm):
                self.proxy.next(harm, None, harm)  # the acquisition, its look, the release
                self.fails(3, "run", harm, "--", "sh", "-c", "exit 3")
                self.assertEqual(self.events(harm), ["lock.acquired", "lock.released"])

    def test_a_wait_whose_end_event_was_lost_is_recorded_as_ended(self):
        """L9"""
        config = self.dir / "audit.yaml"
        config.write_text(f"audit: {{file: '{self.dir}/audit.jsonl'}}\n")
        self.env["BELAY_CONFIG"] = str(config)
        first = self.acquire("k")
        waiter = self.start("acquire", "--wait", "1m", "k")
        wait_until(lambda: "waiting" in self.item("k"))
        self.proxy.plan.operations, self.proxy.plan.cut_after, self.proxy.plan.in_a_row = ("UpdateItem",), 1.0, 1
        self.ok("release", "k", "--id", first["lock_id"], env={"BELAY_STORE": self.url(port=self.port)})
        _, err = waiter.communicate(timeout=60)
        self.assertEqual(waiter.returncode, 0, err)
        self.assertEqual(self.events("k"), ["lock.acquired", "wait.began", "lock.released", "wait.ended", "lock.acquired"])

    def test_a_renewal_whose_answer_was_lost_is_done(self):
        lock = self.acquire("k", "--ttl", "1m")
        for harm in ("cut_after", "error_after", "cut_before", "error_before", "throttle"):
            with self.subTest(harm):
                self.proxy.next(harm)
                self.ok("renew", "k", "--id", lock["lock_id"], "--ttl", "10m")
        self.assertEqual(self.ok("status", "k", "--json").json()["ttl_ms"], 600000)

    def test_a_take_over_whose_answer_was_lost_is_found(self):
        for harm in ("cut_after", "error_after", "cut_before", "error_before", "throttle"):
            with self.subTest(harm):
                first = self.acquire(harm)
                self.change(harm, expires_at={"N": str(int(time.time() * 1000) - 60000)})
                self.proxy.next(None, harm)
                lock = self.acquire(harm)
                self.assertGreater(lock["token"], first["token"])
                self.assertEqual(self.item(harm)["lock_id"], {"S": lock["lock_id"]})

    def test_a_hierarchy_whose_answer_was_lost_is_found(self):
        for harm in ("cut_after", "error_after", "cut_before", "error_before", "throttle"):
            with self.subTest(harm):
                self.proxy.next(harm)
                args = ("--stack", harm.replace("_", "-"), "--environment", "e")
                lock = self.ok("acquire", "--json", *args, "--service", "v").json()
                self.assertEqual(self.item(lock["key"])["lock_id"], {"S": lock["lock_id"]})
                self.fails(75, "acquire", *args)
                self.proxy.next(harm)
                self.ok("release", lock["key"], "--id", lock["lock_id"])
                self.ok("acquire", *args)

    def test_an_outcome_that_stays_unknown_is_reported_as_unknown(self):
        """L5: never as failed, never as held by another client; and a retry with the same id finds out."""
        self.proxy.plan.cut_after = 1.0
        result = self.fails(74, "acquire", "k", "--id", "job-7")
        self.assertEqual(len(result.err.splitlines()[0].split("\n")), 1)
        self.proxy.plan.cut_after = 0.0
        self.assertEqual(self.acquire("k", "--id", "job-7")["lock_id"], "job-7")

    def test_a_request_that_surely_failed_is_not_unknown(self):
        self.proxy.plan.throttle = 1.0
        self.fails(69, "acquire", "k")
        self.proxy.plan.throttle = 0.0
        self.acquire("k")

    def test_a_server_that_never_answers_is_given_up(self):
        """Within seconds, and with a line that says whether it may have happened or surely did not."""
        self.proxy.plan.drop = 1.0
        for code, command in ((74, ["acquire", "k"]), (74, ["acquire", "k", "--wait", "2s"]), (69, ["status", "k"]),
                              (74, ["release", "k", "--id", "x"]), (74, ["run", "k", "--", "true"])):
            with self.subTest(command):
                self.proxy.reset()
                began = time.monotonic()
                result = self.fails(code, *command)
                self.assertLess(time.monotonic() - began, 25)  # some 7 s
                self.assertIn(f"no answer from 127.0.0.1:{self.proxy.port}", result.err.splitlines()[0])
                self.assertLessEqual(sum(self.proxy.counts().values()), 4)

    def test_a_heartbeat_that_is_never_answered_leaves_time_for_the_next(self):
        """L6: an answer is waited for no longer than a quarter of the lease."""
        process = self.start("run", "--ttl", "12s", "--heartbeat", "1s", "k", "--", "sleep", "14")
        wait_until(lambda: self.item("k"))
        self.proxy.next(None, "drop", None, "drop")
        _, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 0, err)
        self.assertEqual(self.proxy.harmed, {"drop": 2})

    def test_a_slow_server_is_waited_for(self):
        self.proxy.plan.delay, self.proxy.plan.delay_s = 1.0, 1.0
        self.acquire("k")
        self.assertEqual(self.proxy.counts(), {"UpdateItem": 1})

    def test_a_heartbeat_survives_a_bad_minute(self):
        process = self.start("run", "--ttl", "20s", "--heartbeat", "1s", "k", "--", "sleep", "8")
        wait_until(lambda: self.item("k"))
        self.proxy.next("cut_after", "throttle", "error_before", "cut_before", "error_after")
        _, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 0, err)


if __name__ == "__main__":
    main()
