# SPDX-License-Identifier: Apache-2.0
"""The lease and ledger pages of a process, read from outside: for the report of a violation. The layout is that of
include/sluice/pages.h."""
import os
import struct

LEASE_MAGIC, LEDGER_MAGIC = 0x455341454C4C53, 0x524744454C4C53
UNITS = (1 << 40) - 1
MAX_GPUS, MAX_SLOTS = 16, 4096
SETTLING, LEASE_GPU = 180, 192
TOTALS, SLOT_BYTES, SLOT_MEMORY = 64, 512, 120
SLOTS = TOTALS + 64 * MAX_GPUS


def mib(units):
    return (units & UNITS) >> 11


def slot_text(ledger, slot):
    head = SLOTS + SLOT_BYTES * slot
    pid, = struct.unpack_from("<I", ledger, head)
    applied, *used = struct.unpack_from("<3Q", ledger, head + SLOT_MEMORY)
    return f"slot {slot} pid {pid} op {applied}: {mib(used[applied & 1])}" if mib(used[applied & 1]) else None


def ledger_text(ledger):
    word, = struct.unpack_from("<Q", ledger, TOTALS)
    slots = [text for text in (slot_text(ledger, s) for s in range(MAX_SLOTS)) if text]
    return f"total {mib(word)}, last by slot {word >> 40 & 0xfff}: [{'; '.join(slots)}]"


def lease_text(lease):
    settling, = struct.unpack_from("<I", lease, SETTLING)
    limit, overhead = struct.unpack_from("<2Q", lease, LEASE_GPU + 72)
    return f"limit {limit >> 20}, overhead {overhead >> 20}, settling {settling}"


def pages_text(pid):
    """In MiB, of the tenant's first GPU; what cannot be read is left out."""
    texts = []
    folder = f"/proc/{pid}/fd"
    for name in sorted(os.listdir(folder), key=int):
        path = os.path.join(folder, name)
        try:
            if not os.readlink(path).startswith("/memfd:"):
                continue
            with open(path, "rb") as f:
                data = f.read()
        except OSError:
            continue
        magic = struct.unpack_from("<Q", data)[0] if len(data) >= SLOTS else 0
        if magic == LEASE_MAGIC:
            texts.append(lease_text(data))
        elif magic == LEDGER_MAGIC:
            texts.append(ledger_text(data))
    return f"pid {pid}: {', '.join(texts)}"
