#!/usr/bin/env python3
"""Measures the rows of ops.c in NumPy, PyTorch or JAX: peers.py numpy|torch|jax [--quick]

Lines on standard input are "ROW<tab>DTYPE<tab>ELEMENTS"; each gives a line with microseconds, or "-" and the reason why there is no
such figure. The line "version" gives the library's version. PyTorch runs eagerly, JAX's functions are compiled before they are
measured, and the results of both are waited for once, at the end, as tensord's are."""
import math
import statistics
import sys
import time

ROUNDS, COUNT_MAX, THREADS = 5, 20000, 2
QUICK = "--quick" in sys.argv
FULL_NAMES = {"u8": "uint8", "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64", "f16": "float16", "bf16": "bfloat16",
              "f32": "float32", "f64": "float64"}
UNARY = ["negative", "abs", "exp", "log", "sqrt", "tanh", "sigmoid", "relu", "erf", "sin", "cos", "tan", "asin", "acos", "atan",
         "sinh", "cosh", "asinh", "atanh", "exp2", "expm1", "log1p", "log2", "log10", "erfc", "square", "rsqrt", "reciprocal",
         "floor", "round", "sign", "isnan", "gelu", "silu", "hardswish", "mish"]
BINARY = ["add", "subtract", "multiply", "divide", "pow", "maximum", "minimum", "equal", "less", "atan2", "hypot", "logaddexp",
          "fmod", "remainder", "floor_divide", "copysign"]

# Channels and extent of the images of a network's rows.
CHANNELS, EXTENT, CHAINED = 64, 56, 10
IMAGE_ROWS = ["conv2d", "conv2d by x", "conv2d by weight", "max_pool2d", "avg_pool2d", "avg_pool2d by x", "batch_norm", "batch_norm back"]


class Missing(Exception):
    """The library has no such function or dtype."""


class Library:
    """What all of them have in common. `module` has NumPy's names, or other names are in OWN."""
    OWN = {}

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

    def spectral(self, name):
        """The function of a matrix for "eigh", "svd of ten" and so on; None: it is another row."""
        linalg = self.module.linalg
        return {"eigh": lambda a: linalg.eigh(a)[0], "eigvalsh": linalg.eigvalsh,
                "svd": lambda a: linalg.svd(a, full_matrices=False)[1],
                "svdvals": getattr(linalg, "svdvals", None)}.get(name.split()[0])


def operands(name, n):
    """(shape, low, high) of each operand, as ops.c has them; positions have low and high None."""
    side = int(math.sqrt(n))
    if name in UNARY or name in BINARY or name in ("cast to bf16", "cast to f32", "sum", "sort", "argsort", "fft"):
        return [((n,), 0.1, 0.9)] * 2
    if name == "matrix times vector":
        return [((n // 100, 100), -1, 1), ((100,), -1, 1)]
    if name == "1000 × 500 times 500 × 200":
        return [((1000, 500), -1, 1), ((500, 200), -1, 1)]
    if name in IMAGE_ROWS:
        images = max(1, n // (CHANNELS * EXTENT * EXTENT))
        return [((images, CHANNELS, EXTENT, EXTENT), -1, 1), ((CHANNELS, CHANNELS, 3, 3), -1, 1),
                ((images, CHANNELS, EXTENT, EXTENT), -1, 1), ((images, CHANNELS, EXTENT // 2, EXTENT // 2), -1, 1), ((CHANNELS,), 0.5, 1)]
    if name.startswith("layer_norm"):
        return [((side, side), -1, 1)] * 2 + [((side,), 0.5, 1), ((side,), -1, 1)]
    if name.endswith("of ten"):
        return [((10, math.isqrt(n // 10), math.isqrt(n // 10)), -1, 1)]
    return [((side, side), -1, 1)] * 2 + ([((side,), None, None)] if name in ("take of rows", "scatter_add of rows") else [])


class NumPy(Library):
    def __init__(self):
        import numpy
        self.module, self.version = numpy, numpy.__version__
        self.OWN = {"pow": numpy.power}

    def array(self, shape, low, high, dtype):
        if dtype == "bf16":
            raise Missing("NumPy has no bf16")
        random = self.module.random.default_rng(7)
        if low is None:
            return random.integers(0, shape[0], shape)
        if FULL_NAMES[dtype].strip("u").startswith("int"):
            low, high = (10, 90) if low > 0 else (-9, 9)
        return random.uniform(low, high, shape).astype(FULL_NAMES[dtype])

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
            "rfft of rows": lambda: np.fft.rfft(x[0]), "fft of columns": lambda: np.fft.fft(x[0], axis=0),
        }.get(name)
        if found is None and ("matmul" in name or "times" in name):
            found = lambda: x[0] @ x[1]
        spectral = self.spectral(name)
        if spectral:
            found = lambda: spectral(x[0])
        return found or super().other(name, x)

    def added(self, x):
        out = x[0].copy()
        self.module.add.at(out, x[2], x[1])
        return out


class PyTorch(Library):
    def __init__(self):
        import torch
        torch.set_num_threads(THREADS)
        self.module, self.version = torch, torch.__version__
        functional = torch.nn.functional
        self.OWN = {"equal": torch.eq, "erf": torch.erf,
                    **{name: getattr(functional, name) for name in ("gelu", "silu", "hardswish", "mish")}}
        torch.set_grad_enabled(False)

    def array(self, shape, low, high, dtype):
        torch = self.module
        torch.manual_seed(7)
        if low is None:
            return torch.randint(0, shape[0], shape)
        kind = getattr(torch, FULL_NAMES[dtype])
        if not kind.is_floating_point:
            low, high = (10, 90) if low > 0 else (-9, 9)
        return torch.empty(shape).uniform_(low, high).to(kind)

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
            "fft of columns": lambda: torch.fft.fft(x[0], dim=0),
            **self.network(x),
        }.get(name)
        if found is None and ("matmul" in name or "times" in name):
            found = lambda: x[0] @ x[1]
        spectral = self.spectral(name)
        if spectral:
            found = lambda: spectral(x[0])
        return found or super().other(name, x)

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
    def __init__(self):
        import jax
        jax.config.update("jax_enable_x64", True)
        self.jax, self.module, self.version = jax, jax.numpy, jax.__version__
        nn, special = jax.nn, jax.scipy.special
        self.OWN = {"sigmoid": nn.sigmoid, "relu": nn.relu, "erf": special.erf, "erfc": special.erfc, "pow": jax.numpy.power,
                    "rsqrt": jax.lax.rsqrt, "gelu": lambda x: nn.gelu(x, approximate=False), "silu": nn.silu,
                    "hardswish": nn.hard_swish, "mish": nn.mish}

    def array(self, shape, low, high, dtype):
        made = NumPy().array(shape, low, high, "f32" if dtype == "bf16" else dtype)
        return self.module.asarray(made) if low is None else self.module.asarray(made).astype(FULL_NAMES[dtype])

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
            "fft of columns": lambda a, *_: jnp.fft.fft(a, axis=0), **self.network(),
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
        return lambda: compiled(*x)

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
    x = [library.array(shape, low, high, dtype) for shape, low, high in operands(row, int(elements))]
    run = library.rows(row, x)
    return f"{measure_chain(library, run) if row.startswith('ten products') else measure(library, run):.4g}"


def main():
    try:
        library = {"numpy": NumPy, "torch": PyTorch, "jax": JAX}[sys.argv[1]]()
    except ImportError as error:
        sys.exit(f"peers.py: {error}")
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
