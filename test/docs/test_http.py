"""docs/http.md: every curl line works, in the order of the page, and every answer that the page shows has that form."""

import hashlib
import hmac
import re
import unittest

from page_support import ROOT, BelayCase, PageCase, Server, main
from webhook_support import Receiver

PAGE = "docs/http.md"


def as_pattern(shown):
    """Of the JSON text that a page shows: numbers and times are holes, '…' is the rest, and a name alone has any value."""
    text = re.sub(r"\n\s*", "", shown.strip())
    text = re.sub(r'("\w+")(?=[,}])(?<!:)', r"\1:ANY", re.sub(r'(:"[^"]*")(?=[,}\]])', lambda m: m[1].replace('"', "\0"), text))
    text = text.replace("\0", '"')
    parts = re.split(r'(ANY|"[^"]*…"|"\d{4}-\d\d-\d\d[^"]*"|\{…\} or null|\{…\}|,?…|(?<=:)\d+|\d{4}-\d\d-\d\dT[\d:]+Z|\d+s left)', text)
    holes = {"ANY": r'(?:"[^"]*"|[^,"]+)', "{…} or null": "(?:{.*}|null)", "{…}": "{.*}", ",…": "(?:,.*)?", "…": ".*"}
    return "".join(re.escape(part) if i % 2 == 0 else holes[part] if part in holes else
                   r'(?:"[^"]*"|null)' if part.startswith('"') else r"\d+" if part.isdigit() else ".*" for i, part in enumerate(parts))


class Page(PageCase):
    PAGE = PAGE

    def curl(self):
        """The next line of the page: its answer."""
        line = self.take("curl ")
        command, _, expected = line.partition("     # ")
        option = "" if " -o " in command else "-o body "
        done = self.shell(f"{command.replace('curl ', f'curl -s {option}-w %{{http_code}} ', 1)}; true")
        self.assertEqual(done.stdout, expected or "200", (line, done))
        path = self.dir / "body"
        return path.read_text(encoding="utf-8") if path.exists() else ""

    def assert_form(self, shown, answer):
        self.assertRegex(answer.strip(), rf"(?s)\A{as_pattern(shown)}\Z", shown)

    def until_block(self, start):
        """Type every line before the block that begins like this."""
        answer = None
        for block in self.blocks:
            if block.text.startswith(start) and not block.is_done:
                return answer
            while not block.is_done:
                if not block.commands[0][0].startswith("curl "):
                    self.assert_form(block.text[block.text.index("\n{") + 1:], answer)
                    block.is_claimed = True
                    break
                answer = self.curl()
        return answer

    def test_the_lines_work_in_their_order_and_the_answers_have_the_form_shown(self):
        ended, is_genuine = self.claim('{"event":"wait.ended"'), self.claim("expected = hmac")
        error, stream, several = self.claim('{"error":{"code":"not_holder"'), self.claim("id: 17"), self.claim('{"lock_id":"m-8"')
        self.type("url=")
        server = Server(self)
        self.env["url"] = server.url
        for start in ('{"key":"deploy-api-prod","lock_id"', '{"key":null,"prefix"', '{"step_ms"', '{"now"'):
            answer = self.until_block(start)
            self.assert_form(self.claim(start), answer)
        self.until_block("no such block")
        self.assertEqual(self.left, [])
        request = {"keys": ["db-orders", "db-users"], "locked_by": "m", "lock_id": "m-10"}
        self.assert_form(several.replace("m-8", "m-10"), self.post(server, "/v1/acquire", request))
        self.assert_form(error, self.post(server, "/v1/locks/nightly/renew", {"lock_id": "no-such"}, 409))
        server.release("deploy-api-prod", server.acquire("deploy-api-prod").json()["lock_id"])
        events = self.shell("curl -s -N --max-time 1 -H 'Last-Event-ID: 0' \"$url/v1/events?prefix=deploy-\"", 28).stdout
        released = next(block for block in events.split("\n\n") if "event: lock.released" in block)
        for line, form in zip(released.splitlines(), stream.splitlines(), strict=True):
            name, _, value = form.partition(": ")
            self.assertTrue(line.startswith(f"{name}: "), line)
            if name == "data":
                self.assert_form(value, line[6:])
        server.stop()
        self.check_webhook(ended, is_genuine)

    def post(self, server, path, body, status=200):
        answer = server.post(path, body)
        self.assertEqual(answer.status, status, answer)
        return answer.body.decode()

    def check_webhook(self, ended, is_genuine):
        receiver = Receiver(self)
        server = Server(self, config=self.write("hooks.yaml", 'server: {webhooks: {allow: ["127.0.0.1"]}}\n'))
        server.acquire("deploy-api-prod")
        request = {"locked_by": "build-7", "lock_id": "build-8-a", "locked_by_name": "ci", "wait_ms": 200,
                   "webhook": {"url": receiver.url, "secret": "of the caller"}}
        self.assertEqual(server.post("/v1/locks/deploy-api-prod/acquire", request).status, 202)
        headers, _, body = receiver.next()
        self.assert_form(ended.replace("build-7-a", "build-8-a"), body.decode())
        fields = dict(part.split("=", 1) for part in headers["Belay-Signature"].split(","))
        scope = {"hmac": hmac, "hashlib": hashlib, "secret": b"of the caller", "t": fields["t"].encode(), "body": body}
        exec(is_genuine, scope)  # pylint: disable=exec-used
        self.assertEqual(scope["expected"], fields["v1"])


class Forms(unittest.TestCase):
    def test_a_form_is_refused_if_a_name_is_missing_or_a_value_differs(self):
        """That the comparison can fail."""
        shown = '{"key":"k","token":2,"at":"2026-11-15T23:31:27.389Z","id":"7a3d…",\n "lock":{…},"x":null}'
        right = '{"key":"k","token":31,"at":"2027-01-01T00:00:00.000Z","id":"99","lock":{"a":1},"x":null}'
        self.assertRegex(right, rf"\A{as_pattern(shown)}\Z")
        for old, new in (('"k"', '"j"'), ('"token"', '"tokn"'), (',"x":null', ""), ("null", "1"), ("{", '{"more":1,')):
            self.assertNotRegex(right.replace(old, new, 1), rf"\A{as_pattern(shown)}\Z")
        names = r"\A" + as_pattern('{"step_ms","steps":[{"at","n"},…],"z"}') + r"\Z"
        self.assertRegex('{"step_ms":5,"steps":[{"at":"t","n":1},{"at":"u","n":2}],"z":true}', names)
        self.assertNotRegex('{"step_ms":5,"steps":[{"at":"t"}],"z":true}', names)


class Routes(BelayCase):
    TEXT = (ROOT / PAGE).read_text(encoding="utf-8")

    def document(self):
        return Server(self).get("/openapi.json").json()

    def test_every_route_has_a_curl_line(self):
        """A route that is new to /openapi.json is missing here until the page shows how to call it."""
        document = self.document()
        wanted = {(method.removeprefix("x-").upper(), path) for path, methods in document["paths"].items() for method in methods}
        shown = set()
        for line in re.findall(r"^    (curl .*)$", self.TEXT, re.M):
            path = re.search(r"\$url(/[^\s?\"]*)", line).group(1)
            named = re.search(r" -X (\w+)", line)
            method = named.group(1) if named else "POST" if " -d " in line else "GET"
            fits = [template for template in document["paths"] if re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", template), path)]
            shown |= {(method, template) for template in fits}
        self.assertEqual(sorted(wanted - shown), [], "no curl line")

    def test_every_route_is_described(self):
        for path, operations in self.document()["paths"].items():
            for method, operation in operations.items():
                self.assertIn(path, self.TEXT.replace("`/v1/renew`", "/v1/renew"))
                for parameter in operation["parameters"]:
                    self.assertIn(parameter["name"], self.TEXT)
                for name in operation.get("requestBody", {"content": {"application/json": {"schema": {"properties": {}}}}})[
                        "content"]["application/json"]["schema"].get("properties", {}):
                    self.assertIn(f"`{name}`" if name != "key" else '"key"', self.TEXT, f"{method} {path}")


if __name__ == "__main__":
    main()
