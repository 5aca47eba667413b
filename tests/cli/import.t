#!/usr/bin/env bash
# trainer import and trainer repack as a user calls them.
. "${TRAINER_ROOT:?is set by the runner: make test k=cli/import}/tests/support/common.sh"

call 0 import synthetic digits d.h5 --samples 600 --seed 4 && grep -q '^d.h5: 700 ' out && [ ! -s err ] && [ -s d.h5 ]
ok $? "import synthetic digits"
cp d.h5 before
call 78 import synthetic digits d.h5 --samples 60 && grep -q -- '--force' err && cmp -s d.h5 before
ok $? "an existing file stays"
call 0 import synthetic digits d.h5 --samples 60 --force && ! cmp -s d.h5 before
ok $? "unless --force is given"
call 2 import && grep -q 'import mnist DIR OUT.h5' err &&
    call 2 import mist a b &&
    call 2 import csv a &&
    call 2 import csv a b c d &&
    call 2 import csv a b --what &&
    call 2 import csv a b --testfraction 0.1 && names err '--testfraction & --test-fraction' &&
    call 0 import csv --help && grep -q 'import csv IN.csv OUT.h5' out
ok $? "wrong calls end with code 2 and say what there is"

printf 'a,b,kind\n1,2,x\n3,4,y\n5,6,x\n' >t.csv
call 0 import csv t.csv t.h5 &&
    call 65 import csv d.h5 e.h5 && [ ! -e e.h5 ] &&
    call 66 import csv none.csv e.h5 &&
    call 66 import mnist . e.h5
ok $? "import csv; bad and missing input"

rm t.h5 &&
    call 0 import csv t.csv t.h5 && names err "3 & 'kind' & --label" &&
    rm t.h5 &&
    call 0 import csv t.csv t.h5 --label kind && ! grep -q -- --label err
ok $? "it says which column is the label"
for at in 3 -1; do call 0 import csv t.csv t.h5 --force --label $at && names err "3 & 'kind'" || break; done &&
    call 0 import csv t.csv t.h5 --force &&
    printf 'a,b,c\n1,2,3\n4,5,6\n' >abc.csv &&
    call 0 import csv abc.csv abc.h5 --label -2 && names err "2 & 'b'" &&
    call 78 import csv t.csv e.h5 --label 0 && names err "'0' & 1 & -1" &&
    call 78 import csv t.csv e.h5 --label 4 &&
    call 65 import csv t.csv e.h5 --regression && names err "2 & --regression & 3 & 'x'" && [ ! -e e.h5 ] &&
    call 0 import csv t.csv t.h5 --force
ok $? "columns count from 1; --regression refuses texts"

call 2 import csv t.csv t.v2.csv && names err "'t.v2.csv' & 't.v2.h5'" && [ ! -e t.v2.csv ] &&
    call 2 import text t.csv all.txt --tokenizer bytes && names err "'all.h5'"
ok $? "an output with the name of another format"

said() { printf "$1" >odd.csv && call 65 import csv odd.csv e.h5 && names err "$2" && [ ! -e e.h5 ]; } # ROWS NAMES
said 'a,b,kind\n1,,x\n' "'odd.csv' & 2 & --drop" &&
    said 'a,b,kind\n1,NA,x\n2,3,y\n,,z\n' "1 ('a') & 1 & 3 & line 4 & 2 ('b') & 2 & line 2 & --missing" &&
    said 'a,b,kind\n1,red,x\n2,3,y\n' "2 & 'red' & --one-hot & --drop" &&
    said 'a,price\n1,12.5\n2,NA\n3,14\n' "2 ('price') & 1 & 3 & line 3" &&
    said 'price,kind\n$12,x\n$15,y\n' "1 ('price') & '\$12' & --one-hot" &&
    said 'price,kind\n€ 12,x\n€ 15,y\n' "1 ('price') & --one-hot"
ok $? "a cell without a number: what to do"

said 'a;b;kind\n1,5;2;x\n' "'odd.csv' & 1 & --delimiter" &&
    said 'a;b,c;kind\n1,5;2,0;x\n' "2 & 3" &&
    said '"1,5",2,x\n"2,5",2,y\n' "1 & '1,5' & --decimal" &&
    said 'a,y\n1,"2,5"\n2,3\n' "2 & '2,5' & --decimal" &&
    said '# made up\na,b,kind\n1,2,x\n' "'odd.csv' & '#'" &&
    said '# made, up\na,b,kind\n1,2,x\n' "3 & 2 & '#'" &&
    call 65 import csv d.h5 e.h5 && names err "'d.h5' & HDF5 & data.train"
ok $? "what is no table with commas"

# read_as OPTIONS: the table odd.csv becomes what t.csv did
read_as() {
    call 0 import csv odd.csv odd.h5 --force "$@" && grep -q '^y: 2 .*(x, y)$' out &&
        call 0 data odd.h5 &&
        train >odd &&
        call 0 data t.h5 &&
        train | cmp -s - odd
}
train() { sed -n 's|[0-9.]* [KMG]*i*B/s||; /^train:/,$p' out; }
printf 'a;b;kind\n1,0;2;x\n3;4e0;y\n50,0e-1;6,00;x\n' >odd.csv &&
    read_as --delimiter ';' --decimal , &&
    printf 'a\tb \tkind\n1\t2\tx\n3\t"4"\ty\n 5\t6\tx\n' >odd.csv &&
    read_as --delimiter tab &&
    read_as --delimiter '\t' &&
    printf '"1,0",2,x\n3,4,y\n"5,00",6,x\n' | sed '1i a,b,kind' >odd.csv &&
    read_as --decimal , &&
    printf 'a b kind\n1 2 x\n3 4 y\n5 6 x\n' >odd.csv &&
    read_as --delimiter ' '
ok $? "--delimiter and --decimal"

# said ROWS NAMES [OPTIONS]
said() { printf "$1" >odd.csv; call 65 import csv odd.csv e.h5 "${@:3}" && names err "$2" && [ ! -e e.h5 ]; }
said 'a;b;kind\n1,5;2;x\n' "2 & '1,5' & --decimal" --delimiter ';' &&
    said 'a;b;kind\n1.234,5;2;x\n' "2 & '1.234,5'" --delimiter ';' --decimal , &&
    said 'a;b;kind\n1.5;2;x\n' "2 & '1.5' & --decimal" --delimiter ';' --decimal , &&
    said 'a;y\n1;2,5\n2;3,5\n' "2 & '2,5' & --decimal" --delimiter ';' &&
    said 'a,b,kind\n1,2,x\n' "1 & --delimiter" --delimiter ';' &&
    said 'a\tb\n1\t\n' '2 & --label none' --delimiter tab &&
    call 2 import csv t.csv e.h5 --delimiter xx && names err "--delimiter & 'xx'" &&
    call 2 import csv t.csv e.h5 --delimiter '' &&
    call 2 import csv t.csv e.h5 --delimiter . &&
    call 2 import csv t.csv e.h5 --delimiter &&
    call 2 import csv t.csv e.h5 --decimal ';' && names err "--decimal & ';'"
ok $? "the wrong ones of them"
# thousands ROWS CELL [OPTIONS]: the message names a command, with which the table is read
thousands() {
    printf "$1" >odd.csv && call 65 import csv odd.csv e.h5 "${@:3}" && names err "'$2' & thousands" &&
        sed -n "s/.*(sed -E '\(.*\)').*/\1/p" err >remedy && sed -E "$(cat remedy)" odd.csv >mended.csv &&
        call 0 import csv mended.csv mended.h5 --force "${@:3}" && call 0 data mended.h5 && names out 'max 1.23457e+06'
}
thousands 'a,b,kind\n"1,234,567",2,"x, 1,000"\n"2,629",4,y\n"2,629",4,y\n' 1,234,567 &&
    grep -q '"x, 1,000"' mended.csv &&
    thousands 'a,y\n1,"2,629"\n2,"1,234,567.0"\n3,"4,000.5"\n' 2,629 --regression &&
    thousands 'a;b;kind\n1.234.567;2;x\n2.629,5;4;y\n' 1.234.567 --delimiter ';' --decimal , &&
    printf 'sep=;\na;y\n1,5;2\n' >odd.csv &&
    call 65 import csv odd.csv e.h5 && names err "--delimiter & ';' & --decimal"
ok $? "separators of thousands: a command removes them; sep= names both options"
printf 'note,day,y\n"a, b",2024-01-31,0\n"c, d",2024-02-01,1\n' >odd.csv && call 65 import csv odd.csv e.h5 &&
    names err '2024-01-31 & year,month,day' && ! grep -q awk err && sed 's/, / /; s/"//g' odd.csv >plain.csv &&
    call 65 import csv plain.csv e.h5 && sed -n 's/.*`\(awk .*\)` makes.*/\1/p' err >remedy && (. ./remedy) &&
    [ "$(sed -n 2p table.csv)" = 'a b,2024,01,31,0' ]
ok $? "dates: a command for tables without quotes only"

# useless COMMAND [FORMAT] IN OUT OPTION VALUE
useless() { call 2 "$@" && names err "${*: -2:1} & trainer \(repack\|import $2\)"; }
useless import mnist . e.h5 --label y &&
    useless import mnist . e.h5 --seed 3 &&
    useless import cifar10 . e.h5 --label y &&
    useless import csv t.csv e.h5 --classes 3 &&
    useless import synthetic digits e.h5 --decimal , &&
    useless repack t.h5 e.h5 --delimiter ';' &&
    useless repack t.h5 e.h5 --label y && [ ! -e e.h5 ]
ok $? "options that another format takes are refused"

many() { # ROW LABEL ROW LABEL NAMES
    { echo a,y; seq 5000 | sed "s/.*/1,&.5/; ${1}s/,.*/,$2/; ${3:-5000}s/,.*/,$4/"; } >odd.csv
    call 65 import csv odd.csv e.h5 && names err "$5"
}
many 4500 NA 4700 7 "'odd.csv' & line 4501 & 2 ('y') & 1 & 5000" &&
    many 4400 '"2,5"' 4900 - "4401 & 2 & '2,5' & --decimal" &&
    many 4200 red 4300 blue "4096 & 'red' & 4201 & --label"
ok $? "one label that is no number, behind thousands that are"

said 'a,b\n1,2.5\n2,-1e300\n' "3 & 2 & '-1e300'" &&
    said 'a,b\n4e38,2\n' "2 & 1 & '4e38'" &&
    said 'a,b\n1,1e400\n2,1.5\n3,2.5\n' "2 & '1e400'" &&
    said 'a,b\n1,inf\n2,1.5\n3,2.5\n' "2 & 'inf'"
ok $? "numbers beyond 32-bit floats"
seq -f '%.0f' 1700000000 1700000009 >times &&
    {
        echo time,id,near,late && awk '{ printf "%d,%.0f,%.1f,%.1f\n", $1, $1 * 1000, NR / 10, $1 + 0.5 }' times
    } >times.csv &&
    call 0 import csv times.csv times.h5 && [ "$(grep -c '^warning' err)" = 3 ] &&
    once err "^warning & 'times.csv' & 1 & 'time' & 1700000000 & 1700000009 & 32-bit & 9" &&
    once err "^warning & 2 & 'id'" && once err "^warning & 4 & 'late'" &&
    tail -n +2 times.csv | awk -F, '{ print $1 "," $2 "," $1 "," $4 "," $4 }' >more.csv &&
    call 0 import csv more.csv more.h5 && names err "^warning & 'more.csv' & 1" &&
    [ "$(grep -c '^warning' err)" = 4 ] &&
    tail -n 1 err >last && names last '^warning & 2' &&
    printf '123456.7,0.1,1.5\n123456.7,0.3,2.7\n' >few.csv &&
    call 0 import csv few.csv few.h5 && ! grep -q warning err
ok $? "columns that 32-bit floats round away get a warning, constant ones none"

printf '0,1,2\n1,2,0\n3,4,1\n' >pandas.csv &&
    call 0 import csv pandas.csv pandas.h5 && names err "^warning & 'pandas.csv' & 1 & 0, 1, 2" &&
    printf '0,1,1\n1,2,0\n' >pandas.csv &&
    call 0 import csv pandas.csv pandas.h5 --force && ! grep -q warning err &&
    printf 'country,2019,2020,2021\nA,5.5,6,7\nB,6,7,8.5\nA,7,8,9\n' >pandas.csv &&
    call 0 import csv pandas.csv pandas.h5 --force &&
    names err "^warning & 'pandas.csv' & 2019, 2020, 2021 & --header yes" &&
    call 0 import csv pandas.csv pandas.h5 --force --header yes && ! grep -q '^warning' err
ok $? "a first row that counts the columns gets a warning"
# y NAMES ARGUMENTS...: what the import says behind its first line has these names; none: it says no more
y() {
    local told=$1
    shift
    call 0 import "$@" --force &&
        sed 1d out >second &&
        if [ "$told" = none ]; then [ ! -s second ]; else [ "$(wc -l <second)" = 1 ] && names second "^y: & $told"; fi
}
printf '1,1.5\n2,2.5\n3,1\n4,3\n' >odd.csv &&
    y '2 & 0.790569' csv odd.csv odd.h5 &&
    printf '1,0\n2,2\n' >odd.csv &&
    y '3 & 0 & 2' csv odd.csv odd.h5 &&
    printf '1,3\n2,30\n' >odd.csv &&
    y '16.5 & data.classes=31' csv odd.csv odd.h5 &&
    y '1.5' csv odd.csv odd.h5 --label 1 --regression &&
    seq 300 | awk '{ print $1 "," $1 % 30 }' >odd.csv &&
    y '30 & 0 & 29 & --regression' csv odd.csv odd.h5 &&
    y '14.5' csv odd.csv odd.h5 --regression &&
    printf '1,3\n2,30\n' >odd.csv &&
    y none csv odd.csv odd.h5 --label none &&
    seq -w 14 | sed 's/.*/&,c&/' >odd.csv &&
    y '14 & c01, c02, c03 & c12, \.\.\.' csv odd.csv odd.h5 &&
    y '10 & 0, 1, 2, 3, 4, 5, 6, 7, 8, 9' synthetic digits odd.h5 --samples 6 &&
    y '7 & 0 & 6' synthetic images odd.h5 --samples 6 --classes 7 &&
    y '4 & background, disc, box, triangle' synthetic shapes odd.h5 --samples 6 &&
    y '3 & background, ball, box' synthetic shapes odd.h5 --samples 6 --shape 9x8x9 &&
    y 4 synthetic volumes odd.h5 --samples 6 --shape 4x4x4x1 --classes 0
ok $? "the last line says what y became"
values() { call 0 import synthetic images v.h5 --samples 30 --shape 4x4x1 --force "$@" && call 0 data v.h5 && train; }
values >seed0 && values --seed 0 | cmp -s - seed0 && values --seed 7 >seed7 && ! cmp -s seed7 seed0
ok $? "synthetic images are those of --seed"
printf '1,none\n2,none\n3,-\n4,x\n' >odd.csv && y '3 & -, none, x' csv odd.csv odd.h5 && once err "'odd.csv' & '-' & 1"
ok $? "a class with the name of a missing value is pointed out once"
# hidden VALUE: 200 rows, some of which have this value instead of one from 0 to 30
hidden() { seq 200 | awk -v v="$1" '{ print $1 % 7 "," ($1 % 20 ? $1 % 31 + 0.5 : v) "," $1 % 3 }' >odd.csv; }
hidden -999 && call 0 import csv odd.csv odd.h5 --force &&
    once err '^warning & column 2 & 10 & 200 & -999 & --missing' &&
    call 0 data odd.h5 && once out '^warning & 10 & 200 & -999 & missing_value' &&
    printf '[model]\nlayers = linear 3\n[data]\ntrain = odd.h5\nbatch_size = 50\n' >odd.ini &&
    call 0 plan odd.ini && once err '^warning & -999 & missing_value' &&
    hidden -50 && call 0 import csv odd.csv odd.h5 --force && ! grep -q '^warning' err
ok $? "a number that stands for missing values is pointed out"

# mixed N: 200 rows with labels 0 to 3, but for N of them from the 41st on
mixed() { seq 200 | awk -v n="$1" '{ print $1 "," (NR > 40 && NR <= 40 + n ? 2.5 : NR % 4) }' >mixed.csv; }
mixed 2 &&
    call 0 import csv mixed.csv mixed.h5 --force && names err "^warning & 'mixed.csv' & 198 & 200 & 2 & 41 & 2.5" &&
    call 0 data mixed.h5 && names out '^warning & mixed.h5:/train/y & 198 & 200 & 40 & 2.5 & data.classes = 0' &&
    call 0 data mixed.h5 data.classes=0 && ! names out '^warning & 198' &&
    call 65 data mixed.h5 data.classes=4 && names err '40 & 2.5 & data.classes' &&
    mixed 3 &&
    call 0 import csv mixed.csv mixed.h5 --force && ! grep -q warning err
ok $? "a few numbers among labels, which make all of them numbers, get a warning"

utf8='UTF-8 & iconv'
said 'a,b,kind\n1,2,warm\n3,4,K\374hl\n' "'odd.csv' & 3 & 0xfc & $utf8" &&
    said 'a,Gr\366\337e,kind\n1,2,x\n' "1 & 2 & 0xf6 & $utf8" &&
    said 'a\0,\0b\0\n\0001\0' '0x00 & iconv' &&
    said '\377\376a\0,\0b\0\n' 'UTF-16 & iconv'
ok $? "names in another encoding than UTF-8"

printf '\357\273\277"a b",Gr\303\266\303\237e,kind\n1,2,K\303\274hl\n3,4,x\n' >mark.csv &&
    call 0 import csv mark.csv mark.h5 &&
    call 0 data mark.h5 && grep -q ' a b, Größe$' out &&
    printf '\357\273\2771,2,0\n3,4,1\n' >mark.csv &&
    call 0 import csv mark.csv mark.h5 --force
ok $? "names in UTF-8, behind a byte order mark"

long=$(printf 'ü%.0s' $(seq 40)) &&
    printf "a,b,kind\n1,x$long,2\n1,2,2\n" >odd.csv &&
    call 65 import csv odd.csv e.h5 &&
    iconv -f UTF-8 -t UTF-16 err >left && grep -q "'xü" err &&
    printf "1,x$long\n2,y$long\n" >odd.csv &&
    call 0 import csv odd.csv odd.h5 --force &&
    iconv -f UTF-8 -t UTF-16 out >left && grep -q '^y: 2 .*(xü' out
ok $? "long texts are cut between characters"

(ulimit -f 40; call 74 import synthetic images full.h5 --samples 2000 --shape 32x32x3) &&
    names err "train/x & full.h5 & File too large & ulimit -f" && [ ! -e full.h5 ] &&
    (ulimit -f 2; call 74 import csv t.csv full.h5) && ! grep -q HDF5 err && [ ! -e full.h5 ] &&
    call 66 import csv t.csv nowhere/t.h5 && names err "'nowhere/t.h5' & 'nowhere'"
ok $? "nowhere to write, and no room: the words of the system"
# divided ROWS OPTIONS...: of 40 rows; a group without rows is not there
divided() {
    local train valid test
    read -r train valid test <<<"$1"
    seq 40 | sed 's/.*/&,&/' >rows.csv && call 0 import csv rows.csv rows.h5 --force "${@:2}" &&
        call 0 data rows.h5 && for group in train:$train valid:$valid test:$test; do
        [ "$(grep -c "^  ${group%:*}/x (${group#*:}, 1)" out)" = 1 ] || [ "${group#*:}" = 0 ] || return 1
    done
}
divided '40 0 0' && divided '26 4 10' --test-fraction 0.25 &&
    divided '30 0 10' --test-fraction 0.25 --valid-fraction 0 &&
    divided '20 20 0' --valid-fraction 0.5 && call 78 import csv rows.csv e.h5 --test-fraction 0.01 &&
    names err "'rows.csv' & --test-fraction & 0.01 & 40"
ok $? "import csv: the groups train, valid and test"
mkdir own &&
    head -c 3073 /dev/zero >own/data_batch_1.bin &&
    for f in data_batch_2 data_batch_3 data_batch_4 data_batch_5 test_batch; do
        cp own/data_batch_1.bin own/$f.bin
    done &&
    printf 'none' >own/train-images-idx3-ubyte
kept() { cp "$1" tenth; call 2 "${@:2}" --force && names err "'$1'" && cmp -s "$1" tenth; } # FILE ARGUMENTS
ln t.csv same.csv &&
    kept t.csv import csv t.csv ./t.csv &&
    kept t.csv import csv t.csv same.csv &&
    kept own/test_batch.bin import cifar10 own own/test_batch.bin &&
    kept own/train-images-idx3-ubyte import mnist own own/train-images-idx3-ubyte &&
    kept d.h5 repack d.h5 d.h5 && [ "$(ls own | wc -l)" = 7 ]
ok $? "a file that is read is never replaced, not by --force either"

printf 'a,b\n1,2\n7,8\32\0' >new.csv # with the end of a file of old programs
cat >net.ini <<'INI'
[model]
layers = linear 2
[data]
train = t.h5
batch_size = 2
micro_batch = 1
[train]
steps = 2
INI
call 0 net.ini run.dir=run &&
    call 0 import csv new.csv new.h5 --label none && [ ! -s err ] &&
    call 0 predict net.ini run new.h5 out.h5 && names out '^2 & new.h5:/train/x & x f32 (2)'
ok $? "a table without labels: --label none, and predictions for it"

call 65 predict net.ini new.h5 run none.h5 && names err 'new.h5 & HDF5' &&
    call 66 predict net.ini run none.h5 no.h5 && names err "'none.h5'"
ok $? "arguments of predict in each other's place, and data that are not there"
printf '1,0\n2,1\n3,0\n4,1\n' >two.csv &&
    printf '1,0\n2,1\n3,2\n4,2\n' >three.csv &&
    call 0 import csv two.csv two.h5 &&
    call 0 import csv three.csv three.h5 &&
    call 65 plan net.ini data.train=two.h5 data.test=three.h5:train &&
    names err 'data.test & three.h5 & 0 to 2 & data.train & two.h5 & 0, 1 & data.classes = 3' &&
    call 78 plan net.ini data.train=two.h5 data.test=three.h5:train data.classes=3 &&
    names err 'data.y & 3 & 2 & linear 3' &&
    call 78 plan net.ini data.train=two.h5 model.layers='linear 5' && names err 'data.y & 2 & linear 2'
ok $? "more classes than outputs, or in a test than in the training"

# wide COLUMNS ROWS: a table with columns of unlike scales and the sign of the first as the label
wide() {
    awk -v columns="$1" -v rows="$2" 'BEGIN {
        srand(3)
        for (i = 0; i < rows; i++) {
            for (c = 0; c < columns; c++) {
                z = 2 * rand() - 1
                if (!c) first = z
                printf "%.7g,", 10 ^ (c % 5) * (z + c % 4)
            }
            print (first > 0)
        }
    }'
}
printf '[model]\nlayers = linear 2\n[data]\nbatch_size = 20\n[optimizer]\nlr = 0.3\n[train]\nepochs = 40\n' >wide.ini
wide 100 400 >wide.csv &&
    call 0 import csv wide.csv wide.h5 && ! grep -q warning err &&
    call 0 data wide.h5 && grep -q ' mean .*, \.\.\.' out && ! grep -q warning out &&
    call 0 wide.ini run.dir=wide data.train=wide.h5 && ! grep -q warning err &&
    call 0 eval wide.ini wide data.test=wide.h5:train &&
    awk '$1 == "accuracy" { good = $2 > 90 } END { exit !good }' out
ok $? "a hundred columns of unlike scales have each its mean and deviation"

wide 4096 20 >wide.csv &&
    call 0 import csv wide.csv wide.h5 --force &&
    call 0 wide.ini run.dir=wider data.train=wide.h5 train.epochs=2 && ! grep -q warning err &&
    call 0 eval wide.ini wider data.test=wide.h5:train &&
    call 0 wide.ini run.dir=wider data.train=wide.h5 train.epochs=3
ok $? "so have 4096, also from a checkpoint"

wide 4097 20 >wide.csv &&
    call 0 import csv wide.csv wide.h5 --force &&
    names err '^warning & mean & std & 4096 & 4097 & data.mean=compute' &&
    call 0 data wide.h5 && names out '^warning & data.mean=compute & data.std=compute' &&
    call 0 plan wide.ini data.train=wide.h5 && names err 'warning & data.mean=compute' &&
    call 0 wide.ini run.dir=widest data.train=wide.h5 train.epochs=2 data.mean=compute data.std=compute &&
    ! grep -q warning err &&
    call 0 eval wide.ini widest data.test=wide.h5:train &&
    call 0 wide.ini run.dir=widest data.train=wide.h5 train.epochs=3 data.mean=compute data.std=compute
ok $? "more have not, and it is said where they are imported, looked at and trained on; they can be computed"

call 0 plan wide.ini data.train=t.h5 data.x=train/y data.y=train/x data.classes=0 model.layers='linear 2' \
    data.batch_size=2 &&
    names err "^warning & t.h5 & 'mean' & 2 & /train/y & 1"
ok $? "attributes that do not fit are not passed over in silence"
wide 3 40 >wide.csv &&
    call 0 import csv wide.csv join1.h5 && awk -F, '{ print $1 "," $2 + 9 "," $3 "," $4 }' wide.csv >odd.csv &&
    call 0 import csv odd.csv join2.h5 &&
    said="^warning & join2.h5 & 'mean' & join1.h5" &&
    call 0 data 'join*.h5' && names out "$said" &&
    call 0 plan wide.ini data.train='join*.h5' && once err "$said" &&
    call 0 plan wide.ini data.train='join*.h5' data.mean=0 data.std=9 && ! names err "^warning & join2.h5" &&
    call 0 data 'join1*.h5' && ! names out "^warning & 'mean'"
ok $? "joined files with other means than the first are pointed out"

awk -F, '{ print $1 "," $2 * 40 "," $3 "," $4 }' wide.csv >odd.csv && call 0 import csv odd.csv far.h5 &&
    call 0 plan wide.ini data.train=join1.h5 data.valid=far.h5:train &&
    once err '^warning & far.h5 & channel 1 & mean' &&
    call 0 plan wide.ini data.train=join1.h5 data.valid=join2.h5:train && ! grep -q warning err
ok $? "so are validation data whose values differ by far from the training data"

call 0 data out.h5 data.x=probability data.y=prediction data.classes=2 &&
    grep -qE 'labels +/prediction, 2 [a-z]+: x: [0-2], y: [0-2]$' out
ok $? "predictions keep the names of the classes"
call 0 import csv new.csv wrong.h5 &&
    call 65 predict net.ini run wrong.h5 none.h5 && names err '2 & wrong.h5 & 1 & --label none' &&
    call 66 eval net.ini run data.test=t.h5 && names err '/train/x & FILE:train' &&
    call 0 eval net.ini run data.test=t.h5:train
ok $? "data that do not fit, and data of another split, are told"
printf 'a,b,k\n1,2,1\n3,4,2\n5,6,1\n' >from1.csv &&
    call 0 import csv from1.csv from1.h5 &&
    call 0 data from1.h5 && names out '^warning & from1.h5 & 0 & 1 & 2 & 3' &&
    call 0 data t.h5 && ! names out '^warning & t.h5'
ok $? "labels that count from 1 are pointed out"
# refused CODE NAMES ARGUMENTS...: by two ranks with one error
refused() {
    local code=$1 named=$2
    shift 2
    "$MPIEXEC" -np 2 "$TRAINER" "$@" >out 2>err
    [ $? = "$code" ] && [ "$(grep -c 'trainer: error' err)" = 1 ] && names err "trainer: error & $named"
}
printf 'a,b,kind\n1,2,w\n3,4,x\n5,6,y\n' >tall.csv &&
    printf 'a,b,kind\n3,4,y\n1,2,x\n' >yx.csv &&
    printf 'a,b,kind\n3,4,y\n5,6,y\n' >y.csv &&
    printf 'a,b,kind\n1,2,0\n3,4,1\n' >bare.csv &&
    for f in tall yx y bare; do call 0 import csv $f.csv $f.h5; done
other="0 & 'x' & class_names: x, y & 'w' & tall.h5 & class_names: w, x, y"
cp t.h5 p1.h5 &&
    cp tall.h5 p2.h5 &&
    refused 65 "${other/tall/p2}" net.ini run.dir=no 'data.train=p?.h5:train' &&
    refused 65 "$other" net.ini run.dir=no data.valid=tall.h5:train &&
    refused 65 "$other" net.ini run.dir=no data.test=tall.h5:train &&
    refused 65 "0 & 'x' & t.h5 & 'y' & y.h5 & class_names: y" net.ini run.dir=no data.test=y.h5:train && [ ! -e no ]
ok $? "files and splits that number their classes otherwise are refused"

refused 65 "0 & 'x' & step-00000002 & class_names: x, y & 'y' & y.h5" eval net.ini run data.test=y.h5:train &&
    refused 65 "step-00000002 & 'y' & y.h5" net.ini run.dir=run data.train=y.h5 data.classes=2
ok $? "so are data of another import for a checkpoint, to score or to go on with"
call 0 eval net.ini run data.test=yx.h5:train &&
    call 0 eval net.ini run data.test=bare.h5:train &&
    call 0 predict net.ini run t.h5 all.h5 && ! grep -q warning err &&
    call 0 predict net.ini run tall.h5 all.h5 --force && once err 'warning & tall.h5'
ok $? \
    "the same classes in another order of rows, data without names, and inputs to predict for, with a warning, are not"
call 0 data t.h5 && grep -q ' a, b$' out &&
    rm -rf stored.h5 &&
    call 0 repack t.h5 stored.h5 &&
    call 0 data stored.h5 && grep -q ' a, b$' out &&
    grep -A 3 '"feature_names"' run/checkpoints/latest/state.json | grep -q '"b"'
ok $? "names of columns are kept, also by repack and checkpoints"

printf 'b,a,kind\n1,2,x\n3,4,y\n' >ba.csv &&
    printf '1,2,x\n3,4,y\n' >headless.csv &&
    printf 'b,a\n1,2\n' >new_ba.csv &&
    call 0 import csv ba.csv tba.h5 &&
    call 0 import csv headless.csv headless.h5 &&
    call 0 import csv new_ba.csv new_ba.h5 --label none
other="0 & 'a' & feature_names: a, b & 'b' & [^ ]*.h5 & feature_names: b, a"
cp t.h5 q1.h5 &&
    cp tba.h5 q2.h5 &&
    refused 65 "$other" net.ini run.dir=no 'data.train=q?.h5:train' &&
    refused 65 "$other" net.ini run.dir=no data.valid=tba.h5:train &&
    refused 65 "$other" eval net.ini run data.test=tba.h5:train &&
    refused 65 "$other" predict net.ini run new_ba.h5 no.h5 && [ ! -e no.h5 ] &&
    refused 65 "step-00000002 & 'b' & tba.h5" net.ini run.dir=run data.train=tba.h5
ok $? "columns in another order are refused: in splits, and for a checkpoint"

printf '# a, b, kind\n1,2,x\n3,4,y\n' >hash.csv &&
    call 0 import csv hash.csv hash.h5 &&
    call 0 eval net.ini run data.test=headless.h5:train &&
    call 0 eval net.ini run data.test=hash.h5:train
ok $? "columns without names, or with a header written as a comment, are not"
printf 'a,b,kind\n1,2,Kxhl\n3,4,warm\n' >ascii.csv &&
    call 0 import csv ascii.csv ascii.h5 &&
    LC_ALL=C sed 's/Kxhl/K\xfchl/' ascii.h5 >latin.h5 && ! cmp -s ascii.h5 latin.h5 &&
    call 0 net.ini run.dir=latin data.train=latin.h5 &&
    call 0 eval net.ini latin data.test=latin.h5:train
ok $? "names that are not UTF-8 are left out of a checkpoint, all of them"

refused 65 '2 & wrong.h5 & 1' eval net.ini run data.test=wrong.h5:train data.mean=0 data.std=1
ok $? "another number of columns is told before the weights that do not fit"
call 0 repack d.h5 r.h5 --chunk 4k &&
    call 78 repack d.h5 r.h5 &&
    call 65 repack t.csv s.h5 &&
    call 66 repack none.h5 s.h5 && [ ! -e s.h5 ]
ok $? "repack"
printf '1,2\n3,4\n' >bare.csv &&
    call 0 import csv bare.csv set_x.h5 --label none &&
    cp d.h5 set_y.h5 &&
    call 2 repack set_x.h5 other.h5 && names err 'set_y.h5 & NAME_x.h5' && [ ! -e other.h5 ] &&
    call 0 repack set_x.h5 new_x.h5 && names err 'set_y.h5 & new_y.h5' && [ -s new_x.h5 ] && [ -s new_y.h5 ] &&
    cp d.h5 set_x.h5 &&
    call 0 repack set_x.h5 other.h5 && names err 'set_y.h5 & set_x.h5 & /train/y' && [ ! -e other_y.h5 ]
ok $? "repack takes the file of labels along"

slow="FAIL_CALL=write FAIL_ON=big.h5 FAIL_AT=0 FAIL_HOW=sleep:500"
many="import synthetic digits big.h5 --samples 20000"
interrupted TERM 143 big.h5 import $many && interrupted INT 130 big.h5 import $many
ok $? "TERM and Ctrl-C: no half of a file is left, and the shell sees the signal"

if [ "$(id -u)" != 0 ]; then
    mkdir locked && chmod 500 locked
    call 77 import synthetic digits locked/d.h5
    ok $? "no permission"
fi
left=$(ls | grep -c part)
[ "$left" = 0 ]
ok $? "nothing half done is left"

mnist=${TRAINER_TEST_DATA:-}/mnist
if [ -d "$mnist" ]; then
    call 0 import mnist "$mnist" mnist.h5 && grep -q '^mnist.h5: 70000 ' out && names out '^y: & 10 & 0 & 9'
    ok $? "import mnist"
else
    skip "import mnist" "no data in TRAINER_TEST_DATA"
fi
echo "1..$n"
