"""Helpers for the tests of deployment state, on files and on S3."""

import json
import random
import re
import signal
import time
from pathlib import Path

from run_support import RunCase
from support import ROOT

WHERE = ("--stack", "shop", "--environment", "prod")


def example():
    """The example state of docs/state.md."""
    text = (ROOT / "test" / "cli" / "example-state.json").read_text(encoding="utf-8")
    return text, json.loads(text)


def stop_between_writes(process):
    """A process that is stopped inside a transaction locks the SQLite file: no other process could deploy."""
    for _ in range(1000):
        process.send_signal(signal.SIGSTOP)
        while "State:\tT" not in Path(f"/proc/{process.pid}/status").read_text(encoding="ascii"):
            time.sleep(0.001)
        if f" WRITE {process.pid} " not in Path("/proc/locks").read_text(encoding="ascii"):
            return
        process.send_signal(signal.SIGCONT)
        time.sleep(0.01)
    raise AssertionError("it writes all the time")


class StateCase(RunCase):
    def setUp(self):
        super().setUp()
        self.env["TMPDIR"] = str(self.dir)

    def write(self, name, content):
        path = self.dir / name
        path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
        return str(path)

    def based(self, content):
        """The content with the serial of the stored state, as if it had been loaded and changed."""
        now = self.belay("state", "load", *WHERE)
        if now.code != 0:
            return content
        return {**content, "metadata": {"serial": now.json()["metadata"]["serial"], **content.get("metadata", {})}}

    def save(self, content, *args):
        content = content if isinstance(content, str) else self.based(content)
        return self.ok("state", "save", "--json", *WHERE, *args, self.write("in.json", content)).json()

    def load(self, *args):
        return self.ok("state", "load", *WHERE, *args).json()

    def verify(self, *args):
        return self.ok("state", "verify", *WHERE, *args)

    def history(self):
        return self.ok("state", "history", "--json", *WHERE).json()

    def kept(self, result_or_text):
        """The unsaved state, from the path in the message."""
        text = result_or_text if isinstance(result_or_text, str) else result_or_text.err
        path = re.search(r"is kept in (\S+)", text)
        self.assertIsNotNone(path, text)
        return Path(path[1]).read_text(encoding="utf-8")

    # ---- the test that everything else is for (L2, S4.3) ------------------------------

    def paused_holder(self):
        """A is stopped until its lease has expired; B deploys; A continues and must change nothing."""
        self.save({"outputs": {"by": "start"}})
        script = 'echo \'{"outputs":{"by":"A"}}\' >"$BELAY_STATE_OUT"; echo $$ >a.pid; while [ ! -e go ]; do sleep 0.02; done'
        a = self.start("deploy", *WHERE, "--triggered-by", "holder-a", "--ttl", "2s", "--", "sh", "-c", script)
        self.pid_in("a.pid")
        stop_between_writes(a)
        out = '{"outputs":{"by":"B"}}'
        b = self.ok("deploy", *WHERE, "--triggered-by", "holder-b", "--wait", "60s", "--", "sh", "-c",
                    f"echo '{out}' >\"$BELAY_STATE_OUT\"")
        self.assertEqual(b.code, 0)
        before = self.load()
        (self.dir / "go").touch()
        a.send_signal(signal.SIGCONT)
        err = a.communicate(timeout=60)[1]
        self.assertEqual(a.returncode, 76, err)
        # A server refuses the lock before it reads the state, and names the holder by its id.
        self.assertIn("not the holder" if self.store.startswith("http") else "holder-b", err)
        self.assertEqual(json.loads(self.kept(err))["outputs"]["by"], "A")
        self.assertEqual(self.load(), before)
        self.assertEqual(before["outputs"]["by"], "B")
        self.verify()

    # ---- kill -9 at any moment (S4.8: nothing that was acknowledged is lost) -----------

    def kill_rounds(self, rounds, seed):
        chance = random.Random(seed)
        config = self.write("keep.yaml", f"state: {{keep_snapshots: {3 * rounds + 10}}}\n")
        (self.dir / "keep.yaml").chmod(0o600)
        self.env["BELAY_CONFIG"] = config
        self.save({"outputs": {"n": 0}})
        times = []
        for _ in range(5):
            began = time.monotonic()
            self.save({"outputs": {"n": 0}})
            times.append(time.monotonic() - began)
        usual = min(times)
        acknowledged, tried = [0], [0]
        for n in range(1, rounds + 1):
            what = ("save", "save", "backup", "restore")[n % 4]
            args = {"save": ("save", *WHERE, self.write("n.json", self.based({"outputs": {"n": n}}))), "backup": ("backup", *WHERE),
                    "restore": ("restore", *WHERE, "latest", "--yes")}[what]
            process = self.start("state", *args)
            if n % 5 != 0:  # these may end by themselves
                time.sleep(chance.random() * usual * 1.3)  # the moment is the point of the test
                process.kill()
            code = process.wait()
            self.end(process)
            self.assertIn(code, (0, -9), f"seed {seed}, round {n}: {what}")
            if what == "save":
                tried.append(n)
                if code == 0:
                    acknowledged.append(n)
            self.belay("unlock", *WHERE, "--force", "--yes")
            self.assertEqual(self.belay("state", "verify", *WHERE).code, 0, f"seed {seed}, round {n}: {what}")
            got = self.load()["outputs"]["n"]
            self.assertIn(got, tried, f"seed {seed}, round {n}")
            self.assertGreaterEqual(got, acknowledged[-1], f"seed {seed}, round {n}: an acknowledged save is lost")
        self.save({"outputs": {"n": rounds + 1}})  # mends what the last one may have left
        self.assertGreater(len(acknowledged), 1)
        kept = set()
        for snapshot in self.history()["snapshots"]:
            self.verify("--snapshot", snapshot["name"])
            kept.add(self.load("--snapshot", snapshot["name"])["outputs"]["n"])
        self.assertLessEqual(set(acknowledged), kept, f"seed {seed}")
        print(f"{rounds} rounds, {len(tried) - 1} saves, {len(acknowledged) - 1} acknowledged, seed {seed}")
