"""The extension `linalg` of the array API standard: decompositions, systems of linear equations, norms, products.

The last two axes are matrices, the axes before them batches. A matrix that cannot be factored poisons its results: looking at them
raises SingularError, which is a ValueError.
"""

from collections import namedtuple

from . import _core
from . import dtypes as _dtypes
from .linear_algebra import einsum, matmul, tensordot, vecdot  # noqa: F401
from .manipulation import array_given, axes_of

Array = _core.Array
matrix_transpose = _core.transpose

EigenResult = namedtuple("EigenResult", "eigenvalues eigenvectors")
QRResult = namedtuple("QRResult", "Q R")
SlogdetResult = namedtuple("SlogdetResult", "sign logabsdet")
SVDResult = namedtuple("SVDResult", "U S Vh")

_infinity = float("inf")


# ---- decompositions ----


def cholesky(x, /, *, upper=False) -> Array:
    """The lower triangular L with x = L · Lᴴ of a Hermitian positive definite matrix, or with upper=True the upper triangular U with
    x = Uᴴ · U. Only that triangle is read."""
    return _core.cholesky(x, upper)


def qr(x, /, *, mode="reduced"):
    """(Q, R) with x = Q · R: Q (…, m, k) with orthonormal columns, and R (…, k, n) upper triangular; k is min(m, n), or m if the mode is
    "complete"."""
    if mode not in ("reduced", "complete"):
        raise ValueError(f'mode is "reduced" or "complete", not {mode!r}')
    return QRResult(*_core.qr(x, mode))


def lu(x, /):
    """(P, L, U) with x = P · L · U: Gaussian elimination with partial pivoting. As torch.linalg.lu."""
    return tuple(_core.lu(x))


def eigh(x, /):
    """Eigenvalues in ascending order, and eigenvectors in the columns of a matrix, of symmetric (complex: Hermitian) matrices, whose lower
    triangle is read."""
    return EigenResult(*_core.eigh(x))


def eigvalsh(x, /) -> Array:
    """The eigenvalues of symmetric (complex: Hermitian) matrices in ascending order."""
    return _core.eigvalsh(x)


def svd(x, /, *, full_matrices=True):
    """(U, S, Vh) with x = U · diag(S) · Vh: singular values S in descending order, orthonormal columns of U and rows of Vh; with
    full_matrices=True U and Vh are square."""
    return SVDResult(*_core.svd(x, full_matrices))


def svdvals(x, /) -> Array:
    """The singular values in descending order."""
    return _core.svdvals(x)


# ---- equations ----


def solve(x1, x2, /) -> Array:
    """x with x1 · x = x2, for square matrices x1 (…, n, n); x2 is one vector (n), or matrices (…, n, k). Batches broadcast."""
    return _core.solve(x1, x2)


def triangular_solve(x1, x2, /, *, upper=False, unit_diagonal=False) -> Array:
    """x with x1 · x = x2 for triangular x1, whose other triangle is not read. As torch.linalg.solve_triangular."""
    return _core.triangular_solve(x1, x2, upper, unit_diagonal)


def lstsq(x1, x2, /):
    """The x of least norm among those that minimise the norm of x1 · x - x2, for x1 (…, m, n) of full rank."""
    return _core.lstsq(x1, x2)


def inv(x, /) -> Array:
    """The inverse of square matrices."""
    return _core.inv(x)


def pinv(x, /, *, rtol=None) -> Array:
    """The pseudoinverse by singular values; those not above rtol times the greatest one count as 0. rtol None: max(m, n) times the
    dtype's epsilon. An array of tolerances, one for each matrix, is possible, too."""
    if isinstance(rtol, Array):
        u, s, vh = svd(x, full_matrices=False)
        return _pinv(u, s, vh, rtol)
    return _core.pinv(x, -1.0 if rtol is None else float(rtol))


def _pinv(u, s, vh, rtol):
    greatest = _core.max(s, (-1,), True)
    keep = _core.greater(s, _core.multiply(_core.expand_dims(rtol, -1), greatest))
    inverse = _core.where(keep, _core.divide(1.0, s), _core.full((), 0.0, s.dtype, s.device))
    scaled = _core.multiply(_adjoint(vh), _core.expand_dims(inverse, -2))
    return _core.matmul(scaled, _adjoint(u))


def _adjoint(x):
    return _core.conj(_core.transpose(x))


def det(x, /) -> Array:
    """The determinant of square matrices."""
    return _core.det(x)


def slogdet(x, /):
    """(sign, logabsdet): the sign of the determinant (of a complex one its direction), and the natural logarithm of its magnitude; 0 and
    -inf for a singular matrix."""
    return SlogdetResult(*_core.slogdet(x))


def matrix_rank(x, /, *, rtol=None) -> Array:
    """How many singular values of each matrix are above rtol times its greatest one, as int64. rtol None: max(m, n) times the dtype's
    epsilon. An array of tolerances, one for each matrix, is possible, too."""
    if not isinstance(rtol, Array):
        return _core.matrix_rank(x, -1.0 if rtol is None else float(rtol))
    s = svdvals(x)
    if not s.shape[-1]:
        return _core.full(s.shape[:-1], 0, _dtypes.int64, x.device)
    limit = _core.multiply(_core.max(s, (-1,), True), _core.expand_dims(rtol, -1))
    return _core.count_nonzero(_core.greater(s, limit), (-1,), False)


def matrix_power(x, n, /) -> Array:
    """Square matrices to an integral power, by repeated squaring; a negative one is that of the inverse."""
    n = n.__index__()
    if n < 0:
        x, n = inv(x), -n
    return _core.matrix_power(x, n)


# ---- norms ----

_NORMS: dict = {"fro": "fro", "nuc": "nuc", 1: "1", -1: "-1", 2: "2", -2: "-2", _infinity: "inf", -_infinity: "-inf"}


def matrix_norm(x, /, *, keepdims=False, ord="fro") -> Array:
    """A norm of each matrix: "fro" the root of the sum of squares, "nuc" the sum of the singular values, 1 and inf the greatest sum of
    magnitudes of a column and of a row, 2 the greatest singular value; -1, -inf and -2 the least ones. Norms of an empty matrix are 0;
    ShapeError where there is nothing to choose the least one from."""
    if ord is None:
        ord = "fro"
    if ord not in _NORMS:
        raise ValueError(f"ord is one of {', '.join(repr(one) for one in _NORMS)}, not {ord!r}")
    return _core.matrix_norm(x, _NORMS[ord], keepdims)


def vector_norm(x, /, *, axis=None, keepdims=False, ord=2) -> Array:
    """sum(|x|^ord)^(1/ord) over an axis, a tuple of axes, or all elements as one vector: 2 is Euclid's norm, inf the greatest magnitude,
    -inf the least one, 0 the number of elements that are not 0."""
    axes = axes_of(axis, x)
    if not axes and axis is not None:
        return _core.abs(x) if ord else _core.cast(_core.not_equal(x, 0), _dtypes.real_of(x.dtype))
    return _core.vector_norm(x, axes, float(ord), keepdims)


# ---- products and parts ----


def outer(x1, x2, /) -> Array:
    """x1's elements times x2's: (m) by (n) is (m, n). ValueError for other ranks."""
    if array_given(x1).ndim != 1 or array_given(x2).ndim != 1:
        raise ValueError(f"outer() takes two vectors, not ranks {x1.ndim} and {x2.ndim}")
    return _core.outer(x1, x2)


def cross(x1, x2, /, *, axis=-1) -> Array:
    """The cross product along an axis with three elements in both; the other axes broadcast."""
    if axis >= 0:
        if array_given(x1).ndim != array_given(x2).ndim:
            raise ValueError("an axis of arrays with different ranks is counted from the end")
        axis -= x1.ndim
    return _core.cross(x1, x2, axis)


def kron(x1, x2, /) -> Array:
    """Kronecker's product: each element of x1 replaced by that element times x2."""
    return _core.kron(x1, x2)


def diagonal(x, /, *, offset=0) -> Array:
    """The diagonal of each matrix, as a last axis; `offset` above 0 is above the main diagonal. A view."""
    return _core.diagonal(x, offset)


def trace(x, /, *, offset=0, dtype=None) -> Array:
    """The sum of this diagonal of each matrix. dtype as for sum()."""
    from .statistical import sum

    return sum(_core.diagonal(x, offset), axis=-1, dtype=dtype)
