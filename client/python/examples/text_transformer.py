# %% [markdown]
# # A small transformer that learns to write
#
# The same text as in `text_lstm.py`, read by blocks of attention and small networks. Each place sees those before it (a causal mask), and says which
# character comes next.
#
# Options: `--steps N`, `--batch N`, `--length N` (characters that it sees), `--size N`, `--layers N`, `--rate R`, `--plot FILE`.

# %%
import tensord as td
from tensord import nn
from show import Bar, curve
from start import connect, options
from text import Letters, least_loss, sentences

given = options(steps=300, batch=16, length=64, size=64, layers=2, rate=0.003, plot="")
connect()
td.random.seed(1)

text = sentences(2000)
letters = Letters(text)
data = td.asarray(letters.numbers(text))

# %% [markdown]
# ## The network
#
# A block adds to its input what attention says, and then what two linear layers make of each place; both read normalised values.


# %%
class Block(nn.Module):
    def __init__(self, size, heads):
        super().__init__()
        self.norm1 = nn.LayerNorm(size)
        self.attention = nn.MultiheadAttention(size, heads, batch_first=True)
        self.norm2 = nn.LayerNorm(size)
        self.network = nn.Sequential(nn.Linear(size, 4 * size), nn.GELU(), nn.Linear(4 * size, size))

    def forward(self, x):
        y = self.norm1(x)
        x = x + self.attention(y, y, y, need_weights=False, is_causal=True)[0]
        return x + self.network(self.norm2(x))


class Transformer(nn.Module):
    def __init__(self, letters, length, size, layers, heads=4):
        super().__init__()
        self.letters = nn.Embedding(letters, size)
        self.places = nn.Embedding(length, size)
        self.blocks = nn.Sequential(*[Block(size, heads) for _ in range(layers)])
        self.norm = nn.LayerNorm(size)
        self.scores = nn.Linear(size, letters)

    def forward(self, x):
        """Scores (batch, steps, letters) of the next ones."""
        places = td.arange(x.shape[1], device=x.device)
        return self.scores(self.norm(self.blocks(self.letters(x) + self.places(places))))


net = Transformer(len(letters), given.length, given.size, given.layers)
print(f"{sum(x.size for x in net.parameters())} parameters, of which attention has {sum(x.size for x in net.blocks[0].attention.parameters())} in a block")

# %% [markdown]
# ## Training
#
# The step as a function of the parameters, in the manner of JAX: `value_and_grad` returns the loss and its gradients in a dictionary of the same names.

# %%
optimiser = td.optim.AdamW(net.parameters(), lr=given.rate)
parameters = dict(net.named_parameters())
window = td.arange(given.length + 1)


@td.value_and_grad
def loss_and_gradients(parameters, part):
    scores = nn.functional_call(net, parameters, part[:, :-1])
    return td.cross_entropy(td.reshape(scores, (-1, len(letters))), td.reshape(part[:, 1:], (-1,)))


losses, bar = [], Bar(given.steps, "training")
for step in range(given.steps):
    starts = td.random.integers(len(text) - given.length, size=(given.batch, 1))
    loss, gradients = loss_and_gradients(parameters, td.take(data, starts + window))
    optimiser.step(gradients)
    losses.append(loss)
    bar.step(losses[-8] if step >= 8 else None)
values = td.stack(losses).tolist()
bar.close()
print(f"loss {values[0]:.3f} at first, {values[-1]:.3f} at the end; no model can have less than about {least_loss():.3f}")
curve(values, "loss", given.plot)

# %% [markdown]
# ## Writing
#
# The likeliest character each time, from the last ones.

# %%
with td.no_grad():
    seen = data[: given.length]
    for _ in range(100):
        scores = net(td.reshape(seen[-given.length :], (1, -1)))
        seen = td.concat([seen, td.reshape(td.argmax(scores[0, -1]), (1,))])
print("it reads:  " + letters.text(seen[: given.length].tolist()))
print("it writes: " + letters.text(seen[given.length :].tolist()))
