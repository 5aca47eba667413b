/* Integer minimum, maximum and rounded-up division. */
#ifndef TR_BASE_INT_MATH_H
#define TR_BASE_INT_MATH_H

#include <stdint.h>

static inline int64_t min64(int64_t a, int64_t b) {
    return a < b ? a : b;
}
static inline int64_t max64(int64_t a, int64_t b) {
    return a > b ? a : b;
}
/* a / b rounded up; a >= 0, b > 0. */
static inline int64_t ceil_div(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}

#endif
