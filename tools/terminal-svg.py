#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""terminal-svg.py TITLE <TEXT >SVG: draws captured terminal output, colours and all, as a picture.
Nothing is added or left out: what the picture shows is what the command printed."""
import html
import re
import sys

CELL_W, LINE_H, PAD, BAR = 8.43, 19, 18, 34
COLOURS = {"31": "#ff7b72", "32": "#7ee787", "33": "#f2cc60"}


def spans(line, style):
    """(text, style) pieces of a line with SGR sequences; `style` goes on into the next line."""
    for piece in re.split(r"(\x1b\[[0-9;]*m)", line):
        code = re.fullmatch(r"\x1b\[([0-9;]*)m", piece)
        if not code:
            if piece:
                yield piece, dict(style)
            continue
        for c in (code.group(1) or "0").split(";"):
            if c == "0":
                style.clear()
            elif c == "1":
                style["font-weight"] = "bold"
            elif c == "2":
                style["fill"] = "#8b949e"
            elif c == "7":
                style["reverse"] = "yes"
            elif c in ("22", "27", "39"):
                style.pop({"22": "font-weight", "27": "reverse", "39": "fill"}[c], None)
            elif c in COLOURS:
                style["fill"] = COLOURS[c]


lines = [l.rstrip("\n") for l in sys.stdin]
while lines and not lines[-1].strip():
    lines.pop()
bare = [re.sub(r"\x1b\[[0-9;]*m", "", l) for l in lines]
width = round(max(map(len, bare)) * CELL_W + 2 * PAD)
height = BAR + len(lines) * LINE_H + PAD
title = html.escape(sys.argv[1])
print(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
      f'role="img" aria-label="{title}">')
print("<!-- SPDX-License-Identifier: Apache-2.0; made by tools/terminal-svg.py from real output -->")
print(f'<rect width="{width}" height="{height}" rx="8" fill="#0d1117"/>')
for i, c in enumerate(("#ff5f57", "#febc2e", "#28c840")):
    print(f'<circle cx="{PAD + i * 18}" cy="17" r="5.5" fill="{c}"/>')
print(f'<text x="{width / 2}" y="22" fill="#8b949e" font-family="monospace" font-size="13" text-anchor="middle">{title}</text>')
print('<g fill="#e6edf3" font-family="ui-monospace,SFMono-Regular,Menlo,Consolas,monospace" font-size="14" xml:space="preserve" style="white-space:pre">')
carried = {}
for n, line in enumerate(lines):
    column = 0
    for text, style in spans(line, carried):
        if style.pop("reverse", None):
            style["fill"] = "#0d1117"
            print(f'<rect x="{PAD + column * CELL_W:.1f}" y="{BAR + n * LINE_H - 1}" '
                  f'width="{len(text) * CELL_W:.1f}" height="{LINE_H}" fill="#c9d1d9"/>')
        css = "".join(f' {k}="{v}"' for k, v in style.items())
        if text.strip():
            # textLength keeps columns in line whatever font the viewer has.
            print(f'<text x="{PAD + column * CELL_W:.1f}" y="{BAR + (n + 1) * LINE_H - 6}" '
                  f'textLength="{len(text) * CELL_W:.1f}"{css}>{html.escape(text)}</text>')
        column += len(text)
print("</g>\n</svg>")
