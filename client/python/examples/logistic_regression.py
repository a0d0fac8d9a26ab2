# %% [markdown]
# # Logistic regression
#
# Trained through the array API standard alone: `fit()` works on any library's arrays.
#
# Options: `--steps N`, `--points N`, `--plot FILE` (the curve of the loss), `--log DIR` (for TensorBoard).

# %%
import tensord as td
from show import Bar, Log, curve
from start import connect, options

# %% [markdown]
# ## The model
#
# `fit()` never looks at a value, so all its steps are enqueued without waiting. `report(step, loss)` gets the mean cross-entropy as an array
# that has not been waited for.


# %%
def fit(x, y, steps, rate, report):
    """Weights (features + 1) of the logistic model of labels y (n), 0 or 1, by gradient descent on x (n, features)."""
    xp = x.__array_namespace__()
    n = x.shape[0]
    x = xp.concat([x, xp.ones((n, 1), dtype=x.dtype, device=x.device)], axis=1)  # a column for the bias
    weights = xp.zeros(x.shape[1], dtype=x.dtype, device=x.device)
    for step in range(steps):
        logits = x @ weights
        probability = 1 / (1 + xp.exp(-logits))
        # log(1 + e^z) - y·z, without overflow
        loss = xp.mean(xp.logaddexp(logits, xp.zeros_like(logits)) - y * logits)
        weights = weights - rate * (x.T @ (probability - y)) / n
        report(step, loss)
    return weights


def predict(x, weights):
    """Labels (n), as bools."""
    return x @ weights[:-1] + weights[-1] > 0


def make_data(rng, n, features):
    """Points, and labels that a hidden direction says, with some noise."""
    x = rng.normal(size=(n, features))
    direction = rng.normal(size=features)
    y = td.astype(x @ direction + rng.normal(scale=0.3, size=n) > 0, x.dtype)
    return x, y


# %% [markdown]
# ## Training
#
# The losses stay on the device; the bar looks at one now and then, and one fetch at the end brings the whole curve.

# %%
if __name__ == "__main__":
    given = options(steps=300, points=2000, plot="", log="")
    connect()
    x, y = make_data(td.random.Generator(1), given.points, 20)
    train, test = slice(0, given.points * 3 // 4), slice(given.points * 3 // 4, None)
    losses, bar = [], Bar(given.steps, "training")

    def report(step, loss):
        losses.append(loss)
        bar.step(loss)

    weights = fit(x[train], y[train], given.steps, 0.5, report)
    values = td.stack(losses).tolist()
    bar.close()
    right = td.mean(td.astype(predict(x[test], weights) == (y[test] > 0.5), td.float32))
    print(f"loss {values[0]:.4f} at first, {values[-1]:.4f} at the end; {100 * float(right):.1f} % of the test points are right")

# %% [markdown]
# ## What it looked like

# %%
if __name__ == "__main__":
    curve(values, "loss", given.plot)
    log = Log(given.log)
    log.curve("loss", values)
    log.close()
