# %% [markdown]
# # An LSTM that learns to write
#
# The text is made by the example: sentences of a small grammar (`text.py`). The network reads characters, and says which one comes next. How good it can
# become is known: the loss cannot be less than the entropy of the grammar.
#
# Options: `--steps N`, `--batch N`, `--length N` (characters in a sequence), `--size N` (of the states), `--rate R`, `--plot FILE`.

# %%
import tensord as td
from tensord import nn
from show import Bar, curve
from start import connect, options
from text import Letters, least_loss, sentences

given = options(steps=300, batch=32, length=64, size=96, rate=0.01, plot="")
connect()
td.random.seed(1)

# %%
text = sentences(2000)
letters = Letters(text)
data = td.asarray(letters.numbers(text))
print(f"{len(text)} characters, {len(letters)} different ones: {text[:70]}…")

# %% [markdown]
# ## The network
#
# It returns the state, too, from which it can go on.


# %%
class Writer(nn.Module):
    def __init__(self, letters, size):
        super().__init__()
        self.embedding = nn.Embedding(letters, 32)
        self.lstm = nn.LSTM(32, size, batch_first=True)
        self.scores = nn.Linear(size, letters)

    def forward(self, x, state=None):
        """Scores (batch, steps, letters) of the next ones, and the state behind the last one."""
        x, state = self.lstm(self.embedding(x), state)
        return self.scores(x), state


# %% [markdown]
# ## Training
#
# Windows of the text, at places drawn by chance. The target of each character is the one behind it. A recurrent network needs its gradients clipped.

# %%
net = Writer(len(letters), given.size)
optimiser = td.optim.Adam(net.parameters(), lr=given.rate)
schedule = td.optim.CosineAnnealingLR(optimiser, given.steps, eta_min=given.rate / 20)
criterion = nn.CrossEntropyLoss()
window = td.arange(given.length + 1)

losses, bar = [], Bar(given.steps, "training")
for step in range(given.steps):
    starts = td.random.integers(len(text) - given.length, size=(given.batch, 1))
    part = td.take(data, starts + window)
    optimiser.zero_grad()
    scores, _ = net(part[:, :-1])
    loss = criterion(td.reshape(scores, (-1, len(letters))), td.reshape(part[:, 1:], (-1,)))
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    optimiser.step()
    schedule.step()
    losses.append(loss.detach())
    bar.step(losses[-8] if step >= 8 else None)
values = td.stack(losses).tolist()
bar.close()
print(f"loss {values[0]:.3f} at first, {values[-1]:.3f} at the end; no model can have less than about {least_loss():.3f}")
curve(values, "loss", given.plot)

# %% [markdown]
# ## Writing
#
# Each character is drawn on the device by the probabilities that the network gives, and goes back into it. Nothing waits before the end.

# %%
with td.no_grad():
    state, letter, written = None, data[:1], []
    for _ in range(150):
        scores, state = net(td.reshape(letter, (1, 1)), state)
        letter = td.reshape(td.random.multinomial(td.softmax(scores[0, -1] * 1.5, -1), 1), (1,))
        written.append(letter)
print("it writes: " + letters.text(td.concat(written).tolist()))
