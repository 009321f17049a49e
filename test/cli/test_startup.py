"""What `belay run` costs at its start, in files and libraries: numbers that do not depend on the machine's speed.

`bench/run --only commands` measures the time. A library or a file more is paid by every guarded command: if one is
needed, change the lists here, and say why in the commit.
"""

import os
import re
import shutil
import subprocess

from support import BELAY, BelayCase, main

LIBRARIES = ["libc.so.6", "libm.so.6"]
# D is the test's directory. The first two belong to the boot clock, by which leases are counted.
OPENED = ["/proc/self/timens_offsets", "/proc/sys/kernel/random/boot_id", "D/belay.db", "D/belay.db-shm", "D/belay.db-wake", "D/belay.db-wal"]
SOUGHT = ["./belay.yaml", "/etc/belay/config.yaml", "D/config/belay/config.yaml"]
# The user's name, for the holder, comes from glibc, as /etc/nsswitch.conf says.
NAMES = re.compile(r"/etc/(nsswitch\.conf|passwd|ld\.so\.cache|localtime)$|/libnss_|/run/systemd/userdb|/var/(run|db)/|/dev/tty$")


class Startup(BelayCase):
    def traced(self, *args):
        """The system calls that open files or start programs, of belay and of its children until they are the command."""
        # A file for each process: in a common one, their lines would interrupt each other.
        env = {"HOME": str(self.dir), "XDG_CONFIG_HOME": f"{self.dir}/config", "PATH": "/usr/bin:/bin", "LANG": "C"}
        subprocess.run([shutil.which("strace"), "-ff", "-qq", "-e", "trace=open,openat,execve", "-o", self.dir / "strace", BELAY, "--store",
                        self.store, *args], env=env, cwd=self.dir, check=True, stdin=subprocess.DEVNULL)
        calls = []
        for log in self.dir.glob("strace.*"):
            for line in log.read_text(encoding="utf-8").splitlines():
                calls.append(line)
                if line.startswith('execve("/usr/bin/true"'):
                    break
        return calls

    def opened(self, calls):
        """{path: whether it was there}"""
        found = {}
        for line in calls:
            match = re.match(r'open(?:at)?\((?:AT_FDCWD, )?"([^"]+)", .*\) += (-?\d+)', line)
            if match and not NAMES.search(match[1]):
                found[match[1].replace(str(self.dir), "D")] = int(match[2]) >= 0
        return found

    def test_a_guarded_command_loads_two_libraries_and_opens_six_files(self):
        self.ok("run", "demo", "--", "true")  # the file is there
        calls = self.traced("run", "demo", "--", "/usr/bin/true")
        found = self.opened(calls)
        libraries = [path for path in found if re.search(r"\.so(\.|$)", path)]
        self.assertEqual(sorted(os.path.basename(path) for path in libraries if found[path]), LIBRARIES)
        self.assertEqual(sorted(path for path in found if found[path] and path not in libraries), OPENED)
        self.assertEqual(sorted(path for path in found if not found[path]), SOUGHT)
        programs = [line for line in calls if line.startswith("execve(") and line.endswith("= 0")]
        self.assertEqual(len(programs), 2, programs)  # belay and the command: no helper is started


if __name__ == "__main__":
    main()
