# SPDX-License-Identifier: Apache-2.0
"""Beside NVIDIA's GPU Operator: its ConfigMap of named configurations and its node labels, by the commands of
docs/gpu-operator.md. The operator itself is not here: its objects are, as its documents have them."""
import os
import re
import shlex
import subprocess

import images
from cluster import NODE, Failed
from test_chart import helm_program, renderer
from world import ready, same, test, wait

GPU = "nvidia.com/gpu"
SPACE = "gpu-operator"
AGENTS = f"/api/v1/namespaces/{SPACE}/pods?labelSelector=app.kubernetes.io%2Fname%3Dsluiced"
MAPS = f"/api/v1/namespaces/{SPACE}/configmaps"
CONFIG_LABEL = "nvidia.com/device-plugin.config"
DEPLOY_LABEL = "nvidia.com/gpu.deploy.device-plugin"
# As the operator labels a node with GPUs.
LABELS = {"nvidia.com/gpu.present": "true", **{f"nvidia.com/gpu.deploy.{part}": "true" for part in (
    "driver", "container-toolkit", "device-plugin", "gpu-feature-discovery", "dcgm", "dcgm-exporter", "mig-manager",
    "operator-validator", "node-status-exporter")}}


def sliced(replicas):
    return f"version: v1\nsharing:\n  timeSlicing:\n    resources:\n    - name: nvidia.com/gpu\n      replicas: {replicas}\n"


def documented(beginning):
    """The command of the page that begins so, as words."""
    with open(os.path.join(images.TOP, "docs", "gpu-operator.md"), encoding="utf-8") as f:
        blocks = re.findall(r"```sh\n(.*?)```", f.read(), re.S)
    found = [line for block in blocks for line in block.replace("\\\n", "").splitlines() if line.startswith(beginning)]
    if len(found) != 1:
        raise Failed(f"docs/gpu-operator.md has {len(found)} commands `{beginning} …`")
    return shlex.split(found[0])


def helm(w, words, *more):
    env = {"HOME": w.cluster.work, "KUBECONFIG": w.cluster.kubeconfig, "PATH": os.environ["PATH"]}
    done = subprocess.run([helm_program(), *words[1:], *more], env=env, cwd=images.TOP, capture_output=True, text=True,
                          check=False)
    if done.returncode:
        raise Failed(f"{' '.join(words)}: {done.stderr.strip()}")


def agents(w):
    return [p for p in w.api.get(AGENTS)["items"] if not p["metadata"].get("deletionTimestamp")]


def agent(w):
    wait("the agent in the operator's namespace", lambda: len(agents(w)) == 1 and ready(agents(w)[0]), 90)
    return agents(w)[0]["metadata"]["uid"]


def label(w, key, value):
    """None: takes it away."""
    w.api.patch("/api/v1/nodes/" + NODE, {"metadata": {"labels": {key: value}}})


@test("operator.named_configs_and_deploy_labels")
def operator(w):
    if not helm_program():
        return "NOT RUN: no helm in SLUICE_K8S_BIN or the PATH"
    w.clean()
    w.cluster.kubectl("delete", "namespace", "sluice-system", "--ignore-not-found", "--wait=true")
    for key, value in LABELS.items():
        label(w, key, value)
    w.cluster.kubectl("create", "namespace", SPACE)
    w.api.create(MAPS, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "device-plugin-configs"},
                        "data": {"any": sliced(4), "two": sliced(2), "default": sliced(3)}})
    before = w.api.get(MAPS + "/device-plugin-configs")
    sim = ("--post-renderer", renderer(w))
    helm(w, documented("helm install"), *sim, "--set", "image.pullPolicy=Never")
    uid = agent(w)
    w.wait_allocatable({GPU: 4})
    # The node's label, at run time; one that names nothing changes nothing.
    label(w, CONFIG_LABEL, "two")
    w.wait_allocatable({GPU: 2})
    label(w, CONFIG_LABEL, "three")
    wait("an event about the label", lambda: [e for e in w.events("ConfigRefused") if "three" in e["message"]])
    same("allocatable with a label that names nothing", w.allocatable(), {GPU: 2})
    label(w, CONFIG_LABEL, None)
    w.wait_allocatable({GPU: 4})
    same("the ConfigMap", w.api.get(MAPS + "/device-plugin-configs")["data"], before["data"])
    # Edited in place.
    w.api.patch(MAPS + "/device-plugin-configs", {"data": {"any": sliced(5)}})
    wait(lambda: f"the edited configuration, allocatable is {w.allocatable()}", lambda: w.allocatable() == {GPU: 5}, 120)
    same("the agent's pod", agent(w), uid)
    # Without a default of its own: the key "default"; without that, NVIDIA's defaults.
    upgrade = ["helm", "upgrade", "sluice", "deploy/chart", "--namespace", SPACE, "--reuse-values", "--wait"]
    helm(w, upgrade, *sim, "--set", "agent.defaultConfig=")
    w.wait_allocatable({GPU: 3})
    w.api.patch(MAPS + "/device-plugin-configs", {"data": {"default": None}})
    wait(lambda: f"one device a card, allocatable is {w.allocatable()}", lambda: w.allocatable() == {GPU: 1}, 120)
    helm(w, upgrade, *sim, "--set", "agent.defaultConfig=any")
    w.wait_allocatable({GPU: 5})
    # Where the operator would not have its plugin there is no agent: switched off by hand, and while it changes MIG.
    for value in ("false", "paused-for-mig-change"):
        label(w, DEPLOY_LABEL, value)
        wait(f"no agent with {value}", lambda: not w.api.get(AGENTS)["items"], 60)
        label(w, DEPLOY_LABEL, "true")
        agent(w)
        w.wait_allocatable({GPU: 5})
    same("the operator's labels", {k: w.labels().get(k) for k in LABELS}, LABELS)
    helm(w, documented("helm uninstall"))
    wait("no agent", lambda: not w.api.get(AGENTS)["items"], 60)
    same("the operator's labels at the end", {k: w.labels().get(k) for k in LABELS}, LABELS)
    same("ConfigMaps", [m["metadata"]["name"] for m in w.api.get(MAPS)["items"] if m["metadata"]["name"] != "kube-root-ca.crt"],
         ["device-plugin-configs"])
    w.cluster.kubectl("delete", "namespace", SPACE, "--wait=true")
    for key in LABELS:
        label(w, key, None)
    w.overlay = None
    return None
