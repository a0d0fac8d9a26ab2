"""A search for hyper-parameters by several processes that share one device.

Each trial is a process with a connection and session of its own. The daemon runs their work side by side, fairly, and no process sees
the arrays of another one. Processes that use tensord are started afresh ("spawn"): a connection does not survive fork().

Run: python hyperparameters.py [--processes N]
"""

import argparse
import itertools
import multiprocessing
import os
import time

import tensord as td
from logistic_regression import fit, make_data, predict
from start import connect

RATES = (0.01, 0.1, 1.0)
STEPS = (20, 100)


def trial(task):
    """The share of right predictions for a rate and a number of steps; runs in a process of its own, which connects by itself."""
    url, rate, steps = task
    td.connect(url)
    rng = td.random.Generator(1)
    x, y = make_data(rng, 1200, 10)
    weights = fit(x[:800], y[:800], steps, rate, lambda step, loss: None)
    right = td.mean(td.astype(predict(x[800:], weights) == (y[800:] > 0.5), td.float32))
    return rate, steps, float(right), os.getpid()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--processes", type=int, default=3)
    options = parser.parse_args()
    connect()
    url = td.default_connection().url
    tasks = [(url, rate, steps) for rate, steps in itertools.product(RATES, STEPS)]
    start = time.perf_counter()
    # A process for each trial, so many at a time.
    with multiprocessing.get_context("spawn").Pool(options.processes, maxtasksperchild=1) as pool:
        results = pool.map(trial, tasks, chunksize=1)
    for rate, steps, right, process in results:
        print(f"rate {rate:5}, {steps:4} steps: {100 * right:5.1f} % right (process {process})")
    best = max(results, key=lambda result: result[2])
    seconds = time.perf_counter() - start
    print(f"the best is rate {best[0]} with {best[1]} steps; {len(results)} trials by {options.processes} processes at a time took {seconds:.1f} s")


if __name__ == "__main__":
    main()
