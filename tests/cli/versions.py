#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Peers of other versions, for versions.bats: they speak the protocol of include/sluice/attach.h by themselves.

    versions.py hello SOCKET OPTION [VERSION]    a process that says HELLO so; prints the answer
    versions.py ask SOCKET VERSION               a client that asks for STATUS in another layout; prints the answer
    versions.py arbiter SOCKET OPTION [VERSION]  an arbiter whose WELCOME says so, for one process after the other
"""
import array
import os
import socket
import struct
import sys

MAGIC = 0x53434C53
HELLO, WELCOME, STATUS, ERROR = 1, 3, 8, 15
HEADER = struct.Struct("<IHHII")


def packet(kind, body, option=0, version=1):
    return HEADER.pack(MAGIC, version, kind, HEADER.size + len(body), option) + body


def show(data, fds):
    """One line: WELCOME with its protocol, or ERROR with its text; and the layout it is written in."""
    if not data:
        return "closed without a word"
    _, version, kind, _, option = HEADER.unpack_from(data)
    if kind == WELCOME:
        return f"layout {version}: welcome, protocol {option}, {fds} descriptors"
    text = data[HEADER.size + 4:].split(b"\0", 1)[0].decode() if kind == ERROR else f"message {kind}"
    return f"layout {version}: error: {text}"


def question(path, data):
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    sock.settimeout(20)
    sock.connect(path)
    sock.send(data)
    try:
        data, fds, _, _ = socket.recv_fds(sock, 65536, 4)
    except ConnectionResetError:
        data, fds = b"", []
    print(show(data, len(fds)))


def page(magic, size):
    fd = os.memfd_create("page", os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, size)
    os.pwrite(fd, struct.pack("<QII", magic, 2, size), 0)
    return fd


def arbiter(path, option, version):
    server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    server.bind(path)
    server.listen()
    while True:
        client, _ = server.accept()
        client.recv(65536)
        fds = [page(0, 4096) for _ in range(3)]
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))]
        client.sendmsg([packet(WELCOME, struct.pack("<II", 0, 1), option, version)], rights)
        client.recv(1)


def main(what, path, number, version="1"):
    if what == "arbiter":
        arbiter(path, int(number, 0), int(version))
    elif what == "ask":
        question(path, packet(STATUS, b"", version=int(number)))
    else:
        hello = struct.pack("<II32s", 0xFFFFFFFF, os.getpid(), b"other")
        if version != "1":
            hello += bytes(8)  # another layout may well have another size
        question(path, packet(HELLO, hello, int(number, 0), int(version)))


if __name__ == "__main__":
    main(*sys.argv[1:])
