"""Sums, means and extremes over axes, and running sums.

`axis` is an axis, a tuple of axes, or None for all of them; keepdims=True keeps the axes with extent 1.
"""

from . import _core
from . import dtypes as _dtypes
from .dtypes import dtype_given
from .manipulation import array_given, axes_of, axis_of, share

Array = _core.Array


def _axes(x, axis):
    """The axes for an operation, whose empty list stands for all of them; None if there is nothing to reduce."""
    axes = axes_of(axis, x)
    return axes if axes or axis is None else None


def _accumulated(x, dtype):
    """x in the dtype in which a sum of this result's dtype is to be computed."""
    if dtype is None or dtype is x.dtype:
        return x
    if _dtypes.is_complex(x.dtype) and not _dtypes.is_complex(dtype):
        raise TypeError(f"numbers of {x.dtype.name} do not add up to {dtype.name}")
    if _dtypes.is_integer(dtype) and (_dtypes.is_integer(x.dtype) or x.dtype is _dtypes.boolean):
        return x  # integers add up modulo 2^64, of which a smaller dtype has the lower bits
    return _core.cast(x, dtype)


def _as(x, dtype):
    return x if dtype is None or x.dtype is dtype else _core.cast(x, dtype)


def _wide(dtype):
    """The dtype that sums of a dtype have: int64 or uint64 for integers and bools, else the same."""
    if dtype in _dtypes.UNSIGNED:
        return _dtypes.uint64
    if dtype in _dtypes.SIGNED or dtype is _dtypes.boolean:
        return _dtypes.int64
    return dtype


def _accumulate(operation, x, axis, dtype, keepdims):
    axes, dtype = _axes(x, axis), dtype_given(dtype)
    x = _accumulated(x, dtype)
    if axes is None:  # no axis is reduced
        return _as(share(x), dtype or _wide(x.dtype))
    return _as(operation(x, axes, keepdims), dtype)


def sum(x, /, *, axis=None, dtype=None, keepdims=False) -> Array:
    """The sum; 0 of no elements. dtype None: int64 for signed integers and bools, uint64 for unsigned ones, else x's.
    Integers wrap around in the result's dtype."""
    return _accumulate(_core.sum, x, axis, dtype, keepdims)


def prod(x, /, *, axis=None, dtype=None, keepdims=False) -> Array:
    """The product; 1 of no elements. dtype as for sum()."""
    return _accumulate(_core.prod, x, axis, dtype, keepdims)


def _reduce(operation, x, axis, keepdims):
    axes = _axes(x, axis)
    return operation(x, axes, keepdims) if axes is not None else share(x)


def max(x, /, *, axis=None, keepdims=False) -> Array:
    """The greatest element, NaN if an element is NaN. ValueError for a result of no elements."""
    return _reduce(_core.max, x, axis, keepdims)


def min(x, /, *, axis=None, keepdims=False) -> Array:
    """The least element, NaN if an element is NaN. ValueError for a result of no elements."""
    return _reduce(_core.min, x, axis, keepdims)


def mean(x, /, *, axis=None, keepdims=False) -> Array:
    """The arithmetic mean, in x's dtype, float32 for integers; NaN of no elements."""
    axes = _axes(x, axis)
    if axes is None:
        return share(x) if not _dtypes.is_integer(x.dtype) else _core.cast(x, _dtypes.float32)
    return _core.mean(x, axes, keepdims)


def var(x, /, *, axis=None, correction=0.0, keepdims=False) -> Array:
    """The variance: the sum of squared distances from the mean, divided by n - correction. float32 for integers."""
    axes = _axes(x, axis)
    if axes is None:
        return _core.reshape(_core.var(_core.reshape(x, (1, x.size)), (0,), float(correction), False), x.shape)
    return _core.var(x, axes, float(correction), keepdims)


def std(x, /, *, axis=None, correction=0.0, keepdims=False) -> Array:
    """The standard deviation: the root of var()."""
    axes = _axes(x, axis)
    if axes is None:
        return _core.reshape(_core.std(_core.reshape(x, (1, x.size)), (0,), float(correction), False), x.shape)
    return _core.std(x, axes, float(correction), keepdims)


def _cumulative(operation, x, axis, dtype, include_initial):
    dtype = dtype_given(dtype)
    if axis is None:
        if array_given(x).ndim > 1:
            raise ValueError(f"an array of rank {x.ndim} needs an axis to add along")
        axis = 0
    if array_given(x).ndim == 0:
        x = _core.reshape(x, (1,))
    axis = axis_of(axis, x)
    return _as(operation(_accumulated(x, dtype), axis, include_initial), dtype)


def cumulative_sum(x, /, *, axis=None, dtype=None, include_initial=False) -> Array:
    """Running sums along an axis, which may be left out for rank 1. include_initial=True: with a 0 before the first one.
    dtype as for sum()."""
    return _cumulative(_core.cumulative_sum, x, axis, dtype, include_initial)


def cumulative_prod(x, /, *, axis=None, dtype=None, include_initial=False) -> Array:
    """Running products along an axis, which may be left out for rank 1. include_initial=True: with a 1 before the first one.
    dtype as for sum()."""
    return _cumulative(_core.cumulative_prod, x, axis, dtype, include_initial)
