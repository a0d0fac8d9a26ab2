"""A dictionary of arrays, such as a model's parameters: moved to another device, saved, and loaded again.

Run: python move_and_save.py [--file FILE]
"""

import argparse
import os
import tempfile

import tensord as td
from start import connect


def to_device(tree, device):
    """Dictionaries, lists and tuples of arrays, with all arrays on a device. Does not wait for the copies."""
    if isinstance(tree, dict):
        return {name: to_device(value, device) for name, value in tree.items()}
    if isinstance(tree, (list, tuple)):
        return type(tree)(to_device(value, device) for value in tree)
    return tree.to_device(device) if isinstance(tree, td.Array) else tree


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--file", default=os.path.join(tempfile.gettempdir(), f"tensord-example-{os.getpid()}.safetensors"))
    options = parser.parse_args()
    names = [device.name for device in connect() if device.state == "ready"]
    rng = td.random.Generator(1)
    model = {
        "layer1.weight": rng.normal(scale=0.1, size=(64, 32)),
        "layer1.bias": td.zeros(64),
        "layer2.weight": td.astype(rng.normal(scale=0.1, size=(10, 64)), td.bfloat16),
        "steps": td.asarray(0),
    }
    moved = to_device(model, names[-1])
    print(f"from {names[0]} to {sorted({x.device.name for x in moved.values()})[0]}: {len(moved)} arrays, {sum(x.nbytes for x in moved.values())} bytes")

    td.save_file(moved, options.file)
    print(f"saved: {os.path.getsize(options.file)} bytes")
    with td.device(names[0]):
        loaded = td.load_file(options.file)
    same = all(bool(td.all(loaded[name] == x)) and loaded[name].dtype is x.dtype for name, x in model.items())
    print(f"loaded on {loaded['layer1.bias'].device.name}: {'the same values' if same else 'OTHER VALUES'}")
    os.remove(options.file)
    return 0 if same else 1


if __name__ == "__main__":
    raise SystemExit(main())
