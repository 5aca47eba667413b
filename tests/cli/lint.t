#!/usr/bin/env bash
# The layer check: passes on this tree, and refuses each thing that it is there to refuse.
. "${TRAINER_ROOT:?is set by the runner: make test k=cli/lint}/tests/support/common.sh"
lint=$TRAINER_ROOT/tools/check-layers

# plant FILE TEXT NAMES NAME: a tree with this one file; the check must fail with a line that has these names
plant() {
    rm -rf tree && mkdir -p tree/src/base "tree/$(dirname "$1")"
    printf 'int tr_x;\n' >tree/src/base/x.c
    printf '%b' "$2" >"tree/$1"
    "$lint" -C tree >out 2>&1
    local status=$?
    if [ "$3" = none ]; then
        [ $status = 0 ] && [ ! -s out ]
    else
        [ $status = 1 ] && names out "$3" && [ "$(wc -l <out)" = 1 ]
    fi
    ok $? "$4"
}
lines() { seq "$1" | sed "s/.*/$2/"; }

"$lint" >out 2>&1
ok $? "this tree has none of it"
plant src/base/a.c '#include "trainer/config.h"\n' 'a.c:1 & <trainer/config.h>' "an upward include"
plant src/data/a.c '#include "trainer/comm.h"\n' 'a.c:1 & <trainer/comm.h>' "a sibling's header"
plant src/data/a.c '#include "device/device.h"\n#include "a_int.h"\n#include "sub/b.h"\n' none \
    "downward and own private includes"
plant src/data/a.c '#include "../graph/graph_int.h"\n' 'a.c:1 & ../graph/graph_int.h' "another module's private header"
plant src/data/a.c '#include "graph/graph_int.h"\n' 'a.c:1 & graph/graph_int.h' \
    "another module's private header, from src"
plant src/data/a.c '#include "h5/h5.h"\n' none "a header beside the sources of a lower floor"
plant src/data/a.c '#include "train/session.h"\n' 'a.c:1 & train/session.h' \
    "a header beside the sources of a higher floor"
plant src/data/a.c '#include "comm/watchdog.h"\n' 'a.c:1 & comm/watchdog.h' "a header beside a sibling's sources"
plant src/device/cpu/a.c '#include "../device_int.h"\n' none "a private header of the module's upper folder"
plant src/data/a.c '#include "trainer/nosuch.h"\n' 'a.c:1 & <trainer/nosuch.h>' "a header without a floor"
plant include/trainer/log.h '#include "trainer/graph.h"\n' 'log.h:1 & base & <trainer/graph.h>' \
    "a public header that looks up"
plant src/zoo/a.c 'int tr_y;\n' 'src/zoo' "a folder without a floor"
plant src/data/a.c '#include <mpi.h>\n' 'a.c:1 & <mpi.h> & src/comm/' "mpi.h outside comm"
plant src/comm/a.c '#include <mpi.h>\n' none "mpi.h in comm"
plant src/train/a.c '# include "hdf5.h"\n' 'a.c:1 & <hdf5.h> & src/h5/' "hdf5.h outside h5"
plant src/device/cpu/a.c '#include <cuda_runtime.h>\n' 'a.c:1 & <cuda_runtime.h> & src/device/cuda/' \
    "CUDA outside its folder"
plant src/train/a.c 'void tr_a(void) {\n    if (x) exit(3);\n}\n' 'a.c:2 & exit()' "exit below cmd"
plant src/cmd/a.c 'void tr_a(void) {\n    if (x) exit(3);\n    printf("x");\n}\n' none "exit and printf in cmd"
plant src/train/a.c 'void tr_a(void) {\n    x = 1; abort();\n}\n' 'a.c:2 & abort()' "abort"
plant src/train/a.c 'void tr_a(void) {\n    assert(x);\n    static_assert(1, "");\n}\n' 'a.c:2 & assert()' \
    "assert, and not static_assert"
plant src/train/a.c \
    'void tr_a(void) {\n    printf("x");\n    snprintf(t, 2, "x");\n    tr_str_printf(s, "x");\n}\n' \
    'a.c:2 & printf()' "printf, and not snprintf"
plant src/train/a.c 'void tr_a(void) {\n    fprintf(stderr, "x");\n    fprintf(file, "x");\n}\n' \
    'a.c:2 & fprintf()' "fprintf to stderr, and not to a file"
plant src/train/a.c \
    'void tr_a(void) {\n    snprintf(t, 9, "%ld%%f",\n  n);\n    snprintf(t, 9, "%ld"\n  "%.3f", n, x);\n}\n' \
    'a.c:4 & tr_snprintf' "a float by snprintf, on any line of the call, and not an integer"
plant src/cmd/a.c 'void tr_a(void) {\n    printf("%g", x);\n    x = strtod(t, 0);\n}\n' none "floats in cmd"
plant src/run/a.c 'void tr_a(void) {\n    tr_snprintf(t, 9, "%f", x);\n    sscanf(t, "%lf", &x);\n}\n' \
    'a.c:3 & tr_strtod' "a float by sscanf, and not by tr_snprintf"
plant src/run/a.c 'void tr_a(void) {\n    x = tr_strtod(t, 0) + strtod(t, 0);\n}\n' 'a.c:2 & strtod() & tr_strtod' \
    "strtod"
plant src/run/a.c 'void tr_a(void) {\n    vsnprintf(t, 9, format, args);\n}\n' 'a.c:2 & tr_vsnprintf' \
    "a format that the function was given"
plant src/cmd/a.c 'void tr_a(void) {\n    setlocale(LC_ALL, "");\n}\n' 'a.c:2 & setlocale()' "another locale"
plant src/train/a.c '/* exit(1);\n abort(); */\nconst char *tr_s = "exit(1)"; // abort()\n' none \
    "words in comments and strings"
plant src/train/a.c \
    "static int long_one(int a,\n                    int b)\n{\n$(lines 97 '    a++;')\n    return a;\n}\n" \
    'a.c:1 & long_one() & 102 & 100' "a function over 100 lines"
table="static const int v[] = {\n$(lines 150 '    1,')\n};\n"
plant src/train/a.c "static int fits(int a) {\n$(lines 97 '    a++;')\n    return a;\n}\n$table" none \
    "a function of 100 lines and a long table"
plant src/data/ring.c 'static int ring_one(int a,\n    int b) {\n}\nstatic void put_one(ring_t *r) {\n}\n' \
    'ring.c:4 & put_one()' "a static function that does not begin with its object"
types='typedef struct {\n    int a;\n} tr_slot_t;\n'
plant src/data/ring.c "${types}static int slot_a(int s) {\n}\nint tr_lane(void) {\n}\nstatic int lane_b(int s) {\n}\n" \
    none "but with a type of the file, or with the name of its function"
plant src/data/a.c 'static int view_bytes(const tr_view_t *v) {\n}\nstatic int run(a_t *a) {\n}\n' 'a.c:3 & run()' \
    "with the type of the first parameter, and not a word alone"
plant src/train/a.c 'static int one_name(void) {\n}\n' none "any name in a folder where it is not yet so"
printf 'static int b;\nstatic int one_name(int x) {\n}\n' >tree/src/train/b.c
! "$lint" -C tree >out 2>&1 && names out 'src/train/b.c:2 & one_name() & src/train/a.c:1' && [ "$(wc -l <out)" = 1 ]
ok $? "a static name in two files"
rm -rf tree && mkdir -p tree/src/base tree/src/device/cuda && printf 'int tr_x;\n' >tree/src/base/x.c
for f in a b; do printf 'template <int N> struct sums_t {\n    int n;\n};\n' >tree/src/device/cuda/$f.cu; done
"$lint" -C tree >out 2>&1
[ $? = 1 ] && names out 'b.cu:1 & sums_t & a.cu' && [ "$(wc -l <out)" = 1 ]
ok $? "a struct of the same name in two CUDA files"
fits=$(printf 'x%.0s' {1..120})
plant tests/cli/a.t "$fits\n${fits}x\n" 'tests/cli/a.t:2 & 121 & 120' "a line of a shell test over 120 columns"
plant tests/cli/a.c "${fits}x\n" none "but not of a test in C"
plant src/train/a.c "$(lines 801 'int tr_v;')\n" 'a.c & 801 & 800' "a file over 800 lines"

(cd "$TRAINER_ROOT" && find src include -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh') | while read -r file; do
    head -n 1 "$TRAINER_ROOT/$file" | grep -q '^/[*/]' || echo "$file: what is it for?"
done >out
[ ! -s out ]
ok $? "each file opens with a comment that says what it is for"

if command -v cc >/dev/null; then
    mkdir -p b &&
        echo 'int tr_good; int bad_name(void) { return tr_good; }' >b/a.c &&
        cc -c -o b/a.o b/a.c &&
        ar rc b/libtrainer.a b/a.o
    ! "$lint" -C tree b >out 2>&1 && names out a.o bad_name && ! grep -q tr_good out
    ok $? "a global name without the prefix"
    rm tree/src/train/a.c &&
        mkdir -p b/src &&
        printf 'src/a.c:3:5:wide\t16400\tstatic\nsrc/a.c:9:5:narrow\t16384\tdynamic,bounded\n' >b/src/a.su &&
        echo 'int tr_good;' >b/a.c &&
        cc -c -o b/a.o b/a.c &&
        rm b/libtrainer.a &&
        ar rc b/libtrainer.a b/a.o
    ! "$lint" -C tree b >out 2>&1 && names out 'src/a.c:3:5:wide & 16400 & 16384' &&
        [ "$(grep -c a.c: out)" = 1 ] &&
        echo '-fsanitize=address' >b/flags.stamp &&
        { "$lint" -C tree b >out 2>&1; ! grep -q wide out; }
    ok $? "a stack frame over 16 KiB, but for builds with sanitizers"
fi
echo "1..$n"
