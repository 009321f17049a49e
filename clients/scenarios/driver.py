"""A driver: the process that plays one client of a scenario, in the client's language."""

import json
import signal
import subprocess
import threading
import time

PATIENCE = 60


class Driver:
    def __init__(self, name, command, directory, environment, trace):
        self.name = name
        self.trace = trace
        self.stderr_path = directory / f"{name}.stderr"
        self.changed = threading.Condition()
        self.sent = 0
        self.answers = []  # (moment, answer)
        self.losses = {}   # lock: moment
        self.is_over = False
        with open(self.stderr_path, "wb") as stderr:
            self.process = subprocess.Popen(command, cwd=directory, env=environment, stdin=subprocess.PIPE,
                                            stdout=subprocess.PIPE, stderr=stderr)

    def await_ready(self):
        hello = json.loads(self.process.stdout.readline() or b"{}")
        if "ready" not in hello:
            raise AssertionError(f"the driver of {self.name} does not start: {self.stderr()}")
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            moment = time.monotonic()
            self.trace(f"{self.name} > {line.decode(errors='replace').rstrip()}")
            try:
                answer = json.loads(line)
            except ValueError:
                answer = {"error": {"code": "driver", "message": f"not JSON: {line!r}"}}
            with self.changed:
                if answer.get("event") == "lost":
                    again = answer["lock"] in self.losses
                    self.losses[answer["lock"]] = moment
                    if again:
                        self.answers.append((moment, {"error": {"code": "driver", "message": f"told twice: {answer}"}}))
                else:
                    self.answers.append((moment, answer))
                self.changed.notify_all()
        with self.changed:
            self.is_over = True
            self.changed.notify_all()

    def send(self, request):
        """Returns a ticket for wait()."""
        line = json.dumps(request, ensure_ascii=False)
        self.trace(f"{self.name} < {line}")
        try:
            self.process.stdin.write(line.encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise AssertionError(f"the driver of {self.name} has ended: {self.stderr()}") from None
        self.sent += 1
        return self.sent - 1

    def wait(self, ticket, patience):
        """(moment, answer) of the request with this ticket."""
        with self.changed:
            self.changed.wait_for(lambda: len(self.answers) > ticket or self.is_over, patience)
            if len(self.answers) > ticket:
                return self.answers[ticket]
            raise AssertionError(f"the driver of {self.name} has ended: {self.stderr()}" if self.is_over
                                 else f"no answer of {self.name} within {patience} s")

    def wait_for_loss(self, lock, patience):
        with self.changed:
            if not self.changed.wait_for(lambda: lock in self.losses or self.is_over, patience) or self.is_over:
                raise AssertionError(f"{self.name} was not told of the loss of '{lock}' within {patience} s")
            return self.losses[lock]

    def stderr(self):
        return self.stderr_path.read_text(errors="replace")

    def end(self):
        """It exits by itself when its input ends; returns what is wrong if it does not."""
        self.process.send_signal(signal.SIGCONT)
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            pass
        try:
            status = self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            return f"the driver of {self.name} does not exit when its input ends"
        return f"the driver of {self.name} ended with {status}: {self.stderr()}" if status != 0 else None
