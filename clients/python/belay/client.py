"""The client: locks, and everything that can be asked about them."""

from concurrent.futures import CancelledError
from contextlib import AbstractContextManager, suppress
import http.client
import json
import os
import socket
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Union, cast
import urllib.parse
import uuid

from ._http import Cancel, Fault, Faults, Http, read_token
from ._types import Duration, Event, Freeze, LockInfo, clock, milliseconds
from .lock import Lock

STREAM_SILENCE = 40.0  # the server sends something at least every 15 s


def _path(key: str, rest: str = "", **query: Any) -> str:
    return f"/v1/locks/{urllib.parse.quote(key, safe='')}{rest}?{urllib.parse.urlencode(_given(**query))}".rstrip("?")


def _given(**fields: Any) -> Dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


class Client(AbstractContextManager["Client"]):
    """Use it from any number of threads. connect() makes one."""

    def __init__(self, urls: Union[str, Sequence[str]], *, token: Optional[str] = None, token_file: Optional[str] = None,
                 ca_file: Optional[str] = None, timeout: Duration = 10, owner: Optional[str] = None,
                 owner_name: Optional[str] = None) -> None:
        self._http = Http(urls, read_token(token, token_file), ca_file or os.environ.get("BELAY_CA_FILE") or None,
                          (milliseconds("timeout", timeout) or 10_000) / 1000)
        self.owner = owner or f"{os.environ.get('USER', 'unknown')}@{socket.gethostname()}:{os.getpid()}"
        self.owner_name = owner_name

    def lock(self, *keys: str, ttl: Optional[Duration] = None, wait: Duration = 0, lock_id: Optional[str] = None,
             shared: bool = False, slots: Optional[int] = None, reentrant: bool = False,
             metadata: Optional[Mapping[str, str]] = None, ignore_freeze: Optional[str] = None, heartbeat: bool = True,
             on_loss: Optional[Callable[[Any], object]] = None) -> Lock:
        """
        A lock on one key, or on several keys at once, for `with` or acquire().

        `ttl` is the lease (the server's default is 10 minutes), which is renewed in the background unless
        `heartbeat` is False. `wait` is how long to wait in the queue. `lock_id` names this acquisition, to repeat
        it after UnknownOutcome. `ignore_freeze` is the reason why an admin passes a freeze. `on_loss` is called
        with the lock, in another thread, when it is lost.
        """
        fields = _given(locked_by=self.owner, locked_by_name=self.owner_name, lock_id=lock_id, slots=slots,
                        ttl_ms=milliseconds("ttl", ttl), shared=shared or None,
                        reentrant=reentrant or None, metadata=None if metadata is None else dict(metadata),
                        ignore_freeze=None if ignore_freeze is None else True, reason=ignore_freeze)
        return Lock(self._http, keys, fields, wait, heartbeat, on_loss)

    def adopt(self, *keys: str, lock_id: str, ttl: Optional[Duration] = None, heartbeat: bool = True,
              on_loss: Optional[Callable[[Any], object]] = None) -> Lock:
        """Take over a lock whose id was handed to you, with a new id and a new token; no other client can use the old id."""
        return self.lock(*keys, ttl=ttl, heartbeat=heartbeat, on_loss=on_loss).adopt(lock_id)

    def check(self, key: str, *, token: Optional[int] = None, lock_id: Optional[str] = None,
              for_: Optional[Duration] = None) -> float:
        """For receivers: whether this token or id holds the lock; the seconds that it is valid, or LockLost."""
        body = _given(key=key, token=token, lock_id=lock_id, for_ms=milliseconds("for_", for_))
        sent = clock()
        answer = self._http.call("POST", "/v1/check", body, is_read=True)
        return cast(int, answer["valid_for_ms"]) / 1000 - (clock() - sent)

    def force(self, key: str, reason: str, lock_id: Optional[str] = None) -> LockInfo:
        """End another client's lock (for admins), and record why."""
        body = _given(reason=reason, lock_id=lock_id, by=self.owner_name or self.owner)
        return cast(LockInfo, self._http.call("DELETE", _path(key), body))

    def status(self, key: str) -> LockInfo:
        return cast(LockInfo, self._http.call("GET", _path(key), is_read=True))

    def list_locks(self, prefix: str = "", status: Optional[str] = None, page_size: int = 1000) -> List[LockInfo]:
        """All locks whose keys start with the prefix; `status` is active, expired, released or all."""
        found: List[LockInfo] = []
        query: Dict[str, Any] = _given(prefix=prefix or None, status=status, limit=page_size)
        while True:
            page = self._http.call("GET", f"/v1/locks?{urllib.parse.urlencode(query)}", is_read=True)
            found += page["locks"]
            if page["next_cursor"] is None:
                return found
            query["cursor"] = page["next_cursor"]

    def history(self, key: str, limit: Optional[int] = None) -> List[Event]:
        """The last events of the lock, oldest first."""
        return cast(List[Event], self._http.call("GET", _path(key, "/history", limit=limit), is_read=True)["events"])

    def events(self, prefix: str = "", after: Optional[int] = None) -> "EventStream":
        """The events from now on, or after the event with this id, as they happen. Close it, or use it with `with`."""
        return EventStream(self._http, prefix, after)

    def freeze(self, pattern: str, reason: str, *, for_: Optional[Duration] = None, until: Optional[str] = None) -> Freeze:
        """Refuse new acquisitions of matching keys (for admins); `until` is an RFC 3339 time."""
        body = _given(pattern=pattern, reason=reason, until=until, by=self.owner_name or self.owner, id=uuid.uuid4().hex,
                      for_ms=milliseconds("for_", for_))
        return cast(Freeze, self._http.call("POST", "/v1/freezes", body)["freezes"][0])

    def unfreeze(self, what: str) -> List[Freeze]:
        """End the freeze with this id, or all freezes with exactly this pattern."""
        return cast(List[Freeze], self._http.call("DELETE", f"/v1/freezes/{urllib.parse.quote(what, safe='')}")["freezes"])

    def freezes(self) -> List[Freeze]:
        return cast(List[Freeze], self._http.call("GET", "/v1/freezes", is_read=True)["freezes"])

    def close(self) -> None:
        """Close idle connections. Locks are not released."""
        self._http.close()

    def __exit__(self, *error: object) -> None:
        self.close()


class EventStream(Iterator[Event], AbstractContextManager["EventStream"]):
    """Reconnects by itself, after the last event that it returned: none is missed, and none comes twice."""

    def __init__(self, http_: Http, prefix: str, after: Optional[int]) -> None:
        self._http = http_
        self._prefix = prefix
        self._last = after
        self._cancel = Cancel()
        self._open(is_first=True)

    def _open(self, is_first: bool = False) -> None:
        faults = Faults(self._http.urls)
        while True:
            path = "/v1/events?" + urllib.parse.urlencode(_given(prefix=self._prefix or None, last_event_id=self._last))
            try:
                self._socket, self._answer = self._http.stream(path, self._http.limit(faults), STREAM_SILENCE, self._cancel)
                self._read_beginning()
                return
            except Fault as fault:
                faults.add(fault)
                if is_first and faults.are_too_many():
                    raise faults.error(fault, is_read=True) from None
            self._cancel.sleep(faults.pause())

    def _read_beginning(self) -> None:
        """The id that the stream begins with, to go on from there if it breaks before the first event."""
        if self._last is not None:
            return
        try:
            with self._cancel.watching(self._socket):
                for line in self._answer:
                    if line.startswith(b"id: "):
                        self._last = int(line[len(b"id: "):])
                        return
                    if line == b"\n":
                        return  # not of a belay server
            raise ConnectionError("the stream has ended")
        except (OSError, ValueError, http.client.HTTPException) as error:
            self._close_answer()
            raise Fault(f"a stream of events broke as it began: {error}", was_sent=True) from None

    def _close_answer(self) -> None:
        self._answer.close()
        self._socket.close()

    def __next__(self) -> Event:
        with suppress(CancelledError):
            while True:
                try:
                    with self._cancel.watching(self._socket):
                        event = self._read()
                    self._last = event["id"]
                    return event
                except (OSError, ValueError, http.client.HTTPException):
                    self._close_answer()
                    self._cancel.sleep(0.1)  # a server that is stopping ends it again and again
                    self._open()
        raise StopIteration

    def _read(self) -> Event:
        data = b""
        for line in self._answer:
            if line.startswith(b"data: "):
                data = line[len(b"data: "):]
            elif line == b"\n" and data:
                return cast(Event, json.loads(data))
        raise ConnectionError("the stream has ended")

    def close(self) -> None:
        self._cancel.set()

    def __exit__(self, *error: object) -> None:
        self.close()
