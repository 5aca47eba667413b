/*
 * Counted memory: a small header before each block stores its size, so that the counters are exact.
 */
#include "base/mem_shared.h"
#include "base/str.h"

#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef struct {
    size_t bytes;  /* asked for */
    size_t offset; /* from the start of the system's block to the caller's pointer */
} header_t;

#define HEADER_BYTES 16 /* keeps malloc's alignment */
/* In `offset`, which is a multiple of 16: the block is a private page, which begins with the file
 * descriptor, and the pages of that file. */
#define SHARED ((size_t)1)
_Static_assert(sizeof(header_t) <= HEADER_BYTES, "the header must fit before the smallest block");
_Static_assert(alignof(max_align_t) <= HEADER_BYTES, "blocks must be aligned for any type");

static _Atomic int64_t calls, live, live_bytes, peak_bytes, fail_at;

/* The interface takes T ** as void *: memcpy is the way to read it that aliasing rules allow. */
static void *mem_load_pointer(const void *address) {
    void *pointer;
    memcpy(&pointer, address, sizeof pointer);
    return pointer;
}

static void mem_store_pointer(void *address, void *pointer) {
    memcpy(address, &pointer, sizeof pointer);
}

static header_t *header_of(void *pointer) {
    return (header_t *)((char *)pointer - HEADER_BYTES);
}

static void mem_count_bytes(int64_t blocks, int64_t bytes) {
    atomic_fetch_add_explicit(&live, blocks, memory_order_relaxed);
    int64_t now = atomic_fetch_add_explicit(&live_bytes, bytes, memory_order_relaxed) + bytes;
    int64_t peak = atomic_load_explicit(&peak_bytes, memory_order_relaxed);
    while (now > peak && !atomic_compare_exchange_weak(&peak_bytes, &peak, now)) {
    }
}

static bool mem_may_allocate(size_t bytes) {
    atomic_fetch_add_explicit(&calls, 1, memory_order_relaxed);
    if (atomic_load_explicit(&fail_at, memory_order_relaxed) > 0 &&
        atomic_fetch_sub(&fail_at, 1) == 1)
        return false;
    return bytes <= PTRDIFF_MAX / 2;
}

static tr_status_t mem_no_memory(size_t bytes, const char *what) {
    char wanted[32], held[32];
    return TR_FAIL(TR_ERR_MEMORY,
                   "Cannot allocate %s (%zu bytes) for %s; this process uses %s. Request more "
                   "memory per rank (sbatch --mem), or reduce the size of the named object.",
                   tr_format_bytes((double)bytes, wanted), bytes, what,
                   tr_format_bytes((double)atomic_load(&live_bytes), held));
}

static void *mem_finish(char *block, size_t offset, size_t bytes) {
    char *pointer = block + offset;
    *header_of(pointer) = (header_t){bytes, offset};
    mem_count_bytes(1, (int64_t)bytes);
    return pointer;
}

tr_status_t tr_alloc(size_t bytes, const char *what, void *out_pointer) {
    char *block = mem_may_allocate(bytes) ? calloc(1, HEADER_BYTES + bytes) : NULL;
    if (!block) return mem_no_memory(bytes, what);
    mem_store_pointer(out_pointer, mem_finish(block, HEADER_BYTES, bytes));
    return TR_OK;
}

tr_status_t tr_alloc_aligned(size_t bytes, size_t align, const char *what, void *out_pointer) {
    if (align == 0 || (align & (align - 1)) != 0)
        return TR_FAIL(TR_ERR_INTERNAL, "The alignment of %s must be a power of two, found %zu.",
                       what, align);
    const size_t least = align > HEADER_BYTES ? align : HEADER_BYTES;
    const bool fits = mem_may_allocate(bytes) && least <= PTRDIFF_MAX / 4;
    /* not posix_memalign and memset: large blocks are new pages of the system, which are zero */
    char *block = fits ? calloc(1, 2 * least + bytes) : NULL;
    if (!block) return mem_no_memory(bytes, what);
    const size_t offset = least + (-(uintptr_t)block & (least - 1));
    mem_store_pointer(out_pointer, mem_finish(block, offset, bytes));
    return TR_OK;
}

static size_t mem_page(void) {
    return (size_t)sysconf(_SC_PAGESIZE);
}

/* Whole pages, at least one. */
static size_t mem_in_pages(size_t bytes) {
    return (bytes / mem_page() + (bytes % mem_page() > 0 || bytes == 0)) * mem_page();
}

/* The pages of a new file behind a private one; NULL: this system has no such files, or no memory. */
static char *mem_map_file(size_t pages_bytes, int *out_file) {
    const size_t page = mem_page();
    const int file = memfd_create("trainer", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    char *block = MAP_FAILED;
    if (file < 0) return NULL;
    if (fallocate(file, 0, 0, (off_t)pages_bytes) == 0 &&
        fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0)
        block = mmap(NULL, page + pages_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                     -1, 0);
    if (block != MAP_FAILED && mmap(block + page, pages_bytes, PROT_READ | PROT_WRITE,
                                    MAP_SHARED | MAP_FIXED, file, 0) != MAP_FAILED) {
        *out_file = file;
        return block;
    }
    if (block != MAP_FAILED) munmap(block, page + pages_bytes);
    close(file);
    return NULL;
}

tr_status_t tr_alloc_shared(size_t bytes, const char *what, void *out_pointer) {
    int file = -1;
    char *block = mem_may_allocate(bytes) ? mem_map_file(mem_in_pages(bytes), &file) : NULL;
    if (!block) return mem_no_memory(bytes, what);
    memcpy(block, &file, sizeof file);
    char *pointer = mem_finish(block, mem_page(), bytes);
    header_of(pointer)->offset |= SHARED;
    mem_store_pointer(out_pointer, pointer);
    return TR_OK;
}

int tr_shared_file(void *pointer) {
    const header_t header = *header_of(pointer);
    int file = -1;
    if (header.offset & SHARED)
        memcpy(&file, (char *)pointer - (header.offset - SHARED), sizeof file);
    return file;
}

tr_status_t tr_realloc(void *pointer, size_t bytes, const char *what) {
    char *old = mem_load_pointer(pointer);
    if (!old) return tr_alloc(bytes, what, pointer);
    header_t before = *header_of(old);
    if (before.offset != HEADER_BYTES)
        return TR_FAIL(TR_ERR_INTERNAL, "%s has an alignment of its own and cannot be resized.",
                       what);
    char *block =
        mem_may_allocate(bytes) ? realloc(old - HEADER_BYTES, HEADER_BYTES + bytes) : NULL;
    if (!block) return mem_no_memory(bytes, what);
    mem_count_bytes(-1, -(int64_t)before.bytes);
    char *moved = mem_finish(block, HEADER_BYTES, bytes);
    if (bytes > before.bytes) memset(moved + before.bytes, 0, bytes - before.bytes);
    mem_store_pointer(pointer, moved);
    return TR_OK;
}

void tr_free(void *pointer) {
    char *old = mem_load_pointer(pointer);
    if (!old) return;
    header_t header = *header_of(old);
    mem_count_bytes(-1, -(int64_t)header.bytes);
    if (header.offset & SHARED) {
        close(tr_shared_file(old));
        munmap(old - mem_page(), mem_page() + mem_in_pages(header.bytes));
    } else {
        free(old - header.offset);
    }
    mem_store_pointer(pointer, NULL);
}

tr_status_t tr_strdup(const char *text, char **out) {
    size_t bytes = strlen(text) + 1;
    char *copy;
    TR_TRY(tr_alloc(bytes, "a string", &copy));
    memcpy(copy, text, bytes);
    *out = copy;
    return TR_OK;
}

void tr_use_large_pages(void *block, size_t bytes) {
    size_t page = mem_page(), begin = ((uintptr_t)block + page - 1) / page * page;
    size_t end = ((uintptr_t)block + bytes) / page * page;
    if (end > begin) madvise((void *)begin, end - begin, MADV_HUGEPAGE);
}

tr_mem_stats_t tr_mem_stats(void) {
    return (tr_mem_stats_t){atomic_load(&calls), atomic_load(&live), atomic_load(&live_bytes),
                            atomic_load(&peak_bytes)};
}

void tr_mem_fail_at(int64_t nth) {
    atomic_store(&fail_at, nth);
}

tr_status_t tr_vec_reserve_(void *data, size_t *capacity, size_t need, size_t elem_bytes) {
    if (need <= *capacity) return TR_OK;
    size_t grown = *capacity + *capacity / 2 + 8;
    if (grown < need) grown = need;
    if (grown > PTRDIFF_MAX / 2 / elem_bytes) return mem_no_memory(SIZE_MAX, "an array");
    TR_TRY(tr_realloc(data, grown * elem_bytes, "an array"));
    *capacity = grown;
    return TR_OK;
}
