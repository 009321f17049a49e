"""Helpers for tests of `belay serve`. Every answer is checked against the server's own /openapi.json."""

import hashlib
import http.client
import json
import os
import queue
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.parse
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "cli"))
from support import BELAY, LOCK_FIELDS, PATIENCE, ROOT, BelayCase, main, unless_stalled, wait_until  # noqa: E402,F401


def quoted(key):
    return urllib.parse.quote(key, safe="")


def sha256(text):
    return hashlib.sha256(text.encode()).hexdigest()


class Answer:
    def __init__(self, status, headers, body):
        self.status = status
        self.headers = headers
        self.body = body

    def json(self):
        return json.loads(self.body)

    @property
    def error(self):
        return self.json()["error"]

    def __repr__(self):
        return f"{self.status} {self.body[:500]!r}"


class Schema:
    """The part of JSON Schema that the document uses; anything else in it is an error here."""

    KNOWN = {"type", "required", "properties", "items", "$ref", "enum", "oneOf", "additionalProperties", "description",
             "format", "minimum", "maximum", "maxProperties", "maxLength"}
    TYPES = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None)}

    def __init__(self, document):
        self.document = document

    def is_type(self, name, value):
        if name == "integer":
            return isinstance(value, int) and not isinstance(value, bool)
        if name == "number":
            return isinstance(value, (int, float)) and not isinstance(value, bool)
        return isinstance(value, self.TYPES[name])

    def problems(self, schema, value, at="body"):
        unknown = set(schema) - self.KNOWN
        if unknown:
            return [f"{at}: the schema says {unknown}"]
        if "$ref" in schema:
            name = schema["$ref"].removeprefix("#/components/schemas/")
            return self.problems(self.document["components"]["schemas"][name], value, at)
        if "oneOf" in schema:
            fits = [s for s in schema["oneOf"] if not self.problems(s, value, at)]
            return [] if len(fits) == 1 else [f"{at}: fits {len(fits)} of oneOf: {value!r}"]
        types = schema.get("type", [])
        types = [types] if isinstance(types, str) else types
        if types and not any(self.is_type(name, value) for name in types):
            return [f"{at}: {value!r} is not {types}"]
        found = []
        if "enum" in schema and value not in schema["enum"]:
            found.append(f"{at}: {value!r} is not one of {schema['enum']}")
        if isinstance(value, dict):
            found += [f"{at}: {name} is missing" for name in schema.get("required", []) if name not in value]
            for name, item in value.items():
                inside = schema.get("properties", {}).get(name, schema.get("additionalProperties", {}))
                found += [f"{at}: {name} is not allowed"] if inside is False else self.problems(inside, item, f"{at}.{name}")
        if isinstance(value, list):
            for i, item in enumerate(value):
                found += self.problems(schema.get("items", {}), item, f"{at}[{i}]")
        return found


class Server:
    """A running `belay serve`."""

    def __init__(self, case, *args, env=None, config=None, listen="127.0.0.1:0", pass_fds=(), preexec_fn=None):
        self.case = case
        argv = ["serve", "--json", "--log", "json", *args]
        if listen:
            argv += ["--listen", listen]
        if config is not None:
            argv += ["--config", str(config)]
        self.log_path = case.dir / f"serve-{time.monotonic_ns()}.log"
        with open(self.log_path, "wb") as log:
            self.process = case.start(*argv, env=env, stderr=log, pass_fds=pass_fds, preexec_fn=preexec_fn)
        line = self.process.stdout.readline()
        if not line:
            raise AssertionError(f"it did not start: exit {self.process.wait()}: {self.log()}")
        self.hello = json.loads(line)
        self.url = self.hello["listening"][0]
        match = re.fullmatch(r"https?://(.*):(\d+)", self.url)
        self.host, self.port = (match.group(1).strip("[]"), int(match.group(2))) if match else (None, None)
        self.document = None

    def log(self):
        return self.log_path.read_text(encoding="utf-8", errors="replace")

    def log_lines(self):
        return [json.loads(line) for line in self.log().splitlines()]

    def connect(self):
        return http.client.HTTPConnection(self.host, self.port, timeout=PATIENCE)

    def call(self, method, path, body=None, token=None, headers=None, connection=None, check=True):
        """One request and its answer, which must be as documented."""
        own = connection is None
        connection = connection or self.connect()
        headers = dict(headers or {})
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        data = json.dumps(body) if isinstance(body, (dict, list)) else body
        connection.request(method, path, data, headers)
        answer = connection.getresponse()
        result = Answer(answer.status, answer.headers, answer.read())
        if own:
            connection.close()
        if check:
            self.check(method, path, result)
        return result

    def check(self, method, path, answer):
        if self.document is None:
            self.document = self.call("GET", "/openapi.json", check=False).json()
        operation = self.operation(method, path)
        if operation is None:
            self.case.assertIn(answer.status, (400, 404, 405), answer)
            return
        self.case.assertIn(str(answer.status), operation["responses"], f"{method} {path}: {answer}")
        content = operation["responses"][str(answer.status)]["content"]
        kind = answer.headers["Content-Type"].split(";")[0]
        self.case.assertTrue(kind in content or "*/*" in content, kind)
        if kind == "application/json" and method != "HEAD":
            self.case.assertEqual(Schema(self.document).problems(content[kind]["schema"], answer.json()), [])

    def operation(self, method, path):
        method = "get" if method == "HEAD" else method.lower()
        path = path.split("?")[0]
        for template, operations in self.document["paths"].items():
            if re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", template), path):
                return operations.get(method, operations.get(f"x-{method}"))
        return None

    def get(self, path, **more):
        return self.call("GET", path, **more)

    def post(self, path, body, **more):
        return self.call("POST", path, body, **more)

    def acquire(self, key, locked_by="me", connection=None, token=None, **fields):
        return self.post(f"/v1/locks/{quoted(key)}/acquire", {"locked_by": locked_by, **fields}, connection=connection,
                         token=token)

    def renew(self, key, lock_id, token=None, **fields):
        return self.post(f"/v1/locks/{quoted(key)}/renew", {"lock_id": lock_id, **fields}, token=token)

    def release(self, key, lock_id, token=None, **fields):
        return self.post(f"/v1/locks/{quoted(key)}/release", {"lock_id": lock_id, **fields}, token=token)

    def queue(self, key):
        return [w["locked_by"] for w in self.get(f"/v1/locks/{quoted(key)}/queue").json()["waiting"]]

    def wait_for_queue(self, key, owners):
        wait_until(lambda: self.queue(key) == owners, f"the line of {key} to be {owners}, not {self.queue(key)}")

    def acquire_later(self, key, locked_by, token=None, **fields):
        """Acquire in a thread; returns an object whose .get() has the answer."""
        return self.post_later(f"/v1/locks/{quoted(key)}/acquire", {"locked_by": locked_by, **fields}, token=token)

    def post_later(self, path, body, token=None):
        box = queue.Queue()

        def ask():
            try:
                box.put(self.post(path, body, token=token))
            except OSError as error:  # the test has ended, and the server too
                box.put(error)
        threading.Thread(target=ask, daemon=True).start()
        return Later(box)

    def raw(self):
        return socket.create_connection((self.host, self.port), timeout=PATIENCE)

    def stop(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        return self.process.wait(PATIENCE)


class Later:
    def __init__(self, box):
        self.box = box

    def get(self, timeout=PATIENCE):
        return self.box.get(timeout=timeout)

    def is_there(self):
        return not self.box.empty()


class Stream:
    """Server-Sent Events, read as they come."""

    def __init__(self, server, path="/v1/events", token=None, last_id=None):
        self.socket = server.raw()
        head = f"GET {path} HTTP/1.1\r\nHost: {server.host}:{server.port}\r\n"
        head += f"Authorization: Bearer {token}\r\n" if token else ""
        head += f"Last-Event-ID: {last_id}\r\n" if last_id is not None else ""
        self.socket.sendall(head.encode() + b"\r\n")
        self.response = http.client.HTTPResponse(self.socket)
        self.response.begin()
        self.status = self.response.status

    def blocks(self):
        """Every block that ends in an empty line, comments included."""
        lines = []
        while True:
            line = self.response.readline().decode()
            if line == "":
                return
            if line == "\n":
                yield lines
                lines = []
            else:
                lines.append(line.rstrip("\n"))

    def events(self):
        for block in self.blocks():
            fields = dict(line.split(": ", 1) for line in block if not line.startswith(":") and ": " in line)
            if "data" in fields:
                fields["data"] = json.loads(fields["data"])
                yield fields

    def close(self):
        self.socket.close()


def reload_under_load(case, server, admin, reader, rounds=5):
    """Repeated SIGHUP during requests of every kind; nothing fails and no client is refused."""
    problems = []
    is_over = threading.Event()

    def ask(n):
        connection = server.connect()
        for _ in range(rounds):
            key = f"k{n}"
            lock = server.acquire(key, "load", token=admin, ttl_ms=60000, connection=connection)
            answers = [lock, server.acquire(key, "waits", token=admin, wait_ms=20, connection=connection)]
            answers += [server.get(path, token=reader, connection=connection)
                        for path in ("/v1/locks", f"/v1/locks/{key}", f"/v1/locks/{key}/queue", "/v1/me", "/v1/apps")]
            answers.append(server.call("DELETE", f"/v1/locks/{key}?reason=load", token=admin, connection=connection))
            problems.extend(repr(a) for a in answers if a.status not in (200, 409))
        connection.close()

    def listen():
        while not is_over.is_set():
            try:
                stream = Stream(server, "/v1/live", token=reader)
                for _ in stream.events():
                    pass
                stream.close()
            except (OSError, http.client.HTTPException):
                return  # the server is gone, which other checks report

    def ask_and_tell(n):
        try:
            ask(n)
        except (OSError, http.client.HTTPException, AssertionError) as error:
            problems.append(repr(error))

    threads = [threading.Thread(target=ask_and_tell, args=(n,), daemon=True) for n in range(6)]
    threads.append(threading.Thread(target=listen, daemon=True))
    for thread in threads:
        thread.start()
    reloads = 0
    while any(thread.is_alive() for thread in threads[:-1]):
        reloads += 1
        server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: server.log().count('"reloaded"') >= reloads, "the reload")
    is_over.set()
    case.assertGreater(reloads, 5)
    case.assertEqual(problems, [])
    case.assertEqual(server.stop(), 0)


class ServerCase(BelayCase):
    UNCLAIMED_IS_RELEASED = True  # a lock that is granted to a client that is gone; else it is left to its lease
    UNCLAIMED_TTL_MS = 60000

    def serve(self, *args, **more):
        return Server(self, *args, **more)

    def write_config(self, text):
        path = self.dir / "server.yaml"
        path.write_text(text)
        path.chmod(0o600)
        return path

    def config_with(self, tokens):
        """{secret: (name, role, [patterns])} as a configuration file."""
        lines = ["server:", "  tokens:"]
        for secret, (name, role, keys) in tokens.items():
            entry = {"name": name, "role": role, "sha256": sha256(secret)}
            if keys:
                entry["keys"] = keys
            lines.append(f"    - {json.dumps(entry)}")
        return self.write_config("\n".join(lines) + "\n")
