"""Arrays: properties, operators, numbers as operands, and errors."""
import math
import pickle
import unittest

import tensord as td
from tensord import _core as core


def setUpModule():
    global daemon
    daemon = td.serve()


def tearDownModule():
    daemon.close()


class Properties(unittest.TestCase):
    def test_of_a_matrix(self):
        x = core.asarray([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
        self.assertEqual((x.shape, x.ndim, x.size, x.itemsize, x.nbytes), ((2, 3), 2, 6, 4, 24))
        self.assertIs(x.dtype, core.float32)
        self.assertEqual(str(x.device), "cpu:0")

    def test_of_an_array_without_elements(self):
        x = core.full((0, 3), 1.5)
        self.assertEqual((x.shape, x.size, x.tolist()), ((0, 3), 0, []))

    def test_dtypes(self):
        self.assertEqual(repr(core.float32), "tensord.float32")
        self.assertEqual((core.complex64.itemsize, core.complex64.kind), (8, "complex floating"))
        self.assertEqual(set(core.dtypes), {each.name for each in core.dtypes.values()})
        for each in core.dtypes.values():
            self.assertIs(pickle.loads(pickle.dumps(each)), each)

    def test_arrays_have_no_hash(self):
        with self.assertRaises(TypeError):
            hash(core.asarray(1))


class Operators(unittest.TestCase):
    def check(self, result, expected, dtype):
        self.assertEqual(result.tolist(), expected)
        self.assertIs(result.dtype, dtype)

    def test_of_two_arrays(self):
        x, y = core.asarray([7, -8, 9]), core.asarray([2, 3, 4])
        self.check(x + y, [9, -5, 13], core.int64)
        self.check(x - y, [5, -11, 5], core.int64)
        self.check(x * y, [14, -24, 36], core.int64)
        self.check(x // y, [3, -3, 2], core.int64)
        self.check(x % y, [1, 1, 1], core.int64)
        self.check(x ** y, [49, -512, 6561], core.int64)
        self.check(x & y, [2, 0, 0], core.int64)
        self.check(x | y, [7, -5, 13], core.int64)
        self.check(x ^ y, [5, -5, 13], core.int64)
        self.check(x << y, [28, -64, 144], core.int64)
        self.check(x >> y, [1, -1, 0], core.int64)
        self.check(x / y, [3.5, core.asarray(-8 / 3).item(), 2.25], core.float32)
        self.check(x @ y, 26, core.int64)

    def test_of_one_array(self):
        x = core.asarray([7, -8])
        self.check(-x, [-7, 8], core.int64)
        self.check(+x, [7, -8], core.int64)
        self.check(abs(x), [7, 8], core.int64)
        self.check(~x, [-8, 7], core.int64)

    def test_comparisons(self):
        x, y = core.asarray([1, 2, 3]), core.asarray([2, 2, 2])
        for result, expected in ((x < y, [1, 0, 0]), (x <= y, [1, 1, 0]), (x == y, [0, 1, 0]), (x != y, [1, 0, 1]), (x > y, [0, 0, 1]),
                                 (x >= y, [0, 1, 1])):
            self.check(result, [bool(each) for each in expected], core.bool)

    def test_numbers_take_the_dtype_of_the_array(self):
        for name in ("uint8", "int16", "int64", "float16", "float32", "float64", "complex64", "complex128"):
            x = core.full((2,), 3, dtype=name)
            self.check(x + 2, [5, 5], core.dtypes[name])
            self.check(2 - x + 2, [1, 1], core.dtypes[name])
            self.check(x * True, [3, 3], core.dtypes[name])
        self.check(core.asarray([1.5, 2.5]) * 2.0, [3.0, 5.0], core.float32)
        self.check(3.0 / core.asarray([1.5, 2.0], dtype="float64"), [2.0, 1.5], core.float64)

    def test_numbers_of_a_higher_kind_change_it(self):
        self.check(core.asarray([1, 2]) * 0.5, [0.5, 1.0], core.float32)
        self.check(core.asarray([True, False]) + 2, [3, 2], core.int64)
        self.check(core.asarray([True, False]) * 2.5, [2.5, 0.0], core.float32)
        self.check(core.asarray([1.0, 2.0]) + 1j, [1 + 1j, 2 + 1j], core.complex64)
        self.check(core.asarray([1.0], dtype="float64") * 2j, [2j], core.complex128)
        self.check(core.asarray([True, False]) & True, [True, False], core.bool)

    def test_numbers_that_do_not_fit_are_refused(self):
        with self.assertRaises(OverflowError):
            core.asarray([1], dtype="uint8") + 256
        with self.assertRaises(OverflowError):
            core.asarray([1], dtype="uint8") + -1
        with self.assertRaises(OverflowError):
            core.asarray([1]) + 2 ** 63
        self.check(core.asarray([1], dtype="uint64") + (2 ** 64 - 2), [2 ** 64 - 1], core.uint64)
        self.check(core.asarray([0.0]) + 2 ** 100, [2.0 ** 100], core.float32)

    def test_many_numbers_are_each_what_they_are(self):
        x = core.full((1,), 0.0, dtype="float64")
        for i in range(300):  # more than a device keeps
            self.assertEqual(((x + i) * 1.0 + i / 7).tolist(), [i + i / 7])
        self.assertEqual(math.copysign(1, (x * 0 + -0.0 * 1).item()), 1.0)

    def test_in_place(self):
        x = y = core.asarray([1.0, 2.0])
        x += 1
        x *= core.asarray(2.0)
        self.assertIs(x, y)
        self.check(y, [4.0, 6.0], core.float32)
        with self.assertRaises(td.ShapeError):
            x += core.asarray([[1.0], [2.0]])
        with self.assertRaises(td.DTypeError):
            x += 1j
        self.check(y, [4.0, 6.0], core.float32)

    def test_scalars_of_other_libraries_are_numbers(self):
        class Scalar:  # as NumPy's
            shape = ()

            def __init__(self, value):
                self.value = value

            def item(self):
                return self.value

        x = core.asarray([1.0, 2.0])
        self.check(x * Scalar(2.0), [2.0, 4.0], core.float32)
        self.check(Scalar(3) - x, [2.0, 1.0], core.float32)
        self.check(x < Scalar(1.5), [True, False], core.bool)
        self.check(core.maximum(x, Scalar(1.5)), [1.5, 2.0], core.float32)
        x += Scalar(1)
        self.check(x, [2.0, 3.0], core.float32)
        with self.assertRaises(OverflowError):
            core.asarray([1], dtype="uint8") + Scalar(256)
        with self.assertRaises(TypeError):
            x + Scalar("1")

    def test_other_types_are_not_taken(self):
        x = core.asarray([1.0])
        with self.assertRaises(TypeError):
            x + "1"
        with self.assertRaises(TypeError):
            [1] * x
        self.assertFalse(x == "1")
        self.assertTrue(x != None)  # noqa: E711
        with self.assertRaises(TypeError):
            pow(x, 2, 3)

    def test_truth(self):
        self.assertTrue(core.asarray([0.5]))
        self.assertFalse(core.asarray(0))
        with self.assertRaises(ValueError):
            bool(core.asarray([1, 2]))


class Errors(unittest.TestCase):
    def test_of_a_call(self):
        with self.assertRaises(td.ShapeError) as caught:
            core.asarray([1, 2]) + core.asarray([1, 2, 3])
        error = caught.exception
        self.assertIsInstance(error, ValueError)
        self.assertIsInstance(error, td.Error)
        self.assertEqual((error.code, error.operation, error.label, error.where), (2, "add", "", ""))
        self.assertIn("add", str(error))

    def test_of_a_device(self):
        x = core.asarray([1, 2, 3])
        index = core.asarray([7])
        td.label("lookup")
        y = core.take(x, index, 0) + 1
        with self.assertRaises(IndexError) as caught:
            y.tolist()
        error = caught.exception
        self.assertIsInstance(error, td.OutOfRangeError)
        self.assertEqual((error.operation, error.label), ("take", "lookup"))
        self.assertGreater(error.sequence, 0)
        self.assertEqual(x.tolist(), [1, 2, 3])

    def test_has_scopes_and_the_line(self):
        x, index = core.asarray([1, 2, 3]), core.asarray([7])
        td.debug(where=True)
        try:
            with td.scope("forward"), td.scope("head"):
                td.label("pick")
                y = core.take(x, index, 0)  # the line
                z = core.take(x, index, 0)
        finally:
            td.debug(where=False)
        with open(__file__, encoding="utf-8") as lines:
            line = next(i for i, text in enumerate(lines, 1) if text.endswith("# the line\n"))
        with self.assertRaises(td.OutOfRangeError) as caught:
            y.wait()
        self.assertEqual(caught.exception.label, "forward/head/pick")
        self.assertEqual(caught.exception.where.rsplit("/", 1)[-1], f"test_arrays.py:{line}")
        with self.assertRaises(td.OutOfRangeError) as caught:
            z.wait()
        self.assertEqual(caught.exception.where.rsplit("/", 1)[-1], f"test_arrays.py:{line + 1}")

    def test_a_number_does_not_take_the_label(self):
        x = core.asarray([[1.0]])
        td.label("product")
        with self.assertRaises(td.ShapeError) as caught:
            x @ 98765.0  # the device does not have this number yet
        self.assertEqual((caught.exception.operation, caught.exception.label), ("matmul", "product"))

    def test_arrays_outlive_scopes(self):
        with td.scope("inner"):
            x = core.asarray([1.0, 2.0]) * 2
        self.assertEqual((x + x).tolist(), [4.0, 8.0])


if __name__ == "__main__":
    unittest.main()
