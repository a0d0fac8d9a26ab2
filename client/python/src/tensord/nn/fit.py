"""A loop that trains."""

from __future__ import annotations

import sys
from collections.abc import Sized
from typing import Any, Callable, Iterable, Optional

from ..array import Array
from .module import Module
from .utils import clip_grad_norm_

_AHEAD = 8  # steps that may be enqueued and not computed


def _bar(total: Optional[int], words: str, show: bool) -> Any:
    """tqdm's bar where it is installed; None without it, or if it is not wanted."""
    if not show:
        return None
    try:
        from tqdm.auto import tqdm  # type: ignore
    except ImportError:
        return None
    return tqdm(total=total, desc=words, file=sys.stderr)


def _writer(log: Any) -> Any:
    """`log` itself if it has add_scalar(), or TensorBoard's writer for the folder that it names."""
    if log is None or hasattr(log, "add_scalar"):
        return log
    try:
        from tensorboard.summary import Writer  # type: ignore
    except ImportError as error:
        raise ModuleNotFoundError("fit(log=FOLDER) needs TensorBoard; log may also be an object with add_scalar(name, value, step)") from error
    return Writer(str(log))


def fit(
    module: Module,
    loader: Iterable[Any],
    loss: Callable[[Any, Any], Array],
    optimiser: Any,
    epochs: int = 1,
    *,
    schedule: Any = None,
    clip: Optional[float] = None,
    log: Any = None,
    bar: bool = True,
    after: Optional[Callable[[int, float], Any]] = None,
) -> list[float]:
    """Trains a module on batches (x, y): loss(module(x), y), backward() and a step of the optimiser for each. Returns the mean loss of each epoch.

    schedule   has a step() after each epoch
    clip       the greatest norm of all gradients
    log        a folder for TensorBoard, or an object with add_scalar(name, value, step), which gets "loss" of each step and "epoch loss" of each epoch
    bar        tqdm's bar on standard error, where tqdm is installed
    after      after(epoch, loss) is called after each epoch; if it returns True, training ends

    Losses are looked at some steps later, so the device always has work."""
    module.train()
    writer, own = _writer(log), log is not None and not hasattr(log, "add_scalar")
    means: list[float] = []
    step = 0
    try:
        for epoch in range(epochs):
            total = len(loader) if isinstance(loader, Sized) else None
            shown = _bar(total, f"epoch {epoch + 1} of {epochs}", bar)
            pending: list[Array] = []
            losses: list[float] = []

            def look(count: int) -> None:
                nonlocal step
                while len(pending) > count:
                    value = float(pending.pop(0))
                    losses.append(value)
                    if writer is not None:
                        writer.add_scalar("loss", value, step)
                    step += 1
                    if shown is not None:
                        shown.set_postfix(loss=f"{value:.4f}", refresh=False)
                        shown.update()

            try:
                for x, y in loader:
                    optimiser.zero_grad()
                    value = loss(module(x), y)
                    value.backward()
                    if clip is not None:
                        clip_grad_norm_(module.parameters(), clip)
                    optimiser.step()
                    pending.append(value.detach())
                    look(_AHEAD)
                look(0)
            finally:
                if shown is not None:
                    shown.close()
            if not losses:
                raise ValueError("fit(): the loader has no batches")
            means.append(sum(losses) / len(losses))
            if schedule is not None:
                schedule.step()
            if writer is not None:
                writer.add_scalar("epoch loss", means[-1], epoch)
            if after is not None and after(epoch, means[-1]) is True:
                break
    finally:
        if own and writer is not None:
            writer.close()
    return means
