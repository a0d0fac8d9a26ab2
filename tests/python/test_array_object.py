"""The array object: representation, copies, pickles, conversions, methods."""

import copy
import pickle
import unittest

import tensord as td

from session import setUpModule  # noqa: F401


class Representation(unittest.TestCase):
    def test_small_arrays_are_shown_whole(self):
        self.assertEqual(repr(td.asarray([[1.0, 2.5], [-3.0, 4.0]])), "tensord.Array([[ 1., 2.5],\n               [-3.,  4.]], dtype=float32, device='cpu:0')")
        self.assertEqual(repr(td.asarray([True, False])), "tensord.Array([ True, False], dtype=bool, device='cpu:0')")
        self.assertEqual(repr(td.asarray(7)), "tensord.Array(7, dtype=int64, device='cpu:0')")
        self.assertEqual(repr(td.asarray(1 - 2j)), "tensord.Array(1.-2.j, dtype=complex64, device='cpu:0')")
        self.assertEqual(repr(td.zeros((0, 2))), "tensord.Array([], shape=(0, 2), dtype=float32, device='cpu:0')")

    def test_matrices_are_parted_by_an_empty_line(self):
        text = "tensord.Array([[[0],\n                [1]],\n\n               [[2],\n                [3]]], dtype=int64, device='cpu:0')"
        self.assertEqual(repr(td.reshape(td.arange(4), (2, 2, 1))), text)

    def test_large_arrays_are_previewed(self):
        text = repr(td.reshape(td.arange(10**6), (1000, 1000)))
        self.assertIn("…", text)
        self.assertIn("999999", text)
        self.assertIn("shape=(1000, 1000)", text)
        self.assertNotIn(" 500", text)

    def test_every_dtype_is_shown(self):
        for name in "bool int8 uint64 float16 bfloat16 float8_e4m3fn float8_e5m2 float32 float64 complex64 complex128".split():
            self.assertIn(f"dtype={name}", repr(td.ones(3, dtype=getattr(td, name))))

    def test_a_failed_array_shows_its_failure(self):
        text = repr(td.take(td.arange(3), td.asarray([5])))
        self.assertIn("OutOfRangeError", text)
        self.assertIn("(1,)", text)

    def test_format_of_one_element(self):
        self.assertEqual(f"{td.asarray(2.5):.2f}", "2.50")
        self.assertEqual(f"{td.asarray(3)}", "3")


class Copies(unittest.TestCase):
    def test_copies_do_not_see_assignments(self):
        for make in (copy.copy, copy.deepcopy, lambda x: x.copy(), lambda x: td.asarray(x, copy=True), lambda x: td.reshape(x, x.shape)):
            x = td.asarray([1, 2])
            y = make(x)
            x[0] = 5
            self.assertEqual((x.tolist(), y.tolist()), ([5, 2], [1, 2]))

    def test_pickles_have_the_value(self):
        for name in "bool int8 uint64 float16 bfloat16 float8_e5m2 float32 complex128".split():
            x = td.reshape(td.astype(td.asarray([1, 0, 1, 1]), getattr(td, name)), (2, 2))
            y = pickle.loads(pickle.dumps(x))
            self.assertEqual((y.dtype, y.shape), (x.dtype, x.shape))
            self.assertTrue(bool(td.all(td.astype(y, td.complex64) == td.astype(x, td.complex64))), name)
        self.assertEqual(pickle.loads(pickle.dumps(td.zeros((0, 3)))).shape, (0, 3))


class Conversions(unittest.TestCase):
    def test_scalars(self):
        self.assertEqual(int(td.asarray(3)), 3)
        self.assertEqual(float(td.asarray([2.5])[0]), 2.5)
        self.assertEqual(complex(td.asarray(1j)), 1j)
        self.assertIs(bool(td.asarray(0)), False)
        self.assertEqual([10, 20, 30][td.asarray(1)], 20)
        for bad in (lambda: float(td.zeros(2)), lambda: bool(td.zeros(2)), lambda: [1][td.asarray(0.0)]):
            with self.assertRaises((TypeError, ValueError)):
                bad()

    def test_numpy(self):
        try:
            import numpy as np
        except ImportError:
            self.skipTest("NumPy is not installed")
        x = td.reshape(td.arange(6, dtype=td.int32), (2, 3))
        self.assertEqual(np.asarray(x).tolist(), x.tolist())
        self.assertEqual(x.numpy().dtype, np.int32)
        self.assertEqual(np.from_dlpack(x.T).tolist(), x.T.tolist())
        self.assertEqual(td.from_dlpack(np.ones(2)).tolist(), [1, 1])
        self.assertEqual(td.asarray(np.arange(6).reshape(2, 3)[:, ::-1]).tolist(), [[2, 1, 0], [5, 4, 3]])
        self.assertEqual(td.asarray([np.float32(1.5), np.float32(2)]).tolist(), [1.5, 2])
        self.assertIs(td.asarray(np.float64(1)).dtype, td.float64)


class Methods(unittest.TestCase):
    def setUp(self):
        self.x = td.reshape(td.arange(6), (2, 3))

    def test_transposes(self):
        self.assertEqual(self.x.T.tolist(), [[0, 3], [1, 4], [2, 5]])
        self.assertEqual(td.reshape(self.x, (1, 2, 3)).mT.shape, (1, 3, 2))
        for bad in (lambda: td.zeros(3).T, lambda: td.zeros(3).mT):
            with self.assertRaises(ValueError):
                bad()

    def test_reductions(self):
        self.assertEqual(self.x.sum().item(), 15)
        self.assertEqual(self.x.sum(0).tolist(), [3, 5, 7])
        self.assertEqual(self.x.max(axis=1, keepdims=True).tolist(), [[2], [5]])
        self.assertEqual(self.x.astype(td.float32).mean().item(), 2.5)
        self.assertEqual(self.x.argmax().item(), 5)
        self.assertTrue((self.x >= 0).all())

    def test_divmod(self):
        x = td.asarray([7, -7])
        self.assertEqual([part.tolist() for part in divmod(x, 2)], [[3, -4], [1, 1]])
        self.assertEqual([part.tolist() for part in divmod(x, td.asarray([4, 4]))], [[1, -2], [3, 1]])
        self.assertEqual([part.tolist() for part in divmod(15, x)], [[2, -3], [1, -6]])
        with self.assertRaises(TypeError):
            divmod(x, "a")

    def test_round(self):
        x = td.asarray([0.5, 1.5, -2.5, 12.346, 155.0], dtype=td.float64)
        self.assertEqual(round(x).tolist(), [0, 2, -2, 12, 155])
        self.assertEqual(round(x, 2).tolist(), [round(one, 2) for one in x.tolist()])
        self.assertEqual(round(x, -1).tolist(), [0, 0, 0, 10, 160])
        self.assertEqual((round(self.x).tolist(), round(self.x, 2).tolist()), (self.x.tolist(), self.x.tolist()))
        with self.assertRaises(TypeError):
            round(self.x, -1)

    def test_reshape(self):
        self.assertEqual(self.x.reshape(3, -1).shape, (3, 2))
        self.assertEqual(self.x.reshape((6,)).shape, (6,))

    def test_in_place_operators_change_this_object_alone(self):
        x = td.asarray([1, 2])
        before, same = x[:], x
        x += 1
        x *= td.asarray([2, 3])
        self.assertEqual((x.tolist(), same.tolist(), before.tolist()), ([4, 9], [4, 9], [1, 2]))
        with self.assertRaises(TypeError):
            x += 0.5
        with self.assertRaises(ValueError):
            x += td.zeros((2, 2), dtype=td.int64)

    def test_the_namespace_of_an_array(self):
        self.assertIs(self.x.__array_namespace__(), td)
        self.assertIs(self.x.__array_namespace__(api_version="2023.12"), td)
        with self.assertRaises(ValueError):
            self.x.__array_namespace__(api_version="1999.12")


if __name__ == "__main__":
    unittest.main()
