"""Tests on a PostgreSQL that this process starts once; each case has a schema of its own."""
import atexit
import functools
import itertools
import json
import os
import select
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [os.path.join(ROOT, "test", "cli"), os.path.join(ROOT, "test", "support")]

import postgresql  # noqa: E402
from support import BELAY, BelayCase, wait_until  # noqa: E402,F401

_numbers = itertools.count(1)


@functools.cache
def shared_server():
    server = postgresql.Server().init().start()
    atexit.register(server.close)
    return server


class PostgresStore:
    """For a BelayCase: its store is a new schema. Put it before the case among the bases."""

    EXTRA = "max_clock_step=10ms"  # one machine has one clock

    def make_store(self):
        self.server = self.make_server()
        self.schema = f"case_{next(_numbers)}"
        self.store = self.url()
        self.env.update(BELAY_STORE=self.store)
        subprocess.run([BELAY, "table", "create", "--quiet"], env=self.environment(None), check=True, cwd=self.dir,
                       stdout=subprocess.DEVNULL)

    def make_server(self):
        return shared_server()

    def url(self, *more, port=None):
        params = [f"schema={self.schema}", *([self.EXTRA] if self.EXTRA else []), *more]
        return f"postgresql://postgres@127.0.0.1:{port or self.server.port}/postgres?" + "&".join(params)

    def sql(self, text):
        return self.server.sql(text.replace("@schema@", self.schema))


class PostgresCase(PostgresStore, BelayCase):
    def start_watch(self):
        """`belay watch --json`, once it is known to follow: it shows what happens after its start only."""
        watch = self.start("watch", "--json")
        for i in range(150):
            self.acquire(f"first-{i}")
            if select.select([watch.stdout], [], [], 0.2)[0]:
                while json.loads(watch.stdout.readline())["lock_key"] != f"first-{i}":
                    pass
                return watch
        raise AssertionError("belay watch shows nothing")


class OwnServerCase(PostgresCase):
    """With a server that the case may stop, kill and start again."""

    OPTIONS = ()

    def make_server(self):
        server = postgresql.Server(options=self.OPTIONS)
        self.addCleanup(server.close)
        return server.init().start()
