/*
 * MANIFEST, one entry per line:
 *
 *   trainer-checkpoint 1
 *   step STEP
 *   file NAME BYTES CHECKSUM
 *   tensor CHECKSUM TYPE SHAPE OFFSET NAME      in the file above; SHAPE is 64x28 or "scalar", NAME
 *                                               has %XX for unusual bytes
 *   manifest CHECKSUM                           of all bytes above
 *
 * The parser is strict: it formats what it has parsed, and the result must be the same bytes.
 */
#include "checkpoint_int.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_LINE "trainer-checkpoint 1\n"

tr_status_t tr_manifest_add_file(tr_manifest_t *m, const char *name, int64_t bytes,
                                 uint64_t checksum) {
    tr_manifest_file_t file = {.bytes = bytes, .checksum = checksum};
    TR_TRY(tr_strdup(name, &file.name));
    tr_status_t status = tr_vec_push(&m->files, file);
    if (status != TR_OK) tr_free(&file.name);
    return status;
}

tr_status_t tr_manifest_add_tensor(tr_manifest_t *m, const tr_manifest_tensor_t *tensor) {
    tr_manifest_tensor_t copy = *tensor;
    copy.file = m->files.count - 1;
    TR_TRY(tr_strdup(tensor->name, &copy.name));
    tr_status_t status = tr_vec_push(&m->tensors, copy);
    if (status != TR_OK) tr_free(&copy.name);
    return status;
}

void tr_manifest_free(tr_manifest_t *m) {
    for (size_t i = 0; i < m->files.count; i++) tr_free(&m->files.data[i].name);
    for (size_t i = 0; i < m->tensors.count; i++) tr_free(&m->tensors.data[i].name);
    tr_vec_free(&m->files);
    tr_vec_free(&m->tensors);
}

/* -- writing ----------------------------------------------------------------------------------- */

static void manifest_append_name(tr_str_t *out, const char *name) {
    for (const unsigned char *c = (const unsigned char *)name; *c; c++) {
        if (*c <= ' ' || *c == '%' || *c == 0x7f)
            tr_str_printf(out, "%%%02x", *c);
        else
            tr_str_append_bytes(out, (const char *)c, 1);
    }
}

/* All lines but the last. */
static void manifest_append_body(const tr_manifest_t *m, tr_str_t *out) {
    size_t next = 0;
    tr_str_printf(out, FIRST_LINE "step %lld\n", (long long)m->step);
    for (size_t i = 0; i < m->files.count; i++) {
        const tr_manifest_file_t *f = &m->files.data[i];
        tr_str_append(out, "file ");
        manifest_append_name(out, f->name);
        tr_str_printf(out, " %lld %016llx\n", (long long)f->bytes, (unsigned long long)f->checksum);
        for (; next < m->tensors.count && m->tensors.data[next].file == i; next++) {
            const tr_manifest_tensor_t *t = &m->tensors.data[next];
            tr_str_printf(out, "tensor %016llx %s ", (unsigned long long)t->checksum,
                          tr_dtype_name(t->dtype));
            for (int d = 0; d < t->shape.ndim; d++)
                tr_str_printf(out, "%s%lld", d ? "x" : "", (long long)t->shape.dim[d]);
            tr_str_printf(out, "%s %lld ", t->shape.ndim == 0 ? "scalar" : "",
                          (long long)t->offset);
            manifest_append_name(out, t->name);
            tr_str_append(out, "\n");
        }
    }
}

tr_status_t tr_manifest_format(const tr_manifest_t *m, tr_str_t *out) {
    manifest_append_body(m, out);
    if (out->status == TR_OK)
        tr_str_printf(out, "manifest %016llx\n",
                      (unsigned long long)tr_checksum_bytes(out->text, out->length));
    return out->status;
}

/* -- parsing: each reader parses its field at *at and moves *at past the separator ------------- */

static char *manifest_take_word(char **at, char separator) {
    char *word = *at, *end = strchr(word, separator);
    if (!end) return NULL;
    *end = '\0';
    *at = end + 1;
    return word;
}

static bool manifest_take_int(char **at, char separator, int64_t *out) {
    char *word = manifest_take_word(at, separator), *end = NULL;
    if (!word) return false;
    errno = 0;
    *out = strtoll(word, &end, 10);
    return errno == 0 && end != word && *end == '\0' && *out >= 0;
}

static bool manifest_take_checksum(char **at, char separator, uint64_t *out) {
    char *word = manifest_take_word(at, separator), *end = NULL;
    if (!word || strlen(word) != 16) return false;
    *out = strtoull(word, &end, 16);
    return *end == '\0';
}

static int manifest_hex_digit(char c) {
    const char *digits = "0123456789abcdef", *at = c ? strchr(digits, c) : NULL;
    return at ? (int)(at - digits) : -1;
}

static bool manifest_take_name(char **at, char separator, char **out) {
    char *word = manifest_take_word(at, separator), *to = word;
    if (!word || !*word) return false;
    for (const char *from = word; *from; to++) {
        *to = *from++;
        if (*to != '%') continue;
        int high = manifest_hex_digit(from[0]), low = high < 0 ? -1 : manifest_hex_digit(from[1]);
        if (low < 0 || (high | low) == 0) return false;
        *to = (char)(high * 16 + low);
        from += 2;
    }
    *to = '\0';
    *out = word;
    return true;
}

static bool manifest_take_dtype(char **at, tr_dtype_t *out) {
    const char *word = manifest_take_word(at, ' ');
    for (int t = 0; word && t < TR_DTYPE_COUNT; t++) {
        if (strcmp(word, tr_dtype_name((tr_dtype_t)t)) != 0) continue;
        *out = (tr_dtype_t)t;
        return true;
    }
    return false;
}

static bool manifest_take_shape(char **at, tr_shape_t *out) {
    char *word = manifest_take_word(at, ' ');
    *out = (tr_shape_t){0};
    if (!word) return false;
    if (strcmp(word, "scalar") == 0) return true;
    for (char *end; out->ndim < TR_MAX_DIMS; word = end + 1) {
        errno = 0;
        int64_t size = strtoll(word, &end, 10);
        if (errno || end == word || size < 0) return false;
        out->dim[out->ndim++] = size;
        if (*end == '\0') return true;
        if (*end != 'x') return false;
    }
    return false;
}

/* Reads the lines but the last, which it cuts into words. TR_OK with *understood false if they are
 * something else. */
static tr_status_t manifest_parse_body(char *text, tr_manifest_t *m, bool *understood) {
    char *at = text, *word;
    *understood = false;
    if (strncmp(at, FIRST_LINE, strlen(FIRST_LINE)) != 0) return TR_OK;
    at += strlen(FIRST_LINE);
    word = manifest_take_word(&at, ' ');
    *understood = word && strcmp(word, "step") == 0 && manifest_take_int(&at, '\n', &m->step);
    while (*understood && *at) {
        word = manifest_take_word(&at, ' ');
        if (word && strcmp(word, "file") == 0) {
            tr_manifest_file_t f = {0};
            /* a plain name in the checkpoint's own folder */
            *understood = manifest_take_name(&at, ' ', &f.name) && f.name[0] != '.' &&
                          !strchr(f.name, '/') && strlen(f.name) < 256 &&
                          manifest_take_int(&at, ' ', &f.bytes) &&
                          manifest_take_checksum(&at, '\n', &f.checksum);
            if (*understood) TR_TRY(tr_manifest_add_file(m, f.name, f.bytes, f.checksum));
        } else if (word && strcmp(word, "tensor") == 0) {
            tr_manifest_tensor_t t = {0};
            int64_t bytes = 0;
            *understood =
                m->files.count > 0 && manifest_take_checksum(&at, ' ', &t.checksum) &&
                manifest_take_dtype(&at, &t.dtype) && manifest_take_shape(&at, &t.shape) &&
                tr_tensor_bytes(t.dtype, &t.shape, &bytes) &&
                manifest_take_int(&at, ' ', &t.offset) && manifest_take_name(&at, '\n', &t.name);
            if (*understood) TR_TRY(tr_manifest_add_tensor(m, &t));
        } else {
            *understood = false;
        }
    }
    return TR_OK;
}

#define LAST_LINE_BYTES (sizeof "manifest 0123456789abcdef\n" - 1)

tr_status_t tr_manifest_parse(const char *text, size_t bytes, const char *path,
                              tr_manifest_t *out) {
    char last_line[LAST_LINE_BYTES + 1], *body = NULL;
    tr_manifest_t m = {0};
    tr_str_t again = {0};
    bool good = false;
    tr_status_t status = TR_OK;

    /* The last line has the checksum of those above. */
    if (bytes < LAST_LINE_BYTES || memchr(text, 0, bytes))
        return TR_FAIL(TR_ERR_DATA, "%s is truncated or is not text.", path);
    bytes -= LAST_LINE_BYTES;
    snprintf(last_line, sizeof last_line, "manifest %016llx\n",
             (unsigned long long)tr_checksum_bytes(text, bytes));
    if (memcmp(text + bytes, last_line, LAST_LINE_BYTES) != 0)
        return TR_FAIL(TR_ERR_DATA,
                       "%s: its last line must hold the checksum of the lines before it, but does "
                       "not: the file is damaged.",
                       path);

    /* Parsed, and written again: the bytes must be the same. */
    TR_TRY(tr_alloc(bytes + 1, "MANIFEST", &body));
    memcpy(body, text, bytes);
    TR_TRY_GOTO(manifest_parse_body(body, &m, &good), done);
    if (good) {
        manifest_append_body(&m, &again);
        TR_TRY_GOTO(again.status, done);
        good = again.length == bytes && memcmp(again.text, text, bytes) == 0;
    }
    if (!good)
        status = TR_FAIL(TR_ERR_DATA,
                         "%s is not a manifest that this version can read; error in line %zu.",
                         path, 2 + m.files.count + m.tensors.count + 1);
done:
    tr_free(&body);
    tr_str_free(&again);
    if (status != TR_OK)
        tr_manifest_free(&m);
    else
        *out = m;
    return status;
}
