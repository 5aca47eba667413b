/* How the ids of token files are stored: by headers, by an index, or by --ids. */
#include "token_source.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/npy.h"
#include "base/str.h"
#include "base/file_format.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define SAMPLE_BYTES (1 << 17) /* examined where no header says how ids are stored */

/* The values of --ids. Wide forms come first: ids of 64 bits also look like pairs of 32 bits. */
static const struct {
    const char *name;
    int bytes;
    bool is_big_endian;
} forms[] = {{"u64", 8, false}, {">u64", 8, true}, {"u32", 4, false},
             {">u32", 4, true}, {"u16", 2, false}, {">u16", 2, true}};

static tr_status_t form_of_name(const char *ids, tr_token_form_t *out) {
    for (size_t i = 0; i < TR_COUNT(forms); i++)
        if (strcmp(forms[i].name, ids) == 0) {
            *out = (tr_token_form_t){forms[i].bytes, forms[i].is_big_endian, false, -1};
            return TR_OK;
        }
    return TR_FAIL(TR_ERR_USAGE,
                   "--ids: expected u16, u32 or u64, or '>u16', '>u32' or '>u64' for ids whose "
                   "first byte is the highest (big-endian), found '%s'.",
                   ids);
}

/* -- headers ----------------------------------------------------------------------------------- */

/* sample: the first `got` bytes of the file. */
static tr_status_t form_of_npy(FILE *file, const char *path, const void *sample, size_t got,
                               tr_token_form_t *out) {
    tr_npy_t npy;
    char order, kind, bytes;
    if (!tr_npy_parse(sample, got, &npy) || fseek(file, (long)npy.first, SEEK_SET) != 0)
        return TR_FAIL(TR_ERR_DATA,
                       "'%s' has a damaged or very long header of a .npy file. Save it again with "
                       "numpy.save.",
                       path);
    if (strlen(npy.type) != 3 || sscanf(npy.type, "%c%c%c", &order, &kind, &bytes) != 3 ||
        !strchr("<>|", order) || !strchr("iu", kind) || !strchr("1248", bytes) || npy.ndim != 1)
        return TR_FAIL(TR_ERR_DATA,
                       "'%s': expected whole numbers in one dimension, found %s of the shape %s. "
                       "Save the ids with numpy.save('ids.npy', ids.ravel().astype('<u4')).",
                       path, npy.type, npy.shape_text);
    *out = (tr_token_form_t){bytes - '0', order == '>', kind == 'i', npy.dim[0]};
    return TR_OK;
}

/* llm.c's header is 256 int32: magic, version, number of ids. *out is unchanged where there is
 * none. */
static tr_status_t form_of_llmc(const char *path, const int32_t *header, tr_token_form_t *out) {
    static const struct {
        int32_t magic, version;
        int bytes;
    } rows[] = {{20240520, 1, 2}, {20240801, 7, 4}};
    for (size_t i = 0; i < TR_COUNT(rows); i++) {
        if (header[0] != rows[i].magic) continue;
        if (header[1] != rows[i].version)
            return TR_FAIL(TR_ERR_DATA,
                           "'%s' has the header of a token file of llm.c with the version %d; "
                           "expected %d.",
                           path, (int)header[1], (int)rows[i].version);
        *out = (tr_token_form_t){rows[i].bytes, false, false, (uint32_t)header[2]};
    }
    return TR_OK;
}

/* The index of Megatron-LM and fairseq: 9 bytes of magic, the version (u64), a number for the type. */
static bool form_is_index(const uint8_t *bytes, size_t count) {
    return count >= 9 && memcmp(bytes, "MMIDIDX\0", 9) == 0;
}

/* The index beside NAME.bin. *out is unchanged where there is none. */
static tr_status_t form_of_index(const char *path, tr_token_form_t *out) {
    static const struct {
        int bytes;
        bool is_signed;
    } types[] = {[1] = {1, false}, {1, true},        {2, true},  {4, true},
                 {8, true},        [8] = {2, false}, {4, false}, {8, false}};
    uint8_t begin[18];
    char index[4096];
    if (!tr_path_ends_in(path, ".bin") ||
        tr_snprintf(index, sizeof index, "%.*sidx", (int)strlen(path) - 3, path) >=
            (int)sizeof index)
        return TR_OK;
    FILE *file = fopen(index, "re");
    if (!file) return TR_OK;
    const size_t got = fread(begin, 1, sizeof begin, file);
    fclose(file);
    if (!form_is_index(begin, got)) return TR_OK;
    const uint8_t type = got == sizeof begin ? begin[17] : 0;
    if (type >= TR_COUNT(types) || types[type].bytes == 0)
        return TR_FAIL(TR_ERR_DATA,
                       "'%s', the index of '%s', gives its values the type %d; expected 1 to 5 or "
                       "8 to 10, a type of whole numbers. --ids gives the type of the ids instead.",
                       index, path, type);
    *out = (tr_token_form_t){types[type].bytes, false, types[type].is_signed, -1};
    return TR_OK;
}

/* -- without a header -------------------------------------------------------------------------- */

/*
 * The words of a wider id are small except for its lowest one, which therefore stands alone at every
 * second or fourth place. Tokens of 16 bits are not arranged so: by chance, 24 of them are all at
 * even places in one of 17 million files.
 */
static bool words_are_wide(const uint16_t *word, size_t count, int bytes, bool is_big_endian) {
    enum { ENOUGH = 24, PAGES = 15 }; /* ids up to 16 * 65536 have higher words up to 15 */
    const size_t step = (size_t)bytes / 2, low = is_big_endian ? step - 1 : 0;
    for (unsigned limit = 0; limit <= PAGES; limit += PAGES) {
        size_t at_low = 0, elsewhere = 0;
        for (size_t i = 0; i < count; i++) {
            const unsigned value = is_big_endian ? __builtin_bswap16(word[i]) : word[i];
            if (value > limit) *(i % step == low ? &at_low : &elsewhere) += 1;
        }
        if (elsewhere == 0 && at_low >= ENOUGH) return true;
    }
    return false;
}

/*
 * Tokenizers give frequent tokens small ids, and small vocabularies have only small ones. So the
 * high byte of ids is small, and the low byte takes all values: GPT-2's ids are a seventh of what
 * they are with their bytes swapped. A quarter the other way round, over many different ids, or
 * several ids which are all multiples of 256, are in the other order.
 */
static bool words_are_swapped(const uint16_t *word, size_t count) {
    uint8_t seen[65536 / 8] = {0};
    double sum = 0, swapped = 0;
    int64_t different = 0, others = 0;
    for (size_t i = 0; i < count; i++) {
        const unsigned id = word[i];
        sum += id;
        swapped += __builtin_bswap16(word[i]);
        others += id % 256 != 0;
        different += id > 0 && !(seen[id / 8] >> id % 8 & 1);
        seen[id / 8] |= (uint8_t)(1 << id % 8);
    }
    return (different >= 32 && sum > 4 * swapped) || (different >= 3 && others == 0);
}

/* Whether all of it is UTF-8 without control characters. `text` is terminated. */
static bool bytes_are_text(const char *text, size_t count) {
    enum { ENOUGH = 64 };
    const char *at = text;
    uint32_t code;
    for (int bytes; (bytes = tr_utf8_decode(at, &code)) > 0; at += bytes)
        if (code < ' ' && !strchr("\t\n\f\r", (int)code)) return false;
    return count >= ENOUGH && (size_t)(at - text) + 4 > count; /* the last character may be cut */
}

/* Refuses a file that is probably not ids of 16 bits. */
static tr_status_t form_check_u16(const char *path, const void *bytes, size_t count,
                                  int64_t file_bytes) {
    const char *other = NULL;
    TR_TRY(tr_file_format_check(path, bytes, count, TR_WANTS_TOKENS));
    if (bytes_are_text(bytes, count))
        return TR_FAIL(TR_ERR_DATA,
                       "'%s' is text, not token ids: `trainer import text` converts it. --ids u16 "
                       "reads it as ids nevertheless.",
                       path);
    for (size_t i = 0; i < TR_COUNT(forms) && forms[i].bytes > 2 && !other; i++)
        if (file_bytes % forms[i].bytes == 0 &&
            words_are_wide(bytes, count / 2, forms[i].bytes, forms[i].is_big_endian))
            other = forms[i].name;
    if (!other && words_are_swapped(bytes, count / 2)) other = ">u16";
    if (other)
        return TR_FAIL(TR_ERR_DATA,
                       "'%s' has no header, and its bytes look like ids of the form %s rather than "
                       "u16: give --ids '%s', or --ids u16 if they are u16.",
                       path, other, other);
    if (file_bytes % 2 == 0) return TR_OK;
    return TR_FAIL(TR_ERR_DATA,
                   "'%s' has %lld bytes, an odd number, and ids without a header have 2, 4 or 8 "
                   "bytes each: the file is truncated, or it has a header of another program.",
                   path, (long long)file_bytes);
}

/* -- all of it --------------------------------------------------------------------------------- */

static tr_status_t form_find(FILE *file, const char *path, const char *ids, uint8_t *sample,
                             tr_token_form_t *out) {
    enum { LLMC_BYTES = 1024 };
    struct stat found;
    tr_token_form_t given = {0};
    if (ids) TR_TRY(form_of_name(ids, &given));
    const size_t got = fread(sample, 1, SAMPLE_BYTES, file);
    if (got == 0) return TR_FAIL(TR_ERR_DATA, "'%s' is empty: it has no tokens.", path);
    rewind(file);
    *out = (tr_token_form_t){0};
    if (got >= 6 && memcmp(sample, "\x93NUMPY", 6) == 0)
        TR_TRY(form_of_npy(file, path, sample, got, out));
    else if (got >= LLMC_BYTES)
        TR_TRY(form_of_llmc(path, (const int32_t *)(const void *)sample, out));
    if (out->bytes && ftello(file) == 0) fseek(file, LLMC_BYTES, SEEK_SET);
    if (out->bytes && ids &&
        (given.bytes != out->bytes ||
         (out->bytes > 1 && given.is_big_endian != out->is_big_endian)))
        return TR_FAIL(TR_ERR_USAGE,
                       "--ids %s: the header of '%s' says that its ids have %d bytes%s. Leave out "
                       "--ids, which is for files without a header.",
                       ids, path, out->bytes, out->is_big_endian ? ", the highest first" : "");
    if (out->bytes) return TR_OK;
    if (ids) {
        *out = given;
        return TR_OK;
    }
    if (form_is_index(sample, got))
        return TR_FAIL(TR_ERR_DATA,
                       "'%s' is the index of a token file: name the file itself, NAME.bin beside "
                       "NAME.idx.",
                       path);
    TR_TRY(form_of_index(path, out));
    if (out->bytes) return TR_OK;
    *out = (tr_token_form_t){2, false, false, -1};
    if (fstat(fileno(file), &found) != 0) return tr_io_fail("examine", path, errno);
    return form_check_u16(path, sample, got, found.st_size);
}

tr_status_t tr_token_form_find(FILE *file, const char *path, const char *ids,
                               tr_token_form_t *out) {
    uint8_t *sample = NULL;
    TR_TRY(tr_alloc(SAMPLE_BYTES + 1, "tokens", &sample));
    const tr_status_t status = form_find(file, path, ids, sample, out);
    tr_free(&sample);
    return status;
}
