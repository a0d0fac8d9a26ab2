"""Complex numbers: functions against Python's cmath, special values, and factors of matrices."""

import cmath
import math
import unittest

import tensord as td

from session import setUpModule  # noqa: F401

INF, NAN = math.inf, math.nan
PARTS = (0.0, -0.0, 0.25, -1.0, 1.0, -2.5, 30.0, -300.0)
FUNCTIONS = "acos acosh asin asinh atan atanh cos cosh sin sinh tan tanh exp sqrt".split()


def same(a, b):
    """Whether two parts are equal, with the sign of a zero and NaN."""
    if math.isnan(a) or math.isnan(b):
        return math.isnan(a) and math.isnan(b)
    return a == b and math.copysign(1, a) == math.copysign(1, b)


class Functions(unittest.TestCase):
    def numbers(self):
        return [complex(a, b) for a in PARTS for b in PARTS]

    def compare(self, name, expected):
        numbers, results = [], []
        for z in self.numbers():
            try:
                results.append(expected(z))
                numbers.append(z)
            except (ValueError, OverflowError):  # poles
                continue
        for dtype, tolerance in ((td.complex128, 1e-9), (td.complex64, 1e-5)):
            if dtype is td.complex64:  # whose range is smaller
                kept = [(z, w) for z, w in zip(numbers, results) if abs(w) < 1e30]
                numbers, results = [z for z, _ in kept], [w for _, w in kept]
            ours = getattr(td, name)(td.asarray(numbers, dtype=dtype))
            self.assertIs(ours.dtype, dtype)
            for z, one, wanted in zip(numbers, ours.tolist(), results):
                self.assertLessEqual(abs(one - wanted), tolerance * (1 + abs(wanted)), f"{name}({z})")

    def test_values(self):
        for name in FUNCTIONS:
            with self.subTest(name):
                self.compare(name, getattr(cmath, name))
        self.compare("log10", cmath.log10)
        self.compare("log2", lambda z: cmath.log(z) / math.log(2))
        self.compare("log1p", lambda z: cmath.log(complex(1 + z.real, z.imag)))
        self.compare("expm1", lambda z: cmath.exp(z) - 1)

    def test_branches(self):
        """On a branch cut the sign of a zero says which side counts."""
        for name in ("acos", "asin", "atan", "acosh", "asinh", "atanh"):
            for z in (complex(3, 0.0), complex(3, -0.0), complex(-3, 0.0), complex(-3, -0.0), complex(0.0, 3), complex(-0.0, 3)):
                one = getattr(td, name)(td.asarray(z, dtype=td.complex128)).item()
                self.assertLess(abs(one - getattr(cmath, name)(z)), 1e-12, f"{name}({z})")

    def test_special_values(self):
        for name, z, real, imag in (
            ("sinh", complex(INF, 0.0), INF, 0.0),
            ("sinh", complex(-0.0, 0.0), -0.0, 0.0),
            ("cosh", complex(INF, 0.0), INF, 0.0),
            ("cosh", complex(0.0, NAN), NAN, None),
            ("tanh", complex(INF, 2.0), 1.0, -0.0),
            ("tanh", complex(NAN, 0.0), NAN, 0.0),
            ("tanh", complex(1.0, INF), NAN, NAN),
            ("acos", complex(-INF, 1.0), math.pi, -INF),
            ("acos", complex(INF, NAN), NAN, None),
            ("acosh", complex(INF, INF), INF, math.pi / 4),
            ("asinh", complex(NAN, 0.0), NAN, 0.0),
            ("atanh", complex(1.0, INF), 0.0, math.pi / 2),
            ("expm1", complex(-INF, NAN), -1.0, None),
            ("expm1", complex(INF, 0.0), INF, 0.0),
            ("expm1", complex(-0.0, 0.0), 0.0, 0.0),
            ("expm1", complex(-0.0, -0.0), 0.0, -0.0),
            ("log1p", complex(-1.0, 0.0), -INF, 0.0),
            ("log1p", complex(-INF, 1.0), INF, math.pi),
            ("round", complex(2.5, -1.4), 2.0, -1.0),
        ):
            result = getattr(td, name)(td.asarray(z, dtype=td.complex128)).item()
            for part, wanted in ((result.real, real), (result.imag, imag)):
                near = wanted is None or same(part, wanted) or (wanted != 0 and abs(part - wanted) < 1e-15)
                self.assertTrue(near, f"{name}({z}) is {result}")

    def test_parts_come_together_exactly(self):
        parts = PARTS + (INF, -INF, NAN, 1e-310)
        numbers = [(a, b) for a in parts for b in parts]
        real, imag = (td.asarray([pair[i] for pair in numbers], dtype=td.float64) for i in (0, 1))
        for (a, b), z in zip(numbers, td.complex(real, imag).tolist()):
            self.assertTrue(same(z.real, a) and same(z.imag, b), f"{a}, {b}: {z}")


class Matrices(unittest.TestCase):
    def setUp(self):
        self.rng = td.random.Generator(1)

    def random(self, *shape):
        real, imag = (self.rng.normal(size=shape, dtype=td.float64) for _ in range(2))
        return real + imag * 1j

    def assert_small(self, x, what):
        if x.size:
            self.assertLess(float(td.max(td.abs(x))), 1e-10, what)

    def assert_unitary(self, q, what):
        self.assert_small(td.conj(q).mT @ q - td.eye(q.shape[-1], dtype=q.dtype), what)

    def matrices(self):
        """Matrices with and without equal values, of every form."""
        yield "random", self.random(4, 4)
        yield "tall", self.random(2, 5, 3)
        yield "wide", self.random(3, 5)
        yield "zeros", td.zeros((3, 3), dtype=td.complex128)
        yield "turned identity", td.flip(td.eye(4, dtype=td.complex128), axis=0) * 1j
        q = td.linalg.qr(self.random(6, 6)).Q
        yield "unitary", q
        yield "equal values", (q * td.asarray([0, 0, 0, 2, 2, 2], dtype=td.float64)) @ td.linalg.qr(self.random(6, 6)).Q
        yield "rank 1", self.random(4, 1) @ self.random(1, 4)
        yield "no elements", td.zeros((0, 0), dtype=td.complex128)
        yield "one column", self.random(3, 1)
        yield "the highest rank", self.random(1, 1, 2, 1, 1, 1, 2, 2)

    def test_singular_values_and_vectors(self):
        for name, x in self.matrices():
            for full in (True, False):
                u, s, vh = td.linalg.svd(x, full_matrices=full)
                k = s.shape[-1]
                self.assert_unitary(u, name)
                self.assert_unitary(td.conj(vh).mT, name)
                self.assert_small((u[..., :k] * s[..., None, :]) @ vh[..., :k, :] - x, name)
                self.assert_small(s - td.linalg.svdvals(x), name)

    def test_eigenvalues_and_eigenvectors(self):
        for name, x in self.matrices():
            if x.shape[-1] == x.shape[-2]:
                hermitian = x + td.conj(x).mT
                values, vectors = td.linalg.eigh(hermitian)
                self.assert_unitary(vectors, name)
                self.assert_small(hermitian @ vectors - vectors * values[..., None, :], name)

    def test_qr_and_determinants(self):
        for name, x in self.matrices():
            for mode in ("reduced", "complete"):
                q, r = td.linalg.qr(x, mode=mode)
                self.assert_unitary(q, name)
                self.assert_small(q @ r - x, name)
                self.assert_small(td.tril(r, k=-1), name)
            if x.shape[-1] == x.shape[-2]:
                sign, logarithm = td.linalg.slogdet(x)
                self.assert_small(sign * td.exp(logarithm) - td.linalg.det(x), name)
                self.assert_small(td.linalg.det(x @ x) - td.linalg.det(x) ** 2, name)

    def test_solutions(self):
        x, b = self.random(2, 4, 4), self.random(4, 3)
        self.assert_small(x @ td.linalg.solve(x, b) - b, "solve")
        self.assert_small(x @ td.linalg.inv(x) - td.eye(4, dtype=x.dtype), "inv")
        tall = self.random(5, 3)
        self.assert_small(td.linalg.pinv(tall) @ tall - td.eye(3, dtype=tall.dtype), "pinv")
        hermitian = x @ td.conj(x).mT + td.eye(4, dtype=x.dtype)
        factor = td.linalg.cholesky(hermitian)
        self.assert_small(factor @ td.conj(factor).mT - hermitian, "cholesky")
        upper = td.linalg.cholesky(td.triu(hermitian), upper=True)
        self.assert_small(upper - td.conj(factor).mT, "cholesky of the upper triangle")
        self.assert_small(factor @ td.linalg.triangular_solve(factor, b) - b, "triangular_solve")
        p, low, up = td.linalg.lu(x)
        self.assert_small(p @ low @ up - x, "lu")
        right = self.random(5, 2)
        self.assert_small(td.linalg.lstsq(tall, right) - td.linalg.pinv(tall) @ right, "lstsq")

    def test_real_and_complex_operands(self):
        x, b = self.random(3, 3), td.reshape(td.arange(6, dtype=td.float64), (3, 2))
        self.assert_small(x @ td.linalg.solve(x, b) - b, "a real right side")
        a = td.eye(3, dtype=td.float64) * 2.0
        self.assert_small(td.linalg.solve(a, x) - x / 2.0, "real matrices")
        self.assert_small(x @ td.linalg.solve(x, b[:, 1]) - b[:, 1], "a vector")

    def test_norms_and_ranks(self):
        for name, x in self.matrices():
            if not x.size:
                continue
            s, magnitudes = td.linalg.svdvals(x), td.abs(x)
            for ord, wanted in (
                ("fro", td.sqrt(td.sum(s * s, axis=-1))),
                ("nuc", td.sum(s, axis=-1)),
                (2, td.max(s, axis=-1)),
                (-2, td.min(s, axis=-1)),
                (1, td.max(td.sum(magnitudes, axis=-2), axis=-1)),
                (-math.inf, td.min(td.sum(magnitudes, axis=-1), axis=-1)),
            ):
                norm = td.linalg.matrix_norm(x, ord=ord)
                self.assertIs(norm.dtype, td.float64)
                self.assert_small(norm - wanted, f"{name}, {ord}")
            self.assert_small(td.linalg.vector_norm(x) - td.sqrt(td.sum(magnitudes**2)), name)
            limits = td.full(x.shape[:-2], 1e-8, dtype=td.float64)
            ranks = td.linalg.matrix_rank(x)
            self.assertTrue(bool(td.all(ranks == td.linalg.matrix_rank(x, rtol=limits))), name)
            inverse = td.linalg.pinv(x, rtol=1e-8)
            self.assert_small(inverse - td.linalg.pinv(x, rtol=limits), name)
            self.assert_small(x @ inverse @ x - x, name)
        self.assertEqual(td.linalg.matrix_rank(self.random(4, 2) @ self.random(2, 4)).item(), 2)

    def test_norm_over_no_axis(self):
        x = td.asarray([3 + 4j, 0j])
        for ord, wanted in ((2, [5.0, 0.0]), (0, [1.0, 0.0])):
            norm = td.linalg.vector_norm(x, axis=(), ord=ord)
            self.assertIs(norm.dtype, td.float32)
            self.assertEqual(norm.tolist(), wanted)

    def test_vecdot_conjugates_the_first(self):
        for function in (td.vecdot, td.linalg.vecdot):
            self.assertEqual(function(td.asarray([1j, 2.0]), td.asarray([1.0, 1j])).item(), 1j)
            self.assertEqual(function(td.asarray([1j]), td.asarray([2.0])).item(), -2j)


class Elements(unittest.TestCase):
    def test_unique(self):
        x = td.asarray([[2j, 1 + 1j, -1j], [1 + 1j, 1 - 1j, 2j]])
        values, indices, inverse, counts = td.unique_all(x)
        self.assertEqual(values.tolist(), [-1j, 2j, 1 - 1j, 1 + 1j])
        self.assertEqual(indices.tolist(), [2, 0, 4, 1])
        self.assertEqual(inverse.tolist(), [[1, 3, 0], [3, 2, 1]])
        self.assertEqual(counts.tolist(), [1, 2, 1, 2])
        self.assertEqual(td.unique_values(td.asarray([complex(NAN, 0)] * 2)).size, 2)
        self.assertEqual(td.unique_values(td.zeros(0, dtype=td.complex64)).size, 0)

    def test_running_products(self):
        x = td.asarray([[1j, 2.0], [3.0, 1 + 1j]], dtype=td.complex128)
        self.assertEqual(td.cumulative_prod(x, axis=0).tolist(), [[1j, 2], [3j, 2 + 2j]])
        self.assertEqual(td.cumulative_prod(x, axis=1, include_initial=True).tolist(), [[1, 1j, 2j], [1, 3, 3 + 3j]])
        self.assertIs(td.cumulative_prod(td.asarray([1, 2]), dtype=td.complex64).dtype, td.complex64)

    def test_sums_into_places(self):
        x = td.zeros(3, dtype=td.complex64).at[td.asarray([0, 0, 2])].add(td.asarray([1j, 1, complex(2, -1)]))
        self.assertEqual(x.tolist(), [1 + 1j, 0, 2 - 1j])

    def test_linspace(self):
        self.assertEqual(td.linspace(-1j, 2 + 1j, 3).tolist(), [-1j, 1, 2 + 1j])


if __name__ == "__main__":
    unittest.main()
