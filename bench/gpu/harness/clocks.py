# SPDX-License-Identifier: Apache-2.0
"""The GPU's SM clock and power while cells run, from one nvidia-smi in the background."""
import os
import pty
import shutil
import subprocess
import threading
import time


def parse(line):
    """(MHz, W) of a line of nvidia-smi, or None where it is something else or the card does not say."""
    try:
        mhz, watts = line.split(",")
        return float(mhz), float(watts)
    except ValueError:
        return None


class Clocks:
    PERIOD_MS = 300  # a card at its power limit swings within a second: one look a second would alias

    def __init__(self, real):
        self.command = ["nvidia-smi", "--query-gpu=clocks.sm,power.draw", "-i", "0",
                        "--format=csv,noheader,nounits", f"--loop-ms={self.PERIOD_MS}"]
        self.there = real and shutil.which("nvidia-smi") is not None
        self.process = None
        self.samples = []

    def start(self):
        if not self.there or self.process:
            return
        ours, theirs = pty.openpty()  # a terminal: into a pipe it might hold its lines back
        self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=theirs,
                                        stderr=subprocess.DEVNULL)
        os.close(theirs)
        threading.Thread(target=self._read, args=(ours,), daemon=True).start()

    def _read(self, fd):
        try:
            with os.fdopen(fd, encoding="ascii", errors="replace") as lines:
                for line in lines:
                    got = parse(line)
                    if got:
                        self.samples.append((time.clock_gettime_ns(time.CLOCK_MONOTONIC), *got))
        except OSError:  # how a terminal whose other side is gone reads
            pass

    def stop(self):
        if self.process:
            self.process.terminate()
            self.process.wait()
            self.process = None

    def between(self, from_ns, until_ns):
        """Means over an interval; nothing where nobody looked."""
        mine = [s for s in self.samples if from_ns <= s[0] <= until_ns]
        if not mine:
            return {}
        return {"sm_mhz": round(sum(s[1] for s in mine) / len(mine), 1),
                "power_w": round(sum(s[2] for s in mine) / len(mine), 1), "clock_samples": len(mine)}
