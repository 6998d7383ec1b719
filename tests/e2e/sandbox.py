# SPDX-License-Identifier: Apache-2.0
"""A machine of its own for a test cluster, made of namespaces.

Kubelet, containerd and the agent use their usual paths (/var/lib/kubelet, /run/containerd, /var/run/cdi),
but what they write there is memory of a private mount namespace; bridges and ports belong to a private
network; and every process lives in a private PID namespace, which the kernel ends as a whole. So nothing
is left behind however a run ends; only cgroups and the work folder need removing, which the process
outside does, and the next run where even that one was killed.
"""
import ctypes
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

PREFIX = "sluice-e2e-"
NODE_IP = "10.210.0.1"
SERVICE_IP = "10.96.0.1"  # of the Service "kubernetes": there is no kube-proxy, the API server has it
INSIDE = "SLUICE_E2E_INSIDE"

# Written to by somebody, and on no account to be written to on this machine.
OVERLAID = ("/var/lib", "/var/log", "/run")
# Fresh whatever this machine has there; containerd's layers cannot be on an overlay in any case.
EMPTY = ("/var/lib/kubelet", "/var/lib/containerd", "/var/lib/cni", "/var/lib/sluice", "/var/log/pods",
         "/var/log/containers", "/run/containerd", "/run/cdi", "/run/sluice", "/run/netns", "/run/cni",
         "/run/nvidia", "/run/runc")


class CannotRun(Exception):
    """This machine cannot have a cluster; the message says what is missing."""


def cgroup_mounts():
    """Where cgroup hierarchies are: one with version 2, one a controller with version 1."""
    with open("/proc/self/mounts", encoding="ascii", errors="replace") as f:
        fields = [line.split() for line in f]
    return [m[1] for m in fields if m[2] in ("cgroup", "cgroup2")]


def remove_cgroups(name):
    """Bottom up; a cgroup whose processes were killed this instant takes a moment to be empty."""
    for mount in cgroup_mounts():
        for _ in range(50):
            for path, _, _ in os.walk(os.path.join(mount, name), topdown=False):
                try:
                    os.rmdir(path)
                except OSError:
                    pass
            if not os.path.exists(os.path.join(mount, name)):
                break
            time.sleep(0.1)


def sweep():
    """What runs left whose outer process was killed too."""
    roots = cgroup_mounts()
    names = {n for root in roots + [tempfile.gettempdir()] if os.path.isdir(root)
             for n in os.listdir(root)}
    for name in names:
        match = re.fullmatch(re.escape(PREFIX) + r"(\d+)-\w+", name)
        if not match or os.path.exists(f"/proc/{match.group(1)}"):
            continue
        remove_cgroups(name)
        work = os.path.join(tempfile.gettempdir(), name)
        if os.path.isdir(work) and not os.path.exists(os.path.join(work, "keep")):
            shutil.rmtree(work, ignore_errors=True)


def die_with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def first_child(pid):
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as f:
            return int(f.read().split()[0])
    except (OSError, IndexError):
        return None


def last_work():
    """The work folder of the run that just ended."""
    return run_inside.work


def run_inside(main, keep):
    """Calls main(work) in a machine of its own and returns its exit status. `keep` says, given the status,
    whether the work folder's logs stay."""
    if os.environ.get(INSIDE):
        sys.exit(inside(main, os.environ[INSIDE]))
    if os.geteuid() != 0:
        raise CannotRun("it needs root: namespaces, mounts and cgroups")
    sweep()
    work = run_inside.work = tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-")
    command = ["unshare", "--mount", "--net", "--pid", "--ipc", "--uts", "--fork",
               "--kill-child=SIGKILL", "--mount-proc"]
    if subprocess.run(command + ["true"], capture_output=True, check=False).returncode != 0:
        shutil.rmtree(work)
        raise CannotRun("this machine does not let us make namespaces (unshare fails)")

    child = subprocess.Popen(command + [sys.executable, *sys.argv], env={**os.environ, INSIDE: work},
                             preexec_fn=die_with_parent)

    def forward(number, _):
        pid = first_child(child.pid)
        if pid:
            os.kill(pid, number)

    # Ctrl-C reaches the inner process from the terminal; the outer one only waits for it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, forward)
    status = child.wait()
    remove_cgroups(os.path.basename(work))
    left = [m for m in cgroup_mounts() if os.path.exists(os.path.join(m, os.path.basename(work)))]
    if left:
        print(f"cgroups {os.path.basename(work)} are left in {', '.join(left)}", file=sys.stderr)
        status = status or 1
    if keep(status):
        open(os.path.join(work, "keep"), "w", encoding="ascii").close()
    else:
        shutil.rmtree(work, ignore_errors=True)
    return status


def inside(main, work):
    """The first process: reaps orphans, as an init does, and ends when main does."""
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        signal.signal(signal.SIGINT, signal.default_int_handler)  # also where it was ignored before
        prepare(work)
        status = main(work)
        sys.stdout.flush()
        os._exit(status)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the child has it from the terminal
    signal.signal(signal.SIGTERM, lambda n, _: os.kill(child, n))
    while True:
        pid, status = os.wait()
        if pid == child:
            return os.waitstatus_to_exitcode(status) & 0xFF


def sh(*argv):
    subprocess.run(argv, check=True)


def prepare(work):
    """Mounts, network and cgroups of the new machine."""
    sh("mount", "--make-rshared", "/")  # kubelet wants to pass mounts on, within this namespace
    base = os.path.join(work, "machine")
    os.makedirs(base)
    sh("mount", "-t", "tmpfs", "-o", "mode=755", "machine", base)
    for path in OVERLAID:
        upper, scratch = base + path + "/upper", base + path + "/work"
        os.makedirs(upper)
        os.makedirs(scratch)
        sh("mount", "-t", "overlay", "machine", "-o",
           f"lowerdir={path},upperdir={upper},workdir={scratch}", path)
    for path in EMPTY:
        os.makedirs(path, exist_ok=True)
        sh("mount", "-t", "tmpfs", "-o", "mode=755", "machine", path)
    sh("ip", "link", "set", "lo", "up")
    sh("ip", "address", "add", SERVICE_IP + "/32", "dev", "lo")
    # An address of its own: a bridge without one takes a port's, changes it when pods come and go, and the
    # pods' neighbour tables are wrong for a minute.
    sh("ip", "link", "add", "node0", "address", "02:00:00:00:00:01", "type", "bridge")
    sh("ip", "address", "add", NODE_IP + "/24", "dev", "node0")
    sh("ip", "link", "set", "node0", "up")
    sh("ip", "route", "add", "default", "dev", "node0")
    with open("/proc/sys/net/ipv4/ip_forward", "w", encoding="ascii") as f:
        f.write("1")
    socket.sethostname("node-1")
    for mount in cgroup_mounts():
        path = os.path.join(mount, os.path.basename(work))
        os.makedirs(path, exist_ok=True)
        # Version 1's cpuset lets nobody in before it has CPUs and memory nodes.
        for name in ("cpuset.cpus", "cpuset.mems"):
            here, above = os.path.join(path, name), os.path.join(mount, name)
            if os.path.exists(here) and os.path.exists(above):
                shutil.copyfile(above, here)
