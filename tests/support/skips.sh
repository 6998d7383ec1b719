#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# skips.sh CTEST.PY: it says why tests were skipped, and fails where one does not say why.
set -eu
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cat >"$place/CTestTestfile.cmake" <<'TESTS'
add_test(moon "/bin/sh" "-c" "echo skipped: there is no moon; exit 77")
add_test(tide "/bin/sh" "-c" "echo skipped: there is no moon; exit 77")
add_test(whole "/bin/sh" "-c" "echo 1..1; echo 'ok 1 eats # skip no spoon'")
add_test(part "/bin/sh" "-c" "echo 'ok 1 runs'; echo 'ok 2 flies # skip no wings'")
add_test(python "/bin/sh" "-c" "echo \"test_a (x.A.test_a) ... skipped 'no snake'\"")
add_test(good "/bin/sh" "-c" "echo fine")
set_tests_properties(moon tide PROPERTIES SKIP_RETURN_CODE 77)
set_tests_properties(whole PROPERTIES SKIP_REGULAR_EXPRESSION "# skip ")
TESTS
"$1" "$place" -j 2 >"$place/said" || { cat "$place/said"; exit 1; }
sed -n '/^Skipped, and why:/,$p' "$place/said" | sort >"$place/why"
diff - "$place/why" <<'WHY' || exit 1
  1 of part: no wings
  1 of python: no snake
  moon, tide: there is no moon
  whole: no spoon
Skipped, and why:
WHY
echo 'add_test(bad "/bin/false")' >>"$place/CTestTestfile.cmake"
if "$1" "$place" >/dev/null 2>&1; then
    echo "a failure was lost"
    exit 1
fi
cat >"$place/CTestTestfile.cmake" <<'TESTS'
add_test(silent "/bin/sh" "-c" "exit 77")
set_tests_properties(silent PROPERTIES SKIP_RETURN_CODE 77)
TESTS
if "$1" "$place" >"$place/said" 2>&1 || ! grep -q 'skipped without a reason: silent:' "$place/said"; then
    cat "$place/said"
    exit 1
fi
