#!/usr/bin/env bash
# TEST timeout=240
# examples/embed.c against an installed copy, as docs/embedding.md says: it compiles, trains two members on communicators of its own, and
# reports errors as codes.
. "${TRAINER_ROOT:?is set by the runner: make test k=cli/embed}/tests/support/tap.sh"
. "$TRAINER_ROOT/tools/mpi-env"
unset MAKEFLAGS MFLAGS MAKELEVEL O
for tool in make pkg-config "${MPICC:=mpicc}"; do
    command -v "$tool" >/dev/null || { echo "1..0 # SKIP no $tool"; exit 0; }
done

value() { sed -n 's/^ *"'"$1"'": "*\([^",]*\).*/\1/p' "$2"; } # KEY SUMMARY
embed() { "$MPIEXEC" -n "$1" ./embed "${@:2}" >out 2>&1; }  # RANKS ARGUMENTS...

# What is built stays as it is (-o all); the libraries that it needs depend on how that was.
san=$(grep -o 'fsanitize=[a-z]*' "$BUILD/flags.stamp" | sed 's/.*=//' | sort -u | tr '\n' ' ')
make -C "$TRAINER_ROOT" -o all install O="$BUILD" PREFIX="$PWD/inst" SAN="$san" >out 2>&1 && inst/bin/trainer --version >>out
ok $? "make install PREFIX=..."
export PKG_CONFIG_PATH=$PWD/inst/lib/pkgconfig
"$MPICC" -Wall -Wextra -Werror inst/share/trainer/examples/embed.c $(pkg-config --cflags --libs trainer) -o embed >out 2>&1
ok $? "mpicc embed.c \$(pkg-config --cflags --libs trainer)"
if command -v c++ >/dev/null; then
    { echo 'extern "C" {'; (cd inst/include && printf '#include <%s>\n' trainer/*.h); echo '}'; } >headers.cpp
    c++ -Wall -Werror -fsyntax-only $(pkg-config --cflags trainer) headers.cpp >out 2>&1
    ok $? "the headers compile in C++"
fi
embed 3 both log.every=1000 && [ "$(value ranks both/member0/summary.json)" = 2 ] && [ "$(value ranks both/member1/summary.json)" = 1 ] &&
    [ "$(value status both/member0/summary.json)" = done ] && [ "$(value status both/member1/summary.json)" = done ]
ok $? "three ranks train two members, on two and on one"
[ "$(grep -c ' ETA ' out)" = 1 ] && once out both/member0 && ! grep -q both/member1 out
ok $? "the one that is to be quiet shows no progress, either"
awk "BEGIN { exit !($(value valid_loss both/member0/summary.json) < 0.02 && $(value valid_loss both/member1/summary.json) < 0.02) }"
ok $? "both have learned"
[ "$(value valid_loss both/member0/summary.json)" != "$(value valid_loss both/member1/summary.json)" ]
ok $? "and are not the same"
awk "BEGIN { exit !($(sed -n 's/^seed 1: R2 //p' out) > 0.99) }" 2>/dev/null
ok $? "tr_evaluate reads the scores of what was trained"
[ "$(grep -c ' predicted ' out)" = 4 ] && awk '/ predicted / { d = $6 - $8; if (d < -0.2 || d > 0.2) bad = 1 } END { exit bad }' out
ok $? "tr_predictor_run predicts samples in memory, near the simulated ones"
inst/bin/trainer eval both/member0 >out 2>&1
[ $? = 78 ] && names out "'model.width'" && names out "surrogate & tr_evaluate & tr_predictor_open"
ok $? "trainer eval of its run: code 78 and the functions that do it"
embed 1 one train.epochs=1 model.width=8 && [ "$(value parameters one/member0/summary.json)" = 204 ]
ok $? "a key of the model's own"
embed 1 wrong model.widht=8
[ $? = 78 ] && names out "'model.widht' & model.width"
ok $? "a mistyped one: code 78 and the nearest name"
# A value of its data that is not finite is no fault of the network: the rank that read it says where it is.
sed 's/^        if (x) x\[i \* INPUTS\] = .*/&\n        if (x \&\& n == 77) x[i * INPUTS] = NAN;/' inst/share/trainer/examples/embed.c >nan.c
"$MPICC" nan.c $(pkg-config --cflags --libs trainer) -o nan >out 2>&1 && ! cmp -s nan.c inst/share/trainer/examples/embed.c
ok $? "the same program with a NaN in its data"
for ranks in 1 3; do
    "$MPIEXEC" -n $ranks ./nan "nan$ranks" >out 2>&1
    [ $? = 65 ] && names out "'x' & 77 & pendulum & NaN" && ! grep -q 'optimizer.lr' out
    ok $? "on $ranks: code 65, field and sample"
done
# Whatever locale the program sets: a checkpoint's numbers have a decimal point, and a run goes on from it.
sed 's/^#include <mpi.h>/#include <locale.h>\n&/; s/^    MPI_Init_thread/    if (!setlocale(LC_ALL, "de_DE") || *localeconv()->decimal_point != 44) return 77;\n&/' \
    inst/share/trainer/examples/embed.c >comma.c
"$MPICC" comma.c $(pkg-config --cflags --libs trainer) -o comma >out 2>&1
ok $? "the same program with a locale of its own"
mkdir locale
if localedef -i de_DE -f ISO-8859-1 locale/de_DE >out 2>&1; then
    comma() { LOCPATH=$PWD/locale "$MPIEXEC" -n 1 ./comma decimal data.target_mean=auto data.target_std=auto "$@" >out 2>&1; }
    comma train.epochs=1 && grep -q '"target_std": "[0-9.e+-]*,[0-9.e+-]*,[0-9.e+-]*,[0-9.e+-]*"' decimal/member0/checkpoints/latest/state.json &&
        comma train.epochs=2 && grep -q 'decimal/member0/checkpoints/step-' out && [ "$(value status decimal/member0/summary.json)" = done ]
    ok $? "a run goes on in a locale with a decimal comma"
else
    echo "ok $((++n)) - a locale with a decimal comma # SKIP localedef makes none"
fi
echo "1..$n"
