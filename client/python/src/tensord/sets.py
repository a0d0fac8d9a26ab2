"""The different elements of an array.

Each function blocks until the number of different elements is known, which the results' shapes depend on. NaN equals nothing, so
each NaN counts; -0 and +0 are equal. Values come in ascending order, complex numbers by the real part first.
"""

from collections import namedtuple

from . import _core
from . import dtypes as _dtypes

unique_all_result = namedtuple("unique_all_result", "values indices inverse_indices counts")
unique_counts_result = namedtuple("unique_counts_result", "values counts")
unique_inverse_result = namedtuple("unique_inverse_result", "values inverse_indices")


def _unique(x):
    """values, indices, inverse and counts, where the first, second and fourth still have x.size elements; and their number."""
    if _dtypes.is_complex(x.dtype):
        return _unique_complex(x)
    values, indices, inverse, counts, count = _core.unique(x)
    return values, indices, inverse, counts, int(count)


def _unique_complex(x):
    """As the operation, of numbers without an order: sorted by imaginary part, then by real part, which keeps the first order."""
    flat = _core.reshape(x, (x.size,))
    if not x.size:
        none = _core.arange(0, 0, 1, _dtypes.int64, x.device)
        return flat, none, _core.reshape(none, x.shape), none, 0
    order = _core.argsort(_core.imag(flat), 0, False)
    order = _core.take(order, _core.argsort(_core.real(_core.take(flat, order, 0)), 0, False), 0)
    ordered = _core.take(flat, order, 0)
    new = _core.not_equal(_core.slice(ordered, ((1, None, 1),)), _core.slice(ordered, ((None, x.size - 1, 1),)))
    new = _core.concat([_core.full((1,), True, _dtypes.boolean, x.device), new], 0)
    starts, count = _core.nonzero(new)
    count = int(count)
    starts = _core.slice(_core.reshape(starts, (x.size,)), ((None, count, 1),))
    ends = _core.concat([_core.slice(starts, ((1, None, 1),)), _core.full((1,), x.size, _dtypes.int64, x.device)], 0)
    run = _core.subtract(_core.cumulative_sum(_core.cast(new, _dtypes.int64), 0), 1)
    inverse = _core.scatter(_core.full((x.size,), 0, _dtypes.int64, x.device), order, run, 0)
    values, indices = _core.take(ordered, starts, 0), _core.take(order, starts, 0)
    return values, indices, _core.reshape(inverse, x.shape), _core.subtract(ends, starts), count


def _first(x, count):
    return _core.slice(x, ((None, count, 1),))


def unique_all(x, /):
    """(values, indices, inverse_indices, counts): the different elements; the place of the first of each in x, counted row-major; for
    each element of x the place of its value, in x's shape; and how often each occurs. Blocks."""
    values, indices, inverse, counts, count = _unique(x)
    return unique_all_result(_first(values, count), _first(indices, count), inverse, _first(counts, count))


def unique_counts(x, /):
    """(values, counts): the different elements, and how often each occurs. Blocks."""
    values, _, _, counts, count = _unique(x)
    return unique_counts_result(_first(values, count), _first(counts, count))


def unique_inverse(x, /):
    """(values, inverse_indices): the different elements, and for each element of x the place of its value. Blocks."""
    values, _, inverse, _, count = _unique(x)
    return unique_inverse_result(_first(values, count), inverse)


def unique_values(x, /):
    """The different elements. Blocks."""
    values, _, _, _, count = _unique(x)
    return _first(values, count)
