"""Derivatives: of functions, as in JAX (grad, value_and_grad, stop_gradient), and of what arrays that require gradients are used for, as in
PyTorch (x.requires_grad_(), y.backward(), x.grad, no_grad).

grad(f) calls f on shares of its arguments, and notes meanwhile what the thread enqueues; so f may change its arguments in place, and the caller's stay
as they are. Within f arrays that require gradients are arrays like all others.
"""

from __future__ import annotations

from . import _core
from . import dtypes as _dtypes
from . import random as _random
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
    if isinstance(leaf, (float, complex)):
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
    It has the argument's structure, dtypes and shapes; it is 0 where the result does not depend on an array. By a complex number it is that by the real
    part and i times that by the imaginary part (PyTorch's convention; JAX's is its conjugate). Nothing waits."""
    several = not isinstance(argnums, int)
    numbers = (argnums,) if isinstance(argnums, int) else tuple(argnums)

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


# ---- rules of one's own ----


def _split(tree):
    """The arrays of a tree, and a function that puts others in their places."""
    leaves, structure = _trees.flatten(tree)
    places = [place for place, leaf in enumerate(leaves) if isinstance(leaf, Array)]

    def joined(arrays):
        mine = list(leaves)
        for place, array in zip(places, arrays):
            mine[place] = array
        return _trees.unflatten(structure, mine)

    return [leaves[place] for place in places], joined


def _gradients_of(given, args, name):
    """The gradients that a rule returned for the arguments, one for each array in them."""
    if not isinstance(given, (tuple, list)):
        given = (given,)
    if len(given) != len(args):
        raise ValueError(f"{name}: the rule returned {len(given)} gradients for {len(args)} arguments")
    result = []
    for gradient, arg in zip(given, args):
        arrays = _split(arg)[0]
        own = [None] * len(arrays) if gradient is None else [gradient] if isinstance(arg, Array) else _entries(gradient, arg)
        if len(own) != len(arrays):
            raise ValueError(f"{name}: the gradient of an argument has {len(own)} arrays, and the argument {len(arrays)}")
        result += own
    return result


def _entries(gradient, arg):
    """The gradient of each array of a tree, of which some may be None."""
    if isinstance(arg, dict):
        return [one for key, part in arg.items() for one in _entries(None if gradient is None else gradient[key], part)]
    if isinstance(arg, (list, tuple)):
        return [one for i, part in enumerate(arg) for one in _entries(None if gradient is None else gradient[i], part)]
    return [gradient] if isinstance(arg, Array) else []


def custom_vjp(function: Callable[..., Any]) -> _CustomVjp:
    """A function with a derivative of its own, as in JAX:

        @td.custom_vjp
        def f(x, y): …

        def forward(x, y):
            return f's result, residuals          # residuals: what the other one needs
        def backward(residuals, gradient):
            return gradient of x, gradient of y   # or None, for 0

        f.defvjp(forward, backward)

    Arguments and result are trees of arrays; other objects among the arguments stay what they are. The gradient has the result's structure, and None for arrays that
    are no floats. What `backward` computes is noted by tapes around, so there are second derivatives by the arguments, if they are used themselves; what `forward`
    has computed in between is a constant for these."""
    return _CustomVjp(function)


class _CustomVjp:
    def __init__(self, function):
        self._forward = self._backward = None
        _named_after(function, self)

    def defvjp(self, forward: Callable[..., Any], backward: Callable[..., Any]) -> None:
        self._forward, self._backward = forward, backward

    def __call__(self, *args):
        name = getattr(self, "__name__", "custom_vjp")
        if self._forward is None:
            raise TypeError(f"{name}() has no derivative yet: {name}.defvjp(forward, backward) gives it one")
        with no_grad():
            result, residuals = self._forward(*args)
        backward = self._backward
        return _noted(name, args, result, lambda gradient: backward(residuals, gradient))


def custom_gradient(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function with a derivative of its own, in one piece:

        @td.custom_gradient
        def f(x, y):
            result = …
            def backward(gradient):
                return gradient of x, gradient of y
            return result, backward

    All else as for custom_vjp()."""

    def differentiable(*args):
        with no_grad():
            result, backward = function(*args)
        return _noted(getattr(function, "__name__", "custom_gradient"), args, result, backward)

    return _named_after(function, differentiable)


def _noted(name, args, result, backward):
    inputs = _split(list(args))[0]
    outputs, joined = _split(result)
    if not inputs or not outputs:
        return result
    return joined(_core._custom(name, inputs, outputs, lambda gradients: _gradients_of(backward(joined(gradients)), args, name)))


def checkpoint(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that is computed again on the way back, of which only the arguments are kept and not what is in between: less memory, more time. It must
    compute the same again: the numbers of tensord.random and the elements that nn.Dropout leaves out are the same ones, and nn.BatchNorm's running statistics
    follow a batch once. Arguments and result are trees of arrays; arrays that it uses besides (a module's parameters) have gradients, too."""
    count = 1

    def computed_again(*args, **kwargs):
        nonlocal count
        inputs, joined = _split([list(args), kwargs])
        if not inputs:
            return function(*args, **kwargs)
        latest = []
        draws = _random._Draws()

        def run(arrays):
            args, kwargs = joined(arrays)
            outputs, build = _split(draws.run(lambda: function(*args, **kwargs)))
            latest[:] = [build]
            return outputs

        found = _core._checkpoint(run, inputs, count)
        if not isinstance(found, list):  # the function has another number of results
            if not found:
                return latest[0]([])
            count = found
            found = _core._checkpoint(run, inputs, count)
            if not isinstance(found, list):
                raise ValueError("checkpoint(): the function returned another number of arrays when it was called again")
        return latest[0](found)

    return _named_after(function, computed_again)
