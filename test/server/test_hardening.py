"""
Malformed, oversized, slow, half-closed and too many requests: the server keeps serving the others, answers with a clear
error, and says so in its log. BELAY_CONNECTIONS: how many connections are open at once (default 10000).
BELAY_WAITERS: how many of them wait for a lock (default 1000).
"""

import json
import os
import re
import resource
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time

from server_support import BELAY, PATIENCE, Server, ServerCase, main, wait_until

CONNECTIONS = int(os.environ.get("BELAY_CONNECTIONS", "10000"))
WAITERS = int(os.environ.get("BELAY_WAITERS", "1000"))
IS_SANITIZED = b"__asan_init" in open(BELAY, "rb").read()


def head(line, *headers):
    return "\r\n".join([line, "Host: localhost", *headers, "", ""]).encode()


class Attached(Server):
    """A server that was started otherwise."""

    def __init__(self, case, process, log_path):
        self.case, self.process, self.log_path, self.document = case, process, log_path, None
        self.url = json.loads(process.stdout.readline())["listening"][0]
        self.host, self.port = "127.0.0.1", int(self.url.rsplit(":", 1)[1])


def read_all(connection):
    data = b""
    while chunk := connection.recv(65536):
        data += chunk
    return data


class Hardening(ServerCase):
    def setUp(self):
        super().setUp()
        self.server = self.serve()

    def others_are_served(self):
        self.assertEqual(self.server.get("/healthz").status, 200)
        self.assertEqual(self.server.acquire(f"k{time.monotonic_ns()}").status, 200)

    def say(self, data, half_close=True):
        """Send it, and read all that is answered."""
        with self.server.raw() as connection:
            try:
                connection.sendall(data)
                if half_close:
                    connection.shutdown(socket.SHUT_WR)
            except OSError:
                pass  # it has had enough of us; the answer is there to be read
            return read_all(connection)

    def refuses(self, data, status):
        answer = self.say(data)
        self.assertRegex(answer, rb"^HTTP/1\.1 %d " % status, data[:80])
        body = json.loads(answer.partition(b"\r\n\r\n")[2])
        self.assertTrue(body["error"]["code"] and body["error"]["message"])
        self.assertIn(b"Connection: close", answer)

    def test_malformed_requests_get_an_error_and_a_line_in_the_log(self):
        cases = [b"GARBAGE\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"GET\r\n\r\n",
                 b"GET / HTTP/9.9\r\n\r\n", head("GET /a b HTTP/1.1"), b"GET / HTTP/1.1\r\n\r\n",
                 head("GET / HTTP/1.1", "Bad Header: x"), head("GET / HTTP/1.1", "X\x00: y"),
                 head("POST / HTTP/1.1", "Content-Length: -1"), head("POST / HTTP/1.1", "Content-Length: 5", "Content-Length: 6"),
                 head("POST / HTTP/1.1", "Content-Length: 5", "Transfer-Encoding: chunked"),
                 head("POST /v1/acquire HTTP/1.1", "Transfer-Encoding: chunked") + b"zz\r\n"]
        for data in cases:
            with self.subTest(data[:40]):
                before = self.server.log().count('"event":"http"')
                answer = self.say(data)
                self.assertRegex(answer, rb"^HTTP/1\.1 (400|501|505) ")
                wait_until(lambda n=before: self.server.log().count('"event":"http"') > n, "the log to say so")
        self.others_are_served()

    def test_oversized_requests_are_refused_before_they_are_read(self):
        self.refuses(head("GET /" + "x" * 9000 + " HTTP/1.1"), 414)
        self.refuses(head("GET / HTTP/1.1", "X-Big: " + "x" * 17000), 431)
        self.refuses(head("GET / HTTP/1.1", *[f"X-{i}: y" for i in range(100)]), 431)
        self.refuses(head("POST /v1/acquire HTTP/1.1", f"Content-Length: {2 << 20}"), 413)
        chunk = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
        self.refuses(head("POST /v1/acquire HTTP/1.1", "Transfer-Encoding: chunked") + chunk * 20, 413)
        log = self.server.log()
        for status in (413, 414, 431):
            self.assertIn(f"({status})", log)
        self.others_are_served()

    def test_slow_requests_end_in_408_and_delay_no_other_client(self):
        """One byte a second, in the head and in the body."""
        n = 50
        begun = [b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Slow: ", head("POST /v1/acquire HTTP/1.1", "Content-Length: 100") + b"{"]
        slow = []
        for i in range(n):
            connection = self.server.raw()
            self.addCleanup(connection.close)
            connection.sendall(begun[i % 2])
            slow.append(connection)
        heads = {connection: b"" for connection in slow[::2]}
        end = time.monotonic() + PATIENCE
        while not all(b" 408 " in answer for answer in heads.values()):
            self.assertLess(time.monotonic(), end)
            for connection in slow:
                try:
                    connection.send(b"x")
                except OSError:
                    pass
            for connection in select.select(list(heads), [], [], 0)[0]:
                try:
                    heads[connection] += connection.recv(4096)
                except OSError:
                    pass
            self.others_are_served()
            time.sleep(1)  # it is what this is about
        self.assertIn("(408)", self.server.log())

    def test_a_half_closed_connection_still_gets_its_answers(self):
        body = b'{"locked_by":"me","ttl_ms":60000}'
        post = head("POST /v1/locks/half/acquire HTTP/1.1", f"Content-Length: {len(body)}") + body
        answer = self.say(post + head("GET /healthz HTTP/1.1"))
        self.assertEqual(answer.count(b"HTTP/1.1 200 "), 2)
        # A waiter that closes its side leaves the queue, and gets an answer that says so.
        body = b'{"locked_by":"me","wait_ms":15000,"ttl_ms":60000}'
        answer = self.say(head("POST /v1/locks/half/acquire HTTP/1.1", f"Content-Length: {len(body)}") + body)
        self.assertIn(b"HTTP/1.1 409 ", answer)
        self.others_are_served()

    def test_pipelined_requests_are_all_answered_in_order(self):
        n = 2000
        requests = b"".join(head(f"GET /v1/locks/k{i} HTTP/1.1") for i in range(n))
        answer = self.say(requests)
        self.assertEqual(answer.count(b"HTTP/1.1 404 "), n)
        places = [answer.index(f"'k{i}'".encode()) for i in range(0, n, 97)]
        self.assertEqual(places, sorted(places))

    def test_a_client_that_does_not_read_its_answers_does_no_harm(self):
        with self.server.raw() as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.setblocking(False)
            many = head("GET /openapi.json HTTP/1.1") * 2000
            sent = 0
            for _ in range(200):
                try:
                    sent += connection.send(many[sent % len(many):])
                except BlockingIOError:
                    break
            self.others_are_served()
            before = self.processor_s()
            time.sleep(2)
            self.assertLess(self.processor_s() - before, 0.5, "it is busy with what it cannot send")
        self.assertLess(self.memory_kib(), 600 * 1024 if IS_SANITIZED else 100 * 1024)

    def processor_s(self):
        with open(f"/proc/{self.server.process.pid}/stat", encoding="ascii") as stat:
            user, system = stat.read().rsplit(")", 1)[1].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    def memory_kib(self):
        with open(f"/proc/{self.server.process.pid}/status", encoding="ascii") as status:
            return int([line for line in status if line.startswith("VmRSS")][0].split()[1])


class FullDisk(ServerCase):
    """503 for writes that fail, all else works, and nothing acknowledged is lost (L1, L2)."""

    def metadata(self):
        """Many different errors: a repeated one is logged once."""
        return {f"m{i}": os.urandom(2000).hex() for i in range(60)}

    def fill(self, server, folder, make_room):
        held = server.acquire("first", "me", ttl_ms=600000).json()
        acknowledged = {"first": held["token"]}
        for n in range(1000):
            answer = server.acquire(f"k{n}", metadata=self.metadata(), ttl_ms=600000)
            if answer.status != 200:
                break
            acknowledged[f"k{n}"] = answer.json()["token"]
        self.assertEqual(answer.status, 503, answer)
        self.assertRegex(answer.error["message"], "no space left")
        self.others_are_served(server, held)
        self.nothing_is_lost(server, folder, acknowledged)
        make_room()  # it continues without a restart
        wait_until(lambda: server.acquire("after", metadata=self.metadata()).status == 200, "it to write again")
        self.assertEqual(server.renew("first", held["lock_id"]).json()["token"], held["token"])
        self.assertEqual(server.release("first", held["lock_id"]).status, 200)

    def others_are_served(self, server, held):
        self.assertEqual(server.get("/healthz").status, 200)
        self.assertEqual(server.get("/v1/locks/first").json()["lock_id"], held["lock_id"])
        self.assertEqual(server.get("/v1/locks/first/queue").json()["waiting"], [])
        self.assertIn("first", [lock["key"] for lock in server.get("/v1/locks?limit=1000").json()["locks"]])
        self.assertEqual(server.acquire("first", "rival").status, 409)
        refused = [line for line in server.log_lines() if line.get("status") == 503]
        self.assertTrue(refused, "the log does not say so")
        self.assertTrue(any("no space left" in json.dumps(line) for line in server.log_lines()), refused)

    def nothing_is_lost(self, server, folder, acknowledged):
        """As a crash would leave the files at this moment, on a disk with room."""
        copy = self.dir / "copy"
        copy.mkdir()
        server.process.send_signal(signal.SIGSTOP)
        for name in os.listdir(folder):
            if re.fullmatch(r"locks\.db(-wal|-ledger-\d)?", name):
                shutil.copyfile(os.path.join(folder, name), copy / name)
        server.process.send_signal(signal.SIGCONT)
        crashed = self.serve("--store", f"sqlite:{copy}/locks.db")
        for key, token in acknowledged.items():
            now = crashed.get(f"/v1/locks/{key}").json()
            self.assertEqual((now.get("status"), now.get("token")), ("active", token), key)
        self.assertEqual(crashed.stop(), 0)

    def test_a_full_disk_is_reported_and_survived(self):
        """A small disk of its own, in a mount namespace."""
        disk = self.dir / "disk"
        disk.mkdir()
        space = ["unshare", "--map-root-user", "--mount", "sh", "-c",
                 'mount -t tmpfs -o size=12m tmpfs "$1" && shift && exec "$@"', "sh", str(disk)]
        if subprocess.run([*space, "true"], capture_output=True, check=False).returncode != 0:
            self.skipTest("no mount namespace can be had here")
        log_path = self.dir / "full.log"
        with open(log_path, "wb") as log:
            process = subprocess.Popen([*space, BELAY, "serve", "--json", "--log", "json", "--store", f"sqlite:{disk}/locks.db",
                                        "--listen", "127.0.0.1:0"], env=self.environment(None), stdin=subprocess.DEVNULL,
                                       stdout=subprocess.PIPE, stderr=log, encoding="utf-8")
        self.addCleanup(self.end, process)
        server = Attached(self, process, log_path)
        folder = f"/proc/{process.pid}/root{disk}"
        filler = os.path.join(folder, "filler")
        with open(filler, "wb", buffering=0) as file:
            try:
                while True:
                    file.write(b"x" * 4096)
            except OSError:
                pass
        self.fill(server, folder, lambda: os.remove(filler))

    def test_a_limit_on_the_size_of_files_is_a_full_disk(self):
        """Needs no privileges, so it runs everywhere."""
        disk = self.dir / "limited"
        disk.mkdir()
        server = self.serve("--store", f"sqlite:{disk}/locks.db", preexec_fn=lambda: resource.setrlimit(
            resource.RLIMIT_FSIZE, (3 << 20, resource.RLIM_INFINITY)))
        self.fill(server, disk, lambda: resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE,
                                                         (resource.RLIM_INFINITY, resource.RLIM_INFINITY)))


class Crowd(ServerCase):
    def setUp(self):
        super().setUp()
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if hard != resource.RLIM_INFINITY and hard < CONNECTIONS + 500:
            self.skipTest(f"only {hard} files may be open here")
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))

    def memory_kib(self, server):
        with open(f"/proc/{server.process.pid}/status", encoding="ascii") as status:
            return int([line for line in status if line.startswith("VmRSS")][0].split()[1])

    def test_ten_thousand_connections_in_little_memory(self):
        """Its own limit on open files it raises itself."""
        # In memory: it is not the disk that is measured here.
        folder = tempfile.mkdtemp(dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        server = self.serve("--store", f"sqlite:{folder}/locks.db",
                            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (1024, CONNECTIONS + 500)))
        keys = [f"k{i}" for i in range(WAITERS // 10)]
        for key in keys:
            server.acquire(key, "holder", lock_id=f"h-{key}", ttl_ms=3600000)
        crowd = []
        self.addCleanup(lambda: [connection.close() for connection in crowd])
        before = self.memory_kib(server)
        for _ in range(CONNECTIONS - WAITERS):
            connection = server.raw()
            crowd.append(connection)
            connection.sendall(head("GET /healthz HTTP/1.1"))
        for connection in crowd:
            self.assertRegex(connection.recv(4096), rb"^HTTP/1\.1 200 ")
        idle = self.memory_kib(server)
        for i in range(WAITERS):
            body = json.dumps({"locked_by": f"w{i}", "wait_ms": 1000000, "ttl_ms": 3600000}).encode()
            connection = server.raw()
            crowd.append(connection)
            path = f"/v1/locks/{keys[i % len(keys)]}/acquire"
            connection.sendall(head(f"POST {path} HTTP/1.1", f"Content-Length: {len(body)}") + body)
        wait_until(lambda: sum(server.get("/v1/locks?limit=1000").json()["waiting"].values()) == WAITERS,
                   "all to be in line", PATIENCE * 4)
        each = (idle - before) / (CONNECTIONS - WAITERS), (self.memory_kib(server) - idle) / WAITERS
        print(f"\n{CONNECTIONS} connections: {each[0]:.1f} KiB for an idle one, {each[1]:.1f} KiB for one that waits")
        self.assertLess(each[0], 60 if IS_SANITIZED else 12)
        self.assertLess(each[1], 250 if IS_SANITIZED else 40)
        # Other clients are served, and the queue moves.
        self.assertEqual(server.acquire("free").status, 200)
        server.release(keys[0], f"h-{keys[0]}")
        self.assertRegex(crowd[CONNECTIONS - WAITERS].recv(65536), rb"^HTTP/1\.1 200 ")


class LongReads(ServerCase):
    """Issue 12, items 16 and 40: large reads and many requests at once do not delay other clients."""

    KEYS = 6000
    LISTS = 64
    STREAMS = 400

    def setUp(self):
        super().setUp()
        self.server = self.serve()

    def pipeline(self, requests):
        """All at once on one connection, read in a thread; returns the statuses as they come."""
        connection = self.server.raw()
        self.addCleanup(connection.close)
        statuses = []

        def read():
            stream = connection.makefile("rb")
            try:
                while line := stream.readline():
                    size = 0
                    statuses.append(int(line.split()[1]))
                    while (header := stream.readline()) not in (b"\r\n", b""):
                        if header.lower().startswith(b"content-length:"):
                            size = int(header.split(b":")[1])
                    stream.read(size)
            except (OSError, ValueError):
                pass  # the test is over
        threading.Thread(target=read, daemon=True).start()
        threading.Thread(target=lambda: connection.sendall(b"".join(requests)), daemon=True).start()
        return statuses

    def fill(self):
        def acquire(i):
            body = json.dumps({"locked_by": f"w{i}", "ttl_ms": 3600000}).encode()
            return head(f"POST /v1/locks/k{i:05}/acquire HTTP/1.1", f"Content-Length: {len(body)}") + body
        statuses = self.pipeline([acquire(i) for i in range(self.KEYS)])
        wait_until(lambda: len(statuses) == self.KEYS, "the locks to be taken", 4 * PATIENCE)
        self.assertEqual(set(statuses), {200})

    def others_are_served_until(self, is_over):
        n = 0
        until = time.monotonic() + 4 * PATIENCE
        connection = self.server.connect()
        while not is_over():
            self.assertEqual(self.server.call("GET", "/healthz", connection=connection, check=False).status, 200)
            n += 1
            self.assertLess(time.monotonic(), until)
        connection.close()
        return n

    def test_pipelined_lists_do_not_delay_other_clients(self):
        self.fill()
        lists = self.pipeline([head("GET /v1/locks?status=expired&limit=1000 HTTP/1.1")] * self.LISTS)
        n = self.others_are_served_until(lambda: len(lists) == self.LISTS)
        self.assertEqual(set(lists), {200})
        self.assertGreater(n, self.LISTS // 2, "others had to wait for the lists")

    def test_reading_a_history_does_not_delay_other_requests(self):
        self.fill()
        lists = self.pipeline([head("GET /v1/locks/k00000/history HTTP/1.1")] * self.LISTS)
        n = self.others_are_served_until(lambda: len(lists) == self.LISTS)
        self.assertEqual(set(lists), {200})
        self.assertGreater(n, self.LISTS // 2, "others had to wait for the histories")

    def test_streams_that_resume_long_ago_do_not_delay_other_requests(self):
        """One client may open hundreds. The prefix keeps them from being cut off as too slow."""
        self.fill()
        for _ in range(self.STREAMS):
            stream = self.server.raw()
            self.addCleanup(stream.close)
            stream.sendall(head("GET /v1/events?prefix=none&last_event_id=0 HTTP/1.1"))
        took = []
        connection = self.server.connect()
        until = time.monotonic() + 3
        while time.monotonic() < until:
            began = time.monotonic()
            self.assertEqual(self.server.call("GET", "/healthz", connection=connection, check=False).status, 200)
            took.append(time.monotonic() - began)
        connection.close()
        self.assertLess(sorted(took)[-2:][0], 0.3, "others had to wait for the streams")

    def test_requests_after_a_list_are_answered_in_order(self):
        self.server.acquire("k", lock_id="mine", ttl_ms=60000)
        body = b'{"lock_id":"mine"}'
        statuses = self.pipeline([head("GET /v1/locks HTTP/1.1"), head("GET /v1/locks/none/history HTTP/1.1"),
                                  head("POST /v1/locks/k/release HTTP/1.1", f"Content-Length: {len(body)}") + body,
                                  head("GET /v1/locks/k/history?limit=x HTTP/1.1"), head("GET /metrics HTTP/1.1"),
                                  head("GET /no HTTP/1.1")])
        wait_until(lambda: len(statuses) == 6, "all answers")
        self.assertEqual(statuses, [200, 200, 200, 400, 200, 404])

    def test_it_stops_while_lists_are_under_way(self):
        self.fill()
        self.pipeline([head("GET /v1/locks?status=expired HTTP/1.1")] * self.LISTS)
        self.pipeline([head("GET /metrics HTTP/1.1")] * self.LISTS)
        self.others_are_served_until(lambda: True)
        self.assertEqual(self.server.stop(), 0)


class Strangers(ServerCase):
    """Issue 12, item 16: clients without a token cannot block clients with one."""

    def setUp(self):
        super().setUp()
        self.server = self.serve(config=self.config_with({"secret-locker": ("ci", "locker", None),
                                                          "secret-reader": ("watcher", "reader", None)}))
        self.crowd = []
        self.addCleanup(lambda: [connection.close() for connection in self.crowd])

    def come(self, data=b""):
        connection = self.server.raw()
        self.crowd.append(connection)
        connection.sendall(data)
        return connection

    def test_bodies_are_read_only_after_authentication(self):
        lock = self.server.acquire("k", token="secret-locker", ttl_ms=60000).json()
        part = b"x" * 60000
        for headers, status in (((), 401), (("Authorization: Bearer guessed",), 401),
                                (("Authorization: Bearer secret-reader",), 403)):
            for path in ("/v1/acquire", "/v1/terraform/state", "/v1/locks/k/renew"):
                connection = self.come(head(f"POST {path} HTTP/1.1", f"Content-Length: {1 << 20}", *headers) + part)
                self.assertRegex(connection.recv(65536), rb"^HTTP/1\.1 %d " % status, (path, headers))
        self.assertRegex(self.come(head("POST /no/such HTTP/1.1", "Content-Length: 100000")).recv(65536), rb"^HTTP/1\.1 404 ")
        self.assertRegex(self.come(head("POST /v1/locks HTTP/1.1", "Content-Length: 100000")).recv(65536), rb"^HTTP/1\.1 405 ")
        self.assertEqual(self.server.renew("k", lock["lock_id"], token="secret-locker").status, 200)

    def test_many_large_bodies_do_not_block_renewals(self):
        lock = self.server.acquire("k", token="secret-locker", ttl_ms=60000).json()
        for _ in range(300):
            self.come(head("POST /v1/acquire HTTP/1.1", f"Content-Length: {1 << 20}") + b"x" * 1000)
        for _ in range(3):
            self.assertEqual(self.server.renew("k", lock["lock_id"], token="secret-locker").status, 200)

    def test_idle_connections_do_not_block_new_clients(self):
        self.server.stop()
        server = self.server = self.serve(config=self.write_config(
            (self.dir / "server.yaml").read_text() + "  connections: {max: 64}\n"))
        lock = server.acquire("k", token="secret-locker", ttl_ms=60000).json()
        waiting = server.acquire_later("k", "next", token="secret-locker", lock_id="next", wait_ms=60000, ttl_ms=60000)
        wait_until(lambda: len(server.get("/v1/locks/k/queue", token="secret-reader").json()["waiting"]) == 1)
        for i in range(60):
            self.come(b"" if i % 2 else b"GET /slow HTTP/1.1\r\nHo")

        def renew():
            return server.renew("k", lock["lock_id"], token="secret-locker").status
        self.come()
        wait_until(lambda: renew() == 200, "the first of them to be idle for a second")
        for _ in range(20):
            self.come()
            wait_until(lambda: renew() == 200, "room, once a second for those that came together", 5)
        self.assertIn("idle the longest are closed", server.log())
        server.release("k", lock["lock_id"], token="secret-locker")
        self.assertEqual(waiting.get().status, 200)

    def test_an_address_has_a_limit_that_the_configuration_says(self):
        text = (self.dir / "server.yaml").read_text()
        self.server.stop()
        server = self.serve("--unix", str(self.dir / "s"), config=self.write_config(
            text + '  connections: {per_address: 5, unlimited: ["192.0.2.7", "2001:db8::/32"]}\n'))
        server.acquire("k", token="secret-locker", ttl_ms=60000)
        for i in range(8):  # some may find the connections of the call before still open
            server.acquire_later("k", f"w{i}", token="secret-locker", wait_ms=60000, ttl_ms=3600000)
        wait_until(lambda: b" 503 " in self.ask_once(server), "the limit to be met")
        with socket.socket(socket.AF_UNIX) as local:
            local.connect(str(self.dir / "s"))
            local.sendall(head("GET /healthz HTTP/1.1"))
            self.assertRegex(local.recv(4096), rb"^HTTP/1\.1 200 ")
        server.stop()
        self.fails(78, "serve", "--listen", "127.0.0.1:0", "--config",
                   str(self.write_config(text + '  connections: {unlimited: ["proxy.example"]}\n')))

    @staticmethod
    def ask_once(server):
        with server.raw() as connection:
            connection.sendall(head("GET /healthz HTTP/1.1", "Connection: close"))
            return read_all(connection)

    def test_a_refused_request_with_a_short_body_leaves_the_connection_open(self):
        connection = self.server.connect()
        for _ in range(3):  # http.client sends the body after the head
            self.assertEqual(self.server.acquire("k", connection=connection).status, 401)
            self.assertEqual(self.server.acquire("k", token="secret-reader", connection=connection).status, 403)
        self.assertEqual(self.server.acquire("k", token="secret-locker", connection=connection).status, 200)
        connection.close()


if __name__ == "__main__":
    main()
