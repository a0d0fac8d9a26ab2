import tensord as td

td.connect()  # $TENSORD_URL, or the daemon of this host; td.serve() starts a private one

x = td.asarray([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
w = td.random.Generator(42).normal(0.0, 0.1, size=(3, 2))
y = td.tanh(x @ w)  # enqueued: nothing has waited so far
print(y.device, y.tolist())  # waits, and reports what went wrong anywhere above
