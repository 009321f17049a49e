"""A lock: acquire it in the queue, keep it with heartbeats, and be told of its loss before another client can have it."""

import contextlib
import enum
import logging
import os
import threading
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple, cast
import uuid

from ._http import Cancel, Fault, Faults, Http
from ._types import Duration, LockInfo, clock, milliseconds
from .errors import BelayError, Frozen, Invalid, LockHeld, LockLost, NotFound, UnknownOutcome

log = logging.getLogger("belay")

SLICE_MAX_MS = 10_000    # of a wait
SLICE_SEVERAL_MS = 2500  # the same with several servers: one that hangs must not cost the place
HELD_MAX = 60.0          # of a request that waits for the loss
HELD_SEVERAL = 4.0       # likewise
LEAVE = 2.0              # of a request to leave the queue
RELEASE_TRIES = 6
TIMEOUT_MIN = 0.3      # of a renewal
LOOK = 1.0             # how often the deadline is looked at: a suspended machine does not count as waiting


class State(enum.Enum):
    NEW = "not acquired"
    HELD = "held"
    LOST = "lost"
    RELEASED = "released"


def _locks_of(answer: Dict[str, Any]) -> List[LockInfo]:
    return cast(List[LockInfo], answer.get("locks") or [answer])


def _valid_for(answer: Dict[str, Any]) -> float:
    return min(lock["valid_for_ms"] or 0 for lock in _locks_of(answer)) / 1000


def _granted(answer: Dict[str, Any]) -> Dict[str, Any]:
    """The same answer, or a Fault: what a proxy made up says nothing about the lock."""
    try:
        if _valid_for(answer) >= 0 and all(lock["key"] and lock["lock_id"] and lock["ttl_ms"] > 0 for lock in _locks_of(answer)):
            return answer
    except (LookupError, TypeError, ValueError):
        pass
    raise Fault("the answer is not that of a belay server: a key, lock_id, ttl_ms or valid_for_ms is missing", was_sent=True)


class Lock:
    """Made by Client.lock(); acquired by `with` or acquire(), once.

        NEW --acquire, adopt--> HELD --release--> RELEASED
                                  \\--deadline, or the server says so--> LOST

    `state` and the deadline change under `_changed` only. Two threads run while it is HELD: one renews it,
    the other waits for the deadline and depends on nothing else.
    """

    def __init__(self, http: Http, keys: Sequence[str], fields: Dict[str, Any], wait: Duration = 0,
                 heartbeat: bool = True, on_loss: Optional[Callable[[Any], object]] = None) -> None:
        if not keys:
            raise Invalid("no key is given")
        self.keys, self.key = list(keys), keys[0]
        self.lock_id: Optional[str] = fields.get("lock_id")
        self.tokens: Dict[str, int] = {}
        self.token = 0  # the fencing token (of the first key): send it with every write that the lock protects
        self.lost = threading.Event()
        self.loss_reason: Optional[str] = None
        self._http = http
        self._fields = fields
        self._wait_ms = milliseconds("wait", wait) or 0
        self._heartbeat = heartbeat
        self.on_loss = on_loss or (lambda _: None)
        self.state = State.NEW
        self._process = os.getpid()
        self._changed = threading.Condition()
        self._deadline = self._renew_at = self._ttl = 0.0
        self._beat = Cancel()
        self._renewing = threading.Lock()

    @property
    def valid_for(self) -> float:
        """For how many seconds the lock can be relied on if no renewal succeeds; 0 if it is not held."""
        if self._process != os.getpid():
            return 0.0  # it is the parent's, and a fork may have copied `_changed` while it was locked
        with self._changed:
            return max(self._deadline - clock(), 0.0) if self.state is State.HELD else 0.0

    @property
    def is_held(self) -> bool:
        return self.valid_for > 0.0

    def acquire(self, cancel: Optional[Cancel] = None) -> "Lock":
        """Acquire it, waiting in its queue if `wait` was given. LockHeld: the wait is over."""
        if self.state is not State.NEW:
            raise Invalid(f"lock '{self.key}' is {self.state.value}: make a new one with lock()")
        self.lock_id = self.lock_id or uuid.uuid4().hex
        try:
            answer, sent = self._ask_for_it(cancel or Cancel())
        except BaseException as error:
            # After UnknownOutcome, a caller that repeats it with the same id finds it. Others are cancelled, or Ctrl-C.
            is_over = isinstance(error, (LockHeld, Frozen)) and error.code != "superseded" and self._wait_ms > 0
            if is_over or not isinstance(error, BelayError):
                self._leave()
            raise
        return self._begin(answer, sent)

    def _ask_for_it(self, cancel: Cancel) -> Tuple[Dict[str, Any], float]:
        """A series of requests under one lock id, for which the server keeps the place in the queue."""
        faults = Faults(self._http.urls)
        end = clock() + self._wait_ms / 1000
        was_answered = False
        while True:
            sent = clock()
            slice_ms = self._slice_ms(end - sent)
            try:
                body = self._body(**self._fields, wait_ms=slice_ms)
                answer = self._http.send("POST", "/v1/acquire", body, wait=slice_ms / 1000, timeout=self._limit(faults), cancel=cancel)
                return _granted(answer), sent
            except (LockHeld, Frozen) as refusal:
                faults.reset()
                was_answered = True
                if clock() >= end or refusal.code == "superseded":
                    raise
                cancel.sleep(max(min(slice_ms / 2000 - (clock() - sent), 0.5), 0.0))  # a full queue is answered at once
            except Fault as fault:
                faults.add(fault)
                was_answered = was_answered or fault.is_answer or fault.was_sent
                if faults.are_too_many() and not (was_answered and clock() < end):
                    raise faults.error(fault, lock_id=self.lock_id) from None
                cancel.sleep(faults.pause())

    def _slice_ms(self, left: float) -> int:
        if self._wait_ms == 0:
            return 0
        third = int(self._fields.get("ttl_ms", 3 * SLICE_MAX_MS)) // 3
        return max(min(SLICE_MAX_MS if len(self._http.urls) == 1 else SLICE_SEVERAL_MS, third, int(left * 1000)), 1)

    def _limit(self, faults: Faults) -> float:
        """Of an answer to an acquire: most of a lease that a server may have granted must be left at the next one."""
        limit, ttl_ms = self._http.limit(faults), self._fields.get("ttl_ms")
        return limit if ttl_ms is None or len(self._http.urls) == 1 else min(limit, max(float(ttl_ms) / 3000, TIMEOUT_MIN))

    def _leave(self) -> None:
        """The place in the queue, and a lock that was granted this very moment, are for the next waiter."""
        for _ in self._http.urls:
            with contextlib.suppress(BelayError):
                try:
                    self._http.send("POST", "/v1/release", self._body(outcome="failed"), timeout=LEAVE)
                except Fault:
                    continue
            return

    def adopt(self, lock_id: str) -> "Lock":
        """Exchange the id of a lock that another client has acquired for one of your own."""
        new_id = uuid.uuid4().hex
        body = {**self._body(**self._fields), "lock_id": lock_id, "new_lock_id": new_id}
        sent = clock()
        try:
            answer = _granted(self._http.call("POST", "/v1/adopt", body, lock_id=new_id))
        except Fault as fault:
            raise UnknownOutcome(str(fault), lock_id=new_id) from None
        self.lock_id = new_id
        return self._begin(answer, sent)

    def _body(self, **fields: Any) -> Dict[str, Any]:
        named: Dict[str, Any] = {"key": self.key} if len(self.keys) == 1 else {"keys": self.keys}
        return {**named, **fields, "lock_id": self.lock_id}

    def _begin(self, answer: Dict[str, Any], sent: float) -> "Lock":
        locks, self._process = _locks_of(answer), os.getpid()
        self.lock_id = locks[0]["lock_id"] or self.lock_id
        self.tokens = {lock["key"]: lock["token"] or 0 for lock in locks}
        self.token = self.tokens.get(self.key, 0)
        with self._changed:
            self.state = State.HELD
            self._extend(answer, sent)
        if not self.is_held:
            self._leave()
            self.state, self.loss_reason = State.LOST, "the answer came when the lease was over"
            self._require_held()
        for target in [self._watch_deadline, self._keep] if self._heartbeat else [self._watch_deadline]:
            threading.Thread(target=target, name=f"belay {self.key}", daemon=True).start()
        return self

    def _extend(self, answer: Dict[str, Any], sent: float) -> None:
        """Counted from before the request was sent, by the server's word."""
        self._ttl = min(lock["ttl_ms"] for lock in _locks_of(answer)) / 1000
        self._deadline = sent + _valid_for(answer)
        self._renew_at = sent + _valid_for(answer) / 3
        self._changed.notify_all()

    def _lose(self, reason: str) -> LockLost:
        """Tell it, once; the exception is for the caller to raise."""
        with self._changed:
            is_news = self.state is State.HELD
            if is_news:
                self.state = State.LOST
                self.loss_reason = reason
                self.lost.set()
                self._changed.notify_all()
        if is_news:
            log.warning("lock '%s' is lost: %s", self.key, reason)
            self.on_loss(self)
        return LockLost(f"lock '{self.key}' is lost: {self.loss_reason or reason}")

    def _watch_deadline(self) -> None:
        with self._changed:
            while self.state is State.HELD and clock() < self._deadline:
                self._changed.wait(min(self._deadline - clock(), LOOK))
        self._lose("it could not be renewed in time" if self._heartbeat else "its lease is over")

    def _keep(self) -> None:
        """Renew it, and in between wait at the server for a loss, such as a forced unlock."""
        faults = {action: Faults(self._http.urls) for action in (self._await_loss, self._beat_once)}
        while self.is_held:
            action = self._await_loss if self._renew_at > clock() else self._beat_once
            try:
                action()
                faults[action].reset()
            except (LockLost, NotFound) as error:
                self._lose(str(error))
            except (BelayError, Fault) as error:
                log.info("lock '%s': %s", self.key, error)
                faults[action].add(error if isinstance(error, Fault) else Fault(str(error), was_sent=True))
                self._sleep(min(faults[action].pause(), self._ttl / 10))

    def _await_loss(self) -> None:
        began = clock()
        wait = max(min(self._renew_at - began, HELD_MAX if len(self._http.urls) == 1 else HELD_SEVERAL), 0.001)
        timeout = min(self._patience(began + wait), self._http.limit(Faults(self._http.urls)))
        self._http.send("POST", "/v1/held", self._body(wait_ms=int(wait * 1000)), wait=wait, timeout=timeout, cancel=self._beat)
        if clock() - began < wait / 2:
            self._sleep(min(wait / 2, 0.5))  # a server that does not wait is not asked in a loop

    def _patience(self, at: float) -> float:
        """How long an answer may take: a server that hangs must leave enough of the lease to ask the next one in time."""
        n = len(self._http.urls)
        part = self._ttl / 3 if n == 1 else (self._deadline - at) / 2 / n
        return max(min(self._http.timeout, part), TIMEOUT_MIN)

    def _beat_once(self) -> None:
        timeout = self._patience(clock())
        self._renew(lambda: self._http.send("POST", "/v1/renew", self._body(), timeout=timeout))

    def _renew(self, send: Callable[[], Dict[str, Any]]) -> None:
        """One at a time: of two answers, the last to come must be that of the last to be done."""
        with self._renewing:
            sent = clock()
            answer = _granted(send())
            with self._changed:
                if self.state is State.HELD and clock() < self._deadline:
                    self._extend(answer, sent)

    def _sleep(self, seconds: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self.state is not State.HELD, seconds)

    def check(self, for_: Optional[Duration] = None) -> float:
        """Ask the server whether it is still held (for at least this long): the seconds that it is valid, or LockLost."""
        self._require_held()
        sent = clock()
        try:
            answer = self._http.call("POST", "/v1/check", self._body(for_ms=milliseconds("for_", for_)), is_read=True)
        except (LockLost, NotFound) as error:
            if for_ is None:
                raise self._lose(str(error)) from None
            raise LockLost(str(error)) from None
        self._require_held()
        return _valid_for(answer) - (clock() - sent)

    def renew(self, ttl: Optional[Duration] = None) -> float:
        """Restart the lease, with another ttl if one is given; the seconds that it is valid now."""
        self._require_held()
        body = self._body(ttl_ms=milliseconds("ttl", ttl))
        if ttl is not None:  # it may shorten the lease even if its answer is lost
            with self._changed:
                self._deadline = min(self._deadline, clock() + body["ttl_ms"] / 1000 * 0.9)
                self._changed.notify_all()
        try:
            self._renew(lambda: self._http.call("POST", "/v1/renew", body, lock_id=self.lock_id))
        except (LockLost, NotFound) as error:
            raise self._lose(str(error)) from None
        except Fault as fault:
            raise UnknownOutcome(str(fault), lock_id=self.lock_id) from None
        finally:
            self._beat.interrupt()  # the next renewal may be due earlier now
        self._require_held()
        return self.valid_for

    def release(self, outcome: str = "completed") -> None:
        """Release it; `outcome` ("completed" or "failed") is kept in the history."""
        self._require_held()
        with self._changed:
            self.state = State.RELEASED
            self._changed.notify_all()
        faults = Faults(self._http.urls)
        try:
            self._http.call("POST", "/v1/release", self._body(outcome=outcome), tries=RELEASE_TRIES, faults=faults,
                            lock_id=self.lock_id)
        except (LockLost, NotFound) as error:
            if not faults.was_sent:
                raise LockLost(str(error)) from None
            if error.code == "not_holder":
                raise UnknownOutcome(f"{error}; it may have been released before", lock_id=self.lock_id) from None
            # Otherwise it was released by the request whose answer was lost.

    def _require_held(self) -> None:
        if self._process != os.getpid():
            raise LockLost(f"lock '{self.key}' is not of this process: process {self._process} was forked and has it")
        if self.state is State.HELD and not self.is_held:
            raise self._lose("its lease is over")
        if self.state is not State.HELD:
            raise LockLost(f"lock '{self.key}' is {self.state.value}" + (f": {self.loss_reason}" if self.loss_reason else ""))

    def __enter__(self) -> "Lock":
        return self if self.state is State.HELD else self.acquire()

    def __exit__(self, kind: object, error: Optional[BaseException], trace: object) -> None:
        try:
            if self.state is not State.RELEASED:
                self.release("completed" if error is None else "failed")
        except BelayError as release_error:
            if error is None:
                raise
            log.warning("lock '%s': %s", self.key, release_error)  # the block's own error is the one to show
