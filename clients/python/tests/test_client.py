"""The README, the examples and the details that no scenario shows, against a real `belay serve`."""

import asyncio
import contextlib
import http.server
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from datetime import timedelta
from pathlib import Path

HERE = Path(__file__).resolve().parent
PYTHON = HERE.parent
sys.path[:0] = [str(PYTHON), str(PYTHON.parent / "scenarios")]

import belay  # noqa: E402
from belay._types import clock, milliseconds  # noqa: E402
from server import Server, clean_environment  # noqa: E402

PATIENCE = 30


class Case(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.TemporaryDirectory(prefix="belay-")
        cls.addClassCleanup(cls.directory.cleanup)
        cls.server = Server(Path(cls.directory.name), {})
        cls.server.start()
        cls.addClassCleanup(cls.server.end)
        cls.url = cls.server.url

    def start(self, *arguments, **env):
        process = subprocess.Popen([sys.executable, "-B", *map(str, arguments)], stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                   env=clean_environment({"PYTHONPATH": str(PYTHON), **env}))
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def run_program(self, *arguments, **env):
        process = self.start(*arguments, **env)
        output, _ = process.communicate(timeout=PATIENCE)
        self.assertEqual(process.returncode, 0, output)
        return output

    def events(self, key):
        return [event["event"] for event in belay.connect(self.url).history(key)]


class Hostile(Case):
    """Inputs, answers and processes that no scenario has."""

    def test_a_forked_child_shares_no_connection_and_no_lock(self):
        program = Path(self.directory.name) / "fork.py"
        program.write_text(f"""
import belay, os, sys, traceback
client = belay.connect("{self.url}")
with client.lock("fork-a", ttl="60s") as lock, client.lock("fork-b", ttl="60s"):
    pid = os.fork()
    for _ in range(200):
        assert client.status("fork-a" if pid else "fork-b")["key"] == ("fork-a" if pid else "fork-b")
    if pid == 0:
        assert not lock.is_held
        try:
            lock.release()
        except belay.LockLost as error:
            print(error, flush=True)
        sys.exit(0)  # through both blocks
    assert os.waitpid(pid, 0)[1] == 0
    lock.check()
print("parent had it")
""", encoding="utf-8")
        output = self.run_program(program)
        self.assertRegex(output, r"lock 'fork-a' is not of this process: process \d+ was forked and has it")
        self.assertIn("parent had it", output)
        self.assertEqual(self.events("fork-b")[-1], "lock.released")

    def test_a_program_with_many_open_files_keeps_its_lock(self):
        program = Path(self.directory.name) / "files.py"
        program.write_text(f"""
import belay, resource
resource.setrlimit(resource.RLIMIT_NOFILE, (2048, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
files = [open("/dev/null") for _ in range(1100)]
with belay.connect("{self.url}").lock("files") as lock:
    lock.check()
    lock.check()
print("done")
""", encoding="utf-8")
        self.assertEqual(self.run_program(program), "done\n")

    def odd_server(self, write):
        """A server that is not belay: it answers each POST with proxy.status and what `write` writes."""
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                self.rfile.read(int(self.headers["Content-Length"]))
                self.send_response(self.server.status)
                self.end_headers()
                write(self.wfile)

            def log_message(self, *_):
                pass

        proxy = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        proxy.status = 200
        threading.Thread(target=proxy.serve_forever, daemon=True).start()
        self.addCleanup(proxy.server_close)
        self.addCleanup(proxy.shutdown)
        return proxy

    def test_an_answer_that_no_belay_server_gives_is_an_unknown_outcome(self):
        proxy = self.odd_server(lambda out: out.write(proxy.answer))
        client = belay.connect(f"http://127.0.0.1:{proxy.server_port}")
        for status, answer in ((200, b"{}"), (200, b'{"locks":[]}'), (200, b'{"locks":[null]}'), (200, b"<html>"), (200, b"[" * 200000),
                               (200, b'{"key":"k","lock_id":"i","ttl_ms":"x","valid_for_ms":"y"}'), (409, b'{"error":"x"}'),
                               (409, b'{"error":{"code":[]}}')):
            proxy.status, proxy.answer = status, answer
            with self.subTest(answer=answer[:60]), self.assertRaises(belay.UnknownOutcome) as caught:
                client.lock("k", lock_id="mine").acquire()
            self.assertEqual(caught.exception.lock_id, "mine")

    def test_an_answer_that_never_ends_is_given_up(self):
        def drip(out):
            with contextlib.suppress(OSError):
                while True:
                    out.write(b" ")
                    time.sleep(0.05)

        proxy = self.odd_server(drip)
        client = belay.connect(f"http://127.0.0.1:{proxy.server_port}", timeout=0.3)
        failed = []

        def acquire():
            with self.assertRaises(belay.UnknownOutcome):
                client.lock("k", lock_id="mine").acquire()
            failed.append(True)
        thread = threading.Thread(target=acquire, daemon=True)
        thread.start()
        thread.join(30)
        self.assertEqual(failed, [True])

    def test_a_bad_url_token_or_duration_is_named(self):
        for url in ("http://127.0.0.1:abc", "http://127.0.0.1:99999", "http://[::1", "http://", f"http://{'a' * 70}.x", "unix:rel"):
            with self.subTest(url=url), self.assertRaisesRegex(belay.Invalid, re.escape(url)):
                belay.connect(url)
        with self.assertRaisesRegex(belay.Invalid, "with a password"):
            belay.connect("http://user:secret@127.0.0.1:7420")
        for token in ("a\nb", "\u043a", "a b"):
            with self.subTest(token=token), self.assertRaisesRegex(belay.Invalid, "the token has"):
                belay.connect(self.url, token=token)
        for wait in (-5, float("nan"), float("inf"), [1], timedelta(seconds=-1)):
            with self.subTest(wait=wait), self.assertRaisesRegex(belay.Invalid, "wait '.*' is not a duration"):
                belay.connect(self.url).lock("k", wait=wait)


class Readme(Case):
    def test_the_first_example_does_what_it_says(self):
        code = re.findall(r"```python\n(.*?)```", (PYTHON / "README.md").read_text(encoding="utf-8"), re.S)[0]
        self.assertIn("http://127.0.0.1:7420", code)
        output = self.run_program("-c", code.replace("http://127.0.0.1:7420", self.url))
        self.assertRegex(output, r"^deploying with token \d+\nstill the only one\n$")
        self.assertEqual(self.events("deploy-api-prod")[-2:], ["lock.acquired", "lock.released"])

    def test_the_package_can_be_installed(self):
        """With Debian's pip and setuptools, which fetch nothing."""
        source, target = Path(self.directory.name, "source"), Path(self.directory.name, "installed")
        shutil.copytree(PYTHON, source, ignore=shutil.ignore_patterns("__pycache__", "tests"))
        pip = subprocess.run(["/usr/bin/python3", "-m", "pip", "install", "--quiet", "--no-index", "--no-build-isolation",
                              "--target", target, source], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, text=True, check=False)
        self.assertEqual(pip.returncode, 0, pip.stdout)
        self.assertTrue((target / "belay/py.typed").exists())
        self.assertIn("belay_client-0.1.0.dist-info", os.listdir(target))
        output = self.run_program(PYTHON / "examples/deploy.py", self.url, PYTHONPATH=str(target))
        self.assertIn("deploying api", output)

    def test_every_name_in_it_exists(self):
        text = (PYTHON / "README.md").read_text(encoding="utf-8")
        lock, client = belay.connect(self.url).lock("k"), belay.connect(self.url)
        names = re.findall(r"`(lock|client)\.(\w+)", text)
        self.assertGreater(len(names), 10)
        for what, name in names:
            self.assertTrue(hasattr({"lock": lock, "client": client}[what], name), f"{what}.{name}")
        for name in re.findall(r"`(\w+)`", re.search(r"\| exception.*?\n\n", text, re.S).group()):
            self.assertTrue(hasattr(belay, name), name)

    def test_the_examples_in_the_documentation_are_those_of_the_readmes(self):
        """Which are run."""
        clients = PYTHON.parent
        found = re.findall(r"^```(\w+)\n.*?^```", (clients.parent / "docs/clients.md").read_text(encoding="utf-8"), re.S | re.M)
        self.assertEqual(found, ["python", "js", "go"])
        for language, folder in (("python", "python"), ("js", "node"), ("go", "go")):
            readme = clients / folder / "README.md"
            if readme.exists():
                example = re.search(rf"^```{language}\n.*?^```", readme.read_text(encoding="utf-8"), re.S | re.M).group()
                self.assertIn(example, (clients.parent / "docs/clients.md").read_text(encoding="utf-8"))

    def test_the_library_is_under_a_thousand_lines(self):
        texts = [path.read_text(encoding="utf-8") for path in (PYTHON / "belay").glob("*.py")]
        lines = sum(bool(line.strip()) for text in texts for line in text.splitlines())  # that are not blank
        self.assertTrue(500 < lines < 1000, lines)


class Examples(Case):
    def test_deploy(self):
        output = self.run_program(PYTHON / "examples/deploy.py", self.url)
        self.assertEqual(len(re.findall(r"^deploying \w+ with token \d+$", output, re.M)), 3, output)

    def test_migrate(self):
        output = self.run_program(PYTHON / "examples/migrate.py", self.url)
        self.assertEqual(output, "migrated with tokens ['db-orders', 'db-users']\n")

    def test_watch(self):
        process = self.start(PYTHON / "examples/watch.py", self.url, "seen-")
        self.assertEqual(process.stdout.readline(), "watching\n")
        with belay.connect(self.url).lock("seen-1"):
            self.assertIn("lock.acquired seen-1", process.stdout.readline())
        self.assertIn("lock.released seen-1 completed", process.stdout.readline())


class App(http.server.BaseHTTPRequestHandler):
    def do_HEAD(self):
        self.send_response(self.server.status)
        self.end_headers()

    def log_message(self, *_):
        pass


class SharedDatabase(Case):
    """Document 003's controller: the database is stopped only when the last application is down."""

    def app(self, name, status=200):
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), App)
        server.status = status
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        self.registry[name] = {"url": f"http://127.0.0.1:{server.server_port}/", "databases": ["10.0.1.5:5432"]}
        return server

    def setUp(self):
        self.registry = {}
        self.stopped = Path(self.directory.name, f"stopped-{self._testMethodName}")

    def stop(self, app, **env):
        path = Path(self.directory.name, "registry.json")
        path.write_text(json.dumps(self.registry), encoding="utf-8")
        return self.run_program(PYTHON / "examples/shared_database.py", self.url, path, "10.0.1.5:5432", app,
                                "sh", "-c", f'echo "$BELAY_TOKEN" >>{self.stopped}', **env).strip()

    def test_it_is_stopped_when_the_last_application_is_down(self):
        shop, blog = self.app("shop"), self.app("blog")
        self.app("wiki")
        self.assertEqual(self.stop("wiki"), "skipped: blog is UP, shop is UP")
        blog.status = 503
        self.assertEqual(self.stop("wiki"), "skipped: shop is UP")
        self.assertFalse(self.stopped.exists())
        shop.status = 404
        self.assertEqual(self.stop("wiki"), "stopped: blog, shop down")
        token = int(self.stopped.read_text())
        self.assertEqual(belay.connect(self.url).status("LOCK#DB#10.0.1.5:5432")["token"], token)

    def test_an_application_whose_status_is_unknown_counts_as_up(self):
        self.app("wiki")
        self.registry["shop"] = {"url": "http://name.invalid/", "databases": ["10.0.1.5:5432"]}
        self.assertEqual(self.stop("wiki"), "skipped: shop is UNKNOWN")
        self.assertFalse(self.stopped.exists())

    def test_it_is_left_alone_while_another_controller_works_on_it(self):
        self.app("wiki")
        with belay.connect(self.url, owner="blog").lock("LOCK#DB#10.0.1.5:5432"):
            self.assertEqual(self.stop("wiki", LOCK_WAIT="200ms"), "skipped: blog is stopping or starting it")
        self.assertFalse(self.stopped.exists())
        self.assertEqual(self.stop("wiki"), "stopped: not shared")

    def test_it_is_short(self):
        self.assertLess(len((PYTHON / "examples/shared_database.py").read_text(encoding="utf-8").splitlines()), 80)


class Details(Case):
    def test_durations(self):
        for given, expected in (("10m", 600000), ("1h30m", 5400000), ("1.5s", 1500), ("250ms", 250), (2, 2000), (0.5, 500),
                                (timedelta(minutes=1), 60000), (None, None)):
            self.assertEqual(milliseconds("ttl", given), expected, given)
        for bad in ("", "10", "soon", "10 m", "-5s", "m"):
            with self.assertRaisesRegex(belay.Invalid, f"ttl '{bad}' is not a duration"):
                milliseconds("ttl", bad)

    def test_bad_urls_are_named(self):
        for bad in ("127.0.0.1:7420", "ftp://x", []):
            with self.assertRaisesRegex(belay.Invalid, "is not the URL of a server"):
                belay.connect(bad)

    def test_a_lock_is_acquired_once(self):
        lock = belay.connect(self.url).lock("once")
        with lock:
            with self.assertRaisesRegex(belay.Invalid, "is held: make a new one"):
                lock.acquire()
        with self.assertRaisesRegex(belay.Invalid, "is released: make a new one"):
            lock.acquire()

    def test_a_lock_that_was_released_inside_the_block_is_fine(self):
        with belay.connect(self.url).lock("early") as lock:
            lock.release("failed")
        self.assertEqual(belay.connect(self.url).status("early")["outcome"], "failed")

    def test_a_url_may_have_a_path(self):
        with self.assertRaises(belay.NotFound):
            belay.connect(self.url + "/elsewhere").status("k")

    def test_the_clock_decides_before_any_thread_has_noticed(self):
        """As after a pause of the whole process: the thread that watches the deadline may not have run yet (L6)."""
        for look in (lambda lock: lock.check(), lambda lock: lock.release(), lambda lock: lock.renew()):
            lock = belay.connect(self.url).lock("paused", lock_id=f"paused-{id(look)}").acquire()
            with lock._changed:
                lock._deadline = clock() - 0.001
            self.assertFalse(lock.is_held)
            with self.assertRaisesRegex(belay.LockLost, "its lease is over"):
                look(lock)
            self.assertTrue(lock.lost.is_set())
            belay.connect(self.url).force("paused", "test")

    def test_of_two_waits_with_one_id_the_later_one_takes_over(self):
        client, later, results = belay.connect(self.url, owner="two"), belay.connect(self.url, owner="two"), []

        def wait():
            try:
                results.append(client.lock("two", wait="60s", lock_id="two-1").acquire())
            except belay.LockHeld as error:
                results.append(error.code)
        with belay.connect(self.url).lock("two", ttl="60s"):
            thread = threading.Thread(target=wait)
            thread.start()
            while not client.status("two")["waiting"]:
                time.sleep(0.01)
            second = threading.Thread(target=lambda: results.append(later.lock("two", wait="60s", lock_id="two-1").acquire().token))
            second.start()
            thread.join(PATIENCE)
            self.assertEqual(results, ["superseded"])
        second.join(PATIENCE)
        self.assertGreater(results[1], 0)

    def test_threads_end_with_the_lock(self):
        with belay.connect(self.url).lock("threads", ttl="60s"):
            names = [thread.name for thread in threading.enumerate()]
            self.assertEqual(names.count("belay threads"), 2)
            threads = [thread for thread in threading.enumerate() if thread.name == "belay threads"]
        for thread in threads:
            thread.join(PATIENCE)
            self.assertFalse(thread.is_alive())

    def test_closing_a_stream_ends_its_iteration(self):
        stream = belay.connect(self.url).events("never")
        ended = threading.Event()
        threading.Thread(target=lambda: (list(stream), ended.set()), daemon=True).start()
        stream.close()
        self.assertTrue(ended.wait(PATIENCE))

    def test_a_renewal_with_a_shorter_ttl_hastens_the_heartbeat(self):
        with belay.connect(self.url).lock("hasty", ttl="10m") as lock:
            lock.renew("3s")
            self.assertFalse(lock.lost.wait(5), lock.loss_reason)

    def test_many_tasks_wait_and_the_release_is_not_behind_them(self):
        async def hold(client, turns, n):
            async with client.lock("turns", ttl="30s", wait="60s") as lock:
                turns.append(lock.token)

        async def main():
            client, turns = belay.connect_async(self.url, owner="tasks"), []
            client_of = [belay.connect_async(self.url, owner=f"task-{n}") for n in range(40)]
            async with client.lock("turns", ttl="30s"):
                tasks = [asyncio.create_task(hold(client_of[n], turns, n)) for n in range(40)]
                while len((await client.status("turns"))["waiting"] or []) < 10:
                    await asyncio.sleep(0.02)
            await asyncio.gather(*tasks)
            return turns
        turns = asyncio.run(main())
        self.assertEqual(turns, sorted(turns))
        self.assertEqual(len(set(turns)), 40)

    def test_a_program_that_ends_while_it_waits_for_an_event_is_not_held_up(self):
        async def main():
            stream = await belay.connect_async(self.url).events("never")
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(stream.__anext__(), 0.1)
        code = threading.Thread(target=lambda: asyncio.run(main()), daemon=True)
        code.start()
        code.join(PATIENCE)
        self.assertFalse(code.is_alive())


if __name__ == "__main__":
    unittest.main()
