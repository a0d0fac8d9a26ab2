#!/usr/bin/env python3
"""Prints engine/cuda/formula.cuh and what it includes as a C string, for sources that NVRTC compiles; and the device's part of number.cuh,
which has more types and includes CUDA's headers for them, with what reductions and softmax are made of: formula_text.py ROOT >OUT

NVRTC has CUDA's functions without a header, but no headers of the host: of <stdint.h> the text begins with what formulas use. Other
compilers, which the tests use, have the header.
"""
import pathlib
import re
import sys

START = """#pragma nv_diag_suppress 177 // formulas that a kernel leaves out
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long long int64_t;
typedef unsigned long long uint64_t;
#define INT64_C(x) x##LL
#define UINT64_C(x) x##ULL
#define INT32_MIN (-2147483647 - 1)
#define INT64_MIN (-9223372036854775807LL - 1)
#define INT32_MAX 2147483647
#define INT64_MAX 9223372036854775807LL
#define UINT32_MAX 4294967295U
#define UINT64_MAX 18446744073709551615ULL
"""
INCLUDE = re.compile(r'#include "(.*)"')
START_NUMBER = "#ifdef __CUDACC__\n#pragma nv_diag_suppress 177\n#endif\n#ifdef __CUDACC_RTC__\n" + START + """#define INFINITY __int_as_float(0x7f800000)
#define HUGE_VALF INFINITY
#define HUGE_VAL __longlong_as_double(0x7ff0000000000000LL)
#define FLT_MAX 0x1.fffffep127f
#define DBL_MAX 0x1.fffffffffffffp1023
#else
#include <float.h>
#include <math.h>
#include <stdint.h>
#include <string.h>
#endif
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#ifdef __CUDACC__
#include <cuda_fp8.h>
#endif
"""
NUMBER_END = "/* ---- the types of elements, by dtype"
ROWS = ["reduce_sum", "reduce_extreme", "reduce_variance", "reduce_norm", "reduce_exponential", "softmax_ops"]
DROPPED = re.compile(r"#include <.*>|#pragma once")


def lines_of(root, name, seen, end=None):
    if name in seen:
        return
    seen.add(name)
    for line in (root / name).read_text(encoding="utf-8").splitlines():
        if end and line.startswith(end):
            return
        include = INCLUDE.fullmatch(line)
        if include:
            yield from lines_of(root, include[1], seen)
        elif not DROPPED.fullmatch(line):
            yield line


def quoted(line):
    return '"' + line.replace("\\", "\\\\").replace('"', '\\"').replace("??", "?\\?") + '\\n"'


def main():
    sys.stdout.reconfigure(encoding="utf-8")
    print("/* Made by formula_text.py. */")
    print('#include "engine/cuda/formula_text.h"\n')
    root = pathlib.Path(sys.argv[1])
    seen = {"engine/cuda/cuda.h"}  # number.cuh includes it for the types of its end
    numbers = list(lines_of(root, "engine/cuda/number.cuh", seen, NUMBER_END))
    for name in ROWS:
        numbers += lines_of(root, f"engine/cuda/{name}.cuh", seen)
    texts = {
        "formula_text": START.splitlines() + list(lines_of(root, "engine/cuda/formula.cuh", set())),
        "number_text": START_NUMBER.splitlines() + numbers,
    }
    for name, lines in texts.items():
        print(f"const char {name}[] =")
        print("\n".join(f"    {quoted(line)}" for line in lines) + ";")


if __name__ == "__main__":
    main()
