"""Stop a shared database only when no application uses it (S3.3, S3.5 to S3.7)."""

import json
import os
import signal
import socket
import threading
import time

from shared_db_support import SHORT_TTL, STORE, GuardCase, main, wait_until


class Decisions(GuardCase):
    def test_a_dedicated_database_is_stopped_at_once(self):
        self.application("shop")
        self.run_database()
        result = self.stop("shop")
        self.assertEqual(result, {"database": self.DATABASE, "kind": "postgres", "host": None, "action": "stopped",
                                  "reason": "no other application uses it", "shared": False, "sharing_apps": [],
                                  "active_apps": []})
        self.assertFalse(self.running())
        (line, _) = self.log()
        self.assertIn(f"stop {self.DATABASE} postgres key=LOCK#DB#{self.DATABASE} id=set", line)

    def test_three_sharers_one_by_one_and_it_stops_with_the_last(self):
        """S3.6."""
        applications = [self.application(name) for name in ("a", "b", "c")]
        self.run_database()
        for name, application, others in zip("ab", applications, (["b", "c"], ["c"])):
            application.down()
            result = self.stop(name, code=75)
            self.assertEqual((result["action"], result["active_apps"]), ("skipped_shared_active", others))
            self.assertTrue(self.running())
        applications[2].down()
        result = self.stop("c")
        self.assertEqual((result["action"], result["sharing_apps"], result["active_apps"]), ("stopped", ["a", "b"], []))
        self.assertFalse(self.running())
        self.assertEqual(len([line for line in self.log() if line.startswith("stop ")]), 1)

    def test_each_is_a_metric_of_its_database(self):
        """S3.9, as CloudWatch's lines and StatsD's packets."""
        self.application("a")
        other = self.application("b")
        self.run_database()
        metrics = self.dir / "metrics.log"
        self.stop("a", "--metrics", f"emf:{metrics}", code=75)
        other.up(500)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
            receiver.bind(("127.0.0.1", 0))
            receiver.settimeout(20)
            self.stop("a", "--metrics", f"statsd:127.0.0.1:{receiver.getsockname()[1]}")
            packet = ""
            while "db.stop" not in packet:
                packet = receiver.recv(2000).decode()
        (skipped,) = [entry for entry in map(json.loads, metrics.read_text().splitlines()) if "DbIdentifier" in entry]
        self.assertEqual((skipped["DbIdentifier"], skipped["db.stop.skipped_shared_active"], skipped["lock.acquire.retries"]),
                         (self.DATABASE, 1, 0))
        (directive,) = skipped["_aws"]["CloudWatchMetrics"]
        self.assertEqual(directive["Dimensions"], [[], ["DbIdentifier"]])
        self.assertEqual([(metric["Name"], metric["Unit"]) for metric in directive["Metrics"]],
                         [("db.stop.skipped_shared_active", "Count"), ("lock.acquire.retries", "Count"),
                          ("lock.acquire.duration", "Milliseconds")])
        tag = f"#db_identifier:{self.DATABASE}"
        self.assertRegex(packet, rf"^belay\.db\.stop\.stopped:1\|c\|{tag}\nbelay\.lock\.acquire\.retries:0\|c\|{tag}\n"
                                 rf"belay\.lock\.acquire\.duration:\d+\|ms\|{tag}$")

    def test_each_answer_of_a_sharing_application_has_its_meaning(self):
        """The decision table of docs/shared-databases.md."""
        self.application("me")
        other = self.application("other")
        self.configure(quick_status_timeout=4)
        for what, change, word in [
                ("answers 200", lambda: other.up(200), "other is UP"),
                ("redirects to 200", lambda: setattr(other, "location", other.url.replace("health", "x")), "other is UP"),
                ("times out", lambda: (setattr(other, "location", None), setattr(other, "delay", 8)), "other is UNKNOWN"),
                ("refuses", other.down, "other is UNKNOWN")]:
            with self.subTest(what=what):
                change()
                self.run_database()
                result = self.stop("me", code=75)
                self.assertEqual((result["action"], result["active_apps"]), ("skipped_shared_active", ["other"]))
                self.assertIn(word, result["reason"])
                self.assertTrue(self.running())
        other.delay = 0
        other.up(500)
        self.assertEqual(self.stop("me")["action"], "stopped")  # the document's rule: an answer, and not 200
        self.run_database()
        self.configure(quick_status_rule="cautious")
        self.assertIn("other is UNKNOWN", self.stop("me", code=75)["reason"])

    def test_with_database_all_users_are_checked(self):
        application = self.application("only")
        self.run_database()
        result = self.fails(75, "db", "stop", "--database", self.DATABASE.upper(), "--json").json()["results"][0]
        self.assertEqual(result["active_apps"], ["only"])
        application.down()
        self.ok("app", "mark-stopped", "only")
        self.ok("db", "stop", "--database", self.DATABASE)
        self.assertFalse(self.running())

    def test_an_instance_and_its_host_are_one_database(self):
        self.application("a", database="i-0123456789abcdef0@db.example:5432")
        self.application("b", database="db.example:5432")
        self.run_database()
        result = self.stop("b", code=75)
        self.assertEqual((result["database"], result["host"], result["active_apps"]),
                         ("i-0123456789abcdef0", "db.example:5432", ["a"]))
        self.assertEqual([one["database"] for one in self.ok("db", "list", "--json").json()["databases"]],
                         ["i-0123456789abcdef0"])

    def test_a_dry_run_reports_and_changes_nothing(self):
        self.application("a").down()
        other = self.application("b")
        self.run_database()
        self.assertEqual(self.stop("a", "--dry-run", code=75)["action"], "skipped_shared_active")
        other.up(503)
        result = self.stop("a", "--dry-run")
        self.assertEqual(result["action"], "skipped")
        self.assertIn("would be stopped", result["reason"])
        self.assertTrue(self.running())
        self.assertEqual(self.log(), [])
        self.assertEqual(self.ok("app", "show", "a", "--json").json()["state"], "running")
        self.assertIsNone(self.ok("db", "list", "--json").json()["databases"][0]["last"])

    def test_a_stopped_database_is_left_alone(self):
        self.application("a")
        result = self.stop("a")
        self.assertEqual((result["action"], result["reason"]), ("skipped", "it is stopped already"))
        self.assertEqual(self.log(), [])

    def test_an_unregistered_database_is_left_alone(self):
        self.assertIn("only registered databases", self.fails(66, "db", "stop", "--database", "x:1").err)
        self.fails(66, "db", "stop", "--app", "nobody")
        self.fails(64, "db", "stop")
        self.fails(64, "db", "stop", "--app", "a", "--database", "x:1")
        self.assertIn("neither", self.fails(64, "db", "stop", "--database", "x").err)

    def test_without_an_action_nothing_is_done_and_the_missing_setting_is_named(self):
        self.application("a")
        self.configure({"neo4j": {"stop": {"command": ["true"]}}})
        self.assertIn("databases.postgres.stop", self.fails(78, "db", "stop", "--app", "a").err)
        self.assertEqual(self.ok("app", "show", "a", "--json").json()["state"], "running")

    def test_an_unreadable_registry_prevents_a_stop(self):
        """Where document 003 stopped the database: "a registry read error counts as 'nobody uses it'"."""
        self.application("a")
        self.run_database()
        if STORE == "server":
            os.kill(self.server.pid, signal.SIGKILL)
            self.server.wait()
        elif STORE == "sqlite":
            os.rename(self.dir / "belay.db", self.dir / "moved.db")
            os.mkdir(self.dir / "belay.db")
        else:
            self.dynamodb("DeleteTable", TableName=self.table)
        result = self.belay("db", "stop", "--app", "a")
        self.assertNotEqual(result.code, 0, result)
        self.assertTrue(self.running())
        self.assertEqual(self.log(), [])

    def test_an_unreadable_row_prevents_a_stop(self):
        if STORE != "sqlite":
            self.skipTest("a row is spoiled by hand, in the file")
        import sqlite3
        self.application("a")
        self.application("b")
        self.run_database()
        with sqlite3.connect(self.dir / "belay.db") as database:
            database.execute("UPDATE items SET value = '{' WHERE name = 'b'")
        self.assertIn("cannot read application 'b'", self.fails(65, "db", "stop", "--app", "a").err)
        self.assertTrue(self.running())

    def test_an_action_that_fails_or_takes_too_long_is_an_error(self):
        self.application("a")
        self.run_database()
        (self.dir / "broken").touch()
        result = self.stop("a", code=69)
        self.assertEqual(result["action"], "error")
        self.assertIn("exited with 3", result["reason"])
        (self.dir / "broken").unlink()
        (self.dir / "slow").write_text("60")
        self.configure({"postgres": {"stop": {"command": [self.script, "stop"], "timeout": "300ms"}}})
        began = time.monotonic()
        result = self.stop("a", code=69)
        self.assertIn("took longer than 300ms", result["reason"])
        self.assertLess(time.monotonic() - began, 30)
        self.assertEqual(self.ok("list", "--json").json()["locks"], [])  # the lock is always released

    def test_an_action_that_does_not_take_effect_is_an_error(self):
        self.application("a")
        self.run_database()
        self.configure({"postgres": {"stop": {"command": ["true"], "timeout": "400ms",
                                              "until": {"command": [self.script, "is-stopped"], "every": "50ms"}}}})
        self.assertIn("took no effect", self.stop("a", code=69)["reason"])

    def test_decisions_are_logged_in_the_words_of_the_document(self):
        """S3.9."""
        self.application("a")
        other = self.application("b")
        self.run_database()
        said = self.fails(75, "db", "stop", "--app", "a").err
        for line in [f"Processing postgres database: {self.DATABASE}", f"Lock acquired for db={self.DATABASE}, owner=",
                     "postgres shared with 1 application(s): b", "b is UP",
                     "postgres shared with active apps: b. Skipping stop.", f"Lock released for LOCK#DB#{self.DATABASE}, owner="]:
            self.assertIn(line, said)
        other.up(503)
        self.assertIn("All sharing applications are DOWN - stopping postgres database...", self.ok("db", "stop", "--app", "a").err)

    def test_the_last_decision_is_kept_and_audited(self):
        self.application("a")
        self.application("b")
        self.run_database()
        self.stop("a", "--by", "nightly", code=75)
        (database,) = self.ok("db", "list", "--json").json()["databases"]
        self.assertEqual(database["last"]["action"], "skipped_shared_active")
        self.assertEqual(database["last"]["by"], "nightly")
        self.assertEqual(database["last"]["reason"], "b is UP")
        self.assertEqual([(user["app"], user["state"]) for user in database["apps"]], [("a", "stop_requested"), ("b", "running")])
        if STORE in ("sqlite", "server"):
            self.assertIn("db.stop.skipped_shared_active", self.events(f"LOCK#DB#{self.DATABASE}"))
            self.assertRegex(self.ok("history", f"LOCK#DB#{self.DATABASE}").out,
                             r"db\.stop\.skipped_shared_active +- +- +- +by nightly: b is UP\n")

    def test_shared_db_lock_enabled_turns_off_the_lock_but_not_the_checks(self):
        """S3.8: SHARED_DB_LOCK_ENABLED."""
        self.application("a")
        other = self.application("b")
        self.run_database()
        self.acquire(f"LOCK#DB#{self.DATABASE}")
        self.env["SHARED_DB_LOCK_ENABLED"] = "false"
        self.assertEqual(self.stop("a", code=75)["action"], "skipped_shared_active")
        other.up(503)
        self.assertEqual(self.stop("a")["action"], "stopped")


class Together(GuardCase):
    CONTROLLER = {"lock_ttl_seconds": 60}

    def test_two_sharers_stopping_at_once_stop_it_once(self):
        """S3.6: at most one stop call, and it ends stopped, as both are down."""
        for name in ("a", "b"):
            self.application(name).down()
        self.run_database()
        both = [self.start("db", "stop", "--app", name, "--wait", "60s", "--json") for name in ("a", "b")]
        actions = []
        for process in both:
            out, err = process.communicate(timeout=90)
            self.assertEqual(process.returncode, 0, err)
            actions.append(json.loads(out)["results"][0]["action"])
        self.assertFalse(self.running())
        self.assertEqual(sorted(actions), ["skipped", "stopped"])
        self.assertEqual(len([line for line in self.log() if line.startswith("stop ")]), 1)

    def both_stop(self, **b_controller):
        """B goes down while A checks it: A gets, late, B's last 200. Returns the actions of A and B."""
        self.application("a").down()
        b = self.application("b")
        self.run_database()
        b.delay = 5
        self.configure(lock_ttl_seconds=60, quick_status_timeout=10)
        first = self.start("db", "stop", "--app", "a", "--json")
        wait_until(lambda: b.seen, "A asks B")
        b.down()
        self.configure(lock_ttl_seconds=60, **b_controller)
        second = self.start("db", "stop", "--app", "b", "--json")
        actions = []
        for process in (first, second):
            out, err = process.communicate(timeout=90)
            self.assertIn(process.returncode, (0, 75), err)
            actions.append(json.loads(out)["results"][0]["action"])
        self.assertFalse(self.running(), actions)
        self.assertEqual(len([line for line in self.log() if line.startswith("stop ")]), 1)
        return actions

    def test_an_application_that_goes_down_during_the_check_stops_the_database_itself(self):
        """S3.6: its attempts last longer than a check. One of the two stops it, and the other finds it stopped."""
        self.assertEqual(sorted(self.both_stop(quick_status_timeout=20)), ["skipped", "stopped"])

    def test_a_stop_that_gives_up_on_the_lock_leaves_its_request_for_the_holder(self):
        """S3.6: the holder checks again, as the other's request is newer than the record that it read."""
        self.assertEqual(self.both_stop(quick_status_timeout=1), ["stopped", "skipped_lock"])

    def test_wait_repeats_the_check_until_the_other_application_is_down(self):
        self.application("a").down()
        other = self.application("b")
        self.run_database()
        process = self.start("db", "stop", "--app", "a", "--wait", "60s", "--json")
        wait_until(lambda: len(other.seen) >= 2, "it asks again")
        self.assertTrue(self.running())
        other.up(503)
        out, err = process.communicate(timeout=90)
        self.assertEqual(process.returncode, 0, err)
        self.assertEqual(json.loads(out)["results"][0]["action"], "stopped")
        self.assertFalse(self.running())

    def test_a_held_lock_skips_the_stop(self):
        """S3.2: three attempts, then fail-safe."""
        self.application("a")
        self.run_database()
        self.acquire(f"LOCK#DB#{self.DATABASE}", "--ttl", "5m", "--owner", "another-controller")
        result = self.stop("a", code=75)
        self.assertEqual(result["action"], "skipped_lock")
        self.assertIn("another-controller", result["reason"])
        self.assertTrue(self.running())
        self.assertIn("after 3 attempts", self.fails(75, "db", "stop", "--app", "a").err)

    def test_a_dead_owner_keeps_it_locked_for_its_ttl_and_no_longer(self):
        self.configure(lock_ttl_seconds=SHORT_TTL)
        self.application("a")
        self.run_database()
        (self.dir / "slow").write_text("600")
        process = self.start("db", "stop", "--app", "a")
        wait_until(lambda: self.log(), "the action begins")
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        (self.dir / "slow").unlink()
        self.assertTrue(self.running())  # and what it had started was ended with it
        self.configure()  # with a lease of its own that a busy machine can keep
        self.assertEqual(self.stop("a", "--wait", "60s")["action"], "stopped")

    def test_a_stop_killed_between_decision_and_action_stops_nothing(self):
        self.configure(lock_ttl_seconds=SHORT_TTL)
        self.application("a").down()
        self.run_database()
        (self.dir / "hold").touch()
        process = self.start("db", "stop", "--app", "a")
        wait_until((self.dir / "held").exists, "the decision is made")
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        (self.dir / "hold").unlink()
        self.assertTrue(self.running())
        self.assertEqual([line for line in self.log() if line.startswith("stop ")], [])
        self.configure()  # with a lease of its own that a busy machine can keep
        self.assertEqual(self.stop("a", "--wait", "60s")["action"], "stopped")

    def test_a_lock_that_was_forced_before_the_action_stops_nothing(self):
        """The lease is checked again immediately before the action."""
        self.configure(lock_ttl_seconds=SHORT_TTL)
        self.application("a").down()
        self.run_database()
        (self.dir / "hold").touch()
        process = self.start("db", "stop", "--app", "a", "--json")
        wait_until((self.dir / "held").exists, "the decision is made")
        key = f"LOCK#DB#{self.DATABASE}"
        self.ok("unlock", key, "--force", "--yes", "--reason", "test")
        (self.dir / "hold").unlink()
        out, err = process.communicate(timeout=60)
        self.assertNotEqual(process.returncode, 0, err)
        self.assertEqual(json.loads(out)["results"][0]["action"], "error")
        self.assertTrue(self.running())
        self.assertEqual([line for line in self.log() if line.startswith("stop ")], [])

    def test_a_lease_lost_during_the_action_ends_the_action(self):
        self.configure(lock_ttl_seconds=SHORT_TTL)
        self.application("a").down()
        self.run_database()
        (self.dir / "slow").write_text("600")
        process = self.start("db", "stop", "--app", "a", "--json")
        wait_until(lambda: self.log(), "the action begins")
        self.ok("unlock", f"LOCK#DB#{self.DATABASE}", "--force", "--yes", "--reason", "test")
        out, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 76, err)
        self.assertIn("lease was lost", json.loads(out)["results"][0]["reason"])
        self.assertTrue(self.running())

    def test_a_start_that_races_a_stop_leaves_the_database_running(self):
        """S3.10: the start takes the same lock, so it comes before the stop's questions or after its end."""
        a = self.application("a")
        b = self.application("b")
        for _ in range(4):
            a.down()
            b.down()
            self.run_database()
            (self.dir / "slow").write_text("0.3")
            self.ok("app", "mark-stopped", "b")
            stop = self.start("db", "stop", "--app", "a", "--json")
            start = self.start("db", "start", "--app", "b", "--wait", "60s", "--json")
            out, err = start.communicate(timeout=90)
            self.assertEqual(start.returncode, 0, err)
            self.assertTrue(self.running(), out)  # the moment it says so
            stop.communicate(timeout=90)
            self.assertTrue(self.running())

    def test_thirty_sharers_of_three_seconds_fit_into_a_lock(self):
        """S3.7: checked in parallel, with the lock renewed meanwhile."""
        with socket.socket() as silent:
            silent.bind(("127.0.0.1", 0))
            silent.listen(200)
            url = f"http://127.0.0.1:{silent.getsockname()[1]}/"
            names = [f"sharer-{i:02}" for i in range(30)]
            text = "apps:\n" + "".join(f"  - {{name: {name}, urls: ['{url}'], databases: ['postgres={self.DATABASE}']}}\n"
                                       for name in [*names, "me"])
            self.ok("app", "import", "-", text=text)
            self.run_database()
            began = time.monotonic()
            result = self.stop("me", code=75)
            self.assertEqual(result["active_apps"], names)
            self.assertLess(time.monotonic() - began, 50)  # one after another would take 90 s
            self.assertTrue(self.running())
        # And with a lock that is shorter than the questions: the heartbeat carries it.
        self.configure(lock_ttl_seconds=SHORT_TTL - 1, quick_status_timeout=60)
        for name in names:
            self.ok("app", "remove", name)
        slow = self.application("slow")
        slow.up(503)
        slow.delay = SHORT_TTL + 0.5
        self.assertEqual(self.stop("me")["action"], "stopped")

    def test_many_stops_at_once_make_one_stop(self):
        for name in ("a", "b", "c", "d"):
            self.application(name).up(503)
        self.run_database()
        codes = []
        threads = [threading.Thread(target=lambda n=name: codes.append(
            self.belay("db", "stop", "--app", n, "--wait", "60s").code)) for name in "abcd"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(codes, [0] * 4)
        self.assertEqual(len([line for line in self.log() if line.startswith("stop ")]), 1)


class Safety(GuardCase):
    def test_a_file_in_the_working_directory_may_not_name_actions(self):
        (self.dir / "belay.yaml").write_text("databases: {postgres: {stop: {command: [touch, /tmp/x]}}}\n")
        (self.dir / "belay.yaml").chmod(0o600)
        self.env.pop("BELAY_CONFIG")
        self.assertIn("databases", self.fails(78, "app", "list").err)

    def test_the_command_has_the_variables_of_the_lock_and_none_of_another(self):
        self.application("a")
        out = self.dir / "environment"
        self.configure({"postgres": {"stop": {"command": ["sh", "-c", f"env > {out}; cat"]}}})
        self.env["BELAY_TOKEN"] = "stale"
        self.env["BELAY_DATABASE"] = "stale"
        self.assertEqual(self.stop("a")["action"], "stopped")
        variables = dict(line.split("=", 1) for line in out.read_text().splitlines() if "=" in line)
        self.assertEqual(variables["BELAY_DATABASE"], self.DATABASE)
        self.assertEqual(variables["BELAY_DATABASE_KIND"], "postgres")
        self.assertEqual(variables["BELAY_KEY"], f"LOCK#DB#{self.DATABASE}")
        self.assertTrue(variables["BELAY_LOCK_ID"])
        self.assertNotEqual(variables.get("BELAY_TOKEN"), "stale")

    def test_an_http_action_has_the_identifier_where_it_says_so(self):
        import http.server
        seen = []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                seen.append((self.path, self.rfile.read(int(self.headers["Content-Length"]))))
                self.send_response(202 if len(seen) < 3 else 500)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def do_GET(self):
                seen.append((self.path, b""))
                self.send_response(200 if len(seen) > 3 else 404)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        base = f"http://127.0.0.1:{server.server_address[1]}"
        self.env["no_proxy"] = "*"
        self.application("a")
        self.configure({"postgres": {"stop": {
            "http": {"method": "POST", "url": base + "/{kind}/{database}/stop", "body": '{"id":"{database}"}'},
            "timeout": "20s", "until": {"http": {"url": base + "/{database}/stopped"}, "every": "50ms"}}}})
        self.assertEqual(self.stop("a")["action"], "stopped")
        quoted = self.DATABASE.replace(":", "%3A")
        self.assertEqual([path for path, _ in seen], [f"/{quoted}/stopped", f"/postgres/{quoted}/stop", f"/{quoted}/stopped",
                                                      f"/{quoted}/stopped"])
        self.assertEqual(seen[1][1], f'{{"id":"{self.DATABASE}"}}'.encode())


if __name__ == "__main__":
    main()
