"""Types what a page of the documentation says: its commands, its files and its crontab lines.

A page is made of blocks: fenced, or indented by four spaces. A block of commands is typed; `# exit N` after a
command is its exit code, else 0. Where a block shows output, a command begins with '$ '. A fenced block whose first
line is a name in a comment is a file. A case claims every other block, and checks it. The class fails if its cases
leave out a block of the page.
"""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / folder) for folder in ("cli", "server", "support", "dynamodb", "dynamodb_table", "s3")]

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


def commands_in(lines):
    """[(command, the output that the page shows)]"""
    if any(line.startswith("$ ") for line in lines):
        found = []
        for line in lines:
            if line.startswith("$ "):
                found.append((line[2:], ""))
            elif found and (line or found[-1][1]):
                found[-1] = (found[-1][0], found[-1][1] + line + "\n")
        return [(command, shown.rstrip("\n") + "\n" if shown else "") for command, shown in found]
    whole = [""]
    for line in lines:
        whole[-1] += line
        whole += [""] if is_whole(whole[-1]) else []
        whole[-1] += "\n" if whole[-1] else ""
    return [(command, "") for command in whole if command]


class Block:
    def __init__(self, number, language, lines):
        self.number = number  # of its first line in the page
        self.language = language  # None: not fenced
        self.text = "".join(line + "\n" for line in lines)
        self.commands = commands_in(lines) if language is None else []
        self.is_claimed = False

    @property
    def is_done(self):
        return self.is_claimed or (self.language is None and not self.commands)

    def replace(self, old, new):
        self.text = self.text.replace(old, new)
        self.commands = [(command.replace(old, new), shown.replace(old, new)) for command, shown in self.commands]


def blocks_of(text):
    """In the order of the page. The lines of a list that continue an item are no block."""
    lines = text.splitlines()
    blocks = []
    i = 0
    while i < len(lines):
        first = i
        fence = re.fullmatch(r" *```(\w*)", lines[i])
        if fence:
            i = next(j for j in range(i + 1, len(lines)) if lines[j].strip() == "```")
            blocks.append(Block(first + 1, fence[1], lines[first + 1:i]))
        elif lines[i].startswith("    ") and not (i and lines[i - 1].strip()):
            while i < len(lines) and (lines[i].startswith("    ") or not lines[i].strip()):
                i += 1
            inside = [line[4:] for line in lines[first:i]]
            while not inside[-1]:
                inside.pop()
            blocks.append(Block(first + 1, None, inside))
            continue
        i += 1
    return blocks


def commands_of(text):
    return [command for block in blocks_of(text) for command, _ in block.commands]


def normal(text):
    """Its lines, without what differs from run to run: times, durations, the machine and the width of columns."""
    text = re.sub(r"\d{4}-\d\d-\d\dT[\d:]+Z", "TIME", text)
    text = re.sub(r"[\w.-]+@[\w.-]+:\d+:[0-9a-f]+", "OWNER", text)
    text = re.sub(r"\b[\w.-]+@[\w.-]+", "USER", text)
    text = re.sub(r"\b\d+(ms|[smh])\b( \d+(ms|[smh])\b)?( ago)?|just now", "SPAN", text)
    return [re.sub(r"\s+", " ", line).strip() for line in text.splitlines()]


def as_pattern(shown):
    """'…' stands for anything in a line, and for any lines on a line of its own."""
    lines = [r"(?:.*\n)*" if line in ("…", "...") else re.escape(line).replace("…", ".*") + r"\n" for line in normal(shown)]
    return "".join(lines)


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


def names_beside_the_database(case):
    """The names of every file in the default place of the database, after a server with all its features was killed."""
    env = {"BELAY_STORE": None}
    config = case.write("every-file.yaml", 'server: {webhooks: {allow: ["127.0.0.1"]}}\n'
                                           'notify: [{format: json, url: "http://127.0.0.1:9/", events: [lock.acquired]}]\n')
    server = Server(case, config=config, env=env)
    server.acquire("k")
    waiter = {"wait_ms": 60000, "lock_id": "w", "webhook": {"url": "http://127.0.0.1:9/"}}
    case.assertEqual(server.acquire("k", "next", **waiter).status, 202)
    case.ok("state", "save", "--stack", "s", "--environment", "e", str(case.write("state.json", '{"outputs":{}}')), env=env)
    folder = Path(case.env["HOME"]) / ".local/state/belay"
    wait_until(lambda: (folder / "belay.db-notify").exists(), "the file of notifications")
    server.process.kill()
    server.process.wait(PATIENCE)
    return {path.name for path in folder.iterdir()}


class PageCase(BelayCase):
    PAGE = None
    STUBS = ()  # programs of the reader's own, which write their name to the file `ran`
    ELSEWHERE = {}  # the blocks that contain a pattern: the test outside of this folder that types them, and names the page

    @classmethod
    def is_elsewhere(cls, block):
        return any(re.search(pattern, block.text) for pattern in cls.ELSEWHERE)

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.finished = {}  # test method: the numbers of the blocks that it has done

    @classmethod
    def tearDownClass(cls):
        """Each case does its blocks; together they do all. Not looked at if a case is skipped, chosen alone, or fails."""
        cases = [name for name in dir(cls) if name.startswith("test")]  # a loader would leave out those that -k did not choose
        if len(cls.finished) == len(cases) > 0:
            done = set().union(*cls.finished.values())
            blocks = blocks_of((ROOT / cls.PAGE).read_text(encoding="utf-8"))
            left = [block.number for block in blocks if block.number not in done and not cls.is_elsewhere(block)]
            assert not left, f"{cls.PAGE}: no case does the blocks of lines {left}"
        super().tearDownClass()

    def setUp(self):
        super().setUp()
        self.bin = self.dir / "bin"
        self.bin.mkdir()
        (self.bin / "belay").symlink_to(os.path.abspath(BELAY))
        self.env["PATH"] = f"{self.bin}:{self.env['PATH']}"
        for name in self.STUBS:
            self.program(name, f'echo {os.path.basename(name)} >>"{self.dir}/ran"')
        self.text = (ROOT / self.PAGE).read_text(encoding="utf-8")
        self.blocks = [block for block in blocks_of(self.text) if not self.is_elsewhere(block)]

    def tearDown(self):
        left = [(block.number, block.text) for block in self.blocks if not block.is_done]
        self.assertEqual(left, [], f"blocks of {self.PAGE} that no test does")
        self.finished[self.id()] = {block.number for block in self.blocks}
        super().tearDown()

    @property
    def left(self):
        return [command for block in self.blocks if not block.is_done for command, _ in block.commands]

    def section(self, title):
        """Do only the blocks of this section."""
        found = re.search(rf"^##+ {re.escape(title)}\n(.*?)(?=^## |\Z)", self.text, re.M | re.S)
        self.assertIsNotNone(found, f"{self.PAGE} has no section '{title}'")
        first, last = (self.text.count("\n", 0, place) + 1 for place in found.span(1))
        self.blocks = [block for block in self.blocks if first <= block.number < last]
        self.text = found[1]

    def only(self, pattern):
        """Do only the blocks that contain this; another case does the others."""
        self.blocks = [block for block in self.blocks if re.search(pattern, block.text)]

    def program(self, name, script):
        path = self.dir / name if name.startswith("./") else self.bin / os.path.basename(name)
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def replace(self, old, new):
        """In everything that the page says."""
        self.assertIn(old, self.text)
        self.text = self.text.replace(old, str(new))
        for block in self.blocks:
            block.replace(old, str(new))

    def take(self, start):
        """The next command of the page, which begins like this."""
        return self.take_with_output(start)[0]

    def take_with_output(self, start):
        block = next((block for block in self.blocks if not block.is_done and block.commands), None)
        self.assertTrue(block and block.commands[0][0].startswith(start),
                        f"the next command is {block and block.commands[0][0]!r}, not {start!r}")
        return block.commands.pop(0)

    def type(self, start, code=None):
        return self.run_line(self.take(start), code)

    def shows(self, start, code=None):
        """Type the next command; it prints what the page shows, output and messages in either order."""
        command, shown = self.take_with_output(start)
        done = self.run_line(command, code)
        first, second = sorted((done.stdout, done.stderr), key=lambda text: not text.startswith(shown[:7]))
        self.assert_shown(shown, first + second)
        return done

    def assert_shown(self, shown, output):
        self.assertTrue(shown, "the page shows nothing")
        self.assertRegex("\n".join([*normal(output), ""]), rf"\A{as_pattern(shown)}\Z")

    def run_line(self, command, code=None):
        exported = re.fullmatch(r"export (\w+)=(\S+)(\s+#.*)?", command)
        if exported:
            self.env[exported[1]] = re.sub(r"^~", self.env["HOME"], exported[2])
            return None
        return self.shell(command, exit_code(command) if code is None else code)

    def shell(self, command, code=0, shell="bash"):
        done = subprocess.run([shell, "-c", command], env=self.environment(None), cwd=self.dir, capture_output=True, encoding="utf-8",
                              stdin=subprocess.DEVNULL, timeout=PATIENCE * 4, check=False)
        self.assertEqual(done.returncode, code, (command, done))
        return done

    def claim(self, start):
        """The text of the first block left that begins like this; the case checks it."""
        for block in self.blocks:
            if block.text.startswith(start) and not block.is_done:
                block.is_claimed = True
                return block.text
        raise AssertionError(f"{self.PAGE} has no block left that begins with {start!r}")

    def write(self, name, content):
        path = self.dir / os.path.basename(name)
        path.write_text(content)
        path.chmod(0o600)
        return path

    def file(self, name):
        """Write the file of this name as the page has it."""
        content = self.claim(f"# {name}\n")
        return self.write(name, content.split("\n", 1)[1])

    def crontab(self):
        """Its lines as cron has them: the command, without the five fields of time, and variables."""
        lines = "".join(self.claim(block.text) for block in self.blocks if block.language == "crontab").splitlines()
        return [re.sub(r"^(\S+\s+){5}", "", line) if " " in line else line for line in lines]

    def ran(self):
        path = self.dir / "ran"
        return path.read_text().split() if path.exists() else []
