# %% [markdown]
# # A dictionary of arrays, moved and saved
#
# The parameters of a model are a dictionary of arrays. This moves all of them to another device, saves them in the safetensors format, and
# loads them again.
#
# Options: `--file FILE`, which is kept; without it the file is a temporary one.

# %%
import os
import tempfile

import tensord as td
from start import connect, options

given = options(file="")
names = [device.name for device in connect() if device.state == "ready"]
rng = td.random.Generator(1)
model = {
    "layer1.weight": rng.normal(scale=0.1, size=(64, 32)),
    "layer1.bias": td.zeros(64),
    "layer2.weight": td.astype(rng.normal(scale=0.1, size=(10, 64)), td.bfloat16),
    "steps": td.asarray(0),
}

# %% [markdown]
# ## To another device
#
# Nothing waits for the copies: they are enqueued one after another.


# %%
def to_device(tree, device):
    """Dictionaries, lists and tuples of arrays, with all arrays on a device."""
    if isinstance(tree, dict):
        return {name: to_device(value, device) for name, value in tree.items()}
    if isinstance(tree, (list, tuple)):
        return type(tree)(to_device(value, device) for value in tree)
    return tree.to_device(device) if isinstance(tree, td.Array) else tree


moved = to_device(model, names[-1])
print(f"from {names[0]} to {sorted({x.device.name for x in moved.values()})[0]}: {len(moved)} arrays, {sum(x.nbytes for x in moved.values())} bytes")

# %% [markdown]
# ## Into a file, and back

# %%
with tempfile.TemporaryDirectory() as folder:
    file = given.file or os.path.join(folder, "model.safetensors")
    td.save_file(moved, file)
    print(f"saved: {os.path.getsize(file)} bytes")
    loaded = td.load_file(file, device=names[0])

same = all(bool(td.all(loaded[name] == x)) and loaded[name].dtype is x.dtype for name, x in model.items())
print(f"loaded on {loaded['layer1.bias'].device.name}: {'the same values' if same else 'OTHER VALUES'}")
assert same
