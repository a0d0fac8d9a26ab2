"""Elementwise functions of the array API standard that need more than the operation of the same name.

The others are the operations themselves: td.add is made from its description, and so on.
"""

from . import _core
from . import dtypes as _dtypes
from .manipulation import broadcast_shapes, share

Array = _core.Array


def imag(x, /) -> Array:
    """The imaginary part, a float32 or float64; zeros of a real array."""
    return _core.imag(x) if _dtypes.is_complex(x.dtype) else _core.full(x.shape, 0, x.dtype, x.device)


def _limit(limit, x):
    """A limit of clip() in x's dtype."""
    if isinstance(limit, Array):
        return limit if limit.dtype is x.dtype else _core.cast(limit, x.dtype)
    if _dtypes.is_integer(x.dtype):
        limits = _dtypes.iinfo(x.dtype)
        limit = int(builtin_min(builtin_max(limit, limits.min), limits.max))
    return _core.full((), limit, x.dtype, x.device)


builtin_min, builtin_max = min, max


def clip(x, /, min=None, max=None) -> Array:
    """x within the limits, which are scalars, arrays that broadcast, or None: minimum(maximum(x, min), max), in x's dtype. NaN where one
    of them is NaN."""
    shape = broadcast_shapes(*(one.shape for one in (x, min, max) if isinstance(one, Array)))
    low = None if min is None else _limit(min, x)
    high = None if max is None else _limit(max, x)
    if low is None and high is None:
        return share(x)
    if high is None:
        return _core.maximum(x, low)
    if low is None:
        return _core.minimum(x, high)
    return _core.broadcast_to(_core.clip(x, low, high), shape)
