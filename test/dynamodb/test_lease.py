"""A lease on every layout: an accepted ttl is kept alive (L6), and the holder learns of its end."""
import os
import re
import sys
import threading
import time

from dynamo_support import ROOT, DynamoCase
from support import main, wait_until

sys.path.insert(0, os.path.join(ROOT, "test", "server"))
from server_support import Server  # noqa: E402

LAYOUTS = ("belay", "chatops", "resource", "runvoy", "appregistry", "deployer")
KEY = "build-router-plt"


def all_at_once(works):
    """Their results, in order: most of the time is spent asleep."""
    results = [None] * len(works)

    def run(i, work):
        results[i] = work()
    threads = [threading.Thread(target=run, args=pair) for pair in enumerate(works)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


class Lease(DynamoCase):
    def belay(self, command, *args, **how):
        """Layout runvoy keeps a person with every lock."""
        person = ("--owner-name", "me@example.org") if command in ("acquire", "run") else ()
        return super().belay(command, *person, *args, **how)

    def stores(self):
        """A table of each layout."""
        stores = {}
        for layout in LAYOUTS:
            self.LAYOUT = layout
            self.make_store()
            stores[layout] = self.store
        return stores

    def test_a_ttl_that_is_accepted_keeps_its_command_alive(self):
        """80 % of such a ttl is later than it may be relied upon. Shorter ones leave too little time on a busy machine."""
        stores = self.stores()
        server = Server(self, "--store", stores["runvoy"])
        urls = [*stores.values(), server.url]

        def run(url, ttl, *args):
            return self.belay("run", f"{KEY}-{ttl}", "--ttl", ttl, *args, "--", "sleep", "14", env={"BELAY_STORE": url})
        results = all_at_once([lambda url=url: run(url, "16s", "--profile", "execution", "--owner", "job") for url in urls] +
                              [lambda: run(stores["belay"], "12s")])
        self.assertEqual([(result.code, result.err) for result in results], [(0, "")] * len(results))

    def test_a_ttl_too_short_for_heartbeats_is_refused_with_the_minimum(self):
        stores = self.stores()
        server = Server(self, "--store", stores["resource"])
        for url, least in [*((url, 4000 if layout == "belay" else 8000) for layout, url in stores.items()),
                           (server.url, 8000)]:
            env = {"BELAY_STORE": url}
            message = f"on this store it must be over {least // 1000}s"
            ttl = f"{least}ms"
            self.assertIn(message, self.fails(64, "run", KEY, "--ttl", ttl, "--", "true", env=env).err)
            self.assertIn(message, self.fails(64, "acquire", KEY, "--ttl", ttl, env=env).err)
            lock = self.ok("acquire", KEY, "--ttl", f"{least + 1}ms", "--json", env=env).json()
            self.assertIn(message, self.fails(64, "renew", KEY, "--id", lock["lock_id"], "--ttl", ttl, env=env).err)
            self.ok("release", KEY, "--id", lock["lock_id"], env=env)

    def test_acquire_says_when_it_must_be_renewed_and_not_when_it_is_too_late(self):
        for layout, url in self.stores().items():
            out = self.ok("acquire", KEY, "--profile", "execution", "--owner", "job", "--ttl", "12s", env={"BELAY_STORE": url}).out
            self.assertRegex(out, r"Renew it every [23]s:", layout)

    def test_the_line_that_acquire_prints_renews_it_on_every_layout(self):
        stores = self.stores()
        server = Server(self, "--store", stores.pop("runvoy"))
        for url in [*stores.values(), server.url]:
            env = {"BELAY_STORE": url}
            out = self.ok("acquire", KEY, "--heartbeat", "1m", "--ttl", "20m", env=env).out
            line = re.search(r"Renew it every .*:\n  belay (.*)\n", out).group(1)
            self.ok(*line.split(), env=env)
            self.assertTrue(1190000 < self.ok("status", KEY, "--json", env=env).json()["expires_in_ms"] < 1202000)

    def test_a_renewal_without_a_ttl_uses_the_profiles(self):
        """30 minutes; through a server those of its configuration. A ttl that the store keeps is kept."""
        stores = self.stores()
        server = Server(self, "--store", stores["runvoy"])
        for layout, url in [*stores.items(), ("runvoy", server.url)]:
            env = {"BELAY_STORE": url}
            kept = layout in ("belay", "deployer")
            for key, *profile in (("deploy-router-plt",), ("any", "--profile", "execution")):
                lock = self.ok("acquire", key, "--ttl", "1m", "--json", env=env).json()
                for _ in range(2):
                    lock = self.ok("renew", key, "--id", lock["lock_id"], "--json", *profile, env=env).json()
                    self.assertTrue(lock["expires_in_ms"] <= 61000 if kept else 1790000 < lock["expires_in_ms"] < 1802000,
                                    (layout, key, lock))
                self.ok("release", key, "--id", lock["lock_id"], env=env)
        lock = self.ok("acquire", "any", "--ttl", "1m", "--json", env={"BELAY_STORE": stores["runvoy"]}).json()
        error = self.fails(64, "renew", "any", "--id", lock["lock_id"], env={"BELAY_STORE": stores["runvoy"]}).err
        self.assertIn("(--ttl) or a profile (--profile)", error)


class Forced(DynamoCase):
    """A forced holder learns of it within 10 s, without more requests than that needs."""

    PROXY = True

    def run_and_force(self, env=None):
        process = self.start("run", KEY, "--ttl", "1h", "--heartbeat", "40m", "--", "sleep", "60", env=env)
        wait_until(lambda: self.belay("list", "--quiet").out.strip() == KEY, "the lock")
        self.ok("unlock", KEY, "--force", "--yes")
        began = time.monotonic()
        _, err = process.communicate(timeout=60)
        self.assertLess(time.monotonic() - began, 14)  # 10 s, if the machine is not busy
        self.assertEqual(process.returncode, 76, err)

    def test_a_command_is_stopped_when_its_lock_is_forced_directly_or_behind_a_server(self):
        server = Server(self)
        all_at_once([self.run_and_force])
        self.run_and_force({"BELAY_STORE": server.url})

    def test_a_command_is_stopped_where_a_forced_lock_leaves_no_record(self):
        self.LAYOUT = "resource"
        self.make_store()
        self.run_and_force()

    def test_a_short_lock_life_is_two_requests_and_then_a_read_every_eight_seconds(self):
        """S0.8"""
        self.ok("run", "k", "--", "true")
        self.proxy.reset()
        self.ok("run", "k", "--", "sleep", "4")
        self.assertEqual(self.proxy.counts(), {"UpdateItem": 2})
        self.proxy.reset()
        self.ok("run", "k", "--", "sleep", "12")
        self.assertEqual(self.proxy.counts(), {"UpdateItem": 2, "GetItem": 1})
        self.proxy.reset()
        self.ok("run", "k", "--ttl", "36s", "--", "sleep", "13")  # renewed after 9 s, which is a look as well
        self.assertEqual(self.proxy.counts(), {"UpdateItem": 3})


if __name__ == "__main__":
    main()
