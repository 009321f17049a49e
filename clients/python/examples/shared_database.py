"""
Stop a database that several applications share, only if all the others are down.

    python3 shared_database.py URL REGISTRY.json DATABASE APP COMMAND...

REGISTRY.json: {"APP": {"url": "http://…", "databases": ["DATABASE", …]}, …}. COMMAND stops the database; it gets the fencing
token in BELAY_TOKEN. Whatever is not known counts as up: then the database is left running.
"""

import json
import os
import subprocess
import sys
from typing import Any, Dict, List
import urllib.error
import urllib.request

import belay

STATUS_TIMEOUT = 3.0
LOCK_TTL = "60s"
LOCK_WAIT = os.environ.get("LOCK_WAIT", "10s")


def quick_status(url: str) -> str:
    """UP for 200, DOWN for every other answer and where nothing listens, UNKNOWN if there is none in time."""
    try:
        request = urllib.request.Request(url, method="HEAD")
        with urllib.request.urlopen(request, timeout=STATUS_TIMEOUT) as answer:
            return "UP" if answer.status == 200 else "DOWN"
    except urllib.error.HTTPError:
        return "DOWN"
    except urllib.error.URLError as error:
        return "DOWN" if isinstance(error.reason, ConnectionRefusedError) else "UNKNOWN"
    except OSError:
        return "UNKNOWN"


def sharing_apps(registry: Dict[str, Any], database: str, app: str) -> List[str]:
    return sorted(name for name, one in registry.items() if database in one["databases"] and name != app)


def stop_under_lock(lock: belay.Lock, registry: Dict[str, Any], others: List[str], command: List[str]) -> str:
    status = {name: quick_status(registry[name]["url"]) for name in others}
    active = [f"{name} is {word}" for name, word in status.items() if word != "DOWN"]
    if active:
        return "skipped: " + ", ".join(active)
    lock.check(for_="10s")  # the statuses may have taken longer than the lease
    subprocess.run(command, env={**os.environ, "BELAY_TOKEN": str(lock.token)}, check=True)
    return "stopped: " + (f"{', '.join(others)} down" if others else "not shared")


def stop_database(client: belay.Client, registry: Dict[str, Any], database: str, app: str, command: List[str]) -> str:
    others = sharing_apps(registry, database, app)
    try:
        with client.lock(f"LOCK#DB#{database}", ttl=LOCK_TTL, wait=LOCK_WAIT, metadata={"app": app}) as lock:
            return stop_under_lock(lock, registry, others, command)
    except belay.LockHeld as error:
        return f"skipped: {error.holder} is stopping or starting it"
    except belay.LockLost as error:
        return f"unknown: {error}"
    except (belay.Unavailable, belay.UnknownOutcome) as error:
        return f"skipped: {error}"


def main() -> None:
    url, registry_path, database, app, *command = sys.argv[1:]
    with open(registry_path, encoding="utf-8") as file:
        registry = json.load(file)
    print(stop_database(belay.connect(url, owner=app), registry, database, app, command))


if __name__ == "__main__":
    main()
