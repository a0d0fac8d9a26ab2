#!/usr/bin/python3
"""Figures are true: no counter falls while its worker lives, rates say no more than what was completed, and what was enqueued
is what is counted in the end."""
import json
import math
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
import unittest
import urllib.request

SLOW = float(os.environ.get("TENSORD_TEST_SLOW", "1"))
WAIT_S = 60 * SLOW
TENSORD, TENSORCTL, JOB = (os.environ[name] for name in ("TENSORD_EXE", "TENSORCTL_EXE", "FIGURES_JOB_EXE"))

# Of a device in status.json: what is a gauge. All other numbers count something since the worker's start.
GAUGES = {"processors", "worker_pid", "epoch", "last_fault_age_s", "queue_depth", "stalled_s", "ops_per_s",
          "bytes_in_per_s", "bytes_out_per_s", "data_age_ms", "connections", "memory_device", "busy_percent",
          "worker_memory"}
GAUGE_GROUPS = {"memory", "staging", "names", "readings"}
SESSION_COUNTERS = {"ops_done", "peak", "reconnects", "device_s"}
SHORTEST_S = 0.05  # between two samples of the worker, which takes them every 100 ms


def counters_of(what, prefix=""):
    """Of a device: (name, value) of all its counters."""
    for key, value in what.items():
        if key in GAUGES or (not prefix and key in GAUGE_GROUPS) or key in ("p50_s", "p99_s"):
            continue
        if isinstance(value, dict):
            yield from counters_of(value, f"{prefix}{key}.")
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            yield prefix + key, value


class FiguresTest(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.mkdtemp(prefix="tensord-figures.")
        self.addCleanup(shutil.rmtree, self.directory)
        self.url = "unix:" + os.path.join(self.directory, "s")
        self.log = os.path.join(self.directory, "log")
        with open(self.log, "wb") as log:
            self.daemon = subprocess.Popen([TENSORD, "--listen", self.url, "--devices", "cpu:0", "--http", "127.0.0.1:0"],
                                           stderr=log, stdout=log)
        self.addCleanup(self.stop)
        self.port = self.until(self.address, "the daemon's HTTP address")
        self.until(self.ready, "the daemon is not ready")
        self.before, self.polls, self.most = {}, 0, 0.0

    def stop(self):
        self.daemon.terminate()
        self.assertEqual(self.daemon.wait(WAIT_S), 0)

    def until(self, holds, what):
        end = time.monotonic() + WAIT_S
        while not (found := holds()):
            self.assertLess(time.monotonic(), end, what)
            time.sleep(0.01)
        return found

    def address(self):
        with open(self.log, encoding="utf-8") as text:
            found = re.search(r"url=http://127\.0\.0\.1:(\d+)/", text.read())
        return found and int(found[1])

    def get(self, path):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/{path}", timeout=WAIT_S) as reply:
            return reply.read().decode()

    def ready(self):
        return self.status()["devices"][0]["state"] == "ready"

    def status(self):
        return json.loads(self.get("status.json"))

    def settled(self, since):
        """The operations counted when nothing is left to do. Figures come from the worker every now and then: older ones tell
        nothing of what has been done since."""
        elapsed_ms = (time.monotonic() - since) * 1e3
        status = self.status()
        device = status["devices"][0]
        new = device["data_age_ms"] < elapsed_ms
        return new and device["queue_depth"] == 0 and not status["sessions"] and device["ops_total"]

    def job(self, kind, seconds):
        job = subprocess.Popen([JOB, self.url, "cpu:0", kind, str(seconds)], stdout=subprocess.PIPE, text=True)
        self.addCleanup(lambda: job.poll() is None and job.communicate(timeout=WAIT_S))
        self.addCleanup(job.stdout.close)
        return job

    def end(self, job):
        """How many operations it enqueued, and how many tensors it released."""
        text = job.communicate(timeout=WAIT_S)[0]
        self.assertEqual(job.returncode, 0)
        return [int(word) for word in text.split()]

    # ---- looks ----

    def grows(self, key, value):
        self.assertGreaterEqual(value, self.before.get(key, 0), key)
        self.before[key] = value

    def is_rate_of(self, rate, done):
        self.assertTrue(math.isfinite(rate) and rate >= 0, rate)
        self.assertLessEqual(rate, done / SHORTEST_S, "more a second than was ever done")
        self.most = max(self.most, rate)

    def look_at_status(self):
        status = self.status()
        device = status["devices"][0]
        epoch = device["epoch"]
        for name, value in counters_of(device):
            self.grows((epoch, name), value)
        self.is_rate_of(device["ops_per_s"], device["ops_total"])
        self.assertTrue(0 <= device["busy_percent"] <= 100, device["busy_percent"])
        self.assertLessEqual(device["busy_s"], status["uptime_s"])
        for session in status["sessions"]:
            for name in SESSION_COUNTERS & set(session):
                self.grows((epoch, session["id"], name), session[name])
            for code, count in session["failures"].items():
                self.grows((epoch, session["id"], code), count)
        return device

    def look_at_metrics(self):
        """As Prometheus would: in a new epoch a counter may begin anew, so the metrics before and after must be of one."""
        text = self.get("metrics")
        epoch = re.search(r"^tensord_device_epoch\{.*\} (\d+)$", text, re.MULTILINE)[1]
        counters = set(re.findall(r"^# TYPE (\S+) counter$", text, re.MULTILINE))
        for name, labels, value in re.findall(r"^(\w+)(\{.*\})? (\S+)$", text, re.MULTILINE):
            if name in counters or name.endswith("_bucket"):
                self.grows((epoch, name, labels), float(value))

    def look(self):
        self.look_at_metrics()
        self.polls += 1
        return self.look_at_status()

    def look_while(self, jobs):
        while any(job.poll() is None for job in jobs):
            self.look()

    # ---- tests ----

    def test_what_was_enqueued_is_what_is_counted(self):
        operations = releases = 0
        while self.polls <= 20:  # on a busy machine a look takes its time
            jobs = [self.job("work", 1.5), self.job("failing", 1.5)]
            self.look_while(jobs)
            for enqueued, released in map(self.end, jobs):
                operations, releases = operations + enqueued, releases + released
        self.assertGreater(operations, 100)
        done = self.until(lambda since=time.monotonic(): self.settled(since), "the jobs do not end")
        self.assertGreater(done, operations)
        self.assertLessEqual(done, operations + releases)
        self.until(lambda: self.look()["ops_per_s"] == 0, "nothing runs: 0 op/s")
        self.assertGreater(self.most, 0)

    def processor_time(self, pid):
        with open(f"/proc/{pid}/stat", encoding="utf-8") as text:
            ticks = sum(map(int, text.read().rpartition(")")[2].split()[11:13]))
        return ticks / os.sysconf("SC_CLK_TCK")

    def test_memory_and_processor_time_are_those_of_the_worker(self):
        device = self.until(lambda: (d := self.look())["worker_memory"] and d, "figures of the worker")
        with open(f"/proc/{device['worker_pid']}/status", encoding="utf-8") as text:
            peak = int(re.search(r"^VmHWM:\s+(\d+) kB$", text.read(), re.MULTILINE)[1]) << 10
        self.assertTrue(1 << 20 < device["worker_memory"] < 1.1 * peak, (device["worker_memory"], peak))
        while (used := self.processor_time(device["worker_pid"]) - 0.02) < device["worker_cpu_s"] + 0.05:
            self.end(self.job("work", 0.5))  # 0.02: both of its times are counted in whole ticks
        shown = self.until(lambda: (s := self.look()["worker_cpu_s"]) >= used and s, "all of its time")
        self.assertGreater(shown, device["worker_cpu_s"])
        self.assertLessEqual(shown, self.processor_time(device["worker_pid"]) + 0.02)

    def test_no_counter_falls_whatever_ends_a_session(self):
        jobs = [self.job(kind, 2.5) for kind in ("work", "leaving", "failing", "work")]
        end = time.monotonic() + 1
        while time.monotonic() < end:
            self.look()
        victim = next(s["id"] for s in self.until(lambda: self.status()["sessions"], "a session"))
        subprocess.run([TENSORCTL, "--url", self.url, "kill", str(victim)], check=False, timeout=WAIT_S,
                       capture_output=True)
        for job in (jobs[1], jobs[3]):
            self.look()
            job.kill()
        self.look_while([jobs[0], jobs[2]])
        for job in (jobs[1], jobs[3]):
            job.communicate()

    def test_no_counter_falls_when_a_worker_is_lost(self):
        job = self.job("work", 20)
        device = self.until(lambda: (d := self.look())["ops_total"] > 100 and d, "some work")
        os.kill(device["worker_pid"], signal.SIGKILL)
        self.until(lambda: self.look()["epoch"] > device["epoch"] and self.ready(), "the next epoch")
        again = self.job("work", 0.5)
        self.look_while([again])
        self.end(again)
        job.kill()
        job.communicate()


if __name__ == "__main__":
    unittest.main()
