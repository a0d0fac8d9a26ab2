#!/usr/bin/python3
"""Descriptions of operations: what is wrong in one is told by file, operation and reason; lists go to the wire with their lengths."""
import contextlib
import io
import os
import re
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.environ["TENSORD_SOURCE"], "proto", "ops"))
import describe  # noqa: E402
import generate  # noqa: E402

HEAD = 'title = "T"\ncontract = "C"\n[default]\nfamily = "create"\nsince = "1"\ninputs = []\ndtype = "same"\ndtypes = "any"\n'
FAMILIES = 'title = "F"\ncontract = "C"\n[family.create]\nwhat = "makes"\n[family.elementwise]\nwhat = "computes"\n'
GOOD = HEAD + 'shape = "same"\ncontract = "c"\n[one]\nnumber = 1\n'


def read(*texts):
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for i, text in enumerate([FAMILIES, *texts]):
            paths.append(os.path.join(folder, f"{i}.toml"))
            with open(paths[-1], "w", encoding="utf-8") as file:
                file.write(text)
        return describe.read(paths[1:], paths[:1])


def printed(kind, files):
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        kind(files)
    return out.getvalue()


class Descriptions(unittest.TestCase):
    def test_defaults_complete_an_operation(self):
        one, = describe.operations_of(read(GOOD))
        self.assertEqual((one.name, one.number, [each.name for each in one.outputs], one.function), ("one", 1, ["result"], "one"))

    def test_formulas_are_listed_once_and_found_by_operation_and_dtype(self):
        head = GOOD.replace('"create"', '"elementwise"').replace("inputs = []", 'inputs = ["x"]\nformula = {}')
        files = read(head + '[two]\nnumber = 2\ndtype = "compared"\nformula = { bool = "one_u8" }\n'
                     '[three]\nnumber = 3\nformula = "none"\n')
        made = printed(generate.table, files)
        for line in ["X(ONE, 1, 1)", "X(THREE, 1, 1)", "X(one, 1, 0, u8, u8)", "X(two, 1, 0, f64, bool)", "X(two, 1, 0, f16, bool)",
                     "X(TWO, BOOL, one_u8)", "X(TWO, F16, two_f16)"]:
            self.assertEqual(made.count(f"    {line}"), 1, line)
        self.assertNotIn("three_u8", made)
        self.assertNotIn("X(two, 1, 0, bool", made)
        with self.assertRaises(SystemExit) as caught:
            printed(generate.table, read(head + 'formula = { bool = "one_u9" }\n'))
        self.assertIn("one: there is no formula one_u9 for bool", str(caught.exception))

    def test_a_formula_may_be_named_for_a_set_of_dtypes_and_take_attributes(self):
        head = GOOD.replace('"create"', '"elementwise"').replace("inputs = []", 'inputs = ["x"]\nformula = {}')
        made = printed(generate.table, read(head + '[two]\nnumber = 2\nformula = { integer = "one" }\n'
                       '[three]\nnumber = 3\ndtype = "floating"\nlayouts = "all"\n'
                       'attributes = [{ name = "slope", type = "float" }]\n'))
        for line in ["X(TWO, I16, one_i16)", "X(TWO, F32, two_f32)", "X(three, 1, 1, f32, f32)"]:
            self.assertEqual(made.count(f"    {line}"), 1, line)
        self.assertNotIn("X(two, 1, 0, u8", made)
        lists = made.split("#define ")
        self.assertIn("X(three, 1, 1, f64", next(each for each in lists if each.startswith("OP_FORMULAS_ALL(X)")))
        self.assertIn("X(one, 1, 0, f64", next(each for each in lists if each.startswith("OP_FORMULAS_FEW(X)")))
        for wrong, words in [('formula = { integers = "one" }', "integers is neither a dtype nor a set of dtypes"),
                             ('attributes = [{ name = "n", type = "int" }]', "attributes of formulas are floats"),
                             ('attributes = [{ name = "s", type = "float" }]', "these formulas compute in floats"),
                             ('layouts = "some"', "layouts are all or few, not some"),
                             ('inputs = ["a", "b", "c", "d"]', "with up to 3 inputs and attributes")]:
            with self.assertRaises(SystemExit) as raised:
                read(head + "[two]\nnumber = 2\n" + wrong + "\n")
            self.assertIn(words, str(raised.exception))

    def test_places_count_the_operations_of_a_family(self):
        made = printed(generate.table, read(GOOD + '[two]\nnumber = 7\n[three]\nnumber = 3\nfamily = "elementwise"\n'))
        for line in ["OP_PLACE_ONE = 0", "OP_PLACE_TWO = 1", "OP_PLACES_CREATE = 2", "OP_PLACE_THREE = 0", "OP_PLACES_ELEMENTWISE = 1"]:
            self.assertEqual(made.count(f"    {line},"), 1, line)

    def test_what_is_wrong_is_told(self):
        for text, words in [
                (GOOD.replace("number = 1", ""), "one: number is missing"),
                (GOOD.replace('"create"', '"creation"'), "one: creation is no family"),
                (GOOD + "sort = 1\n", "one: there is no field sort"),
                (GOOD.replace("[one]", "[One]"), "One: a name has small letters"),
                (GOOD.replace("number = 1", "number = 0"), "one: 0 is no number"),
                (GOOD + 'tolerance = { f32 = 1 }\n', "one: the tolerance has no reason"),
                (GOOD + 'attributes = [{ name = "a", type = "int33" }]\n', "one: attribute a: int33 is no type"),
                (GOOD + 'attributes = [{ name = "a", type = "axes", most = 3 }]\n', "one: attribute a: most is 1 to 128 entries"),
                (GOOD + 'inputs = [{ name = "x", optional = true }, "y"]\n', "one: only the last input"),
                (GOOD + 'function = "by hand"\n', "one: functions by hand need prototypes"),
                (GOOD + 'outputs = ["a", { name = "b", dtype = "product" }]\n', "one: output b: dtype is position or same or real or computed"),
                (GOOD + 'outputs = [{ name = "a", dtype = "position" }]\n', "one: output a: the first output has the operation's"),
                (GOOD + 'work = "time"\n', "one: time is nothing that work grows with: none, result, input, products, cubes, attention, convolution, convolution of x, "
                 "convolution of gradient are"),
                (GOOD + 'work = "input"\n', "one: its work grows with the input, and it has none"),
                (GOOD + 'passes = 0\n', "one: flop is 0 to 65535 and passes are 1 to 8, not 1 and 0"),
                (GOOD + "[two]\nnumber = 1\n", "two: one has 1 already")]:
            with self.assertRaises(SystemExit) as raised:
                read(text)
            self.assertIn(words, str(raised.exception))

    def test_a_family_stands_in_one_file(self):
        with self.assertRaises(SystemExit) as raised:
            read(GOOD.replace("[default]", '[family.create]\nwhat = "again"\n[default]'))
        self.assertIn("another file has the family create", str(raised.exception))
        for family, line in (('what = "folds"', "OP_FAMILY_FOLD, /* folds */"),
                             ('what = "folds"\nlaunch = """x\n[n]"""', "/* Folds. Launch: x [n] */\n    OP_FAMILY_FOLD,")):
            text = GOOD.replace("[default]", f"[family.fold]\n{family}\n[default]").replace('"create"', '"fold"')
            made = printed(generate.table, read(text))
            self.assertIn(line, made)
            self.assertIn("X(FOLD, fold)", made)
        for wrong in '[family]\nfold = "folds"', '[family.fold]\nlaunch = "x"', '[family.fold]\nwhat = "folds"\nlunch = "x"':
            with self.assertRaises(SystemExit) as raised:
                read(GOOD.replace("[default]", wrong + "\n[default]"))
            self.assertIn("the family fold has `what`, and may have `launch`", str(raised.exception))

    def test_a_name_in_two_files_is_refused(self):
        with self.assertRaises(SystemExit) as raised:
            read(GOOD, GOOD.replace("number = 1", "number = 2"))
        self.assertIn("one: one has one already", str(raised.exception))

    def test_each_list_but_the_last_has_its_length_before_it(self):
        files = read(GOOD + 'attributes = [{ name = "stride", type = "ints" }, { name = "groups", type = "int" }, '
                     '{ name = "padding", type = "ints" }]\n')
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            generate.table(files)
        for line in ("out->groups = in->ints[0];", "const int64_t *next = in->ints + 1;", "out->stride.count = (unsigned)*next++;",
                     "out->padding.count = in->n_ints - (unsigned)(next - in->ints);",
                     "out->ints[out->n_ints++] = in->stride.count;"):
            self.assertIn(line, out.getvalue())

    def test_lists_of_floats_and_strings_are_parameters_with_names_of_their_own(self):
        described = os.path.join(os.environ["TENSORD_SOURCE"], "tests", "unit", "described", "described.toml")
        files = describe.read([described], [os.path.join(os.environ["TENSORD_SOURCE"], "proto", "ops", "movement.toml")])
        operation, = describe.operations_of(files)
        self.assertEqual(generate.prototype(operation),
                         "td_tensor *td_described(td_tensor *x, const char *mode, double low, int n_scales, const double *scales, "
                         "int64_t groups, int n_stride, const int64_t *stride, const char *equation)")
        words = printed(generate.contracts, files)
        self.assertIn("mode: string (first of the lists); low: float; scales: floats;", "".join(re.findall(r'"(.*)"', words)))

    def test_short_lists_need_little_room(self):
        for most, room in (4, "op_packed"), (40, "op_packed_long"):
            files = read(GOOD + f'attributes = [{{ name = "a", type = "ints", most = {most} }}]\n')
            self.assertIn(f"struct {room} *out", printed(generate.table, files))
            self.assertIn(f'call_takes_list(OP_ONE, "a", {most}, count, a)', printed(generate.functions, files))

    def test_the_cost_is_in_the_row_and_in_words(self):
        files = read(GOOD.replace("inputs = []", 'inputs = ["x"]') + 'work = "input"\nflop = 3\npasses = 8\n')
        self.assertIn(".work = OP_WORK_INPUT, .flop = 3, .passes = 8,", printed(generate.rows, files))
        for kind in generate.contracts, generate.manual:
            self.assertIn("3 flop for each element of the input", printed(kind, files))

    def test_attributes_that_could_not_be_told_apart_are_refused(self):
        def attributes(*given):
            return GOOD + "attributes = [" + ", ".join(f'{{ name = "{name}", type = "{kind}" }}' for name, kind in given) + "]\n"

        for text, words in [
                (attributes(("a", "floats"), ("b", "ints"), ("c", "floats")), "one: only one attribute may be floats: nothing would say"),
                (attributes(("a", "int"), ("a", "string")), "one: a stands for two things"),
                (attributes(("x", "int")) + 'inputs = ["x"]\n', "one: x stands for two things"),
                (attributes(*((f"a{i}", "string") for i in range(8))), "one: the attributes may be more than 1024 integers")]:
            with self.assertRaises(SystemExit) as raised:
                read(text)
            self.assertIn(words, str(raised.exception))
        read(attributes(("a", "floats"), ("b", "ints"), ("c", "string"), ("d", "float"), ("e", "ints")))


if __name__ == "__main__":
    unittest.main()
