# SPDX-License-Identifier: Apache-2.0
"""Where tenants live: on one machine, with `sluice run` and an arbiter; and on a node of a cluster, where an agent makes
them for pods and keeps the arbiter. Both have the same verbs."""
import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time

import folders
from model import Tenant, Violation
from patience import LIMIT, Patience

READY = b"R"


class World:
    """An arbiter, seen from outside."""
    END = 0.0  # s that a tenant which is over may stay

    def __init__(self, soak, sluice_dir):
        self.soak, self.dir = soak, sluice_dir
        self.arbiter, self.pidfd, self.started = None, -1, 0.0
        self.disk = None

    def found(self, pid):
        """This is the arbiter from now on."""
        self.arbiter, self.pidfd = pid, os.pidfd_open(pid)
        self.started = time.monotonic()

    def lost(self):
        os.close(self.pidfd)
        self.arbiter, self.pidfd = None, -1

    def gone(self, seconds):
        return bool(select.select([self.pidfd], [], [], seconds)[0])

    def ready_since(self):
        """Since when everybody is there who sees to things."""
        return self.started

    def up_for(self):
        return time.monotonic() - self.started if self.arbiter else 0.0

    def check_alive(self):
        if self.gone(0):
            raise Violation("died: the arbiter ended by itself")

    def daemons(self):
        """name → (process, how long it is there): whose memory stays flat"""
        return {"the arbiter": (self.arbiter, self.up_for())}

    def set_limit(self, tenant, limit):
        """"": done; or why not."""
        done = self.soak.command("set", "--memory", f"{limit}Mi", tenant.sluice_name)
        return done.stderr.strip() or "no word" if done.returncode else ""

    def catches_up(self, tenant, limit):
        """After a `set` that failed: False where nobody tries it again. True: it has been done by now."""
        return False

    def mount_small_disk(self):
        """A disk of its own for the state files, where that is allowed."""
        where = os.path.join(self.dir, "t")
        os.makedirs(where, mode=0o700, exist_ok=True)
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k,mode=0700", "tmpfs", where],
                              stderr=subprocess.PIPE, check=False)
        self.disk = where if done.returncode == 0 else None

    def unmount(self):
        if self.disk:
            subprocess.run(["umount", "-l", self.disk], check=False)


class Machine(World):
    name = "machine"

    def __init__(self, soak):
        self.tmp = tempfile.mkdtemp(prefix="sluice-soak-")
        super().__init__(soak, os.path.join(self.tmp, "w"))
        os.makedirs(self.dir, mode=0o700)
        self.children, self.holders = [], {}

    def begin(self):
        if os.environ.get("SLUICE_SOAK_INSIDE"):
            self.mount_small_disk()
        self.start()

    def start(self):
        """As an operator would. A `sluice run` that lost its arbiter may have been quicker: then that one
        is the arbiter."""
        read, write = os.pipe()
        child = subprocess.Popen(
            [self.soak.sluice, "--dir", self.dir, "arbiter", "--sim", "h200", "--idle-exit", "0", "--ready-fd",
             str(write)], pass_fds=[write], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, start_new_session=True)
        os.close(write)
        self.children.append(child)
        said = bytearray()

        def heard(seconds):
            if not select.select([read], [], [], seconds)[0]:
                return False
            data = os.read(read, 512)
            said.extend(data)
            return not data or said.startswith(READY)

        Patience(lambda: [*self.soak.processes(), child.pid]).until(heard, "the arbiter's start")
        os.close(read)
        if said.startswith(READY):
            self.found(child.pid)
        elif b"already serves" in said:
            self.found(Patience(self.soak.processes).until(self.other, "the other arbiter's answer"))
        else:
            raise Violation(f"died: the arbiter does not start: {bytes(said)!r}")

    def other(self, seconds):
        done = self.soak.command("status", "--json")
        pid = json.loads(done.stdout).get("arbiter_pid") if done.returncode == 0 else None
        if not pid:
            time.sleep(min(seconds, 0.02))
        return pid

    def end_arbiter(self, how):
        self.check_alive()
        signal.pidfd_send_signal(self.pidfd, how)
        Patience(lambda: [self.arbiter]).until(self.gone, f"the arbiter's end after {how.name}")
        self.lost()
        self.children = [c for c in self.children if c.poll() is None]

    def restart(self, draw, life):
        self.end_arbiter(draw.choice([signal.SIGKILL, signal.SIGTERM]))
        life(draw.choice([0, 0, 0.3, 1.0]))
        self.start()

    def new_tenant(self, name, limit, cores):
        """A tenant, or why there is none."""
        holder = subprocess.Popen(
            [self.soak.sluice, "--dir", self.dir, "run", "--sim", "h200", "--name", name, "--memory", f"{limit}Mi",
             "--cores", cores, "--", self.soak.program, "hold"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        said = bytearray()

        def heard(seconds):
            if not select.select([holder.stdout], [], [], seconds)[0]:
                return False
            data = os.read(holder.stdout.fileno(), 65536)
            said.extend(data)
            return not data or said.endswith(b"\n\n")

        wait = Patience(lambda: [*self.soak.processes(), holder.pid])
        wait.until(heard, f"`sluice run` of {name}")
        self.soak.waited(wait, f"`sluice run` of {name}")
        env = dict(line.split("=", 1) for line in said.decode().split("\n") if "=" in line)
        if "SLUICE_ATTACH" in env:
            self.holders[name] = holder
            return Tenant(self.soak, name, limit, env), ""
        error = holder.stderr.read().decode().strip()
        holder.stdin.close()
        holder.wait()
        holder.stdout.close()
        holder.stderr.close()
        return None, error

    def end_tenant(self, tenant):
        holder = self.holders.pop(tenant.name)
        holder.stdin.close()
        self.soak.ended_within(holder, f"`sluice run` of {tenant.name}")
        holder.stdout.close()
        holder.stderr.close()

    def end(self):
        for holder in self.holders.values():
            holder.kill()
            holder.wait()
        if self.arbiter:
            signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)
            self.gone(LIMIT)
        for child in self.children:
            child.wait()
        self.unmount()
        end = time.monotonic() + LIMIT
        while os.path.exists(self.tmp) and time.monotonic() < end:
            shutil.rmtree(self.tmp, ignore_errors=True)  # a process that just died may still have made a file


class Cluster(World):
    """sluiced with fractions, a kubelet that is none, and as much of an API server as it asks for."""
    name = "cluster"
    END = 10.0  # so often the agent asks kubelet who is there
    SLOW = 10.0  # s between the agent's tries to follow a lease, after many failures

    def __init__(self, soak):
        from fraction_world import Node  # pylint: disable=import-outside-toplevel
        self.node = Node("h200")
        super().__init__(soak, self.node.arb)
        self.agent_since, self.slots, self.pods = 0.0, {}, 0

    def begin(self):
        if os.environ.get("SLUICE_SOAK_INSIDE"):
            self.mount_small_disk()
        self.start()

    def start(self):
        try:
            self.node.start()
        except AssertionError as e:
            raise Violation(f"hang: the agent: {e}") from None
        self.agent_since = time.monotonic()
        self.look()

    def look(self):
        """Whoever serves the directory now: the agent's own arbiter, or one that was left behind."""
        def serves(seconds):
            done = self.soak.command("status", "--json")
            pid = json.loads(done.stdout).get("arbiter_pid") if done.returncode == 0 else None
            if not pid:
                time.sleep(min(seconds, 0.02))
            return pid

        pid = Patience(self.soak.processes).until(serves, "an arbiter beside the agent")
        if pid != self.arbiter:
            if self.arbiter:
                self.lost()
            self.found(pid)

    def ready_since(self):
        return max(self.started, self.agent_since)

    def check_alive(self):
        super().check_alive()
        if self.node.agent.poll() is not None:
            raise Violation(f"died: the agent ended with {self.node.agent.returncode}")

    def daemons(self):
        return {**super().daemons(), "the agent": (self.node.agent.pid, time.monotonic() - self.agent_since)}

    def restart(self, draw, life):
        """The arbiter alone, which the agent starts again; or the agent: killed, it leaves the arbiter behind, told
        to end, it takes along the one it started."""
        self.check_alive()
        if draw.random() < 0.4:
            signal.pidfd_send_signal(self.pidfd, draw.choice([signal.SIGKILL, signal.SIGTERM]))
            Patience(lambda: [self.arbiter]).until(self.gone, "the arbiter's end")
            self.lost()
            life(draw.choice([0, 0.3]))
            self.look()
            return
        how, own = draw.choice([signal.SIGKILL, signal.SIGTERM]), self.is_own()
        self.node.agent.send_signal(how)
        self.soak.ended_within(self.node.agent, f"the agent after {how.name}")
        self.node.again()
        if how == signal.SIGTERM and own:
            Patience(lambda: [self.arbiter]).until(self.gone, "the arbiter's end beside its agent's")
            self.lost()
        life(draw.choice([0, 0.3, 1.0]))
        self.start()

    def is_own(self):
        """Did this agent start the arbiter, or was it there before?"""
        with open(f"/proc/{self.arbiter}/stat", encoding="utf-8") as f:
            return int(f.read().rsplit(")", 1)[1].split()[1]) == self.node.agent.pid

    def free_slot(self):
        return next(i for i in range(10) if i not in self.slots.values())

    def new_tenant(self, name, limit, cores):
        slot = self.free_slot()
        self.pods += 1
        self.node.pod(name, {"main": [(0, limit, int(cores.split(":", maxsplit=1)[0]))]}, uid=f"u-{self.pods}")
        self.node.place(name, self.node.slot(slot))
        [error] = self.node.prestart(self.node.slot(slot))
        if error:
            self.node.gone(name)
            return None, error
        self.slots[name] = slot
        tenant_name = self.node.tenant_of(self.node.slot(slot))
        attach = os.path.join(self.node.arb, "k", tenant_name, "attach.sock")
        env = dict(self.node.sim, SLUICE_ATTACH=attach, LD_PRELOAD=os.path.join(self.soak.build, "lib/libsluice.so"),
                   LD_LIBRARY_PATH=os.path.join(self.soak.build, "sim"))
        tenant = Tenant(self.soak, name, limit, env)
        tenant.sluice_name = tenant_name
        return tenant, ""

    def set_limit(self, tenant, limit):
        """By another lease of the pod, as sluice-controller changes it: `sluice set` refuses that. The agent follows."""
        self.node.resize(tenant.name, limit)
        if self.soak.tight:
            return "the disk is full: the agent follows now or later"
        self.followed(tenant, limit, LIMIT)
        return ""

    def catches_up(self, tenant, limit):
        self.followed(tenant, limit, LIMIT + self.SLOW)
        return True

    def followed(self, tenant, limit, within):
        def has_it(seconds):
            there = self.soak.status().get(tenant.sluice_name)
            if there and there["gpus"][0]["memory_limit_bytes"] >> 20 == limit:
                return True
            time.sleep(min(seconds, 0.02))
            return False

        Patience(self.soak.processes, within).until(has_it, f"the agent follows {tenant.name}'s lease of {limit} MiB")

    def end_tenant(self, tenant):
        self.node.status(tenant.name, phase="Succeeded")
        self.node.gone(tenant.name)
        del self.slots[tenant.name]

    def end(self):
        self.node.agent.kill()
        self.node.agent.wait()
        folders.end_arbiters(self.node.dir)
        self.unmount()
        with contextlib.suppress(OSError):
            self.node.end()
