# %% [markdown]
# # Arrays on devices
#
# An array lives on one device. Operations run where their inputs are, and never move anything by themselves.

# %%
import tensord as td
from start import connect

names = [device.name for device in connect() if device.state == "ready"]
first, second = names[0], names[-1]

x = td.asarray([[1.0, 2.0], [3.0, 4.0]], device=first)
y = td.ones((2, 2), device=second)
print(f"x is on {x.device.name}, y is on {y.device.name}")

# %% [markdown]
# ## Arrays of two devices do not mix

# %%
if first != second:
    try:
        x + y
    except td.DeviceMismatchError as error:
        print(f"x + y is refused: {error}")

# %% [markdown]
# A copy goes from device to device inside the daemon, not through this process.

# %%
moved = y.to_device(x.device)
print(f"x + y.to_device(x.device) = {(x + moved).tolist()}")
print(f"y itself is still on {y.device.name}")

with td.device(second):
    z = td.linspace(0, 1, 5)
print(f"made in a block `with td.device({second!r})`: on {z.device.name}")

# %% [markdown]
# ## Updates
#
# Arrays in the daemon never change. An update makes a new array; an assignment gives the name the new array.

# %%
before = x
updated = x.at[0, 1].set(99)
print(f"x.at[0, 1].set(99) = {updated.tolist()}, x = {x.tolist()}")
view = x[0]
x[0] = 0
print(f"after x[0] = 0: x = {x.tolist()}, a view made before = {view.tolist()}, the same object = {before.tolist()}")

# %% [markdown]
# ## To the host
#
# `tolist()` and `numpy()` wait until the array has been computed, and copy it here.

# %%
print(f"on the host: {x.tolist()}")
