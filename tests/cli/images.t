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

two() { # FILE GROUP: imports both groups, and says what was left out
    call 0 import images parts "$1" --size 8x8 && once err "^warning & 2 & 'parts/extra/plain.png'" &&
        call 0 data "$1" && grep -q "^$2: 48 samples" out
}
mv parts/train parts/Training && mv parts/val parts/TEST && mkdir parts/extra && cp plain.png parts &&
    cp plain.png parts/extra && two p2.h5 test && mv parts/TEST parts/Validation && two p3.h5 valid &&
    cp -r parts/Validation parts/val &&
    call 65 import images parts q.h5 --size 8x8 && names err "'Validation' & 'val'" && rm -r parts/Validation &&
    mv parts/val parts/other && call 65 import images parts q.h5 --size 8x8 &&
    names err "'Training' & 'parts/extra'" && mv parts/other parts/Test && mv parts/Training parts/others &&
    call 65 import images parts q.h5 --size 8x8 && names err "'Test' & FOLDER/train/CLASS/FILE" &&
    rm -r parts/extra parts/plain.png && mv parts/others parts/train && mv parts/Test parts/val
ok $? "groups are named in any case, and the names of two folders for one group are refused"
mkdir -p flatparts/Train flatparts/Test within/a/train within/a/test within/b and/train and/car &&
    for d in flatparts/Train flatparts/Test within/a/train within/a/test within/b and/train and/car; do
        cp plain.png $d
    done
mkdir -p segmented/images segmented/Masks && cp plain.png segmented/images && cp plain.png segmented/Masks &&
    call 65 import images segmented q.h5 && once err "trainer: error & 'segmented' & 'images' & 'Masks'" &&
    [ ! -e q.h5 ]
ok $? "folders of images and of their masks are no classes"
call 65 import images flatparts q.h5 && names err "'flatparts' & 'Train' & 'Test' & FOLDER/Train/CLASS/FILE" &&
    call 65 import images within q.h5 && names err "'within/a' & 'train' & 'test'" &&
    mkdir dogs && mv flatparts/Train dogs/train && mv flatparts/Test dogs/test1 &&
    call 65 import images dogs q.h5 && names err "'dogs' & 'train' & 'test1' & FOLDER/train/CLASS/FILE" &&
    mkdir up && mv within up && call 65 import images up q.h5 && names err "'within' & 'up/within'" &&
    call 0 import images and and.h5 && grep -q '^y: 2 classes (car, train)$' out
ok $? "training and test data without folders for classes are refused, a class named train is not"

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

rm -rf bad && cp -r set bad && truncate -s 200 bad/rings/05.png && : >bad/bars/02.jpg &&
    cp cmyk.jpg bad/bars/00.jpg && printf 'RIFF....WEBPVP8 ' >bad/rings/06.jpg && ln -s nowhere bad/rings/new.png &&
    call 65 import images bad b.h5 --size 16x16 &&
    names err "'bad/bars/00.jpg' & CMYK & mogrify & --skip-corrupt" &&
    call 0 import images bad whole.h5 --size 16x16 --skip-corrupt && grep -q '^whole.h5: 44 images' out &&
    once err "^warning & 5 & 49 & 'bad/bars/00.jpg' & 'bad/bars/02.jpg' & 'bad/rings/05.png'" &&
    rm bad/bars/00.jpg bad/bars/02.jpg && call 65 import images bad b2.h5 --size 16x16 &&
    rm bad/rings/05.png && call 65 import images bad b2.h5 --size 16x16 && names err "'bad/rings/06.jpg' & WebP" &&
    rm bad/rings/06.jpg && call 66 import images bad b2.h5 --size 16x16 &&
    names err "'bad/rings/new.png' & --skip-corrupt" && rm bad/rings/new.png &&
    mkdir only only/a && cp cmyk.jpg only/a && call 65 import images only b2.h5 --skip-corrupt && [ ! -e b2.h5 ]
ok $? "--skip-corrupt: files that cannot be decoded are left out and counted"
mkfifo bad/rings/pipe.png && ln -s ../.. bad/rings/up && ln -s . bad/rings/here &&
    mkdir -p bad/bars/p1/p2 bad/bars/.ipynb_checkpoints bad/__MACOSX && mv bad/bars/04.jpg bad/bars/p1/p2 &&
    mv bad/bars/06.jpg bad/bars/p1 && touch bad/.DS_Store bad/rings/Thumbs.db bad/bars/p1/x.WEBP bad/rings/y.tif &&
    cp plain.png bad && cp plain.png bad/bars/.ipynb_checkpoints && cp plain.png bad/__MACOSX &&
    call 0 import images bad deep.h5 --size 16x16 --no-shuffle --valid-fraction 0 &&
    grep -q '^deep.h5: 44 images' out && once err \
    "^warning & 'bad' & 2 & 'bad/bars/p1/x.WEBP' & mogrify -format png & 4 & 2 & 'bad/rings/here' & 'bad/plain.png'"
ok $? "images in deeper folders; links back, hidden files and other formats are left out, in one warning"
cp -r set deep16 && cp deep.png deep16/bars/00.jpg && call 0 import images deep16 d16.h5 --size 16x16 &&
    once err "^warning & 1 & 'deep16/bars/00.jpg' & 8 & 4096"
ok $? "16 bits per channel become 8, with a warning"

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
call 0 predict files set/bars/00.jpg one.csv && names out '^1 & set/bars/00.jpg' &&
    [ "$(tail -n +2 one.csv | cut -d, -f2-)" = "$(grep '^bars/00.jpg,' folder.csv | cut -d, -f2-)" ] &&
    call 0 eval files data.test=set/bars/00.jpg && call 66 predict files set/bars/none.jpg one.csv --force &&
    names err "'set/bars/none.jpg'"
ok $? "one image file"
call 0 eval files data.test=set --json a.json && call 0 eval files data.test=f.h5:train --json b.json &&
    json "a['samples'] == 48 and a['accuracy'] == b['accuracy'] and abs(a['loss'] - b['loss']) < 1e-6" a.json b.json &&
    cp plain.png set && call 0 eval files data.test=set --json c.json && rm set/plain.png && cmp -s a.json c.json &&
    once err "^warning & 'set' & 1 & 'set/plain.png'" &&
    call 65 eval files data.test=flat && names err 'flat & bars, rings'
ok $? "eval on a folder with a folder for each class"
call 0 f.ini run.dir=swapped data.label_values=1,0 && call 0 eval swapped data.test=set --json c.json &&
    call 0 eval swapped data.test=f.h5:train --json d.json &&
    json "a['accuracy'] == b['accuracy'] and abs(a['loss'] - b['loss']) < 1e-6" c.json d.json
ok $? "data.label_values in another order: names stay with their labels"
deep=nest/bars/p1/p2/p3/p4/rings
cp -r set nest && mkdir -p $deep && mv nest/bars/0*.png $deep && touch nest/bars/x.gif &&
    { printf '\357\273\277' && cd nest && find . -name '*g' | sed 's|^\./|../nest/|' && cd ..; } >flat/nest.txt &&
    call 0 import images nest nest.h5 --size 16x16 --valid-fraction 0 && grep -q '^nest.h5: 48 images' out &&
    call 0 eval files data.test=nest --json c.json && cat out >>err && once err "'nest/bars/x.gif'" &&
    json "abs(a['loss'] - b['loss']) < 1e-6 and a['accuracy'] == b['accuracy']" a.json c.json &&
    call 0 predict files nest nest.csv && [ "$(wc -l <nest.csv)" = 49 ] &&
    call 0 eval files data.test=flat/nest.txt --json d.json && json "a['samples'] == 48" d.json &&
    call 0 eval files data.test=set/bars --json e.json && json "a['samples'] == 24" e.json &&
    mkdir whole && mv nest whole && call 65 eval files data.test=whole && names err "bars, rings & 'whole' & 'nest'"
ok $? "deeper folders have the class of the first folder below, in a list that of the nearest class"
first=$(head -n 1 flat/list.txt) && truncate -s 200 "flat/$first" &&
    call 65 predict files flat c.csv && once err "trainer: error & flat/$first" && ! ls c.csv* >/dev/null 2>&1 &&
    call 0 predict files flat c.csv data.skip_corrupt=yes && once err "^warning & flat/$first" &&
    [ "$(wc -l <c.csv)" = 48 ] && ! grep -q "$first" c.csv &&
    mkdir none && call 65 predict files none d.csv && names err "'none' & .jpg" &&
    echo gone.png >gone.txt && call 66 predict files gone.txt d.csv && names err gone.png && [ ! -e d.csv ]
ok $? "a damaged file is named, or left out with data.skip_corrupt"
echo "1..$n"
