#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""files.py PACKAGES: what is in the packages that make.sh made, and how package.py answers a tree that is wrong."""
import functools
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(SOURCE / "tests/support"))
import folders  # noqa: E402

MADE = pathlib.Path(sys.argv.pop(1))
NAMES = ("libsluice", "sluice", "sluiced")


def run(*command, **how):
    return subprocess.run(command, check=True, capture_output=True, text=True, **how).stdout


def deb(name, version="old"):
    return str(next((MADE / version).glob(f"{name}_*.deb")))


@functools.cache
def contents(name):
    """{path: (mode, owner)} of the files of a package."""
    lines = [line.split(None, 5) for line in run("dpkg-deb", "--contents", deb(name)).splitlines()]
    return {line[5].split(" -> ")[0][1:]: (line[0], line[1]) for line in lines if not line[0].startswith("d")}


def field(name, which):
    return run("dpkg-deb", "--field", deb(name), which).strip()


class Files(unittest.TestCase):
    def test_every_installed_program_is_packed_once_with_its_page(self):
        programs = sorted(p.name for p in (MADE / "stage/usr/bin").iterdir())
        self.assertIn("sluice", programs)
        for program in programs:
            owners = [n for n in NAMES if f"/usr/bin/{program}" in contents(n)]
            self.assertEqual(len(owners), 1, program)
            pages = [f"/usr/share/man/man{s}/{program}.{s}.gz" in contents(owners[0]) for s in (1, 8)]
            self.assertTrue(any(pages), f"{program} has no manual page in {owners[0]}")

    def test_no_path_is_in_two_packages(self):
        paths = [path for name in NAMES for path in contents(name)]
        self.assertEqual(len(paths), len(set(paths)))

    def test_places(self):
        self.assertEqual(list(contents("libsluice")), ["/usr/lib/sluice/libsluice.so",
                                                       "/usr/share/doc/libsluice/changelog.gz",
                                                       "/usr/share/doc/libsluice/copyright"])
        for path in ("/usr/lib/sluice/sim/libcuda.so.1", "/usr/share/bash-completion/completions/sluice",
                     "/usr/share/zsh/vendor-completions/_sluice", "/usr/share/fish/vendor_completions.d/sluice.fish"):
            self.assertIn(path, contents("sluice"))
        for path in ("/lib/systemd/system/sluice-arbiter.service", "/lib/systemd/system/sluice-arbiter.socket",
                     "/etc/sluice/arbiter.yaml"):
            self.assertIn(path, contents("sluice"))
        for path in ("/lib/systemd/system/sluiced.service", "/etc/default/sluiced"):
            self.assertIn(path, contents("sluiced"))

    def test_root_owns_all_and_nobody_else_writes(self):
        for name in NAMES:
            for path, (mode, owner) in contents(name).items():
                self.assertEqual(owner, "root/root", path)
                if mode.startswith("l"):
                    continue
                program = "/bin/" in path or path.endswith("mps-control")
                self.assertEqual(mode, "-rwxr-xr-x" if program else "-rw-r--r--", path)

    def test_files_in_etc_are_conffiles(self):
        for name in NAMES:
            told = subprocess.run(["dpkg-deb", "--info", deb(name), "conffiles"], capture_output=True, text=True)
            self.assertEqual(told.stdout.split(), [p for p in contents(name) if p.startswith("/etc/")])

    def test_programs_need_their_library_in_their_version(self):
        for name in ("sluice", "sluiced"):
            self.assertIn(f"libsluice (= {field('libsluice', 'Version')})", field(name, "Depends"))
            self.assertIn("libc6", field(name, "Depends"))

    def test_checksums(self):
        lines = (MADE / "old/SHA256SUMS").read_text().splitlines()
        self.assertEqual(len(lines), len(NAMES) + 1)
        for line in lines:
            digest, name = line.split("  ")
            self.assertEqual(digest, hashlib.sha256((MADE / "old" / name).read_bytes()).hexdigest())

    def test_changelog_has_the_version(self):
        packed = subprocess.run(["dpkg-deb", "--fsys-tarfile", deb("sluice")], check=True, capture_output=True).stdout
        text = subprocess.run(["tar", "-xO", "./usr/share/doc/sluice/changelog.gz"], input=packed, check=True,
                              capture_output=True).stdout
        text = subprocess.run(["gzip", "-d"], input=text, check=True, capture_output=True).stdout.decode()
        self.assertTrue(text.startswith(f"sluice ({field('sluice', 'Version')}) "), text[:60])


class Maker(unittest.TestCase):
    def package(self, stage, out):
        return subprocess.run([SOURCE / "tools/package.py", stage, field("sluice", "Version"), out],
                              capture_output=True, text=True)

    def test_the_same_tree_gives_the_same_bytes(self):
        with tempfile.TemporaryDirectory() as place:
            self.assertEqual(self.package(MADE / "stage", place + "/out").returncode, 0)
            self.assertEqual(pathlib.Path(place, "out/SHA256SUMS").read_text(), (MADE / "old/SHA256SUMS").read_text())

    def test_a_file_of_no_package_is_refused(self):
        with tempfile.TemporaryDirectory() as place:
            shutil.copytree(MADE / "stage", place + "/stage", symlinks=True)
            pathlib.Path(place, "stage/usr/bin/stray").touch()
            made = self.package(place + "/stage", place + "/out")
            self.assertEqual(made.returncode, 1)
            self.assertIn("usr/bin/stray is installed, but in no package", made.stderr)

    def test_a_missing_file_is_refused(self):
        with tempfile.TemporaryDirectory() as place:
            shutil.copytree(MADE / "stage", place + "/stage", symlinks=True)
            pathlib.Path(place, "stage/usr/bin/sluiced").unlink()
            made = self.package(place + "/stage", place + "/out")
            self.assertEqual(made.returncode, 1)
            self.assertIn("sluiced: there is no file usr/bin/sluiced", made.stderr)


class Tarball(unittest.TestCase):
    def test_it_works_wherever_it_is_unpacked(self):
        with folders.world("slt.") as place:
            run("tar", "--extract", "--file", str(next((MADE / "old").glob("*.tar.xz"))), "--directory", place)
            top = next(pathlib.Path(place).iterdir()).rename(pathlib.Path(place, "moved"))
            env = {**os.environ, "SLUICE_DIR": place + "/d"}
            told = run(str(top / "bin/sluice"), "run", "--sim", "h200", "--memory", "1Gi", "--", "printenv",
                       "LD_PRELOAD", env=env)
            self.assertIn(str(top / "lib/sluice/libsluice.so"), told)
            for program in ("sluiced", "sluice-controller"):
                run(str(top / "bin" / program), "--version")


if __name__ == "__main__":
    unittest.main()
