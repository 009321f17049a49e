"""Deployment state fenced by a DynamoDB table: the table itself counts, not the text of its URL (issue 12, item 4)."""
import unittest

from dynamo_support import DynamoCase

WHERE = ("--stack", "shop", "--environment", "prod")
ELSEWHERE = "eu-west-1"


class OneTable(DynamoCase):
    def make_store(self):
        super().make_store()
        self.env["BELAY_STATE_STORE"] = f"file:{self.dir}/states"

    def deploy(self, store, **env):
        return self.belay("deploy", *WHERE, "--", "true", env={"BELAY_STORE": store, **env})

    def test_another_spelling_of_the_url_is_the_same_table(self):
        end = f"endpoint=http://127.0.0.1:{self.port}"
        for params in (f"region=us-east-1&{end}", end, f"{end}&region=us-east-1&max_clock_skew=1s"):
            result = self.deploy(f"dynamodb:{self.table}?{params}")
            self.assertEqual(result.code, 0, result)
        self.assertRegex(self.ok("state", "load", *WHERE).json()["lock"]["store"], "^dynamodb-")

    def test_the_same_url_in_another_region_is_another_table(self):
        url = f"dynamodb:{self.table}?endpoint=http://127.0.0.1:{self.port}"
        self.assertEqual(self.deploy(url).code, 0)
        self.ok("table", "create", env={"BELAY_STORE": url, "AWS_REGION": ELSEWHERE})
        result = self.deploy(url, AWS_REGION=ELSEWHERE)
        self.assertEqual(result.code, 78, result)
        self.assertIn("is fenced by", result.err)
        self.assertEqual(self.deploy(url).code, 0)

    def test_a_recreated_table_has_a_new_id(self):
        self.assertEqual(self.deploy(self.store).code, 0)
        self.drop_table()
        self.db.create(self.table, self.LAYOUT)
        self.assertEqual(self.deploy(self.store).code, 78)
        self.ok("state", "rebind", "--yes")
        self.assertEqual(self.deploy(self.store).code, 0)


if __name__ == "__main__":
    unittest.main()
