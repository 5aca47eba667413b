/* Comma-separated values (RFC 4180, with optional blanks around fields) in UTF-8, or with another
 * delimiter. Lines end with LF, CR LF or CR. Quoted fields may contain delimiters, doubled quotes and
 * line ends. */
#include "csv.h"
#include "base/mem.h"
#include "base/str.h"
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#define BUFFER_BYTES (1 << 16)
#define ROW_BYTES    (64 << 20) /* a longer row is not a table */
#define MAX_FIELDS   1000000
#define CTRL_Z       0x1a

struct tr_csv {
    gzFile file;
    char *name;
    char *buffer;
    char delimiter;
    int filled, at;
    int64_t line, next_line;
    bool has_quotes;
    TR_VEC(char) text;     /* the row's fields, each terminated */
    TR_VEC(size_t) offset; /* of each field in text */
    TR_VEC(char *) field;
};

tr_status_t tr_csv_open(int fd, const char *name, char delimiter, tr_csv_t **out) {
    tr_csv_t *csv = NULL;
    tr_status_t status = tr_alloc(sizeof *csv, "CSV file", &csv);
    *out = NULL;
    if (status != TR_OK) {
        close(fd);
        return status;
    }
    csv->next_line = 1;
    csv->delimiter = delimiter;
    csv->file = gzdopen(fd, "rb");
    if (!csv->file) close(fd);
    status = csv->file ? tr_strdup(name, &csv->name)
                       : TR_FAIL(TR_ERR_MEMORY, "Not enough memory to read '%s'.", name);
    if (status == TR_OK) status = tr_alloc(BUFFER_BYTES, "CSV file", &csv->buffer);
    if (status != TR_OK) tr_csv_close(&csv);
    *out = csv;
    return status;
}

void tr_csv_close(tr_csv_t **csv) {
    if (!*csv) return;
    if ((*csv)->file) gzclose((*csv)->file);
    tr_vec_free(&(*csv)->text);
    tr_vec_free(&(*csv)->offset);
    tr_vec_free(&(*csv)->field);
    tr_free(&(*csv)->buffer);
    tr_free(&(*csv)->name);
    tr_free(csv);
}

int64_t tr_csv_line(const tr_csv_t *csv) {
    return csv->line;
}

bool tr_csv_has_quotes(const tr_csv_t *csv) {
    return csv->has_quotes;
}

/* The next byte, -1 at the end. A byte order mark is skipped. */
static tr_status_t csv_next_byte(tr_csv_t *csv, int *out) {
    if (csv->at == csv->filled) {
        int code;
        csv->at = 0;
        csv->filled = gzread(csv->file, csv->buffer, BUFFER_BYTES);
        if (csv->filled < 0) {
            const char *reason = gzerror(csv->file, &code);
            csv->filled = 0;
            return TR_FAIL(code == Z_ERRNO ? TR_ERR_IO : TR_ERR_DATA,
                           "cannot read '%s' after line %lld: %s.", csv->name, (long long)csv->line,
                           reason);
        }
        if (csv->filled == 0 && gzerror(csv->file, &code) && code == Z_BUF_ERROR)
            return TR_FAIL(TR_ERR_DATA,
                           "'%s' is truncated after line %lld: its gzip stream is incomplete. "
                           "Download it again.",
                           csv->name, (long long)csv->line);
        if (gztell(csv->file) == csv->filled && csv->filled >= 3 &&
            !memcmp(csv->buffer, "\xEF\xBB\xBF", 3))
            csv->at = 3;
    }
    *out = csv->at < csv->filled ? (unsigned char)csv->buffer[csv->at++] : -1;
    return TR_OK;
}

/* Adds a byte to the last field. */
static tr_status_t csv_add_byte(tr_csv_t *csv, int c) {
    if (csv->text.count >= ROW_BYTES)
        return TR_FAIL(TR_ERR_DATA, "'%s', line %lld: the row is too long.", csv->name,
                       (long long)csv->line);
    return tr_vec_push(&csv->text, (char)c);
}

/* Reads the text from the opening quote to the closing one. */
static tr_status_t csv_read_quoted(tr_csv_t *csv) {
    for (int c;;) {
        TR_TRY(csv_next_byte(csv, &c));
        if (c == -1)
            return TR_FAIL(TR_ERR_DATA, "'%s', line %lld: a quote is not closed.", csv->name,
                           (long long)csv->line);
        if (c == '"') {
            TR_TRY(csv_next_byte(csv, &c));
            if (c != '"') {
                csv->at -= c != -1;
                return TR_OK;
            }
        }
        csv->next_line += c == '\n';
        TR_TRY(csv_add_byte(csv, c));
    }
}

/* Old programs end a file with Ctrl-Z, and fill its last block with more of them or with zeros. */
static tr_status_t csv_skip_end(tr_csv_t *csv, int *c) {
    while (*c == CTRL_Z || *c == '\0') TR_TRY(csv_next_byte(csv, c));
    if (*c == -1) return TR_OK;
    return TR_FAIL(
        TR_ERR_DATA,
        "'%s', line %lld: found the byte 0x1a (Ctrl-Z), which ends a file of old programs, "
        "before other text: remove it, or what follows it",
        csv->name, (long long)csv->line);
}

/* Reads one row to text and offset; *out_end if the file ends after it. */
static tr_status_t csv_scan_row(tr_csv_t *csv, bool *out_end) {
    const char delimiter = csv->delimiter;
    size_t begin = 0;
    bool quoted = false;
    *out_end = false;
    for (int c;;) {
        TR_TRY(csv_next_byte(csv, &c));
        if (c == CTRL_Z) TR_TRY(csv_skip_end(csv, &c));
        if (c == '\r') { /* the line ends here, or with an LF after it */
            TR_TRY(csv_next_byte(csv, &c));
            if (c != '\n') csv->at -= c != -1;
            c = '\n';
        }
        bool blank = c == ' ' || c == '\t', empty = csv->text.count == begin;
        if (c == '\n' || c == -1 || c == delimiter) {
            while (!quoted && csv->text.count > begin &&
                   (csv->text.data[csv->text.count - 1] == ' ' ||
                    csv->text.data[csv->text.count - 1] == '\t'))
                csv->text.count--;
            if (csv->offset.count >= MAX_FIELDS)
                return TR_FAIL(TR_ERR_DATA, "'%s', line %lld: more than %d columns.", csv->name,
                               (long long)csv->line, MAX_FIELDS);
            TR_TRY(tr_vec_push(&csv->text, '\0'));
            TR_TRY(tr_vec_push(&csv->offset, begin));
            begin = csv->text.count;
            quoted = false;
            csv->next_line += c == '\n';
            *out_end = c == -1;
            if (c != delimiter) return TR_OK;
        } else if (c == '"' && empty && !quoted) {
            quoted = csv->has_quotes = true;
            TR_TRY(csv_read_quoted(csv));
        } else if (!(blank && empty) && !(quoted && blank)) {
            TR_TRY(csv_add_byte(csv, c));
        }
    }
}

tr_status_t tr_csv_row(tr_csv_t *csv, char ***out_field, int *out_count) {
    *out_field = NULL;
    *out_count = 0;
    for (bool end = false; !end;) {
        csv->line = csv->next_line;
        csv->text.count = csv->offset.count = csv->field.count = 0;
        TR_TRY(csv_scan_row(csv, &end));
        /* Names in other encodings would be unreadable. */
        for (size_t i = 0; i < csv->offset.count; i++) {
            const size_t begin = csv->offset.data[i],
                         next =
                             i + 1 < csv->offset.count ? csv->offset.data[i + 1] : csv->text.count,
                         bad = begin + tr_utf8_bytes(csv->text.data + begin, SIZE_MAX);
            if (bad != next - 1)
                return TR_FAIL(TR_ERR_DATA,
                               "'%s', line %lld, column %zu: expected text in UTF-8, found the "
                               "byte 0x%02x: convert the table to UTF-8 (`iconv` does)",
                               csv->name, (long long)csv->line, i + 1,
                               (unsigned char)csv->text.data[bad]);
        }
        if (csv->offset.count == 1 && csv->text.count == 1) continue; /* an empty line */
        for (size_t i = 0; i < csv->offset.count; i++)
            TR_TRY(tr_vec_push(&csv->field, csv->text.data + csv->offset.data[i]));
        *out_field = csv->field.data;
        *out_count = (int)csv->field.count;
        return TR_OK;
    }
    return TR_OK;
}
