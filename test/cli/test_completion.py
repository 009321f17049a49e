"""Tab in a real bash, zsh and fish: a key is hostile input, and is inserted as one word without side effects."""

import re
import shutil
import subprocess
import unittest

from support import Terminal, free_port, main
from test_docs import Shell

# Hostile keys for completion. Any of them that ran would leave the file PWNED.
HOSTILE = [
    ("ap", "api-prod;touch PWNED;"),
    ("bs", "bs$(touch PWNED)"),
    ("ct", "ct`touch PWNED`"),
    ("d", "d && touch PWNED"),
    ("e", "e | touch PWNED"),
    ("f", "f > PWNED"),
    ("g", "g'h'\"i\""),
    ("j", "j two  blanks"),
    ("k", "k*?[a-z]"),
    ("l", "l{1,2}"),
    ("m", "m!!"),
    ("n", "n\\t\\\\x"),
    ("o", "o#p"),
    ("q", "q=~/r"),
    ("t", "t:u:v;touch PWNED"),
    ("t:u:", "t:u:v;touch PWNED"),
    ("w", "wörter-größe"),
    ("y", "y%z^a"),
]

BASH = """
PS1='READY> '; bind 'set enable-bracketed-paste off'; bind 'set bell-style none'
source <(command belay completion bash)
belay() { if [[ $1 = @(status|run|restore|--quiet) ]]; then printf 'GOT<%s>\\n' "$@"; echo END; else command belay "$@"; fi; }
"""
ZSH = """
PS1='READY> '; unset zle_bracketed_paste; unsetopt beep; setopt interactivecomments
autoload -Uz compinit; compinit -D -u; source <(command belay completion zsh)
function belay() { if [[ $1 = (status|run|restore|--quiet) ]]; then printf 'GOT<%s>\\n' "$@"; echo END; else command belay "$@"; fi; }
"""
FISH = """
set -g fish_greeting ''; set -g fish_autosuggestion_enabled 0
function fish_prompt; echo -n 'READY> '; end
command belay completion fish | source
function belay; if contains -- "$argv[1]" status run restore --quiet; printf 'GOT<%s>\\n' $argv; echo END; else; command belay $argv; end; end
"""


class OnATerminal(Shell):
    """A shell that shows its arguments instead of running `belay status` or `run`."""

    shell = None

    def setUp(self):
        if self.shell is None:
            self.skipTest("the case of one shell runs it")
        if shutil.which(self.shell[0]) is None:
            self.skipTest(f"{self.shell[0]} is not installed")
        super().setUp()
        self.env["LC_ALL"] = "C.UTF-8"
        self.env["HISTFILE"] = ""
        (self.dir / "rc").write_text(self.rc, encoding="utf-8")

    def begin(self):
        terminal = Terminal([self.shell[0], *(word.replace("RC", str(self.dir / "rc")) for word in self.shell[1:])],
                            self.env, columns=200, cwd=self.dir)
        self.addCleanup(terminal.end)
        terminal.send(self.first)
        terminal.expect("READY> ")
        return terminal

    def arguments(self, terminal, line, tabs=1):
        """The arguments of the command after Tab and Enter."""
        before = len(terminal.bytes)
        terminal.send(line + "\t" * tabs)
        terminal.settle()
        terminal.send("\r")
        terminal.expect_that(lambda: b"END\r\n" in terminal.bytes[before:], f"the command after {line!r}")
        shown = terminal.bytes[before:].decode("utf-8", "replace").replace("\r\n", "\n")
        terminal.expect_that(lambda: b"READY> " in terminal.bytes[before:].split(b"END\r\n")[-1], "the next prompt")
        return re.findall(r"GOT<(.*)>$", shown, re.M)

    def fill(self, *keys, store=None):
        for key in keys:
            self.ok("acquire", "--quiet", *([] if store is None else ["--store", store]), "--", key)

    def check_hostile(self):
        self.fill(*{key for _, key in HOSTILE})
        terminal = self.begin()
        for typed, key in HOSTILE:
            with self.subTest(typed):
                self.assertEqual(self.arguments(terminal, f"belay status {typed}"), ["status", key])
                self.assertFalse((self.dir / "PWNED").exists())

    def check_store(self):
        other = f"sqlite:{self.dir}/o ther.db"
        self.fill("nearby-1")
        self.fill("there-1", store=other)
        self.config = self.dir / "o.yaml"
        self.config.write_text(f"store: 'sqlite:{self.dir}/o ther.db'\n", encoding="utf-8")
        self.config.chmod(0o600)
        terminal = self.begin()
        for before in (f"--store '{other}'", f"--store='{other}'", "--store=" + other.replace(" ", "\\ ")):
            with self.subTest(before):
                self.assertEqual(self.arguments(terminal, f"belay status {before} th")[-1], "there-1")
                self.assertEqual(self.arguments(terminal, f"belay status {before} nea")[-1], "nea")
        self.assertEqual(self.arguments(terminal, "belay status nea")[-1], "nearby-1")
        self.assertEqual(self.arguments(terminal, "belay status --store $NOWHERE nea")[-1], "nea")
        # A store of the environment comes before one of the file, here as in every command.
        self.env.pop("BELAY_STORE")
        terminal = self.begin()
        for before in (f"--config {self.config}", f"--config={self.config}"):
            with self.subTest(before):
                self.assertEqual(self.arguments(terminal, f"belay status {before} th")[-1], "there-1")

    def check_command(self):
        """After '--' the command's own words are completed."""
        (self.dir / "only-file-here").write_text("", encoding="utf-8")
        self.fill("only-key-here")
        terminal = self.begin()
        self.assertEqual(self.arguments(terminal, "belay run only-k")[-1], "only-key-here")
        self.assertEqual(self.arguments(terminal, "belay run k -- cat only-f")[-1], "only-file-here")

    def check_server(self):
        """Keys of a server that the line names."""
        port = free_port()
        server = self.start("serve", "--json", "--store", f"sqlite:{self.dir}/served.db", "--listen", f"127.0.0.1:{port}")
        self.assertIn("listening", server.stdout.readline())
        self.fill("served-1", store=f"http://127.0.0.1:{port}")
        terminal = self.begin()
        self.assertEqual(self.arguments(terminal, f"belay status --store http://127.0.0.1:{port} ser")[-1], "served-1")

    def check_file(self):
        """Where an argument is a file, files are offered."""
        (self.dir / "only-file-here").write_text("", encoding="utf-8")
        terminal = self.begin()
        self.assertEqual(self.arguments(terminal, "belay restore only-f")[-1], "only-file-here")
        self.assertEqual(self.arguments(terminal, "belay --quiet --store sqlite:x.db restore only-f")[-1], "only-file-here")

    def shown(self, line):
        """What the shell lists below the line."""
        terminal = self.begin()
        before = len(terminal.bytes)
        terminal.send(line + "\t\t")
        terminal.settle(1)
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[()][B0]|[\r\x0f]", "", terminal.bytes[before:].decode("utf-8", "replace"))

    def check_descriptions(self):
        """Groups, their commands and options are described."""
        self.assertRegex(self.shown("belay st"), r"state\W+(-- )?\(?read and write deployment state")
        self.assertRegex(self.shown("belay state re"), r"restore\W+(-- )?\(?restore a state from a snapshot")
        self.assertRegex(self.shown("belay --store sqlite:x.db unlock --re"), r"belay --store sqlite:x.db unlock --reason[ =]")
        self.assertRegex(self.shown("belay list --s"), r"--stale\W+(-- )?\(?only locks whose holder missed")

    def check_options(self):
        """A key that looks like an option is not offered where it would be one."""
        self.fill("--force", "-x")
        self.assertEqual(self.arguments(self.begin(), "belay status "), ["status"])


class Bash(OnATerminal):
    shell = ["bash", "--noprofile", "--rcfile", "RC", "-i"]
    rc = BASH
    first = ""

    def test_a_key_is_one_word_and_nothing_in_it_runs(self):
        self.check_hostile()

    def test_keys_are_those_of_the_store_on_the_line(self):
        self.check_store()

    def test_the_command_after_two_dashes_completes_its_own_words(self):
        self.check_command()

    def test_keys_are_those_of_the_server_on_the_line(self):
        self.check_server()

    def test_a_file_is_offered_where_one_is_wanted(self):
        self.check_file()

    def test_a_key_is_no_option(self):
        self.check_options()
        self.assertEqual(self.arguments(self.begin(), "belay status -- --fo")[-1], "--force")

    def test_a_quoted_word_is_completed_in_quotes(self):
        self.fill("a b;c", "d'e", "f$g", "h:i j")
        terminal = self.begin()
        for typed, key in (("'a", "a b;c"), ("\"a b", "a b;c"), ("a\\ b\\;", "a b;c"), ("\"d", "d'e"), ("'f", "f$g"),
                           ("'h:", "h:i j"), ("h:'", "h:i j"), ("h:\"i ", "h:i j"), ("'h':i", "h:i j")):
            with self.subTest(typed):
                self.assertEqual(self.arguments(terminal, f"belay status {typed}"), ["status", key])

    def test_the_common_prefix_is_inserted_escaped(self):
        self.fill("a;touch PWNED;x", "a;touch PWNED;y", "b;z", "b x")
        terminal = self.begin()
        self.assertEqual(self.arguments(terminal, "belay status a"), ["status", "a;touch PWNED;"])
        self.assertEqual(self.arguments(terminal, "belay status a", tabs=3), ["status", "a;touch PWNED;"])
        self.assertEqual(self.arguments(terminal, "belay status b", tabs=3), ["status", "b"])
        self.assertFalse((self.dir / "PWNED").exists())

    def test_a_file_is_one_word_too(self):
        (self.dir / "z;touch PWNED;").write_text("", encoding="utf-8")
        terminal = self.begin()
        self.assertEqual(self.arguments(terminal, "belay status --config z")[-1], "z;touch PWNED;")
        self.assertFalse((self.dir / "PWNED").exists())


class Zsh(OnATerminal):
    shell = ["zsh", "-f", "-i"]
    rc = ZSH

    @property
    def first(self):
        return f" PS1=; source {self.dir}/rc\r"

    def test_a_key_is_one_word_and_nothing_in_it_runs(self):
        self.check_hostile()

    def test_keys_are_those_of_the_store_on_the_line(self):
        self.check_store()

    def test_the_command_after_two_dashes_completes_its_own_words(self):
        self.check_command()

    def test_keys_are_those_of_the_server_on_the_line(self):
        self.check_server()

    def test_a_file_is_offered_where_one_is_wanted(self):
        self.check_file()

    def test_groups_commands_and_options_are_described(self):
        self.check_descriptions()

    def test_a_key_is_no_option(self):
        self.check_options()


class Fish(OnATerminal):
    shell = ["fish", "--no-config", "--init-command", "source RC"]
    rc = FISH
    first = ""

    def test_a_key_is_one_word_and_nothing_in_it_runs(self):
        self.check_hostile()

    def test_keys_are_those_of_the_store_on_the_line(self):
        self.check_store()

    def test_the_command_after_two_dashes_completes_its_own_words(self):
        self.check_command()

    def test_keys_are_those_of_the_server_on_the_line(self):
        self.check_server()

    def test_a_file_is_offered_where_one_is_wanted(self):
        self.check_file()

    def test_groups_commands_and_options_are_described(self):
        self.check_descriptions()

    def test_a_key_is_no_option(self):
        self.check_options()

    def test_a_line_is_completed_by_what_is_on_it(self):
        self.fill("stat-key")
        (self.dir / "fish.sh").write_text(f"command belay completion fish | source\nfunction helper; end\ncomplete -c helper -l all -d everything\n"
                                          "for line in $argv; complete -C $line; echo END; end\n", encoding="utf-8")
        lines = {"belay state load ": [], "belay state li": ["list\tlist the states in the state store"], "belay help stat": 3,
                 "belay help state loa": ["load\tprint the deployment state"], "belay --store x --quiet hel": 1, "belay status stat-key ": [],
                 "belay state list --al": [], "belay list --all": ["--all\tlocks with any status"], "belay run stat": ["stat-key"],
                 "belay run k -- helper --a": ["--all\teverything"], "belay run k -- helper --wa": []}
        done = subprocess.run(["fish", "--no-config", self.dir / "fish.sh", *lines], env=self.env, cwd=self.dir, capture_output=True,
                              encoding="utf-8", timeout=60, check=True)
        for (line, wanted), found in zip(lines.items(), done.stdout.split("END\n")):
            with self.subTest(line):
                found = found.splitlines()
                self.assertEqual(len(found) if isinstance(wanted, int) else found, wanted)


if __name__ == "__main__":
    main()
