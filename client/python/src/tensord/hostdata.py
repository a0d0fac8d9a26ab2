"""Host data: scalars and nested lists, as asarray() and assignments take them."""

from . import _core

Array = _core.Array


def scalar_of(value):
    """A Python scalar with this value: the value itself, or what its item() or __index__() says. Blocks for an array."""
    if isinstance(value, (bool, int, float, complex)):
        return value
    item = getattr(value, "item", None)
    if item is not None:  # arrays of one element, NumPy's scalars
        return scalar_of(item())
    index = getattr(value, "__index__", None)
    if index is not None:
        return index()
    raise TypeError(f"an array has no place for a {type(value).__name__}: bool, int, float or complex is needed")


def is_plain(obj):
    """Whether nested lists and tuples contain Python scalars alone."""
    if isinstance(obj, (list, tuple)):
        return all(is_plain(item) for item in obj)
    return isinstance(obj, (bool, int, float, complex))


def plain(obj):
    """Nested lists of Python scalars alone, from nested lists that contain arrays or other libraries' scalars, too. Blocks for arrays."""
    if isinstance(obj, (list, tuple, range)):
        return [plain(item) for item in obj]
    if isinstance(obj, Array):
        return obj.tolist()
    tolist = getattr(obj, "tolist", None)
    return tolist() if tolist is not None else scalar_of(obj)


def items(obj):
    """The innermost items of nested lists and tuples, in row-major order."""
    if isinstance(obj, (list, tuple)):
        for item in obj:
            yield from items(item)
    else:
        yield obj
