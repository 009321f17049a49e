"""A server with states on S3: the same behaviour as on files, and a slow S3 delays no other client (issue 6)."""

import tempfile
import threading
from pathlib import Path

from s3_support import OnS3  # first: it sets the module path
import test_state_http
import test_terraform
from server_support import ServerCase, main, wait_until


class StateOverHttpOnS3(OnS3, test_state_http.StateOverHttp):
    """The paused holder is among them."""

    # These spoil a file.
    test_a_damaged_state_is_named = None
    test_the_history_can_be_limited_to_the_last_deployments = None


class TerraformOnS3(OnS3, test_terraform.Protocol):
    pass


class SlowS3(OnS3, ServerCase):
    """A gate in front of S3: requests wait until the test opens it."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="belay-gate-")
        cls.addClassCleanup(folder.cleanup)
        cls.gate = Path(folder.name) / "gate"
        cls.SERVER = ("conditions", "--gate", str(cls.gate))
        super().setUpClass()

    def setUp(self):
        super().setUp()
        self.server = self.serve()
        self.addCleanup(self.gate.unlink, missing_ok=True)

    def in_background(self, *call):
        """The request, and the answer once it is there."""
        answers = []
        thread = threading.Thread(target=lambda: answers.append(self.server.call(*call, check=False)))
        thread.start()
        self.addCleanup(thread.join, 60)
        return thread, answers

    def waiting(self):
        path = self.gate.with_name(self.gate.name + ".waiting")
        return int(path.read_text() or 0) if path.exists() else 0

    def test_locks_are_served_while_s3_keeps_reads_and_writes_waiting(self):
        self.assertEqual(self.server.call("LOCK", "/v1/terraform/net", test_terraform.lock_info("id-1")).status, 200)
        before = self.waiting()
        self.gate.touch()
        calls = [("POST", "/v1/terraform/net?ID=id-1", test_terraform.STATE), ("GET", "/v1/state/shop/prod"),
                 *[("GET", f"/v1/terraform/other-{n}") for n in range(10)]]
        asked = [self.in_background(*call) for call in calls]
        wait_until(lambda: self.waiting() >= before + len(calls), "all to be at the gate")
        for n in range(50):
            taken = self.server.acquire(f"job-{n}")
            self.assertEqual(taken.status, 200)
            self.assertEqual(self.server.release(f"job-{n}", taken.json()["lock_id"]).status, 200)
        self.assertEqual(self.server.get("/healthz").status, 200)
        self.assertEqual([answers for _, answers in asked], [[]] * len(calls), "S3 has answered nobody yet")
        self.gate.unlink()
        for thread, _ in asked:
            thread.join(60)
        self.assertEqual([answers[0].status for _, answers in asked], [200] + [404] * 11)
        self.assertEqual(self.server.get("/v1/terraform/net").json(), test_terraform.STATE)


class NoS3(ServerCase):
    def test_a_server_without_its_s3_reports_it_and_serves_locks(self):
        server = self.serve("--state-store", "s3://states/x?endpoint=http://127.0.0.1:9",
                            env={"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_REGION": "eu-west-1"})
        answer = server.get("/v1/terraform/net")
        self.assertEqual(answer.status, 503, answer)
        self.assertIn("127.0.0.1:9", answer.error["message"])
        self.assertEqual(server.acquire("job").status, 200)


if __name__ == "__main__":
    main()
