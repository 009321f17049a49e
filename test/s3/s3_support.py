"""Helpers for tests of deployment state on S3."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "test" / "cli"), str(ROOT / "test" / "server")]

from state_support import StateCase  # noqa: E402  (after the path is known)


class S3Server:
    def __init__(self, *args):
        self.process = subprocess.Popen([str(ROOT / "tools" / "s3-server"), *args], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)
        self.port = int(self.process.stdout.readline())

    def stop(self):
        self.process.stdin.close()
        self.process.wait(60)
        self.process.stdout.close()


def environment(port, number):
    """The settings for states on S3, separate for each test."""
    return {"AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_EC2_METADATA_DISABLED": "true", "AWS_REGION": "eu-west-1",
            "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY",
            "BELAY_STATE_STORE": f"s3://states/case-{number}?endpoint=http://127.0.0.1:{port}"}


class OnS3:
    """Before a test case: its states are on an S3 server of the class's own."""

    SERVER = ("conditions",)

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.s3 = S3Server(*cls.SERVER)
        cls.addClassCleanup(cls.s3.stop)
        cls.number = 0

    def make_store(self):
        super().make_store()
        type(self).number += 1
        self.env.update(environment(self.s3.port, self.number))


class S3Case(OnS3, StateCase):
    pass


def rounds():
    return int(os.environ.get("BELAY_KILL_ROUNDS") or 12)
