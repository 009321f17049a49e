"""What libpq does for a connection: passwords from its files, TLS, services (docs/stores/postgresql.md)."""
import json
import os
import pwd
import signal
import socket
import subprocess
import threading
import time
import unittest
import urllib.error
import urllib.request

from pg_proxy import Proxy
from pg_support import OwnServerCase, PostgresCase, postgresql, wait_until
from support import free_port


class LibpqCase(OwnServerCase):
    """The server lets the user `postgres` in, and others by `RULE`."""

    RULE = ""

    def make_server(self):
        server = super().make_server()
        self.write_rules(server, self.RULE)
        return server

    def write_rules(self, server, rule):
        path = os.path.join(server.home, "pg_hba.conf")
        with open(path, "w", encoding="utf-8") as file:
            file.write(f"host all postgres all trust\n{rule}\n")
        server.sql("SELECT pg_reload_conf()")
        wait_until(lambda: server.sql("SELECT count(*) FROM pg_hba_file_rules") == "2", "the rules")


class Password(LibpqCase):
    RULE = "host all careful all scram-sha-256"

    def setUp(self):
        super().setUp()
        self.sql("CREATE ROLE careful LOGIN PASSWORD 'a:b'")
        self.ok("table", "create", "--grant", "careful")
        self.as_careful = self.store.replace("postgres@", "careful@")
        wait_until(lambda: self.belay("list", "--store", self.as_careful).code == 77, "the new rule")

    def password_file(self, password, name=".pgpass", host="127.0.0.1"):
        path = self.dir / "home" / name
        path.write_text(f"# hostname:port:database:username:password\n{host}:{self.server.port}:*:careful:{password}\n")
        path.chmod(0o600)
        return str(path)

    def runs(self, **env):
        self.ok("run", "k", "--store", self.as_careful, "--", "true", env=env)

    def test_it_is_found_in_pgpass(self):
        self.password_file(r"a\:b")
        self.runs()

    def test_it_is_found_where_libpq_is_told_to_look(self):
        file = self.password_file(r"a\:b", "passwords")
        self.runs(PGPASSFILE=file)
        self.as_careful += f"&passfile={file}"
        self.runs()

    def test_it_is_found_in_a_service(self):
        service = self.dir / "home" / "services"
        service.write_text(f"[locks]\nhost=127.0.0.1\nport={self.server.port}\nuser=careful\npassword=a:b\ndbname=postgres\n")
        self.as_careful = f"postgresql://?service=locks&schema={self.schema}"
        self.runs(PGSERVICEFILE=str(service))

    def test_that_of_another_host_is_not_sent(self):
        """The address in the file is that of the URL, to the letter."""
        self.password_file(r"a\:b", host="localhost")
        self.assertIn("wants the password of the user 'careful'", self.fails(77, "list", "--store", self.as_careful).err)

    def test_a_wrong_one_in_the_file_is_named(self):
        self.password_file("other")
        err = self.fails(77, "list", "--store", self.as_careful).err
        self.assertIn(f"""password authentication failed for user "careful" at '127.0.0.1', with the password in '{self.dir}/home/.pgpass'""", err)
        self.assertNotIn("other", err)


    def test_one_in_the_url_is_for_belay_and_not_for_the_command(self):
        """Also if belay is killed: the guardian, which then ends the command, releases the lock."""
        url = self.as_careful.replace("careful@", "careful:a%3Ab@")
        run = self.start("run", "k", "--ttl", "10m", "--store", url, "--", "sh", "-c", 'echo "$BELAY_STORE" >shown; exec sleep 600')
        wait_until(lambda: (self.dir / "shown").exists() and (self.dir / "shown").read_text(), "the command")
        self.assertEqual((self.dir / "shown").read_text(), f"{self.as_careful}\n")
        run.kill()
        wait_until(lambda: self.ok("status", "k", "--json").json()["status"] == "released", "the release")


class Tls(LibpqCase):
    """The server has a certificate for localhost, and nobody but `postgres` may connect without TLS."""

    RULE = "hostssl all secret all trust"

    def make_server(self):
        server = postgresql.Server()
        self.addCleanup(server.close)
        server.init()
        self.certificate, key = (os.path.join(server.home, name) for name in ("server.crt", "server.key"))
        self.make_certificate(self.certificate, key)
        for path in (self.certificate, key):
            if os.geteuid() == 0:
                user = pwd.getpwnam("nobody")
                os.chown(path, user.pw_uid, user.pw_gid)
        os.chmod(key, 0o600)
        server.options += ["-c", "ssl=on"]
        server.start()
        self.write_rules(server, self.RULE)
        return server

    @staticmethod
    def make_certificate(certificate, key):
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", key,
                        "-out", certificate, "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"],
                       check=True, capture_output=True)

    def setUp(self):
        super().setUp()
        self.sql("CREATE ROLE secret LOGIN")
        self.ok("table", "create", "--grant", "secret")
        self.copy = str(self.dir / "root.crt")
        with open(self.certificate, "rb") as file:
            (self.dir / "root.crt").write_bytes(file.read())

    def secret(self, *more, host="localhost"):
        return self.url(*more).replace("postgres@127.0.0.1", f"secret@{host}")

    def test_a_server_that_is_who_it_says_is_trusted_and_the_connection_is_encrypted(self):
        url = self.secret("sslmode=verify-full", f"sslrootcert={self.copy}")
        run = self.start("run", "k", "--store", url, "--", "sh", "-c", "until [ -e go ]; do sleep 0.05; done")
        sessions = ("SELECT string_agg(DISTINCT s.ssl::text, ' ') FROM pg_stat_ssl s JOIN pg_stat_activity a USING (pid) "
                    "WHERE a.usename = 'secret' AND a.application_name = 'belay'")
        self.assertEqual(wait_until(lambda: self.sql(sessions), "the session"), "true")
        (self.dir / "go").touch()
        self.assertEqual(run.wait(30), 0)

    def test_a_server_with_another_name_is_not_trusted(self):
        url = self.secret("sslmode=verify-full", f"sslrootcert={self.copy}", host="127.0.0.1")
        self.assertRegex(self.fails(69, "list", "--store", url).err, 'certificate for "localhost".* does not match host name "127.0.0.1"')

    def test_a_server_with_a_strange_certificate_is_not_trusted(self):
        other = str(self.dir / "other.crt")
        self.make_certificate(other, str(self.dir / "other.key"))
        for env, more in (({}, [f"sslrootcert={other}"]), ({"PGSSLROOTCERT": other}, [])):
            url = self.secret("sslmode=verify-full", *more)
            self.assertIn("certificate verify failed", self.fails(69, "list", "--store", url, env=env).err)

    def test_a_root_certificate_that_is_missing_is_bad_input(self):
        """L8: not a server that is down."""
        missing = str(self.dir / "missing.crt")
        url = self.secret("sslmode=verify-full")
        self.assertIn(f'refuses the store URL: root certificate file "{missing}" does not exist',
                      self.fails(78, "list", "--store", f"{url}&sslrootcert={missing}").err)
        for env in ({"PGSSLROOTCERT": missing}, {}):  # without it libpq looks in the home directory
            self.assertIn("refuses a PG* variable or a file: root certificate file", self.fails(78, "list", "--store", url, env=env).err)

    def test_a_front_that_has_lost_its_certificate_does_not_blame_its_clients(self):
        """They did nothing wrong, and another front may serve them."""
        url = self.secret("sslmode=verify-full", f"sslrootcert={self.copy}")
        front = self.start("serve", "--json", "--listen", f"127.0.0.1:{free_port()}", "--store", url)
        at = json.loads(front.stdout.readline())["listening"][0]

        def ask():
            try:
                with urllib.request.urlopen(f"{at}/v1/locks", timeout=60) as answer:
                    return answer.status, ""
            except urllib.error.HTTPError as refusal:
                return refusal.code, json.load(refusal)["error"]["message"]

        self.assertEqual(ask(), (200, ""))
        os.remove(self.copy)
        self.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'secret'")
        status, message = ask()
        self.assertEqual(status, 503, message)
        self.assertIn(f'root certificate file "{self.copy}" does not exist', message)

    def test_without_tls_the_server_refuses(self):
        self.assertIn("no encryption", self.fails(77, "list", "--store", self.secret("sslmode=disable")).err)


class Refused(PostgresCase):
    """L8: a value that libpq refuses before it connects is bad input, and nobody is to wait for the server."""

    VALUES = ("sslmode=requir", "target_session_attrs=writable", "channel_binding=yes", "gssencmode=on", "connect_timeout=5s",
              "keepalives=on", "keepalives_idle=1x", "tcp_user_timeout=1s", "ssl_min_protocol_version=1.2", "service=absent",
              "port=1,2,3")
    VARIABLES = {"PGSSLMODE": "requir", "PGTARGETSESSIONATTRS": "writable", "PGCHANNELBINDING": "yes", "PGCONNECT_TIMEOUT": "5s",
                 "PGSERVICE": "absent"}

    def test_in_the_url(self):
        """The server is one that never answers."""
        with socket.create_server(("127.0.0.1", 0)) as silent:
            at = f"postgresql://postgres@127.0.0.1:{silent.getsockname()[1]}/postgres?"
            for pair in self.VALUES:
                for url in (at + pair, f"{self.store}&listen={at.replace('?', '%3F')}{pair.replace('=', '%3D')}"):
                    with self.subTest(url):
                        self.assertIn("libpq refuses the store URL: ", self.fails(64, "list", "--store", url).err)
            self.assertIn("libpq refuses the store URL: could not match 1 host names",
                          self.fails(64, "list", "--store", f"{at}hostaddr=127.0.0.1,127.0.0.2").err)

    def test_a_malformed_parameter_is_named_and_a_password_is_not_shown(self):
        for query, message in (("sslmode", 'the parameter "sslmode" with no \'=\' or with several'),
                               ("password=a=b", 'the parameter "password" with no \'=\' or with several'),
                               ("ssl_mode=require", """the unknown parameter "ssl_mode": did you mean 'sslmode'?"""),
                               ("shcema=x", """the unknown parameter "shcema": did you mean 'schema'?"""),
                               ("durability=full", 'the parameter "durability", which neither belay'),
                               ("schema=a&schema=b", "store parameter 'schema' is given twice"),
                               ("sslmode=disable&connect_timeout=1&sslmode=prefer", "store parameter 'sslmode' is given twice"),
                               ("listen=http://x", "in listen=: the store URL is not one of libpq's"),
                               ("listen=postgresql://x/y%3Fsslmode", 'in listen=: the store URL has the parameter "sslmode" with')):
            with self.subTest(query):
                self.assertIn(message, self.fails(64, "list", "--store", f"postgresql://127.0.0.1:1/db?{query}").err)
        for place in ("db,", "db,schema=x", "d,b?schema=x"):
            with self.subTest(place):
                err = self.fails(64, "list", "--store", f"postgresql://127.0.0.1:1/{place}").err
                self.assertIn(f"has the database '{place.split('?', maxsplit=1)[0]}': write '?' before the first parameter", err)
        for password in ("1/wo,rd", "pass/wo?rd", "pass/wo?rd=x", "pass/wo?rd=x=y"):
            with self.subTest(password):
                err = self.fails(64, "list", "--store", f"postgresql://u:{password}@127.0.0.1:1/db").err
                self.assertIn("in a password write '/', ':' and '@' as", err)
                self.assertNotIn("rd", err.replace("password", ""))
        self.fails(69, "list", "--store", "postgresql://u:pass?a=wo&a=rd@127.0.0.1:1/db")  # as libpq reads it, a password

    def test_a_command_that_waits_does_not_retry(self):
        err = self.fails(64, "run", "--wait", "1h", "k", "--store", f"{self.store}&sslmode=requir", "--", "true").err
        self.assertIn('libpq refuses the store URL: invalid sslmode value: "requir"', err)

    def test_in_the_environment(self):
        for name, value in self.VARIABLES.items():
            with self.subTest(name):
                err = self.fails(78, "list", env={name: value}).err
                self.assertRegex(err, f'libpq refuses a PG. variable or a file: .*"{value}"')
        self.ok("list", "--store", f"{self.store}&sslmode=disable", env={"PGSSLMODE": "requir"})
        err = self.fails(78, "list", "--store", "postgresql://postgres@127.0.0.1/postgres", env={"PGPORT": "abc"}).err
        self.assertIn("libpq refuses a PG* variable or a file: ", err)

    def test_in_a_service(self):
        file = self.dir / "services"
        port = self.server.port
        file.write_text(f"[bad]\nsslmode=requir\n[two]\nhost=127.0.0.1,127.0.0.1\nport={port},{port}\nuser=postgres\ndbname=postgres\n")
        env = {"PGSERVICEFILE": str(file)}
        self.assertIn('variable or a file: invalid sslmode value: "requir"',
                      self.fails(78, "list", "--store", f"{self.store}&service=bad", env=env).err)
        self.ok("list", "--store", f"postgresql://?service=two&schema={self.schema}", env=env)  # two hosts, not one
        self.assertIn("service file", self.fails(78, "list", "--store", f"{self.store}&service=bad",
                                                 env={"PGSERVICEFILE": str(self.dir / "absent")}).err)

    def test_a_server_that_is_down_is_no_bad_input(self):
        with socket.socket() as closed:
            closed.bind(("127.0.0.1", 0))
            self.fails(69, "list", "--store", self.url(port=closed.getsockname()[1]))
        for url in ("postgresql:///postgres?host=/absent", "postgresql://absent.invalid/postgres"):
            self.fails(69, "list", "--store", url)

    def test_a_file_of_passwords_is_read_once(self):
        """libpq complains to stderr each time that it reads one which others may read."""
        path = self.dir / "home" / ".pgpass"
        path.write_text("*:*:*:*:x\n")
        path.chmod(0o644)
        self.assertEqual(self.ok("list").err.count("has group or world access"), 1)

    def test_a_host_without_a_port_beside_one_with_a_port(self):
        err = self.fails(69, "list", "--store", "postgresql://%2Fabsent,%2Fmissing:5433/postgres").err
        for path in ("/absent/.s.PGSQL.5432", "/missing/.s.PGSQL.5433"):
            self.assertIn(path, err)


class Storm(PostgresCase):
    def test_the_connection_for_wake_ups_is_tried_less_and_less_often(self):
        """After a restart all processes that hold a lock or wait would else keep the database from its work."""
        attempts, enough = [], threading.Event()

        def refuse():
            while not enough.is_set():
                client, _ = refusing.accept()
                client.close()
                attempts.append(time.monotonic())
                if len(attempts) == 5:
                    enough.set()

        with socket.create_server(("127.0.0.1", 0)) as refusing:
            threading.Thread(target=refuse, daemon=True).start()
            listen = f"listen=postgresql://postgres@127.0.0.1:{refusing.getsockname()[1]}/postgres?sslmode%3Ddisable%26gssencmode%3Ddisable"
            self.start("run", "k", "--store", self.url(listen), "--", "sleep", "60")
            self.assertTrue(enough.wait(60))
        self.assertGreater(attempts[4] - attempts[0], 0.25 + 0.5 + 1 + 2 - 0.1)  # at least half of 0.5, 1, 2 and 4 s


class Slow(PostgresCase):
    DELAY = 2.5  # less than what a connection for wake-ups waits for an answer

    def test_a_command_that_begins_to_listen_ends_after_one_answer(self):
        """Connecting, LISTEN and the look at its effect are three, each of which may take as long."""
        proxy = Proxy(self.server.port)
        self.addCleanup(proxy.close)
        proxy.delay = self.DELAY
        self.acquire("k", "--ttl", "60s")
        listen = f"listen=postgresql://postgres@127.0.0.1:{proxy.port}/postgres?sslmode%3Ddisable"
        waiter = self.start("acquire", "k", "--wait", "60s", "--store", self.url(listen))
        self.assertTrue(proxy.asked.wait(30))
        began = time.monotonic()
        waiter.send_signal(signal.SIGINT)
        _, err = waiter.communicate(timeout=60)
        self.assertEqual(waiter.returncode, 130, err)
        self.assertLess(time.monotonic() - began, 2 * self.DELAY)


class Silent(PostgresCase):
    """A server that accepts connections and says nothing, as one that is stopped."""

    def setUp(self):
        super().setUp()
        silent = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(silent.close)
        silent.settimeout(60)
        self.silent = silent

    def interrupted(self, times, *args, parameters=""):
        command = self.start(*args, "--store", f"postgresql://me@127.0.0.1:{self.silent.getsockname()[1]}/db{parameters}")
        self.addCleanup(self.silent.accept()[0].close)
        began = time.monotonic()
        for n in range(times):
            command.send_signal(signal.SIGINT)
            if n == 0 and times > 1:
                self.assertIn("interrupt again to leave at once", command.stderr.readline())
        _, err = command.communicate(timeout=60)
        return command.returncode, err, time.monotonic() - began

    def test_watch_and_wait_end_at_the_second_interrupt(self):
        for args in (("watch",), ("wait", "k")):
            with self.subTest(args):
                code, err, took = self.interrupted(2, *args)
                self.assertEqual(code, -signal.SIGINT, err)
                self.assertLess(took, 5, "a request has 10 s")

    def test_they_say_that_they_were_interrupted_and_not_that_the_store_failed(self):
        for args in (("watch",), ("wait", "k")):
            with self.subTest(args):
                self.assertEqual(self.interrupted(1, *args, parameters="?connect_timeout=1")[0], 130)


if __name__ == "__main__":
    unittest.main()
