"""Error messages: one line that says what to do, without secrets (issue 3)."""
import signal
import socket
import subprocess

from dynamo_support import CREDENTIALS, DynamoCase, REGION
from support import main

DENIED = ("User: arn:aws:iam::123456789012:user/ci is not authorized to perform: dynamodb:UpdateItem on resource: "
          "arn:aws:dynamodb:us-east-1:123456789012:table/locks because no identity-based policy allows it")


class Errors(DynamoCase):
    PROXY = True

    def one_line(self, result, *words):
        lines = result.err.splitlines()
        self.assertEqual(len(lines), 1, result)
        self.assertTrue(lines[0].startswith("belay: "), result)
        for word in words:
            self.assertIn(word, lines[0])
        self.assertNotIn(CREDENTIALS["AWS_SECRET_ACCESS_KEY"], result.err)
        return lines[0]

    def commands(self):
        return (["acquire", "k"], ["status", "k"], ["list"], ["run", "k", "--", "true"],
                ["release", "k", "--id", "x"])

    def test_a_missing_table(self):
        env = {"BELAY_STORE": self.url(table="no-such-table")}
        for command in self.commands():
            result = self.fails(78, *command, env=env)
            self.one_line(result, "no-such-table", "belay table create")

    def test_ctrl_c_while_nothing_answers_is_no_error_of_the_store(self):
        for command in (["acquire", "k"], ["run", "k", "--", "true"]):
            with self.subTest(command[0]), socket.create_server(("127.0.0.1", 0)) as hole:
                store = f"dynamodb:{self.table}?region={REGION}&endpoint=http://127.0.0.1:{hole.getsockname()[1]}"
                process = self.start(*command, env={"BELAY_STORE": store}, stderr=subprocess.PIPE)
                with hole.accept()[0] as connection:
                    connection.recv(1)  # the request is under way
                    process.send_signal(signal.SIGINT)
                    _, err = process.communicate(timeout=60)
                self.assertEqual(process.returncode, 130, err)

    def test_a_table_with_other_keys(self):
        self.db.create(f"{self.table}-other", keys=["id"])
        self.addCleanup(self.db.ask, "DeleteTable", {"TableName": f"{self.table}-other"})
        result = self.fails(78, "acquire", "k", env={"BELAY_STORE": self.url(table=f"{self.table}-other")})
        self.one_line(result, f"{self.table}-other", "layout")

    def test_no_region(self):
        store = f"dynamodb:{self.table}?endpoint={self.proxy.url}"
        result = self.fails(78, "acquire", "k", env={"BELAY_STORE": store, "AWS_REGION": None})
        self.one_line(result, "region", "AWS_REGION")
        self.assertEqual(self.proxy.counts(), {})

    def test_no_credentials(self):
        nobody = {"AWS_ACCESS_KEY_ID": None, "AWS_SECRET_ACCESS_KEY": None}
        result = self.belay("acquire", "k", env=nobody)
        self.assertIn(result.code, (77, 78), result)
        self.one_line(result, "credentials", "AWS_ACCESS_KEY_ID")
        self.assertEqual(self.proxy.counts(), {})

    def test_an_endpoint_that_refuses_connections_is_unreachable(self):
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            port = unused.getsockname()[1]
            result = self.fails(69, "acquire", "k", env={"BELAY_STORE": self.url(port=port)})
        self.one_line(result, f"127.0.0.1:{port}", "check the network, the region, and the endpoint")

    def test_a_host_that_does_not_exist(self):
        store = f"dynamodb:{self.table}?region={REGION}&endpoint=http://no-such-host.invalid"
        self.one_line(self.fails(69, "acquire", "k", env={"BELAY_STORE": store}), "no-such-host.invalid")

    def test_a_denied_action_is_named(self):
        self.proxy.answer("UpdateItem", 400, "AccessDeniedException", DENIED)
        result = self.fails(77, "acquire", "k")
        self.one_line(result, "dynamodb:UpdateItem", "IAM policy", "belay doctor")
        self.assertEqual(self.proxy.counts(), {"UpdateItem": 1})  # not tried again

    def test_an_expired_token(self):
        self.proxy.answer("*", 400, "ExpiredTokenException", "The security token included in the request is expired")
        result = self.belay("acquire", "k", env={"AWS_SESSION_TOKEN": "a-token-of-yesterday"})
        self.assertIn(result.code, (77, 78), result)
        line = self.one_line(result, "expired")
        self.assertRegex(line, "AWS_|credentials|sign in|renew|new")
        self.assertNotIn("a-token-of-yesterday", result.err)

    def test_a_wrong_secret(self):
        for kind, text in (("UnrecognizedClientException", "The security token included in the request is invalid."),
                           ("InvalidSignatureException", "The request signature we calculated does not match the "
                                                         "signature you provided. Check your AWS Secret Access Key "
                                                         "and signing method.")):
            self.proxy.reset()
            self.proxy.answer("*", 400, kind, text)
            result = self.belay("acquire", "k")
            self.assertIn(result.code, (77, 78), result)
            self.one_line(result)
            self.assertRegex(result.err, "(?i)secret|credential|access key|AWS_ACCESS_KEY_ID")

    def test_errors_are_one_json_object_with_json(self):
        self.proxy.answer("*", 400, "AccessDeniedException", DENIED)
        error = self.fails(77, "acquire", "k", "--json").error()
        self.assertIn("dynamodb:UpdateItem", error["message"])
        self.assertIsNone(error["lock"])

    def test_permanent_throttling_is_reported_as_unreachable(self):
        self.proxy.plan.throttle = 1.0
        result = self.fails(69, "acquire", "k")
        self.one_line(result)
        self.assertRegex(result.err, "(?i)throttl|throughput|capacity")

    def test_a_broken_server_is_unreachable_or_unknown(self):
        self.proxy.plan.error_before = 1.0
        self.assertIn(self.belay("status", "k").code, (69,))
        self.assertIn(self.belay("acquire", "k").code, (69, 74))

    def test_best_effort_continues_without_a_server(self):
        """S1.10"""
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            env = {"BELAY_STORE": self.url(port=unused.getsockname()[1])}
            self.fails(69, "run", "k", "--", "true", env=env)
            result = self.ok("run", "--best-effort", "k", "--", "echo", "ran", env=env)
        self.assertEqual(result.out, "ran\n")
        self.assertIn("without a lock", result.err)

    def test_a_wrong_url_is_answered_with_the_right_form(self):
        """L8"""
        for store, word in ((f"dynamodb:{self.table}?layuot=belay", "layout=NAME"),
                            (f"dynamodb:{self.table}?layout=nope", "chatops"),
                            ("dynamodb:x", "3 to 255"),
                            (f"dynamodb:{self.table},max_clock_skew=fast", "2s"),
                            (f"dynamodb:{self.table}?endpoint=localhost:8000", "'localhost:8000', is not a URL such as")):
            result = self.belay("list", env={"BELAY_STORE": store})
            self.assertIn(result.code, (64, 78), result)
            self.one_line(result, word)

    def test_a_comma_needs_no_quotes_in_a_shell(self):
        store = self.store.replace("?", ",").replace("&", ",")
        self.ok("run", "k", "--", "true", env={"BELAY_STORE": store})
        self.assertEqual(self.ok("status", "k", "--json").json()["outcome"], "completed")


if __name__ == "__main__":
    main()
