"""docs/terraform.md, "Move from S3 and DynamoDB": the real terraform moves a state from its s3 backend to belay, and back."""

import json
import sys

from s3_support import OnS3, ROOT  # first: it sets the module path
from server_support import main
from test_terraform import TerraformCase

sys.path.append(str(ROOT / "test" / "dynamodb"))
from dynamo_support import Database, server_port  # noqa: E402

S3_BACKEND = """
  backend "s3" {{
    bucket         = "states"
    key            = "{number}/terraform.tfstate"
    region         = "us-east-1"
    dynamodb_table = "{table}"
    use_path_style = true
    endpoints      = {{ s3 = "http://127.0.0.1:{s3}", dynamodb = "http://127.0.0.1:{dynamodb}" }}

    skip_credentials_validation = true
    skip_metadata_api_check     = true
    skip_requesting_account_id  = true
    skip_region_validation      = true
    skip_s3_checksum            = true
  }}"""
HTTP_BACKEND = """
  backend "http" {{
    address        = "{0}"
    lock_address   = "{0}"
    unlock_address = "{0}"
  }}"""
MAIN = """
terraform {{{0}
}}
resource "terraform_data" "it" {{
  input = "here"
}}
output "it" {{
  value = terraform_data.it.output
}}
"""


class Moves(OnS3, TerraformCase):
    def setUp(self):
        super().setUp()
        self.database = Database(server_port())
        self.addCleanup(self.database.close)
        self.table = f"terraform-moves-{self.s3.port}-{self.number}"
        self.database.create(self.table, "terraform")
        self.addCleanup(self.database, "DeleteTable", TableName=self.table)
        self.terraform_env.update({name: value for name, value in self.env.items() if name.startswith("AWS_")})
        self.terraform_env["no_proxy"] = "*"
        self.path = self.dir / "moves"
        self.path.mkdir()

    def use(self, backend):
        (self.path / "main.tf").write_text(MAIN.format(backend))

    def serial(self):
        return json.loads(self.terraform_out(self.path, "state", "pull"))["serial"]

    def test_workspaces_become_states_of_their_own(self):
        self.use(S3_BACKEND.format(number=self.number, table=self.table, s3=self.s3.port, dynamodb=self.database.port))
        self.terraform(self.path, "init")
        for workspace in ("default", "staging"):
            if workspace != "default":
                self.terraform(self.path, "workspace", "new", workspace)
            self.terraform(self.path, "apply", "-auto-approve")
            (self.path / f"{workspace}.tfstate").write_text(self.terraform_out(self.path, "state", "pull"))
        self.terraform(self.path, "workspace", "select", "default")
        self.use('\n  backend "http" {}')
        for workspace in ("default", "staging"):
            address = f"{self.server.url}/v1/terraform/network-{workspace}"
            self.terraform(self.path, "init", "-reconfigure", f"-backend-config=address={address}",
                           f"-backend-config=lock_address={address}", f"-backend-config=unlock_address={address}")
            self.terraform(self.path, "state", "push", f"{workspace}.tfstate")
            self.assertIn("No changes", self.terraform(self.path, "plan"))
            pushed = json.loads((self.path / f"{workspace}.tfstate").read_text())
            moved = self.server.get(f"/v1/terraform/network-{workspace}").json()
            self.assertEqual([moved[part] for part in ("resources", "outputs")], [pushed[part] for part in ("resources", "outputs")])

    def test_a_state_moves_from_s3_and_dynamodb_to_belay_and_back(self):
        s3 = S3_BACKEND.format(number=self.number, table=self.table, s3=self.s3.port, dynamodb=self.database.port)
        self.use(s3)
        self.terraform(self.path, "init")
        self.terraform(self.path, "apply", "-auto-approve")
        before = self.serial()
        self.assertTrue(self.database.items(self.table), "the table was in use: it has the state's checksum")
        address = f"{self.server.url}/v1/terraform/network-prod"
        self.use(HTTP_BACKEND.format(address))
        self.terraform(self.path, "init", "-migrate-state", "-force-copy")
        self.assertIn("No changes", self.terraform(self.path, "plan"))
        moved = self.server.get("/v1/terraform/network-prod").json()
        self.assertEqual((moved["outputs"]["it"]["value"], moved["serial"] >= before), ("here", True))
        self.assertEqual(self.server.get("/v1/locks/terraform%2Fnetwork-prod").json()["status"], "released")
        self.terraform(self.path, "apply", "-auto-approve")
        self.use(s3)
        self.terraform(self.path, "init", "-migrate-state", "-force-copy")
        self.assertIn("No changes", self.terraform(self.path, "plan"))


if __name__ == "__main__":
    main()
