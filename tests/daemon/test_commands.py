#!/usr/bin/python3
"""Every command of tensorctl with everything that may be wrong on its command line, with every role, and on a daemon that is not there:
it ends by itself with a status of its own and one line that says what is wrong; it never crashes."""
import json
import os
import re
import shutil
import struct
import subprocess
import tempfile
import time
import unittest

WAIT_S = 30 * float(os.environ.get("TENSORD_TEST_SLOW", "1"))
TENSORD, TENSORCTL = os.environ["TENSORD_EXE"], os.environ["TENSORCTL_EXE"]
FAILED, USAGE = 1, 2

# What each command takes to do its work, and the least role for that.
WORK = {
    "status": ([], "observe"), "devices": (["cpu:0"], "observe"), "sessions": ([], "observe"), "programs": ([], "observe"), "ops": ([], "observe"),
    "top": (["--batch", "--count", "1"], "observe"), "ping": (["--count", "2"], "observe"),
    "trace": (["--seconds", "0.05", "-o", "-", "cpu:0"], "run"), "kill": (["--user", "nobody-at-all"], "observe"),
    "names": (["cpu:0"], "run"), "save": (["cpu:0", "FOLDER/s"], "run"), "load": (["cpu:0", "FOLDER/tensors"], "run"),
    "bench": (["--seconds", "0.05", "cpu:0"], "run"), "config": ([], "admin"),
    "program": (["dump", "FOLDER/none"], "observe"), "drain": ([], "admin"),
}


class Commands(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="tensord-commands.")
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        head = json.dumps({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()
        with open(os.path.join(cls.folder, "tensors"), "wb") as file:
            file.write(struct.pack("<Q", len(head)) + head + bytes(8))
        cls.users = os.path.join(cls.folder, "users")
        cls.tokens = {role: subprocess.run([TENSORD, "user", "add", role + "er", "--role", role, "--users", cls.users], check=True,
                                           capture_output=True, text=True).stdout.strip() for role in ("observe", "run", "admin")}
        cls.options = {}  # name: whether it takes a value
        cls.takes = {}
        for command in cls.commands():
            found = re.findall(r"^  (?:-\w, )?--([a-z-]+)( \S+)?(?:  |$)", cls.help_of(command), re.M)
            cls.takes[command] = {name for name, _ in found}
            cls.options.update({name: bool(value) and not value.startswith(" [") for name, value in found})

    @staticmethod
    def help_of(*command):
        return subprocess.run([TENSORCTL, *command, "--help"], check=True, capture_output=True, text=True).stdout

    @classmethod
    def commands(cls):
        return [name for name in re.findall(r"^  ([a-z]+) ", cls.help_of(), re.M) if name != "help"]

    def start(self):
        folder = tempfile.mkdtemp(prefix="tensord-commands.")
        self.addCleanup(shutil.rmtree, folder)
        url = "unix:" + os.path.join(folder, "s")
        with open(os.path.join(folder, "log"), "wb") as log:
            daemon = subprocess.Popen([TENSORD, "--listen", url, "--devices", "cpu:0", "--users", self.users], stderr=log)
        self.addCleanup(lambda: (daemon.terminate(), daemon.wait(WAIT_S)))
        end = time.monotonic() + WAIT_S
        while self.run_ctl(url, "admin", "devices", "--json").stdout.find('"ready"') < 0:
            self.assertLess(time.monotonic(), end, "the daemon is not ready")
        return url

    def run_ctl(self, url, role, *arguments):
        environment = {**os.environ, "TENSORD_TOKEN": self.tokens.get(role, ""), "TERM": "xterm"}
        return subprocess.run([TENSORCTL, "--url", url, *(a.replace("FOLDER", self.folder) for a in arguments)], capture_output=True,
                              text=True, stdin=subprocess.DEVNULL, timeout=WAIT_S, env=environment, cwd=self.folder)

    def refused(self, done, *codes):
        what = f"{done.args[3:]}: {done.returncode}\n{done.stdout}{done.stderr}"
        self.assertIn(done.returncode, codes, what)
        self.assertTrue(done.stderr.startswith("tensorctl: "), what)
        self.assertEqual(done.stdout, "", what)
        if done.returncode == USAGE:
            self.assertEqual(done.stderr.count("\n"), 1, what)

    def test_a_wrong_option_is_told_in_one_line_that_says_where_to_look(self):
        for words, told in ((["status", "--foo"], "unknown option --foo; see tensorctl status --help"),
                            (["--foo=3", "status"], "unknown option --foo; see tensorctl status --help"),
                            (["--foo"], "unknown option --foo; see tensorctl --help"),
                            (["trace", "-x"], "unknown option -x; see tensorctl trace --help"),
                            (["trace", "--se", "1"], "ambiguous option --se; see tensorctl trace --help"),
                            (["trace", "-o"], "-o takes a value; see tensorctl trace --help"),
                            (["trace", "--seconds"], "--seconds takes a value; see tensorctl trace --help"),
                            (["status", "--json=yes"], "--json takes no value; see tensorctl status --help"),
                            (["--foo", "--bar", "--help"], "unknown option --foo; see tensorctl --help"),
                            (["status", "--\x1b[31m"], r"unknown option --\x1b[31m; see tensorctl status --help"),
                            (["status", "-\u00e9"], "unknown option -?; see tensorctl status --help"),
                            (["status", "--json", "-qh"], "unknown option -q; see tensorctl status --help"),
                            (["status", "a"], "too many arguments: a; see tensorctl status --help"),
                            (["--seconds", "x", "trace"], "--seconds takes 0.05 to 3600, not: x; see tensorctl trace --help"),
                            (["trace", "--seconds="], '--seconds takes 0.05 to 3600, not: ""; see tensorctl trace --help'),
                            (["--count=\x1b"], r"--count takes a number from 1 on, not: \x1b; see tensorctl --help"),
                            (["save"], "which device, to which file? See tensorctl save --help"),
                            (["names", "rm", "cpu:0"], "which name? See tensorctl names --help"),
                            ([], "which command? See tensorctl --help"),
                            (["nonsense"], "there is no command nonsense; see tensorctl --help")):
            done = self.run_ctl("unix:/nonexistent/s", "admin", *words)
            self.refused(done, USAGE)
            self.assertEqual(done.stderr, f"tensorctl: {told}\n")

    def test_an_operation_tells_its_contract_without_a_daemon(self):
        def ops(*words):
            return subprocess.run([TENSORCTL, "--url", "unix:/nowhere", "ops", *words], capture_output=True, text=True, timeout=WAIT_S)
        told = json.loads(ops("add", "linear", "--json").stdout)
        self.assertEqual([each["name"] for each in told], ["add", "linear"])
        self.assertEqual(told[0]["number"], 48)
        self.assertIn("gelu_tanh", told[1]["attributes"])
        self.assertIn("2 flop", told[1]["cost"])
        self.assertEqual(told[0]["derivative"], "by td_gradients()")
        self.assertIn("constants", ops("argmax").stdout)
        self.assertIn("16 flop for each element of the result", ops("softmax").stdout)
        self.assertIn("torch.nn.functional.linear", ops("linear").stdout)
        self.assertIn("td_add(td_tensor *a, td_tensor *b)", ops("add").stdout)
        wrong = ops("add", "ad")
        self.assertEqual((wrong.returncode, wrong.stdout), (FAILED, ""))
        self.assertIn("no operation ad:", wrong.stderr)

    def test_each_command_is_known_to_this_test(self):
        self.assertEqual(set(self.commands()), set(WORK))

    def test_an_option_of_another_command_is_refused(self):
        for command in self.commands():
            for option in self.options.keys() - self.takes[command]:
                value = ["1"] if self.options[option] else []
                done = self.run_ctl("unix:/nonexistent/s", "admin", command, *WORK[command][0], "--" + option, *value)
                self.refused(done, USAGE)
                self.assertIn("does not take --" + option, done.stderr)

    def test_wrong_values_are_refused(self):
        wrong = {"seconds": ["", "x", "0", "1e9", "nan"], "interval": ["", "x", "0"], "count": ["", "x", "0", "-1", "99999999999999999999"],
                 "watch": ["x", "0"], "output": [""], "user": [""]}
        for command in self.commands():
            for option in self.takes[command] & wrong.keys():
                for value in wrong[option]:
                    done = self.run_ctl("unix:/nonexistent/s", "admin", command, f"--{option}={value}")
                    self.refused(done, USAGE)
                    self.assertIn(f"see tensorctl {command} --help", done.stderr)

    def test_too_few_and_too_many_words_are_refused(self):
        for command in self.commands():
            usage = self.help_of(command).splitlines()[0]
            if "..." not in usage.replace("[OPTION]...", ""):
                self.refused(self.run_ctl("unix:/nonexistent/s", "admin", command, "a", "b", "c", "d"), USAGE)
            if re.search(r"\b(DEVICE|FILE|ID)\b(?!\])", usage):
                self.refused(self.run_ctl("unix:/nonexistent/s", "admin", command), USAGE)

    def test_unknown_devices_and_sessions_are_told(self):
        url = self.start()
        for command in self.commands():
            if "DEVICE" not in self.help_of(command).splitlines()[0]:
                continue
            for name in ("cpu:9", "cuda:0", "", "\x1b[31m", "cpu:0x", "x" * 300):
                words = [name if word == "cpu:0" else word for word in WORK[command][0]]
                done = self.run_ctl(url, "admin", command, *words)
                self.refused(done, FAILED)
                if name == "cpu:9":
                    self.assertIn('no device "cpu:9"; there is cpu:0', done.stderr)
                self.assertNotIn("\x1b", done.stderr)
        for word in ("-1", "", "1x", "cpu:0", "99999999999999999999"):
            self.refused(self.run_ctl(url, "admin", "kill", "--", word), USAGE)
        self.refused(self.run_ctl(url, "admin", "kill", "123456"), FAILED)

    def test_the_configuration_in_force_is_shown_with_its_origins(self):
        url = self.start()
        rows = {r["key"]: r for r in json.loads(self.run_ctl(url, "admin", "config", "--json").stdout)["config"]}
        self.assertEqual((rows["listen"]["value"], rows["listen"]["origin"]), (url, "flag"))
        self.assertEqual((rows["users"]["value"], rows["users"]["origin"]), (self.users, "flag"))
        self.assertEqual((rows["staging"]["value"], rows["staging"]["origin"]), ("1G", "default"))
        self.assertTrue(rows["weight"]["reloadable"] and not rows["threads"]["reloadable"])
        path = os.path.join(self.folder, "again.conf")
        with open(path, "w", encoding="utf-8") as file:  # what it prints is a configuration file
            file.write(self.run_ctl(url, "admin", "config").stdout)
        done = subprocess.run([TENSORD, "--check-config", "--config", path], capture_output=True, text=True, timeout=WAIT_S)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_every_command_with_every_role(self):
        url = self.start()
        order = ["observe", "run", "admin"]
        for role in order:
            for command in sorted(self.commands(), key=lambda name: name == "drain"):  # which is the end
                words, least = WORK[command]
                done = self.run_ctl(url, role, command, *words)
                if order.index(role) < order.index(least):
                    self.refused(done, FAILED)
                    self.assertIn("needs the role", done.stderr)
                elif command == "program":  # there is no such file
                    self.refused(done, FAILED)
                    self.assertIn("No such file", done.stderr)
                elif command == "kill":  # there is no such user
                    self.refused(done, FAILED)
                    self.assertIn("nobody-at-all has no session; ", done.stderr)
                elif command == "save":  # and there are no names
                    self.assertIn(done.returncode, (0, FAILED), done.stderr)
                else:
                    self.assertEqual(done.returncode, 0, f"{role} {command}: {done.stderr}")

    def test_a_daemon_that_is_not_there_is_told(self):
        for command in self.commands():
            for url in ("unix:/nonexistent/s", "nonsense", "tcp://127.0.0.1:1", "tls://127.0.0.1:1"):
                done = self.run_ctl(url, "admin", command, *WORK[command][0])
                self.refused(done, FAILED)
                if not url.startswith("unix:"):  # elsewhere nobody can start a daemon from here
                    self.assertEqual(done.stderr.count("\n"), 1, done.stderr)

    def test_a_trace_on_standard_output_makes_no_file(self):
        done = self.run_ctl(self.start(), "admin", "trace", "--seconds", "0.05", "-o", "-", "cpu:0")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(json.loads(done.stdout)["traceEvents"])
        self.assertRegex(done.stderr, r"^-: \d+ events of 1 device\n$")
        self.assertFalse(os.path.exists(os.path.join(self.folder, "-")))

    def test_figures_of_a_bench_stand_below_each_other(self):
        done = self.run_ctl(self.start(), "admin", "bench", "--seconds", "0.05", "cpu:0")
        self.assertEqual(done.returncode, 0, done.stderr)
        head, *rows = done.stdout.splitlines()
        self.assertEqual((head, len(rows)), ("cpu:0, medians", 6))
        for row in rows:
            self.assertRegex(row, r"^\S.{37} .{12}  \d\S* \S+(, 99 % within \d\S* \S+)?$")
            self.assertRegex(row[39:51].strip(), r"^$|^\d[\d.]*([kMGT]? (op|flop)/s| [KMGT]?i?B/s)$")

    def test_a_median_of_two_lies_between_them(self):
        url = self.start()
        microseconds = {"µs": 1, "ms": 1e3, "s": 1e6}

        def times():
            """The two, in order, and their median, each rounded to a tenth of its unit."""
            said = re.findall(r"(?:: |min |median )([\d.]+) (\w+)", self.run_ctl(url, "admin", "ping", "--count", "2").stdout)
            first, second, _, median = (float(number) * microseconds[unit] for number, unit in said)
            return *sorted((first, second)), median
        end = time.monotonic() + WAIT_S
        least, most, median = times()
        while most < 2 * least:  # so that rounding hides nothing
            self.assertLess(time.monotonic(), end, "pings never differ")
            least, most, median = times()
        self.assertAlmostEqual(median, (least + most) / 2, delta=0.15 * most)

    def test_help_is_there_by_each_of_its_names(self):
        def said(*arguments):
            return subprocess.run([TENSORCTL, *arguments], check=True, capture_output=True, text=True).stdout
        self.assertEqual(said("--help"), said("help"))
        self.assertEqual(said("--help"), said("-h"))
        self.assertEqual(said("--version"), said("version"))
        for command in self.commands():
            self.assertEqual(said("help", command), said(command, "--help"))
            self.assertEqual(said("help", command), said(command, "-h"))
            self.assertLessEqual(max(map(len, said("help", command).splitlines())), 80)
        self.assertNotIn("session", said("help", "names"))
        self.refused(subprocess.run([TENSORCTL, "help", "nonsense"], capture_output=True, text=True), USAGE)


if __name__ == "__main__":
    unittest.main(verbosity=2)
