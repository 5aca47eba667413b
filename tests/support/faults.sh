# Sourced by the tests of faults: runs that are killed, stopped and made to fail, and the restart behind each. Not a
# test itself.
. "$TRAINER_ROOT/tests/support/common.sh"

can_preload ||
    { echo "1..0 # SKIP the program cannot be run with a preloaded library (a build with sanitizers)"; exit 0; }
[ -r /proc/self/task/$BASHPID/children ] ||
    { echo "1..0 # SKIP this kernel does not list a process's children"; exit 0; }

grace
exact="parallel.reproducible=yes"
# start RANKS ARGUMENTS...: in the background as $job, with the environment FAULT="FAIL_CALL=... ..." in every rank;
# output in ./out
start() {
    local ranks=$1 setting settings=()
    shift
    for setting in ${FAULT-}; do export "${setting?}"; settings+=(-x "${setting%%=*}"); done
    [ -z "${FAULT-}" ] || settings+=(-x LD_PRELOAD="$fail_lib")
    "$MPIEXEC" -np "$ranks" "${settings[@]}" "$TRAINER" "$@" >out 2>&1 &
    job=$!
    for setting in ${FAULT-}; do unset "${setting%%=*}"; done
}
children() { cat "/proc/$1/task/"*/children 2>/dev/null; }
# rank_pid RANK: its process, once it is there: a child of mpirun, which is a child of tools/mpiexec
rank_pid() {
    local try launcher pid
    for try in $(seq 1200); do
        for launcher in $(children "$job"); do
            for pid in $(children "$launcher"); do
                tr '\0' '\n' <"/proc/$pid/environ" 2>/dev/null | grep -qE "^(PMIX_RANK|OMPI_COMM_WORLD_RANK)=$1\$" &&
                    { echo "$pid"; return; }
            done
        done
        sleep 0.05
    done
    return 1
}
# hit SIGNAL RANK: sends it now, to $victim; `ended` counts from $begin
hit() {
    victim=$(rank_pid "$2") begin=$(now)
    kill -s "$1" "$victim"
}
has_lines() { [ -e "$1" ] && [ "$(wc -l <"$1")" -ge "$2" ]; }
until_lines() { until_true has_lines "$1" "$2"; } # FILE N
until_named() { until_true names out "$1"; }      # NAMES in ./out
until_there() { until_true [ -e "$1" ]; }         # PATH
until_stopped() { until_true grep -qs '^State:.*T (stopped)' "/proc/$1/status"; } # PID
alive() { grep -q '^State:.*[RSDTt] (' "/proc/$1/status" 2>/dev/null; }
gone() { ! alive "$1"; } # a launcher does not wait for whom it kills
now() { echo "$EPOCHREALTIME"; }
# since TIME: seconds, two digits
since() { awk -v a="$1" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.2f", b - a }'; }
# within SECONDS MOST
within() { awk -v s="$1" -v most="$2" 'BEGIN { exit !(s <= most) }'; }
# ended: waits for $job; sets rc and sec, its time from $begin on
ended() {
    wait "$job"
    rc=$?
    sec=$(since "$begin")
}
# row FAULT WHAT: a line for docs/faults.md
row() { [ -z "${FAULTS_TABLE-}" ] || printf '%s\t%s\t%s\t%s\n' "$1" "$2" "$rc" "$sec" >>"$FAULTS_TABLE"; }

# A run of 60 steps with a checkpoint every 10. slow: a step takes 50 ms more, so that every checkpoint is
# written; slower: 100 ms, so that there is time to strike however busy the machine is.
run_config() {
    config
    sed -i 's/^steps = .*/steps = 60/; s/^every = 0/every = 10/' net.ini
}
slow="FAIL_RANK=0 FAIL_STEP=50"
slower="FAIL_RANK=0 FAIL_STEP=100"
# whole COMMAND...: the run that nothing happens to, with all of its checkpoints
whole() { "$@" net.ini run.dir=whole $exact checkpoint.keep=0; }
# begun RUN: it has the checkpoint of step 10 and nothing else of `whole`. Where the run goes on its writer is idle,
# so that the next one is of step 20, however slow the disk is.
begun() { cp -r whole "$1" && back_to "$1" 00000010; }
same() { [ "$(state whole)" = "$(state "$1")" ] && [ "$(losses whole)" = "$(losses "$1")" ]; }
# restarted DIR RANKS: goes on from a checkpoint to the end, and to the bits of the run that nothing happened to
restarted() { run "$2" net.ini run.dir="$1" $exact && resumed && same "$1"; }
