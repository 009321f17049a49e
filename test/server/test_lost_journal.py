"""A server was killed and its journal is damaged or gone: nothing is forgotten silently, and no token comes twice (L2)."""

import contextlib
import signal
import sqlite3

from server_support import ServerCase, main


class LostJournal(ServerCase):
    def killed(self):
        """Kill a server that granted tokens; returns the last one."""
        server = self.serve()
        token = max(server.acquire(f"key-{n}").json()["token"] for n in range(40))
        server.stop(signal.SIGKILL)
        return token

    def journals(self):
        return sorted(self.dir.glob("locks.db-ledger-?"))

    def setUp(self):
        super().setUp()
        self.env["BELAY_STORE"] = f"sqlite:{self.dir}/locks.db"

    def refused(self, words):
        result = self.fails(65, "list")
        self.assertIn(words, result.err)
        self.assertIn("continue without it: ", result.err)
        self.assertIn(words, self.fails(65, "serve", "--listen", "127.0.0.1:0").err)
        self.assertIn(words, self.fails(65, "repair").err)
        return result.err.strip().split("continue without it: belay ")[1].split(" ")

    def test_a_journal_that_is_moved_away_or_damaged_is_refused_until_told_and_tokens_go_on_above(self):
        last = 0
        for harm in ("moved", "damaged"):
            with self.subTest(harm=harm):
                last = max(last, self.killed())
                for path in self.journals():
                    if harm == "moved":
                        path.rename(f"{path}.aside")
                    else:
                        content = bytearray(path.read_bytes())
                        content[0:512] = b"x" * 512
                        path.write_bytes(content)
                command = self.refused("is missing" if harm == "moved" else "its head cannot be read")
                self.assertEqual(command[:2], ["repair", "--accept-loss"])
                self.ok(*command)
                self.assertIn("nothing to repair", self.ok("repair").err)
                self.assertGreater(self.acquire(f"after-{harm}")["token"], last)
                last = self.serve_one(f"served-{harm}")

    def serve_one(self, key):
        server = self.serve()
        token = server.acquire(key).json()["token"]
        server.stop()
        return token

    def test_a_journal_put_back_is_taken_in_whole(self):
        last = self.killed()
        paths = self.journals()
        for path in paths:
            path.rename(f"{path}.aside")
        self.refused("is missing")
        for path in paths:
            path.with_name(path.name + ".aside").rename(path)
        self.assertEqual(len(self.ok("list", "--json").json()["locks"]), 40)
        self.assertGreater(self.acquire("after")["token"], last)

    def test_the_locks_that_are_left_are_held_for_their_whole_ttl(self):
        server = self.serve()
        server.acquire("kept", ttl_ms=3600000)
        server.stop()
        self.killed()
        for path in self.journals():
            path.unlink()
        self.ok(*self.refused("is missing"))
        self.fails(75, "acquire", "kept")
        self.ok("acquire", "key-1")

    def test_tokens_of_a_removed_journal_are_not_granted_again(self):
        """The database does not name its journal, so a missing one goes unnoticed, but numbers continue from the ceiling."""
        last = self.killed()
        for path in self.journals():
            path.unlink()
        with contextlib.closing(sqlite3.connect(self.dir / "locks.db")) as db, db:
            db.execute("UPDATE meta SET journal_id = 0, journal_use = 0, journal_folded = 0")
        self.assertGreater(self.acquire("after")["token"], last)

    def test_a_store_in_use_is_not_repaired(self):
        self.serve()
        self.assertIn("serves the lock database", self.fails(69, "repair", "--accept-loss").err)
        self.assertIn("only an embedded store", self.fails(64, "repair", "--accept-loss", "--store", "dynamodb:table").err)


if __name__ == "__main__":
    main()
