"""GET /v1/events: Server-Sent Events as they happen, with resume."""

import signal
import threading
import time

from server_support import ServerCase, Stream, main, wait_until


class Events(ServerCase):
    def setUp(self):
        super().setUp()
        self.server = self.serve()

    def stream(self, *args, **more):
        stream = Stream(self.server, *args, **more)
        self.addCleanup(stream.close)
        self.assertEqual(stream.status, 200)
        return stream

    def take(self, stream, n):
        events = stream.events()
        return [next(events) for _ in range(n)]

    def test_events_come_as_they_happen(self):
        """L9"""
        stream = self.stream()
        self.assertEqual(stream.response.headers["Content-Type"], "text/event-stream")
        lock = self.server.acquire("k", "me").json()
        self.server.release("k", lock["lock_id"])
        events = self.take(stream, 2)
        self.assertEqual([e["event"] for e in events], ["lock.acquired", "lock.released"])
        self.assertEqual(events[0]["data"]["lock_key"], "k")
        self.assertEqual([int(e["id"]) for e in events], [e["data"]["id"] for e in events])
        self.assertEqual([e["data"] for e in events], self.server.get("/v1/locks/k/history").json()["events"])

    def test_a_stream_begins_with_new_events(self):
        self.server.acquire("before")
        stream = self.stream()
        self.server.acquire("after")
        self.assertEqual(self.take(stream, 1)[0]["data"]["lock_key"], "after")

    def test_a_prefix_selects_the_keys(self):
        stream = self.stream("/v1/events?prefix=b%2F")
        for key in ("a", "b/1", "b", "b/2"):
            self.server.acquire(key)
        self.assertEqual([e["data"]["lock_key"] for e in self.take(stream, 2)], ["b/1", "b/2"])

    def test_a_stream_resumes_after_the_last_received_event(self):
        for i in range(10):
            self.server.acquire(f"k{i}")
        events = self.take(self.stream(last_id=0), 10)
        self.assertEqual([e["data"]["lock_key"] for e in events], [f"k{i}" for i in range(10)])
        rest = self.stream(last_id=events[6]["id"])
        self.assertEqual(self.take(rest, 3), events[7:])
        self.server.acquire("live")
        self.assertEqual(next(rest.events())["data"]["lock_key"], "live")
        by_query = self.stream(f"/v1/events?last_event_id={events[8]['id']}&prefix=k")
        self.assertEqual(self.take(by_query, 1), events[9:])

    def test_no_event_is_lost_or_repeated_over_reconnections(self):
        done = threading.Event()

        def work():
            while not done.is_set():
                lock = self.server.acquire("k")
                self.server.release("k", lock.json()["lock_id"])
        thread = threading.Thread(target=work)
        seen, last = [], 0
        thread.start()
        for _ in range(8):
            stream = self.stream(last_id=last)
            seen += [int(e["id"]) for e in self.take(stream, 30)]
            last = seen[-1]
            stream.close()
        done.set()
        thread.join()
        history = [e["id"] for e in self.server.get("/v1/locks/k/history?limit=10000").json()["events"]]
        self.assertEqual(seen, history[:len(seen)])

    def test_many_listeners_receive_the_same_events(self):
        streams = [self.stream() for _ in range(20)]
        for i in range(10):
            self.server.acquire(f"k{i}")
        heard = [[e["id"] for e in self.take(stream, 10)] for stream in streams]
        self.assertTrue(all(ids == heard[0] for ids in heard))

    def test_a_reader_catches_up_with_a_long_history(self):
        for i in range(300):
            self.server.acquire("k", f"o{i}")
        first = self.stream(last_id=0)
        self.server.acquire("last")
        events = self.take(first, 301)
        self.assertEqual(len({e["id"] for e in events}), 301)
        self.assertEqual(events[-1]["data"]["lock_key"], "last")

    def test_changes_by_commands_on_the_same_file_are_sent_too(self):
        stream = self.stream()
        self.acquire("by-command")
        self.assertEqual(self.take(stream, 1)[0]["data"]["lock_key"], "by-command")

    def test_a_reader_that_does_not_read_is_cut_off(self):
        lazy = self.stream()
        lazy.socket.setsockopt(1, 8, 4096)  # a small receive buffer
        metadata = {f"m{i}": "x" * 4000 for i in range(60)}
        for i in range(60):
            self.server.acquire(f"k{i}", metadata=metadata)
        wait_until(lambda: "reads too slowly" in self.server.log(), "the log line")
        self.assertEqual(self.server.get("/healthz").status, 200)

    def test_a_silent_stream_sends_keepalives(self):
        stream = self.stream()
        blocks = stream.blocks()
        self.assertEqual(next(blocks), ["retry: 2000", "id: 0", ": belay"])
        began = time.monotonic()
        self.assertEqual(next(blocks), [": keep-alive"])
        self.assertLess(time.monotonic() - began, 40)

    def test_streams_end_when_the_server_stops(self):
        stream = self.stream()
        self.server.acquire("k")
        self.take(stream, 1)
        self.assertEqual(self.server.stop(), 0)
        self.assertEqual(list(stream.events()), [])

    def test_a_wrong_last_event_id_is_refused(self):
        for last in ("x", "-1", "1" * 30):
            stream = Stream(self.server, last_id=last)
            self.assertEqual(stream.status, 400)
            stream.close()

    def test_head_does_not_begin_a_stream(self):
        self.assertEqual(self.server.call("HEAD", "/v1/events").status, 200)

    def test_a_removed_token_receives_no_more_events(self):
        self.server = self.serve(config=self.config_with({"r": ("r", "reader", None)}),
                                 env={"BELAY_STORE": f"sqlite:{self.dir}/other.db"})
        stream = self.stream(token="r")
        self.config_with({"other": ("other", "reader", None)})
        self.server.process.send_signal(signal.SIGHUP)
        self.assertEqual(list(stream.events()), [])

    def test_ids_of_locks_are_for_admins_only(self):
        config = self.config_with({"r": ("r", "reader", None), "a": ("a", "admin", None)})
        self.server = self.serve(config=config, env={"BELAY_STORE": f"sqlite:{self.dir}/other.db"})
        reader, admin = self.stream(token="r"), self.stream(token="a")
        self.server.acquire("k", "me", token="a", lock_id="id")
        self.assertIsNone(self.take(reader, 1)[0]["data"]["lock_id"])
        self.assertEqual(self.take(admin, 1)[0]["data"]["lock_id"], "id")


if __name__ == "__main__":
    main()
