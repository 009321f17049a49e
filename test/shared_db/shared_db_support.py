"""Applications that are real HTTP servers, databases that are files or a real PostgreSQL, and belay between them.

BELAY_SHARED_DB_STORE says on what: sqlite (default), dynamodb, appregistry (document 003's table) or server.
"""

import glob
import http.server
import itertools
import json
import os
import socket
import ssl
import subprocess
import sys
import threading
import time
import urllib.parse
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "test" / "cli"))
sys.path.insert(0, str(ROOT / "test" / "dynamodb"))

from support import BELAY, PATIENCE, BelayCase, free_port, main, wait_until  # noqa: E402,F401

STORE = os.environ.get("BELAY_SHARED_DB_STORE", "sqlite")
# Seconds. DynamoDB's clocks are compared with a margin, and a lease must be longer than that.
SHORT_TTL = {"dynamodb": 6, "appregistry": 10}.get(STORE, 2)
_tables = itertools.count(1)


class Application:
    """Answers as configured: a status, after a delay, to HEAD or not, with a redirect; or not at all."""

    def __init__(self, family=socket.AF_INET, certificate=None):
        self.status = 200
        self.delay = 0.0
        self.location = None
        self.head_status = None
        self.seen = []
        self.family = family
        self.certificate = certificate
        self.port = None
        self.server = None
        self.up()

    @property
    def url(self):
        host = "[::1]" if self.family == socket.AF_INET6 else "localhost" if self.certificate else "127.0.0.1"
        return f"{'https' if self.certificate else 'http'}://{host}:{self.port}/health"

    def up(self, status=200):
        self.status = status
        if self.server is not None:
            return
        application = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def answer(self):
                application.seen.append(self.command)
                if application.delay:
                    time.sleep(application.delay)
                status = application.status
                if self.command == "HEAD" and application.head_status is not None:
                    status = application.head_status
                if application.location is not None and self.path == "/health":
                    self.send_response(302)
                    self.send_header("Location", application.location)
                else:
                    self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            do_GET = do_HEAD = answer

            def log_message(self, *_):
                pass

        class Server(http.server.ThreadingHTTPServer):
            address_family = application.family
            daemon_threads = True
            allow_reuse_address = True

            def handle_error(self, request, client_address):
                pass

        self.server = Server(("::1" if self.family == socket.AF_INET6 else "127.0.0.1", self.port or 0), Handler)
        self.port = self.server.server_address[1]
        if self.certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(self.certificate)
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def down(self):
        """Stop listening."""
        if self.server is not None:
            self.server.shutdown()
            self.server.server_close()
            self.server = None


class EC2:
    """EC2's endpoint on this machine. An instance stops at once, and says `stopping` once."""

    def __init__(self):
        self.instances = []
        self.calls = []
        self.status = 200
        self.on_stop = None
        ec2 = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = dict(urllib.parse.parse_qsl(self.rfile.read(int(self.headers["Content-Length"])).decode()))
                assert body["Version"] == "2016-11-15" and "/ec2/aws4_request" in self.headers["Authorization"], body
                ec2.calls.append(body["Action"])
                xml = ec2.answer(body)
                self.send_response(ec2.status)
                self.send_header("Content-Length", str(len(xml)))
                self.end_headers()
                self.wfile.write(xml.encode())

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def add(self, instance, address, state="running", **more):
        self.instances.append({"id": instance, "address": address, "states": [state], **more})

    def state(self, instance):
        (one,) = [one for one in self.instances if one["id"] == instance]
        return one["states"][-1]

    def answer(self, body):
        if self.status != 200:
            return "<Response><Errors><Error><Code>UnauthorizedOperation</Code><Message>no</Message></Error></Errors></Response>"
        found = [one for one in self.instances if body.get("InstanceId.1") in (None, one["id"])]
        if "Filter.1.Name" in body:
            field = {"private-ip-address": "address", "private-dns-name": "dns"}[body["Filter.1.Name"]]
            states = [value for name, value in body.items() if name.startswith("Filter.2.Value.")]
            found = [one for one in found if one.get(field) == body["Filter.1.Value.1"] and one["states"][0] in states]
        if body["Action"] == "DescribeInstances":
            return "<DescribeInstancesResponse><reservationSet>" + "".join(
                f"<item><instancesSet><item><instanceId>{one['id']}</instanceId><instanceState><name>{self.step(one)}</name>"
                f"</instanceState><privateDnsName>{one.get('dns', '')}</privateDnsName>"
                f"<privateIpAddress>{one['address']}</privateIpAddress><networkInterfaceSet><item><privateIpAddressesSet><item>"
                f"<privateIpAddress>{one.get('second', one['address'])}</privateIpAddress></item></privateIpAddressesSet>"
                f"<ipv6AddressesSet><item><ipv6Address>{one.get('ipv6', '')}</ipv6Address></item></ipv6AddressesSet></item>"
                "</networkInterfaceSet></item></instancesSet></item>" for one in found
            ) + "</reservationSet></DescribeInstancesResponse>"
        is_stop = body["Action"] == "StopInstances"
        for one in found:
            one["states"] = ["stopping", "stopped"] if is_stop else ["pending", "running"]
        if is_stop and self.on_stop:
            self.on_stop()
        return ("<Response><instancesSet><item><currentState><name>stopping</name></currentState></item></instancesSet>"
                "</Response>")

    @staticmethod
    def step(one):
        return one["states"].pop(0) if len(one["states"]) > 1 else one["states"][0]


# Logs its requests, and which applications were up then. Slow on demand.
FAKE = """#!/bin/sh
cd "$(dirname "$0")" || exit 1
case $1 in
stop) echo "stop $BELAY_DATABASE $BELAY_DATABASE_KIND key=$BELAY_KEY id=${BELAY_LOCK_ID:+set} asked=$STOPPING up=$(ls up | tr '\\n' ',')" >>log
      [ ! -e slow ] || sleep "$(cat slow)"
      [ ! -e broken ] || exit 3
      echo "stopped asked=$STOPPING up=$(ls up | tr '\\n' ',')" >>log
      rm -f running ;;
start) echo "start $BELAY_DATABASE" >>log; touch running ;;
is-stopped) [ ! -e hold ] || { touch held; while [ -e hold ]; do sleep 0.05; done; }
            [ ! -e running ] ;;
is-running) [ -e running ] ;;
esac
"""


class GuardCase(BelayCase):
    DATABASE = "db.example:5432"
    CONTROLLER = {}
    SERVER_TOKENS = []

    def setUp(self):
        self.server = None
        super().setUp()
        self.applications = {}
        (self.dir / "up").mkdir()
        script = self.dir / "db.sh"
        script.write_text(FAKE, encoding="utf-8")
        script.chmod(0o755)
        self.script = str(script)
        self.configure()

    def configure(self, databases=None, **controller):
        config = {"controller": {**self.CONTROLLER, **controller}, "databases": databases or {
            "postgres": {verb: {"command": [self.script, verb], "timeout": "30s",
                                "until": {"command": [self.script, check], "every": "50ms"}}
                         for verb, check in (("stop", "is-stopped"), ("start", "is-running"))}}}
        if not config["controller"]:
            del config["controller"]
        path = self.dir / "shared_db.yaml"
        path.write_text(json.dumps(config), encoding="utf-8")
        path.chmod(0o600)
        self.env["BELAY_CONFIG"] = str(path)

    def make_store(self):
        if STORE in ("dynamodb", "appregistry"):
            self.make_dynamodb("belay" if STORE == "dynamodb" else STORE)
        elif STORE == "server":
            self.make_server()

    def make_dynamodb(self, layout):
        import dynamo_support
        port = dynamo_support.server_port()
        self.table = f"shared-db-{os.getpid()}-{next(_tables)}"
        self.dynamodb = dynamo_support.Database(port)
        self.addCleanup(self.dynamodb.close)
        self.dynamodb.create(self.table, layout)
        self.env.update(dynamo_support.CREDENTIALS)
        self.env["BELAY_STORE"] = f"dynamodb:{self.table}?layout={layout}&region=us-east-1&endpoint=http://127.0.0.1:{port}"

    def make_server(self):
        port = free_port()
        config = self.dir / "server.yaml"
        config.write_text("{}", encoding="utf-8")
        config.chmod(0o600)
        self.server = subprocess.Popen(
            [BELAY, "serve", "--json", "--config", str(config), "--store", self.store, "--listen", f"127.0.0.1:{port}"],
            env=self.environment({"BELAY_STORE": None}), cwd=self.dir, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, encoding="utf-8")
        self.addCleanup(self.end, self.server)
        self.assertIn("listening", self.server.stdout.readline())
        self.env["BELAY_STORE"] = f"http://127.0.0.1:{port}"

    # ---- applications ----

    def application(self, name, *more_urls, database=None, register=True, **options):
        application = Application(**options)
        self.addCleanup(application.down)
        self.applications[name] = application
        if register:
            urls = [word for url in (application.url, *more_urls) for word in ("--url", url)]
            self.ok("app", "register", name, *urls, "--database", f"postgres={database or self.DATABASE}")
        return application

    def status(self, name):
        return self.ok("app", "status", name, "--json").json()

    def ec2(self, **action):
        """A kind postgres that is an EC2 instance, and an endpoint that lists instances."""
        ec2 = EC2()
        self.addCleanup(ec2.server.server_close)
        self.addCleanup(ec2.server.shutdown)
        self.env.update({"AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1",
                         "AWS_EC2_METADATA_DISABLED": "true", "no_proxy": "*",
                         "AWS_ENDPOINT_URL_EC2": f"http://127.0.0.1:{ec2.server.server_address[1]}"})
        self.configure({"postgres": {verb: {"ec2": verb, "timeout": "60s", "until": {"every": "50ms"}, **action}
                                     for verb in ("stop", "start")}})
        return ec2

    # ---- the database ----

    def running(self):
        return (self.dir / "running").exists()

    def run_database(self):
        (self.dir / "running").touch()

    def log(self):
        path = self.dir / "log"
        return path.read_text(encoding="utf-8").splitlines() if path.exists() else []

    def stop(self, app, *args, code=0, **more):
        """`belay db stop --app`; the one result."""
        result = self.belay("db", "stop", "--app", app, "--json", *args, **more)
        self.assertEqual(result.code, code, result)
        (only,) = result.json()["results"]
        return only


def postgres_bin():
    found = sorted(glob.glob("/usr/lib/postgresql/*/bin/pg_ctl"))
    return os.path.dirname(found[-1]) if found else None
