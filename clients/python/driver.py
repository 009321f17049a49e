"""Plays the scenarios (clients/scenarios/README.md) with this client; with --asyncio, with its asyncio twin."""

import asyncio
import json
import os
import platform
import queue
import re
import signal
import sys
import threading

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import belay  # noqa: E402

LOCK_OPTIONS = ("ttl", "wait", "lock_id", "shared", "slots", "metadata", "reentrant", "ignore_freeze")
CONNECT_OPTIONS = ("token", "token_file", "ca_file", "timeout", "owner", "owner_name")
CODES = {"LockHeld": "held", "Frozen": "frozen", "LockLost": "lost", "IdUsed": "id_used", "UnknownOutcome": "unknown",
         "Unavailable": "unavailable", "NotFound": "not_found", "Forbidden": "forbidden", "Invalid": "invalid"}
writing = threading.Lock()


def write(line):
    with writing:
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()


def seconds(text):
    number, unit = re.fullmatch(r"(\d+)(ms|s|m|h)", text).groups()
    return int(number) * {"ms": 0.001, "s": 1, "m": 60, "h": 3600}[unit]


def told(name):
    return lambda lock: write({"event": "lost", "lock": name, "reason": lock.loss_reason})


def options(request, names):
    return {name: request[name] for name in names if name in request}


def keys(request):
    return request.get("keys") or [request["key"]]


def lock_options(request):
    more = {"heartbeat": False} if request.get("heartbeat") == "off" else {}
    return {**options(request, LOCK_OPTIONS), **more, "on_loss": told(request["lock"])}


def adopt_options(request):
    given = lock_options(request)
    return {name: given[name] for name in ("ttl", "lock_id", "heartbeat", "on_loss") if name in given}


def shown(lock):
    valid = {"lock_id": lock.lock_id, "valid_for_ms": int(lock.valid_for * 1000)}
    if len(lock.keys) > 1:
        return {"keys": lock.keys, "tokens": dict(lock.tokens), **valid}
    return {"key": lock.key, "token": lock.token, **valid}


class BodyFailed(Exception):
    pass


class Driver:
    """The synchronous client."""

    def __init__(self):
        self.client = None
        self.locks = {}
        self.streams = {}

    def answer(self, request):
        try:
            return {"ok": getattr(self, "do_" + request["do"])(request)}
        except Exception as error:
            return failed(error)
        except KeyboardInterrupt:
            return {"error": {"code": "cancelled", "message": "Ctrl-C"}}

    def do_connect(self, request):
        self.client = belay.connect(request["urls"], **options(request, CONNECT_OPTIONS))
        return {}

    def do_acquire(self, request):
        lock = self.client.lock(*keys(request), **lock_options(request))
        if "cancel_after" in request:
            signal.setitimer(signal.ITIMER_REAL, seconds(request["cancel_after"]))
        try:
            lock.acquire()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        self.locks[request["lock"]] = lock
        return shown(lock)

    def do_with(self, request):
        with self.client.lock(*keys(request), **lock_options(request)) as lock:
            lock.lost.wait(seconds(request["hold"]))
            if "fail" in request:
                raise BodyFailed(request["fail"])
        return {"token": lock.token}

    def do_adopt(self, request):
        lock = self.client.adopt(*keys(request), **adopt_options(request))
        self.locks[request["lock"]] = lock
        return shown(lock)

    def do_renew(self, request):
        return {"valid_for_ms": int(self.locks[request["lock"]].renew(request.get("ttl")) * 1000)}

    def do_release(self, request):
        self.locks[request["lock"]].release(**options(request, ["outcome"]))
        return {}

    def do_check(self, request):
        if "lock" in request:
            valid = self.locks[request["lock"]].check(request.get("for"))
        else:
            valid = self.client.check(request["key"], for_=request.get("for"), **options(request, ["token", "lock_id"]))
        return {"valid_for_ms": int(valid * 1000)}

    def do_is_held(self, request):
        return {"held": self.locks[request["lock"]].is_held}

    def do_force(self, request):
        return self.client.force(**options(request, ["key", "reason", "lock_id"]))

    def do_status(self, request):
        return self.client.status(request["key"])

    def do_list(self, request):
        return self.client.list_locks(request.get("prefix", ""), request.get("status"), request.get("page", 1000))

    def do_history(self, request):
        return self.client.history(request["key"], request.get("limit"))

    def do_events(self, request):
        stream = self.client.events(**options(request, ["prefix", "after"]))
        box = queue.Queue()
        self.streams[request["stream"]] = (stream, box)
        threading.Thread(target=lambda: [box.put(event) for event in stream], daemon=True).start()
        return {}

    def do_next(self, request):
        return self.streams[request["stream"]][1].get(timeout=seconds(request["within"]))

    def do_close(self, request):
        self.streams.pop(request["stream"])[0].close()
        return {}

    def do_freeze(self, request):
        return self.client.freeze(request["pattern"], request["reason"], for_=request.get("for"), until=request.get("until"))

    def do_unfreeze(self, request):
        return self.client.unfreeze(request["what"])

    def do_freezes(self, _):
        return self.client.freezes()


class AsyncDriver(Driver):
    """The asyncio client, where it differs."""

    async def answer(self, request):
        try:
            result = getattr(self, "do_" + request["do"])(request)
            return {"ok": await result if asyncio.iscoroutine(result) else result}
        except asyncio.CancelledError:
            return {"error": {"code": "cancelled", "message": "the task was cancelled"}}
        except Exception as error:
            return failed(error)

    def do_connect(self, request):
        self.client = belay.connect_async(request["urls"], **options(request, CONNECT_OPTIONS))
        return {}

    async def do_acquire(self, request):
        lock = self.client.lock(*keys(request), **lock_options(request))
        task = asyncio.create_task(lock.acquire())
        if "cancel_after" in request:
            asyncio.get_running_loop().call_later(seconds(request["cancel_after"]), task.cancel)
        await task
        self.locks[request["lock"]] = lock
        return shown(lock)

    async def do_with(self, request):
        async with self.client.lock(*keys(request), **lock_options(request)) as lock:
            try:
                await asyncio.wait_for(lock.lost.wait(), seconds(request["hold"]))
            except asyncio.TimeoutError:
                pass
            if "fail" in request:
                raise BodyFailed(request["fail"])
        return {"token": lock.token}

    async def do_adopt(self, request):
        lock = await self.client.adopt(*keys(request), **adopt_options(request))
        self.locks[request["lock"]] = lock
        return shown(lock)

    async def do_renew(self, request):
        return {"valid_for_ms": int(await self.locks[request["lock"]].renew(request.get("ttl")) * 1000)}

    async def do_release(self, request):
        await self.locks[request["lock"]].release(**options(request, ["outcome"]))
        return {}

    async def do_check(self, request):
        if "lock" in request:
            valid = await self.locks[request["lock"]].check(request.get("for"))
        else:
            valid = await self.client.check(request["key"], for_=request.get("for"), **options(request, ["token", "lock_id"]))
        return {"valid_for_ms": int(valid * 1000)}

    async def do_events(self, request):
        self.streams[request["stream"]] = await self.client.events(**options(request, ["prefix", "after"]))
        return {}

    async def do_next(self, request):
        return await asyncio.wait_for(self.streams[request["stream"]].__anext__(), seconds(request["within"]))

    async def do_close(self, request):
        await self.streams.pop(request["stream"]).close()
        return {}


def failed(error):
    if isinstance(error, (queue.Empty, asyncio.TimeoutError)):
        return {"error": {"code": "timeout", "message": "no event came"}}
    if isinstance(error, BodyFailed):
        return {"error": {"code": "body", "message": str(error)}}
    if not isinstance(error, belay.BelayError):
        return {"error": {"code": "bug", "message": repr(error)}}
    return {"error": {"code": CODES[type(error).__name__], "message": str(error), "holder": getattr(error, "holder", None),
                      "lock_id": getattr(error, "lock_id", None)}}


async def serve_async():
    driver = AsyncDriver()
    loop = asyncio.get_running_loop()
    while True:
        line = await loop.run_in_executor(None, sys.stdin.readline)
        if not line:
            os._exit(0)
        write(await driver.answer(json.loads(line)))


def main():
    is_async = "--asyncio" in sys.argv
    write({"ready": f"python {platform.python_version()}{' asyncio' if is_async else ''}"})
    if is_async:
        asyncio.run(serve_async())
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    driver = Driver()
    for line in sys.stdin:
        write(driver.answer(json.loads(line)))
    os._exit(0)


if __name__ == "__main__":
    main()
