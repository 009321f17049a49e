"""The command line and its errors (L8, S2.3)."""

import json
import os
import subprocess

from support import BELAY, BelayCase, main

DURATION = "belay: --ttl '10x' is not a duration: write it as 500ms, 30s, 10m or 1h30m"


class CommandLine(BelayCase):
    def test_without_arguments_it_prints_an_overview_and_fails(self):
        result = self.fails(64)
        self.assertEqual(result.out, "")
        for word in ("acquire", "history", "locks release", "--store"):
            self.assertIn(word, result.err)

    def test_help_command_and_command_help_print_the_same(self):
        for command in self.ok("help", "--list").out.splitlines():
            with self.subTest(command):
                asked = self.ok("help", *command.split())
                self.assertEqual(asked.out, self.ok(*command.split(), "--help").out)
                self.assertTrue(asked.out.startswith(f"Usage: belay {command}"))
                for title in ("Exit codes:", "Examples:", "Options of every command:"):
                    self.assertIn(title, asked.out)

    def test_help_fits_eighty_columns(self):
        for command in ["", *self.ok("help", "--list").out.splitlines()]:
            for line in self.ok("help", *command.split()).out.splitlines():
                if not line.startswith("  belay"):
                    self.assertLessEqual(len(line), 80, line)
                if line.startswith("Usage:"):
                    self.assertEqual(line.count("["), line.count("]"), f"broken inside of brackets: {line}")

    def test_help_needs_no_store_and_no_configuration(self):
        bad = {"BELAY_STORE": "nonsense:x", "BELAY_CONFIG": "/nowhere"}
        self.ok("acquire", "--help", env=bad)
        self.ok("version", env=bad)
        self.ok("--version", env=bad)

    def test_an_unknown_command_gets_a_suggestion(self):
        self.assertIn("belay: unknown command 'acqire': did you mean 'acquire'?", self.fails(64, "acqire").err)
        self.assertIn("did you mean 'locks list'?", self.fails(64, "locks", "lst").err)
        self.assertIn("belay: unknown command 'xyzzy'\n", self.fails(64, "xyzzy").err)
        self.assertIn("belay: unknown command 'rnu': did you mean 'run'?", self.fails(66, "help", "rnu").err)
        self.assertIn("did you mean 'state load'?", self.fails(66, "help", "state", "laod").err)

    def test_a_command_without_its_two_dashes_is_told_where_they_go(self):
        self.assertIn("belay: no '--' before the command: belay run k -- ./x\n", self.fails(64, "run", "k", "./x").err)
        self.assertIn("unknown option '-la'; the command follows '--'", self.fails(64, "run", "k", "ls", "-la").err)
        self.assertIn("the command follows '--'", self.fails(64, "run", "k", "ls", "--almost-all").err)

    def test_the_usual_short_options_exist(self):
        self.assertEqual(self.ok("-V").out, self.ok("--version").out)
        self.assertEqual(self.ok("list", "-h").out, self.ok("list", "--help").out)
        self.acquire("k")
        self.assertEqual(self.ok("-q", "list").out, "k\n")
        self.assertIn("lock.forced", self.ok("-v", "unlock", "k", "--force", "--yes", "--reason", "test").err)

    def test_durations_in_messages_are_written_as_they_are_typed(self):
        self.assertIn("a heartbeat every 2h: it must be shorter than the ttl, 1h",
                      self.fails(64, "run", "--heartbeat", "2h", "--ttl", "1h", "k", "--", "true").err)
        self.assertIn("a ttl of 1ms: it must be from 100ms to 366 days", self.fails(64, "acquire", "k", "--ttl", "1ms").err)

    def test_an_unknown_option_gets_a_suggestion(self):
        self.assertIn("belay: unknown option '--tll': did you mean '--ttl'?",
                      self.fails(64, "acquire", "k", "--tll", "5m").err)
        self.assertIn("unknown option '-x'", self.fails(64, "list", "-x").err)

    def test_an_invalid_duration_shows_the_format(self):
        self.assertEqual(self.fails(64, "acquire", "k", "--ttl", "10x").err.splitlines()[0], DURATION)
        self.assertEqual(self.fails(64, "acquire", "k", "--ttl=10x").err.splitlines()[0], DURATION)

    def test_options_stand_before_or_after_with_or_without_equals(self):
        self.ok("--json", "acquire", "a", "--ttl=5m", f"--store={self.store}")
        self.assertEqual(self.ok("status", "a", "--json").json()["ttl_ms"], 300000)
        self.ok("--store", self.store, "--quiet", "acquire", "--ttl", "5m", "b")

    def test_an_option_without_its_value_or_with_one_too_many_is_refused(self):
        self.assertIn("--ttl needs a value", self.fails(64, "acquire", "k", "--ttl").err)
        self.assertIn("--json takes no value", self.fails(64, "list", "--json=yes").err)
        self.assertIn("--filter needs a value: --filter status=active", self.fails(64, "list", "--filter").err)
        self.assertIn("--store is empty", self.fails(64, "list", "--store", "").err)

    def test_an_option_given_twice_must_have_the_same_value(self):
        self.assertIn("belay: --ttl is given twice: '5m' and '6m'",
                      self.fails(64, "acquire", "k", "--ttl", "5m", "--ttl", "6m").err)
        self.ok("acquire", "k", "--ttl", "5m", "--ttl", "5m", "--meta", "a=1", "--meta", "b=2")

    def test_two_dashes_end_the_options(self):
        self.acquire("--", "--json-is-a-key")
        self.assertEqual(self.ok("--json", "status", "--", "--json-is-a-key").json()["status"], "active")

    def test_too_many_or_too_few_arguments_are_refused(self):
        self.assertIn("unexpected argument 'b'", self.fails(64, "status", "a", "b").err)
        self.assertIn("no lock given", self.fails(64, "status").err)
        self.assertIn("'belay locks' needs a subcommand", self.fails(64, "locks").err)

    def test_a_key_and_its_parts_together_are_refused(self):
        self.assertIn("both name a lock", self.fails(64, "status", "k", "--stack", "s").err)

    def test_values_are_checked_before_anything_happens(self):
        for args in (["--attempts", "0"], ["--attempts", "x"], ["--meta", "novalue"], ["--meta", "=x"],
                     ["--ttl", "0"], ["--ttl", "50ms"], ["--reentrant"], ["--id", "no spaces"],
                     ["--owner", "a\nb"], ["--meta", "a=b\x1b[2J"]):
            with self.subTest(args):
                result = self.fails(64, "acquire", "k", *args)
                self.assertTrue(result.err.startswith("belay: "), result)
                self.assertNotIn("\x1b", result.err)
        self.fails(66, "status", "k")

    def test_a_hostile_key_is_refused_and_printed_escaped(self):
        for key in ("a\x1b]0;x\x07", "a\nb", "x" * 513, b"\xff\xfe", ""):
            with self.subTest(key):
                result = self.fails(64, "acquire", key)
                self.assertNotRegex(result.err, "[\x00-\x09\x0b-\x1f\x7f]")

    def test_errors_are_one_json_object_with_json(self):
        error = self.fails(64, "acquire", "k", "--ttl", "10x", "--json").error()
        self.assertEqual(list(error), ["code", "message", "lock"])
        self.assertEqual((error["code"], error["lock"]), ("invalid", None))
        self.assertEqual(self.fails(64, "--json", "acqire").error()["code"], "invalid")
        self.assertEqual(self.fails(66, "--json", "status", "nix").error()["code"], "not_found")

    def test_a_wrong_store_or_file_has_its_own_exit_code(self):
        self.fails(64, "list", "--store", "nonsense:x")
        self.fails(78, "list", "--config", str(self.dir / "missing.yaml"))
        (self.dir / "bad.yaml").write_text("stoer: x\n")
        result = self.fails(78, "list", "--config", str(self.dir / "bad.yaml"))
        self.assertIn("store", result.err)
        blocked = self.dir / "blocked"
        blocked.write_text("a file, not a folder")
        self.assertIn(self.belay("list", "--store", f"sqlite:{blocked}/belay.db").code, (69, 78, 65))

    def test_one_file_is_one_store_however_its_parameters_are_written(self):
        path = self.dir / "locks.db"
        for other in ("", ",durability=full", "?durability=full", ",retain_events=1d&durability=normal", "?"):
            with self.subTest(other=other):
                key = f"key-{len(other)}"
                command = ["acquire", key, "--store", f"sqlite:{path},durability=full"]
                self.ok("run", key, "--store", f"sqlite:{path}{other}", "--", *self.program(75, *command))
        self.assertEqual([f.name for f in self.dir.iterdir() if "," in f.name or "?" in f.name], [])

    def program(self, code, *args):
        """A command that runs belay and expects this exit code."""
        return ["sh", "-c", 'code=$1; shift; "$@"; test $? = "$code"', "sh", str(code), BELAY, *args]

    def test_the_store_that_a_command_is_given_is_the_same_one(self):
        path = self.dir / "a,b 100%?.db"
        written = f"sqlite:{self.dir}/a%2Cb 100%25%3F.db,durability=full"
        held = self.program(75, "acquire", "k")
        self.ok("run", "k", "--store", written, "--", *held)  # by BELAY_STORE, which run sets
        self.assertTrue(path.exists())
        self.ok("state", "list", "--store", written)

    def test_a_home_with_a_comma_keeps_its_locks_where_they_are(self):
        home = self.dir / "a,durability=full"
        env = {"BELAY_STORE": "", "XDG_STATE_HOME": str(home)}
        self.ok("acquire", "k", env=env)
        self.assertTrue((home / "belay" / "belay.db").exists())
        self.fails(75, "acquire", "k", env=env)

    def test_an_unknown_parameter_is_refused_on_every_store_with_the_known_ones(self):
        for sign in "?,":
            for store, known in ((f"sqlite:{self.dir}/u.db{sign}durabilty=full", "durability=normal|full"),
                                 (f"dynamodb:table{sign}regoin=x", "region=R"),
                                 (f"http://127.0.0.1:9{sign}token=hunter2", "takes none"),
                                 (f"http://127.0.0.1:9/path{sign}x=1", "takes none")):
                with self.subTest(store=store):
                    result = self.fails(64, "list", "--store", store)
                    self.assertIn(known, result.err)
                    self.assertIn("is not known", result.err)
                    self.assertNotIn("hunter2", result.err)
            for store, known in ((f"file:{self.dir}/s{sign}x=1", "file: takes none"),
                                 (f"s3://bucket/prefix{sign}regoin=x", "region=R")):
                with self.subTest(store=store):
                    self.assertIn(known, self.fails(64, "state", "list", "--state-store", store).err)
                    self.assertIn(known, self.fails(64, "state", "list", env={"BELAY_STATE_STORE": store}).err)
        self.assertFalse((self.dir / "u.db").exists())
        self.assertEqual([f.name for f in self.dir.iterdir() if "," in f.name], [])


class Output(BelayCase):
    def full(self, *args):
        with open("/dev/full", "w", encoding="utf-8") as full:
            return subprocess.run([BELAY, *args], env=self.env, stdout=full, stderr=subprocess.PIPE, encoding="utf-8")

    def test_a_full_disk_is_not_success(self):
        self.acquire("k")
        for args in (["list"], ["list", "--json"], ["status", "k"], ["help"], ["config", "show"], ["version"],
                     ["completion", "bash"], ["history", "k", "--json"]):
            with self.subTest(args):
                done = self.full(*args)
                self.assertEqual(done.returncode, 74)
                self.assertIn("standard output", done.stderr)

    def test_a_lock_that_cannot_be_printed_is_released_again(self):
        done = self.full("acquire", "k")
        self.assertEqual(done.returncode, 74)
        self.assertEqual(done.stderr, "belay: cannot write to standard output: No space left on device\n"
                                      "belay: the lock was released again, because its id could not be printed\n")
        self.assertEqual(self.ok("status", "--json", "k").json()["status"], "released")

    def test_a_closed_pipe_is_quiet_and_not_success(self):
        self.acquire("k")
        read, write = os.pipe()
        os.close(read)
        done = subprocess.run([BELAY, "list"], env=self.env, stdout=write, stderr=subprocess.PIPE, encoding="utf-8")
        os.close(write)
        self.assertEqual((done.returncode, done.stderr), (74, ""))

    def test_colour_is_for_terminals_that_want_it(self):
        self.acquire("k")
        for env, args, coloured in (({}, [], True), ({"NO_COLOR": "1"}, [], False), ({}, ["--no-color"], False),
                                    ({"TERM": "dumb"}, [], False), ({"NO_COLOR": ""}, [], True)):
            terminal = self.terminal("status", "k", *args, env=env)
            terminal.finish()
            self.assertEqual("\x1b[" in terminal.text, coloured, (env, args))
        self.assertNotIn("\x1b", self.ok("status", "k").out)

    def test_verbose_prints_every_event_to_standard_error(self):
        self.assertIn("lock.acquired", self.ok("--verbose", "acquire", "k").err)
        result = self.ok("--verbose", "--json", "acquire", "k2")
        self.assertEqual(json.loads(result.err)["event"], "lock.acquired")


class HostileCheckout(BelayCase):
    """A belay.yaml by another author is in the working directory."""

    def enter(self, text):
        (self.dir / "belay.yaml").write_text(text, encoding="utf-8")

    def test_entering_it_appends_to_no_file(self):
        victim = self.dir / "home" / ".bashrc"
        victim.write_text("# mine\n", encoding="utf-8")
        for text in (f"audit: {{file: {victim}}}\n", f"metrics: {{emf: {victim}}}\n"):
            self.enter(text)
            for args in (["acquire", "k"], ["list"], ["config", "show"], ["run", "k", "--", "true"], ["serve"]):
                with self.subTest(text=text, args=args):
                    self.assertIn("'" + text.split(":")[0] + "' is not permitted", self.fails(78, *args).err)
        self.assertEqual(victim.read_text(encoding="utf-8"), "# mine\n")

    def test_entering_it_does_not_hide_the_store_of_the_user(self):
        own = self.dir / "home" / ".config" / "belay" / "config.yaml"
        own.parent.mkdir(parents=True)
        own.write_text(f"store: sqlite:{self.dir}/own.db\n", encoding="utf-8")
        self.enter("profiles:\n  nightly: {ttl: 4h}\n")
        del self.env["BELAY_STORE"]
        self.assertEqual(self.acquire("k", "--profile", "nightly")["ttl_ms"], 4 * 3600 * 1000)
        self.assertTrue((self.dir / "own.db").exists())

    def test_a_trusted_file_can_be_named(self):
        self.enter(f"store: sqlite:{self.dir}/theirs.db\n")
        self.ok("acquire", "k", "--config", "./belay.yaml", env={"BELAY_STORE": None})
        self.assertTrue((self.dir / "theirs.db").exists())


if __name__ == "__main__":
    main()
