#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""No agent and no arbiter: a pod's only process starts all the same, under the limit that was left for it, and no other.

usage: fraction_alone.py BUILD_DIR [unittest arguments]
"""
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from fraction_node import Case  # noqa: E402
from fraction_world import BUILD, MIB, SLUICE  # noqa: E402
from waiting import until  # noqa: E402

PROGRAM = os.path.join(BUILD, "tests/bin/soak_tenant")
PUT_BY = 640  # MiB: what a context is taken for while nobody can measure it
CONTEXT = 500  # MiB: of a simulated H200
OUT_OF_MEMORY = 2


class Program:
    """A process of the tenant: it makes a context, and takes and gives memory when told to."""

    def __init__(self, env, **more):
        self.process = subprocess.Popen([PROGRAM], env=dict(env, **more), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True, bufsize=1)

    def started(self, seconds=20):
        """False: it ended instead."""
        ready, _, _ = select.select([self.process.stdout], [], [], seconds)
        if not ready:
            raise AssertionError("the program neither starts nor ends")
        return self.process.stdout.readline() == "ready\n"

    def ask(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return [int(word) for word in self.process.stdout.readline().split()]

    def most(self):
        """MiB that it gets, in pieces of 10."""
        rc, pieces = self.ask("fill 10 4096")
        assert rc == OUT_OF_MEMORY, rc
        assert self.ask("drain") == [0, 0]
        return pieces * 10

    def end(self):
        """What it said on stderr."""
        self.process.kill()
        said = self.process.communicate()[1]
        return said


class Alone(Case):
    spec = "h200"

    def setUp(self):
        super().setUp()
        self.programs = []
        self.node.start()

    def tearDown(self):
        for p in self.programs:
            if p.process.poll() is None:
                p.end()

    def tenant(self, mib, name="a", slot=1):
        n = self.node
        n.pod(name, {"main": [(0, mib, 30)]})
        n.place(name, n.slot(slot))
        self.assertEqual(n.prestart(n.slot(slot)), [""])
        return n.tenant_of(n.slot(slot))

    def folder(self, tenant):
        return os.path.join(self.node.arb, "k", tenant)

    def program(self, tenant, **more):
        preload = " ".join([os.environ.get("RUNTIME", ""), os.path.join(BUILD, "lib/libsluice.so")]).strip()
        env = dict(self.node.sim, SLUICE_ATTACH=os.path.join(self.folder(tenant), "attach.sock"), LD_PRELOAD=preload,
                   LD_LIBRARY_PATH=os.path.join(BUILD, "sim"))
        self.programs.append(Program(env, **more))
        return self.programs[-1]

    def lease_file(self, tenant):
        return os.path.exists(os.path.join(self.folder(tenant), "lease"))

    def safe(self, tenant):
        until("the arbiter lets a process start alone", lambda: self.lease_file(tenant))

    def refused(self, tenant, wait=1):
        """It does not start: error 800, and a line."""
        p = self.program(tenant, SLUICE_ATTACH_WAIT=str(wait))
        self.assertFalse(p.started())
        self.assertIn("CUDA answers error 800", p.process.communicate()[1])

    def status(self, tenant):
        return {t["name"]: t for t in self.node.tenants().values()}.get(tenant)

    def used(self, tenant):
        t = self.status(tenant)
        return t and t["gpus"][0]["memory_used_bytes"] // MIB

    def test_the_only_process_starts(self):
        tenant = self.tenant(4000)
        self.safe(tenant)
        self.node.stop()
        first = self.program(tenant)
        self.assertTrue(first.started())
        self.assertEqual(first.most(), (4000 - PUT_BY) // 10 * 10)  # exact, with the context's place kept
        self.assertEqual(first.ask("alloc 0 1000"), [0, 0])
        self.assertEqual(first.ask("launch 20")[0], 0)
        self.refused(tenant)  # a second one could take what the first one has
        self.node.start()
        until("the process is back", lambda: (self.status(tenant) or {}).get("processes") == 1)
        until("what it holds is known", lambda: self.used(tenant) == 1000)
        until("its context is measured, and its place given back",
              lambda: first.most() == (4000 - 1000 - CONTEXT) // 10 * 10)
        second = self.program(tenant)
        self.assertTrue(second.started())
        until("all count together", lambda: second.most() == (4000 - 1000 - 2 * CONTEXT) // 10 * 10)
        self.assertIn("this is the only process of", first.end())
        until("its memory is back", lambda: self.used(tenant) == 0)

    def test_beside_a_process_from_before(self):
        """Also beside one that stands still, and not beside one that ended."""
        tenant = self.tenant(4000)
        first = self.program(tenant)
        self.assertTrue(first.started())
        self.assertEqual(first.ask("alloc 0 1000"), [0, 0])
        self.safe(tenant)
        self.node.stop(signal.SIGKILL)
        os.killpg(self.node.groups[-1], signal.SIGKILL)  # the arbiter, too
        first.process.send_signal(signal.SIGSTOP)
        self.refused(tenant)
        first.process.send_signal(signal.SIGCONT)
        self.assertEqual(first.ask("free 0"), [0, 0])
        first.end()
        last = self.program(tenant)
        self.assertTrue(last.started())
        self.assertEqual(last.most(), (4000 - PUT_BY) // 10 * 10)

    def test_one_of_many(self):
        tenant = self.tenant(4000)
        self.safe(tenant)
        self.node.stop()
        many = [self.program(tenant, SLUICE_ATTACH_WAIT="2") for _ in range(8)]
        self.assertEqual(sum(p.started() for p in many), 1)
        for p in many:
            p.end()
        self.assertTrue(self.program(tenant).started())  # the dead hold no lock

    def test_the_last_limit_holds(self):
        tenant = self.tenant(4000)
        self.safe(tenant)
        self.node.resize("a", 2000)
        until("the tenant follows", lambda: self.status(tenant)["gpus"][0]["memory_limit_bytes"] == 2000 * MIB)
        self.safe(tenant)
        self.node.stop()
        p = self.program(tenant)
        self.assertTrue(p.started())
        self.assertEqual(p.most(), (2000 - PUT_BY) // 10 * 10)

    def test_no_room_for_a_context(self):
        tenant = self.tenant(PUT_BY)
        self.safe(tenant)
        self.node.stop()
        self.refused(tenant)

    def test_paused(self):
        tenant = self.tenant(4000)
        self.safe(tenant)
        self.sluice("pause", tenant)
        self.assertFalse(self.lease_file(tenant))
        self.node.stop()
        self.refused(tenant)
        self.node.start()
        until("the tenant is there", lambda: self.status(tenant))
        self.sluice("resume", tenant)
        self.safe(tenant)

    def test_beside_a_process_of_an_older_build(self):
        """It does not know the lock."""
        tenant = self.tenant(4000)
        self.safe(tenant)
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
            s.connect(os.path.join(self.folder(tenant), "attach.sock"))
            hello = struct.pack("<IHHIIII32s", 0x53434C53, 1, 1, 56, 0, 0xFFFFFFFF, os.getpid(), b"old")
            s.send(hello)
            self.assertEqual(struct.unpack_from("<H", s.recv(4096), 6)[0], 3)  # WELCOME
            self.assertFalse(self.lease_file(tenant))
            second = self.program(tenant)  # measurements go on, and change nothing
            self.assertTrue(second.started())
            time.sleep(1.5)
            self.assertFalse(self.lease_file(tenant))
            self.node.stop()
            second.end()
            self.refused(tenant)

    def test_a_program_that_closes_every_descriptor(self):
        """And so gives up the lock: it takes it again."""
        tenant = self.tenant(4000)
        first = self.program(tenant)
        self.assertTrue(first.started())
        self.safe(tenant)
        first.ask("closeall")
        self.node.stop()
        self.refused(tenant, wait=3)

    def test_nothing_is_left(self):
        tenant = self.tenant(4000)
        self.safe(tenant)
        self.node.gone("a")
        until("the tenant is gone", lambda: not os.path.exists(self.folder(tenant)))

    def sluice(self, *words):
        done = subprocess.run([SLUICE, words[0], "--dir", self.node.arb, *words[1:]], capture_output=True, text=True,
                              env=self.node.env, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + (sys.argv[2:] or ["Alone"]))
