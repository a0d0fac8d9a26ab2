#!/usr/bin/python3
"""scripts/gpu-check and gpu-bench in a folder like an unpacked bundle, with programs that only note how they were called; and which rows
torch_rows.py would measure. Neither needs a GPU or PyTorch.

usage: test_gpu_scripts.py"""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
SCRIPTS = os.path.join(HERE, "..", "..", "scripts")
FIRST = ["chain of 10,000 adds of 16 floats", "product bf16 8192", "softmax of 1 GiB, rows of 16,384"]
NOTE = """#!{python}
import json, os, sys
with open(__file__ + ".called", "w") as file:
    json.dump(sys.argv[1:], file)
if "--json" in sys.argv:
    with open(sys.argv[sys.argv.index("--json") + 1], "w") as file:
        file.write({result!r})
"""


def torch_rows(*arguments):
    return subprocess.run([sys.executable, "-B", os.path.join(HERE, "torch_rows.py"), *arguments], capture_output=True, text=True, timeout=60,
                          check=False)


def rows_of(*groups):
    return torch_rows("--list", *groups).stdout.splitlines()


class Rows(unittest.TestCase):
    def test_without_a_group_all_are_measured(self):
        rows = rows_of()
        self.assertEqual(len(rows), 65)
        self.assertEqual(len(set(rows)), len(rows))
        self.assertLess(set(FIRST), set(rows))

    def test_a_group_has_its_own_rows(self):
        self.assertEqual(rows_of("first"), FIRST)
        self.assertEqual(len(rows_of("product")), 15)
        self.assertTrue(all(row.startswith("product ") for row in rows_of("product")))
        self.assertEqual(rows_of("chain", "first"), FIRST)
        self.assertEqual(rows_of("start"), [], "a group of bench-cuda's, but PyTorch has nothing like it")

    def test_groups_are_those_of_bench_cuda(self):
        with open(os.path.join(HERE, "cuda", "main.c"), encoding="utf-8") as file:
            said = file.read().partition('"groups: ')[2].partition(";")[0].split()
        for group in said:
            self.assertEqual(torch_rows("--list", group).returncode, 0, group)
        self.assertEqual(torch_rows("--list", "nonsense").returncode, 2)


class Experiments(unittest.TestCase):
    def test_what_to_type_is_there(self):
        """Groups, and programs of a bundle with tests."""
        with open(os.path.join(HERE, "EXPERIMENTS.md"), encoding="utf-8") as file:
            text = file.read().partition("\n# Products")[0]
        groups, programs = set(re.findall(r"`\./gpu-bench ([^` ]+)", text)), set(re.findall(r"\bbin/([\w-]+)", text))
        self.assertTrue(groups and programs)
        for group in groups:
            self.assertEqual(torch_rows("--list", group).returncode, 0, group)
        with open(os.path.join(SCRIPTS, "bundle"), encoding="utf-8") as file:
            bundle = file.read()
        for program in programs:
            test = program.removeprefix("test_device_")
            there = os.path.exists(os.path.join(HERE, "..", "device", f"test_{test}.c")) if test != program else program in bundle
            self.assertTrue(there, program)
        self.assertEqual(set(re.findall(r"`\./gpu-check (\w+)", text)), {"first"})


class Archive(unittest.TestCase):
    def test_programs_of_a_bundle_need_no_loader_that_packs_relocations(self):
        """It came with glibc 2.36, one version after that of Ubuntu 22.04."""
        with open(os.path.join(SCRIPTS, "bundle"), encoding="utf-8") as file:
            self.assertIn(" -Dpacked-relocations=false", file.read())


class Bundle(unittest.TestCase):
    """A folder like an unpacked bundle, whose programs do nothing."""

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="tensord-gpu-scripts.")
        self.addCleanup(shutil.rmtree, self.folder)
        os.mkdir(self.path("bin"))
        for name in ("gpu-check", "gpu-bench", "gpu-host"):
            shutil.copy(os.path.join(SCRIPTS, name), self.folder)
        shutil.copy(os.path.join(HERE, "cuda_table.py"), self.folder)
        met = [{"row": row, "value": 1, "unit": "x", "limit": 1, "ratio": 1, "goal": 0.9, "better": "higher", "met": True} for row in FIRST]
        self.write(json.dumps(met), "bin", "bench-cuda")
        self.write("", "bin", "tensord")
        self.write(json.dumps({"rows": [{"row": FIRST[0], "value": 0.5, "unit": "x"}]}), "torch_rows.py")

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def write(self, result, *names):
        with open(self.path(*names), "w", encoding="utf-8") as file:
            file.write(NOTE.format(python=sys.executable, result=result))
        os.chmod(file.name, 0o755)

    def called(self, *names):
        with open(self.path(*names) + ".called", encoding="utf-8") as file:
            return json.load(file)

    def bench(self, *groups, seconds):
        """scripts/gpu-bench, which met every goal."""
        environment = {**os.environ, "GPU_BENCH_SECONDS": str(seconds), "OUT": self.path("out")}
        done = subprocess.run([self.path("gpu-bench"), *groups], env=environment, capture_output=True, text=True, timeout=100, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def checked(self, mode):
        """The names of the tests that gpu-check runs."""
        for name in os.listdir(os.path.join(HERE, "..", "device")):
            if name.startswith("test_") and name.endswith(".c"):
                self.write("", "bin", "test_device_" + name[5:-2])
        for name in ("tensorctl", "kernel_check"):
            self.write("", "bin", name)
        with open(self.path("bin", "gpu-probe"), "w", encoding="utf-8") as file:
            file.write("#!/bin/sh\necho to be set: TENSORD_CUDA_FUSED=none\n")
        os.chmod(file.name, 0o755)
        environment = {**os.environ, "GPU_BENCH_SECONDS": "110", "OUT": self.path("out")}
        done = subprocess.run([self.path("gpu-check"), mode], env=environment, capture_output=True, text=True, timeout=100, check=False)
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)  # no daemon answers
        self.assertIn("FAILED  the daemon is ready", done.stdout)
        self.assertRegex(done.stdout.splitlines()[-1], r"^\d+ passed, \d+ failed, \d+ not run; \d+ s$")
        with open(self.path("out", "checks.json"), encoding="utf-8") as file:
            checks = {check["check"]: check["result"] for check in json.load(file)}
        return {name.removeprefix("test_device_"): result for name, result in checks.items() if name.startswith("test_device_")}

    def test_checks_are_of_the_gpu(self):
        tests = self.checked("checks")
        self.assertEqual(set(tests.values()), {"ok"})
        self.assertLess({"operations", "gradients", "recorded", "engine_memory", "libraries"}, set(tests))
        self.assertFalse({"levels", "threads", "reference"} & set(tests), "tests of processors, which take many minutes")

    def test_first_runs_what_is_essential_and_three_rows(self):
        self.assertEqual(set(self.checked("first")),
                         {"engine_ids", "operations", "products", "products_f8", "indices", "engine_streams", "graphs"})
        self.assertEqual(self.called("torch_rows.py")[2:], ["first"])
        self.assertEqual(self.called("bin", "bench-cuda")[4:], ["first"])

    def test_groups_go_to_both_programs(self):
        said = self.bench("first", seconds=110)  # as gpu-check has it
        self.assertEqual(self.called("torch_rows.py"), ["--json", self.path("out", "torch.json"), "first"])
        self.assertEqual(self.called("bin", "bench-cuda")[2:], ["--json", self.path("out", "cuda.json"), "first"])
        self.assertIn("4 goals met, 0 missed, 0 not run", said)
        self.bench(seconds=110)
        self.assertEqual(self.called("torch_rows.py"), ["--json", self.path("out", "torch.json")])

    def test_programs_that_do_not_start_are_told_at_once(self):
        with open(self.path("bin", "tensord"), "w", encoding="utf-8") as file:
            file.write("#!/bin/sh\necho \"libc.so.6: version 'GLIBC_2.99' not found\" >&2\nexit 1\n")
        for command in (["gpu-bench"], ["gpu-check", "first"], ["gpu-check", "checks"]):
            done = subprocess.run([self.path(command[0]), *command[1:]], capture_output=True, text=True, timeout=100, check=False)
            self.assertEqual((done.returncode, done.stdout), (1, ""))
            self.assertIn("tensord does not start on this host: libc.so.6: version 'GLIBC_2.99' not found", done.stderr)

    def test_most_of_the_time_is_for_rows_to_begin(self):
        """Also of the 110 s that gpu-check first has, where three rows have to begin although PyTorch may take 44 of them."""
        for seconds in (110, 480):
            self.bench("first", seconds=seconds)
            name, limit = self.called("bin", "bench-cuda")[:2]
            self.assertEqual(name, "--limit")
            self.assertGreater(int(limit), seconds // 2)
            self.assertLess(int(limit), seconds - seconds // 10)


if __name__ == "__main__":
    unittest.main()
