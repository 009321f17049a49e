"""Shared locks, locks with slots, and several keys at once: what a user types, and what they see (L1, L2, L3, L9)."""

import json
import os
import signal
import subprocess

from support import BELAY, BelayCase, main, wait_until


class Kinds(BelayCase):
    def status(self, key):
        return self.ok("status", "--json", key).json()

    def owners(self, key):
        return [holder["locked_by"] for holder in self.status(key)["holders"]]

    def take(self, key, owner, *args):
        return self.acquire(key, "--owner", owner, "--owner-name", owner, *args)

    def await_waiters(self, key, n):
        wait_until(lambda: len(self.status(key)["waiting"] or []) == n, f"{n} waiters for {key}")


class Slots(Kinds):
    def setUp(self):
        super().setUp()
        self.first = self.take("deploys", "alice", "--slots", "2", "--ttl", "1h")
        self.second = self.take("deploys", "bob", "--slots", "2", "--ttl", "5m")

    def test_n_clients_hold_the_lock_and_one_more_is_refused(self):
        """L1"""
        self.assertNotEqual(self.first["lock_id"], self.second["lock_id"])
        self.assertGreater(self.second["token"], self.first["token"])
        done = self.fails(75, "acquire", "deploys", "--slots", "2")
        self.assertIn("lock 'deploys': 2 of 2 slots are held, the first by bob until", done.err)
        self.ok("release", "deploys", "--id", self.first["lock_id"])
        self.take("deploys", "carol", "--slots", "2")
        self.assertEqual(self.owners("deploys"), ["bob", "carol"])

    def test_each_holder_renews_and_releases_its_own_lock_only(self):
        """L3"""
        renewed = self.ok("renew", "deploys", "--id", self.second["lock_id"], "--json").json()
        self.assertEqual((renewed["locked_by"], renewed["ttl_ms"]), ("bob", 300000))
        renewed = self.ok("renew", "deploys", "--id", self.second["lock_id"], "--ttl", "2h", "--json").json()
        self.assertEqual((renewed["locked_by"], renewed["ttl_ms"]), ("bob", 7200000))
        self.assertEqual([holder["ttl_ms"] for holder in self.status("deploys")["holders"]], [3600000, 7200000])
        self.fails(77, "release", "deploys", "--id", "another")
        self.ok("release", "deploys", "--id", self.first["lock_id"])
        self.ok("check", "deploys", "--id", self.second["lock_id"])
        self.fails(76, "check", "deploys", "--id", self.first["lock_id"])

    def test_a_second_release_succeeds_while_others_hold_the_lock(self):
        """L3"""
        third = self.take("others", "carol", "--slots", "2")
        self.ok("release", "deploys", "--id", self.first["lock_id"])
        self.take("deploys", "carol", "--slots", "2")
        for _ in range(2):
            again = self.ok("release", "deploys", "--id", self.first["lock_id"], "--json").json()
            self.assertEqual((again["key"], again["lock_id"], again["status"]), ("deploys", self.first["lock_id"], "released"))
        self.assertEqual(self.owners("deploys"), ["bob", "carol"])
        self.fails(77, "release", "deploys", "--id", third["lock_id"])

    def test_another_number_is_refused_with_the_one_in_force(self):
        for slots in ("3", "1"):
            self.assertIn("lock 'deploys' has 2 slots as long as it is held", self.fails(64, "acquire", "deploys", "--slots", slots).err)
        for lock in (self.first, self.second):
            self.ok("release", "deploys", "--id", lock["lock_id"])
        self.take("deploys", "carol", "--slots", "3")

    def test_wrong_numbers_are_64_and_change_nothing(self):
        """L8"""
        for args, text in ((["--slots", "0"], "--slots '0' is not a whole number of at least 1"),
                           (["--slots", "abc"], "--slots 'abc' is not a whole number of at least 1"),
                           (["--slots", "2000"], "--slots '2000' is too many: give 1 to 1000"),
                           (["--slots", "2", "--shared"], "--shared and --slots exclude each other")):
            with self.subTest(args):
                self.assertIn(text, self.fails(64, "acquire", "k", *args).err)
                self.assertIn(text, self.fails(64, "run", "k", *args, "--", "true").err)
        self.fails(66, "status", "k")

    def test_status_shows_each_holder_with_its_token_and_expiry(self):
        out = self.ok("status", "deploys").out
        self.assertIn("  Mode:       2 of 2 slots\n", out)
        self.assertRegex(out, rf"  Holders:    1\. alice, for \d+s, expires in (59m|1h).*, token {self.first['token']}, "
                              rf"id {self.first['lock_id']}\n"
                              rf" +2\. bob, for \d+s, expires in (4m|5m).*, token {self.second['token']}, ")

    def test_acquire_shows_the_callers_own_lock(self):
        self.ok("release", "deploys", "--id", self.first["lock_id"])
        out = self.ok("acquire", "deploys", "--slots", "2", "--owner", "carol", "--owner-name", "carol").out
        self.assertIn("  Mode:       2 of 2 slots\n", out)
        self.assertRegex(out, r"  Holder:     carol\n(.*\n)*  Lock id:    \S+\n  Token:      \d+\n")
        self.assertNotIn("bob", out)

    def test_a_profile_says_the_number(self):
        (self.dir / "belay.yaml").write_text("profiles:\n  nightly: {ttl: 1h, slots: 1}\n")
        (self.dir / "belay.yaml").chmod(0o600)
        self.assertEqual(self.acquire("n", "--profile", "nightly")["slots"], 1)
        self.assertIn("1 of 1 slots", self.fails(75, "acquire", "n", "--profile", "nightly").err)
        self.assertEqual(self.acquire("m", "--profile", "nightly", "--slots", "4")["slots"], 4)
        self.assertEqual(self.acquire("s", "--profile", "nightly", "--shared")["mode"], "shared")

    def test_a_state_is_not_written_under_a_lock_with_several_holders(self):
        stack = ("--stack", "s", "--environment", "e")
        self.assertIn("'belay deploy' has no option '--slots'", self.fails(64, "deploy", *stack, "--slots", "2", "--", "true").err)
        (self.dir / "belay.yaml").write_text("profiles:\n  stack: {slots: 2}\n")
        (self.dir / "belay.yaml").chmod(0o600)
        self.assertIn("a state is for one client at a time", self.fails(64, "deploy", *stack, "--", "true").err)
        self.assertEqual(self.acquire("stack:s:env:e")["slots"], 2)

    def test_list_counts_further_holders_and_has_the_mode(self):
        self.take("build", "carol")
        lines = self.ok("list").out.splitlines()
        self.assertEqual(lines[0].split(), ["KEY", "HOLDER", "MODE", "AGE", "EXPIRES", "IN", "STATUS", "WAITING"])
        self.assertRegex(lines[1], r"^build +carol +exclusive ")
        self.assertRegex(lines[2], r"^deploys +alice \+1 +2/2 slots ")
        terminal = self.terminal("list", "--no-color", columns=80)
        self.assertEqual(terminal.finish(), 0)
        self.assertTrue(all(len(line) <= 80 for line in terminal.text.splitlines()), terminal.text)
        self.assertIn("alice +1", terminal.text)

    def test_list_repeats_its_titles_where_the_mode_first_appears(self):
        """Rows are printed in batches of 256."""
        for n in range(17):
            self.ok("acquire", "--quiet", *[f"b{n:02}-{k:02}" for k in range(16)])
        lines = self.ok("list").out.splitlines()
        titles = [n for n, line in enumerate(lines) if line.startswith("KEY ")]
        self.assertEqual([" MODE " in lines[n] for n in titles], [False, True])
        self.assertEqual(titles, [0, 257])
        self.assertEqual(len(lines), 2 + 17 * 16 + 1)
        self.assertRegex(lines[-1], r"^deploys +alice \+1 +2/2 slots ")

    def test_list_of_exclusive_locks_has_no_mode(self):
        for lock in (self.first, self.second):
            self.ok("release", "deploys", "--id", lock["lock_id"])
        self.take("build", "carol")
        self.assertEqual(self.ok("list").out.splitlines()[0].split(),
                         ["KEY", "HOLDER", "AGE", "EXPIRES", "IN", "STATUS", "WAITING"])

    def test_wait_returns_when_the_last_holder_is_gone(self):
        self.assertIn("2 of 2 slots are held", self.fails(75, "wait", "deploys", "--wait", "0").err)
        waiter = self.start("wait", "deploys")
        self.ok("release", "deploys", "--id", self.first["lock_id"])
        self.fails(75, "wait", "deploys", "--wait", "0")
        self.assertIsNone(waiter.poll())
        self.ok("release", "deploys", "--id", self.second["lock_id"])
        self.assertEqual(waiter.wait(timeout=60), 0)

    def test_wait_returns_when_a_slot_is_free(self):
        self.assertIn("2 of 2 slots are held", self.fails(75, "wait", "deploys", "--slots", "2", "--wait", "0").err)
        self.assertIn("has 2 slots as long as it is held, not 3", self.fails(64, "wait", "deploys", "--slots", "3").err)
        waiting = self.start("wait", "deploys", "--slots", "2", "--wait", "30s")
        self.ok("release", "deploys", "--id", self.first["lock_id"])
        self.assertEqual(waiting.wait(timeout=60), 0)
        self.fails(75, "wait", "deploys", "--wait", "0")
        self.fails(75, "wait", "deploys", "--shared", "--wait", "0")
        self.assertEqual(self.owners("deploys"), ["bob"])
        self.assertIn("--shared and --slots exclude each other", self.fails(64, "wait", "k", "--shared", "--slots", "2").err)
        self.take("plans", "alice", "--shared")
        self.ok("wait", "plans", "--shared", "--wait", "0")
        self.fails(75, "wait", "plans", "--wait", "0")

    def test_an_adopted_lock_keeps_its_own_ttl_and_the_others_keep_theirs(self):
        result = self.dir / "result.json"
        for held, ttl_ms, left in ((self.second, 300000, ["alice"]), (self.first, 3600000, [])):
            self.ok("run", "--result", str(result), "--adopt", held["lock_id"], "deploys", "--", "true")
            lock = json.loads(result.read_text(encoding="utf-8"))["lock"]
            self.assertEqual((lock["locked_by"], lock["ttl_ms"], lock["mode"]), (held["locked_by"], ttl_ms, "slots"))
            self.assertEqual(self.owners("deploys"), left)

    def test_run_gives_each_its_own_id_and_token(self):
        for lock in (self.first, self.second):
            self.ok("release", "deploys", "--id", lock["lock_id"])
        script = "echo $BELAY_TOKEN; [ -z \"${BELAY_TOKENS+set}\" ] && $belay check"
        outer = self.ok("run", "--slots", "2", "deploys", "--", "sh", "-c",
                        f"{script} && $belay run --slots 2 deploys -- sh -c '{script}'", env={"belay": BELAY})
        tokens = [int(line) for line in outer.out.splitlines() if line.isdigit()]
        self.assertEqual(len(set(tokens)), 2)
        self.assertEqual(outer.out.count("Held 'deploys'"), 2)


class Shared(Kinds):
    def test_shared_holders_exclude_exclusive_ones_only(self):
        """L1"""
        locks = [self.take("plan", owner, "--shared") for owner in ("alice", "bob", "carol")]
        self.assertIn("lock 'plan' shared by 3, the last of them", self.fails(75, "acquire", "plan").err)
        self.assertEqual(self.status("plan")["mode"], "shared")
        for lock in locks:
            self.ok("release", "plan", "--id", lock["lock_id"])
        apply = self.take("plan", "dave")
        self.assertIn("held by dave", self.fails(75, "acquire", "plan", "--shared").err)
        self.ok("release", "plan", "--id", apply["lock_id"])
        self.take("plan", "alice", "--shared")

    def test_a_shared_request_does_not_overtake_an_exclusive_one(self):
        reader = self.take("plan", "alice", "--shared")
        writer = self.start("acquire", "--quiet", "--wait", "30s", "plan", "--owner", "bob", "--owner-name", "bob")
        self.await_waiters("plan", 1)
        late = self.start("acquire", "--quiet", "--wait", "30s", "--shared", "plan", "--owner", "carol", "--owner-name", "carol")
        self.await_waiters("plan", 2)
        out = self.ok("status", "plan").out
        self.assertRegex(out, r"  Mode:       shared\n  Holders:    1\. alice, ")
        self.assertRegex(out, r"  Waiting:    1\. bob, for \S+, exclusive\n +2\. carol, for \S+, shared\n")
        self.ok("release", "plan", "--id", reader["lock_id"])
        self.assertEqual(writer.wait(timeout=60), 0)
        self.assertEqual(self.status("plan")["locked_by"], "bob")
        self.ok("release", "plan", "--id", writer.stdout.read().strip())
        self.assertEqual(late.wait(timeout=60), 0)
        self.assertEqual(self.owners("plan"), ["carol"])

    def test_one_holder_looks_like_several(self):
        self.take("plan", "alice", "--shared", "--meta", "ticket=42")
        self.assertRegex(self.ok("status", "plan").out, r"Mode:       shared\n  Holders:    1\. alice, .*\n +ticket=42\n")
        self.assertRegex(self.ok("list").out, r"\nplan +alice +1 shared ")

    def test_above_and_below_follow_the_same_rule(self):
        """A shared lock above excludes exclusive locks below, and not shared ones."""
        self.take("stack:shop:env:prod", "alice", "--shared")
        below = "stack:shop:env:prod:service:web"
        self.fails(75, "acquire", below)
        self.take(below, "bob", "--shared")
        self.fails(75, "acquire", "stack:shop:env:prod")
        self.take("stack:shop:env:prod", "carol", "--shared")
        self.assertIn("  Shared with: 1 more; 'belay status' shows them\n",
                      self.ok("state", "locks", "--stack", "shop", "--environment", "prod").out)


class ChooseWhichToUnlock(Kinds):
    def setUp(self):
        super().setUp()
        self.locks = {owner: self.take("deploys", owner, "--slots", "5") for owner in ("alice", "bob", "carol")}

    def unlock(self, *args):
        return self.ok("unlock", "deploys", "--force", "--yes", *args)

    def test_without_a_choice_it_lists_them_and_changes_nothing(self):
        done = self.fails(64, "unlock", "deploys", "--force", "--yes")
        self.assertIn("lock 'deploys' has 3 holders: choose one with --id LOCK_ID or --holder OWNER, or end each of "
                      "them with --all", done.err)
        for owner, lock in self.locks.items():
            self.assertRegex(done.err, rf"\n  \d\. {owner}, .* id {lock['lock_id']}\n")
        error = self.fails(64, "unlock", "deploys", "--force", "--yes", "--json").error()
        self.assertEqual(len(error["lock"]["holders"]), 3)
        self.assertEqual(self.owners("deploys"), ["alice", "bob", "carol"])

    def test_the_id_or_the_owner_chooses_one(self):
        self.assertEqual(self.unlock("--id", self.locks["bob"]["lock_id"]).out, "✓ Ended 1 of 3 holders\n")
        self.assertEqual(self.owners("deploys"), ["alice", "carol"])
        self.unlock("--holder", "alice")
        self.assertEqual(self.owners("deploys"), ["carol"])
        self.unlock()  # one is left: there is nothing to choose
        self.assertEqual(self.status("deploys")["status"], "released")

    def test_all_ends_each(self):
        self.assertEqual(self.unlock("--all", "--reason", "maintenance").out, "✓ Ended 3 of 3 holders\n")
        self.assertEqual(self.status("deploys")["outcome"], "forced")
        for lock in self.locks.values():
            self.fails(76, "check", "deploys", "--id", lock["lock_id"])

    def test_a_wrong_choice_changes_nothing(self):
        self.assertIn("'dave' does not hold lock 'deploys'", self.fails(66, "unlock", "deploys", "--force", "--yes", "--holder", "dave").err)
        self.assertIn("'x' does not hold lock 'deploys'", self.fails(77, "unlock", "deploys", "--force", "--yes", "--id", "x").err)
        self.fails(64, "unlock", "deploys", "--force", "--yes", "--id", "x", "--all")
        self.fails(64, "unlock", "deploys", "--holder", "bob", "--yes")  # without --force
        self.assertEqual(self.owners("deploys"), ["alice", "bob", "carol"])

    def test_an_owner_that_holds_it_twice_needs_the_id(self):
        second = self.take("deploys", "bob", "--slots", "5")
        self.assertIn("'bob' holds lock 'deploys' 2 times: choose one with --id",
                      self.fails(64, "unlock", "deploys", "--force", "--yes", "--holder", "bob").err)
        self.unlock("--id", second["lock_id"])
        self.assertEqual(self.owners("deploys"), ["alice", "bob", "carol"])

    def test_the_dialogue_shows_the_chosen_one(self):
        terminal = self.terminal("unlock", "deploys", "--force", "--holder", "bob", "--no-color", columns=200)
        terminal.expect("(yes/no): ")
        self.assertRegex(terminal.text, r"2\. bob, for ")
        self.assertNotIn("alice", terminal.text)
        terminal.send("yes\n")
        self.assertEqual(terminal.finish(), 0)
        self.assertEqual(self.owners("deploys"), ["alice", "carol"])


class UnlockIsAudited(Kinds):
    def test_each_holder_that_all_ends_is_an_event(self):
        """L9"""
        for owner in ("alice", "bob"):
            self.take("deploys", owner, "--slots", "5")
        self.ok("unlock", "deploys", "--force", "--yes", "--all", "--reason", "maintenance")
        events = self.ok("history", "deploys", "--json").json()["events"]
        self.assertEqual([(event["locked_by"], event["reason"]) for event in events if event["event"] == "lock.forced"],
                         [("alice", "maintenance"), ("bob", "maintenance")])


class SeveralKeys(Kinds):
    KEYS = ("api", "web", "the db")

    def take_all(self, *args):
        return self.ok("acquire", "--json", *self.KEYS, *args).json()

    def states(self):
        return [self.status(key)["status"] for key in self.KEYS]

    def test_they_are_acquired_under_one_id_with_a_token_each(self):
        """L2"""
        earlier = {key: self.acquire(key) for key in self.KEYS}
        for key, lock in earlier.items():
            self.ok("release", key, "--id", lock["lock_id"])
        taken = self.take_all()
        self.assertEqual(list(taken), ["lock_id", "locks"])
        self.assertEqual([lock["key"] for lock in taken["locks"]], list(self.KEYS))
        for lock in taken["locks"]:
            self.assertEqual(lock["lock_id"], taken["lock_id"])
            self.assertGreater(lock["token"], earlier[lock["key"]]["token"])
            self.assertGreater(lock["valid_for_ms"], 0)
            self.assertEqual(self.status(lock["key"])["token"], lock["token"])

    def test_all_or_none(self):
        self.take("web", "bob")
        self.assertIn("lock 'web' held by bob", self.fails(75, "acquire", *self.KEYS).err)
        self.fails(66, "status", "api")
        self.fails(66, "status", "the db")

    def test_the_history_of_one_key_does_not_tell_who_holds_another(self):
        """A reader of the one may not be permitted to see the other."""
        held = self.take("web", "bob")
        waiting = self.start("acquire", "--wait", "30s", *self.KEYS)
        for key in self.KEYS:
            wait_until(lambda k=key: self.reasons(k, "wait.began"), "the wait to begin")
        self.fails(75, "acquire", *self.KEYS)
        for kind in ("wait.began", "lock.refused"):
            for key in ("api", "the db"):
                self.assertEqual(self.reasons(key, kind), ["another key of the request is not free"])
            self.assertIn("lock 'web' held by bob", self.reasons("web", kind)[0])
        self.ok("release", "web", "--id", held["lock_id"])
        self.assertEqual(waiting.wait(60), 0)

    def reasons(self, key, kind):
        found = self.belay("history", key, "--json")
        return [e["reason"] for e in found.json()["events"] if e["event"] == kind] if found.code == 0 else []

    def test_the_text_has_the_command_that_releases_them(self):
        out = self.ok("acquire", "--store", self.store, *self.KEYS).out
        self.assertTrue(out.startswith("api, web, the db\n"), out)
        self.assertRegex(out, r"  Tokens:     \d+ for 'api'\n +\d+ for 'web'\n +\d+ for 'the db'\n")
        command = out.splitlines()[-1]
        self.assertRegex(command, r"^  belay release .*api web 'the db' --id \S+$")
        done = subprocess.run(["sh", "-c", command.replace("belay", BELAY, 1)], env=self.env, cwd=self.dir, capture_output=True,
                              encoding="utf-8", timeout=60, check=False)
        self.assertEqual((done.returncode, done.stdout), (0, "Released 'api'\nReleased 'web'\nReleased 'the db'\n"), done)
        self.assertEqual(self.states(), ["released"] * 3)

    def test_quiet_prints_the_id_with_which_they_are_renewed_and_released(self):
        """L3"""
        lock_id = self.ok("acquire", "--quiet", *self.KEYS).out.strip()
        self.fails(77, "renew", *self.KEYS, "--id", "another")
        renewed = self.ok("renew", *self.KEYS, "--id", lock_id, "--ttl", "1h", "--json").json()
        self.assertEqual([lock["ttl_ms"] for lock in renewed["locks"]], [3600000] * 3)
        self.assertEqual(self.ok("renew", *self.KEYS, "--id", lock_id).out.count("Renewed"), 3)
        released = self.ok("release", *self.KEYS, "--id", lock_id, "--outcome", "failed", "--json").json()
        self.assertEqual([(lock["key"], lock["outcome"]) for lock in released["locks"]], [(key, "failed") for key in self.KEYS])
        self.ok("release", *self.KEYS, "--id", lock_id)  # twice is not an error

    def test_one_of_them_can_be_released_alone(self):
        lock_id = self.ok("acquire", "--quiet", *self.KEYS).out.strip()
        self.ok("release", "web", "--id", lock_id)
        self.assertEqual(self.states(), ["active", "released", "active"])
        self.ok("release", *self.KEYS, "--id", lock_id)
        self.assertEqual(self.states(), ["released"] * 3)

    def test_bad_lists_of_keys_are_64_and_change_nothing(self):
        """L8"""
        for keys, text in (([f"k{n}" for n in range(17)], "17 keys: 16 at once are the most"),
                           (["k", "m", "k"], "the key 'k' is given twice"),
                           (["stack:s:env:e:service:w", "stack:s:env:e"], "the key 'stack:s:env:e' is above another one"),
                           (["k", ""], "the key is empty"),
                           (["k", "m", "--component", "c"], "'k' and --component both name a lock"),
                           (["k", "m", "--owner", "o", "--reentrant"], "several keys cannot be re-entered")):
            for args in (["acquire", *keys], ["run", *keys, "--", "touch", "ran"]):
                with self.subTest(args):
                    self.assertIn(text, self.fails(64, *args).err)
        for command in ("release", "renew"):
            self.assertIn("17 keys", self.fails(64, command, *[f"k{n}" for n in range(17)], "--id", "x").err)
        self.assertFalse((self.dir / "ran").exists())
        self.assertEqual(self.ok("list", "--all", "--json").json()["locks"], [])
        self.ok("run", *[f"k{n}" for n in range(16)], "--", "true")

    def test_two_that_want_them_in_another_order_both_get_them(self):
        runs = [self.start("run", "--wait", "30s", *keys, "--", "sleep", "0.05")
                for keys in (("a", "b"), ("b", "a")) for _ in range(3)]
        self.assertEqual([process.wait(timeout=60) for process in runs], [0] * 6)

    def test_they_can_be_shared(self):
        for owner in ("alice", "bob"):
            taken = self.take_all("--shared", "--owner", owner)
            self.assertEqual([lock["mode"] for lock in taken["locks"]], ["shared"] * 3)
        self.assertEqual(self.owners("web"), ["alice", "bob"])
        hidden = [holder["lock_id"] for holder in taken["locks"][1]["holders"]]
        self.assertEqual(hidden, [None, taken["lock_id"]])
        for _ in range(2):  # the second time as the first (L3)
            released = self.ok("release", *self.KEYS, "--id", taken["lock_id"], "--json").json()
            self.assertEqual([(lock["key"], lock["lock_id"], lock["status"]) for lock in released["locks"]],
                             [(key, taken["lock_id"], "released") for key in self.KEYS])
        self.assertEqual([self.owners(key) for key in self.KEYS], [["alice"]] * 3)

    def test_profiles_with_other_slots_are_not_acquired_together(self):
        """L8"""
        (self.dir / "belay.yaml").write_text("profiles:\n  nightly: {ttl: 1h, slots: 2, key: 'nightly-{component}'}\n"
                                             "  weekly: {ttl: 1h, slots: 3, key: 'weekly-{component}'}\n")
        (self.dir / "belay.yaml").chmod(0o600)
        for keys, text in ((("nightly-a", "weekly-b"), "'nightly-a' has 2 slots and 'weekly-b' has 3 slots"),
                           (("api", "weekly-b"), "'api' is exclusive and 'weekly-b' has 3 slots")):
            self.assertIn(f"by their profiles {text}: acquire them one by one", self.fails(64, "acquire", *keys).err)
        taken = self.ok("acquire", "nightly-a", "nightly-b", "--json").json()
        self.assertEqual([lock["slots"] for lock in taken["locks"]], [2, 2])
        taken = self.ok("acquire", "nightly-c", "weekly-b", "--slots", "4", "--json").json()
        self.assertEqual([lock["slots"] for lock in taken["locks"]], [4, 4])

    def test_while_locking_is_switched_off_scripts_see_the_same_form(self):
        off = {"BELAY_DISABLED": "1"}
        taken = self.ok("acquire", "--json", *self.KEYS, env=off).json()
        self.assertEqual([(lock["key"], lock["status"], lock["lock_id"]) for lock in taken["locks"]],
                         [(key, None, taken["lock_id"]) for key in self.KEYS])
        self.ok("renew", *self.KEYS, "--id", taken["lock_id"], env=off)
        self.ok("release", *self.KEYS, "--id", taken["lock_id"], env=off)
        self.assertEqual(self.ok("run", *self.KEYS, "--", "sh", "-c", "echo $BELAY_KEY ${BELAY_TOKENS-none}", env=off).out,
                         "api none\n")


class RunSeveralKeys(Kinds):
    def test_the_command_finds_a_token_for_each(self):
        done = self.ok("run", "web", "the db", "--", "sh", "-c", "echo \"$BELAY_KEY $BELAY_TOKEN\"; echo \"$BELAY_TOKENS\"; "
                                                              "$belay status --json 'the db'", env={"belay": BELAY})
        first, *tokens, status = done.out.splitlines()
        lock = json.loads(status)
        self.assertEqual(tokens, [f"{first.split()[1]} web", f"{lock['token']} the db"])
        self.assertEqual(first.split()[0], "web")
        self.assertEqual(self.status("the db")["outcome"], "completed")

    def test_one_key_has_no_list_even_inside_several(self):
        done = self.ok("run", "a", "b", "--", BELAY, "run", "c", "--", "sh", "-c", "echo ${BELAY_TOKENS-none}; $belay check",
                       env={"belay": BELAY})
        self.assertRegex(done.out, r"^none\nHeld 'c': valid for \S+ \S+\n$")

    def test_check_looks_at_all_of_them(self):
        done = self.ok("run", "a", "b", "--", "sh", "-c", "$belay check && $belay check b && $belay check --json",
                       env={"belay": BELAY})
        *lines, last = done.out.splitlines()
        self.assertEqual([line[:8] for line in lines], ["Held 'a'", "Held 'b'", "Held 'b'"])
        self.assertEqual([lock["key"] for lock in json.loads(last)["locks"]], ["a", "b"])
        taken = self.ok("acquire", "--json", "a", "b").json()
        env = {"BELAY_KEY": "a", "BELAY_LOCK_ID": taken["lock_id"], "BELAY_TOKEN": str(taken["locks"][0]["token"]),
               "BELAY_TOKENS": "\n".join(f"{lock['token']} {lock['key']}" for lock in taken["locks"])}
        self.ok("check", env=env)
        self.ok("release", "b", "--id", taken["lock_id"])
        self.assertIn("'b'", self.fails(76, "check", env=env).err)
        self.ok("check", "a", env=env)
        self.ok("check", "a", "--id", taken["lock_id"], env=env)
        for tokens in ("x b", "1 a\nbroken", "1 a\n\n1 b"):  # never fewer keys than the list has
            self.assertIn("BELAY_TOKENS", self.fails(64, "check", env={**env, "BELAY_TOKENS": tokens}).err)

    def test_the_result_has_the_lock_of_each(self):
        self.ok("run", "--result", "r.json", "a", "b", "--", "true")
        result = json.loads((self.dir / "r.json").read_text(encoding="utf-8"))
        self.assertEqual([(lock["key"], lock["lock_id"]) for lock in result["locks"]],
                         [("a", result["lock_id"]), ("b", result["lock_id"])])
        self.assertEqual((result["key"], result["lock"]["key"]), ("a", "a"))
        self.ok("run", "--result", "r.json", "a", "--", "true")
        self.assertEqual(len(json.loads((self.dir / "r.json").read_text(encoding="utf-8"))["locks"]), 1)
        self.acquire("a")
        self.fails(75, "run", "--result", "r.json", "a", "b", "--", "true")
        self.assertEqual(json.loads((self.dir / "r.json").read_text(encoding="utf-8"))["locks"], [])

    def test_adopt_takes_over_all_of_them_once(self):
        lock_id = self.ok("acquire", "--quiet", "a", "b", "--ttl", "1h", "--owner", "chat").out.strip()
        done = self.ok("run", "--adopt", lock_id, "a", "b", "--", "sh", "-c", "echo $BELAY_LOCK_ID; $belay check; "
                       "$belay status b --json", env={"belay": BELAY})
        new_id, *held, status = done.out.splitlines()
        self.assertNotEqual(new_id, lock_id)
        self.assertEqual(len(held), 2)
        lock = json.loads(status)
        self.assertEqual((lock["lock_id"], lock["locked_by"], lock["ttl_ms"]), (new_id, "chat", 3600000))
        self.fails(77, "run", "--adopt", lock_id, "a", "b", "--", "true")
        self.assertEqual(self.status("b")["status"], "released")

    def test_a_state_is_saved_under_a_lock_that_is_one_of_several(self):
        stack = ("--stack", "s", "--environment", "e")
        (self.dir / "state.json").write_text('{"resources": {}}')
        save = f"$belay state save {' '.join(stack)} state.json"
        env = {"belay": BELAY, "BELAY_STATE_STORE": f"file:{self.dir}/state"}
        self.ok("run", "a", "stack:s:env:e", "--", "sh", "-c", save, env=env)
        self.assertIn("a state is for one client at a time",
                      self.fails(64, "run", "--shared", "stack:s:env:e", "--", "sh", "-c", save, env=env).err)
        self.fails(75, "run", "stack:s:env:e", "--", BELAY, "run", "a", "--", "sh", "-c", save, env=env)

    def start_command(self, *args):
        process = self.start("run", *args, "a", "b", "c", "--", "sh", "-c", "touch started; exec sleep 1000")
        wait_until((self.dir / "started").exists, "the command")
        return process

    def test_after_kill_9_of_belay_all_of_them_are_released(self):
        process = self.start_command()
        lock_id = self.status("c")["lock_id"]
        os.kill(process.pid, signal.SIGKILL)
        wait_until(lambda: [self.status(key)["status"] for key in "abc"] == ["released"] * 3, "the release of all keys")
        for key in "abc":
            lock = self.status(key)
            self.assertEqual((lock["lock_id"], lock["outcome"]), (lock_id, "failed"))

    def test_the_loss_of_one_ends_the_command_and_releases_the_others(self):
        """L6"""
        process = self.start_command()
        self.ok("unlock", "b", "--force", "--yes")
        _, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 76, err)
        self.assertIn("'b'", err)
        self.assertEqual([(self.status(key)["status"], self.status(key)["outcome"]) for key in "abc"],
                         [("released", "failed"), ("released", "forced"), ("released", "failed")])


if __name__ == "__main__":
    main()
