"""The generated functions: arguments, defaults, signatures and documentation."""
import inspect
import unittest

import tensord as td
from tensord import _core as core


def setUpModule():
    global daemon
    daemon = td.serve()


def tearDownModule():
    daemon.close()


def functions():
    return {name: each for name, each in vars(core).items() if type(each).__name__ == "builtin_function_or_method"}


class Documentation(unittest.TestCase):
    def test_every_function_has_a_signature_and_words(self):
        self.assertGreater(len(functions()), 200)
        for name, each in functions().items():
            if not name.startswith("_"):
                self.assertIsInstance(inspect.signature(each), inspect.Signature, name)
                self.assertGreater(len(each.__doc__), 20, name)
                self.assertNotRegex(each.__doc__, r"\btd_\w|\bTD_\w|\bNULL\b", name)

    def test_signatures(self):
        for function, expected in ((core.add, "(x1, x2, /)"), (core.exp, "(x, /)"), (core.sum, "(x, axes=None, keepdims=False)"),
                                   (core.topk, "(x, k, axis=-1, largest=True)"),
                                   (core.eye, "(dtype, rows, columns, diagonal=0, device=None)"),
                                   (core.mse_loss, "(x, target, reduction='mean')"),
                                   (core.elu, "(x, alpha=1.0)"), (core.full, "(shape, value, dtype=None, device=None)")):
            self.assertEqual(str(inspect.signature(function)), expected)


class Arguments(unittest.TestCase):
    def setUp(self):
        self.x = core.asarray([[1.0, 5.0, 3.0], [4.0, 2.0, 6.0]])

    def test_positional_and_named(self):
        x = self.x
        self.assertEqual(core.sum(x).tolist(), 21.0)
        self.assertEqual(core.sum(x, 0).tolist(), [5.0, 7.0, 9.0])
        self.assertEqual(core.sum(x, (0, 1)).tolist(), 21.0)
        self.assertEqual(core.sum(x, axes=[1], keepdims=True).tolist(), [[9.0], [12.0]])
        self.assertEqual(core.sum(keepdims=False, axes=None, x=x).tolist(), 21.0)

    def test_several_results(self):
        values, indices = core.topk(self.x, 2)
        self.assertEqual((values.tolist(), indices.tolist()), ([[5.0, 3.0], [6.0, 4.0]], [[1, 2], [2, 0]]))
        values, *_, count = core.unique(core.asarray([3, 1, 3]))
        self.assertEqual((values.tolist()[:2], count.item()), ([1, 3], 2))

    def test_lists_of_arrays(self):
        x = self.x
        self.assertEqual(core.concat([x, x], 0).shape, (4, 3))
        self.assertEqual(core.stack((x, x, x), axis=-1).shape, (2, 3, 3))
        self.assertEqual(core.einsum("ij,kj->ik", [x, x]).tolist(), [[35.0, 32.0], [32.0, 56.0]])

    def test_lists_of_results(self):
        x = self.x
        self.assertEqual([each.tolist() for each in core.unstack(x)], [[1.0, 5.0, 3.0], [4.0, 2.0, 6.0]])
        self.assertEqual([each.tolist() for each in core.unstack(x, -1)], [[1.0, 4.0], [5.0, 2.0], [3.0, 6.0]])
        self.assertEqual([each.shape for each in core.split(x, (1, 2), axis=1)], [(2, 1), (2, 2)])
        a, b = core.meshgrid([core.asarray([1, 2]), core.asarray([3, 4, 5])])
        self.assertEqual((a.tolist(), b.tolist()), ([[1, 2], [1, 2], [1, 2]], [[3, 3], [4, 4], [5, 5]]))
        self.assertEqual(core.unstack(core.full((0, 2), 1.0)), [])
        for call in (lambda: core.unstack(x, 2), lambda: core.split(x, (1, 7), 1), lambda: core.unstack(core.asarray(1))):
            with self.assertRaises(td.Error):
                call()

    def test_optional_arrays(self):
        image, weight = core.full((1, 1, 4, 4), 1.0), core.full((1, 1, 3, 3), 1.0)
        self.assertEqual(core.conv(image, weight).tolist(), [[[[9.0, 9.0], [9.0, 9.0]]]])
        self.assertEqual(core.conv(image, weight, core.full((1,), 1.0), padding=1, stride=(2, 2)).tolist(), [[[[5.0, 7.0], [7.0, 10.0]]]])
        self.assertEqual(core.conv(image, weight, bias=None, layout="channels_first").shape, (1, 1, 2, 2))

    def test_numbers_as_operands(self):
        x = self.x
        self.assertEqual(core.where(x > 3, x, 0).tolist(), [[0.0, 5.0, 0.0], [4.0, 0.0, 6.0]])
        self.assertEqual(core.clip(x, 2, 4.5).tolist(), [[2.0, 4.5, 3.0], [4.0, 2.0, 4.5]])
        self.assertEqual(core.maximum(x, 4).tolist(), [[4.0, 5.0, 4.0], [4.0, 4.0, 6.0]])
        self.assertEqual(core.subtract(10, x).tolist(), [[9.0, 5.0, 7.0], [6.0, 8.0, 4.0]])
        with self.assertRaises(TypeError):
            core.add(1, 2)
        with self.assertRaises(TypeError):
            core.clip(1, 2, 3)

    def test_by_hand(self):
        x = self.x
        self.assertEqual(core.slice(x, [(None, None, -1), (1, None, None)]).tolist(), [[2.0, 6.0], [5.0, 3.0]])
        self.assertEqual(core.full((2,), True).tolist(), [True, True])
        self.assertEqual(core.full(3, 2, dtype="uint8").dtype, core.uint8)
        self.assertEqual(core.arange(0, 5, 2, "int32").tolist(), [0, 2, 4])
        self.assertEqual(core.moveaxis(x, 0, 1).shape, (3, 2))
        self.assertEqual(core.tensordot(x, x, (0, 1), (0, 1)).item(), 91.0)
        self.assertEqual(core.fftn(x).shape, (2, 3))
        self.assertEqual(core.irfftn(core.rfftn(x), axes=(0, 1), sizes=(2, 3)).shape, (2, 3))
        self.assertEqual(core.pad(x, (0, 0, 1, 0), value=9).tolist(), [[9.0, 1.0, 5.0, 3.0], [9.0, 4.0, 2.0, 6.0]])
        self.assertEqual(core.matrix_norm(x, "inf").item(), 12.0)

    def test_wrong_ones_are_refused(self):
        x = self.x
        for call, words in ((lambda: core.sum(), "needs the argument x"), (lambda: core.sum(x, 0, False, 1), "takes 3 arguments, not 4"),
                            (lambda: core.sum(x, axis=0), "no argument axis"), (lambda: core.sum(x, x=x), "two values for x"),
                            (lambda: core.sum([1, 2]), "x is an array"), (lambda: core.sum(x, 0.5), ""),
                            (lambda: core.concat(x, 0), "a sequence of arrays"), (lambda: core.concat([x, 1], 0), "a sequence of arrays"),
                            (lambda: core.add(x), "takes 2 positional"), (lambda: core.exp("x"), "takes an array"),
                            (lambda: core.cast(x, "f33"), "dtype"), (lambda: core.full((2,), "1"), "is a number"),
                            (lambda: core.slice(x, [(1, 2)]), "")):
            with self.assertRaisesRegex(TypeError, words):
                call()
        for call in (lambda: core.mse_loss(x, x, "most"), lambda: core.moveaxis(x, (0, 1), 0), lambda: core.tile(x, [1] * 500)):
            with self.assertRaises(ValueError):
                call()
        with self.assertRaises(td.InvalidArgumentError):
            core.sum(x, 7)

    def test_errors_name_function_and_argument(self):
        x = core.asarray([1.0])
        for words, call in (
            (r"sum\(\): axes: ", lambda: core.sum(x, 2**63)),
            (r"elu\(\): alpha: ", lambda: core.elu(x, "1")),
            (r"leaky_relu\(\): negative_slope: ", lambda: core.leaky_relu(x, 10**400)),
            (r"adam\(\): gradients is a sequence of arrays", lambda: core.adam([x], 1, [x], [x], 1, 0.1)),
            ("a shape is an integer or a sequence of integers, not 2.5", lambda: td.zeros(2.5)),
            (r"where\(\) needs an array", lambda: td.where(True, x, x)),
            (r"Array\.sum\(\) takes", lambda: x.sum(0, 1)),
        ):
            with self.assertRaisesRegex((TypeError, OverflowError), words):
                call()
        for dtype in ("nonsense", 3):
            with self.assertRaisesRegex(TypeError, "a dtype"):
                core.asarray([1], dtype)

    def test_results_are_not_lost_with_their_sequence(self):
        parts = [core.asarray([float(i)]) for i in range(3000)]
        whole = core.concat(parts, 0)
        del parts
        self.assertEqual(core.sum(whole).item(), 3000 * 2999 / 2)

    def test_repetitions_of_an_array_are_counted_without_overflow(self):
        x = td.asarray([1.0, 2.0, 3.0])
        self.assertEqual(td.repeat(x, td.asarray([2, 0, 1], dtype=td.uint8)).tolist(), [1, 1, 3])
        for counts in ([-1, 2, 3], td.asarray([3, -4, 3], dtype=td.int8)):
            with self.assertRaises(ValueError):
                td.repeat(x, counts if isinstance(counts, td.Array) else td.asarray(counts))
        for counts, dtype in (([2**62] * 3, td.int64), ([2**62] * 4, td.int64), ([2**64 - 1, 1, 1], td.uint64)):
            with self.assertRaises(td.ShapeError):
                td.repeat(x if len(counts) == 3 else td.zeros((4,)), td.asarray(counts, dtype=dtype))

    def test_rows_of_a_large_norm_are_those_of_a_small_one(self):
        """From 16 MiB on results are written past the caches: in blocks, where they begin and end with cache lines."""
        for rows, columns in ((4200, 1024), (3000, 1500), (39200, 107)):
            x = td.random.uniform(size=(rows, columns), dtype=td.float32)
            weight = td.random.uniform(size=columns, dtype=td.float32)
            whole = td.rms_norm(td.layer_norm(x, weight, weight), weight)
            for begin in (0, 1000, rows - 10):
                some = td.rms_norm(td.layer_norm(x[begin : begin + 10] + 0, weight, weight), weight)
                self.assertTrue(td.all(whole[begin : begin + 10] == some).item(), (rows, columns, begin))


if __name__ == "__main__":
    unittest.main()
