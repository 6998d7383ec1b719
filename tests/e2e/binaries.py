#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Finds Kubernetes' and containerd's programs; run as a program with `download`, gets the released ones.

They are looked for in SLUICE_K8S_BIN, then in ~/.cache/sluice/k8s, then in the PATH. Nothing is
downloaded unless asked for.
"""
import hashlib
import os
import platform
import shutil
import sys
import tarfile
import tempfile
import urllib.request

KUBERNETES = "v1.36.4"
CONTAINERD = "2.1.9"
KUBERNETES_PROGRAMS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kubectl")
CONTAINERD_PROGRAMS = ("containerd", "containerd-shim-runc-v2", "ctr")
# Debian packages: etcd-server (etcd), runc, containernetworking-plugins, iproute2, util-linux.
SYSTEM_PROGRAMS = ("etcd", "runc", "ip", "unshare")
CNI_DIRECTORIES = ("/opt/cni/bin", "/usr/lib/cni")
CNI_PLUGINS = ("bridge", "host-local", "loopback")


class Missing(Exception):
    """Programs that are nowhere; the message names them and says what to do."""


def cache_directory():
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return os.path.join(base, "sluice", "k8s")


def find():
    """{name: path} of everything a cluster needs, and "cni": the directory of the CNI plugins."""
    places = [p for p in (os.environ.get("SLUICE_K8S_BIN"), cache_directory()) if p]
    found = {}
    for name in KUBERNETES_PROGRAMS + CONTAINERD_PROGRAMS + SYSTEM_PROGRAMS:
        path = next((p for p in (os.path.join(d, name) for d in places) if os.access(p, os.X_OK)), None)
        found[name] = path or shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
    found["cni"] = next((d for d in (*places, *CNI_DIRECTORIES)
                         if all(os.access(os.path.join(d, p), os.X_OK) for p in CNI_PLUGINS)), None)
    missing = sorted(n for n, p in found.items() if not p)
    if missing:
        raise Missing(
            f"not here: {', '.join(missing)}; looked in {', '.join(places)} and the PATH. "
            "`apt-get install etcd-server runc containernetworking-plugins iproute2` brings etcd, runc, cni and ip; "
            "`tests/e2e/binaries.py download` brings the rest where there is a network")
    return found


def get(url, path):
    with urllib.request.urlopen(url, timeout=60) as response, open(path, "wb") as f:
        shutil.copyfileobj(response, f)


def fetch(url, checksum_url, algorithm, scratch):
    """The file at url, checked against the checksum published beside it."""
    path = os.path.join(scratch, os.path.basename(url))
    get(checksum_url, path + ".sum")
    with open(path + ".sum", encoding="ascii") as f:
        expected = f.read().split()[0]
    print(f"getting {url}", file=sys.stderr)
    get(url, path)
    with open(path, "rb") as f:
        actual = hashlib.file_digest(f, algorithm).hexdigest()
    if actual != expected:
        raise SystemExit(f"{url}: {algorithm} is {actual}, published is {expected}: nothing installed")
    return path


def unpack(archive, names, destination):
    """The programs called `names` in a tar, wherever in it they are."""
    with tarfile.open(archive) as tar:
        for member in tar:
            name = os.path.basename(member.name)
            if member.isfile() and name in names:
                with tar.extractfile(member) as source, \
                        open(os.path.join(destination, name + ".part"), "wb") as f:
                    shutil.copyfileobj(source, f)
                os.chmod(f.name, 0o755)
                os.replace(f.name, os.path.join(destination, name))


def download():
    arch = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine())
    if not arch:
        raise SystemExit(f"no released programs for {platform.machine()}")
    destination = cache_directory()
    os.makedirs(destination, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        # The server's archive has kubelet and kubectl in it too.
        url = f"https://dl.k8s.io/{KUBERNETES}/kubernetes-server-linux-{arch}.tar.gz"
        unpack(fetch(url, url + ".sha512", "sha512", scratch), KUBERNETES_PROGRAMS, destination)
        url = ("https://github.com/containerd/containerd/releases/download/"
               f"v{CONTAINERD}/containerd-{CONTAINERD}-linux-{arch}.tar.gz")
        unpack(fetch(url, url + ".sha256sum", "sha256", scratch), CONTAINERD_PROGRAMS, destination)
    print(f"installed in {destination}")


if __name__ == "__main__":
    if sys.argv[1:] == ["download"]:
        download()
    try:
        for program, where in sorted(find().items()):
            print(f"{program:26} {where}")
    except Missing as e:
        raise SystemExit(f"e2e: {e}") from e
