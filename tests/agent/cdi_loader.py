#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A root like a bare Debian image's (no ld.so.cache, no ldconfig, no hook), given what the CDI spec mounts:
its loader must find the driver under every name. Hard links stand in for bind mounts: one inode either way."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

VERSION = "580.65.06"
LIBRARIES = {"cuda": "libcuda", "ml": "libnvidia-ml", "ptx": "libnvidia-ptxjitcompiler",
             "gpucomp": "libnvidia-gpucomp"}
NAMES = ["libnvidia-ml.so.1", "libnvidia-ptxjitcompiler.so.1", f"libnvidia-gpucomp.so.{VERSION}",
         f"libcuda.so.{VERSION}"]


def enter(root, *command, env=None):
    """Runs a command in the root, as its root user; no privilege is needed where user namespaces are."""
    how = ["chroot"] if os.geteuid() == 0 else ["unshare", "-r", "chroot"]
    return subprocess.run([*how, str(root), *command], capture_output=True, text=True, check=False,
                          env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", **(env or {})})


def make_root(root, program):
    """The program, its libraries and their loader: /program. False where such a root cannot be entered."""
    root.mkdir()
    needed = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    for path in [*re.findall(r"(/\S+) \(0x", needed), program]:
        place = root / ("program" if path == program else path.lstrip("/"))
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, place)
    before = enter(root, "/program")
    if before.returncode == 1 and "libcuda.so.1" in before.stdout:
        return True
    print(f"skipped: cannot run programs in a root of their own: {before.stderr.strip()}")
    return False


def give(root, edits):
    """The mounts of a spec's edits; its environment comes back."""
    for mount in edits.get("mounts", []):
        place = root / mount["containerPath"].lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        os.link(mount["hostPath"], place)
    return dict(e.split("=", 1) for e in edits.get("env", []))


def read_spec(directory):
    return json.loads((directory / "k8s.device-plugin.nvidia.com-gpu.json").read_text())


def main():
    write, program, libraries = sys.argv[1:]
    with tempfile.TemporaryDirectory(prefix="sluice-cdi-") as name:
        top = pathlib.Path(name)
        driver, root = top / "driver", top / "rootfs"
        (driver / "usr/lib64").mkdir(parents=True)
        (driver / "dev").mkdir()
        for node in ("nvidiactl", "nvidia-uvm", "nvidia0"):
            (driver / "dev" / node).symlink_to("/dev/null")
        for kind, stem in LIBRARIES.items():
            shutil.copy(f"{libraries}/driver_library_{kind}.so",
                        driver / f"usr/lib64/{stem}.so.{VERSION}")
        if not make_root(root, program):
            return 77
        subprocess.run([write, driver, top / "cdi"], check=True)
        give(root, read_spec(top / "cdi")["containerEdits"])
        after = enter(root, "/program", *NAMES)
        print(after.stdout, after.stderr)
        return 0 if after.returncode == 0 and after.stdout == "found\n" else 1


if __name__ == "__main__":
    sys.exit(main())
