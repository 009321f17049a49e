"""GET /v1/stats, and `belay stats` through a server: the same numbers as from the file itself (S4.14)."""

import os
import socket

from server_support import ServerCase, main
from support import wait_until
from stats_support import BUILD, DAYS, DEPLOY, TOTAL, plant

TOKENS = {"root": ("root", "admin", None), "all": ("all", "reader", None), "builds": ("builds", "reader", ["build-*"])}


class Numbers(ServerCase):
    def setUp(self):
        super().setUp()
        plant(self)
        self.env["BELAY_STORE"] = self.store + "?retain_events=36500d"
        self.server = self.serve()

    def stats(self, query=""):
        answer = self.server.get("/v1/stats" + query)
        self.assertEqual(answer.status, 200, answer)
        return answer.json()

    def test_the_numbers_are_those_of_the_history(self):
        stats = self.stats()
        self.assertRegex(stats.pop("until"), r"^20\d\d-\S+Z$")
        self.assertEqual(stats, {"key": None, "prefix": None, "by": None, "from": "2026-07-06T00:00:01.000Z",
                                 "oldest_event": "2026-07-06T00:00:01.000Z", "events": 15, "total": TOTAL, "groups": []})
        for query, groups in (("?by=day", DAYS), ("?by=key", [BUILD, DEPLOY]), ("?by=key&key=build-1", [BUILD]),
                              ("?by=key&prefix=deploy-", [DEPLOY]), ("?by=day&since=2026-07-07T00:00:00Z", [DAYS[1]]),
                              ("?by=day&since=1h", []), ("?by=&key=&prefix=&since=", [])):
            self.assertEqual(self.stats(query)["groups"], groups, query)

    def test_a_client_of_the_server_and_one_of_the_file_print_them(self):
        for store in (self.server.url, self.env["BELAY_STORE"]):
            by_key = self.ok("stats", "--store", store, "--by", "key", "--json").json()
            self.assertEqual((by_key["total"], by_key["groups"]), (TOTAL, [BUILD, DEPLOY]))
            out = self.ok("stats", "--store", store, "build-1", "--since", "2026-07-06T00:00:30Z").out
            self.assertIn("\nheld          median 20s, 90% within 30s, longest 30s (2 holds)\n", out)
            self.assertIn("period        2026-07-06T00:00:30Z to ", out)

    def test_what_happens_now_is_counted_at_once(self):
        lock = self.server.acquire("now").json()
        self.server.release("now", lock["lock_id"])
        total = self.stats("?key=now")["total"]
        self.assertEqual((total["acquired"], total["released"], total["held"]["count"]), (1, 1, 1))

    def test_a_queue_has_an_estimate_of_each_turn(self):
        self.server.acquire("build-1")
        queue = self.server.get("/v1/locks/build-1/queue?estimate=true").json()
        turns = queue["estimate"].pop("turns_ms")
        self.assertEqual(queue["estimate"], {"holds_ms": [10000, 20000, 30000], "is_overdue": False})
        self.assertEqual(len(turns), 1)  # nobody waits: that of a client that would
        self.assertTrue(10000 < turns[0] <= 20000, turns)
        self.assertIsNone(self.server.get("/v1/locks/build-1/queue").json()["estimate"])
        self.assertEqual(self.server.get("/v1/locks/build-1/queue?estimate=1").error["message"], "estimate must be true or false")

    def test_wrong_parameters_are_named(self):
        for query, why in (("by=week", "by must be day, profile or key"), ("since=soon", "since must be a duration such as 7d"),
                           ("since=-1d", "since must be"), ("key=a&prefix=b", "a key and a prefix exclude each other"),
                           ("key=%00", "key"), ("prefix=" + "x" * 600, "prefix is over 512 bytes"),
                           ("hours=6", "there is no parameter 'hours'|this path has no parameter 'hours'")):
            answer = self.server.get("/v1/stats?" + query)
            self.assertEqual((answer.status, answer.error["code"]), (400, "invalid"), query)
            self.assertRegex(answer.error["message"], why)


class Tenants(ServerCase):
    def test_a_token_with_keys_has_the_numbers_of_its_keys_only(self):
        plant(self)
        self.env["BELAY_STORE"] = self.store + "?retain_events=36500d"
        server = self.serve(config=self.config_with(TOKENS))
        self.assertEqual(server.get("/v1/stats").status, 401)
        self.assertEqual(server.get("/v1/stats", token="all").json()["total"], TOTAL)
        mine = server.get("/v1/stats?by=key", token="builds").json()
        self.assertEqual((mine["total"], mine["groups"]), ({**BUILD, "name": None}, [BUILD]))
        self.assertEqual(server.get("/v1/stats?prefix=deploy-", token="builds").json()["events"], 0)
        answer = server.get("/v1/stats?key=deploy-api-prod", token="builds")
        self.assertEqual((answer.status, answer.error["code"]), (403, "not_permitted"))


class Abandoned(ServerCase):
    def cpu(self, server):
        """Seconds of a processor that the server has used."""
        with open(f"/proc/{server.process.pid}/stat", encoding="utf-8") as file:
            fields = file.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def test_the_scan_ends_when_its_client_leaves(self):
        plant(self, [(i / 100, "lock.released", "long", 1) for i in range(200000)] + [(3000, "lock.released", "short", 1)])
        self.env["BELAY_STORE"] = self.store + "?retain_events=36500d"
        server = self.serve()
        self.assertEqual(server.get("/v1/stats?key=short").json()["total"]["released"], 1)  # what is done once, was
        began = self.cpu(server)
        self.assertEqual(server.get("/v1/stats").json()["events"], 200001)
        whole = self.cpu(server) - began
        began = self.cpu(server)
        with socket.create_connection(("127.0.0.1", server.port), timeout=30) as client:
            client.sendall(b"GET /v1/stats HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            wait_until(lambda: self.cpu(server) - began > whole / 10, "the scan")
        self.assertEqual(server.get("/v1/stats?key=short").status, 200)  # after it: one is computed at a time
        self.assertLess(self.cpu(server) - began, whole * 0.7)

    def test_a_client_that_only_stops_sending_has_its_answer(self):
        plant(self, [(i / 100, "lock.released", "long", 1) for i in range(50000)])
        self.env["BELAY_STORE"] = self.store + "?retain_events=36500d"
        server = self.serve()
        with socket.create_connection(("127.0.0.1", server.port), timeout=30) as client:
            client.sendall(b"GET /v1/stats HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            client.shutdown(socket.SHUT_WR)
            answer = b"".join(iter(lambda: client.recv(65536), b""))
        self.assertRegex(answer, rb"^(HTTP/1.1 100 Continue\r\n\r\n)?HTTP/1.1 200 OK\r\n")
        self.assertIn(b'"events":50000', answer)


if __name__ == "__main__":
    main()
