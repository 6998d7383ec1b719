#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes an OCI image as one tar, from files of this machine; no registry, no daemon, no root.

    oci-image.py --name localhost/x:1 --output x.tar --program /usr/bin/env --entrypoint /usr/bin/env

Programs bring the shared libraries they are linked with, as ldd finds them; what came from a Debian
package is listed with its version and copyright, where scanners look for it (/var/lib/dpkg/status.d).
The same inputs give the same image, byte for byte. `ctr images import x.tar` takes it.
"""
import argparse
import gzip
import hashlib
import io
import json
import os
import platform
import re
import stat
import subprocess
import sys
import tarfile

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
OCI = "application/vnd.oci.image."
# Merged directories as Debian has them: a library that ldd names in /lib is found through the link.
LINKS = {"bin": "usr/bin", "sbin": "usr/sbin", "lib": "usr/lib", "lib64": "usr/lib64"}


def merged(path):
    """The path in the image of a file that this machine has at `path`."""
    path = path.lstrip("/")
    first = path.split("/", 1)[0]
    return LINKS[first] + path[len(first):] if first in LINKS else path


def shared_libraries(program):
    """What the loader will look for, as {its path: the file}."""
    out = subprocess.run(["ldd", program], capture_output=True, text=True, check=False)
    if out.returncode != 0:
        if "not a dynamic executable" in out.stdout + out.stderr:
            return {}
        raise SystemExit(f"oci-image: ldd {program}: {(out.stderr or out.stdout).strip()}")
    found = {}
    for line in out.stdout.splitlines():
        if "not found" in line:
            raise SystemExit(f"oci-image: {program} needs a library that is not here: {line.strip()}")
        match = re.match(r"\s*(?:\S+ => )?(/\S+) \(0x", line)
        if match:
            found[match.group(1)] = os.path.realpath(match.group(1))
    return found


class Tree:
    """The files of the image: path -> ("file", bytes, mode) | ("link", target) | ("dir", mode)."""

    def __init__(self):
        self.entries = {}
        self.sources = set()
        for link, target in LINKS.items():
            self.directory(target)
            self.entries[link] = ("link", target)

    def directory(self, path, mode=0o755):
        path = path.strip("/")
        if os.path.dirname(path):
            if os.path.dirname(path) not in self.entries:
                self.directory(os.path.dirname(path))
        self.entries.setdefault(path, ("dir", mode))
        if mode != 0o755:
            self.entries[path] = ("dir", mode)

    def text(self, path, data, mode=0o644):
        path = path.lstrip("/")
        if os.path.dirname(path):
            self.directory(os.path.dirname(path))
        self.entries[path] = ("file", data, mode)

    def link(self, target, path):
        self.directory(os.path.dirname(path.lstrip("/")) or "usr")
        self.entries[path.lstrip("/")] = ("link", target)

    def file(self, source, path):
        try:
            with open(source, "rb") as f:
                data = f.read()
                mode = stat.S_IMODE(os.fstat(f.fileno()).st_mode)
        except OSError as e:
            raise SystemExit(f"oci-image: {e}") from e
        # 755 and 644 only: the builder's umask is nobody's business.
        self.text(merged(path), data, 0o755 if mode & 0o100 else 0o644)
        self.sources.add(os.path.realpath(source))

    def program(self, source, path):
        self.file(source, path)
        for name, real in shared_libraries(source).items():
            where = merged(name) if name.startswith(("/lib", "/usr/lib")) else \
                "usr/lib/" + os.path.basename(name)
            if where not in self.entries:
                self.file(real, where)

    def packages(self):
        """Where the files came from, for those that a Debian package brought."""
        try:
            # Packages may name a file in /lib that this machine has in /usr/lib.
            names = self.sources | {s[len("/usr"):] for s in self.sources if s.startswith("/usr/")}
            out = subprocess.run(["dpkg-query", "-S", *sorted(names)], capture_output=True,
                                 text=True, check=False, env={**os.environ, "LC_ALL": "C"})
        except FileNotFoundError:
            return
        owners = {w for line in out.stdout.splitlines() if not line.startswith("diversion")
                  for w in line.rsplit(": ", 1)[0].split(", ")}
        for package in sorted(owners):
            status = subprocess.run(["dpkg-query", "-s", package], capture_output=True, text=True,
                                    check=False).stdout
            name = package.split(":")[0]
            keep = [l for l in status.splitlines()
                    if re.match(r"(Package|Status|Source|Version|Architecture|Maintainer):", l)]
            self.text(f"var/lib/dpkg/status.d/{name}", ("\n".join(keep) + "\n").encode())
            copyright_file = f"/usr/share/doc/{name}/copyright"
            if os.path.exists(copyright_file):
                self.file(os.path.realpath(copyright_file), copyright_file)

    def tar(self):
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
            for path in sorted(self.entries):
                kind, *rest = self.entries[path]
                info = tarfile.TarInfo(path)
                info.uname = info.gname = ""
                if kind == "dir":
                    info.type, info.mode = tarfile.DIRTYPE, rest[0]
                    tar.addfile(info)
                elif kind == "link":
                    info.type, info.linkname, info.mode = tarfile.SYMTYPE, rest[0], 0o777
                    tar.addfile(info)
                else:
                    info.size, info.mode = len(rest[0]), rest[1]
                    tar.addfile(info, io.BytesIO(rest[0]))
        return out.getvalue()


def image(tree, args):
    """The blobs of the image and the manifest's descriptor."""
    blobs = {}

    def blob(data, media_type):
        digest = "sha256:" + hashlib.sha256(data).hexdigest()
        blobs[digest] = data
        return {"mediaType": OCI + media_type, "digest": digest, "size": len(data)}

    layer = tree.tar()
    diff_id = "sha256:" + hashlib.sha256(layer).hexdigest()
    if args.plain:
        layer_blob = blob(layer, "layer.v1.tar")
    else:
        layer_blob = blob(gzip.compress(layer, 6, mtime=0), "layer.v1.tar+gzip")
    machine = platform.machine()
    config = {
        "architecture": ARCHITECTURES.get(machine, machine), "os": "linux",
        "config": {"Env": ["PATH=/usr/local/bin:/usr/bin:/usr/sbin", *args.env],
                   "Entrypoint": args.entrypoint or None, "WorkingDir": "/",
                   "Labels": dict(l.split("=", 1) for l in args.label)},
        "rootfs": {"type": "layers", "diff_ids": [diff_id]},
        "history": [{"created_by": "tools/oci-image.py"}],
    }
    manifest = {"schemaVersion": 2, "mediaType": OCI + "manifest.v1+json",
                "config": blob(json.dumps(config, sort_keys=True).encode(), "config.v1+json"),
                "layers": [layer_blob]}
    descriptor = blob(json.dumps(manifest, sort_keys=True).encode(), "manifest.v1+json")
    descriptor["platform"] = {"architecture": config["architecture"], "os": "linux"}
    descriptor["annotations"] = {"io.containerd.image.name": args.name,
                                 "org.opencontainers.image.ref.name": args.name}
    return blobs, descriptor


def write(path, blobs, descriptor):
    index = {"schemaVersion": 2, "mediaType": OCI + "index.v1+json", "manifests": [descriptor]}
    files = {"oci-layout": b'{"imageLayoutVersion": "1.0.0"}',
             "index.json": json.dumps(index, sort_keys=True).encode()}
    files.update({"blobs/sha256/" + d.split(":")[1]: data for d, data in blobs.items()})
    with tarfile.open(path + ".part", "w", format=tarfile.PAX_FORMAT) as tar:
        for name in sorted(files):
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(files[name]), 0o644
            tar.addfile(info, io.BytesIO(files[name]))
    os.replace(path + ".part", path)


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--name", required=True, help="with a host: localhost/sluice:0.1.0")
    p.add_argument("--output", required=True, metavar="FILE.tar")
    p.add_argument("--program", action="append", default=[], metavar="FILE[:PATH]",
                   help="an ELF program or library, with its shared libraries")
    p.add_argument("--file", action="append", default=[], metavar="FILE:PATH")
    p.add_argument("--text", action="append", default=[], metavar="PATH=TEXT")
    p.add_argument("--directory", action="append", default=[], metavar="PATH[:MODE]")
    p.add_argument("--link", action="append", default=[], metavar="TARGET:PATH")
    p.add_argument("--entrypoint", action="append", default=[], metavar="WORD")
    p.add_argument("--env", action="append", default=[], metavar="NAME=VALUE")
    p.add_argument("--label", action="append", default=[], metavar="NAME=VALUE")
    p.add_argument("--plain", action="store_true", help="do not compress the layer")
    args = p.parse_args()

    tree = Tree()
    tree.directory("tmp", 0o1777)
    for path in ("dev", "proc", "sys", "run", "etc"):
        tree.directory(path)
    for value in args.directory:
        path, _, mode = value.partition(":")
        tree.directory(path, int(mode or "755", 8))
    for value in args.program:
        source, _, path = value.partition(":")
        tree.program(source, path or source)
    for value in args.file:
        source, _, path = value.partition(":")
        tree.file(source, path)
    for value in args.text:
        path, _, text = value.partition("=")
        tree.text(path, text.encode())
    for value in args.link:
        target, _, path = value.partition(":")
        tree.link(target, path)
    tree.packages()
    blobs, descriptor = image(tree, args)
    write(args.output, blobs, descriptor)
    size = sum(len(b) for b in blobs.values()) / 2**20
    print(f"{args.output}: {args.name}, {size:.1f} MiB, {descriptor['digest'][:19]}", file=sys.stderr)


if __name__ == "__main__":
    main()
