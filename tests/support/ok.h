/* For tests with cmocka: a call that has to succeed. Include it after cmocka.h. */
#ifndef TESTS_SUPPORT_OK_H
#define TESTS_SUPPORT_OK_H

#include "trainer/status.h"

/* Fails with the recorded error. */
#define OK(call)                                                                                   \
    do {                                                                                           \
        if ((call) != TR_OK) fail_msg("%s: %s", #call, tr_error_last()->message);                  \
    } while (0)

#endif
