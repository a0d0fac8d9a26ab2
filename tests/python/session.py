"""What the tests of the Python package share: a daemon of their own, with two CPU devices, that ends with the tests."""

import os
import unittest

import tensord as td

_daemon = None


def serve_late():
    """A daemon of its own with late:0, a device for tests that has functions in the place of kernels: saxpy and such, by name. Skips if it is not there."""
    folder = os.environ.get("TENSORD_TEST_LATE")
    if not folder:
        raise unittest.SkipTest("the device for tests is not there")
    before = os.environ.get("LD_LIBRARY_PATH", "")
    os.environ["LD_LIBRARY_PATH"] = f"{folder}:{before}"
    try:
        return td.serve(devices="late:0", flags=["--user-kernels", "all"], default=False)
    finally:
        os.environ["LD_LIBRARY_PATH"] = before


def setUpModule():
    """Starts the daemon once for all modules of a process. $TENSORD_EXE names the program, $TENSORD_URL a daemon that runs already."""
    global _daemon
    if _daemon is None and not os.environ.get("TENSORD_URL"):
        _daemon = td.serve(devices="cpu:0,cpu:1")
