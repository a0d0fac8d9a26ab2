# bash completion for tensorctl. Commands and options are those of its --help and of a command's own; devices, sessions and
# users are asked of the daemon, which has a second to reply.
_tensorctl_ask() {
    timeout 1 "${url[@]}" "$1" --json 2>/dev/null
}
_tensorctl() {
    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} program=${COMP_WORDS[0]}
    local command='' position=0 i words='' url=("$program")
    # The command, and how many words stand between it and the cursor. "--url tcp://host:1" is split at its colons.
    for ((i = 1; i < COMP_CWORD; i++)); do
        case ${COMP_WORDS[i]} in
        --url) url+=(--url "${COMP_WORDS[++i]}") && while [[ ${COMP_WORDS[i + 1]} == : || ${COMP_WORDS[i]} == : ]]; do
            url[2]+=${COMP_WORDS[++i]}
        done ;;
        --reason | --user | --to | --session | --seconds | --interval | --count | --output | -o) ((i++)) ;;
        -* | : | =) ;;
        *) if [[ -z $command ]]; then command=${COMP_WORDS[i]}; else ((position++)); fi ;;
        esac
    done
    case $previous in
    --url)
        compopt -o nospace
        mapfile -t COMPREPLY < <(compgen -W 'unix:/ tcp:// tls://' -- "$current")
        return
        ;;
    --user | --to) words=$(_tensorctl_ask sessions | sed -n 's/.*"principal": "\(.*\)".*/\1/p' | sort -u) ;;
    --session) words=$(_tensorctl_ask sessions | sed -n 's/.*"id": \([0-9]*\).*/\1/p') ;;
    --watch | --seconds | --interval | --count | --reason) return ;;
    -o | --output)
        compopt -o filenames
        mapfile -t COMPREPLY < <(compgen -f -- "$current")
        return
        ;;
    *)
        if [[ $current == -* ]]; then
            words=$("$program" ${command:+"$command"} --help 2>/dev/null | grep -oE -- '--[a-z][a-z0-9-]*' | sort -u)
        else
            case $command/$position in
            /0 | help/0) words=$("$program" --help 2>/dev/null | sed -n 's/^  \([a-z][a-z]*\) .*/\1/p') ;;
            program/0) words=dump ;;
            save/1 | load/1 | program/1)
                compopt -o filenames
                mapfile -t COMPREPLY < <(compgen -f -- "$current")
                return
                ;;
            names/0) words="rm mv $(_tensorctl_ask devices | sed -n 's/.*"name": "\([a-z]*:[0-9]*\)".*/\1/p')" ;;
            names/1) words=$(_tensorctl_ask devices | sed -n 's/.*"name": "\([a-z]*:[0-9]*\)".*/\1/p') ;;
            names/*)
                words=$(timeout 1 "${url[@]}" names --json 2>/dev/null | sed -n 's/.*"name": "\(.*\)".*/\1/p')
                ;;
            save/0 | load/0 | bench/0 | trace/* | devices/*)
                words=$(_tensorctl_ask devices | sed -n 's/.*"name": "\([a-z]*:[0-9]*\)".*/\1/p')
                ;;
            save/*)
                words=$(timeout 1 "${url[@]}" names --json 2>/dev/null | sed -n 's/.*"name": "\(.*\)".*/\1/p')
                ;;
            kill/*) words=$(_tensorctl_ask sessions | sed -n 's/.*"id": \([0-9]*\).*/\1/p') ;;
            esac
        fi
        ;;
    esac
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
    # What stands before the last colon is on the line already: bash takes it for a word of its own.
    if [[ $current == *:* && $COMP_WORDBREAKS == *:* ]]; then
        COMPREPLY=("${COMPREPLY[@]#"${current%"${current##*:}"}"}")
    fi
}
complete -F _tensorctl tensorctl
