/* The header of a .npy file. */
#include "npy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What follows 'NAME': in the header, which is a dictionary of Python; "": it is missing. */
static const char *npy_value(const char *header, const char *name) {
    const char *at = strstr(header, name), *colon = at ? strchr(at, ':') : NULL;
    return colon ? colon + 1 + strspn(colon + 1, " ") : "";
}

bool tr_npy_parse(const void *bytes, size_t count, tr_npy_t *out) {
    const unsigned char *b = bytes;
    char header[TR_NPY_BYTES + 1];
    *out = (tr_npy_t){0};
    if (count < 12 || memcmp(b, "\x93NUMPY", 6) != 0 || b[6] < 1 || b[6] > 3) return false;
    /* from version 2 on the length has four bytes */
    const size_t start = b[6] == 1 ? 10 : 12,
                 length = b[8] | (size_t)b[9] << 8 |
                          (b[6] == 1 ? 0 : (size_t)b[10] << 16 | (size_t)b[11] << 24);
    out->first = start + length;
    if (length > TR_NPY_BYTES || out->first > count) return false;
    memcpy(header, b + start, length);
    header[length] = '\0';
    const char *at = npy_value(header, "'shape'");
    out->is_fortran = strncmp(npy_value(header, "'fortran_order'"), "True", 4) == 0;
    snprintf(out->shape_text, sizeof out->shape_text, "%.*s", (int)strcspn(at, ")}") + 1, at);
    if (sscanf(npy_value(header, "'descr'"), "'%7[^']'", out->type) != 1 || *at++ != '(')
        return false;
    while (*at != ')') {
        char *end;
        const long long dim = strtoll(at, &end, 10);
        if (end == at || dim < 0 || out->ndim == TR_NPY_DIMS) return false;
        out->dim[out->ndim++] = dim;
        at = end + strspn(end, "L, "); /* Python 2 wrote 10L */
    }
    return true;
}
