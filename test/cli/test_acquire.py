"""acquire, renew, release, wait: one lock from the shell (S0.1, S1.2, S1.3, S2.1, S4.9)."""

import json
import os
import re
import signal
import subprocess
import time

from support import LOCK_FIELDS, PATIENCE, BelayCase, main, wait_until

TIME = r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$"


class Acquire(BelayCase):
    def test_the_lock_has_the_fields_of_the_contract_in_their_order(self):
        lock = self.acquire("deploy-api-prod", "--owner", "ex-1", "--owner-name", "alice", "--meta", "b=2", "--meta",
                            "a=é")
        self.assertEqual(list(lock), LOCK_FIELDS)
        self.assertEqual((lock["key"], lock["locked_by"], lock["locked_by_name"]), ("deploy-api-prod", "ex-1", "alice"))
        self.assertEqual((lock["status"], lock["outcome"], lock["last_heartbeat"]), ("active", None, None))
        self.assertEqual((lock["ttl_ms"], lock["is_stale"]), (1800000, False))
        self.assertEqual(lock["metadata"], {"b": "2", "a": "é"})
        self.assertIsInstance(lock["token"], int)
        for name in ("locked_at", "expires_at"):
            self.assertRegex(lock[name], TIME)
        self.assertTrue(1790000 < lock["expires_in_ms"] <= 1800000)
        self.assertTrue(1750000 < lock["valid_for_ms"] < lock["expires_in_ms"])
        again = self.ok("status", "deploy-api-prod", "--json").json()
        self.assertIsNone(again["valid_for_ms"])
        self.assertEqual((lock["waiting"], again["waiting"]), (None, []))  # acquire does not read the queue
        for part in (lock, again, lock["holders"][0], again["holders"][0]):
            for name in ("expires_in_ms", "valid_for_ms"):
                del part[name]
        del lock["waiting"], again["waiting"]
        self.assertEqual(again, lock)

    def test_text_output_shows_the_release_command(self):
        out = self.ok("acquire", "it's mine", "--store", self.store, env={"BELAY_STORE": None}).out
        command = re.search(r"Release it when you are done:\n  belay (.*)\n", out).group(1)
        from support import BELAY
        done = subprocess.run(f"{BELAY} {command}", shell=True, env=self.env, capture_output=True, encoding="utf-8")
        self.assertEqual((done.returncode, done.stdout), (0, "Released 'it's mine'\n"), done)

    def test_a_declared_heartbeat_shows_the_renew_command(self):
        out = self.ok("acquire", "k", "--heartbeat", "1m").out
        self.assertIn("Renew it every 1m:\n  belay renew --ttl 10m k --id ", out)

    def test_the_heartbeat_of_a_profile_fits_the_ttl_of_the_command_line(self):
        """S2.5: 80 % of the ttl for an execution; a quarter for a stack, whose heartbeat is 30s, if 30s are too long."""
        stack = ("--stack", "s", "--environment", "e", "--ttl")
        self.assertIn("Renew it every 5s:\n", self.ok("acquire", *stack, "20s", "--service", "a").out)
        self.assertIn("Renew it every 30s:\n", self.ok("acquire", *stack, "2h", "--service", "b").out)
        execution = ("--profile", "execution", "--owner", "o", "--ttl")
        self.assertIn("Renew it every 1h 36m:\n", self.ok("acquire", "k", *execution, "2h").out)
        self.assertIn("Renew it every 4s:\n", self.ok("acquire", "l", *execution, "20s", "--heartbeat", "4s").out)

    def test_quiet_prints_the_lock_id_alone(self):
        lock_id = self.ok("acquire", "--quiet", "k").out.strip()
        self.assertEqual(self.ok("status", "--json", "k").json()["lock_id"], lock_id)

    def test_a_refused_client_sees_the_holder_and_since_when(self):
        """S0.1, S2.3"""
        self.acquire("terraform-prod", "--owner", "execution-abc123")
        lines = self.fails(75, "acquire", "terraform-prod").err.splitlines()
        self.assertRegex(lines[0], r"^belay: lock 'terraform-prod' held by execution-abc123 until "
                                   r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ \(9m 5\ds left\)$")
        self.assertRegex(lines[1], r"^  held since \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ \(.*\) by .*\(execution-abc123\)$")
        error = self.fails(75, "acquire", "terraform-prod", "--json").error()
        self.assertEqual(error["code"], "lock_held")
        self.assertEqual(list(error["lock"]), LOCK_FIELDS)
        self.assertEqual(error["lock"]["locked_by"], "execution-abc123")

    def test_the_same_id_twice_is_one_acquisition(self):
        """L5"""
        first = self.acquire("k", "--id", "job-7")
        again = self.acquire("k", "--id", "job-7")
        self.assertEqual((again["lock_id"], again["token"]), ("job-7", first["token"]))
        self.ok("release", "k", "--id", "job-7")
        self.assertEqual(self.fails(77, "acquire", "k", "--id", "job-7", "--json").error()["code"], "id_used")

    def test_the_same_owner_reenters_where_requested(self):
        """S2.4"""
        first = self.acquire("k", "--owner", "me")
        again = self.acquire("k", "--owner", "me", "--reentrant")
        self.assertEqual((again["lock_id"], again["token"]), (first["lock_id"], first["token"]))
        self.fails(75, "acquire", "k", "--owner", "me")

    def test_tokens_grow(self):
        """L2"""
        tokens = []
        for _ in range(3):
            lock = self.acquire("k")
            tokens.append(lock["token"])
            self.ok("release", "k", "--id", lock["lock_id"])
        self.assertEqual(tokens, sorted(set(tokens)))

    def test_profiles_provide_defaults(self):
        """S0.6, S4.6, S2.5"""
        cases = {("--profile", "build", "--component", "router", "--environment", "plt"): ("build-router-plt", 600000),
                 ("--profile", "deploy", "--component", "api", "--environment", "prod"): ("deploy-api-prod", 1800000),
                 ("--stack", "s", "--environment", "e"): ("stack:s:env:e", 3600000),
                 ("--stack", "s", "--environment", "f", "--service", "v"): ("stack:s:env:f:service:v", 3600000)}
        for args, (key, ttl_ms) in cases.items():
            lock = self.ok("acquire", "--json", *args).json()
            self.assertEqual((lock["key"], lock["ttl_ms"]), (key, ttl_ms))
        self.assertEqual(self.acquire("x", "--profile", "execution", "--owner", "o")["ttl_ms"], 1800000)
        self.assertEqual(self.acquire("y", "--profile", "execution", "--owner", "o", "--ttl", "5m")["ttl_ms"], 300000)
        self.fails(64, "acquire", "k", "--profile", "biuld")

    def test_options_override_the_profile_even_with_0(self):
        (self.dir / "belay.yaml").write_text("profiles:\n  slow: {ttl: 1h, heartbeat: 1m, wait: 1h, attempts: 50}\n")
        (self.dir / "belay.yaml").chmod(0o600)
        lock = self.acquire("k", "--profile", "slow", "--heartbeat", "0", "--wait", "0", "--attempts", "1")
        self.assertEqual((lock["ttl_ms"], lock["last_heartbeat"]), (3600000, None))
        self.fails(75, "acquire", "k", "--profile", "slow", "--wait", "0", "--attempts", "1")

    def test_a_component_outside_the_list_is_refused(self):
        """S0.5"""
        (self.dir / "belay.yaml").write_text(
            'profiles:\n  build: {ttl: 10m, key: "build-{component}-{environment}",'
            " components: [router, echo], environments: [plt]}\n")
        (self.dir / "belay.yaml").chmod(0o600)
        result = self.fails(64, "acquire", "--profile", "build", "--component", "foo", "--environment", "plt")
        self.assertIn("nvalid component: foo. Valid options: router, echo", result.err)

    def test_a_key_typed_in_full_is_a_lock_of_the_profile_that_it_fits(self):
        """S0.5, S0.6"""
        config = self.dir / "c.yaml"
        config.write_text("profiles:\n  build: {components: [router, echo], environments: [plt]}\n", encoding="utf-8")
        self.env["BELAY_CONFIG"] = str(config)
        for args in (["acquire", "build-nope-plt"], ["run", "build-nope-plt", "--", "true"],
                     ["acquire", "--profile", "build", "build-nope-plt"],
                     ["acquire", "--profile", "execution", "--owner", "o", "build-nope-plt"]):
            with self.subTest(args):
                self.assertIn("Invalid component: nope. Valid options: router, echo", self.fails(64, *args).err)
        self.fails(66, "status", "build-nope-plt")
        self.assertIn("belongs to profile 'build', not to 'deploy'",
                      self.fails(64, "acquire", "--profile", "deploy", "build-router-plt").err)
        minutes = 60 * 1000
        for key, args, ttl in (("deploy-router-plt", [], 30 * minutes), ("build-router-plt", [], 10 * minutes),
                               ("deploy-echo-plt", ["--ttl", "1m"], minutes), ("stack:s:env:e", [], 60 * minutes),
                               ("deploy-x-plt", ["--profile", "database"], minutes), ("other", [], 10 * minutes)):
            with self.subTest(key):
                self.assertEqual(self.acquire(key, *args)["ttl_ms"], ttl)
        result = self.ok("run", "--result", str(self.dir / "result"), "deploy-run-plt", "--", "true")
        self.assertEqual(json.loads((self.dir / "result").read_text())["lock"]["ttl_ms"], 30 * minutes, result)

    def test_a_held_lock_survives_a_change_of_the_allowed_lists(self):
        config = self.dir / "c.yaml"
        config.write_text("profiles:\n  build: {components: [router, echo, all]}\n", encoding="utf-8")
        self.env["BELAY_CONFIG"] = str(config)
        lock = self.acquire("build-router-plt")
        other = self.acquire("build-echo-plt")
        config.write_text("profiles:\n  build: {components: [all]}\n", encoding="utf-8")
        self.assertEqual(self.ok("list", "--quiet").out.split(), ["build-echo-plt", "build-router-plt"])
        for args in (["status"], ["renew", "--id", lock["lock_id"]], ["release", "--id", lock["lock_id"]]):
            self.ok(*args, "build-router-plt")
        self.fails(75, "acquire", "build-all-plt")
        self.fails(75, "wait", "--wait", "0", "build-echo-plt")
        self.ok("unlock", "--force", "--yes", "build-echo-plt")
        self.fails(77, "renew", "build-echo-plt", "--id", other["lock_id"])
        self.ok("acquire", "build-all-plt")  # nothing of the two is left above them

    def test_a_stack_excludes_its_services_and_components(self):
        """S4.5"""
        self.ok("acquire", "--stack", "s", "--environment", "e")
        error = self.fails(75, "acquire", "--stack", "s", "--environment", "e", "--service", "v", "--json").error()
        self.assertEqual(error["lock"]["key"], "stack:s:env:e")

    def test_the_owner_under_a_ci_system_is_its_run(self):
        """S4.4: jobs of one CI run have the same owner, which must not let one re-enter the lock of another."""
        github = {"GITHUB_ACTIONS": "true", "GITHUB_RUN_ID": "12345"}
        for key, env, owner in (("a", github, "github-actions-run-12345"),
                                ("b", {"GITLAB_CI": "true", "CI_JOB_ID": "77"}, "gitlab-ci-job-77"),
                                ("c", {"JENKINS_URL": "http://j/", "BUILD_TAG": "jenkins-x-9"}, "jenkins-x-9"),
                                ("d", {"BUILDKITE": "true", "BUILDKITE_BUILD_ID": "01a"}, "buildkite-build-01a")):
            with self.subTest(owner):
                lock = self.ok("acquire", "--json", key, env=env).json()
                self.assertEqual(lock["locked_by"], owner)
                self.fails(75, "acquire", key, env=env)
                self.fails(64, "acquire", key, "--reentrant", env=env)
                self.fails(64, "acquire", key, "--profile", "execution", env=env)
                self.fails(75, "run", key, "--", "true", env=env)
                self.assertEqual(self.ok("acquire", "--json", key + "2", "--owner", "me", env=env).json()["locked_by"], "me")
        urls = (({"GITHUB_ACTIONS": "true", "GITHUB_RUN_ID": "1", "GITHUB_SERVER_URL": "https://g", "GITHUB_REPOSITORY": "o/r"},
                 "https://g/o/r/actions/runs/1"),
                ({"GITLAB_CI": "true", "CI_JOB_ID": "7", "CI_JOB_URL": "https://l/-/jobs/7"}, "https://l/-/jobs/7"),
                ({"JENKINS_URL": "http://j/", "BUILD_TAG": "jenkins-x-9", "BUILD_URL": "http://j/job/x/9/"}, "http://j/job/x/9/"),
                ({"BUILDKITE": "true", "BUILDKITE_BUILD_ID": "01a", "BUILDKITE_BUILD_URL": "https://b/1", "BUILDKITE_JOB_ID": "z"},
                 "https://b/1#z"), (github, None))
        for number, (env, url) in enumerate(urls):
            metadata = self.ok("acquire", "--json", f"url{number}", "--meta", "a=b", env=env).json()["metadata"]
            self.assertEqual((metadata.get("ci_url"), metadata["a"]), (url, "b"))
            self.assertIn("ci_run_id", metadata)
        mine = self.ok("acquire", "--json", "mine", "--meta", "ci_url=mine", env=urls[1][0]).json()["metadata"]
        self.assertEqual(mine["ci_url"], "mine")
        lock = self.acquire("adopted", "--owner", "chat-user")
        self.ok("run", "--adopt", lock["lock_id"], "adopted", "--", "true", env=github)
        self.assertEqual(self.ok("status", "adopted", "--json").json()["locked_by"], "chat-user")
        self.assertNotIn("github", self.ok("acquire", "--json", "e", env={"GITHUB_ACTIONS": "true"}).json()["locked_by"])

    def test_the_kill_switch_grants_everything_and_warns(self):
        """S0.9"""
        self.acquire("k")
        result = self.ok("acquire", "k", "--json", env={"BELAY_DISABLED": "1"})
        lock = result.json()
        self.assertEqual(list(lock), LOCK_FIELDS)
        self.assertEqual([lock[name] for name in ("key", "token", "status")], ["k", None, None])
        self.assertTrue(lock["lock_id"].startswith("unprotected-"))
        self.assertIn("switched off", result.err)
        result = self.ok("acquire", "k", env={"BELAY_DISABLED": "1"})
        self.assertEqual((result.out, len(result.err.splitlines())), ("", 1))

    def test_each_command_says_that_locking_is_switched_off(self):
        """S0.9: once, on standard error, and also with --quiet"""
        self.acquire("k")
        for command in (["acquire", "k"], ["renew", "k", "--id", "x"], ["release", "k", "--id", "unprotected-1"], ["release", "k", "--id", "x"],
                        ["status", "k"], ["list"], ["wait", "k"], ["check", "k", "--id", "x"], ["run", "k", "--", "true"]):
            for quiet in ([], ["--quiet"]):
                with self.subTest(command=command, quiet=quiet):
                    err = self.ok(*quiet, *command, env={"BELAY_DISABLED": "1"}).err
                    self.assertEqual(err.count("locking is switched off"), 1, err)

    def test_status_invents_no_holder_while_locking_is_switched_off(self):
        self.assertEqual(self.ok("status", "k", env={"BELAY_DISABLED": "1"}).out, "k\n  Status:     none\n")

    def test_a_script_continues_while_locking_is_switched_off(self):
        """S0.9"""
        held = self.acquire("k")
        for store in (self.store, "sqlite:/proc/no/such.db", "http://127.0.0.1:9"):
            off = {"BELAY_DISABLED": "1", "BELAY_STORE": store}
            with self.subTest(store):
                lock_id = self.ok("acquire", "--quiet", "k", env=off).out.strip()
                for args in (["renew", "k", "--id", lock_id], ["status", "k"], ["status", "k", "--json"],
                             ["release", "k", "--id", lock_id], ["release", "other", "--id", "some-id"],
                             ["renew", "other", "--id", "some-id"], ["wait", "k"], ["run", "k", "--", "true"],
                             ["run", "k", "--adopt", "some-id", "--", "true"]):
                    self.ok(*args, env=off)
                self.assertEqual(self.ok("acquire", "--quiet", "k", "--id", "mine", env=off).out.strip(), "mine")
        # The lock from before is still there, and can be ended.
        self.assertEqual(self.ok("status", "k", "--json").json()["lock_id"], held["lock_id"])
        self.ok("release", "k", "--id", held["lock_id"], env={"BELAY_DISABLED": "1"})
        self.assertEqual(self.ok("status", "k", "--json").json()["status"], "released")

    def test_an_unprotected_lock_is_released_and_not_renewed_when_locking_is_on_again(self):
        lock_id = self.ok("acquire", "--quiet", "k", env={"BELAY_DISABLED": "1"}).out.strip()
        self.acquire("k")
        self.fails(77, "renew", "k", "--id", lock_id)
        self.assertIn("switched off", self.fails(64, "acquire", "k2", "--id", lock_id).err)
        self.ok("release", "k", "--id", lock_id)
        self.assertEqual(self.ok("status", "k", "--json").json()["status"], "active")


class Holder(BelayCase):
    def test_only_the_holder_renews_and_releases(self):
        """L3, S1.3"""
        lock = self.acquire("k", "--owner", "me")
        self.refused("renew", "k", "--id", "other", "--json")
        self.assertIn("Renewed 'k': expires in 1h ", self.ok("renew", "k", "--id", lock["lock_id"], "--ttl", "1h").out)
        self.assertEqual(self.ok("status", "k", "--json").json()["ttl_ms"], 3600000)
        self.assertEqual(self.ok("release", "k", "--id", lock["lock_id"]).out, "Released 'k'\n")
        self.ok("release", "k", "--id", lock["lock_id"])
        self.fails(77, "renew", "k", "--id", lock["lock_id"])

    def refused(self, *args):
        error = self.fails(77, *args).error()
        self.assertEqual((error["code"], error["lock"]["locked_by"]), ("not_holder", "me"))

    def test_a_client_that_never_held_the_lock_cannot_release_it(self):
        """L3, S1.3"""
        self.acquire("k", "--owner", "me")
        self.refused("release", "k", "--id", "other", "--json")
        self.assertEqual(self.ok("status", "k", "--json").json()["status"], "active")

    def test_a_late_release_does_not_end_the_next_holders_lock(self):
        """L3"""
        lock = self.acquire("k")
        self.ok("release", "k", "--id", lock["lock_id"])
        self.acquire("k")
        self.fails(77, "release", "k", "--id", lock["lock_id"])

    def test_releasing_an_unknown_lock_creates_nothing(self):
        """L3, document 000"""
        self.assertIn(self.belay("release", "ghost", "--id", "x").code, (66, 77))
        self.fails(66, "status", "ghost")

    def test_an_expired_lease_is_not_renewed(self):
        """L3"""
        lock = self.acquire("k", "--ttl", "100ms")
        wait_until(lambda: self.ok("status", "--json", "k").json()["status"] == "expired")
        self.fails(77, "renew", "k", "--id", lock["lock_id"])

    def test_an_expired_lock_is_taken_over_with_a_warning(self):
        """S1.4, S2.4: the old holder cannot renew, and the history shows what happened."""
        old = self.acquire("k", "--ttl", "100ms", "--owner", "crashed")
        wait_until(lambda: self.ok("status", "--json", "k").json()["status"] == "expired")
        new = self.acquire("k", "--owner", "next")
        self.assertGreater(new["token"], old["token"])
        self.fails(77, "release", "k", "--id", old["lock_id"])
        events = self.ok("history", "k", "--json").json()["events"]
        taken = [event for event in events if event["event"] == "lock.taken_over"]
        self.assertEqual([(e["level"], e["locked_by"], e["lock_id"], e["by"]) for e in taken],
                         [("WARN", "crashed", old["lock_id"], "next")])

    def test_a_resource_has_any_name_and_names_do_not_meet(self):
        """S1.1"""
        names = ["default_graph_creation_42", "Default_graph_creation_42", "a b/c%2Fd", "größe:1", "x'; --"]
        ids = {name: self.acquire(name)["lock_id"] for name in names}
        for name in names:
            self.assertEqual(self.ok("status", name, "--json").json()["lock_id"], ids[name])

    def test_the_outcome_is_kept(self):
        """S0.2"""
        for outcome in ("completed", "failed"):
            lock = self.acquire("k")
            done = self.ok("release", "k", "--id", lock["lock_id"], "--outcome", outcome, "--json").json()
            self.assertEqual((done["status"], done["outcome"]), ("released", outcome))
        self.fails(64, "release", "k", "--id", "x", "--outcome", "forced")

    def test_renew_and_release_need_the_lock_id(self):
        self.assertIn("--id", self.fails(64, "renew", "k").err)
        self.assertIn("--id", self.fails(64, "release", "k").err)


class Waiting(BelayCase):
    def waiters(self, key):
        return self.ok("status", key).out.count("for ")

    def test_a_waiter_gets_the_lock_at_once_when_it_is_released(self):
        """L4"""
        lock = self.acquire("k")
        waiter = self.start("acquire", "k", "--wait", "1m", "--json")
        wait_until(lambda: "Waiting:" in self.ok("status", "k").out)
        self.ok("release", "k", "--id", lock["lock_id"])
        out, _ = waiter.communicate(timeout=PATIENCE)
        self.assertEqual(waiter.returncode, 0)
        self.assertIn('"status":"active"', out)

    def test_status_shows_the_queue_in_order(self):
        """S2.8"""
        self.acquire("k")
        for name in ("first", "second"):
            self.start("acquire", "k", "--wait", "1m", "--owner-name", name)
            wait_until(lambda: name in self.ok("status", "k").out)
        out = self.ok("status", "k").out
        self.assertRegex(out, r"Waiting:    1\. first, for .*\n +2\. second, for ")
        self.assertRegex(self.ok("list").out, r"\n.* 2\n")

    def test_the_wait_ends_with_75(self):
        self.acquire("k")
        began = time.monotonic()
        result = self.fails(75, "acquire", "k", "--wait", "300ms")
        self.assertGreater(time.monotonic() - began, 0.3)
        self.assertNotIn("retrying", result.err)  # the time is up before the next try

    def test_without_a_terminal_each_attempt_is_one_line(self):
        """S4.9"""
        self.acquire("k")
        waiter = self.start("acquire", "k", "--attempts", "2")
        lines = [waiter.stderr.readline(), waiter.stderr.readline()]
        self.assertEqual(lines[1], "Lock held, retrying in 5s…\n")
        self.assertRegex(lines[0], "^belay: 1st in the queue for 'k', held by .* for \\d+s\n$")
        self.assertIn("belay: failed to acquire lock after 2 attempts: ", waiter.stderr.read())
        self.assertEqual(waiter.wait(), 75)

    def test_without_a_terminal_a_wait_says_every_minute_where_it_stands(self):
        """What the log of a CI job can show; here every half second."""
        github = {"GITHUB_ACTIONS": "true", "GITHUB_RUN_ID": "812", "GITHUB_SERVER_URL": "https://github.example",
                  "GITHUB_REPOSITORY": "shop/api"}
        lock = self.ok("acquire", "--json", "k", env=github).json()
        often = {"BELAY_PROGRESS_EVERY": "500ms"}
        line = r"held by \S+ \(github-actions-run-812\) for \d+s \(https://github\.example/shop/api/actions/runs/812\)\n$"
        for begin, *command in (("1st in the queue for", "run", "--wait", "1m", "k", "--", "true"),
                                ("2nd in the queue for", "acquire", "--wait", "1m", "k"), ("waiting for", "wait", "k")):
            process = self.start(*command, env=often)
            seen = []
            while len(seen) < 3:  # the first line, and two of the clock
                seen += [text for text in [process.stderr.readline()] if "retrying" not in text]
            for text in seen[1:]:
                self.assertRegex(text, f"^belay: {begin} 'k', " + line)
        self.ok("release", "k", "--id", lock["lock_id"])

    def test_on_a_terminal_one_line_is_rewritten(self):
        lock = self.acquire("k" * 60, "--owner", "execution-abc123", "--ttl", "4m")
        terminal = self.terminal("acquire", "k" * 60, "--wait", "1m", columns=80)
        terminal.expect_that(lambda: len(set(re.findall(r"1st in the queue, held for \d+s by \S+ \(execution-abc123\) \(3m \d+s left", terminal.text))) >= 2,
                             "the times, running")
        self.assertNotIn("retrying", terminal.text)  # it has a place in the queue
        rows = terminal.text.split("\r\x1b[K")
        self.assertTrue(all(len(row) < 80 and "\n" not in row for row in rows), rows)
        self.ok("release", "k" * 60, "--id", lock["lock_id"])
        self.assertEqual(terminal.finish(), 0)
        self.assertIn("\r\x1b[K\x1b[1mkkk", terminal.text)  # the line is gone before the lock is printed

    def test_quiet_and_json_wait_in_silence(self):
        self.acquire("k")
        self.assertEqual(self.fails(75, "acquire", "k", "--wait", "200ms", "--json").error()["code"], "lock_held")
        self.assertEqual(len(self.fails(75, "acquire", "k", "--wait", "200ms", "--quiet").err.splitlines()), 1)

    def test_a_wake_file_that_somebody_truncates_does_not_end_the_waiter(self):
        lock = self.acquire("k")
        waiter = self.start("acquire", "k", "--wait", "30s", "--owner", "w", stderr=subprocess.PIPE)
        wait_until(lambda: "Waiting:" in self.ok("status", "k").out, "the waiter")
        path = self.dir / "belay.db-wake"
        size = path.stat().st_size
        os.truncate(path, 0)
        time.sleep(0.1)
        self.assertIsNone(waiter.poll())
        waiter.send_signal(signal.SIGINT)
        waiter.communicate(timeout=PATIENCE)
        self.assertEqual(waiter.returncode, 130)
        self.ok("release", "k", "--id", lock["lock_id"])
        self.assertEqual(path.stat().st_size, size)

    def test_a_signal_ends_the_wait_and_leaves_nothing_behind(self):
        """S1.5"""
        lock = self.acquire("k")
        for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
            waiter = self.start("acquire", "k", "--wait", "1m")
            wait_until(lambda: "Waiting:" in self.ok("status", "k").out)
            waiter.send_signal(number)
            self.assertEqual(waiter.wait(timeout=PATIENCE), code)
            self.assertNotIn("Waiting:", self.ok("status", "k").out)
        self.assertEqual(self.ok("status", "--json", "k").json()["lock_id"], lock["lock_id"])

    def test_wait_returns_when_it_is_free_and_takes_nothing(self):
        self.ok("wait", "k")
        lock = self.acquire("k")
        self.fails(75, "wait", "k", "--wait", "0")
        self.fails(75, "wait", "k", "--wait", "100ms")
        waiter = self.start("wait", "k")
        self.assertIn("waiting for 'k'", waiter.stderr.readline())
        self.ok("release", "k", "--id", lock["lock_id"])
        self.assertEqual(waiter.wait(timeout=PATIENCE), 0)
        self.assertEqual(self.ok("status", "--json", "k").json()["status"], "released")


class ByOwner(BelayCase):
    """Renew and release without the lock id, where every process of the owner may have the lock (S2.4)."""

    WHO = ("terraform-prod", "--owner", "execution-1", "--profile", "execution")

    def test_the_owner_of_a_re_entrant_lock_needs_no_id(self):
        lock = self.acquire(*self.WHO)
        self.assertEqual(self.ok("renew", *self.WHO, "--ttl", "1h", "--json").json()["ttl_ms"], 3600000)
        released = self.ok("release", *self.WHO, "--outcome", "failed", "--json").json()
        self.assertEqual((released["lock_id"], released["outcome"]), (lock["lock_id"], "failed"))
        self.ok("release", *self.WHO)  # twice is no error
        self.fails(77, "renew", *self.WHO)
        self.fails(66, "release", "none", *self.WHO[1:])

    def test_another_owner_and_a_profile_that_is_not_re_entrant_are_refused(self):
        lock = self.acquire(*self.WHO)
        for command in ("renew", "release"):
            result = self.fails(77, command, "terraform-prod", "--owner", "execution-2", "--profile", "execution", "--json")
            self.assertIn("execution-1", result.err)
            self.assertNotIn(lock["lock_id"], result.err)
            for args in ((*self.WHO[:3],), (*self.WHO[:4], "database"), ("build-a-b", "--owner", "x")):
                self.assertIn("--id", self.fails(64, command, *args).err)
            self.assertIn("--id and --owner", self.fails(64, command, *self.WHO, "--id", "x").err)
        self.assertEqual(self.ok("status", "terraform-prod", "--json").json()["expires_at"], lock["expires_at"])

    def test_it_needs_no_store_while_locking_is_switched_off(self):
        off = {"BELAY_DISABLED": "1", "BELAY_STORE": "sqlite:/proc/no/such.db"}
        for command in ("renew", "release"):
            self.assertEqual(self.belay(command, *self.WHO, env=off).code, 0)


if __name__ == "__main__":
    main()
