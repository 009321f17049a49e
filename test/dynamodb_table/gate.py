"""A gate before DynamoDB Local that answers some requests itself, as the real service would."""

import http.client
import json
import threading
import time
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PREFIX = "com.amazonaws.dynamodb.v20120810#"


def failure(name, message="", status=400):
    return status, {"__type": PREFIX + name, "message": message}


def denied(operation):
    return failure("AccessDeniedException",
                   f"User: arn:aws:iam::123456789012:user/ci is not authorized to perform: dynamodb:{operation}")


class Gate:
    """
    rules: operation to a function of the request that returns (status, body), or None to let it pass.
    date_offset: seconds added to the Date of every answer.
    """

    def __init__(self, port):
        self.rules = {}
        self.date_offset = 0
        self.seen = []
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), self.handler(port))
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()

    def deny(self, *operations):
        for operation in operations:
            self.rules[operation] = lambda request, name=operation: denied(name)

    def handler(gate, port):
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args):
                pass

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                operation = self.headers["X-Amz-Target"].split(".")[1]
                gate.seen.append(operation)
                rule = gate.rules.get(operation)
                answer = rule(json.loads(body)) if rule else None
                if answer is None:
                    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
                    connection.request("POST", "/", body, dict(self.headers))
                    got = connection.getresponse()
                    answer = got.status, json.loads(got.read())
                    connection.close()
                status, reply = answer
                data = reply if isinstance(reply, bytes) else json.dumps(reply).encode()
                self.send_response_only(status)
                self.send_header("Date", formatdate(time.time() + gate.date_offset, usegmt=True))
                self.send_header("Content-Type", "application/x-amz-json-1.0")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

        return Handler
