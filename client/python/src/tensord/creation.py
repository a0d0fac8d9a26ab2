"""Making arrays: from host data, from attributes, after the model of other arrays.

Every function takes `device=`: a device, its name ("cuda:0"), or None for the current one. None of them waits for the device, with
one exception: asarray() of a list that contains arrays fetches these.
"""

from . import _core
from . import dtypes as _dtypes
from . import hostdata as _hostdata
from .dtypes import dtype_given as _dtype_given
from .manipulation import array_given, shape_of, share

Array = _core.Array


def _from_array(x, dtype, device, copy):
    changes = (dtype is not None and dtype is not x.dtype) or (device is not None and _core.device(device) is not x.device)
    if not changes:
        return share(x) if copy else x
    if copy is False:
        raise ValueError("copy=False: another dtype or device needs a copy")
    if device is not None and _core.device(device) is not x.device:
        x = _core.copy_to(x, _core.device(device))
    return astype(x, dtype, copy=False) if dtype is not None else x


def _from_list(obj, dtype, device):
    if dtype is None:
        kinds = [item.dtype if isinstance(item, Array) else _hostdata.scalar_of(item) for item in _hostdata.items(obj)]
        dtype = _dtypes.result_type(*kinds) if kinds else None
    return _core.asarray(_hostdata.plain(obj), dtype, device)


def asarray(obj, /, *, dtype=None, device=None, copy=None) -> Array:
    """An array from an array, a scalar, nested lists of scalars, an object with a buffer (a NumPy array, bytes, array.array), or
    an object with `__dlpack__`.

    dtype   None: the array's or buffer's own; of scalars bool, int64, float32 or complex64
    device  None: the array's own, else the current device
    copy    True: later assignments to `obj` do not show in the result. False: ValueError unless `obj` is an array that needs no
            change, which is then returned itself. None: copy where it must be

    Host data is copied before the call returns; above 256 KiB the call waits until the daemon has it. ValueError for ragged lists,
    OverflowError for integers that the dtype does not hold, TypeError for anything else.
    """
    dtype = _dtype_given(dtype)
    if isinstance(obj, Array):
        return _from_array(obj, dtype, device, copy)
    if copy is False:
        raise ValueError("copy=False: data of the host must be copied to the device")
    if isinstance(obj, range):
        obj = list(obj)
    if isinstance(obj, (list, tuple)) and not _hostdata.is_plain(obj):
        return _from_list(obj, dtype, device)
    return _core.asarray(obj, dtype, device)


def from_dlpack(x, /, *, device=None, copy=None) -> Array:
    """An array from an object with `__dlpack__`, whose elements are in host memory, or a tensord array.

    The elements are copied to the device; copy=False: BufferError unless `x` is a tensord array that is there already, which is then
    returned itself. `device` None stands for the array's own device, or the current one.
    """
    if isinstance(x, Array):
        try:
            return _from_array(x, None, device, copy)
        except ValueError as error:
            raise BufferError(str(error)) from None
    if copy is False:
        raise BufferError("copy=False: data of the host must be copied to the device")
    if not hasattr(x, "__dlpack__"):
        raise TypeError(f"from_dlpack() needs an object with __dlpack__, not {type(x).__name__}")
    return _core.asarray(x, None, device)


def astype(x, dtype, /, *, copy=True, device=None) -> Array:
    """x in another dtype.

    Floats become integers by truncation, saturated, NaN as 0. TypeError for a complex array and a real dtype: real(), imag() and
    abs() are for that. copy=False returns x itself if nothing changes.
    """
    array_given(x)
    dtype = _dtype_given(dtype)
    if dtype is None:
        raise TypeError("astype() needs a dtype")
    if device is not None and _core.device(device) is not x.device:
        x = _core.copy_to(x, _core.device(device))
        copy = False
    if dtype is x.dtype:
        return share(x) if copy else x
    if _dtypes.is_complex(x.dtype) and not _dtypes.is_complex(dtype) and dtype is not _dtypes.boolean:
        raise TypeError(f"{x.dtype.name} is not cast to {dtype.name}: real(), imag() or abs() say which number is meant")
    return _core.cast(x, dtype)


def full(shape, fill_value, *, dtype=None, device=None) -> Array:
    """An array in which every element is `fill_value`: a scalar, or an array of one element. dtype None: the value's default dtype,
    or the array's. OverflowError for an integer that the dtype does not hold."""
    dtype = _dtype_given(dtype)
    device = _core.device(device)
    shape = shape_of(shape)
    if isinstance(fill_value, Array):
        x = fill_value if dtype is None else astype(fill_value, dtype)
        return _core.copy(_core.broadcast_to(_core.copy_to(x, device), shape))
    fill_value = _hostdata.scalar_of(fill_value)
    if dtype is None:
        dtype = _dtypes.default_dtype(fill_value)
        if dtype is _dtypes.int64 and fill_value > _dtypes.iinfo(dtype).max:
            dtype = _dtypes.uint64
    elif dtype in _dtypes.FLOAT8:
        return _core.cast(full(shape, float(fill_value), dtype=_dtypes.float32, device=device), dtype)
    elif dtype is _dtypes.boolean:
        fill_value = bool(fill_value)
    elif isinstance(fill_value, complex):
        if not _dtypes.is_complex(dtype):
            raise TypeError(f"a complex number is no value of {dtype.name}")
    elif _dtypes.is_integer(dtype):
        fill_value = int(fill_value)
        limits = _dtypes.iinfo(dtype)
        if not limits.min <= fill_value <= limits.max:
            raise OverflowError(f"{fill_value} is no value of {dtype.name}: {limits.min} … {limits.max}")
    elif _dtypes.is_float(dtype):
        fill_value = float(fill_value)
    return _core.full(shape, fill_value, dtype, device)


def empty(shape, *, dtype=None, device=None) -> Array:
    """An array of this shape, float32 by default. Its elements are 0: device memory of others is never shown."""
    return zeros(shape, dtype=dtype, device=device)


def zeros(shape, *, dtype=None, device=None) -> Array:
    """An array of zeros, float32 by default."""
    return full(shape, 0, dtype=dtype or _dtypes.float32, device=device)


def ones(shape, *, dtype=None, device=None) -> Array:
    """An array of ones, float32 by default."""
    return full(shape, 1, dtype=dtype or _dtypes.float32, device=device)


def full_like(x, /, fill_value, *, dtype=None, device=None) -> Array:
    """full() with x's shape, and by default x's dtype and device."""
    array_given(x)
    return full(x.shape, fill_value, dtype=dtype or x.dtype, device=device or x.device)


def empty_like(x, /, *, dtype=None, device=None) -> Array:
    """empty() with x's shape, and by default x's dtype and device."""
    return full_like(x, 0, dtype=dtype, device=device)


def zeros_like(x, /, *, dtype=None, device=None) -> Array:
    """zeros() with x's shape, and by default x's dtype and device."""
    return full_like(x, 0, dtype=dtype, device=device)


def ones_like(x, /, *, dtype=None, device=None) -> Array:
    """ones() with x's shape, and by default x's dtype and device."""
    return full_like(x, 1, dtype=dtype, device=device)


def arange(start, /, stop=None, step=1, *, dtype=None, device=None) -> Array:
    """start, start + step, … below stop, or above it for a negative step; with one argument 0, 1, … below it. Rank 1.

    dtype None: int64 if all numbers are integers, else float32. Integers are exact over the whole range of int64 and uint64.
    """
    dtype = _dtype_given(dtype)
    if stop is None:
        start, stop = 0, start
    start, stop, step = (_hostdata.scalar_of(value) for value in (start, stop, step))
    if step == 0:
        raise ValueError("arange() needs a step other than 0")
    whole = not any(isinstance(value, float) for value in (start, stop, step))
    if dtype is None:
        dtype = _dtypes.int64 if whole else _dtypes.float32
    device = _core.device(device)
    if whole and _dtypes.is_integer(dtype):
        return _integers(range(start, stop, step), dtype, device)
    if _dtypes.is_float(dtype):
        return _core.arange(float(start), float(stop), float(step), dtype, device)
    return astype(_core.arange(float(start), float(stop), float(step), _dtypes.float64, device), dtype)


def _integers(numbers, dtype, device):
    """The numbers of a Python range in an integer dtype; OverflowError if one does not fit."""
    limits = _dtypes.iinfo(dtype)
    if len(numbers) and not (limits.min <= min(numbers[0], numbers[-1]) and max(numbers[0], numbers[-1]) <= limits.max):
        raise OverflowError(f"numbers from {numbers[0]} to {numbers[-1]} are no values of {dtype.name}")
    exact = 1 << 53
    if all(abs(value) <= exact for value in (numbers.start, numbers.stop, numbers.step)):
        return _core.arange(numbers.start, numbers.stop, numbers.step, dtype, device)
    # Beyond 2^53 the bounds are no float64: counts from 0 are stretched and moved by integers, modulo 2^64.
    wide = _dtypes.uint64 if dtype is _dtypes.uint64 else _dtypes.int64
    counts = _core.arange(0, len(numbers), 1, wide, device)
    if not len(numbers):
        return _core.cast(counts, dtype)
    wrap = (1 << 64) if wide is _dtypes.uint64 else 0
    steps = full((), numbers.step % wrap if wrap else numbers.step, dtype=wide, device=device)
    starts = full((), numbers.start, dtype=wide, device=device)
    return astype(_core.add(_core.multiply(counts, steps), starts), dtype, copy=False)


def _linspace(start, stop, count, endpoint, dtype, device):
    return _core.linspace(dtype=dtype, start=start, stop=stop, count=count, endpoint=endpoint, device=device)


def linspace(start, stop, /, num, *, dtype=None, device=None, endpoint=True) -> Array:
    """`num` numbers in equal steps from start to stop; with endpoint=False they stop one step before. Rank 1.

    dtype None: float32, or complex64 if a bound is complex. ValueError for a negative number of elements.
    """
    dtype = _dtype_given(dtype)
    num = num.__index__()
    if num < 0:
        raise ValueError(f"linspace() makes 0 or more numbers, not {num}")
    start, stop = _hostdata.scalar_of(start), _hostdata.scalar_of(stop)
    device = _core.device(device)
    if isinstance(start, complex) or isinstance(stop, complex) or _dtypes.is_complex(dtype):
        dtype = dtype or _dtypes.complex64
        start, stop = complex(start), complex(stop)
        return _core.linspace_complex(dtype, start.real, start.imag, stop.real, stop.imag, num, endpoint, device)
    dtype = dtype or _dtypes.float32
    if _dtypes.is_float(dtype):
        return _linspace(float(start), float(stop), num, endpoint, dtype, device)
    return astype(_linspace(float(start), float(stop), num, endpoint, _dtypes.float64, device), dtype)


def eye(n_rows, n_cols=None, /, *, k=0, dtype=None, device=None) -> Array:
    """(n_rows, n_cols), ones at (i, i + k) and zeros elsewhere, float32 by default. n_cols None: as many as rows."""
    n_cols = n_rows if n_cols is None else n_cols
    k = max(-n_rows, min(k, n_cols))  # beyond that there are no ones
    return _core.eye(dtype=_dtype_given(dtype) or _dtypes.float32, rows=n_rows, columns=n_cols, diagonal=k, device=device)


def meshgrid(*arrays, indexing="xy"):
    """Vectors as coordinates of a grid: array i of the result varies along axis i as vector i does, and has an axis for each vector;
    with "xy" the first two axes are exchanged. A list of views."""
    if indexing not in ("xy", "ij"):
        raise ValueError(f'indexing is "xy" or "ij", not {indexing!r}')
    for x in arrays:
        if array_given(x).ndim != 1:
            raise ValueError(f"meshgrid() takes vectors, not an array of rank {x.ndim}")
    if len({x.dtype for x in arrays}) > 1:
        raise TypeError("meshgrid() takes vectors of one dtype")
    order = list(range(len(arrays)))
    if indexing == "xy" and len(arrays) > 1:
        order[:2] = 1, 0
    shape = tuple(arrays[place].size for place in order)
    grids = []
    for place, x in zip(order, arrays):
        column = _core.reshape(x, tuple(x.size if axis == place else 1 for axis in range(len(arrays))))
        grids.append(_core.broadcast_to(column, shape))
    return grids


def _diagonal(x, k):
    """The number of a diagonal, not farther away than the first one that the matrices do not have."""
    return max(-x.shape[-2], min(k, x.shape[-1])) if array_given(x).ndim > 1 else k


def tril(x, /, *, k=0) -> Array:
    """x[…, i, j] where j - i <= k, and 0 elsewhere: the lower triangle of each matrix. ValueError below rank 2."""
    return _core.tril(x, _diagonal(x, k))


def triu(x, /, *, k=0) -> Array:
    """x[…, i, j] where j - i >= k, and 0 elsewhere: the upper triangle of each matrix. ValueError below rank 2."""
    return _core.triu(x, _diagonal(x, k))
