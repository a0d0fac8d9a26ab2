"""Recorded programs in files and under names: td.save_program(), td.load_program(), td.publish_program() and td.open_program()."""

from __future__ import annotations

from os import fspath

from . import _core
from .programs import _Body, _split, function as _function

TYPE_CHECKING = False  # typing.TYPE_CHECKING, without the time that the import takes
if TYPE_CHECKING:
    from os import PathLike
    from typing import Any, Callable, Optional, Union

SavedProgram = _core.SavedProgram


def _program(what, function, args, kwargs):
    """The program of a function for arguments like these."""
    if isinstance(function, SavedProgram):
        if args or kwargs:
            raise TypeError(f"{what}(): a program that was loaded has its arguments already")
        return function
    if isinstance(function, _function):
        if getattr(function, "_state", None) is not None:
            raise TypeError(f"{what}(): a function with a state cannot be saved: make its arrays arguments and results")
        function = function._function
    arrays: list[_core.Array] = []
    _split((args, kwargs), arrays)
    return _Body(function, args, kwargs, arrays, arrays[0].device if arrays else _core.device()).program


def save_program(function: Union[Callable[..., Any], SavedProgram], path: Union[str, PathLike[str]], *args: Any, **kwargs: Any) -> None:
    """Records a function for arguments like these, and writes the program into a file.

    What the program takes are the arrays in the arguments, in their order; other arguments are what they are now. What it gives are the arrays in the
    result, in their order. Arrays that the function takes from elsewhere, such as the weights of a model, are in the file, too, with the values that they have now,
    and so are the sources of kernels that it launches (Device.compile()).
    tensorctl program dump shows what is in the file. `function` may also be a program that was loaded. Blocks until all of it has been written.

        td.save_program(model, "model.td", td.zeros((1, 28, 28)))
        model = td.load_program("model.td")
        y = model(x)

    Errors: as for td.function(); InvalidArgumentError if the file cannot be written."""
    _core._program_save(_program("save_program", function, args, kwargs), fspath(path))


def load_program(path: Union[str, PathLike[str]], device: Optional[Union[_core.Device, str]] = None) -> SavedProgram:
    """The program in a file that save_program() has written, or td_program_save() in C. It takes and gives arrays: y = program(x), or
    y, z = program(w, x) where there are more; its `parameters` and `results` tell their dtypes and shapes.

    The device may be of another kind than the one that it was saved on. Kernels in the file are compiled, and run with the rights of the daemon's process: look at those
    of files from others first, with tensorctl program dump. Blocks until the file has been read, and the kernels have been compiled.

    Errors: InvalidArgumentError for a file that cannot be read, is no program or is damaged; VersionError for one of a later version; for a kernel those of
    Device.compile(), with its name in the message."""
    return _core._program_load(fspath(path), device)


def publish_program(function: Union[Callable[..., Any], SavedProgram], name: str, *args: Any, **kwargs: Any) -> None:
    """Records a function for arguments like these, and gives the program a name, under which other programs of the same user open it. The memory of the arrays that
    it takes from elsewhere is shared with them. Otherwise as save_program(), but for kernels (UnsupportedError). Blocks until these arrays have been computed."""
    _core._program_publish(_program("publish_program", function, args, kwargs), name)


def open_program(name: str, device: Optional[Union[_core.Device, str]] = None) -> SavedProgram:
    """The program that publish_program() has given this name, on the same device. Only its definition comes over the connection. Blocks."""
    return _core._program_open(name, device)
