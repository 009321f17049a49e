"""People are told: events go to Slack, Teams or a program, at least once and never in the way of a lock."""

import json
import os
import re
import signal
import subprocess
import textwrap
import threading
import time

from server_support import BELAY, PATIENCE, ROOT, ServerCase, main, sha256, wait_until
from webhook_support import Receiver, is_signed

HOSTILE = "<!channel> <@U123> <https://evil.example|click> & *bold* `code` :fire: \u202ex"


class NotifyCase(ServerCase):
    def config(self, *entries, **server):
        settings = {"server": {"webhooks": {"allow": ["127.0.0.1"]}, **server}, "notify": list(entries)}
        return self.write_config(json.dumps(settings))

    def target(self, receiver, format="json", **fields):  # noqa: A002
        return {"url": receiver.url, "format": format, **fields}

    def serve_with(self, *entries, **server):
        self.server = self.serve(config=self.config(*entries, **server))
        return self.server

    def secret_file(self, name, text):
        path = self.dir / name
        path.write_text(text + "\n")
        path.chmod(0o600)
        return str(path)

    def told(self, receiver):
        """The next event that the receiver gets as JSON."""
        return receiver.next()[1]

    def metric(self, result, name="json-0"):
        text = self.server.get("/metrics").body.decode()
        found = re.search(rf'belay_notifications_total{{target="{name}",result="{result}"}} (\d+)', text)
        return int(found.group(1)) if found else None


class Events(NotifyCase):
    def test_a_release_is_told_with_its_outcome_correlation_id_and_metadata(self):
        receiver = Receiver(self)
        server = self.serve_with(self.target(receiver, events=["lock.released"]))
        server.acquire("k", "build-7", lock_id="a", correlation_id="c-1", metadata={"commit": "abc"})
        server.release("k", "a", outcome="failed")
        headers, event, _ = receiver.next()
        self.assertEqual((event["event"], event["lock_key"], event["locked_by"], event["reason"]),
                         ("lock.released", "k", "build-7", "failed"))
        self.assertEqual(event["metadata"], {"commit": "abc", "correlation_id": "c-1"})
        self.assertEqual((headers["Belay-Event"], headers["Belay-Attempt"], headers["Content-Type"]),
                         ("lock.released", "1", "application/json"))
        self.assertEqual(headers["Belay-Delivery"], str(event["id"]))

    def test_what_is_told_is_what_the_history_has(self):
        receiver = Receiver(self)
        events = ["lock.acquired", "lock.refused", "lock.renewed", "lock.released", "lock.forced"]
        server = self.serve_with(self.target(receiver, events=events))
        for n in range(5):  # often enough for the clock to move between a commit and its event
            server.acquire("k", "build-7", lock_id=f"a{n}", correlation_id="c-1", metadata={"commit": "abc"})
            server.acquire("k", "build-8")
            server.post("/v1/locks/k/renew", {"lock_id": f"a{n}"})
            server.release("k", f"a{n}", outcome="failed")
        server.acquire("k", "build-9")
        server.call("DELETE", "/v1/locks/k?reason=stuck")
        history = server.get("/v1/locks/k/history?limit=100").json()["events"]
        told = [self.told(receiver) for _ in history]
        for event, kept in zip(told, history):
            if kept["event"] in ("lock.acquired", "lock.renewed"):  # only the live event says how long it took
                self.assertIsNone(kept.pop("duration_seconds"))
                self.assertIsNotNone(event.pop("duration_seconds"))
            self.assertEqual(event, {**kept, "lock_id": None})

    def test_a_forced_lock_is_told_with_the_reason(self):
        receiver = Receiver(self)
        server = self.serve_with(self.target(receiver, events=["lock.forced"]))
        server.acquire("k", "alice")
        server.call("DELETE", "/v1/locks/k?reason=stuck")
        event = self.told(receiver)
        self.assertEqual((event["event"], event["reason"], event["locked_by"]), ("lock.forced", "stuck", "alice"))

    def test_a_freeze_is_told_to_the_targets_of_all_keys_that_it_stops(self):
        receiver = Receiver(self)
        server = self.serve_with(self.target(receiver, keys=["deploy-api-*"], events=["freeze.begun", "freeze.ended"]))
        for pattern in ("build-*", "*", "deploy-*", "*-prod", "deploy-web-*", "deploy-api-1"):
            server.post("/v1/freezes", {"pattern": pattern, "reason": "x"})
        self.assertEqual([self.told(receiver)["lock_key"] for _ in range(4)], ["*", "deploy-*", "*-prod", "deploy-api-1"])
        server.call("DELETE", "/v1/freezes/deploy-web-%2A")
        server.call("DELETE", "/v1/freezes/%2A")
        event = self.told(receiver)
        self.assertEqual((event["event"], event["lock_key"]), ("freeze.ended", "*"))

    def test_a_store_on_the_network_has_no_file_to_write_beside(self):
        env = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", "AWS_EC2_METADATA_DISABLED": "true",
               "AWS_MAX_ATTEMPTS": "1"}
        store = "dynamodb:locks?region=eu-west-1&endpoint=http://127.0.0.1:9"  # a closed port
        server = self.serve("--store", store, config=self.config(self.target(Receiver(self))), env=env)
        server.stop()
        self.assertIn("stopping", [line["event"] for line in server.log_lines()])
        self.assertNotIn("cannot write", server.log())

    def test_a_lock_taken_over_is_told(self):
        receiver = Receiver(self)
        server = self.serve_with(self.target(receiver, events=["lock.taken_over"]))
        server.acquire("k", "alice", ttl_ms=1000)
        self.assertEqual(server.acquire("k", "bob", wait_ms=20000).status, 200)
        self.assertEqual(self.told(receiver)["event"], "lock.taken_over")

    def test_a_lost_lock_is_told(self):
        receiver = Receiver(self)
        server = self.serve_with(self.target(receiver, events=["lock.lost"]))
        server.acquire("k", "alice", lock_id="a")
        self.assertEqual(server.post("/v1/locks/k/lost", {"lock_id": "a", "reason": "no renewal"}).status, 200)
        event = self.told(receiver)
        self.assertEqual((event["event"], event["reason"]), ("lock.lost", "no renewal"))

    def test_a_stale_lock_is_found_and_told_although_no_client_looks(self):
        receiver = Receiver(self)
        server = self.serve_with(self.target(receiver, events=["lock.stale"]))
        server.acquire("k", "alice", ttl_ms=600000, heartbeat_ms=1000, stale_after_ms=1500)
        event = self.told(receiver)
        self.assertEqual((event["event"], event["locked_by"]), ("lock.stale", "alice"))

    def test_an_expired_lease_is_told_once_although_no_client_looks(self):
        receiver = Receiver(self)
        server = self.serve_with(self.target(receiver, events=["lock.expired"]))
        server.acquire("k", "alice", ttl_ms=1000, correlation_id="c-9")
        event = self.told(receiver)
        self.assertEqual((event["event"], event["lock_key"], event["locked_by"]), ("lock.expired", "k", "alice"))
        self.assertEqual((event["id"], event["lock_id"], event["metadata"]), (None, None, {"correlation_id": "c-9"}))
        server.acquire("other", "bob", ttl_ms=1000)
        self.assertEqual(self.told(receiver)["lock_key"], "other")
        self.assertTrue(receiver.calls.empty())

    def test_leases_that_ended_before_notifications_were_configured_are_not_told(self):
        receiver = Receiver(self)
        server = self.serve(config=self.write_config("{}"))
        server.acquire("old", "alice", ttl_ms=1000)
        wait_until(lambda: server.get("/v1/locks/old").json()["status"] == "expired", "the lease to end")
        server.stop()
        server = self.serve_with(self.target(receiver, events=["lock.expired"]))
        server.acquire("new", "alice", ttl_ms=1000)
        self.assertEqual(self.told(receiver)["lock_key"], "new")

    def test_a_lock_held_for_long_is_told_once(self):
        receiver = Receiver(self)
        server = self.serve_with(self.target(receiver, events=["held.long"], held_longer_than="1s"))
        server.acquire("k", "alice", ttl_ms=600000, lock_id="a")
        event = self.told(receiver)
        self.assertEqual((event["event"], event["locked_by"], event["reason"]), ("held.long", "alice", "held for longer than 1s"))
        self.assertGreaterEqual(event["duration_seconds"], 1)
        server.renew("k", "a")
        server.acquire("other", "bob", ttl_ms=600000)
        self.assertEqual(self.told(receiver)["lock_key"], "other")
        self.assertTrue(receiver.calls.empty())

    def test_a_client_that_waits_for_long_is_told_with_what_it_waits_for(self):
        receiver = Receiver(self)
        server = self.serve_with(self.target(receiver, events=["wait.long"], waited_longer_than="1s"))
        server.acquire("k", "alice", lock_id="a", ttl_ms=600000)
        server.acquire_later("k", "bob", wait_ms=60000)
        event = self.told(receiver)
        self.assertEqual((event["event"], event["lock_key"], event["locked_by"], event["reason"]),
                         ("wait.long", "k", "bob", "'k' is held by alice"))
        self.assertGreaterEqual(event["duration_seconds"], 1)
        server.release("k", "a")

    def test_a_wait_for_a_frozen_lock_whose_lease_is_over_names_no_present_holder(self):
        receiver = Receiver(self)
        server = self.serve_with(self.target(receiver, events=["wait.long"], waited_longer_than="2s"))
        server.acquire("k", "alice", ttl_ms=1000)
        server.post("/v1/freezes", {"pattern": "k", "reason": "x"})
        server.acquire_later("k", "bob", wait_ms=60000)
        self.assertEqual(self.told(receiver)["reason"], "'k' was last held by alice")
        server.call("DELETE", "/v1/freezes/k")

    def test_a_database_that_was_stopped_is_told(self):
        receiver = Receiver(self)
        flag = str(self.dir / "running")
        settings = {"server": {"webhooks": {"allow": ["127.0.0.1"]}}, "notify": [self.target(receiver, events=["db.stop.stopped"])],
                    "databases": {"postgres": {"stop": {"command": ["rm", "-f", flag], "until": {"command": ["test", "!", "-e", flag]}},
                                               "start": {"command": ["touch", flag], "until": {"command": ["test", "-e", flag]}}}}}
        server = self.server = self.serve(config=self.write_config(json.dumps(settings)))
        server.call("PUT", "/v1/apps/shop", {"urls": ["http://127.0.0.1:9/"], "databases": ["postgres=db.example:5432"]})
        for verb, action in (("start", "started"), ("stop", "stopped")):
            answer = server.post(f"/v1/databases/db.example:5432/{verb}", {"app": "shop"})
            self.assertEqual(answer.json()["results"][0]["action"], action)
        event = self.told(receiver)
        self.assertEqual((event["event"], event["metadata"]["db_identifier"]), ("db.stop.stopped", "db.example:5432"))


class Filters(NotifyCase):
    def test_only_the_keys_and_events_of_a_target_are_sent_to_it(self):
        deploys, all_forced = Receiver(self), Receiver(self)
        server = self.serve_with(self.target(deploys, events=["lock.released", "lock.acquired"], keys=["deploy-*", "*:prod"]),
                                 self.target(all_forced, events=["lock.forced"]))
        for key in ("build-a", "deploy-a", "x:test", "x:prod"):
            lock_id = server.acquire(key, "me").json()["lock_id"]
            server.release(key, lock_id)
        server.acquire("build-b")
        server.call("DELETE", "/v1/locks/build-b?reason=x")
        self.assertEqual([(e["event"], e["lock_key"]) for e in (self.told(deploys) for _ in range(4))],
                         [("lock.acquired", "deploy-a"), ("lock.released", "deploy-a"),
                          ("lock.acquired", "x:prod"), ("lock.released", "x:prod")])
        self.assertEqual(self.told(all_forced)["lock_key"], "build-b")
        self.assertTrue(deploys.calls.empty() and all_forced.calls.empty())

    def test_without_events_those_that_need_people_are_sent(self):
        receiver = Receiver(self)
        server = self.serve_with(self.target(receiver))
        server.acquire("k", "alice", lock_id="a")
        server.release("k", "a")
        server.acquire("k", "bob")
        server.call("DELETE", "/v1/locks/k?reason=x")
        self.assertEqual(self.told(receiver)["event"], "lock.forced")

    def test_a_wrong_setting_is_named_with_the_nearest(self):
        url = "http://127.0.0.1:1/secret-path"
        good = {"url": url, "format": "slack"}
        for entry, says in (
                ({**good, "events": ["lock.force"]}, "did you mean 'lock.forced'"), ({**good, "format": "slak"}, "did you mean 'slack'"),
                ({**good, "evnts": ["lock.forced"]}, "did you mean 'events'"), ({**good, "template": "{kee}"}, "did you mean 'key'"),
                ({**good, "template": "{key"}, "without its '}'"), ({**good, "keys": ["stack:x"]}, "matches no key"),
                ({**good, "keys": ["x" * 2000]}, "longer than any key"), ({"format": "slack"}, "url is missing"), ({"url": url}, "format is missing"),
                ({**good, "events": ["held.long"]}, "needs held_longer_than"), ({**good, "held_longer_than": "1h", "events": ["lock.lost"]},
                                                                               "needs held.long among"),
                ({**good, "events": ["wait.long"]}, "needs waited_longer_than"), ({**good, "held_longer_than": "soon"}, "not a duration"),
                ({**good, "url_file": "/x"}, "give one of url, url_file and url_env"), ({"format": "json", "url_env": "NOT_SET"}, "'NOT_SET' is not set"),
                ({"format": "json", "url_file": "/nonexistent"}, "url_file"), ({**good, "secret_env": "HOME"}, "signs the format json"),
                ({"format": "json", "url": url, "template": "x"}, "for the formats slack and teams"),
                ({"format": "json", "url": "http://10.0.0.1/secret-path"}, "not a public address"),
                ({"format": "json", "url": "http://u:secret-path@example.com/"}, "no user and no password"),
                ({"format": "json", "url": "htp://x/secret-path"}, "not a URL"), ({**good, "name": "a b"}, "is not a name")):
            with self.subTest(says):
                config = self.config(entry)
                result = self.fails(78, "serve", "--listen", "127.0.0.1:0", "--config", str(config))
                self.assertIn(says, result.err)
                self.assertNotIn("secret-path", result.err)
        config = self.config({**good, "name": "x"}, {"url": url + "2", "format": "json", "name": "x"})
        self.assertIn("same name 'x'", self.fails(78, "serve", "--listen", "127.0.0.1:0", "--config", str(config)).err)

    def test_two_entries_may_have_one_url(self):
        receiver = Receiver(self)
        server = self.serve_with(self.target(receiver, events=["lock.acquired"], keys=["a"]),
                                 self.target(receiver, events=["lock.released"], keys=["b"]))
        for key in "ab":
            server.acquire(key, "me", lock_id=key)
            server.release(key, key)
        self.assertEqual({(e["event"], e["lock_key"]) for e in (self.told(receiver) for _ in range(2))},
                         {("lock.acquired", "a"), ("lock.released", "b")})


class Formats(NotifyCase):
    def message(self, format, events=("lock.released",), owner="alice", **fields):  # noqa: A002
        receiver = Receiver(self)
        server = self.serve_with(self.target(receiver, format, events=list(events), **fields), url="https://locks.example.com/")
        metadata = {"commit": "abc", "note": HOSTILE} if owner != "alice" else {"commit": "abc"}
        self.assertEqual(server.acquire("deploy/api <prod>", owner, lock_id="a", metadata=metadata).status, 200)
        server.release("deploy/api <prod>", "a", outcome="failed")
        return receiver.next()[1]

    def test_a_message_for_slack_has_text_and_a_block(self):
        message = self.message("slack")
        self.assertEqual(set(message), {"text", "blocks", "unfurl_links", "unfurl_media"})
        block = message["blocks"][0]
        self.assertEqual((block["type"], block["text"]["type"], block["text"]["verbatim"]), ("section", "mrkdwn", True))
        self.assertEqual(message["text"], block["text"]["text"])
        self.assertRegex(message["text"], re.escape("*Lock released: failed* `deploy/api &lt;prod&gt;`\nHolder: `alice`\nReason: `failed`"))
        self.assertIn("Metadata: `commit=abc`", message["text"])
        self.assertIn("<https://locks.example.com/#/locks/deploy%2Fapi%20%3Cprod%3E|Open in the dashboard>", message["text"])

    def test_a_message_for_teams_is_an_adaptive_card(self):
        message = self.message("teams")
        self.assertEqual((message["type"], len(message["attachments"])), ("message", 1))
        attachment = message["attachments"][0]
        self.assertEqual(attachment["contentType"], "application/vnd.microsoft.card.adaptive")
        card = attachment["content"]
        self.assertEqual((card["type"], card["version"], card["$schema"]),
                         ("AdaptiveCard", "1.4", "http://adaptivecards.io/schemas/adaptive-card.json"))
        texts = [run["text"] for block in card["body"] for run in block["inlines"]]
        self.assertEqual({(block["type"], run["type"]) for block in card["body"] for run in block["inlines"]},
                         {("RichTextBlock", "TextRun")})
        self.assertEqual(texts[:3], ["Lock released: failed: deploy/api <prod>", "Holder: alice", "Reason: failed"])
        self.assertEqual(card["actions"], [{"type": "Action.OpenUrl", "title": "Open in the dashboard",
                                            "url": "https://locks.example.com/#/locks/deploy%2Fapi%20%3Cprod%3E"}])
        self.assertLess(len(json.dumps(message)), 28000)

    def test_texts_of_clients_are_no_markup_in_slack(self):
        for template in ({}, {"template": "{holder} {metadata} of {key}"}):
            with self.subTest(str(template)):
                text = self.message("slack", owner=HOSTILE, **template)["text"]
                ours = text.replace("|Open in the dashboard>", "").replace("<https://locks.example.com", "")
                self.assertNotRegex(ours, "[<>]")
                self.assertIn("&lt;!channel&gt; &lt;@U123&gt; &lt;https://evil.example|click&gt; &amp; ", text)
                self.assertNotIn("\u202e", text)
                self.assertNotRegex(text, r"[\x00-\x09\x0b-\x1f]")
                if template:
                    self.assertNotIn("*bold*", text)
                    self.assertNotIn("`", text)
                self.assertEqual(text.count("`") % 2, 0)
                self.server.stop()
                (self.dir / "belay.db").unlink(missing_ok=True)

    def test_long_texts_are_cut(self):
        receiver = Receiver(self)
        server = self.serve_with(self.target(receiver, "slack", events=["lock.acquired"], template="{metadata}" * 20))
        server.acquire("k", "me", metadata={f"m{i}": "é&" * 300 for i in range(10)})
        self.assertLessEqual(len(receiver.next()[1]["blocks"][0]["text"]["text"]), 3000)

    def test_a_template_makes_the_text(self):
        text = self.message("slack", template="*{title}* {event} `{key}` by {holder}: {outcome} after {duration}, {correlation_id}<{url}|see>\n{metadata}")
        self.assertRegex(text["text"], r"^\*Lock released: failed\* lock.released `deploy/api &lt;prod&gt;` by alice: failed after "
                         r"\d+m?s, <https://locks.example.com/#/locks/\S+\|see>\ncommit=abc$")

    def test_json_is_signed_with_the_secret_of_a_file_or_a_variable(self):
        for how in ("file", "env"):
            with self.subTest(how):
                receiver = Receiver(self)
                secret = {"secret_file": self.secret_file("s", "of the receiver")} if how == "file" else {"secret_env": "NOTIFY_SECRET"}
                server = self.serve(config=self.config(self.target(receiver, events=["lock.acquired"], **secret)),
                                    env={"NOTIFY_SECRET": "of the receiver"})
                server.acquire(how, "me")
                headers, _, body = receiver.next()
                self.assertTrue(is_signed(headers, body, "of the receiver"))
                self.assertFalse(is_signed(headers, body + b" ", "of the receiver"))
                server.stop()
                self.assertNotIn("of the receiver", server.log())


class Docs(NotifyCase):
    PAGE = (ROOT / "docs" / "notifications.md").read_text(encoding="utf-8")

    def test_the_receiver_on_the_page_accepts_only_genuine_calls(self):
        code = textwrap.dedent(re.search(r"^    import hashlib.*?(?=^##)", self.PAGE, re.M | re.S).group(0))
        scope = {}
        exec(code, scope)  # pylint: disable=exec-used
        receiver = Receiver(self)
        server = self.serve_with(self.target(receiver, events=["lock.acquired"], secret_file=self.secret_file("s", "shh")))
        server.acquire("k")
        headers, _, body = receiver.next()
        signature = headers["Belay-Signature"]
        self.assertTrue(scope["is_genuine"](b"shh", signature, body))
        stamp = int(re.search(r"t=(\d+)", signature).group(1))
        for secret, sign, text in ((b"other", signature, body), (b"shh", signature, body + b" "),
                                   (b"shh", signature.replace(str(stamp), str(stamp - 600)), body)):
            self.assertFalse(scope["is_genuine"](secret, sign, text))

    def test_the_configuration_on_the_page_is_accepted_and_shown_by_doctor(self):
        text = textwrap.dedent(re.search(r"^    server:\n.*?(?=^\| in an entry)", self.PAGE, re.M | re.S).group(0))
        for name in ("slack.url", "bot.secret"):
            text = text.replace(f"/etc/belay/{name}", self.secret_file(name, "https://hooks.slack.example/T0/B0/x"))
        config = str(self.write_config(text))
        server = self.serve(config=config, env={"TEAMS_URL": "https://prod.logic.azure.example/workflows/1"})
        server.acquire("k")
        for line in ("slack-0: slack to hooks.slack.example: lock.forced, lock.stale, held.long of 'deploy-*'",
                     "teams-1: teams to prod.logic.azure.example: ", "chat-bot: json to bot.example.com: lock.released of all keys; signed"):
            self.assertIn(line, server.log())
        server.stop()
        found = self.belay("--config", config, "doctor").out
        self.assertIn("json to bot.example.com", found)
        self.assertRegex(found, r"slack to the URL in \S*/slack\.url\n")

    def test_the_command_on_the_page_sends_a_notification(self):
        receiver = Receiver(self)
        server = self.serve_with(self.target(receiver))
        command = re.search(r"^    (belay acquire notify-test.*)$", self.PAGE, re.M).group(1)
        env = {**self.env, "BELAY_STORE": server.url, "PATH": f"{os.path.dirname(BELAY)}:{os.environ['PATH']}"}
        subprocess.run(["bash", "-c", command], env=env, cwd=self.dir, check=True, capture_output=True, timeout=PATIENCE)
        self.assertEqual(self.told(receiver)["reason"], "test")

    def test_every_event_and_placeholder_is_on_the_page(self):
        words = (ROOT / "src" / "base" / "notify_words.c").read_text(encoding="utf-8")
        lists = dict(re.findall(r"(\w+)_words\[\] = \{(.*?)\};", words, re.S))
        for name, form in (("event", "`{}`"), ("format", "`{}`"), ("placeholder", "`{{{}}}`")):
            found = re.findall(r'"([^"]+)"', lists[name])
            self.assertGreater(len(found), 2)
            for word in found:
                self.assertIn(form.format(word), self.PAGE)


class Delivery(NotifyCase):
    def test_a_failed_call_is_repeated_with_the_same_delivery_id(self):
        receiver = Receiver(self, [500, 429, 200])
        server = self.serve_with(self.target(receiver, events=["lock.acquired"]))
        server.acquire("k")
        calls = [receiver.next() for _ in range(3)]
        self.assertEqual([c[0]["Belay-Attempt"] for c in calls], ["1", "2", "3"])
        self.assertEqual(len({c[0]["Belay-Delivery"] for c in calls}), 1)
        self.assertEqual(len({c[2] for c in calls}), 1)
        wait_until(lambda: self.metric("sent") == 1, "the delivery to be counted")
        self.assertEqual((self.metric("failed"), self.metric("dropped")), (2, 0))

    def test_a_refusal_and_a_redirect_are_final_and_the_next_is_sent(self):
        for status in (404, 307):
            with self.subTest(status):
                elsewhere = Receiver(self)
                receiver = Receiver(self, [status, 200], headers=[("Location", elsewhere.url)])
                server = self.serve_with(self.target(receiver, events=["lock.acquired"]))
                server.acquire(f"a{status}")
                server.acquire(f"b{status}")
                self.assertEqual([self.told(receiver)["lock_key"] for _ in range(2)], [f"a{status}", f"b{status}"])
                wait_until(lambda: self.metric("sent") == 1, "the delivery")
                self.assertEqual((self.metric("dropped"), elsewhere.n), (1, 0))
                self.assertIn(f"answered {status}", server.log())
                self.assertNotIn("/build", server.log())
                server.stop()

    def test_a_receiver_that_hangs_delays_neither_locks_nor_other_targets(self):
        gate = threading.Event()
        self.addCleanup(gate.set)
        slow, quick = Receiver(self, before=lambda: gate.wait(60)), Receiver(self)
        server = self.serve_with(self.target(slow, events=["lock.acquired"]), self.target(quick, events=["lock.acquired"]))
        began = time.monotonic()
        for i in range(50):
            self.assertEqual(server.acquire(f"k{i}").status, 200)
        self.assertEqual([self.told(quick)["lock_key"] for _ in range(50)], [f"k{i}" for i in range(50)])
        self.assertLess(time.monotonic() - began, 10)
        self.assertEqual(slow.n, 1)

    def test_a_full_queue_drops_the_oldest_and_counts_them(self):
        gate = threading.Event()
        self.addCleanup(gate.set)
        receiver = Receiver(self, before=lambda: gate.wait(60))
        server = self.serve_with(self.target(receiver, events=["lock.acquired"], max=5))
        for i in range(20):
            server.acquire(f"k{i}")
            if i == 0:
                self.assertEqual(self.told(receiver)["lock_key"], "k0")
        self.assertEqual(self.metric("dropped"), 15)
        self.assertEqual(server.log().count("the oldest are dropped"), 1)
        gate.set()
        self.assertEqual([self.told(receiver)["lock_key"] for _ in range(4)], ["k16", "k17", "k18", "k19"])

    def test_doctor_finds_a_target_without_a_format_or_a_url(self):
        good = {"format": "slack", "url": "https://hooks.example/x"}
        for entry, level, says in [({"format": "slack"}, "FAILED", "notify.1 has no URL"),
                                   ({"url": "https://a.example/x"}, "FAILED", "notify.1 has no format"),
                                   ({**good, "url_env": "A_URL"}, "FAILED", "notify.1 has no URL, or several"),
                                   ({**good, "url": "https://me@a.example/x"}, "FAILED", "notify.1.url has no host, or a user"),
                                   ({"format": "json", "url_file": "/nowhere"}, "warning", "/nowhere cannot be read"),
                                   ({"format": "json", "url_env": "NO_URL"}, "warning", "variable 'NO_URL'")]:
            config = self.write_config(json.dumps({"notify": [good, entry, good]}))
            lines = [line for line in self.belay("--config", str(config), "doctor").out.splitlines() if " notify " in line]
            self.assertEqual([line.split()[0] for line in lines], ["ok", level, "ok"], lines)
            self.assertIn(says, lines[1])

    def test_an_address_that_is_not_allowed_is_not_called(self):
        receiver = Receiver(self)
        settings = {"notify": [{"url": f"http://localtest.invalid:{receiver.port}/", "format": "json"}]}
        self.serve(config=self.write_config(json.dumps(settings)))
        settings["notify"][0]["url"] = receiver.url
        config = self.write_config(json.dumps(settings))
        result = self.fails(78, "serve", "--listen", "127.0.0.1:0", "--config", str(config), env={"BELAY_STORE": f"sqlite:{self.dir}/o.db"})
        self.assertIn("notify.0.url: '127.0.0.1' is not a public address", result.err)
        self.assertTrue(receiver.calls.empty())

    def test_the_url_is_in_no_log_no_file_and_not_shown(self):
        receiver = Receiver(self, [500, 404])
        entry = {"url": f"http://127.0.0.1:{receiver.port}/services/T0/B0/tops3cret", "format": "slack", "events": ["lock.acquired"]}
        server = self.serve_with(entry)
        server.acquire("k")
        self.assertIn("slack-0: slack to 127.0.0.1: lock.acquired of all keys", server.log())
        wait_until(lambda: self.metric("dropped", "slack-0") == 1, "the refusal")
        wait_until(lambda: list(self.dir.glob("*-notify")), "the file")
        server.stop()
        kept = b"".join(p.read_bytes() for p in self.dir.rglob("*") if p.is_file() and p.name != "server.yaml")
        self.assertNotIn(b"tops3cret", kept)
        for args in ((), ("--json",)):
            shown = self.ok("--config", str(self.dir / "server.yaml"), "config", "show", *args).out
            self.assertIn(f"http://127.0.0.1:{receiver.port}/(hidden)", shown)
            self.assertNotIn("tops3cret", shown)


class Restarting(NotifyCase):
    def restart(self, number=signal.SIGKILL):
        self.server.process.send_signal(number)
        self.server.process.wait(60)
        self.server = self.serve(config=self.dir / "server.yaml")

    def locks(self, receiver, last):
        found = []
        while not found or found[-1] != last:
            found.append(self.told(receiver)["lock_key"])
        return found

    def test_events_that_were_not_sent_before_a_kill_are_sent_by_the_next_server(self):
        for number in (signal.SIGKILL, signal.SIGTERM):
            with self.subTest(number):
                receiver = Receiver(self, [500] * 3 + [200])
                self.serve_with(self.target(receiver, events=["lock.acquired"]))
                for i in range(30):
                    self.server.acquire(f"k{number}-{i}")
                receiver.next()
                self.restart(number)
                receiver.statuses = [200]
                wanted = [f"k{number}-{i}" for i in range(30)]
                found = self.locks(receiver, wanted[-1])
                self.assertEqual(sorted(set(found)), sorted(wanted))
                self.assertEqual(list(dict.fromkeys(found)), wanted, "their order")
                self.server.stop()

    def test_an_event_that_is_committed_just_before_a_kill_is_sent(self):
        receiver = Receiver(self, [500])
        self.serve_with(self.target(receiver, events=["lock.acquired"]))
        self.assertTrue(list(self.dir.glob("*-notify")), "from where to continue is on disk before the first request")
        for i in range(5):
            self.server.acquire(f"k{i}")
            self.restart()
        receiver.statuses = [200]
        self.assertEqual(set(self.locks(receiver, "k4")), {f"k{i}" for i in range(5)})

    def test_delivered_notifications_are_not_sent_again_after_a_stop(self):
        receiver = Receiver(self)
        self.serve_with(self.target(receiver, events=["lock.acquired", "lock.expired", "held.long"], held_longer_than="1s"))
        self.server.acquire("short", ttl_ms=1200)
        self.server.acquire("long", ttl_ms=600000)
        found = {(e["event"], e["lock_key"]) for e in (self.told(receiver) for _ in range(4))}
        if ("held.long", "short") in found:
            found.add((lambda e: (e["event"], e["lock_key"]))(self.told(receiver)))
        self.assertLessEqual({("lock.acquired", "short"), ("lock.acquired", "long"), ("lock.expired", "short"),
                              ("held.long", "long")}, found)
        wait_until(lambda: self.metric("sent") >= 4 and self.metric("sent") == receiver.n, "the answers")
        self.restart(signal.SIGTERM)
        self.server.acquire("next", ttl_ms=1000)
        self.assertEqual([self.told(receiver)["lock_key"] for _ in range(2)], ["next", "next"])
        self.assertTrue(receiver.calls.empty())

    def test_a_delivered_notification_is_not_repeated_for_ever_after_kills(self):
        receiver = Receiver(self)
        self.serve_with(self.target(receiver, events=["lock.expired"]))
        self.server.acquire("k", ttl_ms=1000)
        self.assertEqual(self.told(receiver)["lock_key"], "k")
        path = next(self.dir.glob("*-notify"))
        wait_until(lambda: [t for t in json.loads(path.read_text())["targets"].values() if t["said"] and not t["pending"]], "the file")
        for _ in range(2):
            self.restart()
        self.server.acquire("later", ttl_ms=1000)
        self.assertEqual(self.told(receiver)["lock_key"], "later")
        self.assertTrue(receiver.calls.empty())

    def test_what_the_store_does_not_keep_survives_a_kill_in_the_file(self):
        receiver = Receiver(self, [500])
        self.serve_with(self.target(receiver, events=["held.long"], held_longer_than="1s"))
        self.server.acquire("k", "alice", ttl_ms=600000)
        first = receiver.next()
        self.assertIsNone(first[1]["id"])
        path = next(self.dir.glob("*-notify"))
        wait_until(lambda: [t for t in json.loads(path.read_text())["targets"].values() if t["pending"]], "the file")
        self.restart()
        receiver.statuses = [200]
        again = receiver.next()
        self.assertEqual((again[1], again[0]["Belay-Delivery"]), (first[1], first[0]["Belay-Delivery"]))

    def test_a_lease_that_ends_while_no_server_runs_is_told(self):
        receiver = Receiver(self)
        self.serve_with(self.target(receiver, events=["lock.expired"]))
        self.server.acquire("k", ttl_ms=1500)
        self.server.stop()
        time.sleep(1.6)  # no server, no virtual clock
        self.server = self.serve(config=self.dir / "server.yaml")
        self.assertEqual(self.told(receiver)["lock_key"], "k")

    def test_the_file_is_for_the_servers_user_and_a_damaged_one_is_passed_over(self):
        receiver = Receiver(self)
        self.serve_with(self.target(receiver, events=["lock.acquired"]))
        self.server.acquire("a")
        self.told(receiver)
        self.server.stop()
        path = next(self.dir.glob("*-notify"))
        self.assertEqual(oct(path.stat().st_mode & 0o777), "0o600")
        for damage in ("{", '{"targets": 7}', '{"targets": {"x": []}}', "[]", "\x00"):
            path.write_text(damage)
            self.server = self.serve(config=self.dir / "server.yaml")
            self.server.acquire(f"after-{sha256(damage)[:8]}")
            self.assertEqual(self.told(receiver)["lock_key"], f"after-{sha256(damage)[:8]}")
            self.assertEqual(self.server.stop(), 0)


class Reloading(NotifyCase):
    def reload(self, *entries):
        n = self.server.log().count('"reload')
        self.config(*entries)
        self.server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: self.server.log().count('"reload') > n, "the reload")

    def test_a_reload_adds_changes_and_removes_targets(self):
        first, second = Receiver(self), Receiver(self)
        self.serve_with(self.target(first, events=["lock.acquired"]))
        self.server.acquire("a")
        self.assertEqual(self.told(first)["lock_key"], "a")
        self.reload(self.target(first, events=["lock.released"]), self.target(second, events=["lock.acquired"]))
        self.server.acquire("b", lock_id="b")
        self.server.release("b", "b")
        self.assertEqual((self.told(first)["event"], self.told(second)["event"]), ("lock.released", "lock.acquired"))
        self.reload(self.target(second, events=["lock.acquired"]))
        self.server.acquire("c", lock_id="c")
        self.server.release("c", "c")
        self.assertEqual(self.told(second)["lock_key"], "c")
        self.assertTrue(first.calls.empty())
        self.assertEqual(self.server.stop(), 0)

    def test_a_wrong_configuration_changes_nothing(self):
        receiver = Receiver(self)
        self.serve_with(self.target(receiver, events=["lock.acquired"]))
        self.reload({"url": receiver.url, "format": "json", "events": ["held.long"]})
        self.assertIn("needs held_longer_than", self.server.log())
        self.server.acquire("a")
        self.assertEqual(self.told(receiver)["lock_key"], "a")

    def test_a_queue_survives_a_reload(self):
        receiver = Receiver(self, [503, 200])
        self.serve_with(self.target(receiver, events=["lock.acquired"]))
        for key in "abc":
            self.server.acquire(key)
        receiver.next()
        self.reload(self.target(receiver, events=["lock.acquired"], keys=["z"]))
        self.assertEqual([self.told(receiver)["lock_key"] for _ in range(3)], ["a", "b", "c"])

    def test_targets_come_and_go_while_they_are_called(self):
        receivers = [Receiver(self) for _ in range(3)]
        entries = [self.target(r, events=["lock.acquired", "held.long"], held_longer_than="1s") for r in receivers]
        self.serve_with(*entries)
        for round in range(12):  # noqa: A001
            for i in range(10):
                self.server.acquire(f"k{round}-{i}")
            self.reload(*[entries[i] for i in range(3) if (round >> i) & 1 or i == round % 3])
        self.assertEqual(self.server.stop(), 0)
        self.assertNotIn("Sanitizer", self.server.log())


if __name__ == "__main__":
    main()
