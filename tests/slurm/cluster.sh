#!/usr/bin/env bash
# cluster.sh: a SLURM cluster on one machine, for the tests. Needs root, unshare and the packages of tools/install-deps.
#
#   cluster.sh check                     exit code 0 if a cluster can run here; else one line that says what is missing
#   cluster.sh start DIR                 starts the cluster; returns when all nodes are idle
#   cluster.sh on DIR NODE COMMAND...    runs COMMAND on "head" or on n1, n2, ...; keeps current folder and environment
#   cluster.sh crash DIR NODE            the node loses its network and all its processes
#   cluster.sh boot DIR NODE             a crashed node starts again
#   cluster.sh cable DIR NODE up|down    connects or disconnects the network of a node
#   cluster.sh stop DIR
#
# Every node has namespaces of its own: host name, network, processes, /tmp and /dev/shm. The network of the host is
# not changed. The cluster ends when the process that started it (or process OWNER) ends. DIR gets logs and settings;
# sockets are in a /run that only the cluster sees.
# Environment: NODES (4), NODE_CORES (16), NODE_GPUS (4, device files only), KILL_WAIT (10 s), SHARED (folders below
# /tmp that all nodes see; DIR's parent, the source and the current folder are always among them).
set -u
self=$(readlink -f "$0")
export NODES=${NODES:-4} NODE_CORES=${NODE_CORES:-16} NODE_GPUS=${NODE_GPUS:-4} KILL_WAIT=${KILL_WAIT:-10}
network=10.91.7
fail() { echo "cluster: $*" >&2; exit 1; }

# until_true TRIES COMMAND...: every 20 ms
until_true() {
    local tries=$1
    shift
    while ! "$@" 2>/dev/null; do
        [ $((tries -= 1)) -gt 0 ] || return 1
        sleep 0.02
    done
}

check() {
    local program
    [ "$(id -u)" = 0 ] || { echo "a SLURM cluster for the tests needs root"; return 1; }
    for program in slurmctld slurmd munged srun sbatch unshare nsenter ip; do
        PATH=$PATH:/usr/sbin:/sbin command -v $program >/dev/null ||
            { echo "a SLURM cluster for the tests needs $program: tools/install-deps"; return 1; }
    done
    unshare --mount --uts --ipc --net --pid --fork true 2>/dev/null ||
        { echo "a SLURM cluster for the tests needs unshare, which is refused here"; return 1; }
}

write_config() {
    local i
    mkdir -p "$dir"/{etc,state,log,dev,node}
    {
        echo "127.0.0.1 localhost"
        echo "$network.254 head"
        for ((i = 1; i <= NODES; i++)); do echo "$network.$i n$i"; done
    } >"$dir/etc/hosts"
    # config_overrides: a node may have more cores than this machine. cred_expire: also the delay before a requeued job
    # may start. linuxproc, task/none: control groups cannot be used inside containers.
    cat >"$dir/etc/slurm.conf" <<END
ClusterName=trainer
SlurmctldHost=head($network.254)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket=/run/munge.socket,cred_expire=5
StateSaveLocation=$dir/state
SlurmdSpoolDir=/run/%n
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/%n.pid
SlurmctldLogFile=$dir/log/slurmctld
SlurmdLogFile=$dir/log/%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
MailProg=/bin/true
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
SchedulerParameters=batch_sched_delay=0,sched_min_interval=20000,bf_interval=1
PropagateResourceLimits=NONE
ReturnToService=2
SlurmdTimeout=10
KillWait=$KILL_WAIT
MinJobAge=3600
GresTypes=gpu
NodeName=DEFAULT Sockets=1 CoresPerSocket=$NODE_CORES ThreadsPerCore=1 RealMemory=64000 Gres=gpu:$NODE_GPUS
NodeName=n[1-$NODES] NodeAddr=$network.[1-$NODES]
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE OverSubscribe=NO
END
    : >"$dir/etc/gres.conf"
    for ((i = 0; i < NODE_GPUS; i++)); do
        : >"$dir/dev/nvidia$i"
        echo "NodeName=n[1-$NODES] Name=gpu File=$dir/dev/nvidia$i" >>"$dir/etc/gres.conf"
    done
    echo "CgroupAutomount=no" >"$dir/etc/cgroup.conf"
}

# -- inside ----------------------------------------------------------------------------------------------------------

# The head node: process 1 of the cluster. Its end is the end of all.
run_head() {
    local i
    export PATH=$PATH:/usr/sbin:/sbin
    hostname head
    ip link set lo up
    mount --bind "$dir/etc/hosts" /etc/hosts
    for ((i = 0; i < NODE_GPUS; i++)); do mount --bind /dev/null "$dir/dev/nvidia$i" || exit 1; done
    ip link add bridge0 type bridge && ip address add $network.254/24 dev bridge0 && ip link set bridge0 up || exit 1
    mount -t tmpfs -o mode=755 tmpfs /run # the nodes inherit it
    (umask 077 && head -c 1024 /dev/urandom >/run/munge.key)
    munged --key-file=/run/munge.key --socket=/run/munge.socket --pid-file=/run/munged.pid \
        --seed-file=/run/munged.seed --log-file=/run/munged.log || exit 1
    slurmctld -c || exit 1
    for ((i = 1; i <= NODES; i++)); do boot "n$i" & done
    wait
    until_true 1500 all_idle || exit 1
    : >"$dir/ready"
    while :; do sleep 60; done
}
all_idle() { [ "$(sinfo -h -t idle -o %D)" = "$NODES" ]; }

# A node: process 1 is a shell, which also takes in the processes that slurmd leaves.
run_node() {
    local folder top node=$1
    export PATH=$PATH:/usr/sbin:/sbin
    hostname "$node"
    mount -t proc proc /proc
    ip link set lo up
    until_true 500 ip link show eth0 >/dev/null
    ip address add "$network.${node#n}/24" dev eth0 && ip link set eth0 up || exit 1
    mount -t tmpfs tmpfs /dev/shm
    rm -rf "/run/$node" # as a boot does
    mkdir -p "/run/$node" "$dir/node/$node.tmp"
    chmod 1777 "$dir/node/$node.tmp"
    for folder in $SHARED; do
        top=$dir/node/$node.tmp/${folder#/tmp/}
        mkdir -p "$top" && mount --rbind "$folder" "$top"
    done
    mount --rbind "$dir/node/$node.tmp" /tmp
    : >"$dir/node/$node.up"
    slurmd -D -N "$node" &
    while :; do wait; sleep 1; done
}

boot() { # NODE; on the head node
    local node=$1 outer
    rm -f "$dir/node/$node.up"
    ip link delete "v-$node" 2>/dev/null
    setsid unshare --mount --uts --ipc --net --pid --fork --kill-child --propagation private \
        "$self" _node "$dir" "$node" </dev/null >>"$dir/log/$node.out" 2>&1 &
    outer=$!
    until_true 500 pgrep -P $outer >/dev/null || return 1
    pgrep -P $outer >"$dir/node/$node.pid"
    ip link add "v-$node" type veth peer name eth0 netns "$(cat "$dir/node/$node.pid")" &&
        ip link set "v-$node" master bridge0 up || return 1
    until_true 500 [ -e "$dir/node/$node.up" ]
}

# -- outside ---------------------------------------------------------------------------------------------------------

enter() { # COMMAND...: on the head node
    local pid
    pid=$(cat "$dir/pid" 2>/dev/null) || fail "$dir: no cluster runs there"
    exec nsenter -t "$pid" -m -u -i -n -p --wd="$PWD" -- env SLURM_CONF="$dir/etc/slurm.conf" "$@"
}

start() { # OWNER
    local outer
    rm -rf "${dir:?}"
    write_config
    unshare --mount --uts --ipc --net --pid --fork --kill-child --mount-proc --propagation private \
        "$self" _head "$dir" </dev/null >"$dir/log/head.out" 2>&1 &
    outer=$!
    (
        exec </dev/null >/dev/null 2>&1
        while kill -0 "$1" && kill -0 $outer; do sleep 0.5; done
        kill -9 $outer
    ) &
    until_true 2000 [ -e "$dir/ready" -o ! -e /proc/$outer ]
    [ -e "$dir/ready" ] || { kill -9 $outer; tail -n 5 "$dir"/log/* >&2; fail "did not start"; }
    pgrep -P $outer >"$dir/pid"
}

stop() {
    local pid
    pid=$(cat "$dir/pid" 2>/dev/null) || return 0
    kill -9 "$pid" 2>/dev/null
    until_true 500 [ ! -e "/proc/$pid" ]
    rm -f "$dir/pid"
}

[ $# -gt 1 ] || [ "${1-}" = check ] || { sed -n '2,/^set/s/^# \{0,1\}//p' "$self" | sed '$d'; exit 2; }
action=$1
[ "$action" = check ] || { mkdir -p "$2" && dir=$(readlink -f "$2") || exit 1; }
if [ "$action" != check ]; then
    export SLURM_CONF=$dir/etc/slurm.conf
    SHARED=$(for folder in ${SHARED-} "${dir%/*}" "$(readlink -f "$PWD")" "${self%/tests/slurm/*}"; do
        case $folder in /tmp/?*) echo "$folder" ;; esac
    done | sort -u | tr '\n' ' ')
    export SHARED
fi
case $action in
    check) check ;;
    start) check && start "${OWNER:-$PPID}" ;;
    stop) stop ;;
    on)
        node=$3
        shift 3
        [ "$node" != head ] || enter "$@"
        enter nsenter -t "$(cat "$dir/node/$node.pid")" -m -u -i -n -p --wd="$PWD" -- "$@" ;;
    crash) (enter ip link set "v-$3" down) && enter kill -9 "$(cat "$dir/node/$3.pid")" ;;
    boot) enter "$self" _boot "$dir" "$3" ;;
    cable) enter ip link set "v-$3" "$4" ;;
    _head) run_head ;;
    _node) run_node "$3" ;;
    _boot) boot "$3" ;;
    *) fail "unknown: $action; see the head of $self" ;;
esac
