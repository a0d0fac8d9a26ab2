# %% [markdown]
# # Training on two devices at once
#
# Each device has the network, and gets half of each batch. The gradients are exchanged and averaged on both, so both networks make the same steps.
# Copies between devices of a daemon do not go through this process.
#
# Options: `--steps N`, `--batch N` (of both together), `--rate R`.

# %%
import tensord as td
from tensord import nn
from start import connect, options

given = options(steps=60, batch=256, rate=0.02)
devices = connect()[:2]
print(f"devices: {', '.join(device.name for device in devices)}")

# %% [markdown]
# ## A problem
#
# Points in rings: which ring a point is in.

# %%
td.random.seed(1)
points = td.random.normal(size=(4096, 2))
rings = td.astype(td.floor(td.sqrt(td.sum(points * points, axis=1))), td.int64)
rings = td.minimum(rings, td.full((), 2))


def network():
    return nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 3))


# %% [markdown]
# ## The networks
#
# One for each device, with the same first values, and an optimiser for each.

# %%
first = network().state_dict()
nets, optimisers = [], []
for device in devices:
    net = network().to(device)
    net.load_state_dict(first)
    nets.append(net)
    optimisers.append(td.optim.Adam(net.parameters(), lr=given.rate))
criterion = nn.CrossEntropyLoss()

# %% [markdown]
# ## A step
#
# The backward passes run at the same time, because the devices do not wait for each other before the exchange.


# %%
def average(nets):
    """The gradients of all networks become the mean of all."""
    for parameters in zip(*(net.parameters() for net in nets)):
        gradients = [parameter.grad for parameter in parameters]
        for parameter in parameters:
            parameter.grad = sum(gradient.to_device(parameter.device) for gradient in gradients) * (1 / len(gradients))


def step(x, y):
    part = x.shape[0] // len(nets)
    losses = []
    for i, (net, optimiser) in enumerate(zip(nets, optimisers)):
        device = net[0].weight.device
        mine = slice(i * part, (i + 1) * part)
        optimiser.zero_grad()
        loss = criterion(net(x[mine].to_device(device)), y[mine].to_device(device))
        loss.backward()
        losses.append(loss.detach())
    average(nets)
    for optimiser in optimisers:
        optimiser.step()
    return losses


# %%
alone = network()  # the same on one device, with whole batches
earlier = []
alone.load_state_dict(first)
optimiser = td.optim.Adam(alone.parameters(), lr=given.rate)
for _ in range(given.steps):
    chosen = td.random.integers(points.shape[0], size=given.batch)
    x, y = td.take(points, chosen, axis=0), td.take(rings, chosen)
    earlier.append(step(x, y))
    for loss in earlier[-4] if len(earlier) > 3 else ():  # not too many copies are under way
        loss.wait()
    optimiser.zero_grad()
    whole = criterion(alone(x), y)
    whole.backward()
    optimiser.step()


# %%
def difference(a, b):
    """The greatest difference between parameters of two networks."""
    pairs = zip(a.parameters(), b.parameters())
    return max(td.max(td.abs(one.detach() - other.detach().to_device(one.device))).item() for one, other in pairs)


for device, net in zip(devices, nets):
    with td.no_grad():
        right = td.mean(td.astype(td.argmax(net(points.to_device(device)), axis=1) == rings.to_device(device), td.float32))
    print(f"{device.name}: {100 * right.item():.1f} % right")
print(f"difference between the devices {difference(nets[0], nets[-1]):.1e}, to one device alone {difference(nets[0], alone):.1e}")
