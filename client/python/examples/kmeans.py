# %% [markdown]
# # k-means
#
# Through the array API standard alone: `kmeans()` works on any library's arrays.
#
# Options: `--points N`, `--clusters K`, `--iterations N`, `--plot FILE` (the clusters), `--log DIR` (for TensorBoard).

# %%
import tensord as td
from show import Bar, Log, curve, picture
from start import connect, options

given = options(points=3000, clusters=5, iterations=20, plot="", log="")
connect()

# %% [markdown]
# ## Lloyd's algorithm
#
# It never looks at a value, so that all iterations are enqueued without waiting. `report(distance)` gets the mean squared distance of the
# points from their centres as an array that has not been waited for.


# %%
def kmeans(x, centres, iterations, report):
    """Centres (k, d) and labels (n) of points x (n, d), from first centres. A cluster that loses all points keeps its centre."""
    xp = x.__array_namespace__()
    clusters = xp.arange(centres.shape[0], device=x.device)
    squares = xp.sum(x * x, axis=1)[:, None]
    for _ in range(iterations):
        distances = squares - 2 * (x @ centres.T) + xp.sum(centres * centres, axis=1)  # squared, (n, k)
        report(xp.mean(xp.min(distances, axis=1)))
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


# %%
rng = td.random.Generator(3)
true_centres = rng.uniform(-10.0, 10.0, size=(given.clusters, 2))
which = rng.integers(given.clusters, size=given.points)
x = td.take(true_centres, which, axis=0) + rng.normal(scale=1.5, size=(given.points, 2))

reported, bar = [], Bar(given.iterations, "k-means", "distance")


def report(distance):
    reported.append(distance)
    bar.step(distance)


centres, labels = kmeans(x, spread(x, given.clusters), given.iterations, report)
distances = td.stack(reported).tolist()
bar.close()
values, counts = td.unique_counts(labels)
print(f"{given.points} points, mean squared distance from their centres {distances[-1]:.4f}")
for value, count, centre in zip(values.tolist(), counts.tolist(), td.take(centres, values, axis=0).tolist()):
    print(f"  cluster {value}: {count:5} points around ({centre[0]:6.2f}, {centre[1]:6.2f})")

# %% [markdown]
# ## What it looked like


# %%
def draw(axes):
    axes.scatter(*x.T.tolist(), s=2, c=labels.tolist(), cmap="tab10")
    axes.scatter(*centres.T.tolist(), marker="x", c="black")


picture(draw, given.plot)
curve(distances, "mean squared distance", "")
log = Log(given.log)
log.curve("mean squared distance", distances)
log.close()
