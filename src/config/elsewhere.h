/* Names that other programs have for the keys and the commands of this one. */
#ifndef TR_CONFIG_ELSEWHERE_H
#define TR_CONFIG_ELSEWHERE_H

#include <stddef.h>

typedef struct {
    const char *names; /* lower case, separated by blanks */
    const char *key;   /* what it is here; NULL: no key, and `text` says what to do */
    const char *text;  /* sentences; "" if the help of the key says it all */
} tr_elsewhere_t;

/* The row at `index`; NULL after the last. */
const tr_elsewhere_t *tr_elsewhere_at(size_t index);
/* The row of a name, as a word ("batch-size", "--max_epochs"), words ("early stopping") or a key
 * ("optimizer.name"); NULL if there is none. */
const tr_elsewhere_t *tr_elsewhere_find(const char *name);

#endif
