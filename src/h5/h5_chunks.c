/*
 * Finds the addresses of the chunks of a data set.
 *
 * HDF5 1.14 and later lists them in one pass (H5Dchunk_iter). Before, H5Dget_chunk_info counts from
 * the first chunk in each call, which takes minutes for a large file. There, our own file driver
 * reads the file: it records the address from which the library would read a chunk, and reads
 * nothing, so that the library's index finds each chunk in logarithmic time. In both cases, the
 * addresses are checked against data read by the library.
 */
#include "h5.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define CHECKED_CHUNKS 3

void tr_h5_chunk_offset(const h5_array_t *a, int64_t chunk, hsize_t *out) {
    for (int d = a->ndim - 1; d >= 0; d--) {
        out[d] = (hsize_t)(chunk % a->grid[d] * a->chunk[d]);
        chunk /= a->grid[d];
    }
}

#if H5_VERSION_GE(1, 14, 0)

static int chunks_note(const hsize_t *offset, unsigned mask, haddr_t address, hsize_t bytes,
                       void *self) {
    h5_array_t *a = self;
    int64_t index = 0;
    for (int d = 0; d < a->ndim; d++) {
        int64_t at = (int64_t)offset[d] / a->chunk[d];
        if (at >= a->grid[d]) return H5_ITER_CONT; /* left over from a larger extent */
        index = index * a->grid[d] + at;
    }
    a->table[index] =
        (h5_chunk_t){address == HADDR_UNDEF ? H5_NOWHERE : address, (uint32_t)bytes, mask};
    return H5_ITER_CONT;
}

static bool chunks_walk(h5_array_t *a) {
    return H5Dchunk_iter(a->id, H5P_DEFAULT, chunks_note, a) >= 0;
}

#else

/* -- the driver -------------------------------------------------------------------------------- */

typedef struct {
    H5FD_t base;
    int fd;
    haddr_t eoa, eof;
} probe_t;

/* Guarded by the lock, like all calls of HDF5. */
static struct {
    bool armed;
    haddr_t address;
} noted;

static H5FD_t *probe_open(const char *name, unsigned flags, hid_t access, haddr_t max) {
    probe_t *probe = NULL;
    int fd = open(name, O_RDONLY | O_CLOEXEC);
    off_t end = fd < 0 ? -1 : lseek(fd, 0, SEEK_END);
    if (end < 0 || tr_alloc(sizeof *probe, "HDF5 probe", &probe) != TR_OK) {
        if (fd >= 0) close(fd);
        return NULL;
    }
    probe->fd = fd;
    probe->eof = (haddr_t)end;
    return &probe->base;
}

static herr_t probe_close(H5FD_t *file) {
    probe_t *probe = (probe_t *)file;
    close(probe->fd);
    tr_free(&probe);
    return 0;
}

static herr_t probe_query(const H5FD_t *file, unsigned long *flags) {
    *flags = 0;
    return 0;
}
static haddr_t probe_get_eoa(const H5FD_t *file, H5FD_mem_t type) {
    return ((const probe_t *)file)->eoa;
}
static haddr_t probe_get_eof(const H5FD_t *file, H5FD_mem_t type) {
    return ((const probe_t *)file)->eof;
}

static herr_t probe_set_eoa(H5FD_t *file, H5FD_mem_t type, haddr_t address) {
    ((probe_t *)file)->eoa = address;
    return 0;
}

static herr_t probe_read(H5FD_t *file, H5FD_mem_t type, hid_t transfer, haddr_t address,
                         size_t bytes, void *out) {
    if (type == H5FD_MEM_DRAW && noted.armed) {
        noted.address = address;
        return 0;
    }
    for (size_t done = 0; done < bytes;) {
        ssize_t got =
            pread(((probe_t *)file)->fd, (char *)out + done, bytes - done, (off_t)(address + done));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return -1;
        if (got == 0) memset((char *)out + done, 0, bytes - done);
        if (got == 0) break;
        done += (size_t)got;
    }
    return 0;
}

static herr_t probe_write(H5FD_t *file, H5FD_mem_t type, hid_t transfer, haddr_t address,
                          size_t bytes, const void *from) {
    return -1;
}

static hid_t chunks_open_through_probe(const char *path, hid_t *out_driver) {
    static const H5FD_class_t driver = {.name = "trainer-probe",
                                        .maxaddr = ((haddr_t)1 << 62),
                                        .fc_degree = H5F_CLOSE_WEAK,
                                        .open = probe_open,
                                        .close = probe_close,
                                        .query = probe_query,
                                        .get_eoa = probe_get_eoa,
                                        .set_eoa = probe_set_eoa,
                                        .get_eof = probe_get_eof,
                                        .read = probe_read,
                                        .write = probe_write,
                                        .fl_map = H5FD_FLMAP_DICHOTOMY};
    *out_driver = H5FDregister(&driver);
    hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    hid_t file = *out_driver >= 0 && H5Pset_driver(access, *out_driver, NULL) >= 0
                     ? H5Fopen(path, H5F_ACC_RDONLY, access)
                     : -1;
    H5Pclose(access);
    return file;
}

/* -- the walk ---------------------------------------------------------------------------------- */

static bool chunks_locate(h5_array_t *a, hid_t dataset, int64_t chunk, void *unused) {
    hsize_t offset[TR_MAX_DIMS + 1], bytes = 0;
    uint32_t mask = 0;
    tr_h5_chunk_offset(a, chunk, offset);
    /* never written */
    if (H5Dget_chunk_storage_size(dataset, offset, &bytes) < 0 || bytes == 0) return true;
    noted.armed = true;
    noted.address = HADDR_UNDEF;
    herr_t result = H5Dread_chunk(dataset, H5P_DEFAULT, offset, &mask, unused);
    noted.armed = false;
    if (result < 0 || noted.address == HADDR_UNDEF || bytes > UINT32_MAX) return false;
    a->table[chunk] = (h5_chunk_t){noted.address, (uint32_t)bytes, mask};
    return true;
}

static bool chunks_walk(h5_array_t *a) {
    hid_t driver, file = chunks_open_through_probe(a->file->path, &driver),
                  dataset = file < 0 ? -1 : H5Dopen2(file, a->name, H5P_DEFAULT);
    char unused[16]; /* nothing is read into it */
    bool good = dataset >= 0;
    for (int64_t i = 0; good && i < a->chunk_count; i++)
        good = chunks_locate(a, dataset, i, unused);
    if (dataset >= 0) H5Dclose(dataset);
    if (file >= 0) H5Fclose(file);
    if (driver >= 0) H5FDunregister(driver);
    return good;
}

#endif

/* -- checking ---------------------------------------------------------------------------------- */

static bool chunks_read_stored(const h5_array_t *a, const hsize_t *offset, uint32_t *mask,
                               void *out) {
#if H5_VERSION_GE(2, 0, 0)
    size_t room = a->stored_max;
    return H5Dread_chunk2(a->id, H5P_DEFAULT, offset, mask, out, &room) >= 0;
#else
    return H5Dread_chunk(a->id, H5P_DEFAULT, offset, mask, out) >= 0;
#endif
}

static bool chunks_agree(const h5_array_t *a, int64_t chunk, char *ours, char *theirs) {
    hsize_t offset[TR_MAX_DIMS + 1];
    uint32_t mask = 0;
    tr_h5_chunk_offset(a, chunk, offset);
    size_t bytes = a->table[chunk].bytes;
    return chunks_read_stored(a, offset, &mask, theirs) && mask == a->table[chunk].mask &&
           tr_h5_pread(a->file, ours, bytes, a->table[chunk].address) == TR_OK &&
           !memcmp(ours, theirs, bytes);
}

/* Compares a few chunks, the last ones first, where a wrong offset would show. */
static tr_status_t chunks_check(const h5_array_t *a, bool *out_good) {
    char *both = NULL;
    int64_t left = CHECKED_CHUNKS;
    TR_TRY(tr_alloc(2 * (size_t)a->stored_max, "a chunk", &both));
    *out_good = true;
    for (int64_t i = a->chunk_count - 1; i >= 0 && left > 0 && *out_good; i--)
        if (a->table[i].address != H5_NOWHERE)
            *out_good = chunks_agree(a, i, both, both + a->stored_max), left--;
    tr_free(&both);
    return TR_OK;
}

static tr_status_t chunks_check_bounds(h5_array_t *a) {
    for (int64_t i = 0; i < a->chunk_count; i++) {
        const h5_chunk_t *c = &a->table[i];
        if (c->address == H5_NOWHERE) continue;
        if (c->address > (uint64_t)a->file->bytes ||
            c->bytes > (uint64_t)a->file->bytes - c->address)
            return TR_FAIL(TR_ERR_DATA,
                           "%s: /%s: chunk %lld ends at byte %llu, but the file has %lld bytes: it "
                           "is truncated.",
                           a->file->path, a->name, (long long)i,
                           (unsigned long long)(c->address + c->bytes), (long long)a->file->bytes);
        if (!a->filters && c->bytes != a->chunk_bytes)
            return TR_FAIL(TR_ERR_DATA,
                           "%s: /%s: chunk %lld has %u bytes instead of %lld: the file is damaged.",
                           a->file->path, a->name, (long long)i, c->bytes,
                           (long long)a->chunk_bytes);
        if (c->bytes > a->stored_max) a->stored_max = c->bytes;
    }
    return TR_OK;
}

tr_status_t tr_h5_chunk_table(h5_array_t *a) {
    hsize_t block = 0;
    hid_t made = H5Fget_create_plist(a->file->id);
    H5Pget_userblock(made, &block);
    H5Pclose(made);
    TR_TRY(tr_alloc((size_t)max64(a->chunk_count, 1) * sizeof *a->table, "chunk table", &a->table));
    for (int64_t i = 0; i < a->chunk_count; i++) a->table[i].address = H5_NOWHERE;
    bool good = H5Dget_storage_size(a->id) == 0 || chunks_walk(a);
    if (good) {
        TR_TRY(chunks_check_bounds(a));
        if (!a->file->is_like_another || block) TR_TRY(chunks_check(a, &good));
    }
    if (!good && block) { /* some versions omit the user block */
        for (int64_t i = 0; i < a->chunk_count; i++)
            if (a->table[i].address != H5_NOWHERE) a->table[i].address += block;
        TR_TRY(chunks_check_bounds(a));
        TR_TRY(chunks_check(a, &good));
    }
    if (!good) tr_free(&a->table);
    return TR_OK;
}
