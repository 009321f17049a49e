"""The registry of applications (S3): what goes in, what is refused, and that locks and applications never meet."""

import json
import threading

from shared_db_support import STORE, GuardCase, main


class Registry(GuardCase):
    def register(self, name, *args):
        return self.ok("app", "register", name, "--url", f"http://127.0.0.1:9/{name}", *args)

    def test_a_registered_application_is_shown_and_listed(self):
        self.register("shop", "--database", "postgres=10.0.1.5:5432", "--database", "neo4j=i-0123456789abcdef0@10.0.1.6:7687",
                      "--label", "team=payments")
        shop = self.ok("app", "show", "shop", "--json").json()
        self.assertEqual(shop["urls"], ["http://127.0.0.1:9/shop"])
        self.assertEqual(shop["databases"], [{"kind": "postgres", "id": "10.0.1.5:5432", "host": None},
                                             {"kind": "neo4j", "id": "i-0123456789abcdef0", "host": "10.0.1.6:7687"}])
        self.assertEqual(shop["labels"], {"team": "payments"})
        self.assertEqual(shop["state"], "running")
        self.register("billing")
        self.assertEqual([app["name"] for app in self.ok("app", "list", "--json").json()["apps"]], ["billing", "shop"])
        self.assertEqual(self.ok("app", "list", "--quiet").out, "billing\nshop\n")

    def test_applications_and_locks_do_not_mix(self):
        """S3: "never lists or touches lock rows as applications"."""
        self.register("shop")
        self.acquire("a-lock" if STORE != "appregistry" else "i-0abc123")
        self.assertEqual([lock["key"] for lock in self.ok("list", "--json").json()["locks"]],
                         ["a-lock" if STORE != "appregistry" else "i-0abc123"])
        self.assertEqual(self.ok("app", "list", "--quiet").out, "shop\n")
        self.fails(66, "app", "show", "a-lock")
        self.fails(66, "status", "shop")

    def test_a_name_is_registered_once_unless_it_is_replaced(self):
        self.register("shop")
        refused = self.fails(64, "app", "register", "shop", "--url", "http://127.0.0.1:9/other")
        self.assertIn("'shop' is in the registry already", refused.err)
        self.ok("app", "mark-stopped", "shop", "--by", "alice")
        for url, state, by in [("http://127.0.0.1:9/shop", "stopped", "alice"), ("http://127.0.0.1:9/other", "running", None)]:
            self.ok("app", "register", "shop", "--url", url, "--label", "a=b", "--replace")
            shop = self.ok("app", "show", "shop", "--json").json()
            self.assertEqual((shop["urls"], shop["state"], shop["by"]), ([url], state, by))

    def test_bad_input_gets_a_line_that_says_what_would_be_right_and_changes_nothing(self):
        """L8, and the issue's list."""
        cases = [
            (["", "--url", "http://x/"], "has no name"),
            (["a b", "--url", "http://x/"], "not the name of an application"),
            (["LOCK#DB#x", "--url", "http://x/"], "not the name of an application"),
            (["shop"], "https://shop.example/health"),
            (["shop", "--url", "ftp://x/"], "write http://HOST[:PORT]/PATH"),
            (["shop", "--url", "http://"], "write http://HOST[:PORT]/PATH"),
            (["shop", "--url", "http://user:secret@x/"], "without a password"),
            (["shop", "--url", "http://x:99999/"], "write http://HOST[:PORT]/PATH"),
            (["shop", "--url", "http://x/", "--database", "postgres"], "write KIND=ID"),
            (["shop", "--url", "http://x/", "--database", "postgres=nowhere"], "neither an EC2 instance id"),
            (["shop", "--url", "http://x/", "--database", "postgres=x:0"], "neither an EC2 instance id"),
            (["shop", "--url", "http://x/", "--database", "oracle=x:1"], "'oracle' is not known"),
            (["shop", "--url", "http://x/", "--database", "postgres=DB:1", "--database", "postgres=db.:1"], "named twice"),
            (["shop", "--url", "http://x/", "--label", "team"], "NAME=VALUE"),
        ]
        for args, says in cases:
            with self.subTest(args=args):
                result = self.fails(64, "app", "register", *args)
                self.assertIn(says, result.err)
                self.assertEqual(result.err.count("\n"), 1, result.err)
        self.assertEqual(self.ok("app", "list", "--json").json()["apps"], [])

    def test_a_kind_of_the_configuration_is_a_kind(self):
        if STORE == "server":
            self.skipTest("the server's configuration says which kinds there are")
        self.configure({"redis": {"stop": {"command": ["true"]}, "start": {"command": ["true"]}}})
        self.register("shop", "--database", "redis=cache:6379")

    def test_an_export_can_be_imported_again(self):
        self.register("shop", "--database", "postgres=10.0.1.5:5432", "--label", 'odd=":{}#\\ é')
        self.register("billing", "--database", "neo4j=i-0123456789abcdef0@10.0.1.6:7687")
        self.ok("app", "mark-stopped", "billing")
        exported = self.ok("app", "export").out
        for name in ("shop", "billing"):
            self.ok("app", "remove", name)
        self.assertEqual(self.ok("app", "import", "-", "--json", text=exported).json(), {"registered": 2, "replaced": 0})
        self.assertEqual(self.ok("app", "export").out, exported)

    def test_a_file_with_a_mistake_changes_nothing_and_the_line_is_named(self):
        good = "apps:\n  - {name: shop, urls: [http://x/], databases: [postgres=x:1]}\n"
        for bad, line, says in [("  - {urls: [http://x/]}\n", 3, "has no name"),
                                ("  - {name: b, urls: [http://x/], databases: [{kind: postgres, id: z}]}\n", 3, "postgres=10.0.1.5:5432"),
                                ("  - {name: shop, urls: [http://x/]}\n", 3, "twice"),
                                ("  - {name: b, urls: [x]}\n", 3, "is not a valid health URL"),
                                ("  - {name: b, urls: [http://x/], databases: [postgres=x]}\n", 3, "neither an EC2"),
                                ("  - {name: b, urls: [http://x/], colour: red}\n", 3, "no 'colour'"),
                                ("  - {name: b, urls: [http://x/], state: gone}\n", 3, "stopped or stop_requested")]:
            with self.subTest(bad=bad):
                result = self.fails(65, "app", "import", "-", text=good + bad)
                self.assertIn(says, result.err)
                self.assertIn(f"-:{line}: ", result.err)
        self.assertEqual(self.ok("app", "list", "--json").json()["apps"], [])

    def test_concurrent_changes_of_one_application_are_both_kept(self):
        """Conditional on version: of eight at once none is lost."""
        self.register("shop")
        before = self.ok("app", "show", "shop", "--json").json()["version"]
        results = []
        threads = [threading.Thread(target=lambda i=i: results.append(self.belay("app", "mark-stopped", "shop", "--by", f"w{i}")))
                   for i in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual([result.code for result in results], [0] * 8, results)
        shop = self.ok("app", "show", "shop", "--json").json()
        self.assertEqual(shop["state"], "stopped")
        self.assertNotEqual(shop["version"], before)

    def test_a_removed_application_is_gone(self):
        self.register("shop")
        self.ok("app", "remove", "shop")
        self.fails(66, "app", "show", "shop")
        self.fails(66, "app", "remove", "shop")

    def test_five_thousand_applications_are_read_whole(self):
        n = 5000
        if STORE in ("dynamodb", "appregistry"):
            n = 300  # each is a request of its own here; the pages are tried by test_appregistry
        text = "apps:\n" + "".join(f"  - {{name: app-{i:04}, urls: ['http://127.0.0.1:9/'], "
                                   f"databases: ['postgres=db-{i % 50}:5432']}}\n" for i in range(n))
        path = self.dir / "apps.yaml"
        path.write_text(text, encoding="utf-8")
        self.import_file(path, n)
        self.assertEqual(len(self.ok("app", "list", "--json").json()["apps"]), n)
        databases = self.ok("db", "list", "--json").json()["databases"]
        self.assertEqual([len(one["apps"]) for one in databases], [n // 50] * 50)
        self.ok("app", "mark-stopped", "app-0000")
        self.run_database()
        dry = self.belay("db", "stop", "--app", "app-0001", "--dry-run", "--json")
        self.assertEqual(dry.code, 75, dry)
        self.assertEqual(len(dry.json()["results"][0]["sharing_apps"]), n // 50 - 1)

    def import_file(self, path, n):
        import subprocess
        from shared_db_support import BELAY
        done = subprocess.run([BELAY, "app", "import", str(path), "--json"], env=self.environment({}), cwd=self.dir,
                              capture_output=True, timeout=300, encoding="utf-8")
        self.assertEqual(done.returncode, 0, done)
        self.assertEqual(json.loads(done.stdout)["registered"], n)


if __name__ == "__main__":
    main()
