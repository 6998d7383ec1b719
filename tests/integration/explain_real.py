#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
Broken pods in a real API server with a real scheduler: `kubectl sluice explain` finds the cause of each, also with no
more rights than the pod's owner has. There is no kubelet here: what one would write of a pod, the test writes.
Usage: real.sh explain_real.py (URL, CA, TOKEN-FILE come from there)
"""
import json
import os
import pathlib
import shutil
import ssl
import subprocess
import sys
import tempfile
import unittest
import urllib.error
import urllib.request

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import waiting  # noqa: E402

URL, CA, TOKEN_FILE = sys.argv[1:4]
TOKEN = pathlib.Path(TOKEN_FILE).read_text(encoding="ascii").strip()
BUILD = os.environ["SLUICE_BUILD"]
K8S = os.environ.get("SLUICE_K8S_BIN", os.path.expanduser("~/.cache/sluice/k8s"))
PATIENCE_S = 120  # of what must happen; a test that passes never waits so long
PODS = "/api/v1/namespaces/default/pods"
GPU = {"nvidia.com/gpu": "1"}
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"


def program(name):
    return next((p for p in (f"{K8S}/{name}", shutil.which(name)) if p and os.access(p, os.X_OK)), None)


def ask(method, path, body=None, kind="application/json"):
    request = urllib.request.Request(URL + path, method=method, data=body and json.dumps(body).encode(), headers={
        "Authorization": f"Bearer {TOKEN}", "Content-Type": kind})
    try:
        with urllib.request.urlopen(request, timeout=60, context=ssl.create_default_context(cafile=CA)) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as e:
        raise AssertionError(f"{method} {path}: {e.code} {e.read().decode()}") from None


def merge(path, body):
    return ask("PATCH", path, body, "application/merge-patch+json")


def node(name, gpus, labels=None, taints=None, cards=None, ready="True"):
    notes = {"sluice.io/gpus": json.dumps([{"uuid": f"GPU-{name}-{i}", "memoryMiB": mib, "cores": 100, "model": "H200",
                                            "numa": 0, "healthy": True} for i, mib in enumerate(cards)])} if cards else {}
    ask("POST", "/api/v1/nodes", {"metadata": {"name": name, "labels": labels or {}, "annotations": notes}})
    merge(f"/api/v1/nodes/{name}", {"spec": {"taints": taints or []}})
    have = {"cpu": "4", "memory": "8Gi", "pods": "20", "nvidia.com/gpu": str(gpus)}
    merge(f"/api/v1/nodes/{name}/status", {"status": {"capacity": have, "allocatable": have, "conditions": [
        {"type": "Ready", "status": ready, "reason": "x", "message": "kubelet stopped posting"}]}})


def pod(name, limits=None, notes=None, **spec):
    container = {"name": "main", "image": "none"}
    if limits:
        container["resources"] = {"limits": limits}
    return ask("POST", PODS, {"metadata": {"name": name, "annotations": notes or {}},
                              "spec": {"containers": [container], **spec}})


def kubelet_says(name, **status):
    merge(f"{PODS}/{name}/status", {"status": status})


def container(state, last=None):
    return [{"name": "main", "image": "none", "imageID": "", "ready": False, "restartCount": 3, "state": state,
             "lastState": last or {}}]


def event(name, reason, message):
    uid = ask("GET", f"{PODS}/{name}")["metadata"]["uid"]
    ask("POST", "/api/v1/namespaces/default/events", {
        "metadata": {"name": f"{name}.{reason.lower()}"}, "reason": reason, "message": message, "type": "Warning",
        "involvedObject": {"kind": "Pod", "namespace": "default", "name": name, "uid": uid}})


class Explain(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="sluice-explain-")
        cls.admin = cls.kubeconfig("admin", TOKEN)
        cls.log = open(f"{cls.folder}/scheduler.log", "wb")  # noqa: SIM115
        cls.scheduler = subprocess.Popen(
            [program("kube-scheduler"), f"--kubeconfig={cls.admin}", "--leader-elect=false", "--secure-port=0",
             f"--authentication-kubeconfig={cls.admin}", f"--authorization-kubeconfig={cls.admin}"],
            stdout=cls.log, stderr=cls.log)
        # A plugin is a program in the PATH: kubectl finds ours.
        cls.env = dict(os.environ, PATH=f"{os.path.dirname(program('kubectl'))}:{BUILD}/bin:{os.environ['PATH']}")

    @classmethod
    def tearDownClass(cls):
        cls.scheduler.kill()
        cls.scheduler.wait()
        cls.log.close()
        shutil.rmtree(cls.folder)

    @classmethod
    def kubeconfig(cls, name, token):
        path = f"{cls.folder}/{name}"
        pathlib.Path(path).write_text(json.dumps({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "k", "cluster": {"server": URL, "certificate-authority": CA}}],
            "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
            "users": [{"name": "u", "user": {"token": token}}]}), encoding="utf-8")
        return path

    def explain(self, name, kubeconfig=None):
        got = subprocess.run(["kubectl", "sluice", "explain", name, "--json", "--kubeconfig", kubeconfig or self.admin],
                             capture_output=True, text=True, check=False, env=self.env)
        self.assertIn(got.returncode, (0, 1), got.stderr)
        return json.loads(got.stdout)

    def is_told(self, name, code, *words, kubeconfig=None):
        seen = []

        def told():
            seen[:] = [self.explain(name, kubeconfig)]
            return seen[0]["code"] == code
        try:
            waiting.until(f"{name}: {code}", told, PATIENCE_S)
        except AssertionError:
            raise AssertionError(f"{name} must be {code}, is {seen}") from None
        for word in words:
            self.assertIn(word, seen[0]["why"])
        print(f"{code}: {seen[0]['why']}")
        return seen[0]

    def test_broken_pods(self):
        pod("early", GPU)
        node("plain", 0)
        self.is_told("early", "no-gpu-node", "the cluster has 1 node.")
        ask("DELETE", f"{PODS}/early?gracePeriodSeconds=0")

        node("n1", 2, labels={"model": "H200"}, cards=[143771],
             taints=[{"key": "nvidia.com/gpu", "effect": "NoSchedule"}])
        may = {"tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}]}
        pod("holder", {"nvidia.com/gpu": "2"}, **may)
        waiting.until("the holder is bound", lambda: ask("GET", f"{PODS}/holder")["spec"].get("nodeName"), PATIENCE_S)
        kubelet_says("holder", phase="Running")
        self.assertTrue(self.explain("holder")["well"])

        pod("late", GPU, **may)
        self.is_told("late", "gpus-full", "default/holder")
        pod("shy", GPU)
        self.is_told("shy", "tainted", '"nvidia.com/gpu"')
        pod("choosy", GPU, nodeSelector={"model": "B200"}, **may)
        self.is_told("choosy", "wrong-node-selector", '"model"')
        pod("giant", GPU, notes={"sluice.io/request": json.dumps({"parts": [{"memoryMiB": 200000}]})}, **may)
        self.is_told("giant", "too-large", "200000 MiB", "143771 MiB")
        pod("hungry", {"cpu": "64"})
        self.is_told("hungry", "cpu-or-memory", "Insufficient cpu")
        pod("stranger", GPU, schedulerName="volcano")
        self.is_told("stranger", "no-scheduler", '"volcano"')
        pod("gate", GPU, schedulingGates=[{"name": "sluice.io/later"}])
        self.is_told("gate", "gated", '"sluice.io/later"')

        pod("unclaimed", resourceClaims=[{"name": "gpu", "resourceClaimName": "nowhere"}])
        self.is_told("unclaimed", "no-claim", '"nowhere"')
        pod("untemplated", resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": "nowhere"}])
        self.is_told("untemplated", "no-template", '"nowhere"')
        ask("POST", CLAIMS, {"metadata": {"name": "c1"}, "spec": {"devices": {"requests": [
            {"name": "gpu", "exactly": {"deviceClassName": "shares.sluice.io"}}]}}})
        pod("unclassed", resourceClaims=[{"name": "gpu", "resourceClaimName": "c1"}])
        self.is_told("unclassed", "no-class", '"shares.sluice.io"')
        ask("POST", "/apis/resource.k8s.io/v1/deviceclasses", {"metadata": {"name": "shares.sluice.io"}, "spec": {
            "selectors": [{"cel": {"expression": "device.driver == 'gpu.sluice.io'"}}]}})
        self.is_told("unclassed", "claim-does-not-fit")

        for name in ("refused", "imageless", "unprepared", "crashing", "greedy"):
            pod(name, nodeName="plain")
        kubelet_says("refused", phase="Failed", reason="UnexpectedAdmissionError",
                     message="Allocate failed due to GPU-a is unhealthy, which is unexpected")
        self.is_told("refused", "refused-by-kubelet", "GPU-a is unhealthy")
        kubelet_says("imageless", containerStatuses=container(
            {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}))
        self.is_told("imageless", "image", "no such image")
        event("unprepared", "FailedPrepareDynamicResources", "card GPU-a is gone")
        self.is_told("unprepared", "prepare-failed", "card GPU-a is gone")
        for name, code, reason in (("crashing", 2, "Error"), ("greedy", 137, "OOMKilled")):
            kubelet_says(name, phase="Running", containerStatuses=container(
                {"waiting": {"reason": "CrashLoopBackOff"}}, {"terminated": {"exitCode": code, "reason": reason}}))
        self.is_told("crashing", "crashed", "exit code 2")
        self.is_told("greedy", "out-of-memory")
        self.owner()
        self.tables()

    def owner(self):
        """Somebody who may read the pods and events of one namespace, and nothing else."""
        space = "/apis/rbac.authorization.k8s.io/v1/namespaces/default"
        ask("POST", "/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "owner"}})
        ask("POST", f"{space}/roles", {"metadata": {"name": "reader"}, "rules": [
            {"apiGroups": [""], "resources": ["pods", "events"], "verbs": ["get", "list"]}]})
        ask("POST", f"{space}/rolebindings", {
            "metadata": {"name": "reader"}, "subjects": [{"kind": "ServiceAccount", "name": "owner"}],
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"}})
        token = ask("POST", "/api/v1/namespaces/default/serviceaccounts/owner/token",
                    {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}})["status"]["token"]
        mine = self.kubeconfig("owner", token)
        waiting.until("the right is known", lambda: subprocess.run(
            ["kubectl", "--kubeconfig", mine, "get", "pods"], env=self.env, capture_output=True, check=False).returncode == 0,
            PATIENCE_S)
        told = self.is_told("late", "gpus-full", "default/holder", kubeconfig=mine)
        self.assertEqual(told["not_read"], "nodes, pods of other namespaces")
        self.is_told("refused", "refused-by-kubelet", kubeconfig=mine)

    def tables(self):
        for view, words in (("nodes", ("n1", "140.4Gi")), ("pods", ("holder", "gpus-full")), ("top", ("100%", "holder"))):
            got = subprocess.run(["kubectl", "sluice", view, "--kubeconfig", self.admin], capture_output=True, text=True,
                                 check=True, env=self.env).stdout
            for word in words:
                self.assertIn(word, got)
            self.assertLessEqual(max(map(len, got.splitlines())), 80, got)


if __name__ == "__main__":
    for need in ("kubectl", "kube-scheduler"):
        if not program(need):
            print(f"skipped: no {need} in {K8S} or in the PATH")
            sys.exit(77)
    unittest.main(argv=[sys.argv[0]])
