"""Runs tests of the Python package under valgrind, and counts what it finds in the extension and in libtensord.

    python3 tests/python/valgrind.py [life transfer waiting …]

Invalid reads and writes, uses of values that were never written, and memory that is definitely lost count if the extension or the library
is in the stack; programs that a test starts are watched, too, but not the daemon. Without names it runs life, transfer, waiting, functions and
optimisers. The package is found on PYTHONPATH, as a build folder has it, and $TENSORD_EXE is the daemon; the build has debug information.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as xml

TESTS = pathlib.Path(__file__).resolve().parent
OURS = ("_core.", "libtensord")
DEFAULT = ("life", "transfer", "waiting", "functions", "optimisers")
OPTIONS = ("--quiet", "--leak-check=full", "--show-leak-kinds=definite", "--num-callers=30", "--freelist-vol=1000000", "--fair-sched=yes",
           "--trace-children=yes", "--trace-children-skip=*tensord", "--xml=yes")


def is_ours(error):
    return any(name in pathlib.Path(frame.findtext("obj", "")).name for frame in error.iter("frame") for name in OURS)


def show(error):
    """An error's words and stack."""
    what = error.findtext("what") or error.findtext("xwhat/text") or error.findtext("kind")
    lines = [what]
    for frame in error.find("stack").iter("frame"):
        place = f"{frame.findtext('file')}:{frame.findtext('line')}" if frame.find("file") is not None else frame.findtext("obj", "?")
        lines.append(f"    {frame.findtext('fn', '?')} ({place})")
    return "\n".join(lines)


def found_in(path):
    """The errors of a process. The last one may have no end: the process was killed, or has replaced itself."""
    parser = xml.XMLPullParser(["end"])
    parser.feed(path.read_text(encoding="utf-8", errors="replace"))
    try:
        return [element for _, element in parser.read_events() if element.tag == "error"]
    except xml.ParseError:
        return []


def run(name, folder):
    """(whether the test passed, the errors that count)"""
    environment = dict(os.environ, PYTHONMALLOC="malloc", TENSORD_TEST_ARRAYS="2000")
    log = os.path.join(folder, f"{name}.%p.xml")
    command = ["valgrind", *OPTIONS, f"--xml-file={log}", sys.executable, "-B", str(TESTS / f"test_{name}.py")]
    passed = subprocess.run(command, env=environment, check=False).returncode == 0
    processes = list(pathlib.Path(folder).glob(f"{name}.*.xml"))
    errors = [error for path in processes for error in found_in(path) if is_ours(error)]
    print(f"{name}: {'passed' if passed else 'failed'}, {len(processes)} processes, {len(errors)} errors", flush=True)
    for error in errors:
        print(show(error), flush=True)
    return passed and processes and not errors


def main():
    names = sys.argv[1:] or DEFAULT
    if not shutil.which("valgrind"):
        sys.exit("there is no valgrind on the PATH")
    unknown = [name for name in names if not (TESTS / f"test_{name}.py").exists()]
    if unknown:
        sys.exit(f"there is no test {unknown[0]}\n{__doc__}")
    with tempfile.TemporaryDirectory() as folder:
        sys.exit(0 if all([run(name, folder) for name in names]) else 1)


if __name__ == "__main__":
    main()
