"""Makes a wheel: meson builds the extension and the client library in a folder of their own, and setuptools packs them.

The wheel has its own libtensord.so and libprotobuf-c.so, and uses the system's OpenSSL. The extension uses the stable ABI, so one wheel is
for all Pythons from 3.9 on. It needs the whole checkout, and what `scripts/setup python` installs.
"""
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys

from setuptools import Distribution, setup
from setuptools.command.build_py import build_py

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:
    from wheel.bdist_wheel import bdist_wheel

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
CARRIED = ("libprotobuf-c.so",)  # beside libtensord.so itself


def version():
    return re.search(r"version: '([^']+)'", (ROOT / "meson.build").read_text(encoding="utf-8"))[1]


def run(*command):
    try:
        subprocess.run([str(each) for each in command], cwd=ROOT, check=True)
    except FileNotFoundError:
        raise SystemExit(f"{command[0]} is missing: run scripts/setup python") from None


def needed(library):
    """The libraries that it needs, by name, where the loader finds them."""
    said = subprocess.run(["ldd", str(library)], stdout=subprocess.PIPE, universal_newlines=True, check=True).stdout
    return dict(re.findall(r"(\S+) => (/\S+)", said))


def build(to):
    """Builds the package into the folder `to`."""
    to, folder = pathlib.Path(to).resolve(), ROOT / "build-python"
    run("scripts/configure", folder, "-Dbuildtype=release", "-Dparts=client", "-Dpython=enabled", "-Dpython-install=/package",
        f"-Dpython-program={sys.executable}")
    run("ninja", "-C", folder, "python")
    staged = folder / "staged"
    shutil.rmtree(staged, ignore_errors=True)
    run("meson", "install", "-C", folder, "--no-rebuild", "--quiet", "--strip", "--tags", "python", "--destdir", staged)
    library = folder / "client" / "libtensord.so.0"
    carried = [library] + [pathlib.Path(path) for name, path in needed(library).items() if name.startswith(CARRIED)]
    to.mkdir(parents=True, exist_ok=True)
    shutil.copytree(staged / "package" / "tensord", to, dirs_exist_ok=True)
    for each in carried:
        name = each.name if each is library else next(name for name, path in needed(library).items() if path == str(each))
        shutil.copy(each, to / name)
        run("strip", "--strip-unneeded", to / name)


class Build(build_py):
    def run(self):
        editable = getattr(self, "editable_mode", False)
        to = HERE / "src" / "tensord" if editable else pathlib.Path(self.build_lib) / "tensord"
        if not editable:
            shutil.rmtree(to, ignore_errors=True)  # what an earlier build has left
        super().run()
        build(to)


class Wheel(bdist_wheel):
    def get_tag(self):
        libc, number = platform.libc_ver()
        machine = platform.machine()
        system = f"manylinux_{number.replace('.', '_')}_{machine}" if libc == "glibc" else f"linux_{machine}"
        return "cp39", "abi3", system


class Binary(Distribution):
    def has_ext_modules(self):
        return True


os.chdir(HERE)
setup(version=version(), packages=["tensord", "tensord.nn"], package_dir={"": "src"}, cmdclass={"build_py": Build, "bdist_wheel": Wheel},
      distclass=Binary)
