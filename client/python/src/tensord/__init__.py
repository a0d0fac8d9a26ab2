"""tensord: arrays that live in a daemon which owns the accelerators of a host.

    import tensord as td

    x = td.asarray([[1.0, 2.0], [3.0, 4.0]])
    y = (x @ x.T).sum(axis=0)       # enqueued: nothing has waited so far
    print(y)                        # waits for the value

The namespace is that of the Python array API standard, version 2024.12. Every operation returns at once; what needs a value waits for
it: print, float(x), x.numpy(), x.tolist(), bool(x), x[mask], td.unique_values() and others, whose documentation says "Blocks".
Operations beyond the standard (td.relu, td.conv2d, td.softmax, …) have PyTorch's meaning.
"""

from . import _core
from .array import attach as _attach
from .creation import (
    arange,
    asarray,
    astype,
    empty,
    empty_like,
    eye,
    from_dlpack,
    full,
    full_like,
    linspace,
    meshgrid,
    ones,
    ones_like,
    tril,
    triu,
    zeros,
    zeros_like,
)
from .derivatives import checkpoint, custom_gradient, custom_vjp, grad, no_grad, stop_gradient, value_and_grad
from .dtypes import (
    bfloat16,
    boolean as bool,
    can_cast,
    complex64,
    complex128,
    finfo,
    float8_e4m3fn,
    float8_e5m2,
    float16,
    float32,
    float64,
    iinfo,
    int8,
    int16,
    int32,
    int64,
    isdtype,
    result_type,
    uint8,
    uint16,
    uint32,
    uint64,
)
from .elementwise import clip, imag
from .indexing import take, take_along_axis
from .inspection import __array_namespace_info__
from .linear_algebra import einsum, matmul, matrix_transpose, tensordot, vecdot
from .manipulation import (
    broadcast_arrays,
    broadcast_shapes,
    broadcast_to,
    concat,
    expand_dims,
    flip,
    moveaxis,
    permute_dims,
    repeat,
    reshape,
    roll,
    squeeze,
    stack,
    tile,
    unstack,
)
from .programs import function, scan
from .saved_programs import load_program, open_program, publish_program, save_program
from .searching import argmax, argmin, count_nonzero, nonzero, searchsorted, where
from .sets import unique_all, unique_counts, unique_inverse, unique_values
from .sorting import argsort, sort, topk
from .statistical import cumulative_prod, cumulative_sum, max, mean, min, prod, std, sum, var
from .utility import all, any, diff
from . import fft, linalg, random

_attach()

e = 2.718281828459045
inf = float("inf")
nan = float("nan")
newaxis = None
pi = 3.141592653589793

# Every operation, connection, device and error that the extension has, under its own name. Left out are operations that the array has
# as an index or a method, that the standard has under another name, and whose place is linalg, fft or random.
_INNER = {"slice", "permute", "transpose", "cast", "copy", "full", "dtypes", "unique", "scatter_into", "where_into", "randint", "bernoulli_like", "linspace_complex"}
_INNER.update(_name for _module in (linalg, fft, random) for _name in vars(_module) if _name.islower())
globals().update({_name: getattr(_core, _name) for _name in dir(_core) if _name[0] != "_" and _name not in _INNER and _name not in globals()})

__array_api_version__ = "2024.12"
__version__ = _core.__version__

# What only some programs need, and whose imports cost more than the rest of the package: loaded at first use.
_LATER = {"serve": "_serve", "Daemon": "_serve", "save_file": "_safetensors", "load_file": "_safetensors"}
_LATER_MODULES = {"nn", "optim", "data"}

TYPE_CHECKING = False  # as typing's, which costs an import
if TYPE_CHECKING:  # the same for those that read types without running this: what was imported before comes first
    from . import data, nn, optim
    from ._core import *  # type: ignore  # noqa: F403
    from ._safetensors import load_file, save_file
    from ._serve import Daemon, serve


def __getattr__(name):
    from importlib import import_module

    if name in _LATER_MODULES:
        return import_module(f".{name}", __name__)
    module = _LATER.get(name)
    if module is None:
        raise AttributeError(f"module 'tensord' has no attribute {name!r}")
    value = getattr(import_module(f".{module}", __name__), name)
    globals()[name] = value
    return value


def __dir__():
    return sorted(set(globals()) | set(_LATER) | _LATER_MODULES)
