# SPDX-License-Identifier: Apache-2.0
"""Fractions without DRA: what a pod was promised in its annotation is what its containers are held to. The promise is
written here by hand; who writes it otherwise is the scheduler extender."""
import contextlib
import json
import os
import subprocess

import images
import restarts
from dra_world import pod as claim_pod, share
from world import AGENTS, NODE, bare, check, cuda_uuids, same, test, wait

GPU = "nvidia.com/gpu"
TENANTS = "/run/sluice/k"
IDLE = ("sleep", "1000")


def begin(w):
    """The overlay, once."""
    if w.overlay == "fractional":
        return
    w.clean()
    w.apply("fractional")
    w.agent()
    w.wait_allocatable({GPU: 10})


def promise(w, **containers):
    """container=(MiB, cores)"""
    return {"sluice.io/lease": json.dumps({"version": 1, "node": NODE, "containers": [
        {"name": name, "gpus": [{"uuid": w.cards[0], "memoryMiB": mib, "cores": cores}]}
        for name, (mib, cores) in containers.items()]})}


def held_to(w, pod, mib):
    view = w.sees(pod)
    same(f"CUDA's devices in {pod}", cuda_uuids(view), [bare(w.cards[0])])
    same(f"total memory in {pod}", view["cuda"][0]["mib"], mib)


def tenants():
    return os.listdir(TENANTS) if os.path.isdir(TENANTS) else []


def starts(w, n, step):
    """n pods of n sizes, created as fast as the API server takes them."""
    size = {f"p{i}": 2048 + step * i for i in range(n)}
    for name, mib in size.items():
        w.pod(name, GPU, IDLE, annotations=promise(w, main=(mib, 5)))
    w.wait_running(*size)
    for name, mib in size.items():
        held_to(w, name, mib)
    return size


@test("fractions.the_node_says_what_it_has")
def registered(w):
    begin(w)
    notes = wait("the Node's annotations", lambda: w.cluster.node()["metadata"]["annotations"].get("sluice.io/gpus"))
    same("its GPUs", [(g["uuid"], g["memoryMiB"], g["healthy"]) for g in json.loads(notes)],
         [(w.cards[0], 143771, True)])


@test("fractions.ten_sizes_started_together")
def together(w):
    begin(w)
    starts(w, 10, 512)
    same("tenants", len(tenants()), 10)


@test("fractions.the_same_slots_in_other_hands")
def again(w):
    w.delete(*[f"p{i}" for i in range(10)])
    starts(w, 10, 640)
    same("tenants", len(tenants()), 10)
    w.delete(*[f"p{i}" for i in range(10)])
    wait("tenants to be gone", lambda: not tenants(), 30)


@test("fractions.no_promise_is_said")
def no_promise(w):
    begin(w)
    w.pod("plain", GPU, IDLE)
    event = wait("an event", lambda: [e for e in w.events("Failed")
                                      if "has no annotation sluice.io/lease" in e["message"]], 60)
    check("extender" in event[0]["message"], event[0]["message"])
    check(w.get_pod("plain")["status"]["phase"] == "Pending", w.why("plain"))
    w.delete("plain")


@test("fractions.an_init_container_has_its_own")
def init(w):
    begin(w)
    before = {"name": "before", "image": images.TEST, "imagePullPolicy": "Never", "command": ["gpus"],
              "resources": {"limits": {GPU: 1}}}
    w.pod("init", GPU, IDLE, annotations=promise(w, before=(4096, 10), main=(8192, 20)),
          initContainers=[before])
    w.wait_running("init")
    log = json.loads(w.cluster.kubectl("logs", "init", "-c", "before"))
    same("total memory in the init container", log["cuda"][0]["mib"], 4096)
    held_to(w, "init", 8192)
    same("tenants", len(tenants()), 1)
    w.delete("init")


@test("fractions.a_sidecar_takes_an_init_containers_slot_over")
def sidecar(w):
    begin(w)
    plain = {"image": images.TEST, "imagePullPolicy": "Never", "resources": {"limits": {GPU: 1}}}
    w.pod("side", GPU, IDLE, annotations=promise(w, before=(4096, 10), side=(2048, 5), main=(8192, 20)), initContainers=[
        {"name": "before", "command": ["gpus"], **plain},
        {"name": "side", "command": ["sh", "-c", "gpus; sleep 1000"], "restartPolicy": "Always", **plain}])
    w.wait_running("side")
    for name, mib in (("before", 4096), ("side", 2048)):
        log = wait(f"the output of {name}", lambda n=name: w.cluster.kubectl("logs", "side", "-c", n, check=False).stdout.strip(), 30)
        same(f"total memory in {name}", json.loads(log)["cuda"][0]["mib"], mib)
    held_to(w, "side", 8192)
    same("tenants", len(tenants()), 2)
    w.delete("side")


@test("fractions.a_container_starts_again")
def restart(w):
    begin(w)
    w.pod("again", GPU, ("sh", "-c", "gpus; sleep 4"), annotations=promise(w, main=(4096, 10)),
          restartPolicy="Always")
    wait("it to have started again",
         lambda: w.get_pod("again")["status"].get("containerStatuses", [{}])[0].get("restartCount", 0) >= 1, 60)
    log = wait("its output", lambda: w.cluster.kubectl("logs", "again", check=False).stdout.strip(), 30)
    same("total memory", json.loads(log)["cuda"][0]["mib"], 4096)
    same("tenants", len(tenants()), 1)
    w.delete("again")


@test("fractions.agent_killed_under_them")
def killed(w):
    begin(w)
    w.pod("steady", GPU, annotations=promise(w, main=(4096, 10)))
    w.wait_running("steady")
    before = w.container("steady")
    w.kill_agent()
    wait("the agent's next process", w.agent_pid)
    w.agent()
    w.wait_allocatable({GPU: 10})
    w.pod("later", GPU, IDLE, annotations=promise(w, main=(6144, 10)))
    w.wait_running("later")
    held_to(w, "later", 6144)
    same("the pod's container", w.container("steady"), before)
    beats = wait("the pod's output", lambda: w.beats("steady"))
    wait("the pod to go on using its GPU", lambda: w.beats("steady") > beats + 1, 30, every=0.5)
    w.delete("steady", "later")
    wait("tenants to be gone", lambda: not tenants(), 60)


@test("fractions.restarts_refuse_nothing")
def restarts_refuse_nothing(w):
    """While an agent is replaced its arbiter ends, and the next agent starts another."""
    begin(w)
    w.pod("churn", GPU, restarts.COMMAND, annotations=promise(w, main=(restarts.LIMIT_MIB, 50)))
    w.wait_running("churn")
    words = restarts.refuse_nothing(w, "churn", agents=8, kills=5)
    w.wait_allocatable({GPU: 10})
    w.delete("churn")
    wait("tenants to be gone", lambda: not tenants(), 60)
    return words


def image_of(w, image):
    """Another image for the agent, as an upgrade brings it."""
    w.api.call("PATCH", "/apis/apps/v1/namespaces/sluice-system/daemonsets/sluiced", {"spec": {"template": {"spec": {
        "containers": [{"name": "sluiced", "image": image}]}}}}, "application/strategic-merge-patch+json")


@test("fractions.an_upgrade_without_its_image")
def missing_image(w):
    """The new agent's image cannot be had: the old agent stays, and programs that start in running pods find their arbiter."""
    begin(w)
    w.pod("runs", GPU, IDLE, annotations=promise(w, main=(4096, 10)))
    w.wait_running("runs")
    old = w.agent()
    image = old["spec"]["containers"][0]["image"]
    image_of(w, "localhost/sluice:not-there")
    try:
        wait("the new agent to wait for its image", lambda: [
            p for p in w.api.get(AGENTS)["items"] for c in p["status"].get("containerStatuses", [])
            if c["state"].get("waiting", {}).get("reason") in ("ErrImageNeverPull", "ErrImagePull", "ImagePullBackOff")], 60)
        for _ in range(7):
            held_to(w, "runs", 4096)
        w.pod("starts", GPU, IDLE, annotations=promise(w, main=(2048, 10)))
        w.wait_running("starts")
        held_to(w, "starts", 2048)
        check(any(p["metadata"]["uid"] == old["metadata"]["uid"] for p in w.api.get(AGENTS)["items"]), "the old agent is gone")
    finally:
        image_of(w, image)
    w.agent()
    w.delete("runs", "starts")


@test("fractions.a_rollout_leaves_no_gap")
def rollout(w):
    """Programs start one after the other in a running pod while three agents replace each other: none fails, none waits long
    enough to say so."""
    begin(w)
    w.pod("runs", GPU, ("sh", "-c", "while true; do gpus >/tmp/out 2>/tmp/err && echo good || echo bad; cat /tmp/err; done"),
          annotations=promise(w, main=(4096, 10)))
    w.wait_running("runs")

    def lines(word):
        return [x for x in w.cluster.kubectl("logs", "runs").splitlines() if word in x]
    for _ in range(3):
        uid, before = w.agent()["metadata"]["uid"], len(lines("good"))
        w.cluster.kubectl("-n", "sluice-system", "rollout", "restart", "daemonset/sluiced")
        wait("another pod of the agent", lambda u=uid: w.agent()["metadata"]["uid"] != u, 90)
        wait("programs to start", lambda n=before: len(lines("good")) > n + 3, 60, every=0.5)
        same("starts that failed", lines("bad"), [])
    started, waited = len(lines("good")), lines("sluice:")
    w.wait_allocatable({GPU: 10})
    w.delete("runs")
    return f"{started} programs started, {len(waited)} waited for more than a second"


@contextlib.contextmanager
def no_agent(w):
    """No node for the agent: the DaemonSet's pod goes, and does not come back until its label does."""
    node = "/api/v1/nodes/" + NODE
    strategic = "application/strategic-merge-patch+json"
    path = "/apis/apps/v1/namespaces/sluice-system/daemonsets/sluiced"
    w.api.call("PATCH", path, {"spec": {"template": {"spec": {"nodeSelector": {"e2e-agent": "here"}}}}}, strategic)
    try:
        wait("no agent", lambda: not w.api.get(AGENTS)["items"], 60)
        yield
    finally:
        w.api.patch(node, {"metadata": {"labels": {"e2e-agent": "here"}}})
    w.api.call("PATCH", path, {"spec": {"template": {"spec": {"nodeSelector": None}}}}, strategic)
    w.agent()
    w.api.patch(node, {"metadata": {"labels": {"e2e-agent": None}}})
    w.wait_allocatable({GPU: 10})


@test("fractions.a_program_starts_without_the_agent")
def starts_alone(w):
    """A program in a running pod, the only process of its tenant. Beside a program that runs, none starts. Both pods go on
    once the agent is back."""
    begin(w)
    w.pod("runs", GPU, IDLE, annotations=promise(w, main=(4096, 10)))
    w.pod("holds", GPU, ("gpus", "hold"), annotations=promise(w, main=(4096, 10)))
    w.wait_running("runs", "holds")
    leases = [os.path.join(TENANTS, t, "lease") for t in tenants()]
    same("tenants", len(leases), 2)
    wait("the arbiter's word that they may", lambda: all(os.path.exists(f) for f in leases), 30)
    with no_agent(w):
        alone = w.cluster.kubectl("exec", "runs", "--", "gpus", "fill", check=False)
        check("this is the only process of" in alone.stderr, alone.stderr)
        view = json.loads(alone.stdout)
        same("memory it sees", [d["mib"] for d in view["cuda"]], [4096])
        second = w.cluster.kubectl("exec", "holds", "--", "env", "SLUICE_ATTACH_WAIT=3", "gpus", check=False)
        check("CUDA answers error 800" in second.stderr, f"{second.returncode}: {second.stdout} {second.stderr}")
    held_to(w, "runs", 4096)
    held_to(w, "holds", 4096)
    w.delete("runs", "holds")
    return alone.stderr.strip()


@test("fractions.a_program_waits_for_the_agent")
def waits(w):
    """No agent and no arbiter for some seconds: a program that starts beside another one says on stderr that it waits, and
    then runs. One that is told to wait for less ends with error 800 and a line."""
    begin(w)
    w.pod("runs", GPU, ("gpus", "hold"), annotations=promise(w, main=(4096, 10)))
    w.wait_running("runs")
    with no_agent(w):
        short = w.cluster.kubectl("exec", "runs", "--", "env", "SLUICE_ATTACH_WAIT=2", "gpus", check=False)
        check("sluice: the arbiter of the GPU does not answer" in short.stderr and "waiting up to 2 s" in short.stderr and
              "CUDA answers error 800" in short.stderr, f"{short.returncode}: {short.stdout} {short.stderr}")
        long = subprocess.Popen([w.cluster.programs["kubectl"], "--kubeconfig", w.cluster.kubeconfig, "exec", "runs", "--", "env",
                                 "SLUICE_ATTACH_WAIT=300", "gpus"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        said = long.stderr.readline()
        check("waiting up to 300 s for it" in said, said)
    out, _ = long.communicate(timeout=240)
    same("memory it sees", [d["mib"] for d in json.loads(out)["cuda"]], [4096])
    w.delete("runs")
    return said.strip()


@test("fractions.then_claims")
def then_claims(w):
    """Kubelet remembers for five minutes that the plugin wanted to be asked before containers start: a pod whose
    claim stands for the same name starts all the same."""
    begin(w)
    w.pod("before", GPU, IDLE, annotations=promise(w, main=(4096, 10)))
    w.wait_running("before")
    container = w.container("before")
    w.apply("dra")
    w.agent()
    wait("the node to offer no fractions", lambda: w.allocatable() == {}, 60)
    # The node was not drained: who had a fraction keeps it to his end, and nothing is left of it then.
    same("the pod's container", w.container("before"), container)
    same("tenants", len(tenants()), 1)
    held_to(w, "before", 4096)
    w.delete("before")
    wait("its tenant to be gone", lambda: not tenants(), 60)
    w.pod("whole", GPU)
    w.wait_running("whole")
    same("CUDA's devices", cuda_uuids(w.sees("whole")), [bare(w.cards[0])])
    w.delete("whole")


@test("fractions.after_claims_that_nobody_unprepared")
def after_claims(w):
    """From claims to fractions without draining, and a pod deleted by force: what it was promised ends by itself."""
    w.clean()
    w.apply("dra")
    w.agent()
    for name, memory in (("kept", "20Gi"), ("lost", "70Gi")):
        claim_pod(w, name, share(w, memory, "30"))
    w.wait_running("kept", "lost")
    w.apply("fractional")
    w.agent()
    same("tenants", len(tenants()), 2)
    w.cluster.kubectl("delete", "pod", "lost", "--force", "--grace-period=0")
    wait(lambda: f"one tenant, there are {tenants()}", lambda: len(tenants()) == 1, 90)
    # The one that runs keeps what it has, and goes when the driver is back.
    same("memory in kept", [d["mib"] for d in w.sees("kept")["cuda"]], [20480])
    w.apply("dra")
    w.agent()
    w.delete("kept")
    wait(lambda: f"no tenants, there are {tenants()}", lambda: not tenants(), 90)
