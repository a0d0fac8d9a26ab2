"""Programs in files and under names: the same bits as the function, whose arrays from elsewhere go with it."""

import os
import pathlib
import tempfile
import unittest

import tensord as td

from session import serve_late, setUpModule  # noqa: F401 - starts the daemon


class SavedPrograms(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, "model")
        self.w = td.reshape(td.arange(12, dtype=td.float32), (3, 4)) / 7
        self.x = td.asarray([[1.0, -1.0, 0.5]])

    def model(self, x, scale=1.0):
        return td.tanh(x @ self.w) * scale

    def test_loaded_program_has_the_bits_of_the_function(self):
        td.save_program(self.model, pathlib.Path(self.path), self.x, scale=3.0)
        expected = self.model(self.x, 3.0).tolist()
        self.w[...] = td.zeros((3, 4))
        program = td.load_program(self.path)
        self.assertEqual(program(self.x).tolist(), expected)
        self.assertEqual(program.parameters, [(td.float32, (1, 3))])
        self.assertEqual(program.results, [(td.float32, (1, 4))])
        self.assertEqual(program.device, self.x.device)
        td.save_program(program, self.path)
        self.assertEqual(td.load_program(self.path, "cpu:0")(self.x).tolist(), expected)

    def test_trees_become_their_arrays(self):
        function = td.function(lambda tree: {"sum": tree["a"] + tree["b"][0], "name": "n", "a": tree["a"]})
        td.save_program(function, self.path, {"a": self.x, "b": [self.x * 2]})
        sum_, a = td.load_program(self.path)(self.x, self.x)
        self.assertEqual((sum_.tolist(), a.tolist()), ([[2, -2, 1]], self.x.tolist()))

    def test_loaded_program_is_a_part_of_a_recorded_function(self):
        td.save_program(self.model, self.path, self.x)
        program = td.load_program(self.path)
        outer = td.function(td.value_and_grad(lambda x: td.sum(program(x * 2.0))))
        value, gradient = outer(self.x)
        own_value, own_gradient = td.value_and_grad(lambda x: td.sum(self.model(x * 2.0)))(self.x)
        self.assertEqual((value.item(), gradient.tolist()), (own_value.item(), own_gradient.tolist()))

    def test_backward_does_not_lose_gradients_in_a_loaded_program(self):
        td.save_program(self.model, self.path, self.x)
        program = td.load_program(self.path)
        x = self.x.detach().requires_grad_()
        result = program(x * 2.0)
        self.assertEqual(result.tolist(), self.model(self.x * 2.0).tolist())
        with self.assertRaisesRegex(RuntimeError, "do not go through a program"):
            (td.sum(result) + td.sum(x)).backward()
        with td.no_grad():
            self.assertFalse(program(x).requires_grad)
        self.assertFalse(program(x.detach()).requires_grad)

    def test_published_program_is_opened(self):
        td.publish_program(self.model, "model", self.x)
        self.assertEqual(td.open_program("model")(self.x).tolist(), self.model(self.x).tolist())
        names = {one["name"] for one in td.device().names()}
        self.assertLessEqual({"model", "model/captured/1"}, names)

    def test_kernels_go_with_the_program(self):
        with serve_late() as own:
            device = own.connection.device()
            x = td.asarray([1.0, 2.0, 3.0], device=device)
            source, saxpy = "// the source of it", device.compile("// the source of it", "saxpy")

            def twice(x):
                return saxpy(1, 32, td.out("float32", (3,)), x, x, td.f32(2), td.i32(3)) + 1

            td.save_program(twice, self.path, x)
            with self.assertRaises(td.UnsupportedError):
                td.publish_program(twice, "twice", x)
            saxpy = None  # releases the kernel
            program = td.load_program(self.path, device)
            self.assertEqual(program(x).tolist(), [4, 7, 10])
            td.save_program(program, self.path)
            self.assertEqual(td.load_program(self.path, device)(x).tolist(), [4, 7, 10])
            with open(self.path, "rb") as file:
                self.assertIn(source.encode(), file.read())
            with self.assertRaises((td.UnsupportedError, td.DeniedError)) as caught:
                td.load_program(self.path)  # a CPU device
            self.assertIn("kernel saxpy", str(caught.exception))

    def test_arguments_are_checked(self):
        td.save_program(self.model, self.path, self.x)
        program = td.load_program(self.path)
        for wrong in (), (self.x, self.x), (1.0,):
            with self.assertRaises(TypeError):
                program(*wrong)
        with self.assertRaises(TypeError):
            program(x=self.x)
        with self.assertRaises(td.InvalidArgumentError):
            program(self.w)
        with self.assertRaises(TypeError):
            td.save_program(program, self.path, self.x)
        with self.assertRaises(td.InvalidArgumentError):
            td.load_program(self.path + "/none")
        with self.assertRaises(td.UnknownNameError):
            td.open_program("none")
        with open(self.path, "r+b") as file:
            file.seek(8)
            file.write(b"\3")
        with self.assertRaises(td.VersionError):
            td.load_program(self.path)


if __name__ == "__main__":
    unittest.main()
