#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Help, versions, mistyped words, man pages and completion: all from the one table.
load common
setup() { common_setup; }
teardown() { common_teardown; }

@test "--help lists every verb and exits 0" {
    run -0 "$SLUICE" --help
    for verb in $("$SLUICE" words | grep -v '^help$'); do has "  $verb "; done
}

@test "no verb is an error that shows the help" {
    run -2 "$SLUICE"
    has "Verbs:"
}

@test "--version, at the front and after a verb" {
    run -0 "$SLUICE" --version
    [[ $output =~ ^sluice\ [0-9]+\.[0-9]+\.[0-9]+\ \(commit\ [0-9A-Za-z._-]+\)$ ]]
    first=$output
    run -0 "$SLUICE" version
    [ "$output" = "$first" ]
    run -2 "$SLUICE" version now
    has '"now" is an extra word: write `sluice version`'
    run -0 "$SLUICE" version --help
    has "Usage: sluice"
    run -2 "$SLUICE" help run now
    has '"now" is an extra word: write `sluice help run`'
    run -0 "$SLUICE" status --version
    [[ $output =~ ^sluice\ [0-9] ]]
}

@test "the agent and the controller are of the same commit" {
    version=$("$SLUICE" --version)
    for program in sluiced sluice-controller; do
        [ -x "$(dirname "$SLUICE")/$program" ] || skip "not built"
        run -0 "$(dirname "$SLUICE")/$program" --version
        [ "$output" = "$program ${version#sluice }" ]
    done
}

# commit_of SOURCE [-DCOMMIT=...]: what the build writes down for a source in this folder.
commit_of() {
    local source=$1
    shift
    cmake -DSOURCE="$source" -DHEADER="$PLACE/commit.h" -DGIT="$(command -v git)" "$@" \
        -P "$SLUICE_SOURCE/cmake/SluiceCommit.cmake" && sed -n 's/^#define SLUICE_COMMIT "\(.*\)"$/\1/p' "$PLACE/commit.h"
}

@test "the commit: of git, with -dirty after a change only; what is said comes first; else unknown" {
    command -v cmake >/dev/null || skip "no cmake"
    command -v git >/dev/null || skip "no git"
    tree=$PLACE/tree
    export GIT_CONFIG_GLOBAL=/dev/null GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
    git init -q "$tree"
    mkdir "$tree/inside"
    echo 1 >"$tree/file"
    run -0 commit_of "$tree" # no commit yet
    [ "$output" = unknown ]
    git -C "$tree" add file
    git -C "$tree" commit -qm one
    git -C "$tree" tag -a -m tag v9
    commit=$(git -C "$tree" rev-parse --short=12 HEAD)
    run -0 commit_of "$tree"
    [ "$output" = "$commit" ]
    # Not written again: nothing is compiled again.
    touch -d @1 "$PLACE/commit.h"
    run -0 commit_of "$tree"
    [ "$(stat -c %Y "$PLACE/commit.h")" = 1 ]
    touch "$tree/not-added"
    run -0 commit_of "$tree"
    [ "$output" = "$commit" ]
    echo 2 >"$tree/file"
    run -0 commit_of "$tree"
    [ "$output" = "$commit-dirty" ]
    run -0 commit_of "$tree" -DCOMMIT=v1.2-release
    [ "$output" = v1.2-release ]
    run -0 commit_of "$tree/inside" # an unpacked archive in somebody's checkout
    [ "$output" = unknown ]
    run -0 commit_of "$tree" -DGIT=
    [ "$output" = unknown ]
}

@test "every verb explains itself, by --help, -h and help VERB" {
    for verb in $("$SLUICE" words | grep -v '^help$'); do
        run -0 "$SLUICE" "$verb" --help
        has "Usage: sluice $verb"
        first=$output
        run -0 "$SLUICE" help "$verb"
        [ "$output" = "$first" ]
        run -0 "$SLUICE" "$verb" -h
        [ "$output" = "$first" ]
    done
    for word in --help -h help; do
        run -0 "$SLUICE" help "$word"
        has "Usage: sluice [--dir DIR] VERB"
    done
}

@test "help lines fit an 88 column terminal" {
    for verb in $("$SLUICE" words | grep -v '^help$'); do
        [ "$("$SLUICE" "$verb" --help | awk 'length > 88' | wc -l)" -eq 0 ]
    done
}

@test "a mistyped verb or option is met with the one that was meant" {
    run -2 "$SLUICE" stauts
    has 'did you mean "status"?'
    run -2 "$SLUICE" frobnicate
    has 'sluice --help'
    run -125 "$SLUICE" run --memry 1Gi -- true
    has 'did you mean "--memory"?'
    run -125 "$SLUICE" run --prio=low -- true
    has 'did you mean "--priority"?'
    run -2 "$SLUICE" status --zzzzzz
    has '`sluice status --help`'
    run -2 "$SLUICE" status -x
    has 'unknown option "-x"'
}

@test "a value that is missing, twice there, or too much" {
    run -125 "$SLUICE" run --memory
    has "--memory needs a value"
    run -125 "$SLUICE" run --memory -- true
    has "--memory needs a value"
    run -125 "$SLUICE" run --memory 1Gi --memory 2Gi -- true
    has "given twice"
    run -2 "$SLUICE" status --json=yes
    has "takes no value"
    run -2 "$SLUICE" top extra
    has "is an extra word"
}

@test "output that cannot be written is a failure" {
    run bash -c '"$SLUICE" --help >/dev/full'
    [ "$status" -ne 0 ]
    has "No space left"
}

@test "man pages are clean and name every option" {
    command -v mandoc >/dev/null || skip "no mandoc"
    for page in "$SLUICE_SOURCE"/docs/man/*.[18]; do
        run mandoc -T lint -W warning "$page"
        [ -z "$output" ] || { echo "$output"; return 1; }
    done
    for verb in $("$SLUICE" words | grep -v '^help$'); do
        [[ $(cat "$SLUICE_SOURCE/docs/man/sluice.1") == *".Xr sluice-$verb 1"* ]] ||
            { echo "sluice.1 lacks $verb"; return 1; }
        text=$(mandoc -T ascii "$SLUICE_SOURCE/docs/man/sluice-$verb.1" | sed 's/.\x08//g')
        for option in $("$SLUICE" words "$verb"); do
            [[ $text == *"$option"* ]] || { echo "sluice-$verb.1 lacks $option"; return 1; }
        done
    done
    sluiced=$(dirname "$SLUICE")/sluiced
    [ -x "$sluiced" ] || return 0
    text=$(mandoc -T ascii "$SLUICE_SOURCE/docs/man/sluiced.8" | sed 's/.\x08//g')
    [ "$("$sluiced" --help | awk 'length > 104' | wc -l)" -eq 0 ]
    for option in $("$sluiced" --help | grep -oE -- '^  --[a-z-]+|\(\$[A-Z_]+\)' | tr -d ' ($)'); do
        [[ $text == *"$option"* ]] || { echo "sluiced.8 lacks $option"; return 1; }
    done
    text=$(mandoc -T ascii "$SLUICE_SOURCE/docs/man/sluice-controller.8" | sed 's/.\x08//g')
    for option in $("$(dirname "$SLUICE")/sluice-controller" --help | grep -oE -- '--[a-z][a-z-]+|/[a-z]+z'); do
        [[ $text == *"$option"* ]] || { echo "sluice-controller.8 lacks $option"; return 1; }
    done
}

@test "installed: programs, libraries, man pages and completion are there and find each other" {
    command -v cmake >/dev/null || skip "no cmake"
    run -0 cmake --install "$SLUICE_BUILD" --prefix "$PLACE/usr"
    for page in "$SLUICE_SOURCE"/docs/man/*.[18]; do
        [ -e "$PLACE/usr/share/man/man${page##*.}/${page##*/}" ] || { echo "${page##*/} is not installed"; return 1; }
    done
    [ -e "$PLACE/usr/share/bash-completion/completions/sluice" ]
    [ -e "$PLACE/usr/share/zsh/site-functions/_sluice" ]
    [ -e "$PLACE/usr/share/fish/vendor_completions.d/sluice.fish" ]
    run -0 "$PLACE/usr/bin/sluice" run --sim h200 --memory 1Gi -- printenv LD_PRELOAD
    has "$PLACE/usr/lib"
    has "libsluice.so"
}

# complete_SHELL WORDS...: what the shell offers for the last word.
complete_bash() {
    bash -c 'PATH=$(dirname "$SLUICE"):$PATH; source "$SLUICE_SOURCE/completions/sluice.bash"
        COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _sluice 2>/dev/null; printf "%s\n" "${COMPREPLY[@]}"' \
        bash "$@"
}

# zsh completes on a terminal, so the script asks one that belongs to nobody.
complete_zsh() {
    zsh -f "$SLUICE_SOURCE/tests/cli/complete.zsh" "$PLACE" "$@"
}

complete_fish() {
    fish -N -c 'set PATH (dirname "$SLUICE") $PATH; source "$SLUICE_SOURCE/completions/sluice.fish"
        complete -C (string join " " -- $argv)' "$@" | cut -f 1
}

# offers_verbs_options_and_values SHELL
offers_verbs_options_and_values() {
    local c=complete_$1
    command -v "$1" >/dev/null || skip "$1 is not installed"
    run "$c" sluice st
    [ "$output" = status ]
    run "$c" sluice run --mem
    [ "$output" = --memory ]
    run "$c" sluice run --wai
    [ "$output" = --wait ]
    run "$c" sluice run --wait --mem # its time is never the next word
    [ "$output" = --memory ]
    run "$c" sluice run --priority ''
    has high
    has low
    run "$c" sluice run --priority l
    [ "$output" = low ]
    run "$c" sluice --dir "$PLACE" status --j
    [ "$output" = --json ]
    run "$c" sluice status --w
    has --wide
    has --watch
    run "$c" sluice config ''
    [ "$output" = check ]
    run "$c" sluice arbiter ''
    [ "$output" = check ]
    run "$c" sluice arbiter --sys
    [ "$output" = --system ]
    run "$c" sluice lease d
    [ "$output" = delete ]
    run "$c" sluice lease create --cdi
    [ "$output" = --cdi-dir ]
    "$SLUICE" lease create train --sim h200 --cdi-dir "$PLACE/cdi" >/dev/null 3>&-
    run "$c" sluice lease --sim h200 delete ''
    [ "$output" = train ]
    "$SLUICE" lease delete train --sim h200 --cdi-dir "$PLACE/cdi" >/dev/null
    run "$c" sluice config check "$SLUICE_SOURCE/REA"
    [ "$output" = "$SLUICE_SOURCE/README.md" ]
    run "$c" sluice simulate "$SLUICE_SOURCE/REA"
    [ "$output" = "$SLUICE_SOURCE/README.md" ]
    run "$c" sluice run -- tru
    has true
    run "$c" sluice run --memory 1Gi tru
    has true
    [ "$1" = bash ] && return # leaves the arguments of a command to bash-completion
    run "$c" sluice run --memory 1Gi -- cat "$SLUICE_SOURCE/REA"
    [ "$output" = "$SLUICE_SOURCE/README.md" ]
}

@test "completion of status and set offers the tenants, in each shell that is here" {
    "$SLUICE" run --sim h200 --name findme -- sleep 30 &
    BACKGROUND+=($!)
    eventually tenant_exists findme
    for shell in bash zsh fish; do
        command -v $shell >/dev/null || continue
        for verb in status set; do
            run "complete_$shell" sluice $verb find
            [ "$output" = findme ] || { echo "$shell, $verb: $output"; return 1; }
        done
    done
}

@test "bash completion offers verbs, options and values" {
    offers_verbs_options_and_values bash
}

@test "zsh completion offers verbs, options and values" {
    offers_verbs_options_and_values zsh
}

@test "fish completion offers verbs, options and values" {
    offers_verbs_options_and_values fish
}

@test "uninstall removes what was installed, and fails where nothing of it is" {
    mkdir -p "$PLACE/root/usr/bin" "$PLACE/root/usr/lib/sluice/sim"
    printf '%s\n' /usr/bin/sluice /usr/lib/sluice/sim/libcuda.so.1 >"$PLACE/manifest"
    touch "$PLACE/root/usr/bin/sluice" "$PLACE/root/usr/bin/other" "$PLACE/root/usr/lib/sluice/sim/libcuda.so.1"
    DESTDIR=$PLACE/elsewhere run -1 "$SLUICE_SOURCE/tools/uninstall.sh" "$PLACE/manifest"
    has "nothing of Sluice is below $PLACE/elsewhere"
    [ -e "$PLACE/root/usr/bin/sluice" ]
    DESTDIR=$PLACE/root run -0 "$SLUICE_SOURCE/tools/uninstall.sh" "$PLACE/manifest"
    has "2 files removed"
    [ ! -e "$PLACE/root/usr/bin/sluice" ]
    [ ! -e "$PLACE/root/usr/lib/sluice" ]
    [ -e "$PLACE/root/usr/bin/other" ]
    DESTDIR=$PLACE/root run -1 "$SLUICE_SOURCE/tools/uninstall.sh" "$PLACE/manifest"
    run -1 "$SLUICE_SOURCE/tools/uninstall.sh" "$PLACE/no-manifest"
    has "nothing was installed from this tree"
}

@test "completion of history offers the names of ended tenants, in each shell that is here" {
    "$SLUICE" run --sim h200 --name findme -- true
    listed() { [[ $("$SLUICE" words --ended) == findme ]]; }
    eventually listed
    for shell in bash zsh fish; do
        command -v $shell >/dev/null || continue
        run "complete_$shell" sluice history find
        [ "$output" = findme ] || { echo "$shell: $output"; return 1; }
    done
}
