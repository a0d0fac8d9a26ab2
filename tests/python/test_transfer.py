"""Values into and out of arrays: buffers, sequences, DLPack, and NumPy where it is installed."""
import array
import ctypes
import struct
import unittest

import tensord as td
from tensord import _core as core

try:
    import numpy
except ImportError:
    numpy = None


def setUpModule():
    global daemon
    daemon = td.serve()


def tearDownModule():
    daemon.close()


class Numbers(unittest.TestCase):
    def test_dtypes(self):
        for value, dtype in ((True, core.bool), (7, core.int64), (2 ** 63, core.uint64), (1.5, core.float32), (1j, core.complex64)):
            x = core.asarray(value)
            self.assertIs(x.dtype, dtype)
            self.assertEqual((x.shape, x.item()), ((), value))

    def test_every_dtype_comes_back(self):
        for name, value in (("uint8", 255), ("uint16", 65535), ("uint32", 2 ** 32 - 1), ("uint64", 2 ** 64 - 1), ("int8", -128),
                            ("int16", -2 ** 15), ("int32", -2 ** 31), ("int64", -2 ** 63), ("float16", 0.5), ("bfloat16", -3.0),
                            ("float32", 1.5), ("float64", 0.1), ("complex64", 1 - 2j), ("complex128", 0.1j), ("bool", True),
                            ("float8_e4m3fn", 448.0), ("float8_e5m2", -0.0625), ("float8_e4m3fn", 2 ** -9), ("float16", 65504.0)):
            self.assertEqual(core.full((), value, dtype=name).item(), value, name)
            self.assertEqual(core.full((2,), value, dtype=name).tolist(), [value, value], name)

    def test_conversions(self):
        self.assertEqual(float(core.asarray(2)), 2.0)
        self.assertEqual(int(core.asarray(2.75)), 2)
        self.assertEqual(complex(core.asarray(2)), 2 + 0j)
        self.assertEqual([10, 11, 12][core.asarray(1)], 11)
        with self.assertRaises(TypeError):
            [1][core.asarray(0.0)]
        with self.assertRaises(TypeError):
            float(core.asarray(1j))
        with self.assertRaises(ValueError):
            float(core.asarray([1.0, 2.0]))

    def test_values_that_do_not_fit_are_refused(self):
        for value, dtype, error in ((300, "uint8", OverflowError), (-1, "uint64", OverflowError), (2 ** 64, None, OverflowError),
                                    (1j, "float32", TypeError), ("1", None, TypeError)):
            with self.assertRaises(error):
                core.asarray(value, dtype)


class Sequences(unittest.TestCase):
    def check(self, given, expected, dtype, wanted=None):
        x = core.asarray(given, wanted)
        self.assertEqual(x.tolist(), expected)
        self.assertIs(x.dtype, dtype)

    def test_of_numbers(self):
        self.check([1, 2, 3], [1, 2, 3], core.int64)
        self.check((True, False), [True, False], core.bool)
        self.check([1, True, 2.5], [1.0, 1.0, 2.5], core.float32)
        self.check([1, 2.5, 1j], [1, 2.5, 1j], core.complex64)
        self.check([[1, 2], [3, 4]], [[1, 2], [3, 4]], core.int64)
        self.check([2 ** 64 - 1, 0], [2 ** 64 - 1, 0], core.uint64)
        self.check(range(4), [0, 1, 2, 3], core.int64)
        self.check([], [], core.float32)
        self.check([[], []], [[], []], core.float32)

    def test_with_a_dtype(self):
        self.check([1, 2], [1.0, 2.0], core.float64, "float64")
        self.check([0.1], [0.1], core.float64, core.float64)
        self.check([1.5, 2.5], [1, 2], core.int32, "i32")
        self.check([0, 3], [False, True], core.bool, "bool")
        self.check([1, 2], [1 + 0j, 2 + 0j], core.complex128, "complex128")
        self.check([1.0, 448.0], [1.0, 448.0], core.float8_e4m3fn, "float8_e4m3fn")

    def test_with_integers_out_of_range_are_refused(self):
        for given, dtype in (([128], "int8"), ([-129], "int8"), ([256], "uint8"), ([-1], "uint64"), ([2 ** 63], "int64"), ([0, 2 ** 64], None),
                             ([2 ** 64], "uint64"), ([1, -1, 2 ** 63], None)):
            with self.assertRaises(OverflowError):
                core.asarray(given, dtype)
        self.check([-128, 127], [-128, 127], core.int8, "int8")

    def test_without_one_shape_are_refused(self):
        for given in ([[1, 2], [3]], [1, [2]], [[1], 2], [[[1]], [[1, 2]]]):
            with self.assertRaises(td.ShapeError):
                core.asarray(given)
        nested = 1
        for _ in range(9):
            nested = [nested]
        with self.assertRaises(td.ShapeError):
            core.asarray(nested)

    def test_of_others_are_refused(self):
        for given in (["1"], [None], [core.asarray(1)], {1: 2}, object()):
            with self.assertRaises(TypeError):
                core.asarray(given)


class Buffers(unittest.TestCase):
    def test_in(self):
        x = core.asarray(array.array("d", [0.1, 0.2]))
        self.assertEqual((x.tolist(), x.dtype), ([0.1, 0.2], core.float64))
        self.assertEqual(core.asarray(b"\x01\xff").tolist(), [1, 255])
        view = memoryview(array.array("i", range(12))).cast("b").cast("i", (3, 4))
        self.assertEqual(core.asarray(view).tolist(), [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]])
        self.assertEqual(core.asarray(memoryview(array.array("h", range(10)))[::-3]).tolist(), [9, 6, 3, 0])
        self.assertEqual(core.asarray(array.array("l", [1, 2]), dtype="float32").tolist(), [1.0, 2.0])

    def test_of_other_formats_are_refused(self):
        with self.assertRaises(TypeError):
            core.asarray((ctypes.c_char_p * 2)())
        with self.assertRaises(TypeError):
            core.asarray((ctypes.c_int32.__ctype_be__ * 2)(1, 2))

    def test_out(self):
        x = core.asarray([[1, 2], [3, 4]], dtype="int16")
        view = memoryview(x)
        self.assertEqual((view.format, view.shape, view.strides, view.readonly), ("h", (2, 2), (4, 2), True))
        self.assertEqual(view.tolist(), [[1, 2], [3, 4]])
        self.assertEqual(bytes(x), struct.pack("4h", 1, 2, 3, 4))
        del x
        self.assertEqual(view.tobytes(), struct.pack("4h", 1, 2, 3, 4))
        with self.assertRaises(BufferError):
            memoryview(core.full((2,), 1, dtype="bfloat16"))

    def test_bytes(self):
        x = core.from_buffer(b"\x80\x3f\x00\x40", "bfloat16", (2, 1))
        self.assertEqual(x.tolist(), [[1.0], [2.0]])
        with self.assertRaises(ValueError):
            core.from_buffer(b"123", "bfloat16", (2,))
        with self.assertRaises(ValueError):
            core.from_buffer(b"", "uint8", (2 ** 40, 2 ** 40))

    def test_fetch_into(self):
        memory = bytearray(8)
        core.asarray([1.0, 2.0]).fetch_into(memory)
        self.assertEqual(struct.unpack("2f", memory), (1.0, 2.0))
        with self.assertRaises(ValueError):
            core.asarray([1.0]).fetch_into(memory)
        with self.assertRaises(BufferError):
            core.asarray([1.0, 2.0]).fetch_into(bytes(8))

    def test_large(self):
        given = array.array("q", range(1 << 18))
        x = core.asarray(given)
        self.assertEqual(memoryview(x + 0), memoryview(given))
        given[0] = 5
        self.assertEqual(memoryview(x)[0], 0)


class Copies(unittest.TestCase):
    def test_of_arrays(self):
        x = core.asarray([1.0, 2.0])
        self.assertIs(core.asarray(x), x)
        self.assertIs(core.asarray(x, "float32", "cpu:0", False), x)
        self.assertIsNot(core.asarray(x, copy=True), x)
        self.assertEqual(core.asarray(x, "int64").tolist(), [1, 2])
        for arguments in ((x, "int64", None, False), ([1], None, None, False)):
            with self.assertRaises(ValueError):
                core.asarray(*arguments)


class Capsules(unittest.TestCase):
    """DLPack, between arrays of this library: a consumer and a producer in one."""

    class Old:
        """A producer from before version 1."""

        def __init__(self, x):
            self.x = x

        def __dlpack__(self, stream=None):
            return self.x.__dlpack__()

        def __dlpack_device__(self):
            return self.x.__dlpack_device__()

    def test_both_ways(self):
        for name in core.dtypes:
            x = core.full((2, 3), 1, dtype=name)
            for producer in (self.Old(x), type("New", (), {"__dlpack__": lambda self, **named: x.__dlpack__(**named)})()):
                y = core.asarray(producer)
                self.assertEqual((y.dtype, y.shape, y.tolist()), (x.dtype, x.shape, x.tolist()))

    def test_devices(self):
        x = core.asarray([1.0])
        self.assertEqual(x.__dlpack_device__(), (1, 0))
        for named in ({"dl_device": (2, 0)}, {"copy": False}):
            with self.assertRaises(BufferError):
                x.__dlpack__(**named)


@unittest.skipUnless(numpy, "NumPy is not installed")
class WithNumPy(unittest.TestCase):
    def test_both_ways(self):
        for name, dtype in core.dtypes.items():
            if hasattr(numpy, name) and name != "bool":
                given = numpy.arange(24).reshape(2, 3, 4).astype(name)
                for view in (given, given.T, given[:, ::-2], given[..., 1], numpy.asfortranarray(given)):
                    x = core.asarray(view)
                    self.assertIs(x.dtype, dtype)
                    numpy.testing.assert_array_equal(x.numpy(), view)
                    self.assertEqual(x.numpy().dtype, view.dtype)
                    self.assertTrue(x.numpy().flags.writeable)

    def test_asarray_and_dlpack(self):
        x = core.asarray([[1.0, 2.0], [3.0, 4.0]])
        numpy.testing.assert_array_equal(numpy.asarray(x), [[1, 2], [3, 4]])
        self.assertEqual(numpy.asarray(x, dtype="float64").dtype, numpy.float64)
        numpy.testing.assert_array_equal(numpy.from_dlpack(x), [[1, 2], [3, 4]])
        self.assertEqual(core.asarray(numpy.float32(2.5)).item(), 2.5)
        self.assertEqual(core.asarray([numpy.int64(2), numpy.float32(0.5)]).tolist(), [2.0, 0.5])
        with self.assertRaises(TypeError):
            numpy.ones(2) + x


if __name__ == "__main__":
    unittest.main()
