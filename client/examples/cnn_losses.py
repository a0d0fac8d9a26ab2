#!/usr/bin/env python3
"""The first losses of client/examples/cnn.c with --made-up --steps 10, computed by PyTorch: cnn_losses.py

Prints them with the versions that computed them; tests/daemon/test_cnn.py has them. Parameters and images come from the same generator
as in cnn.c.
"""
import math
import platform

import numpy as np
import torch

CLASSES, SIDE, CHANNELS, BATCH, STEPS = 10, 32, 3, 256, 10
LAYERS = [(3, 6, 5, 0, True), (6, 16, 5, 3, False), (16, 16, 5, 0, True), (16, 16, 3, 0, True),
          (64, 120, 0, 0, False), (120, 84, 0, 0, False), (84, CLASSES, 0, 0, False)]


class Generator:
    """next_number() of cnn.c, many at a time."""

    def __init__(self, seed):
        self.state = seed

    def take(self, n):
        out = np.empty(n, np.uint32)
        state = self.state
        for i in range(n):
            state = (state * 1664525 + 1013904223) & 0xffffffff
            out[i] = state >> 8
        self.state = state
        return out


def parameters(generator):
    made = []
    for inputs, outputs, kernel, _, _ in LAYERS:
        shape = (outputs, inputs, kernel, kernel) if kernel else (outputs, inputs)
        bound = 1 / math.sqrt(inputs * (kernel * kernel if kernel else 1))
        for each in (shape, shape[:1]):
            numbers = generator.take(math.prod(each)).astype(np.float64)
            values = (bound * (2.0 * numbers / (1 << 24) - 1)).astype(np.float32)
            made.append(torch.tensor(values.reshape(each), requires_grad=True))
    return made


def images(generator, count):
    k = np.arange(CHANNELS * SIDE * SIDE)
    x, y, channel = k % SIDE, k // SIDE % SIDE, k // SIDE // SIDE
    pixels, classes = np.empty((count, len(k)), np.uint8), np.empty(count, np.int64)
    for i in range(count):
        classes[i] = c = int(generator.take(1)[0]) % CLASSES
        wave = (x * c + y * (CLASSES - c) + 3 * channel) % 16
        pixels[i] = wave * 12 + generator.take(len(k)) % 64
    return torch.tensor(pixels.reshape(count, CHANNELS, SIDE, SIDE)), torch.tensor(classes)


def forward(made, x):
    for i, (_, _, kernel, padding, pool) in enumerate(LAYERS):
        weight, bias = made[2 * i:2 * i + 2]
        if kernel:
            x = torch.relu(torch.nn.functional.conv2d(x, weight, bias, padding=padding))
            x = torch.nn.functional.max_pool2d(x, 2) if pool else x
        else:
            x = torch.nn.functional.linear(x.flatten(1), weight, bias)
            x = torch.relu(x) if i + 1 < len(LAYERS) else x
    return x


def main():
    generator = Generator(1)
    made = parameters(generator)
    pixels, classes = images(generator, STEPS * BATCH)
    adam = torch.optim.Adam(made, lr=0.001)
    print(f"# Python {platform.python_version()}, NumPy {np.__version__}, PyTorch {torch.__version__}")
    for step in range(STEPS):
        part = slice(step * BATCH, (step + 1) * BATCH)
        loss = torch.nn.functional.cross_entropy(forward(made, pixels[part].float() * (1 / 255)), classes[part])
        adam.zero_grad()
        loss.backward()
        adam.step()
        print(f"{loss.item():.6f}")


main()
