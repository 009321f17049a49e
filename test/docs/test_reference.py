"""Messages and transcripts that the reference pages show are those of the program."""

import re

from page_support import Application, PageCase, commands_of, exit_code, main


def blank(text):
    return re.sub(r"\s+", " ", text).strip()


class Configuration(PageCase):
    PAGE = "docs/configuration.md"
    FILE = "profiles:\n  build:\n    ttl: 5m\n    environments: [dev, prod]\n"

    def ci_yaml(self, text=FILE):
        (self.dir / "ci.yaml").write_text(text)
        (self.dir / "ci.yaml").chmod(0o600)

    def shown(self, start):
        """The message on the page that begins like this."""
        found = re.findall(rf"^    (belay: {re.escape(start)}.*)$", self.text, re.M)
        self.assertEqual(len(found), 1, start)
        return found[0] + "\n"

    def test_the_commands_print_what_the_page_shows(self):
        self.ci_yaml()
        lines = re.search(r"^    NAME +VALUE +ORIGIN\n(?:    .*\n)+", self.text, re.M)[0].splitlines()
        out = blank(self.type("BELAY_STORE").stdout)
        self.assertGreater(len(lines), 6)
        for line in lines:
            if line.strip() != "...":
                self.assertIn(blank(line), out)
        content = re.search(r"^    \$ cat belay.yaml\n    (.*)$", self.text, re.M)[1]
        (self.dir / "belay.yaml").write_text(content + "\n")
        self.assertEqual(self.type("cat belay.yaml").stdout, content + "\n")
        self.assertEqual(self.type("belay list", 78).stderr, self.shown("./belay.yaml:1: "))
        (self.dir / "belay.yaml").unlink()
        self.assertEqual(self.type("belay run --profile build --component router").returncode, 0)
        self.assertEqual(self.type("belay acquire --profile deploy", 64).stderr, self.shown("the key 'build-router-prod' belongs"))
        self.assertEqual(self.type("belay run --profile build --component a", 64).stderr, self.shown("the key 'build-a-b-c' would"))

    def setUp(self):
        super().setUp()
        self.program("make", "true")
        self.left = [command for command in self.left if re.match(r"(\w+=\S+ )?(belay|cat) ", command)]
        self.left = [command for command in self.left if not command.startswith("belay: ")]

    def test_the_errors_are_those_of_the_program(self):
        self.left = []
        for line, start in (("tll: 5m", "ci.yaml:3: profiles.build has no"), ("ttl: 10x", "ci.yaml:3: profiles.build.ttl")):
            self.ci_yaml(self.FILE.replace("ttl: 5m", line))
            self.assertEqual(self.fails(78, "--config", "ci.yaml", "list").err, self.shown(start))
        example = re.search(r"^## The file\n\n((?:    .*\n)+)", self.text, re.M)[1]
        self.ci_yaml(re.sub(r"^    ", "", example, flags=re.M).replace("/var/lib/belay", str(self.dir)))
        refused = self.fails(64, "--config", "ci.yaml", "acquire", "--profile", "build", "--component", "api", "--environment", "prod")
        self.assertEqual(refused.err.splitlines()[0] + "\n", self.shown("Invalid component"))


class Operations(PageCase):
    PAGE = "docs/operations.md"

    def section(self, title):
        """Type only what this section shows."""
        self.text = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## )", self.text, re.M | re.S)[1]
        self.left = [command for command in self.left if command in self.text]

    def test_a_lock_is_ended_as_the_page_says(self):
        self.section("Ending a lock that is no longer needed")
        self.replace("KEY", "k")
        self.acquire("k", "--owner", "job-812")
        for command in ("belay status k", "belay history k"):
            self.assertIn("job-812", self.type(command).stdout)
        self.replace("--force", "--yes --force")
        self.type("belay unlock k")
        ids = [self.acquire("k", "--shared", "--owner", owner)["lock_id"] for owner in ("one", "two", "three", "four")]
        self.replace("OWNER ", "one ")
        self.replace("LOCK_ID", ids[1])
        for _ in range(3):
            self.type("belay unlock k")
        self.assertEqual(self.ok("status", "--quiet", "k").out, "released\n")

    def test_the_kill_switch_prints_what_the_page_shows(self):
        self.section("The kill switch")
        shown = re.findall(r"^    (?!\$ )(.*)$", self.text, re.M)
        self.type("export BELAY_DISABLED")
        script = "\n".join(self.left)
        self.left = []
        done = self.shell(f"{script}")
        self.assertIn(shown[0], done.stderr)
        self.assertEqual(done.stdout.strip(), shown[1])

    def test_backup_and_restore_work_as_the_page_says(self):
        self.section("Backup and restore")
        self.replace("/backup/", f"{self.dir}/")
        self.replace("sqlite:/var/lib/belay/new.db", f"sqlite:{self.dir}/new.db")
        lock = self.acquire("k")
        self.type("belay backup")
        self.take("belay backup")  # through a server: test/server/test_backup.py
        self.type("belay restore")
        self.ok("release", "k", "--id", lock["lock_id"])
        self.type("belay restore --replace")
        self.assertEqual(self.ok("status", "--quiet", "k").out, "active\n")


class Locks(PageCase):
    PAGE = "docs/locks.md"

    def test_each_kind_has_an_example_that_does_what_it_says(self):
        names = []
        for section in self.text.split("\n## ")[1:]:
            name = section.splitlines()[0]
            with self.subTest(name):
                commands = [self.take(command) for command in commands_of(section)]
                self.assertGreaterEqual(len(commands), 4)
                self.env["BELAY_STORE"] = f"sqlite:{self.dir}/{len(names)}.db"
                self.shell("\n".join(f"{command}\ncode=$?; [ $code = {exit_code(command)} ] || exit $((100 + code))"
                                     for command in commands))
            names.append(name)
        self.assertEqual(names, ["Exclusive", "Slots", "Shared", "Several keys", "Re-entrant", "Hierarchy", "Freeze"])


class Freezes(PageCase):
    PAGE = "docs/freeze.md"

    def test_every_command_line_of_the_page_does_what_it_says(self):
        shown = re.search(r"^    (belay: lock .*)$", self.text, re.M)[1]
        self.left = [command for command in self.left if not command.startswith("belay: ")]
        self.assertEqual(len(self.left), 8)
        self.type("belay freeze")
        self.type("belay freezes")
        refused = self.type("belay acquire").stderr
        self.assertEqual(re.sub(r"by \S+:", "by alice@laptop:", refused.splitlines()[0]), shown)
        for start in ("belay unfreeze", "belay freeze", "belay run", "belay history", "belay unfreeze"):
            self.type(start)


class SharedDatabases(PageCase):
    PAGE = "docs/shared-databases.md"

    def setUp(self):
        super().setUp()
        self.text = re.search(r"^## A worked example\n(.*?)(?=^## )", self.text, re.M | re.S)[1]
        self.data = self.dir / "pg"
        self.data.mkdir()
        self.program("pg_ctl", f'case "$1" in stop) rm {self.data}/postmaster.pid ;; start) touch {self.data}/postmaster.pid ;; esac')
        self.program("pg_isready", f"test -e {self.data}/postmaster.pid")
        (self.data / "postmaster.pid").touch()
        config = self.dir / "config.yaml"
        config.write_text(re.sub(r"^    ", "", re.search(r"^    databases:\n(?:    .*\n)+", self.text, re.M)[0], flags=re.M)
                          .replace("/srv/pg", str(self.data)))
        config.chmod(0o600)
        self.env["BELAY_CONFIG"] = str(config)
        self.blocks = re.findall(r"^    \$ (.*)\n((?:    (?!\$ ).*\n)*)", self.text, re.M)
        self.left = [command for command, _ in self.blocks]

    def shows(self, start, code=0):
        """What the page shows is part of the output, line by line."""
        shown = [blank(self.normal(line)) for line in dict(self.blocks)[self.left[0]].splitlines() if line.strip() != "…"]
        done = self.type(start, code)
        lines = [blank(self.normal(line)) for line in (done.stderr + done.stdout).splitlines()]
        self.assertEqual([line for line in shown if line not in lines], [], lines)

    @staticmethod
    def normal(line):
        line = re.sub(r"owner=\S+", "owner=ID", line)
        return re.sub(r"requested at \S+ by \S+", "requested at TIME by USER", line)

    def test_the_worked_example(self):
        units = {name: self.dir / f"{name}.unit" for name in ("shop", "billing")}
        for name, unit in units.items():
            app = Application(self, unit)
            unit.touch()
            self.left = [command.replace(f"https://{name}.example/health", app.url) for command in self.left]
            self.blocks = [(command.replace(f"https://{name}.example/health", app.url), shown) for command, shown in self.blocks]
            setattr(self, name, app)
        self.shows("belay app register shop")
        self.shows("belay app register billing")
        self.shows("belay db list")
        self.shop.stop()
        self.shows("belay db stop --app shop", 75)
        self.assertTrue((self.data / "postmaster.pid").exists())
        self.billing.stop()
        self.shows("belay db stop --app billing")
        self.assertFalse((self.data / "postmaster.pid").exists())
        self.shows("belay db start --app shop")
        self.assertTrue((self.data / "postmaster.pid").exists())


if __name__ == "__main__":
    main()
