#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""usage: attacks.py BUILD_DIR SECONDS ATTACK…: each attack of attack.c beside a victim, which may stand still, and a
status take, so many seconds longer than without; see harness.py."""
import os
import sys

import harness

build, limit, bad = os.path.abspath(sys.argv[1]), float(sys.argv[2]), 0
for name in sys.argv[3:]:
    try:
        harness.measure(build, name, limit=limit)
    except harness.Failure as failure:
        print(f"{name}: {failure}", flush=True)
        bad = 1
sys.exit(bad)
