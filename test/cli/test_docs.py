"""Help, man pages, completions and docs/cli.md come from one source, and work; every requirement is defined (S2.11)."""

import os
import re
import shutil
import subprocess
import unittest
from pathlib import Path

from support import BELAY, ROOT, BelayCase, main


class Shell(BelayCase):
    """With belay in PATH, as the scripts expect it."""

    def setUp(self):
        super().setUp()
        bin_dir = self.dir / "bin"
        bin_dir.mkdir()
        (bin_dir / "belay").symlink_to(os.path.abspath(BELAY))
        self.env["PATH"] = f"{bin_dir}:{self.env['PATH']}"
        # Examples that need AWS find no server at this endpoint, which is not their fault.
        self.env.update(AWS_ENDPOINT_URL="http://127.0.0.1:9", AWS_ACCESS_KEY_ID="id", AWS_SECRET_ACCESS_KEY="key",
                        AWS_REGION="us-east-1", AWS_EC2_METADATA_DISABLED="true", no_proxy="*")

    def run_in(self, *argv, **more):
        return subprocess.run(argv, env=self.env, cwd=self.dir, capture_output=True, encoding="utf-8", timeout=60,
                              **more)


class Docs(Shell):
    def test_the_reference_is_up_to_date(self):
        self.assertEqual((ROOT / "docs" / "cli.md").read_text(encoding="utf-8"), self.ok("help", "--markdown").out,
                         "run tools/gen_docs build/dev/belay build/dev docs/cli.md")

    def test_man_pages_pass_the_checker(self):
        if shutil.which("mandoc") is None:
            self.skipTest("mandoc is not installed")
        man = self.dir / "out" / "man"
        done = self.run_in(str(ROOT / "tools" / "gen_docs"), BELAY, str(self.dir / "out"))
        self.assertEqual(done.returncode, 0, done.stderr)
        pages = sorted(man.glob("*.1"))
        commands = self.ok("help", "--list").out.splitlines()
        self.assertEqual(len(pages), 1 + len(commands))
        for page in pages:
            done = self.run_in("mandoc", "-T", "lint", "-W", "warning", str(page))
            self.assertEqual((done.returncode, done.stdout), (0, ""))
        text = self.run_in("mandoc", "-T", "ascii", str(man / "belay-acquire.1")).stdout
        text = re.sub(".\b", "", text)
        for word in ("--ttl D", "EXIT STATUS", "EXAMPLES", "BELAY_STORE"):
            self.assertIn(word, text)

    def test_help_fits_into_80_columns(self):
        pages = [[], *(command.split() for command in self.ok("help", "--list").out.splitlines())]
        self.assertGreater(len(pages), 40)
        self.assertEqual([(page, line) for page in pages for line in self.ok("help", *page).out.splitlines()
                          if len(line) > 79], [])

    def test_the_examples_work(self):
        for command in self.ok("help", "--list").out.splitlines():
            text = self.ok("help", *command.split()).out
            for line in re.findall(r"^  (\S.*)$", text[text.index("\nExamples:\n"):], re.M):
                with self.subTest(line):
                    self.check_example(line)

    def check_example(self, line):
        """An example may find nothing or a held lock, but its command line must be valid."""
        if "<(" not in line:
            self.assertIn("belay ", line)
        if re.search(r"\|\s*(jq|man)\b", line):
            line = line[:line.rindex("|")]
        line = re.sub(r"/(srv|var/lib/belay)/", f"{self.dir}/", line)  # not on files of this machine
        line = line.replace("/backup/", f"{self.dir}/backups/")
        (self.dir / "backups").mkdir(exist_ok=True)
        home = Path(self.env["HOME"])
        (home / ".config" / "fish" / "completions").mkdir(parents=True, exist_ok=True)
        for script in ("deploy.sh", "migrate", "start-server"):
            (self.dir / script).write_text("#!/bin/sh\n")
            (self.dir / script).chmod(0o755)
        (self.dir / "ci.yaml").write_text("locking_enabled: true\n")
        (self.dir / "ci.yaml").chmod(0o600)
        done = self.run_in("bash", "-c", "id=some-id LOCK_ID=some-id\n"
                                         f"belay() {{ command timeout -s INT 2 {BELAY} \"$@\"; }}\n{line}",
                           stdin=subprocess.DEVNULL)
        if "no terminal to ask" not in done.stderr:
            self.assertNotIn(done.returncode, (64, 65, 70, 78, 127), done)


class Requirements(unittest.TestCase):
    """A number such as S2.11 in code or tests means what docs/requirements.md says."""

    TEXT = (ROOT / "docs" / "requirements.md").read_text(encoding="utf-8")
    DEFINED = dict(re.findall(r"^- \*\*(S\d\.\d+)\*\* ((?:.+\n)(?:  .+\n)*)", TEXT, re.M))

    @staticmethod
    def cited_in(*folders):
        """Each number, also those inside 'Sx.1 to Sx.3', and one file that cites it."""
        cited = {}
        for path in (path for folder in folders for path in (ROOT / folder).rglob("*") if path.is_file()):
            content = path.read_bytes()
            if b"\0" in content:
                continue
            for document, first, last in re.findall(r"\bS(\d)\.(\d+)\b(?: to S\1\.(\d+))?", content.decode("utf-8", "replace")):
                for number in range(int(first), int(last or first) + 1):
                    cited[f"S{document}.{number}"] = path.relative_to(ROOT)
        return cited

    def test_every_number_that_is_cited_is_defined(self):
        cited = self.cited_in("src", "include", "test", "docs", "tools", "deploy", "bench", "examples")
        self.assertGreater(len(cited), 40)
        self.assertEqual({number: str(path) for number, path in cited.items() if number not in self.DEFINED}, {})

    def test_every_number_that_is_defined_is_cited_or_not_yet_built(self):
        cited = self.cited_in("src", "include", "test", "deploy")
        self.assertEqual([number for number, text in self.DEFINED.items()
                          if number not in cited and "not yet built" not in text], [])
        self.assertEqual(len(self.DEFINED), self.TEXT.count("\n- **S"), "a number is defined twice")

    def test_the_tests_that_it_names_exist(self):
        named = set(re.findall(r"`(test_\w+\.\w+)`", self.TEXT))
        self.assertGreater(len(named), 20)
        self.assertEqual(named - {path.name for path in (ROOT / "test").rglob("test_*")}, set())


class Contributing(unittest.TestCase):
    TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")

    def test_names_paths_that_exist(self):
        paths = set(re.findall(r"\b(?:src|include|test|docs|tools|deploy)/[\w./-]*\w", self.TEXT))
        self.assertGreater(len(paths), 20)
        self.assertEqual([path for path in paths if not (ROOT / path).exists() and "NAME" not in path], [])

    def test_names_functions_that_exist(self):
        source = "".join(path.read_text(encoding="utf-8") for folder in ("src", "include", "test/support")
                         for path in (ROOT / folder).rglob("*.[ch]"))
        names = set(re.findall(r"`(\w+)\(\)`", self.TEXT))
        self.assertGreater(len(names), 5)
        self.assertEqual([name for name in names if not re.search(rf"\b{name}\(|\(\*{name}\)", source)], [])


class Architecture(unittest.TestCase):
    TEXT = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")

    def test_names_files_that_exist(self):
        """In the walks, below src; tools/walk checks that the walks pass them."""
        named = set(re.findall(r"`(\w+/[\w/]+\.[ch])`", self.TEXT))
        self.assertGreater(len(named), 25)
        self.assertEqual([name for name in named if not (ROOT / name).exists() and not (ROOT / "src" / name).exists()], [])

    def test_lists_every_folder_of_the_source(self):
        folders = [folder.name for folder in (ROOT / "src").iterdir() if folder.is_dir()]
        self.assertGreater(len(folders), 15)
        self.assertEqual([name for name in folders if not re.search(rf"^    src/{name}\b", self.TEXT, re.M)], [])

    def test_lists_every_folder_of_tests_and_no_other(self):
        folders = {folder.name for folder in (ROOT / "test").iterdir() if folder.is_dir() and folder.name != "__pycache__"}
        self.assertGreater(len(folders), 15)
        self.assertEqual(set(re.findall(r"^    test/(\w+)", self.TEXT, re.M)), folders)


class OneCase(unittest.TestCase):
    """tools/test -k CASE"""

    @staticmethod
    def tool(*args):
        return subprocess.run([ROOT / "tools" / "test", *args], capture_output=True, encoding="utf-8", timeout=120)

    @staticmethod
    def first_case(path, pattern):
        return re.search(pattern, (ROOT / "test" / path).read_text(encoding="utf-8"), re.M).group(1)

    def test_of_python_runs_alone(self):
        done = self.tool("--no-build", "-k", "Completion.test_another_shell_is_refused")
        self.assertEqual(done.stdout.splitlines()[-1:], ["1 passed, 0 failed"], done)

    def test_of_a_page_runs_alone(self):
        done = self.tool("--no-build", "-k", "Readme.test_make_has_what_it_names")
        self.assertEqual(done.stdout.splitlines()[-1:], ["1 passed, 0 failed"], done)

    def test_of_c_runs_alone(self):
        if not (ROOT / "build" / "dev" / "test_lease").exists():
            self.skipTest("test_lease is not built")
        done = self.tool("--no-build", "-k", self.first_case("unit/test_lease.c", r"cmocka_unit_test\((\w+)\)"))
        self.assertEqual(done.stdout.splitlines()[-1:], ["1 passed, 0 failed"], done)

    def test_that_stores_share_runs_on_each(self):
        case = self.first_case("support/blob_suite.c", r"^    CASE\((\w+)\)")
        self.assertEqual(self.tool("--list", "-k", case).stdout.splitlines(), ["test_blob_file (dev)", "test_blob_postgresql (dev)", "test_blob_s3 (dev)"])

    def test_that_does_not_exist_is_an_error_with_similar_names(self):
        done = self.tool("-k", "test_another_shell_is_refuzed")
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertIn("no test case is named 'test_another_shell_is_refuzed'; similar names:\n", done.stderr)
        self.assertIn("  test_another_shell_is_refused\n", done.stderr)


class Completion(Shell):
    def bash(self, line):
        script = (f"source <({BELAY} completion bash)\nCOMP_LINE=\"$1\" COMP_POINT=${{#1}}\n_belay belay\n"
                  "printf '%s\\n' \"${COMPREPLY[@]}\"\n")
        done = self.run_in("bash", "-c", script, "bash", line)
        self.assertEqual((done.returncode, done.stderr), (0, ""), line)
        return done.stdout.split()

    def test_bash_parses(self):
        done = self.run_in("bash", "-n", input=self.ok("completion", "bash").out)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_bash_completes_commands_options_keys_and_profiles(self):
        self.acquire("deploy-api-prod")
        self.acquire("stack:shop:env:prod")
        self.assertEqual(self.bash("belay acq"), ["acquire"])
        self.assertEqual(sorted(self.bash("belay locks ")), ["list", "release", "status"])
        self.assertEqual(self.bash("belay acquire --tt"), ["--ttl"])
        self.assertEqual(self.bash("belay acquire --sto"), ["--store"])
        self.assertEqual(self.bash("belay status dep"), ["deploy-api-prod"])
        self.assertEqual(self.bash("belay --json locks status dep"), ["deploy-api-prod"])
        self.assertEqual(self.bash("belay release other dep"), ["deploy-api-prod"])
        self.assertEqual(self.bash("belay status stack:sh"), ["shop:env:prod"])
        self.assertEqual(self.bash("belay acquire --sl"), ["--slots"])
        self.assertEqual(self.bash("belay acquire --profile bui"), ["build"])
        self.assertEqual(self.bash("belay acquire --profile=bui"), ["build"])
        self.assertEqual(self.bash("belay release k --outcome "), ["completed", "failed"])
        self.assertEqual(self.bash("belay list --filter status=a"), ["active"])
        self.assertEqual(self.bash("belay completion z"), ["zsh"])
        self.assertEqual(self.bash("belay acquire --ttl "), [])

    @unittest.skipIf(shutil.which("zsh") is None, "zsh is not installed")
    def test_zsh_parses_and_loads(self):
        done = self.run_in("zsh", "-n", input=self.ok("completion", "zsh").out)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        done = self.run_in("zsh", "-fc", f"autoload -Uz compinit; compinit -D -u; source <({BELAY} completion zsh);"
                                         " print $_comps[belay]")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "_belay\n", ""))

    @unittest.skipIf(shutil.which("fish") is None, "fish is not installed")
    def test_fish_completes_commands_options_and_keys(self):
        self.acquire("deploy-api-prod")

        def fish(line):
            done = self.run_in("fish", "--no-config", "-c", f"{BELAY} completion fish | source; complete -C '{line}'")
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            return [row.split("\t")[0] for row in done.stdout.splitlines()]

        self.assertIn("acquire", fish("belay acq"))
        self.assertEqual(fish("belay acquire --tt")[:1], ["--ttl"])  # fish 4 also offers names that have these letters in this order
        self.assertIn("deploy-api-prod", fish("belay status dep"))
        self.assertEqual(fish("belay acquire --profile bui"), ["build"])
        self.assertEqual(fish("belay release k --outcome "), ["completed", "failed"])

    def test_another_shell_is_refused(self):
        self.assertIn("use bash, zsh or fish", self.fails(64, "completion", "tcsh").err)


if __name__ == "__main__":
    main()
