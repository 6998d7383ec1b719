#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""sbom.py VERSION COMMIT STAGE IMAGE.tar FOLDER OUTPUT.json: what a release is made of, as SPDX 2.3.

Every file of FOLDER is a package with its sum. Every program of STAGE names the Debian packages whose libraries it is
linked with, and the image those that it brings along. Versions are those of this machine, where the release is built.
The same release gives the same bytes: the date is SOURCE_DATE_EPOCH."""
import datetime
import gzip
import hashlib
import io
import json
import os
import pathlib
import re
import subprocess
import sys
import tarfile
import uuid

NONE = "NOASSERTION"


def output_of(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"}).stdout


def identifier(*words):
    return "SPDXRef-" + re.sub(r"[^A-Za-z0-9.-]+", "-", "-".join(words))


def sums(data):
    return [{"algorithm": name.upper(), "checksumValue": hashlib.new(name, data).hexdigest()} for name in ("sha1", "sha256")]


def is_program(path):
    with open(path, "rb") as f:
        return f.read(4) == b"\x7fELF"


class Document:
    """Packages, files and what is between them; each thing once."""

    def __init__(self, version, commit, epoch):
        self.version = version
        self.packages, self.files, self.relations = {}, {}, set()
        self.root = self.package("sluice", version, "Apache-2.0", kind="source")
        self.head = {
            "spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT", "name": f"sluice-{version}",
            "documentNamespace": uuid.uuid5(uuid.NAMESPACE_OID, f"sluice {version} {commit}").urn,
            "creationInfo": {"created": datetime.datetime.fromtimestamp(epoch, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
                             "creators": ["Tool: sluice-sbom"]},
            "comment": f"Built from commit {commit}."}
        self.relate("SPDXRef-DOCUMENT", "DESCRIBES", self.root)

    def package(self, name, version, licence=NONE, kind="package", **more):
        ref = identifier(kind, name)
        self.packages.setdefault(ref, {
            "SPDXID": ref, "name": name, "versionInfo": version, "downloadLocation": NONE, "filesAnalyzed": False,
            "licenseConcluded": licence, "licenseDeclared": licence, "copyrightText": NONE, **more})
        return ref

    def debian(self, name, version, architecture):
        return self.package(name, version, kind="debian", supplier="Organization: Debian", externalRefs=[{
            "referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl",
            "referenceLocator": f"pkg:deb/debian/{name}@{version}?arch={architecture}"}])

    def relate(self, one, what, other):
        self.relations.add((one, what, other))

    def write(self, path):
        text = json.dumps({
            **self.head, "packages": [self.packages[k] for k in sorted(self.packages)],
            "files": [self.files[k] for k in sorted(self.files)],
            "relationships": [{"spdxElementId": a, "relationshipType": b, "relatedSpdxElement": c}
                              for a, b, c in sorted(self.relations)]}, indent=1, ensure_ascii=False)
        path.write_text(text + "\n", encoding="utf-8")


def owner(library):
    """The Debian package of a library: (name, version, architecture), or None."""
    real = os.path.realpath(library)
    for path in (real, real[len("/usr"):] if real.startswith("/usr/") else "/usr" + real, library):
        done = subprocess.run(["dpkg-query", "-S", path], capture_output=True, text=True, check=False)
        if done.returncode == 0:
            name = done.stdout.rsplit(": ", 1)[0].split(", ")[0].splitlines()[-1]
            return tuple(output_of("dpkg-query", "-W", "-f", "${Package} ${Version} ${Architecture}", name).split())
    return None


def libraries(program):
    """Paths of the shared libraries that a program names itself, as the loader of this machine finds them."""
    needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", output_of("readelf", "-d", str(program))))
    found = dict(re.findall(r"^\s*(\S+) => (/\S+)", output_of("ldd", str(program)), re.M))
    return [found[name] for name in sorted(needed) if name in found]


def add_programs(document, stage):
    for path in sorted(p for p in stage.rglob("*") if p.is_file() and not p.is_symlink() and is_program(p)):
        name = "./" + str(path.relative_to(stage))
        ref = identifier("file", name)
        document.files[ref] = {"SPDXID": ref, "fileName": name, "checksums": sums(path.read_bytes()),
                               "licenseConcluded": "Apache-2.0", "copyrightText": NONE, "fileTypes": ["BINARY"]}
        document.relate(document.root, "CONTAINS", ref)
        for library in libraries(path):
            of = owner(library)
            if of:
                document.relate(ref, "DYNAMIC_LINK", document.debian(*of))
            else:
                sys.exit(f"sbom: {library}, which {name} is linked with, is of no Debian package: build where it is of one")


def image_packages(image):
    """Of Debian, as the image itself lists them."""
    with tarfile.open(image) as tar:
        def blob(digest):
            return tar.extractfile("blobs/sha256/" + digest.split(":")[1]).read()
        index = json.loads(tar.extractfile("index.json").read())
        manifest = json.loads(blob(index["manifests"][0]["digest"]))
        layer = blob(manifest["layers"][0]["digest"])
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(layer))) as tar:
        for member in tar.getmembers():
            if member.name.startswith("var/lib/dpkg/status.d/") and member.isfile():
                fields = dict(re.findall(r"^(\w+): (.*)$", tar.extractfile(member).read().decode(), re.M))
                yield fields["Package"], fields["Version"], fields["Architecture"]


def main():
    if len(sys.argv) != 7:
        sys.exit(__doc__)
    version, commit = sys.argv[1:3]
    stage, image, folder, output = map(pathlib.Path, sys.argv[3:])
    document = Document(version, commit, int(os.environ["SOURCE_DATE_EPOCH"]))
    add_programs(document, stage)
    for path in sorted(p for p in folder.iterdir() if p.is_file() and p != output):
        ref = document.package(path.name, version, "Apache-2.0", kind="artifact", packageFileName=path.name,
                               checksums=sums(path.read_bytes()))
        document.relate(ref, "GENERATED_FROM", document.root)
        if path.name == image.name:
            for package in image_packages(image):
                document.relate(ref, "CONTAINS", document.debian(*package))
    document.write(output)


if __name__ == "__main__":
    main()
