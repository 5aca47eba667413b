/* The character classes of GPT-2's pattern, from one fixed version of Unicode. */
#ifndef TR_TEXT_UNICODE_H
#define TR_TEXT_UNICODE_H

#include <stddef.h>
#include <stdint.h>

typedef enum {
    TR_UNICODE_OTHER,
    TR_UNICODE_LETTER, /* \p{L} */
    TR_UNICODE_NUMBER, /* \p{N} */
    TR_UNICODE_SPACE   /* \s: the property White_Space */
} tr_unicode_class_t;

tr_unicode_class_t tr_unicode_class(uint32_t code);

#endif
