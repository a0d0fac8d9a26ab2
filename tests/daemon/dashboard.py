"""The dashboard as a browser shows it, of a real daemon with jobs running. Without a Chromium it is skipped."""

import base64
import http.server
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
import urllib.request

import browser

HOSTILE = "<img src=x onerror='window.hit=1'>"
LABEL = "forward/<script>window.hit=1</script>"

# Every element with text of its own, and how its colour stands out against what lies behind it (WCAG 2, 1.4.3).
CONTRAST = """(() => {
  const parse = text => text.match(/[\\d.]+/g).map(Number);
  const part = v => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
  const behind = element => {
    for (; element; element = element.parentElement) {
      const colour = parse(getComputedStyle(element).backgroundColor);
      if (colour.length < 4 || colour[3] === 1) return colour;
    }
    return [255, 255, 255];
  };
  return [...document.body.querySelectorAll('*')].filter(e => e.offsetParent !== null && !['SCRIPT', 'STYLE'].includes(e.tagName)
      && [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim())).map(e => {
    const [a, b] = [light(parse(getComputedStyle(e).color)), light(behind(e))].sort((x, y) => y - x);
    return [(a + 0.05) / (b + 0.05), e.className || e.tagName, e.textContent.slice(0, 40)];
  });
})()"""


class Daemon:
    """A tensord with two devices and HTTP; it can be started again on the same port."""

    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="tensord-test-dashboard-")
        self.url, self.port, self.process, self.jobs = f"unix:{self.folder}/socket", 0, None, []

    def start(self):
        log_path = f"{self.folder}/log"
        with open(log_path, "wb") as log:
            self.process = subprocess.Popen(
                [os.environ["TENSORD_EXE"], "--listen", self.url, "--devices", "cpu:0,cpu:1", "--memory", "256M",
                 "--http", f"127.0.0.1:{self.port}"], stdout=log, stderr=log, stdin=subprocess.DEVNULL)

        def address():
            assert self.process.poll() is None, open(log_path, encoding="utf-8").read()
            with open(log_path, encoding="utf-8") as text:
                return re.search(r"url=http://127\.0\.0\.1:(\d+)/", text.read())

        self.port = int(browser.until(address, "the daemon's HTTP address")[1])
        browser.until(self.ready, "every device is ready")

    def get(self, path):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/{path}", timeout=60) as reply:
            return reply.read()

    def ready(self):
        try:
            return self.get("readyz") == b"ok\n"
        except urllib.error.URLError:
            return False

    def status(self):
        return json.loads(self.get("status.json"))

    def device(self, name):
        return next(device for device in self.status()["devices"] if device["name"] == name)

    def work(self, name, label, mebibytes, device, *recorded):
        job = subprocess.Popen([name, label, str(mebibytes), device, *recorded], executable=os.environ["BUSY_EXE"],
                               env=dict(os.environ, TENSORD_URL=self.url), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.jobs.append(job)
        assert job.stdout.readline() == b"ready\n", "the job did not begin"

    def stop(self):
        for job in self.jobs:
            job.stdin.close()
            job.wait(60 * browser.SLOW)
            job.stdout.close()
        self.jobs = []
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(60 * browser.SLOW) == 0, "the daemon did not end well"

    def finish(self):
        for process in self.jobs + [self.process]:
            if process and process.poll() is None:
                process.kill()
                process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def binary(value):
    """As the page writes bytes."""
    units = ["B", "KiB", "MiB", "GiB"]
    step = 0
    while value >= 1024 and step < 3:
        value, step = value / 1024, step + 1
    return (f"{value:.1f}" if step and value < 100 else f"{value:.0f}") + " " + units[step]


def card(name, selector):
    return f"document.querySelector('[data-device=\"{name}\"] {selector}')"


# ---- what is tested; in this order, on one page ----


def numbers_are_those_of_the_status(page, daemon):
    page.until("document.querySelectorAll('#rows tr').length === 3")
    device = daemon.device("cpu:0")
    assert device["memory"]["live"] >= 96 << 20
    page.until(f"{card('cpu:0', '[data-figure=live]')}.textContent === '{binary(device['memory']['live'])}'")
    assert f"of {binary(device['memory']['total'])}" in page.ask(f"{card('cpu:0', '.amount')}.textContent")
    assert page.ask(f"{card('cpu:1', '.pill')}.textContent") == "ready"
    # Counters only grow, so what the page says lies between an earlier and a later look of our own.
    for session in daemon.status()["sessions"]:
        row = f"document.querySelector('[data-session=\"{session['id']}\"] [data-figure=ops_done]')"
        page.until(f"+{row}.dataset.value >= {session['ops_done']}")
        shown = float(page.ask(f"{row}.dataset.value"))
        later = next(s for s in daemon.status()["sessions"] if s["id"] == session["id"])
        assert session["ops_done"] <= shown <= later["ops_done"], (session, shown, later)


def the_bar_shows_who_has_how_much(page, daemon):
    device = daemon.device("cpu:0")
    shares = page.ask(f"""(bar => [...bar.children].filter(e => e.style.getPropertyValue('--hue'))
        .map(e => e.getBoundingClientRect().width / bar.getBoundingClientRect().width))({card('cpu:0', '.bar')})""")
    wanted = [s["live"] / device["memory"]["total"] for s in daemon.status()["sessions"] if s["device"] == "cpu:0"]
    assert len(shares) == len(wanted) == 2
    for share, want in zip(sorted(shares), sorted(wanted)):
        assert abs(share - want) < 0.02, (shares, wanted)
    colours = page.ask(f"""[...{card('cpu:0', '.bar')}.children].filter(e => e.style.getPropertyValue('--hue'))
        .map(e => getComputedStyle(e).backgroundColor)""")
    assert len(set(colours)) == 2, colours
    for session in daemon.status()["sessions"]:
        same = page.ask(f"""new Set([...document.querySelectorAll('[data-session="{session['id']}"] .chip')]
            .map(e => getComputedStyle(e).backgroundColor)).size""")
        assert same == 1, "a session has one colour, in the legend and in the table"


def sessions_and_users_show_what_they_do(page, daemon):
    page.until("document.querySelectorAll('#user-rows tr').length === 2")  # one user, on two devices
    text = page.ask("document.getElementById('users').innerText")
    assert f"uid:{os.getuid()}" in text and "cpu:1" in text, text
    for session in daemon.status()["sessions"]:
        row = f"document.querySelector('[data-session=\"{session['id']}\"] [data-figure=process]')"
        assert page.ask(f"{row}.textContent") == str(session["pid"])
        assert session["pid"] in [job.pid for job in daemon.jobs]
    page.until("[...document.querySelectorAll('[data-figure=ops_per_s]')].every(e => +e.dataset.value > 0)")
    assert "run p50" in page.ask(f"{card('cpu:0', '.facts')}.textContent")


def programs_show_what_tensorctl_programs_shows(page, daemon):
    page.until("document.querySelectorAll('[data-programs] tbody tr').length === 3")
    assert page.ask("[...document.querySelectorAll('[data-programs]')].map(e => e.dataset.programs)") == ["cpu:1"]
    for program in daemon.status()["programs"]:
        row = f"document.querySelector('[data-program=\"{program['session']}/{program['id']}\"]')"
        cell = row + ".querySelector('[data-figure={}]')"
        shown = {key: page.ask(cell.format(key) + ".textContent") for key in
                 ("program", "operations", "launches", "fused", "arena", "arena_least", "mean_run_s", "last_run_s")}
        kind = "loop" if program["loops"] else "program"
        assert shown["program"].strip() == f"{program['session']} {program['principal']} · {kind} {program['id']}", shown
        assert program["operations"] == 5 and shown["operations"] == "5 → 4", shown
        if program["planned"]:
            assert shown["launches"] == str(program["launches"]), shown
            assert shown["fused"] == f"{program['fused']} of {program['fused_launches']}", shown
            assert program["arena"] >= program["arena_least"] >= 64 * 64 * 4
            assert shown["arena"] == binary(program["arena"]) and shown["arena_least"] == binary(program["arena_least"]), shown
            page.until(f"+{cell.format('runs')}.dataset.value >= {program['runs']}")
            page.until(f"+{cell.format('iterations')}.dataset.value >= {program['iterations']}")
            page.until(f"+{cell.format('mean_run_s')}.dataset.value > 0 && +{cell.format('last_run_s')}.dataset.value > 0")
        else:
            assert shown["launches"] == shown["fused"] == shown["arena"] == shown["mean_run_s"] == "–", shown
    assert page.ask("document.getElementById('more-programs').hidden")


def a_click_on_a_title_sorts(page, _daemon):
    ids = "[...document.querySelectorAll('#rows tr')].map(e => +e.querySelector('[data-figure={}]').dataset.value)"
    for title, key in (("Age", "age"), ("Live", "live")):
        press = f"[...document.querySelectorAll('#titles button')].find(e => e.textContent === '{title}').click()"
        for way in (lambda values: sorted(values, reverse=True), sorted):
            page.ask(press)
            values = page.ask(ids.format(key))
            assert values == way(values) and len(values) == 3, (title, values)
    page.ask(press)  # the largest first, as before


def wide_screens_are_used(page, _daemon):
    page.resize(1920, 1080)
    used = "Math.max(...[...document.querySelectorAll('.device')].map(e => e.getBoundingClientRect().right))"
    page.until(f"{used} > 1800")
    assert page.ask("document.documentElement.scrollWidth") <= 1920
    keep(page, "wide")
    page.resize(1280, 900)


def text_of_clients_is_text(page, _daemon):
    text = page.ask("document.body.innerText")
    assert HOSTILE in text, text
    assert LABEL not in text, "what work is called is not for those who have not logged in"
    assert page.ask("document.images.length") == 0
    assert page.ask("document.scripts.length") == 1
    assert page.ask("typeof window.hit") == "undefined"


def a_fresh_page_has_the_last_minutes(page, daemon):
    def history():
        return next(d for d in json.loads(daemon.get("history.json"))["devices"] if d["name"] == "cpu:0")

    browser.until(lambda: len(history()["live"]) >= 4, "four seconds of history")
    page.open(f"http://127.0.0.1:{daemon.port}/")
    # One point would be what the page has seen itself.
    page.until("(paths => paths.length === 5 && paths.every(path => (path.getAttribute('d') || '').split('L').length >= 4))"
               "([...document.querySelectorAll('[data-device=\"cpu:0\"] svg path:nth-child(2)')])")
    page.until("document.querySelectorAll('#rows tr').length === 3")


def both_colour_schemes_can_be_read(page, _daemon):
    backgrounds = []
    for scheme in ("light", "dark"):
        page.scheme(scheme)
        page.until(f"matchMedia('(prefers-color-scheme: {scheme})').matches")
        backgrounds.append(sum(map(int, re.findall(r"\d+", page.ask("getComputedStyle(document.body).backgroundColor")))))
        rows = page.ask(CONTRAST)
        assert len(rows) > 30
        poor = [row for row in rows if row[0] < 4.5]
        assert not poor, (scheme, poor)
        keep(page, scheme)
    assert backgrounds[0] > 600 and backgrounds[1] < 200, backgrounds


def phones_show_it_without_scrolling_sideways(page, _daemon):
    for width in (320, 400, 768):
        page.resize(width, 800, phone=width < 500)
        assert page.ask("innerWidth") == width
        wide = page.ask("[document.documentElement.scrollWidth, [...document.querySelectorAll('body *')]"
                        ".filter(e => e.getBoundingClientRect().right > innerWidth + 1).map(e => e.className || e.tagName)]")
        assert wide[0] <= width, (width, wide)
        columns = page.ask("new Set([...document.querySelectorAll('.device')].map(e => e.offsetLeft)).size")
        assert columns == 1, (width, columns)
        keep(page, f"width-{width}")
    page.resize(1280, 900)
    page.until("new Set([...document.querySelectorAll('.device')].map(e => e.offsetLeft)).size === 2")


def a_lost_worker_leaves_its_mark(page, daemon):
    page.until(f"{card('cpu:1', '.fault-text')}.hidden")
    os.kill(daemon.device("cpu:1")["worker_pid"], signal.SIGKILL)
    page.until(f"!{card('cpu:1', '.fault-text')}.hidden")
    assert "killed by signal 9" in page.ask(f"{card('cpu:1', '.fault-text')}.textContent")
    page.until(f"{card('cpu:1', '.fault-text')}.textContent.includes('(1 in all, 1 restart)')")
    page.until(f"{card('cpu:1', 'svg path.fault')}.getAttribute('d') !== ''")
    assert page.ask(f"{card('cpu:0', 'svg path.fault')}.getAttribute('d')") == ""
    page.until("document.querySelectorAll('#rows tr').length === 2")
    job = daemon.jobs.pop()  # its session died with the worker
    assert job.wait(60 * browser.SLOW) != 0
    job.stdin.close()
    job.stdout.close()


def nothing_was_refused_by_the_policy(page, _daemon):
    assert not page.complaints, page.complaints


def a_daemon_that_comes_back_is_shown_again(page, daemon):
    daemon.stop()
    page.until("!document.getElementById('banner').hidden")
    assert "No answer from the daemon" in page.ask("document.getElementById('banner').textContent")
    daemon.start()
    page.until("document.getElementById('banner').hidden")
    page.until("document.querySelectorAll('#rows tr').length === 0")
    page.until("document.getElementById('programs').hidden")
    page.until(f"{card('cpu:1', '.fault-text')}.hidden")
    page.until("document.getElementById('about').textContent.includes('2 devices ready')")  # the front was there before them


class Crowd(http.server.BaseHTTPRequestHandler):
    """The page with figures that no daemon here has: 64 GPUs, a thousand sessions, one device lost."""

    protocol_version = "HTTP/1.1"
    status = None
    turns = 0

    def log_message(self, *_arguments):
        pass

    def do_GET(self):
        if self.path == "/":
            with open(os.environ["TENSORD_SOURCE"] + "/server/http/dashboard.html", "rb") as file:
                kind, data = "text/html", file.read()
        elif self.path == "/status.json":
            Crowd.turns += 1
            kind, data = "application/json", json.dumps(self.status).encode()
        else:
            series = {name: [(n % 40) << 20 for n in range(300)] for name in
                      ("live", "reserved", "queue_depth", "ops_per_s", "busy_percent", "bytes_in_per_s", "bytes_out_per_s")}
            series["faults"] = [n // 250 for n in range(300)]
            series["utilisation_percent"] = [None if n == 150 else n % 100 for n in range(300)]
            devices = [{"name": device["name"], **series} for device in self.status["devices"]]
            kind, data = "application/json", json.dumps({"step_s": 1, "devices": devices}).encode()
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def crowd_of(template):
    """A status with the keys of a real one."""
    device, session = template["devices"][0], template["sessions"][0]
    devices, sessions = [], []
    for n in range(64):
        one = json.loads(json.dumps(device))
        one.update(name=f"cuda:{n}", kind="cuda", model="NVIDIA H200 with a rather long name", state="ready")
        one["memory"].update(total=140 << 30, live=80 << 30, reserved=90 << 30, peak=100 << 30)
        one["names"].update(bytes=10 << 30 if n == 0 else 0)
        one["readings"].update(utilisation_gpu_percent=97, temperature_c=71, power_draw_w=612.5, memory_others=3 << 30)
        devices.append(one)
    devices[5].update(state="quarantined", last_fault="Xid 79: " + "GPU has fallen off the bus. " * 8, last_fault_age_s=90, faults=5)
    session["programs"] = 0
    for n in range(1000):
        one = dict(session, id=n + 1, device=f"cuda:{n % 64}", principal=f"user{n}", label="layer/" * (n % 20), live=(n + 1) << 20)
        sessions.append(one)
    sessions[999].update(last_failure=f"matmul {HOSTILE}: shapes do not fit", failures={"SHAPE": 2})
    sessions.append(dict(session, id=1001, device="cuda:99"))  # of no device that is listed
    # Programs of two devices, as many as a status has at most, and what these may say.
    programs = [dict(template["programs"][0], session=1 + n % 128, id=n + 1, device=f"cuda:{n % 2}") for n in range(256)]
    programs[0].update(label=LABEL, cause=f"operation 7 of the program, kernel_launch [{HOSTILE}]: no kernel has id 3",
                       graph_reason=f"matmul {HOSTILE} cannot be captured", fused_reason=None, fused=12, fused_waiting=2)
    programs[1].update(label="x" * 128, fused_reason=f"NVRTC: error: {HOSTILE} " + "y" * 128, fused=12, fused_waiting=2)
    sessions[0]["programs"] = 1256
    return dict(template, devices=devices, sessions=sessions, programs=programs)


def programs_that_fail_say_why(page):
    page.until("document.querySelectorAll('[data-programs] tbody tr').length === 256")
    text = page.ask("document.querySelector('[data-program=\"1/1\"] .col-program').innerText").strip()
    assert text.split("\n") == [
        f"1 {Crowd.status['programs'][0]['principal']} · {'loop' if Crowd.status['programs'][0]['loops'] else 'program'} 1 · {LABEL}",
        f"fails: operation 7 of the program, kernel_launch [{HOSTILE}]: no kernel has id 3",
        f"no graph: matmul {HOSTILE} cannot be captured", "2 of 12 fused launches wait for their kernels"], text
    assert f"not fused: NVRTC: error: {HOSTILE}" in page.ask("document.querySelector('[data-program=\"2/2\"]').innerText")
    assert page.ask("document.querySelectorAll('[data-programs=\"cuda:1\"] tbody tr').length") == 128
    assert page.ask("document.getElementById('more-programs').textContent") == "and 1.0k more"
    assert page.ask("document.images.length") == 0 and page.ask("typeof window.hit") == "undefined"


def many_devices_and_sessions_can_be_looked_at(page, daemon):
    Crowd.status = crowd_of(daemon.status())
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Crowd)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        page.open(f"http://127.0.0.1:{server.server_port}/")
        page.until("document.querySelectorAll('.device').length === 64")
        page.until("document.getElementById('more').textContent === 'and 801 more'")
        assert page.ask("document.querySelectorAll('#rows tr').length") == 200
        assert "1 of 64 devices not ready" in page.ask("document.getElementById('about').textContent")
        assert page.ask(f"{card('cuda:5', '.pill')}.textContent") == "quarantined"
        # Some fifteen sessions a device: the largest are named, the others are one part of the bar.
        assert page.ask(f"{card('cuda:0', '.legend')}.children.length") == 11
        legend = page.ask(f"{card('cuda:0', '.legend')}.textContent")
        assert "8 more 1.8 GiB" in legend and "named tensors 10.0 GiB" in legend and "not listed 62.5 GiB" in legend, legend
        other = page.ask(f"{card('cuda:1', '.legend')}.textContent")
        assert "named tensors" not in other and "not listed 72.5 GiB" in other, other
        parts = page.ask(f"""[...{card('cuda:0', '.bar')}.children].filter(e => /^(rest|named)$/.test(e.className) && !e.hidden)
            .map(e => [e.title.replace(/[:].*/, ''), e.style.width])""")
        assert ["named tensors", "7.143%"] in parts and ["sessions that are not listed", "44.632%"] in parts, parts
        page.until(f"{card('cuda:0', '.charts')}.children.length === 6")
        load = f"{card('cuda:0', 'figure:last-child path:nth-child(2)')}.getAttribute('d')"
        page.until(f"({load} || '').split('M').length === 3")  # what is not known is a gap
        programs_that_fail_say_why(page)
        assert page.ask("document.querySelector('#rows [data-session=\"1000\"] .col-label .why').textContent") == \
            f"failed last: matmul {HOSTILE}: shapes do not fit"
        assert page.ask("document.querySelector('#rows [data-session=\"999\"] .col-label .why').textContent") == ""
        seen = Crowd.turns
        browser.until(lambda: Crowd.turns > seen + 2, "the page goes on asking")
        for width in (320, 400, 1280):
            page.resize(width, 900)
            assert page.ask("document.documentElement.scrollWidth") <= width
        keep(page, "crowd")
    finally:
        page.open(f"http://127.0.0.1:{daemon.port}/")
        server.shutdown()
        thread.join()
        server.server_close()
    page.until("document.querySelectorAll('.device').length === 2")


def keep(page, name):
    """A picture, for people, where TENSORD_TEST_PICTURES names a folder."""
    folder = os.environ.get("TENSORD_TEST_PICTURES")
    if folder:
        data = page.call("Page.captureScreenshot", captureBeyondViewport=True)["data"]
        with open(f"{folder}/{name}.png", "wb") as file:
            file.write(base64.b64decode(data))


TESTS = (numbers_are_those_of_the_status, the_bar_shows_who_has_how_much, sessions_and_users_show_what_they_do,
         programs_show_what_tensorctl_programs_shows, a_click_on_a_title_sorts, wide_screens_are_used, text_of_clients_is_text,
         a_fresh_page_has_the_last_minutes, both_colour_schemes_can_be_read, phones_show_it_without_scrolling_sideways,
         many_devices_and_sessions_can_be_looked_at, a_lost_worker_leaves_its_mark, nothing_was_refused_by_the_policy,
         a_daemon_that_comes_back_is_shown_again)


def run(page, daemon):
    page.resize(1280, 900)
    page.open(f"http://127.0.0.1:{daemon.port}/")
    failed = 0
    for test in TESTS:
        try:
            test(page, daemon)
            print(f"[PASS] {test.__name__}", flush=True)
        except Exception:  # the others may still tell something
            failed += 1
            print(f"[FAIL] {test.__name__}\n{traceback.format_exc()}", flush=True)
            keep(page, f"failed-{test.__name__}")
    print(f"Synthesis: Tested: {len(TESTS)} | Passing: {len(TESTS) - failed} | Failing: {failed} | Crashing: 0")
    return failed


def main():
    if not browser.program():
        print("skipped: there is no Chromium (scripts/setup test installs it)")
        return 77
    daemon, page = Daemon(), None
    try:
        daemon.start()
        daemon.work("busy", "backward", 64, "cpu:0")
        daemon.work(HOSTILE, LABEL, 32, "cpu:0")
        daemon.work("busy", "train", 16, "cpu:1", "recorded")
        page = browser.Browser()
        failed = run(page, daemon)
        if daemon.process.poll() is None:
            daemon.stop()
        return 1 if failed else 0
    finally:
        if page:
            page.close()
        daemon.finish()


if __name__ == "__main__":
    sys.exit(main())
