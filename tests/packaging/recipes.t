#!/usr/bin/env bash
# The recipes of packaging/spack and packaging/easybuild: what they pass to make, and what they depend on. Neither Spack
# nor EasyBuild runs here.
. "${TRAINER_ROOT:?is set by the runner: make test k=packaging/recipes}/tests/support/common.sh"
root=$TRAINER_ROOT
spack=$root/packaging/spack/package.py
recipe=$(echo "$root"/packaging/easybuild/trainer-mpi-*.eb)

python3 -I -c 'import ast, sys; [ast.parse(open(f).read(), f) for f in sys.argv[1:]]' "$spack" "$recipe" >out 2>&1
ok $? "both are Python"

# settings FILE: the names that it passes to make
settings() {
    grep -oE '\b(ARCH|PREFIX|MPICC|JPEG|PNG|MICROHTTPD|[A-Z0-9]+_HOME|CUDA|CUDA_ARCH)=' "$1" | tr -d = | sort -u
}
known=$(sed -n '/^settings  *:=/,/[^\\]$/p' "$root/Makefile" | tr -s ' \\' '\n')
for file in "$spack" "$recipe"; do
    [ "$(settings "$file" | wc -l)" -ge 3 ] || echo "$file: no settings"
    for name in $(settings "$file"); do grep -qx "$name" <<<"$known" || echo "$file: make has no $name"; done
done >out
[ ! -s out ]
ok $? "what they set, the Makefile has"

# Names of tools/install-deps, but for what is part of a compiler and what Spack has more than one of.
for name in $("$root/tools/install-deps" --list | sed -n 's/^Spack: *spack install //p'); do
    case $name in
        gcc | gmake | openmpi | pkgconf | zlib | libjpeg-turbo) continue ;;
    esac
    grep -qE "depends_on\(\"$name[\"@]" "$spack" || echo "spack: no $name"
done >out
[ ! -s out ] && (for name in mpi pkgconfig zlib-api jpeg; do grep -q "depends_on(\"$name\"" "$spack" || exit 1; done)
ok $? "Spack's recipe depends on what tools/install-deps names"
for name in libopenmpi-dev libhdf5-dev libdnnl-dev libjansson-dev libxxhash-dev zlib1g-dev; do
    grep -q "('$name', " "$recipe" || echo "easybuild: no $name"
done >out
[ ! -s out ] && grep -qx "sources = \['trainer-%(version)s.tar.gz'\]" "$recipe" &&
    grep -q -- '--prefix=trainer-$(number)/' "$root/Makefile"
ok $? "EasyBuild's on the required ones, and takes the tarball of make dist"
number=$("$TRAINER" --version | sed -n '1s/^trainer \([0-9.]*\).*/\1/p')
[ "${recipe##*/}" = "trainer-mpi-$number.eb" ] && grep -qx "version = '$number'" "$recipe"
ok $? "its version is that of the program"
# One name: that of the Debian package.
name=$(sed -n 's/^Source: //p' "$root/packaging/debian/control")
{ grep -ohE 'image: [^ ]+' "$root"/packaging/kubernetes/*.yaml | sed 's/image: //; s/:.*//'
    sed -n "s/^name = '\(.*\)'/\1/p" "$recipe"
    sed -n 's/^class \([A-Za-z]*\)(.*/\1/p' "$spack" | sed 's/\(.\)\([A-Z]\)/\1-\2/g' | tr 'A-Z' 'a-z'
} | sort -u >names
[ "$(cat names)" = "$name" ]
ok $? "packages and images have one name"

# One address and one maintainer: those of packaging/project. Without an address, no file names one, nor a placeholder.
of_project() { sed -n "s/^$1 = *//p" "$root/packaging/project"; }
url=$(of_project url) maintainer=$(of_project maintainer)
(
    cd "$root" || exit
    for file in docs/cloud.md CITATION.cff "$spack" "$recipe" packaging/debian/{control,copyright} README.md; do
        case $url,$file in ,* | *,packaging/debian/*) ;; *) grep -qF "$url" "$file" || echo "$file: no $url" ;; esac
        grep -oE "https://[^ \"']*/trainer(\.git)?\b" "$file" | sed 's/\.git$//' | grep -vxF "${url:-none}" |
            sed "s,^,$file: ,"
        ! grep -nE 'OWNER|example\.(org|com)|^(Maintainer|Homepage|Upstream-Contact):' "$file" || echo "in $file"
    done
) >out
grep -q '^url =' "$root/packaging/project" && grep -q '^maintainer =' "$root/packaging/project" && [ ! -s out ]
ok $? "the documents and the packages name the project as packaging/project does"

# What dpkg-buildpackage gets: the files of the last commit, with these facts.
if [ -e "$root/.git" ] && command -v git >/dev/null; then
    mkdir fake
    printf '#!/bin/sh\ncp debian/control debian/copyright debian/changelog "%s"\n' "$PWD" >fake/dpkg-buildpackage
    chmod +x fake/dpkg-buildpackage
    PATH=$PWD/fake:$PATH DEBFULLNAME='A B' DEBEMAIL=a@b.c "$root/packaging/debian/build" built >out 2>&1
    [ "$(sed -n 's/^Maintainer: //p' control)" = "${maintainer:-A B <a@b.c>}" ] &&
        [ "$(sed -n 's/^Homepage: //p' control)" = "$url" ] &&
        grep -qx "Upstream-Contact: ${maintainer:-A B <a@b.c>}" copyright &&
        grep -q "^ -- ${maintainer:-A B <a@b.c>}  " changelog
    ok $? "the Debian package has a maintainer: of packaging/project, or who builds it"
else
    skip "the maintainer of the Debian package" "no git"
fi
echo "1..$n"
