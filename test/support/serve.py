#!/usr/bin/env python3
"""A `belay serve` for a test in C: prints its port, and ends when its standard input is closed.

    serve.py BELAY DIRECTORY sqlite|dynamodb|URL

It uses DIRECTORY/locks.db, its own table in DynamoDB Local, or that store.
"""
import json
import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [os.path.join(ROOT, "test", "dynamodb")]


def table():
    """The URL of a new table, and what it takes to reach it."""
    from dynamo_support import CREDENTIALS, REGION, Database, server_port
    name = f"locks-api-{os.getpid()}"
    port = server_port()
    Database(port).create(name)
    return f"dynamodb:{name}?region={REGION}&endpoint=http://127.0.0.1:{port}&max_clock_skew=10ms", CREDENTIALS


def main():
    program, directory, kind = sys.argv[1:]
    url, env = table() if kind == "dynamodb" else (f"sqlite:{directory}/locks.db" if kind == "sqlite" else kind, {})
    env = {**os.environ, **env, "HOME": directory, "XDG_CONFIG_HOME": directory, "XDG_STATE_HOME": directory}
    server = subprocess.Popen([program, "serve", "--json", "--listen", "127.0.0.1:0", "--store", url], env=env, cwd=directory,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        print(json.loads(server.stdout.readline())["listening"][0].rsplit(":", 1)[1], flush=True)
        sys.stdin.read()
    finally:
        server.terminate()
        server.wait(30)


if __name__ == "__main__":
    main()
