"""`make run` starts a server that prints the next commands, and ends when it should."""

import re
import signal
import subprocess
import urllib.request

from server_support import BELAY, PATIENCE, ROOT, BelayCase, main
from support import Terminal

RUN = str(ROOT / "tools" / "run.sh")


class MakeRun(BelayCase):
    def setUp(self):
        super().setUp()
        (self.dir / "build").mkdir()
        (self.dir / "build" / "belay").symlink_to(BELAY)

    def environ(self, **more):
        env = self.environment({"BELAY_RUN_DIR": str(self.dir / "run"), "BELAY_STORE": None, **more})
        env.pop("CI", None)
        return env

    def start_it(self, **more):
        process = subprocess.Popen([RUN, "build/belay"], env=self.environ(**more), cwd=self.dir, stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, encoding="utf-8")
        self.addCleanup(self.end, process)
        return process

    def read_to(self, process, what):
        text = ""
        while what not in text:
            line = process.stdout.readline()
            self.assertTrue(line, text)
            text += line
        return text

    def test_without_a_terminal_it_ends_by_itself(self):
        process = self.start_it(BELAY_RUN_SECONDS="1")
        out, _ = process.communicate(timeout=PATIENCE)
        self.assertEqual(process.returncode, 0, out)
        self.assertIn("The server stops after 1 s", out)

    def test_the_commands_that_it_suggests_work(self):
        process = self.start_it(BELAY_RUN_SECONDS="60")
        text = self.read_to(process, "Ctrl-C stops it.")
        url = re.search(r"on (http://\S+)", text).group(1)
        commands = [line.removeprefix("Try:").strip() for line in text.splitlines() if re.match("(Try:)? +(curl|BELAY_STORE)", line)]
        self.assertEqual(len(commands), 3, text)
        for command in commands:
            done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, env=self.environ(),
                                  cwd=self.dir, timeout=PATIENCE, check=False)
            self.assertEqual(done.returncode, 0, done)
        for path in ("/", "/openapi.json"):
            with urllib.request.urlopen(url + path, timeout=PATIENCE) as answer:
                self.assertEqual(answer.status, 200)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(PATIENCE), 0)

    def test_ctrl_c_ends_it_on_a_terminal(self):
        terminal = Terminal([RUN, "build/belay"], self.environ(), cwd=self.dir)
        terminal.expect("Ctrl-C stops it.")
        self.assertNotIn("stops after", terminal.text)
        self.assertLessEqual(max(len(line) for line in terminal.text.splitlines()), 120)
        terminal.send("\x03")
        self.assertEqual(terminal.finish(), 0)

    def test_the_readme_says_what_make_run_does(self):
        makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
        readme = (ROOT / "README.md").read_text(encoding="utf-8").split("## The next five minutes")[0]
        self.assertIn("@tools/run.sh build/belay", makefile)
        for text in ("make run", "until Ctrl-C", "http://127.0.0.1:7420"):
            self.assertIn(text, readme)


if __name__ == "__main__":
    main()
