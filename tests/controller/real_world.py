# SPDX-License-Identifier: Apache-2.0
"""What the parts of real.py share: the API server they were given, programs started, objects made."""
import base64
import json
import os
import pathlib
import socket
import ssl
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import waiting  # noqa: E402

URL, CA, TOKEN_FILE = sys.argv[1:4]
TOKEN = pathlib.Path(TOKEN_FILE).read_text().strip()
PROGRAM = os.environ["SLUICE_CONTROLLER"]
K8S = pathlib.Path(os.environ.get("SLUICE_K8S_BIN",
                                  os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache")) + "/sluice/k8s"))
DIR = pathlib.Path(tempfile.mkdtemp())
CONTEXT = ssl._create_unverified_context()
CARD = 81920
PODS = "/api/v1/namespaces/default/pods"
started = []


def call(method, path, body=None, kind="application/json", base=URL, token=None):
    request = urllib.request.Request(base + path, method=method,
                                     data=json.dumps(body).encode() if body is not None else None)
    request.add_header("Content-Type", kind)
    request.add_header("Authorization", "Bearer " + (token or TOKEN))
    try:
        with urllib.request.urlopen(request, context=CONTEXT, timeout=30) as answer:
            text = answer.read()
            return answer.status, json.loads(text) if text[:1] in b"{[" else text.decode()
    except urllib.error.HTTPError as e:
        text = e.read()
        return e.code, json.loads(text) if text[:1] == b"{" else text.decode()


def must(method, path, body=None, kind="application/json"):
    status, answer = call(method, path, body, kind)
    assert status < 300, f"{method} {path}: {status} {answer}"
    return answer


def until(what, condition, seconds=60):
    return waiting.until(what, condition, seconds, every=0.1)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def start(name, argv, env=None):
    log = open(DIR / f"{name}.log", "ab")
    process = subprocess.Popen(argv, stdout=log, stderr=log, env={**os.environ, **(env or {})})
    started.append(process)
    return process


def controller(*more, wait=True, metrics=None, token=TOKEN_FILE, space="default", env=None):
    metrics = metrics or free_port()
    process = start("controller", [PROGRAM, "--server", URL, "--ca-file", CA, "--token-file", token,
                                   "--namespace", space, "--high-priority", "*", "--metrics", f"127.0.0.1:{metrics}", *more], env)
    if wait:
        def ready():
            assert process.poll() is None, (DIR / "controller.log").read_text()[-2000:]
            try:
                return call("GET", "/readyz", base=f"http://127.0.0.1:{metrics}")[0] == 200
            except OSError:
                return False
        until("the controller to be ready", ready)
    return process, metrics


def node(name, gpus):
    cards = [{"uuid": f"GPU-{name}-{i}", "memoryMiB": CARD, "cores": 100, "model": "NVIDIA H100 80GB HBM3",
              "numa": i // 4, "healthy": True} for i in range(gpus)]
    must("POST", "/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {
        "name": name, "labels": {"kubernetes.io/hostname": name},
        "annotations": {"sluice.io/gpus": json.dumps(cards)}}})
    sizes = {"cpu": "64", "memory": "256Gi", "pods": "2000", "nvidia.com/gpu": str(gpus * 100)}
    must("PATCH", f"/api/v1/nodes/{name}/status", {"status": {"capacity": sizes, "allocatable": sizes}},
         "application/merge-patch+json")


def pod(name, limits, annotations=None, labels=None, **spec):
    return {"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "annotations": annotations or {}, "labels": labels or {}},
            "spec": {"containers": [{"name": "main", "image": "local/none:1", "resources": {"limits": limits}}],
                     "tolerations": [{"operator": "Exists"}], **spec}}


def certificate():
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=test",
                    "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", DIR / "key.pem", "-out", DIR / "cert.pem"],
                   check=True, stderr=subprocess.DEVNULL)
    return base64.b64encode((DIR / "cert.pem").read_bytes()).decode()


def kubeconfig():
    (DIR / "kubeconfig").write_text(json.dumps({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": URL, "insecure-skip-tls-verify": True}}],
        "users": [{"name": "u", "user": {"token": TOKEN}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}]}))
    return DIR / "kubeconfig"
