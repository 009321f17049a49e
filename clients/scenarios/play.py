"""Plays one scenario: each kind of step is a method."""

import json
import signal
import time
import urllib.parse

from driver import Driver
from link import Link, free_port
from match import filled, problem, seconds
from server import PATIENCE, Server, clean_environment

POLL = 0.03
OF_THE_RUNNER = ("as", "expect", "later", "mark")


class Play:
    def __init__(self, scenario, command, directory, trace):
        self.scenario = scenario
        self.command = command
        self.directory = directory
        self.trace = trace
        self.server = Server(directory, scenario.get("server", {}))
        self.other = None
        if scenario.get("server", {}).get("other"):
            (directory / "other").mkdir()
            self.other = Server(directory / "other", {})
        self.drivers, self.links = {}, {}
        self.saved, self.marks, self.pending = {}, {}, {}
        self.dead = f"http://127.0.0.1:{free_port()}"

    def run(self):
        """Raises AssertionError, with the step that went wrong."""
        problems = []
        try:
            for server in filter(None, (self.server, self.other)):
                server.start()
            self._start_drivers()
            for step in self.scenario["steps"]:
                try:
                    self._step(step)
                except AssertionError as error:
                    raise AssertionError(f"{json.dumps(step, ensure_ascii=False)}\n  {error}") from None
        finally:
            problems = [one for one in (driver.end() for driver in self.drivers.values()) if one]
            for link in self.links.values():
                link.close()
            for server in filter(None, (self.server, self.other)):
                server.end(signal.SIGKILL)
        if problems:
            raise AssertionError("\n".join(problems))

    def _step(self, step):
        self.trace(f"step {json.dumps(step, ensure_ascii=False)}")
        kind = next(name for name in step if name != "expect")
        known = {"as": self._request, "done": self._done, "lost": self._lost, "not_lost": self._not_lost,
                 "order": self._order, "between": self._between, "now": self._now, "link": self._link,
                 "server": self._server, "stop": self._signal, "continue": self._signal, "queue": self._queue,
                 "get": self._get, "sleep": self._sleep}
        if kind not in known:
            raise AssertionError(f"no step begins with '{kind}': {', '.join(known)}")
        known[kind](step)

    # ---- clients ----

    def _places(self, client):
        direct = self.server.url.startswith("https")
        return {"url": self.server.url if direct else self._link_of(client).url, "server": self.server.url,
                "tls": self.server.url, "dead": self.dead, "unix": self.server.unix, "ca": f"{self.directory}/ca.pem",
                "dir": str(self.directory), "other": self.other.url if self.other else ""}

    def _link_of(self, client):
        if client not in self.links:
            self.links[client] = Link(self.server.port)
        return self.links[client]

    def _start_drivers(self):
        """All of them before the first step, so that no step has to wait for a process to start."""
        first = {}
        for step in self.scenario["steps"]:
            if "as" in step:
                first.setdefault(step["as"], step["do"])
        for client in first:
            more = filled(self.scenario.get("env", {}).get(client, {}), self.saved, self._places(client))
            self.drivers[client] = Driver(client, self.command, self.directory, clean_environment(more), self.trace)
        for client, do in first.items():
            self.drivers[client].await_ready()
            if do != "connect":
                self._request({"as": client, "do": "connect", "urls": ["{url}"], "owner": client})

    def _request(self, step):
        client = step["as"]
        driver = self.drivers[client]
        of_us = OF_THE_RUNNER if step["do"] == "next" else (*OF_THE_RUNNER, "within")
        request = {name: value for name, value in step.items() if name not in of_us}
        if step["do"] in ("acquire", "adopt", "renew", "release", "is_held", "with") or \
                (step["do"] == "check" and "key" not in step):
            request.setdefault("lock", "l")
        if step["do"] in ("events", "next", "close"):
            request.setdefault("stream", "s")
        ticket = driver.send(filled(request, self.saved, self._places(client)))
        if "later" in step:
            self.pending[step["later"]] = (driver, ticket)
        else:
            self._answer(driver, ticket, step)

    def _answer(self, driver, ticket, step):
        patience = PATIENCE if step.get("do") == "next" else seconds(step.get("within", f"{PATIENCE}s"))
        moment, answer = driver.wait(ticket, patience)
        wrong = problem(step.get("expect", {"ok": {"$any": True}}), answer, self.saved)
        if wrong:
            raise AssertionError(f"{wrong}\n  {driver.name}: {json.dumps(answer, ensure_ascii=False)}")
        self._mark(step, moment)

    def _done(self, step):
        driver, ticket = self.pending.pop(step["done"])
        self._answer(driver, ticket, step)

    def _lost(self, step):
        moment = self.drivers[step["lost"]].wait_for_loss(step.get("lock", "l"), seconds(step.get("within", "10s")))
        self._mark(step, moment)

    def _not_lost(self, step):
        if step.get("lock", "l") in self.drivers[step["not_lost"]].losses:
            raise AssertionError("it was told of a loss")

    def _signal(self, step):
        (kind, client), = step.items()
        self.drivers[client].process.send_signal(signal.SIGSTOP if kind == "stop" else signal.SIGCONT)

    # ---- time ----

    def _mark(self, step, moment):
        if "mark" in step:
            self.marks[step["mark"]] = moment

    def _now(self, step):
        self.marks[step["now"]] = time.monotonic()

    def _sleep(self, step):
        time.sleep(seconds(step["sleep"]))

    def _order(self, step):
        moments = [self.marks[name] for name in step["order"]]
        if moments != sorted(moments):
            late = [f"{name} at {moment - moments[0]:+.3f} s" for name, moment in zip(step["order"], moments)]
            raise AssertionError("not in this order: " + ", ".join(late))

    def _between(self, step):
        began, ended = (self.marks[name] for name in step["between"])
        if not seconds(step.get("least", "0s")) <= ended - began <= seconds(step.get("most", "1h")):
            raise AssertionError(f"it took {ended - began:.3f} s")

    # ---- the server and the links to it ----

    def _server(self, step):
        if step["server"] == "start":
            self.server.start()
        else:
            self.server.end({"kill": signal.SIGKILL, "stop": signal.SIGTERM}[step["server"]])

    def _link(self, step):
        link = self._link_of(step["link"])
        if "set" in step:
            link.set(step["set"])
        elif "fault" in step:
            link.add_fault({**step, "by": seconds(step.get("by", "0s"))})
        else:
            self._until(lambda: link.seen(step["seen"]), step)

    def _queue(self, step):
        def owners():
            status, answer = self.server.get(f"/v1/locks/{urllib.parse.quote(step['queue'], safe='')}/queue")
            return [one["locked_by"] for one in answer["waiting"]] if status == 200 else []
        self._until(owners, step)

    def _get(self, step):
        self._until(lambda: self.server.get(step["get"])[1], step)

    def _until(self, look, step):
        """Wait until what is seen is as expected."""
        end = time.monotonic() + seconds(step.get("within", f"{PATIENCE}s"))
        while True:
            seen = look()
            wrong = problem(step["expect"], seen, self.saved)
            if not wrong:
                return
            if time.monotonic() > end:
                raise AssertionError(wrong)
            time.sleep(POLL)
