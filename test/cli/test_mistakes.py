"""Typical mistakes: each answer names what was wrong and what would be right, and nothing has changed."""
import http.server
import os
import re
import shlex
import signal
import socket
import subprocess
import threading

from support import BELAY, BelayCase, main

USAGE, DATA, NO_SUCH, UNREACHABLE, REFUSED, CONFIG = 64, 65, 66, 69, 77, 78

# What is typed, the exit code, and what the answer says. In a folder with the files of FILES.
MISTAKES = [
    # names
    ("aquire k", USAGE, "did you mean 'acquire'?"),
    ("help rnu", NO_SUCH, "did you mean 'run'?"),
    ("completion tcsh", USAGE, "use bash, zsh or fish"),
    ("run k --tll 5m -- true", USAGE, "did you mean '--ttl'?"),
    ("watch --since yesterday", USAGE, "'belay watch' has no option '--since'"),
    ("run k --profile nope -- true", USAGE, "known profiles: build, database, deploy, execution, stack"),
    # what is missing, or too much
    ("run k", USAGE, "usage: belay run [OPTIONS] KEY... -- COMMAND"),
    ("run k ./deploy.sh", USAGE, "--"),
    ("run -- true", USAGE, "give a KEY"),
    ("run '' -- true", USAGE, "--allow-empty-key"),
    ("run k k -- true", USAGE, "the key 'k' is given twice"),
    ("run a b c d e f g h i j k l m n o p q -- true", USAGE, "16 at once are the most"),
    ("run --profile build --component x -- true", USAGE, "need --environment"),
    ("deploy --stack a -- true", USAGE, "--stack needs --environment"),
    ("release k", USAGE, "--id is missing"),
    ("release k --id", USAGE, "--id LOCK_ID"),
    ("renew k", USAGE, "--id is missing"),
    ("status", USAGE, "give a KEY"),
    ("list extra", USAGE, "unexpected argument 'extra'"),
    ("list --prefix", USAGE, "--prefix needs a value"),
    ("check", USAGE, "inside 'belay run KEY -- COMMAND'"),
    ("freeze deploy-*", USAGE, "add --reason TEXT"),
    ("db stop", USAGE, "--app NAME or --database ID"),
    ("state load", USAGE, "--stack and --environment"),
    ("backup", USAGE, "usage: belay backup FILE"),
    # values
    ("run k --ttl 5 -- true", USAGE, "write it as 500ms, 30s, 10m or 1h30m"),
    ("run k --ttl=-5s -- true", USAGE, "'-5s' is not a duration"),
    ("wait k --wait never", USAGE, "'never' is not a duration"),
    ("run k --slots 0 -- true", USAGE, "whole number of at least 1"),
    ("run k --shared --slots 2 -- true", USAGE, "exclude each other"),
    ("run k --meta novalue -- true", USAGE, "NAME=VALUE"),
    ("run k --owner '' -- true", USAGE, "--owner is empty"),
    ("check k --id x --token abc", USAGE, "a whole number from 1"),
    ("history k --limit -1", USAGE, "whole number of at least 1"),
    ("freeze deploy-* --reason x --until yesterday", USAGE, "2026-11-28T00:00:00Z"),
    ("freeze deploy-* --reason x --for 1h --until 2027-01-01T00:00:00Z", USAGE, "exclude each other"),
    ("serve --listen 127.0.0.1", USAGE, "use HOST:PORT"),
    ("serve --listen 127.0.0.1:22222222", USAGE, "at most 65535"),
    ("serve --tls-cert nope.pem --listen 127.0.0.1:0", USAGE, "--tls-cert and --tls-key must be given together"),
    ("serve --listen 0.0.0.0:21956", CONFIG, "belay auth new"),
    ("serve --config port.yaml", CONFIG, "belay: server.listen: '127.0.0.1:99999' is not an address to listen on: use HOST:PORT"),
    # what is not there
    ("status nope", NO_SUCH, "no such lock: 'nope'"),
    ("history nope", NO_SUCH, "no history of 'nope' in sqlite:"),
    ("unfreeze nope-*", NO_SUCH, "'belay freezes' lists them"),
    ("app show nope", NO_SUCH, "no application 'nope'"),
    ("release free --id nonsense", NO_SUCH, "no such lock: 'free'"),
    # stores
    ("--store sqlite: list", USAGE, "write sqlite:/path/to/belay.db"),
    ("--store sqlite:folder list", USAGE, "name the file of the lock database"),
    ("--store sqlite:text.db list", DATA, "it was left as it is"),
    ("--store sqlite:b.db?durabilty=full list", USAGE, "durability=normal|full"),
    ("--store mysql://x list", USAGE, "use sqlite:PATH"),
    ("--store http:/127.0.0.1:1 list", USAGE, "did you mean 'http://127.0.0.1:1'?"),
    ("--store http://127.0.0.1:99999 list", USAGE, "belay: 'http://127.0.0.1:99999' is not a server's URL: write http://HOST:PORT"),
    ("--store http:// list", USAGE, "http://HOST:PORT"),
    ("--store http://127.0.0.1:1, list", USAGE, "the list of servers has an empty URL"),
    ("--metrics statsd:x list", USAGE, "belay: --metrics: 'x' is not HOST:PORT, such as 127.0.0.1:8125"),
    ("--metrics emf:nope/m.log list", USAGE, "belay: --metrics: cannot write to 'nope/m.log': No such file or directory"),
    ("--state-store http://127.0.0.1:x state list", USAGE, "is not a server's URL"),
    ("--state-store ./x state list", USAGE, "did you mean 'file:./x'?"),
    ("--state-store fle:/x state list", USAGE, "did you mean 'file:/x'?"),
    ("--state-store s3:b/x state list", USAGE, "did you mean 's3://b/x'?"),
    ("--state-store sqlite:x state list", USAGE, "use file:DIR, s3://BUCKET/PREFIX"),
    ("--store http://127.0.0.1:1 list", UNREACHABLE, "cannot reach 127.0.0.1:1"),
    ("--store http://STRANGER list", CONFIG, "does not answer as a belay server does"),
    ("--store https://STRANGER list", UNREACHABLE, "write http:// if that is right"),
    ("--store dynamodb:table list", CONFIG, "set AWS_REGION"),
    ("table create", USAGE, "--store dynamodb:TABLE"),
    # files
    ("--config nope.yaml list", CONFIG, "cannot open 'nope.yaml'"),
    ("--config nope.yaml status", CONFIG, "cannot open 'nope.yaml'"),
    ("--config nope.yaml run -- true", CONFIG, "cannot open 'nope.yaml'"),
    ("--config nope.yaml acquire k --stack s --environment e", CONFIG, "cannot open 'nope.yaml'"),
    ("--config folder list", CONFIG, "'folder' is not a regular file"),
    ("--config crlf.yaml list", CONFIG, "the file has no 'locks'; it can have store,"),
    ("--config tab.yaml list", CONFIG, "YAML is indented with spaces"),
    ("--config ttl.yaml run k -- true", CONFIG, "'ten' is not a duration"),
    ("state save --stack s --environment e half.json", DATA, "the text ends early (line 1, column 6)"),
    ("app import half.json", DATA, "half.json:1: not YAML"),
    ("backup folder", USAGE, "name a file that is not"),
    ("restore half.json", DATA, "cannot read 'half.json'"),
]
# The second walk: what is typed after the settings of the environment, as a shell reads it.
MORE = [
    # units, numbers, and options in odd places
    ("run --ttl 5min k -- true", USAGE, "--ttl '5min' is not a duration: write it as 500ms, 30s, 10m or 1h30m"),
    ("run --ttl 99999999999999h k -- true", USAGE, "--ttl '99999999999999h' is too long"),
    ("run --ttl 0s k -- true", USAGE, "--ttl '0s' is too short: a lease lasts at least 100ms"),
    ("run --ttl=5m=6m k -- true", USAGE, "--ttl '5m=6m' is not a duration"),
    ("run k --ttl 1m --ttl 2m -- true", USAGE, "--ttl is given twice: '1m' and '2m'"),
    ("run --attempts 1.5 k -- true", USAGE, "--attempts '1.5' is not a whole number of at least 1"),
    ("run --attempts 99999999999 k -- true", USAGE, "--attempts '99999999999' is too large: give at most 2147483647"),
    ("run --slots 1001 k -- true", USAGE, "--slots '1001' is too many: give 1 to 1000"),
    ("run k --conflict-exit-code 300 -- true", USAGE, "'300' is not an exit code: give 0 to 255"),
    ("run k --heartbeat 1h --ttl 1m -- true", USAGE, "it must be shorter than the ttl, 1m"),
    ("renew k --id x --ttl 0", USAGE, "--ttl '0' is too short: leave it out to keep the ttl"),
    ("run k \u2014ttl 5m -- true", USAGE, "'\u2014ttl' begins with a dash that is not the '-' of the keyboard"),
    ("run k \u2013-ttl 5m -- true", USAGE, "'\u2013-ttl' begins with a dash"),
    ("list \u2212\u2212json", USAGE, "begins with a dash"),
    ("run k -ttl 5m -- true", USAGE, "unknown option '-ttl'; the command follows '--'"),
    ("run k ls -l", USAGE, "unknown option '-l'; the command follows '--'"),
    ("history k 10", USAGE, "unexpected argument '10': usage: belay history KEY [--limit N]"),
    ("wait k 5m", USAGE, "usage: belay wait KEY [--wait D]"),
    ("freezes a", USAGE, "usage: belay freezes\n"),
    ("list --limit all", USAGE, "--limit 'all' is not a whole number"),
    ("list --json=yes", USAGE, "--json takes no value"),
    # names of other programs
    ("run k --timeout 5m -- true", USAGE, "unknown option '--timeout': did you mean '--wait'?"),
    ("run k --lease 5m -- true", USAGE, "did you mean '--ttl'?"),
    ("acquire k --label a=b", USAGE, "did you mean '--meta'?"),
    ("release k --lock-id x", USAGE, "did you mean '--id'?"),
    ("list --status active", USAGE, "did you mean '--filter'?"),
    ("list --filter active", USAGE, "is not one of status=active|status=expired|status=released"),
    # arguments that are swapped, empty or too much
    ("run -- k true", USAGE, "no lock given: give a KEY"),
    ("run k --meta =x -- true", USAGE, "--meta '=x' is not NAME=VALUE"),
    ("run k --meta a=1 --meta a=2 -- true", USAGE, "metadata 'a' is given twice"),
    ("run k --adopt '' -- true", USAGE, "--adopt is empty: give it a value or leave it out"),
    ("run k --id 'a b' -- true", USAGE, "'a b' is not a lock id: 1 to 64 letters"),
    ("run ok 'a\nb' -- true", USAGE, "the key 'a\\x0ab' is not UTF-8 or has control characters"),
    ("release k x", USAGE, "--id is missing: give the lock id that 'belay acquire' printed"),
    ("release k --id x --outcome ok", USAGE, "--outcome 'ok' is not one of completed|failed"),
    ("status k1 k2", USAGE, "unexpected argument 'k2'"),
    ("stats k --prefix k", USAGE, "exclude each other: give one lock or the beginning of several"),
    ("stats --since 2026-13-45", USAGE, "write it as 7d or 12h, or as 2026-11-10T00:00:00Z"),
    ("deploy -- true", USAGE, "no stack given: give --stack and --environment"),
    ("state load --stack a:b --environment e", USAGE, "must not contain '/', ':'"),
    ("app register shop --url ftp://x --database postgres=h:1", USAGE, "write http://HOST[:PORT]/PATH"),
    ("db stop --database nope", USAGE, "HOST:PORT (such as 10.0.1.5:5432)"),
    ("freeze a --reason x --until 2020-01-01T00:00:00Z", USAGE, "is in the past"),
    ("locks", USAGE, "'belay locks' needs a subcommand"),
    # files
    ("run k -- ./folder", 126, "cannot run './folder': it is a directory"),
    ("run k -- ./half.json", 126, "it is not executable: run chmod +x on it"),
    ("run k -- ./nope.sh", 127, "cannot run './nope.sh': not found"),
    ("run k -- ./crlf.sh", 127, "cannot run './crlf.sh': its interpreter '/bin/sh\\x0d' was not found"),
    ("run k --result folder -- true", USAGE, "cannot write --result 'folder': Is a directory"),
    ("state save --stack s --environment e", DATA, "standard input is empty: name a FILE"),
    ("state save --stack s --environment e nope.json", NO_SUCH, "cannot open 'nope.json'"),
    ("state save --stack s --environment e half.json/x", NO_SUCH, "cannot open 'half.json/x': Not a directory"),
    ("app import nope.yaml", NO_SUCH, "cannot open 'nope.yaml': No such file"),
    ("app import half.json/x", NO_SUCH, "cannot open 'half.json/x': Not a directory"),
    ("restore nope.db", NO_SUCH, "there is no file 'nope.db'"),
    ("serve --tls-cert nope.pem --tls-key half.json --listen 127.0.0.1:0", CONFIG, "belay: the TLS certificate 'nope.pem': No such file or directory"),
    ("backup nope/copy.db", USAGE, "cannot write 'nope/copy.db': No such file or directory"),
    ("state restore 1 --stack a --environment b --yes", NO_SUCH, "there is no snapshot '1' in stacks/a/b/: there is none at all"),
    ("serve --tls-cert half.json --tls-key half.json --listen 127.0.0.1:0", CONFIG, "not a PEM file"),
    ("--config list.yaml list", CONFIG, "list.yaml:1: store must be a single value"),
    ("--config open.yaml list", CONFIG, "run 'chmod go-w open.yaml'"),
    ("--config twice.yaml list", CONFIG, "duplicate name 'a'; the first is in line 1"),
    # stores
    ("--store sqllite:x.db list", USAGE, "did you mean 'sqlite:x.db'?"),
    ("--store postgresql:/h/db list", USAGE, "did you mean 'postgresql://h/db'?"),
    ("--store postgresq://me@h/db list", USAGE, "did you mean 'postgresql://me@h/db'?"),
    ("--store postgresq://me:sesame@h/db list", USAGE, "did you mean 'postgresql://me@h/db'?"),
    ("--store dynamo:t list", USAGE, "did you mean 'dynamodb:t'?"),
    ("--store HTTP://h:1 list", USAGE, "did you mean 'http://h:1'?"),
    ("--store ./x.db list", USAGE, "did you mean 'sqlite:./x.db'?"),
    ("--store localhost:7420 list", USAGE, "did you mean 'http://localhost:7420'?"),
    ("--store redis://h list", USAGE, "use sqlite:PATH, postgresql://HOST/DATABASE"),
    ("--store sqlite:half.json/x.db list", UNREACHABLE, "name a place that can be written with --store sqlite:PATH"),
    # the environment
    ("BELAY_CONFIG=nope.yaml list", CONFIG, "cannot open 'nope.yaml' (named by BELAY_CONFIG)"),
    ("BELAY_STORE=nope list", CONFIG, "environment BELAY_STORE: 'nope' is not a store; write it as KIND:WHERE"),
    ("BELAY_STORE=http://h:x list", USAGE, "belay: environment BELAY_STORE: 'http://h:x' is not a server's URL"),
    ("BELAY_STORE=sqlite:x.db?durabilty=full list", USAGE, "belay: environment BELAY_STORE: store parameter 'durabilty' is not known"),
    ("BELAY_STATE_STORE=http://h:x state list", USAGE, "belay: environment BELAY_STATE_STORE: 'http://h:x' is not a server's URL"),
    ("BELAY_STORE= --config server.yaml list", CONFIG, "belay: server.yaml:1: store: 'http://h:x' is not a server's URL"),
    ("BELAY_DISABLED=yess list", CONFIG, "environment BELAY_DISABLED: 'yess' is not a switch"),
    ("BELAY_STORE=http://127.0.0.1:1 BELAY_AUTH_FILE=nope list", CONFIG, "BELAY_AUTH_FILE: nope cannot be read"),
    ("BELAY_STORE=sqlite:half.json LANG=C list", DATA, "it was left as it is"),
]
# What only reads makes no store of a path with a typo in it.
READERS = ("list", "locks list", "status k", "history k", "stats", "watch", "top", "freezes", "unlock k --force --yes", "backup copy.db",
           "wait k", "check k --token 1", "release k --id a", "renew k --id a", "renew k --owner a --profile execution", "unfreeze k", "repair",
           "app list", "app show a", "app status a", "app remove a", "app mark-stopped a", "app export", "db list", "db stop --app a")
FILES = {"text.db": "not a database\n" * 100, "half.json": '{"a":', "tab.yaml": "profiles:\n\tbuild:\n",
         "crlf.yaml": "locks:\r\n  store: sqlite:x.db\r\n", "ttl.yaml": "profiles:\n  build:\n    ttl: ten\n",
         "port.yaml": "server:\n  listen: 127.0.0.1:99999\n", "list.yaml": "store: [a, b]\n", "open.yaml": "profiles: {}\n",
         "crlf.sh": "#! /bin/sh\r\ntrue\r\n", "server.yaml": "store: 'http://h:x'\n",
         "twice.yaml": "profiles: {a: {ttl: 1m}, a: {ttl: 2m}}\n"}


class Mistakes(BelayCase):
    def stranger(self):
        """A server that is not belay's."""
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
        server.RequestHandlerClass.log_message = lambda *_: None
        return self.listen(server)

    def listen(self, server):
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        return f"127.0.0.1:{server.server_address[1]}"

    def page(self, status, page=b"<html></html>"):
        """A server that answers everything with a page of this status."""
        class Page(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                self.send_response(status)
                self.send_header("Content-Length", str(len(page)))
                self.end_headers()
                self.wfile.write(page)

            do_POST = do_PUT = do_DELETE = do_GET

            def log_message(self, *_):
                pass
        return self.listen(http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page))

    def test_every_command_says_that_a_server_is_not_belays(self):
        commands = (["run", "k", "--", "true"], ["acquire", "k", "--wait", "1m"], ["release", "k", "--id", "x"], ["renew", "k", "--id", "x"],
                    ["check", "k", "--id", "x"], ["status", "k"], ["list"], ["history", "k"], ["stats"], ["watch"], ["wait", "k"],
                    ["freeze", "a", "--reason", "x"], ["freezes"], ["unlock", "k", "--force", "--yes"], ["backup", "copy.db"],
                    ["app", "list"], ["app", "show", "a"], ["app", "remove", "a"], ["db", "list"],
                    ["app", "register", "a", "--url", "http://a", "--database", "postgres=a:1"], ["db", "stop", "--database", "a:1"],
                    ["top"], ["state", "list"], ["state", "locks", "--stack", "a", "--environment", "b"],
                    ["state", "load", "--stack", "a", "--environment", "b"], ["state", "history", "--stack", "a", "--environment", "b"])
        for status, page in ((200, b"<html></html>"), (200, b'{"status":"ok"}'), (302, b""), (404, b""), (501, b"")):
            url = "http://" + self.page(status, page)
            for command in commands:
                with self.subTest(status=status, page=page, command=command):
                    result = self.fails(CONFIG, "--store", url, *command)
                    self.assertIn(f"{url} does not answer as a belay server does: check the host, the port", result.err)
            self.assertIn("does not answer as a belay server does", self.fails(CONFIG, "--store", url, "doctor").out)
        self.assertFalse((self.dir / "copy.db").exists())

    def test_a_proxy_without_its_server_makes_a_change_unknown_and_a_question_fail(self):
        url = "http://" + self.page(502)
        for code, command in ((UNREACHABLE, ["list"]), (UNREACHABLE, ["check", "k", "--id", "x"]), (74, ["run", "k", "--", "true"]),
                              (74, ["release", "k", "--id", "x"])):
            result = self.fails(code, "--store", url, *command)
            self.assertIn(f"{url} answers with status 502 and not as a belay server does: check the server and any proxy", result.err)

    def files(self):
        """What lies in the folder, but for the lock database, which a command may make."""
        found = {}
        for folder, _, names in os.walk(self.dir):
            for name in names:
                path = os.path.join(folder, name)
                if "belay.db" not in path:
                    with open(path, "rb") as file:
                        found[path] = file.read()
        return found

    def setUp(self):
        super().setUp()
        os.mkdir(self.dir / "folder")
        for name, text in FILES.items():
            with open(self.dir / name, "w", encoding="utf-8", newline="") as file:
                file.write(text)
            os.chmod(self.dir / name, {"open.yaml": 0o666, "crlf.sh": 0o700}.get(name, 0o600))

    def check(self, mistakes):
        stranger = self.stranger()
        before = self.files()
        for typed, code, says in mistakes:
            with self.subTest(typed):
                words = shlex.split(typed.replace("STRANGER", stranger))
                env = {"AWS_REGION": "", "AWS_DEFAULT_REGION": "", "AWS_CONFIG_FILE": os.devnull}
                while re.match(r"[A-Z_]+=", words[0]):
                    name, _, env[name] = words.pop(0).partition("=")
                result = self.belay(*words, env=env)
                self.assertEqual((result.code, result.out), (code, ""), result)
                self.assertIn(says, result.err)
                self.assertLess(len(result.err), 600)
                self.assertLess(result.err.count("belay: "), 2)
        self.assertEqual(self.files(), before)
        self.assertEqual(self.ok("list", "--json").json()["locks"], [])

    def test_each_answer_says_what_to_do_and_changes_nothing(self):
        self.check(MISTAKES)

    def test_the_second_walk(self):
        self.check(MORE)

    def test_a_file_that_cannot_be_written_is_a_mistake_like_any_other(self):
        self.ok("state", "save", "--stack", "a", "--environment", "b", text="{}")
        for path, why in (("nope/x", "No such file or directory"), ("half.json/x", "Not a directory"), ("folder", "Is a directory")):
            for command in (["state", "load", "--stack", "a", "--environment", "b", "--output"], ["run", "k", "--result"], ["backup"]):
                if command == ["backup"] and path == "folder":
                    continue  # it exists, which says more
                with self.subTest(path=path, command=command):
                    result = self.fails(USAGE, *command, path, *(["--", "true"] if command[0] == "run" else []))
                    self.assertRegex(result.err, f"^belay: cannot write (--result )?'{path}': {why}\n$")

    def test_a_damaged_state_names_the_command_that_repairs_it(self):
        state = ["--stack", "a", "--environment", "b"]
        self.ok("state", "save", *state, text="{}")
        (path,) = self.dir.glob("**/stacks/a/b/state.json")
        path.write_text("{")
        for command in (["state", "load", *state], ["state", "verify", *state], ["deploy", *state, "--", "true"]):
            self.assertIn("belay: stacks/a/b/state.json ('belay state restore' puts a snapshot in its place): not valid JSON",
                          self.fails(DATA, *command).err)
        self.ok("state", "restore", *state, "latest", "--yes")
        self.ok("state", "verify", *state)

    def test_a_password_in_a_url_that_is_mistyped_is_not_repeated(self):
        urls = ("postgresq://me:sesame@h/db", "postgresql:/me:sesame@h/db", "postgres:me:sesame@h/db", "redis://me:sesame@h",
                "redis://h?password=sesame", "postgresq://me:a?sesame@h/db", "postgresql:/h/db?listen=postgresql%3A%2F%2Fme%3Asesame%40h%2Fdb",
                "redis://h?listen=postgresql://h/db?user=me%26sslpassword=sesame", ",".join(["http://h"] * 8 + ["http://me:sesame@h"]),
                "postgresql//me:sesame@h:5432/db", "me:sesame@h/db", "postgresq://me:a/sesame@h/db", "postgresql//me:a@sesame@h/db",
                "host=h password=sesame", "host=h password = 'a sesame'", "PASSWORD=a@sesame host=h", "postgresql:host=h?x password=sesame")
        commands = ("list", "doctor", "table create", "table create --grant x", "table describe", "repair --accept-loss", "restore copy.db",
                    "config show", "config show --json", "run k -- env", "serve --listen 127.0.0.1:0", "state list")
        for url in urls:
            for words in (["--store", url], ["--state-store", url], []):
                for command in commands:
                    with self.subTest(url=url, words=words[:1], command=command):
                        env = {} if words else {"BELAY_STORE": url, "BELAY_STATE_STORE": url}
                        if words[:1] == ["--state-store"] and command.split()[0] not in ("state", "config"):
                            continue
                        result = self.belay(*words, *command.split(), env=env)
                        self.assertNotIn("sesame", result.out + result.err)

    def test_a_reader_makes_no_store_of_a_path_that_does_not_exist(self):
        for env, words in (({}, ["--store", "sqlite:nowhere/b.db"]), ({"BELAY_STORE": f"sqlite:{self.dir}/nowhere/b.db"}, [])):
            for command in READERS:
                with self.subTest(command=command, env=env):
                    not_held = command.startswith("check")  # its exit code for each lock that is not there
                    err = self.fails(76 if not_held else NO_SUCH, *words, *command.split(), env=env).err
                    self.assertRegex(err, "there is no store at 'sqlite:.*nowhere/b.db': the directory '.*nowhere' does not exist; "
                                          "'belay acquire' and 'belay run' create a store")
        self.assertFalse((self.dir / "nowhere").exists())
        self.ok("--store", "sqlite:nowhere/b.db", "run", "k", "--", "true")
        self.assertEqual(self.ok("--store", "sqlite:nowhere/b.db", "list", "--all", "--quiet").out, "k\n")

    def test_the_default_store_may_be_new(self):
        self.assertIn("which did not exist and is created now", self.ok("list", env={"BELAY_STORE": None}).err)
        self.assertIn("'k' is free: the store did not exist and is created now", self.ok("--store", "sqlite:new.db", "wait", "k").err)
        for home in ({"HOME": None}, {"HOME": ""}):  # the system knows a home of the user
            self.ok("config", "show", env=home)

    def test_a_progress_interval_that_is_none_is_named_and_the_wait_goes_on(self):
        self.acquire("k")
        err = self.fails(75, "acquire", "k", "--wait", "100ms", env={"BELAY_PROGRESS_EVERY": "often"}).err
        self.assertIn("BELAY_PROGRESS_EVERY: 'often' is not a duration of at least 100ms", err)

    def test_a_pipe_that_closes_ends_a_list_in_silence(self):
        self.acquire("k")
        for command in ("list", "list --json", "history k", "--help", "completion bash"):
            with self.subTest(command):
                done = subprocess.run(["sh", "-c", f'{{ "{BELAY}" {command}; echo "code $?" >&2; }} | true'], env=self.environment(None), cwd=self.dir,
                                      capture_output=True, encoding="utf-8", timeout=60)
                self.assertRegex(done.stderr, r"^code (0|74)\n$")

    def test_a_second_interrupt_leaves_a_store_that_does_not_answer(self):
        with socket.create_server(("127.0.0.1", 0)) as silent:
            silent.settimeout(30)
            store = f"dynamodb:locks?region=us-east-1&endpoint=http://127.0.0.1:{silent.getsockname()[1]}"
            env = {"AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_EC2_METADATA_DISABLED": "true", "no_proxy": "*"}
            for command in (["acquire", "k"], ["wait", "k"], ["run", "k", "--", "touch", "ran"]):
                with self.subTest(command):
                    process = self.start("--store", store, *command, env=env)
                    connection, _ = silent.accept()
                    with connection:
                        connection.recv(1)  # it waits for the answer
                        process.send_signal(signal.SIGINT)
                        self.assertIn("interrupt again to leave at once", process.stderr.readline())
                        process.send_signal(signal.SIGINT)
                        self.assertEqual(process.wait(60), -signal.SIGINT)
        self.assertFalse((self.dir / "ran").exists())

    def test_a_full_disk_and_one_that_cannot_be_written_are_named(self):
        if subprocess.run(["unshare", "-rm", "mount", "-t", "tmpfs", "tmpfs", self.dir / "folder"], capture_output=True, check=False).returncode != 0:
            self.skipTest("no mounts in a name space of one's own")
        script = f"""mount -t tmpfs -o size=1m tmpfs folder && cd folder && export BELAY_STORE=sqlite:$PWD/b.db
            dd if=/dev/zero of=fill bs=4k; "{BELAY}" run k -- true; echo "full $?" >&2; rm fill
            "{BELAY}" run k -- true && mount -o remount,ro "$PWD" && "{BELAY}" run k -- true; echo "read-only $?" >&2"""
        done = subprocess.run(["unshare", "-rm", "sh", "-c", script], env=self.environment(None), cwd=self.dir, capture_output=True,
                              encoding="utf-8", timeout=60, check=False)
        self.assertRegex(done.stderr, r"no space left on the file system of '.*folder/b.db'; nothing was changed\nfull 69\n")
        self.assertRegex(done.stderr, r"'.*folder/b.db' cannot be written by user 0: Read-only file system; .*--store sqlite:PATH\nread-only 69\n$")


if __name__ == "__main__":
    main()
