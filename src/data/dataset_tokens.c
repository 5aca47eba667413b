/*
 * Windows of a token stream. The stream is the concatenation of the tokens of all files, with an
 * end-of-text token between two files if the first does not end with one. With T =
 * settings->context, the inputs of window i are the tokens [i T, (i + 1) T), and the labels are the
 * tokens that follow each of them. Every token but the first is therefore a label of exactly one
 * window. Positions of the last window after the end of the stream have input 0 and label -1.
 */
#include "data/hdf5/hdf5_source.h"
#include "base/mem.h"
#include <stdio.h>
#include <string.h>

#define ROWS  16384 /* read at once */
#define PIECE 2048  /* tokens converted at once, on the stack */

/* The part of the stream in one file. */
typedef struct {
    int64_t first, rows;
    bool adds_end; /* the stream has an additional end-of-text token after this file */
} span_t;

typedef struct {
    tr_dataset_t base;
    h5_parts_t parts;
    span_t *span; /* [parts.count] */
    h5_direct_t *direct;
    h5_pool_t *pool;
    int64_t context, tokens, vocab_size, end; /* end -1: not known */
    char *tokenizer;
} tokens_t;

static void tokens_close(tr_dataset_t *dataset) {
    tokens_t *self = (tokens_t *)dataset;
    tr_h5_direct_close(&self->direct);
    tr_h5_lock();
    tr_h5_parts_close(&self->parts);
    tr_h5_unlock();
    tr_h5_pool_destroy(&self->pool);
    tr_free(&self->tokenizer);
    tr_free(&self->span);
    tr_free(&self);
}

/* -- reading ----------------------------------------------------------------------------------- */

static tr_status_t tokens_fail_id(const tokens_t *self, const h5_part_t *part, int64_t row,
                                  int64_t id) {
    return TR_FAIL(
        TR_ERR_DATA,
        "%s: /%s: token %lld has the id %lld; the vocabulary has the ids 0 to %lld. Import the "
        "text with the model's tokenizer, or set model.vocab_size.",
        part->file.path, part->x.name, (long long)row, (long long)id,
        (long long)self->vocab_size - 1);
}

/* Converts stored rows to ids; *out_bad: the first one out of range, -1: none. An id beyond i64
 * becomes negative. */
static void tokens_convert_ids(tr_dtype_t from, const void *rows, int64_t count, int64_t vocab_size,
                               int32_t *out, int64_t *out_bad) {
#define CONVERT(T)                                                                                 \
    for (int64_t i = 0; i < count; i++) {                                                          \
        const int64_t id = (int64_t)((const T *)rows)[i];                                          \
        if ((id < 0 || id >= vocab_size) && *out_bad < 0) *out_bad = i;                            \
        out[i] = (int32_t)id;                                                                      \
    }                                                                                              \
    break
    *out_bad = -1;
    switch (from) {
    case TR_U8: CONVERT(uint8_t);
    case TR_I8: CONVERT(int8_t);
    case TR_U16: CONVERT(uint16_t);
    case TR_I16: CONVERT(int16_t);
    case TR_U32: CONVERT(uint32_t);
    case TR_I32: CONVERT(int32_t);
    case TR_U64: CONVERT(uint64_t);
    default: CONVERT(int64_t);
    }
#undef CONVERT
}

/* The id of one stored row, for a message. */
static int64_t tokens_id_at(tr_dtype_t from, const void *rows, int64_t row) {
    double id;
    tr_convert(from, (const char *)rows + row * (int64_t)tr_dtype_bytes(from), 1, TR_F64, &id);
    return (int64_t)id;
}

/* A read: ids `begin` to `end` of the stream as inputs, and those that follow each as labels. x or
 * y NULL: skip. */
typedef struct {
    int64_t begin, end;
    int32_t *x, *y;
} window_t;

/* Writes ids of the stream from `position` to their places in the inputs and labels. */
static void tokens_put(const window_t *w, const int32_t *ids, int64_t position, int64_t count) {
    const int64_t inputs = min64(count, w->end - position), skip = position == w->begin;
    if (w->x && inputs > 0)
        memcpy(w->x + (position - w->begin), ids, (size_t)inputs * sizeof *w->x);
    if (w->y && count > skip)
        memcpy(w->y + (position - w->begin) - 1 + skip, ids + skip,
               (size_t)(count - skip) * sizeof *w->y);
}

/* Converts rows of a part, which start at `position` of the stream, piece by piece. */
static tr_status_t tokens_put_rows(const tokens_t *self, int p, const window_t *w, int64_t position,
                                   int64_t count, const char *rows) {
    const h5_part_t *part = &self->parts.data[p];
    int32_t ids[PIECE];
    int64_t bad;
    for (int64_t at = 0; at < count; at += PIECE) {
        const int64_t some = min64(PIECE, count - at);
        const char *from = rows + at * (int64_t)tr_dtype_bytes(part->x.dtype);
        tokens_convert_ids(part->x.dtype, from, some, self->vocab_size, ids, &bad);
        if (bad >= 0)
            return tokens_fail_id(self, part, position + at + bad - self->span[p].first,
                                  tokens_id_at(part->x.dtype, from, bad));
        tokens_put(w, ids, position + at, some);
    }
    return TR_OK;
}

/* Reads up to ROWS tokens of the stream from `position`, in file `p`; *out_count: their number. */
static tr_status_t tokens_read_some(tokens_t *self, int p, const window_t *w, int64_t position,
                                    int64_t most, int64_t *out_count) {
    const h5_part_t *part = &self->parts.data[p];
    const span_t *span = &self->span[p];
    const int64_t row = position - span->first;
    if (row == span->rows) {
        tokens_put(w, &(int32_t){(int32_t)self->end}, position, 1);
        *out_count = 1;
        return TR_OK;
    }
    const int64_t count = *out_count = min64(min64(most, ROWS), span->rows - row);
    h5_scratch_t *scratch = tr_h5_pool_take(self->pool, &part->x, row);
    tr_status_t status = tr_h5_read_rows(&part->x, scratch, row, count, scratch->rows);
    if (status == TR_OK) status = tokens_put_rows(self, p, w, position, count, scratch->rows);
    tr_h5_pool_give(self->pool, scratch);
    return status;
}

/* The file that contains a position of the stream. */
static int part_at(const tokens_t *self, int64_t position) {
    int p = 0;
    while (p + 1 < self->parts.count && position >= self->span[p + 1].first) p++;
    return p;
}

static tr_status_t tokens_read(tr_dataset_t *dataset, int64_t first, int64_t count,
                                      void *const *dst) {
    tokens_t *self = (tokens_t *)dataset;
    const int64_t begin = first * self->context, end = begin + count * self->context,
                  stop = min64(end + 1, self->tokens); /* one more for the last label */
    const window_t w = {begin, end, dst[0], dataset->info.field_count > 1 ? dst[1] : NULL};
    for (int64_t at = begin, some; at < stop; at += some)
        TR_TRY(tokens_read_some(self, part_at(self, at), &w, at, stop - at, &some));
    for (int64_t at = stop; w.x && at < end; at++) w.x[at - begin] = 0;
    for (int64_t at = stop - 1; w.y && at < end; at++)
        w.y[at - begin] = -1; /* what no token follows */
    return TR_OK;
}

static void tokens_expect(tr_dataset_t *dataset, int64_t first, int64_t count) {
    const tokens_t *self = (const tokens_t *)dataset;
    const int64_t begin = first * self->context,
                  stop = min64(begin + count * self->context + 1, self->tokens);
    for (int p = part_at(self, begin); p < self->parts.count && self->span[p].first < stop; p++) {
        const span_t *span = &self->span[p];
        const int64_t row = max64(begin - span->first, 0),
                      rows = min64(stop - span->first, span->rows) - row;
        if (rows > 0) tr_h5_expect_rows(&self->parts.data[p].x, row, rows);
    }
}

static const tr_dataset_ops_t tokens_ops = {
    .name = "tokens", .close = tokens_close, .read = tokens_read, .expect = tokens_expect};

/* -- opening ----------------------------------------------------------------------------------- */

/* Reads the vocabulary from the first file; the others must have the same. Requires the lock. */
static tr_status_t tokens_read_vocab(tokens_t *self, const tr_data_settings_t *settings) {
    const h5_part_t *part = self->parts.data;
    const int64_t vocab_size = tr_h5_attribute_whole(part, "vocab_size");
    self->end = tr_h5_attribute_whole(part, "end_of_text");
    TR_TRY(tr_h5_attribute_text(part, "tokenizer", &self->tokenizer));
    for (int p = 1; p < self->parts.count; p++) {
        char *other = NULL;
        TR_TRY(tr_h5_attribute_text(part + p, "tokenizer", &other));
        const bool same = tr_h5_attribute_whole(part + p, "vocab_size") == vocab_size &&
                          (!other || !self->tokenizer || !strcmp(other, self->tokenizer));
        tr_free(&other);
        if (!same)
            return TR_FAIL(
                TR_ERR_DATA,
                "%s and %s cannot be concatenated: their tokens come from different tokenizers "
                "(the attributes vocab_size and tokenizer).",
                part->file.path, part[p].file.path);
    }
    self->vocab_size = settings->vocab_size > 0 ? settings->vocab_size : vocab_size;
    if (self->vocab_size > 0) return TR_OK;
    return TR_FAIL(
        TR_ERR_CONFIG,
        "%s: the tokens have no attribute vocab_size: set model.vocab_size to the number of ids.",
        part->file.path);
}

/* Computes the parts of the stream in the files. */
static tr_status_t tokens_lay_out(tokens_t *self) {
    TR_TRY(
        tr_alloc((size_t)self->parts.count * sizeof *self->span, "files of tokens", &self->span));
    for (int p = 0; p < self->parts.count; p++) {
        span_t *span = &self->span[p];
        int32_t last = 0;
        int64_t count;
        *span = (span_t){.first = self->tokens, .rows = self->parts.data[p].x.rows};
        self->tokens += span->rows;
        if (p + 1 == self->parts.count || span->rows == 0 || self->end < 0) continue;
        const window_t w = {self->tokens - 1, self->tokens, &last, NULL};
        TR_TRY(tokens_read_some(self, p, &w, w.begin, 1, &count));
        span->adds_end = last != self->end;
        self->tokens += span->adds_end;
    }
    return TR_OK;
}

static tr_status_t tokens_check_length(const tokens_t *self) {
    const h5_part_t *part = self->parts.data;
    if (self->context < 1)
        return TR_FAIL(TR_ERR_CONFIG,
                       "%s: /%s holds tokens, which require a language model (model.type).",
                       part->file.path, part->x.name);
    if (self->tokens > self->context) return TR_OK;
    return TR_FAIL(
        TR_ERR_DATA,
        "%s: /%s has %lld token%s, but a window with model.context = %lld needs %lld, including "
        "its last label: add text, reduce model.context, or import the text with another "
        "--valid-fraction, which divides the tokens into training and validation.",
        part->file.path, part->x.name, (long long)self->tokens, self->tokens == 1 ? "" : "s",
        (long long)self->context, (long long)self->context + 1);
}

static void tokens_describe(tokens_t *self, const tr_data_settings_t *settings) {
    tr_dataset_info_t *info = &self->base.info;
    const h5_part_t *part = self->parts.data;
    const int64_t T = self->context;
    char more[32] = "";
    if (self->parts.count > 1) snprintf(more, sizeof more, " and %d more", self->parts.count - 1);
    info->samples = ceil_div(self->tokens - 1, T);
    info->field_count = 2;
    info->field[0] = (tr_field_t){"x", TR_I32, TR_SHAPE(T), 4 * T, TR_FIELD_TOKENS};
    info->field[1] = (tr_field_t){"y", TR_I32, TR_SHAPE(T), 4 * T, TR_FIELD_LABELS};
    info->classes = self->vocab_size;
    info->tokens = self->tokens;
    info->tokenizer = self->tokenizer;
    info->read_unit = max64(1, tr_h5_parts_read_unit(&self->parts) / T);
    info->fingerprint = tr_h5_parts_fingerprint(&self->parts) ^ (uint64_t)T * 0x9E3779B97F4A7C15u;
    snprintf(info->description, sizeof info->description,
             "%.*s%s:/%.*s, %lld tokens of %lld, windows of %lld, %.50s, %s%s",
             (int)tr_utf8_bytes(part->file.path, 70), part->file.path, more,
             (int)tr_utf8_bytes(part->names->x, 50), part->names->x, (long long)self->tokens,
             (long long)self->vocab_size, (long long)T, part->x.storage, tr_h5_way_text(&part->x),
             part->file.direct ? " with direct I/O" : "");
}

static tr_status_t tokens_set_up(tokens_t *self, const tr_data_settings_t *settings) {
    tr_h5_lock();
    tr_status_t status = tokens_read_vocab(self, settings);
    tr_h5_unlock();
    TR_TRY(status);
    TR_TRY(tr_h5_pool_create(&self->parts, tr_h5_pool_size(settings), ROWS * sizeof(int64_t), 0,
                             &self->pool));
    TR_TRY(tokens_lay_out(self));
    TR_TRY(tokens_check_length(self));
    TR_TRY(tr_h5_parts_open_direct(&self->parts, settings, &self->direct));
    tokens_describe(self, settings);
    return TR_OK;
}

tr_status_t tr_tokens_open(h5_parts_t *parts, const tr_data_settings_t *settings,
                           tr_dataset_t **out) {
    tokens_t *self = NULL;
    TR_TRY(tr_alloc(sizeof *self, "data set of tokens", &self));
    self->base.ops = &tokens_ops;
    self->context = settings->context;
    self->parts = *parts;
    *parts = (h5_parts_t){0};
    tr_status_t status = tokens_set_up(self, settings);
    if (status != TR_OK)
        tokens_close(&self->base);
    else
        *out = &self->base;
    return status;
}
