#!/usr/bin/env bash
# packaging/container: a package in the images for each library that the program and libtrainer_cuda.so open, and what
# the stages install. No image is built here.
. "${TRAINER_ROOT:?is set by the runner: make test k=packaging/container}/tests/support/common.sh"
dockerfile=$TRAINER_ROOT/packaging/container/Dockerfile

# stage NAME: its lines, without comments
stage() { awk -v name="$1" '/^FROM/ { inside = $NF == name } inside && !/^#/' "$dockerfile"; }
# package_of SONAME: its package in an image with CUDA; "node": NVIDIA's container runtime brings it
package_of() {
    case $1 in
        libcudart.so.13) echo cuda-cudart-13-0 ;;
        libcublasLt.so.13) echo libcublas-13-0 ;;
        libcudnn.so.9) echo libcudnn9-cuda-13 ;;
        libnccl.so.2) echo libnccl2 ;;
        libmicrohttpd.so.12) echo libmicrohttpd12t64 ;;
        libnvidia-ml.so.1 | libcuda.so.1) echo node ;;
        libc.so.6 | libm.so.6 | libdl.so.2 | libpthread.so.0 | librt.so.1) echo system ;;
        libgcc_s.so.1 | libstdc++.so.6) echo system ;;
        libgomp.so.1) echo libgomp1 ;;
    esac
}
# covered FILE: each soname of a list has a package, and the package is in the stage of the image with CUDA
covered() {
    local soname package all_of_them=0
    [ -s "$1" ] || return 1
    stage serve-cuda | tr ' ' '\n' >installed
    while read -r soname; do
        package=$(package_of "$soname")
        case $package in
            node | system) continue ;;
            '') echo "$soname: no package is named for it in $0" ;;
            *) grep -qx "$package" installed && continue; echo "$soname: $package is not in the Dockerfile" ;;
        esac
        all_of_them=1
    done <"$1" >out
    return $all_of_them
}

# What is opened at run time, from the source; libtrainer_cuda.so is our own.
grep -rhoE '"lib[A-Za-z0-9_+-]+\.so\.[0-9]+"' "$TRAINER_ROOT/src/device/cuda" "$TRAINER_ROOT/src/http" | tr -d '"' |
    sort -u >opened
grep -qx libnccl.so.2 opened && covered opened
ok $? "what dlopen opens has a package in the image"
echo libplanted.so.7 >>opened
! covered opened && names out libplanted.so.7
ok $? "a library without one is found"
if [ -e "$BUILD/libtrainer_cuda.so" ] && command -v readelf >/dev/null; then
    readelf -d "$BUILD/libtrainer_cuda.so" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' >needed
    if grep -q 'cudart.so.13' needed; then
        covered needed
        ok $? "and what libtrainer_cuda.so is linked with"
    else
        skip "what libtrainer_cuda.so is linked with" "built with another CUDA than the image's"
    fi
else
    skip "what libtrainer_cuda.so is linked with" "no build with CUDA"
fi

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
