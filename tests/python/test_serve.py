"""serve(): a daemon of the process's own."""
import gc
import os
import select
import signal
import subprocess
import sys
import textwrap
import unittest

import tensord as td
from tensord import _core as core
from tensord import _serve


def program(code):
    return subprocess.Popen([sys.executable, "-B", "-c", textwrap.dedent(code)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                            universal_newlines=True)


def gone(process):
    """Whether the process has ended, or will within a minute."""
    try:
        descriptor = os.pidfd_open(process)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([descriptor], [], [], 60)[0])
    finally:
        os.close(descriptor)


# Prints the keeper's process and the daemon's folder, and waits.
SERVES = """
    import sys
    import tensord as td
    daemon = td.serve()
    print(daemon._keeper.pid, daemon.folder, flush=True)
    sys.stdin.readline()
    """


@unittest.skipUnless(hasattr(os, "pidfd_open"), "os.pidfd_open is missing")
class Serve(unittest.TestCase):
    def test_ends_when_it_is_closed(self):
        with td.serve() as daemon:
            self.assertEqual((core.full((2,), 1.0) + 1).tolist(), [2.0, 2.0])
            keeper = daemon._keeper.pid
        self.assertTrue(gone(keeper))
        self.assertFalse(os.path.exists(daemon.folder))
        daemon.close()

    def test_ends_with_the_process(self):
        process = program(SERVES)
        keeper, folder = process.stdout.readline().split()
        process.communicate("\n")
        self.assertEqual(process.returncode, 0)
        self.assertTrue(gone(int(keeper)))
        self.assertFalse(os.path.exists(folder))

    def test_ends_with_a_process_that_is_killed(self):
        process = program(SERVES)
        keeper, folder = process.stdout.readline().split()
        process.send_signal(signal.SIGKILL)
        process.communicate()
        self.assertTrue(gone(int(keeper)))
        self.assertFalse(os.path.exists(folder))

    def test_ends_when_it_is_forgotten(self):
        daemon = td.serve(default=False)
        keeper = daemon._keeper.pid
        x = core.full((2,), 1.0, device=daemon.connection.device())
        x.wait()
        del daemon
        self.assertTrue(gone(keeper))
        with self.assertRaises(td.Error):
            x.tolist()

    def test_stays_as_the_default(self):
        td.serve()
        gc.collect()
        self.assertEqual((core.full((2,), 1.0) + 1).tolist(), [2.0, 2.0])
        for daemon in list(_serve._kept):
            daemon.close()

    def test_descriptors_may_have_any_number(self):
        files = [open(os.devnull, "rb") for _ in range(20)]
        try:
            with td.serve(default=False) as daemon:
                self.assertEqual(len(daemon.connection.devices()), 1)
        finally:
            for each in files:
                each.close()

    def test_several_run_beside_each_other(self):
        with td.serve(default=False) as one, td.serve(default=False, devices="cpu:0,cpu:1") as other:
            self.assertNotEqual(one.url, other.url)
            self.assertEqual([len(each.connection.devices()) for each in (one, other)], [1, 2])

    def test_says_what_is_wrong(self):
        with self.assertRaisesRegex(td.ConnectionFailedError, "ended.*|.*bogus"):
            td.serve(flags=["--bogus"])
        with self.assertRaises((FileNotFoundError, td.ConnectionFailedError)):
            td.serve(exe="/does/not/exist")

    def test_the_program_must_be_there(self):
        before = {name: os.environ.pop(name, None) for name in ("TENSORD_EXE", "PATH")}
        try:
            os.environ["PATH"] = "/nowhere"
            if not any(os.path.exists(f"{folder}/tensord") for folder in ("/usr/sbin", "/usr/local/sbin", "/usr/local/bin")):
                with self.assertRaisesRegex(FileNotFoundError, "TENSORD_EXE"):
                    td.serve()
        finally:
            os.environ.update({name: value for name, value in before.items() if value is not None})


if __name__ == "__main__":
    unittest.main()
