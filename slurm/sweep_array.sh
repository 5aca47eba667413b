#!/bin/bash
#SBATCH --nodes=1 --ntasks-per-node=1 --gpus-per-node=1 --cpus-per-task=8
#SBATCH --time=24:00:00 --signal=B:USR1@300
#SBATCH --requeue --open-mode=append
#
# sweep_array.sh: trains the members of a sweep as a job array. Run it on the login node; it submits the array.
#
#   slurm/sweep_array.sh CONFIG.ini KEY=A,B,C KEY=LOW..HIGH --out OUT [--random N] [--seed S] [--jobs N] [-- OPTIONS of sbatch]
#
#   --jobs N        at most N members at a time (default: as many as there is room for)
#   the others      as in `trainer sweep --help`
#
# Each member is a job of its own, which is requeued like that of train_1node.sh. Its output is OUT/NNN.log. Without
# OPTIONS it has one task with one GPU: -- --gpus-per-node=0 --ntasks-per-node=4 trains on CPUs, -- --nodes=2 on more
# nodes. The same command continues members that are not done. At the end it prints the command of the comparison.
here=$(dirname "$0")
# sbatch runs a copy of this file: Slurm knows where the original is.
[ -e "$here/requeue.sh" ] ||
    here=$(dirname "$(scontrol show job "$SLURM_JOB_ID" | sed -n '/Command=/{s/^ *Command=\([^ ]*\).*/\1/p;q}')")
. "$here/env.sh" && . "$here/common.sh" && . "$here/requeue.sh" || exit 2

if [ "${1-}" = --task ]; then # in a job
    words=$("$TRAINER" sweep --out "$2" --member "$SLURM_ARRAY_TASK_ID") || exit
    mapfile -t words <<<"$words"
    train_job "${words[@]}"
fi

out='' jobs='' words=()
while [ $# -gt 0 ]; do
    case $1 in
        --help | -h) usage "$0"; exit 0 ;;
        --) shift; break ;;
        --jobs) jobs=${2-}; shift ;;
        --out) out=${2-}; words+=("$1" "$out"); shift ;;
        *) words+=("$1") ;;
    esac
    shift
done
[ -n "$out" ] || { echo "${0##*/}: --out is missing; see ${0##*/} --help" >&2; exit 2; }
case $jobs in *[!0-9]* | 0) echo "${0##*/}: --jobs: expected a number from 1, found '$jobs'" >&2; exit 2 ;; esac
count=$("$TRAINER" sweep "${words[@]}" --prepare) || exit
# The last option of sbatch counts.
job=$(sbatch --parsable --job-name="sweep-$(basename "$out")" --array="1-$count${jobs:+%$jobs}" --output="$out/%3a.log" \
    "$@" "$0" --task "$out") || exit
echo "job $job: $count members in $out"
echo "while and after they train:"
echo "  $TRAINER compare $out --out $out/compare"
