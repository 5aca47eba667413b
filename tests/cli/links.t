#!/usr/bin/env bash
# Links that somebody planted where the program creates a file: they are replaced, and what they point to stays as it
# was.
. "${TRAINER_ROOT:?is set by the runner: make test k=cli/links}/tests/support/common.sh"
host=$(hostname)
echo precious >victim
# planted LINKS ARGUMENTS...: the program, by the process id that the links have in place of PID
planted() {
    local links=$1
    shift
    TRAINER=$TRAINER sh -c 'for link in $0; do ln -s "$PWD/victim" "$(echo "$link" | sed "s/PID/$$/")" || exit; done
        exec "$TRAINER" "$@"' "$links" "$@" >out 2>err
}
intact() { [ "$(cat victim)" = precious ]; }
tiny="data.format=synthetic data.synthetic_samples=20 data.batch_size=20 train.steps=1 train.valid_every=0 threads=1"
printf '[model]\nlayers = flatten, linear 10\n' >net.ini

mkdir run
# shellcheck disable=SC2086
planted "run/verdict.$host.PID run/config.ini.tmp-$host-PID run/summary.json.tmp-$host-PID" net.ini $tiny run.dir=run &&
    intact && grep -q '"status": "done"' run/summary.json && grep -q '^steps' run/config.ini &&
    [ "$(cat run/verdict | head -n 1)" = done ] && [ -z "$(find run -maxdepth 1 -type l)" ]
ok $? "the temporary names of config.ini, summary.json and the verdict"

planted out.h5.part-PID import synthetic digits out.h5 --samples 20 && intact && "$TRAINER" data out.h5 >out 2>err
ok $? "OUT.h5.part-PID of an import"
# shellcheck disable=SC2086
mkdir probe
planted "probe/.doctor-$host-PID" doctor net.ini $tiny run.dir=probe
intact && names out "folder" && [ -z "$(find probe -name '.doctor*')" ]
ok $? ".doctor-HOST-PID of doctor"
mkdir locked && ln -s ../victim locked/lock
# shellcheck disable=SC2086
call 74 net.ini $tiny run.dir=locked && intact && names err locked/lock
ok $? "a lock that is a link is refused"
for file in metrics.jsonl log.txt; do
    mkdir "with-$file" && ln -s ../victim "with-$file/$file"
    # shellcheck disable=SC2086
    call 74 net.ini $tiny run.dir="with-$file" && intact && names err "with-$file/$file & symbolic link"
    ok $? "$file that is a link is refused"
done
mkdir sessions && ln -s ../victim sessions/sessions.jsonl
# shellcheck disable=SC2086
call 0 net.ini $tiny run.dir=sessions && intact && names err "sessions/sessions.jsonl & symbolic link"
ok $? "sessions.jsonl that is a link is not written"

planted "facts.json.tmp-$host-PID" doctor net.ini data.format=synthetic threads=1 run.dir=new --json facts.json
intact && [ -f facts.json ] && [ ! -L facts.json ] && grep -q '^}' facts.json
ok $? "FILE.tmp-HOST-PID of --json"
echo "1..$n"
