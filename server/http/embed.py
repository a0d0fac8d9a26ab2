"""Makes a page part of the program: embed.py PAGE.html OUTPUT.c

The page carries its one style and its one script within itself. The policy that is sent along allows these two, named by
their hashes, and requests to where the page came from; nothing else, whatever finds its way into the page."""

import base64
import hashlib
import re
import sys


def source(page, element):
    found = re.findall(rf"<{element}>(.*?)</{element}>", page, re.DOTALL)
    if len(found) != 1:
        sys.exit(f"embed.py: the page has {len(found)} <{element}>, not one")
    return "'sha256-" + base64.b64encode(hashlib.sha256(found[0].encode()).digest()).decode() + "'"


def main(page_path, output_path):
    with open(page_path, encoding="utf-8", newline="") as file:
        page = file.read()
    policy = (
        f"default-src 'none'; script-src {source(page, 'script')}; style-src {source(page, 'style')}; "
        "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    data = page.encode()
    rows = [", ".join(str(byte - 256 if byte > 127 else byte) for byte in data[i : i + 24]) for i in range(0, len(data), 24)]
    with open(output_path, "w", encoding="utf-8") as file:
        file.write("/* Made by embed.py. */\n#include <stddef.h>\n\n#include \"server/http/http_impl.h\"\n\n")
        file.write("const char http_dashboard[] = {\n    " + ",\n    ".join(rows) + ",\n};\n")
        file.write("const size_t http_dashboard_bytes = sizeof http_dashboard;\n")
        file.write(f'const char http_dashboard_policy[] = "{policy}";\n')


main(*sys.argv[1:])
