/* Files that are checksummed (XXH3-64) while they are written or read. */
#define XXH_INLINE_ALL /* compiled for this CPU: twice the library's speed */
#include <xxhash.h>

#include "checkpoint_int.h"
#include "base/file.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BLOCK_BYTES                                                                                \
    ((size_t)256 << 10) /* stays in the L2 cache between the two checksums and the copy */

/* -- writing ----------------------------------------------------------------------------------- */

struct tr_sink {
    int fd;
    char path[4096];
    int64_t bytes;
    bool in_part, committed, is_shared;
    XXH3_state_t whole, part;
};

static tr_status_t sink_open(const char *path, bool is_shared, tr_sink_t **out) {
    tr_sink_t *s = NULL;
    TR_TRY(tr_alloc_aligned(sizeof *s, 64, "file writer", &s));
    memset(s, 0, sizeof *s);
    snprintf(s->path, sizeof s->path, "%s", path);
    XXH3_64bits_reset(&s->whole);
    s->is_shared = is_shared;
    s->fd =
        open(path, O_WRONLY | O_CREAT | (is_shared ? 0 : O_EXCL) | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (s->fd < 0) {
        int why = errno;
        tr_free(&s);
        return tr_io_fail("create", path, why);
    }
    *out = s;
    return TR_OK;
}

tr_status_t tr_sink_open(const char *path, tr_sink_t **out) {
    return sink_open(path, false, out);
}

tr_status_t tr_sink_open_shared(const char *path, tr_sink_t **out) {
    return sink_open(path, true, out);
}

tr_status_t tr_sink_seek(tr_sink_t *s, int64_t offset) {
    return lseek(s->fd, offset, SEEK_SET) < 0 ? tr_io_fail("write", s->path, errno) : TR_OK;
}

tr_status_t tr_sink_write(tr_sink_t *s, const void *bytes, size_t count) {
    for (const char *at = bytes; count > 0;) {
        const size_t block = count < BLOCK_BYTES ? count : BLOCK_BYTES;
        XXH3_64bits_update(&s->whole, at, block);
        if (s->in_part) XXH3_64bits_update(&s->part, at, block);
        TR_TRY(tr_write_all(s->fd, s->path, at, block));
        at += block;
        s->bytes += (int64_t)block;
        count -= block;
    }
    return TR_OK;
}

void tr_sink_begin_part(tr_sink_t *s) {
    XXH3_64bits_reset(&s->part);
    s->in_part = true;
}

uint64_t tr_sink_end_part(tr_sink_t *s) {
    s->in_part = false;
    return XXH3_64bits_digest(&s->part);
}

tr_status_t tr_sink_commit(tr_sink_t *s, uint64_t *checksum, int64_t *bytes) {
    if (fsync(s->fd) != 0) return tr_io_fail("fsync", s->path, errno);
    int closed = close(s->fd);
    s->fd = -1;
    if (closed != 0) return tr_io_fail("close", s->path, errno);
    s->committed = true;
    if (checksum) *checksum = XXH3_64bits_digest(&s->whole);
    if (bytes) *bytes = s->bytes;
    return TR_OK;
}

void tr_sink_close(tr_sink_t **sink) {
    if (!*sink) return;
    if ((*sink)->fd >= 0) close((*sink)->fd);
    if (!(*sink)->committed && !(*sink)->is_shared) unlink((*sink)->path);
    tr_free(sink);
}

/* -- reading ----------------------------------------------------------------------------------- */

struct tr_checksum {
    XXH3_state_t whole, part;
    char *block; /* NULL: nothing was read by this one */
};

tr_status_t tr_checksum_create(tr_checksum_t **out) {
    TR_TRY(tr_alloc_aligned(sizeof **out, 64, "checksum", out));
    XXH3_64bits_reset(&(*out)->whole);
    XXH3_64bits_reset(&(*out)->part);
    (*out)->block = NULL;
    return TR_OK;
}

void tr_checksum_begin_part(tr_checksum_t *c) {
    XXH3_64bits_reset(&c->part);
}

tr_status_t tr_checksum_read(tr_checksum_t *c, tr_checksum_t *also, int fd, const char *path,
                             int64_t offset, int64_t bytes) {
    if (!c->block) TR_TRY(tr_alloc(BLOCK_BYTES, "checksum", &c->block));
    while (bytes > 0) {
        const int64_t n = bytes < (int64_t)BLOCK_BYTES ? bytes : (int64_t)BLOCK_BYTES;
        TR_TRY(tr_read_at(fd, path, offset, n, c->block));
        XXH3_64bits_update(&c->whole, c->block, (size_t)n);
        XXH3_64bits_update(&c->part, c->block, (size_t)n);
        if (also) XXH3_64bits_update(&also->whole, c->block, (size_t)n);
        offset += n;
        bytes -= n;
    }
    return TR_OK;
}

uint64_t tr_checksum_part(const tr_checksum_t *c) {
    return XXH3_64bits_digest(&c->part);
}
uint64_t tr_checksum_value(const tr_checksum_t *c) {
    return XXH3_64bits_digest(&c->whole);
}
void tr_checksum_destroy(tr_checksum_t **checksum) {
    if (*checksum) tr_free(&(*checksum)->block);
    tr_free(checksum);
}
uint64_t tr_checksum_bytes(const void *bytes, size_t count) {
    return XXH3_64bits(bytes, count);
}
