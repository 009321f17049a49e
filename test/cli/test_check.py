"""belay check: whether a lock is still held, and for how long (L3, L6)."""

from support import BELAY, BelayCase, main, wait_until


class Check(BelayCase):
    def guarded(self, script, *args, code=0, key="k"):
        """Run a script under the lock, with $belay to call."""
        return self.fails(code, "run", *args, key, "--", "sh", "-c", script, env={"belay": BELAY})

    def await_expiry(self, key):
        wait_until(lambda: self.ok("status", "--json", key).json()["status"] == "expired", "the end of the lease")

    def test_inside_a_guarded_command_it_needs_no_arguments(self):
        done = self.guarded("$belay check && $belay check --json", "--ttl", "1m")
        line, lock = done.out.splitlines()
        self.assertRegex(line, r"^Held 'k': valid for 5\ds$")
        self.assertIn('"status":"active"', lock)

    def test_it_never_promises_more_than_the_holder_may_rely_on(self):
        for ttl, most_ms in (("2s", 1800), ("30s", 28000), ("1h", 3598000)):  # less twice what the holder stops early
            held = self.acquire(ttl, "--ttl", ttl)
            lock = self.ok("check", ttl, "--id", held["lock_id"], "--json").json()
            self.assertGreater(lock["valid_for_ms"], 0)
            self.assertLessEqual(lock["valid_for_ms"], most_ms)
            self.assertLess(lock["valid_for_ms"], held["valid_for_ms"])
            self.assertEqual(lock["lock_id"], held["lock_id"])

    def test_a_lock_that_ends_too_soon_is_76_and_says_how_much_is_left(self):
        lock = self.acquire("k", "--ttl", "30s")
        self.ok("check", "k", "--id", lock["lock_id"], "--for", "10s")
        done = self.fails(76, "check", "k", "--id", lock["lock_id"], "--for", "30s")
        self.assertRegex(done.err, r"lock 'k' can be relied on for 2\ds, which is less than 30s")

    def test_an_expired_lease_is_76(self):
        lock = self.acquire("k", "--ttl", "100ms")
        self.await_expiry("k")
        done = self.fails(76, "check", "k", "--id", lock["lock_id"], "--json")
        self.assertEqual(done.error()["code"], "lease_lost")
        self.assertIn("its lease ended at", done.err)

    def test_a_forced_lock_is_76(self):
        lock = self.acquire("k")
        self.ok("unlock", "k", "--force", "--yes", "--reason", "test")
        self.assertIn("released by force", self.fails(76, "check", "k", "--id", lock["lock_id"]).err)

    def test_a_lock_that_another_client_took_over_is_76_and_names_it(self):
        old = self.acquire("k", "--ttl", "100ms")
        self.await_expiry("k")
        new = self.acquire("k", "--owner", "bob")
        error = self.fails(76, "check", "k", "--id", old["lock_id"], "--json").error()
        self.assertEqual((error["code"], error["lock"]["locked_by"]), ("not_holder", "bob"))
        done = self.fails(76, "check", "k", "--token", str(old["token"]))
        self.assertIn(f"token {old['token']} is not the current one: lock 'k' is held by bob with token {new['token']}",
                      done.err)
        self.ok("check", "k", "--token", str(new["token"]))

    def test_the_id_and_the_token_must_both_match(self):
        lock = self.acquire("k")
        id_and_token = ("--id", lock["lock_id"], "--token")
        self.ok("check", "k", *id_and_token, str(lock["token"]))
        self.fails(76, "check", "k", *id_and_token, str(lock["token"] + 1))

    def test_a_released_lock_and_an_unknown_key_are_76(self):
        lock = self.acquire("k")
        self.ok("release", "k", "--id", lock["lock_id"])
        self.assertIn("was released", self.fails(76, "check", "k", "--id", lock["lock_id"]).err)
        self.assertIn("no such lock", self.fails(76, "check", "unknown", "--id", lock["lock_id"]).err)

    def test_an_adopted_lock_is_that_of_the_new_id_only(self):
        old = self.acquire("k", "--ttl", "1m")
        done = self.guarded(f"$belay check && ! $belay check k --id {old['lock_id']} "
                            f"&& ! $belay check k --token {old['token']}", "--adopt", old["lock_id"])
        self.assertIn("Held 'k'", done.out)
        self.assertEqual(done.err.count("is held by"), 2)

    def test_a_missing_key_or_id_is_64_and_says_what_to_type(self):
        self.acquire("k")
        self.assertIn("give KEY --id LOCK_ID", self.fails(64, "check").err)
        self.assertIn("--id is missing", self.fails(64, "check", "k").err)
        self.assertIn("BELAY_LOCK_ID is not set", self.fails(64, "check", env={"BELAY_KEY": "k"}).err)

    def test_the_id_of_another_lock_in_the_environment_does_not_count(self):
        self.acquire("other")
        done = self.guarded("$belay check other", code=64)
        self.assertIn("--id is missing", done.err)
        lock = self.acquire("mine")
        env = {"BELAY_KEY": "mine", "BELAY_LOCK_ID": lock["lock_id"], "BELAY_TOKEN": str(lock["token"] + 1)}
        self.ok("check", "--id", lock["lock_id"], env=env)  # not with the token of the environment
        self.fails(76, "check", env=env)

    def test_wrong_values_are_64(self):
        for args in (["--token", "0"], ["--token", "x"], ["--token", "18446744073709551616"], ["--id", "a b"],
                     ["--id", "a", "--for", "-1s"], ["--id", "a", "--for", "400d"]):
            with self.subTest(args):
                self.fails(64, "check", "k", *args)

    def test_a_store_that_cannot_be_reached_is_69(self):
        self.fails(69, "check", "k", "--id", "a", "--store", "http://127.0.0.1:9")

    def test_while_locking_is_switched_off_it_succeeds_with_a_warning(self):
        off = {"BELAY_DISABLED": "1"}
        done = self.ok("run", "k", "--", BELAY, "check", env=off)
        self.assertIn("locking is switched off", done.err)
        lock = self.ok("acquire", "--json", "k", env=off).json()
        self.assertIsNone(self.ok("check", "k", "--id", lock["lock_id"], "--json", env=off).json()["status"])
        done = self.fails(76, "check", "k", "--id", lock["lock_id"])  # and on again
        self.assertIn("protects nothing", done.err)

    def test_it_changes_nothing(self):
        lock = self.acquire("k", "--ttl", "1m")
        before = self.ok("status", "--json", "k").json()["expires_at"], self.events("k")
        self.ok("check", "k", "--id", lock["lock_id"])
        self.fails(76, "check", "k", "--id", "another")
        self.assertEqual((self.ok("status", "--json", "k").json()["expires_at"], self.events("k")), before)


if __name__ == "__main__":
    main()
