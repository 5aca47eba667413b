/*
 * Counted host memory. The library allocates only through these functions, so that tests can check
 * that nothing is allocated after step 1 and everything is freed at exit. Thread-safe.
 */
#ifndef TR_BASE_MEM_H
#define TR_BASE_MEM_H

#include "trainer/status.h"
#include <stddef.h>
#include <stdint.h>

/* Number of elements of an array. */
#define TR_COUNT(array) (sizeof(array) / sizeof(array)[0])

/* Allocates zeroed memory. 0 bytes give a pointer that can be freed. TR_ERR_MEMORY names `what`. */
tr_status_t tr_alloc(size_t bytes, const char *what, void *out_pointer);
/* As tr_alloc, but aligned to `align`, a power of two. */
tr_status_t tr_alloc_aligned(size_t bytes, size_t align, const char *what, void *out_pointer);
/*
 * Resizes *pointer (may be NULL; not from tr_alloc_aligned) to `bytes` and zeroes new bytes. On
 * failure *pointer is unchanged. Takes the address of the pointer.
 */
tr_status_t tr_realloc(void *pointer, size_t bytes, const char *what);
/* Frees *pointer and sets it to NULL; NULL is allowed. Takes the address of the pointer. */
void tr_free(void *pointer);
tr_status_t tr_strdup(const char *text, char **out);
/* Requests huge pages for a block with random access or direct I/O. A hint only. */
void tr_use_large_pages(void *block, size_t bytes);

typedef struct {
    int64_t calls; /* allocations since the start */
    int64_t live;  /* allocations not yet freed */
    int64_t live_bytes;
    int64_t peak_bytes;
} tr_mem_stats_t;
tr_mem_stats_t tr_mem_stats(void);
/* For tests: makes the nth allocation from now fail once. 1 is the next one; 0 disables this. */
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
