#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""docs/bad-input.md: every command in it is typed, and must answer as the page says.

usage: bad_input_page.py SLUICE PAGE [--write]

--write puts the answers of this build into the page. The commands run in a folder of their own, with a simulated card,
one tenant called train and no home.
"""
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import folders  # noqa: E402

WIDTH = 112  # longer answers are folded here, as the page is
BLOCK = re.compile(r"^```text\n(.*?)^```$", re.M | re.S)


class World:
    def __init__(self, sluice):
        self.home = tempfile.mkdtemp(prefix="slbad-", dir="/tmp")
        self.env = {"PATH": self.home + ":/usr/bin:/bin", "HOME": self.home, "SLUICE_DIR": self.home + "/d",
                    "LC_ALL": "C.UTF-8"}
        os.symlink(sluice, self.home + "/sluice")
        with open(self.home + "/limits.yaml", "w", encoding="utf-8") as f:
            f.write("users:\n  alice: {memory: much}\n")
        self.tenant = subprocess.Popen(
            ["sluice", "run", "--sim", "h200x2", "--name", "train", "--memory", "10Gi", "--cores", "30", "--gpu", "0",
             "--", "sleep", "600"], env=self.env, cwd=self.home, start_new_session=True)
        for _ in range(3000):
            seen = subprocess.run(["sluice", "status", "train"], env=self.env, cwd=self.home, capture_output=True,
                                  check=False)
            if seen.returncode == 0:
                return
            time.sleep(0.02)
        self.close()
        sys.exit("the tenant of the page did not start")

    def answer(self, command):
        run = subprocess.run(["/bin/sh", "-c", command], env=self.env, cwd=self.home, stdin=subprocess.DEVNULL,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60, check=False)
        lines = run.stdout.decode().replace(self.home, "~").splitlines()
        folded = [piece for line in lines
                  for piece in textwrap.wrap(line, WIDTH, break_long_words=False, break_on_hyphens=False) or [""]]
        return folded + [f"(exit code {run.returncode})"]

    def close(self):
        os.killpg(self.tenant.pid, signal.SIGTERM)
        self.tenant.wait()
        folders.end_arbiters(self.home)
        shutil.rmtree(self.home)


def commands(block):
    return [line[2:] for line in block.splitlines() if line.startswith("$ ")]


def main():
    sluice, page = os.path.abspath(sys.argv[1]), sys.argv[2]
    with open(page, encoding="utf-8") as f:
        text = f.read()
    asked = [c for b in BLOCK.findall(text) for c in commands(b)]
    if not asked:
        sys.exit(f"{page} has no commands")
    world = World(sluice)
    try:
        answers = {c: "\n".join(["$ " + c, *world.answer(c)]) for c in asked}
    finally:
        world.close()
    new = BLOCK.sub(lambda m: "```text\n" + "\n".join(answers[c] for c in commands(m[1])) + "\n```", text)
    accepted = [c for c, a in answers.items() if a.endswith("(exit code 0)")]
    if accepted:
        sys.exit(f"not refused: {accepted}")
    if "--write" in sys.argv:
        with open(page, "w", encoding="utf-8") as f:
            f.write(new)
    elif new != text:
        for old, now in zip(BLOCK.findall(text), BLOCK.findall(new)):
            if old != now:
                print(f"the page says:\n{old}\nthis build says:\n{now}")
        sys.exit(f"{page} is not what is typed and answered; {sys.argv[0]} {sluice} {page} --write mends it")
    print(f"{len(asked)} commands, each answered as the page says")


if __name__ == "__main__":
    main()
