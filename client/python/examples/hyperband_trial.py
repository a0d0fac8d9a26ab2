"""What each process of hyperband.py runs: it trains a network further, with one configuration, by a loop in the daemon."""

import functools
import math
import os

import tensord as td

CLASSES, HIDDEN, BATCHES, BATCH = 3, 24, 8, 64


def rings(rng, batches, batch):
    """Points around the origin, whose class is the ring that they are in."""
    angle = rng.uniform(0, 2 * math.pi, size=(batches, batch))
    label = rng.integers(CLASSES, size=(batches, batch))
    radius = td.astype(label, td.float32) + rng.normal(0.7, 0.15, size=(batches, batch))
    return td.stack([radius * td.cos(angle), radius * td.sin(angle)], axis=-1), label


def scores(parameters, x):
    w1, b1, w2, b2 = parameters
    return td.tanh(x @ w1 + b1) @ w2 + b2


def loss_of(parameters, x, label):
    return td.nn.CrossEntropyLoss()(scores(parameters, x), label)


@functools.partial(td.function, donate_argnums=0)
def step(carry, batch):
    """Gradient descent with momentum. The configuration is in the carry, so that one recording serves all of them."""
    parameters, velocities, rate, momentum, decay = carry
    loss, gradients = td.value_and_grad(loss_of)(parameters, *batch)
    velocities = [momentum * v + g + decay * p for p, v, g in zip(parameters, velocities, gradients)]
    parameters = [p - rate * v for p, v in zip(parameters, velocities)]
    return (parameters, velocities, rate, momentum, decay), loss


def first_parameters(scale):
    rng = td.random.Generator(1)
    shapes = (2, HIDDEN), (HIDDEN,), (HIDDEN, CLASSES), (CLASSES,)
    return [rng.normal(0, scale, size=shape) for shape in shapes]


@functools.lru_cache(maxsize=None)
def prepared(url):
    """A process connects once, and makes its data once."""
    td.connect(url)
    rng = td.random.Generator(2)
    return rings(rng, BATCHES, BATCH), rings(rng, 1, 512)


def train(task):
    """Of a daemon's URL, a name, a configuration, and the epochs that it has and shall have: the loss on other points, and which process found it. What it has learned is
    published, so that any process can go on with it."""
    url, name, configuration, done, epochs = task
    batches, (x, label) = prepared(url)
    device = td.device()
    if done:
        arrays = [device.lookup(f"{name}/{i}") for i in range(8)]
    else:
        parameters = first_parameters(configuration["scale"])
        arrays = parameters + [td.zeros_like(one) for one in parameters]
    numbers = [td.full((), configuration[key], dtype=td.float32) for key in ("rate", "momentum", "decay")]
    carry = (arrays[:4], arrays[4:], *numbers)
    for _ in range(epochs - done):
        carry, _ = td.scan(step, carry, batches)
    parameters, velocities, *_ = carry
    for i, array in enumerate(parameters + velocities):
        array.publish(f"{name}/{i}")
    loss = float(loss_of(parameters, x[0], label[0]))
    return loss if math.isfinite(loss) else math.inf, os.getpid()
