"""
The suite of the command line once more, with a server between: what a user sees
must not depend on where the locks are. Every case's store is a server of its own.
"""

import subprocess
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "cli"))

import support  # noqa: E402
import test_estimate  # noqa: E402
from inherited import inherited_cases  # noqa: E402
from remote_support import free_port  # noqa: E402

MODULES = ["test_acquire", "test_list", "test_unlock", "test_usage", "test_run_command", "test_run_lease",
           "test_run_terminal", "test_kinds"]


def through_a_server(case):
    """Have the case's set-up put a server before its file."""
    own = case.setUp

    def set_up():
        own()
        serve(case, case.store)

    case.setUp = set_up


def serve(case, store):
    port = free_port()
    server = subprocess.Popen(
        [support.BELAY, "serve", "--json", "--store", store, "--listen", f"127.0.0.1:{port}"],
        env=case.environment(None), cwd=case.dir, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, encoding="utf-8")
    case.addCleanup(case.end, server)
    case.assertIn("listening", server.stdout.readline())
    case.store = case.env["BELAY_STORE"] = f"http://127.0.0.1:{port}"


# They write into the database file, which a server owns while it runs.
BEHIND_ITS_BACK = {"test_more_rows_than_a_batch_are_all_printed", "test_is_the_commands_even_if_the_lock_cannot_be_released",
                   "test_a_wake_file_that_somebody_truncates_does_not_end_the_waiter"}


class Estimate(test_estimate.Estimate):
    """The history is planted before the server owns the file."""

    def past(self, holds):
        super().past(holds)
        serve(self, self.env["BELAY_STORE"])


def load_tests(loader, _standard, _pattern):
    suite = unittest.TestSuite()
    for case in inherited_cases(loader, MODULES, BEHIND_ITS_BACK):
        if isinstance(case, support.BelayCase):
            through_a_server(case)
        suite.addTest(case)
    suite.addTests(loader.loadTestsFromTestCase(Estimate))
    assert suite.countTestCases() > 100 or loader.testNamePatterns is not None
    return suite


if __name__ == "__main__":
    unittest.main()
