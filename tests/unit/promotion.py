#!/usr/bin/env python3
"""Prints promotion.inc: which dtypes NumPy promotes to within a kind, and from floats to complex numbers, where the Python array API standard (2024.12) defines it:

    python3 -m venv V && V/bin/pip install numpy ml_dtypes && V/bin/python promotion.py >promotion.inc
"""
import itertools

import ml_dtypes
import numpy as np

KINDS = [
    {"BOOL": np.bool_},
    {"U8": np.uint8, "U16": np.uint16, "U32": np.uint32, "U64": np.uint64, "I8": np.int8, "I16": np.int16, "I32": np.int32,
     "I64": np.int64},
    {"F16": np.float16, "BF16": ml_dtypes.bfloat16, "F32": np.float32, "F64": np.float64, "C64": np.complex64,
     "C128": np.complex128},
]
print(f"/* Made by promotion.py with NumPy {np.__version__} and ml_dtypes {ml_dtypes.__version__}. */")
for kind in KINDS:
    names = {np.dtype(given): name for name, given in kind.items()}
    for a, b in itertools.product(kind, repeat=2):
        # ml_dtypes has no rule for its bfloat16 with float16; float32 is the least that has the values of both.
        both = np.float32 if {a, b} == {"F16", "BF16"} else np.promote_types(kind[a], kind[b])
        if np.dtype(both) in names:
            print(f"PROMOTION({a}, {b}, {names[np.dtype(both)]})")
