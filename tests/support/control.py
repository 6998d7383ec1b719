# SPDX-License-Identifier: Apache-2.0
"""How much of a processor one more thread of this machine gets, in the moments in which something else is measured.

A share of a simulated GPU is a share of wall time, and whoever else wants the processors takes from it. So a test that wants a
tenant to get at least so much asks at least so much of what the machine gave: of the control's part. What a tenant gets at most
is judged as it is: no disturbance gives anybody more.
"""
import threading
import time

WORK_S = 0.002  # of processor time …
EVERY_S = 0.02  # … so often: a tenth of one processor


class Control(threading.Thread):
    """with Control() as c: …; then c.part: 1.0 on a machine that has processors to spare, 0.5 where two want one."""

    def __init__(self):
        super().__init__(daemon=True)
        self.over = threading.Event()
        self.worked = self.took = 0.0

    def run(self):
        while not self.over.wait(EVERY_S):
            # Not the interpreter's lock, only the processor is waited for: nobody else runs Python meanwhile for long.
            began, cpu = time.monotonic(), time.thread_time()
            while time.thread_time() - cpu < WORK_S:
                pass
            self.worked += time.thread_time() - cpu
            self.took += time.monotonic() - began

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.join()

    @property
    def part(self):
        return min(1.0, self.worked / self.took) if self.took else 1.0
