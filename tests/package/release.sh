#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# release.sh SOURCE WORK WHAT: `make release` in two clones with different names gives the same bytes, and refuses what is no release.
# WHAT is `twice`, or `refuses` for the refusals only, which need no build.
set -eu
source=$(cd "$1" && pwd)
mkdir -p "$2"; work=$(cd "$2" && pwd)
if ! git -c safe.directory='*' -C "$source" rev-parse --verify -q HEAD >/dev/null; then
    echo "release: NOT RUN: the tree has no git history"
    exit 77
fi
rm -rf "$work"
mkdir -p "$work"
one=$work/one
two=$work/another-folder-with-a-longer-name
unset SOURCE_DATE_EPOCH MAKEFLAGS MFLAGS MAKELEVEL
export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0='*'

fail() {
    echo "release: $*" >&2
    exit 1
}

# refused TEXT: `make release` ends before it builds anything, and says why.
refused() {
    if (cd "$one" && make release) >"$work/log" 2>&1; then fail "not refused: $1"; fi
    grep -qF "$1" "$work/log" || { cat "$work/log" >&2; fail "not said: $1"; }
    [ ! -e "$one/build-package" ] || fail "built although refused: $1"
    echo "refused: $1"
}

commit() { git -C "$one" -c user.name=test -c user.email=test@example.org commit -qam "$1"; }

git clone -q --no-hardlinks "$source" "$one"
# What is being tested is what is in the tree, also before it is committed.
(cd "$source" && git ls-files -z --cached --others --exclude-standard | tar c --null --ignore-failed-read -T - 2>/dev/null) |
    tar x -C "$one"
git -C "$one" add -A
git -C "$one" diff --cached --quiet || commit "the tree as it is"

sed -i 's/^\(project(sluice VERSION\) [0-9.]*/\1 7.8.9/' "$one/CMakeLists.txt"
grep -q 'VERSION 7.8.9' "$one/CMakeLists.txt" || fail "no version in CMakeLists.txt"
refused "files that are not committed, as CMakeLists.txt"
commit "version"
refused 'CHANGELOG.md has no line "## 7.8.9 - YYYY-MM-DD"'
refused "deploy/chart/Chart.yaml has version"
refused "the table of SECURITY.md has no row for 7.8"
sed -i 's/^\(version\|appVersion\): .*/\1: 7.8.9/' "$one/deploy/chart/Chart.yaml"
sed -i 's/^| version | gets mends |$/&/; s/^|---|---|$/&\n| 7.8 | yes |/' "$one/SECURITY.md"
sed -i '0,/^## Unreleased$/s//## Unreleased\n\n* More.\n\n## 7.8.9 - 2026-01-02/' "$one/CHANGELOG.md"
commit "words"
refused 'entries under "Unreleased"'
sed -i '/^\* More\.$/d' "$one/CHANGELOG.md"
commit "words again"
touch "$one/stray"
refused "files that are not committed, as stray"
rm "$one/stray"
git -C "$one" tag v7.8.9 HEAD~1
refused "the tag v7.8.9 is another commit"
git -C "$one" tag -d v7.8.9 >/dev/null
(cd "$one" && tools/release.py check 7.8.9)
[ "$3" != refuses ] || exit 0

git clone -q --no-hardlinks "$one" "$two"
for folder in "$one" "$two"; do
    (cd "$folder" && umask "$([ "$folder" = "$one" ] && echo 022 || echo 077)" && make release) >"$work/log" 2>&1 ||
        { tail -n 30 "$work/log" >&2; fail "make release in $folder"; }
done
(cd "$one/build-release" && sha256sum --quiet --check SHA256SUMS)
diff "$one/build-release/SHA256SUMS" "$two/build-release/SHA256SUMS" || fail "two builds, two results"
ls "$one/build-release"
for pattern in sluice-7.8.9.tar.xz 'sluice-7.8.9-linux-*.tar.xz' 'libsluice_7.8.9_*.deb' 'sluice_7.8.9_*.deb' \
    'sluiced_7.8.9_*.deb' sluice-image-7.8.9.tar sluice-chart-7.8.9.tgz sluice-7.8.9.spdx.json; do
    # shellcheck disable=SC2012,SC2086 # a pattern
    [ "$(cd "$one/build-release" && ls $pattern | wc -l)" = 1 ] || fail "no $pattern"
    # shellcheck disable=SC2086
    grep -qF "  $(cd "$one/build-release" && echo $pattern)" "$one/build-release/SHA256SUMS" || fail "no sum of $pattern"
done
python3 "$source/tests/package/sbom.py" "$one/build-release/sluice-7.8.9.spdx.json" "$one/build-release"
tar tzf "$one/build-release/sluice-chart-7.8.9.tgz" | grep -qx sluice/Chart.yaml || fail "no chart in the chart"
! grep -rqF "$work" "$one/build-release" || fail "a file of the release has the folder in which it was built"
echo "two builds, the same $(wc -l <"$one/build-release/SHA256SUMS") files"
