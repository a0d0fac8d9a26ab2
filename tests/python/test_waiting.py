"""Waiting: the GIL is free, Ctrl-C ends it, asyncio goes on, and a full send queue is waited for."""
import asyncio
import collections
import itertools
import math
import operator
import os
import signal
import threading
import unittest
from functools import partial

import tensord as td
from tensord import _core as core


def setUpModule():
    """A small queue is full soon; and the daemon may be silent for as long as it is stopped."""
    global daemon, connection
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell has it ignored in what it starts in the background
    daemon = td.serve(default=False)
    connection = td.connect(daemon.url, queue_bytes=64 << 10, heartbeat=math.inf)


def tearDownModule():
    connection.close()
    daemon.close()


def workers():
    """The processes of the daemon."""
    found = []
    for process in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{process}/environ", "rb") as file:
                if f"TENSORD_SERVE_FOLDER={daemon.folder}\0".encode() in file.read():
                    with open(f"/proc/{process}/comm", encoding="ascii") as name:
                        if name.read().startswith("tensord"):
                            found.append(int(process))
        except OSError:
            pass
    return found


class Stopped:
    """The daemon does nothing meanwhile, so a wait cannot end by itself."""

    def __enter__(self):
        self.processes = workers()
        assert len(self.processes) >= 2, "the daemon is a front and a worker"
        for each in self.processes:
            os.kill(each, signal.SIGSTOP)

    def __exit__(self, *unused):
        for each in self.processes:
            os.kill(each, signal.SIGCONT)


class ControlC(unittest.TestCase):
    """SIGINT comes from a thread, which can only run while a wait has given up the GIL: the main thread runs no bytecode meanwhile, only
    functions in C. Without bytecode nobody but the wait itself looks for signals, either."""

    def interrupted(self, *calls, times=1):
        """Each function in C is called so often, or endlessly, until SIGINT ends a wait in it."""
        for number, call in enumerate(calls):
            begun = threading.Lock()
            begun.acquire()

            def interrupt():
                begun.acquire()  # noqa: B023
                os.kill(os.getpid(), signal.SIGINT)

            thread = threading.Thread(target=interrupt)
            thread.start()
            arguments = itertools.repeat((), times) if times else itertools.repeat(())
            results = itertools.chain(itertools.starmap(begun.release, [()]), itertools.starmap(call, arguments))
            with self.subTest(number=number):
                try:
                    collections.deque(results, maxlen=0)
                    end = "it has ended by itself"
                except KeyboardInterrupt:
                    end = None
                except Exception as error:
                    end = repr(error)
                try:
                    thread.join()
                except KeyboardInterrupt:  # it has come after the calls
                    thread.join()
                self.assertIsNone(end)

    def test_ends_waits(self):
        x = core.full((300, 300), 2.0)
        x.wait()
        memory = bytearray(x.nbytes)
        with Stopped():
            self.interrupted(x.tolist, x.wait, x.device.sync, partial(float, core.sum(x)), partial(memoryview, x),
                             partial(x.fetch_into, memory), x.__dlpack__)
            with self.assertRaises(BufferError):
                memory.append(1)  # the interrupted fetch will still write there
        self.assertEqual(core.sum(x).item(), 180000.0)
        self.assertEqual(x.tolist()[0][:2], [2.0, 2.0])
        while True:  # a wait after the end of the fetch gives the memory back
            x.wait()
            try:
                memory.append(1)
                break
            except BufferError:
                pass

    def test_ends_uploads(self):
        x = core.full((4,), 2.0)
        x.wait()
        memory = bytearray(64 << 20)  # more than the socket takes
        with Stopped():
            self.interrupted(partial(core.asarray, memory), partial(core.asarray, memoryview(memory)[::2]))
            with self.assertRaises(BufferError):
                memory.append(1)  # the library still sends it
        self.assertEqual((x + x).tolist(), [4.0] * 4)
        while True:
            core.asarray(bytes(1 << 20)).wait()
            try:
                memory.append(1)
                break
            except BufferError:
                pass

    def test_ends_the_wait_for_room(self):
        """Each call is made until the queue has no room for it; it must wait then, where another failure would be raised."""
        x = core.full((4,), 2.0)
        x.wait()
        with Stopped():
            self.interrupted(partial(operator.add, x, x), times=None)
            self.interrupted(
                partial(operator.add, x, x), partial(operator.add, x, 0.125), partial(operator.neg, x), partial(core.exp, x),
                partial(core.sum, x), partial(core.concat, [x, x], axis=0), partial(core.split, x, [2, 2]), partial(core.asarray, x, copy=True),
                partial(core.asarray, x, dtype="f64"), partial(core.asarray, 1.0), partial(core.asarray, [1.0, 2.0]),
                partial(core.asarray, bytearray(64)), partial(core.full, (2,), 1), times=None)
        self.assertEqual((x + x).tolist(), [4.0] * 4)


class Room(unittest.TestCase):
    def test_is_waited_for(self):
        x = y = core.full((4,), 0)
        for _ in range(50000):  # more than the send queue holds
            y = y + 1
        self.assertEqual(y.tolist(), [50000] * 4)


    def test_arrays_may_take_other_values_meanwhile(self):
        """A call that waits for room computes with the value that its array has afterwards: the handle that it had before is gone."""
        for number, (function, last) in enumerate((
                (lambda x: partial(operator.neg, x), [-7.0, -7.0]),
                (lambda x: partial(operator.add, x, x), [14.0, 14.0]),
                (lambda x: partial(operator.mul, 3.0, x), [21.0, 21.0]),
                (lambda x: partial(core.sum, x), 14.0),
                (lambda x: partial(core.concat, [x, x], axis=0), [7.0] * 4),
                (lambda x: partial(core.asarray, x, copy=True), [7.0, 7.0]),
                (lambda x: partial(core.asarray, x, dtype="f64"), [7.0, 7.0]))):
            x, other = core.full((2,), 2.0), core.full((2,), 7.0)
            x.wait()
            other.wait()
            begun, results, arguments = threading.Lock(), collections.deque(maxlen=1), [()]
            begun.acquire()
            calls = itertools.chain(itertools.starmap(begun.release, [()]),
                                    itertools.starmap(function(x), iter(partial(arguments.__getitem__, 0), None)))
            thread = threading.Thread(target=results.extend, args=(calls,))
            with self.subTest(number=number):
                with Stopped():
                    thread.start()
                    begun.acquire()  # the thread has given up the GIL: it waits for room
                    x._exchange(other)
                    del other
                    arguments[0] = None  # its last call
                thread.join()
                self.assertEqual(results.pop().tolist(), last)


class Asyncio(unittest.TestCase):
    def test_other_tasks_run_meanwhile(self):
        async def both():
            x = core.full((8,), 3.0)
            with Stopped():
                waiting = asyncio.ensure_future(self.value(x))
                for _ in range(5):
                    await asyncio.sleep(0)
                self.assertFalse(waiting.done())
            return await asyncio.gather(waiting, self.value(x + 1))

        self.assertEqual(asyncio.run(both()), [[3.0] * 8, [4.0] * 8])

    @staticmethod
    async def value(x):
        return (await x).tolist()

    def test_failures_are_raised(self):
        async def fail():
            await core.take(core.asarray([1]), core.asarray([5]), 0)

        with self.assertRaises(td.OutOfRangeError):
            asyncio.run(fail())

    def test_a_task_can_be_cancelled(self):
        async def cancel():
            x = core.full((8,), 3.0)
            with Stopped():
                waiting = asyncio.ensure_future(self.value(x))
                await asyncio.sleep(0)
                waiting.cancel()
                with self.assertRaises(asyncio.CancelledError):
                    await waiting
            return x.tolist()

        self.assertEqual(asyncio.run(cancel()), [3.0] * 8)

    def test_test_does_not_wait(self):
        x = core.full((8,), 3.0)
        with Stopped():
            x = x + 1
            self.assertFalse(x.test())
        x.wait()
        while not x.test():
            x.wait()


if __name__ == "__main__":
    unittest.main()
