#!/usr/bin/env bash
# What the program says of itself, and how it ends when it is called wrongly.
. "${TRAINER_ROOT:?is set by the runner: make test k=cli/commands}/tests/support/common.sh"

call 0 --version && grep -qE '^trainer [0-9]+\.[0-9]+\.[0-9]+' out && [ ! -s err ]
ok $? "--version"
commands=$(sed -n 's/^COMMAND(\([a-z_]*\))$/\1/p' "$TRAINER_ROOT/src/cmd/commands.def" | tr _ -)
overview() { local c; for c in $commands; do grep -q "^  $c  " out || return 1; done; [ -n "$commands" ]; }
call 0 help && overview && cp out overview && call 0 --help && cmp -s out overview
ok $? "help and --help show the overview"
call 2 && overview && grep -q '^trainer: error: ' err
ok $? "no arguments: the overview and code 2"
call 2 hlep && names err "'hlep'" "'help'" && [ ! -s out ]
ok $? "a mistyped command names the nearest"
call 2 zzzzzz && names err "'zzzzzz'" && ! grep -qE "'(${commands//$'\n'/|})'" err
ok $? "and none where none is near"
bad=
for c in $commands; do call 0 "$c" --help && grep -q "^trainer $c" out && [ ! -s err ] || bad="$bad $c"; done
[ -z "$bad" ]
ok $? "every command has --help:${bad:- all}"
: >net.ini &&
    call 0 net.ini data.train=x.h5 --help && grep -q '^trainer train' out && [ ! -s err ] &&
    call 0 net.ini -h && grep -q '^trainer train' out
ok $? "so has the short form of train, behind whatever was typed already"
bad=
for c in --version --help help "help layers" "train --help"; do
    OMPI_COMM_WORLD_RANK=1 call 0 $c && [ ! -s out ] && [ ! -s err ] || bad="$bad $c"
done
[ -z "$bad" ]
ok $? "of several ranks the first says it:${bad:- all}"

bad=
for t in layers models optimizers schedules datasets devices; do
    call 0 help $t && [ "$(grep -c '^  [a-z]' out)" -gt 0 ] || bad="$bad $t"
done
[ -z "$bad" ]
ok $? "lists:${bad:- all}"

call 0 help conv && grep -q 'kernel' out && grep -q 'lr_factor' out &&
    call 0 help linear && grep -q features out && grep -q schedule.type out &&
    call 0 help adamw && grep -q adamw out
ok $? "an entry of a list"
call 0 help data.batch_size && grep -q '^data.batch_size = ' out &&
    call 0 help data && grep -q '^data.batch_size' out && grep -q '^data.train' out && ! grep -q '^optimizer' out
ok $? "a key and a section"
call 0 help keys && sed -n 's/^  *\([a-z][a-z._0-9]*\)  .*/\1/p' out | sort >keys && [ "$(wc -l <keys)" -gt 30 ] &&
    [ -z "$(uniq -d keys)" ]
ok $? "all keys, each once"
call 2 help data.batch_siz && names err data.batch_size && call 2 help lyers && names err "'lyers'" "'layers'"
ok $? "help on what is not there names the nearest"
call 0 help lr && grep -q '^optimizer.lr = ' out &&
    call 0 help every && grep -q '^log.every' out && grep -q '^checkpoint.every' out
ok $? "a key without its section: all that have the name"
bad=
while read -r theirs ours; do
    call 0 help "$theirs" && grep -q "^$ours = " out || bad="$bad $theirs"
done <<'END'
optimizer.name optimizer.type
early_stopping train.patience
scheduler schedule.type
Gradient-Accumulation-Steps data.micro_batch
Trainer.max-epochs train.epochs
training.gradient_checkpointing model.recompute
DataLoader data.train
CosineAnnealingLR schedule.type
ReduceLROnPlateau schedule.type
torch.nn.CrossEntropyLoss model.loss
WeightedRandomSampler model.class_weights
END
while IFS=, read -r theirs ours; do
    # shellcheck disable=SC2086
    call 0 help $theirs && grep -q "^$ours = " out || bad="$bad, $theirs"
done <<'END'
class imbalance,model.class_weights
gradient accumulation,data.micro_batch
mixed precision,precision
learning rate,optimizer.lr
END
call 0 help fit && names out 'trainer CONFIG.ini' || bad="$bad, fit"
[ -z "$bad" ] && call 0 help conv2d && grep -q '^  conv CHANNELS' out && call 0 help gpus && names out 'mpirun -np' &&
    call 0 help PyTorchJob && names out docs/kubernetes.md && call 0 help ImageFolder && names out 'import images' &&
    call 0 help LoRA && names out model.freeze && call 0 help MASTER_ADDR && names out mpirun
ok $? "names of other programs lead to those here:${bad:- all}"
call 0 help elsewhere && sed -n 's/^      here: //p' out | sort -u >here && [ -s here ] &&
    ! grep -vxFf keys here >err
ok $? "and each of them to a key that exists"
call 0 help 'batch size' && grep -q '^  data.batch_size ' out && grep -q '^  bench batch --sizes' out &&
    call 0 help exit codes && grep -q '^  docs/training.md ' out &&
    call 0 help perplexity && grep -q valid_perplexity out &&
    call 0 help unet && grep -q '^  docs/fields.md ' out && grep -q '^  configs/unet_tiny.ini ' out &&
    call 0 help data leakage && grep -q '^  docs/data.md ' out &&
    call 0 help predicted fields && grep -q '^  docs/fields.md ' out && ! grep -q docs/gpt.md out &&
    call 0 help 3d convolution && grep -q '^  configs/cosmoflow_tiny.ini ' out
ok $? "words are searched in keys, options, records and pages"
call 0 help import csv && grep -q '^  trainer import csv' out && ! grep -q mnist out &&
    call 0 help bench step && grep -q '^trainer bench step' out && ! grep -q 'trainer bench memory' out &&
    call 0 help import && [ "$(wc -L <out)" -le 100 ]
ok $? "help on a part of a command, wrapped also where it is no terminal"
call 2 train net.ini --epochs 5 && names err --epochs train.epochs
ok $? "an option that is a key is named as one"
TRAINER_TRACE=1 call 2 hlep && grep -q '(src/cmd/main.c:[0-9]*)' err && call 2 hlep && ! grep -q 'main.c' err
ok $? "a trace with TRAINER_TRACE=1 only"
TRAINER_LR=3 TRAINER_HOME=/opt call 0 plan "$TRAINER_ROOT/configs/mnist_mlp.ini" data.format=synthetic &&
    [ "$(wc -l <err)" = 1 ] && names err warning TRAINER_LR TRAINER_OPTIMIZER_LR
ok $? "a variable that ends as a key's does gets a warning"
call 0 info && grep -q '^  MPI  *[A-Za-z]' out && grep -q '^  oneDNN  *[0-9]' out && grep -q '^  cpu  ' out &&
    grep -q '^  cores  *[0-9]* of [0-9]*' out &&
    call 2 info x
ok $? "info"
"$MPIEXEC" -n 2 "$TRAINER" info >out 2>err && once out 'rank 0' 2 && once out 'rank 1' 2 &&
    [ "$(grep -c '^  MPI ' out)" = 1 ]
ok $? "info under mpirun: one description, and the cores of every rank"
printf 'threads = 1\n[model]\nlayers = flatten, linear 10\n[data]\ntrain = none\nformat = synthetic\n' >plan.ini
# first CODE ARGUMENTS...: two ranks of which the first does it, and the launcher's code is its code
first() {
    local code=$1
    shift
    timeout 60 "$MPIEXEC" -n 2 "$TRAINER" "$@" >out 2>err
    [ $? = "$code" ] && once err "^$1" 'rank 0' 2
}
first 0 import synthetic digits d.h5 --samples 60 && [ "$(grep -c '^d.h5: 70 ' out)" = 1 ] &&
    first 0 repack d.h5 r.h5 && [ "$(grep -c '^r.h5:' out)" = 1 ] &&
    first 0 data d.h5 && [ "$(grep -c '^train: 60 ' out)" = 1 ] &&
    first 0 plan plan.ini &&
    "$TRAINER" plan plan.ini 2>err | cmp -s - out
ok $? "import, repack, data and plan under mpirun: by the first rank, once"

first 66 import csv none.csv e.h5 && [ "$(grep -c '^trainer: error' err)" = 1 ] &&
    first 78 repack d.h5 r.h5 &&
    first 66 data none.h5
ok $? "where they fail the launcher ends with their code"
tiny() { call 0 "$@" data.train=d.h5 data.batch_size=20 'model.layers=flatten, linear 10' train.steps=1 threads=1; }
printf '' >tiny.ini
tiny tiny.ini run.dir=on-test && once err d.h5:/test/x data.valid_fraction &&
    grep -q '"valid_dataset": "d.h5:/test/x, ' on-test/summary.json &&
    tiny tiny.ini run.dir=on-part data.valid_fraction=0.5 && ! names err data.valid_fraction &&
    grep -q '"valid_dataset": "d.h5:/train/x, .*[ (][0-9]* %' on-part/summary.json &&
    tiny tiny.ini run.dir=on-none train.valid_every=0 && ! names err data.valid_fraction
ok $? "a run that validates on the test data says so"

call 0 completion bash &&
    bash -n out &&
    cp out complete &&
    call 2 completion ksh && names err "'ksh'" bash zsh fish &&
    call 2 completion
ok $? "completion prints a script for bash"

# replies WORDS...: what the last word of a command line may become; it is what Bash makes of the words: "a=b" is three
replies() {
    PATH=${TRAINER%/*}:$PATH bash -c '. ./complete; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _trainer
        printf "%s\n" "${COMPREPLY[@]}"' \
        bash trainer "$@" |
        sort | paste -sd' '
}
[ "$(replies '')" = "$(printf '%s\n' $commands --help --version | sort | paste -sd' ')" ] &&
    [ "$(replies ev)" = eval ] && [ "$(replies bench m)" = 'matmul memory' ] &&
    [ "$(replies eval --)" = '--json --last --split' ] && [ "$(replies bench precision net.ini --s)" = --steps ] &&
    [ "$(replies net.ini --)" = '' ]
ok $? "it completes commands, targets and options"

[ "$(replies eval run --split t)" = 'test train' ] && [ "$(replies bench matmul --types fp32,bf)" = fp32,bf16 ] &&
    [ "$(replies plan net.ini --gpu h)" = 'h100 h200' ] && [ "$(replies import s)" = synthetic ] &&
    [ "$(replies completion '')" = 'bash fish zsh' ]
ok $? "values with a choice"
[ "$(replies net.ini data.batch)" = data.batch_size= ] &&
    [ "$(replies eval run checkpoint.k)" = checkpoint.keep= ] && [ "$(replies eval data.batch)" = '' ] &&
    grep -q '^complete .*-o default .*trainer$' complete && [ "$(replies eval run --json '')" = '' ] &&
    [ "$(replies net.ini data.train = d)" = '' ] &&
    [ "$(replies predict run in.h5 o)" = "$(replies train net.ini o)" ]
ok $? "keys after a configuration file; files elsewhere"

# The others ask the program the same.
for shell in zsh fish; do
    if ! command -v $shell >/dev/null; then
        skip "completion for $shell" "it is not installed"
        continue
    fi
    call 0 completion $shell && cp out complete.$shell && $shell -n complete.$shell
    ok $? "completion prints a script for $shell"
done
if command -v zsh >/dev/null; then
    # zreplies WORDS...: what the script for zsh offers for the last word
    zreplies() {
        PATH=${TRAINER%/*}:$PATH zsh -fc 'compadd() { print -l -- "${@[$@[(i)--]+1,-1]}"; }; compdef() { :; }
            _files() { print files; }; source ./complete.zsh; words=("$@"); CURRENT=$#; _trainer' zsh trainer "$@" |
            sort | paste -sd' '
    }
    [ "$(zreplies eval run --split t)" = 'test train' ] && [ "$(zreplies net.ini data.batch)" = data.batch_size= ] &&
        [ "$(zreplies info '')" = files ] && [ "$(zreplies bench m)" = 'matmul memory' ]
    ok $? "zsh completes with it, also an empty word"
fi
if command -v fish >/dev/null; then
    replies=$(PATH=${TRAINER%/*}:$PATH HOME=$PWD fish -c 'source complete.fish
        complete -C "trainer eval run --split t"; complete -C "trainer net.ini data.batch"' | sort | paste -sd' ')
    [ "$replies" = 'data.batch_size= test train' ]
    ok $? "fish completes with it:$replies"
fi

if [ -w /dev/full ]; then
    "$TRAINER" help >/dev/full 2>err
    [ $? = 74 ] && [ "$(grep -c 'trainer: error' err)" = 1 ]
    ok $? "output that cannot be written is an error"
fi
echo "1..$n"
