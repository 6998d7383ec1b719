#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
`sluice run` keeps an arbiter beside its command, however often one is killed or told to end, and the command is
refused nothing meanwhile. Usage: restart_run.py BUILD RESTARTS
"""
import json
import os
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import folders  # noqa: E402

BUILD, RESTARTS = os.path.abspath(sys.argv[1]), int(sys.argv[2])
SLUICE = os.path.join(BUILD, "bin", "sluice")
GIB = 1 << 30
ROUNDS = 200  # of taking and giving, after each restart


def fail(text):
    sys.exit(f"FAILED: {text}")


class Tenant:
    def __init__(self, directory):
        self.where = ["--dir", directory, "--sim", "h200"]
        self.run = subprocess.Popen(
            [SLUICE, "run", *self.where, "--memory", "60Gi", "--name", "t",
             "--libsluice", os.path.join(BUILD, "lib", "libsluice.so"), "--",
             os.path.join(BUILD, "tests", "bin", "restart_tenant")],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        self.expect(None, "ready 0")

    def expect(self, line, answer):
        if self.ask(line) != answer:
            fail(f"{line}: not {answer}")

    def ask(self, line):
        if line:
            self.run.stdin.write(line + "\n")
        return self.run.stdout.readline().strip()

    def granted(self):
        _, granted, refused, other = self.ask("count").split()
        if (refused, other) != ("0", "0"):
            fail(f"{granted} granted, {refused} refused, {other} failed")
        return int(granted)

    def arbiter(self):
        """The PID of the one that runs, 0 without; with the tenant in it."""
        out = subprocess.run([SLUICE, "status", "--json", *self.where], stdout=subprocess.PIPE,
                             stderr=subprocess.DEVNULL, text=True, timeout=60, check=False).stdout
        status = json.loads(out) if out else {}
        there = [t for t in status.get("tenants") or [] if t["name"] == "t" and t["processes"] == 1]
        return status.get("arbiter_pid") or 0 if there else 0

    def wait_for_arbiter(self, other_than):
        until = time.monotonic() + 60
        while (pid := self.arbiter()) in (0, other_than):
            if time.monotonic() > until:
                fail(f"no arbiter came after {other_than}")
            time.sleep(0.01)
        return pid


def main():
    with folders.world("sluice-restart-") as directory:
        os.chmod(directory, 0o700)
        tenant = Tenant(directory)
        tenant.expect(f"hold {40 * GIB}", "held 0")
        tenant.expect(f"churn {5 * GIB}", "churn 0")
        pid = tenant.wait_for_arbiter(0)
        for number in (signal.SIGKILL, signal.SIGTERM):
            for _ in range(RESTARTS):
                os.kill(pid, number)
                pid = tenant.wait_for_arbiter(pid)
                enough = tenant.granted() + ROUNDS
                while tenant.granted() < enough:
                    time.sleep(0.01)
            print(f"{RESTARTS} by {number.name}: {tenant.granted()} granted, none refused")
        tenant.run.stdin.close()
        if tenant.run.wait(timeout=60) != 0:
            fail("the command did not end well")
        while os.path.exists(os.path.join(directory, "arbiter.sock")):
            time.sleep(0.05)  # it leaves by itself; ctest's timeout says when it does not


if __name__ == "__main__":
    main()
