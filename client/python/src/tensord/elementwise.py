"""Elementwise functions of the array API standard that need more than the operation of the same name.

The others are the operations themselves: td.add is made from its description, and so on.
"""

from . import _core
from . import dtypes as _dtypes
from .manipulation import array_given, broadcast_shapes, share

Array = _core.Array


def imag(x, /) -> Array:
    """The imaginary part, a float32 or float64; zeros of a real array."""
    return _core.imag(x) if _dtypes.is_complex(array_given(x).dtype) else _core.full(x.shape, 0, x.dtype, x.device)


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
    array_given(x)
    shape = broadcast_shapes(*(one.shape for one in (x, min, max) if isinstance(one, Array)))
    if min is None and max is None:
        return share(x)
    if max is None:
        return _core.maximum(x, _limit(min, x))
    if min is None:
        return _core.minimum(x, _limit(max, x))
    return _core.broadcast_to(_core.clip(x, _limit(min, x), _limit(max, x)), shape)
