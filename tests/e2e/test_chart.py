# SPDX-License-Identifier: Apache-2.0
"""The life of the Helm chart, by the commands of docs/chart.md as they stand there: over from kustomize, another
configuration, another strategy, back, and away. The simulated driver is put under it by Helm's own means (a post-renderer)."""
import json
import os
import re
import shlex
import shutil
import subprocess

import images
from cluster import Failed
from world import AGENTS, check, ready, same, test, wait

GPU = "nvidia.com/gpu"
SPACE = "sluice-system"
VALUES = ["--set", "agent.ownNodeOnly=true", "--set", "image.pullPolicy=Never"]
# Kinds that are the cluster's; those of the namespace go with it.
KINDS = ("clusterroles", "clusterrolebindings", "validatingadmissionpolicies", "validatingadmissionpolicybindings",
         "mutatingwebhookconfigurations", "deviceclasses")


def helm_program():
    return shutil.which("helm", path=os.pathsep.join([os.environ.get("SLUICE_K8S_BIN", ""), os.environ["PATH"]]))


def renderer(w):
    """What Helm calls with the chart's objects: the same with tests/e2e/sim laid over them."""
    folder = os.path.join(w.cluster.work, "helm")
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, "render")
    sim = os.path.relpath(os.path.join(images.TOP, "tests/e2e/sim"), folder)
    with open(os.path.join(folder, "kustomization.yaml"), "w", encoding="utf-8") as f:
        json.dump({"resources": ["all.yaml"], "components": [sim]}, f)
    with open(path, "w", encoding="utf-8") as f:
        f.write(f"#!/bin/sh\ncat >{folder}/all.yaml && exec {w.cluster.programs['kubectl']} kustomize {folder}\n")
    os.chmod(path, 0o755)
    return path


def documented(beginning):
    """The command of docs/chart.md that begins so, as words."""
    with open(os.path.join(images.TOP, "docs", "chart.md"), encoding="utf-8") as f:
        blocks = re.findall(r"```sh\n(.*?)```", f.read(), re.S)
    found = [line for block in blocks for line in block.splitlines() if line.startswith(beginning)]
    check(found, f"docs/chart.md has no command `{beginning} …`")
    return shlex.split(found[0], comments=True)


def run(w, beginning, *more):
    """The documented command, with more words behind it."""
    words = documented(beginning)
    program = helm_program() if words[0] == "helm" else w.cluster.programs[words[0]]
    env = {"HOME": w.cluster.work, "KUBECONFIG": w.cluster.kubeconfig, "PATH": os.environ["PATH"]}
    done = subprocess.run([program, *words[1:], *more], env=env, cwd=images.TOP, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Failed(f"{' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


def ours(w):
    """What is Sluice's in the cluster, outside the namespace."""
    names = w.cluster.kubectl("get", ",".join(KINDS), "-o", "name").split()
    return sorted(n for n in names if "sluice" in n)


@test("chart.life")
def life(w):
    if not helm_program():
        return "NOT RUN: no helm in SLUICE_K8S_BIN or the PATH"
    w.clean()
    w.cluster.kubectl("delete", "namespace", SPACE, "--ignore-not-found", "--wait=true")
    for name in ours(w):
        w.cluster.kubectl("delete", name)
    w.apply("time-sliced-2")
    w.agent()
    w.wait_allocatable({GPU: 2})
    w.pod("runs", GPU)
    w.wait_running("runs")
    container = w.container("runs")
    sim = ["--post-renderer", renderer(w)]

    notes = run(w, "helm upgrade --install", *VALUES, *sim, "--set", "strategy=time-sliced", "--set", "replicas=2")
    check("rollout status daemonset/sluiced" in notes, notes)
    w.agent()
    w.wait_allocatable({GPU: 2})
    # Another configuration reaches the agent that runs.
    before = w.agent()["metadata"]["uid"]
    run(w, "helm upgrade sluice deploy/chart --namespace sluice-system --reuse-values", *sim, "--set", "replicas=4")
    w.wait_allocatable({GPU: 4})
    same("the agent", w.agent()["metadata"]["uid"], before)
    same("the pod", w.container("runs"), container)
    # Another strategy replaces the agent and brings the controller; the way back takes it away.
    known = ours(w)
    run(w, "helm upgrade sluice deploy/chart --namespace sluice-system --reset-then-reuse-values", *sim,
        "--set", "strategy=fractional")
    w.agent()
    w.wait_allocatable({GPU: 10})
    check("clusterrole.rbac.authorization.k8s.io/sluice-fractional" in ours(w), f"there are {ours(w)}")
    pods = f"/api/v1/namespaces/{SPACE}/pods?labelSelector=app.kubernetes.io%2Fname%3Dsluice-controller"
    wait("two replicas of the controller", lambda: sum(map(ready, w.api.get(pods)["items"])) == 2, 90)
    run(w, "helm rollback")
    w.agent()
    w.wait_allocatable({GPU: 4})
    same("what is left of the other strategy", [n for n in ours(w) if n not in known], [])
    wait("no controller", lambda: not w.api.get(pods)["items"], 60)
    same("the pod", w.container("runs"), container)
    check("deployed" in run(w, "helm history"), "no revision is deployed")

    run(w, "helm uninstall")
    wait("no agent", lambda: not w.api.get(AGENTS)["items"], 60)
    run(w, "kubectl delete namespace")
    same("what is left in the cluster", ours(w), [])
    same("the pod", w.container("runs"), container)
    w.delete("runs")
    w.overlay = None
    return f"{len(known)} objects of the cluster made and removed; {json.dumps(VALUES[1::2])}"
