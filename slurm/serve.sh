#!/bin/bash
#SBATCH --job-name=serve
#SBATCH --nodes=1 --ntasks=1 --cpus-per-task=8
#SBATCH --time=08:00:00 --signal=B:TERM@90
#SBATCH --open-mode=append --output=%x-%j.log
#
# serve.sh: serves a trained model from a node of the cluster.
#
#   sbatch [OPTIONS of sbatch] slurm/serve.sh RUN [OPTIONS of trainer serve] [KEY=VALUE ...]
#
# RUN is what `trainer serve` takes. The log serve-JOBID.log says when the server is ready, and with which command of ssh
# your own machine reaches it. Every request needs the token in serve-JOBID.token. 90 seconds before the time limit
# running requests get time to end. For a GPU: sbatch --gpus=1.
# What a site has to set (the launch line, modules) is in env.sh.
here=$(dirname "$0")
# sbatch runs a copy of this file: Slurm knows where the original is.
[ -e "$here/env.sh" ] ||
    here=$(dirname "$(scontrol show job "$SLURM_JOB_ID" | sed -n '/Command=/{s/^ *Command=\([^ ]*\).*/\1/p;q}')")
. "$here/env.sh" && . "$here/common.sh" || exit 2
case ${1-} in
    --help | -h) usage "$0"; exit 0 ;;
    '' | -*) echo "serve.sh: expected a run folder, a checkpoint or a folder first; see serve.sh --help" >&2; exit 2 ;;
esac
name=serve-${SLURM_JOB_ID:-$$}
# Says how to reach the server when it is ready.
tell() {
    local place
    until [ -s "$name.address" ]; do kill -0 $$ 2>/dev/null || return; sleep 1; done
    place=$(sed 's,^http://,,' "$name.address")
    echo "on your machine:  ssh -N -L 8080:$place ${SLURM_SUBMIT_HOST:-LOGIN-NODE}"
    echo "then:             curl -H \"Authorization: Bearer TOKEN\" http://localhost:8080/v1/models"
    echo "TOKEN is in       $PWD/$name.token"
}
rm -f "$name.address"
tell &
launch serve "$@" --host 0.0.0.0 --port 0 --address-file "$name.address" --token-file "$name.token"
