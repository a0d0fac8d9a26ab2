"""Steps of optimisers: lists of arrays that take new values, in the memory that they have."""

import math
import unittest

import tensord as td

from session import setUpModule  # noqa: F401 - starts the daemon

PARAMETERS = ([1.0, -2.0], [[0.5], [4.0]])
GRADIENTS = ([0.5, 0.25], [[-1.0], [2.0]])


def lists(*given):
    return [td.asarray(each, dtype=td.float64) for each in given]


def flat(arrays):
    return [number for each in arrays for number in td.reshape(each, (-1,)).tolist()]


class Steps(unittest.TestCase):
    """Two steps of each, against the formulas in Python's own floats."""

    def compare(self, steps, formula, states):
        """`formula`: (parameter, gradient, states, number of the step) to (parameter, states)."""
        parameters, gradients = lists(*PARAMETERS), lists(*GRADIENTS)
        zeros = [[td.zeros_like(each) for each in parameters] for _ in range(states)]
        identities = [id(each) for each in parameters]
        wanted, gradient = flat(parameters), flat(gradients)
        state = [[0.0] * states for _ in wanted]
        for number in (1, 2):
            self.assertIsNone(steps(parameters, gradients, zeros, number))
            for i, each in enumerate(wanted):
                wanted[i], state[i] = formula(each, gradient[i], state[i], number)
        self.assertEqual([id(each) for each in parameters], identities)
        for result, value in zip(flat(parameters), wanted):
            self.assertAlmostEqual(result, value, places=12)
        for k in range(states):
            for result, value in zip(flat(zeros[k]), state):
                self.assertAlmostEqual(result, value[k], places=12)
        self.assertEqual(flat(gradients), gradient)

    def test_sgd(self):
        def formula(p, g, states, number):
            return p - 0.1 * (g + 0.01 * p), []

        self.compare(lambda p, g, s, n: td.sgd(p, g, rate=0.1, weight_decay=0.01), formula, 0)

    def test_sgd_with_momentum(self):
        def formula(p, g, states, number):
            v = 0.9 * states[0] + g
            return p - 0.1 * (g + 0.9 * v), [v]

        self.compare(lambda p, g, s, n: td.sgd(p, g, s[0], rate=0.1, momentum=0.9, nesterov=True), formula, 1)

    def test_adam(self):
        def formula(p, g, states, number, decay=0.0, apart=0.0):
            p -= 0.1 * apart * p
            g += decay * p
            first, second = 0.9 * states[0] + 0.1 * g, 0.999 * states[1] + 0.001 * g * g
            f, s = first / (1 - 0.9**number), second / (1 - 0.999**number)
            return p - 0.1 * f / (math.sqrt(s) + 1e-8), [first, second]

        self.compare(lambda p, g, s, n: td.adam(p, g, *s, step=n, rate=0.1), formula, 2)
        self.compare(lambda p, g, s, n: td.adam(p, g, *s, n, 0.1, weight_decay=0.5), lambda *a: formula(*a, decay=0.5), 2)
        self.compare(lambda p, g, s, n: td.adamw(p, g, *s, n, 0.1), lambda *a: formula(*a, apart=0.01), 2)

    def test_rmsprop_and_adagrad(self):
        def formula(p, g, states, number, keep, add, epsilon):
            square = keep * states[0] + add * g * g
            return p - 0.1 * g / (math.sqrt(square) + epsilon), [square]

        self.compare(lambda p, g, s, n: td.rmsprop(p, g, s[0], 0.1), lambda *a: formula(*a, 0.99, 0.01, 1e-8), 1)
        self.compare(lambda p, g, s, n: td.adagrad(p, g, s[0], 0.1), lambda *a: formula(*a, 1.0, 1.0, 1e-10), 1)

    def test_moving_average(self):
        averages, values = lists([1.0, 2.0]), lists([3.0, 6.0])
        td.moving_average(averages, values, 0.75)
        self.assertEqual(averages[0].tolist(), [1.5, 3.0])

    def test_clip_grad_norm(self):
        gradients = lists([3.0], [[4.0]])
        norm, *clipped = td.clip_grad_norm(gradients, 1.0)
        self.assertEqual(norm.item(), 5.0)
        for result, value in zip(flat(clipped), (0.6, 0.8)):
            self.assertAlmostEqual(result, value, places=6)
        self.assertEqual([each.shape for each in clipped], [(1,), (1, 1)])
        self.assertEqual(flat(gradients), [3.0, 4.0])
        norm, *clipped = td.clip_grad_norm(gradients, 10.0, math.inf)
        self.assertEqual((norm.item(), flat(clipped)), (4.0, [3.0, 4.0]))
        with self.assertRaises(td.InvalidArgumentError):
            td.clip_grad_norm([], 1.0)


class Updates(unittest.TestCase):
    def test_are_in_the_memory_that_the_arrays_have(self):
        """A session that may have a quarter more than the parameter and its gradient."""
        with td.serve(flags=("--session-bytes", str(5 << 19)), default=False) as daemon:
            device = daemon.connection.device()
            x, gradient = td.ones((1 << 18,), device=device), td.ones((1 << 18,), device=device)  # 1 MiB each
            for _ in range(20):
                td.sgd([x], [gradient], rate=0.25)
            self.assertEqual(x[:2].tolist(), [-4.0, -4.0])
            kept = x.copy()
            td.sgd([x], [gradient], rate=0.25)
            with self.assertRaises(td.LimitError):  # the other array needs the old elements
                x.wait()
            self.assertEqual(kept[0].item(), -4.0)

    def test_leave_the_arrays_as_they_are_after_a_failure(self):
        x, gradient = td.ones((2,)), td.ones((2,))
        for error, call in (
            (td.ShapeError, lambda: td.sgd([x], [td.ones((3,))], rate=0.5)),
            (td.DTypeError, lambda: td.sgd([x], [td.ones((2,), dtype=td.float64)], rate=0.5)),
            (td.InvalidArgumentError, lambda: td.sgd([x], [gradient], rate=-1.0)),
            (td.InvalidArgumentError, lambda: td.sgd([x], [gradient], rate=0.5, momentum=0.5)),
            (td.InvalidArgumentError, lambda: td.sgd([], [], rate=0.5)),
            (ValueError, lambda: td.sgd([x, td.ones(1)], [gradient], rate=0.5)),
            (ValueError, lambda: td.sgd([x, x], [gradient, gradient], rate=0.5)),
            (ValueError, lambda: td.sgd([x], [gradient], [x], rate=0.5, momentum=0.5)),
            (TypeError, lambda: td.sgd([x], [1.0], rate=0.5)),
            (TypeError, lambda: td.sgd(x, [gradient], rate=0.5)),
            (TypeError, lambda: td.sgd([x], [gradient])),
        ):
            with self.assertRaises(error):
                call()
        td.sgd([x], [gradient], rate=0.5)
        x += 1  # nothing holds it any more
        self.assertEqual(x.tolist(), [1.5, 1.5])


if __name__ == "__main__":
    unittest.main()
