#!/bin/bash
#SBATCH --job-name=sweep
#SBATCH --ntasks-per-node=4 --gpus-per-node=4 --cpus-per-task=8 --exclusive
#SBATCH --time=01:00:00 --no-requeue --open-mode=append --output=%x-%j.log
#
# scaling_sweep.sh: measures how training scales with the number of nodes. Run it on the login node; it submits the jobs.
#
#   slurm/scaling_sweep.sh --mode weak|strong --nodes 1,2,4 --config CONFIG.ini --out DIR [--repeat N] [KEY=VALUE ...]
#                          [-- OPTIONS of sbatch]
#
#   --mode weak     data.batch_size is multiplied by the number of nodes: the work of a rank stays the same
#   --mode strong   data.batch_size stays the same, and data.micro_batch is batch_size / ranks
#   --nodes LIST    a run for each of these numbers of nodes
#   --repeat N      N runs of each (default 1)
#   --out DIR       gets a run folder for each: DIR/MODE-nNODES-rREPEAT
#
# The jobs run one after the other. One that fails does not stop the others. Choose a run of some hundred steps:
# train.steps=300 checkpoint.every=0 train.valid_every=0. On CPUs: -- --gpus-per-node=0. At the end it prints the command
# of the report.
here=$(dirname "$0")
# sbatch runs a copy of this file: Slurm knows where the original is.
[ -e "$here/sweep.sh" ] ||
    here=$(dirname "$(scontrol show job "$SLURM_JOB_ID" | sed -n '/Command=/{s/^ *Command=\([^ ]*\).*/\1/p;q}')")
. "$here/env.sh" && . "$here/common.sh" && . "$here/sweep.sh" || exit 2

if [ "${1-}" = --member ]; then # in a job
    mode=$2 count=$3 repeat=$4 config=$5 out=$6
    shift 6
    member_keys "$count" "$SLURM_NTASKS" "$@"
    dir=$(member_dir "$count" "$repeat")
    run_member "$dir" launch "$config" run.dir="$dir" "${member[@]}"
    exit
fi

parse_sweep "$@"
# The last option of sbatch counts; without one, the line above.
ranks=$(printf '%s\n' "$(sed -n 's/^#SBATCH //p' "$0")" "${launcher_options[*]}" | grep -o -e '--ntasks-per-node[= ][0-9]*' | tail -n 1)
check_members "${ranks##*[= ]}"
mkdir -p "$out" || exit
name=sweep-$(basename "$out")
for ((i = 1; i <= repeat; i++)); do
    for count in "${nodes[@]}"; do
        # singleton: not before the jobs of the same name are over
        job=$(sbatch --parsable --nodes="$count" --job-name="$name" --dependency=singleton \
            --output="$out/$mode-n$count-r$i.log" "${launcher_options[@]}" \
            "$0" --member "$mode" "$count" "$i" "$config" "$out" "${keys[@]}") || exit
        echo "job $job: $mode, $count node$([ "$count" = 1 ] || echo s), run $i of $repeat: $(member_dir "$count" "$i")"
    done
done
echo "when the jobs are over:"
echo "  $(report_command)"
