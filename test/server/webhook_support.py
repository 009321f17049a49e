"""Receivers of webhooks: real HTTP servers that answer as a test wants."""

import hashlib
import hmac
import http.server
import json
import queue
import socket
import threading

from server_support import PATIENCE


class Receiver:
    """Answers each POST with the next of `statuses`, the last one for ever; keeps what it got."""

    def __init__(self, case, statuses=(200,), host="127.0.0.1", before=None, headers=()):
        self.calls = queue.Queue()
        self.statuses = list(statuses)
        self.n = 0
        receiver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                status = receiver.statuses[min(receiver.n, len(receiver.statuses) - 1)]
                receiver.n += 1
                receiver.calls.put((dict(self.headers), body))
                if before:
                    before()
                self.send_response(status)
                for name, value in headers:
                    self.send_header(name, value)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def do_GET(self):
                receiver.calls.put(("GET", self.path))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *args):
                pass

        class Quiet(http.server.ThreadingHTTPServer):
            address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
            daemon_threads = True

            def handle_error(self, *args):
                pass

        self.server = Quiet((host, 0), Handler)
        self.port = self.server.server_address[1]
        self.url = f"http://{f'[{host}]' if ':' in host else host}:{self.port}/build?x=1"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        case.addCleanup(self.server.server_close)
        case.addCleanup(self.server.shutdown)

    def next(self):
        headers, body = self.calls.get(timeout=PATIENCE)
        return headers, json.loads(body), body

    def lock(self):
        return self.next()[1]


def is_signed(headers, body, secret, signature=None):
    fields = dict(part.split("=", 1) for part in (signature or headers["Belay-Signature"]).split(","))
    expected = hmac.new(secret.encode(), fields["t"].encode() + b"." + body, hashlib.sha256).hexdigest()
    return hmac.compare_digest(expected, fields["v1"])
