#!/usr/bin/env python3
"""Puts bench-cuda's rows and those of torch_rows.py into one table, as RESULTS.md has it.

usage: cuda_table.py [--title TEXT] [--about TEXT] [--json FILE] CUDA.json [TORCH.json]

The last line says how many goals were met and missed, and how many could not be judged. Exits with 0 where every row ran and met its
goals, else with 1."""
import argparse
import json
import sys

# The ratios to PyTorch that are wanted.
PEER_GOALS = {"chain of 10,000 adds of 16 floats": 1.5}


def peer_goal(name):
    return 0.95 if name.startswith("conv2d ") else PEER_GOALS.get(name)


def figure(value, unit):
    if value is None:
        return ""
    if unit in ("op/s", "round/s"):
        return f"{value:,.0f} {unit}"
    return f"{value:.3g} {unit}" if abs(value) < 1000 else f"{value:,.0f} {unit}"


def goal_text(row):
    return f"{'≤' if row['better'] == 'lower' else '≥'} {row['goal']:g}"


class Table:
    def __init__(self, rows, torch):
        self.rows = rows
        self.torch = {row["row"]: row for row in torch.get("rows", [])}
        self.about = torch.get("about", {})
        self.met = self.missed = self.not_run = 0
        self.missing = []  # rows that were not run, and why

    def judge(self, met):
        if met is None:
            self.not_run += 1
        elif met:
            self.met += 1
        else:
            self.missed += 1
        return " **missed**" if met is False else ""

    def peer(self, row):
        """PyTorch's cell, and the goal against it."""
        wanted = peer_goal(row["row"])
        goal = "" if wanted is None else f"; ≥ {wanted:g} of PyTorch"
        other = self.torch.get(row["row"], {"value": None, "not_run": "there is no such figure"})
        if other["value"] is None:
            if wanted is not None:
                self.judge(None)
            if wanted is not None or row["row"] in self.torch:
                self.missing.append((f"{row['row']}, PyTorch", other["not_run"]))
            return "not run" if row["row"] in self.torch else "", goal
        text = figure(other["value"], other["unit"])
        if row["value"] is not None:
            ratio = row["value"] / other["value"]
            text += f"; {ratio:.2f}" + ("" if wanted is None else self.judge(ratio >= wanted))
        elif wanted is not None:
            self.judge(None)
        return text, goal

    def line(self, row):
        peer, peer_goal = self.peer(row)
        goal = goal_text(row) + peer_goal
        if row["value"] is None:
            self.judge(None)
            self.missing.append((row["row"], row["not_run"]))
            return f"| {row['row']} | not run |  | {peer} | {goal} |"
        missed = self.judge(row["met"] if row["ratio"] is not None else False)
        ours = figure(row["value"], row["unit"])
        ratio = "undefined" if row["ratio"] is None else f"{row['ratio']:.3f}"
        limit = figure(row["limit"], row["unit"])
        return f"| {row['row']} | {ours} | {limit}; {ratio}{missed} | {peer} | {goal} |"

    def lines(self):
        name = "PyTorch " + self.about.get("torch", "") if self.about else "PyTorch"
        yield f"| row | tensord | limit, and the ratio to it | {name.strip()}, and the ratio to it | goal |"
        yield "|---|---|---|---|---|"
        for row in self.rows:
            yield self.line(row)
        if self.missing:
            yield ""
            yield "Not run:"
            yield ""
            for row, reason in self.missing:
                yield f"- {row}: {reason}"
        yield from self.notes()

    def notes(self):
        """What rows say of themselves, once where several say the same."""
        said = {}
        for row in self.rows:
            if row.get("note"):
                said.setdefault(row["note"], []).append(row["row"])
        if said:
            yield ""
            yield "How it was measured:"
            yield ""
        for note, names in said.items():
            rows = names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"
            yield f"- {rows}: {note}"


def load(path, otherwise):
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError) as error:
        print(f"cuda_table: {path}: {error}", file=sys.stderr)
        return otherwise


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--title", help="a heading above the table")
    parser.add_argument("--about", help="a paragraph below the heading")
    parser.add_argument("--json", metavar="FILE", help="everything in one file")
    parser.add_argument("cuda")
    parser.add_argument("torch", nargs="?")
    options = parser.parse_args()
    rows = load(options.cuda, [])
    torch = load(options.torch, {}) if options.torch else {}
    table = Table(rows, torch)
    lines = list(table.lines())
    for text in (options.title and f"## {options.title}", options.about):
        if text:
            print(text, end="\n\n")
    print("\n".join(lines))
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"title": options.title, "about": options.about, "rows": rows, "torch": torch}, file, indent=1)
    print(f"\n{table.met} goals met, {table.missed} missed, {table.not_run} not run")
    return 0 if rows and not table.missed and not table.not_run else 1


if __name__ == "__main__":
    sys.exit(main())
