"""Between a client and PostgreSQL: cuts the connection that carries a certain call, keeps the call waiting, or changes
its answer."""
import socket
import struct
import threading
import time


def warning(source):
    """As the server sends it; `source` is the function of PostgreSQL that it comes from."""
    fields = (b"SWARNING", b"VWARNING", b"C01000", b"Mtold by a test", b"R" + source.encode())
    body = b"".join(field + b"\0" for field in fields) + b"\0"
    return b"N" + struct.pack("!I", len(body) + 4) + body


def damaged(data):
    """Rows that libpq cannot read: each has one field more than it says."""
    out = b""
    while len(data) >= 5:
        size = 1 + struct.unpack("!I", data[1:5])[0]
        message, data = data[:size], data[size:]
        if message[:1] == b"D":
            message = message[:5] + struct.pack("!H", struct.unpack("!H", message[5:7])[0] + 1) + message[7:]
        out += message
    return out + data


class Proxy:
    """`cut` is what happens to the next request that contains one of the `wanted` texts: "before" it is forwarded, in its
    "middle", "after" it, before its answer is, or in the "answer" the connection is cut; "hold": it is forwarded once `go`
    is set. `change` is what becomes of the answers to such requests, a function of their bytes."""

    def __init__(self, port, *wanted):
        self.upstream, self.wanted, self.cut, self.cuts = port, wanted, None, 0
        self.is_last = False  # after that nobody can connect
        self.change = None
        self.delay = 0  # seconds, for each request
        self.asked = threading.Event()  # a client has sent something
        self.round_trips = 0  # what clients have asked and waited for
        self.held, self.go = threading.Event(), threading.Event()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self.upstream))
            state = {"mute": None, "change": None}
            threading.Thread(target=self.forward, args=(client, server, state, True), daemon=True).start()
            threading.Thread(target=self.forward, args=(server, client, state, False), daemon=True).start()

    def forward(self, source, target, state, is_request):
        try:
            while data := source.recv(65536):
                if is_request:
                    self.asked.set()
                    time.sleep(self.delay)
                    state["change"] = self.change if any(text in data for text in self.wanted) else None
                    self.round_trips += data.count(b"S\0\0\0\4") + data.startswith(b"Q\0")  # Sync, and a simple query
                elif state["change"]:
                    data = state["change"](data)
                if is_request and self.cut and any(text in data for text in self.wanted):
                    self.cuts += 1
                    how, self.cut = self.cut, None
                    if self.is_last:
                        self.listener.shutdown(socket.SHUT_RDWR)
                    if how == "before":
                        break
                    if how == "middle":
                        target.sendall(data[:len(data) // 2])
                        break
                    if how == "hold":
                        self.held.set()
                        self.go.wait()
                    else:
                        state["mute"] = how
                elif not is_request and state["mute"]:
                    target.sendall(data[:len(data) // 2] if state["mute"] == "answer" else b"")
                    break
                target.sendall(data)
        except OSError:
            pass
        for end in (source, target):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        source.close()

    def close(self):
        self.go.set()
        self.listener.close()
