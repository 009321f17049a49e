"""belay backup and belay restore: nothing that was reported is missing, and no token comes twice (L2, issue 12 item 8)."""

import contextlib
import os
import random
import shutil
import signal
import sqlite3
import stat
import threading
import time

from server_support import ServerCase, main, wait_until


class BackupCase(ServerCase):
    def setUp(self):
        super().setUp()
        self.path = self.dir / "locks.db"
        self.env["BELAY_STORE"] = f"sqlite:{self.path}"
        self.copy = self.dir / "out" / "copy.db"
        self.copy.parent.mkdir()
        self.new = f"sqlite:{self.dir}/new/locks.db"

    def keys(self, *args):
        return {lock["key"] for lock in self.ok("list", "--json", *args).json()["locks"]}

    def expect_no_strays(self):
        self.assertEqual([f.name for f in self.copy.parent.iterdir()], [self.copy.name])
        self.assertEqual([f.name for f in self.dir.iterdir() if ".backup-" in f.name or ".part-" in f.name], [])
        self.assertEqual([f.name for f in self.dir.rglob("*.restore-*")], [])


class Backup(BackupCase):
    def test_a_copy_of_a_file_in_use_has_all_and_is_for_its_owner_alone(self):
        os.umask(0)
        self.addCleanup(os.umask, 0o022)
        held = self.acquire("held", "--ttl", "1h")
        result = self.ok("backup", str(self.copy), "--json").json()
        self.assertEqual((result["locks"], result["held"], result["next_token"]), (1, 1, None))
        self.assertEqual(result["bytes"], self.copy.stat().st_size)
        self.assertEqual(stat.S_IMODE(self.copy.stat().st_mode), 0o600)
        self.expect_no_strays()
        restored = self.ok("restore", str(self.copy), "--store", self.new, "--json").json()
        self.assertGreater(restored["next_token"], held["token"])
        self.assertEqual(self.keys("--store", self.new), {"held"})
        again = self.ok("status", "held", "--json", "--store", self.new).json()
        self.assertEqual((again["lock_id"], again["token"], again["status"]),
                         (held["lock_id"], held["token"], "active"))
        self.assertGreater(again["expires_in_ms"], 3590000)
        self.ok("release", "held", "--id", held["lock_id"], "--store", self.new)

    def test_a_backup_contains_what_the_server_has_just_acknowledged(self):
        server = self.serve()
        tokens = [server.acquire(f"key-{n}", ttl_ms=600000).json()["token"] for n in range(40)]
        self.ok("backup", str(self.copy))  # through the server's socket
        tokens += [server.acquire(f"later-{n}").json()["token"] for n in range(40)]
        self.expect_no_strays()
        self.ok("restore", str(self.copy), "--store", self.new)
        self.assertEqual(self.keys("--store", self.new), {f"key-{n}" for n in range(40)})
        self.assertGreater(self.ok("acquire", "new", "--json", "--store", self.new).json()["token"], max(tokens))
        self.fails(75, "acquire", "key-7", "--store", self.new)
        self.assertEqual(server.get("/healthz").status, 200)

    def test_a_copy_under_load_has_all_that_was_reported_before(self):
        server = self.serve()
        reported, over = [], threading.Event()

        def work(who):
            connection = server.connect()
            for n in range(100000):
                if over.is_set():
                    break
                key = f"{who}-{n}"
                if server.acquire(key, connection=connection, ttl_ms=600000).status == 200:
                    reported.append(key)
            connection.close()

        threads = [threading.Thread(target=work, args=(who,)) for who in "abcd"]
        for thread in threads:
            thread.start()
        try:
            for i in range(3):
                before = set(reported)
                copy = self.copy.with_name(f"copy-{i}.db")
                self.ok("backup", str(copy))
                with contextlib.closing(sqlite3.connect(copy)) as db:
                    kept = {row[0] for row in db.execute("SELECT key FROM locks WHERE held = 1")}
                self.assertLessEqual(before, kept)
        finally:
            over.set()
            for thread in threads:
                thread.join()

    def test_through_a_server_it_takes_an_admin(self):
        config = self.config_with({"s-admin": ("root", "admin", None), "s-ci": ("ci", "locker", None),
                                   "s-some": ("tenant", "admin", ["k*"])})
        server = self.serve(config=config)
        server.acquire("k", token="s-ci")
        for secret, code in (("s-ci", 77), ("s-admin", 0)):
            token = self.dir / "token"
            token.write_text(secret)
            token.chmod(0o600)
            result = self.belay("backup", str(self.copy), "--store", server.url, env={"BELAY_AUTH_FILE": str(token)})
            self.assertEqual(result.code, code, result)
            self.assertEqual(self.copy.exists(), code == 0)
        self.expect_no_strays()
        self.assertEqual(self.copy.stat().st_mode & 0o777, 0o600)
        self.assertEqual(server.get("/v1/backup").status, 401)
        self.assertEqual(server.get("/v1/backup", token="s-some").status, 403)  # it has all keys
        answer = server.get("/v1/backup", token="s-admin", check=False)
        self.assertEqual((answer.status, answer.headers["Content-Type"]), (200, "application/vnd.sqlite3"))
        self.assertTrue(answer.body.startswith(b"SQLite format 3\0"))
        self.ok("restore", str(self.copy), "--store", self.new)
        self.assertEqual(self.keys("--store", self.new), {"k"})

    def test_nothing_is_overwritten_and_no_link_followed(self):
        self.acquire("k")
        self.copy.write_text("a letter")
        self.assertIn("is there already", self.fails(64, "backup", str(self.copy)).err)
        self.assertEqual(self.copy.read_text(), "a letter")
        self.copy.unlink()
        self.copy.symlink_to(self.dir / "elsewhere")
        self.fails(64, "backup", str(self.copy))
        self.assertFalse((self.dir / "elsewhere").exists())
        self.fails(64, "backup", str(self.dir / "no" / "such" / "folder"))

    def test_a_backup_of_dynamodb_is_refused_with_a_hint(self):
        result = self.fails(64, "backup", str(self.copy), "--store", "dynamodb:table?region=eu-west-1",
                            env={"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x"})
        self.assertIn("point-in-time recovery", result.err)
        self.assertIn("only an embedded store", self.fails(64, "restore", str(self.copy), "--store", "dynamodb:table").err)


class Restore(BackupCase):
    def test_tokens_go_on_above_all_however_often_and_however_it_is_put_in_place(self):
        """Each restore of one old backup continues above the tokens granted after the earlier ones."""
        last = self.acquire("k")["token"]
        self.ok("backup", str(self.copy))
        for i in range(20):
            last = max(last, self.acquire(f"original-{i}")["token"])
        for i in range(4):
            path = self.dir / f"place-{i}.db"
            if i % 2 == 0:
                self.ok("restore", str(self.copy), "--store", f"sqlite:{path}")
            else:
                shutil.copy(self.copy, path)
            token = self.ok("acquire", "other", "--json", "--store", f"sqlite:{path}").json()["token"]
            self.assertGreater(token, last)
            self.assertLess(token, 2 ** 53)
            last = token

    def test_an_existing_database_is_replaced_only_on_request_and_kept(self):
        first = self.acquire("first")
        self.ok("backup", str(self.copy))
        self.ok("release", "first", "--id", first["lock_id"])
        lock = self.acquire("second")
        self.assertIn("--replace", self.fails(64, "restore", str(self.copy)).err)
        self.assertIn("1 locks in it are held", self.fails(75, "restore", "--replace", str(self.copy)).err)
        self.ok("release", "second", "--id", lock["lock_id"])
        self.ok("restore", "--replace", str(self.copy))
        self.assertEqual(self.keys(), {"first"})
        self.assertGreater(self.acquire("third")["token"], lock["token"])
        kept = [f for f in self.dir.iterdir() if ".replaced-" in f.name and f.suffix.startswith(".replaced")
                and f.name.split("-")[-1].isdigit()]
        self.assertEqual(len(kept), 1)
        self.assertIn("second", self.keys("--store", f"sqlite:{kept[0]}", "--filter", "status=released"))
        self.expect_no_strays()

    def test_a_store_in_use_is_not_replaced(self):
        self.ok("list")
        self.ok("backup", str(self.copy))
        server = self.serve()
        self.assertIn("a server serves it", self.fails(75, "restore", "--replace", str(self.copy)).err)
        server.stop()
        watch = self.start("watch")
        wait_until(lambda: self.has_open(watch.pid, f"{self.path}-wal"), "watch to open the file")
        self.assertIn("another process has it open", self.fails(75, "restore", "--replace", str(self.copy)).err)
        watch.send_signal(signal.SIGINT)
        watch.wait()
        self.ok("restore", "--replace", str(self.copy))

    def has_open(self, pid, path):
        folder = f"/proc/{pid}/fd"
        return path in [os.readlink(f"{folder}/{fd}") for fd in os.listdir(folder) if os.path.lexists(f"{folder}/{fd}")]

    def test_a_log_or_journal_of_another_database_is_moved_away(self):
        self.acquire("k")
        self.ok("backup", str(self.copy))
        for n in range(5):
            self.acquire(f"lost-{n}")
        self.path.unlink()  # its log stays
        self.ok("restore", str(self.copy))
        self.assertEqual(self.keys(), {"k"})

    def test_a_file_that_is_not_a_backup_is_refused_and_changes_nothing(self):
        server = self.serve()
        server.acquire("k")
        with contextlib.closing(sqlite3.connect(self.path)) as db, contextlib.closing(sqlite3.connect(self.copy)) as out:
            db.backup(out)  # as `sqlite3 .backup` does: without the journal
        self.assertIn("without the server's journal", self.fails(65, "restore", str(self.copy), "--store", self.new).err)
        self.copy.unlink()
        self.ok("backup", str(self.copy))
        content = bytearray(self.copy.read_bytes())
        for at in range(4096, len(content), 512):
            content[at:at + 64] = b"\xff" * 64
        damaged = self.copy.with_name("damaged.db")
        damaged.write_bytes(content)
        self.fails(65, "restore", str(damaged), "--store", self.new)
        damaged.write_bytes(b"no database at all " * 300)
        self.fails(65, "restore", str(damaged), "--store", self.new)
        self.fails(66, "restore", str(self.dir / "missing.db"), "--store", self.new)
        self.assertFalse((self.dir / "new" / "locks.db").exists())

    def test_a_clock_behind_the_backup_is_reported(self):
        self.acquire("k")
        self.ok("backup", str(self.copy))
        with contextlib.closing(sqlite3.connect(self.copy)) as db, db:
            db.execute("UPDATE meta SET copied_at = copied_at + 86400000")
        self.assertIn("set the clock", self.fails(78, "restore", str(self.copy), "--store", self.new).err)

    def test_a_clock_behind_the_backup_leaves_the_database_as_it_is(self):
        first = self.acquire("k")
        self.ok("backup", str(self.copy))
        self.ok("release", "k", "--id", first["lock_id"])
        with contextlib.closing(sqlite3.connect(self.copy)) as db, db:
            db.execute("UPDATE meta SET copied_at = copied_at + 86400000")
        self.assertIn("set the clock", self.fails(78, "restore", "--replace", str(self.copy)).err)
        self.assertEqual(self.keys(), set())
        self.assertGreater(self.acquire("next")["token"], first["token"])
        self.expect_no_strays()

    def test_a_database_with_its_log_is_restored_whole_and_tokens_jump(self):
        """Not made by `belay backup`: the file of a store without a server, with its -wal and without."""
        last = max(self.acquire(f"k-{n}", "--ttl", "1h")["token"] for n in range(3))
        for suffix in ("", "-wal"):
            shutil.copy(f"{self.path}{suffix}", f"{self.copy}{suffix}")
        self.assertGreater(os.path.getsize(f"{self.copy}-wal"), 0)
        self.assertEqual(self.ok("restore", str(self.copy), "--store", self.new, "--json").json()["held"], 3)
        self.assertEqual(self.keys("--store", self.new), {"k-0", "k-1", "k-2"})
        restored = self.ok("acquire", "x", "--json", "--store", self.new).json()["token"]
        for n in range(40):  # every command that finds no log jumps a little: not far enough
            last = max(last, self.acquire(f"later-{n}")["token"])
        self.assertGreater(restored, last + 2 ** 30)
        with contextlib.closing(sqlite3.connect(self.copy)) as db:
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        alone = f"sqlite:{self.dir}/alone/locks.db"
        self.assertGreater(self.ok("restore", str(self.copy), "--store", alone, "--json").json()["next_token"], restored)
        self.assertEqual([f.name for f in self.dir.rglob("*.restore-*")], [])

    def test_a_restore_replaces_the_content_of_the_file_for_its_waiters(self):
        first = self.acquire("first")
        self.ok("backup", str(self.copy))
        self.ok("release", "first", "--id", first["lock_id"])
        before = self.path.stat()
        for n in range(3):  # also within one second: each is kept
            self.ok("restore", "--replace", str(self.copy))
            self.ok("release", "first", "--id", first["lock_id"])
        self.assertEqual((before.st_ino, before.st_mode), (self.path.stat().st_ino, self.path.stat().st_mode))
        kept = [f for f in self.dir.iterdir() if ".replaced-" in f.name]
        self.assertEqual(len(kept), 3, kept)
        self.assertEqual({stat.S_IMODE(f.stat().st_mode) for f in kept}, {0o600})
        self.expect_no_strays()

    def test_a_restore_that_is_killed_leaves_one_or_the_other(self):
        first = self.acquire("first")
        self.ok("backup", str(self.copy))
        self.ok("release", "first", "--id", first["lock_id"])
        last = 0
        for n in range(12):
            restore = self.start("restore", "--replace", str(self.copy))
            time.sleep(random.uniform(0, 0.12))
            restore.kill()
            restore.communicate()
            self.assertLessEqual(self.keys(), {"first"})
            lock = self.acquire("next")
            self.assertGreater(lock["token"], last)
            last = lock["token"]
            self.ok("release", "next", "--id", lock["lock_id"])
            self.belay("release", "first", "--id", first["lock_id"])

    def test_numbers_that_are_ahead_of_the_clock_grow_with_each_restore_all_the_same(self):
        """As after a restore while the clock was years ahead: the clock's own number is below them."""
        self.acquire("k")
        self.ok("backup", str(self.copy))
        with contextlib.closing(sqlite3.connect(self.copy)) as db, db:
            db.execute("UPDATE meta SET number = 1 << 52, ceiling = (1 << 52) + 65536")
        last = 1 << 52
        for n in range(3):
            store = f"sqlite:{self.dir}/place-{n}/locks.db"
            self.ok("restore", str(self.copy), "--store", store)
            for key in ("a", "b"):
                token = self.ok("acquire", key, "--json", "--store", store).json()["token"]
                self.assertGreater(token, last)
                last = token

    def test_history_and_used_ids_are_restored_and_stay(self):
        lock = self.acquire("k")
        self.ok("release", "k", "--id", lock["lock_id"])
        self.ok("backup", str(self.copy))
        self.ok("restore", str(self.copy), "--store", self.new)
        for n in range(3):
            self.ok("acquire", f"new-{n}", "--store", self.new)
        events = self.ok("history", "k", "--json", "--store", self.new).out
        self.assertIn("lock.released", events)
        self.fails(77, "acquire", "k", "--id", lock["lock_id"], "--store", self.new)


if __name__ == "__main__":
    main()
