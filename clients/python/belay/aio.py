"""The same for asyncio. Each call runs the synchronous one in a thread of its own: one protocol, written once."""

import asyncio
import threading
from types import TracebackType
from typing import Any, Callable, List, Mapping, Optional, Type, TypeVar

from ._http import Cancel, Cancelled
from ._types import Duration, Event, Freeze, LockInfo
from .client import Client, EventStream
from .lock import Lock, State

T = TypeVar("T")


async def _in_thread(call: Callable[[], T], on_cancel: Optional[Callable[[], None]] = None) -> T:
    """
    Not asyncio.to_thread(): waits would fill its pool, and a release behind them would never run. If the task is
    cancelled, on_cancel() makes the call end, and its end is waited for.
    """
    loop = asyncio.get_running_loop()
    future: "asyncio.Future[T]" = loop.create_future()

    def settle(result: Optional[T], error: Optional[BaseException]) -> None:
        if not future.done():
            if error is None:
                future.set_result(result)  # type: ignore[arg-type]
            else:
                future.set_exception(error)

    def work() -> None:
        result, error = None, None
        try:
            result = call()
        except BaseException as raised:  # whatever it is, it belongs to the caller
            error = raised
        try:
            loop.call_soon_threadsafe(settle, result, error)
        except RuntimeError:
            pass  # the loop is closed, and nobody waits

    threading.Thread(target=work, name="belay call", daemon=True).start()
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        if on_cancel is not None:
            on_cancel()
            await asyncio.wait([future])
            future.exception()  # it is looked at
        raise


class AsyncLock:
    """Made by AsyncClient.lock(); acquired by `async with` or acquire(). `lost` is an asyncio.Event."""

    def __init__(self, lock: Lock, on_loss: Optional[Callable[["AsyncLock"], object]] = None) -> None:
        self._lock = lock
        self._user_on_loss = on_loss
        self._loop: Optional[asyncio.AbstractEventLoop] = None
        self.lost = asyncio.Event()
        lock._on_loss = self._on_loss

    def _on_loss(self, _: Lock) -> None:
        """In another thread."""
        if self._loop is not None:
            try:
                self._loop.call_soon_threadsafe(self._tell)
            except RuntimeError:
                pass  # the loop is closed

    def _tell(self) -> None:
        self.lost.set()
        if self._user_on_loss is not None:
            self._user_on_loss(self)

    @property
    def key(self) -> str:
        return self._lock.key

    @property
    def keys(self) -> List[str]:
        return self._lock.keys

    @property
    def lock_id(self) -> Optional[str]:
        return self._lock.lock_id

    @property
    def token(self) -> int:
        return self._lock.token

    @property
    def tokens(self) -> Mapping[str, int]:
        return self._lock.tokens

    @property
    def valid_for(self) -> float:
        return self._lock.valid_for

    @property
    def is_held(self) -> bool:
        return self._lock.is_held

    @property
    def loss_reason(self) -> Optional[str]:
        return self._lock.loss_reason

    async def acquire(self) -> "AsyncLock":
        """A task that is cancelled leaves the queue."""
        self._loop = asyncio.get_running_loop()
        cancel = Cancel()

        def acquire() -> None:
            try:
                self._lock.acquire(cancel)
            except Cancelled:
                pass
            else:
                if cancel.is_set():  # it was granted this very moment
                    self._lock.release("failed")
        await _in_thread(acquire, cancel.set)
        return self

    async def adopt(self, lock_id: str) -> "AsyncLock":
        self._loop = asyncio.get_running_loop()
        await _in_thread(lambda: self._lock.adopt(lock_id))
        return self

    async def check(self, for_: Optional[Duration] = None) -> float:
        return await _in_thread(lambda: self._lock.check(for_))

    async def renew(self, ttl: Optional[Duration] = None) -> float:
        return await _in_thread(lambda: self._lock.renew(ttl))

    async def release(self, outcome: str = "completed") -> None:
        await _in_thread(lambda: self._lock.release(outcome), lambda: None)

    async def __aenter__(self) -> "AsyncLock":
        return self if self._lock._state is State.HELD else await self.acquire()

    async def __aexit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                        trace: Optional[TracebackType]) -> None:
        await _in_thread(lambda: self._lock.__exit__(kind, error, trace), lambda: None)


class AsyncClient:
    """The same as Client, with methods to await."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def lock(self, *keys: str, ttl: Optional[Duration] = None, wait: Duration = 0, lock_id: Optional[str] = None,
             shared: bool = False, slots: Optional[int] = None, reentrant: bool = False,
             metadata: Optional[Mapping[str, str]] = None, ignore_freeze: Optional[str] = None, heartbeat: bool = True,
             on_loss: Optional[Callable[[AsyncLock], object]] = None) -> AsyncLock:
        """As Client.lock(); on_loss is called in the event loop."""
        return AsyncLock(self._client.lock(*keys, ttl=ttl, wait=wait, lock_id=lock_id, shared=shared, slots=slots,
                                           reentrant=reentrant, metadata=metadata, ignore_freeze=ignore_freeze,
                                           heartbeat=heartbeat), on_loss)

    async def adopt(self, *keys: str, lock_id: str, ttl: Optional[Duration] = None, heartbeat: bool = True,
                    on_loss: Optional[Callable[[AsyncLock], object]] = None) -> AsyncLock:
        return await AsyncLock(self._client.lock(*keys, ttl=ttl, heartbeat=heartbeat), on_loss).adopt(lock_id)

    async def check(self, key: str, *, token: Optional[int] = None, lock_id: Optional[str] = None,
                    for_: Optional[Duration] = None) -> float:
        return await _in_thread(lambda: self._client.check(key, token=token, lock_id=lock_id, for_=for_))

    async def force(self, key: str, reason: str, lock_id: Optional[str] = None) -> LockInfo:
        return await _in_thread(lambda: self._client.force(key, reason, lock_id))

    async def status(self, key: str) -> LockInfo:
        return await _in_thread(lambda: self._client.status(key))

    async def list_locks(self, prefix: str = "", status: Optional[str] = None, page_size: int = 1000) -> List[LockInfo]:
        return await _in_thread(lambda: self._client.list_locks(prefix, status, page_size))

    async def history(self, key: str, limit: Optional[int] = None) -> List[Event]:
        return await _in_thread(lambda: self._client.history(key, limit))

    async def events(self, prefix: str = "", after: Optional[int] = None) -> "AsyncEventStream":
        return AsyncEventStream(await _in_thread(lambda: self._client.events(prefix, after)))

    async def freeze(self, pattern: str, reason: str, *, for_: Optional[Duration] = None,
                     until: Optional[str] = None) -> Freeze:
        return await _in_thread(lambda: self._client.freeze(pattern, reason, for_=for_, until=until))

    async def unfreeze(self, what: str) -> List[Freeze]:
        return await _in_thread(lambda: self._client.unfreeze(what))

    async def freezes(self) -> List[Freeze]:
        return await _in_thread(self._client.freezes)

    async def close(self) -> None:
        self._client.close()

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                        trace: Optional[TracebackType]) -> None:
        self._client.close()


class AsyncEventStream:
    """`async for event in stream`. An event whose wait was cancelled is returned by the next wait."""

    def __init__(self, stream: EventStream) -> None:
        self._stream = stream
        self._pending: "Optional[asyncio.Task[Optional[Event]]]" = None

    def __aiter__(self) -> "AsyncEventStream":
        return self

    async def __anext__(self) -> Event:
        if self._pending is None:
            self._pending = asyncio.create_task(_in_thread(lambda: next(self._stream, None)))
        event = await asyncio.shield(self._pending)
        self._pending = None
        if event is None:
            raise StopAsyncIteration
        return event

    async def close(self) -> None:
        self._stream.close()

    async def __aenter__(self) -> "AsyncEventStream":
        return self

    async def __aexit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                        trace: Optional[TracebackType]) -> None:
        self._stream.close()


def connect_async(*arguments: Any, **options: Any) -> AsyncClient:
    """As connect(), for asyncio."""
    return AsyncClient(Client(*arguments, **options))
