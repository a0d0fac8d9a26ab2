"""Random numbers, made on the device.

    rng = td.random.Generator(42)
    x = rng.normal(size=(256, 256))

A generator has a seed, and counts its draws: the same seed and the same sequence of calls give the same numbers on every device, up
to the rounding of a logarithm and a cosine in normal() and exponential(). Nothing here waits for the device. The functions of this
module, td.random.uniform() and others, use one generator of the process, which seed() sets.
"""

from __future__ import annotations

from _thread import _local  # type: ignore  # which typeshed leaves out
from _thread import allocate_lock as _allocate_lock

from . import _core
from . import dtypes as _dtypes
from .manipulation import axis_of, shape_of

Array = _core.Array

TYPE_CHECKING = False  # as typing's, which costs an import
if TYPE_CHECKING:
    from typing import Any, Optional, Sequence, SupportsIndex, Union

    from ._core import Array as Array, Device, DType, Extents

    _Size = Optional[Extents]
    _DType = Union[DType, str, None]
    _Device = Union[Device, str, None]

_MASK = (1 << 64) - 1


def _mix(state):
    """A well-mixed 64-bit number from a state: the finaliser of SplitMix64 (Steele, Lea, Flood, 2014)."""
    state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9 & _MASK
    state = (state ^ (state >> 27)) * 0x94D049BB133111EB & _MASK
    return state ^ (state >> 31)


def _shape(size):
    return () if size is None else shape_of(size)


_thread = _local()


class _Draws:
    """What a function drew by chance that checkpoint() runs several times: later runs get the same again. `outer` are the draws of a checkpoint()
    around it, which are the same again, too, when that one runs again."""

    def __init__(self):
        self._drawn, self._place, self._outer, self._complete = [], 0, _draws_now(), False

    def run(self, function):
        """Calls the function, as the same one each time."""
        before, self._place = _draws_now(), 0
        _thread.draws = self
        try:
            result = function()
        finally:
            _thread.draws = before
        self._complete = True
        return result

    def again(self):
        """Whether the function has run before."""
        return self._complete or (self._outer is not None and self._outer.again())

    def next(self, draw):
        if self._place == len(self._drawn):
            self._drawn.append(draw() if self._outer is None else self._outer.next(draw))
        self._place += 1
        return self._drawn[self._place - 1]


def _draws_now():
    return getattr(_thread, "draws", None)


def _drawn(draw):
    """What draw() returns, or in a function that runs again what it returned at this place."""
    draws = _draws_now()
    return draw() if draws is None else draws.next(draw)


def _runs_again():
    """Whether a function runs again whose effects are there already."""
    draws = _draws_now()
    return draws is not None and draws.again()


class Generator:
    """A source of random numbers. `seed` is an integer, of which 64 bits count, or None: then the system chooses it."""

    __slots__ = ("seed", "draws", "_lock")

    def __init__(self, seed: Optional[SupportsIndex] = None) -> None:
        if seed is None:
            import os

            seed = int.from_bytes(os.urandom(8), "little")
        self.seed, self.draws, self._lock = seed.__index__() & _MASK, 0, _allocate_lock()

    def __repr__(self):
        return f"tensord.random.Generator(seed={self.seed}, draws={self.draws})"

    def __getstate__(self):
        return self.seed, self.draws

    def __setstate__(self, state):
        self.seed, self.draws = state
        self._lock = _allocate_lock()

    def _next(self):
        """The seed of the next draw. Operations have 64-bit seeds, whose numbers have nothing to do with those of other seeds."""
        return _drawn(self._draw)

    def _draw(self):
        with self._lock:  # no two threads get the same numbers
            self.draws += 1
            draws = self.draws
        return _mix((self.seed + draws * 0x9E3779B97F4A7C15) & _MASK)

    def spawn(self, count: int) -> list[Generator]:
        """A list of new generators, whose numbers have nothing to do with those of this one."""
        return [Generator(self._next()) for _ in range(count)]

    def uniform(
        self, low: float = 0.0, high: float = 1.0, size: _Size = None, *, dtype: _DType = None, device: _Device = None
    ) -> Array:
        """Numbers in [low, high)."""
        return _core.uniform(
            dtype=dtype or _dtypes.float32, shape=_shape(size), seed=self._next(), low=low, high=high, device=_core.device(device)
        )

    def random(self, size: _Size = None, *, dtype: _DType = None, device: _Device = None) -> Array:
        """Numbers in [0, 1)."""
        return self.uniform(0.0, 1.0, size, dtype=dtype, device=device)

    def normal(
        self, loc: float = 0.0, scale: float = 1.0, size: _Size = None, *, dtype: _DType = None, device: _Device = None
    ) -> Array:
        """Normally distributed numbers with the mean `loc` and the standard deviation `scale`."""
        return _core.normal(
            dtype=dtype or _dtypes.float32, shape=_shape(size), seed=self._next(), mean=loc, deviation=scale, device=_core.device(device)
        )

    def exponential(self, scale: float = 1.0, size: _Size = None, *, dtype: _DType = None, device: _Device = None) -> Array:
        """Exponentially distributed numbers with the mean `scale`."""
        return _core.exponential(
            dtype=dtype or _dtypes.float32, shape=_shape(size), seed=self._next(), scale=scale, device=_core.device(device)
        )

    def integers(
        self,
        low: int,
        high: Optional[int] = None,
        size: _Size = None,
        *,
        dtype: _DType = None,
        endpoint: bool = False,
        device: _Device = None,
    ) -> Array:
        """Integers from low up to, but without, high (with endpoint=True including high); with one bound from 0 up to it. int64 by
        default."""
        if high is None:
            low, high = 0, low
        return _core.randint(
            dtype=dtype or _dtypes.int64,
            shape=_shape(size),
            seed=self._next(),
            low=low,
            high=high + bool(endpoint),
            device=_core.device(device),
        )

    def bernoulli(
        self, probability: Union[float, Array] = 0.5, size: _Size = None, *, dtype: _DType = None, device: _Device = None
    ) -> Array:
        """True with this probability. `probability` may be a floating array: then the result has its shape and, by default, bool."""
        if isinstance(probability, Array):
            return _core.cast(_core.bernoulli_like(probability, seed=self._next()), dtype or _dtypes.boolean)
        return _core.bernoulli(
            dtype=dtype or _dtypes.boolean,
            shape=_shape(size),
            seed=self._next(),
            probability=probability,
            device=_core.device(device),
        )

    def permutation(self, x: Union[SupportsIndex, Array], *, axis: int = 0, dtype: _DType = None, device: _Device = None) -> Array:
        """The numbers 0 … x - 1 in random order, int64 by default; or of an array its slices along an axis in random order."""
        if isinstance(x, Array):
            order = _core.permutation(dtype=_dtypes.int64, n=x.shape[axis], seed=self._next(), device=x.device)
            return _core.take(x, order, axis)
        return _core.permutation(dtype=dtype or _dtypes.int64, n=x, seed=self._next(), device=_core.device(device))

    def choice(
        self,
        x: Union[SupportsIndex, Array],
        size: _Size = None,
        *,
        replace: bool = True,
        p: Union[Array, Sequence[float], None] = None,
        axis: int = 0,
        device: _Device = None,
    ) -> Array:
        """Elements of an array (slices along an axis), or of the numbers 0 … x - 1, by chance; `p` has a weight for each. Without
        replacement none comes twice: ValueError if there are too few."""
        shape = _shape(size)
        count = 1
        for extent in shape:
            count *= extent
        n = x.shape[axis] if isinstance(x, Array) else x.__index__()
        device = x.device if isinstance(x, Array) else _core.device(device)
        if not replace and count > n:
            raise ValueError(f"choice() cannot draw {count} of {n} without replacement")
        if p is not None:
            if not isinstance(p, Array):
                p = _core.asarray(p, None if hasattr(p, "dtype") else _dtypes.float32, device)
            if p.shape != (n,):
                raise ValueError(f"choice() needs {n} weights, not the shape {p.shape}")
            chosen = self.multinomial(p, count, replacement=replace)
        elif replace:
            chosen = self.integers(0, n, (count,), device=device)
        else:
            chosen = _core.slice(self.permutation(n, device=device), ((0, count, 1),))
        if isinstance(x, Array):
            axis = axis_of(axis, x)
            taken = _core.take(x, chosen, axis)
            return _core.reshape(taken, taken.shape[:axis] + shape + taken.shape[axis + 1 :])
        return _core.reshape(chosen, shape)

    def multinomial(self, weights: Array, samples: int, *, replacement: bool = True) -> Array:
        """Positions on the last axis of the weights, drawn with probabilities in proportion to them, `samples` for each row. int64."""
        return _core.multinomial(weights, samples=samples, replacement=replacement, seed=self._next())

    def dropout(self, x: Array, probability: float) -> Array:
        """x / (1 - probability), but 0 with this probability."""
        return _core.dropout(x, probability=probability, seed=self._next())


_default = Generator()


def seed(seed: Optional[SupportsIndex] = None) -> None:
    """Sets the generator that the functions of this module use; None: the system chooses the seed."""
    global _default
    _default = Generator(seed)


def default_rng(seed: Optional[SupportsIndex] = None) -> Generator:
    """A new generator, as numpy.random.default_rng()."""
    return Generator(seed)


def _function(name: str) -> Any:
    method = getattr(Generator, name)

    def function(*args: Any, **kwargs: Any) -> Any:
        return getattr(_default, name)(*args, **kwargs)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = method.__doc__
    setattr(function, "__wrapped__", method.__get__(_default))  # for inspect.signature() and help()
    return function


if TYPE_CHECKING:
    uniform, random, normal, exponential = _default.uniform, _default.random, _default.normal, _default.exponential
    integers, bernoulli, permutation = _default.integers, _default.bernoulli, _default.permutation
    choice, multinomial, dropout = _default.choice, _default.multinomial, _default.dropout
else:
    uniform, random, normal, exponential = map(_function, ("uniform", "random", "normal", "exponential"))
    integers, bernoulli, permutation = map(_function, ("integers", "bernoulli", "permutation"))
    choice, multinomial, dropout = map(_function, ("choice", "multinomial", "dropout"))
