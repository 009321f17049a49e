"""The tests of the command line (test/cli), once more on PostgreSQL: the same commands, the same words, the same codes.

Left out is only what speaks of SQLite's own file.
"""
import unittest

from pg_support import PostgresStore

import test_acquire
import test_estimate
import test_freeze
import test_kinds
import test_list
import test_run_command
import test_run_lease
import test_unlock


class Acquire(PostgresStore, test_acquire.Acquire):
    pass


class Holder(PostgresStore, test_acquire.Holder):
    pass


class Waiting(PostgresStore, test_acquire.Waiting):
    test_a_wake_file_that_somebody_truncates_does_not_end_the_waiter = None  # SQLite's own file


class ByOwner(PostgresStore, test_acquire.ByOwner):
    pass


class List(PostgresStore, test_list.List):
    def test_more_rows_than_a_batch_are_all_printed(self):
        self.acquire("key")
        self.sql("CREATE TEMP TABLE one AS SELECT * FROM @schema@.locks; "
                 "INSERT INTO @schema@.locks SELECT (jsonb_populate_record(one, jsonb_build_object('key', 'copy-' || n))).* "
                 "FROM one, generate_series(1, 700) n")
        self.assertEqual(len(self.ok("list").out.splitlines()), 1 + 700 + 1)
        self.assertEqual(len(self.ok("list", "--json").json()["locks"]), 701)


class Status(PostgresStore, test_list.Status):
    pass


class History(PostgresStore, test_list.History):
    pass


class Unlock(PostgresStore, test_unlock.Unlock):
    pass


class StateLocks(PostgresStore, test_unlock.StateLocks):
    pass


class Watch(PostgresStore, test_list.Watch):
    pass


class RunExitCode(PostgresStore, test_run_command.ExitCode):
    def test_is_the_commands_even_if_the_lock_cannot_be_released(self):
        process, _ = self.start_command(script="while [ ! -e go ]; do sleep 0.05; done; exit 7")
        self.sql("DROP FUNCTION @schema@.commit; DROP FUNCTION @schema@.change")
        (self.dir / "go").touch()
        _, err = process.communicate(timeout=30)
        self.assertEqual(process.returncode, 7, err)
        self.assertIn("warning: the command ended, but the lock was not released", err)


class RunResultFile(PostgresStore, test_run_command.ResultFile):
    pass


class RunOptions(PostgresStore, test_run_command.Options):
    pass


class RunCommand(PostgresStore, test_run_command.Command):
    pass


class RunLostLease(PostgresStore, test_run_lease.LostLease):
    pass


class RunBelayKilled(PostgresStore, test_run_lease.BelayKilled):
    pass


class RunWaiting(PostgresStore, test_run_lease.Waiting):
    pass


class Freeze(PostgresStore, test_freeze.Freeze):
    pass


class FreezeWaiting(PostgresStore, test_freeze.Waiting):
    pass


class UnlockIsAudited(PostgresStore, test_kinds.UnlockIsAudited):
    pass


class Slots(PostgresStore, test_kinds.Slots):
    pass


class Shared(PostgresStore, test_kinds.Shared):
    pass


class ChooseWhichToUnlock(PostgresStore, test_kinds.ChooseWhichToUnlock):
    pass


class SeveralKeys(PostgresStore, test_kinds.SeveralKeys):
    pass


class RunSeveralKeys(PostgresStore, test_kinds.RunSeveralKeys):
    pass


class Estimate(PostgresStore, test_estimate.Estimate):
    def past(self, holds):
        for i, (key, seconds) in enumerate(holds):
            self.sql(f"INSERT INTO @schema@.events VALUES ({i + 1}, 0, 0, 'lock.released', '{key}', 'id', 1, 'me', 'me', NULL, NULL, "
                     f"{round(seconds * 1000)}, NULL)")


if __name__ == "__main__":
    unittest.main()
