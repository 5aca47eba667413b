#!/usr/bin/env bash
# kills.sh BUILD [COUNT [SEED]]
# COUNT (200) runs of 1 to 4 ranks that are killed with -9 at a random moment: any rank, rank 0 at a random call in a
# checkpoint, mpirun itself, or all ranks at once. Nothing may be left of the job; a restart on another number of
# ranks must end in the bits of a run that nothing happened to. Prints what differs, and how long the slowest took
# from the kill until nothing was left. KILLS_TABLE=FILE: gets a line for every kill.
. "$(dirname "$0")/long.sh"
kills=${2:-200} seed=${3:-$$}
RANDOM=$seed
echo "kills: $kills, seed $seed"
run_config
sed -i 's/^synthetic_samples = .*/synthetic_samples = 480/' net.ini
run 2 net.ini run.dir=whole $exact || { cat out; exit 1; }
steady="FAIL_RANK=0 FAIL_STEP=15"
draw() { drawn=$((RANDOM % $1)); } # not in a subshell: its RANDOM would be forgotten
ms() { sleep "$(awk -v ms="$1" 'BEGIN { print ms / 1000 }')"; }
comm() { cat "/proc/$1/comm" 2>/dev/null; }

# How long an uninterrupted one takes, start and end included: kills come anywhere in it.
begin=$(now)
FAULT=$steady start 2 net.ini run.dir=measured $exact
ended
whole_ms=$(awk -v s="$sec" 'BEGIN { print int(1000 * s) }')
bad=0 hit=0 late=0
declare -A count slowest
record() { # KIND SECONDS
    count[$1]=$((${count[$1]-0} + 1))
    slowest[$1]=$(awk -v a="${slowest[$1]-0}" -v b="$2" 'BEGIN { print (b > a ? b : a) }')
}
# launcher: mpirun's process id; alive_ranks: those of the ranks
launcher() { for p in $(children "$job"); do [ "$(comm "$p")" != mpirun ] || echo "$p"; done; }
alive_ranks() { for p in "$@"; do [ "$(comm "$p")" != trainer ] || ! alive "$p" || echo "$p"; done; }
# gone PID...: waits until none of them is left, at most 60 s
gone() {
    local try
    for try in $(seq 3000); do
        [ -z "$(alive_ranks "$@")" ] && return 0
        sleep 0.02
    done
    return 1
}
# strike KIND RANKS: kills; sets begin, moment and members; fails where the run was over before
strike() {
    local mpirun victims
    draw $((whole_ms - 200)) && moment=$drawn
    ms "$moment"
    mpirun=$(launcher)
    members=$(children "$mpirun")
    victims=$mpirun
    [ "$1" != all ] || victims=$members
    draw "$2"
    [ "$1" != rank ] || victims=$(printf '%s\n' $members | sed -n "$((drawn + 1))p")
    [ -n "$victims" ] || return 1
    begin=$(now)
    # shellcheck disable=SC2086
    kill -9 $victims 2>/dev/null
}
# A kill at the n-th of a checkpoint's calls, counted over all six checkpoints.
calls=(write:12 fsync:40 rename:6 mkdir:6 open:40 symlink:6)
checkpoint_fault() {
    draw ${#calls[@]}
    local call=${calls[drawn]}
    draw "${call#*:}"
    moment="${call%:*} $((1 + drawn))"
    FAULT="$steady FAIL_CALL=${call%:*} FAIL_ON=/checkpoints/ FAIL_HOW=kill FAIL_AT=${moment#* } FAIL_SAY=$work/said"
}
wrong() { # WHAT
    bad=$((bad + 1)) verdict=wrong
    echo "   wrong: $1 ($kind of $ranks ranks at $moment, restarted on $again)"
    sed 's/^/      /' out | tail -n 5
}
one() {
    rm -rf run said
    kind=$1 members= verdict=same
    draw 4 && ranks=$((1 + drawn))
    draw 4 && again=$((1 + drawn))
    if [ "$kind" = checkpoint ]; then
        checkpoint_fault
        start $ranks net.ini run.dir=run $exact
        FAULT=
        while members=$(children "$(launcher)"); [ -z "$members" ] && kill -0 "$job" 2>/dev/null; do sleep 0.02; done
        wait "$job"; rc=$?
        [ -s said ] || return 1
        begin=$(stat -c %.Y said)
    else
        FAULT=$steady start $ranks net.ini run.dir=run $exact
        strike "$kind" $ranks || { wait "$job"; return 1; }
        wait "$job"; rc=$?
        [ $rc != 0 ] || return 1
    fi
    # shellcheck disable=SC2086
    gone $members || { wrong "something is left after 60 s"; kill -9 $(alive_ranks $members); }
    sec=$(since "$begin")
    record "$kind" "$sec"
    [ $rc = 137 ] || [ $rc = 75 ] || wrong "code $rc"
    run $again net.ini run.dir=run $exact || wrong "the restart fails with code $?"
    from=$(grep -v 'warning\|error' out | sed -n 's/.*checkpoints\/step-0*\([0-9]*\)$/\1/p' | head -n 1)
    same run || wrong "the restart ends in other bits"
    [ -z "$(find run/checkpoints -name '.*' -mindepth 1)" ] || wrong "something unfinished stays"
    [ -z "${KILLS_TABLE-}" ] ||
        printf '%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n' "$kind" "$ranks" "$moment" "$rc" "$sec" "${from:-0}" "$again" \
            "$verdict" >>"$KILLS_TABLE"
}
kinds=(rank rank checkpoint checkpoint mpirun all)
while [ $hit -lt "$kills" ]; do
    if one "${kinds[$((hit % ${#kinds[@]}))]}"; then hit=$((hit + 1)); else late=$((late + 1)); fi
    [ $late -le $((kills + 20)) ] || { echo "kills: most come too late"; exit 1; }
done
for kind in rank checkpoint mpirun all; do
    [ -z "${count[$kind]-}" ] ||
        printf '  %-12s %4d kills, slowest end %s s\n' "$kind" "${count[$kind]}" "${slowest[$kind]}"
done
[ $bad = 0 ] && found="nothing wrong" || found="$bad wrong"
echo "kills: $hit, $found, seed $seed, $late came too late, $SECONDS s"
[ $bad = 0 ]
