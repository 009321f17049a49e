"""The pages of docs/jobs: every command, file and crontab line is typed, and does what the page says."""

import json
import re
import shutil
import subprocess
import unittest

from page_support import PATIENCE, ROOT, Application, PageCase, Server, main, postgresql, wait_until
from webhook_support import Receiver, is_signed


class Cron(PageCase):
    PAGE = "docs/jobs/cron.md"
    STUBS = ("/usr/local/bin/report",)

    def setUp(self):
        super().setUp()
        self.replace("/usr/local/bin/report", "report")
        self.replace("/var/log/report.log", self.dir / "report.log")

    def hold(self):
        self.program("hang", f'exec sleep {PATIENCE * 4}')
        holder = self.start("run", "report", "--", "hang")
        wait_until(lambda: self.belay("status", "--quiet", "report").out == "active\n", "the lock")
        return holder

    def test_the_page(self):
        job, store = self.crontab()
        self.assertEqual(store, "BELAY_STORE=postgresql://cron@db.example/locks")
        self.shell(job, shell="sh")
        self.assertEqual(self.ran(), ["report"])
        self.type("belay run report -- timeout 30m report")
        holder = self.hold()
        self.shell(job, shell="sh")
        self.assertEqual(len(self.ran()), 2, "it runs once at a time")
        self.assertIn("lock 'report' held by", (self.dir / "report.log").read_text())
        choices = re.findall(r"\| `(belay run [^`]*) -- …`", self.text)
        self.assertEqual(len(choices), 3)
        self.shell(f"{choices[0]} -- report")
        self.shell(f"{choices[2]} -- report", 75)
        self.assertIn("active", self.type("belay status report").stdout)
        waiter = subprocess.Popen(["sh", "-c", f"exec {choices[1]} -- report"], env=self.env, cwd=self.dir, stderr=subprocess.DEVNULL)
        self.addCleanup(self.end, waiter)
        wait_until(lambda: "wait.began" in self.events("report"), "the wait")
        self.type("belay unlock report")
        self.assertEqual((holder.wait(PATIENCE), waiter.wait(PATIENCE)), (76, 0))
        self.assertEqual(len(self.ran()), 3)
        self.assertIn("it hangs", self.type("belay history report").stdout)


class GitHubActions(PageCase):
    PAGE = "docs/jobs/github-actions.md"
    STUBS = ("./deploy.sh",)

    def serve(self):
        """As the page says, with a certificate of our own."""
        entry = self.type("belay auth new").stderr
        line = re.search(r"\{.*\}", entry)[0]
        self.replace('{"name":"github","role":"locker","keys":["deploy-*"],"sha256":"…"}', line)
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
                        "-subj", "/CN=belay", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", "server.key", "-out", "server.pem"],
                       check=True, capture_output=True, cwd=self.dir)
        config = self.file("server.yaml")
        self.assertEqual(self.take("belay serve"), "belay serve --config server.yaml")
        return Server(self, config=config)

    def test_the_page(self):
        server = self.serve()
        self.replace("https://locks.example.com:7420", server.url)
        workflow = self.file(".github/workflows/deploy.yml").read_text()
        self.env.update(re.findall(r"^      (BELAY_STORE): (\S+)$", workflow, re.M))
        self.assertIn("      BELAY_AUTH_TOKEN: ${{ secrets.BELAY_AUTH_TOKEN }}\n", workflow)
        self.env.update(BELAY_AUTH_TOKEN=(self.dir / "token").read_text().strip(), BELAY_CA_FILE=str(self.dir / "server.pem"),
                        GITHUB_ACTIONS="true", GITHUB_SERVER_URL="https://github.example", GITHUB_REPOSITORY="o/r")
        step = re.search(r"^      - run: (.*)$", workflow, re.M)[1]
        self.program("./deploy.sh", 'until [ -e go ]; do sleep 0.05; done; echo "$GITHUB_RUN_ID" >>ran')
        first = self.step(step, "1")
        wait_until(lambda: "github-actions-run-1" in self.belay("list").out, "the first deploy")
        second = self.step(step, "2")
        log = second.stderr.readline()
        self.assertIn("1st in the queue for 'deploy-api-prod', held by", log)
        self.assertIn("https://github.example/o/r/actions/runs/1", log)
        self.assertEqual(self.belay("status", "--json", "deploy-api-prod").json()["ttl_ms"], 120000)
        self.assertIn("deploy-api-prod", self.type("belay list").stdout)
        (self.dir / "go").touch()
        self.assertEqual((first.wait(PATIENCE), second.wait(PATIENCE)), (0, 0))
        self.assertEqual(self.ran(), ["1", "2"])

    def step(self, command, run):
        process = subprocess.Popen(["bash", "-e", "-c", command], env={**self.env, "GITHUB_RUN_ID": run}, cwd=self.dir,
                                   stderr=subprocess.PIPE, encoding="utf-8")
        self.addCleanup(self.end, process)
        return process


class Terraform(PageCase):
    PAGE = "docs/jobs/terraform.md"

    def test_the_page(self):
        if shutil.which("terraform") is None:
            self.skipTest("terraform is not installed")
        (self.dir / "terraformrc").write_text("disable_checkpoint = true\n")
        self.env.update(TF_CLI_CONFIG_FILE=str(self.dir / "terraformrc"), TF_IN_AUTOMATION="1")
        self.assertEqual(self.take("belay serve"), "belay serve")
        server = Server(self)
        self.replace("http://127.0.0.1:7420", server.url)
        self.file("main.tf")
        self.type("terraform init")
        self.type("terraform apply")
        self.assertEqual(self.belay("status", "--quiet", "terraform/network-prod").out, "released\n")
        self.assertIn("lock.released", self.type("belay history").stdout)
        self.type("belay unlock")
        versions = json.loads(self.type("curl").stdout)["versions"]
        self.assertEqual([version["index"] for version in versions], [1])
        restored = json.loads(self.type("curl -d").stdout)
        self.assertEqual(restored["resources"][0]["instances"][0]["attributes"]["input"]["value"], "1.4.2")
        lock = self.acquire("terraform/network-prod")
        refused = self.shell("terraform apply -auto-approve", 1)
        self.assertIn("Error acquiring the state lock", refused.stderr)
        self.ok("release", "terraform/network-prod", "--id", lock["lock_id"])
        self.assertEqual(server.call("LOCK", "/v1/terraform/network-prod?lease=30m", {"ID": "a"}).status, 200)
        self.assertEqual(self.belay("status", "--json", "terraform/network-prod").json()["ttl_ms"], 30 * 60000)

    def tearDown(self):
        if shutil.which("terraform") is not None:
            super().tearDown()


class Slack(PageCase):
    PAGE = "docs/jobs/slack.md"
    STUBS = ("./build.sh",)

    def serve(self, bot, slack):
        token = self.shell("belay auth new --name bot --role locker --keys 'build-*'")
        entry = re.search(r"\{.*\}", token.stderr)[0]
        self.replace('{"name":"bot","role":"locker","keys":["build-*"],"sha256":"…"}', entry)
        self.replace("https://bot.example.com/granted", bot.url)
        self.replace("webhooks: {", 'webhooks: {allow: ["127.0.0.1"], ')  # the receivers are on this machine
        for name, content in (("webhook.secret", "secret"), ("slack.url", slack.url)):
            (self.dir / name).write_text(content + "\n")
            (self.dir / name).chmod(0o600)
        config = self.file("server.yaml")
        self.assertEqual(self.take("belay serve"), "belay serve --config server.yaml")
        server = Server(self, config=config)
        self.env.update(BELAY_AUTH_TOKEN=token.stdout.strip(), BELAY_STORE=server.url, url=server.url)

    def test_the_page(self):
        bot, slack = Receiver(self), Receiver(self)
        self.serve(bot, slack)
        earlier = self.acquire("build-router-prod")
        queued = json.loads(self.type("curl").stdout)
        self.assertEqual((queued["key"], queued["status"], queued["position"]), ("build-router-prod", "queued", 0))
        self.ok("release", "build-router-prod", "--id", earlier["lock_id"])
        self.assertIn("build-router-prod", json.dumps(slack.next()[1]))
        headers, lock, body = bot.next()
        self.assertEqual((headers["Belay-Event"], lock["lock_id"]), ("lock.granted", "build-812"))
        self.assertTrue(is_signed(headers, body, "secret"))
        self.env["LOCK_ID"] = lock["lock_id"]
        job = self.left[0]
        self.type("belay run --adopt")
        self.shell(job, 77)
        self.assertEqual(self.ran(), ["build.sh"], "delivered twice, it runs once")
        told = json.dumps(slack.next()[1])
        self.assertIn("completed", told)
        self.assertIn("1763251200.000100", told)
        self.take_a_request_out(bot)

    def take_a_request_out(self, bot):
        self.acquire("build-router-prod")
        body = {"key": "build-router-prod", "locked_by": "U2", "lock_id": "build-813", "wait_ms": 60000, "webhook": {"url": bot.url}}
        self.shell(f"curl --fail -H \"Authorization: Bearer $BELAY_AUTH_TOKEN\" $url/v1/acquire -d '{json.dumps(body)}'")
        show = self.left[0]
        self.assertEqual(self.queue(self.type("curl")), ["U2"])
        self.type("curl")
        self.assertEqual(self.queue(self.shell(show)), [])

    @staticmethod
    def queue(done):
        return [waiter["locked_by"] for waiter in json.loads(done.stdout)["waiting"]]


class Databases(PageCase):
    PAGE = "docs/jobs/databases.md"

    def setUp(self):
        super().setUp()
        # One unit is one file; a health check answers while the file of its application is there.
        self.program("systemctl", f"""cd {self.dir}
            case "$*" in
            *is-active*) test -e "$3.unit" ;;
            start*) touch "$2.unit" ;;
            stop*) rm -f "$2.unit" ;;
            esac""")
        self.program("pg_isready", f"test -e {self.dir}/postgresql.unit")
        self.config = self.file("/etc/belay/config.yaml")
        self.env["BELAY_CONFIG"] = str(self.config)
        for name in ("shop", "billing"):
            unit = self.dir / f"{name}.unit"
            app = Application(self, unit)
            self.replace(f"http://{name}.example/health", app.url)
            unit.touch()
        (self.dir / "postgresql.unit").touch()

    def is_up(self):
        return (self.dir / "postgresql.unit").exists()

    def test_the_page(self):
        self.replace("--wait 5m", "--wait 1s")
        self.type("belay app register shop")
        self.type("belay app register billing")
        self.assertIn("billing shop", self.type("belay db list").stdout)
        evening, night, early, morning = self.crontab()
        self.shell(evening, 75, "sh")
        self.assertTrue(self.is_up())
        self.assertIn("skipped_shared_active", self.type("belay db stop --app shop --dry-run", 75).stdout)
        self.assertIn("UP", self.type("belay app status billing").stdout)
        self.shell(night, 0, "sh")
        self.assertFalse(self.is_up())
        self.assertIn("db.stop.stopped", self.type("belay history").stdout)
        self.shell(early, 0, "sh")
        self.assertTrue(self.is_up() and (self.dir / "shop.unit").exists())
        self.shell(morning, 0, "sh")
        self.assertTrue((self.dir / "billing.unit").exists())


class Fleet(PageCase):
    PAGE = "docs/jobs/fleet.md"
    STUBS = ("./deploy.sh",)

    def test_the_page(self):
        database = postgresql.Server().init().start(quick=False)  # 'belay doctor' objects to fsync=off
        self.addCleanup(database.close)
        for text in ("CREATE ROLE admin LOGIN", "CREATE ROLE deployers", "CREATE ROLE deploy LOGIN IN ROLE deployers",
                     "CREATE DATABASE locks OWNER admin"):
            database.sql(text)
        self.replace("db.example", f"127.0.0.1:{database.port}")
        self.type("export BELAY_STORE")
        self.type("belay table create")
        self.type("export BELAY_STORE")
        self.assertNotIn("FAILED", self.type("belay doctor").stdout)
        self.type("belay run")
        self.assertEqual(self.ran(), ["deploy.sh"])
        lock = self.acquire("deploy-api-prod")
        self.assertIn("deploy-api-prod", self.type("belay list").stdout)
        self.ok("release", "deploy-api-prod", "--id", lock["lock_id"])
        lock = self.lock_over_a_failover(database)
        self.assertEqual(self.take("belay serve"), "belay serve")
        server = Server(self)
        self.fails(75, "acquire", "deploy-api-prod", "--store", server.url)
        self.ok("release", "deploy-api-prod", "--id", lock["lock_id"], "--store", server.url)
        self.ok("acquire", "deploy-api-prod")

    def lock_over_a_failover(self, database):
        copy = database.standby()
        self.addCleanup(copy.close)
        copy.start(quick=False)
        database.wait_for_standbys("*")
        wait_until(lambda: database.sql("SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'") == "1", "the standby")
        self.replace("db1.example", f"127.0.0.1:{database.port}")
        self.replace("db2.example", f"127.0.0.1:{copy.port}")
        self.type("export BELAY_STORE")
        lock = self.acquire("deploy-api-prod")
        database.kill()
        copy.run("pg_ctl", "promote", "-D", copy.home, "-w")
        self.assertIn("active", self.type("belay status").stdout)
        return lock


class EveryPage(unittest.TestCase):
    def test_has_a_case_here_a_link_in_the_readme_and_the_size_of_a_screen(self):
        typed = {case.PAGE for case in PageCase.__subclasses__()}
        readme = (ROOT / "README.md").read_text(encoding="utf-8")
        pages = sorted((ROOT / "docs" / "jobs").glob("*.md"))
        self.assertGreater(len(pages), 5)
        for page in pages:
            name = str(page.relative_to(ROOT))
            self.assertIn(name, typed)
            self.assertIn(f"]({name})", readme)
            self.assertLessEqual(len(page.read_text(encoding="utf-8").splitlines()), 52, name)


if __name__ == "__main__":
    main()
