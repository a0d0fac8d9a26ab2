"""The wheel that pip builds: its name, its size, what is in it, and that it runs by itself."""
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
import textwrap
import unittest
import zipfile

SOURCE = os.environ.get("TENSORD_SOURCE", os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))


def has_tools():
    """Whether this Python can build a wheel without the network."""
    found = [importlib.util.find_spec(name) for name in ("pip", "setuptools", "wheel")]
    return all(found)


@unittest.skipUnless(has_tools(), "pip, setuptools or wheel is not installed")
class Wheel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check",
                   "-w", cls.folder.name, os.path.join(SOURCE, "client", "python")]
        environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "LD_LIBRARY_PATH")}
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True, check=False)
        assert done.returncode == 0, done.stdout
        cls.name, = os.listdir(cls.folder.name)
        with zipfile.ZipFile(os.path.join(cls.folder.name, cls.name)) as wheel:
            cls.files = {each.filename: each.file_size for each in wheel.infolist()}
            wheel.extractall(os.path.join(cls.folder.name, "installed"))

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def installed(self, *parts):
        return os.path.join(self.folder.name, "installed", *parts)

    def test_is_for_every_python(self):
        self.assertRegex(self.name, r"^tensord-[0-9.]+-cp39-abi3-manylinux_2_\d+_\w+\.whl$")

    def test_is_small_and_has_its_libraries(self):
        self.assertLess(sum(self.files.values()), 5 << 20)
        for name in ("__init__.py", "_core.abi3.so", "_core.pyi", "py.typed", "libtensord.so.0"):
            self.assertIn(f"tensord/{name}", self.files)
        self.assertTrue(any(name.startswith("tensord/libprotobuf-c.so") for name in self.files))

    def test_finds_its_libraries_beside_itself(self):
        for name in ("_core.abi3.so", "libtensord.so.0"):
            said = subprocess.run(["readelf", "-d", self.installed("tensord", name)], stdout=subprocess.PIPE, universal_newlines=True, check=True)
            self.assertEqual(re.findall(r"\((?:RUNPATH|RPATH)\).*\[(.*)\]", said.stdout), ["$ORIGIN"], name)

    def test_runs(self):
        code = """
            import tensord as td
            daemon = td.serve()
            print((td.asarray([1.0, 2.0]) + 1).tolist())
            with open("/proc/self/maps", encoding="utf-8") as maps:
                print(sorted({line.split()[-1] for line in maps if "libtensord" in line or "libprotobuf" in line}))
            """
        environment = {**os.environ, "PYTHONPATH": self.installed()}
        environment.pop("LD_LIBRARY_PATH", None)
        done = subprocess.run([sys.executable, "-B", "-c", textwrap.dedent(code)], env=environment, cwd=self.folder.name,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True, check=False)
        lines = done.stdout.splitlines()
        self.assertEqual(lines[:1], ["[2.0, 3.0]"], done.stderr)
        self.assertEqual(len(eval(lines[1])), 2)
        for path in eval(lines[1]):
            self.assertTrue(path.startswith(os.path.realpath(self.installed())), path)


if __name__ == "__main__":
    unittest.main()
