# SPDX-License-Identifier: Apache-2.0
# usage: zsh -f complete.zsh SCRATCH_DIR WORDS…
# Prints what zsh offers for the last of the words, one a line. A second zsh runs on a terminal of its own, with
# completion as users have it; there the Tab key writes what is offered into a file, and the shell ends.
zmodload zsh/zpty
export SCRATCH=$1 ZDOTDIR=$1
shift
rm -f $SCRATCH/offered
cat >$SCRATCH/.zshrc <<'RC'
PS1='READY> '
fpath=($SLUICE_SOURCE/completions $fpath)
path=(${SLUICE:h} $path)
autoload -Uz compinit
compinit -u -D
compadd() {
    local -a matches
    local prefix=
    # With one of these options nothing is offered: the caller wants the matches.
    if ((${@[(I)-[OAD]]})); then
        builtin compadd "$@"
        return
    fi
    builtin compadd -A matches "$@"
    ((${@[(I)-p]})) && prefix=$argv[${@[(I)-p]}+1]
    ((${#matches})) && print -rl -- "$prefix"${^matches} >>$SCRATCH/offered
    builtin compadd "$@"
}
tell() {
    _main_complete
    exit
}
zle -C tell complete-word tell
bindkey '^I' tell
RC
zpty shell zsh -i
zpty -r shell line '*READY> *'
zpty -w -n shell "${(j: :)@}"$'\t'
while zpty -r shell line; do :; done
zpty -d shell
[[ ! -e $SCRATCH/offered ]] || sort -u $SCRATCH/offered
