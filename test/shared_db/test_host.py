"""The scope of an action decides which applications share it (S3.3): an EC2 instance is a host, with all databases on it.

The addresses are names in the registry only; the health URLs are on this machine.
"""

import shared_db_support
from shared_db_support import GuardCase, main, wait_until

INSTANCE = "i-0123456789abcdef0"


class Instances(GuardCase):
    def setUp(self):
        super().setUp()
        self.aws = self.ec2()

    def test_an_ec2_instance_is_stopped_and_awaited(self):
        """StopInstances, and DescribeInstances until it is stopped."""
        self.aws.add(INSTANCE, "10.0.1.5")
        self.application("a", database=INSTANCE)
        self.assertEqual(self.stop("a")["action"], "stopped")
        self.assertEqual(self.aws.calls, ["DescribeInstances", "DescribeInstances", "StopInstances", "DescribeInstances",
                                          "DescribeInstances"])
        self.assertEqual(self.aws.state(INSTANCE), "stopped")
        self.assertEqual(self.stop("a")["action"], "skipped")
        self.assertEqual(self.ok("db", "start", "--app", "a", "--json").json()["results"][0]["action"], "started")

    def test_every_application_on_the_host_shares_the_instance(self):
        for what, mine, theirs in [("another port", f"{INSTANCE}@10.0.1.5:5432", "10.0.1.5:6432"),
                                   ("a row with the id alone", INSTANCE, "10.0.1.5:6432"),
                                   ("a host alone", "10.0.1.5:5432", "10.0.1.5:6432"),
                                   ("another address of the host", INSTANCE, "10.0.9.9:5432"),
                                   ("its IPv6 address, written otherwise", INSTANCE, "[2001:db8::1]:5432"),
                                   ("EC2's name of the host", INSTANCE, "IP-10-0-1-5.internal:5432"),
                                   ("a chain of names", f"{INSTANCE}@db.example:5432", "db.example:1")]:
            with self.subTest(what=what):
                self.aws.instances.clear()
                self.aws.calls.clear()
                self.aws.add(INSTANCE, "10.0.1.5", second="10.0.9.9", dns="ip-10-0-1-5.internal", ipv6="2001:0DB8:0:0:0:0:0:0001")
                self.application("a", database=mine).down()
                pooler = self.application("pooler", database=theirs)
                result = self.stop("a", code=75)
                self.assertEqual((result["action"], result["active_apps"]), ("skipped_shared_active", ["pooler"]), result)
                self.assertNotIn("StopInstances", self.aws.calls)
                pooler.up(503)
                self.assertEqual(self.stop("a")["action"], "stopped")
                for name in ("a", "pooler"):
                    self.ok("app", "remove", name)

    def test_another_kind_on_the_host_is_asked_too(self):
        self.aws.add(INSTANCE, "10.0.1.5")
        self.application("a", database=f"{INSTANCE}@10.0.1.5:5432").down()
        graph = shared_db_support.Application()
        self.addCleanup(graph.down)
        self.ok("app", "register", "graph", "--url", graph.url, "--database", "neo4j=10.0.1.5:7687")
        self.assertEqual(self.stop("a", code=75)["active_apps"], ["graph"])

    def test_an_instance_is_found_by_its_private_address(self):
        """Document 003's own rows have a host and no instance id."""
        self.aws.add("i-00000000000000001", "10.0.1.4")
        self.aws.add(INSTANCE, "10.0.1.5")
        self.aws.add("i-00000000000000002", "10.0.1.5", state="terminated")
        self.application("a", database="10.0.1.5:5432")
        result = self.stop("a")
        self.assertEqual((result["action"], result["database"], result["host"]), ("stopped", INSTANCE, "10.0.1.5:5432"))
        self.assertEqual(self.aws.state(INSTANCE), "stopped")
        (listed,) = self.ok("db", "list", "--json").json()["databases"]
        self.assertEqual(listed["last"]["action"], "stopped")
        result = self.ok("db", "start", "--app", "a", "--json").json()["results"][0]
        self.assertEqual((result["action"], result["database"]), ("started", INSTANCE))

    def test_the_lock_is_the_instances_and_every_other_name_of_it(self):
        """The instance id is what document 003's controller locks; a host:port what one does that does not know it."""
        self.aws.add(INSTANCE, "10.0.1.5")
        self.application("a", database="10.0.1.5:5432").down()
        self.application("c", database="10.0.1.5:6432").up(503)
        for name in (INSTANCE, "10.0.1.5:5432", "10.0.1.5:6432"):
            with self.subTest(name=name):
                lock = self.acquire(f"LOCK#DB#{name}", "--owner", "another", "--ttl", "5m")
                self.assertEqual(self.stop("a", code=75)["action"], "skipped_lock")
                self.assertEqual(self.stop("a", "--dry-run", code=75)["action"], "skipped_lock")
                self.ok("release", f"LOCK#DB#{name}", "--id", lock["lock_id"])
        self.assertNotIn("StopInstances", self.aws.calls)
        held = []
        self.aws.on_stop = lambda: held.extend(one["key"] for one in self.ok("list", "--json").json()["locks"])
        self.assertEqual(self.stop("a")["action"], "stopped")
        self.assertEqual([key.split("#")[-1] for key in sorted(held)], ["10.0.1.5:5432", "10.0.1.5:6432", INSTANCE])
        self.assertEqual(self.ok("list", "--json").json()["locks"], [])

    def test_no_instance_or_two_or_an_error_mean_no_stop(self):
        self.application("a", database="10.0.1.5:5432")
        self.assertIn("no instance with private-ip-address '10.0.1.5'", self.stop("a", code=69)["reason"])
        self.aws.add(INSTANCE, "10.0.1.5")
        self.aws.add("i-00000000000000002", "10.0.1.5", state="stopped")
        self.assertIn("more than one instance", self.stop("a", code=69)["reason"])
        self.aws.instances.pop()
        self.aws.status = 403
        for database in ("10.0.1.5:5432", INSTANCE):
            self.ok("app", "register", "a", "--replace", "--url", "http://127.0.0.1:9/", "--database", f"postgres={database}")
            result = self.stop("a", code=69)
            self.assertEqual(result["action"], "error")
            self.assertIn("UnauthorizedOperation", result["reason"])
        self.assertNotIn("StopInstances", self.aws.calls)

    def test_two_instances_for_one_database_prevent_a_stop(self):
        self.aws.add(INSTANCE, "10.0.1.5")
        self.application("a", database=f"{INSTANCE}@10.0.1.5:5432")
        self.application("b", database="i-00000000000000002@10.0.1.5:6432").up(503)
        result = self.stop("a", code=69)
        self.assertIn("two instances", result["reason"])
        self.assertNotIn("StopInstances", self.aws.calls)


class Ends(GuardCase):
    def configure_ends(self, ends, verb="stop"):
        action = {"command": [self.script, "stop"], "until": {"command": [self.script, "is-stopped"], "every": "50ms"}}
        self.configure({"postgres": {verb: {**action, **({"ends": ends} if ends else {})}}})

    def test_a_command_ends_the_database_or_the_host_as_configured(self):
        self.application("a", database="db.example:5432").down()
        self.application("c", database="db.example:6432")
        self.run_database()
        self.configure_ends("host")
        self.assertEqual(self.stop("a", code=75)["active_apps"], ["c"])
        for ends in (None, "database"):
            self.run_database()
            self.configure_ends(ends)
            self.assertEqual(self.stop("a")["reason"], "no other application uses it")

    def test_a_start_of_another_database_on_the_host_waits_for_the_stop_of_the_host(self):
        self.application("a", database="db.example:5432").down()
        self.application("c", database="db.example:6432").up(503)
        self.run_database()
        self.configure_ends("host")
        (self.dir / "slow").write_text("600")
        stop = self.start("db", "stop", "--app", "a")
        wait_until(lambda: self.log(), "the action begins")
        self.configure()
        result = self.fails(75, "db", "start", "--app", "c", "--json").json()["results"][0]
        self.assertEqual(result["action"], "skipped_lock")
        self.end(stop)

    def test_contradictory_settings_are_refused(self):
        self.application("a")
        self.configure({"postgres": {"stop": {"ec2": "stop", "ends": "database"}}})
        self.assertIn("stops all databases on it", self.fails(78, "db", "stop", "--app", "a").err)
        self.configure_ends("all")
        self.assertIn("write host or database", self.fails(78, "db", "stop", "--app", "a").err)
        self.configure_ends("host", verb="start")
        self.assertIn("no 'ends'", self.fails(78, "db", "stop", "--app", "a").err)


class Links(GuardCase):
    """An instance and a host that one application knows to be one stay one when it goes."""

    def setUp(self):
        super().setUp()
        self.application("link", database=f"{INSTANCE}@db.example:5432")
        self.application("b", database="db.example:5432")
        self.application("c", database=INSTANCE)
        self.run_database()

    def check(self):
        result = self.stop("b", code=75)
        self.assertEqual((result["database"], result["active_apps"]), (INSTANCE, ["c"]))
        self.assertEqual(self.stop("c", code=75)["active_apps"], ["b"])
        self.assertEqual([one["database"] for one in self.ok("db", "list", "--json").json()["databases"]][:1], [INSTANCE])

    def test_rows_connected_by_a_third_are_one_database(self):
        self.assertEqual(self.stop("b", code=75)["active_apps"], ["c", "link"])
        self.assertEqual(self.stop("c", code=75)["active_apps"], ["b", "link"])

    def test_removing_the_application_that_links_them_does_not_split_the_database(self):
        self.ok("app", "remove", "link")
        self.check()

    def test_replacing_it_does_not_either(self):
        self.ok("app", "register", "link", "--replace", "--url", "http://127.0.0.1:9/", "--database",
                "postgres=other.example:5432")
        self.check()

    def test_an_application_that_named_both_as_two_databases_names_one(self):
        self.ok("app", "register", "b", "--replace", "--url", self.applications["b"].url, "--database",
                "postgres=db.example:5432", "--database", f"postgres={INSTANCE}")
        self.ok("app", "remove", "link")
        self.assertEqual(self.ok("app", "show", "b", "--json").json()["databases"],
                         [{"kind": "postgres", "id": INSTANCE, "host": "db.example:5432"}])
        self.check()


if __name__ == "__main__":
    main()
