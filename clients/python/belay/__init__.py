"""
Locks of a belay server: one holder at a time, first come, first served, with a fencing token.

    import belay

    with belay.connect("http://127.0.0.1:7420").lock("deploy-api-prod", ttl="10m", wait="5m") as lock:
        deploy(fence=lock.token)
        lock.check()
"""

from ._types import Duration, Event, Freeze, LockInfo
from .aio import AsyncClient, AsyncEventStream, AsyncLock, connect_async
from .client import Client, EventStream
from .errors import (BelayError, Forbidden, Frozen, IdUsed, Invalid, LockHeld, LockLost, NotFound, Unavailable,
                     UnknownOutcome)
from .lock import Lock

connect = Client

__all__ = ["AsyncClient", "AsyncEventStream", "AsyncLock", "BelayError", "Client", "Duration", "Event", "EventStream",
           "Forbidden", "Freeze", "Frozen", "IdUsed", "Invalid", "Lock", "LockHeld", "LockInfo", "LockLost", "NotFound",
           "Unavailable", "UnknownOutcome", "connect", "connect_async"]
__version__ = "0.1.0"
