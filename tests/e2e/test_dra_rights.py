# SPDX-License-Identifier: Apache-2.0
"""The agent's rights beside what it does with them: last, so that the API server's audit log has seen everything."""
import json

from dra_world import begin, check, claims_gone, devices, pod, same, share, wait
from world import test

ACCOUNT = "system:serviceaccount:sluice-system:sluiced"
ROLES = "/apis/rbac.authorization.k8s.io/v1/clusterroles/"
# Asked by the API server of itself when status.devices is written: dra.13 takes it away and looks.
SILENT = {("associated-node:patch", "resource.k8s.io/resourceclaims/driver")}
# Slices are deleted when a node has fewer than before: fewer cards, or another number of MIG profiles.
RARE = {("delete", "resource.k8s.io/resourceslices")}


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
    more = sorted(set(done) - rights_given)
    check(not more, f"tried without a right to: {more}")
    return f"{len(rights_given)} rights, {sum(done.values())} calls"
