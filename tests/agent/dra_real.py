#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The DRA driver with a real API server, the stock scheduler and the claim controller of Kubernetes; kubelet's
calls are made by the test. The agent has the rights of deploy/dra/rbac.yaml and a token bound to its node.

usage: dra_real.py URL CA_FILE TOKEN_FILE   (run by tests/http/real.sh); SLUICE_BUILD names the build
"""
import json
import os
import ssl
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request

URL, CA, TOKEN = sys.argv[1:4]
HERE = os.path.dirname(os.path.abspath(__file__))
sys.argv = [sys.argv[0], os.environ["SLUICE_BUILD"]]
sys.path.insert(0, HERE)
from dra_rig import CLAIMS, GIB, Node  # noqa: E402
from waiting import until  # noqa: E402

ROOT = os.path.dirname(os.path.dirname(HERE))
BIN = os.environ.get("SLUICE_K8S_BIN") or os.path.join(
    os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache")), "sluice/k8s")
RESOURCE = "/apis/resource.k8s.io/v1"
ADMIN = open(TOKEN).read().strip()
TLS = ssl.create_default_context(cafile=CA)


def call(method, path, body=None, good=(200, 201)):
    request = urllib.request.Request(URL + path, method=method,
                                     data=json.dumps(body).encode() if body else None)
    request.add_header("Authorization", "Bearer " + ADMIN)
    request.add_header("Content-Type", "application/merge-patch+json" if method == "PATCH"
                       else "application/json")
    try:
        with urllib.request.urlopen(request, context=TLS) as answer:
            return json.loads(answer.read())
    except urllib.error.HTTPError as e:
        text = e.read().decode()
        if e.code in good:
            return json.loads(text)
        raise AssertionError(f"{method} {path}: {e.code} {text}") from None


class RealApi:
    def __init__(self):
        self.url = URL

    def end(self):
        pass

    @staticmethod
    def slices():
        return call("GET", RESOURCE + "/resourceslices")["items"]


def kubeconfig(directory):
    path = os.path.join(directory, "kubeconfig")
    with open(path, "w") as f:
        json.dump({"apiVersion": "v1", "kind": "Config", "current-context": "c",
                   "clusters": [{"name": "c", "cluster": {"server": URL, "certificate-authority": CA}}],
                   "users": [{"name": "u", "user": {"token": ADMIN}}],
                   "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}]}, f)
    return path


def kubectl(config, *args, text=None):
    run = subprocess.run([os.path.join(BIN, "kubectl"), "--kubeconfig", config, *args], input=text,
                         capture_output=True, text=True)
    if run.returncode:
        raise AssertionError(f"kubectl {args}: {run.stderr}")


def agent_token(directory, config):
    """A service account with the documented rights, its token bound to a pod on the node."""
    kubectl(config, "apply", "-k", os.path.join(ROOT, "deploy/dra/"))
    for space in ("default", "sluice-system"):
        call("POST", "/api/v1/namespaces", {"metadata": {"name": space}}, good=(200, 201, 409))
        call("POST", f"/api/v1/namespaces/{space}/serviceaccounts", {"metadata": {"name": "sluiced"}},
             good=(200, 201, 409))
    pod = call("POST", "/api/v1/namespaces/sluice-system/pods", {
        "metadata": {"name": "sluiced"},
        "spec": {"serviceAccountName": "sluiced", "nodeName": "node-1",
                 "containers": [{"name": "main", "image": "none"}]}})
    token = call("POST", "/api/v1/namespaces/sluice-system/serviceaccounts/sluiced/token", {
        "spec": {"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "sluiced",
                                    "uid": pod["metadata"]["uid"]}}})
    path = os.path.join(directory, "agent-token")
    with open(path, "w") as f:
        f.write(token["status"]["token"])
    return path


class World:
    def __init__(self):
        self.dir = tempfile.mkdtemp()
        self.config = kubeconfig(self.dir)
        call("POST", "/api/v1/nodes", {"metadata": {"name": "node-1", "labels": {
            "kubernetes.io/hostname": "node-1"}}})
        call("PATCH", "/api/v1/nodes/node-1/status", {"status": {
            "capacity": {"cpu": "8", "memory": "32Gi", "pods": "110"},
            "allocatable": {"cpu": "8", "memory": "32Gi", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True", "reason": "Test", "message": ""}]}})
        # Nobody here looks after nodes: a new one is tainted as not ready for ever.
        call("PATCH", "/api/v1/nodes/node-1", {"spec": {"taints": None}})
        self.node = Node("h200x2", RealApi())
        self.node.env.update(DRA_CA=CA, DRA_TOKEN=agent_token(self.dir, self.config))
        flags = [f"--kubeconfig={self.config}", f"--authentication-kubeconfig={self.config}",
                 f"--authorization-kubeconfig={self.config}", "--leader-elect=false", "--secure-port=0"]
        quiet = {"stdout": open(self.dir + "/log", "w"), "stderr": subprocess.STDOUT}
        self.processes = [
            subprocess.Popen([os.path.join(BIN, "kube-scheduler"), *flags], **quiet),
            subprocess.Popen([os.path.join(BIN, "kube-controller-manager"), *flags,
                              "--controllers=resourceclaim-controller"], **quiet)]

    def end(self):
        for p in self.processes:
            p.kill()
            p.wait()
        self.node.end()

    def apply(self, name, without=0):
        """A sample, `without` so many documents at its end."""
        with open(os.path.join(ROOT, "deploy/samples", name), encoding="utf-8") as f:
            documents = f.read().split("\n---\n")
        kubectl(self.config, "apply", "-n", "default", "-f", "-",
                text="\n---\n".join(documents[:len(documents) - without]))

    def scheduled(self, pod):
        """The pod's claims, once the scheduler has placed it."""
        def placed():
            p = call("GET", "/api/v1/namespaces/default/pods/" + pod)
            return p["spec"].get("nodeName") and p
        p = until(f"pod {pod} is scheduled", placed, 60)
        names = [s["resourceClaimName"] for s in p["status"].get("resourceClaimStatuses", [])]
        extended = p["status"].get("extendedResourceClaimStatus")
        names += [extended["resourceClaimName"]] if extended else []
        return [call("GET", CLAIMS + n) for n in names]

    def kubelet(self, verb, claims):
        answer = self.node.call(verb, *["/".join(("default", c["metadata"]["name"], c["metadata"]["uid"]))
                                        for c in claims])
        errors = {k: v["error"] for k, v in answer.items() if v["error"]}
        if errors:
            raise AssertionError(f"{verb}: {errors}")
        return answer

    def delete(self, pod, claims):
        self.kubelet("unprepare", claims)
        kubectl(self.config, "delete", "pod", "-n", "default", pod, "--force", "--grace-period=0")
        for c in claims:
            until("the claim is free", lambda: "allocation" not in call("GET", CLAIMS + c["metadata"]["name"], good=(
                200, 404)).get("status", {}), 60)


def check(what, got, want):
    print(("ok   " if got == want else "FAIL ") + what)
    if got != want:
        sys.exit(f"{what}: {got!r}, not {want!r}")


def limits(world):
    return {t["about"]["request"]: (t["gpus"][0]["memory_limit_bytes"] // GIB, t["cores_request_percent"],
                                    t["cores_limit_percent"], len(t["gpus"]))
            for t in world.node.tenants().values()}


def fraction(w):
    w.apply("fraction.yaml")
    claims = w.scheduled("fraction")
    w.kubelet("prepare", claims)
    check("a fraction's limits are what the scheduler consumed", limits(w), {"gpu": (10, 30, 30, 1)})

    def status():
        return call("GET", CLAIMS + claims[0]["metadata"]["name"])["status"].get("devices")
    devices = until("status.devices is written with the documented rights", status)
    result = claims[0]["status"]["allocation"]["devices"]["results"][0]
    check("status.devices names the share", devices[0]["shareID"], result["shareID"])
    check("status.devices has the lease", devices[0]["data"]["memory"], "10Gi")
    check("status.devices is ready", devices[0]["conditions"][0]["status"], "True")
    call("PATCH", CLAIMS + claims[0]["metadata"]["name"],
         {"metadata": {"annotations": {"gpu.sluice.io/resize": "memory=8Gi,cores=20"}}})
    until("the share is resized by its annotation", lambda: limits(w) == {"gpu": (8, 20, 20, 1)})
    until("the resize is told", lambda: any(c["type"] == "Resized" and c["status"] == "True"
                      for c in status()[0]["conditions"]))
    print("ok   resized while it runs")
    w.delete("fraction", claims)
    check("all is gone", w.node.tenants(), {})


def python(w):
    """Made by a client that writes JSON with spaces and keys in its own order, as Python does."""
    share = {"deviceClassName": "gpu.sluice.io", "capacity": {"requests": {"memory": "10Gi", "cores": "30"}}}
    config = {"strategy": "libsluice", "priority": "low", "kind": "ShareConfig",
              "cores": {"limit": 50}, "apiVersion": "gpu.sluice.io/v1alpha1"}
    call("POST", RESOURCE + "/namespaces/default/resourceclaims", {
        "metadata": {"name": "python"}, "spec": {"devices": {
            "requests": [{"name": "gpu", "exactly": share}],
            "config": [{"opaque": {"driver": "gpu.sluice.io", "parameters": config}}]}}})
    call("POST", "/api/v1/namespaces/default/pods", {
        "metadata": {"name": "python"}, "spec": {
            "resourceClaims": [{"name": "gpu", "resourceClaimName": "python"}],
            "containers": [{"name": "main", "image": "none", "resources": {"claims": [{"name": "gpu"}]}}]}})

    def placed():
        c = call("GET", CLAIMS + "python")
        return c.get("status", {}).get("reservedFor") and c
    claim = until("the claim is allocated", placed, 60)
    w.kubelet("prepare", [claim])
    devices = until("status.devices beside an opaque config with spaces",
                    lambda: call("GET", CLAIMS + "python")["status"].get("devices"))
    check("status.devices beside an opaque config with spaces", devices[0]["data"]["cores"], "30:50")
    check("and its condition", [(c["type"], c["status"]) for c in devices[0]["conditions"]], [("Ready", "True")])
    now = call("GET", CLAIMS + "python")["status"]
    check("the rest of the status is as it was", {k: now[k] for k in claim["status"]}, claim["status"])
    # A patch of such a claim is refused whoever sends it: an update that writes the config with the same spaces is not.
    now = call("GET", CLAIMS + "python")
    now["metadata"]["annotations"] = {"gpu.sluice.io/resize": "memory=8Gi"}
    call("PUT", CLAIMS + "python", now)
    until("a second write replaces the first",
          lambda: call("GET", CLAIMS + "python")["status"]["devices"][0]["data"]["memory"] == "8Gi")
    print("ok   and is written again")
    w.delete("python", [claim])
    call("DELETE", CLAIMS + "python")


def several(w):
    w.apply("two-containers.yaml")
    claims = w.scheduled("two-containers")
    w.kubelet("prepare", claims)
    check("two requests, two tenants", limits(w),
          {"encoder": (10, 20, 20, 1), "decoder": (20, 50, 50, 1)})
    w.delete("two-containers", claims)
    w.apply("two-gpus.yaml")
    claims = w.scheduled("two-gpus")
    w.kubelet("prepare", claims)
    check("one tenant on two GPUs", limits(w), {"gpus": (60, 50, 50, 2)})
    w.delete("two-gpus", claims)
    # One pod, then the other: the scheduler counts a share twice while it writes it (docs/dra.md).
    w.apply("burst.yaml", without=1)
    w.kubelet("prepare", w.scheduled("inference"))
    w.apply("burst.yaml")
    w.kubelet("prepare", w.scheduled("training"))
    tenants = {t["about"]["pod"]: (t["priority"], t["cores_limit_percent"])
               for t in w.node.tenants().values()}
    check("bursting beside each other", tenants, {"inference": ("high", 100), "training": ("low", 100)})
    packed = {t["gpus"][0]["uuid"] for t in w.node.tenants().values()}
    check("packed on one GPU", len(packed), 1)
    for pod in ("inference", "training"):
        w.delete(pod, w.scheduled(pod))


def other_kinds(w):
    w.apply("mig.yaml")
    mig = w.scheduled("mig")
    w.kubelet("prepare", mig)
    check("a MIG instance is made", w.node.mig(), ["1g.18gb"])
    device = mig[0]["status"]["allocation"]["devices"]["results"][0]["device"]
    check("at the place that is least in the way", device, "gpu-0-mig-1g18gb-6")
    w.apply("whole.yaml")
    whole = w.scheduled("whole")
    check("nvidia.com/gpu: 1 is a whole GPU, from the other end",
          whole[0]["status"]["allocation"]["devices"]["results"][0]["device"], "gpu-1")
    w.kubelet("prepare", whole)
    w.apply("fraction.yaml")
    pods = call("GET", "/api/v1/namespaces/default/pods/fraction")
    until("no share beside MIG and a whole GPU",
        lambda: any(c.get("reason") == "Unschedulable" for c in call(
        "GET", "/api/v1/namespaces/default/pods/fraction")["status"].get("conditions", [])), 60)
    check("it waits", pods["spec"].get("nodeName"), None)
    w.delete("mig", mig)
    check("the instance is destroyed", w.node.mig(), [])
    claims = w.scheduled("fraction")
    w.kubelet("prepare", claims)
    check("the share runs once MIG is gone", limits(w), {"gpu": (10, 30, 30, 1)})
    w.delete("fraction", claims)
    w.delete("whole", whole)


def main():
    for program in ("kube-scheduler", "kube-controller-manager", "kubectl"):
        if not os.access(os.path.join(BIN, program), os.X_OK):
            print(f"skipped: no {program} in {BIN}")
            sys.exit(77)
    w = World()
    try:
        w.node.start()
        until("MIG devices are accepted too",
              lambda: sum(len(s["spec"].get("devices", [])) for s in w.node.api.slices()) > 40)
        slices = w.node.api.slices()
        check("the Node owns them", {s["metadata"]["ownerReferences"][0]["name"] for s in slices},
              {"node-1"})
        check("one generation", len({s["spec"]["pool"]["generation"] for s in slices}), 1)
        fraction(w)
        python(w)
        several(w)
        other_kinds(w)
        for s in w.node.api.slices():
            call("DELETE", RESOURCE + "/resourceslices/" + s["metadata"]["name"])
        until("slices come back", lambda: len(w.node.api.slices()) == len(slices))
        before = w.node.api.slices()[0]["metadata"]["resourceVersion"]
        w.node.stop()
        w.node.start()
        check("a restart rewrites nothing: what the server gives back compares equal",
              w.node.api.slices()[0]["metadata"]["resourceVersion"], before)
    finally:
        w.end()


if __name__ == "__main__":
    main()
