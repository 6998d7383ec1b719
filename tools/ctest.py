#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ctest.py BUILD [OPTION...]: runs ctest there, and says at the end why tests were skipped, which ctest does not.

A test that is skipped prints a line `skipped: WHY`. One that gives no reason is a failure. Parts of a test that were
skipped are told, too: those of bats (`ok 3 ... # skip WHY`) and of Python's unittest (`... skipped 'WHY'`).
"""
import collections
import os
import re
import subprocess
import sys

OUTPUT = re.compile(r'^"(?P<name>[^"\n]*)" start time: [^\n]*\nOutput:\n-+\n(?P<said>.*?)\n?<end of output>$', re.M | re.S)
WHOLE = re.compile(r"^(?:skipped: |ok \d+ .*# skip )(.+)$", re.M)
PART = re.compile(r"^ok \d+ .*# skip (.+)$|\.\.\. skipped ['\"](.+)['\"]$", re.M)


def read(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as f:
            return f.read()
    except FileNotFoundError:
        return ""


def report(build):
    """Prints the skipped tests by their reasons; returns those that gave none."""
    log = os.path.join(build, "Testing", "Temporary")
    skipped = {line.partition(":")[2] for line in read(os.path.join(log, "LastTestsDisabled.log")).splitlines()}
    reasons, parts, silent = collections.defaultdict(list), [], []
    for test in OUTPUT.finditer(read(os.path.join(log, "LastTest.log"))):
        name, said = test["name"], test["said"]
        if name in skipped:
            why = WHOLE.search(said)
            reasons[why[1]].append(name) if why else silent.append(name)
            continue
        count = collections.Counter(m[1] or m[2] for m in PART.finditer(said))
        parts += [f"  {n} of {name}: {why}" for why, n in count.items()]
    if reasons or parts:
        print("\nSkipped, and why:")
    for why, names in reasons.items():
        print(f"  {', '.join(sorted(names))}: {why}")
    print("\n".join(parts), end="\n" if parts else "")
    return silent


def main():
    build = sys.argv[1]
    for old in ("LastTestsDisabled.log", "LastTest.log"):
        path = os.path.join(build, "Testing", "Temporary", old)
        if os.path.exists(path):
            os.unlink(path)
    code = subprocess.run(["ctest", "--test-dir", build, *sys.argv[2:]], check=False).returncode
    sys.stdout.flush()
    silent = report(build)
    if silent:
        print(f"skipped without a reason: {', '.join(silent)}: print `skipped: WHY` in the test")
    sys.exit(code or (1 if silent else 0))


if __name__ == "__main__":
    main()
