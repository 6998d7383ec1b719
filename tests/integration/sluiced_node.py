# SPDX-License-Identifier: Apache-2.0
"""
A node for a whole sluiced: a driver root with simulated GPUs, a kubelet, an API server where one is wanted, and the
agent itself, to be started, killed and asked. Usage of a test: sluiced_x.py BUILD [unittest's arguments]
"""
import contextlib
import json
import os
import pathlib
import queue
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.error
import urllib.request

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "agent"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import dra_api  # noqa: E402
import waiting  # noqa: E402

BUILD = os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else ""
GPU = "nvidia.com/gpu"
NODE = "/api/v1/nodes/node-1"
PATIENCE_S = float(os.environ.get("PATIENCE", "30"))  # of what must happen; a test that passes never waits so long


def shared(kind, replicas, more=""):
    return (f"version: v1\nsharing:\n  {kind}:\n    resources:\n"
            f"    - {{name: nvidia.com/gpu, replicas: {replicas}}}\n{more}")


def until(what, condition, seconds=PATIENCE_S):
    return waiting.until(what, condition, seconds)


class Api(dra_api.Api):
    """With Nodes, Events and, where it is installed, Node Feature Discovery, beside what the DRA driver needs."""

    FEATURE = "/apis/nfd.k8s-sigs.io/v1alpha1/namespaces/gpu/nodefeatures/sluice-features-for-node-1"

    def __init__(self):
        super().__init__()
        self.nfd = False
        self.put(NODE, {"kind": "Node", "apiVersion": "v1",
                        "metadata": {"name": "node-1", "uid": "u-1", "labels": {}, "annotations": {}}})

    def serve(self, handler, method, path, body):
        where = path.split("?")[0]
        if not self.down and where in (NODE, "/api/v1/nodes"):
            self.log.append((method, where, {}))
        if not self.down and method == "GET" and where == "/api/v1/nodes":
            query = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(path).query))
            return (self.watch if query.get("watch") else self.list)(handler, where, query)
        if not self.down and where == self.FEATURE and not self.nfd:
            self.log.append((method, where, {}))
            return handler.answer(404, {"kind": "Status", "message": "the server could not find the requested resource"})
        if not self.down and method == "PATCH" and where == self.FEATURE:
            assert handler.headers["content-type"] == "application/apply-patch+yaml"
            return handler.answer(200, self.put(where, body))
        if not self.down and method == "PATCH" and where == NODE:
            return handler.answer(200, self.change(body))
        return super().serve(handler, method, path, body)

    def change(self, patch):
        with self.lock:
            node = json.loads(json.dumps(self.objects[NODE]))
        for part in ("labels", "annotations"):
            for key, value in (patch["metadata"].get(part) or {}).items():
                node["metadata"][part].pop(key, None)
                if value is not None:
                    node["metadata"][part][key] = value
        return self.put(NODE, node)

    def label(self, key, value):
        self.change({"metadata": {"labels": {key: value}}})

    def labels(self):
        with self.lock:
            return dict(self.objects[NODE]["metadata"]["labels"])

    def feature(self):
        """The labels of the node's NodeFeature; None without one."""
        with self.lock:
            return self.objects.get(self.FEATURE, {}).get("spec", {}).get("labels")

    def events(self):
        with self.lock:
            return [o for p, o in self.objects.items() if "/events/" in p]


class Kubelet:
    def __init__(self, folder):
        self.process = subprocess.Popen([f"{BUILD}/tests/agent/kubelet_tool", folder], text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.answers = queue.Queue()
        threading.Thread(target=self.read, daemon=True).start()
        self.ask(f"counts {GPU}")  # it listens

    def read(self):
        for line in self.process.stdout:
            self.answers.put(line.strip())
        self.answers.put("gone")

    def tell(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def answer(self):
        return self.answers.get(timeout=PATIENCE_S * 2)

    def ask(self, line):
        self.tell(line)
        return self.answer()

    def end(self):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


class Agent:
    """One sluiced: its process, its log, its port."""

    def __init__(self, node, name, command, env):
        self.log = f"{node.folder}/{name}.log"
        with open(self.log, "ab") as log:
            self.past = log.tell()  # of agents before it
            self.process = subprocess.Popen(command + ["--metrics-address=127.0.0.1:0"], stderr=log,
                                            env=env, restore_signals=False)

    def text(self):
        return pathlib.Path(self.log).read_bytes()[self.past:].decode()

    def port(self):
        return until("a port", lambda: re.search(r"metrics at port (\d+)", self.text())).group(1)

    def said(self, words, seconds=PATIENCE_S):
        try:
            until(f"the agent says {words!r}", lambda: words in self.text(), seconds)
        except AssertionError as e:
            raise AssertionError(f"{e}, but\n{self.text()}") from None

    def get(self, path, seconds=PATIENCE_S):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port()}{path}", timeout=seconds) as r:
                return r.status, r.read().decode()
        except urllib.error.HTTPError as e:
            with e:
                return e.code, e.read().decode()

    def metric(self, name):
        """The value of the first sample whose beginning this is; None without one."""
        found = re.search(rf"^{re.escape(name)}\S* (\S+)$", self.get("/metrics")[1], re.M)
        return float(found.group(1)) if found else None

    def kill(self, sig=signal.SIGKILL):
        self.process.send_signal(sig)
        return self.process.wait(timeout=PATIENCE_S)


class Node:
    def __init__(self, spec="h200x2", api=False):
        self.folder = tempfile.mkdtemp(prefix="sluice-node-")
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(("SLUICE_SIM", "NVIDIA_", "LD_LIBRARY_PATH"))}
        self.root, self.config_file = f"{self.folder}/root", f"{self.folder}/config.yaml"
        os.mkdir(f"{self.folder}/kubelet")
        if spec:
            self.ctl("make-root", self.root, spec)
        else:
            os.mkdir(self.root)
        self.kubelet, self.agents = Kubelet(f"{self.folder}/kubelet"), []
        self.api = Api() if api else None
        self.options = [f"--driver-root={self.root}", f"--container-driver-root={self.root}",
                        f"--kubelet-socket={self.folder}/kubelet/kubelet.sock",
                        f"--pod-resources-socket={self.folder}/podres.sock", f"--mps-root={self.folder}/mps",
                        f"--cdi-dir={self.folder}/cdi", f"--state-dir={self.folder}/state",
                        f"--arbiter-dir={self.folder}/arbiter", "--node-name=node-1"]
        if api:
            kubeconfig = {"apiVersion": "v1", "kind": "Config", "current-context": "c",
                          "clusters": [{"name": "c", "cluster": {"server": self.api.url}}],
                          "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                          "users": [{"name": "u", "user": {}}]}
            self.write("kubeconfig", json.dumps(kubeconfig))
            self.options.append(f"--kubeconfig={self.folder}/kubeconfig")
        else:
            self.options.append("--no-api")

    def write(self, name, text):
        path = f"{self.folder}/{name}"
        pathlib.Path(path).write_text(text, encoding="utf-8")
        return path

    def ctl(self, *words):
        env = dict(self.env, SLUICE_SIM_STATE=f"{self.root}/state/machine",
                   SLUICE_SIM_ROOT=self.root)
        if words[0] == "make-root":
            env = self.env
        subprocess.run([f"{BUILD}/sim/sluice-sim-ctl", *words], check=True, env=env,
                       stdout=subprocess.DEVNULL)

    def config(self, text):
        self.write("config.yaml", text)

    def agent(self, *more, env=None, config=True, name="agent"):
        command = [f"{BUILD}/bin/sluiced", *self.options]
        if config:
            command.append(f"--config-file={self.config_file}")
        agent = Agent(self, name, command + list(more), dict(self.env, **(env or {})))
        self.agents.append(agent)
        return agent

    def wait(self, count, healthy=None, resource=GPU, seconds=PATIENCE_S):
        healthy = count if healthy is None else healthy
        end, got = time.monotonic() + seconds, "no"
        while got.startswith("no") and time.monotonic() < end and (
                any(a.process.poll() is None for a in self.agents)):
            got = self.kubelet.ask(f"wait {resource} {count} {healthy} 1")
        if not got.startswith("ok"):
            logs = "\n".join(a.text() for a in self.agents)
            raise AssertionError(f"{resource}: {count} devices, {healthy} healthy, wanted: {got}\n{logs}")

    def ids(self, resource=GPU):
        return self.kubelet.ask(f"list {resource}").split()

    def counts(self, resource=GPU):
        """Registrations, lists, blips."""
        return [int(n) for n in self.kubelet.ask(f"counts {resource}").split()]

    def allocate(self, *ids, resource=GPU):
        got = self.kubelet.ask(f"allocate {resource} {' '.join(ids)}")
        return got if got.startswith("error") else json.loads(got)

    def end(self):
        codes = [a.kill(signal.SIGTERM) for a in self.agents if a.process.poll() is None]
        self.end_daemons()
        self.kubelet.end()
        if self.api:
            self.api.end()
            self.api.server.server_close()
        shutil.rmtree(self.folder, ignore_errors=True)
        if any(codes):
            raise AssertionError(f"agents that were asked to end: {codes}")

    def daemons(self):
        """MPS daemons the agents left behind, as they should."""
        for path in pathlib.Path(self.folder).glob("mps/*/daemon.pid"):
            with contextlib.suppress(FileNotFoundError):  # the agent ended this daemon a moment ago
                yield int(path.read_text(encoding="ascii").split()[0])

    def end_daemons(self):
        for pid in self.daemons():
            try:
                os.kill(pid, signal.SIGTERM)
            except ProcessLookupError:
                pass


class Case(unittest.TestCase):
    def node(self, *args, **more):
        node = Node(*args, **more)
        self.addCleanup(node.end)
        return node


def main():
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
