"""First values of parameters: functions that return arrays, after those of torch.nn.init. The numbers are those of tensord.random, whose seed is
td.random.seed()."""

from __future__ import annotations

import math
from typing import Any, Optional, Sequence

from .. import random
from ..array import Array
from .module import Parameter


def uniform(shape: Sequence[int], bound: float, device: Any = None, dtype: Any = None) -> Array:
    """A parameter with numbers in [-bound, bound)."""
    return Parameter(random.uniform(-bound, bound, tuple(shape), dtype=dtype, device=device))


def normal(shape: Sequence[int], deviation: float = 1.0, device: Any = None, dtype: Any = None) -> Array:
    return Parameter(random.normal(0.0, deviation, tuple(shape), dtype=dtype, device=device))


def full(shape: Sequence[int], value: float, device: Any = None, dtype: Any = None) -> Array:
    from ..creation import full as filled

    return Parameter(filled(tuple(shape), value, dtype=dtype, device=device))


def fan_in(shape: Sequence[int]) -> int:
    """The number of terms in the sum that makes an output of a weight of this shape."""
    return math.prod(shape[1:])


def weight_and_bias(shape: Sequence[int], bias: bool, device: Any, dtype: Any) -> tuple[Array, Optional[Array]]:
    """torch.nn.Linear's and Conv's: uniform numbers up to 1 / √(inputs of an output)."""
    bound = 1 / math.sqrt(fan_in(shape)) if fan_in(shape) else 0.0
    return uniform(shape, bound, device, dtype), uniform(shape[:1], bound, device, dtype) if bias else None


def xavier_uniform(shape: Sequence[int], device: Any = None, dtype: Any = None) -> Array:
    """Glorot and Bengio, 2010, for a matrix."""
    return uniform(shape, math.sqrt(6 / (shape[0] + shape[1])), device, dtype)
