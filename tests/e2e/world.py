# SPDX-License-Identifier: Apache-2.0
"""What tests say about a node: overlays, pods, labels, what a pod sees; and the list of tests."""
import json
import os
import re
import signal
import subprocess
import time
import urllib.request

import images
from cluster import NODE, Failed, wait

SIM_ROOT = "/var/lib/sluice-sim"
PODS = "/api/v1/namespaces/default/pods"
AGENTS = "/api/v1/namespaces/sluice-system/pods?labelSelector=app.kubernetes.io%2Fname%3Dsluiced"
TESTS = []


def test(name):
    """Registers a test; they run in the order of their files, each on the node as the one before left it."""
    def add(function):
        TESTS.append((name, function))
        return function
    return add


def cards(count, gpus=None):
    """For a test of a node with so many GPUs, or with these (run.py --gpus); the others are for nodes with one."""
    def mark(function):
        function.cards = count
        function.gpus = gpus or f"h200x{count}"
        return function
    return mark


def check(condition, message):
    if not condition:
        raise Failed(message)


def same(what, actual, expected):
    if actual != expected:
        raise Failed(f"{what}: {actual!r}, not {expected!r}")


class World:
    def __init__(self, cluster, gpus):
        self.cluster = cluster
        self.api = cluster.api
        self.overlay = None
        self.sim("make-root", SIM_ROOT, gpus)
        self.cards = re.findall(r"UUID: (GPU-[^)]+)", self.sim("list"))

    # ---- the node

    def sim(self, *argv):
        """sluice-sim-ctl on the node's simulated machine."""
        state = {"SLUICE_SIM_STATE": SIM_ROOT + "/state/machine", "SLUICE_SIM_ROOT": SIM_ROOT}
        env = {**os.environ, **(state if argv[0] != "make-root" else {})}
        done = subprocess.run([os.path.join(images.BUILD, "sim", "sluice-sim-ctl"), *argv], env=env,
                              capture_output=True, text=True, check=False)
        check(done.returncode == 0, f"sluice-sim-ctl {' '.join(argv)}: {done.stderr.strip()}")
        return done.stdout

    def components(self, *more):
        """For apply(): those that every overlay gets here, and these of deploy/."""
        up = os.path.relpath(images.TOP, os.path.join(self.cluster.work, "overlay-any"))
        return [f"{up}/tests/e2e/sim", *(f"{up}/deploy/components/{c}" for c in ("own-node-only", *more))]

    def apply(self, overlay, **more):
        """kubectl apply -k of an overlay as it is in deploy/, with the simulated driver put under it; `more` is
        for the kustomization that does so."""
        folder = os.path.join(self.cluster.work, "overlay-" + overlay)
        os.makedirs(folder, exist_ok=True)
        relative = os.path.relpath(images.TOP, folder)
        with open(os.path.join(folder, "kustomization.yaml"), "w", encoding="utf-8") as f:
            json.dump({"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization",
                       "resources": [f"{relative}/deploy/overlays/{overlay}"],
                       "components": self.components(), **more}, f)
        self.cluster.kubectl("apply", "-k", folder)
        self.overlay = overlay if not more else None

    def use(self, overlay):
        """The overlay, unless the node has it already: for tests that go on from where another ended."""
        if self.overlay != overlay:
            self.apply(overlay)
            self.agent()

    def agent(self):
        """The running agent's pod; waits for it, through a rollout if there is one."""
        def found():
            daemonset = self.api.get("/apis/apps/v1/namespaces/sluice-system/daemonsets/sluiced")
            pods = [p for p in self.api.get(AGENTS)["items"] if not p["metadata"].get("deletionTimestamp")]
            status = daemonset["status"]
            rolled = (status.get("observedGeneration") == daemonset["metadata"]["generation"] and
                      status.get("updatedNumberScheduled") == 1 and status.get("numberReady") == 1)
            return pods[0] if rolled and len(pods) == 1 and ready(pods[0]) else None
        return wait(lambda: "the agent to be ready: " + self.agent_words(), found, 90, every=0.2)

    def agent_words(self):
        done = self.cluster.kubectl("-n", "sluice-system", "logs", "daemonset/sluiced", "--tail=5", check=False)
        return (done.stdout or done.stderr).strip()

    def agent_pid(self, name="sluiced"):
        """The agent's process; "sluiced-parent": the one that starts it again, whose end is the container's."""
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/cmdline", "rb") as f:
                    words = f.read().split(b"\0")
                with open(f"/proc/{pid}/comm", encoding="ascii", errors="replace") as f:
                    comm = f.read().strip()
            except OSError:
                continue
            if words[0] == b"/usr/bin/sluiced" and words[1:2] != [b"arbiter"] and comm == name:
                return int(pid)
        return None

    def agent_get(self, path):
        """The agent's HTTP server, at its pod's address."""
        ip = self.agent()["status"]["podIP"]
        with urllib.request.urlopen(f"http://{ip}:9400{path}", timeout=10) as response:
            return response.read().decode()

    def labels(self):
        return self.cluster.node()["metadata"]["labels"]

    def allocatable(self):
        """{resource: count} of what is ours, without what is 0."""
        return {k: int(v) for k, v in self.cluster.node()["status"]["allocatable"].items()
                if "/" in k and "hugepages" not in k and int(v) > 0}

    def wait_allocatable(self, expected):
        """By the node's status and by kubelet itself, which is ahead of it: between an agent that was killed and
        the next one's list it rejects pods that the scheduler, going by the status, still sends."""
        def settled():
            heard = self.kubelet_heard()
            return (self.allocatable() == expected and
                    all(heard.get(k, (0, 0))[1] == n and time.time() - heard[k][0] > 0.5 for k, n in expected.items()))
        wait(lambda: f"allocatable {expected}, it is {self.allocatable()}, by kubelet "
             f"{ {k: n for k, (_, n) in self.kubelet_heard().items()} }; the agent: {self.agent_words()}", settled, 60)

    def wait_labels(self, **expected):
        """Labels nvidia.com/…; _ stands for a dot, __ for a dash; None: absent."""
        wanted = {"nvidia.com/" + k.replace("__", "-").replace("_", "."): v for k, v in expected.items()}

        def now():
            labels = self.labels()
            return {k: labels.get(k) for k in wanted}
        wait(lambda: f"labels {wanted}, they are {now()}", lambda: now() == wanted, 60)

    def events(self, reason):
        return [e for e in self.api.get("/api/v1/events")["items"] if e["reason"] == reason]

    # ---- pods

    def pod(self, name, resource=None, command=("gpus", "hold"), claims=None, annotations=None,
            **more):
        limits = {resource: 1} if isinstance(resource, str) else (resource or {})
        container = {"name": "main", "image": images.TEST, "imagePullPolicy": "Never", "command": list(command),
                     "resources": {"limits": limits}}
        spec = {"containers": [container], "restartPolicy": "Never", "terminationGracePeriodSeconds": 0,
                "dnsPolicy": "Default", **more}
        if claims:
            spec["resourceClaims"] = [{"name": n, "resourceClaimTemplateName": t} for n, t in claims.items()]
            container["resources"]["claims"] = [{"name": n} for n in claims]
        if "resourceClaims" in spec:
            self.wait_placed()
        self.api.create(PODS, {"apiVersion": "v1", "kind": "Pod",
                               "metadata": {"name": name, "annotations": annotations or {}}, "spec": spec})

    def wait_placed(self):
        """The scheduler is done with every pod there is. While it writes a claim, kube-scheduler 1.36 counts the share
        twice for a moment; a pod that it looks at then is refused, and not looked at again for minutes (docs/dra.md)."""
        def done(p):
            return p["spec"].get("nodeName") or any(
                c["type"] == "PodScheduled" and c.get("reason") == "Unschedulable" and "waiting for" not in c.get("message", "")
                for c in p["status"].get("conditions", []))
        wait(lambda: "the scheduler: " + "; ".join(
            self.why(p["metadata"]["name"]) for p in self.api.get(PODS)["items"] if not done(p)),
            lambda: all(done(p) for p in self.api.get(PODS)["items"]), 30, every=0.05)

    def keep_pod(self, name, resource):
        """A pod that an earlier test may have left."""
        if self.api.get(f"{PODS}/{name}") is None:
            self.pod(name, resource)

    def get_pod(self, name):
        pod = self.api.get(f"{PODS}/{name}")
        check(pod, f"there is no pod {name}")
        return pod

    def why(self, name):
        """A pod's state in words, for messages."""
        status = self.get_pod(name)["status"]
        words = [status.get("phase"), status.get("reason"), status.get("message")]
        words += [c.get("message") for c in status.get("conditions", []) if c["status"] != "True"]
        words += [s.get("message") or s.get("reason") for c in status.get("containerStatuses", [])
                  for s in c["state"].values()]
        return f"pod {name}: " + "; ".join(w for w in words if w)

    def wait_running(self, *names, seconds=60):
        for name in names:
            wait(lambda n=name: f"it to run: {self.why(n)}",
                 lambda n=name: self.get_pod(n)["status"].get("phase") == "Running" and ready(self.get_pod(n)),
                 seconds)

    def waiting(self, name):
        """Whether the scheduler has found no place for it."""
        return any(c["type"] == "PodScheduled" and c.get("reason") == "Unschedulable"
                   for c in self.get_pod(name)["status"].get("conditions", []))

    def delete(self, *names):
        for name in names:
            self.api.delete(f"{PODS}/{name}")
        for name in names:
            wait(f"pod {name} to be gone", lambda n=name: self.api.get(f"{PODS}/{n}") is None, 60)

    def exec(self, pod, *command):
        return self.cluster.kubectl("exec", pod, "--", *command)

    def sees(self, pod, *words):
        """What the driver shows in a pod: gpus.c's object."""
        return json.loads(self.exec(pod, "gpus", *words))

    def container(self, pod):
        """Its id and restarts: equal before and after means untouched."""
        status = self.get_pod(pod)["status"]["containerStatuses"][0]
        return status.get("containerID"), status["restartCount"], "running" in status["state"]

    def beats(self, pod):
        """How often `gpus hold` has used its GPU; 0 while kubelet cannot be asked."""
        return self.cluster.kubectl("logs", pod, check=False).stdout.count(": 0\n")

    def clean(self):
        """No pods, no claims, whole cards."""
        names = [p["metadata"]["name"] for p in self.api.get(PODS)["items"]]
        self.delete(*names)
        if "MIG" in self.sim("list"):
            for card in range(len(self.cards)):
                self.sim("mig", str(card), "off")

    # ---- kubelet's own words

    def kubelet_log(self, pattern):
        """[(time, match)] of its lines."""
        found = []
        with open(os.path.join(self.cluster.logs, "kubelet.log"), encoding="utf-8", errors="replace") as f:
            for line in f:
                match = re.match(r"I(\d{4} \d\d:\d\d:\d\d)\.(\d{6}) .*?" + pattern, line)
                if match:
                    moment = time.strptime(f"{time.localtime().tm_year}{match.group(1)}", "%Y%m%d %H:%M:%S")
                    found.append((time.mktime(moment) + int(match.group(2)) / 1e6, match))
        return found

    def registrations(self):
        """When kubelet took a device plugin's registration: [(time, resource)]."""
        return [(t, m.group("name")) for t, m in
                self.kubelet_log(r'Got registration request.*resource(?:Name)?="(?P<name>[^"]+)"')]

    def kubelet_heard(self):
        """{resource: (when, healthy devices)} by the last list, or the last end, of each device plugin."""
        return {m.group("name"): (t, int(m.group("healthy") or 0)) for t, m in self.kubelet_log(
            r'(?:Processed device updates for resource|Endpoint became unhealthy)" resourceName="(?P<name>[^"]+)"'
            r'(?: totalCount=\d+ healthyCount=(?P<healthy>\d+))?')}

    def kill_agent(self, name="sluiced"):
        pid = self.agent_pid(name)
        check(pid, "there is no process of the agent")
        os.kill(pid, signal.SIGKILL)


def ready(pod):
    return any(c["type"] == "Ready" and c["status"] == "True" for c in pod["status"].get("conditions", []))


def cuda_uuids(view):
    return sorted(d["uuid"] for d in view["cuda"])


def bare(uuid):
    """GPU-… and MIG-… without the first word, as CUDA has it."""
    return uuid.split("-", 1)[1]


__all__ = ["NODE", "TESTS", "World", "bare", "cards", "check", "cuda_uuids", "ready", "same", "test", "wait"]
