"""Calls over real connections: what is sent, and what each kind of failure comes to (L5, L8)."""
import email.utils
import json
import os
import socket
import ssl
import subprocess
import tempfile
import threading
import time
import unittest
import zlib

from support import ID, SECRET, Driver, Server, closed_port, json_error, signature_is_right

KEYS = {"AWS_ACCESS_KEY_ID": ID, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": "eu-west-1"}
TARGET = [["Content-Type", "application/x-amz-json-1.0"], ["X-Amz-Target", "DynamoDB_20120810.UpdateItem"]]


def fine(_seen=None, _number=0):
    return 200, {}, "{}"


def write(driver, **more):
    return driver("call", **{"service": "dynamodb", "operation": "UpdateItem", "headers": TARGET, "body": '{"a":1}',
                             "retry": "none", **more})


class Silent:
    """Accepts connections, reads, and does not answer; or cuts them, as configured."""

    def __init__(self, cut_after=None):
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.socket.getsockname()[1]}"
        self.cut_after, self.kept, self.received = cut_after, [], []
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            self.kept.append(connection)
            if self.cut_after is None:
                continue
            data = connection.recv(65536) if self.cut_after > 0 else b""
            self.received.append(data)
            connection.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()
        for connection in self.kept:
            connection.close()


class Calls(unittest.TestCase):
    def open(self, url, **env):
        driver = self.enterContext(Driver(**{**KEYS, "AWS_ENDPOINT_URL_DYNAMODB": url, "AWS_ENDPOINT_URL_S3": url, **env}))
        self.assertEqual(driver("open")["code"], "ok")
        return driver

    def serve(self, answer, **options):
        return self.enterContext(Server(answer, **options))

    def test_calls_send_a_request_that_is_signed_as_it_arrives(self):
        body = b'{"Item":{}}'
        server = self.serve(lambda *_: (200, {"x-amz-crc32": str(zlib.crc32(body)), "Date": "Sat, 31 Jan 2026 12:00:00 GMT"},
                                        body))
        driver = self.open(server.url, AWS_SESSION_TOKEN="the+token/==")
        answer = write(driver)
        self.assertEqual((answer["code"], answer["status"], answer["body"]), ("ok", 200, body.decode()))
        self.assertEqual(answer["date_unix_ms"], 1769860800000)
        seen = server.seen[0]
        self.assertTrue(signature_is_right(seen, SECRET, "dynamodb"))
        self.assertFalse(signature_is_right(seen, SECRET + "x", "dynamodb"))
        self.assertEqual((seen["method"], seen["path"], seen["body"]), ("POST", "/", b'{"a":1}'))
        self.assertEqual(seen["headers"]["X-Amz-Security-Token"], "the+token/==")
        self.assertEqual(seen["headers"]["Accept-Encoding"], "identity")
        self.assertEqual(seen["headers"].get_all("Content-Type"), ["application/x-amz-json-1.0"])
        self.assertIsNone(seen["headers"]["Expect"])
        self.assertTrue(seen["headers"]["User-Agent"].startswith("belay/"))

    def test_calls_of_every_method_arrive_as_signed(self):
        server = self.serve(fine)
        driver = self.open(server.url)
        for method, body in [("GET", ""), ("PUT", "content"), ("PUT", ""), ("DELETE", ""), ("HEAD", ""), ("POST", "x" * 70000)]:
            answer = driver("call", service="s3", method=method, path="/bucket/a%20b//../c%2Bd", body=body,
                            query="list-type=2&prefix=a%2Fb", headers=[["x-amz-meta-a", " b  c "]])
            self.assertEqual(answer["code"], "ok", answer)
            seen = server.seen[-1]
            self.assertEqual((seen["method"], seen["path"]), (method, "/bucket/a%20b//../c%2Bd?list-type=2&prefix=a%2Fb"))
            self.assertEqual(seen["body"].decode(), body)
            self.assertIsNone(seen["headers"]["Content-Type"])
            self.assertTrue(signature_is_right(seen, SECRET, "s3"), method)

    def test_calls_reuse_one_connection(self):
        server = self.serve(fine)
        driver = self.open(server.url)
        for _ in range(5):
            self.assertEqual(write(driver)["code"], "ok")
        self.assertEqual(len({seen["port"] for seen in server.seen}), 1)

    def test_calls_from_threads_use_few_connections_and_all_succeed(self):
        server = self.serve(fine)
        driver = self.open(server.url)
        counts = driver("threads", n=8, each=25, service="dynamodb", headers=TARGET, body="{}", retry="none")
        self.assertEqual(counts, {"ok": 200})
        self.assertLessEqual(len({seen["port"] for seen in server.seen}), 8)

    def test_work_over_ipv6(self):
        server = self.serve(fine, address="::1")
        driver = self.open(server.url)
        self.assertEqual(write(driver)["code"], "ok")
        self.assertTrue(signature_is_right(server.seen[0], SECRET, "dynamodb"))

    def test_calls_to_a_closed_port_surely_did_nothing(self):
        driver = self.open(f"http://127.0.0.1:{closed_port()}")
        answer = write(driver)
        self.assertEqual((answer["code"], answer["in_doubt"]), ("unreachable", False))
        self.assertIn("cannot reach 127.0.0.1:", answer["text"])

    def test_calls_to_an_unknown_host_surely_did_nothing(self):
        driver = self.open("http://belay.invalid:1")
        self.assertEqual(write(driver)["code"], "unreachable")

    def test_calls_without_an_answer_are_unknown(self):
        with Silent() as server:
            driver = self.open(server.url)
            began = time.monotonic()
            answer = write(driver, timeout_ms=400)
            self.assertEqual(answer["code"], "unknown_outcome")
            self.assertLess(time.monotonic() - began, 5)

    def test_calls_cut_after_sending_are_unknown_and_sent_once(self):
        with Silent(cut_after=1) as server:
            driver = self.open(server.url)
            self.assertEqual(write(driver)["code"], "unknown_outcome")
            self.assertEqual(len(server.received), 1)
            self.assertIn(b"UpdateItem", server.received[0])

    def test_calls_cut_before_sending_surely_did_nothing(self):
        """The connection opens, but the TLS handshake fails."""
        with Silent(cut_after=1) as server:
            driver = self.open(server.url.replace("http:", "https:"))
            self.assertEqual(write(driver)["code"], "unreachable")
            self.assertEqual(len(server.received), 1)
            self.assertNotIn(b"UpdateItem", server.received[0])

    def test_calls_are_not_repeated_by_libcurl_when_a_kept_connection_dies(self):
        """The server acts on the request and hangs up without an answer: libcurl alone would repeat it."""
        server = self.serve(lambda _, number: fine() if number == 1 else None)
        driver = self.open(server.url)
        self.assertEqual(write(driver)["code"], "ok")
        self.assertEqual(write(driver)["code"], "unknown_outcome")
        self.assertEqual(len(server.seen), 2)
        self.assertEqual(len({seen["port"] for seen in server.seen}), 1)

    def test_reading_calls_are_repeated_when_a_kept_connection_dies(self):
        server = self.serve(lambda _, number: None if number == 2 else fine())
        driver = self.open(server.url)
        self.assertEqual(write(driver, reads_only=True)["code"], "ok")
        self.assertEqual(write(driver, reads_only=True)["code"], "ok")
        self.assertEqual(len(server.seen), 3)

    def test_calls_whose_answer_breaks_off_are_unknown(self):
        server = self.serve(lambda *_: (200, {"Content-Type": "x", "Transfer-Encoding": "chunked"}, "5\r\nab"))
        driver = self.open(server.url)
        self.assertEqual(write(driver, timeout_ms=500)["code"], "unknown_outcome")

    def test_calls_with_a_huge_answer_are_given_up(self):
        server = self.serve(lambda *_: (200, {}, b"x" * 3_000_000))
        driver = self.open(server.url)
        answer = write(driver, max_answer=100_000)
        self.assertEqual(answer["code"], "unknown_outcome")
        self.assertIn("the answer is too large", answer["text"])
        self.assertEqual(write(driver)["code"], "ok")

    def test_calls_with_endless_headers_in_the_answer_are_given_up(self):
        server = self.serve(lambda *_: (200, {f"x-{i}": "y" for i in range(300)}, "{}"))
        driver = self.open(server.url)
        self.assertEqual(write(driver)["code"], "unknown_outcome")

    def test_throttled_calls_succeed_in_the_end(self):
        throttle = json_error("ProvisionedThroughputExceededException")
        server = self.serve(lambda _, number: throttle if number < 3 else fine())
        driver = self.open(server.url)
        answer = write(driver, retry="safe")
        self.assertEqual((answer["code"], answer["attempts"], answer["slept_ms"]), ("ok", 3, 500 + 1000))
        self.assertFalse(answer["in_doubt"])

    def test_calls_answered_with_500_are_unknown_and_retried_only_if_allowed(self):
        server = self.serve(lambda *_: (500, {}, '{"__type":"InternalServerError"}'))
        driver = self.open(server.url)
        self.assertEqual(write(driver, retry="safe")["code"], "unknown_outcome")
        self.assertEqual(len(server.seen), 1)
        answer = write(driver, retry="standard")
        self.assertEqual((answer["code"], answer["attempts"]), ("unknown_outcome", 4))

    def test_calls_do_not_follow_a_redirect(self):
        other = self.serve(fine)
        server = self.serve(lambda *_: (307, {"Location": other.url}, ""))
        driver = self.open(server.url)
        self.assertNotEqual(write(driver)["code"], "ok")
        self.assertEqual(other.seen, [])

    def test_calls_with_a_wrong_secret_say_what_to_check_and_nothing_secret(self):
        def answer(seen, _):
            if signature_is_right(seen, SECRET, "dynamodb"):
                return fine()
            return json_error("InvalidSignatureException", "should be x-amz-security-token:THETOKEN")
        server = self.serve(answer)
        driver = self.open(server.url, AWS_SECRET_ACCESS_KEY="WrongSecret", AWS_SESSION_TOKEN="THETOKEN")
        said = write(driver, retry="standard")
        self.assertEqual((said["code"], said["attempts"]), ("not_permitted", 1))
        self.assertIn("AWS_SECRET_ACCESS_KEY", said["text"])
        self.assertIn("credentials from the environment", said["text"])
        self.assertNotIn("\n", said["text"])
        for secret in ("WrongSecret", "THETOKEN"):
            self.assertNotIn(secret, said["text"])

    def test_calls_with_an_expired_token_say_so(self):
        server = self.serve(lambda *_: json_error("ExpiredTokenException", "The security token included is expired"))
        driver = self.open(server.url, AWS_SESSION_TOKEN="t")
        said = write(driver)
        self.assertEqual((said["code"], said["attempts"]), ("not_permitted", 1))
        self.assertIn("get new credentials", said["text"])

    def test_calls_with_a_denied_action_name_it(self):
        message = "User: arn:aws:iam::1:user/u is not authorized to perform: dynamodb:UpdateItem on resource: x"
        server = self.serve(lambda *_: json_error("AccessDeniedException", message))
        self.assertIn("dynamodb:UpdateItem", write(self.open(server.url))["text"])

    def test_calls_without_a_region_say_what_to_set(self):
        driver = self.open("http://127.0.0.1:1", AWS_REGION="")
        said = write(driver)
        self.assertEqual(said["code"], "bad_config")
        self.assertIn("set AWS_REGION", said["text"])

    def test_calls_with_a_slow_clock_are_signed_with_the_servers_time(self):
        def answer(seen, _):
            signed = time.strptime(seen["headers"]["X-Amz-Date"] + "UTC", "%Y%m%dT%H%M%SZ%Z")
            now = time.strptime(email.utils.formatdate(usegmt=True), "%a, %d %b %Y %H:%M:%S GMT")
            off = abs(time.mktime(signed) - time.mktime(now))
            return json_error("InvalidSignatureException", "Signature expired", 400) if off > 300 else fine()
        server = self.serve(answer)
        driver = self.open(server.url)
        driver("set_wall", offset_ms=-600_000)
        said = write(driver)
        self.assertEqual((said["code"], said["attempts"]), ("ok", 2))
        self.assertAlmostEqual(said["skew_ms"], 600_000, delta=3000)
        self.assertEqual(write(driver)["attempts"], 1)

    def test_calls_refused_for_a_condition_return_the_body(self):
        body = json.dumps({"__type": "com.amazonaws.dynamodb.v20120810#ConditionalCheckFailedException",
                           "Message": "The conditional request failed", "Item": {"pk": {"S": "a"}}})
        server = self.serve(lambda *_: (400, {}, body))
        said = write(self.open(server.url))
        self.assertEqual((said["code"], said["error_code"], said["body"]),
                         ("refused", "ConditionalCheckFailedException", body))

    def test_calls_end_at_their_deadline(self):
        with Silent() as server:
            driver = self.open(server.url)
            began = time.monotonic()
            answer = write(driver, retry="standard", deadline_in_ms=700)
            self.assertEqual(answer["code"], "unknown_outcome")
            self.assertLess(time.monotonic() - began, 4)

    def test_calls_respect_no_proxy(self):
        """AWS endpoints go through a proxy if one is set: here the proxy is down."""
        server = self.serve(fine)
        driver = self.open(server.url, http_proxy=f"http://127.0.0.1:{closed_port()}", no_proxy=None)
        self.assertEqual(write(driver)["code"], "unreachable")
        driver = self.open(server.url, http_proxy=f"http://127.0.0.1:{closed_port()}", no_proxy="127.0.0.1")
        self.assertEqual(write(driver)["code"], "ok")


class Tls(unittest.TestCase):
    def setUp(self):
        self.folder = self.enterContext(tempfile.TemporaryDirectory())
        self.bundle = os.path.join(self.folder, "ca.pem")
        key = os.path.join(self.folder, "key.pem")
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
                        "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key,
                        "-out", self.bundle], check=True, stdin=subprocess.DEVNULL, capture_output=True)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.bundle, key)
        self.server = self.enterContext(Server(fine, ssl_context=context))

    def call(self, **env):
        with Driver(**KEYS, AWS_ENDPOINT_URL=self.server.url, **env) as driver:
            self.assertEqual(driver("open")["code"], "ok")
            return write(driver)

    def test_a_server_of_the_named_bundle_is_trusted(self):
        self.assertEqual(self.call(AWS_CA_BUNDLE=self.bundle)["code"], "ok")

    def test_an_untrusted_server_gets_no_request(self):
        said = self.call()
        self.assertEqual(said["code"], "unreachable")
        self.assertIn("certificate", said["text"])
        self.assertEqual(self.server.seen, [])

    def test_a_bundle_that_is_not_there_is_named(self):
        said = self.call(AWS_CA_BUNDLE="/nonexistent/ca.pem")
        self.assertEqual(said["code"], "bad_config")
        self.assertIn("/nonexistent/ca.pem", said["text"])


if __name__ == "__main__":
    unittest.main()
