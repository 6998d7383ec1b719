#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Strangers at sluice-controller's ports, without any API server: what they may hold of its memory and its connections, and
which pods they may bring in.

usage: budget.py SLUICE_CONTROLLER MIB: the memory it may have at its peak
"""
import json
import pathlib
import resource
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request

MIB = 1 << 20
PROGRAM, BUDGET_MIB = sys.argv[1], int(sys.argv[2])
DIR = pathlib.Path(tempfile.mkdtemp())
UNKNOWN = ssl._create_unverified_context()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def peak_mib(process):
    for line in pathlib.Path(f"/proc/{process.pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) // 1024
    raise AssertionError("no VmHWM")


def healthy(port, tls=False):
    """/healthz is answered, and not only when others have had their time (30 s). How fast is printed: kubelet waits a second."""
    url = f"{'https' if tls else 'http'}://127.0.0.1:{port}/healthz"
    with urllib.request.urlopen(url, timeout=20, context=UNKNOWN if tls else None) as answer:
        assert answer.status == 200, answer.status


def connect(port, tls):
    s = socket.create_connection(("127.0.0.1", port), timeout=10)
    return UNKNOWN.wrap_socket(s) if tls else s


def unfinished(port, tls, path):
    """80 bodies of 8 MiB that lack their last byte, all at once."""
    held = []
    for _ in range(80):
        s = connect(port, tls)
        s.sendall(f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {8 * MIB}\r\n\r\n".encode())
        try:
            for _ in range(8):
                s.sendall(b" " * (MIB - 1))
        except OSError:
            pass  # sent away: as good
        held.append(s)
    return held


def post(port, body):
    request = urllib.request.Request(f"https://127.0.0.1:{port}/mutate", data=body, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=20, context=UNKNOWN) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as e:
        return e.code, e.read()


def review(annotations, limits=None, space="ns"):
    return json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "u", "namespace": space, "dryRun": True, "operation": "CREATE", "resource": {"group": "", "version": "v1", "resource": "pods"},
        "object": {"metadata": {"name": "p", "annotations": annotations},
                   "spec": {"containers": [{"name": "c", "resources": {"limits": limits or {}}}]}}}}, ensure_ascii=False).encode()


def main():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
    tls, plain, metrics = free_port(), free_port(), free_port()
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=x", "-keyout",
                    DIR / "key.pem", "-out", DIR / "cert.pem"], check=True, stderr=subprocess.DEVNULL)
    process = subprocess.Popen(
        [PROGRAM, "--server", f"http://127.0.0.1:{free_port()}", "--namespace", "default", "--listen",
         f"127.0.0.1:{tls}", "--cert-file", DIR / "cert.pem", "--key-file", DIR / "key.pem", "--metrics", f"127.0.0.1:{metrics}",
         "--extender", "choose", "--extender-http", f"127.0.0.1:{plain}", "--leader-election", "off", "--log", "error",
         "--high-priority", "prod,batch"],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024)))
    try:
        attacks(process, tls, plain, metrics)
        assert process.poll() is None, "the controller ended"
    finally:
        process.kill()
        process.wait()


def attacks(process, tls, plain, metrics):
    end = time.monotonic() + 20
    while True:
        try:
            healthy(metrics)
            healthy(tls, tls=True)
            break
        except OSError:
            assert time.monotonic() < end and process.poll() is None, "the controller does not start"
            time.sleep(0.05)

    # A quoted annotation cut inside a character is a denial like any other.
    for lead in range(2):
        status, text = post(tls, review({"sharedgpu/gpu_request": "0.5", "sharedgpu/gpu_limit": "a" * lead + "é" * 60}))
        answer = json.loads(text)["response"]
        assert status == 200 and answer["allowed"] is False and "sharedgpu/gpu_limit" in answer["status"]["message"], text

    # Priority high is for those the administrator names.
    for space, priority, allowed in (("ns", "0", False), ("prod", "0", True), ("prod-2", "0", False), ("batch", "0", True),
                                     ("ns", "1", True), ("ns", None, True)):
        limits = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "1024", **({"nvidia.com/priority": priority} if priority else {})}
        status, text = post(tls, review({}, limits, space))
        answer = json.loads(text)["response"]
        assert status == 200 and answer["allowed"] is allowed, (space, priority, text)
        if not allowed:
            assert answer["status"]["code"] == 403 and "--high-priority" in answer["status"]["message"], text

    # Trees that are far larger than their text.
    for piece in (b"[],", b"{},", b'{"a":1},', b'"",'):
        status, text = post(tls, b"[" + piece * (7 * MIB // len(piece)) + b"0]")
        assert status == 400, (status, text[:100])
        print(f"8 MiB of {piece.decode()}: peak {peak_mib(process)} MiB")

    for port, with_tls, path in ((tls, True, "/mutate"), (tls, True, "/nothing"), (plain, False, "/filter"), (metrics, False, "/metrics")):
        held = unfinished(port, with_tls, path)
        healthy(metrics)
        healthy(port, with_tls)
        status, text = post(tls, review({}))
        assert status == 200 and json.loads(text)["response"]["allowed"] is True, (status, text[:100])
        print(f"80 bodies at {path}: peak {peak_mib(process)} MiB")
        for s in held:
            s.close()
    assert peak_mib(process) <= BUDGET_MIB, f"{peak_mib(process)} MiB, more than {BUDGET_MIB}"

    for port, with_tls in ((metrics, False), (plain, False), (tls, True)):
        idle = [socket.create_connection(("127.0.0.1", port), timeout=10) for _ in range(600)]
        for _ in range(3):
            before = time.monotonic()
            healthy(port, with_tls)
            healthy(metrics)
            print(f"600 idle connections at {'TLS' if with_tls else 'plain'} port: healthz in {time.monotonic() - before:.3f} s")
        for s in idle:
            s.close()

    # A flood that goes on: connections come from one address as fast as a client can open them.
    stop = threading.Event()

    def flood():
        mine = []
        while not stop.is_set():
            mine.append(socket.create_connection(("127.0.0.1", metrics), timeout=10, source_address=("127.0.0.2", 0)))
            if len(mine) > 500:
                mine.pop(0).close()
    thread = threading.Thread(target=flood)
    thread.start()
    try:
        for _ in range(20):
            healthy(metrics)
    finally:
        stop.set()
        thread.join()
    print(f"peak {peak_mib(process)} MiB")
    assert peak_mib(process) <= BUDGET_MIB, f"{peak_mib(process)} MiB, more than {BUDGET_MIB}"


main()
