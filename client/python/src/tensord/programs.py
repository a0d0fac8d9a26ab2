"""Recorded programs: td.function(), which records a Python function once and runs it as one operation from then on, and td.scan(), a loop in the daemon."""

from __future__ import annotations

import functools
import threading

from . import _core
from . import trees as _trees
from .derivatives import _named_after

TYPE_CHECKING = False  # typing.TYPE_CHECKING, without the time that the import takes
if TYPE_CHECKING:
    from typing import Any, Callable, Optional, Sequence, Union

Array = _core.Array

_thread = threading.local()
_STATIC = (int, float, complex, str, bytes)


def _recording():
    return getattr(_thread, "on", False)


def _split(tree, arrays):
    """What of a tree decides whether it fits a program: its structure, and its leaves that are no arrays. The arrays go to a list."""
    kind = type(tree)
    if kind is Array:
        arrays.append(tree)
        return Array
    if tree is None or isinstance(tree, _STATIC):
        # 0.0 equals -0.0, and NaN nothing.
        return kind, repr(tree) if isinstance(tree, complex) or (isinstance(tree, float) and (not tree or tree != tree)) else tree
    if isinstance(tree, dict):
        return kind, tuple(tree), tuple([_split(one, arrays) for one in tree.values()])
    if isinstance(tree, (list, tuple)):
        return kind, tuple([_split(one, arrays) for one in tree])
    try:
        hash(tree)
    except TypeError:
        raise TypeError(
            f"function(): an argument is a {kind.__name__}: arrays, numbers and strings are possible, in dictionaries, lists and tuples, and objects that hash()"
        ) from None
    return kind, tree


def _replaced(tree, arrays):
    """The tree with other arrays, in their order."""
    leaves, structure = _trees.flatten(tree)
    rest = iter(arrays)
    return _trees.unflatten(structure, [next(rest) if isinstance(leaf, Array) else leaf for leaf in leaves])


def _state_arrays(state):
    """The arrays of what a function may change: of modules, optimisers, and trees of these and of arrays. Each once."""
    found: list[Array] = []
    for leaf in _trees.leaves(state):
        if isinstance(leaf, Array):
            found.append(leaf)
        elif hasattr(leaf, "_recorded_state"):
            found += leaf._recorded_state()
        else:
            raise TypeError(f"function(): the state has a {type(leaf).__name__}: modules, optimisers and arrays are possible, in dictionaries, lists and tuples")
    return list({id(array): array for array in found}.values())


def _state_options(state):
    """What of a state decides what is recorded, and is no array: whether modules are trained, the rates of optimisers."""
    return [leaf._recorded_options() for leaf in _trees.leaves(state) if not isinstance(leaf, Array)]


class _Body:
    """A function that has been recorded for arguments of one kind."""

    __slots__ = ("program", "result", "only")

    def __init__(self, function, args, kwargs, arrays, device, given=(), state=()):
        """`arrays` have the dtypes and shapes of those in the arguments, of which those with the numbers `given` are given away. The function may change
        those of `state`."""
        values: list[Array] = []
        gradients = [one.grad for one in state]
        outside = _core._recording_begin()
        try:
            _core._record_begin(device)
            _thread.on = True
            try:
                parameters = [_core._record_parameter(one.dtype, one.shape, i in given) for i, one in enumerate(arrays)]
                _set_grads(state, [None] * len(state))
                values = [_core._record_parameter(one.dtype, one.shape, True) for one in state]
                _lend(state, values)
                args, kwargs = _replaced((args, kwargs), parameters)
                self.result = function(*args, **kwargs)
                results = [leaf for leaf in _trees.leaves(self.result) if isinstance(leaf, Array)]
                if not results and not state:
                    raise TypeError("function(): the function returns no array")
                if any([_core._grad_unread(one) for one in state]):
                    raise RuntimeError("function(): nobody uses the gradients of backward(), which last as long as a run: an optimiser's step() inside does")
                self.program = _core._record_end(results + list(state), given, len(state))
            except BaseException:
                _core._record_cancel()
                raise
            finally:
                _thread.on = False
                _set_grads(state, [None] * len(state))
                _lend(state, values)
                _set_grads(state, gradients)
        finally:
            _core._recording_end(outside)
        self.only = type(self.result) is Array
        # The recorded arrays have no value: only the structure and what is no array is kept.
        self.result = None if self.only else _replaced(self.result, [_PLACE] * len(results))

    def given(self, results):
        """The function's result, with the arrays of one run."""
        if self.only:
            return results[0]
        leaves, structure = _trees.flatten(self.result)
        rest = iter(results)
        return _trees.unflatten(structure, [next(rest) if leaf is _PLACE else leaf for leaf in leaves])


_PLACE = object()


def _set_grads(arrays, gradients):
    for array, gradient in zip(arrays, gradients):
        array.grad = gradient


def _lend(arrays, values):
    for array, value in zip(arrays, values):
        array._lend(value)


class function:
    """A function whose operations are recorded when it is called first, and then run in the daemon as one operation.

    `@td.function` before a function of arrays. It is recorded anew for each kind of arguments: for each structure of dictionaries, lists and tuples, each set
    of shapes, dtypes and device, and each value of the arguments that are no arrays (numbers, strings, None, other objects that hash()). The result
    is an array, or a tree with at least one; what is no array in it is what it was when the function was recorded.

    While it is recorded nothing runs: what looks at a value (print, float(x), bool(x), x.numpy(), `if x > 0`), uploads (td.asarray of host data) and copies to
    other devices raise InvalidArgumentError. Arrays that the function takes from elsewhere are captured: every run sees the value that
    they had then, and cannot change. What else the function does in Python happens only while it is recorded. Results have the bits of the same operations one by one, for which
    arguments that are transposed, or other views with gaps, have been copied: sums and products may add up the elements of a view in another order.
    td.grad() works inside; gradients do not go through a call. A recorded function that another one calls is a part of that.
    y.backward() works inside, too, by what is among the `state`: each run begins with gradients that are None, and they last as long as the run.

    `state` names what the function may change: modules, optimisers and arrays, in any tree. Each run begins with their values of then, and leaves the new ones
    in their memory, so a step of training needs no second copy of the model:

        @td.function(state=[model, optimiser])
        def step(x, y):
            loss, gradients = td.value_and_grad(loss_of)(dict(model.named_parameters()), x, y)
            optimiser.step(gradients)        # or loss.backward(), optimiser.step()
            return loss

    If an option of the state changes, the function is recorded anew: train() and eval() of a module, requires_grad of an array, the rate of an optimiser and its other options. For
    a rate that changes at each step, Adam and AdamW take an array (capturable=True), whose value of then each run has.

    `donate_argnums`, a number or several, says which positional arguments are given away, as in jax.jit: their memory may become a result's, and their
    arrays have no value afterwards.

    Errors: TypeError for an argument that cannot be told apart, or a result without arrays. Does not block."""

    def __new__(cls, function: Optional[Callable[..., Any]] = None, **options: Any) -> Any:
        if function is None:
            return functools.partial(cls, **options)
        return super().__new__(cls)

    def __init__(self, function: Callable[..., Any], *, donate_argnums: Union[int, Sequence[int]] = (), state: Any = None) -> None:
        self._function = function
        self._bodies: dict[Any, _Body] = {}
        self._donated = (donate_argnums,) if isinstance(donate_argnums, int) else tuple(donate_argnums)
        self._state = state
        self._types: Any = None
        if any(not isinstance(number, int) or number < 0 for number in self._donated):
            raise ValueError(f"function(): donate_argnums has numbers from 0, not {donate_argnums}")
        _state_arrays(state)
        _named_after(function, self)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if _recording():
            return self._function(*args, **kwargs)
        arrays: list[Array] = []
        key: tuple[Any, ...] = (_split(args, arrays), _split(kwargs, arrays) if kwargs else None)
        key += tuple([(one.dtype, one.shape) for one in arrays])
        state = () if self._state is None else self._state_now()
        device = arrays[0].device if arrays else state[0].device if state else _core.device()
        body = self._bodies.get((device, key))
        if body is None:
            body = self._bodies[device, key] = _Body(self._function, args, kwargs, arrays, device, self._given(args), state)
        return body.given(body.program.run(arrays + state if state else arrays))

    def _given(self, args):
        """The numbers of the arrays in the arguments that are given away."""
        for number in self._donated:
            if number >= len(args):
                raise TypeError(f"function(): donate_argnums has {number}, and there are {len(args)} positional arguments")
        numbers, place = [], 0
        for number, arg in enumerate(args):
            count = len([leaf for leaf in _trees.leaves(arg) if isinstance(leaf, Array)])
            if number in self._donated:
                numbers += range(place, place + count)
            place += count
        return numbers

    def _state_now(self):
        """The arrays of the state. If they are others than they were, or options of the state are, what has been recorded is forgotten."""
        arrays = _state_arrays(self._state)
        types = [(id(one), one.dtype, one.shape, one.requires_grad) for one in arrays], _state_options(self._state)
        if types != self._types:
            self._bodies.clear()
            self._types = types
        return arrays

    def __get__(self, instance, owner=None):
        if instance is None:
            return self
        return lambda *args, **kwargs: self(instance, *args, **kwargs)

    def clear(self) -> None:
        """Forgets what has been recorded."""
        self._bodies.clear()


def scan(
    f: Callable[[Any, Any], tuple[Any, Any]], init: Any, xs: Any = None, length: Optional[int] = None
) -> tuple[Any, Any]:
    """A loop in the daemon, which one message starts: carry, y = f(carry, x) for each x along the first axis of xs. Returns the last carry, and all y, stacked
    along a new first axis.

    init, xs and y are arrays or trees of arrays; xs may be None with a `length`, and y None. The carry that f returns has the structure, shapes and dtypes of init; it
    may be None, too, if f is a td.function with a `state`, which goes from one iteration to the next. f is recorded as by td.function(), each time that scan() is
    called, unless it is a td.function, which keeps what it has recorded; with 0 in its donate_argnums, init is given away. At least one iteration. If an iteration fails, all results have its failure, which tells its number. In a
    function that is recorded the operations of all iterations become a part of that. Does not block. The same as jax.lax.scan."""
    owner = f if isinstance(f, function) else function(f)
    carry: list[Array] = []
    slices: list[Array] = []
    key: tuple[Any, ...] = ("scan", _split(init, carry), _split(xs, slices))
    recording = _recording()
    state: Sequence[Array] = () if owner._state is None or recording else owner._state_now()
    if not carry and not slices and not state:
        raise TypeError("scan(): neither init nor xs has an array")
    lengths: set[Any] = {one.shape[0] if one.ndim else None for one in slices}
    if length is not None:
        lengths.add(length)
    if len(lengths) != 1 or None in lengths:
        raise ValueError(f"scan(): the arrays of xs have one length along their first axis, not {sorted(map(str, lengths))}")
    (times,) = lengths
    if times < 1:
        raise ValueError("scan(): a loop has at least one iteration")
    if recording:
        return _unrolled(_checked(owner._function, init), init, xs, times)
    key += tuple([(one.dtype, one.shape) for one in carry]) + tuple([(one.dtype, one.shape[1:]) for one in slices])
    device = (carry or slices or state)[0].device
    body = owner._bodies.get((device, key))
    if body is None:
        given = range(len(carry)) if 0 in owner._donated else ()
        body = owner._bodies[device, key] = _Body(_checked(owner._function, init), (init, xs), {}, _shapes(carry, slices), device, given, state)
    results = body.program.repeat(
        carry + slices + list(state),
        times,
        range(len(carry)),
        range(len(carry), len(carry) + len(slices)),
        range(len(carry), _count(body.result)),
    )
    return body.given(results)


def _unrolled(step, carry, xs, times):
    ys = []
    for i in range(times):
        carry, y = step(carry, _trees.map(lambda one: one[i], xs))
        ys.append(y)
    return carry, _trees.map(lambda *ones: _core.stack(list(ones), 0) if type(ones[0]) is Array else ones[-1], *ys)


def _count(tree):
    return len([leaf for leaf in _trees.leaves(tree) if leaf is _PLACE])


class _Shape:
    """A parameter's dtype and shape."""

    def __init__(self, dtype, shape):
        self.dtype, self.shape = dtype, shape


def _shapes(carry, slices):
    return [_Shape(one.dtype, one.shape) for one in carry] + [_Shape(one.dtype, one.shape[1:]) for one in slices]


def _checked(f, init):
    """f as a body of scan(): its carry is of init's kind."""

    def step(carry, x):
        result = f(carry, x)
        if not isinstance(result, tuple) or len(result) != 2:
            raise TypeError("scan(): f returns a pair of the next carry and of y")
        before: list[Array] = []
        after: list[Array] = []
        if _split(init, before) != _split(result[0], after):
            raise TypeError("scan(): the carry that f returns has another structure than init")
        for old, new in zip(before, after):
            if old.dtype != new.dtype or old.shape != new.shape:
                raise TypeError(f"scan(): the carry that f returns has an array of {new.dtype} {new.shape}, where init has {old.dtype} {old.shape}")
        return result

    return step
