"""Recorded functions, and loops in the daemon: the bits of the same operations one by one, and clear errors for what cannot be recorded."""

import threading
import unittest

import tensord as td

from session import setUpModule  # noqa: F401 - starts the daemon


def chain(x, y):
    return td.tanh(x * 2.0 + y) - td.exp(y / 3.0), td.sum(x, axis=0)


class Functions(unittest.TestCase):
    def setUp(self):
        self.calls = 0
        self.x = td.reshape(td.arange(12, dtype=td.float32), (3, 4)) / 7
        self.y = td.asarray([1.0, -1.0, 0.5, 2.0])

    def counted(self, function):
        def recorded(*args, **kwargs):
            self.calls += 1
            return function(*args, **kwargs)

        return td.function(recorded)

    def test_results_are_those_of_the_operations_one_by_one(self):
        recorded = self.counted(chain)
        for scale in 1.0, 2.0, 3.0:
            for mine, own in zip(recorded(self.x * scale, self.y), chain(self.x * scale, self.y)):
                self.assertEqual(mine.tolist(), own.tolist())
        self.assertEqual(self.calls, 1)

    def test_numbers_after_a_recording_are_not_those_of_the_program(self):
        """A number that came first inside of a recording, and then outside."""
        td.function(lambda x: x * 12345.5)(self.y)
        self.assertEqual((self.y * 12345.5).tolist()[0], 12345.5)

    def test_each_kind_of_arguments_is_recorded_by_itself(self):
        recorded = self.counted(lambda x, power=1: x**power)
        for args in (self.x,), (self.y,), (self.y, 2), (self.y, 2.0), (td.astype(self.y, td.float64),):
            for _ in range(2):
                recorded(*args)
        self.assertEqual(self.calls, 5)
        recorded.clear()
        recorded(self.x)
        self.assertEqual(self.calls, 6)

    def test_trees(self):
        recorded = td.function(lambda model, x: {"y": x @ model["w"] + model["b"][0], "name": "linear", "none": None, "x": x})
        model = {"w": td.ones((4, 2)), "b": [td.asarray([1.0, 2.0])]}
        result = recorded(model, self.x)
        self.assertEqual(list(result), ["y", "name", "none", "x"])
        self.assertEqual(result["y"].tolist(), (self.x @ model["w"] + model["b"][0]).tolist())
        self.assertEqual((result["name"], result["none"], result["x"].tolist()), ("linear", None, self.x.tolist()))

    def test_captured_arrays_stay_as_they_were(self):
        captured = td.asarray([1.0, 1.0, 1.0, 1.0])
        recorded = td.function(lambda x: (x + captured, captured))
        recorded(self.y)
        captured[0] = 100.0
        sum_, same = recorded(self.y)
        self.assertEqual((sum_.tolist(), same.tolist()), ([2, 0, 1.5, 3], [1, 1, 1, 1]))

    def test_a_recorded_function_within_another_is_a_part_of_it(self):
        inner = self.counted(lambda x: x + 1)
        outer = self.counted(lambda x: inner(inner(x)))
        outer(self.y)
        self.assertEqual(outer(self.y).tolist(), [3, 1, 2.5, 4])
        self.assertEqual(self.calls, 3)

    def test_gradients_inside(self):
        recorded = td.function(td.value_and_grad(lambda x: td.sum(x * x * x)))
        value, gradient = recorded(self.y)
        self.assertEqual((value.item(), gradient.tolist()), (8.125, [3, 3, 0.75, 12]))

    def test_what_cannot_be_recorded_says_so_and_leaves_nothing_open(self):
        for wrong in (
            lambda x: float(td.sum(x)) * x,
            lambda x: x if td.sum(x) > 0 else -x,
            lambda x: x + td.asarray([1.0, 2.0, 3.0, 4.0]),
            lambda x: x.tolist() and x,
        ):
            with self.assertRaises(td.InvalidArgumentError):
                td.function(wrong)(self.y)
            self.assertEqual((self.y + 1).tolist(), [2, 0, 1.5, 3])
        with self.assertRaisesRegex(TypeError, "returns no array"):
            td.function(lambda x: None)(self.y)
        with self.assertRaisesRegex(TypeError, "argument is a set"):
            td.function(lambda x: x)({1})
        with self.assertRaises(ZeroDivisionError):
            td.function(lambda x: 1 / 0)(self.y)
        self.assertEqual(td.function(lambda x: x + 1)(self.y).tolist(), [2, 0, 1.5, 3])

    def test_a_handle_of_a_recording_has_no_value_later(self):
        kept = []
        td.function(lambda x: kept.append(x) or x + 1)(self.y)
        with self.assertRaises(td.InvalidArgumentError):
            kept[0].tolist()
        with self.assertRaises(td.InvalidArgumentError):
            kept[0] + 1

    def test_a_failure_inside_names_the_operation(self):
        recorded = td.function(lambda x, i: td.take(x, i))
        self.assertEqual(recorded(self.y, td.asarray([3])).tolist(), [2])
        with self.assertRaisesRegex(IndexError, "take"):
            recorded(self.y, td.asarray([4])).tolist()
        self.assertEqual(recorded(self.y, td.asarray([0])).tolist(), [1])

    def test_threads(self):
        results = []

        def work(n):
            recorded = td.function(lambda x: x * n + n)
            results.append(all(recorded(self.y).tolist() == (self.y * n + n).tolist() for _ in range(20)))

        threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(results, [True] * 4)


class Loops(unittest.TestCase):
    def test_the_bits_of_the_iterations_one_by_one(self):
        def step(carry, x):
            total, scale = carry
            total = td.tanh(total * scale + x)
            return (total, scale * 0.5), {"sum": td.sum(total), "x": x}

        init, xs = (td.asarray([0.5, 1.0]), td.asarray(2.0)), td.reshape(td.arange(10, dtype=td.float32), (5, 2))
        carry, ys = td.scan(step, init, xs)
        mine, sums = init, []
        for i in range(5):
            mine, y = step(mine, xs[i])
            sums.append(y["sum"].item())
        self.assertEqual([one.tolist() for one in carry], [one.tolist() for one in mine])
        self.assertEqual((ys["sum"].tolist(), ys["x"].tolist()), (sums, xs.tolist()))

    def test_a_length_without_arrays_and_a_recorded_body(self):
        calls = []
        double = td.function(lambda carry, x: (calls.append(1) or carry * 2, None))
        for length in 1, 2, 10:
            carry, nothing = td.scan(double, td.asarray(1.0), length=length)
            self.assertEqual((carry.item(), nothing), (2.0**length, None))
        self.assertEqual(len(calls), 1)

    def test_an_iteration_that_fails_is_named(self):
        x = td.asarray([1.0, 2.0])
        _, ys = td.scan(lambda carry, i: (carry, td.take(x, i)), td.asarray(0.0), td.asarray([[0], [1], [2], [0]]))
        with self.assertRaisesRegex(IndexError, "iteration 3"):
            ys.tolist()

    def test_an_epoch_trains(self):
        w = td.asarray([0.0, 0.0, 0.0])
        x = td.random.normal((20, 16, 3), key=1) if hasattr(td.random, "key") else td.reshape(td.sin(td.arange(960, dtype=td.float32)), (20, 16, 3))
        y = x @ td.asarray([1.0, -2.0, 3.0])

        def step(w, batch):
            loss, slope = td.value_and_grad(lambda w: td.mean((batch[0] @ w - batch[1]) ** 2))(w)
            return w - 0.1 * slope, loss

        w, losses = td.scan(step, w, (x, y))
        losses = losses.tolist()
        self.assertEqual(len(losses), 20)
        self.assertLess(losses[-1], losses[0] / 4)

    def test_errors(self):
        x = td.asarray([1.0, 2.0])
        for message, call in {
            "pair": lambda: td.scan(lambda c, i: c, x, length=2),
            "another structure": lambda: td.scan(lambda c, i: ((c, c), None), x, length=2),
            "where init has": lambda: td.scan(lambda c, i: (td.sum(c), None), x, length=2),
            "neither init nor xs": lambda: td.scan(lambda c, i: (c, None), None, length=2),
            "inside|loop": lambda: td.function(lambda x: td.scan(lambda c, i: (c, None), x, length=2))(x),
        }.items():
            with self.assertRaisesRegex(TypeError, message):
                call()
        for call in (lambda: td.scan(lambda c, i: (c, None), x), lambda: td.scan(lambda c, i: (c, None), x, x, length=3), lambda: td.scan(lambda c, i: (c, None), x, length=0)):
            with self.assertRaises(ValueError):
                call()
        self.assertEqual((x + 1).tolist(), [2, 3])


if __name__ == "__main__":
    unittest.main()
