"""A headless Chromium, told what to do over the pipe of its DevTools protocol: no port, no driver, no package."""

import fcntl
import json
import os
import select
import shutil
import tempfile
import time

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
SLOW = max(1, int(os.environ.get("TENSORD_TEST_SLOW", "1")))


def program():
    return next(filter(None, map(shutil.which, PROGRAMS)), None)


def until(condition, what, seconds=60):
    """What condition() says once that is true; looks again and again."""
    deadline = time.monotonic() + seconds * SLOW
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.02)
    raise AssertionError(f"not within {seconds * SLOW} s: {what}")


def high(descriptor):
    """The same at a number above those that the browser's side gets."""
    copy = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 20)
    os.close(descriptor)
    return copy


class Browser:
    """One page. `complaints` is what the page's console said of errors, and what its policy refused."""

    def __init__(self):
        self.profile = tempfile.mkdtemp(prefix="tensord-test-browser-")
        theirs_in, self.out = map(high, os.pipe())
        self.input, theirs_out = map(high, os.pipe())
        null = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
        arguments = [program(), "--headless=new", "--remote-debugging-pipe", f"--user-data-dir={self.profile}",
                     "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-extensions",
                     "--disable-background-networking", "--disable-component-update", "--hide-scrollbars"]
        if os.geteuid() == 0:
            arguments.append("--no-sandbox")
        self.pid = os.posix_spawn(arguments[0], arguments + ["about:blank"], os.environ, setpgroup=0, file_actions=[
            (os.POSIX_SPAWN_DUP2, null, 0), (os.POSIX_SPAWN_DUP2, null, 1), (os.POSIX_SPAWN_DUP2, null, 2),
            (os.POSIX_SPAWN_DUP2, theirs_in, 3), (os.POSIX_SPAWN_DUP2, theirs_out, 4)])
        for descriptor in (theirs_in, theirs_out, null):
            os.close(descriptor)
        self.buffer, self.number, self.session, self.complaints = b"", 0, None, []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(domain + ".enable")

    def close(self):
        try:
            self.session = None
            self.call("Browser.close")
        except (AssertionError, OSError):
            os.kill(self.pid, 9)
        os.waitpid(self.pid, 0)
        os.close(self.out)
        os.close(self.input)
        shutil.rmtree(self.profile, ignore_errors=True)

    def message(self, deadline):
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.input], [], [], max(0, deadline - time.monotonic()))
            assert ready, "the browser does not answer"
            data = os.read(self.input, 1 << 20)
            assert data, "the browser has ended"
            self.buffer += data
        text, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(text)

    def note(self, message):
        event, parameters = message.get("method"), message.get("params", {})
        if event == "Runtime.exceptionThrown":
            self.complaints.append(parameters["exceptionDetails"])
        elif event == "Log.entryAdded" and parameters["entry"]["level"] == "error":
            self.complaints.append(parameters["entry"])

    def call(self, method, **parameters):
        self.number += 1
        request = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            request["sessionId"] = self.session
        os.write(self.out, json.dumps(request).encode() + b"\0")
        deadline = time.monotonic() + 60 * SLOW
        while True:
            message = self.message(deadline)
            if message.get("id") == self.number:
                assert "result" in message, f"{method}: {message}"
                return message["result"]
            self.note(message)

    def ask(self, expression):
        """The value of a JavaScript expression within the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, f"{expression}: {answer}"
        return answer["result"].get("value")

    def until(self, expression, seconds=60):
        return until(lambda: self.ask(expression), expression, seconds)

    def open(self, url):
        self.call("Page.navigate", url=url)

    def resize(self, width, height, phone=False):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)

    def scheme(self, name):
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])
