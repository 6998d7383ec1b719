# SPDX-License-Identifier: Apache-2.0
"""A node with four GPUs: run.py --gpus h200x4 --only 'four*'."""
from dra_world import (begin, bare_uuids, check, claim_of, claims_gone, container, devices, fills, nothing_left, pod,
                       request, results, same, share, template, tenant_of, wait)
from world import cards, test


def card_of(w, name, claim="gpu"):
    return [r["device"].split("-")[1] for r in results(claim_of(w, name, claim))]


@test("four.slices_of_every_card")
@cards(4)
def published(w):
    begin(w)
    names = [d["name"] for d in devices(w)]
    for i in range(4):
        check({f"gpu-{i}", f"gpu-{i}-share", f"gpu-{i}-mig-1g18gb-0"} <= set(names), f"devices {names}")
    same("cards in the slices", len({d["attributes"]["uuid"]["string"] for d in devices(w) if d["name"].endswith("share")}), 4)
    return f"{len(names)} devices"


@test("four.shares_fill_the_first_card_whole_cards_come_from_the_other_end")
@cards(4)
def packed(w):
    begin(w)
    for i in range(4):
        pod(w, f"share-{i}", share(w, "10Gi", "30"))
        w.wait_running(f"share-{i}")
    w.pod("whole", "nvidia.com/gpu", command=("sleep", "1000"))
    w.wait_running("whole")
    same("cards of the shares", [card_of(w, f"share-{i}") for i in range(4)], [["0"], ["0"], ["0"], ["1"]])
    same("the whole card", bare_uuids(w.sees("whole")), bare_uuids({"cuda": [{"uuid": w.cards[3].split("-", 1)[1]}]}))
    for i in range(4):
        fills(w, f"share-{i}", 10240)
        same("the card in the pod", bare_uuids(w.sees(f"share-{i}")), [w.cards[0 if i < 3 else 1].split("-", 1)[1]])
    w.delete("whole", *(f"share-{i}" for i in range(4)))
    claims_gone(w)
    nothing_left(w)


@test("four.one_claim_on_two_cards")
@cards(4)
def two(w):
    begin(w)
    template(w, "pair", request(memory="8Gi", cores="40", count=2))
    w.pod("pair", resourceClaims=[{"name": "gpus", "resourceClaimTemplateName": "pair"}],
          containers=[container("main", {"name": "gpus"})])
    w.wait_running("pair")
    view = w.sees("pair")
    same("cards in the pod", len(set(bare_uuids(view))), 2)
    same("memory of each", [d["mib"] for d in view["cuda"]], [8192, 8192])
    same("GPUs of its tenant", len(tenant_of(w, "pair")["gpus"]), 2)
    w.delete("pair")
    claims_gone(w)
    nothing_left(w)


@test("four.mig_share_and_whole_side_by_side")
@cards(4)
def mixed(w):
    begin(w)
    template(w, "mig-3g", request(device_class="mig.gpu.sluice.io",
                                  expression='device.attributes["gpu.sluice.io"].profile == "3g.71gb"'))
    pod(w, "share", share(w, "100Gi", "80"))
    w.wait_running("share")
    for i in range(2):
        pod(w, f"mig-{i}", "mig-3g")
    w.pod("whole", {"nvidia.com/gpu": 2}, command=("sleep", "1000"))
    w.wait_running("mig-0", "mig-1", "whole")
    same("cards of the MIG instances", [card_of(w, f"mig-{i}") for i in range(2)], [["1"], ["1"]])
    same("whole cards", sorted(bare_uuids(w.sees("whole"))), sorted(u.split("-", 1)[1] for u in w.cards[2:]))
    pod(w, "late", share(w, "100Gi", "80"))
    wait("no place for another", lambda: w.waiting("late"))
    w.delete("mig-0", "mig-1")
    w.wait_running("late")
    fills(w, "late", 102400)
    w.delete("share", "whole", "late")
    claims_gone(w)
    nothing_left(w)


@test("four.one_card_lost_evicts_its_pods_only")
@cards(4)
def lost(w):
    begin(w)
    for i in range(2):
        pod(w, f"on-{i}", share(w, "10Gi", "80"))
        w.wait_running(f"on-{i}")
    same("their cards", [card_of(w, f"on-{i}") for i in range(2)], [["0"], ["1"]])
    w.sim("lost", "0")
    try:
        wait("the pod on the lost card to be evicted", lambda: w.api.get("/api/v1/namespaces/default/pods/on-0") is None, 60)
        check(w.get_pod("on-1")["status"]["phase"] == "Running", w.why("on-1"))
        pod(w, "again", share(w, "10Gi", "80"))
        w.wait_running("again")
        same("the next one's card", card_of(w, "again"), ["2"])
        fills(w, "on-1", 10240)
    finally:
        w.sim("back", "0")
    w.delete("on-1", "again")
    claims_gone(w)
