# %% [markdown]
# # Hyperband, by several processes that share one device
#
# Hyperband (Li et al., 2018) tries many configurations for a short time, and goes on with the best ones: a third of them for three times as long, and so on. Several
# brackets begin with different times, because some configurations are slow at first. Each process has a session of its own; the daemon runs their work side by
# side, fairly. What a trial has learned is a named tensor, so another process can go on with it.
#
# Options: `--processes N`, how many run at a time; `--epochs N`, of the longest trials; `--eta N`, the share that goes on; `--seed N`; `--plot FILE`.

# %%
import multiprocessing
import random
import time
import uuid

import tensord as td
from hyperband_trial import train
from show import picture
from start import connect, options

# %% [markdown]
# Processes that use tensord are started afresh ("spawn"): a connection does not survive `fork()`. Such a process imports what it runs, so
# that is in a file of its own, `hyperband_trial.py`.


# %%
def sample(rng):
    """A configuration."""
    return {"rate": 10 ** rng.uniform(-3, 0.5), "momentum": rng.uniform(0, 0.97), "decay": 10 ** rng.uniform(-6, -2), "scale": 10 ** rng.uniform(-1.5, 0.3)}


def brackets(epochs, eta):
    """(how many configurations, with how many epochs) of the first rung of each bracket."""
    most = 0
    while eta ** (most + 1) <= epochs:
        most += 1
    return [(-(-(most + 1) * eta**s // (s + 1)), epochs // eta**s) for s in range(most, -1, -1)]


def bracket(pool, url, prefix, rng, count, first, epochs, eta):
    """Successive halving: all trials, as (configuration, epochs, loss, process)."""
    rung = [(f"{prefix}/{i}", sample(rng)) for i in range(count)]
    done, now, found = 0, first, []
    while rung:
        said = pool.map(train, [(url, name, configuration, done, now) for name, configuration in rung], chunksize=1)
        found += [(configuration, now, loss, process) for (_, configuration), (loss, process) in zip(rung, said)]
        best = sorted(range(len(rung)), key=lambda i: said[i][0])
        print(f"  {len(rung):3} configurations, {now:3} epochs: the best loss is {said[best[0]][0]:.4f}")
        rung = [rung[i] for i in best[: len(rung) // eta]] if now * eta <= epochs else []
        done, now = now, now * eta
    return found


# %%
if __name__ == "__main__":
    given = options(processes=3, epochs=27, eta=3, seed=1, plot="")
    connect()
    url, rng, prefix = td.default_connection().url, random.Random(given.seed), f"hyperband-{uuid.uuid4().hex[:8]}"
    found, start = [], time.perf_counter()
    try:
        with multiprocessing.get_context("spawn").Pool(given.processes) as pool:
            for number, (count, first) in enumerate(brackets(given.epochs, given.eta)):
                print(f"bracket {number}")
                found += bracket(pool, url, f"{prefix}/{number}", rng, count, first, given.epochs, given.eta)
    finally:
        for each in td.device().names():
            if each["name"].startswith(prefix):
                td.device().names_remove(each["name"])
    seconds = time.perf_counter() - start

# %%
if __name__ == "__main__":
    configuration, epochs, loss, _ = min(found, key=lambda one: one[2])
    print(f"{len(found)} trials by {len({one[3] for one in found})} processes took {seconds:.1f} s")
    print(f"the best loss is {loss:.4f} after {epochs} epochs, the median {sorted(one[2] for one in found)[len(found) // 2]:.4f}; with " + ", ".join(f"{name} {value:.3g}" for name, value in configuration.items()))

    def draw(axes):
        for configuration, epochs, loss, _ in found:
            axes.plot(configuration["rate"], min(loss, 2), "o", markersize=2 + epochs**0.5, color="tab:blue", alpha=0.5)
        axes.set_xscale("log")
        axes.set_xlabel("rate")
        axes.set_ylabel("loss")

    picture(draw, given.plot)
