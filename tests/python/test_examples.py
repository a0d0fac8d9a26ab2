"""The examples run on the CPU device, and print what they promise."""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import tensord as td

from session import setUpModule  # noqa: F401

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "client" / "python" / "examples"
DATA = pathlib.Path("/usr/share/datasets/fashion-mnist")


def run(name, *arguments, **variables):
    """What an example prints; it uses the daemon of these tests."""
    environment = dict(os.environ, TENSORD_URL=td.default_connection().url, **variables)
    result = subprocess.run([sys.executable, name, *arguments], cwd=EXAMPLES, env=environment, capture_output=True, text=True)
    if result.returncode:
        raise AssertionError(f"{name} ended with {result.returncode}:\n{result.stdout}{result.stderr}")
    return result.stdout


class Examples(unittest.TestCase):
    def test_hello(self):
        self.assertRegex(run("hello.py"), r"^cpu:0 \[\[-?0\.\d+, -?0\.\d+\], \[-?0\.\d+, -?0\.\d+\]\]\n$")

    def test_readme_shows_hello_as_it_is(self):
        readme = (EXAMPLES.parents[2] / "README.md").read_text(encoding="utf-8")
        self.assertEqual(re.search(r"```python\n(.*?)```", readme, re.DOTALL)[1], (EXAMPLES / "hello.py").read_text(encoding="utf-8"))

    def test_devices(self):
        text = run("devices.py")
        self.assertIn("2 devices", text)
        self.assertIn("cpu:1: [0, 1, 4, 9, 16]", text)

    def test_arrays_on_devices(self):
        text = run("arrays_on_devices.py")
        self.assertIn("x + y is refused", text)
        self.assertIn("x + y.to_device(x.device) = [[2.0, 3.0], [4.0, 5.0]]", text)
        self.assertIn("a view made before = [1.0, 2.0]", text)

    def test_timing(self):
        text = run("timing.py", "--repeat", "1", "--largest", "65536")
        self.assertIn("vector add, 1024", text)
        self.assertIn("matrix × vector, 128 × 128", text)

    def test_own_kernel(self):
        self.assertIn("no CUDA device", run("own_kernel.py"))

    def test_logistic_regression(self):
        with tempfile.TemporaryDirectory() as folder:
            try:
                import matplotlib  # noqa: F401

                arguments = ["--plot", os.path.join(folder, "curve.png")]
            except ImportError:
                arguments = []
            text = run("logistic_regression.py", "--steps", "60", "--points", "800", *arguments)
            first, last, right = map(float, re.search(r"loss (\S+) at first, (\S+) at the end; (\S+) %", text).groups())
            self.assertLess(last, first / 2)
            self.assertGreater(right, 90)
            for file in arguments[1:]:
                self.assertGreater(os.path.getsize(file), 1000)

    def test_kmeans(self):
        text = run("kmeans.py", "--points", "600", "--iterations", "10")
        self.assertEqual(sum(map(int, re.findall(r"(\d+) points around", text))), 600)
        self.assertLess(float(re.search(r"centres (\S+)", text).group(1)), 1)

    def test_hyperparameters(self):
        text = run("hyperparameters.py", "--processes", "2")
        self.assertEqual(len(re.findall("% right", text)), 6)
        self.assertEqual(len(set(re.findall(r"process (\d+)", text))), 6)

    def test_move_and_save(self):
        text = run("move_and_save.py")
        self.assertIn("from cpu:0 to cpu:1: 4 arrays", text)
        self.assertIn("loaded on cpu:0: the same values", text)

    def test_notebook(self):
        """The cells run one after another; a cell whose last line is an expression shows it."""
        with open(EXAMPLES / "introduction.ipynb", encoding="utf-8") as file:
            cells = json.load(file)["cells"]
        program = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
        text = run("-c", program, MPLBACKEND="Agg")
        self.assertIn("cpu:0", text)
        self.assertIn("[-1.0, -1.0, -1.0, -1.0] [8.0, 9.0, 10.0, 100.0]", text)
        self.assertGreater(float(re.search(r"(\S+) % right", text).group(1)), 85)

    @unittest.skipUnless(DATA.is_dir(), "the package dataset-fashion-mnist is not installed")
    def test_cnn(self):
        with tempfile.TemporaryDirectory() as folder:
            weights = os.path.join(folder, "cnn.safetensors")
            trained = run("cnn.py", "--train", "60", "--weights", weights, "--images", "1000")
            loaded = run("cnn.py", "--weights", weights, "--images", "1000")
        accuracy = float(re.search(r"accuracy (\S+) %", trained).group(1))
        self.assertGreater(accuracy, 65)
        table = re.compile(r"\n(T-shirt.*)", re.DOTALL)
        self.assertEqual(table.search(trained).group(1), table.search(loaded).group(1))
        self.assertEqual(sum(map(int, re.findall(r"\b\d+\b", table.search(loaded).group(1).replace("T-shirt", "")))), 1000)


if __name__ == "__main__":
    unittest.main()
