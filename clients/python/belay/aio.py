"""The same for asyncio. Each call runs the synchronous one in a thread of its own: one protocol, written once."""

import asyncio
import concurrent.futures
import contextlib
import functools
import threading
from typing import TYPE_CHECKING, Any, Callable, Coroutine, Dict, List, Optional, TypeVar, cast

from ._http import Cancel
from ._types import Duration, Event
from .client import Client
from .lock import Lock, State

if TYPE_CHECKING:
    from typing_extensions import Concatenate, ParamSpec
    P = ParamSpec("P")
T = TypeVar("T")


async def _in_thread(call: Callable[[], T], on_cancel: Optional[Callable[[], None]] = None) -> T:
    """If the task is cancelled, on_cancel() ends the call, and that is waited for; without it, the call goes on by itself."""
    # Not asyncio.to_thread(): waits would fill its pool, and a release behind them would never run.
    loop = asyncio.get_running_loop()
    future: "asyncio.Future[T]" = loop.create_future()
    future.add_done_callback(lambda done: done.cancelled() or done.exception())  # its result may not be awaited any more

    def work() -> None:
        try:
            settle, result = future.set_result, call()
        except BaseException as error:  # whatever it is, it belongs to the caller
            settle, result = cast(Any, future.set_exception), cast(Any, error)
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(settle, result)

    threading.Thread(target=work, name="belay call", daemon=True).start()
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        if on_cancel is not None:
            on_cancel()
            await asyncio.wait([future])
        raise


def _awaitable(method: "Callable[Concatenate[Any, P], T]") -> "Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]":
    """The same method of the synchronous twin, to await."""
    @functools.wraps(method)
    async def call(self: Any, /, *arguments: "P.args", **options: "P.kwargs") -> T:
        return await _in_thread(lambda: method(self._sync, *arguments, **options))
    return call


class AsyncLock:
    """As Lock: acquired by `async with` or acquire(). `lost` is an asyncio.Event; on_loss is called in the event loop."""

    key: str
    keys: List[str]
    lock_id: Optional[str]
    token: int
    tokens: Dict[str, int]
    valid_for: float
    is_held: bool
    loss_reason: Optional[str]
    _loop: asyncio.AbstractEventLoop  # of the task that has acquired it

    check = _awaitable(Lock.check)
    renew = _awaitable(Lock.renew)
    release = _awaitable(Lock.release)

    def __init__(self, lock: Lock) -> None:
        self._sync = lock
        self._on_loss, lock.on_loss = lock.on_loss, self._hear
        self.lost = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sync, name)

    def _hear(self, _: Lock) -> None:
        """In another thread."""
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._tell)

    def _tell(self) -> None:
        self.lost.set()
        self._on_loss(self)

    async def acquire(self) -> "AsyncLock":
        """A task that is cancelled leaves the queue."""
        self._loop = asyncio.get_running_loop()
        cancel = Cancel()

        def acquire() -> None:
            try:
                self._sync.acquire(cancel)
                if cancel.is_set():  # it was granted this very moment
                    self._sync.release("failed")
            except concurrent.futures.CancelledError:
                pass
        await _in_thread(acquire, cancel.set)
        return self

    async def __aenter__(self) -> "AsyncLock":
        return self if self._sync.state is State.HELD else await self.acquire()

    async def __aexit__(self, *error: Any) -> None:
        await _in_thread(lambda: self._sync.__exit__(*error))


def _wrapped(method: "Callable[Concatenate[Any, P], Lock]") -> "Callable[Concatenate[Any, P], AsyncLock]":
    """The same method, which returns the lock for asyncio."""
    @functools.wraps(method)
    def call(self: Any, /, *arguments: "P.args", **options: "P.kwargs") -> AsyncLock:
        return AsyncLock(method(self._sync, *arguments, **options))
    return call


class _Twin(contextlib.AbstractAsyncContextManager[T]):
    def __init__(self, sync: Any) -> None:
        self._sync = sync

    async def close(self) -> None:
        self._sync.close()

    async def __aexit__(self, *error: object) -> None:
        self._sync.close()


class AsyncClient(_Twin["AsyncClient"]):
    """As Client, with methods to await."""

    lock = _wrapped(Client.lock)
    check = _awaitable(Client.check)
    force = _awaitable(Client.force)
    status = _awaitable(Client.status)
    list_locks = _awaitable(Client.list_locks)
    history = _awaitable(Client.history)
    freeze = _awaitable(Client.freeze)
    unfreeze = _awaitable(Client.unfreeze)
    freezes = _awaitable(Client.freezes)

    async def adopt(self, *keys: str, lock_id: str, ttl: Optional[Duration] = None, heartbeat: bool = True,
                    on_loss: Optional[Callable[[Any], object]] = None) -> AsyncLock:
        lock = self.lock(*keys, ttl=ttl, heartbeat=heartbeat, on_loss=on_loss)
        lock._loop = asyncio.get_running_loop()
        await _in_thread(lambda: lock._sync.adopt(lock_id))
        return lock

    async def events(self, prefix: str = "", after: Optional[int] = None) -> "AsyncEventStream":
        return AsyncEventStream(await _in_thread(lambda: self._sync.events(prefix, after)))


class AsyncEventStream(_Twin["AsyncEventStream"]):
    """`async for event in stream`. An event whose wait was cancelled is returned by the next wait."""

    _pending: "Optional[asyncio.Task[Optional[Event]]]" = None

    def __aiter__(self) -> "AsyncEventStream":
        return self

    async def __anext__(self) -> Event:
        if self._pending is None:
            self._pending = asyncio.create_task(_in_thread(lambda: next(self._sync, None), self._sync.close))
        event = await asyncio.shield(self._pending)
        self._pending = None
        if event is None:
            raise StopAsyncIteration
        return event


def _connector(make: "Callable[P, Client]") -> "Callable[P, AsyncClient]":
    return lambda *arguments, **options: AsyncClient(make(*arguments, **options))


connect_async = _connector(Client)
