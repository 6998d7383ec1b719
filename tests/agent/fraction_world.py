# SPDX-License-Identifier: Apache-2.0
"""A node for fraction_node.py: sluiced, its arbiter, simulated GPUs, a kubelet that is none (its device plugins
and its PodResources) and as much of an API server as is asked for."""
import glob
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import urllib.parse

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from dra_api import Api  # noqa: E402
from waiting import until  # noqa: E402

BUILD = os.path.abspath(sys.argv[1])
SLUICED = os.path.join(BUILD, "tests/agent/sluiced_faults")
KUBELET = os.path.join(BUILD, "tests/agent/kubelet_tool")
CTL = os.path.join(BUILD, "sim/sluice-sim-ctl")
SLUICE = os.path.join(BUILD, "bin/sluice")
GPU = "nvidia.com/gpu"
MIB = 1 << 20
NODE = "/api/v1/nodes/node-1"
SLOTS = 10


class NodeApi(Api):
    """With Nodes that are watched and patched, pods that are read, and events that are kept."""

    def __init__(self):
        self.events = []
        self.unread = set()  # paths that nobody can read at present
        super().__init__()

    def serve(self, handler, method, path, body):
        split = urllib.parse.urlsplit(path)
        query = dict(urllib.parse.parse_qsl(split.query))
        if method == "POST" and split.path.endswith("/events") and not self.down:
            self.events.append(body)
            return handler.answer(201, body)
        if method == "GET" and split.path in self.unread:
            return handler.answer(500, {"kind": "Status", "message": "the store does not answer"})
        if self.down or not split.path.startswith("/api/v1/nodes"):
            if method == "PATCH" and not self.down:
                return handler.answer(200, {})
            return super().serve(handler, method, path, body)
        if method == "GET" and split.path.endswith("/nodes"):
            return (self.watch if query.get("watch") else self.list)(handler, split.path, query)
        if method != "PATCH":
            return super().serve(handler, method, path, body)
        node = json.loads(json.dumps(self.objects[split.path]))
        for part, values in body["metadata"].items():
            for key, value in values.items():
                node["metadata"].setdefault(part, {})[key] = value
                if value is None:
                    del node["metadata"][part][key]
        self.patches.append((split.path, body))
        return handler.answer(200, self.put(split.path, node))


class Node:
    def __init__(self, spec="h200x2", strategy="cdi-cri"):
        self.dir = tempfile.mkdtemp(prefix="slf-", dir="/tmp")
        self.cdi, self.arb = self.path("cdi"), self.path("arb")
        os.mkdir(self.path("kubelet"))
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("SLUICE_")}
        self.sim = dict(self.env, SLUICE_SIM=spec, SLUICE_SIM_STATE=self.path("root/state/machine"))
        subprocess.run([CTL, "make-root", self.path("root"), spec], check=True, env=self.env,
                       stdout=subprocess.DEVNULL)
        self.gpus = re.findall(r"GPU-[0-9a-f-]+", subprocess.run(
            [CTL, "list"], check=True, env=self.sim, capture_output=True, text=True).stdout)
        self.api, self.resizes = NodeApi(), 0
        self.api.put(NODE, {"kind": "Node", "metadata": {"name": "node-1", "uid": "n-1"}})
        with open(self.path("config.yaml"), "w", encoding="ascii") as f:
            f.write(f"version: v1\nflags: {{plugin: {{deviceListStrategy: {strategy}}}}}\n"
                    f"sharing: {{fractional: {{enabled: true, slots: {SLOTS}, allow: {{burst: 80, namespaces: [\n"
                    "  {name: team, priority: high}]}}}\n")
        with open(self.path("kubeconfig"), "w", encoding="ascii") as f:
            json.dump({"apiVersion": "v1", "kind": "Config", "current-context": "c",
                       "clusters": [{"name": "k", "cluster": {"server": self.api.url}}],
                       "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
                       "users": [{"name": "u", "user": {}}]}, f)
        self.kubelet = subprocess.Popen([KUBELET, self.path("kubelet")], text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.ask("podres " + self.path("podres.sock"))
        self.agent = None
        self.groups = []

    def path(self, *names):
        return os.path.join(self.dir, *names)

    def ask(self, line):
        self.kubelet.stdin.write(line + "\n")
        self.kubelet.stdin.flush()
        return self.kubelet.stdout.readline().strip()

    def start(self, fault=None, wait=True):
        env = dict(self.env, **({"SLUICE_FAULT": fault} if fault else {}))
        with open(self.path("log"), "a", encoding="utf-8") as file:
            self.launch(env, sys.stderr if "SLUICE_TEST_LOG" in os.environ else file)
        self.groups.append(self.agent.pid)
        if wait:
            self.registered()

    def launch(self, env, log):
        self.agent = subprocess.Popen(
            [SLUICED, "--node-name=node-1", "--kubeconfig=" + self.path("kubeconfig"),
             "--config-file=" + self.path("config.yaml"), "--driver-root=" + self.path("root"),
             "--container-driver-root=" + self.path("root"), "--cdi-dir=" + self.cdi,
             "--kubelet-socket=" + self.path("kubelet/kubelet.sock"), "--state-dir=" + self.path("state"),
             "--state-dir-host=/host/state", "--arbiter-dir=" + self.arb,
             "--arbiter-dir-host=/host/arb", "--pod-resources-socket=" + self.path("podres.sock"),
             "--libsluice=" + os.path.join(BUILD, "lib/libsluice.so"), "--metrics-address="],
            env=env, stderr=log, start_new_session=True)

    def registered(self):
        n = len(self.gpus) * SLOTS
        answer = self.ask(f"wait {GPU} {n} {n} 20")
        if not answer.startswith("ok"):
            raise AssertionError(f"not registered: {answer}")

    def died(self):
        return until("the agent dies", lambda: self.agent.poll() is not None) and self.again()

    def stop(self, sig=signal.SIGTERM):
        self.agent.send_signal(sig)
        self.agent.wait(30)
        self.again()

    def again(self):
        self.ask("stop")  # kubelet forgets what it knew of plugins, so that `wait` waits for the next
        self.ask("start")
        return True

    def end(self):
        for group in self.groups:
            try:
                os.killpg(group, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.agent.wait()
        self.kubelet.stdin.close()
        self.kubelet.stdout.close()
        self.kubelet.wait()
        self.api.end()
        shutil.rmtree(self.dir)

    # --- pods ---

    def slot(self, n, gpu=0):
        return f"{self.gpus[gpu]}::{n}"

    def pod(self, name, shares, uid=None, space="team", inits=None, phase="Pending", node="node-1",
            **extra):
        """shares: container → [(GPU's index, MiB, cores)], or None for no promise at all."""
        meta = {"name": name, "namespace": space, "uid": uid or "u-" + name, "annotations": {}}
        if shares is not None:
            meta["annotations"]["sluice.io/lease"] = json.dumps({
                "version": 1, "node": node, "containers": [
                    {"name": c, "gpus": [{"uuid": self.gpus[g], "memoryMiB": m, "cores": p}
                                         for g, m, p in gpus], **extra}
                    for c, gpus in shares.items()]})
        return self.api.put(self.pod_path(name, space), {
            "kind": "Pod", "metadata": meta,
            "spec": {"nodeName": "node-1", "containers": [],
                     "initContainers": [{"name": i} for i in inits or []]},
            "status": {"phase": phase}})

    @staticmethod
    def pod_path(name, space="team"):
        return f"/api/v1/namespaces/{space}/pods/{name}"

    def status(self, name, **status):
        pod = json.loads(json.dumps(self.api.objects[self.pod_path(name)]))
        pod["status"].update(status)
        self.api.put(self.pod_path(name), pod)

    def resize(self, name, mib, cores=None, outcome=None, limit=None, tell=True):
        """What sluice-controller does: writes another lease into a running pod, and tells the Node."""
        pod = json.loads(json.dumps(self.api.objects[self.pod_path(name)]))
        notes = pod["metadata"]["annotations"]
        notes.setdefault("sluice.io/lease-allocated", notes["sluice.io/lease"])
        lease = json.loads(notes["sluice.io/lease"])
        for container in lease["containers"]:
            for gpu in container["gpus"]:
                gpu.update({"memoryMiB": mib, **({} if cores is None else {"cores": cores})})
            if limit:
                container["coresLimit"] = limit
        notes["sluice.io/lease"] = json.dumps(lease)
        if outcome:
            notes["sluice.io/resized"] = json.dumps(outcome)
        self.api.put(self.pod_path(name), pod)
        if tell:
            self.tell_resized()

    def tell_resized(self):
        node = json.loads(json.dumps(self.api.objects[NODE]))
        self.resizes += 1
        node["metadata"].setdefault("annotations", {})["sluice.io/resized-at"] = str(self.resizes)
        self.api.put(NODE, node)

    def place(self, name, *ids, container="main", space="team"):
        self.ask(f"place {space} {name} {container} {GPU} {' '.join(ids)}")

    def gone(self, name, space="team"):
        self.ask(f"remove {space} {name}")
        self.api.delete(self.pod_path(name, space))

    def prestart(self, *containers):
        return json.loads(self.ask(f"prestart {GPU} {' '.join(containers)}"))

    # --- what came of it ---

    def tenants(self):
        run = subprocess.run([SLUICE, "status", "--json", "--dir", self.arb], capture_output=True,
                             text=True, env=self.env, check=True)
        return {t["about"].get("pod", "") + "/" + t["about"].get("container", ""): t
                for t in json.loads(run.stdout)["tenants"]}

    def arbiter(self):
        """Its process; None: it does not answer at present."""
        run = subprocess.run([SLUICE, "status", "--json", "--dir", self.arb], capture_output=True, text=True, env=self.env,
                             check=False)
        return json.loads(run.stdout)["arbiter_pid"] if run.returncode == 0 else None

    def specs(self):
        """slot → its spec"""
        found = {}
        for p in glob.glob(self.cdi + "/*slot_*.json"):
            try:
                with open(p, encoding="utf-8") as f:
                    found[re.search("slot_(.*).json", p).group(1)] = json.load(f)
            except FileNotFoundError:
                pass  # of a pod that is gone, removed this moment
        return found

    def tenant_of(self, slot):
        mounts = self.specs()[slot]["devices"][0]["containerEdits"]["mounts"]
        attach = [m["hostPath"] for m in mounts if m["containerPath"] == "/run/sluice"]
        return os.path.basename(attach[0])

    def cards_of(self, slot):
        edits = self.specs()[slot]["devices"][0]["containerEdits"]
        paths = [e["containerPath"] for e in edits["mounts"]]
        return sorted(int(m.group(1)) for m in (re.search(r"/nvidia(\d+)$", p) for p in paths) if m)
