"""Products of matrices and vectors that belong to the main namespace."""

from . import _core
from . import dtypes as _dtypes
from .manipulation import array_given, axes_of

Array = _core.Array

matrix_transpose = _core.transpose


def _numbers(name, *arrays):
    for x in arrays:
        if x.dtype is _dtypes.boolean:
            raise TypeError(f"{name}() needs numbers, not bools")


def matmul(x1, x2, /) -> Array:
    """The product of matrices: (…, m, k) by (…, k, n) is (…, m, n), and leading axes broadcast. An array of rank 1 is a row on the left
    and a column on the right, and the result does not have its axis. ValueError for rank 0."""
    return _core.matmul(x1, x2)


def tensordot(x1, x2, /, *, axes=2) -> Array:
    """Sums of products over several axes of both: a tuple of x1's axes and one of x2's, or a number: x1's last and x2's first ones."""
    if isinstance(axes, (tuple, list)):
        first, second = axes_of(tuple(axes[0]), x1), axes_of(tuple(axes[1]), x2)
        if len(first) != len(second):
            raise ValueError("tensordot() needs as many axes of x2 as of x1")
    else:
        count = axes.__index__()
        if not 0 <= count <= min(array_given(x1).ndim, array_given(x2).ndim):
            raise ValueError(f"tensordot() cannot sum over {count} axes of arrays of ranks {x1.ndim} and {x2.ndim}")
        first, second = tuple(range(x1.ndim - count, x1.ndim)), tuple(range(count))
    return _core.tensordot(x1, x2, first, second)


def vecdot(x1, x2, /, *, axis=-1) -> Array:
    """The sums of products along an axis that both have with the same extent, of complex numbers with x1's conjugates; the other axes
    broadcast. `axis` counts from the end. ValueError outside -min(rank) … -1."""
    rank = min(array_given(x1).ndim, array_given(x2).ndim)
    if not -rank <= axis < 0 and not (x1.ndim == x2.ndim and 0 <= axis < rank):
        raise ValueError(f"vecdot() needs an axis from {-rank} to -1, not {axis}")
    return _core.vecdot(x1, x2, axis if axis < 0 else axis - x1.ndim)


def einsum(equation, /, *operands) -> Array:
    """Einstein's sums: einsum("ij,jk->ik", a, b) is a product of matrices. As numpy.einsum; operands promote to one dtype."""
    return _core.einsum(equation, operands)
