# SPDX-License-Identifier: Apache-2.0
"""Broken pods on a whole node: `kubectl sluice explain` finds the cause of each, and the pods' events and states are
those that the scheduler, kubelet and the agent wrote."""
import json
import os
import pathlib
import subprocess

import images
from test_fractions import GPU, IDLE, begin, promise
from world import check, same, test, wait

BIN = pathlib.Path(__file__).resolve().parent.parent.parent / "build" / "bin"


def explained(w, pod):
    kubectl = w.cluster.programs["kubectl"]
    env = dict(os.environ, PATH=f"{os.path.dirname(kubectl)}:{BIN}:{os.environ['PATH']}")
    got = subprocess.run([kubectl, "sluice", "explain", pod, "--kubeconfig", w.cluster.kubeconfig, "--json"],
                         capture_output=True, text=True, check=False, env=env)
    check(got.returncode in (0, 1), f"kubectl sluice explain {pod}: {got.stderr}")
    return json.loads(got.stdout)


def is_told(w, pod, code, words=""):
    wait(lambda: f"{pod} explained as {code}, not {explained(w, pod)}",
         lambda: explained(w, pod)["code"] == code, 90)
    told = explained(w, pod)
    check(words in told["why"], f"{pod}: no \"{words}\" in: {told['why']}")
    check(told["do"], f"{pod}: nothing to do")


def plain_pod(w, name, image, mounts=(), **spec):
    container = {"name": "main", "image": image, "imagePullPolicy": "Never", "command": list(IDLE),
                 "volumeMounts": [{"name": v, "mountPath": f"/{v}"} for v in mounts]}
    w.api.create("/api/v1/namespaces/default/pods", {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": [container], **spec}})


@test("explain.ten_broken_pods")
def broken(w):
    begin(w)
    w.pod("well", GPU, IDLE, annotations=promise(w, main=(2048, 5)))
    w.wait_running("well")
    told = explained(w, "well")
    same("a pod that runs", (told["code"], told["why"][:44]), ("runs", "It has 2048 MiB of GPU memory and 5 % of GPU"))

    w.pod("unclaimed", None, IDLE, resourceClaims=[{"name": "gpu", "resourceClaimName": "nowhere"}])
    is_told(w, "unclaimed", "no-claim", "nowhere")
    w.pod("many", {GPU: 11}, IDLE)
    is_told(w, "many", "gpus-full", "default/well")
    w.pod("gate", GPU, IDLE, schedulingGates=[{"name": "sluice.io/test"}])
    is_told(w, "gate", "gated", "sluice.io/test")
    w.pod("elsewhere", GPU, IDLE, nodeSelector={"model": "none"})
    is_told(w, "elsewhere", "wrong-node-selector", "model")
    w.pod("stranger", GPU, IDLE, schedulerName="nobody")
    is_told(w, "stranger", "no-scheduler", "nobody")
    w.pod("hungry", {"cpu": "9999"}, IDLE)
    is_told(w, "hungry", "cpu-or-memory", "Insufficient cpu")
    plain_pod(w, "imageless", "localhost/there-is-none")
    is_told(w, "imageless", "image", "there-is-none")
    w.pod("crashing", None, ("no-such-program",))
    is_told(w, "crashing", "failed")
    plain_pod(w, "volumeless", images.TEST, ["v"], volumes=[{"name": "v", "configMap": {"name": "nowhere"}}])
    is_told(w, "volumeless", "volume", "nowhere")
    w.pod("unpromised", GPU, IDLE)  # nobody promised it anything: the agent refuses to start it
    is_told(w, "unpromised", "not-created", "has no annotation sluice.io/lease")
