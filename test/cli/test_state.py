"""Deployment state on files: the format, snapshots, and what is refused (S4.1 to S4.3)."""

import hashlib
import json
import os
import shutil
import subprocess
import unittest

from state_support import WHERE, StateCase, example
from support import BELAY


class Format(StateCase):
    def test_the_example_of_the_document_comes_back_with_nothing_lost(self):
        text, wanted = example()
        where = ("--stack", "user-platform", "--environment", "production")
        self.ok("state", "save", *where, self.write("example.json", text))
        got = self.ok("state", "load", *where).json()
        for part in ("version", "format_version", "resources", "outputs"):
            self.assertEqual(got[part], wanted[part])
        self.assertEqual(got["deployment_history"], wanted["deployment_history"])
        for name in ("last_updated_by", "deployment_id", "git_commit", "git_branch"):
            self.assertEqual(got["metadata"][name], wanted["metadata"][name])
        self.assertLessEqual(wanted["metadata"].keys(), got["metadata"].keys())
        self.assertLessEqual(wanted["lock"].keys(), got["lock"].keys())
        self.ok("state", "verify", *where)

    def test_fields_that_belay_does_not_know_and_numbers_stay_as_they_are_written(self):
        odd = ('{"x-tool": {"one": 1.0, "big": 1180591620717411303424, "huge": 1e400, "tiny": -0.0E-7},'
               ' "metadata": {"team": "\\u00e9\\ud83d\\ude00"}, "lock": {}, "resources": {"a": {"n": 1.50}}, "outputs": {},'
               ' "checksums": {"mine": "abc"}}')
        self.ok("state", "save", *WHERE, self.write("odd.json", odd))
        text = self.ok("state", "load", *WHERE).out
        for piece in ('{"one": 1.0, "big": 1180591620717411303424, "huge": 1e400, "tiny": -0.0E-7}', '"\\u00e9\\ud83d\\ude00"',
                      '{"a": {"n": 1.50}}', '"mine": "abc"'):
            self.assertIn(piece, text)
        self.verify()
        self.ok("state", "save", *WHERE, self.write("again.json", text))
        self.assertIn("1180591620717411303424", self.ok("state", "load", *WHERE).out)

    def test_the_checksums_can_be_computed_as_documented(self):
        def canonical(value):
            text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
            return "sha256:" + hashlib.sha256(text.encode()).hexdigest()
        self.save({"resources": {"ü/b": {"z": ["\u0001\t/\\", 1]}, "a": {}}, "outputs": {"o": "é"}, "mine": [None, True]})
        state = self.load()
        sums = state["checksums"]
        self.assertEqual(sums["resources"], canonical(state["resources"]))
        self.assertEqual(sums["outputs"], canonical(state["outputs"]))
        rest = {k: v for k, v in state.items() if k not in ("resources", "outputs", "checksums")}
        self.assertEqual(sums["parts"], {k: canonical(v) for k, v in rest.items()})
        whole = {**rest, "checksums": {k: v for k, v in sums.items() if k != "document"}}
        self.assertEqual(sums["document"], canonical(whole))

    def test_every_save_is_a_version_with_a_snapshot_also_within_one_second(self):
        for n in range(4):
            self.save({"outputs": {"n": n}})
        history = self.history()
        self.assertEqual([s["index"] for s in history["snapshots"]], [1, 2, 3, 4])
        self.assertEqual([self.load("--snapshot", str(i))["outputs"]["n"] for i in (1, 2, 3, 4)], [3, 2, 1, 0])
        self.assertEqual([self.load("--snapshot", str(i))["metadata"]["serial"] for i in (1, 2, 3, 4)], [4, 3, 2, 1])
        self.assertEqual(len(history["deployments"]), 4)

    def test_old_snapshots_beyond_the_count_go(self):
        config = self.write("c.yaml", "state: {keep_snapshots: 3, keep_for: 1ms}\n")
        os.chmod(config, 0o600)
        folder = self.dir / "belay.db-state/stacks/shop/prod/history"
        self.save({}, "--config", config)
        shutil.copy(folder / self.history()["snapshots"][0]["name"], folder / "2001-01-01-00-00-00.json")
        (folder / "notes.txt").write_text("not ours")
        for _ in range(5):
            self.save({}, "--config", config)
        young = self.history()["snapshots"][3:]
        self.assertEqual([s["timestamp"] for s in young], [s["timestamp"] for s in young if s["timestamp"] >= self.load()["metadata"]["last_updated"]])
        self.assertFalse((folder / "2001-01-01-00-00-00.json").exists())
        self.assertTrue((folder / "notes.txt").exists())

    def test_the_deployment_metadata_of_the_file_is_kept(self):
        """Issue 12, item 11: document 004's programs fill in the metadata and the history themselves."""
        self.save({"outputs": {"n": 1}}, "--deployment-id", "dep-1", "--git-commit", "c1", "--triggered-by", "run-1")
        file = self.load()
        entry = {"deployment_id": "dep-2", "triggered_by": "run-2", "git_commit": "c2", "status": "success", "x-own": 2}
        file["metadata"].update(deployment_id="dep-2", git_commit="c2", last_updated_by="run-2", git_branch="b2")
        file["deployment_history"].insert(0, entry)
        self.save(file)
        got = self.load()
        self.assertEqual([got["metadata"][k] for k in ("deployment_id", "git_commit", "last_updated_by", "git_branch")], ["dep-2", "c2", "run-2", "b2"])
        self.assertEqual([d["deployment_id"] for d in got["deployment_history"]], ["dep-2", "dep-1"])
        self.assertEqual(got["deployment_history"][0], entry)
        # Its own entry in a history that does not continue ours.
        file = self.load()
        file["metadata"].update(deployment_id="dep-3")
        file["deployment_history"] = [{**entry, "deployment_id": "dep-3"}]
        self.save(file)
        self.assertEqual([(d["deployment_id"], d.get("x-own")) for d in self.load()["deployment_history"]], [("dep-3", 2), ("dep-2", 2), ("dep-1", None)])
        # An id without an entry: it is made, with what the file says.
        file = self.load()
        file["metadata"].update(deployment_id="dep-4", git_commit="c4", last_updated_by="run-4")
        self.save(file)
        newest = self.load()["deployment_history"][0]
        self.assertEqual([newest[k] for k in ("deployment_id", "git_commit", "triggered_by")], ["dep-4", "c4", "run-4"])

    def test_metadata_from_loading_does_not_count_as_the_files_own(self):
        self.save({}, "--deployment-id", "dep-1", "--git-commit", "c1", "--triggered-by", "run-1")
        self.save(self.load(), "--triggered-by", "run-2")
        got = self.load()
        self.assertNotEqual(got["metadata"]["deployment_id"], "dep-1")
        self.assertEqual((len(got["deployment_history"]), got["metadata"]["last_updated_by"]), (2, "run-2"))
        file = self.load()
        file["metadata"]["git_commit"] = "c3"
        self.save(file)
        self.assertEqual((self.load()["metadata"]["git_commit"], len(self.load()["deployment_history"])), ("c3", 3))

    def test_options_beat_the_file(self):
        self.save({"metadata": {"deployment_id": "dep-file", "git_commit": "file", "last_updated_by": "file"}},
                  "--deployment-id", "dep-option", "--git-commit", "option", "--triggered-by", "option")
        got = self.load()
        self.assertEqual([got["metadata"][k] for k in ("deployment_id", "git_commit", "last_updated_by")], ["dep-option", "option", "option"])
        self.assertEqual([d["deployment_id"] for d in got["deployment_history"]], ["dep-option"])

    def test_the_only_snapshot_of_another_year_stays(self):
        self.save({})
        folder = self.dir / "belay.db-state/stacks/shop/prod/history"
        shutil.copy(folder / self.history()["snapshots"][0]["name"], folder / "2024-01-15-14-20-00.json")
        self.save({})
        self.assertIn("2024-01-15-14-20-00.json", [s["name"] for s in self.history()["snapshots"]])

    def test_a_file_that_was_loaded_before_another_save_is_refused(self):
        self.save({"outputs": {"n": 1}})
        old = self.ok("state", "load", *WHERE).out
        self.save({"outputs": {"n": 2}})
        result = self.fails(77, "state", "save", *WHERE, self.write("old.json", old))
        self.assertIn("has changed since this one was loaded", result.err)
        self.assertEqual(self.load()["outputs"]["n"], 2)

    def test_a_file_loaded_during_the_first_deployment_is_stale_after_it(self):
        """Issue 12, item 33."""
        script = f'"{BELAY}" state load --stack shop --environment prod >"{self.dir}/early.json"; echo \'{{"outputs":{{"by":"deploy"}}}}\' >"$BELAY_STATE_OUT"'
        self.ok("deploy", *WHERE, "--", "sh", "-c", script)
        result = self.fails(77, "state", "save", *WHERE, str(self.dir / "early.json"))
        self.assertIn("metadata.serial", result.err)
        self.fails(77, "state", "save", *WHERE, self.write("none.json", {}))
        self.assertEqual(self.load()["outputs"], {"by": "deploy"})
        self.ok("deploy", *WHERE, "--", "sh", "-c", 'echo "{}" >"$BELAY_STATE_OUT"')  # it has loaded under its lock

    def test_a_rejected_state_from_a_pipe_is_kept(self):
        self.save({"outputs": {"n": 1}})
        old = self.ok("state", "load", *WHERE).out
        self.save({"outputs": {"n": 2}})
        result = self.belay("state", "save", *WHERE, "-", text=old)
        self.assertEqual(result.code, 77, result)
        self.assertEqual(self.kept(result), old)

    def test_a_rejected_state_is_kept_in_a_new_tmpdir_if_belays_own_folder_cannot_be_made(self):
        self.save({"outputs": {"n": 1}})
        old = self.ok("state", "load", *WHERE).out
        self.save({"outputs": {"n": 2}})
        result = self.belay("state", "save", *WHERE, "-", text=old,
                            env={"XDG_STATE_HOME": "/dev/null", "TMPDIR": f"{self.dir}/not/there/yet"})
        self.assertEqual(result.code, 77, result)
        self.assertIn(f"is kept in {self.dir}/not/there/yet/", result.err)
        self.assertEqual(self.kept(result), old)

    def test_states_are_listed(self):
        self.assertEqual(self.ok("state", "list", "--json").json(), {"states": []})
        self.save({})
        self.ok("state", "save", "--stack", "shop", "--environment", "dev", self.write("x.json", {}))
        states = self.ok("state", "list", "--json").json()["states"]
        self.assertEqual([(s["stack"], s["environment"]) for s in states], [("shop", "dev"), ("shop", "prod")])


class Restore(StateCase):
    def setUp(self):
        super().setUp()
        for n in range(3):
            self.save({"resources": {"db": {"v": n}, **({"old": {}} if n == 0 else {"new": {}})}})

    def test_it_shows_the_changes_and_makes_a_new_version(self):
        result = self.ok("state", "restore", *WHERE, "3", "--yes")
        for line in ("+ resources: old", "~ resources: db", "- resources: new"):
            self.assertIn(line, result.err)
        state = self.load()
        self.assertEqual(state["resources"], {"db": {"v": 0}, "old": {}})
        self.assertEqual(state["metadata"]["serial"], 4)
        self.assertEqual([d["status"] for d in state["deployment_history"]], ["restored", "success", "success", "success"])
        self.assertGreater(state["lock"]["token"], 0)
        self.verify()

    def test_without_a_terminal_it_wants_yes_and_changes_nothing(self):
        before = self.load()
        self.assertIn("--yes", self.fails(64, "state", "restore", *WHERE, "2").err)
        self.assertEqual(self.load(), before)

    def test_on_a_terminal_it_asks(self):
        terminal = self.terminal("state", "restore", *WHERE, "3")
        terminal.expect("Are you sure? (yes/no): ")
        terminal.send("no\n")
        self.assertEqual(terminal.finish(), 77)
        self.assertEqual(self.load()["resources"]["db"]["v"], 2)

    def test_a_snapshot_is_restored_by_its_time_and_by_its_name(self):
        name = self.history()["snapshots"][2]["name"]
        self.ok("state", "restore", *WHERE, name, "--yes")
        self.assertEqual(self.load()["resources"]["db"]["v"], 0)
        time = self.history()["snapshots"][0]["timestamp"]
        self.ok("state", "restore", *WHERE, time, "--yes")
        self.assertEqual(self.load()["resources"]["db"]["v"], 0)
        self.assertIn("there is no snapshot '99'", self.fails(66, "state", "restore", *WHERE, "99", "--yes").err)

    def test_restoring_the_latest_snapshot_repairs_a_damaged_state(self):
        path = self.dir / "belay.db-state/stacks/shop/prod/state.json"
        path.write_text(path.read_text()[:200])
        self.fails(65, "state", "load", *WHERE)
        self.ok("state", "restore", *WHERE, "latest", "--yes")
        self.assertEqual(self.load()["resources"]["db"]["v"], 2)
        self.verify()

    def test_a_backup_is_one_more_snapshot(self):
        name = self.ok("state", "backup", *WHERE).out.strip()
        self.assertEqual(self.history()["snapshots"][0]["name"], name)
        self.verify("--snapshot", "latest")


class Refused(StateCase):
    """L8: each is refused with a message that names the fault, and nothing is changed."""

    def setUp(self):
        super().setUp()
        text, _ = example()
        self.where = ("--stack", "user-platform", "--environment", "production")
        self.ok("state", "save", *self.where, self.write("example.json", text))
        self.folder = self.dir / "belay.db-state/stacks/user-platform/production"
        self.path = self.folder / "state.json"
        self.text = self.path.read_text(encoding="utf-8")

    def damaged(self, text, *words):
        if isinstance(text, bytes):
            self.path.write_bytes(text)
        else:
            self.path.write_text(text, encoding="utf-8")
        for command in ("load", "verify"):
            result = self.fails(65, "state", command, *self.where)
            for word in words:
                self.assertIn(word, result.err)
        self.fails(65, "deploy", *self.where, "--", "true")

    def test_a_flipped_byte_in_any_part_is_found_and_the_part_is_named(self):
        for part, old, new in (("resources", "db.r6g.xlarge", "db.r6h.xlarge"), ("outputs", "com/auth", "com/auti"),
                               ("metadata", '"serial": 1', '"serial": 3'), ("lock", '"locked": false', '"locked": true '),
                               ("deployment_history", "v1.2.2", "v1.3.2"), ("version", '"1.0.0"', '"1.0.1"')):
            with self.subTest(part):
                self.assertIn(old, self.text)
                self.damaged(self.text.replace(old, new, 1), f"{part}: ")

    def test_every_single_byte_counts_unless_it_means_nothing(self):
        """Change one byte at each position of a small state: verify fails, or the meaning is the same."""
        self.save({"outputs": {"a": [1, "x"]}, "q": None})
        path = self.dir / "belay.db-state/stacks/shop/prod/state.json"
        good = path.read_bytes()
        meaning = json.loads(good)
        for at in range(0, len(good), max(1, len(good) // 60)):
            bad = good[:at] + bytes([good[at] ^ 1]) + good[at + 1:]
            path.write_bytes(bad)
            result = self.belay("state", "verify", *WHERE)
            if result.code == 0:
                self.assertEqual(json.loads(bad), meaning, at)
            else:
                self.assertEqual(result.code, 65, result)

    def test_a_save_over_a_damaged_state_reports_the_damage_and_not_the_new_content(self):
        self.path.write_text(self.text.replace("db.r6g.xlarge", "db.r6h.xlarge"), encoding="utf-8")
        damaged = self.path.read_bytes()
        result = self.fails(65, "state", "save", *self.where, self.write("new.json", {}))
        self.assertEqual(self.path.read_bytes(), damaged)
        self.assertTrue(result.err.startswith("belay: stacks/"), result.err)
        self.assertIn("resources: the checksum is wrong", result.err)
        self.assertIn("'belay state restore' repairs it", result.err)

    def test_a_truncated_file(self):
        self.damaged(self.text[:len(self.text) // 2], "not valid JSON", "ends early")
        self.damaged("", "not valid JSON", "ends early")

    def test_a_wrong_checksum(self):
        sum_of = json.loads(self.text)["checksums"]["outputs"]
        self.damaged(self.text.replace(sum_of, "sha256:" + "0" * 64), "outputs: the checksum is wrong")
        sum_of = json.loads(self.text)["checksums"]["document"]
        self.damaged(self.text.replace(sum_of, "sha256:" + "0" * 64), "checksums: the checksum of the document is wrong")

    def test_a_wrong_format_version(self):
        self.damaged(self.text.replace("deployer-state-v1", "deployer-state-v9"),
                     'format_version is "deployer-state-v9"; this belay knows "deployer-state-v1"')

    def test_invalid_json_with_its_place(self):
        self.damaged(self.text.replace('"version": "1.0.0",', '"version": 01,'), "not valid JSON", "line 2, column")
        self.damaged(self.text.encode().replace(b"1.0.0", b"1.\xff.0"), "not UTF-8")
        self.damaged(self.text.replace('"version"', '"version": "1.0.0", "version"', 1), "appears twice")

    def test_part_that_is_missing_or_was_added(self):
        state = json.loads(self.text)
        added = {**state, "extra": 1}
        self.damaged(json.dumps(added), "extra: has no checksum")
        del state["outputs"]
        self.damaged(json.dumps(state), "outputs: is missing")

    def test_another_order_and_other_blanks_mean_the_same(self):
        state = json.loads(self.text)
        self.path.write_text(json.dumps({k: state[k] for k in reversed(state)}, indent=7, ensure_ascii=True))
        self.ok("state", "verify", *self.where)

    def test_a_symbolic_link_instead_of_the_file_or_a_folder(self):
        elsewhere = self.dir / "elsewhere.json"
        shutil.move(self.path, elsewhere)
        self.path.symlink_to(elsewhere)
        for command in ("load", "verify", "backup"):
            self.assertIn("'state.json'", self.fails(65, "state", command, *self.where).err)
            self.assertIn("is a symbolic link", self.fails(65, "state", command, *self.where).err)
        self.path.unlink()
        shutil.move(self.folder, self.dir / "moved")
        self.folder.symlink_to(self.dir / "moved")
        self.assertIn("is a symbolic link", self.fails(65, "state", "load", *self.where).err)

    def test_names_that_lead_elsewhere(self):
        for stack in ("..", "../x", "a/../../b", ".", "a/b", "x\n"):
            result = self.fails(64, "state", "load", "--stack", stack, "--environment", "prod")
            self.assertIn("the stack", result.err)
        self.assertIn("the environment '..'", self.fails(64, "state", "load", "--stack", "s", "--environment", "..").err)

    def test_the_state_of_another_stack_is_not_saved_under_this_name(self):
        result = self.fails(65, "state", "save", *WHERE, self.write("x.json", self.text))
        self.assertIn('metadata.stack is "user-platform", not "shop"', result.err)

    def test_input_that_is_no_state(self):
        for text, words in (("[]", "not an object"), ("{", "ends early"), ('{"resources": []}', "'resources' is not an object"),
                            ('{"a": 1, "a": 2}', "appears twice"), ('{"format_version": "2"}', "format_version")):
            self.assertIn(words, self.fails(65, "state", "save", *WHERE, self.write("x.json", text)).err)
        self.fails(66, "state", "save", *WHERE, "no-such-file")


class Deploy(StateCase):
    def deploy(self, script, *args, code=0, **more):
        return self.fails(code, "deploy", *WHERE, *args, "--", "sh", "-c", script, **more)

    def test_the_state_goes_in_and_the_new_one_is_saved(self):
        self.save({"outputs": {"n": 1}})
        self.deploy('sed s/\'"n": 1\'/\'"n": 2\'/ "$BELAY_STATE_FILE" >"$BELAY_STATE_OUT"', "--release", "v2")
        state = self.load()
        self.assertEqual(state["outputs"], {"n": 2})
        entry = state["deployment_history"][0]
        self.assertEqual((entry["status"], entry["version"]), ("success", "v2"))
        self.assertFalse(state["lock"]["locked"])
        self.verify()
        self.assertEqual(list(self.dir.glob("belay-deploy-*")), [])

    def test_while_it_runs_the_state_is_marked_as_locked(self):
        self.deploy(f'"{BELAY}" state load --stack shop --environment prod >during.json; echo $BELAY_TOKEN >token')
        lock = json.loads(self.read("during.json"))["lock"]
        self.assertTrue(lock["locked"])
        self.assertEqual(lock["token"], int(self.read("token")))
        self.assertRegex(lock["store"], "^sqlite-[0-9a-f]{32}$", "the id of the lock store, not its URL")

    def test_a_failure_leaves_the_state_and_is_recorded(self):
        self.save({"outputs": {"n": 1}})
        result = self.deploy('echo \'{"outputs":{"n":9}}\' >"$BELAY_STATE_OUT"; exit 7', code=7)
        self.assertEqual(json.loads(self.kept(result))["outputs"]["n"], 9)
        state = self.load()
        self.assertEqual(state["outputs"], {"n": 1})
        self.assertEqual(state["deployment_history"][0]["status"], "failed")
        self.verify()

    def test_output_that_is_no_state_is_a_failure(self):
        result = self.deploy('echo nonsense >"$BELAY_STATE_OUT"', code=65)
        self.assertIn("BELAY_STATE_OUT", result.err)
        self.assertEqual(self.kept(result), "nonsense\n")
        self.assertEqual(self.load()["deployment_history"][0]["status"], "failed")

    def test_output_that_cannot_be_opened_is_a_failure(self):
        self.save({"outputs": {"n": 1}})
        bind = "import os, socket; os.chdir(os.path.dirname(os.environ['BELAY_STATE_OUT'])); " \
               "socket.socket(socket.AF_UNIX).bind(os.path.basename(os.environ['BELAY_STATE_OUT']))"
        self.assertIn("cannot open", self.deploy(f'python3 -c "{bind}"', code=65).err)
        self.assertEqual(self.load()["deployment_history"][0]["status"], "failed")

    def test_a_save_inside_uses_the_same_lock_and_the_last_one_wins(self):
        inner = f'"{BELAY}" state save --stack shop --environment prod -'
        self.deploy(f'echo \'{{"outputs":{{"n":1}}}}\' | {inner}; echo \'{{"outputs":{{"n":2}}}}\' >"$BELAY_STATE_OUT"')
        self.assertEqual(self.load()["outputs"], {"n": 2})
        self.assertEqual(self.load("--snapshot", "2")["outputs"], {"n": 1})

    def test_two_deployments_never_run_at_once(self):
        first = self.start("deploy", *WHERE, "--", "sh", "-c", "echo $$ >pid; while [ ! -e go ]; do sleep 0.02; done")
        self.pid_in("pid")
        self.deploy("true", code=75)
        (self.dir / "go").touch()
        self.assertEqual(first.wait(60), 0)

    def test_ctrl_c_and_kill_leave_a_state_that_verifies(self):
        import signal
        for number in (signal.SIGINT, signal.SIGKILL):
            self.save({})
            process = self.start("deploy", *WHERE, "--ttl", "3s", "--", "sh", "-c", "echo $$ >pid; exec sleep 60")
            self.pid_in("pid")
            process.send_signal(number)
            process.wait(60)
            self.verify()
            (self.dir / "pid").unlink()
            self.deploy("true", "--wait", "30s")

    def test_ci_systems_and_git_provide_the_metadata(self):
        cases = {
            "github-actions-run-12345": {"GITHUB_ACTIONS": "true", "GITHUB_RUN_ID": "12345", "GITHUB_SHA": "c1",
                                         "GITHUB_REF_NAME": "main", "GITHUB_ACTOR": "alice"},
            "gitlab-ci-job-77": {"GITLAB_CI": "true", "CI_JOB_ID": "77", "CI_COMMIT_SHA": "c1", "CI_COMMIT_REF_NAME": "main",
                                 "GITLAB_USER_LOGIN": "alice"},
            "jenkins-shop-9": {"JENKINS_URL": "http://j/", "BUILD_TAG": "jenkins-shop-9", "GIT_COMMIT": "c1",
                               "GIT_BRANCH": "origin/main", "BUILD_USER_ID": "alice"},
            "buildkite-build-01a": {"BUILDKITE": "true", "BUILDKITE_BUILD_ID": "01a", "BUILDKITE_COMMIT": "c1",
                                    "BUILDKITE_BRANCH": "main", "BUILDKITE_BUILD_CREATOR": "alice"},
        }
        for who, env in cases.items():
            self.deploy("true", env=env)
            state = self.load()
            self.assertEqual(state["deployment_history"][0]["triggered_by"], who)
            self.assertEqual(state["metadata"]["last_updated_by"], who)
            lock = self.ok("status", "stack:shop:env:prod", "--json").json()
            self.assertEqual(lock["locked_by"], who)
            # S4.4: every lock of a stack has the same metadata, whichever command acquires it.
            before = lock["metadata"]
            self.ok("run", *WHERE, "--meta", "note=x", "--", "true", env=env)
            after = self.ok("status", "stack:shop:env:prod", "--json").json()
            self.assertEqual((after["locked_by"], after["locked_by_name"]), (who, who))
            self.assertEqual(set(after["metadata"]), {*before, "note"})
            for name in set(before) - {"pid", "deployment_id"}:
                self.assertEqual(after["metadata"][name], before[name])
            self.assertEqual([state["deployment_history"][0][k] for k in ("git_commit", "git_branch", "user")], ["c1", "main", "alice"])
        self.deploy("true", "--git-commit", "c9", "--user", "bob", env=cases["gitlab-ci-job-77"])
        self.assertEqual([self.load()["deployment_history"][0][k] for k in ("git_commit", "user")], ["c9", "bob"])

    @unittest.skipUnless(shutil.which("git"), "needs git")
    def test_git_provides_commit_and_branch(self):
        repo = self.dir / "repo"
        for command in (["init", "-q", "-b", "trunk", str(repo)],
                        ["-C", str(repo), "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-m", "x"]):
            subprocess.run(["git", *command], check=True, env=self.environment(None))
        head = subprocess.run(["git", "-C", str(repo), "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
        self.ok("deploy", *WHERE, "--", "true", cwd=repo)
        self.assertEqual([self.load()["metadata"][k] for k in ("git_commit", "git_branch")], [head, "trunk"])


class Adopt(StateCase):
    """Issue 12, item 10: states as document 004's own program writes them."""

    where = ("--stack", "user-platform", "--environment", "production")

    def setUp(self):
        super().setUp()
        self.folder = self.dir / "belay.db-state/stacks/user-platform/production"
        self.path = self.folder / "state.json"
        (self.folder / "history").mkdir(parents=True)
        self.text, self.wanted = example()
        self.assertEqual(self.wanted["checksums"]["resources"], "sha256:abc123...", "a placeholder, as in the document")
        self.path.write_text(self.text, encoding="utf-8")
        (self.folder / "history/2024-01-15-11-45-00.json").write_text(self.text.replace("v1.2.3", "v1.2.1"), encoding="utf-8")

    def names(self):
        return [s["name"] for s in self.ok("state", "history", "--json", *self.where).json()["snapshots"]]

    def test_every_refusal_names_it(self):
        for args in (("state", "load", *self.where), ("state", "verify", *self.where), ("deploy", *self.where, "--", "touch", "ran"),
                     ("state", "save", *self.where, self.write("new.json", self.wanted)), ("state", "load", *self.where, "--snapshot", "1"),
                     ("state", "restore", *self.where, "--yes", "1")):
            self.assertIn("belay state adopt", self.fails(65, *args).err, args)
        self.assertFalse(self.has("ran"))
        self.assertEqual(self.path.read_text(encoding="utf-8"), self.text)

    def test_it_shows_the_state_keeps_the_bytes_and_records_the_user(self):
        result = self.ok("state", "adopt", *self.where, "--yes", "--triggered-by", "alice@laptop")
        for said in ("github-actions-run-12345", "dep-abc123def456", "resources: the checksum is wrong", "deployments", "2024-01-15T14:20:00Z"):
            self.assertIn(said, result.err)
        got = self.ok("state", "load", *self.where).json()
        for part in ("resources", "outputs"):
            self.assertEqual(got[part], self.wanted[part])
        for name in ("deployment_id", "git_commit", "git_branch"):
            self.assertEqual(got["metadata"][name], self.wanted["metadata"][name], "what is deployed is what it was")
        self.assertEqual((got["metadata"]["serial"], got["metadata"]["last_updated_by"]), (1, "alice@laptop"))
        newest = got["deployment_history"][0]
        self.assertEqual((newest["status"], newest["triggered_by"]), ("adopted", "alice@laptop"))
        self.assertEqual(got["deployment_history"][1:], self.wanted["deployment_history"])
        names = self.names()
        self.assertEqual(len(names), 3)
        self.assertEqual((self.folder / "history" / names[1]).read_text(encoding="utf-8"), self.text, "as it was, to the byte")
        self.ok("state", "verify", *self.where)
        self.ok("deploy", *self.where, "--", "true")
        self.ok("state", "save", *self.where, self.write("again.json", self.ok("state", "load", *self.where).out))

    def test_a_snapshot_of_that_program_is_adopted_too(self):
        self.ok("state", "adopt", *self.where, "--yes")
        self.ok("state", "adopt", *self.where, "--yes", "--snapshot", "2024-01-15T11:45:00Z")
        got = self.ok("state", "load", *self.where).json()
        self.assertIn("v1.2.1", got["resources"]["user-service/api"]["desired_config"]["image"]["tag"])
        self.assertEqual(got["metadata"]["serial"] > 1, True)
        self.assertEqual([d["status"] for d in got["deployment_history"][:2]], ["adopted", "adopted"])

    def test_a_snapshot_is_adopted_over_a_state_that_is_not(self):
        self.ok("state", "adopt", *self.where, "--yes", "--snapshot", "1")
        names = self.names()
        self.assertEqual((self.folder / "history" / names[1]).read_text(encoding="utf-8"), self.text, "what was replaced is kept")

    def test_it_asks_and_changes_nothing_without_an_answer(self):
        self.assertIn("--yes", self.fails(64, "state", "adopt", *self.where).err)
        for answer, code in (("no\n", 77), ("yes\n", 0)):
            terminal = self.terminal("state", "adopt", *self.where)
            terminal.expect("Are you sure")
            terminal.send(answer)
            self.assertEqual(terminal.finish(), code)
            self.assertEqual(self.path.read_text(encoding="utf-8") == self.text, code != 0)

    def test_a_sound_state_is_not_changed(self):
        self.ok("state", "adopt", *self.where, "--yes")
        before = self.path.read_bytes()
        self.assertIn("nothing to adopt", self.ok("state", "adopt", *self.where, "--yes").out)
        self.assertEqual(self.path.read_bytes(), before)
        self.assertEqual(len(self.names()), 3)

    def test_a_file_that_is_not_a_state_cannot_be_adopted(self):
        for text in ("garbage", "[]", '{"format_version": "other"}', self.text.replace('"stack": "user-platform"', '"stack": "another"')):
            self.path.write_text(text, encoding="utf-8")
            self.fails(65, "state", "adopt", *self.where, "--yes")
            self.assertEqual(self.path.read_text(encoding="utf-8"), text)
        self.fails(66, "state", "adopt", "--stack", "none", "--environment", "prod", "--yes")

    def test_serials_continue_over_a_damaged_state(self):
        self.ok("state", "adopt", *self.where, "--yes")
        early = self.write("early.json", self.ok("state", "load", *self.where).out)
        for _ in range(3):
            self.ok("deploy", *self.where, "--", "true")
        document = json.loads(self.path.read_text(encoding="utf-8"))
        document["metadata"]["serial"] = 0
        self.path.write_text(json.dumps(document), encoding="utf-8")
        self.ok("state", "adopt", *self.where, "--yes")
        self.assertGreater(self.ok("state", "load", *self.where).json()["metadata"]["serial"], 4)
        self.fails(77, "state", "save", *self.where, early)


class Counting(StateCase):
    """Issue 12, item 9: a serial is never given twice, whatever became of the state."""

    def setUp(self):
        super().setUp()
        self.path = self.dir / "belay.db-state/stacks/shop/prod/state.json"
        self.copies = {}
        for n in range(1, 6):
            self.save({"outputs": {"n": n}})
            self.copies[n] = self.write(f"copy-{n}.json", self.ok("state", "load", *WHERE).out)

    def refused_all(self):
        now = self.load()
        for n, copy in self.copies.items():
            self.fails(77, "state", "save", *WHERE, copy)
        self.assertEqual(self.load(), now)
        return now["metadata"]["serial"]

    def test_after_a_restore_over_a_damaged_state_early_copies_are_refused(self):
        harms = {"cut off": lambda text: text[:200], "not JSON": lambda text: "garbage", "changed": lambda text: text.replace('"n": 5', '"n": 6'),
                 "no serial": lambda text: text.replace('"serial"', '"cereal"'), "empty": lambda text: ""}
        last = 5
        for harm in harms.values():
            self.path.write_text(harm(self.path.read_text()))
            self.ok("state", "restore", *WHERE, "--yes", "4")  # the fourth newest, and not the newest
            serial = self.refused_all()
            self.assertGreater(serial, last)
            last = serial

    def test_the_newest_snapshots_may_be_damaged_too(self):
        for snapshot in self.history()["snapshots"][:2]:
            (self.path.parent / "history" / snapshot["name"]).write_text("garbage")
        self.path.write_text("garbage")
        self.ok("state", "restore", *WHERE, "--yes", "3")
        self.assertGreater(self.refused_all(), 5)

    def test_a_version_that_never_got_its_snapshot_counts(self):
        (self.path.parent / "history" / self.history()["snapshots"][0]["name"]).unlink()
        self.path.write_text("garbage")
        self.ok("state", "restore", *WHERE, "--yes", "1")
        self.assertGreater(self.refused_all(), 5)

    def test_serials_continue_after_a_state_was_deleted(self):
        self.path.unlink()
        self.ok("state", "restore", *WHERE, "--yes", "1")
        serial = self.refused_all()
        self.assertGreater(serial, 5)
        self.path.unlink()
        self.ok("state", "save", *WHERE, self.write("new.json", {"outputs": {"n": 99}}))
        self.assertGreater(self.refused_all(), serial)
        self.path.unlink()
        self.ok("deploy", *WHERE, "--", "true")
        self.assertGreater(self.refused_all(), serial + 1)


class Fencing(StateCase):
    def test_a_paused_holder_changes_nothing_and_keeps_its_work(self):
        self.paused_holder()

    def test_a_state_store_belongs_to_one_lock_store(self):
        """Issue 12, item 4: locks of two stores do not exclude each other."""
        self.save({"outputs": {"n": 1}})
        other = {"BELAY_STORE": f"sqlite:{self.dir}/other.db", "BELAY_STATE_STORE": f"file:{self.dir}/belay.db-state"}
        new = self.write("new.json", self.load())
        for stack in ("prod", "never-used"):  # the whole store is bound, not the documents in it
            where = ("--stack", "shop", "--environment", stack)
            for args in (("deploy", *where, "--", "touch", str(self.dir / "ran")), ("state", "save", *where, self.write("x.json", {})),
                         ("state", "restore", *WHERE, "--yes", "1")):
                result = self.fails(78, *args, env=other)
                for said in ("belay.db", "other.db", "belay state rebind"):
                    self.assertIn(said, result.err)
        self.assertFalse(self.has("ran"))
        self.ok("state", "save", *WHERE, new)
        self.fails(64, "state", "rebind", env=other)
        self.assertIn("other.db", self.ok("state", "rebind", "--yes", env=other).out)
        self.ok("deploy", *WHERE, "--", "true", env=other)
        self.assertIn("is fenced by", self.fails(78, "deploy", *WHERE, "--", "true").err)
        self.verify()

    def test_one_lock_store_has_one_id_by_whichever_name(self):
        self.save({})
        (self.dir / "link.db").symlink_to(self.dir / "belay.db")
        for url in (f"sqlite:{self.dir}/link.db", f"sqlite:{self.dir}/./belay.db", f"sqlite:{self.dir}/belay.db?durability=full"):
            self.ok("deploy", *WHERE, "--", "true", env={"BELAY_STORE": url})
        self.assertEqual([p.name for p in self.dir.glob("*-state")], ["belay.db-state"])

    def test_a_recreated_lock_store_has_a_new_id(self):
        self.save({})
        for path in self.dir.glob("belay.db*"):
            if path.is_file():
                path.unlink()
        result = self.fails(78, "deploy", *WHERE, "--", "touch", "ran")
        self.assertIn("belay state rebind", result.err)
        self.assertFalse(self.has("ran"))
        self.verify()

    def test_a_store_without_a_binding_and_documents_with_a_url_still_work(self):
        """A state by an earlier belay: lock.store was the URL, and the directory was not bound."""
        self.save({"outputs": {"n": 1}})
        folder = self.dir / "belay.db-state"
        (folder / "belay-lock-store.json").unlink()
        path = folder / "stacks/shop/prod/state.json"
        document = json.loads(path.read_text(encoding="utf-8"))
        document["lock"].update(store=self.store, token=document["lock"]["token"] + 1000000)
        del document["checksums"]
        path.write_text(json.dumps(document), encoding="utf-8")
        self.assertIn("is older", self.fails(77, "deploy", *WHERE, "--", "true").err)
        document["lock"]["token"] = 1
        path.write_text(json.dumps(document), encoding="utf-8")
        self.ok("deploy", *WHERE, "--", "true")
        self.assertRegex(self.load()["lock"]["store"], "^sqlite-")

    def test_a_damaged_binding_stops_writes_until_it_is_rewritten(self):
        self.save({})
        (self.dir / "belay.db-state" / "belay-lock-store.json").write_text("{", encoding="utf-8")
        self.assertIn("belay state rebind", self.fails(65, "deploy", *WHERE, "--", "true").err)
        self.load()
        self.ok("state", "rebind", "--yes")
        self.ok("deploy", *WHERE, "--", "true")


if __name__ == "__main__":
    unittest.main()
