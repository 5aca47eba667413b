#!/usr/bin/env bash
# containers.sh BUILD [IMAGE]
# The program in containers that srun starts on a cluster of four nodes on this machine: the image `cpu`, run by
# Charliecloud and by chroot. Eight ranks are one world and train to the losses of a run without containers; TERM and a
# requeue; what doctor says of user namespaces and of /tmp. IMAGE: the image as a folder; without it buildah builds it
# from Debian's packages, in minutes. Exit code 77: skipped.
. "$(dirname "$0")/long.sh"
for program in ch-run ${2:-buildah mmdebstrap}; do
    command -v "$program" >/dev/null || [ -e "$program" ] || { echo "skipped: no $program"; exit 77; }
done
image=$(readlink -f "${2:-image}")
export SHARED="${image%/*}" USER=${USER:-root}
. "$TRAINER_ROOT/tests/support/slurm.sh"

# build_image: into the folder `image`; no other image of this machine is touched.
build_image() {
    local container
    buildah() { command buildah --root "$work/store" --runroot "$work/runroot" "$@"; }
    mmdebstrap --variant=minbase bookworm base.tar && container=$(buildah from scratch) &&
        buildah add "$container" base.tar / && buildah commit "$container" base &&
        buildah bud --isolation chroot --pull=false --build-arg DEBIAN=localhost/base --target cpu -t cpu \
            -f "$TRAINER_ROOT/packaging/container/Dockerfile" "$TRAINER_ROOT" &&
        container=$(buildah from localhost/cpu) && cp -a "$(buildah mount "$container")" image
    ok $? "the image is built" >result
    buildah umount --all && buildah rm --all
    unset -f buildah
} >out 2>&1
if [ $# = 1 ]; then
    build_image
    cat result
    grep -q '^ok' result || { echo "1..1"; exit 1; }
fi

eight="--mpi=pmix --nodes=4 --ntasks-per-node=2 --cpus-per-task=1"
in_image="--set-env=PATH=/usr/local/bin:/usr/bin:/bin --cd=$PWD"
# ranks COMMAND...: eight of it, output in ./out; a launch that crashed inside MPI_Init is repeated
ranks() {
    local rc
    for _ in 1 2 3 4; do
        # shellcheck disable=SC2086
        on head timeout 120 srun $eight "$@" >out 2>&1
        rc=$?
        grep -q 'mca_btl_tcp\|Segmentation fault' out || break
    done
    return $rc
}
# inside OPTIONS of ch-run... -- ARGUMENTS of the program...: each rank in a container of its own
inside() {
    local options=()
    while [ "$1" != -- ]; do options+=("$1"); shift; done
    shift
    # shellcheck disable=SC2086
    ranks ch-run $in_image "${options[@]}" "$image" -- trainer "$@"
}
one_world() { grep -q '^8 ranks ' out && ! grep -q 'PMIX ERROR' out; }
run_config
sed -i 's/^micro_batch = .*/micro_batch = 2/' net.ini
cp "$fail_lib" fail.so

ranks "$TRAINER" net.ini run.dir=outside $exact
ok $? "eight ranks without containers"
inside --bind=/run -- net.ini run.dir=whole $exact && one_world && near outside whole 1e-3 60
ok $? "in containers: one world of eight, the same losses"
inside -- net.ini run.dir=apart $exact && grep -q 'PMIX ERROR.*gds_ds12' out && grep -q '^8 ranks ' out && same apart
ok $? "without SLURM's folder: PMIx says so"
PMIX_MCA_gds="hash" inside -- net.ini run.dir=hash $exact && one_world && same hash
ok $? "with PMIX_MCA_gds=hash it does not"

FAIL_STEP=125 inside --bind=/run --set-env=LD_PRELOAD="$PWD/fail.so" -- net.ini run.dir=term $exact &
until_lines term/metrics.jsonl 12 && on head scancel --signal=TERM "$(on head squeue -h -o %A)"
wait $!
[ $? = 75 ] && names out "stopped by a signal after step" && ! same term
ok $? "TERM: a checkpoint, and 75"
inside --bind=/run -- net.ini run.dir=term $exact && resumed && same term
ok $? "started again: it resumes, the same bits"

cat >contained <<END
#!/bin/sh
exec ch-run $in_image --bind=/run --set-env=LD_PRELOAD=$PWD/fail.so $image -- trainer "\$@"
END
chmod +x contained
job=$(TRAINER=$PWD/contained SLOW=125 submit --nodes=4 --ntasks-per-node=2 -- net.ini $exact)
at_step "$job" 12 && on head scancel --signal=USR1 --batch "$job"
ended_well "$job" && grep -q 'verdict: again.* 75' out
ok $? "train_cpu.sh: USR1, 75, requeued, the same bits"

unset OMPI_MCA_btl_vader_single_copy_mechanism
inside --bind=/run -- doctor && names out "warning & namespaces & n1 & 0 & 1"
ok $? "doctor: ranks in different user namespaces"
inside --bind=/run --join -- doctor && ! grep -q namespaces out
ok $? "one container for a node: none"
OMPI_MCA_btl_vader_single_copy_mechanism=none inside --bind=/run -- bench allreduce --max 4M &&
    names out "8 ranks on 4 nodes & all results are right"
ok $? "large messages without copies between ranks"

# bare IMAGE WORK [TMP] -- COMMAND...: by chroot into the image, which is read-only but for the folder TMP on /tmp
cat >bare <<'END'
#!/bin/sh
set -e
image=$1 work=$2
shift 2
mount --bind "$image" "$image" && mount -o remount,bind,ro "$image"
for folder in proc sys dev run; do mount --rbind "/$folder" "$image/$folder"; done
mount --bind "$work" "$image/mnt"
[ "$1" = -- ] || { mount --bind "$1" "$image/tmp" && shift; }
shift
exec chroot "$image" sh -c 'cd /mnt && exec "$@"' sh "$@"
END
chmod +x bare
ranks unshare --mount ./bare "$image" "$PWD" -- trainer doctor
[ $? = 77 ] && names out "error & temporary & n1 & /tmp & Read-only file system"
ok $? "doctor: no file can be made in /tmp"
ranks unshare --mount ./bare "$image" "$PWD" /tmp -- trainer net.ini run.dir=chroot $exact && one_world && same chroot
ok $? "by chroot with a /tmp: one world, the same bits"
echo "1..$n"
