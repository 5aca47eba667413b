/* IDX, the format of MNIST's files: two zero bytes, type, number of dimensions, the dimensions as
 * big-endian 32-bit numbers, then the values. */
#include "import_int.h"
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#define TYPE_U8 8

struct tr_idx {
    gzFile file;
    char *name;
    int64_t dim[TR_MAX_DIMS];
};

tr_status_t tr_idx_open(int fd, const char *name, int ndim, tr_idx_t **out) {
    unsigned char head[4 + 4 * TR_MAX_DIMS];
    tr_idx_t *idx = NULL;
    tr_status_t status = tr_alloc(sizeof *idx, "IDX file", &idx);
    *out = NULL;
    if (status != TR_OK) {
        close(fd);
        return status;
    }
    idx->file = gzdopen(fd, "rb");
    if (!idx->file) {
        close(fd);
        status = TR_FAIL(TR_ERR_MEMORY, "Not enough memory to read '%s'.", name);
        goto failed;
    }
    TR_TRY_GOTO(tr_strdup(name, &idx->name), failed);
    gzbuffer(idx->file, 1 << 17);
    TR_TRY_GOTO(tr_idx_read(idx, head, 4), failed);
    if (head[0] || head[1] || head[2] != TYPE_U8 || head[3] != ndim) {
        status = TR_FAIL(
            TR_ERR_DATA,
            "'%s' is not an IDX file of bytes with %d dimensions (it starts with %02x %02x %02x "
            "%02x).",
            name, ndim, head[0], head[1], head[2], head[3]);
        goto failed;
    }
    TR_TRY_GOTO(tr_idx_read(idx, head, (size_t)(4 * ndim)), failed);
    for (int d = 0; d < ndim; d++) {
        const unsigned char *p = head + 4 * d;
        idx->dim[d] = (int64_t)p[0] << 24 | p[1] << 16 | p[2] << 8 | p[3];
        if (idx->dim[d] == 0 || (d && idx->dim[d] > 1 << 16)) {
            status = TR_FAIL(TR_ERR_DATA, "'%s': its dimension %d is %lld, which is invalid.", name,
                             d, (long long)idx->dim[d]);
            goto failed;
        }
    }
    *out = idx;
    return TR_OK;
failed:
    tr_idx_close(&idx);
    return status;
}

const int64_t *tr_idx_dims(const tr_idx_t *idx) {
    return idx->dim;
}

tr_status_t tr_idx_read(tr_idx_t *idx, void *out, size_t bytes) {
    for (size_t done = 0; done < bytes;) {
        unsigned want = bytes - done < 1 << 30 ? (unsigned)(bytes - done) : 1u << 30;
        int got = gzread(idx->file, (char *)out + done, want), code;
        if (got <= 0) {
            const char *reason = gzerror(idx->file, &code);
            return TR_FAIL(code == Z_ERRNO ? TR_ERR_IO : TR_ERR_DATA,
                           "'%s' is truncated%s%s. Download it again.", idx->name, code ? ": " : "",
                           code ? reason : "");
        }
        done += (size_t)got;
    }
    return TR_OK;
}

tr_status_t tr_idx_at_end(tr_idx_t *idx) {
    char more;
    int got = gzread(idx->file, &more, 1);
    if (got == 0) return TR_OK;
    return TR_FAIL(TR_ERR_DATA,
                   got > 0 ? "'%s' is longer than its header states. Download it again."
                           : "'%s' is damaged at its end. Download it again.",
                   idx->name);
}

void tr_idx_close(tr_idx_t **idx) {
    if (!*idx) return;
    if ((*idx)->file) gzclose((*idx)->file);
    tr_free(&(*idx)->name);
    tr_free(idx);
}
