"""Applications and databases over HTTP (S3): routes, roles, versions. What is decided, and when, test/shared_db shows."""

import http.server
import queue
import socket
import threading
from pathlib import Path

from server_support import PATIENCE, ServerCase, main, sha256, wait_until


class Case(ServerCase):
    DATABASE = "db.example:5432"

    def setUp(self):
        super().setUp()
        self.flag = Path(self.dir) / "running"
        self.config = ("databases: {postgres: {stop: {command: [rm, -f, " + str(self.flag) + "], until: {command: [test, '!', -e, "
                       + str(self.flag) + "]}}, start: {command: [touch, " + str(self.flag) + "], until: {command: [test, -e, "
                       + str(self.flag) + "]}}}}\n")

    def up(self, config=""):
        self.write_config(self.config + config)
        self.server = self.serve("--config", str(Path(self.dir) / "belay.yaml"))

    def write_config(self, text):
        path = Path(self.dir) / "belay.yaml"
        path.write_text(text, encoding="utf-8")
        path.chmod(0o600)
        return path

    def app(self, name, url="http://127.0.0.1:9/", token=None):
        return self.server.call("PUT", f"/v1/apps/{name}", {"urls": [url], "databases": [f"postgres={self.DATABASE}"]}, token=token)


class Registry(Case):
    def setUp(self):
        super().setUp()
        self.up()

    def test_an_application_is_registered_read_replaced_and_removed(self):
        made = self.app("shop").json()
        self.assertEqual((made["name"], made["state"], made["databases"]),
                         ("shop", "running", [{"kind": "postgres", "id": self.DATABASE, "host": None}]))
        self.assertEqual(self.server.get("/v1/apps/shop").json(), made)
        self.assertEqual(self.server.get("/v1/apps").json(), {"apps": [made], "is_partial": False})
        stale = {"urls": ["http://x/"], "version": made["version"]}
        changed = self.server.call("PUT", "/v1/apps/shop", stale).json()
        self.assertEqual((changed["urls"], changed["databases"]), (["http://x/"], []))
        refused = self.server.call("PUT", "/v1/apps/shop", stale)
        self.assertEqual((refused.status, refused.error["code"]), (409, "refused"))
        self.assertEqual(self.server.post("/v1/apps", {"name": "shop", "urls": ["http://x/"]}).status, 409)
        self.assertEqual(self.server.call("DELETE", f"/v1/apps/shop?version={made['version']}").status, 409)
        self.assertEqual(self.server.call("DELETE", "/v1/apps/shop").status, 200)
        self.assertEqual(self.server.get("/v1/apps/shop").status, 404)
        self.assertEqual(self.server.call("DELETE", "/v1/apps/shop").status, 404)

    def test_a_recorded_state_names_its_user(self):
        self.app("shop")
        marked = self.server.post("/v1/apps/shop/mark", {"state": "stopped", "by": "alice"}).json()
        self.assertEqual(marked["state"], "stopped")
        self.assertTrue(marked["by"].startswith("alice ("), marked)
        self.assertEqual(self.server.post("/v1/apps/shop/mark", {"state": "gone"}).status, 400)
        self.assertEqual(self.server.post("/v1/apps/nobody/mark", {"state": "stopped"}).status, 404)

    def test_bad_input_is_named_and_changes_nothing(self):
        for body, says in [({"urls": []}, "no URL"), ({"urls": ["x"]}, "not a valid health URL"), ({"urls": ["http://x/"], "colour": 1}, "colour"),
                           ({"name": "other", "urls": ["http://x/"]}, "the path names"), ([], "object"),
                           ({"urls": ["http://x/"], "databases": ["oracle=x:1"]}, "not known"),
                           ({"urls": ["http://x/"], "databases": ["postgres=x"]}, "neither")]:
            with self.subTest(body=body):
                answer = self.server.call("PUT", "/v1/apps/shop", body)
                self.assertEqual(answer.status, 400)
                self.assertIn(says, answer.error["message"])
        self.assertEqual(self.server.get("/v1/apps").json(), {"apps": [], "is_partial": False})

    def test_a_recorded_decision_has_limits(self):
        """Every list of databases repeats it, to other clients too."""
        path = f"/v1/databases/{self.DATABASE}/last"
        good = {"database": self.DATABASE, "kind": "postgres", "host": None, "action": "skipped", "reason": "x", "shared": True,
                "sharing_apps": ["a"], "active_apps": []}
        self.assertEqual(self.server.call("PUT", path, good).status, 200)
        for change, says in (({"kind": "k" * 65}, "kind"), ({"kind": "a\nb"}, "kind"), ({"host": "\u001b[31m"}, "host"),
                             ({"reason": "r" * 20000}, "reason"), ({"sharing_apps": ["a\u0007"]}, "sharing_apps"),
                             ({"active_apps": ["a" * 100] * 700}, "active_apps")):
            answer = self.server.call("PUT", path, {**good, **change})
            self.assertEqual(answer.status, 400, change)
            self.assertIn(says, answer.error["message"])

    def test_applications_are_not_listed_as_locks(self):
        self.app("shop")
        self.assertEqual(self.server.get("/v1/locks").json()["locks"], [])
        self.assertEqual(self.server.get("/v1/locks/shop").status, 404)


class Stopping(Case):
    def setUp(self):
        super().setUp()
        self.up()

    def test_a_database_is_started_skipped_and_stopped(self):
        self.app("a")
        self.app("b")
        path = f"/v1/databases/{self.DATABASE}"
        self.assertEqual(self.server.post(path + "/start", {"app": "a"}).json()["results"][0]["action"], "started")
        self.assertTrue(self.flag.exists())
        (result,) = self.server.post(path + "/stop", {"app": "a"}).json()["results"]
        self.assertEqual((result["action"], result["active_apps"]), ("skipped_shared_active", ["b"]))
        self.server.post("/v1/apps/b/mark", {"state": "stopped"})
        (result,) = self.server.post(path + "/stop", {"app": "a", "dry_run": True}).json()["results"]
        self.assertIn("would be stopped", result["reason"])
        self.assertTrue(self.flag.exists())
        self.assertEqual(self.server.post(path + "/stop", {"app": "a"}).json()["results"][0]["action"], "stopped")
        self.assertFalse(self.flag.exists())
        database = self.server.get(path).json()
        self.assertEqual((database["last"]["action"], database["shared"]), ("stopped", True))
        self.assertEqual(self.server.get("/v1/databases").json(), {"databases": [database], "is_partial": False})
        metrics = self.server.get("/metrics").body.decode()
        for line in [f'belay_db_stop_stopped_total{{db_identifier="{self.DATABASE}"}} 1',
                     f'belay_db_stop_skipped_shared_active_total{{db_identifier="{self.DATABASE}"}} 1',
                     f'belay_db_stop_skipped_lock_total{{db_identifier="{self.DATABASE}"}} 0',
                     'belay_db_lock_acquire_retries_bucket{le="0"} 3', "belay_db_lock_acquire_duration_seconds_count 3"]:
            self.assertIn(line, metrics)

    def test_requests_that_cannot_be_done_say_why(self):
        self.assertEqual(self.server.post("/v1/databases/x:1/stop", {}).status, 404)
        self.assertEqual(self.server.post("/v1/databases/x/stop", {}).status, 400)
        self.app("a")
        path = f"/v1/databases/{self.DATABASE}/stop"
        self.assertEqual(self.server.post(path, {"app": "nobody"}).status, 404)
        self.assertEqual(self.server.post(path, {"force": True}).status, 400)
        self.assertEqual(self.server.get("/v1/databases/x:1").status, 404)
        self.assertEqual(self.server.call("PUT", "/v1/databases/x/last", {}).status, 400)

    def test_many_slow_health_checks_are_bounded_and_the_server_continues(self):
        """Long work runs in a limited number of threads; one request more gets a retry answer."""
        held = threading.Event()

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_HEAD(self):
                held.wait(60)
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_):
                pass

        slow = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        slow.daemon_threads = True
        threading.Thread(target=slow.serve_forever, daemon=True).start()
        self.addCleanup(slow.server_close)
        self.addCleanup(slow.shutdown)
        self.addCleanup(held.set)
        self.app("slow", f"http://127.0.0.1:{slow.server_address[1]}/")
        statuses = []
        threads = [threading.Thread(target=lambda: statuses.append(self.server.get("/status/quick?app=slow").status)) for _ in range(80)]
        for thread in threads:
            thread.start()
        self.assertEqual(self.server.get("/healthz").status, 200)
        for thread in threads:
            thread.join()
        self.assertEqual(set(statuses), {200, 503})
        self.assertGreaterEqual(statuses.count(200), 64)

    def test_one_token_cannot_keep_out_the_others(self):
        """A locker registers an application that accepts connections and does not answer."""
        silent = socket.socket()
        self.addCleanup(silent.close)
        silent.bind(("127.0.0.1", 0))
        silent.listen(200)
        config = self.config_with({"slow": ("slow", "locker", None), "other": ("other", "admin", None)})
        with open(config, "a", encoding="utf-8") as file:
            file.write("controller: {quick_status_allow: [127.0.0.0/8], quick_status_timeout: 8}\n")
        server = self.serve("--store", f"sqlite:{self.dir}/share.db", config=config)
        app = {"urls": [f"http://127.0.0.1:{silent.getsockname()[1]}/"]}
        self.assertEqual(server.call("PUT", "/v1/apps/hangs", app, token="slow").status, 200)
        statuses = queue.Queue()
        for _ in range(64):
            threading.Thread(target=lambda: statuses.put(server.get("/status/quick?app=hangs", token="slow").status), daemon=True).start()
        self.assertEqual([statuses.get(timeout=PATIENCE) for _ in range(16)], [503] * 16, "a quarter is for others")
        freeze = {"pattern": "a-*", "reason": "an incident"}
        self.assertEqual(server.post("/v1/freezes", freeze, token="other").status, 200)
        self.assertEqual(server.get("/v1/apps", token="slow").error["code"], "busy")

    def test_a_stop_under_way_ends_with_the_server(self):
        self.app("a")
        self.flag.touch()
        answer = []
        self.server.stop()
        self.config = self.config.replace("[rm, -f, " + str(self.flag) + "]", "[sleep, '600']")
        self.up()
        thread = threading.Thread(target=lambda: answer.append(self.server.call(
            "POST", f"/v1/databases/{self.DATABASE}/stop", {"app": "a"}, check=False)))
        thread.start()
        wait_until(lambda: self.server.get("/v1/locks").json()["locks"], "the action begins")
        self.server.process.terminate()
        self.assertEqual(self.server.process.wait(60), 0)
        thread.join()
        (result,) = answer[0].json()["results"]
        self.assertEqual(result["action"], "error")
        self.assertIn("stopped on request", result["reason"])
        self.assertTrue(self.flag.exists())


class Roles(Case):
    def test_each_role_may_do_what_it_should(self):
        secrets = {role: f"secret-of-{role}-0123456789" for role in ("reader", "locker", "admin")}
        self.up("server: {tokens: [" + ", ".join(
            f"{{name: {role}, role: {role}, sha256: '{sha256(secret)}'" + (", keys: ['LOCK#DB#db.example*', 'app:shop']}" if role == "locker" else "}")
            for role, secret in secrets.items()) + "]}\n")
        self.assertEqual(self.server.get("/v1/apps").status, 401)
        self.assertEqual(self.server.get("/status/quick?app=x").status, 401)
        self.assertEqual(self.server.get("/v1/apps", token=secrets["reader"]).status, 200)
        self.assertEqual(self.app("shop", token=secrets["reader"]).status, 403)
        self.assertEqual(self.app("shop", token=secrets["locker"]).status, 200)
        self.assertEqual(self.server.call("DELETE", "/v1/apps/shop", token=secrets["locker"]).status, 403)
        path = f"/v1/databases/{self.DATABASE}/start"
        self.assertEqual(self.server.post(path, {}, token=secrets["reader"]).status, 403)
        self.assertEqual(self.server.post(path, {}, token=secrets["locker"]).status, 200)
        self.assertEqual(self.server.post("/v1/databases/other:1/start", {}, token=secrets["locker"]).status, 403)
        self.assertEqual(self.server.call("DELETE", "/v1/apps/shop", token=secrets["admin"]).status, 200)


if __name__ == "__main__":
    main()
