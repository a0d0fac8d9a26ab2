"""Logistic regression, trained through the array API standard alone: the function fit() works on any library's arrays.

Run: python logistic_regression.py [--steps N]
tqdm shows a bar, Matplotlib draws the curve (--plot FILE), and TensorBoard gets the loss (--log DIR), where they are installed.
"""

import argparse

import tensord as td
from start import connect


def fit(x, y, steps, rate, report):
    """Weights (features + 1) of the logistic model of labels y (n), 0 or 1, by gradient descent on x (n, features).

    `report(step, loss)` gets the mean cross-entropy as an array that has not been waited for.
    """
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


def progress(steps):
    """The numbers of the steps, with a bar where tqdm is installed."""
    try:
        from tqdm import tqdm
    except ImportError:
        return None
    return tqdm(total=steps, desc="training")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--points", type=int, default=2000)
    parser.add_argument("--plot", help="a file for the curve of the loss")
    parser.add_argument("--log", help="a folder for TensorBoard")
    options = parser.parse_args()
    connect()
    rng = td.random.Generator(1)
    x, y = make_data(rng, options.points, 20)
    train, test = slice(0, options.points * 3 // 4), slice(options.points * 3 // 4, None)

    losses, bar = [], progress(options.steps)

    def report(step, loss):
        losses.append(loss)  # still on its way: the loop above never waits
        if bar:
            bar.update()
            if step % 50 == 49:
                bar.set_postfix(loss=f"{loss:.4f}")  # a look at the value waits for it

    weights = fit(x[train], y[train], options.steps, 0.5, report)
    curve = td.stack(losses).tolist()  # one fetch for the whole curve
    if bar:
        bar.close()
    right = td.mean(td.astype(predict(x[test], weights) == (y[test] > 0.5), td.float32))
    print(f"loss {curve[0]:.4f} at first, {curve[-1]:.4f} at the end; {100 * float(right):.1f} % of the test points are right")
    if options.plot:
        import matplotlib

        matplotlib.use("Agg")
        import matplotlib.pyplot as plt

        plt.plot(curve)
        plt.xlabel("step")
        plt.ylabel("loss")
        plt.savefig(options.plot)
        print(f"the curve is in {options.plot}")
    if options.log:
        from tensorboard.summary import Writer

        writer = Writer(options.log)
        for step, loss in enumerate(curve):
            writer.add_scalar("loss", loss, step)
        writer.close()


if __name__ == "__main__":
    main()
