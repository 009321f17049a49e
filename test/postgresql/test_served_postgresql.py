"""The tests of `belay serve` (test/server), once more with a server on PostgreSQL: a twelfth of them, or all with
BELAY_POSTGRESQL_TESTS=all. Left out is only what is different there, and why."""
import importlib
import os
import sys
import unittest

from pg_support import ROOT, PostgresStore

sys.path[:0] = [os.path.join(ROOT, "test", "server")]

MODULES = ("test_waiting", "test_lock_kinds", "test_events", "test_freezes", "test_check", "test_auth", "test_identity",
           "test_routes", "test_remote", "test_sessions", "test_webhooks")
EVERY = 1 if os.environ.get("BELAY_POSTGRESQL_TESTS") == "all" else 12

# A lock that was granted to a client that is gone and named its own lock id is left to its lease: the client may hold
# it through another server (docs/safety.md, L4).
UNCLAIMED = {"test_a_lock_granted_to_a_waiter_that_never_returns_goes_to_the_next",
             "test_a_waiter_with_a_new_id_for_each_poll_gets_the_lock",
             "test_a_grant_that_no_client_claims_is_released_on_every_key"}
# Queued webhooks are in a file beside an SQLite database; on PostgreSQL only if server.webhooks.file names one.
WEBHOOKS = {"test_a_webhook_is_called_with_the_lock_of_its_kind_and_survives_a_kill",
            "test_a_queued_webhook_belongs_to_its_credential",
            "test_a_webhook_of_a_removed_token_does_not_return_with_the_next_server",
            "test_a_file_that_a_killed_server_left_is_removed", "test_a_receiver_that_was_being_called_is_called_again",
            "test_the_file_is_for_the_servers_user_only", "test_waiters_survive_the_server"}
# The store is read and written in worker threads, and some time later.
THREADS = {"test_a_release_by_a_waiter_gives_up_its_place_at_once",
           "test_hundreds_wait_without_a_thread_for_each",
           "test_a_lock_with_several_holders_is_one_lock_as_old_as_its_oldest_holder",
           "test_a_list_has_the_first_ten_waiters_and_their_number_and_the_queue_has_all"}
# `belay backup` and the journal are SQLite's.
SQLITE = {"test_each_route_grants_each_role_exactly_its_permissions"}
LEFT_OUT = UNCLAIMED | WEBHOOKS | THREADS | SQLITE


def load_tests(loader, _standard, _pattern):
    cases = []
    for module in MODULES:
        found = importlib.import_module(module)
        for name, kind in vars(found).items():
            if isinstance(kind, type) and issubclass(kind, unittest.TestCase) and kind.__module__ == module:
                served = type(name, (PostgresStore, kind), {"__module__": __name__})
                cases += list(loader.loadTestsFromTestCase(served))
    names = {case.id().rsplit(".", 1)[-1] for case in cases}
    if loader.testNamePatterns is None:
        assert len(cases) > 200 and not LEFT_OUT - names, sorted(LEFT_OUT - names)
    kept = [case for case in cases if case.id().rsplit(".", 1)[-1] not in LEFT_OUT]
    return unittest.TestSuite(kept[::EVERY] if loader.testNamePatterns is None else kept)


if __name__ == "__main__":
    unittest.main()
