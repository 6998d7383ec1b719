#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""package.py STAGE VERSION OUTPUT: Debian packages and a relocatable tarball of an installed tree, with SHA256SUMS.

STAGE is where `cmake --install` put usr/…, stripped. packaging/packages.txt says which package has which file. The same
tree gives the same bytes: every date is SOURCE_DATE_EPOCH, by default the date of the last commit. MAINTAINER names
the maintainer of the packages."""
import datetime
import email.utils
import gzip
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap

ROOT = pathlib.Path(__file__).resolve().parents[1]
MAINTAINER = os.environ.get("MAINTAINER") or "Sluice maintainers <sluice@example.org>"
SCRIPTS = ("preinst", "postinst", "prerm", "postrm")


def fail(why):
    sys.exit(f"package: {why}")


def output_of(*command, **how):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, **how).stdout.strip()


def set_epoch():
    """dpkg-deb and this program take all dates from SOURCE_DATE_EPOCH."""
    if "SOURCE_DATE_EPOCH" not in os.environ:
        git = subprocess.run(["git", "-c", f"safe.directory={ROOT}", "log", "-1", "--format=%ct"], cwd=ROOT,
                             capture_output=True, text=True)
        os.environ["SOURCE_DATE_EPOCH"] = git.stdout.strip() or "0"
    return int(os.environ["SOURCE_DATE_EPOCH"])


def read_table():
    """The paragraphs of packages.txt: one dictionary a package. Lists keep their lines, a description its form."""
    text = re.sub(r"^#.*\n", "", (ROOT / "packaging/packages.txt").read_text(), flags=re.M)
    packages = []
    for paragraph in text.strip().split("\n\n"):
        fields = re.findall(r"^(\w[\w-]*):[ ]*(.*(?:\n[ ].*)*)", paragraph, re.M)
        packages.append(dict(fields))
    return packages


def lines_of(field):
    return [line.strip() for line in field.splitlines() if line.strip()]


def plan_files(packages, stage):
    """Where each file goes: a list of (source, path in the package) a package. Every installed file is in one package."""
    owner, plan = {}, {}
    for package in packages:
        name = package["Package"]
        plan[name] = []
        for line in lines_of(package["Files"]):
            pattern, *folder = line.split()
            base = stage if any(stage.glob(pattern)) else ROOT
            found = sorted(base.glob(pattern))
            if not found:
                fail(f"{name}: there is no file {pattern}")
            for source in found:
                path = source.relative_to(base)
                if path in owner:
                    fail(f"{path} is in {owner[path]} and in {name}: name it once in packaging/packages.txt")
                owner[path] = name
                plan[name].append((source, pathlib.Path(folder[0]) / path.name if folder else path))
    for path in sorted(p.relative_to(stage) for p in stage.rglob("*") if not p.is_dir()):
        if path not in owner:
            fail(f"{path} is installed, but in no package: name it in packaging/packages.txt")
    return plan


def place_files(plan, tree):
    for source, path in plan:
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, tree / path, follow_symlinks=False)


def compress(path, data):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(data, 9, mtime=0))


def compress_manuals(tree):
    for page in sorted(tree.glob("usr/share/man/*/*")):
        packed = page.with_name(page.name + ".gz")
        if page.is_symlink(): # another name of a page
            packed.symlink_to(os.readlink(page) + ".gz")
        else:
            compress(packed, page.read_bytes())
        page.unlink()


def debian_changelog(version):
    """CHANGELOG.md in the form that Debian's tools read. A version that it does not name (a test's) gets an entry."""
    entries = []
    for number, date, body in re.findall(r"^## \[?([\d.]+)\]? - ([\d-]+)\n(.*?)(?=^## |\Z)",
                                         (ROOT / "CHANGELOG.md").read_text(), re.M | re.S):
        when = datetime.datetime.fromisoformat(date + "T12:00:00+00:00")
        items = re.findall(r"^\* (.*(?:\n  .*)*)", body, re.M)
        entries.append((number, when, [re.sub(r"[`*]", "", " ".join(item.split())) for item in items]))
    if not any(number == version for number, _, _ in entries):
        now = datetime.datetime.fromtimestamp(int(os.environ["SOURCE_DATE_EPOCH"]), datetime.timezone.utc)
        entries.insert(0, (version, now, ["Built from a tree between two versions."]))
    text = ""
    for number, when, items in entries:
        told = "\n".join(textwrap.fill(item, 76, initial_indent="  * ", subsequent_indent="    ") for item in items)
        text += f"sluice ({number}) stable; urgency=medium\n\n{told}\n\n"
        text += f" -- {MAINTAINER}  {email.utils.format_datetime(when)}\n\n"
    return text


def add_documents(tree, name, version):
    folder = tree / "usr/share/doc" / name
    compress(folder / "changelog.gz", debian_changelog(version).encode())
    shutil.copy(ROOT / "packaging/copyright", folder / "copyright")


def libraries(tree):
    """What dpkg-shlibdeps says the programs and libraries of a tree need."""
    programs = [str(p) for p in sorted(tree.rglob("*")) if p.is_file() and not p.is_symlink() and p.open("rb").read(4) == b"\x7fELF"]
    with tempfile.TemporaryDirectory() as folder:
        control = pathlib.Path(folder, "debian/control")
        control.parent.mkdir()
        control.write_text("Source: sluice\n\nPackage: sluice\nArchitecture: any\n")
        told = output_of("dpkg-shlibdeps", "-O", *programs, cwd=folder, stderr=subprocess.DEVNULL)
    return told.partition("=")[2].split(", ")


def write_control(package, tree, version):
    files = sorted(p for p in tree.rglob("*") if p.is_file() and not p.is_symlink())
    control = tree / "DEBIAN"
    control.mkdir()
    (control / "md5sums").write_text("".join(
        f"{hashlib.md5(p.read_bytes()).hexdigest()}  {p.relative_to(tree)}\n" for p in files
        if f"/{p.relative_to(tree)}" not in package.get("Conffiles", "")))
    if "Conffiles" in package:
        (control / "conffiles").write_text("".join(f"{line}\n" for line in lines_of(package["Conffiles"])))
    depends = [d.strip().replace("${Version}", version) for d in package["Depends"].split(",") if d.strip()]
    fields = {"Package": package["Package"], "Source": "sluice", "Version": version,
              "Architecture": output_of("dpkg", "--print-architecture"), "Maintainer": MAINTAINER,
              "Installed-Size": str(sum(p.stat().st_size + 1023 for p in files) // 1024),
              "Depends": ", ".join(sorted(depends + libraries(tree))), "Suggests": package.get("Suggests"),
              "Section": package["Section"], "Priority": "optional", "Description": package["Description"]}
    if fields["Source"] == fields["Package"]:
        del fields["Source"]
    (control / "control").write_text("".join(f"{name}: {text}\n" for name, text in fields.items() if text))
    for script in SCRIPTS:
        source = ROOT / f"packaging/{package['Package']}.{script}"
        if source.exists():
            shutil.copy(source, control / script)


def settle(tree):
    """The umask and the dates of a checkout do not matter: programs and scripts 755, all other files 644, one date."""
    epoch = int(os.environ["SOURCE_DATE_EPOCH"])
    tree.chmod(0o755)
    for path in tree.rglob("*"):
        os.utime(path, (epoch, epoch), follow_symlinks=False)
        if not path.is_symlink():
            program = path.is_dir() or path.name in SCRIPTS or (path.stat().st_mode & 0o100 and ".so" not in path.name)
            path.chmod(0o755 if program else 0o644)


def build_packages(stage, version, out):
    packages = read_table()
    plan = plan_files(packages, stage)
    for package in packages:
        with tempfile.TemporaryDirectory() as folder:
            tree = pathlib.Path(folder, "tree")
            place_files(plan[package["Package"]], tree)
            compress_manuals(tree)
            add_documents(tree, package["Package"], version)
            write_control(package, tree, version)
            settle(tree)
            output_of("dpkg-deb", "--root-owner-group", "-Zxz", "--build", str(tree), str(out))


def build_tarball(stage, version, epoch, out):
    """The installed tree without usr/: programs find their library beside themselves, wherever it is unpacked."""
    name = f"sluice-{version}-linux-{os.uname().machine}"
    with tempfile.TemporaryDirectory() as folder:
        tree = pathlib.Path(folder, name)
        shutil.copytree(stage / "usr", tree, symlinks=True)
        for document in ("LICENSE", "README.md", "CHANGELOG.md", "SECURITY.md"):
            shutil.copy(ROOT / document, tree)
        settle(tree)
        output_of("tar", "--create", "--xz", "--file", str(out / f"{name}.tar.xz"), "--directory", folder,
                  "--sort=name", f"--mtime=@{epoch}", "--owner=0", "--group=0", "--numeric-owner", "--format=gnu", name)


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    stage, version, out = pathlib.Path(sys.argv[1]), sys.argv[2], pathlib.Path(sys.argv[3])
    epoch = set_epoch()
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    build_packages(stage, version, out)
    build_tarball(stage, version, epoch, out)
    made = sorted(p for p in out.iterdir())
    (out / "SHA256SUMS").write_text("".join(f"{hashlib.sha256(p.read_bytes()).hexdigest()}  {p.name}\n" for p in made))
    for path in made:
        print(f"package: {path}")


if __name__ == "__main__":
    main()
