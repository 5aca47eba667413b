# shellcheck shell=bash
# shellcheck disable=SC2034 # variables are for the scripts that source this
# sweep.sh: what slurm/scaling_sweep.sh and tools/scaling_sweep_local.sh share. It is sourced, not run.

wrong() { echo "${0##*/}: $*; see ${0##*/} --help" >&2; exit 2; }

# parse_sweep ARGUMENTS...: sets mode, nodes (an array), repeat, config, out, keys (KEY=VALUE ...) and launcher_options (after --)
parse_sweep() {
    mode='' config='' out='' repeat=1 nodes=() keys=() launcher_options=()
    while [ $# -gt 0 ]; do
        case $1 in
            --help | -h) usage "$0"; exit 0 ;;
            --mode | --nodes | --repeat | --config | --out)
                [ $# -gt 1 ] || wrong "$1 needs a value"
                case $1 in
                    --nodes) IFS=, read -r -a nodes <<<"$2" ;;
                    *) printf -v "${1#--}" %s "$2" ;;
                esac
                shift 2 ;;
            --) shift; launcher_options=("$@"); break ;;
            [a-z]*=*) keys+=("$1"); shift ;;
            *) wrong "unknown argument $1" ;;
        esac
    done
    case $mode in weak | strong) ;; *) wrong "--mode must be weak or strong" ;; esac
    [ ${#nodes[@]} -gt 0 ] || wrong "--nodes is missing"
    [ -f "$config" ] || wrong "--config: there is no file '$config'"
    [ -n "$out" ] || wrong "--out is missing"
    local n
    for n in "${nodes[@]}" "$repeat"; do
        case $n in '' | *[!0-9]* | 0) wrong "expected numbers from 1, found '$n'" ;; esac
    done
}

# member_keys NODES RANKS KEY=VALUE...: sets member to the keys of a run of the sweep. weak: the batch grows with the nodes. strong: the batch stays,
# and each rank computes its part in one micro-batch.
member_keys() {
    local count=$1 ranks=$2 batch='' word
    shift 2
    for word in "$@"; do
        case $word in data.batch_size=*) batch=${word#*=} ;; esac
    done
    batch=${batch:-$(value_of "$config" data batch_size)}
    batch=${batch:-$("$TRAINER" help data.batch_size | sed -n '1s/.*= //p')}
    case $batch in '' | *[!0-9]*) wrong "data.batch_size = $batch is not a number" ;; esac
    if [ "$mode" = weak ]; then
        member=("$@" "data.batch_size=$((batch * count))")
    else
        [ $((batch % ranks)) = 0 ] || wrong "data.batch_size = $batch does not divide among $ranks ranks"
        member=("$@" "data.batch_size=$batch" "data.micro_batch=$((batch / ranks))")
    fi
}

# member_dir NODES REPEAT: the run folder
member_dir() { echo "$out/$mode-n$1-r$2"; }

# check_members RANKS_PER_NODE: before the first run, that none has run in its folder, and that the batch divides among all ranks
check_members() {
    local count i dir member
    for count in "${nodes[@]}"; do
        member_keys "$count" $((count * $1)) "${keys[@]}"
        for ((i = 1; i <= repeat; i++)); do
            dir=$(member_dir "$count" "$i")
            [ ! -e "$dir/metrics.jsonl" ] || wrong "$dir has a run already: choose another --out, or remove that folder"
        done
    done
}

# run_member DIR COMMAND...: runs COMMAND, which trains in DIR; its exit code. The report lists a member that fails by its verdict:
# where trainer could not write one, the code of the launcher takes its place.
run_member() {
    local dir=$1 code
    shift
    mkdir -p "$dir" || return
    rm -f "$dir/verdict"
    export TRAINER_RUN_VERDICT=$dir/verdict
    ("$@")
    code=$?
    [ "$code" = 0 ] || [ -s "$dir/verdict" ] || echo "no $code the launcher ended with this code" >"$dir/verdict"
    return "$code"
}
report_command() { echo "$TRAINER report $out/$mode-n*-r*/ --out $out/report"; }
