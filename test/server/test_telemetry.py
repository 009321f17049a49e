"""Telemetry of locks: audit lines, metrics, traces (S0.7, S4.11, S4.12)."""

import http.client
import http.server
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import threading
import time

from server_support import ROOT, ServerCase, main, wait_until
from support import BELAY, free_port


def unpacked(file, *packages):
    """A program of a Debian package, without its daemon being installed."""
    done = subprocess.run([str(ROOT / "tools" / "unpack"), file, *packages], check=True, capture_output=True, text=True)
    return done.stdout.strip()


class Audit(ServerCase):
    def lines(self):
        path = self.dir / "audit.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def config(self):
        return self.write_config(f"audit: {{file: {self.dir}/audit.jsonl}}\n")

    def test_audit_has_one_object_for_every_event_of_a_command(self):
        """S4.12"""
        self.ok("run", "--config", str(self.config()), "--meta", "user=alice", "--stack", "shop", "--environment", "prod",
                "--", "true")
        acquired, released = self.lines()
        self.assertEqual((acquired["event"], released["event"]), ("lock.acquired", "lock.released"))
        self.assertEqual(acquired["lock_key"], "stack:shop:env:prod")
        self.assertEqual(acquired["metadata"]["user"], "alice")
        self.assertEqual(acquired["lock_id"], released["lock_id"])
        self.assertEqual(acquired["level"], "INFO")
        self.assertGreaterEqual(released["duration_seconds"], 0)
        self.assertRegex(acquired["timestamp"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")

    def test_audit_of_a_server_continues_in_a_new_file_after_a_hangup(self):
        server = self.serve(config=self.config())
        server.acquire("a", ttl_ms=60000)
        self.assertEqual([line["lock_key"] for line in self.lines()], ["a"])
        os.rename(self.dir / "audit.jsonl", self.dir / "audit.old")
        server.process.send_signal(signal.SIGHUP)
        wait_until((self.dir / "audit.jsonl").exists, "the new file")
        server.acquire("b", ttl_ms=60000)
        self.assertEqual([line["lock_key"] for line in self.lines()], ["b"])

    def test_an_audit_file_that_cannot_be_written_is_refused_by_name(self):
        config = self.write_config("audit: {file: /nowhere/audit.jsonl}\n")
        error = self.fails(78, "run", "--config", str(config), "k", "--", "true").err
        self.assertIn("audit.file: cannot write to '/nowhere/audit.jsonl': No such file or directory", error)

    def test_audit_on_a_full_disk_is_reported_once_and_delays_no_lock(self):
        config = self.write_config("audit: {file: /dev/full}\n")
        result = self.ok("run", "--config", str(config), "k", "--", "true")
        self.assertEqual(result.err.count("audit: cannot write to /dev/full: No space left on device"), 1)


    def test_audit_into_an_unread_or_full_pipe_delays_no_lock(self):
        pipe = str(self.dir / "pipe")
        os.mkfifo(pipe)
        config = self.write_config(f"audit: {{file: {pipe}}}\nmetrics: {{emf: {pipe}}}\n")
        result = self.ok("run", "--config", str(config), "k", "--", "true")
        self.assertEqual(result.err.count(f"audit: cannot write to {pipe}: no process reads it"), 1, result.err)
        fd = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)
        self.addCleanup(os.close, fd)
        self.ok("run", "--config", str(config), "k", "--", "true")
        text = os.read(fd, 1 << 16).decode()
        self.assertEqual([json.loads(line)["event"] for line in text.splitlines() if "_aws" not in line],
                         ["lock.acquired", "lock.released"])
        with self.assertRaises(BlockingIOError):
            while True:
                os.write(fd, 4096 * b"x")
        result = self.ok("run", "--config", str(config), "k", "--", "true")
        self.assertEqual(result.err.count(f"audit: cannot write to {pipe}: it is full"), 1, result.err)

    def test_audit_on_an_unread_standard_error_delays_no_lock(self):
        config = self.write_config("audit: {file: stderr}\n")
        reader, writer = os.pipe()
        self.addCleanup(os.close, reader)
        os.set_blocking(writer, False)
        with self.assertRaises(BlockingIOError):
            while True:
                os.write(writer, 4096 * b"x")
        os.set_blocking(writer, True)
        process = self.start("run", "--quiet", "--config", str(config), "k", "--", "true", stderr=writer)
        os.close(writer)
        self.assertEqual(process.wait(60), 0)

    def test_a_server_with_an_unread_log_continues_and_reports_lost_lines(self):
        reader, writer = os.pipe()
        self.addCleanup(os.close, reader)
        process = self.start("serve", "--json", "--listen", "127.0.0.1:0", stderr=writer)
        os.close(writer)
        url = json.loads(process.stdout.readline())["listening"][0]
        connection = http.client.HTTPConnection(url.split("//")[1], timeout=60)
        self.addCleanup(connection.close)

        def ask(times):
            for _ in range(times):
                connection.request("GET", "/v1/locks/" + 200 * "x")  # 400 bytes of log, or so
                self.assertEqual(connection.getresponse().read()[:9], b'{"error":')
        ask(3500)  # far more than a pipe and the server's own room hold
        text = b""
        for _ in range(500):  # a request makes it check for room again
            if b"lines were lost" in text:
                break
            ask(1)
            text += os.read(reader, 1 << 16)
        self.assertIn(b"lines were lost", text)
        for line in text.splitlines()[:-1]:
            json.loads(line)

    def test_an_audit_path_that_is_a_directory_is_refused_by_name(self):
        config = self.write_config(f"audit: {{file: {self.dir}}}\n")
        error = self.fails(78, "run", "--config", str(config), "k", "--", "true").err
        self.assertIn(f"audit.file: cannot write to '{self.dir}': Is a directory", error)

    def test_an_audit_event_stays_one_line_whatever_the_owners_name(self):
        config = self.write_config(f"audit: {{file: {self.dir}/audit.jsonl}}\nmetrics: {{emf: {self.dir}/m.log}}\n")
        name = 'a"}\u2028\u202e'
        hostile = name + '\\n{"event":'  # control characters are refused before
        receiver = Receiver(self)
        self.ok("run", "--config", str(config), "--owner-name", name, "--meta", f"m={hostile}", "--stack", "s\u00e9|#",
                "--environment", "p" * 400, "--", "true", env={"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url})
        self.assertEqual([line["event"] for line in self.lines()], ["lock.acquired", "lock.released"])
        self.assertEqual((self.lines()[0]["locked_by_name"], self.lines()[0]["metadata"]["m"]), (name, hostile))
        text = (self.dir / "audit.jsonl").read_text() + (self.dir / "m.log").read_text()
        for harm in "\u2028\u202e":
            self.assertNotIn(harm, text)
        (first, _) = [json.loads(line) for line in (self.dir / "m.log").read_text().splitlines()]
        self.assertEqual(first["Stack"], "s__|#")  # CloudWatch takes nothing but ASCII
        self.assertEqual(len(receiver.named("lock.hold")), 1)


class Daemon(ServerCase):
    """Syslog, at the place where it always is: in a mount namespace whose /dev is ours."""

    def listen(self):
        daemon = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.addCleanup(daemon.close)
        (self.dir / "dev" / "log").unlink(missing_ok=True)
        daemon.bind(str(self.dir / "dev" / "log"))
        daemon.settimeout(60)
        return daemon

    def run_there(self, *args):
        (self.dir / "dev" / "null").touch()
        script = (f"mount --bind /dev/null {self.dir}/dev/null && mount --bind {self.dir}/dev /dev && exec \"$@\"")
        return subprocess.run(["unshare", "--map-root-user", "--mount", "sh", "-c", script, "sh", BELAY, *args], env={**os.environ, **self.env},
                              capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60)

    def test_the_daemon_gets_every_event_as_one_line(self):
        """S4.12"""
        (self.dir / "dev").mkdir()
        daemon = self.listen()
        config = self.write_config("audit: {file: syslog}\n")
        done = self.run_there("run", "--config", str(config), "--meta", "m=a \"<13>evil: x", "k", "--", "true")
        if "unshare:" in done.stderr or "mount:" in done.stderr:
            self.skipTest("no namespaces here: " + done.stderr)
        self.assertEqual(done.returncode, 0, done.stderr)
        for event in ("lock.acquired", "lock.released"):
            text = daemon.recv(1 << 16).decode()
            self.assertNotIn("\n", text)
            head, line = text.split(": ", 1)
            self.assertRegex(head, r"^<86>belay\[\d+\]$")
            self.assertEqual((json.loads(line)["event"], json.loads(line)["lock_key"]), (event, "k"))

    def test_a_restarted_daemon_gets_the_events_from_then_on(self):
        (self.dir / "dev").mkdir()
        first = self.listen()
        config = self.write_config("audit: {file: syslog}\n")
        script = f"echo > {self.dir}/began; while ! test -e {self.dir}/go; do :; done"
        done = []
        thread = threading.Thread(target=lambda: done.append(
            self.run_there("run", "--config", str(config), "--ttl", "10m", "k", "--", "/bin/sh", "-c", script)))
        thread.start()
        wait_until(lambda: done or (self.dir / "began").exists(), "the command")
        if done:
            self.skipTest("no namespaces here: " + done[0].stderr)
        self.assertIn("lock.acquired", first.recv(1 << 16).decode())
        first.close()
        second = self.listen()
        (self.dir / "go").touch()
        self.assertIn("lock.released", second.recv(1 << 16).decode())
        thread.join()
        self.assertEqual(done[0].returncode, 0, done[0].stderr)

    def test_a_missing_daemon_is_named(self):
        (self.dir / "dev").mkdir()
        config = self.write_config("audit: {file: syslog}\n")
        done = self.run_there("run", "--config", str(config), "k", "--", "true")
        if "unshare:" in done.stderr or "mount:" in done.stderr:
            self.skipTest("no namespaces here: " + done.stderr)
        self.assertEqual(done.returncode, 78)
        self.assertIn("audit.file: cannot connect to /dev/log: No such file or directory", done.stderr)


class CloudWatch(ServerCase):
    def check(self, line):
        """The rules of AWS's specification of the embedded metric format."""
        entry = json.loads(line)
        self.assertLess(len(line), 256 * 1024)
        self.assertIsInstance(entry["_aws"]["Timestamp"], int)
        for directive in entry["_aws"]["CloudWatchMetrics"]:
            self.assertEqual(set(directive), {"Namespace", "Dimensions", "Metrics"})
            self.assertTrue(1 <= len(directive["Namespace"]) <= 1024)
            self.assertTrue(1 <= len(directive["Metrics"]) <= 100)
            for dimensions in directive["Dimensions"]:
                self.assertLessEqual(len(dimensions), 30)
                for name in dimensions:
                    self.assertIsInstance(entry[name], str)
                    self.assertTrue(1 <= len(entry[name]) <= 1024)
            for metric in directive["Metrics"]:
                self.assertLessEqual(set(metric), {"Name", "Unit", "StorageResolution"})
                self.assertIn(metric["Unit"], {"Count", "Milliseconds", "Seconds"})
                self.assertIsInstance(entry[metric["Name"]], (int, float))
        return {metric["Name"]: entry for metric in entry["_aws"]["CloudWatchMetrics"][0]["Metrics"]}

    def test_cloudwatch_gets_the_documents_names_and_dimensions(self):
        """S4.11"""
        self.ok("acquire", "--metrics", "emf:m.log", "--stack", "shop", "--environment", "prod", "--service", "api")
        self.fails(75, "acquire", "--metrics", "emf:m.log", "--stack", "shop", "--environment", "prod", "--service", "api")
        self.ok("run", "--metrics", "emf:m.log", "plain", "--", "true")
        found = {}
        for line in (self.dir / "m.log").read_text().splitlines():
            found.update(self.check(line))
        self.assertLessEqual({"deployer.lock.acquisition.success", "deployer.lock.acquisition.failure",
                              "deployer.lock.acquisition.duration", "deployer.lock.held.duration"}, set(found))
        refused = found["deployer.lock.acquisition.failure"]
        self.assertEqual((refused["Stack"], refused["Environment"], refused["LockLevel"]), ("shop", "prod", "service"))
        self.assertIn([], refused["_aws"]["CloudWatchMetrics"][0]["Dimensions"])  # what the alarms look at
        self.assertEqual(refused["Profile"], "stack")
        self.assertNotIn("Stack", found["deployer.lock.held.duration"])  # a key that has none

    def test_a_held_lock_shows_its_age(self):
        """S4.14: while it is held, not when it ends."""
        self.ok("run", "--metrics", "emf:m.log", "--ttl", "2s", "--heartbeat", "100ms", "build-a-b", "--", "sleep", "0.5")
        lines = [json.loads(line) for line in (self.dir / "m.log").read_text().splitlines()]
        ages = [line["deployer.lock.held.age"] for line in lines if "deployer.lock.held.age" in line]
        self.assertGreater(len(ages), 1)
        self.assertEqual(ages, sorted(ages))
        self.assertTrue(0 < ages[-1] < 20, ages)
        self.assertEqual(lines[0]["Profile"], "build")

    def test_a_server_writes_embedded_metrics_too(self):
        server = self.serve("--metrics", f"emf:{self.dir}/m.log")
        server.acquire("stack:shop:env:prod", ttl_ms=60000)
        self.assertIn("deployer.lock.acquisition.success", self.check((self.dir / "m.log").read_text().splitlines()[0]))

    def test_an_invalid_metrics_receiver_is_refused(self):
        self.assertIn("invalid --metrics 'cloud': use emf, emf:FILE or statsd:HOST:PORT",
                      self.fails(64, "run", "--metrics", "cloud", "k", "--", "true").err)


class StatsD(ServerCase):
    def test_statsd_gets_counts_and_times_with_tags(self):
        receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.addCleanup(receiver.close)
        receiver.bind(("127.0.0.1", 0))
        receiver.settimeout(20)
        self.ok("run", "--metrics", f"statsd:127.0.0.1:{receiver.getsockname()[1]}", "--stack", "a|b,c#d", "--environment",
                "prod", "--", "true")
        first = receiver.recv(2000).decode().splitlines()
        self.assertEqual(first[0], "belay.lock.acquisition.success:1|c|#level:stack,profile:stack,stack:a_b_c_d,environment:prod")
        self.assertRegex(first[1], r"^belay\.lock\.acquisition\.duration:\d+\|ms\|#level:stack")
        self.assertRegex(receiver.recv(2000).decode(), r"^belay\.lock\.held\.duration:\d+\|ms\|#")
        self.ok("run", "--metrics", f"statsd:127.0.0.1:{receiver.getsockname()[1]}", "stack:" + 480 * "s" + ":env:" + 20 * "e", "--",
                "true")
        self.assertRegex(receiver.recv(2000).decode(), r"^belay\.lock\.acquisition\.success:1\|c\|#level:stack.*,stack:s{480}")

    def test_a_statsd_receiver_named_by_host_gets_every_metric(self):
        receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.addCleanup(receiver.close)
        receiver.bind(("127.0.0.1", 0))
        receiver.settimeout(20)
        self.ok("run", "--metrics", f"statsd:localhost:{receiver.getsockname()[1]}", "k", "--", "true")
        self.assertRegex(receiver.recv(2000).decode(), r"^belay\.lock\.acquisition\.success:1\|c")
        self.assertRegex(receiver.recv(2000).decode(), r"^belay\.lock\.held\.duration:")

    def test_a_statsd_host_that_does_not_exist_is_reported_once_and_delays_no_lock(self):
        result = self.ok("run", "--metrics", "statsd:no-such-host.invalid:8125", "k", "--", "true")
        self.assertEqual(result.err.count("metrics: cannot send to StatsD: 'no-such-host.invalid': "), 1, result.err)
        server = self.serve("--metrics", "statsd:no-such-host.invalid:8125")
        for i in range(300):
            self.assertEqual(server.acquire(f"k{i}", ttl_ms=60000).status, 200)

    def test_a_resolver_that_never_answers_delays_no_lock(self):
        """As a name server behind a firewall does; in a mount namespace with such a one."""
        silent = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.addCleanup(silent.close)
        try:
            silent.bind(("127.77.77.77", 53))
        except OSError as error:
            self.skipTest(f"port 53 cannot be had: {error}")
        (self.dir / "resolv.conf").write_text("nameserver 127.77.77.77\noptions timeout:30 attempts:1\n")
        (self.dir / "nsswitch.conf").write_text("hosts: dns\n")
        script = (f"mount --bind {self.dir}/resolv.conf /etc/resolv.conf && mount --bind {self.dir}/nsswitch.conf /etc/nsswitch.conf"
                  f" && exec {BELAY} run --metrics statsd:slow.example:8125 k -- date +%s.%N")
        before = time.time()
        done = subprocess.run(["unshare", "--map-root-user", "--mount", "sh", "-c", script], env=dict(os.environ, **self.env),
                              capture_output=True, text=True, timeout=60)
        if "unshare:" in done.stderr or "mount:" in done.stderr:
            self.skipTest("no namespaces here: " + done.stderr)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertLess(float(done.stdout) - before, 20)
        self.assertLess(time.time() - before, 25)  # the resolver would have taken 30 s
        self.assertIn("cannot send to StatsD: 'slow.example': no answer from the resolver", done.stderr)

    def test_a_wrong_address_is_answered_with_the_right_form(self):
        for address in ("8125", "host:", ":8125", "host:http", "host:0", "host:65536"):
            error = self.fails(64, "run", "--metrics", f"statsd:{address}", "k", "--", "true").err
            self.assertIn(f"'{address}' is not HOST:PORT", error)


class Prometheus(ServerCase):
    def test_promtool_accepts_the_format_and_no_key_is_in_it(self):
        server = self.serve()
        lock = server.acquire("stack:shop:env:prod", ttl_ms=60000).json()
        server.acquire("stack:shop:env:prod", ttl_ms=60000)
        server.renew("stack:shop:env:prod", lock["lock_id"])
        server.release("stack:shop:env:prod", lock["lock_id"])
        server.acquire('"} evil\\\n{'.replace("\n", ""), ttl_ms=60000)
        server.get("/v1/locks/none-such")
        text = server.get("/metrics").body.decode()
        promtool = unpacked("usr/bin/promtool", "prometheus")
        done = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stderr, done.stdout), (0, "", ""))
        labels = 'level="stack",profile="stack",environment="prod",stack="shop"'
        self.assertIn(f'belay_lock_acquisitions_total{{{labels},result="success"}} 1\n', text)
        self.assertIn(f'belay_lock_acquisitions_total{{{labels},result="failure"}} 1\n', text)
        self.assertIn(f'belay_lock_heartbeats_total{{{labels},result="success"}} 1\n', text)
        self.assertIn(f"belay_lock_held_duration_seconds_count{{{labels}}} 1\n", text)
        self.assertIn('belay_http_requests_total{method="GET",route="/v1/locks/{key}",status="4xx"} 1\n', text)
        self.assertIn('belay_locks{status="active"} 1\n', text)
        self.assertNotIn("evil", text)
        self.assertNotIn("none-such", text)

    def test_series_are_bounded(self):
        server = self.serve()
        for i in range(230):
            server.acquire(f"stack:s{i}:env:prod", ttl_ms=60000)
        text = server.get("/metrics").body.decode()
        self.assertEqual(len(re.findall(r"^belay_lock_stale_detected_total\{", text, re.M)), 201)
        self.assertIn('belay_lock_acquisitions_total{level="other",profile="other",environment="other",stack="other",'
                      'result="success"} 30\n', text)

    def test_listeners_and_dashboards_are_counted(self):
        server = self.serve()
        for path, name in (("/v1/events", "belay_event_listeners"), ("/v1/live", "belay_dashboards")):
            connection = server.connect()
            self.addCleanup(connection.close)
            self.assertIn(f"\n{name} 0\n", server.get("/metrics").body.decode())
            connection.request("GET", path)
            self.assertEqual(connection.getresponse().status, 200)
            self.assertIn(f"\n{name} 1\n", server.get("/metrics").body.decode())

    def test_rules_are_right(self):
        promtool = unpacked("usr/bin/promtool", "prometheus")
        done = subprocess.run([promtool, "check", "rules", str(ROOT / "deploy/prometheus/belay.rules.yml")],
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("7 rules found", done.stdout)

    def test_a_first_stale_lock_is_alerted(self):
        """S4.11: the counter appears with a 1, in which increase() sees no increase."""
        rules = self.dir / "test.yml"
        rules.write_text(json.dumps({
            "rule_files": [str(ROOT / "deploy/prometheus/belay.rules.yml")], "evaluation_interval": "30s",
            "tests": [{"interval": "30s", "input_series": [
                {"series": "belay_locks_stale", "values": "0 0 1 1 1"},
                {"series": "belay_lock_stale_detected_total", "values": "_ _ 1 1 1"}],
                "alert_rule_test": [
                    {"eval_time": "30s", "alertname": "BelayStaleLock", "exp_alerts": []},
                    {"eval_time": "90s", "alertname": "BelayStaleLock", "exp_alerts": [
                        {"exp_labels": {"severity": "warning"}, "exp_annotations": {
                            "summary": "A lock's holder has stopped sending heartbeats",
                            "description": "'belay list --stale' names the locks; 'belay unlock KEY --force' ends one."}}]}]}]}))
        done = subprocess.run([unpacked("usr/bin/promtool", "prometheus"), "test", "rules", str(rules)],
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_releases_are_counted_by_how_they_ended(self):
        server = self.serve()
        for outcome, n in (("failed", 1), ("completed", 2)):
            for i in range(n):
                lock = server.acquire("k", ttl_ms=60000).json()
                server.release("k", lock["lock_id"], outcome=outcome)
        text = server.get("/metrics").body.decode()
        for outcome, n in (("failed", 1), ("completed", 2)):
            self.assertRegex(text, rf'(?m)^belay_lock_released_total{{.*,outcome="{outcome}"}} {n}$')

    def test_every_metric_that_rules_and_grafana_ask_for_is_there(self):
        server = self.serve()
        lock = server.acquire("k", ttl_ms=60000).json()
        server.release("k", lock["lock_id"])
        known = set(re.findall(r"^(?:# TYPE )?(belay_\w+)", server.get("/metrics").body.decode(), re.M))
        wanted = set()
        for path in ("deploy/prometheus/belay.rules.yml", "deploy/grafana/belay.json"):
            wanted |= set(re.findall(r"belay_\w+", (ROOT / path).read_text()))
        self.assertEqual(wanted - known, set())

    def test_a_real_prometheus_scrapes_and_answers(self):
        server = self.serve()
        for i in range(3):
            server.acquire(f"k{i}", ttl_ms=60000)
        port = free_port()
        config = self.dir / "prometheus.yml"
        config.write_text(json.dumps({"global": {"scrape_interval": "1s"}, "scrape_configs": [
            {"job_name": "belay", "static_configs": [{"targets": [f"127.0.0.1:{server.port}"]}]}]}))
        process = subprocess.Popen([unpacked("usr/bin/prometheus", "prometheus"), f"--config.file={config}",
                                    f"--storage.tsdb.path={self.dir}/tsdb", f"--web.listen-address=127.0.0.1:{port}"],
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)

        def answer():
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
            try:
                connection.request("GET", "/api/v1/query?query=sum(belay_lock_acquisitions_total)")
                found = json.loads(connection.getresponse().read())["data"]["result"]
            except (OSError, ValueError):  # it is about to start
                return None
            finally:
                connection.close()
            return found and found[0]["value"][1]
        wait_until(lambda: answer() == "3", "Prometheus's answer", patience=60)


class Receiver:
    """A small OTLP receiver."""

    def __init__(self, case, status=200, context=None, gate=None):
        self.spans = []
        self.headers = []
        self.status = status
        receiver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                receiver.headers.append((self.path, dict(self.headers)))
                if gate is not None:
                    gate.wait(60)
                for resource in body["resourceSpans"]:
                    for scope in resource["scopeSpans"]:
                        receiver.spans += [dict(span, service=resource["resource"]["attributes"][0]["value"]["stringValue"])
                                           for span in scope["spans"]]
                self.send_response(receiver.status)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *args):
                pass
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.handle_error = lambda *_: None
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        if context is not None:
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
            self.url = f"https://localhost:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        case.addCleanup(self.server.server_close)
        case.addCleanup(self.server.shutdown)

    def named(self, name):
        return [span for span in list(self.spans) if span["name"] == name]


TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = "00f067aa0ba902b7"


class Traces(ServerCase):
    def check_nested(self, spans):
        by_id = {span["spanId"]: span for span in spans}
        self.assertEqual(len(by_id), len(spans))
        for span in spans:
            self.assertRegex(span["traceId"], "^[0-9a-f]{32}$")
            self.assertRegex(span["spanId"], "^[0-9a-f]{16}$")
            self.assertIsInstance(span["startTimeUnixNano"], str)
            self.assertLessEqual(int(span["startTimeUnixNano"]), int(span["endTimeUnixNano"]))
            parent = by_id.get(span.get("parentSpanId"))
            if parent is not None:
                self.assertEqual(parent["traceId"], span["traceId"])
                self.assertLessEqual(int(parent["startTimeUnixNano"]), int(span["startTimeUnixNano"]))
                self.assertGreaterEqual(int(parent["endTimeUnixNano"]), int(span["endTimeUnixNano"]))

    def test_traces_of_a_run_are_nested_under_the_caller_and_continue_in_the_command(self):
        receiver = Receiver(self)
        env = {"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url, "TRACEPARENT": f"00-{TRACE}-{PARENT}-01",
               "OTEL_EXPORTER_OTLP_HEADERS": "x-team=pay%20roll,x-two=2"}
        out = self.ok("run", "k", "--", "sh", "-c", "echo $TRACEPARENT", env=env).out.strip()
        (acquire,) = receiver.named("lock.acquire")
        (hold,) = receiver.named("lock.hold")
        self.assertEqual({span["traceId"] for span in receiver.spans}, {TRACE})
        self.assertEqual((acquire["parentSpanId"], hold["parentSpanId"]), (PARENT, PARENT))
        self.assertEqual(out, f"00-{TRACE}-{hold['spanId']}-01")
        commits = {span["parentSpanId"] for span in receiver.named("store.commit")}
        self.assertEqual(commits, {acquire["spanId"], hold["spanId"]})
        self.check_nested(receiver.spans)
        path, headers = receiver.headers[0]
        self.assertEqual((path, headers["x-team"], headers["x-two"]), ("/v1/traces", "pay roll", "2"))
        self.assertEqual(acquire["service"], "belay")

    def test_traces_show_a_wait_and_a_refusal(self):
        receiver = Receiver(self)
        self.acquire("k")
        self.fails(75, "acquire", "k", "--wait", "200ms", env={"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url + "/"})
        (acquire,) = receiver.named("lock.acquire")
        (wait,) = receiver.named("lock.wait")
        self.assertEqual(wait["parentSpanId"], acquire["spanId"])
        self.assertGreaterEqual(int(wait["endTimeUnixNano"]) - int(wait["startTimeUnixNano"]), 150_000_000)
        self.assertEqual(acquire["status"]["code"], 2)
        self.assertIn("held by", acquire["status"]["message"])
        self.check_nested(receiver.spans)

    def test_traces_of_a_server_belong_to_their_request(self):
        receiver = Receiver(self)
        server = self.serve(env={"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": receiver.url + "/custom"})
        answer = server.call("POST", "/v1/locks/k/acquire", {"locked_by": "me", "ttl_ms": 60000},
                             headers={"traceparent": f"00-{TRACE}-{PARENT}-01"})
        server.call("POST", "/v1/locks/other/acquire", {"locked_by": "me", "ttl_ms": 60000},
                    headers={"traceparent": "00-nonsense"})
        server.release("k", answer.json()["lock_id"])
        wait_until(lambda: len(receiver.named("lock.acquire")) == 2 and receiver.named("lock.hold"), "the spans")
        ours = [span for span in receiver.named("lock.acquire") if span["traceId"] == TRACE]
        self.assertEqual([span["parentSpanId"] for span in ours], [PARENT])
        self.assertEqual(receiver.named("lock.hold")[0]["traceId"], TRACE)
        self.assertEqual(receiver.headers[0][0], "/custom")
        self.check_nested(receiver.spans)

    def test_an_acquisition_of_several_keys_is_one_trace(self):
        receiver = Receiver(self)
        server = self.serve(env={"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url})
        for lock_id in ("x", "y"):  # the second one shows that the spans of the first are complete
            body = {"keys": ["a", "b", "c"], "lock_id": lock_id}
            server.post("/v1/acquire", {**body, "locked_by": "me", "ttl_ms": 60000})
            server.post("/v1/renew", body)
            server.post("/v1/release", body)
        wait_until(lambda: len(receiver.named("lock.hold")) >= 2, "the spans")
        self.assertEqual((len(receiver.named("lock.acquire")), len(receiver.named("lock.hold"))), (2, 2))
        self.assertEqual(len(receiver.named("store.commit")), 6)
        self.check_nested(receiver.spans)

    def test_a_command_and_its_server_share_one_trace(self):
        receiver = Receiver(self)
        otel = {"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url}
        server = self.serve(env=dict(otel, OTEL_SERVICE_NAME="server"))
        self.ok("run", "--store", server.url, "--ttl", "10s", "--heartbeat", "100ms", "k", "--", "sleep", "0.5",
                env=dict(otel, TRACEPARENT=f"00-{TRACE}-{PARENT}-01"))
        wait_until(lambda: len([span for span in receiver.named("store.commit") if span["service"] == "server"]) >= 3
                   and len(receiver.named("lock.acquire")) == 2, "the server's spans")
        theirs, ours = sorted(receiver.named("lock.acquire"), key=lambda span: span["service"] == "belay")
        (hold,) = receiver.named("lock.hold")  # the command's: it knows best
        self.assertEqual({span["traceId"] for span in receiver.spans}, {TRACE})
        self.assertEqual((ours["service"], ours["parentSpanId"]), ("belay", PARENT))
        self.assertEqual((theirs["service"], theirs["parentSpanId"]), ("server", ours["spanId"]))
        self.assertEqual((hold["service"], hold["parentSpanId"]), ("belay", PARENT))
        self.assertEqual({span["parentSpanId"] for span in receiver.named("store.commit")}, {theirs["spanId"], hold["spanId"]})
        self.check_nested(receiver.spans)

    def test_a_refusal_by_a_server_is_one_trace(self):
        receiver = Receiver(self)
        otel = {"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url}
        server = self.serve(env=dict(otel, OTEL_SERVICE_NAME="server"))
        server.acquire("k", ttl_ms=60000)
        for wait in ([], ["--wait", "300ms"]):
            receiver.spans.clear()
            self.fails(75, "acquire", "--store", server.url, "k", *wait, env=dict(otel, TRACEPARENT=f"00-{TRACE}-{PARENT}-01"))

            def acquires():
                return [span for span in receiver.named("lock.acquire") if span["traceId"] == TRACE]
            wait_until(lambda: len(acquires()) == 2, "both sides' spans")
            theirs, ours = sorted(acquires(), key=lambda span: span["service"] == "belay")
            self.assertEqual((ours["parentSpanId"], theirs["parentSpanId"]), (PARENT, ours["spanId"]))
            self.assertEqual((ours["status"]["code"], theirs["status"]["code"]), (2, 2))
            self.assertEqual([span["parentSpanId"] for span in receiver.named("lock.wait")], [theirs["spanId"]] if wait else [])
            self.check_nested(receiver.spans)

    def test_a_receiver_that_is_down_or_hangs_delays_no_client(self):
        self.ok("run", "k", "--", "true", env={"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"})
        with socket.socket() as silent:
            silent.bind(("127.0.0.1", 0))
            silent.listen()
            url = f"http://127.0.0.1:{silent.getsockname()[1]}"
            server = self.serve(env={"OTEL_EXPORTER_OTLP_ENDPOINT": url})
            for i in range(20):
                self.assertEqual(server.acquire(f"k{i}", ttl_ms=60000).status, 200)
            self.ok("run", "k", "--", "true", env={"OTEL_EXPORTER_OTLP_ENDPOINT": url})

    def test_a_receiver_that_hangs_is_abandoned_after_a_second(self):
        with socket.socket() as silent:
            silent.bind(("127.0.0.1", 0))
            silent.listen()
            for scheme in ("http", "https"):
                url = f"{scheme}://127.0.0.1:{silent.getsockname()[1]}"
                before = time.monotonic()
                self.ok("run", "k", "--", "true", env={"OTEL_EXPORTER_OTLP_ENDPOINT": url})
                self.assertLess(time.monotonic() - before, 9)  # a request has ten

    def test_traces_go_over_https_to_a_trusted_receiver(self):
        name = str(self.dir / "receiver")
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
                        "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-keyout", name + ".key", "-out",
                        name + ".pem"], check=True, capture_output=True)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(name + ".pem", name + ".key")
        receiver = Receiver(self, context=context)
        env = {"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url}
        self.ok("run", "k", "--", "true", env=env)
        self.assertEqual(receiver.spans, [])
        self.ok("run", "k", "--", "true", env=dict(env, OTEL_EXPORTER_OTLP_CERTIFICATE=name + ".pem"))
        self.assertEqual(len(receiver.named("lock.hold")), 1)

    def test_an_invalid_receiver_url_is_reported_and_delays_no_lock(self):
        for url in ("collector:4317", "file:///etc/passwd", "grpc://x"):
            result = self.ok("run", "k", "--", "true", env={"OTEL_EXPORTER_OTLP_ENDPOINT": url})
            self.assertEqual(result.err.count("cannot send traces: OTEL_EXPORTER_OTLP_ENDPOINT is not a URL such as"), 1, result.err)
        for url in ("http://", "https://[::", "http://127.0.0.1:99999999", "http://a b/"):
            self.ok("run", "k", "--", "true", env={"OTEL_EXPORTER_OTLP_ENDPOINT": url})

    def dropped(self, server):
        return int(re.search(r"^belay_spans_dropped_total (\d+)$", server.get("/metrics").body.decode(), re.M).group(1))

    def test_dropped_telemetry_is_counted(self):
        for status in (400, 500):
            receiver = Receiver(self, status=status)
            server = self.serve(env={"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url})
            server.acquire("k", ttl_ms=60000)
            wait_until(lambda: self.dropped(server) >= 2, "the count of what was dropped")
            self.assertEqual(server.stop(), 0)

    def test_a_slow_receiver_gets_what_fits_and_the_rest_is_counted(self):
        gate = threading.Event()
        self.addCleanup(gate.set)
        receiver = Receiver(self, gate=gate)
        server = self.serve(env={"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url})
        connection = server.connect()
        self.addCleanup(connection.close)
        for i in range(1500):  # two spans each: more than are kept
            connection.request("POST", "/v1/acquire", json.dumps({"key": f"k{i}", "locked_by": "me", "ttl_ms": 60000}))
            self.assertEqual(connection.getresponse().read()[:6], b'{"key"')
        wait_until(lambda: self.dropped(server) > 0, "the count of what was dropped")
        gate.set()
        wait_until(lambda: len(receiver.spans) >= 1000, "what was kept")


if __name__ == "__main__":
    main()
