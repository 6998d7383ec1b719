#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The n-th allocation inside libsluice fails, for every n there is: the program gets an error or none,
never a crash, and the ledger is empty once it has given everything back.

usage: preload_malloc.py BUILD_DIR MALLOC_NTH_LIBRARY PATH...
"""
import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import folders  # noqa: E402

BUILD, LIBRARY, PATHS = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2]), sys.argv[3:]
SLUICE = os.path.join(BUILD, "bin", "sluice")
PROGRAM = os.path.join(BUILD, "tests", "bin", "memory_faults_tenant")
# Inside the tenant: the program; then, when it is gone, what is left of it in the ledger.
SCRIPT = ('printf "go\\ngo\\n" | MALLOC_NTH=$1 LD_PRELOAD=$LD_PRELOAD:$2 "$3" direct $4 9>"$5/hit"; '
          'echo "code $?"; "$6" status --json --dir "$5" --sim h200')


def run(directory, nth):
    """Whether it came to the n-th at all."""
    text = subprocess.run(
        [SLUICE, "run", "--dir", directory, "--sim", "h200", "--memory", "8Gi", "--", "sh", "-c",
         SCRIPT, "sh", str(nth), LIBRARY, PROGRAM, " ".join(PATHS), directory, SLUICE],
        stdout=subprocess.PIPE, text=True, timeout=60, check=True).stdout
    said, status = text[:text.index("{")].split("\n"), json.loads(text[text.index("{"):])
    left = status["tenants"][0]["gpus"][0]["memory_used_bytes"]
    code = next(line for line in said if line.startswith("code "))
    if code not in ("code 0", "code 3") or (code == "code 0" and "done 0" not in said) or left != 0:
        sys.exit(f"FAILED: allocation {nth} failed: {said}, {left} bytes left in the ledger")
    return os.path.getsize(os.path.join(directory, "hit")) > 0


def main():
    nth = 1
    with folders.world("sluice-malloc-") as directory:
        while run(directory, nth):
            nth += 1
    print(f"{nth - 1} allocations of libsluice failed, one at a time")
    return 0 if nth > 1 else 1


if __name__ == "__main__":
    sys.exit(main())
