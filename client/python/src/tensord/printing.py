"""What repr() and format() show of an array. Large arrays are not fetched: a preview of them is cut out on the device."""

from . import _core
from . import dtypes as _dtypes

# Above this many elements, three at each end of an axis are shown.
WHOLE = 1000
EDGE = 3


def _preview(x):
    """x with only the first and last elements of long axes; and for each axis whether some are left out."""
    if x.size <= WHOLE:
        return x, (False,) * x.ndim
    cut = tuple(extent > 2 * EDGE + 1 for extent in x.shape)
    for axis, is_cut in enumerate(cut):
        if is_cut:
            every = ((None, None, 1),)
            first = _core.slice(x, every * axis + ((0, EDGE, 1),) + every * (x.ndim - axis - 1))
            last = _core.slice(x, every * axis + ((-EDGE, None, 1),) + every * (x.ndim - axis - 1))
            x = _core.concat([first, last], axis)
    return x, cut


def _number(dtype):
    """A function that writes a number of this dtype with the digits that it has."""
    if dtype is _dtypes.boolean or _dtypes.is_integer(dtype):
        return str
    digits = {_dtypes.float64: 16, _dtypes.float32: 8}.get(_dtypes.real_of(dtype), 4)

    def write(value):
        text = repr(value) if digits == 16 else f"{value:.{digits}g}"
        if text.isdigit() or text[:1] == "-" and text[1:].isdigit():
            text += "."
        return text[:-1] if text.endswith(".0") else text

    if not _dtypes.is_complex(dtype):
        return write

    def write_complex(value):
        imag = write(value.imag)
        return f"{write(value.real)}{'' if imag[0] == '-' else '+'}{imag}j"

    return write_complex


def _texts(values, write):
    if isinstance(values, list):
        return [_texts(value, write) for value in values]
    return write(values)


def _width(texts):
    if isinstance(texts, list):
        return max(map(_width, texts), default=0)
    return len(texts)


def _lay_out(texts, width, cut, indent):
    if not isinstance(texts, list):
        return texts.rjust(width)
    items = [_lay_out(item, width, cut[1:], indent + 1) for item in texts]
    if cut[0]:
        items.insert(EDGE, "…")
    if len(cut) == 1:
        return "[" + _wrap(items, indent + 1) + "]"
    return "[" + ("," + "\n" * (len(cut) - 1) + " " * (indent + 1)).join(items) + "]"


def _wrap(items, indent, columns=100):
    lines, line = [], ""
    for item in items:
        if line and indent + len(line) + len(item) + 2 > columns:
            lines.append(line)
            line = ""
        line = f"{line}, {item}" if line else item
    return (",\n" + " " * indent).join(lines + [line])


def represent(x):
    """repr(x): its elements, or a preview of a large array, with dtype and device. Blocks until these have been computed. An array
    whose computation has failed, or whose device is gone, shows the failure instead of raising it."""
    try:
        tail = f"dtype={x.dtype.name}, device='{x.device.name}')"
    except _core.Error as error:
        return f"<tensord.Array: {error}>"
    if not x.size:
        return f"tensord.Array([], shape={x.shape}, {tail}"
    try:
        shown, cut = _preview(x)
        values = shown.tolist()
    except _core.Error as error:
        return f"<tensord.Array of shape {x.shape}, {tail[:-1]}: {type(error).__name__}: {error}>"
    texts = _texts(values, _number(x.dtype))
    start = "tensord.Array("
    body = _lay_out(texts, _width(texts), cut, len(start))
    shape = f"shape={x.shape}, " if any(cut) else ""
    return f"{start}{body}, {shape}{tail}"
