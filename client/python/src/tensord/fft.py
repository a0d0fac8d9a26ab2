"""The extension `fft` of the array API standard: discrete Fourier transforms.

`norm` says which direction is divided: "backward" the inverse one by n, "forward" the other one by n, "ortho" both by √n. Arrays of
float32 and complex64 are computed in float32, those of float64 and complex128 in float64.
"""

from . import _core
from . import dtypes as _dtypes
from .manipulation import array_given, axes_of, axis_of

Array = _core.Array


def _length(n):
    if n is None:
        return 0
    if n < 1:
        raise ValueError(f"a transform has 1 number or more, not {n}")
    return n


def _norm(norm):
    if norm not in ("backward", "ortho", "forward"):
        raise ValueError(f'norm is "backward", "ortho" or "forward", not {norm!r}')
    return norm


def _one(operation, x, n, axis, norm):
    return operation(x, _length(n), axis_of(axis, x), _norm(norm))


def _several(operation, x, s, axes, norm):
    """Axes and sizes for a transform of several axes: `s` without `axes` names the last ones."""
    if axes is None:
        axes = tuple(range(array_given(x).ndim)) if s is None else tuple(range(x.ndim - len(s), x.ndim))
    axes = axes_of(tuple(axes), x)
    sizes = (0,) * len(axes) if s is None else tuple(x.shape[axis] if n == -1 else _length(n) for n, axis in zip(s, axes))
    if len(sizes) != len(axes):
        raise ValueError(f"{len(sizes)} lengths and {len(axes)} axes: one for each is needed")
    if not axes:
        raise ValueError("a transform needs an axis at least")
    return operation(x, axes, sizes, _norm(norm))


def fft(x, /, *, n=None, axis=-1, norm="backward") -> Array:
    """The transform of complex (or real) numbers along an axis, which is cut, or filled up with zeros, to n elements."""
    return _one(_core.fft, x, n, axis, norm)


def ifft(x, /, *, n=None, axis=-1, norm="backward") -> Array:
    """The inverse of fft()."""
    return _one(_core.ifft, x, n, axis, norm)


def rfft(x, /, *, n=None, axis=-1, norm="backward") -> Array:
    """The transform of real numbers: elements 0 to n/2, of which the others would be the conjugates."""
    return _one(_core.rfft, x, n, axis, norm)


def irfft(x, /, *, n=None, axis=-1, norm="backward") -> Array:
    """The inverse of rfft(): n real numbers; n None stands for 2 · (extent - 1)."""
    return _one(_core.irfft, _complex(x), n, axis, norm)


def hfft(x, /, *, n=None, axis=-1, norm="backward") -> Array:
    """The transform of a Hermitian signal, of which x has elements 0 to n/2: n real numbers; n None stands for 2 · (extent - 1)."""
    return _one(_core.hfft, _complex(x), n, axis, norm)


def ihfft(x, /, *, n=None, axis=-1, norm="backward") -> Array:
    """The inverse of hfft(): elements 0 to n/2."""
    return _one(_core.ihfft, x, n, axis, norm)


def _complex(x):
    return x if _dtypes.is_complex(array_given(x).dtype) else _core.cast(x, _dtypes.complex_of(x.dtype))


def fftn(x, /, *, s=None, axes=None, norm="backward") -> Array:
    """fft() along several axes, or all of them; `s` has a length for each."""
    return _several(_core.fftn, x, s, axes, norm)


def ifftn(x, /, *, s=None, axes=None, norm="backward") -> Array:
    """The inverse of fftn()."""
    return _several(_core.ifftn, x, s, axes, norm)


def rfftn(x, /, *, s=None, axes=None, norm="backward") -> Array:
    """fftn() of real numbers; the last one of the axes is halved, as by rfft()."""
    return _several(_core.rfftn, x, s, axes, norm)


def irfftn(x, /, *, s=None, axes=None, norm="backward") -> Array:
    """The inverse of rfftn()."""
    return _several(_core.irfftn, _complex(x), s, axes, norm)


def _frequency_dtype(dtype):
    dtype = _dtypes.dtype_given(dtype)
    if dtype is None:
        return _dtypes.float32
    if not _dtypes.is_float(dtype):
        raise ValueError(f"frequencies are floats, not {dtype.name}")
    return dtype


def fftfreq(n, /, *, d=1.0, dtype=None, device=None) -> Array:
    """The frequencies of fft()'s elements, for n numbers that are `d` apart; float32 by default."""
    return _core.fftfreq(dtype=_frequency_dtype(dtype), n=n, spacing=float(d), device=device)


def rfftfreq(n, /, *, d=1.0, dtype=None, device=None) -> Array:
    """The frequencies of rfft()'s elements."""
    return _core.rfftfreq(dtype=_frequency_dtype(dtype), n=n, spacing=float(d), device=device)


def fftshift(x, /, *, axes=None) -> Array:
    """x with frequency 0 in the middle of these axes (None: all), where it was their first element."""
    axes = axes_of(axes, x)
    return _core.fftshift(x, axes) if axes else x


def ifftshift(x, /, *, axes=None) -> Array:
    """The inverse of fftshift()."""
    axes = axes_of(axes, x)
    return _core.ifftshift(x, axes) if axes else x
