#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What `make release` follows (docs/release.md).

    release.py check VERSION               may this tree be released as VERSION? Says everything that is missing.
    release.py make VERSION BUILD OUTPUT   collects a release from BUILD (stage/, packages/, sluice-image-VERSION.tar)

The same commit gives the same bytes, in whichever folder: every date is the commit's (SOURCE_DATE_EPOCH)."""
import gzip
import hashlib
import io
import lzma
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile

ROOT = pathlib.Path(__file__).resolve().parents[1]


def git(*words, text=True):
    done = subprocess.run(["git", "-c", f"safe.directory={ROOT}", *words], cwd=ROOT, capture_output=True, text=text, check=False)
    if done.returncode:
        sys.exit(f"release: git {words[0]}: {done.stderr if text else done.stderr.decode()}".strip())
    return done.stdout.strip() if text else done.stdout


def read(path):
    return (ROOT / path).read_text(encoding="utf-8")


def section(title):
    """The part of CHANGELOG.md below a heading that begins so, or None."""
    found = re.search(rf"^## {re.escape(title)}\b[^\n]*\n(.*?)(?=^## |\Z)", read("CHANGELOG.md"), re.M | re.S)
    return found.group(1) if found else None


def wrong(version):
    """A sentence for each reason why this tree is no release."""
    changed = git("status", "--porcelain").splitlines()
    if changed:
        yield f"the tree has {len(changed)} files that are not committed, as {changed[0].split()[-1]}: commit them, or put them away"
    if not re.search(rf"^## {re.escape(version)} - \d{{4}}-\d\d-\d\d$", read("CHANGELOG.md"), re.M):
        yield f'CHANGELOG.md has no line "## {version} - YYYY-MM-DD": write what is new in it'
    elif not re.search(r"^\* ", section(version), re.M):
        yield f"CHANGELOG.md says nothing of {version}: write what is new in it"
    if re.search(r"^\* ", section("Unreleased") or "", re.M):
        yield f'CHANGELOG.md has entries under "Unreleased": move them to {version}, or to the version that they are in'
    for key in ("version", "appVersion"):
        told = re.search(rf"^{key}: *(\S+)$", read("deploy/chart/Chart.yaml"), re.M).group(1)
        if told.strip("\"'") != version:
            yield f"deploy/chart/Chart.yaml has {key} {told}, and CMakeLists.txt {version}: write the same in both"
    if not re.search(rf"^\| {re.escape('.'.join(version.split('.')[:2]))} \|", read("SECURITY.md"), re.M):
        yield f"the table of SECURITY.md has no row for {'.'.join(version.split('.')[:2])}: say until when it is mended"
    for tag in git("tag", "--list", f"v{version}").splitlines():
        if git("rev-parse", f"{tag}^{{commit}}") != git("rev-parse", "HEAD"):
            yield f"the tag {tag} is another commit: give this one another version"


def check(version):
    reasons = list(wrong(version))
    for reason in reasons:
        print(f"release: {reason}", file=sys.stderr)
    if reasons:
        sys.exit(1)
    print(f"release: {version} of commit {git('rev-parse', '--short=12', 'HEAD')} may be released")


def write_source(version, path):
    tar = git("archive", "--format=tar", f"--prefix=sluice-{version}/", "HEAD", text=False)
    path.write_bytes(lzma.compress(tar, preset=6))


def write_chart(path, epoch):
    """As `helm package` does, but with one date and in the order of the names."""
    chart = ROOT / "deploy/chart"
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name in sorted(git("ls-files", "deploy/chart").splitlines()):
            inside = pathlib.Path(name).relative_to("deploy/chart")
            info = tarfile.TarInfo(f"sluice/{inside}")
            data = (chart / inside).read_bytes()
            info.size, info.mode, info.mtime = len(data), 0o644, epoch
            tar.addfile(info, io.BytesIO(data))
    path.write_bytes(gzip.compress(out.getvalue(), 9, mtime=0))


def make(version, build, out):
    epoch = int(os.environ.setdefault("SOURCE_DATE_EPOCH", git("log", "-1", "--format=%ct")))
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    for path in sorted((build / "packages").iterdir()):
        if path.name != "SHA256SUMS":
            shutil.copy(path, out)
    image = build / f"sluice-image-{version}.tar"
    shutil.copy(image, out)
    write_source(version, out / f"sluice-{version}.tar.xz")
    write_chart(out / f"sluice-chart-{version}.tgz", epoch)
    subprocess.run([sys.executable, str(ROOT / "tools/sbom.py"), version, git("rev-parse", "HEAD"), str(build / "stage"), str(image),
                    str(out), str(out / f"sluice-{version}.spdx.json")], check=True)
    made = sorted(out.iterdir())
    (out / "SHA256SUMS").write_text("".join(f"{hashlib.sha256(p.read_bytes()).hexdigest()}  {p.name}\n" for p in made))
    for path in made:
        print(f"release: {out / path.name}, {path.stat().st_size} bytes")


def main():
    if len(sys.argv) == 3 and sys.argv[1] == "check":
        check(sys.argv[2])
    elif len(sys.argv) == 5 and sys.argv[1] == "make":
        make(sys.argv[2], pathlib.Path(sys.argv[3]), pathlib.Path(sys.argv[4]))
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
