"""What the tests of the Python package share: a daemon of their own, with two CPU devices, that ends with the tests."""

import os

import tensord as td

_started = False


def setUpModule():
    """Starts the daemon once for all modules of a process. $TENSORD_EXE names the program, $TENSORD_URL a daemon that runs already."""
    global _started
    if not _started and not os.environ.get("TENSORD_URL"):
        td.serve(devices="cpu:0,cpu:1")
    _started = True
