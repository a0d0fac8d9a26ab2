"""Reading and replacing parts of arrays: x[key], x[key] = value, x.at[key].set(value), take(), take_along_axis().

A key is an integer, a slice, None, Ellipsis, an array of bools or integers (a list or NumPy array, too), or a tuple of these, with the
meaning that NumPy gives it. Integers and slices make views, which cost nothing. Integer arrays are looked up on the device: an index
that the axis does not have poisons the result, and looking at the result raises OutOfRangeError, an IndexError. Arrays of bools
make a shape that depends on data, so x[mask] waits until the number of true elements is known; x[mask] = scalar does not.
"""

import math as _math

from . import _core
from . import dtypes as _dtypes
from . import hostdata as _hostdata
from .creation import asarray
from .manipulation import array_given, axis_of, broadcast_shapes, share, unstack

Array = _core.Array

_EVERY = (None, None, 1)


# ---- what a key says ----


class _Selection:
    """A key's items, one for each axis of the array, with the result's new axes.

    ranges   (start, stop, step) for each axis, all bounds from 0 on; an integer is a range of one element
    dropped  whether the axis came from an integer, so that the result does not have it
    arrays   {axis: integer array} of looked-up axes, all of one shape after broadcasting; their ranges are whole axes
    layout   the result's axes in order: an axis' number, None for a new one, _ARRAYS for those of the integer arrays
    """

    __slots__ = ("ranges", "dropped", "arrays", "layout")


_ARRAYS = object()


def _is_mask(item):
    return isinstance(item, bool) or (isinstance(item, Array) and item.dtype is _dtypes.boolean)


def _as_item(item, device):
    """An item of a key: lists and foreign arrays become arrays, integers of any type Python's."""
    if item is None or item is Ellipsis or isinstance(item, (slice, bool)):
        return item
    if isinstance(item, int):
        return item
    if isinstance(item, Array):
        return item
    if isinstance(item, (list, tuple, range)) or hasattr(item, "__array__") or hasattr(item, "__dlpack__"):
        result = asarray(item, device=device)
        if not result.size and result.dtype is not _dtypes.boolean and isinstance(item, (list, tuple)):
            result = _core.cast(result, _dtypes.int64)
        return result
    index = getattr(item, "__index__", None)
    if index is None:
        raise IndexError(f"a {type(item).__name__} is no index: an integer, slice, None, Ellipsis or array is needed")
    return index()


def _items(key, x):
    """The key as a list of items for each axis of x, in which Ellipsis has become whole slices. It stays if it stands for none: also then
    it parts the arrays on its left from those on its right, as in NumPy."""
    if not isinstance(key, tuple):
        key = (key,)
    items = [_as_item(item, x.device) for item in key]
    used = 0
    for item in items:
        if _is_mask(item):
            used += 0 if isinstance(item, bool) else item.ndim
        elif item is not None and item is not Ellipsis:
            used += 1
    if used > x.ndim:
        raise IndexError(f"{used} indices for an array of rank {x.ndim}")
    places = [place for place, item in enumerate(items) if item is Ellipsis]
    if len(places) > 1:
        raise IndexError("an index has one Ellipsis at most")
    rest = [slice(None)] * (x.ndim - used)
    if places:
        return items[: places[0]] + (rest or [Ellipsis]) + items[places[0] + 1 :]
    return items + rest


def _check_mask(mask, x, axis):
    """IndexError unless the mask's extents are those of x's axes from `axis` on, or 0."""
    for place, extent in enumerate(mask.shape):
        if extent not in (0, x.shape[axis + place]):
            raise IndexError(f"a mask of shape {mask.shape} does not fit the axes {x.shape[axis : axis + mask.ndim]}")


def _true_places(mask):
    """The indices of a mask's true elements on each of its axes: int64 arrays of rank 1. Blocks until their number is known."""
    places, count = _core.nonzero(mask)
    return unstack(_core.slice(places, (_EVERY, (0, int(count), 1))))


def _int_index(index, extent, axis):
    if not -extent <= index < extent:
        raise IndexError(f"index {index} of axis {axis}, which has {extent} elements")
    return index + extent if index < 0 else index


def _select(x, key):
    """A _Selection for a key. Blocks if there is a mask."""
    result = _Selection()
    result.ranges, result.dropped, result.arrays, result.layout = [], [], {}, []
    items = _items(key, x)
    advanced = any(isinstance(item, (Array, bool)) for item in items)
    axis, groups, inside = 0, 0, False  # groups: of neighbouring integers and arrays
    scalars = {}
    for item in items:
        looked_up = isinstance(item, (Array, bool)) or (advanced and isinstance(item, int))
        if looked_up:
            if not inside:
                groups += 1
                if groups == 1:
                    result.layout.append(_ARRAYS)
            inside = True
        else:
            inside = False
        if item is Ellipsis:
            continue
        if item is None:
            result.layout.append(None)
        elif isinstance(item, bool) or (_is_mask(item) and item.ndim == 0):
            # A mask of rank 0 is an axis of its own with 1 element or 0, whatever the elements of x.
            scalars[len(scalars)] = bool(item)
        elif isinstance(item, slice):
            start, stop, step = item.indices(x.shape[axis])
            result.ranges.append((start, len(range(start, stop, step)), step))
            result.dropped.append(False)
            result.layout.append(axis)
            axis += 1
        elif isinstance(item, int):
            index = _int_index(item, x.shape[axis], axis)
            result.ranges.append((index, 1, 1))
            result.dropped.append(True)
            if advanced:
                result.arrays[axis] = index
            axis += 1
        elif _is_mask(item):
            _check_mask(item, x, axis)
            for places in _true_places(item):
                result.ranges.append((0, x.shape[axis], 1))
                result.dropped.append(True)
                result.arrays[axis] = places
                axis += 1
        else:
            if not _dtypes.is_integer(item.dtype):
                raise IndexError(f"an array of {item.dtype.name} is no index: integers or bools are needed")
            result.ranges.append((0, x.shape[axis], 1))
            result.dropped.append(True)
            result.arrays[axis] = item
            axis += 1
    if groups > 1:  # arrays with something between them: their axes come first
        result.layout = [_ARRAYS] + [one for one in result.layout if one is not _ARRAYS]
    if scalars:
        chosen = _core.arange(0, int(all(scalars.values())), 1, _dtypes.int64, x.device)
        result.arrays[None] = chosen  # an index into nothing: it only gives the arrays its shape
    return result


def _arrays_shape(arrays):
    return broadcast_shapes(*(index.shape for index in arrays.values() if isinstance(index, Array)))


# ---- reading ----


def _view(x, selection):
    """The part of x that the key's integers and slices select, as a view in the layout of the selection."""
    whole = all(entry == (0, extent, 1) for entry, extent in zip(selection.ranges, x.shape))
    if not whole:
        x = _core.slice(x, [_bounds(*entry) for entry in selection.ranges])
    shape = tuple(1 if one is None else selection.ranges[one][1] for one in selection.layout)
    return _core.reshape(x, shape) if whole or shape != x.shape else x


def _bounds(start, count, step):
    """(start, stop, step) for the operation, whose bounds below 0 count from the end."""
    if count == 0:
        return (0, 0, 1)
    if count == 1:  # Python's integers have no greatest one, and the step of a slice may be any of them
        return (start, start + 1, 1)
    stop = start + count * step
    return (start, None if stop < 0 else stop, step)


def _wrapped(index, extent):
    """An integer array with negative indices counted from the end, as int64; others stay, also those that the axis does not have."""
    if isinstance(index, int):
        return index
    if index.dtype in _dtypes.UNSIGNED:
        return _core.cast(index, _dtypes.int64)
    if index.dtype is not _dtypes.int64:
        index = _core.cast(index, _dtypes.int64)
    return _core.where(_core.less(index, 0), _core.add(index, extent), index)


def _combined(arrays, extents, device):
    """One index into several axes together, counted row-major, from an index for each of them; -1 where one is out of range."""
    shape = _arrays_shape(arrays)
    total, wrong = None, None
    for axis, extent in extents.items():
        index = _wrapped(arrays[axis], extent)
        if isinstance(index, Array):
            outside = _core.logical_or(_core.less(index, 0), _core.greater_equal(index, extent))
            wrong = outside if wrong is None else _core.logical_or(wrong, outside)
        if total is None:
            total = index
        elif isinstance(total, int) and isinstance(index, int):
            total = total * extent + index
        else:
            total = _core.add(_core.multiply(total, extent), index) if isinstance(total, Array) else _core.add(index, total * extent)
    if not isinstance(total, Array):
        total = _core.full((), total or 0, _dtypes.int64, device)
    if wrong is not None and len(extents) > 1:
        total = _core.where(wrong, _core.full((), -1, _dtypes.int64, device), total)
    return _core.broadcast_to(total, shape)


def _get(x, selection):
    """The elements of x at the selection's arrays, ranges applied, in its layout."""
    arrays = selection.arrays
    axes = [axis for axis in arrays if axis is not None]
    cut = [entry if axis not in arrays else (0, x.shape[axis], 1) for axis, entry in enumerate(selection.ranges)]
    if any(entry != (0, extent, 1) for entry, extent in zip(cut, x.shape)):
        x = _core.slice(x, [_bounds(*entry) for entry in cut])
    rest = [axis for axis in range(x.ndim) if axis not in arrays]
    extents = {axis: x.shape[axis] for axis in axes}
    index = _combined(arrays, extents, x.device)
    if not axes or axes == list(range(axes[0], axes[0] + len(axes))):
        first = axes[0] if axes else 0
    else:
        x, first = _core.permute(x, axes + rest), 0
    inner = x.shape[first + len(axes) :]
    merged = _core.reshape(x, x.shape[:first] + (_math.prod(extents.values()),) + inner)
    taken = _core.take(merged, _core.reshape(index, (index.size,)), first)
    # taken: the rest's axes before `first`, one axis of looked-up elements, the other axes of the rest
    before = rest[:first]
    order = [axis for axis in selection.layout if axis is not None]
    places = before + [_ARRAYS] + rest[first:]
    if places != order:
        taken = _core.permute(taken, [places.index(axis) for axis in order])
    shape = []
    for one in selection.layout:
        if one is None:
            shape.append(1)
        elif one is _ARRAYS:
            shape.extend(index.shape)
        else:
            shape.append(cut[one][1])
    return _core.reshape(taken, tuple(shape))


def _select_mask(x, mask):
    """x[mask] for a mask of x's shape: one operation, and a wait for the number of elements."""
    values, count = _core.masked_select(x, mask)
    return _core.slice(values, ((0, int(count), 1),))


def _get_plain(x, key):
    """x[key] for a tuple of Python integers and slices, by the shortest way; None for other keys."""
    extents, ranges, shape = x.shape, [], []
    if len(key) > len(extents):
        return None
    for axis, item in enumerate(key):
        extent = extents[axis]
        if type(item) is int:
            index = _int_index(item, extent, axis)
            ranges.append((index, index + 1, 1))
        elif type(item) is slice:
            start, stop, step = item.indices(extent)
            count = len(range(start, stop, step))
            ranges.append(_bounds(start, count, step))
            shape.append(count)
        else:
            return None
    rest = len(extents) - len(key)
    part = _core.slice(x, ranges + [_EVERY] * rest)
    return part if len(shape) == len(key) else _core.reshape(part, tuple(shape) + extents[len(key) :])


def get(x, key):
    """x[key]. Blocks if the key has a mask."""
    plain = _get_plain(x, key if type(key) is tuple else (key,))
    if plain is not None:
        return plain
    if isinstance(key, Array) and key.dtype is _dtypes.boolean and key.shape == x.shape and key.ndim:
        return _select_mask(x, key)
    selection = _select(x, key)
    return _get(x, selection) if selection.arrays else _view(x, selection)


# ---- replacing ----


def _positions(x, selection):
    """The places in x, counted row-major, of the selected elements, in the selection's layout. int64."""
    strides = [_math.prod(x.shape[axis + 1 :]) for axis in range(x.ndim)]
    device, layout = x.device, selection.layout
    looked_up = _arrays_shape(selection.arrays) if selection.arrays else ()
    extents = [1 if one is None else len(looked_up) if one is _ARRAYS else selection.ranges[one][1] for one in layout]
    shape = []
    for one, extent in zip(layout, extents):
        shape.extend(looked_up if one is _ARRAYS else (extent,))
    constant, total = 0, None
    for axis, (start, count, step) in enumerate(selection.ranges):
        if axis in selection.arrays:
            continue
        constant += start * strides[axis]
        if not selection.dropped[axis] and count > 1:
            place = _place(layout, axis, looked_up)
            run = _core.arange(0, count * step * strides[axis], step * strides[axis], _dtypes.int64, device) if strides[axis] else None
            if run is not None:
                run = _core.reshape(run, (count,) + (1,) * (len(shape) - place - 1))
                total = run if total is None else _core.add(total, run)
    for axis, index in selection.arrays.items():
        if axis is None:
            continue
        index = _wrapped(index, x.shape[axis])
        if isinstance(index, int):
            constant += index * strides[axis]
            continue
        outside = _core.logical_or(_core.less(index, 0), _core.greater_equal(index, x.shape[axis]))
        # An index that the axis does not have becomes a place that x does not have, whatever is added to it.
        scaled = _core.where(outside, _core.full((), -4 * x.size - 1, _dtypes.int64, device), _core.multiply(index, strides[axis]))
        place = _place(layout, _ARRAYS, looked_up)
        behind = len(shape) - place - len(looked_up)
        scaled = _core.reshape(scaled, scaled.shape + (1,) * behind)
        total = scaled if total is None else _core.add(total, scaled)
    if total is None:
        total = _core.full((), constant, _dtypes.int64, device)
    elif constant:
        total = _core.add(total, constant)
    return _core.broadcast_to(total, tuple(shape))


def _place(layout, wanted, looked_up):
    """The place in the result's shape of an axis of the layout."""
    place = 0
    for one in layout:
        if one is wanted or (one is not _ARRAYS and wanted is not _ARRAYS and one == wanted):
            return place
        place += len(looked_up) if one is _ARRAYS else 1
    raise AssertionError("an axis that the layout does not have")


def value_for(x, value):
    """A value as an array of x's dtype, for a place in x. TypeError if it is of a higher kind than x's dtype."""
    if not isinstance(value, Array):
        if isinstance(value, (list, tuple, range)) or hasattr(value, "__array__") or hasattr(value, "__dlpack__"):
            value = asarray(value, device=x.device)
        else:
            value = _hostdata.scalar_of(value)
            if _dtypes.with_scalar(_dtypes.float64 if x.dtype in _dtypes.FLOAT8 else x.dtype, value) is not x.dtype:
                if x.dtype not in _dtypes.FLOAT8 or isinstance(value, complex):
                    raise TypeError(f"a {type(value).__name__} is no value of an array of {x.dtype.name}: use astype() first")
            return _core.full((), value, x.dtype, x.device)
    if value.dtype is x.dtype:
        return value
    if not _same_or_lower_kind(value.dtype, x.dtype):
        raise TypeError(f"an array of {x.dtype.name} has no place for one of {value.dtype.name}: use astype() first")
    return _core.cast(value, x.dtype)


def _same_or_lower_kind(dtype, into):
    rank = {"bool": 0, "integral": 1, "real floating": 2, "complex floating": 3}

    def of(one):
        return next((rank[kind] for kind in rank if one in _dtypes.KINDS[kind]), 2)

    return of(dtype) <= of(into)


def _scatter(operation, x, key, value):
    """x with the values put, or added, to the selected places."""
    selection = _select(x, key)
    places = _positions(x, selection)
    value = _fit(value, places.shape)
    if not places.size:
        return share(x)
    flat = operation(_core.reshape(x, (x.size,)), _core.reshape(places, (places.size,)), _core.reshape(value, (places.size,)), 0)
    return _core.reshape(flat, x.shape)


def _fit(value, shape):
    """The value, broadcast to a shape; as NumPy does, leading axes of extent 1 that are too many are left out."""
    while value.ndim > len(shape) and value.shape[0] == 1:
        value = _core.reshape(value, value.shape[1:])
    return _core.broadcast_to(value, shape)


def _mask_for(x, key):
    """A mask that broadcasts to x if the key is one, None otherwise."""
    if isinstance(key, tuple) and len(key) == 1:
        key = key[0]
    if isinstance(key, Array) and key.dtype is _dtypes.boolean and 0 < key.ndim <= x.ndim and key.shape == x.shape[: key.ndim]:
        return _core.reshape(key, key.shape + (1,) * (x.ndim - key.ndim))
    return None


def put(x, key, value):
    """A new array: x with x[key] replaced by the value. Blocks only for a mask with more than one value, or a mask among other items."""
    value = value_for(x, value)
    if value.ndim == 0 or value.size == 1:
        mask = _mask_for(x, key)
        if mask is not None:
            return _core.where(mask, _core.reshape(value, ()), x)
    if key is Ellipsis or (isinstance(key, slice) and key == slice(None) and x.ndim):
        return _core.copy(_fit(value, x.shape))
    return _scatter(_core.scatter, x, key, value)


def put_into(x, key, value):
    """x[key] = value: the object x takes the new array. The new one has the memory of the old one if nothing else uses that memory and the
    key is a mask, or has one array of integers at most, of rank 1, without other integers and slices; then nothing but the part
    is written. Blocks as put()."""
    value = value_for(x, value)
    mask = _mask_for(x, key)
    if mask is not None and not x.requires_grad and not value.requires_grad:
        if value.size == 1:
            _core.where_into([x], mask, _core.reshape(value, ()))
        else:
            _put_masked(x, key[0] if isinstance(key, tuple) else key, value)
        return
    if mask is None:
        key = tuple(_items(key, x))
        cuts = _cuts(x, key)
        if cuts:
            _put_lines(x, key, cuts, value)
            return
        if cuts == []:
            key = ...
    x._exchange(put(x, key, value))


def _put_masked(x, mask, value):
    """x[mask] = value by a scatter along the mask's axes, taken as one. Blocks until the number of true elements is known."""
    shape, rows, inner = x.shape, mask.size, x.shape[mask.ndim :]
    (places,) = _true_places(_core.reshape(mask, (rows,)))
    value = _fit(value, places.shape + inner)
    if not value.size:
        return
    places = _core.reshape(places, places.shape + (1,) * len(inner))
    if mask.ndim == 1:
        _core.scatter_into([x], places, value, 0)
        return
    lines = _core.reshape(x, (rows,) + inner)
    x._exchange(_core.full((), 0, x.dtype, x.device))  # the lines alone have the memory now, so that it is written
    try:
        _core.scatter_into([lines], places, value, 0)
    finally:
        x._exchange(_core.reshape(lines, shape))


def _cuts(x, key):
    """The axes of which a key's integers and slices, or its only array, select a part; None for other keys. The key has an item for each
    axis."""
    cuts, axis = [], 0
    for item in key:
        if item is Ellipsis:
            continue
        if item is None or _is_mask(item) or (isinstance(item, Array) and (item.ndim != 1 or not _dtypes.is_integer(item.dtype))):
            return None
        if not isinstance(item, slice) or item.indices(x.shape[axis]) != (0, x.shape[axis], 1):
            cuts.append(axis)
        axis += 1
    return None if len(cuts) > 1 and any(isinstance(item, Array) for item in key) else cuts


def _put_lines(x, key, cuts, value):
    """x[key] = value by a scatter along the first axis that is cut. If others are, too, its lines are copied, and the copy gets the value."""
    key = [item for item in key if item is not Ellipsis]
    axis = cuts[0]
    item, extent = key[axis], x.shape[axis]
    if isinstance(item, slice):
        start, stop, step = item.indices(extent)
        count = len(range(start, stop, step))
    elif isinstance(item, int):
        start, count, step = _int_index(item, extent, axis), 1, 1
    else:
        count = item.size
    shape = x.shape[:axis] + (count,) + x.shape[axis + 1 :]
    if len(cuts) > 1:
        whole = [slice(None)] * axis
        part = get(x, (*whole, item))
        rest = key[axis + 1 :] if isinstance(item, int) else [slice(None), *key[axis + 1 :]]
        value = put(part, (*whole, *rest), value)
        del part  # it uses x's memory
    else:
        value = _fit(value, shape[:axis] + shape[axis + 1 :] if isinstance(item, int) else shape)
    if not count or not x.size:
        return
    if isinstance(item, Array):
        places = _wrapped(item, extent)
    elif count == 1:
        places = _core.full((1,), start, _dtypes.int64, x.device)
    else:
        places = _core.arange(start, start + count * step, step, _dtypes.int64, x.device)
    places = _core.reshape(places, (1,) * axis + (count,) + (1,) * (x.ndim - axis - 1))
    value = _core.reshape(value, shape)
    if x.requires_grad or value.requires_grad:  # x itself remains an input of what was noted
        x._exchange(_core.scatter(x, places, value, axis))
    else:
        _core.scatter_into([x], places, value, axis)


def put_sum(x, key, value):
    """A new array: x with the value added to x[key], as often as the key names a place. Blocks for masks."""
    value = value_for(x, value)
    if x.dtype is _dtypes.boolean:
        raise TypeError("bools do not add up: set() replaces them")
    return _scatter(_core.scatter_add, x, key, value)


class At:
    """x.at: the way to new arrays in which a part of x is another one. x itself stays as it is.

        y = x.at[2:4].set(0)
        y = x.at[rows, columns].add(1)
    """

    __slots__ = ("_array",)

    def __init__(self, array):
        self._array = array

    def __getitem__(self, key):
        return AtKey(self._array, key)

    def __repr__(self):
        return "<x.at: use x.at[key].set(value) and its siblings>"


class AtKey:
    """x.at[key], with a method for each way to change that part. Values broadcast to the part's shape. Where integer arrays name one
    place several times, the last value stays; add() and subtract() use all of them."""

    __slots__ = ("_array", "_key")

    def __init__(self, array, key):
        self._array, self._key = array, key

    def get(self):
        """x[key]."""
        return get(self._array, self._key)

    def set(self, value):
        """x with x[key] = value."""
        return put(self._array, self._key, value)

    def add(self, value):
        """x with x[key] + value."""
        return put_sum(self._array, self._key, value)

    def subtract(self, value):
        """x with x[key] - value."""
        return put_sum(self._array, self._key, _core.negative(value_for(self._array, value)))

    def multiply(self, value):
        """x with x[key] · value."""
        return self._apply(_core.multiply, value)

    def divide(self, value):
        """x with x[key] / value, for floats and complex numbers."""
        return self._apply(_core.divide, value)

    def power(self, value):
        """x with x[key] to the power of the value."""
        return self._apply(_core.pow, value)

    def min(self, value):
        """x with the lesser of x[key] and the value."""
        return self._apply(_core.minimum, value)

    def max(self, value):
        """x with the greater of x[key] and the value."""
        return self._apply(_core.maximum, value)

    def apply(self, function):
        """x with function(x[key])."""
        return put(self._array, self._key, function(get(self._array, self._key)))

    def _apply(self, operation, value):
        value = value_for(self._array, value)
        return put(self._array, self._key, operation(get(self._array, self._key), value))


# ---- functions of the standard ----


def take(x, indices, /, *, axis=None) -> Array:
    """x's slices at the indices along an axis, which may be left out for rank 1. The indices are integers of rank 1; negative ones count
    from the end. An index that the axis does not have poisons the result with OutOfRangeError."""
    if axis is None:
        if array_given(x).ndim != 1:
            raise ValueError(f"take() of an array of rank {x.ndim} needs an axis")
        axis = 0
    axis = axis_of(axis, x)
    if not isinstance(indices, Array):
        indices = asarray(indices, device=x.device)
    flat = _core.reshape(_wrapped(indices, x.shape[axis]), (indices.size,))
    taken = _core.take(x, flat, axis)
    if indices.ndim == 1:
        return taken
    return _core.reshape(taken, x.shape[:axis] + indices.shape + x.shape[axis + 1 :])


def take_along_axis(x, indices, /, *, axis=-1) -> Array:
    """One element of x for each index along an axis: the indices have x's rank, and the other axes broadcast. Negative indices count
    from the end."""
    axis = axis_of(axis, x)
    return _core.take_along_axis(x, _wrapped(indices, x.shape[axis]), axis)
