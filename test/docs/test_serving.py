"""docs/server.md and docs/dashboard.md, with real servers."""

import hashlib
import os
import re
import shutil
import subprocess

from page_support import BELAY, PATIENCE, ROOT, PageCase, Server, main, normal, postgresql, wait_until
from support import free_port
from test_top import Screen


class ServerPage(PageCase):
    PAGE = "docs/server.md"
    STUBS = ("./deploy.sh",)

    def test_it_starts_and_local_commands_use_it(self):
        self.only(r"^belay serve$|^server:\n  connections|^\$ belay status")
        self.assertEqual(self.take("belay serve"), "belay serve")
        config = self.write("server.yaml", self.claim("server:\n  connections:"))
        server = Server(self, config=config)
        self.acquire("deploy-api-prod")
        self.replace("4711", server.process.pid)
        self.replace("sqlite:/var/lib/belay/belay.db", self.store)
        self.shows("belay status deploy-api-prod")

    def certificate(self):
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
                        "-subj", "/CN=belay", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", "server.key", "-out", "server.pem"],
                       check=True, capture_output=True, cwd=self.dir)

    def test_tokens_and_tls(self):
        self.only(r"^server:\n  listen|^belay auth new|^export BELAY_STORE=https://locks.example")
        config = self.claim("server:\n  listen:").replace("/etc/belay/", f"{self.dir}/")
        made = self.type("belay auth new")
        ours = re.search(r"\{.*\}", made.stderr)[0]
        self.assertIn('"keys":["build-*"]', ours)
        self.certificate()
        secrets = iter(("ci-token", "dashboard-token", "ops-token"))
        config = re.sub("…", lambda _: hashlib.sha256(next(secrets).encode()).hexdigest(), config)
        self.assertEqual(list(secrets), [])
        server = Server(self, config=self.write("server.yaml", f"{config}    - {ours}\n"))
        self.replace("https://locks.example.com:7420", server.url)
        self.env["BELAY_CA_FILE"] = str(self.dir / "server.pem")
        token = self.dir / "home/.config/belay/token"
        token.parent.mkdir(parents=True)
        token.write_text("ci-token\n")
        token.chmod(0o600)
        self.type("export BELAY_STORE")
        self.type("export BELAY_AUTH_FILE")
        self.type("belay run --wait 10m deploy-api-prod")
        self.assertEqual(self.ran(), ["deploy.sh"])
        self.fails(77, "acquire", "other")
        token.write_text(made.stdout)
        self.ok("acquire", "build-api")
        token.write_text("dashboard-token\n")
        self.ok("status", "build-api")
        self.fails(77, "acquire", "deploy-api-prod")

    def test_webhooks(self):
        self.only(r"^server:\n  webhooks")
        config = self.claim("server:\n  webhooks:").replace("/etc/belay/", f"{self.dir}/").replace("/var/lib/belay/", f"{self.dir}/")
        for name in ("webhook.secret", "bot.secret"):
            self.write(name, "a secret\n")
        self.certificate()
        os.rename(self.dir / "server.pem", self.dir / "internal-ca.pem")
        config = config.replace("…", hashlib.sha256(b"of the bot").hexdigest())
        server = Server(self, config=self.write("server.yaml", config))
        for url, status in (("http://10.20.0.9/", 202), ("http://[fd00:20::1]/", 202), ("http://10.21.0.9/", 400)):
            request = {"locked_by": "b", "wait_ms": 1000, "webhook": {"url": url, "timeout_ms": 100}}
            self.assertEqual(server.post("/v1/locks/k/acquire", request, token="of the bot").status, status, url)
        self.assertTrue((self.dir / "webhooks").exists())

    def test_several_servers(self):
        """The first of the list is killed; on two ports of this machine, without TLS."""
        self.only(r"^export BELAY_STORE=https://a")
        database = postgresql.Server().init().start()
        self.addCleanup(database.close)
        database.create_schema(BELAY)
        servers = [Server(self, "--store", database.url) for _ in "ab"]
        for server, name in zip(servers, "ab"):
            self.replace(f"https://{name}.example.com:7420", server.url)
        self.type("export BELAY_STORE")
        lock = self.acquire("k")
        servers[0].process.kill()
        servers[0].process.wait(PATIENCE)
        self.ok("release", "k", "--id", lock["lock_id"])

    def test_a_proxy(self):
        """nginx itself, if it is installed; else only that the server has the port that the page names."""
        self.only(r"^location /")
        location = self.claim("location / {")
        self.assertIn("proxy_pass http://127.0.0.1:7420;", location)
        self.assertIn("--listen ADDR:PORT", self.ok("serve", "--help").out)
        nginx = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
        if nginx is None:
            return
        digest = hashlib.sha256(b"ops-token").hexdigest()
        server = Server(self, config=self.write("c.yaml", f'server: {{tokens: [{{"name":"ops","role":"admin","sha256":"{digest}"}}]}}\n'))
        port = free_port()
        temp = "".join(f"{kind}_temp_path {self.dir}/{kind};\n" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        user = "user root;\n" if os.geteuid() == 0 else ""
        path = self.write("nginx.conf", f"{user}daemon off;\npid {self.dir}/nginx.pid;\nerror_log {self.dir}/error.log;\nevents {{}}\n"
                          f"http {{\naccess_log off;\n{temp}server {{\nlisten 127.0.0.1:{port};\n"
                          f"{location.replace('127.0.0.1:7420', f'127.0.0.1:{server.port}')}}}\n}}\n")
        proxy = subprocess.Popen([nginx, "-c", str(path), "-e", str(self.dir / "error.log")], stdin=subprocess.DEVNULL)
        self.addCleanup(lambda: (proxy.terminate(), proxy.wait(PATIENCE)))
        self.env.update(BELAY_STORE=f"http://127.0.0.1:{port}", BELAY_AUTH_TOKEN="ops-token")
        wait_until(lambda: self.belay("list").code == 0, "the proxy")
        watch = self.start("watch", "--json")
        wait_until(lambda: b"belay_event_listeners 1" in server.get("/metrics", token="ops-token").body, "the watch to listen")
        self.shell("belay run k -- true")
        self.assertIn("lock.acquired", wait_until(watch.stdout.readline, "an event, which the proxy does not hold back"))

    def test_the_systemd_units_are_installed(self):
        """In a directory of the test's own, with a useradd and a systemctl of ours; test/install/systemd.sh has the real ones."""
        self.only(r"^useradd")
        for name in ("useradd", "systemctl"):
            self.program(name, f'echo {name} "$@" >>"{self.dir}/called"')
        (self.dir / "etc/systemd/system").mkdir(parents=True)
        self.write("config.yaml", "locking_enabled: true\n")
        self.replace(" /etc/", f" {self.dir}/etc/")
        self.replace("-g belay ", "")
        self.replace("deploy/systemd/", f"{ROOT}/deploy/systemd/")
        for start in ("useradd", "install", "install", "install", "systemctl"):
            self.type(start)
        called = (self.dir / "called").read_text().splitlines()
        units = called[1].removeprefix("systemctl enable --now ").split()
        self.assertEqual(len(units), 2)
        for unit in units:
            self.assertTrue((self.dir / "etc/systemd/system" / unit).exists(), unit)
        service = (self.dir / "etc/systemd/system/belay.service").read_text()
        self.assertIn(f"User={called[0].split()[-1]}\n", service)
        options = re.search(r"^ExecStart=\S+ (.*)$", service, re.M)[1].split()
        self.assertEqual(options[0], "serve")
        self.assertEqual([option for option in options if option.startswith("--") and option not in self.ok("serve", "--help").out], [])


class Dashboard(PageCase):
    PAGE = "docs/dashboard.md"

    def test_the_server_has_the_page(self):
        self.only(r"^belay serve$")
        self.take("belay serve")
        answer = Server(self).get("/")
        self.assertEqual((answer.status, answer.headers["Content-Type"].split(";")[0]), (200, "text/html"))

    def test_top_looks_as_on_the_page(self):
        self.only(r"^belay top")
        command, shown = self.claim("belay top").split("\n\n", 1)
        self.assertEqual(command, "belay top [--prefix P]")
        self.assertIn("--prefix", self.ok("top", "--help").out)
        keys = {line.split()[0]: re.split(r"  +", line)[1] for line in shown.splitlines()[2:5]}
        for key, owner in keys.items():
            self.ok("acquire", key, "--ttl", "30m", "--owner", owner, "--owner-name", owner)
        self.start("acquire", "deploy-api-prod", "--wait", "10m")
        wait_until(lambda: "wait.began" in self.events("deploy-api-prod"), "the waiter")
        screen = Screen([BELAY, "top"], self.env, 80, 24)
        self.addCleanup(self.end, screen.process)
        lines = screen.until("1 waiting", "q quit", *keys)
        lines = normal("\n".join(lines))
        self.assertEqual([line for line in normal(shown) if line and line not in lines], [], lines)


if __name__ == "__main__":
    main()
