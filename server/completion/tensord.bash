# bash completion for tensord: the flags are those of its --help.

# Bash splits words at ':' and '=': unix:/s is three words. Puts into `line` the words up to the cursor as they stand on the line.
_tensord_join() {
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
    # A flag and its value are two words, however they are written.
    if [[ ${line[-1]} == --*=* ]]; then
        line+=("${line[-1]#*=}")
        line[-2]=${line[-2]%%=*}
    fi
}
# The replies that begin with the present word. What bash does not count to its word is on the line already.
_tensord_reply() {
    mapfile -t COMPREPLY < <(compgen "$@" -- "$current")
    local word=${COMP_WORDS[COMP_CWORD]}
    [[ $word == [:=]* && $COMP_WORDBREAKS == *"${word:0:1}"* ]] && word=''
    COMPREPLY=("${COMPREPLY[@]#"${current%"$word"}"}")
}
_tensord() {
    local line
    _tensord_join
    local current=${line[-1]} previous=${line[-2]}
    local command=()
    if [[ ${line[1]} == user ]]; then
        if [[ ${#line[@]} -eq 3 ]]; then
            _tensord_reply -W 'add token revoke role remove list'
            return
        fi
        command=(user)
    fi
    case $previous in
    --role)
        _tensord_reply -W 'observe run admin'
        return
        ;;
    --tls-client-auth)
        _tensord_reply -W 'none optional required'
        return
        ;;
    --config | --users | --tls-* | --state-dir | --cache-dir)
        compopt -o filenames
        _tensord_reply -f
        return
        ;;
    --devices)
        _tensord_reply -W 'auto cpu cuda'
        return
        ;;
    --log-format)
        _tensord_reply -W 'text json'
        return
        ;;
    --log-level)
        _tensord_reply -W 'debug info warning error'
        return
        ;;
    --listen)
        compopt -o nospace
        _tensord_reply -W 'unix:/ tcp://127.0.0.1: tls://'
        return
        ;;
    --help | --version | --check-config) ;;
    --*) return ;;
    esac
    _tensord_reply -W "$("${line[0]}" "${command[@]}" --help 2>/dev/null | sed -n 's/^  \(--[a-z0-9-]*\).*/\1/p')"
}
complete -F _tensord tensord
