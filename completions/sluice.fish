# SPDX-License-Identifier: Apache-2.0
# Completion of sluice(1) for fish. The words come from `sluice words`, that is from the program's own
# table, so this file does not change when a verb does.

function __sluice_complete
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    set -l program $words[1]
    set -l previous $words[-1]
    set -l n (count $words)
    set -l verb ''
    set -l i 2

    # The first word that is no option (nor --dir's value) is the verb.
    while test $i -le $n
        switch $words[$i]
            case --dir
                set i (math $i + 1)
            case '-*'
            case '*'
                set verb $words[$i]
                break
        end
        set i (math $i + 1)
    end
    if test -z "$verb"
        if test "$previous" = --dir
            __fish_complete_directories "$current"
        else if string match -q -- '-*' "$current"
            printf '%s\n' --dir --help --version
        else
            $program words 2>/dev/null
        end
        return
    end

    # Within run, the first word that is neither option nor value begins the command.
    if test $verb = run
        set i (math $i + 1)
        set -l begun 0
        while test $i -le $n
            switch $words[$i]
                case --
                    set begun 1
                    set i (math $i + 1)
                    break
                case '--*=*'
                case '--*'
                    if $program words run (string sub -s 3 -- $words[$i]) >/dev/null 2>&1
                        set i (math $i + 1)
                    end
                case '*'
                    set begun 1
                    break
            end
            set i (math $i + 1)
        end
        if test $begun = 1
            __fish_complete_subcommand --commandline $words[$i..-1] $current 2>/dev/null
            or complete -C (string join -- ' ' $words[$i..-1] $current)
            return
        end
    end

    set -l hint
    if string match -q -- '--*' $previous
        and set hint ($program words $verb (string sub -s 3 -- $previous) 2>/dev/null)
        switch "$hint"
            case @file
                __fish_complete_path "$current"
            case @dir
                __fish_complete_directories "$current"
            case '*'
                printf '%s\n' $hint
        end
        return
    end
    if string match -q -- '-*' "$current"
        $program words $verb 2>/dev/null
        return
    end
    set -l world
    for i in (seq 2 $n)
        switch $words[$i]
            case --dir --sim
                set -a world $words[$i] $words[(math $i + 1)]
        end
    end
    switch $verb
        case help
            $program words 2>/dev/null
        case set status pause resume forget
            $program words --tenants $world 2>/dev/null
        case history
            $program words --ended $world 2>/dev/null
        case lease
            if test $previous = lease
                printf '%s\n' create list delete
            else if test $previous = delete
                $program words --leases $world 2>/dev/null
            end
        case config arbiter
            if test $previous = $verb
                echo check
            else
                __fish_complete_path "$current"
            end
        case simulate
            __fish_complete_path "$current"
        case run
            complete -C "$current"
    end
end

complete -c sluice -f -a '(__sluice_complete)'
