"""What the pods of deploy/kubernetes run, run here: their arguments and variables, with their paths below a directory."""

import hashlib
import http.client
import json
import os
import re
import signal
import ssl
import subprocess

from kubernetes_support import one, pod_of, render

import dynamo_support
import postgresql
from support import BELAY, BelayCase, main, wait_until

TOKENS = {"ci": ("locker", "ci-secret"), "metrics": ("reader", "metrics-secret")}


def is_user_possible(uid):
    """As root, if that user can reach the program at all."""
    if os.geteuid() != 0:
        return False
    try:
        return subprocess.run([BELAY, "--version"], user=uid, group=uid, extra_groups=[], stdout=subprocess.DEVNULL, check=False).returncode == 0
    except PermissionError:
        return False


class Pod:
    """One container, as the kubelet would start it, on a port of its own."""

    def __init__(self, case, template, name, secrets=None, more=None):
        self.case, self.spec, (self.container,) = case, template["spec"], template["spec"]["containers"]
        self.home = case.dir / name
        self.port = postgresql.free_port()
        self.values = {"POD_NAME": name}
        self.identity = {}
        uid, group = self.spec["securityContext"]["runAsUser"], self.spec["securityContext"].get("fsGroup")
        self.home.mkdir()
        if is_user_possible(uid):
            self.identity = {"user": uid, "group": self.spec["securityContext"]["runAsGroup"], "extra_groups": [group] if group else []}
        for mount in self.container.get("volumeMounts", []):
            self.fill(mount, (secrets or {}).get(mount["name"]), group)
        for variable in self.container["env"]:
            self.values[variable["name"]] = self.value_of(variable, secrets or {})
        self.values.update(more or {})

    def inside(self, text):
        """Its paths below the directory, and its port. $(NAME) is the kubelet's."""
        for mount in self.container.get("volumeMounts", []):
            text = re.sub(rf"(^|:){mount['mountPath']}(?=/|$)", rf"\g<1>{self.home}{mount['mountPath']}", text)
        text = re.sub(r"\$\((\w+)\)", lambda found: self.values[found[1]], text)
        return re.sub(r"^0\.0\.0\.0:7420$", f"127.0.0.1:{self.port}", text)

    def value_of(self, variable, secrets):
        if "value" in variable:
            return self.inside(variable["value"])
        source = variable["valueFrom"]
        return secrets[source["secretKeyRef"]["name"]] if "secretKeyRef" in source else self.values[variable["name"]]

    def fill(self, mount, files, group):
        """A volume as the kubelet prepares it: of root and the group; the files of a secret through symbolic links."""
        folder = self.home / mount["mountPath"].strip("/")
        folder.mkdir(parents=True)
        if files:
            (folder / "..data").mkdir()
            for name, text in files.items():
                (folder / "..data" / name).write_text(text, encoding="utf-8")
                (folder / name).symlink_to(f"..data/{name}")
                self.own(folder / "..data" / name, group, 0o440)
        self.own(folder, group, 0o2775)

    def own(self, path, group, mode):
        if self.identity:
            os.chown(path, 0, group)
        os.chmod(path, mode if self.identity else mode | 0o600)

    def command(self):
        return [BELAY, *map(self.inside, self.container["args"])]

    def run(self):
        done = subprocess.run(self.command(), env={"PATH": os.environ["PATH"], **self.values}, cwd="/", stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=60, check=False, **self.identity)
        return done.returncode, done.stdout, done.stderr

    def start(self):
        log = open(self.case.dir / f"{self.home.name}.log", "w", encoding="utf-8")
        self.case.addCleanup(log.close)
        self.process = subprocess.Popen(self.command(), env={"PATH": os.environ["PATH"], **self.values}, cwd="/", stdin=subprocess.DEVNULL,
                                        stdout=log, stderr=log, **self.identity)
        self.case.addCleanup(self.case.end, self.process)
        wait_until(lambda: self.process.poll() is not None or self.is_ready(), "readiness")
        self.case.assertIsNone(self.process.poll(), (self.case.dir / f"{self.home.name}.log").read_text(encoding="utf-8"))
        return self

    def is_ready(self):
        try:
            return self.probe("startupProbe") == self.probe("livenessProbe") == self.probe("readinessProbe") == 200
        except OSError:
            return False

    def probe(self, name):
        target = self.container[name]["httpGet"]
        return self.get(target["path"], target.get("scheme") == "HTTPS")

    def get(self, path, tls=False, token=None):
        """As from outside: by the address of the pod, and without a token unless there is one."""
        if tls:
            connection = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=10, context=ssl._create_unverified_context())
        else:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request("GET", path, headers={"Host": "10.244.1.7:7420", **({"Authorization": f"Bearer {token}"} if token else {})})
            return connection.getresponse().status
        finally:
            connection.close()


class Served(BelayCase):
    def setUp(self):
        super().setUp()
        os.chmod(self.dir, 0o755)
        tokens = [{"name": name, "role": role, "sha256": hashlib.sha256(secret.encode()).hexdigest()} for name, (role, secret) in TOKENS.items()]
        self.secrets = {"config": {"config.yaml": json.dumps({"server": {"tokens": tokens}})}}

    def pod(self, objects, name="belay-0", more=None):
        return Pod(self, pod_of(one(objects, "StatefulSet", "Deployment")), name, self.secrets, more).start()

    def job(self, server, name):
        pod = Pod(self, pod_of(one(render("cronjob"), "CronJob")), name, {"belay-token": TOKENS["ci"][1]})
        self.assertEqual(pod.values["BELAY_STORE"], "http://belay:7420")
        pod.values["BELAY_STORE"] = f"http://127.0.0.1:{server.port}"
        return pod

    def through(self, server, *args):
        return self.belay(*args, env={"BELAY_STORE": f"http://127.0.0.1:{server.port}", "BELAY_AUTH_TOKEN": TOKENS["ci"][1]})

    def held_through_both(self, first, second):
        self.assertEqual(self.through(first, "acquire", "deploy-api", "--id", "one").code, 0)
        self.assertEqual(self.through(second, "run", "deploy-api", "--", "true").code, 75)
        self.assertEqual(self.through(second, "release", "deploy-api", "--id", "one").code, 0)
        self.assertEqual(self.through(first, "run", "deploy-api", "--", "true").code, 0)

    def test_the_base_serves_on_its_volume_and_stops_in_time(self):
        server = self.pod(render("base"))
        (endpoint,) = one(render("base", "components/monitoring"), "ServiceMonitor")["spec"]["endpoints"]
        self.assertEqual([server.get(endpoint["path"]), server.get(endpoint["path"], token=TOKENS["metrics"][1])], [401, 200])
        self.assertEqual(self.through(server, "run", "deploy-api", "--", "true").code, 0)
        self.assertTrue((server.home / "data/belay.db").exists())
        server.process.send_signal(signal.SIGTERM)
        self.assertEqual(server.process.wait(server.spec["terminationGracePeriodSeconds"] - 5), 0)

    def test_the_cronjob_runs_once_at_a_time(self):
        server = self.pod(render("base"))
        code, out, err = self.job(server, "nightly-report-1").run()
        self.assertEqual((code, re.sub(r"\d+", "N", out)), (0, "report with token N\n"), err)
        self.assertEqual(self.through(server, "acquire", "nightly-report", "--id", "rival").code, 0)
        code, out, err = self.job(server, "nightly-report-2").run()
        self.assertEqual((code, out), (0, ""), err)
        self.assertIn("lock 'nightly-report' held by", err)

    def test_replicas_on_postgresql_share_their_locks(self):
        database = postgresql.Server().init().start()
        self.addCleanup(database.close)
        url = f"postgresql://postgres@127.0.0.1:{database.port}/postgres"
        self.ok("table", "create", env={"BELAY_STORE": url})
        self.secrets["belay-postgresql"] = url
        objects = render("overlays/postgresql")
        self.held_through_both(self.pod(objects, "belay-a"), self.pod(objects, "belay-b"))

    def test_replicas_on_dynamodb_share_their_locks(self):
        objects = render("overlays/dynamodb")
        (container,) = pod_of(one(objects, "Deployment"))["spec"]["containers"]
        (store,) = [variable["value"] for variable in container["env"] if variable["name"] == "BELAY_STORE"]
        store += f"&endpoint=http://127.0.0.1:{dynamo_support.server_port()}"
        more = {**dynamo_support.CREDENTIALS, "BELAY_STORE": store}
        # DynamoDB Local, just started, may need longer for its first answer than belay waits for one.
        wait_until(lambda: self.belay("table", "create", env=more).code == 0, "the table", 120)
        self.held_through_both(self.pod(objects, "belay-a", more), self.pod(objects, "belay-b", more))

    def test_the_tls_component_serves_the_certificate_of_its_secret(self):
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj",
                        "/CN=belay", "-keyout", self.dir / "key", "-out", self.dir / "cert"], check=True, capture_output=True)
        self.secrets["tls"] = {name: (self.dir / file).read_text(encoding="utf-8") for name, file in (("tls.crt", "cert"), ("tls.key", "key"))}
        server = self.pod(render("base", "components/tls"))
        self.assertEqual(ssl.get_server_certificate(("127.0.0.1", server.port)), self.secrets["tls"]["tls.crt"])


if __name__ == "__main__":
    main()
