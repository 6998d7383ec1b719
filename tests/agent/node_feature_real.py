#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Labels by way of a NodeFeature object on a real API server: a whole sluiced with exactly the rights of deploy/ and a
token bound to its node, before and after Node Feature Discovery's kind of object is there.

usage: node_feature_real.py URL CA_FILE TOKEN_FILE   (run by tests/http/real.sh); SLUICE_BUILD names the build
"""
import json
import os
import pathlib
import ssl
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request

URL, CA, TOKEN = sys.argv[1:4]
ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.argv = [sys.argv[0], os.environ["SLUICE_BUILD"]]
sys.path.insert(0, str(ROOT / "tests/integration"))
from sluiced_node import Node, until  # noqa: E402

BIN = os.environ.get("SLUICE_K8S_BIN") or os.path.join(
    os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache")), "sluice/k8s")
ADMIN = pathlib.Path(TOKEN).read_text(encoding="ascii").strip()
FEATURES = "/apis/nfd.k8s-sigs.io/v1alpha1/namespaces/sluice-system/nodefeatures"
TEXTS = {"type": "object", "additionalProperties": {"type": "string"}}
# As strict as the kind has ever been: raw features and their three parts are required.
CRD = {"metadata": {"name": "nodefeatures.nfd.k8s-sigs.io",
                    "annotations": {"api-approved.kubernetes.io": "https://example.com/a-test"}},
       "spec": {"group": "nfd.k8s-sigs.io", "scope": "Namespaced",
                "names": {"kind": "NodeFeature", "listKind": "NodeFeatureList", "plural": "nodefeatures",
                          "singular": "nodefeature"},
                "versions": [{"name": "v1alpha1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {
                    "type": "object", "required": ["spec"], "properties": {"spec": {
                        "type": "object", "required": ["features"], "properties": {"labels": TEXTS, "features": {
                            "type": "object", "required": ["attributes", "flags", "instances"],
                            "properties": {part: {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
                                           for part in ("attributes", "flags", "instances")}}}}}}}}]}}


def call(method, path, body=None, token=ADMIN, kind=None):
    """Status and answer."""
    request = urllib.request.Request(URL + path, method=method, data=json.dumps(body).encode() if body else None)
    request.add_header("Authorization", "Bearer " + token)
    request.add_header("Content-Type", kind or "application/json")
    try:
        with urllib.request.urlopen(request, context=ssl.create_default_context(cafile=CA)) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as e:
        with e:
            text = e.read()
        try:
            return e.code, json.loads(text)
        except ValueError:  # a kind that is not served yet is answered by the server, not by the API
            return e.code, {"message": text.decode(errors="replace")}


def same(what, got, wanted):
    if got != wanted:
        raise AssertionError(f"{what}: {got}, not {wanted}")


def made(path, body):
    status, answer = call("POST", path, body)
    same(f"making {path}", status, 201)
    return answer


def config(folder, name, token):
    path = f"{folder}/{name}"
    pathlib.Path(path).write_text(json.dumps({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": URL, "certificate-authority": CA}}],
        "users": [{"name": "u", "user": {"token": token}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}]}), encoding="ascii")
    return path


def deploy(folder):
    """The agent as deployed with the component, by kubectl: of this the rights count here."""
    overlay = pathlib.Path(folder, "overlay")
    overlay.mkdir()
    up = os.path.relpath(ROOT / "deploy", overlay)
    (overlay / "kustomization.yaml").write_text(json.dumps({
        "apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization",
        "resources": [f"{up}/overlays/default"],
        "components": [f"{up}/components/node-feature", f"{up}/components/own-node-only"]}), encoding="ascii")
    run = subprocess.run([f"{BIN}/kubectl", "--kubeconfig", config(folder, "admin", ADMIN), "apply", "-k", overlay],
                         capture_output=True, text=True, check=False)
    same("kubectl apply: " + run.stderr, run.returncode, 0)
    env = call("GET", "/apis/apps/v1/namespaces/sluice-system/daemonsets/sluiced")[1]["spec"]["template"]["spec"][
        "containers"][0]["env"]
    same("the agent's option", [e.get("value") for e in env if e["name"] == "SLUICE_NODE_FEATURE"], ["true"])


def of_node(name):
    return call("GET", "/api/v1/nodes/" + name)[1]["metadata"]


def attempts(token):
    """What the agent of node-1 may do to others: nothing."""
    apply = "application/apply-patch+yaml"

    def feature(name, node):
        body = {"apiVersion": "nfd.k8s-sigs.io/v1alpha1", "kind": "NodeFeature", "metadata": {
            "name": name, "labels": {"nfd.node.kubernetes.io/node-name": node}},
            "spec": {"features": {"flags": {}, "attributes": {}, "instances": {}}}}
        return call("PATCH", f"{FEATURES}/{name}?fieldManager=x&force=true", body, token, apply)[0]

    own = "sluice-features-for-node-1"
    same("an object named for another node", feature("sluice-features-for-node-2", "node-2") in (403, 422), True)
    same("its own with another node's name in it", feature(own, "node-2") in (403, 422), True)
    same("its own", feature(own, "node-1"), 200)
    for method, path in (("GET", FEATURES), ("DELETE", FEATURES),
                         ("GET", FEATURES.replace("sluice-system", "default"))):
        same(f"{method} {path}", call(method, path, token=token)[0], 403)


def walk(node, folder):
    uid = made("/api/v1/nodes", {"metadata": {"name": "node-1"}})["metadata"]["uid"]
    made("/api/v1/nodes", {"metadata": {"name": "node-2"}})
    deploy(folder)
    token = made("/api/v1/namespaces/sluice-system/serviceaccounts/sluiced/token", {"spec": {"boundObjectRef": {
        "apiVersion": "v1", "kind": "Node", "name": "node-1", "uid": uid}}})["status"]["token"]
    node.options.remove("--no-api")
    node.options += ["--kubeconfig=" + config(folder, "agent", token), "--node-feature"]
    node.config("version: v1\n")

    agent = node.agent()
    agent.said("the API server refused the NodeFeature object with the labels of this node: ")
    agent.said("the labels are written to the Node")
    until("labels on the Node", lambda: of_node("node-1").get("labels", {}).get("nvidia.com/gpu.count") == "2")
    agent.kill()

    made("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", CRD)
    until("the kind is served", lambda: call("GET", FEATURES)[0] == 200)
    agent = node.agent()
    agent.said("labels are in a NodeFeature object")
    own = f"{FEATURES}/sluice-features-for-node-1"
    got = call("GET", own)[1]
    same("its labels", got["spec"]["labels"]["nvidia.com/gpu.count"], "2")
    same("its node", got["metadata"]["labels"], {"nfd.node.kubernetes.io/node-name": "node-1"})
    same("its owner", got["metadata"]["ownerReferences"][0]["uid"], uid)
    until("the Node's labels are nobody's",
          lambda: "sluice.io/owned-labels" not in of_node("node-1").get("annotations", {}))
    same("and stay", of_node("node-1")["labels"]["nvidia.com/gpu.count"], "2")
    node.config("version: v1\nflags: {migStrategy: mixed}\n")
    until("a label more", lambda: call("GET", own)[1]["spec"]["labels"].get("nvidia.com/mig.strategy") == "mixed")
    node.config("version: v1\n")
    until("and one less", lambda: "nvidia.com/mig.strategy" not in call("GET", own)[1]["spec"]["labels"])
    until("the policy holds", lambda: call("PATCH", "/api/v1/nodes/node-2", {"metadata": {"labels": {"x": "y"}}}, token,
                                           "application/merge-patch+json")[0] in (403, 422))
    attempts(token)
    node.config("version: v1\nflags: {useNodeFeatureAPI: false}\n")
    until("it is taken back", lambda: call("GET", own)[0] == 404)


def main():
    if not os.path.exists(f"{BIN}/kubectl"):
        print(f"skipped: no kubectl at {BIN}")
        return 77
    node = Node()
    try:
        with tempfile.TemporaryDirectory() as folder:
            walk(node, folder)
    except AssertionError:
        print("\n".join(a.text() for a in node.agents))
        raise
    finally:
        node.end()
    print("labels by a NodeFeature object work with the rights of deploy/, and with no others")
    return 0


if __name__ == "__main__":
    sys.exit(main())
