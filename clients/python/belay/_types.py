"""What the server sends, by the server's names (docs/http.md)."""

from datetime import timedelta
import re
import time
from typing import Dict, List, Optional, TypedDict, Union

Duration = Union[str, int, float, timedelta]
"""`"10m"`, `"1h30m"`, `"500ms"`; a number of seconds; or a timedelta."""

_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def milliseconds(what: str, duration: Duration) -> int:
    if isinstance(duration, timedelta):
        return int(duration.total_seconds() * 1000)
    if isinstance(duration, (int, float)):
        return int(duration * 1000)
    if not re.fullmatch(r"(\d+(\.\d+)?(ms|s|m|h|d))+", duration):
        from .errors import Invalid
        raise Invalid(f"{what} '{duration}' is not a duration: write 90s, 10m or 1h30m")
    return int(sum(float(number) * _UNITS_MS[unit] for number, unit in re.findall(r"([\d.]+)(ms|s|m|h|d)", duration)))


def clock() -> float:
    """Seconds on a clock that is never set and, where the system has one, that goes on during suspend."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


class Holder(TypedDict):
    lock_id: Optional[str]
    token: Optional[int]
    locked_by: str


class LockInfo(TypedDict):
    key: str
    lock_id: Optional[str]
    token: Optional[int]
    locked_by: str
    locked_by_name: str
    acquired_by: Optional[str]
    status: str
    outcome: Optional[str]
    locked_at: Optional[str]
    expires_at: Optional[str]
    last_heartbeat: Optional[str]
    ttl_ms: int
    expires_in_ms: int
    valid_for_ms: Optional[int]
    is_stale: bool
    metadata: Dict[str, str]
    mode: str
    slots: Optional[int]
    holders: List[Holder]


class Event(TypedDict):
    id: int
    timestamp: str
    event: str
    lock_key: str
    token: Optional[int]
    outcome: Optional[str]
    reason: Optional[str]


class Freeze(TypedDict):
    id: str
    pattern: str
    reason: str
    by: str
    in_force: bool
