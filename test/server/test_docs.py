"""Every curl line in docs/http.md works, and does what it says."""

import re
import subprocess

from server_support import ROOT, ServerCase, main

DOC = ROOT / "docs" / "http.md"


class Docs(ServerCase):
    def test_the_curl_lines_work_in_their_order(self):
        server = self.serve()
        lines = re.findall(r"^    (curl .*)$", DOC.read_text(encoding="utf-8"), re.M)
        self.assertGreater(len(lines), 15)
        for line in lines:
            with self.subTest(line):
                command, _, expected = line.partition("     # ")
                command = command.replace("curl ", "curl -s -o /dev/null -w '%{http_code}' ", 1)
                done = subprocess.run(["bash", "-c", f"url={server.url}; {command}"], capture_output=True, text=True,
                                      timeout=30, check=False)
                self.assertEqual(done.stdout, expected or "200", done)

    def test_every_route_has_a_curl_line(self):
        """A route that is new to /openapi.json is missing here until the page shows how to call it."""
        document = self.serve().get("/openapi.json").json()
        wanted = {(method.removeprefix("x-").upper(), path) for path, methods in document["paths"].items() for method in methods}
        shown = set()
        for line in re.findall(r"^    (curl .*)$", DOC.read_text(encoding="utf-8"), re.M):
            path = re.search(r"\$url(/[^\s?\"]*)", line).group(1)
            named = re.search(r" -X (\w+)", line)
            method = named.group(1) if named else "POST" if " -d " in line else "GET"
            fits = [template for template in document["paths"] if re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", template), path)]
            shown |= {(method, template) for template in fits}
        self.assertEqual(sorted(wanted - shown), [], "no curl line")

    def test_every_route_is_described(self):
        text = DOC.read_text(encoding="utf-8")
        document = self.serve().get("/openapi.json").json()
        for path, operations in document["paths"].items():
            for method, operation in operations.items():
                self.assertIn(path, text.replace("`/v1/renew`", "/v1/renew"))
                for parameter in operation["parameters"]:
                    self.assertIn(parameter["name"], text)
                for name in operation.get("requestBody", {"content": {"application/json": {"schema": {"properties": {}}}}})[
                        "content"]["application/json"]["schema"].get("properties", {}):
                    self.assertIn(f"`{name}`" if name != "key" else '"key"', text, f"{method} {path}")

    def test_the_systemd_units_name_what_there_is(self):
        unit = (ROOT / "deploy" / "systemd" / "belay.service").read_text(encoding="utf-8")
        options = re.search(r"^ExecStart=\S+ (.*)$", unit, re.M).group(1).split()
        self.assertEqual(options[0], "serve")
        help_text = self.ok("serve", "--help").out
        for option in options[1:]:
            if option.startswith("--"):
                self.assertIn(option, help_text)


if __name__ == "__main__":
    main()
