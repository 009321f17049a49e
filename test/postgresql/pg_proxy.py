"""Between a client and PostgreSQL: cuts the connection that carries a certain call, or keeps the call waiting."""
import socket
import threading


class Proxy:
    """`cut` is what happens to the next request that contains one of the `wanted` texts: "before" it is forwarded, in its
    "middle", "after" it, before its answer is, or in the "answer" the connection is cut; "hold": it is forwarded once `go`
    is set."""

    def __init__(self, port, *wanted):
        self.upstream, self.wanted, self.cut, self.cuts = port, wanted, None, 0
        self.is_last = False  # after that nobody can connect
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
            state = {"mute": None}
            threading.Thread(target=self.forward, args=(client, server, state, True), daemon=True).start()
            threading.Thread(target=self.forward, args=(server, client, state, False), daemon=True).start()

    def forward(self, source, target, state, is_request):
        try:
            while data := source.recv(65536):
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
