#!/usr/bin/python3
"""The operations' benchmark has a row for every operation of the library that a peer has, and every row has a peer."""
import os
import pathlib
import re
import sys
import tomllib
import unittest

HERE, SOURCE = pathlib.Path(__file__).parent, pathlib.Path(os.environ["TENSORD_SOURCE"])
sys.path[:0] = [str(HERE), str(SOURCE / "proto" / "ops")]
import describe  # noqa: E402
import rows_arrays  # noqa: E402, F401
import rows_elements  # noqa: E402, F401
import rows_layers  # noqa: E402, F401
from table import OPERANDS, ROWS, WITHOUT_PEER  # noqa: E402

KINDS = ["elements", "arrays", "layers"]


def text(name):
    return (HERE / name).read_text(encoding="utf-8")


def rows_in(name):
    """(row, operands) of a file in C, as its lists have them: X(id, "row", operands, …) or NAMED(X, row, operands, …)."""
    return re.findall(r'\bX\(\w+, "([^"]+)",\s*(\w+),', text(name)) + re.findall(r"\bNAMED\(X, (?!name,)(\w+), (\w+),", text(name))


def functions():
    """Operation: what its function is called in C after td_. Of functions that are made up of operations the name itself."""
    described = describe.operations_of(describe.read(sorted((SOURCE / "proto" / "ops").glob("*.toml"))))
    with open(SOURCE / "client" / "python" / "functions.toml", "rb") as file:
        composed = tomllib.load(file)
    composed.pop("enum")
    return {**{name: name for name in composed},
            **{each.name: each.name if each.function in ("none", "by hand") else each.function for each in described}}


def measured():
    """The functions that rows call. Operands are made elsewhere (operands.c)."""
    sources = "".join(text(f"rows{kind}.c") for kind in ["", *(f"_{each}" for each in KINDS)])
    return set(re.findall(r"\btd_(\w+)\(", sources)) | set(re.findall(r"\btd_(\w+),", sources)) | set(re.findall(r"\bX\((\w+)\)", sources))


class Rows(unittest.TestCase):
    def test_each_operation_has_a_row_or_no_peer(self):
        called = measured()
        missing = [name for name, function in functions().items() if function not in called and name not in WITHOUT_PEER]
        self.assertEqual(missing, [], "these operations have neither a row nor a reason in WITHOUT_PEER (table.py)")

    def test_operations_without_peer_are_known_and_have_no_row(self):
        known, called = functions(), measured()
        for name in WITHOUT_PEER:
            self.assertIn(name, known)
            self.assertNotIn(known[name], called, f"{name} has a row")

    def test_each_row_has_a_peer(self):
        for name, row in ROWS.items():
            self.assertTrue(row.numpy or row.torch or row.jax, f"no peer has {name}")

    def test_files_in_c_and_in_python_have_the_same_rows(self):
        rows = [each for kind in KINDS for each in rows_in(f"rows_{kind}.c")]
        self.assertEqual({name: row.operands for name, row in ROWS.items()}, dict(rows))
        self.assertEqual(len(ROWS), len(rows))

    def test_operands_have_the_same_names_in_c_and_in_python(self):
        made = set(re.findall(r"void operands_(\w+)\(", text("operands.h")))
        self.assertLessEqual({row.operands for row in ROWS.values()}, made & set(OPERANDS))


if __name__ == "__main__":
    unittest.main()
