"""Derivatives: of functions, as in JAX (grad, value_and_grad, stop_gradient), and of what arrays that require gradients are used for, as in
PyTorch (x.requires_grad_(), y.backward(), x.grad, no_grad).

grad(f) calls f on shares of its arguments, and notes meanwhile what the thread enqueues; so f may change its arguments in place, and the caller's stay
as they are. Within f arrays that require gradients are arrays like all others.
"""

from __future__ import annotations

from . import _core
from . import dtypes as _dtypes
from . import trees as _trees
from .manipulation import share

TYPE_CHECKING = False  # typing.TYPE_CHECKING, without the time that the import takes
if TYPE_CHECKING:
    from typing import Any, Callable, Sequence, TypeVar, Union

    _Function = TypeVar("_Function", bound=Callable[..., Any])

Array = _core.Array


def _named_after(function, made):
    """What is made of a function has its name and its documentation."""
    for name in ("__name__", "__qualname__", "__doc__", "__module__"):
        if hasattr(function, name):
            setattr(made, name, getattr(function, name))
    made.__wrapped__ = function
    return made


def _variable(leaf):
    """An array that only the function has; a Python float is one, too."""
    if isinstance(leaf, float):
        return _core.asarray(leaf)
    if not isinstance(leaf, Array):
        raise TypeError(f"grad() is by arrays of floats, in dictionaries, lists and tuples, not by {type(leaf).__name__}: argnums says by which arguments")
    if not _dtypes.isdtype(leaf.dtype, ("real floating", "complex floating")):
        raise TypeError(f"grad() is by arrays of floats, not of {leaf.dtype.name}: argnums says by which arguments")
    return share(leaf)


def value_and_grad(
    function: Callable[..., Any], argnums: Union[int, Sequence[int]] = 0, has_aux: bool = False
) -> Callable[..., tuple[Any, Any]]:
    """A function with f's parameters that returns (f's result, its gradient).

    f returns a float array of rank 0; with `has_aux`, a tuple of that and of anything else, which is handed on. The gradient is by the positional
    argument with the number `argnums` (a tuple of gradients for several), which is an array of floats, or a tree of them: dictionaries, lists and tuples.
    It has the argument's structure, dtypes and shapes; it is 0 where the result does not depend on an array. Nothing waits."""
    several = not isinstance(argnums, int)
    numbers = tuple(argnums) if several else (argnums,)

    def differentiated(*args, **kwargs):
        args = list(args)
        for number in numbers:
            if not -len(args) <= number < len(args):
                raise TypeError(f"grad(): argnums has {number}, and there are {len(args)} positional arguments")
        _core._tape_begin()
        try:
            variables, structure = _trees.flatten([args[number] for number in numbers])
            variables = [_variable(leaf) for leaf in variables]
            # f's arguments are objects of their own: the variables stay what they are, whatever f assigns to its own.
            for number, tree in zip(numbers, _trees.unflatten(structure, [_core.reshape(one, one.shape) for one in variables])):
                args[number] = tree
            result = function(*args, **kwargs)
            value = _value(result, has_aux)
            gradients = _core._gradients(share(value), variables)  # a share is on the tape, whatever the value depends on
        finally:
            _core._tape_end()
        gradients = _trees.unflatten(structure, gradients)
        return result, tuple(gradients) if several else gradients[0]

    return _named_after(function, differentiated)


def _value(result, has_aux):
    value = result
    if has_aux:
        if not isinstance(result, tuple) or len(result) != 2:
            raise TypeError("grad(): with has_aux the function returns a tuple of a value and of what else is of interest")
        value = result[0]
    if not isinstance(value, Array):
        raise TypeError(f"grad(): the function returns an array of rank 0, not {type(value).__name__}" + ("" if has_aux else "; has_aux=True is for more results"))
    if value.shape != ():
        raise _core.ShapeError(f"grad(): the function returns an array of rank 0, not of the shape {value.shape}: sum it up")
    return value


def grad(function: Callable[..., Any], argnums: Union[int, Sequence[int]] = 0, has_aux: bool = False) -> Callable[..., Any]:
    """A function with f's parameters that returns the gradient of f; with `has_aux`, (gradient, what else f returned). See value_and_grad(). Since
    derivatives are arrays like others, grad(grad(f)) is the second one."""
    both = value_and_grad(function, argnums, has_aux)

    def differentiated(*args, **kwargs):
        result, gradient = both(*args, **kwargs)
        return (gradient, result[1]) if has_aux else gradient

    return _named_after(function, differentiated)


def stop_gradient(x: Any) -> Any:
    """The same elements as constants: no derivative goes through them. x is an array, or a tree of arrays. Does not block."""
    return _trees.map(lambda leaf: _core._stop_gradient(leaf) if isinstance(leaf, Array) else leaf, x)


class no_grad:
    """`with td.no_grad():`, or `@td.no_grad()` before a function: results are constants, for backward() and for grad(). It is the thread's."""

    __slots__ = ("_outer",)

    def __enter__(self) -> no_grad:
        self._outer = _core._no_grad_begin()
        return self

    def __exit__(self, *error: Any) -> None:
        _core._no_grad_end(self._outer)

    def __call__(self, function: _Function) -> _Function:
        def constant(*args, **kwargs):
            with no_grad():
                return function(*args, **kwargs)

        return _named_after(function, constant)
