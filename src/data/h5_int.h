/*
 * HDF5 files as the data floor uses them: the library finds out what is where, then bytes are fetched with
 * pread.
 *
 *   h5_file.c    opening, the lock, messages, the list of what is in a file
 *   h5_detect.c  which of it are the inputs and the labels of a split
 *   h5_array.c   type, dimensions and storage of one data set; h5_chunks.c: where its chunks are;
 *                h5_virtual.c: whether the parts of a virtual one are there; h5_holes.c: what was never written
 *   h5_read.c    rows of an array; h5_direct.c: past the page cache; h5_decode.c: gzip, shuffle, checksum
 *   h5_convert.c types, byte order, layout
 *   h5_source.c  from data.train to open files; h5_meta.c: attributes; h5_labels.c: what the labels are
 *   h5_cost.c    what a layout costs; h5_report.c: `trainer data`; h5_write.c, repack.c: the fast layout
 *   dataset_hdf5.c  puts these together
 */
#ifndef H5_INT_H
#define H5_INT_H

#include "data_int.h"
#include "trainer/mem.h"
#include "trainer/str.h"
#include <glob.h>
#include <hdf5.h>
#include <pthread.h>

/* H5Pset_file_locking came with 1.10.7, 1.12.1 and 1.14. */
#if H5_VERSION_GE(1, 14, 0) || (H5_VERSION_GE(1, 12, 1) && !H5_VERSION_GE(1, 13, 0)) ||                      \
    (H5_VERSION_GE(1, 10, 7) && !H5_VERSION_GE(1, 12, 0))
#define H5_HAVE_SET_LOCKING 1
#else
#define H5_HAVE_SET_LOCKING 0
#endif

/* -- h5_file.c ------------------------------------------------------------------------------------------- */

/* One thread at a time calls HDF5. The first call prepares the library. */
void tr_h5_lock(void);
void tr_h5_unlock(void);
/* What the library says of its last failure, in short; into `text`. */
const char *tr_h5_reason(char *text, size_t bytes);
#define H5_FAIL(code, format, ...) tr_h5_fail(code, __FILE__, __LINE__, __func__, format, __VA_ARGS__)
/* Records the message with the library's reason behind it. */
tr_status_t tr_h5_fail(tr_status_t code, const char *file, int line, const char *func, const char *format,
                       ...) __attribute__((format(printf, 5, 6)));

typedef struct h5_direct h5_direct_t;

typedef struct {
    char *path;
    hid_t id;
    int fd;
    h5_direct_t *direct; /* not owned; NULL: all is read through the page cache */
    int direct_fd;       /* opened for `direct` */
    int64_t bytes, mtime_sec;
} h5_file_t;

/* Each of these wants the lock. `key` is named in messages ("data.train"). */
tr_status_t tr_h5_file_open(const char *key, const char *path, h5_file_t *out);
void tr_h5_file_close(h5_file_t *file);

typedef struct {
    char *path; /* from the root, without the leading slash */
    int ndim;   /* -1: of what cannot be read from here */
    hsize_t dim[H5S_MAX_RANK];
    H5T_class_t type; /* H5T_NO_CLASS for what has no numbers */
    char text[160];   /* "train/x (60000, 28, 28) u8" */
} h5_entry_t;
typedef TR_VEC(h5_entry_t) h5_list_t;

/* Everything in the file that is or may be a data set, by name; at most H5_LIST_MAX of them. */
#define H5_LIST_MAX 20000
tr_status_t tr_h5_list(const h5_file_t *file, h5_list_t *out);
void tr_h5_list_free(h5_list_t *list);
/* Whether the link `name` into another file leads to something; into `why`, what to say of it. Wants the lock. */
bool tr_h5_external(hid_t group, const char *name, char why[128]);
/* "train/x (60000, 28, 28) u8; train/y (60000) u8" with at most `most` entries. */
void tr_h5_list_text(const h5_list_t *list, size_t most, tr_str_t *out);

/* -- h5_detect.c ----------------------------------------------------------------------------------------- */

typedef struct {
    char x[256], y[256], scope[256]; /* paths in the file; y "" where there is none; scope "" for the root */
    char text_y[256];                /* where there is no y: what is named like it, and holds text; "" none */
} h5_names_t;

/* What to look for. `implied`: the file was given for training, so a split must show in names; then
 * *out_found false is no error. */
typedef struct {
    const char *key, *group, *x, *y;
    tr_split_t split;
    bool implied;
    bool inputs_only; /* y is not looked for */
} h5_wanted_t;
tr_status_t tr_h5_detect(const h5_file_t *file, const h5_list_t *list, const h5_wanted_t *wanted,
                         h5_names_t *out, bool *out_found);

/* Whether it may be inputs or labels by its type, with samples along the first dimension. */
bool tr_h5_has_numbers(const h5_entry_t *entry);

/* Whether what is named like labels holds text, and what to do. */
bool tr_h5_labels_are_text(const h5_names_t *names, char out[512]);

/* The labels of a file that has nothing else, by their usual names or data.y; "" in out_y: none. */
tr_status_t tr_h5_detect_labels(const h5_file_t *file, const h5_list_t *list, const h5_wanted_t *wanted,
                                char out_y[256]);
/* The error that data.y is nowhere. */
tr_status_t tr_h5_fail_labels(const h5_file_t *file, const h5_list_t *list, const h5_wanted_t *wanted,
                              const h5_names_t *names);

/* -- h5_array.c, h5_chunks.c, h5_holes.c, h5_virtual.c ------------------------------------------------------- */

typedef enum {
    H5_STRAIGHT, /* rows follow each other in the file */
    H5_CHUNKS,   /* chunks without filters: rows, or pieces of rows, follow each other in each */
    H5_BANDS,    /* chunks that have to be decoded whole: a band is all chunks with the same rows */
    H5_LIBRARY   /* by HDF5, one thread at a time */
} h5_way_t;

#define H5_MAX_FILTERS 4
#define H5_FILTER_LZF  32000 /* registered by h5py */
#define H5_NOWHERE     UINT64_MAX
#define H5_CHUNKS_MAX                                                                                        \
    (1 << 26) /* of an array with more of them there is no table, and holes in it are not looked for */

typedef struct {
    uint64_t address;     /* in the file; H5_NOWHERE: never written, reads as the fill value */
    uint32_t bytes, mask; /* stored size; filters that were left out, one bit each */
} h5_chunk_t;

/* Samples for which, or for a piece of which, storage was never allocated: they read as the fill value. */
typedef struct {
    int64_t rows, first, of; /* how many, the first of them, of how many */
    char part[512];          /* of a virtual data set: the part that they are counted in */
} h5_holes_t;

typedef struct {
    const h5_file_t *file; /* not owned */
    char *name;
    hid_t id, memory_type; /* memory_type: for H5_LIBRARY */
    tr_dtype_t dtype;      /* of an element, once in native byte order */
    bool plain; /* false: only the library can convert the elements; then dtype is what they become */
    bool swap;  /* stored in the other byte order */
    h5_way_t way;
    H5D_layout_t layout;
    int ndim;
    int64_t dim[TR_MAX_DIMS + 1], rows, row_elems, row_bytes;
    uint64_t address; /* H5_STRAIGHT */
    unsigned char fill[16];
    /* chunks */
    int64_t chunk[TR_MAX_DIMS + 1],
        grid[TR_MAX_DIMS + 1]; /* elements of a chunk, chunks of the array, in each dimension */
    int64_t chunk_rows, chunk_row_bytes, chunk_bytes, chunk_count, chunks_per_band;
    bool whole_rows;   /* a chunk's rows are the array's */
    h5_chunk_t *table; /* [chunk_count], row-major */
    uint8_t *verified; /* [chunk_count], H5_BANDS with nothing but a checksum */
    int filters;
    H5Z_filter_t filter[H5_MAX_FILTERS];
    bool checksum_only;
    uint32_t stored_max; /* largest chunk */
    char storage[96];    /* "chunks of (64, 28, 28), gzip" */
    h5_holes_t holes;
} h5_array_t;

/* Wants the lock. The array is closed with tr_h5_array_close whether or not this succeeds. */
tr_status_t tr_h5_array_open(const h5_file_t *file, const char *name, h5_array_t *out);
void tr_h5_array_close(h5_array_t *array);
/* Fills array->table; leaves it NULL where the library's answers cannot be trusted. Wants the lock. */
tr_status_t tr_h5_chunk_table(h5_array_t *array);
/* The first element of a chunk in each dimension. */
void tr_h5_chunk_offset(const h5_array_t *array, int64_t chunk, hsize_t *out);
/* Of a virtual one: TR_ERR_NOINPUT where a file or a data set is missing that it is made of, TR_ERR_DATA where one is smaller than what is taken
 * of it; else array->holes becomes that of the first part that has any, or the samples that no part gives. Wants the lock. */
tr_status_t tr_h5_virtual_check(h5_array_t *array, hid_t properties);
/* Sets array->holes; the rest of the array is known. As tr_h5_virtual_check for a virtual one. Wants the lock. */
tr_status_t tr_h5_find_holes(h5_array_t *array, hid_t properties);
/* TR_ERR_DATA where the array has holes. */
tr_status_t tr_h5_refuse_holes(const h5_array_t *array);

/* -- h5_cost.c ------------------------------------------------------------------------------------------- */

typedef struct {
    int64_t reads;
    double amplification; /* bytes fetched for each byte wanted */
} h5_cost_t;
/* Of reading `rows` rows, at most all, from the beginning of a chunk on. */
h5_cost_t tr_h5_cost(const h5_array_t *array, int64_t rows);
const char *tr_h5_way_text(const h5_array_t *array);
enum { H5_SENTENCE_BYTES = 2 * 4096 + 512 }; /* of one that names a file twice, the remedy last */
/* Would rewriting the file pay? Then `text` says what is wrong, and the command that mends it. */
bool tr_h5_costly(const h5_array_t *array, int64_t block, char text[H5_SENTENCE_BYTES]);

/* -- h5_read.c, h5_decode.c ------------------------------------------------------------------------------ */

/* Room that one reading thread needs. */
typedef struct {
    char *raw, *spare; /* stored chunks and steps of decoding */
    char *band;        /* decoded rows of a band, kept for the next call */
    const h5_array_t *band_of;
    int64_t band_index;
    char *rows, *converted; /* of dataset_hdf5.c */
    bool busy;
} h5_scratch_t;
void tr_h5_scratch_sizes(const h5_array_t *array, size_t *raw_bytes,
                         size_t *band_bytes); /* raises the two to what the array needs */

/* Rows [first, first + count) into out: dense, the array's dtype, native byte order. Thread-safe with a
 * scratch of one's own. */
tr_status_t tr_h5_read_rows(const h5_array_t *array, h5_scratch_t *scratch, int64_t first, int64_t count,
                            void *out);
/* Of the rows [row, row + count): how many from `row` on are in one chunk, or in chunks that follow each other in the file. */
int64_t tr_h5_rows_together(const h5_array_t *array, int64_t row, int64_t count);
/* Asks the system to fetch what reading these rows will want, unless it is in the page cache already. */
void tr_h5_expect_rows(const h5_array_t *array, int64_t first, int64_t count);
tr_status_t tr_h5_pread(const h5_file_t *file, void *out, size_t bytes, uint64_t offset);
/*
 * Reads past the page cache (O_DIRECT), for files that do not fit it: there, filling it costs more than the disk does, and nothing that it keeps
 * is there when it is wanted again. What is announced is fetched meanwhile. Thread-safe but for open and close.
 */
tr_status_t tr_h5_direct_open(h5_direct_t **out);
void tr_h5_direct_close(h5_direct_t **direct);
/* Begins to fetch; does not wait. False: too little for that, or the file system refuses such reads. */
bool tr_h5_direct_expect(h5_direct_t *direct, int fd, uint64_t offset, uint64_t bytes);
/* What was announced, each byte once: copies up to `bytes` bytes from `offset` on, and returns how many; 0: read them another way. */
size_t tr_h5_direct_read(h5_direct_t *direct, int fd, void *out, size_t bytes, uint64_t offset);
/* Nobody will read the rest of what was announced by this range. */
void tr_h5_direct_forget(h5_direct_t *direct, int fd, uint64_t offset, uint64_t bytes);

/* Undoes the filters of a stored chunk: *data (in `spare` or `raw`) has chunk_bytes. */
tr_status_t tr_h5_decode(const h5_array_t *array, int64_t chunk, char *raw, char *spare, const char **data);
/* HDF5's Fletcher-32 of `bytes` bytes. */
uint32_t tr_fletcher32(const void *data, size_t bytes);

/* -- h5_convert.c ---------------------------------------------------------------------------------------- */

void tr_swap_bytes(void *data, int64_t elems, size_t elem_bytes);
/* (channels, points) to (points, channels). */
void tr_channels_last(const void *in, int64_t channels, int64_t points, size_t elem_bytes, void *out);
/* Index of the first NaN or infinity of f16, f32 or f64 data, of f64 also of what f32 cannot hold, -1: none. */
int64_t tr_find_not_finite(tr_dtype_t dtype, const void *data, int64_t elems);

/* The type in which inputs travel: as stored, wide ones as f32. */
tr_dtype_t tr_h5_travels_as(tr_dtype_t stored);
/* Whether that, or another way to travel, takes bits away. */
bool tr_h5_rounds(tr_dtype_t stored, tr_dtype_t travels_as);

/* -- h5_source.c ----------------------------------------------------------------------------------------- */

/* One of the files of a split. */
typedef struct {
    h5_file_t file;
    h5_file_t y_file; /* of labels in a file of their own; else its path is NULL */
    h5_names_t names;
    h5_array_t x, y;
    bool has_y;
    int64_t first; /* its first sample's index in the data set */
} h5_part_t;

typedef struct {
    h5_part_t *data;
    int count;
} h5_parts_t;

typedef struct {
    h5_wanted_t wanted;
    char pattern[4096]; /* file or glob */
    char group[256];
} h5_source_t;

/* From data.train, data.valid or data.test; pattern "" where the split is not given. wanted.group points into
 * *out. */
tr_status_t tr_h5_source_parse(const tr_data_settings_t *settings, tr_split_t split, h5_source_t *out);
/* The files that the pattern stands for: at least one. */
typedef struct {
    char **path;
    size_t count;
    glob_t found;
    char *plain[1];
} h5_paths_t;
tr_status_t tr_h5_paths(const h5_source_t *source, h5_paths_t *out);
void tr_h5_paths_free(h5_paths_t *paths);
/* NAME_y.h5 for NAME_x.h5: where the labels of a file without any are looked for. False: `path` has another form. */
bool tr_h5_labels_path(const char *path, char out[4096]);
/* Opens all files; none, with TR_OK, where an implied split is not there. Both want the lock; parts are
 * closed in any case. */
tr_status_t tr_h5_parts_open(const h5_source_t *source, h5_parts_t *out);
void tr_h5_parts_close(h5_parts_t *parts);

/* -- h5_meta.c: from the attributes of x, y, their group or the file; wants the lock --------------------- */

/* info->mean, std, channels from data.mean and data.std. */
tr_status_t tr_h5_moments(const h5_part_t *part, int64_t channels, const tr_data_settings_t *settings,
                          tr_dataset_info_t *info);
/* Whether the attributes mean and std should be mentioned: they do not fit and are not used, or another of the joined files has others than the
 * first, whose are used. Wants the lock. */
bool tr_h5_doubtful_moments(const h5_parts_t *parts, int64_t channels, const tr_data_settings_t *settings,
                            char out[H5_SENTENCE_BYTES]);
/* The number in the attribute `classes`, -1: none. */
int64_t tr_h5_attribute_classes(const h5_part_t *part);
/* One of the lists of names (TR_NAMES_CLASSES, ...) into *out, which is empty and is freed in any case; stays so where there is none. */
tr_status_t tr_h5_names(const h5_part_t *part, int list, tr_names_t *out);

/* -- h5_labels.c ----------------------------------------------------------------------------------------- */

/* The labels of all parts as class indices in *out (owned by the caller), or NULL where y holds numbers to
 * predict. `classes`: as data.classes; info->classes becomes their number, largest_label the last one's place,
 * label_doubt is set where a few samples alone made them numbers. Without the lock. */
tr_status_t tr_h5_labels(const h5_parts_t *parts, int64_t classes, h5_scratch_t *scratch, int32_t **out,
                         tr_dataset_info_t *info);

#endif
