"""Elements in order. NaN counts as the greatest number; of equal elements the one with the lower place comes first."""

from . import _core
from . import dtypes as _dtypes
from .manipulation import axis_of

Array = _core.Array


def sort(x, /, *, axis=-1, descending=False, stable=True) -> Array:
    """x's elements along an axis in ascending or descending order. Always stable. TypeError for complex numbers, which have no order."""
    return _core.sort(x, axis_of(axis, x), descending)


def argsort(x, /, *, axis=-1, descending=False, stable=True) -> Array:
    """The places, as int64, of the elements in the order in which sort() puts them."""
    return _core.argsort(x, axis_of(axis, x), descending)


def topk(x, k, /, *, axis=-1, largest=True):
    """The k greatest elements along an axis, the greatest first, or with largest=False the k least; and their places, as int64."""
    axis = axis_of(axis, x)
    if x.dtype is not _dtypes.boolean:
        return tuple(_core.topk(x, k, axis, largest))
    values, places = _core.topk(_core.cast(x, _dtypes.uint8), k, axis, largest)  # the operation takes numbers alone
    return _core.cast(values, x.dtype), places
