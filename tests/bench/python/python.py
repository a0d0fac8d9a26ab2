#!/usr/bin/env python3
"""Measures the Python package beside NumPy, PyTorch and the C client: python.py [--json FILE] [--quick] [--cnn PROGRAM] TRANSFER-PROGRAM [ROW…]

Rows: add transfer start cnn train. $TENSORD_EXE is the daemon, and `tensord` can be imported. What is not installed has an empty column. Each figure
is the least of several rounds, in which the libraries take turns, because other work on the machine can only add to it; where a row says so, the median.
"""
import argparse
import gzip
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time

import tensord as td
from tensord import _core

try:
    import numpy
except ImportError:
    numpy = None
try:
    import torch
except ImportError:
    torch = None

MIB = 64


def least(rounds, middle=False, **works):
    """The least time of each work (or the median), which returns its own seconds."""
    times = {name: [] for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            times[name].append(work())
    return {name: statistics.median(each) if middle else min(each) for name, each in times.items()}


# ---- c = a + b of 16 floats ----


def adds(a, b, count, after):
    """Seconds of the calling thread for one; then `after` waits for the rest."""

    def work():
        start = time.thread_time()
        for _ in range(count):
            c = a + b  # noqa: F841
        end = time.thread_time()
        after()
        return (end - start) / count

    return work


def row_add(quick, given):
    count, rounds = (2000, 3) if quick else (100000, 15)
    a, b = _core.full((16,), 1.0), _core.full((16,), 2.0)
    works = {"tensord": adds(a, b, count, a.device.sync)}
    if numpy:
        works["numpy"] = adds(numpy.ones(16, "float32"), numpy.ones(16, "float32"), count, lambda: None)
    if torch:
        torch.set_num_threads(1)
        works["torch"] = adds(torch.ones(16), torch.ones(16), count, lambda: None)
    found = least(rounds, True, **works)
    print("c = a + b, 16 floats, the caller's thread (its processor time, the median of the rounds)")
    for name, seconds in found.items():
        print(f"  {name:10} {seconds * 1e6:8.3f} µs")
    if torch:
        print(f"  tensord takes {found['tensord'] / found['torch']:.2f} of PyTorch's time")
    return {name: seconds * 1e6 for name, seconds in found.items()}


# ---- asarray() and numpy() of 64 MiB over a Unix socket ----


def row_transfer(quick, given):
    mib, rounds, turns = (1, 2, 1) if quick else (MIB, 4, 10)
    if not numpy:
        print("asarray and numpy: NumPy is not installed")
        return {}
    data = numpy.arange(mib << 18, dtype="float32")
    environment = {**os.environ, "TENSORD_URL": td.default_connection().url}
    arrays = []

    def into():
        arrays.clear()  # the daemon uses its memory again
        start = time.perf_counter()
        arrays.append(_core.asarray(data))
        end = time.perf_counter()
        arrays[0].wait()
        return end - start

    def out():
        start = time.perf_counter()
        got = arrays[0].numpy()
        end = time.perf_counter()
        assert got[-1] == data[-1]
        return end - start

    of_c = []
    found = {"in": 1e9, "out": 1e9}
    for _ in range(turns):  # of both clients
        said = subprocess.run([given.transfer, str(mib), str(rounds)], env=environment, stdout=subprocess.PIPE, universal_newlines=True, check=True)
        of_c.append([float(each) for each in said.stdout.split()])
        found = {name: min(each, found[name]) for name, each in least(rounds, **{"in": into, "out": out}).items()}
    arrays.clear()
    result = {}
    print(f"{mib} MiB over a Unix socket")
    for i, (name, call) in enumerate((("in", "td.asarray(x)"), ("out", "x.numpy()"))):
        c = min(each[i] for each in of_c)
        rate = (mib << 20) / 1e9
        result[name] = {"tensord": rate / found[name], "c": rate / c}
        print(f"  {call:14} {rate / found[name]:6.2f} GB/s, the C client {rate / c:6.2f} GB/s: {c / found[name]:.2f}")
    return result


# ---- import, and the first array ----


STARTS = """
import time
start = time.perf_counter()
import tensord as td
imported = time.perf_counter()
td.asarray([1.0, 2.0]).wait()
print(imported - start, time.perf_counter() - imported)
"""


def row_start(quick, given):
    environment = {**os.environ, "TENSORD_URL": td.default_connection().url}
    times = []
    for _ in range(2 if quick else 15):
        said = subprocess.run([sys.executable, "-c", STARTS], env=environment, stdout=subprocess.PIPE, universal_newlines=True, check=True)
        times.append([float(each) for each in said.stdout.split()])
    imported, first = (min(each[i] for each in times) * 1e3 for i in (0, 1))
    print(f"import {imported:.1f} ms, first array from a running daemon {first:.1f} ms")
    return {"import_ms": imported, "first_ms": first}


# ---- a convolutional network evaluated: client/examples/cnn.c and client/python/examples/cnn.py are the same ----

IMAGES, BATCH = 10000, 256


def made_up(folder):
    """Fashion-MNIST's test images, of random bytes: nothing but the speed is to be learned."""
    for name, shape, data in (
        ("images-idx3", (IMAGES, 28, 28), random.randbytes(IMAGES * 28 * 28)),
        ("labels-idx1", (IMAGES,), bytes(random.choices(range(10), k=IMAGES))),
    ):
        with gzip.open(f"{folder}/t10k-{name}-ubyte.gz", "wb", 1) as file:
            file.write(bytes((0, 0, 8, len(shape))) + b"".join(extent.to_bytes(4, "big") for extent in shape) + data)


def evaluation(right_in_batch, count, found):
    """Seconds until the number of right guesses is there. `found` gets that number."""

    def work():
        start = time.perf_counter()
        right = 0
        for begin in range(0, count, BATCH):
            right = right + right_in_batch(slice(begin, begin + BATCH))
        found.append(int(right))
        return time.perf_counter() - start

    return work


def evaluation_tensord(cnn, folder, net, found):
    images, labels = cnn.read_dataset(folder, "t10k")

    @td.no_grad()
    def right_in_batch(part):
        return td.sum(td.argmax(net(images[part]), axis=-1) == labels[part])

    return evaluation(right_in_batch, IMAGES, found)


def evaluation_torch(cnn_torch, folder, net, found):
    images, labels = cnn_torch.read_dataset(folder, "t10k")

    def right_in_batch(part):
        with torch.inference_mode():
            return (net(images[part]).argmax(1) == labels[part]).sum()

    return evaluation(right_in_batch, IMAGES, found)


def row_cnn(quick, given):
    rounds, turns = (1, 1) if quick else (2, 5)
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "client" / "python" / "examples"))
    import cnn

    works, found, of_c = {}, {"tensord": [], "torch": []}, []
    environment = {**os.environ, "TENSORD_URL": td.default_connection().url}
    with tempfile.TemporaryDirectory() as folder:
        made_up(folder)
        model = cnn.Net()
        if torch:
            import cnn_torch

            torch.set_num_threads(td.device().processors)
            net = cnn_torch.Net()
            model.load_state_dict({name: x.detach() for name, x in net.state_dict().items()})
            works["torch"] = evaluation_torch(cnn_torch, folder, net, found["torch"])
        works["tensord"] = evaluation_tensord(cnn, folder, model, found["tensord"])
        times = {name: [] for name in works}
        for work in works.values():
            work()  # the first time warms up
        for _ in range(turns):
            if given.cnn:  # its first evaluation warms up
                command = [given.cnn, "--data", folder, "--batch", str(BATCH), "--evaluate", str(rounds + 1)]
                said = subprocess.run(command, env=environment, stdout=subprocess.PIPE, universal_newlines=True, check=True)
                of_c += [float(line.split()[-2]) for line in said.stdout.splitlines()[1:]]
            for name, work in works.items():
                times[name] += [work() for _ in range(rounds)]
    if torch and abs(found["torch"][0] - found["tensord"][0]) > IMAGES // 1000:
        raise SystemExit(f"the network in PyTorch guesses {found['torch'][0]} images right, in tensord {found['tensord'][0]}")
    rates = {name: IMAGES / statistics.median(each) for name, each in times.items()}
    if of_c:
        rates["c"] = statistics.median(of_c)
    print(f"a convolutional network evaluates {IMAGES} images in batches of {BATCH}, the median of the rounds")
    for name, rate in rates.items():
        ratio = f", tensord in Python has {rates['tensord'] / rate:.2f} of that" if name != "tensord" else ""
        print(f"  {name:10} {rate:8,.0f} images/s{ratio}")
    return rates


# ---- the same network trained ----

STEPS, TRAINED = 40, 128


def training(step, images, labels, last):
    """Seconds of STEPS steps, until the last loss is there. `last` gets it."""

    def work():
        start = time.perf_counter()
        for i in range(STEPS):
            part = slice(i * TRAINED, (i + 1) * TRAINED)
            loss = step(images[part], labels[part])
        last.append(loss.item())
        return time.perf_counter() - start

    return work


def training_step(net, loss_of, optimiser):
    """The same program in both libraries."""

    def step(images, labels):
        optimiser.zero_grad()
        loss = loss_of(net(images), labels)
        loss.backward()
        optimiser.step()
        return loss

    return step


def functional_step(net, loss_of, optimiser):
    parameters = dict(net.named_parameters())
    both = td.value_and_grad(lambda parameters, images, labels: loss_of(td.nn.functional_call(net, parameters, images), labels))

    def step(images, labels):
        loss, gradients = both(parameters, images, labels)
        optimiser.step(gradients)
        return loss

    return step


def row_train(quick, given):
    rounds = 1 if quick else 12
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "client" / "python" / "examples"))
    import cnn

    works, found = {}, {}
    with tempfile.TemporaryDirectory() as folder:
        made_up(folder)
        images, labels = cnn.read_dataset(folder, "t10k")
        first = cnn.Net().state_dict()
        for name, make in (("tensord", training_step), ("functional", functional_step)):
            net, found[name] = cnn.Net(), []
            net.load_state_dict(first)
            step = make(net, td.nn.CrossEntropyLoss(), td.optim.Adam(net.parameters(), lr=0.002))
            works[name] = training(step, images, labels, found[name])
        if torch:
            import cnn_torch

            torch.set_num_threads(td.device().processors)
            net, found["torch"] = cnn_torch.Net(), []
            net.load_state_dict({name: torch.from_dlpack(x) for name, x in first.items()})
            step = training_step(net, torch.nn.CrossEntropyLoss(), torch.optim.Adam(net.parameters(), lr=0.002))
            works["torch"] = training(step, *cnn_torch.read_dataset(folder, "t10k"), found["torch"])
        for work in works.values():
            work()  # the first time warms up
        times = least(rounds, True, **works)
    if torch and abs(found["torch"][0] - found["tensord"][0]) > 0.05:
        raise SystemExit(f"after {STEPS} steps the loss in PyTorch is {found['torch'][0]}, in tensord {found['tensord'][0]}")
    rates = {name: STEPS * TRAINED / seconds for name, seconds in times.items()}
    print(f"the convolutional network is trained with Adam, in batches of {TRAINED}: `backward()`, or functional, the median of the rounds")
    for name, rate in rates.items():
        ratio = f", tensord in Python has {rates['tensord'] / rate:.2f} of that" if name != "tensord" else ""
        print(f"  {name:10} {rate:8,.0f} images/s{ratio}")
    return rates


ROWS = {"add": row_add, "transfer": row_transfer, "start": row_start, "cnn": row_cnn, "train": row_train}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--cnn", metavar="PROGRAM", help="client/examples/cnn.c")
    parser.add_argument("transfer")
    parser.add_argument("rows", nargs="*")
    given = parser.parse_intermixed_args()
    daemon = td.serve()
    results = {name: ROWS[name](given.quick, given) for name in given.rows or ROWS}
    daemon.close()
    if given.json:
        with open(given.json, "w", encoding="utf-8") as file:
            json.dump(results, file, indent=1)


if __name__ == "__main__":
    main()
