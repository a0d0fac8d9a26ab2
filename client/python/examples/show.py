"""What the examples show beside text: a bar (tqdm), pictures (Matplotlib) and a log (TensorBoard). Where these are not installed, they show
the same as text and say so."""

import csv
import os
import sys

from start import in_script


class Bar:
    """Shows how many of the steps are done, on standard error."""

    def __init__(self, total, title, name="loss"):
        try:
            from tqdm import tqdm
        except ImportError:
            self._bar = None
            print(f"{title}: tqdm is not installed, so there is no bar, but a line now and then", file=sys.stderr)
        else:
            self._bar = tqdm(total=total, desc=title)
        self._total, self._title, self._name, self._done = total, title, name, 0

    def step(self, value=None):
        """One more is done. `value` may be an array: now and then the bar looks at it, which waits for it."""
        self._done += 1
        due = self._done % max(1, self._total // 10) == 0 or self._done == self._total
        text = f"{self._name} {value:.4f}" if due and value is not None else ""
        if self._bar:
            if text:
                self._bar.set_postfix_str(text, refresh=False)
            self._bar.update()
        elif due:
            print(f"{self._title}: {self._done} of {self._total}{', ' + text if text else ''}", file=sys.stderr)

    def close(self):
        if self._bar:
            self._bar.close()


class Log:
    """Writes numbers for TensorBoard into a folder, or without TensorBoard into scalars.csv there. Without a folder it writes nothing."""

    def __init__(self, folder):
        self._folder, self._writer, self._file = folder, None, None
        if not folder:
            return
        try:
            from tensorboard.summary import Writer
        except ImportError:
            os.makedirs(folder, exist_ok=True)
            self._file = open(os.path.join(folder, "scalars.csv"), "w", newline="", encoding="utf-8")
            self._rows = csv.writer(self._file)
            self._rows.writerow(("name", "step", "value"))
        else:
            self._writer = Writer(folder)

    def curve(self, name, values):
        """A value for each step."""
        for step, value in enumerate(values):
            if self._writer:
                self._writer.add_scalar(name, value, step)
            elif self._file:
                self._rows.writerow((name, step, value))

    def close(self):
        if self._writer:
            self._writer.close()
            print(f"the log is in {self._folder}: tensorboard --logdir {self._folder}")
        elif self._file:
            self._file.close()
            print(f"TensorBoard is not installed, so the log is a table: {self._file.name}")


def picture(draw, file):
    """Calls draw(axes), and puts what it draws with Matplotlib into a file; in a notebook without a file below the cell. False if there
    is no picture: Matplotlib is not installed, or a script has no file for it."""
    if in_script() and not file:
        return False
    try:
        import matplotlib.figure
    except ImportError:
        print("Matplotlib is not installed, so there is no picture")
        return False
    if file:
        figure = matplotlib.figure.Figure()
        draw(figure.subplots())
        figure.savefig(file)
        print(f"the picture is in {file}")
    else:
        import matplotlib.pyplot

        draw(matplotlib.pyplot.subplots()[1])
        matplotlib.pyplot.show()
    return True


def curve(values, name, file):
    """A picture of a curve, or ten of its values as text."""

    def draw(axes):
        axes.plot(values)
        axes.set_xlabel("step")
        axes.set_ylabel(name)

    if not picture(draw, file):
        steps = range(0, len(values), max(1, len(values) // 10))
        print(f"{name}: " + ", ".join(f"{values[step]:.4f} (step {step})" for step in steps))


def matrix(table, names, file):
    """A confusion matrix as text, and as a picture."""
    print(f"{'':9}" + "".join(f"{name[:7]:>8}" for name in names))
    for name, row in zip(names, table):
        print(f"{name:9}" + "".join(f"{count:8}" for count in row))

    def draw(axes):
        axes.imshow(table, cmap="Blues")
        axes.set_xticks(range(len(names)), names, rotation=45)
        axes.set_yticks(range(len(names)), names)
        axes.set_xlabel("guess")
        axes.set_ylabel("label")

    picture(draw, file)
