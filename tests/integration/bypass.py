#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Roads around libsluice: the documented ones fail, the others are seen by the audit.

usage: bypass.py BUILD_DIR [unittest options]
"""
import json
import os
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import folders  # noqa: E402

BUILD = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else "build"
SLUICE = os.path.join(BUILD, "bin", "sluice")
TENANT = os.path.join(BUILD, "tests", "integration", "bypass_tenant")
LIBSLUICE = os.path.join(BUILD, "lib", "libsluice.so")
RUNTIME = os.environ.get("SLUICE_TEST_RUNTIME", "")  # an instrumented build preloads it first
OUT_OF_MEMORY = 2
LIMIT_MIB = 3072


class Bypass(unittest.TestCase):
    def setUp(self):
        self.tmp = tempfile.TemporaryDirectory(prefix="sluice-bypass-")
        self.dir = os.path.join(self.tmp.name, "w")
        self.addCleanup(self.tmp.cleanup)
        self.addCleanup(folders.end_arbiters, self.tmp.name)

    def run_command(self, *command):
        return [SLUICE, "--dir", self.dir, "run", "--sim", "h200", "--name", "t",
                "--memory", f"{LIMIT_MIB}Mi", "--", *command]

    def take(self, *command):
        out = subprocess.run(self.run_command(*command), check=True, stdout=subprocess.PIPE, text=True)
        got, rc = out.stdout.split()
        return int(got), int(rc)

    def held(self, *command):
        """Runs it under the lease while it holds what it got; returns (got, findings, overhead). An audit may have
        looked while it was still taking; the next one, at most 16 s later, sees all of it."""
        p = subprocess.Popen(self.run_command(*command), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                             text=True)
        try:
            got = int(p.stdout.readline().split()[0])
            deadline = time.monotonic() + 60
            while time.monotonic() < deadline:
                status = json.loads(subprocess.run([SLUICE, "--dir", self.dir, "status", "--json"],
                                                   check=True, stdout=subprocess.PIPE, text=True).stdout)
                overhead = status["tenants"][0]["gpus"][0]["memory_overhead_bytes"]
                if status["audit"] and overhead >= got << 20:
                    break
                time.sleep(0.1)
            return got, status["audit"], overhead
        finally:
            p.communicate(timeout=20)

    def assert_limited(self, taken):
        got, rc = taken
        self.assertEqual(rc, OUT_OF_MEMORY)
        self.assertLess(got, LIMIT_MIB)

    def test_roads_that_fail(self):
        # A sanitizer's run-time ends a program that loads anything with RTLD_DEEPBIND.
        for road in ("dlsym", "procaddr") + (() if RUNTIME else ("deepbind",)):
            with self.subTest(road=road):
                self.assert_limited(self.take(TENANT, road, "6000"))

    def test_preload_removed_in_a_child(self):
        got, audit, overhead = self.held("env", "-u", "LD_PRELOAD", TENANT, "dlsym", "6000", "hold")
        self.assertGreaterEqual(got, 5952)  # it works, on a host: what is left is to see it
        self.assertEqual(len(audit), 1, audit)
        self.assertEqual(audit[0]["tenant"], "t")
        self.assertGreaterEqual(overhead, got << 20)  # and its tenant is charged for it

    def test_symbols_read_by_hand(self):
        got, audit, overhead = self.held("env", "-u", "NONE", TENANT, "raw", "6000", "hold")
        self.assertGreaterEqual(got, 5952)
        self.assertEqual(len(audit), 1, audit)
        self.assertGreaterEqual(overhead, got << 20)

    def test_driver_in_another_namespace(self):
        if RUNTIME:
            self.skipTest("a sanitizer's run-time cannot be loaded twice")
        got, audit, overhead = self.held("env", "-u", "NONE", TENANT, "dlmopen", "6000", "hold")
        self.assertGreaterEqual(got, 5952)
        self.assertEqual(len(audit), 1, audit)
        self.assertEqual(audit[0]["tenant"], "t")
        self.assertGreaterEqual(overhead, got << 20)

    def test_attach_path_unset(self):
        got, audit, overhead = self.held("env", "-u", "NONE", TENANT, "unset", "6000", "hold")
        self.assertGreaterEqual(got, 5952)
        self.assertEqual(len(audit), 1, audit)
        self.assertEqual(audit[0]["tenant"], "t")
        self.assertGreaterEqual(overhead, got << 20)

    def test_etc_preload_cannot_be_unset(self):
        """What the agent does in containers: /etc/ld.so.preload instead of the environment."""
        probe = subprocess.run(["unshare", "-m", "true"], check=False, stderr=subprocess.DEVNULL)
        if probe.returncode != 0:
            self.skipTest("no right to make a mount namespace here")
        listing = os.path.join(self.tmp.name, "ld.so.preload")
        with open(listing, "w", encoding="utf-8") as f:
            f.write(RUNTIME + LIBSLUICE + "\n")
        inside = (f"touch /etc/ld.so.preload 2>/dev/null; mount --bind {listing} /etc/ld.so.preload && "
                  f"exec env -u LD_PRELOAD {TENANT} dlsym 6000")
        made = not os.path.exists("/etc/ld.so.preload")
        try:
            self.assert_limited(self.take("unshare", "-m", "sh", "-c", inside))
        finally:
            if made and os.path.exists("/etc/ld.so.preload"):
                os.unlink("/etc/ld.so.preload")


if __name__ == "__main__":
    unittest.main(verbosity=2)
