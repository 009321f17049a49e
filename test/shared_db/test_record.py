"""Records that an application is stopped: when they count, and what clears them (S3.4)."""

import http.server
import json
import shutil
import subprocess
import threading
import time

from shared_db_support import BELAY, GuardCase, main


def utc(seconds_from_now):
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + seconds_from_now))


class Records(GuardCase):
    CONTROLLER = {"quick_status_timeout": 2}

    def state(self, name):
        return self.ok("app", "show", name, "--json").json()["state"]

    def import_state(self, name, state, since=None, url="http://127.0.0.1:9/"):
        self.ok("app", "import", "-", text=json.dumps({"apps": [{
            "name": name, "urls": [url], "databases": [f"postgres={self.DATABASE}"], "state": state,
            **({"since": since} if since else {})}]}))

    def test_a_skipped_stop_records_nothing_as_stopped(self):
        self.application("a")
        self.application("b")
        self.run_database()
        self.assertEqual(self.stop("b", code=75)["active_apps"], ["a"])
        self.assertEqual(self.state("b"), "stop_requested")

    def test_a_completed_stop_records_the_application_as_stopped(self):
        self.application("a")
        self.run_database()
        self.assertEqual(self.stop("a")["action"], "stopped")
        self.assertEqual(self.state("a"), "stopped")
        self.ok("app", "mark-running", "a")
        self.assertEqual(self.stop("a")["action"], "skipped")  # it is stopped already
        self.assertEqual(self.state("a"), "stopped")

    def test_an_application_that_came_back_and_is_slow_keeps_its_database(self):
        """It was not seen UP, but an accepted connection is a sign of life."""
        self.application("a")
        b = self.application("b")
        self.run_database()
        b.down()
        self.stop("b", code=75)
        b.up()
        b.delay = 4
        result = self.stop("a", code=75)
        self.assertIn("b is UNKNOWN", result["reason"])
        self.ok("app", "mark-stopped", "b", "--by", "alice")
        self.assertIn("b is UNKNOWN", self.stop("a", code=75)["reason"])
        self.assertTrue(self.running())

    def test_an_unresolvable_name_is_not_taken_for_stopped(self):
        """A failure of the resolver is local: the application may be up at an address that we cannot resolve."""
        resolver = self.dir / "resolv.conf"
        resolver.write_text("nameserver 127.0.0.1\noptions timeout:1 attempts:1\n", encoding="utf-8")
        inside = ["unshare", "-rm", "sh", "-c", 'mount --bind "$0" /etc/resolv.conf && exec "$@"', str(resolver)]
        if shutil.which("unshare") is None or subprocess.run([*inside, "true"], capture_output=True, check=False).returncode != 0:
            self.skipTest("this system gives no mount namespace to try it in")
        self.application("a")
        self.run_database()
        for state in ("stopped", "stop_requested"):
            with self.subTest(state):
                self.import_state("b", state, utc(-60), url="http://shop.invalid:8080/")
                done = subprocess.run([*inside, BELAY, "db", "stop", "--app", "a", "--json"], env=self.environment({}), cwd=self.dir,
                                      stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8", timeout=60, check=False)
                self.assertEqual(done.returncode, 75, done)
                self.assertIn("b is UNKNOWN", json.loads(done.stdout)["results"][0]["reason"])
                self.assertTrue(self.running())

    def test_an_application_seen_up_loses_its_stopped_record(self):
        for what, see in [("status", lambda: self.status("b")), ("a stop", lambda: self.stop("a", code=75))]:
            with self.subTest(what=what):
                self.applications.pop("b", None)
                self.belay("app", "remove", "a")
                self.belay("app", "remove", "b")
                self.application("a")
                b = self.application("b")
                self.run_database()
                self.ok("app", "mark-stopped", "b", "--by", "alice")
                see()
                self.assertEqual(self.state("b"), "running")
                b.down()
                self.assertIn("b is UNKNOWN", self.stop("a", code=75)["reason"])
                self.assertTrue(self.running())

    def test_a_dry_run_that_sees_it_up_changes_nothing(self):
        self.application("a")
        self.application("b")
        self.ok("app", "mark-stopped", "b")
        self.stop("a", "--dry-run", code=75)
        self.assertEqual(self.state("b"), "stopped")

    def test_a_record_expires(self):
        self.application("a")
        self.run_database()
        self.import_state("b", "stopped", utc(-25 * 3600))
        self.assertIn("too old", self.stop("a", code=75)["reason"])
        self.configure(stopped_record_max_age="26h")
        self.assertEqual(self.status("b")["status"], "DOWN")
        self.import_state("b", "stopped", utc(3600))
        self.assertEqual(self.status("b")["status"], "UNKNOWN")  # from the future: it would never age
        self.assertTrue(self.running())

    def test_an_export_does_not_renew_a_record(self):
        self.import_state("b", "stopped", utc(-25 * 3600))
        exported = self.ok("app", "export").out
        self.ok("app", "remove", "b")
        self.ok("app", "import", "-", text=exported)
        self.assertEqual(self.status("b")["status"], "UNKNOWN")
        self.assertIn("-:2: since must be a time", self.fails(65, "app", "import", "-", text=(
            "apps:\n  - {name: c, urls: ['http://127.0.0.1:9/'], state: stopped, since: yesterday}\n")).err)

    def test_a_record_counts_only_for_the_urls_of_its_time(self):
        self.application("b").down()
        self.ok("app", "mark-stopped", "b")
        self.assertEqual(self.status("b")["status"], "DOWN")
        self.ok("app", "register", "b", "--replace", "--url", "http://127.0.0.1:9/elsewhere", "--database",
                f"postgres={self.DATABASE}")
        self.assertEqual(self.status("b")["status"], "UNKNOWN")


class Gateway(GuardCase):
    """A record counts only with an answer about the application, and the gateway gets our token."""

    CONTROLLER = {"quick_status_timeout": 1}

    def setUp(self):
        super().setUp()
        case = self
        self.seen, self.status_code, self.body, self.headers, self.delay = [], 200, "", {}, 0

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                case.seen.append((self.path, self.headers.get("Authorization")))
                time.sleep(case.delay)
                self.send_response(case.status_code)
                for name, value in case.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(case.body)))
                self.end_headers()
                self.wfile.write(case.body.encode())

            def log_message(self, *_):
                pass

        gateway = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        gateway.daemon_threads = True
        gateway.handle_error = lambda *_: None
        threading.Thread(target=gateway.serve_forever, daemon=True).start()
        self.addCleanup(gateway.server_close)
        self.addCleanup(gateway.shutdown)
        self.url = f"http://127.0.0.1:{gateway.server_address[1]}"
        for name in ("me", "b"):
            self.ok("app", "register", name, "--url", "http://127.0.0.1:9/", "--database", f"postgres={self.DATABASE}")
        self.ok("app", "mark-stopped", "b")
        token = self.dir / "token"
        token.write_text("blt-secret\n", encoding="ascii")
        token.chmod(0o600)
        self.token = str(token)
        self.gateway = {"API_GATEWAY_URL": self.url, "no_proxy": "*"}
        self.run_database()

    def decide(self, code, **env):
        return self.stop("me", code=code, env={**self.gateway, **env})

    def test_a_failure_of_the_gateway_is_not_taken_for_a_stopped_application(self):
        good = '{"app":"b","status":"UNKNOWN","http_code":null}'
        for status, body in [(500, ""), (500, good), (401, good), (403, ""), (404, good), (503, ""), (200, "<html>"),
                             (200, ""), (200, '{"app":"c","status":"DOWN"}'), (200, '{"app":"b"}'),
                             (200, '{"app":"b","status":"unknown"}'), (200, good[:-1] + ',"connected":true}'),
                             (200, '{"app":"b","status":"UNKNOWN","http_code":500}')]:
            with self.subTest(status=status, body=body):
                self.status_code, self.body = status, body
                self.assertIn("b is UNKNOWN", self.decide(75)["reason"])
        self.status_code, self.body, self.delay = 200, good, 3
        self.assertIn("b is UNKNOWN", self.decide(75)["reason"])
        self.gateway["API_GATEWAY_URL"] = "http://127.0.0.1:9"
        self.assertIn("b is UNKNOWN", self.decide(75)["reason"])
        self.assertTrue(self.running())

    def test_a_record_counts_on_an_answer_about_the_application(self):
        self.body = '{"app":"b","status":"UNKNOWN","http_code":null}'
        self.assertEqual(self.decide(0)["action"], "stopped")

    def test_a_request_counts_only_if_the_gateway_could_not_connect(self):
        self.ok("app", "mark-running", "b")
        self.stop("b", code=75, env={"API_GATEWAY_URL": "http://127.0.0.1:9", "no_proxy": "*"})
        self.body = '{"app":"b","status":"UNKNOWN","http_code":null}'
        self.assertIn("b is UNKNOWN", self.decide(75)["reason"])
        self.body = '{"app":"b","status":"UNKNOWN","http_code":null,"connected":false}'
        self.assertEqual(self.decide(0)["action"], "stopped")

    def test_a_gateway_that_says_up_clears_the_record(self):
        self.body = '{"app":"b","status":"UP","http_code":200}'
        self.decide(75)
        self.assertEqual(self.ok("app", "show", "b", "--json").json()["state"], "running")

    def test_only_the_gateway_gets_our_token(self):
        self.body = '{"app":"b","status":"UP","http_code":200}'
        self.decide(75)
        self.assertEqual(self.seen.pop(), ("/status/quick?app=b", None))
        self.decide(75, BELAY_AUTH_FILE=self.token)
        self.assertEqual(self.seen.pop(), ("/status/quick?app=b", "Bearer blt-secret"))
        # A redirect is not followed with it, wherever it leads.
        self.status_code, self.headers = 302, {"Location": self.url + "/stolen"}
        self.assertIn("b is UNKNOWN", self.decide(75, BELAY_AUTH_FILE=self.token)["reason"])
        self.assertEqual([path for path, _ in self.seen], ["/status/quick?app=b"])
        self.seen.clear()
        # Unencrypted it goes to this machine only: here a proxy is used for another host.
        self.status_code, self.headers = 401, {}
        result = self.decide(75, BELAY_AUTH_FILE=self.token, API_GATEWAY_URL="http://127.0.0.1.example",
                             http_proxy=self.url, no_proxy="127.0.0.1")
        self.assertEqual(self.seen, [("http://127.0.0.1.example/status/quick?app=b", None)])
        self.assertIn("https://", result["reason"])

    def test_an_unreadable_gateway_token_prevents_a_stop(self):
        self.body = '{"app":"b","status":"DOWN","http_code":503}'
        self.env.update(self.gateway)
        self.fails(78, "db", "stop", "--app", "me", env={"BELAY_AUTH_FILE": str(self.dir / "none")})
        self.assertTrue(self.running())


if __name__ == "__main__":
    main()
