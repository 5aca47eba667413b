#!/usr/bin/env bash
# TEST timeout=300
# packaging/kubernetes: the manifests against the schemas of their kinds, where these are at hand; the figures that they
# share; and `launch`, started again and again by what a kubelet does, with stand-ins for mpirun and with trainer.
# CRDS=FOLDER has the CustomResourceDefinitions; make test-all fetches them. Packages: kubernetes-validate, jsonschema.
. "${TRAINER_ROOT:?is set by the runner: make test k=packaging/kubernetes}/tests/support/common.sh"
manifests=$TRAINER_ROOT/packaging/kubernetes
launch=$manifests/launch

# -- manifests --------------------------------------------------------------------------------------------------------

fetch_crds() { # into ./crds
    local url trainer=kubeflow/trainer/8c0f5059bd51ec3ba6d6a6a7b2e1471de7bc13b3/manifests/base/crds
    local prometheus=prometheus-operator/prometheus-operator/6adcebc5076c34f4f55f8f5f7b1e528929373ac7
    mkdir -p crds
    for url in \
        kubeflow/mpi-operator/caa3c47fc42eb762635f78045ec0fcd1a89eb038/manifests/base/kubeflow.org_mpijobs.yaml \
        $trainer/trainer.kubeflow.org_trainjobs.yaml \
        $trainer/trainer.kubeflow.org_trainingruntimes.yaml \
        $prometheus/example/prometheus-operator-crd/monitoring.coreos.com_podmonitors.yaml
    do
        curl -sSf -m 60 "https://raw.githubusercontent.com/$url" >"crds/${url##*/}" || return 1
    done
}
# check MANIFEST...: in ./out, what each object was checked by, and errors
check() { "$python" "$TRAINER_ROOT/tests/packaging/check_manifests.py" "$crds" "$@" >out 2>&1; }
# typos FILE:KEY...: manifests with a key misspelt, all of which are refused with its name
typos() {
    local word key files=()
    for word in "$@"; do
        key=${word#*:} files+=("bad-${word#*:}.yaml")
        sed "s/\b$key:/${key}x:/" "$manifests/${word%:*}.yaml" >"bad-$key.yaml"
    done
    ! check "${files[@]}" || return 1
    for word in "$@"; do grep -q "^bad-${word#*:}.yaml: error: .*'${word#*:}x' was unexpected" out || return 1; done
}
python=$(PATH=$PATH:/opt/venv/bin python_with "yaml, jsonschema, kubernetes_validate") || python=
[ -n "$python" ] || python=$(python_with yaml)
crds=${CRDS-}
if [ -z "$crds" ] && all && fetch_crds 2>/dev/null; then crds=crds; fi
if [ -z "$python" ]; then
    skip "manifests" "no Python with yaml"
else
    check "$manifests"/*.yaml
    ok $? "the manifests can be read, and have what their schemas allow"
    [ "$(grep -oE ' (MPIJob|TrainingRuntime|TrainJob|Job|Deployment|Service|PersistentVolumeClaim|PodMonitor) by' out |
        sort -u | wc -l)" = 8 ]
    ok $? "of each kind there is one"
    by=$(cat out)
    if grep -q ' Job by kubernetes-validate' <<<"$by"; then
        typos job:podFailurePolicy job:volumeMounts serve:startupProbe
        ok $? "a typo in a built-in kind is found"
    else
        skip "a typo in a built-in kind" "no kubernetes-validate: the fields of these kinds are not checked"
    fi
    if grep -q ' MPIJob by its CRD' <<<"$by"; then
        typos mpijob:launcherCreationPolicy mpijob:preStop runtime:onJobFailureReasons trainjob:numNodes \
            podmonitor:honorLabels
        ok $? "a typo in a custom resource is found"
    else
        skip "a typo in a custom resource" "no CRDs (CRDS=FOLDER): the fields of these kinds are not checked"
    fi
    sed 's/^  name: mnist$/&\n  name: other/' "$manifests/job.yaml" >bad.yaml
    ! check bad.yaml && names out "name & twice"
    ok $? "a key that is there twice is found"

    "$python" - "$manifests" >out 2>&1 <<'EOS'
import sys, yaml
def read(name): return list(yaml.safe_load_all(open(f"{sys.argv[1]}/{name}.yaml")))
def pod(template): return template["template"]["spec"]
mpi, runtime, train, job, serve = (read(name)[0] for name in ("mpijob", "runtime", "trainjob", "job", "serve"))
specs = mpi["spec"]["mpiReplicaSpecs"]
jobs = {j["name"]: j["template"]["spec"] for j in runtime["spec"]["template"]["spec"]["replicatedJobs"]}
ours, theirs = pod(specs["Worker"]), pod(jobs["node"])
worker, node = ours["containers"][0], theirs["containers"][0]
for key in ("command", "image", "resources", "volumeMounts", "lifecycle", "readinessProbe", "securityContext"):
    assert worker[key] == node[key], key
for key in ("volumes", "terminationGracePeriodSeconds", "securityContext"):
    assert ours[key] == theirs[key], key
assert job["spec"]["template"]["spec"]["containers"][0]["resources"] == worker["resources"]
# one rank for each GPU, and as many ranks as both kinds have slots
ranks = specs["Worker"]["replicas"] * mpi["spec"]["slotsPerWorker"]
launcher = pod(specs["Launcher"])["containers"][0]
trainer = train["spec"]["trainer"]
assert mpi["spec"]["slotsPerWorker"] == worker["resources"]["limits"]["nvidia.com/gpu"]
assert launcher["command"] + launcher["args"] == trainer["command"] + trainer["args"]
assert ranks == trainer["numNodes"] * trainer["numProcPerNode"]
assert launcher["args"][launcher["args"].index("-np") + 1] == str(ranks)
# the launcher sees the run folder; 93 ends jobs
data = {"name": "data", "mountPath": "/data"}
for spec in (pod(specs["Launcher"]), pod(jobs["launcher"]), job["spec"]["template"]["spec"]):
    assert data in spec["containers"][0]["volumeMounts"]
    assert any("persistentVolumeClaim" in v for v in spec["volumes"])
for spec in (jobs["launcher"], job["spec"]):
    rule, = spec["podFailurePolicy"]["rules"]
    assert rule["action"] == "FailJob" and rule["onExitCodes"]["values"] == [93]
    assert rule["onExitCodes"]["containerName"] == spec["template"]["spec"]["containers"][0]["name"]
    assert spec["template"]["spec"]["restartPolicy"] == "Never"
rule, = runtime["spec"]["template"]["spec"]["failurePolicy"]["rules"]
assert rule["action"] == "FailJobSet" and rule["onJobFailureReasons"] == ["PodFailurePolicy"]
assert read("volumes")[0]["spec"]["accessModes"] == ["ReadWriteMany"]
# the time to end: above what trainer serve drains
spec = serve["spec"]["template"]["spec"]
arguments = spec["containers"][0]["args"]
assert spec["terminationGracePeriodSeconds"] > int(arguments[arguments.index("--drain") + 1].rstrip("s"))
EOS
    ok $? "figures that several manifests have are the same"
fi
if command -v shellcheck >/dev/null; then
    shellcheck "$launch" >out 2>&1
    ok $? "shellcheck finds nothing"
fi

# -- launch -----------------------------------------------------------------------------------------------------------

# A stand-in for mpirun: start N does line N of ./plan: VERDICT STEP CODE, where - is none. ./starts counts.
cat >mpirun <<'END'
#!/bin/sh
echo start >>starts
read -r verdict step code <<EOS
$(sed -n "$(wc -l <starts)p" plan)
EOS
[ "$verdict" = - ] || echo "$verdict" | tr _ ' ' >"$TRAINER_RUN_VERDICT"
mkdir -p "$TRAINER_RUN_DIR/checkpoints"
[ "$step" = - ] || ln -sfn "step-$step" "$TRAINER_RUN_DIR/checkpoints/latest"
exit "$code"
END
chmod +x mpirun
# kubelet JOB POLICY PLAN...: starts `launch` as a Job does, until it ends with 0, or (POLICY 93) with 93, or 20 times
# (backoffLimit); codes in $codes
kubelet() {
    local job=$1 policy=$2 code
    shift 2
    printf '%s\n' "$@" >plan
    rm -f starts
    codes=
    for _ in $(seq 21); do
        LAUNCH_JOB=$job "$launch" runs/net ./mpirun -np 2 trainer >out 2>&1
        code=$?
        codes+="$code "
        [ $code != 0 ] && [ $code != "$policy" ] || return 0
    done
}
fresh() { rm -rf runs; }
started() { wc -l <starts; }

kubelet a 93 "again 1 1" "again 2 137" "done 3 0"
[ "$codes" = "75 75 0 " ] && [ "$(started)" = 3 ]
ok $? "again: 75, and the job is started again, whatever the code of mpirun"
fresh; kubelet a 93 "again 1 0" "no_78_a_reason - 1" "done 2 0"
[ "$codes" = "75 93 " ] && [ "$(started)" = 2 ] && grep -q 'verdict: no 78 a reason' out
ok $? "no: 93, and podFailurePolicy ends the job"
fresh; kubelet a none "no_93_not_finite - 1" "done 1 0"
[ "$(started)" = 1 ] && [ -z "${codes//93 /}" ]
ok $? "where 93 does not end a job (MPIJob), it trains no second time"
kubelet b none "done 1 0"
[ "$codes" = "0 " ]
ok $? "a new job with the same run folder does"
fresh; kubelet a 93 "- 1 137" "- 2 1" "- 3 0" "done 4 0"
[ "$codes" = "75 75 75 0 " ]
ok $? "no verdict: 75"
fresh; kubelet a 93 "- - 137" "again - 75" "- - 1" "done 2 0"
[ "$codes" = "75 75 93 " ] && [ "$(started)" = 3 ]
ok $? "three starts without a new checkpoint: the third is 93"
fresh; kubelet a 93 "- - 137" "again - 75" "again 1 75" "again - 75" "again - 75" "again - 75"
[ "$codes" = "75 75 75 75 75 93 " ]
ok $? "a new checkpoint begins the count again"
# Workers that come late, and one that never does. Nothing listens at port 1.
late() { LAUNCH_JOB=c OMPI_MCA_orte_default_hostfile=hosts "$@" "$launch" runs/net ./mpirun -np 2 trainer >out 2>&1; }
fresh; rm -f starts; echo "done 1 0" >plan
echo "127.0.0.1 slots=1" >hosts
python3 -I -c 'import socket, sys, time
s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1], flush=True)
time.sleep(1.5); s.listen(); time.sleep(60)' >port &
listener=$!
until_true [ -s port ]
late env LAUNCH_PORT="$(cat port)" && [ "$(started)" = 1 ] && names out "waiting for 127.0.0.1"
ok $? "a worker that comes late is waited for"
kill $listener
fresh; rm -f starts; mkdir runs; echo "c 2 75" >runs/net.launch
late env LAUNCH_PORT=1 LAUNCH_WAIT=1
[ $? = 75 ] && [ ! -e starts ] && [ "$(cat runs/net.launch)" = "c 2 75" ]
ok $? "one that does not come: 75, and the start does not count"
# A clock that is 200 s later each time, as where each attempt takes long
mkdir -p clock term
cat >clock/date <<'END'
#!/bin/sh
echo . >>ticks
echo $(($(wc -l <ticks) * 200))
END
# Whatever launch calls before COMMAND may be slow: TERM comes while it makes the folder.
cat >term/mkdir <<END
#!/bin/sh
kill -TERM \$PPID
exec $(command -v mkdir) "\$@"
END
chmod +x clock/date term/mkdir
late env PATH="$PWD/clock:$PATH" LAUNCH_PORT=1 timeout 60
[ $? = 75 ] && [ "$(grep -c '^launch: waiting for 127.0.0.1' out)" = 2 ] && [ "$(wc -l <ticks)" = 4 ]
ok $? "the limit of 10 minutes is one of time, not of attempts"
fresh; rm -f starts hosts
PATH=$PWD/term:$PATH "$launch" runs/net ./mpirun -np 2 trainer >out 2>&1
[ $? = 75 ] && [ -d runs ] && [ ! -e starts ] && [ ! -e runs/net.launch ]
ok $? "TERM at once: 75, nothing is started, and the start does not count"
fresh
settings() { "$launch" runs/net sh -c 'echo "$TRAINER_RUN_LOCK_WAIT $TRAINER_RUN_VERDICT"' 2>/dev/null; }
one=$(settings) other=$(TRAINER_RUN_LOCK_WAIT=7s settings)
[[ $one == "5min runs/net."* ]] && [[ $other == "7s runs/net."* ]] && [ "${one#* }" != "${other#* }" ]
ok $? "a start waits for the run folder, and has a verdict file of its own"
"$launch" >out 2>&1
[ $? = 2 ] && grep -q '^launch RUN' out && ! "$launch" runs/net >out 2>&1 && names out COMMAND
ok $? "without arguments it says how it is used"

# -- launch with trainer ----------------------------------------------------------------------------------------------

config
begun() { grep -q step "$1/log.txt" 2>/dev/null; }
long=train.steps=100000000
# ended_well CODE: of `launch`: trainer has saved a checkpoint, and is to be started again
ended_well() {
    [ "$1" = 75 ] && [ -e runs/net/checkpoints/latest ] && grep -q '^again' runs/net/verdict &&
        grep -q 'verdict: again' out
}
fresh
# shellcheck disable=SC2086
"$launch" runs/net "$TRAINER" net.ini $long >out 2>&1 &
until_true begun runs/net
kill -TERM $!
wait $!
ended_well $?
ok $? "TERM: trainer saves, and launch ends with 75"
# A start beside one that still runs
fresh
# shellcheck disable=SC2086
"$launch" runs/net "$TRAINER" net.ini $long >first 2>&1 &
first=$!
until_true begun runs/net
# shellcheck disable=SC2086
TRAINER_RUN_LOCK_WAIT=1s "$launch" runs/net "$TRAINER" net.ini $long >out 2>&1
[ $? = 75 ] && [ ! -e runs/net/verdict ]
ok $? "a start beside one that still runs: 75, and no verdict about the other"
kill -TERM $first
wait $first
[ $? = 75 ] && grep -q 'verdict: again' first && grep -q '^again' runs/net/verdict && ! ls runs/net.verdict* 2>/dev/null
ok $? "the other ends well"
"$launch" runs/net "$TRAINER" net.ini resume=no >out 2>&1
[ $? = 93 ] && grep -q 'verdict: no ' out
ok $? "a run that is refused: 93"
# Process 1 of a namespace is the command itself, as in a container. The signal comes from outside.
inside="unshare -rpf --mount-proc --kill-child"
if $inside true 2>/dev/null; then
    fresh
    # shellcheck disable=SC2086
    $inside "$launch" runs/net "$TRAINER" net.ini $long >out 2>&1 &
    until_true begun runs/net
    kill -TERM "$(pgrep -P $!)"
    wait $!
    ended_well $?
    ok $? "TERM as process 1"
    fresh
    # shellcheck disable=SC2016
    LONG=$long $inside bash -c '"$TRAINER" net.ini run.dir=runs/net $LONG & rank=$!
        until grep -q step runs/net/log.txt 2>/dev/null; do sleep 0.1; done
        "$0" --drain
        pgrep -x trainer && exit 1
        wait $rank' "$launch" >out 2>&1
    [ $? = 75 ] && [ -e runs/net/checkpoints/latest ]
    ok $? "--drain: the ranks of the pod have saved before it returns"
else
    for what in "TERM as process 1" --drain; do skip "$what" "no PID namespace can be made here"; done
fi
echo "1..$n"
