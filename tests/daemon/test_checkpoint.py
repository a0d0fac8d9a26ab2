#!/usr/bin/python3
"""The example of parts that are computed again: the same losses as with all kept, and less memory."""
import json
import os
import subprocess
import tempfile
import time
import unittest

WAIT_S = 120 * float(os.environ.get("TENSORD_TEST_SLOW", "1"))
TENSORD, TENSORCTL, CHECKPOINT = (os.environ[name] for name in ("TENSORD_EXE", "TENSORCTL_EXE", "CHECKPOINT_EXE"))
BLOCKS, ROWS, WIDTH = 16, 1024, 256
RESULT = 4 * ROWS * WIDTH  # the bytes of what an operation of a block makes


class CheckpointTest(unittest.TestCase):
    def run_alone(self, *options):
        """The losses, and the most bytes that the device had: its figure is of a daemon's life, so each run has its own."""
        with tempfile.TemporaryDirectory(prefix="tensord-checkpoint.") as folder:
            url = "unix:" + os.path.join(folder, "s")
            daemon = subprocess.Popen([TENSORD, "--listen", url, "--devices", "cpu:0"], stderr=subprocess.DEVNULL)
            try:
                self.wait_for(lambda: self.status(url)["state"] == "ready")
                job = subprocess.run([CHECKPOINT, "--url", url, "--blocks", str(BLOCKS), "--batch", str(ROWS), "--steps", "2",
                                      *options], capture_output=True, text=True, timeout=WAIT_S)
                self.assertEqual(job.returncode, 0, job.stderr)
                # The figure is a moment old; what it is after the session has ended, it stays.
                self.wait_for(lambda: self.status(url)["memory"]["peak"] > 0 and self.status(url)["memory"]["live"] == 0)
                peak = self.status(url)["memory"]["peak"]
            finally:
                daemon.terminate()
                self.assertEqual(daemon.wait(WAIT_S), 0)
        return [line for line in job.stdout.splitlines() if "loss" in line], peak

    def wait_for(self, holds):
        end = time.monotonic() + WAIT_S
        while True:
            try:
                if holds():
                    return
            except (KeyError, IndexError, ValueError):
                pass
            self.assertLess(time.monotonic(), end, "the daemon does not come that far")
            time.sleep(0.02)

    @staticmethod
    def status(url):
        text = subprocess.run([TENSORCTL, "--url", url, "status", "--json"], capture_output=True, text=True, timeout=WAIT_S).stdout
        return json.loads(text)["devices"][0]

    def test_the_same_losses_with_less_memory(self):
        kept, all_bytes = self.run_alone()
        again, fewer_bytes = self.run_alone("--again")
        self.assertEqual(kept, again)
        self.assertEqual(len(kept), 2)
        # Of each block two results less: of layer_norm and of gelu.
        self.assertGreater(all_bytes - fewer_bytes, 1.5 * BLOCKS * RESULT)


if __name__ == "__main__":
    unittest.main(verbosity=2)
