# SPDX-License-Identifier: Apache-2.0
"""From one way of sharing to another by the commands of docs/uninstall.md, as they are printed there: nothing of the old one is
left. Overlays are applied with the simulated driver under them."""
import os
import re
import subprocess

import images
from cluster import Failed
from test_chart import ours
from test_uninstall import left_on_node
from world import check, same, test, wait

GPU = "nvidia.com/gpu"


def blocks():
    """The commands of each block below "Switch", in the order of the page: to dra, back, mps to mig-single."""
    with open(os.path.join(images.TOP, "docs", "uninstall.md"), encoding="utf-8") as f:
        text = f.read().split("## Switch", 1)[1].split("\n## ", 1)[0]
    found = [[line for line in block.replace("\\\n", "").splitlines() if line.strip()]
             for block in re.findall(r"```sh\n(.*?)```", text, re.S)]
    same("blocks of commands below Switch in docs/uninstall.md", len(found), 3)
    return found


def run(w, commands):
    folder = os.path.dirname(w.cluster.programs["kubectl"])
    for command in commands:
        overlay = re.fullmatch(r"kubectl apply -k deploy/overlays/(\S+)", command)
        if overlay:
            w.apply(overlay.group(1))
            w.agent()
            continue
        done = subprocess.run(["sh", "-c", command], cwd=images.TOP, capture_output=True, text=True, check=False, timeout=300, env={
            "HOME": w.cluster.work, "KUBECONFIG": w.cluster.kubeconfig, "PATH": folder + os.pathsep + os.environ["PATH"]})
        if done.returncode:
            raise Failed(f"{command}: {done.stderr.strip() or done.stdout.strip()}")


def controller_objects(w):
    """Deployments, Services and the like of the namespace, beside the agent's."""
    names = w.cluster.kubectl("-n", "sluice-system", "get", "deployments,services,roles,rolebindings", "-o", "name").split()
    return sorted(n for n in names if "sluice" in n)


@test("switch.fractional_to_dra_and_back")
def fractional_dra(w):
    to_dra, back, _ = blocks()
    w.clean()
    w.cluster.kubectl("delete", "namespace", "sluice-system", "--ignore-not-found", "--wait=true")
    for name in ours(w):
        w.cluster.kubectl("delete", name)
    wait("no slices", lambda: not w.api.get("/apis/resource.k8s.io/v1/resourceslices")["items"], 90, every=1)
    w.apply("fractional")
    w.agent()
    w.wait_allocatable({GPU: 10})
    w.cluster.kubectl("apply", "-k", os.path.join(images.TOP, "deploy/controller/extender"))
    fractional = ours(w), controller_objects(w)
    run(w, to_dra)
    wait("slices", lambda: w.api.get("/apis/resource.k8s.io/v1/resourceslices")["items"], 60)
    dra = ours(w), controller_objects(w)
    # What is common to both stays; all of the one that the other does not have is gone.
    only = sorted(set(fractional[0]) - set(dra[0])), sorted(set(dra[0]) - set(fractional[0]))
    check(any("fractional" in n for n in only[0]) and any("deviceclass" in n for n in only[1]), f"{only}")
    check(not any("fractional" in n or "leases" in n for n in dra[0]), f"of fractional is left: {dra[0]}")
    check(not any("extender" in n for n in dra[1]), f"of the extender is left: {dra[1]}")
    same("slots", w.allocatable().get(GPU, 0), 0)
    run(w, back)
    w.wait_allocatable({GPU: 10})
    same("objects of the cluster, there and back", ours(w), fractional[0])
    same("objects of the namespace, there and back", controller_objects(w), fractional[1])
    wait("no slices", lambda: not w.api.get("/apis/resource.k8s.io/v1/resourceslices")["items"], 90, every=1)
    same("sockets of the driver", [p for p in left_on_node() if "plugins_registry" in p], [])
    w.cluster.kubectl("delete", "-k", os.path.join(images.TOP, "deploy/controller/extender"))
    return f"{len(only[0])} objects of fractional, {len(only[1])} of dra made and removed"


@test("switch.mps_to_mig")
def mps_mig(w):
    commands = blocks()[2]
    w.clean()
    w.apply("mps-2")
    w.agent()
    w.wait_allocatable({GPU: 2})
    w.wait_labels(mps_capable="true")
    w.pod("client", GPU)
    w.wait_running("client")
    folder = f"/run/nvidia/mps/{w.cards[0]}"
    check(os.path.isdir(folder), f"there is no {folder}")
    w.delete("client")
    run(w, commands)
    check(not os.path.exists(folder), f"{folder} is left: {os.listdir(folder) if os.path.isdir(folder) else ''}")
    same("folders of MPS", os.listdir("/run/nvidia/mps") if os.path.isdir("/run/nvidia/mps") else [], [])
    w.sim("mig", "0", *["1g.18gb"] * 7)
    w.wait_allocatable({GPU: 7})
    w.clean()
    w.apply("default")
    w.agent()
    return "its folder went with the daemon"
