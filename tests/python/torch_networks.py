"""Runs the cases of networks.py with PyTorch, and writes networks.json: python torch_networks.py"""

import json
import pathlib

import torch

import networks


def tensor(given, seed):
    """An input: of a shape, of several shapes (states), or of lists of numbers."""
    if isinstance(given, tuple) and given and isinstance(given[0], tuple):
        return tuple(tensor(one, seed + 10 + i) for i, one in enumerate(given))
    if isinstance(given, tuple):
        return torch.tensor(networks.filled(given, seed)).reshape(given)
    return torch.tensor(given)


def flat(trees):
    for one in trees:
        if isinstance(one, tuple):
            yield from flat(one)
        elif one is not None:
            yield one


def rounded(x):
    return [float(f"{one:.7g}") for one in x.detach().double().flatten().tolist()]


def run_module(case):
    net = getattr(torch.nn, case["name"])(*case["args"], **case["kwargs"])
    for i, (name, parameter) in enumerate(sorted(net.named_parameters())):
        parameter.data = tensor(tuple(parameter.shape), 50 + i)
    net.train(case["train"])
    inputs = [tensor(one, i) for i, one in enumerate(case["inputs"])]
    for x in flat(inputs):
        if x.is_floating_point():
            x.requires_grad_()
    call = {name: tensor(one, 30) if isinstance(one, (tuple, list)) else one for name, one in case["call"].items()}
    results = list(flat([net(*inputs, **call)]))
    sum((y * tensor(tuple(y.shape), 90 + i)).sum() for i, y in enumerate(results)).backward()
    grads = {name: rounded(parameter.grad) for name, parameter in net.named_parameters()}
    return {
        "results": [rounded(y) for y in results],
        "shapes": [list(y.shape) for y in results],
        "inputs": [rounded(x.grad) if x.grad is not None else None for x in flat(inputs) if x.is_floating_point()],
        "parameters": grads,
        "state": {name: list(x.shape) for name, x in net.state_dict().items()},
        "buffers": {name: rounded(x) for name, x in net.named_buffers()},
    }


def run_optimiser(kind, options):
    parameters = [tensor((3, 2), 1).requires_grad_(), tensor((4,), 2).requires_grad_()]
    optimiser = getattr(torch.optim, kind)(parameters, **options)
    for step in range(networks.STEPS):
        for i, parameter in enumerate(parameters):
            parameter.grad = tensor(tuple(parameter.shape), 10 * step + i)
        optimiser.step()
    state = {name: rounded(x) for name, x in optimiser.state_dict()["state"].get(0, {}).items() if x is not None and x.ndim}
    return {"parameters": [rounded(one) for one in parameters], "state": state}


def run_schedule(kind, options):
    optimiser = torch.optim.SGD([torch.zeros(1)], lr=0.5)
    schedule = getattr(torch.optim.lr_scheduler, kind)(optimiser, **options)
    rates = [schedule.get_last_lr()[0]]
    for _ in range(networks.EPOCHS):
        optimiser.step()
        schedule.step()
        rates.append(schedule.get_last_lr()[0])
    return rates


def main():
    found = {
        "torch": torch.__version__,
        "modules": {name: run_module(case) for name, case in networks.MODULES.items()},
        "optimisers": {name: run_optimiser(*case) for name, case in networks.OPTIMISERS.items()},
        "schedules": {name: run_schedule(*case) for name, case in networks.SCHEDULES.items()},
    }
    lines = [f'"torch": {json.dumps(found.pop("torch"))}']
    for kind, cases in found.items():
        rows = ",\n".join(f"  {json.dumps(name)}: {json.dumps(case)}" for name, case in cases.items())
        lines.append(f'"{kind}": {{\n{rows}\n }}')
    file = pathlib.Path(__file__).with_name("networks.json")
    file.write_text("{" + ",\n ".join(lines) + "}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
