"""HTTP to one of several servers of the same store. It knows nothing about locks."""

from concurrent.futures import CancelledError
import contextlib
import http.client
import json
import os
from pathlib import Path
import re
import selectors
import socket
import ssl
import threading
import time
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple, Union, cast
import urllib.parse

from .errors import BelayError, Invalid, UnknownOutcome, Unavailable, error_of

TRIES = 3
CONNECT_MAX = 3.0
SEVERAL = 4.0  # for an answer, while there is another server that was not asked
ANSWER_MAX = 64 << 20  # bytes


class Fault(Exception):
    """No usable answer. `was_sent`: the server may have done it all the same; `is_answer`: a server is there."""

    def __init__(self, text: str, was_sent: bool, is_answer: bool = False) -> None:
        super().__init__(text)
        self.was_sent = was_sent
        self.is_answer = is_answer


class Cancel(threading.Event):
    """Ends a request that another thread waits for."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self._socket: Optional[socket.socket] = None

    def set(self) -> None:
        super().set()
        self.interrupt()

    def interrupt(self) -> None:
        """Break off the present request, as if its connection was lost."""
        with self._lock, contextlib.suppress(OSError):  # it may be closed already
            if self._socket is not None:
                self._socket.shutdown(socket.SHUT_RDWR)

    def sleep(self, seconds: float) -> None:
        if self.wait(seconds):
            raise CancelledError

    @contextlib.contextmanager
    def watching(self, sock: Optional[socket.socket]) -> Iterator[None]:
        with self._lock:
            self._socket = sock
        try:
            if self.is_set():
                raise CancelledError
            yield
        except (OSError, http.client.HTTPException):
            if self.is_set():
                raise CancelledError from None
            raise
        finally:
            with self._lock:
                self._socket = None


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class Faults:
    """Counts the faults of one request in a row, and says how long to pause before the next try."""

    count = 0
    was_sent = False

    def __init__(self, urls: Sequence[str]) -> None:
        self._servers = len(urls)

    def add(self, fault: Fault) -> None:
        self.count += 1
        self.was_sent = self.was_sent or fault.was_sent

    def reset(self) -> None:
        self.count, self.was_sent = 0, False

    def are_too_many(self, tries: int = TRIES) -> bool:
        return self.count >= max(tries, self._servers)

    def pause(self) -> float:
        rounds, rest = divmod(self.count, self._servers)
        return 0.0 if rest else min(0.1 * 2.0 ** (rounds - 1), 1.0)

    def error(self, fault: Fault, is_read: bool = False, lock_id: Optional[str] = None) -> BelayError:
        if self.was_sent and not is_read:
            return UnknownOutcome(f"{fault}; an answer was lost, and it may have happened", lock_id=lock_id)
        return Unavailable(str(fault))


def _is_server(url: str) -> bool:
    try:
        parts = urllib.parse.urlsplit(url)
        return parts.path.startswith("/") if parts.scheme == "unix" else (
            parts.scheme in ("http", "https") and not parts.username and bool((parts.hostname or "").encode("idna")) and parts.port != 0)
    except ValueError:  # a bad port, address or name
        return False


def _is_readable(sock: socket.socket) -> bool:
    with selectors.DefaultSelector() as selector:  # select() takes no descriptor above 1023
        selector.register(sock, selectors.EVENT_READ)
        return bool(selector.select(0))


class Http:
    def __init__(self, urls: Union[str, Sequence[str]], token: Optional[str], ca_file: Optional[str], timeout: float) -> None:
        self.urls = urls.split(",") if isinstance(urls, str) else list(urls)
        self._current = 0
        self._forget_connections()
        for url in self.urls or [""]:
            if not _is_server(url):
                shown = "(with a password)" if "@" in url else url
                raise Invalid(f"'{shown}' is not the URL of a server: http://HOST:PORT, https://… or unix:/path")
        if token and not re.fullmatch(r"[\x21-\x7e]+", token):
            raise Invalid("the token has spaces or other characters that a token cannot have")
        self.timeout = timeout
        self._store = "?"  # of the first answer: all servers must have this one
        self._headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {token}"} if token else {})}
        try:
            is_tls = any(url.startswith("https:") for url in self.urls)
            self._tls = ssl.create_default_context(cafile=ca_file) if is_tls else None
        except OSError as error:
            raise Invalid(f"CA file '{ca_file}': {error}") from None

    def send(self, method: str, path: str, body: Optional[Dict[str, Any]] = None, *, wait: float = 0.0,
             timeout: Optional[float] = None, cancel: Optional[Cancel] = None) -> Dict[str, Any]:
        """One request, one try: the answer, a BelayError, or a Fault. `wait` is how long the server may take by request."""
        server, _, answer, data = self._exchange(method, path, body, wait + (timeout or self.timeout), cancel)
        return self._judge(server, answer.status, data)

    def limit(self, faults: Faults) -> float:
        """How long an answer may take: one of several servers may hang, and then the next one is asked soon."""
        return min(self.timeout, SEVERAL) if faults.count < len(self.urls) and len(self.urls) > 1 else self.timeout

    def call(self, method: str, path: str, body: Optional[Dict[str, Any]] = None, *, tries: int = TRIES,
             is_read: bool = False, lock_id: Optional[str] = None, faults: Optional[Faults] = None) -> Dict[str, Any]:
        """A request that may be repeated, until it is answered or has been tried often enough."""
        faults = faults or Faults(self.urls)
        while True:
            try:
                return self.send(method, path, body, timeout=self.limit(faults))
            except Fault as fault:
                faults.add(fault)
                if faults.are_too_many(tries):
                    raise faults.error(fault, is_read, lock_id) from None
            time.sleep(faults.pause())

    def stream(self, path: str, limit: float, timeout: float, cancel: Cancel) -> Tuple[socket.socket, http.client.HTTPResponse]:
        """The answer to a GET, to be read line by line, and its socket; or a BelayError, or a Fault. `timeout`: of a line."""
        server, sock, answer, data = self._exchange("GET", path, None, limit, cancel, is_stream=True)
        if answer.status != 200:
            self._judge(server, answer.status, data)
        sock.settimeout(timeout)
        return sock, answer

    def close(self) -> None:
        if self._process != os.getpid():
            self._forget_connections()
        with self._lock:
            while any(self._idle):
                next(filter(None, self._idle)).pop().close()

    __del__ = close

    def _forget_connections(self) -> None:
        self._process, self._lock = os.getpid(), threading.Lock()
        self._idle: List[List[http.client.HTTPConnection]] = [[] for _ in self.urls]

    def _connection(self, timeout: float) -> Tuple[http.client.HTTPConnection, int]:
        if self._process != os.getpid():  # a fork: on a shared connection each would read the other's answers
            self._forget_connections()
        with self._lock:
            server = self._current
            while self._idle[server]:
                connection = self._idle[server].pop()
                if connection.sock is not None and not _is_readable(connection.sock):
                    connection.sock.settimeout(timeout)
                    return connection, server
                connection.close()  # the server has closed it
        parts = urllib.parse.urlsplit(self.urls[server])
        limit = min(timeout, self.timeout, CONNECT_MAX)
        if parts.scheme == "unix":
            connection = _UnixConnection(parts.path, limit)
        elif parts.scheme == "https":
            connection = http.client.HTTPSConnection(str(parts.hostname), parts.port, timeout=limit, context=self._tls)
        else:
            connection = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=limit)
        try:
            connection.connect()
        except OSError as error:
            connection.close()
            self._next(server)
            raise Fault(f"cannot connect to {self.urls[server]}: {error}", was_sent=False) from None
        connection.sock.settimeout(timeout)
        return connection, server

    def _next(self, failed: int) -> None:
        with self._lock:
            if self._current == failed:
                self._current = (failed + 1) % len(self.urls)

    def _exchange(self, method: str, path: str, body: Optional[Dict[str, Any]], timeout: float, cancel: Optional[Cancel],
                  is_stream: bool = False) -> Tuple[int, socket.socket, http.client.HTTPResponse, bytes]:
        connection, server = self._connection(timeout)
        sock, is_whole = connection.sock, False
        deadline = threading.Timer(timeout, shut, [sock])  # a socket's own limit begins anew with each byte
        deadline.daemon = True
        try:
            if not is_stream:
                deadline.start()
            with (cancel or Cancel()).watching(sock):
                content = None if body is None else json.dumps(body).encode()
                prefix = "" if sock.family == socket.AF_UNIX else urllib.parse.urlsplit(self.urls[server]).path.rstrip("/")
                store = {"Belay-Store": self._store} if len(self.urls) > 1 else {}
                connection.request(method, prefix + path, content, {**self._headers, **store})
                answer = connection.getresponse()
                if self._store == "?":
                    self._store = answer.headers.get("Belay-Store", "?")
                data = b"" if is_stream and answer.status == 200 else answer.read(ANSWER_MAX)
                if len(data) == ANSWER_MAX:
                    raise http.client.HTTPException(f"an answer of more than {ANSWER_MAX} bytes")
                is_whole = True
        except (OSError, http.client.HTTPException) as error:
            self._next(server)
            raise Fault(f"{self.urls[server]}: {error or type(error).__name__}", was_sent=True) from None
        finally:
            deadline.cancel()
            if not is_whole:
                connection.close()
        if not is_stream:
            with self._lock:
                self._idle[server].append(connection)
        return server, sock, answer, data

    def _judge(self, server: int, status: int, data: bytes) -> Dict[str, Any]:
        try:
            answer = json.loads(data)
            error = answer.get("error") or {}
            code, message = error.get("code"), error.get("message", f"{self.urls[server]} answers with status {status}")
            if not isinstance(code, (str, type(None))):
                raise ValueError
        except (ValueError, AttributeError, RecursionError):
            raise Fault(f"{self.urls[server]} does not answer as a belay server does (status {status})", was_sent=True) from None
        if status == 200:
            return cast(Dict[str, Any], answer)
        if status in (500, 502, 503, 504) and code not in ("bad_config", "bad_content"):
            self._next(server)
            raise Fault(message, status != 503, is_answer=True)
        raise error_of(status, error)


def shut(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)


def read_token(token: Optional[str], token_file: Optional[str]) -> Optional[str]:
    """The token as given, or from a file, or from the environment."""
    if token is None and token_file is None:
        token, token_file = os.environ.get("BELAY_AUTH_TOKEN"), os.environ.get("BELAY_AUTH_FILE")
    try:
        return token or (Path(token_file).read_text("utf-8").strip() if token_file else None)
    except OSError as error:
        raise Invalid(f"token file '{token_file}': {error.strerror}") from None
