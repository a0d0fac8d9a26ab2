#!/usr/bin/env python3
"""The operations' benchmark: each row of ops.c through a daemon, in NumPy, in PyTorch and in JAX, one after the other.

usage: ops.py [--python PYTHON] [--json FILE] [--quick] [--size N]… [--dtype DTYPE]… BENCH-OPS [ROW…]

Prints a table with the microseconds of one operation, and the ratio to the fastest peer: below 1 tensord is faster. PYTHON is an
interpreter that has the peers (scripts/setup bench); the column of one that cannot be imported is empty. oneDNN, called directly, is a
peer for rows of networks and products (bench-dnnl beside BENCH-OPS). Of rows that are bound by memory and beyond the caches the table
has the share of what STREAM gives, measured in the same run: bytes of operands and result, for each nanosecond."""
import argparse
import json
import math
import os
import subprocess
import sys

sys.dont_write_bytecode = True  # these files lie among the sources
import rows_arrays  # noqa: E402, F401
import rows_elements  # noqa: E402, F401
import rows_layers  # noqa: E402, F401
from table import ROWS  # noqa: E402

SIZES = [16, 1024, 1 << 20, 1 << 24]
PEERS = {"numpy": "NumPy", "torch": "PyTorch", "jax": "JAX", "onednn": "oneDNN"}
# Elements that an operation reads and writes for each element of its operand, of rows that are bound by memory.
TRAFFIC = {**dict.fromkeys(("negative", "abs", "sqrt", "relu", "square", "reciprocal", "floor", "round", "sign", "transposed copy", "roll",
                            "take of rows"), 2),
           **dict.fromkeys(("add", "subtract", "multiply", "divide", "maximum", "minimum", "copysign"), 3),
           **dict.fromkeys(("sum", "sum of rows", "sum of columns", "max of rows", "max of columns"), 1),
           "concat": 4, "repeat": 3}
# Rows that are measured with more dtypes than f32, and with these sizes only.
DTYPES = {row: ["f32", "bf16"] for row in ("multiply", "exp", "tanh", "softmax", "matmul")}
DTYPES["add"] = ["f32", "f64", "f16", "bf16", "i32", "i64", "u8", "c64"]
DTYPES["multiply"] += ["i32", "u8", "c64"]
DTYPES["matmul"] += ["f64", "c64"]
for row in ("subtract", "maximum", "minimum", "equal", "less", "floor_divide", "remainder"):
    DTYPES[row] = ["f32", "i32", "u8"]
for row in ("divide", "abs", "sqrt", "fft", "fft2"):
    DTYPES[row] = ["f32", "c64"]
DTYPES["sum"] = ["f32", "f64", "bf16", "i32", "u8"]
DTYPES["cast to f32"] = ["bf16", "f16", "i32"]
DTYPES["argmax of rows"] = ["f32", "i32"]
for row in ("log", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "asinh", "atanh", "exp2", "expm1", "log1p", "log2", "log10", "erf", "erfc", "atan2", "hypot", "pow"):
    DTYPES[row] = ["f32", "f64"]
DTYPES["exp"] = ["f32", "bf16", "f64", "c64"]
DTYPES["tanh"].append("f64")
ONLY = {"matrix times vector": [10_000_000], "1000 × 500 times 500 × 200": [1], "matmul": [1024, 1 << 16, 1 << 20, 4_000_000]}
for row in ("conv2d", "conv2d by x", "conv2d by weight", "max_pool2d", "avg_pool2d", "avg_pool2d by x", "batch_norm", "batch_norm back"):
    ONLY[row] = [64 * 56 * 56, 32 * 64 * 56 * 56]
for row in ("ten products, enqueued", "ten products, fetched"):
    ONLY[row] = [4_000_000]
ONLY["add"] = [*SIZES, 100_000]
for row in ("eigh", "svd"):
    ONLY[row] = [1_000_000]
for row in ("group_norm", "adaptive_avg_pool2d", "conv_transpose2d", "depthwise conv2d"):
    ONLY[row] = [64 * 56 * 56, 32 * 64 * 56 * 56]
for row in ("lstm", "gru", "conv2d of 3 channels"):
    ONLY[row] = [1]
for row in ("attention", "causal attention", "conv1d", "conv3d"):
    ONLY[row] = [1 << 20, 1 << 23]
for row in ("matmul of 32 × 32", "inv of 32 × 32", "solve", "cholesky", "inv", "det", "qr"):
    ONLY[row] = [1 << 16, 1 << 20]
for row in ("eigh of ten", "eigvalsh of ten", "svd of ten", "svdvals of ten"):
    ONLY[row] = [25_000, 2_500_000]
DTYPES.update({row: ["f32", "f64"] for row in ONLY if row.startswith(("eig", "svd"))})
DTYPES.update({row: each.dtypes for row, each in ROWS.items()})
ONLY.update({row: each.sizes for row, each in ROWS.items()})


class Asked:
    """A program that measures rows, one line for each."""

    def __init__(self, command):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        env={**os.environ, "OMP_NUM_THREADS": "2"})

    def line(self, text):
        try:
            self.process.stdin.write(text + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            return ""
        return self.process.stdout.readline().rstrip("\n")

    def measure(self, *row):
        """Microseconds, or None."""
        line = self.line("\t".join(map(str, row)))
        return float(line) if line and not line.startswith("-") else None

    def end(self):
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            pass
        self.process.stdout.close()
        return self.process.wait()


def cases(rows, options):
    for row in rows:
        for dtype in DTYPES.get(row, ["f32"]):
            for n in ONLY.get(row, SIZES):
                if (not options.dtype or dtype in options.dtype) and (not options.size or n in options.size):
                    yield row, dtype, n


def peer_command(name, options):
    if name == "onednn":
        return [os.path.join(os.path.dirname(options.program), "bench-dnnl")]
    return [options.python, __file__.replace("ops.py", "peers.py"), name]


def traffic(row, dtype, n):
    """Bytes; 0 of rows that are not bound by memory, or lie in the caches."""
    bytes_read_and_written = TRAFFIC.get(row, 0) * n * {"f64": 8, "i64": 8, "c64": 8, "bf16": 2, "f16": 2, "u8": 1}.get(dtype, 4)
    return bytes_read_and_written if n >= 1 << 24 else 0


def figure(us):
    if us is None:
        return ""
    return f"{us:.2f}" if us < 10 else f"{us:,.1f}" if us < 100 else f"{us:,.0f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--quick", action="store_true", help="too short to measure, to see that everything runs")
    parser.add_argument("--size", type=int, action="append")
    parser.add_argument("--dtype", action="append")
    parser.add_argument("program")
    parser.add_argument("row", nargs="*")
    options = parser.parse_intermixed_args()
    quick = ["--quick"] if options.quick else []
    ours = Asked([options.program, *quick])
    peers = {}
    for name in PEERS:
        command = peer_command(name, options)
        if not os.path.exists(command[0]) and name == "onednn":
            continue
        peer = Asked([*command, *quick])
        version = peer.line("version")
        if version:
            peers[name] = (peer, version)
    known = ours.line("list").split("\t")
    unknown = [row for row in options.row if row not in known]
    if unknown:
        ours.end()
        sys.exit(f"ops.py: there is no row {unknown[0]}; there are: {', '.join(known)}")
    titles = [f"{PEERS[name]} {version}" for name, (_, version) in peers.items()]
    print(f"| operation | dtype | elements | tensord, µs | {' | '.join(titles)}{' | ' if titles else ''}ratio | of STREAM |")
    print("|---|---|---|---|" + "---|" * (len(titles) + 2))
    measured = []
    stream = None
    for row, dtype, n in cases(options.row or known, options):
        us = ours.measure(row, dtype, n)
        if us is None:
            sys.exit(f"ops.py: {row} {dtype} {n} was not measured")
        times = {name: peer.measure(row, dtype, n) for name, (peer, _) in peers.items()}
        best = min((each for each in times.values() if each), default=None)
        ratio = us / best if best else None
        moved = traffic(row, dtype, n)
        if moved and not stream:
            stream = float(ours.line("stream"))
        share = moved / us / 1e3 / stream if moved else None
        measured.append({"row": row, "dtype": dtype, "elements": n, "us": us, "peers": times, "ratio": ratio, "of stream": share})
        cells = [row, dtype, str(n), figure(us), *map(figure, times.values()), f"{ratio:.2f}" if ratio else "", f"{share:.2f}" if share else ""]
        print(f"| {' | '.join(cells)} |", flush=True)
    for peer, _ in peers.values():
        peer.end()
    if ours.end() != 0:
        sys.exit("ops.py: bench-ops failed")
    ratios = [each["ratio"] for each in measured if each["ratio"]]
    if ratios:
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        print(f"\n{sum(each <= 1 for each in ratios)} of {len(ratios)} rows are not slower than the fastest peer; geometric mean of the ratios {mean:.2f}")
    if stream:
        print(f"STREAM: {stream:.1f} bytes/ns")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"versions": {name: version for name, (_, version) in peers.items()}, "stream": stream, "rows": measured}, file, indent=1)


if __name__ == "__main__":
    main()
