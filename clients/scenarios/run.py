#!/usr/bin/env python3
"""Play the scenarios with the driver of a language against a real `belay serve`, and end on `N passed, N failed`.

    run.py python [NAME …]     the scenarios with these names; all of them without a name
    run.py --list              their names

README.md describes the scenarios and what a driver does. BELAY_BIN names the program that serves.
"""
import argparse
import concurrent.futures
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from play import Play
from server import ROOT, belay_program

HERE = Path(__file__).resolve().parent
CLIENTS = HERE.parent


def build_go():
    """Offline, and with nothing left in $HOME."""
    folder = ROOT / "build/go"
    folder.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "GOCACHE": f"{folder}/cache", "GOPATH": f"{folder}/path", "GOPROXY": "off", "GOENV": "off",
                   "GOTOOLCHAIN": "local", "GOFLAGS": ""}
    subprocess.run(["go", "build", "-o", f"{folder}/driver", "./cmd/driver"], cwd=CLIENTS / "go", env=environment, check=True)
    return [f"{folder}/driver"]


LANGUAGES = {
    "python": lambda: [sys.executable, "-B", str(CLIENTS / "python/driver.py")],
    "python-asyncio": lambda: [sys.executable, "-B", str(CLIENTS / "python/driver.py"), "--asyncio"],
    "node": lambda: ["node", str(CLIENTS / "node/driver.mjs")],
    "go": build_go,
}


def load():
    found = {}
    for path in sorted(HERE.glob("*.json")):
        for name, scenario in json.loads(path.read_text(encoding="utf-8")).items():
            if name in found:
                raise SystemExit(f"run.py: two scenarios are named '{name}'")
            found[name] = scenario
    return found


def play(name, scenario, command, is_verbose):
    """(seconds, what went wrong or None)"""
    began = time.monotonic()
    lines = []

    def trace(line):
        lines.append(f"  {time.monotonic() - began:7.3f} {line}")
        if is_verbose:
            print(f"{name}: {lines[-1].strip()}", flush=True)

    with tempfile.TemporaryDirectory(prefix="belay-") as directory:
        try:
            player = Play(scenario, command, Path(directory), trace)
            player.run()
            wrong = None
        except Exception as error:  # a mistake in a scenario is a failure of that scenario only
            logs = "".join(f"\n  --- {path.name}\n{path.read_text(errors='replace')[-3000:]}"
                           for path in sorted(Path(directory).glob("*.stderr")) + [Path(directory, "server.log")]
                           if path.exists() and path.stat().st_size > 0)
            text = str(error) if isinstance(error, AssertionError) else f"{type(error).__name__}: {error}"
            wrong = f"{scenario.get('what')}\n  {text}\n" + "\n".join(lines[-60:]) + logs
    return time.monotonic() - began, wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("language", nargs="?", choices=LANGUAGES)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("-v", dest="is_verbose", action="store_true", help="show every line that is exchanged")
    parser.add_argument("-j", dest="jobs", type=int, default=2 * (os.cpu_count() or 1), help="how many at a time")
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    scenarios = load()
    if options.list:
        print("\n".join(f"{name:28} {scenario['what']}" for name, scenario in scenarios.items()))
        return 0
    unknown = [name for name in options.names if name not in scenarios]
    if options.language is None or unknown:
        parser.error(f"no scenario is named {', '.join(unknown)}" if unknown else "name a language")
    if not os.access(belay_program(), os.X_OK):
        parser.error(f"there is no {belay_program()}: run make, or set BELAY_BIN")
    command = LANGUAGES[options.language]()
    chosen = {name: scenarios[name] for name in options.names or scenarios}
    failed = 0
    printing = threading.Lock()

    def one(name):
        took, wrong = play(name, chosen[name], command, options.is_verbose)
        with printing:
            print(f"{'FAIL' if wrong else 'ok  '}  {name:28} {took:6.1f} s" + (f"\n  {wrong}" if wrong else ""), flush=True)
        return wrong is not None

    # Those that wait for a lease to end first, so that the others fill the gaps.
    longest_first = sorted(chosen, key=lambda name: "sleep" not in str(chosen[name]) and "lost" not in str(chosen[name]))
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        failed = sum(pool.map(one, longest_first))
    print(f"{len(chosen) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
