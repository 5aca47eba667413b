/* Reads that bypass the page cache: threads prefetch announced ranges into a few buffers. */
#include "h5.h"
#include "trainer/log.h"
#include "base/thread.h"
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define THREADS     4 /* concurrent requests: with only one, disk and copies would alternate */
#define BUFFERS     8 /* as many again that are queued */
#define RESERVE     4 /* for readers that wait until another reader collects its range */
#define RANGE_BYTES ((1 << 20) + (64 << 10)) /* at most: a chunk of 1 MiB and its checksum */
#define RANGE_MIN   (64 << 10) /* the page cache reads smaller ones more efficiently */
#define SECTOR      4096       /* of offsets, sizes and addresses: the largest block of a disk */
#define RANGES      1024       /* announced at a time, at most */
#define LONG_BEFORE 64         /* ranges */
#define LARGE_PAGE  (2 << 20)
#define ROOM        ((size_t)RANGE_BYTES + 2 * SECTOR) /* of a buffer */
#define PAGE_MOST   (64 << 10) /* madvise takes whole pages; some Arm kernels have these */
#define BLOCK_BYTES (((BUFFERS + RESERVE) * ROOM + PAGE_MOST - 1) / PAGE_MOST * PAGE_MOST)

enum { FREE, QUEUED, READING, READY, COPYING };

typedef struct {
    int fd, state;
    uint64_t offset, bytes;
    char *buffer; /* READING to COPYING: begins with the sector that holds `offset` */
} range_t;

struct h5_direct {
    pthread_mutex_t lock; /* guards all below */
    pthread_cond_t work, done;
    bool stop, refused;
    range_t range[RANGES]; /* circular, the oldest at `first` */
    int first, count;
    char *block, *buffer[BUFFERS + RESERVE]; /* buffer: the free ones */
    int free_count;
    pthread_t thread[THREADS];
    int threads;
};

static range_t *range_at(h5_direct_t *d, int index) {
    return &d->range[(d->first + index) % RANGES];
}

/* Finished, read or not. */
static void range_drop(h5_direct_t *d, range_t *r) {
    if (r->buffer) d->buffer[d->free_count++] = r->buffer;
    r->buffer = NULL;
    r->state = FREE;
    while (d->count && range_at(d, 0)->state == FREE) {
        d->first = (d->first + 1) % RANGES;
        d->count--;
    }
    pthread_cond_signal(&d->work);
    pthread_cond_broadcast(&d->done);
}

static range_t *direct_oldest(h5_direct_t *d, int state) {
    for (int i = 0; i < d->count; i++)
        if (range_at(d, i)->state == state) return range_at(d, i);
    return NULL;
}

/* The sectors that hold the range, into its buffer. At the end of the file the last one is cut off.
 */
static bool range_fetch(const range_t *r) {
    uint64_t begin = r->offset / SECTOR * SECTOR, need = r->offset + r->bytes - begin;
    size_t bytes = (need + SECTOR - 1) / SECTOR * SECTOR;
    for (uint64_t have = 0; have < need;) {
        ssize_t got = pread(r->fd, r->buffer + have, bytes - have, (off_t)(begin + have));
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0 || (got % SECTOR && have + (uint64_t)got < need)) return false;
        have += (uint64_t)got;
    }
    return true;
}

/* Reads a queued range, without the lock meanwhile. A buffer is free. */
static void direct_load(h5_direct_t *d, range_t *r) {
    r->buffer = d->buffer[--d->free_count];
    r->state = READING;
    pthread_mutex_unlock(&d->lock);
    bool good = range_fetch(r);
    pthread_mutex_lock(&d->lock);
    r->state = READY;
    pthread_cond_broadcast(&d->done);
    if (good) return;
    range_drop(d, r); /* the reader falls back to a normal read, which reports the error */
    if (!d->refused)
        TR_INFO("direct I/O fails on this file system; files are read through the "
                "page cache");
    d->refused = true;
}

static void *direct_main(void *self) {
    h5_direct_t *d = self;
    pthread_mutex_lock(&d->lock);
    while (!d->stop) {
        range_t *r = d->free_count > RESERVE ? direct_oldest(d, QUEUED) : NULL;
        if (r)
            direct_load(d, r);
        else
            pthread_cond_wait(&d->work, &d->lock);
    }
    pthread_mutex_unlock(&d->lock);
    return NULL;
}

static tr_status_t direct_start(h5_direct_t *d) {
    TR_TRY(tr_alloc_aligned(BLOCK_BYTES, LARGE_PAGE, "direct I/O", &d->block));
    /* few long segments of memory need fewer requests to the disk */
    tr_use_large_pages(d->block, BLOCK_BYTES);
    /* In kernels before 5.19 the child of a fork would take over pages that a disk is writing
     * to. */
    madvise(d->block, BLOCK_BYTES, MADV_DONTFORK);
    for (size_t i = 0; i < TR_COUNT(d->buffer); i++)
        d->buffer[d->free_count++] = d->block + i * ROOM;
    while (d->threads < THREADS &&
           !tr_thread_start("trainer-read", direct_main, d, &d->thread[d->threads]))
        d->threads++;
    return TR_OK;
}

tr_status_t tr_h5_direct_open(h5_direct_t **out) {
    TR_TRY(tr_alloc(sizeof **out, "direct I/O", out));
    pthread_mutex_init(&(*out)->lock, NULL);
    pthread_cond_init(&(*out)->work, NULL);
    pthread_cond_init(&(*out)->done, NULL);
    tr_status_t status = direct_start(*out);
    if (status != TR_OK) tr_h5_direct_close(out);
    return status;
}

void tr_h5_direct_close(h5_direct_t **direct) {
    h5_direct_t *d = *direct;
    *direct = NULL;
    if (!d) return;
    pthread_mutex_lock(&d->lock);
    d->stop = true;
    pthread_cond_broadcast(&d->work);
    pthread_mutex_unlock(&d->lock);
    for (int i = 0; i < d->threads; i++) pthread_join(d->thread[i], NULL);
    pthread_cond_destroy(&d->done);
    pthread_cond_destroy(&d->work);
    pthread_mutex_destroy(&d->lock);
    if (d->block) madvise(d->block, BLOCK_BYTES, MADV_DOFORK);
    tr_free(&d->block);
    tr_free(&d);
}

/* Queues one range; if the queue is full, the oldest is dropped, which is rarely waited for. */
static void direct_enqueue(h5_direct_t *d, int fd, uint64_t offset, uint64_t bytes) {
    if (d->count == RANGES) {
        range_t *r = range_at(d, 0);
        if (r->state != QUEUED && r->state != READY) return;
        range_drop(d, r);
    }
    *range_at(d, d->count++) =
        (range_t){.fd = fd, .state = QUEUED, .offset = offset, .bytes = bytes};
    pthread_cond_signal(&d->work);
}

bool tr_h5_direct_expect(h5_direct_t *d, int fd, uint64_t offset, uint64_t bytes) {
    if (bytes < RANGE_MIN || !d->threads) return false;
    pthread_mutex_lock(&d->lock);
    bool good = !d->refused;
    /* Equal parts, so that no small one remains at the end. */
    uint64_t parts = (bytes + RANGE_BYTES - 1) / RANGE_BYTES, most = (bytes + parts - 1) / parts;
    for (uint64_t part; good && bytes; offset += part, bytes -= part) {
        part = bytes < most ? bytes : most;
        direct_enqueue(d, fd, offset, part);
    }
    pthread_mutex_unlock(&d->lock);
    return good;
}

static range_t *direct_find(h5_direct_t *d, int fd, uint64_t offset) {
    for (int i = 0; i < d->count; i++) {
        range_t *r = range_at(d, i);
        if (r->state != FREE && r->fd == fd && offset >= r->offset && offset - r->offset < r->bytes)
            return r;
    }
    return NULL;
}

/* Waits for the range that holds `offset`; NULL: none was announced, or it cannot be read. */
static range_t *direct_await(h5_direct_t *d, int fd, uint64_t offset) {
    range_t *r;
    while ((r = direct_find(d, fd, offset)) && r->state != READY) {
        if (r->state != QUEUED || d->free_count > RESERVE)
            pthread_cond_wait(&d->done, &d->lock); /* the threads have it or will take it */
        else if (d->free_count)
            direct_load(d, r);
        else if (direct_oldest(d, READING) || direct_oldest(d, COPYING))
            pthread_cond_wait(&d->done, &d->lock);
        else
            range_drop(d, direct_oldest(d, READY));
    }
    return r;
}

void tr_h5_direct_forget(h5_direct_t *d, int fd, uint64_t offset, uint64_t bytes) {
    pthread_mutex_lock(&d->lock);
    for (uint64_t at = offset; at < offset + bytes;) {
        range_t *r = direct_find(d, fd, at);
        if (!r || r->offset != at || r->state != READY) break;
        at += r->bytes;
        range_drop(d, r);
    }
    pthread_mutex_unlock(&d->lock);
}

size_t tr_h5_direct_read(h5_direct_t *d, int fd, void *out, size_t bytes, uint64_t offset) {
    size_t count = 0;
    pthread_mutex_lock(&d->lock);
    range_t *r = direct_await(d, fd, offset);
    if (r) {
        uint64_t skip = offset - r->offset;
        count = r->bytes - skip < bytes ? (size_t)(r->bytes - skip) : bytes;
        r->state = COPYING;
        /* Ranges are read roughly in the order of announcement: the rest of those announced long
         * before r will not be requested. */
        while ((r - range_at(d, 0) + RANGES) % RANGES > LONG_BEFORE &&
               range_at(d, 0)->state == READY)
            range_drop(d, range_at(d, 0));
        pthread_mutex_unlock(&d->lock);
        memcpy(out, r->buffer + r->offset % SECTOR + skip, count);
        pthread_mutex_lock(&d->lock);
        r->state = READY;
        if (skip + count == r->bytes)
            range_drop(d, r);
        else
            pthread_cond_broadcast(&d->done);
    }
    pthread_mutex_unlock(&d->lock);
    return count;
}
