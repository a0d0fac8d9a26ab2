"""Recurrent layers, with the definitions, names and layouts of torch.nn."""

from __future__ import annotations

import math
from typing import Any, Callable, Optional

from .. import _core
from .. import creation as _creation
from ..array import Array
from . import initial
from .layers import Dropout
from .module import Module


class _Recurrent(Module):
    """x is (steps, batch, input_size), or (batch, steps, input_size) with `batch_first`, or without a batch (steps, input_size). States are
    (layers · directions, batch, hidden_size)."""

    _gates = 0
    _states = 0

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.input_size, self.hidden_size, self.num_layers, self.bias = input_size, hidden_size, num_layers, bias
        self.batch_first, self.dropout, self.bidirectional = batch_first, dropout, bidirectional
        bound, rows = 1 / math.sqrt(hidden_size), self._gates * hidden_size
        for layer in range(num_layers):
            inputs = input_size if not layer else hidden_size * (2 if bidirectional else 1)
            for ending in self._endings(layer):
                shapes: dict[str, tuple[int, ...]] = {"weight_ih": (rows, inputs), "weight_hh": (rows, hidden_size)}
                if bias:
                    shapes.update(bias_ih=(rows,), bias_hh=(rows,))
                for name, shape in shapes.items():
                    setattr(self, name + ending, initial.uniform(shape, bound, device, dtype))
        self.between = Dropout(dropout, device) if dropout and num_layers > 1 else None

    def _endings(self, layer: int) -> list[str]:
        return [f"_l{layer}", f"_l{layer}_reverse"] if self.bidirectional else [f"_l{layer}"]

    def _weights(self, ending: str) -> list[Optional[Array]]:
        return [getattr(self, name + ending, None) for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]

    def _run(self, x: Array, states: Optional[tuple[Array, ...]]) -> tuple[Array, tuple[Array, ...]]:
        if x.ndim not in (2, 3) or x.shape[-1] != self.input_size:
            raise _core.ShapeError(f"{type(self).__name__} takes (…, {self.input_size}) of rank 2 or 3, not the shape {x.shape}")
        alone = x.ndim == 2
        if alone:
            x = _core.reshape(x, (x.shape[0], 1, x.shape[1]))
            states = None if states is None else tuple(_core.reshape(one, (one.shape[0], 1, one.shape[1])) for one in states)
        elif self.batch_first:
            x = _core.permute(x, (1, 0, 2))
        cells = self.num_layers * (2 if self.bidirectional else 1)
        shape = (cells, x.shape[1], self.hidden_size)
        if states is None:
            states = (_creation.zeros(shape, dtype=x.dtype, device=x.device),) * self._states
        for state in states:
            if state.shape != shape:
                raise _core.ShapeError(f"{type(self).__name__}: a state has the shape {state.shape}, not {shape}")
        lasts: list[list[Array]] = [[] for _ in states]
        each = [_core.unstack(state) for state in states]
        for layer in range(self.num_layers):
            if layer and self.between is not None:
                x = self.between(x)
            results = []
            for place, ending in enumerate(self._endings(layer)):
                first = [state[len(lasts[0])] for state in each]
                result, last = self._cell(x, first, self._weights(ending), place == 1)
                results.append(result)
                for all_of_one, one in zip(lasts, last):
                    all_of_one.append(one)
            x = results[0] if len(results) == 1 else _core.concat(results, axis=2)
        ends = tuple(_core.stack(one, axis=0) for one in lasts)
        if alone:
            return _core.reshape(x, (x.shape[0], x.shape[2])), tuple(_core.reshape(one, (cells, self.hidden_size)) for one in ends)
        return (_core.permute(x, (1, 0, 2)) if self.batch_first else x), ends

    _cell: Callable[..., Any]

    def extra_repr(self) -> str:
        return f"{self.input_size}, {self.hidden_size}" + (f", num_layers={self.num_layers}" if self.num_layers > 1 else "")


class LSTM(_Recurrent):
    """Returns (results, (h_n, c_n))."""

    _gates, _states = 4, 2

    def _cell(self, x: Array, first: list[Array], weights: list[Any], reverse: bool) -> tuple[Array, tuple[Array, ...]]:
        w_ih, w_hh, b_ih, b_hh = weights
        result, h_n, c_n, _, _ = _core.lstm(x, first[0], first[1], w_ih, w_hh, b_ih, b_hh, reverse)
        return result, (h_n, c_n)

    def forward(self, x: Array, state: Optional[tuple[Array, Array]] = None) -> tuple[Array, tuple[Array, Array]]:
        result, (h_n, c_n) = self._run(x, state)
        return result, (h_n, c_n)


class GRU(_Recurrent):
    """Returns (results, h_n)."""

    _gates, _states = 3, 1

    def _cell(self, x: Array, first: list[Array], weights: list[Any], reverse: bool) -> tuple[Array, tuple[Array, ...]]:
        w_ih, w_hh, b_ih, b_hh = weights
        result, h_n, _ = _core.gru(x, first[0], w_ih, w_hh, b_ih, b_hh, reverse)
        return result, (h_n,)

    def forward(self, x: Array, state: Optional[Array] = None) -> tuple[Array, Array]:
        result, ends = self._run(x, None if state is None else (state,))
        return result, ends[0]
