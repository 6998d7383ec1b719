# SPDX-License-Identifier: Apache-2.0
"""Nothing is left after the commands of docs/uninstall.md: on the node, on its Node, in the cluster."""
import glob
import os
import re
import shlex

import images
from dra_world import begin, claims_gone, pod, share
from world import check, same, test, wait

PLACES = ("/var/lib/sluice", "/run/sluice", "/run/cdi/k8s.*", "/run/nvidia/mps/*", "/var/lib/kubelet/plugins/gpu.sluice.io",
          "/var/lib/kubelet/plugins_registry/gpu.sluice.io*", "/var/lib/kubelet/device-plugins/nvidia-*")
KINDS = ("clusterroles", "clusterrolebindings", "validatingadmissionpolicies", "validatingadmissionpolicybindings",
         "mutatingwebhookconfigurations", "deviceclasses", "resourceslices", "resourceclaimtemplates")


def commands(step):
    """The commands of a numbered step in docs/uninstall.md, as words."""
    with open(os.path.join(images.TOP, "docs", "uninstall.md"), encoding="utf-8") as f:
        text = f.read().split("## Uninstall", 1)[1]
    part = re.split(r"^\d\. ", text, flags=re.M)[step]
    lines = [line.strip() for block in re.findall(r"```sh\n(.*?)```", part, re.S) for line in block.splitlines()]
    check(lines, f"docs/uninstall.md has no commands in step {step}")
    return [shlex.split(line) for line in lines if line]


def kubectl(w, words):
    same("the program", words[0], "kubectl")
    return w.cluster.kubectl(*(os.path.join(images.TOP, x) if x.startswith("deploy/") else x for x in words[1:]))


def left_on_node():
    """Folders that the sandbox itself mounts stay, empty."""
    found = sorted(p for pattern in PLACES for p in glob.glob(pattern))
    return [p for p in found if not (os.path.ismount(p) and not os.listdir(p))]


def left_on_object(w):
    """Labels and annotations that were not there before: the Node's own are Kubernetes'."""
    meta = w.cluster.node()["metadata"]
    return sorted(k for part in ("labels", "annotations") for k in meta[part]
                  if k.split("/")[0] in ("nvidia.com", "sluice.io", "hami.io"))


def left_in_cluster(w):
    names = w.cluster.kubectl("get", ",".join(KINDS), "-A", "-o", "name").split()
    return sorted(n for n in names if "sluice" in n)


def steps_two_and_three(w):
    for words in commands(2):
        kubectl(w, words)
    same("files on the node", left_on_node(), [])
    same("labels and annotations", left_on_object(w), [])
    for words in commands(3):
        kubectl(w, words)
    wait("the namespace to be gone", lambda: w.api.get("/api/v1/namespaces/sluice-system") is None, 90)
    # Kubelet removes the slices of a driver that has not come back for half a minute.
    wait(lambda: f"no objects to be left, there are {left_in_cluster(w)}", lambda: not left_in_cluster(w), 90, every=1)
    w.overlay = None


def from_nothing(w):
    """Earlier tests applied one overlay over another, and `kubectl apply` deletes nothing: what they left is not ours."""
    for folder in sorted(glob.glob(os.path.join(w.cluster.work, "overlay-*"))):
        w.cluster.kubectl("delete", "-k", folder, "--ignore-not-found")
    wait("the namespace to be gone", lambda: w.api.get("/api/v1/namespaces/sluice-system") is None, 90)
    w.overlay = None
    begin(w)


@test("uninstall.nothing_is_left")
def uninstall(w):
    from_nothing(w)
    w.cluster.kubectl("apply", "-k", os.path.join(images.TOP, "deploy/controller/dra"))
    pod(w, "share", share(w))
    w.wait_running("share")
    wait("labels", lambda: len(left_on_object(w)) > 20, 60)
    before = len(left_on_node()), len(left_on_object(w)), len(left_in_cluster(w))
    w.delete("share")
    claims_gone(w)
    # The first step with the folders that were applied; own-node-only is a component of this test's overlay.
    w.cluster.kubectl("delete", "-k", os.path.join(images.TOP, "deploy/controller/dra"))
    w.cluster.kubectl("delete", "-k", os.path.join(w.cluster.work, "overlay-dra"))
    wait("the namespace to be gone", lambda: w.api.get("/api/v1/namespaces/sluice-system") is None, 90)
    steps_two_and_three(w)
    return f"{before[0]} files and folders, {before[1]} labels and annotations, {before[2]} objects removed"


@test("uninstall.the_overlay_first")
def overlay_first(w):
    """The order that leaves the webhook behind: pods come in all the same, and the controller's folder takes it away."""
    from_nothing(w)
    folder = os.path.join(images.TOP, "deploy/controller/dra")
    w.cluster.kubectl("apply", "-k", folder)
    wait("the controller's webhook", lambda: any("mutatingwebhook" in n for n in left_in_cluster(w)), 60)
    w.cluster.kubectl("delete", "-k", os.path.join(w.cluster.work, "overlay-dra"))
    wait("the namespace to be gone", lambda: w.api.get("/api/v1/namespaces/sluice-system") is None, 90)
    w.pod("plain", command=("sleep", "1000"))
    w.wait_running("plain")
    w.delete("plain")
    with open(os.path.join(images.TOP, "docs", "uninstall.md"), encoding="utf-8") as f:
        words = re.search(r"`kubectl (delete --ignore-not-found -k) deploy/controller/extender`", " ".join(f.read().split()))
    check(words, "docs/uninstall.md does not say how to remove what is left of the controller")
    w.cluster.kubectl(*words.group(1).split(), folder)
    steps_two_and_three(w)
