#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every alert fires when it should, with sentences whose blanks are filled, and is silent when it should be; the rules of
chargeback add up. With promtool's own tests of rules, in a time of its own."""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
import monitoring  # noqa: E402

PROMTOOL = os.environ.get("PROMTOOL", "promtool")
AGENT = 'job="sluiced",instance="10.0.0.1:9400",node="node-1"'
CONTROLLER = 'job="sluice-controller",instance="10.0.0.9:9402",pod="c-0"'
TENANT = AGENT + ',tenant="t1",namespace="team",pod="train-0",container="main"'
POD = {"node": "node-1", "tenant": "t1", "namespace": "team", "pod": "train-0", "container": "main"}
A = {"job": "sluiced", "instance": "10.0.0.1:9400", "node": "node-1"}
C = {"job": "sluice-controller", "instance": "10.0.0.9:9402", "pod": "c-0"}
GB = 1000000000


def agent(name, labels=""):
    return f"{name}{{{AGENT}{',' + labels if labels else ''}}}"


def controller(name, labels=""):
    return f"{name}{{{CONTROLLER}{',' + labels if labels else ''}}}"


def tenant(name, labels=""):
    return f"{name}{{{TENANT}{',' + labels if labels else ''}}}"


def gauge(series, bad, good, labels):
    """Fires while it has one value, is silent with the other."""
    return {series: f"{bad}x60"}, {series: f"{good}x60"}, labels


XID = 'gpu="GPU-a",xid="79"'
GPU = 'gpu="GPU-a"'
ONE = 'resource="nvidia.com/gpu"'
MEMORY = (agent("sluice_gpu_memory_used_bytes", GPU), tenant("sluice_tenant_memory_used_bytes", GPU),
          agent("sluice_gpu_memory_total_bytes", GPU))
STARVED = (tenant("sluice_tenant_waited_seconds_total"), tenant("sluice_tenant_gpu_seconds_total", GPU),
           tenant("sluice_tenant_share_request_ratio", GPU))
FULL = (controller("sluice_controller_refusals_total"), controller("sluice_controller_gpu_free_milli"),
        controller("sluice_controller_gpu_capacity_milli"))
# alert → series that make it fire at 40 minutes, series that do not, labels it has. Values in promtool's notation, one a
# minute: 0x60 is 0 for an hour, 0+1x60 grows.
CASES = {
    "SluiceAgentDown": gauge(agent("up"), 0, 1, A),
    "SluiceAgentNotReady": gauge(agent("sluice_ready"), 0, 1, A),
    "SluiceKubeletNotConnected": gauge(agent("sluice_kubelet_connected"), 0, 1, A),
    "SluiceResourceContested": gauge(agent("sluice_resource_contested", ONE), 1, 0, A | {"resource": "nvidia.com/gpu"}),
    "SluiceConfigRejected": gauge(agent("sluice_config_last_reload_successful"), 0, 1, A),
    "SluiceSourceDown": gauge(agent("sluice_source_up", 'source="nvml"'), 0, 1, A | {"source": "nvml"}),
    "SluiceNodeLabelsStale": gauge(agent("sluice_node_labels_current"), 0, 1, A),
    "SluiceAllocationsFail": (
        {agent("sluice_allocations_failed_total", ONE): "0x35 1x30"},
        {agent("sluice_allocations_failed_total", ONE): "7x60",  # long ago
         agent("sluice_prestarts_total", ONE + ',result="failed"'): "0x35 1x30"},  # kubelet asks again
        {"node": "node-1", "resource": "nvidia.com/gpu"}),
    "SluiceClaimsFail": (
        {agent("sluice_claim_calls_total", 'call="prepare",result="failed"'): "0+1x60"},
        {agent("sluice_claim_calls_total", 'call="prepare",result="failed"'): "0x35 1x30",
         agent("sluice_claim_calls_total", 'call="prepare",result="ok"'): "0+9x60"},
        {"node": "node-1", "call": "prepare"}),
    "SluiceResourceSlicesStale": gauge(agent("sluice_resource_slices_current"), 0, 1, A),
    "SluiceLoopSlow": gauge(agent("sluice_loop_lag_seconds"), 2.5, 0.01, A),
    "SluiceGpuUnhealthy": gauge(agent("sluice_gpu_healthy", GPU), 0, 1, A | {"gpu": "GPU-a"}),
    "SluiceGpuXid": (
        {agent("sluice_gpu_xid_errors_total", XID): "_x35 1x30"},  # the first one of this card
        {agent("sluice_gpu_xid_errors_total", 'gpu="GPU-a",xid="31"'): "0+1x60",  # a program's own
         agent("sluice_gpu_xid_errors_total", XID): "4x60"},  # long ago
        A | {"gpu": "GPU-a", "xid": "79"}),
    "SluiceGpuByTurns": (
        {agent("sluice_gpu_compute_mode", GPU + ',mode="turns",reason="the driver refuses to set time slices"'): "1x60"},
        {agent("sluice_gpu_compute_mode", GPU + ',mode="turns",reason="a tenant asked for turns"'): "1x60",
         agent("sluice_gpu_compute_mode", 'gpu="GPU-b",mode="slices"'): "1x60"},
        A | {"gpu": "GPU-a", "mode": "turns", "reason": "the driver refuses to set time slices"}),
    "SluiceGpuMemoryForeign": (
        dict(zip(MEMORY, (f"{60 * GB}x60", f"{20 * GB}x60", f"{150 * GB}x60"))),
        dict(zip(MEMORY, (f"{21 * GB}x60", f"{20 * GB}x60", f"{150 * GB}x60"))),
        {"node": "node-1", "gpu": "GPU-a"}),
    "SluiceTenantOutOfMemory": (
        {tenant("sluice_tenant_oom_total"): "0x35 1x30"}, {tenant("sluice_tenant_oom_total"): "3x60"}, POD),
    "SluiceTenantStarved": (  # per minute: 30 s of waiting, 6 s of GPU time; asked for 30 %
        dict(zip(STARVED, ("0+30x60", "0+6x60", "0.3x60"))),
        dict(zip(STARVED, ("0+30x60", "0+18x60", "0.3x60"))),  # held to its own limit
        POD),
    "SluiceControllerDown": gauge(controller("up"), 0, 1, {}),
    "SluiceControllerNoLeader": gauge(controller("sluice_controller_leading"), 0, 1, {}),
    "SluiceControllerNotReady": gauge(controller("sluice_controller_ready"), 0, 1, C),
    "SluiceBindsFail": (
        {controller("sluice_controller_binds_total", 'result="failed"'): "0+1x60"},
        {controller("sluice_controller_binds_total", 'result="failed"'): "0x35 1x30",
         controller("sluice_controller_binds_total", 'result="bound"'): "0+9x60"},
        {}),
    "SluicePromisesDoNotFit": gauge(controller("sluice_controller_pods_misfit"), 2, 0, C),
    "SluiceClusterFull": (
        dict(zip(FULL, ("0+1x60", "10x60", "8000x60"))),
        dict(zip(FULL, ("0+1x60", "4000x60", "8000x60"))),  # refused, but not for want of room
        {}),
}
VALUE = {"SluicePromisesDoNotFit": "2"}


def quoted(text):
    return "'" + text.replace("'", "''") + "'"


def filled(text, labels, value):
    return re.sub(r"\{\{ \$labels\.(\w+) \}\}", lambda m: labels[m.group(1)], text).replace("{{ $value }}", value)


def one_test(series, alert, at, expected):
    lines = ["- interval: 1m", "  input_series:"]
    for name, values in series.items():
        lines += [f"  - series: {quoted(name)}", f"    values: {quoted(values)}"]
    lines += ["  alert_rule_test:", f"  - eval_time: {at}", f"    alertname: {alert}"]
    if not expected:
        return lines + ["    exp_alerts: []"]
    labels, annotations = expected
    lines += ["    exp_alerts:", "    - exp_labels:"] + [f"        {k}: {quoted(v)}" for k, v in labels.items()]
    return lines + ["      exp_annotations:"] + [f"        {k}: {quoted(v)}" for k, v in annotations.items()]


class Promtool(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="sluice-rules-")
        self.addCleanup(shutil.rmtree, self.folder)
        with open(f"{self.folder}/rules.yml", "w", encoding="utf-8") as f:
            f.write(monitoring.rule_file())

    def promtool(self, lines):
        with open(f"{self.folder}/test.yml", "w", encoding="utf-8") as f:
            f.write("\n".join(["rule_files: [rules.yml]", "evaluation_interval: 30s", "tests:"] + lines) + "\n")
        return subprocess.run([PROMTOOL, "test", "rules", f"{self.folder}/test.yml"], capture_output=True, text=True,
                              check=False)

    def test_rules_are_rules(self):
        got = subprocess.run([PROMTOOL, "check", "rules", f"{self.folder}/rules.yml"], capture_output=True, text=True,
                             check=False)
        self.assertEqual(got.returncode, 0, got.stdout + got.stderr)

    def test_every_alert_fires_and_is_silent(self):
        alerts = {r["alert"]: r for r in monitoring.rules() if "alert" in r}
        self.assertEqual(set(alerts), set(CASES))
        for name, rule in alerts.items():
            fire, silent, labels = CASES[name]
            said = {k: filled(rule[k], labels, VALUE.get(name, "")) for k in ("summary", "description", "runbook_url")}
            self.assertNotIn("{{", "".join(said.values()), name)
            expected = (labels | {"severity": rule["severity"]}, said)
            got = self.promtool(one_test(fire, name, "40m", expected))
            self.assertEqual(got.returncode, 0, f"{name} must fire:\n{got.stdout}{got.stderr}")
            got = self.promtool(one_test(silent, name, "40m", None))
            self.assertEqual(got.returncode, 0, f"{name} must be silent:\n{got.stdout}{got.stderr}")
            # A test that expects silence where there is fire fails: it can.
            got = self.promtool(one_test(fire, name, "40m", None))
            self.assertNotEqual(got.returncode, 0, name)

    def charged(self, series, rule, at, expected):
        lines = ["- interval: 15s", "  input_series:"]
        for name, values in series.items():
            lines += [f"  - series: {quoted(name)}", f"    values: {quoted(values)}"]
        samples = "[" + ", ".join(f"{{labels: {quoted('{namespace=' + chr(34) + n + chr(34) + '}')}, value: {v}}}"
                                  for n, v in expected.items()) + "]"
        lines += ["  promql_expr_test:", f"  - expr: sum_over_time({rule}[1h])", f"    eval_time: {at}",
                  f"    exp_samples: {samples}"]
        got = self.promtool(lines)
        self.assertEqual(got.returncode, 0, got.stdout + got.stderr)

    def test_chargeback_of_gpu_time(self):
        rule = "namespace:sluice_gpu_seconds:increase30s"
        counter = tenant("sluice_tenant_gpu_seconds_total", GPU)
        other = counter.replace("team", "other").replace("t1", "t2")
        # 5 s of every scrape's 15; the other came late with 3 s on its counter, and went with 18.
        self.charged({counter: "0+5x80", other: "_x10 3+5x3 stale"}, rule, "20m", {"team": 400, "other": 18})
        # The arbiter restarted and the counter began anew: of the step in which it did, what came before is lost.
        self.charged({counter: "0+5x39 2+5x40"}, rule, "20m", {"team": 190 + 202})
        # Scrapes failed for minutes: what was used meanwhile is charged once.
        self.charged({counter: "0+5x19 stale _x40 400+5x20"}, rule, "20m", {"team": 495})

    def test_chargeback_of_memory(self):
        rule = "namespace:sluice_memory_gib_seconds:increase30s"
        used, up = tenant("sluice_tenant_memory_used_bytes", GPU), agent("up")
        # 2 GiB for 1200 s, and for the step before the first scrape, of which nothing is known; the other held 8 GiB for four scrapes of 15 s.
        other = used.replace("team", "other").replace("t1", "t2")
        self.charged({up: "1x80", used: f"{2 << 30}x80", other: f"_x11 {8 << 30}x3 stale"}, rule, "20m",
                     {"team": 2 * 1200 + 2 * 30, "other": 8 * 60})


if __name__ == "__main__":
    if not shutil.which(PROMTOOL):
        print("skipped: promtool is not installed (Debian: apt-get install prometheus)")
        sys.exit(77)
    unittest.main()
