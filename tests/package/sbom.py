#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""sbom.py FILE FOLDER: whether a bill of materials is one (SPDX 2.3), and speaks of the release in FOLDER."""
import hashlib
import json
import pathlib
import re
import sys

NEEDED = ("spdxVersion", "dataLicense", "SPDXID", "name", "documentNamespace", "creationInfo", "packages", "relationships")
OF_PACKAGE = ("SPDXID", "name", "versionInfo", "downloadLocation", "licenseConcluded", "licenseDeclared", "copyrightText")


def main():
    document, folder = json.loads(pathlib.Path(sys.argv[1]).read_text(encoding="utf-8")), pathlib.Path(sys.argv[2])
    for key in NEEDED:
        assert key in document, f"no {key}"
    assert document["spdxVersion"] == "SPDX-2.3" and document["dataLicense"] == "CC0-1.0"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", document["creationInfo"]["created"])
    packages = {p["SPDXID"]: p for p in document["packages"]}
    known = {"SPDXRef-DOCUMENT", *packages, *(f["SPDXID"] for f in document["files"])}
    assert len(packages) == len(document["packages"]), "two packages have one identifier"
    for package in packages.values():
        assert re.fullmatch(r"SPDXRef-[A-Za-z0-9.-]+", package["SPDXID"]), package["SPDXID"]
        assert all(package.get(key) for key in OF_PACKAGE), package
    relations = {(r["spdxElementId"], r["relationshipType"], r["relatedSpdxElement"]) for r in document["relationships"]}
    for one, _, other in relations:
        assert one in known and other in known, (one, other)
    assert ("SPDXRef-DOCUMENT", "DESCRIBES", "SPDXRef-source-sluice") in relations
    # Every file of the release, but for itself and the sums, with the sum that it has.
    told = {p["name"]: {c["algorithm"]: c["checksumValue"] for c in p["checksums"]} for p in packages.values() if "checksums" in p}
    there = {p.name for p in folder.iterdir() if p.suffix != ".json" and p.name != "SHA256SUMS"}
    assert set(told) == there, set(told) ^ there
    for name in there:
        assert told[name]["SHA256"] == hashlib.sha256((folder / name).read_bytes()).hexdigest(), name
    # Programs and the libraries they are linked with.
    files = {f["fileName"]: f["SPDXID"] for f in document["files"]}
    for program in ("./usr/bin/sluice", "./usr/bin/sluiced", "./usr/bin/sluice-controller", "./usr/lib/sluice/libsluice.so"):
        linked = {packages[o]["name"] for a, what, o in relations if a == files[program] and what == "DYNAMIC_LINK"}
        assert "libc6" in linked, (program, linked)
    image = next(k for k, p in packages.items() if p["name"].startswith("sluice-image-"))
    inside = {packages[o]["name"] for a, what, o in relations if a == image and what == "CONTAINS"}
    assert "libc6" in inside, inside
    for package in packages.values():
        if package["SPDXID"].startswith("SPDXRef-debian-"):
            assert package["versionInfo"] in package["externalRefs"][0]["referenceLocator"], package
    print(f"sbom: {len(packages)} packages, {len(files)} programs, {len(relations)} relations")


if __name__ == "__main__":
    main()
