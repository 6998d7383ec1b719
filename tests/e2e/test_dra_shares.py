# SPDX-License-Identifier: Apache-2.0
"""Shares in pods: what they get, what they cannot do, and what can be seen and changed of them from outside."""
import json
import os
import re
import sys
import threading
import time

import images
import restarts
from dra_world import (CLAIMS, PODS, STATUS, begin, check, claim_of, claims_gone, environment, fills, pod, pod_events,
                       same, share, tenant_of, tenants, wait)
from world import test

sys.path.insert(0, os.path.join(images.TOP, "tests", "support"))
from control import Control  # noqa: E402

GIB = 1 << 30


def run_together(w, *jobs):
    """kubectl exec of (pod, command…) at the same time; what each printed."""
    out = [None] * len(jobs)

    def run(i, name, command):
        out[i] = w.cluster.kubectl("exec", name, "--", *command, check=False)

    threads = [threading.Thread(target=run, args=(i, name, command)) for i, (name, *command) in enumerate(jobs)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for job, done in zip(jobs, out):
        check(done.returncode == 0, f"{' '.join(job)}: {done.stdout} {done.stderr}")
    return [done.stdout for done in out]


def got(text):
    """Per cent of the GPU's time, by what the tenant itself counted."""
    line = json.loads(text.strip().splitlines()[-1])
    return 100 * line["done_ns"] / line["elapsed_ns"]


def busy(seconds, kernel_us=1000):
    return ("compute_tenant", "steady", f"seconds={seconds}", f"kernel_us={kernel_us}")


MARGIN = 4


def shares(w, seconds, **bounds):
    """What pods got of the time (%) that are busy at once. bounds: pod=(least, most); at least so much of what the machine
    had to give in those moments (control.py), at most so much whatever happens."""
    with Control() as control:
        percents = dict(zip(bounds, (got(text) for text in run_together(w, *((name, *busy(seconds)) for name in bounds)))))
    words = " and ".join(f"{n} got {p:.1f} %" for n, p in percents.items()) + f" of the time, control {control.part:.2f}"
    for name, (least, most) in bounds.items():
        check(least * control.part - MARGIN <= percents[name] <= most + MARGIN, f"{words}: {name} should have {least} to {most}")
    return list(percents.values())


def pair(w):
    """Two tenants of one card: the one before may have left them."""
    begin(w)
    for name, memory, percent in (("small", "10Gi", "30"), ("large", "20Gi", "50")):
        if w.api.get(f"{PODS}/{name}") is None:
            pod(w, name, share(w, memory, percent, allowed=True))  # to be resized, one of them
    w.wait_running("small", "large")


def nobody(w):
    """Nobody on the card."""
    begin(w)
    w.delete(*(p["metadata"]["name"] for p in w.api.get(PODS)["items"]))
    claims_gone(w)


@test("dra.shares_of_memory_and_time_at_once")
def both(w):
    pair(w)
    small, large = shares(w, 20, small=(30, 30), large=(50, 50))
    filled = run_together(w, ("small", "gpus", "fill"), ("large", "gpus", "fill"))
    for name, text, mib in (("small", filled[0], 10240), ("large", filled[1], 20480)):
        view = json.loads(text)
        same(f"MiB allocated in {name} beside its context's 500, and the error then",
             (view["filled_mib"], view["fill_error"]), (mib - 500, 2))
    return f"10Gi and 20Gi exactly; {small:.1f} % and {large:.1f} % of the time"


@test("dra.limits_hold_against_root_in_the_container")
def inside(w):
    pair(w)
    uid = claim_of(w, "large")["metadata"]["uid"]
    sockets = ["/run/sluice/arbiter.sock", "/run/sluice/../arbiter.sock", f"/run/sluice/../k/{uid}-0/attach.sock",
               f"/run/sluice/k/{uid}-0/attach.sock", "/proc/1/root/run/sluice/arbiter.sock",
               "/var/lib/kubelet/pod-resources/kubelet.sock"]
    said = w.exec("small", "intruder", *sockets).splitlines()
    check(not [s for s in said if s.startswith("LET")], "root in the pod may do this: " + "; ".join(said))
    for command in ("echo > /etc/ld.so.preload", "rm -f /etc/ld.so.preload", "umount /etc/ld.so.preload",
                    "mount -o remount,rw,bind /etc/ld.so.preload", "mount --bind /dev/null /etc/ld.so.preload",
                    "echo x > /usr/local/sluice/lib/libsluice.so", "chmod 000 /usr/local/sluice/lib/libsluice.so",
                    "touch /run/sluice/x", "rm -f /run/sluice/attach.sock", "umount /run/sluice",
                    "mount -t tmpfs none /run/sluice", "ls /run/sluice/..//k", "kill -9 -1 && false"):
        done = w.cluster.kubectl("exec", "small", "--", "sh", "-c", command, check=False)
        check(done.returncode != 0, f"root in the pod may do this: {command}")
    # The variables a program may set for itself change nothing.
    machine = [f"{k}={v}" for k, v in environment(w, "small").items() if k.startswith("SLUICE_SIM")]
    for words in (("-u", "LD_PRELOAD"), ("LD_PRELOAD=",), ("SLUICE_ATTACH=/nowhere",), ("SLUICE_ATTACH=",),
                  ("SLUICE_DIR=/tmp",), ("SLUICE_MEMORY=100Gi",), ("-i", "PATH=/usr/bin", *machine)):
        done = w.cluster.kubectl("exec", "small", "--", "env", *words, "gpus", "fill", check=False)
        view = json.loads(done.stdout) if done.returncode == 0 and done.stdout.startswith("{") else {}
        filled = view.get("filled_mib", 0)
        check(filled <= 10240 - 500, f"with env {' '.join(words)} it could have {filled} MiB")
    fills(w, "small", 10240)
    fills(w, "large", 20480)
    other = {t["about"]["pod"]: t["gpus"][0]["memory_limit_bytes"] for t in tenants(w).values()}
    same("the limits afterwards", other, {"small": 10 * GIB, "large": 20 * GIB})
    return said[-1]


@test("dra.seen_on_the_node_and_in_metrics")
def seen(w):
    pair(w)
    wait("the container's name in sluice status",
         lambda: tenant_of(w, "small")["about"].get("container") == "main", 20, every=0.5)
    about = tenant_of(w, "small")["about"]
    same("whose the tenant is", (about["namespace"], about["pod"], about["claim"], about["container"]),
         ("default", "small", claim_of(w, "small")["metadata"]["name"], "main"))
    text = w.cluster.kubectl(*STATUS, "status")
    for words in ("default/small/main", "default/large/main", "10.0 GiB", "20.0 GiB"):
        check(words in text, f"{words} is not in sluice status:\n{text}")

    def families():
        found = {}
        for name, labels, value in re.findall(r"^(sluice_tenant_\w+)\{(.*)\} (\S+)$", w.agent_get("/metrics"), re.M):
            labels = dict(re.findall(r'(\w+)="([^"]*)"', labels))
            if labels.get("pod") == "small" and labels.get("container") == "main":
                same("the claim in " + name, labels.get("claim"), about["claim"])
                found[name] = float(value)
        return found
    wait("metrics of the pod", families, 20, every=1)
    with_load = {}

    def load():
        time.sleep(3)
        with_load.update(families())
    fills(w, "small", 10240)  # refused at the end
    looker = threading.Thread(target=load)
    looker.start()
    run_together(w, ("small", *busy(6)))
    looker.join()
    metrics = families()
    same("the limit", metrics["sluice_tenant_memory_limit_bytes"], 10 * GIB)
    check(with_load.get("sluice_tenant_share_ratio", 0) > 0.2, f"the share got: {with_load}")
    check(metrics["sluice_tenant_oom_total"] >= 1, f"its failed allocations are not counted: {metrics}")
    check(metrics["sluice_tenant_waited_seconds_total"] > 0, f"its waiting is not counted: {metrics}")
    return ", ".join(sorted(n.removeprefix("sluice_tenant_") for n in metrics))


@test("dra.resized_while_the_pod_runs")
def resized(w):
    pair(w)
    claim = claim_of(w, "small")["metadata"]["name"]
    untouched = w.container("small")

    def annotate(text):
        w.api.patch(f"{CLAIMS}/{claim}", {"metadata": {"annotations": {"gpu.sluice.io/resize": text}}})

    def condition():
        return {c["type"]: (c["status"], c["message"]) for d in claim_of(w, "small")["status"].get("devices", [])
                for c in d["conditions"]}.get("Resized", ("", ""))
    annotate("memory=12Gi,cores=40")
    wait("the share to be larger", lambda: condition()[0] == "True", 20)
    fills(w, "small", 12288)
    tenant = tenant_of(w, "small")
    same("its cores", (tenant["cores_request_percent"], tenant["cores_limit_percent"]), (40, 40))
    annotate("memory=130Gi")
    wait("what does not fit to be refused", lambda: condition()[0] == "False", 20)
    words = condition()[1]
    fills(w, "small", 12288)
    annotate(None)
    wait("the share to be as it was", lambda: condition()[0] == "True", 20)
    fills(w, "small", 10240)
    # The same on the node.
    w.cluster.kubectl(*STATUS, "set", tenant["name"], "--memory", "11Gi", "--cores", "35")
    fills(w, "small", 11264)
    done = w.cluster.kubectl(*STATUS, "set", tenant["name"], "--memory", "130Gi", check=False)
    check(done.returncode != 0, "sluice set gave more than there is")
    shares(w, 12, small=(35, 35))
    same("the container", w.container("small"), untouched)
    check(pod_events(w, "small", "SluiceResized") and pod_events(w, "small", "SluiceResizeFailed"),
          "the pod has no events of it")
    w.delete("small", "large")
    claims_gone(w)
    return f"refused: \"{words}\""


@test("dra.bursting_and_priority")
def burst(w):
    nobody(w)
    pod(w, "burst", share(w, "10Gi", "30", cores={"limit": 100}))
    pod(w, "firm", share(w, "20Gi", "50"))
    w.wait_running("burst", "firm")
    tenant = tenant_of(w, "burst")
    same("its cores", (tenant["cores_request_percent"], tenant["cores_limit_percent"]), (30, 100))
    alone, = shares(w, 10, burst=(90, 100))
    beside, firm = shares(w, 20, burst=(30, 100), firm=(50, 50))
    note = f"alone {alone:.0f} %; beside a busy 50: {beside:.0f} % and {firm:.0f} %"
    w.delete("burst", "firm")
    claims_gone(w)
    pod(w, "first", share(w, "10Gi", "20", allowed=True, priority="high", cores={"limit": 100}))
    pod(w, "last", share(w, "10Gi", "20", priority="low", cores={"limit": 100}))
    w.wait_running("first", "last")
    same("priorities", [tenant_of(w, n)["priority"] for n in ("first", "last")], ["high", "low"])
    high, low = shares(w, 15, first=(20, 100), last=(0, 100))
    check(high > low + 10, f"high got {high:.1f} %, low in the same moments {low:.1f} %")
    note += f"; high and low of 20 each: {high:.0f} % and {low:.0f} %"
    w.delete("first", "last")
    claims_gone(w)
    return note


@test("dra.what_claims_may_not_ask_for")
def not_allowed(w):
    nobody(w)
    notes = []
    for name, config, words in (("high", {"priority": "high"}, ("priority high", "normal at most")),
                                ("sliced", {"strategy": "timeSlicing"}, ("strategy timeSlicing", "may not"))):
        pod(w, name, share(w, "10Gi", "30", **config))
        events = wait(f"an event on {name}", lambda n=name: pod_events(w, n, "SluiceNotAllowed"), 40)
        check(all(x in events[0]["message"] for x in words), f"{name}: {events[0]['message']}")
        check(w.get_pod(name)["status"]["phase"] == "Pending", w.why(name))
        notes.append(events[0]["message"])
        w.delete(name)
    pod(w, "plain", share(w, "10Gi", "30"))
    w.wait_running("plain")
    claim = claim_of(w, "plain")["metadata"]["name"]
    w.api.patch(f"{CLAIMS}/{claim}", {"metadata": {"annotations": {"gpu.sluice.io/resize": "memory=12Gi"}}})
    event = wait("an event on plain", lambda: pod_events(w, "plain", "SluiceResizeFailed"), 40)[0]["message"]
    check("the amount that was allocated" in event, event)
    fills(w, "plain", 10240)
    w.delete("plain")
    claims_gone(w)
    return f"\"{notes[0]}\""


@test("dra.wrong_share_config_is_told_on_the_pod")
def wrong(w):
    nobody(w)
    notes = []
    for name, config, words in (("wrong-priority", {"priority": "highest"}, ("priority", "high")),
                                ("wrong-limit", {"cores": {"limit": 10}}, ("cores.limit", "30")),
                                ("wrong-key", {"memory": "10Gi"}, ("memory",)),
                                ("wrong-strategy", {"strategy": "vgpu"}, ("strategy", "libsluice"))):
        pod(w, name, share(w, "10Gi", "30", **config))
        events = wait(f"an event on {name}", lambda n=name: pod_events(w, n, "SluiceConfigInvalid"), 40)
        check(all(x in events[0]["message"] for x in words), f"{name}: {events[0]['message']}")
        check(w.get_pod(name)["status"]["phase"] == "Pending", w.why(name))
        notes.append(events[0]["message"])
        w.delete(name)
    claims_gone(w)
    return f"\"{notes[0]}\""


@test("dra.memory_alone_takes_the_idle_time")
def memory_alone(w):
    """Two claims that name memory only share a card; a HAMi pod with gpumem alone has the same."""
    nobody(w)
    only = share(w, "10Gi", None)
    for name in ("first", "second"):
        pod(w, name, only)
    w.wait_running("first", "second")
    for name in ("first", "second"):
        tenant = tenant_of(w, name)
        same(f"time of {name}", (tenant["cores_request_percent"], tenant["cores_limit_percent"]), (1, 100))
        same(f"memory in {name}", [d["mib"] for d in w.sees(name)["cuda"]], [10240])
    w.delete("first", "second")
    claims_gone(w)


@test("dra.two_claims_of_one_container_are_refused")
def two_claims(w):
    """A container is one tenant: it would be held to one of the two, and charged for both."""
    nobody(w)
    ten, twenty = share(w), share(w, "20Gi", "50")
    w.pod("two", claims={"a": ten, "b": twenty}, command=("sleep", "1000"))
    events = wait("an event on two", lambda: pod_events(w, "two", "SluiceConfigInvalid"), 40)
    check("container main uses shares of two claims" in events[0]["message"], events[0]["message"])
    check(w.get_pod("two")["status"]["phase"] == "Pending", w.why("two"))
    w.delete("two")
    claims_gone(w)
    return f"\"{events[0]['message']}\""


def pods_of_sample(w, name):
    """The sample as it is in deploy/samples, with the tests' image for NVIDIA's."""
    with open(os.path.join(images.TOP, "deploy", "samples", name + ".yaml"), encoding="utf-8") as f:
        text = re.sub(r"image: nvidia/\S+", f"image: {images.TEST}\n      imagePullPolicy: Never", f.read())
    text = text.replace("[sleep, infinity]", '[sleep, "1000"]')
    for document in text.split("\n---\n"):  # one pod, then the next
        w.cluster.kubectl("apply", "-f", "-", stdin=document)
        w.wait_placed()
    return re.findall(r"^kind: Pod\nmetadata:\n  name: (\S+)", text, re.M), text


@test("dra.samples_run_as_they_are")
def samples(w):
    nobody(w)
    for name in ("fraction", "burst", "two-containers", "mig", "whole"):
        names, text = pods_of_sample(w, name)
        check(names, f"no pods in {name}.yaml")
        for p in names:
            wait(lambda p=p: w.why(p), lambda p=p: w.get_pod(p)["status"]["phase"] in ("Running", "Succeeded"), 60)
        w.cluster.kubectl("delete", "-f", "-", "--grace-period=1", "--wait=false", stdin=text)
        for p in names:
            wait(f"pod {p} to be gone", lambda p=p: w.api.get(f"{PODS}/{p}") is None, 60)
        claims_gone(w)


@test("dra.restarts_refuse_nothing")
def restarts_refuse_nothing(w):
    """With surge: the next agent is there before the old one and its arbiter go."""
    nobody(w)
    pod(w, "churn", share(w, f"{restarts.LIMIT_MIB}Mi", "50"), command=restarts.COMMAND)
    w.wait_running("churn")
    words = restarts.refuse_nothing(w, "churn", agents=2, kills=5)
    w.delete("churn")
    claims_gone(w)
    return words
