#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds earlier versions of Sluice from the repository's history: real ones, not copies that speak as they did.

    old_version.py BUILD NAME [--image]    a folder in BUILD/old with bin/, lib/, and sluice-image.tar; prints it

The versions stand in tests/data/versions.txt. A version is built once. Exit status: 0, or 77 where this checkout has no
history (a tarball, a shallow clone).
"""
import fcntl
import os
import shutil
import subprocess
import sys

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
NO_HISTORY = 77


class NoHistory(Exception):
    """The commit is not in this checkout."""


def versions():
    """{name: (commit, protocol)}, the oldest first."""
    with open(os.path.join(TOP, "tests", "data", "versions.txt"), encoding="utf-8") as f:
        rows = [line.split() for line in f if line.strip() and not line.startswith("#")]
    return {name: (commit, int(protocol)) for name, commit, protocol in rows}


def run(*argv, **more):
    return subprocess.run(argv, check=True, stdout=subprocess.DEVNULL, **more)


def git(*argv, **more):
    return subprocess.run(["git", "-c", "safe.directory=*", "-C", TOP, *argv], capture_output=True, check=False, **more)


def unpack(commit, source):
    """The tree of the commit; whole or not at all."""
    if git("cat-file", "-e", commit + "^{commit}").returncode:
        raise NoHistory(f"the history of this checkout has no commit {commit[:12]}")
    shutil.rmtree(source, ignore_errors=True)
    os.makedirs(source + ".new", exist_ok=True)
    archive = git("archive", commit)
    run("tar", "x", "-C", source + ".new", input=archive.stdout)
    os.rename(source + ".new", source)


def compile_targets(source, output, targets):
    if not os.path.exists(os.path.join(output, "CMakeCache.txt")):
        generator = ["-G", "Ninja"] if shutil.which("ninja") else []
        launcher = ["-DCMAKE_C_COMPILER_LAUNCHER=ccache"] if shutil.which("ccache") else []
        run("cmake", "-S", source, "-B", output, *generator, *launcher, "-DSLUICE_TESTS=OFF", "-DSLUICE_WERROR=OFF", "-Wno-dev",
            "-DCMAKE_C_FLAGS_RELWITHDEBINFO=-O1 -DNDEBUG", stderr=subprocess.DEVNULL)  # it has to run, not to be fast
    run("cmake", "--build", output, "-j", str(os.cpu_count() or 1), "--target", *targets)


def old(build, name, image=False):
    """The folder of its build. Takes a lock: two tests may ask at once."""
    commit, _ = versions()[name]
    folder = os.path.join(build, "old", commit[:12])
    source, output = os.path.join(folder, "source"), os.path.join(folder, "build")
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "lock"), "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.path.exists(source):
            unpack(commit, source)
        tar = os.path.join(output, "sluice-image.tar")
        if not image:
            compile_targets(source, output, ["sluice", "sluice_preload"])
        elif not os.path.exists(tar):
            compile_targets(source, output, ["sluice", "sluice_preload", "sluiced", "sluice-controller"])
            run("sh", os.path.join(source, "tools", "image.sh"), output, "old", tar, stderr=subprocess.DEVNULL)
    return output


if __name__ == "__main__":
    try:
        print(old(os.path.abspath(sys.argv[1]), sys.argv[2], "--image" in sys.argv[3:]))
    except NoHistory as e:
        print(f"old_version: NOT BUILT: {e}", file=sys.stderr)
        sys.exit(NO_HISTORY)
