"""deploy/github-action: main.js and post.js, in the environment that the runner sets."""

import datetime
import os
import pathlib
import signal
import subprocess

from remote_support import RemoteCase, wait_until
from run_support import children_of, is_running
from support import BELAY, main

ACTION = pathlib.Path(__file__).resolve().parents[2] / "deploy/github-action"


class TestAction(RemoteCase):
    tokens = [("ci", "locker", "locker-secret"), ("root", "admin", "admin-secret")]

    def setUp(self):
        super().setUp()
        self.env["BELAY_AUTH_TOKEN"] = "admin-secret"  # of the commands of this test

    def runner(self, **inputs):
        """The variables and files of one step."""
        inputs = {"key": "deploy-api", "store": self.url, "token": "locker-secret", "wait": "20s", "ttl": "10m",
                  "belay": BELAY, **inputs}
        env = {"PATH": os.environ["PATH"], "HOME": str(self.dir), "GITHUB_ACTIONS": "true", "GITHUB_RUN_ID": "812",
               "GITHUB_SERVER_URL": "https://github.example", "GITHUB_REPOSITORY": "shop/api", "RUNNER_TEMP": str(self.dir)}
        env.update({f"INPUT_{name.upper()}": value for name, value in inputs.items()})
        for name in ("output", "state", "env"):
            (self.dir / name).write_text("", encoding="utf-8")
            env[f"GITHUB_{name.upper()}"] = str(self.dir / name)
        return env

    def values(self, name):
        return dict(line.split("=", 1) for line in (self.dir / name).read_text(encoding="utf-8").splitlines())

    def script(self, name, env):
        process = subprocess.Popen(["node", str(ACTION / name)], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   stdin=subprocess.DEVNULL, encoding="utf-8")
        self.addCleanup(self.end, process)
        return process

    def step(self, name, env):
        process = self.script(name, env)
        out, err = process.communicate(timeout=60)
        self.assert_masked(out, err)
        return process.returncode, out, err

    def assert_masked(self, out, err):
        self.assertEqual(out.count("locker-secret"), out.count("::add-mask::locker-secret\n"), out)
        self.assertNotIn("locker-secret", err)

    def post(self, env):
        return self.step("post.js", {**env, **{f"STATE_{name}": value for name, value in self.values("state").items()}})

    def is_renewing(self):
        """Whether the process that main.js left behind is there, and is not a zombie."""
        try:
            words = pathlib.Path(f"/proc/{self.values('state')['renewer'].split(':')[0]}/cmdline").read_text(encoding="utf-8").split("\0")
        except (FileNotFoundError, ProcessLookupError):  # gone, or going
            return False
        return str(ACTION / "renew.js") in words

    def expiry(self):
        lock = self.status("deploy-api")
        self.assertEqual(lock["status"], "active", lock)
        return datetime.datetime.fromisoformat(lock["expires_at"].replace("Z", "+00:00"))

    def hold(self, ttl):
        """The first step of a job; returns what the post step gets, and when the lease would end."""
        env = self.runner(ttl=ttl)
        code, out, err = self.step("main.js", env)
        self.assertEqual(code, 0, out + err)
        self.addCleanup(self.post, env)
        return env, self.expiry()

    def test_the_lease_is_renewed_between_the_steps(self):
        env, first = self.hold("8s")
        wait_until(lambda: self.expiry() > first + datetime.timedelta(seconds=5), "two renewals")
        self.assertEqual(self.post(env)[0], 0)
        self.assertEqual(self.status("deploy-api")["status"], "released")

    def test_renewals_go_on_after_an_outage_of_the_server(self):
        env, first = self.hold("20s")
        self.kill_server()
        (log,) = self.dir.glob("belay-renewals-*")
        wait_until(lambda: "belay: " in log.read_text(encoding="utf-8"), "a renewal that fails")
        self.serve()
        wait_until(lambda: self.expiry() > first + datetime.timedelta(seconds=5), "a renewal")
        code, out, err = self.post(env)
        self.assertEqual((code, "::error::" in out), (0, False), out)
        self.assertIn("belay: ", err)

    def test_renewals_end_when_the_process_of_the_job_is_gone(self):
        env = self.runner()
        job = subprocess.Popen(["sh", "-c", f"node {ACTION / 'main.js'} >&2; echo; exec sleep 600"], env=env, stdout=subprocess.PIPE,
                               stderr=subprocess.DEVNULL, encoding="utf-8")
        self.addCleanup(self.end, job)
        self.assertEqual(job.stdout.readline(), "\n")
        self.assertTrue(self.is_renewing())
        job.kill()
        wait_until(lambda: not self.is_renewing(), "the end of the renewals")
        self.assertEqual(self.status("deploy-api")["status"], "active")  # until its lease ends

    def test_a_lock_that_was_lost_fails_the_post_step(self):
        env, _ = self.hold("8s")
        self.ok("unlock", "deploy-api", "--force", "--yes")
        wait_until(lambda: not self.is_renewing(), "the end of the renewals")
        self.acquire("deploy-api", "--owner", "rival")
        code, out, err = self.post(env)
        self.assertEqual(code, 1)
        self.assertIn("::error::the lock 'deploy-api' was lost before the job ended: ", out)
        self.assertIn("belay: ", err)

    def test_main_acquires_and_post_releases(self):
        env = self.runner()
        code, out, err = self.step("main.js", env)
        self.assertEqual(code, 0, out + err)
        self.assertTrue(out.startswith("::add-mask::locker-secret\n"), out)
        lock = self.status("deploy-api")
        self.assertEqual((lock["status"], lock["locked_by"], lock["ttl_ms"]), ("active", "github-actions-run-812", 600000))
        self.assertEqual(lock["metadata"]["ci_url"], "https://github.example/shop/api/actions/runs/812")
        self.assertEqual(self.values("output"), {"lock-id": lock["lock_id"], "token": str(lock["token"])})
        self.assertEqual(self.values("env")["BELAY_TOKEN"], str(lock["token"]))
        self.assertTrue(self.is_renewing())
        self.assertEqual(self.post(env)[0], 0)
        wait_until(lambda: not self.is_renewing(), "the end of the renewals")
        self.assertEqual(list(self.dir.glob("belay-renewals-*")), [])
        self.assertEqual(self.status("deploy-api")["status"], "released")

    def test_a_job_that_is_cancelled_while_it_waits_leaves_nothing(self):
        held = self.acquire("deploy-api", "--owner", "rival")
        env = self.runner()
        process = self.script("main.js", env)
        line = process.stderr.readline()
        self.assertIn("1st in the queue for 'deploy-api', held by", line)
        wait_until(lambda: self.status("deploy-api")["waiting"], "the waiter")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        self.assert_masked(out, line + err)
        self.assertNotEqual(process.returncode, 0)
        self.assertEqual(self.post(env)[0], 0)
        lock = self.status("deploy-api")
        self.assertEqual((lock["waiting"], lock["lock_id"]), ([], held["lock_id"]))

    def test_a_job_that_is_killed_with_its_lock_is_cleaned_up_by_post(self):
        env = self.runner()
        process = self.script("main.js", env)
        wait_until(lambda: self.belay("status", "--json", "deploy-api").code == 0, "the lock")
        process.kill()
        process.communicate(timeout=60)
        self.assertEqual(self.post(env)[0], 0)
        self.assertEqual(self.status("deploy-api")["status"], "released")

    def test_a_job_that_is_killed_while_it_waits_leaves_nothing(self):
        held = self.acquire("deploy-api", "--owner", "rival")
        env = self.runner()
        process = self.script("main.js", env)
        wait_until(lambda: self.status("deploy-api")["waiting"], "the waiter")
        (belay,) = children_of(process.pid)
        self.pids.append(belay)
        process.kill()
        self.assertTrue(is_running(belay))
        self.assertEqual(self.post(env)[0], 0)
        self.assertFalse(is_running(belay), "it would acquire the lock later")
        self.assertEqual(self.status("deploy-api")["waiting"], [])
        self.ok("release", "deploy-api", "--id", held["lock_id"])
        self.assertEqual(self.status("deploy-api")["status"], "released")

    def test_errors_are_errors_of_the_step(self):
        self.acquire("deploy-api", "--owner", "rival")
        for inputs, text in (({"wait": "100ms"}, "was not acquired (belay's exit code 75)"), ({"key": ""}, "the input 'key' is missing"),
                             ({"token": "locker-secret", "ttl": "soon"}, "exit code 64"), ({"belay": "/nowhere"}, "cannot start belay")):
            code, out, _ = self.step("main.js", self.runner(**inputs))
            self.assertEqual(code, 1, inputs)
            self.assertIn("::error::", out)
            self.assertIn(text, out)
            self.assertEqual(self.values("output"), {})

    def test_the_action_declares_what_the_scripts_read(self):
        text = (ACTION / "action.yml").read_text(encoding="utf-8")
        declared = set()
        for line in text.split("inputs:\n")[1].split("outputs:\n")[0].splitlines():
            if line.startswith("  ") and not line.startswith("   "):
                declared.add(line.strip(" :"))
        read = {part.split('"')[1] for name in ("main.js", "post.js") for part in (ACTION / name).read_text(encoding="utf-8").split("input(")[1:]}
        self.assertEqual(read, declared)
        for name in ("main: main.js", "post: post.js", "using: node20"):
            self.assertIn(name, text)


if __name__ == "__main__":
    main()
