#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""small.py PICTURE... FOLDER: copy screenshots with at most 256 colours, for docs/img. Plain Python: no library for pictures."""
import collections
import pathlib
import struct
import sys
import zlib


def read(data):
    """(width, height, bytes a pixel, rows without filters)"""
    at, packed, head = 8, b"", None
    while at < len(data):
        size, kind = struct.unpack("!I4s", data[at:at + 8])
        if kind == b"IHDR":
            head = struct.unpack("!IIBBBBB", data[at + 8:at + 8 + size])
        elif kind == b"IDAT":
            packed += data[at + 8:at + 8 + size]
        at += 12 + size
    width, height, depth, colour = head[:4]
    assert depth == 8 and colour in (2, 6) and head[6] == 0, "8 bits of RGB or RGBA"
    n = 3 if colour == 2 else 4
    raw, rows, above = zlib.decompress(packed), [], bytearray(width * n)
    for y in range(height):
        kind, row = raw[y * (width * n + 1)], bytearray(raw[y * (width * n + 1) + 1:(y + 1) * (width * n + 1)])
        for x in range(len(row)):
            a, b = row[x - n] if x >= n else 0, above[x]
            if kind == 1:
                row[x] = (row[x] + a) & 255
            elif kind == 2:
                row[x] = (row[x] + b) & 255
            elif kind == 3:
                row[x] = (row[x] + (a + b) // 2) & 255
            elif kind == 4:
                c = above[x - n] if x >= n else 0
                p = a + b - c
                pa, pb, pc = abs(p - a), abs(p - b), abs(p - c)
                row[x] = (row[x] + (a if pa <= pb and pa <= pc else b if pb <= pc else c)) & 255
        rows.append(row)
        above = row
    return width, height, n, rows


def chunk(kind, data):
    return struct.pack("!I", len(data)) + kind + data + struct.pack("!I", zlib.crc32(kind + data))


def small(data):
    width, height, n, rows = read(data)
    pixels = [[tuple(row[x:x + 3]) for x in range(0, len(row), n)] for row in rows]
    counts = collections.Counter(p for row in pixels for p in row)
    palette = []
    for p, _ in counts.most_common():  # the commonest that differ visibly
        if len(palette) < 256 and all(sum(abs(a - b) for a, b in zip(p, q)) > 12 for q in palette):
            palette.append(p)
    place = {p: min(range(len(palette)), key=lambda i, p=p: sum((a - b) ** 2 for a, b in zip(p, palette[i]))) for p in counts}
    lines = b"".join(b"\0" + bytes(place[p] for p in row) for row in pixels)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack("!IIBBBBB", width, height, 8, 3, 0, 0, 0)) + \
        chunk(b"PLTE", bytes(v for p in palette for v in p)) + chunk(b"IDAT", zlib.compress(lines, 9)) + chunk(b"IEND", b"")


for name in sys.argv[1:-1]:
    path = pathlib.Path(name)
    out = pathlib.Path(sys.argv[-1], "page-" + path.name)
    out.write_bytes(small(path.read_bytes()))
    print(f"{out}: {out.stat().st_size} bytes")
