"""States of 100 MB, on files, from the command line and through a server: in less than 1 GB of memory, and others are
served meanwhile (issue 6, Deliver 2). BELAY_LARGE_MB: another size. With the release build: sanitizers need more memory.
"""

import os
import resource
import threading

from server_support import ServerCase, main

MEGABYTES = int(os.environ.get("BELAY_LARGE_MB") or 100)
GIGABYTE_KB = 1 << 20
WHERE = ("--stack", "shop", "--environment", "prod")
KEY = "stack:shop:env:prod"


def resources():
    """About a kilobyte each, as a deployer has them."""
    one = ", ".join(f'"attribute_{n}": "arn:aws:ecs:eu-west-1:123456789012:service/{n}"' for n in range(16))
    return ",\n".join(f'    "service-{n}": {{"kind": "MicroService", {one}}}' for n in range(MEGABYTES * 1000000 // (len(one) + 50)))


def state(serial=0):
    return f'{{"metadata": {{"serial": {serial}}}, "resources": {{\n' + resources() + '\n}, "outputs": {"n": 1}}\n'


class Large(ServerCase):
    def peak_kb(self, process):
        """Of a process that runs."""
        with open(f"/proc/{process.pid}/status", encoding="utf-8") as lines:
            return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))

    def in_one_gigabyte(self, *args):
        """It ends well although it can have no more."""
        limit = (GIGABYTE_KB << 10, GIGABYTE_KB << 10)
        process = self.start("state", *args, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, limit))
        while process.stdout.read(1 << 20):
            pass
        err = process.stderr.read()
        self.assertEqual(process.wait(), 0, err)

    def test_the_command_line_saves_verifies_loads_and_restores_it(self):
        (self.dir / "large.json").write_text(state())
        (self.dir / "next.json").write_text(state(1))
        first, second = str(self.dir / "large.json"), str(self.dir / "next.json")
        for args in (("save", *WHERE, first), ("save", *WHERE, second), ("verify", *WHERE), ("load", *WHERE),
                     ("restore", *WHERE, "1", "--yes"), ("history", *WHERE)):
            self.in_one_gigabyte(*args)

    def test_a_terminal_shows_progress(self):
        (self.dir / "large.json").write_text(state())
        terminal = self.terminal("state", "save", *WHERE, str(self.dir / "large.json"))
        terminal.expect(f"of {len(state()) >> 20} MB" if MEGABYTES >= 100 else "MB")
        self.assertEqual(terminal.finish(), 0)

    def meanwhile(self, server, done):
        """How many locks others take and release until it is done."""
        n = 0
        while not done.is_set():
            taken = server.acquire(f"job-{n}")
            self.assertEqual(taken.status, 200)
            self.assertEqual(server.release(f"job-{n}", taken.json()["lock_id"]).status, 200)
            n += 1
        return n

    def write(self, server, *call, **more):
        """The answer, and how many pairs others got meanwhile."""
        done, answers = threading.Event(), []

        def ask():
            answers.append(server.call(*call, check=False, **more))
            done.set()
        thread = threading.Thread(target=ask)
        thread.start()
        pairs = self.meanwhile(server, done)
        thread.join()
        return answers[0], pairs

    def test_a_server_takes_a_state_and_serves_others_meanwhile(self):
        server, text = self.serve(), state()
        self.assertEqual(server.acquire(KEY, "me", lock_id="l1", ttl_ms=600000).status, 200)
        path = "/v1/state/shop/prod"
        answer, first = self.write(server, "PUT", f"{path}?lock_id=l1", text, headers={"If-None-Match": "*"})
        self.assertEqual(answer.status, 200, answer)
        answer, second = self.write(server, "PUT", f"{path}?lock_id=l1", text, headers={"If-Match": answer.json()["etag"]})
        self.assertEqual((answer.status, answer.json()["serial"]), (200, 2))
        got = server.get(path, check=False)
        self.assertEqual((got.headers["ETag"], got.json()["outputs"]), (answer.json()["etag"], {"n": 1}))
        self.assertGreater(min(first, second), 10, "locks were served meanwhile")
        self.assertLess(self.peak_kb(server.process), GIGABYTE_KB)
        print(f"pairs meanwhile: {first}, {second}; peak {self.peak_kb(server.process) >> 10} MB")

    def test_a_server_takes_terraforms_and_serves_others_meanwhile(self):
        server = self.serve()
        text = '{"version": 4, "serial": 1, "resources": {\n' + resources() + "\n}}\n"
        server.call("LOCK", "/v1/terraform/net", {"ID": "id-1"})
        pairs = []
        for serial in (1, 2):
            sent = text.replace('"serial": 1', f'"serial": {serial}', 1)
            answer, n = self.write(server, "POST", "/v1/terraform/net?ID=id-1", sent)
            self.assertEqual(answer.status, 200, answer)
            self.assertEqual(server.get("/v1/terraform/net", check=False).body, sent.encode())
            pairs.append(n)
        self.assertGreater(min(pairs), 10, "locks were served meanwhile")
        self.assertLess(self.peak_kb(server.process), GIGABYTE_KB)
        print(f"pairs meanwhile: {pairs}; peak {self.peak_kb(server.process) >> 10} MB")


if __name__ == "__main__":
    main()
