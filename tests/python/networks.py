"""Cases of modules, losses, optimisers and schedules that test_networks.py runs with tensord, and torch_networks.py with PyTorch, whose numbers are in
networks.json. Names and arguments are the same in both libraries, and inputs and parameters come of a formula."""


def filled(shape, seed):
    """Nested lists of numbers between -1 and 1."""
    size = 1
    for extent in shape:
        size *= extent
    flat = [((i * 7919 + seed * 104729 + i * i * 31) % 2003) / 1001 - 1 for i in range(size)]
    for extent in reversed(shape[1:]):
        flat = [flat[i : i + extent] for i in range(0, len(flat), extent)] if extent else []
    return flat if shape else flat[0]


def module(name, *args, inputs=(), train=True, call=None, **kwargs):
    """`inputs`: shapes of floats, or lists of integers or bools themselves. `call`: the arguments by name of the call, inputs for tuples."""
    return {"name": name, "args": args, "kwargs": kwargs, "inputs": inputs, "train": train, "call": call or {}}


MODULES = {
    "linear": module("Linear", 3, 4, inputs=[(2, 5, 3)]),
    "linear without bias": module("Linear", 3, 4, bias=False, inputs=[(5, 3)]),
    "conv1d": module("Conv1d", 4, 6, 3, stride=2, padding=2, dilation=2, groups=2, inputs=[(2, 4, 11)]),
    "conv1d same": module("Conv1d", 2, 3, 4, padding="same", inputs=[(2, 2, 7)]),
    "conv2d": module("Conv2d", 2, 3, (3, 2), padding=(1, 0), inputs=[(2, 2, 5, 4)]),
    "conv2d same": module("Conv2d", 2, 2, 3, padding="same", bias=False, inputs=[(1, 2, 4, 4)]),
    "conv3d": module("Conv3d", 1, 2, 2, stride=(1, 2, 1), inputs=[(1, 1, 3, 4, 3)]),
    "max_pool1d": module("MaxPool1d", 3, stride=2, padding=1, inputs=[(2, 2, 9)]),
    "max_pool2d": module("MaxPool2d", 2, inputs=[(2, 2, 4, 5)]),
    "max_pool2d ceil": module("MaxPool2d", 2, ceil_mode=True, inputs=[(1, 2, 5, 5)]),
    "max_pool3d": module("MaxPool3d", (1, 2, 2), inputs=[(1, 2, 2, 4, 4)]),
    "avg_pool1d": module("AvgPool1d", 3, 2, 1, inputs=[(2, 2, 9)]),
    "avg_pool2d": module("AvgPool2d", 3, 2, 1, count_include_pad=False, inputs=[(1, 2, 5, 5)]),
    "avg_pool3d": module("AvgPool3d", 2, inputs=[(1, 2, 4, 2, 2)]),
    "adaptive_avg_pool1d": module("AdaptiveAvgPool1d", 4, inputs=[(1, 2, 10)]),
    "adaptive_avg_pool2d": module("AdaptiveAvgPool2d", (None, 3), inputs=[(1, 2, 4, 7)]),
    "adaptive_avg_pool3d": module("AdaptiveAvgPool3d", 1, inputs=[(2, 2, 2, 3, 2)]),
    "batch_norm1d": module("BatchNorm1d", 3, inputs=[(4, 3)]),
    "batch_norm1d of sequences": module("BatchNorm1d", 3, momentum=0.3, eps=1e-3, inputs=[(2, 3, 4)]),
    "batch_norm2d": module("BatchNorm2d", 2, inputs=[(2, 2, 3, 3)]),
    "batch_norm2d evaluated": module("BatchNorm2d", 2, inputs=[(2, 2, 3, 3)], train=False),
    "batch_norm2d without tracking": module("BatchNorm2d", 2, track_running_stats=False, inputs=[(2, 2, 3, 3)], train=False),
    "batch_norm3d": module("BatchNorm3d", 2, affine=False, inputs=[(2, 2, 2, 2, 2)]),
    "layer_norm": module("LayerNorm", (3, 4), inputs=[(2, 3, 4)]),
    "layer_norm of a number": module("LayerNorm", 4, bias=False, inputs=[(2, 3, 4)]),
    "layer_norm plain": module("LayerNorm", 4, elementwise_affine=False, inputs=[(3, 4)]),
    "group_norm": module("GroupNorm", 2, 4, inputs=[(2, 4, 3)]),
    "dropout evaluated": module("Dropout", 0.5, inputs=[(3, 4)], train=False),
    "embedding": module("Embedding", 5, 3, inputs=[[[1, 4, 1], [0, 2, 2]]]),
    "embedding with padding": module("Embedding", 5, 3, padding_idx=1, inputs=[[[1, 4, 1], [0, 2, 2]]]),
    "lstm": module("LSTM", 3, 4, inputs=[(5, 2, 3)]),
    "lstm of layers": module("LSTM", 3, 2, num_layers=2, batch_first=True, bidirectional=True, inputs=[(2, 4, 3)]),
    "lstm with states": module("LSTM", 3, 2, bias=False, inputs=[(4, 2, 3), ((1, 2, 2), (1, 2, 2))]),
    "lstm without batch": module("LSTM", 3, 2, inputs=[(4, 3)]),
    "gru": module("GRU", 3, 4, inputs=[(5, 2, 3)]),
    "gru of layers": module("GRU", 3, 2, num_layers=2, bidirectional=True, inputs=[(4, 2, 3), (4, 2, 2)]),
    "attention": module("MultiheadAttention", 4, 2, inputs=[(3, 2, 4), (5, 2, 4), (5, 2, 4)]),
    "attention, batch first": module("MultiheadAttention", 4, 2, batch_first=True, inputs=[(2, 3, 4), (2, 5, 4), (2, 5, 4)], call={"need_weights": False}),
    "attention of other sizes": module("MultiheadAttention", 4, 2, kdim=3, vdim=2, bias=False, inputs=[(3, 2, 4), (5, 2, 3), (5, 2, 2)]),
    "attention with masks": module(
        "MultiheadAttention",
        4,
        2,
        inputs=[(3, 2, 4), (3, 2, 4), (3, 2, 4)],
        call={
            "average_attn_weights": False,
            "key_padding_mask": [[False, False, True], [False, False, False]],
            "attn_mask": [[False, True, True], [False, False, True], [False, False, False]],
        },
    ),
    "attention with an added mask": module(
        "MultiheadAttention", 4, 2, inputs=[(3, 2, 4), (3, 2, 4), (3, 2, 4)], call={"need_weights": False, "attn_mask": (3, 3)}
    ),
    "attention without batch": module("MultiheadAttention", 4, 1, inputs=[(3, 4), (3, 4), (3, 4)]),
    "flatten": module("Flatten", inputs=[(2, 3, 2)]),
    "relu": module("ReLU", inputs=[(3, 4)]),
    "leaky_relu": module("LeakyReLU", 0.2, inputs=[(3, 4)]),
    "elu": module("ELU", 0.7, inputs=[(3, 4)]),
    "gelu": module("GELU", inputs=[(3, 4)]),
    "gelu tanh": module("GELU", approximate="tanh", inputs=[(3, 4)]),
    "silu": module("SiLU", inputs=[(3, 4)]),
    "sigmoid": module("Sigmoid", inputs=[(3, 4)]),
    "tanh": module("Tanh", inputs=[(3, 4)]),
    "softplus": module("Softplus", inputs=[(3, 4)]),
    "softmax": module("Softmax", dim=1, inputs=[(3, 4)]),
    "log_softmax": module("LogSoftmax", dim=0, inputs=[(3, 4)]),
    "identity": module("Identity", inputs=[(3,)]),
    "cross_entropy": module("CrossEntropyLoss", label_smoothing=0.1, ignore_index=1, inputs=[(4, 3), [0, 2, 1, 2]]),
    "cross_entropy of pictures": module("CrossEntropyLoss", reduction="none", inputs=[(2, 3, 2), [[0, 2], [1, 2]]]),
    "cross_entropy of probabilities": module("CrossEntropyLoss", label_smoothing=0.1, inputs=[(4, 3), [[0.2, 0.3, 0.5]] * 4]),
    "nll_loss": module("NLLLoss", reduction="sum", inputs=[(4, 3), [0, 2, 1, 2]]),
    "mse_loss": module("MSELoss", inputs=[(4, 3), (4, 3)]),
    "l1_loss": module("L1Loss", reduction="sum", inputs=[(4, 3), (4, 3)]),
    "huber_loss": module("HuberLoss", delta=0.5, inputs=[(4, 3), (4, 3)]),
    "smooth_l1_loss": module("SmoothL1Loss", beta=0.5, inputs=[(4, 3), (4, 3)]),
    "bce_with_logits": module("BCEWithLogitsLoss", inputs=[(4, 3), [[0.0, 1.0, 0.5]] * 4]),
    "kl_div": module("KLDivLoss", reduction="batchmean", log_target=True, inputs=[(4, 3), (4, 3)]),
}

OPTIMISERS = {
    "sgd": ("SGD", {"lr": 0.1}),
    "sgd with momentum": ("SGD", {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01}),
    "sgd of nesterov": ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
    "adam": ("Adam", {"lr": 0.1}),
    "adam with decay": ("Adam", {"lr": 0.05, "betas": (0.8, 0.95), "eps": 1e-6, "weight_decay": 0.1}),
    "adamw": ("AdamW", {"lr": 0.05, "weight_decay": 0.2}),
    "rmsprop": ("RMSprop", {"lr": 0.05, "alpha": 0.9, "weight_decay": 0.1}),
    "adagrad": ("Adagrad", {"lr": 0.1, "lr_decay": 0.1, "initial_accumulator_value": 0.2}),
}
STEPS = 4

SCHEDULES = {
    "step": ("StepLR", {"step_size": 2, "gamma": 0.5}),
    "milestones": ("MultiStepLR", {"milestones": [1, 4], "gamma": 0.1}),
    "exponential": ("ExponentialLR", {"gamma": 0.9}),
    "linear": ("LinearLR", {"start_factor": 0.25, "total_iters": 4}),
    "cosine": ("CosineAnnealingLR", {"T_max": 6, "eta_min": 0.01}),
}
EPOCHS = 6
