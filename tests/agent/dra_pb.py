# SPDX-License-Identifier: Apache-2.0
"""A claim in the API server's protobuf, by hand: as much of it as a test of status.devices looks at."""
import json

MAGIC = b"k8s\0"


def varint(n):
    out = bytearray()
    while n > 0x7F:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    return bytes(out) + bytes([n])


def field(number, value):
    """Of bytes or a string."""
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def fields(data):
    """[(number, bytes or int)] in their order."""
    def number():
        nonlocal at
        n = shift = 0
        while True:
            byte = data[at]
            at += 1
            n |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return n
    at, found = 0, []
    while at < len(data):
        key = number()
        if key & 7 == 0:
            found.append((key >> 3, number()))
        elif key & 7 == 2:
            size = number()
            if at + size > len(data):
                raise ValueError("a field is longer than its message")
            found.append((key >> 3, data[at:at + size]))
            at += size
        else:
            raise ValueError(f"wire type {key & 7}")
    return found


def first(data, number, default=b""):
    return next((v for n, v in fields(data) if n == number), default)


def device(driver, pool, name, more=b""):
    return field(1, driver) + field(2, pool) + field(3, name) + more


def claim(uid, version, allocation, devices, spec=b"\x0a\x02\x0a\x00"):
    """allocation and devices (each) are bytes; a reservation stands between them."""
    meta = field(1, "claim") + field(3, "default") + field(5, uid) + field(6, version)
    status = field(1, allocation) + field(2, field(3, "pods") + field(4, "pod-1") + field(5, "u-pod-1"))
    status += b"".join(field(4, d) for d in devices)
    body = field(1, meta) + field(2, spec) + field(3, status)
    kind = field(1, "resource.k8s.io/v1") + field(2, "ResourceClaim")
    return MAGIC + field(1, kind) + field(2, body) + field(3, "") + field(4, "")


def read_device(data):
    out = {"conditions": []}
    for n, v in fields(data):
        if n in (1, 2, 3, 7):
            out[{1: "driver", 2: "pool", 3: "device", 7: "shareID"}[n]] = v.decode()
        elif n == 4:
            names = {1: "type", 2: "status", 5: "reason", 6: "message"}
            out["conditions"].append({names[k]: x.decode() for k, x in fields(v) if k in names}
                                     | {"seconds": first(first(v, 4), 1, 0)})
        elif n == 5:
            out["data"] = json.loads(first(v, 1))
    return out


def read_claim(data):
    """{kind, uid, version, spec, allocation, reserved, devices (bytes each)}"""
    if data[:4] != MAGIC:
        raise ValueError("not the API server's protobuf")
    body = first(data[4:], 2)
    meta, status = first(body, 1), first(body, 3)
    return {"kind": first(data[4:], 1), "uid": first(meta, 5).decode(), "version": first(meta, 6).decode(),
            "spec": first(body, 2), "allocation": first(status, 1),
            "reserved": [v for n, v in fields(status) if n == 2], "devices": [v for n, v in fields(status) if n == 4]}
