"""The examples run on the CPU device, and print what they promise; so do the notebooks that are made of them."""

import csv
import importlib.util
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
WITHOUT = """
import os, runpy, sys
sys.modules.update(dict.fromkeys(sys.argv[1].split(",")))  # an import of them fails
del sys.argv[:2]
sys.path[0] = os.path.dirname(sys.argv[0])
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def output(name, *arguments, **variables):
    """What an example prints on standard output and on standard error; it uses the daemon of these tests. A script runs in any folder, a
    notebook (whose code follows "-c") in that of the examples."""
    environment = dict(os.environ, TENSORD_URL=td.default_connection().url, **variables)
    folder, file = (EXAMPLES, name) if name == "-c" else ("/", EXAMPLES / name)
    result = subprocess.run([sys.executable, "-B", file, *arguments], cwd=folder, env=environment, capture_output=True, text=True)
    if result.returncode:
        raise AssertionError(f"{name} ended with {result.returncode}:\n{result.stdout}{result.stderr}")
    return result.stdout, result.stderr


def run(name, *arguments, **variables):
    return output(name, *arguments, **variables)[0]


def run_without(modules, name, *arguments):
    """What an example prints where these modules are not installed."""
    return output("-c", WITHOUT, modules, EXAMPLES / name, *arguments)


def installed(*names):
    return all(importlib.util.find_spec(name) for name in names)


class Examples(unittest.TestCase):
    def test_hello(self):
        self.assertRegex(run("hello.py"), r"^cpu:0 \[\[-?0\.\d+, -?0\.\d+\], \[-?0\.\d+, -?0\.\d+\]\]\n$")

    def test_readme_shows_examples_as_they_are(self):
        readme = (EXAMPLES.parents[2] / "README.md").read_text(encoding="utf-8")
        blocks = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
        self.assertEqual(blocks[:1], [(EXAMPLES / "train.py").read_text(encoding="utf-8")])

    def test_train(self):
        first, last = map(float, re.search(r"loss (\S+) at first, (\S+) at the end", run("train.py")).groups())
        self.assertGreater(first, 1)
        self.assertLess(last, 0.01)

    def test_the_readme_of_the_package_trains(self):
        readme = (EXAMPLES.parent / "README.md").read_text(encoding="utf-8")
        program = next(block for block in re.findall(r"```python\n(.*?)```", readme, re.DOTALL) if "backward" in block)
        self.assertGreater(float(run("-c", "import tensord as td\ntd.serve = lambda: td.random.seed(1)\n" + program)), 0.95)

    def test_the_readme_of_the_package_trains_by_a_program(self):
        readme = (EXAMPLES.parent / "README.md").read_text(encoding="utf-8")
        program = next(block for block in re.findall(r"```python\n(.*?)```", readme, re.DOTALL) if "td.scan" in block)
        self.assertLess(float(run("-c", "import tensord as td\ntd.serve = lambda: td.random.seed(1)\n" + program)), 0.15)

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
        text = run("logistic_regression.py", "--steps", "60", "--points", "800")
        first, last, right = map(float, re.search(r"loss (\S+) at first, (\S+) at the end; (\S+) %", text).groups())
        self.assertLess(last, first / 2)
        self.assertGreater(right, 90)

    def test_kmeans(self):
        text = run("kmeans.py", "--points", "600", "--iterations", "10")
        self.assertEqual(sum(map(int, re.findall(r"(\d+) points around", text))), 600)
        self.assertLess(float(re.search(r"centres (\S+)", text).group(1)), 5)  # 2 · 1.5² for true centres

    def test_bar_picture_and_log_as_text(self):
        with tempfile.TemporaryDirectory() as folder:
            picture = os.path.join(folder, "curve.png")
            arguments = ["logistic_regression.py", "--steps", "40", "--points", "100", "--plot", picture, "--log", folder]
            text, shown = run_without("tqdm,matplotlib,tensorboard", *arguments)
            self.assertIn("tqdm is not installed", shown)
            self.assertRegex(shown, r"training: 40 of 40, loss 0\.\d{4}\n")
            self.assertIn("Matplotlib is not installed", text)
            self.assertRegex(text, r"loss: 0\.6931 \(step 0\), .*\(step 36\)\n")
            self.assertIn("TensorBoard is not installed", text)
            self.assertFalse(os.path.exists(picture))
            with open(os.path.join(folder, "scalars.csv"), encoding="utf-8", newline="") as file:
                rows = list(csv.reader(file))
        self.assertEqual(rows[0], ["name", "step", "value"])
        self.assertEqual([row[:2] for row in rows[1:]], [["loss", str(step)] for step in range(40)])
        self.assertLess(float(rows[40][2]), float(rows[1][2]))

    @unittest.skipUnless(installed("tqdm"), "tqdm is not installed")
    def test_bar_of_tqdm(self):
        self.assertRegex(output("kmeans.py", "--iterations", "10")[1], r"k-means: 100%\|.*10/10 .*distance \d")

    @unittest.skipUnless(installed("matplotlib"), "Matplotlib is not installed")
    def test_pictures_of_matplotlib(self):
        with tempfile.TemporaryDirectory() as folder:
            for name in ("logistic_regression.py", "kmeans.py"):
                picture = os.path.join(folder, name + ".png")
                self.assertIn(f"the picture is in {picture}", run(name, "--plot", picture))
                with open(picture, "rb") as file:
                    self.assertEqual(file.read(8), b"\x89PNG\r\n\x1a\n")

    @unittest.skipUnless(installed("tensorboard"), "TensorBoard is not installed")
    def test_log_for_tensorboard(self):
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        with tempfile.TemporaryDirectory() as folder:
            text = run("logistic_regression.py", "--steps", "30", "--points", "100", "--log", folder)
            log = EventAccumulator(folder, {"tensors": 0})  # all, not a sample
            log.Reload()
            events = log.Tensors("loss")
        self.assertEqual([event.step for event in events], list(range(30)))
        self.assertAlmostEqual(events[-1].tensor_proto.float_val[0], float(re.search(r"(\S+) at the end", text).group(1)), places=4)

    def test_hyperparameters(self):
        text = run("hyperparameters.py", "--processes", "2")
        self.assertEqual(len(re.findall("% right", text)), 6)
        self.assertEqual(len(set(re.findall(r"process (\d+)", text))), 6)

    def test_hyperband(self):
        text = run("hyperband.py", "--processes", "2", "--epochs", "9")
        rungs = [tuple(map(int, one)) for one in re.findall(r"(\d+) configurations, +(\d+) epochs", text)]
        self.assertEqual(rungs, [(9, 1), (3, 3), (1, 9), (5, 3), (1, 9), (3, 9)])
        self.assertRegex(text, "22 trials by [12] processes")  # one of them may be slow to start
        best, median = map(float, re.search(r"the best loss is (\S+) after \d+ epochs, the median (\S+);", text).groups())
        self.assertLess(best, median / 1.5)
        self.assertEqual([one["name"] for one in td.device().names() if one["name"].startswith("hyperband")], [])

    def test_text(self):
        for name in ("text_lstm.py", "text_transformer.py"):
            with self.subTest(name):
                text = run(name, "--steps", "60", "--batch", "16", "--length", "32")
                first, last, least = map(float, re.search(r"loss (\S+) at first, (\S+) at the end; .* than about (\S+)", text).groups())
                self.assertLess(last, 0.6 * first)
                self.assertGreater(last, least)
                self.assertGreater(len(re.search(r"it writes: ([a-z. ]*)\n", text).group(1)), 90)

    def test_data_parallel(self):
        text = run("data_parallel.py")
        self.assertEqual([float(one) > 80 for one in re.findall(r"cpu:[01]: (\S+) % right", text)], [True, True])
        between, alone = map(float, re.search(r"between the devices (\S+), to one device alone (\S+)", text).groups())
        self.assertEqual(between, 0)
        self.assertLess(alone, 1e-3)

    def test_move_and_save(self):
        text = run("move_and_save.py")
        self.assertIn("from cpu:0 to cpu:1: 4 arrays", text)
        self.assertIn("loaded on cpu:0: the same values", text)

    def test_introduction(self):
        text = run("introduction.py")
        self.assertIn("cpu:0", text)
        self.assertIn("[-1.0, -1.0, -1.0, -1.0] [8.0, 9.0, 10.0, 100.0]", text)
        self.assertGreater(float(re.search(r"(\S+) % right", text).group(1)), 85)


@unittest.skipUnless(DATA.is_dir(), "the package dataset-fashion-mnist is not installed")
class Cnn(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.weights = os.path.join(folder.name, "cnn.safetensors")

    def evaluate(self, *arguments):
        """The accuracy, and the confusion matrix."""
        text = run("cnn.py", "--images", "1000", *arguments)
        table = [list(map(int, re.findall(r"\b\d+\b", line))) for line in text.splitlines()[-10:]]
        self.assertEqual([len(row) for row in table], [10] * 10)
        return float(re.search(r"accuracy (\S+) %", text).group(1)), table

    def test_weights_that_tensord_trained(self):
        text = run("cnn_train.py", "--steps", "80", "--weights", self.weights)
        first, last = map(float, re.search(r"loss (\S+) at first, (\S+) at the end", text).groups())
        self.assertLess(last, first / 2)
        accuracy, table = self.evaluate("--weights", self.weights)
        self.assertGreater(accuracy, 60)
        self.assertEqual(sum(map(sum, table)), 1000)
        self.assertAlmostEqual(sum(table[i][i] for i in range(10)) / 10, accuracy)

    def test_programs_train_it(self):
        text = run("cnn_program.py", "--images", "3840", "--epochs", "3")
        self.assertRegex(text, r"step by step: \d+ images a second\n2 epochs enqueued in \d+ ms: \d+ images a second")
        losses = [float(one) for one in re.findall(r"(\d\.\d{4}) \(step", text)]
        self.assertLess(losses[-1], losses[0] / 2)
        accuracy = float(re.search(r"accuracy (\S+) % after 3 epochs", text).group(1))
        table = [list(map(int, re.findall(r"\b\d+\b", line))) for line in text.splitlines()[-10:]]
        self.assertGreater(accuracy, 60)
        self.assertAlmostEqual(100 * sum(table[i][i] for i in range(10)) / 3840, accuracy, delta=0.01)

    @unittest.skipUnless(installed("torch", "safetensors"), "PyTorch and safetensors are not installed")
    def test_weights_of_pytorch_give_its_accuracy(self):
        text = run("cnn_torch.py", "--steps", "40", "--weights", self.weights, "--images", "1000")
        expected = float(re.search(r"PyTorch's accuracy (\S+) %", text).group(1))
        self.assertGreater(expected, 30)
        self.assertAlmostEqual(self.evaluate("--weights", self.weights)[0], expected, delta=0.2)

    def test_without_weights_they_are_made(self):
        text, _ = run_without("torch", "cnn.py", "--train", "2", "--images", "100")
        self.assertIn("no --weights: cnn_train.py makes them; torch and safetensors are not installed", text)
        self.assertIn("100 images on cpu:0", text)

    def test_weights_of_another_network_are_refused(self):
        td.save_file({"conv1.weight": td.zeros((8, 1, 3, 3)), "conv1.bias": td.zeros(8)}, self.weights)
        with self.assertRaisesRegex(AssertionError, "the weights of another network: .*conv2.weight"):
            run("cnn.py", "--weights", self.weights)


class Notebooks(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        run("notebooks.py", "--into", cls.folder.name)

    def read(self, name):
        with open(os.path.join(self.folder.name, f"{name}.ipynb"), encoding="utf-8") as file:
            return json.load(file)["cells"]

    def test_each_theme_has_one(self):
        names = {path.stem for path in pathlib.Path(self.folder.name).glob("*.ipynb")}
        parts = {"hello", "train", "start", "show", "trial", "notebooks", "cnn_torch", "text", "hyperband_trial"}  # not cells, but what they use, or a program of PyTorch alone
        self.assertEqual(names, {path.stem for path in EXAMPLES.glob("*.py")} - parts)

    def test_cells_run_one_after_another(self):
        for name in sorted(path.stem for path in pathlib.Path(self.folder.name).glob("*.ipynb")):
            with self.subTest(name):
                if name.startswith("cnn") and not DATA.is_dir():
                    self.skipTest("the package dataset-fashion-mnist is not installed")
                cells = self.read(name)
                self.assertEqual(cells[0]["cell_type"], "markdown")
                self.assertRegex("".join(cells[0]["source"]), r"^# \S")
                program = "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
                # A notebook has no options, and its network trains for a while.
                program = program.replace("train=300", "train=5").replace("steps=300, batch", "steps=5, batch")
                program = program.replace("epochs=3, images=60000", "epochs=2, images=512").replace("epochs=27", "epochs=3")
                program = program.replace('weights="cnn.safetensors"', f"weights={os.path.join(self.folder.name, 'w')!r}")
                self.assertTrue(run("-c", program, MPLBACKEND="Agg"))

    def test_text_and_code_of_cells(self):
        cells = self.read("logistic_regression")
        self.assertEqual("".join(cells[0]["source"]).splitlines()[:3], ["# Logistic regression", "", "Trained through the array API standard alone: `fit()` works on any library's arrays."])
        code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
        self.assertTrue(code[1].startswith("def fit("))
        self.assertTrue(code[2].startswith("given = options("), code[2])

    def test_one_that_was_edited_is_left(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "devices.ipynb")
            self.assertEqual(output("notebooks.py", "--into", folder, "devices"), ("", ""))
            self.assertEqual(output("notebooks.py", "--into", folder, "devices"), ("", ""))
            with open(path, "a", encoding="utf-8") as file:
                file.write(" ")
            self.assertIn("is left as it is", output("notebooks.py", "--into", folder, "devices")[1])
            with open(path, encoding="utf-8") as file:
                self.assertTrue(file.read().endswith(" "))


if __name__ == "__main__":
    unittest.main()
