"""Types what a page of the documentation says: its commands, its files and its crontab lines.

A command is indented by four spaces; `# exit N` after it is its exit code, else 0. A file is a fenced
block whose first line is its name in a comment. A case fails if it leaves out a command of its page.
"""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / folder) for folder in ("cli", "server", "support")]

import postgresql  # noqa: E402,F401
from server_support import Server  # noqa: E402,F401
from support import BELAY, PATIENCE, ROOT, BelayCase, main, wait_until  # noqa: E402,F401
from webhook_support import Receiver  # noqa: E402


def is_whole(command):
    try:
        shlex.split(command, comments=True)
        return True
    except ValueError:  # a quotation continues on the next line
        return False


def commands_of(text):
    """The commands outside of fenced blocks. Where a block shows output, a command begins with '$ '."""
    commands = []
    for block in re.findall(r"(?:^    .*\n)+", re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S), re.M):
        lines = [line[4:] for line in block.splitlines()]
        if any(line.startswith("$ ") for line in lines):
            commands += [line[2:] for line in lines if line.startswith("$ ")]
            continue
        whole = [""]
        for line in lines:
            whole[-1] += line
            whole += [""] if is_whole(whole[-1]) else []
            whole[-1] += "\n" if whole[-1] else ""
        commands += [command for command in whole if command]
    return commands


def exit_code(command):
    return int((re.search(r"# exit (\d+)$", command) or ["", "0"])[1])


class Application(Receiver):
    """Answers 200 while its unit is there, else 503."""

    def __init__(self, case, unit):
        super().__init__(case)
        handler = self.server.RequestHandlerClass

        def answer(request):
            request.send_response(200 if unit.exists() else 503)
            request.send_header("Content-Length", "0")
            request.end_headers()
        handler.do_GET = handler.do_HEAD = answer

    def stop(self):
        """Accept no connection any more."""
        self.server.shutdown()
        self.server.server_close()


class PageCase(BelayCase):
    PAGE = None
    STUBS = ()  # programs of the reader's own, which write their name to the file `ran`

    def setUp(self):
        super().setUp()
        self.bin = self.dir / "bin"
        self.bin.mkdir()
        (self.bin / "belay").symlink_to(os.path.abspath(BELAY))
        self.env["PATH"] = f"{self.bin}:{self.env['PATH']}"
        for name in self.STUBS:
            self.program(name, f'echo {os.path.basename(name)} >>"{self.dir}/ran"')
        self.text = (ROOT / self.PAGE).read_text(encoding="utf-8")
        self.left = commands_of(self.text)

    def tearDown(self):
        self.assertEqual(self.left, [], f"commands of {self.PAGE} that no test types")
        super().tearDown()

    def program(self, name, script):
        path = self.dir / name if name.startswith("./") else self.bin / os.path.basename(name)
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def replace(self, old, new):
        """In everything that the page says."""
        self.assertIn(old, self.text)
        self.text = self.text.replace(old, str(new))
        self.left = [command.replace(old, str(new)) for command in self.left]

    def take(self, start):
        """The next command of the page, which begins like this."""
        self.assertTrue(self.left and self.left[0].startswith(start), f"the next command is {self.left[:1]}, not {start!r}")
        return self.left.pop(0)

    def type(self, start, code=None):
        command = self.take(start)
        exported = re.fullmatch(r"export (\w+)=(\S+)", command)
        if exported:
            self.env[exported[1]] = exported[2]
            return None
        return self.shell(command, exit_code(command) if code is None else code)

    def shell(self, command, code=0, shell="bash"):
        done = subprocess.run([shell, "-c", command], env=self.environment(None), cwd=self.dir, capture_output=True, encoding="utf-8",
                              stdin=subprocess.DEVNULL, timeout=PATIENCE * 4, check=False)
        self.assertEqual(done.returncode, code, (command, done))
        return done

    def file(self, name):
        """Write the file of this name as the page has it."""
        block = re.search(rf"^```\w*\n# {re.escape(name)}\n(.*?)^```$", self.text, re.M | re.S)
        self.assertIsNotNone(block, f"{self.PAGE} has no file {name}")
        path = self.dir / os.path.basename(name)
        path.write_text(block[1])
        path.chmod(0o600)
        return path

    def crontab(self):
        """Its lines as cron has them: the command, without the five fields of time, and variables."""
        lines = "".join(re.findall(r"^```crontab\n(.*?)^```$", self.text, re.M | re.S)).splitlines()
        return [re.sub(r"^(\S+\s+){5}", "", line) if " " in line else line for line in lines]

    def ran(self):
        path = self.dir / "ran"
        return path.read_text().split() if path.exists() else []
