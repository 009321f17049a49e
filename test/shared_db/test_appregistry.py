"""Document 003's own table: rows that its programs write are applications, and rows of its locks are not (S3.1)."""

import shared_db_support
from shared_db_support import GuardCase, main


class OwnRows(GuardCase):
    def setUp(self):
        shared_db_support.STORE = "appregistry"
        super().setUp()

    def row(self, name):
        return next((row for row in self.dynamodb.items(self.table) if row["app_name"]["S"] == name), None)

    def discovered(self, name, port, **attributes):
        """As the document's discovery writes it: a whole row, again and again."""
        self.dynamodb.put(self.table, app_name={"S": name}, namespace={"S": "shop"}, pods={"M": {"total": {"N": "3"}}},
                          hostnames={"L": [{"S": f"http://127.0.0.1:{port}"}]}, status={"S": "UP"},
                          postgres_host={"S": "10.0.1.5"}, postgres_port={"N": "5432"}, neo4j_host={"NULL": True},
                          **attributes)

    def test_rows_of_the_documents_programs_are_applications(self):
        shop = self.application("unused", register=False)
        self.discovered("shop.example", shop.port)
        self.dynamodb.put(self.table, app_name={"S": "LOCK#DB#10.0.1.5:5432"}, owner_id={"S": "x"}, ttl={"N": "1"},
                          created_at={"S": "2024-11-05T14:32:15Z"}, lock_type={"S": "database"},
                          db_identifier={"S": "10.0.1.5:5432"})
        (app,) = self.ok("app", "list", "--json").json()["apps"]
        self.assertEqual((app["name"], app["urls"], app["databases"]),
                         ("shop.example", [f"http://127.0.0.1:{shop.port}"],
                          [{"kind": "postgres", "id": "10.0.1.5:5432", "host": None}]))
        self.assertEqual(self.status("shop.example")["status"], "UP")

    def test_a_hostname_is_asked_over_https(self):
        self.dynamodb.put(self.table, app_name={"S": "a"}, hostnames={"L": [{"S": "shop.example"}]})
        self.assertEqual(self.ok("app", "show", "a", "--json").json()["urls"], ["https://shop.example/"])

    def test_the_documents_programs_read_belays_rows_and_their_fields_are_kept(self):
        application = self.application("unused", register=False)
        self.discovered("shop", application.port)
        self.ok("app", "mark-stopped", "shop", "--by", "alice")
        row = self.row("shop")
        self.assertEqual(row["status"], {"S": "DOWN"})
        self.assertEqual((row["namespace"], row["pods"]), ({"S": "shop"}, {"M": {"total": {"N": "3"}}}))
        self.assertEqual((row["postgres_host"], row["postgres_port"]), ({"S": "10.0.1.5"}, {"N": "5432"}))
        self.ok("app", "register", "new", "--url", "https://new.example:8443/health", "--database", "neo4j=graph.example:7687")
        row = self.row("new")
        self.assertEqual(row["hostnames"], {"L": [{"S": "new.example:8443"}]})
        self.assertEqual((row["neo4j_host"], row["neo4j_port"], row["status"]),
                         ({"S": "graph.example"}, {"N": "7687"}, {"S": "UP"}))
        self.assertNotIn("postgres_host", row)

    def test_an_overwritten_row_loses_belays_record_and_is_still_read(self):
        application = self.application("unused", register=False)
        self.discovered("shop", application.port)
        self.ok("app", "mark-stopped", "shop")
        self.discovered("shop", application.port)
        self.assertEqual(self.ok("app", "show", "shop", "--json").json()["state"], "running")
        self.ok("app", "mark-stopped", "shop")
        self.assertEqual(self.ok("app", "show", "shop", "--json").json()["state"], "stopped")

    def test_instances_and_hosts_in_a_row_are_one_database(self):
        application = self.application("unused", register=False)
        self.discovered("old", application.port,
                        postgres_instances={"L": [{"M": {"instance_id": {"S": "i-0123456789abcdef0"}}}]})
        self.discovered("new", application.port)
        self.run_database()
        result = self.stop("new", code=75)
        self.assertEqual((result["database"], result["host"], result["active_apps"]),
                         ("i-0123456789abcdef0", "10.0.1.5:5432", ["old"]))

    def test_the_lock_is_the_documents_and_is_gone_afterwards(self):
        self.application("a", database="10.0.1.5:5432")
        self.run_database()
        (self.dir / "slow").write_text("1")
        process = self.start("db", "stop", "--app", "a", "--json")
        shared_db_support.wait_until(lambda: self.log(), "the action begins")
        lock = self.row("LOCK#DB#10.0.1.5:5432")
        self.assertEqual((lock["lock_type"], lock["db_identifier"]), ({"S": "database"}, {"S": "10.0.1.5:5432"}))
        self.assertRegex(lock["owner_id"]["S"], r"^[0-9a-f]{8}-[0-9a-f]{4}-4")
        self.assertEqual(process.wait(60), 0)
        self.assertIsNone(self.row("LOCK#DB#10.0.1.5:5432"))
        self.assertEqual(self.ok("app", "list", "--quiet").out, "a\n")

    def test_a_row_that_cannot_be_parsed_may_be_any_database(self):
        """It keeps every database from being stopped, and the reason names it."""
        self.application("a", database="10.0.1.5:5432")
        other = self.application("unused", register=False)
        other.up(503)
        self.run_database()
        for attributes, shown in [
                ({"postgres_host": {"S": " 10.0.1.5 "}}, "postgres= 10.0.1.5 :5432"),
                ({"postgres_host": {"S": "10.0.1.5:5432"}}, "postgres=10.0.1.5:5432:5432"),
                ({"postgres_host": {"S": "jdbc:postgresql://10.0.1.5:5432/shop"}}, "jdbc:postgresql://10.0.1.5:5432/shop"),
                ({"postgres_host": {"S": "jdbc:postgresql://me@10.0.1.5/shop"}}, "jdbc:postgresql://me"),
                ({"postgres_host": {"S": "10.0.1.05"}}, "10.0.1.05"),
                ({"postgres_host": {"S": "10.0.261"}}, "10.0.261"),
                ({"postgres_host": {"L": [{"S": "10.0.1.5"}]}}, "(not a text)"),
                ({"postgres_host": {"S": "10.0.1.5"}, "postgres_port": {"S": "5432/tcp"}}, "10.0.1.5:5432/tcp"),
                ({"postgres_host": {"S": "10.0.1.5"}, "postgres_port": {"BOOL": True}}, "(not a number)"),
                ({"neo4j_instances": {"L": [{"M": {"name": {"S": "graph"}}}]}}, "neo4j=(not an instance)"),
                ({"neo4j_instances": {"S": "i-0123456789abcdef0"}}, "neo4j_instances is not a list")]:
            with self.subTest(attributes=attributes):
                self.dynamodb.put(self.table, app_name={"S": "odd"}, hostnames={"L": [{"S": f"http://127.0.0.1:{other.port}"}]},
                                  **attributes)
                result = self.stop("a", code=69)
                self.assertEqual(result["action"], "error")
                self.assertIn("'odd'", result["reason"])
                self.assertIn(shown, result["reason"])
                self.ok("app", "list")
        self.assertTrue(self.running())
        self.discovered("odd", other.port)
        self.assertEqual(self.stop("a")["action"], "stopped")

    def test_a_port_written_as_a_string_is_accepted(self):
        application = self.application("unused", register=False)
        self.discovered("shop", application.port)
        row = {**self.row("shop"), "postgres_port": {"S": "6432"}}
        self.dynamodb.put(self.table, **row)
        self.assertEqual(self.ok("app", "show", "shop", "--json").json()["databases"][0]["id"], "10.0.1.5:6432")

    def test_later_changes_of_the_documents_programs_count_beside_belays(self):
        self.application("shop", database="10.0.1.5:54321")
        row = {**self.row("shop"), "postgres_port": {"N": "5432"}, "hostnames": {"L": [{"S": "http://127.0.0.1:9"}]}}
        self.dynamodb.put(self.table, **row)
        shop = self.ok("app", "show", "shop", "--json").json()
        self.assertEqual([one["id"] for one in shop["databases"]], ["10.0.1.5:54321", "10.0.1.5:5432"])
        self.assertEqual(shop["urls"], [self.applications["shop"].url, "http://127.0.0.1:9"])

    def test_rows_of_the_documents_programs_can_be_stopped_on_ec2(self):
        """They have a host and no instance: it is found by the private address, and locked as its controller does."""
        aws = self.ec2()
        aws.add("i-0123456789abcdef0", "10.0.1.5")
        application = self.application("unused", register=False)
        self.discovered("shop", application.port)
        self.discovered("blog", application.port)
        self.assertEqual(self.stop("shop", code=75)["active_apps"], ["blog"])
        application.up(503)
        locks = []
        aws.on_stop = lambda: locks.append(self.row("LOCK#DB#i-0123456789abcdef0"))
        result = self.stop("shop")
        self.assertEqual((result["action"], result["database"], result["host"]),
                         ("stopped", "i-0123456789abcdef0", "10.0.1.5:5432"))
        self.assertEqual(locks[0]["db_identifier"], {"S": "i-0123456789abcdef0"})
        self.assertRegex(locks[0]["created_at"]["N"], r"^\d{10}$")

    def test_a_registry_of_several_pages_is_read_whole(self):
        """A page is 1 MB: rows of 30 KB make two and more. One that is left out might be the one that is up."""
        application = self.application("unused", register=False)
        for i in range(60):
            self.discovered(f"app-{i:02}", application.port, note={"S": "x" * 30000})
        self.run_database()
        result = self.stop("app-00", code=75)
        self.assertEqual(len(result["active_apps"]), 59)


if __name__ == "__main__":
    main()
