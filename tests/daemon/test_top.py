#!/usr/bin/python3
"""tensorctl top on a terminal: what stands on the screen while sessions run, what keys do, and what is left behind.

The terminal is a pseudo-terminal whose output pyte, a terminal emulator, turns into a screen."""
import fcntl
import json
import os
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
import unittest

import pyte

WAIT_S = 60 * float(os.environ.get("TENSORD_TEST_SLOW", "1"))
TENSORD, TENSORCTL, JOB, FIGURES_JOB = (os.environ[name] for name in
                                        ("TENSORD_EXE", "TENSORCTL_EXE", "TOP_JOB_EXE", "FIGURES_JOB_EXE"))
MEAN = "\x1b[2Jred\u202e" + "\u5f20\u91cf"  # clears the screen; turns the direction; two wide characters


class Daemon:
    def __init__(self, directory, devices="cpu:0,cpu:1"):
        self.url = "unix:" + os.path.join(directory, "s")
        with open(os.path.join(directory, "log"), "ab") as log:
            self.process = subprocess.Popen([TENSORD, "--listen", self.url, "--devices", devices], stderr=log)
        end = time.monotonic() + WAIT_S
        while not self.ready():
            assert time.monotonic() < end, "the daemon is not ready"

    def ready(self):
        done = subprocess.run([TENSORCTL, "--url", self.url, "status", "--json"], capture_output=True)
        return done.returncode == 0 and all(d["state"] == "ready" for d in json.loads(done.stdout)["devices"])

    def devices(self):
        done = subprocess.run([TENSORCTL, "--url", self.url, "devices", "--json"], capture_output=True, check=True)
        return json.loads(done.stdout)["devices"]

    def sessions(self):
        done = subprocess.run([TENSORCTL, "--url", self.url, "sessions", "--json"], capture_output=True, check=True)
        return json.loads(done.stdout)["sessions"]

    def stop(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        self.process.wait(WAIT_S)


class Job:
    def __init__(self, daemon, count, label=MEAN, device="cpu:1"):
        self.process = subprocess.Popen([JOB, daemon.url, device, str(count), label], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)
        assert self.process.stdout.readline() == "ready\n"
        end = time.monotonic() + WAIT_S
        while sum(s["live"] for s in daemon.sessions()) < count * (count + 1) << 19:
            assert time.monotonic() < end, "the sessions are not shown"

    def end(self):
        out, _ = self.process.communicate(timeout=WAIT_S)
        return out


class Top:
    def __init__(self, daemon, rows=24, columns=100, arguments=(), environment={}, command=("top", "--interval", "0.1")):
        self.master, slave = os.openpty()
        self.screen = pyte.Screen(columns, rows)
        self.stream = pyte.ByteStream(self.screen)
        self.raw = b""
        self.resize(rows, columns)
        self.before = termios.tcgetattr(slave)
        environment = {**os.environ, "TERM": "xterm-256color", "LANG": "C.UTF-8", **environment}
        environment.pop("LC_ALL", None)
        self.process = subprocess.Popen([TENSORCTL, "--url", daemon.url, *command, *arguments],
                                        stdin=slave, stdout=slave, start_new_session=True, env=environment,
                                        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        self.slave = slave

    def resize(self, rows, columns):
        self.screen.resize(rows, columns)
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def read(self, seconds):
        if select.select([self.master], [], [], seconds)[0]:
            data = os.read(self.master, 65536)
            self.raw += data
            self.stream.feed(data)

    def text(self):
        return "\n".join(self.screen.display)

    def until(self, holds, what):
        end = time.monotonic() + WAIT_S
        while not holds():
            assert time.monotonic() < end, f"{what}:\n{self.text()}"
            assert self.process.poll() is None, f"top has ended:\n{self.text()}"
            self.read(0.05)

    def shows(self, pattern):
        self.until(lambda: re.search(pattern, self.text()), f"no {pattern!r}")

    def keys(self, text):
        os.write(self.master, text.encode())

    def rows(self):
        """The table of sessions, as lists of words."""
        lines = self.screen.display
        head = next((i for i, line in enumerate(lines) if re.search(r"\bID( [▼▲])? +USER", line)), None)
        if head is None:
            return []
        return [line.split() for line in lines[head + 1:-1] if line.strip() and line.split()[0].isdigit()]

    def ids(self):
        return [int(row[0]) for row in self.rows()]

    def end(self):
        """The exit status, when all that it has written is read."""
        end = time.monotonic() + WAIT_S
        while self.process.poll() is None:
            assert time.monotonic() < end, f"top does not end:\n{self.text()}"
            self.read(0.05)
        while select.select([self.master], [], [], 0)[0]:
            self.read(0)
        return self.process.returncode

    def restored(self):
        after = termios.tcgetattr(self.slave)
        return after == self.before and b"\x1b[?1049h" in self.raw and self.raw.rindex(b"\x1b[?1049l") > \
            self.raw.rindex(b"\x1b[?1049h")

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.master)
        os.close(self.slave)


class TopTest(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.mkdtemp(prefix="tensord-top.")
        self.addCleanup(shutil.rmtree, self.directory)
        self.daemon = Daemon(self.directory)
        self.addCleanup(lambda: self.daemon.process.poll() is None and self.daemon.stop())

    def top(self, *arguments, **options):
        top = Top(self.daemon, *arguments, **options)
        self.addCleanup(top.close)
        return top

    def job(self, count, **options):
        job = Job(self.daemon, count, **options)
        self.addCleanup(lambda: job.process.poll() is None and job.end())
        return job

    def test_numbers_are_those_of_status(self):
        self.job(3)
        top = self.top(rows=30, columns=140)
        top.until(lambda: len(top.rows()) == 3, "not three sessions")
        wanted = sorted(self.daemon.sessions(), key=lambda s: -s["live"])
        self.assertEqual([s["live"] for s in wanted], [3 << 20, 2 << 20, 1 << 20])
        self.assertEqual(top.ids(), [s["id"] for s in wanted])
        for row, session in zip(top.rows(), wanted):
            self.assertIn(session["principal"], row)
            self.assertIn("cpu:1", row)
            self.assertEqual(row[3:5], [f"{session['live'] / (1 << 20):.2f}", "MiB"])
        self.assertRegex(top.text(), r"cpu:1 .*6\.00 MiB/")
        self.assertRegex(top.text(), r"cpu:0 .*0 B/")
        self.assertRegex(top.text(), r"2 devices, 3 sessions")

    def test_hostile_labels_are_harmless_and_wide_ones_keep_their_place(self):
        self.job(2)
        top = self.top(rows=30, columns=160)
        top.shows(r"\?\[2Jred\?\u5f20")
        top.until(lambda: len(top.rows()) == 2, "not two sessions")
        self.assertNotIn("\u202e".encode(), top.raw)
        self.assertRegex(top.text(), r"2 devices, 2 sessions")
        places = {line.index("?[2J") for line in top.screen.display if "?[2J" in line}
        self.assertEqual(len(places), 1)

    def test_keys_sort(self):
        self.job(4)
        top = self.top()
        top.until(lambda: top.ids() == sorted(top.ids(), reverse=True) and len(top.ids()) == 4, "not by memory")
        self.assertIn("LIVE ▼", top.text())
        down = top.ids()
        top.keys("r")
        top.until(lambda: top.ids() == down[::-1], "not the other way round")
        top.keys("I")
        top.shows(r"\bID ▼")
        top.until(lambda: top.ids() == down, "not by number")
        top.keys("<")
        top.shows(r"LABEL ▼")
        top.keys(">>")
        top.shows(r"USER ▼")
        top.until(lambda: top.ids() == down[::-1], "not by user")

    def test_a_session_is_ended_after_a_question(self):
        job = self.job(3)
        top = self.top()
        top.until(lambda: len(top.ids()) == 3, "not three sessions")
        victim, *others = top.ids()
        top.keys("k")
        top.shows(rf"End session {victim} of ")
        top.keys("n")
        top.shows("q quit")
        self.assertEqual(len(self.daemon.sessions()), 3)
        top.keys("k")
        top.shows(rf"End session {victim} of ")
        top.keys("y")
        top.shows(rf"session {victim} ends")
        top.until(lambda: top.ids() == others, "the session is still there")
        self.assertRegex(job.end(), rf"^3: .*session {victim} was ended by uid:\d+: ended from tensorctl top\n$")

    def test_arrows_select(self):
        self.job(3)
        top = self.top()
        top.until(lambda: len(top.ids()) == 3, "not three sessions")
        top.keys("\x1bOB\x1b[B" if b"\x1b[?1h" not in top.raw else "\x1bOB\x1bOB")
        last = top.ids()[2]
        top.keys("k")
        top.shows(rf"End session {last} of ")

    def test_any_size_of_the_terminal(self):
        self.job(3)
        top = self.top(rows=10, columns=40)
        top.until(lambda: len(top.ids()) == 3, "not three sessions")
        for rows, columns in ((3, 20), (1, 1), (2, 300), (60, 200), (10, 40)):
            top.resize(rows, columns)
            top.until(lambda: True, "")
            for _ in range(5):
                top.read(0.1)
            self.assertIsNone(top.process.poll(), f"{rows} x {columns}")
        top.until(lambda: len(top.ids()) == 3, "not three sessions after all")
        top.resize(30, 150)
        top.shows("LABEL")

    def test_quitting_gives_the_terminal_back(self):
        top = self.top()
        top.shows("q quit")
        top.keys("h")
        top.shows("end the selected session")
        top.keys("x")
        top.shows("q quit")
        top.keys("q")
        self.assertEqual(top.end(), 0)
        self.assertTrue(top.restored())

    def test_signals_give_the_terminal_back(self):
        for number, code in ((signal.SIGINT, 0), (signal.SIGTERM, -signal.SIGTERM), (signal.SIGHUP, -signal.SIGHUP)):
            top = self.top()
            top.shows("q quit")
            top.process.send_signal(number)
            self.assertEqual(top.end(), code)
            self.assertTrue(top.restored(), number)

    def test_a_lost_connection_is_told_and_made_again(self):
        top = self.top()
        top.shows("q quit")
        self.daemon.stop(signal.SIGKILL)
        top.shows("connection lost, trying again")
        os.remove(self.daemon.url[len("unix:"):])
        self.daemon = Daemon(self.directory, "cpu:0")
        top.shows("1 device, 0 sessions")
        top.shows("q quit")
        top.keys("q")
        self.assertEqual(top.end(), 0)

    def test_a_locale_without_utf_8_and_a_terminal_without_colours(self):
        self.job(1)
        top = self.top(rows=30, columns=160, environment={"LANG": "C", "TERM": "vt100"})
        top.shows("\u5f20\u91cf")

    def test_what_is_no_terminal_is_told(self):
        done = subprocess.run([TENSORCTL, "--url", self.daemon.url, "top"], capture_output=True, text=True,
                              stdin=subprocess.DEVNULL)
        self.assertEqual(done.returncode, 1)
        self.assertIn("--batch", done.stderr)
        top = self.top(environment={"TERM": "no-such-terminal"})
        self.assertEqual(top.end(), 1)
        self.assertEqual(termios.tcgetattr(top.slave), top.before)

    def test_batches_are_plain_text(self):
        self.job(3)
        done = subprocess.run([TENSORCTL, "--url", self.daemon.url, "top", "--batch", "--count", "2", "--interval",
                               "0.1"], capture_output=True, text=True, stdin=subprocess.DEVNULL, check=True)
        self.assertNotIn("\x1b", done.stdout)
        self.assertEqual(len(re.findall(r"2 devices, 3 sessions", done.stdout)), 2)
        self.assertEqual(len(re.findall(r"(?m)^ +\d+ uid:\d+", done.stdout)), 6)
        self.assertRegex(done.stdout, r"PROGRAM .*LABEL", "there is room for all that there is")

    def failing(self):
        """A job whose operations fail, until the test ends."""
        job = subprocess.Popen([FIGURES_JOB, self.daemon.url, "cpu:1", "failing", str(10 * WAIT_S)],
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(job.wait)
        self.addCleanup(job.kill)

    def test_the_first_frame_has_the_rate_of_a_session(self):
        self.failing()
        end = time.monotonic() + WAIT_S
        found = None
        while not found:  # the daemon needs a second for its first rate
            self.assertLess(time.monotonic(), end, "no rate")
            done = subprocess.run([TENSORCTL, "--url", self.daemon.url, "top", "--batch", "--count", "1"],
                                  capture_output=True, text=True, stdin=subprocess.DEVNULL, check=True)
            found = re.search(r"(?m)^ +\d+ uid:\d+ +cpu:1 .* \d+% +([1-9][\d.]*[kM]?) ", done.stdout)

    def test_failures_stand_in_words(self):
        self.failing()
        top = self.top(rows=24, columns=100)
        top.shows(r"(?m)^session \d+ of uid:\d+ failed last: .*take.*position")
        self.assertIn("failed last", top.screen.display[-2])
        os.kill(next(d["worker_pid"] for d in self.daemon.devices() if d["name"] == "cpu:1"), signal.SIGKILL)
        top.shows(r"(?m)^ +fault .* ago: .*killed by signal 9")

    def test_memory_and_processor_time_of_workers_are_shown(self):
        top = self.top(rows=24, columns=160)
        top.shows(r"(?m)^cpu:0 .*  worker [\d.]+ MiB, cpu [\d.]+ m?s")

    def test_status_takes_the_width_of_its_terminal(self):
        self.job(2, label="forward")
        for columns, shown, left_out in ((60, "TIME", "PEAK"), (80, "OP/S", None), (160, "PEAK", None)):
            status = self.top(rows=40, columns=columns, command=("status",))
            status.end()
            self.assertRegex(status.text(), r"(?m)^ *\d+ +uid:\d+ +top_job ")
            self.assertIn(shown, status.text())
            self.assertNotIn(left_out or "no such word", status.text())

    def test_watch_waits_for_a_restarted_daemon(self):
        watch = self.top(command=("status", "--watch=0.1"))
        watch.shows(r"epoch 1")
        self.daemon.stop()
        watch.shows(r"connection lost, trying again")
        watch.shows(r"epoch 1")  # the last figures stay
        self.daemon = Daemon(self.directory, devices="cpu:0")
        watch.shows(r", 1 device,")
        watch.until(lambda: "connection lost" not in watch.text(), "the message stays")
        watch.process.send_signal(signal.SIGINT)
        watch.end()
        self.assertTrue(watch.restored())

    def test_wrong_use_is_told(self):
        for arguments in (["top", "--count", "3"], ["top", "--interval", "0"], ["top", "--batch", "--count", "0"],
                          ["status", "--batch"], ["top", "more"]):
            done = subprocess.run([TENSORCTL, "--url", self.daemon.url, *arguments], capture_output=True, text=True,
                                  stdin=subprocess.DEVNULL)
            self.assertIn(done.returncode, (1, 2), arguments)
            self.assertTrue(done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
