"""Durations, the clock, and what the server sends, by the server's names (docs/http.md)."""

from datetime import timedelta
import re
import time
from typing import Any, Dict, List, Optional, TypedDict, Union

Duration = Union[str, int, float, timedelta]
"""`"10m"`, `"1h30m"`, `"500ms"`; a number of seconds; or a timedelta."""

LockInfo = TypedDict("LockInfo", {
    "key": str, "lock_id": Optional[str], "token": Optional[int], "locked_by": str, "locked_by_name": str,
    "acquired_by": Optional[str], "status": str, "outcome": Optional[str], "locked_at": Optional[str],
    "expires_at": Optional[str], "last_heartbeat": Optional[str], "ttl_ms": int, "expires_in_ms": int,
    "valid_for_ms": Optional[int], "is_stale": bool, "metadata": Dict[str, str],
    "released_at": Optional[str], "mode": str, "slots": Optional[int], "holders": List[Dict[str, Any]], "waiting": Optional[List[Dict[str, Any]]]})
Event = TypedDict("Event", {
    "id": int, "timestamp": str, "level": str, "event": str, "lock_key": str, "lock_id": Optional[str],
    "token": Optional[int], "locked_by": str, "locked_by_name": str, "by": Optional[str], "reason": Optional[str],
    "duration_seconds": Optional[float], "metadata": Dict[str, str]})
Freeze = TypedDict("Freeze", {
    "id": str, "pattern": str, "reason": str, "by": str, "created_at": str, "from": Optional[str],
    "until": Optional[str], "in_force": bool})

_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def milliseconds(what: str, duration: Optional[Duration]) -> Optional[int]:
    if duration is None:
        return None
    if isinstance(duration, timedelta):
        duration = duration.total_seconds()
    if isinstance(duration, (int, float)) and 0 <= duration < float("inf"):
        return int(1000 * duration)
    if not isinstance(duration, str) or not re.fullmatch(r"(\d+(\.\d+)?(ms|s|m|h|d))+", duration):
        from .errors import Invalid  # which needs the types above
        raise Invalid(f"{what} '{duration}' is not a duration: write 90s, 10m or 1h30m")
    return int(sum(float(number) * _UNITS_MS[unit] for number, unit in re.findall(r"([\d.]+)(ms|s|m|h|d)", duration)))


def clock() -> float:
    """Seconds on a clock that is never set and, where the system has one, that goes on during suspend."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()
