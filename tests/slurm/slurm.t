#!/usr/bin/env bash
# TEST timeout=300
# Jobs on a SLURM cluster of four nodes on this machine.
. "$TRAINER_ROOT/tests/slurm/common.sh"
on head srun -N4 --ntasks-per-node=1 hostname >out 2>&1 && [ "$(sort out | tr '\n' ' ')" = "n1 n2 n3 n4 " ]
ok $? "four nodes run a task each"
echo "1..$n"
