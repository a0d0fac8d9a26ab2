"""Makes notebooks of the examples: NAME.py, whose cells begin with lines "# %%" or "# %% [markdown]", becomes NAME.ipynb beside it.

Run: python notebooks.py [--into FOLDER] [NAME…]; without names, all examples that have cells
A notebook that is there already and is another one (it was edited or run) is left as it is.
"""

import argparse
import json
import os
import pathlib
import re
import sys
import textwrap

HERE = pathlib.Path(__file__).resolve().parent
MAIN = 'if __name__ == "__main__":\n'


def examples():
    """The names of all examples that have cells."""
    return sorted(path.stem for path in HERE.glob("*.py") if path.read_text(encoding="utf-8").startswith("# %%"))


def source_of(kind, text):
    """What a cell of a script says in a notebook: text without its marks of a comment; code without what keeps it from an import."""
    if kind == "markdown":
        return "\n".join(re.sub(r"^# ?", "", line) for line in text.strip().splitlines())
    text = text.strip("\n")
    return textwrap.dedent(text[len(MAIN) :]).strip("\n") if text.startswith(MAIN) else text


def notebook(script):
    """The notebook, as what JSON has, of the text of a script."""
    parts = re.split(r"^# %%( \[markdown\])?\n", script, flags=re.MULTILINE)
    if parts[0]:
        raise ValueError("the first line is not the beginning of a cell")
    cells = []
    for number, (mark, text) in enumerate(zip(parts[1::2], parts[2::2]), 1):
        kind = "markdown" if mark else "code"
        cell = {"cell_type": kind, "id": f"cell-{number}", "metadata": {}, "source": source_of(kind, text).splitlines(keepends=True)}
        cells.append(cell if mark else {**cell, "execution_count": None, "outputs": []})
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {"cells": cells, "metadata": {"kernelspec": kernel, "language_info": {"name": "python"}}, "nbformat": 4, "nbformat_minor": 5}


def write(name, folder):
    text = json.dumps(notebook((HERE / f"{name}.py").read_text(encoding="utf-8")), indent=1, ensure_ascii=False) + "\n"
    path = pathlib.Path(folder) / f"{name}.ipynb"
    try:
        with open(path, "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        if path.read_text(encoding="utf-8") != text:
            print(f"{os.path.relpath(path)} is left as it is: it was edited or run, or {name}.py has changed. Remove it to have it made anew.", file=sys.stderr)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--into", metavar="FOLDER", default=HERE, help="the notebooks import what is in the folder of the examples")
    parser.add_argument("names", nargs="*")
    given = parser.parse_args()
    for name in given.names or examples():
        if name not in examples():
            parser.error(f"{name} is no example with cells; these are: {' '.join(examples())}")
        write(name, given.into)


if __name__ == "__main__":
    main()
