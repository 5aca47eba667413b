#!/bin/bash
# trainer import text and tokens: kinds of files, documents, splits, tokenizers, what is refused.
. "${TRAINER_ROOT:?is set by the runner: make test k=cli/import_text}/tests/support/common.sh"
cd "$TMPDIR" || exit 2

# says COUNT TRAIN VALID DOCUMENTS VOCABULARY
says() { grep -q "^o.h5: $1 tokens" out && grep -q "^tokens: $2 for .*, $3 for .*, $4 document.* $5 (" out; }

printf 'hello world\n' >a.txt; printf 'second file' >b.txt; printf 'one<|endoftext|>two<|endoftext|>' >ends.txt
call 0 import text a.txt o.h5 --tokenizer bytes && says 12 10 2 1 257
ok $? "one file is one document; a tenth of it, rounded up, is for validation"
call 2 import text a.txt o.h5 && grep -q -- '--tokenizer' err &&
    call 78 import text a.txt o.h5 --tokenizer bytes && grep -q -- '--force' err
ok $? "a tokenizer is needed, and an existing file is kept"
call 0 import text a.txt b.txt o.h5 --force --tokenizer chars --valid-fraction 0 && says 24 24 0 2 15
ok $? "several files are several documents with an end of text between them"
call 0 import text ends.txt b.txt o.h5 --force --tokenizer bytes --valid-fraction 0 && says 19 19 0 3 257
ok $? "<|endoftext|> ends a document"
printf '{"text": "abc", "n": 1}\n\n{"text": ""}\n{"text": "d<|endoftext|>e"}' >l.jsonl &&
    gzip -k l.jsonl &&
    printf '{"body": "abc"}\r\n' >l.txt
call 0 import text l.jsonl o.h5 --force --tokenizer bytes --valid-fraction 0 &&
    says 7 7 0 3 257 &&
    call 0 import text l.jsonl.gz o.h5 --force --tokenizer bytes --valid-fraction 0 &&
    says 7 7 0 3 257 &&
    call 0 import text l.txt o.h5 --force --tokenizer bytes --valid-fraction 0 --field body &&
    says 3 3 0 1 257
ok $? "JSON lines, gzip or not, and --field"

gzip -k a.txt && call 0 import text a.txt.gz o.h5 --force --tokenizer bytes && says 12 10 2 1 257
ok $? "gzip"
: >empty.txt; cp o.h5 before
printf '{"text": "abc"}\n{"text": abc}\n' >bad.jsonl; printf '{"text": 1}\n' >number.jsonl; head -c 30 a.txt.gz >cut.gz
call 65 import text empty.txt o.h5 --force --tokenizer bytes && grep -q "'empty.txt' is empty" err &&
    call 65 import text bad.jsonl o.h5 --force --tokenizer bytes && grep -q "'bad.jsonl', line 2" err &&
    call 65 import text number.jsonl o.h5 --force --tokenizer bytes &&
    grep -q "'number.jsonl', line 1.*'text'" err &&
    call 65 import text a.txt cut.gz o.h5 --force --tokenizer bytes && grep -q "'cut.gz'" err &&
    call 66 import text none.txt o.h5 --force --tokenizer bytes && grep -q "'none.txt'" err &&
    call 65 import text ends.txt o.h5 --force --tokenizer bytes --valid-fraction 0.99 && grep -q '7 tokens' err
ok $? "empty, bad, cut and missing files"

printf 'ab\0c' >nul.txt; printf 'ab\351c' >latin.txt
call 65 import text nul.txt o.h5 --force --tokenizer bytes && names err "'nul.txt' & NUL & iconv" &&
    call 65 import text latin.txt o.h5 --force --tokenizer chars && grep -q '0xE9.*UTF-8' err &&
    call 0 import text latin.txt latin.h5 --tokenizer bytes
ok $? "NUL bytes in text, and bytes that are not UTF-8 with chars"
printf '\357\273\277hi\n' >mark.txt; printf '\357\273\277{"text": "abc"}\n' >mark.jsonl
printf '\377\376h\0i\0' >wide.txt; printf '\50\265\57\375rest' >t.zst; printf '\3757zXZ\0rest' >t.xz
printf 'BZh91AY&SYrest' >t.bz2; printf 'PK\3\4rest' >t.zip
printf 'PAR1\25rest' >t.parquet; printf 'ARROW1\0\0rest' >t.arrow
# refused KIND NAMES FILE: the message has the command that converts it
refused() { call 65 import "$1" "$3" o.h5 --force --tokenizer bytes && names err "'$3' & $2"; }
all_refused() {
    refused "$1" "zstd -d 't.zst'" t.zst && refused "$1" "xz -dk 't.xz'" t.xz &&
        refused "$1" "bunzip2 -k 't.bz2'" t.bz2 && refused "$1" "unzip 't.zip'" t.zip &&
        refused "$1" "pandas.read_parquet & jsonl" t.parquet && refused "$1" "pandas.read_feather & jsonl" t.arrow
}
all_refused text && all_refused tokens
ok $? "compressed files and those of other programs are refused with the command that converts them"
call 0 import text mark.txt o.h5 --force --tokenizer bytes --valid-fraction 0 && says 3 3 0 1 257 &&
    call 0 import text mark.jsonl o.h5 --force --tokenizer bytes --valid-fraction 0 && says 3 3 0 1 257 &&
    call 65 import text wide.txt o.h5 --force --tokenizer bytes && names err "'wide.txt' & iconv -f UTF-16" &&
    cp before o.h5
ok $? "a byte order mark is no token, and UTF-16 is refused with the command that converts it"
call 2 import text a.txt o.h5 --force --tokenizer gpt3 && grep -q "'gpt3'.*bytes, chars, gpt2:DIR" err &&
    call 66 import text a.txt o.h5 --force --tokenizer gpt2:nowhere && grep -q 'nowhere/vocab.json' err &&
    call 2 import text a.txt o.h5 --force --tokenizer bytes --label x &&
    call 2 import text a.txt a.txt --force --tokenizer bytes && [ "$(cat a.txt)" = 'hello world' ]
ok $? "bad options"
cmp -s o.h5 before && [ "$(ls | grep -c 'part\|tokens-')" = 0 ]
ok $? "what failed left the file as it was, and nothing beside it"

printf '\1\0\2\0' >a.bin; printf 'hello' >first.txt; printf 'hole' >second.txt; printf 'help' >third.txt
call 0 import text first.txt first.h5 --tokenizer chars --valid-fraction 0 &&
    call 0 import text second.txt second.h5 --tokenizer first.h5:/train --valid-fraction 0 &&
    grep -q '^tokens: 4 .* 5 (chars)$' out &&
    call 65 import text third.txt third.h5 --tokenizer first.h5 && grep -q "'p' (U+0070)" err &&
    call 0 import tokens a.bin plain.h5 --valid-fraction 0 &&
    call 65 import text second.txt third.h5 --tokenizer plain.h5 && grep -q 'plain.h5' err &&
    call 66 import text second.txt third.h5 --tokenizer none.h5
ok $? "the tokenizer of another token file"

printf '\1\0\2\0\377\377\3\0' >a.bin; printf '\1\0\2' >odd.bin; printf '\5\0' >b.bin
call 0 import tokens a.bin b.bin o.h5 --force --valid-fraction 0 &&
    grep -q '^tokens: 5 for .*, 0 for .*, 2 documents.* 65536$' out &&
    call 65 import tokens odd.bin o.h5 --force && names err "'odd.bin' & 3" &&
    call 65 import tokens odd.bin o.h5 --force --ids u16 && names err "'odd.bin' & 1 & 2" &&
    call 65 import tokens a.bin o.h5 --force --tokenizer bytes && grep -q "'a.bin'.* token 2 .* 65535.* 256" err &&
    call 65 import tokens empty.txt o.h5 --force &&
    call 2 import tokens a.bin o.h5 --force --tokenizer chars
ok $? "nanoGPT's token files"

# header TOKENS: of llm.c's files, version 1
header() { printf '\210\330\064\001\1\0\0\0'"\\$1"'\0\0\0'; head -c 1012 /dev/zero; }
{ header 3; printf '\1\0\0\1\2\0'; } >c.bin; { header 4; printf '\1\0\2\0'; } >short.bin
call 0 import tokens c.bin o.h5 --force --valid-fraction 0 --tokenizer bytes &&
    grep -q '^tokens: 3 for .*, 2 documents.* 257 (bytes)$' out &&
    call 65 import tokens short.bin o.h5 --force && grep -q "'short.bin' has 2 .* 4" err
ok $? "llm.c's token files"

cat >make.py <<'END'
import struct
# form(NAME, IDS): the bytes of ids with this name of struct
def form(name, ids): return struct.pack(name[0] + str(len(ids)) + name[1:], *ids)
def put(name, data): open(name, "wb").write(data)
def npy(name, kind, ids, shape=None):
    header = "{'descr': '%s', 'fortran_order': False, 'shape': %s, }" % (kind, shape or "(%d,)" % len(ids))
    header += " " * (117 - len(header)) + "\n"
    put(name, b"\x93NUMPY\x01\0" + struct.pack("<H", len(header)) + header.encode() + form(
        kind[0] + {"u2": "H", "u4": "I", "i4": "i", "i8": "q", "f4": "f"}[kind[1:]], ids))
ids = [65 * i * i % 4001 for i in range(400)]           # of a large vocabulary
few = [(i * i + i // 3) % 5 for i in range(400)]        # of a small one
text = [t % 97 + 32 for t in ids]                       # of bytes
for kind in "u2", "u4", "i4", "i8":
    npy("little-%s.npy" % kind, "<" + kind, ids)
    npy("big-%s.npy" % kind, ">" + kind, ids)
npy("flat.npy", "<u2", ids, "(20, 20)"); npy("real.npy", "<f4", ids); npy("minus.npy", "<i4", [1, -2])
put("cut.npy", open("little-u2.npy", "rb").read()[:-2])
forms = {"u16": "<H", ">u16": ">H", "u32": "<I", ">u32": ">I", "u64": "<Q", ">u64": ">Q"}
for name, values in ("ids", ids), ("few", few), ("text", text):
    for f, s in forms.items(): put("%s.%s" % (name, f), form(s, values))
put("far.u32", form("<I", [t * 30 for t in ids])); put("far.>u32", form(">I", [t * 30 for t in ids]))
put("short.u16", form("<H", [0, 1, 0, 2, 0, 3, 0, 4])); put("one.u16", form("<H", [256]))
put("ends.u16", form("<H", text[:50] + [256] + text[50:99] + [256])); put("same.u16", form("<H", [50256] * 99))
put("zeros.u16", bytes(99 * 2)); put("count.u16", form("<H", list(range(999)))); put("two.u16", form("<H", [1, 0] * 11))
put("m.bin", form("<i", ids)); put("m.idx", b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 4, 0, 0))
put("f.bin", form("<i", ids)); put("f.idx", b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 7, 0, 0))
put("old.bin", struct.pack("<256i", 20240520, 3, 2, *[0] * 253) + b"\1\0\2\0")
END
python3 make.py && call 0 import tokens ids.u16 right.h5 --valid-fraction 0
# same FILE [OPTION]...: its tokens are those of ids.u16. HDF5 stores when objects were made: a few bytes differ.
same() {
    call 0 import tokens "$@" o.h5 --force --valid-fraction 0 && says_tokens 400 4001 &&
        [ "$(cmp -l o.h5 "${wide:-right}.h5" | wc -l)" -lt 300 ]
}
says_tokens() { grep -q "^tokens: $1 for training, .* vocabulary of $2\$" out; }
same little-u2.npy && same big-u2.npy && call 0 import tokens little-u4.npy wide.h5 --valid-fraction 0 &&
    wide=wide same big-u4.npy && wide=wide same little-i4.npy && wide=wide same big-i4.npy &&
    wide=wide same little-i8.npy && wide=wide same big-i8.npy
ok $? "arrays of NumPy, of either byte order and each width"
call 65 import tokens flat.npy o.h5 --force && names err "'flat.npy' & <u2 & (20, 20) & numpy.save" &&
    call 65 import tokens real.npy o.h5 --force && names err "'real.npy' & <f4" &&
    call 65 import tokens minus.npy o.h5 --force && names err "'minus.npy' & 1 & -2" &&
    call 65 import tokens cut.npy o.h5 --force && names err "'cut.npy' & 399 & 400" &&
    call 2 import tokens big-u2.npy o.h5 --force --ids u16 && names err "'big-u2.npy' & --ids u16"
ok $? "arrays that are no ids, and --ids against a header"
# looks FORM RIGHT: files of this form are refused with its name, and read with it
looks() {
    for name in ids few text; do
        call 65 import tokens "$name.$1" o.h5 --force && names err "'$name.$1' & --ids '$1' & --ids u16" || return
    done
    wide=$2 same "ids.$1" --ids "$1"
}
looks u32 wide && looks '>u32' wide && looks u64 wide && looks '>u64' wide && looks '>u16' right &&
    call 65 import tokens far.u32 o.h5 --force && names err "'far.u32' & --ids 'u32'" &&
    call 65 import tokens 'far.>u32' o.h5 --force && names err "--ids '>u32'" &&
    call 0 import tokens ids.u32 o.h5 --force --ids u16 --valid-fraction 0 && says_tokens 800 4001 &&
    call 65 import tokens a.txt.gz o.h5 --force && names err "gunzip -k 'a.txt.gz'" &&
    call 2 import tokens ids.u16 o.h5 --force --ids u17 && names err "--ids & '>u16' & 'u17'" &&
    call 2 import tokens ids.u16 o.h5 --force --id u16
ok $? "ids that look otherwise than they are read: the message names --ids, which is believed"
is_read() { for f in "$@"; do call 0 import tokens "$f.u16" o.h5 --force --valid-fraction 0 || return; done; }
is_read ids short one ends same zeros count two few text
ok $? "short files, small vocabularies, one id and texts of bytes are read"
call 65 import tokens make.py o.h5 --force && names err "'make.py' & trainer import text & --ids u16" &&
    call 0 import tokens make.py o.h5 --force --ids u16
ok $? "a text is no token file"
wide=wide same m.bin && call 65 import tokens m.idx o.h5 --force && names err "'m.idx' & NAME.bin" &&
    call 65 import tokens f.bin o.h5 --force && names err "'f.bin' & f.idx & 7 & --ids" &&
    wide=wide same f.bin --ids u32 && call 65 import tokens old.bin o.h5 --force && names err "'old.bin' & 3 & 1"
ok $? "token files with an index beside them, and another version of llm.c's"
echo "1..$n"
