"""Random rounds of stops, starts and crashes (S3.6): the database is never stopped under an application that is up.

Three applications, each with its own life, at the same time. BELAY_SHARED_DB_ROUNDS says how many rounds in all (24 by
default; 1,000 were run for the issue), BELAY_SHARED_DB_SEED replays the choices of one run.
"""

import os
import random
import signal
import threading
import time

from shared_db_support import SHORT_TTL, STORE, GuardCase, main

ROUNDS = int(os.environ.get("BELAY_SHARED_DB_ROUNDS", "24"))
SEED = int(os.environ.get("BELAY_SHARED_DB_SEED", str(time.time_ns() % 1000000)))


class Rounds(GuardCase):
    CONTROLLER = {"lock_ttl_seconds": SHORT_TTL, "quick_status_timeout": 2}
    NAMES = ("a", "b", "c")

    def wrong(self, text):
        with self.mutex:
            self.faults.append(text)

    def go_down(self, name, rng):
        (self.dir / "up" / name).unlink(missing_ok=True)
        application = self.applications[name]
        if rng.random() < 0.5:
            application.down()
        else:
            application.up(503)

    def stop_app(self, name, rng):
        self.go_down(name, rng)
        wait = rng.choice([[], ["--wait", "1s"], ["--wait", "5s"]])
        result = self.belay("db", "stop", "--app", name, *wait, env={"STOPPING": name})
        if result.code not in (0, 75):
            self.wrong(f"stop of {name}: {result}")
        self.count(f"stop {result.code}")

    def start_app(self, name, rng):
        application = self.applications[name]
        if (self.dir / "up" / name).exists():
            return
        application.down()  # no answer while it starts
        result = self.belay("db", "start", "--app", name, "--wait", "30s")
        self.count(f"start {result.code}")
        if result.code != 0:
            if result.code != 75:
                self.wrong(f"start of {name}: {result}")
            return
        if not self.running():
            self.wrong(f"the start of {name} was done, and the database does not run")
        (self.dir / "up" / name).touch()
        application.up(200)

    def crash(self, name, rng):
        verb = rng.choice(["stop", "stop", "start"])
        if verb == "stop":
            self.go_down(name, rng)
        elif (self.dir / "up" / name).exists():
            return
        process = self.start("db", verb, "--app", name, "--wait", "5s", env={"STOPPING": name})
        time.sleep(rng.random() * 0.15)
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        self.count(f"crashed {verb}")

    def count(self, what):
        with self.mutex:
            self.counts[what] = self.counts.get(what, 0) + 1

    def has_stopped(self):
        return any(line.startswith("stop ") for line in self.log())

    def live(self, name):
        """Some more rounds if chance had it that nothing was stopped."""
        rng = random.Random(f"{SEED}-{name}")
        rounds = ROUNDS // len(self.NAMES) + 1
        for n in range(4 * rounds):
            if self.faults or (n >= rounds and self.has_stopped()):
                return
            rng.choice([self.stop_app, self.stop_app, self.start_app, self.start_app, self.crash])(name, rng)
            if (self.dir / "up" / name).exists() and not self.running():
                self.wrong(f"{name} is up and its database does not run")

    def test_it_is_never_stopped_while_another_is_up_and_is_stopped_once_all_are_down(self):
        self.mutex, self.faults, self.counts = threading.Lock(), [], {}
        (self.dir / "slow").write_text("0.02")
        for name in self.NAMES:
            self.application(name).down()
            self.ok("app", "mark-stopped", name)
        threads = [threading.Thread(target=self.live, args=(name,)) for name in self.NAMES]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for line in self.log():
            if line.startswith("stop"):
                asked = line.split("asked=")[1].split()[0]
                others = [up for up in line.split("up=")[1].split(",") if up and up != asked]
                if others:
                    self.faults.append(line)
        self.assertEqual(self.faults, [], f"seed {SEED}, {STORE}, {self.counts}")
        # The next stop, once all are down, stops it.
        self.run_database()
        for name in self.NAMES:
            self.go_down(name, random.Random(SEED))
            self.ok("app", "mark-stopped", name)
        result = self.belay("db", "stop", "--app", "a", "--wait", "60s", "--json")
        self.assertEqual(result.code, 0, f"seed {SEED}: {result}")
        self.assertEqual(result.json()["results"][0]["action"], "stopped", result)
        self.assertFalse(self.running())
        stops = len([line for line in self.log() if line.startswith("stop ")])
        self.assertGreater(stops, 1, f"nothing was tried: {self.counts}")
        print(f"\n{ROUNDS} rounds on {STORE}, seed {SEED}: {self.counts}, {stops} stop actions")


class Together(GuardCase):
    """All go down at about the same time, each with its own stop: the database ends stopped if and only if all are down."""

    CONTROLLER = {"lock_ttl_seconds": 30, "quick_status_timeout": 5}
    NAMES = ("a", "b", "c")
    ROUNDS = max(4, ROUNDS // 6)

    def leave(self, name, rng, results):
        application = self.applications[name]
        application.delay = rng.choice([0, 0.3, 2, 3])  # a pending request is still answered, late
        time.sleep(rng.random())
        (self.dir / "up" / name).unlink()
        if rng.random() < 0.7:
            application.down()
        else:
            application.up(503)
        results[name] = self.belay("db", "stop", "--app", name, env={"STOPPING": name})

    def come(self, name):
        self.applications[name].delay = 0
        self.applications[name].up(200)
        (self.dir / "up" / name).touch()
        self.ok("app", "mark-running", name)

    def test_it_ends_stopped_if_and_only_if_all_are_down(self):
        rng = random.Random(SEED)
        for name in self.NAMES:
            self.application(name)
        for round_number in range(self.ROUNDS):
            for name in self.NAMES:
                self.come(name)
            self.run_database()
            leaving = self.NAMES if rng.random() < 0.75 else rng.sample(self.NAMES, 2)
            results = {}
            threads = [threading.Thread(target=self.leave, args=(name, random.Random(f"{SEED}-{round_number}-{name}"), results))
                       for name in leaving]
            before = len(self.log())
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            stops = [line for line in self.log()[before:] if line.startswith("stop ")]
            where = f"seed {SEED}, round {round_number}, {STORE}, {leaving}: {results}"
            self.assertEqual(self.running(), len(leaving) < len(self.NAMES), where)
            self.assertEqual(len(stops), int(len(leaving) == len(self.NAMES)), where)
            self.assertEqual([line for line in stops if not line.endswith("up=")], [], where)
            self.assertLessEqual({result.code for result in results.values()}, {0, 75}, where)


if __name__ == "__main__":
    main()
