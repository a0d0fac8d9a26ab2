"""Runs the test suite of the Python array API standard (data-apis/array-api-tests) on tensord, with a private daemon.

    python tests/python/array_api.py SUITE [--max-examples N] [pytest's options]

In the suite's process this file is a plugin of pytest. A busy machine, on which drawing examples takes long, is no failure; and examples
whose result would have more axes than capabilities() says do not count, which the suite does not look at.

SUITE is a checkout of the suite with its submodule; pytest, hypothesis and ndindex are installed. What deviates from the standard is
in array_api_skips.txt, with reasons in client/python/ARRAY_API.md. The package tensord is found as always: installed, or on PYTHONPATH.
"""

import functools
import os
import pathlib
import subprocess
import sys

import pytest

SKIPS = pathlib.Path(__file__).resolve().parent / "array_api_skips.txt"


def within_rank(function, rank_of_result):
    """The function, for which examples with a result of too many axes are drawn again."""

    @functools.wraps(function)
    def call(*args, **kwargs):
        if rank_of_result(*args, **kwargs) > RANK_MAX:
            from hypothesis import reject

            reject()
        return function(*args, **kwargs)

    return call


def rank_of_tensordot(x1, x2, axes=2):
    return x1.ndim + x2.ndim - 2 * (len(axes[0]) if isinstance(axes, tuple) else axes)


if __name__ == "array_api":  # the plugin, before the suite copies the namespace
    import tensord as td

    RANK_MAX = td.__array_namespace_info__().capabilities()["max dimensions"]
    td.reshape = within_rank(td.reshape, lambda x, shape, **options: len(shape))
    td.tensordot = within_rank(td.tensordot, rank_of_tensordot)
    td.linalg.tensordot = within_rank(td.linalg.tensordot, rank_of_tensordot)


@pytest.hookimpl(trylast=True)
def pytest_configure(config):
    """Runs after the suite's own configuration, whose profile of hypothesis it extends."""
    from hypothesis import HealthCheck, settings

    settings.register_profile("busy", settings.get_profile("array-api-tests"), suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("busy")


def main():
    import tensord as td

    if len(sys.argv) < 2 or not os.path.isdir(os.path.join(sys.argv[1], "array_api_tests")):
        sys.exit(__doc__)
    environment = dict(os.environ, ARRAY_API_TESTS_MODULE="tensord")
    # Paths that are not absolute would be others in the suite's folder.
    paths = [str(SKIPS.parent), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    environment["PYTHONPATH"] = os.pathsep.join(os.path.abspath(path) for path in paths if path)
    daemon = None
    if not environment.get("TENSORD_URL"):
        daemon = td.serve(devices="cpu:0,cpu:1")
        environment["TENSORD_URL"] = daemon.url
    options = ["-q", "--disable-deadline", "-p", "no:cacheprovider", "-p", "array_api", "--skips-file", str(SKIPS)]
    arguments = sys.argv[2:]
    if not any("array_api_tests/" in argument for argument in arguments):
        arguments = ["array_api_tests/", *arguments]
    try:
        return subprocess.call([sys.executable, "-m", "pytest", *options, *arguments], cwd=sys.argv[1], env=environment)
    finally:
        if daemon:
            daemon.close()


if __name__ == "__main__":
    sys.exit(main())
