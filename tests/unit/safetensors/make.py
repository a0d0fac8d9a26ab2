#!/usr/bin/env python3
"""Writes the files beside it with the reference implementation of safetensors:

    python3 -m venv V && V/bin/pip install safetensors==0.8.0 numpy ml_dtypes && V/bin/python make.py
"""
import pathlib

import ml_dtypes
import numpy as np
from safetensors.numpy import save_file

here = pathlib.Path(__file__).parent
DTYPES = {
    "bool": np.bool_, "u8": np.uint8, "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64,
    "f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64,
    "c64": np.complex64, "u16": np.uint16, "u32": np.uint32, "u64": np.uint64,
    "f8e4m3": ml_dtypes.float8_e4m3fn, "f8e5m2": ml_dtypes.float8_e5m2,
}


def main():
    tensors = {name: (np.arange(6) % 2 if name == "bool" else np.arange(6) - (name[0] != "u") * 2).astype(dtype)
               .reshape(2, 3) for name, dtype in DTYPES.items()}
    tensors["scalar"] = np.array(2.5, np.float32)
    tensors["empty"] = np.zeros((0, 4), np.float64)
    tensors["layer.0/Ω \"quoted\""] = np.array([1.5, -2.5], np.float32)
    save_file(tensors, here / "reference.safetensors", metadata={"made": "by the reference implementation"})
    save_file({}, here / "none.safetensors")
    save_file({"x": np.arange(3).astype(ml_dtypes.float8_e8m0fnu)}, here / "e8m0.safetensors")


main()
