#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# life.sh PACKAGES ALLOC [/]: installs PACKAGES/old, upgrades to PACKAGES/new under a tenant that runs, runs the agent,
# removes and purges: below an empty folder by dpkg alone, or with / by apt on the whole of a machine that is for this.
# ALLOC is the program tests/cli/alloc.c.
set -eu
packages=$1
alloc=$2
export PATH="$PATH:/usr/sbin:/sbin"

if [ "$(id -u)" -ne 0 ]; then
    unshare -r true 2>/dev/null || { echo "skipped: dpkg needs root, or a user namespace"; exit 77; }
    exec unshare -r "$0" "$@"
fi
work=$(mktemp -d /tmp/slp.XXXXXX) # short: it holds unix sockets
root=$work/root
[ "${3:-}" != / ] || root=
export SLUICE_DIR="$work/d"
tenants=

finish() {
    for pid in $tenants; do kill -KILL "$pid" 2>/dev/null || true; done
    rm -rf "$work"
}
trap finish EXIT

fail() {
    echo "life: $*" >&2
    cat "$work/log" >&2 2>/dev/null || true
    exit 1
}

# eventually COMMAND...: true within twenty seconds.
eventually() {
    tries=0
    until "$@" >/dev/null 2>&1; do
        tries=$((tries + 1))
        [ $tries -lt 1000 ] || fail "never came true: $*"
        sleep 0.02
    done
}

dpkg_here() {
    if [ -n "$root" ]; then
        dpkg --root="$root" --force-script-chrootless --force-depends --log=/dev/null "$@"
    else
        dpkg "$@"
    fi >"$work/log" 2>&1 || fail "dpkg $* failed"
}

install_files() {
    if [ -n "$root" ]; then
        dpkg_here --install "$@"
    else
        apt-get install -y -qq --no-install-recommends "$@" >"$work/log" 2>&1 || fail "apt-get install $* failed"
    fi
}

# All files below the root but those of dpkg and apt themselves, of the kernel, and of this test.
files() {
    find "$root/" -xdev \( -path "$root/proc" -o -path "$root/sys" -o -path "$root/dev" -o -path "$root/tmp" \
        -o -path "$root/var/lib/dpkg" -o -path "$root/var/lib/apt" -o -path "$root/var/log" \
        -o -path "$root/var/cache" \) -prune -o -print | sort
}

arbiter_pid() { "$root/usr/bin/sluice" status --json | sed -n 's/.*"arbiter_pid": *\([0-9]*\).*/\1/p'; }
has_line() { grep -qxF "$2" "$1"; }
mapped() { grep -q "$root/usr/lib/sluice/libsluice.so$2\$" "/proc/$1/maps"; }
replaced() { now=$(arbiter_pid) && [ -n "$now" ] && [ "$now" != "$1" ]; }

# ask BYTES ANSWER: the tenant that runs asks for memory once more.
ask() {
    answers=$(wc -l <"$work/out")
    echo "$1" >&8
    answered() { [ "$(wc -l <"$work/out")" -gt "$answers" ]; }
    eventually answered
    [ "$(tail -n 1 "$work/out")" = "$2" ] || fail "$1 bytes: $(tail -n 1 "$work/out"), not $2"
}

if [ -n "$root" ]; then
    mkdir -p "$root/var/lib/dpkg/info" "$root/var/lib/dpkg/updates" "$root/etc" "$root/run" "$root/var/lib"
    : >"$root/var/lib/dpkg/status"
fi
files >"$work/before"

install_files "$packages"/old/*.deb
[ ! -e "$root/etc/systemd/system/multi-user.target.wants/sluiced.service" ] || fail "the agent was enabled"
"$root/usr/bin/sluiced" --version >/dev/null || fail "sluiced does not start"
"$root/usr/bin/sluice-controller" --version >/dev/null || fail "sluice-controller does not start"
echo "life: installed"

# The tenant keeps its library, its arbiter and its limit while the files under it are replaced.
mkfifo "$work/in"
"$root/usr/bin/sluice" run --sim h200 --name kept --memory 1Gi -- \
    sh -c 'echo $$ >"$1"; exec "$0" 1048576' "$alloc" "$work/pid" <"$work/in" >"$work/out" 2>"$work/log" &
tenants=$!
exec 8>"$work/in"
eventually grep -q '^total' "$work/out"
tenant=$(cat "$work/pid")
mapped "$tenant" "" || fail "the tenant has not loaded the library of the package"
arbiter=$(arbiter_pid)
echo "# kept" >>"$root/etc/default/sluiced"
install_files "$packages"/new/*.deb
has_line "$root/etc/default/sluiced" "# kept" || fail "the upgrade replaced a changed /etc/default/sluiced"
mapped "$tenant" " (deleted)" || fail "the tenant has not kept its library"
[ "$(arbiter_pid)" = "$arbiter" ] || fail "the arbiter is another one"
ask 2147483648 "error 2"
ask 1048576 ok
printf '' | "$root/usr/bin/sluice" run --sim h200 --name new --memory 1Gi -- "$alloc" 2147483648 1048576 >"$work/second"
[ "$(head -n 2 "$work/second" | tr '\n' ' ')" = "error 2 ok " ] || fail "a new tenant is not limited"
kill -KILL "$arbiter"
eventually replaced "$arbiter"
ask 2147483648 "error 2"
ask 1048576 ok
exec 8>&-
wait "$tenants" || fail "the tenant failed"
tenants=
eventually test ! -S "$SLUICE_DIR/arbiter.sock" # the arbiter has ended
echo "life: upgraded under a tenant"

# The agent describes a simulated card; what it keeps for labels and claims, and what systemctl enable makes.
cards=$root/run/cdi/k8s.device-plugin.nvidia.com-gpu.json
"$root/usr/bin/sluice-sim-ctl" make-root "$work/driver" h200 >"$work/log" 2>&1 || fail "no simulated driver"
(
    set -a
    . "$root/etc/default/sluiced"
    exec "$root/usr/bin/sluiced" --driver-root "$work/driver" --container-driver-root "$work/driver" \
        --kubelet-socket "$work/kubelet.sock" --cdi-dir "$root/run/cdi" --state-dir "$root/var/lib/sluice" \
        --arbiter-dir "$root/run/sluice" --metrics-address=
) >"$work/log" 2>&1 &
tenants=$!
eventually test -e "$cards"
kill "$tenants"
wait "$tenants" || fail "the agent failed"
tenants=
mkdir -p "$root/var/lib/sluice" "$root/run/sluice" "$root/etc/systemd/system/multi-user.target.wants"
touch "$root/var/lib/sluice/config-label" "$root/run/cdi/k8s.gpu.sluice.io-claim_1.json"
ln -s /lib/systemd/system/sluiced.service "$root/etc/systemd/system/multi-user.target.wants/"
dpkg_here --remove sluice sluiced libsluice
[ -e "$root/var/lib/sluice/config-label" ] || fail "a removal took the state"
[ -e "$root/etc/default/sluiced" ] || fail "a removal took the options"
[ ! -e "$root/usr/bin/sluiced" ] || fail "a removal left sluiced"
dpkg_here --purge sluice sluiced libsluice
[ ! -e "$cards" ] || fail "a purge left $cards"
# The folder for links of enabled units belongs to systemd, which leaves it; this test made it here.
for folder in "$root/etc/systemd/system/multi-user.target.wants" "$root/etc/systemd/system" "$root/etc/systemd"; do
    grep -qxF "$folder" "$work/before" || rmdir "$folder" 2>/dev/null || true
done
files >"$work/after"
diff "$work/before" "$work/after" || fail "purged, but files are left (above)"
echo "life: purged, nothing is left"
