#!/usr/bin/env bash
# TEST timeout=240
# The Makefile, on a small tree of its own: what is rebuilt when, what it says where something is missing, what it
# installs. make hands the settings of `make test` down to what it starts.
. "${TRAINER_ROOT:?is set by the runner: make test k=cli/build}/tests/support/common.sh"
unset MAKEFLAGS MFLAGS MAKELEVEL CC AR MPICC CUDA CUDA_HOME NVCC PREFIX DESTDIR OPT ARCH SAN WERROR V CFLAGS \
    CPPFLAGS LDFLAGS LDLIBS O k

run() { make "$@" OPT=-O0 ARCH= >out 2>&1; }
# did "a.o b.o": exactly these were made, in any order
did() {
    [ "$(sed -n 's/^  [A-Z]* *\(.*\)/\1/p' out | sed 's|.*/||' | sort | tr '\n' ' ')" = \
        "$(printf '%s\n' "$@" | sort | tr '\n' ' ')" ]
}

cp "$TRAINER_ROOT/Makefile" . &&
    cp -R "$TRAINER_ROOT/tools" . &&
    mkdir -p src/base src/cmd include/trainer configs slurm
# version MAJOR MINOR PATCH
version() {
    printf '#define TRAINER_VERSION_MAJOR %s\n#define TRAINER_VERSION_MINOR %s\n#define TRAINER_VERSION_PATCH %s\n' \
        "$@" >include/trainer/version.h
}
version 1 2 3
echo '[model]' >configs/x.ini
echo '#!/bin/sh' >slurm/y.sh
echo '#define TR_X 1' >include/trainer/status.h
echo '#define TR_Y 1' >src/base/a_int.h
printf '#include "trainer/status.h"\n#include "a_int.h"\nint tr_a(void);\nint tr_a(void) { return TR_X - TR_Y; }\n' \
    >src/base/a.c
printf 'int tr_b(void);\nint tr_b(void) { return 0; }\n' >src/base/b.c
printf \
    '#include "trainer/status.h"\n#include <stdio.h>\nextern const char cmd_version[];\nint tr_a(void);\n'\
'int main(void) { puts(cmd_version); return tr_a(); }\n' \
    >src/cmd/main.c
printf '#include "version.h"\nextern const char cmd_version[];\nconst char cmd_version[] = TR_VERSION;\n' \
    >src/cmd/version.c

run O=b && [ "$(b/trainer)" = 1.2.3 ] && [ "$(./trainer)" = 1.2.3 ] && did a.o b.o main.o version.o libtrainer.a trainer
ok $? "a first build, with the number of version.h"
run && [ "$(readlink trainer)" = build/trainer ] &&
    run O=other && [ "$(readlink trainer)" = build/trainer ] &&
    run clean O=other && [ -x trainer ] &&
    run clean && [ ! -e trainer ]
ok $? "the link ./trainer is the default build's, or the first one's"
run help && names out 'make test' && grep -q WERROR=1 out && ! grep -q '^#\|:=' out
ok $? "make help"
run O=b && ! grep -v '^make: Nothing' out
ok $? "a second does nothing"
touch include/trainer/status.h && run O=b && did a.o main.o libtrainer.a trainer
ok $? "a public header rebuilds what includes it"
touch src/base/a_int.h && run O=b && did a.o libtrainer.a trainer
ok $? "a private header rebuilds what includes it"
rm src/base/a_int.h &&
    sed -i 's/#include "a_int.h"/#define TR_Y 1/' src/base/a.c &&
    run O=b &&
    did a.o libtrainer.a trainer
ok $? "a header that is gone does not stop the build"
version 1 2 4 && run O=b && did version.o trainer && [ "$(b/trainer)" = 1.2.4 ]
ok $? "a new version compiles one object"
printf 'int tr_c(void);\nint tr_c(void) { return 0; }\n' >src/base/c.c &&
    rm src/base/b.c &&
    run O=b &&
    did c.o libtrainer.a trainer && [ "$(ar t b/libtrainer.a | sort | tr '\n' ' ')" = "a.o c.o " ]
ok $? "a new source is found and a removed one leaves the library"
run O=b CFLAGS=-DNEW && did a.o c.o main.o version.o libtrainer.a trainer
ok $? "other flags rebuild everything"
echo 'int tr_d(int a) { int unused; return 0; }' >src/base/d.c && ! run O=b WERROR=1
ok $? "WERROR=1 makes a warning an error"
rm src/base/d.c
printf '#include <stdlib.h>\nint tr_a(void);\nint tr_a(void) { volatile char *p = calloc(1, 1); return p[1] & 0; }\n' \
    >src/base/a.c
run O=bs SAN="address undefined" &&
    ! env -u ASAN_OPTIONS -u UBSAN_OPTIONS bs/trainer >out 2>&1 && names out AddressSanitizer heap-buffer-overflow
ok $? "SAN=address finds a read out of bounds"

! run O=bs SAN="thread address" && names out SAN thread address
ok $? "SAN refuses thread with address"

run info O=b && grep -q '^  HDF5  *[0-9]' out && grep -q '^  oneDNN  *[0-9]' out && grep -q '^  MPI  *[A-Z]' out
ok $? "info shows the versions that were found"
run info CUDA=0 && grep -q '^  CUDA  *no ' out && run info CUDA_HOME=/nonexistent && grep -q '^  CUDA  *no .*nvcc' out
ok $? "info without CUDA says why"
! run info CUDA=1 CUDA_HOME=/nonexistent && names out CUDA=1 nvcc /nonexistent
ok $? "CUDA=1 without CUDA is an error"
! CPATH='' run info MPICC=/nonexistent/mpicc CPPFLAGS=-nostdinc && ! grep -q 'sh: ' out &&
    grep -q '^  MPI  *no' out && grep -q '^  HDF5  *no' out && names out 'MPI HDF5 oneDNN' tools/install-deps
ok $? "info shows all that is missing"
! run MPICC=/nonexistent/mpicc CPPFLAGS=-nostdinc && names out 'MPI HDF5' tools/install-deps 'make configure'
ok $? "a build without libraries says how to get them"
printf '#!/bin/sh\necho installing\n' >tools/install-deps
! run demo MPICC=/nonexistent/mpicc CPPFLAGS=-nostdinc && [ "$(grep -c '^installing' out)" = 1 ] &&
    names out tools/install-deps MPI
ok $? "demo installs once, and does not go round in circles"

run configure CC=gcc LDFLAGS='-Wl,-rpath,$$ORIGIN' && grep -q '^CC := gcc$' config.mk &&
    run print-LDFLAGS && grep -q 'rpath,$ORIGIN' out &&
    run configure CC= && ! grep -q CC config.mk && grep -q '^LDFLAGS' config.mk &&
    run distclean && [ ! -e config.mk ]
ok $? "configure keeps what it is given and forgets what is empty"

printf 'int tr_a(void);\nint tr_a(void) { return 0; }\n' >src/base/a.c
run install O=b DESTDIR="$PWD/root" PREFIX=/opt/t &&
    p=root/opt/t && [ "$($p/bin/trainer)" = 1.2.4 ] && [ -f $p/lib/libtrainer.a ] &&
    [ -f $p/include/trainer/status.h ] && [ -f $p/share/trainer/configs/x.ini ] &&
    [ -f $p/share/trainer/slurm/y.sh ] && [ -s $p/share/bash-completion/completions/trainer ] &&
    [ -s $p/share/zsh/site-functions/_trainer ] && [ -s $p/share/fish/vendor_completions.d/trainer.fish ] &&
    grep -q '/opt/t/bin' $p/share/modulefiles/trainer/1.2.4 &&
    [ -s $p/share/man/man1/trainer.1 ] && [ -s $p/share/man/man5/trainer.ini.5 ] &&
    grep -q '^Version: 1.2.4' $p/lib/pkgconfig/trainer.pc &&
    ! grep -q '@[A-Z]*@' $p/lib/pkgconfig/trainer.pc $p/share/modulefiles/trainer/1.2.4
ok $? "install: program, library, headers, samples, pkg-config, module file, man pages and completion"

printf 'int tr_a(void);\nint main(void) { return tr_a(); }\n' >user.c
export PKG_CONFIG_PATH=$PWD/root/opt/t/lib/pkgconfig
cc user.c $(pkg-config --define-variable=prefix="$PWD/root/opt/t" --cflags --libs trainer) -o user >out 2>&1 && ./user
ok $? "a program links with what pkg-config says"
cp -r root other &&
    : >other/opt/t/lib/pkgconfig/other.pc &&
    run uninstall DESTDIR="$PWD/root" PREFIX=/opt/t && [ "$(find root)" = "$(printf 'root\nroot/opt')" ]
ok $? "uninstall leaves nothing, no empty folder either"
run uninstall DESTDIR="$PWD/other" PREFIX=/opt/t &&
    [ "$(find other -type f)" = other/opt/t/lib/pkgconfig/other.pc ] && [ -d other/opt/t/bin ] &&
    [ ! -e other/opt/t/share/modulefiles ] &&
    run uninstall DESTDIR="$PWD/none" PREFIX=/opt/t
ok $? "but what others have there, with the usual folders"

# A kernel that is compiled for each set of instructions, and one that knows all of them.
mkdir -p src/device/cpu/kernels
printf '#ifdef __AVX512F__\n#define SET 4\n#else\n#define SET 3\n#endif\n%s\n' \
    'static inline int helper(void) { return SET; }' >src/device/cpu/kernels/k.h
printf '#include "k.h"\nint tr_k(void);\nint tr_k(void) { return helper(); }\n' >src/device/cpu/kernels/k.c
printf 'int tr_k(void);\nextern int (*const CPU_TABLE)(void);\nint (*const CPU_TABLE)(void) = tr_k;\n' \
    >src/device/cpu/cpu_kernels.c
printf '#define TABLE(t) extern int (*const t)(void);\nCPU_TABLES\n#undef TABLE\n#define TABLE(t) * 10 + t()\n%s\n' \
    'int tr_sets(void); int tr_sets(void) { return 0 CPU_TABLES; }' >src/device/cpu/cpu_isa.c
printf 'int tr_sets(void);\nint main(void) { return tr_sets() != 34; }\n' >user.c
portable() { make O=bp OPT=-O2 ARCH=portable CUDA=0 >out 2>&1; }
if [ "$(cc -dumpmachine | cut -d- -f1)" = x86_64 ]; then
    portable && cc user.c bp/libtrainer.a -o user >>out 2>&1 && ./user &&
        [ "$(nm -g --defined-only bp/isa/*.o | sed -n 's/.* //p' | tr '\n' ' ')" = \
            "tr_cpu_kernels_x86_64_v3 tr_cpu_kernels_x86_64_v4 " ]
    ok $? "ARCH=portable: kernels for two sets, of which the tables alone have names outside"
    touch src/device/cpu/kernels/k.h && portable && did k.o k.o x86-64-v3.o x86-64-v4.o libtrainer.a trainer &&
        portable && ! grep -v '^make: Nothing' out
    ok $? "and a header of them rebuilds both"
else
    skip "ARCH=portable" "not x86-64"
fi
echo "1..$n"
