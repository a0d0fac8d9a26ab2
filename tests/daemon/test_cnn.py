#!/usr/bin/python3
"""The example that trains a convolutional network computes what PyTorch computes: its first losses are PyTorch's, and a few steps more
make it know the images."""
import os
import re
import shutil
import subprocess
import tempfile
import time
import unittest

SLOW = float(os.environ.get("TENSORD_TEST_SLOW", "1"))
WAIT_S = 120 * SLOW
TENSORD, TENSORCTL, CNN = (os.environ[name] for name in ("TENSORD_EXE", "TENSORCTL_EXE", "CNN_EXE"))

# client/examples/cnn_losses.py, with Python 3.11.7, NumPy 2.4.6, PyTorch 2.15.0+cu132. With Adam's usual rate: at ten times that, PyTorch
# with oneDNN, without it and in f64 differ by 0.009 among themselves; here by 0.00001.
LOSSES = [2.302732, 2.299077, 2.301642, 2.306523, 2.305990, 2.306461, 2.296749, 2.311662, 2.297875, 2.303219]


class CnnTest(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.mkdtemp(prefix="tensord-cnn.")
        self.addCleanup(shutil.rmtree, self.directory)
        self.url = "unix:" + os.path.join(self.directory, "s")
        with open(os.path.join(self.directory, "log"), "wb") as log:
            self.daemon = subprocess.Popen([TENSORD, "--listen", self.url, "--devices", "cpu:0"], stderr=log, stdout=log)
        self.addCleanup(self.stop)
        end = time.monotonic() + WAIT_S
        while "ready" not in self.status():
            self.assertLess(time.monotonic(), end, "the daemon is not ready")
            time.sleep(0.01)

    def stop(self):
        self.daemon.terminate()
        self.assertEqual(self.daemon.wait(WAIT_S), 0)

    def status(self):
        return subprocess.run([TENSORCTL, "--url", self.url, "status"], capture_output=True, text=True, timeout=WAIT_S).stdout

    def cnn(self, *arguments):
        job = subprocess.run([CNN, "--url", self.url, "--made-up", *arguments], capture_output=True,
                             text=True, timeout=WAIT_S)
        self.assertEqual(job.returncode, 0, job.stderr)
        return job.stdout.splitlines()

    def test_first_losses_are_those_of_pytorch(self):
        losses = [float(line.split()[-1]) for line in self.cnn("--steps", "10")]
        self.assertEqual(len(losses), len(LOSSES))
        for step, (loss, expected) in enumerate(zip(losses, LOSSES), 1):
            self.assertLess(abs(loss - expected), 1e-3, f"step {step}: {loss}, not {expected}")

    def test_it_learns(self):
        words = self.cnn("--epochs", "3", "--rate", "0.002")[-1].split()
        self.assertGreater(float(words[words.index("accuracy") + 1]), 90, " ".join(words))

    def test_the_way_back_takes_few_operations(self):
        # Written by hand it takes 41: 2 for the loss, 6 · 2 for the relus, 3 for pooling, 3 · 4 for the linear layers, 11 for the
        # convolutions (the first one needs no gradient by its input), and a reshape.
        two, one = (self.operations("--steps", steps) for steps in "21")
        forward = sum((["slice"] * 2, ["cast", "multiply", "broadcast_to", "reshape", "cross_entropy", "adam"],
                       ["conv", "relu"] * 4, ["max_pool", "linear"] * 3), [])
        self.assertLessEqual(len(two) - len(one) - len(forward), 1.15 * 41, two[len(one):])

    def operations(self, *arguments):
        job = subprocess.run([CNN, "--url", self.url, "--made-up", *arguments], capture_output=True, text=True, timeout=WAIT_S,
                             env={**os.environ, "TENSORD_DEBUG": "wire"})
        self.assertEqual(job.returncode, 0, job.stderr)
        return re.findall(r"^  #\d+ .*?= ?([a-z_0-9]+)\(", job.stderr, re.MULTILINE)

    def test_evaluation_uses_all_images_whatever_the_batch(self):
        alone, all_at_once, uneven = (self.cnn("--evaluate", "2", "--batch", str(batch)) for batch in (100, 1000, 256))
        found = {line.partition(" %")[0] for line in alone + all_at_once + uneven}
        self.assertEqual(len(alone), 2)
        self.assertEqual(len(found), 1, found)
        self.assertRegex(found.pop(), r"^test accuracy \d+\.\d\d$")


if __name__ == "__main__":
    unittest.main(verbosity=2)
