/* Texts in files: plain, or JSON lines; gzip or not. */
#ifndef TEXT_SOURCE_H
#define TEXT_SOURCE_H

#include "trainer/status.h"
#include <stdbool.h>
#include <stddef.h>

typedef struct {
    /* The next piece of a document, and its end. Any other status than TR_OK ends the reading. */
    tr_status_t (*text)(void *self, const char *text, size_t bytes);
    tr_status_t (*end)(void *self);
    void *self;
} tr_text_sink_t;

/* Reads the file piece by piece. JSON lines (`field` is given, or the name ends in .jsonl or
 * .jsonl.gz): each line is an object and a document, whose text is the member `field` ("text" where
 * it is NULL). Any other file is one document. TR_ERR_DATA: the file is empty, it is damaged, or a
 * line is bad; the message has the line's number. */
tr_status_t tr_text_read(const char *path, const char *field, const tr_text_sink_t *sink);

#endif
