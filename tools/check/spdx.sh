#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Every source file names its licence in the first five lines.
set -eu
. "$(dirname "$0")/files.sh"

bad=0
count=0
for f in $(source_files); do
    count=$((count + 1))
    head -n 5 "$f" | grep -q 'SPDX-License-Identifier: Apache-2.0' ||
        { echo "$f: no SPDX-License-Identifier: Apache-2.0"; bad=1; }
done
echo "$count files examined"
[ "$count" -gt 0 ] && exit $bad
