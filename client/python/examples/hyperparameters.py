# %% [markdown]
# # A search for hyper-parameters by several processes that share one device
#
# Each trial is a process with a connection and session of its own. The daemon runs their work side by side, fairly, and no process sees
# the arrays of another one.
#
# Options: `--processes N`, how many run at a time.

# %%
import itertools
import multiprocessing
import time

import tensord as td
from start import connect, options
from trial import trial

RATES = (0.01, 0.1, 1.0)
STEPS = (20, 100)

# %% [markdown]
# Processes that use tensord are started afresh ("spawn"): a connection does not survive `fork()`. Such a process imports what it runs, so
# `trial()` is in a file of its own, `trial.py`.

# %%
if __name__ == "__main__":
    given = options(processes=3)
    connect()
    tasks = [(td.default_connection().url, rate, steps) for rate, steps in itertools.product(RATES, STEPS)]
    start = time.perf_counter()
    with multiprocessing.get_context("spawn").Pool(given.processes, maxtasksperchild=1) as pool:
        results = pool.map(trial, tasks, chunksize=1)
    seconds = time.perf_counter() - start
    for rate, steps, right, process in results:
        print(f"rate {rate:5}, {steps:4} steps: {100 * right:5.1f} % right (process {process})")
    best = max(results, key=lambda result: result[2])
    print(f"the best is rate {best[0]} with {best[1]} steps; {len(results)} trials by {given.processes} processes at a time took {seconds:.1f} s")
