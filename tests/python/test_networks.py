"""td.nn, td.optim and td.data: modules, losses, optimisers and schedules give PyTorch's numbers (networks.json), and PyTorch's names."""

import copy
import json
import os
import pathlib
import pickle
import signal
import tempfile
import threading
import unittest

import tensord as td
from tensord import trees

import networks
from session import setUpModule  # noqa: F401 - starts the daemon

with open(pathlib.Path(__file__).with_name("networks.json"), encoding="utf-8") as file:
    NUMBERS = json.load(file)


def array(given, seed):
    if isinstance(given, tuple) and given and isinstance(given[0], tuple):
        return tuple(array(one, seed + 10 + i) for i, one in enumerate(given))
    return td.asarray(networks.filled(given, seed) if isinstance(given, tuple) else given)


def flat(x):
    return td.reshape(x, (-1,)).tolist()


class Numbers(unittest.TestCase):
    def close(self, found, expected, words):
        self.assertEqual(len(found), len(expected), words)
        for a, b in zip(found, expected):
            self.assertLessEqual(abs(a - b), 2e-5 + 2e-5 * abs(b), f"{words}: {found} is not {expected}")

    def check(self, case, expected):
        net = getattr(td.nn, case["name"])(*case["args"], **case["kwargs"])
        self.assertEqual({name: list(x.shape) for name, x in net.state_dict().items()}, expected["state"])
        names = sorted(name for name, _ in net.named_parameters())
        net.load_state_dict({name: networks.filled(dict(net.named_parameters())[name].shape, 50 + i) for i, name in enumerate(names)}, strict=False)
        net.train(case["train"])
        inputs = [array(one, i) for i, one in enumerate(case["inputs"])]
        call = {name: array(one, 30) if isinstance(one, (tuple, list)) else one for name, one in case["call"].items()}
        buffers = {name: x.copy() for name, x in net.named_buffers()}

        def weighed(results):
            return sum((td.sum(y * array(y.shape, 90 + i)) for i, y in enumerate(results)), td.asarray(0.0))

        def loss(parameters, floats):
            numbers = iter(floats)
            given = trees.map(lambda x: next(numbers) if x.dtype is td.float32 else x, inputs)
            results = trees.leaves(td.nn.functional_call(net, {**parameters, **{name: x.copy() for name, x in buffers.items()}}, tuple(given), call))
            return weighed(results), results

        floats = [x for x in trees.leaves(inputs) if x.dtype is td.float32]
        # As a function of parameters and inputs
        gradients, results = td.grad(loss, argnums=(0, 1), has_aux=True)(dict(net.named_parameters()), floats)
        self.assertEqual([list(y.shape) for y in results], expected["shapes"])
        for y, numbers in zip(results, expected["results"]):
            self.close(flat(y), numbers, "result")
        for i, (gradient, numbers) in enumerate(zip(gradients[1], expected["inputs"])):
            self.close(flat(gradient), numbers or [0.0] * gradient.size, f"gradient of input {i}")
        self.assertEqual(set(gradients[0]), set(expected["parameters"]))
        for name, gradient in gradients[0].items():
            self.close(flat(gradient), expected["parameters"][name], f"gradient of {name}")
        # and by backward()
        for x in floats:
            x.requires_grad_()
        weighed(trees.leaves(net(*inputs, **call))).backward()
        for name, parameter in net.named_parameters():
            self.close(flat(parameter.grad), expected["parameters"][name], f"grad of {name}")
        for i, (x, numbers) in enumerate(zip(floats, expected["inputs"])):
            if numbers:
                self.close(flat(x.grad), numbers, f"grad of input {i}")
        for name, numbers in expected["buffers"].items():
            self.close(flat(dict(net.named_buffers())[name]), numbers, name)

    def test_optimisers(self):
        for name, (kind, options) in networks.OPTIMISERS.items():
            for more in ({}, {"capturable": True}) if "Adam" in kind else ({},):
                with self.subTest(name, **more):
                    parameters = [array((3, 2), 1).requires_grad_(), array((4,), 2).requires_grad_()]
                    optimiser = getattr(td.optim, kind)(parameters, **options, **more)
                    for step in range(networks.STEPS):
                        if step % 2:
                            for i, parameter in enumerate(parameters):
                                parameter.grad = array(parameter.shape, 10 * step + i)
                            optimiser.step()
                        else:
                            optimiser.step({"w": array((3, 2), 10 * step), "b": array((4,), 10 * step + 1)})
                    for x, expected in zip(parameters, NUMBERS["optimisers"][name]["parameters"]):
                        self.close(flat(x), expected, "parameter")
                    state = optimiser.state_dict()["state"][0]
                    for key, expected in NUMBERS["optimisers"][name]["state"].items():
                        self.close(flat(state[key]), expected, key)

    def test_schedules(self):
        for name, (kind, options) in networks.SCHEDULES.items():
            with self.subTest(name):
                optimiser = td.optim.SGD([td.zeros(1)], lr=0.5)
                schedule = getattr(td.optim, kind)(optimiser, **options)
                rates = [optimiser.param_groups[0]["lr"]]
                for _ in range(networks.EPOCHS):
                    optimiser.step()
                    schedule.step()
                    rates += schedule.get_last_lr()
                self.close(rates, NUMBERS["schedules"][name], "rate")


def number_test(name):
    return lambda self: self.check(networks.MODULES[name], NUMBERS["modules"][name])


for _name in networks.MODULES:
    setattr(Numbers, "test_" + _name.replace(" ", "_").replace(",", ""), number_test(_name))


class Net(td.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = td.nn.Linear(2, 4)
        self.blocks = td.nn.ModuleList([td.nn.Linear(4, 4), td.nn.BatchNorm1d(4)])
        self.scale = td.nn.Parameter(td.ones(4))
        self.register_buffer("offset", td.zeros(4))
        self.words = "no array"

    def forward(self, x):
        x = self.first(x)
        for block in self.blocks:
            x = block(x)
        return x * self.scale + self.offset


class Modules(unittest.TestCase):
    def test_names_are_pytorchs(self):
        names = "scale offset first.weight first.bias blocks.0.weight blocks.0.bias blocks.1.weight blocks.1.bias blocks.1.running_mean "
        names += "blocks.1.running_var blocks.1.num_batches_tracked"
        net = Net()
        self.assertEqual(list(net.state_dict()), names.split())
        self.assertEqual([name for name, _ in net.named_parameters()][:3], ["scale", "first.weight", "first.bias"])
        self.assertEqual(len(list(net.modules())), 5)
        self.assertIn("(0): Linear(in_features=4, out_features=4, bias=True)", repr(net))

    def test_a_parameter_that_two_modules_share_comes_once(self):
        net = td.nn.Sequential(td.nn.Linear(3, 3), td.nn.Linear(3, 3))
        net[1].weight = net[0].weight
        self.assertEqual([name for name, _ in net.named_parameters()], ["0.weight", "0.bias", "1.bias"])
        self.assertEqual(len(net.state_dict()), 4)
        doubled = td.nn.functional_call(net, {"0.weight": net[0].weight * 0}, td.ones((1, 3)))
        self.assertEqual(doubled.tolist()[0], net[1].bias.tolist())

    def test_the_state_is_a_picture_of_now(self):
        net = td.nn.Linear(2, 1)
        state = net.state_dict()
        before = state["weight"].tolist()
        td.sum(net(td.ones((1, 2)))).backward()
        td.optim.SGD(net.parameters(), lr=1.0).step()
        self.assertEqual(state["weight"].tolist(), before)
        self.assertNotEqual(net.weight.tolist(), before)
        weight = net.weight
        net.load_state_dict(state)
        self.assertEqual(net.weight.tolist(), before)
        self.assertIs(net.weight, weight)
        self.assertTrue(weight.requires_grad and weight.is_leaf)

    def test_safetensors(self):
        net, other = Net(), Net()
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "net.safetensors")
            td.save_file(net.state_dict(), path)
            other.load_state_dict(td.load_file(path))
        for name, x in net.state_dict().items():
            self.assertEqual(x.tolist(), other.state_dict()[name].tolist())

    def test_copies_and_pickles(self):
        net = Net().eval()
        x = td.ones((1, 2))
        for other in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
            self.assertEqual(other(x).tolist(), net(x).tolist())
            self.assertEqual(len(list(other.parameters())), len(list(net.parameters())))
            self.assertTrue(all(one.requires_grad and one.is_leaf for one in other.parameters()))
            with td.no_grad():
                other.scale += 1.0
            self.assertNotEqual(other.scale.tolist(), net.scale.tolist())

    def test_errors_of_states(self):
        net = td.nn.Linear(2, 1)
        with self.assertRaisesRegex(KeyError, r"lacks \['bias'\], and has \['more'\]"):
            net.load_state_dict({"weight": td.zeros((1, 2)), "more": td.zeros(1)})
        self.assertEqual(net.load_state_dict({"weight": td.zeros((1, 2)), "more": td.zeros(1)}, strict=False), (["bias"], ["more"]))
        with self.assertRaisesRegex(ValueError, r"weight has the shape \(1, 2\), and its value \(2, 1\)"):
            net.load_state_dict({"weight": td.zeros((2, 1)), "bias": td.zeros(1)})
        with self.assertRaisesRegex(KeyError, "no parameter or buffer what"):
            td.nn.functional_call(net, {"what": td.zeros(1)}, td.zeros((1, 2)))

    def test_attributes(self):
        net = Net()
        with self.assertRaisesRegex(AttributeError, "has no attribute 'third'"):
            net.third
        net.scale = None
        self.assertNotIn("scale", net.state_dict())
        net.offset = td.ones(4)
        self.assertEqual(net.state_dict()["offset"].tolist(), [1] * 4)
        del net.first
        self.assertFalse(hasattr(net, "first"))
        net.scale = "words"
        self.assertEqual(net.scale, "words")

        class Early(td.nn.Module):
            def __init__(self):
                self.layer = td.nn.Linear(1, 1)

        with self.assertRaisesRegex(AttributeError, "super"):
            Early()

    def test_frozen_parameters(self):
        net = td.nn.Sequential(td.nn.Linear(2, 2), td.nn.Linear(2, 1))
        net[0].requires_grad_(False)
        td.sum(net(td.ones((1, 2)))).backward()
        self.assertIsNone(net[0].weight.grad)
        self.assertIsNotNone(net[1].weight.grad)
        self.assertEqual(len(list(net.parameters())), 4)

    def test_another_device_and_dtype(self):
        net = Net()
        optimiser = td.optim.SGD(net.parameters(), lr=0.1)
        net.to("cpu:1")
        self.assertTrue(all(x.device.name == "cpu:1" for x in net.state_dict().values()))
        x = td.asarray([[1.0, 2.0], [3.0, 5.0], [-1.0, 0.0]], device="cpu:1")
        td.sum(net(x) * x[:, :1]).backward()
        optimiser.step()  # it still knows the parameters
        self.assertNotEqual(net.scale.tolist(), [1] * 4)
        net.to("cpu:0", td.float64)
        self.assertEqual((net.scale.device.name, net.scale.dtype, net.scale.grad.dtype), ("cpu:0", td.float64, td.float64))
        self.assertEqual(net.blocks[1].num_batches_tracked.dtype, td.int64)
        td.sum(net(td.ones((3, 2), dtype=td.float64))).backward()

    def test_running_statistics_do_not_keep_what_made_them(self):
        from tensord import _core

        base = _core._graph_length()
        norm = td.nn.BatchNorm1d(2)
        x = td.ones((3, 2)).requires_grad_()
        for _ in range(3):
            td.sum(norm(x)).backward()
        self.assertFalse(norm.running_mean.requires_grad)
        self.assertEqual(norm.num_batches_tracked.item(), 3)
        self.assertEqual(_core._graph_length(), base)

    def test_running_statistics_without_a_momentum_are_means_of_all_batches(self):
        norm = td.nn.BatchNorm1d(2, momentum=None)
        batches = [td.random.normal(size=(5, 2)) for _ in range(3)]
        for batch in batches:
            norm(batch)
        means = sum(td.mean(batch, axis=0) for batch in batches) / 3
        variances = sum(td.var(batch, axis=0, correction=1) for batch in batches) / 3
        for found, expected in ((norm.running_mean, means), (norm.running_var, variances)):
            self.assertLess(td.max(td.abs(found - expected)).item(), 1e-5)
        self.assertIn("momentum=None", repr(norm))

    def test_inputs_without_a_batch(self):
        for axes, (conv, *pools) in enumerate(
            (
                (td.nn.Conv1d, td.nn.MaxPool1d, td.nn.AvgPool1d, td.nn.AdaptiveAvgPool1d),
                (td.nn.Conv2d, td.nn.MaxPool2d, td.nn.AvgPool2d, td.nn.AdaptiveAvgPool2d),
                (td.nn.Conv3d, td.nn.MaxPool3d, td.nn.AvgPool3d, td.nn.AdaptiveAvgPool3d),
            ),
            1,
        ):
            x = td.random.normal(size=(2,) + (6,) * axes)
            for layer in (conv(2, 3, 2, padding="same"), conv(2, 4, 3, groups=2), *(pool(2) for pool in pools)):
                alone, batch = layer(x), layer(td.expand_dims(x, axis=0))
                self.assertEqual((alone.shape, flat(alone)), (batch.shape[1:], flat(batch)))

    def test_a_weight_of_positive_targets_alone(self):
        """PyTorch's numbers."""
        loss = td.nn.BCEWithLogitsLoss(pos_weight=td.asarray([2.0, 0.5]))
        target = td.asarray([[1.0, 0.25], [0.0, 1.0]])
        value, slope = td.value_and_grad(lambda x: loss(x, target))(td.asarray([[1.0, -2.0], [0.5, 3.0]]))
        self.assertAlmostEqual(value.item(), 0.4964890, 6)
        for found, expected in zip(flat(slope), [-0.1344707, -0.0051744, 0.1556148, -0.0059282]):
            self.assertAlmostEqual(found, expected, 6)

    def test_dropout(self):
        layer = td.nn.Dropout(0.25)
        x = td.ones((200, 100)).requires_grad_()
        y = layer(x)
        kept = y > 0
        self.assertEqual(sorted(set(td.unique_values(y).tolist())), [0, td.asarray(4 / 3).item()])
        self.assertAlmostEqual(td.mean(td.astype(kept, td.float32)).item(), 0.75, delta=0.02)
        td.sum(y).backward()
        self.assertEqual(td.max(td.abs(x.grad - y)).item(), 0)
        again = layer(x) > 0
        self.assertAlmostEqual(td.mean(td.astype(kept == again, td.float32)).item(), 0.75**2 + 0.25**2, delta=0.02)
        self.assertIs(layer.eval()(x), x)
        self.assertEqual(layer.draws.item(), 2)
        self.assertEqual(td.sum(td.nn.Dropout(1.0)(x)).item(), 0)
        self.assertEqual(list(layer.state_dict()), [])
        with self.assertRaises(ValueError):
            td.nn.Dropout(1.5)

    def test_dropout_follows_the_seed(self):
        def mask():
            td.random.seed(5)
            return td.nn.Dropout(0.5)(td.ones(64)).tolist()

        self.assertEqual(mask(), mask())

    def test_clipping(self):
        x, y = td.asarray([3.0]).requires_grad_(), td.asarray([4.0]).requires_grad_()
        td.sum(x * x / 2 + y * y / 2).backward()
        norm = td.nn.utils.clip_grad_norm_([x, y], 1.0)
        self.assertEqual(norm.item(), 5)
        self.assertAlmostEqual(x.grad.item(), 0.6, places=5)
        td.nn.utils.clip_grad_value_([x, y], 0.7)
        self.assertAlmostEqual(y.grad.item(), 0.7, places=6)

    def test_arguments_that_do_not_fit(self):
        for make, error in (
            (lambda: td.nn.Conv2d(3, 4, (1, 2, 3)), ValueError),
            (lambda: td.nn.Conv1d(3, 4, 3, groups=2), ValueError),
            (lambda: td.nn.Conv1d(3, 4, 3, padding="same", stride=2), ValueError),
            (lambda: td.nn.Conv2d(1, 1, 1)(td.ones((1, 2))), td.ShapeError),
            (lambda: td.nn.MaxPool1d(1)(td.ones((1, 1, 1, 2))), td.ShapeError),
            (lambda: td.nn.BatchNorm2d(1)(td.ones((1, 1, 2))), td.ShapeError),
            (lambda: td.nn.LSTM(2, 3)(td.ones((4, 3))), td.ShapeError),
            (lambda: td.nn.MultiheadAttention(4, 3), ValueError),
            (lambda: td.nn.MSELoss(reduction="all"), ValueError),
            (lambda: td.optim.SGD(td.ones(3)), TypeError),
            (lambda: td.optim.SGD([]), ValueError),
            (lambda: td.optim.Adam([td.ones(1)], lr=-1.0), ValueError),
            (lambda: td.optim.SGD([td.ones(1)]).step([td.ones(1), td.ones(1)]), ValueError),
        ):
            with self.assertRaises(error):
                make()


class Optimisers(unittest.TestCase):
    def test_groups_and_parameters_without_gradients(self):
        a, b, c = (td.asarray([1.0]).requires_grad_() for _ in range(3))
        optimiser = td.optim.SGD([{"params": [a]}, {"params": [b, c], "lr": 0.5}], lr=0.1)
        td.sum(a + b).backward()
        optimiser.step()
        self.assertEqual([x.item() for x in (b, c)], [0.5, 1])
        self.assertAlmostEqual(a.item(), 0.9, places=6)
        optimiser.zero_grad()
        self.assertIsNone(a.grad)
        with self.assertRaisesRegex(ValueError, "twice"):
            optimiser.add_param_group({"params": [a]})

    def test_states_of_pytorch(self):
        """Its SGD counts no steps; options that are not here are not left out without a word."""
        x = td.asarray([1.0]).requires_grad_()
        optimiser = td.optim.SGD([x], lr=0.1, momentum=0.5)
        group = {**optimiser.state_dict()["param_groups"][0], "dampening": 0, "maximize": False, "foreach": None}
        optimiser.load_state_dict({"state": {0: {"momentum_buffer": [2.0]}}, "param_groups": [group]})
        optimiser.step([td.asarray([1.0])])
        self.assertAlmostEqual(x.item(), 0.8, places=6)
        optimiser.load_state_dict({"state": {0: {"momentum_buffer": None}}, "param_groups": [group]})
        optimiser.step([td.asarray([1.0])])
        self.assertAlmostEqual(x.item(), 0.7, places=6)
        for option in ({"maximize": True}, {"dampening": 0.5}):
            with self.assertRaisesRegex(ValueError, next(iter(option))):
                optimiser.load_state_dict({"state": {}, "param_groups": [{**group, **option}]})

    def test_parameters_of_two_devices(self):
        parameters = [td.ones(2, device=name).requires_grad_() for name in ("cpu:0", "cpu:1")]
        optimiser = td.optim.Adam(parameters, lr=0.1)
        optimiser.step([td.ones(2, device=name) for name in ("cpu:0", "cpu:1")])
        for x in parameters:
            self.assertAlmostEqual(x[0].item(), 0.9, places=5)

    def test_the_state_goes_on_elsewhere(self):
        def steps(optimiser, x, count):
            for _ in range(count):
                optimiser.zero_grad()
                td.sum(x * x).backward()
                optimiser.step()

        for kind in ("SGD", "Adam", "RMSprop", "Adagrad"):
            options = {"momentum": 0.9} if kind == "SGD" else {}
            make = lambda x: getattr(td.optim, kind)([x], lr=0.1, **options)  # noqa: E731
            x = td.asarray([1.0, 2.0]).requires_grad_()
            first = make(x)
            steps(first, x, 2)
            y = x.copy().detach().requires_grad_()
            second = make(y)
            second.load_state_dict(first.state_dict())
            steps(first, x, 2)
            steps(second, y, 2)
            self.assertEqual(x.tolist(), y.tolist(), kind)


class Loaders(unittest.TestCase):
    def test_batches_in_order(self):
        data = td.data.TensorDataset(td.arange(10), td.arange(10) * 2)
        for prefetch in (0, 1, 3):
            loader = td.data.DataLoader(data, 4, prefetch=prefetch)
            self.assertEqual([[x.tolist(), y.tolist()] for x, y in loader][2], [[8, 9], [16, 18]])
            self.assertEqual(len(loader), 3)
        self.assertEqual(len(list(td.data.DataLoader(data, 4, drop_last=True))), 2)

    def test_shuffling(self):
        data = td.data.TensorDataset(td.arange(20))
        loader = td.data.DataLoader(data, 6, shuffle=True, generator=td.random.Generator(3))
        passes = [[x for (batch,) in loader for x in batch.tolist()] for _ in range(2)]
        self.assertEqual([sorted(one) for one in passes], [list(range(20))] * 2)
        self.assertNotEqual(passes[0], passes[1])
        again = td.data.DataLoader(data, 6, shuffle=True, generator=td.random.Generator(3))
        self.assertEqual([x for (batch,) in again for x in batch.tolist()], passes[0])

    def test_samples_of_other_kinds(self):
        samples = [{"x": [1.0 * i, 2.0], "y": i, "word": "abc"[i % 3]} for i in range(5)]
        batch = list(td.data.DataLoader(samples, 3))[1]
        self.assertEqual((batch["y"].tolist(), batch["word"]), ([3, 4], ["a", "b"]))
        self.assertEqual([each.tolist() for each in batch["x"]], [[3, 4], [2, 2]])
        pairs = [(td.ones(2) * i, i) for i in range(3)]
        x, y = next(iter(td.data.DataLoader(td.data.Subset(pairs, [2, 0]), 2)))
        self.assertEqual((x.tolist(), y.tolist()), ([[2, 2], [0, 0]], [2, 0]))
        batch = next(iter(td.data.DataLoader(pairs, 2, collate_fn=lambda samples: {"n": len(samples)})))
        self.assertEqual(batch["n"].item(), 2)

    def test_the_device(self):
        loader = td.data.DataLoader([1.0, 2.0], 2, device="cpu:1")
        self.assertEqual(next(iter(loader)).device.name, "cpu:1")
        with td.device("cpu:1"):
            self.assertEqual(next(iter(td.data.DataLoader([1.0, 2.0], 2))).device.name, "cpu:1")

    def test_one_batch_is_made_while_another_is_in_use(self):
        """The second sample is asked for though the loop has not asked for more than the first one."""
        asked = threading.Event()

        class Data(td.data.Dataset):
            def __len__(self):
                return 2

            def __getitem__(self, index):
                if index == 1:
                    asked.set()
                return float(index)

        batches = iter(td.data.DataLoader(Data()))
        next(batches)
        self.assertTrue(asked.wait(30))
        self.assertEqual(next(batches).tolist(), [1])

    def test_a_loop_does_not_go_on_in_a_child_of_fork(self):
        batches = iter(td.data.DataLoader(range(100)))
        next(batches)
        child = os.fork()
        if not child:
            code = 1
            signal.alarm(60)  # it would wait for ever
            try:
                next(batches)
                next(batches)
            except RuntimeError:
                code = 0
            finally:
                os._exit(code)
        status = os.waitpid(child, 0)[1]
        self.assertEqual(status, 0)
        self.assertEqual(next(batches).tolist(), [1])

    def test_errors_and_loops_that_end_early(self):
        class Data(td.data.Dataset):
            def __len__(self):
                return 100

            def __getitem__(self, index):
                if index == 3:
                    raise KeyError("sample 3")
                return float(index)

        with self.assertRaisesRegex(KeyError, "sample 3"):
            list(td.data.DataLoader(Data()))
        batches = iter(td.data.DataLoader(range(100)))
        next(batches)
        batches.close()
        self.assertFalse([one for one in threading.enumerate() if "DataLoader" in one.name])
        for make in (lambda: td.data.DataLoader([1], 0), lambda: td.data.TensorDataset(td.ones(2), td.ones(3)), lambda: td.data.TensorDataset()):
            with self.assertRaises(ValueError):
                make()


class Fit(unittest.TestCase):
    def test_it_trains_and_writes(self):
        td.random.seed(1)
        x = td.random.normal(size=(64, 3))
        y = x @ td.asarray([[1.0], [2.0], [-1.0]])
        net = td.nn.Linear(3, 1)
        optimiser = td.optim.Adam(net.parameters(), lr=0.1)
        written = []

        class Log:
            def add_scalar(self, name, value, step):
                written.append((name, step))

        loader = td.data.DataLoader(td.data.TensorDataset(x, y), 16, shuffle=True)
        schedule = td.optim.ExponentialLR(optimiser, 0.9)
        losses = td.nn.fit(net, loader, td.nn.MSELoss(), optimiser, 12, schedule=schedule, clip=10.0, log=Log(), bar=False)
        self.assertLess(losses[-1], losses[0] / 10)
        self.assertEqual(written[:5], [("loss", 0), ("loss", 1), ("loss", 2), ("loss", 3), ("epoch loss", 0)])
        self.assertAlmostEqual(optimiser.param_groups[0]["lr"], 0.1 * 0.9**12)
        self.assertEqual(len(td.nn.fit(net, loader, td.nn.MSELoss(), optimiser, 9, bar=False, after=lambda epoch, loss: epoch == 1)), 2)
        with self.assertRaisesRegex(ValueError, "no batches"):
            td.nn.fit(net, [], td.nn.MSELoss(), optimiser, bar=False)


if __name__ == "__main__":
    unittest.main()
