"""What the examples share: a connection to the daemon that $TENSORD_URL or the default names, or to a private one on the CPU; and options."""

import argparse
import os
import sys

import tensord as td

HERE = os.path.dirname(os.path.abspath(__file__))  # the folder of the examples


def connect():
    """Connects to a daemon that runs, and otherwise starts a private one with two CPU devices, which ends with this process."""
    try:
        td.connect()
    except td.ConnectionFailedError:
        td.serve(devices="cpu:0,cpu:1")
    return td.devices()


def options(**defaults):
    """The options of the command line. Each has the type of its default. A notebook has no command line: there they are the defaults."""
    parser = argparse.ArgumentParser(formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    for name, value in defaults.items():
        parser.add_argument(f"--{name}", type=type(value), default=value, help=" ")
    return parser.parse_args(None if in_script() else [])


def in_script():
    return hasattr(sys.modules["__main__"], "__file__")
