#!/usr/bin/env python3
"""bench-cuda's rows in PyTorch eager, on the same GPU: what cuda_table.py sets beside them.

usage: torch_rows.py [--device cuda:0] [--tiny] [--json FILE] [--list] [GROUP...]

Groups are bench-cuda's, too, and without one all rows are measured. Rows have bench-cuda's names and units. One that cannot be run says
why. Transfers are between pageable host memory and the device: PyTorch has no socket to pass."""
import argparse
import functools
import json
import statistics
import sys
import time

ROUNDS = 5
PRODUCTS = ("f32", "tf32", "bf16", "f16", "fp8")
SIZES = (1024, 4096, 8192)


class Bench:
    """The device, and how long things take on it."""

    def __init__(self, torch, options):
        self.torch = torch
        self.device = torch.device(options.device)
        self.tiny = options.tiny
        self.json = options.json
        self.about = {"torch": torch.__version__, "cuda": torch.version.cuda}
        self.units = {}  # of the rows that are being measured
        self.rows = []

    def sync(self):
        if self.device.type == "cuda":
            self.torch.cuda.synchronize(self.device)

    def seconds(self, run, count):
        self.sync()
        begin = time.perf_counter()
        for _ in range(count):
            run()
        self.sync()
        return (time.perf_counter() - begin) / count

    def measure(self, run):
        """Median seconds of one run, after clocks and pools are warm; as often as fills a tenth of a second."""
        warm, measured = (0.001, 0.001) if self.tiny else (0.3, 0.1)
        self.seconds(run, 1)  # what is loaded with the first one says nothing of the others
        count, one, begin = 1, self.seconds(run, 1), time.perf_counter()
        while time.perf_counter() - begin < warm:
            count = min(count * 4 if one * 5000 < warm else int(warm / 4 / one) + 1, 50000)
            one = self.seconds(run, count)
        count = max(3, min(int(measured / one), 50000))
        return statistics.median(self.seconds(run, count) for _ in range(ROUNDS))

    def uniform(self, *shape):
        return self.torch.empty(shape, dtype=self.torch.float32, device=self.device).uniform_(-1, 1)

    def row(self, name, value, note=""):
        unit = self.units.pop(name)
        self.add({"row": name, "value": value, "unit": unit, "note": note}, f"{value:.4g} {unit}")

    def not_run(self, name, reason):
        text = " ".join(str(reason).split())[:200]
        self.add({"row": name, "value": None, "unit": self.units.pop(name), "not_run": text}, "not run: " + text)

    def add(self, row, text):
        """What is known is written at once: whatever ends this program early leaves it there."""
        print(f"{row['row']:46} {text}", flush=True)
        self.rows.append(row)
        if self.json:
            with open(self.json, "w", encoding="utf-8") as file:
                json.dump({"about": self.about, "rows": self.rows}, file, indent=1)


# ---- the rows ----


def chain(bench, name):
    torch, count = bench.torch, 100 if bench.tiny else 10000
    x = torch.zeros(16, device=bench.device)
    step = torch.ones(16, device=bench.device)

    def run():
        y = x
        for _ in range(count):
            y = y + step

    run()
    seconds = statistics.median(bench.seconds(run, 1) for _ in range(15))
    bench.row(name, count / seconds)


def factors(bench, kind, n):
    torch = bench.torch
    dtype = {"f32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}.get(kind)
    if dtype is None:
        dtype = torch.float8_e4m3fn
    return bench.uniform(n, n).to(dtype), bench.uniform(n, n).to(dtype)


def product(bench, name, kind, n):
    torch, note = bench.torch, ""
    torch.backends.cuda.matmul.allow_tf32 = kind == "tf32"
    n = n // 32 if bench.tiny else n
    a, b = factors(bench, kind, n)
    run = lambda: a @ b
    if kind == "fp8":
        one = torch.ones((), device=bench.device)
        out = torch.float32
        run = lambda: torch._scaled_mm(a, b.t(), scale_a=one, scale_b=one, out_dtype=out)
        try:
            run()
        except (RuntimeError, ValueError):
            out, note = torch.bfloat16, "result in bf16"
    seconds = bench.measure(run)
    bench.row(name, 2.0 * n**3 / seconds / 1e12, note=note)


LAYERS = (("64 to 64, 3x3", 64, 64, 56, 3, 1), ("256 to 64, 1x1", 256, 64, 56, 1, 1),
          ("128 to 128, 3x3 by 2", 128, 128, 56, 3, 2), ("512 to 512, 3x3", 512, 512, 7, 3, 1))


def convolution(bench, *names, kind, layer):
    torch, (_, channels, filters, extent, kernel, stride) = bench.torch, layer
    torch.backends.cudnn.allow_tf32 = kind == "tf32"
    images, padding = 1 if bench.tiny else 32, kernel // 2
    dtype, order = (torch.float16, torch.channels_last) if kind == "f16" else (torch.float32, torch.contiguous_format)
    make = lambda *shape: bench.uniform(*shape).to(dtype).to(memory_format=order)
    x, weight = make(images, channels, extent, extent), make(filters, channels, kernel, kernel)
    y = torch.nn.functional.conv2d(x, weight, stride=stride, padding=padding)
    back = lambda mask: torch.ops.aten.convolution_backward(y, x, weight, None, [stride] * 2, [padding] * 2, [1, 1], False,
                                                            [0, 0], 1, mask)
    runs = (lambda: torch.nn.functional.conv2d(x, weight, stride=stride, padding=padding),
            lambda: back([True, False, False]), lambda: back([False, True, False]))
    operations = 2.0 * y.numel() * channels * kernel**2
    for name, run in zip(names, runs):
        try:
            bench.row(name, operations / bench.measure(run) / 1e12)
        except Exception as error:
            bench.not_run(name, error)


# Each row, how often its bytes are moved, and what is run, on matrices of 1 GiB: `narrow` has rows of 1,024.
BANDWIDTH = (
    ("add of 1 GiB", 3, lambda torch, a, b, narrow: a + b),
    ("cast f32 to bf16 of 1 GiB", 1.5, lambda torch, a, b, narrow: a.to(torch.bfloat16)),
    ("transposed copy of 1 GiB", 2, lambda torch, a, b, narrow: a.t().contiguous()),
    ("sum of 1 GiB, whole", 1, lambda torch, a, b, narrow: a.sum()),
    ("sum of 1 GiB, rows", 1, lambda torch, a, b, narrow: a.sum(1)),
    ("sum of 1 GiB, columns", 1, lambda torch, a, b, narrow: a.sum(0)),
    ("softmax of 1 GiB, rows of 1,024", 2, lambda torch, a, b, narrow: torch.softmax(narrow, 1)),
    ("softmax of 1 GiB, rows of 16,384", 2, lambda torch, a, b, narrow: torch.softmax(a, 1)),
)


def bandwidth(bench, name, moved, run):
    size = 1 << 20 if bench.tiny else 1 << 30
    side = int((size // 4) ** 0.5)
    a, b = bench.uniform(side, side), bench.uniform(side, side)
    narrow = a.view(-1, min(1024, side))
    bench.row(name, moved * size / bench.measure(lambda: run(bench.torch, a, b, narrow)) / 1e9)


def transfer(bench, up, down):
    torch, size = bench.torch, 4 << 20 if bench.tiny else 1 << 30
    host = torch.zeros(size // 4, dtype=torch.int32)
    there = host.to(bench.device)
    copy = bench.device.type == "cpu"
    note = "pageable memory, no socket"
    bench.row(up, size / bench.measure(lambda: host.to(bench.device, copy=copy)) / 1e9, note=note)
    back = torch.ones(size // 4, dtype=torch.int32)  # touched, as ours is
    bench.row(down, size / bench.measure(lambda: back.copy_(there)) / 1e9, note=note)


def ten(bench, *names):
    n = 100 if bench.tiny else 10000
    bench.torch.backends.cuda.matmul.allow_tf32 = False
    a, b = bench.uniform(n, n), bench.uniform(n, n)
    back = bench.torch.ones(n, n)  # touched, as ours is
    times = {name: [] for name in names}

    def run(fetch):
        bench.sync()
        begin = time.perf_counter()
        x = a
        for _ in range(10):
            x = x @ b
        enqueued = time.perf_counter() - begin
        fetch(x)
        return enqueued, time.perf_counter() - begin

    for i in range(ROUNDS + 1):
        enqueued, few = run(lambda x: x[0, :16].cpu())
        _, whole = run(lambda x: back.copy_(x))
        if i > 0:
            for name, seconds in zip(times, (enqueued * 1e3, few, whole)):
                times[name].append(seconds)
    for name in names:
        bench.row(name, statistics.median(times[name]))


def jobs():
    """Each with its group, its rows with their units, and what measures them."""
    yield "chain", {"chain of 10,000 adds of 16 floats": "op/s"}, chain
    for kind in PRODUCTS:
        for n in SIZES:
            yield "product", {f"product {kind} {n}": "TFLOP/s"}, functools.partial(product, kind=kind, n=n)
    for kind in ("f32", "tf32", "f16"):
        for layer in LAYERS:
            rows = {f"conv2d {kind} {layer[0]}{way}": "TFLOP/s" for way in ("", ", by x", ", by the weight")}
            yield "convolution", rows, functools.partial(convolution, kind=kind, layer=layer)
    for name, moved, run in BANDWIDTH:
        yield "bandwidth", {name: "GB/s"}, functools.partial(bandwidth, moved=moved, run=run)
    yield "transfer", {f"{way} of 1 GiB, Unix socket": "GB/s" for way in ("upload", "fetch")}, transfer
    times = (("enqueued", "ms"), ("16 numbers fetched", "s"), ("all fetched", "s"))
    yield "ten", {f"ten products of 10,000, {what}": unit for what, unit in times}, ten


GROUPS = ("start", "chain", "replay", "product", "convolution", "bandwidth", "transfer", "allocate", "ten", "clients",
          "first")
FIRST = {"chain of 10,000 adds of 16 floats", "product bf16 8192", "softmax of 1 GiB, rows of 16,384"}


def wanted(groups):
    """The jobs of these groups; without one, all of them."""
    for group, units, run in jobs():
        if not groups or group in groups or ("first" in groups and not units.keys().isdisjoint(FIRST)):
            yield units, run


# ---- the run ----


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--tiny", action="store_true", help="sizes that show only that everything runs")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--list", action="store_true", help="only say which rows would be measured; needs no PyTorch")
    parser.add_argument("groups", metavar="GROUP", nargs="*", help=" ".join(GROUPS))
    options = parser.parse_args()
    for group in options.groups:
        if group not in GROUPS:
            parser.error(f"there is no group {group}")
    if options.list:
        for units, _ in wanted(options.groups):
            print(*units, sep="\n")
        return 0
    try:
        import torch
    except ImportError as error:
        print(f"torch_rows: {error}", file=sys.stderr)
        return 1
    bench = Bench(torch, options)
    for units, run in wanted(options.groups):
        bench.units = dict(units)
        try:
            run(bench, *units)
        except Exception as error:  # of whatever kind PyTorch raises
            for name in list(bench.units):
                bench.not_run(name, error)
        if bench.device.type == "cuda":
            torch.cuda.empty_cache()
    return 0


if __name__ == "__main__":
    sys.exit(main())
