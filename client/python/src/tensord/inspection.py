"""__array_namespace_info__: what a program can ask of tensord as an implementation of the array API standard."""

from . import _core
from . import dtypes as _dtypes


class NamespaceInfo:
    """The inspection functions of the standard."""

    __slots__ = ()

    def capabilities(self):
        """Boolean indexing and data-dependent shapes work (they wait for the device); arrays have 8 axes at most."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 8}

    def default_device(self):
        """The device that new arrays are on: that of the innermost `with` block, else the daemon's first one."""
        return _core.device(None)

    def default_dtypes(self, *, device=None):
        """The dtypes of arrays made from scalars: the same on all devices."""
        return {
            "real floating": _dtypes.float32,
            "complex floating": _dtypes.complex64,
            "integral": _dtypes.int64,
            "indexing": _dtypes.int64,
        }

    def dtypes(self, *, device=None, kind=None):
        """The standard's dtypes of a kind (see isdtype()), by name. tensord's others are not in it: float16, bfloat16, float8."""
        if kind is not None:
            return {dtype.name: dtype for dtype in _dtypes.STANDARD if _dtypes.isdtype(dtype, kind)}
        return {dtype.name: dtype for dtype in _dtypes.STANDARD}

    def devices(self):
        """The daemon's devices that are ready. Blocks for a round trip."""
        return [_core.device(device.name) for device in _core.devices() if device.state == "ready"]


def __array_namespace_info__():
    """The inspection functions: capabilities(), default_device(), default_dtypes(), dtypes(), devices()."""
    return NamespaceInfo()
