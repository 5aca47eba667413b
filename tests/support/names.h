/*
 * What a test may ask of a message: that it names certain keys, values, paths and numbers. The
 * words around them are free to change. `names` lists what must be there, separated by " & ", in
 * any order; each must begin and end where a word does, so that 8 is not found in 128.
 */
#ifndef TEST_NAMES_H
#define TEST_NAMES_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include "trainer/status.h"

#include <stdbool.h>

/* All of `names` are in `text`. */
bool names_all(const char *text, const char *names);
/* All of them are in one and the same line of it. */
bool names_in_line(const char *text, const char *names);

#define assert_names(text, names)                                                                  \
    do {                                                                                           \
        if (!names_all((text), (names))) fail_msg("'%s' is not all in: %s", (names), (text));      \
    } while (0)
/* The same of the message of the last error. */
#define assert_error_names(names) assert_names(tr_error_last()->message, (names))

#endif
