#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""usage: attacks.py BUILD_DIR SECONDS KEEP ATTACK…: each attack beside a victim, which may not stand still, nor a status take,
for more than so many SECONDS, and which keeps the part KEEP of its share (0: not judged); see harness.py."""
import os
import sys

import harness

build, limit, keep, bad = os.path.abspath(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3]), 0
print(harness.HEADER, flush=True)
for name in sys.argv[4:]:
    try:
        harness.measure(build, name, limit, keep)
    except harness.Failure as failure:
        print(f"{name}: {failure}", flush=True)
        bad = 1
sys.exit(bad)
