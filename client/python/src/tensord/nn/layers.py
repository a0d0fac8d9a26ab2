"""Layers, with the definitions, names and layouts of torch.nn."""

from __future__ import annotations

from typing import Any, Optional, Sequence, Union

from .. import _core
from .. import creation as _creation
from .. import random as _random
from ..array import Array
from ..derivatives import no_grad
from ..manipulation import shape_of
from . import initial
from .module import Module

Extents = Union[int, Sequence[int]]


def _entries(value: Extents, count: int, name: str) -> tuple[int, ...]:
    """A number for each axis, from one for all or one for each."""
    if isinstance(value, int):
        return (value,) * count
    entries = tuple(value)
    if len(entries) != count:
        raise ValueError(f"{name} has {len(entries)} entries, not {count}")
    return entries


class Identity(Module):
    def forward(self, x: Array) -> Array:
        return x


class Flatten(Module):
    """The axes from `start_dim` to `end_dim` become one."""

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        super().__init__()
        self.start_dim, self.end_dim = start_dim, end_dim

    def forward(self, x: Array) -> Array:
        start, end = (dim + x.ndim if dim < 0 else dim for dim in (self.start_dim, self.end_dim))
        size = 1
        for extent in x.shape[start : end + 1]:
            size *= extent
        return _core.reshape(x, x.shape[:start] + (size,) + x.shape[end + 1 :])


class Linear(Module):
    """x · weightᵀ + bias; weight is (out_features, in_features)."""

    weight: Array
    bias: Optional[Array]

    def __init__(self, in_features: int, out_features: int, bias: bool = True, device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.weight, first = initial.weight_and_bias((out_features, in_features), bias, device, dtype)
        self.register_parameter("bias", first)

    def forward(self, x: Array) -> Array:
        return _core.linear(x, self.weight, self.bias)

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"


# ---- convolution ----


class _OverAxes(Module):
    """A module over the last `_axes` axes of (batch, channels, …), or of (channels, …), which is a batch of one."""

    _axes = 0

    def forward(self, x: Array) -> Array:
        if x.ndim == self._axes + 2:
            return self._of_batch(x)
        if x.ndim == self._axes + 1:
            return _core.squeeze(self._of_batch(_core.expand_dims(x, 0)), (0,))
        raise _core.ShapeError(
            f"{type(self).__name__} takes (batch, channels, …) or (channels, …), rank {self._axes + 2} or {self._axes + 1}, not the shape {x.shape}"
        )

    def _of_batch(self, x: Array) -> Array:
        raise NotImplementedError


class _Conv(_OverAxes):
    """weight is (out_channels, in_channels / groups, *kernel_size), x is (batch, in_channels, …) or (in_channels, …)."""

    weight: Array
    bias: Optional[Array]

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Extents,
        stride: Extents = 1,
        padding: Union[Extents, str] = 0,
        dilation: Extents = 1,
        groups: int = 1,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        if in_channels % groups or out_channels % groups:
            raise ValueError(f"{groups} groups do not divide {in_channels} input and {out_channels} output channels")
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        self.kernel_size = _entries(kernel_size, self._axes, "kernel_size")
        self.stride, self.dilation = _entries(stride, self._axes, "stride"), _entries(dilation, self._axes, "dilation")
        self.padding: Any = padding
        self._before: Optional[list[int]] = None  # widths of pad(), where both sides differ
        self._padding = self._sides(padding)
        self.weight, first = initial.weight_and_bias((out_channels, in_channels // groups, *self.kernel_size), bias, device, dtype)
        self.register_parameter("bias", first)

    def _sides(self, padding: Union[Extents, str]) -> tuple[int, ...]:
        if not isinstance(padding, str):
            return _entries(padding, self._axes, "padding")
        if padding == "valid":
            return (0,) * self._axes
        if padding != "same":
            raise ValueError(f"padding is a number, a tuple, 'valid' or 'same', not {padding!r}")
        if any(stride != 1 for stride in self.stride):
            raise ValueError("padding='same' is for stride 1")
        totals = [dilation * (kernel - 1) for dilation, kernel in zip(self.dilation, self.kernel_size)]
        if all(total % 2 == 0 for total in totals):
            return tuple(total // 2 for total in totals)
        self._before = [0] * 4 + [width for total in totals for width in (total // 2, total - total // 2)]
        return (0,) * self._axes

    def _of_batch(self, x: Array) -> Array:
        if self._before:
            x = _core.pad(x, self._before)
        return _core.conv(x, self.weight, self.bias, self.stride, self._padding, self.dilation, self.groups)

    def extra_repr(self) -> str:
        text = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"
        if self.padding:
            text += f", padding={self.padding!r}"
        return text + (f", groups={self.groups}" if self.groups > 1 else "") + ("" if self.bias is not None else ", bias=False")


class Conv1d(_Conv):
    _axes = 1


class Conv2d(_Conv):
    _axes = 2


class Conv3d(_Conv):
    _axes = 3


# ---- pooling ----


class _Windows(_OverAxes):
    def __init__(self, kernel_size: Extents, stride: Optional[Extents], padding: Extents, ceil_mode: bool) -> None:
        super().__init__()
        self.kernel_size = _entries(kernel_size, self._axes, "kernel_size")
        self.stride = self.kernel_size if stride is None else _entries(stride, self._axes, "stride")
        self.padding, self.ceil_mode = _entries(padding, self._axes, "padding"), ceil_mode

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class _MaxPool(_Windows):
    def __init__(
        self, kernel_size: Extents, stride: Optional[Extents] = None, padding: Extents = 0, dilation: Extents = 1, ceil_mode: bool = False
    ) -> None:
        super().__init__(kernel_size, stride, padding, ceil_mode)
        self.dilation = _entries(dilation, self._axes, "dilation")

    def _of_batch(self, x: Array) -> Array:
        return _core.max_pool(x, self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode)[0]


class MaxPool1d(_MaxPool):
    _axes = 1


class MaxPool2d(_MaxPool):
    _axes = 2


class MaxPool3d(_MaxPool):
    _axes = 3


class _AvgPool(_Windows):
    def __init__(
        self,
        kernel_size: Extents,
        stride: Optional[Extents] = None,
        padding: Extents = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:
        super().__init__(kernel_size, stride, padding, ceil_mode)
        self.count_include_pad = count_include_pad

    def _of_batch(self, x: Array) -> Array:
        return _core.avg_pool(x, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad)


class AvgPool1d(_AvgPool):
    _axes = 1


class AvgPool2d(_AvgPool):
    _axes = 2


class AvgPool3d(_AvgPool):
    _axes = 3


class _AdaptiveAvgPool(_OverAxes):
    def __init__(self, output_size: Any) -> None:
        super().__init__()
        self.output_size = (output_size,) * self._axes if output_size is None or isinstance(output_size, int) else tuple(output_size)

    def _of_batch(self, x: Array) -> Array:
        return _core.adaptive_avg_pool(x, [own if wanted is None else wanted for own, wanted in zip(x.shape[2:], self.output_size)])

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}"


class AdaptiveAvgPool1d(_AdaptiveAvgPool):
    _axes = 1


class AdaptiveAvgPool2d(_AdaptiveAvgPool):
    _axes = 2


class AdaptiveAvgPool3d(_AdaptiveAvgPool):
    _axes = 3


# ---- normalisation ----


class _BatchNorm(Module):
    """Each channel (axis 1) gets mean 0 and variance 1, then weight and bias. In training these are the batch's, and the running ones follow them; in
    evaluation the running ones are used. momentum=None: the running ones are the means of all batches so far."""

    weight: Optional[Array]
    bias: Optional[Array]
    running_mean: Array
    running_var: Array
    num_batches_tracked: Array
    _ranks: tuple[int, ...] = ()

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: Optional[float] = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.num_features, self.eps, self.momentum, self.affine = num_features, eps, momentum, affine
        self.track_running_stats = track_running_stats
        shape = (num_features,)
        self.register_parameter("weight", initial.full(shape, 1.0, device, dtype) if affine else None)
        self.register_parameter("bias", initial.full(shape, 0.0, device, dtype) if affine else None)
        self.register_buffer("running_mean", _creation.zeros(shape, dtype=dtype, device=device), persistent=track_running_stats)
        self.register_buffer("running_var", _creation.ones(shape, dtype=dtype, device=device), persistent=track_running_stats)
        count = _creation.zeros((), dtype=_core.int64, device=device) if track_running_stats else None
        self.register_buffer("num_batches_tracked", count)

    def forward(self, x: Array) -> Array:
        if x.ndim not in self._ranks:
            raise _core.ShapeError(f"{type(self).__name__} takes an array of rank {' or '.join(map(str, self._ranks))}, not the shape {x.shape}")
        mean, variance = self.running_mean, self.running_var
        if not self.training and self.track_running_stats:
            return _core.batch_norm_inference(x, mean, variance, self.weight, self.bias, 1, self.eps)
        momentum = 1.0 if self.momentum is None else self.momentum  # 1: the batch's own mean and variance
        result, new_mean, new_variance = _core.batch_norm(x, mean, variance, self.weight, self.bias, 1, self.eps, momentum)
        if self.track_running_stats and not _random._runs_again():
            with no_grad():
                self.num_batches_tracked += 1
                for running, new in ((mean, new_mean.detach()), (variance, new_variance.detach())):
                    if self.momentum is None:
                        new = running + (new - running) / _core.cast(self.num_batches_tracked, running.dtype)
                    running._exchange(new)
        return result

    def extra_repr(self) -> str:
        return f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, track_running_stats={self.track_running_stats}"


class BatchNorm1d(_BatchNorm):
    _ranks = (2, 3)


class BatchNorm2d(_BatchNorm):
    _ranks = (4,)


class BatchNorm3d(_BatchNorm):
    _ranks = (5,)


class LayerNorm(Module):
    """The last axes, which have the extents `normalized_shape`, get mean 0 and variance 1, then weight and bias."""

    weight: Optional[Array]
    bias: Optional[Array]

    def __init__(
        self,
        normalized_shape: Extents,
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.normalized_shape, self.eps, self.elementwise_affine = shape_of(normalized_shape), eps, elementwise_affine
        self.register_parameter("weight", initial.full(self.normalized_shape, 1.0, device, dtype) if elementwise_affine else None)
        self.register_parameter("bias", initial.full(self.normalized_shape, 0.0, device, dtype) if elementwise_affine and bias else None)

    def forward(self, x: Array) -> Array:
        axes = len(self.normalized_shape)
        if x.shape[x.ndim - axes :] != self.normalized_shape:
            raise _core.ShapeError(f"LayerNorm of {self.normalized_shape} takes arrays that end so, not the shape {x.shape}")
        return _core.layer_norm(x, self.weight, self.bias, axes, self.eps)

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"


class GroupNorm(Module):
    """Groups of channels (axis 1) get mean 0 and variance 1, then each channel its weight and bias."""

    weight: Optional[Array]
    bias: Optional[Array]

    def __init__(
        self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__()
        self.num_groups, self.num_channels, self.eps, self.affine = num_groups, num_channels, eps, affine
        self.register_parameter("weight", initial.full((num_channels,), 1.0, device, dtype) if affine else None)
        self.register_parameter("bias", initial.full((num_channels,), 0.0, device, dtype) if affine else None)

    def forward(self, x: Array) -> Array:
        return _core.group_norm(x, self.weight, self.bias, groups=self.num_groups, epsilon=self.eps)

    def extra_repr(self) -> str:
        return f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}"


# ---- dropout, embedding ----


def _mixed(x: Array) -> Array:
    """Well-mixed numbers of 32 bits from others: Wellons' lowbias32 (2018)."""
    x = (x ^ (x >> 16)) * 0x7FEB352D
    x = (x ^ (x >> 15)) * 0x846CA68B
    return x ^ (x >> 16)


class Dropout(Module):
    """In training x / (1 - p), but 0 with the probability p; in evaluation x.

    Which elements these are follows from the buffers `seed` (two numbers of 32 bits, from tensord.random) and `draws`, how often the module has been used in
    training: both are arrays on x's device, so a recorded program draws other elements at each run."""

    seed: Array
    draws: Array

    def __init__(self, p: float = 0.5, device: Any = None) -> None:
        super().__init__()
        if not 0 <= p <= 1:
            raise ValueError(f"a probability is between 0 and 1, not {p}")
        self.p = p
        seed = _core.cast(_random.integers(0, 1 << 32, 2, device=device), _core.uint32)
        self.register_buffer("seed", seed, persistent=False)
        self.register_buffer("draws", _creation.zeros((), dtype=_core.uint32, device=device), persistent=False)

    def forward(self, x: Array) -> Array:
        if not self.training or self.p == 0:
            return x
        with no_grad():
            key = _random._drawn(self._next)
            places = _core.arange(0, x.size, 1, _core.uint32, x.device)
            kept = _mixed(places * (key[0] | 1) + key[1]) >= min(round(self.p * (1 << 32)), (1 << 32) - 1)
            factors = _core.reshape(_core.cast(kept, x.dtype), x.shape) * (1 / (1 - self.p) if self.p < 1 else 0.0)
        return x * factors

    def _next(self) -> Array:
        """The numbers that say what this use leaves out."""
        self.draws += 1
        return _mixed(self.seed ^ self.draws)

    def extra_repr(self) -> str:
        return f"p={self.p}"


class Embedding(Module):
    """A row of the weight (num_embeddings, embedding_dim) for each index. The gradient of row `padding_idx` is 0."""

    weight: Array

    def __init__(
        self, num_embeddings: int, embedding_dim: int, padding_idx: Optional[int] = None, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__()
        if padding_idx is not None and not -num_embeddings <= padding_idx < num_embeddings:
            raise ValueError(f"padding_idx {padding_idx} of {num_embeddings} rows")
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.padding_idx = padding_idx + num_embeddings if padding_idx is not None and padding_idx < 0 else padding_idx
        self.weight = initial.normal((num_embeddings, embedding_dim), 1.0, device, dtype)
        if self.padding_idx is not None:
            with no_grad():
                self.weight[self.padding_idx] = 0.0

    def forward(self, indices: Array) -> Array:
        rows = _core.embedding(self.weight, indices)
        if self.padding_idx is None:
            return rows
        padding = _core.reshape(indices == self.padding_idx, indices.shape + (1,))
        return _core.where(padding, rows.detach(), rows)

    def extra_repr(self) -> str:
        return f"{self.num_embeddings}, {self.embedding_dim}" + ("" if self.padding_idx is None else f", padding_idx={self.padding_idx}")


# ---- activations ----


class ReLU(Module):
    def forward(self, x: Array) -> Array:
        return _core.relu(x)


class LeakyReLU(Module):
    def __init__(self, negative_slope: float = 0.01) -> None:
        super().__init__()
        self.negative_slope = negative_slope

    def forward(self, x: Array) -> Array:
        return _core.leaky_relu(x, self.negative_slope)

    def extra_repr(self) -> str:
        return f"negative_slope={self.negative_slope}"


class ELU(Module):
    def __init__(self, alpha: float = 1.0) -> None:
        super().__init__()
        self.alpha = alpha

    def forward(self, x: Array) -> Array:
        return _core.elu(x, self.alpha)


class GELU(Module):
    """approximate="tanh" is the one with a tangent in place of the error function."""

    def __init__(self, approximate: str = "none") -> None:
        super().__init__()
        if approximate not in ("none", "tanh"):
            raise ValueError(f"approximate is 'none' or 'tanh', not {approximate!r}")
        self.approximate = approximate

    def forward(self, x: Array) -> Array:
        return _core.gelu(x) if self.approximate == "none" else _core.gelu_tanh(x)

    def extra_repr(self) -> str:
        return f"approximate={self.approximate!r}"


class SiLU(Module):
    def forward(self, x: Array) -> Array:
        return _core.silu(x)


class Sigmoid(Module):
    def forward(self, x: Array) -> Array:
        return _core.sigmoid(x)


class Tanh(Module):
    def forward(self, x: Array) -> Array:
        return _core.tanh(x)


class Softplus(Module):
    def forward(self, x: Array) -> Array:
        return _core.softplus(x)


class Softmax(Module):
    def __init__(self, dim: int = -1) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, x: Array) -> Array:
        return _core.softmax(x, self.dim)

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class LogSoftmax(Module):
    def __init__(self, dim: int = -1) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, x: Array) -> Array:
        return _core.log_softmax(x, self.dim)

    def extra_repr(self) -> str:
        return f"dim={self.dim}"
