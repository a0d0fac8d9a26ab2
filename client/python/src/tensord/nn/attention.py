"""Attention of several heads, with the definition, names and layouts of torch.nn.MultiheadAttention."""

from __future__ import annotations

import math
from typing import Any, Optional, Sequence

from .. import _core
from .. import creation as _creation
from ..array import Array
from . import initial
from .layers import Dropout, Linear
from .module import Module


class MultiheadAttention(Module):
    """q is (n, batch, embed_dim), k and v (m, batch, kdim or vdim), or with `batch_first` (batch, n, …). Returns (result, weights): with `need_weights` the
    probabilities, means over the heads or with average_attn_weights=False of each; otherwise None, which needs far less memory and time. In masks of bools True
    says what is not looked at, as in PyTorch."""

    in_proj_weight: Array
    q_proj_weight: Array
    k_proj_weight: Array
    v_proj_weight: Array
    in_proj_bias: Optional[Array]

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        kdim: Optional[int] = None,
        vdim: Optional[int] = None,
        batch_first: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        if embed_dim % num_heads:
            raise ValueError(f"{num_heads} heads do not divide {embed_dim}")
        self.embed_dim, self.num_heads, self.batch_first = embed_dim, num_heads, batch_first
        self.kdim, self.vdim = kdim or embed_dim, vdim or embed_dim
        self._one = self.kdim == self.vdim == embed_dim
        if self._one:
            self.in_proj_weight = initial.xavier_uniform((3 * embed_dim, embed_dim), device, dtype)
        else:
            self.q_proj_weight = initial.xavier_uniform((embed_dim, embed_dim), device, dtype)
            self.k_proj_weight = initial.xavier_uniform((embed_dim, self.kdim), device, dtype)
            self.v_proj_weight = initial.xavier_uniform((embed_dim, self.vdim), device, dtype)
        self.register_parameter("in_proj_bias", initial.full((3 * embed_dim,), 0.0, device, dtype) if bias else None)
        self.out_proj = Linear(embed_dim, embed_dim, bias, device, dtype)
        if bias:
            self.out_proj.bias = initial.full((embed_dim,), 0.0, device, dtype)
        self.dropout = Dropout(dropout, device) if dropout else None

    def _projected(self, q: Array, k: Array, v: Array) -> list[Array]:
        size = self.embed_dim
        if self._one and q is k and k is v:  # one product
            return _core.split(_core.linear(q, self.in_proj_weight, self.in_proj_bias), (size,) * 3, -1)
        if self._one:
            weights = _core.split(self.in_proj_weight, (size,) * 3)
        else:
            weights = [self.q_proj_weight, self.k_proj_weight, self.v_proj_weight]
        biases: Sequence[Optional[Array]] = (None,) * 3
        if self.in_proj_bias is not None:
            biases = _core.split(self.in_proj_bias, (size,) * 3)
        return [_core.linear(*each) for each in zip((q, k, v), weights, biases)]

    def _heads(self, x: Array) -> Array:
        """(batch, n, embed_dim) as (batch, heads, n, embed_dim / heads)."""
        return _core.permute(_core.reshape(x, (*x.shape[:2], self.num_heads, -1)), (0, 2, 1, 3))

    def _mask(self, key_padding: Optional[Array], mask: Optional[Array], scores: tuple[int, ...]) -> Optional[Array]:
        """What scores of the shape (batch, heads, n, m) get: bools, True for what is looked at, or numbers to be added."""
        if mask is not None and mask.ndim == 3:
            mask = _core.reshape(mask, scores)
        if key_padding is not None:
            key_padding = _core.reshape(key_padding, (scores[0], 1, 1, scores[3]))
        parts = [one for one in (mask, key_padding) if one is not None]
        if not parts:
            return None
        if all(one.dtype is _core.bool for one in parts):
            seen = [_core.logical_not(one) for one in parts]
            return seen[0] if len(seen) == 1 else _core.logical_and(*seen)
        numbers = [_added(one, self.out_proj.weight) for one in parts]
        return numbers[0] if len(numbers) == 1 else numbers[0] + numbers[1]

    def forward(
        self,
        query: Array,
        key: Array,
        value: Array,
        key_padding_mask: Optional[Array] = None,
        need_weights: bool = True,
        attn_mask: Optional[Array] = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Array, Optional[Array]]:
        alone = query.ndim == 2
        given = {id(one): one for one in (query, key, value)}
        for known, one in given.items():
            if alone:
                given[known] = _core.reshape(one, (1, *one.shape))
            elif not self.batch_first:
                given[known] = _core.permute(one, (1, 0, 2))
        q, k, v = (self._heads(one) for one in self._projected(given[id(query)], given[id(key)], given[id(value)]))
        if alone and key_padding_mask is not None:
            key_padding_mask = _core.reshape(key_padding_mask, (1, -1))
        causal = is_causal and attn_mask is None
        mask = self._mask(key_padding_mask, attn_mask, (*q.shape[:3], k.shape[2]))
        weights = None
        if need_weights or (self.dropout is not None and self.training):
            result, weights = self._explicit(q, k, v, mask, causal)
        else:
            result, _ = _core.scaled_dot_product_attention(q, k, v, mask, causal)
        result = _core.permute(result, (0, 2, 1, 3))
        result = self.out_proj(_core.reshape(result, (*result.shape[:2], self.embed_dim)))
        if weights is not None and average_attn_weights:
            weights = weights.mean(axis=1)
        if alone:
            weights = None if weights is None else _core.reshape(weights, weights.shape[1:])
            return _core.reshape(result, result.shape[1:]), weights if need_weights else None
        return (result if self.batch_first else _core.permute(result, (1, 0, 2))), weights if need_weights else None

    def _explicit(self, q: Array, k: Array, v: Array, mask: Optional[Array], causal: bool) -> tuple[Array, Array]:
        scores = _core.matmul(q * (1 / math.sqrt(q.shape[-1])), _core.transpose(k))
        if causal:
            seen = _core.tril(_creation.ones(scores.shape[-2:], dtype=_core.bool, device=q.device))
            mask = seen if mask is None else _core.logical_and(mask, seen) if mask.dtype is _core.bool else _core.where(seen, mask, -math.inf)
        if mask is not None:
            scores = _core.where(mask, scores, -math.inf) if mask.dtype is _core.bool else scores + mask
        weights = _core.softmax(scores, -1)
        if self.dropout is not None:
            weights = self.dropout(weights)
        return _core.matmul(weights, v), weights

    def extra_repr(self) -> str:
        return f"{self.embed_dim}, num_heads={self.num_heads}"


def _added(mask: Array, like: Array) -> Array:
    """A mask as numbers that are added to the scores."""
    if mask.dtype is not _core.bool:
        return mask
    zero = _core.full((), 0.0, like.dtype, like.device)
    return _core.where(mask, _core.full((), -math.inf, like.dtype, like.device), zero)
