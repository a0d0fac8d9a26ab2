#!/usr/bin/env python3
"""Two hosts, as network namespaces with a cable between them: a daemon on one, clients on the other, over TLS with tokens, as the
manual page tensord-team(7) sets it up. Needs root and ip(8); without them it is skipped, and says so.

usage: test_two_hosts.py    with TENSORD_EXE, TENSORCTL_EXE and HELLO_EXE set"""
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

TENSORD, TENSORCTL, HELLO = (os.environ[name] for name in ("TENSORD_EXE", "TENSORCTL_EXE", "HELLO_EXE"))
SERVER, CLIENT = f"tensord-s{os.getpid()}", f"tensord-c{os.getpid()}"
ADDRESS, OTHER, PORT = "192.0.2.1", "192.0.2.2", 8478


def run(*command, check=True, **options):
    return subprocess.run(command, check=check, capture_output=True, text=True, timeout=60, **options)


def ip(*arguments):
    run("ip", *arguments)


def namespaces():
    """Why there are none; None: they are there."""
    if os.geteuid() or not shutil.which("ip"):
        return "it takes root and ip(8)"
    try:
        for name in (SERVER, CLIENT):
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
        ip("link", "add", "left", "netns", SERVER, "type", "veth", "peer", "name", "right", "netns", CLIENT)
        ip("-n", SERVER, "addr", "add", ADDRESS + "/24", "dev", "left")
        ip("-n", CLIENT, "addr", "add", OTHER + "/24", "dev", "right")
        ip("-n", SERVER, "link", "set", "left", "up")
        ip("-n", CLIENT, "link", "set", "right", "up")
        return None
    except subprocess.CalledProcessError as error:
        remove_namespaces()
        return f"no network namespaces here: {error.stderr.strip()}"


def remove_namespaces():
    for name in (SERVER, CLIENT):
        run("ip", "netns", "del", name, check=False)


class TwoHosts(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        why = namespaces()
        if why:
            raise unittest.SkipTest(why)
        cls.addClassCleanup(remove_namespaces)
        cls.folder = tempfile.mkdtemp(prefix="tensord-test-hosts-")
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.make_certificates()
        cls.users = cls.folder + "/users"
        cls.tokens = {name: cls.add_user(name, role)
                      for name, role in (("alice", "run"), ("bob", "observe"), ("carol", "admin"))}
        cls.start()

    @classmethod
    def make_certificates(cls):
        def openssl(name, subject, *more):
            run("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-noenc", "-days", "2",
                "-subj", "/CN=" + subject, "-keyout", name + ".key", "-out", name + ".pem", *more, cwd=cls.folder)
        openssl("ca", "our CA")
        openssl("server", "gpuhost", "-CA", "ca.pem", "-CAkey", "ca.key", "-addext", "basicConstraints=CA:FALSE",
                "-addext", "extendedKeyUsage=serverAuth", "-addext", f"subjectAltName=DNS:gpuhost,IP:{ADDRESS}")
        os.chmod(cls.folder + "/server.key", 0o600)

    @classmethod
    def add_user(cls, name, role):
        said = run(TENSORD, "user", "add", name, "--role", role, "--users", cls.users).stdout
        return next(word for word in said.split() if word.startswith("tensord_"))

    @classmethod
    def start(cls):
        cls.log = open(cls.folder + "/log", "w+", encoding="utf-8")
        cls.daemon = subprocess.Popen(
            ["ip", "netns", "exec", SERVER, TENSORD, "--listen", f"tls://{ADDRESS}:{PORT}", "--devices", "cpu:0,cpu:1",
             "--memory", "256M", "--users", cls.users, "--tls-certificate", cls.folder + "/server.pem",
             "--tls-key", cls.folder + "/server.key"], stdout=cls.log, stderr=cls.log, stdin=subprocess.DEVNULL)
        cls.addClassCleanup(cls.stop)
        cls.until(lambda: "process=front event=ready" in cls.said(), "the daemon is not ready")

    @classmethod
    def said(cls):
        with open(cls.folder + "/log", encoding="utf-8") as log:
            return log.read()

    @classmethod
    def until(cls, holds, what):
        deadline = time.monotonic() + 30
        while not holds():
            if cls.daemon.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(what + "\n" + cls.said())
            time.sleep(0.05)

    @classmethod
    def stop(cls):
        cls.daemon.send_signal(signal.SIGTERM)
        code = cls.daemon.wait(timeout=60)
        cls.log.close()
        assert code == 0, cls.said()

    def client(self, program, *arguments, token=None, ca="ca.pem", host=ADDRESS, scheme="tls"):
        environment = {**os.environ, "TENSORD_URL": f"{scheme}://{host}:{PORT}"}
        if token:
            environment["TENSORD_TOKEN"] = token
        if ca:
            environment["TENSORD_CA_FILE"] = f"{self.folder}/{ca}"
        return run("ip", "netns", "exec", CLIENT, program, *arguments, check=False, env=environment)

    def test_a_program_computes_there(self):
        said = self.client(HELLO, token=self.tokens["alice"])
        self.assertEqual(said.returncode, 0, said.stderr)
        self.assertRegex(said.stdout, r"^cpu:0: \S+ \S+$|^cpu:0: (\S+ ?){4}$")

    def test_an_observer_sees_the_devices(self):
        said = self.client(TENSORCTL, "status", "--json", token=self.tokens["bob"])
        self.assertEqual(said.returncode, 0, said.stderr)
        self.assertEqual([device["name"] for device in json.loads(said.stdout)["devices"]], ["cpu:0", "cpu:1"])

    def test_roles_hold(self):
        said = self.client(HELLO, token=self.tokens["bob"])
        self.assertNotEqual(said.returncode, 0)
        self.assertIn("role", said.stderr)
        said = self.client(TENSORCTL, "drain", token=self.tokens["alice"])
        self.assertNotEqual(said.returncode, 0)
        self.assertIn("role", said.stderr)

    def test_strangers_stay_outside(self):
        for token in (None, self.tokens["alice"][:-1] + ("a" if self.tokens["alice"][-1] != "a" else "b")):
            said = self.client(TENSORCTL, "devices", token=token)
            self.assertNotEqual(said.returncode, 0)
            self.assertIn("token", said.stderr)

    def test_a_client_does_not_talk_to_somebody_else(self):
        said = self.client(TENSORCTL, "devices", token=self.tokens["alice"], ca=None)
        self.assertNotEqual(said.returncode, 0)
        self.assertIn("certificate", said.stderr)

    def test_without_tls_nothing_is_said(self):
        said = self.client(TENSORCTL, "devices", token=self.tokens["alice"], scheme="tcp")
        self.assertNotEqual(said.returncode, 0)
        self.assertRegex(said.stderr, "(?i)tls")

    def test_revoking_a_token_takes_a_reload(self):
        token = self.add_user("dave", "run")
        os.kill(self.front(), signal.SIGHUP)
        self.until(lambda: self.client(TENSORCTL, "ping", token=token).returncode == 0, "dave is not let in")
        run(TENSORD, "user", "remove", "dave", "--users", self.users)
        os.kill(self.front(), signal.SIGHUP)
        self.until(lambda: "revoked" in self.said(), "nobody is revoked")
        said = self.client(TENSORCTL, "ping", token=token)
        self.assertNotEqual(said.returncode, 0)

    def front(self):
        return self.daemon.pid


if __name__ == "__main__":
    unittest.main(verbosity=2)
