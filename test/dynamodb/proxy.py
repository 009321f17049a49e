#!/usr/bin/env python3
"""A proxy between belay and a DynamoDB server, which counts and does harm.

It listens on loopback, keeps connections, and forwards requests. A plan says what goes wrong:

    with Proxy(port_of_the_server) as proxy:
        proxy.plan = Plan(seed=7, throttle=0.05, cut_after=0.05, error_after=0.05)   # by chance, repeatable
        proxy.next("cut_after", None, "throttle")                                    # or one by one
        proxy.answer("PutItem", 400, "AccessDeniedException", "...")                 # or always the same
        proxy.meanwhile(function)                                                    # others are at it during the next harm
        proxy.counts()                                                               # {"UpdateItem": 2}
        proxy.units()                                                                # (2, 0): write units, read units
        proxy.dates                                                                  # 1: unsigned requests, for their Date

An unsigned request only fetches the Date of the refusal: it is counted separately, and harmed only if the plan
has harms_dates.

The harms:

    cut_before    the connection is cut before the request is passed on: it did not happen
    cut_after     ... and after it was applied: the answer is lost
    drop          applied, and never answered: the client waits until its own time-out
    throttle      ProvisionedThroughputExceededException, not applied
    error_before  500, not applied
    error_after   500, although it was applied
    delay         applied and answered, late by plan.delay_s

As a program it prints its port and ends when its standard input is closed:

    proxy.py --upstream PORT [--seed N] [--plan cut_after=0.05,throttle=0.05]

GET /_proxy/counts then returns the counts, and POST /_proxy/plan with {"seed": ..., "cut_after": ...} sets a new plan.
"""
import argparse
import dataclasses
import email.utils
import http.client
import http.server
import json
import random
import socket
import sys
import threading
import time

DECK = 40
HARMS = ("cut_before", "cut_after", "drop", "throttle", "error_before", "error_after", "delay")
APPLIED = ("cut_after", "drop", "error_after", "delay", None)
NAMESPACE = "com.amazonaws.dynamodb.v20120810#"
# Headers of one connection, and those that are rewritten.
HOP_HEADERS = {"connection", "keep-alive", "transfer-encoding", "content-length", "date"}


@dataclasses.dataclass
class Plan:
    """How likely each harm is for a request; they exclude each other."""
    seed: int = 0
    cut_before: float = 0.0
    cut_after: float = 0.0
    drop: float = 0.0
    throttle: float = 0.0
    error_before: float = 0.0
    error_after: float = 0.0
    delay: float = 0.0
    delay_s: float = 0.3
    drop_s: float = 60.0
    date_shift_s: float = 0.0  # added to the Date of every answer: a server whose clock is wrong
    without_date: bool = False
    operations: tuple = ()  # only these; none: all
    harms_dates: bool = False  # also requests that only fetch the Date
    in_a_row: int = 0  # so many harms one after the other are enough; 0: no end of them

    def __post_init__(self):
        self.random = random.Random(self.seed)
        self.deck = []
        self.row = 0

    def draw(self, operation):
        if self.operations and operation not in self.operations:
            return None
        harm = self.choose()
        self.row = self.row + 1 if harm else 0
        if self.in_a_row and self.row > self.in_a_row:
            self.row, harm = 0, None
        return harm

    def chance(self):
        """From 0 to 1, evenly within every DECK draws: what is likely once in forty does come within forty."""
        if not self.deck:
            self.deck = self.random.sample(range(DECK), DECK)
        return (self.deck.pop() + self.random.random()) / DECK

    def choose(self):
        chance = self.chance()
        for harm in HARMS:
            chance -= getattr(self, harm)
            if chance < 0:
                return harm
        return None


@dataclasses.dataclass
class Seen:
    operation: str
    harm: object
    request: dict
    status: int = 0  # of the server's answer; 0: not forwarded
    answer: dict = None
    error: str = ""


class Proxy:
    def __init__(self, upstream_port, plan=None):
        self.upstream_port = upstream_port
        self.plan = plan or Plan()
        self.lock = threading.Lock()
        self.seen = []
        self.harmed = {}
        self.script = []
        self.answers = {}
        self.meanwhiles = []
        self.connections = 0
        self.dates = 0
        self.open = set()
        self.server = _Server(("127.0.0.1", 0), self)
        self.port = self.server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.closing = threading.Event()
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.closing.set()
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()
        self.cut_all()

    def cut_all(self):
        """Cut every connection that is open now."""
        with self.lock:
            connections, self.open = self.open, set()
        for connection in connections:
            _cut(connection)

    # ---- what is to go wrong -------------------------------------------------

    def next(self, *harms):
        """The harms of the next requests, in their order; None lets one pass. They go before the plan."""
        for harm in harms:
            assert harm is None or harm in HARMS, harm
        with self.lock:
            self.script.extend(harms)

    def meanwhile(self, function):
        """Called once, in the next harmed request: after it was applied, if it is, and before the answer to belay."""
        with self.lock:
            self.meanwhiles.append(function)

    def answer(self, operation, status, kind, message=""):
        """Answer this operation ("*": every one) with an error, and do not pass it on; status None: as usual again."""
        with self.lock:
            if status is None:
                self.answers.pop(operation, None)
            else:
                self.answers[operation] = (status, kind, message)

    # ---- what was seen -------------------------------------------------------

    def counts(self):
        with self.lock:
            seen = list(self.seen)
        counts = {}
        for one in seen:
            counts[one.operation] = counts.get(one.operation, 0) + 1
        return counts

    def units(self):
        """The charged units, by AWS's price list, for items of up to 1 KB: (write units, read units)."""
        write = read = 0
        for one in self.requests():
            if one.operation == "TransactWriteItems":
                write += 2 * len(one.request["TransactItems"])  # each is prepared and committed
            elif one.operation == "BatchGetItem":
                read += sum(len(table["Keys"]) for table in one.request["RequestItems"].values())
            elif one.operation in ("GetItem", "Scan"):
                read += 1
            elif one.operation in ("UpdateItem", "PutItem", "DeleteItem"):
                write += 1
        return write, read

    def requests(self, operation=None):
        with self.lock:
            return [one for one in self.seen if operation in (None, one.operation)]

    def reset(self):
        """Forget what was seen, and every harm but the plan."""
        with self.lock:
            self.seen, self.harmed, self.script, self.answers, self.meanwhiles = [], {}, [], {}, []
            self.dates = 0

    # ---- for the connections -------------------------------------------------

    def judge(self, operation, request):
        with self.lock:
            ready = self.answers.get(operation) or self.answers.get("*")
            harm = self.script.pop(0) if self.script else self.plan.draw(operation)
            if ready:
                harm = None
            one = Seen(operation, harm, request)
            self.seen.append(one)
            if harm:
                self.harmed[harm] = self.harmed.get(harm, 0) + 1
            return one, ready

    def judge_date(self):
        with self.lock:
            self.dates += 1
            harm = self.plan.draw("date") if self.plan.harms_dates else None
            return Seen("date", harm, {})

    def others(self, one):
        with self.lock:
            function = self.meanwhiles.pop(0) if one.harm and self.meanwhiles else None
        if function:
            function()


def _cut(connection):
    """At once and rudely: the other side is to see a reset, not a polite end."""
    try:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
    connection.close()


def _json(data):
    try:
        return json.loads(data)
    except ValueError:
        return None


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, address, proxy):
        self.proxy = proxy
        super().__init__(address, _Handler)

    def handle_error(self, request, client_address):
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    timeout = 120

    def setup(self):
        super().setup()
        self.proxy = self.server.proxy
        self.upstream = None
        with self.proxy.lock:
            self.proxy.connections += 1
            self.proxy.open.add(self.connection)

    def finish(self):
        with self.proxy.lock:
            self.proxy.open.discard(self.connection)
        if self.upstream:
            self.upstream.close()
        super().finish()

    def log_message(self, *_):
        pass

    def do_GET(self):
        if self.path == "/_proxy/counts":
            self.reply(200, [], json.dumps({"counts": self.proxy.counts(), "harmed": self.proxy.harmed}).encode())
        else:
            self.reply(404, [], b"{}")

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.path == "/_proxy/plan":
            self.proxy.plan = Plan(**json.loads(body))
            self.reply(200, [], b"{}")
            return
        operation = (self.headers.get("X-Amz-Target") or "").rpartition(".")[2] or "other"
        if "Authorization" in self.headers:
            one, ready = self.proxy.judge(operation, _json(body))
        else:
            one, ready = self.proxy.judge_date(), None
        if ready:
            self.fail(*ready)
            return
        if one.harm in APPLIED:
            self.pass_on(body, one)
            return
        self.proxy.others(one)
        if one.harm == "cut_before":
            self.cut()
        elif one.harm == "throttle":
            self.fail(400, "ProvisionedThroughputExceededException",
                      "The level of configured provisioned throughput for the table was exceeded.")
        else:
            self.fail(500, "InternalServerError", "The request processing has failed.")

    def pass_on(self, body, one):
        try:
            status, headers, answer = self.ask(body)
        except (OSError, http.client.HTTPException) as error:
            one.error = str(error)
            self.cut()
            return
        one.status, one.answer = status, _json(answer)
        self.proxy.others(one)
        if one.harm == "cut_after":
            self.cut()
        elif one.harm == "drop":
            self.proxy.closing.wait(self.proxy.plan.drop_s)
            self.cut()
        elif one.harm == "error_after":
            self.fail(500, "InternalServerError", "The request processing has failed.")
        else:
            if one.harm == "delay":
                time.sleep(self.proxy.plan.delay_s)
            self.reply(status, headers, answer)

    def ask(self, body):
        """Pass it on, on a connection that is kept; once more if the server closed it in between."""
        headers = {name: value for name, value in self.headers.items() if name.lower() not in HOP_HEADERS}
        headers["Content-Length"] = str(len(body))
        for fresh in (False, True):
            if self.upstream is None or fresh:
                self.upstream = http.client.HTTPConnection("127.0.0.1", self.proxy.upstream_port, timeout=60)
                fresh = True
            try:
                self.upstream.request("POST", self.path, body, headers)
                answer = self.upstream.getresponse()
                return answer.status, answer.getheaders(), answer.read()
            except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError):
                self.upstream.close()
                if fresh:
                    raise
        raise AssertionError("not reached")

    def fail(self, status, kind, message):
        body = json.dumps({"__type": NAMESPACE + kind, "message": message}).encode()
        self.reply(status, [("Content-Type", "application/x-amz-json-1.0"), ("x-amzn-RequestId", "PROXY")], body)

    def reply(self, status, headers, body):
        now = time.time()
        for name, value in headers:
            if name.lower() == "date":
                now = email.utils.parsedate_to_datetime(value).timestamp()
        self.send_response_only(status)
        for name, value in headers:
            if name.lower() not in HOP_HEADERS:
                self.send_header(name, value)
        if not self.proxy.plan.without_date:
            self.send_header("Date", email.utils.formatdate(now + self.proxy.plan.date_shift_s, usegmt=True))
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()

    def cut(self):
        self.close_connection = True
        _cut(self.connection)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--upstream", type=int, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--plan", default="", help="HARM=CHANCE,...")
    options = parser.parse_args()
    chances = dict(pair.split("=") for pair in options.plan.split(",") if pair)
    plan = Plan(seed=options.seed, **{name: float(value) for name, value in chances.items()})
    with Proxy(options.upstream, plan) as proxy:
        print(proxy.port, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
