/* Token files of other programs: how their ids are stored. */
#ifndef TR_DATATOOLS_TOKEN_SOURCE_H
#define TR_DATATOOLS_TOKEN_SOURCE_H

#include "trainer/status.h"
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

typedef struct {
    int bytes; /* of an id: 1, 2, 4 or 8 */
    bool is_big_endian, is_signed;
    int64_t count; /* ids that the header states; -1: the ids end with the file */
} tr_token_form_t;

/*
 * Determines how the ids of `file` are stored, and moves it to the first one. A header says it
 * (NumPy's .npy, llm.c's), or an index of Megatron-LM or fairseq beside the file (NAME.idx of
 * NAME.bin), or `ids`, the name of a form such as "u16" or ">u32". NULL: u16, as nanoGPT writes.
 * TR_ERR_DATA: another known format, or ids that are probably not u16; the message names the remedy.
 * TR_ERR_USAGE: no such form, or the header says otherwise.
 */
tr_status_t tr_token_form_find(FILE *file, const char *path, const char *ids, tr_token_form_t *out);

/* The id at `at`; an id beyond i64 becomes negative. */
static inline int64_t tr_token_form_id(const tr_token_form_t *form, const uint8_t *at) {
    const int unused = 64 - 8 * form->bytes;
    uint64_t id = 0;
    for (int b = 0; b < form->bytes; b++)
        id |= (uint64_t)at[form->is_big_endian ? form->bytes - 1 - b : b] << 8 * b;
    return form->is_signed ? (int64_t)(id << unused) >> unused : (int64_t)id;
}

#endif
