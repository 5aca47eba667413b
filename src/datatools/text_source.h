/* Text files: plain text or JSON lines, optionally compressed with gzip. */
#ifndef TR_DATATOOLS_TEXT_SOURCE_H
#define TR_DATATOOLS_TEXT_SOURCE_H

#include "trainer/status.h"
#include <stdbool.h>
#include <stddef.h>

typedef struct {
    /* Receive the next piece of a document, and its end. Any status but TR_OK ends the reading. */
    tr_status_t (*text)(void *self, const char *text, size_t bytes);
    tr_status_t (*end)(void *self);
    void *self;
} tr_text_sink_t;

/* Reads a file piece by piece. In JSON lines (`field` is given, or the name ends in .jsonl or
 * .jsonl.gz), each line is an object and a document, whose text is the member `field` (NULL:
 * "text"). Any other file is one document. A byte order mark of UTF-8 is left out. TR_ERR_DATA: the
 * file is empty, damaged or of another format or encoding, or a line is invalid; the message has its
 * number. */
tr_status_t tr_text_read(const char *path, const char *field, const tr_text_sink_t *sink);

#endif
