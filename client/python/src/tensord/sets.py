"""The different elements of an array.

Each function blocks until the number of different elements is known, which the results' shapes depend on. NaN equals nothing, so
each NaN counts; -0 and +0 are equal. Values come in ascending order, complex numbers by the real part first.
"""

from collections import namedtuple

from . import _core

Array = _core.Array

unique_all_result = namedtuple("unique_all_result", "values indices inverse_indices counts")
unique_counts_result = namedtuple("unique_counts_result", "values counts")
unique_inverse_result = namedtuple("unique_inverse_result", "values inverse_indices")


def _unique(x):
    """values, indices, inverse and counts, where the first, second and fourth still have x.size elements; and their number."""
    values, indices, inverse, counts, count = _core.unique(x)
    return values, indices, inverse, counts, int(count)


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


def unique_values(x, /) -> Array:
    """The different elements. Blocks."""
    values, _, _, _, count = _unique(x)
    return _first(values, count)
