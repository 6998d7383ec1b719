#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Lists the messages a user can meet (sl_err_set, sl_err_errno, sl_cli_complain, and the configuration's
own, in the rooms named below) whose text docs/errors.md does not mention. A message is known by the
beginning of a literal part."""
import pathlib
import re
import sys

root = pathlib.Path(__file__).resolve().parents[2]
files = [*sorted(root.glob("src/cli/*.c")), *sorted(root.glob("src/arbiter/*.c")),
         *sorted(root.glob("src/config/*.c")), *sorted(root.glob("src/agent/**/*.c")),
         *sorted(root.glob("src/http/*.c")), *sorted(root.glob("src/kube/*.c")),
         *sorted(root.glob("src/controller/*.c")), *sorted(root.glob("src/share/*.c")),
         root / "src/base/units.c", root / "src/base/quantity.c", root / "src/gpu/nvml.c"]
page = re.sub(r"\s+", " ", (root / "docs/errors.md").read_text())
# Said by the system more than by us, or only with memory exhausted.
general = ("out of memory", "cannot ", "turns: ")

call = re.compile(r'\b(?:sl_err_set|sl_err_errno|sl_cli_complain|sl_config_fail|sl_plan_warn|FAIL)\s*\(((?:[^;"]|"(?:[^"\\]|\\.)*")*);')
bad = count = 0
for path in files:
    for match in call.finditer(path.read_text()):
        text = "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', match.group(1).split("PRI")[0]))
        text = text.replace('\\"', '"').replace("%%", "%")
        text = re.sub(r"^(?:run|set|status|doctor|arbiter|simulate|config): ", "", text)
        parts = [p.strip(' "') for p in re.split(r"%[-0-9.*]*[a-z]+", text)]
        parts = [p for p in parts if len(p) >= 8]
        if not parts or text.startswith(general):
            continue
        count += 1
        # The beginning of a part is enough: the page ends long sentences with an ellipsis.
        if not any(part[:16].strip(' ".') in page for part in parts):
            print(f"{path.relative_to(root)}: not in docs/errors.md: {text}")
            bad = 1
print(f"{count} messages examined")
sys.exit(bad)
