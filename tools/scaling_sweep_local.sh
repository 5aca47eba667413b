#!/bin/bash
# scaling_sweep_local.sh: measures how training scales, with mpirun on this machine or on the hosts of a file.
#
#   tools/scaling_sweep_local.sh --mode weak|strong --nodes 1,2,4 --config CONFIG.ini --out DIR [--repeat N] [--ranks N]
#                                [--hostfile FILE] [KEY=VALUE ...] [-- OPTIONS of mpirun]
#
#   --mode, --nodes, --repeat, --out   as in slurm/scaling_sweep.sh
#   --ranks N         ranks per node (default 1)
#   --hostfile FILE   each line of FILE is a node, and a run uses the first lines; without it, all ranks are on this machine
#
# The runs are sequential. If one fails, the others continue, and the exit code is 1. At the end the script prints the
# command that makes the report.
here=$(cd "$(dirname "$0")/.." && pwd)
. "$here/slurm/common.sh" && . "$here/slurm/sweep.sh" || exit 2
TRAINER=${TRAINER:-$here/trainer}
ranks=1 hostfile='' arguments=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do
    case $1 in
        --ranks) ranks=${2-} ; shift $(($# > 1 ? 2 : 1)) ;;
        --hostfile) hostfile=${2-}; shift $(($# > 1 ? 2 : 1)) ;;
        *) arguments+=("$1"); shift ;;
    esac
done
parse_sweep "${arguments[@]}" "$@"
case $ranks in '' | *[!0-9]* | 0) wrong "--ranks: expected a positive integer, found '$ranks'" ;; esac
[ -z "$hostfile" ] || [ -f "$hostfile" ] || wrong "--hostfile: no file '$hostfile'"
check_members "$ranks"
mkdir -p "$out" || exit
hosts=$out/hosts failed=0

# launch_member NODES REPEAT
launch_member() {
    local options=("${launcher_options[@]}") dir
    dir=$(member_dir "$1" "$2")
    member_keys "$1" $(($1 * ranks)) "${keys[@]}"
    if [ -n "$hostfile" ]; then
        grep -v '^ *\(#\|$\)' "$hostfile" | head -n "$1" >"$hosts"
        [ "$(wc -l <"$hosts")" = "$1" ] || { echo "$hostfile has fewer than $1 hosts" >&2; return 1; }
        options+=(--hostfile "$hosts" --map-by "ppr:$ranks:node")
    fi
    run_member "$dir" "${MPIEXEC:-mpirun}" -np $(($1 * ranks)) "${options[@]}" "$TRAINER" "$config" run.dir="$dir" "${member[@]}" >"$dir.log" 2>&1
}
for ((i = 1; i <= repeat; i++)); do
    for count in "${nodes[@]}"; do
        if launch_member "$count" "$i"; then result="done"; else result="failed, see $(member_dir "$count" "$i").log" failed=1; fi
        echo "$mode, $count node$([ "$count" = 1 ] || echo s), run $i of $repeat: $result"
    done
done
rm -f "$hosts"
report_command
exit $failed
