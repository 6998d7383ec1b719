#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the end-to-end tests: a real Kubernetes node, the agent from its image, simulated GPUs.

    tests/e2e/run.py [--list] [--only PATTERN] [--gpus SPEC] [--keep]

One line a test. When one fails its messages, the components' logs and the objects' state stay in a folder
that the last lines name. Exit status: 0 all passed, 1 a test failed, 2 they could not be run here.
"""
import argparse
import fnmatch
import os
import subprocess
import sys
import time
import traceback

import binaries
import images
import sandbox
from cluster import Cluster, Failed
from world import TESTS, World

import test_strategies  # noqa: F401  registers its tests
import test_recovery  # noqa: F401
import test_dra  # noqa: F401
import test_fractions  # noqa: F401
import test_explain  # noqa: F401
import test_dra_acceptance  # noqa: F401
import test_dra_shares  # noqa: F401
import test_dra_mps  # noqa: F401
import test_dra_reboot  # noqa: F401
import test_dra_four  # noqa: F401
import test_dra_rights  # noqa: F401
import test_dialects  # noqa: F401
import test_page  # noqa: F401
import test_nvidia_claims  # noqa: F401
import test_schedulers  # noqa: F401
import test_vm  # noqa: F401
import test_chart  # noqa: F401
import test_operator  # noqa: F401
import test_upgrade  # noqa: F401
import test_uninstall  # noqa: F401
import test_switch  # noqa: F401
import test_walk  # noqa: F401
import test_simulated  # noqa: F401
import test_findings  # noqa: F401

CANNOT_RUN = 2


def arguments():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--list", action="store_true", help="name the tests and end")
    p.add_argument("--only", default="*", metavar="PATTERN", help="tests whose name matches, e.g. 'mig*'")
    p.add_argument("--gpus", default="h200", metavar="SPEC", help="the node's cards (docs/simulated-gpu.md)")
    p.add_argument("--keep", action="store_true", help="keep the logs also when all is well")
    return p.parse_args()


def run_one(world, name, function):
    """None, or what went wrong."""
    start = time.monotonic()
    try:
        note = function(world) or ""
        error = None
    except Failed as e:
        error = str(e)
    except Exception:  # pylint: disable=broad-except
        error = traceback.format_exc()
    seconds = time.monotonic() - start
    if error is None:
        print(f"ok    {name:44} {seconds:5.1f} s  {note}".rstrip(), flush=True)
    else:
        print(f"FAIL  {name:44} {seconds:5.1f} s\n      " + error.strip().replace("\n", "\n      "),
              flush=True)
        try:
            world.cluster.save_state(name)
        except Exception as e:  # pylint: disable=broad-except
            print(f"      (its state could not be saved: {e})")
        world.clean()
    return error


def main(work):
    args = arguments()
    cluster = Cluster(work)
    failed = []
    try:
        start = time.monotonic()
        cluster.start([images.pause(work), images.test(work), images.agent()])
        world = World(cluster, args.gpus)
        chosen = [(n, f) for n, f in TESTS
                  if fnmatch.fnmatch(n, args.only) and getattr(f, "cards", 1) == len(world.cards)]
        if not chosen:
            raise Failed(f"no test called {args.only!r} is for a node with {len(world.cards)} GPUs")
        version = subprocess.run([cluster.programs["kubelet"], "--version"], capture_output=True,
                                 text=True, check=False).stdout.strip()
        print(f"{version}, node ready after {time.monotonic() - start:.1f} s; GPUs: {args.gpus}",
              flush=True)
        failed = [name for name, function in chosen if run_one(world, name, function)]
        print(f"{len(chosen) - len(failed)} of {len(chosen)} tests passed"
              + (f"; failed: {', '.join(failed)}" if failed else ""), flush=True)
        if args.keep:
            cluster.save_state("end")
    except Failed as e:
        print(f"FAIL  the cluster does not start: {e}", flush=True)
        failed = ["cluster"]
    except KeyboardInterrupt:
        print("interrupted", flush=True)
        return 130
    finally:
        cluster.stop()
    return 1 if failed else 0


if __name__ == "__main__":
    options = arguments()
    if options.list:
        print("\n".join(n + (f"  (--gpus {f.gpus})" if hasattr(f, "cards") else "") for n, f in TESTS))
        sys.exit(0)
    if not [n for n, _ in TESTS if fnmatch.fnmatch(n, options.only)]:
        raise SystemExit(f"e2e: no test is called {options.only!r}: see --list")
    try:
        binaries.find()
        images.agent()
        status = sandbox.run_inside(main, lambda s: s == 1 or options.keep)
    except (binaries.Missing, sandbox.CannotRun, images.NotBuilt) as reason:
        print(f"e2e: NOT RUN: {reason}")
        sys.exit(CANNOT_RUN)
    if status == 1 or options.keep:
        print(f"logs: {sandbox.last_work()}/logs")
    sys.exit(status)
