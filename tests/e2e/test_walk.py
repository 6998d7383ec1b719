# SPDX-License-Identifier: Apache-2.0
"""docs/walk.md, each command as it is printed there, in that order. What is laid under it is not in the commands: Helm's
post-renderer puts the simulated driver under the agent, and the image of the last version into all revisions before the upgrade;
the test's image answers to the name of Debian's."""
import json
import os
import re
import subprocess

import images
from cluster import Failed
from dra_world import CLAIMS
from test_chart import SPACE, helm_program
from test_uninstall import left_in_cluster, left_on_node, left_on_object
from test_upgrade import OLD, have_old
from world import check, same, test, wait

PAGE = os.path.join(images.TOP, "docs", "walk.md")
PODS = ("hami", "gpushare")


def sections():
    """[(heading, [command])] of the page."""
    with open(PAGE, encoding="utf-8") as f:
        parts = re.split(r"^## (.*)$", f.read(), flags=re.M)[1:]
    return [(parts[i], [line for block in re.findall(r"```sh\n(.*?)```", parts[i + 1], re.S)
                        for line in block.replace("\\\n", "").splitlines() if line.strip()]) for i in range(0, len(parts), 2)]


def put(path, text):
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)
    os.chmod(path, 0o755)


def programs(w, old):
    """A folder for the PATH: kubectl for this cluster, and Helm with the post-renderer; `old`: with the last version's image."""
    folder = os.path.join(w.cluster.work, "walk")
    os.makedirs(folder, exist_ok=True)
    sim = os.path.relpath(os.path.join(images.TOP, "tests/e2e/sim"), folder)
    put(f"{folder}/kustomization.yaml", json.dumps(
        {"resources": ["all.yaml"], "components": [sim], "images": OLD if old else []}))
    kubectl, helm = w.cluster.programs["kubectl"], helm_program()
    put(f"{folder}/render", f"#!/bin/sh\ncat >{folder}/all.yaml && exec {kubectl} kustomize {folder}\n")
    put(f"{folder}/kubectl", f'#!/bin/sh\nexec {kubectl} "$@"\n')
    put(f"{folder}/helm", f'#!/bin/sh\ncase $1 in install | upgrade) exec {helm} "$@" --post-renderer {folder}/render ;; esac\n'
        f'exec {helm} "$@"\n')
    return folder


def run(w, folder, command):
    env = {"HOME": w.cluster.work, "KUBECONFIG": w.cluster.kubeconfig,
           "PATH": os.pathsep.join([folder, os.path.join(images.BUILD, "bin"), os.environ["PATH"]])}
    done = subprocess.run(["sh", "-c", command], env=env, cwd=images.TOP, capture_output=True, text=True, check=False, timeout=300)
    if done.returncode:
        raise Failed(f"{command}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def sizes(w):
    """What each pod sees of its card, in MiB."""
    return {name: w.sees(name)["cuda"][0]["mib"] for name in PODS}


def least_share(w):
    slices = w.api.get("/apis/resource.k8s.io/v1/resourceslices")["items"]
    return {d["capacity"]["memory"]["requestPolicy"]["validRange"]["min"] for s in slices for d in s["spec"].get("devices", [])
            if "requestPolicy" in d.get("capacity", {}).get("memory", {})}


def agent_image(w):
    return w.agent()["spec"]["containers"][0]["image"]


@test("walk.as_printed")
def walk(w):
    if not helm_program():
        return "NOT RUN: no helm in SLUICE_K8S_BIN or the PATH"
    if not have_old(w):
        return w.no_old
    w.clean()
    w.cluster.kubectl("delete", "namespace", SPACE, "--ignore-not-found", "--wait=true")
    for name in left_in_cluster(w):
        if not name.startswith("resourceslice"):
            w.cluster.kubectl("delete", name, "--ignore-not-found")
    wait(lambda: f"no objects of other tests: {left_in_cluster(w)}", lambda: not left_in_cluster(w), 90, every=1)
    w.cluster.ctr("images", "tag", "--force", images.TEST, "docker.io/library/debian:stable-slim")
    w.cluster.start_scheduler()
    page = sections()
    same("the sections of docs/walk.md", [heading for heading, _ in page],
         ["Install", "Two pods", "Change the configuration", "Upgrade", "Go back", "Remove it"])
    ran, said, containers, agent = 0, "", {}, None
    folder = programs(w, old=True)
    for heading, commands in page:
        if heading == "Upgrade":
            programs(w, old=False)
        check(commands, f"docs/walk.md has no command below {heading}")
        for command in commands:
            said = run(w, folder, command)
            ran += 1
            if command == "kubectl sluice pods":
                check(all(name in said for name in PODS), said)
        if heading == "Two pods":
            containers = {name: w.container(name) for name in PODS}
            same("what the pods see", sizes(w), {"hami": 3000, "gpushare": 5120})
            agent = w.agent()["metadata"]["uid"]
            check(agent_image(w).endswith(":old"), agent_image(w))
        elif heading == "Change the configuration":
            wait(lambda: f"the least share of 1 GiB: {least_share(w)}", lambda: least_share(w) == {"1Gi"}, 150, every=1)
            same("the agent", w.agent()["metadata"]["uid"], agent)
        elif heading in ("Upgrade", "Go back"):
            check(agent_image(w).endswith(":old") == (heading == "Go back"), agent_image(w))
            same("the pods", {name: w.container(name) for name in PODS}, containers)
            same("what the pods see", sizes(w), {"hami": 3000, "gpushare": 5120})
    wait("the namespace to be gone", lambda: w.api.get(f"/api/v1/namespaces/{SPACE}") is None, 90)
    wait(lambda: f"no objects to be left, there are {left_in_cluster(w)}", lambda: not left_in_cluster(w), 90, every=1)
    same("files on the node", left_on_node(), [])
    same("labels and annotations", left_on_object(w), [])
    same("claims", w.api.get(CLAIMS)["items"], [])
    w.overlay = None
    return f"{ran} commands of docs/walk.md; nothing is left"
