"""The client for Go: formatted, vetted, its tests and its examples against a real server.

BELAY_GO_TESTS=all uses the race detector, and compiles the client for other systems: two minutes longer.
"""

import json
import os
import subprocess
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "test" / "cli"))
from support import BELAY, main  # noqa: E402  (after the path is known)

CLIENT = ROOT / "clients" / "go"
CACHE = ROOT / "build" / "go"
IS_ALL = os.environ.get("BELAY_GO_TESTS") == "all"
CODE_MAX = 1100  # lines of the client, without comments, blank lines, tests and examples
EXAMPLE_MAX = 80


def run(*command):
    """Offline, and with nothing left in $HOME."""
    env = {**os.environ, "BELAY_BIN": os.path.abspath(BELAY), "GOCACHE": str(CACHE / "cache"), "GOPATH": str(CACHE / "path"),
           "GOTOOLCHAIN": "local", "GOPROXY": "off", "GOFLAGS": "", "GOENV": "off"}
    return subprocess.run(command, cwd=CLIENT, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=500)


def code_lines(path):
    lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    return [line for line in lines if line and not line.startswith("//")]


class GoClient(unittest.TestCase):
    def go_test(self, package):
        race = ["-race"] if IS_ALL else []
        done = run("go", "test", "-count=1", "-json", *race, package)
        events = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        ended = {(event["Test"], event["Action"]) for event in events if event.get("Test")}
        output = "".join(event.get("Output", "") for event in events)
        self.assertEqual(done.returncode, 0, output + done.stderr)
        self.assertEqual([name for name, action in ended if action == "skip"], [], output)
        return {name for name, action in ended if action == "pass"}

    def test_gofmt_and_vet_find_nothing(self):
        formatted = run("gofmt", "-l", ".")
        self.assertEqual((formatted.returncode, formatted.stdout), (0, ""), formatted.stderr)
        vetted = run("go", "vet", "./...")
        self.assertEqual(vetted.returncode, 0, vetted.stderr)

    @unittest.skipUnless(IS_ALL, "BELAY_GO_TESTS is not 'all'")
    def test_the_client_compiles_for_other_systems(self):
        for system in ("darwin", "windows"):
            with self.subTest(system):
                done = run("env", f"GOOS={system}", "CGO_ENABLED=0", "go", "vet", "-unsafeptr=false", ".")
                self.assertEqual(done.returncode, 0, done.stderr)

    def test_the_client_keeps_its_promises(self):
        self.assertGreater(len(self.go_test(".")), 10)

    def test_the_examples_keep_what_the_documents_promise(self):
        self.assertGreater(len(self.go_test("./examples")), 8)

    def test_the_client_and_its_examples_are_small(self):
        sources = [path for path in CLIENT.glob("*.go") if not path.name.endswith("_test.go")]
        self.assertGreater(len(sources), 5)
        self.assertLess(sum(len(code_lines(path)) for path in sources), CODE_MAX)
        examples = list(CLIENT.glob("examples/*/main.go"))
        self.assertEqual(len(examples), 3)
        for path in examples:
            self.assertLess(len(path.read_text(encoding="utf-8").splitlines()), EXAMPLE_MAX, path)


if __name__ == "__main__":
    main()
