"""docs/terraform.md, with the real terraform."""

import json
import re
import shutil

from page_support import PageCase, Server, main, wait_until
from server_support import sha256

MAIN = 'resource "terraform_data" "it" {\n  input = "%s"\n}\n'


class TerraformPage(PageCase):
    PAGE = "docs/terraform.md"
    ELSEWHERE = {r"network-W": "test/s3/test_terraform_moves.py"}
    BACKEND = r'^terraform \{\n  backend'

    def setUp(self):
        super().setUp()
        if shutil.which("terraform") is None:
            self.blocks = []
            self.skipTest("terraform is not installed")
        self.write("terraformrc", "disable_checkpoint = true\n")
        self.env.update(TF_CLI_CONFIG_FILE=str(self.dir / "terraformrc"), TF_IN_AUTOMATION="1", TF_CLI_ARGS_apply="-auto-approve",
                        TF_CLI_ARGS_init="-force-copy")
        self.write("main.tf", MAIN % "1")
        self.backend = next(block.text for block in self.blocks if re.match(self.BACKEND, block.text))

    def use(self, server, change=lambda text: text):
        self.write("backend.tf", change(self.backend).replace("http://127.0.0.1:7420", server.url))

    def test_from_nothing_and_from_a_local_state(self):
        self.only(rf"^belay serve$|{self.BACKEND}|^terraform init$|^terraform init\n|migrate-state")
        self.take("belay serve")
        server = Server(self)
        self.claim(self.backend)
        self.use(server)
        self.type("terraform init")
        self.type("terraform apply")
        self.assertEqual(len(server.get("/v1/terraform").json()["states"]), 1)
        (self.dir / "backend.tf").unlink()
        self.shell("terraform init -migrate-state")
        self.write("main.tf", MAIN % "2")
        self.shell("terraform apply")
        self.use(server)
        self.type("terraform init -migrate-state")
        self.assertIn("No changes", self.shell("terraform plan").stdout)

    def test_tokens_and_settings(self):
        self.only(r"^export TF_HTTP|^server:\n  terraform")
        user, password = self.claim("export TF_HTTP_USERNAME").splitlines()
        tokens = f'  tokens:\n    - {{"name":"ci","role":"locker","sha256":"{sha256("tf-token")}"}}\n'
        server = Server(self, config=self.write("c.yaml", self.claim("server:\n  terraform:") + tokens))
        self.use(server)
        self.run_line(user)
        self.shell("terraform init", 1)
        self.run_line(password.replace("…", "tf-token"))
        self.shell("terraform init")
        self.shell("terraform apply")

    def test_a_lease_and_a_lock_in_the_way(self):
        self.only(r"^lock_address = |^Error: Error")
        lease = self.claim("lock_address = ").strip()
        server = Server(self)
        self.use(server, lambda text: re.sub(r"^    lock_address .*$", f"    {lease}", text, flags=re.M))
        self.shell("terraform init")
        self.shell("terraform apply")
        self.assertEqual(self.ok("status", "--json", "terraform/network-prod").json()["ttl_ms"], 30 * 60000)
        self.acquire("terraform/network-prod")
        plain = re.sub(r"\x1b\[[\d;]*m|[│╷╵] ?", "", self.shell("terraform apply -no-color", 1).stderr)
        for line in self.claim("Error: Error").splitlines():
            self.assertRegex(re.sub(r"\s+", " ", plain), re.sub(r"ID=.*", r"ID=\\S+", line))

    def test_versions(self):
        self.only(r"^url=http://127.0.0.1:7420\n|force=true")
        server = Server(self)
        self.use(server)
        self.shell("terraform init")
        for value in "12":
            self.write("main.tf", MAIN % value)
            self.shell("terraform apply")
        self.take("url=")
        self.env["url"] = server.url
        self.assertEqual(len(json.loads(self.type("curl").stdout)["versions"]), 2)
        self.type("curl")
        older = json.loads((self.dir / "older.tfstate").read_text())
        self.assertEqual(older["resources"][0]["instances"][0]["attributes"]["input"]["value"], "1")
        self.type("curl -d")
        self.assertIn('input = "1"', self.shell("terraform state show -no-color terraform_data.it").stdout.replace("  ", " "))
        self.shell("terraform apply")
        self.shell("terraform state push -force older.tfstate", 1)
        self.replace("http://127.0.0.1:7420", server.url)
        for start in ("terraform init", "terraform state push", "terraform init"):
            self.type(start)
        self.assertEqual(json.loads(self.shell("terraform state pull").stdout)["resources"], older["resources"])

    def test_other_methods_for_a_proxy(self):
        self.only(r"^ *lock_address   = .*/lock")
        lines = self.claim("    lock_address   = ")
        server = Server(self)
        self.use(server, lambda text: re.sub(r"(?m)^    (un)?lock_address .*\n", "", text).replace("  }\n", lines + "  }\n"))
        self.shell("terraform init")
        self.shell("terraform apply")
        for method in ("POST", "DELETE"):
            wait_until(lambda: f'"method":"{method}","path":"/v1/terraform/network-prod/lock"' in server.log(), method)  # noqa: B023


if __name__ == "__main__":
    main()
