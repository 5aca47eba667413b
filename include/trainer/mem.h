/*
 * Counted host memory. Every allocation of the library goes through these, so that "nothing is
 * allocated after step 1" and "everything is freed at exit" can be tested. Thread-safe.
 */
#ifndef TRAINER_MEM_H
#define TRAINER_MEM_H

#include "trainer/status.h"
#include <stddef.h>
#include <stdint.h>

/* Elements of an array. */
#define TR_COUNT(array) (sizeof(array) / sizeof(array)[0])

/*
 * Zeroed memory of `bytes` (0 is allowed and gives a freeable pointer). TR_ERR_MEMORY names `what`.
 */
tr_status_t tr_alloc(size_t bytes, const char *what, void *out_pointer);
/* The same aligned to `align` (a power of two), not zeroed. */
tr_status_t tr_alloc_aligned(size_t bytes, size_t align, const char *what, void *out_pointer);
/*
 * Resizes *pointer (may be NULL; not from tr_alloc_aligned) to `bytes`, new bytes zeroed; on
 * failure *pointer stays valid as it was. Takes the address of the pointer.
 */
tr_status_t tr_realloc(void *pointer, size_t bytes, const char *what);
/* Frees *pointer and sets it to NULL; NULL is allowed. Takes the address of the pointer. */
void tr_free(void *pointer);
tr_status_t tr_strdup(const char *text, char **out);
/*
 * Asks the system for large pages under a block that is accessed here and there, or by a disk. Only
 * advice.
 */
void tr_use_large_pages(void *block, size_t bytes);

typedef struct {
    int64_t calls; /* allocations since start */
    int64_t live;  /* allocations not freed */
    int64_t live_bytes;
    int64_t peak_bytes;
} tr_mem_stats_t;
tr_mem_stats_t tr_mem_stats(void);
/*
 * For tests: the nth allocation from now on fails, once (1 is the next one; 0 switches this off).
 */
void tr_mem_fail_at(int64_t nth);

/*
 * A growable array of T: TR_VEC(int64_t) v = {0}; tr_vec_push(&v, x); v.data[i], v.count;
 * tr_vec_free(&v).
 */
#define TR_VEC(T)                                                                                  \
    struct {                                                                                       \
        T *data;                                                                                   \
        size_t count, capacity;                                                                    \
    }
tr_status_t tr_vec_reserve_(void *data, size_t *capacity, size_t need, size_t elem_bytes);
#define tr_vec_push(v, x)                                                                          \
    (tr_vec_reserve_(&(v)->data, &(v)->capacity, (v)->count + 1, sizeof *(v)->data) == TR_OK       \
         ? ((v)->data[(v)->count++] = (x), TR_OK)                                                  \
         : tr_error_last()->code)
#define tr_vec_free(v) (tr_free(&(v)->data), (v)->count = (v)->capacity = 0)

#endif
