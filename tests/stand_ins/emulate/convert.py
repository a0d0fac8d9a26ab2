#!/usr/bin/env python3
"""Makes C++ for the host of a CUDA source:

    convert.py ROOT engine/cuda/reduce.cu reduce.cpp

A launch, kernel<<<grid, block, 0, stream>>>(arguments), becomes emulate(grid, block, 0, stream, kernel)(arguments). Headers
of CUDA C++ (.cuh) may have some as well and are put in where they are included. Everything else is left to kernel.h.
"""
import pathlib
import re
import sys

LAUNCH = re.compile(r'(\w+(?:<[^;{}()]*?>)?)<<<(.*?)>>>\(', re.S)
INCLUDE = re.compile(r'#include "(.*\.cuh)"')


def convert(root, name, seen):
    """The lines of a file; of a header only the first time. Errors are told with the original's lines."""
    if name in seen:
        return []
    seen.add(name)
    # By a function, as a kernel's template arguments may be left to the arguments of its call.
    text = LAUNCH.sub(r'emulate(\2, [](const auto &...a) { \1(a...); })(', (root / name).read_text())
    lines = [f'#line 1 "{name}"']
    for number, line in enumerate(text.split('\n'), 1):
        include = INCLUDE.fullmatch(line)
        if include:
            lines += convert(root, include[1], seen) + [f'#line {number + 1} "{name}"']
        elif line != '#pragma once':
            lines.append(line)
        else:
            lines.append('')
    return lines


def main():
    root, name, output = sys.argv[1:]
    lines = ['#include "tests/stand_ins/emulate/kernel.h"'] + convert(pathlib.Path(root), name, set())
    pathlib.Path(output).write_text('\n'.join(lines))


if __name__ == '__main__':
    main()
