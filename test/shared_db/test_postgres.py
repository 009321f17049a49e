"""A real PostgreSQL that two applications share, stopped and started by pg_ctl as the configured command."""

import os
import pwd
import shutil
import subprocess
import tempfile
import threading

from shared_db_support import SHORT_TTL, GuardCase, free_port, main, postgres_bin, wait_until

USER = "nobody"  # PostgreSQL refuses to run as root


class PostgreSQL(GuardCase):
    CONTROLLER = {"lock_ttl_seconds": SHORT_TTL}

    @classmethod
    def setUpClass(cls):
        cls.bin = postgres_bin()
        assert cls.bin, "PostgreSQL is not installed: tools/setup does it"
        cls.home = tempfile.mkdtemp(prefix="belay-pg-")
        cls.data = os.path.join(cls.home, "data")
        if os.getuid() == 0:
            shutil.chown(cls.home, USER)
        cls.run_as(cls.command("initdb", "-A", "trust", "-U", "test", "--no-sync", "-D", cls.data))

    @classmethod
    def tearDownClass(cls):
        subprocess.run(cls.command("pg_ctl", "stop", "-m", "immediate", "-D", cls.data), capture_output=True, check=False,
                       cwd="/")
        shutil.rmtree(cls.home, ignore_errors=True)

    @classmethod
    def command(cls, program, *args):
        """As another user, if we are root."""
        drop = ["runuser", "-u", pwd.getpwnam(USER).pw_name, "--"] if os.getuid() == 0 else []
        return [*drop, os.path.join(cls.bin, program), *args]

    @classmethod
    def run_as(cls, command):
        done = subprocess.run(command, capture_output=True, encoding="utf-8", cwd="/", check=False)
        assert done.returncode == 0, done

    def setUp(self):
        super().setUp()
        port = free_port()
        options = f"-p {port} -k {self.home} -c fsync=off -c listen_addresses=127.0.0.1"
        pid = os.path.join(self.data, "postmaster.pid")
        self.DATABASE = f"127.0.0.1:{port}"
        self.ready = self.command("pg_isready", "-q", "-h", "127.0.0.1", "-p", str(port))
        self.configure({"postgres": {
            "stop": {"command": self.command("pg_ctl", "stop", "-m", "fast", "-w", "-D", self.data), "timeout": "60s",
                     "until": {"command": ["test", "!", "-e", pid], "every": "100ms"}},
            "start": {"command": self.command("pg_ctl", "start", "-w", "-D", self.data, "-o", options, "-l",
                                              os.path.join(self.home, "log")), "timeout": "60s",
                      "until": {"command": self.ready, "every": "100ms"}}}})

    def running(self):
        return subprocess.run(self.ready, check=False, cwd="/").returncode == 0

    def query(self):
        done = subprocess.run(self.command("psql", "-h", "127.0.0.1", "-p", self.DATABASE.rsplit(":", 1)[1], "-U", "test",
                                           "-Atc", "SELECT 42", "postgres"), capture_output=True, encoding="utf-8", cwd="/",
                              check=False)
        return done.stdout.strip()

    def test_two_applications_share_it_from_start_to_end(self):
        shop, billing = self.application("shop"), self.application("billing")
        self.assertFalse(self.running())
        started = self.ok("db", "start", "--app", "shop", "--json").json()["results"][0]
        self.assertEqual(started["action"], "started")
        self.assertEqual(self.query(), "42")
        self.assertEqual(self.ok("db", "start", "--app", "billing", "--json").json()["results"][0]["action"], "skipped")
        shop.down()
        self.assertEqual(self.stop("shop", code=75)["reason"], "billing is UP")
        self.assertEqual(self.query(), "42")
        billing.down()
        self.assertEqual(self.stop("billing")["action"], "stopped")
        self.assertFalse(self.running())
        self.assertEqual(self.stop("billing")["action"], "skipped")

    def test_two_stops_and_a_start_at_once_end_as_one_of_them_requested(self):
        for name in ("shop", "billing"):
            self.application(name).down()
        self.ok("db", "start", "--app", "shop")
        results = {}

        def do(verb, name):
            results[verb, name] = self.belay("db", verb, "--app", name, "--wait", "60s", "--json")

        threads = [threading.Thread(target=do, args=what) for what in (("stop", "shop"), ("stop", "billing"))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        actions = sorted(result.json()["results"][0]["action"] for result in results.values())
        self.assertEqual(actions, ["skipped", "stopped"], results)
        wait_until(lambda: not self.running(), "PostgreSQL is stopped")
        self.ok("db", "start", "--app", "shop")
        self.assertEqual(self.query(), "42")
        self.assertEqual(self.stop("shop", "--wait", "30s")["action"], "stopped")


if __name__ == "__main__":
    main()
