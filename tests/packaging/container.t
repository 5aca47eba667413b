#!/usr/bin/env bash
# packaging/container: a package in the images for each library that the program and libtrainer_cuda.so open, and what
# the stages install. No image is built here.
. "${TRAINER_ROOT:?is set by the runner: make test k=packaging/container}/tests/support/common.sh"
dockerfile=$TRAINER_ROOT/packaging/container/Dockerfile

# stage NAME [DOCKERFILE]: its lines, without comments
stage() { awk -v name="$1" '/^FROM/ { inside = $NF == name } inside && !/^#/' "${2-$dockerfile}"; }
# packages [DOCKERFILE]: what the image with CUDA installs, without versions
packages() { stage serve-cuda "$@" | tr -s ' ' '\n' | sed 's/=.*//'; }
# package_of SONAME: its package in an image with CUDA; "node": NVIDIA's container runtime brings it
package_of() {
    case $1 in
        libcudart.so.13) echo cuda-cudart-13-0 ;;
        libcublas.so.13 | libcublasLt.so.13) echo libcublas-13-0 ;;
        libnvrtc.so.13 | libnvrtc-builtins.so.13.0) echo cuda-nvrtc-13-0 ;;
        libcudnn.so.9 | libcudnn_*.so.9) echo libcudnn9-cuda-13 ;;
        libnccl.so.2) echo libnccl2 ;;
        libmicrohttpd.so.12) echo libmicrohttpd12t64 ;;
        libnvidia-ml.so.1 | libcuda.so.1) echo node ;;
        libc.so.6 | libm.so.6 | libdl.so.2 | libpthread.so.0 | librt.so.1 | ld-linux-*.so.?) echo system ;;
        libgcc_s.so.1 | libstdc++.so.6) echo system ;;
        libz.so.1) echo zlib1g ;;
        libgomp.so.1) echo libgomp1 ;;
        libibverbs.so.1 | libmlx5.so.1) echo libopenmpi3t64 ;; # depends on them by UCX
        libgdrapi.so.2) echo system ;;                         # NCCL does without it
    esac
}
# covered FILE [DOCKERFILE]: each soname of a list has a package, and the package is in the stage of the image with CUDA
covered() {
    local soname package list=$1 all_of_them=0
    shift
    [ -s "$list" ] || return 1
    packages "$@" >installed
    while read -r soname; do
        package=$(package_of "$soname")
        case $package in
            node | system) continue ;;
            '') echo "$soname: no package is named for it in $0" ;;
            *) grep -qx "$package" installed && continue; echo "$soname: $package is not in the Dockerfile" ;;
        esac
        all_of_them=1
    done <"$list" >out
    return $all_of_them
}
needed_by() { readelf -d "$1" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'; } # FILE
# opened_by FOLDER: the sonames in its source; libtrainer_cuda.so is our own.
opened_by() {
    grep -rhoE '"lib[A-Za-z0-9_+-]+\.so[.0-9]*"' "$1" | tr -d '"' | grep -vx libtrainer_cuda.so | sort -u
}

# What is opened at run time
opened_by "$TRAINER_ROOT/src" >opened
[ "$(grep -cxE 'lib(nccl.so.2|nvidia-ml.so.1|microhttpd.so.12)' opened)" = 3 ] && covered opened
ok $? "what dlopen opens has a package in the image"
mkdir planted && cp opened both
for name in libplanted.so libplanted.so.7; do
    echo "    void *handle = dlopen(\"$name\", RTLD_NOW);" >planted/planted.c
    opened_by planted >>both
    ! covered both && names out "$name"
    ok $? "$name in the source has none: found"
done
sed -E 's/ libnccl2[^ ]*//' "$dockerfile" >without
! cmp -s "$dockerfile" without && ! covered opened without && names out "libnccl.so.2 & libnccl2"
ok $? "a package that is removed is missed"

# What it is linked with, and what those libraries open in turn: cuBLASLt and cuDNN open NVRTC by dlopen.
cuda=$BUILD/libtrainer_cuda.so
if [ -e "$cuda" ] && command -v readelf >/dev/null && needed_by "$cuda" | grep -qx libcudart.so.13; then
    needed_by "$cuda" >needed
    covered needed
    ok $? "and what libtrainer_cuda.so is linked with"
    folder=$(ldd "$cuda" | sed -n 's,.*=> \(/.*\)/libcudnn\.so\.9 .*,\1,p')
    LC_ALL=C grep -aohE 'lib[A-Za-z0-9_+-]+\.so\.[0-9.]*[0-9]' "$folder"/libcudnn*.so.9 \
        "$folder"/lib{cublasLt.so.13,nvrtc.so.13,nccl.so.2} 2>/dev/null | sort -u >deeper
    grep -q cudnn_graph deeper && grep -q nvrtc deeper && covered deeper
    ok $? "and what cuDNN, cuBLASLt, NVRTC and NCCL open"
    sed -E 's/ cuda-nvrtc[^ ]*//' "$dockerfile" >without
    ! covered deeper without && names out "libnvrtc.so.13 & cuda-nvrtc-13-0"
    ok $? "without NVRTC: found"
else
    for what in "is linked with" "opens through others" "needs of NVRTC"; do
        skip "what libtrainer_cuda.so $what" "no build with the CUDA of the image, or no binutils"
    done
fi
# agree [DOCKERFILE]: all of its packages are those of the image's CUDA, and NCCL is no newer.
agree() {
    local version
    version=$(sed -n 's/^ARG CUDA=\([0-9]*\.[0-9]*\).*/\1/p' "${1-$dockerfile}")
    stage serve-cuda "$@" | grep -oE '\b(cuda|lib(cu[a-z]*9?|nccl2))[-=][^ ]*' | grep -v '^cuda-base' >versions
    [ "$(wc -l <versions)" -ge 5 ] || return 1
    ! grep -vE -- "-${version/./-}\$|-cuda-${version%.*}\$|\+cuda${version/./\\.}\$" versions >out
}
agree
ok $? "the packages are those of the image's CUDA"
sed 's/^ARG CUDA=13\.0/ARG CUDA=13.1/' "$dockerfile" >newer && ! agree newer && [ "$(wc -l <out)" = 4 ]
ok $? "another CUDA alone: found"

# The build stages install what tools/install-deps names, but for the tests.
for image in cpu cuda; do
    stage build-$image | tr -s ' ' '\n' >installed
    for package in $("$TRAINER_ROOT/tools/install-deps" --list | sed -n '1s/.*recommends *//p'); do
        [ "$package" = libcmocka-dev ] || grep -qx "$package" installed || echo "build-$image: no $package"
    done
done >out
[ ! -s out ]
ok $? "the stages that build have what tools/install-deps names"
tr -s ' ' '\n' <"$TRAINER_ROOT/packaging/container/apptainer.def" >installed
for package in $("$TRAINER_ROOT/tools/install-deps" --list | sed -n '1s/.*recommends *//p'); do
    [ "$package" = libcmocka-dev ] || grep -qx "$package" installed || echo "apptainer.def: no $package"
done >out
[ ! -s out ]
ok $? "and so has apptainer.def"
for image in serve-cpu serve-cuda; do stage $image | grep -E 'ssh|2222' && echo "$image has ssh"; done >out
for image in cpu cuda; do
    stage $image | grep -q openssh-server && stage $image | grep -q '^EXPOSE 2222' && stage $image | grep -q procps &&
        stage $image | grep -q 'launch /usr/local/bin/trainer-launch' || echo "$image: no ssh, or no launch"
    stage serve-$image | grep -q 'useradd --uid 1000 .*mpiuser' || echo "serve-$image: no mpiuser"
done >>out
[ ! -s out ] && grep -qx 'Port 2222' "$TRAINER_ROOT/packaging/container/sshd_config"
ok $? "images for MPI jobs have sshd at port 2222 for mpiuser (1000), those that serve do not"

# ssh refuses settings that others than their owner may write, as those of a checkout with umask 002 are.
grep -E '^COPY .*packaging/' "$dockerfile" >copied
[ "$(wc -l <copied)" = 6 ] && ! grep -v -- '--chmod=[67][45][45] ' copied >out
ok $? "what is copied from the source has a mode of its own"

# What git ignores is not sent to the engine, nor the history, in which there may be more than in the tree.
{ echo .git; sed 's,^/,,; s,/$,,; s,/$,,' "$TRAINER_ROOT/.gitignore"; } >ignored
while read -r name; do
    grep -qxF -e "$name" -e "**/$name" "$dockerfile.dockerignore" || echo "$name is copied into the image"
done <ignored >out
[ ! -s out ] && [ "$(wc -l <ignored)" -gt 5 ]
ok $? "what git ignores stays out of the context"
number=$("$TRAINER" --version | sed -n '1s/^trainer \([0-9.]*\).*/\1/p')
label=org.opencontainers.image
grep -qx "ARG VERSION=$number" "$dockerfile" && (for image in cpu cuda; do
    stage build-$image | grep -q "commit=\"\$COMMIT\"" && stage serve-$image | grep -q "$label.version=\"\$VERSION\"" &&
        stage serve-$image | grep -q "$label.licenses=\"$(sed -n '1s/ License$//p' "$TRAINER_ROOT/LICENSE")\"" || exit 1
done)
ok $? "labels have the version and the licence, and the program the commit"

# sshd reads its settings: -t needs a key of the host.
if [ -x /usr/sbin/sshd ] && command -v ssh-keygen >/dev/null; then
    ssh-keygen -q -t ed25519 -N '' -f key &&
        sed "s,^HostKey .*,HostKey $PWD/key," "$TRAINER_ROOT/packaging/container/sshd_config" >sshd_config &&
        { [ -d /run/sshd ] || mkdir -p /run/sshd 2>/dev/null; /usr/sbin/sshd -t -f "$PWD/sshd_config" >out 2>&1; } &&
        ssh -G -F "$TRAINER_ROOT/packaging/container/ssh_config" pod >out 2>&1 && grep -qx 'port 2222' out
    ok $? "ssh and sshd accept their settings"
else
    skip "ssh and sshd accept their settings" "not installed"
fi
if command -v hadolint >/dev/null; then
    hadolint --ignore DL3008 --ignore DL3066 "$dockerfile" >out 2>&1
    ok $? "hadolint finds nothing"
fi
echo "1..$n"
