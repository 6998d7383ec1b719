# SPDX-License-Identifier: Apache-2.0
"""Shares, whole cards and MIG instances by resource claims, placed by the stock scheduler."""
from world import bare, check, cuda_uuids, same, test, wait

TEMPLATES = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaimtemplates"
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
SLICES = "/apis/resource.k8s.io/v1/resourceslices"


def template(w, name, device_class="gpu.sluice.io", capacity=None, expression=None):
    exactly = {"deviceClassName": device_class}
    if capacity:
        exactly["capacity"] = {"requests": capacity}
    if expression:
        exactly["selectors"] = [{"cel": {"expression": expression}}]
    w.api.create(TEMPLATES, {
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": {"name": name},
        "spec": {"spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}}})


def begin(w):
    """The overlay, once."""
    if w.overlay == "dra":
        return
    w.clean()
    w.apply("dra")
    w.agent()
    template(w, "gpu-10g-30", capacity={"memory": "10Gi", "cores": "30"})
    template(w, "gpu-20g-50", capacity={"memory": "20Gi", "cores": "50"})
    template(w, "mig-1g", "mig.gpu.sluice.io",
             expression='device.attributes["gpu.sluice.io"].profile == "1g.18gb"')
    wait("slices of the driver", lambda: devices(w), 30)


def devices(w):
    return [d for s in w.api.get(SLICES)["items"] if s["spec"]["driver"] == "gpu.sluice.io"
            for d in s["spec"].get("devices", [])]


def held_to(w, pod, mib):
    """By CUDA's own account and by trying."""
    view = w.sees(pod, "fill")
    same(f"CUDA's devices in {pod}", cuda_uuids(view), [bare(w.cards[0])])
    same(f"total memory in {pod}", view["cuda"][0]["mib"], mib)
    same(f"the error at the limit in {pod}", view["fill_error"], 2)
    check(mib - 1024 <= view["filled_mib"] <= mib, f"{pod} could allocate {view['filled_mib']} of {mib} MiB")
    return view["filled_mib"]


@test("dra.two_shares_on_one_card")
def shares(w):
    begin(w)
    w.pod("small", claims={"gpu": "gpu-10g-30"}, command=("sleep", "1000"))
    w.pod("large", claims={"gpu": "gpu-20g-50"}, command=("sleep", "1000"))
    w.wait_running("small", "large")
    small, large = held_to(w, "small", 10240), held_to(w, "large", 20480)
    return f"{small} of 10240 and {large} of 20480 MiB allocated, the rest contexts"


@test("dra.limits_cannot_be_changed_from_inside")
def inside(w):
    begin(w)
    if w.api.get("/api/v1/namespaces/default/pods/small") is None:
        w.pod("small", claims={"gpu": "gpu-10g-30"}, command=("sleep", "1000"))
    w.wait_running("small")
    for command in ("echo > /etc/ld.so.preload", "rm -f /etc/ld.so.preload", "umount /etc/ld.so.preload",
                    "echo x > /usr/local/sluice/lib/libsluice.so", "touch /run/sluice/x"):
        done = w.cluster.kubectl("exec", "small", "--", "sh", "-c", command, check=False)
        check(done.returncode != 0, f"root in the pod may do this: {command}")
    held_to(w, "small", 10240)


@test("dra.no_place_is_found_until_there_is_one")
def full(w):
    begin(w)
    w.delete(*[n for n in ("small", "large") if w.api.get("/api/v1/namespaces/default/pods/" + n)])
    for name in ("first", "second", "third"):
        w.pod(name, claims={"gpu": "gpu-10g-30"})
    w.wait_running("first", "second", "third")
    w.pod("fourth", claims={"gpu": "gpu-10g-30"})
    wait("the fourth share of 30 to be found no place", lambda: w.waiting("fourth"))
    w.delete("second")
    w.wait_running("fourth")
    w.delete("first", "third", "fourth")
    wait("the claims to be gone", lambda: not w.api.get(CLAIMS)["items"], 60)


@test("dra.whole_card_by_extended_resource")
def whole(w):
    begin(w)
    w.pod("whole", "nvidia.com/gpu")
    w.wait_running("whole")
    view = w.sees("whole")
    same("CUDA's devices", cuda_uuids(view), [bare(w.cards[0])])
    same("its memory", view["cuda"][0]["mib"], 143771)
    w.pod("share", claims={"gpu": "gpu-10g-30"})
    wait("a share of a card that is taken to be found no place", lambda: w.waiting("share"))
    w.delete("whole")
    w.wait_running("share")
    w.delete("share")


@test("dra.mig_instance_made_and_destroyed")
def mig(w):
    begin(w)
    w.pod("mig", claims={"gpu": "mig-1g"})
    w.wait_running("mig")
    view = w.sees("mig")
    same("CUDA's devices", [d["name"] for d in view["cuda"]], ["NVIDIA H200 MIG 1g.18gb"])
    check("1g.18gb" in w.sim("list"), "the node has no such instance")
    w.delete("mig")
    wait("the instance to be destroyed", lambda: "1g.18gb" not in w.sim("list"), 30)


@test("dra.agent_killed_under_a_share")
def killed(w):
    begin(w)
    w.pod("steady", claims={"gpu": "gpu-10g-30"})
    w.wait_running("steady")
    before = w.container("steady")
    w.kill_agent()
    wait("the agent's next process", w.agent_pid)
    w.agent()
    wait("slices of the driver", lambda: devices(w), 30)
    w.pod("later", claims={"gpu": "gpu-20g-50"}, command=("sleep", "1000"))
    w.wait_running("later")
    held_to(w, "later", 20480)
    same("the pod's container", w.container("steady"), before)
    beats = wait("the pod's output", lambda: w.beats("steady"))
    wait("the pod to go on using its GPU", lambda: w.beats("steady") > beats + 1, 30, every=0.5)
    w.delete("steady", "later")
