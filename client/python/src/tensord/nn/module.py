"""Modules: parts of a network that own parameters, with PyTorch's names.

A parameter is an array that requires a gradient, and a buffer one that does not, but belongs to the state. Both are attributes; what changes them (a step of an
optimiser, batch normalisation, load_state_dict(), to()) gives these same array objects other values. So a module is used in both ways:

    loss = criterion(model(x), y)                       # as in PyTorch
    loss.backward()
    optimiser.step()

    def loss(parameters, x, y):                         # as a function of its parameters
        return criterion(functional_call(model, parameters, x), y)
    value, gradients = td.value_and_grad(loss)(dict(model.named_parameters()), x, y)
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any, Callable, Iterable, Iterator, Mapping, Optional, TypeVar, Union

from .. import _core
from ..array import Array
from ..derivatives import no_grad
from ..manipulation import share

Self = TypeVar("Self", bound="Module")
ListedSelf = TypeVar("ListedSelf", bound="_Listed")


def Parameter(data: Array, requires_grad: bool = True) -> Array:
    """The array itself, which then requires a gradient: a module that gets it as an attribute registers it."""
    return data.requires_grad_(requires_grad)


class Module:
    """A part of a network. A subclass calls super().__init__() before it sets attributes, and defines forward()."""

    training: bool

    def __init__(self) -> None:
        fields = self.__dict__
        fields["_parameters"], fields["_buffers"], fields["_modules"] = {}, {}, {}
        fields["_transient"] = set()  # names of buffers that are not in state_dict()
        fields["training"] = True

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} has no forward()")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.forward(*args, **kwargs)

    # ---- attributes ----

    def __setattr__(self, name: str, value: Any) -> None:
        fields = self.__dict__
        if "_parameters" not in fields:
            raise AttributeError(f"{type(self).__name__}.__init__() has to call super().__init__() before it sets attributes")
        kinds = (fields["_parameters"], fields["_buffers"], fields["_modules"])
        if isinstance(value, Module):
            wanted = kinds[2]
        elif isinstance(value, Array) and value.requires_grad and value.is_leaf:
            wanted = kinds[0]
        else:  # a buffer or a parameter may get another array, or None
            wanted = next((kind for kind in kinds[:2] if name in kind and (value is None or isinstance(value, Array))), None)
        for kind in kinds:
            if kind is not wanted:
                kind.pop(name, None)
        if wanted is None:
            fields[name] = value
        else:
            fields.pop(name, None)
            wanted[name] = value

    def __getattr__(self, name: str) -> Any:
        for kind in ("_parameters", "_buffers", "_modules"):
            found = self.__dict__.get(kind, {})
            if name in found:
                return found[name]
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    def __delattr__(self, name: str) -> None:
        for kind in ("_parameters", "_buffers", "_modules"):
            if name in self.__dict__[kind]:
                del self.__dict__[kind][name]
                return
        super().__delattr__(name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self._parameters, *self._buffers, *self._modules})

    def register_parameter(self, name: str, parameter: Optional[Array]) -> None:
        """Adds a parameter, which may be None: then it is none, but a name."""
        self.__dict__.pop(name, None)
        self._parameters[name] = parameter

    def register_buffer(self, name: str, array: Optional[Array], persistent: bool = True) -> None:
        """Adds an array that belongs to the state, and has no gradient; one that is not persistent is not in state_dict()."""
        self.__dict__.pop(name, None)
        self._buffers[name] = array
        (self._transient.discard if persistent else self._transient.add)(name)

    def add_module(self, name: str, module: Optional[Module]) -> None:
        self.__dict__.pop(name, None)
        self._modules[name] = module

    # ---- what it has ----

    def _all_modules(self) -> list[Module]:
        """This module and all within it, each once, in no promised order. Each call of a recorded function asks, so this goes through them by itself."""
        found: dict[int, Module] = {}
        rest: list[Module] = [self]
        while rest:
            module = rest.pop()
            if id(module) not in found:
                found[id(module)] = module
                rest += [child for child in module._modules.values() if child is not None]
        return list(found.values())

    def _recorded_state(self) -> list[Array]:
        """What a recorded function may change."""
        return [
            array
            for module in self._all_modules()
            for arrays in (module._parameters, module._buffers)
            for array in arrays.values()
            if array is not None
        ]

    def _recorded_options(self) -> Any:
        """What else decides what is recorded."""
        return [module.training for module in self._all_modules()]

    def named_modules(self, prefix: str = "") -> Iterator[tuple[str, Module]]:
        """This module and all within it, each once."""
        known: set[int] = set()

        def walk(module: Module, name: str) -> Iterator[tuple[str, Module]]:
            if id(module) in known:
                return
            known.add(id(module))
            yield name, module
            for key, child in module._modules.items():
                if child is not None:
                    yield from walk(child, f"{name}.{key}" if name else key)

        return walk(self, prefix)

    def modules(self) -> Iterator[Module]:
        return (module for _, module in self.named_modules())

    def children(self) -> Iterator[Module]:
        return (module for module in self._modules.values() if module is not None)

    def named_children(self) -> Iterator[tuple[str, Module]]:
        return ((name, module) for name, module in self._modules.items() if module is not None)

    def _named(self, kind: str, recurse: bool, prefix: str = "") -> Iterator[tuple[str, Array]]:
        known: set[int] = set()
        for path, module in self.named_modules(prefix) if recurse else [(prefix, self)]:
            for name, array in getattr(module, kind).items():
                if array is not None and id(array) not in known:
                    known.add(id(array))
                    yield (f"{path}.{name}" if path else name), array

    def named_parameters(self, prefix: str = "", recurse: bool = True) -> Iterator[tuple[str, Array]]:
        """(name, array) of each parameter; one that several modules share comes once, under its first name."""
        return self._named("_parameters", recurse, prefix)

    def parameters(self, recurse: bool = True) -> Iterator[Array]:
        return (array for _, array in self.named_parameters(recurse=recurse))

    def named_buffers(self, prefix: str = "", recurse: bool = True) -> Iterator[tuple[str, Array]]:
        return self._named("_buffers", recurse, prefix)

    def buffers(self, recurse: bool = True) -> Iterator[Array]:
        return (array for _, array in self.named_buffers(recurse=recurse))

    # ---- what changes it ----

    def train(self: Self, mode: bool = True) -> Self:
        """Says to all modules within whether they are trained: dropout and batch normalisation look at it."""
        for module in self.modules():
            module.__dict__["training"] = mode
        return self

    def eval(self: Self) -> Self:
        return self.train(False)

    def requires_grad_(self: Self, requires_grad: bool = True) -> Self:
        for parameter in self.parameters():
            parameter.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        zero_grad(self.parameters(), set_to_none)

    def apply(self: Self, function: Callable[[Module], Any]) -> Self:
        """Calls function(module) for all modules within, and for this one at last."""
        for module in reversed(list(self.modules())):
            function(module)
        return self

    def to(self: Self, device: Any = None, dtype: Any = None) -> Self:
        """Moves all parameters and buffers to a device, and gives the floating ones a dtype. The array objects stay, so optimisers know them."""
        if isinstance(device, _core.DType) or (isinstance(device, str) and device in _core.dtypes):
            device, dtype = None, device
        device = None if device is None else _core.device(device)
        known: set[int] = set()
        for array in [*self.parameters(), *self.buffers()]:
            for each in (array, array.grad):
                if each is not None and id(each) not in known:
                    known.add(id(each))
                    _move(each, device, dtype)
        return self

    def float(self: Self) -> Self:
        return self.to(dtype=_core.float32)

    def double(self: Self) -> Self:
        return self.to(dtype=_core.float64)

    def half(self: Self) -> Self:
        return self.to(dtype=_core.float16)

    def bfloat16(self: Self) -> Self:
        return self.to(dtype=_core.bfloat16)

    # ---- its state ----

    def _named_state(self, prefix: str = "") -> Iterator[tuple[str, Array]]:
        """PyTorch's order: each module's parameters, its buffers, and then the modules within it."""
        for name, array in self._parameters.items():
            if array is not None:
                yield prefix + name, array
        for name, array in self._buffers.items():
            if array is not None and name not in self._transient:
                yield prefix + name, array
        for name, module in self._modules.items():
            if module is not None:
                yield from module._named_state(f"{prefix}{name}.")

    def state_dict(self) -> dict[str, Array]:
        """Parameters and buffers under PyTorch's names, with the values that they have now: later steps do not show in them. td.save_file() writes
        such a dictionary."""
        return {name: array.detach() for name, array in self._named_state()}

    def load_state_dict(self, state: Mapping[str, Any], strict: bool = True) -> tuple[list[str], list[str]]:
        """Gives parameters and buffers these values, which are arrays or what asarray() takes: dtypes and devices stay. Returns the names that the state
        lacks, and those that nobody has; with `strict` both are a KeyError. ValueError for another shape; then nothing has changed."""
        own = dict(self._named_state())
        missing = [name for name in own if name not in state]
        unexpected = [name for name in state if name not in own]
        if strict and (missing or unexpected):
            raise KeyError(f"load_state_dict(): the state lacks {missing or 'nothing'}, and has {unexpected or 'nothing'} that the module does not have")
        values = {name: _value_for(array, state[name], name) for name, array in own.items() if name in state}
        with no_grad():
            for name, value in values.items():
                own[name]._exchange(value)
        return missing, unexpected

    # ---- how it is shown ----

    def extra_repr(self) -> str:
        """What repr() says within the parentheses of a module without others."""
        return ""

    def __repr__(self) -> str:
        lines = [f"  ({name}): " + repr(module).replace("\n", "\n  ") for name, module in self._modules.items()]
        more = self.extra_repr()
        if not lines:
            return f"{type(self).__name__}({more})"
        return f"{type(self).__name__}(\n" + "\n".join(([f"  {more}"] if more else []) + lines) + "\n)"


def _move(array: Array, device: Any, dtype: Any) -> None:
    with no_grad():
        moved = array
        if device is not None and device is not array.device:
            moved = _core.copy_to(array, device)
        if dtype is not None and moved.dtype is not dtype and moved.dtype.kind == "real floating":
            moved = _core.cast(moved, dtype)
        if moved is not array:
            array._exchange(moved)


def _value_for(array: Array, value: Any, name: str) -> Array:
    from ..creation import asarray

    with no_grad():
        if not isinstance(value, Array):
            value = asarray(value, device=array.device)
        if value.shape != array.shape:
            raise ValueError(f"load_state_dict(): {name} has the shape {array.shape}, and its value {value.shape}")
        if value.device is not array.device:
            value = _core.copy_to(value, array.device)
        return _core.cast(value, array.dtype) if value.dtype is not array.dtype else share(value)


def zero_grad(parameters: Iterable[Array], set_to_none: bool = True) -> None:
    """The gradients become None, or zeros."""
    for parameter in parameters:
        if set_to_none or parameter.grad is None:
            parameter.grad = None
        else:
            parameter.grad = _core.full(parameter.shape, 0.0, parameter.dtype, parameter.device)


@contextmanager
def _replaced(module: Module, arrays: Mapping[str, Array]) -> Iterator[None]:
    """The module has other arrays as parameters and buffers meanwhile."""
    modules = dict(module.named_modules())
    places = []
    for path, array in arrays.items():
        prefix, _, name = path.rpartition(".")
        owner = modules.get(prefix)
        kind = next((kind for kind in (owner._parameters, owner._buffers) if kind.get(name) is not None), None) if owner else None
        if kind is None:
            raise KeyError(f"functional_call(): the module has no parameter or buffer {path}")
        places.append((kind[name], array))
    # One that several modules share is replaced in all of them.
    others = {id(old): new for old, new in places}
    changed = []
    for each in modules.values():
        for kind in (each._parameters, each._buffers):
            for name, old in kind.items():
                if id(old) in others:
                    changed.append((kind, name, old))
    try:
        for kind, name, old in changed:
            kind[name] = others[id(old)]
        yield
    finally:
        for kind, name, old in changed:
            kind[name] = old


def functional_call(
    module: Module, parameters: Mapping[str, Array], args: Union[Any, tuple[Any, ...]] = (), kwargs: Optional[Mapping[str, Any]] = None
) -> Any:
    """module(*args, **kwargs) with other parameters and buffers: a dictionary by name, in which those that stay may lack. Other threads must not use the
    module meanwhile. One argument that is no tuple may stand for itself."""
    with _replaced(module, parameters):
        return module(*(args if isinstance(args, tuple) else (args,)), **(kwargs or {}))


class _Listed(Module):
    """Modules in order, whose names are numbers unless they have others."""

    def append(self: ListedSelf, module: Module) -> ListedSelf:
        self.add_module(str(len(self._modules)), module)
        return self

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Module]:
        return iter(self._modules.values())


class Sequential(_Listed):
    """One module after another: Sequential(a, b), or Sequential({"first": a, "second": b})."""

    def __init__(self, *modules: Any) -> None:
        super().__init__()
        if len(modules) == 1 and isinstance(modules[0], Mapping):
            named: Iterable[tuple[str, Module]] = modules[0].items()
        else:
            named = ((str(i), module) for i, module in enumerate(modules))
        for name, module in named:
            self.add_module(name, module)

    def forward(self, x: Any) -> Any:
        for module in self._modules.values():
            x = module(x)
        return x

    def __getitem__(self, index: Union[int, slice]) -> Any:
        modules = list(self._modules.values())
        return Sequential(*modules[index]) if isinstance(index, slice) else modules[index]


class ModuleList(_Listed):
    """A list of modules."""

    def __init__(self, modules: Iterable[Module] = ()) -> None:
        super().__init__()
        for module in modules:
            self.append(module)

    def __getitem__(self, index: int) -> Module:
        return list(self._modules.values())[index]
