# SPDX-License-Identifier: Apache-2.0
"""Waiting for what must come true."""
import time


def until(what, condition, seconds=20, every=0.02, error=AssertionError):
    """Asks until condition() gives something true, and returns that. `what` is a text, or gives one."""
    end = time.monotonic() + seconds
    while True:
        got = condition()
        if got:
            return got
        if time.monotonic() > end:
            raise error(f"waited {seconds:g} s for {what() if callable(what) else what}")
        time.sleep(every)
