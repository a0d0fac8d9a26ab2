"""A private daemon for programs that have none at hand."""
import atexit
import os
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import weakref

from . import _core

# The daemon is a child of a shell that reads a pipe of this process. When the process ends, whatever ends it, the pipe ends too; then
# the shell ends the daemon and removes its folder. The shell's output becomes the daemon's descriptor 3, and belongs to the daemon alone
# then, so that its end shows when the daemon dies.
_KEEPER = """
"$@" </dev/null 3>&1 >"$TENSORD_SERVE_FOLDER/log" 2>&1 &
exec >/dev/null
read -r end
kill "$!" 2>/dev/null
wait "$!"
rm -rf "$TENSORD_SERVE_FOLDER"
"""


def _program(exe):
    """The daemon's program: named, $TENSORD_EXE, or the installed one."""
    named = exe or os.environ.get("TENSORD_EXE")
    found = named or shutil.which("tensord") or next((path for path in ("/usr/sbin/tensord", "/usr/local/sbin/tensord",
                                                                       "/usr/local/bin/tensord") if os.access(path, os.X_OK)), None)
    if not found:
        raise FileNotFoundError("there is no program tensord on the PATH: install it, or name it by $TENSORD_EXE or serve(exe=…)")
    return found


class Daemon:
    """A daemon of this process: `url`, `connection`, `close()`. It ends with the process, or with `with serve():`."""

    def __init__(self, exe, devices, flags, timeout, default):
        self.folder = tempfile.mkdtemp(prefix="tensord-")
        self.url = f"unix:{self.folder}/tensord.sock"
        self.connection = None
        self._keeper = None
        self._owner = os.getpid()
        try:
            self._start([_program(exe), "--listen", self.url, "--devices", devices, *flags], time.monotonic() + timeout)
            self.connection = _core.connect(self.url, default=default)
        except BaseException:
            self.close()
            raise
        self._finalizer = weakref.finalize(self, _end, self._keeper, self.folder, self._owner)
        self._finalizer.atexit = False

    def _start(self, command, deadline):
        """Starts the daemon, and waits until it says that it is ready."""
        ours, its = os.pipe()
        notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            notify.bind(f"{self.folder}/notify")
            environment = {**os.environ, "NOTIFY_SOCKET": f"{self.folder}/notify", "TENSORD_SERVE_FOLDER": self.folder}
            # A session of its own, because Ctrl-C is for this process alone.
            self._keeper = subprocess.Popen(["/bin/sh", "-c", _KEEPER, "tensord-keeper", *command], stdin=subprocess.PIPE, stdout=its,
                                            env=environment, start_new_session=True)
            os.close(its)
            its = -1
            self._wait_ready(ours, notify, deadline)
        finally:
            notify.close()
            os.close(ours)
            if its >= 0:
                os.close(its)

    def _wait_ready(self, alive, notify, deadline):
        poll = select.poll()
        poll.register(notify, select.POLLIN)
        poll.register(alive, select.POLLIN)
        while True:
            left = deadline - time.monotonic()
            ready = [descriptor for descriptor, _ in poll.poll(max(left, 0) * 1000)]
            if notify.fileno() in ready:
                if b"READY=1" in notify.recv(4096):
                    return
            elif ready or left <= 0:
                raise _core.ConnectionFailedError(("the daemon has ended" if ready else "the daemon is not ready in time") + self._log())

    def _log(self):
        try:
            with open(f"{self.folder}/log", encoding="utf-8", errors="replace") as log:
                return ":\n" + log.read()[-2000:]
        except OSError:
            return ""

    def close(self):
        """Ends the daemon. Arrays on its devices cannot be used any more. Blocks until it has ended. In a child of fork() the daemon stays, for it is the
        parent's."""
        if self.connection:
            self.connection.close()
        _kept.discard(self)
        _end(self._keeper, self.folder, self._owner)

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.close()

    def __repr__(self):
        return f"tensord.Daemon('{self.url}')"


def _end(keeper, folder, owner):
    """The end of the pipe tells the shell."""
    if os.getpid() != owner:
        return
    if keeper and keeper.stdin:
        keeper.stdin.close()
        keeper.wait()
    shutil.rmtree(folder, ignore_errors=True)


_running: "weakref.WeakSet[Daemon]" = weakref.WeakSet()
_kept: "set[Daemon]" = set()  # daemons of default connections, which nobody else may hold


def serve(exe=None, *, devices="cpu:0", flags=(), timeout=30, default=True):
    """Starts a private daemon on the CPU device, which ends with this process, and connects to it.

    exe is the daemon's program; without it $TENSORD_EXE, or the `tensord` on the PATH. `devices` and `flags` are those of its command
    line. Unless `default` is false, the connection becomes the default one, and the daemon stays until the process ends or close() is
    called; else it also ends when the result is forgotten. Blocks until the daemon is ready.
    """
    daemon = Daemon(exe, devices, flags, timeout, default)
    _running.add(daemon)
    if default:
        _kept.add(daemon)
    return daemon


@atexit.register
def _end_all():
    _core._close_all()  # a daemon that is gone could not be told goodbye
    for daemon in list(_running):
        daemon.close()
