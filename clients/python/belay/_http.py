"""HTTP to one of several servers of the same store. It knows nothing about locks."""

import contextlib
import http.client
import json
import os
import select
import socket
import ssl
import threading
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple, Union
import urllib.parse

from .errors import BelayError, Invalid, UnknownOutcome, Unavailable, error_of

TRIES = 3
BACKOFF_MAX = 1.0


class Fault(Exception):
    """No usable answer. `was_sent`: the server may have done it all the same; `is_answer`: a server is there."""

    def __init__(self, text: str, was_sent: bool, is_answer: bool = False) -> None:
        super().__init__(text)
        self.was_sent = was_sent
        self.is_answer = is_answer


class Cancelled(Exception):
    """Cancel.set() was called."""


class Cancel:
    """Ends a request that another thread waits for."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._lock = threading.Lock()
        self._socket: Optional[socket.socket] = None

    def set(self) -> None:
        self._event.set()
        self.interrupt()

    def is_set(self) -> bool:
        return self._event.is_set()

    def interrupt(self) -> None:
        """Break off the present request, as if its connection was lost."""
        with self._lock:
            if self._socket is not None:
                try:
                    self._socket.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass  # it is closed already

    def sleep(self, seconds: float) -> None:
        if self._event.wait(seconds):
            raise Cancelled

    @contextlib.contextmanager
    def watching(self, sock: Optional[socket.socket]) -> Iterator[None]:
        with self._lock:
            self._socket = sock
        try:
            if self._event.is_set():
                raise Cancelled
            yield
        except (OSError, http.client.HTTPException):
            if self._event.is_set():
                raise Cancelled from None
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

    def __init__(self, servers: int) -> None:
        self._servers = servers
        self.count = 0
        self.was_sent = False

    def add(self, fault: Fault) -> None:
        self.count += 1
        self.was_sent = self.was_sent or fault.was_sent

    def reset(self) -> None:
        self.count, self.was_sent = 0, False

    def are_too_many(self, tries: int = TRIES) -> bool:
        return self.count >= max(tries, self._servers)

    def pause(self) -> float:
        rounds, rest = divmod(self.count, self._servers)
        return 0.0 if rest else min(0.1 * 2.0 ** (rounds - 1), BACKOFF_MAX)

    def error(self, fault: Fault, is_read: bool = False, lock_id: Optional[str] = None) -> BelayError:
        if self.was_sent and not is_read:
            return UnknownOutcome(f"{fault}; an answer was lost, and it may have happened", lock_id)
        return Unavailable(str(fault))


class Http:
    def __init__(self, urls: Union[str, Sequence[str]], token: Optional[str], ca_file: Optional[str], timeout: float) -> None:
        self.urls = [urls] if isinstance(urls, str) else list(urls)
        for url in self.urls:
            if not url.startswith(("http://", "https://", "unix:")):
                raise Invalid(f"'{url}' is not the URL of a server: http://HOST:PORT, https://… or unix:/path")
        if not self.urls:
            raise Invalid("no URL of a server is given")
        self.timeout = timeout
        self._headers = {"Content-Type": "application/json"}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"
        self._tls: Optional[ssl.SSLContext] = None
        if any(url.startswith("https:") for url in self.urls):
            try:
                self._tls = ssl.create_default_context(cafile=ca_file)
            except OSError as error:
                raise Invalid(f"CA file '{ca_file}': {error}") from None
        self._lock = threading.Lock()
        self._current = 0
        self._idle: List[List[http.client.HTTPConnection]] = [[] for _ in self.urls]

    def send(self, method: str, path: str, body: Optional[Dict[str, Any]] = None, *, wait: float = 0.0,
             timeout: Optional[float] = None, cancel: Optional[Cancel] = None) -> Dict[str, Any]:
        """One request, one try: the answer, a BelayError, or a Fault. `wait` is how long the server may take by request."""
        connection, server = self._connection(wait + (timeout or self.timeout))
        try:
            with (cancel or Cancel()).watching(connection.sock):
                connection.request(method, self._prefix(server) + path, None if body is None else json.dumps(body).encode(),
                                   self._headers)
                answer = connection.getresponse()
                data = answer.read()
        except BaseException as error:
            connection.close()
            raise self._lost_answer(server, error) from None
        with self._lock:
            self._idle[server].append(connection)
        return self._judge(server, answer.status, data)

    def call(self, method: str, path: str, body: Optional[Dict[str, Any]] = None, *, tries: int = TRIES,
             is_read: bool = False, lock_id: Optional[str] = None) -> Dict[str, Any]:
        """A request that may be repeated, until it is answered or has been tried often enough."""
        faults = Faults(len(self.urls))
        cancel = Cancel()
        while True:
            try:
                return self.send(method, path, body)
            except Fault as fault:
                faults.add(fault)
                if faults.are_too_many(tries):
                    raise faults.error(fault, is_read, lock_id) from None
            cancel.sleep(faults.pause())

    def stream(self, path: str, timeout: float) -> Tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        """The answer to a GET, to be read line by line; or a BelayError, or a Fault."""
        connection, server = self._connection(timeout)
        try:
            connection.request("GET", self._prefix(server) + path, headers=self._headers)
            answer = connection.getresponse()
            if answer.status == 200:
                return connection, answer
            data = answer.read()
        except BaseException as error:
            connection.close()
            raise self._lost_answer(server, error) from None
        connection.close()
        self._judge(server, answer.status, data)
        raise Fault(f"{self.urls[server]} answers with status {answer.status}", was_sent=True, is_answer=True)

    def close(self) -> None:
        with self._lock:
            idle = [connection for connections in self._idle for connection in connections]
            self._idle = [[] for _ in self.urls]
        for connection in idle:
            connection.close()

    # ---- connections ----

    def _connection(self, timeout: float) -> Tuple[http.client.HTTPConnection, int]:
        with self._lock:
            server = self._current
            while self._idle[server]:
                connection = self._idle[server].pop()
                if connection.sock is not None and not select.select([connection.sock], [], [], 0)[0]:
                    connection.sock.settimeout(timeout)
                    return connection, server
                connection.close()  # the server has closed it
        connection = self._new_connection(self.urls[server], min(timeout, self.timeout))
        try:
            connection.connect()
        except OSError as error:
            connection.close()
            self._next(server)
            raise Fault(f"cannot connect to {self.urls[server]}: {error}", was_sent=False) from None
        connection.sock.settimeout(timeout)
        return connection, server

    def _new_connection(self, url: str, timeout: float) -> http.client.HTTPConnection:
        if url.startswith("unix:"):
            return _UnixConnection(url[len("unix:"):], timeout)
        parts = urllib.parse.urlsplit(url)
        if parts.scheme == "https":
            return http.client.HTTPSConnection(parts.hostname or "", parts.port, timeout=timeout, context=self._tls)
        return http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=timeout)

    def _next(self, failed: int) -> None:
        with self._lock:
            if self._current == failed:
                self._current = (failed + 1) % len(self.urls)

    def _prefix(self, server: int) -> str:
        url = self.urls[server]
        return "" if url.startswith("unix:") else urllib.parse.urlsplit(url).path.rstrip("/")

    # ---- answers ----

    def _lost_answer(self, server: int, error: BaseException) -> BaseException:
        if not isinstance(error, (OSError, http.client.HTTPException)):
            return error
        self._next(server)
        return Fault(f"{self.urls[server]}: {error or type(error).__name__}", was_sent=True)

    def _judge(self, server: int, status: int, data: bytes) -> Dict[str, Any]:
        try:
            answer = json.loads(data) if data else {}
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise Fault(f"{self.urls[server]} does not answer as a belay server does (status {status})", was_sent=True)
        if status == 200:
            return answer
        if status in (500, 502, 503, 504) and (answer.get("error") or {}).get("code") not in ("bad_config", "bad_content"):
            self._next(server)
            text = (answer.get("error") or {}).get("message", f"{self.urls[server]} answers with status {status}")
            raise Fault(text, was_sent=status != 503, is_answer=True)
        raise error_of(status, answer)


def read_token(token: Optional[str], token_file: Optional[str]) -> Optional[str]:
    """The token as given, or from a file, or from the environment."""
    if token is None and token_file is None:
        token = os.environ.get("BELAY_AUTH_TOKEN") or None
        token_file = os.environ.get("BELAY_AUTH_FILE") or None
    if token is not None or token_file is None:
        return token
    try:
        with open(token_file, encoding="utf-8") as file:
            return file.read().strip()
    except OSError as error:
        raise Invalid(f"token file '{token_file}': {error.strerror}") from None
