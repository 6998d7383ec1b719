#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""accepts.py BUILD: the compiler of BUILD accepts every C file that BUILD has no object of. It makes no code of it.

A file that several targets compile with the same flags is read once.
"""
import concurrent.futures
import json
import os
import shlex
import subprocess
import sys


def check_command(words):
    """The command without its outputs, which only reads."""
    kept, skip = [], False
    for word in words:
        if skip:
            skip = False
        elif word in ("-o", "-MF", "-MT", "-MQ"):
            skip = True
        elif word not in ("-c", "-MD", "-MMD"):
            kept.append(word)
    return (*kept, "-fsyntax-only")


def to_read(entries):
    found = {}
    for entry in entries:
        words = shlex.split(entry["command"])
        made = os.path.join(entry["directory"], words[words.index("-o") + 1])
        if entry["file"].endswith(".c") and not os.path.exists(made):
            found[check_command(words)] = entry["directory"]
    return found


def read(item):
    command, directory = item
    done = subprocess.run(command, cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode or done.stdout:
        print(f"{shlex.join(command)}\n{done.stdout}", flush=True)
    return done.returncode == 0 and not done.stdout


def main():
    with open(os.path.join(sys.argv[1], "compile_commands.json"), encoding="utf-8") as f:
        entries = json.load(f)
    found = to_read(entries)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        good = list(pool.map(read, found.items()))
    print(f"{len(entries)} files: {len(good)} read without making code, {good.count(False)} not accepted")
    sys.exit(0 if entries and all(good) else 1)


if __name__ == "__main__":
    main()
