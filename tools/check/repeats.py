#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs of six or more equal lines in src: they want to be one function. Fails when there are more than repeats.txt allows.

Blank lines and #include do not count, nor does indentation. repeats.py --list shows every run, with its lines.
"""
import pathlib
import re
import sys

RUN = 6
root = pathlib.Path(__file__).resolve().parents[2]
allowed = int((root / "tools/check/repeats.txt").read_text().split()[-1])
nothing = re.compile(r"$|#\s*include\b|/\* SPDX")


def lines_of(path):
    """(number, text) of the lines that count."""
    numbered = enumerate(path.read_text().splitlines(), 1)
    return [(n, line.strip()) for n, line in numbered if not nothing.match(line.strip())]


first, runs = {}, []
files = sorted(p for p in (root / "src").rglob("*") if p.suffix in (".c", ".h"))
for path in files:
    lines, open_run = lines_of(path), None
    name = path.relative_to(root)
    for i in range(len(lines) - RUN + 1):
        key = tuple(text for _, text in lines[i:i + RUN])
        where = first.setdefault(key, (name, lines[i][0], i))
        # The same lines again, and not the overlap of a run with itself.
        if where == (name, lines[i][0], i) or (where[0] == name and i - where[2] < RUN):
            open_run = None
            continue
        if open_run is None:
            open_run = {"at": (name, lines[i][0]), "of": where[:2], "texts": list(key)}
            runs.append(open_run)
        else:
            open_run["texts"].append(key[-1])

for r in runs:
    print(f"{r['at'][0]}:{r['at'][1]}: {len(r['texts'])} lines as in {r['of'][0]}:{r['of'][1]}")
    if "--list" in sys.argv:
        print("".join(f"    {text}\n" for text in r["texts"]), end="")
print(f"{len(runs)} runs of {RUN} or more equal lines in {len(files)} files, at most {allowed} allowed")
sys.exit(len(runs) > allowed or not files)
