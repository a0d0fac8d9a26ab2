"""Derivatives of functions, and of what arrays that require gradients are used for."""

import copy
import gc
import os
import pickle
import threading
import unittest
import weakref

import tensord as td
from tensord import _core

from session import setUpModule  # noqa: F401 - starts the daemon


def cube(x):
    return td.sum(x * x * x)


class Functions(unittest.TestCase):
    def setUp(self):
        self.x = td.asarray([1.0, 2.0])

    def test_gradient_and_value(self):
        self.assertEqual(td.grad(cube)(self.x).tolist(), [3, 12])
        value, gradient = td.value_and_grad(cube)(self.x)
        self.assertEqual((value.item(), gradient.tolist()), (9, [3, 12]))

    def test_derivatives_of_derivatives(self):
        self.assertEqual(td.grad(lambda x: td.sum(td.grad(cube)(x)))(self.x).tolist(), [6, 12])
        third = td.grad(td.grad(td.grad(lambda x: x**4)))
        self.assertEqual(third(td.asarray(2.0)).item(), 48)

    def test_an_inner_gradient_is_by_its_own_argument_alone(self):
        """d/dx x · (d/dy x·y at y = x) = d/dx x · x."""
        self.assertEqual(td.grad(lambda x: x * td.grad(lambda y: x * y)(x))(td.asarray(3.0)).item(), 6)

    def test_trees(self):
        def loss(model, x):
            return td.sum(model["layers"][0] * x) + model["bias"] * 2 + model["pair"][1]

        model = {"layers": [self.x], "bias": td.asarray(5.0), "pair": (td.asarray(1.0), td.asarray(2.0)), "none": None}
        gradient = td.grad(loss)(model, td.asarray([3.0, 4.0]))
        self.assertEqual(list(gradient), ["layers", "bias", "pair", "none"])
        self.assertEqual(gradient["layers"][0].tolist(), [3, 4])
        self.assertEqual((gradient["bias"].item(), [one.item() for one in gradient["pair"]], gradient["none"]), (2, [0, 1], None))

    def test_several_arguments(self):
        def f(a, b, c):
            return td.sum(a * b * c)

        a, b, c = self.x, self.x * 2, self.x * 3
        by_c, by_a = td.grad(f, argnums=(2, 0))(a, b, c)
        self.assertEqual((by_c.tolist(), by_a.tolist()), ([2, 8], [6, 24]))
        self.assertEqual(td.grad(f, argnums=-1)(a, b, c).tolist(), [2, 8])
        self.assertEqual(td.grad(f, argnums=1)(a, a, a).tolist(), [1, 4])

    def test_auxiliary_results(self):
        gradient, more = td.grad(lambda x: (cube(x), {"twice": x * 2}), has_aux=True)(self.x)
        self.assertEqual((gradient.tolist(), more["twice"].tolist()), ([3, 12], [2, 4]))
        (value, more), gradient = td.value_and_grad(lambda x: (cube(x), "words"), has_aux=True)(self.x)
        self.assertEqual((value.item(), more), (9, "words"))

    def test_python_floats_are_variables(self):
        self.assertAlmostEqual(td.grad(td.exp)(0.5).item(), 1.6487213, places=5)

    def test_what_the_result_does_not_depend_on_has_zeros(self):
        self.assertEqual(td.grad(lambda x: td.asarray(1.0))(self.x).tolist(), [0, 0])
        self.assertEqual(td.grad(lambda x: td.sum(td.astype(td.argmax(x), td.float32)))(self.x).tolist(), [0, 0])
        self.assertEqual(td.grad(lambda x: x)(td.asarray(7.0)).item(), 1)

    def test_complex_numbers(self):
        """Of |z|², 2z."""

        def size(z):
            return td.sum(td.real(z * td.conj(z)))

        z = td.asarray([3 + 4j, 1j])
        self.assertEqual(td.grad(size)(z).tolist(), [6 + 8j, 2j])
        self.assertEqual(td.grad(size)(1 + 2j).item(), 2 + 4j)
        size(z.requires_grad_()).backward()
        self.assertEqual(z.grad.tolist(), [6 + 8j, 2j])

    def test_operands_of_several_dtypes(self):
        """As if they had been cast to the result's dtype before: integers do not hold squares, nor unsigned ones n - 1."""
        x = td.asarray([[2.5, 1.5], [3.0, 0.5]], dtype=td.float64)
        functions = [td.pow, td.atan2, td.linalg.lstsq, td.soft_cross_entropy]
        others = [td.asarray([[1, 0], [0, 1]], dtype=td.bool), td.asarray([[100, 0], [1, 3]], dtype=td.int8), td.asarray([[0, 1], [2, 3]], dtype=td.uint64)]
        others.append(td.asarray([[1.1, 2.2], [0.3, 0.7]], dtype=td.float32))
        for function in functions:
            for other in others:
                for swapped in (False, True):
                    if function is td.linalg.lstsq and not swapped:
                        continue  # the other one may have no full rank
                    with self.subTest(function.__name__, dtype=other.dtype.name, swapped=swapped):

                        def value(x, other):
                            return td.sum(function(*((other, x) if swapped else (x, other))) * td.asarray([1.0, 3.0], dtype=td.float64))

                        found, expected = td.grad(value)(x, other), td.grad(value)(x, td.astype(other, td.float64))
                        for a, b in zip(td.reshape(found, (-1,)).tolist(), td.reshape(expected, (-1,)).tolist()):
                            self.assertTrue(abs(a - b) <= 1e-12 * abs(b) or (a != a and b != b), f"{found.tolist()} is not {expected.tolist()}")

    def test_second_ones_of_norms_with_zeros(self):
        weights = td.asarray([1.0, 3.0])
        for ord, x, expected in ((2, [0.0, 0.0], [0, 0]), (2, [0.0, 2.0], [0.5, 0]), (3, [0.0, 0.0], [0, 0]), (3, [0.0, 2.0], [0, 0]), (1.5, [0.0, 2.0], [0, 0])):
            with self.subTest(ord=ord, x=x):
                slope = td.grad(lambda x: td.linalg.vector_norm(x, ord=ord))
                self.assertEqual(td.grad(lambda x: td.sum(weights * slope(x)))(td.asarray(x)).tolist(), expected)

    def test_of_angles_far_from_1(self):
        for size, dtype in ((2.0**-14, td.float16), (2.0**14, td.float16), (2.0**-80, td.float32), (2.0**80, td.float32)):
            x = td.asarray(size, dtype=dtype)
            slope = td.grad(lambda y: td.atan2(y, x) * size)(x)  # times size, so that it is in range
            self.assertAlmostEqual(slope.item(), 0.5, 3, dtype.name)

    def test_a_negative_number_to_a_complex_power(self):
        def part(x):
            return td.imag(td.pow(x, td.asarray(0.5 + 0j)))

        self.assertAlmostEqual(td.grad(part)(td.asarray(-1.0)).item(), -0.5, 6)

    def test_constants(self):
        self.assertEqual(td.grad(lambda x: td.sum(x * td.stop_gradient(x)))(self.x).tolist(), [1, 2])
        self.assertEqual(td.grad(lambda x: td.sum(x * x.detach()))(self.x).tolist(), [1, 2])
        self.assertEqual(td.stop_gradient({"a": [self.x], "b": 3})["a"][0].tolist(), [1, 2])

        def f(x):
            with td.no_grad():
                y = x * 2
            return td.sum(x * y)

        self.assertEqual(td.grad(f)(self.x).tolist(), [2, 4])
        with td.no_grad():  # what is within it may be differentiated
            self.assertEqual(td.grad(cube)(self.x).tolist(), [3, 12])

    def test_assignments_within_the_function(self):
        def f(x):
            y = x * 1
            y += x
            y[0] = x[1] * 10
            x *= 3  # the function's own
            y *= x
            return td.sum(y)  # 10 · x1 · 3 · x0 + 2 · x1 · 3 · x1

        self.assertEqual(td.grad(f)(self.x).tolist(), [60, 54])
        self.assertEqual(self.x.tolist(), [1, 2])

    def test_names_and_documentation_stay(self):
        self.assertEqual(td.grad(cube).__name__, "cube")

    def test_errors(self):
        with self.assertRaisesRegex(ValueError, r"rank 0, not of the shape \(2,\)"):
            td.grad(lambda x: x * 2)(self.x)
        with self.assertRaisesRegex(TypeError, "not float"):
            td.grad(lambda x: 1.0)(self.x)
        with self.assertRaisesRegex(TypeError, "floats, not of int64"):
            td.grad(lambda x: td.sum(x))(td.asarray([1, 2]))
        with self.assertRaisesRegex(TypeError, "not by str"):
            td.grad(lambda x: td.sum(x["a"]))({"a": self.x, "b": "words"})
        with self.assertRaisesRegex(TypeError, "argnums has 1"):
            td.grad(cube, argnums=1)(self.x)
        with self.assertRaisesRegex(TypeError, "has_aux"):
            td.grad(cube, has_aux=True)(self.x)
        with self.assertRaisesRegex(ZeroDivisionError, ""):
            td.grad(lambda x: 1 / 0)(self.x)
        self.assertEqual(td.grad(cube)(self.x).tolist(), [3, 12])  # after errors no tape is left


@td.custom_vjp
def root(x, y):
    raise AssertionError("the derivative has a way of its own")


root.defvjp(lambda x, y: (td.sqrt(x) * y, (x, y)), lambda kept, g: (g * kept[1] * 0.5 / td.sqrt(kept[0]), g * td.sqrt(kept[0])))


@td.custom_gradient
def cut(tree, scale):
    def backward(gradient):
        return {"a": None, "b": [gradient["y"] * 10]}, None

    return {"y": tree["b"][0] * scale, "place": td.argmax(tree["a"])}, backward


class Rules(unittest.TestCase):
    def setUp(self):
        self.x = td.asarray([4.0, 9.0])

    def test_a_rule_takes_the_place_of_the_derivative(self):
        by_x, by_y = td.grad(lambda x, y: td.sum(root(x, y)), argnums=(0, 1))(self.x, td.asarray([1.0, 6.0]))
        self.assertEqual((by_x.tolist(), by_y.tolist()), ([0.25, 1], [2, 3]))
        self.assertEqual(root(self.x, self.x).tolist(), [8, 27])
        self.x.requires_grad_()
        y = root(self.x, td.asarray([1.0, 6.0]))
        self.assertTrue(y.requires_grad)
        td.sum(y).backward()
        self.assertEqual(self.x.grad.tolist(), [0.25, 1])

    def test_second_derivatives_by_arguments(self):
        second = td.grad(td.grad(lambda x: root(x, td.asarray(8.0))))(td.asarray(4.0))
        self.assertAlmostEqual(second.item(), -0.25)  # -8 / 4 · x^(-3/2)

    def test_trees_and_other_arguments(self):
        tree = {"a": td.asarray([1.0, 2.0]), "b": [self.x]}
        gradient = td.grad(lambda tree: td.sum(cut(tree, 3)["y"]))(tree)
        self.assertEqual((gradient["a"].tolist(), gradient["b"][0].tolist()), ([0, 0], [10, 10]))
        self.assertEqual(cut(tree, 3)["place"].item(), 1)
        self.assertEqual(cut.__name__, "cut")

    def test_exceptions_of_rules_come_out(self):
        def wrong(kept, g):
            return {}["no"]

        for backward, error in ((wrong, KeyError), (lambda kept, g: (g, g), ValueError), (lambda kept, g: "words", (TypeError, ValueError)), (lambda kept, g: g[0:1, 0:1, 0:1], Exception)):
            f = td.custom_vjp(lambda x: x)
            f.defvjp(lambda x: (x * 2, None), backward)
            with self.assertRaises(error):
                td.grad(lambda x: td.sum(f(x)))(self.x)
            x = self.x.copy().requires_grad_()
            with self.assertRaises(error):
                td.sum(f(x)).backward()
        with self.assertRaisesRegex(TypeError, "defvjp"):
            td.custom_vjp(lambda x: x)(self.x)
        self.assertEqual(td.grad(cube)(self.x).tolist(), [48, 243])

    def test_what_a_rule_keeps_is_let_go_with_the_tape(self):
        class Kept:
            pass

        kept = Kept()
        gone = weakref.ref(kept)
        f = td.custom_vjp(lambda x: x)
        f.defvjp(lambda x, k=kept: (x * 2, k), lambda k, g: (g * 2,))
        x = self.x.requires_grad_()
        y = td.sum(f(x))
        del kept, f
        self.assertIsNotNone(gone())
        y.backward()
        self.assertIsNone(gone())

    def test_threads_wait_while_a_rule_runs(self):
        inside, done = threading.Event(), []

        def work():
            inside.wait(30)
            w = td.asarray([2.0]).requires_grad_()
            td.sum(w * w).backward()
            done.append(w.grad.item())

        def backward(kept, g):
            inside.set()
            for _ in range(2000):  # the threads take turns here
                g = g + 0
            return (g * 5,)

        f = td.custom_vjp(lambda x: x)
        f.defvjp(lambda x: (x * 5, None), backward)
        thread = threading.Thread(target=work)
        thread.start()
        x = self.x.requires_grad_()
        td.sum(f(x)).backward()
        thread.join()
        self.assertEqual((done, x.grad.tolist()), ([4], [5, 5]))


class Checkpoints(unittest.TestCase):
    def test_gradients_are_the_same(self):
        net = td.nn.Sequential(td.nn.Linear(3, 4), td.nn.Tanh(), td.nn.Linear(4, 1))
        x = td.asarray([[1.0, -2.0, 0.5]])
        td.sum(net(x)).backward()
        expected = [p.grad.tolist() for p in net.parameters()]
        net.zero_grad()
        calls = []

        def block(x):
            calls.append(1)
            return net(x)

        td.sum(td.checkpoint(block)(x)).backward()  # by the parameters, which are no arguments
        self.assertEqual([p.grad.tolist() for p in net.parameters()], expected)
        self.assertEqual(len(calls), 2)
        parameters = dict(net.named_parameters())
        by_function = td.grad(lambda p: td.sum(td.checkpoint(lambda p, x: td.nn.functional_call(net, p, x))(p, x)))(parameters)
        self.assertEqual([g.tolist() for g in by_function.values()], expected)

    def test_trees_and_second_derivatives(self):
        pair = td.checkpoint(lambda x, power=2: {"a": x**power, "b": (x * 3, "words")})
        result = pair(td.asarray(2.0), power=3)
        self.assertEqual((result["a"].item(), result["b"][1]), (8, "words"))
        self.assertEqual(td.grad(lambda x: pair(x)["a"] + pair(x)["b"][0])(td.asarray(5.0)).item(), 13)
        self.assertEqual(td.grad(td.grad(lambda x: pair(x, 3)["a"]))(td.asarray(5.0)).item(), 30)

    def test_what_is_drawn_by_chance_is_the_same_again(self):
        drop, x = td.nn.Dropout(0.5), td.ones((1000,))
        results = []

        def inner(x):
            return drop(x) * x, td.random.dropout(x, 0.5) * x

        def outer(x):
            first, second = td.checkpoint(inner)(x)
            return first, second, td.random.normal(size=1000) * drop(x)

        def loss(x, f):
            results[:] = f(x)
            return sum(td.sum(one) for one in results)

        for f in (td.checkpoint(inner), td.checkpoint(outer)):
            for _ in range(2):  # the number of results is known at the second time
                gradient = td.grad(loss)(x, f)
                # By x, of products with x · m: 2 m = 2 x · m. The normal ones have one x.
                expected = 2 * (results[0] + results[1]) + (results[2] if len(results) == 3 else 0)
                self.assertTrue(td.all(td.abs(gradient - expected) < 1e-5).item())
        before = results[0]
        td.grad(loss)(x, f)
        self.assertFalse(td.all(results[0] == before).item())

    def test_running_statistics_follow_a_batch_once(self):
        x = td.random.normal(size=(8, 3)) + 5
        norms = [td.nn.BatchNorm1d(3), td.nn.BatchNorm1d(3)]
        for _ in range(2):
            for norm, f in zip(norms, (norms[0], td.checkpoint(norms[1]))):
                td.sum(f(x) ** 2).backward()
        self.assertEqual(*[[norm.num_batches_tracked.item(), norm.running_mean.tolist(), norm.running_var.tolist()] for norm in norms])

    def test_what_is_in_between_is_not_kept(self):
        """A session that may have 96 MiB goes back through 16 blocks, each of which makes 16 MiB."""

        def block(x):
            for _ in range(8):
                x = td.tanh(x)
            return x

        for checkpointed in (True, False):
            daemon = td.serve(flags=("--session-bytes", str(96 << 20)), default=False)
            x = td.full((1 << 19,), 0.5, device=daemon.connection.device()).requires_grad_()
            y = x
            for _ in range(16):
                y = (td.checkpoint(block) if checkpointed else block)(y)
            td.sum(y).backward()
            if checkpointed:
                self.assertGreater(x.grad[0].item(), 0)
            else:
                with self.assertRaises(td.LimitError):
                    x.grad.wait()
            daemon.close()

    def test_exceptions(self):
        def wrong(x):
            raise KeyError("wrong")

        with self.assertRaisesRegex(KeyError, "wrong"):
            td.checkpoint(wrong)(td.asarray(1.0))
        calls = []

        def changes(x):
            calls.append(1)
            return [x] if len(calls) < 2 else [x, x]

        with self.assertRaisesRegex(ValueError, "returned 1 arrays first, and 2 then"):
            td.grad(lambda x: td.checkpoint(changes)(x)[0])(td.asarray(1.0))


class Backward(unittest.TestCase):
    def setUp(self):
        gc.collect()
        self.w = td.asarray([1.0, 2.0]).requires_grad_()

    def test_gradients_add_up(self):
        cube(self.w).backward()
        grad = self.w.grad
        self.assertEqual(grad.tolist(), [3, 12])
        cube(self.w).backward()
        self.assertEqual(self.w.grad.tolist(), [6, 24])
        self.assertIs(self.w.grad, grad)
        self.w.grad = None
        self.assertIsNone(self.w.grad)

    def test_which_arrays_require_gradients(self):
        x = td.asarray([1.0, 2.0])
        y = x * self.w
        self.assertEqual((x.requires_grad, self.w.requires_grad, y.requires_grad), (False, True, True))
        self.assertEqual((self.w.is_leaf, y.is_leaf, y.grad), (True, False, None))
        self.assertFalse((y > 1).requires_grad)
        self.assertFalse(td.argmax(y).requires_grad)
        self.assertFalse(y.detach().requires_grad)
        self.assertFalse(td.stop_gradient(y).requires_grad)
        with td.no_grad():
            self.assertFalse((self.w * 2).requires_grad)

        @td.no_grad()
        def double(x):
            return x * 2

        self.assertFalse(double(self.w).requires_grad)
        self.assertTrue(td.split(y, (1, 1))[1].requires_grad)
        self.assertTrue(td.linalg.svd(td.stack([y, y]))[1].requires_grad)
        self.w.requires_grad = False
        self.assertFalse((self.w * 2).requires_grad)

    def test_an_array_without_operations(self):
        x = td.asarray(2.0).requires_grad_()
        x.backward()
        self.assertEqual(x.grad.item(), 1)

    def test_only_what_it_follows_from_gets_a_gradient(self):
        other = td.asarray(1.0).requires_grad_()
        unused = other * self.w
        cube(self.w).backward()
        self.assertIsNone(other.grad)
        td.sum(unused).backward()  # its way back is another one
        self.assertEqual(other.grad.item(), 3)

    def test_a_gradient_for_more_than_one_element(self):
        y = self.w * self.w
        with self.assertRaisesRegex(ValueError, "more than one element"):
            y.backward()
        y.backward(td.asarray([1.0, 10.0]))
        self.assertEqual(self.w.grad.tolist(), [2, 40])

    def test_a_second_time_needs_the_first_to_retain(self):
        y = cube(self.w)
        y.backward(retain_graph=True)
        y.backward()
        self.assertEqual(self.w.grad.tolist(), [6, 24])
        with self.assertRaisesRegex(RuntimeError, "retain_graph=True"):
            y.backward()
        with self.assertRaisesRegex(RuntimeError, "retain_graph=True"):  # what is computed of it has no way back either
            (y * 2).backward()

    def test_a_part_that_two_results_share(self):
        shared = self.w * 2
        first, second = cube(shared), td.sum(shared)
        first.backward()
        with self.assertRaisesRegex(RuntimeError, "retain_graph=True"):
            second.backward()
        with self.assertRaisesRegex(RuntimeError, "retain_graph=True"):
            (td.sum(shared) + td.sum(self.w)).backward()

    def test_assignments_to_what_is_noted(self):
        y = self.w * 2
        before = y  # the same object
        y += 1
        y *= y
        y[0] = 5.0
        y[1] *= self.w[0]
        self.assertIs(before, y)
        td.sum(y).backward()  # 5 + (2 w1 + 1)² w0
        self.assertEqual(self.w.grad.tolist(), [25, 20])
        x = td.zeros(3)
        x[1:] = self.w  # an array without a gradient takes a part that has one
        self.assertTrue(x.requires_grad)
        td.sum(x * x).backward()
        self.assertEqual(self.w.grad.tolist(), [27, 24])

    def test_an_input_that_changes_after_its_use(self):
        x = td.asarray([3.0, 4.0])
        y = td.sum(self.w * x)
        x *= 100
        x[0] = 7.0
        y.backward()
        self.assertEqual(self.w.grad.tolist(), [3, 4])

    def test_a_leaf_changes_within_no_grad_alone(self):
        for change in (lambda w: w.__iadd__(w), lambda w: w.__setitem__(0, w[1])):
            with self.assertRaisesRegex(RuntimeError, "no_grad"):
                change(self.w)
        y = cube(self.w)
        with td.no_grad():
            self.w -= 1.0
        self.assertTrue(self.w.requires_grad and self.w.is_leaf)
        with self.assertRaisesRegex(RuntimeError, "has been changed since"):
            y.backward()
        cube(self.w).backward()
        self.assertEqual(self.w.grad.tolist(), [0, 3])

    def test_steps_of_optimisers(self):
        for _ in range(3):
            self.w.grad = None
            td.sum(self.w * self.w).backward()
            td.sgd([self.w], [self.w.grad], None, rate=0.25)
        self.assertEqual(self.w.tolist(), [0.125, 0.25])
        y = td.sum(self.w)
        td.sgd([self.w], [self.w.grad], None, rate=0.25)
        with self.assertRaisesRegex(RuntimeError, "has been changed since"):
            y.backward()

    def test_what_nobody_can_ask_for_is_let_go(self):
        base = _core._graph_length()
        for _ in range(5000):
            y = td.sum(td.exp(self.w) * self.w)
        self.assertLess(_core._graph_length() - base, 1200)
        y.backward()
        self.assertAlmostEqual(self.w.grad[0].item(), 2 * 2.7182817, places=5)

    def test_memory_of_what_nobody_can_ask_for_is_let_go(self):
        """A session that may have 300 MiB computes 2 GiB that no array leads to any more."""
        daemon = td.serve(flags=("--session-bytes", str(300 << 20)), default=False)
        w = td.ones(1 << 20, device=daemon.connection.device()).requires_grad_()
        for _ in range(256):
            y = td.sum(w * w * 2)
        y.backward()
        self.assertEqual(w.grad[0].item(), 4)
        daemon.close()

    def test_a_long_graph_stays_whole(self):
        y = self.w
        for _ in range(3000):
            y = y + self.w
        td.sum(y).backward()
        self.assertEqual(self.w.grad.tolist(), [3001, 3001])
        self.assertEqual(_core._graph_length(), 0)

    def test_threads_share_the_graph(self):
        found = []

        def work():
            found.append(td.sum(self.w * self.w))

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        found[0].backward()
        self.assertEqual(self.w.grad.tolist(), [2, 4])

    def test_copies_on_other_devices(self):
        there = td.asarray([5.0, 6.0], device="cpu:1").requires_grad_()
        td.sum(self.w.to_device("cpu:1") * there).backward()
        self.assertEqual((self.w.grad.tolist(), self.w.grad.device), ([5, 6], self.w.device))
        self.assertEqual((there.grad.tolist(), there.grad.device), ([1, 2], there.device))

    def test_a_copy_through_this_process_is_an_error_and_not_zero(self):
        daemon = td.serve(default=False)
        y = td.sum(_core.copy_to(self.w, daemon.connection.device()))
        with self.assertRaisesRegex(RuntimeError, "copy on a device of another connection"):
            y.backward()
        daemon.close()

    def test_functional_derivatives_take_it_as_an_array_like_others(self):
        gradient = td.grad(cube)(self.w)
        self.assertEqual((gradient.tolist(), gradient.requires_grad), ([3, 12], False))
        with self.assertRaisesRegex(RuntimeError, "td.grad"):
            td.grad(lambda x: cube(self.w).backward())(self.w)

    def test_other_errors(self):
        with self.assertRaisesRegex(RuntimeError, "requires_grad_"):
            td.sum(td.ones(3)).backward()
        with self.assertRaisesRegex(TypeError, "int64"):
            td.asarray([1]).requires_grad_()
        with self.assertRaisesRegex(RuntimeError, "detach"):
            (self.w * 2).requires_grad = False
        with self.assertRaisesRegex(ValueError, "dtype and shape"):
            self.w.grad = td.ones(3)
        with self.assertRaises(TypeError):
            self.w.grad = self.w
        with self.assertRaises(TypeError):
            cube(self.w).backward(create_graph=True)

    def test_a_child_of_fork_has_a_graph_of_its_own(self):
        y = cube(self.w)
        program = os.fork()
        if not program:
            code = 1
            try:
                td.serve()
                w = td.asarray([2.0]).requires_grad_()
                td.sum(w * w).backward()
                code = 0 if w.grad.item() == 4 and _core._graph_length() == 0 else 2
            finally:
                os._exit(code)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(program, 0)[1]), 0)
        y.backward()
        self.assertEqual(self.w.grad.tolist(), [3, 12])

    def test_copies_and_pickles(self):
        y = self.w * 2
        for copied in (copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))):
            self.assertTrue(copied(self.w).requires_grad and copied(self.w).is_leaf)
            self.assertFalse(copied(y).requires_grad)
            self.assertEqual(copied(y).tolist(), [2, 4])

    def test_a_device_that_closes(self):
        base = _core._graph_length()
        daemon = td.serve(default=False)
        w = td.ones(3, device=daemon.connection.device()).requires_grad_()
        y = td.sum(w * w)
        self.assertGreater(_core._graph_length(), base)
        daemon.close()
        self.assertEqual(_core._graph_length(), base)
        with self.assertRaises(td.Error):
            y.backward()
        cube(self.w).backward()
        self.assertEqual(self.w.grad.tolist(), [3, 12])


if __name__ == "__main__":
    unittest.main()
