"""The pages about lock stores and deployment state, on an SQLite file, DynamoDB Local, the S3 test server and PostgreSQL."""

import json
import os
import re

from page_support import BELAY, PageCase, Server, main, names_beside_the_database, postgresql
from dynamo_support import CREDENTIALS, REGION, Database, server_port
from s3_support import S3Server, environment

WHERE = ("--stack", "shop", "--environment", "prod")


class Sqlite(PageCase):
    PAGE = "docs/stores/sqlite.md"

    def test_the_url_and_the_command(self):
        self.only(r"^sqlite:PATH|^belay run")
        url, note = self.claim("sqlite:PATH").split(maxsplit=1)
        self.assertEqual(url, "sqlite:PATH[?NAME=VALUE[&NAME=VALUE]]")
        self.assertIn("`,` can replace `?` and `&`", note)
        for parameters in ("?durability=full&retain_events=1d", ",durability=full,retain_events=1d"):
            self.ok("list", "--store", f"sqlite:{self.dir}/x.db{parameters}")
        self.replace("/var/lib/belay/", f"{self.dir}/")
        self.replace("KEY -- COMMAND", "k -- true")
        self.type("belay run --store")

    def test_the_files(self):
        self.only(r"^belay.db ")
        listed = set(re.findall(r"^(?:.*, )?(belay\.db[\w.-]*)", self.claim("belay.db"), re.M)) | {"belay.db-ledger-0", "belay.db-serve.lock"}
        self.assertEqual(names_beside_the_database(self), listed)


class OnDynamodb(PageCase):
    def setUp(self):
        super().setUp()
        self.database = Database(server_port())
        self.addCleanup(self.database.close)
        self.env.update(CREDENTIALS, AWS_ENDPOINT_URL=f"http://127.0.0.1:{server_port()}")

    def actions(self):
        """By statement, of the policy that `belay table describe` prints."""
        policy = self.ok("table", "describe", "--json").json()["policy"]
        return {statement["Sid"]: set(statement["Action"]) for statement in policy["Statement"]}


class Dynamodb(OnDynamodb):
    PAGE = "docs/stores/dynamodb.md"
    STUBS = ("./deploy.sh",)

    def test_the_url_and_the_set_up(self):
        self.only(r"^dynamodb:TABLE|^export|^\{")
        self.assertTrue(self.claim("dynamodb:TABLE").startswith("dynamodb:TABLE[?NAME=VALUE[&NAME=VALUE]] "))
        self.replace("dynamodb:locks", f"dynamodb:locks-{os.getpid()}")
        self.type("export AWS_REGION")
        self.type("export BELAY_STORE")
        self.type("belay table create")
        self.type("belay run deploy-api-prod")
        self.assertEqual(self.ran(), ["deploy.sh"])
        self.acquire("deploy-api-prod")
        self.assertIn("deploy-api-prod", self.type("belay list").stdout)
        for parameters in ("?max_clock_skew=1s&observe=0", ",max_clock_skew=1s,observe=0"):
            self.ok("list", "--store", self.env["BELAY_STORE"] + parameters)
        (statement,) = json.loads(self.claim('{"Version"'))["Statement"]
        self.assertEqual(set(statement["Action"]), self.actions()["BelayLocks"] - {"dynamodb:DescribeTable"})

    def test_a_layout_of_your_own(self):
        self.only(r"^layouts:")
        text = self.claim("layouts:")
        config, command = text.rstrip("\n").rsplit("\n\n", 1)
        table = f"their-table-{os.getpid()}"
        self.database.create(table, keys=["PK", "SK"])
        self.addCleanup(self.database.ask, "DeleteTable", {"TableName": table})
        self.env["BELAY_CONFIG"] = str(self.write("c.yaml", config + "\n"))
        store = f"dynamodb:{table},layout=ours"
        lock = self.ok("acquire", "k", "--store", store, "--meta", "component=api", "--owner", "job-1", "--json").json()
        self.assertIn("job-1", self.shell(command.replace("their-table", table)).stdout)
        (item,) = [item for item in self.database.items(table) if item["PK"] == {"S": "LOCK#k"}]
        for name in ("SK", "LockID", "Owner", "ExpiresAt", "AcquiredAt", "TTL", "kind", "component"):
            self.assertIn(name, item)
        self.ok("release", "k", "--store", store, "--id", lock["lock_id"])
        self.assertNotIn({"S": "LOCK#k"}, [item["PK"] for item in self.database.items(table)])


class DynamodbIam(OnDynamodb):
    PAGE = "docs/stores/dynamodb-iam.md"

    def test_the_policy_is_the_one_that_table_describe_prints(self):
        policy = json.loads(self.claim("{"))
        self.env["BELAY_STORE"] = f"dynamodb:iam-{os.getpid()}?region={REGION}"
        self.ok("table", "create")
        self.assertEqual({statement["Sid"]: set(statement["Action"]) for statement in policy["Statement"]}, self.actions())


class Postgresql(PageCase):
    PAGE = "docs/stores/postgresql.md"
    STUBS = ("./deploy.sh",)
    ELSEWHERE = {r"a\.example|front\.yaml|^ +(psql|\(umask)": "test/postgresql/test_fronts.py"}

    def test_from_nothing_to_a_deployment(self):
        database = postgresql.Server().init().start(quick=False)  # 'belay doctor' objects to fsync=off
        self.addCleanup(database.close)
        for text in ("CREATE ROLE admin LOGIN", "CREATE ROLE deployers", "CREATE ROLE deploy LOGIN IN ROLE deployers",
                     "CREATE DATABASE locks OWNER admin"):
            database.sql(text)
        self.assertRegex(self.claim("postgresql://["), r"HOST\[:PORT\].*/DATABASE\[\?NAME=VALUE")
        self.replace("db.example", f"127.0.0.1:{database.port}")
        self.type("export BELAY_STORE")
        self.type("belay table create")
        self.type("export BELAY_STORE")
        self.assertNotIn("FAILED", self.type("belay doctor").stdout)
        self.type("belay run deploy-api")
        self.type("belay deploy --stack shop")
        self.assertEqual(self.ran(), ["deploy.sh", "deploy.sh"])
        self.take("belay serve")
        servers = [Server(self), Server(self)]
        servers[0].acquire("k")
        self.assertEqual(servers[1].get("/v1/locks/k").json()["status"], "active")


class S3(PageCase):
    PAGE = "docs/stores/s3.md"

    def test_the_url_and_the_command(self):
        server = S3Server("conditions")
        self.addCleanup(server.stop)
        self.env.update(environment(server.port, 1))
        self.assertTrue(self.claim("s3://BUCKET").startswith("s3://BUCKET[/PREFIX][?NAME=VALUE[&NAME=VALUE]] "))
        self.program("./deploy.sh", 'echo \'{"outputs":{"n":1}}\' >"$BELAY_STATE_OUT"')
        endpoint = f"endpoint=http://127.0.0.1:{server.port}"
        self.replace("s3://company-state/belay,region=eu-west-1", f"s3://states/belay,region=eu-west-1,{endpoint}")
        self.type("belay deploy")
        for url in (f"s3://states/belay?region=eu-west-1&{endpoint}", f"s3://states/belay,region=eu-west-1,{endpoint}"):
            self.assertEqual(self.ok("state", "load", *WHERE, "--state-store", url).json()["outputs"], {"n": 1})


class State(PageCase):
    PAGE = "docs/state.md"

    def deploy(self):
        script = self.claim("#!/bin/sh\n# deploy.sh\n")
        (self.dir / "deploy.sh").write_text(script)
        (self.dir / "deploy.sh").chmod(0o755)
        self.ok("state", "save", *WHERE, str(self.write("first.json", '{"outputs":{}}')))
        command = self.left[0]
        self.type("belay deploy --stack shop")
        self.assertEqual(self.ok("state", "load", *WHERE).json()["outputs"], {"url": "https://shop.example"})
        self.shell(command)

    def test_a_deployment_and_its_files(self):
        self.only(r"^belay deploy|^#!/bin/sh|^stacks/")
        self.deploy()
        listed = self.claim("stacks/STACK/ENVIRONMENT/state.json").replace("STACK", "shop").replace("ENVIRONMENT", "prod")
        root = self.dir / "belay.db-state"
        for name in re.findall(r"^(\S+\.json|\S+/) ", listed, re.M):
            self.assertTrue((root / name).exists(), name)
        form = re.sub(r"\\d|\d", r"\\d", re.escape(re.search(r"(\S+?)-2\.json", listed)[1]).replace("\\-", "-"))
        for path in (root / "stacks/shop/prod/history").iterdir():
            self.assertRegex(path.name, rf"\A{form}(-\d+)?\.json\Z")

    def test_every_kind_of_url_works(self):
        self.only(r"^file:DIR")
        forms = [line.split("   ")[0] for line in self.claim("file:DIR").splitlines()]
        self.assertEqual(len(forms), 4)
        s3 = S3Server("conditions")
        self.addCleanup(s3.stop)
        database = postgresql.Server().init().start()
        self.addCleanup(database.close)
        database.create_schema(BELAY)
        served = Server(self, "--store", f"sqlite:{self.dir}/served.db")
        self.env.update(environment(s3.port, 1), BELAY_STATE_STORE=None)
        places = {"DIR": f"{self.dir}/states", "BUCKET/PREFIX": "states/p", "region=R": "region=eu-west-1",
                  "endpoint=URL": f"endpoint=http://127.0.0.1:{s3.port}", "HOST/DATABASE": f"postgres@127.0.0.1:{database.port}/postgres",
                  "schema=NAME": "schema=belay", "http://HOST:PORT, https://HOST:PORT": served.url}
        for form in forms:
            url = form
            for name, value in places.items():
                url = url.replace(name, value)
            store = served.url if url == served.url else database.url if url.startswith("postgresql:") else self.store
            with self.subTest(url):
                self.ok("state", "save", *WHERE, "--store", store, "--state-store", url, str(self.write("s.json", '{"outputs":{"n":1}}')))
                loaded = self.ok("state", "load", *WHERE, "--store", store, "--state-store", url).json()
                self.assertEqual(loaded["outputs"], {"n": 1})

    def test_adopt_and_rebind(self):
        self.only(r"^belay state (adopt|rebind)")
        place = self.dir / "belay.db-state/stacks/shop/prod"
        place.mkdir(parents=True)
        (place / "state.json").write_text('{"format_version":"deployer-state-v1","metadata":{"stack":"shop","environment":"prod"},'
                                          '"resources":{},"outputs":{},"checksums":{"resources":"sha256:abc"}}')
        refused = self.fails(65, "state", "verify", *WHERE).err + self.fails(65, "state", "load", *WHERE).err
        self.assertEqual(refused.count("'belay state adopt'"), 2)
        self.replace("belay state adopt", "belay state adopt --yes")
        self.type("belay state adopt")
        self.ok("state", "verify", *WHERE)
        moved = f"sqlite:{self.dir}/new.db"
        content = json.dumps(self.ok("state", "load", *WHERE).json())
        states = f"file:{self.dir}/belay.db-state"
        again = ("state", "save", *WHERE, "--store", moved, "--state-store", states, str(self.write("s.json", content)))
        self.fails(78, *again)
        self.replace("NEW_LOCK_STORE --state-store STATE_STORE", f"{moved} --state-store {states} --yes")
        self.type("belay state rebind")
        self.ok(*again)


if __name__ == "__main__":
    main()
