"""
A lock is acknowledged, to its client and to a webhook, only after it is on disk. The disk is made slow on purpose: a
library of ours, loaded before the C library, lets a sync wait at a gate.
"""

import contextlib
import json
import os
import re
import subprocess
import time
from pathlib import Path

from webhook_support import Receiver
from server_support import PATIENCE, ServerCase, main, wait_until

GATE = r"""
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static int is_journal(int fd)
{
    char link[64], path[4096];
    ssize_t n;

    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    n = readlink(link, path, sizeof path - 1);
    path[n < 0 ? 0 : n] = 0;
    return strstr(path, "-ledger-") != NULL;
}

/*
 * While the file GATE exists, a sync creates the file GATE-at, and waits. The file
 * GATE-once lets one pass. False if GATE-bad exists: the sync fails.
 */
static int passes_gate(void)
{
    const char *gate = getenv("BELAY_GATE");
    char at[4096], once[4096], bad[4096];

    if (gate == NULL) {
        return 1;
    }
    snprintf(at, sizeof at, "%s-at", gate);
    snprintf(once, sizeof once, "%s-once", gate);
    snprintf(bad, sizeof bad, "%s-bad", gate);
    while (access(gate, F_OK) == 0 && unlink(once) != 0) {
        close(open(at, O_CREAT | O_WRONLY, 0600));
        usleep(2000);
    }
    errno = EIO;
    return access(bad, F_OK) != 0;
}

/* Webhook records may be synced first, and another thread extends the journal. */
int fdatasync(int fd)
{
    if (is_journal(fd) && gettid() == getpid() && !passes_gate()) {
        return -1;
    }
    return (int)syscall(SYS_fdatasync, fd);
}

ssize_t pwritev2(int fd, const struct iovec *pieces, int n, off_t at, int flags)
{
    if (is_journal(fd) && !passes_gate()) {
        return -1;
    }
    return syscall(SYS_pwritev2, fd, pieces, (long)n, (long)at, 0L, (long)flags);
}

ssize_t pwritev64v2(int fd, const struct iovec *pieces, int n, off_t at, int flags)
{
    return pwritev2(fd, pieces, n, at, flags);
}
"""
QUIET_S = 1.0  # how long to wait for silence
CROWD = 24  # enough for a sync in a thread, and few enough for one loop iteration


class Gate(ServerCase):
    def setUp(self):
        super().setUp()
        source, library = self.dir / "gate.c", self.dir / "gate.so"
        source.write_text(GATE, encoding="ascii")
        subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
        self.gate, self.at, self.once = (Path(self.dir / name) for name in ("gate", "gate-at", "gate-once"))
        options = "verify_asan_link_order=0:" + self.env.get("ASAN_OPTIONS", "")
        self.addCleanup(lambda: self.gate.unlink(missing_ok=True))
        self.server = self.serve(config=self.write_config('server: {webhooks: {allow: ["127.0.0.1"]}}\n'), env={
            "LD_PRELOAD": str(library), "BELAY_GATE": str(self.gate), "ASAN_OPTIONS": options})

        self.got = {}

    def close_gate(self):
        self.at.unlink(missing_ok=True)
        self.gate.touch()

    def let_one_pass(self):
        self.once.touch()
        wait_until(lambda: not self.once.exists(), "the sync to go on")
        self.at.unlink(missing_ok=True)  # a waiting sync creates it again

    def is_at_gate(self):
        """The request is done in memory, and its sync is about to begin."""
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

    def ask(self, connection, key):
        body = '{"lock_id":"id-of-%s","locked_by":"me"}' % key
        connection.sendall((f"POST /v1/locks/{key}/acquire HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
                            + body).encode())

    def answered(self, connection, wanted):
        """How many answers have come: at once, or when as many are there as are wanted."""
        connection.settimeout(0.1)
        deadline = time.monotonic() + (PATIENCE if wanted else 0)
        while True:
            with contextlib.suppress(TimeoutError):
                self.got[connection] = self.got.get(connection, b"") + connection.recv(65536)
            n = self.got.get(connection, b"").count(b"HTTP/1.1 200 ")
            if n >= wanted or time.monotonic() >= deadline:
                return n

    def connect(self, n):
        connections = [self.server.raw() for _ in range(n)]
        for i, connection in enumerate(connections):
            self.addCleanup(connection.close)
            self.ask(connection, f"warm-{len(self.got)}-{i}")
            self.assertEqual(self.answered(connection, 1), 1)
        return connections

    def sync_a_crowd(self, crowd):
        """A sync of all these requests is at the gate, and the loop continues."""
        [alone] = self.connect(1)
        self.close_gate()
        self.ask(alone, "alone")
        self.is_at_gate()  # and the loop with it: what is asked now is found all together
        for i, connection in enumerate(crowd):
            self.ask(connection, f"crowd-{i}")
        self.let_one_pass()
        self.assertEqual(self.answered(alone, 2), 2)
        self.is_at_gate()

    def test_a_request_during_a_sync_waits_for_the_next_sync(self):
        """
        With many who wait the loop goes on beside the sync: what it does meanwhile is not in it, and not told with it. That
        goes for the others' connections, too, on which more was asked.
        """
        crowd, [latecomer] = self.connect(CROWD), self.connect(1)
        self.sync_a_crowd(crowd)
        self.ask(latecomer, "late")
        self.ask(crowd[0], "more")
        time.sleep(QUIET_S)
        self.assertEqual([self.answered(one, 0) for one in crowd], [1] * len(crowd), "told before it was on disk")
        self.let_one_pass()
        self.assertEqual([self.answered(one, 2) for one in crowd[1:]], [2] * (len(crowd) - 1))
        self.is_at_gate()
        self.assertEqual(self.answered(latecomer, 0), 1, "told with the others' sync")
        self.assertLessEqual(self.answered(crowd[0], 0), 2, "told with the sync of what was asked before it")
        self.gate.unlink()
        self.assertEqual((self.answered(latecomer, 2), self.answered(crowd[0], 3)), (2, 3))

    def test_many_requests_during_a_sync_are_answered_after_their_own_sync(self):
        """Enough for a thread again: their sync begins before the first ones are answered."""
        crowd, next_crowd = self.connect(CROWD), self.connect(CROWD)
        self.sync_a_crowd(crowd)
        for i, connection in enumerate(next_crowd):
            self.ask(connection, f"next-{i}")
        time.sleep(QUIET_S)
        self.let_one_pass()
        self.assertEqual([self.answered(one, 2) for one in crowd], [2] * len(crowd))
        self.is_at_gate()
        self.assertEqual([self.answered(one, 0) for one in next_crowd], [1] * len(next_crowd), "told before it was on disk")
        self.gate.unlink()
        self.assertEqual([self.answered(one, 2) for one in next_crowd], [2] * len(next_crowd))

    def listen_while_one_sync_follows_another(self, path):
        """The listener; its events are checked before the gate opens for good."""
        crowds, [listener] = [self.connect(CROWD), self.connect(CROWD)], self.connect(1)
        listener.sendall(b"GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n" % path)
        self.assertEqual(self.answered(listener, 2), 2)
        self.sync_a_crowd(crowds[0])
        for n in range(1, 5):
            for i, connection in enumerate(crowds[n % 2]):
                self.ask(connection, f"round-{n}-{i}")
            time.sleep(QUIET_S)
            self.let_one_pass()
            self.is_at_gate()
        self.answered(listener, 0)
        return listener

    def test_dashboards_update_during_consecutive_syncs(self):
        """Though a sync takes longer than from one message to the next."""
        listener = self.listen_while_one_sync_follows_another(b"/v1/live")
        self.assertIn(b"round-1-0", self.got[listener])

    def test_listeners_receive_events_during_consecutive_syncs(self):
        listener = self.listen_while_one_sync_follows_another(b"/v1/events")
        self.assertIn(b"round-1-0", self.got[listener])
        self.assertNotIn(b"round-4", self.got[listener], "an event was told before it was on disk")
        self.gate.unlink()
        wait_until(lambda: self.answered(listener, 0) and b"round-4-0" in self.got[listener], "the event")

    def test_a_stream_behind_a_large_answer_waits_for_its_own_sync(self):
        """The answer leaves with its sync; what the stream on the same connection says of later ones does not."""
        state = '{"version":4,"serial":1,"lineage":"l","outputs":{},"resources":[],"x":"%s"}' % ("a" * 300000)
        lock = {"ID": "11111111-1111-4111-8111-111111111111", "Operation": "apply", "Who": "me"}
        self.assertEqual(self.server.call("LOCK", "/v1/terraform/s", json.dumps(lock)).status, 200)
        self.assertEqual(self.server.call("POST", "/v1/terraform/s?ID=" + lock["ID"], state).status, 200)
        self.assertEqual(self.server.call("GET", "/v1/terraform/s").status, 200)
        crowd, [latecomer, reader] = self.connect(CROWD), self.connect(2)
        self.sync_a_crowd(crowd)
        reader.sendall(b"".join(b"GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n" % path for path in (b"/v1/terraform/s", b"/v1/events")))
        for i, connection in enumerate(crowd[1:]):
            self.ask(connection, f"second-{i}")
        time.sleep(QUIET_S)
        self.let_one_pass()
        self.is_at_gate()  # with the state's answer, and the beginning of the stream
        self.ask(latecomer, "too-early")
        time.sleep(QUIET_S)
        self.let_one_pass()
        self.is_at_gate()
        self.assertEqual(self.answered(latecomer, 0), 1)
        wait_until(lambda: self.answered(reader, 0) and len(self.got[reader]) > len(state), "the state")
        self.answered(reader, 0)  # what came with it
        self.assertNotIn(b"too-early", self.got[reader], "an event was told before it was on disk")
        self.gate.unlink()
        self.assertEqual(self.answered(latecomer, 2), 2)
        wait_until(lambda: self.answered(reader, 0) and b"too-early" in self.got[reader], "the event")

    def test_if_a_sync_fails_no_client_is_answered_and_the_server_stops(self):
        """Neither the clients of that sync nor later ones; and the server logs it once."""
        crowd, latecomers = self.connect(CROWD), self.connect(CROWD)
        self.sync_a_crowd(crowd)
        for i, connection in enumerate(latecomers):
            self.ask(connection, f"late-{i}")
        time.sleep(QUIET_S)
        Path(self.dir / "gate-bad").touch()
        self.gate.unlink()
        self.assertEqual(self.server.process.wait(PATIENCE), 69)
        self.assertEqual(self.server.log().count("the server stops without answering"), 1)
        for connection in [*crowd, *latecomers]:
            with contextlib.suppress(ConnectionResetError):
                self.assertEqual(connection.recv(65536), b"")

    def cpu_s(self):
        fields = Path(f"/proc/{self.server.process.pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def test_a_webhook_that_waits_for_a_sync_does_not_keep_the_loop_busy(self):
        receiver = Receiver(self)
        crowd = self.connect(CROWD)
        self.sync_a_crowd(crowd)
        hook = {"ttl_ms": 60000, "wait_ms": 60000, "webhook": {"url": receiver.url}}
        later = self.server.acquire_later("free", "bot", **hook)
        time.sleep(QUIET_S)
        before = self.cpu_s()
        time.sleep(1)  # of which a loop that never sleeps would take all
        self.assertLess(self.cpu_s() - before, 0.5)
        self.gate.unlink()
        self.assertEqual((receiver.lock()["key"], later.get().status), ("free", 202))

    def test_every_sync_is_timed(self):
        """Also one that writes only what came while another ran."""
        crowd, [latecomer] = self.connect(CROWD), self.connect(1)
        self.sync_a_crowd(crowd)
        self.ask(latecomer, "late")
        time.sleep(QUIET_S)
        self.gate.unlink()
        self.assertEqual(self.answered(latecomer, 2), 2)
        text = self.server.get("/metrics").body.decode()
        batches, syncs = (re.search(rf"^belay_store_{name}_count (\d+)$", text, re.M).group(1)
                          for name in ("commit_batch_size", "sync_duration_seconds"))
        self.assertEqual(syncs, batches)

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
