#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""repeats.py [-l] [MOST]: counts runs of six or more equal lines that stand more than once under src/.

Lines are compared without their indentation; empty ones, lone braces, includes and comments do not count. A run is told
once for each place that repeats an earlier one. -l lists them. More than MOST of them is a failure."""
import collections
import pathlib
import sys

LEAST = 6
root = pathlib.Path(__file__).resolve().parents[2]


def lines_of(path):
    """What counts of a file: (line number, text)."""
    inside = False
    for number, line in enumerate(path.read_text().splitlines(), 1):
        text = line.strip()
        comment = inside or text.startswith(("/*", "//"))
        inside = (inside or text.startswith("/*")) and "*/" not in text
        if not comment and text not in ("", "{", "}", "};") and not text.startswith("#include"):
            yield number, text


def main():
    options = [a for a in sys.argv[1:] if a != "-l"]
    files = sorted(p for p in (root / "src").rglob("*.[ch]"))
    first, runs = {}, []
    for path in files:
        name = path.relative_to(root)
        lines = list(lines_of(path))
        run = None
        for i in range(len(lines) - LEAST + 1):
            window = tuple(text for _, text in lines[i:i + LEAST])
            at = first.get(window)
            follows = run and at and at[0] == run["of"] and at[1] == run["of_last"] + 1
            if at and not (at[0] == name and at[1] + LEAST > i):
                if follows:
                    run["last"], run["of_last"] = lines[i + LEAST - 1][0], at[1]
                    run["size"] += 1
                else:
                    run = {"in": name, "first": lines[i][0], "last": lines[i + LEAST - 1][0], "size": LEAST,
                           "of": at[0], "of_line": at[2], "of_last": at[1]}
                    runs.append(run)
            else:
                run = None
                first.setdefault(window, (name, i, lines[i][0]))
    if "-l" in sys.argv:
        for r in sorted(runs, key=lambda r: -r["size"]):
            print(f'{r["in"]}:{r["first"]}-{r["last"]} repeats {r["of"]}:{r["of_line"]} ({r["size"]} lines)')
    most = int(options[0]) if options else None
    pairs = collections.Counter(frozenset((r["in"], r["of"])) for r in runs)
    print(f'{len(files)} files, {len(runs)} runs of {LEAST} or more equal lines '
          f'({sum(r["size"] for r in runs)} lines, {len(pairs)} pairs of files)')
    return not files or (most is not None and len(runs) > most)


sys.exit(main())
