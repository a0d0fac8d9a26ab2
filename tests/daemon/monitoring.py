"""What is installed for Prometheus and Grafana fits what the daemon serves: promtool checks the metrics of a daemon with a
job, the alert rules and their tests, and every metric that a rule or a panel names is one that there is. Without
promtool it is skipped."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import traceback

import dashboard

FOLDER = os.environ["TENSORD_SOURCE"] + "/server/monitoring"
NAME = re.compile(r"\btensord_[a-z_]+\b")


def promtool(*arguments, stdin=b""):
    done = subprocess.run(["promtool", *arguments], input=stdin, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          timeout=60 * dashboard.browser.SLOW, check=False)
    assert done.returncode == 0, done.stdout.decode()


def names_in(text):
    """Of histograms the base name, as the daemon declares it."""
    return {re.sub(r"_(bucket|sum|count)$", "", name) for name in NAME.findall(text)}


def names_that_exist():
    """A CPU has no readings, so those of GPUs come from the table in the source."""
    with open(os.environ["TENSORD_SOURCE"] + "/server/http/http_metrics.c", encoding="utf-8") as file:
        return {name for name in re.findall(r'"(tensord_[a-z_]+)"', file.read())}


def metrics_are_as_promtool_wants_them(daemon):
    user = f'tensord_principal_sessions{{device="cpu:0",principal="uid:{os.getuid()}"}} 1'.encode()
    dashboard.browser.until(lambda: user in daemon.get("metrics"), "the job's session")
    text = daemon.get("metrics")
    declared = set(re.findall(r"^# TYPE (\S+)", text.decode(), re.MULTILINE))
    assert {"tensord_principal_memory_live_bytes", "tensord_device_queue_seconds"} <= declared, declared
    assert b"label" not in text and b"busy\"" not in text, "what clients call things makes no series"
    promtool("check", "metrics", stdin=text)
    missing = {name for name in names_that_exist() - declared if not name.startswith("tensord_gpu_")}
    assert not missing, missing


def metrics_stay_so_when_a_worker_is_lost(daemon):
    os.kill(daemon.device("cpu:0")["worker_pid"], signal.SIGKILL)
    dashboard.browser.until(lambda: daemon.device("cpu:0")["faults"] == 1, "the loss of a worker")
    promtool("check", "metrics", stdin=daemon.get("metrics"))


def rules_do_what_their_tests_say(_daemon):
    promtool("check", "rules", f"{FOLDER}/tensord.rules.yml")
    promtool("test", "rules", f"{FOLDER}/tensord.rules.test.yml")
    with open(f"{FOLDER}/tensord.rules.yml", encoding="utf-8") as rules:
        text = rules.read()
    with open(f"{FOLDER}/tensord.rules.test.yml", encoding="utf-8") as tests:
        tested = tests.read()
    alerts = re.findall(r"- alert: (\w+)", text)
    expressions = "\n".join(re.findall(r"^        expr: (?:>\n(?:          .*\n)+|.*)", text, re.MULTILINE))
    assert names_in(expressions) and names_in(expressions) <= names_that_exist(), names_in(expressions) - names_that_exist()
    for alert in alerts:
        fires = re.search(rf"alertname: {alert}\n +exp_alerts:\n +- exp_labels", tested)
        assert fires, f"no test in which {alert} fires"


def expressions_of(panel):
    return [target["expr"] for target in panel["targets"]]


def the_grafana_dashboard_asks_for_what_there_is(_daemon):
    with open(f"{FOLDER}/grafana-dashboard.json", encoding="utf-8") as file:
        board = json.load(file)
    expressions = [e for panel in board["panels"] for e in expressions_of(panel)]
    expressions += [annotation["expr"] for annotation in board["annotations"]["list"]]
    assert len(expressions) > 20
    for expression in expressions:
        assert names_in(expression) and names_in(expression) <= names_that_exist(), expression
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])


def expressions_are_promql(_daemon):
    """As rules, which promtool parses; Grafana's variables stand for what it puts in their place."""
    with open(f"{FOLDER}/grafana-dashboard.json", encoding="utf-8") as file:
        board = json.load(file)
    rules = []
    for panel in board["panels"]:
        for expression in expressions_of(panel):
            for variable, value in (("$__rate_interval", "1m"), ("$__range", "1h")):
                expression = expression.replace(variable, value)
            rules.append({"record": f"panel:{len(rules)}", "expr": expression})
    promtool("check", "rules", "/dev/stdin", stdin=json.dumps({"groups": [{"name": "panels", "rules": rules}]}).encode())


TESTS = (metrics_are_as_promtool_wants_them, metrics_stay_so_when_a_worker_is_lost, rules_do_what_their_tests_say,
         the_grafana_dashboard_asks_for_what_there_is, expressions_are_promql)


def main():
    if not shutil.which("promtool"):
        print("skipped: there is no promtool (scripts/setup test installs it)")
        return 77
    daemon, failed = dashboard.Daemon(), 0
    try:
        daemon.start()
        daemon.work("busy\"\\\n", 'a "label"', 16, "cpu:0")
        for test in TESTS:
            try:
                test(daemon)
                print(f"[PASS] {test.__name__}", flush=True)
            except Exception:  # the others may still tell something
                failed += 1
                print(f"[FAIL] {test.__name__}\n{traceback.format_exc()}", flush=True)
        print(f"Synthesis: Tested: {len(TESTS)} | Passing: {len(TESTS) - failed} | Failing: {failed} | Crashing: 0")
        return 1 if failed else 0
    finally:
        daemon.finish()


if __name__ == "__main__":
    sys.exit(main())
