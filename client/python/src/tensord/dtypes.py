"""Dtypes: what they are called, what kind they are, and what they promote to.

A dtype is an object with a `name` ("float32"), an `itemsize` in bytes and a `kind`. There is one object for each dtype, so that
`x.dtype is td.float32` holds.
"""

from . import _core

DType = _core.DType
Array = _core.Array

_named = _core.dtypes

boolean = _named["bool"]
int8, int16, int32, int64 = (_named[name] for name in ("int8", "int16", "int32", "int64"))
uint8, uint16, uint32, uint64 = (_named[name] for name in ("uint8", "uint16", "uint32", "uint64"))
float16, bfloat16 = _named["float16"], _named["bfloat16"]
float32, float64 = _named["float32"], _named["float64"]
float8_e4m3fn, float8_e5m2 = _named["float8_e4m3fn"], _named["float8_e5m2"]
complex64, complex128 = _named["complex64"], _named["complex128"]

SIGNED = (int8, int16, int32, int64)
UNSIGNED = (uint8, uint16, uint32, uint64)
INTEGERS = SIGNED + UNSIGNED
FLOATS = (float16, bfloat16, float32, float64)
COMPLEX = (complex64, complex128)
FLOAT8 = (float8_e4m3fn, float8_e5m2)

# The dtypes of the standard, which its inspection functions list. float16, bfloat16 and the float8 formats are tensord's own.
STANDARD = (boolean,) + SIGNED + UNSIGNED + (float32, float64) + COMPLEX

KINDS = {
    "bool": (boolean,),
    "signed integer": SIGNED,
    "unsigned integer": UNSIGNED,
    "integral": INTEGERS,
    "real floating": FLOATS,
    "complex floating": COMPLEX,
    "numeric": INTEGERS + FLOATS + COMPLEX,
}

# Ranks of kinds in promotion: bool < integer < float < complex. The float8 formats promote with nothing.
_RANK = {}
for _rank, _group in enumerate(((boolean,), INTEGERS, FLOATS, COMPLEX)):
    for _dtype in _group:
        _RANK[_dtype] = _rank

_REAL_OF = {complex64: float32, complex128: float64}
_COMPLEX_OF = {float32: complex64, float64: complex128}


def is_float(dtype):
    """Whether a dtype is a real floating one: float16, bfloat16, float32 or float64."""
    return _RANK.get(dtype) == 2


def is_integer(dtype):
    """Whether a dtype is a signed or unsigned integer."""
    return _RANK.get(dtype) == 1


def is_complex(dtype):
    """Whether a dtype is complex64 or complex128."""
    return _RANK.get(dtype) == 3


def real_of(dtype):
    """The dtype of a complex dtype's parts; other dtypes as they are."""
    return _REAL_OF.get(dtype, dtype)


def complex_of(dtype):
    """The complex dtype whose parts have this dtype, or hold its values: complex128 for float64, complex64 for other real dtypes."""
    return dtype if is_complex(dtype) else _COMPLEX_OF.get(dtype, complex64)


def scalar_rank(value):
    """The rank of a Python scalar's kind in promotion, as in `_RANK`; None if the value is no scalar."""
    if isinstance(value, bool):
        return 0
    if isinstance(value, int):
        return 1
    if isinstance(value, float):
        return 2
    if isinstance(value, complex):
        return 3
    return None


# What a Python scalar becomes where no array says more.
SCALAR_DTYPES = (boolean, int64, float32, complex64)


def default_dtype(value):
    """The dtype of an array made from this Python scalar alone: bool, int64, float32 or complex64. TypeError for anything else."""
    rank = scalar_rank(value)
    if rank is None:
        raise TypeError(f"an array has no place for a {type(value).__name__}: bool, int, float or complex is needed")
    return SCALAR_DTYPES[rank]


def with_scalar(dtype, value):
    """The dtype in which an operation on an array of this dtype and a Python scalar computes.

    The scalar takes the array's dtype if that is of the same or a higher kind; otherwise it is promoted with the default
    dtype of the scalar's kind: float32 for an integer array and a float.
    """
    rank, own = scalar_rank(value), _RANK.get(dtype)
    if rank is None:
        raise TypeError(f"{type(value).__name__} is no scalar: bool, int, float or complex is needed")
    if own is None:
        raise TypeError(f"{dtype.name} promotes with nothing: use astype() first")
    if rank <= own:
        return dtype
    if rank == 3:
        return complex_of(dtype)
    return SCALAR_DTYPES[rank]


def _promote_integers(a, b):
    if (a in SIGNED) == (b in SIGNED):
        return a if a.itemsize >= b.itemsize else b
    signed, unsigned = (a, b) if a in SIGNED else (b, a)
    if signed.itemsize > unsigned.itemsize:
        return signed
    if unsigned is uint64:
        raise TypeError(f"{a.name} and {b.name} do not promote: no integer dtype holds both")
    return SIGNED[SIGNED.index(int8) + UNSIGNED.index(unsigned) + 1]


def _promote_floats(a, b):
    if a.itemsize != b.itemsize:
        return a if a.itemsize > b.itemsize else b
    return a if a is b else float32  # float16 and bfloat16


def promote(a, b):
    """The dtype in which an operation on two arrays of these dtypes computes; TypeError if there is none."""
    if a is b:
        return a
    rank_a, rank_b = _RANK.get(a), _RANK.get(b)
    if rank_a is None or rank_b is None:
        raise TypeError(f"{a.name} and {b.name} do not promote: use astype() first")
    if rank_a == rank_b:
        if rank_a == 1:
            return _promote_integers(a, b)
        if rank_a == 2:
            return _promote_floats(a, b)
        return complex128
    if max(rank_a, rank_b) == 3:
        return complex128 if float64 in (a, b) or complex128 in (a, b) else complex64
    return a if rank_a > rank_b else b


def dtype_of(value):
    """The dtype of an array, the dtype itself, or that of this name. TypeError for anything else."""
    if isinstance(value, DType):
        return value
    if isinstance(value, str) and value in _named:
        return _named[value]
    if isinstance(value, Array):
        return value.dtype
    raise TypeError(f"an array or a dtype is needed, not {value!r}: tensord.asarray() makes arrays of lists and others")


def dtype_given(value):
    """The dtype that an argument `dtype=` says: a dtype, the name of one, or None. TypeError for anything else."""
    if value is None or type(value) is DType:
        return value
    if isinstance(value, str) and value in _named:
        return _named[value]
    raise TypeError(f"dtype= takes a dtype such as tensord.float32, or its name, not {value!r}")


def result_type(*arrays_and_dtypes):
    """The dtype that arrays, dtypes and Python scalars promote to.

    Scalars count by their kind alone, as `with_scalar` says. Where only scalars are given, the result is the default dtype of the
    highest kind. TypeError if there is none.
    """
    dtype, scalars = None, []
    for value in arrays_and_dtypes:
        if scalar_rank(value) is not None:
            scalars.append(value)
        else:
            own = dtype_of(value)
            dtype = own if dtype is None else promote(dtype, own)
    if dtype is None:
        if not scalars:
            raise ValueError("result_type() needs an array, a dtype or a scalar")
        return SCALAR_DTYPES[max(scalar_rank(value) for value in scalars)]
    for value in scalars:
        dtype = with_scalar(dtype, value)
    return dtype


def can_cast(from_, to, /):
    """Whether the values of a dtype, or of an array's dtype, go into another dtype by promotion: whether the two promote to `to`."""
    try:
        to = dtype_of(to)
        return promote(dtype_of(from_), to) is to
    except TypeError:
        return False


def isdtype(dtype, kind):
    """Whether a dtype is of a kind: "bool", "signed integer", "unsigned integer", "integral", "real floating", "complex floating",
    "numeric", a dtype itself, or one of a tuple of these. ValueError for another name."""
    dtype = dtype_given(dtype)
    if dtype is None:
        raise TypeError("isdtype() needs a dtype, not None")
    if isinstance(kind, tuple):
        return any(isdtype(dtype, one) for one in kind)
    if isinstance(kind, str):
        if kind not in KINDS:
            raise ValueError(f"there is no kind {kind!r} of dtypes: {', '.join(KINDS)}")
        return dtype in KINDS[kind]
    if not isinstance(kind, DType):
        raise TypeError(f"a kind is a name, a dtype or a tuple of these, not {type(kind).__name__}")
    return dtype is kind


class finfo:
    """Limits of a real floating dtype, or of the parts of a complex one: `bits`, `eps`, `max`, `min`, `smallest_normal`, `dtype`."""

    __slots__ = ("bits", "eps", "max", "min", "smallest_normal", "dtype")

    # Bits of the fraction, the greatest exponent, and the least exponent of a normal number.
    _FORMATS = {
        float16: (10, 15, -14),
        bfloat16: (7, 127, -126),
        float32: (23, 127, -126),
        float64: (52, 1023, -1022),
        float8_e5m2: (2, 15, -14),
    }

    def __init__(self, type, /):
        dtype = real_of(dtype_of(type))
        self.dtype = dtype
        self.bits = dtype.itemsize * 8
        if dtype is float8_e4m3fn:  # its highest exponent has numbers, too
            self.eps, self.max, self.smallest_normal = 2.0**-3, 448.0, 2.0**-6
        elif dtype in self._FORMATS:
            fraction, high, low = self._FORMATS[dtype]
            self.eps = 2.0**-fraction
            self.max = (2.0 - self.eps) * 2.0**high
            self.smallest_normal = 2.0**low
        else:
            raise ValueError(f"finfo() needs a floating dtype, not {dtype.name}: iinfo() is for integers")
        self.min = -self.max

    def __repr__(self):
        return f"finfo({self.dtype.name}: bits={self.bits}, eps={self.eps}, max={self.max}, smallest_normal={self.smallest_normal})"


class iinfo:
    """Limits of an integer dtype: `bits`, `max`, `min`, `dtype`."""

    __slots__ = ("bits", "max", "min", "dtype")

    def __init__(self, type, /):
        dtype = dtype_of(type)
        if not is_integer(dtype):
            raise ValueError(f"iinfo() needs an integer dtype, not {dtype.name}: finfo() is for floats")
        self.dtype = dtype
        self.bits = dtype.itemsize * 8
        if dtype in SIGNED:
            self.min, self.max = -(1 << (self.bits - 1)), (1 << (self.bits - 1)) - 1
        else:
            self.min, self.max = 0, (1 << self.bits) - 1

    def __repr__(self):
        return f"iinfo({self.dtype.name}: min={self.min}, max={self.max})"
