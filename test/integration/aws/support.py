"""Shared by the tests of src/aws and src/http_client: the driver as a process, and small servers on loopback."""
import contextlib
import hashlib
import hmac
import http.server
import json
import os
import re
import socket
import subprocess
import threading

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
DRIVER = os.environ.get("BELAY_AWS_DRIVER", os.path.join(ROOT, "build/dev/aws_driver"))
CACHE = os.environ.get("BELAY_NPM_CACHE", os.path.join(ROOT, "build/npm"))

ID = "AKIDEXAMPLE"
SECRET = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
# Nothing of the machine's own set-up may leak into a test, and no test may reach out of it.
CLEAN = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "AWS_EC2_METADATA_DISABLED": "true",
         "no_proxy": "*", "ASAN_OPTIONS": "detect_leaks=1"}


class Driver(contextlib.AbstractContextManager):
    """aws_driver, spoken to in JSON. On leaving, it must have ended well: no sanitizer spoke."""

    def __init__(self, **env):
        env = {**CLEAN, **env}
        self.process = subprocess.Popen([DRIVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True,
                                        env={k: v for k, v in env.items() if v is not None})
        self.said = []

    def __call__(self, do, **command):
        self.process.stdin.write(json.dumps({"do": do, **command}) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise AssertionError(f"aws_driver is gone: {self.process.stderr.read()}")
        self.said.append(line)
        return json.loads(line)

    def __exit__(self, kind, *_):
        self.process.stdin.close()
        self.process.stdout.close()
        complaints = self.process.stderr.read()
        self.process.stderr.close()
        status = self.process.wait(60)
        if kind is None and (status != 0 or complaints):
            raise AssertionError(f"aws_driver ended with {status}: {complaints}")
        return False


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def serve(self):
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length)
        seen = {"method": self.command, "path": self.path, "headers": self.headers, "body": body,
                "port": self.client_address[1]}
        with self.server.lock:
            self.server.seen.append(seen)
            number = len(self.server.seen)
        answer = self.server.answer(seen, number)
        if answer is None:  # cut the connection
            self.close_connection = True
            with contextlib.suppress(OSError):
                self.connection.shutdown(socket.SHUT_RDWR)
            return
        status, headers, body = answer
        body = body if isinstance(body, bytes) else body.encode()
        self.send_response_only(status)
        if "Date" not in headers:
            self.send_header("Date", self.date_time_string())
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            with contextlib.suppress(OSError):
                self.wfile.write(body)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = serve


class Server(http.server.ThreadingHTTPServer):
    """Answers each request with answer(request, number) -> (status, headers, body), or None to hang up."""
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, answer, address="127.0.0.1", ssl_context=None):
        self.address_family = socket.AF_INET6 if ":" in address else socket.AF_INET
        super().__init__((address, 0), Handler)
        self.answer, self.seen, self.lock = answer, [], threading.Lock()
        if ssl_context:
            self.socket = ssl_context.wrap_socket(self.socket, server_side=True)
        host = f"[{address}]" if ":" in address else address
        self.url = f"{'https' if ssl_context else 'http'}://{host}:{self.server_address[1]}"
        self.thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self.thread.start()

    def handle_error(self, request, client_address):
        pass

    def __exit__(self, *_):
        self.shutdown()
        self.server_close()


def closed_port():
    """A closed port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def json_error(kind, message="no", status=400, **headers):
    return status, headers, json.dumps({"__type": f"com.amazonaws.dynamodb.v20120810#{kind}", "message": message})


def signature_is_right(seen, secret, service, region="eu-west-1"):
    """Whether a request, as it came over the wire, is signed with this secret. For paths that need no rules."""
    parts = re.fullmatch(r"AWS4-HMAC-SHA256 Credential=([^/]+)/(\d{8})/([^/]+)/([^/]+)/aws4_request, "
                         r"SignedHeaders=([^,]+), Signature=([0-9a-f]{64})", seen["headers"].get("Authorization", ""))
    if not parts or (parts[3], parts[4]) != (region, service):
        return False
    names = parts[5].split(";")
    if "host" not in names or "x-amz-date" not in names:
        return False
    path, _, query = seen["path"].partition("?")
    body_hash = hashlib.sha256(seen["body"]).hexdigest()
    body_hash = seen["headers"].get("x-amz-content-sha256", body_hash)
    canonical = "\n".join([seen["method"], path, "&".join(sorted(query.split("&"))),
                           "".join(f"{n}:{' '.join(seen['headers'][n].split())}\n" for n in names), parts[5], body_hash])
    scope = f"{parts[2]}/{region}/{service}/aws4_request"
    text = "\n".join(["AWS4-HMAC-SHA256", seen["headers"]["x-amz-date"], scope,
                      hashlib.sha256(canonical.encode()).hexdigest()])
    key = ("AWS4" + secret).encode()
    for part in (parts[2], region, service, "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    return hmac.compare_digest(hmac.digest(key, text.encode(), "sha256").hex(), parts[6])
