# SPDX-License-Identifier: Apache-2.0
"""Shares by the MPS daemon and by time-slicing, where a claim asks for them."""
import json

from dra_world import (begin, check, claim_of, claims_gone, environment, pod, pod_events, same, share, tenants, wait)
from world import test


@test("dra.strategy_mps")
def mps(w):
    begin(w, "dra-mps", components=("mps",))
    pod(w, "client", share(w, "10Gi", "30", allowed=True, strategy="mps"))
    pod(w, "other", share(w, "20Gi", "50", allowed=True, strategy="mps"))
    w.wait_running("client", "other")
    for name, mib, percent in (("client", 10240, "30"), ("other", 20480, "50")):
        env = environment(w, name)
        same(f"MPS in {name}", (env.get("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"), env.get("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT")),
             (percent, f"0={mib}M"))
        check(env.get("CUDA_MPS_PIPE_DIRECTORY", "").startswith("/"), f"no pipe directory: {env}")
        view = json.loads(w.exec(name, "gpus", "fill"))
        same(f"the error at the limit in {name}", view["fill_error"], 2)
        check(mib - 1024 <= view["filled_mib"] <= mib, f"{name} could allocate {view['filled_mib']} of {mib} MiB")
    same("tenants of the arbiter", tenants(w), {})
    status = wait("the claim's status", lambda: claim_of(w, "client")["status"].get("devices"), 20)
    same("its strategy there", status[0]["data"]["strategy"], "mps")
    failed = pod_events(w, "client", "SluicePrepareFailed")
    check(not failed, f"the daemon's start is told as a failure: {[e['message'] for e in failed]}")
    # Another strategy on the same card is refused, with words.
    pod(w, "mixed", share(w, "5Gi", "10"))
    event = wait("an event on the pod", lambda: pod_events(w, "mixed", "SluicePrepareFailed"), 30)[0]["message"]
    check("strategy" in event and "mps" in event, event)
    w.delete("client", "other", "mixed")
    claims_gone(w)
    # The card is everybody's again.
    pod(w, "after", share(w))
    w.wait_running("after")
    w.delete("after")
    claims_gone(w)
    return f"refused beside it: \"{event}\""


@test("dra.strategy_mps_after_the_agent_is_killed")
def mps_killed(w):
    """The agent's container lives on, and the daemon with it: clients notice nothing, the next agent adopts it."""
    begin(w, "dra-mps", components=("mps",))
    pod(w, "client", share(w, "10Gi", "30", allowed=True, strategy="mps"), command=("gpus", "hold"), restartPolicy="Always")
    w.wait_running("client")
    restarts = w.container("client")[1]
    w.kill_agent()
    wait("the agent's next process", w.agent_pid)
    w.agent()
    beats = w.beats("client")
    wait("the pod to go on using its GPU", lambda: w.beats("client") > beats + 2, 30, every=0.5)
    same("restarts of the client", w.container("client")[1], restarts)
    pod(w, "later", share(w, "20Gi", "50", allowed=True, strategy="mps"))
    w.wait_running("later")
    view = json.loads(w.exec("later", "gpus", "fill"))
    check(20480 - 1024 <= view["filled_mib"] <= 20480, f"{view['filled_mib']} of 20480 MiB")
    w.delete("client", "later")
    claims_gone(w)


@test("dra.strategy_time_slicing")
def slicing(w):
    begin(w)
    pod(w, "sliced", share(w, "10Gi", "30", allowed=True, strategy="timeSlicing"))
    w.wait_running("sliced")
    view = w.sees("sliced")
    same("its memory: nothing is enforced", view["cuda"][0]["mib"], 143771)
    same("tenants of the arbiter", tenants(w), {})
    w.delete("sliced")
    claims_gone(w)
