"""Arrays from host data and from attributes."""

import array
import unittest

import tensord as td

from session import setUpModule  # noqa: F401


class HostData(unittest.TestCase):
    def test_nested_lists(self):
        x = td.asarray([[1, 2.5], [True, 4]])
        self.assertEqual((x.shape, x.dtype, x.tolist()), ((2, 2), td.float32, [[1, 2.5], [1, 4]]))
        self.assertEqual(td.asarray([[], []]).shape, (2, 0))
        self.assertIs(td.asarray([]).dtype, td.float32)
        self.assertEqual(td.asarray(range(3)).tolist(), [0, 1, 2])

    def test_lists_of_arrays(self):
        x = td.asarray([td.asarray(1, dtype=td.int8), td.asarray(2, dtype=td.int16)])
        self.assertEqual((x.dtype, x.tolist()), (td.int16, [1, 2]))
        self.assertEqual(td.asarray([td.asarray([1.0, 2.0]), [3, 4]]).tolist(), [[1, 2], [3, 4]])

    def test_ragged_lists_are_refused(self):
        for ragged in ([[1], [1, 2]], [1, [2]], [[1, 2], 3]):
            with self.assertRaises(ValueError):
                td.asarray(ragged)

    def test_other_objects_are_refused(self):
        for other in (["a"], "text", object(), None, [None]):
            with self.assertRaises(TypeError):
                td.asarray(other)

    def test_buffers(self):
        self.assertEqual(td.asarray(array.array("h", [1, -2])).tolist(), [1, -2])
        self.assertIs(td.asarray(array.array("h", [1, -2])).dtype, td.int16)
        self.assertEqual(td.asarray(bytearray(b"\x01\x02")).tolist(), [1, 2])
        self.assertEqual(td.asarray(memoryview(b"abcd")[::2]).tolist(), [97, 99])
        self.assertEqual(td.asarray(array.array("d", [1, 2]), dtype=td.int8).tolist(), [1, 2])

    def test_every_dtype_keeps_its_extremes(self):
        for name in "int8 int16 int32 int64 uint8 uint16 uint32 uint64".split():
            limits = td.iinfo(getattr(td, name))
            self.assertEqual(td.asarray([limits.min, limits.max], dtype=limits.dtype).tolist(), [limits.min, limits.max])
            self.assertEqual(td.full(2, limits.max, dtype=limits.dtype).tolist(), [limits.max] * 2)
        self.assertEqual(td.asarray([1.5 - 2j], dtype=td.complex128).tolist(), [1.5 - 2j])
        self.assertEqual(td.asarray([True, False]).tolist(), [True, False])
        self.assertEqual(td.asarray([0.5, -2.0], dtype=td.bfloat16).tolist(), [0.5, -2])
        self.assertEqual(td.asarray([0.5, -2.0], dtype=td.float16).tolist(), [0.5, -2])

    def test_copy(self):
        x = td.asarray([1, 2])
        self.assertIs(td.asarray(x), x)
        self.assertIs(td.asarray(x, copy=False), x)
        y = td.asarray(x, copy=True)
        x[0] = 9
        self.assertEqual(y.tolist(), [1, 2])
        for bad in (lambda: td.asarray(x, dtype=td.float32, copy=False), lambda: td.asarray([1], copy=False)):
            with self.assertRaises(ValueError):
                bad()

    def test_dlpack(self):
        x = td.asarray([[1.0, 2.0]])
        self.assertIs(td.from_dlpack(x), x)
        self.assertEqual(x.__dlpack_device__(), (1, 0))
        with self.assertRaises(TypeError):
            td.from_dlpack([1])


class Attributes(unittest.TestCase):
    def test_full(self):
        self.assertEqual(td.full((2, 1), 3).tolist(), [[3], [3]])
        self.assertEqual(td.full(2, td.asarray(2.5)).tolist(), [2.5, 2.5])
        self.assertEqual(td.full((), 2**63).item(), 2**63)
        self.assertIs(td.full((), 1j).dtype, td.complex64)
        with self.assertRaises(OverflowError):
            td.full((), 256, dtype=td.uint8)
        with self.assertRaises(TypeError):
            td.full((), 1j, dtype=td.float32)

    def test_zeros_ones_and_their_likes(self):
        x = td.ones((2,), dtype=td.int16)
        self.assertIs(td.zeros(1).dtype, td.float32)
        for make, value in ((td.zeros_like, 0), (td.ones_like, 1), (td.empty_like, 0)):
            self.assertEqual((make(x).dtype, make(x).tolist()), (td.int16, [value] * 2))
            self.assertIs(make(x, dtype=td.bool).dtype, td.bool)
        self.assertEqual(td.full_like(x, 7).tolist(), [7, 7])
        self.assertEqual(td.empty((0, 3)).shape, (0, 3))

    def test_arange(self):
        self.assertEqual(td.arange(3).tolist(), [0, 1, 2])
        self.assertEqual(td.arange(3, 0, -1).tolist(), [3, 2, 1])
        self.assertEqual(td.arange(1, 2, 0.25).tolist(), [1, 1.25, 1.5, 1.75])
        self.assertEqual(td.arange(5, 0).shape, (0,))
        self.assertEqual(td.arange(3, dtype=td.float64).tolist(), [0, 1, 2])
        with self.assertRaises(ValueError):
            td.arange(0, 1, 0)

    def test_arange_is_exact_beyond_2_to_53(self):
        for dtype, numbers in (
            (td.int64, range(2**63 - 7, 2**63 - 1, 2)),
            (td.int64, range(-(2**63), -(2**63) + 5)),
            (td.int64, range(2**62, -(2**63), -(2**61) - 1)),
            (td.uint64, range(2**64 - 1, 2**64 - 6, -1)),
            (td.uint64, range(1, 2**64 - 1, 2**61 + 1)),
        ):
            result = td.arange(numbers.start, numbers.stop, numbers.step, dtype=dtype)
            self.assertEqual(result.tolist(), list(numbers))
        with self.assertRaises(OverflowError):
            td.arange(250, 260, dtype=td.uint8)

    def test_linspace(self):
        self.assertEqual(td.linspace(0, 1, 5).tolist(), [0, 0.25, 0.5, 0.75, 1])
        self.assertEqual(td.linspace(0, 1, 4, endpoint=False).tolist(), [0, 0.25, 0.5, 0.75])
        self.assertEqual(td.linspace(0, 1j, 3).tolist(), [0, 0.5j, 1j])
        self.assertEqual(td.linspace(0, 4, 5, dtype=td.int32).tolist(), [0, 1, 2, 3, 4])
        with self.assertRaises(ValueError):
            td.linspace(0, 1, -1)

    def test_matrices(self):
        self.assertEqual(td.eye(2, 3, k=1, dtype=td.int8).tolist(), [[0, 1, 0], [0, 0, 1]])
        for k in (2**70, -(2**70)):  # diagonals that no matrix has
            self.assertEqual(td.eye(2, k=k).tolist(), [[0, 0], [0, 0]])
            self.assertEqual(td.tril(td.ones((1, 2)), k=k).tolist(), [[1, 1] if k > 0 else [0, 0]])
        x = td.reshape(td.arange(4), (2, 2))
        self.assertEqual((td.tril(x).tolist(), td.triu(x, k=1).tolist()), ([[0, 0], [2, 3]], [[0, 1], [0, 0]]))

    def test_meshgrid(self):
        a, b = td.meshgrid(td.arange(2), td.arange(3), indexing="ij")
        self.assertEqual((a.shape, a.tolist()[1], b.tolist()[0]), ((2, 3), [1, 1, 1], [0, 1, 2]))
        self.assertEqual(td.meshgrid(td.arange(2), td.arange(3))[0].shape, (3, 2))


class Devices(unittest.TestCase):
    def test_every_creating_function_takes_a_device(self):
        device = td.device("cpu:1")
        for x in (
            td.asarray([1], device=device),
            td.asarray([td.asarray(1)], device=device),
            td.zeros(1, device=device),
            td.ones(1, device=device),
            td.empty(1, device="cpu:1"),
            td.full(1, 2, device=device),
            td.arange(3, device=device),
            td.arange(2**60, 2**60 + 3, device=device),
            td.linspace(0, 1, 2, device=device),
            td.linspace(0, 1j, 2, device=device),
            td.eye(2, device=device),
            td.fft.fftfreq(4, device=device),
            td.random.uniform(size=2, device=device),
            td.random.permutation(3, device=device),
            td.zeros_like(td.zeros(1), device=device),
            td.astype(td.zeros(1), td.int8, device=device),
            td.from_dlpack(td.zeros(1), device=device),
        ):
            self.assertIs(x.device, device)

    def test_the_current_device(self):
        with td.device("cpu:1"):
            self.assertEqual(td.zeros(1).device.name, "cpu:1")
        self.assertEqual(td.zeros(1).device.name, "cpu:0")

    def test_moving(self):
        x = td.asarray([1.0, 2.0], device="cpu:0")
        y = x.to_device("cpu:1")
        self.assertEqual((y.device.name, y.tolist()), ("cpu:1", [1, 2]))
        self.assertIs(x.to_device("cpu:0"), x)
        self.assertEqual(td.asarray(x, device="cpu:1").device.name, "cpu:1")

    def test_devices_do_not_mix(self):
        with self.assertRaises(ValueError) as caught:
            td.zeros(1, device="cpu:0") + td.zeros(1, device="cpu:1")
        self.assertIn("cpu:1", str(caught.exception))


if __name__ == "__main__":
    unittest.main()
