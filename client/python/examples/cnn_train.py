# %% [markdown]
# # Training a convolutional network
#
# The network of `cnn.py` on Fashion-MNIST, with Adam. The weights go into a safetensors file with PyTorch's names, which `cnn.py` evaluates; PyTorch can load it, too.
#
# Options: `--weights FILE`, `--data DIR`, `--steps N`, `--plot FILE` (the curve of the loss), `--log DIR` (TensorBoard).

# %%
import tensord as td
from cnn import Net, read_dataset
from show import Bar, Log, curve
from start import connect, options

given = options(weights="cnn.safetensors", data="/usr/share/datasets/fashion-mnist", steps=300, batch=128, rate=0.002, plot="", log="")
connect()

# %% [markdown]
# ## A step
#
# As in PyTorch: the loss, its gradients by all parameters, and a step of the optimiser. Nothing in it waits.

# %%
td.random.seed(1)
net = Net()
criterion = td.nn.CrossEntropyLoss()
optimiser = td.optim.Adam(net.parameters(), lr=given.rate)


def train(images, labels):
    optimiser.zero_grad()
    loss = criterion(net(images), labels)
    loss.backward()
    optimiser.step()
    return loss.detach()


# %% [markdown]
# ## Training
#
# The images are on the device, and batches are chosen there. The losses stay on the device until the end. The bar looks at one now and then, so the host is some steps
# ahead, but not the whole training.

# %%
images, labels = read_dataset(given.data, "train")
losses, bar = [], Bar(given.steps, "training")
for step in range(given.steps):
    chosen = td.random.integers(images.shape[0], size=given.batch)
    losses.append(train(td.take(images, chosen, axis=0), td.take(labels, chosen)))
    if step >= 8:
        losses[-8].wait()
    bar.step(losses[-8] if step >= 8 else None)
values = td.stack(losses).tolist()
bar.close()

# %%
td.save_file(net.state_dict(), given.weights, {"made by": "cnn_train.py"})
last = values[-10:]
print(f"tensord trained {given.steps} steps: loss {values[0]:.3f} at first, {sum(last) / len(last):.3f} at the end; {given.weights}")
curve(values, "loss", given.plot)
log = Log(given.log)
log.curve("loss", values)
log.close()
