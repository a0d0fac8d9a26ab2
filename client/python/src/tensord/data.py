"""Data sets and loaders. A loader makes the next batch, and uploads it, in a thread of its own while the device works on this one.

    loader = td.data.DataLoader(td.data.TensorDataset(images, labels), batch_size=128, shuffle=True)
    for x, y in loader:
        …

A data set is anything with len() and [index], as in PyTorch; its samples are numbers, arrays of any library, and dictionaries, lists and tuples of these.
"""

from __future__ import annotations

import os
import queue
import threading
from typing import Any, Callable, Iterator, Optional, Sequence

from . import _core
from . import random as _random
from . import trees as _trees
from .array import Array
from .creation import asarray

_foreign = ("__array__", "__dlpack__")


class Dataset:
    """What subclasses define: __len__() and __getitem__(index). A data set that has take(indices) gives a whole batch, which is faster."""

    def __len__(self) -> int:
        raise NotImplementedError(f"{type(self).__name__} has no __len__()")

    def __getitem__(self, index: int) -> Any:
        raise NotImplementedError(f"{type(self).__name__} has no __getitem__()")


class TensorDataset(Dataset):
    """Samples are tuples of the slices of arrays along their first axis. Arrays of tensord stay on their device, where batches are taken of them; those of
    NumPy stay in this process, and batches are uploaded."""

    def __init__(self, *arrays: Any) -> None:
        if not arrays:
            raise ValueError("TensorDataset() without arrays")
        lengths = {len(array) for array in arrays}
        if len(lengths) != 1:
            raise ValueError(f"the arrays have different numbers of samples: {sorted(lengths)}")
        self.arrays = arrays

    def __len__(self) -> int:
        return len(self.arrays[0])

    def __getitem__(self, index: Any) -> tuple[Any, ...]:
        return tuple(array[index] for array in self.arrays)

    def take(self, indices: Sequence[int]) -> tuple[Any, ...]:
        """The samples with these numbers, as arrays with an axis for them."""
        first, last = (indices[0], indices[-1]) if len(indices) else (0, -1)
        if list(indices) == list(range(first, last + 1)):
            return tuple(array[first : last + 1] for array in self.arrays)
        return tuple(_take(array, indices) for array in self.arrays)


def _take(array: Any, indices: Sequence[int]) -> Any:
    if isinstance(array, Array):
        return _core.take(array, asarray(list(indices), dtype=_core.int64, device=array.device), 0)
    if any(hasattr(array, name) for name in _foreign):
        return array[list(indices)]
    return [array[i] for i in indices]


class Subset(Dataset):
    """Some of a data set's samples."""

    def __init__(self, dataset: Any, indices: Sequence[int]) -> None:
        self.dataset, self.indices = dataset, list(indices)

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, index: int) -> Any:
        return self.dataset[self.indices[index]]


def default_collate(samples: Sequence[Any]) -> Any:
    """A batch of samples that have one structure: each leaf is an array with an axis more, in front; words stay in a list."""
    first = samples[0]
    if isinstance(first, dict):
        return {name: default_collate([sample[name] for sample in samples]) for name in first}
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return type(first)(*(default_collate(each) for each in zip(*samples)))
    if isinstance(first, (list, tuple)):
        return type(first)(default_collate(each) for each in zip(*samples))
    if isinstance(first, (str, bytes)):
        return list(samples)
    if isinstance(first, Array):
        return _core.stack(list(samples), axis=0)
    if hasattr(first, "__array__"):
        import numpy  # type: ignore

        return numpy.stack([numpy.asarray(sample) for sample in samples])
    return asarray(list(samples))


class DataLoader:
    """Batches of a data set, one pass for each `for`.

    batch_size      samples in a batch; the last one may have fewer, with drop_last it is left out
    shuffle         another order in each pass, of `generator`, a td.random.Generator, or the module's own
    collate_fn      makes a batch of a list of samples
    device          where the batches go; None: arrays of tensord stay where they are, all others go to the current device
    prefetch        how many batches are made and uploaded ahead in a thread; 0: none, they are made in the thread of the loop
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int = 1,
        shuffle: bool = False,
        drop_last: bool = False,
        collate_fn: Optional[Callable[[list[Any]], Any]] = None,
        device: Any = None,
        generator: Optional[_random.Generator] = None,
        prefetch: int = 1,
    ) -> None:
        if batch_size < 1 or prefetch < 0:
            raise ValueError(f"a batch size of {batch_size}, and {prefetch} batches ahead")
        self.dataset, self.batch_size, self.shuffle, self.drop_last = dataset, batch_size, shuffle, drop_last
        self.collate_fn, self.device, self.generator, self.prefetch = collate_fn, device, generator, prefetch

    def __len__(self) -> int:
        count = len(self.dataset)
        return count // self.batch_size if self.drop_last else -(-count // self.batch_size)

    def _order(self) -> Sequence[int]:
        count = len(self.dataset)
        if not self.shuffle:
            return range(count)
        return (self.generator or _random).permutation(count).tolist()

    def _batch(self, indices: Sequence[int], device: Any) -> Any:
        whole = getattr(self.dataset, "take", None) if self.collate_fn is None else None
        batch = whole(indices) if whole else (self.collate_fn or default_collate)([self.dataset[i] for i in indices])
        return _trees.map(lambda leaf: _upload(leaf, device, self.device is not None), batch)

    def _batches(self, device: Any) -> Iterator[Any]:
        order = self._order()
        for i in range(len(self)):
            with device:  # a thread of its own has another current one
                batch = self._batch(order[i * self.batch_size : (i + 1) * self.batch_size], device)
            yield batch
            del batch

    def __iter__(self) -> Iterator[Any]:
        device = _core.device(self.device)  # the current one is that of the loop's thread
        return self._ahead(device) if self.prefetch else self._batches(device)

    def _ahead(self, device: Any) -> Iterator[Any]:
        ready: queue.Queue[tuple[str, Any]] = queue.Queue(self.prefetch)
        stopped = threading.Event()

        def put(kind: str, item: Any) -> bool:
            while not stopped.is_set():
                try:
                    ready.put((kind, item), timeout=0.1)
                    return True
                except queue.Full:
                    continue
            return False

        def work() -> None:
            try:
                for batch in self._batches(device):
                    if not put("batch", batch):
                        return
                    del batch  # its memory is the loop's
                put("end", None)
            except BaseException as error:  # raised in the loop
                put("error", error)

        owner = os.getpid()
        thread = threading.Thread(target=work, name="tensord DataLoader", daemon=True)
        thread.start()
        try:
            while True:
                if os.getpid() != owner:
                    raise RuntimeError("a loop over a DataLoader cannot go on in a child of fork(): its thread is the parent's")
                kind, item = ready.get()
                if kind == "end":
                    return
                if kind == "error":
                    raise item
                yield item
                del item
        finally:
            if os.getpid() == owner:
                stopped.set()
                thread.join()


def _upload(leaf: Any, device: Any, move: bool) -> Any:
    if isinstance(leaf, Array):
        return leaf.to_device(device) if move else leaf
    if isinstance(leaf, (bool, int, float, complex)) or any(hasattr(leaf, name) for name in _foreign):
        return asarray(leaf, device=device)
    return leaf
