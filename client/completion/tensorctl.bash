# bash completion for tensorctl. Commands and options are those of its --help and of a command's own; devices, sessions and
# users are asked of the daemon, which has a second to reply.
_tensorctl_ask() {
    timeout 1 "${url[@]}" "$1" --json 2>/dev/null
}
# Bash splits words at ':' and '=': cpu:0 is three words. Puts into `line` the words up to the cursor as they stand on the line.
_tensorctl_join() {
    local rest=$COMP_LINE i
    line=()
    for ((i = 0; i <= COMP_CWORD; i++)); do
        if ((i > 0)) && [[ $rest != [[:blank:]]* && (${COMP_WORDS[i]} == [:=]* || ${COMP_WORDS[i - 1]} == *[:=]) ]]; then
            line[-1]+=${COMP_WORDS[i]}
        else
            line+=("${COMP_WORDS[i]}")
        fi
        rest=${rest#"${rest%%[![:blank:]]*}"}
        rest=${rest#"${COMP_WORDS[i]}"}
    done
    # An option and its value are two words, however they are written.
    if [[ ${line[-1]} == --*=* ]]; then
        line+=("${line[-1]#*=}")
        line[-2]=${line[-2]%%=*}
    fi
}
# The replies that begin with the present word. What bash does not count to its word is on the line already.
_tensorctl_reply() {
    mapfile -t COMPREPLY < <(compgen "$@" -- "$current")
    local word=${COMP_WORDS[COMP_CWORD]}
    [[ $word == [:=]* && $COMP_WORDBREAKS == *"${word:0:1}"* ]] && word=''
    COMPREPLY=("${COMPREPLY[@]#"${current%"$word"}"}")
}
_tensorctl() {
    local line
    _tensorctl_join
    local current=${line[-1]} previous=${line[-2]} program=${line[0]}
    local command='' position=0 i words='' url=("$program")
    # The command, and how many words stand between it and the cursor.
    for ((i = 1; i < ${#line[@]} - 1; i++)); do
        case ${line[i]} in
        --url) url+=(--url "${line[++i]}") ;;
        --url=*) url+=("${line[i]}") ;;
        --reason | --user | --to | --session | --seconds | --interval | --count | --output | -o) ((i++)) ;;
        -*) ;;
        *) if [[ -z $command ]]; then command=${line[i]}; else ((position++)); fi ;;
        esac
    done
    case $previous in
    --url)
        compopt -o nospace
        _tensorctl_reply -W 'unix:/ tcp:// tls://'
        return
        ;;
    --user | --to) words=$(_tensorctl_ask sessions | sed -n 's/.*"principal": "\(.*\)".*/\1/p' | sort -u) ;;
    --session) words=$(_tensorctl_ask sessions | sed -n 's/.*"id": \([0-9]*\).*/\1/p') ;;
    --watch | --seconds | --interval | --count | --reason) return ;;
    -o | --output)
        compopt -o filenames
        _tensorctl_reply -f
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
                _tensorctl_reply -f
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
    _tensorctl_reply -W "$words"
}
complete -F _tensorctl tensorctl
