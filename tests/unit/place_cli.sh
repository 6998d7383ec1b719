#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# place_cli.sh SLUICE: the command line of `sluice simulate`, from outside.
set -eu
sluice=$1
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
fail() {
    echo "place_cli: $*"
    exit 1
}

# want CODE TEXT ARGUMENT...: ends with that code and says that on stderr.
want() {
    code=$1 text=$2
    shift 2
    set +e
    "$sluice" simulate "$@" >"$dir/out" 2>"$dir/err"
    got=$?
    set -e
    [ "$got" = "$code" ] || fail "simulate $*: exit $got, not $code: $(cat "$dir/err")"
    grep -qF -- "$text" "$dir/err" || fail "simulate $*: no \"$text\" in: $(cat "$dir/err")"
}

cat >"$dir/nodes.csv" <<'CSV'
sn,cpu_milli,memory_mib,gpu,model
a,64000,262144,2,T4
b,96000,393216,8,G2
CSV
cat >"$dir/pods.csv" <<'CSV'
name,cpu_milli,memory_mib,num_gpu,gpu_milli
x,4000,8192,1,500
y,4000,8192,1,1000
CSV
sed 's/393216/lots/' "$dir/nodes.csv" >"$dir/bad.csv"

# Ten GPUs, halves and wholes, CPU to spare: everything must be used up by 130 %.
"$sluice" simulate --nodes "$dir/nodes.csv" --pods "$dir/pods.csv" --policy fgd,sluice --seeds 1-3 \
    --json --svg "$dir/curves.svg" >"$dir/runs"
[ "$(wc -l <"$dir/runs")" = 6 ] || fail "six runs are six lines"
[ "$(grep -c '"unallocated_percent": {"90": .*"95": .*"100": .*"130": 0}' "$dir/runs")" = 6 ] ||
    fail "not everything is used at 130 %: $(cat "$dir/runs")"
grep -q '"policy": "sluice","seed": 3,"nodes": 2,"gpus": 10' "$dir/runs" || fail "keys are missing"
grep -q '</svg>' "$dir/curves.svg" || fail "the curves are not whole"

# The same again gives the same, times aside.
strip() { sed 's/"seconds".*//' "$1"; }
"$sluice" simulate --nodes "$dir/nodes.csv" --policy fgd,sluice --seeds 1,2,3 --json "$dir/pods.csv" \
    >"$dir/again"
[ "$(strip "$dir/runs")" = "$(strip "$dir/again")" ] || fail "two equal runs differ"

"$sluice" simulate --mix 4xA:2:64000:262144 --policy best-fit --seeds 1 --until 100 --at 50,100 \
    >"$dir/table" 2>"$dir/err"
grep -q '4 nodes, 8 GPUs' "$dir/table" || fail "no headline"
grep -q 'when 50 % has arrived' "$dir/table" || fail "no table for 50 %"
[ ! -s "$dir/err" ] || fail "a progress bar where there is no terminal: $(cat "$dir/err")"
"$sluice" simulate --generate 20 --policy sluice --seeds 1 --churn --load 50 --learn \
    --strategy slots:4 --gpu-memory same --json | grep -q '"mean_unallocated_percent"' ||
    fail "churn without its figure"

# With no data at hand, at full size: the order the policies have on the public trace, with room on both sides.
"$sluice" simulate --policy best-fit,fgd,sluice --seeds 1-3 --until 100 --at 100 | awk '
    $1 == "generated" { n++; good = $2 - $3 > 1 && $3 - $4 > 0.2 && $4 > 3; line = $0 }
    END { if (n != 1 || !good) { print "place_cli: the policies do not order as they should: " line; exit 1 } }' || exit 1

want 1 'bad.csv:3:9: column memory_mib' --nodes "$dir/bad.csv" --pods "$dir/pods.csv"
want 1 'pods.csv:1:1: the header lacks the column "gpu"' --nodes "$dir/pods.csv"
want 1 'nothing.csv' --nodes "$dir/nodes.csv" --pods "$dir/nothing.csv"
want 2 'one of: random, first-fit' --policy best
want 2 'given twice' --policy fgd,fgd
want 2 '--seeds' --seeds 9-1
want 2 '--mix' --mix 3xA
want 2 'give only one of them' --mix 3xA:1:1:1 --generate 4
want 2 'works with --churn only' --load 5
want 2 '--svg draws arrivals' --churn --svg "$dir/x.svg"
want 1 "cannot write $dir/none/x.svg" --generate 5 --seeds 1 --svg "$dir/none/x.svg"
ln -s /dev/full "$dir/full.svg" # never the device itself: a mistake would replace it
want 1 'full.svg: No space left' --generate 5 --seeds 1 --svg "$dir/full.svg"
echo old >"$dir/linked.svg"
ln -s linked.svg "$dir/link.svg"
"$sluice" simulate --generate 5 --seeds 1 --svg "$dir/link.svg" >/dev/null
[ -L "$dir/link.svg" ] || fail "a link was replaced by a file"
grep -q '</svg>' "$dir/linked.svg" || fail "the curves are not where the link points"
set +e
"$sluice" simulate --generate 5 --seeds 1-9 --json >/dev/full 2>"$dir/err"
[ $? = 1 ] || fail "a full disk is no failure"
set -e
grep -qE 'cannot write the output: (No space|is the disk full)' "$dir/err" || fail "full disk: $(cat "$dir/err")"
want 2 '--until' --until 300
want 2 '--tune' --tune nothing=1
want 2 'did you mean "--policy"' --polic fgd
echo "place_cli: ok"
