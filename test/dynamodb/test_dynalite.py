"""dynalite: a server without transactions, and whose refusals bring no item back (issue 3, item 2)."""
import time

from dynamo_support import DynamoCase
from support import LOCK_FIELDS, main, wait_until


class Dynalite(DynamoCase):
    SERVER = "dynalite"
    PROXY = True

    def test_single_locks_work(self):
        lock = self.acquire("k", "--owner", "execution-abc123", "--meta", "a=b")
        self.assertEqual(list(lock), LOCK_FIELDS)
        error = self.fails(75, "acquire", "k", "--json").error()
        self.assertEqual(error["lock"]["locked_by"], "execution-abc123")
        self.fails(77, "release", "k", "--id", "other")
        self.ok("renew", "k", "--id", lock["lock_id"], "--ttl", "1h")
        self.assertEqual(self.ok("status", "k", "--json").json()["ttl_ms"], 3600000)
        self.assertEqual([one["key"] for one in self.ok("list", "--json").json()["locks"]], ["k"])
        self.ok("release", "k", "--id", lock["lock_id"])
        self.assertGreater(self.acquire("k")["token"], lock["token"])
        self.ok("unlock", "k", "--force", "--yes")
        self.assertEqual(self.ok("run", "k", "--", "echo", "ran").out, "ran\n")

    def test_a_refusal_costs_one_more_read(self):
        self.acquire("k")
        self.proxy.reset()
        self.fails(75, "acquire", "k")
        self.assertEqual(self.proxy.counts(), {"UpdateItem": 1, "GetItem": 1})

    def test_an_expired_lock_is_taken_over(self):
        first = self.acquire("k")
        self.change("k", expires_at={"N": str(int(time.time() * 1000) - 60000)})
        self.assertGreater(self.acquire("k")["token"], first["token"])

    def test_a_lost_answer_is_found(self):
        """L5"""
        for harm in ("cut_after", "error_after", "cut_before", "error_before", "throttle"):
            self.proxy.next(harm)
            lock = self.acquire(harm)
            self.assertEqual(self.item(harm)["lock_id"], {"S": lock["lock_id"]})

    def test_waiting_works(self):
        lock = self.acquire("k")
        waiter = self.start("acquire", "k", "--wait", "1m", "--json")
        wait_until(lambda: "Waiting:" in self.ok("status", "k").out)
        self.ok("release", "k", "--id", lock["lock_id"])
        _, err = waiter.communicate(timeout=20)
        self.assertEqual(waiter.returncode, 0, err)

    def test_a_hierarchy_says_what_is_missing(self):
        result = self.belay("acquire", "--stack", "s", "--environment", "e", "--service", "v")
        self.assertIn(result.code, (69, 78), result)
        self.assertEqual(len(result.err.splitlines()), 1, result)
        self.assertRegex(result.err, r"several keys|TransactWriteItems|transaction")
        self.assertEqual(self.db.items(self.table), [])


if __name__ == "__main__":
    main()
