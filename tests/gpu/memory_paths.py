#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every way to get device memory, through every way to look it up, against a limit, on a real GPU.

usage: memory_paths.py BUILD_DIR [--out DIR] [--memory 3Gi] [--sim h200] [--paths A,B] [--jobs N]

Each path is one `sluice run --memory N` with three processes of memory_probe. For each lookup they
take all they can at the same time, are refused, and give it all back; at the end they hold as much
again when one ends, one is killed and one loses its context. Needs only the core build and Python.

Prints a table and "N passed, N failed"; with --out also writes DIR/memory-paths.json.
"""
import argparse
import concurrent.futures
import json
import os
import re
import select
import shutil
import subprocess
import sys
import tempfile
import time

PROCESSES = 3
LOOKUPS = ("direct", "dlsym", "dlsym-default", "proc", "proc-v1")
OUT_OF_MEMORY = 2
MIB = 1 << 20
# A driver may keep or give back something of its own while a process fills (a first graph, a first
# pool). More than this per process is not the driver's housekeeping but memory nobody counts.
DRIFT_BYTES = 32 * MIB
PATIENCE_S = 60
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


class Failed(Exception):
    """What a check found instead of what it expected."""


def check(ok, what):
    if not ok:
        raise Failed(what)


class Probe:
    """One process of the tenant, reached over a pair of pipes."""

    def __init__(self):
        self.child_in, self.to = os.pipe()
        self.back, self.child_out = os.pipe()
        self.pid, self.buffer = 0, b""

    def close_child_ends(self):
        os.close(self.child_in)
        os.close(self.child_out)

    def say(self, line):
        os.write(self.to, line.encode() + b"\n")

    def answer(self, word):
        """The numbers after `word` in the next line."""
        until = time.monotonic() + PATIENCE_S
        while b"\n" not in self.buffer:
            ready = select.select([self.back], [], [], max(0, until - time.monotonic()))[0]
            data = os.read(self.back, 4096) if ready else b""
            check(data, f"process {self.pid} gave no answer ({word})")
            self.buffer += data
        line, self.buffer = self.buffer.split(b"\n", 1)
        words = line.decode().split()
        check(words and words[0] == word, f"expected {word}, got: {line.decode()}")
        return [int(w) for w in words[1:]]

    def ask(self, line, word=None):
        self.say(line)
        return self.answer(word or line.split()[0])

    def close(self):
        for fd in (self.to, self.back):
            try:
                os.close(fd)
            except OSError:
                pass


class Tenant:
    """`sluice run` around a shell that starts the probes, says their ids and stays when they end."""

    def __init__(self, world, path):
        self.world, self.name = world, f"paths-{path}"
        self.probes = [Probe() for _ in range(PROCESSES)]
        probe = os.path.join(world.build, "tests", "bin", "memory_probe")
        script = "".join(f'"$0" "$1" "$2" </dev/fd/{p.child_in} >/dev/fd/{p.child_out} & echo $!; '
                         for p in self.probes) + "read stay"
        command = world.sluice("run") + ["--memory", world.memory, "--name", self.name, "--",
                                         "sh", "-c", script, probe, path, LOOKUPS[0]]
        fds = [fd for p in self.probes for fd in (p.child_in, p.child_out)]
        self.shell = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                      pass_fds=fds, text=True)
        for p in self.probes:
            p.close_child_ends()
        for p in self.probes:
            line = self.shell.stdout.readline()
            check(line.strip().isdigit(), f"sluice run did not start: exit {self.shell.poll()}")
            p.pid = int(line)

    def usage(self):
        """(limit, used, overhead, processes, oom_count) of this tenant as the arbiter sees it."""
        for t in self.world.status()["tenants"]:
            if t["name"] == self.name:
                g = t["gpus"][0]
                return (g["memory_limit_bytes"], g["memory_used_bytes"],
                        g["memory_overhead_bytes"], t["processes"], t["oom_count"])
        raise Failed("the tenant is gone from sluice status")

    def settle(self, most, processes):
        """Waits until the ledger has no more than this; returns (used, overhead) as last seen."""
        until = time.monotonic() + 10
        while True:
            _, now, overhead, alive, _ = self.usage()
            settled = now <= most and alive == processes and (processes or overhead == 0)
            if settled or time.monotonic() > until:
                check(now <= most, f"the ledger has {now} bytes, {most} are held")
                check(alive == processes, f"{alive} processes instead of {processes}")
                return now, overhead
            time.sleep(0.02)

    def end(self):
        for p in self.probes:
            p.close()
        if self.shell.stdin:
            self.shell.stdin.close()
        try:
            self.shell.wait(20)
        except subprocess.TimeoutExpired:
            self.shell.terminate()
        self.shell.stdout.close()


class World:
    def __init__(self, args, directory):
        self.build, self.sim, self.memory = os.path.abspath(args.build), args.sim, args.memory
        self.directory = directory

    def sluice(self, verb):
        command = [os.path.join(self.build, "bin", "sluice"), verb, "--dir", self.directory]
        return command + (["--sim", self.sim] if self.sim else [])

    def status(self):
        done = subprocess.run(self.sluice("status") + ["--json"], stdout=subprocess.PIPE, text=True,
                              timeout=PATIENCE_S, check=False)
        check(done.returncode == 0, f"sluice status ends with {done.returncode}")
        return json.loads(done.stdout)


def check_view(probe, limit):
    free, total, device_total, rc = probe.ask("info")
    check(rc == 0, f"cuMemGetInfo: {rc}")
    check(total == limit, f"cuMemGetInfo says {total} in all; the limit is {limit}")
    check(device_total == limit, f"cuDeviceTotalMem says {device_total}; the limit is {limit}")
    return free


def fill(tenant):
    """All take all they can at once. Returns the pieces each has, and what it was refused with."""
    for p in tenant.probes:
        p.say("fill")
    answers = [p.answer("got") for p in tenant.probes]
    return [a[0] for a in answers], [a[1] for a in answers]


def check_full(tenant, piece, cell):
    """Everything is taken: the sum is the limit less the contexts, to the piece."""
    limit, _, before, _, _ = tenant.usage()
    pieces, refused = fill(tenant)
    cell["refused_with"] = sorted(set(refused))
    cell["got_bytes"] = got = sum(pieces) * piece
    _, used, after, _, oom = tenant.usage()
    cell["overhead_bytes"], cell["overhead_before_bytes"] = after, before
    cell["ledger_full_bytes"] = used
    check(set(refused) == {OUT_OF_MEMORY}, f"refused with {refused}, not CUDA_ERROR_OUT_OF_MEMORY")
    check(oom >= PROCESSES, f"only {oom} refusals were counted")
    check(used == got, f"the ledger has {used} bytes, the processes {got}")
    check(abs(after - before) <= PROCESSES * DRIFT_BYTES,
          f"overhead went from {before} to {after} bytes while filling")
    least, most = limit - max(before, after), limit - min(before, after)
    check(got <= most, f"got {got} bytes beside {min(before, after)} of contexts: over {limit}")
    check(got > least - piece, f"got {got} of {least} bytes: a piece of {piece} would have fitted")
    free = check_view(tenant.probes[0], limit)
    check(free < piece + abs(after - before), f"refused, but cuMemGetInfo says {free} are free")
    return pieces


def check_lookup(tenant, lookup, piece, cell):
    for p in tenant.probes:
        check(p.ask(f"use {lookup}") == [1], f"no driver through {lookup}")
    check_view(tenant.probes[0], cell["limit_bytes"])
    check_full(tenant, piece, cell)
    for p in tenant.probes:
        check(p.ask("give", "gave")[1] == 0, "giving back failed")
    cell["ledger_after_bytes"] = tenant.settle(0, PROCESSES)[0]


def is_unserved(tenant, path, cell):
    """The 32-bit calls of CUDA 2 are in every driver's table, but a driver need not serve them: then
    it gives nothing, and nothing may be charged."""
    if not path.endswith("-v1"):
        return False
    got, rc = tenant.probes[0].ask("take 1", "got")
    if rc == 0:
        check(tenant.probes[0].ask("give", "gave")[1] == 0, "giving back failed")
        return False
    check(got == 0, f"{got} pieces and error {rc}")
    cell["ledger_after_bytes"] = tenant.settle(0, PROCESSES)[0]
    cell["note"] = f"this driver does not serve it (error {rc})"
    return True


def check_exit(tenant, piece, cell):
    """Full again; one loses its context, one is killed, one just ends. All the memory comes back.
    Pools, graph memory and what cuMemCreate made are the device's, not the context's: they may
    outlive the reset, not the process."""
    kept = check_full(tenant, piece, cell)[0] * piece
    if re.match("alloc|pitch|managed|array|mipmap", cell["path"]):
        kept = 0
    reset = tenant.probes[0].ask("reset")[0]
    check(reset == 0, f"resetting the context: error {reset}; now {tenant.usage()}")
    tenant.probes[1].say("crash")
    tenant.probes[2].say("quit")
    cell["ledger_reset_bytes"] = tenant.settle(kept, 1)[0]
    tenant.probes[0].say("quit")
    used, overhead = tenant.settle(0, 0)
    cell["ledger_after_bytes"] = used + overhead
    check(overhead == 0, f"{overhead} bytes of overhead, but no process")


def check_driver(tenant, world):
    """The probes are linked to the simulated driver for its names only: which one did they get?"""
    with open(f"/proc/{tenant.probes[0].pid}/maps", encoding="utf-8") as f:
        found = sorted(set(re.findall(r"\S*/libcuda\.so\S*", f.read())))
    check(found, "no libcuda.so is loaded")
    ours = [f for f in found if f.startswith(world.build + os.sep)]
    check(len(ours) == (len(found) if world.sim else 0), f"the wrong driver is loaded: {found}")
    return found[0]


def run_path(world, path):
    """All cells of one path: one for each lookup, one for the end."""
    cells = [{"path": path, "lookup": lookup, "passed": False, "note": "not reached"}
             for lookup in (*LOOKUPS, "(exit)")]
    cell, tenant = cells[0], None
    try:
        tenant = Tenant(world, path)
        ready = [p.answer("ready") for p in tenant.probes]
        check(all(rc == 0 for rc, _ in ready), f"contexts are refused: {ready}")
        driver, piece = check_driver(tenant, world), ready[0][1]
        limit = tenant.usage()[0]
        for cell in cells:
            cell.update(note="", limit_bytes=limit, piece_bytes=piece, driver=driver)
            if cell["lookup"] == "(exit)":
                if any(c["passed"] and "got_bytes" in c for c in cells):
                    check_exit(tenant, piece, cell)
                else:
                    cell["note"] = cells[0]["note"]
            elif not is_unserved(tenant, path, cell):
                check_lookup(tenant, cell["lookup"], piece, cell)
            cell["passed"] = True
    except (Failed, OSError, ValueError, subprocess.SubprocessError) as e:
        cell["note"] = str(e)
    finally:
        if tenant:
            tenant.end()
    return cells


def path_names():
    """The table of the probe's source is the list, so that a new path is a new case by itself."""
    source = os.path.join(ROOT, "tests", "integration", "memory_paths.c")
    with open(source, encoding="utf-8") as f:
        return re.findall(r'^    \{"([a-z0-9-]+)", take_', f.read(), re.M)


def mib(cell, key):
    return f"{cell[key] / MIB:.1f}" if key in cell else "-"


def show(cell):
    refused = ",".join(map(str, cell["refused_with"])) if "refused_with" in cell else "-"
    print(f"{'ok  ' if cell['passed'] else 'FAIL'} {cell['path']:<17}{cell['lookup']:<14}"
          f"{mib(cell, 'limit_bytes'):>8}{mib(cell, 'overhead_bytes'):>10}{mib(cell, 'got_bytes'):>9}"
          f"{refused:>9}{mib(cell, 'ledger_after_bytes'):>8}  {cell['note']}".rstrip(), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("build")
    parser.add_argument("--out")
    parser.add_argument("--memory", default="3Gi", help="the limit of each tenant")
    parser.add_argument("--sim", help="simulated cards instead of this machine's")
    parser.add_argument("--paths", help="only these, with commas")
    parser.add_argument("--jobs", type=int, default=3, help="tenants at the same time")
    args = parser.parse_args()
    paths = args.paths.split(",") if args.paths else path_names()
    began = time.monotonic()
    directory = tempfile.mkdtemp(prefix="sluice-paths-")
    print(f"{PROCESSES} processes in a tenant with {args.memory}; MiB. They must get together what "
          "the limit leaves beside\ntheir contexts, to one piece: 2 MiB, because the driver maps "
          "device memory in blocks of 2 MiB, or\n32 MiB from pools, which grow in steps of 32 MiB. "
          "Overhead is what the driver itself reports for them\nbeyond the ledger; if it moves while "
          f"they fill (at most {DRIFT_BYTES // MIB} MiB each), either reading may be the one that held.\n")
    print(f"     {'path':<17}{'lookup':<14}{'limit':>8}{'overhead':>10}{'got':>9}{'refused':>9}"
          f"{'ledger':>8}  note")
    try:
        world = World(args, directory)
        with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
            cells = []
            for done in pool.map(lambda path: run_path(world, path), paths):
                cells += done
                for cell in done:
                    show(cell)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    passed = sum(c["passed"] for c in cells)
    unserved = sum(c["passed"] and "got_bytes" not in c for c in cells)
    if args.out:
        os.makedirs(args.out, exist_ok=True)
        with open(os.path.join(args.out, "memory-paths.json"), "w", encoding="utf-8") as f:
            json.dump({"memory": args.memory, "simulated": args.sim, "processes": PROCESSES,
                       "seconds": round(time.monotonic() - began, 1), "cells": cells}, f, indent=1)
    print(f"\n{unserved} of the passed are calls this driver does not serve; "
          f"{time.monotonic() - began:.1f} s" if unserved else f"\n{time.monotonic() - began:.1f} s")
    print(f"{passed} passed, {len(cells) - passed} failed")
    # A run in which nothing was ever filled shows nothing.
    return 0 if passed == len(cells) and unserved < passed else 1


if __name__ == "__main__":
    sys.exit(main())
