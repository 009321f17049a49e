"""A waiting acquire may carry a webhook: the queue starts the next by itself (S0.10, S2.8)."""

import json
import os
import queue
import signal
import socket
import subprocess
import threading
import time

from webhook_support import Receiver, is_signed
from server_support import ServerCase, main, quoted, sha256, wait_until

ALLOW = 'server: {webhooks: {allow: ["127.0.0.1", "::1"]}}\n'


class HookCase(ServerCase):
    def setUp(self):
        super().setUp()
        self.server = self.serve(config=self.write_config(ALLOW))

    def queue_up(self, key, url, locked_by="bot", wait_ms=60000, webhook=None, **fields):
        return self.server.acquire(key, locked_by, wait_ms=wait_ms, webhook={"url": url, **(webhook or {})}, **fields)

    def events(self, key):
        return self.server.get(f"/v1/locks/{quoted(key)}/history").json()["events"]

    def holder(self, key):
        lock = self.server.get(f"/v1/locks/{quoted(key)}").json()
        return lock["locked_by"] if lock["status"] == "active" else None


class Calling(HookCase):
    def test_an_acquire_answers_at_once_and_the_webhook_is_called_on_the_grant(self):
        receiver = Receiver(self)
        self.server.acquire("k", "holder", lock_id="h")
        answer = self.queue_up("k", receiver.url, "job-1", lock_id="j1", ttl_ms=60000, metadata={"a": "b"})
        self.assertEqual(answer.status, 202)
        body = answer.json()
        self.assertEqual((body["key"], body["lock_id"], body["locked_by"], body["status"], body["position"]),
                         ("k", "j1", "job-1", "queued", 0))
        self.assertEqual(self.server.queue("k"), ["job-1"])
        self.assertTrue(receiver.calls.empty())
        self.server.release("k", "h")
        headers, lock, _ = receiver.next()
        self.assertEqual((lock["key"], lock["lock_id"], lock["locked_by"], lock["status"], lock["metadata"]),
                         ("k", "j1", "job-1", "active", {"a": "b"}))
        self.assertEqual((headers["Content-Type"], headers["Belay-Event"], headers["Belay-Attempt"]),
                         ("application/json", "lock.granted", "1"))
        self.assertLessEqual(lock["expires_in_ms"], 60000)
        self.assertEqual(self.server.renew("k", "j1").json()["token"], lock["token"])
        self.assertEqual(self.server.release("k", "j1").status, 200)

    def test_the_webhook_for_a_free_lock_is_called_at_once(self):
        receiver = Receiver(self)
        answer = self.queue_up("k", receiver.url)
        self.assertEqual((answer.status, answer.json()["status"]), (202, "calling"))
        self.assertEqual(receiver.lock()["lock_id"], answer.json()["lock_id"])

    def test_the_queue_advances_by_itself_in_order(self):
        """S2.8: the receiver works and releases, and the next one is called."""
        receiver = Receiver(self)
        for i in range(6):
            self.assertEqual(self.queue_up("build", receiver.url, f"job-{i}").status, 202)
        order = []
        for _ in range(6):
            lock = receiver.lock()
            self.assertEqual(self.holder("build"), lock["locked_by"])
            order.append(lock["locked_by"])
            self.server.release("build", lock["lock_id"])
        self.assertEqual(order, [f"job-{i}" for i in range(6)])

    def test_webhooks_and_connections_wait_in_one_queue(self):
        receiver = Receiver(self)
        self.server.acquire("k", "holder", lock_id="h")
        self.queue_up("k", receiver.url, "hook")
        later = self.server.acquire_later("k", "connected", wait_ms=20000, ttl_ms=90000)
        self.server.wait_for_queue("k", ["hook", "connected"])
        self.server.release("k", "h")
        lock = receiver.lock()
        self.assertFalse(later.is_there())
        self.server.release("k", lock["lock_id"])
        self.assertEqual(later.get().json()["locked_by"], "connected")

    def test_the_receiver_of_a_webhook_can_adopt_the_lock(self):
        receiver = Receiver(self)
        self.queue_up("k", receiver.url)
        lock = receiver.lock()
        done = self.ok("--store", self.server.url, "run", "--adopt", lock["lock_id"], "k", "--", "true")
        self.assertEqual(done.code, 0)

    def test_a_repeated_request_keeps_its_place_and_is_called_once(self):
        """L5"""
        receiver = Receiver(self)
        self.server.acquire("k", "holder", lock_id="h")
        self.queue_up("k", receiver.url, lock_id="j")
        again = self.queue_up("k", receiver.url, lock_id="j")
        self.assertEqual((again.status, again.json()["status"]), (202, "queued"))
        self.assertEqual(len(self.server.queue("k")), 1)
        self.assertEqual(self.queue_up("other", receiver.url, lock_id="j").status, 400)
        self.server.release("k", "h")
        receiver.next()
        wait_until(lambda: self.queue_up("k", receiver.url, lock_id="j").json()["status"] == "delivered", "delivery")
        self.assertTrue(receiver.calls.empty())

    def test_a_receiver_on_ipv6_is_called(self):
        receiver = Receiver(self, host="::1")
        self.queue_up("k", receiver.url)
        self.assertEqual(receiver.lock()["key"], "k")

    def test_the_server_answers_other_clients_while_a_receiver_is_slow(self):
        gate = threading.Event()
        self.addCleanup(gate.set)
        receivers = [Receiver(self, before=lambda: gate.wait(60)) for _ in range(3)]
        for i, receiver in enumerate(receivers):
            self.queue_up(f"k{i}", receiver.url)
        for receiver in receivers:
            receiver.next()
        began = time.monotonic()
        for i in range(50):
            self.assertEqual(self.server.acquire(f"free-{i}").status, 200)
        self.assertLess(time.monotonic() - began, 30)
        self.assertEqual(self.queue_up("k0", receivers[0].url, "second").json()["position"], 0)
        gate.set()


class Failing(HookCase):
    def passes_on(self, url, says, webhook=None, tries=None, **fields):
        """The lock of a failing webhook goes to the next waiter, which starts by itself."""
        good = Receiver(self)
        self.server.acquire("k", "holder", lock_id="h")
        self.assertEqual(self.queue_up("k", url, "bad", webhook=webhook, **fields).status, 202)
        self.assertEqual(self.queue_up("k", good.url, "good").status, 202)
        self.server.release("k", "h")
        self.assertEqual(good.lock()["locked_by"], "good")
        event = [e for e in self.events("k") if e["event"] == "lock.released" and e["locked_by"] == "bad"][0]
        self.assertEqual(event["reason"], "failed")
        self.assertRegex(event["by"], f"^webhook .*{says}")
        self.assertIn("the lock is released", self.server.log())
        if tries:
            self.assertIn(f"after {tries} tries", self.server.log())

    def test_a_500_is_retried_and_then_passes_the_lock_on(self):
        self.passes_on(Receiver(self, [500]).url, "answered 500", ttl_ms=10000)

    def test_an_error_that_goes_away_does_no_harm(self):
        receiver = Receiver(self, [503, 200])
        self.queue_up("k", receiver.url, ttl_ms=60000)
        first, second = receiver.next(), receiver.next()
        self.assertEqual((first[0]["Belay-Attempt"], second[0]["Belay-Attempt"]), ("1", "2"))
        self.assertEqual(first[1]["token"], second[1]["token"])
        self.assertLess(second[1]["expires_in_ms"], first[1]["expires_in_ms"])
        self.assertEqual(self.holder("k"), "bot")

    def test_a_refusal_is_not_tried_again(self):
        receiver = Receiver(self, [404])
        self.passes_on(receiver.url, "answered 404", tries=1)
        self.assertEqual(receiver.n, 1)

    def test_a_redirect_is_not_followed(self):
        elsewhere = Receiver(self)
        receiver = Receiver(self, [307], headers=[("Location", elsewhere.url)])
        self.passes_on(receiver.url, "answered 307", tries=1)
        self.assertTrue(elsewhere.calls.empty())

    def test_a_receiver_that_times_out_passes_the_lock_on(self):
        gate = threading.Event()
        self.addCleanup(gate.set)
        receiver = Receiver(self, before=lambda: gate.wait(60))
        self.passes_on(receiver.url, "no answer", webhook={"timeout_ms": 200}, ttl_ms=4000)

    def test_a_dead_receiver_passes_the_lock_on(self):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.passes_on(f"http://127.0.0.1:{port}/", "cannot reach", ttl_ms=4000)

    def test_a_receiver_with_an_unresolvable_name_passes_the_lock_on(self):
        self.passes_on("http://no-such-host.invalid/", "cannot reach", ttl_ms=3000)

    def test_a_receiver_that_does_not_speak_http_passes_the_lock_on(self):
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            listener.listen()

            def answer():
                with listener.accept()[0] as connection:
                    connection.recv(4096)
                    connection.sendall(b"SSH-2.0-nothing\r\n")
            threading.Thread(target=answer, daemon=True).start()
            self.passes_on(f"http://127.0.0.1:{listener.getsockname()[1]}/", ".", ttl_ms=3000)


class Leaving(HookCase):
    def test_a_queued_request_is_cancelled_by_delete_or_release(self):
        receiver = Receiver(self)
        self.server.acquire("k", "holder", lock_id="h")
        self.queue_up("k", receiver.url, "one", lock_id="j1")
        self.queue_up("k", receiver.url, "two", lock_id="j2")
        self.queue_up("k", receiver.url, "three", lock_id="j3")
        answer = self.server.call("DELETE", "/v1/locks/k/queue?lock_id=j1")
        self.assertEqual((answer.status, answer.json()["status"]), (200, "cancelled"))
        self.server.wait_for_queue("k", ["two", "three"])
        self.server.release("k", "j2")
        self.server.wait_for_queue("k", ["three"])
        self.assertEqual(self.server.call("DELETE", "/v1/locks/k/queue?lock_id=j1").status, 404)
        self.assertEqual(self.server.call("DELETE", "/v1/locks/other/queue?lock_id=j3").status, 404)
        self.assertEqual(self.server.call("DELETE", "/v1/locks/k/queue").status, 400)
        self.server.release("k", "h")
        self.assertEqual(receiver.lock()["locked_by"], "three")
        self.assertTrue(receiver.calls.empty())

    def test_the_wait_ends_after_wait_ms(self):
        receiver = Receiver(self)
        self.server.acquire("k", "holder", lock_id="h")
        self.queue_up("k", receiver.url, "job-1", lock_id="j1", wait_ms=300)
        headers, told, _ = receiver.next()
        self.assertEqual((headers["Belay-Event"], headers["Belay-Attempt"]), ("wait.ended", "1"))
        self.assertEqual(told, {"event": "wait.ended", "key": "k", "keys": None, "lock_id": "j1", "locked_by": "job-1",
                                "locked_by_name": "job-1", "reason": "timed out"})
        self.assertEqual(self.server.queue("k"), [])
        self.assertIn("wait.ended", [e["event"] for e in self.events("k")])
        wait_until(lambda: "answered 200" in self.server.log(), "the call to be answered")
        self.server.release("k", "h")
        self.assertTrue(receiver.calls.empty())
        self.assertEqual(self.queue_up("k", receiver.url, "job-1", lock_id="j1").status, 202)
        self.assertEqual(receiver.lock()["lock_id"], "j1")

    def test_a_lock_id_with_which_another_request_waits_is_busy(self):
        self.server.acquire("k", "holder", lock_id="h")
        self.server.acquire_later("k", "bot", lock_id="j1", wait_ms=60000)
        self.server.wait_for_queue("k", ["bot"])
        answer = self.queue_up("k", "http://127.0.0.1:1/", lock_id="j1")
        self.assertEqual((answer.status, answer.error["code"]), (503, "busy"), answer)
        self.assertIn("'j1' is in progress", answer.error["message"])
        self.assertEqual(self.server.queue("k"), ["bot"])

    def test_the_end_of_a_wait_is_recorded_again_after_an_error(self):
        receiver = Receiver(self, (503, 200))
        self.server.acquire("k", "holder", lock_id="h")
        self.queue_up("k", receiver.url, lock_id="j1", wait_ms=300)
        self.assertEqual([receiver.next()[0]["Belay-Attempt"] for _ in range(2)], ["1", "2"])
        self.assertEqual(self.holder("k"), "holder")

    def test_a_client_that_hangs_up_after_asking_stays_in_the_queue(self):
        receiver = Receiver(self)
        self.server.acquire("k", "holder", lock_id="h")
        body = json.dumps({"locked_by": "bot", "wait_ms": 60000, "webhook": {"url": receiver.url}})
        connection = self.server.connect()
        connection.request("POST", "/v1/locks/k/acquire", body)
        connection.close()
        self.server.wait_for_queue("k", ["bot"])
        self.server.release("k", "h")
        self.assertEqual(receiver.lock()["locked_by"], "bot")


class Limits(ServerCase):
    def test_the_length_of_a_queue_is_limited(self):
        config = self.write_config('server: {webhooks: {allow: ["127.0.0.1"], max: 2}}\n')
        server = self.serve(config=config)
        server.acquire("k", "holder", lock_id="h")
        for status in (202, 202, 503):
            answer = server.acquire("k", "x", wait_ms=60000, webhook={"url": "http://127.0.0.1:1/"})
            self.assertEqual(answer.status, status)
        self.assertEqual(answer.error["code"], "busy")

    def test_bad_input_is_named_and_queues_nothing(self):
        """L8"""
        server = self.serve(config=self.write_config(ALLOW))
        good = {"url": "http://127.0.0.1:1/"}
        for webhook, fields, says in (
                ({"url": "ftp://x/"}, {}, "http:// or https://"), ({"url": "http://"}, {}, "http:// or https://"),
                ({"url": "http://a b/"}, {}, "percent-encoded"), ({"url": "http://u:p@127.0.0.1/"}, {}, "no user"),
                ({"url": "http://x/" + "y" * 2100}, {}, "2048"), ({}, {}, "url is missing"), ("x", {}, "must be an object"),
                ({**good, "timeout_ms": 5}, {}, "from 100"), ({**good, "timeout": 5}, {}, "did you mean 'timeout_ms'"),
                ({**good, "secret": ""}, {}, "webhook.secret"), (good, {"wait_ms": 0}, "wait_ms must be from 1"),
                (good, {"wait_ms": 8 * 86400000}, "wait_ms must be from 1")):
            with self.subTest(str(webhook)[:60]):
                answer = server.acquire("k", "x", **{"wait_ms": 60000, "webhook": webhook, **fields})
                self.assertEqual((answer.status, answer.error["code"]), (400, "invalid"), answer)
                self.assertIn(says, answer.error["message"])
        self.assertEqual(server.get("/v1/locks?status=all").json()["locks"], [])

    def test_a_wrong_configuration_is_named(self):
        for text, says in (('{allow: ["10.0.0.1/8"]}', "allow.0"), ('{allow: [intranet]}', "allow.0"),
                           ("{secret_file: /nonexistent}", "secret_file"), ("{max: 0}", "max")):
            config = self.write_config(f"server: {{webhooks: {text}}}\n")
            result = self.fails(78, "serve", "--listen", "127.0.0.1:0", "--config", str(config))
            self.assertIn(says, result.err)


class Addresses(ServerCase):
    """A stranger must not have the server call what only the server can reach."""

    def test_addresses_that_are_not_public_are_refused(self):
        server = self.serve()
        for host in ("127.0.0.1", "127.1", "2130706433", "0x7f000001", "0177.0.0.1", "localhost", "LOCALHOST.", "a.localhost",
                     "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0", "224.0.0.1",
                     "255.255.255.255", "192.0.2.1", "[::1]", "[::]", "[fe80::1]", "[fd00:ec2::254]", "[ff02::1]",
                     "[::ffff:127.0.0.1]", "[::ffff:169.254.169.254]", "[::ffff:7f00:1]", "[::127.0.0.1]",
                     "[64:ff9b::7f00:1]", "[2002:7f00:1::]", "[2001:db8::1]"):
            with self.subTest(host):
                answer = server.acquire("k", "x", wait_ms=60000, webhook={"url": f"http://{host}:80/"})
                self.assertEqual((answer.status, answer.error["code"]), (400, "invalid"), answer)
                self.assertIn("not a public address", answer.error["message"])

    def test_public_addresses_are_not_refused(self):
        server = self.serve()
        server.acquire("k", "holder")
        for host in ("93.184.215.14", "hooks.example.com", "[2606:4700::1111]"):
            answer = server.acquire("k", "x", wait_ms=60000, webhook={"url": f"https://{host}/"})
            self.assertEqual(answer.status, 202, answer)

    def test_a_name_that_leads_to_a_private_address_is_not_called(self):
        """The address of the connection counts, not the name."""
        receiver = Receiver(self)
        name = socket.gethostname()
        addresses = {info[4][0] for info in socket.getaddrinfo(name, 80)}
        self.assertTrue(addresses)
        server = self.serve()
        answer = server.acquire("k", "x", wait_ms=60000, webhook={"url": f"http://{name}:{receiver.port}/"})
        self.assertEqual(answer.status, 202)
        wait_until(lambda: "is not a public address" in server.log(), "the log to say so")
        self.assertTrue(receiver.calls.empty())
        self.assertEqual(server.get("/v1/locks/k").json()["outcome"], "failed")

    def test_only_allowed_webhook_addresses_are_called(self):
        receiver = Receiver(self)
        server = self.serve(config=self.write_config('server: {webhooks: {allow: ["127.0.0.2"]}}\n'))
        answer = server.acquire("k", "x", wait_ms=60000, webhook={"url": f"http://localhost:{receiver.port}/"})
        self.assertEqual(answer.status, 400)

    def test_the_proxy_of_the_environment_is_not_used(self):
        """It would look the name up itself."""
        receiver, proxy = Receiver(self), Receiver(self)
        env = {"http_proxy": proxy.url, "all_proxy": proxy.url, "no_proxy": ""}
        server = self.serve(config=self.write_config(ALLOW), env=env)
        server.acquire("k", "x", wait_ms=60000, webhook={"url": receiver.url})
        self.assertEqual(receiver.lock()["key"], "k")
        self.assertTrue(proxy.calls.empty())


class Signing(ServerCase):
    def secret_file(self, name, secret):
        path = self.dir / name
        path.write_text(secret + "\n")
        path.chmod(0o600)
        return str(path)

    def test_a_call_is_signed_with_the_secret_of_request_token_or_server(self):
        tokens = [{"name": "ci", "role": "locker", "sha256": sha256("t-ci"), "webhook_secret_file":
                   self.secret_file("ci.secret", "of the token")}, {"name": "bot", "role": "locker", "sha256": sha256("t-bot")}]
        config = {"server": {"tokens": tokens, "webhooks": {"allow": ["127.0.0.1"], "secret_file":
                                                             self.secret_file("server.secret", "of the server")}}}
        server = self.serve(config=self.write_config(json.dumps(config)))
        receiver = Receiver(self)
        for token, webhook, secret in (("t-ci", {"secret": "of the request"}, "of the request"), ("t-ci", {}, "of the token"),
                                       ("t-bot", {}, "of the server")):
            with self.subTest(secret):
                key = secret.replace(" ", "-")
                server.acquire(key, "x", token=token, wait_ms=60000, webhook={"url": receiver.url, **webhook})
                headers, _, body = receiver.next()
                self.assertTrue(is_signed(headers, body, secret))
                self.assertFalse(is_signed(headers, body, "another"))
                self.assertFalse(is_signed(headers, body + b" ", secret))
                stamp = int(headers["Belay-Signature"].split(",")[0].removeprefix("t="))
                self.assertLess(abs(stamp - time.time()), 120)
                moved = headers["Belay-Signature"].replace(f"t={stamp}", f"t={stamp + 600}")
                self.assertFalse(is_signed(headers, body, secret, moved))
        log = server.log()
        for secret in ("of the request", "of the token", "of the server", "/build"):
            self.assertNotIn(secret, log)

    def test_without_a_secret_a_call_is_not_signed(self):
        server = self.serve(config=self.write_config(ALLOW))
        receiver = Receiver(self)
        server.acquire("k", "x", wait_ms=60000, webhook={"url": receiver.url})
        self.assertNotIn("Belay-Signature", receiver.next()[0])

    def test_a_secret_that_others_may_read_is_refused(self):
        path = self.secret_file("loose", "secret")
        os.chmod(path, 0o644)
        config = self.write_config(f"server: {{webhooks: {{secret_file: {path}}}}}\n")
        self.assertIn("chmod 600", self.fails(78, "serve", "--listen", "127.0.0.1:0", "--config", str(config)).err)


class Restarting(HookCase):
    def restart(self, number):
        self.server.process.send_signal(number)
        self.server.process.wait(60)
        self.server = self.serve(config=self.dir / "server.yaml")

    def test_waiters_survive_the_server(self):
        receiver = Receiver(self)
        self.server.acquire("k", "holder", lock_id="h", ttl_ms=600000)
        for i in range(3):
            self.queue_up("k", receiver.url, f"job-{i}", lock_id=f"j{i}", webhook={"secret": "s"})
        for number in (signal.SIGTERM, signal.SIGKILL):
            self.restart(number)
            wait_until(lambda: len(self.server.queue("k")) == 3, "all to be in line again")
        self.server.call("DELETE", "/v1/locks/k/queue?lock_id=j1")
        self.server.wait_for_queue("k", ["job-0", "job-2"])
        self.restart(signal.SIGKILL)
        self.server.release("k", "h")
        headers, lock, body = receiver.next()
        self.assertTrue(is_signed(headers, body, "s"))
        self.server.release("k", lock["lock_id"])
        order = [lock["locked_by"], receiver.lock()["locked_by"]]
        self.assertEqual(sorted(order), ["job-0", "job-2"])

    def test_a_receiver_that_was_being_called_is_called_again(self):
        """At least once: the same lock id and the same token."""
        gate = threading.Event()
        self.addCleanup(gate.set)
        receiver = Receiver(self, before=lambda: gate.wait(60))
        self.queue_up("k", receiver.url, lock_id="j", ttl_ms=600000)
        first = receiver.lock()
        self.restart(signal.SIGKILL)
        second = receiver.lock()
        self.assertEqual((first["lock_id"], first["token"]), (second["lock_id"], second["token"]))

    def test_a_delivered_webhook_is_not_called_again(self):
        receiver = Receiver(self)
        self.queue_up("k", receiver.url, lock_id="j")
        receiver.next()
        wait_until(lambda: self.queue_up("k", receiver.url, lock_id="j").json()["status"] == "delivered", "delivery")
        self.restart(signal.SIGTERM)
        self.server.acquire("other")
        self.assertTrue(receiver.calls.empty())
        self.assertNotIn("still queued", self.server.log())

    def test_a_file_that_a_killed_server_left_is_removed(self):
        path = next(self.dir.rglob("*-webhooks"), None) or next(self.dir.rglob("belay.db"), self.dir / "belay.db").with_name("belay.db-webhooks")
        self.server.stop()
        left = path.with_name(f"{path.name}.new-0123456789abcdef")
        others = [path.with_name(f"{path.name}.new-{end}") for end in ("0123456789abcde", "0123456789abcdeg", "")]
        for file in (left, *others):
            file.write_text("x")
        self.server = self.serve(config=self.write_config(ALLOW))
        self.assertFalse(left.exists())
        self.assertEqual([file.exists() for file in others], [True] * 3, "not belay's")

    def test_the_file_is_for_the_servers_user_only(self):
        self.server.acquire("k", "holder")
        self.queue_up("k", "http://127.0.0.1:1/", webhook={"secret": "s"})
        files = [path for path in self.dir.rglob("*-webhooks")]
        self.assertEqual([oct(path.stat().st_mode & 0o777) for path in files], ["0o600"])


if __name__ == "__main__":
    assert queue and subprocess
    main()
