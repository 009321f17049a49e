"""belay table creates the table that a layout needs, and does not alter one that does not fit (S4.13)."""

import json
import time
import unittest

from gate import failure
from table_support import LAYOUTS, TableCase, port_of


class Create(TableCase):
    def test_every_layout_gets_its_keys_and_its_time_to_live(self):
        for layout, (keys, ttl) in LAYOUTS.items():
            with self.subTest(layout):
                name = f"{self.table}-{layout}"
                made = self.ok("table", "create", "--json", "--store", f"dynamodb:{name}?layout={layout}").json()
                table = self.ask("DescribeTable", TableName=name)["Table"]
                self.assertEqual([key["AttributeName"] for key in table["KeySchema"]], keys)
                self.assertEqual({one["AttributeType"] for one in table["AttributeDefinitions"]}, {"S"})
                self.assertEqual(table["BillingModeSummary"]["BillingMode"], "PAY_PER_REQUEST")
                state = self.ask("DescribeTimeToLive", TableName=name)["TimeToLiveDescription"]
                self.assertEqual(state.get("AttributeName"), ttl)
                self.assertEqual((made["status"], made["fits"], made["ttl_attribute"]), ("ACTIVE", True, ttl))

    def test_doing_it_again_changes_nothing(self):
        self.ok("table", "create")
        self.gate.seen.clear()
        again = self.ok("table", "create", "--json").json()
        self.assertTrue(again["fits"])
        self.assertNotIn("CreateTable", self.gate.seen)
        self.assertNotIn("UpdateTimeToLive", self.gate.seen)

    def test_missing_features_of_a_matching_table_are_switched_on(self):
        self.make_table(["lock_key"])
        self.ok("table", "create")
        self.assertEqual(self.ask("DescribeTimeToLive", TableName=self.table)["TimeToLiveDescription"]["AttributeName"],
                         "ttl")

    def test_a_table_with_other_keys_is_refused_and_says_in_what(self):
        self.make_table(["PK", "SK"])
        result = self.fails(78, "table", "create")
        self.assertIn("PK (S, HASH), SK (S, RANGE)", result.err)
        self.assertIn("lock_key (S, HASH)", result.err)
        self.assertEqual(self.ask("DescribeTimeToLive", TableName=self.table)["TimeToLiveDescription"],
                         {"TimeToLiveStatus": "DISABLED"})

    def test_time_to_live_by_another_attribute_is_refused(self):
        self.make_table(["lock_key"], ttl="expires_at")
        self.assertIn("'expires_at', and must be on 'ttl'", self.fails(78, "table", "create").err)

    def test_a_server_without_recovery_is_a_warning(self):
        steps = self.ok("table", "create", "--json").json()["steps"]
        self.assertEqual([step["level"] for step in steps if step["name"] == "recovery"], ["warning"])

    def test_recovery_is_switched_on_once_the_service_is_ready_for_it(self):
        """Right after a table was made, AWS refuses for a moment."""
        asked = []

        def update(request):
            asked.append(request)
            return failure("ContinuousBackupsUnavailableException") if len(asked) < 3 else (200, {})

        self.gate.rules["UpdateContinuousBackups"] = update
        self.gate.rules["DescribeContinuousBackups"] = lambda request: (200, {"ContinuousBackupsDescription": {
            "PointInTimeRecoveryDescription": {"PointInTimeRecoveryStatus": "ENABLED" if len(asked) == 3 else "DISABLED"}}})
        made = self.ok("table", "create", "--json").json()
        self.assertEqual(made["recovery"], "ENABLED")
        self.assertEqual(asked[-1], {"TableName": self.table, "PointInTimeRecoverySpecification": {
            "PointInTimeRecoveryEnabled": True}})

    def creating(self, times):
        """The table shows as CREATING so many times."""
        left = [times]

        def describe(request):
            if self.table not in self.ask("ListTables")["TableNames"]:
                return None
            left[0] -= 1
            if left[0] < 0:
                return None
            table = self.ask("DescribeTable", TableName=self.table)["Table"]
            return 200, {"Table": {**table, "TableStatus": "CREATING"}}

        self.gate.rules["DescribeTable"] = describe

    def test_it_waits_until_the_table_is_active(self):
        self.creating(2)
        self.assertEqual(self.ok("table", "create", "--json").json()["status"], "ACTIVE")
        self.assertLess(self.gate.seen.index("CreateTable"), self.gate.seen.index("UpdateTimeToLive"))

    def test_the_wait_is_shown_on_a_terminal(self):
        self.creating(2)
        terminal = self.terminal("table", "create")
        self.assertEqual(terminal.finish(), 0, terminal.text)
        self.assertIn("is CREATING, waited", terminal.text)

    def test_the_wait_ends(self):
        self.creating(1000)
        began = time.monotonic()
        result = self.fails(69, "table", "create", "--wait", "500ms")
        self.assertLess(time.monotonic() - began, 10)
        self.assertIn("again", result.err)

    def test_a_kms_key_can_be_chosen(self):
        requests = []
        self.gate.rules["CreateTable"] = lambda request: requests.append(request)
        self.ok("table", "create", "--kms-key", "alias/locks")
        self.assertEqual(requests[0]["SSESpecification"],
                         {"Enabled": True, "SSEType": "KMS", "KMSMasterKeyId": "alias/locks"})

    def test_a_fence_table_is_made_beside_it(self):
        url = f"{self.store}?layout=deployer&fence_table={self.table}-fence"
        made = self.ok("table", "create", "--json", "--store", url).json()
        self.assertEqual((made["fence_table"]["status"], made["fence_table"]["fits"]), ("ACTIVE", True))
        fence = self.ask("DescribeTable", TableName=f"{self.table}-fence")["Table"]
        self.assertEqual([key["AttributeName"] for key in fence["KeySchema"]], ["lock_key"])
        self.assertEqual(len(made["policy"]["Statement"][0]["Resource"]), 2)

    def test_locks_can_be_taken_in_it(self):
        for layout in ("belay", "chatops", "resource", "runvoy", "appregistry", "deployer"):
            with self.subTest(layout):
                url = f"dynamodb:{self.table}-{layout}?layout={layout}"
                self.ok("table", "create", "--store", url)
                lock = self.ok("acquire", "build-router-dev", "--ttl", "1m", "--owner-name", "me@example.org", "--json",
                               "--store", url).json()
                self.ok("release", "build-router-dev", "--id", lock["lock_id"], "--store", url)


class Policy(TableCase):
    INSIDE = {"Update": "UpdateItem", "Delete": "DeleteItem", "ConditionCheck": "ConditionCheckItem", "Put": "PutItem"}

    def use(self, url):
        """Everything that one does with locks; returns the actions that it took."""
        inside = set()

        def look(request):
            inside.update(self.INSIDE[kind] for item in request["TransactItems"] for kind in item)

        self.gate.rules["TransactWriteItems"] = look
        self.gate.seen.clear()
        store = ("--store", url)
        lock = self.ok("acquire", "k", "--json", *store).json()
        self.fails(75, "acquire", "k", "--wait", "2500ms", *store)
        self.ok("renew", "k", "--id", lock["lock_id"], "--ttl", "10m", *store)
        self.ok("status", "k", *store)
        self.ok("list", *store)
        self.ok("unlock", "k", "--force", "--yes", *store)
        self.ok("run", "--stack", "s", "--environment", "e", "--service", "v", *store, "--", "true")
        self.ok("doctor", *store)
        return (set(self.gate.seen) | inside) - {"TransactWriteItems", "DescribeTimeToLive"}

    def test_it_allows_what_the_commands_do_and_not_more(self):
        for layout in ("belay", "chatops", "deployer", "resource"):
            with self.subTest(layout):
                url = f"dynamodb:{self.table}-{layout}?layout={layout}"
                locks = self.ok("table", "create", "--json", "--store", url).json()["policy"]["Statement"][0]
                used = {f"dynamodb:{action}" for action in self.use(url)}
                # The question for the time is not signed, and takes no permission.
                self.assertEqual(used - {"dynamodb:DescribeEndpoints"}, set(locks["Action"]))


class Refused(TableCase):
    def test_an_action_that_is_denied_is_named(self):
        for action in ("CreateTable", "DescribeTable", "UpdateTimeToLive"):
            with self.subTest(action):
                self.gate.rules.clear()
                self.gate.deny(action)
                self.assertIn(f"dynamodb:{action}", self.fails(77, "table", "create").err)

    def test_details_without_permission_are_unknown(self):
        self.ok("table", "create")
        self.gate.deny("DescribeTimeToLive", "DescribeContinuousBackups")
        shown = self.ok("table", "describe", "--json").json()
        self.assertEqual((shown["ttl_status"], shown["recovery"], shown["fits"]), (None, None, True))

    def test_a_store_without_tables_is_64(self):
        self.assertIn("dynamodb:TABLE", self.fails(64, "table", "create", "--store", "sqlite:x.db").err)

    def test_an_unreachable_service_is_69(self):
        self.fails(69, "table", "describe", env={"AWS_ENDPOINT_URL": "http://127.0.0.1:9"})

    def test_an_endpoint_that_is_not_dynamodb_exits_78(self):
        self.gate.rules["DescribeTable"] = lambda request: (404, b"<html>not here</html>")
        self.assertIn("no DynamoDB", self.fails(78, "table", "describe").err)


class Describe(TableCase):
    def test_a_missing_table_exits_66_and_the_policy_is_still_shown(self):
        result = self.fails(66, "table", "describe", "--json")
        shown = json.loads(result.out)
        self.assertEqual((shown["status"], shown["fits"]), (None, False))
        self.assertEqual(shown["policy"]["Statement"][0]["Resource"],
                         [f"arn:aws:dynamodb:eu-west-1:*:table/{self.table}"])
        self.assertIn("belay table create", result.err)

    def test_a_mismatched_table_exits_78(self):
        self.make_table(["id"])
        self.assertIn("id (S, HASH)", self.fails(78, "table", "describe").err)

    def test_it_changes_nothing(self):
        self.make_table(["lock_key"])
        self.ok("table", "describe")
        self.assertEqual({name for name in self.gate.seen if not name.startswith("Describe")}, set())


class DryRun(TableCase):
    def test_it_prints_what_would_be_sent_and_sends_none_of_it(self):
        result = self.ok("table", "create", "--dry-run")
        for operation in ("CreateTable", "UpdateTimeToLive", "UpdateContinuousBackups"):
            self.assertIn(f"{operation} {{", result.out)
        self.assertIn("dynamodb:UpdateItem", result.out)
        self.assertEqual(set(self.gate.seen), {"DescribeTable"})

    def test_it_needs_no_service(self):
        result = self.ok("table", "create", "--dry-run", env={"AWS_ENDPOINT_URL": "http://127.0.0.1:9"})
        self.assertIn("CreateTable {", result.out)
        self.assertIn("cannot be looked at", result.err)

    def test_a_mismatched_table_is_reported(self):
        self.make_table(["id"])
        self.fails(78, "table", "create", "--dry-run")


class Dynalite(TableCase):
    SERVER = "dynalite"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        try:
            port_of("dynalite")
        except (ValueError, OSError) as error:
            raise unittest.SkipTest("dynalite cannot be had here") from error

    def test_a_table_is_created_on_a_server_with_few_features(self):
        self.ok("table", "create")
        found = self.doctor(0)
        self.assertEqual(found["write"][-1]["level"], "ok")
        self.assertIn("TransactWriteItems", json.dumps(found))


if __name__ == "__main__":
    unittest.main()
