"""Arrays in dictionaries, lists and tuples, which may be nested: what JAX calls pytrees. Any other object is a leaf; None is a tree without
leaves."""

from __future__ import annotations

TYPE_CHECKING = False  # typing.TYPE_CHECKING, without the time that the import takes
if TYPE_CHECKING:
    from typing import Any, Callable


def flatten(tree: Any) -> tuple[list[Any], Any]:
    """The leaves of a tree, in its order (that of a dictionary's keys is the one in which they were inserted), and its structure."""
    leaves: list[Any] = []
    return leaves, _structure(tree, leaves)


def _structure(tree, leaves):
    if tree is None:
        return None
    if isinstance(tree, dict):
        return type(tree), list(tree), [_structure(one, leaves) for one in tree.values()]
    if isinstance(tree, (list, tuple)):
        return type(tree), None, [_structure(one, leaves) for one in tree]
    leaves.append(tree)
    return _LEAF


_LEAF = object()


def unflatten(structure: Any, leaves: list[Any]) -> Any:
    """The tree with this structure and other leaves."""
    return _build(structure, iter(leaves))


def _build(structure, leaves):
    if structure is None:
        return None
    if structure is _LEAF:
        return next(leaves)
    kind, keys, parts = structure
    values = [_build(part, leaves) for part in parts]
    if keys is not None:
        made = kind()  # what others take, such as defaultdict and Counter, is not pairs
        for key, value in zip(keys, values):
            made[key] = value
        return made
    return kind(*values) if hasattr(kind, "_fields") else kind(values)  # a named tuple takes its entries one by one


def map(function: Callable[..., Any], tree: Any, *more: Any) -> Any:
    """A tree of function(leaf), or of function(leaf, leaf of the next tree, …) for trees of the same structure."""
    leaves, structure = flatten(tree)
    others = []
    for other in more:
        found, its = flatten(other)
        if len(found) != len(leaves) or not same(structure, its):
            raise ValueError("the trees have different structures")
        others.append(found)
    return unflatten(structure, [function(*each) for each in zip(leaves, *others)])


def same(a: Any, b: Any) -> bool:
    """Whether two structures are the same."""
    if a is None or b is None or a is _LEAF or b is _LEAF:
        return a is b
    return a[0] is b[0] and a[1] == b[1] and len(a[2]) == len(b[2]) and all(same(x, y) for x, y in zip(a[2], b[2]))


def leaves(tree: Any) -> list[Any]:
    """The leaves of a tree."""
    return flatten(tree)[0]
