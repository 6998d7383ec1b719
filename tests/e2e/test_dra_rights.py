# SPDX-License-Identifier: Apache-2.0
"""The agent's rights beside what it does with them: last, so that the API server's audit log has seen everything."""
import json
import time

from cluster import Failed
from dra_world import (AGENTS, PODS, agent_gone, begin, check, claims_gone, deploy, devices, fills, pod, ready, same,
                       share, wait)
from world import test

ACCOUNT = "system:serviceaccount:sluice-system:sluiced"
ROLES = "/apis/rbac.authorization.k8s.io/v1/clusterroles/"
# Asked by the API server of itself when status.devices is written: dra.13 takes it away and looks.
SILENT = {("associated-node:patch", "resource.k8s.io/resourceclaims/driver"),
          ("associated-node:update", "resource.k8s.io/resourceclaims/driver")}
# Slices are deleted when a node has fewer than before: fewer cards, or another number of MIG profiles.
# Events are patched when the same thing is said again: their count goes up.
RARE = {("delete", "resource.k8s.io/resourceslices"), ("patch", "/events")}
# By a component's own role, which was there for labels.by_a_node_feature alone.
COMPONENTS = {(verb, "nfd.k8s-sigs.io/nodefeatures") for verb in ("create", "patch", "delete")}


def granted(w):
    rights = set()
    for role in ("sluiced", "sluice-dra"):
        for rule in w.api.get(ROLES + role)["rules"]:
            rights |= {(verb, f"{group}/{what}") for verb in rule["verbs"] for group in rule["apiGroups"]
                       for what in rule["resources"]}
    return rights


def used(w):
    """{(verb, group/resource): how often}, and what was refused."""
    done, refused = {}, set()
    with open(w.cluster.audit_log, encoding="utf-8") as f:
        for line in f:
            event = json.loads(line)
            what = event.get("objectRef")
            if event["user"]["username"] != ACCOUNT or not what or "resource" not in what:
                continue
            if not event.get("userAgent", "").startswith("sluice/"):
                continue  # a test that borrows the agent's token
            name = f"{what.get('apiGroup', '')}/{what['resource']}"
            if what.get("subresource"):
                name += "/" + what["subresource"]
            right = (event["verb"], name)
            done[right] = done.get(right, 0) + 1
            if event.get("responseStatus", {}).get("code") == 403:
                refused.add(right)
    return done, refused


@test("dra.rights_are_what_is_used")
def rights(w):
    begin(w)
    before = [s["name"] for s in devices(w)]
    pod(w, "user", share(w))
    w.wait_running("user")
    # An update of slices: a card falls ill.
    w.sim("xid", "0", "99")
    wait("a taint", lambda: any(d.get("taints") for d in devices(w)), 30)
    w.delete("user")
    claims_gone(w)
    w.kill_agent()  # its successor knows nothing of the XID
    wait("the taint to be gone", lambda: not any(d.get("taints") for d in devices(w)), 60)
    same("devices", [s["name"] for s in devices(w)], before)
    done, _ = used(w)
    rights_given = granted(w)
    spare = sorted(rights_given - set(done) - SILENT - RARE)
    check(not spare, f"rights that nothing used: {spare}; used: {sorted(done)}")
    more = sorted(set(done) - rights_given - COMPONENTS)
    check(not more, f"tried without a right to: {more}")
    return f"{len(rights_given)} rights, {sum(done.values())} calls"


def without(path):
    """A change of the DaemonSet: this mount is not there."""
    return {"spec": {"template": {"spec": {"containers": [
        {"name": "sluiced", "volumeMounts": [{"mountPath": path, "$patch": "delete"}]}]}}}}


def trouble(w, changes):
    """What does not work on a node whose agent is changed so; "" if all does."""
    agent_gone(w)
    deploy(w, "dra-less", changes=changes)
    end = time.monotonic() + 15
    pods = []
    while time.monotonic() < end and not any(ready(p) for p in pods):
        pods = w.api.get(AGENTS)["items"]
        time.sleep(0.3)
    if not any(ready(p) for p in pods):
        return "the agent is not ready: " + (w.agent_words().splitlines() or ["it says nothing"])[-1]
    pod(w, "user", share(w))
    try:
        w.wait_running("user", seconds=12)
        fills(w, "user", 10240)
    except Failed as e:
        return str(e)
    return ""


@test("dra.what_the_agent_has_of_the_node_is_needed")
def needed(w):
    """Capabilities are not among these: a simulated driver asks for none."""
    begin(w)
    notes = []
    for what, changes in (("hostPID", {"spec": {"template": {"spec": {"hostPID": False}}}}),
                          *((path, without(path)) for path in (
                              "/var/run/cdi", "/driver-root", "/var/lib/kubelet/plugins",
                              "/var/lib/kubelet/plugins_registry", "/var/lib/sluice", "/run/sluice"))):
        said = trouble(w, changes)
        w.delete(*(p["metadata"]["name"] for p in w.api.get(PODS)["items"] if p["status"]["phase"] == "Pending"
                   and not p["spec"].get("nodeName")))
        agent_gone(w)
        deploy(w, "dra")
        w.agent()
        w.clean()
        claims_gone(w)
        check(said, f"without {what} everything works")
        notes.append(f"{what}: {said[:90]}")
    return "; ".join(notes)
