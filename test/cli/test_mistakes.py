"""Typical mistakes: each answer names what was wrong and what would be right, and nothing has changed."""
import http.server
import os
import threading

from support import BelayCase, main

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
    ("serve --config port.yaml", USAGE, "at most 65535"),
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
    ("--store http:/127.0.0.1:1 list", USAGE, "http://HOST:PORT"),
    ("--store http://127.0.0.1:99999 list", CONFIG, "http://HOST:PORT"),
    ("--store http://127.0.0.1:1 list", UNREACHABLE, "cannot reach 127.0.0.1:1"),
    ("--store http://STRANGER list", CONFIG, "does not answer as a belay server does"),
    ("--store https://STRANGER list", UNREACHABLE, "write http:// if that is right"),
    ("--store dynamodb:table list", CONFIG, "set AWS_REGION"),
    ("table create", USAGE, "--store dynamodb:TABLE"),
    # files
    ("--config nope.yaml list", CONFIG, "cannot open 'nope.yaml'"),
    ("--config folder list", CONFIG, "'folder' is not a regular file"),
    ("--config crlf.yaml list", CONFIG, "the file has no 'locks'; it can have store,"),
    ("--config tab.yaml list", CONFIG, "YAML is indented with spaces"),
    ("--config ttl.yaml run k -- true", CONFIG, "'ten' is not a duration"),
    ("state save --stack s --environment e half.json", DATA, "the text ends early (line 1, column 6)"),
    ("app import half.json", DATA, "half.json:1: not YAML"),
    ("backup folder", USAGE, "name a file that is not"),
    ("restore half.json", DATA, "cannot read 'half.json'"),
]
FILES = {"text.db": "not a database\n" * 100, "half.json": '{"a":', "tab.yaml": "profiles:\n\tbuild:\n",
         "crlf.yaml": "locks:\r\n  store: sqlite:x.db\r\n", "ttl.yaml": "profiles:\n  build:\n    ttl: ten\n",
         "port.yaml": "server:\n  listen: 127.0.0.1:99999\n"}


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

    def page(self, status):
        """A server that answers everything with a page of this status."""
        class Page(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                self.send_response(status)
                self.send_header("Content-Length", "13")
                self.end_headers()
                self.wfile.write(b"<html></html>")

            do_POST = do_PUT = do_DELETE = do_GET

            def log_message(self, *_):
                pass
        return self.listen(http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page))

    def test_every_command_says_that_a_server_is_not_belays(self):
        commands = (["run", "k", "--", "true"], ["acquire", "k", "--wait", "1m"], ["release", "k", "--id", "x"], ["renew", "k", "--id", "x"],
                    ["check", "k", "--id", "x"], ["status", "k"], ["list"], ["history", "k"], ["stats"], ["watch"], ["wait", "k"],
                    ["freeze", "a", "--reason", "x"], ["freezes"], ["unlock", "k", "--force", "--yes"], ["backup", "copy.db"],
                    ["app", "list"], ["state", "load", "--stack", "a", "--environment", "b"])
        for status in (200, 302, 404, 501):
            url = "http://" + self.page(status)
            for command in commands:
                with self.subTest(status=status, command=command):
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
        for folder, _, names in os.walk("."):
            for name in names:
                path = os.path.join(folder, name)
                if "belay.db" not in path:
                    with open(path, "rb") as file:
                        found[path] = file.read()
        return found

    def test_each_answer_says_what_to_do_and_changes_nothing(self):
        home = os.getcwd()
        self.addCleanup(os.chdir, home)
        os.chdir(self.dir)
        os.mkdir("folder")
        for name, text in FILES.items():
            with open(name, "w", encoding="utf-8", newline="") as file:
                file.write(text)
        stranger = self.stranger()
        before = self.files()
        for typed, code, says in MISTAKES:
            with self.subTest(typed):
                words = [word.replace("STRANGER", stranger).strip("'") for word in typed.split()]
                env = {"AWS_REGION": "", "AWS_DEFAULT_REGION": "", "AWS_CONFIG_FILE": os.devnull}
                result = self.belay(*words, env=env)
                self.assertEqual((result.code, result.out), (code, ""), result)
                self.assertIn(says, result.err)
                self.assertLess(len(result.err), 600)
        self.assertEqual(self.files(), before)
        self.assertEqual(self.ok("list", "--json").json()["locks"], [])


if __name__ == "__main__":
    main()
