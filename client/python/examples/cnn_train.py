# %% [markdown]
# # Training a convolutional network with gradients written by hand
#
# The network of `cnn.py` on Fashion-MNIST, with tensord alone: it has no automatic differentiation, but the gradients of its operations. The
# weights go into a safetensors file with PyTorch's names, which `cnn.py` evaluates; PyTorch can load it, too.
#
# Options: `--weights FILE`, `--data DIR`, `--steps N`, `--plot FILE` (the curve of the loss), `--log DIR` (TensorBoard).

# %%
import tensord as td
from cnn import CONVOLUTIONS, LINEARS, SHAPES, forward, read_dataset
from show import Bar, Log, curve
from start import connect, options

given = options(weights="cnn.safetensors", data="/usr/share/datasets/fashion-mnist", steps=300, batch=128, rate=0.02, plot="", log="")
connect()

# %% [markdown]
# ## The first parameters
#
# Normal numbers whose deviation suits relu (He et al., 2015).

# %%
rng = td.random.Generator(1)
model = {}
for name, shape in SHAPES.items():
    terms = td.zeros(shape[1:]).size  # of the sum that makes each output
    model[f"{name}.weight"] = rng.normal(scale=(2 / terms) ** 0.5, size=shape)
    model[f"{name}.bias"] = td.zeros(shape[0])

# %% [markdown]
# ## The way back
#
# From the last layer to the first one: the gradient by a layer's result gives those by its weight, its bias and its input.


# %%
def backward(model, kept, gradient):
    """The gradients by all parameters, from that by the scores."""
    gradients, kept = {}, list(kept)
    for name in reversed(LINEARS):
        before, active, _ = kept.pop()
        if name != LINEARS[-1]:
            gradient = td.where(active > 0, gradient, 0.0)
        gradients[f"{name}.weight"] = gradient.T @ before
        gradients[f"{name}.bias"] = td.sum(gradient, axis=0)
        gradient = gradient @ model[f"{name}.weight"]
    for name, padding, pooled in reversed(CONVOLUTIONS):
        before, active, places = kept.pop()
        if pooled:
            gradient = td.max_pool_grad(td.reshape(gradient, places.shape), places, active.shape, 2)
        gradient = td.where(active > 0, gradient, 0.0)
        weight = model[f"{name}.weight"]
        gradients[f"{name}.weight"] = td.conv_grad_weight(before, gradient, weight.shape, padding=padding)
        gradients[f"{name}.bias"] = td.sum(gradient, axis=(0, 2, 3))
        if name != CONVOLUTIONS[0][0]:  # nobody asks for the gradient by the images
            gradient = td.conv_grad_input(gradient, weight, before.shape, padding=padding)
    return gradients


# %% [markdown]
# ## Training
#
# Gradient descent with momentum. The losses stay on the device until the end. The bar looks at one now and then, so the host is some steps
# ahead, but not the whole training.

# %%
images, labels = read_dataset(given.data, "train")
velocity = {name: td.zeros_like(x) for name, x in model.items()}
losses, bar = [], Bar(given.steps, "training")
for step in range(given.steps):
    chosen = rng.integers(images.shape[0], size=given.batch)
    target = td.take(labels, chosen)
    kept = []
    scores = forward(model, td.take(images, chosen, axis=0), kept)
    losses.append(td.cross_entropy(scores, target))
    gradients = backward(model, kept, td.cross_entropy_grad(1.0, scores, target))
    for name, gradient in gradients.items():
        velocity[name] = velocity[name] * 0.9 + gradient
        model[name] = model[name] - velocity[name] * given.rate
    if step >= 8:
        losses[-8].wait()
    bar.step(losses[-8] if step >= 8 else None)
values = td.stack(losses).tolist()
bar.close()

# %%
td.save_file(model, given.weights, {"made by": "cnn_train.py"})
last = values[-10:]
print(f"tensord trained {given.steps} steps: loss {values[0]:.3f} at first, {sum(last) / len(last):.3f} at the end; {given.weights}")
curve(values, "loss", given.plot)
log = Log(given.log)
log.curve("loss", values)
log.close()
