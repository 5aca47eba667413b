# Sourced by shell tests: their results as TAP, calls of the program, and what they may ask of its output. Not a test itself.
set -u
. "$TRAINER_ROOT/tests/support/names.sh"
n=0
ok() { # STATUS NAME: a failure shows the end of ./out and ./err
    local file
    n=$((n + 1))
    if [ "$1" = 0 ]; then echo "ok $n - $2"; return; fi
    echo "not ok $n - $2"
    for file in out err; do [ ! -e $file ] || tail -n 40 $file | sed 's/^/#   /'; done
}
skip() { # NAME WHY
    n=$((n + 1))
    echo "ok $n - $1 # SKIP $2"
}
# grace: from here on, ranks have the second that mpirun gives them before it kills them
grace() { unset OMPI_MCA_odls_base_sigkill_timeout PRTE_MCA_odls_base_sigkill_timeout; }
# call CODE ARGUMENTS...: the program ends with this code; its output in ./out and ./err
call() {
    local code=$1
    shift
    "$TRAINER" "$@" >out 2>err
    [ $? = "$code" ]
}
# json EXPRESSION FILE [FILE]: a Python expression of the files' content, a and b, is true
json() { python3 -I -c "import json, sys; a, b = [json.load(open(f)) for f in (sys.argv[1:] * 2)[:2]]; sys.exit(0 if $1 else 1)" "${@:2}"; }
