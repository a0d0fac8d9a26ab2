"""Every function of the namespace is called, and gives what its documentation says."""

import ast
import inspect
import math
import pathlib
import unittest

import tensord as td

from session import setUpModule  # noqa: F401

# The functions of the array API standard 2024.12, by its chapters.
STANDARD = """
arange asarray empty empty_like eye from_dlpack full full_like linspace meshgrid ones ones_like tril triu zeros zeros_like
astype can_cast finfo iinfo isdtype result_type
abs acos acosh add asin asinh atan atan2 atanh bitwise_and bitwise_left_shift bitwise_invert bitwise_or bitwise_right_shift
bitwise_xor ceil clip conj copysign cos cosh divide equal exp expm1 floor floor_divide greater greater_equal hypot imag isfinite
isinf isnan less less_equal log log1p log2 log10 logaddexp logical_and logical_not logical_or logical_xor maximum minimum multiply
negative nextafter not_equal positive pow real reciprocal remainder round sign signbit sin sinh square sqrt subtract tan tanh trunc
take take_along_axis
matmul matrix_transpose tensordot vecdot
broadcast_arrays broadcast_to concat expand_dims flip moveaxis permute_dims repeat reshape roll squeeze stack tile unstack
argmax argmin count_nonzero nonzero searchsorted where
unique_all unique_counts unique_inverse unique_values
argsort sort
cumulative_prod cumulative_sum max mean min prod std sum var
all any diff
""".split()
LINALG = """cholesky cross det diagonal eigh eigvalsh inv matmul matrix_norm matrix_power matrix_rank matrix_transpose outer pinv qr
slogdet solve svd svdvals tensordot trace vecdot vector_norm""".split()
FFT = "fft ifft fftn ifftn rfft irfft rfftn irfftn hfft ihfft fftfreq rfftfreq fftshift ifftshift".split()

# A call, and what it gives: a list, or a tuple of lists for several results. Functions that have tests of their own are not here.
X = "td.asarray([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])"
V = "td.asarray([3.0, 1.0, 2.0])"
B = "td.asarray([True, False])"
I = "td.asarray([6, 3])"
S = "td.asarray([[4.0, 2.0], [2.0, 3.0]])"
ROWS = [
    ("td.abs(td.asarray([-1, 2]))", [1, 2]),
    ("td.abs(td.asarray(3 + 4j))", 5),
    ("td.acos(td.asarray(1.0))", 0),
    ("td.acosh(td.asarray(1.0))", 0),
    (f"td.add({V}, 1)", [4, 2, 3]),
    (f"td.add(1, {V})", [4, 2, 3]),
    ("td.asin(td.asarray(1.0, dtype=td.float64))", math.pi / 2),
    ("td.asinh(td.asarray(0.0))", 0),
    ("td.atan(td.asarray(1.0, dtype=td.float64))", math.pi / 4),
    ("td.atan2(td.asarray(1.0, dtype=td.float64), -1.0)", 3 * math.pi / 4),
    ("td.atanh(td.asarray(0.0))", 0),
    (f"td.bitwise_and({I}, 2)", [2, 2]),
    (f"td.bitwise_or({I}, 1)", [7, 3]),
    (f"td.bitwise_xor({I}, 1)", [7, 2]),
    (f"td.bitwise_invert({I})", [-7, -4]),
    (f"td.bitwise_left_shift({I}, 1)", [12, 6]),
    (f"td.bitwise_right_shift({I}, 1)", [3, 1]),
    ("td.ceil(td.asarray([1.2, -1.2]))", [2, -1]),
    ("td.floor(td.asarray([1.2, -1.2]))", [1, -2]),
    ("td.trunc(td.asarray([1.2, -1.2]))", [1, -1]),
    ("td.round(td.asarray([0.5, 1.5, -1.2]))", [0, 2, -1]),
    (f"td.clip({V}, 1.5, 2.5)", [2.5, 1.5, 2]),
    (f"td.clip({V}, max=td.asarray([[1.0], [2.0]]))", [[1, 1, 1], [2, 1, 2]]),
    (f"td.clip({V}, 2)", [3, 2, 2]),
    ("td.conj(td.asarray([1 + 2j]))", [1 - 2j]),
    ("td.real(td.asarray([1 + 2j]))", [1]),
    ("td.imag(td.asarray([1 + 2j]))", [2]),
    (f"td.imag({V})", [0, 0, 0]),
    (f"td.copysign({V}, -1.0)", [-3, -1, -2]),
    ("td.cos(td.asarray(0.0))", 1),
    ("td.cosh(td.asarray(0.0))", 1),
    (f"td.divide({V}, 2)", [1.5, 0.5, 1]),
    (f"td.equal({V}, 1)", [False, True, False]),
    (f"td.not_equal({V}, 1)", [True, False, True]),
    (f"td.less({V}, 2)", [False, True, False]),
    (f"td.less_equal({V}, 2)", [False, True, True]),
    (f"td.greater({V}, 2)", [True, False, False]),
    (f"td.greater_equal({V}, 2)", [True, False, True]),
    ("td.exp(td.asarray(0.0))", 1),
    ("td.expm1(td.asarray(0.0))", 0),
    ("td.floor_divide(td.asarray([7, -7]), 2)", [3, -4]),
    ("td.remainder(td.asarray([7, -7]), 3)", [1, 2]),
    ("td.hypot(td.asarray(3.0), 4.0)", 5),
    ("td.isfinite(td.asarray([1.0, td.inf]))", [True, False]),
    ("td.isinf(td.asarray([1.0, td.inf]))", [False, True]),
    ("td.isnan(td.asarray([1.0, td.nan]))", [False, True]),
    ("td.log(td.asarray(1.0))", 0),
    ("td.log1p(td.asarray(0.0))", 0),
    ("td.log2(td.asarray(8.0))", 3),
    ("td.log10(td.asarray(100.0))", 2),
    ("td.logaddexp(td.asarray(0.0, dtype=td.float64), 0.0)", math.log(2)),
    (f"td.logical_and({B}, True)", [True, False]),
    (f"td.logical_or({B}, True)", [True, True]),
    (f"td.logical_xor({B}, True)", [False, True]),
    (f"td.logical_not({B})", [False, True]),
    (f"td.maximum({V}, 2)", [3, 2, 2]),
    (f"td.minimum({V}, 2)", [2, 1, 2]),
    (f"td.multiply({V}, 2)", [6, 2, 4]),
    (f"td.negative({V})", [-3, -1, -2]),
    (f"td.positive({V})", [3, 1, 2]),
    ("td.nextafter(td.asarray(1.0, dtype=td.float64), 2.0)", 1 + 2**-52),
    (f"td.pow({V}, 2)", [9, 1, 4]),
    ("td.reciprocal(td.asarray([4.0]))", [0.25]),
    ("td.sign(td.asarray([-2.0, 0.0, 5.0]))", [-1, 0, 1]),
    ("td.signbit(td.asarray([-0.0, 1.0]))", [True, False]),
    ("td.sin(td.asarray(0.0))", 0),
    ("td.sinh(td.asarray(0.0))", 0),
    (f"td.square({V})", [9, 1, 4]),
    ("td.sqrt(td.asarray([4.0]))", [2]),
    (f"td.subtract({V}, 1)", [2, 0, 1]),
    ("td.tan(td.asarray(0.0))", 0),
    ("td.tanh(td.asarray(0.0))", 0),
    (f"td.matmul({X}, {V})", [11, 29]),
    (f"td.matrix_transpose({X})", [[1, 4], [2, 5], [3, 6]]),
    (f"td.tensordot({X}, {X}, axes=((0, 1), (0, 1)))", 91),
    (f"td.tensordot({X}, {V}, axes=1)", [11, 29]),
    (f"td.vecdot({X}, {V})", [11, 29]),
    ("td.vecdot(td.asarray([1j]), td.asarray([1j]))", 1),
    (f"td.einsum('ij,j->i', {X}, {V})", [11, 29]),
    (f"td.broadcast_arrays({V}, td.asarray([[0.0], [1.0]]))[0]", [[3, 1, 2], [3, 1, 2]]),
    (f"td.broadcast_to({V}, (2, 3))", [[3, 1, 2], [3, 1, 2]]),
    (f"td.concat([{V}, td.asarray([1])])", [3, 1, 2, 1]),
    (f"td.concat([{X}, {V}], axis=None)", [1, 2, 3, 4, 5, 6, 3, 1, 2]),
    (f"td.expand_dims({V}, axis=0)", [[3, 1, 2]]),
    (f"td.flip({X})", [[6, 5, 4], [3, 2, 1]]),
    (f"td.flip({X}, axis=0)", [[4, 5, 6], [1, 2, 3]]),
    (f"td.moveaxis({X}, 0, 1)", [[1, 4], [2, 5], [3, 6]]),
    (f"td.permute_dims({X}, (1, 0))", [[1, 4], [2, 5], [3, 6]]),
    (f"td.repeat({V}, 2)", [3, 3, 1, 1, 2, 2]),
    (f"td.repeat({V}, td.asarray([0, 2, 1]))", [1, 1, 2]),
    (f"td.repeat({X}, 0, axis=0)", []),
    (f"td.repeat({X}, 2, axis=0)", [[1, 2, 3], [1, 2, 3], [4, 5, 6], [4, 5, 6]]),
    (f"td.reshape({X}, (3, -1))", [[1, 2], [3, 4], [5, 6]]),
    (f"td.roll({V}, 1)", [2, 3, 1]),
    (f"td.roll({X}, (1, 1), axis=(0, 1))", [[6, 4, 5], [3, 1, 2]]),
    ("td.squeeze(td.asarray([[1], [2]]), 1)", [1, 2]),
    (f"td.stack([{V}, {V}], axis=1)", [[3, 3], [1, 1], [2, 2]]),
    (f"td.tile({V}, (2, 1))", [[3, 1, 2], [3, 1, 2]]),
    (f"td.unstack({X})", ([1, 2, 3], [4, 5, 6])),
    (f"td.argmax({X}, axis=1)", [2, 2]),
    (f"td.argmin({X})", 0),
    ("td.count_nonzero(td.asarray([0, 1, 2]))", 2),
    ("td.nonzero(td.asarray([[0, 1], [2, 0]]))", ([0, 1], [1, 0])),
    ("td.searchsorted(td.asarray([1, 3, 5]), td.asarray([3, 6]))", [1, 3]),
    ("td.searchsorted(td.asarray([1, 3, 5]), td.asarray([3]), side='right')", [2]),
    ("td.searchsorted(td.asarray([5, 1, 3]), td.asarray([3]), sorter=td.asarray([1, 2, 0]))", [1]),
    (f"td.where({B}, 1, 2)", [1, 2]),
    (f"td.where({B}, td.asarray([1.5, 2.5]), 0)", [1.5, 0]),
    ("td.unique_all(td.asarray([2, 1, 2]))", ([1, 2], [1, 0], [1, 0, 1], [1, 2])),
    ("td.unique_all(td.asarray([2j, 1, 2j, 1j]))", ([1j, 2j, 1], [3, 0, 1], [1, 2, 1, 0], [1, 2, 1])),
    ("td.unique_counts(td.asarray([2, 1, 2]))", ([1, 2], [1, 2])),
    ("td.unique_inverse(td.asarray([[2, 1], [2, 2]]))", ([1, 2], [[1, 0], [1, 1]])),
    ("td.unique_values(td.asarray([2, 1, 2]))", [1, 2]),
    ("td.unique_values(td.asarray([], dtype=td.complex64))", []),
    (f"td.sort({V})", [1, 2, 3]),
    (f"td.sort({V}, descending=True)", [3, 2, 1]),
    (f"td.argsort({V})", [1, 2, 0]),
    (f"td.topk({V}, 2)", ([3, 2], [0, 2])),
    (f"td.cumulative_sum({V})", [3, 4, 6]),
    (f"td.cumulative_sum({X}, axis=1, include_initial=True)", [[0, 1, 3, 6], [0, 4, 9, 15]]),
    (f"td.cumulative_prod({V}, include_initial=True)", [1, 3, 3, 6]),
    ("td.cumulative_prod(td.asarray([1j, 1j, 2, 1j, 3]))", [1j, -1, -2, -2j, -6j]),
    (f"td.max({X}, axis=0)", [4, 5, 6]),
    (f"td.min({X}, keepdims=True)", [[1]]),
    (f"td.mean({X}, axis=1)", [2, 5]),
    (f"td.prod({V})", 6),
    (f"td.sum({X}, axis=(0, 1))", 21),
    (f"td.sum({X}, axis=())", [[1, 2, 3], [4, 5, 6]]),
    ("td.sum(td.asarray([200, 100], dtype=td.uint8), dtype=td.uint8)", 44),
    ("td.sum(td.asarray([100, 100], dtype=td.int8), dtype=td.int8)", -56),
    (f"td.var({V}, correction=1)", 1),
    ("td.std(td.asarray([1.0, 3.0]))", 1),
    ("td.std(td.asarray([1.0, 3.0]), axis=())", [0, 0]),
    ("td.var(td.asarray([1, 3]), axis=())", [0, 0]),
    (f"td.all({B})", False),
    (f"td.any({B}, axis=0)", True),
    ("td.diff(td.asarray([1, 4, 9]))", [3, 5]),
    ("td.diff(td.asarray([1, 4, 9]), n=2)", [2]),
    ("td.diff(td.asarray([1, 4]), prepend=td.asarray([0]), append=td.asarray([5]))", [1, 3, 1]),
    # linalg
    ("td.linalg.cholesky(td.asarray([[4.0, 2.0], [2.0, 5.0]]))", [[2, 0], [1, 2]]),
    ("td.linalg.cholesky(td.asarray([[4.0, 2j], [-2j, 5.0]]))", [[2, 0], [-1j, 2]]),
    ("td.linalg.cholesky(td.asarray([[4.0, 2.0], [2.0, 5.0]]), upper=True)", [[2, 1], [0, 2]]),
    (f"td.linalg.cross({V}, td.asarray([1.0, 0.0, 0.0]))", [0, 2, -1]),
    (f"td.linalg.det({S})", 8),
    (f"td.linalg.diagonal({X}, offset=1)", [2, 6]),
    ("td.linalg.eigh(td.asarray([[2.0, 0.0], [0.0, 1.0]])).eigenvalues", [1, 2]),
    ("td.linalg.eigvalsh(td.asarray([[2.0, 0.0], [0.0, 1.0]]))", [1, 2]),
    ("td.linalg.eigvalsh(td.asarray([[2.0, 1j], [-1j, 2.0]]))", [1, 3]),
    ("td.linalg.inv(td.asarray([[2.0, 0.0], [0.0, 4.0]]))", [[0.5, 0], [0, 0.25]]),
    ("td.linalg.inv(td.asarray([[2j, 0.0], [0.0, 4.0]]))", [[-0.5j, 0], [0, 0.25]]),
    (f"td.linalg.matmul({X}, {V})", [11, 29]),
    (f"td.linalg.matrix_transpose({S})", [[4, 2], [2, 3]]),
    (f"td.linalg.matrix_norm({S}, ord=1)", 6),
    ("td.linalg.matrix_norm(td.asarray([[3.0, 0.0], [0.0, 4.0]]))", 5),
    ("td.linalg.matrix_norm(td.asarray([[3j, 0.0], [0.0, 4.0]]), ord='nuc')", 7),
    ("td.linalg.matrix_norm(td.asarray([[3.0, 0.0], [0.0, 4.0]]), ord=-2, keepdims=True)", [[3]]),
    ("td.linalg.matrix_norm(td.zeros((3, 0)), ord=1)", 0),
    ("td.linalg.matrix_norm(td.zeros((2, 0, 3)), ord=2)", [0, 0]),
    ("td.linalg.matrix_norm(td.zeros((0, 3)), ord=td.inf, keepdims=True)", [[0]]),
    (f"td.linalg.matrix_power({S}, 2)", [[20, 14], [14, 13]]),
    ("td.linalg.matrix_power(td.asarray([[2.0]]), -2)", [[0.25]]),
    (f"td.linalg.matrix_rank({S})", 2),
    (f"td.linalg.matrix_rank({S}, rtol=td.asarray(0.9))", 1),
    ("td.linalg.matrix_rank(td.asarray([[1j, 0], [0, 0]]))", 1),
    ("td.linalg.outer(td.asarray([1, 2]), td.asarray([3, 4]))", [[3, 4], [6, 8]]),
    ("td.linalg.pinv(td.asarray([[2.0, 0.0]]))", [[0.5], [0]]),
    ("td.linalg.pinv(td.asarray([[2.0, 0.0]]), rtol=td.asarray(0.1))", [[0.5], [0]]),
    ("td.linalg.pinv(td.asarray([[2j, 0.0]]))", [[-0.5j], [0]]),
    ("td.linalg.pinv(td.asarray([[2j, 0.0]]), rtol=td.asarray(0.1))", [[-0.5j], [0]]),
    ("td.linalg.det(td.asarray([[1j, 1.0], [2.0, 1.0]]))", -2 + 1j),
    ("td.linalg.slogdet(td.asarray([[2j]]))", (1j, math.log(2))),
    ("td.abs(td.linalg.qr(td.asarray([[3j], [4.0]])).R)", [[5]]),
    (f"td.abs(td.linalg.qr({S}).R[0, 0])", math.sqrt(20)),
    ("td.linalg.slogdet(td.asarray([[1.0, 0.0], [0.0, -1.0]]))", (-1, 0)),
    ("td.linalg.solve(td.asarray([[2.0, 0.0], [0.0, 4.0]]), td.asarray([2.0, 4.0]))", [1, 1]),
    ("td.linalg.solve(td.asarray([[2j, 0.0], [0.0, 4.0]]), td.asarray([2.0, 4.0]))", [-1j, 1]),
    ("td.linalg.svd(td.asarray([[3.0, 0.0], [0.0, 4.0]])).S", [4, 3]),
    ("td.linalg.svdvals(td.asarray([[3j, 0.0], [0.0, 4.0]]))", [4, 3]),
    (f"td.linalg.tensordot({X}, {V}, axes=1)", [11, 29]),
    (f"td.linalg.trace({S})", 7),
    (f"td.linalg.vecdot({X}, {V})", [11, 29]),
    ("td.linalg.vector_norm(td.asarray([3.0, 4.0]))", 5),
    ("td.linalg.vector_norm(td.asarray([3j, 4.0]))", 5),
    ("td.linalg.vector_norm(td.asarray([3.0, -4.0]), ord=td.inf, keepdims=True)", [4]),
    # fft
    ("td.fft.fft(td.asarray([1.0, 0.0, 0.0, 0.0]))", [1, 1, 1, 1]),
    ("td.fft.ifft(td.asarray([4.0 + 0j, 0, 0, 0]))", [1, 1, 1, 1]),
    ("td.fft.rfft(td.asarray([1.0, 1.0, 1.0, 1.0]), norm='forward')", [1, 0, 0]),
    ("td.fft.irfft(td.asarray([4.0 + 0j, 0, 0]))", [1, 1, 1, 1]),
    ("td.fft.hfft(td.asarray([1.0 + 0j, 0, 0]))", [1, 1, 1, 1]),
    ("td.fft.ihfft(td.asarray([4.0, 0.0, 0.0, 0.0]))", [1, 1, 1]),
    ("td.fft.fftn(td.ones((2, 2)))", [[4, 0], [0, 0]]),
    ("td.fft.fftn(td.ones((3, 2)), s=(2,), axes=(0,))", [[2, 2], [0, 0]]),
    ("td.fft.ifftn(td.asarray([[4.0 + 0j, 0], [0, 0]]))", [[1, 1], [1, 1]]),
    ("td.fft.rfftn(td.ones((2, 2)))", [[4, 0], [0, 0]]),
    ("td.fft.irfftn(td.asarray([[4.0 + 0j, 0], [0, 0]]))", [[1, 1], [1, 1]]),
    ("td.fft.fftfreq(4)", [0, 0.25, -0.5, -0.25]),
    ("td.fft.rfftfreq(4, d=0.5)", [0, 0.5, 1]),
    ("td.fft.fftshift(td.asarray([0, 1, -2, -1]))", [-2, -1, 0, 1]),
    ("td.fft.ifftshift(td.asarray([-2, -1, 0, 1]))", [0, 1, -2, -1]),
]
ELSEWHERE = set("""arange asarray empty empty_like eye from_dlpack full full_like linspace meshgrid ones ones_like tril triu zeros
zeros_like astype can_cast finfo iinfo isdtype result_type take take_along_axis""".split())


def flat(value):
    if isinstance(value, (list, tuple)):
        return [one for item in value for one in flat(item)]
    return [value]


class Namespace(unittest.TestCase):
    def assert_close(self, result, expected, call):
        if isinstance(expected, tuple):
            self.assertEqual(len(result), len(expected), call)
            for one, wanted in zip(result, expected):
                self.assert_close(one, wanted, call)
        else:
            values = result.tolist()
            self.assertEqual(isinstance(values, list), isinstance(expected, list), call)
            self.assertEqual(len(flat(values)), len(flat(expected)), call)
            for one, wanted in zip(flat(values), flat(expected)):
                self.assertLessEqual(abs(one - wanted), 1e-5 * (1 + abs(wanted)), f"{call}: {values}")

    def test_values(self):
        for call, expected in ROWS:
            with self.subTest(call):
                result = eval(call, {"td": td})
                self.assert_close(result, expected, call)

    def test_every_function_of_the_standard_is_there_and_has_a_test(self):
        calls = " ".join(call for call, _ in ROWS)
        for prefix, module, names in (("td.", td, STANDARD), ("td.linalg.", td.linalg, LINALG), ("td.fft.", td.fft, FFT)):
            for name in names:
                self.assertTrue(callable(getattr(module, name, None)), prefix + name)
                self.assertTrue(getattr(module, name).__doc__, f"{prefix}{name} has no documentation")
                if module is not td or name not in ELSEWHERE:
                    self.assertIn(f"{prefix}{name}(", calls, "has no test")

    def test_constants(self):
        self.assertEqual((td.pi, td.e, td.inf, td.newaxis), (math.pi, math.e, math.inf, None))
        self.assertTrue(math.isnan(td.nan))
        self.assertEqual(td.__array_api_version__, "2024.12")

    def test_inspection(self):
        info = td.__array_namespace_info__()
        self.assertIs(info.capabilities()["boolean indexing"], True)
        self.assertIn(info.default_device(), info.devices())
        self.assertIs(info.default_dtypes()["real floating"], td.float32)
        self.assertEqual(list(info.dtypes(kind="bool")), ["bool"])
        self.assertEqual(len(info.dtypes()), 13)

    def test_arrays_of_the_highest_rank(self):
        x = td.reshape(td.arange(4, dtype=td.float32), (1, 2, 1, 1, 2, 1, 1, 1))
        self.assertEqual(td.repeat(x, 2, axis=1).shape, (1, 4, 1, 1, 2, 1, 1, 1))
        self.assertEqual(td.reshape(td.repeat(x, 2, axis=4), (8,)).tolist(), [0, 0, 1, 1, 2, 2, 3, 3])
        self.assertEqual(td.var(x, axis=()).shape, x.shape)
        self.assertEqual(td.tile(x, (1, 2)).shape, (1, 2, 1, 1, 2, 1, 1, 2))
        self.assertEqual(x[:, td.asarray([1, 0])].shape, x.shape)
        self.assertEqual(x.at[0, 1].set(0).shape, x.shape)
        self.assertEqual(td.roll(x, 1, axis=1)[0, 0, 0, 0, :, 0, 0, 0].tolist(), [2, 3])
        with self.assertRaises(ValueError):
            td.expand_dims(x, axis=0)

    def test_broadcast_shapes(self):
        self.assertEqual(td.broadcast_shapes((2, 1), (3,), ()), (2, 3))
        self.assertEqual(td.broadcast_shapes((0, 1), (1, 3)), (0, 3))

    def test_names_of_results(self):
        x = td.asarray([[2.0, 0.0], [0.0, 1.0]])
        self.assertEqual(td.linalg.qr(x)._fields, ("Q", "R"))
        self.assertEqual(td.linalg.svd(x)._fields, ("U", "S", "Vh"))
        self.assertEqual(td.linalg.slogdet(x)._fields, ("sign", "logabsdet"))
        self.assertEqual(td.linalg.eigh(x)._fields, ("eigenvalues", "eigenvectors"))

    def test_wrong_arguments(self):
        x = td.zeros((2, 3))
        for error, call in (
            (IndexError, lambda: td.sum(x, axis=2)),
            (ValueError, lambda: td.sum(x, axis=(0, 0))),
            (ValueError, lambda: td.squeeze(x, 0)),
            (ValueError, lambda: td.reshape(x, (4,))),
            (ValueError, lambda: td.reshape(x, (6,), copy=False)),
            (ValueError, lambda: td.concat([])),
            (ValueError, lambda: td.matmul(x, x)),
            (ValueError, lambda: td.cumulative_sum(x)),
            (ValueError, lambda: td.nonzero(td.zeros(()))),
            (ValueError, lambda: td.broadcast_shapes((2,), (3,))),
            (ValueError, lambda: td.fft.fft(x, norm="other")),
            (ValueError, lambda: td.linalg.matrix_norm(x, ord=3)),
            (td.ShapeError, lambda: td.linalg.matrix_norm(td.zeros((0, 3)), ord=-2)),
            (ValueError, lambda: td.linalg.inv(x)),
            (ValueError, lambda: td.searchsorted(x[0], x[0], side="middle")),
            (TypeError, lambda: td.sort(td.asarray([1j]))),
            (TypeError, lambda: td.add(1, 2)),
            (TypeError, lambda: td.zeros(2, dtype="float31")),
            (TypeError, lambda: td.zeros(2, dtype=float)),
            (TypeError, lambda: td.sum(x, dtype="float31")),
            (TypeError, lambda: td.sum(td.asarray(1j), dtype=td.float32)),
        ):
            with self.assertRaises(error):
                call()

    def test_lists_are_refused_with_what_makes_arrays_of_them(self):
        """By the functions of the standard that take an array first, or two of them."""
        others = {
            "broadcast_to": ((2,),), "expand_dims": (), "moveaxis": (0, 0), "permute_dims": ((0,),), "repeat": (1,), "reshape": ((2, 1),),
            "roll": (1,), "squeeze": (0,), "tile": (2,), "astype": (td.int8,), "full_like": (0,), "matrix_power": (2,), "where": (1, 2),
        }  # fmt: skip
        without = set("arange asarray empty eye fftfreq rfftfreq from_dlpack full linspace ones zeros finfo iinfo isdtype can_cast".split())
        without |= set("result_type broadcast_arrays broadcast_shapes concat stack meshgrid einsum".split())
        for module, names in ((td, STANDARD), (td.linalg, LINALG), (td.fft, FFT)):
            for name in set(names) - without:
                function, x = getattr(module, name), [1.0, 2.0]
                needed = [one for one in inspect.signature(function).parameters.values() if one.default is one.empty]
                with self.subTest(name), self.assertRaisesRegex(TypeError, r"asarray\(\)"):
                    function(x, *others.get(name, (x,) * (len(needed) - 1)))
        for call in (lambda: td.concat([[1], [2]]), lambda: td.stack([[1], [2]]), lambda: td.broadcast_arrays([1], [2]), lambda: td.meshgrid([1])):
            with self.assertRaisesRegex(TypeError, r"asarray\(\)"):
                call()

    def test_a_dtype_may_be_a_name(self):
        x = td.asarray([1.5, 2.5])
        for made in (
            td.asarray([1], dtype="float64"), td.zeros(2, dtype="float64"), td.full(2, 1, dtype="float64"), td.arange(2, dtype="float64"),
            td.linspace(0, 1, 2, dtype="float64"), td.eye(2, dtype="float64"), td.ones_like(x, dtype="float64"), x.astype("float64"),
            td.sum(x, dtype="float64"), td.cumulative_sum(x, dtype="float64"), td.linalg.trace(td.eye(2), dtype="float64"),
            td.fft.fftfreq(4, dtype="float64"), td.random.normal(size=2, dtype="float64"), td.nn.Linear(2, 2).to("float64").weight,
        ):  # fmt: skip
            self.assertIs(made.dtype, td.float64)
        self.assertTrue(td.isdtype("float64", "real floating"))
        self.assertTrue(td.can_cast("int8", "int16"))

    def test_repeats_of_lists_and_of_negative_numbers(self):
        x = td.asarray([1.0, 2.0, 3.0])
        for repeats in ([2, 0, 1], (2, 0, 1), td.asarray([2, 0, 1]), td.asarray([2, 0, 1], dtype=td.uint8)):
            self.assertEqual(td.repeat(x, repeats).tolist(), [1, 1, 3])
        self.assertEqual(td.repeat(x, range(3)).tolist(), [2, 3, 3])
        self.assertEqual(td.repeat(x, td.asarray([True, False, True])).tolist(), [1, 3])
        for repeats in (-1, [-1], [1, -1, 2], td.asarray([-1]), td.asarray([1, -1, 2]), td.asarray([3, -1, -2], dtype=td.int8)):
            with self.assertRaisesRegex(ValueError, "0 times or more"):
                td.repeat(x, repeats)
        for repeats in (1.5, [1.0, 2.0, 3.0], td.asarray([1.0, 2.0, 3.0])):
            with self.assertRaises(TypeError):
                td.repeat(x, repeats)

    def test_the_greatest_of_bools(self):
        values, places = td.topk(td.asarray([False, True, False, True]), 3)
        self.assertIs(values.dtype, td.bool)
        self.assertEqual((values.tolist(), places.tolist()), ([True, True, False], [1, 3, 0]))

    def test_optional_arrays_of_operations(self):
        x, target = td.asarray([1.0, -2.0]), td.asarray([1.0, 0.25])
        weighed = td.bce_with_logits(x, target, td.ones(()), td.asarray([2.0, 0.5]))
        self.assertEqual(td.bce_with_logits(x, target, pos_weight=td.asarray([2.0, 0.5])).item(), weighed.item())
        with self.assertRaisesRegex(TypeError, "no bias without weight"):
            td.layer_norm(x, bias=x, axes=1)

    def test_a_singular_matrix_fails_when_the_value_is_looked_at(self):
        x = td.linalg.inv(td.zeros((2, 2)))
        with self.assertRaises(ValueError):
            x.tolist()


class Random(unittest.TestCase):
    def test_the_same_seed_gives_the_same_numbers(self):
        draws = [
            lambda rng: rng.uniform(size=5),
            lambda rng: rng.random((2, 2)),
            lambda rng: rng.normal(3.0, 2.0, size=5),
            lambda rng: rng.exponential(2.0, 4),
            lambda rng: rng.integers(-3, 3, 20),
            lambda rng: rng.bernoulli(0.5, 20),
            lambda rng: rng.bernoulli(td.asarray([0.0, 1.0])),
            lambda rng: rng.permutation(9),
            lambda rng: rng.permutation(td.arange(4)),
            lambda rng: rng.choice(9, (2, 3)),
            lambda rng: rng.choice(9, 9, replace=False),
            lambda rng: rng.choice(td.arange(3), 4, p=td.asarray([0.0, 1.0, 0.0])),
            lambda rng: rng.multinomial(td.asarray([0.0, 1.0]), 3),
            lambda rng: rng.dropout(td.ones(10), 0.5),
        ]
        a, b, c = td.random.Generator(7), td.random.default_rng(7), td.random.Generator(8)
        for draw in draws:
            self.assertEqual(draw(a).tolist(), draw(b).tolist())
        self.assertNotEqual(a.uniform(size=5).tolist(), c.uniform(size=5).tolist())
        self.assertNotEqual(a.uniform(size=5).tolist(), a.uniform(size=5).tolist())
        self.assertEqual(a.draws, b.draws + 3)

    def test_ranges(self):
        rng = td.random.Generator(1)
        x = rng.uniform(-2.0, 3.0, 10000)
        self.assertTrue(-2 <= float(td.min(x)) < -1.9 and 2.9 < float(td.max(x)) < 3)
        x = rng.normal(5.0, 2.0, 10000, dtype=td.float64)
        self.assertTrue(abs(float(td.mean(x)) - 5) < 0.1 and abs(float(td.std(x)) - 2) < 0.1)
        self.assertEqual(td.unique_values(rng.integers(3, size=1000)).tolist(), [0, 1, 2])
        self.assertEqual(td.unique_values(rng.integers(1, 3, 1000, endpoint=True, dtype=td.int8)).tolist(), [1, 2, 3])
        self.assertEqual(td.sort(rng.permutation(100)).tolist(), list(range(100)))
        self.assertEqual(td.sort(rng.choice(100, 100, replace=False)).tolist(), list(range(100)))
        self.assertEqual(td.unique_values(rng.choice(td.asarray([5, 6]), 99, p=td.asarray([0.0, 2.0]))).tolist(), [6])
        x = td.reshape(td.arange(6), (2, 3))
        self.assertEqual([rng.choice(x, (4, 5), axis=axis).shape for axis in (0, 1, -1, -2)], [(4, 5, 3), (2, 4, 5), (2, 4, 5), (4, 5, 3)])
        self.assertEqual(rng.choice(x, axis=-1).shape, (2,))
        self.assertEqual(rng.choice(3, 4, p=[0, 1, 0]).tolist(), [1] * 4)
        with self.assertRaises(ValueError):
            rng.choice(3, 4, replace=False)

    def test_generators_are_pickled_with_their_state(self):
        import pickle

        a = td.random.Generator(3)
        a.uniform()
        b = pickle.loads(pickle.dumps(a))
        self.assertEqual(a.uniform(size=3).tolist(), b.uniform(size=3).tolist())
        first, second = a.spawn(2)
        self.assertNotEqual(first.uniform().item(), second.uniform().item())

    def test_threads_get_different_numbers(self):
        import threading

        rng, seeds = td.random.Generator(1), []
        threads = [threading.Thread(target=lambda: seeds.extend(rng._next() for _ in range(2000))) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(len(set(seeds)), 8000)

    def test_functions_of_the_module(self):
        td.random.seed(5)
        first = [td.random.uniform(size=2).tolist(), td.random.normal(size=2).tolist(), td.random.integers(9, size=3).tolist()]
        td.random.seed(5)
        self.assertEqual(first, [td.random.uniform(size=2).tolist(), td.random.normal(size=2).tolist(), td.random.integers(9, size=3).tolist()])


class BeyondTheStandard(unittest.TestCase):
    def test_operations_of_neural_networks_are_in_the_namespace(self):
        for name in "relu gelu softmax conv layer_norm cross_entropy scatter embedding pad einsum".split():
            self.assertTrue(callable(getattr(td, name)), name)
        self.assertEqual(td.relu(td.asarray([-1.0, 2.0])).tolist(), [0, 2])


class Types(unittest.TestCase):
    """What editors and type checkers can know, which read the package without running it."""

    SEVERAL = set("meshgrid broadcast_arrays unstack nonzero unique_all unique_counts unique_inverse eigh qr slogdet svd can_cast finfo iinfo isdtype result_type".split())

    def parsed(self, name):
        return ast.parse((pathlib.Path(td.__file__).parent / name).read_text())

    def test_functions_that_give_an_array_say_so(self):
        for module, names in ((td, STANDARD), (td.linalg, LINALG), (td.fft, FFT)):
            for name in names:
                function = getattr(module, name)
                if name not in self.SEVERAL and hasattr(function, "__code__"):
                    self.assertIs(function.__annotations__.get("return"), td.Array, name)

    def test_what_is_loaded_at_first_use_is_imported_for_readers_of_types(self):
        (block,) = (each for each in self.parsed("__init__.py").body if isinstance(each, ast.If) and each.test.id == "TYPE_CHECKING")
        names = {alias.name for each in block.body for alias in each.names}
        self.assertEqual(names - {"*"}, set(td._LATER) | td._LATER_MODULES)
        self.assertIn("*", names)  # of _core, whose names are put into the namespace one by one

    def test_types_of_the_extension_are_types(self):
        """Not dtypes, which have the names of types: bool is td.bool there."""
        stub = self.parsed("_core.pyi")
        values = {each.target.id for each in stub.body if isinstance(each, ast.AnnAssign)}
        self.assertIn("bool", values)
        for function in (each for each in ast.walk(stub) if isinstance(each, ast.FunctionDef)):
            arguments = function.args
            for annotation in [each.annotation for each in arguments.posonlyargs + arguments.args + arguments.kwonlyargs] + [function.returns]:
                names = {each.id for each in ast.walk(annotation) if isinstance(each, ast.Name)} if annotation else set()
                self.assertFalse(names & values, f"{function.name}, line {function.lineno}")


if __name__ == "__main__":
    unittest.main()
