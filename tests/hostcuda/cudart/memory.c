/* Allocations, poisoned at birth, between guard pages. Device memory is closed to the host
 * outside of work. */
#include "cudart_int.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define ALIGNMENT    ((size_t)256)
#define POISON       0xff /* a NaN of every floating type */
#define POISON_CHUNK ((size_t)16 << 20)
#define POISON_SMALL ((size_t)256 << 10)

/* Closing takes longer than most work: it is left out 7 times of 8 after so many times. */
#define ALWAYS_CLOSED 100

static memory_t *table;
static int count, room, open_depth;
static bool is_open;
static size_t used[MAX_DEVICES];

static size_t page(void) {
    return (size_t)sysconf(_SC_PAGESIZE);
}
static size_t round_up(size_t n, size_t to) {
    return (n + to - 1) / to * to;
}

const memory_t *hc_memory_find(const void *pointer) {
    for (int i = 0; i < count; i++)
        if ((const char *)pointer >= table[i].base &&
            (const char *)pointer < table[i].base + table[i].bytes)
            return &table[i];
    return NULL;
}
size_t hc_memory_used(int device) {
    return used[device];
}

static bool protects(void) {
    static int wish = -1;
    if (wish < 0) wish = hostcuda_env("HOSTCUDA_PROTECT", 1) != 0;
    return wish;
}
static void protect(const memory_t *m, bool open) {
    if (m->kind == MEMORY_DEVICE && protects())
        mprotect(m->map + page(), m->map_bytes - 2 * page(),
                 open ? PROT_READ | PROT_WRITE : PROT_NONE);
}

EXPORT void hostcuda_open(void) {
    hc_lock();
    if (open_depth++ == 0 && !is_open) {
        is_open = true;
        for (int i = 0; i < count; i++) protect(&table[i], true);
    }
    hc_unlock();
}
EXPORT void hostcuda_close(void) {
    static unsigned closings;
    hc_lock();
    if (--open_depth == 0 && (++closings <= ALWAYS_CLOSED || closings % 8 == 0)) {
        is_open = false;
        for (int i = 0; i < count; i++) protect(&table[i], false);
    }
    hc_unlock();
}

/* All but small blocks share the pages of one poisoned file: what nobody touches takes no memory,
 * and no time when the block is opened and closed. */
static void poison(char *from, size_t bytes) {
    static int file = -1;
    if (bytes <= POISON_SMALL) {
        memset(from, POISON, bytes);
        return;
    }
    if (file < 0) {
        file = memfd_create("hostcuda-poison", MFD_CLOEXEC);
        char *chunk = malloc(POISON_CHUNK);
        memset(chunk, POISON, POISON_CHUNK);
        if (file < 0 || write(file, chunk, POISON_CHUNK) != (ssize_t)POISON_CHUNK) abort();
        free(chunk);
    }
    for (size_t at = 0; at < bytes; at += POISON_CHUNK) {
        const size_t n = bytes - at < POISON_CHUNK ? bytes - at : POISON_CHUNK;
        if (mmap(from + at, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE,
                 file, 0) == MAP_FAILED)
            abort();
    }
}

/* HOSTCUDA_PEAK: at exit, the most pinned memory at a time. */
static size_t pinned, pinned_most;
static void report_pinned(void) {
    fprintf(stderr, "hostcuda: at most %zu bytes of pinned memory\n", pinned_most);
}
static void count_pinned(size_t bytes) {
    if (!pinned_most && hostcuda_env("HOSTCUDA_PEAK", 0)) atexit(report_pinned);
    pinned += bytes;
    if (pinned > pinned_most) pinned_most = pinned;
}

/* The end of the block lies within ALIGNMENT bytes of the guard page. */
static cudaError_t allocate(memory_kind_t kind, size_t bytes, void **out) {
    const size_t inner = round_up(bytes, page()), offset = (inner - bytes) / ALIGNMENT * ALIGNMENT;
    memory_t m = {
        .kind = kind, .bytes = bytes, .map_bytes = inner + 2 * page(), .device = hc_current()};
    m.map = mmap(NULL, m.map_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (m.map == MAP_FAILED) return cudaErrorMemoryAllocation;
    mprotect(m.map + page(), inner, PROT_READ | PROT_WRITE);
    m.base = m.map + page() + offset;
    poison(m.map + page(), inner);
    if (kind == MEMORY_DEVICE) used[m.device] += inner;
    if (kind == MEMORY_PINNED) count_pinned(bytes);
    if (!is_open) protect(&m, false);
    if (count == room) table = realloc(table, (size_t)(room = 2 * room + 16) * sizeof *table);
    table[count++] = m;
    hostcuda_count(kind == MEMORY_DEVICE ? "blocks of device memory" : "blocks of pinned memory",
                   1);
    *out = m.base;
    return cudaSuccess;
}

static cudaError_t release(void *pointer, memory_kind_t kind) {
    memory_t *m = (memory_t *)hc_memory_find(pointer);
    if (!pointer) return cudaSuccess;
    if (!m || m->kind != kind || m->base != pointer) return cudaErrorInvalidValue;
    if (kind == MEMORY_DEVICE) used[m->device] -= m->map_bytes - 2 * page();
    if (kind == MEMORY_PINNED) pinned -= m->bytes;
    if (kind != MEMORY_REGISTERED) {
        munmap(m->map, m->map_bytes);
        hostcuda_count(
            kind == MEMORY_DEVICE ? "blocks of device memory" : "blocks of pinned memory", -1);
    }
    *m = table[--count];
    return cudaSuccess;
}

void hc_memory_reset(int device) {
    for (int i = count - 1; i >= 0; i--)
        if (table[i].device == device && table[i].kind == MEMORY_DEVICE)
            release(table[i].base, MEMORY_DEVICE);
}

EXPORT cudaError_t cudaMalloc(void **out, size_t bytes) {
    ENTER_UNSAFE("%zu", bytes);
    const long long largest = hostcuda_env("HOSTCUDA_LARGEST", 0);
    hc_context_open(hc_current());
    *out = NULL;
    if (!bytes) LEAVE(cudaSuccess);
    if (bytes > hc_memory_free(hc_current()) || (largest && bytes > (size_t)largest))
        LEAVE(cudaErrorMemoryAllocation);
    LEAVE(allocate(MEMORY_DEVICE, bytes, out));
}

/* As the real one, waits for all work of the device. */
EXPORT cudaError_t cudaFree(void *pointer) {
    ENTER_UNSAFE("%s", pointer ? "block" : "NULL");
    const cudaError_t error = pointer ? hc_drain(NULL) : cudaSuccess;
    if (!pointer) hc_context_open(hc_current());
    const cudaError_t freed = release(pointer, MEMORY_DEVICE);
    LEAVE(error ? error : freed);
}

EXPORT cudaError_t cudaHostAlloc(void **out, size_t bytes, unsigned flags) {
    ENTER_UNSAFE("%zu %u", bytes, flags);
    *out = NULL;
    if (!bytes) LEAVE(cudaSuccess);
    if (bytes > (size_t)hostcuda_env("HOSTCUDA_PINNED", 1LL << 40))
        LEAVE(cudaErrorMemoryAllocation);
    LEAVE(allocate(MEMORY_PINNED, bytes, out));
}
EXPORT cudaError_t cudaMallocHost(void **out, size_t bytes) {
    return cudaHostAlloc(out, bytes, 0);
}
EXPORT cudaError_t cudaFreeHost(void *pointer) {
    ENTER_UNSAFE("%s", pointer ? "block" : "NULL");
    const cudaError_t error = pointer ? hc_drain(NULL) : cudaSuccess;
    const cudaError_t freed = release(pointer, MEMORY_PINNED);
    LEAVE(error ? error : freed);
}

EXPORT cudaError_t cudaHostRegister(void *pointer, size_t bytes, unsigned flags) {
    ENTER_UNSAFE("%zu %u", bytes, flags);
    if (!pointer || !bytes) LEAVE(cudaErrorInvalidValue);
    if (hc_memory_find(pointer)) LEAVE(cudaErrorHostMemoryAlreadyRegistered);
    if (count == room) table = realloc(table, (size_t)(room = 2 * room + 16) * sizeof *table);
    table[count++] = (memory_t){
        .kind = MEMORY_REGISTERED, .base = pointer, .bytes = bytes, .device = hc_current()};
    LEAVE(cudaSuccess);
}
EXPORT cudaError_t cudaHostUnregister(void *pointer) {
    ENTER_UNSAFE("%s", "");
    LEAVE(release(pointer, MEMORY_REGISTERED) ? cudaErrorHostMemoryNotRegistered : cudaSuccess);
}
EXPORT cudaError_t cudaHostGetDevicePointer(void **device, void *host, unsigned flags) {
    ENTER("%u", flags);
    const memory_t *m = hc_memory_find(host);
    if (!m || m->kind == MEMORY_DEVICE) LEAVE(cudaErrorInvalidValue);
    *device = host;
    LEAVE(cudaSuccess);
}

EXPORT cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *out,
                                            const void *pointer) {
    ENTER("%s", "");
    const memory_t *m = hc_memory_find(pointer);
    memset(out, 0, sizeof *out);
    out->device = m ? m->device : -2;
    out->type = !m                         ? cudaMemoryTypeUnregistered
                : m->kind == MEMORY_DEVICE ? cudaMemoryTypeDevice
                                           : cudaMemoryTypeHost;
    out->devicePointer = m ? (void *)pointer : NULL;
    out->hostPointer = m && m->kind != MEMORY_DEVICE ? (void *)pointer : NULL;
    LEAVE(cudaSuccess);
}

EXPORT bool hostcuda_accessible(const void *pointer, size_t bytes) {
    hc_lock();
    const memory_t *m = hc_memory_find(pointer);
    const bool inside = m && (const char *)pointer + bytes <= m->base + m->bytes;
    hc_unlock();
    return inside;
}
EXPORT bool hostcuda_is_device(const void *pointer) {
    hc_lock();
    const memory_t *m = hc_memory_find(pointer);
    const bool device = m && m->kind == MEMORY_DEVICE;
    hc_unlock();
    return device;
}
