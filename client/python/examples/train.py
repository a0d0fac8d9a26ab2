import tensord as td

td.connect()  # $TENSORD_URL, or the daemon of this host; td.serve() starts a private one

@td.function  # recorded when it is called first; one small message runs it from then on
def step(w, batch):
    x, y = batch
    loss, slope = td.value_and_grad(lambda w: td.mean((x @ w - y) ** 2))(w)
    return w - 0.1 * slope, loss

x = td.random.Generator(1).normal(size=(200, 16, 3))  # enqueued, as all that follows: nothing waits
w, losses = td.scan(step, td.zeros((3,)), (x, x @ td.asarray([1.0, -2.0, 3.0])))  # 200 steps: a loop in the daemon
print(f"loss {float(losses[0]):.4f} at first, {float(losses[-1]):.4f} at the end; weights {w.tolist()}")  # waits
