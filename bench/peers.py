"""The servers that belay is measured beside, and belay's own: each started here, on
loopback, in a directory of its own, and stopped again. What is not installed is
unpacked from Debian's packages below build/ and not installed (tools/unpack).
"""
import contextlib
import glob
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "test", "support"))
import postgresql  # noqa: E402
from ports import free_port  # noqa: E402

BUILD = os.path.join(ROOT, "build")
BELAY = os.path.join(BUILD, "belay")
UNPACKED = os.path.join(BUILD, "peers")
START_S = 30


def sh(*words, **options):
    done = subprocess.run(words, check=False, capture_output=True, text=True, stdin=subprocess.DEVNULL, **options)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(words)}: exit {done.returncode}: {done.stderr.strip()[:2000]}")
    return done.stdout


def find(name, file, *packages):
    """The installed program `name`, else `file` of Debian's `packages`."""
    found = shutil.which(name)
    return found or sh(os.path.join(ROOT, "tools", "unpack"), file, *packages).strip()


def unpacked_env():
    """With the libraries of unpacked programs, behind those that are installed."""
    return dict(os.environ, LD_LIBRARY_PATH=f"{UNPACKED}/usr/lib/x86_64-linux-gnu")


class Server:
    """A process with a port."""

    def __init__(self, process, port):
        self.process, self.port = process, port

    def memory_mib(self):
        with open(f"/proc/{self.process.pid}/status", encoding="ascii") as status:
            return next(int(line.split()[1]) / 1024 for line in status if line.startswith("VmRSS:"))


@contextlib.contextmanager
def running(log, words, port, stop=signal.SIGTERM, **options):
    """Started, listening, and stopped at the end: this process and no other."""
    with open(log, "w", encoding="utf-8") as out:
        process = subprocess.Popen(words, stdout=out, stderr=out, stdin=subprocess.DEVNULL, **options)
    try:
        wait_for(process, port, log)
        yield Server(process, port)
    finally:
        process.send_signal(stop)
        try:
            process.wait(START_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait_for(process, port, log):
    until = time.monotonic() + START_S
    while time.monotonic() < until and process.poll() is None:
        with contextlib.suppress(OSError), contextlib.closing(socket.create_connection(("127.0.0.1", port), 1)):
            return
        time.sleep(0.05)
    with open(log, encoding="utf-8", errors="replace") as text:
        raise RuntimeError(f"{process.args[0]} does not listen on port {port}: {text.read()[-2000:]}")


@contextlib.contextmanager
def belay(directory, *more, store=None):
    """On a file of its own, which is also reached through the socket beside it, or on `store`."""
    port = free_port()
    with running(f"{directory}/serve-{port}.log", [BELAY, "serve", "--store", store or f"sqlite:{directory}/served.db",
                                                   "--listen", f"127.0.0.1:{port}", *more], port) as server:
        yield server


@contextlib.contextmanager
def redis(directory):
    """Every command is on disk before it is answered."""
    program = find("redis-server", "usr/bin/redis-server", "redis-server", "redis-tools", "libjemalloc2", "liblzf1",
                   "libatomic1")
    port = free_port()
    os.makedirs(f"{directory}/redis")
    with running(f"{directory}/redis.log", [program, "--port", str(port), "--bind", "127.0.0.1", "--dir",
                                            f"{directory}/redis", "--appendonly", "yes", "--appendfsync", "always",
                                            "--save", ""], port, env=unpacked_env()) as server:
        yield server


@contextlib.contextmanager
def etcd(directory):
    program = find("etcd", "usr/bin/etcd", "etcd-server", "etcd-client")
    port = free_port()
    client, peer = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{free_port()}"
    with running(f"{directory}/etcd.log", [program, "--data-dir", f"{directory}/etcd", "--listen-client-urls", client,
                                           "--advertise-client-urls", client, "--listen-peer-urls", peer,
                                           "--initial-advertise-peer-urls", peer, "--initial-cluster",
                                           f"default={peer}"], port) as server:
        yield server


def etcdctl(server):
    """The program and its environment."""
    program = find("etcdctl", "usr/bin/etcdctl", "etcd-server", "etcd-client")
    env = dict(os.environ, ETCDCTL_API="3", ETCDCTL_ENDPOINTS=f"http://127.0.0.1:{server.port}")
    sh(program, "endpoint", "health", env=env)
    return program, env


@contextlib.contextmanager
def postgres(directory, flush_ms=0):
    """As Debian configures it, with room for the clients. It does not run as root: then it runs as `nobody`.
    flush_ms: by how much a flush takes longer than this disk needs."""
    found = sorted(glob.glob("/usr/lib/postgresql/*/bin/postgres"))
    program = found[-1] if found else sh(os.path.join(ROOT, "tools", "unpack"), "usr/lib/postgresql/15/bin/postgres",
                                         "postgresql-15", "postgresql-client-15", "libpq5", "libllvm14").strip()
    home, port = f"{directory}/postgres", free_port()
    who = {"env": unpacked_env(), "cwd": directory}
    os.makedirs(home)
    if os.geteuid() == 0:
        nobody = pwd.getpwnam("nobody")
        os.chmod(directory, 0o755)
        os.chown(home, nobody.pw_uid, nobody.pw_gid)
        who.update(user=nobody.pw_uid, group=nobody.pw_gid, extra_groups=[])
    sh(os.path.join(os.path.dirname(program), "initdb"), "-D", home, "-U", "postgres", "-A", "trust", "-E", "UTF8",
       "--locale", "C", **who)
    if flush_ms > 0:
        who["env"].update(LD_PRELOAD=os.path.join(BUILD, "slow_flush.so"), BENCH_FLUSH_MS=str(flush_ms))
    with running(f"{directory}/postgres.log", [program, "-D", home, "-p", str(port), "-h", "127.0.0.1", "-k", "",
                                               "-c", "max_connections=200"], port, stop=signal.SIGINT, **who) as server:
        while not postgresql.is_ready(home, server.process):  # it listens before it answers
            time.sleep(0.05)
        yield server


@contextlib.contextmanager
def nginx(directory, folder):
    """The files below `folder`."""
    program = find("nginx", "usr/sbin/nginx", "nginx")
    port, home = free_port(), os.path.join(directory, "nginx")
    os.makedirs(home, exist_ok=True)
    temporary = "".join(f"{name}_temp_path {home}/{name}; " for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    with open(f"{home}/conf", "w", encoding="utf-8") as conf:
        conf.write(("user root; " if os.geteuid() == 0 else "") +
                   f"daemon off; worker_processes 1; pid {home}/pid; error_log {home}/error; events {{}} "
                   f"http {{ access_log off; sendfile on; tcp_nopush on; keepalive_requests 1000000; {temporary}"
                   f"server {{ listen 127.0.0.1:{port}; root {folder}; }} }}\n")
    with running(f"{directory}/nginx.log", [program, "-c", f"{home}/conf", "-p", home], port) as server:
        yield server


@contextlib.contextmanager
def zookeeper(directory):
    """Alone, as etcd is; its log is synced before it answers, which is its default."""
    java = find("java", "usr/lib/jvm/java-17-openjdk-amd64/bin/java", "openjdk-17-jre-headless")
    unpack = os.path.join(ROOT, "tools", "unpack")
    jar = sh(unpack, "usr/share/java/zookeeper.jar", "zookeeper", "libzookeeper-java", "libcommons-cli-java",
             "libcommons-io-java", "libdropwizard-metrics-java", "libjackson2-annotations-java",
             "libjackson2-core-java", "libjackson2-databind-java", "libjetty9-java", "libnetty-java", "libslf4j-java",
             "libsnappy-java", "liblog4j1.2-java").strip()
    port = free_port()
    os.makedirs(f"{directory}/zookeeper")
    with open(f"{directory}/zoo.cfg", "w", encoding="ascii") as config:
        config.write(f"dataDir={directory}/zookeeper\nclientPort={port}\nclientPortAddress=127.0.0.1\n"
                     "maxClientCnxns=0\nadmin.enableServer=false\ntickTime=2000\n")
    names = ("zookeeper", "zookeeper-jute", "slf4j-api", "slf4j-nop", "metrics-core", "snappy-java", "commons-cli",
             "commons-io", "netty-all", "netty-common", "netty-buffer", "netty-handler", "netty-transport",
             "netty-resolver", "netty-codec")
    path = ":".join(os.path.join(os.path.dirname(jar), f"{name}.jar") for name in names)
    with running(f"{directory}/zookeeper.log", [java, "-Xmx512m", "-cp", path,
                                                "org.apache.zookeeper.server.quorum.QuorumPeerMain",
                                                f"{directory}/zoo.cfg"], port) as server:
        until = time.monotonic() + START_S
        while b"Mode: standalone" not in ask(port, b"srvr") and time.monotonic() < until:
            time.sleep(0.05) # it listens before it serves
        yield server


def ask(port, text):
    with contextlib.suppress(OSError), contextlib.closing(socket.create_connection(("127.0.0.1", port), 1)) as s:
        s.sendall(text)
        return s.recv(4096, socket.MSG_WAITALL)
    return b""
