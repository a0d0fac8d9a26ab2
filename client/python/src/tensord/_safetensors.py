"""Files of named arrays, in the safetensors format: https://github.com/huggingface/safetensors.

8 bytes with the length of the header (little-endian); the header, a JSON object from names to {"dtype", "shape", "data_offsets"}; and
the arrays' bytes, row-major, one array after the other.
"""
import json
import mmap
import os
import tempfile

from . import _core

_DTYPES = {"BOOL": "bool", "U8": "uint8", "U16": "uint16", "U32": "uint32", "U64": "uint64", "I8": "int8", "I16": "int16", "I32": "int32",
           "I64": "int64", "F16": "float16", "BF16": "bfloat16", "F32": "float32", "F64": "float64", "C64": "complex64",
           "C128": "complex128", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2"}
_NAMES = {name: key for key, name in _DTYPES.items()}
_HEADER_MAX = 100 << 20


def _check(arrays, metadata):
    for name, x in arrays.items():
        if not isinstance(x, _core.Array):
            raise TypeError(f"save_file(): {name!r} is a {type(x).__name__}, and no array of tensord")
        if not isinstance(name, str):
            raise TypeError(f"save_file(): a name is a text, not {name!r}")
        if name == "__metadata__":
            raise ValueError("save_file(): no array has the name __metadata__, which the format has for the file's own texts")
    for key, value in (metadata or {}).items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise TypeError(f"save_file(): metadata has texts alone, not {key!r}: {value!r}")


def save_file(arrays, path, metadata=None):
    """Writes a dict of arrays into a new file, which takes the place of an old one when it is complete. Blocks until the arrays have been
    computed and fetched, one after another. `metadata` is a dict of texts. TypeError or ValueError for names and values that the format does not have."""
    _check(arrays, metadata)
    header, offset = {"__metadata__": metadata} if metadata else {}, 0
    for name, x in sorted(arrays.items(), key=lambda entry: -entry[1].dtype.itemsize):  # so all are aligned
        header[name] = {"dtype": _NAMES[x.dtype.name], "shape": list(x.shape), "data_offsets": [offset, offset + x.nbytes]}
        offset += x.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    folder, name = os.path.split(os.path.abspath(os.fspath(path)))
    descriptor, temporary = tempfile.mkstemp(prefix=f".{name}.", dir=folder)
    try:
        with open(descriptor, "wb") as file:
            file.write(len(text).to_bytes(8, "little") + text)
            for key in header:
                if key != "__metadata__":
                    memory = bytearray(arrays[key].nbytes)
                    arrays[key].fetch_into(memory)
                    file.write(memory)
            file.flush()
            os.fsync(file.fileno())
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(temporary, 0o666 & ~mask)
        os.replace(temporary, os.path.join(folder, name))
    except BaseException:
        os.unlink(temporary)
        raise


def _header(memory, path):
    """The header, and where the bytes begin."""
    length = int.from_bytes(memory[:8], "little")
    if len(memory) < 8 or length > min(_HEADER_MAX, len(memory) - 8):
        raise ValueError(f"{path}: no file in the safetensors format: its header is longer than the file")
    try:
        header = json.loads(bytes(memory[8:8 + length]))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: no file in the safetensors format: {error}") from None
    if not isinstance(header, dict):
        raise ValueError(f"{path}: no file in the safetensors format: its header is no object")
    return header, 8 + length


def load_file(path, device=None):
    """Reads a file: a dict of arrays on the device. Blocks until most of it is sent."""
    with open(path, "rb") as file:
        if not os.fstat(file.fileno()).st_size:
            raise ValueError(f"{path}: no file in the safetensors format: it is empty")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped, memoryview(mapped) as memory:
            header, start = _header(memory, path)
            arrays = {}
            for name, entry in header.items():
                if name == "__metadata__":
                    continue
                try:
                    begin, end = entry["data_offsets"]
                    if not 0 <= begin <= end <= len(memory) - start:
                        raise ValueError("its bytes are not in the file")
                    with memory[start + begin:start + end] as part:
                        arrays[name] = _core.from_buffer(part, _DTYPES[entry["dtype"]], entry["shape"], device)
                except (KeyError, TypeError, ValueError) as error:
                    raise ValueError(f"{path}: {name!r}: {error}") from None
            return arrays


def metadata(path):
    """The texts that a file has about itself, a dict."""
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header, _ = _header(memoryview(length.to_bytes(8, "little") + file.read(min(length, _HEADER_MAX))), path)
    return header.get("__metadata__", {})
