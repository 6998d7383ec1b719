#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every copy within the card and every memset counts as GPU time; copies from and to the host do not.

usage: copies.py BUILD_DIR
"""
import json
import os
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import folders  # noqa: E402

build = os.path.abspath(sys.argv[1])
sluice = os.path.join(build, "bin", "sluice")
program = os.path.join(build, "tests", "bin", "copies_tenant")


def counted_by_now(env):
    status = subprocess.run([sluice, "status", "--json"], env=env, check=True, capture_output=True)
    return json.loads(status.stdout)["tenants"][0]["launches"]


def launches(cores, fault, all_count):
    """How many calls the program says should count, and how many did. Its watch thread tells them a moment later."""
    with folders.world("slc.") as place:
        env = {**os.environ, "SLUICE_DIR": os.path.join(place, "d"), "SLUICE_SIM": "h200"}
        if fault:
            env["SLUICE_SIM_FAULT"] = fault
        run = subprocess.Popen([sluice, "run", "--name", "one", "--cores", cores, "--", program], env=env,
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            asked = int(run.stdout.readline())
            got = counted_by_now(env)
            end = time.monotonic() + 20
            while all_count and got < asked and time.monotonic() < end:
                time.sleep(0.02)
                got = counted_by_now(env)
        finally:
            run.communicate("\n")
        if run.returncode != 0:
            sys.exit(f"copies: the program ended with {run.returncode}")
        return asked, got


failed = False
# With a limit by slices, with a limit by turns. Without a limit the calls have to work; few are counted.
for cores, fault, counted in (("50", None, True), ("50", "groups=refused", True), ("100", None, False)):
    asked, got = launches(cores, fault, counted)
    good = got == asked or not counted
    failed |= not good
    print(f"{'ok' if good else 'FAIL'}: --cores {cores} {fault or ''}: {asked} calls, {got} counted")
sys.exit(1 if failed else 0)
