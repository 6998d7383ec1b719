#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""errors.py [--check | --format]: write docs/errors.md from the tables of messages (src/**/errors.h).

--format lays the tables out, which clang-format leaves alone: the text beside its name, the cause beside the cure, where
they fit a line.

docs/errors.md.in is the frame: its prose, and a line `@messages PART` where the entries of a part belong. With
--check nothing is written. The exit status is 1, with the reasons, when
  - docs/errors.md is not what this program would write;
  - a message has no cause, no name of its own, or no use in the code;
  - the code passes a text to one of the functions below instead of the name of an entry.
Two kinds of text need no entry, because the frame explains all of them: "out of memory …", and "cannot …" with the
reason of the system after it (sl_err_errno)."""
import pathlib
import re
import sys

import mdwrap

root = pathlib.Path(__file__).resolve().parents[1]
frame = root / "docs/errors.md.in"
page = root / "docs/errors.md"
LITERAL = re.compile(r'"((?:[^"\\\n]|\\.)*)"|\b(PRI\w+)')
ENTRY = re.compile(r'^SL_ERROR(_ALSO|_PART)?\(\s*(\w+)?,?((?:\s|"(?:[^"\\\n]|\\.)*"|PRI\w+|,)*)\);', re.M)
CALL = re.compile(r"\b(sl_err_set|sl_err_errno|sl_cli_complain|sl_config_fail|sl_plan_warn|csv_error|FAIL)"
                  r'\s*\(((?:[^;"]|"(?:[^"\\]|\\.)*")*);')


class Table:
    """What the tables say, and what is wrong with them."""

    def __init__(self):
        self.parts, self.names, self.problems = {}, {}, []

    def read(self, path):
        part = None
        for kind, name, rest in ENTRY.findall(path.read_text()):
            fields = [text_of(field) for field in split(rest)]
            if kind == "_PART":
                part = self.parts.setdefault(fields[0], [])
                continue
            if part is None:
                self.problems.append(f"{path}: {name} comes before the first SL_ERROR_PART")
                return
            if name in self.names:
                self.problems.append(f"{path}: {name} is also in {self.names[name]}")
            self.names[name] = path
            if kind == "_ALSO" and part:
                part[-1][0].append(fields[0])
            elif kind == "" and len(fields) == 3 and all(fields):
                part.append(([fields[0]], fields[1], fields[2]))
            else:
                self.problems.append(f"{path}: {name} needs a text, a cause and a cure")


def split(source):
    """The arguments of an entry: runs of literals with commas between them."""
    bare = LITERAL.sub(lambda m: m[0].replace(",", "\0"), source)
    return [field.replace("\0", ",") for field in bare.split(",") if field.strip()]


def text_of(source):
    """Adjacent C literals as one text."""
    text = "".join(m[1] if m[2] is None else m[2] for m in LITERAL.finditer(source))
    return re.sub(r"\\(.)", lambda m: {"n": " "}.get(m[1], m[1]), text)


def shown(text):
    """A format as the page shows it: … for a name or a number."""
    text = re.sub(r"%[-0-9.*]*(?:PRI\w+|(?:ll|l|z|h)?[a-z])", "…", text.replace("%%", "\0")).replace("\0", "%")
    text = re.sub(r"…(\.\.\.|…)+", "…", text)
    return f"`` {text} ``" if "`" in text else f"`{text}`"


def rows(part):
    """A list item for each entry: its texts, then cause and cure, a line each on the page."""
    lines = []
    for texts, cause, cure in part:
        item = [shown(text) + "<br>" for text in texts] + [f"Cause: {cause}.<br>", f"Do: {cure}."]
        lines += ["* " + item[0], *("  " + line for line in item[1:])]
    return lines


def render(table):
    lines, used = [], set()
    for line in frame.read_text().splitlines():
        part = re.match(r"@messages ([\w-]+)$", line)
        if not part:
            lines.append(line)
        elif part[1] in table.parts:
            used.add(part[1])
            lines += rows(table.parts[part[1]])
        else:
            table.problems.append(f"docs/errors.md.in: no table has the part {part[1]}")
    for name in table.parts.keys() - used:
        table.problems.append(f"docs/errors.md.in: there is no place for the part {name}")
    return mdwrap.rewrap("\n".join(lines) + "\n")


def check_code(table):
    """Texts that a call has instead of a name, and names that no call has."""
    used = set()
    for path in sorted([*root.glob("src/**/*.c"), *root.glob("src/**/*.h")]):
        if path.name == "errors.h":
            continue
        source = path.read_text()
        used |= set(re.findall(r"\bSL_E_(\w+)", source))
        for call in CALL.finditer(source):
            text = text_of(call[2])
            words = re.findall(r"[A-Za-z]{2,}", re.sub(r"%[-0-9.*]*[a-z]+", "", text))
            general = "out of memory" in text or (call[1] == "sl_err_errno" and text.startswith("cannot "))
            if len(words) > 1 and not general and "SL_E_" not in call[2]:
                where = source.count("\n", 0, call.start()) + 1
                table.problems.append(f"{path.relative_to(root)}:{where}: this text has no entry in an errors.h: {text}")
    for name in table.names.keys() - used:
        table.problems.append(f"{table.names[name].relative_to(root)}: {name} is used nowhere")


def fill(text, end, first=""):
    """A literal behind `first`, or on lines of its own where it does not fit there."""
    if len(first) + len(text) + 2 + len(end) <= mdwrap.WIDTH:
        return f'{first}"{text}"{end}'
    lines, room = [first.rstrip()] if first.strip() else [], mdwrap.WIDTH - len('    ""')
    while len(text) + len(end) > room:
        cut = text.rindex(" ", 0, room) + 1
        lines, text = [*lines, f'    "{text[:cut]}"'], text[cut:]
    return "\n".join([*lines, f'    "{text}"{end}'])


def lay_out(entry):
    kind, name, rest = entry.groups()
    if kind == "_PART" or any(m[2] for m in LITERAL.finditer(rest)):
        return entry[0]  # a PRIu64 between two literals stays where it is
    fields = ["".join(m[1] for m in LITERAL.finditer(field)) for field in split(rest)]
    if kind:
        return fill(fields[0], ");", f"SL_ERROR{kind}({name}, ")
    text, cause, cure = fields
    end = f'    "{cause}", "{cure}");'
    if len(end) > mdwrap.WIDTH:
        end = fill(cause, ",", "    ") + "\n" + fill(cure, ");", "    ")
    return fill(text, ",", f"SL_ERROR({name}, ") + "\n" + end


def main():
    if "--format" in sys.argv[1:]:
        for path in root.glob("src/**/errors.h"):
            path.write_text(ENTRY.sub(lay_out, path.read_text()))
        return
    table = Table()
    for path in sorted(root.glob("src/**/errors.h")):
        table.read(path)
    text = render(table)
    check_code(table)
    if "--check" not in sys.argv[1:]:
        page.write_text(text)
    elif text != page.read_text():
        table.problems.append("docs/errors.md is not what the tables say: run tools/errors.py")
    for problem in table.problems:
        print(problem)
    print(f"{len(table.names)} messages examined")
    sys.exit(1 if table.problems or not table.names else 0)


main()
