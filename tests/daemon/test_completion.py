#!/usr/bin/python3
"""What Tab does in a real bash on a pseudo-terminal: there ':' and '=' split words, so cpu:0 is three of them."""
import json
import os
import pty
import re
import select
import shutil
import struct
import subprocess
import tempfile
import time
import unittest

WAIT_S = 60 * float(os.environ.get("TENSORD_TEST_SLOW", "1"))
TENSORD, TENSORCTL = os.environ["TENSORD_EXE"], os.environ["TENSORCTL_EXE"]
SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")

# Ctrl-O prints the line and clears it. A completion has a second to ask the daemon, which is too little on a busy machine.
RC = r"""
PS1='ready> '
HISTFILE=
timeout() { shift; "$@"; }
shown() { printf '\036%s\037' "$READLINE_LINE"; READLINE_LINE=; READLINE_POINT=0; }
bind -x '"\C-o": shown'
bind 'set show-all-if-ambiguous on'
bind 'set completion-query-items 0'
bind 'set page-completions off'
bind 'set enable-bracketed-paste off'
"""


class Bash:
    def __init__(self, folder, url):
        rc = os.path.join(folder, "rc")
        with open(rc, "w", encoding="utf-8") as file:
            file.write(RC)
            for script in ("client/completion/tensorctl.bash", "server/completion/tensord.bash"):
                file.write(f"source '{os.path.join(SOURCE, script)}'\n")
        path = ":".join((os.path.dirname(TENSORCTL), os.path.dirname(TENSORD), os.environ["PATH"]))
        self.pid, self.master = pty.fork()
        if self.pid == 0:
            os.chdir(os.path.join(folder, "files"))
            os.execvpe("bash", ["bash", "--noprofile", "--rcfile", rc, "-i"],
                       {**os.environ, "PATH": path, "TENSORD_URL": url, "TERM": "dumb", "INPUTRC": "/dev/null", "COLUMNS": "400"})
        self.until(rb"ready> ")

    def until(self, pattern):
        end, text = time.monotonic() + WAIT_S, b""
        while not re.search(pattern, text, re.S):
            assert time.monotonic() < end, f"no {pattern!r} in {text!r}"
            if select.select([self.master], [], [], 1)[0]:
                text += os.read(self.master, 65536)
        return text.decode()

    def tab(self, text):
        """The line after Tab, and what is offered where several words fit."""
        os.write(self.master, text.encode() + b"\t\x0f")
        said = self.until(rb"\x1e.*\x1f")
        line = re.search("\x1e(.*)\x1f", said, re.S)
        rows = said[:line.start()].replace("\r", "").split("\n")[1:]
        return line.group(1), sorted(word for row in rows if not row.startswith("ready> ") for word in row.split())

    def close(self):
        os.close(self.master)  # it gets SIGHUP
        os.waitpid(self.pid, 0)


class Completion(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="tensord-completion.")
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        files = os.path.join(cls.folder, "files")
        os.mkdir(files)
        head = json.dumps({"net:w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()
        with open(os.path.join(files, "model.safetensors"), "wb") as file:
            file.write(struct.pack("<Q", len(head)) + head + bytes(8))
        url = "unix:" + os.path.join(cls.folder, "s")
        with open(os.path.join(cls.folder, "log"), "wb") as log:
            daemon = subprocess.Popen([TENSORD, "--listen", url, "--devices", "cpu:0,cpu:1"], stderr=log)
        cls.addClassCleanup(lambda: (daemon.terminate(), daemon.wait(WAIT_S)))
        end = time.monotonic() + WAIT_S
        load = [TENSORCTL, "--url", url, "load", "cpu:0", os.path.join(files, "model.safetensors")]
        while subprocess.run(load, capture_output=True).returncode != 0:
            assert time.monotonic() < end, "the daemon is not ready"
        cls.url = url

    def setUp(self):
        self.bash = Bash(self.folder, self.url)
        self.addCleanup(self.bash.close)

    def becomes(self, text, line, offered=()):
        self.assertEqual(self.bash.tab(text), (line, list(offered)))

    def test_devices_are_completed_before_and_behind_their_colon(self):
        self.becomes("tensorctl save cp", "tensorctl save cpu:", ["cpu:0", "cpu:1"])
        self.becomes("tensorctl save cpu:", "tensorctl save cpu:", ["0", "1"])
        self.becomes("tensorctl save cpu:1", "tensorctl save cpu:1 ")
        self.becomes("tensorctl names mv cp", "tensorctl names mv cpu:", ["cpu:0", "cpu:1"])

    def test_files_are_completed_behind_a_device(self):
        self.becomes("tensorctl load cpu:0 mod", "tensorctl load cpu:0 model.safetensors ")
        self.becomes("tensorctl save cpu:0 ", "tensorctl save cpu:0 model.safetensors ")
        self.becomes("tensorctl load cpu:0 ", "tensorctl load cpu:0 model.safetensors ")

    def test_names_are_completed_behind_a_file(self):
        self.becomes("tensorctl save cpu:0 out ", "tensorctl save cpu:0 out net:w ")
        self.becomes("tensorctl save cpu:0 out net:", "tensorctl save cpu:0 out net:w ")
        self.becomes("tensorctl names rm cpu:0 ne", "tensorctl names rm cpu:0 net:w ")

    def test_an_option_with_its_value_is_no_word_of_the_command(self):
        self.becomes(f"tensorctl --url {self.url} load cpu:0 mod", f"tensorctl --url {self.url} load cpu:0 model.safetensors ")
        self.becomes(f"tensorctl --url={self.url} load cpu:0 mod", f"tensorctl --url={self.url} load cpu:0 model.safetensors ")
        self.becomes("tensorctl trace --output=mod", "tensorctl trace --output=model.safetensors ")
        self.becomes("tensorctl bench --seconds=1 cpu:0", "tensorctl bench --seconds=1 cpu:0 ")

    def test_urls_are_completed_before_and_behind_their_colon(self):
        self.becomes("tensorctl --url tc", "tensorctl --url tcp://")
        self.becomes("tensorctl --url tcp:", "tensorctl --url tcp://")
        self.becomes("tensord --listen tc", "tensord --listen tcp://127.0.0.1:")
        self.becomes("tensord --listen tcp:/", "tensord --listen tcp://127.0.0.1:")

    def test_values_of_the_daemons_flags_are_completed_behind_an_equals_sign(self):
        self.becomes("tensord --log-level=w", "tensord --log-level=warning ")
        self.becomes("tensord --listen tcp://127.0.0.1:1 --log-level w", "tensord --listen tcp://127.0.0.1:1 --log-level warning ")
        self.becomes("tensord user add a:b --role a", "tensord user add a:b --role admin ")


if __name__ == "__main__":
    unittest.main(verbosity=2)
