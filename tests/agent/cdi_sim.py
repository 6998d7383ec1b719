#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The simulated driver, from its root through the spec into bare roots: each sees the GPUs it was given, all
of them and no other. Two cards, the second cut into MIG devices."""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import cdi_loader


def listed(text):
    return set(re.findall(r"UUID: ([A-Za-z0-9-]+)", text))


def main():
    write, program, ctl = sys.argv[1:]
    with tempfile.TemporaryDirectory(prefix="sluice-cdi-") as name:
        top = pathlib.Path(name)
        driver = top / "driver"
        bare = {k: v for k, v in os.environ.items() if not k.startswith("SLUICE_")}
        subprocess.run([ctl, "make-root", driver, "h200x2"], check=True, env=bare)
        subprocess.run([ctl, "mig", "1", "3g.71gb", "1g.18gb"], check=True,
                       env={**bare, "SLUICE_SIM_STATE": str(driver / "state/machine")})
        subprocess.run([write, driver, top / "cdi"], check=True, env=bare)
        spec = cdi_loader.read_spec(top / "cdi")
        names = [d["name"] for d in spec["devices"]]
        cards = [n for n in names if n.startswith("GPU-")]
        migs = [n for n in names if n.startswith("MIG-")]
        print(names)
        if len(cards) != 2 or len(migs) != 2:
            return 1
        one, none = "error 0, cards 1\n", "error 100, cards 0\n"
        cases = {
            "0": ({cards[0]}, one),
            cards[0]: ({cards[0]}, one),
            cards[1]: ({cards[1]}, none),  # in MIG mode a card by itself computes nothing
            "1:1": ({cards[1], migs[1]}, one),
            migs[0]: ({cards[1], migs[0]}, one),
            "all": ({*cards, *migs}, None),
        }
        for number, (device, (want, count)) in enumerate(cases.items()):
            root = top / f"rootfs-{number}"
            if not cdi_loader.make_root(root, program):
                return 77
            env = cdi_loader.give(root, spec["containerEdits"])
            edits = next(d["containerEdits"] for d in spec["devices"] if d["name"] == device)
            env.update(cdi_loader.give(root, edits))
            answer = cdi_loader.enter(root, "/usr/bin/nvidia-smi", "-L", env=env)
            cuda = cdi_loader.enter(root, "/program", env=env)
            print(device, answer.stdout, answer.stderr, cuda.stdout, cuda.stderr)
            if listed(answer.stdout) != want or count not in (None, cuda.stdout):
                print(f"{device}: expected {want}, {count}")
                return 1
        return 0


if __name__ == "__main__":
    sys.exit(main())
