"""What the tests of the Python package share: a daemon of their own, with two CPU devices, that ends with the tests."""

import os

import tensord as td

_daemon = None


def setUpModule():
    """Starts the daemon once for all modules of a process. $TENSORD_EXE names the program, $TENSORD_URL a daemon that runs already."""
    global _daemon
    if _daemon is None and not os.environ.get("TENSORD_URL"):
        _daemon = td.serve(devices="cpu:0,cpu:1")
