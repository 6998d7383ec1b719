# SPDX-License-Identifier: Apache-2.0
"""What the tests of resource claims say: overlays with changes, claims, tenants, the agent with fault points."""
import json
import os
import re
import subprocess

import images
from world import PODS, check, ready, same, wait

DRIVER = "gpu.sluice.io"
RESOURCE = "/apis/resource.k8s.io/v1"
SPACE = RESOURCE + "/namespaces/default"
TEMPLATES = SPACE + "/resourceclaimtemplates"
CLAIMS = SPACE + "/resourceclaims"
SLICES = RESOURCE + "/resourceslices"
DAEMONSET = "/apis/apps/v1/namespaces/sluice-system/daemonsets/sluiced"
AGENTS = "/api/v1/namespaces/sluice-system/pods"
FAULT_FILE = "/var/lib/sluice/fault"
STATUS = ("-n", "sluice-system", "exec", "daemonset/sluiced", "-c", "sluiced", "--", "sluice")


# ---- the agent

def deploy(w, name, components=(), changes=None, tag=None):
    """deploy/overlays/dra with the simulated driver under it, as `name`; `changes` are merged into the DaemonSet."""
    folder = os.path.join(w.cluster.work, "overlay-" + name)
    os.makedirs(folder, exist_ok=True)
    top = os.path.relpath(images.TOP, folder)
    kustomization = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization",
        "resources": [f"{top}/deploy/overlays/dra"],
        "components": [f"{top}/tests/e2e/sim"] + [f"{top}/deploy/components/{c}" for c in components]}
    if changes:
        kustomization["patches"] = [{
            "target": {"kind": "DaemonSet", "name": "sluiced"},
            "patch": json.dumps({"apiVersion": "apps/v1", "kind": "DaemonSet",
                                 "metadata": {"name": "sluiced"}, **changes})}]
    if tag:
        kustomization["images"] = [{"name": "localhost/sluice", "newTag": tag}]
    with open(os.path.join(folder, "kustomization.yaml"), "w", encoding="utf-8") as f:
        json.dump(kustomization, f)
    w.cluster.kubectl("apply", "-k", folder)
    w.overlay = name


def begin(w, name="dra", **how):
    """A node with nothing on it and this overlay; quick when it is there already."""
    if w.overlay != name:
        w.clean()
        deploy(w, name, **how)
    w.agent()
    wait("slices of the driver", lambda: devices(w), 30)


def agent_env(**variables):
    """A change of the DaemonSet for deploy()."""
    return {"spec": {"template": {"spec": {"containers": [
        {"name": "sluiced", "env": [{"name": k, "value": v} for k, v in variables.items()]}]}}}}


def faults_image(w):
    """The agent with its fault points; its tag."""
    stage = os.path.join(w.cluster.work, "faults")
    if not os.path.isdir(stage):
        os.makedirs(stage + "/bin")
        os.makedirs(stage + "/lib")
        os.symlink(os.path.join(images.BUILD, "sim"), stage + "/sim")
        for file, path in (("bin/sluiced", "tests/e2e/sluiced"), ("bin/sluice", "bin/sluice"),
                           ("bin/sluice-controller", "bin/sluice-controller"),
                           ("lib/libsluice.so", "lib/libsluice.so")):
            os.symlink(os.path.join(images.BUILD, path), os.path.join(stage, file))
        tar = stage + ".tar"
        subprocess.run([os.path.join(images.TOP, "tools/image.sh"), stage, "faults", tar], check=True,
                       capture_output=True)
        w.cluster.import_image(tar)
    return "faults"


def agent_gone(w):
    """Takes the agent away; `begin` or `deploy` brings it back."""
    w.api.delete(DAEMONSET)
    w.overlay = None
    wait("the agent to be gone", lambda: not w.api.get(AGENTS)["items"] and w.agent_pid() is None, 40)


def agent_log(w):
    return w.cluster.kubectl("-n", "sluice-system", "logs", "daemonset/sluiced", "--tail=-1")


def tenants(w):
    """`sluice status --json` on the node, by tenant."""
    return {t["name"]: t for t in json.loads(w.cluster.kubectl(*STATUS, "status", "--json"))["tenants"]}


def tenant_of(w, pod):
    found = [t for t in tenants(w).values() if t["about"].get("pod") == pod]
    check(len(found) == 1, f"{len(found)} tenants of pod {pod}: {found}")
    return found[0]


# ---- slices and claims

def slices(w):
    return [s for s in w.api.get(SLICES)["items"] if s["spec"]["driver"] == DRIVER]


def devices(w):
    return [d for s in slices(w) for d in s["spec"].get("devices", [])]


def request(name="gpu", device_class=DRIVER, memory=None, cores=None, expression=None, count=None):
    exactly = {"deviceClassName": device_class}
    if memory or cores:
        exactly["capacity"] = {"requests": {k: v for k, v in (("memory", memory), ("cores", cores)) if v}}
    if expression:
        exactly["selectors"] = [{"cel": {"expression": expression}}]
    if count:
        exactly["count"] = count
    return {"name": name, "exactly": exactly}


def share_config(**parameters):
    # "kind" first, as Go writes it: the API server keeps the text as it comes.
    return [{"opaque": {"driver": DRIVER, "parameters": {
        "kind": "ShareConfig", "apiVersion": "gpu.sluice.io/v1alpha1", **parameters}}}]


def template(w, name, *requests, config=None):
    """Made anew: what a test asks for is what it gets."""
    w.api.delete(f"{TEMPLATES}/{name}")
    spec = {"devices": {"requests": list(requests)}}
    if config:
        spec["devices"]["config"] = config
    w.api.create(TEMPLATES, {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate",
                             "metadata": {"name": name}, "spec": {"spec": spec}})


def generous(w):
    """A DeviceClass that lets claims ask for everything; its name."""
    name = "generous." + DRIVER
    if w.api.get(f"{RESOURCE}/deviceclasses/{name}") is None:
        w.api.create(f"{RESOURCE}/deviceclasses", {
            "apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": name}, "spec": {
                "selectors": [{"cel": {"expression": f'device.driver == "{DRIVER}" && device.attributes["{DRIVER}"].type == "share"'}}],
                "config": share_config(allow={"strategies": ["libsluice", "mps", "timeSlicing"], "priority": "high",
                                              "resize": "free"})}})
    return name


def share(w, memory="10Gi", percent="30", /, allowed=False, **parameters):
    """A template of one share, with a ShareConfig of these parameters if there are any; its name. `allowed`: by a class that
    lets it ask for everything."""
    name = re.sub("[^a-z0-9]+", "-", f"share-{memory}-{percent}-{parameters or ''}{'-allowed' if allowed else ''}".lower()).strip("-")
    template(w, name, request(memory=memory, cores=percent, device_class=generous(w) if allowed else DRIVER),
             config=share_config(**parameters) if parameters else None)
    return name


def claim_of(w, pod, name="gpu"):
    """The claim made for the pod from a template."""
    status = w.get_pod(pod)["status"]
    words = {s["name"]: s["resourceClaimName"] for s in status.get("resourceClaimStatuses", [])}
    check(name in words, f"pod {pod} has no claim {name}")
    return w.api.get(f"{CLAIMS}/{words[name]}")


def results(claim):
    return claim["status"]["allocation"]["devices"]["results"]


def claims_gone(w):
    wait("the claims to be gone", lambda: not w.api.get(CLAIMS)["items"], 60)


def nothing_left(w):
    """No claim has anything on the node: no CDI spec, no tenant, nothing in the checkpoint."""
    def left():
        specs = [f for f in os.listdir("/run/cdi") if "claim" in f]
        return specs, list(tenants(w)), checkpoint()
    wait(lambda: f"nothing to be left on the node, there is {left()}", lambda: left() == ([], [], {}), 30, every=0.3)


def checkpoint():
    """{uid: state} of what the driver has written down."""
    with open("/var/lib/sluice/checkpoint.json", encoding="utf-8") as f:
        return {c["uid"]: c["state"] for c in json.load(f)["data"]["claims"]}


# ---- pods

def pod(w, name, template_name, command=("sleep", "1000"), **more):
    w.pod(name, claims={"gpu": template_name}, command=command, **more)


def container(name, *uses, command=("sleep", "1000")):
    return {"name": name, "image": images.TEST, "imagePullPolicy": "Never", "command": list(command),
            "resources": {"claims": list(uses)}}


def environment(w, name, *argv):
    return dict(line.split("=", 1) for line in w.exec(name, *argv, "env").splitlines() if "=" in line)


def fills(w, name, mib, context_mib=500, where=()):
    """The pod's processes get exactly its memory, then CUDA_ERROR_OUT_OF_MEMORY."""
    view = json.loads(w.cluster.kubectl("exec", name, *where, "--", "gpus", "fill"))
    check(view["cuda"], f"CUDA has no device in {name}: error {view['cuda_error']}")
    same(f"cuDeviceTotalMem in {name}", view["cuda"][0]["mib"], mib)
    same(f"the error at the limit in {name}", view["fill_error"], 2)
    same(f"MiB allocated in {name}, beside a context's {context_mib}", view["filled_mib"], mib - context_mib)
    return view["filled_mib"]


def bare_uuids(view):
    """Of what gpus.c printed, in the order of CUDA."""
    return [d["uuid"] for d in view["cuda"]]


def pod_events(w, name, reason):
    return [e for e in w.events(reason) if e["involvedObject"].get("name") == name]


__all__ = ["AGENTS", "CLAIMS", "DAEMONSET", "DRIVER", "FAULT_FILE", "PODS", "SLICES", "SPACE", "STATUS", "agent_env",
           "agent_gone", "agent_log", "bare_uuids", "begin", "check", "checkpoint", "claim_of", "claims_gone", "container",
           "deploy", "devices", "environment", "faults_image", "fills", "nothing_left", "pod", "pod_events", "ready",
           "request", "results", "same", "share", "share_config", "slices", "template", "tenant_of", "tenants", "wait"]
