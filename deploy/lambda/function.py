"""AWS Lambda functions that hold a belay lock, with the layer of `make package` (docs/install.md).

run_command: the work is a program; any store. belay ends the program if the lease is lost.
with_client: the work is Python; BELAY_STORE names a belay server.

Set BELAY_STORE, as dynamodb:belay-locks or https://locks.example.com:7420, and for a server BELAY_AUTH_TOKEN.
"""
import os
import subprocess

import belay

# A sandbox that is frozen or killed renews nothing: a short lease is free again soon.
TTL = "30s"
# Left for the release, and for the error, before Lambda ends the function.
RESERVE_MS = 3000


def time_for_work(context):
    return max(context.get_remaining_time_in_millis() - RESERVE_MS, 1000)


def run_command(event, context):
    """event: {"key": "deploy-api", "command": ["./deploy.sh"]}"""
    done = subprocess.run(["belay", "run", "--ttl", TTL, "--wait", f"{time_for_work(context) // 2}ms", event["key"], "--", *event["command"]],
                          timeout=time_for_work(context) / 1000, text=True, capture_output=True, check=False)
    if done.returncode == 75:
        return {"locked": False, "message": done.stderr}
    if done.returncode != 0:
        raise RuntimeError(f"exit code {done.returncode}: {done.stderr}")
    return {"locked": True, "output": done.stdout}


def with_client(event, context):
    """event: {"key": "deploy-api"}"""
    try:
        with belay.connect(os.environ["BELAY_STORE"]).lock(event["key"], ttl=TTL, wait=f"{time_for_work(context) // 2}ms") as lock:
            # The work. Send the token with every write, and look before a dangerous one.
            lock.check()
            return {"locked": True, "token": lock.token}
    except belay.LockHeld as error:
        return {"locked": False, "message": str(error)}
