# bash completion for tensord: the flags are those of its --help.
_tensord() {
    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]}
    case $previous in
    --config | --users | --tls-* | --state-dir)
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
        mapfile -t COMPREPLY < <(compgen -W 'unix:/ tcp://127.0.0.1:' -- "$current")
        return
        ;;
    --help | --version | --check-config) ;;
    --*) return ;;
    esac
    mapfile -t COMPREPLY < <(compgen -W "$("${COMP_WORDS[0]}" --help 2>/dev/null | sed -n 's/^  \(--[a-z0-9-]*\).*/\1/p')" -- "$current")
}
complete -F _tensord tensord
