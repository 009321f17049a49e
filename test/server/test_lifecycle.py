"""Starting, stopping, reloading, being killed; sockets, TLS and the log."""

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import sqlite3
import ssl
import struct
import subprocess
import time

from server_support import BELAY, PATIENCE, ServerCase, main, wait_until


# A name server that knows a name of this machine.
NAMES = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netdb.h>
#include <string.h>

int getaddrinfo(const char *host, const char *service, const struct addrinfo *hints, struct addrinfo **out)
{
    int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **) = dlsym(RTLD_NEXT, "getaddrinfo");

    return real(host != NULL && strcmp(host, "front.test") == 0 ? "127.0.1.1" : host, service, hints, out);
}
"""


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=PATIENCE)
        self.path = str(path)

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self.path)


class Starting(ServerCase):
    def test_it_says_where_it_is_and_what_to_type(self):
        process = self.start("serve", "--listen", "127.0.0.1:0")
        lines = [process.stdout.readline() for _ in range(6)]
        self.assertRegex(lines[0], r"^Serving sqlite:/.* on http://127\.0\.0\.1:\d+$")
        self.assertIn("curl -d '{\"locked_by\":\"me\"}' http://127.0.0.1:", lines[1])
        self.assertRegex(lines[4], r"^Look: http://127\.0\.0\.1:\d+/ and ")
        self.assertEqual(lines[5], "Ctrl-C stops it.\n")
        command = lines[1].removeprefix("Try:  ").strip()
        done = subprocess.run(["bash", "-c", f"{command} -s"], capture_output=True, text=True, timeout=30, check=False)
        self.assertEqual(json.loads(done.stdout)["key"], "my-deploy")

    def test_it_says_the_name_that_it_was_given(self):
        """A certificate has the name, and not the address."""
        process = self.start("serve", "--listen", "localhost:0")
        self.assertRegex(process.stdout.readline(), r"^Serving sqlite:/.* on http://localhost:[1-9]\d*$")
        self.assertIn(" http://localhost:", process.stdout.readline())

    def test_it_warns_of_a_name_that_only_this_machine_can_use(self):
        """As Debian's /etc/hosts has the machine's own: other machines are refused, and the name looks right."""
        source, library = self.dir / "names.c", self.dir / "names.so"
        source.write_text(NAMES, encoding="ascii")
        subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
        env = {"LD_PRELOAD": str(library), "ASAN_OPTIONS": "verify_asan_link_order=0:" + self.env.get("ASAN_OPTIONS", "")}
        for name, told in (("front.test", 1), ("localhost", 0), ("127.0.0.1", 0)):
            process = self.start("serve", "--listen", f"{name}:0", "--log", "text", env=env)
            self.assertRegex(process.stdout.readline(), rf"^Serving sqlite:/.* on http://{name}:[1-9]\d*$")
            process.terminate()
            err = process.communicate(timeout=PATIENCE)[1]
            self.assertEqual(len(re.findall(rf"only this machine can use '{name}:0', because it is the address 127\.0\.1\.1:\d+ here", err)),
                             told, err)
            self.assertEqual(err.count("only this machine"), told, err)

    def test_what_it_says_to_type_works_with_a_token(self):
        process = self.start("serve", "--listen", "127.0.0.1:0", "--config", str(self.config_with({"secret": ("ci", "locker", [])})))
        lines = [process.stdout.readline() for _ in range(6)]
        env = self.environment({"TOKEN": "secret", "PATH": f"{os.path.dirname(BELAY)}:{os.environ['PATH']}"})
        for line, answer in zip(lines[1:4], ('"key":"my-deploy"', '"locks":', "locked\n")):
            command = line.removeprefix("Try:  ").strip()
            done = subprocess.run(["bash", "-c", command], env=env, capture_output=True, text=True, timeout=30, check=False)
            self.assertIn(answer, done.stdout, (command, done.stderr))

    def test_it_listens_where_the_configuration_says(self):
        server = self.serve(listen=None, config=self.write_config("server: {listen: '127.0.0.1:0'}\n"))
        self.assertEqual(server.get("/healthz").status, 200)

    def test_it_listens_at_several_places(self):
        path = self.dir / "s.sock"
        server = self.serve("--listen", "[::1]:0", "--unix", str(path))
        self.assertEqual(len(server.hello["listening"]), 3)
        self.assertEqual(path.stat().st_mode & 0o777, 0o600)
        answer = server.call("POST", "/v1/locks/k/acquire", {"locked_by": "me"}, connection=UnixConnection(path))
        self.assertEqual(answer.status, 200)
        answer = server.call("DELETE", "/v1/locks/k", connection=UnixConnection(path))
        event = server.get("/v1/locks/k/history?limit=1").json()["events"][0]
        self.assertTrue(event["by"].startswith(f"unix:uid={os.getuid()}"), event["by"])
        self.assertEqual(server.stop(), 0)
        self.assertFalse(path.exists())

    def test_an_address_in_use_is_reported(self):
        server = self.serve()
        result = self.belay("serve", "--listen", f"127.0.0.1:{server.port}", "--store", f"sqlite:{self.dir}/other.db")
        self.assertIn(result.code, (69, 78))
        self.assertIn(str(server.port), result.err)

    def test_wrong_options_are_refused(self):
        self.fails(64, "serve", "--log", "xml")
        self.fails(64, "serve", "--tls-cert", "x")
        self.fails(64, "serve", "extra")
        self.assertNotEqual(self.belay("serve", "--listen", "nonsense").code, 0)
        self.assertNotEqual(self.belay("serve", "--listen", "127.0.0.1:0", "--tls-cert", "/no", "--tls-key", "/no").code, 0)

    def test_another_servers_locks_are_not_served(self):
        url = self.serve().hello["listening"][0]
        self.assertIn("a store of its own, sqlite:PATH, postgresql://HOST/DATABASE or dynamodb:TABLE", self.fails(64, "serve", "--listen", "127.0.0.1:0", "--store", url).err)

    def test_other_commands_do_not_load_the_server(self):
        """Start-up is part of the product."""
        done = subprocess.run(["ldd", BELAY], capture_output=True, text=True, check=True)
        for library in ("libssl", "libcrypto", "http_parser"):
            self.assertNotIn(library, done.stdout)

    def test_the_module_is_not_taken_from_the_working_directory(self):
        program = self.dir / "bin" / "belay"
        program.parent.mkdir()
        program.write_bytes(open(BELAY, "rb").read())
        program.chmod(0o755)
        (self.dir / "belay-serve.so").symlink_to(os.path.join(os.path.dirname(BELAY), "belay-serve.so"))
        done = subprocess.run([program, "serve"], env=self.env, cwd=self.dir, capture_output=True, text=True, timeout=30,
                              check=False)
        self.assertEqual(done.returncode, 78)
        self.assertIn("is not installed beside the program", done.stderr)
        (program.parent / "belay-serve.so").symlink_to(os.path.join(os.path.dirname(BELAY), "belay-serve.so"))
        done = subprocess.run([program, "auth", "new"], env=self.env, cwd=self.dir, capture_output=True, timeout=30,
                              check=False)
        self.assertEqual(done.returncode, 0, done.stderr)


class Stopping(ServerCase):
    def test_signals_stop_it(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            server = self.serve()
            server.acquire("k")
            idle = server.connect()
            idle.connect()
            began = time.monotonic()
            self.assertEqual(server.stop(number), 0, server.log())
            self.assertLess(time.monotonic() - began, 9)  # not at the end of the drain, after 10 s
            idle.close()

    def test_requests_in_progress_are_finished(self):
        server = self.serve()
        connection = server.raw()
        body = b'{"locked_by":"me"}'
        connection.sendall(b"POST /v1/locks/k/acquire HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n{" % len(body))
        wait_until(lambda: server.get("/healthz").status == 200, "the server to have read it")
        server.process.send_signal(signal.SIGTERM)
        wait_until(lambda: "stopping" in server.log(), "the drain to begin")
        connection.sendall(body[1:])
        response = http.client.HTTPResponse(connection)
        response.begin()
        self.assertEqual((response.status, json.loads(response.read())["error"]["code"]), (503, "shutting_down"))
        self.assertEqual(response.headers["Connection"], "close")
        connection.close()
        self.assertEqual(server.process.wait(PATIENCE), 0)

    def test_a_request_in_the_same_loop_iteration_as_the_signal_is_answered(self):
        """They come while it is stopped, and so all of them, and the signal, in one turn."""
        server = self.serve()
        connections = [server.connect() for _ in range(20)]
        for connection in connections:
            connection.connect()
        server.get("/healthz")  # it has taken them all
        os.kill(server.process.pid, signal.SIGSTOP)
        for i, connection in enumerate(connections):
            body = json.dumps({"locked_by": "me", "lock_id": f"id-{i}", "ttl_ms": 60000, "wait_ms": 20000})
            connection.request("POST", f"/v1/locks/k{i % 5}/acquire", body)
        server.process.send_signal(signal.SIGTERM)
        os.kill(server.process.pid, signal.SIGCONT)
        for connection in connections:
            response = connection.getresponse()
            self.assertIn(response.status, (200, 503))
            connection.close()
        self.assertEqual(server.process.wait(PATIENCE), 0, server.log())

    def test_a_second_signal_ends_it_at_once(self):
        server = self.serve()
        connection = server.raw()
        connection.sendall(b"POST /v1/acquire HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n")
        server.get("/healthz")
        server.process.send_signal(signal.SIGTERM)
        wait_until(lambda: "stopping" in server.log(), "the drain to begin")
        began = time.monotonic()
        self.assertEqual(server.stop(), 0)
        self.assertLess(time.monotonic() - began, 9)  # not at the end of the drain, after 10 s
        connection.close()

    def test_a_lock_is_not_tied_to_a_process(self):
        """The lock is on disk before the answer, and survives a restart of the machine (L7)."""
        server = self.serve()
        server.acquire("k")
        self.assertEqual(server.stop(), 0)  # then the database alone is everything
        with contextlib.closing(sqlite3.connect(self.dir / "belay.db")) as store:
            self.assertEqual(store.execute("SELECT outlives FROM locks WHERE key = 'k'").fetchall(), [(1,)])


class Systemd(ServerCase):
    def activate(self, listener):
        """Hand a listening socket over as descriptor 3, as systemd does."""
        def hand_over():
            os.dup2(listener.fileno(), 3)
            os.set_inheritable(3, True)
        # LISTEN_PID must be the pid of the program itself, so a shell sets it and becomes it.
        script = 'LISTEN_PID=$$ LISTEN_FDS=1 exec "$@"'
        argv = ["bash", "-c", script, "bash", BELAY, "serve", "--json", "--log", "json"]
        process = subprocess.Popen(argv, env=self.environment(None), cwd=self.dir, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, encoding="utf-8", preexec_fn=hand_over, close_fds=False)
        self.addCleanup(self.end, process)
        return process, json.loads(process.stdout.readline())

    def test_it_takes_a_socket_that_was_opened_for_it(self):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
            waiting = socket.create_connection(("127.0.0.1", port))
            waiting.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            process, hello = self.activate(listener)
        self.assertEqual(hello["listening"], [f"http://127.0.0.1:{port}"])
        waiting.settimeout(PATIENCE)
        self.assertIn(b"200 OK", waiting.recv(100), "a connection from before the start is served")
        waiting.close()
        process.terminate()
        self.assertEqual(process.wait(PATIENCE), 0)

    def test_a_public_socket_needs_tokens_too(self):
        with socket.create_server(("0.0.0.0", 0)) as listener:
            with self.assertRaises(ValueError):
                self.activate(listener)

    def test_the_server_notifies_systemd_of_its_state(self):
        path = str(self.dir / "notify")
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as box:
            box.bind(path)
            box.settimeout(PATIENCE)
            server = self.serve(env={"NOTIFY_SOCKET": path})
            self.assertEqual(box.recv(200), b"READY=1")
            server.process.send_signal(signal.SIGHUP)
            self.assertRegex(box.recv(200), rb"^RELOADING=1\nMONOTONIC_USEC=\d+$")
            self.assertEqual(box.recv(200), b"READY=1")
            server.process.send_signal(signal.SIGTERM)
            self.assertEqual(box.recv(200), b"STOPPING=1")
            self.assertEqual(server.process.wait(PATIENCE), 0)


class Tls(ServerCase):
    def certificate(self, name):
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                        "-keyout", self.dir / "key.pem", "-out", self.dir / "cert.pem", "-days", "2", "-subj", f"/CN={name}"],
                       check=True, capture_output=True)

    def peer_name(self, port):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as plain:
            with context.wrap_socket(plain) as secure:
                der = secure.getpeercert(binary_form=True)
                secure.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                self.assertIn(b"200 OK", secure.recv(100))
        return "one" if b"one" in der else "two" if b"two" in der else der

    def test_tls_is_served_and_its_certificate_reloaded(self):
        self.certificate("one")
        server = self.serve("--tls-cert", str(self.dir / "cert.pem"), "--tls-key", str(self.dir / "key.pem"))
        self.assertTrue(server.url.startswith("https://127.0.0.1:"))
        self.assertEqual(self.peer_name(server.port), "one")
        self.certificate("two")
        server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: "reloaded" in server.log(), "the reload")
        self.assertEqual(self.peer_name(server.port), "two")
        (self.dir / "cert.pem").write_text("broken")
        server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: "nothing was changed" in server.log(), "the refusal")
        self.assertEqual(self.peer_name(server.port), "two")


class Log(ServerCase):
    def test_every_request_is_a_line_of_json(self):
        server = self.serve()
        answer = server.acquire("k\"\\", "me")
        server.get("/v1/locks/k?x=1")
        server.stop()
        lines = [line for line in server.log_lines() if line["event"] == "request"]
        line = [line for line in lines if line["method"] == "POST"][0]
        self.assertEqual((line["path"], line["status"], line["level"]), ("/v1/locks/k%22%5C/acquire", 200, "info"))
        self.assertEqual(line["request_id"], answer.headers["X-Request-Id"])
        self.assertTrue(line["peer"].startswith("127.0.0.1:"))
        self.assertTrue({"timestamp", "duration_ms", "who"} <= set(line))
        self.assertEqual([line["path"] for line in lines if line["status"] == 400], ["/v1/locks/k"])

    def test_hostile_paths_cannot_forge_a_line(self):
        server = self.serve()
        for path in (b'/"}\\', b"/\x7f", b"/\xff\xfe", b"/" + b"a" * 3000):
            with server.raw() as connection:
                connection.sendall(b"GET " + path + b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                while connection.recv(65536):
                    pass
        server.stop()
        self.assertGreaterEqual(len(server.log_lines()), 3)

    def test_a_client_that_disconnected_is_logged_as_such(self):
        server = self.serve()
        server.acquire("k")
        connection = server.connect()
        connection.request("POST", "/v1/locks/k/acquire", '{"locked_by":"me","wait_ms":20000,"ttl_ms":60000}')
        server.wait_for_queue("k", ["me"])
        connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()
        wait_until(lambda: any(line.get("status") == 499 for line in server.log_lines()), "the log line")

    def test_the_text_log_is_readable(self):
        process = self.start("serve", "--listen", "127.0.0.1:0", "--log", "text", "--json")
        url = json.loads(process.stdout.readline())["listening"][0]
        subprocess.run(["curl", "-s", url + "/healthz"], capture_output=True, check=True, timeout=30)
        process.terminate()
        self.assertRegex(process.stderr.read(), r"(?m)^\S+Z info  request request_id=\S+ method=GET path=/healthz 200 \d+ms")


class OpenApi(ServerCase):
    def test_the_document_is_complete(self):
        server = self.serve()
        document = server.get("/openapi.json").json()
        self.assertTrue(document["openapi"].startswith("3.1"))
        self.assertEqual(set(document["info"]), {"title", "version", "description", "contact", "license"})
        refs = set()

        def walk(value):
            if isinstance(value, dict):
                if "$ref" in value:
                    refs.add(value["$ref"].removeprefix("#/components/schemas/"))
                for item in value.values():
                    walk(item)
            elif isinstance(value, list):
                for item in value:
                    walk(item)
        walk(document)
        self.assertLessEqual(refs, set(document["components"]["schemas"]))
        for path, operations in document["paths"].items():
            for method, operation in operations.items():
                with self.subTest(f"{method} {path}"):
                    self.assertTrue(operation["summary"])
                    self.assertIn("200", operation["responses"])
                    for answer in operation["responses"].values():
                        self.assertTrue(answer["description"] and answer["content"])
                    named = {p["name"] for p in operation["parameters"] if p["in"] == "path"}
                    self.assertEqual(named, set(re.findall(r"{(\w+)}", path)))
                    self.assertEqual(bool(operation["security"]), path.startswith(("/v1/", "/metrics", "/status/")))

    def test_every_documented_route_exists(self):
        server = self.serve()
        for path, operations in server.get("/openapi.json").json()["paths"].items():
            real = path.replace("{key}", "some-key")
            answer = server.call("PATCH", real)
            self.assertEqual(answer.status, 405)
            allow = set(answer.headers["Allow"].split(", ")) - {"HEAD"}
            self.assertEqual(allow, {method.removeprefix("x-").upper() for method in operations}, path)

    def test_every_documented_field_is_taken(self):
        """A client that knows nothing but the document."""
        server = self.serve()
        texts = {"key": "k", "locked_by": "me", "lock_id": "id-1", "profile": "execution"}
        paths = server.get("/openapi.json").json()["paths"]
        for path in ("/v1/acquire", "/v1/renew", "/v1/release"):
            schema = paths[path]["post"]["requestBody"]["content"]["application/json"]["schema"]
            body = {}
            for name, field in schema["properties"].items():
                if name in ("webhook", "keys", "stack", "environment", "service", "component", "slots"):
                    continue  # these exclude others: test_webhooks.py, test_lock_kinds.py, test_chatbot.py
                if name == "locked_by" and path != "/v1/acquire":
                    continue  # instead of lock_id
                body[name] = {"string": texts.get(name, field.get("enum", ["some text"])[0]), "boolean": True,
                              "integer": max(field.get("minimum", 0), 100) * (100 if name == "ttl_ms" else 1),
                              "object": {"a": "b"}}[field["type"]]
            answer = server.post(path, body)
            self.assertEqual(answer.status, 200, answer)
        self.assertEqual(schema["additionalProperties"], False)


if __name__ == "__main__":
    main()
