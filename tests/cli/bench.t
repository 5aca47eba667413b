#!/usr/bin/env bash
# TEST timeout=120
# tools/bench: a row, its goal and its command; what is not there is said and no failure.
. "${TRAINER_ROOT:?is set by the runner: make test k=cli/bench}/tests/support/common.sh"

bench() { PYTHON=no-python "$TRAINER_ROOT/tools/bench" "$BUILD" --quick --rounds 1 "$@" >out 2>err; }

bench -k "start, one step" &&
    grep -Eq '^start, one step.* [0-9.]+ s +[0-9.]+ s .* \+-?[0-9.]+ s +- +\+0.3 s +(met|MISSED)$' out
ok $? "the start of a run beside an empty MPI program"
grep -q "^ .*mnist_mlp.ini train.steps=1" out && cmp out "$BUILD/bench/table.txt"
ok $? "the command that repeats it, and the table kept"
if [ "$(nproc)" -ge 2 ]; then
    bench -k "mnist_mlp fp32, 2 x 1" &&
        grep -Eq '^step mnist_mlp fp32, 2 x 1  [0-9]+ samples/s .* no-python  - +- +2.5 x' out
    ok $? "our step alone where there is no PyTorch"
else
    skip "our step alone where there is no PyTorch" "one core"
fi
bench -k "no such row"; [ $? = 2 ] && names err "'no such row'"
ok $? "a pattern that nothing has"

"$TRAINER_ROOT/tools/bench" nowhere >out 2>err; [ $? = 2 ] && names err 'tools/bench BUILD'
ok $? "no build"
if command -v python3 >/dev/null; then
    python3 -I -S "$TRAINER_ROOT/tools/compare_pytorch.py" "$TRAINER_ROOT/configs/mnist_mlp.ini" >out 2>err
    [ $? = 77 ] && names err compare_pytorch PyTorch
    ok $? "the comparison says that PyTorch is absent"
else
    skip "the comparison says that PyTorch is absent" "no python3"
fi
echo "1..$n"
