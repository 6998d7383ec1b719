#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""real.py URL CA_FILE TOKEN_FILE: sluice-controller against a real kube-apiserver (and kube-scheduler, where there
is one). Started by tests/http/real.sh. SLUICE_CONTROLLER is the program; SLUICE_CONTROLLER_PART is `admission`, `dra`,
`replicas`, `hostile` or `kill`."""
import base64
import json
import os
import pathlib
import random
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time

from real_hostile import hostile
from real_world import (CA, CARD, DIR, K8S, PODS, TOKEN, TOKEN_FILE, URL, call, certificate, controller, free_port, kubeconfig,
                        must, node, pod, start, started, until)

# --- admission ---

def hook(name, client):
    must("POST", "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations", {
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": name}, "webhooks": [{
            "name": "pods.sluice.io", "admissionReviewVersions": ["v1"], "sideEffects": "NoneOnDryRun",
            "failurePolicy": "Fail", "timeoutSeconds": 10, "clientConfig": client,
            "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}]}]})


def slices():
    must("POST", "/apis/resource.k8s.io/v1/resourceslices", {
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "n0-slice"},
        "spec": {"driver": "gpu.sluice.io", "nodeName": "n0",
                 "pool": {"name": "n0", "generation": 1, "resourceSliceCount": 1},
                 "devices": [{"name": "gpu-0-share", "allowMultipleAllocations": True,
                              "attributes": {"type": {"string": "share"}, "uuid": {"string": "GPU-1"},
                                             "productName": {"string": "NVIDIA H100 80GB HBM3"}},
                              "capacity": {"memory": {"value": "81920Mi"}, "cores": {"value": "100"}}}]}})


TEMPLATES = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaimtemplates"
# What each project's documentation has, and what the claim must ask for: memory, cores.
DIALECTS = {
    "hami": (pod("hami", {"nvidia.com/gpu": "2", "nvidia.com/gpumem": "3000", "nvidia.com/gpucores": "30"}),
             "3000Mi", "30"),
    "hami-type": (pod("hami-type", {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "3072", "nvidia.com/priority": "0"},
                      {"nvidia.com/use-gputype": "H100,A100", "nvidia.com/nouse-gpuuuid": "GPU-9"}), "3Gi", "1"),
    "volcano": (pod("volcano", {"volcano.sh/vgpu-number": "1", "volcano.sh/vgpu-memory": "3000",
                                "volcano.sh/vgpu-cores": "50"}, schedulerName="volcano"), "3000Mi", "50"),
    "gpushare": (pod("gpushare", {"aliyun.com/gpu-mem": "3"}), "3Gi", "1"),
    "kubeshare": (pod("kubeshare", {}, labels={"sharedgpu/gpu_request": "0.5", "sharedgpu/gpu_limit": "1.0",
                                               "sharedgpu/gpu_mem": "3221225472"},
                      schedulerName="kubeshare-scheduler"), "3Gi", "50"),
}


def check_dialects():
    for name, (manifest, memory, cores) in DIALECTS.items():
        made = must("POST", PODS, manifest)
        template = made["spec"]["resourceClaims"][0]["resourceClaimTemplateName"]
        request = must("GET", f"{TEMPLATES}/{template}")["spec"]["spec"]["devices"]["requests"][0]["exactly"]
        assert request["capacity"]["requests"] == {"memory": memory, "cores": cores}, (name, request)
        assert request["deviceClassName"] == "gpu.sluice.io"
        assert made["spec"]["schedulerName"] == "default-scheduler", name
        container = made["spec"]["containers"][0]["resources"]
        assert container["claims"] == [{"name": "sluice-gpu", "request": "gpu0"}], container
        left = set(container.get("limits", {})) | set(container.get("requests", {}))
        assert not left, left
    made = must("POST", PODS, pod("half", {"nvidia.com/gpu": "1", "nvidia.com/gpumem-percentage": "50"}))
    template = made["spec"]["resourceClaims"][0]["resourceClaimTemplateName"]
    requests = must("GET", f"{TEMPLATES}/{template}")["spec"]["spec"]["devices"]["requests"]
    assert requests[0]["firstAvailable"][0]["capacity"]["requests"]["memory"] == "40Gi", requests
    whole = must("POST", PODS, pod("typed", {"nvidia.com/gpu": "1"}, {"nvidia.com/use-gputype": "H100"}))
    template = whole["spec"]["resourceClaims"][0]["resourceClaimTemplateName"]
    request = must("GET", f"{TEMPLATES}/{template}")["spec"]["spec"]["devices"]["requests"][0]["exactly"]
    assert request["deviceClassName"] == "whole.gpu.sluice.io", request


def check_rest():
    count = len(must("GET", TEMPLATES)["items"])
    again = must("POST", PODS, pod("hami-2", {"nvidia.com/gpu": "2", "nvidia.com/gpumem": "3000",
                                              "nvidia.com/gpucores": "30"}))
    assert again["spec"]["resourceClaims"] and len(must("GET", TEMPLATES)["items"]) == count
    must("POST", PODS + "?dryRun=All", pod("dry", {"nvidia.com/gpumem": "7777"}))
    assert len(must("GET", TEMPLATES)["items"]) == count, "a dry run made a template"
    plain = must("POST", PODS, pod("plain", {"cpu": "1"}))
    assert "resourceClaims" not in plain["spec"] and not plain["metadata"].get("annotations")
    whole = must("POST", PODS, pod("whole", {"nvidia.com/gpu": "1"}))
    assert "resourceClaims" not in whole["spec"]
    for limits, words in (({"nvidia.com/gpumem": "3Gi"}, 'write "3072"'),
                          ({"nvidia.com/gpu": "1", "nvidia.com/gpucores": "101"}, "from 1 to 100")):
        status, answer = call("POST", PODS, pod("bad", limits))
        assert status == 422 and words in answer["message"], (status, answer)


def check_quota():
    must("POST", "/api/v1/namespaces", {"metadata": {"name": "small"}})
    must("POST", "/api/v1/namespaces/small/resourcequotas", {
        "metadata": {"name": "gpus"}, "spec": {"hard": {"limits.nvidia.com/gpumem": "5000"}}})
    path = "/api/v1/namespaces/small/pods"
    until("the quota to count", lambda: call("POST", path + "?dryRun=All", pod("q", {"nvidia.com/gpumem": "5001"}))[0] == 403)
    must("POST", path, pod("q1", {"nvidia.com/gpumem": "3000"}))
    status, answer = call("POST", path, pod("q2", {"nvidia.com/gpumem": "3000"}))
    assert status == 403 and "allows 5000 MiB" in answer["message"], (status, answer)
    must("POST", path, pod("q3", {"nvidia.com/gpumem": "2000"}))
    must("DELETE", path + "/q1?gracePeriodSeconds=0")
    until("room in the quota", lambda: call("POST", path, pod("q4", {"nvidia.com/gpumem": "3000"}))[0] == 201)
    # Percentages and whole GPUs are amounts too, and stay so after admission: the card has 81920 MiB.
    must("POST", "/api/v1/namespaces", {"metadata": {"name": "large"}})
    path = "/api/v1/namespaces/large/pods"
    must("POST", path, pod("before", {"nvidia.com/gpu": "1"}))
    must("POST", "/api/v1/namespaces/large/resourcequotas", {
        "metadata": {"name": "gpus"}, "spec": {"hard": {"limits.nvidia.com/gpumem": str(81920 * 2 + 1000)}}})
    half = {"nvidia.com/gpumem-percentage": "50"}
    until("the quota to count what was there", lambda: call(
        "POST", path + "?dryRun=All", pod("q", {"nvidia.com/gpu": "2"}))[0] == 403)
    made = must("POST", path, pod("whole", {"nvidia.com/gpu": "1"}))
    assert not made["spec"].get("resourceClaims") and made["spec"]["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": "1"}
    assert call("POST", path, pod("half", half))[0] == 403
    must("DELETE", path + "/before?gracePeriodSeconds=0")
    until("room for a half", lambda: call("POST", path, pod("half", half))[0] == 201)
    must("POST", path, pod("half-2", half))
    time.sleep(16)  # longer than what was let in is remembered: from now on only what is in the pods counts
    status, answer = call("POST", path, pod("half-3", half))
    assert status == 403 and "163840 are promised already" in answer["message"], (status, answer)


def check_sweep():
    """Templates that no pod uses go, the others stay."""
    made = must("POST", PODS, pod("kept", {"nvidia.com/gpumem": "4321"}))
    kept = made["spec"]["resourceClaims"][0]["resourceClaimTemplateName"]
    copied = must("GET", PODS + "/hami")
    gone = copied["spec"]["resourceClaims"][0]["resourceClaimTemplateName"]
    for name in ("hami", "hami-2"):
        must("DELETE", f"{PODS}/{name}?gracePeriodSeconds=0")
    until("the template to go", lambda: call("GET", f"{TEMPLATES}/{gone}")[0] == 404, 60)
    time.sleep(7)
    copied["metadata"] = {"name": "copied", "annotations": copied["metadata"]["annotations"]}
    must("POST", PODS, copied)  # a pod made from one that is gone brings its template back
    must("GET", f"{TEMPLATES}/{gone}")
    must("GET", f"{TEMPLATES}/{kept}")
    must("POST", PODS, pod("hami", {"nvidia.com/gpu": "2", "nvidia.com/gpumem": "3000", "nvidia.com/gpucores": "30"}))
    must("GET", f"{TEMPLATES}/{gone}")  # a pod asked for it again


def check_bootstrap():
    """Without certificate files: a Secret, and its authority in the webhook's configuration."""
    hook("own", {"service": {"name": "ctl", "namespace": "default", "path": "/mutate"}})
    port = free_port()
    old = expired_secret("own-tls")
    process, _ = controller("--listen", f"127.0.0.1:{port}", "--service", "ctl", "--webhook", "own",
                            "--leader-election", "off", "--secret", "own-tls")
    secret = must("GET", "/api/v1/namespaces/default/secrets/own-tls")
    assert secret["data"]["tls.crt"] != old, "a certificate that has run out is still there"
    path = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/own"
    until("caBundle", lambda: must("GET", path)["webhooks"][0]["clientConfig"].get("caBundle") == secret["data"]["ca.crt"])
    (DIR / "ca.pem").write_bytes(base64.b64decode(secret["data"]["ca.crt"]))
    context = ssl.create_default_context(cafile=DIR / "ca.pem")
    with socket.create_connection(("127.0.0.1", port)) as raw:
        context.wrap_socket(raw, server_hostname="ctl.default.svc").close()
    # Somebody applies the manifest again.
    must("PATCH", path, [{"op": "remove", "path": "/webhooks/0/clientConfig/caBundle"}], "application/json-patch+json")
    until("caBundle again", lambda: must("GET", path)["webhooks"][0]["clientConfig"].get("caBundle") == secret["data"]["ca.crt"])
    # The Secret is deleted: a new one comes, and is served.
    must("DELETE", "/api/v1/namespaces/default/secrets/own-tls")
    new = until("a new Secret", lambda: call("GET", "/api/v1/namespaces/default/secrets/own-tls")[1].get("data"), 40)
    until("the new caBundle", lambda: must("GET", path)["webhooks"][0]["clientConfig"].get("caBundle") == new["ca.crt"])
    must("DELETE", path)
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 0


def check_nobody_there():
    """No replica runs: with Fail nothing comes in, with Ignore pods do as they are."""
    late = pod("late", {"nvidia.com/gpumem": "3000"})
    status, answer = call("POST", PODS, late)
    assert status == 500 and "failed calling webhook" in answer["message"], (status, answer)
    must("PATCH", "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/sluice",
         [{"op": "replace", "path": "/webhooks/0/failurePolicy", "value": "Ignore"}], "application/json-patch+json")
    made = until("the policy to count", lambda: (lambda s, a: a if s == 201 else None)(*call("POST", PODS, late)), 20)
    assert made["spec"]["containers"][0]["resources"]["limits"] == {"nvidia.com/gpumem": "3k"}, made["spec"]


def expired_secret(name):
    """What somebody left behind: a certificate for our name that ran out yesterday."""
    quiet = {"check": True, "stderr": subprocess.DEVNULL}
    subprocess.run(["openssl", "req", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=old", "-addext",
                    "subjectAltName=DNS:ctl.default.svc", "-keyout", DIR / "old.key", "-out", DIR / "old.csr"], **quiet)
    subprocess.run(["openssl", "x509", "-req", "-in", DIR / "old.csr", "-signkey", DIR / "old.key", "-days", "-1",
                    "-copy_extensions", "copy", "-out", DIR / "old.pem"], **quiet)
    cert, key = (base64.b64encode((DIR / f).read_bytes()).decode() for f in ("old.pem", "old.key"))
    must("POST", "/api/v1/namespaces/default/secrets", {
        "metadata": {"name": name}, "type": "kubernetes.io/tls", "data": {"ca.crt": cert, "tls.crt": cert, "tls.key": key}})
    return cert


def admission():
    node("n0", 1)
    slices()
    check_bootstrap()
    bundle = certificate()
    port = free_port()
    process, metrics = controller("--listen", f"127.0.0.1:{port}", "--cert-file", DIR / "cert.pem", "--key-file",
                                  DIR / "key.pem", "--leader-election", "off", "--keep-templates", "6")
    hook("sluice", {"url": f"https://127.0.0.1:{port}/mutate", "caBundle": bundle})
    until("the webhook to be asked", lambda: call(
        "POST", PODS + "?dryRun=All", pod("first", {"nvidia.com/gpumem": "3Gi"}))[0] == 422)
    check_dialects()
    check_rest()
    check_quota()
    check_sweep()
    text = call("GET", "/metrics", base=f"http://127.0.0.1:{metrics}")[1]
    assert 'admission_reviews_total{result="patched"}' in text, text
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 0
    check_nobody_there()
    print("admission: all dialects, quota, certificates: as they should be")


# --- every dialect through the stock scheduler, by DRA ---

def share(i, on="n0"):
    memory = f"{CARD}Mi"
    return {"name": f"gpu-{i}-share", "allowMultipleAllocations": True,
            "attributes": {"type": {"string": "share"}, "uuid": {"string": f"GPU-{on}-{i}"},
                           "productName": {"string": "NVIDIA H100 80GB HBM3"}},
            "capacity": {"memory": {"value": memory, "requestPolicy": {
                             "default": memory, "validRange": {"min": "256Mi", "max": memory}}},
                         "cores": {"value": "100", "requestPolicy": {
                             "default": "100", "validRange": {"min": "1", "max": "100", "step": "1"}}}}}


def offer(name):
    """A node with two cards, and the slice its agent would publish."""
    node(name, 2)
    must("POST", "/apis/resource.k8s.io/v1/resourceslices", {
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": f"{name}-slice"},
        "spec": {"driver": "gpu.sluice.io", "nodeName": name, "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
                 "devices": [share(0, name), share(1, name)]}})


def packing_config(port, bundle):
    """deploy/controller/dra/scheduler-config.yaml, for a scheduler on this machine."""
    text = (pathlib.Path(__file__).resolve().parents[2] / "deploy/controller/dra/scheduler-config.yaml").read_text()
    for old, new in (("https://sluice-controller.sluice-system.svc", f"https://127.0.0.1:{port}"),
                     ("sluice-controller.sluice-system.svc", "127.0.0.1"), ("CA_DATA", bundle)):
        assert old in text, old
        text = text.replace(old, new)
    (DIR / "packing.yaml").write_text(
        f"{text}clientConnection: {{kubeconfig: {DIR / 'kubeconfig'}}}\nleaderElection: {{leaderElect: false}}\n")
    return DIR / "packing.yaml"


def check_packing():
    """Empty nodes come: shares still go where shares are, though the scheduler by itself would spread them."""
    for name in ("n1", "n2", "n3"):
        offer(name)
    for i in range(8):
        must("POST", PODS, pod(f"pack{i}", {"nvidia.com/gpumem": "1000"}))
        until("the next to be placed", lambda: must("GET", f"{PODS}/pack{i}")["spec"].get("nodeName"), 60)
    on = [must("GET", f"{PODS}/pack{i}")["spec"]["nodeName"] for i in range(8)]
    assert on == ["n0"] * 8, on
    # Without a word from us they would be elsewhere: the scheduler is asked about pods that have no claim.
    must("POST", PODS, pod("plain", {"cpu": "1"}))
    where = until("a pod without GPUs", lambda: must("GET", f"{PODS}/plain")["spec"].get("nodeName"))
    assert where != "n0", where


def dra():
    programs = ["kube-scheduler", "kube-controller-manager", "kubectl"]
    missing = [p for p in programs if not (K8S / p).exists()]
    if missing:
        print(f"skipped: no {missing[0]} at {K8S}")
        sys.exit(77)
    tree = pathlib.Path(__file__).resolve().parents[2]
    subprocess.run([K8S / "kubectl", "--server", URL, "--token", TOKEN, "--insecure-skip-tls-verify", "apply", "-f",
                    tree / "deploy/dra/deviceclasses.yaml"], check=True, stdout=subprocess.DEVNULL)
    offer("n0")
    bundle, port, config = certificate(), free_port(), kubeconfig()
    controller("--listen", f"127.0.0.1:{port}", "--cert-file", DIR / "cert.pem", "--key-file", DIR / "key.pem",
               "--leader-election", "off", "--extender", "prioritize")
    hook("sluice", {"url": f"https://127.0.0.1:{port}/mutate", "caBundle": bundle})
    auth = ["--kubeconfig", config, "--authentication-kubeconfig", config, "--authorization-kubeconfig", config,
            "--bind-address", "127.0.0.1", "--leader-elect=false"]
    start("scheduler", [K8S / "kube-scheduler", *auth, "--secure-port", str(free_port()), "--config",
                        packing_config(port, bundle)])
    start("manager", [K8S / "kube-controller-manager", *auth, "--secure-port", str(free_port()), "--controllers",
                      "resourceclaim-controller"])
    until("the webhook to be asked", lambda: call(
        "POST", PODS + "?dryRun=All", pod("first", {"nvidia.com/gpumem": "3Gi"}))[0] == 422)
    for manifest, _, _ in DIALECTS.values():
        must("POST", PODS, manifest)
    must("POST", PODS, pod("half", {"nvidia.com/gpu": "1", "nvidia.com/gpumem-percentage": "50"},
                           {"nvidia.com/use-gpuuuid": "GPU-n0-1"}))
    must("POST", PODS, pod("wrong", {"nvidia.com/gpumem": "1000"}, {"nvidia.com/use-gputype": "A100"}))

    def placed():
        return all(p["spec"].get("nodeName") for p in all_pods() if p["metadata"]["name"] != "wrong")
    until("all dialects to be placed", placed, 90)
    got = {}
    for claim in must("GET", "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims")["items"]:
        owner = claim["metadata"]["ownerReferences"][0]["name"]
        got[owner] = claim.get("status", {}).get("allocation", {}).get("devices", {}).get("results")
    for name, (_, memory, cores) in DIALECTS.items():
        for result in got[name]:
            assert result["consumedCapacity"] == {"memory": memory, "cores": cores}, (name, result)
    assert len(got["hami"]) == 2 and len({r["device"] for r in got["hami"]}) == 2, got["hami"]
    assert [r["device"] for r in got["half"]] == ["gpu-1-share"] and got["half"][0]["consumedCapacity"]["memory"] == "40Gi"
    assert not got["wrong"], got["wrong"]
    check_packing()
    print("dra: every dialect placed by the stock scheduler, with what it asked for; packed where it is told to")


def check_policy():
    """A user who may do everything with pods but bind them cannot take more than was admitted, nor block a card by
    pretending to hold it. Whoever may bind (HAMi's scheduler) can write what its pods hold."""
    rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/default"
    must("POST", "/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "someone"}})
    must("POST", rbac + "/roles", {"metadata": {"name": "someone"}, "rules": [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["create", "patch", "get"]}]})
    must("POST", rbac + "/rolebindings", {
        "metadata": {"name": "someone"}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "someone"},
        "subjects": [{"kind": "ServiceAccount", "name": "someone", "namespace": "default"}]})
    token = must("POST", "/api/v1/namespaces/default/serviceaccounts/someone/token",
                 {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}})["status"]["token"]
    held = {"hami.io/vgpu-devices-allocated": "GPU-n0-0,NVIDIA,80000,100:;"}
    for name, notes in (("user-lease", {"sluice.io/lease": "{}"}), ("user-hami", held)):
        status, answer = call("POST", PODS, pod(name, {}, notes), token=token)
        assert status == 422 and "leave it out" in answer["message"], (status, answer)
    status, answer = call("POST", PODS, pod("user", {}, {"sluice.io/request": "small"}), token=token)
    assert status == 201, (status, answer)
    for notes, words in (({"sluice.io/request": "large"}, "create another pod"), (held, "leave it out"),
                         ({"sluice.io/request": None}, "create another pod"), ({"mine": "x"}, None)):
        status, answer = call("PATCH", PODS + "/user", {"metadata": {"annotations": notes}},
                              "application/merge-patch+json", token=token)
        assert status == (422 if words else 200) and (not words or words in answer["message"]), (notes, status, answer)
    must("PATCH", PODS + "/user", {"metadata": {"annotations": held}}, "application/merge-patch+json")


def started_on_node(name, phase=None):
    """Kubelet's part: the pod's container is there. Also the annotations of before, where a phase is given."""
    if phase:
        must("PATCH", f"{PODS}/{name}", {"metadata": {"annotations": {"hami.io/bind-phase": phase}}},
             "application/merge-patch+json")
    must("PATCH", f"{PODS}/{name}/status", {"status": {"phase": "Running", "containerStatuses": [
        {"name": "main", "image": "local/none:1", "imageID": "x", "ready": True, "restartCount": 0,
         "containerID": "containerd://1", "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}]}},
         "application/merge-patch+json")


def settled(name):
    """HAMi's tools see that it has what it was promised."""
    def notes():
        return must("GET", f"{PODS}/{name}")["metadata"]["annotations"]
    until("the bind to be over in HAMi's words", lambda: notes()["hami.io/bind-phase"] == "success", 20)
    assert notes()["hami.io/vgpu-devices-to-allocate"] == ";", notes()


# --- two replicas, with the rights that deploy/ gives them ---

def replicas():
    if not (K8S / "kubectl").exists():
        print(f"skipped: no kubectl at {K8S}")
        sys.exit(77)
    space = "sluice-system"
    must("POST", "/api/v1/namespaces", {"metadata": {"name": space}})
    tree = pathlib.Path(__file__).resolve().parents[2]
    subprocess.run([K8S / "kubectl", "--server", URL, "--token", TOKEN, "--insecure-skip-tls-verify", "apply", "-k",
                    tree / "deploy/controller/extender"], check=True, stdout=subprocess.DEVNULL)
    token = must("POST", f"/api/v1/namespaces/{space}/serviceaccounts/sluice-controller/token",
                 {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}})["status"]["token"]
    (DIR / "sa-token").write_text(token)
    node("n0", 1)
    run = {}
    for name in ("one", "two"):
        must("POST", f"/api/v1/namespaces/{space}/pods", pod(name, {}))
        port = free_port()
        process, metrics = controller(
            "--admission", "extender", "--extender", "choose", "--listen", f"127.0.0.1:{free_port()}", "--extender-http",
            f"127.0.0.1:{port}", "--lease-seconds", "3", token=DIR / "sa-token", space=space, env={"POD_NAME": name})
        run[name] = (process, metrics, f"http://127.0.0.1:{port}")
    path = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/sluice-controller"
    until("caBundle", lambda: must("GET", path)["webhooks"][0]["clientConfig"].get("caBundle"))
    must("DELETE", path) # there is nobody at the Service's address here

    def leaders():
        return [n for n, (p, m, _) in run.items()
                if p.poll() is None and call("GET", "/leaderz", base=f"http://127.0.0.1:{m}")[0] == 200]
    leader = until("a leader", leaders)[0]
    assert len(leaders()) == 1
    follower = "two" if leader == "one" else "one"
    label = lambda n: must("GET", f"/api/v1/namespaces/{space}/pods/{n}")["metadata"].get("labels", {}).get("sluice.io/leader")
    until("the label", lambda: label(leader) == "true" and label(follower) is None)

    def place(name, at, memory=1000):
        made = must("POST", PODS, pod(name, {"nvidia.com/gpu": "1"}, {"sluice.io/request": json.dumps(
            {"version": 1, "containers": 1, "parts": [{"container": "main", "gpus": 1, "memoryMiB": memory}]})}))
        answer = call("POST", "/filter", {"Pod": made, "NodeNames": ["n0"]}, base=at)[1]
        if answer["Error"]:
            return answer["Error"]
        if memory == CARD and not answer["NodeNames"]:
            return None
        assert answer["NodeNames"] == ["n0"], answer
        meta = made["metadata"]
        return call("POST", "/bind", {"PodName": name, "PodNamespace": "default", "PodUID": meta["uid"], "Node": "n0"},
                    base=at)[1]["Error"]
    assert "is not the leader" in place("p0", run[follower][2])
    assert place("p1", run[leader][2]) == ""
    placed = must("GET", PODS + "/p1")
    assert placed["spec"]["nodeName"] == "n0"
    notes = placed["metadata"]["annotations"]
    assert notes["hami.io/vgpu-devices-to-allocate"] == "GPU-n0-0,NVIDIA,1000,0:;" and notes["hami.io/vgpu-node"] == "n0"
    assert notes["hami.io/vgpu-devices-allocated"] == "GPU-n0-0,NVIDIA,1000,0:;", notes
    assert notes["hami.io/bind-phase"] == "allocating", notes
    started_on_node("p1")
    settled("p1")
    until("leases to be the controller's alone", lambda: call(
        "POST", PODS + "?dryRun=All", pod("forged", {}, {"sluice.io/lease": "{}"}))[0] == 422)
    status, answer = call("PATCH", PODS + "/p1", {"metadata": {"annotations": {"sluice.io/lease": "{}"}}},
                          "application/merge-patch+json")
    assert status == 422 and "leave it out" in answer["message"], (status, answer)
    check_policy()
    assert place("too-much", run[leader][2], CARD) is None  # there is 1000 MiB less
    must("DELETE", PODS + "/p0?gracePeriodSeconds=0")  # held nothing
    room = lambda: must("GET", "/api/v1/nodes/n0")["metadata"]["labels"].get("sluice.io/room")
    assert room() is None
    must("DELETE", PODS + "/p1?gracePeriodSeconds=0")
    until("the scheduler to be told of room", room, 20)
    assert place("p1", run[leader][2]) == ""
    run[leader][0].kill()
    run[leader][0].wait()
    assert place("p2", run[follower][2]) != ""
    started_on_node("p1", "allocating")  # while nobody leads: whoever comes to lead has it to say
    until("the other to lead", lambda: leaders() == [follower], 30)
    settled("p1")
    assert place("p3", run[follower][2]) == ""
    run[follower][0].send_signal(signal.SIGTERM)
    assert run[follower][0].wait(30) == 0
    lease = must("GET", f"/apis/coordination.k8s.io/v1/namespaces/{space}/leases/sluice-controller")
    assert not lease["spec"].get("holderIdentity"), "the lease was not given back"
    print("two replicas: one leads, the other takes over; with the rights of deploy/controller")


# --- SIGKILL under load ---

def scheduler(port):
    kubeconfig()
    (DIR / "scheduler.yaml").write_text(json.dumps({
        "apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": str(DIR / "kubeconfig"), "qps": 1000, "burst": 1000},
        "leaderElection": {"leaderElect": False}, "podInitialBackoffSeconds": 1, "podMaxBackoffSeconds": 2,
        "extenders": [{"urlPrefix": f"http://127.0.0.1:{port}", "filterVerb": "filter", "bindVerb": "bind",
                       "nodeCacheCapable": True, "httpTimeout": "5s",
                       "managedResources": [{"name": "nvidia.com/gpu"}] + [
                           {"name": f"nvidia.com/{word}", "ignoredByScheduler": True}
                           for word in ("gpumem", "gpumem-percentage", "gpucores", "priority")]}]}))
    start("scheduler", [K8S / "kube-scheduler", "--config", DIR / "scheduler.yaml",
                        "--secure-port", str(free_port()), "--bind-address", "127.0.0.1",
                        "--authentication-kubeconfig", DIR / "kubeconfig",
                        "--authorization-kubeconfig", DIR / "kubeconfig"])


def all_pods():
    return must("GET", PODS)["items"]


def audit(pods):
    """Reads nothing but the API server's pods: every bound pod says what it holds, on the node where it is, and no card
    is promised beyond what it has."""
    memory, cores = {}, {}
    for p in pods:
        node_name = p["spec"].get("nodeName")
        if not node_name:
            continue
        lease = json.loads(p["metadata"]["annotations"]["sluice.io/lease"])
        assert lease["node"] == node_name, p["metadata"]["name"]
        for c in lease["containers"]:
            for g in c["gpus"]:
                assert g["uuid"].startswith(f"GPU-{node_name}-"), (p["metadata"]["name"], g)
                memory[g["uuid"]] = memory.get(g["uuid"], 0) + g["memoryMiB"]
                cores[g["uuid"]] = cores.get(g["uuid"], 0) + g["cores"]
    over = {u: m for u, m in memory.items() if m > CARD} | {u: c for u, c in cores.items() if c > 100}
    assert not over, f"over-committed: {over}"


def restart_api_server():
    """The one that started us started it: ended without warning, and started again as it was."""
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            argv = (entry / "cmdline").read_bytes().split(b"\0")[:-1]
            parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
        except OSError:
            continue
        if parent == os.getppid() and argv and argv[0].endswith(b"kube-apiserver"):
            os.kill(int(entry.name), signal.SIGKILL)
            time.sleep(0.5)
            start("apiserver", argv)
            def ready():
                try:
                    return call("GET", "/readyz")[0] == 200
                except OSError:
                    return False
            until("the API server", ready)
            return
    raise AssertionError("the API server was not found")


def kill():
    if not (K8S / "kube-scheduler").exists():
        print(f"skipped: no kube-scheduler at {K8S}")
        sys.exit(77)
    # Ten to a card, 24 cards: no room to spare, so one share too many or one lost would show.
    kills, total = 20, 240
    port, metrics = free_port(), free_port()
    options = ["--admission", "off", "--extender", "choose", "--listen", "off", "--extender-http",
               f"127.0.0.1:{port}", "--lease-seconds", "3", "--identity", "one"]
    for i in range(3):
        node(f"n{i}", 8)
    process, _ = controller(*options, metrics=metrics)
    scheduler(port)
    rng = random.Random(1)
    sizes = [("8192", "10"), ("8192", "5"), ("8192", "0")]
    made = dead = 0
    while dead < kills or made < total:
        for _ in range(total // kills):
            if made < total:
                memory, share = sizes[made // 2 % len(sizes)]
                # Half as the webhook leaves them, half as they come when nobody asked it.
                request = {"version": 1, "containers": 1, "parts": [
                    {"container": "main", "gpus": 1, "memoryMiB": int(memory), "cores": int(share)}]}
                must("POST", PODS, pod(f"p{made}", {"nvidia.com/gpu": "1"}, {"sluice.io/request": json.dumps(request)})
                     if made % 2 else pod(f"p{made}", {"nvidia.com/gpu": "1", "nvidia.com/gpumem": memory,
                                                       "nvidia.com/gpucores": share}))
                made += 1
        time.sleep(rng.uniform(0.1, 0.8))
        if dead < kills:
            if dead == kills // 2:
                restart_api_server()
            process.kill()
            process.wait()
            dead += 1
            audit(all_pods())
            process, _ = controller(*options, wait=False, metrics=metrics)
    def waiting():
        assert process.poll() is None
        left = [p for p in all_pods() if not p["spec"].get("nodeName")]
        time.sleep(1)
        return not left
    try:
        until("all pods to be placed", waiting, 150)
    except AssertionError:
        left = [p for p in all_pods() if not p["spec"].get("nodeName")]
        print(len(left), "wait:", json.dumps(left[0].get("status")) if left else "")
        raise
    pods = all_pods()
    assert len(pods) == total and len({p["metadata"]["uid"] for p in pods}) == total
    audit(pods)
    print(f"killed {dead} times, the API server once: {total} pods placed, none twice, no card over-committed")


try:
    {"admission": admission, "dra": dra, "replicas": replicas, "hostile": hostile, "kill": kill}[os.environ["SLUICE_CONTROLLER_PART"]]()
except BaseException:
    for log in sorted(DIR.glob("*.log")):
        print(f"--- {log.name}\n{log.read_text()[-3000:]}", file=sys.stderr)
    raise
finally:
    for process in started:
        if process.poll() is None:
            process.kill()
            process.wait()
    shutil.rmtree(DIR, ignore_errors=True)
