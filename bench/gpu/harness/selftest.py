# SPDX-License-Identifier: Apache-2.0
"""The harness's own arithmetic and judgement, on made-up results. Run as a program: no GPU needed."""
import os
import sys
import tempfile
import time
import unittest
from unittest import mock
import xml.dom.minidom

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from harness import bars, cells, clocks, merge, report, stolen  # noqa: E402
import pieces  # noqa: E402
import run  # noqa: E402

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


class Stolen(unittest.TestCase):
    def least(self, *ticks):
        """The processor's time is stolen as told, of 1000 each round; rounds are numbered."""
        at = [0]
        for t in ticks:
            at += [at[-1] + t]
        moments = [m for i in range(len(ticks)) for m in ((at[i], 1000 * i), (at[i + 1], 1000 * (i + 1)))]
        rounds = iter(range(len(ticks)))
        with mock.patch.object(stolen, "now", side_effect=moments):
            return stolen.least(lambda: next(rounds), tries=len(ticks))

    def test_an_undisturbed_round_is_the_only_one(self):
        self.assertEqual(self.least(5, 0), (0, 0.5))

    def test_the_least_disturbed_counts(self):
        self.assertEqual(self.least(90, 20, 30), (1, 2.0))
        self.assertEqual(self.least(90, 20, 1, 0), (2, 0.1))

    def test_ticks(self):
        self.assertEqual(stolen.parse("cpu  10 0 20 70 1 0 2 7 0 0"), (7, 110))
        self.assertEqual(stolen.percent((3, 50), (3, 50)), 0)


class GpuTime(unittest.TestCase):
    SOLO = {"rate": 5000.0, "unit_us": 200.0}

    def share(self, mode="sluice", **result):
        return cells.time_share(self.SOLO, result, mode)

    def test_shorter_units_take_less_time(self):
        self.assertAlmostEqual(self.share(rate=1500.0, unit_us=160.0), 24)
        self.assertAlmostEqual(cells.time_share(self.SOLO, self.SOLO, "native"), 100)

    def test_units_that_waited_count_as_long_as_alone(self):
        self.assertAlmostEqual(self.share(rate=1500.0, unit_us=900.0), 30)
        self.assertAlmostEqual(self.share(rate=1500.0, unit_us=210.0), 30)

    def test_kernels_that_dated_themselves_are_believed_under_sluice_only(self):
        own = {"rate": 1500.0, "unit_us": 220.0, "unit_from": "kernel"}
        self.assertAlmostEqual(self.share(**own), 33)
        self.assertAlmostEqual(self.share(mode="native", **own), 30)
        self.assertAlmostEqual(self.share(**{**own, "unit_us": 400.0}), 30)

    def test_none_for_mps_or_without_a_length(self):
        self.assertIsNone(self.share(mode="mps", rate=1500.0, unit_us=900.0))
        self.assertIsNone(self.share(rate=100.0))

    def test_percentiles_of_earlier_runs(self):
        self.assertEqual(cells.unit_us({"unit_us": {"p10": 160.0, "p50": 165.0}}), 165)
        self.assertEqual(cells.unit_us({"unit_us": {"p10": 160.0, "p50": 900.0}}), 160)

    def test_steps_from_their_pieces(self):
        # each step was stopped in another piece; none ran through
        steps = [[100.0, 20.0], [10.0, 200.0], [10.0, 300.0], [400.0, 20.0], [10.0, 20.0, 1.0]]
        self.assertEqual(pieces.step_us(steps), 30)
        self.assertEqual(pieces.undisturbed_mean([10.0, 12.0, 50.0]), 11)

    def test_quartiles(self):
        self.assertEqual(cells.quartiles([5, 1, 2, 3, 4]), [2, 4])


class ClocksOfACard(unittest.TestCase):
    def test_lines(self):
        self.assertEqual(clocks.parse("1755, 698.12\r\n"), (1755.0, 698.12))
        self.assertIsNone(clocks.parse("[N/A], 70.0"))
        self.assertIsNone(clocks.parse("Driver/library version mismatch"))

    def test_background(self):
        with tempfile.TemporaryDirectory() as d:
            with open(os.path.join(d, "nvidia-smi"), "w", encoding="ascii") as f:
                f.write("#!/bin/sh\nwhile echo 1500, 600.5; do sleep 0.02; done\n")
            os.chmod(f.name, 0o755)
            with mock.patch.dict(os.environ, PATH=d + ":" + os.environ["PATH"]):
                c = clocks.Clocks(real=True)
                c.start()
            for _ in range(500):
                if c.samples:
                    break
                time.sleep(0.01)
            c.stop()
        self.assertEqual(c.between(0, 1 << 62)["sm_mhz"], 1500)
        self.assertEqual(c.between(0, 1), {})
        self.assertEqual(clocks.Clocks(real=False).between(0, 1 << 62), {})


class Selection(unittest.TestCase):
    def bench(self, text):
        b = cells.Bench.__new__(cells.Bench)
        b.only, b.matched = run.selection(text, self.fail), set()
        return b

    def test_parts(self):
        self.assertEqual(run.selection("caps:gemm,caps:train,long", self.fail),
                         {"caps": ["gemm", "train"], "long": []})
        self.assertEqual(run.selection("caps:gemm,caps", self.fail), {"caps": []})
        with self.assertRaises(SystemExit):
            run.selection("nosuch:gemm", sys.exit)

    def test_wanted(self):
        b = self.bench("caps:gemm,pairs:sluice,launch:first,launch:nosuch,long")
        self.assertTrue(b.wanted("caps", "gemm"))
        self.assertFalse(b.wanted("caps", "mps"))
        self.assertTrue(b.wanted("pairs", "Sluice 30 / 70"))
        self.assertFalse(b.wanted("pairs", "MPS 30 / 70"))
        self.assertTrue(b.wanted("launch", "first call, PyTorch"))
        self.assertTrue(b.wanted("long", "time-slicing"))
        self.assertEqual(b.unmatched(), ["launch:nosuch"])


def made_up(**change):
    cap = {"group": "caps", "label": "fma100us 25", "mode": "sluice", "work": "fma100us", "asked": 25,
           "got": 29.0, "got_time": 26.0, "error": 1.0, "worst_second": 4.0}
    pair = {"group": "pairs", "label": "Sluice 30 / 70", "mode": "sluice", "work": ["gemm", "gemm"],
            "asked": [30, 70], "got": [29.0, 69.0],
            "got_time": [29.5, 68.5], "error": [-1.0, -1.0], "sum": 98.0}
    cap.update(change)
    return {"slack_points": 0, "solo": {}, "cells": [cap, pair],
            "about": {"sim": "h200", "mps": False, "torch": False, "sluice": "sluice 0", "cpus": 2,
                      "time": "now"}}


class Merging(unittest.TestCase):
    def merged(self, first, second):
        runs = []
        for found in (first, second):
            data = made_up()
            data["about"]["elapsed_s"] = 1
            data.update(cells=found, solo_history=[])
            runs.append(data)
        return merge.merge(*runs)

    def test_later_wins_per_cell(self):
        a = {"group": "caps", "label": "gemm 10", "mode": "sluice", "got": 1}
        b = {"group": "caps", "label": "gemm 10", "mode": "mps", "got": 2}
        data = self.merged([a, b], [dict(a, got=3)])
        self.assertEqual(sorted(c["got"] for c in data["cells"]), [2, 3])
        self.assertEqual(data["about"]["with"], ["now"])

    def test_broken_cells(self):
        good = {"group": "caps", "label": "gemm 10", "mode": "sluice", "got": 1}
        for label in ("gemm 10", "solo gemm", "caps"):
            bad = {"group": "caps", "label": label, "broken": "no answer"}
            self.assertEqual(self.merged([bad], [good])["cells"], [good], label)
        bad = {"group": "caps", "label": "gemm 10", "broken": "no answer"}
        self.assertEqual(self.merged([good], [bad])["cells"], [good])
        other = {"group": "caps", "label": "mps gemm 10", "broken": "no answer"}
        self.assertEqual(len(self.merged([other], [good])["cells"]), 2)

    def test_time_of_earlier_runs(self):
        solo = {"rate": 5000.0, "unit_us": {"p10": 198.0, "p50": 200.0}}
        raw = {"rate": 1500.0, "unit_us": {"p10": 158.0, "p50": 160.0}, "bucket_ms": 50.0,
               "buckets": [75.0] * 40}
        cell = {"group": "caps", "label": "gemm 25", "mode": "sluice", "work": "gemm", "asked": 25,
                "got": 30.0, "error": 5.0, "worst_second": 5.0, "raw": [raw],
                "solo_rate": {"gemm": 5000.0}}
        merge.with_times({"solo": {"gemm": solo}, "cells": [cell]})
        self.assertAlmostEqual(cell["got_time"], 24)
        self.assertAlmostEqual(cell["error"], -1)
        self.assertAlmostEqual(cell["worst_second"], -1)


class Judgement(unittest.TestCase):
    def test_four_processes_against_the_same_four_alone(self):
        data = made_up()
        alone = {"group": "multi", "label": "4 alone", "mode": "native", "asked": None, "got": 92.0,
                 "got_time": 92.0}
        capped = {"group": "multi", "label": "4", "mode": "sluice", "asked": 25, "got": 25.4,
                  "got_time": 22.2, "error": -2.8}
        what = "one tenant of 4 processes, cores 25"
        data["cells"] += [alone, capped]
        self.assertEqual(self.rows(data)[what], "pass")
        capped["got_time"] = 20.0
        self.assertEqual(self.rows(data)[what], "FAIL")

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
        line = next(x for x in report.text(data).splitlines() if x.startswith("| fma100us"))
        self.assertEqual([x.strip() for x in line.split("|")[1:-1]],
                         ["fma100us", "25", "26.0", "29.0", "+4.0", "-", "-"])
        self.assertIn("29.5 / 68.5 (rate 29.0 / 69.0), sum 98.0", report.text(data))
        xml.dom.minidom.parseString(report.svg(data))


if __name__ == "__main__":
    unittest.main()
