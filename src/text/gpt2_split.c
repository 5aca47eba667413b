/* Splits text into the pieces of GPT-2's regular expression. */
#include "gpt2_split.h"
#include "base/str.h"
#include "unicode.h"
#include <string.h>

typedef tr_unicode_class_t class_t;

/* Class and length of the character at `text`. */
static inline class_t class_at(const char *text, size_t *out_bytes) {
    static const unsigned char ascii[128] = {
        ['\t'] = TR_UNICODE_SPACE,         ['\n'] = TR_UNICODE_SPACE,
        ['\v'] = TR_UNICODE_SPACE,         ['\f'] = TR_UNICODE_SPACE,
        ['\r'] = TR_UNICODE_SPACE,         [' '] = TR_UNICODE_SPACE,
        ['0' ... '9'] = TR_UNICODE_NUMBER, ['A' ... 'Z'] = TR_UNICODE_LETTER,
        ['a' ... 'z'] = TR_UNICODE_LETTER,
    };
    const unsigned char first = (unsigned char)*text;
    uint32_t code;
    *out_bytes = 1;
    if (first < 128) return ascii[first];
    const int bytes = tr_utf8_decode(text, &code);
    if (bytes == 0) return TR_UNICODE_OTHER;
    *out_bytes = (size_t)bytes;
    return tr_unicode_class(code);
}

/* Length of 's, 't, 're, ... at `text`; 0: none. */
static size_t gpt2_ending(const char *text) {
    static const char *const endings[] = {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"};
    for (size_t i = 0; *text == '\'' && i < sizeof endings / sizeof *endings; i++)
        if (!strncmp(text, endings[i], strlen(endings[i]))) return strlen(endings[i]);
    return 0;
}

/* The end of the run of characters of one class from `at`; *out_last: the start of its last
 * character. */
static size_t gpt2_run_end(const char *text, size_t at, size_t bytes, size_t most, class_t class,
                           size_t *out_last) {
    size_t length;
    while (at < bytes && at < most && class_at(text + at, &length) == class) {
        *out_last = at;
        at += length;
    }
    return at;
}

size_t tr_gpt2_piece(const char *text, size_t bytes, size_t most) {
    size_t length, last = 0, found = gpt2_ending(text);
    if (found) return found;
    class_t class = class_at(text, &length);
    const size_t begin = *text == ' ' && bytes > 1 ? 1 : 0;
    if (begin) class = class_at(text + 1, &length);
    if (class != TR_UNICODE_SPACE) return gpt2_run_end(text, begin, bytes, most, class, &last);
    const size_t end = gpt2_run_end(text, 0, bytes, most, TR_UNICODE_SPACE, &last);
    return end < bytes && end < most && last > 0 ? last : end;
}
