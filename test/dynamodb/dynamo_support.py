"""Shared by the tests on DynamoDB: the server, tables, and belay on them.

DynamoDB Local is started once: by tools/test, which gives its port as BELAY_TEST_DYNAMODB (and dynalite's as
BELAY_TEST_DYNALITE), or by the first test that needs it.
"""
import atexit
import fcntl
import glob
import http.client
import itertools
import json
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(ROOT, "test", "cli"))

from proxy import Proxy  # noqa: E402
from support import BelayCase  # noqa: E402

FAKETIME = next(iter(glob.glob("/usr/lib/*/faketime/libfaketime.so.1")), None)
REGION = "us-east-1"
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": "secret-of-the-tests",
               "AWS_EC2_METADATA_DISABLED": "true", "AWS_REGION": REGION, "no_proxy": "*"}
# The keys that a table of each layout has.
TABLE_KEYS = {"belay": ["lock_key"], "chatops": ["lockKey"], "resource": ["PK", "SK"], "runvoy": ["lock_name"],
              "appregistry": ["app_name"], "deployer": ["lockKey"], "terraform": ["LockID"], "awslabs": ["key"],
              "dynamolock": ["key"]}

_servers = {}
_numbers = itertools.count(1)


def server_port(kind="dynamodb"):
    """The port of DynamoDB Local, or of dynalite."""
    given = os.environ.get({"dynamodb": "BELAY_TEST_DYNAMODB", "dynalite": "BELAY_TEST_DYNALITE"}[kind])
    if given:
        return int(given)
    if kind not in _servers:
        process = subprocess.Popen([os.path.join(ROOT, "tools", "dynamodb-local"), kind], stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, text=True)
        atexit.register(_end_server, process)
        line = process.stdout.readline()
        if not line:
            raise AssertionError(f"{kind} does not start")
        _servers[kind] = int(line)
    return _servers[kind]


def _end_server(process):
    process.stdin.close()
    process.stdout.close()
    process.wait(30)


class Database:
    """The server itself, without a proxy: the real content of a table."""

    def __init__(self, port):
        self.port = port
        self.connection = None

    def __call__(self, operation, **request):
        status, body = self.ask(operation, request)
        assert status == 200, (operation, body)
        return body

    def ask(self, operation, request):
        headers = {"Content-Type": "application/x-amz-json-1.0", "X-Amz-Target": f"DynamoDB_20120810.{operation}",
                   "Authorization": "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20260101/us-east-1/dynamodb/aws4_request, "
                                    "SignedHeaders=host, Signature=0", "X-Amz-Date": "20260101T000000Z"}
        for _ in range(2):
            if self.connection is None:
                self.connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
            try:
                self.connection.request("POST", "/", json.dumps(request), headers)
                answer = self.connection.getresponse()
                return answer.status, json.loads(answer.read())
            except (http.client.HTTPException, ConnectionError):
                self.connection.close()
                self.connection = None
        raise AssertionError("the server is gone")

    def close(self):
        if self.connection is not None:
            self.connection.close()

    def create(self, table, layout="belay", keys=None):
        names = keys or TABLE_KEYS[layout]
        self("CreateTable", TableName=table, BillingMode="PAY_PER_REQUEST",
             KeySchema=[{"AttributeName": name, "KeyType": kind} for name, kind in zip(names, ("HASH", "RANGE"))],
             AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name in names])

    def items(self, table):
        return self("Scan", TableName=table, ConsistentRead=True)["Items"]

    def put(self, table, **attributes):
        self("PutItem", TableName=table, Item=attributes)


class DynamoStore:
    """For a BelayCase: its store is a new table. Put it before the case among the bases."""

    LAYOUT = "belay"
    SERVER = "dynamodb"
    PROXY = False  # belay reaches the server through self.proxy
    EXTRA = ""  # of the store's URL
    PERSON = "tester@example.com"

    def make_store(self):
        self.port = server_port(self.SERVER)
        self.db = Database(self.port)
        self.addCleanup(self.db.close)
        self.proxy = None
        if self.PROXY:
            self.proxy = Proxy(self.port)
            self.proxy.__enter__()
            self.addCleanup(self.proxy.close)
        self.table = f"locks-{os.getpid()}-{next(_numbers)}"
        self.db.create(self.table, self.LAYOUT)
        self.addCleanup(self.drop_table)
        self.store = self.url()
        self.env.update(CREDENTIALS, BELAY_STORE=self.store)

    def with_person(self, args):
        """Layout runvoy takes no lock without a user_email."""
        if self.LAYOUT == "runvoy" and args[0] in ("acquire", "run") and "--owner-name" not in args and self.PERSON:
            return (args[0], "--owner-name", self.PERSON, *args[1:])
        return args

    def belay(self, *args, **more):
        return super().belay(*self.with_person(args), **more)

    def start(self, *args, **more):
        return super().start(*self.with_person(args), **more)

    def drop_table(self):
        self.db.ask("DeleteTable", {"TableName": self.table})

    def url(self, *more, table=None, port=None):
        port = port or (self.proxy.port if self.proxy else self.port)
        params = [f"layout={self.LAYOUT}"] if self.LAYOUT != "belay" else []
        params += [f"region={REGION}", f"endpoint=http://127.0.0.1:{port}", *more]
        params += [self.EXTRA] if self.EXTRA else []
        return f"dynamodb:{table or self.table}?" + "&".join(params)

    def item(self, key):
        """The item of a lock in DynamoDB; None if there is none."""
        name = TABLE_KEYS[self.LAYOUT][0]
        found = [item for item in self.db.items(self.table) if item[name] == {"S": key}]
        return found[0] if found else None

    def change(self, key, **attributes):
        """Overwrite attributes of a lock's item behind belay's back."""
        self.db.put(self.table, **{**self.item(key), **attributes})

    def moved(self, offset):
        """The environment of a process whose wall clock is off; the other clocks are untouched."""
        options = self.env.get("ASAN_OPTIONS", "")
        return {"LD_PRELOAD": FAKETIME, "FAKETIME": offset, "FAKETIME_DONT_FAKE_MONOTONIC": "1",
                "ASAN_OPTIONS": f"verify_asan_link_order=0:detect_leaks=0:{options}", "FAKETIME_NO_CACHE": "1"}


class DynamoCase(DynamoStore, BelayCase):
    pass


class Documents:
    """The five documents' own code (interop/*.mjs), as one process."""

    SDK = "@aws-sdk/client-dynamodb@3.726.1"  # the last for Node 18

    def __init__(self, port):
        folder = self.fetch()
        env = {**CREDENTIALS, "PATH": os.environ["PATH"], "BELAY_INTEROP": folder,
               "DYNAMODB_URL": f"http://127.0.0.1:{port}"}
        self.process = subprocess.Popen(["node", os.path.join(HERE, "interop", "main.mjs")], env=env, text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    @classmethod
    def fetch(cls):
        folder = os.path.join(os.environ.get("BELAY_TOOLS", os.path.join(ROOT, "build", "tools")), "interop")
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, ".lock"), "w", encoding="ascii") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not os.path.exists(os.path.join(folder, ".done")):
                subprocess.run(["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", folder, cls.SDK],
                               check=True, stdout=sys.stderr)
                open(os.path.join(folder, ".done"), "w", encoding="ascii").close()
        return folder

    def __call__(self, document, do, **order):
        self.send(document, do, **order)
        return self.receive()

    def send(self, document, do, **order):
        self.process.stdin.write(json.dumps({"document": document, "do": do, **order}) + "\n")
        self.process.stdin.flush()

    def receive(self):
        answer = json.loads(self.process.stdout.readline())
        assert "error" not in answer, answer
        return answer["result"]

    def close(self):
        self.process.stdin.close()
        self.process.wait(30)
        self.process.stdout.close()
