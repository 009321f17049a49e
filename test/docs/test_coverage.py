"""Every block of every page is typed by a test: of this folder, or by one that the tables here name."""

import importlib
import re
import unittest
from pathlib import Path

from page_support import ROOT, PageCase, blocks_of

# The tests of a whole page outside of this folder. Each names its page.
ELSEWHERE = {
    "docs/cli.md": "test/cli/test_docs.py",  # generated from --help, whose examples are run
    "docs/fencing.md": "test/fencing/test_recipes.py",
    "docs/install.md": "test/install/package.sh",  # which looks that one of test/install types each command
    "docs/kubernetes.md": "test/kubernetes/test_manifests.py",
    "docs/library.md": "test/install/library.sh",
}
# Drawings and lists. They contain no command.
DRAWINGS = {"docs/architecture.md"}


def pages():
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "clients").glob("*/README.md"))]


def cases():
    for path in sorted(Path(__file__).parent.glob("test_*.py")):
        importlib.import_module(path.stem)
    found, left = [], [PageCase]
    while left:
        case = left.pop()
        left += case.__subclasses__()
        found += [case] if case.PAGE else []
    return {case.PAGE: case for case in found}


class Coverage(unittest.TestCase):
    def test_no_block_is_left_out(self):
        """A PageCase fails itself if it leaves out a block of its page."""
        typed = cases()
        left, seen = [], 0
        for path in pages():
            name = str(path.relative_to(ROOT))
            blocks = blocks_of(path.read_text(encoding="utf-8"))
            seen += len(blocks)
            if name not in typed and name not in ELSEWHERE and name not in DRAWINGS:
                left += [f"{name}:{block.number}" for block in blocks]
        self.assertGreater(seen, 200)
        self.assertEqual(left, [], f"{len(left)} of {seen} blocks that no test types")

    def test_the_tests_elsewhere_name_the_page(self):
        typed = cases()
        rows = [(page, test) for page, test in ELSEWHERE.items()]
        rows += [(page, test) for page, case in typed.items() for test in case.ELSEWHERE.values()]
        for page, test in rows:
            with self.subTest(page):
                self.assertNotIn(page, set(ELSEWHERE) & set(typed))
                self.assertIn(Path(page).name, (ROOT / test).read_text(encoding="utf-8"))

    def test_every_pattern_of_a_block_elsewhere_fits_one(self):
        for page, case in cases().items():
            text = (ROOT / page).read_text(encoding="utf-8")
            for pattern in case.ELSEWHERE:
                self.assertTrue([block for block in blocks_of(text) if re.search(pattern, block.text)], (page, pattern))

    def test_a_drawing_has_no_command(self):
        for page in DRAWINGS:
            for block in blocks_of((ROOT / page).read_text(encoding="utf-8")):
                self.assertNotRegex(block.text, r"(?m)^(\$|belay|curl|make|tools/\w+) \S", page)

    def test_a_block_is_found_in_every_form(self):
        """That it can fail: blocks that it does not see would not be missed."""
        text = "a\n\n    one\n\n    two\n\n- item\n  continued\n\n      in a list\n\n```sh\nthree\n```\n"
        self.assertEqual([block.text for block in blocks_of(text)], ["one\n\ntwo\n", "  in a list\n", "three\n"])


if __name__ == "__main__":
    unittest.main()
