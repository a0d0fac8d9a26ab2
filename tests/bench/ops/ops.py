#!/usr/bin/env python3
"""The operations' benchmark: each row of ops.c through a daemon, in NumPy, in PyTorch and in JAX, one after the other.

usage: ops.py [--python PYTHON] [--json FILE] [--quick] [--size N]… [--dtype DTYPE]… BENCH-OPS [ROW…]

Prints a table with the microseconds of one operation, and the ratio to the fastest peer: below 1 tensord is faster. PYTHON is an
interpreter that has the peers (scripts/setup bench); the column of one that cannot be imported is empty."""
import argparse
import json
import math
import subprocess
import sys

SIZES = [16, 1024, 1 << 20, 1 << 24]
PEERS = {"numpy": "NumPy", "torch": "PyTorch", "jax": "JAX"}
# Rows that are measured with more dtypes than f32, and with these sizes only.
DTYPES = {row: ["f32", "bf16"] for row in ("multiply", "exp", "tanh", "softmax", "matmul")}
DTYPES["add"] = ["f32", "f64", "f16", "bf16", "i32", "i64", "u8"]
DTYPES["sum"] = ["f32", "f64", "bf16", "i32", "u8"]
DTYPES["cast to f32"] = ["bf16", "f16", "i32"]
DTYPES["argmax of rows"] = ["f32", "i32"]
ONLY = {"matrix times vector": [10_000_000], "1000 × 500 times 500 × 200": [1], "matmul": [1024, 1 << 16, 1 << 20, 1 << 22]}
for row in ("eigh", "svd"):
    ONLY[row] = [1_000_000]
for row in ("eigh of ten", "eigvalsh of ten", "svd of ten", "svdvals of ten"):
    ONLY[row] = [25_000, 2_500_000]
DTYPES.update({row: ["f32", "f64"] for row in ONLY if row.startswith(("eig", "svd"))})


class Asked:
    """A program that measures rows, one line for each."""

    def __init__(self, command):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

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
        self.process.stdin.close()
        self.process.stdout.close()
        return self.process.wait()


def cases(rows, options):
    for row in rows:
        for dtype in DTYPES.get(row, ["f32"]):
            for n in ONLY.get(row, SIZES):
                if (not options.dtype or dtype in options.dtype) and (not options.size or n in options.size):
                    yield row, dtype, n


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
    options = parser.parse_args()
    quick = ["--quick"] if options.quick else []
    ours = Asked([options.program, *quick])
    peers = {}
    for name in PEERS:
        peer = Asked([options.python, __file__.replace("ops.py", "peers.py"), name, *quick])
        version = peer.line("version")
        if version:
            peers[name] = (peer, version)
    known = ours.line("list").split("\t")
    unknown = [row for row in options.row if row not in known]
    if unknown:
        ours.end()
        sys.exit(f"ops.py: there is no row {unknown[0]}; there are: {', '.join(known)}")
    titles = [f"{PEERS[name]} {version}" for name, (_, version) in peers.items()]
    print(f"| operation | dtype | elements | tensord, µs | {' | '.join(titles)}{' | ' if titles else ''}ratio |")
    print("|---|---|---|---|" + "---|" * (len(titles) + 1))
    measured = []
    for row, dtype, n in cases(options.row or known, options):
        us = ours.measure(row, dtype, n)
        if us is None:
            sys.exit(f"ops.py: {row} {dtype} {n} was not measured")
        times = {name: peer.measure(row, dtype, n) for name, (peer, _) in peers.items()}
        best = min((each for each in times.values() if each), default=None)
        ratio = us / best if best else None
        measured.append({"row": row, "dtype": dtype, "elements": n, "us": us, "peers": times, "ratio": ratio})
        cells = [row, dtype, str(n), figure(us), *map(figure, times.values()), f"{ratio:.2f}" if ratio else ""]
        print(f"| {' | '.join(cells)} |", flush=True)
    for peer, _ in peers.values():
        peer.end()
    if ours.end() != 0:
        sys.exit("ops.py: bench-ops failed")
    ratios = [each["ratio"] for each in measured if each["ratio"]]
    if ratios:
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        print(f"\n{sum(each <= 1 for each in ratios)} of {len(ratios)} rows are not slower than the fastest peer; geometric mean of the ratios {mean:.2f}")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"versions": {name: version for name, (_, version) in peers.items()}, "rows": measured}, file, indent=1)


if __name__ == "__main__":
    main()
