"""A CUDA kernel of one's own. Needs a CUDA device whose operator allows it (the daemon's setting user-kernels).

Run: python own_kernel.py
"""

import sys

import tensord as td
from start import connect

SOURCE = r"""
extern "C" __global__ void saxpy(float *z, const float *x, const float *y, float a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) z[i] = a * x[i] + y[i];
}
"""


def main():
    cuda = [device.name for device in connect() if device.kind == "cuda" and device.state == "ready"]
    if not cuda:
        print("there is no CUDA device: nothing to do")
        return 0
    device = td.device(cuda[0])
    try:
        saxpy = device.compile(SOURCE, "saxpy")
    except td.DeniedError as error:
        print(error)
        return 0
    n = 1 << 20
    x, y = td.linspace(0, 1, n, device=device), td.ones(n, device=device)
    z = saxpy((n + 255) // 256, 256, td.out(td.float32, (n,)), x, y, td.f32(2.0), td.i32(n))
    worst = float(td.max(td.abs(z - (2 * x + y))))
    print(f"saxpy over {n} elements on {device.name}: the greatest difference from 2 * x + y is {worst}")
    return 0 if worst < 1e-6 else 1


if __name__ == "__main__":
    sys.exit(main())
