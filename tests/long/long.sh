# Sourced by the long tests with their first argument, the build folder: the surroundings that tools/run-tests gives
# to a test, a folder that is removed behind it, and the tools of the tests of faults. Not a test itself.
TRAINER_ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
BUILD=$(cd "${1:?usage: $0 BUILD [...]}" && pwd) || exit 2
TRAINER=$BUILD/trainer
export TRAINER_ROOT BUILD TRAINER
. "$TRAINER_ROOT/tools/mpi-env"
for name in $(compgen -e TRAINER_); do case $name in TRAINER_ROOT | TRAINER_TEST_DATA) ;; *) unset "$name" ;; esac done
work=$(mktemp -d "${TMPDIR:-/tmp}/tr.XXXXXX") || exit 1
remove_work() { chmod -R u+rwx "$work"; rm -rf "$work"; }
trap remove_work EXIT
trap 'exit 130' INT TERM
export TMPDIR=$work
export MPIEXEC_REAL=${MPIEXEC_REAL:-$MPIEXEC} MPIEXEC=$TRAINER_ROOT/tools/mpiexec
cd "$work" || exit 1
. "$TRAINER_ROOT/tests/support/faults.sh"
