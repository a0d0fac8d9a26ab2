"""Optimisers and schedules of their rates, with the definitions and names of torch.optim.

    optimiser = td.optim.Adam(model.parameters(), lr=1e-3)
    loss.backward()
    optimiser.step()                 # by each parameter's grad

    value, gradients = td.value_and_grad(f)(parameters)
    optimiser.step(gradients)        # or by gradients that are given, in a tree of the same order

A step is one operation for all parameters of a group, which writes into the memory of parameters and state. In a recorded function, among whose `state` the optimiser
is, the number of steps is an array, so that it counts on from run to run, and the steps of Adam are made of operations on arrays from then on: the same formulas, with
roundings of their own. With `capturable=True` (Adam, AdamW) that is so from the beginning; lr may then be an array, too.
"""

from __future__ import annotations

import math
from typing import Any, Callable, Iterable, Mapping, Optional, Union

from . import _core
from . import trees as _trees
from .array import Array
from .derivatives import no_grad

Parameters = Union[Iterable[Array], Iterable[tuple[str, Array]], Iterable[dict[str, Any]], Mapping[str, Array]]


def _zeros(x: Array) -> Array:
    return _core.full(x.shape, 0.0, x.dtype, x.device)


def _as_groups(parameters: Parameters) -> list[dict[str, Any]]:
    if isinstance(parameters, Array):
        raise TypeError("an optimiser takes parameters in a list, a dictionary or an iterator, and not one array")
    entries: list[Any] = list(parameters.values()) if isinstance(parameters, Mapping) else list(parameters)
    if not entries:
        raise ValueError("an optimiser without parameters")
    if isinstance(entries[0], dict):
        return [{**group, "params": _arrays(group["params"])} for group in entries]
    return [{"params": _arrays(entries)}]


def _arrays(entries: Any) -> list[Array]:
    values = entries.values() if isinstance(entries, Mapping) else [entries] if isinstance(entries, Array) else entries
    arrays = [entry[1] if isinstance(entry, tuple) else entry for entry in values]
    for each in arrays:
        if not isinstance(each, Array):
            raise TypeError(f"an optimiser takes arrays, not {type(each).__name__}")
    return arrays


class Optimizer:
    """What all have in common: groups of parameters (`param_groups`, dictionaries with "params", "lr" and the other options) and their state."""

    _state_names: tuple[str, ...] = ()  # of arrays with a parameter's shape, which begin as zeros

    def __init__(self, params: Parameters, defaults: dict[str, Any]) -> None:
        self.defaults = defaults
        self.param_groups: list[dict[str, Any]] = []
        self.state: dict[int, dict[str, Any]] = {}  # by the parameter's place among all parameters
        self._inside = _core._records()  # made by a function that is recorded
        for group in _as_groups(params):
            self.add_param_group(group)

    def add_param_group(self, group: dict[str, Any]) -> None:
        known = {id(each) for one in self.param_groups for each in one["params"]}
        arrays = _arrays(group["params"])
        if len({id(each) for each in arrays}) != len(arrays) or any(id(each) in known for each in arrays):
            raise ValueError("a parameter comes twice")
        full = {**self.defaults, **group, "params": arrays}
        self._check(full)
        self.param_groups.append(full)

    def _check(self, group: dict[str, Any]) -> None:
        for name in ("lr", "momentum", "eps", "weight_decay", "alpha"):
            value = group.get(name, 0.0)
            if not isinstance(value, Array) and not value >= 0:
                raise ValueError(f"{name} is {value}, and not from 0 on")
        if any(not 0 <= beta < 1 for beta in group.get("betas", ())):
            raise ValueError(f"betas are from 0 to less than 1, not {group['betas']}")

    def zero_grad(self, set_to_none: bool = True) -> None:
        """The parameters' gradients become None, or zeros."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if set_to_none or parameter.grad is None:
                    parameter.grad = None
                else:
                    parameter.grad = _zeros(parameter)

    def step(self, gradients: Any = None) -> None:
        """Changes all parameters that have a gradient: their own, or those of a tree (a list, a dictionary, …) with one for each parameter, in the order
        of the parameters, which may have None. Does not block."""
        given = self._given(gradients)
        place = 0
        with no_grad():
            for group in self.param_groups:
                chosen, used = [], []
                for i, parameter in enumerate(group["params"], place):
                    gradient = parameter.grad if given is None else given[i]
                    if gradient is not None:
                        chosen.append(i)
                        used.append(gradient)
                parameters = [group["params"][i - place] for i in chosen]
                states = [self._state_of(i, parameter, group) for i, parameter in zip(chosen, parameters)]
                for part in _parts(parameters, states):
                    self._step(group, [parameters[i] for i in part], [used[i] for i in part], [states[i] for i in part])
                place += len(group["params"])

    def _given(self, gradients: Any) -> Optional[list[Any]]:
        if gradients is None:
            return None
        values = list(gradients.values()) if isinstance(gradients, Mapping) else gradients
        if not isinstance(values, (list, tuple)) or any(isinstance(one, (dict, list, tuple)) for one in values):
            values = _trees.leaves(values)
        count = sum(len(group["params"]) for group in self.param_groups)
        if len(values) != count:
            raise ValueError(f"step(): {len(values)} gradients for {count} parameters")
        return list(values)

    def _state_of(self, place: int, parameter: Array, group: dict[str, Any]) -> dict[str, Any]:
        if _core._records() and not self._inside and not isinstance(self.state.get(place, {}).get("step"), Array):
            raise _core.InvalidArgumentError("a recorded function steps an optimiser that is not among its state: td.function(state=[model, optimiser])")
        if place not in self.state:
            self.state[place] = self._first_state(parameter, group)
        state = self.state[place]
        if self._inside and not isinstance(state["step"], Array) and _core._records():  # a number would be the same in each run
            state["step"] = _core.full((), float(state["step"]), _core.float32, parameter.device)
        return state

    def _first_state(self, parameter: Array, group: dict[str, Any]) -> dict[str, Any]:
        return {"step": 0, **{name: _zeros(parameter) for name in self._state_names}}

    def _recorded_state(self) -> list[Array]:
        """What a recorded function may change. Steps are counted in arrays from then on, of which parameters with as many steps share one."""
        found: list[Array] = []
        counters: dict[Any, Array] = {}
        place = 0
        for group in self.param_groups:
            found += group["params"]
            found += [value for value in group.values() if type(value) is Array]  # a rate
            for i, parameter in enumerate(group["params"], place):
                state = self.state.get(i) or self._state_of(i, parameter, group)
                step = state["step"]
                if type(step) is not Array:
                    key = parameter.device.name, id(parameter.device), step
                    if key not in counters:
                        counters[key] = _core.full((), float(step), _core.float32, parameter.device)
                    state["step"] = counters[key]
                found += [value for value in state.values() if type(value) is Array]
            place += len(group["params"])
        return found

    def _recorded_options(self) -> Any:
        """What else decides what is recorded."""
        return [{name: value for name, value in group.items() if name != "params" and type(value) is not Array} for group in self.param_groups]

    def _step(self, group: dict[str, Any], parameters: list[Array], gradients: list[Array], states: list[dict[str, Any]]) -> None:
        """One step for parameters of one device that have made as many steps."""
        raise NotImplementedError

    # ---- the state ----

    def state_dict(self) -> dict[str, Any]:
        """PyTorch's form: "state" by the parameters' numbers, and "param_groups" with these numbers. Its arrays are as they are now."""
        groups, place = [], 0
        for group in self.param_groups:
            numbers = list(range(place, place + len(group["params"])))
            groups.append({**{name: value for name, value in group.items() if name != "params"}, "params": numbers})
            place += len(numbers)
        state = {
            number: {name: value.detach() if isinstance(value, Array) else value for name, value in entries.items()}
            for number, entries in self.state.items()
        }
        return {"state": state, "param_groups": groups}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The state of an optimiser with the same groups, which may be PyTorch's; arrays may be what asarray() takes. ValueError for other groups, and for options that
        this one does not have; then nothing has changed."""
        from .creation import asarray

        groups = state["param_groups"]
        if [len(group["params"]) for group in groups] != [len(group["params"]) for group in self.param_groups]:
            raise ValueError("load_state_dict(): the state is that of other groups of parameters")
        for other in groups:
            for name in _ELSEWHERE:
                if other.get(name) and name not in self.defaults:
                    raise ValueError(f"load_state_dict(): the state is of an optimiser with {name}={other[name]}, which {type(self).__name__} does not have")
        parameters = [parameter for group in self.param_groups for parameter in group["params"]]
        found: dict[int, dict[str, Any]] = {}
        for number, entries in state["state"].items():
            parameter = parameters[int(number)]
            own: dict[str, Any] = {"step": 0}  # PyTorch's SGD counts none
            found[int(number)] = own
            for name, value in entries.items():
                if value is None:
                    continue
                if name == "step" and not isinstance(value, Array):
                    own[name] = int(value)
                else:
                    array = asarray(value, device=parameter.device)
                    own[name] = array.copy() if array is value else array
        for group, other in zip(self.param_groups, groups):
            group.update({name: value for name, value in other.items() if name != "params"})
        self.state = found

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value}' for name, value in self.defaults.items())})"


_ELSEWHERE = ("amsgrad", "centered", "dampening", "maximize", "momentum")  # options of PyTorch's that change the numbers

_PART = 512  # parameters in one operation


def _parts(parameters: list[Array], states: list[dict[str, Any]]) -> list[list[int]]:
    """Places of parameters that one operation can change."""
    parts: dict[Any, list[int]] = {}
    for i, (parameter, state) in enumerate(zip(parameters, states)):
        step = state["step"]
        key = parameter.device.name, id(parameter.device), parameter.dtype.name, id(step) if isinstance(step, Array) else step
        parts.setdefault(key, []).append(i)
    return [each[i : i + _PART] for each in parts.values() for i in range(0, len(each), _PART)]


def _next(states: list[dict[str, Any]]) -> Any:
    """The number of this step, from 1."""
    counted: set[int] = set()
    for state in states:
        step = state["step"]
        if not isinstance(step, Array):
            state["step"] = step + 1
        elif id(step) not in counted:  # parameters may share a counter
            counted.add(id(step))
            step += 1
    return states[0]["step"]


def _correction(beta: float, step: Array) -> Array:
    """1 - beta ** step; the difference would lose digits at the first steps."""
    return -_core.expm1(step * (math.log(beta) if beta else -math.inf))


def _column(states: list[dict[str, Any]], name: str) -> list[Array]:
    return [state[name] for state in states]


def _rate(group: dict[str, Any]) -> float:
    rate = group["lr"]
    if isinstance(rate, Array):
        raise TypeError("lr is a number; it may be an array with capturable=True")
    return rate


class SGD(Optimizer):
    """Gradient descent, with momentum: v = momentum · v + g; parameter -= lr · v."""

    def __init__(
        self, params: Parameters, lr: float = 1e-3, momentum: float = 0.0, weight_decay: float = 0.0, nesterov: bool = False
    ) -> None:
        if nesterov and momentum <= 0:
            raise ValueError("nesterov needs a momentum")
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "nesterov": nesterov})

    def _first_state(self, parameter: Array, group: dict[str, Any]) -> dict[str, Any]:
        return {"step": 0, **({"momentum_buffer": _zeros(parameter)} if group["momentum"] else {})}

    def _step(self, group: dict[str, Any], parameters: list[Array], gradients: list[Array], states: list[dict[str, Any]]) -> None:
        _next(states)
        momentum = group["momentum"]
        velocities = None
        if momentum:
            for state, parameter in zip(states, parameters):
                if "momentum_buffer" not in state:
                    state["momentum_buffer"] = _zeros(parameter)
            velocities = _column(states, "momentum_buffer")
        _core.sgd(
            parameters,
            gradients,
            velocities,
            rate=_rate(group),
            momentum=momentum,
            weight_decay=group["weight_decay"],
            nesterov=group["nesterov"],
        )


class Adam(Optimizer):
    """Kingma and Ba, 2015. The weight decay is added to the gradient."""

    _state_names = ("exp_avg", "exp_avg_sq")
    _decoupled = False

    def __init__(
        self,
        params: Parameters,
        lr: Union[float, Array] = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        capturable: bool = False,
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "capturable": capturable})

    def _first_state(self, parameter: Array, group: dict[str, Any]) -> dict[str, Any]:
        state = super()._first_state(parameter, group)
        if group["capturable"]:
            state["step"] = _core.full((), 0.0, _core.float32, parameter.device)
        return state

    def _step(self, group: dict[str, Any], parameters: list[Array], gradients: list[Array], states: list[dict[str, Any]]) -> None:
        step = _next(states)
        if isinstance(step, Array):
            for each in zip(parameters, gradients, states):
                self._step_of_arrays(group, *each)
            return
        operation = _core.adamw if self._decoupled else _core.adam
        first, second, (beta1, beta2) = _column(states, "exp_avg"), _column(states, "exp_avg_sq"), group["betas"]
        operation(parameters, gradients, first, second, step, _rate(group), beta1, beta2, group["eps"], group["weight_decay"])

    def _step_of_arrays(self, group: dict[str, Any], parameter: Array, gradient: Array, state: dict[str, Any]) -> None:
        (beta1, beta2), decay, rate = group["betas"], group["weight_decay"], group["lr"]
        dtype = parameter.dtype
        step, first, second = state["step"], state["exp_avg"], state["exp_avg_sq"]
        if decay and self._decoupled:
            parameter *= _core.cast(1 - rate * decay, dtype) if isinstance(rate, Array) else 1 - rate * decay
        elif decay:
            gradient = gradient + parameter * decay
        first *= beta1
        first += gradient * (1 - beta1)
        second *= beta2
        second += _core.square(gradient) * (1 - beta2)
        size = _core.cast(rate / _correction(beta1, step), dtype)
        root = _core.cast(_core.sqrt(_correction(beta2, step)), dtype)
        parameter -= first * size / (_core.sqrt(second) / root + group["eps"])


class AdamW(Adam):
    """Adam with the decay apart from the gradient (Loshchilov and Hutter, 2019)."""

    _decoupled = True

    def __init__(
        self,
        params: Parameters,
        lr: Union[float, Array] = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        capturable: bool = False,
    ) -> None:
        super().__init__(params, lr, betas, eps, weight_decay, capturable)


class RMSprop(Optimizer):
    """square = alpha · square + (1 - alpha) · g²; parameter -= lr · g / (√square + eps)."""

    _state_names = ("square_avg",)

    def __init__(self, params: Parameters, lr: float = 1e-2, alpha: float = 0.99, eps: float = 1e-8, weight_decay: float = 0.0) -> None:
        super().__init__(params, {"lr": lr, "alpha": alpha, "eps": eps, "weight_decay": weight_decay})

    def _step(self, group: dict[str, Any], parameters: list[Array], gradients: list[Array], states: list[dict[str, Any]]) -> None:
        _next(states)
        _core.rmsprop(
            parameters, gradients, _column(states, "square_avg"), _rate(group), group["alpha"], group["eps"], group["weight_decay"]
        )


class Adagrad(Optimizer):
    """sum += g²; parameter -= lr / (1 + (step - 1) · lr_decay) · g / (√sum + eps)."""

    _state_names = ("sum",)

    def __init__(
        self,
        params: Parameters,
        lr: float = 1e-2,
        lr_decay: float = 0.0,
        weight_decay: float = 0.0,
        initial_accumulator_value: float = 0.0,
        eps: float = 1e-10,
    ) -> None:
        first = initial_accumulator_value
        super().__init__(
            params, {"lr": lr, "lr_decay": lr_decay, "eps": eps, "weight_decay": weight_decay, "initial_accumulator_value": first}
        )

    def _first_state(self, parameter: Array, group: dict[str, Any]) -> dict[str, Any]:
        first = _core.full(parameter.shape, group["initial_accumulator_value"], parameter.dtype, parameter.device)
        return {"step": 0, "sum": first}

    def _step(self, group: dict[str, Any], parameters: list[Array], gradients: list[Array], states: list[dict[str, Any]]) -> None:
        step, decay = _next(states), group["lr_decay"]
        if decay and isinstance(step, Array):
            self._step_of_arrays(group, step, parameters, gradients, states)
            return
        rate = _rate(group) / (1 + (step - 1) * decay) if decay else _rate(group)
        _core.adagrad(parameters, gradients, _column(states, "sum"), rate, group["eps"], group["weight_decay"])

    def _step_of_arrays(
        self, group: dict[str, Any], step: Array, parameters: list[Array], gradients: list[Array], states: list[dict[str, Any]]
    ) -> None:
        rate = _rate(group) / (1 + (step - 1) * group["lr_decay"])
        for parameter, gradient, state in zip(parameters, gradients, states):
            if group["weight_decay"]:
                gradient = gradient + parameter * group["weight_decay"]
            total = state["sum"]
            total += _core.square(gradient)
            parameter -= _core.cast(rate, parameter.dtype) * gradient / (_core.sqrt(total) + group["eps"])


# ---- schedules of rates ----


class LRScheduler:
    """Sets the rate of each group; step() is called after each epoch, or after each step of the optimiser, as you like. `last_epoch` counts these calls."""

    def __init__(self, optimizer: Optimizer) -> None:
        self.optimizer, self.last_epoch = optimizer, 0
        for group in optimizer.param_groups:
            if isinstance(group["lr"], Array):
                raise TypeError("a schedule is for rates that are numbers")
        self.base_lrs = [group.setdefault("initial_lr", group["lr"]) for group in optimizer.param_groups]
        self._set()

    def _factor(self, epoch: int) -> float:
        """The rate at an epoch, divided by the first one."""
        raise NotImplementedError

    def _rates(self) -> list[float]:
        return [first * self._factor(self.last_epoch) for first in self.base_lrs]

    def _set(self) -> None:
        for group, rate in zip(self.optimizer.param_groups, self._rates()):
            group["lr"] = rate

    def step(self) -> None:
        self.last_epoch += 1
        self._set()

    def get_last_lr(self) -> list[float]:
        return [group["lr"] for group in self.optimizer.param_groups]

    def state_dict(self) -> dict[str, Any]:
        return {"last_epoch": self.last_epoch, "base_lrs": list(self.base_lrs)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.last_epoch, self.base_lrs = state["last_epoch"], list(state["base_lrs"])
        self._set()


class LambdaLR(LRScheduler):
    """The first rate times lr_lambda(epoch)."""

    def __init__(self, optimizer: Optimizer, lr_lambda: Callable[[int], float]) -> None:
        self._lambda = lr_lambda
        super().__init__(optimizer)

    def _factor(self, epoch: int) -> float:
        return self._lambda(epoch)


class StepLR(LRScheduler):
    """Times gamma after each `step_size` epochs."""

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1) -> None:
        self.step_size, self.gamma = step_size, gamma
        super().__init__(optimizer)

    def _factor(self, epoch: int) -> float:
        return self.gamma ** (epoch // self.step_size)


class MultiStepLR(LRScheduler):
    """Times gamma at each of the epochs `milestones`."""

    def __init__(self, optimizer: Optimizer, milestones: Iterable[int], gamma: float = 0.1) -> None:
        self.milestones, self.gamma = sorted(milestones), gamma
        super().__init__(optimizer)

    def _factor(self, epoch: int) -> float:
        return self.gamma ** sum(epoch >= one for one in self.milestones)


class ExponentialLR(LRScheduler):
    """Times gamma after each epoch."""

    def __init__(self, optimizer: Optimizer, gamma: float) -> None:
        self.gamma = gamma
        super().__init__(optimizer)

    def _factor(self, epoch: int) -> float:
        return self.gamma**epoch


class LinearLR(LRScheduler):
    """From start_factor to end_factor of the first rate within total_iters epochs."""

    def __init__(self, optimizer: Optimizer, start_factor: float = 1 / 3, end_factor: float = 1.0, total_iters: int = 5) -> None:
        self.start_factor, self.end_factor, self.total_iters = start_factor, end_factor, total_iters
        super().__init__(optimizer)

    def _factor(self, epoch: int) -> float:
        return self.start_factor + (self.end_factor - self.start_factor) * min(epoch, self.total_iters) / self.total_iters


class CosineAnnealingLR(LRScheduler):
    """Half a cosine from the first rate to eta_min within T_max epochs (Loshchilov and Hutter, 2017)."""

    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0) -> None:
        self.T_max, self.eta_min = T_max, eta_min
        super().__init__(optimizer)

    def _rates(self) -> list[float]:
        part = (1 + math.cos(math.pi * self.last_epoch / self.T_max)) / 2
        return [self.eta_min + (first - self.eta_min) * part for first in self.base_lrs]
