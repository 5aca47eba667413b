/* Reading rows of an array, by the method that its storage allows. */
#include "h5.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

static tr_status_t array_read_failed(const h5_file_t *file, uint64_t offset, ssize_t got) {
    if (got == 0)
        return TR_FAIL(TR_ERR_DATA, "%s ends before byte %llu: it was truncated while it was read.",
                       file->path, (unsigned long long)offset);
    return TR_FAIL(TR_ERR_IO, "%s: cannot read at byte %llu: %s.", file->path,
                   (unsigned long long)offset, strerror(errno));
}

tr_status_t tr_h5_pread(h5_file_t *file, void *out, size_t bytes, uint64_t offset) {
    tr_status_t status = TR_OK;
    int fd;
    TR_TRY(tr_h5_file_use(file, &fd));
    for (size_t done = 0; done < bytes && status == TR_OK;) {
        char *to = (char *)out + done;
        ssize_t got = file->direct ? (ssize_t)tr_h5_direct_read(file->direct, file->direct_fd, to,
                                                                bytes - done, offset + done)
                                   : 0;
        if (got == 0) got = pread(fd, to, bytes - done, (off_t)(offset + done));
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) status = array_read_failed(file, offset + done, got);
        if (got > 0) done += (size_t)got;
    }
    tr_h5_file_done(file);
    return status;
}

void tr_h5_scratch_sizes(const h5_array_t *a, size_t *raw_bytes, size_t *chunk_row_bytes) {
    size_t raw = 0, chunk_row = 0;
    if (a->way == H5_CHUNKS && !a->whole_rows) raw = (size_t)a->chunk_bytes;
    if (a->way == H5_CHUNK_ROWS) {
        raw = (size_t)max64(a->chunk_bytes + 4, a->stored_max);
        chunk_row = (size_t)(a->chunk_rows * a->row_bytes);
    }
    if (raw > *raw_bytes) *raw_bytes = raw;
    if (chunk_row > *chunk_row_bytes) *chunk_row_bytes = chunk_row;
}

tr_status_t tr_h5_scratch_reserve(h5_scratch_t *s, size_t raw_bytes, size_t chunk_row_bytes) {
    if (raw_bytes > s->raw_bytes) {
        s->raw_bytes = 0;
        tr_free(&s->raw), tr_free(&s->spare);
        TR_TRY(tr_alloc_aligned(raw_bytes, 64, "stored chunks", &s->raw));
        TR_TRY(tr_alloc_aligned(raw_bytes, 64, "stored chunks", &s->spare));
        s->raw_bytes = raw_bytes;
    }
    if (chunk_row_bytes > s->chunk_row_bytes) {
        s->chunk_row_bytes = 0;
        s->chunk_row_of = NULL;
        tr_free(&s->chunk_row);
        TR_TRY(tr_alloc_aligned(chunk_row_bytes, 64, "decoded chunks", &s->chunk_row));
        s->chunk_row_bytes = chunk_row_bytes;
    }
    return TR_OK;
}

void tr_h5_scratch_free(h5_scratch_t *s) {
    tr_free(&s->raw), tr_free(&s->spare), tr_free(&s->chunk_row), tr_free(&s->rows),
        tr_free(&s->converted);
}

static void array_fill_rows(const h5_array_t *a, int64_t elems, char *out) {
    size_t bytes = tr_dtype_bytes(a->dtype);
    for (int64_t i = 0; i < elems; i++) memcpy(out + (size_t)i * bytes, a->fill, bytes);
    if (a->swap) tr_swap_bytes(out, elems, bytes); /* the caller swaps all bytes */
}

/* Copies `rows` rows of a chunk to dense rows of the array. The chunk is at column `at` of its
 * chunk row. `from` points to the first requested row; NULL: the fill value. */
static void array_place_chunk(const h5_array_t *a, int64_t at, int64_t rows, const char *from,
                              char *out) {
    int64_t origin[TR_MAX_DIMS], extent[TR_MAX_DIMS], index[TR_MAX_DIMS] = {0},
                                                      elem = (int64_t)tr_dtype_bytes(a->dtype);
    int last = a->ndim - 1;
    if (a->whole_rows) {
        if (from)
            memcpy(out, from, (size_t)(rows * a->row_bytes));
        else
            array_fill_rows(a, rows * a->row_elems, out);
        return;
    }
    for (int d = last; d > 0; d--) {
        origin[d] = at % a->grid[d] * a->chunk[d];
        extent[d] = min64(a->chunk[d], a->dim[d] - origin[d]);
        at /= a->grid[d];
    }
    int64_t run = extent[last];
    origin[0] = 0;
    extent[0] = rows;
    for (;;) {
        int64_t source = 0, target = 0;
        for (int d = 0; d < a->ndim; d++) {
            source = source * (d ? a->chunk[d] : 1) + index[d];
            target = target * (d ? a->dim[d] : 1) + origin[d] + index[d];
        }
        if (from)
            memcpy(out + target * elem, from + source * elem, (size_t)(run * elem));
        else
            array_fill_rows(a, run, out + target * elem);
        int d = last - 1; /* runs are along the last dimension */
        while (d >= 0 && ++index[d] == extent[d]) index[d--] = 0;
        if (d < 0) return;
    }
}

/* `rows` rows of chunk_row `chunk_row` from its row `skip` on, where chunks have no filters. */
static tr_status_t array_read_chunks(const h5_array_t *a, h5_scratch_t *scratch, int64_t chunk_row,
                                     int64_t skip, int64_t rows, char *out) {
    size_t bytes = (size_t)(rows * a->chunk_row_bytes);
    for (int64_t i = 0; i < a->chunks_per_row; i++) {
        const h5_chunk_t *chunk = &a->table[chunk_row * a->chunks_per_row + i];
        char *to = a->whole_rows ? out : scratch->raw;
        bool there = chunk->address != H5_NOWHERE;
        if (there)
            TR_TRY(tr_h5_pread(a->file, to, bytes,
                               chunk->address + (uint64_t)(skip * a->chunk_row_bytes)));
        if (!there || !a->whole_rows) array_place_chunk(a, i, rows, there ? to : NULL, out);
    }
    return TR_OK;
}

/* Decodes a chunk row into the scratch, unless it is there from the last call. */
static tr_status_t array_load_chunk_row(const h5_array_t *a, h5_scratch_t *scratch,
                                        int64_t chunk_row) {
    int64_t rows = min64(a->chunk_rows, a->rows - chunk_row * a->chunk_rows);
    if (scratch->chunk_row_of == a && scratch->chunk_row_index == chunk_row) return TR_OK;
    scratch->chunk_row_of = NULL;
    for (int64_t i = 0; i < a->chunks_per_row; i++) {
        int64_t index = chunk_row * a->chunks_per_row + i;
        const char *data = NULL;
        if (a->table[index].address != H5_NOWHERE) {
            TR_TRY(
                tr_h5_pread(a->file, scratch->raw, a->table[index].bytes, a->table[index].address));
            TR_TRY(tr_h5_decode(a, index, scratch->raw, scratch->spare, &data));
            if (a->verified) __atomic_store_n(&a->verified[index], 1, __ATOMIC_RELAXED);
        }
        array_place_chunk(a, i, rows, data, scratch->chunk_row);
    }
    scratch->chunk_row_of = a;
    scratch->chunk_row_index = chunk_row;
    return TR_OK;
}

/* A chunk that has only a checksum is verified once and then read like one without. */
static bool array_is_verified(const h5_array_t *a, int64_t chunk_row) {
    return a->verified && a->table[chunk_row].address != H5_NOWHERE &&
           __atomic_load_n(&a->verified[chunk_row], __ATOMIC_RELAXED);
}

static tr_status_t array_read_chunk_row(const h5_array_t *a, h5_scratch_t *scratch,
                                        int64_t chunk_row, int64_t skip, int64_t rows, char *out) {
    const h5_chunk_t *chunk = &a->table[chunk_row];
    if (array_is_verified(a, chunk_row)) {
        TR_TRY(tr_h5_pread(a->file, out, (size_t)(rows * a->row_bytes),
                           chunk->address + (uint64_t)(skip * a->row_bytes)));
        /* the whole chunk may have been prefetched, before another block verified it */
        if (a->file->direct)
            tr_h5_direct_forget(a->file->direct, a->file->direct_fd, chunk->address, chunk->bytes);
        return TR_OK;
    }
    TR_TRY(array_load_chunk_row(a, scratch, chunk_row));
    memcpy(out, scratch->chunk_row + skip * a->row_bytes, (size_t)(rows * a->row_bytes));
    return TR_OK;
}

/* Requires the lock. */
static tr_status_t array_read_selected(const h5_array_t *a, hid_t id, int64_t first, int64_t count,
                                       void *out) {
    hsize_t start[TR_MAX_DIMS + 1] = {(hsize_t)first}, size[TR_MAX_DIMS + 1];
    for (int d = 0; d < a->ndim; d++) size[d] = (hsize_t)(d ? a->dim[d] : count);
    hid_t file_space = H5Dget_space(id), memory_space = H5Screate_simple(a->ndim, size, NULL);
    herr_t result = a->file->is_sample
                        ? H5Sselect_all(file_space)
                        : H5Sselect_hyperslab(file_space, H5S_SELECT_SET, start, NULL, size, NULL);
    if (result >= 0)
        result = H5Dread(id, a->memory_type, memory_space, file_space, H5P_DEFAULT, out);
    tr_status_t status =
        result >= 0
            ? TR_OK
            : H5_FAIL(TR_ERR_DATA, "%s: /%s: cannot read the samples %lld to %lld", a->file->path,
                      a->name, (long long)first, (long long)(first + count - 1));
    if (memory_space >= 0) H5Sclose(memory_space);
    if (file_space >= 0) H5Sclose(file_space);
    return status;
}

static tr_status_t array_read_library(const h5_array_t *a, int64_t first, int64_t count,
                                      void *out) {
    tr_h5_lock();
    const bool rests = a->id < 0;
    tr_status_t status = tr_h5_file_wake(a->file);
    const hid_t id = rests && status == TR_OK ? H5Dopen2(a->file->id, a->name, H5P_DEFAULT) : a->id;
    if (status == TR_OK) status = array_read_selected(a, id, first, count, out);
    if (rests && id >= 0) H5Dclose(id);
    if (rests) tr_h5_file_rest(a->file);
    tr_h5_unlock();
    return status;
}

int64_t tr_h5_rows_together(const h5_array_t *a, int64_t row, int64_t count) {
    int64_t chunk_row = row / a->chunk_rows, rows = a->chunk_rows - row % a->chunk_rows;
    if (a->way != H5_CHUNKS || !a->whole_rows || a->table[chunk_row].address == H5_NOWHERE)
        return min64(rows, count);
    for (; rows < count && a->table[chunk_row + 1].address ==
                               a->table[chunk_row].address + (uint64_t)a->chunk_bytes;
         chunk_row++)
        rows += a->chunk_rows;
    return min64(rows, count);
}

tr_status_t tr_h5_read_rows(const h5_array_t *a, h5_scratch_t *scratch, int64_t first,
                            int64_t count, void *out) {
    char *to = out;
    size_t raw = 0, chunk_row_bytes = 0;
    if (a->way == H5_LIBRARY) return count ? array_read_library(a, first, count, out) : TR_OK;
    tr_h5_scratch_sizes(a, &raw, &chunk_row_bytes);
    TR_TRY(tr_h5_scratch_reserve(scratch, raw, chunk_row_bytes));
    if (a->way == H5_STRAIGHT)
        TR_TRY(tr_h5_pread(a->file, to, (size_t)(count * a->row_bytes),
                           a->address + (uint64_t)(first * a->row_bytes)));
    for (int64_t row = first; a->way != H5_STRAIGHT && row < first + count;) {
        int64_t chunk_row = row / a->chunk_rows, skip = row % a->chunk_rows,
                rows = tr_h5_rows_together(a, row, first + count - row);
        char *part = to + (row - first) * a->row_bytes;
        TR_TRY(a->way == H5_CHUNKS ? array_read_chunks(a, scratch, chunk_row, skip, rows, part)
                                   : array_read_chunk_row(a, scratch, chunk_row, skip, rows, part));
        row += rows;
    }
    if (a->swap) tr_swap_bytes(out, count * a->row_elems, tr_dtype_bytes(a->dtype));
    return TR_OK;
}

/* Checking whether the beginning is cached is much cheaper than touching cached pages. bytes 0: to the
 * end. */
static void h5_advise(int fd, uint64_t offset, uint64_t bytes) {
    char byte;
    struct iovec one = {&byte, 1};
    if (preadv2(fd, &one, 1, (off_t)offset, RWF_NOWAIT) != 1)
        posix_fadvise(fd, (off_t)offset, (off_t)bytes, POSIX_FADV_WILLNEED);
}

void tr_h5_expect_file(const char *path) {
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return; /* the reader reports it */
    h5_advise(fd, 0, 0);
    close(fd);
}

static void h5_expect_bytes(h5_file_t *file, uint64_t offset, uint64_t bytes) {
    int fd;
    if (file->direct && tr_h5_direct_expect(file->direct, file->direct_fd, offset, bytes)) return;
    if (tr_h5_file_use(file, &fd) != TR_OK) {
        tr_error_clear(); /* the reader reports it */
        return;
    }
    h5_advise(fd, offset, bytes);
    tr_h5_file_done(file);
}

void tr_h5_expect_rows(const h5_array_t *a, int64_t first, int64_t count) {
    if (a->way == H5_STRAIGHT)
        h5_expect_bytes(a->file, a->address + (uint64_t)(first * a->row_bytes),
                        (uint64_t)(count * a->row_bytes));
    for (int64_t row = first; a->table && row < first + count;) {
        int64_t chunk_row = row / a->chunk_rows, skip = row % a->chunk_rows;
        int64_t rows = tr_h5_rows_together(a, row, first + count - row);
        for (int64_t i = 0; i < a->chunks_per_row; i++) {
            const h5_chunk_t *chunk = &a->table[chunk_row * a->chunks_per_row + i];
            bool by_rows = a->way == H5_CHUNKS || array_is_verified(a, chunk_row);
            uint64_t from = by_rows ? (uint64_t)(skip * a->chunk_row_bytes) : 0;
            uint64_t bytes = by_rows ? (uint64_t)(rows * a->chunk_row_bytes) : chunk->bytes;
            if (chunk->address != H5_NOWHERE)
                h5_expect_bytes(a->file, chunk->address + from, bytes);
        }
        row += rows;
    }
}
