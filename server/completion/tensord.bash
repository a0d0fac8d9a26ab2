# bash completion for tensord: the flags are those of its --help.
_tensord() {
    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]}
    local command=()
    if [[ ${COMP_WORDS[1]} == user ]]; then
        if [[ $COMP_CWORD -eq 2 ]]; then
            mapfile -t COMPREPLY < <(compgen -W 'add token revoke role remove list' -- "$current")
            return
        fi
        command=(user)
    fi
    case $previous in
    --role)
        mapfile -t COMPREPLY < <(compgen -W 'observe run admin' -- "$current")
        return
        ;;
    --tls-client-auth)
        mapfile -t COMPREPLY < <(compgen -W 'none optional required' -- "$current")
        return
        ;;
    --config | --users | --tls-* | --state-dir | --cache-dir)
        compopt -o filenames
        mapfile -t COMPREPLY < <(compgen -f -- "$current")
        return
        ;;
    --devices)
        mapfile -t COMPREPLY < <(compgen -W 'auto cpu cuda' -- "$current")
        return
        ;;
    --log-format)
        mapfile -t COMPREPLY < <(compgen -W 'text json' -- "$current")
        return
        ;;
    --log-level)
        mapfile -t COMPREPLY < <(compgen -W 'debug info warning error' -- "$current")
        return
        ;;
    --listen)
        compopt -o nospace
        mapfile -t COMPREPLY < <(compgen -W 'unix:/ tcp://127.0.0.1: tls://' -- "$current")
        return
        ;;
    --help | --version | --check-config) ;;
    --*) return ;;
    esac
    mapfile -t COMPREPLY < <(compgen -W "$("${COMP_WORDS[0]}" "${command[@]}" --help 2>/dev/null | sed -n 's/^  \(--[a-z0-9-]*\).*/\1/p')" -- "$current")
}
complete -F _tensord tensord
