"""Recorded functions, and loops in the daemon: the bits of the same operations one by one, and clear errors for what cannot be recorded."""

import collections
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

    def test_numbers_are_told_apart_by_their_bits(self):
        f = td.function(lambda x, number: td.copysign(x, td.full((), number)))
        self.assertEqual([f(td.ones(()), number).item() for number in (0.0, -0.0, 0.0)], [1, -1, 1])
        f = td.function(lambda x, number: td.copysign(x, td.imag(td.full((), number, dtype=td.complex64))))
        self.assertEqual([f(td.ones(()), number).item() for number in (complex(1, 0.0), complex(1, -0.0))], [1, -1])
        calls = []
        f = td.function(lambda x, number: calls.append(number) or x)
        f(td.ones(()), float("nan")), f(td.ones(()), -float("nan")), f(td.ones(()), float("nan"))
        self.assertEqual(len(calls), 1)

    def test_dictionaries_of_all_kinds(self):
        for kind in (dict, collections.OrderedDict, lambda pairs: collections.defaultdict(list, pairs), collections.Counter):
            tree = kind({"b": td.ones(()), "a": td.zeros(())})
            gradient = td.grad(lambda tree: tree["a"] * 2 + tree["b"])(tree)
            result = td.function(lambda tree: tree)(tree)
            for one, expected in ((gradient, [1, 2]), (result, [1, 0])):
                self.assertIs(type(one), type(tree))
                self.assertEqual(([*one], [value.item() for value in one.values()]), (["b", "a"], expected))

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

    def test_gradients_do_not_get_lost_in_a_call(self):
        x, xs = td.ones(3), td.ones((4, 3))

        def scaled(w):
            return td.sum(td.function(lambda x: w * x)(x))

        def loop(w):
            return td.scan(lambda carry, x: (carry + td.sum(w * x), None), td.zeros(()), xs)[0]

        for lossy in (scaled, loop, td.checkpoint(scaled), lambda w: td.checkpoint(lambda x: scaled(w) * td.sum(x))(x)):
            with self.assertRaises(td.UnsupportedError):
                td.grad(lambda w: td.sum(w) + lossy(w))(x)
            constant = lossy(x)
            self.assertEqual(td.grad(lambda w: td.sum(w) * constant)(x).tolist(), [constant.item()] * 3)
        self.assertEqual(td.function(td.grad(lambda w: td.sum(w) + loop(w)))(x).tolist(), [5] * 3)

        f, step = td.function(lambda x: x * 2), td.function(lambda carry, x: (carry + x, carry))
        f(x), td.scan(step, x, xs)  # recorded
        w = td.ones(3).requires_grad_()
        for call in (lambda w: f(w), lambda w: f(w * 1), lambda w: td.scan(step, w, xs), lambda w: td.scan(step, x, td.stack([w, w]))):
            with self.assertRaisesRegex(TypeError, "requires a gradient"):
                call(w)
            call(w.detach())
            with td.no_grad():
                call(w)

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


class GivenAway(unittest.TestCase):
    def test_an_array_that_was_given_away_has_no_value(self):
        add = td.function(lambda x, y: {"sum": x["a"] + y, "product": x["b"] * y}, donate_argnums=0)
        a, b, y = td.asarray([1.0, 2.0]), td.asarray([3.0, 4.0]), td.asarray([10.0, 20.0])
        result = add({"a": a, "b": b}, y)
        self.assertEqual((result["sum"].tolist(), result["product"].tolist()), ([11, 22], [30, 80]))
        self.assertEqual(y.tolist(), [10, 20])
        for use in (lambda: a + y, lambda: y + a, lambda: -a, lambda: a.tolist(), lambda: a.shape, lambda: add({"a": a, "b": y}, y), lambda: a.requires_grad_()):
            with self.assertRaisesRegex(td.InvalidArgumentError, "given away"):
                use()
        self.assertIn("given away", repr(a))
        a._exchange(td.asarray([5.0]))
        self.assertEqual(a.tolist(), [5])

    def test_their_memory_is_used(self):
        """An array of more than half of the device's memory, and its successor."""
        with td.serve(devices="cpu:0", flags=["--memory", "64M"], default=False) as daemon:
            with daemon.connection.device("cpu:0"):
                w, x = td.ones((9 << 20,)), td.asarray(1.0)
                w = td.function(lambda w, x: w + x * w, donate_argnums=(0,))(w, x)
                self.assertEqual(w[0].item(), 2)
                with self.assertRaises(td.OutOfMemoryError):
                    td.function(lambda w, x: w + x * w)(w, x)[0].item()

    def test_a_decorator_with_options(self):
        @td.function(donate_argnums=[1])
        def subtract(x, y):
            return x - y

        x, y = td.asarray([3.0]), td.asarray([1.0])
        self.assertEqual((subtract(x, y).tolist(), subtract.__name__), ([2], "subtract"))
        with self.assertRaises(td.InvalidArgumentError):
            y.item()

    def test_scan_gives_its_first_carry_away(self):
        init = td.asarray(1.0)
        carry, _ = td.scan(td.function(lambda carry, x: (carry + x, None), donate_argnums=0), init, td.asarray([2.0, 3.0]))
        self.assertEqual(carry.item(), 6)
        with self.assertRaisesRegex(td.InvalidArgumentError, "given away"):
            init.item()

    def test_errors(self):
        x = td.asarray([1.0])
        for number in (-1, "x", 0.5):
            with self.assertRaises((ValueError, TypeError)):
                td.function(lambda x: x, donate_argnums=number)
        with self.assertRaisesRegex(TypeError, "donate_argnums has 3"):
            td.function(lambda x: x + 1, donate_argnums=3)(x)
        with self.assertRaisesRegex(td.InvalidArgumentError, "twice"):
            td.function(lambda x, y: x + y, donate_argnums=(0, 1))(x, x)
        weight = td.asarray([2.0]).requires_grad_()
        double = td.function(lambda x: x * 2, donate_argnums=0)
        double(td.asarray([1.0]))
        with self.assertRaisesRegex(TypeError, "backward"):
            double(weight * x)
        self.assertEqual((x + weight).tolist(), [3])


def networks():
    """The same one twice."""
    for _ in range(2):
        td.random.seed(7)
        yield td.nn.Sequential(td.nn.Linear(4, 8, bias=False), td.nn.BatchNorm1d(8), td.nn.ReLU(), td.nn.Linear(8, 3))


class State(unittest.TestCase):
    def setUp(self):
        td.random.seed(5)
        self.x, self.y = td.random.normal(size=(6, 32, 4)), td.random.integers(3, size=(6, 32))

    def step(self, model, optimiser):
        def step(x, y):
            def loss_of(parameters):
                return td.nn.CrossEntropyLoss()(td.nn.functional_call(model, parameters, x), y)

            loss, gradients = td.value_and_grad(loss_of)(dict(model.named_parameters()))
            optimiser.step(gradients)
            return loss

        return step

    def same(self, mine, own):
        for (name, x), y in zip(mine.state_dict().items(), own.state_dict().values()):
            for a, b in zip(td.reshape(x, (-1,)).tolist(), td.reshape(y, (-1,)).tolist()):
                self.assertAlmostEqual(a, b, delta=2e-6, msg=name)

    def test_recorded_steps_train_as_others_do(self):
        kinds = {
            "sgd": lambda p: td.optim.SGD(p, lr=0.1, momentum=0.9),
            "adam": lambda p: td.optim.Adam(p, lr=0.01, weight_decay=0.1),
            "adamw": lambda p: td.optim.AdamW(p, lr=0.01),
            "rmsprop": lambda p: td.optim.RMSprop(p),
            "adagrad": lambda p: td.optim.Adagrad(p, lr=0.1, lr_decay=0.5, weight_decay=0.1),
        }
        for name, make in kinds.items():
            for loop in False, True:
                with self.subTest(name, loop=loop):
                    mine, own = networks()
                    optimisers = make(mine.parameters()), make(own.parameters())
                    eager = self.step(own, optimisers[1])
                    recorded = td.function(self.step(mine, optimisers[0]), state=[mine, {"optimiser": optimisers[0]}])
                    if loop:
                        body = td.function(lambda carry, batch: (carry, recorded(*batch)), state=[mine, optimisers[0]])
                        losses = td.scan(body, None, (self.x, self.y))[1].tolist()
                    else:
                        losses = [recorded(self.x[i], self.y[i]).item() for i in range(6)]
                    for i in range(6):
                        self.assertAlmostEqual(losses[i], eager(self.x[i], self.y[i]).item(), delta=2e-6)
                    self.same(mine, own)
                    self.assertEqual(float(optimisers[0].state_dict()["state"][0]["step"]), 6)
                    # And on, one by one; and recorded again.
                    self.step(mine, optimisers[0])(self.x[0], self.y[0])
                    recorded(self.x[1], self.y[1])
                    for i in range(2):
                        eager(self.x[i], self.y[i])
                    self.same(mine, own)
                    self.assertTrue(all(one.requires_grad for one in mine.parameters()))

    def backward_step(self, model, optimiser, clip=None):
        def step(x, y):
            optimiser.zero_grad()
            loss = td.nn.CrossEntropyLoss()(model(x), y)
            loss.backward()
            if clip:
                td.nn.utils.clip_grad_norm_(model.parameters(), clip)
            optimiser.step()
            return loss

        return step

    def test_recorded_steps_may_call_backward(self):
        kinds = {"sgd": (lambda p: td.optim.SGD(p, lr=0.1, momentum=0.9), None), "adam": (lambda p: td.optim.Adam(p, lr=0.01), 0.1)}
        for name, (make, clip) in kinds.items():
            for loop in False, True:
                with self.subTest(name, loop=loop):
                    mine, own = networks()
                    optimisers = make(mine.parameters()), make(own.parameters())
                    recorded = td.function(self.backward_step(mine, optimisers[0], clip), state=[mine, optimisers[0]])
                    eager = self.backward_step(own, optimisers[1], clip)
                    if loop:
                        body = td.function(lambda carry, batch: (carry, recorded(*batch)), state=[mine, optimisers[0]])
                        losses = td.scan(body, None, (self.x, self.y))[1].tolist()
                    else:
                        losses = [recorded(self.x[i], self.y[i]).item() for i in range(6)]
                    for i in range(6):
                        self.assertAlmostEqual(losses[i], eager(self.x[i], self.y[i]).item(), delta=2e-6)
                    self.same(mine, own)
                    self.assertTrue(all(one.grad is None and one.requires_grad and one.is_leaf for one in mine.parameters()))
                    # Eager steps go on, and a recorded one after them; gradients of these stay as they are.
                    self.backward_step(mine, optimisers[0], clip)(self.x[0], self.y[0])
                    kept = [one.grad.tolist() for one in mine.parameters()]
                    recorded(self.x[1], self.y[1])
                    self.assertEqual([one.grad.tolist() for one in mine.parameters()], kept)
                    for i in range(2):
                        eager(self.x[i], self.y[i])
                    self.same(mine, own)

    def test_backward_of_several_losses_adds_up(self):
        w, x = td.asarray([1.0, 2.0]), td.asarray([3.0, 5.0])
        w.requires_grad_()

        @td.function(state=w)
        def step(x):
            (w * x).sum().backward()
            (w * w * x).sum().backward()
            with td.no_grad():
                w.__isub__(0.1 * w.grad)
            return w.grad

        values = [1.0, 2.0]
        for _ in range(3):
            gradient = [b * (1 + 2 * a) for a, b in zip(values, (3.0, 5.0))]
            for got, want in zip(step(x).tolist(), gradient):
                self.assertAlmostEqual(got, want, delta=1e-4 * abs(want))
            values = [a - 0.1 * b for a, b in zip(values, gradient)]
            for got, want in zip(w.tolist(), values):
                self.assertAlmostEqual(got, want, delta=1e-4 * abs(want))
        self.assertTrue(w.grad is None and w.requires_grad)

    def test_backward_that_a_recorded_function_cannot_mean(self):
        w, other = td.asarray([1.0, 2.0]), td.asarray([3.0, 4.0])
        w.requires_grad_(), other.requires_grad_()
        made = (w * w).sum()
        with self.assertRaisesRegex(td.InvalidArgumentError, "not among its state"):
            td.function(lambda x: ((w * other * x).sum().backward(), x)[1], state=w)(td.asarray(1.0))
        with self.assertRaisesRegex(td.InvalidArgumentError, "not among its state"):
            td.function(lambda x: ((w * x).sum().backward(), x)[1])(td.asarray(1.0))
        with self.assertRaisesRegex(td.InvalidArgumentError, "outside of the function"):
            td.function(lambda x: (made.backward(), x)[1], state=other)(td.asarray(1.0))
        with self.assertRaisesRegex(RuntimeError, "nobody uses the gradients"):
            td.function(lambda x: ((w * x).sum().backward(), x)[1], state=w)(td.asarray(1.0))
        with self.assertRaisesRegex(RuntimeError, "none that requires"):
            td.function(lambda x: (x.sum().backward(), x)[1], state=w)(td.asarray(1.0))
        self.assertTrue(w.grad is None and other.grad is None)
        (w * other).sum().backward()
        self.assertEqual((w.grad.tolist(), other.grad.tolist()), ([3, 4], [1, 2]))
        # Within td.no_grad() and td.grad() a function is recorded as it is elsewhere.
        step = td.function(lambda x: ((w * x).sum().backward(), w.grad + 0)[1], state=w)
        with td.no_grad():
            self.assertEqual(step(td.asarray(2.0)).tolist(), [2, 2])
        with td.no_grad():
            self.assertFalse((w * 2.0).requires_grad)
        self.assertTrue((w * 2.0).requires_grad)

    def test_arrays_and_functions_without_a_result(self):
        total, kept = td.asarray([0.0, 0.0]), td.asarray(3.0)

        @td.function(state=(total, [kept]))
        def add(x):
            total.__iadd__(x * kept)

        for _ in range(3):
            self.assertIsNone(add(td.asarray([1.0, 2.0])))
        self.assertEqual((total.tolist(), kept.item()), ([9, 18], 3))
        total[0] = 100.0
        add(td.asarray([1.0, 2.0]))
        self.assertEqual(total.tolist(), [103, 24])

    def test_other_arrays_are_recorded_anew(self):
        mine, own = networks()
        optimisers = td.optim.Adam(mine.parameters()), td.optim.Adam(own.parameters())
        recorded, eager = td.function(self.step(mine, optimisers[0]), state=[mine, optimisers[0]]), self.step(own, optimisers[1])
        for _ in range(2):
            recorded(self.x[0], self.y[0])
            eager(self.x[0], self.y[0])
            for one in optimisers:
                one.load_state_dict(one.state_dict())
        recorded(self.x[1], self.y[1])
        eager(self.x[1], self.y[1])
        self.same(mine, own)

    def test_other_options_are_recorded_anew(self):
        w = td.nn.Parameter(td.zeros(2))
        optimiser = td.optim.SGD([w], lr=1.0)
        schedule = td.optim.StepLR(optimiser, 1, 0.5)

        @td.function(state=[w, optimiser])
        def step(x):
            optimiser.zero_grad()
            td.sum(w * x).backward()
            optimiser.step()

        for after in (-1.0, -1.5, -1.75):
            step(td.ones(2))
            self.assertEqual(w.tolist(), [after] * 2)
            schedule.step()
        drop = td.nn.Sequential(td.nn.Dropout(1.0))
        run = td.function(drop, state=[drop])
        for mode in (True, False, True):
            drop.train(mode)
            self.assertEqual(run(td.ones(2)).tolist(), [1.0 - mode] * 2)
        parameters = [td.nn.Parameter(td.ones(())), td.nn.Parameter(td.ones(()))]
        optimiser = td.optim.SGD(parameters, lr=1.0)

        @td.function(state=[parameters, optimiser])
        def both():
            optimiser.zero_grad()
            (parameters[0] + parameters[1]).backward()
            optimiser.step()

        both()
        parameters[0].requires_grad_(False)
        both()
        self.assertEqual([float(one) for one in parameters], [0, -1])

    def test_a_rate_that_is_an_array_is_that_of_the_run(self):
        w, rate = td.nn.Parameter(td.zeros(())), td.asarray(0.5)
        optimiser = td.optim.Adam([w], lr=rate, capturable=True)

        @td.function(state=[w, optimiser])
        def step():
            optimiser.zero_grad()
            (w * 2).backward()
            optimiser.step()

        for expected in (-0.5, -0.75, -0.875):
            step()
            self.assertAlmostEqual(float(w), expected, 5)
            rate *= 0.5
        optimiser.param_groups[0]["lr"] = td.asarray(1.0)
        step()
        self.assertAlmostEqual(float(w), -1.875, 5)

    def test_what_is_not_in_the_state_cannot_change(self):
        model, _ = networks()
        optimiser = td.optim.Adam(model.parameters())
        before = [one.tolist() for one in model.state_dict().values()]
        kept = td.asarray([1.0, 2.0])

        def assign(x):
            kept[0] = x

        def assign_where(x):
            kept[kept < 0] = x

        def assign_all(x):
            kept[...] = x

        for wrong in (lambda x: kept.__iadd__(x), assign, assign_where, assign_all, lambda x: kept._exchange(x + kept), lambda x: x.__iadd__(kept._exchange(td.zeros(2)) or kept)):
            with self.assertRaisesRegex(td.InvalidArgumentError, "the function's `state` names what it may change"):
                td.function(lambda x: (wrong(x), x)[1])(td.asarray(1.0))
        for state in None, [optimiser], [model]:
            with self.assertRaisesRegex(td.InvalidArgumentError, "state"):
                td.function(self.step(model, optimiser), state=state)(self.x[0], self.y[0])
            self.assertEqual([one.tolist() for one in model.state_dict().values()], before)
        self.assertEqual(kept.tolist(), [1, 2])
        for make in td.optim.Adam, td.optim.SGD:
            fresh = make(model.parameters())
            with self.assertRaisesRegex(td.InvalidArgumentError, "not among its state"):
                td.function(self.step(model, fresh), state=[model])(self.x[0], self.y[0])

    def test_an_optimiser_that_is_made_inside(self):
        calls = []

        def step(parameters, gradients, state):
            calls.append(1)
            optimiser = td.optim.Adam(parameters, lr=0.1, betas=(0.0, 0.999))
            if state:
                optimiser.load_state_dict(state)
            optimiser.step(gradients)
            return parameters, optimiser.state_dict()["state"]

        own, gradient = td.asarray([1.0, 2.0]), td.asarray([0.5, -3.0])
        eager, mine, state = td.optim.Adam([own], lr=0.1, betas=(0.0, 0.999)), [td.asarray([1.0, 2.0])], {}
        recorded = td.function(lambda p, g, s: step(p, g, {"state": s, "param_groups": [{"params": [0], "betas": (0.0, 0.999)}]} if s else None))
        for _ in range(4):
            eager.step([gradient])
            mine, state = recorded(mine, [gradient], state)
        self.assertEqual((float(state[0]["step"]), len(calls)), (4, 2))
        for a, b in zip(mine[0].tolist(), own.tolist()):
            self.assertAlmostEqual(a, b, delta=1e-6)

    def test_a_function_that_cannot_be_recorded_leaves_the_state_as_it_is(self):
        x = td.asarray([1.0, 2.0])

        def wrong():
            x.__iadd__(1.0)
            raise ZeroDivisionError

        with self.assertRaises(ZeroDivisionError):
            td.function(wrong, state=x)()
        self.assertEqual((x + 1).tolist(), [2, 3])
        with self.assertRaisesRegex(TypeError, "the state has a str"):
            td.function(wrong, state=["x"])


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

    def test_a_loop_becomes_a_part_of_a_recorded_function(self):
        xs, w = td.asarray([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), td.asarray([0.5, 2.0])

        def loop(w, xs):
            carry, ys = td.scan(lambda c, x: (c * w + x, {"y": td.sum(c), "n": None}), td.zeros((2,)), xs)
            return td.sum(carry * carry), ys["y"]

        eager, recorded = loop(w, xs), td.function(loop)(w, xs)
        self.assertEqual(recorded[0].tolist(), eager[0].tolist())
        self.assertEqual(recorded[1].tolist(), eager[1].tolist())

        @td.function
        def slope(w):
            return td.grad(lambda w: loop(w, xs)[0])(w)

        # carry = x0 w² + x1 w + x2; the gradient is 2 carry (2 x0 w + x1)
        expected = [2 * (a * v * v + b * v + c) * (2 * a * v + b) for v, (a, b, c) in zip([0.5, 2.0], [(1, 3, 5), (2, 4, 6)])]
        self.assertEqual(slope(w).tolist(), expected)
        kept = td.function(lambda c, x: (c + x, c))
        self.assertEqual(td.function(lambda xs: td.scan(kept, td.zeros((2,)), xs)[0])(xs).tolist(), [9, 12])

    def test_errors(self):
        x = td.asarray([1.0, 2.0])
        for message, call in {
            "pair": lambda: td.scan(lambda c, i: c, x, length=2),
            "another structure": lambda: td.scan(lambda c, i: ((c, c), None), x, length=2),
            "where init has": lambda: td.scan(lambda c, i: (td.sum(c), None), x, length=2),
            "neither init nor xs": lambda: td.scan(lambda c, i: (c, None), None, length=2),
        }.items():
            with self.assertRaisesRegex(TypeError, message):
                call()
        for call in (lambda: td.scan(lambda c, i: (c, None), x), lambda: td.scan(lambda c, i: (c, None), x, x, length=3), lambda: td.scan(lambda c, i: (c, None), x, length=0)):
            with self.assertRaises(ValueError):
                call()
        self.assertEqual((x + 1).tolist(), [2, 3])


if __name__ == "__main__":
    unittest.main()
