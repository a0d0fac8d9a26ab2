#!/usr/bin/env python3
"""Every function of a header is called in a source: check_calls.py HEADER SOURCE."""
import re
import sys

header, source = (open(path, encoding="utf-8").read() for path in sys.argv[1:3])
names = re.findall(r"^TD_API [^;(]*?\b(td_\w+)\(", header, re.MULTILINE)
missing = [name for name in names if not re.search(rf"\b{name}\b", source)]
if len(names) < 50:
    sys.exit(f"only {len(names)} functions found in {sys.argv[1]}")
if missing:
    sys.exit(f"{sys.argv[2]} does not call {', '.join(missing)}")
