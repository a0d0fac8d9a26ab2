"""Rows of the operations' benchmark with what peers do for them: rows_elements.py, rows_arrays.py and rows_layers.py have a line for each
row of the file in C of the same name. peers.py has those of rows.c.

A peer's line is a function of the library and of the operands, or prepared() with a function that returns one of no arguments, for what
is not measured. What the line of JAX does is compiled. None: the library has no such function."""
import math
from dataclasses import dataclass
from typing import Callable, Optional

CHANNELS, EXTENT, HEADS, TOKENS, FEATURES = 64, 56, 8, 256, 64
SIZES = [1024, 1 << 20]
IMAGE_SIZES = [64 * 56 * 56, 32 * 64 * 56 * 56]
MASK, DEFINITE, ORDERED, UNIT = "mask", "definite", "ordered", "unit"  # in place of `low`; UNIT: positive, and rows that add up to 1
# Operations that have no row, and why.
WITHOUT_PEER = {
    "free": "it ends a tensor's life; peers' objects end theirs by themselves",
    "kernel": "the user's own code is measured by nobody else's",
    "program": "scripts/bench programs measures recorded programs",
}


@dataclass
class Row:
    operands: str
    numpy: Optional[Callable]
    torch: Optional[Callable]
    jax: Optional[Callable]
    sizes: list
    dtypes: list


ROWS = {}


def row(name, operands, numpy=None, torch=None, jax=None, sizes=SIZES, dtypes=("f32",)):
    ROWS[name] = Row(operands, numpy, torch, jax, list(sizes), list(dtypes))


def named(name, operands, count, numpy="", torch="", jax="", dtypes=("f32",)):
    """A function of the first `count` operands that libraries have by this name, or by another one; None: there is none."""
    def line(other, module):
        if other is None:
            return None
        return lambda library, x: getattr(module(library), other or name)(*x[:count])
    row(name, operands, line(numpy, lambda np: np), line(torch, lambda torch: torch), line(jax, lambda jax: jax.numpy), dtypes=dtypes)


def prepared(make):
    make.prepared = True
    return make


def torch_back(function, *by, ones=True):
    """The derivatives of a function of the operands by some of them, without the function itself. The gradient is a row's of `losses`: 1, or numbers."""
    def make(torch, x):
        with torch.enable_grad():
            leaves = [each.clone().requires_grad_() if i in by else each for i, each in enumerate(x)]
            results = function(torch, leaves)
            results = results if isinstance(results, tuple) else (results,)
            gradients = [torch.ones_like(each) if ones else torch.randn_like(each) for each in results]
        wanted = [leaves[i] for i in by]
        return lambda: torch.autograd.grad(results, wanted, gradients, retain_graph=True)
    return prepared(make)


def jax_back(function, *by, ones=True):
    def make(jax, x):
        def of_some(*some):
            given = list(x)
            for i, each in zip(by, some):
                given[i] = each
            return function(jax, given)
        result, back = jax.vjp(of_some, *[x[i] for i in by])
        gradient = jax.numpy.ones_like(result) if ones else jax.random.normal(jax.random.key(7), result.shape, result.dtype)
        compiled = jax.jit(lambda back, gradient: back(gradient))
        return lambda: compiled(back, gradient)
    return prepared(make)


def back(function_torch, function_jax, *by, ones=True):
    """The lines of a gradient."""
    return {"torch": torch_back(function_torch, *by, ones=ones), "jax": function_jax and jax_back(function_jax, *by, ones=ones)}


def images_of(n):
    return max(1, n // (CHANNELS * EXTENT * EXTENT))


def vectors(n):
    return [((n,), 0.1, 0.9)] * 2


def square(n):
    return [((math.isqrt(n), math.isqrt(n)), -1, 1)] * 2


def images(n, weight=(CHANNELS, CHANNELS, 3, 3)):
    image, half = (images_of(n), CHANNELS, EXTENT, EXTENT), (images_of(n), CHANNELS, EXTENT // 2, EXTENT // 2)
    return [(image, -1, 1), (weight, -1, 1), (image, -1, 1), (half, -1, 1), ((CHANNELS,), 0.5, 1)]


def heads(n):
    return [((n // (HEADS * TOKENS * FEATURES), HEADS, TOKENS, FEATURES), -1, 1)] * 3


def matrices(n):
    return [((n // 1024, 32, 32), -1, 1)] * 2


def signals(n):
    signal = ((n // (64 * 1024), 64, 1024), -1, 1)
    return [signal, ((64, 64, 3), -1, 1), signal]


# (shape, low, high) of each operand, as operands.c has them by these names; of integers from 0 on low is None, and high what they are
# below. Operands that are made from others are left out; what says how many are wanted is added.
OPERANDS = {
    "vectors": vectors, "losses": vectors, "parameter": vectors, "square": square, "images": images,
    "pooled": lambda n: [*images(n), None, ((images_of(n), CHANNELS, 7, 7), -1, 1)],
    "narrow": lambda n: images(n, (CHANNELS, CHANNELS, 1, 1)),
    "above_one": lambda n: [((n,), 1.1, 9)], "shifts": lambda n: [((n,), 1, 100), ((n,), 0, 7)],
    "masks": lambda n: [((n,), MASK, None)] * 2, "booleans": lambda n: [((math.isqrt(n), math.isqrt(n)), MASK, None)],
    "masked": lambda n: [*vectors(n), ((n,), MASK, None)],
    "near_one": lambda n: [((math.isqrt(n), math.isqrt(n)), 0.99, 1.01)], "column": lambda n: [((n, 1), -1, 1)],
    "pair": lambda n: [((2, n // 2), -1, 1)], "edges": lambda n: [((math.isqrt(n),), -1, 1)] * 2,
    "points": lambda n: [((n // 3, 3), -1, 1)] * 2, "factors": lambda n: [((math.isqrt(math.isqrt(n)),) * 2, -1, 1)] * 2,
    "folded": lambda n: [((n // 1024, 32, 32), -1, 1), ((32, 32, n // 1024), -1, 1)], "batch": matrices,
    "tall": lambda n: [((4 * (math.isqrt(n) // 2), math.isqrt(n) // 2), -1, 1), ((4 * (math.isqrt(n) // 2), 4), -1, 1)],
    "spectrum": lambda n: [((n // 2 + 1,), -1, 1)], "half_plane": lambda n: [((math.isqrt(n), math.isqrt(n) // 2 + 1), -1, 1)],
    "kinds": lambda n: [((1000,), 0.1, 0.9), ((n,), 0.1, 0.9)], "integers": lambda n: [((n,), None, 1000)], "runs": lambda n: [((n,), ORDERED, 1000)],
    "counts": lambda n: [((n,), -1, 1), ((n,), None, 4)], "definite": lambda n: [*square(n), ((math.isqrt(n),) * 2, DEFINITE, None)],
    "places": lambda n: [*square(n), ((math.isqrt(n),) * 2, None, math.isqrt(n))],
    "positions": lambda n: [*square(n), ((math.isqrt(n),), None, math.isqrt(n))],
    "layers": lambda n: [*square(n), ((math.isqrt(n),), 0.5, 1), ((math.isqrt(n),), -1, 1)],
    "words": lambda n: [((1000, FEATURES), -1, 1), ((n // FEATURES,), None, 1000), ((n // FEATURES, FEATURES), -1, 1)],
    "scores": lambda n: [((math.isqrt(n),) * 2, -1, 1), ((math.isqrt(n),) * 2, UNIT, None), ((math.isqrt(n),), None, math.isqrt(n)), None,
                         ((math.isqrt(n),) * 2, -8, -1)],
    "heads": heads, "heads_back": heads, "heads_back_causal": heads, "signals": signals,
    "four_gates_back": lambda n: [((50, 32, 64), -1, 1)], "three_gates_back": lambda n: [((50, 32, 64), -1, 1)],
}
