"""
/openapi.json is a valid document, and true: a client that knows nothing but the document calls every route and gets
every status that is documented for it, each as its schema says (Server.check). A documented status that nothing here
can bring about fails the test.
"""

import fcntl
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "dynamodb"))

from dynamo_support import DynamoStore  # noqa: E402
from proxy import Plan  # noqa: E402
from server_support import PATIENCE, ROOT, ServerCase, main  # noqa: E402

VALIDATOR = "@seriousme/openapi-schema-validator@2.2.5"  # runs on Node 18
TOKENS = {"secret-reader": ("watcher", "reader", None), "secret-locker": ("ci", "locker", None),
          "secret-admin": ("boss", "admin", None)}
LISTENERS = 1000
# The locks, lines, events and the server itself. What has come since (the dashboard's, the registry's, state's) has tests of
# its own and is to be taken in here: take it out of this pattern, and see which documented status nothing brings about.
NOT_YET = re.compile(r"/v1/(apps|databases|state|terraform|live|stats|me|lost)|/status|/ui|/metrics|.*/(tree|lost)$")
SCRIPT = """
import { Validator } from "@seriousme/openapi-schema-validator";
import { readFileSync } from "node:fs";
const result = await new Validator().validate(JSON.parse(readFileSync(0, "utf8")));
console.log(JSON.stringify({ valid: result.valid, errors: result.errors ?? null }));
"""


def validator():
    """The folder in which it is installed."""
    folder = Path(os.environ.get("BELAY_TOOLS", ROOT / "build" / "tools")) / "openapi"
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / ".done").exists():
            subprocess.run(["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(folder), VALIDATOR],
                           check=True, stdout=sys.stderr)
            (folder / ".done").touch()
    return folder


class Valid(ServerCase):
    def validate(self, document):
        done = subprocess.run(["node", "--input-type=module", "-e", SCRIPT], input=json.dumps(document), cwd=validator(),
                              capture_output=True, text=True, timeout=PATIENCE * 4, check=True)
        return json.loads(done.stdout)

    def test_the_document_is_valid(self):
        document = self.serve().get("/openapi.json").json()
        self.assertEqual(self.validate(document), {"valid": True, "errors": None})
        del document["paths"]["/v1/locks"]["get"]["responses"]["200"]["description"]
        self.assertFalse(self.validate(document)["valid"], "the validator finds nothing")


class Client:
    """Makes requests out of the document alone."""

    def __init__(self, server):
        self.server = server
        self.document = server.call("GET", "/openapi.json", check=False).json()
        self.seen = set()
        self.n = 0

    def operations(self):
        for path, methods in self.document["paths"].items():
            if NOT_YET.match(path):
                continue
            for method, operation in methods.items():
                yield method.upper(), path, operation

    def documented(self):
        return {(m, p, int(status)) for m, p, operation in self.operations() for status in operation["responses"]}

    def schema(self, operation):
        return operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")

    def body(self, operation, **known):
        """What is required, and of what is known that which this route takes."""
        schema = self.schema(operation)
        if schema is None:
            return None
        body = {name: known.get(name, "x") for name in schema["required"]}
        body.update({name: value for name, value in known.items() if name in schema["properties"]})
        return body

    def call(self, method, path, operation, body, key="k", token="secret-admin", query=None, headers=None):
        self.n += 1
        url = path.replace("{key}", key)
        if query is None:
            query = "&".join(f"{p['name']}={(body or {}).get(p['name'], 'nobody')}" for p in operation["parameters"]
                             if p["in"] == "query" and p["name"] == "lock_id" and method == "DELETE" and body is None)
        data = json.dumps(body) if isinstance(body, dict) else body
        secured = token if "security" in operation else None
        status = self.stream(url, query, secured, headers) if "text/event-stream" in str(operation["responses"]["200"]) else \
            self.server.call(method, url + (f"?{query}" if query else ""), data, token=secured, headers=headers).status
        self.seen.add((method, path, status))
        return status

    def stream(self, url, query, token, headers):
        connection = self.server.connect()
        connection.request("GET", url + (f"?{query}" if query else ""), headers={
            **(headers or {}), **({"Authorization": f"Bearer {token}"} if token else {})})
        status = connection.getresponse().status
        connection.close()
        return status


class Truth(DynamoStore, ServerCase):
    """On SQLite, and for what a store on the network alone can bring about on DynamoDB Local, through a proxy."""

    PROXY = True
    EXTRA = "max_clock_skew=10ms"

    def hold(self, server, key, lock_id):
        server.call("DELETE", f"/v1/locks/{key}", token="secret-admin")
        self.assertEqual(server.acquire(key, "holder", token="secret-admin", lock_id=lock_id, ttl_ms=600000).status, 200)

    def good_and_bad(self, client, method, path, operation):
        """200 to 413, on a server that is well."""
        server = client.server
        new = f"new-{client.n}"
        in_body = "key" in (client.schema(operation) or {}).get("properties", {})
        fresh = path.endswith("/acquire") or path.endswith("/free")
        held, k = f"held-{client.n}", f"k-{client.n}"  # its own: a webhook may be left in line
        self.hold(server, k, held)
        key = new if fresh else k
        known = {"key": key, "locked_by": "x", "ttl_ms": 60000}
        body = client.body(operation, **known, **({} if fresh or method == "DELETE" else {"lock_id": held}))
        client.call(method, path, operation, body, key=key)
        self.hold(server, k, held := held + "-b")
        if "202" in operation["responses"]:
            client.call(method, path, operation, client.body(operation, key=k, locked_by="x", ttl_ms=60000, wait_ms=60000,
                                                             lock_id=new + "-hook", webhook={"url": "http://hooks.example.com/"}), key=k)
        if path.endswith("/queue") and method == "DELETE":
            server.acquire(k, "y", token="secret-admin", wait_ms=60000, ttl_ms=60000, lock_id=new, webhook={
                "url": "http://hooks.example.com/"})
            client.call(method, path, operation, None, key=k, query=f"lock_id={new}")
        if "409" in operation["responses"]:  # held by another; or an id that is nobody's
            client.call(method, path, operation, client.body(operation, key=k, locked_by="x", lock_id="nobodys"), key=k)
        if "404" in operation["responses"]:
            client.call(method, path, operation, client.body(operation, key="nothing", lock_id="x"), key="nothing")
        bad = client.body(operation, key=k, locked_by="x")
        if bad is not None:
            client.call(method, path, operation, {**bad, "no_such_field": 1}, key=k)
            client.call(method, path, operation, "x" * (2 << 20))
        else:
            client.call(method, path, operation, None, query="no_such_parameter=1")
        if "security" in operation:
            client.call(method, path, operation, bad, token=None)
            role = operation["x-belay-role"]
            weak = {"admin": "secret-locker", "locker": "secret-reader"}.get(role)
            if weak:
                client.call(method, path, operation, bad, token=weak)
            else:
                client.call(method, path, operation, bad, headers={"Origin": "http://evil.example"})
        self.assertTrue(in_body or "{key}" in path or bad is None)

    def crowd(self, client, server):
        """503 of the stream of events: too many listen."""
        connections = [server.connect() for _ in range(LISTENERS)]
        for connection in connections:
            connection.request("GET", "/v1/events", headers={"Authorization": "Bearer secret-reader"})
        for method, path, operation in client.operations():
            if "text/event-stream" in str(operation["responses"]["200"]):
                end = time.monotonic() + PATIENCE
                while client.call(method, path, operation, None) != 503:
                    self.assertLess(time.monotonic(), end)
        for connection in connections:
            connection.close()

    def press(self, client, server):
        """503 of what is left: more questions to the store wait than may."""
        self.proxy.plan = Plan(delay=1.0, delay_s=5.0)
        connections = [server.connect() for _ in range(LISTENERS)]
        for connection in connections:
            connection.request("GET", "/v1/locks", headers={"Authorization": "Bearer secret-reader"})
        for method, path, operation in client.operations():
            if "503" in operation["responses"] and (method, path, 503) not in client.seen:
                end = time.monotonic() + PATIENCE
                while client.call(method, path, operation, None) != 503:
                    self.assertLess(time.monotonic(), end)
        for connection in connections:
            connection.close()

    def test_every_route_gives_every_documented_status_and_no_other(self):
        config = self.config_with(TOKENS)
        local = self.serve("--store", f"sqlite:{self.dir}/local.db", config=config)
        client = Client(local)
        for method, path, operation in client.operations():
            self.good_and_bad(client, method, path, operation)
        self.crowd(client, local)

        far = self.serve(config=config, env={"AWS_MAX_ATTEMPTS": "1"})
        client.server = far
        for method, path, operation in client.operations():
            body = client.body(operation, key="k", locked_by="x", lock_id="i", ttl_ms=60000)
            if "404" in operation["responses"] and operation.get("requestBody") is None:
                client.call(method, path, operation, body)  # no events and no history are kept there
        for harm, status in (("throttle", "503"), ("cut_after", "504")):
            self.proxy.plan = Plan(**{harm: 1.0})
            for method, path, operation in client.operations():
                if status in operation["responses"] and (method, path, int(status)) not in client.seen:
                    client.call(method, path, operation,
                                client.body(operation, key="k", locked_by="x", lock_id="i", ttl_ms=60000))
        self.press(client, far)
        self.assertEqual(sorted(client.documented() - client.seen), [], "documented, but nothing brought it about")
        self.assertEqual(sorted(client.seen - client.documented()), [], "not documented")


if __name__ == "__main__":
    main()
