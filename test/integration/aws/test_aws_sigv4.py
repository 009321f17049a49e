"""Our signatures against two independent judges: botocore, and AWS's own JavaScript signer.

The JavaScript signer brings along AWS's published test-suite, which is run as well. It comes from npm
by name and version, into build/, and runs on node 18. botocore is Debian's python3-botocore.
"""
import datetime
import fcntl
import json
import os
import random
import shutil
import subprocess
import sys
import types
import unittest
import urllib.parse

from support import CACHE, ID, SECRET, Driver

sys.path.append("/usr/lib/python3/dist-packages")  # Debian's, also for a python3 that is not Debian's
try:
    import botocore.auth
    import botocore.awsrequest
    import botocore.credentials
except ImportError as missing:
    raise ImportError("the judge is missing: apt-get install python3-botocore") from missing

CASES = 600
NPM = ["@smithy/signature-v4@4.2.4", "@smithy/protocol-http@4.1.8", "@aws-crypto/sha256-js@5.2.0"]
WHEN = 1440938160000  # 2015-08-30T12:36:00Z, the date of the published cases
NASTY = ["a", "B", "7", "-", "_", ".", "~", " ", "  ", "+", "*", "'", "(", ")", "!", "$", "&", "=", ";", ":", "@", ",",
         "/", "?", "#", "%", "%41", "%2F", "\"", "\\", "<", ">", "[", "]", "^", "`", "{", "|", "}", "\u00e9", "\u1234",
         "\U0001f512", "\u00df", "\x7f"]


def install():
    if not shutil.which("npm"):
        raise AssertionError("the second judge is missing: it needs node and npm (apt-get install nodejs npm)")
    os.makedirs(CACHE, exist_ok=True)
    with open(os.path.join(CACHE, ".lock"), "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # this file runs on two builds at the same time
        if not os.path.exists(os.path.join(CACHE, "whole")):
            subprocess.run(["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", CACHE, *NPM], check=True,
                           stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            with open(os.path.join(CACHE, "whole"), "w", encoding="utf-8"):
                pass


def word(rng, most, extra=()):
    return "".join(rng.choice(NASTY + list(extra)) for _ in range(rng.randint(0, most)))


def make_case(rng):
    """A request as it is sent, and the plain query it was made from."""
    s3 = rng.random() < 0.5
    segments = [word(rng, 4) if rng.random() < 0.8 else rng.choice(["", ".", "..", "..."]) for _ in range(rng.randint(0, 5))]
    path = "/" + "/".join(urllib.parse.quote(s, safe="~" if s3 else "~!$&'()*+,;=:@") for s in segments)
    query = {}
    for _ in range(rng.randint(0, 5)):
        name = word(rng, 3)
        if name:
            query.setdefault(name, []).append(word(rng, 4))
    pairs = [(n, v) for n, values in query.items() for v in values]
    rng.shuffle(pairs)
    wire = "&".join(f"{urllib.parse.quote(n, safe='~')}={urllib.parse.quote(v, safe='~')}" for n, v in pairs)
    headers = [["Host", rng.choice(["example.amazonaws.com", "localhost:8000", "[::1]:8000"])]]
    for _ in range(rng.randint(0, 4)):
        value = "".join(rng.choice(["v", "  ", " ", "\t", ",", "\"", "=", "\u00e9", "Z"]) for _ in range(rng.randint(1, 6)))
        headers.append([rng.choice(["X-Amz-Meta-A", "x-amz-meta-a-b", "My-Header", "my-header1", "Content-Type"]), value])
    return {"method": rng.choice(["GET", "PUT", "POST", "DELETE", "HEAD"]), "path": path, "query": wire,
            "headers": headers, "body": word(rng, 12), "s3": s3,
            "id": ID, "secret": rng.choice([SECRET, "other/secret+key"]),
            "token": rng.choice([None, "FwoGZXIvYXdzE//+=="]), "region": rng.choice(["us-east-1", "eu-west-1"]),
            "service": "s3" if s3 else rng.choice(["dynamodb", "sts", "service"]),
            "unix_ms": WHEN + rng.choice([0, 999, 86400000, -86400000 * 400])}


class FixedTime(datetime.datetime):
    """botocore asks for the time itself."""
    fixed = None

    @classmethod
    def utcnow(cls):
        return cls.fixed

    @classmethod
    def now(cls, tz=None):
        return cls.fixed.replace(tzinfo=tz)


def botocore_judge(case):
    FixedTime.fixed = FixedTime(1970, 1, 1) + datetime.timedelta(milliseconds=case["unix_ms"])
    if hasattr(botocore.auth, "get_current_datetime"):
        botocore.auth.get_current_datetime = lambda *_, **__: FixedTime.fixed
    else:  # Debian 12's
        botocore.auth.datetime = types.SimpleNamespace(datetime=FixedTime)
    host = case["headers"][0][1]
    url = f"https://{host}{case['path']}" + (f"?{case['query']}" if case["query"] else "")
    request = botocore.awsrequest.AWSRequest(method=case["method"], url=url, data=case["body"].encode())
    for name, value in case["headers"]:
        request.headers.add_header(name, value)
    request.context["client_config"] = None
    if case["s3"]:
        request.context["payload_signing_enabled"] = True
    keys = botocore.credentials.Credentials(case["id"], case["secret"], case["token"])
    kind = botocore.auth.S3SigV4Auth if case["s3"] else botocore.auth.SigV4Auth
    signer = kind(keys, case["service"], case["region"])
    if case["s3"]:
        # botocore omits the hash over https unless requested.
        signer._should_sha256_sign_payload = lambda _: True
    signer.add_auth(request)
    return request.headers["Authorization"]


JS_JUDGE = r"""
const { SignatureV4 } = require("@smithy/signature-v4");
const { HttpRequest } = require("@smithy/protocol-http");
const { Sha256 } = require("@aws-crypto/sha256-js");
const cases = JSON.parse(require("fs").readFileSync(0));
(async () => {
  const out = [];
  for (const c of cases) {
    const signer = new SignatureV4({ credentials: { accessKeyId: c.id, secretAccessKey: c.secret,
        sessionToken: c.token ?? undefined }, region: c.region, service: c.service, sha256: Sha256,
        uriEscapePath: !c.s3, applyChecksum: c.s3 });
    const headers = {};
    for (const [n, v] of c.headers) {
      const k = n.toLowerCase();
      headers[k] = k in headers ? headers[k] + "," + v.trim() : v.trim();
    }
    const query = {};
    for (const pair of c.query ? c.query.split("&") : []) {
      const [n, v] = pair.split("=").map(decodeURIComponent);
      query[n] = n in query ? [].concat(query[n], v) : v;
    }
    const request = new HttpRequest({ method: c.method, hostname: "unused", path: c.path, query, headers,
        body: c.body, protocol: "https:" });
    const signed = await signer.sign(request, { signingDate: new Date(c.unix_ms) });
    out.push(signed.headers.authorization);
  }
  console.log(JSON.stringify(out));
})();
"""

JS_SUITE = r"""
import("@smithy/signature-v4/dist-es/suite.fixture.js").then((s) =>
  console.log(JSON.stringify({ region: s.region, service: s.service, credentials: s.credentials,
    when: s.signingDate.getTime(), requests: s.requests })));
"""


def node(script, given=""):
    done = subprocess.run(["node", "-e", script], input=given, cwd=CACHE, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise AssertionError(done.stderr[-2000:])
    return json.loads(done.stdout)


class Signatures(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        install()

    def test_signatures_match_the_published_suite(self):
        # The package has it as a module without a module extension.
        fixture = os.path.join(CACHE, "suite.mjs")
        source = os.path.join(CACHE, "node_modules/@smithy/signature-v4/dist-es/suite.fixture.js")
        with open(source, encoding="utf-8") as original, open(fixture, "w", encoding="utf-8") as copy:
            copy.write(original.read())
        suite = node(JS_SUITE.replace("@smithy/signature-v4/dist-es/suite.fixture.js", fixture))
        self.assertGreaterEqual(len(suite["requests"]), 20)
        with Driver() as driver:
            for case in suite["requests"]:
                request = case["request"]
                pairs = [(n, v) for n, values in request["query"].items()
                         for v in (values if isinstance(values, list) else [values])]
                answer = driver("sign", method=request["method"], path=request["path"],
                                query="&".join(f"{urllib.parse.quote(n, safe='~')}={urllib.parse.quote(v, safe='~')}"
                                               for n, v in pairs),
                                headers=[[n, v] for n, v in request["headers"].items() if n != "x-amz-date"],
                                body=request.get("body", ""), id=suite["credentials"]["accessKeyId"],
                                secret=suite["credentials"]["secretAccessKey"], region=suite["region"],
                                service=suite["service"], unix_ms=suite["when"])
                self.assertEqual(answer["authorization"], case["authorization"], case["name"])

    def cases(self, seed):
        rng = random.Random(seed)
        return [make_case(rng) for _ in range(CASES)]

    def test_signatures_match_botocore(self):
        with Driver() as driver:
            for case in self.cases(1):
                self.assertEqual(driver("sign", **case)["authorization"], botocore_judge(case), case)

    def test_signatures_match_the_javascript_sdk(self):
        cases = self.cases(2)
        wanted = node(JS_JUDGE, json.dumps(cases))
        self.assertEqual(len(wanted), CASES)
        with Driver() as driver:
            for case, judged in zip(cases, wanted):
                self.assertEqual(driver("sign", **case)["authorization"], judged, case)

    def test_signatures_change_with_every_signed_part(self):
        """The comparisons above cannot agree by accident: each part matters."""
        base = self.cases(4)[0] | {"s3": False, "query": "a=1", "path": "/x", "body": "b"}
        changed = [{"method": "PATCH"}, {"path": "/y"}, {"query": "a=2"}, {"body": "c"}, {"secret": "x"},
                   {"region": "us-west-2"}, {"service": "ec2"}, {"unix_ms": base["unix_ms"] + 1000}, {"token": "other"},
                   {"headers": [["Host", "other"]]}]
        with Driver() as driver:
            first = driver("sign", **base)["authorization"]
            self.assertEqual(first, driver("sign", **base)["authorization"])
            for change in changed:
                self.assertNotEqual(first.split("Signature=")[1],
                                    driver("sign", **(base | change))["authorization"].split("Signature=")[1], change)


if __name__ == "__main__":
    unittest.main()
