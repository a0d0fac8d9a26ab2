"""What each process of hyperparameters.py runs."""

import os

import tensord as td
from logistic_regression import fit, make_data, predict


def trial(task):
    """Of a daemon's URL, a rate and a number of steps: the share of right predictions, and which process found it."""
    url, rate, steps = task
    td.connect(url)
    rng = td.random.Generator(1)
    x, y = make_data(rng, 1200, 10)
    weights = fit(x[:800], y[:800], steps, rate, lambda step, loss: None)
    right = td.mean(td.astype(predict(x[800:], weights) == (y[800:] > 0.5), td.float32))
    return rate, steps, float(right), os.getpid()
