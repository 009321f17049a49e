"""One deploy at a time: python3 deploy.py http://127.0.0.1:7420"""

import sys

import belay


def deploy(version: str, fence: int) -> None:
    print(f"deploying {version} with token {fence}")  # the receiver rejects a token lower than the highest it has seen


with belay.connect(sys.argv[1]).lock("deploy-api-prod", ttl="10m", wait="5m") as lock:
    for version in ("config", "schema", "api"):
        lock.check()  # LockLost, before the next step does harm
        deploy(version, fence=lock.token)
