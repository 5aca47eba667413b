#!/usr/bin/env bash
# tools/install-deps, with stand-ins for the package manager: asks for what is missing only, and for a new list only
# where it must.
. "${TRAINER_ROOT:?is set by the runner: make test k=cli/install-deps}/tests/support/common.sh"

mkdir bin empty
for tool in bash sh awk sed tr env dirname cat; do
    ln -s "$(command -v $tool)" bin/ && ln -s "$(command -v $tool)" empty/
done
ln -s "$(command -v grep)" bin/
# HAVE: installed packages; KNOWN: file that exists once the lists are there; FAIL: file that makes the first
# installation fail
printf '#!/bin/sh\ncase " $HAVE " in *" $4 "*) echo installed ;; *) exit 1 ;; esac\n' >bin/dpkg-query
printf '#!/bin/sh\n[ -e known ] && echo "  Candidate: 1.0" || echo "  Candidate: (none)"\n' >bin/apt-cache
cat >bin/apt-get <<'END'
#!/bin/sh
echo "$*" >>calls
case "$*" in *update*) : >known ;; *install*) [ ! -e fail ] || { /bin/rm -f fail; exit 100; } ;; esac
END
printf '#!/bin/sh\n[ "${1-}" != -u ] || echo "${AS:-0}"\n' >bin/id
chmod +x bin/*
all=$("$TRAINER_ROOT"/tools/install-deps --list | sed -n 's/^Debian.*recommends *//p' | tr '\n' ' ')
run() { : >calls; PATH=$PWD/bin HAVE=${HAVE-} "$TRAINER_ROOT"/tools/install-deps "$@" >out 2>&1; }

[ "$(echo "$all" | wc -w)" -ge 9 ] && HAVE=$all run && [ ! -s calls ]
ok $? "nothing missing: nothing done"
: >known; HAVE=${all/libdnnl-dev/} run && [ "$(cat calls)" = "-q install -y --no-install-recommends libdnnl-dev" ]
ok $? "only what is missing"
rm known; HAVE= run && [ "$(sed -n 1p calls)" = "-q update" ] && [ "$(wc -l <calls)" = 2 ]
ok $? "a new list where packages are not known"
: >fail; HAVE= run && [ "$(grep -c install calls)" = 2 ] && [ "$(grep -c update calls)" = 1 ]
ok $? "and where they cannot be had"
! HAVE=${all/zlib1g-dev/} run --check && names out zlib1g-dev && ! grep -q libdnnl-dev out && [ ! -s calls ]
ok $? "--check installs nothing"
! AS=1000 HAVE= run && names out 'apt-get install' libdnnl-dev && [ ! -s calls ]
ok $? "neither root nor sudo: says what to do"
! PATH=$PWD/empty "$TRAINER_ROOT"/tools/install-deps >out 2>&1 && grep -q '^Fedora' out && grep -q '^Spack' out
ok $? "no apt-get: the names for other systems"
echo "1..$n"
