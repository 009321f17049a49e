"""The names in GET /metrics and CloudWatch's lines, and that rules and dashboards use no others (S0.7, S3.9, S4.11)."""

import json
import re
import signal

from server_support import ROOT, ServerCase, main, wait_until

LOCK_LABELS = {"level", "profile", "environment", "stack"}
# The metrics that the documents require, and ours.
DOCUMENTS = {
    "S0.7 acquisition failures": ("belay_lock_acquisitions_total", "counter", LOCK_LABELS | {"result"}),
    "S0.7 expiries without completion": ("belay_lock_expired_total", "counter", LOCK_LABELS),
    "S0.7 lock duration": ("belay_lock_held_duration_seconds", "histogram", LOCK_LABELS | {"le"}),
    "S3.9 db_stop_stopped": ("belay_db_stop_stopped_total", "counter", None),
    "S3.9 db_stop_skipped_shared_active": ("belay_db_stop_skipped_shared_active_total", "counter", None),
    "S3.9 db_stop_skipped_lock": ("belay_db_stop_skipped_lock_total", "counter", None),
    "S3.9 lock acquire retries": ("belay_db_lock_acquire_retries", "histogram", {"le"}),
    "S3.9 lock acquire duration": ("belay_db_lock_acquire_duration_seconds", "histogram", {"le"}),
    "S4.11 acquisition duration": ("belay_lock_acquire_duration_seconds", "histogram", LOCK_LABELS | {"le"}),
    "S4.11 acquisition success and failure": ("belay_lock_acquisitions_total", "counter", LOCK_LABELS | {"result"}),
    "S4.11 held duration": ("belay_lock_held_duration_seconds", "histogram", LOCK_LABELS | {"le"}),
    "S4.11 heartbeat success and failure": ("belay_lock_heartbeats_total", "counter", LOCK_LABELS | {"result"}),
    "S4.11 stale detected": ("belay_lock_stale_detected_total", "counter", LOCK_LABELS),
    "waits": ("belay_lock_wait_duration_seconds", "histogram", LOCK_LABELS | {"le"}),
    "requests": ("belay_http_requests_total", "counter", {"method", "route", "status"}),
    "latencies": ("belay_http_request_duration_seconds", "histogram", {"method", "route", "le"}),
    "queue": ("belay_waiting", "gauge", set()),
    "commits": ("belay_store_commit_duration_seconds", "histogram", {"le"}),
    "commit batch": ("belay_store_commit_batch_size", "histogram", {"le"}),
    "syncs": ("belay_store_sync_duration_seconds", "histogram", {"le"}),
    "store errors": ("belay_store_errors_total", "counter", set()),
    "held over an hour": ("belay_locks_held_over_hour", "gauge", set()),
}
# S4.11's, as CloudWatch gets them.
EMF = {"deployer.lock.acquisition.duration", "deployer.lock.acquisition.success", "deployer.lock.acquisition.failure",
       "deployer.lock.held.duration", "deployer.lock.heartbeat.success", "deployer.lock.heartbeat.failure",
       "deployer.lock.stale.detected"}


class Metrics(ServerCase):
    def read(self, server):
        text = server.get("/metrics").body.decode()
        self.assertEqual(text.count("# TYPE"), len(set(re.findall(r"^# TYPE (\w+)", text, re.M))), "each has one head")
        return text

    def value(self, server, sample):
        """The value of one line, as it is written."""
        found = re.search(rf"^{re.escape(sample)} (\S+)$", self.read(server), re.M)
        self.assertIsNotNone(found, sample)
        return float(found.group(1))

    def labels(self, text, name, kind):
        """The names of the labels of all its samples; None without a sample."""
        found = None
        for labels in re.findall(rf"^{name}{'_bucket' if kind == 'histogram' else ''}(?:\{{(.*)\}})? \S+$", text, re.M):
            found = (found or set()) | set(re.findall(r'(\w+)="', labels))
        return found

    def test_metrics_have_every_name_of_the_documents_with_its_labels(self):
        """S0.7, S3.9, S4.11"""
        server = self.serve()
        lock = server.acquire("stack:shop:env:prod", ttl_ms=60000).json()
        server.release("stack:shop:env:prod", lock["lock_id"])
        text = self.read(server)
        for what, (name, kind, labels) in DOCUMENTS.items():
            with self.subTest(what=what):
                self.assertTrue(f"# TYPE {name} {kind}\n" in text, name)
                self.assertEqual(self.labels(text, name, kind), labels)

    def test_metrics_count_a_refused_heartbeat(self):
        """S4.11, also for clients without our library"""
        server = self.serve("--metrics", f"emf:{self.dir}/m.log", config=self.write_config(f"audit: {{file: {self.dir}/a.log}}\n"))
        server.acquire("k", ttl_ms=60000)
        self.assertEqual(server.renew("k", "not-the-holder").status, 409)
        self.assertEqual(server.post("/v1/renew", {"key": "k", "lock_id": ""}).status, 400)
        labels = 'level="key",profile="",environment="",stack="",result="failure"'
        self.assertEqual(self.value(server, f"belay_lock_heartbeats_total{{{labels}}}"), 1)
        (failed,) = [json.loads(line) for line in (self.dir / "a.log").read_text().splitlines() if "heartbeat.failed" in line]
        self.assertEqual((failed["lock_key"], failed["lock_id"], failed["level"]), ("k", "not-the-holder", "WARN"))
        self.assertEqual(server.get("/v1/locks/k").json()["status"], "active")

    def test_metrics_show_the_size_of_group_commits(self):
        server = self.serve()
        before = self.value(server, "belay_store_commit_batch_size_sum"), self.value(server, "belay_store_commit_batch_size_count")
        connections = [server.connect() for _ in range(40)]
        for connection in connections:
            self.addCleanup(connection.close)
            connection.request("GET", "/healthz")
            connection.getresponse().read()
        server.process.send_signal(signal.SIGSTOP)  # so that all of them are there at its next turn
        for i, connection in enumerate(connections):
            connection.request("POST", "/v1/acquire", json.dumps({"key": f"k{i}", "locked_by": "me", "ttl_ms": 60000}))
        server.process.send_signal(signal.SIGCONT)
        for connection in connections:
            self.assertEqual(connection.getresponse().status, 200)
        commits = self.value(server, "belay_store_commit_batch_size_sum") - before[0]
        batches = self.value(server, "belay_store_commit_batch_size_count") - before[1]
        self.assertEqual(commits, 40)
        self.assertLess(batches, 20)
        self.assertEqual(self.value(server, 'belay_store_commit_batch_size_bucket{le="+Inf"}'), batches + before[1])
        self.assertGreaterEqual(self.value(server, "belay_store_sync_duration_seconds_count"), batches)
        alone = self.value(server, 'belay_store_commit_batch_size_bucket{le="1"}')
        server.acquire("alone", ttl_ms=60000)
        self.assertEqual(self.value(server, 'belay_store_commit_batch_size_bucket{le="1"}'), alone + 1)

    def test_metrics_for_cloudwatch_have_the_names_of_its_alarms_and_of_document_004(self):
        """S4.11: every metric that deploy/cloudwatch watches is one that is written"""
        server = self.serve("--metrics", f"emf:{self.dir}/m.log")
        lock = server.acquire("stack:shop:env:prod", ttl_ms=60000, heartbeat_ms=50, stale_after_ms=100).json()
        server.acquire("stack:shop:env:prod")
        server.renew("stack:shop:env:prod", "wrong")
        wait_until(lambda: server.get("/v1/locks/stack:shop:env:prod").json()["is_stale"], "a missed heartbeat")
        server.renew("stack:shop:env:prod", lock["lock_id"])
        server.release("stack:shop:env:prod", lock["lock_id"])
        written = {}
        for line in (self.dir / "m.log").read_text().splitlines():
            entry = json.loads(line)
            (directive,) = entry["_aws"]["CloudWatchMetrics"]
            self.assertEqual(directive["Namespace"], "Deployer")
            for metric in directive["Metrics"]:
                written[metric["Name"]] = directive["Dimensions"]
        self.assertLessEqual(EMF, set(written))
        alarms = (ROOT / "deploy/cloudwatch/alarms.tf").read_text()
        watched = set(re.findall(r'metric_name\s*=\s*"([^"]+)"', alarms))
        self.assertGreaterEqual(len(watched), 3)
        self.assertLessEqual(watched, set(written))
        self.assertEqual(set(re.findall(r'namespace\s*=\s*"([^"]+)"', alarms)), {"Deployer"})
        for name in watched:  # an alarm without dimensions sees only what is written without
            self.assertIn([], written[name])
        self.assertNotIn("dimensions", alarms)

    def test_metrics_of_hostile_names_are_escaped_and_bounded(self):
        server = self.serve()
        for i in range(250):
            server.acquire(f'stack:a"}} 1 {{x="\\ {i}:env:{"é" * 40}{i}', ttl_ms=60000)
        text = self.read(server)
        self.assertEqual(len(re.findall(r"^belay_lock_expired_total\{", text, re.M)), 201)
        for line in text.splitlines():
            if not line.startswith("#"):
                self.assertRegex(line, r'^\w+(\{(\w+="([^"\\]|\\["\\n])*",?)*\})? [-+.\dInfe]+$')
        self.assertLess(len(text), 4 << 20)


if __name__ == "__main__":
    main()
