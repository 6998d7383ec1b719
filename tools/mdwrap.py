#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""mdwrap.py [--check]: lines of Markdown are at most 120 columns wide.

Without --check, paragraphs and list items are wrapped anew; code, tables and headings stay as they are. With --check
nothing is written, and the exit status is 1 when a line is too wide. A table row that is too wide cannot be wrapped: say
less in its cells and the rest below the table; make it a list only where that does not do. Reports that the benches write (docs/measurements/*/report*.md) are left alone."""
import pathlib
import re
import subprocess
import sys

WIDTH = 120
root = pathlib.Path(__file__).resolve().parents[1]
# What a line must not begin with, because it would be a list, a heading, a quote or a table then.
MARKER = re.compile(r"(?:[-+*#>|=]+|\d+[.)])$")
ITEM = re.compile(r"( *)([-*+]|\d+[.)]) +")


def pages():
    git = subprocess.run(["git", "-c", f"safe.directory={root}", "ls-files", "-co", "--exclude-standard", "*.md"],
                         cwd=root, capture_output=True, text=True)
    found = git.stdout.split() if git.returncode == 0 else [str(p.relative_to(root)) for p in root.rglob("*.md")]
    return sorted(f for f in found if not re.search(r"^build|docs/measurements/.*/report[^/]*\.md$", f)
                  and (root / f).is_file())


def words(text):
    """Words that may stand on lines of their own. Code is broken only where it is longer than a line."""
    found = re.findall(r"(?:``.*?``|`[^`]*`|\]\([^)]*\)|[^\s`])+", text)
    return [part for word in found for part in (word.split() if len(word) > WIDTH - 10 else [word])]


def wrap(text, first, rest):
    lines, line = [], first
    for word in words(text):
        fits = len(line) + (line not in (first, rest)) + len(word) <= WIDTH
        if line in (first, rest) or fits or (MARKER.match(word) and not lines and line == first):
            line += word if line in (first, rest) else " " + word
            continue
        if MARKER.match(word):  # takes the word before it along
            line, last = line.rsplit(" ", 1)
            word = f"{last} {word}"
        lines.append(line)
        line = rest + word
    return [*lines, line]


def rewrap(text):
    out, block, first, rest, fenced = [], [], "", "", False

    def flush():
        nonlocal block
        if block:
            parts = re.split(r"(?<=<br>)\n|(?<=  )\n", "\n".join(block))
            for i, part in enumerate(parts):
                wrapped = wrap(part.replace("\n", " "), rest if i else first, rest)
                out.extend(wrapped)
        block = []

    for line in text.split("\n"):
        if re.match(r" *```", line):
            flush()
            fenced = not fenced
            out.append(line)
        elif fenced or not line.strip() or re.match(r"#|\||    |<|\[[^]]+\]: ", line) and not block:
            flush()
            out.append(line)
        elif re.match(r"#|\||!\[", line):
            flush()
            out.append(line)
        else:
            item = ITEM.match(line)
            if item:
                flush()
                first, rest = item[0], " " * len(item[0])
                block = [line[item.end():]]
            elif block:
                block.append(line.strip() + ("  " if line.endswith("  ") else ""))
            else:
                first = rest = re.match(r" *", line)[0]
                block = [line.strip()]
    flush()
    return "\n".join(out)


def main():
    bad = 0
    names = pages()
    for name in names:
        path = root / name
        text = path.read_text()
        if "--check" not in sys.argv[1:] and name != "docs/errors.md":
            new = rewrap(text)
            if new != text:
                path.write_text(new)
                text = new
        for number, line in enumerate(text.split("\n"), 1):
            if len(line) > WIDTH:
                print(f"{name}:{number}: {len(line)} columns, at most {WIDTH}")
                bad = 1
    print(f"{len(names)} pages examined")
    sys.exit(1 if bad or not names else 0)


if __name__ == "__main__":
    main()
