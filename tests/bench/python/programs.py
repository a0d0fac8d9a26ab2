#!/usr/bin/env python3
"""Measures recorded programs from Python beside JAX's jit, PyTorch eager and the C program: programs.py [--json FILE] [--quick] [--cnn PROGRAM] [--tensorctl PROGRAM] [ROW…]

Rows: call written small cnn gradient. $TENSORD_EXE is the daemon, and `tensord` can be imported. What is not installed has an empty column. Each figure is the median
of several rounds, in which the libraries take turns; all have as many threads as the device. A ratio is tensord's speed to the other one's: more is better.
"""
import argparse
import functools
import json
import math
import os
import pathlib
import re
import statistics
import subprocess
import sys
import time

import tensord as td
from tensord import nn

try:
    import torch
except ImportError:
    torch = None
try:
    import jax
    import numpy
except ImportError:
    jax = None

EXAMPLES = pathlib.Path(__file__).resolve().parents[3] / "client" / "python" / "examples"


def medians(rounds, works, alone=None):
    """The median seconds of each work, which returns its own. Each but those of `alone` is done twice in its turn, and the second time counts: threads of the library before still
    look for work for a while, and take a processor meanwhile."""
    times = {name: [] for name in (*works, *(alone or {}))}
    for _ in range(rounds):
        for name, work in works.items():
            work()
            times[name].append(work())
        for name, work in (alone or {}).items():
            times[name].append(work())
    return {name: statistics.median(each) for name, each in times.items()}


def timed(run, wait, count):
    """A work: seconds of one run, of `count`, until wait(the last result)."""

    def work():
        start = time.perf_counter()
        for _ in range(count):
            result = run()
        wait(result)
        return (time.perf_counter() - start) / count

    return work


def told(title, found, unit=1e-6, words="µs", goals=None):
    """Prints a row; the first one is a recorded program's. `goals`: the speed that is wanted, of each of the others."""
    first, mine = next(iter(found.items()))
    parts = [f"{first} {mine / unit:.4g} {words}"]
    for name, seconds in list(found.items())[1:]:
        goal = (goals or {}).get(name)
        met = "" if goal is None else f" (>= {goal}: {'met' if seconds / mine >= goal else 'MISSED'})"
        parts.append(f"{name} {seconds / unit:.4g}: {seconds / mine:.2f}{met}")
    print(f"{title}: {'; '.join(parts)}", flush=True)
    return {name: seconds / unit for name, seconds in found.items()}


# ---- what a call costs ----


def row_call(given):
    def chain(x):
        for _ in range(50):
            x = td.tanh(x) + x
        return x

    x, count = td.ones(16), 20 if given.quick else 2000

    def caller(run):
        """The time of the caller's thread."""

        def work():
            start = time.thread_time()
            for _ in range(count):
                run(x)
            seconds = (time.thread_time() - start) / count
            x.device.sync()
            return seconds

        return work

    works = {"td.function": caller(td.function(chain)), "tensord eager": caller(chain)}
    if jax:
        y, jitted = jax.numpy.ones(16), jax.jit(lambda x: functools.reduce(lambda x, _: jax.numpy.tanh(x) + x, range(50), x))
        jitted(y).block_until_ready()
        works["jax.jit"] = timed(lambda: jitted(y), jax.block_until_ready, count)
    found = medians(7, works)
    print(f"goal: a call takes 5 µs at most: {'met' if found['td.function'] <= 5e-6 else 'MISSED'}")
    return told("a call of 100 operations on 16 floats, the caller's thread", found)


# ---- written out of elementwise operations and reductions ----


def softmax(m, x):
    e = m.exp(x - m.max(x, axis=1, keepdims=True))
    return e / m.sum(e, axis=1, keepdims=True)


def layer_norm(m, x, weight, bias):
    centred = x - m.mean(x, axis=1, keepdims=True)
    variance = m.mean(centred * centred, axis=1, keepdims=True)
    return centred / m.sqrt(variance + 1e-5) * weight + bias


def gelu(m, x):
    return 0.5 * x * (1 + m.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))


def adam(m, parameter, gradient, first, second):
    first = 0.9 * first + (1 - 0.9) * gradient
    second = 0.999 * second + (1 - 0.999) * (gradient * gradient)
    return parameter - 0.001 * (first / (1 - 0.9**3)) / (m.sqrt(second / (1 - 0.999**3)) + 1e-8), first, second


def single_adam(parameter, gradient, first, second):
    """The operation writes into arrays, which are the caller's: copies of them, as those that are written out make new ones."""
    parameter, first, second = (td.asarray(one, copy=True) for one in (parameter, first, second))
    td.adam([parameter], [gradient], [first], [second], 3, 0.001)
    return parameter, first, second


def row_written(given):
    results = {}
    rows, columns = (10, 100) if given.quick else (1000, 1000)
    rounds, count = (1, 2) if given.quick else (11, 20)
    td.random.seed(1)
    matrix = td.random.normal(size=(rows, columns))
    vectors = [td.random.normal(size=(columns,)) for _ in range(2)]
    flat = [td.random.normal(size=(rows * columns,)) for _ in range(3)] + [td.random.uniform(size=(rows * columns,))]
    for name, function, operands, single in (
        ("softmax", softmax, [matrix], lambda x: td.softmax(x, axis=1)),
        ("layer norm", layer_norm, [matrix, *vectors], lambda x, w, b: td.layer_norm(x, w, b, axes=1)),
        ("gelu (tanh)", gelu, [flat[0]], td.gelu_tanh),
        ("Adam", adam, flat, single_adam),
    ):
        recorded = td.function(functools.partial(function, td))
        sync = matrix.device.sync
        works = {
            "program": timed(lambda: recorded(*operands), lambda _: sync(), count),
            "single operation": timed(lambda: single(*operands), lambda _: sync(), count),
            "operations": timed(lambda: function(td, *operands), lambda _: sync(), count),
        }
        mine = recorded(*operands)
        if jax:
            theirs = [jax.numpy.asarray(one.numpy()) for one in operands]
            jitted = jax.jit(functools.partial(function, jax.numpy))
            works["jax.jit"] = timed(lambda: jitted(*theirs), jax.block_until_ready, count)
            compare(name, mine, jitted(*theirs))
        compare(name, mine, single(*operands))
        results[name] = told(f"{name}, {rows * columns} elements", medians(rounds, works), goals={"jax.jit": 1.0, "single operation": 0.8})
    return results


def compare(name, mine, theirs):
    """All of them compute the same."""
    mine, theirs = (one if isinstance(one, tuple) else (one,) for one in (mine, theirs))
    for x, y in zip(mine, theirs):
        worst = float(td.max(td.abs(x - (y if isinstance(y, td.Array) else td.asarray(numpy.asarray(y))))))
        if not worst < 1e-4:
            raise SystemExit(f"{name}: a result differs by {worst}")


# ---- steps of networks ----


def td_step(net, loss_of, optimiser):
    def step(images, labels):
        loss, gradients = td.value_and_grad(lambda parameters: loss_of(nn.functional_call(net, parameters, images), labels))(dict(net.named_parameters()))
        optimiser.step(gradients)
        return loss

    return step


def torch_step(net, loss_of, optimiser):
    def step(images, labels):
        optimiser.zero_grad()
        loss = loss_of(net(images), labels)
        loss.backward()
        optimiser.step()
        return loss.detach()

    return step


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(784, 256), nn.Linear(256, 10)

    def forward(self, images):
        return self.fc2(td.relu(self.fc1(td.astype(images, td.float32) * (1 / 255))))


def torch_small():
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.fc1, self.fc2 = torch.nn.Linear(784, 256), torch.nn.Linear(256, 10)

        def forward(self, images):
            return self.fc2(torch.relu(self.fc1(images.float() * (1 / 255))))

    return Net()


def jax_loss(scores, labels):
    return -jax.numpy.take_along_axis(jax.nn.log_softmax(scores), labels[:, None].astype("int32"), 1).mean()


def jax_small(p, images):
    x = images.astype("float32") * (1 / 255)
    return jax.nn.relu(x @ p["fc1.weight"].T + p["fc1.bias"]) @ p["fc2.weight"].T + p["fc2.bias"]


def jax_cnn(p, images):
    def conv(x, name, padding=0):
        y = jax.lax.conv_general_dilated(x, p[name + ".weight"], (1, 1), [(padding, padding)] * 2)
        return jax.nn.relu(y + p[name + ".bias"][:, None, None])

    def pool(x):
        return jax.lax.reduce_window(x, -math.inf, jax.lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")

    def linear(x, name):
        return x @ p[name + ".weight"].T + p[name + ".bias"]

    x = jax.numpy.broadcast_to(images.astype("float32") * (1 / 255), (images.shape[0], 3, 32, 32))
    x = pool(conv(x, "conv1"))
    x = conv(x, "conv2", 3)
    x = pool(conv(pool(conv(x, "conv3")), "conv4"))
    x = jax.nn.relu(linear(x.reshape(x.shape[0], -1), "fc1"))
    return linear(jax.nn.relu(linear(x, "fc2")), "fc3")


def jax_sgd(p, g, state):
    velocity = jax.tree.map(lambda v, g: 0.9 * v + g, state, g)
    return jax.tree.map(lambda p, v: p - 0.01 * v, p, velocity), velocity


def jax_adam(p, g, state):
    step, first, second = state
    step = step + 1
    first = jax.tree.map(lambda m, g: 0.9 * m + (1 - 0.9) * g, first, g)
    second = jax.tree.map(lambda s, g: 0.999 * s + (1 - 0.999) * g * g, second, g)
    size, root = 0.001 / (1 - 0.9**step), jax.numpy.sqrt(1 - 0.999**step)
    return jax.tree.map(lambda p, m, s: p - size * m / (jax.numpy.sqrt(s) / root + 1e-8), p, first, second), (step, first, second)


def jax_step(forward, update, parameters, state):
    """A step that keeps its parameters itself, and gives the old ones away."""

    @functools.partial(jax.jit, donate_argnums=(0, 1))
    def step(parameters, state, images, labels):
        loss, gradients = jax.value_and_grad(lambda p: jax_loss(forward(p, images), labels))(parameters)
        return *update(parameters, gradients, state), loss

    kept = [parameters, state]

    def run(images, labels):
        *kept[:], loss = step(*kept, images, labels)
        return loss

    return run


def told_arenas(given):
    """The memory of the programs that there are, beside what is in use at one time at most, which no plan can go below."""
    if not given.tensorctl:
        return {}
    said = subprocess.run([given.tensorctl, "--url", td.default_connection().url, "programs", "--json"], stdout=subprocess.PIPE, check=True)
    found = {}
    for program in json.loads(said.stdout)["programs"]:
        if program["planned"] and program["arena_least"]:
            name, ratio = "a loop" if program["loops"] else "a step", program["arena"] / program["arena_least"]
            found[name] = ratio
            print(
                f"  arena of {name}: {program['arena'] / 2**20:.2f} MiB, {ratio:.3f} of what is in use at one time (<= 1.1: {'met' if ratio <= 1.1 else 'MISSED'});"
                f" {program['operations']} operations, {program['operations_kept']} kept, {program['launches']} launches"
            )
    return found


def steps(given, title, make, torch_make, jax_forward, shape, batch, optimisers, goals, alone=None):
    """Trains the same network on the same images in all libraries. `alone`: works that need not be warmed up."""
    count, rounds = (2, 1) if given.quick else (40, 7)
    td.random.seed(2)
    images = td.astype(td.random.integers(256, size=(count, batch, *shape)), td.uint8)
    labels = td.random.integers(10, size=(count, batch))
    first = {name: x.detach() for name, x in make().state_dict().items()}
    works, last = {}, {}

    def training(name, step, batches):
        def work():
            start = time.perf_counter()
            for x, y in batches:
                loss = step(x, y)
            last[name] = float(loss)
            return (time.perf_counter() - start) / count

        works[name] = work

    mine = [(images[i], labels[i]) for i in range(count)]
    for name in "program", "tensord eager", "one message":
        net = make()
        net.load_state_dict(first)
        optimiser = optimisers["td"](net.parameters())
        step = td_step(net, nn.CrossEntropyLoss(), optimiser)
        state = [net, optimiser]
        if name == "program":
            training(name, td.function(step, state=state), mine)
        elif name == "tensord eager":
            training(name, step, mine)
        else:
            body = td.function(lambda _, batch, step=step: (None, step(*batch)), state=state)

            def epoch(body=body):
                start = time.perf_counter()
                last["one message"] = td.scan(body, None, (images, labels))[1][-1].item()
                return (time.perf_counter() - start) / count

            works[name] = epoch
    if torch:
        torch.set_num_threads(td.device().processors)
        net = torch_make()
        net.load_state_dict({name: torch.from_dlpack(x) for name, x in first.items()})
        training("PyTorch eager", torch_step(net, torch.nn.CrossEntropyLoss(), optimisers["torch"](net.parameters())), [(torch.from_dlpack(x), torch.from_dlpack(y)) for x, y in mine])
    if jax:
        parameters = {name: jax.numpy.array(x.numpy()) for name, x in first.items()}
        update, state = optimisers["jax"](parameters)
        training("jax.jit", jax_step(jax_forward, update, parameters, state), [(jax.numpy.asarray(x.numpy()), jax.numpy.asarray(y.numpy().astype("int32"))) for x, y in mine])
    found = medians(rounds, works, alone or {})
    if max(last.values()) - min(last.values()) > 0.1:
        raise SystemExit(f"{title}: the last losses differ: {last}")
    results = told(title, found, goals=goals)
    print("  images/s: " + ", ".join(f"{name} {batch / seconds:,.0f}" for name, seconds in found.items()))
    results["arena"] = told_arenas(given)
    return results


def zeros(parameters):
    return jax.tree.map(jax.numpy.zeros_like, parameters)


def row_small(given):
    return steps(
        given,
        "a step of 784-256-10, batches of 256, with momentum",
        Small,
        torch_small,
        jax_small,
        (784,),
        256,
        {
            "td": lambda p: td.optim.SGD(p, lr=0.01, momentum=0.9),
            "torch": lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9),
            "jax": lambda p: (jax_sgd, zeros(p)),
        },
        {"tensord eager": 1.5, "PyTorch eager": 1.0, "jax.jit": 1.0},
    )


BATCH = 128


def of_c(program, url, quick):
    """A work: the same network trained by the C program, of which the last epoch counts."""
    command = [program, "--url", url, "--made-up", "--batch", str(BATCH), "--epochs", "1" if quick else "2"]

    def work():
        said = subprocess.run(command, stdout=subprocess.PIPE, universal_newlines=True, check=True)
        return BATCH / float([line for line in said.stdout.splitlines() if line.startswith("epoch")][-1].split()[-2])

    return work


def row_cnn(given):
    sys.path.insert(0, str(EXAMPLES))
    import cnn

    if torch:
        import cnn_torch
    return steps(
        given,
        f"a step of the convolutional network, batches of {BATCH}, with Adam",
        cnn.Net,
        lambda: cnn_torch.Net(),
        jax_cnn,
        (1, 32, 32),
        BATCH,
        {
            "td": lambda p: td.optim.Adam(p),
            "torch": lambda p: torch.optim.Adam(p),
            "jax": lambda p: (jax_adam, (jax.numpy.zeros(()), zeros(p), zeros(p))),
        },
        {"PyTorch eager": 1.0, "jax.jit": 1.0, "C program": 0.98},
        {"C program": of_c(given.cnn, td.default_connection().url, given.quick)} if given.cnn else {},
    )


# ---- the gradient of the convolutional network ----

# Written by hand: tests/daemon/test_cnn.py counts them.
BY_HAND = 41


def row_gradient(given):
    if not given.cnn:
        print("gradient: there is no C program")
        return {}

    def operations(count):
        command = [given.cnn, "--url", td.default_connection().url, "--made-up", "--steps", str(count)]
        said = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True, check=True, env={**os.environ, "TENSORD_DEBUG": "wire"})
        return len(re.findall(r"^  #\d+ .*?= ?([a-z_0-9]+)\(", said.stderr, re.MULTILINE))

    forward = 2 + 6 + 2 * 4 + 2 * 3  # slices; cast, multiply, broadcast_to, reshape, cross_entropy, adam; conv and relu; max_pool and linear
    emitted = operations(2) - operations(1) - forward
    print(f"the gradient of the network: {emitted} operations, {BY_HAND} by hand: {emitted / BY_HAND:.2f} (<= 1.15: {'met' if emitted / BY_HAND <= 1.15 else 'MISSED'})")
    return {"emitted": emitted, "by hand": BY_HAND}


ROWS = {"call": row_call, "written": row_written, "small": row_small, "cnn": row_cnn, "gradient": row_gradient}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--cnn", metavar="PROGRAM", help="client/examples/cnn.c")
    parser.add_argument("--tensorctl", metavar="PROGRAM")
    parser.add_argument("rows", nargs="*")
    given = parser.parse_intermixed_args()
    daemon = td.serve()
    results = {name: ROWS[name](given) for name in given.rows or ROWS}
    daemon.close()
    if given.json:
        with open(given.json, "w", encoding="utf-8") as file:
            json.dump(results, file, indent=1)


if __name__ == "__main__":
    main()
