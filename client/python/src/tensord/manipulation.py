"""Shapes and joins: the same elements elsewhere. Most results are views, which cost nothing on the device."""

import math as _math
from operator import index as _index

from . import _core
from . import dtypes as _dtypes

Array = _core.Array


def share(x):
    """Another array object with the same elements: later assignments to one do not show in the other. A view, which costs nothing."""
    return _core.reshape(x, x.shape)


def shape_of(shape):
    """A shape as a tuple of integers, from an integer, which is a shape of rank 1, or a sequence of them. TypeError for anything else."""
    index = getattr(shape, "__index__", None)
    if index is not None and not (isinstance(shape, Array) and shape.ndim):
        return (index(),)
    try:
        return tuple([extent.__index__() for extent in shape])
    except (TypeError, AttributeError):
        raise TypeError(f"a shape is an integer or a sequence of integers, not {shape!r}") from None


def array_given(x):
    """x itself, for functions that take an array. TypeError for anything else, of which asarray() makes one if it can."""
    if not isinstance(x, Array):
        raise TypeError(f"an array is needed, not {type(x).__name__}: tensord.asarray() makes arrays of lists, numbers and other arrays")
    return x


def _place(axis, rank):
    axis = axis.__index__()
    if not -rank <= axis < rank:
        raise IndexError(f"axis {axis} of an array of rank {rank}: it is between {-rank} and {rank - 1}")
    return axis + rank if axis < 0 else axis


def axis_of(axis, x):
    """An axis of the array x, counted from 0; IndexError outside -rank … rank - 1."""
    return _place(axis, array_given(x).ndim)


def axes_of(axes, x):
    """A tuple of axes of the array x counted from 0, from one axis, several of them, or None for all. ValueError if one comes twice."""
    rank = array_given(x).ndim
    if axes is None:
        return tuple(range(rank))
    if isinstance(axes, (tuple, list)):
        result = tuple(_place(axis, rank) for axis in axes)
        if len(set(result)) != len(result):
            raise ValueError(f"an axis comes twice in {tuple(axes)}")
        return result
    return (_place(axes, rank),)


def broadcast_shapes(*shapes):
    """The shape that these shapes broadcast to. ValueError if they do not."""
    rank = max((len(shape) for shape in shapes), default=0)
    result = []
    for place in range(-rank, 0):
        extents = {shape[place] for shape in shapes if len(shape) >= -place and shape[place] != 1}
        if len(extents) > 1:
            raise ValueError(f"shapes {', '.join(str(tuple(shape)) for shape in shapes)} do not broadcast")
        result.append(extents.pop() if extents else 1)
    return tuple(result)


def broadcast_to(x, /, shape) -> Array:
    """x with axes of extent 1, and new leading axes, repeated to fill `shape`. A view."""
    return _core.broadcast_to(x, tuple(shape))


def broadcast_arrays(*arrays):
    """The arrays, all broadcast to their common shape. A list of views."""
    shape = broadcast_shapes(*(array_given(x).shape for x in arrays))
    return [x if x.shape == shape else _core.broadcast_to(x, shape) for x in arrays]


def _same_dtype(arrays):
    arrays = [array_given(x) for x in arrays]
    if not arrays:
        raise ValueError("at least one array is needed")
    dtype = _dtypes.result_type(*arrays)
    return [x if x.dtype is dtype else _core.cast(x, dtype) for x in arrays]


def concat(arrays, /, *, axis=0) -> Array:
    """Arrays one after another along an axis; their other extents are equal, and their dtypes promote. axis=None: all elements of
    each, in row-major order."""
    arrays = _same_dtype(arrays)
    if axis is None:
        arrays, axis = [_core.reshape(x, (-1,)) if x.size else _core.reshape(x, (0,)) for x in arrays], 0
    return _core.concat(arrays, axis)


def stack(arrays, /, *, axis=0) -> Array:
    """Arrays of equal shapes along a new axis at this place of the result; their dtypes promote."""
    return _core.stack(_same_dtype(arrays), axis)


def unstack(x, /, *, axis=0):
    """A tuple of the slices of x along an axis, without that axis. Views."""
    axis = axis_of(axis, x)
    before, behind = ((None, None, 1),) * axis, ((None, None, 1),) * (x.ndim - axis - 1)
    shape = x.shape[:axis] + x.shape[axis + 1 :]
    parts = (_core.slice(x, before + ((place, place + 1, 1),) + behind) for place in range(x.shape[axis]))
    return tuple(_core.reshape(part, shape) for part in parts)


def expand_dims(x, /, axis=0) -> Array:
    """x with a new axis of extent 1 at place `axis` of the result. A view. IndexError for a place that the result does not have."""
    _place(axis, array_given(x).ndim + 1)
    return _core.expand_dims(x, axis)


def squeeze(x, /, axis) -> Array:
    """x without this axis, or these axes, whose extents must be 1. A view. ValueError for another extent."""
    return _core.squeeze(x, axes_of(axis, x))


def reshape(x, /, shape, *, copy=None) -> Array:
    """The same elements in row-major order in another shape, of which one extent may be -1: it is computed from the others.

    copy=True: the result never changes with x. copy=False is refused: a later assignment to x never shows in the result.
    """
    if copy is False:
        raise ValueError("copy=False: no array shares later changes by assignment with another one")
    return _core.reshape(x, shape if type(shape) is tuple else shape_of(shape))


def permute_dims(x, /, axes) -> Array:
    """Axis i of the result is axis axes[i] of x. A view. ValueError unless `axes` names each axis once."""
    axes = axes_of(tuple(axes), x)
    if len(axes) != x.ndim:
        raise ValueError(f"permute_dims() needs each of {x.ndim} axes once, not {axes}")
    return _core.permute(x, axes)


def moveaxis(x, source, destination, /) -> Array:
    """x with axis source[i] at place destination[i], and the other axes in their order. A view."""
    source, destination = axes_of(source, x), axes_of(destination, x)
    if len(source) != len(destination):
        raise ValueError("moveaxis() needs as many destinations as sources")
    return _core.moveaxis(x, source, destination)


def matrix_transpose(x, /) -> Array:
    """(…, m, n) to (…, n, m). A view. ValueError below rank 2."""
    return _core.transpose(x)


def flip(x, /, *, axis=None) -> Array:
    """x in reverse order along an axis, several axes, or all of them (None). A view."""
    axes = axes_of(axis, x)
    return _core.flip(x, axes) if axes else share(x)


def roll(x, /, shift, *, axis=None) -> Array:
    """x's elements moved by `shift` places along an axis; what goes beyond the end comes in at the beginning. Tuples of shifts and
    axes: one after another. axis=None: of all elements in row-major order, in x's shape again."""
    array_given(x)
    if axis is None:
        shifts = tuple(shift) if isinstance(shift, (tuple, list)) else (shift,)
        return _core.reshape(_core.roll(_core.reshape(x, (x.size,)), sum(shifts), 0), x.shape)
    axes = axis if isinstance(axis, (tuple, list)) else (axis,)
    shifts = tuple(shift) if isinstance(shift, (tuple, list)) else (shift,) * len(axes)
    if len(shifts) != len(axes):
        raise ValueError(f"roll() needs a shift for each axis: {len(shifts)} shifts, {len(axes)} axes")
    for one, place in zip(shifts, axes):
        x = _core.roll(x, one, axis_of(place, x))
    return x


def _repetitions(repeats, x):
    """How often repeat() repeats: a number, a list of them, or an array of integers. TypeError for anything else."""
    if isinstance(repeats, (list, tuple, range)):
        counts = [_index(count) for count in repeats]
        return counts if len(counts) != 1 else counts[0]
    if not isinstance(repeats, Array):
        try:
            return _index(repeats)
        except TypeError:
            repeats = _core.asarray(repeats, None, x.device)
    if repeats.dtype is _dtypes.boolean:
        repeats = _core.cast(repeats, _dtypes.uint8)
    if not _dtypes.is_integer(repeats.dtype):
        raise TypeError(f"repeat() repeats an integral number of times, and these are {repeats.dtype.name}")
    return repeats if repeats.size != 1 else int(_core.reshape(repeats, ()))


def repeat(x, repeats, /, *, axis=None) -> Array:
    """Each element of x along an axis, repeated; axis=None: of all elements in row-major order.

    `repeats` is a number, or a list or an integer array of rank 1 with one for each element. Of an array, the call blocks until the array's
    sum is known, which the result's shape depends on. ValueError for a negative number, among those of an array, too.
    """
    array_given(x)
    if axis is None:
        x, axis = _core.reshape(x, (x.size,)), 0
    axis = axis_of(axis, x)
    repeats = _repetitions(repeats, x)
    if not isinstance(repeats, int):
        return _repeat_each(x, repeats, axis)
    if repeats < 0:
        raise ValueError(f"repeat() repeats 0 times or more, not {repeats}")
    # As rank 3, since the operation needs another axis for a while.
    before, behind = x.shape[:axis], x.shape[axis + 1 :]
    flat = _core.repeat(_core.reshape(x, (_math.prod(before), x.shape[axis], _math.prod(behind))), repeats, 1)
    return _core.reshape(flat, before + (x.shape[axis] * repeats,) + behind)


def _repeat_each(x, repeats, axis):
    shape = repeats.shape if isinstance(repeats, Array) else (len(repeats),)
    if shape != (x.shape[axis],):
        raise ValueError(f"repeat() needs {x.shape[axis]} numbers of repetitions, one for each element, not the shape {shape}")
    if x.shape[axis] == 0:
        return share(x)
    if isinstance(repeats, Array):
        # As float64 the sum is exact up to the greatest length that there is, and no sum is too large.
        numbers = _core.cast(repeats, _dtypes.float64)
        least, total = _core.stack([_core.min(numbers), _core.sum(numbers)], axis=0).tolist()
    else:
        least, total = min(repeats), sum(repeats)
        repeats = _core.asarray(repeats, _dtypes.int64, x.device)
    if least < 0:  # the operation would leave the element out
        raise ValueError(f"repeat() repeats 0 times or more, not {int(least)}")
    if total > 2**53:
        raise _core.ShapeError(f"repeat() would give {int(total)} elements on an axis")
    return _core.repeat_each(x, repeats, int(total), axis)[0]


def tile(x, repetitions, /) -> Array:
    """x as a whole, repeated repetitions[i] times along axis i; the shorter one of shape and list gets ones in front."""
    repetitions = shape_of(repetitions)
    if not repetitions:
        return share(x)
    return _core.tile(x, repetitions)
