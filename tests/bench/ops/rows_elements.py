"""Peers of rows_elements.c."""
from table import named, row

INTEGERS = ("i32", "u8")

for name, short in (("not_equal", "ne"), ("less_equal", "le"), ("greater", "gt"), ("greater_equal", "ge")):
    named(name, "vectors", 2, torch=short, dtypes=("f32", "i32"))
for name in ("logical_and", "logical_or", "logical_xor"):
    named(name, "masks", 2)
named("logical_not", "masks", 1)
for name in ("bitwise_and", "bitwise_or", "bitwise_xor"):
    named(name, "shifts", 2, dtypes=INTEGERS)
named("bitwise_invert", "shifts", 1, numpy="invert", torch="bitwise_not", jax="invert", dtypes=INTEGERS)
named("bitwise_left_shift", "shifts", 2, numpy="left_shift", jax="left_shift", dtypes=INTEGERS)
named("bitwise_right_shift", "shifts", 2, numpy="right_shift", jax="right_shift", dtypes=INTEGERS)
for name in ("ceil", "trunc", "positive", "signbit", "isfinite", "isinf"):
    named(name, "vectors", 1)
named("nextafter", "vectors", 2, dtypes=("f32", "f64"))
named("acosh", "above_one", 1, dtypes=("f32", "f64"))
row("hardsigmoid", "vectors", torch=lambda torch, x: torch.nn.functional.hardsigmoid(x[0]), jax=lambda jax, x: jax.nn.hard_sigmoid(x[0]))
row("complex", "vectors", torch=lambda torch, x: torch.complex(x[0], x[1]), jax=lambda jax, x: jax.lax.complex(x[0], x[1]))
# Parts as arrays of their own, as tensord's are; NumPy's and PyTorch's are views.
row("real", "vectors", lambda np, x: np.real(x[0]).copy(), lambda torch, x: torch.real(x[0]).contiguous(), lambda jax, x: jax.numpy.real(x[0]),
    dtypes=("c64",))
row("imag", "vectors", lambda np, x: np.imag(x[0]).copy(), lambda torch, x: torch.imag(x[0]).contiguous(), lambda jax, x: jax.numpy.imag(x[0]),
    dtypes=("c64",))
named("conj", "vectors", 1, torch="conj_physical", dtypes=("c64",))
named("angle", "vectors", 1, dtypes=("c64",))
row("copy", "vectors", lambda np, x: x[0].copy(), lambda torch, x: x[0].clone(), lambda jax, x: x[0].copy())
row("masked_fill", "masked", lambda np, x: np.where(x[2], np.float32(0), x[0]), lambda torch, x: torch.masked_fill(x[0], x[2], 0),
    lambda jax, x: jax.numpy.where(x[2], 0, x[0]))
row("where, in place", "masked", lambda np, x: np.copyto(x[1], np.float32(0.25), where=x[2]), lambda torch, x: x[1].masked_fill_(x[2], 0.25))
