"""The recipes of docs/fencing.md, each with a paused holder (L2).

Holder 1 is stopped, belay and its guardian with it, until its lease is over. Holder 2 takes the lock with a higher
token and writes. Then holder 1's command continues, while belay is still stopped and cannot end it, and writes late.
Each recipe rejects that write; the same write without the token, the control, destroys what holder 2 wrote.
"""

import http.server
import json
import os
import pwd
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "test" / folder) for folder in ("cli", "s3", "dynamodb", "shared_db")]

from dynamo_support import CREDENTIALS, Database, server_port  # noqa: E402  (after the path is known)
from run_support import RunCase  # noqa: E402
from s3_support import S3Server  # noqa: E402
from shared_db_support import postgres_bin  # noqa: E402
from support import BELAY, free_port, main, wait_until  # noqa: E402

EXAMPLES = ROOT / "examples" / "fencing"
KEY = "release"


def page_lines():
    text = (ROOT / "docs" / "fencing.md").read_text(encoding="utf-8")
    return [line.strip() for line in re.findall(r"^    (.*)$", text, re.M) if line.strip()]


def page_commands():
    return [line for line in page_lines() if line.startswith(("belay ", "curl "))]


def recipe(name, *args):
    return shlex.join([str(EXAMPLES / name), *args])


class Recipe:
    """Before RunCase: a recipe says how it writes, how it would without a token, and how the value is read."""

    REASON = "is too old"  # in the output of a write that is rejected
    LINE = ""  # in the line of the page that writes

    def write(self, value):
        raise NotImplementedError

    def naive(self, value):
        raise NotImplementedError

    def value(self):
        raise NotImplementedError

    def pause(self, script):
        """Holder 1, stopped before `script` begins; its lease is over. Returns the process of its command."""
        process, command = self.start_command("--ttl", "2s", key=KEY, script=(
            f"until [ -e go ]; do sleep 0.02; done; ( {script} ) >late.out 2>&1; echo $? >late"))
        guardian = self.guardian_of(process.pid)
        for pid in (guardian, process.pid, command):
            os.kill(pid, signal.SIGSTOP)
        wait_until(lambda: self.status(KEY)["status"] == "expired", "the end of the lease")
        return command

    def go_on(self, command):
        """Holder 1 continues, belay does not. Returns the exit code of its late write."""
        (self.dir / "go").touch()
        os.kill(command, signal.SIGCONT)
        wait_until(lambda: self.has("late") and self.read("late").endswith("\n"), "the late write")
        return int(self.read("late"))

    def hold_and_write(self, script):
        self.ok("run", KEY, "--", "sh", "-c", script)

    def test_a_late_write_of_a_paused_holder_is_rejected(self):
        self.hold_and_write(self.write("zero"))
        command = self.pause(self.write("one"))
        self.hold_and_write(self.write("two"))
        self.assertEqual(self.value(), "two")
        self.assertNotEqual(self.go_on(command), 0, self.read("late.out"))
        self.assertIn(self.REASON, self.read("late.out"))
        self.assertEqual(self.value(), "two")
        self.hold_and_write(self.write("three"))
        self.assertEqual(self.value(), "three")

    def test_the_line_of_the_page_writes(self):
        line, = [line for line in page_commands() if line.startswith("belay run") and self.LINE in line]
        self.run_line(line, cwd=ROOT)
        self.assertEqual(self.value(), "1.4.2")

    def run_line(self, line, cwd):
        (self.dir / "path").mkdir()
        (self.dir / "path" / "belay").symlink_to(os.path.abspath(BELAY))
        done = subprocess.run(["bash", "-c", line], cwd=cwd, capture_output=True, text=True, timeout=60,
                              env={**self.env, "PATH": f"{self.dir}/path:{self.env['PATH']}"})
        self.assertEqual(done.returncode, 0, done)

    def test_without_a_token_the_recipe_fails(self):
        done = subprocess.run(["sh", "-c", self.write("one")], cwd=self.dir, env={**self.env, "BELAY_KEY": KEY},
                              capture_output=True)
        self.assertNotEqual(done.returncode, 0)

    def test_without_the_token_the_late_write_would_have_been_made(self):
        self.hold_and_write(self.naive("zero"))
        command = self.pause(self.naive("one"))
        self.hold_and_write(self.naive("two"))
        self.assertEqual(self.value(), "two")
        self.assertEqual(self.go_on(command), 0, self.read("late.out"))
        self.assertEqual(self.value(), "one")


class PostgreSQL(Recipe, RunCase):
    LINE = "postgresql-write.sh"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.home = tempfile.mkdtemp(prefix="belay-fence-pg-")
        cls.addClassCleanup(shutil.rmtree, cls.home, ignore_errors=True)
        data, port = f"{cls.home}/data", free_port()
        drop = ["runuser", "-u", "nobody", "--"] if os.getuid() == 0 else []  # PostgreSQL refuses to run as root
        if drop:
            os.chown(cls.home, pwd.getpwnam("nobody").pw_uid, -1)

        def control(program, *args):
            subprocess.run([*drop, f"{postgres_bin()}/{program}", "-D", data, *args], check=True, cwd="/",
                           stdout=subprocess.DEVNULL)
        control("initdb", "-A", "trust", "-U", "test", "--no-sync")
        control("pg_ctl", "-w", "-l", f"{cls.home}/log", "-o",
                f"-p {port} -k {cls.home} -c fsync=off -c listen_addresses=127.0.0.1", "start")
        cls.addClassCleanup(control, "pg_ctl", "-m", "immediate", "stop")
        cls.settings = {"PGHOST": "127.0.0.1", "PGPORT": str(port), "PGUSER": "test", "PGDATABASE": "postgres"}

    def make_store(self):
        super().make_store()
        self.env.update(self.settings)
        self.sql("DROP TABLE IF EXISTS settings, fence")
        self.sql("CREATE TABLE settings (name text PRIMARY KEY, value text)")
        self.sql("INSERT INTO settings VALUES ('release', '')")
        self.psql("-f", str(EXAMPLES / "postgresql.sql"))

    def psql(self, *args):
        return subprocess.run(["psql", "-qAt", "-v", "ON_ERROR_STOP=1", *args], env=self.env, check=True,
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout.strip()

    def sql(self, text):
        return self.psql("-c", text)

    def write(self, value):
        return recipe("postgresql-write.sh", value)

    def naive(self, value):
        return f"psql -q -c \"UPDATE settings SET value = '{value}'\""

    def value(self):
        return self.sql("SELECT value FROM settings")

    def test_a_transaction_that_waits_for_a_newer_one_is_rejected_when_that_commits(self):
        """Two at once: the row of the token is locked until the first one has committed."""
        newer = subprocess.Popen(["psql", "-q"], env=self.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        newer.stdin.write("BEGIN; SELECT fence('release', 9); UPDATE settings SET value = 'new';\n\\echo ready\n")
        newer.stdin.flush()
        while newer.stdout.readline() != "ready\n":
            pass
        older = subprocess.Popen(["sh", "-c", self.write("old")], stderr=subprocess.PIPE, text=True,
                                 env={**self.env, "BELAY_KEY": "release", "BELAY_TOKEN": "8"})
        wait_until(lambda: self.sql("SELECT count(*) FROM pg_locks WHERE NOT granted") != "0", "the older one to wait")
        newer.communicate("COMMIT;\n")
        self.assertIn("token 8 of release is too old", older.communicate()[1])
        self.assertEqual((older.returncode != 0, self.value()), (True, "new"))


class SQLite(Recipe, RunCase):
    LINE = "sqlite-write.py"

    def make_store(self):
        super().make_store()
        self.sql("CREATE TABLE settings (name TEXT PRIMARY KEY, value TEXT); INSERT INTO settings VALUES ('release', '')")

        self.env["file"] = self.path("data.db")

    def sql(self, text):
        script = "import sqlite3, sys; print(*(r[0] for s in sys.argv[2].split(';') for r in sqlite3.connect(sys.argv[1], isolation_level=None).execute(s)))"
        return subprocess.run([sys.executable, "-c", script, self.path("data.db"), text], check=True, capture_output=True,
                              text=True).stdout.strip()

    def write(self, value):
        return recipe("sqlite-write.py", "data.db", value)

    def naive(self, value):
        return shlex.join([sys.executable, "-c", "import sqlite3, sys; db = sqlite3.connect('data.db', isolation_level=None); "
                                                 "db.execute('UPDATE settings SET value = ?', sys.argv[1:])", value])

    def value(self):
        return self.sql("SELECT value FROM settings")


class S3(Recipe, RunCase):
    LINE = "s3-write.sh"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.s3 = S3Server("conditions")
        cls.addClassCleanup(cls.s3.stop)
        cls.number = 0

    def make_store(self):
        super().make_store()
        type(self).number += 1
        self.url = f"http://127.0.0.1:{self.s3.port}/states/release-{self.number}"
        self.env.update(url=self.url, AWS_ACCESS_KEY_ID="AKIDEXAMPLE", AWS_SECRET_ACCESS_KEY="wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY",
                        AWS_REGION="eu-west-1", no_proxy="*")

    def write(self, value):
        return recipe("s3-write.sh", self.url, value)

    def signed(self, body, *args):
        sha = subprocess.run(["sha256sum"], input=body.encode(), capture_output=True, check=True).stdout.split()[0].decode()
        return shlex.join(["curl", "-sS", "--fail-with-body", "--aws-sigv4", "aws:amz:eu-west-1:s3", "-u",
                           f"{self.env['AWS_ACCESS_KEY_ID']}:{self.env['AWS_SECRET_ACCESS_KEY']}",
                           "-H", f"x-amz-content-sha256: {sha}", *args, self.url])

    def naive(self, value):
        return self.signed(f"0\n{value}", "-X", "PUT", "--data-binary", f"0\n{value}")

    def value(self):
        return subprocess.run(self.signed(""), shell=True, env=self.env, capture_output=True, check=True,
                              text=True).stdout.split("\n")[1]

    def test_a_holder_that_is_paused_between_its_read_and_its_write_is_rejected(self):
        self.hold_and_write(self.write("zero"))
        (self.dir / "bin").mkdir()
        wrapper = self.dir / "bin" / "curl"
        wrapper.write_text(f"#!/bin/sh\ncase $* in *PUT*) touch reading-done; until [ -e go ]; do sleep 0.02; done;; esac\n"
                           f"exec {shutil.which('curl')} \"$@\"\n")
        wrapper.chmod(0o755)
        late = subprocess.Popen(["sh", "-c", self.write("one")], cwd=self.dir, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                env={**self.env, "PATH": f"{self.dir}/bin:{self.env['PATH']}", "BELAY_TOKEN": "4"})
        wait_until(lambda: self.has("reading-done"), "the late holder to have read the object")
        self.ok("run", KEY, "--", "sh", "-c", "BELAY_TOKEN=5 " + self.write("two"))
        (self.dir / "go").touch()
        self.assertIn(b"PreconditionFailed", late.communicate()[0])
        self.assertEqual((late.returncode != 0, self.value()), (True, "two"))


class DynamoDB(Recipe, RunCase):
    LINE = "dynamodb-write.sh"
    REASON = "ConditionalCheckFailed"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.database = Database(server_port())
        cls.env_of_aws = {**CREDENTIALS, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server_port()}"}
        cls.database("CreateTable", TableName="settings", BillingMode="PAY_PER_REQUEST",
                     AttributeDefinitions=[{"AttributeName": "name", "AttributeType": "S"}],
                     KeySchema=[{"AttributeName": "name", "KeyType": "HASH"}])
        cls.addClassCleanup(cls.database, "DeleteTable", TableName="settings")

    def make_store(self):
        super().make_store()
        self.env.update(self.env_of_aws)
        self.database("DeleteItem", TableName="settings", Key={"name": {"S": "release"}})

    def write(self, value):
        return recipe("dynamodb-write.sh", value)

    def naive(self, value):
        request = {"TableName": "settings", "Item": {"name": {"S": "release"}, "content": {"S": value}}}
        return shlex.join(["curl", "-sS", "--fail-with-body", "--aws-sigv4", "aws:amz:us-east-1:dynamodb", "-u", "AKIDEXAMPLE:x",
                           "-H", "Content-Type: application/x-amz-json-1.0", "-H", "X-Amz-Target: DynamoDB_20120810.PutItem",
                           "-d", json.dumps(request), self.env["AWS_ENDPOINT_URL"]])

    def value(self):
        return self.database("GetItem", TableName="settings", ConsistentRead=True,
                             Key={"name": {"S": "release"}})["Item"]["content"]["S"]


    def test_a_value_is_never_read_as_part_of_the_request(self):
        for value in ('say "hi"', 'a\\', '"}, ":token": {"N": "999"}, ":content": {"S": "'):
            self.ok("run", "release", "--", *shlex.split(self.write(value)))
            self.assertEqual(self.value(), value)


class Git(Recipe, RunCase):
    LINE = "git push"

    def make_store(self):
        super().make_store()
        self.env.update(GIT_AUTHOR_NAME="t", GIT_AUTHOR_EMAIL="t@example.com", GIT_COMMITTER_NAME="t",
                        GIT_COMMITTER_EMAIL="t@example.com", GIT_CONFIG_NOSYSTEM="1")
        self.git("init", "-q", "--bare", "origin.git")
        self.git("-C", "origin.git", "config", "receive.advertisePushOptions", "true")
        shutil.copy(EXAMPLES / "git-pre-receive.sh", self.dir / "origin.git" / "hooks" / "pre-receive")
        self.git("init", "-q", "-b", "main", "work")
        for value in ("zero", "one", "two", "three"):
            self.git("-C", "work", "commit", "-q", "--allow-empty", "-m", value)
            self.git("-C", "work", "tag", value)

    def git(self, *args):
        return subprocess.run(["git", *args], cwd=self.dir, env=self.env, check=True, capture_output=True,
                              text=True).stdout.strip()

    def write(self, value):
        return f'git -C work push -q -f -o fence="$BELAY_TOKEN" ../origin.git {value}^{{}}:refs/heads/main'

    def naive(self, value):
        (self.dir / "origin.git" / "hooks" / "pre-receive").unlink(missing_ok=True)
        return f"git -C work push -q -f ../origin.git {value}^{{}}:refs/heads/main"

    def value(self):
        return self.git("-C", "origin.git", "log", "-1", "--format=%s", "main")

    def test_the_line_of_the_page_writes(self):
        line, = [line for line in page_commands() if self.LINE in line]
        self.git("-C", "work", "remote", "add", "origin", "../origin.git")
        self.run_line(line, cwd=self.dir / "work")
        self.assertEqual(self.value(), "three")

    def test_a_push_without_a_token_or_with_a_wrong_one_is_rejected(self):
        for options in ("", "-o fence=", "-o fence=x", "-o fence=0", "-o fence=-1", "-o other=5"):
            with self.subTest(options):
                done = subprocess.run(f"git -C work push -q {options} ../origin.git HEAD:refs/heads/main", shell=True,
                                      cwd=self.dir, env=self.env, capture_output=True)
                self.assertNotEqual(done.returncode, 0)


    def test_a_full_disk_rejects_the_push_and_keeps_the_highest_token(self):
        fence = self.dir / "origin.git" / "fence"
        fence.write_text("5\n")
        done = subprocess.run(["prlimit", "--fsize=0", "sh", EXAMPLES / "git-pre-receive.sh"], capture_output=True,
                              env={**self.env, "GIT_DIR": str(self.dir / "origin.git"), "GIT_PUSH_OPTION_COUNT": "1",
                                   "GIT_PUSH_OPTION_0": "fence=7"})
        self.assertNotEqual(done.returncode, 0, done)
        self.assertEqual(fence.read_text(), "5\n")


class HttpService(Recipe, RunCase):
    LINE = "Fence:"
    REASON = "409"

    def make_store(self):
        super().make_store()
        port = free_port()
        service = subprocess.Popen([str(EXAMPLES / "http-service.py"), self.path("service.db"), str(port)],
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(service.wait)
        self.addCleanup(service.kill)
        self.url = f"http://127.0.0.1:{port}/release"
        self.env.update(url=self.url, no_proxy="*")

        def is_up():
            with socket.socket() as probe:
                return probe.connect_ex(("127.0.0.1", port)) == 0
        wait_until(is_up, "the service")

    def write(self, value):
        return f'curl -sS --fail -X PUT -H "Fence: $BELAY_TOKEN" -d {value} "$url"'

    def naive(self, value):
        return f'curl -sS --fail -X PUT -H "Fence: 9" -d {value} "$url"'

    def value(self):
        return urllib.request.urlopen(self.url).read().decode()


class FakeApiServer(http.server.ThreadingHTTPServer):
    """
    One ConfigMap. Not Kubernetes, but for these two requests it does what the API server does: a GET has the object with
    its resourceVersion, which each change replaces; a merge patch that has another resourceVersion is 409 Conflict.
    """

    def __init__(self):
        super().__init__(("127.0.0.1", free_port()), FakeApi)
        self.object = {"kind": "ConfigMap", "metadata": {"name": "settings", "resourceVersion": "1"}, "data": {}}
        self.before_answer = None  # called once after the object was read, before it is sent
        self.mutex = threading.Lock()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def patch(self, change):
        with self.mutex:
            metadata = change.get("metadata", {})
            version = self.object["metadata"]["resourceVersion"]
            if metadata.get("resourceVersion", version) != version:
                return 409, {"kind": "Status", "reason": "Conflict", "code": 409}
            self.object["metadata"].setdefault("annotations", {}).update(metadata.get("annotations", {}))
            self.object["metadata"]["resourceVersion"] = str(int(version) + 1)
            self.object["data"].update(change["data"])
            return 200, self.object


class FakeApi(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = json.dumps(self.server.object)
        call, self.server.before_answer = self.server.before_answer, None
        if call is not None:
            call()
        self.answer(200, body)

    def do_PATCH(self):
        if self.headers["Content-Type"] != "application/merge-patch+json" or self.headers["Authorization"] != "Bearer t":
            self.answer(415, "{}")
            return
        status, body = self.server.patch(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.answer(status, json.dumps(body))

    def answer(self, status, body):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *args):
        pass


class Kubernetes(Recipe, RunCase):
    LINE = "kubernetes-write.py"
    PATH = "/api/v1/namespaces/prod/configmaps/settings"

    def make_store(self):
        super().make_store()
        self.api = FakeApiServer()
        self.addCleanup(self.api.server_close)
        self.addCleanup(self.api.shutdown)
        self.env.update(KUBE_URL=f"http://127.0.0.1:{self.api.server_port}", KUBE_TOKEN="t", no_proxy="*")

    def write(self, value):
        return recipe("kubernetes-write.py", self.PATH, value)

    def naive(self, value):
        return shlex.join(["curl", "-sS", "--fail", "-X", "PATCH", "-H", "Content-Type: application/merge-patch+json", "-H",
                           "Authorization: Bearer t", "-d", json.dumps({"data": {"release": value}}),
                           self.env["KUBE_URL"] + self.PATH])

    def value(self):
        return self.api.object["data"]["release"]

    def test_a_holder_that_is_paused_between_its_read_and_its_write_is_rejected(self):
        self.api.before_answer = lambda: self.api.patch({"metadata": {"annotations": {"belay/fence": "5"}},
                                                         "data": {"release": "two"}})
        done = subprocess.run(["sh", "-c", self.write("one")], env={**self.env, "BELAY_TOKEN": "4"}, capture_output=True)
        self.assertIn(b"409", done.stderr)
        self.assertEqual((done.returncode != 0, self.value()), (True, "two"))


class Page(RunCase):
    """Every line that docs/fencing.md shows is a line of an example, or a test runs it."""

    DRAWING = ("holder 1 ", "holder 2 ")

    def test_what_the_page_shows_is_in_the_examples_or_runs(self):
        examples = {line.strip() for path in EXAMPLES.iterdir() for line in path.read_text(encoding="utf-8").splitlines()}
        ways = [case.LINE for case in Recipe.__subclasses__()]
        others = []
        for line in page_lines():
            if line in page_commands():
                others += [] if any(way in line for way in ways) else [line]
            elif not line.startswith(self.DRAWING):
                self.assertIn(line, examples)
        self.assertEqual(len(others), 3, others)
        self.run_lines(others)

    def test_the_page_names_every_example(self):
        text = (ROOT / "docs" / "fencing.md").read_text(encoding="utf-8")
        for path in EXAMPLES.iterdir():
            self.assertIn(f"(../examples/fencing/{path.name})", text)

    def run_lines(self, lines):
        (self.dir / "path").mkdir()
        (self.dir / "path" / "belay").symlink_to(os.path.abspath(BELAY))
        (self.dir / "migrate").write_text("#!/bin/sh\necho migrated\n")
        (self.dir / "migrate").chmod(0o755)
        server = self.start("serve", "--json", "--listen", f"127.0.0.1:{free_port()}", stderr=subprocess.DEVNULL)
        url = json.loads(server.stdout.readline())["listening"][0]
        env = {**self.env, "PATH": f"{self.dir}/path:{self.env['PATH']}", "url": url, "no_proxy": "*"}
        done = subprocess.run(["bash", "-c", lines[0]], cwd=self.dir, env=env, capture_output=True, text=True, timeout=60)
        self.assertEqual((done.returncode, done.stdout.splitlines()[-1]), (0, "migrated"), done)
        lock = self.ok("acquire", "--json", "deploy-api-prod").json()
        for line in lines[1:]:
            for token, expected in ((lock["token"], True), (lock["token"] - 1, False)):
                done = subprocess.run(["bash", "-c", line], cwd=self.dir, env={**env, "token": str(token)}, capture_output=True,
                                      text=True, timeout=60)
                self.assertEqual(done.returncode == 0, expected, (line, done))


if __name__ == "__main__":
    main()
