#!/usr/bin/env bash
# TEST timeout=120
# A device and an engine for collectives from a shared library (tests/library/second.c) train to the bits of cpu and
# MPI.
. "${TRAINER_ROOT:?is set by the runner: make test k=train/library}/tests/support/common.sh"
config
second() { TRAINER_CUDA_LIBRARY=$BUILD/libsecond.so run "$@" device=cuda; }
for r in 1 2; do
    run $r net.ini run.dir=cpu$r
    ok $? "cpu on $r ranks"
    second $r net.ini run.dir=second$r
    ok $? "the library's device on $r ranks"
    [ "$(state cpu$r)" = "$(state second$r)" ] && [ "$(losses cpu$r)" = "$(losses second$r)" ]
    ok $? "the same bits on $r ranks"
done
grep -q "second device of the tests" out && grep -q '"device": "cuda"' second2/summary.json
ok $? "it was the library's device that trained"

second 2 net.ini run.dir=own parallel.engine=nccl
[ $? = 0 ] && [ "$(state own)" = "$(state cpu2)" ]
ok $? "parallel.engine=nccl takes the library's own engine"
second 2 net.ini run.dir=mpi parallel.engine=poll
[ $? = 0 ] && [ "$(state mpi)" = "$(state cpu2)" ]
ok $? "parallel.engine=poll stages its memory through MPI"
run 2 net.ini run.dir=exact parallel.reproducible=yes
second 2 net.ini run.dir=exact2 parallel.reproducible=yes parallel.engine=nccl
[ $? = 0 ] && [ "$(state exact)" = "$(state exact2)" ]
ok $? "the fixed tree through the library's send, receive and broadcast"
run 2 net.ini run.dir=none parallel.engine=nccl
[ $? = 78 ] && grep -q "parallel.engine" out
ok $? "a device without an engine of its own: code 78"
TRAINER_CUDA_LIBRARY=$BUILD/libfail.so run 1 net.ini run.dir=other device=cuda
[ $? = 78 ] && grep -q "libfail.so" out && grep -q "tr_backend_entry" out
ok $? "a library that is no device: code 78, its name and the function that it lacks"
TRAINER_CUDA_LIBRARY=./absent.so run 1 net.ini run.dir=absent device=cuda
[ $? = 78 ] && grep -q "absent.so" out
ok $? "one that is not there: code 78 and its name"
if command -v "${CC:=cc}" >/dev/null; then
    echo 'int tr_backend_entry(int abi, const void *host, const void **out) { return abi + 1; }' >old.c
    "$CC" -shared -fPIC old.c -o old.so
    TRAINER_CUDA_LIBRARY=./old.so run 1 net.ini run.dir=old device=cuda
    [ $? = 78 ] && grep -q "old.so .*ABI [0-9]* .*ABI [0-9]*" out
    ok $? "a library of another ABI: code 78, both numbers"
fi
echo "1..$n"
