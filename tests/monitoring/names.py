#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Rules and dashboards ask only for metrics that there are, and each alert has its page. Needs no Prometheus."""
import json
import re
import sys
import unittest

sys.dont_write_bytecode = True
import monitoring  # noqa: E402


class Names(unittest.TestCase):
    def test_metrics_are_found_in_expressions(self):
        for expr, names in (
                ('sum by (node) (rate(a_total{x="b"}[5m])) / on (gpu) group_left (name) c', {"a_total", "c"}),
                ("last_over_time(a[1d] offset 30s) >= 0 or namespace:b:sum", {"a", "namespace:b:sum"}),
                ('label_values(up{job="sluiced"}, node)', {"up", "node"}),
                ("2 * 3e4 > inf", set())):
            self.assertEqual(monitoring.metrics_of(expr), names, expr)

    def test_rules(self):
        known = monitoring.exported() | {r["record"] for r in monitoring.rules() if "record" in r}
        for rule in monitoring.rules():
            used = monitoring.metrics_of(rule["expr"])
            self.assertTrue(used, rule)
            self.assertEqual(used - known, set(), f"{rule}: nothing exports these")

    def test_dashboards(self):
        known = monitoring.exported() | {r["record"] for r in monitoring.rules() if "record" in r}
        self.assertEqual([p.stem for p in monitoring.DASHBOARDS],
                         ["sluice-cluster", "sluice-namespace", "sluice-node", "sluice-tenant"])
        for path in monitoring.DASHBOARDS:
            for title, query in monitoring.queries(path):
                values = re.fullmatch(r"label_values\((.*), *\w+\)", query)
                used = monitoring.metrics_of(values.group(1) if values else query)
                self.assertTrue(used, f"{path.name}, {title}")
                self.assertEqual(used - known, set(), f"{path.name}, {title}: nothing exports these")

    def test_dashboards_are_whole(self):
        links = {p.stem for p in monitoring.DASHBOARDS}
        for path in monitoring.DASHBOARDS:
            board = json.loads(path.read_text(encoding="utf-8"))
            self.assertEqual(board["uid"], path.stem)
            ids = [p["id"] for p in board["panels"]]
            self.assertEqual(len(ids), len(set(ids)), path.name)
            for panel in board["panels"]:
                self.assertTrue(panel.get("description"), f"{path.name}: {panel['title']} says not what it shows")
                place = panel["gridPos"]
                self.assertLessEqual(place["x"] + place["w"], 24)
            for link in re.findall(r'/d/([\w-]+)', json.dumps(board)):
                self.assertIn(link, links)
            kustomization = (monitoring.FOLDER / "kustomization.yaml").read_text(encoding="utf-8")
            self.assertIn(f"dashboards/{path.name}", kustomization)

    def test_every_alert_has_its_page(self):
        page = (monitoring.REPO / "docs/runbook.md").read_text(encoding="utf-8")
        headings = re.findall(r"^## (Sluice\w+)$", page, re.M)
        alerts = [r for r in monitoring.rules() if "alert" in r]
        self.assertEqual(sorted(headings), sorted(r["alert"] for r in alerts))
        for rule in alerts:
            self.assertEqual(rule["runbook_url"], f"docs/runbook.md#{rule['alert'].lower()}")
            self.assertIn(rule["severity"], ("critical", "warning", "info"))
            self.assertTrue(rule["summary"] and rule["description"], rule)
        sections = re.split(r"^## Sluice\w+$", page, flags=re.M)[1:]
        for name, section in zip(headings, sections):
            for word in ("Means:", "Look:", "Do:"):
                self.assertIn(word, section, name)


if __name__ == "__main__":
    unittest.main()
