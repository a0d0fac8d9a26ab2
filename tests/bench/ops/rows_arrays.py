"""Peers of rows_arrays.c."""
from table import prepared, row

SMALL = [1024, 1 << 16]


# ---- creation ----

row("full", "vectors", lambda np, x: np.full(x[0].shape, 0.5, x[0].dtype), lambda torch, x: torch.full(x[0].shape, 0.5, dtype=x[0].dtype),
    lambda jax, x: jax.numpy.full(x[0].shape, 0.5, x[0].dtype))
row("arange", "vectors", lambda np, x: np.arange(0, len(x[0]), dtype=x[0].dtype), lambda torch, x: torch.arange(0, len(x[0]), dtype=x[0].dtype),
    lambda jax, x: jax.numpy.arange(0, len(x[0]), dtype=x[0].dtype), dtypes=("f32", "i64"))
row("linspace", "vectors", lambda np, x: np.linspace(0, 1, len(x[0]), dtype=x[0].dtype), lambda torch, x: torch.linspace(0, 1, len(x[0]), dtype=x[0].dtype),
    lambda jax, x: jax.numpy.linspace(0, 1, len(x[0]), dtype=x[0].dtype))
row("linspace of complex", "vectors", lambda np, x: np.linspace(1j, 1 + 2j, len(x[0]), dtype=np.complex64),
    lambda torch, x: torch.linspace(1j, 1 + 2j, len(x[0]), dtype=torch.complex64), lambda jax, x: jax.numpy.linspace(1j, 1 + 2j, len(x[0]), dtype="complex64"),
    dtypes=("c64",))
row("eye", "square", lambda np, x: np.eye(len(x[0]), dtype=x[0].dtype), lambda torch, x: torch.eye(len(x[0]), dtype=x[0].dtype),
    lambda jax, x: jax.numpy.eye(len(x[0]), dtype=x[0].dtype))
row("fftfreq", "vectors", lambda np, x: np.fft.fftfreq(len(x[0])), lambda torch, x: torch.fft.fftfreq(len(x[0])),
    lambda jax, x: jax.numpy.fft.fftfreq(len(x[0]), dtype=x[0].dtype))
row("rfftfreq", "vectors", lambda np, x: np.fft.rfftfreq(len(x[0])), lambda torch, x: torch.fft.rfftfreq(len(x[0])),
    lambda jax, x: jax.numpy.fft.rfftfreq(len(x[0]), dtype=x[0].dtype))
row("meshgrid", "edges", lambda np, x: np.meshgrid(x[0], x[1], indexing="ij", copy=False), lambda torch, x: torch.meshgrid(x[0], x[1], indexing="ij"),
    lambda jax, x: jax.numpy.meshgrid(x[0], x[1], indexing="ij"), sizes=[1024])

# ---- random numbers ----


def generator(call):
    """A line of NumPy's, with a generator that is made once."""
    def make(np, x):
        random = np.random.default_rng(7)
        return lambda: call(random, x)
    return prepared(make)


def key(call):
    return lambda jax, x: call(jax.random, jax.random.key(7), x)


row("exponential", "vectors", generator(lambda random, x: random.standard_exponential(len(x[0]), x[0].dtype)), lambda torch, x: torch.empty_like(x[0]).exponential_(),
    key(lambda random, key, x: random.exponential(key, x[0].shape, x[0].dtype)))
row("randint", "vectors", generator(lambda random, x: random.integers(0, 1000, len(x[0]))), lambda torch, x: torch.randint(0, 1000, x[0].shape),
    key(lambda random, key, x: random.randint(key, x[0].shape, 0, 1000, "int64")))
row("bernoulli", "vectors", None, lambda torch, x: torch.empty_like(x[0]).bernoulli_(0.25),
    key(lambda random, key, x: random.bernoulli(key, 0.25, x[0].shape).astype(x[0].dtype)))
row("bernoulli of probabilities", "vectors", None, lambda torch, x: torch.bernoulli(x[0]),
    key(lambda random, key, x: random.bernoulli(key, x[0]).astype(x[0].dtype)))


def drawn(np, x):
    random, shares = np.random.default_rng(7), x[0] / np.sum(x[0], dtype="f8")
    return lambda: random.choice(len(shares), len(x[1]), p=shares)


row("multinomial", "kinds", prepared(drawn), lambda torch, x: torch.multinomial(x[0], len(x[1]), True),
    key(lambda random, key, x: random.choice(key, len(x[0]), x[1].shape, p=x[0] / x[0].sum())))
row("multinomial, no replacement", "vectors", None, lambda torch, x: torch.multinomial(x[0], len(x[0]) // 16),
    key(lambda random, key, x: random.choice(key, len(x[0]), (len(x[0]) // 16,), False, x[0])))

# ---- views ----

VIEW = [1024]
row("reshape", "square", lambda np, x: x[0].reshape(-1), lambda torch, x: x[0].reshape(-1), lambda jax, x: x[0].reshape(-1), sizes=VIEW)
row("permute_dims", "batch", lambda np, x: x[0].transpose(2, 0, 1), lambda torch, x: x[0].permute(2, 0, 1), lambda jax, x: x[0].transpose(2, 0, 1), sizes=VIEW)
row("matrix_transpose", "square", lambda np, x: x[0].mT, lambda torch, x: x[0].mT, lambda jax, x: x[0].mT, sizes=VIEW)
row("slice", "square", lambda np, x: x[0][:len(x[0]) // 2], lambda torch, x: x[0][:len(x[0]) // 2], lambda jax, x: x[0][:len(x[0]) // 2], sizes=VIEW)
row("broadcast_to", "edges", lambda np, x: np.broadcast_to(x[0], 2 * x[0].shape), lambda torch, x: torch.broadcast_to(x[0], 2 * x[0].shape),
    lambda jax, x: jax.numpy.broadcast_to(x[0], 2 * x[0].shape), sizes=VIEW)
row("expand_dims", "square", lambda np, x: np.expand_dims(x[0], 0), lambda torch, x: x[0].unsqueeze(0), lambda jax, x: jax.numpy.expand_dims(x[0], 0), sizes=VIEW)
row("squeeze", "column", lambda np, x: np.squeeze(x[0], 1), lambda torch, x: x[0].squeeze(1), lambda jax, x: jax.numpy.squeeze(x[0], 1), sizes=VIEW)
row("diagonal", "square", lambda np, x: np.diagonal(x[0]), lambda torch, x: torch.diagonal(x[0]), lambda jax, x: jax.numpy.diagonal(x[0]), sizes=VIEW)
row("moveaxis", "batch", lambda np, x: np.moveaxis(x[0], 0, 2), lambda torch, x: torch.moveaxis(x[0], 0, 2), lambda jax, x: jax.numpy.moveaxis(x[0], 0, 2), sizes=VIEW)
row("split", "square", lambda np, x: np.split(x[0], 2, 1), lambda torch, x: torch.tensor_split(x[0], 2, 1), lambda jax, x: jax.numpy.split(x[0], 2, 1), sizes=VIEW)
row("unstack", "pair", lambda np, x: np.unstack(x[0]), lambda torch, x: torch.unbind(x[0]), lambda jax, x: jax.numpy.unstack(x[0]), sizes=VIEW)

# ---- movement and indices ----

row("triu", "square", lambda np, x: np.triu(x[0]), lambda torch, x: torch.triu(x[0]), lambda jax, x: jax.numpy.triu(x[0]))
row("diag", "edges", lambda np, x: np.diag(x[0]), lambda torch, x: torch.diag(x[0]), lambda jax, x: jax.numpy.diag(x[0]))
row("diff", "vectors", lambda np, x: np.diff(x[0]), lambda torch, x: torch.diff(x[0]), lambda jax, x: jax.numpy.diff(x[0]))
row("pad, reflected", "square", lambda np, x: np.pad(x[0], 1, "reflect"), lambda torch, x: torch.nn.functional.pad(x[0][None], (1, 1, 1, 1), "reflect"),
    lambda jax, x: jax.numpy.pad(x[0], 1, "reflect"))
row("gather", "places", None, lambda torch, x: torch.gather(x[0], 1, x[2]))
row("scatter, in place", "places", lambda np, x: np.put_along_axis(x[0], x[2], x[1], 1), lambda torch, x: x[0].scatter_(1, x[2], x[1]))


def copied(np, x):
    result = x[0].copy()
    result[x[2]] = x[1]
    return result


row("index_copy of rows", "positions", copied, lambda torch, x: torch.index_copy(x[0], 0, x[2], x[1]), lambda jax, x: x[0].at[x[2]].set(x[1]))
row("repeat of counts", "counts", lambda np, x: np.repeat(x[0], x[1]), lambda torch, x: torch.repeat_interleave(x[0], x[1]),
    lambda jax, x: jax.numpy.repeat(x[0], x[1], total_repeat_length=2 * len(x[0])))
row("unique", "integers", lambda np, x: np.unique(x[0]), lambda torch, x: torch.unique(x[0]), lambda jax, x: jax.numpy.unique(x[0], size=len(x[0])))
row("unique and places", "integers", lambda np, x: np.unique(x[0], True, True, True), lambda torch, x: torch.unique(x[0], True, True, True),
    lambda jax, x: jax.numpy.unique(x[0], True, True, True, size=len(x[0])))
row("unique of a sorted vector", "runs", None, lambda torch, x: torch.unique_consecutive(x[0], True, True))

# ---- reductions ----

row("min of rows", "square", lambda np, x: np.min(x[0], 1), lambda torch, x: torch.amin(x[0], 1), lambda jax, x: jax.numpy.min(x[0], 1))
row("all", "masks", lambda np, x: np.all(x[0]), lambda torch, x: torch.all(x[0]), lambda jax, x: jax.numpy.all(x[0]))
row("any of rows", "booleans", lambda np, x: np.any(x[0], 1), lambda torch, x: torch.any(x[0], 1), lambda jax, x: jax.numpy.any(x[0], 1))
row("all of rows", "booleans", lambda np, x: np.all(x[0], 1), lambda torch, x: torch.all(x[0], 1), lambda jax, x: jax.numpy.all(x[0], 1))
row("argmin", "vectors", lambda np, x: np.argmin(x[0]), lambda torch, x: torch.argmin(x[0]), lambda jax, x: jax.numpy.argmin(x[0]))
row("std of rows", "square", lambda np, x: np.std(x[0], 1, ddof=1), lambda torch, x: torch.std(x[0], 1), lambda jax, x: jax.numpy.std(x[0], 1, ddof=1))
row("mean", "vectors", lambda np, x: np.mean(x[0]), lambda torch, x: torch.mean(x[0]), lambda jax, x: jax.numpy.mean(x[0]))
row("std", "vectors", lambda np, x: np.std(x[0], ddof=1), lambda torch, x: torch.std(x[0]), lambda jax, x: jax.numpy.std(x[0], ddof=1))
row("cumprod of rows", "near_one", lambda np, x: np.cumprod(x[0], 1), lambda torch, x: torch.cumprod(x[0], 1), lambda jax, x: jax.numpy.cumprod(x[0], 1))
row("cummin of rows", "square", lambda np, x: np.minimum.accumulate(x[0], 1), lambda torch, x: torch.cummin(x[0], 1), lambda jax, x: jax.lax.cummin(x[0], 1))
row("logcumsumexp of rows", "square", lambda np, x: np.logaddexp.accumulate(x[0], 1), lambda torch, x: torch.logcumsumexp(x[0], 1),
    lambda jax, x: jax.lax.cumlogsumexp(x[0], 1))

# ---- linear algebra ----

row("lu", "definite", None, lambda torch, x: torch.linalg.lu(x[2]), lambda jax, x: jax.scipy.linalg.lu(x[2]))
row("triangular_solve", "definite", None, lambda torch, x: torch.linalg.solve_triangular(x[2], x[1], upper=False),
    lambda jax, x: jax.scipy.linalg.solve_triangular(x[2], x[1], lower=True))
row("slogdet", "definite", lambda np, x: np.linalg.slogdet(x[2]), lambda torch, x: torch.linalg.slogdet(x[2]), lambda jax, x: jax.numpy.linalg.slogdet(x[2]))
row("lstsq", "tall", lambda np, x: np.linalg.lstsq(x[0], x[1]), lambda torch, x: torch.linalg.lstsq(x[0], x[1], driver="gels"),
    lambda jax, x: jax.numpy.linalg.lstsq(x[0], x[1]), sizes=SMALL)
row("pinv", "square", lambda np, x: np.linalg.pinv(x[0], 1e-5), lambda torch, x: torch.linalg.pinv(x[0], rtol=1e-5), lambda jax, x: jax.numpy.linalg.pinv(x[0], 1e-5),
    sizes=SMALL)
row("matrix_rank", "square", lambda np, x: np.linalg.matrix_rank(x[0]), lambda torch, x: torch.linalg.matrix_rank(x[0]), lambda jax, x: jax.numpy.linalg.matrix_rank(x[0]),
    sizes=SMALL)
row("matrix_norm", "square", lambda np, x: np.linalg.matrix_norm(x[0]), lambda torch, x: torch.linalg.matrix_norm(x[0]), lambda jax, x: jax.numpy.linalg.matrix_norm(x[0]))
row("matrix_norm, greatest column", "square", lambda np, x: np.linalg.matrix_norm(x[0], ord=1), lambda torch, x: torch.linalg.matrix_norm(x[0], 1),
    lambda jax, x: jax.numpy.linalg.matrix_norm(x[0], ord=1))
row("matrix_power of 5", "square", lambda np, x: np.linalg.matrix_power(x[0], 5), lambda torch, x: torch.linalg.matrix_power(x[0], 5),
    lambda jax, x: jax.numpy.linalg.matrix_power(x[0], 5), sizes=SMALL)
row("trace", "square", lambda np, x: np.trace(x[0]), lambda torch, x: torch.trace(x[0]), lambda jax, x: jax.numpy.trace(x[0]))
row("outer", "edges", lambda np, x: np.outer(x[0], x[1]), lambda torch, x: torch.outer(x[0], x[1]), lambda jax, x: jax.numpy.outer(x[0], x[1]))
row("vecdot of rows", "square", lambda np, x: np.vecdot(x[0], x[1]), lambda torch, x: torch.linalg.vecdot(x[0], x[1]), lambda jax, x: jax.numpy.vecdot(x[0], x[1]))
row("cross", "points", lambda np, x: np.linalg.cross(x[0], x[1]), lambda torch, x: torch.linalg.cross(x[0], x[1]), lambda jax, x: jax.numpy.linalg.cross(x[0], x[1]))
row("kron", "factors", lambda np, x: np.kron(x[0], x[1]), lambda torch, x: torch.kron(x[0], x[1]), lambda jax, x: jax.numpy.kron(x[0], x[1]))
row("tensordot", "folded", lambda np, x: np.tensordot(x[0], x[1], 2), lambda torch, x: torch.tensordot(x[0], x[1], 2), lambda jax, x: jax.numpy.tensordot(x[0], x[1], 2))
for equation in ("bij,bkj->bik", "ij,ij->i"):
    row(f"einsum of {equation}", "batch" if equation.startswith("b") else "square", lambda np, x, e=equation: np.einsum(e, *x),
        lambda torch, x, e=equation: torch.einsum(e, *x), lambda jax, x, e=equation: jax.numpy.einsum(e, *x))
row("linear", "layers", lambda np, x: x[0] @ x[1].T + x[2], lambda torch, x: torch.nn.functional.linear(x[0], x[1], x[2]), lambda jax, x: x[0] @ x[1].T + x[2],
    dtypes=("f32", "bf16"))
row("linear and relu", "layers", lambda np, x: np.maximum(x[0] @ x[1].T + x[2], 0), lambda torch, x: torch.nn.functional.linear(x[0], x[1], x[2]).relu_(),
    lambda jax, x: jax.nn.relu(x[0] @ x[1].T + x[2]))

# ---- Fourier transforms ----

row("ifft", "vectors", lambda np, x: np.fft.ifft(x[0]), lambda torch, x: torch.fft.ifft(x[0]), lambda jax, x: jax.numpy.fft.ifft(x[0]), dtypes=("c64",))
row("irfft of rows", "half_plane", lambda np, x: np.fft.irfft(x[0]), lambda torch, x: torch.fft.irfft(x[0]), lambda jax, x: jax.numpy.fft.irfft(x[0]), dtypes=("c64",))
row("ifft2", "square", lambda np, x: np.fft.ifft2(x[0]), lambda torch, x: torch.fft.ifft2(x[0]), lambda jax, x: jax.numpy.fft.ifft2(x[0]), dtypes=("c64",))
row("rfft2", "square", lambda np, x: np.fft.rfft2(x[0]), lambda torch, x: torch.fft.rfft2(x[0]), lambda jax, x: jax.numpy.fft.rfft2(x[0]))
row("irfft2", "half_plane", lambda np, x: np.fft.irfft2(x[0]), lambda torch, x: torch.fft.irfft2(x[0]), lambda jax, x: jax.numpy.fft.irfft2(x[0]), dtypes=("c64",))
row("hfft", "spectrum", lambda np, x: np.fft.hfft(x[0]), lambda torch, x: torch.fft.hfft(x[0]), lambda jax, x: jax.numpy.fft.hfft(x[0]), dtypes=("c64",))
row("ihfft", "vectors", lambda np, x: np.fft.ihfft(x[0]), lambda torch, x: torch.fft.ihfft(x[0]), lambda jax, x: jax.numpy.fft.ihfft(x[0]))
row("fftshift", "square", lambda np, x: np.fft.fftshift(x[0]), lambda torch, x: torch.fft.fftshift(x[0]), lambda jax, x: jax.numpy.fft.fftshift(x[0]))
row("ifftshift", "square", lambda np, x: np.fft.ifftshift(x[0]), lambda torch, x: torch.fft.ifftshift(x[0]), lambda jax, x: jax.numpy.fft.ifftshift(x[0]))
