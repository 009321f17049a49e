"""
/openapi.json is a valid document, and true: a client that knows nothing but the document calls every route and gets
every status that is documented for it, each as its schema says (Server.check). A documented status that nothing here
can bring about fails the test.
"""

import fcntl
import itertools
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "dynamodb"))

from dynamo_support import DynamoStore  # noqa: E402
from openapi_support import Client  # noqa: E402
from proxy import Plan  # noqa: E402
from server_support import PATIENCE, ROOT, ServerCase, main, wait_until  # noqa: E402
from stats_support import plant  # noqa: E402

VALIDATOR = "@seriousme/openapi-schema-validator@2.2.5"  # runs on Node 18
TOKENS = {"secret-reader": ("watcher", "reader", None), "secret-locker": ("ci", "locker", None),
          "secret-admin": ("boss", "admin", None)}
LISTENERS = 1000
URL = "http://127.0.0.1:9"  # a closed port
HOOK = "http://hooks.example.com/"
WRITES = ("PutItem", "UpdateItem", "DeleteItem", "TransactWriteItems", "BatchWriteItem")
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


class Lost(Plan):
    """From the first write on every answer is lost, although the requests are done."""

    def __post_init__(self):
        super().__post_init__()
        self.has_begun = False

    def draw(self, operation):
        self.has_begun = self.has_begun or operation in WRITES
        return "cut_after" if self.has_begun else None


class World:
    """The objects on a server: a lock, an application, its database, a state, a Terraform state."""

    def __init__(self, case, server):
        self.case = case
        self.server = server
        self.n = 0

    def must(self, method, path, body=None, headers=None):
        answer = self.server.call(method, path, body, token="secret-admin", headers=headers, check=False)
        self.case.assertEqual(answer.status, 200, (method, path, answer))

    def make(self):
        """Recreate all objects. Returns their names for paths, queries and bodies."""
        self.n += 1
        n = self.n
        names = {"key": f"k-{n}", "name": f"app-{n}", "id": f"db-{n}.example:5432", "stack": f"stack{n}", "environment": "prod",
                 "file": "app.js", "version": "latest", "lock_id": f"held-{n}", "ID": f"tf-{n}", "freeze": f"freeze-{n}"}
        lock = {"locked_by": "holder", "ttl_ms": 600000}
        self.must("POST", f"/v1/locks/{names['key']}/acquire", {**lock, "lock_id": names["lock_id"]})
        self.must("PUT", f"/v1/apps/{names['name']}", {"urls": [URL], "databases": [f"postgres={names['id']}"]})
        self.must("POST", f"/v1/locks/stack:{names['stack']}:env:prod/acquire", {**lock, "lock_id": f"stack-{n}"})
        self.must("LOCK", f"/v1/terraform/{names['name']}", {"ID": names["ID"]})
        self.server.call("DELETE", f"/v1/freezes/freeze-{n - 1}", token="secret-admin", check=False)  # there may be only so many
        self.must("POST", "/v1/freezes", {"pattern": "frozen", "reason": "x", "id": names["freeze"]})
        for i in range(2):
            self.must("PUT", f"/v1/state/{names['stack']}/prod?lock_id=stack-{n}", {"outputs": {"n": i}, "metadata": {"serial": i}},
                      {"If-Match": "*"})
            self.must("POST", f"/v1/terraform/{names['name']}?ID={names['ID']}", {"serial": i})
        return {**names, "stack_lock": f"stack-{n}"}


class Request:
    """Requests that succeed on the objects of World.make(); a test spoils one to get another status than 200."""

    def __init__(self, operation, names):
        self.operation = operation
        self.names = dict(names)
        self.query, self.headers = {}, {}
        self.body = operation.body(self.known())
        fill = {"locks": self.of_locks, "state": self.of_states, "terraform": self.of_terraform, "apps": self.of_apps,
                "freezes": self.of_freezes}
        fill.get(self.family(), lambda: None)()
        if operation.takes("app") or "app" in operation.fields():
            (self.query if operation.takes("app") else self.body)["app"] = names["name"]

    def family(self):
        """The word after /v1/, where the routes of locks that have the key in the body are of the locks."""
        word = self.operation.path.split("/")[2] if self.operation.path.startswith("/v1/") else ""
        return "locks" if word in ("acquire", "adopt", "renew", "release", "held", "lost", "check") else word

    def known(self):
        names = self.names
        return {"key": names["key"], "locked_by": "x", "ttl_ms": 60000, "lock_id": names["lock_id"], "urls": [URL], "kind": "postgres",
                "database": names["id"], "ID": names["ID"], **({"version": "1"} if self.operation.path.endswith("/restore") else {})}

    def is_fresh(self):
        """It succeeds on a free key."""
        return self.operation.path.endswith(("/acquire", "/free"))

    def of_locks(self):
        operation = self.operation
        if self.is_fresh():
            self.at(self.names["key"] + "-new", f"new-{self.names['lock_id']}")
        if operation.path.endswith(("/renew", "/release")):
            del self.body["locked_by"]  # instead of lock_id
        if operation.path.endswith("/queue") and operation.method == "DELETE":
            self.query = {"lock_id": f"waits-{self.names['lock_id']}"}
        if operation.path.endswith("/check"):
            self.at(self.names["key"], self.names["lock_id"])

    def of_states(self):
        if self.operation.takes("lock_id"):
            self.query = {"lock_id": self.names["stack_lock"]}
        if self.operation.has(428):
            self.headers = {"If-Match": "*"}
            self.body["metadata"] = {"serial": 2}  # made from the second save of World.make()

    def of_terraform(self):
        if self.operation.takes("ID") and not self.operation.path.endswith("/lock"):
            self.query = {"ID": self.names["ID"]}
        if self.operation.path.endswith("/{name}") and self.operation.method in ("POST", "PUT"):
            self.body["serial"] = 7

    def of_freezes(self):
        self.names["id"] = self.names["freeze"]

    def of_apps(self):
        if self.operation.method == "POST" and "{name}" not in self.operation.path:
            self.body["name"] = self.names["name"] + "-new"

    def at(self, key, lock_id):
        """For another key, or another id of it."""
        self.names["key"] = key
        if self.operation.path.endswith("/check") and self.operation.takes("lock_id"):
            self.query["lock_id"] = lock_id
        if self.body is not None:
            self.body.update({name: value for name, value in (("key", key), ("lock_id", lock_id)) if name in self.operation.fields()})

    def of_nothing(self):
        """The same, of what there is not."""
        if self.body is not None and self.operation.path.endswith("/restore"):
            self.body["version"] = "999"
            return
        self.names.update(key="nothing", name="nothing", id="nothing.example:1", stack="nothing", version="999", file="nothing.js")
        if self.body is not None and "key" in self.body:
            self.body["key"] = "nothing"

    def by_another(self):
        """The same without the lock, or for another version."""
        names = self.names
        if self.family() == "locks":
            self.at(names["key"].removesuffix("-new"), "nobodys")
        elif self.family() == "apps":
            self.query = {"version": 999} if self.operation.takes("version") else {}
            if self.body is not None:
                self.body.update(version=999, **({"name": names["name"]} if "name" in self.body else {}))
        elif self.operation.takes("lock_id"):
            self.query["lock_id"] = "nobodys"
        elif "ID" in self.operation.fields():
            self.body["ID"] = "nobodys"
        else:
            self.query["ID"] = "nobodys"

    def send(self, client, **more):
        return client.send(self.operation, **{"names": self.names, "query": self.query, "body": self.body, "headers": self.headers,
                                              **more})


class Truth(DynamoStore, ServerCase):
    """On SQLite, and for what a store on the network alone can bring about on DynamoDB Local, through a proxy."""

    PROXY = True
    EXTRA = "max_clock_skew=10ms&freezes=on"

    def config(self, more=""):
        flag = self.dir / "running"
        tokens = self.config_with(TOKENS).read_text(encoding="utf-8")
        return self.write_config(tokens + more + f"databases: {{postgres: {{stop: {{command: [rm, -f, {flag}]}}, "
                                 f"start: {{command: [touch, {flag}]}}}}}}\n")

    def up(self, name, store, config, states=None):
        """A server with states of its own."""
        return self.serve("--store", store, "--state-store", states or f"file:{self.dir}/states-{name}", config=config,
                          env={"AWS_MAX_ATTEMPTS": "1"})

    def requests(self, client, world):
        for operation in client.operations:
            yield operation, (lambda o=operation: Request(o, world.make()))

    def well(self, client, world):
        """200, 202, 400, 401, 403, 404 and 413: on a server that is well."""
        for operation, request in self.requests(client, world):
            if operation.path.endswith("/queue") and operation.method == "DELETE":
                one = request()
                self.queue_webhook(world.server, one.names["key"], one.query["lock_id"])
                one.send(client)
            else:
                request().send(client)
            if operation.has(202):
                one = request()
                one.at(one.names["key"].removesuffix("-new"), f"hook-{one.names['lock_id']}")
                one.body.update(wait_ms=60000, webhook={"url": HOOK})
                one.send(client)
            if operation.has(404):
                one = request()
                one.of_nothing()
                one.send(client)
            if operation.has(413):
                one = request()
                client.announce(operation, one.names, 1 << 30)
            if operation.role:
                self.refused(client, operation, request)

    def refused(self, client, operation, request):
        one = request()
        one.send(client, query={**one.query, "no_such_parameter": 1})
        if operation.schema() is not None:
            one.send(client, body="{")
        one.send(client, token=None)
        weak = {"admin": "secret-locker", "locker": "secret-reader"}.get(operation.role)
        if weak:
            one.send(client, token=weak)
        else:
            one.send(client, headers={"Origin": "http://evil.example"})

    @staticmethod
    def queue_webhook(server, key, lock_id):
        server.acquire(key, "y", token="secret-admin", wait_ms=60000, ttl_ms=60000, lock_id=lock_id, webhook={"url": HOOK})

    def conflicts(self, client, world):
        """409, 412, 423 and 428."""
        for operation, request in self.requests(client, world):
            if operation.has(409):
                one = request()
                one.by_another()
                one.send(client)
            if operation.has(409) and not client.has_seen(operation, 409):
                one = request()  # of an id that had its lock
                world.must("UNLOCK", f"/v1/terraform/{one.names['name']}", {"ID": one.names["ID"]})
                one.send(client)
            if operation.has(412):
                request().send(client, headers={"If-Match": '"another"'})
            if operation.has(428):
                request().send(client, headers={})
            if operation.has(423):
                one = request()
                one.send(client, query={}, body={**(one.body or {}), "ID": "nobodys"} if "ID" in operation.fields() else one.body)

    def crowd(self, client, server):
        """503 of streams: too many listeners."""
        for operation in client.operations:
            if not operation.is_stream():
                continue
            connections = [server.connect() for _ in range(LISTENERS)]
            for connection, secret in zip(connections, itertools.cycle(TOKENS)):  # one token may not have all of them
                connection.request("GET", operation.path, headers={"Authorization": f"Bearer {secret}"})
            wait_until(lambda o=operation: client.send(o) == 503, f"{operation} to be full")
            for connection in connections:
                connection.close()

    def harm(self, client, world, status, plan):
        """Everything that documents the status, while the store does harm."""
        for operation, request in self.requests(client, world):
            if operation.has(status) and not client.has_seen(operation, status):
                one = request()
                self.proxy.plan = plan()
                one.send(client)
                self.proxy.plan = Plan()

    def full(self, client, config):
        """503 of what only writes down an event: there is no room for it."""
        room = 3 << 20
        server = self.serve("--store", f"sqlite:{self.dir}/full.db", config=config,
                            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (room, resource.RLIM_INFINITY)))
        client.server = server
        wait_until(lambda: server.acquire(f"k{time.monotonic_ns()}", token="secret-admin", metadata={
            f"m{n}": os.urandom(2000).hex() for n in range(60)}).status == 503, "no room to be left")
        for operation in client.operations:
            if operation.path.endswith("/lost"):
                one = Request(operation, {"key": "k", "name": "", "id": "", "lock_id": "i", "ID": "", "stack_lock": ""})
                one.body["reason"] = "x" * 1000
                wait_until(lambda o=one: o.send(client) == 503, f"{operation} to be refused", PATIENCE * 4)
            if operation.path == "/v1/backup":
                client.send(operation, {})

    def contended(self, client, world):
        """409 after repeated attempts: another client is always faster."""
        for operation, request in self.requests(client, world):
            if operation.has(409) and not client.has_seen(operation, 409):
                one = request()
                for write in WRITES:
                    self.proxy.answer(write, 400, "ConditionalCheckFailedException", "The conditional request failed")
                one.send(client)
                self.proxy.reset()

    def press(self, client, server):
        """503 of what is left: more questions to the store wait than may."""
        left = [o for o in client.operations if o.has(503) and not client.has_seen(o, 503)]
        self.proxy.plan = Plan(delay=1.0, delay_s=5.0)
        connections = [server.connect() for _ in range(LISTENERS)]
        for connection in connections:
            connection.request("GET", "/v1/locks", headers={"Authorization": "Bearer secret-reader"})
        for operation in left:
            wait_until(lambda o=operation: client.send(o, {"key": "k"}) == 503, f"{operation} to be refused")
        for connection in connections:
            connection.close()
        self.proxy.plan = Plan()

    def counting(self, client, config):
        """503 of statistics: a long history is read for each, and more questions wait than may."""
        store = f"sqlite:{self.dir}/long.db"
        plant(self, [(i, "lock.released", f"k{i % 100}", 1) for i in range(30000)], store=store)
        client.server = server = self.up("long", f"{store}?retain_events=36500d", config)
        connections = [server.connect() for _ in range(30)]
        for connection in connections:
            connection.request("GET", "/v1/stats?by=key", headers={"Authorization": "Bearer secret-reader"})
        for operation in client.operations:
            if operation.path == "/v1/stats":
                wait_until(lambda o=operation: client.send(o) == 503, f"{operation} to be refused")
        for connection in connections:
            connection.close()

    def without_states(self, client, config):
        """503 of states: their store cannot be reached."""
        server = self.up("none", f"sqlite:{self.dir}/stateless.db", config, f"s3://states/x?region=eu-west-1&endpoint={URL}")
        client.server = server
        lock = {"locked_by": "x", "lock_id": "s", "ttl_ms": 600000}
        server.post("/v1/locks/stack:shop:env:prod/acquire", lock, token="secret-admin")
        names = {"key": "k", "name": "net", "id": "d:1", "stack": "shop", "environment": "prod", "version": "1", "lock_id": "s",
                 "stack_lock": "s", "ID": "i", "file": "f"}
        for operation in client.operations:
            if operation.path.startswith(("/v1/state", "/v1/terraform")) and operation.has(503):
                Request(operation, names).send(client)

    def unknown(self, client):
        """503 of the store's id, which a server reads at its start."""
        self.proxy.plan = Plan(throttle=1.0)
        client.server = self.up("unknown", self.store, self.config())
        for operation in client.operations:
            if operation.path == "/v1/store":
                self.assertEqual(client.send(operation), 503)
        self.proxy.plan = Plan()

    def test_every_route_gives_every_documented_status_and_no_other(self):
        config = self.config()
        local = self.up("local", f"sqlite:{self.dir}/local.db", config)
        client = Client(local)
        self.assertGreater(len(client.operations), 50)
        world = World(self, local)
        self.well(client, world)
        self.conflicts(client, world)
        self.crowd(client, local)
        self.full(client, config)
        self.counting(client, config)
        self.without_states(client, config)

        # A write without the lock is 423 while the lock is held.
        client.server = self.up("free", f"sqlite:{self.dir}/free.db", self.config("  terraform: {unlocked_writes: true}\n"))
        self.conflicts(client, World(self, client.server))

        self.unknown(client)
        far = self.up("far", self.store, self.config())
        client.server = far
        world = World(self, far)
        for operation, request in self.requests(client, world):
            if operation.has(404) and not client.has_seen(operation, 404):
                request().send(client)  # no events and no history are kept there
        self.harm(client, world, 503, lambda: Plan(throttle=1.0))
        self.harm(client, world, 504, Lost)
        self.contended(client, world)
        self.press(client, far)
        self.assertEqual(sorted(client.documented() - client.seen), [], "documented, but nothing brought it about")
        self.assertEqual(sorted(client.seen - client.documented()), [], "not documented")


if __name__ == "__main__":
    main()
