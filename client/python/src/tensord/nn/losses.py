"""Losses, with the definitions and names of torch.nn: modules without parameters."""

from __future__ import annotations

from typing import Any, Optional

from .. import _core
from ..array import Array
from ..dtypes import is_float
from .module import Module


class _Loss(Module):
    def __init__(self, reduction: str = "mean") -> None:
        super().__init__()
        if reduction not in ("mean", "sum", "none"):
            raise ValueError(f"reduction is 'mean', 'sum' or 'none', not {reduction!r}")
        self.reduction: Any = reduction

    def extra_repr(self) -> str:
        return f"reduction={self.reduction!r}"


class MSELoss(_Loss):
    def forward(self, x: Array, target: Array) -> Array:
        return _core.mse_loss(x, target, self.reduction)


class L1Loss(_Loss):
    def forward(self, x: Array, target: Array) -> Array:
        return _core.l1_loss(x, target, self.reduction)


class HuberLoss(_Loss):
    def __init__(self, reduction: str = "mean", delta: float = 1.0) -> None:
        super().__init__(reduction)
        self.delta = delta

    def forward(self, x: Array, target: Array) -> Array:
        return _core.huber_loss(x, target, self.reduction, self.delta)


class SmoothL1Loss(_Loss):
    """Huber's loss, divided by beta."""

    def __init__(self, reduction: str = "mean", beta: float = 1.0) -> None:
        super().__init__(reduction)
        if beta <= 0:
            raise ValueError("beta is greater than 0: L1Loss is what its limit is")
        self.beta = beta

    def forward(self, x: Array, target: Array) -> Array:
        return _core.huber_loss(x, target, self.reduction, self.beta) / self.beta


class _ClassLoss(_Loss):
    def __init__(self, weight: Optional[Array] = None, ignore_index: int = -100, reduction: str = "mean") -> None:
        super().__init__(reduction)
        self.register_buffer("weight", weight)
        self.ignore_index = ignore_index


class CrossEntropyLoss(_ClassLoss):
    """Of scores (batch, classes, …) and targets: integers (batch, …), or probabilities of the classes in the shape of the scores, which ignore no index."""

    def __init__(
        self, weight: Optional[Array] = None, ignore_index: int = -100, reduction: str = "mean", label_smoothing: float = 0.0
    ) -> None:
        super().__init__(weight, ignore_index, reduction)
        self.label_smoothing = label_smoothing

    def forward(self, scores: Array, target: Array) -> Array:
        if is_float(target.dtype):
            return _core.soft_cross_entropy(scores, target, self.weight, self.reduction, self.label_smoothing)
        return _core.cross_entropy(scores, target, self.weight, self.ignore_index, self.reduction, self.label_smoothing)


class NLLLoss(_ClassLoss):
    """Of logarithms of probabilities, as LogSoftmax makes them."""

    def forward(self, scores: Array, target: Array) -> Array:
        return _core.nll_loss(scores, target, self.weight, self.ignore_index, self.reduction)


class BCEWithLogitsLoss(_Loss):
    def __init__(self, weight: Optional[Array] = None, reduction: str = "mean", pos_weight: Optional[Array] = None) -> None:
        super().__init__(reduction)
        self.register_buffer("weight", weight)
        self.register_buffer("pos_weight", pos_weight)

    def forward(self, x: Array, target: Array) -> Array:
        return _core.bce_with_logits(x, target, self.weight, self.pos_weight, self.reduction)


class KLDivLoss(_Loss):
    """Of logarithms of probabilities; reduction "batchmean" divides the sum by the extent of the first axis."""

    def __init__(self, reduction: str = "mean", log_target: bool = False) -> None:
        super().__init__("sum" if reduction == "batchmean" else reduction)
        self._batchmean, self.log_target = reduction == "batchmean", log_target

    def forward(self, x: Array, target: Array) -> Array:
        loss = _core.kl_div(x, target, self.reduction, self.log_target)
        return loss / x.shape[0] if self._batchmean else loss
