# %% [markdown]
# # Training by a recorded program
#
# The network of `cnn.py` on Fashion-MNIST with Adam. `td.function` records a step, which is some hundred operations, and from then on one small message runs it. `td.scan`
# sends a whole epoch in one message: the daemon takes the batches itself, and the curve of the losses comes back when somebody looks at it.
#
# Options: `--epochs N`, `--images N` (of the 60,000), `--batch N`, `--rate R`, `--data DIR`, `--plot FILE` (the curve of the loss), `--matrix FILE`, `--log DIR` (TensorBoard).

# %%
import time

import tensord as td
from cnn import CLASSES, Net, evaluate, read_dataset
from show import Bar, Log, curve, matrix
from start import connect, options

given = options(epochs=3, images=60000, batch=128, rate=0.002, data="/usr/share/datasets/fashion-mnist", plot="", matrix="", log="")
connect()
images, labels = read_dataset(given.data, "train", given.images)
steps = images.shape[0] // given.batch

# %% [markdown]
# ## A step, recorded
#
# The step is written as ever. `state` says what it changes: each run begins with the values that network and optimiser have, and leaves the new ones in their memory. The
# images are captured; a batch is a list of their numbers. Nothing in the function waits, and nothing of it runs in Python after the first call.

# %%
td.random.seed(1)
net = Net()
optimiser = td.optim.Adam(net.parameters(), lr=given.rate)


def loss_of(parameters, x, y):
    return td.nn.CrossEntropyLoss()(td.nn.functional_call(net, parameters, x), y)


@td.function(state=[net, optimiser])
def step(chosen):
    x, y = td.take(images, chosen, axis=0), td.take(labels, chosen)
    loss, gradients = td.value_and_grad(loss_of)(dict(net.named_parameters()), x, y)
    optimiser.step(gradients)
    return loss


def shuffled():
    """The numbers of the images of each batch."""
    return td.reshape(td.random.permutation(images.shape[0])[: steps * given.batch], (steps, given.batch))


# %% [markdown]
# The first epoch, step by step. The bar looks at a loss now and then, so the host is some steps ahead, but not the whole epoch.

# %%
losses, bar = [], Bar(steps, "first epoch")
start = time.perf_counter()
for i, chosen in enumerate(td.unstack(shuffled())):
    losses.append(step(chosen))
    if i >= 8:
        losses[-8].wait()
    bar.step(losses[-8] if i >= 8 else None)
values = td.stack(losses).tolist()
seconds = time.perf_counter() - start
bar.close()
print(f"step by step: {steps * given.batch / seconds:.0f} images a second")

# %% [markdown]
# ## An epoch, in one message
#
# `td.scan` repeats a function over the first axis of its input, here the numbers of the images. It goes on with the same network and optimiser. All epochs are enqueued
# before the first one has ended; the losses are stacked on the device.


# %%
@td.function(state=[net, optimiser])
def one_of_epoch(carry, chosen):
    return carry, step(chosen)


start = time.perf_counter()
epochs = [td.scan(one_of_epoch, None, shuffled())[1] for _ in range(given.epochs - 1)]
enqueued = time.perf_counter() - start
for losses in epochs:
    values += losses.tolist()
if epochs:
    seconds = time.perf_counter() - start
    print(f"{len(epochs)} epochs enqueued in {1000 * enqueued:.0f} ms: {len(epochs) * steps * given.batch / seconds:.0f} images a second")

# %%
curve(values, "loss", given.plot)
log = Log(given.log)
log.curve("loss", values)
log.close()

# %% [markdown]
# ## What it has learned

# %%
test_images, test_labels = read_dataset(given.data, "t10k", min(given.images, 10000))
confusion = evaluate(net.eval(), test_images, test_labels, 256).tolist()
right = sum(confusion[i][i] for i in range(10))
print(f"accuracy {100 * right / test_images.shape[0]:.2f} % after {given.epochs} epochs; a row for each label, a column for each guess:")
matrix(confusion, CLASSES, given.matrix)
