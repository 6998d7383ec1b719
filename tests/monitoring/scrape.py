#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
A real Prometheus scrapes a real sluiced, with tenants of two namespaces on simulated GPUs, and a real
sluice-controller. Every query of every dashboard must return data; what the recording rules charge must be what the
tenants' ledgers say. Usage: scrape.py BUILD [unittest's arguments]
"""
import contextlib
import json
import math
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import unittest
import urllib.parse
import urllib.request

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "agent"), str(HERE)]
import fraction_world  # noqa: E402
import monitoring  # noqa: E402
from waiting import until  # noqa: E402

BUILD = os.path.abspath(sys.argv[1])
RUNTIME = os.environ.get("SLUICE_TEST_RUNTIME", "")  # an instrumented build preloads it first
PROMETHEUS = os.environ.get("PROMETHEUS", "prometheus")
PATIENCE_S = 120  # of what must happen; a test that passes never waits so long
STEP_S = 5  # of the rules of chargeback, instead of 30: a test need not last minutes
GPU_TIME = "namespace:sluice_gpu_seconds:increase30s"
MEMORY = "namespace:sluice_memory_gib_seconds:increase30s"
GIB = 1 << 30


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Node(fraction_world.Node):
    """With metrics."""

    def launch(self, env, log):
        self.agent = subprocess.Popen(
            [f"{BUILD}/bin/sluiced", "--node-name=node-1", "--kubeconfig=" + self.path("kubeconfig"),
             "--config-file=" + self.path("config.yaml"), "--driver-root=" + self.path("root"),
             "--container-driver-root=" + self.path("root"), "--cdi-dir=" + self.cdi,
             "--kubelet-socket=" + self.path("kubelet/kubelet.sock"), "--state-dir=" + self.path("state"),
             "--arbiter-dir=" + self.arb, "--pod-resources-socket=" + self.path("podres.sock"),
             f"--libsluice={BUILD}/lib/libsluice.so", "--metrics-address=127.0.0.1:0"],
            env=env, stderr=log, start_new_session=True)

    def port(self):
        log = pathlib.Path(self.path("log"))
        return until("a port", lambda: re.search(r"metrics at port (\d+)", log.read_text(encoding="utf-8"))).group(1)

    def tenant(self, name, space, slot, cores, *command, gpu=0):
        """A pod's container that runs this program of the tests."""
        self.pod(name, {"main": [(gpu, 4096, cores)]}, space=space)
        self.place(name, self.slot(slot), space=space)
        assert self.prestart(self.slot(slot)) == [""]
        env = dict(self.sim, SLUICE_ATTACH=f"{self.arb}/k/{self.tenant_of(self.slot(slot))}/attach.sock",
                   LD_PRELOAD=f"{RUNTIME}{BUILD}/lib/libsluice.so", LD_LIBRARY_PATH=f"{BUILD}/sim",
                   CUDA_VISIBLE_DEVICES=self.gpus[gpu])  # a container would see no other card
        return subprocess.Popen([f"{BUILD}/tests/{command[0]}", *command[1:]], env=env, stdin=subprocess.PIPE,
                                stdout=subprocess.PIPE, text=True)


class Prometheus:
    def __init__(self, folder, targets):
        self.folder = folder
        rules = monitoring.rule_file().replace("30s", f"{STEP_S}s").replace("* 30", f"* {STEP_S}")
        rules = rules.replace(f"increase{STEP_S}s", "increase30s")
        pathlib.Path(f"{folder}/rules.yml").write_text(rules, encoding="utf-8")
        jobs = [{"job_name": job, "honor_labels": True, "static_configs": [{"targets": [f"127.0.0.1:{port}"],
                                                                          "labels": labels}]}
                for job, port, labels in targets]
        pathlib.Path(f"{folder}/prometheus.yml").write_text(json.dumps({
            "global": {"scrape_interval": "1s", "evaluation_interval": "5s"}, "rule_files": ["rules.yml"],
            "scrape_configs": jobs}), encoding="utf-8")
        self.url = f"http://127.0.0.1:{free_port()}"
        with open(f"{folder}/log", "wb") as log:
            self.process = subprocess.Popen(
                [PROMETHEUS, f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data",
                 f"--web.listen-address={self.url[7:]}"], stdout=log, stderr=log)
        until("Prometheus", self.ready, PATIENCE_S)

    def ready(self):
        if self.process.poll() is not None:
            raise AssertionError(pathlib.Path(f"{self.folder}/log").read_text(encoding="utf-8"))
        with contextlib.suppress(OSError):
            return urllib.request.urlopen(self.url + "/-/ready", timeout=5).status == 200
        return False

    def ask(self, path, **query):
        with urllib.request.urlopen(f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(query)}", timeout=30) as answer:
            got = json.load(answer)
        assert got["status"] == "success", got
        return got["data"]

    def query(self, expr):
        return self.ask("query", query=expr)["result"]

    def numbers(self, expr):
        """namespace → value"""
        return {r["metric"].get("namespace", ""): float(r["value"][1]) for r in self.query(expr)}

    def samples(self, series):
        """namespace → [(time, value)], whatever was scraped"""
        return {r["metric"].get("namespace", ""): [(t, float(v)) for t, v in r["values"]]
                for r in self.query(series + "[1h]")}

    def end(self):
        self.process.terminate()
        self.process.wait()


class Scrape(unittest.TestCase):
    def setUp(self):
        self.node = Node("h200x2")
        self.addCleanup(self.node.end)
        self.node.start()
        self.folder = tempfile.mkdtemp(prefix="sluice-prometheus-")
        self.addCleanup(shutil.rmtree, self.folder)
        port = free_port()
        with open(f"{self.folder}/controller.log", "wb") as log:
            controller = subprocess.Popen(
                [f"{BUILD}/bin/sluice-controller", "--kubeconfig=" + self.node.path("kubeconfig"), "--admission=off",
                 "--extender=choose", "--listen=off", f"--extender-http=127.0.0.1:{free_port()}",
                 "--leader-election=off", "--namespace=sluice-system", f"--metrics=127.0.0.1:{port}"], stderr=log)
        self.addCleanup(controller.wait)
        self.addCleanup(controller.terminate)
        self.prometheus = Prometheus(self.folder, [("sluiced", self.node.port(), {"node": "node-1"}),
                                                   ("sluice-controller", port, {"pod": "c-0"})])
        self.addCleanup(self.prometheus.end)

    def start(self, *tenant, gpu=0):
        process = self.node.tenant(*tenant, gpu=gpu)
        for end in (process.stdout.close, process.stdin.close, process.wait, process.kill):
            self.addCleanup(end)
        return process

    def work(self):
        """Three tenants have worked, one holds memory; Prometheus has seen all of it, and charged it. Returns what their
        ledgers say, by namespace."""
        node, prometheus = self.node, self.prometheus
        subprocess.run([fraction_world.CTL, "xid", "0", "13"], env=node.sim, check=True, stdout=subprocess.DEVNULL)
        node.ask(f"allocate {fraction_world.GPU} {node.slot(5)}")
        holder = self.start("c", "store", 3, 0, "cli/cli_alloc", str(2 * GIB))
        self.assertEqual(holder.stdout.readline(), "ok\n")
        workers = [self.start("a", "team", 1, 30, "integration/compute_tenant", "steady", "kernel_us=500", "seconds=8"),
                   self.start("b", "other", 2, 60, "integration/compute_tenant", "steady", "kernel_us=500", "seconds=6"),
                   # Alone on its card and without a limit: nobody needs to know what it uses but who pays for it.
                   self.start("d", "alone", 4, 0, "integration/compute_tenant", "steady", "kernel_us=500", "seconds=6",
                              gpu=1)]
        done = []
        for worker in workers:
            out = worker.communicate()[0]
            self.assertEqual(worker.returncode, 0, "a tenant failed")
            done.append(json.loads(out)["done_ns"])
        ledger = {t["about"]["namespace"]: t for t in node.tenants().values()}
        self.assertEqual(set(ledger), {"team", "other", "alone", "store"})
        for space, ns in zip(("team", "other", "alone"), done):
            ledger[space]["done_ns"] = ns

        def charged():
            """Two steps of the rules are over since the first scrape that saw the last of it."""
            seen = prometheus.samples("sluice_tenant_gpu_seconds_total")
            steps = prometheus.samples(GPU_TIME)
            for space, tenant in ledger.items():
                final = [t for t, v in seen.get(space, []) if v >= tenant["used_ns"] / 1e9 - 1e-3]
                after = [t for t, _ in steps.get(space, []) if final and t > final[0] + STEP_S]
                if len(after) < 2:
                    return False
            return True
        until("everything is charged", charged, PATIENCE_S)
        return ledger

    def test_all(self):
        ledger = self.work()
        with self.subTest("chargeback of GPU time"):
            got = self.prometheus.numbers(f"sum_over_time({GPU_TIME}[1h])")
            self.assertEqual(set(got), set(ledger))
            self.assertEqual(got["store"], 0)
            for space in ("team", "other", "alone"):
                used, done = ledger[space]["used_ns"] / 1e9, ledger[space]["done_ns"] / 1e9
                print(f"{space}: charged {got[space]:.3f} s, ledger {used:.3f} s, kernels done {done:.3f} s")
                self.assertGreater(used, 0.5, space)
                self.assertAlmostEqual(got[space] / used, 1, delta=0.02)
        with self.subTest("chargeback of memory"):
            self.memory(ledger)
        for path in monitoring.DASHBOARDS:
            for title, query in monitoring.queries(path):
                with self.subTest(f"{path.name}: {title}"):
                    self.assertTrue(self.data(query), query)
        with self.subTest("alerts"):
            alerts = {a["name"] for g in self.prometheus.ask("rules")["groups"] for a in g["rules"] if a["type"] == "alerting"}
            self.assertEqual(alerts, {r["alert"] for r in monitoring.rules() if "alert" in r})
            bad = [(r["name"], r["lastError"]) for g in self.prometheus.ask("rules")["groups"] for r in g["rules"]
                   if r["health"] == "err"]
            self.assertEqual(bad, [])

    def memory(self, ledger):
        """Bytes from the ledger, for as much of each step as the scrapes of it saw the tenant."""
        steps = self.prometheus.samples(MEMORY)
        seen = self.prometheus.samples("sluice_tenant_memory_used_bytes")
        ups = [t for t, _ in self.prometheus.samples('up{job="sluiced"}')[""]]
        self.assertEqual(set(steps), set(ledger))
        gpu = ledger["store"]["gpus"][0]
        gib, used = (gpu["memory_used_bytes"] + gpu["memory_overhead_bytes"]) / GIB, 0
        self.assertGreater(gib, 2)
        for end, _ in steps["store"]:
            there = [v for t, v in seen["store"] if end - STEP_S < t <= end and v > 0]  # 0: it had not begun
            used += gib * STEP_S * len(there) / len([t for t in ups if end - STEP_S < t <= end])
        charged = sum(v for _, v in steps["store"])
        print(f"store: charged {charged:.1f} GiB s, ledger {used:.1f} GiB s")
        self.assertAlmostEqual(charged / used, 1, delta=0.02)

    def data(self, query):
        for word, value in (("$__rate_interval", "1m"), ("$__range", "1h"), ("$node", ".*"), ("$namespace", ".*"),
                            ("$pod", ".*")):
            query = query.replace(word, value)
        values = re.fullmatch(r"label_values\((.*), *(\w+)\)", query)
        if values:
            return self.prometheus.ask(f"label/{values.group(2)}/values", **{"match[]": values.group(1)})
        return [r for r in self.prometheus.query(query) if math.isfinite(float(r["value"][1]))]


if __name__ == "__main__":
    if not shutil.which(PROMETHEUS):
        print("skipped: prometheus is not installed (Debian: apt-get install prometheus)")
        sys.exit(77)
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
