#!/usr/bin/env python3
"""Gradients as PyTorch's autograd computes them, in f64: autograd_numbers.py > autograd_numbers.inc

A case is a function of tensors; what is differentiated is Σ cos(k) · y[k] over the elements of its result. test_autograd_numbers.c has the
same functions in C, by the same names. Inputs are multiples of 1/64, which are written exactly; where a definition is what counts (ties,
kinks, zeros) they are chosen.
"""
import platform
import sys

import torch
import torch.nn.functional as F

torch.set_default_dtype(torch.float64)
generator = torch.Generator().manual_seed(7)


def some(*shape, low=-2.0, high=2.0):
    return torch.round(64 * (low + (high - low) * torch.rand(shape, generator=generator))) / 64


def positive(*shape):
    return some(*shape, low=0.5, high=2.0)


def these(*values):
    return torch.tensor(values, dtype=torch.float64)


def square(n):
    return some(n, n) + 4 * torch.eye(n)


def whole(*values):
    return torch.tensor(values)


KINKS = these(-4, -3, -1, 0, 0.5, 1, 3, 4)
TIES = these([1, 3, 3, 0, 3], [2, 2, 0, 2, 1])
CLASSES = whole(2, 0, -100, 3)
INF = float("inf")


def lstm(x, h, c, w_ih, w_hh, b_ih, b_hh):
    layer = torch.nn.LSTM(x.shape[-1], h.shape[-1])
    names = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
    return torch.func.functional_call(layer, dict(zip(names, (w_ih, w_hh, b_ih, b_hh))), (x, (h[None], c[None])))[0]


def gru(x, h, w_ih, w_hh, b_ih, b_hh):
    layer = torch.nn.GRU(x.shape[-1], h.shape[-1])
    names = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
    return torch.func.functional_call(layer, dict(zip(names, (w_ih, w_hh, b_ih, b_hh))), (x, h[None]))[0]


CASES = {
    # convolutions and pooling
    "conv1d": ((some(2, 4, 7), some(6, 2, 3), some(6)), lambda x, w, b: F.conv1d(x, w, b, 2, 1, 1, 2)),
    "conv2d": ((some(1, 2, 5, 6), some(3, 2, 2, 3), some(3)), lambda x, w, b: F.conv2d(x, w, b, (1, 2), (1, 0), (2, 1))),
    "conv3d": ((some(1, 1, 3, 3, 4), some(2, 1, 2, 2, 2)), lambda x, w: F.conv3d(x, w)),
    "conv_transpose2d": ((some(1, 2, 3, 3), some(2, 2, 3, 2), some(2)),
                         lambda x, w, b: F.conv_transpose2d(x, w, b, 2, 1, 1)),
    "max_pool_ties": ((these([[1, 1, 0, 2], [1, 1, 2, 2], [0, 3, 3, 3], [3, 0, 3, 0]])[None],),
                      lambda x: F.max_pool2d(x, 2, 1)),
    "max_pool_padded": ((some(1, 2, 5, 5),), lambda x: F.max_pool2d(x, 3, 2, 1, 1, True)),
    "avg_pool_padded": ((some(1, 2, 5),), lambda x: F.avg_pool1d(x, 3, 2, 1, True, True)),
    "avg_pool_inside": ((some(1, 2, 5),), lambda x: F.avg_pool1d(x, 3, 2, 1, True, False)),
    "adaptive_avg_pool": ((some(1, 1, 5, 7),), lambda x: F.adaptive_avg_pool2d(x, (2, 3))),
    # normalisation
    "batch_norm": ((some(3, 2, 4), positive(2), some(2)),
                   lambda x, w, b: F.batch_norm(x, None, None, w, b, True, 0.1, 1e-3)),
    "layer_norm": ((some(3, 4), positive(4), some(4)), lambda x, w, b: F.layer_norm(x, (4,), w, b, 1e-3)),
    "group_norm": ((some(2, 4, 3), positive(4), some(4)), lambda x, w, b: F.group_norm(x, 2, w, b, 1e-3)),
    "rms_norm": ((some(3, 4), positive(4)), lambda x, w: F.rms_norm(x, (4,), w, 1e-3)),
    "normalised_constant": ((these([1, 1, 1, 1], [0, 0, 0, 0]),), lambda x: F.layer_norm(x, (4,), None, None, 1e-3)),
    # losses
    "cross_entropy_none": ((some(4, 5),), lambda x: F.cross_entropy(x, CLASSES, None, None, -100, None, "none", 0.1)),
    "cross_entropy_mean": ((some(4, 5),), lambda x: F.cross_entropy(x, CLASSES, these(1, 2, 3, 4, 5))),
    "cross_entropy_smooth": ((some(4, 5),), lambda x: F.cross_entropy(x, CLASSES, these(1, 2, 3, 4, 5), label_smoothing=0.2)),
    "cross_entropy_sum": ((some(4, 5),), lambda x: F.cross_entropy(x, CLASSES, reduction="sum")),
    "soft_cross_entropy": ((some(3, 4), positive(3, 4)), lambda x, p: F.cross_entropy(x, p, label_smoothing=0.1)),
    "nll_loss": ((some(4, 5),), lambda x: F.nll_loss(x, CLASSES, these(1, 2, 3, 4, 5))),
    "mse_loss": ((some(2, 3), some(2, 3)), lambda x, t: F.mse_loss(x, t)),
    "l1_loss_equal": ((these(1, 2, 3), these(1, 3, 2)), lambda x, t: F.l1_loss(x, t, reduction="none")),
    "huber_loss": ((these(-3, -1, 0, 0.5, 1, 2), these(0, 0, 0, 0, 0, 0)), lambda x, t: F.huber_loss(x, t, "sum", 1.0)),
    "bce_with_logits": ((some(2, 3), positive(2, 3) / 2),
                        lambda x, t: F.binary_cross_entropy_with_logits(x, t, None, pos_weight=these(1, 2, 3))),
    "kl_div": ((some(2, 3), positive(2, 3)), lambda x, t: F.kl_div(x, t, reduction="batchmean")),
    "kl_div_log": ((some(2, 3), some(2, 3)), lambda x, t: F.kl_div(x, t, reduction="sum", log_target=True)),
    # activations, at their kinks
    "relu": ((KINKS,), F.relu),
    "leaky_relu": ((KINKS,), lambda x: F.leaky_relu(x, 0.1)),
    "elu": ((KINKS,), lambda x: F.elu(x, 0.5)),
    "hardswish": ((KINKS,), F.hardswish),
    "hardsigmoid": ((KINKS,), F.hardsigmoid),
    "gelu": ((KINKS,), F.gelu),
    "gelu_tanh": ((KINKS,), lambda x: F.gelu(x, approximate="tanh")),
    "silu": ((KINKS,), F.silu),
    "mish": ((KINKS,), F.mish),
    "softplus": ((KINKS,), lambda x: F.softplus(x, 2, 6)),
    "softmax": ((some(2, 4),), lambda x: torch.softmax(x, -1)),
    "log_softmax": ((some(2, 4),), lambda x: torch.log_softmax(x, 0)),
    "sigmoid": ((KINKS,), torch.sigmoid),
    # elementwise operations where the definition decides
    "abs": ((KINKS,), torch.abs),
    "sqrt": ((these(0.25, 1, 4),), torch.sqrt),
    "clip": ((KINKS, these(-3.0), these(3.0)), lambda x, low, high: torch.clamp(x, low, high)),
    "clip_constants": ((KINKS,), lambda x: torch.clamp(x, these(-3.0), these(3.0))),
    "maximum": ((these(1, 2, 3), these(1, 3, 2)), torch.maximum),
    "minimum": ((these(1, 2, 3), these(1, 3, 2)), torch.minimum),
    "pow_zero": ((these(0, 0, 0, 2, 3), these(0, 1, 2, 0, 1.5)), torch.pow),
    "hypot": ((these(3, 1, 0.5), these(4, 0, -2)), torch.hypot),
    "atan2": ((these(1, -1, 0.5), these(-1, 2, 0)), torch.atan2),
    "logaddexp": ((these(1, 700, -3), these(1, -700, 4)), torch.logaddexp),
    "fmod": ((these(5, -5, 7.5), these(3, 3, -2)), torch.fmod),
    "remainder": ((these(5, -5, 7.5), these(3, 3, -2)), torch.remainder),
    "copysign": ((these(1, -2, 3), these(-1, -1, 1)), torch.copysign),
    "where": ((some(2, 3), some(3)), lambda a, b: torch.where(a > 0, a * b, b)),
    # reductions, with ties and zeros
    "max_ties": ((TIES,), lambda x: torch.amax(x, 1)),
    "min_ties": ((TIES,), lambda x: torch.amin(x, (0, 1))),
    "prod_zeros": ((these([0, 2, 3], [0, 4, 0], [1, 2, 3]),), lambda x: torch.prod(x, 1)),
    "cumulative_prod_zeros": ((these([3, 0, 2, 5], [0, 2, 0, 4]),), lambda x: torch.cumprod(x, 1)),
    "logsumexp": ((some(2, 3),), lambda x: torch.logsumexp(x, 1)),
    "var": ((some(3, 4),), lambda x: torch.var(x, (0, 1), correction=1)),
    "std": ((some(3, 4),), lambda x: torch.std(x, 1, correction=0.5)),
    "std_equal": ((these([1, 1, 1], [1, 2, 3]),), lambda x: torch.std(x, 1)),
    "norm_zero": ((these([0, 0], [3, 4]),), lambda x: torch.linalg.vector_norm(x, 2, 1)),
    "norm_1": ((these([0, -2], [3, 4]),), lambda x: torch.linalg.vector_norm(x, 1, 1)),
    "norm_3": ((these([0, -2], [3, 4]),), lambda x: torch.linalg.vector_norm(x, 3, 1)),
    "norm_infinite": ((these([2, -2], [3, 4]),), lambda x: torch.linalg.vector_norm(x, INF, 1)),
    "cummax_ties": ((TIES,), lambda x: torch.cummax(x, 1)[0]),
    "cummin_ties": ((TIES,), lambda x: torch.cummin(x, 1)[0]),
    "logcumsumexp": ((some(2, 4),), lambda x: torch.logcumsumexp(x, 1)),
    # positions
    "sort": ((some(2, 5),), lambda x: torch.sort(x, 1, descending=True)[0]),
    "topk": ((some(2, 5),), lambda x: torch.topk(x, 2, 1)[0]),
    "embedding": ((some(4, 3),), lambda w: F.embedding(whole([1, 3, 1], [0, 1, 1]), w)),
    "scatter_add": ((some(2, 4), some(2, 3)), lambda x, v: torch.scatter_add(x, 1, whole([1, 1, 0], [3, 3, 3]), v)),
    # matrices
    "matmul": ((some(2, 3, 4), some(4, 2)), torch.matmul),
    "cholesky": ((square(3),), lambda a: torch.linalg.cholesky(a @ a.mT)),
    "inv": ((square(3),), torch.linalg.inv),
    "det": ((square(3),), torch.linalg.det),
    "slogdet": ((square(3),), lambda a: torch.linalg.slogdet(a)[1]),
    "solve": ((square(3), some(3, 2)), torch.linalg.solve),
    "triangular_solve": ((square(3), some(3, 2)), lambda a, b: torch.linalg.solve_triangular(a, b, upper=True)),
    "qr": ((square(3),), lambda a: torch.linalg.qr(a)[1].abs()),
    "eigh": ((square(3),), lambda a: torch.linalg.eigh(a + a.mT)[0]),
    "svdvals": ((some(3, 4),), torch.linalg.svdvals),
    "matrix_norm": ((square(3),), lambda a: torch.linalg.matrix_norm(a, "nuc")),
    # layers
    "attention": ((some(1, 3, 4), some(1, 5, 4), some(1, 5, 2), some(3, 5)),
                  lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, m)),
    "attention_causal": ((some(4, 2), some(4, 2), some(4, 3)),
                         lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True)),
    "lstm": ((some(3, 2, 2), some(2, 2), some(2, 2), some(8, 2), some(8, 2), some(8), some(8)), lstm),
    "gru": ((some(3, 2, 2), some(2, 2), some(6, 2), some(6, 2), some(6), some(6)), gru),
    # complex numbers
    "complex_abs": ((these(0, 3, 1), these(0, 4, -2)), lambda a, b: torch.abs(torch.complex(a, b))),
    "complex_angle": ((these(3, 1), these(4, -2)), lambda a, b: torch.angle(torch.complex(a, b))),
    "complex_sign": ((these(0, 3, 1), these(0, 4, -2)), lambda a, b: torch.sgn(torch.complex(a, b)).imag),
    "complex_fft": ((some(2, 5), some(2, 5)), lambda a, b: torch.fft.fft(torch.complex(a, b), 4).exp().imag),
    "complex_irfft": ((some(2, 4), some(2, 4)), lambda a, b: torch.fft.irfft(torch.complex(a, b), 6, norm="ortho")),
}


for reduction in ("none", "mean", "sum"):
    for loss, inputs, function in (
            ("cross_entropy", (some(4, 5),), lambda x, r: F.cross_entropy(x, CLASSES, these(1, 2, 3, 4, 5), reduction=r)),
            ("soft_cross_entropy", (some(3, 4), positive(3, 4)), lambda x, p, r: F.cross_entropy(x, p, reduction=r)),
            ("nll_loss", (some(4, 5),), lambda x, r: F.nll_loss(x, CLASSES, reduction=r)),
            ("mse_loss", (some(2, 3), some(2, 3)), lambda x, t, r: F.mse_loss(x, t, reduction=r)),
            ("l1_loss", (some(2, 3), some(2, 3)), lambda x, t, r: F.l1_loss(x, t, reduction=r)),
            ("huber_loss", (some(2, 3), some(2, 3)), lambda x, t, r: F.huber_loss(x, t, r, 0.5)),
            ("bce_with_logits", (some(2, 3), positive(2, 3) / 2),
             lambda x, t, r: F.binary_cross_entropy_with_logits(x, t, reduction=r)),
            ("kl_div", (some(2, 3), positive(2, 3)), lambda x, t, r: F.kl_div(x, t, reduction=r))):
        CASES[f"each_{loss}_{reduction}"] = (inputs, lambda *x, of=function, r=reduction: of(*x, r))


def matrix(n):
    return (square(n), some(n, n))


for matrices, inputs, function in (
        ("cholesky", matrix(3), lambda a: torch.linalg.cholesky(a @ a.mH).imag.exp()),
        ("lu", matrix(3), lambda a: torch.linalg.lu(a)[2].imag),
        ("qr", (some(4, 2), some(4, 2)), lambda a: torch.linalg.qr(a)[0].imag.exp()),
        ("solve", matrix(3), lambda a: torch.linalg.solve(a, a.real + 0j).imag),
        ("inv", matrix(3), lambda a: torch.linalg.inv(a).imag),
        ("det", matrix(3), lambda a: torch.linalg.det(a).imag),
        ("slogdet", matrix(3), lambda a: (lambda sign, logarithm: sign.imag * logarithm)(*torch.linalg.slogdet(a))),
        ("eigh", matrix(3), lambda a: torch.linalg.eigh(a + a.mH)[1].abs()),
        ("svd", matrix(3), lambda a: (lambda u, s, vh: u @ vh)(*torch.linalg.svd(a)).imag)):
    CASES[f"complex_{matrices}"] = (inputs, lambda re, im, of=function: of(torch.complex(re, im)))


def text(values):
    return ", ".join(repr(v) if v != int(v) else str(int(v)) for v in values.flatten().tolist())


def write(name, inputs, function):
    inputs = [x.detach().clone().requires_grad_() for x in inputs]
    y = function(*inputs)
    (y * torch.cos(torch.arange(y.numel())).reshape(y.shape)).sum().backward()
    print(f"static const struct stored stored_{name}[] = {{")
    for x in inputs:
        shape = ", ".join(map(str, x.shape)) or "0"
        gradient = ", ".join(f"{v:.12g}" for v in x.grad.flatten().tolist())
        print(f"    {{{x.dim()}, {{{shape}}}, (const double[]){{{text(x.detach())}}},\n     (const double[]){{{gradient}}}}},")
    print("};")


print("/* clang-format off */")
print(f"/* Written by tests/daemon/autograd_numbers.py, with Python {platform.python_version()} and PyTorch {torch.__version__}. */")
for name, (inputs, function) in CASES.items():
    try:
        write(name, inputs, function)
    except Exception as error:
        sys.exit(f"{name}: {error}")
