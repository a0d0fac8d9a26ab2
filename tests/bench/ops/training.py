#!/usr/bin/env python3
"""The Fashion-MNIST example beside the same network in PyTorch and in JAX: images per second of each, epoch by epoch in turn.

usage: training.py [--python PYTHON] [--epochs N] [--data DIR] BUILD

BUILD is a build folder with the daemon and the example. PYTHON is an interpreter that has the peers (scripts/setup bench). Without --data
the images are made up: 60,000 of random bytes, in files as the example reads them, so that nothing but the speed is to be learned.
All have two threads, the data on their device, the same batches of 128 in a shuffled order, and the same optimiser."""
import argparse
import gzip
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time

COUNT, TEST_COUNT, PIXELS, HIDDEN, CLASSES, BATCH = 60_000, 10_000, 784, 256, 10, 128
RATE, MOMENTUM = 0.05, 0.9


def made_up(folder):
    for prefix, count in ("train", COUNT), ("t10k", TEST_COUNT):
        with gzip.open(f"{folder}/{prefix}-images-idx3-ubyte.gz", "wb", 1) as file:
            file.write(b"\0\0\x08\x03" + count.to_bytes(4, "big") + (28).to_bytes(4, "big") * 2 + random.randbytes(count * PIXELS))
        with gzip.open(f"{folder}/{prefix}-labels-idx1-ubyte.gz", "wb", 1) as file:
            file.write(b"\0\0\x08\x01" + count.to_bytes(4, "big") + bytes(random.randrange(CLASSES) for _ in range(count)))


def torch_epoch():
    import torch
    torch.set_num_threads(2)
    images = torch.randint(0, 256, (COUNT, PIXELS), dtype=torch.uint8)
    labels = torch.randint(0, CLASSES, (COUNT,))
    net = torch.nn.Sequential(torch.nn.Linear(PIXELS, HIDDEN), torch.nn.ReLU(), torch.nn.Linear(HIDDEN, CLASSES))
    optimiser = torch.optim.SGD(net.parameters(), lr=RATE, momentum=MOMENTUM)

    def epoch():
        order, total = torch.randperm(COUNT), torch.zeros(())
        for step in range(COUNT // BATCH):
            chosen = order[step * BATCH:(step + 1) * BATCH]
            optimiser.zero_grad()
            loss = torch.nn.functional.cross_entropy(net(images[chosen].float() / 255), labels[chosen])
            loss.backward()
            optimiser.step()
            total += loss.detach()
        return float(total)
    return epoch


def jax_epoch():
    import jax
    import numpy
    jnp = jax.numpy
    key = jax.random.key(1)
    images = jnp.asarray(numpy.random.randint(0, 256, (COUNT, PIXELS), numpy.uint8))
    labels = jnp.asarray(numpy.random.randint(0, CLASSES, COUNT))
    parameters = [jax.random.normal(key, (PIXELS, HIDDEN)) * 0.05, jnp.zeros(HIDDEN), jax.random.normal(key, (HIDDEN, CLASSES)) * 0.09,
                  jnp.zeros(CLASSES)]
    velocity = [jnp.zeros_like(p) for p in parameters]

    def loss_of(p, x, y):
        logits = jax.nn.relu(x @ p[0] + p[1]) @ p[2] + p[3]
        return -jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], 1).mean()

    @jax.jit
    def step(p, v, total, chosen):
        loss, gradient = jax.value_and_grad(loss_of)(p, images[chosen].astype(jnp.float32) / 255, labels[chosen])
        v = [MOMENTUM * a + b for a, b in zip(v, gradient)]
        return [a - RATE * b for a, b in zip(p, v)], v, total + loss

    def epoch():
        nonlocal parameters, velocity
        order, total = numpy.random.permutation(COUNT), jnp.zeros(())
        for i in range(COUNT // BATCH):
            parameters, velocity, total = step(parameters, velocity, total, order[i * BATCH:(i + 1) * BATCH])
        return float(total)
    return epoch


def serve(name):
    """One line with images per second for each line on standard input."""
    epoch = {"torch": torch_epoch, "jax": jax_epoch}[name]()
    epoch()
    for _ in sys.stdin:
        begin = time.perf_counter()
        epoch()
        print(COUNT // BATCH * BATCH / (time.perf_counter() - begin), flush=True)


def tensord_rate(build, folder, socket):
    """Of the second of two epochs."""
    lines = subprocess.run([f"{build}/client/fashion_mnist", "--url", f"unix:{socket}", "--data", folder, "--epochs", "2"],
                           check=True, capture_output=True, text=True).stdout.splitlines()
    return float([line for line in lines if "images/s" in line][1].split()[-2])


def measure(options, folder):
    socket = f"{folder}/socket"
    daemon = subprocess.Popen([f"{options.build}/server/tensord", "--listen", f"unix:{socket}", "--devices", "cpu:0"],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    peers = {name: subprocess.Popen([options.python, __file__, "--serve", name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                    stderr=subprocess.DEVNULL) for name in ("torch", "jax")}
    rates = {"tensord": [], **{name: [] for name in peers}}
    try:
        while not os.path.exists(socket) and daemon.poll() is None:
            time.sleep(0.01)
        for _ in range(options.epochs):
            rates["tensord"].append(tensord_rate(options.build, options.data or folder, socket))
            for name, peer in peers.items():
                try:
                    peer.stdin.write("\n")
                    peer.stdin.flush()
                    rates[name].append(float(peer.stdout.readline()))
                except (BrokenPipeError, ValueError):
                    pass
    finally:
        daemon.terminate()
        for process in peers.values():
            process.kill()
    return rates


def main():
    if sys.argv[1:2] == ["--serve"]:
        serve(sys.argv[2])
        return
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--data", metavar="DIR")
    parser.add_argument("build")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if not options.data:
            made_up(folder)
        rates = measure(options, folder)
    print("| | images/s, median | all |\n|---|---|---|")
    for name, each in rates.items():
        if each:
            print(f"| {name} | {statistics.median(each):,.0f} | {', '.join(f'{rate:,.0f}' for rate in each)} |")


if __name__ == "__main__":
    main()
