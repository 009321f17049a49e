"""The files that belay makes: for whom they are, and that no link leads elsewhere; and what a hostile server may say."""

import http.server
import json
import os
import stat
import threading

from server_support import ServerCase, main

ESCAPE = "\x1b[2J\x1b]0;owned\x07"
HUGE = 9223372036854775807


def mode(path):
    return oct(stat.S_IMODE(path.lstat().st_mode))


class Files(ServerCase):
    def setUp(self):
        super().setUp()
        self.folder = self.dir / "store"
        self.folder.mkdir()
        self.path = self.folder / "locks.db"
        self.env["BELAY_STORE"] = f"sqlite:{self.path}"
        self.addCleanup(os.umask, os.umask(0))  # the umask must not help

    def modes(self):
        return {f.name: mode(f) for f in self.folder.rglob("*") if f.is_file()}

    def use_everything(self):
        config = self.write_config(f"audit: {{file: {self.folder}/audit.jsonl}}\nserver: {{webhooks: {{allow: [127.0.0.1]}}}}\n")
        self.ok("acquire", "before", "--config", str(config))
        state = self.folder / "new.json"
        state.write_text('{"outputs": {}}')
        self.ok("state", "save", str(state), "--stack", "s", "--environment", "e", "--state-store",
                f"file:{self.folder}/state")
        state.unlink()
        server = self.serve(config=config)
        server.acquire("k")
        self.assertEqual(server.acquire("k", wait_ms=60000, lock_id="j", ttl_ms=600000,
                                        webhook={"url": "http://127.0.0.1:1/", "secret": "s"}).status, 202)
        return server

    def test_files_with_lock_ids_are_for_their_owner_alone(self):
        self.use_everything()
        modes = self.modes()
        for name in ("", "-wal", "-shm", "-ledger-0", "-webhooks", "-serve.lock"):
            self.assertIn(f"locks.db{name}", modes)
        self.assertIn("audit.jsonl", modes)
        self.assertIn("state.json", modes)
        self.assertEqual({name: m for name, m in modes.items() if m != "0o600"}, {})

    def test_files_in_a_directory_of_a_group_belong_to_the_group(self):
        self.folder.chmod(0o2770)
        self.use_everything()
        modes = self.modes()
        for name in ("", "-wal", "-shm", "-ledger-0"):
            self.assertEqual(modes[f"locks.db{name}"], "0o660", name)
        self.assertEqual(modes["audit.jsonl"], "0o660")
        self.assertEqual([m for m in modes.values() if m not in ("0o600", "0o660")], [])

    def test_a_world_readable_file_is_restricted_by_its_owner(self):
        self.ok("acquire", "k")
        for name in ("", "-wal", "-shm"):
            os.chmod(f"{self.path}{name}", 0o644)
        self.ok("list")
        self.assertEqual([mode(self.folder / f"locks.db{name}") for name in ("", "-wal", "-shm")], ["0o600"] * 3)
        os.chmod(self.path, 0o666)  # set on purpose; doctor explains it
        self.ok("list")
        self.assertEqual(mode(self.path), "0o666")
        self.assertIn("every user may write", self.ok("doctor").out)

    def test_no_link_is_followed(self):
        letter = self.dir / "letter"
        for name in ("-webhooks.new", "-webhooks", "-ledger-0", "-ledger-1", "-serve.lock", "-wake"):
            with self.subTest(name=name):
                letter.write_text("a letter")
                link = self.folder / f"locks.db{name}"
                link.unlink(missing_ok=True)
                link.symlink_to(letter)
                server = self.start("serve", "--json", "--listen", "127.0.0.1:0")
                if server.stdout.readline():
                    server.terminate()
                server.wait()
                self.assertEqual(letter.read_text(), "a letter")
                link.unlink(missing_ok=True)

    def test_the_result_of_an_acquire_is_for_its_owner_only(self):
        self.ok("run", "k", "--result", str(self.folder / "result"), "--", "true")
        self.assertEqual(mode(self.folder / "result"), "0o600")


class Hostile(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def answer(self, status, body, kind="application/json"):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def lock(self):
        return {"key": "k", "lock_id": ESCAPE, "token": -HUGE, "locked_by": ESCAPE, "locked_by_name": ESCAPE, "status": "active",
                "outcome": None, "locked_at": "9999-12-31T23:59:59.999Z", "expires_at": "9999-12-31T23:59:59.999Z",
                "last_heartbeat": None, "ttl_ms": HUGE, "expires_in_ms": self.server.expires, "is_stale": False,
                "metadata": {ESCAPE: ESCAPE}}

    def do_GET(self):
        if self.path.startswith("/v1/events"):
            event = {"id": 1, "timestamp": "9999-12-31T23:59:59.999Z", "level": "WARN", "event": ESCAPE, "lock_key": ESCAPE,
                     "locked_by": ESCAPE, "locked_by_name": ESCAPE, "by": ESCAPE, "reason": ESCAPE,
                     "duration_seconds": 1e300, "metadata": {}}
            self.answer(200, f"data: {json.dumps(event)}\n\n".encode(), "text/event-stream")
        elif self.path.startswith("/v1/locks?"):
            self.answer(200, json.dumps({"locks": [self.lock()], "waiting": {"k": HUGE}, "next_cursor": None}).encode())
        elif self.path.endswith("/queue"):
            self.answer(200, json.dumps({"key": "k", "lock": self.lock(), "waiting": []}).encode())
        elif "/history" in self.path:
            self.answer(200, json.dumps({"events": [{"id": 1, "event": ESCAPE, "lock_key": "k", "reason": ESCAPE,
                                                     "duration_seconds": -1e300}]}).encode())
        else:
            self.answer(200, json.dumps(self.lock()).encode())

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.answer(409, json.dumps({"error": {"code": "lock_held", "message": ESCAPE, "lock": self.lock(), "position": HUGE,
                                               "place_kept_ms": HUGE}}).encode())


class HostileServer(ServerCase):
    """Built with the sanitizers, an overflow ends the program."""

    def setUp(self):
        super().setUp()
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hostile)
        self.server.expires = HUGE
        thread = threading.Thread(target=self.server.serve_forever)
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(self.server.server_close)
        self.addCleanup(self.server.shutdown)
        self.env["BELAY_STORE"] = f"http://127.0.0.1:{self.server.server_port}"

    def harmless(self, text):
        self.assertNotIn("\x1b", text)
        self.assertNotIn("\x07", text)
        self.assertNotIn("runtime error", text)

    def test_answers_of_a_hostile_server_are_printed_harmlessly(self):
        for expires in (HUGE, -HUGE):
            self.server.expires = expires
            for args in (("status", "k"), ("list",), ("history", "k"), ("acquire", "k"), ("acquire", "k", "--wait", "300ms"),
                         ("run", "k", "--", "true"), ("wait", "k", "--wait", "300ms"), ("renew", "k", "--id", "i")):
                with self.subTest(args=args, expires=expires):
                    result = self.belay(*args)
                    self.assertIn(result.code, (0, 65, 66, 74, 75, 76, 77, 78), result)
                    self.harmless(result.out + result.err)

    def test_watch_prints_no_escape_sequences(self):
        watch = self.start("watch")
        self.harmless(watch.stdout.readline())


if __name__ == "__main__":
    main()
