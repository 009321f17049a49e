"""README.md: what a reader types, and the output that the page shows."""

import re
import subprocess

from page_support import ROOT, BelayCase, PageCase, main, wait_until


class Readme(PageCase):
    PAGE = "README.md"
    STUBS = ("./deploy.sh", "apt")

    def test_the_first_two_commands(self):
        """The first with an apt of ours: test/install installs the package, on a clean system."""
        self.only("^apt install")
        self.type("apt install")
        self.type("belay run --wait 5m deploy-api-prod")
        self.assertEqual(self.ran(), ["apt", "deploy.sh"])

    def test_make_has_what_it_names(self):
        """test/server/test_make_run.py runs `make run`."""
        self.only("^make run")
        self.assertEqual([line.split()[:2] for line in self.claim("make run").splitlines()], [["make", "run"], ["make", "test"]])
        targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)
        named = set(re.findall(r"`make ([\w-]+)", self.text)) | {"run", "test"}
        self.assertGreater(len(named), 5)
        self.assertEqual(named - set(targets), set())

    def test_the_five_minutes(self):
        self.section("The next five minutes")
        self.replace("sleep 30", "until [ -e go ]; do sleep 0.05; done")
        command, shown = self.take_with_output("belay run --owner-name")
        holder = subprocess.Popen(["bash", "-c", command], env=self.env, cwd=self.dir, stdout=subprocess.PIPE, encoding="utf-8")
        self.addCleanup(self.end, holder)
        self.assert_shown(shown, holder.stdout.readline())
        self.shows("belay run api-release", 75)
        self.shows("belay list")
        command, shown = self.take_with_output("belay run --wait")
        with subprocess.Popen(["bash", "-c", f"{command} 2>&1"], env=self.env, cwd=self.dir, stdout=subprocess.PIPE,
                              encoding="utf-8") as process:
            wait_until(lambda: "wait.began" in self.events("api-release"), "the wait")
            (self.dir / "go").touch()
            self.assert_shown(shown, process.stdout.read())
        self.assertEqual(holder.wait(), 0)
        self.shows("belay history")


class Pages(BelayCase):
    def test_every_page_is_linked_and_every_link_leads_somewhere(self):
        pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "clients").glob("*/README.md")]
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
