"""The reference pages about the command line: what they show is typed, and is what the program prints."""

import http.server
import json
import os
import queue
import re
import threading

from page_support import PATIENCE, Application, PageCase, Server, exit_code, main, names_beside_the_database, wait_until
from dynamo_support import REGION, Database, server_port
from gate import Gate
from webhook_support import Receiver


class Configuration(PageCase):
    PAGE = "docs/configuration.md"
    FILE = "profiles:\n  build:\n    ttl: 5m\n    environments: [dev, prod]\n"

    def test_the_introduction(self):
        self.only(r"config show|cat belay.yaml")
        self.write("ci.yaml", self.FILE)
        self.shows("BELAY_STORE")
        content = self.blocks[1].commands[0][1]
        self.write("belay.yaml", content)
        self.shows("cat belay.yaml")
        self.shows("belay list", 78)

    def test_the_file(self):
        self.section("The file")
        example = self.claim("store: sqlite:").replace("/var/lib/belay", str(self.dir))
        refusals = self.claim("belay: ci.yaml:3: ").splitlines(keepends=True)
        for line, refusal in zip(("tll: 5m", "ttl: 10x"), refusals, strict=True):
            self.write("ci.yaml", self.FILE.replace("ttl: 5m", line))
            self.assertEqual(self.fails(78, "--config", "ci.yaml", "list").err, refusal)
        shown = self.ok("--config", self.write("ci.yaml", example), "config", "show").out
        for line in ("profiles.build.ttl 5m ci.yaml:5", "profiles.nightly.wait 30s ci.yaml:12", "locking_enabled true ci.yaml:2"):
            self.assertIn(line, re.sub(r" +", " ", shown.replace(f"{self.dir}/", "")))

    def test_profiles_and_keys(self):
        """In the order of the page."""
        self.program("make", "true")
        example = next(block.text for block in self.blocks if block.text.startswith("store: sqlite:"))
        self.write("ci.yaml", example.replace("/var/lib/belay", str(self.dir)))
        self.only(r"--profile|^belay: Invalid|^stack:S")
        self.type("belay run --profile build --component router")
        key = re.search(r"# (\S+)$", re.search(r"^    (belay run --profile build.*)$", self.text, re.M)[1])[1]
        self.assertIn("lock.released", self.events(key))
        refused = self.fails(64, "--config", "ci.yaml", "acquire", "--profile", "build", "--component", "api", "--environment", "prod")
        self.assertEqual(refused.err.splitlines()[0] + "\n", self.claim("belay: Invalid component"))
        self.shows("belay acquire --profile deploy", 64)
        self.shows("belay run --profile build --component a", 64)
        self.check_hierarchy(self.claim("stack:S:env:E "))

    def check_hierarchy(self, drawing):
        """Each key excludes those that are drawn above it, and no other."""
        rows = [(len(line) - len(line.lstrip()), line.split()[0]) for line in drawing.splitlines()]
        for i, (depth, key) in enumerate(rows):
            lock = self.acquire(key)
            above = [other for j, (less, other) in enumerate(rows[:i]) if less < depth and all(d > less for d, _ in rows[j + 1:i])]
            for other in {other for _, other in rows[:i]} - set(above):
                self.ok("release", other, "--id", self.acquire(other)["lock_id"])
            for other in above:
                self.fails(75, "acquire", other)
            self.ok("release", key, "--id", lock["lock_id"])
        build = [line.split()[1] for line in drawing.splitlines() if len(line.split()) > 1]
        self.acquire(build[0])
        for key in build[1:]:
            self.fails(75, "acquire", key)


class Operations(PageCase):
    PAGE = "docs/operations.md"

    def test_the_doctor_prints_what_the_page_shows(self):
        """With the endpoint of DynamoDB Local instead of AWS's own, and one permission denied."""
        self.section("`belay doctor`")
        gate = Gate(server_port())
        self.addCleanup(gate.close)
        database = Database(server_port())
        self.addCleanup(database.close)
        table = f"deploy-locks-{os.getpid()}"
        database.create(table)
        self.addCleanup(database.ask, "DeleteTable", {"TableName": table})
        gate.deny("TransactWriteItems")
        home = self.dir / "home"
        (home / ".aws").mkdir()
        (home / ".aws" / "credentials").write_text("[ci]\naws_access_key_id = AKIDEXAMPLE\naws_secret_access_key = secret\n")
        (home / ".aws" / "credentials").chmod(0o600)
        self.env.update(BELAY_STORE=f"dynamodb:{table}", AWS_REGION=REGION, AWS_PROFILE="ci", AWS_ENDPOINT_URL=gate.url,
                        AWS_EC2_METADATA_DISABLED="true", no_proxy="*")
        self.replace("deploy-locks", table)
        self.replace("eu-west-1", REGION)
        self.replace("/home/ci", home)
        self.replace(f"https://dynamodb.{REGION}.amazonaws.com (AWS's own)", f"{gate.url} (set by hand)")
        self.shows("belay doctor", 77)

    def test_a_lock_is_ended_as_the_page_says(self):
        self.section("End a lock that is no longer needed")
        self.replace("KEY", "k")
        self.acquire("k", "--owner", "job-812")
        for command in ("belay status k", "belay history k"):
            self.assertIn("job-812", self.type(command).stdout)
        self.replace("--force", "--yes --force")
        self.type("belay unlock k")
        ids = [self.acquire("k", "--shared", "--owner", owner)["lock_id"] for owner in ("one", "two", "three", "four")]
        self.replace("OWNER ", "one ")
        self.replace("LOCK_ID", ids[1])
        for _ in range(3):
            self.type("belay unlock k")
        self.assertEqual(self.ok("status", "--quiet", "k").out, "released\n")

    def test_the_kill_switch_prints_what_the_page_shows(self):
        self.section("The kill switch")
        self.type("export BELAY_DISABLED")
        self.shows("belay run nightly")
        acquire, warned = self.take_with_output("id=")
        release, shown = self.take_with_output("belay release nightly")
        self.assert_shown(warned + shown, self.shell(f"exec 2>&1\n{acquire}\n{release}").stdout)

    def test_the_file_has_the_names_that_the_page_lists(self):
        self.section("The database file")
        listed = self.claim("~/.local/state/belay/belay.db")
        suffixes = set(re.findall(r"…(-[\w.-]+)", listed))
        self.assertEqual(names_beside_the_database(self) - {"belay.db-state"}, {"belay.db", *(f"belay.db{suffix}" for suffix in suffixes)})

    def test_backup_and_restore_work_as_the_page_says(self):
        self.section("Backup and restore")
        self.replace("/backup/locks.db", f"{self.dir}/locks.db")
        self.replace("sqlite:/var/lib/belay/new.db", f"sqlite:{self.dir}/new.db")
        lock = self.acquire("k")
        self.type("belay backup")
        server = Server(self, "--store", f"sqlite:{self.dir}/served.db")
        self.replace("https://locks.example", server.url)
        self.replace(f"belay backup {self.dir}/locks.db", f"belay backup {self.dir}/served-copy.db")
        self.type("belay backup")
        self.type("belay restore")
        self.ok("release", "k", "--id", lock["lock_id"])
        self.type("belay restore --replace")
        self.assertEqual(self.ok("status", "--quiet", "k").out, "active\n")


class Safety(PageCase):
    PAGE = "docs/safety.md"

    def test_the_command_gets_a_token_that_grows(self):
        self.program("./write.sh", 'echo "$1 $2" >>ran')
        command = self.left[0]
        self.type("belay run deploy-api-prod")
        self.shell(command)
        option, first, again, second = self.ran()
        self.assertEqual((option, again), ("--fence", "--fence"))
        self.assertLess(int(first), int(second))


class Collector:
    """Keeps the spans that are sent to it, by their ids."""

    def __init__(self, case):
        got = self.got = queue.Queue()

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                got.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        case.addCleanup(lambda: (server.shutdown(), server.server_close()))
        self.url = f"http://127.0.0.1:{server.server_port}"

    def until(self, *names):
        spans = {}
        while not set(names) <= {span["name"] for span in spans.values()}:
            for resource in self.got.get(timeout=PATIENCE)["resourceSpans"]:
                spans.update({span["spanId"]: span for scope in resource["scopeSpans"] for span in scope["spans"]})
        return spans


class Telemetry(PageCase):
    PAGE = "docs/telemetry.md"

    def test_the_audit_file(self):
        self.only(r"^audit:|^\{")
        config = self.claim("audit:").replace("/var/log/belay/", f"{self.dir}/")
        self.env["BELAY_CONFIG"] = str(self.write("c.yaml", config))
        self.ok("run", "--stack", "shop", "--environment", "prod", "--owner", "ci-4711", "--", "true")
        lines = (self.dir / "audit.jsonl").read_text().splitlines()
        shown = json.loads(self.claim('{"id"'))
        (line,) = [event for event in map(json.loads, lines) if event["event"] == shown["event"]]
        self.assertEqual(list(line), list(shown))
        for name in ("lock_key", "locked_by", "reason", "level"):
            self.assertEqual(line[name], shown[name])

    def test_the_spans_are_below_each_other_as_drawn(self):
        self.only(r"^the caller")
        collector = Collector(self)
        trace = "0af7651916cd43dd8448eb211c80319c"
        self.env.update(OTEL_EXPORTER_OTLP_ENDPOINT=collector.url, TRACEPARENT=f"00-{trace}-b7ad6b7169203331-01", no_proxy="*")
        silent = {"OTEL_SDK_DISABLED": "true"}
        lock = self.ok("acquire", "k", "--json", env=silent).json()
        waiter = self.start("run", "--wait", "1m", "k", "--", "true")
        wait_until(lambda: "wait.began" in self.ok("history", "k", env=silent).out, "the wait")
        self.ok("release", "k", "--id", lock["lock_id"], env=silent)
        self.assertEqual(waiter.wait(PATIENCE), 0)
        spans = collector.until("lock.acquire", "lock.wait", "lock.hold")
        found = {(span["name"], spans.get(span["parentSpanId"], {"name": "the caller"})["name"])
                 for span in spans.values() if span["traceId"] == trace}
        above, drawn = [], set()
        for line in self.claim("the caller").splitlines():
            depth, name = (len(line) - len(line.lstrip())) // 2, re.split(r"  +| \(", line.strip())[0]
            above[depth:] = [name]
            drawn |= {(name, above[depth - 1])} if depth else set()
        self.assertEqual(found, drawn)


class Notifications(PageCase):
    PAGE = "docs/notifications.md"
    ELSEWHERE = {r"^server:|^belay acquire notify-test|^import hashlib": "test/server/test_notify.py"}

    def test_the_body_of_a_notification(self):
        receiver = Receiver(self)
        target = f'notify: [{{format: json, url: "{receiver.url}", events: [lock.released]}}]\n'
        server = Server(self, config=self.write("c.yaml", f'server: {{webhooks: {{allow: ["127.0.0.1"]}}}}\n{target}'))
        shown = json.loads(self.claim('{"id":'))
        lock = server.acquire(shown["lock_key"], shown["locked_by"], locked_by_name=shown["locked_by_name"],
                              correlation_id=shown["metadata"]["correlation_id"]).json()
        server.release(shown["lock_key"], lock["lock_id"], outcome=shown["reason"])
        got = receiver.next()[1]
        varies = {"id": 0, "timestamp": "", "token": 0, "duration_seconds": 0}
        self.assertEqual(list(got), list(shown))
        self.assertEqual({**got, **varies}, {**shown, **varies})


class Locks(PageCase):
    PAGE = "docs/locks.md"

    def test_each_kind_has_an_example_that_does_what_it_says(self):
        names = re.findall(r"^## (.*)$", self.text, re.M)
        self.assertEqual(names, ["Exclusive", "Slots", "Shared", "Several keys", "Re-entrant", "Hierarchy", "Freeze"])
        text, blocks = self.text, self.blocks
        for name in names:
            with self.subTest(name):
                self.text, self.blocks = text, blocks
                self.section(name)
                commands = [self.take(command) for command in self.left]
                self.assertGreaterEqual(len(commands), 4)
                self.env["BELAY_STORE"] = f"sqlite:{self.dir}/{names.index(name)}.db"
                self.shell("\n".join(f"{command}\ncode=$?; [ $code = {exit_code(command)} ] || exit $((100 + code))"
                                     for command in commands))
        self.text, self.blocks = text, blocks


class Freezes(PageCase):
    PAGE = "docs/freeze.md"

    def test_every_command_line_of_the_page_does_what_it_says(self):
        shown = self.claim("belay: lock ").rstrip("\n")
        self.assertEqual(len(self.left), 8)
        self.type("belay freeze")
        self.type("belay freezes")
        refused = self.type("belay acquire").stderr
        self.assertEqual(re.sub(r"by \S+:", "by alice@laptop:", refused.splitlines()[0]), shown)
        for start in ("belay unfreeze", "belay freeze", "belay run", "belay history", "belay unfreeze"):
            self.type(start)


class SharedDatabases(PageCase):
    PAGE = "docs/shared-databases.md"

    def setUp(self):
        super().setUp()
        self.data = self.dir / "pg"
        self.data.mkdir()
        self.program("pg_ctl", f'case "$1" in stop) rm {self.data}/postmaster.pid ;; start) touch {self.data}/postmaster.pid ;; esac')
        self.program("pg_isready", f"test -e {self.data}/postmaster.pid")
        (self.data / "postmaster.pid").touch()

    def shows_among(self, start, code=None):
        """The lines on the page are among those of the output."""
        command, shown = self.take_with_output(start)
        done = self.run_line(command, code)
        lines = [self.plain(line) for line in (done.stderr + done.stdout).splitlines()]
        self.assertEqual([line for line in map(self.plain, shown.splitlines()) if line not in (*lines, "…")], [], lines)

    @staticmethod
    def plain(line):
        line = re.sub(r"owner=\S+", "owner=ID", line)
        return re.sub(r"\s+", " ", re.sub(r"requested at \S+ by \S+", "requested at TIME by USER", line)).strip()

    def test_the_worked_example(self):
        self.only(r"^(?!apps:)")
        self.assertIn(f"$ {self.claim('belay db stop --app shop')}", "".join(block.text for block in self.blocks))
        units = {name: self.dir / f"{name}.unit" for name in ("shop", "billing")}
        apps = {}
        for name, unit in units.items():
            apps[name] = Application(self, unit)
            unit.touch()
            self.replace(f"https://{name}.example/health", apps[name].url)
        self.replace("/srv/pg", self.data)
        self.env["BELAY_CONFIG"] = str(self.file("/etc/belay/config.yaml"))
        self.type("belay app register shop")
        self.type("belay app register billing")
        self.shows_among("belay db list")
        apps["shop"].stop()
        self.shows_among("belay db stop --app shop", 75)
        self.assertTrue((self.data / "postmaster.pid").exists())
        apps["billing"].stop()
        self.shows_among("belay db stop --app billing")
        self.assertFalse((self.data / "postmaster.pid").exists())
        self.type("belay db start --app shop")
        self.assertTrue((self.data / "postmaster.pid").exists())

    def test_the_file_of_the_registry_is_read_and_written_alike(self):
        self.only(r"^apps:")
        self.ok("app", "import", str(self.write("apps.yaml", self.claim("apps:"))))
        written = self.ok("app", "export").out
        (app,) = self.ok("app", "list", "--json").json()["apps"]
        self.assertEqual((app["name"], app["labels"], app["state"]), ("shop", {"team": "payments"}, "stopped"))
        self.ok("app", "import", str(self.write("again.yaml", written)))
        self.assertEqual(self.ok("app", "export").out, written)


if __name__ == "__main__":
    main()
