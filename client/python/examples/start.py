"""What the examples share: a connection to the daemon that $TENSORD_URL or the default names, or to a private one on the CPU."""

import tensord as td


def connect():
    """Connects to a daemon that runs, and otherwise starts a private one with two CPU devices, which ends with this process."""
    try:
        td.connect()
    except td.ConnectionFailedError:
        td.serve(devices="cpu:0,cpu:1")
    return td.devices()
