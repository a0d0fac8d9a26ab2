"""Named tensors, files of arrays, and kernels' arguments."""
import json
import os
import struct
import tempfile
import unittest

import tensord as td
from tensord import _core as core
from tensord import _safetensors

from session import serve_late


def setUpModule():
    global daemon
    daemon = td.serve()


def tearDownModule():
    daemon.close()


class Names(unittest.TestCase):
    def test_outlive_a_connection(self):
        with td.connect(daemon.url, default=False) as other:
            core.asarray([[1, 2]], device=other.device()).publish("weights")
        device = td.device()
        x = device.lookup("weights")
        self.assertEqual((x.tolist(), x.dtype), ([[1, 2]], core.int64))
        names = device.names()
        self.assertEqual([(each["name"], each["shape"], each["dtype"]) for each in names], [("weights", (1, 2), core.int64)])
        self.assertGreaterEqual(names[0]["nbytes"], 16)
        core.asarray([3.5]).publish("weights")
        self.assertEqual(device.lookup("weights").tolist(), [3.5])
        self.assertEqual(x.tolist(), [[1, 2]])
        device.unpublish("weights")
        for call in (lambda: device.lookup("weights"), lambda: device.unpublish("weights")):
            with self.assertRaises(td.UnknownNameError):
                call()
        self.assertEqual(device.names(), [])

    def test_are_moved_and_removed(self):
        device = td.device()
        for i in range(3):
            core.asarray(i).publish(f"part {i}")
        device.names_move("part 0", "first")
        device.names_move("part 1", new_name="second", owner=None, new_owner=None)
        with self.assertRaises(td.DuplicateNameError):
            device.names_move("first", "second")
        for call in (lambda: device.names_move("part 0", "third"), lambda: device.names_remove("part 0")):
            with self.assertRaises(td.UnknownNameError):
                call()
        everybody = device.names_all()
        self.assertEqual([each["name"] for each in everybody], ["first", "part 2", "second"])
        self.assertEqual(len({each["owner"] for each in everybody}), 1)
        self.assertFalse(any(each["orphan"] for each in everybody))
        device.names_remove("second", owner=everybody[0]["owner"])
        self.assertEqual([(each["name"], "owner" in each) for each in device.names()], [("first", False), ("part 2", False)])
        self.assertEqual(device.lookup("first").item(), 0)
        with self.assertRaises(TypeError):
            device.names_remove()
        device.names_remove(None)
        self.assertEqual(device.names_all(), [])

    def test_many_are_listed(self):
        device, x = td.device(), core.asarray(1)
        for i in range(40):
            x.publish(f"name {i:02}")
        self.assertEqual([each["name"] for each in device.names()], [f"name {i:02}" for i in range(40)])
        for i in range(40):
            device.unpublish(f"name {i:02}")

    def test_of_failed_arrays_are_not_made(self):
        with self.assertRaises(td.OutOfRangeError):
            core.take(core.asarray([1]), core.asarray([5]), 0).publish("failed")
        with self.assertRaises(td.InvalidArgumentError):
            core.asarray(1).publish("")


class Files(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = os.path.join(self.folder.name, "file.safetensors")

    def tearDown(self):
        self.folder.cleanup()

    def test_keep_every_dtype(self):
        arrays = {name: core.full((2, 3), 1, dtype=name) for name in core.dtypes}
        arrays["none"] = core.full((0, 4), 1.0)
        arrays["one"] = core.asarray(7)
        td.save_file(arrays, self.path, {"format": "td"})
        loaded = td.load_file(self.path)
        self.assertEqual(set(loaded), set(arrays))
        for name, x in arrays.items():
            self.assertEqual((loaded[name].dtype, loaded[name].shape, loaded[name].tolist()), (x.dtype, x.shape, x.tolist()), name)
        self.assertEqual(_safetensors.metadata(self.path), {"format": "td"})
        self.assertEqual(os.listdir(self.folder.name), ["file.safetensors"])

    def test_follow_the_format(self):
        td.save_file({"x": core.asarray([1.0, 2.0])}, self.path)
        with open(self.path, "rb") as file:
            length, = struct.unpack("<Q", file.read(8))
            self.assertEqual(json.loads(file.read(length)), {"x": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}})
            self.assertEqual((length % 8, struct.unpack("<2f", file.read())), (0, (1.0, 2.0)))

    def test_a_failure_leaves_the_old_one(self):
        td.save_file({"x": core.asarray([1.0])}, self.path)
        failed = core.take(core.asarray([1]), core.asarray([5]), 0)
        with self.assertRaises(td.OutOfRangeError):
            td.save_file({"y": failed}, self.path)
        self.assertEqual(list(td.load_file(self.path)), ["x"])
        self.assertEqual(os.listdir(self.folder.name), ["file.safetensors"])

    def test_what_the_format_does_not_have_is_not_written(self):
        x = core.asarray([1.0])
        for arrays, metadata, error in (({"__metadata__": x}, None, ValueError), ({1: x, "1": x}, None, TypeError), ({"x": 1.0}, None, TypeError),
                                        ({"x": x}, {"epoch": 3}, TypeError)):
            with self.assertRaisesRegex(error, "save_file"):
                td.save_file(arrays, self.path, metadata)
        self.assertFalse(os.listdir(self.folder.name))

    def test_wrong_ones_are_refused(self):
        def file(header, data=b"", length=None):
            text = header if isinstance(header, bytes) else json.dumps(header).encode()
            return struct.pack("<Q", len(text) if length is None else length) + text + data

        entry = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
        for content in (b"", b"1234", file({}, length=2 ** 60), file(b"{"), file([]), file({"x": entry}),
                        file({"x": {**entry, "shape": [3]}}, bytes(8)), file({"x": {**entry, "dtype": "F7"}}, bytes(8)),
                        file({"x": {**entry, "data_offsets": [-8, 0]}}, bytes(8)), file({"x": {"dtype": "F32"}}, bytes(8)),
                        file({"x": {**entry, "shape": [-2]}}, bytes(8)), file(b'{"x":' + b"[" * 100000)):
            with open(self.path, "wb") as out:
                out.write(content)
            with self.assertRaises(ValueError):
                td.load_file(self.path)
        with self.assertRaises(FileNotFoundError):
            td.load_file(self.path + "s")


class Kernels(unittest.TestCase):
    def test_are_for_other_devices(self):
        with self.assertRaises((td.UnsupportedError, td.DeniedError)):
            td.device().compile('extern "C" __global__ void f(float *x) {}', "f")

    def test_run(self):
        with serve_late() as own:
            device = own.connection.device()
            with self.assertRaises(td.InvalidArgumentError) as caught:
                device.compile("#error", "saxpy")
            self.assertIn("1 error detected", caught.exception.details)
            saxpy = device.compile("// a source", "saxpy")
            x, y = (core.asarray([1.0, 2.0, 3.0], device=device) * k for k in (1, 10))
            z = saxpy(1, 32, core.out("float32", (3,)), x, y, core.f32(2), core.i32(3))
            self.assertEqual((z + 0).tolist(), [12.0, 24.0, 36.0])
            z = saxpy((1, 1), (32,), core.update(x), x, y, core.f32(1), core.i32(2), shared=0)
            self.assertEqual(z.tolist(), [11.0, 22.0, 3.0])
            self.assertEqual(x.tolist(), [1.0, 2.0, 3.0])
            for call in (lambda: saxpy(1), lambda: saxpy(1, 32, 1.0), lambda: saxpy(1, 32, x, other=1)):
                with self.assertRaises(TypeError):
                    call()
            with self.assertRaises(ValueError):
                saxpy((1, 1, 1, 1), 32, x)
            with self.assertRaises(td.InvalidArgumentError):
                saxpy(1, 32, x)  # no output
            wrong = saxpy(1, 32, core.out("float32", (3,)), x)
            with self.assertRaises(td.InvalidArgumentError):
                wrong.wait()

    def test_arguments(self):
        for make, value in ((core.i32, 2 ** 31), (core.u32, -1), (core.i64, 2 ** 63), (core.u64, 2 ** 64)):
            with self.assertRaises(OverflowError):
                make(value)
        for make, value in ((core.i32, -2 ** 31), (core.u32, 2 ** 32 - 1), (core.u64, 2 ** 64 - 1), (core.f32, 0.5), (core.f64, 1)):
            make(value)
        core.out("float32", (2, 3))
        core.update(core.asarray(1))
        for call in (lambda: core.update(1), lambda: core.out("f32", 3), lambda: core.i32(1.5)):
            with self.assertRaises(TypeError):
                call()


if __name__ == "__main__":
    unittest.main()
