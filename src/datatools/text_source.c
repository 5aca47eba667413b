/* Reads text files and JSON lines, plain or gzip, in pieces. */
#include "text_source.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/file_format.h"
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#define PIECE_BYTES (1 << 20)
#define LINE_BYTES  (256 << 20) /* a line of JSON is kept in memory */

typedef struct {
    const char *path, *field; /* field NULL: no JSON lines */
    const tr_text_sink_t *sink;
    gzFile file;
    char *piece; /* [PIECE_BYTES] */
    int64_t line;
    tr_str_t held; /* the start of a line whose end is not yet read */
} source_t;

/* Parses a line, given without its line feed. Reads only `bytes` bytes. */
static tr_status_t source_take_line(source_t *s, const char *text, size_t bytes) {
    json_error_t error;
    s->line++;
    while (bytes > 0 && strchr(" \t\r", text[bytes - 1])) bytes--;
    if (bytes == 0) return TR_OK;
    json_t *object = json_loadb(text, bytes, JSON_ALLOW_NUL, &error);
    if (!object)
        return TR_FAIL(TR_ERR_DATA, "'%s', line %lld: invalid JSON: %s (column %d).", s->path,
                       (long long)s->line, error.text, error.column);
    const json_t *member = json_object_get(object, s->field);
    tr_status_t status =
        json_is_string(member)
            ? s->sink->text(s->sink->self, json_string_value(member), json_string_length(member))
            : TR_FAIL(TR_ERR_DATA,
                      "'%s', line %lld: expected an object with a string '%s'. --field NAME "
                      "chooses another member.",
                      s->path, (long long)s->line, s->field);
    json_decref(object);
    TR_TRY(status);
    return s->sink->end(s->sink->self);
}

/* Processes the lines that end in this piece; keeps the rest. */
static tr_status_t source_take_lines(source_t *s, const char *text, size_t bytes) {
    for (const char *end; (end = memchr(text, '\n', bytes)); text = end + 1) {
        const size_t length = (size_t)(end - text);
        if (s->held.length > 0) {
            tr_str_append_bytes(&s->held, text, length);
            TR_TRY(s->held.status);
            TR_TRY(source_take_line(s, s->held.text, s->held.length));
            s->held.length = 0;
        } else {
            TR_TRY(source_take_line(s, text, length));
        }
        bytes -= length + 1;
    }
    if (s->held.length + bytes > LINE_BYTES)
        return TR_FAIL(TR_ERR_DATA, "'%s', line %lld: longer than the limit of %d MiB.", s->path,
                       (long long)s->line + 1, LINE_BYTES >> 20);
    tr_str_append_bytes(&s->held, text, bytes);
    return s->held.status;
}

/* Refuses what is not text, by the first bytes of the content. *out_skip: bytes of UTF-8's byte order
 * mark, which is no text. */
static tr_status_t source_check_begin(const source_t *s, size_t bytes, size_t *out_skip) {
    static const char utf8[] = "\xef\xbb\xbf";
    TR_TRY(tr_file_format_check(s->path, s->piece, bytes, TR_WANTS_TEXT));
    *out_skip = bytes >= 3 && memcmp(s->piece, utf8, 3) == 0 ? 3 : 0;
    return TR_OK;
}

tr_status_t tr_text_read(const char *path, const char *field, const tr_text_sink_t *sink) {
    const bool has_lines =
        field || tr_text_ends_in(path, ".jsonl") || tr_text_ends_in(path, ".jsonl.gz");
    source_t s = {.path = path, .field = has_lines ? field ? field : "text" : NULL, .sink = sink};
    tr_status_t status = TR_OK;
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return TR_FAIL(tr_status_of_errno(errno), "cannot open '%s': %s.", path, strerror(errno));
    s.file = gzdopen(fd, "rb");
    if (!s.file) {
        close(fd);
        return TR_FAIL(TR_ERR_MEMORY, "Not enough memory to read '%s'.", path);
    }
    gzbuffer(s.file, 1 << 17);
    TR_TRY_GOTO(tr_alloc(PIECE_BYTES, "text", &s.piece), done);
    for (bool any = false;; any = true) {
        int code;
        const int got = gzread(s.file, s.piece, PIECE_BYTES);
        const char *reason = gzerror(s.file, &code);
        if (got <= 0 && code == Z_ERRNO)
            status = TR_FAIL(TR_ERR_IO, "cannot read '%s': %s.", path, strerror(errno));
        else if (got < 0 || (got == 0 && code != Z_OK))
            status = TR_FAIL(TR_ERR_DATA, "'%s' is damaged or truncated: %s.", path, reason);
        else if (got == 0 && !any)
            status = TR_FAIL(TR_ERR_DATA, "'%s' is empty: it has no text.", path);
        if (status != TR_OK) goto done;
        if (got == 0) break;
        size_t skip = 0;
        if (!any) TR_TRY_GOTO(source_check_begin(&s, (size_t)got, &skip), done);
        const char *text = s.piece + skip;
        const size_t bytes = (size_t)got - skip;
        if (s.field)
            status = source_take_lines(&s, text, bytes);
        else if (memchr(text, 0, bytes))
            status =
                TR_FAIL(TR_ERR_DATA,
                        "'%s' is not text: it has a NUL byte. `trainer import tokens` reads files "
                        "of token ids; iconv converts text in UTF-16 or UTF-32 to UTF-8.",
                        path);
        else
            status = sink->text(sink->self, text, bytes);
        if (status != TR_OK) goto done;
    }
    if (!s.field)
        TR_TRY_GOTO(sink->end(sink->self), done);
    else if (s.held.length > 0)
        TR_TRY_GOTO(source_take_line(&s, s.held.text, s.held.length), done);
done:
    gzclose(s.file);
    tr_free(&s.piece);
    tr_str_free(&s.held);
    return status;
}
