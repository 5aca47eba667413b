#!/bin/bash
#SBATCH --job-name=trainer
#SBATCH --nodes=1 --ntasks-per-node=4 --cpus-per-task=8
#SBATCH --time=24:00:00 --signal=B:USR1@300
#SBATCH --requeue --open-mode=append --output=%x-%j.log
#
# train_cpu.sh: trains on the CPUs of one or more nodes.
#
#   sbatch [OPTIONS of sbatch] slurm/train_cpu.sh CONFIG.ini [KEY=VALUE ...]
#
# 5 minutes before the time limit trainer saves a checkpoint and stops, and the job is requeued. It continues in the run
# folder runs/CONFIG-JOBID. OPTIONS replace the lines above: --nodes=2 --time=01:00:00 --cpus-per-task=16.
# What a site has to set (the launch line, modules, network interfaces) is in env.sh.
# A job that has whole nodes may have their GPUs, too, which device = auto would use.
export TRAINER_DEVICE=${TRAINER_DEVICE:-cpu}
here=$(dirname "$0")
# sbatch runs a copy of this file: Slurm knows where the original is.
[ -e "$here/requeue.sh" ] ||
    here=$(dirname "$(scontrol show job "$SLURM_JOB_ID" | sed -n '/Command=/{s/^ *Command=\([^ ]*\).*/\1/p;q}')")
. "$here/env.sh" && . "$here/common.sh" && . "$here/requeue.sh" || exit 2
train_job "$@"
