# Completion of ddp_train and its siblings for bash; flags and keys are those that --help prints, so
# that it never knows others than the program. Packages put this into bash-completion/completions;
# elsewhere: source completion.bash

_lockstep_help() {
    # Once for each program in a shell.
    local name=_lockstep_help_${1##*/}
    [ -n "${!name:-}" ] || printf -v "$name" %s "$("$1" --help 2>/dev/null)"
    printf %s "${!name}"
}

_lockstep() {
    local program=$1 word=$2 before=$3 help words
    COMPREPLY=()
    help=$(_lockstep_help "$program")
    case $before in
    --set) words=$(sed -nE 's/^ +([a-z_]+(\.[a-z_]+)+) .*/\1=/p' <<<"$help") ;;
    --list) words=$("$program" --list ? 2>&1 | grep -oE '[a-z]+(\|[a-z]+)+' | tr '|' ' ') ;;
    --device) words="cpu cuda auto" ;;
    --log-level) words="error warn info debug" ;;
    *) [[ $word != -* ]] || words=$(grep -oE '(^| )--[a-z][a-z-]*' <<<"$help" | sort -u) ;;
    esac
    if [ -n "${words:-}" ]; then
        mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
        [[ ${COMPREPLY[0]:-} != *= ]] || compopt -o nospace 2>/dev/null
    else
        mapfile -t COMPREPLY < <(compgen -f -- "$word")
        compopt -o filenames 2>/dev/null
    fi
}

complete -F _lockstep ddp_train ddp_bench ddp_report ddp_data ddp_top ddp_sweep ddp_tune \
    ddp_predict ddp_export
