"""The link between one client and the server: a small HTTP proxy that can do harm to requests and answers."""

import json
import os
import select
import socket
import sys
import threading
import urllib.parse

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "test", "support"))
from ports import free_port  # noqa: E402

CHUNK = 65536
LIMIT = 1 << 20


class Gone(Exception):
    """One of the two sides has closed its connection."""


def read_message(sock, data=b""):
    """A head with its body: (head, body, rest); the body is None if its length is not in the head."""
    while b"\r\n\r\n" not in data:
        more = sock.recv(CHUNK)
        if not more or len(data) > LIMIT:
            raise Gone
        data += more
    head, body = data.split(b"\r\n\r\n", 1)
    fields = dict(line.lower().split(b":", 1) for line in head.split(b"\r\n")[1:] if b":" in line)
    if b"content-length" not in fields:
        is_request = not head.startswith(b"HTTP/")
        return head + b"\r\n\r\n", b"" if is_request else None, body
    length = int(fields[b"content-length"])
    while len(body) < length:
        more = sock.recv(CHUNK)
        if not more:
            raise Gone
        body += more
    return head + b"\r\n\r\n", body[:length], body[length:]


def route_of(head):
    """The last word of /v1/acquire, /v1/locks/KEY/history; `locks` for the list, `lock` for one lock."""
    target = head.split(b" ", 2)[1].decode("latin-1")
    words = urllib.parse.urlsplit(target).path.strip("/").split("/")
    return "lock" if len(words) == 3 and words[1] == "locks" else words[-1]


def lock_id_of(body):
    try:
        return json.loads(body).get("lock_id")
    except (ValueError, AttributeError):
        return None


class Link:
    def __init__(self, server_port):
        self.server_port = server_port
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.state = "refuse"
        self.faults = []
        self.requests = []  # (route, lock id)
        self.sockets = set()
        self.listener = None
        self.changed = threading.Condition()
        self.set("open")

    def set(self, state):
        with self.changed:
            if state in ("refuse", "cut", "closed"):
                self._close_all(state)
            if state == "cut":
                return
            was_deaf, self.state = self.listener is None, state
            if was_deaf and state in ("open", "partition"):
                self._listen()
            self.changed.notify_all()

    def close(self):
        self.set("closed")

    def add_fault(self, fault):
        with self.changed:
            self.faults.append({"times": 1, "on": "", **fault})

    def seen(self, route):
        with self.changed:
            ids = [lock_id for name, lock_id in self.requests if name == route]
        return {"count": len(ids), "lock_ids": len(set(ids))}

    # ---- connections ----

    def _listen(self):
        self.listener = socket.create_server(("127.0.0.1", self.port), backlog=64)
        threading.Thread(target=self._accept, args=(self.listener,), daemon=True).start()

    def _close_all(self, state):
        if state != "cut" and self.listener is not None:
            self.listener.shutdown(socket.SHUT_RDWR)
            self.listener.close()
            self.listener = None
        for sock in self.sockets:
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # it was not connected any more

    def _accept(self, listener):
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client):
        server = socket.socket()
        with client, server, self._registered(client, server):
            try:
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                rest = b""
                while True:
                    head, body, rest = read_message(client, rest)
                    self._pass()
                    self._exchange(client, server, head, body)
            except (Gone, OSError):
                pass

    def _registered(self, *sockets):
        link = self

        class Registered:
            def __enter__(self):
                with link.changed:
                    link.sockets.update(sockets)

            def __exit__(self, *_):
                with link.changed:
                    link.sockets.difference_update(sockets)
        return Registered()

    def _pass(self):
        """Wait while nothing gets through."""
        with self.changed:
            self.changed.wait_for(lambda: self.state != "partition")
            if self.state != "open":
                raise Gone

    def _hold_back(self, seconds):
        with self.changed:
            if self.changed.wait_for(lambda: self.state in ("refuse", "closed"), seconds):
                raise Gone

    # ---- one request ----

    def _take_fault(self, route):
        with self.changed:
            for fault in self.faults:
                if fault["times"] > 0 and fault["on"] in ("", route):
                    fault["times"] -= 1
                    return fault
        return {"fault": None}

    def _exchange(self, client, server, head, body):
        route = route_of(head)
        with self.changed:
            self.requests.append((route, lock_id_of(body)))
        fault = self._take_fault(route)
        kind = fault["fault"]
        if kind == "cut":
            raise Gone
        if kind == "status":
            client.sendall(self._made_up(fault["status"]))
            return
        if kind == "delay_request":
            self._hold_back(fault["by"])
        try:
            self._forward(client, server, head + body, fault)
        finally:
            if "then" in fault:
                self.set(fault["then"])

    @staticmethod
    def _made_up(status):
        body = json.dumps({"error": {"code": "busy", "message": f"the link answers {status}", "lock": None}})
        return (f"HTTP/1.1 {status} Made up\r\nContent-Type: application/json\r\n"
                f"Content-Length: {len(body)}\r\n\r\n{body}").encode()

    def _forward(self, client, server, request, fault):
        if server.fileno() < 0 or not self._is_connected(server):
            server.connect(("127.0.0.1", self.server_port))
            server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        server.sendall(request)
        self._await_answer(client, server)
        head, body, rest = read_message(server)
        kind = fault["fault"]
        if kind == "drop_answer":
            raise Gone
        if kind == "delay":
            self._hold_back(fault["by"])
        self._pass()
        if kind == "half_answer":
            client.sendall(head + body[:len(body) // 2])
            raise Gone
        client.sendall(head + (rest if body is None else body))
        if body is None:
            self._stream(client, server)

    @staticmethod
    def _is_connected(sock):
        try:
            sock.getpeername()
            return True
        except OSError:
            return False

    def _await_answer(self, client, server):
        """A client that goes away has to be gone for the server too, or it would keep its place in the queue."""
        while True:
            ready, _, _ = select.select([client, server], [], [])
            if server in ready:
                return
            self._pass()
            if client.recv(1, socket.MSG_PEEK) == b"":
                raise Gone

    def _stream(self, client, server):
        while True:
            self._await_answer(client, server)
            data = server.recv(CHUNK)
            self._pass()
            if not data:
                raise Gone
            client.sendall(data)
