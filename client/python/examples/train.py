"""Finds three weights by gradient descent: a step is recorded once, and one message runs it on 200 batches."""

import tensord as td

td.connect()  # $TENSORD_URL, or the daemon of this host; td.serve() starts a private one


def loss_of(w, x, y):
    return td.mean((x @ w - y) ** 2)


@td.function  # recorded when it is called first; one small message runs it from then on
def step(w, batch):
    loss, slope = td.value_and_grad(loss_of)(w, *batch)
    return w - 0.1 * slope, loss


x = td.random.Generator(1).normal(size=(200, 16, 3))
y = x @ td.asarray([1.0, -2.0, 3.0])
w, first = step(td.zeros((3,)), (x[0], y[0]))  # one batch,
w, losses = td.scan(step, w, (x, y))  # and all of them: a loop in the daemon
print(f"loss {float(first):.4f} at first, {float(losses[-1]):.4f} at the end; weights {[round(one, 3) for one in w.tolist()]}")
