"""Every source of credentials on a test server: it works, is renewed, and reports its faults."""
import datetime
import os
import tempfile
import textwrap
import unittest
import urllib.parse

from support import ID, SECRET, Driver, Server, closed_port, json_error, signature_is_right

HOUR = 3_600_000
ROLE = "arn:aws:iam::123456789012:role/deployer"


def in_an_hour(offset_ms=0):
    when = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(milliseconds=HOUR + offset_ms)
    return when.strftime("%Y-%m-%dT%H:%M:%SZ")


def sts_answer(kind, number, offset_ms=0):
    return 200, {"Content-Type": "text/xml"}, f"""<{kind}Response xmlns="https://sts.amazonaws.com/doc/2011-06-15/">
      <{kind}Result><Credentials><AccessKeyId>ASIA{number}</AccessKeyId><SecretAccessKey>secret-{number}</SecretAccessKey>
      <SessionToken>token-{number}</SessionToken><Expiration>{in_an_hour(offset_ms)}</Expiration></Credentials>
      </{kind}Result></{kind}Response>"""


def keys_json(number, offset_ms=0, token="Token"):
    return (f'{{"Code":"Success","AccessKeyId":"ASIA{number}","SecretAccessKey":"secret-{number}",'
            f'"{token}":"token-{number}","Expiration":"{in_an_hour(offset_ms)}"}}')


class Case(unittest.TestCase):
    def setUp(self):
        self.home = self.enterContext(tempfile.TemporaryDirectory())
        self.expired = set()  # access keys that DynamoDB does not take any more
        self.dynamodb = self.enterContext(Server(self.answer_dynamodb))

    def answer_dynamodb(self, seen, _):
        """Takes ASIAn only if it is signed with secret-n and carries token-n; AKIDEXAMPLE with its own."""
        key = seen["headers"]["Authorization"].split("Credential=")[1].split("/")[0]
        if key in self.expired:
            return json_error("ExpiredTokenException")
        if key.startswith("ASIA"):
            right = (signature_is_right(seen, "secret-" + key[4:], "dynamodb")
                     and seen["headers"]["X-Amz-Security-Token"] == "token-" + key[4:])
        else:
            right = signature_is_right(seen, SECRET, "dynamodb")
        return (200, {}, "{}") if right else json_error("InvalidSignatureException")

    def file(self, name, text, mode=0o600):
        path = os.path.join(self.home, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(textwrap.dedent(text))
        os.chmod(path, mode)
        return path

    def driver(self, opened="ok", options=None, **env):
        driver = self.enterContext(Driver(**{"HOME": self.home, "AWS_REGION": "eu-west-1",
                                             "AWS_ENDPOINT_URL_DYNAMODB": self.dynamodb.url, **env}))
        self.opened = driver("open", **(options or {}))
        self.assertEqual(self.opened["code"], opened, self.opened)
        return driver

    def call(self, driver):
        return driver("call", service="dynamodb", operation="GetItem", body="{}", headers=[], retry="none")

    def check(self, driver, key, origin):
        """A call is signed with this key, and `doctor` shows its source."""
        said = self.call(driver)
        self.assertEqual(said["code"], "ok", said)
        self.assertIn(f"Credential={key}/", self.dynamodb.seen[-1]["headers"]["Authorization"])
        self.assertEqual(driver("origin")["origin"], origin)

    def refused(self, driver, code, *words):
        """One line, with these words, and nothing was sent to DynamoDB."""
        said = self.call(driver)
        self.assertEqual(said["code"], code, said)
        for word in words:
            self.assertIn(word, said["text"])
        self.assertNotIn("\n", said["text"])
        for line in driver.said:
            self.assertNotIn("secret-", line)
            self.assertNotIn("token-", line)
            self.assertNotIn(SECRET, line)
        self.assertEqual(self.dynamodb.seen, [])


class Files(Case):
    def test_the_environment(self):
        driver = self.driver(AWS_ACCESS_KEY_ID=ID, AWS_SECRET_ACCESS_KEY=SECRET)
        self.check(driver, ID, "the environment (AWS_ACCESS_KEY_ID)")

    def test_the_credentials_file(self):
        path = self.file(".aws/credentials", f"""
            [default]
            aws_access_key_id = {ID}
            aws_secret_access_key = {SECRET}
            [ci]
            aws_access_key_id = ASIA7
            aws_secret_access_key = secret-7
            aws_session_token = token-7
            """)
        self.check(self.driver(), ID, f"profile 'default' in {path}")
        self.check(self.driver(AWS_PROFILE="ci"), "ASIA7", f"profile 'ci' in {path}")
        self.check(self.driver(AWS_DEFAULT_PROFILE="ci"), "ASIA7", f"profile 'ci' in {path}")
        self.check(self.driver(HOME="/nonexistent", AWS_SHARED_CREDENTIALS_FILE=path), ID, f"profile 'default' in {path}")
        self.check(self.driver(options={"profile": "ci"}, AWS_ACCESS_KEY_ID="x", AWS_SECRET_ACCESS_KEY="y"), "ASIA7",
                   f"profile 'ci' in {path}")

    def test_the_config_file_with_region_and_endpoint(self):
        path = self.file("elsewhere", f"""
            [profile ci]
            region = eu-west-1
            aws_access_key_id = {ID}
            aws_secret_access_key = {SECRET}
            services = local
            endpoint_url = http://127.0.0.1:1
            [services local]
            dynamodb =
              endpoint_url = {self.dynamodb.url}
            """)
        driver = self.driver(AWS_CONFIG_FILE=path, AWS_PROFILE="ci", AWS_REGION=None, AWS_ENDPOINT_URL_DYNAMODB=None)
        self.assertEqual((self.opened["region"], self.opened["region_origin"]), ("eu-west-1", "the profile"))
        self.assertEqual((self.opened["dynamodb"], self.opened["s3"]), (self.dynamodb.url, "http://127.0.0.1:1"))
        self.check(driver, ID, f"profile 'ci' in {path}")

    def test_a_profile_that_is_not_there(self):
        self.driver("bad_config", AWS_PROFILE="nobody")
        self.assertIn("no profile 'nobody'", self.opened["text"])
        self.assertIn(".aws/config", self.opened["text"])

    def test_half_a_pair_of_keys(self):
        self.file(".aws/credentials", "[default]\naws_access_key_id = x\n")
        self.refused(self.driver(), "bad_config", "default", "aws_secret_access_key")

    def test_a_broken_file(self):
        path = self.file(".aws/credentials", f"[default]\n{SECRET}\n")
        driver = self.driver("bad_config")
        self.assertIn(f"{path}, line 2", self.opened["text"])
        self.assertNotIn(SECRET, driver.said[0])

    def test_sso_says_what_to_use_instead(self):
        self.file(".aws/config", "[default]\nsso_session = corp\n[sso-session corp]\nsso_start_url = https://x\n")
        self.refused(self.driver(), "bad_config", "credential_process", "export-credentials")

    def test_without_any_source_there_are_no_credentials(self):
        self.refused(self.driver(), "bad_config", "no AWS credentials", "AWS_ACCESS_KEY_ID")

    def test_new_keys_in_the_file_are_picked_up_when_the_old_are_refused(self):
        text = "[default]\naws_access_key_id = ASIA{0}\naws_secret_access_key = secret-{0}\naws_session_token = token-{0}\n"
        path = self.file(".aws/credentials", text.format(1))
        driver = self.driver()
        self.check(driver, "ASIA1", f"profile 'default' in {path}")
        self.file(".aws/credentials", text.format(2))
        self.check(driver, "ASIA1", f"profile 'default' in {path}")
        self.expired.add("ASIA1")
        self.check(driver, "ASIA2", f"profile 'default' in {path}")
        self.assertEqual(len(self.dynamodb.seen), 4)


class Process(Case):
    def set_up(self, body, command="{}"):
        path = self.file("bin/get keys", "#!/bin/sh\n" + body, 0o700)
        self.file(".aws/config", f"[profile p]\ncredential_process = {command.format(chr(34) + path + chr(34))}\n")
        return self.driver(AWS_PROFILE="p")

    def test_a_credential_process_runs_without_a_shell_and_again_when_its_keys_expire(self):
        driver = self.set_up(f"""
            [ "$1" = 'a b' ] && [ "$2" = '$HOME;' ] || exit 3
            n=$(cat "$HOME/n" 2>/dev/null || echo 0); n=$((n + 1)); echo $n >"$HOME/n"
            if [ $n = 1 ]; then at='{in_an_hour()}'; else at='{in_an_hour(HOUR)}'; fi
            echo '{{"Version":1,"AccessKeyId":"ASIA'$n'","SecretAccessKey":"secret-'$n'","SessionToken":"token-'$n'",'
            echo '"Expiration":"'$at'"}}'
            """, "{} 'a b' $HOME;")
        self.check(driver, "ASIA1", "credential_process of profile 'p'")
        driver("wait", ms=46 * 60_000)
        self.check(driver, "ASIA2", "credential_process of profile 'p'")

    def test_a_credential_process_inherits_only_its_standard_streams(self):
        driver = self.set_up(f"""
            ls -l /proc/$$/fd >"$HOME/fds"
            echo '{{"Version":1,"AccessKeyId":"ASIA1","SecretAccessKey":"secret-1","SessionToken":"token-1",'
            echo '"Expiration":"{in_an_hour()}"}}'
            """)
        self.assertEqual(self.call(driver)["code"], "ok")
        driver("wait", ms=46 * 60_000)  # the connection to DynamoDB is open by now
        self.assertEqual(self.call(driver)["code"], "ok")
        with open(os.path.join(self.home, "fds"), encoding="utf-8") as file:
            fds = file.read()
        self.assertIn("pipe:", fds)
        self.assertNotIn("socket:", fds)

    def test_a_failing_credential_process_is_quoted_without_secrets(self):
        driver = self.set_up(f"echo 'please log in {SECRET}' >&2; echo second >&2; exit 4\n")
        self.refused(driver, "not_permitted", "profile 'p'", "status 4", "please log in ****")

    def test_a_credential_process_that_prints_nonsense_is_an_error(self):
        self.refused(self.set_up("echo secret-1\n"), "bad_content", "\"Version\": 1")
        self.refused(self.set_up("echo '{\"Version\":2}'\n"), "bad_content", "\"Version\": 1")
        self.refused(self.set_up("echo '{\"Version\":1,\"AccessKeyId\":\"x\"}'\n"), "bad_content", "SecretAccessKey")
        self.refused(self.set_up("yes token- | head -c 200000\n"), "bad_content", "more than")

    def test_a_credential_process_that_prints_expired_keys_is_an_error(self):
        old = '{"Version":1,"AccessKeyId":"A","SecretAccessKey":"secret-1","Expiration":"2020-01-01T00:00:00Z"}'
        self.refused(self.set_up(f"echo '{old}'\n"), "not_permitted", "expired")

    def test_a_missing_credential_process_is_an_error(self):
        self.refused(self.set_up("", "/nonexistent/x {}"), "bad_config", "/nonexistent/x")

    def test_a_credential_process_with_an_open_quote_is_an_error(self):
        self.refused(self.set_up("", "'{}"), "bad_config", "open quote")


class Sts(Case):
    def setUp(self):
        super().setUp()
        self.lifetime_ms = 0
        self.sts_error = None
        self.sts = self.enterContext(Server(self.answer_sts))
        self.form = {}

    def answer_sts(self, seen, number):
        self.form = dict(urllib.parse.parse_qsl(seen["body"].decode(), keep_blank_values=True))
        if self.sts_error:
            return (403, {}, f"<ErrorResponse><Error><Code>{self.sts_error}</Code><Message>is not authorized to perform: "
                    "sts:AssumeRole</Message></Error></ErrorResponse>")
        return sts_answer(self.form["Action"], number, self.lifetime_ms * (number - 1))

    def driver(self, opened="ok", options=None, **env):
        return super().driver(opened, options, **{"AWS_ENDPOINT_URL_STS": self.sts.url, **env})

    def test_a_role_is_assumed_with_another_profile_and_again_in_time(self):
        path = self.file(".aws/credentials", f"[base]\naws_access_key_id={ID}\naws_secret_access_key={SECRET}\n")
        self.file(".aws/config", f"""
            [profile app]
            role_arn = {ROLE}
            source_profile = base
            external_id = a b&c
            duration_seconds = 900
            role_session_name = me
            """)
        driver = self.driver(AWS_PROFILE="app")
        self.lifetime_ms = HOUR
        self.check(driver, "ASIA1", f"role {ROLE}, assumed with those from profile 'base' in {path}")
        self.assertTrue(signature_is_right(self.sts.seen[0], SECRET, "sts"))
        self.assertEqual(self.form, {"Action": "AssumeRole", "Version": "2011-06-15", "RoleArn": ROLE, "ExternalId": "a b&c",
                                     "RoleSessionName": "me", "DurationSeconds": "900"})
        driver("wait", ms=44 * 60_000)
        self.assertEqual(self.call(driver)["code"], "ok")
        self.assertEqual(len(self.sts.seen), 1)
        driver("wait", ms=2 * 60_000)
        self.check(driver, "ASIA2", f"role {ROLE}, assumed with those from profile 'base' in {path}")
        self.assertEqual(len(self.sts.seen), 2)

    def test_a_role_is_assumed_with_a_role(self):
        self.file(".aws/config", f"""
            [profile a]
            role_arn = {ROLE}
            source_profile = b
            [profile b]
            role_arn = {ROLE}2
            source_profile = b
            aws_access_key_id = {ID}
            aws_secret_access_key = {SECRET}
            [profile c]
            role_arn = {ROLE}3
            source_profile = a
            """)
        driver = self.driver(AWS_PROFILE="c")
        self.assertEqual(self.call(driver)["code"], "ok")
        roles = [dict(urllib.parse.parse_qsl(seen["body"].decode()))["RoleArn"] for seen in self.sts.seen]
        self.assertEqual(roles, [ROLE, ROLE + "3"])
        self.assertTrue(signature_is_right(self.sts.seen[1], "secret-1", "sts"))

    def test_a_role_is_assumed_with_the_environment(self):
        self.file(".aws/config", f"[profile e]\nrole_arn = {ROLE}\ncredential_source = Environment\n")
        driver = self.driver(options={"profile": "e"}, AWS_ACCESS_KEY_ID=ID, AWS_SECRET_ACCESS_KEY=SECRET)
        self.check(driver, "ASIA1", f"role {ROLE}, assumed with those from the environment (AWS_ACCESS_KEY_ID)")
        self.assertTrue(self.form["RoleSessionName"].startswith("belay-"))

    def test_without_a_region_the_role_is_assumed_in_us_east_1(self):
        self.file(".aws/config", f"[profile e]\nrole_arn = {ROLE}\ncredential_source = Environment\n")
        driver = self.driver(options={"profile": "e"}, AWS_ACCESS_KEY_ID=ID, AWS_SECRET_ACCESS_KEY=SECRET, AWS_REGION=None)
        self.assertEqual(driver("origin")["code"], "ok")
        self.assertTrue(signature_is_right(self.sts.seen[0], SECRET, "sts", "us-east-1"))

    def test_a_web_identity_from_the_environment_unsigned_and_renewed(self):
        path = self.file("token", "eyJ.first\n")
        driver = self.driver(AWS_WEB_IDENTITY_TOKEN_FILE=path, AWS_ROLE_ARN=ROLE, AWS_ROLE_SESSION_NAME="pod")
        self.lifetime_ms = HOUR
        self.check(driver, "ASIA1", f"role {ROLE}, by the web identity in {path}")
        self.assertEqual(self.form, {"Action": "AssumeRoleWithWebIdentity", "Version": "2011-06-15", "RoleArn": ROLE,
                                     "RoleSessionName": "pod", "WebIdentityToken": "eyJ.first"})
        self.assertIsNone(self.sts.seen[0]["headers"]["Authorization"])
        self.file("token", "eyJ.second")
        driver("wait", ms=50 * 60_000)
        self.check(driver, "ASIA2", f"role {ROLE}, by the web identity in {path}")
        self.assertEqual(self.form["WebIdentityToken"], "eyJ.second")

    def test_a_web_identity_from_a_profile(self):
        path = self.file("token", "eyJ")
        self.file(".aws/config", f"[profile w]\nrole_arn = {ROLE}\nweb_identity_token_file = {path}\n")
        self.check(self.driver(AWS_PROFILE="w"), "ASIA1", f"role {ROLE}, by the web identity in {path}")

    def test_a_web_identity_that_is_broken(self):
        self.refused(self.driver(AWS_WEB_IDENTITY_TOKEN_FILE="/nonexistent/t", AWS_ROLE_ARN=ROLE), "bad_config",
                     "/nonexistent/t", ROLE)
        path = self.file("token", "eyJ")
        self.refused(self.driver(AWS_WEB_IDENTITY_TOKEN_FILE=path), "bad_config", "AWS_ROLE_ARN")
        self.refused(self.driver(AWS_WEB_IDENTITY_TOKEN_FILE=self.file("empty", "\n"), AWS_ROLE_ARN=ROLE), "bad_config",
                     "empty")
        self.sts_error = "InvalidIdentityToken"
        self.refused(self.driver(AWS_WEB_IDENTITY_TOKEN_FILE=path, AWS_ROLE_ARN=ROLE), "not_permitted", "InvalidIdentityToken")

    def test_a_role_that_may_not_be_assumed(self):
        self.file(".aws/config", f"[profile e]\nrole_arn = {ROLE}\ncredential_source = Environment\n")
        self.sts_error = "AccessDenied"
        driver = self.driver(options={"profile": "e"}, AWS_ACCESS_KEY_ID=ID, AWS_SECRET_ACCESS_KEY=SECRET)
        self.refused(driver, "not_permitted", "assume role", ROLE, "sts:AssumeRole")

    def test_sts_that_cannot_be_reached_did_nothing(self):
        self.file(".aws/config", f"[profile e]\nrole_arn = {ROLE}\ncredential_source = Environment\n")
        driver = self.driver(options={"profile": "e"}, AWS_ACCESS_KEY_ID=ID, AWS_SECRET_ACCESS_KEY=SECRET,
                             AWS_ENDPOINT_URL_STS=f"http://127.0.0.1:{closed_port()}")
        self.refused(driver, "unreachable", "cannot reach")

    def test_roles_that_cannot_work_say_why(self):
        for text, word in [("source_profile = nobody", "nobody"), ("source_profile = y", "circle"), ("", "source_profile"),
                           ("source_profile = z\ncredential_source = Environment", "keep one"),
                           ("credential_source = Moon", "Ec2InstanceMetadata"), ("source_profile = z\nmfa_serial = m", "MFA"),
                           ("source_profile = empty", "has no credentials")]:
            with self.subTest(text):
                self.file(".aws/config", f"[profile x]\nrole_arn = r\n{text}\n[profile y]\nrole_arn = r\nsource_profile = x\n"
                          "[profile z]\naws_access_key_id = a\naws_secret_access_key = b\n[profile empty]\nregion = r\n")
                self.refused(self.driver(options={"profile": "x"}), "bad_config", word)
        self.assertEqual(self.sts.seen, [])


class Endpoints(Case):
    def test_a_container_with_a_token_file_that_changes(self):
        container = self.enterContext(Server(lambda _, n: (200, {}, keys_json(n, HOUR * (n - 1)))))
        token = self.file("token", "Bearer one\n")
        driver = self.driver(AWS_CONTAINER_CREDENTIALS_FULL_URI=container.url + "/creds",
                             AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE=token)
        self.check(driver, "ASIA1", "the container endpoint")
        self.assertEqual((container.seen[0]["method"], container.seen[0]["path"]), ("GET", "/creds"))
        self.assertEqual(container.seen[0]["headers"]["Authorization"], "Bearer one")
        self.file("token", "Bearer two\n")
        driver("wait", ms=46 * 60_000)
        self.check(driver, "ASIA2", "the container endpoint")
        self.assertEqual(container.seen[1]["headers"]["Authorization"], "Bearer two")

    def test_a_container_that_is_broken(self):
        for answer, code, word in [((403, {}, "secret-1"), "not_permitted", "HTTP 403"), ((500, {}, ""), "unreachable", "HTTP 500"),
                                   ((200, {}, "secret-1"), "bad_content", "JSON"),
                                   ((200, {}, '{"AccessKeyId":"x"}'), "bad_content", "SecretAccessKey"),
                                   ((200, {}, b"{" * 100_000), "unreachable", "too large")]:
            container = self.enterContext(Server(lambda *_, a=answer: a))
            self.refused(self.driver(AWS_CONTAINER_CREDENTIALS_FULL_URI=container.url), code, "container", word)
        self.refused(self.driver(AWS_CONTAINER_CREDENTIALS_FULL_URI=f"http://127.0.0.1:{closed_port()}"), "unreachable")
        self.refused(self.driver(AWS_CONTAINER_CREDENTIALS_FULL_URI="http://127.0.0.1:1",
                                 AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE="/nonexistent/t"), "bad_config", "/nonexistent/t")

    def imds(self, lifetime_ms=0, **answers):
        state = {"n": 0}

        def answer(seen, _):
            path = seen["path"].removeprefix("/latest/")
            if path == "api/token":
                right = seen["method"] == "PUT" and seen["headers"]["x-aws-ec2-metadata-token-ttl-seconds"] == "21600"
                return answers.get("token", (200, {}, "IMDSTOKEN") if right else (400, {}, ""))
            if "token" not in answers and seen["headers"]["x-aws-ec2-metadata-token"] != "IMDSTOKEN":
                return 401, {}, ""
            if path == "meta-data/iam/security-credentials/":
                return answers.get("role", (200, {}, "web"))
            if path == "meta-data/iam/security-credentials/web":
                state["n"] += 1
                return answers.get("keys", (200, {}, keys_json(state["n"], lifetime_ms * (state["n"] - 1))))
            return 404, {}, ""
        return self.enterContext(Server(answer))

    def on_ec2(self, server, **env):
        return self.driver(AWS_EC2_METADATA_DISABLED=None, AWS_EC2_METADATA_SERVICE_ENDPOINT=server.url + "/", **env)

    def test_an_instance_and_again_in_time(self):
        driver = self.on_ec2(self.imds(HOUR))
        self.check(driver, "ASIA1", "the EC2 instance's role 'web'")
        driver("wait", ms=46 * 60_000)
        self.check(driver, "ASIA2", "the EC2 instance's role 'web'")

    def test_an_instance_without_version_2(self):
        server = self.imds(token=(404, {}, ""))
        self.check(self.on_ec2(server), "ASIA1", "the EC2 instance's role 'web'")
        self.dynamodb.seen.clear()
        self.refused(self.on_ec2(server, AWS_EC2_METADATA_V1_DISABLED="true"), "bad_config", "AWS_EC2_METADATA_V1_DISABLED")

    def test_an_instance_that_is_broken(self):
        self.refused(self.on_ec2(self.imds(token=(400, {}, ""))), "not_permitted", "HTTP 400")
        self.refused(self.on_ec2(self.imds(token=(503, {}, ""))), "unreachable", "HTTP 503")
        self.refused(self.on_ec2(self.imds(role=(404, {}, ""))), "bad_config", "no AWS credentials")
        self.refused(self.on_ec2(self.imds(role=(200, {}, "../../x"))), "bad_config", "no AWS credentials")
        self.refused(self.on_ec2(self.imds(keys=(200, {}, '{"Code":"Failed","Message":"ask again"}'))), "not_permitted",
                     "ask again")
        gone = Server(lambda *_: None)
        gone.__exit__()
        self.refused(self.on_ec2(gone), "unreachable", "instance metadata")

    def test_a_role_is_assumed_with_the_instance(self):
        sts = self.enterContext(Server(lambda _, n: sts_answer("AssumeRole", n + 50)))
        self.file(".aws/config", f"[profile i]\nrole_arn = {ROLE}\ncredential_source = Ec2InstanceMetadata\n")
        driver = self.on_ec2(self.imds(), AWS_PROFILE="i", AWS_ENDPOINT_URL_STS=sts.url)
        self.check(driver, "ASIA51", f"role {ROLE}, assumed with those from the EC2 instance's role 'web'")
        self.assertTrue(signature_is_right(sts.seen[0], "secret-1", "sts"))

    def test_of_many_threads_one_fetches_credentials(self):
        container = self.enterContext(Server(lambda _, n: (200, {}, keys_json(n))))
        driver = self.driver(AWS_CONTAINER_CREDENTIALS_FULL_URI=container.url)
        self.assertEqual(driver("threads", n=16, each=3, service="dynamodb", body="{}", headers=[], retry="none"), {"ok": 48})
        self.assertEqual(len(container.seen), 1)


if __name__ == "__main__":
    unittest.main()
