"""Clipping of gradients: torch.nn.utils' functions."""

from __future__ import annotations

from typing import Iterable, Union

from .. import _core
from ..array import Array
from ..derivatives import no_grad


def _with_gradients(parameters: Union[Array, Iterable[Array]]) -> list[Array]:
    each = [parameters] if isinstance(parameters, Array) else parameters
    return [parameter.grad for parameter in each if parameter.grad is not None]


def clip_grad_norm_(parameters: Union[Array, Iterable[Array]], max_norm: float, norm_type: float = 2.0) -> Array:
    """Multiplies the gradients by min(1, max_norm / (norm + 1e-6)), with the norm of all of them as one vector, which it returns. Nothing waits."""
    gradients = _with_gradients(parameters)
    with no_grad():
        if not gradients:
            return _core.full((), 0.0)
        norm, *clipped = _core.clip_grad_norm(gradients, max_norm, norm_type)
        for gradient, new in zip(gradients, clipped):
            gradient._exchange(new)
        return norm


def clip_grad_value_(parameters: Union[Array, Iterable[Array]], clip_value: float) -> None:
    """Cuts the elements of the gradients to -clip_value … clip_value."""
    from ..elementwise import clip

    with no_grad():
        for gradient in _with_gradients(parameters):
            gradient._exchange(clip(gradient, -clip_value, clip_value))
