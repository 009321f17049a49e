"""Shared by the tests of tables and of the doctor on DynamoDB: DynamoDB Local, and a gate before it."""

import atexit
import itertools
import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(ROOT / "test" / "cli"), str(HERE)]

from gate import Gate  # noqa: E402
from support import BELAY, BelayCase  # noqa: E402, F401

SECRET = "a-secret-that-nobody-may-see"
LAYOUTS = {  # the keys and the attribute of time to live that each must have
    "belay": (["lock_key"], "ttl"), "chatops": (["lockKey"], "ttl"), "resource": (["PK", "SK"], "TTL"),
    "runvoy": (["lock_name"], "expires_at"), "appregistry": (["app_name"], "ttl"),
    "deployer": (["lockKey"], "expiresAt"), "terraform": (["LockID"], None), "awslabs": (["key"], None),
    "dynamolock": (["key"], None),
}
_numbers = itertools.count(1)
_ports = {}


def end(process):
    process.stdin.close()
    process.wait(30)
    process.stdout.close()


def port_of(kind="dynamodb"):
    """One server for all; tools/test may have started it."""
    given = os.environ.get({"dynamodb": "BELAY_TEST_DYNAMODB", "dynalite": "BELAY_TEST_DYNALITE"}[kind])
    if given:
        return int(given)
    if kind not in _ports:
        process = subprocess.Popen([str(ROOT / "tools" / "dynamodb-local"), kind], stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, text=True)
        atexit.register(end, process)
        _ports[kind] = int(process.stdout.readline())
    return _ports[kind]


class TableCase(BelayCase):
    SERVER = "dynamodb"

    def setUp(self):
        super().setUp()
        self.gate = Gate(port_of(self.SERVER))
        self.addCleanup(self.gate.close)
        self.table = f"table-{os.getpid()}-{next(_numbers)}"
        self.store = f"dynamodb:{self.table}"
        self.env.update(BELAY_STORE=self.store, AWS_ACCESS_KEY_ID="AKIDEXAMPLE", AWS_SECRET_ACCESS_KEY=SECRET,
                        AWS_REGION="eu-west-1", AWS_ENDPOINT_URL=self.gate.url, AWS_EC2_METADATA_DISABLED="true",
                        no_proxy="*")

    def ask(self, operation, **request):
        """Past the gate."""
        headers = {"X-Amz-Target": "DynamoDB_20120810." + operation, "Content-Type": "application/x-amz-json-1.0",
                   "Authorization": "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20260101/eu-west-1/dynamodb/aws4_request,"
                                    " SignedHeaders=host, Signature=0"}
        call = urllib.request.Request(f"http://127.0.0.1:{port_of(self.SERVER)}/", json.dumps(request).encode(),
                                      headers)
        try:
            return json.load(urllib.request.urlopen(call, timeout=30))
        except urllib.error.HTTPError as error:
            raise AssertionError(error.read()) from error

    def make_table(self, keys, ttl=None, name=None):
        name = name or self.table
        self.ask("CreateTable", TableName=name, BillingMode="PAY_PER_REQUEST",
                 KeySchema=[{"AttributeName": key, "KeyType": kind} for key, kind in zip(keys, ("HASH", "RANGE"))],
                 AttributeDefinitions=[{"AttributeName": key, "AttributeType": "S"} for key in keys])
        if ttl:
            self.ask("UpdateTimeToLive", TableName=name,
                     TimeToLiveSpecification={"Enabled": True, "AttributeName": ttl})

    def items(self, name=None):
        return self.ask("Scan", TableName=name or self.table)["Items"]

    def doctor(self, code, *args, **more):
        """The findings, as lists by name."""
        result = self.fails(code, "doctor", "--json", *args, **more)
        self.assertNotIn(SECRET, result.out + result.err)
        found = {}
        for finding in result.json()["findings"]:
            found.setdefault(finding["name"], []).append(finding)
        return found
