# bash completion for tensorctl: the commands and options are those of its --help.
_tensorctl() {
    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} said words
    said=$("${COMP_WORDS[0]}" --help 2>/dev/null)
    case $previous in
    --url)
        compopt -o nospace
        mapfile -t COMPREPLY < <(compgen -W 'unix:/ tcp://' -- "$current")
        return
        ;;
    --watch | --seconds | --interval | --count | --reason) return ;;
    -o | --output)
        compopt -o filenames
        mapfile -t COMPREPLY < <(compgen -f -- "$current")
        return
        ;;
    esac
    if [[ $current == -* ]]; then
        words=$(grep -oE -- '--[a-z][a-z0-9-]*' <<<"$said" | sort -u)
    else
        words=$(sed -n 's/^  \([a-z][a-z]*\) .*/\1/p' <<<"$said")
    fi
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
}
complete -F _tensorctl tensorctl
