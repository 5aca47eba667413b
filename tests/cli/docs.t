#!/usr/bin/env bash
# TEST timeout=240
# The documentation against the program: generated pages are up to date; links, paths, commands, options and keys that
# are named exist; the blocks of README.md, docs/data.md, docs/fields.md, docs/training.md, docs/monitoring.md,
# docs/large-models.md and docs/serving.md that are marked <!-- run --> run, one after the other in one folder.
. "${TRAINER_ROOT:?is set by the runner: make test k=cli/docs}/tests/support/common.sh"
. "$TRAINER_ROOT/tools/mpi-env"

root=$TRAINER_ROOT
here=$PWD
pages=$(cd "$root" && echo README.md CONTRIBUTING.md CHANGELOG.md SECURITY.md data/README.md docs/*.md docs/labs/*.md)

mkdir made
"$root/tools/make-reference" "$TRAINER" made >out 2>&1 &&
    for f in config layers commands records elsewhere; do diff -u "$root/docs/$f.md" "made/$f.md"; done >out
[ ! -s out ]
ok $? "the generated pages of docs/ are what the program says (else: make reference)"

sed -n 's/^METRIC([A-Z]*, \([a-z0-9_]*\),[^"]*"\([a-z0-9_]*\)".*/`\1` .* Prometheus: trainer_\2\\. |/p' \
    "$root/src/base/record_fields.def" >metrics
while read -r row; do grep -q "^| $row$" made/records.md || echo "$row"; done <metrics >out
[ -s metrics ] && [ ! -s out ] && [ "$(grep -c 'Prometheus: ' made/records.md)" = "$(wc -l <metrics)" ]
ok $? "records.md names the metric of each field that Prometheus shows, and no other"

"$root/tools/make-fault-table" >made/faults
[ -s made/faults ] && ! grep -vxFf "$root/docs/slurm.md" made/faults >out &&
    [ "$(grep -cE '^\| `(cudaError|nccl)' "$root/docs/slurm.md")" = "$(wc -l <made/faults)" ]
ok $? "docs/slurm.md has the table of faults as the program does"

# anchors PAGE: the anchors of its headings, as GitHub makes them
anchors() { sed -n '/^```/,/^```/d; s/^##* //p' "$1" | tr 'A-Z' 'a-z' | sed 's/[^a-z0-9 _-]//g; s/ /-/g'; }
: >out
for page in $pages; do
    # shellcheck disable=SC2013
    for link in $(sed '/^```/,/^```/d' "$root/$page" | grep -o '](\([^)]*\))' | sed 's/^](//; s/)$//; /^https*:/d'); do
        file=${link%%#*} target=$root/$page
        [ -z "$file" ] || target=$(dirname "$root/$page")/$file
        [ -e "$target" ] || { echo "$page: there is no $link"; continue; }
        case $link in *'#'*) anchors "$target" | grep -qx -- "${link#*#}" || echo "$page: no heading for $link" ;; esac
    done
done >>out
[ ! -s out ]
ok $? "every relative link leads somewhere"

# The site of make docs, by a stand-in for cmark-gfm: no link is dead. Without a converter it says what to install.
mkdir bin bare
cat >bin/cmark-gfm <<'END'
#!/bin/sh
for page; do :; done
sed -E -e '/^```/,/^```/d' -e 's,^#+ (.*),<h2>\1</h2>,' -e 's,!\[([^]]*)\]\(([^)]*)\),<img src="\2">,g' \
    -e 's,\[([^]]*)\]\(([^)]*)\),<a href="\2">\1</a>,g' "$page"
END
chmod +x bin/cmark-gfm
cat >links.py <<'END'
import glob, os, re
pages = {os.path.normpath(f): open(f).read() for f in glob.glob("site/**/*.html", recursive=True)}
assert len(pages) > 40, len(pages)
for name, text in pages.items():
    for link in re.findall(r'(?:href|src)="([^":]+)"', text):
        file, _, anchor = link.partition("#")
        file = os.path.normpath(os.path.join(os.path.dirname(name), file)) if file else name
        if not os.path.exists(file) or file.endswith(".md") or anchor and f'id="{anchor}"' not in pages[file]:
            print(f"{name}: {link} leads nowhere")
END
PATH=$PWD/bin:$PATH "$root/tools/make-site" site >made/site && python3 -I links.py >out 2>&1 && [ ! -s out ]
ok $? "the site of make docs has the pages, and its links lead somewhere"
for tool in bash mkdir dirname; do ln -s "$(command -v $tool)" bare; done
PATH=$PWD/bare "$root/tools/make-site" none >out 2>&1
[ $? = 1 ] && names out 'cmark-gfm or pandoc & apt-get install cmark-gfm'
ok $? "make docs without a converter says what to install"

# Paths: what looks like one of ours, in backticks; `a/b_*.c` may be a pattern.
folders='src|include|configs|tools|tests|docs|examples|data|slurm'
for page in $pages; do
    for path in $(grep -oE "\`($folders)/[^\` ]*\`" "$root/$page" | tr -d '`' | sort -u); do
        case $path in *NAME* | *MODULE*) continue ;; esac
        grep -qxF "<!-- file: $path -->" "$root/$page" && continue
        (cd "$root" && compgen -G "$path" >/dev/null) || echo "$page: there is no $path"
    done
done >out
[ ! -s out ]
ok $? "every path that is named exists"

# The keys, commands and targets of make that are named.
"$TRAINER" help keys | sed -n 's/^  \([a-z][a-z0-9_.]*\)  .*/\1/p' >keys
sections=$(sed -n 's/\..*//p' keys | sort -u | tr '\n' '|' | sed 's/|$//')
guides="README.md CONTRIBUTING.md data/README.md docs/embedding.md docs/data.md docs/fields.md docs/training.md
docs/monitoring.md docs/serving.md docs/large-models.md docs/run-folder.md docs/memory.md docs/netcdf.md docs/laptop.md
docs/accuracy.md docs/index.md"
for page in $guides docs/ARCHITECTURE.md; do
    named=$(grep -oE "(^|[^a-z0-9_./])($sections)\.[a-z_]+" "$root/$page")
    for key in $(grep -oE "($sections)\.[a-z_]+" <<<"$named" | sort -u); do
        case $key in *.safetensors | *.txt | *.json | *.md) continue ;; esac
        grep -qxF -- "$key" keys || echo "$page: there is no key $key"
    done
done >out
[ ! -s out ]
ok $? "every key that is named exists"

commands=$(sed -n 's/^COMMAND(\([a-z_]*\))$/\1/p' "$root/src/cmd/commands.def" | tr '_\n' '- ')
for page in $guides; do
    grep -ohE '(`|\./)trainer [a-z]+( [^`]*|`|$)' "$root/$page" | tr -d '`' |
        while read -r _ command rest; do
            case " $commands " in *" $command "*) ;; *) echo "$page: there is no command '$command'" ;; esac
            for option in $(grep -oE -- '--[a-z-]+' <<<"${rest%%#*}"); do
                "$TRAINER" "$command" --help 2>/dev/null | grep -q -- "$option" ||
                    echo "$page: trainer $command has no $option"
            done
        done
done >out
[ ! -s out ]
ok $? "every command and option that is named exists"

for page in README.md CONTRIBUTING.md docs/embedding.md docs/ARCHITECTURE.md; do
    for target in $(grep -ohE '(`|^)make [a-z][a-z-]*' "$root/$page" | sed 's/.*make //' | sort -u); do
        grep -qE "^(\.PHONY:.* )?$target( |:|\$)" "$root/Makefile" "$root/tests/hostcuda/hostcuda.mk" ||
            echo "$page: there is no make $target"
    done
done >out
[ ! -s out ]
ok $? "every target of make that is named exists"

# run PAGE: its marked blocks as one script, each command shown as it is run
blocks() {
    awk '
        /^<!-- run -->$/ { marked = 1; next }
        marked && /^```sh$/ { inside = 1; marked = 0; next }
        /^```/ { inside = 0 }
        inside' "$1"
}
mkdir reader && ln -s "$TRAINER" reader/trainer && ln -s "$root/configs" reader/configs
guide="$root/README.md $root/docs/data.md $root/docs/fields.md $root/docs/training.md $root/docs/monitoring.md
$root/docs/large-models.md"
! ldconfig -p | grep -q libmicrohttpd || ! command -v curl >/dev/null || guide+=" $root/docs/serving.md"
# Its mpirun is the launcher of the tests, which ends one that hangs behind its job.
# shellcheck disable=SC2016
{ echo 'mpirun() { "$MPIEXEC" "$@"; }'; for page in $guide; do blocks "$page"; done; } >reader/script
[ "$(grep -c . reader/script)" -gt 20 ] && (cd reader && bash -ex script) >out 2>&1
status=$?
cp out training
ok $status "the README's way through one's own data runs as it is written"
[ -s reader/runs/first/summary.json ] && [ -s reader/scores.json ] && [ -s reader/predictions.h5 ] &&
    [ -s reader/bench.json ] && [ -s reader/runs/tuned/summary.json ]
ok $? "and leaves what it says"

awk '
    /^<!-- shows -->$/ { marked = 1; next }
    marked && /^```$/ { inside = 1; marked = 0; next }
    /^```/ { inside = 0 }
    inside && NF && $1 != "..."' $guide >shown
# figures FILE: of each line its numbers, shapes, names and paths, without the words between them
figures() {
    awk '{
        line = ""
        for (i = 1; i <= NF; i++) {
            w = $i
            gsub(/^[^A-Za-z0-9\/_-]+|[^A-Za-z0-9\/_%]+$/, "", w)
            if (w ~ /[0-9\/._]/) line = line " " w
        }
        if (line != "") print line
    }' "$1"
}
figures out >ran && figures shown >wanted && grep -vxFf ran wanted >out
[ -s wanted ] && [ ! -s out ]
ok $? "and prints the numbers, names and paths that the README shows"

# lines FILE: the progress and result lines of a run, each number as N, each time as N s and each rate as N/s, however
# fast the machine is: it may also be too slow for a rate in TFLOP/s. Only the README validates on other data than it
# tests on.
lines() {
    grep -E '^(epoch|test) ' "$1" |
        sed -E -e 's/[0-9][0-9.]*(e[+-][0-9]+)?/N/g; s/N ms/N s/g; s/N min N s|N h N min/N s/g; s/N[kM]\/s/N\/s/' \
            -e 's/ tflops +N//; s/ \(selected on these samples\)//' \
            -e 's/ETA +(N(:N)+|NdNh|-:--)/ETA N/; s/(data|comm) +-/\1 N%/g; s/  */ /g' |
        sort -u
}
awk '/^```/ { on = !on; next } on' "$root/README.md" >first &&
    lines first >wanted &&
    lines <(sed 's/\r/\n/g' training) >ran &&
    comm -23 wanted ran >out
[ "$(wc -l <wanted)" -ge 3 ] && [ ! -s out ]
ok $? "the README has the lines that a run prints"

ok_records reader/runs/first RANKS

grep -qx "version: $("$TRAINER" --version | sed 's/^trainer //; s/+.*//')" "$root/CITATION.cff"
ok $? "CITATION.cff has the version of the program"

# The examples of CONTRIBUTING.md compile.
code() {
    awk -v name="$1" '
        $0 == "<!-- file: " name " -->" { marked = 1; next }
        marked && /^```c$/ { inside = 1; marked = 0; next }
        /^```/ { inside = 0 }
        inside' "$root/CONTRIBUTING.md"
}
compile() {
    cc -std=gnu11 -D_GNU_SOURCE -Wall -Wextra -Wno-unused-parameter -Werror -fsyntax-only -I"$root/include" \
        -I"$root/src" -I"$root/src/$1" -include "$2" -x c - >out 2>&1
}
if command -v cc >/dev/null; then
    { echo 'extern const tr_layer_t tr_layer_mlp;'; code src/model/layer_mlp.c; } >layer.c
    { echo 'extern const tr_optimizer_t tr_optimizer_heavyball;'; code src/optim/optim_heavyball.c; } >optimizer.c
    [ "$(wc -l <layer.c)" -gt 20 ] && compile model layer_int.h <layer.c &&
        [ "$(wc -l <optimizer.c)" -gt 10 ] && compile optim optim_int.h <optimizer.c
    ok $? "the layer and the optimizer in CONTRIBUTING.md compile"
fi
echo "1..$n"
