"""A real `belay serve` on a new file, which can be killed and started again."""

import hashlib
import http.client
import json
import os
import signal
import socket
import subprocess
from pathlib import Path

from link import free_port

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 60


def belay_program():
    return os.environ.get("BELAY_BIN", str(ROOT / "build/belay"))


def clean_environment(more):
    """Without what would lead a client elsewhere."""
    kept = {name: value for name, value in os.environ.items()
            if not name.startswith("BELAY_") and not name.lower().endswith("_proxy")}
    return {**kept, **more}


def make_certificates(directory):
    """A CA, and a certificate for 127.0.0.1 that it has signed."""
    def openssl(*arguments):
        subprocess.run(["openssl", *arguments], cwd=directory, check=True, stdin=subprocess.DEVNULL,
                       stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    new_key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    openssl("req", "-x509", *new_key, "-keyout", "ca.key", "-out", "ca.pem", "-days", "2", "-subj", "/CN=scenario CA",
            "-addext", "keyUsage=critical,keyCertSign")
    openssl("req", *new_key, "-keyout", "server.key", "-out", "server.csr", "-subj", "/CN=127.0.0.1")
    (directory / "extensions").write_text("subjectAltName=IP:127.0.0.1\nsubjectKeyIdentifier=hash\n"
                                          "authorityKeyIdentifier=keyid\n")
    openssl("x509", "-req", "-in", "server.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2",
            "-extfile", "extensions", "-out", "server.pem")


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=PATIENCE)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(PATIENCE)
        self.sock.connect(self.path)


class Server:
    def __init__(self, directory, options):
        self.directory = directory
        self.port = free_port()
        self.process = None
        self.unix = str(directory / "sock")
        scheme = "https" if options.get("tls") else "http"
        self.url = f"{scheme}://127.0.0.1:{self.port}"
        self.arguments = ["--listen", f"127.0.0.1:{self.port}"]
        if options.get("unix"):
            self.arguments += ["--unix", self.unix]
        if options.get("tls"):
            make_certificates(directory)
            self.arguments += ["--tls-cert", "server.pem", "--tls-key", "server.key"]
        self._write_config(options.get("tokens", {}))

    def _write_config(self, tokens):
        entries = []
        for secret, token in tokens.items():
            entries.append({**token, "sha256": hashlib.sha256(secret.encode()).hexdigest()})
            self._write_private(secret, secret + "\n")
        config = {"server": {"tokens": entries}} if entries else {}
        self._write_private("server.yaml", json.dumps(config))

    def _write_private(self, name, text):
        path = self.directory / name
        path.touch(mode=0o600)
        path.write_text(text)

    def start(self):
        with open(self.directory / "server.log", "ab") as log:
            self.process = subprocess.Popen(
                [belay_program(), "serve", "--json", "--log", "text", "--config", "server.yaml", "--store",
                 f"sqlite:{self.directory}/belay.db", *self.arguments], cwd=self.directory,
                env=clean_environment({"HOME": str(self.directory)}), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=log)
        if not self.process.stdout.readline():
            raise AssertionError(f"the server does not start: {self.log()}")

    def end(self, number=signal.SIGTERM):
        if self.process is not None:
            self.process.send_signal(number)
            self.process.wait(PATIENCE)
            self.process.stdout.close()
            self.process = None

    def get(self, path):
        """(status, answer), as an admin: over the socket that belongs to the file."""
        connection = UnixConnection(f"{self.directory}/belay.db-serve.sock")
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()

    def log(self):
        return (self.directory / "server.log").read_text(errors="replace")
