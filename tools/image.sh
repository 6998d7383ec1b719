#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# image.sh BUILD-DIR VERSION OUTPUT.tar: the OCI image of agent and controller: sluiced, sluice-controller, sluice,
# libsluice.so, the simulated driver (deploy/overlays/simulated) and the Debian libraries they are linked with; no shell, no package manager. `ctr -n k8s.io images import OUTPUT.tar` on a node is all it needs.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
build=$1
version=$2
output=$3
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT

sim="sim/sluice-sim-ctl sim/libcuda.so.1 sim/libnvidia-ml.so.1 sim/nvidia-cuda-mps-control"
for f in bin/sluiced bin/sluice-controller bin/sluice lib/libsluice.so $sim; do
    if [ ! -e "$build/$f" ]; then
        echo "image: no $build/$f: run make build first" >&2
        exit 1
    fi
    strip --strip-unneeded -o "$stage/$(basename "$f")" "$build/$f"
done
# The driver's libraries, which come from the node, still ask for these by name.
libc=$(dirname "$(ldd "$build/bin/sluiced" | awk '$1 == "libc.so.6" { print $3 }')")
python3 "$here/oci-image.py" --name "localhost/sluice:$version" --output "$output" \
    --program "$stage/sluiced:/usr/bin/sluiced" \
    --program "$stage/sluice-controller:/usr/bin/sluice-controller" \
    --program "$stage/sluice:/usr/bin/sluice" \
    --program "$stage/libsluice.so:/usr/lib/libsluice.so" \
    --program "$stage/sluice-sim-ctl:/usr/bin/sluice-sim-ctl" \
    --program "$stage/libcuda.so.1:/usr/lib/sluice/sim/libcuda.so.1" \
    --program "$stage/libnvidia-ml.so.1:/usr/lib/sluice/sim/libnvidia-ml.so.1" \
    --program "$stage/nvidia-cuda-mps-control:/usr/lib/sluice/sim/nvidia-cuda-mps-control" \
    --program "$libc/libdl.so.2" --program "$libc/libpthread.so.0" --program "$libc/librt.so.1" \
    --file "$here/../LICENSE:/usr/share/doc/sluice/copyright" \
    --text "/etc/passwd=root:x:0:0:root:/:/usr/sbin/nologin
nobody:x:65534:65534:nobody:/:/usr/sbin/nologin
" \
    --text "/etc/group=root:x:0:
nogroup:x:65534:
" \
    --directory /driver-root --directory /etc/sluice --directory /var --link /run:/var/run \
    --label "org.opencontainers.image.title=sluiced" \
    --label "org.opencontainers.image.version=$version" \
    --label "org.opencontainers.image.licenses=Apache-2.0" \
    --entrypoint /usr/bin/sluiced
