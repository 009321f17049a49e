"""Sessions of the dashboard: a cookie instead of the token, which no page of another site can use."""

import http.client
import re
import signal
import ssl
import subprocess

from server_support import ServerCase, main, wait_until

TOKENS = {"secret-reader": ("watcher", "reader", None), "secret-admin": ("boss", "admin", None)}


class Sessions(ServerCase):
    def setUp(self):
        super().setUp()
        self.server = self.serve(config=self.config_with(TOKENS))
        self.origin = {"Origin": self.server.url}

    def log_in(self, token="secret-admin", **headers):
        """The header with the cookie of a new session."""
        answer = self.server.call("POST", "/v1/session", token=token, headers={**self.origin, **headers})
        self.assertEqual(answer.status, 200)
        self.set_cookie = answer.headers["Set-Cookie"]
        return {"Cookie": self.set_cookie.split(";")[0]}

    def status(self, headers, method="GET", path="/v1/me"):
        return self.server.call(method, path, headers=headers).status

    def test_a_token_is_exchanged_for_a_cookie_that_scripts_cannot_read(self):
        answer = self.server.call("POST", "/v1/session", token="secret-reader", headers=self.origin)
        self.assertEqual((answer.json()["name"], answer.json()["role"]), ("watcher", "reader"))
        cookie = answer.headers["Set-Cookie"]
        self.assertRegex(cookie, rf"^belay_session_{self.server.port}=[0-9a-f]{{64}}; Path=/; HttpOnly; SameSite=Strict; Max-Age=43200$")
        self.assertNotIn("secret", cookie)
        me = self.server.get("/v1/me", headers={"Cookie": f"other=1; {cookie.split(';')[0]}; more=2"}).json()
        self.assertEqual((me["name"], me["role"]), ("watcher", "reader"))
        second = self.server.call("POST", "/v1/session", token="secret-reader", headers=self.origin)
        self.assertNotEqual(second.headers["Set-Cookie"], cookie)

    def test_only_a_token_begins_a_session(self):
        self.assertEqual(self.status(self.origin, "POST", "/v1/session"), 401)
        self.assertEqual(self.server.call("POST", "/v1/session", token="wrong").status, 401)
        self.assertEqual(self.status({**self.log_in(), **self.origin}, "POST", "/v1/session"), 401)

    def test_a_session_has_the_role_of_its_token(self):
        self.server.acquire("k", "job", token="secret-admin")
        reader, admin = self.log_in("secret-reader"), self.log_in("secret-admin")
        answer = self.server.call("DELETE", "/v1/locks/k", headers={**reader, **self.origin})
        self.assertEqual((answer.status, answer.error["code"]), (403, "not_permitted"))
        self.assertIsNone(self.server.get("/v1/locks/k", headers=reader).json()["lock_id"])
        self.assertEqual(self.server.call("DELETE", "/v1/locks/k?reason=r", headers={**admin, **self.origin}).status, 200)
        event = self.server.get("/v1/locks/k/history?limit=1", headers=admin).json()["events"][0]
        self.assertEqual((event["event"], event["by"]), ("lock.forced", "boss"))

    def test_a_change_needs_the_origin_of_this_server_or_a_header_of_its_page(self):
        cookie = self.log_in()
        form = {"Content-Type": "application/x-www-form-urlencoded"}
        forged = [form, {**form, "Origin": "http://evil.example"}, {**form, "Origin": "null"}, {**form, "Origin": "http://127.0.0.1:1"},
                  {"Belay-Session": "1", "Origin": "http://evil.example"}]
        for headers in forged:
            for method, path, body in (("POST", "/v1/acquire", '{"key":"k","locked_by":"x"}'), ("DELETE", "/v1/locks/k", None), ("DELETE", "/v1/session", None)):
                with self.subTest(headers=headers, method=method, path=path):
                    answer = self.server.call(method, path, body, headers={**cookie, **headers})
                    self.assertEqual((answer.status, answer.error["code"]), (403, "cross_origin"))
        self.assertEqual(self.server.get("/v1/locks/k", headers=cookie).status, 404)
        for n, headers in enumerate((self.origin, {"Belay-Session": "1"})):
            answer = self.server.call("POST", "/v1/acquire", {"key": f"k-{n}", "locked_by": "x"}, headers={**cookie, **headers})
            self.assertEqual(answer.status, 200)
        self.assertEqual(self.server.acquire("k-3", "x", token="secret-admin").status, 200, "a token needs neither")

    def test_a_token_comes_before_the_cookie(self):
        cookie = self.log_in("secret-admin")
        self.assertEqual(self.server.get("/v1/me", headers=cookie, token="secret-reader").json()["name"], "watcher")
        self.assertEqual(self.server.get("/v1/me", headers=cookie, token="wrong").status, 401)

    def test_wrong_cookies_are_refused(self):
        name, value = self.log_in()["Cookie"].split("=")
        for text in (f"{name}=", f"{name}={value[:-1]}", f"{name}={value}0", f"{name}={'0' * 64}", f"x{name}={value}", f"belay_session={value}", name, ";;;", "=" * 3000):
            self.assertEqual(self.status({"Cookie": text}), 401, text)
        self.assertEqual(self.status({"Cookie": f"{name}={value}"}), 200)

    def test_signing_out_ends_the_session_and_its_streams_and_no_other(self):
        cookie, other = self.log_in(), self.log_in()
        streams = {}
        for path in ("/v1/live", "/v1/events"):
            for name, header in (("mine", cookie), ("other", other)):
                streams[path, name] = connection = self.server.connect()
                self.addCleanup(connection.close)
                connection.request("GET", path, headers=header)
                streams[path, name] = connection.getresponse()
                self.assertEqual(streams[path, name].status, 200)
        answer = self.server.call("DELETE", "/v1/session", headers={**cookie, **self.origin})
        self.assertEqual(answer.status, 200)
        self.assertRegex(answer.headers["Set-Cookie"], rf"^belay_session_{self.server.port}=; .*Max-Age=0$")
        for path in ("/v1/live", "/v1/events"):
            comments = 0  # the first may be there already; another comes every 15 s
            for line in streams[path, "mine"]:
                comments += line.startswith(b":")
                self.assertLess(comments, 3, f"{path} is still open")
        self.assertEqual((self.status(cookie), self.status(other)), (401, 200))
        self.server.acquire("k", "x", token="secret-admin")
        for path in ("/v1/live", "/v1/events"):
            self.assertTrue(any(b'"k"' in line for line in streams[path, "other"]), f"the other session's {path} has ended")

    def test_a_session_ends_with_its_token_and_keeps_up_with_its_role(self):
        reader, admin = self.log_in("secret-reader"), self.log_in("secret-admin")
        self.config_with({"secret-reader": ("watcher", "locker", ["own-*"])})
        self.server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: self.status(admin) == 401, "the end of the session")
        me = self.server.get("/v1/me", headers=reader).json()
        self.assertEqual((me["role"], me["keys"]), ("locker", ["own-*"]))
        self.config_with(TOKENS)
        self.server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: self.server.get("/v1/me", headers=reader).json()["role"] == "reader", "the old role")

    def test_sessions_of_one_token_are_limited_and_end_no_other_tokens(self):
        admin = self.log_in("secret-admin")
        all_of_them = [self.log_in("secret-reader") for _ in range(66)]
        self.assertEqual([self.status(one) for one in all_of_them[:3]], [401, 401, 200])
        self.assertEqual((self.status(all_of_them[-1]), self.status(admin)), (200, 200))

    def test_the_cookie_is_for_tls_only_if_the_page_is(self):
        self.log_in()
        self.assertNotIn("Secure", self.set_cookie)
        host = f"{self.server.host}:{self.server.port}"
        self.log_in(Origin=f"https://{host}")  # a proxy has ended TLS
        self.assertTrue(self.set_cookie.endswith("; Secure"))
        key, certificate = self.dir / "key.pem", self.dir / "cert.pem"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", key, "-out", certificate,
                        "-days", "1", "-subj", "/CN=localhost"], check=True, capture_output=True)
        self.server.stop()
        server = self.serve("--tls-cert", str(certificate), "--tls-key", str(key), config=self.config_with(TOKENS))
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        connection = http.client.HTTPSConnection("127.0.0.1", server.port, context=context)
        self.addCleanup(connection.close)
        connection.request("POST", "/v1/session", headers={"Authorization": "Bearer secret-admin"})
        answer = connection.getresponse()
        self.assertTrue(re.search("HttpOnly.*; Secure$", answer.headers["Set-Cookie"]))

    def test_without_tokens_there_is_no_session(self):
        self.server.stop()
        server = self.serve()
        answer = server.call("POST", "/v1/session")
        self.assertEqual((answer.status, answer.json()), (200, {"name": None, "role": "admin", "expires_at": None}))
        self.assertIsNone(answer.headers["Set-Cookie"])

    def test_an_id_is_kept_in_no_log(self):
        cookie = self.log_in()
        self.assertEqual(self.status(cookie), 200)
        self.assertNotIn(cookie["Cookie"].split("=")[1], self.server.log())


if __name__ == "__main__":
    main()
