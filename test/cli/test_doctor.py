"""belay doctor on an SQLite store: it finds faults, gives advice, and leaves no change."""

import json
import os
import re
import sqlite3
import subprocess
import time

from support import BELAY, BelayCase, main

NOBODY = 65534


class DoctorCase(BelayCase):
    def findings(self, result):
        return {finding["name"]: finding for finding in result.json()["findings"]}

    def doctor(self, code, *args, **more):
        """Its findings, by name."""
        return self.findings(self.fails(code, "doctor", "--json", *args, **more))

    def files(self):
        return sorted(str(path) for path in self.dir.rglob("*"))

    def rows(self):
        with sqlite3.connect(f"file:{self.dir}/belay.db?mode=ro", uri=True) as db:
            return [db.execute(f"SELECT * FROM {table}").fetchall()
                    for table in ("locks", "events", "history", "acquisitions", "meta")]

    def as_nobody(self, *args):
        """Run it as an unprivileged user; needs root."""
        if os.geteuid() != 0:
            self.skipTest("needs root to become somebody else")
        try:
            done = subprocess.run([BELAY, *args], env=self.environment(None), cwd="/", capture_output=True, text=True,
                                  timeout=60, user=NOBODY, group=NOBODY, extra_groups=[], check=False)
        except PermissionError:
            self.skipTest("that user cannot reach the program")
        is_ours = re.search("(?m)^belay: ", done.stderr)
        if done.returncode == 127 or "Permission denied" in done.stderr and not done.stdout and not is_ours:
            self.skipTest("that user cannot run the program")
        return done


class Healthy(DoctorCase):
    def test_a_store_in_use_passes_every_check(self):
        self.acquire("deploy-api-prod")
        result = self.ok("doctor", "--json")
        found = self.findings(result)
        for name in ("configuration", "store", "directory", "file system", "free space", "permissions", "database",
                     "wake file", "clock", "write"):
            self.assertIn(found[name]["level"], ("ok", "warning"), found[name])
            self.assertIsNone(found[name]["code"])
        self.assertEqual(result.json()["failed"], 0)
        self.assertEqual(result.json()["checks"], len(result.json()["findings"]))
        self.assertIn("environment BELAY_STORE", found["store"]["text"])

    def test_nothing_that_stays_is_changed(self):
        self.acquire("deploy-api-prod")
        before = self.files(), self.rows()
        self.ok("doctor")
        self.assertEqual((self.files(), self.rows()), before)

    def test_a_missing_store_is_not_created(self):
        found = self.doctor(0, "--store", f"sqlite:{self.dir}/a/b/belay.db")
        self.assertIn("there is none", found["database"]["text"])
        self.assertFalse((self.dir / "a").exists())
        self.assertFalse((self.dir / "belay.db").exists())

    def test_it_is_one_line_for_each_check(self):
        self.acquire("x")
        lines = self.ok("doctor").out.splitlines()
        self.assertEqual(len(lines), 10, lines)
        for line in lines:
            self.assertRegex(line, r"^(ok|warning) ")

    def on_a_terminal(self, columns, *args, env=None):
        """The lines, as they are written."""
        terminal = self.terminal("doctor", *args, columns=columns, env={"NO_COLOR": "1", **(env or {})})
        terminal.expect_that(lambda: terminal.process.poll() is not None, "its end")
        terminal.settle(0.1)
        return terminal.text.splitlines()

    def assert_wrapped(self, columns, *args):
        """Every check is as in a pipe, but for the ends of lines; what follows the first line of a check is indented."""
        piped = [" ".join(line.split()) for line in self.belay("doctor", *args).out.splitlines()]
        lines = [line for line in self.on_a_terminal(columns, *args) if not line.startswith("belay: ")]
        self.assertGreater(len(lines), len(piped))
        checks = []
        for line in lines:
            self.assertLess(len(line), columns, line)
            if line.startswith(" "):
                checks[-1] += " " + line.strip()
            else:
                checks.append(" ".join(line.split()))
        self.assertEqual([self.steady(line) for line in checks], [self.steady(line) for line in piped])

    @staticmethod
    def steady(line):
        """Without numbers and units: free space and times differ from one call to the next."""
        return re.sub(r"([0-9.]+ ?[a-zA-Z]* ?)+", "N ", line)

    def test_a_terminal_shows_a_long_line_as_several(self):
        self.acquire("x")
        config = self.dir / "belay.yaml"
        config.write_text("nonsense: 1\n")
        for columns in (60, 80, 100):
            with self.subTest(columns=columns):
                self.assert_wrapped(columns, "--config", config)
        self.assert_wrapped(60)

    def test_a_terminal_shows_a_long_path_in_one_piece(self):
        """It may be copied: so it has less indent, and is not broken."""
        path = self.dir / ("d" * (76 - len(str(self.dir)) - len("sqlite:")))
        lines = self.on_a_terminal(80, "--store", f"sqlite:{path}")
        self.assertIn(f"sqlite:{path}", [line.strip() for line in lines])
        self.assertLess(max(map(len, lines)), 80)

    def test_quiet_omits_checks_that_passed(self):
        self.acquire("x")
        for line in self.ok("doctor", "--quiet").out.splitlines():
            self.assertTrue(line.startswith("warning"), line)

    def test_it_loads_no_network_library(self):
        self.acquire("x")
        if "asan" in subprocess.run(["ldd", BELAY], capture_output=True, text=True, check=False).stdout:
            self.skipTest("the sanitizers come first")
        done = self.ok("doctor", env={"LD_DEBUG": "libs"})
        self.assertNotIn("libcurl", done.err)


class Configuration(DoctorCase):
    def write_config(self, text):
        path = self.dir / "belay.yaml"
        path.write_text(text)
        path.chmod(0o600)
        self.env["BELAY_CONFIG"] = str(path)
        return path

    def test_the_file_and_the_origin_of_the_store_are_named(self):
        self.write_config(f"store: sqlite:{self.dir}/other.db\n")
        found = self.doctor(0, env={"BELAY_STORE": None})
        self.assertIn("belay.yaml", found["configuration"]["text"])
        self.assertRegex(found["store"]["text"], r"other\.db \(.*belay\.yaml:1\)")

    def test_a_bad_file_is_78_and_the_store_that_was_named_is_still_checked(self):
        self.write_config("stoer: x\n")
        result = self.fails(78, "doctor", "--json", "--store", self.store)
        found = self.findings(result)
        self.assertEqual((found["configuration"]["level"], found["configuration"]["code"]), ("failed", "bad_config"))
        self.assertIn("store", found["configuration"]["text"])
        self.assertEqual(found["store"]["level"], "ok")
        self.assertIn("directory", found)

    def test_a_bad_file_alone_ends_the_checks(self):
        self.write_config("stoer: x\n")
        self.assertEqual(list(self.doctor(78, env={"BELAY_STORE": None})), ["configuration"])

    def test_the_kill_switch_is_a_warning(self):
        found = self.doctor(0, env={"BELAY_DISABLED": "1"})
        self.assertEqual(found["locking"]["level"], "warning")
        self.assertIn("BELAY_DISABLED", found["locking"]["text"])
        self.assertRegex(self.ok("doctor", env={"BELAY_DISABLED": "1"}).err, "[0-9] checks, 1 warning$")

    def test_a_store_of_an_unknown_kind_is_78(self):
        self.assertIn("redis:", self.doctor(78, "--store", "redis:x")["store"]["text"])

    def test_a_bad_parameter_is_78_and_makes_no_directory(self):
        found = self.doctor(78, "--store", f"sqlite:{self.dir}/sub/x.db?durabilty=full")
        self.assertIn("durabilty", found["store"]["text"])
        self.assertFalse((self.dir / "sub").exists())


class Sick(DoctorCase):
    def test_a_directory_that_cannot_be_written_is_77(self):
        self.dir.chmod(0o555)
        done = self.as_nobody("doctor", "--json")
        self.assertEqual(done.returncode, 77, done)
        found = {finding["name"]: finding for finding in json.loads(done.stdout)["findings"]}
        self.assertEqual(found["directory"]["code"], "not_permitted")
        self.assertIn(str(self.dir), found["directory"]["text"])
        self.assertIn("writable", found["directory"]["advice"])

    def test_a_file_that_cannot_be_written_is_77(self):
        self.acquire("x")
        self.dir.chmod(0o777)
        (self.dir / "belay.db").chmod(0o600)
        done = self.as_nobody("doctor", "--json")
        self.assertEqual(done.returncode, 77, done)
        found = {finding["name"]: finding for finding in json.loads(done.stdout)["findings"]}
        self.assertEqual(found["permissions"]["level"], "failed")

    def test_a_missing_wake_file_is_created_by_the_next_command(self):
        """By one that only reads, too, but not by doctor."""
        self.acquire("k")
        file = self.dir / "belay.db-wake"
        for command in (("list",), ("status", "k"), ("history", "k"), ("freezes",)):
            file.unlink()
            found = self.doctor(0)["wake file"]
            self.assertEqual((found["level"], found["text"]),
                             ("ok", "there is none; the next command that opens the store creates it"))
            self.assertFalse(file.exists())
            self.ok(*command)
            self.assertTrue(file.exists(), command)
        self.assertEqual(self.doctor(0)["wake file"]["text"], str(file))

    def test_a_wake_file_of_another_user_is_a_warning(self):
        self.acquire("x")
        self.dir.chmod(0o777)
        for path in self.dir.glob("belay.db*"):
            path.chmod(0o666)
        (self.dir / "belay.db-wake").chmod(0o600)
        done = self.as_nobody("doctor", "--json")
        self.assertEqual(done.returncode, 0, done)
        found = {finding["name"]: finding for finding in json.loads(done.stdout)["findings"]}
        self.assertEqual(found["wake file"]["level"], "warning")

    def test_a_world_writable_database_is_a_warning(self):
        self.acquire("x")
        (self.dir / "belay.db").chmod(0o666)
        self.assertIn("chmod o-w", self.doctor(0)["permissions"]["advice"])

    def test_a_file_of_another_kind_is_78_and_left_alone(self):
        path = self.dir / "belay.db"
        path.write_text("this is no database\n" * 50)
        self.assertIn("not a lock database", self.doctor(78)["database"]["text"])
        self.assertEqual(path.read_text(), "this is no database\n" * 50)
        self.assertEqual(sorted(p.name for p in self.dir.iterdir()), ["belay.db", "home"])

    def test_another_programs_database_is_78_and_left_alone(self):
        with sqlite3.connect(self.dir / "belay.db") as db:
            db.execute("CREATE TABLE mine (x)")
        self.assertIn("another program", self.doctor(78)["database"]["text"])

    def test_a_newer_schema_is_78(self):
        self.acquire("x")
        with sqlite3.connect(self.dir / "belay.db") as db:
            db.execute("PRAGMA user_version=999")
        self.assertIn("newer belay", self.doctor(78)["database"]["text"])

    def test_a_directory_in_the_place_of_the_file_is_78(self):
        (self.dir / "belay.db").mkdir()
        self.assertIn("directory", self.doctor(78)["permissions"]["text"])

    def test_a_writer_that_does_not_end_is_69_within_seconds(self):
        self.acquire("x")
        db = sqlite3.connect(self.dir / "belay.db", isolation_level=None)
        self.addCleanup(db.close)
        db.execute("BEGIN IMMEDIATE")
        began = time.monotonic()
        found = self.doctor(69)
        self.assertLess(time.monotonic() - began, 15)
        self.assertIn(f"process {os.getpid()}", found["write"]["text"])

    def test_a_wall_clock_that_was_set_back_is_a_warning(self):
        self.acquire("x")
        with sqlite3.connect(self.dir / "belay.db") as db:
            db.execute("UPDATE events SET at_unix_ms = at_unix_ms + 3600000")
        found = self.doctor(0)
        self.assertEqual(found["clock"]["level"], "warning")
        self.assertIn("set back", found["clock"]["text"])

    def test_a_store_that_the_user_cannot_reach_is_said_so(self):
        os.chmod(self.dir, 0o700)
        for command in (["list"], ["run", "k", "--", "true"]):
            done = self.as_nobody("--store", f"sqlite:{self.dir}/locks/belay.db", *command)
            self.assertEqual(done.returncode, 69, done)
            self.assertEqual(done.stderr, f"belay: cannot reach the directory '{self.dir}/locks' of the lock database: Permission denied; "
                                          "name a place that can be written with --store sqlite:PATH\n")

    def test_a_backup_that_the_user_cannot_read_is_said_so(self):
        self.acquire("k")
        self.ok("backup", str(self.dir / "copy.db"))
        os.chmod(self.dir, 0o777)
        done = self.as_nobody("restore", "--store", f"sqlite:{self.dir}/new.db", f"{self.dir}/copy.db")
        self.assertEqual((done.returncode, done.stderr), (77, f"belay: cannot read '{self.dir}/copy.db': Permission denied\n"))

    def test_a_full_disk_is_69(self):
        if os.geteuid() != 0:
            self.skipTest("needs root to mount")
        small = self.dir / "small"
        small.mkdir()
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(small)], capture_output=True,
                              check=False)
        if done.returncode != 0:
            self.skipTest("cannot mount here")
        self.addCleanup(subprocess.run, ["umount", str(small)], check=False)
        try:
            (small / "filler").write_bytes(b"x" * 70000)
        except OSError:
            pass
        found = self.doctor(69, "--store", f"sqlite:{small}/belay.db")
        self.assertEqual(found["free space"]["level"], "failed")
        self.assertEqual(found["file system"]["level"], "warning")


class StateStore(DoctorCase):
    def found(self, code, *args, env=None, failed=None):
        result = self.fails(code, "doctor", "--json", *args, env=env)
        found = json.loads(result.out)["findings"]
        self.assertEqual([one["name"] for one in found if one["level"] == "failed"],
                         [] if failed is None else [failed])
        return [one for one in found if one["name"] == "state store"]

    def test_it_is_checked_only_if_it_is_named(self):
        self.assertEqual(self.found(0), [])

    def test_a_directory(self):
        url = f"file:{self.dir}/states"
        for args, env, origin in ((("--state-store", url), None, "option --state-store"),
                                  ((), {"BELAY_STATE_STORE": url}, "environment BELAY_STATE_STORE")):
            texts = [one["text"] for one in self.found(0, *args, env=env)]
            self.assertEqual(texts, [f"{url} ({origin})", "does not exist yet: the first save creates it"])
        self.assertFalse((self.dir / "states").exists())
        (self.dir / "states").mkdir()
        self.assertEqual(self.found(0, "--state-store", url)[1]["text"], "can be read, and its directory written")
        self.assertEqual(list((self.dir / "states").iterdir()), [])

    def test_a_directory_that_this_user_cannot_create(self):
        """A state store that does not exist was reported as ok, whatever its parent."""
        self.dir.chmod(0o755)
        done = self.as_nobody("doctor", "--state-store", f"file:{self.dir}/a/b")
        self.assertRegex(done.stdout, rf"(?m)^FAILED +state store +the directory {self.dir} cannot be written: Permission denied")

    def test_one_that_cannot_be_used(self):
        (self.dir / "plain").write_text("")
        for url, code, name in ((f"file:{self.dir}/plain", 69, "state store"), ("ftp://x", 78, "state store"),
                                ("http://127.0.0.1:1", 69, "server")):
            with self.subTest(url):
                self.found(code, "--state-store", url, failed=name)


if __name__ == "__main__":
    main()
