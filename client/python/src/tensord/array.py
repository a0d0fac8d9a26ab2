"""The methods of Array that are written in Python. The type itself, its operators and what fetches values are in C (tensord._core)."""

from . import _core
from . import creation as _creation
from . import dtypes as _dtypes
from . import indexing as _indexing
from . import manipulation as _manipulation
from . import printing as _printing
from . import searching as _searching
from . import statistical as _statistical
from . import utility as _utility

Array = _core.Array


def _getitem(self, key):
    """x[key]: a view for integers and slices; blocks for an array of bools (tensord.indexing)."""
    return _indexing.get(self, key)


def _setitem(self, key, value):
    """x[key] = value. Arrays in the daemon never change: this object takes a new array, x.at[key].set(value). So views and shares of x
    that were made before keep the old elements; other names of this object see the new ones. Where there are no views and shares, rows and
    other lines along one axis, and what a mask selects, are written into the memory that x has."""
    _indexing.put_into(self, key, value)


def _len(self):
    if not self.ndim:
        raise TypeError("an array of rank 0 has no len()")
    return self.shape[0]


def _iter(self):
    """The slices along the first axis. Does not block."""
    if not self.ndim:
        raise TypeError("an array of rank 0 cannot be iterated over")
    return iter(_manipulation.unstack(self))


def _contains(self, value):
    """Whether an element equals the value. Blocks."""
    return bool(_utility.any(self == value))


def _format(self, specification):
    """format() of the only element, or repr(). Blocks."""
    if self.ndim or not specification:
        return format(_printing.represent(self) if self.ndim else str(self.item()), specification)
    return format(self.item(), specification)


def _round(self, digits=None, /):
    """round(x): the nearest integers, of two the even one, in x's dtype. round(x, digits): so many digits behind the point. TypeError for
    fewer than 0 digits of integers."""
    if not digits:
        return _core.round(self)
    if _dtypes.is_integer(self.dtype):
        if digits < 0:
            raise TypeError(f"round() of integers to tens is not there: {digits} digits of {self.dtype.name}")
        return _manipulation.share(self)
    scale = 10.0 ** abs(digits)
    return _core.round(self * scale) / scale if digits > 0 else _core.round(self / scale) * scale


def _t(self):
    """The transpose of a matrix: a view. ValueError for other ranks, for which mT and permute_dims() are."""
    if self.ndim != 2:
        raise ValueError(f"T is for matrices, and this array has rank {self.ndim}: mT and permute_dims() are for others")
    return _core.transpose(self)


def _mt(self):
    """(…, m, n) as (…, n, m): a view. ValueError below rank 2."""
    return _core.transpose(self)


def _at(self):
    """x.at[key].set(value) and siblings: new arrays in which a part of x is another one."""
    return _indexing.At(self)


def _to_device(self, device, /, *, stream=None):
    """x on another device of the same daemon, without going through this process. On its own device it is x itself. Does not block.
    `stream` is for the standard's sake: arrays order their work by themselves."""
    device = _core.device(device)
    return self if device is self.device else _core.copy_to(self, device)


def _array_namespace(self, /, *, api_version=None):
    """The module tensord. ValueError for a version of the array API standard other than 2021.12 to 2024.12."""
    import tensord

    if api_version not in (None, "2021.12", "2022.12", "2023.12", "2024.12"):
        raise ValueError(f"tensord implements version {tensord.__array_api_version__} of the array API standard, not {api_version}")
    return tensord


def _reshape(self, *shape):
    """The same elements in another shape: x.reshape(2, -1) or x.reshape((2, -1))."""
    return _manipulation.reshape(self, shape[0] if len(shape) == 1 else shape)


def _copy(self):
    """Another array object with the same elements: later assignments to one do not show in the other."""
    return _manipulation.share(self)


def _deepcopy(self, memo):
    """Another array object with the same elements, which requires a gradient if this one was told so. What led to it is not copied."""
    return self.detach().requires_grad_(self.requires_grad and self.is_leaf)


def _from_pickle(name, shape, data, requires_grad=False):
    return _core.from_buffer(data, _core.dtypes[name], shape).requires_grad_(requires_grad)


def _reduce(self):
    """Pickling is by value, and blocks. The array that a pickle becomes is on the current device."""
    data = bytearray(self.nbytes)
    self.fetch_into(data)
    return _from_pickle, (self.dtype.name, self.shape, bytes(data), self.requires_grad and self.is_leaf)


def _detach(self):
    """The same elements as a constant, through which no derivative goes: a view. Does not block."""
    return _core._stop_gradient(self)


def _method(function):
    """A function of the namespace as a method, with the same documentation."""

    def method(self, *args, **kwargs):
        return function(self, *args, **kwargs)

    method.__name__, method.__qualname__ = function.__name__, f"Array.{function.__name__}"
    method.__doc__ = function.__doc__
    return method


def _reduction(function):
    """A reduction as a method, which takes the axis without a keyword, too: x.sum(0)."""

    def method(self, axis=None, **kwargs):
        return function(self, axis=axis, **kwargs)

    method.__name__, method.__qualname__ = function.__name__, f"Array.{function.__name__}"
    method.__doc__ = function.__doc__
    return method


def attach():
    """Gives the type Array its methods; __init__ calls it once."""
    methods = {
        "__getitem__": _getitem,
        "__setitem__": _setitem,
        "__len__": _len,
        "__iter__": _iter,
        "__contains__": _contains,
        "__repr__": _printing.represent,
        "__format__": _format,
        "__round__": _round,
        "__copy__": _copy,
        "__deepcopy__": _deepcopy,
        "__reduce__": _reduce,
        "__array_namespace__": _array_namespace,
        "T": property(_t),
        "mT": property(_mt),
        "at": property(_at),
        "to_device": _to_device,
        "reshape": _reshape,
        "copy": _copy,
        "detach": _detach,
        "astype": _method(_creation.astype),
    }
    for function in (_statistical.sum, _statistical.prod, _statistical.mean, _statistical.max, _statistical.min, _statistical.var):
        methods[function.__name__] = _reduction(function)
    for function in (_statistical.std, _utility.any, _utility.all, _searching.argmax, _searching.argmin):
        methods[function.__name__] = _reduction(function)
    for name, method in methods.items():
        setattr(Array, name, method)
