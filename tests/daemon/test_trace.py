#!/usr/bin/python3
"""tensorctl trace: the file that it writes, of jobs that are known, on a device whose launches have run when they return
and on one that runs later: TRACE_LATER, the late one by default (tests/stand_ins/late.h)."""
import collections
import datetime
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

LATER = os.environ.get("TRACE_LATER", "late:0")
SLOW = float(os.environ.get("TENSORD_TEST_SLOW", "1"))
WAIT_S = 30 * SLOW
TENSORD, TENSORCTL, JOB = (os.environ[name] for name in ("TENSORD_EXE", "TENSORCTL_EXE", "TRACE_JOB_EXE"))


class TraceTest(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.mkdtemp(prefix="tensord-trace.")
        self.addCleanup(shutil.rmtree, self.directory)
        self.url = "unix:" + os.path.join(self.directory, "s")
        self.file = os.path.join(self.directory, "trace.json")
        with open(os.path.join(self.directory, "log"), "wb") as log:
            self.daemon = subprocess.Popen([TENSORD, "--listen", self.url, "--listen", "tcp://127.0.0.1:0", "--devices",
                                            "cpu:0," + LATER], stderr=log)
        self.addCleanup(self.stop)
        self.until(lambda: self.run_ctl("devices", "--json").returncode == 0 and
                   all(d["state"] == "ready" for d in self.status()["devices"]), "the daemon is not ready")

    def stop(self):
        self.daemon.terminate()
        self.assertEqual(self.daemon.wait(WAIT_S), 0)

    def until(self, holds, what):
        end = time.monotonic() + WAIT_S
        while not holds():
            self.assertLess(time.monotonic(), end, what)

    def run_ctl(self, *arguments, url=None):
        return subprocess.run([TENSORCTL, "--url", url or self.url, *arguments], capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, timeout=WAIT_S)

    def status(self):
        return json.loads(self.run_ctl("status", "--json").stdout)

    def job(self, device, url=None):
        job = subprocess.Popen([JOB, url or self.url, device], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.addCleanup(lambda: job.poll() is None and job.communicate(timeout=WAIT_S))
        self.assertEqual(job.stdout.readline(), "ready\n")
        return job

    def trace(self, *arguments, seconds="0.5"):
        done = self.run_ctl("trace", "--seconds", str(float(seconds) * SLOW), "-o", self.file, *arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(self.file, encoding="utf-8") as file:
            return json.load(file)["traceEvents"]

    def start_trace(self, seconds, url):
        tracing = subprocess.Popen([TENSORCTL, "--url", url, "trace", "--seconds", seconds, "-o", self.file, "cpu:0"],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(tracing.stderr.close)
        self.addCleanup(tracing.stdout.close)
        self.addCleanup(lambda: tracing.poll() is None and (tracing.kill(), tracing.wait(WAIT_S)))
        return tracing

    @staticmethod
    def nanoseconds(event):
        return round(event["ts"] * 1000), round((event["ts"] + event["dur"]) * 1000)

    def slices(self, events):
        found = [e for e in events if e["ph"] == "X" and e["cat"] != "enqueue"]
        for e in found:
            self.assertEqual(set(e["args"]) - {"output", "inputs"}, {"label", "session", "sequence", "bytes", "queued_us"})
            self.assertGreaterEqual(e["dur"], 0)
            self.assertGreaterEqual(e["args"]["queued_us"], 0)
        return found

    def check_arrows(self, events):
        """To each slice one arrow leads, from a slice that was enqueued as long before as it says, on the track beside it."""
        runs, enqueued = ({(e["pid"], e["tid"], round(e["ts"] * 1000)): e for e in found} for found in
                          (self.slices(events), [e for e in events if e.get("cat") == "enqueue"]))
        names = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
        begins, ends = ({e["id"]: e for e in events if e["ph"] == phase} for phase in "sf")
        self.assertEqual(len(ends), len([e for e in events if e["ph"] == "f"]))
        self.assertEqual(len(begins), len([e for e in events if e["ph"] == "s"]))
        self.assertEqual(set(begins), set(ends))
        self.assertEqual(len(ends), len(self.slices(events)))
        self.assertTrue(ends)
        for number, end in ends.items():
            begin = begins[number]
            self.assertEqual((end["bp"], end["cat"], end["name"]), ("e", begin["cat"], begin["name"]))
            run = runs[end["pid"], end["tid"], round(end["ts"] * 1000)]
            self.assertIn((begin["pid"], begin["tid"], round(begin["ts"] * 1000)), enqueued)
            self.assertEqual((end["pid"], names[end["pid"], end["tid"]].replace(":", ", enqueued:", 1)),
                             (begin["pid"], names[begin["pid"], begin["tid"]]))
            self.assertAlmostEqual(end["ts"] - begin["ts"], run["args"]["queued_us"], delta=0.01)

    def check_tracks(self, events):
        """What is on one track does not overlap, and each track has a name."""
        tracks = collections.defaultdict(list)
        for e in self.slices(events):
            tracks[e["pid"], e["tid"]].append(self.nanoseconds(e))
        names = {(e["pid"], e["tid"]): e["args"]["name"] for e in events
                 if e["name"] == "thread_name" and ", enqueued" not in e["args"]["name"]}
        self.assertEqual(set(names), set(tracks))
        for track, spans in tracks.items():
            spans.sort()
            for (_, end), (begin, _) in zip(spans, spans[1:]):
                self.assertLessEqual(end, begin + 1, names[track])  # Python's floats round
        return names

    def check_rounds(self, events, pid):
        """Rounds are there without a gap, each operation once, and those that need another one after it."""
        rounds = collections.defaultdict(dict)
        for e in self.slices(events):
            kind, _, number = e["args"]["label"].partition("-")
            if e["pid"] != pid or kind not in ("full", "exp", "add"):
                continue
            self.assertNotIn(kind, rounds[int(number)], f"{e['args']['label']} is there twice")
            if kind != "full":
                self.assertEqual(e["name"], kind)
            rounds[int(number)][kind] = e
        numbers = sorted(rounds)
        self.assertGreater(len(numbers), 2)
        self.assertEqual(numbers, list(range(numbers[0], numbers[-1] + 1)))
        for number in numbers[1:-1]:  # the first and the last are cut
            full, exp, add = (rounds[number][kind] for kind in ("full", "exp", "add"))
            self.assertLessEqual(self.nanoseconds(full)[1], self.nanoseconds(exp)[0] + 1)
            self.assertLessEqual(self.nanoseconds(exp)[1], self.nanoseconds(add)[0] + 1)
            self.assertLess(full["args"]["sequence"], exp["args"]["sequence"])
            self.assertLess(exp["args"]["sequence"], add["args"]["sequence"])
            self.assertEqual(full["tid"], exp["tid"])
            self.assertNotEqual(exp["tid"], add["tid"])
            self.assertEqual(exp["args"]["bytes"], 2 * 4 << 15)
            self.assertEqual((exp["args"]["output"], exp["args"]["inputs"]), ("f32 (32768,)", "f32 (32768,)"))
        return rounds

    def check_device(self, device):
        job = self.job(device)
        self.until(lambda: self.status()["sessions"], "the job's session is not shown")
        session, user = (self.status()["sessions"][0][key] for key in ("id", "principal"))
        events = self.trace(device)
        out, _ = job.communicate(timeout=WAIT_S)
        processes = {e["args"]["name"]: e["pid"] for e in events if e["name"] == "process_name"}
        self.assertEqual(list(processes), [device])
        names = self.check_tracks(events)
        rounds = self.check_rounds(events, processes[device])
        self.assertLess(max(rounds), int(out))
        self.check_arrows(events)
        self.assertEqual({e["args"]["session"] for e in self.slices(events)}, {session})
        tracks = {names[e["pid"], e["tid"]] for e in self.slices(events)}
        of = f": {os.path.basename(JOB)} ({user})"
        self.assertLessEqual({f"session {session} stream 0{of}", f"session {session} stream 1{of}"}, tracks)
        counters = {e["name"] for e in events if e["ph"] == "C"}
        self.assertEqual(counters, {"memory live", "queue depth"})
        return tracks, session

    def test_device_whose_launches_have_run_when_they_return(self):
        self.check_device("cpu:0")

    def test_device_that_runs_later_has_its_copies_on_tracks_of_their_own(self):
        tracks, session = self.check_device(LATER)
        self.assertIn(f"session {session} fetches", {name.partition(":")[0] for name in tracks})

    def test_one_session_alone_and_when_it_was(self):
        jobs = [self.job("cpu:0"), self.job("cpu:0")]
        self.until(lambda: len(self.status()["sessions"]) == 2, "no sessions")
        session = self.status()["sessions"][0]["id"]
        before = time.time()
        events = self.trace("--session", str(session), "cpu:0")
        self.assertEqual({e["args"]["session"] for e in self.slices(events)}, {session})
        with open(self.file, encoding="utf-8") as file:
            other = json.load(file)["otherData"]
        started = datetime.datetime.fromisoformat(other["started"].replace("Z", "+00:00")).timestamp()
        self.assertTrue(before - 1 <= started <= time.time(), other)
        self.assertGreater(min(e["ts"] for e in self.slices(events)), other["started_ts"] - 1e6)
        done = self.run_ctl("trace", "--seconds", "0.1", "-o", self.file, "--session", str(session), LATER)
        self.assertEqual(done.returncode, 1)
        self.assertIn(f"session {session} is on cpu:0", done.stderr)
        self.assertEqual([j.poll() for j in jobs], [None, None])

    def test_all_devices_at_once_by_one_clock(self):
        jobs = [self.job("cpu:0"), self.job(LATER)]
        events = self.trace()
        processes = {e["args"]["name"]: e["pid"] for e in events if e["name"] == "process_name"}
        self.assertEqual(set(processes), {"cpu:0", LATER})
        self.check_tracks(events)
        spans = []
        for pid in processes.values():
            self.check_rounds(events, pid)
            spans.append([f(self.nanoseconds(e)[0] for e in self.slices(events) if e["pid"] == pid) for f in (min, max)])
        self.assertLess(max(s[0] for s in spans), min(s[1] for s in spans), "the devices' times have nothing in common")
        del jobs

    def test_file_that_is_called_minus_is_standard_output(self):
        job = self.job("cpu:0")
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([TENSORCTL, "--url", self.url, "trace", "--seconds", "1", "-o", "-", "cpu:0"], capture_output=True, text=True,
                                  stdin=subprocess.DEVNULL, timeout=WAIT_S, cwd=folder)
            self.assertEqual(os.listdir(folder), [])
        self.assertEqual(done.returncode, 0, done.stderr)
        self.check_tracks(json.loads(done.stdout)["traceEvents"])
        self.assertRegex(done.stderr, r"\d+ events of 1 device")
        self.assertIsNone(job.poll())

    def test_idle_device_has_an_empty_trace(self):
        events = self.trace("cpu:0", seconds="0.2")
        self.assertEqual(self.slices(events), [])
        self.assertTrue([e for e in events if e["ph"] == "C"])

    def test_one_trace_after_another(self):
        self.job(LATER)
        for _ in range(3):
            events = self.trace(LATER)
            self.check_tracks(events)
            self.check_rounds(events, next(e["pid"] for e in events))

    def test_interrupt_ends_the_file_well(self):
        self.job("cpu:0")
        tracing = subprocess.Popen([TENSORCTL, "--url", self.url, "trace", "--seconds", "1000", "-o", self.file],
                                   stdout=subprocess.PIPE, text=True)
        self.until(lambda: os.path.exists(self.file) and os.path.getsize(self.file) > 10000, "nothing is written")
        tracing.send_signal(signal.SIGINT)
        out, _ = tracing.communicate(timeout=WAIT_S)
        self.assertEqual(tracing.returncode, 0)
        self.assertIn("events of 2 devices", out)
        with open(self.file, encoding="utf-8") as file:
            events = json.load(file)["traceEvents"]
        self.check_tracks(events)
        # Nobody traces any more.
        self.until(lambda: not [s for s in self.status()["sessions"] if s["client"].startswith("tensorctl")],
                   "the session is still there")
        self.trace("cpu:0", seconds="0.1")

    def test_reader_that_does_not_read_loses_events_and_nothing_else(self):
        job = self.job("cpu:0")
        tracing = subprocess.Popen([TENSORCTL, "--url", self.url, "trace", "--seconds", "1000", "-o", self.file],
                                   stdout=subprocess.DEVNULL)
        self.until(lambda: os.path.exists(self.file) and os.path.getsize(self.file) > 10000, "nothing is written")
        tracing.send_signal(signal.SIGSTOP)
        done = self.run_ctl("trace", "--seconds", "0.1", "-o", self.file + "2", "cpu:0")
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, r"cpu:0 is being traced for session \d+")
        self.assertIsNone(job.poll())
        tracing.kill()
        tracing.wait()
        self.until(lambda: self.run_ctl("trace", "--seconds", "0.1", "-o", self.file, "cpu:0").returncode == 0,
                   "a dead reader still traces")

    def test_reader_that_does_not_read_has_the_device_for_its_time_alone(self):
        self.job("cpu:0")
        tracing = self.start_trace("3", self.url)
        self.until(lambda: os.path.exists(self.file) and os.path.getsize(self.file) > 10000, "nothing is written")
        tracing.send_signal(signal.SIGSTOP)
        self.until(lambda: self.run_ctl("trace", "--seconds", "0.1", "-o", "-", "cpu:0").returncode == 0,
                   "it still traces")
        tracing.send_signal(signal.SIGCONT)
        said = tracing.communicate(timeout=WAIT_S)
        self.assertTrue(tracing.returncode == 0 or "was not read in time" in said[1], said)

    def test_device_that_is_lost_is_told(self):
        tracing = subprocess.Popen([TENSORCTL, "--url", self.url, "trace", "--seconds", "1000", "-o", self.file,
                                    LATER], stderr=subprocess.PIPE, text=True)
        self.until(lambda: [s for s in self.status()["sessions"] if s["client"].startswith("tensorctl")], "no session")
        worker = next(d["worker_pid"] for d in self.status()["devices"] if d["name"] == LATER)
        os.kill(worker, signal.SIGKILL)
        _, err = tracing.communicate(timeout=WAIT_S)
        self.assertEqual(tracing.returncode, 1)
        self.assertIn(LATER + ": the daemon closed the connection", err)
        with open(self.file, encoding="utf-8") as file:
            json.load(file)

    def test_wrong_use_is_told(self):
        for arguments, words in ((["cpu:7"], "no device \"cpu:7\""), (["--session", "999999"], "there is no session 999999"),
                                 (["--seconds", "0"], "--seconds"),
                                 (["-o", "/nonexistent/file"], "/nonexistent/file"), (["--batch"], "--batch")):
            done = self.run_ctl("trace", "--seconds", "0.1", "-o", self.file, *arguments)
            self.assertIn(done.returncode, (1, 2), arguments)
            self.assertIn(words, done.stderr)

    def tcp(self):
        with open(os.path.join(self.directory, "log"), encoding="utf-8") as log:
            return next(w for w in log.read().split() if w.startswith("url=tcp://"))[len("url="):]

    def test_who_is_no_admin_sees_their_own_sessions_alone(self):
        """Over TCP, without a file of users, all are one principal, and not the one of the socket."""
        self.job("cpu:0")
        self.job("cpu:0", self.tcp())
        by_principal = collections.defaultdict(set)
        self.until(lambda: len(self.status()["sessions"]) >= 2, "no sessions")
        for session in self.status()["sessions"]:
            by_principal[session["peer"] == "unix"].add(session["id"])
        tracing = self.start_trace("1", self.tcp())
        said = tracing.communicate(timeout=WAIT_S)
        self.assertEqual(tracing.returncode, 0, said)
        with open(self.file, encoding="utf-8") as file:
            found = {e["args"]["session"] for e in self.slices(json.load(file)["traceEvents"])}
        self.assertTrue(found)
        self.assertLessEqual(found, by_principal[False])
        done = self.run_ctl("trace", "--seconds", "61", "-o", self.file, "cpu:0", url=self.tcp())
        self.assertEqual(done.returncode, 1)
        self.assertIn("60000 ms", done.stderr)

    def test_an_admins_trace_ends_a_users(self):
        tracing = self.start_trace("60", self.tcp())
        self.until(lambda: [s for s in self.status()["sessions"] if s["client"].startswith("tensorctl trace")], "no session")
        self.until(lambda: tracing.poll() is not None or
                   self.run_ctl("trace", "--seconds", "0.05", "-o", "-", "cpu:0").returncode == 0 and
                   tracing.wait(WAIT_S) is not None, "the user's trace goes on")
        self.assertEqual(tracing.returncode, 1)
        self.assertIn("an admin began one", tracing.stderr.read())


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
