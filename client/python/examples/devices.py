# %% [markdown]
# # Which devices are there?
#
# A daemon has one or more devices: GPUs, and processors. Each has a name, a capability (which version of CUDA's machine, or which vector
# instructions), units (multiprocessors, or cores) and memory.

# %%
import tensord as td
from start import connect

devices = connect()
print(f"{len(devices)} device{'s' if len(devices) != 1 else ''}")
print(f"{'name':8} {'kind':5} {'state':10} {'capability':12} {'units':>6} {'memory':>10}  model")
for device in devices:
    memory = f"{device.memory_total / 2**30:.1f} GiB"
    print(f"{device.name:8} {device.kind:5} {device.state:10} {device.capability:12} {device.processors:6} {memory:>10}  {device.model}")

# %% [markdown]
# New arrays are on the current device, which is the daemon's first one until a block says otherwise.

# %%
print(f"new arrays are on {td.zeros(1).device.name}, unless something else is said:")
for device in devices:
    if device.state == "ready":
        with td.device(device.name):
            x = td.arange(5) ** 2
        print(f"  {x.device.name}: {x.tolist()}")
