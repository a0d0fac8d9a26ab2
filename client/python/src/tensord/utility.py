"""Tests over axes, and differences."""

from . import _core
from . import dtypes as _dtypes
from .manipulation import axes_of, axis_of, share

Array = _core.Array


def _test(operation, x, axis, keepdims):
    axes = axes_of(axis, x)
    if not axes and axis is not None:
        return _core.cast(x, _dtypes.boolean)
    return operation(x, axes, keepdims)


def all(x, /, *, axis=None, keepdims=False) -> Array:
    """Whether each element is not 0, over an axis, a tuple of axes, or all of them; true of no elements."""
    return _test(_core.all, x, axis, keepdims)


def any(x, /, *, axis=None, keepdims=False) -> Array:
    """Whether an element is not 0, over an axis, a tuple of axes, or all of them; false of no elements."""
    return _test(_core.any, x, axis, keepdims)


def diff(x, /, *, axis=-1, n=1, prepend=None, append=None) -> Array:
    """The difference of each element and the one before it, along an axis, n times over. `prepend` and `append` are arrays that are
    joined to x before. Of bools, whether the two differ."""
    if n < 0:
        raise ValueError(f"diff() goes 0 times or more over an array, not {n}")
    axis = axis_of(axis, x)
    if n == 0:
        return share(x)
    parts = [part for part in (prepend, x, append) if part is not None]
    if len(parts) > 1:
        x = _core.concat(parts, axis)
    subtract = _core.not_equal if x.dtype is _dtypes.boolean else _core.subtract
    for _ in range(n):
        count = x.shape[axis]
        if count == 0:
            break
        before = tuple((0, count - 1, 1) if place == axis else (None, None, 1) for place in range(x.ndim))
        behind = tuple((1, count, 1) if place == axis else (None, None, 1) for place in range(x.ndim))
        x = subtract(_core.slice(x, behind), _core.slice(x, before))
    return x
