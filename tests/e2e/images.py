# SPDX-License-Identifier: Apache-2.0
"""The images of the tests, made on the spot from this machine's files and this tree's build."""
import os
import re
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))
BUILD = os.environ.get("SLUICE_BUILD", os.path.join(TOP, "build"))
TEST = "localhost/sluice-e2e-test:1"
# What the tests' pods use; all of it is in Debian's essential packages.
PROGRAMS = ("sh", "cat", "ls", "sleep", "env", "id", "stat", "kill", "mount", "umount", "touch", "rm", "chmod", "dd")


class NotBuilt(Exception):
    """The agent's image is missing."""


def agent():
    path = os.path.join(BUILD, "sluice-image.tar")
    if not os.path.exists(path):
        raise NotBuilt(f"{path} is missing: run make image")
    return path


def oci(name, output, *argv):
    subprocess.run([sys.executable, os.path.join(TOP, "tools", "oci-image.py"), "--plain", "--name", name,
                    "--output", output, *argv], check=True, stderr=subprocess.DEVNULL)
    return output


def pause(work):
    program = os.path.join(work, "pause")
    subprocess.run(["cc", "-O1", "-static", "-o", program, os.path.join(HERE, "pause.c")], check=True)
    from cluster import PAUSE
    return oci(PAUSE, os.path.join(work, "pause.tar"), "--program", program + ":/pause", "--entrypoint", "/pause")


def scheduler(work, program):
    """The stock kube-scheduler under the name that deploy/components/second-scheduler has, with its program where that image
    has it."""
    with open(os.path.join(TOP, "deploy/components/second-scheduler/kustomization.yaml"), encoding="utf-8") as f:
        tag = re.search(r"newTag: (\S+)", f.read())[1]
    return oci(f"registry.k8s.io/kube-scheduler:{tag}", os.path.join(work, "scheduler.tar"), "--program",
               program + ":/usr/local/bin/kube-scheduler")


def test(work):
    """A small glibc system with the programs that look at GPUs from inside a pod."""
    argv = []
    for name in PROGRAMS:
        path = shutil.which(name)
        if path:
            argv += ["--program", f"{path}:/usr/bin/{name}"]
    for path in ("tests/e2e/gpus", "tests/e2e/intruder", "tests/integration/compute_tenant", "sim/sluice-sim-ctl"):
        path = os.path.join(BUILD, path)
        if os.path.exists(path):
            argv += ["--program", f"{path}:/usr/bin/{os.path.basename(path)}"]
    return oci(TEST, os.path.join(work, "test.tar"), *argv, "--text", "/etc/passwd=root:x:0:0::/:/bin/sh\n")
