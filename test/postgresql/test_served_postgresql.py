"""The tests of `belay serve` (test/server), once more with a server on PostgreSQL: a twelfth of them, or all with
BELAY_POSTGRESQL_TESTS=all."""
import importlib
import os
import re
import sys
import unittest

from pg_support import ROOT, PostgresStore

sys.path[:0] = [os.path.join(ROOT, "test", "server")]

MODULES = ("test_waiting", "test_lock_kinds", "test_events", "test_freezes", "test_check", "test_auth", "test_identity",
           "test_routes", "test_remote", "test_sessions", "test_webhooks")
EVERY = 1 if os.environ.get("BELAY_POSTGRESQL_TESTS") == "all" else 12

# Queued webhooks are in a file beside an SQLite database; on PostgreSQL only if server.webhooks.file names one.
WEBHOOKS = {"test_a_webhook_is_called_with_the_lock_of_its_kind_and_survives_a_kill",
            "test_a_queued_webhook_belongs_to_its_credential",
            "test_a_webhook_of_a_removed_token_does_not_return_with_the_next_server",
            "test_a_file_that_a_killed_server_left_is_removed", "test_a_receiver_that_was_being_called_is_called_again",
            "test_the_file_is_for_the_servers_user_only", "test_waiters_survive_the_server"}


class Served(PostgresStore):
    """What is different in a server on PostgreSQL."""

    THREADS_MAX = 80  # requests wait for the database in worker threads, of which there are at most 64
    REFUSALS_HAVE_THE_QUEUE = False  # it is not read for them (docs/http.md)
    UNCLAIMED_IS_RELEASED = False  # the client may hold it through another server (docs/safety.md, L4; test_fronts.py)
    UNCLAIMED_TTL_MS = 3000
    BACKUP = 400  # `belay backup` is SQLite's

    def serve(self, *args, **more):
        config = more.get("config")
        if self._testMethodName in WEBHOOKS and config is not None:
            file = self.dir / "belay.db-webhooks"
            text = re.sub(r"(webhooks: \{)(?=allow)", rf"\1file: {file}, ", config.read_text())
            config.write_text(re.sub(r"(webhooks:\n    )(?=allow)", rf"\1file: {file}\n    ", text))
        return super().serve(*args, **more)


def load_tests(loader, _standard, _pattern):
    cases = []
    for module in MODULES:
        found = importlib.import_module(module)
        for name, kind in vars(found).items():
            if isinstance(kind, type) and issubclass(kind, unittest.TestCase) and kind.__module__ == module:
                served = type(name, (Served, kind), {"__module__": __name__})
                cases += list(loader.loadTestsFromTestCase(served))
    names = {case.id().rsplit(".", 1)[-1] for case in cases}
    if loader.testNamePatterns is None:
        assert len(cases) > 200 and WEBHOOKS <= names, sorted(WEBHOOKS - names)
    return unittest.TestSuite(cases[::EVERY] if loader.testNamePatterns is None else cases)


if __name__ == "__main__":
    unittest.main()
