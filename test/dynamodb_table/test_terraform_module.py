"""deploy/terraform/aws is what belay itself would create (S4.13), in names that the provider has."""

import os
import pathlib
import re
import shutil
import subprocess
import unittest

from table_support import LAYOUTS, TableCase

MODULE = pathlib.Path(__file__).resolve().parents[2] / "deploy/terraform/aws"

# Arguments and blocks of the resources, from the documentation of the AWS provider (website/docs/r), read on 2026-11-17
# (aws_s3_bucket_versioning and aws_s3_bucket_policy: from public modules that use them).
# The provider itself cannot be fetched where the tests run, so 'terraform validate' stops before it knows them.
COMMON = {"count", "depends_on", "for_each", "dynamic", "content"}
SCHEMA = {
    "aws_dynamodb_table": {"name", "billing_mode", "hash_key", "range_key", "deletion_protection_enabled", "tags", "attribute", "type", "ttl",
                           "attribute_name", "enabled", "point_in_time_recovery", "server_side_encryption", "kms_key_arn"},
    "aws_s3_bucket": {"bucket", "tags"},
    "aws_s3_bucket_versioning": {"bucket", "versioning_configuration", "status"},
    "aws_s3_bucket_server_side_encryption_configuration": {"bucket", "rule", "bucket_key_enabled", "apply_server_side_encryption_by_default",
                                                            "sse_algorithm", "kms_master_key_id"},
    "aws_s3_bucket_public_access_block": {"bucket", "block_public_acls", "block_public_policy", "ignore_public_acls", "restrict_public_buckets"},
    "aws_s3_bucket_policy": {"bucket", "policy"},
    "aws_s3_bucket_lifecycle_configuration": {"bucket", "rule", "id", "status", "filter", "prefix", "noncurrent_version_expiration",
                                              "noncurrent_days", "abort_incomplete_multipart_upload", "days_after_initiation"},
    "aws_iam_policy": {"name_prefix", "description", "policy"},
}


def source():
    return "\n".join(path.read_text(encoding="utf-8") for path in sorted(MODULE.glob("*.tf")))


def blocks(kind):
    """(type, name, body) of the blocks at the left margin, which 'terraform fmt' keeps there."""
    return re.findall(rf'^{kind} "([^"]+)"(?: "([^"]+)")? \{{\n(.*?)^\}}', source(), re.M | re.S)


def resource(kind, name):
    (body,) = [body for one, called, body in blocks("resource") if (one, called) == (kind, name)]
    return body


class Module(TableCase):
    def test_each_layout_has_the_keys_and_the_time_to_live_that_belay_creates(self):
        """LAYOUTS is checked against real tables in test_table.py."""
        rows = re.findall(r'^    (\w+)\s+= \{ keys = \[([^\]]*)\], ttl = ("\w+"|null) \}$', source(), re.M)
        found = {name: (re.findall(r'"(\w+)"', keys), None if ttl == "null" else ttl.strip('"')) for name, keys, ttl in rows}
        self.assertEqual(found, LAYOUTS)
        (allowed,) = re.findall(r"contains\(\[([^\]]*)\], var.layout\)", source())
        self.assertEqual(set(re.findall(r'"(\w+)"', allowed)), set(LAYOUTS))

    def test_the_policy_is_the_one_that_belay_prints(self):
        self.make_table(["lock_key"], ttl="ttl")
        locks, _ = self.ok("table", "describe", "--json").json()["policy"]["Statement"]
        body = resource("aws_iam_policy", "locks")
        (actions,) = re.findall(r"lock_actions = \[(.*?)\]", source(), re.S)
        self.assertEqual(re.findall(r'"([^"]+)"', actions), locks["Action"])
        self.assertRegex(body, rf'Sid\s+= "{locks["Sid"]}"')
        self.assertIn("Resource = [aws_dynamodb_table.locks.arn]", body)
        s3 = (MODULE.parents[2] / "docs/stores/s3.md").read_text(encoding="utf-8")
        for action in re.findall(r'"(s3:\w+)"', resource("aws_iam_policy", "state")):
            self.assertIn(f"`{action}`", s3)

    def test_the_table_and_the_bucket_are_protected(self):
        table = resource("aws_dynamodb_table", "locks")
        for text in ('billing_mode                = "PAY_PER_REQUEST"', "deletion_protection_enabled = var.deletion_protection",
                     "point_in_time_recovery {\n    enabled = true", "attribute_name = ttl.value"):
            self.assertIn(text, table)
        self.assertIn('status = "Enabled"', resource("aws_s3_bucket_versioning", "state"))
        self.assertEqual(len(re.findall(r"= true$", resource("aws_s3_bucket_public_access_block", "state"), re.M)), 4)
        policy = resource("aws_s3_bucket_policy", "state")
        self.assertIn('"Deny"', policy)
        self.assertIn('"aws:SecureTransport" = "false"', policy)
        lifecycle = resource("aws_s3_bucket_lifecycle_configuration", "state")
        self.assertIn('prefix = var.state_prefix == "" ? "" : "${var.state_prefix}/"', lifecycle)
        self.assertNotIn("*", lifecycle)  # S3 takes a prefix literally

    def test_every_argument_is_one_that_the_provider_has(self):
        seen = 0
        for kind, name, body in blocks("resource"):
            body = re.sub(r"jsonencode\(\{.*?\n  \}\)", "0", body, flags=re.S)
            words = set(re.findall(r"^ +(\w+)\s+(?:=|\{)", body, re.M)) | set(re.findall(r'^ +dynamic "(\w+)"', body, re.M))
            self.assertLessEqual(words, SCHEMA[kind] | COMMON, f"{kind}.{name}")
            seen += len(words)
        self.assertGreater(seen, 30)
        self.assertEqual({kind for kind, _, _ in blocks("resource")}, set(SCHEMA))

    def test_every_variable_and_reference_exists_and_is_described(self):
        declared = {name for name, _, _ in blocks("variable")}
        used = set(re.findall(r"\bvar\.(\w+)", source()))
        self.assertEqual(declared, used)
        for kind in ("variable", "output"):
            for name, _, body in blocks(kind):
                self.assertIn("description = ", re.sub(" +", " ", body), name)
        resources = {f"{kind}.{name}" for kind, name, _ in blocks("resource")}
        self.assertLessEqual(set(re.findall(r"\b(aws_\w+\.\w+)", source())), resources)

    def test_each_example_gives_the_module_what_it_needs(self):
        declared = {name for name, _, _ in blocks("variable")}
        names = set()
        for path in MODULE.glob("examples/*/main.tf"):
            text = path.read_text(encoding="utf-8")
            given = dict(re.findall(r'^  (\w+)\s+= "([^"]*)"$', text, re.M))
            self.assertEqual(given.pop("source"), "../..")
            self.assertIn("table_name", given)
            self.assertLessEqual(set(given), declared, path)
            names.add(given["layout"])
        self.assertLessEqual({"chatops", "resource", "runvoy", "appregistry", "deployer"}, names)

    @unittest.skipUnless(shutil.which("terraform"), "no terraform here")
    def test_terraform_accepts_the_form(self):
        env = {**os.environ, "CHECKPOINT_DISABLE": "1", "TF_CLI_CONFIG_FILE": os.devnull}
        done = subprocess.run(["terraform", "fmt", "-check", "-recursive", "-diff", str(MODULE.parents[1])], env=env, text=True,
                              capture_output=True, timeout=60, check=False)
        self.assertEqual((done.returncode, done.stdout), (0, ""), done.stderr)


if __name__ == "__main__":
    unittest.main()
