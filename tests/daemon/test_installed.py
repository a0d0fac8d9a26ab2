#!/usr/bin/env python3
"""What `meson install` puts into place beside the programs: manual pages that have every key and command, completions that offer them,
and a systemd unit that systemd accepts and finds well enclosed. What there is no tool for here is skipped, and said.

usage: test_installed.py BUILD_FOLDER"""
import fnmatch
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

BUILD = sys.argv[1]
SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
EXPOSURE_MAX = 15  # of systemd-analyze security, in tenths: measured offline with systemd 252


def run(*command, **options):
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=120, **options).stdout


class Installed(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.root = tempfile.mkdtemp(prefix="tensord-installed-")
        cls.addClassCleanup(shutil.rmtree, cls.root)
        run("meson", "install", "-C", BUILD, "--no-rebuild", env={**os.environ, "DESTDIR": cls.root})
        cls.files = {}
        for folder, _, names in os.walk(cls.root):
            for name in names:
                cls.files.setdefault(name, []).append(os.path.join(folder, name))
        cls.environment = {**os.environ, "LD_LIBRARY_PATH": os.path.dirname(cls.find("libtensord.so.0"))}

    @classmethod
    def find(cls, name, part=""):
        return next(path for path in cls.files[name] if part in path)

    def help_of(self, program):
        return run(self.find(program, "/bin/"), "--help", env=self.environment)

    def need(self, *programs):
        for program in programs:
            if not shutil.which(program):
                self.skipTest(f"{program} is not installed")

    def page(self, name):
        if name not in self.files:
            self.skipTest("scdoc was not there when this was built")
        self.need("man")
        text = run("man", "--warnings", "-P", "cat", "-l", self.find(name), env={**os.environ, "MANWIDTH": "120"})
        return re.sub(r".\x08", "", text)

    def test_manual_of_the_configuration_has_every_key(self):
        text = self.page("tensord.conf.5")
        keys = re.findall(r"^  --([a-z-]+) +\S", self.help_of("tensord").split("keys, in the file")[1], re.M)
        self.assertIn("session-bytes", keys)
        self.assertGreater(len(keys), 20)
        for key in keys:
            self.assertRegex(text, rf"(?m)^ +{key}( \(default .*\))?$")

    def test_manual_of_tensorctl_has_every_command(self):
        text = self.page("tensorctl.1")
        commands = re.findall(r"^  ([a-z]+) ", self.help_of("tensorctl"), re.M)
        self.assertIn("status", commands)
        for command in commands:
            self.assertRegex(text, rf"(?m)^ +{command} ")
            if command != "help":
                self.assertRegex(text, rf"(?m)^ +usage: tensorctl \[--url URL\] {command}\b")

    def test_manual_of_tensorctl_has_every_key_of_json(self):
        words = set(re.findall(r"\w+", self.page("tensorctl.1").partition("\nJSON")[2].partition("\nENVIRONMENT")[0]))
        for path in ("proto/files/status_json.c", "client/tensorctl/command.c", "client/tensorctl/tensorctl_bench.c",
                     "client/tensorctl/tensorctl_operations.c", "client/tensorctl/tensorctl_names.c"):
            with open(os.path.join(SOURCE, path), encoding="utf-8") as file:
                keys = set(re.findall(r'\bjson_\w+\(&?\w+, "(\w+)"|^    {"(\w+)", "', file.read(), re.M))
            keys = {key for pair in keys for key in pair if key}
            self.assertTrue(keys, path)
            self.assertEqual(keys - words, set(), path)

    def test_every_page_is_formatted_without_warnings(self):
        self.need("groff", "man")
        for name in ("tensord.8", "tensord.conf.5", "tensord-team.7", "tensord-monitoring.7", "tensord-gpu.7", "tensord-operations.7",
                     "tensorctl.1"):
            if name not in self.files:
                self.skipTest("scdoc was not there when this was built")
            said = subprocess.run(["man", "--warnings", "-l", self.find(name)], capture_output=True, text=True, timeout=60,
                                  check=True).stderr
            self.assertEqual(said, "", name)

    def complete(self, *words):
        script = (f"source '{self.find(words[0], 'bash-completion')}'; compopt() {{ :; }}; "
                  'COMP_WORDS=("$@"); COMP_LINE="$*"; COMP_CWORD=$(($# - 1)); _$1; printf "%s\\n" "${COMPREPLY[@]}"')
        environment = {**self.environment, "PATH": os.path.dirname(self.find("tensord", "/bin/")) + ":" + os.environ["PATH"]}
        return run("bash", "-c", script, "bash", *words, env=environment).split()

    def test_bash_completes_flags_and_commands(self):
        self.assertIn("--drain-timeout", self.complete("tensord", "--dr"))
        self.assertEqual(self.complete("tensord", "--log-level", "w"), ["warning"])
        self.assertEqual(self.complete("tensord", "user", "to"), ["token"])
        self.assertEqual(self.complete("tensord", "user", "add", "ann", "--no"), ["--no-token"])
        self.assertEqual(self.complete("tensord", "user", "add", "ann", "--role", "a"), ["admin"])
        self.assertEqual(self.complete("tensord", "--tls-client-auth", "r"), ["required"])
        self.assertEqual(self.complete("tensorctl", "dev"), ["devices"])
        self.assertEqual(self.complete("tensorctl", "status", "--"), ["--json", "--url", "--watch"])
        self.assertEqual(self.complete("tensorctl", "--url", "t"), ["tcp://", "tls://"])

    def test_zsh_reads_its_completions(self):
        self.need("zsh")
        for name in ("_tensord", "_tensorctl"):
            run("zsh", "-n", self.find(name))

    def test_zsh_completes_what_a_command_takes(self):
        self.need("zsh")
        script = ("compadd() { shift; print -l -- ${(P)1} }; _describe() { print -l -- ${(P)2} }; _files() { print a-file }\n"
                  'complete() { eval "$(<$1)" }; words=("${@:2}") CURRENT=$#words PREFIX=$words[-1]; complete $1')

        def complete(*words):
            return run("zsh", "-f", "-c", script, "zsh", self.find("_tensorctl"), self.find("tensorctl", "/bin/"), *words,
                       env=self.environment).splitlines()
        self.assertIn("devices:what devices there are, and how they do", complete(""))
        self.assertIn("--session", complete("--url", "unix:/x", "trace", "--s"))
        self.assertNotIn("--session", complete("status", "--"))
        self.assertEqual(complete("trace", "-o", ""), ["a-file"])

    def test_zsh_completes_the_flags_of_the_daemon_and_its_users(self):
        self.need("zsh")
        script = ("_describe() { print -l -- ${(P)2} }; _arguments() { shift; print -l -- $@ }\n"
                  'complete() { eval "$(<$1)" }; words=("${@:2}") CURRENT=$#words PREFIX=$words[-1]; complete $1')

        def complete(*words):
            return run("zsh", "-f", "-c", script, "zsh", self.find("_tensord"), self.find("tensord", "/bin/"), *words,
                       env=self.environment).splitlines()

        def flag(name, *words):
            return next(line for line in complete(*words) if line.startswith(name))
        self.assertTrue(flag("--tls-client-auth=", "--t").endswith(":(none optional required)"))
        self.assertTrue(flag("--tls-certificate=", "--t").endswith(":file:_files"))
        self.assertIn("1:command:(user)", complete(""))
        told = complete("user", "")
        self.assertEqual([line.partition(":")[0] for line in told], ["add", "token", "revoke", "role", "remove", "list"])
        self.assertIn("remove:ends a user with all of its tokens", told)
        self.assertIn("role:gives a user another role", told)
        self.assertTrue(flag("--role=", "user", "add", "ann", "--r").endswith(":(observe run admin)"))
        self.assertEqual([line for line in complete("user", "add", "--") if line.startswith("--listen")], [])

    def unit(self):
        """A copy that names the program where it is now."""
        with open(self.find("tensord.service"), encoding="utf-8") as file:
            text = file.read()
        path = os.path.join(self.root, "tensord.service")
        with open(path, "w", encoding="utf-8") as file:
            file.write(re.sub(r"(?m)^ExecStart=\S+", "ExecStart=" + self.find("tensord", "/bin/"), text))
        return path

    def test_systemd_accepts_the_unit(self):
        self.need("systemd-analyze")
        said = subprocess.run(["systemd-analyze", "verify", "--man=no", self.unit()], capture_output=True, text=True, timeout=60,
                              check=False)
        self.assertEqual((said.returncode, said.stdout, said.stderr), (0, "", ""))

    def test_systemd_finds_the_unit_well_enclosed(self):
        self.need("systemd-analyze")
        run("systemd-analyze", "security", "--offline=yes", f"--threshold={EXPOSURE_MAX}", self.unit())

    def test_prometheus_and_grafana_find_their_files(self):
        for name in ("tensord.rules.yml", "tensord.rules.test.yml", "grafana-dashboard.json"):
            self.assertTrue(self.find(name, "/share/tensord/"))

    def test_programs_call_no_function_that_ubuntu_22_04_lacks(self):
        """Its C library is 2.35. Many hosts with GPUs have it, and a bundle that is made here goes there."""
        self.need("objdump")
        here = os.confstr("CS_GNU_LIBC_VERSION") or ""
        if here not in ("glibc 2.35", "glibc 2.36"):
            self.skipTest(f"{here or 'this C library'} gives programs newer functions than they ask for")
        for name, part in (("tensord", "/bin/"), ("tensorctl", "/bin/"), ("libtensord.so.0", "")):
            symbols = run("objdump", "-T", self.find(name, part)).splitlines()
            newer = [line for line in symbols for number in re.findall(r"\(GLIBC_2\.(\d+)", line) if int(number) > 35]
            self.assertTrue(symbols)
            self.assertEqual(newer, [], name)

    def after_install(self, user_is_there, **environment):
        with tempfile.TemporaryDirectory() as folder:
            for name, line in (("getent", f"exit {0 if user_is_there else 2}"), ("id", "echo 1000")):
                with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                    file.write(f"#!/bin/sh\n{line}\n")
                os.chmod(file.name, 0o755)
            environment = {"PATH": folder + ":" + os.environ["PATH"], **environment}
            return run(os.path.join(SOURCE, "server", "install", "after-install"), env=environment)

    def test_what_is_left_to_do_after_the_install_is_told(self):
        self.assertIn("systemd-sysusers", self.after_install(False))
        self.assertIn("systemctl start tensord", self.after_install(False))
        self.assertNotIn("systemd-sysusers", self.after_install(True))
        self.assertIn("systemctl start tensord", self.after_install(True))
        self.assertEqual(self.after_install(False, DESTDIR="/somewhere"), "")  # a package does all that itself

    def test_every_file_is_in_one_debian_package(self):
        """What scripts/package would stop at: a file that no list in scripts/debian names, or a list that names none."""
        self.need("dpkg")
        prefix = os.path.dirname(os.path.dirname(self.find("tensord", "/bin/")))
        # As Debian has it: below /usr, and the configuration in /etc.
        installed = {re.sub("^(usr/etc|.*/etc)/", "etc/", "usr/" + os.path.relpath(path, prefix))
                     for paths in self.files.values() for path in paths}
        left_out = {path for path in installed if "libtensord-cuda" in path or "/dist-packages/" in path or path.endswith(".a")}
        named = []
        lists = os.path.join(SOURCE, "scripts", "debian")
        for name in sorted(os.listdir(lists)):
            if not name.endswith(".install") and name != "not-installed":
                continue
            with open(os.path.join(lists, name), encoding="utf-8") as file:
                patterns = [line.split()[0] for line in file]
            for pattern in patterns:
                found = {path for path in installed if fnmatch.fnmatchcase(path, pattern) or path.startswith(pattern + "/")}
                if not found and ("/man/" in pattern and "tensord.8" not in self.files or "/dist-packages/" in pattern):
                    continue  # scdoc was not there when this was built; the Python package is another build's
                self.assertTrue(found, f"{name}: {pattern} is not installed")
                named += found - left_out
        self.assertEqual(sorted(named), sorted(installed - left_out))

    def test_the_configuration_is_one_that_the_daemon_takes(self):
        config = self.find("tensord.conf", "/etc/")
        said = subprocess.run([self.find("tensord", "/bin/"), "--config", config, "--devices", "nonsense:0"], capture_output=True,
                              text=True, timeout=60, check=False, env=self.environment)
        self.assertEqual(said.returncode, 2)
        self.assertIn("--devices", said.stderr)  # and nothing of the file


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
