# %% [markdown]
# # tensord: a first look
#
# Arrays that live in a daemon, which owns the accelerators of a host. This program needs no CUDA and no driver: it talks to the daemon that
# `$TENSORD_URL` names, or to a private one on this machine's CPU.

# %%
import time

import tensord as td
from logistic_regression import fit, make_data, predict
from show import curve
from start import connect

for device in connect():
    print(device.name, device.model, f"{device.memory_total / 2**30:.1f} GiB")

# %% [markdown]
# ## Arrays
#
# The namespace is that of the Python array API standard, so it reads like NumPy. Operations are enqueued and return at once; looking at a
# value waits for it.

# %%
x = td.reshape(td.arange(12, dtype=td.float32), (3, 4))
y = (x @ x.T) / td.sum(x, axis=1)
print(y)

# %%
print(x[1:, ::2], x[x > 7], x[td.asarray([2, 0])].shape, sep="\n")

# %% [markdown]
# Arrays in the daemon never change. `x.at[…]` makes a new one, and an assignment gives the name the new one.

# %%
z = x.at[0].set(-1)
x[2, 3] = 100
print(z[0].tolist(), x[2].tolist())

# %% [markdown]
# ## Time
#
# A clock must stop after `wait()`: the call alone returns before the work is done.

# %%
a = td.random.Generator(1).normal(size=(512, 512))
(a @ a).wait()
start = time.perf_counter()
product = a @ a
called = time.perf_counter()
product.wait()
done = time.perf_counter()
print(f"the call {1e6 * (called - start):.0f} µs, until the product is there {1e6 * (done - start):.0f} µs")

# %% [markdown]
# ## Training
#
# `fit()` of `logistic_regression.py` is written against the array API standard alone. The losses stay on the device until the end: one fetch
# brings the whole curve.

# %%
points, labels = make_data(td.random.Generator(1), 1000, 20)
losses = []
weights = fit(points, labels, 200, 0.5, lambda step, loss: losses.append(loss))
accuracy = td.mean(td.astype(predict(points, weights) == (labels > 0.5), td.float32))
print(f"{100 * float(accuracy):.1f} % right")
curve(td.stack(losses).tolist(), "loss", "")
