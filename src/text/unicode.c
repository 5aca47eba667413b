/* Classes of characters, of one fixed version of Unicode. */
#include "unicode.h"

typedef struct {
    uint32_t first, last;
    tr_unicode_class_t class;
} unicode_range_t;

#include "unicode_ranges.inc"

tr_unicode_class_t tr_unicode_class(uint32_t code) {
    size_t low = 0,
           high = sizeof ranges / sizeof *ranges; /* the range is in [low, high) if it exists */
    while (low < high) {
        const size_t middle = (low + high) / 2;
        if (code > ranges[middle].last)
            low = middle + 1;
        else if (code < ranges[middle].first)
            high = middle;
        else
            return ranges[middle].class;
    }
    return TR_UNICODE_OTHER;
}
