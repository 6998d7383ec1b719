# SPDX-License-Identifier: Apache-2.0
"""A folder for an arbiter, removed once the arbiters that serve it have ended."""
import contextlib
import os
import signal
import tempfile
import time


def arbiters(folder):
    """Processes that serve a directory in the folder."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", encoding="utf-8", errors="replace") as f:
                words = f.read().split("\0")
        except OSError:
            continue
        if "arbiter" in words and any(w == folder or w.startswith(folder + "/") for w in words):
            found.append(int(pid))
    return found


def end_arbiters(folder):
    """An arbiter writes into its directory as long as it lives: removing that meanwhile would fail."""
    for how in (signal.SIGTERM, signal.SIGKILL):
        for pid in arbiters(folder):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, how)
        end = time.monotonic() + 10
        while arbiters(folder) and time.monotonic() < end:
            time.sleep(0.02)


@contextlib.contextmanager
def world(prefix):
    with tempfile.TemporaryDirectory(prefix=prefix) as folder:
        try:
            yield folder
        finally:
            end_arbiters(folder)
