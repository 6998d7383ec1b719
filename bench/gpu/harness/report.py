# SPDX-License-Identifier: Apache-2.0
"""What was measured, as tables for people (Markdown) and as a plot of asked against got (SVG)."""
import os

from .bars import cells, left_used, shares, summary
from .cells import unit_us


def table(head, rows):
    """A Markdown table that also reads well as plain text."""
    rows = [[str(c) for c in r] for r in rows]
    width = [max(len(r[i]) for r in [head] + rows) for i in range(len(head))]
    line = lambda r: "| " + " | ".join(c.ljust(w) for c, w in zip(r, width)) + " |"
    return "\n".join([line(head), "|" + "|".join("-" * (w + 2) for w in width) + "|"]
                     + [line(r) for r in rows])


def number(v, spec=".1f"):
    return "-" if v is None else format(v, spec)


def half(low_high, spec):
    return "-" if not low_high else "{} to {}".format(*(format(v, spec) for v in low_high))


def work_name(data, work):
    return f"{work} (a 170 us FMA kernel)" if work == "gemm" and data["about"]["sim"] else work


def mhz(cell):
    return number(cell.get("sm_mhz"), ".0f")


def caps_table(data):
    found = [c for c in data["cells"] if c["group"] == "caps" and "got" in c]
    order = []
    for c in found:
        if (c["mode"], c["work"]) not in order:
            order.append((c["mode"], c["work"]))
    found.sort(key=lambda c: (order.index((c["mode"], c["work"])), c["asked"]))
    rows = [[("MPS " if c["mode"] == "mps" else "") + work_name(data, c["work"]), c["asked"],
             number(c.get("got_time")), number(c["got"]), number(c["worst_second"], "+.1f"),
             number(c.get("unit_us")), mhz(c)] for c in found]
    return table(["", "asked", "got, GPU time", "got, rate", "worst second", "us each", "SM MHz"],
                 rows) if rows else None


def pairs_table(data, group):
    rows = [[c["label"], *(number(t) for t in (c.get("got_time") or [None, None])),
             *(number(g) for g in c["got"]), number(c["sum"]), mhz(c)]
            for c in data["cells"] if c["group"] == group and "got" in c]
    names = ["A (gemm)", "B (gemm)"] if group == "pairs" else ["A (fma20ms)", "B (gemm)"]
    return table(["", *(f"{n} GPU time" for n in names), "A rate", "B rate", "sum of rates",
                  "SM MHz"], rows) if rows else None


def priority_table(data):
    found = [c for c in data["cells"] if c["group"] == "priority" and "p50_ms" in c]
    alone = next((c for c in found if c["label"] == "req alone"), None)
    rows = []
    for c in found:
        times = c["p99_ms"] / alone["p99_ms"] if alone else None
        left = 100 - 100 * left_used(alone) if alone else None
        rows.append([c["label"], number(c["p50_ms"], ".2f"), number(c["p99_ms"], ".2f"),
                     number(times, ".2f"), number(c["gemm"]),
                     number(100 * c["gemm"] / left if c["gemm"] is not None and left else None),
                     number(c.get("gemm_time")), mhz(c), number(c.get("stolen"))])
    return table(["", "req p50 ms", "req p99 ms", "p99 / solo", "gemm, % of solo rate",
                  "% of what req leaves", "gemm, GPU time", "SM MHz", "CPU stolen %"], rows) if rows else None


def small_tables(data):
    out = []
    rows = [[c["label"], number(c["asked"], "d"), number(c.get("got_time")), number(c["got"]), mhz(c)]
            for c in data["cells"] if c["group"] == "multi" and "got" in c]
    if rows:
        out.append(("One tenant of several processes, together", table(
            ["", "asked", "got, GPU time", "got, rate", "SM MHz"], rows)))
    rows = [[c["label"], number(c["alone"]), number(c["beside"]), number(c["neighbour"]),
             number(c["again"])] for c in cells(data, "burst")]
    if rows:
        out.append(("Burst: alone, beside a 70:100 neighbour (from one second on), alone again", table(
            ["", "alone", "beside", "the neighbour", "again"], rows)))
    rows = [[c["label"], number(c["sum"]), number(c["jain"], ".4f"),
             " ".join(f"{g:.1f}" for g in c["got"])]
            for c in data["cells"] if c["group"] == "eight" and "got" in c]
    if rows:
        out.append(("Eight equal tenants", table(["", "sum", "Jain", "each"], rows)))
    rows = [[c["label"], c["pairs"], number(c.get("launch_ns", [None])[0], ".0f"),
             number(c.get("added_ns"), "+.0f"), half(c.get("added_ns_iqr"), "+.0f"),
             number(c["added_percent"], "+.2f"), half(c.get("added_percent_iqr"), "+.2f")]
            for c in cells(data, "launch") if "added_percent" in c]
    if rows:
        out.append(("Launch path: no limit, open gate, against no Sluice", table(
            ["", "pairs", "native ns/launch", "added ns", "half of the pairs", "added % of time",
             "half of the pairs"], rows)))
    rows = [[c["label"], c["pairs"], *(number(v) for v in c["first_call_ms"]),
             *(half(v, ".0f") for v in c["first_call_iqr"])]
            for c in cells(data, "launch") if "first_call_iqr" in c]
    if rows:
        out.append(("First CUDA call of a fresh process, ms, median of pairs", table(
            ["", "pairs", "native", "Sluice", "native, half of them", "Sluice, half of them"], rows)))
    return out


def text(data):
    about = data["about"]
    where = f"simulated {about['sim']}" if about["sim"] else about.get("gpu") or "a real GPU"
    parts = [f"On: {where}; {about['sluice']}; {about['cpus']} CPUs; {about['time']}; took "
             f"{about.get('elapsed_s', 0):.0f} s."]
    if about.get("load") and about["load"][0] > about["cpus"]:
        parts.append(f"The machine was busy with other things (load {about['load'][0]} on "
                     f"{about['cpus']} CPUs): figures may be worse than they would be.")
    if not about["mps"]:
        parts.append("No MPS here, so no MPS rows.")
    if not about["torch"]:
        parts.append("No PyTorch here, so no PyTorch rows.")
    if about.get("with"):
        parts.append("Put together with runs of " + ", ".join(about["with"])
                     + "; of a cell that was run again the later one counts.")
    solo = [[work_name(data, w), number(r["rate"]), number(unit_us(r)), mhz(r),
             number(r.get("power_w"), ".0f"), number(r.get("first_call_ms"))]
            for w, r in data["solo"].items()]
    sections = [("Alone, without Sluice", table(
        ["", "per second", "us each", "SM MHz", "W", "first CUDA call ms"], solo) if solo else None),
        ("Compute limit: asked and got in %, worst second by GPU time in points off",
         caps_table(data)),
        ("Two tenants, both gemm", pairs_table(data, "pairs")),
        ("Long kernels beside gemm", pairs_table(data, "long")),
        ("Latency-critical beside best-effort (req + gemm)", priority_table(data))]
    sections += small_tables(data)
    rows = [[r.what, r.bar, r.got, r.verdict] for r in summary(data)]
    sections.append(("Bars", table(["", "bar", "measured", "verdict"], rows)))
    parts += [f"## {title}\n{body}" for title, body in sections if body]
    return "\n\n".join(parts) + "\n"


# ---- the plot ----

COLOURS = ["#0b6e99", "#d9730d", "#0f7b6c", "#ad1a72", "#6940a5", "#9a6700"]
SIZE, LEFT, TOP, SIDE = 420, 60, 40, 190


def marker(shape, x, y, colour):
    if shape == "cross":
        return (f'<path d="M{x - 4:.1f} {y - 4:.1f}l8 8m0 -8l-8 8" stroke="{colour}" '
                'stroke-width="2" fill="none"/>')
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4.5" fill="{colour}" fill-opacity="0.85"/>'


def points(data):
    """(series, asked, got, shape): every cell in which something was asked for."""
    out = []
    for c in data["cells"]:
        if "got" not in c or not c.get("asked"):
            continue
        shape = "cross" if c["mode"] == "mps" else "dot"
        who = "MPS" if c["mode"] == "mps" else "Sluice"
        if c["group"] == "caps":
            out.append((f"{who}, {c['work']} alone", c["asked"], shares(c)[0][0], shape))
        elif isinstance(c["asked"], list):
            for asked, got in zip(c["asked"], shares(c)[0]):
                out.append((f"{who}, two tenants", asked, got, shape))
    return out


def svg(data):
    px = lambda v: LEFT + v * SIZE / 100
    py = lambda v: TOP + SIZE - min(v, 105) * SIZE / 100
    about = data["about"]
    where = f"simulated {about['sim']}" if about["sim"] else (about.get("gpu") or "").split(",")[0]
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + SIZE + SIDE}" '
           f'height="{TOP + SIZE + 50}" font-family="sans-serif" font-size="12">',
           '<rect width="100%" height="100%" fill="white"/>',
           f'<text x="{LEFT}" y="22" font-size="15">GPU time asked for and got ({where})</text>']
    for v in range(0, 101, 25):
        out.append(f'<path d="M{px(0)} {py(v)}H{px(100)}M{px(v)} {py(0)}V{py(100)}" '
                   'stroke="#ddd" fill="none"/>')
        out.append(f'<text x="{px(0) - 8}" y="{py(v) + 4}" text-anchor="end">{v}</text>')
        out.append(f'<text x="{px(v)}" y="{py(0) + 18}" text-anchor="middle">{v}</text>')
    out.append(f'<path d="M{px(0)} {py(0)}L{px(100)} {py(100)}" stroke="#888" '
               'stroke-dasharray="4 3"/>')
    out.append(f'<text x="{px(50)}" y="{py(0) + 38}" text-anchor="middle">asked, %</text>')
    out.append(f'<text x="16" y="{py(50)}" text-anchor="middle" '
               f'transform="rotate(-90 16 {py(50)})">got, % of GPU time (MPS: of the solo rate)</text>')
    names = []
    for name, asked, got, shape in points(data):
        if name not in names:
            names.append(name)
            y = TOP + 10 + 20 * len(names)
            colour = COLOURS[(len(names) - 1) % len(COLOURS)]
            out.append(marker(shape, LEFT + SIZE + 20, y - 4, colour))
            out.append(f'<text x="{LEFT + SIZE + 32}" y="{y}">{name}</text>')
        colour = COLOURS[names.index(name) % len(COLOURS)]
        out.append(marker(shape, px(asked), py(got), colour))
    sliced = [c for c in data["cells"] if c["group"] == "pairs" and c.get("mode") == "native"
              and "got" in c]
    for c in sliced[:1]:
        y = py(shares(c)[0][0])
        out.append(f'<path d="M{px(0)} {y}H{px(100)}" stroke="#c00" stroke-dasharray="2 4"/>')
        out.append(f'<text x="{px(100)}" y="{y - 5}" text-anchor="end" fill="#c00">'
                   'time-slicing: the same for both</text>')
    return "\n".join(out + ["</svg>"]) + "\n"


def write(data, out):
    body = text(data)
    with open(os.path.join(out, "report.md"), "w", encoding="utf-8") as f:
        f.write(body)
    with open(os.path.join(out, "asked-got.svg"), "w", encoding="utf-8") as f:
        f.write(svg(data))
    return body
