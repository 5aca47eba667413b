/* One data set of a file: its type, dimensions and storage, which determine how it is read. */
#include "h5.h"
#include <stdio.h>
#include <string.h>

#define BAND_BYTES_MAX  (64 << 20) /* a larger chunk row is read by the library */
#define CACHE_BYTES_MAX ((size_t)512 << 20)

#define ARRAY_FAIL(a, code, format, ...)                                                           \
    TR_FAIL(code, "%s: /%s" format, (a)->file->path, (a)->name, __VA_ARGS__)

/* -- type -------------------------------------------------------------------------------------- */

static bool h5_type_is_integer(hid_t type, H5T_class_t class, tr_dtype_t *out) {
    static const tr_dtype_t types[2][4] = {{TR_U8, TR_U16, TR_U32, TR_U64},
                                           {TR_I8, TR_I16, TR_I32, TR_I64}};
    size_t bytes = H5Tget_size(type);
    int log2 = bytes == 1 ? 0 : bytes == 2 ? 1 : bytes == 4 ? 2 : bytes == 8 ? 3 : -1;
    if (class != H5T_INTEGER && class != H5T_ENUM) return false;
    if (log2 < 0 || H5Tget_precision(type) != 8 * bytes || H5Tget_offset(type) != 0) return false;
    *out = types[H5Tget_sign(type) != H5T_SGN_NONE][log2];
    return true;
}

static bool h5_type_is_float(hid_t type, tr_dtype_t *out) {
    static const struct {
        size_t bytes, exponent, mantissa, bias;
        tr_dtype_t dtype;
    } kinds[] = {{2, 5, 10, 15, TR_F16}, {4, 8, 23, 127, TR_F32}, {8, 11, 52, 1023, TR_F64}};
    size_t sign, exponent_at, exponent, mantissa_at, mantissa, bytes = H5Tget_size(type);
    if (H5Tget_fields(type, &sign, &exponent_at, &exponent, &mantissa_at, &mantissa) < 0)
        return false;
    for (size_t i = 0; i < TR_COUNT(kinds); i++)
        if (bytes == kinds[i].bytes && H5Tget_precision(type) == 8 * bytes &&
            sign == 8 * bytes - 1 && exponent == kinds[i].exponent &&
            mantissa == kinds[i].mantissa && mantissa_at == 0 && exponent_at == mantissa &&
            H5Tget_ebias(type) == kinds[i].bias && H5Tget_norm(type) == H5T_NORM_IMPLIED) {
            *out = kinds[i].dtype;
            return true;
        }
    return false;
}

/* Sets dtype, swap and memory_type. */
static tr_status_t array_find_type(h5_array_t *a) {
    hid_t type = H5Dget_type(a->id), base = type;
    H5T_class_t class = H5Tget_class(type);
    if (class == H5T_ENUM) base = H5Tget_super(type); /* h5py's booleans */
    H5T_order_t order = H5Tget_order(base), native = H5Tget_order(H5T_NATIVE_INT);
    bool known = class == H5T_FLOAT ? h5_type_is_float(base, &a->dtype)
                                    : h5_type_is_integer(base, class, &a->dtype);
    if (H5Tget_size(base) > 1 && order != H5T_ORDER_LE && order != H5T_ORDER_BE) known = false;
    a->swap = known && H5Tget_size(base) > 1 && order != native;
    if (known) { /* what H5Tget_native_type gives for a half float has four bytes */
        a->memory_type = H5Tcopy(base);
        H5Tset_order(a->memory_type, native);
    }
    char remedy[512];
    tr_h5_type_remedy(type, a->name, remedy);
    if (base != type) H5Tclose(base);
    H5Tclose(type);
    return known ? TR_OK : ARRAY_FAIL(a, TR_ERR_DATA, " %s.", remedy);
}

/* -- dimensions -------------------------------------------------------------------------------- */

static tr_status_t array_find_dims(h5_array_t *a) {
    hsize_t dim[H5S_MAX_RANK];
    hid_t space = H5Dget_space(a->id);
    int ndim = space < 0 ? -1 : H5Sget_simple_extent_dims(space, dim, NULL);
    if (space >= 0) H5Sclose(space);
    if (ndim == 0 && a->file->is_sample) dim[0] = (hsize_t)(ndim = 1);
    if (ndim < 1)
        return ARRAY_FAIL(a, TR_ERR_DATA,
                          " is a scalar; expected samples along the first dimension.%s", "");
    if (ndim > TR_MAX_DIMS)
        return ARRAY_FAIL(a, TR_ERR_DATA, " has %d dimensions; at most %d are supported.", ndim,
                          TR_MAX_DIMS);
    a->ndim = ndim;
    a->row_elems = 1;
    for (int d = 0; d < ndim; d++) {
        a->dim[d] = (int64_t)dim[d];
        if (d && (dim[d] == 0 || __builtin_mul_overflow(a->row_elems, a->dim[d], &a->row_elems) ||
                  a->row_elems > INT32_MAX))
            return ARRAY_FAIL(a, TR_ERR_DATA,
                              ": a sample has no elements, or too many (dimension %d is %llu).", d,
                              (unsigned long long)dim[d]);
    }
    a->rows = a->dim[0];
    a->row_bytes = a->row_elems * (int64_t)tr_dtype_bytes(a->dtype);
    int64_t total;
    if (a->rows < 0 || __builtin_mul_overflow(a->rows, a->row_bytes, &total))
        return ARRAY_FAIL(a, TR_ERR_DATA, " declares %llu samples of %lld bytes.",
                          (unsigned long long)dim[0], (long long)a->row_bytes);
    return TR_OK;
}

/* -- storage ----------------------------------------------------------------------------------- */

/* The filter pipeline; *out_ours false if it can only be undone by the library. */
static tr_status_t array_find_filters(h5_array_t *a, hid_t properties, bool *out_ours) {
    static const struct {
        H5Z_filter_t filter;
        const char *name;
        bool ours;
    } known[] = {{H5Z_FILTER_DEFLATE, "gzip", true},
                 {H5Z_FILTER_SHUFFLE, "shuffle", true},
                 {H5Z_FILTER_FLETCHER32, "checksum", true},
                 {H5_FILTER_LZF, "lzf", true},
                 {H5Z_FILTER_SZIP, "szip", false},
                 {H5Z_FILTER_NBIT, "nbit", false},
                 {H5Z_FILTER_SCALEOFFSET, "scaleoffset", false},
                 {32001, "blosc", false},
                 {32004, "lz4", false},
                 {32015, "zstd", false}};
    int count = H5Pget_nfilters(properties);
    size_t used = strlen(a->storage);
    *out_ours = count <= H5_MAX_FILTERS;
    a->checksum_only = count == 1;
    for (int i = 0; i < count; i++) {
        unsigned flags, config;
        size_t values = 0;
        H5Z_filter_t filter =
            H5Pget_filter2(properties, (unsigned)i, &flags, &values, NULL, 0, NULL, &config);
        char name[32];
        bool ours = false;
        snprintf(name, sizeof name, "filter %d", (int)filter);
        for (size_t k = 0; k < TR_COUNT(known); k++) {
            if (filter != known[k].filter) continue;
            snprintf(name, sizeof name, "%s", known[k].name);
            ours = known[k].ours;
        }
        if (!ours && H5Zfilter_avail(filter) <= 0)
            return ARRAY_FAIL(a, TR_ERR_DATA,
                              " is compressed with %s, which this HDF5 library lacks; set "
                              "HDF5_PLUGIN_PATH to the folder of its plugin.",
                              name);
        if (i < H5_MAX_FILTERS) a->filter[i] = filter;
        a->checksum_only &= filter == H5Z_FILTER_FLETCHER32;
        *out_ours &= ours;
        if (used < sizeof a->storage)
            used += (size_t)snprintf(a->storage + used, sizeof a->storage - used, ", %s", name);
    }
    a->filters = count < H5_MAX_FILTERS ? count : H5_MAX_FILTERS;
    return TR_OK;
}

/* The shape of the chunks, their filters and, unless the library has to read them, their places. */
static tr_status_t array_find_chunks(h5_array_t *a, hid_t properties) {
    bool ours;
    unsigned options = 0;
    hsize_t chunk[H5S_MAX_RANK];
    size_t used = (size_t)snprintf(a->storage, sizeof a->storage, "chunks of (");
    H5Pget_chunk(properties, a->ndim, chunk);
    a->chunk_count = a->chunks_per_row = 1;
    a->chunk_bytes = (int64_t)tr_dtype_bytes(a->dtype);
    a->whole_rows = true;
    for (int d = 0; d < a->ndim; d++) {
        a->chunk[d] = (int64_t)chunk[d];
        a->grid[d] = ceil_div(a->dim[d], a->chunk[d]);
        a->chunk_bytes *= a->chunk[d];
        if (d) a->chunks_per_row *= a->grid[d];
        if (d) a->whole_rows &= a->chunk[d] == a->dim[d];
        if (used < sizeof a->storage)
            used += (size_t)snprintf(a->storage + used, sizeof a->storage - used, "%s%lld",
                                     d ? ", " : "", (long long)a->chunk[d]);
    }
    if (used < sizeof a->storage) snprintf(a->storage + used, sizeof a->storage - used, ")");
    a->chunk_rows = a->chunk[0];
    a->chunk_row_bytes = a->chunk_bytes / a->chunk_rows;
    if (__builtin_mul_overflow(a->chunks_per_row, a->grid[0], &a->chunk_count))
        a->chunk_count = INT64_MAX;

    TR_TRY(array_find_filters(a, properties, &ours));
    int64_t chunk_row_bytes = a->chunk_rows * a->row_bytes;
    /* partial edge chunks without filters: left to the library */
    H5Pget_chunk_opts(properties, &options);
    if (!ours || options || a->chunk_count > H5_CHUNKS_MAX ||
        (a->filters && (chunk_row_bytes > BAND_BYTES_MAX || a->chunk_bytes > BAND_BYTES_MAX)))
        return TR_OK;
    TR_TRY(tr_h5_chunk_table(a));
    if (!a->table) return TR_OK;
    a->way = a->filters ? H5_CHUNK_ROWS : H5_CHUNKS;
    if (a->checksum_only && a->whole_rows)
        TR_TRY(tr_alloc((size_t)max64(a->chunk_count, 1), "verified chunks", &a->verified));
    return TR_OK;
}

/* Refuses what cannot be read; finds what is not in chunks. */
static tr_status_t array_find_storage(h5_array_t *a, hid_t properties) {
    a->layout = H5Pget_layout(properties);
    a->way = H5_LIBRARY;
    if (H5Pget_external_count(properties) > 0)
        return ARRAY_FAIL(a, TR_ERR_DATA,
                          " stores its data in another file (external storage), which is not "
                          "supported; convert it to a single file with h5repack.%s",
                          "");
    if (a->layout == H5D_VIRTUAL)
        return ARRAY_FAIL(a, TR_ERR_DATA,
                          " is a virtual data set, which is not supported. Name the source files "
                          "with a glob, such as data.train=part-*.h5, or store the values: "
                          "h5repack -l %s:CONTI %s OUT.h5",
                          a->name, a->file->path);
    H5Pget_fill_value(properties, a->memory_type, a->fill);
    if (a->layout == H5D_CHUNKED) return TR_OK;
    if (a->layout != H5D_CONTIGUOUS) {
        snprintf(a->storage, sizeof a->storage, "%s",
                 a->layout == H5D_COMPACT ? "compact" : "unknown storage");
        return TR_OK;
    }
    snprintf(a->storage, sizeof a->storage, "contiguous");
    const haddr_t address = H5Dget_offset(a->id);
    const uint64_t bytes = (uint64_t)a->rows * (uint64_t)a->row_bytes;
    if (address == HADDR_UNDEF)
        return TR_OK; /* never written: the library returns the fill value */
    if (address > (uint64_t)a->file->bytes || bytes > (uint64_t)a->file->bytes - address)
        return ARRAY_FAIL(a, TR_ERR_DATA,
                          " ends at byte %llu, but the file has %lld bytes: it is truncated.",
                          (unsigned long long)(address + bytes), (long long)a->file->bytes);
    a->way = H5_STRAIGHT;
    a->address = address;
    return TR_OK;
}

/* External links lead to other files and are not followed. */
static herr_t array_refuse_link(const char *parent, const char *parent_group, const char *child,
                                const char *child_object, unsigned *flags, hid_t access,
                                void *self) {
    return -1;
}

/* Reopens it with a cache for some chunk rows, for reads by the library. */
static hid_t array_open_id(const h5_array_t *a, size_t cache_bytes) {
    hid_t access = H5Pcreate(H5P_DATASET_ACCESS);
    H5Pset_elink_cb(access, array_refuse_link, NULL);
    if (cache_bytes) H5Pset_chunk_cache(access, 12421, cache_bytes, 1.0);
    hid_t id = H5Dopen2(a->file->id, a->name, access);
    H5Pclose(access);
    return id;
}

/* Closed first: an object that is open twice has one cache, that of the first. */
static tr_status_t array_grow_cache(h5_array_t *a) {
    size_t chunk_row = (size_t)a->chunks_per_row * (size_t)a->chunk_bytes,
           bytes = 4 * chunk_row < CACHE_BYTES_MAX ? 4 * chunk_row : chunk_row;
    if (bytes < (1 << 20) || bytes > 4 * CACHE_BYTES_MAX) return TR_OK;
    H5Dclose(a->id);
    a->id = array_open_id(a, bytes);
    return a->id >= 0 ? TR_OK
                      : H5_FAIL(TR_ERR_DATA, "%s: cannot reopen /%s", a->file->path, a->name);
}

/* Puts a dimension of 1 before those of the array, and of its chunks. */
static tr_status_t array_make_sample(h5_array_t *a) {
    const int64_t elems = a->rows * a->row_elems;
    if (elems == 0 || elems > INT32_MAX || a->ndim > TR_MAX_DIMS - 1)
        return ARRAY_FAIL(a, TR_ERR_DATA,
                          " cannot be one sample (data.sample = file): it has %lld values and %d "
                          "dimensions; expected at most %d values and %d dimensions.",
                          (long long)elems, a->ndim, INT32_MAX, TR_MAX_DIMS - 1);
    int64_t *const of[] = {a->dim, a->chunk, a->grid};
    for (size_t i = 0; i < TR_COUNT(of); i++) {
        memmove(of[i] + 1, of[i], (size_t)a->ndim * sizeof *of[i]);
        of[i][0] = 1;
    }
    a->whole_rows = true;
    for (int d = 1; d <= a->ndim; d++) a->whole_rows &= a->chunk[d] == a->dim[d];
    a->ndim++;
    a->rows = a->chunk_rows = 1;
    a->row_elems = elems;
    a->row_bytes = elems * (int64_t)tr_dtype_bytes(a->dtype);
    a->chunk_row_bytes = a->chunk_bytes;
    a->chunks_per_row = a->chunk_count;
    if (!a->whole_rows) tr_free(&a->verified);
    if (a->way != H5_CHUNK_ROWS || a->row_bytes <= BAND_BYTES_MAX) return TR_OK;
    tr_free(&a->table);
    a->way = H5_LIBRARY;
    return TR_OK;
}

tr_status_t tr_h5_array_open(h5_file_t *file, const char *name, h5_array_t *out) {
    h5_array_t *a = out;
    *a = (h5_array_t){.file = file, .id = -1, .memory_type = -1};
    TR_TRY(tr_strdup(name, &a->name));
    a->id = array_open_id(a, 0);
    if (a->id < 0) return H5_FAIL(TR_ERR_DATA, "%s: cannot open /%s", file->path, name);
    TR_TRY(array_find_type(a));
    TR_TRY(array_find_dims(a));
    hid_t properties = H5Dget_create_plist(a->id);
    if (properties < 0)
        return H5_FAIL(TR_ERR_DATA, "%s: cannot determine how /%s is stored", file->path, name);
    tr_status_t status = array_find_storage(a, properties);
    if (status == TR_OK && a->layout == H5D_CHUNKED) status = array_find_chunks(a, properties);
    if (status == TR_OK) tr_h5_find_unallocated(a);
    H5Pclose(properties);
    if (status == TR_OK && a->way == H5_LIBRARY && a->layout == H5D_CHUNKED)
        status = array_grow_cache(a);
    return status == TR_OK && file->is_sample ? array_make_sample(a) : status;
}

void tr_h5_array_rest(h5_array_t *a) {
    if (a->id > 0) H5Dclose(a->id);
    a->id = -1;
    if (a->way == H5_LIBRARY || a->memory_type <= 0) return;
    H5Tclose(a->memory_type);
    a->memory_type = -1;
}

void tr_h5_array_close(h5_array_t *a) {
    a->way = H5_STRAIGHT;
    tr_h5_array_rest(a);
    tr_free(&a->table);
    tr_free(&a->verified);
    tr_free(&a->name);
}
