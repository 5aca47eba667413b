/* Counted memory that other processes can map. tr_free frees it. Thread-safe. */
#ifndef TR_BASE_MEM_SHARED_H
#define TR_BASE_MEM_SHARED_H

#include "base/mem.h"

/*
 * As tr_alloc, but the memory is a file without a name (memfd_create): aligned to a page, and of a
 * sealed size. All of it is there: writing it needs no more memory.
 */
tr_status_t tr_alloc_shared(size_t bytes, const char *what, void *out_pointer);
/* The file descriptor, which the memory owns, of memory from tr_alloc_shared; -1: `pointer` is from
 * another function of mem.h. */
int tr_shared_file(void *pointer);

#endif
