"""Lives: of arrays, devices and connections, through threads, forks, other interpreters and the interpreter's end."""
import gc
import os
import subprocess
import sys
import textwrap
import threading
import unittest
import weakref

import tensord as td
from tensord import _core as core


def setUpModule():
    global daemon
    daemon = td.serve()


def tearDownModule():
    daemon.close()


def resident():
    """Bytes of this process in memory."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def run(code, **environment):
    """Runs a program of its own on the daemon."""
    return subprocess.run([sys.executable, "-B", "-c", textwrap.dedent(code)], env={**os.environ, "TENSORD_URL": daemon.url, **environment},
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True, timeout=120, check=False)


class Arrays(unittest.TestCase):
    def test_many_leave_no_memory_behind(self):
        count = int(os.environ.get("TENSORD_TEST_ARRAYS", "100000"))
        a, b = core.full((16,), 1.0), core.full((16,), 2.0)

        def rounds(n):
            for _ in range(n):
                c = a + b
                c = c * 2  # noqa: F841
                a.shape, a.dtype, a.device  # noqa: B018

        rounds(count // 10)
        a.device.sync()
        before = resident()
        rounds(count)
        a.device.sync()
        self.assertLess(resident() - before, 8 << 20)

    def test_fetches_and_failures_leave_no_memory_behind(self):
        def rounds(n):
            for _ in range(n):
                x = core.asarray([1.0, 2.0, 3.0])
                memoryview(x).release()
                x.tolist(), x.__dlpack__(), float(core.sum(x))
                with self.assertRaises(td.ShapeError):
                    x + core.full((2,), 1.0)
                with self.assertRaises(TypeError):
                    core.sum(x, axes="wrong")
                with self.assertRaises(TypeError):
                    core.asarray([1, "wrong"])

        rounds(200)
        before = resident()
        rounds(2000)
        self.assertLess(resident() - before, 4 << 20)

    def test_weak_references(self):
        x = core.asarray(1)
        seen = weakref.ref(x)
        self.assertIs(seen(), x)
        del x
        self.assertIsNone(seen())

    def test_in_a_cycle_are_collected(self):
        class Holder:
            pass

        holder = Holder()
        holder.x, holder.me = core.asarray(1), holder
        seen = weakref.ref(holder.x)
        del holder
        gc.collect()
        self.assertIsNone(seen())


class Connections(unittest.TestCase):
    def test_live_as_long_as_their_arrays(self):
        x = core.full((2,), 3.0, device=td.connect(daemon.url, default=False).device())
        gc.collect()
        self.assertEqual((x + x).tolist(), [6.0, 6.0])

    def test_are_collected_with_their_devices(self):
        connection = td.connect(daemon.url, default=False)
        before = sum(type(each) is core.Connection for each in gc.get_objects())
        connection.device().sync()
        del connection
        gc.collect()
        self.assertEqual(sum(type(each) is core.Connection for each in gc.get_objects()), before - 1)

    def test_closed_ones_say_so(self):
        connection = td.connect(daemon.url, default=False)
        device = connection.device()
        x = core.full((2,), 3.0, device=device)
        connection.close()
        self.assertTrue(connection.closed)
        for use in (lambda: x + x, lambda: x.tolist(), lambda: x.shape, lambda: core.sum(x), lambda: x * 2, lambda: -x, lambda: x.wait(),
                    device.sync, lambda: device.stream(), connection.devices, lambda: core.full((), 1, device=device)):
            with self.assertRaisesRegex(td.Error, "closed"):
                use()
        self.assertIn("its connection was closed", repr(x))
        connection.close()


class Threads(unittest.TestCase):
    def test_share_arrays(self):
        x = core.full((4,), 1.0)
        failures = []

        def work(number):
            try:
                y = x
                for i in range(300):
                    y = y + number
                    if i % 100 == 0:
                        y.wait()
                expected = [1.0 + 300.0 * number] * 4
                if y.tolist() != expected:
                    failures.append((number, y.tolist()))
            except Exception as error:  # pylint: disable=broad-except
                failures.append(error)

        threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        self.assertEqual(failures, [])

    def test_a_connection_that_waits_is_not_closed(self):
        connection = td.connect(daemon.url, default=False)
        x = core.full((700, 700), 1.0, device=connection.device())
        y = x
        for _ in range(120):
            y = y @ x * 0.001
        waits = threading.Thread(target=y.wait)
        waits.start()
        try:
            while waits.is_alive():
                if not y.test():
                    with self.assertRaises(RuntimeError):
                        if waits.is_alive():
                            connection.close()
                        raise RuntimeError("it had ended")
                    break
        finally:
            waits.join()
        connection.close()


class Processes(unittest.TestCase):
    def test_a_child_is_told_to_connect_again(self):
        done = run("""
            import os, sys
            import tensord as td
            from tensord import _core as core
            x = core.full((2,), 1.0)
            x.wait()
            child = os.fork()
            if not child:
                try:
                    x + x
                except td.Error as error:
                    said = "forked" in str(error)
                y = core.full((2,), 5.0)  # over a connection of its own
                ok = said and y.tolist() == [5.0, 5.0]
                del x, y
                sys.stdout.flush()
                os._exit(0 if ok else 1)
            _, status = os.waitpid(child, 0)
            print(status, (x + x).tolist())
            """)
        self.assertEqual((done.stdout, done.returncode), ("0 [2.0, 2.0]\n", 0), done.stderr)

    def test_a_child_uses_the_daemon_of_its_parent_and_leaves_it(self):
        done = run("""
            import os, sys
            import tensord as td
            with td.serve() as daemon:
                td.ones(2).wait()
                child = os.fork()
                if not child:
                    print((td.ones(2) * 3).tolist(), td.default_connection().url == daemon.url, flush=True)
                    sys.exit()  # with all that Python does at its end
                _, status = os.waitpid(child, 0)
                other = td.connect(daemon.url, default=False)
                print(status, td.ones(2, device=other.device()).tolist())
            """)
        self.assertEqual((done.stdout, done.returncode), ("[3.0, 3.0] True\n0 [1.0, 1.0]\n", 0), done.stderr)

    def test_end_with_work_in_flight(self):
        done = run("""
            import threading
            from tensord import _core as core
            x = core.full((600, 600), 1.0)
            kept = [x]
            for _ in range(100):
                kept.append(kept[-1] @ x * 0.001)
            threading.Thread(target=kept[-1].wait, daemon=True).start()
            print("end")
            """)
        self.assertEqual((done.stdout, done.returncode), ("end\n", 0), done.stderr)

    def test_end_with_a_daemon_of_their_own(self):
        done = run("""
            import tensord as td
            from tensord import _core as core
            daemon = td.serve()
            x = core.full((600, 600), 1.0)
            for _ in range(50):
                x = x @ x * 0.001
            print(daemon.folder)
            """)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertFalse(os.path.exists(done.stdout.strip()))

    def test_subinterpreters_are_refused(self):
        done = run("""
            try:
                import _interpreters as interpreters
            except ImportError:
                try:
                    import _xxsubinterpreters as interpreters
                except ImportError:
                    raise SystemExit("skip")
            import tensord
            code = '''
            try:
                import tensord
            except ImportError as error:
                assert "interpreter" in str(error), error
            else:
                raise SystemExit("it was imported")
            '''
            import textwrap
            failure = interpreters.run_string(interpreters.create(), textwrap.dedent(code))
            assert not failure, failure
            print("refused")
            """)
        if "skip" in done.stderr:
            self.skipTest("this Python has no subinterpreters")
        self.assertEqual((done.stdout, done.returncode), ("refused\n", 0), done.stderr)


if __name__ == "__main__":
    unittest.main()
