"""The extension `linalg` of the array API standard: decompositions, systems of linear equations, norms, products.

The last two axes are matrices, the axes before them batches. A matrix that cannot be factored poisons its results: looking at them
raises SingularError, which is a ValueError.
"""

import math as _math
from collections import namedtuple

from . import _core
from . import dtypes as _dtypes
from .linear_algebra import einsum, matmul, tensordot, vecdot  # noqa: F401
from .manipulation import axes_of

Array = _core.Array
matrix_transpose = _core.transpose

EigenResult = namedtuple("EigenResult", "eigenvalues eigenvectors")
QRResult = namedtuple("QRResult", "Q R")
SlogdetResult = namedtuple("SlogdetResult", "sign logabsdet")
SVDResult = namedtuple("SVDResult", "U S Vh")

_infinity = float("inf")


# ---- complex matrices, by real ones ----
#
# A complex number a + bi is the real matrix [[a, -b], [b, a]], so a complex matrix (m, n) is a real one (2m, 2n). Products, inverses,
# pseudoinverses and Cholesky factors of such matrices have the same form, and their eigenvalues and singular values are those of the complex
# matrix, each one twice. Of the two real vectors for such a value one stands for the complex vector, and _complex_basis() finds which.
# Factors that are made column by column enqueue a few operations for each column, and wait for nothing.


def _real_form(x):
    """(…, m, n) complex to (…, 2m, 2n) real, with a 2 by 2 block for each element."""
    m, n = x.shape[-2:]
    flat = _core.reshape(x, (_math.prod(x.shape[:-2]), m, n))  # so that two more axes do not exceed the highest rank
    real, imag = _core.real(flat), _core.imag(flat)
    blocks = _core.stack([_core.stack([real, _core.negative(imag)], -1), _core.stack([imag, real], -1)], -2)  # (…, m, n, 2, 2)
    return _core.reshape(_core.permute(blocks, (0, 1, 3, 2, 4)), x.shape[:-2] + (2 * m, 2 * n))


def _complex_form(x, dtype):
    """The reverse of _real_form()."""
    every = (None, None, 1)
    lead = (every,) * (x.ndim - 2)
    real = _core.slice(x, lead + ((0, None, 2), (0, None, 2)))
    imag = _core.slice(x, lead + ((1, None, 2), (0, None, 2)))
    return _core.add(_core.cast(real, dtype), _core.multiply(_core.cast(imag, dtype), 1j))


def _every_second(x):
    return _core.slice(x, ((None, None, 1),) * (x.ndim - 1) + ((0, None, 2),))


def _reflect(x):
    """(Q, R, signs): complex matrices x (…, m, n) as Q · R by Householder reflections, with Q (…, m, m), and the determinant of each of
    the min(m, n) reflections: -1, or 1 where a column was 0 and nothing had to be reflected. A few operations for each column."""
    m, n = x.shape[-2:]
    part = _dtypes.real_of(x.dtype)
    q = _core.broadcast_to(_core.eye(dtype=x.dtype, rows=m, columns=m, device=x.device), x.shape[:-2] + (m, m))
    every, signs, r = ((None, None, 1),) * (x.ndim - 2), [], x
    rows = _core.reshape(_core.arange(0, m, 1, _dtypes.int64, x.device), (m, 1))
    zero, one = _core.full((), 0.0, part, x.device), _core.full((), 1.0, part, x.device)
    for k in range(min(m, n)):
        column = _core.slice(r, every + ((None, None, 1), (k, k + 1, 1)))
        column = _core.where(_core.less(rows, k), _core.cast(zero, x.dtype), column)
        length = _core.vector_norm(_core.abs(column), (-2,), 2.0, True)
        moves = _core.greater(length, 0.0)
        unit = _core.divide(column, _core.where(moves, length, one))
        first = _core.slice(unit, every + ((k, k + 1, 1), (None, None, 1)))
        phase = _core.where(_core.equal(first, 0), _core.cast(one, x.dtype), _core.sign(first))
        v = _core.where(_core.equal(rows, k), _core.add(first, phase), unit)
        square = _core.sum(_core.square(_core.abs(v)), (-2,), True)  # 2 to 4
        factor = _core.where(moves, _core.divide(2.0, square), zero)
        adjoint = _core.conj(_core.transpose(v))
        scaled = _core.multiply(v, factor)
        r = _core.subtract(r, _core.matmul(scaled, _core.matmul(adjoint, r)))
        q = _core.subtract(q, _core.matmul(_core.matmul(q, scaled), adjoint))
        signs.append(_core.where(_core.squeeze(moves, (-2, -1)), _core.negative(one), one))
    return q, _core.triu(r), signs


def _complex_basis(vectors, dtype):
    """Unitary matrices (…, n, n) from orthonormal real vectors (…, 2n, 2n) in the columns, in the order of their values, each of which
    comes twice as often as for the complex matrix.

    A column becomes a complex vector by its pairs of rows. It is taken if a part of it, more than rounding errors, is orthogonal to those
    that were taken before; of equal values that is half of them. That enough are found follows from a sum: what is left of all columns of a
    value, squared, adds up to twice the number of vectors that are missing.
    """
    n = vectors.shape[-1] // 2
    every, whole = ((None, None, 1),) * (vectors.ndim - 2), (None, None, 1)
    real = _core.slice(vectors, every + ((0, None, 2), whole))
    imag = _core.slice(vectors, every + ((1, None, 2), whole))
    columns = _core.add(_core.cast(real, dtype), _core.multiply(_core.cast(imag, dtype), 1j))
    basis = _core.full(columns.shape[:-1] + (n,), 0.0, dtype, vectors.device)
    taken = _core.full(columns.shape[:-2] + (1, 1), 0, _dtypes.int64, vectors.device)
    places = _core.arange(0, n, 1, _dtypes.int64, vectors.device)
    for j in range(2 * n):
        left = _core.slice(columns, every + (whole, (j, j + 1, 1)))
        for _ in range(2):  # twice, so that the result is orthogonal to the last bits
            inside = _core.matmul(_core.conj(_core.transpose(basis)), left)
            left = _core.subtract(left, _core.matmul(basis, inside))
        length = _core.vector_norm(_core.abs(left), (-2,), 2.0, True)
        wanted = _core.greater(length, 0.01)
        unit = _core.divide(left, _core.where(wanted, length, _core.full((), 1.0, length.dtype, length.device)))
        put = _core.logical_and(_core.equal(places, taken), wanted)  # (…, 1, n): the next free column
        basis = _core.where(put, unit, basis)
        taken = _core.add(taken, _core.cast(wanted, _dtypes.int64))
    return basis


def _complex_svd(x, full_matrices):
    """U, S and Vᴴ of complex matrices (…, m, n), m >= n. V is known up to phases from the real form; the columns of x · V are orthogonal,
    so that their QR decomposition has a diagonal R, and Q is U up to phases, also where singular values are 0."""
    m, n = x.shape[-2:]
    _, s, vh = _core.svd(_real_form(x), False)
    s = _every_second(s)
    v = _complex_basis(_core.transpose(vh), x.dtype)
    q, r, _ = _reflect(_core.matmul(x, v))
    phase = _core.sign(_core.diagonal(r, 0))
    phase = _core.where(_core.equal(phase, 0), _core.full((), 1.0, x.dtype, x.device), phase)
    if full_matrices and m > n:
        rest = _core.full(phase.shape[:-1] + (m - n,), 1.0, x.dtype, x.device)
        phase = _core.concat([phase, rest], -1)
    else:
        q = _core.slice(q, ((None, None, 1),) * (q.ndim - 1) + ((None, n, 1),))
    return _core.multiply(q, _core.expand_dims(phase, -2)), s, _adjoint(v)


def _adjoint(x):
    return _core.conj(_core.transpose(x))


def _complex_factors(x):
    """The diagonal of R of square complex matrices, and the product of the reflections' determinants."""
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        raise ValueError(f"a determinant is of square matrices, not of the shape {x.shape}")
    _, r, signs = _reflect(x)
    sign = _core.full(x.shape[:-2], 1.0, _dtypes.real_of(x.dtype), x.device)
    for one in signs:
        sign = _core.multiply(sign, one)
    return _core.diagonal(r, 0), sign


# ---- decompositions ----


def cholesky(x, /, *, upper=False):
    """The lower triangular L with x = L · Lᴴ of a Hermitian positive definite matrix, or with upper=True the upper triangular U with
    x = Uᴴ · U. Only that triangle is read, of complex matrices the lower one."""
    if _dtypes.is_complex(x.dtype):
        factor = _complex_form(_core.cholesky(_real_form(x), False), x.dtype)
        return _core.conj(_core.transpose(factor)) if upper else factor
    return _core.cholesky(x, upper)


def qr(x, /, *, mode="reduced"):
    """(Q, R) with x = Q · R: Q (…, m, k) with orthonormal columns, and R (…, k, n) upper triangular; k is min(m, n), or m if the mode is
    "complete"."""
    if mode not in ("reduced", "complete"):
        raise ValueError(f'mode is "reduced" or "complete", not {mode!r}')
    if _dtypes.is_complex(x.dtype):
        q, r, _ = _reflect(x)
        if mode == "reduced":
            k = min(x.shape[-2:])
            every = ((None, None, 1),) * (x.ndim - 2)
            q = _core.slice(q, every + ((None, None, 1), (None, k, 1)))
            r = _core.slice(r, every + ((None, k, 1), (None, None, 1)))
        return QRResult(q, r)
    return QRResult(*_core.qr(x, mode))


def lu(x, /):
    """(P, L, U) with x = P · L · U: Gaussian elimination with partial pivoting. As torch.linalg.lu."""
    return tuple(_core.lu(x))


def eigh(x, /):
    """Eigenvalues in ascending order, and eigenvectors in the columns of a matrix, of symmetric (complex: Hermitian) matrices, whose lower
    triangle is read."""
    if _dtypes.is_complex(x.dtype):
        values, vectors = _core.eigh(_real_form(x))
        return EigenResult(_every_second(values), _complex_basis(vectors, x.dtype))
    return EigenResult(*_core.eigh(x))


def eigvalsh(x, /):
    """The eigenvalues of symmetric (complex: Hermitian) matrices in ascending order."""
    if _dtypes.is_complex(x.dtype):
        return _every_second(_core.eigvalsh(_real_form(x)))
    return _core.eigvalsh(x)


def svd(x, /, *, full_matrices=True):
    """(U, S, Vh) with x = U · diag(S) · Vh: singular values S in descending order, orthonormal columns of U and rows of Vh; with
    full_matrices=True U and Vh are square."""
    if not _dtypes.is_complex(x.dtype):
        return SVDResult(*_core.svd(x, full_matrices))
    if x.shape[-2] >= x.shape[-1]:
        return SVDResult(*_complex_svd(x, full_matrices))
    u, s, vh = _complex_svd(_adjoint(x), full_matrices)
    return SVDResult(_adjoint(vh), s, _adjoint(u))


def svdvals(x, /):
    """The singular values in descending order."""
    if _dtypes.is_complex(x.dtype):
        return _every_second(_core.svdvals(_real_form(x)))
    return _core.svdvals(x)


# ---- equations ----


def solve(x1, x2, /):
    """x with x1 · x = x2, for square matrices x1 (…, n, n); x2 is one vector (n), or matrices (…, n, k). Batches broadcast."""
    dtype = _dtypes.promote(x1.dtype, x2.dtype)
    if _dtypes.is_complex(dtype):
        x1, x2 = _core.cast(x1, dtype), _core.cast(x2, dtype)
        right = _core.expand_dims(x2, -1) if x2.ndim == 1 else x2
        x = _complex_form(_core.solve(_real_form(x1), _real_form(right)), dtype)
        return _core.squeeze(x, (x.ndim - 1,)) if x2.ndim == 1 else x
    return _core.solve(x1, x2)


def triangular_solve(x1, x2, /, *, upper=False, unit_diagonal=False):
    """x with x1 · x = x2 for triangular x1, whose other triangle is not read. As torch.linalg.solve_triangular."""
    return _core.triangular_solve(x1, x2, upper, unit_diagonal)


def lstsq(x1, x2, /):
    """The x of least norm among those that minimise the norm of x1 · x - x2, for x1 (…, m, n) of full rank."""
    return _core.lstsq(x1, x2)


def inv(x, /):
    """The inverse of square matrices."""
    if _dtypes.is_complex(x.dtype):
        return _complex_form(_core.inv(_real_form(x)), x.dtype)
    return _core.inv(x)


def pinv(x, /, *, rtol=None):
    """The pseudoinverse by singular values; those not above rtol times the greatest one count as 0. rtol None: max(m, n) times the
    dtype's epsilon. An array of tolerances, one for each matrix, is possible, too."""
    if _dtypes.is_complex(x.dtype):
        if rtol is None:
            rtol = max(x.shape[-2:]) * _dtypes.finfo(x.dtype).eps
        return _complex_form(pinv(_real_form(x), rtol=rtol), x.dtype)
    if isinstance(rtol, Array):
        u, s, vh = svd(x, full_matrices=False)
        return _pinv(u, s, vh, rtol)
    return _core.pinv(x, -1.0 if rtol is None else float(rtol))


def _pinv(u, s, vh, rtol):
    greatest = _core.max(s, (-1,), True)
    keep = _core.greater(s, _core.multiply(_core.expand_dims(rtol, -1), greatest))
    inverse = _core.where(keep, _core.divide(1.0, s), _core.full((), 0.0, s.dtype, s.device))
    scaled = _core.multiply(_core.transpose(vh), _core.expand_dims(inverse, -2))
    return _core.matmul(scaled, _core.transpose(u))


def det(x, /):
    """The determinant of square matrices."""
    if _dtypes.is_complex(x.dtype):
        diagonal, sign = _complex_factors(x)
        return _core.multiply(_core.prod(diagonal, (-1,), False), sign)
    return _core.det(x)


def slogdet(x, /):
    """(sign, logabsdet): the sign of the determinant (of a complex one its direction), and the natural logarithm of its magnitude; 0 and
    -inf for a singular matrix."""
    if _dtypes.is_complex(x.dtype):
        diagonal, sign = _complex_factors(x)
        sign = _core.multiply(_core.prod(_core.sign(diagonal), (-1,), False), sign)
        return SlogdetResult(sign, _core.sum(_core.log(_core.abs(diagonal)), (-1,), False))
    return SlogdetResult(*_core.slogdet(x))


def matrix_rank(x, /, *, rtol=None):
    """How many singular values of each matrix are above rtol times its greatest one, as int64. rtol None: max(m, n) times the dtype's
    epsilon. An array of tolerances, one for each matrix, is possible, too."""
    if not isinstance(rtol, Array) and not _dtypes.is_complex(x.dtype):
        return _core.matrix_rank(x, -1.0 if rtol is None else float(rtol))
    s = svdvals(x)
    if rtol is None:
        rtol = max(x.shape[-2:]) * _dtypes.finfo(s.dtype).eps
    if not s.shape[-1]:
        return _core.full(s.shape[:-1], 0, _dtypes.int64, x.device)
    limit = _core.multiply(_core.max(s, (-1,), True), _core.expand_dims(rtol, -1) if isinstance(rtol, Array) else rtol)
    return _core.count_nonzero(_core.greater(s, limit), (-1,), False)


def matrix_power(x, n, /):
    """Square matrices to an integral power, by repeated squaring; a negative one is that of the inverse."""
    n = n.__index__()
    if n < 0:
        x, n = inv(x), -n
    return _core.matrix_power(x, n)


# ---- norms ----

_NORMS = {"fro": "fro", "nuc": "nuc", 1: "1", -1: "-1", 2: "2", -2: "-2", _infinity: "inf", -_infinity: "-inf"}


def matrix_norm(x, /, *, keepdims=False, ord="fro"):
    """A norm of each matrix: "fro" the root of the sum of squares, "nuc" the sum of the singular values, 1 and inf the greatest sum of
    magnitudes of a column and of a row, 2 the greatest singular value; -1, -inf and -2 the least ones."""
    if ord is None:
        ord = "fro"
    if ord not in _NORMS:
        raise ValueError(f"ord is one of {', '.join(repr(one) for one in _NORMS)}, not {ord!r}")
    if not _dtypes.is_complex(x.dtype):
        return _core.matrix_norm(x, _NORMS[ord], keepdims)
    if ord not in ("nuc", 2, -2):
        return _core.matrix_norm(_core.abs(x), _NORMS[ord], keepdims)
    operation = {"nuc": _core.sum, 2: _core.max, -2: _core.min}[ord]
    result = operation(svdvals(x), (-1,), keepdims)
    return _core.expand_dims(result, -1) if keepdims else result


def vector_norm(x, /, *, axis=None, keepdims=False, ord=2):
    """sum(|x|^ord)^(1/ord) over an axis, a tuple of axes, or all elements as one vector: 2 is Euclid's norm, inf the greatest magnitude,
    -inf the least one, 0 the number of elements that are not 0."""
    if _dtypes.is_complex(x.dtype):
        x = _core.abs(x)
    axes = axes_of(axis, x.ndim)
    if not axes and axis is not None:
        return _core.abs(x) if ord else _core.cast(_core.not_equal(x, 0), x.dtype)
    return _core.vector_norm(x, axes, float(ord), keepdims)


# ---- products and parts ----


def outer(x1, x2, /):
    """x1's elements times x2's: (m) by (n) is (m, n). ValueError for other ranks."""
    if x1.ndim != 1 or x2.ndim != 1:
        raise ValueError(f"outer() takes two vectors, not ranks {x1.ndim} and {x2.ndim}")
    return _core.outer(x1, x2)


def cross(x1, x2, /, *, axis=-1):
    """The cross product along an axis with three elements in both; the other axes broadcast."""
    if axis >= 0:
        if x1.ndim != x2.ndim:
            raise ValueError("an axis of arrays with different ranks is counted from the end")
        axis -= x1.ndim
    return _core.cross(x1, x2, axis)


def kron(x1, x2, /):
    """Kronecker's product: each element of x1 replaced by that element times x2."""
    return _core.kron(x1, x2)


def diagonal(x, /, *, offset=0):
    """The diagonal of each matrix, as a last axis; `offset` above 0 is above the main diagonal. A view."""
    return _core.diagonal(x, offset)


def trace(x, /, *, offset=0, dtype=None):
    """The sum of this diagonal of each matrix. dtype as for sum()."""
    from .statistical import sum

    return sum(_core.diagonal(x, offset), axis=-1, dtype=dtype)
