"""A real `belay serve` on loopback, and the program as its client."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import urllib.parse
import urllib.request
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "cli"))

from run_support import RunCase  # noqa: E402
from support import BELAY, free_port, wait_until  # noqa: E402


class RemoteCase(RunCase):
    """BELAY_STORE names a server, whose own store is a file of this test."""

    tokens = []  # (name, role, secret)

    def setUp(self):
        super().setUp()
        self.file = self.store
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.env["BELAY_STORE"] = self.url
        self.write_tokens()
        self.server = None
        self.serve()

    def write_tokens(self):
        config = {"server": {"tokens": [
            {"name": name, "role": role, "sha256": hashlib.sha256(secret.encode()).hexdigest()}
            for name, role, secret in self.tokens]}} if self.tokens else {}
        Path(self.path("server.yaml")).write_text(json.dumps(config), encoding="utf-8")

    def serve(self, *more):
        """Start it, on the same port and file as before."""
        log = open(self.path("server.log"), "a", encoding="utf-8")
        self.addCleanup(log.close)
        self.server = subprocess.Popen(
            [BELAY, "serve", "--json", "--config", self.path("server.yaml"), "--store", self.file, "--listen",
             f"127.0.0.1:{self.port}", *more], env=self.environment({"BELAY_STORE": None}), cwd=self.dir,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, encoding="utf-8")
        self.addCleanup(self.end, self.server)
        line = self.server.stdout.readline()
        self.assertIn("listening", line, self.read("server.log"))

    def kill_server(self):
        os.kill(self.server.pid, signal.SIGKILL)
        self.server.wait()

    def local(self, *args):
        """The server's own file, read without the server."""
        return self.belay(*args, env={"BELAY_STORE": self.file})

    def queue(self, key):
        """The names of the waiters, in order."""
        quoted = urllib.parse.quote(key, safe="")
        with urllib.request.urlopen(f"{self.url}/v1/locks/{quoted}/queue", timeout=10) as answer:
            return [one["locked_by"] for one in json.load(answer)["waiting"]]


__all__ = ["RemoteCase", "free_port", "wait_until"]
