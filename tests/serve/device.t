#!/usr/bin/env bash
# TEST timeout=120
# trainer serve on the fakes of the CUDA libraries: texts, /info, and an error of the device, which all requests are
# told, and after which the server ends with the code for another start.
. "${TRAINER_ROOT:?is set by the runner: make test k=serve/device}/tests/serve/serve.sh"
[ -e "$BUILD/hostcuda/libtrainer_cuda.so" ] ||
    { echo "1..0 # SKIP no build/hostcuda: built by make hostcuda where nvcc is"; exit 0; }
need_http
program=$TRAINER
printf '#!/bin/sh\nexec "%s" -O "%s" "%s" "$@"\n' "$TRAINER_ROOT/tests/hostcuda/run" "$BUILD" "$program" >faked
chmod +x faked
TRAINER=$PWD/faked
HOSTCUDA_FAIL=cudaGraphLaunch:60:cudaErrorIllegalAddress serve address "$golden" --slots 2 device=cuda
ok $? "starts on a GPU"
python <<'END'
from client import *
info = ask("GET", "/info")[1]
assert info["device"] == "cuda" and info["cuda_available"] is True and "H200" in info["gpu_name"], info
one, two = [complete(prompt=p, max_tokens=m, temperature=0) for p, m in [("a", 8), (["The run", "a"], 4)]]
assert one["usage"]["completion_tokens"] == 8 and two["usage"]["completion_tokens"] == 8
long = {"prompt": "a", "max_tokens": 100, "temperature": 0}
three = together([lambda: ask("POST", "/v1/completions", long)] * 3)
assert [answer[0] for answer in three] == [503] * 3, three
assert "cudaErrorIllegalAddress" in three[0][1]["error"]["message"], three
END
status=$?
[ $status = 0 ] || kill -TERM "$server"
wait "$server"
code=$?
[ $status = 0 ] && [ $code = 75 ] && names address.out 'trainer: error & cudaErrorIllegalAddress' && [ ! -e address ]
ok $? "an error of the device: 503 for all, then exit code 75"
echo "1..$n"
