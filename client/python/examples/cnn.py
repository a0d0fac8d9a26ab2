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
from tensord import nn
from show import matrix
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
# The modules of `td.nn` have PyTorch's names and layouts, so `state_dict()` of this class and of the one in `cnn_torch.py` are alike: `conv1.weight` is
# (outputs, inputs, 5, 5), `fc1.weight` is (outputs, inputs).


# %%
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 6, 5)
        self.conv2 = nn.Conv2d(6, 16, 5, padding=3)
        self.conv3 = nn.Conv2d(16, 16, 5)
        self.conv4 = nn.Conv2d(16, 16, 3)
        self.pool = nn.MaxPool2d(2)
        self.fc1 = nn.Linear(64, 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, 10)

    def forward(self, images):
        """Scores (n, 10) of images (n, 1 or 3, 32, 32), uint8."""
        x = td.astype(images, td.float32) * (1 / 255)
        x = td.broadcast_to(x, (x.shape[0], 3, 32, 32))
        x = self.pool(td.relu(self.conv1(x)))
        x = td.relu(self.conv2(x))
        x = self.pool(td.relu(self.conv3(x)))
        x = self.pool(td.relu(self.conv4(x)))
        x = td.relu(self.fc1(td.reshape(x, (x.shape[0], -1))))
        return self.fc3(td.relu(self.fc2(x)))


# %% [markdown]
# ## Evaluation
#
# All batches are enqueued; nothing waits until somebody looks at the matrix.


# %%
@td.no_grad()
def evaluate(net, images, labels, batch):
    """The confusion matrix (label, guess) as int64 on the device."""
    confusion = td.zeros((10, 10), dtype=td.int64)
    for begin in range(0, images.shape[0], batch):
        guesses = td.argmax(net(images[begin : begin + batch]), axis=-1)
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
        net = Net().eval()
        try:
            net.load_state_dict(td.load_file(weights))
        except (KeyError, ValueError) as error:
            sys.exit(f"{weights}: these are the weights of another network: {error}")
    for name, layer in net.named_children():
        print(f"{name}: {layer}")

# %%
if __name__ == "__main__":
    images, labels = read_dataset(given.data, "t10k", given.images)
    evaluate(net, images[:1000], labels[:1000], given.batch).wait()  # the first time is longer
    start = time.perf_counter()
    confusion = evaluate(net, images, labels, given.batch).tolist()
    seconds = time.perf_counter() - start
    right = sum(confusion[i][i] for i in range(10))
    print(f"{images.shape[0]} images on {images.device.name} in {seconds:.2f} s, {images.shape[0] / seconds:.0f} a second")
    print(f"accuracy {100 * right / images.shape[0]:.2f} %; a row for each label, a column for each guess:")
    matrix(confusion, CLASSES, given.plot)
