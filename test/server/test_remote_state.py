"""
Deployment state through a server: `belay deploy --store http://…` and `belay state …` without a state store use the
server's (issue 12, item 29). The tests of states on files once more with a server between; tokens; lost answers.
"""

import http.client
import http.server
import json
import sys
import threading
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "cli"))

import support  # noqa: E402
from inherited import inherited_cases  # noqa: E402
from remote_support import RemoteCase  # noqa: E402
from test_remote_cli import through_a_server  # noqa: E402

WHERE = ("--stack", "shop", "--environment", "prod")
# They are about the default directory, about two lock stores, or leave out the server.
ABOUT_FILES = {"test_one_lock_store_has_one_id_by_whichever_name",
               "test_a_recreated_lock_store_has_a_new_id", "test_a_state_store_belongs_to_one_lock_store",
               "test_old_snapshots_beyond_the_count_go",
               "test_a_store_without_a_binding_and_documents_with_a_url_still_work", "test_a_damaged_binding_stops_writes_until_it_is_rewritten"}


class Proxy(http.server.BaseHTTPRequestHandler):
    """Hands requests on; of those that `lose` names, the answer is lost after, or the request before it arrived."""

    protocol_version = "HTTP/1.1"

    def relay(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        lose = self.server.lose.pop((self.command, self.path.split("?")[0]), None)
        if lose != "before":
            onward = http.client.HTTPConnection("127.0.0.1", self.server.onward, timeout=60)
            onward.request(self.command, self.path, body, {k: v for k, v in self.headers.items() if k.lower() != "connection"})
            answer = onward.getresponse()
            data = answer.read()
            onward.close()
            self.server.seen.append((self.command, self.path, answer.status))
        if lose is not None:
            self.close_connection = True
            self.connection.close()
            return
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() in ("content-type", "etag", "date"):
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        try:
            self.end_headers()
            self.wfile.write(data)
        except OSError:  # the client has disconnected
            self.close_connection = True

    do_GET = do_PUT = do_POST = do_DELETE = relay

    def log_message(self, *args):
        pass


class RemoteState(RemoteCase):
    tokens = [("ci", "locker", "secret-ci"), ("boss", "admin", "secret-boss"), ("look", "reader", "secret-look")]

    def setUp(self):
        super().setUp()
        for name, _, secret in self.tokens:
            path = self.dir / f"{name}.token"
            path.write_text(secret, encoding="ascii")
            path.chmod(0o600)
        self.be("ci")

    def be(self, name):
        self.env["BELAY_AUTH_FILE"] = str(self.dir / f"{name}.token")

    def load(self):
        return self.ok("state", "load", *WHERE).json()

    def deploy(self, by, *args):
        out = json.dumps({"outputs": {"by": by}})
        return self.belay("deploy", *WHERE, *args, "--", "sh", "-c", f"echo '{out}' >\"$BELAY_STATE_OUT\"")

    def proxy(self):
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Proxy)
        server.daemon_threads = True
        server.onward, server.lose, server.seen = self.port, {}, []
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        self.env["BELAY_STORE"] = f"http://127.0.0.1:{server.server_address[1]}"
        return server

    def test_the_servers_state_is_used_and_fenced_there(self):
        self.assertEqual(self.deploy("first").code, 0)
        got = self.load()
        self.assertEqual((got["outputs"], got["metadata"]["serial"]), ({"by": "first"}, 1))
        self.assertEqual(got["deployment_history"][0]["user"], "ci", "the token, whatever the client says")
        self.assertTrue((self.dir / "belay.db-state/stacks/shop/prod/state.json").exists(), "beside the server's database")
        self.assertEqual([s["stack"] for s in self.ok("state", "list", "--json").json()["states"]], ["shop"])

    def test_each_role_has_its_permissions(self):
        self.deploy("first")
        self.be("look")
        self.load()
        self.ok("state", "verify", *WHERE)
        self.assertEqual(self.deploy("late").code, 77)
        self.be("ci")
        self.fails(77, "state", "restore", *WHERE, "--yes", "1")
        self.be("boss")
        self.ok("state", "restore", *WHERE, "--yes", "1")
        self.assertEqual(self.load()["metadata"]["serial"], 2)
        self.env["BELAY_AUTH_FILE"] = ""
        self.fails(77, "state", "load", *WHERE)

    def test_a_save_whose_answer_was_lost_is_done_once(self):
        proxy = self.proxy()
        self.assertEqual(self.deploy("first").code, 0)
        for lost in ("after", "before"):
            proxy.lose = {("PUT", "/v1/state/shop/prod"): lost, ("POST", "/v1/state/shop/prod/stamp"): lost}
            before = self.load()["metadata"]["serial"]
            result = self.deploy(lost)
            self.assertEqual((result.code, proxy.lose), (0, {}), result)
            got = self.load()
            self.assertEqual((got["outputs"]["by"], got["metadata"]["serial"], len(got["deployment_history"])), (lost, before + 1, before + 1))

    def test_state_save_and_restore_survive_a_lost_answer(self):
        proxy = self.proxy()
        self.be("boss")
        self.deploy("first")
        proxy.lose = {("PUT", "/v1/state/shop/prod"): "after"}
        (self.dir / "new.json").write_text(json.dumps({**self.load(), "outputs": {"by": "saved"}}), encoding="utf-8")
        saved = self.ok("state", "save", "--json", *WHERE, str(self.dir / "new.json")).json()
        self.assertEqual((saved["serial"], self.load()["metadata"]["serial"]), (2, 2))
        proxy.lose = {("POST", "/v1/state/shop/prod/restore"): "after"}
        self.ok("state", "restore", *WHERE, "--yes", "2")
        self.assertEqual((self.load()["outputs"], self.load()["metadata"]["serial"], proxy.lose), ({"by": "first"}, 3, {}))

    def test_a_server_that_is_down_is_not_taken_for_an_empty_state(self):
        self.deploy("first")
        self.kill_server()
        for args in (("state", "load", *WHERE), ("state", "list"), ("state", "history", *WHERE)):
            self.fails(69, *args)

    def test_an_explicit_state_store_still_counts(self):
        self.ok("deploy", *WHERE, "--state-store", f"file:{self.dir}/own", "--", "true")
        self.fails(66, "state", "load", *WHERE)
        self.assertTrue((self.dir / "own/stacks/shop/prod/state.json").exists())

    def test_rebinding_is_for_where_the_server_is(self):
        self.assertIn("rebind it there", self.fails(78, "state", "rebind", "--yes").err)

    def test_a_nested_save_uses_the_same_lock_and_server(self):
        (self.dir / "in.json").write_text('{"outputs":{"by":"nested"}}', encoding="ascii")
        script = f'"{support.BELAY}" state save --stack shop --environment prod "{self.dir}/in.json"'
        self.ok("deploy", *WHERE, "--", "sh", "-c", script)
        got = self.load()
        self.assertEqual((got["outputs"], got["lock"]["locked"], len(got["deployment_history"])), ({"by": "nested"}, False, 2))


def load_tests(loader, standard, _pattern):
    suite = unittest.TestSuite([standard])
    for case in inherited_cases(loader, ["test_state"], ABOUT_FILES):
        through_a_server(case)
        suite.addTest(case)
    assert suite.countTestCases() > 50 or loader.testNamePatterns is not None
    return suite


if __name__ == "__main__":
    unittest.main()
