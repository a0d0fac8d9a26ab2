"""Where elements are."""

from . import _core
from . import dtypes as _dtypes
from .manipulation import array_given, axes_of, axis_of, unstack

Array = _core.Array


def _position(operation, x, axis, keepdims):
    if axis is None:
        return operation(x, None, keepdims)
    return operation(x, (axis_of(axis, x),), keepdims)


def argmax(x, /, *, axis=None, keepdims=False) -> Array:
    """The place of the greatest element along an axis, or among all elements in row-major order, as int64: the first one of equals.
    NaN counts as the greatest. ValueError if there are no elements."""
    return _position(_core.argmax, x, axis, keepdims)


def argmin(x, /, *, axis=None, keepdims=False) -> Array:
    """The place of the least element, as argmax(). NaN counts as the least."""
    return _position(_core.argmin, x, axis, keepdims)


def count_nonzero(x, /, *, axis=None, keepdims=False) -> Array:
    """How many elements are not 0, as int64, over an axis, a tuple of axes, or all of them."""
    axes = axes_of(axis, x)
    if not axes and axis is not None:
        return _core.cast(_core.cast(x, _dtypes.boolean), _dtypes.int64)
    return _core.count_nonzero(x, axes, keepdims)


def nonzero(x, /):
    """The places of the elements that are not 0, in row-major order: a tuple with one int64 array of rank 1 for each axis of x.

    Blocks until the number of these elements is known, which the results' shape depends on. ValueError for rank 0.
    """
    if array_given(x).ndim == 0:
        raise ValueError("nonzero() needs an array of rank 1 at least")
    places, count = _core.nonzero(x)
    count = int(count)
    return unstack(_core.slice(places, ((None, None, 1), (0, count, 1))))


def searchsorted(x1, x2, /, *, side="left", sorter=None) -> Array:
    """For each element of x2 its place in x1, which has rank 1 and is in ascending order: before elements that are equal to it, or
    with side="right" behind them. int64, in x2's shape. `sorter`: the places that put x1 in order, as argsort() gives them."""
    if side not in ("left", "right"):
        raise ValueError(f'side is "left" or "right", not {side!r}')
    array_given(x1)
    if sorter is not None:
        x1 = _core.take(x1, sorter, 0)
    dtype = _dtypes.result_type(x1, x2)
    if x1.dtype is not dtype:
        x1 = _core.cast(x1, dtype)
    if not isinstance(x2, Array):
        x2 = _core.full((), x2, dtype, x1.device)
    elif x2.dtype is not dtype:
        x2 = _core.cast(x2, dtype)
    return _core.searchsorted(x1, x2, side == "right")


def where(condition, x1, x2, /) -> Array:
    """x1 where the condition is true, x2 elsewhere; the three broadcast. x1 and x2 are arrays or scalars, whose dtypes promote. TypeError for a condition
    that is no array."""
    if not isinstance(condition, Array):
        raise TypeError(f"where() needs an array of bools as its condition, not {type(condition).__name__}: tensord.asarray() makes one")
    if not isinstance(x1, Array) or not isinstance(x2, Array):
        dtype = _dtypes.result_type(x1, x2)
        if not isinstance(x1, Array):
            x1 = _core.full((), x1, dtype, condition.device)
        if not isinstance(x2, Array):
            x2 = _core.full((), x2, dtype, condition.device)
    if condition.dtype is not _dtypes.boolean:
        condition = _core.cast(condition, _dtypes.boolean)
    return _core.where(condition, x1, x2)
