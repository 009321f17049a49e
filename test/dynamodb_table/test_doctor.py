"""belay doctor on DynamoDB: what is wrong has a line of its own, and nothing stays behind."""

import shutil
import socket
import subprocess
import time
import unittest

from gate import failure
from table_support import BELAY, LAYOUTS, SECRET, TableCase

ACTIONS = {"DeleteItem": "DeleteItem", "UpdateItem": "UpdateItem", "GetItem": "GetItem",
           "BatchGetItem": "BatchGetItem", "TransactWriteItems": "ConditionCheckItem"}


class Healthy(TableCase):
    def test_a_healthy_table_passes_every_check_and_is_left_empty(self):
        self.ok("table", "create")
        found = self.doctor(0)
        for name in ("layout", "region", "endpoint", "credentials", "table", "time to live", "write", "clock",
                     "permissions"):
            self.assertEqual([one["level"] for one in found[name]], ["ok"], found[name])
        self.assertEqual(self.items(), [])
        self.assertIn("AWS_REGION", found["region"][0]["text"])
        self.assertIn("AWS_ACCESS_KEY_ID", found["credentials"][0]["text"])

    def test_every_layout_is_probed_and_left_empty(self):
        for layout in LAYOUTS:
            with self.subTest(layout):
                url = f"dynamodb:{self.table}-{layout}?layout={layout}"
                self.ok("table", "create", "--store", url)
                self.assertEqual(self.doctor(0, "--store", url)["write"][0]["level"], "ok")
                self.assertEqual(self.items(f"{self.table}-{layout}"), [])

    def test_the_locks_that_are_there_stay_as_they_are(self):
        self.ok("table", "create")
        self.ok("acquire", "deploy-api-prod")
        before = self.items()
        self.doctor(0)
        self.assertEqual(self.items(), before)

    def test_a_fence_table_is_probed_too(self):
        url = f"{self.store}?layout=deployer&fence_table={self.table}-fence"
        self.ok("table", "create", "--store", url)
        found = self.doctor(0, "--store", url)
        self.assertEqual((found["fence table"][0]["level"], found["fence write"][0]["level"]), ("ok", "ok"))
        self.assertEqual(self.items(f"{self.table}-fence"), [])

    def test_the_origin_of_credentials_and_region_is_shown_without_secrets(self):
        home = self.dir / "home" / ".aws"
        home.mkdir()
        (home / "credentials").write_text(f"[ci]\naws_access_key_id = AKIDEXAMPLE\naws_secret_access_key = {SECRET}\n")
        (home / "config").write_text("[profile ci]\nregion = eu-central-1\n")
        env = {"AWS_ACCESS_KEY_ID": None, "AWS_SECRET_ACCESS_KEY": None, "AWS_REGION": None, "AWS_PROFILE": "ci"}
        self.ok("table", "create", env=env)
        found = self.doctor(0, env=env)
        self.assertIn("profile 'ci'", found["credentials"][0]["text"])
        self.assertIn("eu-central-1", found["region"][0]["text"])


class Endpoint(TableCase):
    def test_plain_http_is_a_warning_unless_it_stays_on_this_machine(self):
        """A name that begins as a loopback address does is a host like any other."""
        env = {"AWS_ACCESS_KEY_ID": None, "AWS_SECRET_ACCESS_KEY": None}  # so nothing is sent
        for host, level in (("127.0.0.1.example", "warning"), ("127.example", "warning"), ("10.0.0.1", "warning"),
                            ("127.0.0.2", "ok"), ("[::1]", "ok"), ("localhost", "ok")):
            with self.subTest(host):
                found = self.doctor(78, env={**env, "AWS_ENDPOINT_URL": f"http://{host}:1"})
                self.assertEqual([one["level"] for one in found["endpoint"]], [level], found)
        self.assertEqual(self.gate.seen, [])


class Missing(TableCase):
    def test_no_region_is_78(self):
        found = self.doctor(78, env={"AWS_REGION": None})
        self.assertIn("AWS_REGION", found["region"][0]["advice"])
        self.assertNotIn("table", found)

    def test_no_credentials_is_78(self):
        found = self.doctor(78, env={"AWS_ACCESS_KEY_ID": None, "AWS_SECRET_ACCESS_KEY": None})
        self.assertIn("no AWS credentials", found["credentials"][0]["text"])
        self.assertEqual(self.gate.seen, [])

    def test_no_table_is_78_and_says_how_to_make_it(self):
        found = self.doctor(78)
        self.assertIn("belay table create", found["table"][0]["advice"])

    def test_a_wrong_key_schema_is_78(self):
        self.make_table(["id"])
        found = self.doctor(78)
        self.assertIn("id (S, HASH)", found["table"][0]["text"])
        self.assertNotIn("write", found)
        self.assertEqual(self.items(), [])

    def test_a_wrong_layout_is_78(self):
        self.assertIn("resorce", self.doctor(78, "--store", self.store + "?layout=resorce")["store"][-1]["text"])

    def test_time_to_live_that_is_off_is_a_warning(self):
        self.make_table(["lock_key"])
        found = self.doctor(0)
        self.assertEqual(found["time to live"][0]["level"], "warning")

    def test_time_to_live_by_the_wrong_attribute_is_78(self):
        """L2: it would remove records, and the tokens in them, too early."""
        self.make_table(["lock_key"], ttl="locked_at")
        found = self.doctor(78)
        self.assertEqual((found["time to live"][0]["level"], found["time to live"][0]["code"]), ("failed", "bad_config"))


class Denied(TableCase):
    def setUp(self):
        super().setUp()
        self.ok("table", "create")

    def test_each_action_that_is_denied_is_named_and_nothing_stays(self):
        for operation, action in ACTIONS.items():
            with self.subTest(operation):
                self.gate.rules.clear()
                self.gate.deny(operation)
                found = self.doctor(77)
                self.assertEqual(len(found["permission"]), 1, found)
                self.assertEqual((found["permission"][0]["level"], found["permission"][0]["code"]),
                                 ("failed", "not_permitted"))
                self.assertIn(f"dynamodb:{action} is not allowed", found["permission"][0]["text"])
                self.assertNotIn("permissions", found)
                self.assertEqual(self.items(), [])

    def test_all_denied_actions_are_reported_at_once(self):
        self.gate.deny(*ACTIONS, "Scan", "DescribeTable", "DescribeTimeToLive")
        found = self.doctor(77)
        self.assertEqual(len(found["permission"]), len(ACTIONS) + 3)

    def test_missing_permissions_for_reading_are_a_warning(self):
        self.gate.deny("Scan", "DescribeTable", "DescribeTimeToLive")
        found = self.doctor(0)
        self.assertEqual({one["level"] for one in found["permission"]}, {"warning"})
        self.assertEqual(found["write"][0]["level"], "ok")

    def test_keys_that_aws_does_not_know_are_77(self):
        self.gate.rules["DescribeTable"] = lambda request: failure("UnrecognizedClientException",
                                                                    "The security token is invalid.")
        found = self.doctor(77)
        self.assertIn("access key is not known", found["credentials"][-1]["text"])
        self.assertNotIn("write", found)


class Unreachable(TableCase):
    def test_a_closed_port_is_69(self):
        found = self.doctor(69, env={"AWS_ENDPOINT_URL": "http://127.0.0.1:9"})
        self.assertEqual((found["service"][0]["level"], found["service"][0]["code"]), ("failed", "unreachable"))

    def test_a_service_that_never_answers_is_69_within_seconds(self):
        silent = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(silent.close)
        began = time.monotonic()
        found = self.doctor(69, env={"AWS_ENDPOINT_URL": f"http://127.0.0.1:{silent.getsockname()[1]}"})
        self.assertLess(time.monotonic() - began, 25)
        self.assertEqual(found["service"][0]["level"], "failed")

    def test_an_answer_that_is_lost_after_the_write_leaves_nothing(self):
        self.ok("table", "create")

        def write(request):
            if not self.items():
                self.ask("UpdateItem", **request)
            return failure("InternalServerError", status=500)

        self.gate.rules["UpdateItem"] = write
        self.doctor(69)
        self.assertGreater(self.gate.seen.count("UpdateItem"), 0)
        self.assertEqual(self.items(), [])


class Clock(TableCase):
    def setUp(self):
        super().setUp()
        self.ok("table", "create")

    def test_a_clock_that_is_off_by_more_than_is_allowed_is_78(self):
        """L7: belay would refuse to lock."""
        for offset, word in ((90, "behind"), (-90, "ahead")):
            with self.subTest(offset):
                self.gate.date_offset = offset
                found = self.doctor(78)
                self.assertIn(word, found["clock"][0]["text"])
                self.assertRegex(found["clock"][0]["text"], "1m (29|30|31)s")

    def test_more_may_be_allowed(self):
        self.gate.date_offset = 90
        found = self.doctor(0, "--store", self.store + "?max_clock_skew=5m")
        self.assertEqual(found["clock"][0]["level"], "warning")

    def test_where_no_clock_is_trusted_it_is_a_warning(self):
        self.gate.date_offset = 90
        self.assertEqual(self.doctor(0, "--store", self.store + "?observe=1")["clock"][0]["level"], "warning")


class Module(TableCase):
    def test_a_program_without_its_network_module_says_so(self):
        binary = self.dir / "bin" / "belay"
        binary.parent.mkdir()
        shutil.copy(BELAY, binary)
        done = subprocess.run([str(binary), "doctor"], env=self.environment(None), cwd=self.dir, capture_output=True,
                              text=True, timeout=60, check=False)
        self.assertEqual(done.returncode, 78, done)
        self.assertIn("belay-net.so", done.stdout)


if __name__ == "__main__":
    unittest.main()
