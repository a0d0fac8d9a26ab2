# %% [markdown]
# # How long does it take?
#
# Vector add and matrix × vector, beside NumPy. Operations are enqueued and return at once, so the time of the call is not the time of the
# work: a clock must stop after `wait()`. For each size a row shows the time of a call alone; the time of each of a hundred calls until the
# last result is there; the time of one call until its result is there, which is what compares with NumPy; and NumPy's.
#
# Options: `--repeat N`, `--largest N` (elements of the largest vector).

# %%
import time

import tensord as td
from start import connect, options

try:
    import numpy as np
except ImportError:
    np = None

given = options(repeat=5, largest=1 << 20)
connect()

# %% [markdown]
# ## The clock


# %%
def fastest(run, repeat):
    """The shortest of several times in seconds; the first run, which warms caches and pools, does not count."""
    run()
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


def microseconds(seconds):
    return f"{seconds * 1e6:12.1f}" if seconds is not None else f"{'-':>12}"


def row(name, ours, theirs, repeat):
    """Prints a line: the call, the call and the wait, and NumPy. 100 calls are timed together, since a clock costs time, too."""

    def calls():
        for _ in range(100):
            result = ours()
        return result

    def calls_and_wait():
        calls().wait()

    enqueue = fastest(calls, repeat) / 100
    td.device().sync()
    done = fastest(calls_and_wait, repeat) / 100
    one = fastest(lambda: ours().wait(), repeat)
    numpy = fastest(theirs, repeat) if np else None
    print(f"{name:28} {microseconds(enqueue)} {microseconds(done)} {microseconds(one)} {microseconds(numpy)}")


# %% [markdown]
# ## The times

# %%
print(f"on {td.device().name}; times in microseconds, the best of {given.repeat}")
print(f"{'':28} {'call alone':>12} {'each of 100':>12} {'one + wait':>12} {'NumPy':>12}")
rng = td.random.Generator(1)
size = 1 << 10
while size <= given.largest:
    a, b = rng.normal(size=size), rng.normal(size=size)
    x, y = (a.numpy(), b.numpy()) if np else (None, None)
    row(f"vector add, {size}", lambda: a + b, lambda: x + y, given.repeat)
    size *= 32
side = 1 << 7
while side * side <= given.largest:
    a, b = rng.normal(size=(side, side)), rng.normal(size=side)
    x, y = (a.numpy(), b.numpy()) if np else (None, None)
    row(f"matrix × vector, {side} × {side}", lambda: a @ b, lambda: x @ y, given.repeat)
    side *= 4
