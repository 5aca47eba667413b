/*
 * HDF5 storage. The library locates the data in a file; the data are then read with pread.
 *
 *   h5_file.c     opening, the library's lock and error messages, the list of objects in a file
 *   h5_open.c     which files are open
 *   h5_type.c     types in words
 *   h5_array.c    type, dimensions and storage of one data set; h5_chunks.c: addresses of chunks;
 *                 h5_unallocated.c: samples never written
 *   h5_read.c     reading rows; h5_direct.c: bypassing the page cache; h5_decode.c: gzip, shuffle,
 *                 checksum; h5_convert.c: types, byte order, layout
 *   h5_write.c    files in the layout that reads fastest (writer.h)
 */
#ifndef TR_H5_H5_H
#define TR_H5_H5_H

#include "base/int_math.h"
#include "writer.h"
#include "base/mem.h"
#include "base/str.h"
#include "trainer/tensor_types.h"
#include <hdf5.h>
#include <pthread.h>
#include <sys/stat.h>

/* H5Pset_file_locking was added in 1.10.7, 1.12.1 and 1.14. */
#if H5_VERSION_GE(1, 14, 0) || (H5_VERSION_GE(1, 12, 1) && !H5_VERSION_GE(1, 13, 0)) ||            \
    (H5_VERSION_GE(1, 10, 7) && !H5_VERSION_GE(1, 12, 0))
#define H5_HAVE_SET_LOCKING 1
#else
#define H5_HAVE_SET_LOCKING 0
#endif

/* -- h5_file.c --------------------------------------------------------------------------------- */

/* Guards all calls of HDF5. The first call initialises the library. */
void tr_h5_lock(void);
void tr_h5_unlock(void);
/* A short form of the library's last error, into `text`. */
const char *tr_h5_reason(char *text, size_t bytes);
#define H5_FAIL(code, format, ...)                                                                 \
    tr_h5_fail(code, __FILE__, __LINE__, __func__, format, __VA_ARGS__)
/* Records the message, followed by the library's reason. */
tr_status_t tr_h5_fail(tr_status_t code, const char *file, int line, const char *func,
                       const char *format, ...) __attribute__((format(printf, 5, 6)));

typedef struct h5_direct h5_direct_t;

/* A file stays where it is in memory as long as it is open. */
typedef struct h5_file {
    char *path;
    hid_t id;            /* below 0: at rest */
    h5_direct_t *direct; /* not owned; NULL: all reads use the page cache */
    int direct_fd;       /* opened for `direct` */
    int64_t bytes, mtime_sec;
    bool is_like_another; /* a file of the same kind was checked more closely */
    bool is_sample;       /* each of its arrays is one sample: opened as one row */
    /* of h5_open.c */
    int fd, users;
    struct h5_file *older, *newer;
} h5_file_t;

/* These require the lock. `key` is named in messages ("data.train"). */
tr_status_t tr_h5_file_open(const char *key, const char *path, h5_file_t *out);
void tr_h5_file_close(h5_file_t *file);
/* Closes the file in the library, which takes descriptors and some 500 KB for each file. */
void tr_h5_file_rest(h5_file_t *file);
/* Opens a file at rest again; else does nothing. TR_ERR_DATA if it was changed in the meantime. */
tr_status_t tr_h5_file_wake(h5_file_t *file);
/* TR_ERR_DATA if the size or the time of the file is another one than when the data were opened. */
tr_status_t tr_h5_file_check(const h5_file_t *file, const struct stat *now);

/* -- h5_open.c --------------------------------------------------------------------------------- */

/*
 * The descriptor of a file for pread, until tr_h5_file_done. A file is opened when it is used first.
 * Of all data sets together, the files that were used last stay open: H5_OPEN_MOST, or a quarter of
 * the limit of descriptors if that is less. TR_ERR_IO or TR_ERR_NOINPUT if it cannot be opened,
 * TR_ERR_DATA if it was changed in the meantime. Thread-safe.
 */
#define H5_OPEN_MOST 256
tr_status_t tr_h5_file_use(h5_file_t *file, int *out_fd);
void tr_h5_file_done(h5_file_t *file);
/* Closes the descriptor. Nobody uses the file. */
void tr_h5_file_forget(h5_file_t *file);

typedef struct {
    char *path; /* from the root, without the leading slash */
    int ndim;   /* -1: not readable */
    hsize_t dim[H5S_MAX_RANK];
    H5T_class_t type; /* H5T_NO_CLASS if not numeric */
    char text[160];   /* "train/x (60000, 28, 28) u8" */
} h5_entry_t;
typedef TR_VEC(h5_entry_t) h5_list_t;

/* All objects in the file that are or may be data sets, sorted by name; at most H5_LIST_MAX. */
#define H5_LIST_MAX 20000
tr_status_t tr_h5_list(const h5_file_t *file, h5_list_t *out);
void tr_h5_list_free(h5_list_t *list);
/* "train/x (60000, 28, 28) u8; train/y (60000) u8" with at most `most` entries. */
void tr_h5_list_text(const h5_list_t *list, size_t most, tr_str_t *out);

/* -- h5_type.c --------------------------------------------------------------------------------- */

/* "u8", "complex numbers", ... Returns `text`. */
const char *tr_h5_type_text(hid_t type, char text[32]);
/* For a type that is not supported, of the data set `name`: what it is and what to do, without a
 * subject and a full stop: "holds complex numbers: store ...". f is the file, g a new one. */
void tr_h5_type_remedy(hid_t type, const char *name, char out[512]);

/* -- h5_array.c, h5_chunks.c, h5_unallocated.c ------------------------------------------------- */

typedef enum {
    H5_STRAIGHT, /* rows are contiguous in the file */
    H5_CHUNKS,   /* unfiltered chunks: rows, or parts of rows, are contiguous in each */
    /* filtered chunks, which must be decoded whole; a chunk row is all chunks with the same rows */
    H5_CHUNK_ROWS,
    H5_LIBRARY /* read by HDF5, one thread at a time */
} h5_way_t;

#define H5_MAX_FILTERS 4
#define H5_FILTER_LZF  32000 /* registered by h5py */
#define H5_NOWHERE     UINT64_MAX
/* an array with more chunks has no table and is not searched for unallocated chunks */
#define H5_CHUNKS_MAX (1 << 26)

typedef struct {
    uint64_t address;     /* in the file; H5_NOWHERE: never written, reads as the fill value */
    uint32_t bytes, mask; /* stored size; skipped filters, one bit each */
} h5_chunk_t;

/* Samples without allocated storage, in whole or in part. They read as the fill value. */
typedef struct {
    int64_t rows, first, of; /* number, index of the first one, total number of rows */
} h5_unallocated_t;

typedef struct {
    h5_file_t *file; /* not owned */
    char *name;
    hid_t id, memory_type; /* id below 0: at rest; memory_type: for H5_LIBRARY */
    tr_dtype_t dtype;      /* of an element, in native byte order */
    bool swap;             /* stored in non-native byte order */
    h5_way_t way;
    H5D_layout_t layout;
    int ndim;
    int64_t dim[TR_MAX_DIMS + 1], rows, row_elems, row_bytes;
    uint64_t address; /* H5_STRAIGHT */
    unsigned char fill[16];
    /* chunks */
    int64_t chunk[TR_MAX_DIMS + 1],
        grid[TR_MAX_DIMS + 1]; /* elements of a chunk, chunks of the array, in each dimension */
    int64_t chunk_rows, chunk_row_bytes, chunk_bytes, chunk_count, chunks_per_row;
    bool whole_rows;   /* chunks contain whole rows of the array */
    h5_chunk_t *table; /* [chunk_count], row-major */
    uint8_t *verified; /* [chunk_count], H5_CHUNK_ROWS with only a checksum filter */
    int filters;
    H5Z_filter_t filter[H5_MAX_FILTERS];
    bool checksum_only;
    uint32_t stored_max; /* largest chunk */
    char storage[96];    /* "chunks of (64, 28, 28), gzip" */
    h5_unallocated_t unallocated;
} h5_array_t;

/* Requires the lock. The array is closed with tr_h5_array_close, also when this fails. */
tr_status_t tr_h5_array_open(h5_file_t *file, const char *name, h5_array_t *out);
void tr_h5_array_close(h5_array_t *array);
/* Closes the array in the library, before its file is. It can be read as before; each read of
 * H5_LIBRARY then opens the file. */
void tr_h5_array_rest(h5_array_t *array);
/* Fills array->table, or leaves it NULL if the library's answers are inconsistent. Requires the
 * lock. */
tr_status_t tr_h5_chunk_table(h5_array_t *array);
/* The first element of a chunk in each dimension. */
void tr_h5_chunk_offset(const h5_array_t *array, int64_t chunk, hsize_t *out);
/* Sets array->unallocated; the other members must be set. Requires the lock. */
void tr_h5_find_unallocated(h5_array_t *array);
/* TR_ERR_DATA if samples of the array were never written. */
tr_status_t tr_h5_refuse_unallocated(const h5_array_t *array);

/* -- h5_read.c, h5_decode.c -------------------------------------------------------------------- */

/* Scratch memory of one reading thread. */
typedef struct {
    char *raw, *spare; /* [raw_bytes]: stored chunks, and buffers for decoding */
    char *chunk_row;   /* [chunk_row_bytes]: a decoded chunk row, kept for the next call */
    size_t raw_bytes, chunk_row_bytes;
    const h5_array_t *chunk_row_of;
    int64_t chunk_row_index;
    char *rows, *converted; /* of dataset_hdf5.c */
    bool busy;
} h5_scratch_t;
void tr_h5_scratch_sizes(const h5_array_t *array, size_t *raw_bytes,
                         size_t *chunk_row_bytes); /* enlarges both to what the array needs */
/* Enlarges the memory, where it is smaller, to these sizes. tr_h5_read_rows does it by itself: before,
 * it keeps memory from being allocated later. */
tr_status_t tr_h5_scratch_reserve(h5_scratch_t *scratch, size_t raw_bytes, size_t chunk_row_bytes);
void tr_h5_scratch_free(h5_scratch_t *scratch);

/* Reads rows [first, first + count): dense, array->dtype, native byte order. Thread-safe if each
 * thread has its own scratch. */
tr_status_t tr_h5_read_rows(const h5_array_t *array, h5_scratch_t *scratch, int64_t first,
                            int64_t count, void *out);
/* The number of rows from `row` on, at most `count`, in one chunk or in chunks that are contiguous
 * in the file. */
int64_t tr_h5_rows_together(const h5_array_t *array, int64_t row, int64_t count);
/* Asks the system to prefetch a file, unless its begin is in the page cache. */
void tr_h5_expect_file(const char *path);
/* Asks the system to prefetch the bytes of these rows that are not in the page cache. */
void tr_h5_expect_rows(const h5_array_t *array, int64_t first, int64_t count);
tr_status_t tr_h5_pread(h5_file_t *file, void *out, size_t bytes, uint64_t offset);
/*
 * Reads that bypass the page cache (O_DIRECT), for files larger than the cache. For such files,
 * filling the cache costs more than reading from disk, and pages are evicted before they are used
 * again. Announced ranges are prefetched. Thread-safe except for open and close.
 */
tr_status_t tr_h5_direct_open(h5_direct_t **out);
void tr_h5_direct_close(h5_direct_t **direct);
/* Starts a prefetch; does not wait. Returns false if the range is too small or the file system does
 * not support it. */
bool tr_h5_direct_expect(h5_direct_t *direct, int fd, uint64_t offset, uint64_t bytes);
/* Copies up to `bytes` announced bytes from `offset`, each byte once, and returns their number. 0:
 * the caller must read them with pread. */
size_t tr_h5_direct_read(h5_direct_t *direct, int fd, void *out, size_t bytes, uint64_t offset);
/* Drops the rest of an announced range. */
void tr_h5_direct_forget(h5_direct_t *direct, int fd, uint64_t offset, uint64_t bytes);

/* Decodes a stored chunk. *data points to chunk_bytes bytes in `spare` or `raw`. */
tr_status_t tr_h5_decode(const h5_array_t *array, int64_t chunk, char *raw, char *spare,
                         const char **data);
/* HDF5's Fletcher-32 of `bytes` bytes. */
uint32_t tr_fletcher32(const void *data, size_t bytes);

/* -- h5_convert.c ------------------------------------------------------------------------------ */

void tr_swap_bytes(void *data, int64_t elems, size_t elem_bytes);
/* Transposes (channels, points) to (points, channels). */
void tr_channels_last(const void *in, int64_t channels, int64_t points, size_t elem_bytes,
                      void *out);
/* Index of the first NaN or infinity in f16, f32 or f64 data, or in f64 data of the first value
 * outside the range of f32; -1: none. */
int64_t tr_find_not_finite(tr_dtype_t dtype, const void *data, int64_t elems);

/* The type of inputs in a batch: the stored type, or f32 for wide types. */
tr_dtype_t tr_h5_travels_as(tr_dtype_t stored);
/* Whether this conversion loses bits. */
bool tr_h5_rounds(tr_dtype_t stored, tr_dtype_t travels_as);

#endif
