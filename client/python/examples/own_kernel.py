# %% [markdown]
# # A CUDA kernel of one's own
#
# Needs a CUDA device whose operator allows it (the daemon's setting `user-kernels`). The source goes to the daemon, which compiles it for
# its GPU: this program needs no CUDA.

# %%
import tensord as td
from start import connect

SOURCE = r"""
extern "C" __global__ void saxpy(float *z, const float *x, const float *y, float a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) z[i] = a * x[i] + y[i];
}
"""

cuda = [device.name for device in connect() if device.kind == "cuda" and device.state == "ready"]
saxpy = None
if not cuda:
    print("there is no CUDA device: nothing to do")
else:
    try:
        saxpy = td.device(cuda[0]).compile(SOURCE, "saxpy")
    except td.DeniedError as error:
        print(error)

# %% [markdown]
# A launch says the grid, the block and the arguments; `td.out()` is an array that the kernel fills.

# %%
if saxpy:
    n = 1 << 20
    x, y = td.linspace(0, 1, n, device=cuda[0]), td.ones(n, device=cuda[0])
    z = saxpy((n + 255) // 256, 256, td.out(td.float32, (n,)), x, y, td.f32(2.0), td.i32(n))
    worst = float(td.max(td.abs(z - (2 * x + y))))
    print(f"saxpy over {n} elements on {cuda[0]}: the greatest difference from 2 * x + y is {worst}")
    assert worst < 1e-6
