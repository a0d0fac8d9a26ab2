# %% [markdown]
# # A convolutional network whose weights come from PyTorch
#
# A model that was trained with PyTorch is saved in the safetensors format, loaded into the daemon, and evaluated there on Fashion-MNIST,
# with a confusion matrix. This program needs no PyTorch for that, and no CUDA.
#
#     python cnn_torch.py --weights cnn.safetensors        # where PyTorch is: trains, and saves model.state_dict()
#     python cnn.py --weights cnn.safetensors
#
# Without `--weights` this example has the weights made first: by `cnn_torch.py` if PyTorch is installed here, and otherwise by
# `cnn_train.py`, which trains the same network with tensord.
#
# Options: `--weights FILE`, `--data DIR`, `--images N` (of the 10,000), `--batch N`, `--train STEPS` (if it has to train), `--plot FILE`.

# %%
import gzip
import importlib.util
import os
import struct
import subprocess
import sys
import tempfile
import time

import tensord as td
from show import picture
from start import HERE, connect, options

CLASSES = ("T-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "boot")

# %% [markdown]
# ## The data
#
# Files in the IDX format, with gzip: a magic number, the extents (big-endian), and bytes. The images stay bytes until a batch is used.


# %%
def read_idx(folder, name):
    """An array of uint8 on the device from an IDX file. Ends the program with words if there is none."""
    path = os.path.join(folder, name)
    try:
        with gzip.open(path, "rb") as file:
            rank = struct.unpack(">I", file.read(4))[0] & 0xFF
            shape = struct.unpack(f">{rank}I", file.read(4 * rank))
            return td.reshape(td.asarray(file.read()), shape)
    except OSError as error:
        sys.exit(f"{path}: {error.strerror or error}; the Debian package is dataset-fashion-mnist")


def read_dataset(folder, prefix, count=None):
    """Images (n, 1, 32, 32), with a border of two pixels, and labels (n): both uint8."""
    images = read_idx(folder, f"{prefix}-images-idx3-ubyte.gz")[:count]
    images = td.pad(images, (0, 0, 2, 2, 2, 2))
    return td.expand_dims(images, axis=1), read_idx(folder, f"{prefix}-labels-idx1-ubyte.gz")[:count]


# %% [markdown]
# ## The network
#
# The parameters are a dictionary with the names and layouts of PyTorch's `state_dict()`: `conv1.weight` is (outputs, inputs, 5, 5),
# `fc1.weight` is (outputs, inputs).


# %%
CONVOLUTIONS = (("conv1", 0, True), ("conv2", 3, False), ("conv3", 0, True), ("conv4", 0, True))  # name, padding, is it pooled?
LINEARS = ("fc1", "fc2", "fc3")
SHAPES = {  # of the weights; a bias has the first extent
    "conv1": (6, 3, 5, 5),
    "conv2": (16, 6, 5, 5),
    "conv3": (16, 16, 5, 5),
    "conv4": (16, 16, 3, 3),
    "fc1": (120, 64),
    "fc2": (84, 120),
    "fc3": (10, 84),
}


def forward(model, images, kept=None):
    """Scores (n, 10) of images (n, 1 or 3, 32, 32), uint8. A list `kept` gets what the gradients need of each layer."""
    kept = [] if kept is None else kept
    x = td.astype(images, td.float32) * (1 / 255)
    x = td.broadcast_to(x, (x.shape[0], 3, 32, 32))
    for name, padding, pooled in CONVOLUTIONS:
        before, places = x, None
        x = active = td.relu(td.conv(x, model[f"{name}.weight"], model[f"{name}.bias"], padding=padding))
        if pooled:
            x, places = td.max_pool(x, 2)
        kept.append((before, active, places))
    x = td.reshape(x, (x.shape[0], -1))
    for name in LINEARS:
        before = x
        x = td.linear(x, model[f"{name}.weight"], model[f"{name}.bias"], "none" if name == LINEARS[-1] else "relu")
        kept.append((before, x, None))
    return x


# %% [markdown]
# ## Evaluation
#
# All batches are enqueued; nothing waits until somebody looks at the matrix.


# %%
def evaluate(model, images, labels, batch):
    """The confusion matrix (label, guess) as int64 on the device."""
    confusion = td.zeros((10, 10), dtype=td.int64)
    for begin in range(0, images.shape[0], batch):
        guesses = td.argmax(forward(model, images[begin : begin + batch]), axis=-1)
        truth = td.astype(labels[begin : begin + batch], td.int64)
        confusion = confusion.at[truth, guesses].add(1)
    return confusion


def get_weights(file, folder, steps):
    """Has a program make the weights: in PyTorch, or in tensord where PyTorch and its package for safetensors are not installed."""
    torch = all(importlib.util.find_spec(name) for name in ("torch", "safetensors"))
    program = "cnn_torch.py" if torch else "cnn_train.py"
    print(f"no --weights: {program} makes them" + ("" if torch else "; torch and safetensors are not installed"), flush=True)
    url = td.default_connection().url  # of a private daemon; otherwise the program finds the same one
    environment = {**os.environ, "TENSORD_URL": url} if url else None
    arguments = ["--weights", file, "--data", folder, "--steps", str(steps)]
    subprocess.run([sys.executable, os.path.join(HERE, program), *arguments], check=True, env=environment)


# %%
if __name__ == "__main__":
    given = options(weights="", data="/usr/share/datasets/fashion-mnist", images=10000, batch=256, train=300, plot="")
    connect()
    with tempfile.TemporaryDirectory() as temporary:
        weights = given.weights or os.path.join(temporary, "cnn.safetensors")
        if not given.weights:
            get_weights(weights, given.data, given.train)
        model = td.load_file(weights)
    for name, shape in SHAPES.items():
        if not {f"{name}.weight", f"{name}.bias"} <= model.keys() or model[f"{name}.weight"].shape != shape:
            sys.exit(f"{weights}: has no {name}.weight of shape {shape} with its bias: these are the weights of another network")
        print(f"{name}: weight {shape}, bias {model[f'{name}.bias'].shape}")

# %%
if __name__ == "__main__":
    images, labels = read_dataset(given.data, "t10k", given.images)
    evaluate(model, images[:1000], labels[:1000], given.batch).wait()  # the first time is longer
    start = time.perf_counter()
    confusion = evaluate(model, images, labels, given.batch).tolist()
    seconds = time.perf_counter() - start
    right = sum(confusion[i][i] for i in range(10))
    print(f"{images.shape[0]} images on {images.device.name} in {seconds:.2f} s, {images.shape[0] / seconds:.0f} a second")
    print(f"accuracy {100 * right / images.shape[0]:.2f} %; a row for each label, a column for each guess:")
    print(f"{'':9}" + "".join(f"{name[:7]:>8}" for name in CLASSES))
    for name, row in zip(CLASSES, confusion):
        print(f"{name:9}" + "".join(f"{count:8}" for count in row))


# %%
if __name__ == "__main__":

    def draw(axes):
        axes.imshow(confusion, cmap="Blues")
        axes.set_xticks(range(10), CLASSES, rotation=45)
        axes.set_yticks(range(10), CLASSES)
        axes.set_xlabel("guess")
        axes.set_ylabel("label")

    picture(draw, given.plot)
