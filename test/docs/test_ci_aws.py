"""docs/ci.md and docs/aws.md: what they show is typed, as far as it can run without a CI system and without AWS."""

import re
import subprocess

import yaml
from page_support import PATIENCE, ROOT, PageCase, Server, main, wait_until
from support import free_port


class Ci(PageCase):
    PAGE = "docs/ci.md"
    STUBS = ("./deploy.sh",)

    def test_the_page(self):
        self.only("^(export|belay: )")
        server = Server(self)
        self.replace("https://locks.example.com:7420", server.url)
        self.type("export BELAY_STORE")
        self.assertEqual(self.take("export"), "export BELAY_AUTH_TOKEN=…")
        self.env.update(GITHUB_ACTIONS="true", GITHUB_RUN_ID="812", GITHUB_SERVER_URL="https://github.example", GITHUB_REPOSITORY="o/r")
        command = self.left[0]
        self.type("belay run")
        shown = self.claim("belay: 2nd in the queue").strip()
        self.assertEqual(self.ran(), ["deploy.sh"])
        self.program("./deploy.sh", "until [ -e go ]; do sleep 0.05; done")
        jobs = []
        for i in range(3):
            jobs.append(subprocess.Popen(["bash", "-c", command], env=self.env, cwd=self.dir, stderr=subprocess.PIPE, encoding="utf-8"))
            self.addCleanup(self.end, jobs[-1])
            wait_until(lambda: len(self.queue()) == i and self.belay("status", "--quiet", "deploy-api-prod").out == "active\n", "a waiter")
        self.assertEqual(self.normal(jobs[2].stderr.readline().strip()), self.normal(shown))
        (self.dir / "go").touch()
        self.assertEqual([job.wait(PATIENCE) for job in jobs], [0, 0, 0])

    def queue(self):
        status = self.belay("status", "--json", "deploy-api-prod")
        return status.json()["waiting"] if status.code == 0 else []

    @staticmethod
    def normal(line):
        line = re.sub(r"held by \S+@\S+ ", "held by USER ", line)
        return re.sub(r"for [\dms ]+ \(https://[^)]*\)", "for SPAN (URL)", line)

    def test_the_step_gives_the_action_inputs_that_it_has(self):
        self.only("^- uses:")
        step = yaml.safe_load(self.claim("- uses: ./deploy/github-action"))[0]
        action = yaml.safe_load((ROOT / step["uses"] / "action.yml").read_text(encoding="utf-8"))
        self.assertLessEqual(set(step["with"]), set(action["inputs"]))
        self.assertLessEqual({name for name, one in action["inputs"].items() if one.get("required")}, set(step["with"]))
        self.assertIn(f"default: {action['inputs']['ttl']['default'].replace('m', ' minutes')}", self.text)


class Aws(PageCase):
    PAGE = "docs/aws.md"

    def setUp(self):
        super().setUp()
        self.config = self.dir / "aws-config"
        self.env.update(AWS_CONFIG_FILE=str(self.config), AWS_EC2_METADATA_DISABLED="true", AWS_MAX_ATTEMPTS="1")

    def test_a_profile_names_the_endpoint_of_a_service(self):
        self.only("profile local")
        port = free_port()  # nothing listens there
        self.config.write_text(self.claim("[profile local]").replace("localhost:8000", f"127.0.0.1:{port}"))
        self.env.update(AWS_PROFILE="local", AWS_ACCESS_KEY_ID="a", AWS_SECRET_ACCESS_KEY="b")
        self.assertIn(f"127.0.0.1:{port}", self.fails(69, "status", "k", "--store", "dynamodb:locks").err)

    def test_a_profile_runs_the_aws_cli_for_credentials(self):
        self.only("profile belay")
        self.program("aws", f"""echo "$*" >>{self.dir}/ran
            echo '{{"Version": 1, "AccessKeyId": "a", "SecretAccessKey": "b"}}'""")
        self.config.write_text(self.claim("[profile belay]"))
        self.env.update(AWS_PROFILE="belay", AWS_REGION="eu-west-1", AWS_ENDPOINT_URL=f"http://127.0.0.1:{free_port()}")
        self.fails(69, "status", "k", "--store", "dynamodb:locks")
        self.assertEqual(" ".join(self.ran()), "configure export-credentials --profile my-sso --format process")

    def test_the_messages_are_those_of_the_program(self):
        self.blocks = []
        for env, message in (({}, "no AWS region"), ({"AWS_REGION": "eu-west-1"}, "no AWS credentials"),
                             ({"AWS_REGION": "eu-west-1", "AWS_PROFILE": "x"}, "there is no profile 'x'")):
            self.assertIn(f"| {message} |", self.text)
            self.assertIn(message, self.belay("status", "k", "--store", "dynamodb:locks", env=env).err)

    def test_the_module_is_given_variables_that_it_has(self):
        self.only("^module")
        module = self.claim('module "belay" {')
        given = dict(re.findall(r'^  (\w+)\s+= "([^"]*)"$', module, re.M))
        folder = ROOT / given.pop("source")
        declared = re.findall(r'^variable "(\w+)" \{\n(.*?)^\}', (folder / "variables.tf").read_text(encoding="utf-8"), re.M | re.S)
        self.assertLessEqual(set(given), {name for name, _ in declared})
        self.assertLessEqual({name for name, body in declared if "default" not in body}, set(given))


if __name__ == "__main__":
    main()
