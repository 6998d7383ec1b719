# SPDX-License-Identifier: Apache-2.0
# Completion of sluice(1) for bash. The words come from `sluice words`, that is from the program's
# own table, so this file does not change when a verb does.
_sluice() {
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]}
    local program=${COMP_WORDS[0]} verb='' words i
    local -a world=()
    COMPREPLY=()

    # The first word that is no option (nor --dir's value) is the verb.
    for ((i = 1; i < COMP_CWORD; i++)); do
        case ${COMP_WORDS[i]} in
        --dir) ((++i)) ;;
        -*) ;;
        *)
            verb=${COMP_WORDS[i]}
            break
            ;;
        esac
    done
    if [[ -z $verb ]]; then
        case $prev in
        --dir) compopt -o filenames; mapfile -t COMPREPLY < <(compgen -d -- "$cur") ;;
        *)
            [[ $cur == -* ]] && words='--dir --help --version' || words=$("$program" words 2>/dev/null)
            mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
            ;;
        esac
        return
    fi

    # Within run, the first word that is neither option nor value begins the command.
    if [[ $verb == run ]]; then
        for ((i++; i < COMP_CWORD; i++)); do
            case ${COMP_WORDS[i]} in
            --)
                ((++i))
                break
                ;;
            --*=*) ;;
            --*) "$program" words run "${COMP_WORDS[i]#--}" >/dev/null 2>&1 && ((++i)) ;;
            *) break ;;
            esac
        done
        if ((i < COMP_CWORD)) || { ((i == COMP_CWORD)) && [[ $prev == -- ]]; }; then
            if declare -F _command_offset >/dev/null; then
                _command_offset "$i"
            elif ((i == COMP_CWORD)); then
                mapfile -t COMPREPLY < <(compgen -c -- "$cur")
            else
                compopt -o default
            fi
            return
        fi
    fi

    for ((i = 1; i < COMP_CWORD; i++)); do
        case ${COMP_WORDS[i]} in
        --dir | --sim) world+=("${COMP_WORDS[i]}" "${COMP_WORDS[i + 1]}") ;;
        esac
    done
    if [[ $prev == --* ]] && words=$("$program" words "$verb" "${prev#--}" 2>/dev/null); then
        case $words in
        @file) compopt -o filenames; mapfile -t COMPREPLY < <(compgen -f -- "$cur") ;;
        @dir) compopt -o filenames; mapfile -t COMPREPLY < <(compgen -d -- "$cur") ;;
        *) mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur") ;;
        esac
    elif [[ $cur == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$("$program" words "$verb" 2>/dev/null)" -- "$cur")
    elif [[ $verb == help ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$("$program" words 2>/dev/null)" -- "$cur")
    elif [[ $verb == @(set|status|pause|resume|forget) ]]; then
        words=$("$program" words --tenants "${world[@]}" 2>/dev/null)
        mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
    elif [[ $verb == history ]]; then
        words=$("$program" words --ended "${world[@]}" 2>/dev/null)
        mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
    elif [[ $verb == lease && $prev == lease ]]; then
        mapfile -t COMPREPLY < <(compgen -W 'create list delete' -- "$cur")
    elif [[ $verb == lease && $prev == delete ]]; then
        words=$("$program" words --leases "${world[@]}" 2>/dev/null)
        mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
    elif [[ ($verb == config || $verb == arbiter) && $prev == $verb ]]; then
        mapfile -t COMPREPLY < <(compgen -W check -- "$cur")
    elif [[ $verb == config || $verb == arbiter || $verb == simulate ]]; then
        compopt -o filenames
        mapfile -t COMPREPLY < <(compgen -f -- "$cur")
    elif [[ $verb == run ]]; then
        mapfile -t COMPREPLY < <(compgen -c -- "$cur")
    fi
}
complete -F _sluice sluice
