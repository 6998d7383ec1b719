#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# real.sh PROGRAM: runs it against a kube-apiserver and an etcd of its own, on loopback, in a temporary directory.
# Exit 77 (skipped) where there are no such programs. SLUICE_K8S_BIN names the directory of kube-apiserver.
set -euo pipefail
program=$1
apiserver=${SLUICE_K8S_BIN:-${XDG_CACHE_HOME:-$HOME/.cache}/sluice/k8s}/kube-apiserver
etcd=$(command -v etcd || true)
[ -x "$apiserver" ] || { echo "skipped: no kube-apiserver at $apiserver"; exit 77; }
[ -n "$etcd" ] || { echo "skipped: no etcd"; exit 77; }
command -v openssl >/dev/null || { echo "skipped: no openssl to make a key with"; exit 77; }
command -v curl >/dev/null || { echo "skipped: no curl to wait with"; exit 77; }

dir=$(mktemp -d)
pids=()
finish() {
    for pid in "${pids[@]}"; do
        kill -KILL "$pid" 2>/dev/null || true # nothing of theirs is worth a clean end
        wait "$pid" 2>/dev/null || true
    done
    rm -rf "$dir"
}
trap finish EXIT

free_ports() {
    python3 -c 'import socket
s = [socket.socket() for _ in range(3)]
for x in s: x.bind(("127.0.0.1", 0))
print(*[x.getsockname()[1] for x in s])'
}
read -r client peer secure <<<"$(free_ports)"

"$etcd" --data-dir "$dir/etcd" --unsafe-no-fsync --listen-client-urls "http://127.0.0.1:$client" \
    --advertise-client-urls "http://127.0.0.1:$client" --listen-peer-urls "http://127.0.0.1:$peer" \
    >"$dir/etcd.log" 2>&1 &
pids+=($!)
openssl genrsa -out "$dir/sa.key" 2048 2>/dev/null
echo "0123456789abcdef,tester,1,system:masters" >"$dir/tokens.csv"
echo "0123456789abcdef" >"$dir/token"
"$apiserver" --etcd-servers "http://127.0.0.1:$client" --bind-address 127.0.0.1 --secure-port "$secure" \
    --advertise-address 127.0.0.1 --cert-dir "$dir/certs" --service-cluster-ip-range 10.0.0.0/24 \
    --service-account-issuer https://sluice.example --service-account-key-file "$dir/sa.key" \
    --service-account-signing-key-file "$dir/sa.key" --token-auth-file "$dir/tokens.csv" \
    --authorization-mode RBAC --disable-admission-plugins ServiceAccount >"$dir/apiserver.log" 2>&1 &
pids+=($!)

url=https://127.0.0.1:$secure
for _ in $(seq 240); do
    if curl -sk --max-time 2 -H "Authorization: Bearer 0123456789abcdef" "$url/readyz" 2>/dev/null | grep -qx ok; then
        "$program" "$url" "$dir/certs/apiserver.crt" "$dir/token"
        exit
    fi
    kill -0 "${pids[1]}" 2>/dev/null || break
    sleep 0.5
done
echo "the API server did not start:"
tail -n 20 "$dir/apiserver.log"
exit 1
