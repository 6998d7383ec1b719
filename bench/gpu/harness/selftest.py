# SPDX-License-Identifier: Apache-2.0
"""The harness's own arithmetic and judgement, on made-up results. Run as a program: no GPU needed."""
import os
import sys
import unittest
import xml.dom.minidom

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from harness import bars, cells, report  # noqa: E402

STEP = [25.0] * 40 + [50.0] * 60  # 50 ms each: changes after 2 s


class Arithmetic(unittest.TestCase):
    def test_means(self):
        self.assertEqual(cells.between(STEP, 50, 0, 2), 25)
        self.assertEqual(cells.between(STEP, 50, 1, 3), 37.5)
        self.assertEqual(cells.median([3, 1, 2]), 2)
        self.assertEqual(cells.median([4, 1, 2, 3]), 2.5)

    def test_worst_second_is_any_second(self):
        self.assertEqual(cells.worst_second(STEP, 50, 25), 25)
        self.assertEqual(cells.worst_second([20.0] * 10 + [30.0] * 20 + [20.0] * 10, 50, 20), 10)
        self.assertIsNone(cells.worst_second([1.0] * 10, 50, 1))

    def test_reached(self):
        self.assertAlmostEqual(cells.reached(STEP, 50, 1.8, 49, 51), 0.7)
        self.assertEqual(cells.reached(STEP, 50, 0, 24, 26), 0.5)
        self.assertIsNone(cells.reached(STEP, 50, 0, 90, 100))

    def test_jain(self):
        self.assertEqual(cells.jain([5, 5, 5, 5]), 1)
        self.assertEqual(cells.jain([1, 0, 0, 0]), 0.25)
        self.assertEqual(cells.jain([0, 0]), 0)


def made_up(**change):
    cap = {"group": "caps", "label": "fma100us 25", "mode": "sluice", "work": "fma100us", "asked": 25,
           "got": 26.0, "error": 1.0, "worst_second": 4.0}
    pair = {"group": "pairs", "label": "Sluice 30 / 70", "mode": "sluice", "work": ["gemm", "gemm"],
            "asked": [30, 70], "got": [29.0, 69.0], "error": [-1.0, -1.0], "sum": 98.0}
    cap.update(change)
    return {"slack_points": 0, "solo": {}, "cells": [cap, pair],
            "about": {"sim": "h200", "mps": False, "torch": False, "sluice": "sluice 0", "cpus": 2,
                      "time": "now"}}


class Judgement(unittest.TestCase):
    def rows(self, data):
        return {r.what: r.verdict for r in bars.summary(data)}

    def test_good_bad_and_missing(self):
        rows = self.rows(made_up())
        self.assertEqual(rows["cap 10, 25, 50, 75 alone: fma100us"], "pass")
        self.assertEqual(rows["two gemm tenants 30 / 70"], "pass")
        self.assertEqual(rows["two gemm tenants 50 / 50"], "not measured")
        self.assertEqual(rows["8 tenants equal"], "not measured")

    def test_an_error_or_one_bad_second_fails(self):
        for change in ({"error": 2.1}, {"error": -2.1}, {"worst_second": -10.5},
                       {"worst_second": None}):
            rows = self.rows(made_up(**change))
            self.assertEqual(rows["cap 10, 25, 50, 75 alone: fma100us"], "FAIL", change)

    def test_a_broken_cell_fails_its_row(self):
        data = made_up()
        data["cells"].append({"group": "eight", "label": "Sluice 8 x 12.5", "broken": "no answer"})
        self.assertEqual(self.rows(data)["8 tenants equal"], "FAIL")

    def test_work_whose_solo_run_broke_has_a_row(self):
        data = made_up()
        data["cells"].append({"group": "caps", "label": "solo graph", "broken": "no answer"})
        rows = self.rows(data)
        self.assertEqual(rows["cap 10, 25, 50, 75 alone: graph"], "FAIL")
        self.assertEqual(rows["cap 10, 25, 50, 75 alone: fma100us"], "pass")

    def test_slack(self):
        data = made_up(error=3.5)
        data["slack_points"] = 2
        self.assertEqual(self.rows(data)["cap 10, 25, 50, 75 alone: fma100us"], "pass")

    def test_report_and_plot(self):
        data = made_up()
        self.assertIn("26.0 (+4.0)", report.text(data))
        xml.dom.minidom.parseString(report.svg(data))


if __name__ == "__main__":
    unittest.main()
