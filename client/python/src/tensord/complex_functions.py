"""Functions of complex numbers that the daemon computes for real ones alone: made of real operations on both parts.

Special values are those of the array API standard, which follows C's Annex G. Numbers of complex64 are computed in float64. Formulas
are from W. Kahan: Branch Cuts for Complex Elementary Functions, 1987, unless something else is said.
"""

from . import _core
from . import dtypes as _dtypes

_infinity, _nan, _pi = float("inf"), float("nan"), 3.141592653589793
_log_2, _log_10 = 0.6931471805599453, 2.302585092994046
_where, _isfinite, _isinf, _isnan = _core.where, _core.isfinite, _core.isinf, _core.isnan
_and, _or, _not, _copysign = _core.logical_and, _core.logical_or, _core.logical_not, _core.copysign


def _number(value, like):
    return _core.full((), value, like.dtype, like.device)


def _parts(x):
    """The real and imaginary part in float64."""
    real, imag = _core.real(x), _core.imag(x)
    if x.dtype is _dtypes.complex64:
        return _core.cast(real, _dtypes.float64), _core.cast(imag, _dtypes.float64)
    return real, imag


def combine(real, imag, dtype):
    """The complex number real + imag·i, exactly: also where a part is infinite, not a number, or -0.

    A sum real + imag · 1j would turn infinities into NaN, and lose the signs of zeros. So magnitudes are added, infinite and NaN ones as
    constants; then conj(z) changes the sign of the imaginary part, and -conj(z) that of the real one.
    """
    part = _dtypes.real_of(dtype)
    if real.dtype is not part:
        real, imag = _core.cast(real, part), _core.cast(imag, part)
    height = _core.abs(imag)
    finite = _isfinite(height)
    upright = _core.multiply(_core.cast(_where(finite, height, _number(0.0, height)), dtype), 1j)
    constant = _where(_isnan(height), _core.full((), complex(0, _nan), dtype, real.device), _core.full((), complex(0, _infinity), dtype, real.device))
    z = _core.add(_core.cast(_core.abs(real), dtype), _where(finite, upright, constant))
    z = _where(_core.signbit(imag), _core.conj(z), z)
    return _where(_core.signbit(real), _core.negative(_core.conj(z)), z)


def _times_i(real, imag):
    """The parts of (real + imag·i) · i."""
    return _core.negative(imag), real


def _by_minus_i(real, imag):
    """The parts of (real + imag·i) · -i."""
    return imag, _core.negative(real)


# ---- hyperbolic functions, and by them the trigonometric ones ----


def sinh(x, y):
    real = _core.multiply(_core.sinh(x), _core.cos(y))
    real = _where(_and(_or(_core.equal(x, 0.0), _isinf(x)), _not(_isfinite(y))), x, real)
    real = _where(_core.equal(y, 0.0), _core.sinh(x), real)
    imag = _where(_core.equal(y, 0.0), y, _core.multiply(_core.cosh(x), _core.sin(y)))
    return real, imag


def cosh(x, y):
    real = _core.multiply(_core.cosh(x), _core.cos(y))
    real = _where(_and(_isinf(x), _not(_isfinite(y))), _number(_infinity, x), real)
    flat = _or(_and(_core.equal(x, 0.0), _not(_isfinite(y))), _core.equal(y, 0.0))
    zero = _core.multiply(_copysign(_number(0.0, x), x), _copysign(_number(1.0, y), y))
    return real, _where(flat, zero, _core.multiply(_core.sinh(x), _core.sin(y)))


def tanh(x, y):
    tangent, sine = _core.tan(y), _core.sinh(x)
    beta = _core.add(_core.square(tangent), 1.0)
    below = _core.add(_core.multiply(beta, _core.square(sine)), 1.0)
    real = _core.divide(_core.multiply(_core.multiply(beta, _core.sqrt(_core.add(_core.square(sine), 1.0))), sine), below)
    imag = _core.divide(tangent, below)
    # Far from the imaginary axis: 1, and 4 · sin y · cos y · e^(-2|x|).
    far = _core.greater(_core.abs(x), 20.0)
    one = _copysign(_number(1.0, x), x)
    little = _core.multiply(_core.multiply(_core.sin(_core.multiply(y, 2.0)), 2.0), _core.exp(_core.multiply(_core.abs(x), -2.0)))
    little = _where(_isinf(x), _copysign(_number(0.0, y), y), little)
    settled = _and(far, _or(_isfinite(y), _isinf(x)))
    real, imag = _where(settled, one, real), _where(settled, little, imag)
    imag = _where(_core.equal(y, 0.0), y, imag)
    return _where(_core.equal(x, 0.0), x, real), imag


def sin(x, y):
    return _by_minus_i(*sinh(*_times_i(x, y)))


def cos(x, y):
    return cosh(*_times_i(x, y))


def tan(x, y):
    return _by_minus_i(*tanh(*_times_i(x, y)))


# ---- inverse functions ----


def _sqrt(x, y):
    """The root of finite numbers, whose real part is not negative."""
    length = _core.hypot(x, y)
    greater = _core.sqrt(_core.multiply(_core.add(length, _core.abs(x)), 0.5))
    lesser = _core.divide(_core.abs(y), _core.multiply(greater, 2.0))
    lesser = _where(_core.equal(greater, 0.0), greater, lesser)
    right = _core.greater_equal(x, 0.0)
    return _where(right, greater, lesser), _copysign(_where(right, lesser, greater), y)


def acos(x, y):
    a_real, a_imag = _sqrt(_core.subtract(1.0, x), _core.negative(y))
    b_real, b_imag = _sqrt(_core.add(x, 1.0), y)
    real = _core.multiply(_core.atan2(a_real, b_real), 2.0)
    # the imaginary part of conj(√(1 + z)) · √(1 - z)
    imag = _core.asinh(_core.subtract(_core.multiply(b_real, a_imag), _core.multiply(b_imag, a_real)))
    imag = _copysign(imag, _core.negative(y))
    # Infinite parts: the angle of z, whose magnitude is infinite.
    endless = _or(_isinf(x), _isinf(y))
    real = _where(endless, _core.abs(_core.atan2(y, x)), real)
    imag = _where(endless, _copysign(_number(_infinity, y), _core.negative(y)), imag)
    half = _and(_core.equal(x, 0.0), _isnan(y))
    real = _where(half, _number(_pi / 2, x), real)
    real = _where(_and(_isinf(x), _isnan(y)), _number(_nan, x), real)
    # A number that is not real loses both parts to a NaN in one, unless the other one is infinite.
    lost = _and(_or(_isnan(x), _isnan(y)), _not(_or(endless, half)))
    return _where(lost, _number(_nan, x), real), _where(_or(lost, half), _number(_nan, x), imag)


def acosh(x, y):
    real, imag = acos(x, y)
    # acosh(z) is acos(z) times i or -i, the one whose real part is not negative.
    angle = _where(_and(_isnan(y), _not(_isinf(x))), real, _copysign(real, y))
    return _core.abs(imag), angle


def asinh(x, y):
    a_real, a_imag = _sqrt(_core.add(y, 1.0), _core.negative(x))  # √(1 - iz)
    b_real, b_imag = _sqrt(_core.subtract(1.0, y), x)  # √(1 + iz)
    real = _core.asinh(_core.subtract(_core.multiply(a_real, b_imag), _core.multiply(a_imag, b_real)))
    imag = _core.atan2(y, _core.subtract(_core.multiply(a_real, b_real), _core.multiply(a_imag, b_imag)))
    real = _copysign(real, x)
    endless = _or(_isinf(x), _isinf(y))
    real = _where(endless, _copysign(_number(_infinity, x), x), real)
    imag = _where(endless, _copysign(_core.atan2(_core.abs(y), _core.abs(x)), y), imag)
    imag = _where(_and(_core.equal(y, 0.0), _isnan(x)), y, imag)
    lost = _and(_or(_isnan(x), _isnan(y)), _not(endless))
    real = _where(lost, _number(_nan, x), real)
    return real, _where(_and(lost, _core.not_equal(y, 0.0)), _number(_nan, x), imag)


def atanh(x, y):
    big = _core.greater(_core.maximum(_core.abs(x), _core.abs(y)), 1e150)
    u, v = _where(big, _number(2.0, x), x), _where(big, _number(2.0, y), y)
    real = _core.multiply(_core.log1p(_core.divide(_core.multiply(_core.abs(u), 4.0), _far_square(u, v))), 0.25)
    real = _copysign(real, x)
    imag = _core.multiply(
        _core.atan2(_core.multiply(v, 2.0), _core.subtract(_core.multiply(_core.subtract(1.0, u), _core.add(u, 1.0)), _core.square(v))), 0.5
    )
    # Far away: the real part is that of 1/z, and the imaginary part half a turn.
    length = _core.hypot(x, y)
    near_zero = _copysign(_core.divide(_core.divide(_core.abs(x), length), length), x)
    near_zero = _where(_or(_isinf(x), _isinf(y)), _copysign(_number(0.0, x), x), near_zero)
    real, imag = _where(big, near_zero, real), _where(big, _copysign(_number(_pi / 2, y), y), imag)
    # NaN in one part.
    imag = _where(_and(_isnan(x), _isinf(y)), _copysign(_number(_pi / 2, y), y), imag)
    real = _where(_and(_isnan(x), _isinf(y)), _number(0.0, x), real)
    imag = _where(_or(_isnan(y), _and(_isnan(x), _not(_isinf(y)))), _number(_nan, x), imag)
    real = _where(_and(_isnan(y), _core.equal(x, 0.0)), x, real)
    real = _where(_and(_isnan(y), _isinf(x)), _copysign(_number(0.0, x), x), real)
    real = _where(_and(_isnan(y), _and(_isfinite(x), _core.not_equal(x, 0.0))), _number(_nan, x), real)
    return real, imag


def _far_square(x, y):
    """(1 - |x|)² + y²: atanh is odd, so that only numbers right of the imaginary axis are computed."""
    return _core.add(_core.square(_core.subtract(1.0, _core.abs(x))), _core.square(y))


def asin(x, y):
    return _by_minus_i(*asinh(*_times_i(x, y)))


def atan(x, y):
    return _by_minus_i(*atanh(*_times_i(x, y)))


# ---- exponentials and logarithms ----


def expm1(x, y):
    half = _core.sin(_core.multiply(y, 0.5))
    real = _core.subtract(_core.multiply(_core.expm1(x), _core.cos(y)), _core.multiply(_core.square(half), 2.0))
    imag = _core.multiply(_core.exp(x), _core.sin(y))
    wild = _not(_isfinite(y))
    down, up = _and(_isinf(x), _core.less(x, 0.0)), _and(_isinf(x), _core.greater(x, 0.0))
    real = _where(down, _number(-1.0, x), real)
    imag = _where(_and(down, wild), _number(0.0, x), imag)
    real = _where(_and(up, wild), x, real)
    flat = _core.equal(y, 0.0)
    return _where(flat, _core.expm1(x), real), _where(flat, y, imag)


def log1p(x, y):
    length = _core.hypot(_core.add(x, 1.0), y)
    near = _core.multiply(_core.log1p(_core.add(_core.multiply(x, _core.add(x, 2.0)), _core.square(y))), 0.5)
    small = _and(_core.less(_core.abs(x), 0.5), _core.less(_core.abs(y), 0.5))
    return _where(small, near, _core.log(length)), _core.atan2(y, _core.add(x, 1.0))


def _logarithm(x, y, scale):
    real = _core.divide(_core.log(_core.hypot(x, y)), scale)
    return real, _core.divide(_core.atan2(y, x), scale)


def log2(x, y):
    return _logarithm(x, y, _log_2)


def log10(x, y):
    return _logarithm(x, y, _log_10)


def round(x, y):
    return _core.round(x), _core.round(y)


# Functions of both parts, by the names of the standard.
FUNCTIONS = {
    function.__name__: function
    for function in (acos, acosh, asin, asinh, atan, atanh, cos, cosh, expm1, log10, log1p, log2, round, sin, sinh, tan, tanh)
}


def compute(name, x):
    """The function of this name of a complex array."""
    return combine(*FUNCTIONS[name](*_parts(x)), x.dtype)
