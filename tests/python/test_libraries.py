"""Libraries from PyPI that speak the array API standard work on tensord's arrays. Each test is skipped where its library is missing."""

import os
import unittest

os.environ.setdefault("SCIPY_ARRAY_API", "1")  # SciPy reads it at its import

import tensord as td

from session import setUpModule  # noqa: F401


def library(name):
    """The module, or SkipTest."""
    from importlib import import_module

    try:
        return import_module(name)
    except ImportError:
        raise unittest.SkipTest(f"{name} is not installed") from None


class ArrayApiCompat(unittest.TestCase):
    def setUp(self):
        self.compat = library("array_api_compat")

    def test_the_namespace_is_found(self):
        x = td.asarray([1.0, 2.0])
        self.assertTrue(self.compat.is_array_api_obj(x))
        self.assertIs(self.compat.array_namespace(x, td.ones(1)), td)
        self.assertIs(self.compat.device(x), x.device)
        self.assertEqual(self.compat.size(x), 2)

    def test_an_array_moves(self):
        self.assertEqual(self.compat.to_device(td.ones(1), "cpu:1").device.name, "cpu:1")


class ArrayApiExtra(unittest.TestCase):
    def setUp(self):
        self.extra = library("array_api_extra")

    def test_functions(self):
        xpx = self.extra
        x = td.asarray([[1.0, 2.0, 4.0], [3.0, 1.0, 0.0]])
        self.assertEqual(xpx.atleast_nd(td.asarray(1.0), ndim=2, xp=td).shape, (1, 1))
        self.assertEqual(xpx.expand_dims(x, axis=(0, 3), xp=td).shape, (1, 2, 3, 1))
        self.assertEqual(xpx.kron(td.asarray([1, 2]), td.asarray([1, 1]), xp=td).tolist(), [1, 1, 2, 2])
        self.assertEqual(xpx.nunique(td.asarray([1, 2, 1]), xp=td).item(), 2)
        self.assertEqual(xpx.pad(td.asarray([1, 2]), 1, xp=td).tolist(), [0, 1, 2, 0])
        self.assertEqual(xpx.setdiff1d(td.asarray([1, 2, 3]), td.asarray([2]), xp=td).tolist(), [1, 3])
        self.assertAlmostEqual(float(xpx.sinc(td.asarray(0.5), xp=td)), 0.63662, 4)
        self.assertEqual(xpx.create_diagonal(td.asarray([1, 2]), xp=td).tolist(), [[1, 0], [0, 2]])
        for one, other in zip(xpx.cov(x, xp=td).tolist(), [[7 / 3, -13 / 6], [-13 / 6, 7 / 3]]):
            for a, b in zip(one, other):
                self.assertAlmostEqual(a, b, 5)

    def test_at(self):
        x = td.asarray([1.0, 2.0, 3.0])
        y = self.extra.at(x)[1:].add(1.0, copy=True)
        self.assertEqual((x.tolist(), y.tolist()), ([1, 2, 3], [1, 3, 4]))
        self.assertEqual(self.extra.at(x)[x > 1].set(0.0, copy=True).tolist(), [1, 0, 0])


class Einops(unittest.TestCase):
    def test_rearrange_reduce_repeat(self):
        einops = library("einops.array_api")
        x = td.reshape(td.arange(24, dtype=td.float32), (2, 3, 4))
        self.assertEqual(einops.rearrange(x, "b h w -> b (w h)").shape, (2, 12))
        self.assertEqual(einops.rearrange(x, "b h w -> (b w) h").tolist(), td.reshape(td.permute_dims(x, (0, 2, 1)), (8, 3)).tolist())
        self.assertEqual(einops.reduce(x, "b h w -> b", "max").tolist(), [11, 23])
        self.assertEqual(einops.repeat(x[0, 0], "w -> w two", two=2).shape, (4, 2))


class Xarray(unittest.TestCase):
    def test_named_axes(self):
        xarray = library("xarray")
        x = xarray.DataArray(td.reshape(td.arange(6, dtype=td.float64), (2, 3)), dims=("time", "place"))
        self.assertIsInstance((x + 1).data, td.Array)
        self.assertEqual(x.mean("place").data.tolist(), [1, 4])
        self.assertEqual((x * x.isel(time=1)).sum().data.item(), 64)
        self.assertEqual(x.transpose("place", "time").data.shape, (3, 2))
        self.assertEqual(xarray.where(x > 2, x, 0).data.tolist(), [[0, 0, 0], [3, 4, 5]])
        self.assertEqual(xarray.concat([x, x], dim="time").data.shape, (4, 3))


class SciPy(unittest.TestCase):
    def setUp(self):
        self.scipy = library("scipy")

    def assert_like_numpy(self, function, *arrays, **options):
        """The function gives the same for tensord's arrays as for NumPy's, and keeps to tensord's."""
        import numpy as np

        expected = function(*(np.asarray(x) for x in arrays), **options)
        result = function(*arrays, **options)
        self.assertIsInstance(result, td.Array, function.__name__)
        np.testing.assert_allclose(np.asarray(result), expected, rtol=1e-6, atol=1e-8, err_msg=function.__name__)

    def test_statistics(self):
        stats = library("scipy.stats")
        x = td.random.Generator(1).normal(size=(50, 4), dtype=td.float64)
        self.assert_like_numpy(stats.zscore, x)
        self.assert_like_numpy(stats.skew, x)
        self.assert_like_numpy(stats.kurtosis, x, axis=1)
        self.assert_like_numpy(stats.gmean, td.abs(x) + 1.0)
        self.assert_like_numpy(stats.moment, x, order=3)
        self.assert_like_numpy(stats.sem, x)

    def test_special(self):
        special = library("scipy.special")
        x = td.random.Generator(2).normal(size=(5, 6), dtype=td.float64)
        self.assert_like_numpy(special.logsumexp, x, axis=1)
        self.assert_like_numpy(special.softmax, x, axis=0)
        self.assert_like_numpy(special.log_softmax, x, axis=-1)

    def test_signals_and_distances(self):
        windows = library("scipy.signal.windows")
        result = windows.hann(8, xp=td)
        self.assertIsInstance(result, td.Array)
        for one, other in zip(result.tolist(), windows.hann(8).tolist()):
            self.assertAlmostEqual(one, other, 6)
        fft = library("scipy.fft")
        self.assert_like_numpy(fft.fft, td.random.Generator(3).normal(size=16, dtype=td.float64))

    def test_optimisation(self):
        elementwise = library("scipy.optimize.elementwise")
        result = elementwise.find_root(lambda x: x * x - 2, (td.asarray(0.0, dtype=td.float64), td.asarray(2.0, dtype=td.float64)))
        self.assertAlmostEqual(float(result.x), 2**0.5, 8)

    def test_rotations(self):
        rotation = library("scipy.spatial.transform").Rotation
        quarter = rotation.from_rotvec(td.asarray([0.0, 0.0, td.pi / 2], dtype=td.float64))
        turned = quarter.apply(td.asarray([1.0, 0.0, 0.0], dtype=td.float64))
        self.assertIsInstance(turned, td.Array)
        self.assertAlmostEqual(float(turned[1]), 1.0, 10)


class ScikitLearn(unittest.TestCase):
    def setUp(self):
        self.sklearn = library("sklearn")
        library("array_api_compat")
        rng = td.random.Generator(4)
        self.x = rng.normal(size=(120, 6), dtype=td.float64)
        self.y = td.astype(self.x[:, 0] + self.x[:, 1] > 0, td.int64)

    def test_preprocessing(self):
        preprocessing = library("sklearn.preprocessing")
        with self.sklearn.config_context(array_api_dispatch=True):
            for scaler in (preprocessing.StandardScaler(), preprocessing.MinMaxScaler(), preprocessing.MaxAbsScaler()):
                scaled = scaler.fit_transform(self.x)
                self.assertIsInstance(scaled, td.Array)
                expected = type(scaler)().fit_transform(self.x.numpy())
                self.assertLess(float(td.max(td.abs(scaled - td.asarray(expected)))), 1e-10)

    def test_principal_components(self):
        decomposition = library("sklearn.decomposition")
        with self.sklearn.config_context(array_api_dispatch=True):
            model = decomposition.PCA(n_components=3, svd_solver="full")
            reduced = model.fit_transform(self.x)
        self.assertIsInstance(reduced, td.Array)
        self.assertEqual(reduced.shape, (120, 3))
        expected = decomposition.PCA(n_components=3, svd_solver="full").fit(self.x.numpy())
        for one, other in zip(model.explained_variance_.tolist(), expected.explained_variance_.tolist()):
            self.assertAlmostEqual(one, other, 10)

    def test_linear_models_and_metrics(self):
        linear, metrics = library("sklearn.linear_model"), library("sklearn.metrics")
        target = self.x @ td.arange(6, dtype=td.float64)
        with self.sklearn.config_context(array_api_dispatch=True):
            model = linear.Ridge(alpha=1e-6, solver="svd").fit(self.x, target)
            self.assertIsInstance(model.coef_, td.Array)
            for one, other in zip(model.coef_.tolist(), range(6)):
                self.assertAlmostEqual(one, other, 4)
            self.assertLess(float(metrics.mean_squared_error(target, model.predict(self.x))), 1e-8)
            self.assertAlmostEqual(float(metrics.accuracy_score(self.y, self.y)), 1.0)


if __name__ == "__main__":
    unittest.main()
