# SPDX-License-Identifier: Apache-2.0
"""Small things that a walk through a cluster found, each on the real API server."""
import json
import time

from dra_world import CLAIMS, begin, claim_of, claims_gone, pod, share
from world import check, same, test, wait

GPU = "nvidia.com/gpu"
CONFIG = "/api/v1/namespaces/sluice-system/configmaps/sluice-config"


@test("findings.resizes_keep_their_time")
def resizes(w):
    """lastTransitionTime is the moment at which a condition's status changed: a second resize that works does not move it."""
    begin(w)
    pod(w, "sized", share(w, "10Gi", "30", allowed=True))
    w.wait_running("sized")
    claim = claim_of(w, "sized")["metadata"]["name"]

    def condition(kind):
        found = [c for d in claim_of(w, "sized")["status"].get("devices", []) for c in d["conditions"] if c["type"] == kind]
        return found[0] if found else {"status": "", "message": "", "lastTransitionTime": ""}

    def resize(text, status):
        before = condition("Resized")["message"]
        second = int(time.time()) + 1
        wait("another second", lambda: time.time() > second + 0.1, 10)
        w.api.patch(f"{CLAIMS}/{claim}", {"metadata": {"annotations": {"gpu.sluice.io/resize": text}}})
        wait(lambda: f"{text} to be answered: {condition('Resized')}",
             lambda: condition("Resized")["status"] == status and condition("Resized")["message"] != before, 30)
        return condition("Resized")["lastTransitionTime"]
    ready = condition("Ready")["lastTransitionTime"]
    first = resize("memory=12Gi", "True")
    same("the time after another resize that worked", resize("memory=11Gi", "True"), first)
    refused = resize("memory=600Gi", "False")
    check(refused != first, f"the status changed, and its time is still {first}")
    same("the time of Ready", condition("Ready")["lastTransitionTime"], ready)
    w.delete("sized")
    claims_gone(w)
    return f"True since {first}, False since {refused}"


@test("findings.one_overlay_replaces_another_quietly")
def quietly(w):
    """From claims to fractions, to whole cards and back: no event ArbiterDown, because the arbiter is only being replaced."""
    def said():
        return {e["metadata"]["uid"]: e.get("count", 1) for e in w.events("ArbiterDown")}
    before = said()
    for overlay in ("dra", "fractional", "default", "fractional", "dra"):
        w.apply(overlay)
        w.agent()
    # Something that the agent says later: what was on its way before has come.
    w.apply("fractional")
    w.agent()
    w.wait_allocatable({GPU: 10})
    same("events ArbiterDown", said(), before)


@test("findings.malformed_uuid_is_refused")
def malformed(w):
    """NVIDIA's plugin refuses a device called GPU-UUID, and so does the agent: the old configuration stays, an event says why."""
    w.use("default")
    w.wait_allocatable({GPU: 1})
    good = w.api.get(CONFIG)["data"]["config.yaml"]
    bad = {"version": "v1", "sharing": {"timeSlicing": {"resources": [
        {"name": GPU, "replicas": 2, "devices": ["GPU-UUID"]}]}}}
    w.api.patch(CONFIG, {"data": {"config.yaml": json.dumps(bad)}})
    event = wait("an event about the device", lambda: [e for e in w.events("ConfigRefused") if "GPU-UUID" in e["message"]], 120)
    same("what the node offers", w.allocatable(), {GPU: 1})
    w.api.patch(CONFIG, {"data": {"config.yaml": good}})
    w.overlay = None
    return event[0]["message"]
