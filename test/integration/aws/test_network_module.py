"""belay-net.so: one symbol, and loaded only when needed (docs/architecture.md: start-up)."""
import ctypes
import os
import re
import subprocess
import unittest

from support import ROOT

MODULE = os.environ.get("BELAY_NET", os.path.join(ROOT, "build/plain/belay-net.so"))
FOLDER = os.path.dirname(MODULE)


def output(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL).stdout


def needed(path):
    return set(re.findall(r"\(NEEDED\).*\[(.*)\]", output("readelf", "-d", path)))


class Module(unittest.TestCase):
    def test_the_module_exports_one_symbol(self):
        names = [line.split()[2].split("@")[0] for line in output("nm", "-D", "--defined-only", MODULE).splitlines()]
        self.assertEqual(names, ["belay_net_entry"])

    def test_the_module_loads_with_all_symbols_resolved_and_has_a_version(self):
        if "asan" in output("ldd", MODULE) or "tsan" in output("ldd", MODULE):
            self.skipTest("a sanitizer must be in the program, not only in the module")

        class Entry(ctypes.Structure):
            _fields_ = [("abi", ctypes.c_uint32), ("version", ctypes.c_char_p), ("open_dynamodb", ctypes.c_void_p),
                        ("table_create", ctypes.c_void_p)]
        entry = Entry.in_dll(ctypes.CDLL(MODULE, mode=os.RTLD_NOW | os.RTLD_LOCAL), "belay_net_entry")
        with open(os.path.join(ROOT, "src/network/net_module.h"), encoding="utf-8") as file:
            self.assertEqual(entry.abi, int(re.search(r"NET_MODULE_ABI = (\d+)", file.read()).group(1)))
        with open(os.path.join(FOLDER, "generated/version.h"), encoding="utf-8") as file:
            self.assertIn(f'"{entry.version.decode()}"', file.read())
        self.assertTrue(entry.open_dynamodb and entry.table_create)

    def test_only_the_module_needs_the_network_libraries(self):
        self.assertTrue(any(name.startswith("libcurl") for name in needed(MODULE)))
        for name in ("libbelay.so", "belay"):
            for library in needed(os.path.join(FOLDER, name)):
                self.assertNotRegex(library, "curl|ssl|crypto|expat", f"{name} needs {library}")


if __name__ == "__main__":
    unittest.main()
