"""Peers of rows_layers.c."""
from table import CHANNELS, FEATURES, IMAGE_SIZES, back, jax_back, prepared, row

SEQUENCES = [1 << 20, 1 << 23]
SIGNALS = [1 << 20, 1 << 23]

# ---- losses ----


def picked(jax, scores, labels):
    return -jax.numpy.mean(jax.numpy.take_along_axis(scores, labels[:, None], 1))


def soft(jax, x):
    return -jax.numpy.mean(jax.numpy.sum(jax.nn.log_softmax(x[0], 1) * x[1], 1))


def divergence(jax, x):
    return jax.numpy.mean(jax.scipy.special.xlogy(x[1], x[1]) - x[1] * x[4])


def huber(jax, x):
    d = jax.numpy.abs(x[0] - x[1])
    return jax.numpy.mean(jax.numpy.where(d <= 1, 0.5 * d * d, d - 0.5))


def of_torch(name, *operands, **more):
    return lambda torch, x: getattr(torch.nn.functional, name)(*[x[i] for i in operands], **more)


def logits(jax, x):
    return jax.numpy.mean(jax.numpy.logaddexp(x[0], 0) - x[0] * x[1])


row("cross_entropy back", "scores", **back(of_torch("cross_entropy", 0, 2), lambda jax, x: picked(jax, jax.nn.log_softmax(x[0], 1), x[2]), 0))
row("cross_entropy of probabilities", "scores", None, of_torch("cross_entropy", 0, 1), soft)
row("cross_entropy of probabilities back", "scores", **back(of_torch("cross_entropy", 0, 1), soft, 0))
row("nll_loss", "scores", None, of_torch("nll_loss", 4, 2), lambda jax, x: picked(jax, x[4], x[2]))
row("nll_loss back", "scores", **back(of_torch("nll_loss", 4, 2), lambda jax, x: picked(jax, x[4], x[2]), 4))
row("kl_div", "scores", None, of_torch("kl_div", 4, 1, reduction="mean"), divergence)
row("kl_div back", "scores", **back(of_torch("kl_div", 4, 1, reduction="mean"), divergence, 4))
row("kl_div back by target", "scores", **back(of_torch("kl_div", 4, 1, reduction="mean"), divergence, 1))
row("mse_loss back", "losses", **back(of_torch("mse_loss", 0, 1), lambda jax, x: jax.numpy.mean((x[0] - x[1]) ** 2), 0))
row("l1_loss", "losses", None, of_torch("l1_loss", 0, 1), lambda jax, x: jax.numpy.mean(jax.numpy.abs(x[0] - x[1])))
row("l1_loss back", "losses", **back(of_torch("l1_loss", 0, 1), lambda jax, x: jax.numpy.mean(jax.numpy.abs(x[0] - x[1])), 0))
row("huber_loss back", "losses", **back(of_torch("huber_loss", 0, 1), huber, 0))
row("bce_with_logits back", "losses", **back(of_torch("binary_cross_entropy_with_logits", 0, 1), logits, 0))
row("bce_with_logits back by target", "losses", **back(of_torch("binary_cross_entropy_with_logits", 0, 1), logits, 1))

# ---- normalisation ----


def rms_norm(jax, x):
    return x[0] * jax.lax.rsqrt(jax.numpy.mean(x[0] * x[0], 1, keepdims=True) + 1e-5) * x[2]


def groups(count):
    def norm(jax, x):
        a = x[0].reshape(len(x[0]), count, -1)
        mean, square = a.mean(2, keepdims=True), (a * a).mean(2, keepdims=True)
        a = ((a - mean) * jax.lax.rsqrt(square - mean * mean + 1e-5)).reshape(x[0].shape)
        return a * x[4][:, None, None] + x[4][:, None, None]
    return norm


def batch_norm(jax, x):
    scale = (x[4] * jax.lax.rsqrt(x[4] + 1e-5))[:, None, None]
    return (x[0] - x[4][:, None, None]) * scale + x[4][:, None, None]


def group_norm_back(torch, x):
    images, pixels = len(x[0]), x[0][0, 0].numel()
    _, mean, deviation = torch.ops.aten.native_group_norm(x[0], x[4], x[4], images, CHANNELS, pixels, 8, 1e-5)
    return lambda: torch.ops.aten.native_group_norm_backward(x[2], x[0], mean, deviation, x[4], images, CHANNELS, pixels, 8, [True, True, True])


row("batch_norm of inference", "images", None, lambda torch, x: torch.nn.functional.batch_norm(x[0], x[4], x[4], x[4], x[4]), batch_norm, sizes=IMAGE_SIZES)
row("group_norm back", "images", None, prepared(group_norm_back), jax_back(groups(8), 0, 4, ones=False), sizes=IMAGE_SIZES)
row("instance_norm", "images", None, lambda torch, x: torch.nn.functional.instance_norm(x[0], weight=x[4], bias=x[4]), groups(CHANNELS), sizes=IMAGE_SIZES)
row("rms_norm back", "layers", **back(lambda torch, x: torch.nn.functional.rms_norm(x[0], x[2].shape, x[2], 1e-5), rms_norm, 0, 2, ones=False))

# ---- windows ----


def jax_conv(stride, padding, dilation=1):
    def conv(jax, x):
        axes = x[0].ndim - 2
        return jax.lax.conv_general_dilated(x[0], x[1], (stride,) * axes, ((padding, padding),) * axes, rhs_dilation=(dilation,) * axes)
    return conv


def torch_conv(stride, padding, dilation=1):
    return lambda torch, x: torch.nn.functional.conv2d(x[0], x[1], None, stride, padding, dilation)


def jax_max_pool(extent, stride, padding):
    return lambda jax, x: jax.lax.reduce_window(x[0], -float("inf"), jax.lax.max, (1, 1, extent, extent), (1, 1, stride, stride),
                                                ((0, 0), (0, 0), (padding, padding), (padding, padding)))


def max_pool_back(torch, x):
    aten = torch.ops.aten
    indices = aten.max_pool2d_with_indices(x[0], [2, 2])[1]
    return lambda: aten.max_pool2d_with_indices_backward(x[3], x[0], [2, 2], [2, 2], [0, 0], [1, 1], False, indices)


def conv1d_back(by_x, by_weight):
    return lambda torch, x: torch.ops.aten.convolution_backward(x[2], x[0], x[1], None, [1], [1], [1], False, [0], 1, [by_x, by_weight, False])


row("max_pool2d back", "pooled", None, prepared(max_pool_back), jax_back(jax_max_pool(2, 2, 0), 0, ones=False), sizes=IMAGE_SIZES)
row("max_pool2d of 3 × 3 by 2", "images", None, lambda torch, x: torch.nn.functional.max_pool2d(x[0], 3, 2, 1, return_indices=True), jax_max_pool(3, 2, 1),
    sizes=IMAGE_SIZES)
row("adaptive_avg_pool2d back", "pooled", None, lambda torch, x: torch.ops.aten._adaptive_avg_pool2d_backward(x[6], x[0]),
    jax_back(lambda jax, x: x[0].reshape(-1, CHANNELS, 7, 8, 7, 8).mean((3, 5)), 0, ones=False), sizes=IMAGE_SIZES)
row("conv_transpose2d by 2", "images", None, lambda torch, x: torch.nn.functional.conv_transpose2d(x[3], x[1], None, 2, 1, 1),
    lambda jax, x: jax.lax.conv_general_dilated(x[3], x[1], (1, 1), ((1, 2), (1, 2)), lhs_dilation=(2, 2)), sizes=IMAGE_SIZES)
row("conv2d by 2", "images", None, torch_conv(2, 1), jax_conv(2, 1), sizes=IMAGE_SIZES)
row("conv2d of 1 × 1", "narrow", None, torch_conv(1, 0), jax_conv(1, 0), sizes=IMAGE_SIZES)
row("conv2d dilated by 2", "images", None, torch_conv(1, 2, 2), jax_conv(1, 2, 2), sizes=IMAGE_SIZES)
row("conv1d by x", "signals", None, conv1d_back(True, False), jax_back(jax_conv(1, 1), 0, ones=False), sizes=SIGNALS)
row("conv1d by weight", "signals", None, conv1d_back(False, True), jax_back(jax_conv(1, 1), 1, ones=False), sizes=SIGNALS)

# ---- sequences ----


def attention(causal):
    def of_jax(jax, x):
        q, k, v = (each.swapaxes(1, 2) for each in x[:3])
        return jax.nn.dot_product_attention(q, k, v, is_causal=causal).swapaxes(1, 2)
    return back(lambda torch, x: torch.nn.functional.scaled_dot_product_attention(*x[:3], is_causal=causal), of_jax, 0, 1, 2, ones=False)


def recurrent_back(kind):
    """By all operands; of all results, as a layer in the middle of a network has them."""
    def make(torch, x):
        with torch.enable_grad():
            layer = getattr(torch.nn, kind)(FEATURES, 128, dtype=x[0].dtype)
            sequence, state = x[0].clone().requires_grad_(), torch.zeros(1, 32, 128, dtype=x[0].dtype, requires_grad=True)
            cell = torch.zeros_like(state, requires_grad=True)
            result, last = layer(sequence, (state, cell) if kind == "LSTM" else state)
        results = [result, *last] if kind == "LSTM" else [result, last]
        wanted = [sequence, state, *([cell] if kind == "LSTM" else []), *layer.parameters()]
        gradients = [torch.randn_like(each) for each in results]
        return lambda: torch.autograd.grad(results, wanted, gradients, retain_graph=True)
    return prepared(make)


row("attention back", "heads_back", **attention(False), sizes=SEQUENCES)
row("causal attention back", "heads_back_causal", **attention(True), sizes=SEQUENCES)
row("lstm back", "four_gates_back", None, recurrent_back("LSTM"), sizes=[1])
row("gru back", "three_gates_back", None, recurrent_back("GRU"), sizes=[1])
row("embedding", "words", lambda np, x: x[0][x[1]], lambda torch, x: torch.nn.functional.embedding(x[1], x[0]), lambda jax, x: x[0][x[1]])
row("embedding back", "words", None, lambda torch, x: torch.ops.aten.embedding_dense_backward(x[2], x[1], 1000, -1, False),
    lambda jax, x: jax.numpy.zeros((1000, FEATURES), x[2].dtype).at[x[1]].add(x[2]))

# ---- optimisers ----


def optimiser(kind, **options):
    def make(torch, x):
        parameter = torch.nn.Parameter(x[0].clone())
        parameter.grad = x[1].clone()
        return getattr(torch.optim, kind)([parameter], **options).step
    return prepared(make)


row("sgd", "parameter", lambda np, x: x[0] - np.float32(0.001) * x[1], optimiser("SGD", lr=0.001, fused=True), lambda jax, x: x[0] - 0.001 * x[1])
row("sgd with momentum", "parameter", None, optimiser("SGD", lr=0.001, momentum=0.9, fused=True),
    lambda jax, x: (v := 0.9 * x[0] + x[1], x[0] - 0.001 * v))
row("adamw", "parameter", None, optimiser("AdamW", fused=True))
row("rmsprop", "parameter", None, optimiser("RMSprop", foreach=True),
    lambda jax, x: (v := 0.99 * x[1] + 0.01 * x[1] ** 2, x[0] - 0.01 * x[1] / (jax.numpy.sqrt(v) + 1e-8)))
row("adagrad", "parameter", None, optimiser("Adagrad", fused=True), lambda jax, x: (v := x[0] + x[1] ** 2, x[0] - 0.01 * x[1] / (jax.numpy.sqrt(v) + 1e-10)))
row("moving_average", "parameter", lambda np, x: np.float32(0.9) * x[0] + np.float32(0.1) * x[1], lambda torch, x: x[0].lerp_(x[1], 0.1),
    lambda jax, x: 0.9 * x[0] + 0.1 * x[1])
