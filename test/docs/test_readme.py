"""The five minutes of README.md: what a reader types, and the output that the page shows."""

import re
import subprocess

from page_support import ROOT, BelayCase, PageCase, main, wait_until

TITLE = "## The five minutes after that"


def normal(text):
    """Without what differs from run to run: times, durations, the machine and the width of columns."""
    text = re.sub(r"\d{4}-\d\d-\d\dT[\d:]+Z", "TIME", text)
    text = re.sub(r"[\w.-]+@[\w.-]+:\d+:[0-9a-f]+", "OWNER", text)
    text = re.sub(r"\b[\w.-]+@[\w.-]+", "USER", text)
    text = re.sub(r"\b\d+(ms|[smh])\b( \d+(ms|[smh])\b)?( ago)?|just now", "SPAN", text)
    return [re.sub(r"\s+", " ", line).strip() for line in text.splitlines()]


class Readme(PageCase):
    PAGE = "README.md"

    def setUp(self):
        super().setUp()
        section = self.text.split(TITLE)[1].split("\n## ")[0]
        self.blocks = re.findall(r"^    \$ (.*)\n((?:    (?!\$ ).*\n)*)", section, re.M)
        self.left = [command for command, _ in self.blocks]

    def shows(self, command, output):
        shown = "".join(output for line, output in self.blocks if line == command)
        self.assertEqual(normal(output), normal(shown), output)

    def shown(self, start, code=0):
        command = self.left[0]
        done = self.type(start, code)
        self.shows(command, done.stderr + done.stdout)

    def test_the_commands_print_what_the_page_shows(self):
        self.replace("sleep 30", "until [ -e go ]; do sleep 0.05; done")
        self.blocks[0] = (self.left[0], self.blocks[0][1])
        first = self.take("belay run --owner-name")
        holder = subprocess.Popen(["bash", "-c", first], env=self.env, cwd=self.dir, stdout=subprocess.PIPE, encoding="utf-8")
        self.addCleanup(self.end, holder)
        line = holder.stdout.readline()
        self.shows(first, line)
        self.shown("belay run api-release", 75)
        self.shown("belay list")
        waiter = self.take("belay run --wait")
        with subprocess.Popen(["bash", "-c", f"{waiter} 2>&1"], env=self.env, cwd=self.dir, stdout=subprocess.PIPE,
                              encoding="utf-8") as process:
            wait_until(lambda: "wait.began" in self.events("api-release"), "the wait")
            (self.dir / "go").touch()
            self.shows(waiter, process.stdout.read())
        self.assertEqual(holder.wait(), 0)
        self.shown("belay history")


class Pages(BelayCase):
    def test_every_page_is_linked_and_every_link_leads_somewhere(self):
        pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "clients").glob("*/README.md")]
        linked = set()
        for page in pages:
            text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
            for target, anchor in re.findall(r"\]\(([^)\s#]*)(#[^)\s]*)?\)", text):
                if re.match(r"\w+:", target):
                    continue
                path = (page.parent / target).resolve() if target else page
                with self.subTest(f"{page.relative_to(ROOT)}: {target}{anchor}"):
                    self.assertTrue(path.exists())
                    linked.add(path)
                    if anchor:
                        self.assertIn(anchor[1:], self.anchors(path))
        self.assertGreater(len(linked), 40)
        self.assertEqual([str(page) for page in (ROOT / "docs").rglob("*.md") if page.resolve() not in linked], [])

    @staticmethod
    def anchors(path):
        """As GitHub makes them of headings."""
        headings = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.M)
        return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}

    def test_every_option_that_a_page_names_exists(self):
        """A renamed option is found here, also where its command is not typed."""
        known = set(re.findall(r"--[a-z][a-z-]+", self.ok("help", "--markdown").out))
        unknown = {}
        for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
            for line in re.findall(r"`((?:belay |--)[^`]*)`|^    (?:\$ )?(belay .*)$", page.read_text(encoding="utf-8"), re.M):
                ours = re.split(r" -- |\s#|[|;]|&&", "".join(line))[0]
                for option in re.findall(r"(?<![\w-])--[a-z][a-z-]+", ours):
                    if option not in known:
                        unknown.setdefault(str(page.relative_to(ROOT)), []).append(option)
        self.assertGreater(len(known), 50)
        self.assertEqual(unknown, {})


if __name__ == "__main__":
    main()
