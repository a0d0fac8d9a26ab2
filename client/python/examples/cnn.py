"""A convolutional network on Fashion-MNIST: weights from a safetensors file, evaluated, with a confusion matrix.

    conv1 1→8 (3×3, padding 1), relu, max-pool 2 · conv2 8→16 (3×3, padding 1), relu, max-pool 2 · fc 784→10

The file has the names and layouts that PyTorch's state_dict() gives a module with the layers conv1, conv2 and fc, so a model that was
trained there comes here by

    safetensors.torch.save_file(model.state_dict(), "model.safetensors")
    python cnn.py --weights model.safetensors

Without PyTorch, --train N trains N steps here first, with gradients written by hand, and saves the weights to that file.

Run: python cnn.py --train 300 --weights FILE [--data DIR] [--images N]
"""

import argparse
import gzip
import os
import struct
import sys
import time

import tensord as td
from start import connect

DATA = "/usr/share/datasets/fashion-mnist"
CLASSES = ("T-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "boot")


# ---- the data: gzip'ed IDX files: a magic number, the extents (big-endian), and bytes ----


def read_idx(folder, name):
    """An array of uint8 on the device from an IDX file. SystemExit with words if there is none."""
    path = os.path.join(folder, name)
    try:
        with gzip.open(path, "rb") as file:
            rank = struct.unpack(">I", file.read(4))[0] & 0xFF
            shape = struct.unpack(f">{rank}I", file.read(4 * rank))
            return td.reshape(td.asarray(file.read()), shape)
    except OSError as error:
        sys.exit(f"{path}: {error.strerror or error}; the Debian package is dataset-fashion-mnist")


def read_dataset(folder, prefix, count=None):
    """Images (n, 1, 28, 28) and labels (n), both uint8: they stay bytes until a batch is used."""
    images = read_idx(folder, f"{prefix}-images-idx3-ubyte.gz")[:count]
    return td.expand_dims(images, axis=1), read_idx(folder, f"{prefix}-labels-idx1-ubyte.gz")[:count]


# ---- the network ----


def make_model(rng):
    """Parameters under PyTorch's names, after He et al., 2015."""

    def weight(*shape):
        inputs = td.zeros(shape[1:]).size
        return rng.normal(scale=(2 / inputs) ** 0.5, size=shape)

    return {
        "conv1.weight": weight(8, 1, 3, 3),
        "conv1.bias": td.zeros(8),
        "conv2.weight": weight(16, 8, 3, 3),
        "conv2.bias": td.zeros(16),
        "fc.weight": weight(10, 784),
        "fc.bias": td.zeros(10),
    }


def forward(model, images):
    """Scores (n, 10), and what the gradients need."""
    x = td.astype(images, td.float32) / 255
    kept = [x]
    for layer in ("conv1", "conv2"):
        active = td.relu(td.conv(x, model[f"{layer}.weight"], model[f"{layer}.bias"], padding=1))
        x, places = td.max_pool(active, 2)
        kept += [active, places, x]
    flat = td.reshape(x, (x.shape[0], -1))
    return td.linear(flat, model["fc.weight"], model["fc.bias"]), kept


def backward(model, kept, d_scores):
    """The gradients of all parameters, from that of the scores."""
    x, active1, places1, pooled1, active2, places2, pooled2 = kept
    flat = td.reshape(pooled2, (pooled2.shape[0], -1))
    gradients = {"fc.weight": d_scores.T @ flat, "fc.bias": td.sum(d_scores, axis=0)}
    gradient = td.reshape(d_scores @ model["fc.weight"], pooled2.shape)
    for layer, before, active, places in (("conv2", pooled1, active2, places2), ("conv1", x, active1, places1)):
        gradient = td.max_pool_grad(gradient, places, active.shape, 2)
        gradient = td.where(active > 0, gradient, 0.0)
        weight = model[f"{layer}.weight"]
        gradients[f"{layer}.weight"] = td.conv_grad_weight(before, gradient, weight.shape, padding=1)
        gradients[f"{layer}.bias"] = td.sum(gradient, axis=(0, 2, 3))
        if layer != "conv1":
            gradient = td.conv_grad_input(gradient, weight, before.shape, padding=1)
    return gradients


def train(model, images, labels, steps, batch=128, rate=0.05, momentum=0.9):
    """Trains by gradient descent with momentum; returns the losses of all steps."""
    rng = td.random.Generator(1)
    velocity = {name: td.zeros_like(x) for name, x in model.items()}
    losses = []
    for step in range(steps):
        chosen = rng.integers(images.shape[0], size=batch)
        x, target = td.take(images, chosen, axis=0), td.one_hot(td.take(labels, chosen), 10, td.float32)
        scores, kept = forward(model, x)
        likelihood = td.log_softmax(scores, axis=-1)
        losses.append(-td.mean(td.sum(likelihood * target, axis=-1)))
        gradients = backward(model, kept, (td.exp(likelihood) - target) / batch)
        for name, gradient in gradients.items():
            velocity[name] = velocity[name] * momentum + gradient
            model[name] = model[name] - velocity[name] * rate
        if step % 8 == 7:
            losses[-8].wait()  # the host stays a few steps ahead, not the whole training
    return td.stack(losses).tolist()


# ---- evaluation ----


def evaluate(model, images, labels, batch=500):
    """The confusion matrix (label, guess) as int64 on the device: everything is enqueued, nothing waits."""
    confusion = td.zeros((10, 10), dtype=td.int64)
    for begin in range(0, images.shape[0], batch):
        scores, _ = forward(model, images[begin : begin + batch])
        guesses = td.argmax(scores, axis=-1)
        truth = td.astype(labels[begin : begin + batch], td.int64)
        confusion = confusion.at[truth, guesses].add(1)
        if begin // batch % 8 == 7:
            confusion.wait()  # keeps memory and queue small
    return confusion


def show(confusion):
    print(f"{'':9}" + "".join(f"{name[:7]:>8}" for name in CLASSES))
    for name, row in zip(CLASSES, confusion):
        print(f"{name:9}" + "".join(f"{count:8}" for count in row))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--weights", required=True, help="a safetensors file")
    parser.add_argument("--train", type=int, metavar="STEPS", help="train first, and save the weights there")
    parser.add_argument("--data", default=DATA)
    parser.add_argument("--images", type=int, default=10000, help="how many images to evaluate, 10000 at most")
    options = parser.parse_args()
    connect()
    if options.train:
        images, labels = read_dataset(options.data, "train")
        model = make_model(td.random.Generator(1))
        losses = train(model, images, labels, options.train)
        print(f"trained {options.train} steps: loss {losses[0]:.3f} at first, {sum(losses[-10:]) / len(losses[-10:]):.3f} at the end")
        td.save_file(model, options.weights)
    model = td.load_file(options.weights)
    images, labels = read_dataset(options.data, "t10k", options.images)
    images.wait()
    start = time.perf_counter()
    confusion = evaluate(model, images, labels).tolist()
    seconds = time.perf_counter() - start
    right = sum(confusion[i][i] for i in range(10))
    print(f"{images.shape[0]} images on {images.device.name} in {seconds:.2f} s, {images.shape[0] / seconds:.0f} a second")
    print(f"accuracy {100 * right / images.shape[0]:.2f} %; a row for each label, a column for each guess:")
    show(confusion)


if __name__ == "__main__":
    main()
