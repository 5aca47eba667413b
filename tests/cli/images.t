#!/usr/bin/env bash
# trainer import images: JPEG and PNG files in a folder per class, and training on what it writes.
. "${TRAINER_ROOT:?is set by the runner: make test k=cli/images}/tests/support/common.sh"

"$BUILD/tests/cli/make_images" .
[ $? != 77 ] || { echo "skipped: built without libjpeg or libpng"; exit 77; }
call 2 import images set s.h5 && names err "--size & 'set/bars/00.jpg' & 40 & 30" && [ ! -e s.h5 ]
ok $? "pictures of different sizes: --size is named"
call 0 import images set s.h5 --size 24x20 && grep -q '^s.h5: 48 images' out &&
    grep -q '^y: 2 .*(bars, rings)$' out && [ ! -s err ] &&
    call 0 data s.h5 && names out "train & 44 & 24 & 20 & 3" && names out "valid & 4"
ok $? "both formats, grey and colour, a part for validation"
call 0 import images set g.h5 --size 24x20 --grey --valid-fraction 0.5 &&
    call 0 data g.h5 && names out "train & 24 & 24 & 20 & 1"
ok $? "--grey: one channel"
# HDF5 stores when objects were made: a few bytes differ.
changed() { cmp -l s.h5 "$1" | wc -l; }
call 0 import images set again.h5 --size 24x20 && [ "$(changed again.h5)" -lt 300 ] &&
    call 0 import images set other.h5 --size 24x20 --seed 1 && [ "$(changed other.h5)" -gt 3000 ]
ok $? "the order is that of --seed"
mkdir parts &&
    cp -r set parts/train &&
    cp -r set parts/val &&
    call 0 import images parts p.h5 --size 8x8 &&
    call 0 data p.h5 && names out "train & 48" && names out "valid & 48"
ok $? "folders train and val become groups"

mkdir parts/val/dots &&
    cp set/bars/01.png parts/val/dots &&
    call 65 import images parts q.h5 --size 8x8 && names err "'parts/val/dots' & 'dots'" && [ ! -e q.h5 ]
ok $? "a class that the training data lack"

# bad NAME COMMAND...: one file is spoilt by the command; the error names it, and nothing is left
bad() {
    local file=bad/rings/$1; shift
    rm -rf bad &&
        cp -r set bad &&
        "$@" &&
        call 65 import images bad b.h5 --size 16x16 && names err "'$file'" && [ -z "$(ls b.h5* 2>/dev/null)" ]
}
bad 05.png truncate -s 200 bad/rings/05.png &&
    bad 06.jpg truncate -s 400 bad/rings/06.jpg &&
    bad 06.jpg truncate -s 0 bad/rings/06.jpg &&
    bad 05.png cp "$0" bad/rings/05.png
ok $? "damaged files are named"

rm -rf bad &&
    cp -r set bad &&
    mkdir bad/empty &&
    call 65 import images bad b.h5 --size 16x16 && names err "'bad/empty'" &&
    rmdir bad/empty &&
    : >bad/rings/notes.txt &&
    call 0 import images bad b.h5 --size 16x16 && names err "'bad/rings/notes.txt'"
ok $? "a folder without pictures; other files"

call 66 import images none b2.h5 &&
    call 65 import images bad/rings b2.h5 &&
    call 2 import images set b2.h5 --size 16 && names err "--size & '16'"
ok $? "no folder, no classes, a wrong size"

cat >net.ini <<'END'
[data]
train = s.h5
batch_size = 16
[model]
layers = conv 8 3 pad=same, relu, maxpool 2, conv 16 3 pad=same, relu, globalpool, linear 2
[train]
epochs = 12
[optimizer]
type = adam
lr = 0.01
END
call 0 net.ini run.dir=run threads=1 &&
    awk '$1 == "\"valid_accuracy\":" { good = $2 + 0 >= 0.95 } END { exit !good }' run/summary.json
ok $? "a network learns to tell the classes"

python=$(python_with 'PIL, h5py, numpy')
if [ -n "$python" ]; then
    mkdir -p one/a && cp plain.png one/a && for size in 20x31 64x96 37x53; do
        call 0 import images one $size.h5 --size $size --valid-fraction 0 || break
        "$python" - $size >out 2>err <<'END' || break
import sys, h5py, numpy, PIL.Image
size = sys.argv[1]
height, width = map(int, size.split("x"))
ours = h5py.File(size + ".h5")["train/x"][0].astype(int)
theirs = numpy.asarray(PIL.Image.open("plain.png").resize((width, height), PIL.Image.BILINEAR)).astype(int)
print(size, abs(ours - theirs).max())
sys.exit(abs(ours - theirs).max() > 1)
END
    done
    ok $? "sizes as PIL's, to one level"
else
    skip "sizes as PIL's" "no python with PIL and h5py"
fi

# Files as they are: a run on images of 16 x 16, folders and lists to predict and to score
printf '[model]\nlayers = flatten, linear 2\n[data]\ntrain = f.h5\nbatch_size = 8\n[train]\nepochs = 3\n' >f.ini &&
    call 0 import images set f.h5 --size 16x16 --no-shuffle --valid-fraction 0 && call 0 data f.h5 &&
    grep -q '^  train/file (48) strings' out && call 0 f.ini run.dir=files && call 0 predict files f.h5 h5.csv &&
    call 0 predict files set folder.csv && [ "$(head -n 1 folder.csv)" = \
    file,prediction,probability_bars,probability_rings ] &&
    cmp -s <(cut -d, -f1 folder.csv | tail -n +2) <(cd set && find . -type f | sed 's|^\./||' | LC_ALL=C sort) &&
    cmp -s folder.csv h5.csv
ok $? "predict on a folder: file names in order, the numbers of the imported images"
mkdir flat && (cd set && find . -type f) | LC_ALL=C sort -r | while read -r f; do
    cp "set/$f" "flat/${f:2:1}${f##*/}" && echo "${f:2:1}${f##*/}"
done >flat/list.txt
call 0 predict files flat/list.txt list.csv && names out '48 & flat/list.txt' &&
    cmp -s <(cut -d, -f1 list.csv | tail -n +2) flat/list.txt &&
    cmp -s <(tail -n +2 list.csv | cut -d, -f2- | tac) <(tail -n +2 folder.csv | cut -d, -f2-)
ok $? "a list of files, in its order"
call 0 eval files data.test=set --json a.json && call 0 eval files data.test=f.h5:train --json b.json &&
    json "a['samples'] == 48 and a['accuracy'] == b['accuracy'] and abs(a['loss'] - b['loss']) < 1e-6" a.json b.json &&
    call 65 eval files data.test=flat && names err 'flat & bars, rings'
ok $? "eval on a folder with a folder for each class"
first=$(head -n 1 flat/list.txt) && truncate -s 200 "flat/$first" &&
    call 65 predict files flat c.csv && once err "trainer: error & flat/$first" && ! ls c.csv* >/dev/null 2>&1 &&
    call 0 predict files flat c.csv data.skip_corrupt=yes && once err "^warning & flat/$first" &&
    [ "$(wc -l <c.csv)" = 48 ] && ! grep -q "$first" c.csv &&
    mkdir none && call 65 predict files none d.csv && names err "'none' & .jpg" &&
    echo gone.png >gone.txt && call 66 predict files gone.txt d.csv && names err gone.png && [ ! -e d.csv ]
ok $? "a damaged file is named, or left out with data.skip_corrupt"
echo "1..$n"
