"""Devices and connections, streams, and arrays of several devices."""
import asyncio
import math
import os
import signal
import threading
import unittest

import tensord as td
from tensord import _core as core


def setUpModule():
    global daemon
    daemon = td.serve(devices="cpu:0,cpu:1")


def tearDownModule():
    daemon.close()


class Devices(unittest.TestCase):
    def test_are_listed(self):
        devices = td.devices()
        self.assertEqual([str(each) for each in devices], ["cpu:0", "cpu:1"])
        first = devices[0]
        self.assertEqual((first.name, first.kind, first.uuid), ("cpu:0", "cpu", ""))
        self.assertGreater(first.memory_total, 1 << 20)
        self.assertGreater(first.processors, 0)
        self.assertIn(first.state, ("ready", "starting"))
        self.assertEqual(repr(first), "tensord.device('cpu:0')")

    def test_are_one_object_each(self):
        self.assertIs(td.device("cpu:1"), td.device("cpu:1"))
        self.assertIs(td.device("cpu:1"), td.devices()[1])
        self.assertIs(td.device(td.device("cpu:1")), td.device("cpu:1"))
        self.assertIs(td.default_connection().device("cpu:1"), td.device("cpu:1"))
        self.assertEqual(len({td.device("cpu:0"), td.device("cpu:1"), td.device("cpu:0")}), 2)

    def test_unknown_ones_are_refused(self):
        with self.assertRaises(td.NoDeviceError) as caught:
            td.device("cuda:7")
        self.assertIsInstance(caught.exception, LookupError)
        with self.assertRaises(TypeError):
            td.device(7)

    def test_with_makes_one_current(self):
        self.assertEqual(str(td.device()), "cpu:0")
        with td.device("cpu:1") as inner:
            self.assertEqual(str(core.full((), 1).device), "cpu:1")
            with td.device("cpu:0"), inner:
                self.assertEqual(str(core.asarray([1]).device), "cpu:1")
            self.assertEqual(str(core.eye("f32", 2, 2).device), "cpu:1")
            self.assertEqual(str(core.asarray([1], device="cpu:0").device), "cpu:0")
        self.assertEqual(str(core.asarray([1]).device), "cpu:0")

    def test_with_is_of_the_thread_and_the_task(self):
        seen = []
        with td.device("cpu:1"):
            thread = threading.Thread(target=lambda: seen.append(str(td.device())))
            thread.start()
            thread.join()
        self.assertEqual(seen, ["cpu:0"])

        async def task(name):
            with td.device(name):
                await asyncio.sleep(0)
                return str(td.device())

        async def both():
            return await asyncio.gather(task("cpu:1"), task("cpu:0"))

        self.assertEqual(asyncio.run(both()), ["cpu:1", "cpu:0"])

    def test_links(self):
        td.device().sync()
        td.device().flush()
        self.assertEqual(td.device().link(), {"connected": True, "reconnects": 0, "frames_repeated": 0})


class SeveralDevices(unittest.TestCase):
    def test_do_not_mix(self):
        x, y = core.asarray([1.0]), core.asarray([1.0], device="cpu:1")
        for mix in (lambda: x + y, lambda: core.matmul(x, y), lambda: core.concat([x, y], 0)):
            with self.assertRaises(td.DeviceMismatchError) as caught:
                mix()
            self.assertIn("cpu:0", str(caught.exception))
            self.assertIn("cpu:1", str(caught.exception))

    def test_copy(self):
        x = core.asarray([1.0, 2.0])
        y = core.copy_to(x * 2, "cpu:1")
        self.assertEqual((str(y.device), y.tolist()), ("cpu:1", [2.0, 4.0]))
        self.assertEqual(str(core.asarray(x, device="cpu:1").device), "cpu:1")
        with td.connect(daemon.url, default=False) as other:
            z = core.copy_to(x, other.device("cpu:0"))
            self.assertIsNot(z.device, x.device)
            self.assertEqual(z.tolist(), [1.0, 2.0])
            with self.assertRaises(td.DeviceMismatchError):
                z + x

    def test_numbers_are_of_each_device(self):
        for name in ("cpu:0", "cpu:1", "cpu:0"):
            self.assertEqual((core.asarray([1.0], device=name) + 41).tolist(), [42.0])


class Streams(unittest.TestCase):
    def test_nest(self):
        device = td.device("cpu:0")
        first, second = device.stream(), device.stream(priority=1)
        with first:
            x = core.full((4,), 1.0)
            with second:
                y = x + 1
                with first:
                    y = y + 1
            z = x + y
        self.assertEqual((z + 0).tolist(), [4.0] * 4)
        first.close()
        with self.assertRaises(td.InvalidArgumentError):
            first.__enter__()


class LostDevices(unittest.TestCase):
    def test_are_opened_again(self):
        with td.serve(default=False, devices="cpu:0,cpu:1") as own:
            before = own.connection.device("cpu:1")
            x, other = core.full((2,), 1.0, device=before), core.full((2,), 1.0, device=own.connection.device("cpu:0"))
            (x + 1).wait()
            os.kill(self.worker(own, "cpu:1"), signal.SIGKILL)
            with self.assertRaises(td.DeviceLostError):
                (x + 1).wait()
            with self.assertRaises(td.DeviceLostError):
                x + 1
            self.assertEqual((other + 1).tolist(), [2.0, 2.0])
            while True:  # the daemon starts another worker
                try:
                    after = own.connection.device("cpu:1")
                    self.assertEqual((core.full((2,), 5.0, device=after) + 1).tolist(), [6.0, 6.0])
                    break
                except td.DeviceLostError:
                    pass
            self.assertIsNot(after, before)
            with self.assertRaises(td.DeviceLostError):
                x.tolist()
            del x, before

    @staticmethod
    def worker(own, name):
        """The process of a device."""
        for process in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{process}/environ", "rb") as environment, open(f"/proc/{process}/cmdline", "rb") as command:
                    words = command.read().split(b"\0")
                    if f"TENSORD_SERVE_FOLDER={own.folder}\0".encode() in environment.read() and words[1:3] == [b"worker", name.encode()]:
                        return int(process)
            except OSError:
                pass
        raise AssertionError(f"no worker of {name}")


class Connections(unittest.TestCase):
    def test_report_what_is_wrong(self):
        with self.assertRaises(td.ConnectionFailedError) as caught:
            td.connect(f"unix:{daemon.folder}/nobody", default=False)
        self.assertIsInstance(caught.exception, ConnectionError)
        with self.assertRaises(td.InvalidArgumentError):
            td.connect("http://nowhere", default=False)
        with self.assertRaises(ValueError):
            td.connect(daemon.url, timeout=-1)
        for wrong in ({"queue_bytes": -1}, {"reconnect": -1}, {"reconnect": math.inf}, {"heartbeat": 0}, {"heartbeat": 4e6}, {"heartbeat": math.nan}):
            with self.subTest(wrong=wrong), self.assertRaises(ValueError):
                td.connect(daemon.url, **wrong)
        with self.assertRaises(TypeError):
            td.connect(daemon.url, heartbeat="often")

    def test_give_a_silent_daemon_up_when_they_were_told_to(self):
        with td.serve(default=False) as own, td.connect(own.url, heartbeat=0.2, reconnect=0.1, default=False) as connection:
            worker = LostDevices.worker(own, "cpu:0")
            try:
                with self.assertRaisesRegex(td.DeviceLostError, "for 200 ms"):
                    x = core.full((), 1, device=connection.device("cpu:0"))
                    x.wait()
                    os.kill(worker, signal.SIGSTOP)
                    x.tolist()
            finally:
                os.kill(worker, signal.SIGCONT)

    def test_have_their_url(self):
        with td.connect(daemon.url, default=False) as connection:
            self.assertEqual(connection.url, daemon.url)
            self.assertFalse(connection.closed)
        self.assertTrue(connection.closed)

    def test_the_environment_names_the_default_one(self):
        before = td.default_connection()
        self.assertIs(before, td.default_connection())
        os.environ["TENSORD_URL"] = daemon.url
        try:
            with td.connect() as other:
                self.assertIs(td.default_connection(), other)
            self.assertIsNot(td.default_connection(), other)  # a closed one is replaced
            self.assertEqual(core.full((), 2).item(), 2)
        finally:
            del os.environ["TENSORD_URL"]


if __name__ == "__main__":
    unittest.main()
