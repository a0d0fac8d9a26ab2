#!/usr/bin/env python3
"""bench-cuda on the stand-in for CUDA, torch_rows.py and cuda_table.py: that every row runs to its end or says why not.

usage: test_cuda.py BENCH_CUDA FOLDER_OF_THE_SCRIPTS"""
import importlib.util
import json
import os
import subprocess
import sys
import tempfile

BENCH, SCRIPTS = sys.argv[1:3]
FAILURES = []


def expect(condition, text):
    if not condition:
        FAILURES.append(text)
        print("FAILED", text)


def bench(path, *arguments, **environment):
    command = [BENCH, "--tiny", "--unchecked", "--json", path, *arguments]
    result = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=200, check=False)
    print("$", *command, environment or "", result.stdout, result.stderr, sep="\n")
    expect(result.returncode == 0, f"{arguments}: exit status {result.returncode}")
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def table(*arguments):
    command = [sys.executable, os.path.join(SCRIPTS, "cuda_table.py"), *arguments]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return result.returncode, result.stdout


def names(rows):
    return [row["row"] for row in rows]


def every_row_runs(folder):
    rows = bench(folder + "/cuda.json")
    expect(len(rows) == 73, f"{len(rows)} rows")
    expect(len(set(names(rows))) == len(rows), "rows have names of their own")
    for row in rows:
        # A build without FP8 says so.
        refused = row["row"].startswith("product fp8") and row["value"] is None and row["not_run"]
        expect(refused or row["value"] is not None, f"{row['row']}: {row.get('not_run')}")
        expect(refused or row["met"] is not None, f"{row['row']}: neither met nor missed")
    return rows


def what_cannot_run_says_why(folder, rows):
    late = bench(folder + "/late.json", "--limit", "-1")
    expect(names(late) == names(rows), "all rows are there")
    expect(all("time limit" in row["not_run"] for row in late), "without time no row runs")
    none = bench(folder + "/none.json", FAKECUDA_DEVICES="0")
    expect(names(none) == names(rows), "all rows are there")
    expect(all("no CUDA-capable device" in row["not_run"] for row in none), "without a GPU no row runs")
    code, text = table(folder + "/none.json")
    expect(code == 1 and f"0 goals met, 0 missed, {len(rows) + 37} not run" in text, text)


def a_failure_costs_its_own_rows_alone(folder, rows):
    # A sticky error in the third product, of both processes.
    lost = bench(folder + "/lost.json", "chain", "product", "transfer", FAKECUDA_FAIL="cublasLtMatmul:3:700")
    for row in lost:
        product = row["row"].startswith("product")
        expect((row["value"] is None) == product, f"{row['row']}: {row['value']}, {row.get('not_run')}")
        expect(not product or row["not_run"], f"{row['row']}: no reason")


def three_rows_come_first(folder):
    rows = bench(folder + "/first.json", "first")
    expect([row["row"].split(" ")[0] for row in rows] == ["chain", "product", "softmax"], names(rows))


def the_table_tells_what_missed(folder):
    chain = "chain of 10,000 adds of 16 floats"
    rows = [{"row": "a", "value": 2, "unit": "GB/s", "limit": 4, "ratio": 0.5, "goal": 0.9, "better": "higher", "met": False},
            {"row": chain, "value": 3, "unit": "op/s", "limit": 3, "ratio": 1, "goal": 0.8, "better": "higher", "met": True}]
    slow = [{"row": chain, "value": 3, "unit": "op/s"}, {"row": "a", "value": 1, "unit": "GB/s"}]
    files = {"rows": rows, "met": rows[1:], "slow": {"about": {"torch": "9"}, "rows": slow},
             "slower": {"rows": [{"row": chain, "value": 2, "unit": "op/s"}]}}
    for name, content in files.items():
        with open(f"{folder}/{name}.json", "w", encoding="utf-8") as file:
            json.dump(content, file)
    code, text = table("--title", "T", folder + "/rows.json", folder + "/slow.json")
    expect(code == 1 and "1 goals met, 2 missed, 0 not run" in text, text)
    expect("| a | 2 GB/s | 4 GB/s; 0.500 **missed** | 1 GB/s; 2.00 | ≥ 0.9 |" in text, text)
    expect(f"| {chain} | 3 op/s | 3 op/s; 1.000 | 3 op/s; 1.00 **missed** | ≥ 0.8; ≥ 1.5 of PyTorch |" in text, text)
    code, text = table(folder + "/met.json", folder + "/slower.json")
    expect(code == 0 and "2 goals met, 0 missed, 0 not run" in text, text)
    code, text = table(folder + "/met.json")
    expect(code == 1 and "1 goals met, 0 missed, 1 not run" in text, text)
    code, text = table(folder + "/nowhere.json")
    expect(code == 1 and "0 goals met" in text, text)


def pytorch_has_the_same_rows(folder, rows):
    script = os.path.join(SCRIPTS, "torch_rows.py")
    with open(script, encoding="utf-8") as file:
        compile(file.read(), script, "exec")
    command = [sys.executable, script, "--device", "cpu", "--tiny", "--json", folder + "/torch.json"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=250, check=False)
    print("$", *command, result.stdout, result.stderr, sep="\n")
    if importlib.util.find_spec("torch") is None:
        expect(result.returncode == 1 and "torch" in result.stderr, "without PyTorch it says so")
        return
    expect(result.returncode == 0, f"torch_rows.py: exit status {result.returncode}")
    with open(folder + "/torch.json", encoding="utf-8") as file:
        peer = json.load(file)["rows"]
    units = {row["row"]: row["unit"] for row in rows}
    for row in peer:
        expect(units.get(row["row"]) == row["unit"], f"{row['row']} in {row['unit']} is none of bench-cuda's")
        expect(row["value"] is not None or "fp8" in row["row"], f"{row['row']}: {row.get('not_run')}")
    _, text = table(folder + "/cuda.json", folder + "/torch.json")
    expect("of PyTorch" in text, text)
    print(text)


def main():
    with tempfile.TemporaryDirectory() as folder:
        rows = every_row_runs(folder)
        what_cannot_run_says_why(folder, rows)
        a_failure_costs_its_own_rows_alone(folder, rows)
        three_rows_come_first(folder)
        the_table_tells_what_missed(folder)
        pytorch_has_the_same_rows(folder, rows)
    print(f"{len(FAILURES)} expectations failed")
    return 1 if FAILURES else 0


if __name__ == "__main__":
    sys.exit(main())
