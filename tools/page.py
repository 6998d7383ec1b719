#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""page.py [--check]: write the hashes of the page's script and style into its Content-Security-Policy.

A browser runs the one script and the one style whose hashes the policy names, and nothing else. After a change of
src/page/page.html run this program (`make docs` does). With --check nothing is written, and the exit status is 1 with
the reasons when
  - the policy is not what this program would write;
  - the file is larger than it may be, or names something outside of itself;
  - the script has a way to make markup of a text."""
import base64
import hashlib
import pathlib
import re
import sys

MOST_BYTES = 300_000
path = pathlib.Path(__file__).resolve().parents[1] / "src/page/page.html"
POLICY = re.compile(r'(http-equiv="Content-Security-Policy" content=")[^"]*(")')
# Texts of others become nodes by textContent only.
MARKUP = ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", "DOMParser", "srcdoc",
          "setAttribute(\"style\"", "javascript:")


def hashed(html, tag):
    inner = re.findall(rf"<{tag}>(.*?)</{tag}>", html, re.S)
    if len(inner) != 1:
        sys.exit(f"page.py: {path.name} must have one <{tag}>, and has {len(inner)}")
    return "'sha256-" + base64.b64encode(hashlib.sha256(inner[0].encode()).digest()).decode() + "'"


def problems(html):
    if len(html.encode()) > MOST_BYTES:
        yield f"{path.name} has more than {MOST_BYTES} bytes"
    for word in MARKUP:
        if word in html:
            yield f"{path.name} has \"{word}\": make nodes with textContent"
    # Namespaces are names, not places.
    for link in re.findall(r"(?:https?:)?//[\w.-]+\.[a-z]+[^\s'\"]*", html):
        if "www.w3.org/2000/svg" not in link:
            yield f"{path.name} names {link}: the page must need nothing from outside"
    for attribute in re.findall(r"<[^>]*\s(on\w+|src)=", html):
        yield f"{path.name} has an attribute {attribute}=: the policy does not let it work"


html = path.read_text()
policy = "; ".join(("default-src 'none'", "script-src " + hashed(html, "script"), "style-src " + hashed(html, "style"), "img-src data:",
                    "connect-src 'self'", "base-uri 'none'", "form-action 'none'", "require-trusted-types-for 'script'",
                    "trusted-types 'none'"))
wanted = POLICY.sub(lambda m: m[1] + policy + m[2], html)
found = list(problems(wanted))
if "--check" in sys.argv[1:]:
    if wanted != html:
        found.append(f"the policy of {path.name} is old: run tools/page.py")
elif wanted != html:
    path.write_text(wanted)
for text in found:
    print(f"page.py: {text}", file=sys.stderr)
sys.exit(1 if found else 0)
