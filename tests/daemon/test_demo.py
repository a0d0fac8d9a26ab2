#!/usr/bin/python3
"""scripts/demo on a terminal, with the real daemon and a job of this test's own: what is left on the screen, which pyte, a terminal
emulator, tells.

usage: test_demo.py, the test; test_demo.py job, its job, which draws a line of progress until it goes on after it was stopped"""
import fcntl
import os
import pty
import shutil
import signal
import stat
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
import unittest

import pyte

WAIT_S = 60 * float(os.environ.get("TENSORD_TEST_SLOW", "1"))
SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
ROWS, COLUMNS = 200, 160
PROGRESS = "images/s"


def job():
    continued = threading.Event()
    signal.signal(signal.SIGCONT, lambda *_: continued.set())
    busy = subprocess.Popen([os.environ["BUSY_EXE"], "demo", "1"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    while not continued.is_set():
        print(f"\r  epoch  1  [#####     ]  50 %  1000 {PROGRESS}\033[K", end="", file=sys.stderr, flush=True)
        time.sleep(0.001)
    busy.communicate()
    print("\r\033[K", end="", file=sys.stderr, flush=True)
    print("accuracy 99 %")


class Demo(unittest.TestCase):
    def write_program(self, text, *path):
        path = os.path.join(self.folder, *path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(path, os.stat(path).st_mode | stat.S_IXUSR)

    def link(self, target, *path):
        path = os.path.join(self.folder, *path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        os.symlink(target, path)

    def setUp(self):
        """A tree of its own, in which everything has been built."""
        self.folder = tempfile.mkdtemp(prefix="tensord-demo.")
        self.addCleanup(shutil.rmtree, self.folder)
        self.link(os.path.join(SOURCE, "scripts", "demo"), "scripts", "demo")
        for path in (("scripts", "setup"), ("scripts", "configure"), ("bin", "ninja")):
            self.write_program("#!/bin/sh\n", *path)
        self.link(os.environ["TENSORD_EXE"], "build", "server", "tensord")
        self.link(os.environ["TENSORCTL_EXE"], "build", "client", "tensorctl", "tensorctl")
        self.write_program(f'#!/bin/sh\nexec "{sys.executable}" "{os.path.abspath(__file__)}" job\n', "build", "client", "fashion_mnist")

    def demo_on_a_terminal(self):
        """The exit status, and the rows of the screen afterwards."""
        pid, terminal = pty.fork()
        if not pid:
            path = os.path.join(self.folder, "bin") + ":" + os.environ["PATH"]
            os.execve(os.path.join(self.folder, "scripts", "demo"), ["demo"],
                      {**os.environ, "PATH": path, "TERM": "xterm", "TMPDIR": self.folder})
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        alarm = threading.Timer(WAIT_S, os.kill, (pid, signal.SIGTERM))
        alarm.start()
        screen = pyte.Screen(COLUMNS, ROWS)
        stream = pyte.ByteStream(screen)
        try:
            while data := os.read(terminal, 65536):
                stream.feed(data)
        except OSError:  # the last program has closed it
            pass
        _, status = os.waitpid(pid, 0)
        alarm.cancel()
        os.close(terminal)
        return os.waitstatus_to_exitcode(status), [row.rstrip() for row in screen.display]

    def test_the_line_of_progress_has_ended_before_other_output_begins(self):
        status, rows = self.demo_on_a_terminal()
        text = "\n".join(rows).rstrip()
        self.assertEqual(status, 0, text)
        self.assertNotIn(PROGRESS, text)
        headings = [row for row in rows if row.startswith("==> ")]
        self.assertEqual(headings[1:], ["==> training on Fashion-MNIST through the socket", "==> tensorctl status, during the job",
                                        "==> tensorctl status, after it", "==> tensorctl drain", "==> accuracy 99 %"], text)
        during = text.partition("during the job\n")[2].partition("\n==> ")[0]
        self.assertIn("1 session", during)


if __name__ == "__main__":
    if sys.argv[1:] == ["job"]:
        job()
    else:
        unittest.main()
