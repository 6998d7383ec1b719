# SPDX-License-Identifier: Apache-2.0
"""Runs the tests of a unittest program several at a time, each in a process of its own.

For tests that sleep most of the time, each in a world of its own. The tests in `alone` need the processors: they run
first, one after the other. Then come those in `long`, before the others.
"""
import concurrent.futures
import os
import subprocess
import sys
import time
import unittest


def flatten(suite):
    for one in suite:
        if isinstance(one, unittest.TestSuite):
            yield from flatten(one)
        else:
            yield one.id().removeprefix("__main__.")


def run_one(command, name):
    began = time.monotonic()
    with subprocess.Popen([*command, name], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True) as child:
        said = child.stdout.read()
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    good = child.returncode == 0
    print(f"{'ok  ' if good else 'FAIL'} {name}: {time.monotonic() - began:.1f} s, "
          f"{used.ru_utime + used.ru_stime:.1f} s of a processor", flush=True)
    if not good:
        print(said, flush=True)
    return good


def main(command, at_once, names, alone=(), long=()):
    """command: this program without names of tests."""
    tests = list(dict.fromkeys(flatten(unittest.defaultTestLoader.loadTestsFromNames(names, sys.modules["__main__"]))))
    if not tests:
        sys.exit(f"no tests in {names}")
    tests_at_once = sorted(set(tests) - set(alone), key=lambda name: (name not in long, tests.index(name)))
    good = [run_one(command, name) for name in tests if name in alone]
    with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
        good += pool.map(lambda name: run_one(command, name), tests_at_once)
    print(f"{sum(good)} of {len(good)} passed")
    sys.exit(0 if all(good) else 1)
