"""Helpers for tests of deployment state on S3."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "test" / "cli"))

from state_support import StateCase  # noqa: E402  (after the path is known)


class S3Server:
    def __init__(self, *args):
        self.process = subprocess.Popen([str(ROOT / "tools" / "s3-server"), *args], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)
        self.port = int(self.process.stdout.readline())

    def stop(self):
        self.process.stdin.close()
        self.process.wait(30)
        self.process.stdout.close()


class S3Case(StateCase):
    SERVER = ("conditions",)

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.server = S3Server(*cls.SERVER)
        cls.addClassCleanup(cls.server.stop)
        cls.number = 0

    def setUp(self):
        super().setUp()
        type(self).number += 1
        self.env.update({"AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_EC2_METADATA_DISABLED": "true", "AWS_REGION": "eu-west-1",
                         "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY",
                         "BELAY_STATE_STORE": f"s3://states/case-{self.number}?endpoint=http://127.0.0.1:{self.server.port}"})


def rounds():
    return int(os.environ.get("BELAY_KILL_ROUNDS") or 12)
