"""Quick status (S3.4): each answer an application can give, and what it counts as."""

import json
import os
import socket
import subprocess
import time
import urllib.error
import urllib.request

from shared_db_support import STORE, GuardCase, free_port, main


def make_certificate(directory, name):
    """Its own authority, for `name`."""
    path = os.path.join(directory, f"{name}.pem")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                    "-days", "2", "-subj", f"/CN={name}", "-addext", f"subjectAltName=DNS:{name}", "-keyout", path,
                    "-out", path + ".crt"], check=True, capture_output=True)
    with open(path, "a", encoding="ascii") as out, open(path + ".crt", encoding="ascii") as crt:
        out.write(crt.read())
    return path


class QuickStatus(GuardCase):
    def check(self, name, status, code):
        found = self.status(name)
        self.assertEqual((found["app"], found["status"], found["http_code"]), (name, status, code), found)
        self.assertRegex(found["timestamp"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")
        return found

    def test_only_200_is_up_and_any_other_answer_is_down(self):
        shop = self.application("shop")
        for status, word in [(200, "UP"), (204, "DOWN"), (401, "DOWN"), (404, "DOWN"), (500, "DOWN"), (503, "DOWN")]:
            with self.subTest(status=status):
                shop.status = status
                self.check("shop", word, status)
        self.assertEqual(set(shop.seen), {"HEAD"})

    def test_cautious_counts_ambiguous_answers_as_unknown(self):
        self.configure(quick_status_rule="cautious")
        shop = self.application("shop")
        for status, word in [(200, "UP"), (401, "UNKNOWN"), (403, "UNKNOWN"), (429, "UNKNOWN"), (500, "UNKNOWN"),
                             (501, "UNKNOWN"), (505, "UNKNOWN"), (502, "DOWN"), (503, "DOWN"), (504, "DOWN"), (404, "DOWN")]:
            with self.subTest(status=status):
                shop.status = status
                self.check("shop", word, status)

    def test_a_refused_head_is_repeated_as_get(self):
        shop = self.application("shop")
        for refusal in (405, 501):
            with self.subTest(refusal=refusal):
                shop.head_status, shop.seen = refusal, []
                self.check("shop", "UP", 200)
                self.assertEqual(shop.seen, ["HEAD", "GET"])

    def test_redirects_are_followed_but_not_for_ever(self):
        shop = self.application("shop")
        shop.location = shop.url.replace("/health", "/elsewhere")
        self.check("shop", "UP", 200)
        shop.location = shop.url
        self.check("shop", "UNKNOWN", None)
        shop.location = "file:///etc/passwd"
        self.check("shop", "UNKNOWN", None)

    def test_no_answer_is_unknown_and_says_why(self):
        shop = self.application("shop")
        shop.down()
        found = self.check("shop", "UNKNOWN", None)
        self.assertIn("connect", found["reason"])
        self.assertIs(found["connected"], False)
        self.ok("app", "register", "lost", "--url", "http://no-such-host.invalid/")
        self.assertIn("resolve", self.check("lost", "UNKNOWN", None)["reason"])

    def test_an_answer_after_2_9_seconds_counts_and_one_after_the_limit_does_not(self):
        self.configure(quick_status_timeout=6)  # the machine may be slow; the proportions are the document's
        shop = self.application("shop")
        shop.delay = 2.9
        self.check("shop", "UP", 200)
        self.configure(quick_status_timeout=1)
        self.assertIn("timed out", self.check("shop", "UNKNOWN", None)["reason"].lower())

    def test_all_urls_are_asked_at_once_within_one_limit(self):
        self.configure(quick_status_timeout=5)
        with socket.socket() as silent:
            silent.bind(("127.0.0.1", 0))
            silent.listen(64)  # takes connections and never answers
            urls = [f"http://127.0.0.1:{silent.getsockname()[1]}/{i}" for i in range(15)]
            shop = self.application("shop", *urls)
            began = time.monotonic()
            self.assertEqual(len(self.check("shop", "UP", 200)["urls"]), 16)
            self.assertLess(time.monotonic() - began, 40)  # one after another would take 75 s
            shop.status = 503
            self.check("shop", "UNKNOWN", None)  # one that does not answer may be up

    def test_one_url_that_answers_200_is_enough(self):
        shop = self.application("shop", f"http://127.0.0.1:{free_port()}/")
        self.check("shop", "UP", 200)
        shop.status = 500
        self.check("shop", "UNKNOWN", None)

    def test_ipv6_is_asked_as_well(self):
        self.application("shop", family=socket.AF_INET6)
        self.check("shop", "UP", 200)

    def test_a_certificate_that_cannot_be_verified_counts_as_no_answer(self):
        self.configure(quick_status_timeout=20)  # a handshake on a busy machine
        certificate = make_certificate(self.dir, "localhost")
        self.application("shop", certificate=certificate)
        self.assertIn("certificate", self.check("shop", "UNKNOWN", None)["reason"].lower())
        self.env["BELAY_CA_FILE"] = certificate + ".crt"
        self.check("shop", "UP", 200)
        wrong = make_certificate(self.dir, "elsewhere.example")
        self.application("other", certificate=wrong)
        self.env["BELAY_CA_FILE"] = wrong + ".crt"
        self.check("other", "UNKNOWN", None)

    def test_an_application_recorded_as_stopped_is_down_while_it_does_not_answer(self):
        """S3.4, settled."""
        shop = self.application("shop")
        self.ok("app", "mark-stopped", "shop", "--by", "alice")
        self.check("shop", "UP", 200)  # it answers: whatever is recorded, it is up
        shop.down()
        self.check("shop", "UNKNOWN", None)  # and that was the end of the record
        self.ok("app", "mark-stopped", "shop", "--by", "alice")
        self.assertIn("alice", self.check("shop", "DOWN", None)["reason"])
        self.ok("app", "mark-running", "shop")
        self.check("shop", "UNKNOWN", None)

    def test_an_unregistered_application_is_unknown(self):
        found = self.check("nobody", "UNKNOWN", None)
        self.assertIn("registry", found["reason"])
        self.assertIs(found["connected"], True)  # nobody has tried: that is not known

    def test_over_http_it_is_the_same_and_without_app_it_is_400(self):
        if STORE != "server":
            self.skipTest("on a server")
        shop = self.application("shop")
        url = self.env["BELAY_STORE"] + "/status/quick"

        def ask(app):
            with urllib.request.urlopen(f"{url}?app={app}", timeout=30) as answer:
                return json.load(answer)

        self.assertEqual([ask("shop")[name] for name in ("app", "status", "http_code")], ["shop", "UP", 200])
        self.assertEqual(ask("nobody")["status"], "UNKNOWN")
        shop.down()
        self.assertEqual((ask("shop")["status"], ask("shop")["http_code"]), ("UNKNOWN", None))
        with self.assertRaises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(url, timeout=30)
        self.assertEqual(refused.exception.code, 400)
        refused.exception.close()

    def test_a_slow_application_does_not_block_a_server(self):
        if STORE != "server":
            self.skipTest("on a server")
        shop = self.application("shop")
        shop.delay = 2.5
        url = self.env["BELAY_STORE"]
        slow = subprocess.Popen(["curl", "-s", f"{url}/status/quick?app=shop"], stdout=subprocess.PIPE)
        self.addCleanup(self.end, slow)
        answered = 0
        while slow.poll() is None:
            with urllib.request.urlopen(f"{url}/healthz", timeout=30) as answer:
                answered += answer.status == 200
        self.assertGreater(answered, 5)
        self.assertIn(b'"UP"', slow.stdout.read())


class Gateway(GuardCase):
    """API_GATEWAY_URL (S3.8): a gateway is queried, as document 003's controller does."""

    def test_the_gateway_is_queried_and_its_failures_are_unknown(self):
        import http.server
        import threading
        answers = {"a": '{"app":"a","status":"DOWN","http_code":503}', "b": '{"app":"b","status":"UP","http_code":200}',
                   "c": "<html>", "d": '{"app":"other","status":"DOWN","http_code":503}'}

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                body = answers[self.path.rsplit("=", 1)[1]].encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        gateway = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=gateway.serve_forever, daemon=True).start()
        self.addCleanup(gateway.server_close)
        self.addCleanup(gateway.shutdown)
        self.env["API_GATEWAY_URL"] = f"http://127.0.0.1:{gateway.server_address[1]}"
        self.env["no_proxy"] = "*"
        for name in ("me", "a", "b", "c", "d"):
            self.ok("app", "register", name, "--url", "http://127.0.0.1:9/", "--database", f"postgres={self.DATABASE}")
        self.run_database()
        result = self.stop("me", code=75)
        self.assertEqual(result["active_apps"], ["b", "c", "d"])
        for name in ("b", "c", "d"):
            self.ok("app", "remove", name)
        self.assertEqual(self.stop("me")["action"], "stopped")


if __name__ == "__main__":
    main()
