"""Deployment state over HTTP: writes that name their lock and what they were made from (S4.1 to S4.3)."""

import json
import os
import signal
import subprocess
import sys
import threading

from server_support import ServerCase, main, quoted, wait_until

KEY = "stack:shop:env:prod"
PATH = "/v1/state/shop/prod"


class StateOverHttp(ServerCase):
    def setUp(self):
        super().setUp()
        self.server = self.serve()

    def take(self, lock_id, **fields):
        answer = self.server.acquire(KEY, lock_id, lock_id=lock_id, **fields)
        self.assertEqual(answer.status, 200)
        return answer.json()

    def put(self, lock_id, document, etag=None, query="", **headers):
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        if etag is not None:
            headers["If-Match"] = etag
        lock = "" if lock_id is None else f"lock_id={lock_id}"
        return self.server.call("PUT", f"{PATH}?{lock}{query}", document, headers=headers)

    def create(self, lock_id, url="a"):
        return self.put(lock_id, {"outputs": {"url": url}}, If_None_Match="*")

    def current(self):
        answer = self.server.get(PATH)
        return answer.json(), answer.headers["ETag"]

    def test_a_state_is_created_read_and_replaced(self):
        self.assertEqual(self.server.get(PATH).status, 404)
        self.take("l1")
        made = self.create("l1")
        self.assertEqual((made.status, made.json()["serial"]), (200, 1))
        document, etag = self.current()
        self.assertEqual((document["outputs"], etag), ({"url": "a"}, made.json()["etag"]))
        document["outputs"]["url"] = "b"
        saved = self.put("l1", document, etag, "&deployment_id=dep-7&git_commit=abc&status=failed")
        self.assertEqual((saved.status, saved.json()["serial"]), (200, 2))
        document, _ = self.current()
        self.assertEqual(document["outputs"], {"url": "b"})
        newest = document["deployment_history"][0]
        self.assertEqual((newest["deployment_id"], newest["git_commit"], newest["status"]), ("dep-7", "abc", "failed"))
        listed = self.server.get("/v1/state").json()["states"]
        self.assertEqual([(s["stack"], s["environment"]) for s in listed], [("shop", "prod")])
        self.assertEqual(json.loads(self.ok("state", "load", "--stack", "shop", "--environment", "prod").out), document)

    def test_a_write_names_its_base_version(self):
        self.take("l1")
        self.assertEqual(self.put("l1", {}).status, 428)
        self.assertEqual(self.create("l1").status, 200)
        self.assertEqual(self.create("l1").status, 412, "there is one")
        document, etag = self.current()
        self.assertEqual(self.put("l1", document, etag).status, 200)
        self.assertEqual(self.put("l1", document, etag).status, 412, "it has changed since")
        self.assertEqual(self.put("l1", document, "no-quotes").status, 400)
        del document["metadata"]["serial"]
        for stale in (document, {}, {"metadata": {"serial": 1}}):
            self.assertEqual(self.put("l1", stale, "*").status, 412, "whatever is there, but not over what it never saw")
        self.assertEqual(self.server.get(PATH).json()["metadata"]["serial"], 2)

    def test_a_server_on_another_lock_store_cannot_write(self):
        self.take("l1")
        self.assertEqual(self.create("l1").status, 200)
        states = self.env.get("BELAY_STATE_STORE") or f"file:{self.dir}/belay.db-state"
        other = self.serve("--store", f"sqlite:{self.dir}/other.db", "--state-store", states)
        self.assertEqual(other.acquire(KEY, "l2", lock_id="l2").status, 200)
        document, etag = self.current()
        for method, rest, body in (("PUT", "", document), ("POST", "/stamp", None), ("POST", "/restore", {"version": "1"})):
            answer = other.call(method, f"{PATH}{rest}?lock_id=l2", body, headers={"If-Match": etag})
            self.assertEqual((answer.status, answer.error["code"]), (409, "refused"))
            self.assertIn("belay state rebind", answer.error["message"])
        self.assertEqual(other.get(PATH).json(), document)
        self.assertEqual(self.put("l1", document, etag).status, 200)

    def test_the_lock_store_has_one_id_through_every_door(self):
        one = self.server.get("/v1/store").json()["id"]
        self.assertRegex(one, "^sqlite-[0-9a-f]{32}$")
        where = ("--stack", "shop", "--environment", "prod")
        states = ("--state-store", f"file:{self.dir}/shared")
        for store in (self.server.url, f"sqlite:{self.dir}/belay.db"):
            self.ok("deploy", "--store", store, *states, *where, "--", "true")
        loaded = json.loads(self.ok("state", "load", *states, *where).out)
        self.assertEqual((loaded["lock"]["store"], loaded["metadata"]["serial"]), (one, 2))
        other = self.serve("--store", f"sqlite:{self.dir}/other.db")
        self.assertNotEqual(other.get("/v1/store").json()["id"], one)
        self.assertIn("is fenced by", self.fails(78, "deploy", "--store", other.url, *states, *where, "--", "true").err)

    def test_a_state_of_another_program_is_adopted(self):
        """Issue 12, item 10."""
        self.take("l1")
        self.create("l1")
        if "BELAY_STATE_STORE" in self.env:
            self.skipTest("it is about a file that another program writes")
        path = next(self.dir.rglob("stacks/shop/prod/state.json"))
        document = json.loads(path.read_text(encoding="utf-8"))
        document.update(outputs={"url": "theirs"}, checksums={"resources": "sha256:abc...", "outputs": "sha256:def..."})
        theirs = json.dumps(document)
        path.write_text(theirs, encoding="utf-8")
        answer = self.server.get(PATH)
        self.assertEqual((answer.status, answer.error["code"]), (503, "bad_content"))
        self.assertIn("belay state adopt", answer.error["message"])
        for body in ("[]", "x", {"version": 1}):
            self.assertEqual(self.server.post(f"{PATH}/adopt", body).status, 400)
        self.assertEqual(self.server.call("POST", f"{PATH}/adopt").status, 409, "the lock is held")
        self.assertEqual(self.server.call("POST", f"{PATH}/adopt?lock_id=l1", headers={"If-Match": '"another"'}).status, 412)
        adopted = self.server.call("POST", f"{PATH}/adopt?lock_id=l1&triggered_by=alice")
        self.assertEqual(adopted.status, 200, adopted)
        document, etag = self.current()
        self.assertEqual((document["outputs"], etag), ({"url": "theirs"}, adopted.json()["etag"]))
        self.assertEqual([document["deployment_history"][0][k] for k in ("status", "triggered_by")], ["adopted", "alice"])
        self.assertIn(theirs, [p.read_text(encoding="utf-8") for p in (path.parent / "history").iterdir()])
        self.assertEqual(self.server.post(f"{PATH}/adopt?lock_id=l1", {"version": "latest"}).status, 200)

    def test_a_write_is_made_under_the_stacks_lock(self):
        answer = self.create("nobody")
        self.assertEqual(answer.status, 404, answer)
        answer = self.create(None)
        self.assertEqual(answer.status, 409)
        self.assertIn(f"acquire '{KEY}'", answer.error["message"])
        self.take("l1")
        answer = self.create("l2")
        self.assertEqual((answer.status, answer.error["code"]), (409, "not_holder"))
        self.assertEqual(self.server.get(PATH).status, 404)

    def test_a_document_that_is_not_a_state_is_refused_by_name(self):
        self.take("l1")
        for body in ("{", "[]", '{"format_version":"other"}', '{"metadata":{"stack":"another"}}'):
            with self.subTest(body):
                answer = self.put("l1", body, If_None_Match="*")
                self.assertEqual(answer.status, 400, answer)
        for path in ("/v1/state/../prod", "/v1/state/a%2Fb/prod", "/v1/state/shop/.."):
            with self.subTest(path):
                self.assertIn(self.server.call("GET", path, check=False).status, (400, 404))

    def test_a_later_lock_refuses_saves_of_older_content(self):
        self.take("a")
        self.assertEqual(self.create("a").status, 200)
        document, etag = self.current()
        self.assertEqual(self.server.renew(KEY, "a", ttl_ms=200).status, 200)
        wait_until(lambda: self.server.get(f"/v1/locks/{quoted(KEY)}").json()["status"] == "expired", "the lease to end")
        later = self.take("b")
        stamped = self.server.post(f"{PATH}/stamp?lock_id=b", None)
        self.assertEqual((stamped.status, stamped.json()["lock"]["token"]), (200, later["token"]))
        self.assertEqual(self.put("a", document, etag).status, 409, "its lock is another's")
        self.assertEqual(self.put("b", document, etag).status, 412, "it was loaded before the stamp")
        self.assertEqual(self.put("b", stamped.json(), stamped.headers["ETag"]).status, 200)

    def test_a_holder_that_was_stopped_past_its_lease_cannot_save(self):
        """The paused-holder test, over HTTP."""
        script = self.dir / "holder.py"
        script.write_text(HOLDER)
        holder = self.start_holder(script)
        self.assertEqual(holder.stdout.readline().strip(), "loaded")
        os.kill(holder.pid, signal.SIGSTOP)
        wait_until(lambda: self.server.get(f"/v1/locks/{quoted(KEY)}").json()["status"] == "expired", "the lease to end")
        self.take("b")
        self.assertEqual(self.create("b", "of b").status, 200)
        before = self.server.get(PATH).body
        os.kill(holder.pid, signal.SIGCONT)
        out, _ = holder.communicate("go\n", timeout=60)
        status, code, name = out.split()
        self.assertEqual((status, code, name), ("409", "not_holder", "b"))
        self.assertEqual(self.server.get(PATH).body, before)

    def start_holder(self, script):
        process = subprocess.Popen([sys.executable, str(script), self.server.url], stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, text=True)
        self.addCleanup(self.end, process)
        return process

    def test_history_versions_verify_and_restore(self):
        self.take("l1")
        self.create("l1", "one")
        document, etag = self.current()
        document["outputs"]["url"] = "two"
        self.put("l1", document, etag)
        history = self.server.get(f"{PATH}/history").json()
        self.assertEqual((len(history["deployments"]), len(history["versions"])), (2, 2))
        oldest = history["versions"][-1]["name"]
        self.assertEqual(self.server.get(f"{PATH}/history/{oldest}").json()["outputs"], {"url": "one"})
        self.assertEqual(self.server.get(f"{PATH}/history/99").status, 404)
        self.assertEqual(self.server.get(f"{PATH}/verify").json()["is_sound"], True)
        self.assertEqual(self.server.post(f"{PATH}/restore", {"version": oldest}).status, 409, "somebody has the lock")
        self.assertEqual(self.server.post(f"{PATH}/restore?lock_id=l1", {"version": oldest}).status, 200)
        self.server.release(KEY, "l1")
        self.assertEqual(self.server.post(f"{PATH}/restore", {"version": "2"}).status, 200)
        self.assertEqual(self.server.post(f"{PATH}/restore", {}).status, 400)
        document, _ = self.current()
        self.assertEqual((document["outputs"], document["metadata"]["serial"]), ({"url": "two"}, 4))
        self.assertEqual(document["deployment_history"][0]["status"], "restored")

    def test_the_history_can_be_limited_to_the_last_deployments(self):
        self.take("l1")
        self.create("l1", "one")
        document, etag = self.current()
        self.put("l1", document, etag, "&git_commit=abc")
        history = self.server.get(f"{PATH}/history?limit=1").json()
        self.assertEqual(([d["git_commit"] for d in history["deployments"]], len(history["versions"])), (["abc"], 2))
        path = next(self.dir.rglob("stacks/shop/prod/state.json"))
        path.write_text(path.read_text()[:-20])
        self.assertEqual(self.server.get(f"{PATH}/history").status, 503, "its deployments are in what is damaged")
        history = self.server.get(f"{PATH}/history?limit=0").json()
        self.assertEqual((history["deployments"], len(history["versions"])), ([], 2))
        for limit in ("-1", "1001", "x", ""):
            answer = self.server.get(f"{PATH}/history?limit={limit}")
            self.assertEqual(answer.status, 400, limit)
            self.assertIn("1 to 1000", answer.json()["error"]["message"])

    def test_a_restore_can_be_conditional_on_the_version_that_was_shown(self):
        self.take("l1")
        self.create("l1", "one")
        document, seen = self.current()
        document["outputs"]["url"] = "two"
        self.put("l1", document, seen)
        self.server.release(KEY, "l1")
        answer = self.server.call("POST", f"{PATH}/restore", {"version": "2"}, headers={"If-Match": seen})
        self.assertEqual((answer.status, self.current()[0]["outputs"]), (412, {"url": "two"}))
        self.assertEqual(self.server.get(f"/v1/locks/{quoted(KEY)}").json()["status"], "released")
        seen = self.current()[1]
        answer = self.server.call("POST", f"{PATH}/restore", {"version": "2"}, headers={"If-Match": seen})
        self.assertEqual((answer.status, self.current()[0]["outputs"]), (200, {"url": "one"}))

    def test_a_damaged_state_is_named(self):
        self.take("l1")
        self.create("l1")
        path = next(self.dir.rglob("stacks/shop/prod/state.json"))
        path.write_text(path.read_text().replace('"a"', '"x"'))
        answer = self.server.get(PATH)
        self.assertEqual((answer.status, answer.error["code"]), (503, "bad_content"))
        findings = self.server.get(f"{PATH}/verify").json()
        self.assertFalse(findings["is_sound"])
        self.assertIn("outputs", [f["part"] for f in findings["findings"] if f["level"] == "failed"])

    def test_of_many_writes_from_the_same_version_one_succeeds(self):
        self.take("l1")
        self.create("l1")
        document, etag = self.current()
        answers = []
        threads = [threading.Thread(target=lambda: answers.append(self.put("l1", document, etag).status)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        self.assertEqual(sorted(answers), [200] + [412] * 7)


HOLDER = '''
import json, sys, urllib.error, urllib.request
url = sys.argv[1]

def call(method, path, body=None, **headers):
    data = None if body is None else json.dumps(body).encode()
    return json.load(urllib.request.urlopen(urllib.request.Request(url + path, data, headers, method=method)))

call("POST", "/v1/acquire", {"key": "stack:shop:env:prod", "locked_by": "a", "lock_id": "a", "ttl_ms": 1000})
print("loaded", flush=True)
sys.stdin.readline()
try:
    call("PUT", "/v1/state/shop/prod?lock_id=a", {"outputs": {"url": "of a"}}, **{"If-None-Match": "*"})
    print("200 - -")
except urllib.error.HTTPError as error:
    fault = json.load(error)["error"]
    print(error.code, fault["code"], (fault["lock"] or {}).get("locked_by"))
'''


if __name__ == "__main__":
    main()
