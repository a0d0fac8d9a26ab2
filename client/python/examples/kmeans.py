"""k-means, through the array API standard alone: the function kmeans() works on any library's arrays.

Run: python kmeans.py [--points N] [--clusters K]
"""

import argparse

import tensord as td
from start import connect


def kmeans(x, centres, iterations):
    """Centres (k, d) and labels (n) of points x (n, d), from first centres, by Lloyd's algorithm. Never looks at a value, so that all
    iterations are enqueued without waiting. A cluster that loses all points keeps its centre."""
    xp = x.__array_namespace__()
    k = centres.shape[0]
    clusters = xp.arange(k, device=x.device)
    for _ in range(iterations):
        # |x - c|² without |x|², which is the same for all centres
        distances = xp.sum(centres * centres, axis=1) - 2 * (x @ centres.T)
        labels = xp.argmin(distances, axis=1)
        member = xp.astype(labels[:, None] == clusters, x.dtype)  # (n, k)
        counts = xp.sum(member, axis=0)[:, None]
        means = (member.T @ x) / xp.where(counts > 0, counts, xp.ones_like(counts))
        centres = xp.where(counts > 0, means, centres)
    return centres, labels


def spread(x, count):
    """First centres that are far from each other: each one is the point farthest from those before it."""
    xp = x.__array_namespace__()
    centres = [x[0, :]]
    distance = xp.sum((x - centres[0]) ** 2, axis=1)
    for _ in range(count - 1):
        centres.append(xp.take(x, xp.reshape(xp.argmax(distance), (1,)), axis=0)[0, :])
        distance = xp.minimum(distance, xp.sum((x - centres[-1]) ** 2, axis=1))
    return xp.stack(centres)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--points", type=int, default=3000)
    parser.add_argument("--clusters", type=int, default=5)
    parser.add_argument("--iterations", type=int, default=20)
    options = parser.parse_args()
    connect()
    rng = td.random.Generator(3)
    true_centres = rng.uniform(-10.0, 10.0, size=(options.clusters, 2))
    which = rng.integers(options.clusters, size=options.points)
    x = td.take(true_centres, which, axis=0) + rng.normal(scale=0.5, size=(options.points, 2))

    centres, labels = kmeans(x, spread(x, options.clusters), options.iterations)
    inertia = td.mean(td.sum((x - td.take(centres, labels, axis=0)) ** 2, axis=1))
    values, counts = td.unique_counts(labels)
    print(f"{options.points} points, mean squared distance from their centres {float(inertia):.4f}")
    for value, count, centre in zip(values.tolist(), counts.tolist(), td.take(centres, values, axis=0).tolist()):
        print(f"  cluster {value}: {count:5} points around ({centre[0]:6.2f}, {centre[1]:6.2f})")


if __name__ == "__main__":
    main()
