#!/usr/bin/env bash
# TEST timeout=240
# Programs that use the library, against an installed copy, as docs/embedding.md says: each header alone in C and C++,
# and examples/.
. "${TRAINER_ROOT:?is set by the runner: make test k=cli/embed}/tests/support/common.sh"
. "$TRAINER_ROOT/tools/mpi-env"
unset MAKEFLAGS MFLAGS MAKELEVEL O
for tool in make pkg-config "${MPICC:=mpicc}"; do
    command -v "$tool" >/dev/null || { echo "1..0 # SKIP no $tool"; exit 0; }
done

value() { sed -n 's/^ *"'"$1"'": "*\([^",]*\).*/\1/p' "$2"; } # KEY SUMMARY
# PROGRAM SOURCE: with warnings as errors
compile() { "$MPICC" -std=c11 -Wall -Wextra -Werror "$2" $(pkg-config --cflags --libs trainer) -o "$1" >out 2>&1; }
pendulum() { "$MPIEXEC" -n "$1" ./own_dataset "${@:2}" >out 2>&1; } # RANKS ARGUMENTS...
surrogate() { "$MPIEXEC" -n "$1" ./own_model model.ini "${@:2}" >out 2>&1; }

# What is built stays as it is (-o all); the libraries that it needs depend on how that was.
san=$(grep -o 'fsanitize=[a-z]*' "$BUILD/flags.stamp" | sed 's/.*=//' | sort -u | tr '\n' ' ')
make -C "$TRAINER_ROOT" -o all install O="$BUILD" PREFIX="$PWD/inst" SAN="$san" >out 2>&1 &&
    inst/bin/trainer --version >>out
ok $? "make install PREFIX=..."
export PKG_CONFIG_PATH=$PWD/inst/lib/pkgconfig
examples=$PWD/inst/share/trainer/examples
cxx=$(command -v c++)

# -- headers
alone() { # LANGUAGE COMPILER...: each header, and twice
    local header status=0
    : >headers
    for header in trainer.h $(cd inst/include && echo trainer/*.h); do
        printf '#include <%s>\n#include <%s>\nextern int user;\n' "$header" "$header" |
            "${@:2}" -Wall -Wextra -pedantic -Werror -fsyntax-only -Iinst/include -x "$1" - >>headers 2>&1 ||
            status=1
    done
    mv headers out && return $status
}
alone c cc -std=c11
ok $? "each header compiles alone in C"

if [ "$cxx" ]; then
    alone c++ c++ -std=c++17
    ok $? "each header compiles alone in C++"
fi
! grep -h '^#include "' -r inst/include | grep -v '"trainer/' >out
ok $? "the installed headers need no others of the project"

printf \
    '#include <trainer.h>\n@ TRAINER_VERSION_MAJOR.TRAINER_VERSION_MINOR.TRAINER_VERSION_PATCH '\
'TRAINER_VERSION_STRING\n' |
    cc -Iinst/include -E -P - 2>/dev/null | sed -n 's/^@//p' | tr -d ' "' | sed 's/^\(.*\)\1$/\1/' >number
grep -q '^[0-9]*\.[0-9]*\.[0-9]*$' number &&
    inst/bin/trainer --version >out 2>&1 && names out "$(cat number)" &&
    pkg-config --modversion trainer >out && names out "$(cat number)"
ok $? "the version of the headers is that of the program and of pkg-config"

# -- a graph
compile graph "$examples/graph.c" && ./graph >out 2>&1 && [ "$(grep -c 'by hand' out)" = 6 ] && ./graph strict >out 2>&1
ok $? "graph.c: gradients as by hand, on two devices"
./graph nonsense >out 2>&1
[ $? = 78 ] && names out "nonsense & cpu"
ok $? "an unknown device: code 78"
sed 's/^    TR_TRY(tr_graph_allocate(g));$//' "$examples/graph.c" >early.c && compile early early.c
./early >out 2>&1
[ $? = 70 ] && names out "memory"
ok $? "a graph that is used before it has memory: code 70"
if [ "$cxx" ]; then
    c++ -std=c++17 -Wall -Wextra -Werror -x c++ "$examples/graph.c" -x none $(pkg-config --cflags --libs trainer) \
        -o graph_cpp >out 2>&1 &&
        ./graph_cpp >out 2>&1
    ok $? "the same in C++"
fi

# -- a data set
compile own_dataset "$examples/own_dataset.c"
ok $? "own_dataset.c compiles"
# Two runs at the same time, on two parts of the ranks: the last character of the folder is the part.
sed 's/^    MPI_Comm comm = .*/    const int part = argv[1][strlen(argv[1]) - 1] - 48;\n    MPI_Comm comm;\n'\
'    MPI_Comm_split(MPI_COMM_WORLD, part, 0, \&comm);\n    if (part > 0) tr_log_set_level(TR_LOG_WARN);/' \
    "$examples/own_dataset.c" >split.c
! cmp -s split.c "$examples/own_dataset.c" &&
    compile split split.c &&
    "$MPIEXEC" -n 2 ./split both/member0 log.every=1000 threads=1 : -n 1 ./split both/member1 log.every=1000 \
        threads=1 train.seed=2 >out 2>&1 &&
    [ "$(value ranks both/member0/summary.json)" = 2 ] && [ "$(value ranks both/member1/summary.json)" = 1 ] &&
    [ "$(value status both/member0/summary.json)" = done ] && [ "$(value status both/member1/summary.json)" = done ]
ok $? "three ranks train twice, on two and on one"

[ "$(grep -c ' ETA ' out)" = 1 ] && once out both/member0 && ! grep -q both/member1 out
ok $? "the one that is to be quiet shows no progress, either"
awk \
    "BEGIN { exit !($(value valid_loss both/member0/summary.json) < 0.02 &&
        $(value valid_loss both/member1/summary.json) < 0.02) }"
ok $? "both have learned"
[ "$(value valid_loss both/member0/summary.json)" != "$(value valid_loss both/member1/summary.json)" ]
ok $? "and are not the same"
awk "BEGIN { exit !($(sed -n 's/^seed 1: R2 //p' out) > 0.99) }" 2>/dev/null
ok $? "tr_evaluate reads the scores of what was trained"
[ "$(grep -c ' predicted ' out)" = 4 ] &&
    awk '/ predicted / { d = $6 - $8; if (d < -0.2 || d > 0.2) bad = 1 } END { exit bad }' out
ok $? "tr_predictor_run predicts samples in memory, near the simulated ones"
pendulum 1 wrong model.layres="linear 4"
[ $? = 78 ] && names out "'model.layres' & model.layers"
ok $? "a mistyped key: code 78 and the nearest name"
# A value of its data that is not finite is no fault of the network: the rank that read it says where it is.
sed 's/^        if (x) x\[i \* INPUTS\] = .*/&\n        if (x \&\& n == 77) x[i * INPUTS] = NAN;/' \
    "$examples/own_dataset.c" >nan.c
! cmp -s nan.c "$examples/own_dataset.c" && compile nan nan.c
ok $? "the same program with a NaN in its data"
for ranks in 1 3; do
    "$MPIEXEC" -n $ranks ./nan "nan$ranks" threads=1 >out 2>&1
    [ $? = 65 ] && names out "'x' & 77 & pendulum & NaN" && ! grep -q 'optimizer.lr' out
    ok $? "on $ranks: code 65, field and sample"
done
# Whatever locale the program sets: a checkpoint's numbers have a decimal point, and a run goes on from it.
sed \
    's/^#include <mpi.h>/#include <locale.h>\n&/; s/^    MPI_Init_thread/    if (!setlocale(LC_ALL, "de_DE") || '\
'*localeconv()->decimal_point != 44) return 77;\n&/' \
    "$examples/own_dataset.c" >comma.c
compile comma comma.c
ok $? "the same program with a locale of its own"

mkdir locale
if localedef -i de_DE -f ISO-8859-1 locale/de_DE >out 2>&1; then
    comma() {
        LOCPATH=$PWD/locale "$MPIEXEC" -n 1 ./comma decimal threads=1 log.every=20 data.target_mean=auto \
            data.target_std=auto "$@" >out 2>&1
    }
    comma train.epochs=1 &&
        grep -q '"target_std": "[0-9.e+-]*,[0-9.e+-]*,[0-9.e+-]*,[0-9.e+-]*"' decimal/checkpoints/latest/state.json &&
        ! sed '/^seed\|^angle/d' out | grep '[0-9],[0-9]' >lines && cp -r decimal comma.d &&
        comma train.epochs=2 && grep -q 'decimal/checkpoints/step-' out &&
        [ "$(value status decimal/summary.json)" = done ]
    ok $? "a run goes on in a locale with a decimal comma, and what it prints has points"
    mkdir point
    if command -v python3 >/dev/null; then
        (cd point && "$MPIEXEC" -n 1 ../own_dataset decimal threads=1 log.every=20 data.target_mean=auto \
            data.target_std=auto train.epochs=1) >out 2>&1 &&
            cmp comma.d/config.ini point/decimal/config.ini >>out &&
            python3 -I "$TRAINER_ROOT/tests/support/same_records.py" comma.d point/decimal >out 2>&1
        ok $? "its metrics, summary and state are those of the locale C, times apart"
    fi
else
    echo "ok $((++n)) - a locale with a decimal comma # SKIP localedef makes none"
fi

# -- a model
printf \
    '[model]\ntype = surrogate\nwidth = 8\n[data]\nformat = synthetic\nsynthetic_samples = 256\n'\
'synthetic_shape = 16\nclasses = 4\nbatch_size = 32\n[train]\nepochs = 1\n[run]\ndir = surrogate\n' \
    >model.ini
compile own_model "$examples/own_model.c" &&
    surrogate 2 threads=1 && [ "$(value ranks surrogate/summary.json)" = 2 ] &&
    [ "$(value parameters surrogate/summary.json)" = 316 ]
ok $? "own_model.c trains a model with keys of its own"

inst/bin/trainer eval surrogate >out 2>&1
[ $? = 78 ] && names out "'model.width'" && names out "surrogate & tr_evaluate & tr_predictor_open"
ok $? "trainer eval of its run: code 78 and the functions that do it"
surrogate 1 model.widht=8
[ $? = 78 ] && names out "'model.widht' & model.width"
ok $? "a mistyped key of the model: code 78 and the nearest name"
sed \
    's/^    TR_TRY(dense(g, "first", .*/    TR_TRY(tr_layers_append(g, config, batch, "linear 8, relu", '\
'batch->tensor[0], \&h));/' \
    "$examples/own_model.c" >text.c
! cmp -s text.c "$examples/own_model.c" &&
    compile own_model text.c &&
    surrogate 1 threads=1 run.dir=text && [ "$(value parameters text/summary.json)" = 316 ]
ok $? "a model appends layers as text"

# -- a model with two inputs; the text in docs/embedding.md is its own
awk '/^```c$/ { code = 1; next } /^```$/ { code = 0 } code' "$TRAINER_ROOT/docs/embedding.md" >shown &&
    [ -s shown ] && ! grep -vxFf "$examples/two_towers.c" shown >out
ok $? "docs/embedding.md shows the code of two_towers.c"
compile two_towers "$examples/two_towers.c" && "$MPIEXEC" -n 2 ./two_towers towers threads=1 >out 2>&1 &&
    awk '/^loss / { loss = $2 } /^pair / { n++; bad += ($4 > 0.5) != $6; sum += $6 }
        END { exit !(loss > 0 && loss < 0.2 && n == 3 && bad == 0 && sum > 0 && sum < 3) }' out
ok $? "two_towers.c: trained, evaluated and predicted"
tr -d ' \n' <towers/checkpoints/latest/state.json | grep -o '"fields":\[.*' >out
grep -q '"name":"user".*"dtype":"f32","shape":\[6\].*"name":"item".*"shape":\[4\]' out
ok $? "its checkpoint lists both inputs"
sed 's/tr_predictor_run_fields(predictor, fields,/tr_predictor_run(predictor, user,/' "$examples/two_towers.c" >one.c
! cmp -s one.c "$examples/two_towers.c" && sed -i 's/^    const void \*const fields.*//' one.c && compile one one.c
"$MPIEXEC" -n 1 ./one towers threads=1 >out 2>&1
[ $? = 78 ] && names out "tr_predictor_run_fields & 'user' & 'item'"
ok $? "one array for two inputs: code 78"

# -- inference
if [ "$cxx" ]; then
    c++ -std=c++17 -Wall -Wextra -Werror "$examples/infer.cpp" $(pkg-config --cflags --libs trainer) -o infer >out 2>&1
    ok $? "infer.cpp compiles"
    sed "s,^type = surrogate,type = sequential,; /^width/d" model.ini >layers.ini
    inst/bin/trainer train layers.ini model.layers="linear 4" threads=1 run.dir=run >out 2>&1 &&
        head -c 48 /dev/zero | ./infer run >out 2>&1 && [ "$(wc -l <out)" = 3 ] &&
        awk '{ s = $1 + $2 + $3 + $4; if (NF != 4 || s < 0.999 || s > 1.001) bad = 1 } END { exit bad }' out
    ok $? "and predicts three samples with a trained run"
    # MPI starts in each of them, without the folder that one would remove while another makes it.
    mkdir folder
    for p in 1 2 3 4 5; do
        for _ in 1 2 3; do head -c 16 /dev/zero | TMPDIR=$PWD/folder ./infer run || : >failed; done >out.$p 2>&1 &
    done
    wait
    [ ! -e failed ] && [ -z "$(ls folder)" ]
    ok $? "five loops of it beside each other leave nothing"
    ./infer nowhere >out 2>&1 </dev/null
    [ $? = 66 ] && names out "infer: & nowhere"
    ok $? "a run that is missing: code 66"
fi
echo "1..$n"
