/* The header of a file of NumPy (.npy, versions 1 to 3): numpy.lib.format. */
#ifndef TR_BASE_NPY_H
#define TR_BASE_NPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TR_NPY_BYTES = 4096 /* of what precedes the numbers, at most */, TR_NPY_DIMS = 8 };

typedef struct {
    char type[8];        /* "<f4" */
    char shape_text[96]; /* "(20, 3)" */
    int ndim;
    int64_t dim[TR_NPY_DIMS];
    bool is_fortran; /* the first dimension is the fastest */
    size_t first;    /* the byte of the file at which the numbers begin */
} tr_npy_t;

/* From the first bytes of a file, TR_NPY_BYTES or all of it. False: it is damaged, or no such file. */
bool tr_npy_parse(const void *bytes, size_t count, tr_npy_t *out);

#endif
