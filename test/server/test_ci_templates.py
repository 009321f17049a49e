"""What CI systems run of ours: deploy/ci and the workflow of docs/jobs, started and cancelled as their runners do it.

The runners are not here. How each starts a script and cancels it was read in its source and documentation on 2026-11-17.
"""

import os
import re
import signal
import subprocess

import yaml
from remote_support import RemoteCase, wait_until
from support import BELAY, PATIENCE, ROOT, Terminal, main

CI = ROOT / "deploy/ci"
STORE = "https://locks.example.com:7420"


def npm_tool(name):
    folder = subprocess.run([ROOT / "tools/npm-tools", "ci"], check=True, capture_output=True, encoding="utf-8").stdout.strip()
    return f"{folder}/node_modules/.bin/{name}"


class Job:
    """A job whose command runs until the file 'go' is there."""

    tokens = [("ci", "locker", "locker-secret"), ("root", "admin", "admin-secret")]
    OWNER = None
    URL = None
    VARIABLES = {}  # that the system sets
    FAILED = 3  # what a job ends with whose command ends with 3

    def setUp(self):
        super().setUp()
        self.env["BELAY_AUTH_TOKEN"] = "admin-secret"  # of the commands of this test
        self.program("deploy.sh", 'echo $$ >pid; until [ -e go ]; do sleep 0.05; done; echo "$BELAY_TOKEN" >>ran')
        (self.dir / "bin").mkdir()
        (self.dir / "bin/belay").symlink_to(os.path.abspath(BELAY))

    def program(self, name, script):
        (self.dir / name).write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        (self.dir / name).chmod(0o755)

    def variables(self, **more):
        return self.environment({"PATH": f"{self.dir}/bin:{self.env['PATH']}", "BELAY_STORE": self.url, "CI": "true",
                                 "BELAY_AUTH_TOKEN": "locker-secret", **self.VARIABLES, **more})

    def popen(self, argv, **more):
        with open(self.path("log"), "wb") as log:
            process = subprocess.Popen(argv, cwd=self.dir, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, **more)
        self.addCleanup(self.end, process)
        self.pids.append(process.pid)
        return process

    def log(self):
        text = self.read("log")
        self.assertNotIn("locker-secret", text)
        return text

    def code(self, job):
        return job.wait(PATIENCE)

    def test_the_job_holds_the_lock_while_its_command_runs(self):
        job = self.begin()
        self.pid_in("pid")
        lock = self.status("deploy-api-prod")
        self.assertEqual((lock["status"], lock["locked_by"], lock["metadata"]["ci_url"]), ("active", self.OWNER, self.URL))
        (self.dir / "go").touch()
        self.assertEqual(self.code(job), 0, self.log())
        self.assertEqual(self.read("ran"), f"{lock['token']}\n")
        self.assertEqual(self.status("deploy-api-prod")["outcome"], "completed")

    def test_a_command_that_fails_fails_the_job(self):
        self.program("deploy.sh", "exit 3")
        self.assertEqual(self.code(self.begin()), self.FAILED, self.log())

    def test_a_job_that_is_cancelled_leaves_no_lock(self):
        job = self.begin()
        command = self.pid_in("pid")
        self.cancel(job)
        self.assertNotEqual(self.code(job), 0)
        wait_until(lambda: self.status("deploy-api-prod")["status"] == "released", "the release")
        self.assert_gone(command)
        self.assertFalse(self.has("ran"))
        self.log()

    def test_a_job_that_is_cancelled_while_it_waits_leaves_the_queue(self):
        rival = self.acquire("deploy-api-prod", "--owner", "rival")["lock_id"]
        job = self.begin()
        waiter = wait_until(lambda: self.status("deploy-api-prod")["waiting"], "the waiter")
        self.assertEqual(waiter[0]["locked_by"], self.OWNER)
        wait_until(lambda: "belay: 1st in the queue for 'deploy-api-prod', held by" in self.log(), "a line in the log")
        self.cancel(job)
        self.assertNotEqual(self.code(job), 0)
        wait_until(lambda: not self.status("deploy-api-prod")["waiting"], "an empty queue")
        self.ok("release", "deploy-api-prod", "--id", rival)
        self.assertEqual(self.status("deploy-api-prod")["status"], "released")
        self.assertFalse(self.has("pid"))


class GitLab(Job, RemoteCase):
    """The shell executor: bash with all of the script, in a process group, which gets SIGTERM."""

    OWNER = "gitlab-ci-job-77"
    URL = "https://gitlab.example/shop/-/jobs/77"
    VARIABLES = {"GITLAB_CI": "true", "CI_JOB_ID": "77", "CI_JOB_URL": URL}
    FAILED = 1  # bash, because of the 'eval' in a pipeline

    def pipeline(self, **texts):
        """The job that the comment of the template shows, as GitLab would merge it; its parser checks GitLab's schema."""
        text = (CI / "gitlab-ci.yml").read_text(encoding="utf-8")
        for old, new in texts.items():
            self.assertIn(old, text)
            text = text.replace(old, new)
        (self.dir / "deploy/ci").mkdir(parents=True)
        (self.dir / "deploy/ci/gitlab-ci.yml").write_text(text, encoding="utf-8")
        (self.dir / ".gitlab-ci.yml").write_text("\n".join(re.findall(r"^#     (.*)$", text, re.M)), encoding="utf-8")
        subprocess.run(["git", "init", "--quiet"], cwd=self.dir, env=self.env, check=True, capture_output=True)
        return subprocess.run([npm_tool("gitlab-ci-local"), "--preview"], cwd=self.dir, env=self.env, capture_output=True, encoding="utf-8",
                              timeout=PATIENCE * 4, check=False)

    def begin(self):
        done = self.pipeline()
        self.assertEqual(done.returncode, 0, done)
        job = yaml.safe_load(done.stdout[done.stdout.index("---\n"):])["deploy"]
        lines = "\n".join(job["script"])
        return self.popen(["bash", "-c", 'set -eo pipefail; : | eval "$1"; exit 0', "bash", lines], env=self.variables(**job["variables"]),
                          start_new_session=True)

    def cancel(self, job):
        os.killpg(job.pid, signal.SIGTERM)

    def test_the_schema_would_find_a_misspelt_name(self):
        done = self.pipeline(**{"  script:": "  scripts:"})
        self.assertNotEqual(done.returncode, 0, done)


class Jenkins(Job, RemoteCase):
    """The step 'sh': a script for 'sh -xe' under nohup. Each process with the cookie of the step gets SIGTERM, children first."""

    OWNER = "jenkins-shop-9"
    URL = "http://jenkins.example/job/shop/9/"
    VARIABLES = {"JENKINS_URL": "http://jenkins.example/", "BUILD_TAG": "jenkins-shop-9", "BUILD_URL": URL,
                 "JENKINS_SERVER_COOKIE": "durable-5a1b"}

    def begin(self):
        text = (CI / "Jenkinsfile").read_text(encoding="utf-8")
        self.assertEqual(text.count("{"), text.count("}"))
        self.assertEqual(re.findall(r"^        (\w+) = '(.*)'$", text, re.M), [("BELAY_STORE", STORE)])
        self.assertRegex(text, r"\[string\(credentialsId: 'belay-token', variable: 'BELAY_AUTH_TOKEN'\)\]")
        (script,) = re.findall(r"^ +sh '([^']*)'$", text, re.M)
        (self.dir / "script.sh").write_text(script, encoding="utf-8")
        return self.popen(["nohup", "sh", "-xe", self.path("script.sh")], env=self.variables(), start_new_session=True)

    def cancel(self, job):
        found = []
        for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
            try:
                with open(f"/proc/{pid}/environ", "rb") as file:
                    if b"JENKINS_SERVER_COOKIE=durable-5a1b" in file.read().split(b"\0") and os.path.samefile(f"/proc/{pid}/cwd", self.dir):
                        found.append(pid)
            except (FileNotFoundError, ProcessLookupError, PermissionError):
                continue
        self.assertGreater(len(found), 1)
        for pid in sorted(found, reverse=True):
            try:
                os.kill(pid, signal.SIGTERM)
            except ProcessLookupError:
                continue


class Buildkite(Job, RemoteCase):
    """The agent: 'bash -e -c' on a terminal. The process group of the job gets SIGTERM."""

    OWNER = "buildkite-build-01a"
    URL = "https://buildkite.example/shop/builds/9#01b"
    VARIABLES = {"BUILDKITE": "true", "BUILDKITE_BUILD_ID": "01a", "BUILDKITE_JOB_ID": "01b",
                 "BUILDKITE_BUILD_URL": "https://buildkite.example/shop/builds/9"}

    def begin(self):
        pipeline = yaml.safe_load((CI / "buildkite.yml").read_text(encoding="utf-8"))
        self.assertEqual(pipeline["env"], {"BELAY_STORE": STORE})
        (step,) = pipeline["steps"]
        self.assertEqual(set(step), {"label", "command"})
        self.terminal = Terminal(["bash", "-e", "-c", step["command"]], self.variables(), columns=160, cwd=self.dir)
        self.addCleanup(self.close_terminal, self.terminal)
        return self.terminal.process

    def code(self, job):
        return self.terminal.finish()

    def log(self):
        while self.terminal.process.poll() is None and self.terminal.read_some(0.05):
            pass
        self.assertNotIn("locker-secret", self.terminal.text)
        return self.terminal.text

    def cancel(self, job):
        os.killpg(job.pid, signal.SIGTERM)


class GitHub(Job, RemoteCase):
    """A step 'run:': a file for 'bash -e'. Only the process of bash gets a signal, SIGINT."""

    OWNER = "github-actions-run-812"
    URL = "https://github.example/shop/api/actions/runs/812"
    VARIABLES = {"GITHUB_ACTIONS": "true", "GITHUB_RUN_ID": "812", "GITHUB_SERVER_URL": "https://github.example", "GITHUB_REPOSITORY": "shop/api"}

    def begin(self):
        page = (ROOT / "docs/jobs/github-actions.md").read_text(encoding="utf-8")
        (workflow,) = re.findall(r"^```yaml\n# .github/workflows/deploy.yml\n(.*?)^```$", page, re.M | re.S)
        (self.dir / ".github/workflows").mkdir(parents=True)
        (self.dir / ".github/workflows/deploy.yml").write_text(workflow, encoding="utf-8")
        done = subprocess.run([npm_tool("action-validator"), ".github/workflows/deploy.yml"], cwd=self.dir, env=self.env, capture_output=True, check=False)
        self.assertEqual(done.returncode, 0, done)
        _, step = yaml.safe_load(workflow)["jobs"]["deploy"]["steps"]
        (self.dir / "step.sh").write_text(step["run"], encoding="utf-8")
        return self.popen(["bash", "-e", self.path("step.sh")], env=self.variables(), start_new_session=True)

    def cancel(self, job):
        job.send_signal(signal.SIGINT)

    def test_the_action_is_one_by_the_schema(self):
        action = ROOT / "deploy/github-action/action.yml"
        for text, code in ((action.read_text(encoding="utf-8"), 0), (action.read_text(encoding="utf-8").replace("\nruns:", "\nrun:"), 1)):
            (self.dir / "action.yml").write_text(text, encoding="utf-8")
            done = subprocess.run([npm_tool("action-validator"), "action.yml"], cwd=self.dir, env=self.env, capture_output=True, check=False)
            self.assertEqual(done.returncode, code, done)


if __name__ == "__main__":
    main()
