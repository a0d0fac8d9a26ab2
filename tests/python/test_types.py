"""What mypy says of the package, and of programs that use it."""

import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

import tensord as td

PACKAGE = pathlib.Path(td.__file__).parent
USER = """
import tensord as td
import tensord.nn, tensord.random

reveal_type(td.random.normal(size=(2, 3)))
reveal_type(td.random.default_rng(1).integers(5))
reveal_type(td.nn.Linear(2, 3).weight)
reveal_type(td.nn.Conv2d(1, 2, 3).bias)
reveal_type(td.nn.BatchNorm1d(2).running_mean)
reveal_type(divmod(td.ones(2), 2.0))
td.random.normal("a")
"""
REVEALED = ["Array", "Array", "Array", "Array | None", "Array", "tuple[Array, Array]"]


def mypy():
    """The command, of this Python or of the system. Skips without one."""
    if importlib.util.find_spec("mypy"):
        return [sys.executable, "-m", "mypy"]
    program = os.environ.get("MYPY") or shutil.which("mypy")
    if not program:
        raise unittest.SkipTest("mypy is not installed")
    return [program]


class Types(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()  # mypy is quicker with what it has noted
        cls.addClassCleanup(cls.folder.cleanup)

    def check(self, *arguments):
        """mypy's lines, without its notes that functions without annotations are not checked."""
        found = subprocess.run(
            [*mypy(), "--no-error-summary", "--cache-dir", self.folder.name, *arguments],
            env=os.environ | {"MYPYPATH": str(PACKAGE.parent)},
            capture_output=True,
            text=True,
        )
        self.assertEqual(found.stderr, "")
        return [line for line in found.stdout.splitlines() if "[annotation-unchecked]" not in line]

    def test_the_package_has_no_errors(self):
        self.assertEqual(self.check(str(PACKAGE)), [])

    def test_a_program_sees_arrays(self):
        program = pathlib.Path(self.folder.name, "user.py")
        program.write_text(USER)
        lines = self.check(str(program))
        types = [line.split('"')[1] for line in lines if "Revealed type" in line]
        plain = [each.replace("tensord._core.", "").replace("builtins.", "").replace("Union[Array, None]", "Array | None") for each in types]
        self.assertEqual([each.replace("Tuple", "tuple") for each in plain], REVEALED)
        self.assertEqual([line.split(":")[1] for line in lines if ": error:" in line], [str(USER.count("\n"))])


if __name__ == "__main__":
    unittest.main()
