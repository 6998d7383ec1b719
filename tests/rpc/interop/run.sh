#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# run.sh SERVER CLIENT PROTOC-C PROTO-DIR WORK-DIR: our gRPC against grpc-go. Exits 77 (skipped) with a reason where
# Go or its modules are missing.
set -eu
SLUICE_INTEROP_SERVER=$1
SLUICE_INTEROP_CLIENT=$2
protoc=$3
protos=$4
work=$5
export SLUICE_INTEROP_SERVER SLUICE_INTEROP_CLIENT
cd "$(dirname "$0")"

skip() {
    echo "skipped: $*"
    exit 77
}
command -v go >/dev/null 2>&1 || skip "no Go here"
# Some environments give a test no home directory.
: "${HOME:=$work}"
export HOME
log=$work/interop-modules.log
go list -deps -test ./... >"$log" 2>&1 || { tail -n 3 "$log"; skip "the Go modules cannot be had"; }
SLUICE_INTEROP_PROTOS=$work/protos.pb
export SLUICE_INTEROP_PROTOS
(cd "$protos" && "$protoc" --descriptor_set_out="$SLUICE_INTEROP_PROTOS" ./*.proto)
exec go test -count=1 -timeout 600s ./...
