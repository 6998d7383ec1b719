# SPDX-License-Identifier: Apache-2.0
"""The overlay `simulated` as anybody applies it to a cluster without GPUs, by the commands of docs/simulated-gpu.md. Nothing of
the tests' own simulated driver is under it: the agent's image brings the driver to the node."""
import os
import re
import shlex

import images
from test_fractions import GPU, IDLE, begin as begin_fractions, promise
from world import check, same, test, wait

PLACE = "/var/lib/sluice/simulated"


def documented(word):
    """The command of the page's part on Kubernetes that has this word, for kubectl."""
    with open(os.path.join(images.TOP, "docs", "simulated-gpu.md"), encoding="utf-8") as f:
        part = f.read().split("## On Kubernetes", 1)[1]
    lines = [line for block in re.findall(r"```sh\n(.*?)```", part, re.S) for line in block.splitlines()]
    found = [line for line in lines if line.startswith("kubectl") and word in line]
    check(found, f"docs/simulated-gpu.md has no command of kubectl with {word}")
    return shlex.split(found[0], comments=True)[1:]


def kubectl(w, word):
    return w.cluster.kubectl(*(os.path.join(images.TOP, x) if x.startswith("deploy/") else x for x in documented(word)))


@test("simulated.overlay")
def overlay(w):
    """Applied, used and removed with the commands of the page."""
    w.clean()
    w.cluster.kubectl("delete", "namespace", "sluice-system", "--ignore-not-found", "--wait=true")
    kubectl(w, "apply -k")
    w.overlay = None
    w.agent()
    w.wait_allocatable({GPU: 2})
    check(os.path.exists(f"{PLACE}/state/machine"), f"no simulated machine in {PLACE}")
    w.pod("try", GPU, IDLE)
    w.wait_running("try")
    listed = w.exec("try", "nvidia-smi", "-L").splitlines()
    same("cards by nvidia-smi -L", len(listed), 1)
    check(re.match(r"GPU 0: NVIDIA H200 \(UUID: GPU-[0-9a-f-]{36}\)$", listed[0]), listed[0])
    table = w.exec("try", "nvidia-smi")
    check(table.startswith("SIMULATED GPUs"), table)
    for word in ("Driver Version: ", "CUDA Version: ", "NVIDIA H200", "/  143771 MiB", "No running processes found"):
        check(word in table, f"no {word!r} in\n{table}")
    check({len(line) for line in table.splitlines()[1:]} == {78}, f"a table with an edge:\n{table}")
    # The other card is another pod's; a third pod has to wait.
    w.pod("other", GPU, IDLE)
    w.wait_running("other")
    check(w.exec("other", "nvidia-smi", "-L") != w.exec("try", "nvidia-smi", "-L"), "two pods have one card")
    w.pod("third", GPU, IDLE)
    wait("the third pod to have no place", lambda: w.waiting("third"), 30)
    w.delete("try", "other", "third")
    kubectl(w, "delete -k")
    wait("the namespace to be gone", lambda: w.api.get("/api/v1/namespaces/sluice-system") is None, 90)
    return listed[0]


@test("simulated.nvidia_smi_shows_the_share")
def smi_share(w):
    """In a pod with a share, nvidia-smi shows the share and the pod's own process, as the real one does there."""
    begin_fractions(w)
    w.pod("share", GPU, annotations=promise(w, main=(4096, 10)))
    w.wait_running("share")
    wait("it to use its GPU", lambda: w.beats("share") > 0, 30)
    table = w.exec("share", "nvidia-smi")
    check("/    4096 MiB" in table and "143771" not in table, f"the share is not in\n{table}")
    asked = w.exec("share", "nvidia-smi", "--query-gpu=memory.total,memory.used", "--format=csv,noheader,nounits").strip()
    total, used = map(int, asked.split(", "))
    check(total == 4096 and 0 < used <= 4096, asked)
    w.delete("share")
    return asked + " MiB"
