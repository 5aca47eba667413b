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
call 65 import text nul.txt o.h5 --force --tokenizer bytes && grep -q "'nul.txt'.*NUL" err &&
    call 65 import text latin.txt o.h5 --force --tokenizer chars && grep -q '0xE9.*UTF-8' err &&
    call 0 import text latin.txt latin.h5 --tokenizer bytes
ok $? "NUL bytes in text, and bytes that are not UTF-8 with chars"
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
    call 65 import tokens odd.bin o.h5 --force && grep -q "'odd.bin'.* token 1" err &&
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
echo "1..$n"
