"""Trains the network of cnn.py in PyTorch on Fashion-MNIST, and saves its weights in the safetensors format. An ordinary PyTorch program:
nothing in it knows of tensord. It also evaluates the network, so that one can compare.

Run: python cnn_torch.py --weights FILE [--data DIR] [--steps N] [--images N]
"""

import argparse
import gzip
import os

import torch
from torch import nn
from torch.nn import functional


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 6, 5)
        self.conv2 = nn.Conv2d(6, 16, 5, padding=3)
        self.conv3 = nn.Conv2d(16, 16, 5)
        self.conv4 = nn.Conv2d(16, 16, 3)
        self.fc1 = nn.Linear(64, 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, 10)

    def forward(self, images):
        """Scores (n, 10) of images (n, 1 or 3, 32, 32), uint8."""
        x = (images.float() * (1 / 255)).expand(-1, 3, -1, -1)
        x = functional.max_pool2d(torch.relu(self.conv1(x)), 2)
        x = torch.relu(self.conv2(x))
        x = functional.max_pool2d(torch.relu(self.conv3(x)), 2)
        x = functional.max_pool2d(torch.relu(self.conv4(x)), 2)
        x = torch.relu(self.fc1(x.flatten(1)))
        return self.fc3(torch.relu(self.fc2(x)))


def read_dataset(folder, prefix):
    """Images (n, 1, 32, 32) with a border, and labels (n)."""
    with gzip.open(os.path.join(folder, f"{prefix}-images-idx3-ubyte.gz")) as file:
        images = torch.frombuffer(bytearray(file.read()), dtype=torch.uint8, offset=16).reshape(-1, 1, 28, 28)
    with gzip.open(os.path.join(folder, f"{prefix}-labels-idx1-ubyte.gz")) as file:
        labels = torch.frombuffer(bytearray(file.read()), dtype=torch.uint8, offset=8).long()
    return functional.pad(images, (2, 2, 2, 2)), labels


def train(net, images, labels, steps, batch=128):
    optimiser = torch.optim.Adam(net.parameters(), lr=0.002)
    for _ in range(steps):
        chosen = torch.randint(len(images), (batch,))
        optimiser.zero_grad()
        loss = functional.cross_entropy(net(images[chosen]), labels[chosen])
        loss.backward()
        optimiser.step()
    return loss.item()


def main():
    from safetensors.torch import save_file  # only here: the class Net is of use without it

    parser = argparse.ArgumentParser()
    parser.add_argument("--weights", required=True)
    parser.add_argument("--data", default="/usr/share/datasets/fashion-mnist")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--images", type=int, default=10000, help="how many to evaluate")
    options = parser.parse_args()
    torch.manual_seed(1)
    net = Net()
    loss = train(net, *read_dataset(options.data, "train"), options.steps)
    save_file(net.state_dict(), options.weights, {"made by": f"PyTorch {torch.__version__}"})
    images, labels = (each[: options.images] for each in read_dataset(options.data, "t10k"))
    with torch.no_grad():
        right = sum(int((net(x).argmax(1) == y).sum()) for x, y in zip(images.split(500), labels.split(500)))
    print(f"PyTorch {torch.__version__} trained {options.steps} steps: loss {loss:.3f} at the end")
    print(f"PyTorch's accuracy {100 * right / len(images):.2f} %; {options.weights}")


if __name__ == "__main__":
    main()
