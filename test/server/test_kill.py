"""
kill -9 of the server under load, 20 times: nothing that was acknowledged is lost, no token repeats, holders that renewed
in time keep their locks, and waiters that come back keep their place.
"""

import http.client
import threading
import time

from server_support import PATIENCE, ServerCase, main, wait_until

ROUNDS = 20
GONE = (OSError, http.client.HTTPException)


class Killed(ServerCase):
    def setUp(self):
        super().setUp()
        self.server = None  # the one that runs now
        self.faults = []  # observed violations
        self.over = threading.Event()
        self.held, self.released, self.tokens = {}, set(), []

    # ---- permanent clients ----

    def again(self, ask):
        """Ask whichever server there is until one answers; the answer, or None at the end of the test."""
        while not self.over.is_set():
            try:
                return ask(self.server)
            except GONE:
                time.sleep(0.01)
        return None

    def keep(self, lock):
        """A holder that renews in time."""
        while not self.over.is_set():
            answer = self.again(lambda server: server.renew("line", lock["lock_id"]))
            if answer is not None and (answer.status, answer.json().get("token")) != (200, lock["token"]):
                self.faults.append(f"a holder that renewed in time: {answer}")
                return
            self.over.wait(0.05)

    def wait_in_line(self, name, granted):
        """A waiter that comes back, with its id, after whatever happened."""
        while not self.over.is_set():
            answer = self.again(lambda server: server.acquire("line", name, wait_ms=5000, ttl_ms=60000, lock_id=name))
            if answer is None or answer.status == 200:
                granted.append((name, answer and answer.json()["token"]))
                return
            if (answer.status, answer.error["code"]) not in ((409, "lock_held"), (503, "shutting_down"), (503, "busy")):
                self.faults.append(f"a waiter: {answer}")
                return

    # ---- load ----

    def work(self, server, who):
        """Take locks, and give every second one back, until the server is gone."""
        connection = server.connect()
        for i in range(10000):
            key = f"k-{who}-{i}"
            try:
                lock = server.acquire(key, "me", connection=connection).json()
                self.held[key] = lock
                self.tokens.append(lock["token"])
                if i % 2:
                    del self.held[key]
                    server.post(f"/v1/locks/{key}/release", {"lock_id": lock["lock_id"]}, connection=connection)
                    self.released.add(key)
            except GONE:
                return

    def kill_under_load(self, round_):
        server = self.server
        threads = [threading.Thread(target=self.work, args=(server, f"{round_}-{n}")) for n in range(4)]
        before = len(self.tokens)
        for thread in threads:
            thread.start()
        wait_until(lambda: len(self.tokens) >= before + 20, "some locks to be taken")
        server.process.kill()
        server.process.wait()
        for thread in threads:
            thread.join()
        self.server = self.serve()

    def check_load(self):
        """Everything that was acknowledged is as it was acknowledged."""
        server = self.server
        self.assertEqual(len(self.tokens), len(set(self.tokens)), "a token was handed out twice")
        connection = server.connect()
        for key, lock in self.held.items():
            now = server.get(f"/v1/locks/{key}", connection=connection).json()
            self.assertEqual((now["status"], now["token"], now["lock_id"]), ("active", lock["token"], lock["lock_id"]))
        for key in self.released:
            self.assertEqual(server.get(f"/v1/locks/{key}", connection=connection).json()["status"], "released")
        self.assertGreater(server.acquire("new").json()["token"], max(self.tokens))

    def test_nothing_acknowledged_is_lost_and_every_client_keeps_its_lock(self):
        """L1, L2, L4, 'on disk before it is answered'."""
        self.server = self.serve()
        lock = self.server.acquire("line", "holder", ttl_ms=120000, lock_id="holder").json()
        names, granted = ["w0", "w1", "w2"], []
        threads = [threading.Thread(target=self.keep, args=(lock,), daemon=True)]
        threads += [threading.Thread(target=self.wait_in_line, args=(name, granted), daemon=True) for name in names]
        self.addCleanup(self.over.set)
        for n, thread in enumerate(threads):
            thread.start()
            if n > 0:
                self.server.wait_for_queue("line", names[:n])
        for round_ in range(ROUNDS):
            self.kill_under_load(round_)
            self.assertEqual(self.faults, [])
        self.check_load()
        wait_until(lambda: self.server.queue("line") == names, "all three to be back, each in its place")
        self.assertEqual(granted, [], "the holder renewed all the time")
        self.server.release("line", "holder")
        for n, name in enumerate(names):
            wait_until(lambda k=n: len(granted) > k, f"the turn of {name}", PATIENCE)
            self.assertEqual([one for one, _ in granted], names[:n + 1])
            self.server.release("line", name)
        tokens = [lock["token"], *(token for _, token in granted)]
        self.assertEqual(tokens, sorted(set(tokens)))


if __name__ == "__main__":
    main()
