#!/usr/bin/env bash
# tools/install-deps, with stand-ins for the package manager: asks for what is missing only, and for a new list only where it must.
set -u
. "$TRAINER_ROOT/tests/support/names.sh"
n=0
result() { # STATUS NAME
    n=$((n + 1))
    if [ "$1" = 0 ]; then echo "ok $n - $2"; else echo "not ok $n - $2"; sed 's/^/#   /' out calls; fi
}
mkdir bin empty
for tool in bash sh awk sed tr env dirname cat; do ln -s "$(command -v $tool)" bin/ && ln -s "$(command -v $tool)" empty/; done
ln -s "$(command -v grep)" bin/
# HAVE: installed packages; KNOWN: file that exists once the lists are there; FAIL: file that makes the first installation fail
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
result $? "nothing missing: nothing done"
: >known; HAVE=${all/libdnnl-dev/} run && [ "$(cat calls)" = "-q install -y --no-install-recommends libdnnl-dev" ]
result $? "only what is missing"
rm known; HAVE= run && [ "$(sed -n 1p calls)" = "-q update" ] && [ "$(wc -l <calls)" = 2 ]
result $? "a new list where packages are not known"
: >fail; HAVE= run && [ "$(grep -c install calls)" = 2 ] && [ "$(grep -c update calls)" = 1 ]
result $? "and where they cannot be had"
! HAVE=${all/zlib1g-dev/} run --check && names out zlib1g-dev && ! grep -q libdnnl-dev out && [ ! -s calls ]
result $? "--check installs nothing"
! AS=1000 HAVE= run && names out 'apt-get install' libdnnl-dev && [ ! -s calls ]
result $? "neither root nor sudo: says what to do"
! PATH=$PWD/empty "$TRAINER_ROOT"/tools/install-deps >out 2>&1 && grep -q '^Fedora' out && grep -q '^Spack' out
result $? "no apt-get: the names for other systems"
echo "1..$n"
