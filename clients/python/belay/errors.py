"""The exceptions. What to do next differs for each of them; all are BelayError."""

from typing import Any, Dict, Mapping, Optional, Type

from ._types import LockInfo


class BelayError(Exception):
    """`code` is the server's error code, `lock` the lock in the way, and `lock_id` yours; None where there is none."""

    def __init__(self, message: str, lock: Optional[LockInfo] = None, code: Optional[str] = None,
                 lock_id: Optional[str] = None) -> None:
        super().__init__(message)
        self.lock = lock
        self.code = code
        self.lock_id = lock_id


class LockHeld(BelayError):
    """Another client holds the lock, at once or when the wait was over."""

    @property
    def holder(self) -> Optional[str]:
        return self.lock["locked_by"] if self.lock else None


class Frozen(BelayError):
    """A freeze forbids new holders of the lock; the message says until when and why."""


class LockLost(BelayError):
    """The lock is no longer, or was never, yours: stop what it protects."""


class IdUsed(BelayError):
    """The lock id was used for an acquisition that has ended: choose a new one."""


class UnknownOutcome(BelayError):
    """The answer was lost: the change may have been made. Repeat it with the same `lock_id` to find out."""


class Unavailable(BelayError):
    """No server answered, and nothing was changed."""


class NotFound(BelayError):
    """There is no such lock or freeze."""


class Forbidden(BelayError):
    """The token is missing, unknown, or not permitted to do this."""


class Invalid(BelayError, ValueError):
    """Bad input; nothing was changed."""


_BY_CODE: Dict[str, Type[BelayError]] = {
    "lock_held": LockHeld, "superseded": LockHeld, "frozen": Frozen, "not_holder": LockLost, "lease_lost": LockLost,
    "id_used": IdUsed}
_BY_STATUS: Dict[int, Type[BelayError]] = {401: Forbidden, 403: Forbidden, 404: NotFound}


def error_of(status: int, error: Mapping[str, Any]) -> BelayError:
    """The exception for an answer that is neither a success nor a fault of the server."""
    kind = _BY_STATUS.get(status, _BY_CODE.get(error.get("code", ""), Invalid))
    return kind(error.get("message", f"the server answers with status {status}"), error.get("lock"), error.get("code"))
