"""
Nobody hears of a lock before it is on disk: neither who asked for it nor a webhook. The disk is made slow on purpose: a
library of ours, loaded before the C library, lets a sync wait at a gate.
"""

import subprocess
import time
from pathlib import Path

from hook_support import Receiver
from server_support import ServerCase, main, wait_until

GATE = r"""
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Only the journal's: what is written down of webhooks may go first. */
static int is_journal(int fd)
{
    char link[64], path[4096];
    ssize_t n;

    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    n = readlink(link, path, sizeof path - 1);
    path[n < 0 ? 0 : n] = 0;
    return strstr(path, "-ledger-") != NULL;
}

/* While the file that BELAY_GATE names is there, a sync says so beside it, and waits. */
static void wait_at_gate(int fd)
{
    const char *gate = getenv("BELAY_GATE");
    const char *at = getenv("BELAY_GATE_AT");

    while (gate != NULL && at != NULL && is_journal(fd) && access(gate, F_OK) == 0) {
        close(open(at, O_CREAT | O_WRONLY, 0600));
        usleep(2000);
    }
}

int fdatasync(int fd)
{
    wait_at_gate(fd);
    return (int)syscall(SYS_fdatasync, fd);
}

/* Writes and syncs: the gate is before both, and nothing is on disk while it is closed. */
long pwritev2(int fd, const void *pieces, int n, long at, int flags)
{
    wait_at_gate(fd);
    return syscall(SYS_pwritev2, fd, pieces, n, at, 0L, flags);
}

long pwritev64v2(int fd, const void *pieces, int n, long at, int flags)
{
    return pwritev2(fd, pieces, n, at, flags);
}
"""
QUIET_S = 1.0  # how long nothing is heard


class Gate(ServerCase):
    def setUp(self):
        super().setUp()
        source, library = self.dir / "gate.c", self.dir / "gate.so"
        source.write_text(GATE, encoding="ascii")
        subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
        self.gate, self.at = Path(self.dir / "gate"), Path(self.dir / "gate-at")
        options = "verify_asan_link_order=0:" + self.env.get("ASAN_OPTIONS", "")
        self.addCleanup(lambda: self.gate.unlink(missing_ok=True))
        self.server = self.serve(config=self.write_config('server: {webhooks: {allow: ["127.0.0.1"]}}\n'), env={
            "LD_PRELOAD": str(library), "BELAY_GATE": str(self.gate), "BELAY_GATE_AT": str(self.at), "ASAN_OPTIONS": options})

    def close_gate(self):
        self.at.unlink(missing_ok=True)
        self.gate.touch()

    def is_at_gate(self):
        """It has done what was asked for, in memory, and is about to have it on disk."""
        wait_until(self.at.exists, "a sync to begin")
        time.sleep(QUIET_S)  # what is not to come cannot be waited for otherwise

    def test_an_acquisition_is_on_disk_before_it_is_answered(self):
        self.server.acquire("warm")
        self.close_gate()
        later = self.server.acquire_later("k", "me")
        self.is_at_gate()
        self.assertFalse(later.is_there(), "it was answered before it was on disk")
        self.gate.unlink()
        self.assertEqual(later.get().status, 200)

    def test_a_webhook_is_not_called_before_its_lock_is_on_disk(self):
        """For the one whose turn comes, and for one that finds the lock free."""
        receiver = Receiver(self)
        hook = {"ttl_ms": 60000, "wait_ms": 60000, "webhook": {"url": receiver.url}}
        lock = self.server.acquire("k", "holder", ttl_ms=60000).json()
        self.assertEqual(self.server.acquire("k", "bot", **hook).status, 202)
        self.close_gate()
        later = self.server.acquire_later("free", "bot", **hook)
        self.is_at_gate()
        self.assertEqual(receiver.n, 0, "it was called for a lock that is not on disk")
        self.gate.unlink()
        self.assertEqual((receiver.lock()["key"], later.get().status), ("free", 202))
        self.close_gate()
        connection = self.server.connect()
        connection.request("POST", "/v1/locks/k/release", '{"lock_id":"%s"}' % lock["lock_id"])
        self.is_at_gate()
        self.assertEqual(receiver.n, 1, "it was called for a lock that is not on disk")
        self.gate.unlink()
        self.assertEqual(receiver.lock()["key"], "k")
        self.assertEqual(connection.getresponse().status, 200)
        connection.close()


if __name__ == "__main__":
    main()
