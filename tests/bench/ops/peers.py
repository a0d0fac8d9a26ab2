#!/usr/bin/env python3
"""Measures the rows of ops.c in NumPy, PyTorch or JAX: peers.py numpy|torch|jax [--quick]

Lines on standard input are "ROW<tab>DTYPE<tab>ELEMENTS"; each gives a line with microseconds, or "-" and the reason why there is no
such figure. Rows of rows.c are here, those of other files in files of the same names (table.py). The line "version" gives the library's version. PyTorch runs eagerly, JAX's functions are compiled before they are
measured, and the results of both are waited for once, at the end, as tensord's are."""
import math
import statistics
import sys
import time
import warnings

sys.dont_write_bytecode = True  # these files lie among the sources
import rows_arrays  # noqa: E402, F401
import rows_elements  # noqa: E402, F401
import rows_layers  # noqa: E402, F401
from table import DEFINITE, MASK, OPERANDS, ORDERED, ROWS, UNIT  # noqa: E402

ROUNDS, COUNT_MAX, THREADS = 5, 20000, 2
QUICK = "--quick" in sys.argv
FULL_NAMES = {"u8": "uint8", "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64", "f16": "float16", "bf16": "bfloat16",
              "f32": "float32", "f64": "float64", "c64": "complex64"}
UNARY = ["negative", "abs", "exp", "log", "sqrt", "tanh", "sigmoid", "relu", "erf", "sin", "cos", "tan", "asin", "acos", "atan",
         "sinh", "cosh", "asinh", "atanh", "exp2", "expm1", "log1p", "log2", "log10", "erfc", "square", "rsqrt", "reciprocal",
         "floor", "round", "sign", "isnan", "gelu", "silu", "hardswish", "mish"]
BINARY = ["add", "subtract", "multiply", "divide", "pow", "maximum", "minimum", "equal", "less", "atan2", "hypot", "logaddexp",
          "fmod", "remainder", "floor_divide", "copysign"]

# Channels and extent of the images of a network's rows.
CHANNELS, EXTENT, CHAINED = 64, 56, 10
HEADS, TOKENS, FEATURES = 8, 256, 64
VECTOR_ROWS = ["cast to bf16", "cast to f32", "sum", "sort", "argsort", "fft", "leaky_relu", "elu", "softplus", "gelu by tanh", "vector_norm", "argmax",
               "count_nonzero", "cumsum", "histogram", "uniform", "normal", "permutation", "dropout", "mse_loss", "huber_loss", "bce_with_logits", "adam",
               "clip_grad_norm"]
MASKED_ROWS = ["where", "where, else a number", "clip", "multiply by a number", "any", "nonzero", "masked_select"]
IMAGE_ROWS = ["conv2d", "conv2d by x", "conv2d by weight", "max_pool2d", "avg_pool2d", "avg_pool2d by x", "batch_norm", "batch_norm back", "group_norm",
              "adaptive_avg_pool2d", "conv_transpose2d", "depthwise conv2d"]


class Missing(Exception):
    """The library has no such function or dtype."""


class Library:
    """What all of them have in common. `module` has NumPy's names, or other names are in OWN; `line` is the row's line in table.py."""
    OWN = {}

    def of_table(self, name, x):
        """The function of no arguments that a row of table.py measures, on operands x."""
        line = getattr(ROWS[name], self.line)
        if line is None:
            raise Missing(f"no {name}")
        if getattr(line, "prepared", False):
            return line(self.root, x)
        return self.of_line(line, x)

    def of_line(self, line, x):
        return lambda: line(self.root, x)

    def sync(self, result):
        """Waits until the result is there."""

    def compiled(self, function, operands):
        return function

    def function(self, name):
        found = self.OWN.get(name) or getattr(self.module, name, None)
        if found is None:
            raise Missing(f"no {name}")
        return found

    def rows(self, name, x):
        """The function of no arguments that a row measures, on operands x."""
        if name == "ten products, fetched":
            return lambda: self.fetch(self.chained(x[0], x[1]))
        if name == "ten products, enqueued":
            return lambda: self.chained(x[0], x[1])
        if name in UNARY:
            f = self.function(name)
            return lambda: f(x[0])
        if name in BINARY:
            f = self.function(name)
            return lambda: f(x[0], x[1])
        return self.other(name, x)

    def other(self, name, x):
        raise Missing(f"no {name}")

    def chained(self, a, b):
        for _ in range(CHAINED):
            a = a @ b
        return a

    def fetch(self, result):
        """The result in the program's own memory."""
        return result

    def definite(self, a):
        """A matrix that is positive definite."""
        return a @ a.T + len(a) * self.module.eye(len(a), dtype=a.dtype)

    def spectral(self, name):
        """The function of a matrix for "eigh", "svd of ten" and so on; None: it is another row."""
        linalg = self.module.linalg
        return {"eigh": lambda a: linalg.eigh(a)[0], "eigvalsh": linalg.eigvalsh,
                "svd": lambda a: linalg.svd(a, full_matrices=False)[1],
                "svdvals": getattr(linalg, "svdvals", None)}.get(name.split()[0])


def operands(name, n):
    """(shape, low, high) of each operand, as operands.c has them; of integers from 0 on low is None, and high what they are below (None: the first extent)."""
    if name in ROWS:
        return OPERANDS[ROWS[name].operands](n)
    side = int(math.sqrt(n))
    if name in UNARY or name in BINARY or name in VECTOR_ROWS or name in MASKED_ROWS:
        return [((n,), 0.1, 0.9)] * 2
    if name == "searchsorted":
        return [((n,), 0.1, 0.9)] * 2
    if name in ("bincount", "sort of integers"):
        return [((n,), None, 1000)]
    if name in ("take_along_axis", "scatter", "scatter_add"):
        return [((side, side), -1, 1)] * 2 + [((side, side), None, side)]
    if name.endswith("of 32 × 32"):
        return [((n // 1024, 32, 32), -1, 1)] * 2
    if name.endswith("attention"):
        return [((n // (HEADS * TOKENS * FEATURES), HEADS, TOKENS, FEATURES), -1, 1)] * 3
    if name == "conv1d":
        return [((n // (64 * 1024), 64, 1024), -1, 1), ((64, 64, 3), -1, 1)]
    if name == "conv3d":
        return [((n // (16 * 16 * 32 * 32), 16, 16, 32, 32), -1, 1), ((16, 16, 3, 3, 3), -1, 1)]
    if name == "conv2d of 3 channels":
        return [((128, 3, 32, 32), -1, 1), ((6, 3, 5, 5), -1, 1)]
    if name in ("lstm", "gru"):
        return [((50, 32, 64), -1, 1)]
    if name == "matrix times vector":
        return [((n // 100, 100), -1, 1), ((100,), -1, 1)]
    if name == "1000 × 500 times 500 × 200":
        return [((1000, 500), -1, 1), ((500, 200), -1, 1)]
    if name in IMAGE_ROWS:
        images = max(1, n // (CHANNELS * EXTENT * EXTENT))
        return [((images, CHANNELS, EXTENT, EXTENT), -1, 1), ((CHANNELS, 1 if name.startswith("depthwise") else CHANNELS, 3, 3), -1, 1),
                ((images, CHANNELS, EXTENT, EXTENT), -1, 1), ((images, CHANNELS, EXTENT // 2, EXTENT // 2), -1, 1), ((CHANNELS,), 0.5, 1)]
    if name.startswith("layer_norm") or name == "rms_norm":
        return [((side, side), -1, 1)] * 2 + [((side,), 0.5, 1), ((side,), -1, 1)]
    if name.endswith("of ten"):
        return [((10, math.isqrt(n // 10), math.isqrt(n // 10)), -1, 1)]
    return [((side, side), -1, 1)] * 2 + ([((side,), None, None)] if name in ("take of rows", "scatter_add of rows", "one_hot", "cross_entropy") else [])


class NumPy(Library):
    line = "numpy"

    def __init__(self):
        import numpy
        self.root, self.module, self.version = numpy, numpy, numpy.__version__
        self.OWN = {"pow": numpy.power}
        self.random = numpy.random.default_rng(7)

    def array(self, shape, low, high, dtype, seed=7):
        if dtype == "bf16":
            raise Missing("NumPy has no bf16")
        random = self.module.random.default_rng(seed)
        if low is None:
            return random.integers(0, high or shape[0], shape)
        if low is MASK:
            return random.random(shape) < 0.5
        if low is ORDERED:
            return self.module.sort(random.integers(0, high, shape))
        if low is DEFINITE:
            return self.definite(self.array(shape, -1, 1, dtype, seed))
        if low is UNIT:
            made = random.uniform(0.1, 1, shape)
            return (made / made.sum(1, keepdims=True)).astype(FULL_NAMES[dtype])
        if FULL_NAMES[dtype].strip("u").startswith("int") and abs(high) <= 1:
            low, high = (10, 90) if low > 0 else (-9, 9)
        made = random.uniform(low, high, shape)
        if dtype == "c64":
            made = made + 1j * random.uniform(low, high, shape)
        return made.astype(FULL_NAMES[dtype])

    def other(self, name, x):
        np = self.module
        if name == "cast to bf16":
            raise Missing("NumPy has no bf16")
        found = {
            "cast to f32": lambda: x[0].astype(np.float32), "sum": lambda: np.sum(x[0]), "sum of rows": lambda: np.sum(x[0], 1),
            "sum of columns": lambda: np.sum(x[0], 0), "max of rows": lambda: np.max(x[0], 1), "max of columns": lambda: np.max(x[0], 0),
            "argmax of rows": lambda: np.argmax(x[0], 1), "argmax of columns": lambda: np.argmax(x[0], 0),
            "transposed copy": lambda: np.ascontiguousarray(x[0].T), "concat": lambda: np.concatenate(x[:2]),
            "take of rows": lambda: np.take(x[0], x[2], 0), "scatter_add of rows": lambda: self.added(x), "sort": lambda: np.sort(x[0]),
            "argsort": lambda: np.argsort(x[0]), "sort of rows": lambda: np.sort(x[0], 1), "roll": lambda: np.roll(x[0], 1, 1),
            "repeat": lambda: np.repeat(x[0], 2, 1), "tril": lambda: np.tril(x[0]), "fft": lambda: np.fft.fft(x[0]),
            "rfft of rows": lambda: np.fft.rfft(x[0]), "fft of columns": lambda: np.fft.fft(x[0], axis=0), "fft2": lambda: np.fft.fft2(x[0]),
            "mean of rows": lambda: np.mean(x[0], 1), "var of rows": lambda: np.var(x[0], 1), "var of columns": lambda: np.var(x[0], 0),
            "prod of rows": lambda: np.prod(x[0], 1), "vector_norm": lambda: np.linalg.norm(x[0]), "argmax": lambda: np.argmax(x[0]),
            "count_nonzero": lambda: np.count_nonzero(x[0]), "cumsum": lambda: np.cumsum(x[0]), "cumsum of rows": lambda: np.cumsum(x[0], 1),
            "cumsum of columns": lambda: np.cumsum(x[0], 0), "cummax of rows": lambda: np.maximum.accumulate(x[0], 1), "stack": lambda: np.stack(x[:2]),
            "concat of columns": lambda: np.concatenate(x[:2], 1), "tile": lambda: np.tile(x[0], (2, 2)), "flipped copy": lambda: np.flip(x[0], 1).copy(),
            "pad": lambda: np.pad(x[0], 1), "take_along_axis": lambda: np.take_along_axis(x[0], x[2], 1), "histogram": lambda: np.histogram(x[0], 100, (0, 1)),
            "searchsorted": self.searched(x), "bincount": lambda: np.bincount(x[0], minlength=1000), "sort of integers": lambda: np.sort(x[0]),
            "qr": lambda: np.linalg.qr(x[0])[1], "matmul of 32 × 32": lambda: x[0] @ x[1], "inv of 32 × 32": lambda: np.linalg.inv(x[0]),
            "uniform": lambda: self.random.random(x[0].shape, x[0].dtype), "normal": lambda: self.random.standard_normal(x[0].shape, x[0].dtype),
            "permutation": lambda: self.random.permutation(len(x[0])), **self.masked(name, x), **self.of_definite(name, x),
        }.get(name)
        if found is None and ("matmul" in name or "times" in name):
            found = lambda: x[0] @ x[1]
        spectral = self.spectral(name)
        if spectral:
            found = lambda: spectral(x[0])
        return found or super().other(name, x)

    def searched(self, x):
        ordered = self.module.sort(x[0], None)
        return lambda: self.module.searchsorted(ordered, x[1])

    def masked(self, name, x):
        if name not in MASKED_ROWS:
            return {}
        np, mask, low, high = self.module, x[0] < 0.5, x[0].dtype.type(0.25), x[0].dtype.type(0.75)
        return {"where": lambda: np.where(mask, x[0], x[1]), "where, else a number": lambda: np.where(mask, x[0], low), "clip": lambda: np.clip(x[0], low, high),
                "multiply by a number": lambda: x[0] * low, "any": lambda: np.any(mask), "nonzero": lambda: np.nonzero(mask), "masked_select": lambda: x[0][mask]}

    def of_definite(self, name, x):
        if name not in ("solve", "cholesky", "inv", "det"):
            return {}
        linalg, a = self.module.linalg, self.definite(x[0])
        return {"solve": lambda: linalg.solve(a, x[1]), "cholesky": lambda: linalg.cholesky(a), "inv": lambda: linalg.inv(a), "det": lambda: linalg.det(a)}

    def added(self, x):
        out = x[0].copy()
        self.module.add.at(out, x[2], x[1])
        return out


class PyTorch(Library):
    line = "torch"

    def __init__(self):
        import torch
        torch.set_num_threads(THREADS)
        self.root, self.module, self.version = torch, torch, torch.__version__
        functional = torch.nn.functional
        self.OWN = {"equal": torch.eq, "erf": torch.erf,
                    **{name: getattr(functional, name) for name in ("gelu", "silu", "hardswish", "mish")}}
        torch.set_grad_enabled(False)

    def array(self, shape, low, high, dtype, seed=7):
        torch = self.module
        torch.manual_seed(seed)
        if low is None:
            return torch.randint(0, high or shape[0], shape)
        if low is MASK:
            return torch.rand(shape) < 0.5
        if low is ORDERED:
            return torch.randint(0, high, shape).sort().values
        kind = getattr(torch, FULL_NAMES[dtype])
        if low is DEFINITE:
            return self.definite(self.array(shape, -1, 1, dtype, seed))
        if low is UNIT:
            return torch.softmax(torch.rand(shape), 1).to(kind)
        if not kind.is_floating_point and not kind.is_complex and abs(high) <= 1:
            low, high = (10, 90) if low > 0 else (-9, 9)
        made = torch.empty(shape).uniform_(low, high)
        return torch.complex(made, torch.empty(shape).uniform_(low, high)) if dtype == "c64" else made.to(kind)

    def other(self, name, x):
        torch = self.module
        found = {
            "cast to bf16": lambda: x[0].to(torch.bfloat16), "cast to f32": lambda: x[0].to(torch.float32, copy=True),
            "sum": lambda: torch.sum(x[0]), "sum of rows": lambda: torch.sum(x[0], 1), "sum of columns": lambda: torch.sum(x[0], 0),
            "max of rows": lambda: torch.amax(x[0], 1), "max of columns": lambda: torch.amax(x[0], 0),
            "argmax of rows": lambda: torch.argmax(x[0], 1), "argmax of columns": lambda: torch.argmax(x[0], 0),
            "softmax": lambda: torch.softmax(x[0], 1), "log_softmax": lambda: torch.log_softmax(x[0], 1),
            "transposed copy": lambda: x[0].t().contiguous(), "concat": lambda: torch.cat(x[:2]),
            "take of rows": lambda: torch.index_select(x[0], 0, x[2]), "scatter_add of rows": lambda: torch.index_add(x[0], 0, x[2], x[1]),
            "sort": lambda: torch.sort(x[0]), "argsort": lambda: torch.argsort(x[0]), "sort of rows": lambda: torch.sort(x[0], 1),
            "roll": lambda: torch.roll(x[0], 1, 1), "repeat": lambda: torch.repeat_interleave(x[0], 2, 1), "tril": lambda: torch.tril(x[0]),
            "fft": lambda: torch.fft.fft(x[0]), "rfft of rows": lambda: torch.fft.rfft(x[0]),
            "fft of columns": lambda: torch.fft.fft(x[0], dim=0), "fft2": lambda: torch.fft.fft2(x[0]),
            "mean of rows": lambda: torch.mean(x[0], 1), "var of rows": lambda: torch.var(x[0], 1), "var of columns": lambda: torch.var(x[0], 0),
            "prod of rows": lambda: torch.prod(x[0], 1), "logsumexp of rows": lambda: torch.logsumexp(x[0], 1), "vector_norm": lambda: torch.linalg.vector_norm(x[0]),
            "argmax": lambda: torch.argmax(x[0]), "count_nonzero": lambda: torch.count_nonzero(x[0]), "cumsum": lambda: torch.cumsum(x[0], 0),
            "cumsum of rows": lambda: torch.cumsum(x[0], 1), "cumsum of columns": lambda: torch.cumsum(x[0], 0), "cummax of rows": lambda: torch.cummax(x[0], 1),
            "stack": lambda: torch.stack(x[:2]), "concat of columns": lambda: torch.cat(x[:2], 1), "tile": lambda: torch.tile(x[0], (2, 2)),
            "flipped copy": lambda: torch.flip(x[0], (1,)), "take_along_axis": lambda: torch.gather(x[0], 1, x[2]),
            "scatter": lambda: torch.scatter(x[0], 1, x[2], x[1]), "scatter_add": lambda: torch.scatter_add(x[0], 1, x[2], x[1]),
            "topk of rows": lambda: torch.topk(x[0], 4, 1), "histogram": lambda: torch.histc(x[0], 100, 0, 1), "searchsorted": self.searched(x),
            "bincount": lambda: torch.bincount(x[0], minlength=1000), "sort of integers": lambda: torch.sort(x[0]), "qr": lambda: torch.linalg.qr(x[0])[1],
            "matmul of 32 × 32": lambda: x[0] @ x[1], "inv of 32 × 32": lambda: torch.linalg.inv(x[0]), "uniform": lambda: torch.rand_like(x[0]),
            "normal": lambda: torch.randn_like(x[0]), "permutation": lambda: torch.randperm(len(x[0])),
            **self.masked(name, x), **self.of_definite(name, x), **self.network(x), **self.layers(name, x),
        }.get(name)
        if found is None and ("matmul" in name or "times" in name):
            found = lambda: x[0] @ x[1]
        spectral = self.spectral(name)
        if spectral:
            found = lambda: spectral(x[0])
        return found or super().other(name, x)

    def searched(self, x):
        ordered = self.module.sort(x[0]).values if x[0].dim() == 1 else None
        return lambda: self.module.searchsorted(ordered, x[1])

    def masked(self, name, x):
        if name not in MASKED_ROWS:
            return {}
        torch, mask = self.module, x[0] < 0.5
        return {"where": lambda: torch.where(mask, x[0], x[1]), "where, else a number": lambda: torch.where(mask, x[0], 0.25),
                "clip": lambda: torch.clamp(x[0], 0.25, 0.75), "multiply by a number": lambda: x[0] * 0.25, "any": lambda: torch.any(mask),
                "nonzero": lambda: torch.nonzero(mask), "masked_select": lambda: x[0][mask]}

    def of_definite(self, name, x):
        if name not in ("solve", "cholesky", "inv", "det"):
            return {}
        linalg, a = self.module.linalg, self.definite(x[0])
        return {"solve": lambda: linalg.solve(a, x[1]), "cholesky": lambda: linalg.cholesky(a), "inv": lambda: linalg.inv(a), "det": lambda: linalg.det(a)}

    def layers(self, name, x):
        torch = self.module
        functional = torch.nn.functional
        found = {
            "leaky_relu": lambda: functional.leaky_relu(x[0]), "elu": lambda: functional.elu(x[0]), "softplus": lambda: functional.softplus(x[0]),
            "gelu by tanh": lambda: functional.gelu(x[0], approximate="tanh"), "pad": lambda: functional.pad(x[0], (1, 1, 1, 1)),
            "dropout": lambda: functional.dropout(x[0], 0.5, True), "mse_loss": lambda: functional.mse_loss(x[0], x[1]),
            "huber_loss": lambda: functional.huber_loss(x[0], x[1]), "bce_with_logits": lambda: functional.binary_cross_entropy_with_logits(x[0], x[1]),
            "one_hot": lambda: functional.one_hot(x[2], len(x[2])), "cross_entropy": lambda: functional.cross_entropy(x[0], x[2]),
            "attention": lambda: functional.scaled_dot_product_attention(*x), "causal attention": lambda: functional.scaled_dot_product_attention(*x, is_causal=True),
            "rms_norm": lambda: functional.rms_norm(x[0], x[2].shape, x[2], 1e-5), "group_norm": lambda: functional.group_norm(x[0], 8, x[4], x[4]),
            "adaptive_avg_pool2d": lambda: functional.adaptive_avg_pool2d(x[0], 7), "conv_transpose2d": lambda: functional.conv_transpose2d(x[0], x[1], padding=1),
            "depthwise conv2d": lambda: functional.conv2d(x[0], x[1], padding=1, groups=CHANNELS), "conv2d of 3 channels": lambda: functional.conv2d(x[0], x[1]),
            "conv1d": lambda: functional.conv1d(x[0], x[1], padding=1), "conv3d": lambda: functional.conv3d(x[0], x[1], padding=1),
        }
        if name in ("lstm", "gru"):
            layer = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU}[name](64, 128, dtype=x[0].dtype)
            found[name] = lambda: layer(x[0])[0]
        if name in ("adam", "clip_grad_norm"):
            parameter = torch.nn.Parameter(x[0].clone())
            parameter.grad = x[1].clone()
            optimiser = torch.optim.Adam([parameter], fused=True)
            found["adam"] = optimiser.step
            found["clip_grad_norm"] = lambda: torch.nn.utils.clip_grad_norm_([parameter], 1)
        return found

    def network(self, x):
        torch = self.module
        functional, aten = torch.nn.functional, torch.ops.aten

        def convolution_back(by_x, by_weight):
            return lambda: aten.convolution_backward(x[2], x[0], x[1], None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1,
                                                     [by_x, by_weight, False])

        def batch_norm_back():
            _, mean, deviation = aten.native_batch_norm(x[0], x[4], x[4], None, None, True, 0.1, 1e-5)
            return lambda: aten.native_batch_norm_backward(x[2], x[0], x[4], None, None, mean, deviation, True, 1e-5, [True, True, True])

        def layer_norm_back():
            _, mean, deviation = aten.native_layer_norm(x[0], x[2].shape, x[2], x[3], 1e-5)
            return lambda: aten.native_layer_norm_backward(x[1], x[0], x[2].shape, mean, deviation, x[2], x[3], [True, True, True])
        return {
            "conv2d": lambda: functional.conv2d(x[0], x[1], padding=1), "conv2d by x": convolution_back(True, False),
            "conv2d by weight": convolution_back(False, True),
            "max_pool2d": lambda: functional.max_pool2d(x[0], 2, return_indices=True), "avg_pool2d": lambda: functional.avg_pool2d(x[0], 2),
            "avg_pool2d by x": lambda: aten.avg_pool2d_backward(x[3], x[0], [2, 2], [2, 2], [0, 0], False, True, None),
            "batch_norm": lambda: functional.batch_norm(x[0], x[4].clone(), x[4].clone(), x[4], x[4], True),
            "batch_norm back": self.made_once(batch_norm_back),
            "layer_norm": lambda: functional.layer_norm(x[0], x[2].shape, x[2], x[3]),
            "layer_norm back": self.made_once(layer_norm_back),
        }

    @staticmethod
    def made_once(make):
        """What `make` makes at the first call, called."""
        made = []

        def run():
            if not made:
                made.append(make())
            return made[0]()
        return run


class JAX(Library):
    line = "jax"

    def __init__(self):
        import jax
        jax.config.update("jax_enable_x64", True)
        self.root, self.jax, self.module, self.version = jax, jax, jax.numpy, jax.__version__
        nn, special = jax.nn, jax.scipy.special
        self.OWN = {"sigmoid": nn.sigmoid, "relu": nn.relu, "erf": special.erf, "erfc": special.erfc, "pow": jax.numpy.power,
                    "rsqrt": jax.lax.rsqrt, "gelu": lambda x: nn.gelu(x, approximate=False), "silu": nn.silu,
                    "hardswish": nn.hard_swish, "mish": nn.mish}

    def array(self, shape, low, high, dtype, seed=7):
        made = NumPy().array(shape, low, high, "f32" if dtype == "bf16" else dtype, seed)
        return self.module.asarray(made) if made.dtype.kind in "bi" else self.module.asarray(made).astype(FULL_NAMES[dtype])

    def of_line(self, line, x):
        compiled = self.jax.jit(lambda *x: line(self.jax, x))
        return lambda: compiled(*x)

    def sync(self, result):
        self.jax.block_until_ready(result)

    def rows(self, name, x):
        jnp, nn = self.module, self.jax.nn
        functions = {
            "cast to bf16": lambda a, *_: a.astype(jnp.bfloat16), "cast to f32": lambda a, *_: a.astype(jnp.float32),
            "sum": lambda a, *_: jnp.sum(a), "sum of rows": lambda a, *_: jnp.sum(a, 1), "sum of columns": lambda a, *_: jnp.sum(a, 0),
            "max of rows": lambda a, *_: jnp.max(a, 1), "max of columns": lambda a, *_: jnp.max(a, 0),
            "argmax of rows": lambda a, *_: jnp.argmax(a, 1), "argmax of columns": lambda a, *_: jnp.argmax(a, 0),
            "softmax": lambda a, *_: nn.softmax(a, 1), "log_softmax": lambda a, *_: nn.log_softmax(a, 1),
            "transposed copy": lambda a, *_: a.T.copy(), "concat": lambda a, b, *_: jnp.concatenate((a, b)),
            "take of rows": lambda a, b, i: jnp.take(a, i, 0), "scatter_add of rows": lambda a, b, i: a.at[i].add(b),
            "sort": lambda a, *_: jnp.sort(a), "argsort": lambda a, *_: jnp.argsort(a), "sort of rows": lambda a, *_: jnp.sort(a, 1),
            "roll": lambda a, *_: jnp.roll(a, 1, 1), "repeat": lambda a, *_: jnp.repeat(a, 2, 1), "tril": lambda a, *_: jnp.tril(a),
            "fft": lambda a, *_: jnp.fft.fft(a), "rfft of rows": lambda a, *_: jnp.fft.rfft(a),
            "fft of columns": lambda a, *_: jnp.fft.fft(a, axis=0), **self.network(), **self.more(),
        }
        if name.startswith("ten products"):
            compiled = self.jax.jit(jnp.matmul)

            def chained():
                product = x[0]
                for _ in range(CHAINED):
                    product = compiled(product, x[1])
                return self.fetch(product) if name.endswith("fetched") else product
            return chained
        if name in UNARY:
            f = self.function(name)
            function = lambda a, *_: f(a)
        elif name in BINARY:
            function = self.function(name)
        elif "matmul" in name or "times" in name:
            function = jnp.matmul
        elif self.spectral(name):
            of_matrix = self.spectral(name)
            function = lambda a, *_: of_matrix(a)
        else:
            function = functions.get(name) or self.other(name, x)
        compiled = self.jax.jit(function)
        if name == "searchsorted":
            x = [jnp.sort(x[0]), x[1]]
        elif name in MASKED_ROWS:
            x = [*x, x[0] < 0.5]
        elif name in ("solve", "cholesky", "inv", "det"):
            x = [self.definite(x[0]), x[1]]
        return lambda: compiled(*x)

    def more(self):
        jax, jnp, nn, lax = self.jax, self.module, self.jax.nn, self.jax.lax
        key = jax.random.key(7)

        def conv(a, w, padding, groups=1):
            return lax.conv_general_dilated(a, w, (1,) * (a.ndim - 2), ((padding, padding),) * (a.ndim - 2), feature_group_count=groups)

        def cross_entropy(a, b, i):
            return -jnp.mean(jnp.take_along_axis(nn.log_softmax(a, 1), i[:, None], 1))

        def huber(a, b, *_):
            d = jnp.abs(a - b)
            return jnp.mean(jnp.where(d <= 1, 0.5 * d * d, d - 0.5))

        def attention(causal):
            return lambda q, k, v: nn.dot_product_attention(q.swapaxes(1, 2), k.swapaxes(1, 2), v.swapaxes(1, 2), is_causal=causal)

        def rms_norm(a, b, weight, *_):
            return a * lax.rsqrt(jnp.mean(a * a, 1, keepdims=True) + 1e-5) * weight

        rows = jnp.arange
        return {
            "where": lambda a, b, m: jnp.where(m, a, b), "where, else a number": lambda a, b, m: jnp.where(m, a, jnp.asarray(0.25, a.dtype)),
            "clip": lambda a, *_: jnp.clip(a, 0.25, 0.75), "multiply by a number": lambda a, *_: a * 0.25, "any": lambda a, b, m: jnp.any(m),
            "nonzero": lambda a, b, m: jnp.nonzero(m, size=m.size), "leaky_relu": lambda a, *_: nn.leaky_relu(a), "elu": lambda a, *_: nn.elu(a),
            "softplus": lambda a, *_: nn.softplus(a), "gelu by tanh": lambda a, *_: nn.gelu(a, approximate=True), "mean of rows": lambda a, *_: jnp.mean(a, 1),
            "var of rows": lambda a, *_: jnp.var(a, 1), "var of columns": lambda a, *_: jnp.var(a, 0), "prod of rows": lambda a, *_: jnp.prod(a, 1),
            "logsumexp of rows": lambda a, *_: nn.logsumexp(a, 1), "vector_norm": lambda a, *_: jnp.linalg.norm(a), "argmax": lambda a, *_: jnp.argmax(a),
            "count_nonzero": lambda a, *_: jnp.count_nonzero(a), "cumsum": lambda a, *_: jnp.cumsum(a), "cumsum of rows": lambda a, *_: jnp.cumsum(a, 1),
            "cumsum of columns": lambda a, *_: jnp.cumsum(a, 0), "cummax of rows": lambda a, *_: lax.cummax(a, 1), "stack": lambda a, b, *_: jnp.stack((a, b)),
            "concat of columns": lambda a, b, *_: jnp.concatenate((a, b), 1), "tile": lambda a, *_: jnp.tile(a, (2, 2)), "flipped copy": lambda a, *_: jnp.flip(a, 1),
            "pad": lambda a, *_: jnp.pad(a, 1), "take_along_axis": lambda a, b, i: jnp.take_along_axis(a, i, 1),
            "scatter": lambda a, b, i: a.at[rows(len(a))[:, None], i].set(b), "scatter_add": lambda a, b, i: a.at[rows(len(a))[:, None], i].add(b),
            "topk of rows": lambda a, *_: lax.top_k(a, 4), "searchsorted": lambda a, b: jnp.searchsorted(a, b),
            "one_hot": lambda a, b, i: nn.one_hot(i, len(i), dtype=jnp.int64), "bincount": lambda a: jnp.bincount(a, length=1000),
            "histogram": lambda a, *_: jnp.histogram(a, 100, (0, 1))[0], "sort of integers": lambda a: jnp.sort(a), "solve": lambda a, b: jnp.linalg.solve(a, b),
            "cholesky": lambda a, *_: jnp.linalg.cholesky(a), "inv": lambda a, *_: jnp.linalg.inv(a), "det": lambda a, *_: jnp.linalg.det(a),
            "qr": lambda a, *_: jnp.linalg.qr(a)[1], "matmul of 32 × 32": lambda a, b: a @ b, "inv of 32 × 32": lambda a, *_: jnp.linalg.inv(a),
            "uniform": lambda a, *_: jax.random.uniform(key, a.shape, a.dtype), "normal": lambda a, *_: jax.random.normal(key, a.shape, a.dtype),
            "permutation": lambda a, *_: jax.random.permutation(key, len(a)), "dropout": lambda a, *_: jnp.where(jax.random.bernoulli(key, 0.5, a.shape), a * 2, 0),
            "cross_entropy": cross_entropy, "mse_loss": lambda a, b, *_: jnp.mean((a - b) ** 2), "huber_loss": huber,
            "bce_with_logits": lambda a, b, *_: jnp.mean(jnp.logaddexp(a, 0) - a * b), "attention": attention(False), "causal attention": attention(True),
            "rms_norm": rms_norm, "depthwise conv2d": lambda a, w, *_: conv(a, w, 1, CHANNELS), "conv2d of 3 channels": lambda a, w: conv(a, w, 0),
            "conv1d": lambda a, w: conv(a, w, 1), "conv3d": lambda a, w: conv(a, w, 1), "fft2": lambda a, *_: jnp.fft.fft2(a),
        }

    def fetch(self, result):
        import numpy
        return numpy.asarray(result)

    def network(self):
        jax, lax = self.jax, self.jax.lax

        def conv(a, w):
            return lax.conv_general_dilated(a, w, (1, 1), ((1, 1), (1, 1)))

        def sums(a):
            return lax.reduce_window(a, 0.0, lax.add, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")

        def batch_norm(a, weight):
            mean, square = a.mean((0, 2, 3), keepdims=True), (a * a).mean((0, 2, 3), keepdims=True)
            scale = weight[:, None, None] * lax.rsqrt(square - mean * mean + 1e-5)
            return a * scale + (weight[:, None, None] - mean * scale)

        def layer_norm(a, weight, bias):
            mean, square = a.mean(1, keepdims=True), (a * a).mean(1, keepdims=True)
            return (a - mean) * lax.rsqrt(square - mean * mean + 1e-5) * weight + bias

        def back(function, gradient, *at):
            return jax.vjp(function, *at)[1](gradient)
        return {
            "conv2d": lambda a, w, *_: conv(a, w), "conv2d by x": lambda a, w, g, *_: back(lambda v: conv(v, w), g, a),
            "conv2d by weight": lambda a, w, g, *_: back(lambda v: conv(a, v), g, w),
            "max_pool2d": lambda a, *_: lax.reduce_window(a, -math.inf, lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID"),
            "avg_pool2d": lambda a, *_: sums(a) * 0.25, "avg_pool2d by x": lambda a, w, g, p, *_: back(lambda v: sums(v) * 0.25, p, a),
            "batch_norm": lambda a, w, g, p, c: batch_norm(a, c), "batch_norm back": lambda a, w, g, p, c: back(batch_norm, g, a, c),
            "layer_norm": lambda a, g, w, b: layer_norm(a, w, b), "layer_norm back": lambda a, g, w, b: back(layer_norm, g, a, w, b),
        }


def seconds(library, run, count):
    begin, result = time.perf_counter(), None
    for _ in range(count):
        result = run()
    library.sync(result)
    return time.perf_counter() - begin


def measure(library, run):
    """Microseconds of one run: the median of five times, each as long as ops.c's."""
    wanted, count = 0.0001 if QUICK else 0.04, 1
    seconds(library, run, 1)
    one = seconds(library, run, 1)
    while one < wanted and count < COUNT_MAX:
        count = min(count * 10, int(count * wanted / max(one, 1e-9)) + 1)
        one = seconds(library, run, count)
    return statistics.median(seconds(library, run, count) / count for _ in range(ROUNDS)) * 1e6


def measure_chain(library, run):
    """Microseconds until the products are enqueued, or the result is here: the median of three, behind one that is not counted."""
    times = []
    for _ in range(2 if QUICK else 4):
        begin = time.perf_counter()
        result = run()
        times.append(time.perf_counter() - begin)
        library.sync(result)
        del result
    return statistics.median(times[1:]) * 1e6


def answer(library, row, dtype, elements):
    given = operands(row, int(elements))
    x = [each and library.array(*each, dtype, 7 + i) for i, each in enumerate(given)]
    run = library.of_table(row, x) if row in ROWS else library.rows(row, x)
    return f"{measure_chain(library, run) if row.startswith('ten products') else measure(library, run):.4g}"


def main():
    try:
        library = {"numpy": NumPy, "torch": PyTorch, "jax": JAX}[sys.argv[1]]()
    except ImportError as error:
        sys.exit(f"peers.py: {error}")
    warnings.simplefilter("ignore")
    for line in sys.stdin:
        line = line.rstrip("\n")
        if line == "version":
            print(library.version, flush=True)
            continue
        try:
            print(answer(library, *line.split("\t")), flush=True)
        except Exception as error:  # of whatever kind the library raises
            print("-\t" + " ".join(str(error).split())[:200], flush=True)


if __name__ == "__main__":
    main()
