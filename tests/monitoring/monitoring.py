# SPDX-License-Identifier: Apache-2.0
"""deploy/monitoring as the tests read it: the rules, the dashboards' queries, the metrics that there are."""
import json
import pathlib
import re

REPO = pathlib.Path(__file__).resolve().parent.parent.parent
FOLDER = REPO / "deploy" / "monitoring"
DASHBOARDS = sorted((FOLDER / "dashboards").glob("*.json"))
# Words of PromQL that stand where a metric could.
WORDS = {"and", "or", "unless", "on", "ignoring", "by", "without", "group_left", "group_right", "offset", "bool", "inf",
         "nan", "atan2"}


def rule_file():
    """`spec` of the PrometheusRule: a rule file as Prometheus reads it."""
    text = (FOLDER / "rules.yaml").read_text(encoding="utf-8")
    head, spec = text.split("\nspec:\n")
    assert "kind: PrometheusRule" in head
    return "".join(line[2:] if line.startswith("  ") else line for line in spec.splitlines(keepends=True))


def rules():
    """[{"alert" or "record": name, "expr": …, "for": …, "severity": …, "summary": …, …}]. The file keeps to what this
    reads: a field a line, or a block after "|". As many expressions as rules says that none was overlooked."""
    found, field = [], None
    for line in rule_file().splitlines():
        start = re.match(r"  - (alert|record): (\S+)$", line)
        if start:
            found.append({start.group(1): start.group(2)})
            continue
        part = re.match(r"    (expr|for|labels): (.*)$", line) or re.match(
            r"      (summary|description|runbook_url): (.*)$", line)
        if part and found:
            field = part.group(1)
            found[-1][field] = "" if part.group(2) == "|" else part.group(2).strip('"')
        elif field == "expr" and found and re.match(r" {6,}\S", line) and "annotations:" not in line:
            found[-1]["expr"] += line.strip() + "\n"
    for rule in found:
        severity = re.fullmatch(r"\{severity: (\w+)\}", rule.pop("labels", ""))
        if severity:
            rule["severity"] = severity.group(1)
    text = rule_file()
    assert len(found) == text.count("expr:") == len([r for r in found if r.get("expr")]), "a rule was not understood"
    return found


def queries(path):
    """[(panel's title, query)] of a dashboard, those of its variables too."""
    board = json.loads(path.read_text(encoding="utf-8"))
    found = [(panel["title"], target["expr"]) for panel in board["panels"] for target in panel.get("targets", [])]
    for variable in board.get("templating", {}).get("list", []):
        if variable["type"] == "query":
            found.append((f"variable {variable['name']}", variable["query"]))
    return found


def metrics_of(expr):
    """The names of metrics in a PromQL expression."""
    expr = re.sub(r'"(?:\\.|[^"\\])*"', '""', expr)
    expr = re.sub(r"\{[^{}]*\}", "", expr)
    expr = re.sub(r"\[[^\]]*\]", "", expr)
    expr = re.sub(r"\b(by|without|on|ignoring|group_left|group_right)\s*\([^()]*\)", " ", expr)
    expr = re.sub(r"\boffset\s+-?\w+", " ", expr)
    names = set()
    for found in re.finditer(r"(?<![\w:$.])([a-zA-Z_:][\w:]*)(\s*\()?", expr):
        if not found.group(2) and found.group(1).lower() not in WORDS:
            names.add(found.group(1))
    return names


def exported():
    """Every name that the agent or the controller writes, from their tables; and `up`, Prometheus' own."""
    families = (REPO / "src/agent/metrics/metrics_families.def").read_text(encoding="utf-8")
    names = {"up"}
    for name, kind in re.findall(r'^FAMILY\("(\w+)", "(\w+)"', families, re.M):
        names |= {name + s for s in ("_bucket", "_sum", "_count")} if kind == "histogram" else {name}
    table = (REPO / "src/controller/metrics.c").read_text(encoding="utf-8")
    rows = re.findall(r'^ +\{"(\w+)", "', table, re.M)
    assert len(rows) > 15
    return names | {"sluice_controller_" + row for row in rows}
