#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tidy.py CLANG-TIDY BUILD-DIR (--all | --base COMMIT): runs clang-tidy on src and sim, one file on each processor.

--base looks at the files that differ from the commit, and at the files that include a header that differs.
The compilation database in BUILD-DIR says how each file is compiled; files it does not know are left out.
"""
import concurrent.futures
import json
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.M)
# A change here may change what clang-tidy says of any file.
RULES = {".clang-tidy", "tools/tidy.py"}


def git(*words):
    return subprocess.run(["git", "-c", f"safe.directory={ROOT}", *words], cwd=ROOT, check=True,
                          stdout=subprocess.PIPE, text=True).stdout.split("\0")


def changed_since(base):
    return set(filter(None, git("diff", "--name-only", "-z", base, "--") +
                      git("ls-files", "-oz", "--exclude-standard")))


def includers():
    """Which files include a file: {included: {including}}, paths from the root."""
    by = {}
    for top in ("src", "sim", "include"):
        for path in (ROOT / top).rglob("*"):
            if path.suffix not in (".c", ".h", ".def"):
                continue
            for name in INCLUDE.findall(path.read_text(errors="replace")):
                for folder in (path.parent, ROOT / "src", ROOT / "include", ROOT / "sim", ROOT):
                    if (folder / name).is_file():
                        found = os.path.relpath(folder / name, ROOT)
                        by.setdefault(found, set()).add(os.path.relpath(path, ROOT))
                        break
    return by


def touched(changed):
    """The changed files and all that include one of them, directly or not."""
    by, todo, seen = includers(), list(changed), set(changed)
    while todo:
        for path in by.get(todo.pop(), ()):
            if path not in seen:
                seen.add(path)
                todo.append(path)
    return seen


def main():
    program, build, how = sys.argv[1:4]
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as f:
        known = {os.path.relpath(os.path.join(e["directory"], e["file"]), ROOT) for e in json.load(f)}
    files = sorted(p for p in known if re.match(r"(src|sim)/.*\.c$", p) and (ROOT / p).is_file())
    if how == "--base":
        changed = changed_since(sys.argv[4])
        if not changed & RULES:
            wanted = touched(changed)
            files = [p for p in files if p in wanted]
    print(f"  {len(files)} files", flush=True)

    def tidy(path):
        return subprocess.run([program, "-p", build, "--quiet", path], cwd=ROOT, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)

    bad = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for path, done in zip(files, pool.map(tidy, files)):
            if done.returncode:
                bad = 1
                # Beside what it found, standard error only counts warnings that are not shown.
                print(done.stdout or f"{path}: {done.stderr}", end="", flush=True)
    return bad


sys.exit(main())
