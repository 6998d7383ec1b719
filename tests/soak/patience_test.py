#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The soak's judge of hangs: who sleeps, and who works without an answer, hangs; who gets no processor does not."""
import os
import select
import subprocess
import sys
import time
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import patience  # noqa: E402

SLEEPS = "exec sleep 1000"
WORKS = "while :; do :; done"
ANSWERS = "i=0; while [ $i -lt 50000 ]; do i=$((i + 1)); done; echo done"


def ran_s(pid):
    return sum(ran for _, ran, _ in patience.look([pid]).values()) / 1e9


class Judge(unittest.TestCase):
    def setUp(self):
        self.addCleanup(setattr, patience, "LIMIT", patience.LIMIT)
        patience.LIMIT = 1.0

    def start(self, code, prepare=None):
        p = subprocess.Popen(["sh", "-c", code], stdout=subprocess.PIPE, preexec_fn=prepare)
        self.addCleanup(p.stdout.close)
        self.addCleanup(p.wait)
        self.addCleanup(p.kill)
        return p

    @staticmethod
    def answer(p):
        def ready(seconds):
            return bool(select.select([p.stdout], [], [], seconds)[0])
        wait = patience.Patience(lambda: [p.pid])
        wait.until(ready, "the answer")
        return wait

    def test_sleeps(self):
        with self.assertRaisesRegex(patience.Hang, "no answer"):
            self.answer(self.start(SLEEPS))

    def test_works(self):
        with self.assertRaisesRegex(patience.Hang, "no answer"):
            self.answer(self.start(WORKS))

    def test_gets_no_processor(self):
        """
        Beside two of ordinary priority on the same processor, a nice one gets a hundredth of it, over seconds. In its
        first moments it may get a tenth, so it needs a few times its limit even then.
        """
        cpu = min(os.sched_getaffinity(0))
        patience.LIMIT = 0.4

        def nice():
            os.sched_setaffinity(0, {cpu})
            os.nice(19)

        for _ in range(2):
            other = self.start(WORKS, lambda: os.sched_setaffinity(0, {cpu}))
            while ran_s(other.pid) < 0.1:  # it has the processor
                time.sleep(0.01)
        wait = self.answer(self.start(ANSWERS, nice))
        self.assertGreater(wait.took, patience.LIMIT)  # by the clock alone it would be one
        self.assertLess(wait.stood, patience.LIMIT)


if __name__ == "__main__":
    unittest.main()
