#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""docs.py [BUILD]: what the documents refer to is there.

Relative links and their #anchors, paths of the tree and `make` targets in code, man pages that man pages name, and,
with a build folder, the tests named as proof, none of which may be skipped. Every page below docs/ is linked from another one."""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

root = pathlib.Path(__file__).resolve().parents[2]
problems = []


def tree():
    """The tree's files by their paths: what git tracks or would track, else all but build folders."""
    git = subprocess.run(["git", "-c", f"safe.directory={root}", "ls-files", "-co", "--exclude-standard"],
                         cwd=root, capture_output=True, text=True)
    if git.returncode == 0:
        return {f for f in git.stdout.splitlines() if (root / f).is_file()}
    found = (p.relative_to(root) for p in root.rglob("*") if p.is_file())
    return {str(p) for p in found if not re.match(r"build|\.git/", str(p))}


files = tree()
folders = {str(p) for f in files for p in pathlib.PurePath(f).parents}
tops = sorted({f.split("/")[0] for f in files if "/" in f})
pages = sorted(f for f in files if f.endswith(".md"))
text_of = {page: (root / page).read_text() for page in pages}


def complain(page, what):
    problems.append(f"{page}: {what}")


def anchors(page):
    """The names under which headings can be linked to, as GitHub makes them."""
    seen, fenced = set(), False
    for line in text_of[page].splitlines():
        fenced ^= line.lstrip().startswith("```")
        heading = None if fenced else re.match(r"#+ +(.*?) *#*$", line)
        if heading:
            word = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading[1]).lower()
            slug = re.sub(r"[^\w\- ]", "", word).replace(" ", "-")
            n = 0
            while (slug if n == 0 else f"{slug}-{n}") in seen:
                n += 1
            seen.add(slug if n == 0 else f"{slug}-{n}")
    return seen


def resolve(page, target):
    """A relative link's path from the root; None if it leaves the tree."""
    parts = []
    for part in [*pathlib.PurePath(page).parent.parts, *target.split("/")]:
        if part == ".." and not parts:
            return None
        if part == "..":
            parts.pop()
        elif part not in ("", "."):
            parts.append(part)
    return "/".join(parts) or "."


linked = {"README.md"}


def check_links(page):
    prose = re.sub(r"```.*?```|`[^`\n]*`", "", text_of[page], flags=re.S)
    for target in re.findall(r"\]\(<?([^)\s>]+)>?(?: \"[^\"]*\")?\)", prose):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        where = resolve(page, path) if path else page
        if where not in files and where not in folders:
            complain(page, f"there is no {target}")
            continue
        if where != page:
            linked.add(where)
        if where in folders and f"{where}/README.md" in files:
            linked.add(f"{where}/README.md")
        if anchor and where in text_of and anchor not in anchors(where):
            complain(page, f"{target}: {where} has no such heading")


def is_there(path):
    """A path as written: a file, a folder, a pattern, or a file but for its ending."""
    path = path.rstrip("/.")
    if path in files or path in folders:
        return True
    pattern = re.escape(path).replace(r"\*", "[^/]*")
    pattern = re.sub(r"\\{([^}]*)\\}", lambda m: "(" + m[1].replace(",", "|") + ")", pattern)
    return any(re.fullmatch(pattern + r"(\.[a-z]+)?", f) for f in files | folders)


targets = set(re.findall(r"^([a-z0-9-]+):", (root / "Makefile").read_text(), re.M))
a_path = re.compile(r"(?<![\w./$<~-])(?:\.\./sluice/)?((?:" + "|".join(map(re.escape, tops)) + r")/[\w./*{},-]*)")


def check_code(page):
    for code in re.findall(r"```.*?```|`[^`\n]+`", text_of[page], re.S):
        for match in a_path.finditer(code):
            path, after = match[1].rstrip(","), code[match.end():match.end() + 1]
            # A placeholder (docs/X, deploy/overlays/…, tests/<name>) stands for many.
            if after not in ("…", "<", "$") and not re.search(r"/[A-Z]+(/|$)", path) and not is_there(path):
                complain(page, f"there is no {path}")
        for target in re.findall(r"^(?:[`$ ]*)make ([a-z0-9-]+)", code, re.M):
            if target not in targets:
                complain(page, f"there is no `make {target}`")


def check_man():
    names = {pathlib.PurePath(f).name for f in files if f.startswith("docs/man/")}
    for name in sorted(names):
        text = (root / "docs/man" / name).read_text()
        for other, section in re.findall(r"^\.Xr (sluice\S*) (\d)", text, re.M):
            if f"{other}.{section}" not in names:
                complain(f"docs/man/{name}", f"there is no page {other}({section})")
        for path in re.findall(r"^\.Pa (docs/\S+)", text, re.M):
            if path not in files:
                complain(f"docs/man/{name}", f"there is no {path}")


def ctest(build, word):
    """What ctest says of the tests there. Not in that folder: ctest would write over the log of the run we are in."""
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "CTestTestfile.cmake"), "w", encoding="utf-8") as f:
            f.write(f'subdirs("{os.path.abspath(build)}")\n')
        return subprocess.run(["ctest", "--test-dir", folder, word], capture_output=True, text=True, check=True).stdout


def check_tests(build):
    listing = ctest(build, "-N")
    tests = re.findall(r"Test +#\d+: (\S+)", listing)
    kinds = "|".join(sorted({t.split(".")[0] for t in tests}))
    name = re.compile(r"(?<![\w./-])((?:" + kinds + r")\.[a-z][a-z0-9_*]*(?:\.[a-z0-9_*]+)*)")
    for page in pages:
        for code in re.findall(r"`([^`\n]+)`", text_of[page]):
            for test in name.findall(code) if re.fullmatch(name, code) else []:
                pattern = re.escape(test).replace(r"\*", ".*")
                if not re.search(r"\.(c|h|py|sh|md|json)$", test) and not any(re.fullmatch(pattern, t) for t in tests):
                    complain(page, f"there is no test {test}")


def check_form():
    """The README is short, and each page of docs/ begins with what its reader can do after it."""
    if text_of["README.md"].count("\n") > 120:
        complain("README.md", "over 120 lines: move the rest to docs/")
    for page in pages:
        if re.fullmatch(r"docs/[^/]+\.md", page) and not re.match(r"# .*\n\nAfter this page ", text_of[page]):
            complain(page, "does not begin with what the reader can do: After this page …")


def check_proofs(build):
    """What docs/testing.md calls proven is not proven by a test that may be skipped for want of a program."""
    shown = ctest(build, "--show-only=json-v1")
    skipped = {test["name"] for test in json.loads(shown)["tests"]
               if any(p["name"] == "SKIP_RETURN_CODE" for p in test.get("properties", []))}
    section = re.search(r"^## What is proven$(.*?)^## ", text_of["docs/testing.md"], re.M | re.S)
    named = re.findall(r"`([a-z]+\.[\w.*]+)`", section[1]) if section else []
    if not named:
        complain("docs/testing.md", "What is proven names no test")
    for name in named:
        pattern = re.escape(name).replace(r"\*", ".*")
        for test in sorted(t for t in skipped if re.fullmatch(pattern, t)):
            complain("docs/testing.md", f"{name}: {test} may be skipped, so it proves nothing on a bare machine")


for page in pages:
    check_links(page)
    check_code(page)
for page in pages:
    if page.startswith("docs/") and page not in linked and not page.startswith("docs/measurements/20"):
        complain(page, "no other page links to it")
check_man()
check_form()
if len(sys.argv) > 1:
    check_tests(sys.argv[1])
    check_proofs(sys.argv[1])
for problem in problems:
    print(problem)
print(f"{len(pages)} pages examined")
sys.exit(1 if problems else 0)
