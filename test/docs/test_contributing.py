"""CONTRIBUTING.md and the pages of the clients: what they say is typed here, or by the tests of the clients."""

import asyncio
import json
import re
import shlex
import subprocess
import sys
import textwrap

from page_support import PATIENCE, ROOT, PageCase, Server, main
from test_http import as_pattern


def repository(command):
    return subprocess.run(["bash", "-c", command], cwd=ROOT, capture_output=True, encoding="utf-8", timeout=PATIENCE * 4, check=False)


class Contributing(PageCase):
    PAGE = "CONTRIBUTING.md"

    def test_every_target_of_make_exists(self):
        """A dry run; each builds or tests everything."""
        self.only("^make ")
        lines = self.claim("make ").splitlines()
        self.assertEqual(len(lines), 4)
        for line in lines:
            command = re.split(r"  +", line)[0]
            done = repository(f"BELAY_NO_SETUP=1 {command} --dry-run")
            self.assertEqual(done.returncode, 0, done)
        self.assertIn("make test", (ROOT / ".ci/run").read_text(encoding="utf-8"))

    def test_one_test_can_be_chosen(self):
        """Only listed; test/cli/test_docs.py runs one case of C and one of Python."""
        self.only("^tools/test")
        everything, some, one, built = (re.split(r"  +", line)[0] for line in self.claim("tools/test").splitlines())
        listed = repository(everything).stdout.splitlines()
        self.assertGreater(len(listed), 100)
        chosen = repository(f"{some} --list").stdout.splitlines()
        self.assertEqual(chosen, [name for name in listed if "test_client" in name])
        self.assertTrue(chosen)
        case = re.search(r"CASE is a cmocka test \(`(\w+)`\)", re.sub(r"\n", " ", self.text))[1]
        found = repository(f"{one.replace('CASE', case)} --list")
        self.assertTrue(found.returncode == 0 and set(found.stdout.splitlines()) < set(listed), found)
        self.assertEqual(repository(built.replace("…", "--list")).stdout.splitlines(), listed)


class PythonClient(PageCase):
    PAGE = "clients/python/README.md"
    ELSEWHERE = {r"^import belay\n": "clients/python/tests/test_client.py"}

    def test_the_commands_name_what_there_is(self):
        """test/server/test_make_run.py runs `make run`, clients/python/tests install the package."""
        self.only("^make run")
        serve, install = self.claim("make run").splitlines()
        self.assertEqual(shlex.split(serve, comments=True), ["make", "run"])
        *command, path = shlex.split(install, comments=True)
        self.assertEqual(command, ["pip", "install"])
        self.assertTrue((ROOT / path / "pyproject.toml").exists())
        exported = re.search(r"export PYTHONPATH=\$PWD/(\S+)", install)[1]
        done = repository(f"PYTHONPATH=$PWD/{exported} {sys.executable} -B -c 'import belay; print(belay.__file__)'")
        self.assertEqual(done.stdout.strip(), str(ROOT / "clients/python/belay/__init__.py"))

    def test_asyncio(self):
        self.only("^async with")
        code = self.claim("async with")
        sys.path.insert(0, str(ROOT / "clients/python"))
        self.addCleanup(sys.path.remove, str(ROOT / "clients/python"))
        import belay  # pylint: disable=import-outside-toplevel
        server = Server(self)
        scope = {"belay": belay, "url": server.url}
        exec(f"async def main():\n{textwrap.indent(code, '    ')}", scope)  # pylint: disable=exec-used
        asyncio.run(scope["main"]())
        self.assertEqual(self.events("deploy-api-prod"), ["lock.acquired", "lock.released"])


class NodeClient(PageCase):
    PAGE = "clients/node/README.md"
    ELSEWHERE = {r"^import \{ connect|^await using": "clients/node/test/test_package.mjs"}

    def test_it_is_installed_from_a_checkout(self):
        self.replace("/path/to/belay", ROOT)
        self.replace("npm install", "npm install --offline --no-audit --no-fund")
        (self.dir / "package.json").write_text('{"type":"module"}')
        self.type("npm install")
        self.shell("""node -e 'import("belay-client").then((client) => process.exit(client.connect ? 0 : 1))'""")


class GoClient(PageCase):
    PAGE = "clients/go/README.md"
    ELSEWHERE = {r"^package main|^go mod init": "clients/go/client_test.go"}

    def test_nothing_is_left(self):
        self.assertEqual(self.blocks, [])


class Clients(PageCase):
    PAGE = "docs/clients.md"
    ELSEWHERE = {r"^import belay\n|^import \{ connect|^package main": "clients/python/tests/test_client.py"}

    def test_nothing_is_left(self):
        self.assertEqual(self.blocks, [])


class Scenarios(PageCase):
    PAGE = "clients/scenarios/README.md"

    def test_the_commands(self):
        """One scenario each; tools/test runs them all."""
        self.only("^clients/scenarios/run.py")
        every, some, listing = (line.partition("#")[0].strip() for line in self.claim("clients/scenarios/run.py").splitlines())
        names = repository(listing).stdout
        for name in ("wait", "partition"):
            self.assertRegex(names, rf"(?m)^{name}\b")
        for command, passed in ((f"{every} wait", 1), (some, 2)):
            done = repository(f"BELAY_BIN={self.bin}/belay {command}")
            self.assertEqual((done.returncode, done.stdout.splitlines()[-1:]), (0, [f"{passed} passed, 0 failed"]), done)

    def test_the_driver_answers_as_the_page_shows(self):
        self.only(r"^\{")
        server = Server(self)
        driver = subprocess.Popen([sys.executable, "-B", ROOT / "clients/python/driver.py"], stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, encoding="utf-8", env=self.env)
        self.addCleanup(self.end, driver)

        def ask(line):
            driver.stdin.write(line + "\n")
            driver.stdin.flush()
            return json.dumps(json.loads(driver.stdout.readline()), separators=(",", ":"), ensure_ascii=False)

        self.assertIn("ready", driver.stdout.readline())
        self.assertEqual(ask(json.dumps({"do": "connect", "urls": [server.url], "owner": "a"})), '{"ok":{}}')
        lines = self.claim('{"do":"acquire"').splitlines()
        self.assertEqual(len(lines), 4)
        for request, form in zip(lines[::2], lines[1::2]):
            answer = json.loads(ask(request))
            shown = json.loads(form)
            (kind, members), (same, expected) = *answer.items(), *shown.items()
            self.assertEqual((kind, set(members) & set(expected)), (same, set(expected)))
            for name, value in expected.items():
                if isinstance(value, str):
                    self.assertRegex(members[name], ".*" if name == "lock_id" else re.escape(value).replace("…", ".*"))
        lost = self.claim('{"event":"lost"')
        server.process.kill()
        server.process.wait(PATIENCE)
        self.assertRegex(json.dumps(json.loads(driver.stdout.readline()), separators=(",", ":")), rf"\A{as_pattern(lost)}\Z")

    def test_the_scenario_is_one_that_is_played(self):
        self.only(r'^"wait"')
        ((name, shown),) = json.loads("{" + self.claim('"wait"') + "}").items()
        played = json.loads((ROOT / "clients/scenarios/waiting.json").read_text(encoding="utf-8"))
        self.assertEqual(played[name], shown)


if __name__ == "__main__":
    main()
